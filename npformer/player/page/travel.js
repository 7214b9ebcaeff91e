// The motion of one cell: a row and a column travel together and become the cell, softmax rescales a row,
// and a gradient flows back the way the value came. The moving boxes are above the page, which shows the end.

import { evaluate } from "./arithmetic.js";
import { productOf, termsOf } from "./closeup.js";
import { endMotion, isMoving, isPlaying, playMotion, stepMotion } from "./motion.js";
import { later, page } from "./page.js";
import { current, digits, isHidden, show, state, stepOf, write } from "./state.js";
import { cellsOf, isBack } from "./trace.js";
import { written } from "./words.js";

const DELAY = 80; // milliseconds: fast key presses start no motion
const AWAY = 700, JOIN = 700, MULTIPLY = 350, WAIT = 250, SUM = 600; // the parts of the motion


// Start the motion of the current cell a little later.
export function travelSoon() {
  later("travel", DELAY, () => travel());
}

export function endTravel() {
  later("travel", 0, () => {});
  endMotion();
}

/** Start the motion of the current cell, and return whether there is one. */
export function travel() {
  endMotion();
  const isShown = show.level === "product" && !current().given && !isHidden();
  if (!isShown || !isMoving()) return false;
  const result = page.stage.querySelector("td.now"), { recipe } = here();
  const flights = isSoftmax(recipe) ? softmaxFlights(recipe, result) : cellFlights(recipe, result);
  if (!flights.boxes.length) return false;
  const { boxes, duration, moments } = flights;
  page.flight.replaceChildren(...boxes.map(box => box.element));
  const hidden = [[0, { opacity: 0 }], [duration - 120, { opacity: 0 }], [duration, { opacity: 1 }]];
  const results = [result, page.line.querySelector("b")]; // in the table and in the line of the arithmetic
  const arrive = results.map(element => ({ element, frames: frames(duration, hidden) }));
  const tracks = boxes.map(box => ({ element: box.element, frames: frames(duration, box.places) }));
  playMotion([...arrive, ...tracks], duration, moments, () => page.flight.replaceChildren());
  return true;
}

/** Go to the next moment of the motion; without a motion, begin one and stop at its first moment. */
export function nextMoment() {
  if (isPlaying() || travel()) stepMotion();
}

const here = () => ({ recipe: current().recipes[state.at.cell], cell: current().first + state.at.cell });

// Return keyframes from [time, properties]; between two times, the browser eases.
const frames = (duration, places) => places.map(([time, properties]) =>
  ({ offset: Math.min(time / duration, 1), easing: "ease-in-out", ...properties }));

const shown = cell => page.stage.querySelector(`td[data-cell="${cell}"]:not([data-role=result])`);

// Return a box with a true number. `cells` are the cells of the number, of its factors or of its terms.
function boxOf({ left, top, width, height }, text, look, cells, like) {
  const element = document.createElement("div"), { fontSize } = getComputedStyle(like);
  element.className = `mover ${look}`;
  element.textContent = text;
  element.dataset.cells = cells.join(" ");
  const size = { left: `${left}px`, top: `${top}px`, width: `${width}px`, height: `${height}px` };
  Object.assign(element.style, { ...size, fontSize, lineHeight: `${height}px` });
  return element;
}

const boxAt = (td, text, look, cells) => boxOf(td.getBoundingClientRect(), text, look, cells, td);

// Return the transform from one rectangle to the middle of another, shifted by some pixels.
function toMiddle(a, b, right = 0, down = 0) {
  const x = b.left + b.width / 2 - a.left - a.width / 2 + right;
  const y = b.top + b.height / 2 - a.top - a.height / 2 + down;
  return `translate(${x}px, ${y}px)`;
}

const wayTo = (from, to, right, down) =>
  toMiddle(from.getBoundingClientRect(), to.getBoundingClientRect(), right, down);

const STILL = "translate(0px, 0px)";

// The row and the column of a sum of products, or the cells that another recipe uses

