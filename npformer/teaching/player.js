// The player: one encoder block, cell by cell, forward and back. One module, no library, no request.
//
// The page gives `start` the numbers that are given, and a recipe for every other cell (see recipes.py). A
// cell is a number, counted through all steps; a recipe is a cell, ["number", value, text], or
// [operation, recipe, …].
//
// In this order: numbers, arithmetic as text, what belongs to a step, equations; then the page: a step, a
// cell, predictions, places, numbers of one's own, a name's numbers, keys; and how it looks. A page holds one
// player.

// ------------------------------------------------------------------------------------------- numbers

const OPERATIONS = {
  "+": (...terms) => terms.reduce((sum, term) => sum + term),
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "/": (a, b) => a / b,
  square: a => a * a,
  sqrt: Math.sqrt,
  exp: Math.exp,
  sin: Math.sin,
  cos: Math.cos,
  relu: z => Math.max(0, z),
  gate: (d, z) => (z > 0 ? d : 0),
};

function evaluate(recipe, numbers) {
  if (typeof recipe === "number") return numbers[recipe];
  const [operation, ...parts] = recipe;
  if (operation === "number") return parts[0];
  return OPERATIONS[operation](...parts.map(part => evaluate(part, numbers)));
}

// As people round on paper: a half goes away from zero. The millionth is for 0.4205, a little low in binary.
function round(value, decimals) {
  if (decimals === null) return value;
  const units = Math.floor(Math.abs(value) * 10 ** decimals + (0.5 + 1e-6));
  return (Math.sign(value) * units) / 10 ** decimals + 0; // + 0: no -0
}

// Every number of the trace, in order: a recipe only looks back.
function calculate(steps, decimals) {
  const numbers = [];
  for (const step of steps) {
    if (step.given) numbers.push(...step.given);
    else for (const recipe of step.recipes) numbers.push(round(evaluate(recipe, numbers), decimals));
  }
  return numbers;
}

const minus = text => text.replace("-", "−"); // the sign, as wide as a plus

function written(value, places) {
  if (!Number.isFinite(value)) return "no number";
  const text = value.toFixed(places);
  return minus(Number(text) === 0 ? text.replace("-", "") : text);
}

const writtenAsGiven = value => minus(String(Number(value.toPrecision(6))));

function read(text) {
  const plain = text.trim().replace("−", "-").replace(",", ".");
  return plain === "" ? NaN : Number(plain);
}

// What to say to a student's number where `value` stands, written with so many places.
function judge(text, value, places) {
  const guess = read(text);
  if (!Number.isFinite(guess)) return "Type a number.";
  const unit = 10 ** -places, far = Math.abs(guess - Number(value.toFixed(places)));
  const typed = 10 ** -(text.split(/[.,]/)[1] ?? "").trim().length; // what its last digit is worth
  if (far < unit / 2) return "Right.";
  if (far <= Math.max(3.01 * unit, typed / 2 + unit / 2)) return "Rounding: right but for the last digits.";
  if (value !== 0 && Math.abs(guess + value) < unit) return "Look again: the sign.";
  return "Look again.";
}

// -------------------------------------------------------------------------------- arithmetic as text

// The recipe with its numbers. A negative one stands in brackets unless it comes first. `place` is where this
// part stands: it decides about brackets.
function arithmetic(recipe, place = "first") {
  const bracket = (text, ...places) => (places.includes(place) ? `(${text})` : text);
  if (typeof recipe === "number") {
    const text = write(recipe);
    return text.startsWith("−") && place !== "first" ? `(${text})` : text;
  }
  const [operation, a, b] = recipe;
  const terms = () => recipe.slice(1).map((part, i) => arithmetic(part, i ? "term" : "first"));
  const ways = {
    number: () => b,
    "+": () => bracket(terms().join(" + "), "taken", "factor", "below"),
    "-": () => bracket(`${arithmetic(a, "first")} − ${arithmetic(b, "taken")}`, "taken", "factor", "below"),
    "*": () => bracket(`${arithmetic(a, "factor")} · ${arithmetic(b, "factor")}`, "below"),
    "/": () => bracket(`${arithmetic(a, "factor")} / ${arithmetic(b, "below")}`, "below"),
    square: () => `${arithmetic(a, "factor")}²`,
    sqrt: () => `√(${arithmetic(a, "first")})`,
    relu: () => `max(0, ${arithmetic(a, "first")})`,
    gate: () => `${arithmetic(a, "first")} if z > 0, else 0 (z = ${arithmetic(b, "first")})`,
  };
  return (ways[operation] ?? (() => `${operation}(${arithmetic(a, "first")})`))(); // exp, sin, cos
}

// The same with the sums in it worked out, if there are any: (3 · 1 + 2 · 4) / √2 becomes 11 / √2.
function shorter(recipe) {
  if (typeof recipe === "number" || !["/", "*", "sqrt"].includes(recipe[0])) return "";
  const workedOut = part => {
    if (typeof part === "number" || part[0] === "number") return part;
    const text = written(evaluate(part, numbers), digits());
    return ["number", 0, recipe[0] === "*" && text.startsWith("−") ? `(${text})` : text];
  };
  const text = arithmetic([recipe[0], ...recipe.slice(1).map(workedOut)]);
  return text === arithmetic(recipe) ? "" : text;
}

