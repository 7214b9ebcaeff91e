// The trace: its steps out of what the page was given, and what belongs to a step.

/** @typedef {import("./arithmetic.js").Step} Step */
/** @typedef {import("./arithmetic.js").Recipe} Recipe */

export const size = step => step.shape.reduce((product, length) => product * length);
export const isBack = step => step.name.startsWith("d_");
export const isNew = step => step.name.startsWith("new_");
export const isUpdate = step => step.section.startsWith("One step");
export const presses = step => (step.given ? 1 : size(step)); // what is given comes all at once

// The letter of a step stands left in its equation; a given one has only its name.
const NAMED = { eta: "η" };
export function letter(step) {
  const name = /^([mv])_/.exec(step.name)?.[1] ?? step.name.split(".").pop();
  return /^(\w+′?) ?[=([]/.exec(step.equation)?.[1] ?? NAMED[name] ?? name;
}

export function cellsOf(recipe) {
  if (!Array.isArray(recipe)) return [recipe];
  return recipe[0] === "number" ? [] : recipe.slice(1).flatMap(cellsOf);
}

/** A recipe with another cell in place of each. */
function changed(recipe, change) {
  if (!Array.isArray(recipe)) return change(recipe);
  return recipe[0] === "number" ? recipe : [recipe[0], ...recipe.slice(1).map(part => changed(part, change))];
}

/**
 * All steps: those of the pass, of the update that was chosen, and of the second pass, with all that is known
 * about each. The second pass is the first one, with what the update made in place of what was given.
 * @returns {Step[]}
 */
export function stepsOf(data, update) {
  const steps = [], named = new Map(), home = [];
  const add = step => {
    named.set(step.name, { ...step, first: home.length });
    steps.push(named.get(step.name));
    home.push(...Array(size(step)).fill(steps.at(-1)));
  };
  const again = cell => { // the cell in its place in the second pass
    const { name, first } = home[cell], heir = named.get(`new_${name}`);
    return heir ? heir.first + cell - first : cell;
  };
  for (const step of [...data.steps, ...data.updates[update]]) add(unpacked(step, data.looks));
  for (const [section, name, equation] of data.again) {
    const old = named.get(name.slice("new_".length));
    add({ ...old, section, name, equation, recipes: old.recipes.map(recipe => changed(recipe, again)) });
  }
  relate(steps, data.norm);
  return steps;
}

// A step's recipes out of their forms: "" is a cell, given by its distance to the one in the recipe before.
function unpacked({ look, forms, form, cells, ...rest }, looks) {
  const step = { ...rest, ...looks[look] };
  if (step.given) return { ...step, given: step.given.slice() };
  const before = [], which = form ?? Array(size(step)).fill(0);
  let next = 0;
  const recipes = which.map(i => {
    let slot = 0;
    return changed(forms[i], () => {
      before[slot] = (before[slot] ?? 0) + cells[next++];
      return before[slot++];
    });
  });
  return { ...step, recipes };
}

// The step of each cell.
export const homes = steps => steps.flatMap((step, k) => Array(size(step)).fill(k));

// A + hands its gradient on, both ways as it is: behind a norm that of a is ds, that of f is dt.
export const SPLIT = { post: { a: "s", f: "t" }, pre: { a: "h", f: "y" } };

// Tell each step what it `uses` and the tables `shown` with it; a gradient also its `value`, and that value's
// forward `lines`.
// What has no gradient of its own (exp, mean, std, …) is only on the way: both look through it, but for the
// large tables of the attention.
function relate(steps, norm) {
  const home = homes(steps), used = step => (step.recipes ?? []).flatMap(cellsOf).map(cell => home[cell]);
  for (const step of steps) step.uses = [...new Set(used(step))];
  const place = new Map(steps.map((step, k) => [step.name, k]));
  const plain = name => name.replace(/^new_/, "");
  const gradientOf = name => place.get(`d_${SPLIT[norm][plain(name)] ?? plain(name)}`);
  const onTheWay = k => steps[k].recipes && !isBack(steps[k]) && gradientOf(steps[k].name) === undefined;
  const through = (list, next) => list.flatMap(k => [...(onTheWay(k) ? through(next(k), next) : []), k]);
  const forward = step => !isBack(step) && !isNew(step) && !/^[mv]_/.test(step.name);
  const users = k => steps.flatMap((step, j) => (forward(step) && step.uses.includes(k) ? [j] : []));
  const inOrder = list => [...new Set(list)].sort((a, b) => a - b);
  for (const step of steps) {
    const plainly = isUpdate(step) || isBack(step) || ["n_heads", "B·n_heads"].includes(step.axes[0]);
    step.shown = plainly ? step.uses : [...new Set(through(step.uses, k => steps[k].uses))];
    step.value = isBack(step) ? place.get(step.name.slice(2)) : undefined;
    step.lines = step.value === undefined ? [] : inOrder(through(users(step.value), users));
  }
}

export function rowsOf({ shape }, list) {
  const J = shape[2];
  return list.flatMap((_, i) => (i % J ? [] : [list.slice(i, i + J)]));
}

// The word of a row or a column i of the matrix g: in a batch each sentence has its own.
export function word(words, count, g, matrices, i) {
  const sentences = words.length / count;
  return words[Math.floor(g * sentences / matrices) * count + i];
}

// "bites, column 2": where in its step a cell stands, counted from 0 as in the lessons.
export function whereabouts(step, cell) {
  const [G, I, J] = step.shape;
  const g = Math.floor(cell / (I * J)), i = Math.floor(cell / J) % I, j = cell % J;
  const row = step.rows.length ? word(step.rows, I, g, G, i) : I > 1 ? `row ${i}` : "";
  const column = J > 1 ? (step.columns.length ? word(step.columns, J, g, G, j) : `column ${j}`) : "";
  return [step.titles[g], row, column].filter(Boolean).join(", ");
}
