// Evaluate recipes (see npformer/lessons/recipes.py). This module does not use the page.

/**
 * A cell's number, ["number", value, text], or [operation, recipe, …]: see recipes.py.
 * @typedef {number | any[]} Recipe
 */

/**
 * A line of the calculation. `given` are its numbers, or `recipes` say how each cell is found.
 * @typedef {{
 *   section: string, name: string, equation: string, source: string, axes: string[], shape: number[],
 *   titles: string[], rows: string[], columns: string[], given?: number[], recipes?: Recipe[],
 *   first?: number, uses?: number[], shown?: number[], value?: number, lines?: number[],
 * }} Step
 */

const bell = z => Math.exp(-z * z / 2) / Math.sqrt(2 * Math.PI);

// Each operation: its function, its text, and the positions where the text needs brackets. The names of the
// positions are first, term, taken (after −), factor and below (after /); n is the number of operands.
const AS_PART = ["taken", "factor", "below"];
/** @type {Object<string, [(...parts: number[]) => number, string | ((n: number) => string), string[]?]>} */
export const OPERATIONS = {
  "+": [(...terms) => terms.reduce((a, b) => a + b), n => "first" + " + term".repeat(n - 1), AS_PART],
  "-": [(a, b) => a - b, "first − taken", AS_PART],
  "*": [(a, b) => a * b, "factor · factor", ["below"]],
  "/": [(a, b) => a / b, "factor / below", ["below"]],
  power: [Math.pow, "factor^factor"],
  square: [a => a * a, "factor²"],
  sqrt: [Math.sqrt, "√(first)"],
  exp: [Math.exp, "exp(first)"],
  sin: [Math.sin, "sin(first)"],
  cos: [Math.cos, "cos(first)"],
  max: [Math.max, n => "the largest of first" + ", first".repeat(n - 1)],
  relu: [z => Math.max(0, z), "max(0, first)"],
  gate: [(d, z) => (z > 0 ? d : 0), "first if z > 0, else 0 (z = first)"],
  share: [share, "Φ(first)"],
  bell: [bell, "φ(first)"],
  hidden: [() => -Infinity, "−∞, since this key comes later"],
};

// The cumulative distribution function of the normal distribution, as a series.
function share(z) {
  if (Math.abs(z) > 8) return z > 0 ? 1 : 0;
  let term = z, sum = z;
  for (let k = 1; k < 200; k++) sum += term *= z * z / (2 * k + 1);
  return 0.5 + sum * bell(z);
}

/** @param {Recipe} recipe @param {ArrayLike<number>} numbers @returns {number} */
export function evaluate(recipe, numbers) {
  if (typeof recipe === "number") return numbers[recipe];
  const [operation, ...parts] = recipe;
  if (operation === "number") return parts[0];
  return OPERATIONS[operation][0](...parts.map(part => evaluate(part, numbers)));
}

// Round like people: a half goes away from zero. The millionth helps 0.4205, which is a bit lower in binary.
export function round(value, decimals) {
  if (decimals === null || !Number.isFinite(value)) return value;
  const units = Math.floor(Math.abs(value) * 10 ** decimals + (0.5 + 1e-6));
  return (Math.sign(value) * units) / 10 ** decimals + 0; // + 0: no -0
}

/**
 * Every number of the trace, in order: a recipe only looks back. `numbers` may hold those of the steps before
 * `from`; `last` is the last step that is wanted.
 * @param {Step[]} steps
 */
export function calculate(steps, decimals, numbers = [], from = 0, last = steps.length - 1) {
  for (const step of steps.slice(from, last + 1)) {
    if (step.given) numbers.push(...step.given);
    else for (const recipe of step.recipes) numbers.push(round(evaluate(recipe, numbers), decimals));
  }
  return numbers;
}

// Return the given numbers of the next training step: the results of this one.
export function trained(steps, numbers) {
  const made = new Map(steps.map(step => [step.name, step]));
  return steps.map(step => {
    const next = step.given && made.get(`new_${step.name}`);
    return next ? numbers.slice(next.first, next.first + step.given.length) : step.given;
  });
}

// Return the loss for several values of one given number; all other numbers stay the same.
export function lossAlong(steps, decimals, numbers, k, place, values) {
  const loss = steps.findIndex(step => step.name === "loss");
  const step = steps[k], before = numbers.slice(0, step.first);
  return values.map(value => {
    const given = step.given.with(place, value), changed = steps.with(k, { ...step, given });
    return calculate(changed, decimals, before.slice(), k, loss)[steps[loss].first];
  });
}
