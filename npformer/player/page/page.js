// The page: its parts by name, pieces of HTML, and what can wait.

import { escaped } from "./words.js";

export const page = /** @type {Record<string, any>} */ ({}); // what has a name in page.html

/** A button: its `kind` and `value` say what a click does, see JUMPS. */
export const button = (kind, value, html, rest = "") =>
  `<button type="button" data-${kind}="${value}" ${rest}>${html}</button>`;

export const picture = (wide, high, says, drawn) =>
  `<svg viewBox="0 0 ${wide} ${high}" role="img" aria-label="${escaped(says)}">${drawn}</svg>`;

// The pixels that a picture has, so that its lines and dots are as thick on every screen.
export const room = picture => [picture.clientWidth || 300, picture.clientHeight || 110];

export const between = (low, value, high) => Math.min(Math.max(value, low), high);
export const upTo = length => [...Array(length).keys()];
export const drawn = (length, draw) => upTo(length).map(draw).join("");

// Done when nobody has asked for the same a while: keys that come faster do not wait for it.
const waiting = {};
export function later(what, milliseconds, act) {
  clearTimeout(waiting[what]);
  waiting[what] = setTimeout(act, milliseconds);
}
