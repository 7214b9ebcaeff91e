"""The recipe of every cell of the worked example: an expression over cells that stand before it.

A recipe is plain data. A cell is its number, counted through all steps of the trace in order; a constant is
("number", value, how it is written); everything else is (operation, recipe, …), with the operations of
OPERATIONS. So a page can show how a number comes about, and calculate it anew when another one changes.

The equations below are matrix equations over arrays of such expressions: NumPy's own `@` and `sum` write
the recipe of each cell. They share nothing with the worked example's arithmetic, and `check_recipes`
compares the two cell by cell.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from npformer.backend import Array
from npformer.teaching.worked_example import GIVEN, Example, Trace

Recipe: TypeAlias = Any  # int, or (operation, recipe, …); mypy has no word for such a tree
Cells: TypeAlias = Mapping[str, Array]  # a step's name, and an array of its shape with a _Term in each place

OPERATIONS: dict[str, Callable[..., float]] = {
    "+": lambda *terms: sum(terms),
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "square": lambda a: a * a,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "sin": math.sin,
    "cos": math.cos,
    "relu": lambda z: max(0.0, z),
    "gate": lambda d, z: d if z > 0 else 0.0,  # what ReLU lets through on the way back
}

TOLERANCE = 1e-12  # between a recipe and an exact trace; a rounded one may be half of its last digit off


class _Term:
    """An expression that + − · / make longer; NumPy calls them for each entry of an array of terms."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def __add__(self, other: "_Term") -> "_Term":
        return _Term(("+", *_summands(self.recipe), *_summands(other.recipe)))

    def __sub__(self, other: "_Term") -> "_Term":
        return _Term(("-", self.recipe, other.recipe))

    def __mul__(self, other: "_Term") -> "_Term":
        return _Term(("*", self.recipe, other.recipe))

    def __truediv__(self, other: "_Term") -> "_Term":
        return _Term(("/", self.recipe, other.recipe))


def _summands(recipe: Recipe) -> tuple[Recipe, ...]:
    """a + b + c is one sum of three, not a sum of a sum."""
    return tuple(recipe[1:]) if isinstance(recipe, tuple) and recipe[0] == "+" else (recipe,)


def _number(value: float, text: str | None = None) -> _Term:
    return _Term(("number", value, f"{value:g}" if text is None else text))


def _root(d: int) -> _Term:
    return _number(math.sqrt(d), f"√{d}")


def _each(operation: str, *arrays: Array) -> Array:
    """An operation on each entry of arrays, which may broadcast."""

    def one(*terms: _Term) -> _Term:
        return _Term((operation, *(term.recipe for term in terms)))

    return np.vectorize(one, otypes=[object])(*arrays)


def recipes(trace: Trace) -> dict[str, list[Recipe]]:
    """The recipes of every calculated step's cells, in the order of `step.value.ravel()`.

    >>> from npformer.teaching.worked_example import worked_example
    >>> recipes(worked_example())["d_y"][0]  # the first cell of y minus the first cell of target
    ('-', 460, 472)
    """
    cells, example = _cells(trace), trace.example
    made = {
        **_words_and_positions(cells, example),
        **_attention(cells, example.config.n_heads),
        **_attention_back(cells, example.config.n_heads),
        **_ffn(cells),
        **_norm(cells, "norm_1", ("x", "a", "s", "h"), example.config.eps),
        **_norm(cells, "norm_2", ("h", "f", "t", "y"), example.config.eps),
        **_loss(cells),
    }
    return {
        step.name: [term.recipe for term in np.ravel(made[step.name])]
        for step in trace.steps
        if step.equation != GIVEN
    }


def _cells(trace: Trace) -> dict[str, Array]:
    """Each step as an array of its cells."""
    cells, first = {}, 0
    for step in trace.steps:
        numbers = np.arange(first, first + step.value.size).reshape(step.shape)
        cells[step.name] = _each_number(_Term, numbers)
        first += step.value.size
    return cells


