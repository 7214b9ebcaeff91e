// The live strip: who looks at whom, and the loss along one given number with the gradient as its tangent.

import { lossAlong } from "./arithmetic.js";
import { edit } from "./numbers.js";
import { between, make, page, upTo } from "./page.js";
import { current, gradientOf, isHidden, numberOf, parameterOf, state, stepNamed, valuesOf } from "./state.js";
import { isNew, letter, whereabouts, word } from "./trace.js";
import { drawTraining, makeTraining } from "./training.js";
import { escaped, typeset, written, writtenAsGiven } from "./words.js";

const LEAST = 120; // pixels; with less room there is no strip
export const room = free => free >= LEAST || innerWidth <= 700; // a narrow page scrolls

export function makeStrip() {
  page.arcs = make("section", { className: "arcs", aria: { label: "who looks at whom" } });
  page.curve = make("div", { className: "picture" });
  page.along = make("p", { className: "says" });
  page.drag = make("input", { type: "range", step: "any", title: "drag the number" });
  page.drag.addEventListener("input", () => drag(Number(page.drag.value)));
  for (const event of ["pointerdown", "pointermove"]) page.curve.addEventListener(event, dragOnCurve);
  const slope = make("section", { className: "along", aria: { label: "the loss along one number" } });
  slope.append(page.along, page.curve, page.drag);
  const training = make("section", { className: "training", aria: { label: "training" } }, ...makeTraining());
  page.strip.append(page.arcs, slope, training);
}

// Drawn when the browser next draws: keys that come faster do not wait for it.
let drawing = 0;
export function drawStrip() {
  if (page.strip.hidden || drawing) return;
  drawing = requestAnimationFrame(() => {
    drawing = 0;
    if (page.strip.hidden) return;
    page.arcs.innerHTML = arcs();
    drawCurve();
    drawTraining();
  });
}

// Each query on the left looks at the keys on the right; the thicker the line, the larger the weight.
function arcs() {
  const step = stepNamed(isNew(current()) ? "new_attention.weights" : "attention.weights");
  const [G, I] = step.shape, values = valuesOf(step), head = g => values.slice(g * I * I, (g + 1) * I * I);
  const said = step.rows.length / I > 1 ? "" : "<small>left looks at right</small>";
  const pictures = upTo(G).map(g => `<figure><figcaption>${step.titles[g] ?? "one head"}</figcaption>` +
    `${lines(step, g, head(g))}</figure>`);
  return `<p class="says">attention ${said}</p><div class="heads">${pictures.join("")}</div>`;
}

const ROW = 34, FROM = 58, TO = 142;

function lines(step, g, weights) {
  const [G, I, J] = step.shape, y = i => ROW * (i + 0.6);
  const says = text => escaped(text.length > 7 ? `${text.slice(0, 6)}…` : text);
  const left = upTo(I).map(i => `<text x="${FROM - 6}" y="${y(i) + 5}" text-anchor="end">${says(word(step.rows, I, g, G, i))}</text>`);
  const right = upTo(J).map(j => `<text x="${TO + 6}" y="${y(j) + 5}">${says(word(step.columns, J, g, G, j))}</text>`);
  const middle = (FROM + TO) / 2, line = (weight, k) => {
    const i = Math.floor(k / J), j = k % J, width = (0.3 + 11 * weight).toFixed(2);
    if (!(weight > 0)) return "";
    return `<path d="M${FROM} ${y(i)}C${middle} ${y(i)} ${middle} ${y(j)} ${TO} ${y(j)}" stroke-width="${width}" ` +
      `opacity="${(0.25 + 0.7 * weight).toFixed(2)}"/>`;
  };
  const drawn = [...weights.map(line), ...left, ...right].join("");
  return `<svg viewBox="0 0 200 ${ROW * (I + 0.2)}" role="img" aria-label="${escaped(weightsSaid(step, g, weights))}">${drawn}</svg>`;
}

