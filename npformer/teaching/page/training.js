// Training: steps are taken, each can be opened, and the loss is drawn as it falls, or does not.

import { calculate, trained } from "./arithmetic.js";
import { recalculate } from "./numbers.js";
import { between, group, make, makeButton, makeSelect, page, picture, room } from "./page.js";
import { current, numberOf, state, stepNamed } from "./state.js";
import { showStep } from "./step.js";
import { homes, stepsOf } from "./trace.js";
import { written } from "./words.js";

const RATES = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3];

const givens = () => state.steps.map(step => step.given?.slice());

// The training so far ends at step `now`, with the numbers that are given at this moment.
export function begin(now) {
  const { training } = state;
  training.given.length = training.losses.length = now;
  training.now = now;
  keep();
  drawTraining();
}

function keep() {
  state.training.given.push(givens());
  state.training.losses.push(numberOf("loss"));
}

export function train(count) {
  const { steps, training } = state;
  training.given.length = training.losses.length = training.now + 1;
  for (let i = 0; i < count; i++) {
    trained(steps, state.numbers).forEach((given, k) => { steps[k].given = given; });
    state.numbers = calculate(steps, state.decimals);
    keep();
  }
  training.now += count;
  recalculate();
  drawTraining();
}

// Step `now` of the training, as it was: every cell of it can be walked.
export function openTraining(now) {
  const { training, steps } = state;
  training.now = between(0, now, training.losses.length - 1);
  training.given[training.now].forEach((given, k) => { steps[k].given = given?.slice(); });
  state.rate = numberOf("eta");
  recalculate();
  drawTraining();
}

export function choose(update, rate) {
  const before = new Map(state.steps.map(step => [step.name, step.given])), { name } = current();
  Object.assign(state, { update, rate });
  state.steps = stepsOf(state.data, update);
  state.home = homes(state.steps);
  state.original = givens();
  for (const step of state.steps) if (step.given) step.given = before.get(step.name) ?? step.given;
  stepNamed("eta").given = [rate];
  const there = stepNamed(name);
  Object.assign(state.at, there ? {} : { cell: 0 }, { step: state.steps.indexOf(there ?? stepNamed("eta")) });
  page.redraw();
  state.numbers = calculate(state.steps, state.decimals);
  begin(state.training.now);
  showStep();
}

export function makeTraining() {
  const rates = RATES.map(rate => [String(rate), `η = ${rate}`]), rate = String(state.rate);
  page.rate = makeSelect("learning rate", rates, rate, value => choose(state.update, Number(value)));
  const updates = [["sgd", "SGD"], ["adam", "Adam"]];
  page.update = makeSelect("update", updates, state.update, value => choose(value, state.rate));
  page.when = make("input", { type: "range", min: 0, value: 0, title: "which step of the training is open" });
  page.when.setAttribute("aria-label", "step of the training");
  page.when.addEventListener("input", () => openTraining(Number(page.when.value)));
  page.fall = make("div", { className: "picture" });
  page.fallen = make("p", { className: "says", role: "status" });
  const takes = (count, key) => {
    const text = `${count}${count > 1 ? "" : " step"} ${key.toUpperCase()}`;
    const says = `${text}: ${count} of training`;
    const aria = { keyshortcuts: key, label: says };
    return makeButton(text, () => train(count), { title: `${says} (${key})`, aria });
  };
  const steps = [takes(1, "t"), takes(10, "x"), takes(100, "c")], aria = { keyshortcuts: "b" };
  const label = "back B: to the start of the training";
  page.again = makeButton("back B", () => openTraining(0), { title: label, aria: { ...aria, label } });
  const buttons = group("steps of training", ...steps, page.again, page.update, page.rate);
  return [page.fallen, page.fall, page.when, buttons];
}

export function drawTraining() {
  const { losses, now } = state.training, last = losses.length - 1;
  page.when.max = String(last);
  page.when.value = String(now);
  page.when.disabled = page.again.disabled = last === 0;
  page.update.value = state.update;
  page.rate.value = String(state.rate);
  const loss = written(losses[now], 4), wild = !(losses[last] < 2 * losses[0]);
  const before = now ? `, at the start ${written(losses[0], 4)}` : "";
  page.fallen.innerHTML = `step ${now} of ${last}: <b><i>L</i> = ${loss}</b>${before}` +
    (wild && last ? " <em>The steps are too large.</em>" : "");
  page.fall.innerHTML = fallOf(losses, now);
}

// The loss by steps; above three times the first one it leaves the picture.
function fallOf(losses, now) {
  const [wide, high] = room(page.fall), n = Math.max(losses.length - 1, 1);
  const top = between(1e-9, Math.max(...losses.filter(Number.isFinite)), 3 * losses[0]);
  const share = loss => (Number.isFinite(loss) ? Math.min(loss / top, 1.1) : 1.1);
  const x = k => 8 + (wide - 16) * k / n, y = loss => high - 6 - (high - 14) * share(loss);
  const points = losses.map((loss, k) => `${x(k).toFixed(1)},${y(loss).toFixed(1)}`).join(" ");
  const axis = `<path class="axis" d="M4 ${high - 6}H${wide}M8 0V${high}"/>`;
  const dot = `<circle class="dot" cx="${x(now)}" cy="${y(losses[now])}" r="5"/>`;
  const says = `the loss after each of ${losses.length - 1} steps of training, now at step ${now}`;
  return picture(wide, high, says, `${axis}<polyline class="loss" points="${points}"/>${dot}`);
}
