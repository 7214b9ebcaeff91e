// The trace: its steps out of what the page was given, and what belongs to a step.

/** @typedef {import("./arithmetic.js").Step} Step */
/** @typedef {import("./arithmetic.js").Recipe} Recipe */

export const size = step => step.shape.reduce((product, length) => product * length);
export const isBack = step => step.name.startsWith("d_");
export const isNew = step => step.name.startsWith("new_");
export const presses = step => (step.given ? 1 : size(step)); // what is given comes all at once

// The letter of a step stands left in its equation; a given one has only its name.
const NAMED = { eta: "η" };
export function letter(step) {
  const name = /^([mv])_/.exec(step.name)?.[1] ?? step.name.split(".").pop();
  return /^(\w+′?) ?[=([]/.exec(step.equation)?.[1] ?? NAMED[name] ?? name;
}

export function cellsOf(recipe) {
  if (typeof recipe === "number") return [recipe];
  return recipe[0] === "number" ? [] : recipe.slice(1).flatMap(cellsOf);
}

/**
 * All steps: those of the pass, of the update that was chosen, and of the second pass, with all that is known
 * about each. The second pass is the first one, with what the update made in place of what was given.
 * @returns {Step[]}
 */
export function stepsOf(data, update) {
  const before = [...data.steps, ...data.updates[update]].map(step => unpacked(step, data.looks));
  count(before);
  const place = new Map(before.map((step, k) => [step.name, k])), cells = new Map();
  const follow = (from, first) => {
    for (let i = 0; i < size(from); i++) cells.set(from.first + i, first + i);
  };
  for (const step of before.filter(isNew)) {
    const old = before[place.get(step.name.slice("new_".length))];
    if (old) follow(old, step.first);
  }
  let first = before.at(-1).first + size(before.at(-1));
  const again = data.again.map(([section, name, equation]) => {
    const old = before[place.get(name.slice("new_".length))];
    const recipes = old.recipes.map(recipe => moved(recipe, cells));
    follow(old, first);
    first += size(old);
    return { ...old, section, name, equation, recipes };
  });
  const steps = [...before, ...again].map(step => ({ ...step }));
  count(steps);
  relate(steps, data.norm);
  return steps;
}

function moved(recipe, cells) {
  if (typeof recipe === "number") return cells.get(recipe) ?? recipe;
  return recipe[0] === "number" ? recipe : [recipe[0], ...recipe.slice(1).map(part => moved(part, cells))];
}

// A step's recipes out of their forms: "" is a cell, given by its distance to the one in the recipe before.
function unpacked(step, looks) {
  const { look, forms, form, cells, given, ...rest } = step, whole = { ...rest, ...looks[look] };
  if (given) return { ...whole, given: given.slice() };
  const before = [];
  let next = 0;
  const filled = (part, slots) => {
    if (part === "") return before[slots.count] = (before[slots.count++] ?? 0) + cells[next++];
    return part[0] === "number" ? part : [part[0], ...part.slice(1).map(inner => filled(inner, slots))];
  };
  const which = form ?? Array(size(whole)).fill(0);
  return { ...whole, recipes: which.map(i => filled(forms[i], { count: 0 })) };
}

/** Tell each step its first cell and the steps it uses. @param {Step[]} steps */
function count(steps) {
  const home = homes(steps);
  let first = 0;
  for (const step of steps) {
    step.first = first;
    first += size(step);
    step.uses = [...new Set((step.recipes ?? []).flatMap(cellsOf).map(cell => home[cell]))];
  }
}

// The step of each cell.
export const homes = steps => steps.flatMap((step, k) => Array(size(step)).fill(k));

// A + hands its gradient on, both ways as it is: behind a norm that of a is ds, that of f is dt.
export const SPLIT = { post: { a: "s", f: "t" }, pre: { a: "h", f: "y" } };

// Tell each step the tables `shown` with it; a gradient also its `value`, and that value's forward `lines`.
// What has no gradient of its own (exp, mean, std, …) is only on the way: both look through it, but for the
// large tables of the attention.
function relate(steps, norm) {
  const place = new Map(steps.map((step, k) => [step.name, k]));
  const plain = name => name.replace(/^new_/, "");
  const gradientOf = name => place.get(`d_${SPLIT[norm][plain(name)] ?? plain(name)}`);
  const onTheWay = k => steps[k].recipes && !isBack(steps[k]) && gradientOf(steps[k].name) === undefined;
  const through = (list, next) => list.flatMap(k => [...(onTheWay(k) ? through(next(k), next) : []), k]);
  const forward = step => !isBack(step) && !isNew(step) && !/^[mv]_/.test(step.name);
  const users = k => steps.flatMap((step, j) => (forward(step) && step.uses.includes(k) ? [j] : []));
  const inOrder = list => [...new Set(list)].sort((a, b) => a - b);
  for (const step of steps) {
    const trains = step.section.includes("training");
    const plainly = trains || isBack(step) || ["n_heads", "B·n_heads"].includes(step.axes[0]);
    step.shown = plainly ? step.uses : [...new Set(through(step.uses, k => steps[k].uses))];
    step.value = isBack(step) ? place.get(step.name.slice(2)) : undefined;
    step.lines = step.value === undefined ? [] : inOrder(through(users(step.value), users));
  }
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
