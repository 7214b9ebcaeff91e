// The player: one encoder block, cell by cell, forward and back. One module, no library, no request.
//
// The page gives `start` the numbers that are given and a recipe for every other cell (recipes.py). A cell is
// a number counted through all steps; a recipe is a cell, ["number", value, text] or [operation, recipe, …].
// In order of appearance: numbers, arithmetic as text, what belongs to a step, drawing, and what keys do.

// ---------------------------------------------------------------------------------------------- numbers

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

export function evaluate(recipe, numbers) {
  if (typeof recipe === "number") return numbers[recipe];
  const [operation, ...parts] = recipe;
  if (operation === "number") return parts[0];
  return OPERATIONS[operation](...parts.map(part => evaluate(part, numbers)));
}

// As people round on paper: a half goes away from zero. The millionth is for 0.4205, which binary has a little low.
export function round(value, decimals) {
  if (decimals === null) return value;
  const units = Math.floor(Math.abs(value) * 10 ** decimals + (0.5 + 1e-6));
  return (Math.sign(value) * units) / 10 ** decimals + 0; // + 0: no -0
}

// Every number of the trace, in order: a recipe only looks back.
export function calculate(steps, decimals) {
  const numbers = [];
  for (const step of steps) {
    if (step.given) numbers.push(...step.given);
    else for (const recipe of step.recipes) numbers.push(round(evaluate(recipe, numbers), decimals));
  }
  return numbers;
}

const minus = text => text.replace("-", "−"); // the sign as wide as a plus

function written(value, places) {
  if (!Number.isFinite(value)) return "no number";
  const text = value.toFixed(places);
  return minus(Number(text) === 0 ? text.replace("-", "") : text);
}

const writtenShort = value => minus(String(Number(value.toPrecision(6)))); // a given number as it is

function read(text) {
  const plain = text.trim().replace("−", "-").replace(",", ".");
  return plain === "" ? NaN : Number(plain);
}

// "right", "rounding" or "look again": what a student's number is, where `value` stands with so many places.
export function judge(text, value, places) {
  const guess = read(text);
  if (!Number.isFinite(guess)) return "Type a number.";
  const unit = 10 ** -places, far = Math.abs(guess - Number(value.toFixed(places)));
  const kept = 10 ** -(text.split(/[.,]/)[1] ?? "").trim().length; // the worth of its last digit
  if (far < unit / 2) return "Right.";
  if (far <= Math.max(3.01 * unit, kept / 2 + unit / 2)) return "Rounding: right but for the last digits.";
  if (Math.abs(guess + value) < unit && value !== 0) return "Look again: the sign.";
  return "Look again.";
}

// ------------------------------------------------------------------------------------ arithmetic as text

// `write(cell)` is a cell's number. A negative number stands in brackets unless it comes first or alone.
export function arithmetic(recipe, write, place = "first") {
  const inside = (part, where) => arithmetic(part, write, where);
  const bracket = (text, ...places) => (places.includes(place) ? `(${text})` : text);
  if (typeof recipe === "number") {
    const text = write(recipe);
    return text.startsWith("−") && place !== "first" ? `(${text})` : text;
  }
  const [operation, a, b] = recipe;
  switch (operation) {
    case "number": return b;
    case "+": {
      const terms = recipe.slice(1).map((part, i) => inside(part, i ? "term" : "first"));
      return bracket(terms.join(" + "), "taken", "factor", "below");
    }
    case "-": return bracket(`${inside(a, "first")} − ${inside(b, "taken")}`, "taken", "factor", "below");
    case "*": return bracket(`${inside(a, "factor")} · ${inside(b, "factor")}`, "below");
    case "/": return bracket(`${inside(a, "factor")} / ${inside(b, "below")}`, "below");
    case "square": return `${inside(a, "factor")}²`;
    case "sqrt": return `√(${inside(a, "first")})`;
    case "relu": return `max(0, ${inside(a, "first")})`;
    case "gate": return `max(0, z) lets it through where z > 0: z = ${inside(b, "first")}, so it is`;
    default: return `${operation}(${inside(a, "first")})`; // exp, sin, cos
  }
}