function weightsSaid(step, g, weights) {
  const [G, I, J] = step.shape;
  return upTo(I).map(i => {
    const row = weights.slice(i * J, (i + 1) * J), j = row.indexOf(Math.max(...row));
    return `${word(step.rows, I, g, G, i)} looks most at ${word(step.columns, J, g, G, j)}: ${written(row[j], 2)}`;
  }).join(", ");
}

// The loss along the touched number

const WIDE = 300, HIGH = 120, POINTS = 49, REACH = 2;
let scale; // of the picture that is shown: from its letters to its pixels and back

const touchedStep = () => state.steps[state.home[state.touched]];

function nameOf(cell) {
  const step = state.steps[state.home[cell]], place = whereabouts(step, cell - step.first);
  return { letter: letter(step), place };
}

// While one number is dragged, the curve along it stays the same.
let kept = { key: "", values: [], losses: [] };
function curve() {
  const step = touchedStep(), place = state.touched - step.first, k = state.steps.indexOf(step);
  const others = state.steps.map(other => (other === step ? step.given.with(place, 0) : other.given));
  const key = `${state.touched} ${state.decimals} ${state.update} ${others}`, value = step.given[place];
  const far = value < kept.values[0] || value > kept.values.at(-1);
  if (key === kept.key && !far) return kept;
  const reach = Math.max(REACH, Math.abs(value));
  const values = upTo(POINTS).map(i => value + reach * (2 * i / (POINTS - 1) - 1));
  const losses = lossAlong(state.steps, state.decimals, state.numbers, k, place, values);
  return kept = { key, values, losses };
}

function drawCurve() {
  const { values, losses } = curve(), here = state.numbers[state.touched], loss = numberOf("loss");
  const finite = [...losses, loss].filter(Number.isFinite);
  if (!Number.isFinite(here + loss)) return void (page.curve.innerHTML = "");
  const low = Math.min(...finite), high = Math.max(...finite);
  const [first, last] = [values[0], values.at(-1)], span = high - low || 1;
  scale = { first, last };
  const x = w => WIDE * (w - first) / (last - first), y = L => 10 + (HIGH - 20) * (high - L) / span;
  const slope = gradientOf(state.touched), hidden = isHidden() && parameterOf(current(), state.at.cell) === state.touched;
  const reach = 0.3 * (last - first), across = w => `${x(w).toFixed(1)} ${y(loss + slope * (w - here)).toFixed(1)}`;
  const tangent = hidden ? "" : `<path class="tangent" d="M${across(here - reach)}L${across(here + reach)}"/>`;
  const points = values.map((w, i) => `${x(w).toFixed(1)},${y(losses[i]).toFixed(1)}`).join(" ");
  const name = nameOf(state.touched), gradient = hidden ? "?" : written(slope, 3);
  const says = `the loss along ${name.letter} ${name.place}; the tangent at ${writtenAsGiven(here)} has the slope ${gradient}`;
  page.curve.innerHTML = `<svg viewBox="0 0 ${WIDE} ${HIGH}" role="img" aria-label="${escaped(says)}">` +
    `<polyline class="loss" points="${points}"/>${tangent}<circle class="dot" cx="${x(here)}" cy="${y(loss)}" r="6"/></svg>`;
  page.along.innerHTML = `<i>L</i> = <b>${written(loss, 3)}</b> along ${typeset(name.letter)} <small>${escaped(name.place)}</small> = ` +
    `<b>${writtenAsGiven(here)}</b>, slope <b class="slope">${gradient}</b>`;
  Object.assign(page.drag, { min: first, max: last });
  page.drag.value = here;
  page.drag.setAttribute("aria-label", `${name.letter} ${name.place}`);
  page.drag.setAttribute("aria-valuetext", `${writtenAsGiven(here)}, loss ${written(loss, 3)}, slope ${gradient}`);
}

function drag(value) {
  edit(state.touched, Math.round(value * 100) / 100);
}

function dragOnCurve(event) {
  if (!(event.buttons & 1)) return;
  event.preventDefault();
  const { left, width } = page.curve.firstChild.getBoundingClientRect(), share = (event.clientX - left) / width;
  drag(scale.first + between(0, share, 1) * (scale.last - scale.first));
}
