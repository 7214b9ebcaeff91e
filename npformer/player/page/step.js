// Show a step and a cell: equation, tables, inputs of the cell, arithmetic, and the user's prediction.

import { drawBelt, drawChips, drawMap } from "./belt.js";
import { between, button, drawn, later, page } from "./page.js";
import { current, digits, givens, isHidden, markHere, show } from "./state.js";
import { state, stepOf, touchedAt, write } from "./state.js";
import { redraw } from "./levels.js";
import { drawStrip } from "./strip.js";
import { cellsOf, isBack, letter, size, whereabouts, word } from "./trace.js";
import { travelSoon } from "./travel.js";
import { arithmetic, escaped, judge, shorter, spoken, typeset } from "./words.js";

export function drawStep() {
  const step = current(), value = show.values ? step.value : undefined;
  page.root.classList.toggle("back", isBack(step));
  drawBelt(step);
  drawChips(step);
  drawEquation(step);
  const around = step.shown.filter(k => k !== value).map(k => table(k, "operand"));
  const beside = value === undefined ? "" : table(value, "value");
  page.stage.innerHTML = around.join("") + beside + table(state.at.step, "result");
  // If one cell has a long sum, all cells of the step get two lines, so that nothing moves between cells.
  const lengths = (step.recipes ?? []).map(recipe => arithmetic(recipe, write).length);
  page.sum.classList.toggle("long", Math.max(0, ...lengths) > 100);
  drawCell();
  fit();
}

// Update everything that can change while a step is on the screen.
export function drawCell() {
  const step = current(), { at } = state;
  state.touched = touchedAt(step);
  const cells = step.given ? "" : `, cell ${at.cell + 1} of ${size(step)}`;
  page.count.textContent = `step ${at.step + 1} of ${state.steps.length}${cells}`;
  for (const name in show) page[name]?.setAttribute("aria-pressed", show[name]);
  page.rounding.value = state.decimals ?? "";
  page.reset.hidden = String(givens()) === state.original;
  drawCells(step);
  drawSum(step);
  drawMap();
  drawStrip();
  redraw();
  remember(step);
}

function drawEquation(step) {
  const lines = step.lines.map(k => typeset(state.steps[k].equation)).join(" <b>;</b> ");
  const equation = typeset(step.given ? letter(step) : step.equation);
  const name = step.name === letter(step) ? "" : step.name;
  const says = step.given ? "given: click a number to change it" : step.source && `the paper, ${step.source}`;
  page.title.innerHTML =
    `<div class="from">${lines && `forward: ${lines}`}</div>` +
    `<h1>${equation}<small>${[name, says].filter(Boolean).join(" · ")}</small></h1>`;
}

// Return a step as a figure; the role is "operand", "value" (next to its gradient) or "result".
function table(k, role) {
  const step = state.steps[k], shape = step.axes.map(typeset).join(" × ") || "a number";
  const says = step.given || role === "operand" ? shape : `${shape} · the ${role}`;
  const wide = role === "result" ? `style="--wide: ${widest(step)}em"` : "";
  return `<figure class="${role} ${step.given ? "given" : ""}" ${wide}><figcaption title="${step.name}">` +
    `<span>${typeset(letter(step))}</span><small>${says}</small></figcaption>` +
    `<div class="heads">${drawn(step.shape[0], g => matrix(step, g, role))}</div></figure>`;
}

// Return the width of a step's longest number, so that nothing moves while numbers appear.
const widest = step =>
  0.42 + 0.53 * Math.max(...Array.from({ length: size(step) }, (_, i) => write(step.first + i).length));

