// The conveyor (the stations of the block), the chips (the steps of a section), and a map of all steps.

import { button, page } from "./page.js";
import { state } from "./state.js";
import { SPLIT, isBack, isNew, isUpdate, letter } from "./trace.js";
import { escaped, typeset } from "./words.js";

// From left to right: a station is [words of its section, its label, its width], a letter is the value
// between two stations, "+" is a sum, and at "<" a residual begins.
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
const GAP = 44, ROUND = 11; // the distance between two stations, and the radius of a +

const belt = () => BELTS[state.data.norm];
const sections = () => belt().flatMap(part => (Array.isArray(part) ? [part[0]] : []));
export function stationOf(step) {
  const section = step.section.toLowerCase();
  const place = words => sections().findIndex(name => words.includes(name));
  if (isUpdate(step)) return place("training");
  if (section.includes("first sum")) return place("multi-head attention");
  return place(section.includes("second sum") ? "feed-forward network" : section);
}

export function conveyor() {
  let x = 0, left = 0, k = 0;
  const drawn = belt().map(part => {
    if (part === "<") return left = x + GAP / 3, "";
    if (part === "+") return x += 2 * ROUND, sum(left, x - ROUND);
    if (typeof part === "string") return x += GAP, way(part, x - GAP, x);
    return x += part[2], station(part, x - part[2], k++);
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

export function drawBelt(step) {
  for (const group of page.belt.querySelectorAll(".station")) {
    const lit = Number(group.dataset.station) === stationOf(step);
    group.classList.toggle("lit", lit);
    group.setAttribute("aria-current", lit ? "step" : "false");
  }
  for (const text of page.belt.querySelectorAll(".letter")) {
    const name = text.dataset.letter, source = isBack(step) ? SPLIT[state.data.norm][name] ?? name : name;
    const sign = isBack(step) ? "d_" : isNew(step) ? "new_" : "";
    text.textContent = name && (isBack(step) ? `d${source}` : isNew(step) ? `${name}′` : name);
    text.classList.toggle("lit", step.name === sign + source);
  }
}

export function drawChips(step) {
  const way = isBack(step) ? "◀ backward" : isUpdate(step) ? "↻ update" : "▶ forward";
  const chips = state.steps.map((other, k) => (other.section === step.section ? chip(other, k) : ""));
  page.chips.innerHTML = `<b>${way}: ${escaped(step.section)}</b>${chips.join("")}`;
  page.chips.append(page.count);
}

function chip(step, k) {
  const { at } = state, on = k === at.step ? "on" : k < at.step ? "done" : "";
  const look = `class="${on} ${step.given ? "given" : ""}" aria-current="${k === at.step ? "step" : false}"`;
  return button("step", k, typeset(letter(step)), `${look} title="${step.name}"`);
}

// The map has a field for each step, with gaps between sections. Keyboard users have the stations and chips.
export function drawMap() {
  const { steps, at } = state;
  page.map.innerHTML = steps.map((step, k) => {
    const opens = k && step.section !== steps[k - 1].section ? "opens" : "";
    const way = isBack(step) ? "back" : "", passed = k < at.step ? "done" : k === at.step ? "on" : "";
    const title = escaped(`${k + 1}: ${step.section}, ${step.name}`);
    return `<i title="${title}" class="${way} ${opens} ${passed}" data-step="${k}"></i>`;
  }).join("");
  const says = `map: step ${at.step + 1} of ${steps.length}, ${steps[at.step].section}`;
  page.map.setAttribute("aria-label", says);
}
