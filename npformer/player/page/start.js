// Build the page, and handle keys, mouse and touch. A page holds one player.

import { conveyor } from "./belt.js";
import { closer, farther, redraw, setLevel } from "./levels.js";
import { begin, choose, chooseRounding, drawName, edit, reset, touch } from "./numbers.js";
import { openTraining, train, useSentence } from "./numbers.js";
import { between, button, page } from "./page.js";
import { addressed, go, goBack, goToCell, goToEnd, goToStation, open } from "./places.js";
import { move, moveStation, moveStep, present } from "./places.js";
import { isHidden, lay, numberOf, show, state, stepNamed } from "./state.js";
import { answer, drawCell, drawStep, fit, peek, reveal } from "./step.js";
import { drawStripNow } from "./strip.js";
import { endStory, pause, tell } from "./story.js";
import { nextMoment } from "./travel.js";
import { read } from "./words.js";
import { compare, showYours } from "./yours.js";
import { listenToZoom } from "./zoom.js";

// A group of buttons, an action, its key, and the label of its button; the text in [] is visible.
const KEYS = [
  ["more", "first", "Home", "to the [start]", () => go(0, 0)],
  ["move", "stationBack", "PageUp", "[◀◀] one station back", () => moveStation(-1)],
  ["move", "stepBack", "ArrowUp", "[▲ step]: one step back", () => moveStep(-1)],
  ["move", "cellBack", "ArrowLeft", "[◀ cell]: one cell back", () => move(-1)],
  ["move", "cellOn", "ArrowRight", "[cell ▶]: one cell on", () => move(1)],
  ["move", "stepOn", "ArrowDown", "[step ▼]: one step on", () => moveStep(1)],
  ["move", "stationOn", "PageDown", "[▶▶] one station on", () => moveStation(1)],
  ["more", "last", "End", "to the [end]", () => goToEnd(state.steps.length - 1)],
  ["move", "step", "Enter", "[all ⏎]: the whole step", () => goToEnd(state.at.step)],
  ["more", "back", "Backspace", "[return ⌫]: to where you came from", goBack],
  ["show", "predict", "h", "[predict H]: hide each result until you ask for it", () => turn("predict")],
  ["more", "arithmetic", "s", "[arithmetic S]: show or hide the arithmetic", () => turn("arithmetic")],
  ["more", "values", "v", "[values V]: show or hide the value beside its gradient", () => turn("values")],
  ["more", "live", "l", "[live L]: show or hide the live pictures", () => turn("live")],
  ["show", "far", "z", "[from afar Z]: the whole block, forward and back", toFar],
  ["show", "farther", "-", "[−] farther: the product, the station, the block", farther],
  ["show", "closer", "+", "[+] closer: the station, the product, the cell", closer],
  ["show", "story", " ", "[story ␣]: the whole block, told in less than a minute", tell],
  ["more", "motion", "m", "[motion M]: whether views and numbers move", () => turn("motion")],
  ["more", "pause", "p", "[pause P]: pause or continue the motion and the story", pause],
  ["more", "moment", "n", "[moment N]: one moment of the motion of this cell", nextMoment],
  ["show", "onStage", "f", "[stage F]: full screen, without buttons", () => setStage(!show.onStage)],
  ["training", "one", "t", "[1 step T]: one training step", () => train(1)],
  ["training", "ten", "x", "[10 X]: 10 training steps", () => train(10)],
  ["training", "hundred", "c", "[100 C]: 100 training steps", () => train(100)],
  ["training", "again", "b", "[back B]: to the start of the training", () => openTraining(0)],
  ["more", "yours", "y", "[yours Y]: paste the numbers of your own block", () => showYours()],
  ["show", "help", "?", "[?]: all keys", () => showKeys(page.keys.hidden)],
];
const ACTIONS = {
  ...Object.fromEntries(KEYS.map(([, name, , , act]) => [name, act])),
  reset, check: answer, reveal, tell, compare,
  close: () => showYours(false),
  closeKeys: () => showKeys(false),
  receive: () => { show.received = true; drawCell(); },
};
const KEY_NAMES = { // the names of keys that type no letter
  " ": "Space", ArrowUp: "↑", ArrowLeft: "←", ArrowRight: "→", ArrowDown: "↓", PageUp: "Page Up",
  PageDown: "Page Down", Home: "Home", End: "End", Enter: "Enter", Backspace: "Backspace",
};
const JUMPS = { // the actions of a click, by the data attribute of the element
  do: name => ACTIONS[name](),
  cell: cell => goToCell(Number(cell)),
  station: station => goToStation(Number(station)),
  step: step => go(Number(step), 0),
};
const CHOICES = { // the actions of a choice in a form field
  rounding: text => chooseRounding(text === "" ? null : Number(text)),
  name: drawName,
  words: useSentence,
  update: text => choose(text, numberOf("eta")),
  rate: text => choose(state.update, Number(text)),
  when: text => openTraining(Number(text)),
  drag: text => drag(Number(text)),
};

