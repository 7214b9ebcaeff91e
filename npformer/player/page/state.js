// The state: what the page knows at a moment. The other files change it, and then draw it.

import { homes, size, stepsOf } from "./trace.js";
import { writtenAsGiven, written } from "./words.js";

/** @typedef {import("./arithmetic.js").Step} Step */

export const state = {
  data: /** @type {any} */ (null), // what the page was given
  steps: /** @type {Step[]} */ ([]),
  home: /** @type {number[]} */ ([]), // the step of each cell
  original: "", // the given numbers as they came
  numbers: /** @type {number[]} */ ([]), // the number of each cell
  decimals: /** @type {number | null} */ (null), // what every step is rounded to, null for not at all
  at: { step: 0, cell: 0 },
  trail: /** @type {{ step: number, cell: number }[]} */ ([]), // where Backspace leads back to
  touched: 0, // the given cell along which the loss is drawn
  update: "sgd",
  // Of each step of training, the numbers that were given to it and its loss; `now` is the one that is shown.
  training: { past: /** @type {{ given: number[][], loss: number }[]} */ ([]), now: 0 },
};

export const show = {
  arithmetic: true, values: true, predict: false, answered: false, live: true, far: false,
  received: false, // whether the number of another calculation was asked for
};

export const givens = () => state.steps.map(step => step.given?.slice());
/** The steps with one of the updates, all numbers as they came. */
export function lay(update) {
  const steps = stepsOf(state.data, update);
  Object.assign(state, { update, steps, home: homes(steps) });
  state.original = String(givens());
}

export const current = () => state.steps[state.at.step];
export const stepOf = cell => state.steps[state.home[cell]];
export const stepNamed = name => state.steps.find(step => step.name === name);
export const numberOf = name => state.numbers[stepNamed(name).first];
export const valuesOf = (step, numbers = state.numbers) => numbers.slice(step.first, step.first + size(step));
export const digits = () => state.decimals ?? state.data.places;
export const isHidden = () => (show.predict || markHere()) && !show.answered && !current().given;
/** Where another calculation has another number: at this cell, or in this step of given numbers. */
export function markHere() {
  const { name, given } = current();
  return state.data.marks.find(mark => mark.station === name && (given || mark.cell === state.at.cell));
}
export function write(cell) {
  const value = state.numbers[cell];
  return stepOf(cell).given ? writtenAsGiven(value) : written(value, digits());
}

// The gradient of a given cell, and the given cell of a gradient, of an update, or of what Adam remembers.
export function gradientOf(cell) {
  const step = stepOf(cell), place = cell - step.first;
  if (step.name === "target") return -state.numbers[stepNamed("d_y").first + place]; // L has y − target in it
  const gradient = stepNamed(`d_${step.name}`);
  return gradient && state.numbers[gradient.first + place];
}
export function parameterOf(step, cell) {
  const parameter = stepNamed(step.name.replace(/^(d_|(new_)?[mv]_|[mv]_hat_|new_)/, ""));
  return parameter?.given && stepNamed(`d_${parameter.name}`) ? parameter.first + cell : undefined;
}
