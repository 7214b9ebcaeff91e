"""The recipe of a cell: how its number comes from the numbers of cells that stand before it, as plain data.

A recipe is a cell's number, counted through all steps of the trace in order; or ("number", value, how it is
written); or (operation, recipe, …) with the operations of OPERATIONS. So Python and the page of the player
evaluate one and the same list, and the page can also show how a number comes about.

The equations of the worked example are written over arrays of `Term`: NumPy's own `@`, `sum` and `/` then
write the recipe of each cell.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from npformer.backend import Array

Recipe: TypeAlias = Any  # int, or (operation, recipe, …); mypy has no word for such a tree

OPERATIONS: dict[str, Callable[..., Any]] = {  # on arrays, entry by entry
    "+": lambda *terms: sum(terms),
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "power": np.power,
    "square": np.square,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "sin": np.sin,
    "cos": np.cos,
    "max": lambda *terms: np.max(terms, axis=0),
    "relu": lambda z: np.maximum(0.0, z),
    "gate": lambda d, z: np.where(z > 0, d, 0.0),  # what ReLU lets through on the way back
    "share": lambda z: (1 + np.vectorize(math.erf)(z / math.sqrt(2))) / 2,  # Φ(z), of a normal distribution
    "bell": lambda z: np.exp(-z * z / 2) / math.sqrt(2 * math.pi),  # φ(z), the slope of Φ
    "hidden": lambda: -math.inf,  # the score of a word that a mask hides
}


class Term:
    """A recipe that + − · / make longer; NumPy calls them for each entry of an array of terms."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def __add__(self, other: "Term") -> "Term":
        return Term(("+", *_summands(self.recipe), *_summands(other.recipe)))

    def __sub__(self, other: "Term") -> "Term":
        return Term(("-", self.recipe, other.recipe))

    def __mul__(self, other: "Term") -> "Term":
        return Term(("*", self.recipe, other.recipe))

    def __truediv__(self, other: "Term") -> "Term":
        return Term(("/", self.recipe, other.recipe))


def _summands(recipe: Recipe) -> tuple[Recipe, ...]:
    """a + b + c is one sum of three, not a sum of a sum."""
    return tuple(recipe[1:]) if isinstance(recipe, tuple) and recipe[0] == "+" else (recipe,)


def number(value: float, text: str | None = None) -> Term:
    """A number that stands in the equation itself, and how it is written there."""
    return Term(("number", float(value), f"{value:g}" if text is None else text))


def constant(value: float) -> Array:
    """A number that can stand before an array."""
    return np.array(number(value), dtype=object)


def root(d: int) -> Term:
    """√d, written so."""
    return number(math.sqrt(d), f"√{d}")


def terms(make: Callable[[Any], Term], numbers: Array) -> Array:
    """An array of terms, one made of each number."""
    made = np.empty(numbers.shape, dtype=object)
    for place, value in np.ndenumerate(numbers):
        made[place] = make(value.item())
    return made


def each(operation: str, *arrays: Array) -> Array:
    """An operation on each entry of arrays, which may broadcast."""

    def one(*entries: Term) -> Term:
        return Term((operation, *(entry.recipe for entry in entries)))

    return np.vectorize(one, otypes=[object])(*arrays)


def row_mean(a: Array) -> Array:
    """The mean of each row: (..., 1)."""
    return a.sum(axis=-1, keepdims=True) / number(a.shape[-1])


def row_max(a: Array) -> Array:
    """The largest number of each row: (..., 1)."""
    return each("max", *np.moveaxis(a, -1, 0))[..., None]


class Recipes(NamedTuple):
    """The cells of a step that are found in one way: a recipe's form, with "" for a cell, and the cells."""

    form: Recipe
    places: Array  # (n,), which cells of the step
    enter: Array  # (n, k), the cells that enter each


def by_form(recipes: Sequence[Recipe]) -> list[Recipes]:
    """The recipes of a step sorted by their forms: those of one form are evaluated together.

    >>> by_form([("+", 5, 9), ("+", 6, 9)])
    [Recipes(form=('+', '', ''), places=array([0, 1]), enter=array([[5, 9],
           [6, 9]]))]
    """
    found: dict[Recipe, list[tuple[int, list[int]]]] = {}
    for place, recipe in enumerate(recipes):
        cells: list[int] = []
        found.setdefault(_form(recipe, cells), []).append((place, cells))
    return [
        Recipes(form, *(np.array(part, dtype=np.intp) for part in zip(*pairs, strict=True)))
        for form, pairs in found.items()
    ]


def _form(recipe: Recipe, cells: list[int]) -> Recipe:
    if isinstance(recipe, int):
        cells.append(recipe)
        return ""
    if recipe[0] == "number":
        return recipe
    return (recipe[0], *(_form(part, cells) for part in recipe[1:]))


def evaluate(form: Recipe, columns: Iterator[Any]) -> Any:
    """What a form comes to, given in order what stands in its cells: numbers, or arrays of them.

    >>> evaluate(("/", ("+", "", ""), ("number", 2.0, "2")), iter([np.array([3.0, 1.0]), 5.0]))
    array([4., 3.])
    """
    if form == "":
        return next(columns)
    operation, *parts = form
    if operation == "number":
        return parts[0]
    return OPERATIONS[operation](*[evaluate(part, columns) for part in parts])


def packed(recipes: Sequence[Recipe]) -> dict[str, Any]:
    """The recipes of a step in few letters: its forms, the form of each cell, and the cells that enter.

    Neighbouring cells are found from neighbouring cells. So what is sent is each one's distance to the one
    that stood at its place in the recipe before.

    >>> packed([("+", 5, 9), ("+", 6, 9)])
    {'forms': [('+', '', '')], 'cells': [5, 9, 1, 0]}
    """
    groups = by_form(recipes)
    which = sorted(
        (place, i, row) for i, group in enumerate(groups) for row, place in enumerate(group.places)
    )
    distances, before = [], [0] * max(group.enter.shape[-1] for group in groups)
    for _, i, row in which:
        cells = groups[i].enter[row].tolist()
        distances += [cell - last for cell, last in zip(cells, before, strict=False)]
        before[: len(cells)] = cells
    several = {"form": [i for _, i, _ in which]} if len(groups) > 1 else {}
    return {"forms": [group.form for group in groups], **several, "cells": distances}