function keyButton([, name, key, says]) {
  const [, text] = /\[(.*)\]/.exec(says), label = says.replace(/[[\]]/g, "");
  const rest = `title="${label} (${key})" aria-label="${label}" aria-keyshortcuts="${key}"`;
  return button("do", name, text, rest);
}

// A row of the list of keys; the buttons of the group "more" are nowhere else.
function keyRow(entry) {
  const [group, , key, says] = entry, withoutButton = says.replace(/\[.*\](:| (?=one station)) ?/, "");
  const label = withoutButton.replace(/[[\]]/g, "");
  const shown = group === "more" ? keyButton(entry) : "";
  return `<tr><td><kbd>${KEY_NAMES[key] ?? key.toUpperCase()}</kbd><td>${label}<td>${shown}`;
}

export function start(root, data) {
  Object.assign(state, { data, decimals: data.decimals });
  lay(data.update);
  state.touched = stepNamed("attention.W_Q").first;
  root.classList.add("npformer-player");
  for (const place of root.querySelectorAll("[data-keys]")) {
    place.outerHTML = KEYS.filter(([group]) => group === place.dataset.keys).map(keyButton).join("");
  }
  root.querySelector("[data-part=keyRows]").innerHTML = KEYS.map(keyRow).join("");
  for (const part of root.querySelectorAll("[data-part], [data-do]")) {
    page[part.dataset.part ?? part.dataset.do] = part;
  }
  page.root = root;
  state.sentence = stepNamed("embedding").rows;
  page.belt.innerHTML = conveyor();
  page.name.hidden = !data.named || !globalThis.crypto?.subtle; // some addresses have no crypto.subtle
  page.words.hidden = page.name.hidden;
  listen();
  begin(0);
  drawStep();
  if (!open(addressed())) open(data.at);
  const look = { at: state.at, numbers: () => state.numbers, get steps() { return state.steps; } };
  return Object.assign(look, { edit, open, drawName, train, openTraining, choose });
}

function turn(name) {
  show[name] = !show[name];
  show.answered = false;
  drawStep();
}

function showKeys(on) {
  page.keys.hidden = !on;
  if (on) page.closeKeys.focus();
  else page.cellOn.focus({ preventScroll: true });
}

function toFar() {
  endStory();
  setLevel(show.far ? "product" : "block");
}

// On stage there are no buttons: a presenter's remote sends Page Up, Page Down and B.
function setStage(on) {
  show.onStage = on;
  page.root.classList.toggle("on-stage", on);
  page.root.classList.remove("dark");
  if (on) document.documentElement.requestFullscreen?.().catch(() => {}); // a frame may not be allowed to
  else if (document.fullscreenElement) document.exitFullscreen();
  drawStep();
}

