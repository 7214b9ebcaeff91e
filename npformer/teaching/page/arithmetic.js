// Arithmetic: recipes and their numbers. Nothing here knows of a page.

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

/** @type {Object<string, (...parts: number[]) => number>} */
const OPERATIONS = {
  "+": (...terms) => terms.reduce((sum, term) => sum + term),
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "/": (a, b) => a / b,
  power: Math.pow,
  square: a => a * a,
  sqrt: Math.sqrt,
  exp: Math.exp,
  sin: Math.sin,
  cos: Math.cos,
  max: Math.max,
  relu: z => Math.max(0, z),
  gate: (d, z) => (z > 0 ? d : 0),
  share: z => (z < 0 ? upperShare(-z) : 1 - upperShare(z)),
  bell: z => Math.exp(-z * z / 2) / Math.sqrt(2 * Math.PI),
  hidden: () => -Infinity,
};

// Of a normal distribution, what lies above z ≥ 0: a series near 0, a continued fraction from 3 on.
function upperShare(z) {
  if (z > 40) return 0;
  if (z < 3) {
    let term = z, sum = z;
    for (let k = 1; k < 80; k++) sum += term *= z * z / (2 * k + 1);
    return 0.5 - sum * OPERATIONS.bell(z);
  }
  let below = z;
  for (let k = 80; k > 0; k--) below = z + k / below;
  return OPERATIONS.bell(z) / below;
}

/** @param {Recipe} recipe @param {ArrayLike<number>} numbers @returns {number} */
export function evaluate(recipe, numbers) {
  if (typeof recipe === "number") return numbers[recipe];
  const [operation, ...parts] = recipe;
  if (operation === "number") return parts[0];
  return OPERATIONS[operation](...parts.map(part => evaluate(part, numbers)));
}

// As people round on paper: a half goes away from zero. The millionth is for 0.4205, a little low in binary.
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

// What is given when the next step of training begins: that which this one made.
export function trained(steps, numbers) {
  const made = new Map(steps.map(step => [step.name, step]));
  return steps.map(step => {
    const next = step.given && made.get(`new_${step.name}`);
    return next ? numbers.slice(next.first, next.first + step.given.length) : step.given;
  });
}

// The loss for values of one given number, all others as they are.
export function lossAlong(steps, decimals, numbers, k, place, values) {
  const loss = steps.findIndex(step => step.name === "loss");
  const step = steps[k], before = numbers.slice(0, step.first);
  return values.map(value => {
    const given = step.given.with(place, value), changed = steps.with(k, { ...step, given });
    return calculate(changed, decimals, before.slice(), k, loss)[steps[loss].first];
  });
}
