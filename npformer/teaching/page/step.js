// A step and a cell: its equation, its tables, what enters the cell, its arithmetic, and a prediction of it.

import { showChips, showMap, showStation } from "./belt.js";
import { entry } from "./numbers.js";
import { boxes, make, makeButton, page, between, say, upTo } from "./page.js";
import { goToCell, remember } from "./places.js";
import { current, digits, isHidden, markHere, parameterOf, show, state, write } from "./state.js";
import { drawStrip, isRoom } from "./strip.js";
import { cellsOf, isBack, letter, size, whereabouts, word } from "./trace.js";
import { arithmetic, escaped, judge, shorter, spoken, typeset } from "./words.js";

export function showStep() {
  const step = current(), value = show.values ? step.value : undefined;
  page.root.classList.toggle("back", isBack(step));
  showStation(step);
  showChips(step);
  showEquation(step);
  boxes.clear();
  const around = step.shown.filter(k => k !== value).map(k => table(k, "operand"));
  const beside = value === undefined ? [] : [table(value, "value")];
  page.stage.replaceChildren(...around, ...beside, table(state.at.step, "result"));
  // Long sums get two lines, for the whole step: nothing moves from cell to cell.
  const lengths = (step.recipes ?? []).map(recipe => arithmetic(recipe, write).length);
  page.sum.classList.toggle("long", Math.max(0, ...lengths) > 100);
  showCell();
  fit();
}

function showEquation(step) {
  const lines = step.lines.map(k => typeset(state.steps[k].equation)).join(" <b>;</b> ");
  const equation = typeset(step.given ? letter(step) : step.equation);
  const name = step.name === letter(step) ? "" : step.name;
  const says = step.given ? "given: click a number to change it" : step.source && `the paper, ${step.source}`;
  page.title.innerHTML =
    `<div class="from">${lines && `forward: ${lines}`}</div>` +
    `<h1>${equation}<small>${[name, says].filter(Boolean).join(" · ")}</small></h1>`;
}

// A step as a figure; the role is "operand", "value" (beside its gradient) or "result".
function table(k, role) {
  const step = state.steps[k];
  const shape = step.axes.map(typeset).join(" × ") || "a number";
  const says = step.given || role === "operand" ? shape : `${shape} · the ${role}`;
  const innerHTML = `<span>${typeset(letter(step))}</span><small>${says}</small>`;
  const caption = make("figcaption", { innerHTML, title: step.name });
  const drawn = upTo(step.shape[0]).map(g => matrix(step, g, role));
  const matrices = make("div", { className: "heads" }, ...drawn);
  const figure = make("figure", { className: `${role} ${step.given ? "given" : ""}` }, caption, matrices);
  if (role === "result") figure.style.setProperty("--wide", `${widest(step)}em`);
  return figure;
}

// Room for a step's longest number, so that nothing moves while its boxes are filled.
const widest = step => 0.42 + 0.53 * Math.max(...upTo(size(step)).map(i => write(step.first + i).length));

function matrix(step, g, role) {
  const [G, I, J] = step.shape, sentences = step.rows.length / I;
  // The words stand before the first matrix of a sentence only.
  const worded = step.rows.length ? g % (G / sentences) === 0 : I > 1;
  const rowText = i => (step.rows.length ? word(step.rows, I, g, G, i) : i);
  const rowWord = i => (worded ? [make("th", { scope: "row", textContent: rowText(i) })] : []);
  const columnText = j => (step.columns.length ? word(step.columns, J, g, G, j) : j);
  const columnWord = j => make("th", { scope: "col", textContent: columnText(j) });
  const corner = worded ? [make("td", { className: "corner" })] : [];
  const over = make("tr", {}, ...corner, ...upTo(J).map(columnWord));
  const rowOf = i => upTo(J).map(j => box(step.first + (g * I + i) * J + j, role));
  const row = i => make("tr", {}, ...rowWord(i), ...rowOf(i));
  const title = step.titles[g] ? [make("caption", { textContent: step.titles[g] })] : [];
  return make("table", {}, ...title, ...(J > 1 ? [over] : []), ...upTo(I).map(row));
}

function box(cell, role) {
  const element = make("td", { data: { cell, role } });
  if (role === "result" && current().given) element.append(entry(cell));
  else element.textContent = write(cell);
  const mark = state.data.marks.find(mark => cellOf(mark) === cell);
  if (mark) element.classList.add("differs");
  boxes.set(cell, [...(boxes.get(cell) ?? []), element]);
  return element;
}

const cellOf = mark => state.steps.find(step => step.name === mark.station).first + mark.cell;

// The largest letters with which all tables are on the screen: 28 pixels where that is 1280 × 720. What they
// leave free below is the live strip's, and it may take a seventh of their size for it.
export function fit() {
  const { root, stage, strip } = page, screen = Math.min(innerHeight / 720, innerWidth / 1280);
  root.style.setProperty("--tables", "minmax(0, 1fr)");
  root.style.setProperty("--live", "0");
  strip.hidden = true;
  const fits = () => stage.scrollHeight <= stage.clientHeight && stage.scrollWidth <= stage.clientWidth;
  let pixels = Math.round(28 * Math.max(1, screen));
  do stage.style.fontSize = `${pixels}px`; while (!fits() && --pixels > 12);
  if (!show.live) return;
  const large = pixels, free = () => stage.clientHeight - used(stage);
  while (!isRoom(free()) && pixels > large * 6 / 7) stage.style.fontSize = `${--pixels}px`;
  strip.hidden = !isRoom(free());
  if (strip.hidden) return void (stage.style.fontSize = `${large}px`);
  root.style.setProperty("--tables", `${Math.ceil(used(stage))}px`);
  root.style.setProperty("--live", "minmax(0, 1fr)");
  drawStrip();
}

