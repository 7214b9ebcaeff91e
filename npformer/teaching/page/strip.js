// The live strip: who looks at whom, and the loss along one given number with the gradient as its tangent.

import { lossAlong } from "./arithmetic.js";
import { edit } from "./numbers.js";
import { between, make, page, picture, room, upTo } from "./page.js";
import { current, gradientOf, isHidden, numberOf, parameterOf } from "./state.js";
import { state, stepNamed, valuesOf } from "./state.js";
import { isNew, letter, whereabouts, word } from "./trace.js";
import { drawTraining, makeTraining } from "./training.js";
import { escaped, typeset, written, writtenAsGiven } from "./words.js";

const LEAST = 7.5; // times the size of its letters; with less room there is no strip
export function isRoom(free) {
  const letters = parseFloat(getComputedStyle(page.root).fontSize);
  return free >= LEAST * letters || innerWidth <= 700; // a narrow page scrolls
}

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
  const [G, I, J] = step.shape, y = i => ROW * (i + 0.6), middle = (FROM + TO) / 2;
  const text = (words, x, side, i) => // I = J here: the sentence looks at itself
    `<text x="${x}" y="${y(i) + 5}" text-anchor="${side}">${brief(word(words, I, g, G, i))}</text>`;
  const left = upTo(I).map(i => text(step.rows, FROM - 6, "end", i));
  const right = upTo(J).map(j => text(step.columns, TO + 6, "start", j));
  const line = (weight, k) => {
    const i = Math.floor(k / J), j = k % J, way = `${middle} ${y(i)} ${middle} ${y(j)} ${TO} ${y(j)}`;
    const width = (0.3 + 11 * weight).toFixed(2), opacity = (0.25 + 0.7 * weight).toFixed(2);
    const look = `stroke-width="${width}" opacity="${opacity}"`;
    return weight > 0 ? `<path d="M${FROM} ${y(i)}C${way}" ${look}/>` : "";
  };
  const drawn = [...weights.map(line), ...left, ...right].join("");
  return picture(200, ROW * (I + 0.2), weightsSaid(step, g, weights), drawn);
}

const brief = text => escaped(text.length > 7 ? `${text.slice(0, 6)}…` : text);

function weightsSaid(step, g, weights) {
  const [G, I, J] = step.shape;
  return upTo(I).map(i => {
    const row = weights.slice(i * J, (i + 1) * J), j = row.indexOf(Math.max(...row));
    const [query, key] = [word(step.rows, I, g, G, i), word(step.columns, J, g, G, j)];
    return `${query} looks most at ${key}: ${written(row[j], 2)}`;
  }).join(", ");
}

// The loss along the touched number

const POINTS = 49, REACH = 2;
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
  const here = state.numbers[state.touched], loss = numberOf("loss"), slope = gradientOf(state.touched);
  const unsaid = isHidden() && parameterOf(current(), state.at.cell) === state.touched;
  const name = nameOf(state.touched), gradient = unsaid ? "?" : written(slope, 3), now = writtenAsGiven(here);
  page.along.innerHTML = `<i>L</i> = <b>${written(loss, 3)}</b> along ${typeset(name.letter)} ` +
    `<small>${escaped(name.place)}</small> = <b>${now}</b>, slope <b class="slope">${gradient}</b>`;
  page.drag.setAttribute("aria-label", `${name.letter} ${name.place}`);
  page.drag.setAttribute("aria-valuetext", `${now}, loss ${written(loss, 3)}, slope ${gradient}`);
  const says = `the loss along ${name.letter} ${name.place}; the tangent at ${now} has the slope ${gradient}`;
  const finite = Number.isFinite(here + loss + slope);
  page.curve.innerHTML = finite ? curveWithTangent(here, loss, unsaid ? undefined : slope, says) : "";
}

function curveWithTangent(here, loss, slope, says) {
  const { values, losses } = curve(), first = values[0], last = values.at(-1);
  const [wide, high] = room(page.curve), finite = [...losses, loss].filter(Number.isFinite);
  const low = Math.min(...finite), top = Math.max(...finite);
  scale = { first, last };
  Object.assign(page.drag, { min: first, max: last, value: here });
  const x = w => wide * (w - first) / (last - first);
  const y = L => 10 + (high - 20) * (top - L) / (top - low || 1);
  const place = (w, L) => `${x(w).toFixed(1)},${y(L).toFixed(1)}`, reach = 0.3 * (last - first);
  const end = w => place(w, loss + slope * (w - here));
  const tangent = `<path class="tangent" d="M${end(here - reach)}L${end(here + reach)}"/>`;
  const there = values.flatMap((w, i) => (Number.isFinite(losses[i]) ? [place(w, losses[i])] : []));
  const dot = `<circle class="dot" cx="${x(here)}" cy="${y(loss)}" r="6"/>`;
  const line = `<polyline class="loss" points="${there.join(" ")}"/>`;
  return picture(wide, high, says, `${line}${slope === undefined ? "" : tangent}${dot}`);
}

function drag(value) {
  edit(state.touched, Math.round(value * 100) / 100);
}

function dragOnCurve(event) {
  if (!(event.buttons & 1)) return;
  event.preventDefault();
  const { left, width } = page.curve.getBoundingClientRect(), share = (event.clientX - left) / width;
  drag(scale.first + between(0, share, 1) * (scale.last - scale.first));
}
