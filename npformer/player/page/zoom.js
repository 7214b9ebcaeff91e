// Change the level with the wheel, with two fingers, or with keys. The camera goes to what is pointed at.

import { closer, farther } from "./levels.js";
import { page } from "./page.js";
import { show, state, stepOf } from "./state.js";
import { drawCell, drawStep } from "./step.js";

const NOTCH = 40, REST = 400; // the pixels of one level, and the milliseconds between two levels
const PINCH = 10; // a pinch on a touchpad is a wheel with Ctrl and small numbers
const wheel = { turned: 0, last: -REST };

export function listenToZoom() {
  const views = [page.whole, page.near, page.title, page.stage, page.closeup];
  for (const view of views) {
    view.addEventListener("wheel", onWheel, { passive: false });
    view.addEventListener("touchmove", onTouch, { passive: false });
    view.addEventListener("touchend", () => { spread = 0; });
  }
}

// In a frame of a notebook, and where something scrolls, the wheel scrolls. A pinch always zooms.
function onWheel(event) {
  const { currentTarget: view, target, deltaY, ctrlKey } = event, now = performance.now();
  const scrolls = [view, document.documentElement].some(part => part.scrollHeight > part.clientHeight + 1);
  if (!ctrlKey && (scrolls || window.top !== window)) return;
  event.preventDefault();
  if (now - wheel.last < REST) return;
  const turned = wheel.turned + deltaY * (ctrlKey ? PINCH : 1);
  const isFar = Math.abs(turned) >= NOTCH;
  Object.assign(wheel, isFar ? { turned: 0, last: now } : { turned });
  if (isFar) zoom(turned < 0, target);
}

let spread = 0; // the distance of two fingers at the last change of the level

function onTouch(event) {
  if (event.touches.length !== 2) return;
  event.preventDefault();
  const [a, b] = event.touches, distance = Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
  spread ||= distance;
  const ratio = distance / spread;
  if (ratio < 1.3 && ratio > 1 / 1.3) return;
  spread = distance;
  zoom(ratio > 1, event.target);
}

function zoom(isCloser, target) {
  if (isCloser) {
    pointAt(target);
    closer();
  } else farther();
}

// Make the step or the calculated cell under the pointer the current one.
function pointAt(target) {
  const tile = target.closest("[data-step]"), td = target.closest("td[data-role=result]");
  if (tile) {
    Object.assign(state.at, { step: Number(tile.dataset.step), cell: 0 });
    drawStep();
  }
  if (td && show.level === "product" && !stepOf(Number(td.dataset.cell)).given) {
    state.at.cell = Number(td.dataset.cell) - stepOf(Number(td.dataset.cell)).first;
    drawCell();
  }
}
