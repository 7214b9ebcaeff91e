// The story: one picture after the other lights up, forward and backward, with a text for each.

import { gradientNamed, told } from "./far.js";
import { setLevel } from "./levels.js";
import { later, page } from "./page.js";
import { numberOf } from "./state.js";
import { written } from "./words.js";

export const TOLD = [ // a step, and the texts for its value and for its gradient
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

// Return the story: pairs of the name of a picture and a text.
function story() {
  const L = name => written(numberOf(name), 3);
  const forward = told().map(([name, text]) => [name, name === "loss" ? `${text} L = ${L(name)}.` : text]);
  const back = told().toReversed().map(([name, , text]) => [gradientNamed(name)?.name, text]);
  const end = `Each weight takes a small step against its gradient, and L is ${L("new_loss")}. ` +
    "Again, a hundred times: that is training (T, X, C).";
  return [...forward, ...back.filter(([name]) => name), ["", end]];
}

export const isTelling = () => page.root.classList.contains("telling");

export function endStory() {
  page.root.classList.remove("telling");
}

// Highlight one picture after the other: forward pass, backward pass, training step.
export function tell() {
  if (isTelling()) return endStory();
  const steps = story();
  setLevel("block");
  for (const lit of page.whole.querySelectorAll(".lit")) lit.classList.remove("lit");
  page.root.classList.add("telling");
  const next = () => {
    const [name, text] = steps.shift() ?? [];
    if (name === undefined) endStory();
    if (!isTelling()) return;
    for (const tile of page.whole.querySelectorAll(`[data-name="${name}"]`)) tile.classList.add("lit");
    if (text) page.told.textContent = text;
    later("telling", PACE, next);
  };
  next();
}