function matrix(step, g, role) {
  const [G, I, J] = step.shape, sentences = step.rows.length / I;
  // Only the first matrix of a sentence has words at its rows.
  const worded = step.rows.length ? g % (G / sentences) === 0 : I > 1;
  const head = (scope, words, count, i) =>
    `<th scope="${scope}">${words.length ? escaped(word(words, count, g, G, i)) : i}</th>`;
  const corner = worded ? `<td class="corner"></td>` : "";
  const over = `<tr>${corner}${drawn(J, j => head("col", step.columns, J, j))}</tr>`;
  const row = i => `<tr>${worded ? head("row", step.rows, I, i) : ""}` +
    `${drawn(J, j => box(step, (g * I + i) * J + j, role))}</tr>`;
  const title = step.titles[g] ? `<caption>${escaped(step.titles[g])}</caption>` : "";
  return `<table>${title}${J > 1 ? over : ""}${drawn(I, row)}</table>`;
}

function box(step, place, role) {
  const differs = state.data.marks.some(mark => mark.station === step.name && mark.cell === place);
  const label = escaped(`${letter(step)} ${whereabouts(step, place)}`);
  const typed = role === "result" && step.given ? `<input inputmode="decimal" aria-label="${label}">` : "";
  const look = differs ? `class="differs"` : "";
  return `<td data-cell="${step.first + place}" data-role="${role}" ${look}>${typed}</td>`;
}

function drawCells(step) {
  const entering = new Set(step.given ? [] : cellsOf(step.recipes[state.at.cell]));
  for (const td of page.stage.querySelectorAll("td[data-cell]")) {
    const cell = Number(td.dataset.cell), place = cell - stepOf(cell).first, { role } = td.dataset;
    const here = place === state.at.cell, calculated = role === "result" && !step.given;
    const enters = role !== "result" && entering.has(cell), late = calculated && place > state.at.cell;
    const looks = { now: calculated && here, late, enters, beside: role === "value" && here };
    for (const [look, on] of Object.entries(looks)) td.classList.toggle(look, on);
    const text = late ? "\u00a0" : looks.now && isHidden() ? "?" : write(cell);
    if (td.firstElementChild) td.firstElementChild.value = text;
    else td.textContent = text;
    for (const [name, value] of [["role", "button"], ["tabindex", 0]]) {
      if (enters) td.setAttribute(name, value);
      else td.removeAttribute(name);
    }
  }
}

const SCROLLS = "(max-width: 700px), (max-width: 1000px) and (max-height: 500px)"; // as in look.css
const LEAST = 7.5; // in font sizes; the strip is hidden if it has less space

// Set the largest font size with which all tables fit on the screen: at most --largest pixels at 1280 × 720.
// The live strip gets the space below; for it, the font may shrink to 24 pixels. A narrow page scrolls.
export function fit() {
  const { root, stage, strip } = page, screen = Math.min(innerHeight / 720, innerWidth / 1280);
  root.style.setProperty("--tables", "minmax(0, 1fr)");
  root.style.setProperty("--live", "0");
  strip.hidden = true;
  const fits = () => stage.scrollHeight <= stage.clientHeight && stage.scrollWidth <= stage.clientWidth;
  const scale = Math.max(1, screen), most = Number(getComputedStyle(root).getPropertyValue("--largest"));
  let pixels = Math.round(most * scale);
  do stage.style.fontSize = `${pixels}px`; while (!fits() && --pixels > 12);
  if (!show.live || show.onStage) return;
  const large = pixels, least = LEAST * parseFloat(getComputedStyle(root).fontSize);
  const isRoom = () => stage.clientHeight - used(stage) >= least || matchMedia(SCROLLS).matches;
  while (!isRoom() && pixels > Math.min(large, 28 * scale) * 6 / 7) stage.style.fontSize = `${--pixels}px`;
  strip.hidden = !isRoom();
  if (strip.hidden) return void (stage.style.fontSize = `${large}px`);
  root.style.setProperty("--tables", `${Math.ceil(used(stage))}px`);
  root.style.setProperty("--live", "minmax(0, 1fr)");
  drawStrip();
}