// The same with each sum of a quotient or product worked out: (3 · 1 + 2 · 4) / √2 becomes 11 / √2.
function shorter(recipe, write, numbers, places) {
  if (typeof recipe === "number" || !["/", "*", "sqrt"].includes(recipe[0])) return "";
  const worked = part => {
    if (typeof part === "number" || part[0] === "number") return part;
    return ["number", 0, bracketed(written(evaluate(part, numbers), places))];
  };
  const bracketed = text => (text.startsWith("−") && recipe[0] === "*" ? `(${text})` : text);
  const short = [recipe[0], ...recipe.slice(1).map(worked)];
  const text = arithmetic(short, write);
  return text === arithmetic(recipe, write) ? "" : text;
}

const spoken = text =>
  text.replaceAll("·", "times").replaceAll("/", "divided by").replaceAll("−", "minus ").replaceAll("²", " squared")
    .replaceAll("√", "the root of ").replaceAll("=", "equals");

// ------------------------------------------------------------------------------- what belongs to a step

const size = step => step.shape.reduce((product, length) => product * length);
const isBack = step => step.name.startsWith("d_");

// The letter of a step stands left in its equation; a given one has only its name.
const letter = step => /^(\w+) ?[=([]/.exec(step.equation)?.[1] ?? step.name.split(".").pop();

function cellsOf(recipe) {
  if (typeof recipe === "number") return [recipe];
  return recipe[0] === "number" ? [] : recipe.slice(1).flatMap(cellsOf);
}

// Adds to each step: `first`, its first cell; `uses`, the steps that enter it; and by their rules
// `shown`, the tables to draw; `value`, what it is the gradient of; `lines`, the forward lines it comes from.
function relate(steps) {
  const place = new Map(steps.map((step, k) => [step.name, k]));
  const home = steps.flatMap((step, k) => Array(size(step)).fill(k)); // the step of each cell
  let first = 0;
  for (const step of steps) {
    step.first = first;
    first += size(step);
    step.uses = [...new Set((step.recipes ?? []).flatMap(cellsOf).map(cell => home[cell]))];
  }
  // What has no gradient of its own (exp, mean, std, …) is only on the way: look through it.
  const onTheWay = k => !steps[k].given && !isBack(steps[k]) && !place.has("d_" + steps[k].name);
  const through = (list, next) => list.flatMap(k => [...(onTheWay(k) ? through(next(k), next) : []), k]);
  const users = k => steps.flatMap((step, j) => (!isBack(step) && step.uses.includes(k) ? [j] : []));
  for (const step of steps) {
    step.shown = isBack(step) ? step.uses : [...new Set(through(step.uses, k => steps[k].uses))];
    step.value = isBack(step) ? place.get(step.name.slice(2)) : undefined;
    step.lines = step.value === undefined ? [] : [...new Set(through(users(step.value), users))].sort((a, b) => a - b);
  }
  return home;
}

// "bites, column 2": where in its step a cell stands, as a person says it; counted from 0 as in the lessons.
function whereabouts(step, cell) {
  const [, I, J] = step.shape, g = Math.floor(cell / (I * J)), i = Math.floor(cell / J) % I, j = cell % J;
  const head = step.shape[0] > 1 ? `head ${g + 1}` : "";
  const row = step.rows[i] ?? (I > 1 ? `row ${i}` : "");
  const column = J > 1 ? step.columns[j] ?? `column ${j}` : "";
  return [head, row, column].filter(Boolean).join(", ");
}

// -------------------------------------------------------------------------------------------- equations

const GREEK = { gamma: "γ", beta: "β" };

// "dW_1 = hᵀ dz" as HTML: letters in italics, what follows _ below, what follows ^ above.
export function typeset(text) {
  return text.replace(/(d?)([A-Za-z]+)(?:_([A-Za-z0-9]+))?|\^\(([^)]*)\)|\^(\w+)|ᵀ|[<>&]/g, (found, d, word, below, up, power) => {
    if (found === "ᵀ") return "<sup>T</sup>";
    if (up ?? power) return `<sup>${typeset(up ?? power)}</sup>`;
    if (!word) return `&#${found.charCodeAt(0)};`;
    if (!below && !GREEK[word] && (d + word).length > 1 && !(d && word.length === 1)) return d + word; // a word
    const body = d + (below === "hat" ? `${word}\u0302` : GREEK[word] ?? word);
    const lean = word.length === 1 || GREEK[word] ? "i" : "span";
    return `<${lean}>${body}</${lean}>${below && below !== "hat" ? `<sub>${below}</sub>` : ""}`;
  });
}

// --------------------------------------------------------------------------------------------- drawing

function make(tag, properties = {}, ...children) {
  const { data = {}, aria = {}, ...rest } = properties;
  const element = Object.assign(document.createElement(tag), rest);
  Object.assign(element.dataset, data);
  for (const [name, value] of Object.entries(aria)) element.setAttribute(name === "role" ? name : `aria-${name}`, value);
  element.append(...children);
  return element;
}

const html = (tag, className, content) => make(tag, { className, innerHTML: content });

// The conveyor: [what its sections are called, what is written on it, left, right], and the letters between.
const STATIONS = [
  ["words", "words + positions", 0, 150],
  ["attention", "attention", 206, 336],
  ["first add", "norm", 446, 526],
  ["feed-forward", "feed-forward", 582, 712],
  ["second add", "norm", 822, 902],
  ["loss", "loss", 958, 1028],
];
const LETTERS = [["x", 178], ["a", 358], ["s", 424], ["h", 554], ["f", 734], ["t", 800], ["y", 930]];
const GRADIENT_OF = { a: "s", f: "t" }; // at a sum the gradient goes both ways as it is
const SUMS = [[391, 178, "x"], [767, 554, "h"]]; // the place of a +, and where the way past the station leaves

const stationOf = section => STATIONS.findIndex(([words]) => section.toLowerCase().includes(words));

function conveyor() {
  const box = ([, name, left, right], k) =>
    `<g class="station" data-station="${k}" role="button" tabindex="0" aria-label="${name}">` +
    `<rect x="${left}" y="30" width="${right - left}" height="38" rx="6"/>` +
    `<text x="${(left + right) / 2}" y="55">${name}</text></g>`;
  const line = (from, to) => `<path d="M${from} 49H${to}"/>`;
  const sums = SUMS.map(([x, from]) =>
    `<path d="M${from} 49V12H${x}V38"/><circle cx="${x}" cy="49" r="11"/><path d="M${x - 6} 49h12M${x} 43v12"/>`);
  const gaps = [[150, 206], [336, 380], [402, 446], [526, 582], [712, 756], [778, 822], [902, 958]];
  const letters = LETTERS.map(([name, x]) => `<text class="letter" data-letter="${name}" x="${x}" y="69">${name}</text>`);
  return `<svg viewBox="-2 0 1034 76" aria-label="The block as a conveyor">` +
    gaps.map(([from, to]) => line(from, to)).join("") + sums.join("") + letters.join("") + STATIONS.map(box).join("") + "</svg>";
}

const KEYS = [ // name of the action, its keys, what its button shows, what it says
  ["first", "Home", "start", "to the start"],
  ["stationBack", "PageUp", "◀◀ station", "one station back"],
  ["stepBack", "ArrowUp", "▲ step", "one step back"],
  ["cellBack", "ArrowLeft", "◀ cell", "one cell back"],
  ["cellOn", "ArrowRight", "cell ▶", "one cell on"],
  ["stepOn", "ArrowDown", "step ▼", "one step on"],
  ["stationOn", "PageDown", "station ▶▶", "one station on"],
  ["last", "End", "end", "to the end"],
  ["whole", "Enter", "all ⏎", "the whole step"],
  ["back", "Backspace", "return ⌫", "back to where you came from"],
  ["hide", "h", "predict H", "hide each result until you ask"],
  ["arithmetic", "s", "arithmetic S", "show or hide the arithmetic"],
  ["values", "v", "values V", "show or hide the value beside its gradient"],
];

// ------------------------------------------------------------------------------------------- the player

export function start(root, data) {
  const { steps, places } = data, home = relate(steps), original = steps.map(step => step.given?.slice());
  const at = { step: 0, cell: 0 }, history = [];
  const show = { arithmetic: true, values: true, predict: false, answered: false };
  let decimals = data.decimals, numbers = calculate(steps, decimals);
  let boxes = new Map(); // from a cell to the table boxes that show it

  const digits = () => decimals ?? places;
  const write = cell => (steps[home[cell]].given ? writtenShort : value => written(value, digits()))(numbers[cell]);
  const presses = step => (step.given ? 1 : size(step)); // given numbers come all at once
  const current = () => steps[at.step];
  const isHidden = () => show.predict && !show.answered && !current().given;

  // --- the page, drawn once

  const parts = Object.fromEntries(
    ["belt", "chips", "title", "stage", "sum", "controls"].map(name => [name, make("div", { className: name })]));
  const peek = make("div", { className: "peek", hidden: true });
  const speaker = make("div", { className: "speaker", aria: { role: "status", live: "polite" } });
  const guess = make("input", { className: "guess", placeholder: "?", size: 7, inputMode: "decimal", aria: { label: "Your prediction" } });
  const verdict = make("span", { className: "verdict", aria: { live: "polite" } });
  const count = make("span", { className: "count" });
  const buttons = {};
  root.classList.add("npformer-player");
  root.append(make("style", { textContent: CSS }), ...Object.values(parts), peek, speaker);
  parts.belt.innerHTML = conveyor();
  drawControls();

  function drawControls() {
    for (const [name, key, label, says] of KEYS) {
      const button = make("button", { type: "button", textContent: label, title: `${says} (${key})`, aria: { label: says, keyshortcuts: key } });
      button.addEventListener("click", () => actions[name]());
      buttons[name] = button;
    }
    const choices = [null, 1, 2, 3, 4, 5, 6, 7, 8].map(n =>
      make("option", { value: n ?? "", textContent: n === null ? "exact" : `${n} decimals`, selected: n === decimals }));
    const rounding = make("select", { title: "round every step before the next uses it", aria: { label: "rounding" } }, ...choices);
    rounding.addEventListener("change", () => { decimals = rounding.value === "" ? null : Number(rounding.value); recalculate(); showStep(); });
    buttons.reset = make("button", { type: "button", className: "reset", textContent: "reset numbers", hidden: true });
    buttons.reset.addEventListener("click", reset);
    parts.controls.append(...KEYS.map(([name]) => buttons[name]), rounding, buttons.reset, count);
  }

  // --- one step: the conveyor, the tables, the equation

  function showStep() {
    const step = current(), back = isBack(step);
    root.classList.toggle("back", back);
    showStation(step, back);
    showChips(step);
    const lines = step.lines.map(k => typeset(steps[k].equation)).join(" <span class='then'>;</span> ");
    const equation = step.given ? `${typeset(letter(step))} <small>given: click a number to change it</small>` : typeset(step.equation);
    const source = `<small>${step.name}${step.source ? ` · the paper, ${step.source}` : ""}</small>`;
    parts.title.innerHTML =
      `<div class="from">${lines ? `forward: ${lines}` : ""}</div>` +
      `<h1>${equation} ${source}</h1>`;
    boxes = new Map();
    const value = show.values ? step.value : undefined;
    const around = step.shown.filter(k => k !== value && k !== at.step);
    parts.stage.replaceChildren(...around.map(k => table(k, "operand")), ...(value === undefined ? [] : [table(value, "value")]), table(at.step, "result"));
    // Long sums get two lines, for the whole step, so that nothing moves from cell to cell.
    const length = Math.max(0, ...(step.recipes ?? []).map(recipe => arithmetic(recipe, write).length));
    parts.sum.classList.toggle("long", length > 100);
    fit();
    showCell();
  }

  function showStation(step, back) {
    const station = stationOf(step.section);
    for (const group of parts.belt.querySelectorAll(".station")) {
      const lit = Number(group.dataset.station) === station;
      group.classList.toggle("lit", lit);
      group.toggleAttribute("aria-current", lit);
    }
    for (const text of parts.belt.querySelectorAll(".letter")) {
      const name = text.dataset.letter, shown = back ? "d" + (GRADIENT_OF[name] ?? name) : name;
      text.textContent = shown;
      text.classList.toggle("lit", (back ? "d_" + (GRADIENT_OF[name] ?? name) : name) === step.name);
    }
  }

  function showChips(step) {
    const way = make("b", { textContent: (isBack(step) ? "◀ backward: " : "▶ forward: ") + step.section });
    const chips = steps.flatMap((other, k) => (other.section === step.section ? [chip(other, k)] : []));
    parts.chips.replaceChildren(way, ...chips);
  }

  function chip(step, k) {
    const state = (k === at.step ? "on " : k < at.step ? "done " : "") + (step.given ? "given" : "");
    const button = make("button", { type: "button", className: state, innerHTML: typeset(letter(step)), title: step.name });
    if (k === at.step) button.setAttribute("aria-current", "step");
    button.addEventListener("click", () => go(k, 0));
    return button;
  }

  function table(k, role) {
    const step = steps[k], heads = [...Array(step.shape[0]).keys()];
    const says = [step.axes.map(typeset).join(" × ") || "a number"];
    if (!step.given && role !== "operand") says.push(`the ${role}`);
    const caption = make("figcaption", { title: step.name }, html("span", "letter", typeset(letter(step))), html("small", "", says.join(" · ")));
    return make("figure", { className: `${role}${step.given ? " given" : ""}` }, caption, make("div", { className: "heads" }, ...heads.map(g => matrix(k, g, role))));
  }

  function matrix(k, g, role) {
    const step = steps[k], [G, I, J] = step.shape, body = make("table");
    if (G > 1) body.append(make("caption", { textContent: `head ${g + 1}` }));
    const named = step.rows.length > 0 && g === 0, counted = !step.rows.length && I > 1;
    const over = make("tr", {}, ...(named || counted ? [make("th")] : []));
    for (let j = 0; j < J && J > 1; j++) over.append(make("th", { scope: "col", textContent: step.columns[j] ?? j }));
    if (J > 1) body.append(over);
    for (let i = 0; i < I; i++) {
      const row = make("tr");
      if (named || counted) row.append(make("th", { scope: "row", textContent: step.rows[i] ?? i }));
      for (let j = 0; j < J; j++) row.append(box(step.first + (g * I + i) * J + j, role));
      body.append(row);
    }
    if (role === "result") body.style.setProperty("--wide", `${widest(step)}em`);
    return body;
  }

  // Room for the longest number of a step, so that nothing moves while it is filled.
  const widest = step => 0.42 + 0.53 * Math.max(...[...Array(size(step)).keys()].map(i => write(step.first + i).length));

  function box(cell, role) {
    const element = make("td", { data: { cell, role } });
    if (role === "result" && current().given) element.append(entry(cell));
    else element.textContent = write(cell);
    boxes.set(cell, [...(boxes.get(cell) ?? []), element]);
    return element;
  }

  function entry(cell) {
    const step = current(), label = `${letter(step)}, ${whereabouts(step, cell - step.first)}`;
    const input = make("input", { value: write(cell), size: 4, inputMode: "decimal", aria: { label } });
    input.addEventListener("change", () => edit(cell, read(input.value)));
    return input;
  }

  // The largest letters with which everything is on the screen: 28 pixels where it is 1280 × 720.
  function fit() {
    const stage = parts.stage, largest = Math.round(Math.max(1, Math.min(innerHeight / 720, innerWidth / 1280)) * 28);
    let [low, high] = [12, largest + 1];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      stage.style.fontSize = `${middle}px`;
      const fits = stage.scrollHeight <= stage.clientHeight && stage.scrollWidth <= stage.clientWidth;
      [low, high] = fits ? [middle, high] : [low, middle];
    }
    stage.style.fontSize = `${low}px`;
  }

  // --- one cell: what enters it, what is filled, its arithmetic

  function showCell() {
    const step = current(), now = step.first + at.cell;
    const entering = new Set(step.given ? [] : cellsOf(step.recipes[at.cell]));
    for (const [cell, elements] of boxes) for (const element of elements) mark(element, cell, now, entering);
    const cells = step.given ? "" : `, cell ${at.cell + 1} of ${size(step)}`;
    count.textContent = `step ${at.step + 1} of ${steps.length}${cells}`;
    showSum(step, now);
    remember();
  }

  function mark(element, cell, now, entering) {
    const result = element.dataset.role === "result" && !current().given;
    const late = result && cell > now, asked = result && cell === now && isHidden();
    const enters = !result && entering.has(cell);
    const partner = element.dataset.role === "value" && cell - steps[home[cell]].first === at.cell;
    element.className = [enters && "enters", result && cell === now && "now", late && "late", partner && "partner"].filter(Boolean).join(" ");
    if (result) element.textContent = late ? "\u00a0" : asked ? "?" : write(cell);
    if (enters) Object.assign(element, { tabIndex: 0 }).setAttribute("role", "button");
    else { element.removeAttribute("tabindex"); element.removeAttribute("role"); }
  }

  function sumOf(cell) {
    const step = steps[home[cell]], recipe = step.recipes?.[cell - step.first];
    if (recipe === undefined) return { whole: "given", short: "" };
    return { whole: arithmetic(recipe, write), short: shorter(recipe, write, numbers, digits()) };
  }

  function showSum(step, now) {
    const place = whereabouts(step, at.cell), name = `${typeset(letter(step))}${place ? `<small> ${place}</small>` : ""}`;
    if (step.given) {
      parts.sum.replaceChildren(html("span", "quiet", "Nobody has to calculate these. Change one, and everything after it is calculated anew."));
      return say(`${letter(step)}, given`);
    }
    const { whole, short } = sumOf(now), hidden = isHidden(), result = hidden ? "?" : write(now);
    const line = show.arithmetic ? `${whole}${short && !hidden ? ` = ${short}` : ""} = ` : "";
    parts.sum.replaceChildren(html("span", "name", `${name} = `), make("span", { className: "line", textContent: line }));
    if (show.predict) parts.sum.append(...question(hidden, result));
    else parts.sum.append(make("b", { textContent: result }));
    say(`${letter(step)}${place ? `, ${place}` : ""}: ${line}${hidden ? "what will stand here?" : result}`);
  }

  // Predict: a box to type in until the result has been asked for.
  function question(hidden, result) {
    if (!hidden) return [make("b", { textContent: result }), verdict];
    const check = make("button", { type: "button", textContent: "check" }), ask = make("button", { type: "button", textContent: "show" });
    check.addEventListener("click", answer);
    ask.addEventListener("click", reveal);
    return [guess, check, ask, verdict];
  }

  function answer() {
    const value = numbers[current().first + at.cell];
    if (guess.value.trim() === "") return reveal();
    verdict.textContent = judge(guess.value, value, digits());
    if (verdict.textContent.startsWith("R")) reveal(); // right, or but for rounding
  }

  function reveal() {
    show.answered = true;
    showCell();
    buttons.cellOn.focus({ preventScroll: true });
  }

  guess.addEventListener("keydown", event => {
    if (event.key === "Enter") answer();
    else if (event.key === "Escape") buttons.cellOn.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  // A screen reader gets the cell on which the class stays, not each one that it hurries past.
  let waiting;
  function say(text) {
    clearTimeout(waiting);
    waiting = setTimeout(() => { speaker.textContent = spoken(text); }, 250);
  }

  // --- where it stands

  function go(step, cell, keep = false) {
    if (keep) history.push({ ...at });
    const other = step !== at.step;
    Object.assign(at, { step, cell });
    Object.assign(show, { answered: false });
    guess.value = verdict.textContent = "";
    peek.hidden = true;
    if (other) showStep();
    else showCell();
  }

  function move(by) {
    const cell = at.cell + by, k = at.step + by;
    if (cell >= 0 && cell < presses(current())) go(at.step, cell);
    else if (steps[k]) go(k, by > 0 ? 0 : presses(steps[k]) - 1);
  }

  const moveStep = by => go(Math.min(Math.max(at.step + by, 0), steps.length - 1), 0);

  function moveStation(by) {
    const opens = steps.flatMap((step, k) => (k && steps[k - 1].section === step.section ? [] : [k]));
    const here = opens.findLastIndex(k => k <= at.step);
    go(opens[Math.min(Math.max(here + by, 0), opens.length - 1)], 0);
  }

  function goToStation(station) { // in the direction in which we are going
    const back = isBack(current());
    const there = steps.findIndex(step => isBack(step) === back && stationOf(step.section) === station);
    if (there >= 0) go(there, 0);
  }

  const goToCell = cell => go(home[cell], steps[home[cell]].given ? 0 : cell - steps[home[cell]].first, home[cell] !== at.step);

  // The page's address follows, so that it can be sent to somebody. A frame in a notebook has no address.
  let pending;
  function remember() {
    clearTimeout(pending);
    if (location.protocol === "about:") return;
    const place = `#at=${current().name}${at.cell ? `,${at.cell}` : ""}`;
    pending = setTimeout(() => window.history.replaceState(null, "", place), 300);
  }

  function open(place) {
    const [name, cell] = place.split(","), k = steps.findIndex(step => step.name === name);
    if (k < 0) return false;
    go(k, Math.min(Math.max(Number(cell) || 0, 0), presses(steps[k]) - 1));
    return true;
  }

  const addressed = () => new URLSearchParams(location.hash.slice(1)).get("at") ?? "";

  // --- numbers of one's own

  function edit(cell, value) {
    const step = steps[home[cell]];
    if (Number.isFinite(value)) step.given[cell - step.first] = value;
    recalculate();
  }

  function recalculate() {
    numbers = calculate(steps, decimals);
    buttons.reset.hidden = steps.every((step, k) => !step.given || step.given.every((value, i) => value === original[k][i]));
    for (const [cell, elements] of boxes) {
      for (const element of elements) {
        const input = element.querySelector("input");
        if (input) input.value = write(cell);
        else element.textContent = write(cell);
      }
    }
    showCell();
  }

  function reset() {
    steps.forEach((step, k) => { if (step.given) step.given = original[k].slice(); });
    recalculate();
  }

  // --- keys, mouse, touch

  const toggle = name => { show[name] = !show[name]; buttons[name === "predict" ? "hide" : name].setAttribute("aria-pressed", show[name]); };
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
    back: () => { const { step, cell } = history.pop() ?? at; go(step, cell); },
    hide: () => { toggle("predict"); show.answered = false; showCell(); },
    arithmetic: () => { toggle("arithmetic"); showCell(); },
    values: () => { toggle("values"); showStep(); },
  };

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { target, key } = event, typing = target.matches?.("input, select");
    if (typing && key === "Escape") return target.blur();
    if (typing && !["PageUp", "PageDown"].includes(key)) return;
    if (key === "Enter" && target.dataset?.cell) return goToCell(Number(target.dataset.cell));
    if (key === "Enter" && target.dataset?.station) return goToStation(Number(target.dataset.station));
    if (key === "Enter" && target.matches?.("button")) return; // the button's own
    if (isHidden() && /^[-−0-9.,]$/.test(key)) return guess.focus(); // the key then types
    const action = KEYS.find(([, shortcut]) => shortcut === key || shortcut === key.toLowerCase())?.[0];
    if (!action) return;
    event.preventDefault();
    actions[action]();
  }

  function showPeek(element) {
    const cell = Number(element.dataset.cell), step = steps[home[cell]], { whole } = sumOf(cell);
    const place = whereabouts(step, cell - step.first);
    peek.innerHTML = `<b>${typeset(letter(step))}</b> ${place}<div>${typeset(step.equation)}</div>`;
    if (!step.given) peek.append(make("div", { className: "line", textContent: `${whole} = ${write(cell)}` }));
    peek.append(make("small", { textContent: step.given ? "click: go there and change it" : "click: go there; Backspace: return" }));
    peek.hidden = false;
    const at = element.getBoundingClientRect(), own = peek.getBoundingClientRect();
    const above = at.bottom + own.height + 8 > innerHeight;
    peek.style.left = `${Math.max(4, Math.min(at.left, innerWidth - own.width - 4))}px`;
    peek.style.top = `${above ? Math.max(4, at.top - own.height - 6) : at.bottom + 6}px`;
  }

  const cellAt = event => event.target.closest?.("td[data-cell]");
  const look = event => { const element = cellAt(event); peek.hidden = true; if (element?.classList.contains("enters")) showPeek(element); };
  parts.stage.addEventListener("mouseover", look);
  parts.stage.addEventListener("focusin", look);
  parts.stage.addEventListener("mouseleave", () => { peek.hidden = true; });
  parts.stage.addEventListener("focusout", () => { peek.hidden = true; });
  parts.stage.addEventListener("click", event => {
    const element = cellAt(event);
    if (element && event.target.tagName !== "INPUT") goToCell(Number(element.dataset.cell));
  });
  parts.belt.addEventListener("click", event => {
    const group = event.target.closest(".station");
    if (group) goToStation(Number(group.dataset.station));
  });
  document.addEventListener("keydown", onKey);
  addEventListener("resize", () => fit());
  addEventListener("hashchange", () => open(addressed()));

  for (const name of ["arithmetic", "values"]) buttons[name].setAttribute("aria-pressed", true);
  buttons.hide.setAttribute("aria-pressed", false);
  showStep();
  if (!open(addressed())) open(data.at);
  return { at, steps, edit, open, numbers: () => numbers };
}