function cellFlights(recipe, result) {
  const terms = (termsOf(recipe) ?? cellsOf(recipe).map(cell => [cell])).filter(term => term.every(shown));
  const spread = spreadOfValue(recipe), start = spread.length ? AWAY : 0;
  const isColumn = areBelowEachOther(terms.filter(term => term.length === 2).map(([cell]) => shown(cell)));
  const boxes = terms.flatMap(term => termBoxes(term, start, isColumn, result));
  const together = start + JOIN, multiplied = together + MULTIPLY + WAIT, duration = multiplied + SUM;
  const moments = [...(start ? [start] : []), together, multiplied];
  return { boxes: [...spread, ...boxes], duration, moments };
}

function areBelowEachOther(tds) {
  const [a, b] = tds.map(td => td.getBoundingClientRect().left);
  return b !== undefined && Math.abs(a - b) < 2;
}

// Two factors join, turn into their product, and the product goes into the result; one cell goes there alone.
function termBoxes(term, start, isColumn, result) {
  const [first, second] = term, one = shown(first), together = start + JOIN;
  const multiplied = together + MULTIPLY + WAIT, end = multiplied + SUM;
  const into = wayTo(one, result), at = isColumn ? [one.offsetWidth, 0] : [0, one.offsetHeight];
  const box = (td, text, look, cells, places) => ({ element: boxAt(td, text, look, cells), places });
  const arrival = [[multiplied, { transform: STILL, opacity: 1 }],
    [end - 60, { transform: into, opacity: 1 }], [end, { transform: into, opacity: 0 }]];
  if (second === undefined) {
    return [box(one, write(first), lookOf(first), [first], [[0, { transform: STILL, opacity: 0 }],
      [start, { transform: STILL, opacity: start ? 0 : 1 }], ...arrival])];
  }
  const other = shown(second), joined = wayTo(other, one, ...at);
  const leaves = (transform, opacity = start ? 0 : 1) => [[0, { transform: STILL, opacity }],
    [start, { transform: STILL, opacity: 1 }], [together, { transform, opacity: 1 }],
    [together + MULTIPLY, { transform, opacity: 0 }], [end, { transform, opacity: 0 }]];
  const product = [[0, { transform: STILL, opacity: 0 }], [together, { transform: STILL, opacity: 0 }],
    [together + MULTIPLY, { transform: STILL, opacity: 1 }], ...arrival];
  return [
    box(one, write(first), lookOf(first), [first], leaves(STILL)),
    box(other, write(second), lookOf(second), [second], leaves(joined)),
    box(one, productOf(term), "product", term, product),
  ];
}

const lookOf = cell => (isBack(stepOf(cell)) ? "gradient" : "enters");

// The gradient comes back the way the value went: the value goes to every gradient that enters the cell.
function spreadOfValue(recipe) {
  const step = current(), td = page.stage.querySelector("td.beside");
  if (!td || !isBack(step)) return [];
  const cell = Number(td.dataset.cell), goals = cellsOf(recipe).filter(goal => isBack(stepOf(goal)));
  return [...new Set(goals)].map(shown).filter(Boolean).map(goal => {
    const transform = wayTo(td, goal);
    return { element: boxAt(td, write(cell), "value", [cell]), places: [[0, { transform: STILL, opacity: 1 }],
      [AWAY, { transform, opacity: 1 }], [AWAY + 150, { transform, opacity: 0 }],
      [Infinity, { transform, opacity: 0 }]] };
  });
}

// Softmax: the numbers of a row lie side by side, and the whole row is divided by its sum

const isSoftmax = recipe => Array.isArray(recipe) && recipe[0] === "/" && recipe[2]?.[0] === "+"
  && recipe[2].slice(1).includes(recipe[1]);

const LAY = 600, RESCALE = 900, LAND = 600, ALL = LAY + RESCALE + LAND; // in milliseconds