const STAGE_KEYS = {
  PageDown: () => present(1),
  PageUp: () => present(-1),
  b: () => page.root.classList.toggle("dark"),
  ".": () => page.root.classList.toggle("dark"),
  Escape: () => setStage(false),
};

function jump(element) {
  for (const kind in element.tagName === "INPUT" ? {} : JUMPS) {
    const found = element.closest?.(`[data-${kind}]`);
    if (found) return JUMPS[kind](found.dataset[kind]);
  }
}

function listen() {
  const { stage, curve, peek: hint } = page, hide = () => { hint.hidden = true; };
  document.addEventListener("keydown", onKey);
  document.addEventListener("click", event => jump(event.target));
  for (const event of ["mouseover", "focusin"]) stage.addEventListener(event, peek);
  for (const event of ["mouseleave", "focusout"]) stage.addEventListener(event, hide);
  const cellOf = event => Number(event.target.parentElement.dataset.cell);
  stage.addEventListener("focusin", event => {
    if (event.target.tagName === "INPUT") touch(cellOf(event));
  });
  stage.addEventListener("change", event => edit(cellOf(event), read(event.target.value)));
  for (const [name, choose] of Object.entries(CHOICES)) {
    const field = page[name], event = field.type === "range" ? "input" : "change"; // a slider: every move
    field.addEventListener(event, () => choose(field.value));
  }
  for (const event of ["pointerdown", "pointermove"]) curve.addEventListener(event, dragOnCurve);
  addEventListener("resize", () => { fit(); redraw(); });
  addEventListener("beforeprint", drawStripNow);
  listenToZoom();
  document.addEventListener("fullscreenchange", () => {
    if (!document.fullscreenElement && show.onStage) setStage(false);
  });
  addEventListener("hashchange", () => open(addressed()));
}

function onKey(event) {
  const { target } = event, key = latinKey(event);
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const action = actionOf(target, key);
  if (!action) return;
  event.preventDefault();
  action();
}

// On a Greek or Cyrillic keyboard, the place of a key decides: "р" is where "h" is. "=" is + without Shift.
function latinKey({ key, code }) {
  if (key === "=" || key === "−") return key === "=" ? "+" : "-";
  const isForeignLetter = key.length === 1 && key > "\u024f" && /^Key[A-Z]$/.test(code);
  return isForeignLetter ? code.slice("Key".length).toLowerCase() : key;
}

function actionOf(target, key) {
  const typing = target.matches?.("input, select, textarea"), { cell, station } = target.dataset ?? {};
  if (target === page.guess && key === "Enter") return answer;
  if (target === page.guess && key === "Escape") return () => page.cellOn.focus();
  if (page.paper.contains(target) && key === "Escape") return ACTIONS.close;
  if (!page.keys.hidden && key === "Escape") return ACTIONS.closeKeys;
  if (typing && key === "Escape") return () => target.blur();
  if (target === page.pasted || typing && !["PageUp", "PageDown"].includes(key)) return;
  if (key === "Enter" && (cell ?? station)) return () => jump(target);
  const ownKey = ["Enter", " "].includes(key) && target.matches?.("button");
  if (ownKey && (key === "Enter" || target.matches(":focus-visible"))) return; // the button handles the key
  if (show.onStage && !typing && STAGE_KEYS[key]) return STAGE_KEYS[key];
  if (isHidden() && /^[-−0-9.,]$/.test(key)) return void page.guess.focus(); // the field gets the key
  return KEYS.find(([, , shortcut]) => shortcut === key || shortcut === key.toLowerCase())?.[4];
}

const drag = value => edit(state.touched, Math.round(value * 100) / 100);

function dragOnCurve(event) {
  if (!(event.buttons & 1)) return;
  event.preventDefault();
  const { left, width } = page.curve.getBoundingClientRect(), share = (event.clientX - left) / width;
  const { min, max } = page.drag; // convert the pixels of the picture to numbers
  drag(Number(min) + between(0, share, 1) * (max - min));
}
