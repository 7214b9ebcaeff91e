// Write numbers and recipes as text and equations as HTML, and judge the number that a student typed.

import { OPERATIONS, evaluate } from "./arithmetic.js";

const minus = text => text.replace("-", "−"); // the minus sign, which is as wide as a plus

export function written(value, places) {
  if (value === -Infinity) return "−∞";
  if (!Number.isFinite(value)) return "no number";
  if (Math.abs(value) >= 1e6) return minus(value.toExponential(1));
  const text = value.toFixed(places);
  return minus(Number(text) === 0 ? text.replace("-", "") : text);
}

// Write a given number in full, and a number that training changed with three decimals.
export function writtenAsGiven(value) {
  const text = String(Number(value.toPrecision(6)));
  return Number.isFinite(value) && text.replace("-", "").length < 7 ? minus(text) : written(value, 3);
}

export function read(text) {
  const plain = text.trim().replace("−", "-").replace(",", ".");
  return plain === "" ? NaN : Number(plain);
}

// Return whether a student's number for `value`, which has so many decimals, is right, and the feedback.
export function judge(text, value, places) {
  const guess = read(text);
  if (!Number.isFinite(guess)) return [false, "Type a number."];
  const unit = 10 ** -places, far = Math.abs(guess - Number(value.toFixed(places)));
  const typed = 10 ** -(text.split(/[.,]/)[1] ?? "").trim().length; // the value of its last digit
  if (far < unit / 2) return [true, "Right."];
  const isRounded = far <= Math.max(3.01 * unit, typed / 2 + unit / 2);
  if (isRounded) return [true, "Rounding: right but for the last digits."];
  if (value !== 0 && Math.abs(guess + value) < unit) return [false, "Look again: the sign."];
  return [false, "Look again."];
}

/**
 * The recipe with its numbers, which `write` writes. A negative one stands in brackets unless it comes first.
 * `place` is where this part stands: it decides about brackets.
 */
export function arithmetic(recipe, write, place = "first") {
  if (typeof recipe === "number") {
    const text = write(recipe);
    return text.startsWith("−") && place !== "first" ? `(${text})` : text;
  }
  const [operation, ...parts] = recipe;
  if (operation === "number") return parts[1];
  const [, form, brackets = []] = OPERATIONS[operation];
  const written = (typeof form === "string" ? form : form(parts.length))
    .replace(/first|term|taken|factor|below/g, where => arithmetic(parts.shift(), write, where));
  return brackets.includes(place) ? `(${written})` : written;
}

// Return the arithmetic with calculated sums, if there are any: (3 · 1 + 2 · 4) / √2 becomes 11 / √2.
export function shorter(recipe, write, numbers, places) {
  if (typeof recipe === "number" || !["/", "*", "sqrt"].includes(recipe[0])) return "";
  const workedOut = part => {
    if (typeof part === "number" || part[0] === "number") return part;
    const text = written(evaluate(part, numbers), places);
    return ["number", 0, recipe[0] === "*" && text.startsWith("−") ? `(${text})` : text];
  };
  const text = arithmetic([recipe[0], ...recipe.slice(1).map(workedOut)], write);
  return text === arithmetic(recipe, write) ? "" : text;
}

const SPOKEN = {
  "·": "times", "/": "divided by", "−": "minus", "²": "squared", "√": "the root of", "=": "equals",
  "^": "to the power of", "′": "new", "∞": "infinity",
};
export function spoken(text) {
  const words = text.replace(/[·/−²√=^′∞]/g, sign => ` ${SPOKEN[sign]} `);
  return words.replace(/ +/g, " ").replace(/ ?([),]) ?/g, "$1 ").replace(/ ?\( ?/g, " (").trim();
}

export const escaped = text => text.replace(/[<>&"]/g, sign => `&#${sign.charCodeAt(0)};`);

const GREEK = { gamma: "γ", beta: "β", phi: "φ" };
const PIECES = /(d?)([A-Za-z]+)(?:_([A-Za-z0-9]+))?|\^\(([^)]*)\)|\^(\w+)|ᵀ|[<>&]/g;

// Return an equation as HTML: letters are italic, _ starts a subscript and ^ a superscript.
export function typeset(text) {
  return text.replace(PIECES, (found, d, word, below, up, power) => {
    if (found === "ᵀ") return "<sup>T</sup>";
    if (up ?? power) return `<sup>${typeset(up ?? power)}</sup>`;
    if (!word) return escaped(found);
    const body = d + (below === "hat" ? `${word}\u0302` : GREEK[word] ?? word);
    const lean = word.length === 1 || GREEK[word] ? `<i>${body}</i>` : body;
    return below && below !== "hat" ? `${lean}<sub>${below}</sub>` : lean;
  });
}