function used(stage) {
  const { top } = stage.getBoundingClientRect();
  return Math.max(...[...stage.children].map(child => child.getBoundingClientRect().bottom - top)) + 4;
}

export function showCell() {
  const step = current(), { at } = state;
  const entering = new Set(step.given ? [] : cellsOf(step.recipes[at.cell]));
  for (const [cell, elements] of boxes) {
    for (const element of elements) {
      if (element.dataset.role !== "result") markOperand(element, cell, entering.has(cell));
      else if (!step.given) markResult(element, cell - step.first);
    }
  }
  const cells = step.given ? "" : `, cell ${at.cell + 1} of ${size(step)}`;
  page.count.textContent = `step ${at.step + 1} of ${state.steps.length}${cells}`;
  const parameter = parameterOf(step, at.cell);
  if (!step.given && parameter !== undefined) state.touched = parameter;
  showSum(step);
  showMap();
  drawStrip();
  remember();
}

function markOperand(element, cell, enters) {
  const step = state.steps[state.home[cell]];
  element.classList.toggle("beside", element.dataset.role === "value" && cell - step.first === state.at.cell);
  if (element.classList.toggle("enters", enters)) {
    element.setAttribute("role", "button");
    element.tabIndex = 0;
  } else {
    element.removeAttribute("role");
    element.removeAttribute("tabindex");
  }
}

function markResult(element, place) {
  const { cell } = state.at, now = place === cell, late = place > cell;
  element.classList.toggle("now", now);
  element.classList.toggle("late", late);
  element.textContent = late ? "\u00a0" : now && isHidden() ? "?" : write(current().first + place);
}

function sumOf(cell) {
  const step = state.steps[state.home[cell]], recipe = step.recipes[cell - step.first];
  const whole = arithmetic(recipe, write), short = shorter(recipe, write, state.numbers, digits());
  return short ? `${whole} = ${short}` : whole;
}

function showSum(step) {
  if (step.given) {
    const says = "Nobody has to calculate these. Change one, and all after it is calculated anew.";
    page.sum.replaceChildren(says, ...marked());
    return say(`${letter(step)}, given`);
  }
  const place = whereabouts(step, state.at.cell), cell = step.first + state.at.cell;
  const sum = isHidden() ? arithmetic(step.recipes[state.at.cell], write) : sumOf(cell); // only what is asked
  const line = show.arithmetic ? `${sum} = ` : "";
  const lined = make("span", { className: "line", textContent: line });
  const result = isHidden() ? "what will stand here?" : write(cell);
  const name = make("span", { innerHTML: `${typeset(letter(step))}<small> ${escaped(place)}</small> = ` });
  const answer = isHidden() ? question() : [make("b", { textContent: result }), page.verdict];
  page.sum.replaceChildren(name, lined, ...answer, ...marked());
  say(spoken(`${letter(step)} ${place}: ${line}${result}`));
}

// A cell in which another calculation differs: both numbers wait to be asked for.
function marked() {
  const mark = markHere();
  if (!mark) return [];
  const ask = () => { show.received = true; showCell(); };
  const received = show.received ? `received ${mark.received}` : makeButton("show the received", ask);
  const expected = isHidden() ? "" : `expected ${mark.expected}, `;
  return [make("span", { className: "mark" }, `Here yours differs: ${expected}`, received)];
}

// Where an entering number came from, beside it.
export function look(event) {
  const element = cellUnder(event);
  page.peek.hidden = !element?.classList.contains("enters");
  if (page.peek.hidden) return;
  const cell = Number(element.dataset.cell), step = state.steps[state.home[cell]];
  const sum = step.given ? "" : `${sumOf(cell)} = ${write(cell)}`;
  const hint = step.given ? "click: go there and change it" : "click: go there; Backspace: return";
  page.peek.innerHTML =
    `<b>${typeset(letter(step))}</b> ${escaped(whereabouts(step, cell - step.first))}` +
    `<div>${typeset(step.equation)}</div><div>${escaped(sum)}</div><small>${hint}</small>`;
  putBeside(page.peek, element);
}

export const cellUnder = event => event.target.closest?.("td[data-cell]");

function putBeside(peek, element) {
  const spot = element.getBoundingClientRect(), own = peek.getBoundingClientRect();
  const below = spot.bottom + own.height + 8 < innerHeight;
  peek.style.left = `${between(4, spot.left, Math.max(4, innerWidth - own.width - 4))}px`;
  peek.style.top = `${below ? spot.bottom + 6 : Math.max(4, spot.top - own.height - 6)}px`;
}

export function clickStage(event) {
  const element = cellUnder(event);
  if (element && event.target.tagName !== "INPUT") goToCell(Number(element.dataset.cell));
}

// Predictions

const question = () => [page.guess, makeButton("check", answer), makeButton("show", reveal), page.verdict];

export function answer() {
  if (page.guess.value.trim() === "") return reveal();
  const value = state.numbers[current().first + state.at.cell];
  page.verdict.textContent = judge(page.guess.value, value, digits());
  if (page.verdict.textContent.startsWith("R")) reveal(); // right, or but for rounding
}

function reveal() {
  show.answered = true;
  showCell();
  page.buttons.cellOn.focus({ preventScroll: true });
}
