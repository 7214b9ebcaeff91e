// Keys, mouse and touch.

import { go, goBack, goToCell, goToStation, move, moveStation, moveStep, open, addressed } from "./places.js";
import { showWhole, tell } from "./far.js";
import { makeButton, page } from "./page.js";
import { current, isHidden, show, state } from "./state.js";
import { answer, clickStage, fit, look, showStep } from "./step.js";
import { openTraining, train } from "./training.js";
import { presses } from "./trace.js";
import { showYours } from "./yours.js";

// An action, its key, what its button shows, what it says: the visible words are in what is said.
export const KEYS = [
  ["first", "Home", "start", "to the start", "move"],
  ["stationBack", "PageUp", "◀◀", "◀◀ one station back", "move"],
  ["stepBack", "ArrowUp", "▲ step", "▲ step: one step back", "move"],
  ["cellBack", "ArrowLeft", "◀ cell", "◀ cell: one cell back", "move"],
  ["cellOn", "ArrowRight", "cell ▶", "cell ▶: one cell on", "move"],
  ["stepOn", "ArrowDown", "step ▼", "step ▼: one step on", "move"],
  ["stationOn", "PageDown", "▶▶", "▶▶ one station on", "move"],
  ["last", "End", "end", "to the end", "move"],
  ["whole", "Enter", "all ⏎", "all ⏎: the whole step", "move"],
  ["back", "Backspace", "return ⌫", "return ⌫: to where you came from", "move"],
  ["predict", "h", "predict H", "predict H: hide each result until you ask for it", "show"],
  ["arithmetic", "s", "arithmetic S", "arithmetic S: show or hide it", "show"],
  ["values", "v", "values V", "values V: show or hide the value beside its gradient", "show"],
  ["live", "l", "live L", "live L: show or hide the live pictures", "show"],
  ["far", "z", "from afar Z", "from afar Z: the whole block, forward and back", "show"],
  ["yours", "y", "yours Y", "yours Y: paste the numbers of your own block", "numbers"],
];
const TOGGLES = ["predict", "arithmetic", "values", "live"];

const actions = {
  first: () => go(0, 0),
  last: () => go(state.steps.length - 1, presses(state.steps.at(-1)) - 1),
  stationBack: () => moveStation(-1),
  stationOn: () => moveStation(1),
  stepBack: () => moveStep(-1),
  stepOn: () => moveStep(1),
  cellBack: () => move(-1),
  cellOn: () => move(1),
  whole: () => go(state.at.step, presses(current()) - 1),
  back: goBack,
  far: () => showWhole(!show.whole),
  yours: () => showYours(page.yours.hidden),
  ...Object.fromEntries(TOGGLES.map(name => [name, () => toggle(name)])),
};
const TRAINING = { t: () => train(1), x: () => train(10), c: () => train(100), b: () => openTraining(0) };

const press = name => page.buttons[name].setAttribute("aria-pressed", show[name]);

export function makeKeyButtons() {
  const button = (name, key, text, label) =>
    makeButton(text, () => actions[name](), {
      title: `${label} (${key})`, aria: { label, keyshortcuts: key },
    });
  page.buttons = Object.fromEntries(
    KEYS.map(([name, key, text, label]) => [name, button(name, key, text, label)]),
  );
  for (const name of TOGGLES) press(name);
}

function toggle(name) {
  show[name] = !show[name];
  show.answered = false;
  press(name);
  showStep();
}

export function listen() {
  const { stage, belt, guess, map } = page, hide = () => { page.peek.hidden = true; };
  document.addEventListener("keydown", onKey);
  guess.addEventListener("keydown", onGuessKey);
  for (const event of ["mouseover", "focusin"]) stage.addEventListener(event, look);
  for (const event of ["mouseleave", "focusout"]) stage.addEventListener(event, hide);
  stage.addEventListener("click", clickStage);
  belt.addEventListener("click", event => {
    const group = event.target.closest(".station");
    if (group) goToStation(Number(group.dataset.station));
  });
  map.addEventListener("click", event => {
    if (event.target.dataset.step) go(Number(event.target.dataset.step), 0);
  });
  addEventListener("resize", fit);
  addEventListener("hashchange", () => open(addressed()));
}

function onKey(event) {
  const { target, key } = event, { cell, station } = target.dataset ?? {};
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const typing = target.matches?.("input, select, textarea");
  if (typing && key === "Escape") return target.blur();
  if (target === page.pasted || typing && !["PageUp", "PageDown"].includes(key)) return;
  if (key === "Enter" && cell) return goToCell(Number(cell));
  if (key === "Enter" && station) return goToStation(Number(station));
  if (["Enter", " "].includes(key) && target.matches?.("button")) return; // the button's own
  if (isHidden() && /^[-−0-9.,]$/.test(key)) return page.guess.focus(); // which then gets the key
  if (show.whole && key === " ") return event.preventDefault(), tell();
  const name = KEYS.find(([, shortcut]) => shortcut === key || shortcut === key.toLowerCase())?.[0];
  const action = name ? actions[name] : TRAINING[key.toLowerCase()];
  if (!action) return;
  event.preventDefault();
  action();
}

function onGuessKey(event) {
  if (event.key === "Enter") answer();
  else if (event.key === "Escape") page.buttons.cellOn.focus();
  else return;
  event.preventDefault();
}
