// The overview: small heat maps of all stations, their gradients below, and a story that explains them.

import { button, later, page } from "./page.js";
import { numberOf, show, state, stepNamed, valuesOf } from "./state.js";
import { fit } from "./step.js";
import { SPLIT, letter } from "./trace.js";
import { typeset, written } from "./words.js";

const TOLD = [ // a step, and the texts for its value and for its gradient
  ["E", "Each word has a row of numbers, its embedding.",
    "And at the embeddings: each word learns from where it stood."],
  ["x", "Its position is added, so that order counts.", "Back at the words and positions."],
  ["attention.Q", "Each word asks: a query."],
  ["attention.K", "Each word can be found: a key."],
  ["attention.V", "Each word has something to give: a value."],
  ["attention.weights", "Query times key, then softmax: who looks at whom.",
    "Who should have looked where? Its gradient says so."],
  ["a", "What each word brings back from where it looked."],
  ["s", "It is added to what was there."],
  ["u", "Each row is brought to one size: the norm."],
  ["h", "Each row is brought to one size: the norm.",
    "What went two ways comes back from both, and is added."],
  ["g", "Once more to one size."],
  ["ffn.z", "Each word for itself: a wider row."],
  ["ffn.hidden", "What lies below zero is switched off.", "A unit that was off lets nothing through."],
  ["f", "And back to the width of a word."],
  ["t", "Added again.", "The same question for every number before: the gradients flow back."],
  ["y", "What leaves the block.",
    "Now back. If this number of y grew a little, by how much would the loss?"],
  ["loss", "How far is y from what we wanted? One number."],
];
const PACE = 850; // milliseconds per picture; the story takes half a minute

const told = () => TOLD.filter(([name]) => stepNamed(name));
const gradientNamed = name => stepNamed(`d_${SPLIT[state.data.norm][name] ?? name}`);

export function showFar(on) {
  show.far = on;
  page.whole.hidden = !on;
  page.root.classList.toggle("far", on);
  page.far.setAttribute("aria-pressed", on);
  page.whole.classList.remove("telling");
  if (!on) return fit();
  page.forward.innerHTML = told().map(([name]) => tile(stepNamed(name), "value")).join("");
  page.backward.innerHTML = told().map(([name]) => tile(gradientNamed(name), "gradient")).join("");
  page.told.textContent = "Choose a picture to see its numbers.";
}

function tile(step, kind) {
  if (!step) return "<div></div>";
  const look = `class="tile ${kind}" title="${step.name}" data-name="${step.name}"`;
  const shown = `<b>${typeset(letter(step))}</b>${heat(step, kind)}`;
  return button("step", state.steps.indexOf(step), shown, look);
}

// Draw a square for each number; a stronger colour means a larger number within its step.
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

// Return the story: pairs of the name of a picture and a text.
function story() {
  const L = name => written(numberOf(name), 3);
  const forward = told().map(([name, text]) => [name, name === "loss" ? `${text} L = ${L(name)}.` : text]);
  const back = told().toReversed().map(([name, , text]) => [gradientNamed(name)?.name, text]);
  const end = `Each weight takes a small step against its gradient, and L is ${L("new_loss")}. ` +
    "Again, a hundred times: that is training (T, X, C).";
  return [...forward, ...back.filter(([name]) => name), ["", end]];
}

// Highlight one picture after the other: forward pass, backward pass, training step.
export function tell() {
  const { whole, told } = page, steps = story();
  if (!whole.classList.toggle("telling")) return;
  for (const lit of whole.querySelectorAll(".lit")) lit.classList.remove("lit");
  const next = () => {
    const [name, text] = steps.shift() ?? [];
    if (name === undefined) whole.classList.remove("telling");
    if (!whole.classList.contains("telling")) return;
    for (const tile of whole.querySelectorAll(`[data-name="${name}"]`)) tile.classList.add("lit");
    if (text) told.textContent = text;
    later("telling", PACE, next);
  };
  next();
}