function used(stage) {
  const boxes = [...stage.children].map(child => child.getBoundingClientRect());
  const height = Math.max(...boxes.map(box => box.bottom)) - Math.min(...boxes.map(box => box.top));
  return parseFloat(getComputedStyle(stage).paddingTop) + height + 4;
}

function sumOf(cell) {
  const step = stepOf(cell), recipe = step.recipes[cell - step.first];
  const whole = arithmetic(recipe, write), short = shorter(recipe, write, state.numbers, digits());
  return short ? `${whole} = ${short}` : whole;
}

function drawSum(step) {
  const { cell: k } = state.at, hidden = isHidden(), place = whereabouts(step, k), cell = step.first + k;
  const sum = () => hidden ? arithmetic(step.recipes[k], write) : sumOf(cell); // hidden: without the result
  const line = show.arithmetic && !step.given ? `${sum()} = ` : "";
  const name = `<span>${typeset(letter(step))}<small> ${escaped(place)}</small> = </span>`;
  const left = `${name}<span>${escaped(line)}</span>`;
  page.line.innerHTML = step.given
    ? "Nobody has to calculate these. Change one, and all after it is calculated anew."
    : hidden ? left : `${left}<b>${write(cell)}</b>`;
  for (const part of [page.guess, page.check, page.reveal]) part.hidden = !hidden;
  drawMark(markHere());
  const result = hidden ? "what will stand here?" : write(cell);
  const said = step.given ? `${letter(step)}, given` : spoken(`${letter(step)} ${place}: ${line}${result}`);
  later("say", 250, () => { page.speaker.textContent = said; }); // announce only a cell where the user stays
}

// A cell where another calculation differs: both numbers are hidden until the user asks for them.
function drawMark(mark) {
  page.mark.hidden = !mark;
  if (!mark) return;
  const ask = button("do", "receive", "show the received"), { expected, received } = mark;
  const said = show.received ? `<span>received ${received}</span>` : ask;
  page.mark.innerHTML = `Here yours differs: ${isHidden() ? "" : `expected ${expected}, `}${said}`;
}

// Keep the place in the page's address, so that it can be shared. A frame in a notebook has no address.
function remember({ name }) {
  const { cell } = state.at, address = `#at=${name}${cell ? `,${cell}` : ""}`;
  if (location.protocol !== "about:") later("address", 300, () => history.replaceState(null, "", address));
}

// Show next to an input where it comes from.
export function peek(event) {
  const td = event.target.closest?.("td.enters"), { peek } = page;
  peek.hidden = !td;
  if (!td) return;
  const cell = Number(td.dataset.cell), step = stepOf(cell);
  const sum = step.given ? "" : `${sumOf(cell)} = ${write(cell)}`;
  const hint = step.given ? "click: go there and change it" : "click: go there; Backspace: return";
  peek.innerHTML =
    `<b>${typeset(letter(step))}</b> ${escaped(whereabouts(step, cell - step.first))}` +
    `<div>${typeset(step.equation)}</div><div>${escaped(sum)}</div><small>${hint}</small>`;
  const spot = td.getBoundingClientRect(), own = peek.getBoundingClientRect();
  const below = spot.bottom + own.height + 8 < innerHeight;
  peek.style.left = `${between(4, spot.left, Math.max(4, innerWidth - own.width - 4))}px`;
  peek.style.top = `${below ? spot.bottom + 6 : Math.max(4, spot.top - own.height - 6)}px`;
}

// The user's prediction

export function answer() {
  if (page.guess.value.trim() === "") return reveal();
  const value = state.numbers[current().first + state.at.cell];
  const [isRight, feedback] = judge(page.guess.value, value, digits());
  page.verdict.textContent = feedback;
  if (isRight) return reveal();
  page.guess.select(); // the next number replaces this one
}

export function reveal() {
  show.answered = true;
  drawCell();
  travelSoon();
  page.cellOn.focus({ preventScroll: true });
}
