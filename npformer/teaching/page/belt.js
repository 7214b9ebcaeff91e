// The belt: the block as a conveyor, the chips of a section, and a map of all steps.

import { page, make, makeButton, upTo } from "./page.js";
import { go } from "./places.js";
import { state, current } from "./state.js";
import { SPLIT, isBack, isNew, letter } from "./trace.js";
import { escaped, typeset } from "./words.js";

// From left to right: a station is [words of its section, what is written on it, its width], a letter what is
// handed on, "+" a sum; "<" is where the way past a sub-layer leaves.
const BELTS = {
  post: [
    ["words", "words + positions", 166], "<", "x", ["multi-head attention", "attention", 116], "a", "+", "s",
    ["first add & norm", "norm", 68], "<", "h", ["feed-forward network", "feed-forward", 122], "f", "+", "t",
    ["second add & norm", "norm", 68], "y", ["loss", "loss", 58], "", ["training", "step", 58],
  ],
  pre: [
    ["words", "words + positions", 166], "<", "x", ["first norm", "norm", 68], "u",
    ["multi-head attention", "attention", 116], "a", "+", "<", "h", ["second norm", "norm", 68], "g",
    ["feed-forward network", "feed-forward", 122], "f", "+", "y",
    ["loss", "loss", 58], "", ["training", "step", 58],
  ],
};
const GAP = 44, ROUND = 11; // how long the way between stations is, and the radius of a +

const belt = () => BELTS[state.data.norm];
const stations = () => belt().filter(Array.isArray);
export function stationOf(step) {
  const section = step.section.toLowerCase(), names = stations().map(([words]) => words);
  if (section.startsWith("one step")) return names.indexOf("training");
  const sum = ["first sum", "second sum"].findIndex(words => section.includes(words));
  if (sum >= 0) return names.indexOf(["multi-head attention", "feed-forward network"][sum]);
  return names.findIndex(words => section.includes(words));
}

export function conveyor() {
  let x = 0, left = 0, k = 0;
  const drawn = belt().flatMap(part => {
    if (part === "<") return left = x + GAP / 3, [];
    if (part === "+") return x += 2 * ROUND, [sum(left, x - ROUND)];
    if (typeof part === "string") return x += GAP, [way(part, x - GAP, x)];
    return x += part[2], [station(part, x - part[2], k++)];
  });
  const says = "the block as a conveyor";
  return `<svg viewBox="-2 0 ${x + 4} 76" role="group" aria-label="${says}">${drawn.join("")}</svg>`;
}

const way = (name, left, right) =>
  `<path d="M${left} 49H${right}"/>` +
  `<text class="letter" data-letter="${name}" x="${(left + right) / 2}" y="69"></text>`;

const sum = (from, x) =>
  `<path d="M${from} 49V12H${x}V38"/><circle cx="${x}" cy="49" r="${ROUND}"/>` +
  `<path d="M${x - 6} 49h12M${x} 43v12"/>`;

const station = ([words, name, width], left, k) =>
  `<g class="station" data-station="${k}" role="button" tabindex="0" ` +
  `aria-label="${escaped(`${name}: ${words}`)}">` +
  `<rect x="${left}" y="30" width="${width}" height="38" rx="6"/>` +
  `<text x="${left + width / 2}" y="55">${name}</text></g>`;

export function showStation(step) {
  for (const group of page.belt.querySelectorAll(".station")) {
    const lit = Number(group.dataset.station) === stationOf(step);
    group.classList.toggle("lit", lit);
    group.setAttribute("aria-current", lit ? "step" : "false");
  }
  const split = SPLIT[state.data.norm];
  for (const text of page.belt.querySelectorAll(".letter")) {
    const name = text.dataset.letter, source = isBack(step) ? split[name] ?? name : name;
    const sign = isBack(step) ? "d_" : isNew(step) ? "new_" : "";
    text.textContent = name && (isBack(step) ? `d${source}` : isNew(step) ? `${name}′` : name);
    text.classList.toggle("lit", step.name === sign + source);
  }
}

export function showChips(step) {
  const way = isBack(step) ? "◀ backward" : step.section.startsWith("One step") ? "↻ update" : "▶ forward";
  const chips = state.steps.flatMap((other, k) => (other.section === step.section ? [chip(other, k)] : []));
  const title = make("b", { textContent: `${way}: ${step.section}` });
  page.chips.replaceChildren(title, ...chips, page.count);
}

function chip(step, k) {
  const on = k === state.at.step, state_ = on ? "on" : k < state.at.step ? "done" : "";
  const className = `${state_} ${step.given ? "given" : ""}`, innerHTML = typeset(letter(step));
  const properties = { className, innerHTML, title: step.name, aria: { current: on ? "step" : "false" } };
  return makeButton("", () => go(k, 0), properties);
}

// The map: a field for each step, the sections a little apart. For the keyboard there are stations and chips.
export function drawMap() {
  const fields = upTo(state.steps.length).map(k => {
    const step = state.steps[k], opens = k && step.section !== state.steps[k - 1].section;
    const way = isBack(step) ? "back" : step.section.startsWith("One step") ? "update" : "";
    const title = `${k + 1}: ${step.section}, ${step.name}`;
    return make("i", { title, className: `${way} ${opens ? "opens" : ""}`, data: { step: k } });
  });
  page.map.replaceChildren(...fields);
}

export function showMap() {
  const { children } = page.map, { step } = state.at;
  for (let k = 0; k < children.length; k++) {
    children[k].classList.toggle("done", k < step);
    children[k].classList.toggle("on", k === step);
  }
  page.map.setAttribute("aria-label", `map: step ${step + 1} of ${children.length}, ${current().section}`);
}
