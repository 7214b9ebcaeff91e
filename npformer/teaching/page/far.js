// From afar: every station as small heat maps, the gradients flowing back below, and the story of both.

import { make, makeButton, page } from "./page.js";
import { go } from "./places.js";
import { numberOf, show, state, stepNamed, valuesOf } from "./state.js";
import { fit } from "./step.js";
import { SPLIT, letter } from "./trace.js";
import { typeset, written } from "./words.js";

const TOLD = [ // a step, and what is said when it is reached
  ["E", "Each word has a row of numbers, its embedding."],
  ["x", "Its position is added, so that order counts."],
  ["attention.Q", "Each word asks: a query."],
  ["attention.K", "Each word can be found: a key."],
  ["attention.V", "Each word has something to give: a value."],
  ["attention.weights", "Query times key, then softmax: who looks at whom."],
  ["a", "What each word brings back from where it looked."],
  ["s", "It is added to what was there."],
  ["u", "Each row is brought to one size: the norm."],
  ["h", "Each row is brought to one size: the norm."],
  ["g", "Once more to one size."],
  ["ffn.z", "Each word for itself: a wider row."],
  ["ffn.hidden", "What lies below zero is switched off."],
  ["f", "And back to the width of a word."],
  ["t", "Added again."],
  ["y", "What leaves the block."],
  ["loss", "How far is y from what we wanted? One number."],
];
const BACK = {
  y: "Now back. If this number of y grew a little, by how much would the loss?",
  t: "The same question for every number before: the gradients flow back.",
  "ffn.hidden": "A unit that was off lets nothing through.",
  h: "What went two ways comes back from both, and is added.",
  "attention.weights": "Who should have looked where? Its gradient says so.",
  x: "Back at the words and positions.",
  E: "And at the embeddings: each word learns from where it stood.",
};
const PACE = 850; // milliseconds for each: half a minute in all

const told = () => TOLD.filter(([name]) => stepNamed(name));
const gradientNamed = name => stepNamed(`d_${SPLIT[state.data.norm][name] ?? name}`);

export function showWhole(on) {
  const { whole, root } = page;
  show.whole = on;
  whole.hidden = !on;
  root.classList.toggle("far", on);
  page.buttons.far.setAttribute("aria-pressed", String(on));
  stop();
  if (!on) return fit();
  const forward = told().map(([name]) => tile(stepNamed(name), "value"));
  const gradients = told().map(([name]) => gradientNamed(name));
  const back = gradients.map(step => step ? tile(step, "gradient") : make("div"));
  whole.replaceChildren(
    make("h1", { className: "way", textContent: "forward, the values ▶" }),
    make("div", { className: "tiles" }, ...forward),
    make("p", { className: "way gradient", textContent: "◀ backward, the gradients" }),
    make("div", { className: "tiles" }, ...back),
    page.story,
  );
  page.story.replaceChildren(makeButton("▶ the whole story, in half a minute", tell), page.told);
  page.told.textContent = "Choose a picture to see its numbers.";
}

function tile(step, kind) {
  const innerHTML = `<b>${typeset(letter(step))}</b>${heat(step, kind)}`, { name } = step;
  const look = { className: `tile ${kind}`, title: name, data: { name } };
  const button = makeButton("", () => go(state.steps.indexOf(step), 0), look);
  button.innerHTML = innerHTML;
  return button;
}

// A square for each number; the stronger the colour, the larger it is within its step.
function heat(step, kind) {
  const [G, I, J] = step.shape, values = valuesOf(step);
  const most = Math.max(...values.map(Math.abs).filter(Number.isFinite)) || 1;
  const cell = (value, k) => {
    const g = Math.floor(k / (I * J)), i = Math.floor(k / J) % I, j = k % J;
    const look = kind === "gradient" ? "grad" : value < 0 ? "low" : "high";
    const share = Number.isFinite(value) ? Math.abs(value) / most : 0;
    const at = `x="${j}" y="${g * (I + 0.4) + i}" width="1" height="1"`;
    return `<rect class="${look}" ${at} fill-opacity="${share.toFixed(2)}"/>`;
  };
  const box = `-.05 -.05 ${J + 0.1} ${G * (I + 0.4) - 0.3}`;
  return `<svg viewBox="${box}" aria-hidden="true">${values.map(cell).join("")}</svg>`;
}

// What is told: the name of a picture, and a text.
function story() {
  const L = name => written(numberOf(name), 3), names = told().map(([name]) => name);
  const forward = told().map(([name, text]) => [name, name === "loss" ? `${text} L = ${L(name)}.` : text]);
  const back = names.toReversed().map(name => [gradientNamed(name)?.name, BACK[name] ?? ""]);
  const end = `Each weight takes a small step against its gradient, and L is ${L("new_loss")}. ` +
    "Again, a hundred times: that is training (T, X, C).";
  return [...forward, ...back.filter(([name]) => name), ["", end]];
}

// One picture after the other is lit, forward, back, and then the step.
let telling = 0;
export function tell() {
  if (telling) return stop();
  const steps = story();
  page.whole.classList.add("telling");
  for (const lit of page.whole.querySelectorAll(".lit")) lit.classList.remove("lit");
  let k = 0;
  const next = () => {
    if (k === steps.length) return stop();
    const [name, text] = steps[k++];
    page.whole.querySelector(`[data-name="${name}"]`)?.classList.add("lit");
    if (text) page.told.textContent = text;
    telling = setTimeout(next, PACE);
  };
  next();
}

function stop() {
  clearTimeout(telling);
  telling = 0;
  page.whole.classList.remove("telling");
}
