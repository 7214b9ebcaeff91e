// The elements of the page by name, helpers that write HTML, and delayed calls.

import { escaped } from "./words.js";

export const page = /** @type {Record<string, any>} */ ({}); // the elements with a name in page.html

/** Return a button; its `kind` and `value` define what a click does, see JUMPS. */
export const button = (kind, value, html, rest = "") =>
  `<button type="button" data-${kind}="${value}" ${rest}>${html}</button>`;

export const picture = (wide, high, says, drawn) =>
  `<svg viewBox="0 0 ${wide} ${high}" role="img" aria-label="${escaped(says)}">${drawn}</svg>`;

// Return the size of a picture in pixels, so that its lines have the same width on every screen.
export const room = picture => [picture.clientWidth || 300, picture.clientHeight || 110];

export const between = (low, value, high) => Math.min(Math.max(value, low), high);
export const upTo = length => [...Array(length).keys()];
export const drawn = (length, draw) => upTo(length).map(draw).join("");

// Delay a call, and cancel an earlier one with the same name: fast key presses do not wait for it.
const waiting = {}; // {name: { act, timer, due, left }}; `left` is the remaining time of a call that is held
export function later(what, milliseconds, act) {
  clearTimeout(waiting[what]?.timer);
  waiting[what] = { act, timer: setTimeout(act, milliseconds), due: performance.now() + milliseconds };
}

// Stop the clock of a delayed call.
export function hold(what) {
  const call = waiting[what];
  clearTimeout(call.timer);
  call.left = Math.max(call.due - performance.now(), 0);
}

// Let a call that is held wait for the rest of its time.
export function proceed(what) {
  const { act, left } = waiting[what];
  later(what, left, act);
}
