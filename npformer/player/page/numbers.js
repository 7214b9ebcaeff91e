// Change given numbers: type or drag one, reset all, train, or draw them from a name.

import { calculate, trained } from "./arithmetic.js";
import { between, page, upTo } from "./page.js";
import { current, givens, lay, numberOf, state, stepNamed, stepOf, valuesOf } from "./state.js";
import { drawCell, drawStep } from "./step.js";
import { rowsOf, size } from "./trace.js";

export function touch(cell) {
  state.touched = cell;
  drawCell();
}

// Delete the later training steps: they are wrong after a change of a given number.
export function begin(now = state.training.now) {
  state.training.now = now;
  state.training.past.length = now;
  keep();
  drawCell();
}

function keep() {
  state.numbers = calculate(state.steps, state.decimals);
  state.training.past.push({ given: givens(), loss: numberOf("loss") });
}

export function edit(cell, value) {
  const step = stepOf(cell);
  if (Number.isFinite(value)) step.given[cell - step.first] = value;
  begin();
}

export function reset() {
  rename(state.sentence);
  page.name.value = page.words.value = "";
  begin(0);
  drawStep();
}

export function chooseRounding(decimals) {
  state.decimals = decimals;
  begin();
  drawStep();
}

const give = given => state.steps.forEach((step, k) => { step.given = given[k]?.slice(); });

export function train(count) {
  const { training } = state;
  training.past.length = training.now + 1;
  for (let i = 0; i < count; i++) {
    give(trained(state.steps, state.numbers));
    keep();
  }
  training.now += count;
  drawCell();
}

// Open step `now` of the training with the numbers that it had.
export function openTraining(now) {
  const { training, steps, decimals } = state;
  training.now = between(0, now, training.past.length - 1);
  give(training.past[training.now].given);
  state.numbers = calculate(steps, decimals);
  drawCell();
}

export function choose(update, rate) {
  const before = new Map(state.steps.map(step => [step.name, step.given])), { name } = current();
  lay(update);
  for (const step of state.steps) if (step.given) step.given = before.get(step.name) ?? step.given;
  const eta = stepNamed("eta"), there = stepNamed(name);
  eta.given = [rate];
  if (!there) state.at.cell = 0;
  state.at.step = state.steps.indexOf(there ?? eta);
  state.numbers = calculate(state.steps, state.decimals);
  drawStep();
  begin();
}

// The numbers are those of the name's worksheet: named_example.py draws them in the same way.
const DRAWN_FROM = [-1, -0.5, 0, 0, 0, 0, 0.5, 1];
const WORKSHEET_DECIMALS = 3;
const FOLDED = { ß: "ss", ς: "σ", ſ: "s" }; // case folding that toLowerCase does not do

function lettersOf(name) {
  const small = name.toLowerCase().replace(/[ßςſ]/g, letter => FOLDED[letter]);
  return small.normalize("NFC").trim().split(/\s+/).join(" ");
}

export async function drawName(name) {
  const letters = lettersOf(name);
  if (!letters) return reset();
  const numbers = numbersOf(letters);
  do await draw(numbers); while (!isLively());
  state.decimals = WORKSHEET_DECIMALS;
  begin(0);
  drawStep();
  page.name.blur(); // from now on, keys control the player
}

/** Show another sentence of three words: each word draws its embedding, and all else stays the same. */
export async function useSentence(text) {
  const words = text.trim().split(/\s+/), spellings = new Set(words.map(lettersOf));
  const isUsable = words.length === state.sentence.length && spellings.size === words.length;
  page.words.setCustomValidity(isUsable ? "" : `Type ${state.sentence.length} different words.`);
  if (!text.trim()) return reset();
  if (!page.words.reportValidity()) return;
  const rows = await Promise.all(words.map(drawRow));
  rename(words);
  const E = stepNamed("E"), width = E.shape[2];
  words.forEach((word, i) => E.given.splice(E.rows.indexOf(word) * width, width, ...rows[i]));
  begin(0);
  drawStep();
  page.words.blur(); // from now on, keys control the player
}

// Replace the words of the sentence in all tables, and set all numbers to those at the start.
function rename(words) {
  const before = stepNamed("embedding").rows, named = new Map(before.map((word, i) => [word, words[i]]));
  for (const look of state.data.looks) {
    look.rows = look.rows.map(word => named.get(word) ?? word);
    look.columns = look.columns.map(word => named.get(word) ?? word);
  }
  lay(state.update);
}

// Return the embedding of a word. The same word always gets the same numbers, and they are not all zeros.
async function drawRow(word) {
  const numbers = numbersOf(lettersOf(word)), width = stepNamed("E").shape[2];
  for (;;) {
    const row = [];
    while (row.length < width) row.push((await numbers.next()).value);
    if (row.some(Boolean)) return row;
  }
}

// Yield an endless stream of integers and halves, from a hash of the name.
async function* numbersOf(letters) {
  for (let count = 0; ; count++) {
    const text = new TextEncoder().encode(`${letters} ${count}`);
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", text));
    for (const byte of digest) yield DRAWN_FROM[byte % DRAWN_FROM.length];
  }
}

const undrawn = step => /^(norm|[mv]_|eta$|k$|target$)/.test(step.name); // steps that a name does not change

// Draw all parameters except those of the norms, and a target of integers near the output.
async function draw(numbers) {
  const drawn = state.steps.filter(step => step.given && !undrawn(step)), target = stepNamed("target");
  for (const step of drawn) step.given = await drawArray(numbers, step);
  const { y } = valuesBy(calculate(state.steps, null));
  target.given = (await drawArray(numbers, target)).map((number, i) => Math.round(y[i] + number) + 0);
}

// No row and no column of a matrix is all zeros.
async function drawArray(numbers, step) {
  for (;;) {
    const list = [];
    while (list.length < size(step)) list.push((await numbers.next()).value);
    const lines = [...rowsOf(step, list), ...columnsOf(step, list)];
    if (step.axes.length === 1 || lines.every(line => line.some(Boolean))) return list;
  }
}

const columnsOf = ({ shape: [, , J] }, list) => upTo(J).map(j => list.filter((_, i) => i % J === j));

// Return the numbers of each step by its name.
const valuesBy = numbers => Object.fromEntries(state.steps.map(step => [step.name, valuesOf(step, numbers)]));

// Return whether numbers are neither too small nor too large, and rounding changes no result visibly.
function isLively() {
  const exact = valuesBy(calculate(state.steps, null));
  const pencil = valuesBy(calculate(state.steps, WORKSHEET_DECIMALS));
  const least = list => Math.min(...list), most = list => Math.max(...list);
  const far = list => most(list.map(Math.abs)), rows = name => rowsOf(stepNamed(name), exact[name]);
  const on = rows("ffn.z").map(row => row.filter(number => number > 0).length / row.length);
  const spread = rows("attention.weights").map(row => most(row) - least(row));
  const names = Object.keys(exact), calculated = names.slice(0, names.indexOf("eta"));
  return least(exact["ffn.z"].map(Math.abs)) >= 0.05 && least(on) > 0 && most(on) < 1
    && least(exact["attention.weights"]) >= 0.02 && least(spread) >= 0.2
    && ["norm_1", "norm_2"].every(norm => least(exact[`${norm}.variance`]) >= 0.3)
    && calculated.every(name => far(exact[name]) < 20 && (far(exact[name]) >= 0.05 || !name.startsWith("d_"))
      && far(exact[name].map((number, i) => number - pencil[name][i])) <= 0.05)
    && pencil.new_loss[0] < pencil.loss[0];
}
