// The state of the page. The other modules change it and then draw it.

import { homes, size, stepsOf } from "./trace.js";
import { writtenAsGiven, written } from "./words.js";

/** @typedef {import("./arithmetic.js").Step} Step */

export const state = {
  data: /** @type {any} */ (null), // the data in the page
  steps: /** @type {Step[]} */ ([]),
  home: /** @type {number[]} */ ([]), // the index of the step of each cell
  original: "", // the given numbers at the start, as text
  sentence: /** @type {string[]} */ ([]), // the words at the start
  numbers: /** @type {number[]} */ ([]), // the number of each cell
  decimals: /** @type {number | null} */ (null), // rounding of every step; null for none
  at: { step: 0, cell: 0 },
  trail: /** @type {{ step: number, cell: number }[]} */ ([]), // the places that Backspace returns to
  touched: 0, // the given cell on the x axis of the loss curve
  update: "sgd",
  // The given numbers and the loss of each training step; `now` is the index of the step on the screen.
  training: { past: /** @type {{ given: number[][], loss: number }[]} */ ([]), now: 0 },
};

export const show = {
  onStage: false, // without buttons and pictures, for a large screen
  arithmetic: true, values: true, predict: false, answered: false, live: true, far: false,
  level: "product", // the level of the view, see levels.js
  motion: true, // whether views and numbers move
  received: false, // whether the user asked for the number of the other calculation
};

export const givens = () => state.steps.map(step => step.given?.slice());
/** Set up the steps with one of the updates, and all numbers as they were at the start. */
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
/** Return the mark of this cell, or of this step of given numbers: where another calculation differs. */
export function markHere() {
  const { name, given } = current();
  return state.data.marks.find(mark => mark.station === name && (given || mark.cell === state.at.cell));
}
export function write(cell) {
  const value = state.numbers[cell];
  return stepOf(cell).given ? writtenAsGiven(value) : written(value, digits());
}

// Return the gradient of a given cell, or the given cell of a gradient, an update or a running mean of Adam.
export function gradientOf(cell) {
  const step = stepOf(cell), place = cell - step.first;
  if (step.name === "target") return -state.numbers[stepNamed("d_y").first + place]; // L has y − target
  const gradient = stepNamed(`d_${step.name}`);
  return gradient && state.numbers[gradient.first + place];
}
// Return the given cell whose loss curve is shown at a step: a parameter of the array on the screen.
export function touchedAt(step) {
  const parameter = parameterOf(step, state.at.cell), touched = stepOf(state.touched);
  if (step.given) return parameter === undefined || touched === step ? state.touched : step.first;
  if (parameter !== undefined) return parameter;
  const near = nearestParameter(step);
  return !near || near.section === touched.section ? state.touched : near.first;
}

// Return the parameter that a step needs, over the fewest steps; a gradient begins at its value.
function nearestParameter(step) {
  const found = [step.value === undefined ? step : state.steps[step.value]];
  for (const near of found) { // `found` grows while the loop runs
    if (near.given && gradientOf(near.first) !== undefined) return near;
    found.push(...near.uses.map(k => state.steps[k]).filter(other => !found.includes(other)));
  }
}

export function parameterOf(step, cell) {
  const parameter = stepNamed(step.name.replace(/^(d_|(new_)?[mv]_|[mv]_hat_|new_)/, ""));
  return parameter?.given && stepNamed(`d_${parameter.name}`) ? parameter.first + cell : undefined;
}
