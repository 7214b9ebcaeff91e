"""Recipes: how the number of a cell is calculated from other cells, as plain data.

A cell is one number of the worked example. All cells of all steps are numbered from 0, in the order of the
calculation. A **recipe** describes one calculated cell. It has one of three forms:

    7                       the value of cell 7
    ("number", 2.0, "2")    a number that is part of the equation, and the text that shows it
    ("/", 7, 3)             an operation of `OPERATIONS` on other recipes: cell 7 divided by cell 3

Python and the page of the player evaluate the same recipes. The page can also show the arithmetic of a cell.

A **Term** holds one recipe. Arithmetic on terms builds a longer recipe instead of calculating a number. The
equations of the worked example are ordinary NumPy code, such as `x @ W + b`, where the arrays contain terms.
NumPy then adds and multiplies the terms, and every entry of the result holds the recipe of its cell:

>>> x, W = Term(0), Term(1)
>>> (x * W + Term(2)).recipe
('+', ('*', 0, 1), 2)

Recipes of the same **form** differ only in their cells. `group_by_form` collects them, so that `evaluate`
calculates all cells of one form in one NumPy call.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from npformer.backend import Array

Recipe: TypeAlias = Any  # a cell number, or (operation, recipe, …); mypy cannot describe this recursive type


def _add_all(*summands: Any) -> Any:
    return sum(summands)


def _maximum_of_all(*values: Any) -> Any:
    return np.max(values, axis=0)


def _relu(z: Any) -> Any:
    return np.maximum(0.0, z)


def _relu_gradient(d_hidden: Any, z: Any) -> Any:
    """Return the gradient of z in hidden = ReLU(z): `d_hidden` where z > 0, else 0."""
    return np.where(z > 0, d_hidden, 0.0)


def _normal_cdf(z: Any) -> Any:
    """Return Φ(z), the cumulative distribution function of the standard normal distribution."""
    return (1 + np.vectorize(math.erf)(z / math.sqrt(2))) / 2


def _normal_density(z: Any) -> Any:
    """Return φ(z), the derivative of Φ."""
    return np.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def _masked_score() -> float:
    """Return the score of a key that the mask hides."""
    return -math.inf


OPERATIONS: dict[str, Callable[..., Any]] = {  # each operation works on arrays, entry by entry
    "+": _add_all,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "power": np.power,
    "square": np.square,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "sin": np.sin,
    "cos": np.cos,
    "max": _maximum_of_all,
    "relu": _relu,
    "gate": _relu_gradient,
    "share": _normal_cdf,
    "bell": _normal_density,
    "hidden": _masked_score,
}


class Term:
    """A recipe with the operators + - * /, each of which returns a term with a longer recipe.

    >>> (Term(3) / Term(4)).recipe
    ('/', 3, 4)
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def __add__(self, other: "Term") -> "Term":
        return Term(("+", *_summands_of(self.recipe), *_summands_of(other.recipe)))

    def __sub__(self, other: "Term") -> "Term":
        return Term(("-", self.recipe, other.recipe))

    def __mul__(self, other: "Term") -> "Term":
        return Term(("*", self.recipe, other.recipe))

    def __truediv__(self, other: "Term") -> "Term":
        return Term(("/", self.recipe, other.recipe))


def _summands_of(recipe: Recipe) -> tuple[Recipe, ...]:
    """Return the summands of a recipe that is a sum. Any other recipe counts as one summand."""
    is_sum = isinstance(recipe, tuple) and recipe[0] == "+"
    return tuple(recipe[1:]) if is_sum else (recipe,)


def make_number(value: float, text: str | None = None) -> Term:
    """Return the term of a number in an equation. The page of the player shows the number as `text`."""
    if text is None:
        text = f"{value:g}"
    return Term(("number", float(value), text))


def make_constant(value: float) -> Array:
    """Return a 0-d array of one term, so that `make_constant(1) - array` uses NumPy's subtraction."""
    return np.array(make_number(value), dtype=object)


def make_root(d: int) -> Term:
    """Return the term of √d. The page of the player shows this number as "√d", not as decimals."""
    return make_number(math.sqrt(d), f"√{d}")


def make_terms(make_term: Callable[[Any], Term], numbers: Array) -> Array:
    """Apply `make_term` to each number, and return an array of terms of the same shape."""
    terms = np.empty(numbers.shape, dtype=object)
    for index, value in np.ndenumerate(numbers):
        terms[index] = make_term(value.item())
    return terms


