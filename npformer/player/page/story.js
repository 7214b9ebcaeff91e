// The story: one picture after the other lights up, forward and backward, with a text for each.

import { gradientNamed, told } from "./far.js";
import { setLevel } from "./levels.js";
import { isPaused, isPlaying, setPaused } from "./motion.js";
import { hold, later, page, proceed } from "./page.js";
import { numberOf, state, stepNamed } from "./state.js";
import { drawStep } from "./step.js";
import { travel } from "./travel.js";
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
const PACE = 850; // milliseconds per picture; the story takes three quarters of a minute

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
  page.root.classList.remove("telling", "held");
}

/** Pause or continue the motion, and the story if it is told. */
export function pause() {
  if (!isTelling()) return setPaused(!isPaused());
  const pauses = page.root.classList.toggle("held");
  if (pauses) hold("telling");
  else proceed("telling");
  setPaused(pauses);
}

const CLOSE = { // the steps where the story goes to one cell: the cell, and the text there
  "ffn.z": [8, "A row times a column, added up: one number."],
  "attention.weights": [4, "Softmax: a whole row is divided by its sum."],
  d_h: [3, "A gradient comes back the way its value went."],
};
const lit = new Set(); // the names of the pictures that the story has shown
const ARRIVE = 900, LOOK = 700; // milliseconds from the start of a flight, and after a motion

/** Play the story from its beginning: forward pass, backward pass, training step. A second call ends it. */
export function tell() {
  if (isTelling()) return endStory();
  lit.clear();
  page.root.classList.add("telling");
  setLevel("block");
  tellNext(story());
}

function tellNext(steps) {
  const [name, text] = steps.shift() ?? [];
  if (name === undefined) endStory();
  if (!isTelling()) return;
  const next = () => tellNext(steps), near = lit.has(name) ? undefined : CLOSE[name];
  lit.add(name);
  lightPictures();
  if (text) page.told.textContent = text;
  later("telling", PACE, near ? () => goClose(name, near, next) : next);
}

function lightPictures() {
  for (const tile of page.whole.querySelectorAll(".tile")) {
    tile.classList.toggle("lit", lit.has(tile.dataset.name));
  }
}

// Fly into a step, show the motion of one cell, and fly out again.
function goClose(name, [cell, text], next) {
  if (!isTelling()) return;
  Object.assign(state.at, { step: state.steps.indexOf(stepNamed(name)), cell });
  setLevel("product", drawStep);
  page.told.textContent = text;
  later("telling", ARRIVE, () => {
    if (!isTelling()) return;
    travel();
    whenStill(() => {
      setLevel("block");
      lightPictures();
      later("telling", ARRIVE, next);
    });
  });
}

// Call `act` a little after the motion has ended; a motion can be paused.
function whenStill(act) {
  later("telling", LOOK, () => {
    if (!isTelling()) return;
    if (isPlaying()) whenStill(act);
    else act();
  });
}
