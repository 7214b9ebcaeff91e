// Numbers of one's own: a given one is typed or dragged, all are reset, or drawn from a name.

import { calculate } from "./arithmetic.js";
import { boxes, make, page, upTo } from "./page.js";
import { current, state, stepNamed, write } from "./state.js";
import { showCell, showStep } from "./step.js";
import { begin } from "./training.js";
import { letter, size, whereabouts } from "./trace.js";
import { read } from "./words.js";

export function entry(cell) {
  const step = current(), label = `${letter(step)} ${whereabouts(step, cell - step.first)}`;
  const input = make("input", { value: write(cell), inputMode: "decimal", aria: { label } });
  input.addEventListener("change", () => edit(cell, read(input.value)));
  input.addEventListener("focus", () => touch(cell));
  return input;
}

export function touch(cell) {
  state.touched = cell;
  showCell();
}

// From here on the training is another one: what came after this step of it is gone.
export function edit(cell, value) {
  const step = state.steps[state.home[cell]];
  if (step.name === "eta") state.rate = value;
  if (Number.isFinite(value)) step.given[cell - step.first] = value;
  recalculate();
  begin(state.training.now);
}

export function reset() {
  state.steps.forEach((step, k) => { if (step.given) step.given = state.original[k].slice(); });
  page.name.value = "";
  state.rate = stepNamed("eta").given[0];
  recalculate();
  begin(0);
}

export function chooseRounding(decimals) {
  state.decimals = decimals;
  recalculate();
  begin(state.training.now);
  showStep();
}

export function recalculate() {
  const { steps, original } = state;
  state.numbers = calculate(steps, state.decimals);
  page.rounding.value = state.decimals ?? "";
  page.reset.hidden = steps.every((step, k) => !step.given || String(step.given) === String(original[k]));
  for (const [cell, elements] of boxes) {
    for (const element of elements) {
      const input = element.querySelector("input");
      if (input) input.value = write(cell);
      else element.textContent = write(cell);
    }
  }
  showCell();
}

// These are the numbers of the name's worksheet: worksheet.py draws them in the same way, and says why.
const DRAWN_FROM = [-1, -0.5, 0, 0, 0, 0, 0.5, 1];
const WORKSHEET_DECIMALS = 3;
const FOLDED = { ß: "ss", ς: "σ", ſ: "s" }; // what small letters alone do not make equal

function lettersOf(name) {
  const small = name.toLowerCase().replace(/[ßςſ]/g, letter => FOLDED[letter]);
  return small.normalize("NFC").trim().split(/\s+/).join(" ");
}

export function makeNameBox() {
  const title = "the numbers of this name's worksheet (Enter)", aria = { label: "a name" };
  const input = make("input", { className: "name", placeholder: "a name", title, aria });
  input.addEventListener("change", () => drawName(input.value));
  return input;
}

export async function drawName(name) {
  const letters = lettersOf(name);
  if (!letters) return reset();
  const numbers = numbersOf(letters);
  do await draw(numbers); while (!isLively());
  state.decimals = WORKSHEET_DECIMALS;
  recalculate();
  begin(0);
  showStep();
  page.name.blur(); // the keys are the player's again
}

// Integers and halves without end, from a hash of the name.
async function* numbersOf(letters) {
  for (let count = 0; ; count++) {
    const text = new TextEncoder().encode(`${letters} ${count}`);
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", text));
    for (const byte of digest) yield DRAWN_FROM[byte % DRAWN_FROM.length];
  }
}

const undrawn = step => /^(norm|[mv]_|eta$|k$|target$)/.test(step.name); // not drawn from a name

// All that is trained but the norms; and for the target whole numbers near the output.
async function draw(numbers) {
  const drawn = state.steps.filter(step => step.given && !undrawn(step)), target = stepNamed("target");
  for (const step of drawn) step.given = await drawArray(numbers, step);
  const { y } = valuesBy(calculate(state.steps, null));
  target.given = (await drawArray(numbers, target)).map((number, i) => Math.round(y[i] + number) + 0);
}

// A matrix has no row and no column of zeros only.
async function drawArray(numbers, step) {
  const [, I, J] = step.shape, some = (list, keep) => list.some((value, i) => value !== 0 && keep(i));
  const all = (length, test) => upTo(length).every(test);
  for (;;) {
    const list = [];
    while (list.length < I * J) list.push((await numbers.next()).value);
    const rows = () => all(I, i => some(list, k => Math.floor(k / J) === i));
    const columns = () => all(J, j => some(list, k => k % J === j));
    if (step.axes.length === 1 || (rows() && columns())) return list;
  }
}

// Of each step by its name.
const valuesBy = numbers => Object.fromEntries(
  state.steps.map(step => [step.name, numbers.slice(step.first, step.first + size(step))]),
);

function rowsOf(name, list) {
  const { shape: [, , J] } = stepNamed(name);
  return list.flatMap((_, i) => (i % J ? [] : [list.slice(i, i + J)]));
}

// Whether the numbers are worth a pencil: nothing vanishes, nothing grows, rounding does no harm.
function isLively() {
  const { steps } = state, exact = valuesBy(calculate(steps, null));
  const pencil = valuesBy(calculate(steps, WORKSHEET_DECIMALS));
  const least = list => Math.min(...list), most = list => Math.max(...list);
  const far = list => most(list.map(Math.abs)), z = exact["ffn.z"], weights = exact["attention.weights"];
  const on = rowsOf("ffn.z", z).map(row => row.filter(number => number > 0).length / row.length);
  const spread = rowsOf("attention.weights", weights).map(row => most(row) - least(row));
  const names = steps.slice(0, steps.indexOf(stepNamed("eta"))).map(step => step.name);
  return least(z.map(Math.abs)) >= 0.05 && least(on) > 0 && most(on) < 1
    && least(weights) >= 0.02 && least(spread) >= 0.2
    && least(exact["norm_1.variance"]) >= 0.3 && least(exact["norm_2.variance"]) >= 0.3
    && names.every(name => far(exact[name]) < 20 && (far(exact[name]) >= 0.05 || !name.startsWith("d_")))
    && names.every(name => far(exact[name].map((number, i) => number - pencil[name][i])) <= 0.05)
    && pencil.new_loss[0] < pencil.loss[0];
}
