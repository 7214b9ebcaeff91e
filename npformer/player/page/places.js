// Move from cell to cell and from step to step, or to the place in the address of the page.

import { stationOf } from "./belt.js";
import { setLevel } from "./levels.js";
import { between, page } from "./page.js";
import { current, show, state, stepOf } from "./state.js";
import { drawCell, drawStep } from "./step.js";
import { endStory } from "./story.js";
import { isBack, isNew, presses } from "./trace.js";
import { endTravel, travelSoon } from "./travel.js";

export function go(step, cell) {
  const other = step !== state.at.step;
  Object.assign(state.at, { step, cell });
  show.answered = false;
  page.guess.value = page.verdict.textContent = "";
  page.peek.hidden = true;
  endStory();
  endTravel();
  const stays = show.level === "cell" && !current().given;
  setLevel(stays ? "cell" : "product", other ? drawStep : drawCell);
}

export function move(by) {
  const { at, steps } = state, cell = at.cell + by, step = at.step + by;
  if (cell >= 0 && cell < presses(current())) go(at.step, cell);
  else if (steps[step]) go(step, by > 0 ? 0 : presses(steps[step]) - 1);
  travelSoon();
}

export function moveStep(by) {
  go(between(0, state.at.step + by, state.steps.length - 1), 0);
  travelSoon();
}
export const goToEnd = step => go(step, presses(state.steps[step]) - 1);

// Move as a presenter does: first one cell with its arithmetic, then the whole step, then the next step.
export function present(by) {
  const { step, cell } = state.at, last = presses(current()) - 1;
  if (by > 0) return cell < last ? goToEnd(step) : moveStep(1);
  if (cell > 0) return go(step, 0);
  if (step > 0) goToEnd(step - 1);
}

export function moveStation(by) {
  const { steps, at } = state;
  const opens = steps.flatMap((step, k) => (k && steps[k - 1].section === step.section ? [] : [k]));
  const here = opens.findLastIndex(k => k <= at.step);
  go(opens[between(0, here + by, opens.length - 1)], 0);
}

export function goToStation(station) { // in the same pass as the current step
  const way = step => `${isBack(step)} ${isNew(step)}`;
  const there = state.steps.filter(step => stationOf(step) === station);
  const step = there.find(step => way(step) === way(current())) ?? there[0];
  go(state.steps.indexOf(step), 0);
}

export function goToCell(cell) {
  const step = stepOf(cell);
  if (step !== current()) state.trail.push({ ...state.at });
  go(state.home[cell], step.given ? 0 : cell - step.first);
  if (step.given) page.stage.querySelector(`[data-cell="${cell}"] input`).focus();
}

export function goBack() {
  const { step, cell } = state.trail.pop() ?? state.at;
  go(step, cell);
}

export function open(place) {
  const [name, cell] = place.split(","), k = state.steps.findIndex(step => step.name === name);
  if (k < 0) return false;
  go(k, between(0, Math.floor(Number(cell)) || 0, presses(state.steps[k]) - 1));
  return true;
}

export const addressed = () => new URLSearchParams(location.hash.slice(1)).get("at") ?? "";
