// The live strip: the attention weights, the loss as a function of one given number with the gradient as its
// tangent, and the loss during training.

import { lossAlong } from "./arithmetic.js";
import { between, drawn, page, picture, room, upTo } from "./page.js";
import { current, gradientOf, isHidden, numberOf, parameterOf } from "./state.js";
import { state, stepNamed, stepOf, valuesOf } from "./state.js";
import { isNew, letter, rowsOf, whereabouts, word } from "./trace.js";
import { escaped, typeset, written, writtenAsGiven } from "./words.js";

// Draw with the browser's next frame, so that fast key presses do not wait.
let drawing = 0;
export function drawStrip() {
  drawing ||= requestAnimationFrame(drawStripNow);
}

// Draw without waiting, because a page may be printed before its next frame.
export function drawStripNow() {
  drawing = 0;
  if (page.strip.hidden) return;
  page.arcs.innerHTML = arcs();
  drawCurve();
  drawTraining();
}

// Draw a line from each query on the left to each key on the right; a thicker line is a larger weight.
function arcs() {
  const step = stepNamed(isNew(current()) ? "new_attention.weights" : "attention.weights");
  const [G, I] = step.shape, rows = rowsOf(step, valuesOf(step));
  const said = step.rows.length / I > 1 ? "" : "<small>left looks at right</small>";
  const pictures = drawn(G, g => `<figure><figcaption>${step.titles[g] ?? "one head"}</figcaption>` +
    `${looks(step, g, rows.slice(g * I, (g + 1) * I))}</figure>`);
  return `<p class="says">attention ${said}</p><div class="heads">${pictures}</div>`;
}

const ROW = 34, FROM = 58, TO = 142;

function looks(step, g, rows) {
  const [G, I] = step.shape, y = i => ROW * (i + 0.6), middle = (FROM + TO) / 2;
  const nameOf = (words, i) => word(words, I, g, G, i); // queries and keys have the same words
  const text = (words, x, side) => drawn(I, i =>
    `<text x="${x}" y="${y(i) + 5}" text-anchor="${side}">${brief(nameOf(words, i))}</text>`);
  const line = (weight, i, j) => {
    const way = `M${FROM} ${y(i)}C${middle} ${y(i)} ${middle} ${y(j)} ${TO} ${y(j)}`;
    const width = (0.3 + 11 * weight).toFixed(2), opacity = (0.25 + 0.7 * weight).toFixed(2);
    return weight > 0 ? `<path d="${way}" stroke-width="${width}" opacity="${opacity}"/>` : "";
  };
  const lines = rows.flatMap((row, i) => row.map((weight, j) => line(weight, i, j)));
  const said = rows.map((row, i) => {
    const most = Math.max(...row), key = nameOf(step.columns, row.indexOf(most));
    return `${nameOf(step.rows, i)} looks most at ${key}: ${written(most, 2)}`;
  });
  const words = text(step.rows, FROM - 6, "end") + text(step.columns, TO + 6, "start");
  return picture(200, ROW * (I + 0.2), said.join(", "), lines.join("") + words);
}

const brief = text => escaped(text.length > 7 ? `${text.slice(0, 6)}…` : text);

// The loss as a function of the touched number

const POINTS = 49, REACH = 2;

// The curve does not change while its number is dragged.
let kept = { key: "", values: [], losses: [] };
function curve() {
  const step = stepOf(state.touched), place = state.touched - step.first, k = state.steps.indexOf(step);
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
  const { touched } = state, step = stepOf(touched), here = state.numbers[touched];
  const loss = numberOf("loss"), slope = gradientOf(touched);
  const unsaid = isHidden() && parameterOf(current(), state.at.cell) === touched;
  const name = letter(step), place = whereabouts(step, touched - step.first), at = `${name} ${place}`;
  const gradient = unsaid ? "?" : written(slope, 3), now = writtenAsGiven(here), L = written(loss, 3);
  page.along.innerHTML = `<i>L</i> = <b>${L}</b> along ${typeset(name)} ` +
    `<small>${escaped(place)}</small> = <b>${now}</b>, slope <b class="slope">${gradient}</b>`;
  page.drag.setAttribute("aria-label", at);
  page.drag.setAttribute("aria-valuetext", `${now}, loss ${L}, slope ${gradient}`);
  const says = `the loss along ${at}; the tangent at ${now} has the slope ${gradient}`;
  const finite = Number.isFinite(here + loss + slope);
  page.curve.innerHTML = finite ? curveWithTangent(here, loss, unsaid ? undefined : slope, says) : "";
}

function curveWithTangent(here, loss, slope, says) {
  const { values, losses } = curve(), first = values[0], last = values.at(-1);
  const [wide, high] = room(page.curve), finite = [...losses, loss].filter(Number.isFinite);
  const low = Math.min(...finite), top = Math.max(...finite);
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

// The loss during training

function drawTraining() {
  const { past, now } = state.training, last = past.length - 1, losses = past.map(({ loss }) => loss);
  Object.assign(page.when, { max: last, value: now, disabled: last === 0 });
  page.again.disabled = last === 0;
  page.update.value = state.update;
  page.rate.value = stepNamed("eta").given[0];
  const wild = !(losses[last] < 2 * losses[0]);
  const before = now ? `, at the start ${written(losses[0], 4)}` : "";
  const next = last ? "" : `, after one step (T) ${written(numberOf("new_loss"), 4)}`;
  page.fallen.innerHTML = `step ${now} of ${last}: <b><i>L</i> = ${written(losses[now], 4)}</b>` +
    before + next +
    (wild && last ? " <em>The steps are too large.</em>" : "");
  page.fall.innerHTML = fallOf(losses, now, numberOf("new_loss"));
}

// Draw the loss of each step; losses above three times the first one are outside the picture. Before the
// first step, a dashed line leads to the loss of the second pass.
function fallOf(losses, now, next) {
  const [wide, high] = room(page.fall), n = Math.max(losses.length - 1, 1);
  const top = between(1e-9, Math.max(...losses.filter(Number.isFinite)), 3 * losses[0]);
  const share = loss => (Number.isFinite(loss) ? Math.min(loss / top, 1.1) : 1.1);
  const x = k => 8 + (wide - 16) * k / n, y = loss => high - 6 - (high - 14) * share(loss);
  const points = losses.map((loss, k) => `${x(k).toFixed(1)},${y(loss).toFixed(1)}`).join(" ");
  const axis = `<path class="axis" d="M4 ${high - 6}H${wide}M8 0V${high}"/>`;
  const dot = `<circle class="dot" cx="${x(now)}" cy="${y(losses[now])}" r="5"/>`;
  const says = `the loss after each of ${losses.length - 1} steps of training, now at step ${now}`;
  const end = `${x(1).toFixed(1)} ${y(next).toFixed(1)}`;
  const ahead = losses.length > 1 ? "" : `<path class="ahead" d="M${points.replace(",", " ")}L${end}"/>`;
  return picture(wide, high, says, `${axis}<polyline class="loss" points="${points}"/>${ahead}${dot}`);
}
