// Compare pasted numbers with the steps: open the first step that differs, and mark its first wrong cell.

import { page } from "./page.js";
import { open } from "./places.js";
import { current, show, state, valuesOf } from "./state.js";
import { drawStep } from "./step.js";
import { size } from "./trace.js";

// The text is NumPy's output, a list or a table. A name, "Q", begins the numbers of a step.
const WORDS = /[-+−]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[-+−]?(?:nan|inf)\b|[a-z_][\w.]*/gi;
const FEWEST = 2; // the decimals that are compared if all pasted numbers are integers
const HIDDEN = -1e8; // a masked score below this number counts as −∞

export function showYours(on = page.paper.hidden) {
  page.paper.hidden = !on;
  if (on) page.pasted.focus();
  else page.cellOn.focus({ preventScroll: true });
}

export function compare() {
  const stations = pasted(page.pasted.value), wrong = stations.find(([step, texts]) => fault(step, texts));
  show.received = false;
  state.data.marks = [];
  if (wrong) light(wrong[0], fault(...wrong));
  const right = stations.slice(0, wrong ? stations.indexOf(wrong) : undefined).map(([step]) => step.name);
  const says = wrong ? `${wrong[0].name} differs: ${fault(...wrong).says}. ` : "";
  const agreed = right.length ? `Right: ${right.join(", ")}.` : "";
  page.found.textContent = says + agreed || "Paste numbers.";
}

function light(step, { cell, received }) {
  if (cell >= 0) {
    const expected = valuesOf(step)[cell].toPrecision(7).replace("-", "−");
    state.data.marks = [{ station: step.name, cell, expected, received }];
  }
  open(`${step.name},${Math.max(cell, 0)}`);
  drawStep();
}

// Return the pasted steps with their numbers as text, in the order of the calculation.
function pasted(text) {
  /** @type {[any, string[]][]} */
  const found = [[current(), []]];
  for (const [word] of text.matchAll(WORDS)) {
    const step = stepMeant(word);
    if (step) found.push([step, []]);
    else if (/^[-+−]?(\.?\d|nan$|inf$)/i.test(word)) found.at(-1)[1].push(word);
  }
  const written = found.filter(([, texts]) => texts.length);
  return written.sort(([a], [b]) => state.steps.indexOf(a) - state.steps.indexOf(b));
}

const wayOf = name => /^(d_|new_)?/.exec(name)[0];

// "z" is "ffn.z", and "d_z" is its gradient; a name that two steps have must be written in full.
function stepMeant(name) {
  const way = wayOf(name), last = `.${name.slice(way.length)}`;
  const fits = state.steps.filter(step => wayOf(step.name) === way && step.name.endsWith(last));
  return state.steps.find(step => step.name === name) ?? (fits.length === 1 ? fits[0] : undefined);
}

function fault(step, texts) {
  if (texts.length !== size(step)) {
    return { cell: -1, received: "", says: `${texts.length} numbers, expected ${size(step)}` };
  }
  const values = valuesOf(step), typed = texts.map(numberIn), finite = values.filter(Number.isFinite);
  const unit = 10 ** -Math.max(FEWEST, ...texts.map(decimalsOf));
  const allowed = Math.max(0.51 * unit, 1e-6 * Math.max(0, ...finite.map(Math.abs)));
  const right = (value, i) => value === -Infinity ? typed[i] < HIDDEN : Math.abs(value - typed[i]) <= allowed;
  const wrong = values.flatMap((value, i) => (right(value, i) ? [] : [i]));
  const says = `${wrong.length} of ${values.length} cells`;
  return wrong.length ? { cell: wrong[0], received: texts[wrong[0]], says } : undefined;
}

const numberIn = text => Number(text.replace("−", "-").replace(/inf/i, "Infinity"));
function decimalsOf(text) {
  const [mantissa, exponent] = text.toLowerCase().split("e");
  return (mantissa.split(".")[1] ?? "").length - Number(exponent ?? 0);
}
