// The levels of the view: the block, a station, a product, a cell. A camera flies from one to the next.

import { drawCloseup } from "./closeup.js";
import { drawWhole, tiles } from "./far.js";
import { endMotion, fly, isMoving } from "./motion.js";
import { page } from "./page.js";
import { current, show, state } from "./state.js";
import { fit } from "./step.js";
import { endStory } from "./story.js";
import { isBack } from "./trace.js";

const PARTS = { // the parts of the page at each level, from far to near
  block: ["whole"],
  station: ["near"],
  product: ["title", "stage", "strip", "sum"],
  cell: ["title", "closeup", "sum"],
};
const LEVELS = Object.keys(PARTS);
const DRAW = { block: drawWhole, station: drawNear, product: fit, cell: drawCloseup };

/** Show another level; `draw` redraws the step first. The camera keeps the current step in view. */
export function setLevel(level, draw = () => {}) {
  const before = show.level;
  if (level === before) return draw();
  endMotion();
  const leaving = partsOnlyAt(before, level), from = spot(before, level), moves = isMoving() && from;
  if (moves) freeze(leaving);
  enter(level);
  draw();
  DRAW[level]();
  const entering = partsOnlyAt(level, before), to = spot(level, before);
  if (!moves || !to) return thaw(leaving);
  page.root.classList.add("flying");
  fly(leaving, entering, from, to, () => thaw(leaving));
}

// Return the visible parts of a level that the other level does not have.
function partsOnlyAt(level, other) {
  const names = PARTS[level].filter(name => !PARTS[other].includes(name));
  return names.map(name => page[name]).filter(part => !part.hidden);
}

function enter(level) {
  show.level = level;
  show.far = level === "block";
  page.root.dataset.level = level;
  page.far.setAttribute("aria-pressed", show.far);
  for (const name of new Set(Object.values(PARTS).flat())) {
    page[name].classList.toggle("away", !PARTS[level].includes(name));
  }
}

export const redraw = () => { if (show.level !== "product") DRAW[show.level](); };

// Keep leaving parts where they are while the page below has its new layout.
function freeze(parts) {
  const rects = parts.map(part => part.getBoundingClientRect());
  parts.forEach((part, i) => {
    const { left, top, width, height } = rects[i];
    part.inert = true;
    part.classList.add("leaving");
    for (const [name, value] of Object.entries({ left, top, width, height })) part.style[name] = `${value}px`;
  });
}

function thaw(parts) {
  page.root.classList.remove("flying");
  for (const part of parts) {
    part.inert = false;
    part.classList.remove("leaving");
    for (const name of ["left", "top", "width", "height"]) part.style.removeProperty(name);
  }
}

export function closer() {
  endStory();
  const next = LEVELS[LEVELS.indexOf(show.level) + 1];
  if (next && !(next === "cell" && current().given)) setLevel(next);
}

export function farther() {
  endStory();
  const next = LEVELS[LEVELS.indexOf(show.level) - 1];
  if (next) setLevel(next);
}

// Return the rectangle of the current step or cell at a level; `other` is the level on the other side.
function spot(level, other) {
  if (level === "cell") return page.closeup.querySelector("[data-result]")?.getBoundingClientRect();
  if (level === "product" && other === "cell") return rectOf(page.stage.querySelectorAll("td.now"));
  if (level === "product") return rectOf(matrixOf(page.stage.querySelectorAll(".result td[data-cell]")));
  const tile = tileOf(level === "block" ? page.whole : page.near);
  if (!tile) return undefined;
  const isStep = tile.dataset.name === current().name, squares = tile.querySelectorAll("rect");
  return rectOf(isStep ? matrixOf(squares) : squares);
}

// Of the cells of a step, return those of the current matrix.
function matrixOf(cells) {
  const [, I, J] = current().shape, g = Math.floor(state.at.cell / (I * J));
  return [...cells].slice(g * I * J, (g + 1) * I * J);
}

function rectOf(elements) {
  const rects = Array.from(elements, element => element.getBoundingClientRect());
  const left = Math.min(...rects.map(rect => rect.left)), top = Math.min(...rects.map(rect => rect.top));
  const width = Math.max(...rects.map(rect => rect.right)) - left;
  const height = Math.max(...rects.map(rect => rect.bottom)) - top;
  return width > 0 && height > 0 ? { left, top, width, height } : undefined;
}

// Return the tile of the current step, or the tile of the nearest step on the same way.
function tileOf(view) {
  const step = current(), far = tile => {
    const other = state.steps[Number(tile.dataset.step)];
    const isOtherWay = isBack(other) !== isBack(step);
    return Math.abs(state.at.step - state.steps.indexOf(other)) + (isOtherWay ? state.steps.length : 0);
  };
  return [...view.querySelectorAll(".tile")].sort((a, b) => far(a) - far(b))[0];
}

// The station: all steps of the section of the current step

const LEAST_TEXT = 24; // the font size from which tiles show numbers, in pixels at 1280 × 800
const TEXT = 0.8, WIDE = 2.6; // the font size in the pictures, and the width of a square; its height is 1

function drawNear() {
  const { section } = current();
  page.near.innerHTML = tiles(state.steps.filter(step => step.section === section), WIDE);
  const count = page.near.children.length, { clientWidth, clientHeight } = page.near;
  const columns = Math.ceil(Math.sqrt(count * clientWidth / (2.2 * clientHeight || 1))) || 1;
  page.near.style.gridTemplateColumns = `repeat(${Math.min(columns, count)}, minmax(0, 1fr))`;
  const least = LEAST_TEXT * Math.min(innerWidth / 1280, innerHeight / 800);
  for (const picture of page.near.querySelectorAll("svg")) {
    picture.classList.toggle("legible", TEXT * picture.getScreenCTM().a >= least);
  }
  tileOf(page.near)?.setAttribute("aria-current", "step");
}