// At first, a bar is as long as its exp. Then the whole row is divided by its sum, and is as long as 1.
function softmaxFlights(recipe, result) {
  const exps = recipe[2].slice(1);
  const first = here().cell - (state.at.cell % exps.length);
  const sum = evaluate(["+", ...exps], state.numbers), row = placeOfRow(first, sum);
  let before = 0;
  const bars = exps.flatMap((exp, j) => {
    const share = state.numbers[exp], bar = { from: before, share, exp, weight: first + j };
    before += share;
    return [shareBox(bar, sum, row), ...labelBoxes(bar, sum, row, result)];
  });
  const weights = exps.map((_, j) => first + j), { left, top, height, unit } = row;
  const total = (length, cells, times) => fixedBox(
    { left: left + length * unit + 8, top, width: 150, height },
    `sum ${written(length, digits())}`, "total", cells, times);
  const panel = { left: left - 4, top: top - 4, width: sum * unit + 170, height: height * 1.7 };
  const ruler = { left, top: top + height, width: unit, height: height / 2 };
  const behind = fixedBox(panel, "", "panel", [], [0, LAY / 2, ALL - 200, ALL]);
  const beside = [
    total(sum, exps, [0, LAY, LAY, LAY + 200]),
    total(1, weights, [LAY + RESCALE - 200, LAY + RESCALE, ALL - 200, ALL]),
    fixedBox(ruler, "1", "ruler", [], [0, LAY, ALL - 200, ALL]),
  ];
  return { boxes: [behind, ...bars, ...beside], duration: ALL, moments: [LAY, LAY + RESCALE] };
}

// Return where the row is laid out, below the result, and the length of 1 in pixels.
function placeOfRow(first, sum) {
  const td = page.stage.querySelector(`td[data-cell="${first}"][data-role=result]`);
  const { left, height } = td.getBoundingClientRect();
  const { bottom } = td.closest("table").getBoundingClientRect();
  return { left, height, top: bottom + 8, unit: Math.min(innerWidth / 4, (innerWidth - left - 170) / sum) };
}

// Return a box that appears between the first two of four times, and disappears between the others.
const fixedBox = (place, text, look, cells, [begins, isThere, leaves, gone]) => ({
  element: boxOf(place, text, look, cells, page.stage),
  places: [[0, { opacity: 0 }], [begins, { opacity: 0 }], [isThere, { opacity: 1 }], [leaves, { opacity: 1 }],
    [gone, { opacity: 0 }], [ALL, { opacity: 0 }]],
});

function shareBox({ from, share }, sum, { left, top, height, unit }) {
  const place = { left: left + from * unit, top, width: share * unit, height };
  const element = boxOf(place, "", "share", [], page.stage), whole = `${STILL} scaleX(1)`;
  const divided = `translate(${(from / sum - from) * unit}px, 0px) scaleX(${1 / sum})`;
  return { element, places: [[0, { opacity: 0, transform: whole }], [LAY, { opacity: 1, transform: whole }],
    [LAY + RESCALE, { opacity: 1, transform: divided }], [ALL, { opacity: 0, transform: divided }]] };
}

// The number before the division comes from its table. The number after it goes the same way, and lands.
function labelBoxes({ from, share, exp, weight }, sum, { left, top, height, unit }, result) {
  const middle = from + share / 2, width = result.offsetWidth, td = shown(exp);
  const isHere = weight === here().cell;
  const place = { left: left + middle * unit - width / 2, top, width, height };
  const label = cell => boxOf(place, write(cell), "label", [cell], page.stage);
  const before = label(exp), after = label(weight);
  const divided = `translate(${(middle / sum - middle) * unit}px, 0px)`;
  const start = td ? toMiddle(place, td.getBoundingClientRect()) : STILL;
  const lands = isHere ? toMiddle(place, result.getBoundingClientRect()) : divided;
  const ways = [[0, start], [LAY, STILL], [LAY + RESCALE, divided], [ALL, lands]];
  const seen = opacities => ways.map(([time, transform], i) => [time, { transform, opacity: opacities[i] }]);
  return [
    { element: before, places: seen([1, 1, 0, 0]) },
    { element: after, places: seen([0, 0, 1, isHere ? 1 : 0]) },
  ];
}
