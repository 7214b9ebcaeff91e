// Make the steps from the data of the page, and find out which steps belong together.

/** @typedef {import("./arithmetic.js").Step} Step */
/** @typedef {import("./arithmetic.js").Recipe} Recipe */

export const size = step => step.shape.reduce((product, length) => product * length);
export const isBack = step => step.name.startsWith("d_");
export const isNew = step => step.name.startsWith("new_");
export const isUpdate = step => step.section.startsWith("One step");
export const presses = step => (step.given ? 1 : size(step)); // given numbers appear all at once

// The symbol of a step is the left side of its equation; a given step has only its name.
const NAMED = { eta: "η" };
export function letter(step) {
  const name = /^([mv])_/.exec(step.name)?.[1] ?? step.name.split(".").pop();
  return /^(\w+′?) ?[=([]/.exec(step.equation)?.[1] ?? NAMED[name] ?? name;
}

export function cellsOf(recipe) {
  if (!Array.isArray(recipe)) return [recipe];
  return recipe[0] === "number" ? [] : recipe.slice(1).flatMap(cellsOf);
}

/** Return a recipe in which each cell is replaced. */
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
  const again = cell => { // the corresponding cell of the second pass
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

// Make recipes from forms: "" is a cell, sent as the difference from the cell of the previous recipe.
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

// Return the index of the step of each cell.
export const homes = steps => steps.flatMap((step, k) => Array(size(step)).fill(k));

// The gradient of a sum is also the gradient of its summands: in a post-norm block, da is ds and df is dt.
export const SPLIT = { post: { a: "s", f: "t" }, pre: { a: "h", f: "y" } };

// Give each step the steps that it `uses` and the tables `shown` with it; a gradient also gets its `value`
// and the forward `lines` of that value. Steps without a gradient (exp, mean, std, …) are intermediate, so
// `value` and `lines` skip them, except for the large tables of the attention.
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

// Return the word of row or column i of matrix g: in a batch, each sentence has different words.
export function word(words, count, g, matrices, i) {
  const sentences = words.length / count;
  return words[Math.floor(g * sentences / matrices) * count + i];
}

// Return the position of a cell within its step, counted from 0 as in the lessons: "bites, column 2".
export function whereabouts(step, cell) {
  const [G, I, J] = step.shape;
  const g = Math.floor(cell / (I * J)), i = Math.floor(cell / J) % I, j = cell % J;
  const row = step.rows.length ? word(step.rows, I, g, G, i) : I > 1 ? `row ${i}` : "";
  const column = J > 1 ? (step.columns.length ? word(step.columns, J, g, G, j) : `column ${j}`) : "";
  return [step.titles[g], row, column].filter(Boolean).join(", ");
}