// ------------------------------------------------------------------------------------------------ looks

// Forward is blue and backward red, and each also says so in words; the numbers set the size of the stage.
const CSS = `
:root { color-scheme: light dark }
.npformer-player { --ink: #1a1a1a; --quiet: #595959; --faint: #d0d0d0; --paper: #fff; --soft: #f2f2f2;
  --way: #005a8d; --enters: #ffe680; --enters-edge: #8a6d00; --on: #fff;
  margin: 0; height: 100vh; height: 100dvh; overflow: hidden; box-sizing: border-box; padding: 6px 12px;
  display: grid; grid-template-rows: auto auto auto minmax(0, 1fr) auto auto; gap: 4px;
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
.belt .letter { font: italic 19px "STIX Two Text", "Cambria", "Liberation Serif", Georgia, serif; fill: var(--quiet) }
.belt .letter.lit { fill: var(--way); font-weight: bold; text-decoration: underline }
.belt .station { cursor: pointer }
.belt .station.lit rect { fill: var(--way); stroke: var(--way) }
.belt .station.lit text { fill: var(--on); font-weight: bold }
.chips { display: flex; flex-wrap: wrap; gap: 4px; align-items: center }
.chips b { color: var(--way); margin-right: .5em }
.npformer-player button, .npformer-player select { font: inherit; color: inherit; background: var(--soft);
  border: 1px solid var(--quiet); border-radius: 5px; padding: .1em .5em; cursor: pointer }
.npformer-player button.on { background: var(--way); color: var(--on); border-color: var(--way); font-weight: bold }
.npformer-player button.done { border-color: var(--way) }
.npformer-player button.given { border-style: dashed }
.npformer-player button[aria-pressed=true] { box-shadow: inset 0 -3px var(--way) }
.npformer-player :focus-visible { outline: 3px solid var(--way); outline-offset: 1px }
.title .from { color: var(--quiet); font-size: 17px; line-height: 1.2 }
.title .from:empty { display: none }
.title h1 { font-size: 26px; font-weight: 500; line-height: 1.25; margin: 0 }
.title h1 small { font-size: 16px; color: var(--quiet); margin-left: 1em }
.count { color: var(--quiet); margin-left: auto; font-size: 1.15em }
.npformer-player sub, .npformer-player sup { font-size: .68em; line-height: 0 }
.stage { display: flex; flex-wrap: wrap; gap: .35em .9em; align-content: flex-start; align-items: flex-start; overflow: auto; min-height: 0; padding-top: .2em }
.stage figure { margin: 0 }
.stage .value { font-size: .75em }
.stage figcaption { font-size: .62em; line-height: 1.3; color: var(--quiet); white-space: nowrap }
.stage figcaption .letter { font-size: 1.35em; color: var(--ink) }
.stage figcaption small { font-size: .85em; margin-left: .6em }
.stage .result figcaption .letter { color: var(--way); font-weight: bold }
.stage .heads { display: flex; gap: .5em }
.stage table { border-collapse: collapse }
.stage caption { font-size: .5em; color: var(--quiet); text-align: left; line-height: 1.1 }
.stage th { font-size: .5em; font-weight: 400; color: var(--quiet); padding: 0 .5em; line-height: 1.2 }
.stage th[scope=row] { text-align: right }
.stage td { border: 1px solid var(--faint); padding: .04em .2em; text-align: right; min-width: var(--wide, 2em); height: 1.25em;
  line-height: 1.22; cursor: pointer; background: var(--paper) }
.stage .given td { background: var(--soft) }
.stage td.enters { background: var(--enters); font-weight: 600; box-shadow: inset 0 0 0 2px var(--enters-edge) }
.stage td.now { font-weight: 700; box-shadow: inset 0 0 0 4px var(--way) }
.stage td.partner { box-shadow: inset 0 -4px var(--way) }
.stage td.late { background: repeating-linear-gradient(45deg, var(--soft) 0 5px, var(--paper) 5px 10px) }
.stage td input { font: inherit; color: inherit; width: 3.2em; text-align: right; background: none; border: 0 }
.sum { min-height: 2em; padding: .25em .6em; background: var(--soft); border-left: 5px solid var(--way); font-size: 22px; line-height: 1.3 }
.sum.long { font-size: 19px; min-height: 3.2em }
.sum .quiet, .sum small { color: var(--quiet) }
.sum b { font-size: 1.15em; color: var(--way) }
.sum .guess { font: inherit; width: 6em; margin-right: .3em }
.sum button { margin-left: .3em }
.sum .verdict { margin-left: .6em; font-weight: bold }
.controls { display: flex; flex-wrap: wrap; gap: 4px; font-size: 14px }
.peek { position: fixed; max-width: 44em; padding: .4em .7em; background: var(--ink); color: var(--paper); border-radius: 6px;
  font-size: 18px; pointer-events: none; z-index: 1 }
.peek[hidden] { display: none }
.speaker { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap }
@media (pointer: coarse) { .npformer-player button { min-height: 40px; min-width: 40px } }
@media (prefers-reduced-motion: no-preference) {
  .belt rect, .stage td { transition: background-color .12s }
}
@media (min-width: 1800px) and (min-height: 950px) {
  .npformer-player { font-size: 21px }
  .title h1 { font-size: 38px } .title .from { font-size: 25px }
  .sum { font-size: 33px } .sum.long { font-size: 28px } .controls { font-size: 19px } .peek { font-size: 26px }
}
@media (max-width: 700px) { .sum, .title h1 { font-size: 18px } }
`;