const SPOKEN = {
  "·": "times", "/": "divided by", "−": "minus ", "²": " squared", "√": "the root of ", "=": "equals",
};
const spoken = text => text.replace(/[·/−²√=]/g, sign => SPOKEN[sign]);

// ----------------------------------------------------------------------------- what belongs to a step

const size = step => step.shape.reduce((product, length) => product * length);
const isBack = step => step.name.startsWith("d_");
const presses = step => (step.given ? 1 : size(step)); // what is given comes all at once

// The letter of a step stands left in its equation; a given one has only its name.
const letter = step => /^(\w+) ?[=([]/.exec(step.equation)?.[1] ?? step.name.split(".").pop();

function cellsOf(recipe) {
  if (typeof recipe === "number") return [recipe];
  return recipe[0] === "number" ? [] : recipe.slice(1).flatMap(cellsOf);
}

// A + hands its gradient on, both ways as it is: that of a is ds, that of f is dt.
const SPLIT = { a: "s", f: "t" };

// Tell each step its first cell and the steps it uses. Returns the step of each cell.
function count(steps) {
  const home = steps.flatMap((step, k) => Array(size(step)).fill(k));
  let first = 0;
  for (const step of steps) {
    step.first = first;
    first += size(step);
    step.uses = [...new Set((step.recipes ?? []).flatMap(cellsOf).map(cell => home[cell]))];
  }
  return home;
}

// Tell each step the tables `shown` with it; a gradient also its `value`, and that value's forward `lines`.
// What has no gradient of its own (exp, mean, std, …) is only on the way: both look through it.
function relate(steps) {
  const place = new Map(steps.map((step, k) => [step.name, k]));
  const gradientOf = name => place.get(`d_${SPLIT[name] ?? name}`);
  const onTheWay = k => !steps[k].given && !isBack(steps[k]) && gradientOf(steps[k].name) === undefined;
  const through = (list, next) => list.flatMap(k => [...(onTheWay(k) ? through(next(k), next) : []), k]);
  const users = k => steps.flatMap((step, j) => (!isBack(step) && step.uses.includes(k) ? [j] : []));
  const inOrder = list => [...new Set(list)].sort((a, b) => a - b);
  for (const step of steps) {
    step.shown = isBack(step) ? step.uses : [...new Set(through(step.uses, k => steps[k].uses))];
    step.value = isBack(step) ? place.get(step.name.slice(2)) : undefined;
    step.lines = step.value === undefined ? [] : inOrder(through(users(step.value), users));
  }
}

// "bites, column 2": where in its step a cell stands, counted from 0 as in the lessons.
function whereabouts(step, cell) {
  const [G, I, J] = step.shape;
  const g = Math.floor(cell / (I * J)), i = Math.floor(cell / J) % I, j = cell % J;
  const head = G > 1 ? `head ${g + 1}` : "";
  const row = step.rows[i] ?? (I > 1 ? `row ${i}` : "");
  const column = J > 1 ? step.columns[j] ?? `column ${j}` : "";
  return [head, row, column].filter(Boolean).join(", ");
}

// ------------------------------------------------------------------------------------------ equations

const escaped = text => text.replace(/[<>&]/g, sign => `&#${sign.charCodeAt(0)};`);

const GREEK = { gamma: "γ", beta: "β" };
const PIECES = /(d?)([A-Za-z]+)(?:_([A-Za-z0-9]+))?|\^\(([^)]*)\)|\^(\w+)|ᵀ|[<>&]/g;

// "dW_1 = hᵀ dz" as HTML: letters lean, what follows _ stands below, what follows ^ above.
function typeset(text) {
  return text.replace(PIECES, (found, d, word, below, up, power) => {
    if (found === "ᵀ") return "<sup>T</sup>";
    if (up ?? power) return `<sup>${typeset(up ?? power)}</sup>`;
    if (!word) return escaped(found);
    const body = d + (below === "hat" ? `${word}\u0302` : GREEK[word] ?? word);
    const lean = word.length === 1 || GREEK[word] ? `<i>${body}</i>` : body;
    return below && below !== "hat" ? `${lean}<sub>${below}</sub>` : lean;
  });
}

// ------------------------------------------------------------------------------------------- the page

let steps, home, original, places; // the trace; the step of each cell; the given numbers as they came
let named; // whether a name may draw other numbers, as for a worksheet
let decimals, numbers; // what every step is rounded to, null for not at all; the number of each cell
let boxes; // from a cell to the boxes on the page that show it
const at = { step: 0, cell: 0 };
const trail = []; // where Backspace leads back to
const show = { arithmetic: true, values: true, predict: false, answered: false };
const page = {}; // the parts of the page by name

const current = () => steps[at.step];
const digits = () => decimals ?? places;
const isHidden = () => show.predict && !show.answered && !current().given;
const write = cell =>
  steps[home[cell]].given ? writtenAsGiven(numbers[cell]) : written(numbers[cell], digits());

export function start(root, data) {
  ({ steps, places, decimals, named } = data);
  original = steps.map(step => step.given?.slice());
  home = count(steps);
  relate(steps);
  numbers = calculate(steps, decimals);
  build(root);
  listen();
  showStep();
  if (!open(addressed())) open(data.at);
  return { at, steps, edit, open, drawName, numbers: () => numbers };
}

// An element with properties; `data` and `aria` become attributes.
function make(tag, { data = {}, aria = {}, ...properties } = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  Object.assign(element.dataset, data);
  for (const [name, value] of Object.entries(aria)) element.setAttribute(`aria-${name}`, value);
  element.append(...children);
  return element;
}

function makeButton(text, action, properties = {}) {
  const button = make("button", { type: "button", textContent: text, ...properties });
  button.addEventListener("click", action);
  return button;
}

function build(root) {
  const live = { live: "polite" }, label = "your prediction";
  const rows = ["belt", "chips", "title", "stage", "sum", "controls"];
  for (const name of rows) page[name] = make("div", { className: name });
  page.root = root;
  page.peek = make("div", { className: "peek", hidden: true });
  page.speaker = make("div", { className: "speaker", role: "status", aria: live });
  page.guess = make("input", { className: "guess", placeholder: "?", inputMode: "decimal", aria: { label } });
  page.verdict = make("span", { className: "verdict", aria: live });
  page.count = make("span", { className: "count" });
  page.reset = makeButton("reset", reset, { hidden: true, title: "the numbers as they came" });
  page.rounding = chooseRounding();
  page.name = makeNameBox();
  page.name.hidden = !named || !globalThis.crypto?.subtle; // browsers keep it from some addresses
  page.buttons = Object.fromEntries(KEYS.map(([name, ...rest]) => [name, makeKeyButton(name, ...rest)]));
  page.belt.innerHTML = conveyor();
  page.controls.append(...Object.values(page.buttons), page.rounding, page.name, page.reset, page.count);
  for (const name of TOGGLES) press(name);
  root.classList.add("npformer-player");
  root.append(make("style", { textContent: CSS }), ...rows.map(name => page[name]), page.peek, page.speaker);
}

function makeKeyButton(name, key, text, says) {
  const title = `${says} (${key})`, aria = { label: says, keyshortcuts: key };
  return makeButton(text, () => actions[name](), { title, aria });
}

function chooseRounding() {
  const text = n => (n ? `${n} decimals` : "exact");
  const words = n => ({ value: n ?? "", textContent: text(n), selected: n === decimals });
  const choices = [null, 1, 2, 3, 4, 5, 6, 7, 8].map(n => make("option", words(n)));
  const title = "round every step before the next uses it";
  const select = make("select", { title, aria: { label: "rounding" } }, ...choices);
  select.addEventListener("change", () => {
    decimals = select.value === "" ? null : Number(select.value);
    recalculate();
    showStep();
  });
  return select;
}

// The conveyor: what its sections are called, what is written on the station, from where to where.
const STATIONS = [
  ["words", "words + positions", 0, 150],
  ["attention", "attention", 206, 336],
  ["first add & norm", "norm", 446, 526],
  ["feed-forward", "feed-forward", 582, 712],
  ["second add & norm", "norm", 822, 902],
  ["loss", "loss", 958, 1028],
];
const GAPS = [
  ["x", 150, 206], ["a", 336, 380], ["s", 402, 446], ["h", 526, 582], ["f", 712, 756], ["t", 778, 822],
  ["y", 902, 958],
];
const SUMS = [[178, 391], [554, 767]]; // where the way past a station leaves, and the + where it comes back

const stationOf = step => STATIONS.findIndex(([words]) => step.section.toLowerCase().includes(words));

function conveyor() {
  const gap = ([name, left, right]) =>
    `<path d="M${left} 49H${right}"/>` +
    `<text class="letter" data-letter="${name}" x="${(left + right) / 2}" y="69"></text>`;
  const sum = ([from, x]) =>
    `<path d="M${from} 49V12H${x}V38"/><circle cx="${x}" cy="49" r="11"/>` +
    `<path d="M${x - 6} 49h12M${x} 43v12"/>`;
  const station = ([words, name, left, right], k) =>
    `<g class="station" data-station="${k}" role="button" tabindex="0" aria-label="${escaped(words)}">` +
    `<rect x="${left}" y="30" width="${right - left}" height="38" rx="6"/>` +
    `<text x="${(left + right) / 2}" y="55">${name}</text></g>`;
  const drawn = [...GAPS.map(gap), ...SUMS.map(sum), ...STATIONS.map(station)].join("");
  return `<svg viewBox="-2 0 1034 76" role="group" aria-label="the block as a conveyor">${drawn}</svg>`;
}

// --------------------------------------------------------------------------------------------- a step

function showStep() {
  const step = current(), value = show.values ? step.value : undefined;
  page.root.classList.toggle("back", isBack(step));
  showStation(step);
  showChips(step);
  showEquation(step);
  boxes = new Map();
  const around = step.shown.filter(k => k !== value).map(k => table(k, "operand"));
  const beside = value === undefined ? [] : [table(value, "value")];
  page.stage.replaceChildren(...around, ...beside, table(at.step, "result"));
  // Long sums get two lines, for the whole step: nothing moves from cell to cell.
  const lengths = (step.recipes ?? []).map(recipe => arithmetic(recipe).length);
  page.sum.classList.toggle("long", Math.max(0, ...lengths) > 100);
  fit();
  showCell();
}

function showStation(step) {
  for (const group of page.belt.querySelectorAll(".station")) {
    const lit = Number(group.dataset.station) === stationOf(step);
    group.classList.toggle("lit", lit);
    group.setAttribute("aria-current", lit ? "step" : "false");
  }
  for (const text of page.belt.querySelectorAll(".letter")) {
    const name = text.dataset.letter, source = SPLIT[name] ?? name;
    text.textContent = isBack(step) ? `d${source}` : name;
    text.classList.toggle("lit", step.name === (isBack(step) ? `d_${source}` : name));
  }
}

function showChips(step) {
  const way = make("b", { textContent: `${isBack(step) ? "◀ backward" : "▶ forward"}: ${step.section}` });
  const chips = steps.flatMap((other, k) => (other.section === step.section ? [chip(other, k)] : []));
  page.chips.replaceChildren(way, ...chips);
}

function chip(step, k) {
  const on = k === at.step, state = on ? "on" : k < at.step ? "done" : "";
  const className = `${state} ${step.given ? "given" : ""}`, innerHTML = typeset(letter(step));
  const properties = { className, innerHTML, title: step.name, aria: { current: on ? "step" : "false" } };
  return makeButton("", () => go(k, 0), properties);
}

function showEquation(step) {
  const lines = step.lines.map(k => typeset(steps[k].equation)).join(" <b>;</b> ");
  const equation = typeset(step.given ? letter(step) : step.equation);
  const name = step.name === letter(step) ? "" : step.name;
  const says = step.given ? "given: click a number to change it" : step.source && `the paper, ${step.source}`;
  page.title.innerHTML =
    `<div class="from">${lines && `forward: ${lines}`}</div>` +
    `<h1>${equation}<small>${[name, says].filter(Boolean).join(" · ")}</small></h1>`;
}

// A step as a figure; the role is "operand", "value" (beside its gradient) or "result".
function table(k, role) {
  const step = steps[k], heads = [...Array(step.shape[0]).keys()];
  const shape = step.axes.map(typeset).join(" × ") || "a number";
  const says = step.given || role === "operand" ? shape : `${shape} · the ${role}`;
  const innerHTML = `<span>${typeset(letter(step))}</span><small>${says}</small>`;
  const caption = make("figcaption", { innerHTML, title: step.name });
  const matrices = make("div", { className: "heads" }, ...heads.map(g => matrix(step, g, role)));
  const figure = make("figure", { className: `${role} ${step.given ? "given" : ""}` }, caption, matrices);
  if (role === "result") figure.style.setProperty("--wide", `${widest(step)}em`);
  return figure;
}

// Room for a step's longest number, so that nothing moves while its boxes are filled.
function widest(step) {
  return 0.42 + 0.53 * Math.max(...[...Array(size(step)).keys()].map(i => write(step.first + i).length));
}

function matrix(step, g, role) {
  const [G, I, J] = step.shape, count = length => [...Array(length).keys()];
  const worded = step.rows.length ? g === 0 : I > 1; // the words stand before the first head only
  const rowWord = i => (worded ? [make("th", { scope: "row", textContent: step.rows[i] ?? i })] : []);
  const columnWord = j => make("th", { scope: "col", textContent: step.columns[j] ?? j });
  const over = make("tr", {}, ...(worded ? [make("th")] : []), ...count(J).map(columnWord));
  const rowOf = i => count(J).map(j => box(step.first + (g * I + i) * J + j, role));
  const row = i => make("tr", {}, ...rowWord(i), ...rowOf(i));
  const title = G > 1 ? [make("caption", { textContent: `head ${g + 1}` })] : [];
  return make("table", {}, ...title, ...(J > 1 ? [over] : []), ...count(I).map(row));
}

function box(cell, role) {
  const element = make("td", { data: { cell, role } });
  if (role === "result" && current().given) element.append(entry(cell));
  else element.textContent = write(cell);
  boxes.set(cell, [...(boxes.get(cell) ?? []), element]);
  return element;
}

// The largest letters with which all tables are on the screen: 28 pixels where that is 1280 × 720.
function fit() {
  const { stage } = page, screen = Math.min(innerHeight / 720, innerWidth / 1280);
  const fits = () => stage.scrollHeight <= stage.clientHeight && stage.scrollWidth <= stage.clientWidth;
  let pixels = Math.round(28 * Math.max(1, screen));
  do stage.style.fontSize = `${pixels}px`; while (!fits() && --pixels > 12);
}

// --------------------------------------------------------------------------------------------- a cell

function showCell() {
  const step = current(), entering = new Set(step.given ? [] : cellsOf(step.recipes[at.cell]));
  for (const [cell, elements] of boxes) {
    for (const element of elements) {
      if (element.dataset.role !== "result") markOperand(element, cell, entering.has(cell));
      else if (!step.given) markResult(element, cell - step.first);
    }
  }
  const cells = step.given ? "" : `, cell ${at.cell + 1} of ${size(step)}`;
  page.count.textContent = `step ${at.step + 1} of ${steps.length}${cells}`;
  showSum(step);
  remember();
}

function markOperand(element, cell, enters) {
  const beside = element.dataset.role === "value" && cell - steps[home[cell]].first === at.cell;
  element.classList.toggle("beside", beside);
  if (element.classList.toggle("enters", enters)) {
    element.setAttribute("role", "button");
    element.tabIndex = 0;
  } else {
    element.removeAttribute("role");
    element.removeAttribute("tabindex");
  }
}

function markResult(element, place) {
  const now = place === at.cell, late = place > at.cell;
  element.className = now ? "now" : late ? "late" : "";
  element.textContent = late ? "\u00a0" : now && isHidden() ? "?" : write(current().first + place);
}

function sumOf(cell) {
  const step = steps[home[cell]], recipe = step.recipes[cell - step.first];
  const whole = arithmetic(recipe), short = shorter(recipe);
  return short ? `${whole} = ${short}` : whole;
}

function showSum(step) {
  if (step.given) {
    page.sum.textContent = "Nobody has to calculate these. Change one, and all after it is calculated anew.";
    return say(`${letter(step)}, given`);
  }
  const place = whereabouts(step, at.cell), cell = step.first + at.cell;
  const sum = isHidden() ? arithmetic(step.recipes[at.cell]) : sumOf(cell); // worked out only when asked
  const line = show.arithmetic ? `${sum} = ` : "";
  const result = isHidden() ? "what will stand here?" : write(cell);
  const name = make("span", { innerHTML: `${typeset(letter(step))}<small> ${escaped(place)}</small> = ` });
  const answer = isHidden() ? question() : [make("b", { textContent: result }), page.verdict];
  page.sum.replaceChildren(name, make("span", { className: "line", textContent: line }), ...answer);
  say(`${letter(step)} ${place}: ${line}${result}`);
}

// A screen reader gets the cell on which the class stays, not each one that it hurries past.
let waiting;
function say(text) {
  clearTimeout(waiting);
  waiting = setTimeout(() => { page.speaker.textContent = spoken(text); }, 250);
}

// --------------------------------------------------------------------------------------- predictions

const question = () => [page.guess, makeButton("check", answer), makeButton("show", reveal), page.verdict];

function answer() {
  if (page.guess.value.trim() === "") return reveal();
  page.verdict.textContent = judge(page.guess.value, numbers[current().first + at.cell], digits());
  if (page.verdict.textContent.startsWith("R")) reveal(); // right, or but for rounding
}

function reveal() {
  show.answered = true;
  showCell();
  page.buttons.cellOn.focus({ preventScroll: true });
}

// --------------------------------------------------------------------------------------------- places

function go(step, cell) {
  const other = step !== at.step;
  Object.assign(at, { step, cell });
  show.answered = false;
  page.guess.value = page.verdict.textContent = "";
  page.peek.hidden = true;
  if (other) showStep();
  else showCell();
}

function move(by) {
  const cell = at.cell + by, step = at.step + by;
  if (cell >= 0 && cell < presses(current())) go(at.step, cell);
  else if (steps[step]) go(step, by > 0 ? 0 : presses(steps[step]) - 1);
}

const between = (low, value, high) => Math.min(Math.max(value, low), high);
const moveStep = by => go(between(0, at.step + by, steps.length - 1), 0);

function moveStation(by) {
  const opens = steps.flatMap((step, k) => (k && steps[k - 1].section === step.section ? [] : [k]));
  const here = opens.findLastIndex(k => k <= at.step);
  go(opens[between(0, here + by, opens.length - 1)], 0);
}

function goToStation(station) { // in the direction in which we are going
  const there = steps.findIndex(step => isBack(step) === isBack(current()) && stationOf(step) === station);
  if (there >= 0) go(there, 0);
}

function goToCell(cell) {
  const step = steps[home[cell]];
  if (step !== current()) trail.push({ ...at });
  go(home[cell], step.given ? 0 : cell - step.first);
  if (step.given) boxes.get(cell)[0].querySelector("input").focus();
}

function open(place) {
  const [name, cell] = place.split(","), k = steps.findIndex(step => step.name === name);
  if (k < 0) return false;
  go(k, between(0, Math.floor(Number(cell)) || 0, presses(steps[k]) - 1));
  return true;
}

const addressed = () => new URLSearchParams(location.hash.slice(1)).get("at") ?? "";

// The page's address follows, so that it can be sent to somebody. A frame in a notebook has none.
let pending;
function remember() {
  clearTimeout(pending);
  if (location.protocol === "about:") return;
  const address = `#at=${current().name}${at.cell ? `,${at.cell}` : ""}`;
  pending = setTimeout(() => history.replaceState(null, "", address), 300);
}

// ----------------------------------------------------------------------------- numbers of one's own

function entry(cell) {
  const step = current(), label = `${letter(step)} ${whereabouts(step, cell - step.first)}`;
  const input = make("input", { value: write(cell), inputMode: "decimal", aria: { label } });
  input.addEventListener("change", () => edit(cell, read(input.value)));
  return input;
}

function edit(cell, value) {
  const step = steps[home[cell]];
  if (Number.isFinite(value)) step.given[cell - step.first] = value;
  recalculate();
}

function reset() {
  steps.forEach((step, k) => { if (step.given) step.given = original[k].slice(); });
  page.name.value = "";
  recalculate();
}

function recalculate() {
  numbers = calculate(steps, decimals);
  page.rounding.value = decimals ?? "";
  page.reset.hidden = steps.every((step, k) => !step.given || String(step.given) === String(original[k]));
  for (const [cell, elements] of boxes) {
    for (const element of elements) {
      const input = element.querySelector("input");
      if (input) input.value = write(cell);
      else element.textContent = write(cell);
    }
  }
  showCell();
}

// ---------------------------------------------------------------------------------- a name's numbers

// These are the numbers of the name's worksheet: worksheet.py draws them in the same way, and says why.
const DRAWN_FROM = [-1, -0.5, 0, 0, 0, 0, 0.5, 1];
const WORKSHEET_DECIMALS = 3;
const FOLDED = { ß: "ss", ς: "σ", ſ: "s" }; // what small letters alone do not make equal

function lettersOf(name) {
  const small = name.toLowerCase().replace(/[ßςſ]/g, letter => FOLDED[letter]);
  return small.normalize("NFC").trim().split(/\s+/).join(" ");
}

function makeNameBox() {
  const title = "the numbers of this name's worksheet (Enter)", aria = { label: "a name" };
  const input = make("input", { className: "name", placeholder: "a name", title, aria });
  input.addEventListener("change", () => drawName(input.value));
  return input;
}

async function drawName(name) {
  const letters = lettersOf(name);
  if (!letters) return reset();
  const numbers = numbersOf(letters);
  do await draw(numbers); while (!isLively());
  decimals = WORKSHEET_DECIMALS;
  recalculate();
  showStep();
  page.name.blur(); // the keys are the player's again
}

// Integers and halves without end, from a hash of the name.
async function* numbersOf(letters) {
  for (let count = 0; ; count++) {
    const text = new TextEncoder().encode(`${letters} ${count}`);
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", text));
    for (const byte of digest) yield DRAWN_FROM[byte % DRAWN_FROM.length];
  }
}

// All that is given but the norms; and for the target whole numbers near the output.
async function draw(numbers) {
  const drawn = steps.filter(step => step.given && !step.name.startsWith("norm") && step.name !== "target");
  for (const step of drawn) step.given = await drawArray(numbers, step);
  const y = valuesOf(calculate(steps, null)).y, target = steps.find(step => step.name === "target");
  target.given = (await drawArray(numbers, target)).map((number, i) => Math.round(y[i] + number) + 0);
}

// A matrix has no row and no column of zeros only.
async function drawArray(numbers, step) {
  const [, I, J] = step.shape, some = (list, keep) => list.some((value, i) => value !== 0 && keep(i));
  const all = (length, test) => [...Array(length).keys()].every(test);
  for (;;) {
    const list = [];
    while (list.length < I * J) list.push((await numbers.next()).value);
    const rows = () => all(I, i => some(list, k => Math.floor(k / J) === i));
    const columns = () => all(J, j => some(list, k => k % J === j));
    if (step.axes.length === 1 || (rows() && columns())) return list;
  }
}

const valuesOf = numbers => // of each step by its name
  Object.fromEntries(steps.map(step => [step.name, numbers.slice(step.first, step.first + size(step))]));

function rowsOf(name, list) {
  const { shape: [, , J] } = steps.find(step => step.name === name);
  return list.flatMap((_, i) => (i % J ? [] : [list.slice(i, i + J)]));
}

// Whether the numbers are worth a pencil: nothing vanishes, nothing grows, rounding does no harm.
function isLively() {
  const exact = calculate(steps, null), pencil = calculate(steps, WORKSHEET_DECIMALS);
  const least = list => Math.min(...list), most = list => Math.max(...list);
  const far = list => most(list.map(Math.abs)), value = valuesOf(exact);
  const z = value["ffn.z"], weights = value["attention.weights"];
  const on = rowsOf("ffn.z", z).map(row => row.filter(number => number > 0).length / row.length);
  const spread = rowsOf("attention.weights", weights).map(row => most(row) - least(row));
  return least(z.map(Math.abs)) >= 0.05 && least(on) > 0 && most(on) < 1
    && least(weights) >= 0.02 && least(spread) >= 0.2
    && least(value["norm_1.variance"]) >= 0.3 && least(value["norm_2.variance"]) >= 0.3
    && far(exact) < 20
    && steps.filter(isBack).every(step => far(value[step.name]) >= 0.05)
    && far(exact.map((number, i) => number - pencil[i])) <= 0.05;
}

// ---------------------------------------------------------------------------------- keys, mouse, touch

const KEYS = [ // an action, its key, what its button shows, what it says
  ["first", "Home", "start", "to the start"],
  ["stationBack", "PageUp", "◀◀", "one station back"],
  ["stepBack", "ArrowUp", "▲ step", "one step back"],
  ["cellBack", "ArrowLeft", "◀ cell", "one cell back"],
  ["cellOn", "ArrowRight", "cell ▶", "one cell on"],
  ["stepOn", "ArrowDown", "step ▼", "one step on"],
  ["stationOn", "PageDown", "▶▶", "one station on"],
  ["last", "End", "end", "to the end"],
  ["whole", "Enter", "all ⏎", "the whole step"],
  ["back", "Backspace", "return ⌫", "back to where you came from"],
  ["predict", "h", "predict H", "hide each result until you ask for it"],
  ["arithmetic", "s", "arithmetic S", "show or hide the arithmetic"],
  ["values", "v", "values V", "show or hide the value beside its gradient"],
];
const TOGGLES = ["predict", "arithmetic", "values"];

const actions = {
  first: () => go(0, 0),
  last: () => go(steps.length - 1, presses(steps.at(-1)) - 1),
  stationBack: () => moveStation(-1),
  stationOn: () => moveStation(1),
  stepBack: () => moveStep(-1),
  stepOn: () => moveStep(1),
  cellBack: () => move(-1),
  cellOn: () => move(1),
  whole: () => go(at.step, presses(current()) - 1),
  back: () => { const { step, cell } = trail.pop() ?? at; go(step, cell); },
  predict: () => toggle("predict"),
  arithmetic: () => toggle("arithmetic"),
  values: () => toggle("values"),
};

const press = name => page.buttons[name].setAttribute("aria-pressed", show[name]);

function toggle(name) {
  show[name] = !show[name];
  show.answered = false;
  press(name);
  showStep();
}

function listen() {
  const { stage, belt, guess } = page, hide = () => { page.peek.hidden = true; };
  document.addEventListener("keydown", onKey);
  guess.addEventListener("keydown", onGuessKey);
  for (const event of ["mouseover", "focusin"]) stage.addEventListener(event, look);
  for (const event of ["mouseleave", "focusout"]) stage.addEventListener(event, hide);
  stage.addEventListener("click", event => {
    const element = cellUnder(event);
    if (element && event.target.tagName !== "INPUT") goToCell(Number(element.dataset.cell));
  });
  belt.addEventListener("click", event => {
    const group = event.target.closest(".station");
    if (group) goToStation(Number(group.dataset.station));
  });
  addEventListener("resize", fit);
  addEventListener("hashchange", () => open(addressed()));
}

function onKey(event) {
  const { target, key } = event, { cell, station } = target.dataset ?? {};
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const typing = target.matches?.("input, select");
  if (typing && key === "Escape") return target.blur();
  if (typing && !["PageUp", "PageDown"].includes(key)) return;
  if (key === "Enter" && cell) return goToCell(Number(cell));
  if (key === "Enter" && station) return goToStation(Number(station));
  if (key === "Enter" && target.matches?.("button")) return; // the button's own
  if (isHidden() && /^[-−0-9.,]$/.test(key)) return page.guess.focus(); // which then gets the key
  const [name] = KEYS.find(([, shortcut]) => shortcut === key || shortcut === key.toLowerCase()) ?? [];
  if (!name) return;
  event.preventDefault();
  actions[name]();
}

function onGuessKey(event) {
  if (event.key === "Enter") answer();
  else if (event.key === "Escape") page.buttons.cellOn.focus();
  else return;
  event.preventDefault();
}

const cellUnder = event => event.target.closest?.("td[data-cell]");

// Where an entering number came from, beside it.
function look(event) {
  const element = cellUnder(event);
  page.peek.hidden = !element?.classList.contains("enters");
  if (page.peek.hidden) return;
  const cell = Number(element.dataset.cell), step = steps[home[cell]];
  const sum = step.given ? "" : `${sumOf(cell)} = ${write(cell)}`;
  const hint = step.given ? "click: go there and change it" : "click: go there; Backspace: return";
  page.peek.innerHTML =
    `<b>${typeset(letter(step))}</b> ${escaped(whereabouts(step, cell - step.first))}` +
    `<div>${typeset(step.equation)}</div><div>${escaped(sum)}</div><small>${hint}</small>`;
  putBeside(page.peek, element);
}

function putBeside(peek, element) {
  const spot = element.getBoundingClientRect(), own = peek.getBoundingClientRect();
  const below = spot.bottom + own.height + 8 < innerHeight;
  peek.style.left = `${between(4, spot.left, Math.max(4, innerWidth - own.width - 4))}px`;
  peek.style.top = `${below ? spot.bottom + 6 : Math.max(4, spot.top - own.height - 6)}px`;
}

// -------------------------------------------------------------------------------------- how it looks

// Forward is blue and backward red, and each also says so in words; the numbers set the size of the stage.
const CSS = `
:root { color-scheme: light dark }
.npformer-player { --ink: #1a1a1a; --quiet: #595959; --faint: #d0d0d0; --paper: #fff; --soft: #f2f2f2;
  --way: #005a8d; --enters: #ffe680; --enters-edge: #8a6d00; --on: #fff; margin: 0; height: 100vh;
  height: 100dvh; overflow: hidden; box-sizing: border-box; padding: 6px 12px; display: grid;
  grid-template-rows: auto auto auto minmax(0, 1fr) auto auto; gap: 4px;
  font: 16px/1.35 "Inter", "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif;
  color: var(--ink); background: var(--paper); font-variant-numeric: tabular-nums }
.npformer-player.back { --way: #a83c00 }
@media (prefers-color-scheme: dark) {
  .npformer-player { --ink: #f0f0f0; --quiet: #b5b5b5; --faint: #555; --paper: #161616; --soft: #262626;
    --way: #6cc0f5; --enters: #5a4a00; --enters-edge: #ffd84d; --on: #000 }
  .npformer-player.back { --way: #ff9a66 }
}
.npformer-player * { box-sizing: border-box }
.npformer-player i { font-family: "STIX Two Text", "Cambria", "Liberation Serif", Georgia, serif }
.belt svg { display: block; width: 100%; max-height: 10vh; margin: auto }
.belt path, .belt circle { fill: none; stroke: var(--quiet); stroke-width: 1.5 }
.belt rect { fill: var(--soft); stroke: var(--quiet) }
.belt text { text-anchor: middle; fill: var(--ink); font-size: 17px }
.belt .letter { font: italic 19px "STIX Two Text", "Cambria", "Liberation Serif", Georgia, serif;
  fill: var(--quiet) }
.belt .letter.lit { fill: var(--way); font-weight: bold; text-decoration: underline }
.belt .station { cursor: pointer }
.belt .station.lit rect { fill: var(--way); stroke: var(--way) }
.belt .station.lit text { fill: var(--on); font-weight: bold }
.chips { display: flex; flex-wrap: wrap; gap: 4px; align-items: center }
.chips b { color: var(--way); margin-right: .5em }
.npformer-player button, .npformer-player select { font: inherit; color: inherit; background: var(--soft);
  border: 1px solid var(--quiet); border-radius: 5px; padding: .1em .5em; cursor: pointer }
.npformer-player button.on { background: var(--way); color: var(--on); border-color: var(--way);
  font-weight: bold }
.npformer-player button.done { border-color: var(--way) }
.npformer-player button.given { border-style: dashed }
.npformer-player button[aria-pressed=true] { box-shadow: inset 0 -3px var(--way) }
.npformer-player :focus-visible { outline: 3px solid var(--way); outline-offset: 1px }
.title .from { color: var(--quiet); font-size: 17px; line-height: 1.2 }
.title .from:empty { display: none }
.title h1 { font-size: 26px; font-weight: 500; line-height: 1.25; margin: 0 }
.title h1 small { font-size: .62em; color: var(--quiet); margin-left: 1em }
.count { color: var(--quiet); margin-left: auto; font-size: 1.15em }
.npformer-player sub, .npformer-player sup { font-size: .68em; line-height: 0 }
.stage { display: flex; flex-wrap: wrap; gap: .35em .9em; align-content: flex-start; align-items: flex-start;
  overflow: auto; min-height: 0; padding-top: .2em }
.stage figure { margin: 0 }
.stage .value { font-size: .75em }
.stage figcaption { font-size: .62em; line-height: 1.3; color: var(--quiet); white-space: nowrap }
.stage figcaption span { font-size: 1.35em; color: var(--ink) }
.stage figcaption small { font-size: .85em; margin-left: .6em }
.stage .result figcaption span { color: var(--way); font-weight: bold }
.stage .heads { display: flex; gap: .5em }
.stage table { border-collapse: collapse }
.stage caption { font-size: .5em; color: var(--quiet); text-align: left; line-height: 1.1 }
.stage th { font-size: .5em; font-weight: 400; color: var(--quiet); padding: 0 .5em; line-height: 1.2 }
.stage th[scope=row] { text-align: right }
.stage td { border: 1px solid var(--faint); padding: 0 .2em; text-align: right;
  min-width: var(--wide, 2em); height: 1.2em; line-height: 1.2; cursor: pointer; background: var(--paper) }
.stage .given td { background: var(--soft) }
.stage td.enters { background: var(--enters); font-weight: 600;
  box-shadow: inset 0 0 0 2px var(--enters-edge) }
.stage td.now { font-weight: 700; box-shadow: inset 0 0 0 4px var(--way) }
.stage td.beside { box-shadow: inset 0 -4px var(--way) }
.stage td.late { background: repeating-linear-gradient(45deg, var(--soft) 0 5px, var(--paper) 5px 10px) }
.stage td input { font: inherit; color: inherit; width: 3.2em; text-align: right; background: none;
  border: 0 }
.sum { min-height: 2em; padding: .25em .6em; background: var(--soft); border-left: 5px solid var(--way);
  font-size: 22px; line-height: 1.3 }
.sum.long { font-size: 19px; min-height: 3.4em }
.sum small { color: var(--quiet) }
.sum b { font-size: 1.15em; color: var(--way) }
.sum .guess { font: inherit; width: 6em; margin-right: .3em }
.controls .name { font: inherit; width: 7em }
.sum button { margin-left: .3em }
.sum .verdict { margin-left: .6em; font-weight: bold }
.controls { display: flex; flex-wrap: wrap; gap: 4px; font-size: 14px }
.peek { position: fixed; max-width: 44em; padding: .4em .7em; background: var(--ink); color: var(--paper);
  border-radius: 6px; font-size: 18px; pointer-events: none; z-index: 1 }
.peek[hidden] { display: none }
.speaker { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
  white-space: nowrap }
@media (pointer: coarse) { .npformer-player button { min-height: 40px; min-width: 40px } }
@media (prefers-reduced-motion: no-preference) {
  .belt rect, .stage td { transition: background-color .12s }
}
@media (min-width: 1800px) and (min-height: 950px) {
  .npformer-player { font-size: 21px }
  .title h1 { font-size: 38px } .title .from { font-size: 25px }
  .sum { font-size: 33px } .sum.long { font-size: 28px }
  .controls { font-size: 19px } .peek { font-size: 26px }
}
@media (max-width: 700px) { .sum, .title h1 { font-size: 18px } }
`;