def apply_entrywise(operation: str, *arrays: Array) -> Array:
    """Broadcast the arrays, and return the terms that apply the operation entry by entry."""

    def apply(*entries: Term) -> Term:
        return Term((operation, *(entry.recipe for entry in entries)))

    return np.vectorize(apply, otypes=[object])(*arrays)


def row_mean(a: Array) -> Array:
    """Return the mean of each row: (..., 1)."""
    return a.sum(axis=-1, keepdims=True) / make_number(a.shape[-1])


def row_max(a: Array) -> Array:
    """Return the largest number of each row: (..., 1)."""
    columns = np.moveaxis(a, -1, 0)
    return apply_entrywise("max", *columns)[..., None]


class RecipeGroup(NamedTuple):
    """The cells of one step that are calculated by recipes of one form."""

    form: Recipe  # the recipe with "" instead of every cell number: ("+", "", "")
    indices: Array  # (n,), the index in the step of each of the n cells with this form
    inputs: Array  # (n, k), the k cell numbers in the recipe of each of the n cells


def group_by_form(recipes: Sequence[Recipe]) -> list[RecipeGroup]:
    """Return the recipes of a step, grouped by their form.

    >>> group_by_form([("+", 5, 9), ("+", 6, 9)])
    [RecipeGroup(form=('+', '', ''), indices=array([0, 1]), inputs=array([[5, 9],
           [6, 9]]))]
    """
    indices: dict[Recipe, list[int]] = {}
    inputs: dict[Recipe, list[list[int]]] = {}
    for index, recipe in enumerate(recipes):
        cells: list[int] = []
        form = _remove_cells(recipe, cells)
        indices.setdefault(form, []).append(index)
        inputs.setdefault(form, []).append(cells)
    return [
        RecipeGroup(form, np.array(indices[form], dtype=np.intp), np.array(inputs[form], dtype=np.intp))
        for form in indices
    ]


def _remove_cells(recipe: Recipe, cells: list[int]) -> Recipe:
    """Return a recipe with "" instead of its cell numbers, and append these numbers to `cells`, in order."""
    if isinstance(recipe, int):
        cells.append(recipe)
        return ""
    if recipe[0] == "number":
        return recipe
    operation, *operands = recipe
    return (operation, *(_remove_cells(operand, cells) for operand in operands))


def evaluate(form: Recipe, inputs: Iterator[Any]) -> Any:
    """Return the value of a form. Each "" is replaced by the next input, a number or an array of numbers.

    >>> evaluate(("/", ("+", "", ""), ("number", 2.0, "2")), iter([np.array([3.0, 1.0]), 5.0]))
    array([4., 3.])
    """
    if form == "":
        return next(inputs)
    operation, *operands = form
    if operation == "number":
        value, _ = operands
        return value
    return OPERATIONS[operation](*[evaluate(operand, inputs) for operand in operands])


def pack_recipes(recipes: Sequence[Recipe]) -> dict[str, Any]:
    """Return the recipes of a step in compact form, for the page of the player.

    The result holds the forms, the form of each cell (only if there are several forms) and the cell numbers.
    Recipes of neighbouring cells use neighbouring cells. So each cell number is replaced by its difference
    from the cell number at the same index in the previous recipe. Most of these differences have one digit.

    >>> pack_recipes([("+", 5, 9), ("+", 6, 9)])
    {'forms': [('+', '', '')], 'cells': [5, 9, 1, 0]}
    """
    groups = group_by_form(recipes)
    form_of_cell: dict[int, int] = {}
    inputs_of_cell: dict[int, list[int]] = {}
    for form_number, group in enumerate(groups):
        for index, cells in zip(group.indices.tolist(), group.inputs.tolist(), strict=True):
            form_of_cell[index] = form_number
            inputs_of_cell[index] = cells
    packet: dict[str, Any] = {"forms": [group.form for group in groups]}
    if len(groups) > 1:
        packet["form"] = [form_of_cell[index] for index in range(len(recipes))]
    packet["cells"] = _differences([inputs_of_cell[index] for index in range(len(recipes))])
    return packet


def _differences(recipes: Sequence[Sequence[int]]) -> list[int]:
    """Return each cell number minus the cell number at the same index of the previous recipe, or minus 0."""
    previous = [0] * max(len(cells) for cells in recipes)
    differences = []
    for cells in recipes:
        for position, cell in enumerate(cells):
            differences.append(cell - previous[position])
            previous[position] = cell
    return differences
