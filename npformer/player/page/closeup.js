// The cell from close by: its row and its column side by side, the products of each pair, and the result.

import { evaluate } from "./arithmetic.js";
import { page } from "./page.js";
import { current, digits, isHidden, state, write } from "./state.js";
import { letter, whereabouts } from "./trace.js";
import { arithmetic, escaped, shorter, typeset, written } from "./words.js";

/**
 * Return the terms of a sum of products: two cells or one cell each. undefined for any other recipe.
 * @returns {number[][] | undefined}
 */
export function termsOf(recipe) {
  if (!Array.isArray(recipe)) return undefined;
  const [operation, ...parts] = recipe, isCell = part => typeof part === "number";
  const isPair = part => part[0] === "*" && part.slice(1).every(isCell);
  if (isPair(recipe)) return [parts];
  if (operation === "/" && parts[1][0] === "number") return termsOf(parts[0]);
  if (operation !== "+" || !parts.every(part => isCell(part) || isPair(part))) return undefined;
  return parts.map(part => (isCell(part) ? [part] : part.slice(1)));
}

export const productOf = cells => written(evaluate(["*", ...cells], state.numbers), digits());

export function drawCloseup() {
  const step = current(), recipe = step.recipes[state.at.cell], terms = termsOf(recipe);
  const place = escaped(whereabouts(step, state.at.cell)), cell = step.first + state.at.cell;
  const short = terms && shorter(recipe, write, state.numbers, digits());
  const sum = terms ? short || terms.map(termInSum).join(" + ") : arithmetic(recipe, write);
  const line = isHidden() || !sum ? "" : `<p>${escaped(sum)}</p>`;
  const result = `<b data-result data-cell="${cell}">${isHidden() ? "?" : write(cell)}</b>`;
  page.closeup.innerHTML =
    `<p>${typeset(letter(step))} <small>${place}</small></p>${terms ? pairs(terms) : ""}${line}` +
    `<p class="equals">= ${result}</p>`;
  let pixels = Math.round(innerHeight / 11);
  const { closeup } = page, fits = () => closeup.scrollWidth <= closeup.clientWidth
    && closeup.scrollHeight <= closeup.clientHeight;
  do closeup.style.fontSize = `${pixels}px`; while (!fits() && --pixels > 12);
}

function termInSum(cells, i) {
  const text = cells.length === 2 ? productOf(cells) : write(cells[0]);
  return i && text.startsWith("−") ? `(${text})` : text;
}

function pairs(terms) {
  const box = cell => `<td class="enters" data-cell="${cell}">${write(cell)}</td>`, none = "<td></td>";
  const line = (says, draw) => `<tr><th scope="row">${says}</th>${terms.map(draw).join("")}</tr>`;
  const product = cells => `<td>${isHidden() ? "?" : productOf(cells)}</td>`;
  const isPair = term => term.length === 2;
  return "<table>" +
    line("the row", term => (isPair(term) ? box(term[0]) : none)) +
    line("the column", term => (isPair(term) ? box(term[1]) : none)) +
    line("the terms", term => (isPair(term) ? product(term) : box(term[0]))) + "</table>";
}