def _each_number(make: Callable[[Any], _Term], numbers: Array) -> Array:
    terms = np.empty(numbers.shape, dtype=object)
    for place, number in np.ndenumerate(numbers):
        terms[place] = make(number.item())
    return terms


# The equations, each step in a line


def _words_and_positions(c: Cells, example: Example) -> dict[str, Array]:
    n, d_model = c["x"].shape
    root = _root(d_model)
    pos = _each_number(_number, np.arange(n)[:, None])
    power = _each_number(
        lambda two_i: _number(10000 ** (two_i / d_model), f"10000^({two_i}/{d_model})"),
        np.arange(0, d_model, 2),
    )
    waves = np.stack([_each("sin", c["angles"]), _each("cos", c["angles"])], axis=-1)
    dE = [_sum_of(c["d_x"][example.ids == word], root) for word in range(len(c["E"]))]
    return {
        "embedding": c["E"][example.ids] * root,
        "angles": pos / power,
        "table": waves.reshape(n, d_model),
        "x": c["embedding"] + c["table"],
        "d_E": np.stack(dE),
    }


def _sum_of(rows: Array, factor: _Term) -> Array:
    """factor · the sum of the rows; a word that has none gets zeros that say why."""
    absent = np.full(rows.shape[1:], _number(0.0, "0, since this word does not stand in the sentence"))
    return rows.sum(axis=0) * factor if len(rows) else absent


def _cut(a: Array, n_heads: int) -> Array:
    return a.reshape(len(a), n_heads, -1).swapaxes(0, 1)  # (n_heads, n, d_k)


def _joined(heads: Array) -> Array:
    return heads.swapaxes(0, 1).reshape(heads.shape[1], -1)  # (n, d_model)


def _attention(c: Cells, n_heads: int) -> dict[str, Array]:
    Q, K, V = (_cut(c[f"attention.{name}"], n_heads) for name in "QKV")
    exp, weights, heads = (c[f"attention.{name}"] for name in ("exp", "weights", "heads"))
    return {
        **{f"attention.{name}": c["x"] @ c[f"attention.W_{name}"] for name in "QKV"},
        "attention.scores": Q @ K.mT / _root(Q.shape[-1]),
        "attention.exp": _each("exp", c["attention.scores"]),
        "attention.weights": exp / exp.sum(axis=-1, keepdims=True),
        "attention.heads": weights @ V,
        "a": _joined(heads) @ c["attention.W_O"],
    }


def _attention_back(c: Cells, n_heads: int) -> dict[str, Array]:
    Q, K, V = (_cut(c[f"attention.{name}"], n_heads) for name in "QKV")
    weights, heads, W_O = (c[f"attention.{name}"] for name in ("weights", "heads", "W_O"))
    dweights, dheads, dscores = (c[f"d_attention.{name}"] for name in ("weights", "heads", "scores"))
    ds, root = c["d_s"], _root(Q.shape[-1])
    through = [c[f"d_attention.{name}"] @ c[f"attention.W_{name}"].T for name in "QKV"]
    return {
        "d_attention.W_O": _joined(heads).T @ ds,
        "d_attention.heads": _cut(ds @ W_O.T, n_heads),
        "d_attention.V": _joined(weights.mT @ dheads),
        "d_attention.weights": dheads @ V.mT,
        "d_attention.scores": weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True)),
        "d_attention.Q": _joined(dscores @ K) / root,
        "d_attention.K": _joined(dscores.mT @ Q) / root,
        **{f"d_attention.W_{name}": c["x"].T @ c[f"d_attention.{name}"] for name in "QKV"},
        "d_x": ds + through[0] + through[1] + through[2],
    }


