// The page: its parts in their places. A page holds one player.

import { calculate } from "./arithmetic.js";
import { conveyor, drawMap } from "./belt.js";
import { KEYS, listen, makeKeyButtons } from "./keys.js";
import { chooseRounding, drawName, edit, makeNameBox, reset } from "./numbers.js";
import { group, make, makeButton, makeSelect, page } from "./page.js";
import { addressed, open } from "./places.js";
import { state, stepNamed } from "./state.js";
import { showStep } from "./step.js";
import { makeStrip } from "./strip.js";
import { homes, stepsOf } from "./trace.js";
import { begin, choose, openTraining, train } from "./training.js";
import { makeYours } from "./yours.js";

export function start(root, data) {
  Object.assign(state, { data, decimals: data.decimals, update: data.update });
  state.steps = stepsOf(data, data.update);
  state.rate = stepNamed("eta").given[0];
  state.original = state.steps.map(step => step.given?.slice());
  state.home = homes(state.steps);
  state.numbers = calculate(state.steps, state.decimals);
  state.touched = stepNamed("attention.W_Q").first;
  build(root);
  listen();
  begin(0);
  showStep();
  if (!open(addressed())) open(data.at);
  const look = { at: state.at, numbers: () => state.numbers, get steps() { return state.steps; } };
  return Object.assign(look, { edit, open, drawName, train, openTraining, choose });
}

function build(root) {
  const live = { live: "polite" }, label = "your prediction";
  for (const name of ["belt", "chips", "title", "stage", "strip", "whole", "sum", "controls"]) {
    page[name] = make("div", { className: name });
  }
  page.root = root;
  page.whole.hidden = true;
  page.map = make("div", { className: "map", role: "img" });
  page.peek = make("div", { className: "peek", hidden: true });
  page.speaker = make("div", { className: "speaker", role: "status", aria: live });
  page.guess = make("input", { className: "guess", placeholder: "?", inputMode: "decimal", aria: { label } });
  page.verdict = make("span", { className: "verdict", aria: live });
  page.count = make("span", { className: "count" });
  page.story = make("div", { className: "story" });
  page.told = make("span", { className: "told", role: "status" });
  page.stage.tabIndex = 0;
  page.stage.setAttribute("role", "group");
  page.stage.setAttribute("aria-label", "the tables of this step");
  fill();
  page.redraw = drawMap;
  drawMap();
  root.classList.add("npformer-player");
  const parts = [page.belt, page.chips, page.map, page.title, page.whole, page.stage, page.strip, page.sum];
  root.append(make("main", {}, ...parts, page.controls, page.yours, page.peek, page.speaker));
}

function fill() {
  page.reset = makeButton("reset", reset, { hidden: true, title: "the numbers as they came" });
  const choices = [["", "exact"], ...[1, 2, 3, 4, 5, 6, 7, 8].map(n => [String(n), `${n} decimals`])];
  const title = "round every step before the next uses it", chosen = String(state.decimals ?? "");
  const choose = value => chooseRounding(value === "" ? null : Number(value));
  page.rounding = makeSelect("rounding", choices, chosen, choose, title);
  page.name = makeNameBox();
  page.name.hidden = !state.data.named || !globalThis.crypto?.subtle; // browsers keep it from some addresses
  page.belt.innerHTML = conveyor();
  makeKeyButtons();
  makeStrip();
  makeYours();
  const of = kind => KEYS.filter(row => row[4] === kind).map(([name]) => page.buttons[name]);
  const numbers = group("numbers", page.rounding, page.name, page.reset, ...of("numbers"));
  page.controls.append(group("move", ...of("move")), group("show", ...of("show")), numbers);
}
