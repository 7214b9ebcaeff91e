// Training: steps are taken, each can be opened, and the loss is drawn as it falls, or does not.

import { calculate, trained } from "./arithmetic.js";
import { recalculate } from "./numbers.js";
import { between, group, make, makeButton, makeSelect, page } from "./page.js";
import { show, state, stepNamed, numberOf } from "./state.js";
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
  const kept = new Map(state.steps.map(step => [step.name, step.given])), { name } = state.steps[state.at.step];
  Object.assign(state, { update, rate });
  state.steps = stepsOf(state.data, update);
  state.home = homes(state.steps);
  state.original = givens();
  for (const step of state.steps) if (step.given && kept.has(step.name)) step.given = kept.get(step.name);
  stepNamed("eta").given = [rate];
  const there = state.steps.findIndex(step => step.name === name);
  Object.assign(state.at, there < 0 ? { step: state.steps.indexOf(stepNamed("eta")), cell: 0 } : { step: there });
  page.redraw();
  state.numbers = calculate(state.steps, state.decimals);
  begin(state.training.now);
  showStep();
}

export function makeTraining() {
  const rates = RATES.map(rate => [String(rate), `η = ${rate}`]);
  page.rate = makeSelect("learning rate", rates, String(state.rate), value => choose(state.update, Number(value)));
  const updates = [["sgd", "SGD"], ["adam", "Adam"]];
  page.update = makeSelect("update", updates, state.update, value => choose(value, state.rate));
  page.when = make("input", { type: "range", min: 0, value: 0, title: "which step of the training is open" });
  page.when.setAttribute("aria-label", "step of the training");
  page.when.addEventListener("input", () => openTraining(Number(page.when.value)));
  page.fall = make("div", { className: "picture" });
  page.fallen = make("p", { className: "says", role: "status" });
  const steps = [1, 10, 100].map(count => {
    const key = { 1: "t", 10: "x", 100: "c" }[count], label = `${count} ${count > 1 ? "steps" : "step"} of training`;
    return makeButton(count === 1 ? "1 step T" : `${count} ${key.toUpperCase()}`, () => train(count), {
      title: `${label} (${key})`, aria: { keyshortcuts: key, label: `${count === 1 ? "1 step T" : `${count} ${key.toUpperCase()}`}: ${label}` },
    });
  });
  const title = "back to the first step of training (b)";
  page.again = makeButton("back B", () => openTraining(0), { title, aria: { keyshortcuts: "b", label: "back B: to the start of the training" } });
  const buttons = group("steps of training", ...steps, page.again, page.update, page.rate);
  return [page.fallen, page.fall, page.when, buttons];
}

const STEPS_WIDE = 300, STEPS_HIGH = 110;

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
  const top = between(1e-9, Math.max(...losses.filter(Number.isFinite)), 3 * losses[0]), n = Math.max(losses.length - 1, 1);
  const x = k => 8 + (STEPS_WIDE - 16) * k / n, y = loss => STEPS_HIGH - 6 - (STEPS_HIGH - 14) * Math.min(Number.isFinite(loss) ? loss / top : 9, 1.1);
  const points = losses.map((loss, k) => `${x(k).toFixed(1)},${y(loss).toFixed(1)}`).join(" ");
  const says = `the loss after each of ${losses.length - 1} steps of training, now at step ${now}`;
  return `<svg viewBox="0 0 ${STEPS_WIDE} ${STEPS_HIGH}" role="img" aria-label="${says}"><path class="axis" d="M4 ${STEPS_HIGH - 6}H${STEPS_WIDE}M8 0V${STEPS_HIGH}"/>` +
    `<polyline class="loss" points="${points}"/><circle class="dot" cx="${x(now)}" cy="${y(losses[now])}" r="5"/></svg>`;
}
