// The parts of the page, and how they are made.

import { escaped } from "./words.js";

export const page = /** @type {Record<string, any>} */ ({}); // the parts by name
export const boxes = new Map(); // from a cell to the boxes on the page that show it

/** An element with properties; `data` and `aria` become attributes. @returns {any} */
export function make(tag, { data = {}, aria = {}, ...properties } = /** @type {any} */ ({}), ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  Object.assign(element.dataset, data);
  for (const [name, value] of Object.entries(aria)) element.setAttribute(`aria-${name}`, String(value));
  element.append(...children);
  return element;
}

export function makeButton(text, action, properties = {}) {
  const button = make("button", { type: "button", textContent: text, ...properties });
  button.addEventListener("click", action);
  return button;
}

export function makeSelect(label, choices, chosen, action, title = label) {
  const option = ([value, textContent]) => make("option", { value, textContent, selected: value === chosen });
  const options = choices.map(option);
  const select = make("select", { title, aria: { label } }, ...options);
  select.addEventListener("change", () => action(select.value));
  return select;
}

export const group = (label, ...children) =>
  make("div", { className: "group", role: "group", aria: { label } }, ...children);

export const picture = (wide, high, says, drawn) =>
  `<svg viewBox="0 0 ${wide} ${high}" role="img" aria-label="${escaped(says)}">${drawn}</svg>`;

// The pixels that a picture has, so that its lines and dots are as thick on every screen.
export const room = picture => [picture.clientWidth || 300, picture.clientHeight || 110];

export const between = (low, value, high) => Math.min(Math.max(value, low), high);
export const upTo = length => [...Array(length).keys()];

// A screen reader gets the cell on which the class stays, not each one that it hurries past.
let speaking;
export function say(text) {
  clearTimeout(speaking);
  speaking = setTimeout(() => { page.speaker.textContent = text; }, 250);
}
