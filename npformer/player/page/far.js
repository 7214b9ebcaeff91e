// The overview: small heat maps of all stations, with their gradients below.

import { button, page } from "./page.js";
import { show, state, stepNamed, valuesOf, write } from "./state.js";
import { TOLD, isTelling } from "./story.js";
import { SPLIT, isBack, letter } from "./trace.js";
import { typeset } from "./words.js";

export const told = () => TOLD.filter(([name]) => stepNamed(name));
export const gradientNamed = name => stepNamed(`d_${SPLIT[state.data.norm][name] ?? name}`);

/** Draw the tiles of the whole block. */
export function drawWhole() {
  page.forward.innerHTML = told().map(([name]) => tile(stepNamed(name), "value")).join("");
  page.backward.innerHTML = told().map(([name]) => tile(gradientNamed(name), "gradient")).join("");
  if (!isTelling()) page.told.textContent = "Choose a picture to see its numbers.";
}

/** Return the tiles of some steps, with a number in each square; `wide` is the width of a square. */
export const tiles = (steps, wide) =>
  steps.map(step => tile(step, isBack(step) ? "gradient" : "value", wide)).join("");

function tile(step, kind, wide = 1) {
  if (!step) return "<div></div>";
  const look = `class="tile ${kind}" title="${step.name}" data-name="${step.name}"`;
  const shown = `<b>${typeset(letter(step))}</b>${heat(step, kind, wide)}`;
  return button("step", state.steps.indexOf(step), shown, look);
}

// Draw a square for each number; a stronger colour means a larger number within its step.
function heat(step, kind, wide) {
  const [G, I, J] = step.shape, values = valuesOf(step);
  const most = Math.max(...values.map(Math.abs).filter(Number.isFinite)) || 1;
  const cell = (value, k) => {
    const g = Math.floor(k / (I * J)), i = Math.floor(k / J) % I, j = k % J;
    const look = kind === "gradient" ? "grad" : value < 0 ? "low" : "high";
    const share = Number.isFinite(value) ? Math.abs(value) / most : 0;
    const x = wide * j, y = g * (I + 0.4) + i, text = wide > 1 && !show.predict ? write(step.first + k) : "";
    const number = text && `<text x="${x + wide - 0.15}" y="${y + 0.78}">${text}</text>`;
    return `<rect class="${look}" x="${x}" y="${y}" width="${wide}" height="1" ` +
      `fill-opacity="${share.toFixed(2)}"/>${number}`;
  };
  const box = `-.05 -.05 ${wide * J + 0.1} ${G * (I + 0.4) - 0.3}`;
  return `<svg viewBox="${box}" aria-hidden="true">${values.map(cell).join("")}</svg>`;
}