def _ffn(c: Cells) -> dict[str, Array]:
    h, z, hidden, W_1, W_2 = c["h"], c["ffn.z"], c["ffn.hidden"], c["ffn.W_1"], c["ffn.W_2"]
    dt, dz = c["d_t"], c["d_ffn.z"]
    return {
        "ffn.z": h @ W_1 + c["ffn.b_1"],
        "ffn.hidden": _each("relu", z),
        "f": hidden @ W_2 + c["ffn.b_2"],
        "d_ffn.W_2": hidden.T @ dt,
        "d_ffn.b_2": dt.sum(axis=0),
        "d_ffn.hidden": dt @ W_2.T,
        "d_ffn.z": _each("gate", c["d_ffn.hidden"], z),
        "d_ffn.W_1": h.T @ dz,
        "d_ffn.b_1": dz.sum(axis=0),
        "d_h": dt + dz @ W_1.T,
    }


def _norm(c: Cells, name: str, letters: tuple[str, str, str, str], eps: float) -> dict[str, Array]:
    """The letters: what goes past, what the sub-layer gives, their sum, and what comes out."""
    past, sublayer, added, out = letters
    mean, centred, variance, std, x_hat, gamma, beta = (
        c[f"{name}.{part}"] for part in ("mean", "centred", "variance", "std", "x_hat", "gamma", "beta")
    )
    dout, dx_hat, along_1, along_x = (
        c[step] for step in (f"d_{out}", f"d_{name}.x_hat", f"d_{name}.along_1", f"d_{name}.along_x")
    )
    return {
        added: c[past] + c[sublayer],
        f"{name}.mean": _row_mean(c[added]),
        f"{name}.centred": c[added] - mean,
        f"{name}.variance": _row_mean(_each("square", centred)),
        f"{name}.std": _each("sqrt", variance + _number(eps)),
        f"{name}.x_hat": centred / std,
        out: gamma * x_hat + beta,
        f"d_{name}.gamma": (dout * x_hat).sum(axis=0),
        f"d_{name}.beta": dout.sum(axis=0),
        f"d_{name}.x_hat": dout * gamma,
        f"d_{name}.along_1": _row_mean(dx_hat),
        f"d_{name}.along_x": _row_mean(dx_hat * x_hat),
        f"d_{added}": (dx_hat - along_1 - along_x * x_hat) / std,
    }


def _row_mean(a: Array) -> Array:
    return a.sum(axis=-1, keepdims=True) / _number(a.shape[-1])


def _loss(c: Cells) -> dict[str, Array]:
    difference = c["y"] - c["target"]
    return {"loss": _each("square", difference).sum() / _number(2), "d_y": difference}


# Evaluating


def evaluate(recipe: Recipe, numbers: Sequence[float]) -> float:
    """What a recipe comes to, from the numbers of the cells.

    >>> evaluate(("/", ("+", 0, 1), ("number", 2.0, "2")), [3.0, 5.0])
    4.0
    """
    if isinstance(recipe, int):
        return numbers[recipe]
    operation, *parts = recipe
    if operation == "number":
        return float(parts[0])
    return OPERATIONS[operation](*(evaluate(part, numbers) for part in parts))


def check_recipes(trace: Trace, found: Mapping[str, list[Recipe]]) -> None:
    """Raise ValueError where a recipe does not give the number that stands in the trace."""
    numbers = np.concatenate([np.ravel(step.value) for step in trace.steps]).tolist()
    # (0.5 + 2e-6): a pencil rounds 0.4205 up, although its binary lies a little below
    rounding = 0.0 if trace.decimals is None else (0.5 + 2e-6) * 10.0**-trace.decimals
    for name, made in found.items():
        for cell, (recipe, value) in enumerate(zip(made, np.ravel(trace.named[name].value), strict=True)):
            got = evaluate(recipe, numbers)
            if not abs(got - value) <= rounding + TOLERANCE * max(1.0, abs(value)):
                raise ValueError(f"play: {name}, cell {cell} of the trace, is {value:g}; expected {got:g}")
