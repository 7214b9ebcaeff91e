"""Exercises whose answer is computed: the parameters, the right numbers, and those that a mistake would give.

Every recipe takes a generator, or None for the standard parameters, so that neighbours get different numbers.
"""

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.exercises import attentions, networks, positions

Rng = np.random.Generator | None


class Posed(NamedTuple):
    """One question in numbers: what stands in its text, its answer, and answers that show a mistake."""

    given: dict[str, Any]
    answer: Any
    wrong: dict[str, Any]


def posed(recipe: str, exercise_id: str, name: str) -> Posed:
    """The question for a student; the standard one without a name. The same name gets the same numbers."""
    digest = hashlib.sha256(f"{exercise_id}@{name.casefold()}".encode()).digest()
    return RECIPES[recipe](np.random.default_rng(list(digest)) if name else None)


def _pick(rng: Rng, standard: int, low: int, high: int) -> int:
    return standard if rng is None else int(rng.integers(low, high + 1))


def _row(rng: Rng, standard: list[int], low: int = -3, high: int = 4) -> Array:
    return np.array(standard) if rng is None else rng.integers(low, high + 1, size=len(standard))


def _slips(ways: dict[str, tuple[dict[str, Any], ...]], f: Callable[..., Any], *args: Any) -> dict[str, Any]:
    return {code: f(*args, **options[0]) for code, options in ways.items()}


def _table_rows(position: int, d_model: int) -> tuple[Array, dict[str, Array]]:
    n = position + 2
    tables = _slips(positions.SLIPS, positions.table, n, d_model)
    wrong = {code: table[position] for code, table in tables.items() if table.shape == (n, d_model)}
    return positions.table(n, d_model)[position], wrong


def pe_entry(rng: Rng) -> Posed:
    """One entry of the position table."""
    p, d = _pick(rng, 3, 2, 9), 2 * _pick(rng, 4, 3, 4)
    j = _pick(rng, 5, 2, d - 1)
    row, wrong = _table_rows(p, d)
    return Posed({"p": p, "d": d, "j": j}, row[j], {code: other[j] for code, other in wrong.items()})


def pe_row(rng: Rng) -> Posed:
    """One row of the position table."""
    p = _pick(rng, 2, 2, 9)
    return Posed({"p": p, "d": 6}, *_table_rows(p, 6))


def pair(rng: Rng) -> Posed:
    """The pair number of a column."""
    j = 2 * _pick(rng, 3, 2, 60) + 1
    return Posed({"j": j}, j // 2, {"PE-EXP-COLUMN": j, "CF-PAIR-FROM-1": j // 2 + 1, "CF-NEXT-PAIR": j / 2})


def wavelength(rng: Rng) -> Posed:
    """The longest wavelength of a table, in units of 2π."""
    d = 2 ** _pick(rng, 2, 1, 5) if rng is None else 2 ** _pick(rng, 2, 2, 5)
    longest = 10000.0 ** ((d - 2) / d)
    return Posed({"d": d}, longest, {"CF-WAVELENGTH-LIMIT": 10000.0, "CF-FREQUENCY": 1 / longest})


def addition(rng: Rng) -> Posed:
    """An embedding with the encoding of position 0 added."""
    x = _row(rng, [2, -1, 0, 3])
    row = np.array([0, 1, 0, 1])
    return Posed(
        {"x": x.tolist()}, x + row, {"PE-SWAPPED": x + row[::-1], "CF-PRODUCT": x * row, "CF-NO-POSITION": x}
    )


def ffn_token(rng: Rng) -> Posed:
    """One token through the feed-forward network."""
    x, b_1, b_2 = _row(rng, [1, -2]), _row(rng, [1, -1, 2]), _row(rng, [-2, 1])
    W_1, W_2 = np.array([[1, 2, -1], [0, 1, 1]]), np.array([[1, 0], [2, -1], [-1, 1]])
    given = {"x": x, "W_1": W_1, "b_1": b_1, "W_2": W_2, "b_2": b_2}
    wrong = _slips(networks.FFN_FORWARD, networks.ffn_forward, *given.values())
    return Posed(
        {name: value.tolist() for name, value in given.items()}, networks.ffn_forward(*given.values()), wrong
    )


def ffn_parameters(rng: Rng) -> Posed:
    """The number of parameters of a feed-forward network."""
    d, f = (512, 2048) if rng is None else (int(rng.integers(2, 9)) * 64, int(rng.integers(9, 33)) * 64)
    right = 2 * d * f + f + d
    wrong = {"CF-NO-BIASES": 2 * d * f, "CF-ONE-MATRIX": d * f + f, "CF-ONE-BIAS": 2 * d * f + f}
    return Posed({"d": d, "f": f}, right, wrong)


def bias_gradient(rng: Rng) -> Posed:
    """The gradient of a bias from the gradients of three rows."""
    dz = np.stack([_row(rng, row) for row in ([1, 0], [2, -1], [3, 4])])
    wrong = {"FFN-DB-MEAN": dz.mean(axis=0), "FFN-DB-SCALAR": dz.sum(), "CF-LAST-ROW": dz[-1]}
    return Posed({"dz": dz.tolist()}, dz.sum(axis=0), wrong)


def relu_gradient(rng: Rng) -> Posed:
    """A gradient on its way through ReLU."""
    z, dy = _row(rng, [2, -1, 3, -4]), _row(rng, [-5, 2, 1, 3], 1, 5)
    dy = dy * np.array([-1, 1, 1, 1])
    wrong = {"FFN-NO-MASK": dy, "FFN-MASK-UPSTREAM": dy * (dy > 0), "FFN-MASK-TIMES-A": dy * np.maximum(z, 0)}
    wrong["FFN-RELU-AT-0"] = dy * (z >= 0)
    return Posed({"z": z.tolist(), "dy": dy.tolist()}, dy * (z > 0), wrong)


def score_cells(rng: Rng) -> Posed:
    """The cells of one head's scores."""
    T = _pick(rng, 10, 6, 30)
    wrong = {"CF-ONE-SCORE-EACH": T, "CF-BOTH-SIDES": 2 * T, "CF-CAUSAL-CELLS": T * (T + 1) // 2}
    return Posed({"T": T}, T * T, {**wrong, "CF-NOT-ITSELF": T * (T - 1)})


def causal_cells(rng: Rng) -> Posed:
    """The cells that a causal mask leaves visible."""
    T = _pick(rng, 5, 4, 12)
    return Posed({"T": T}, T * (T + 1) // 2, {"CF-NOT-ITSELF": T * (T - 1) // 2, "CF-NO-MASK": T * T})


def votes(rng: Rng) -> Posed:
    """The ones in a row of zeros and ones."""
    row = _row(rng, [0, 1, 1, 0, 1, 1, 0], 0, 1)
    return Posed(
        {"row": row.tolist()},
        int(row.sum()),
        {"CF-COUNTS-ALL": len(row), "CF-COUNTS-ZEROS": int((row == 0).sum())},
    )


def total(rng: Rng) -> Posed:
    """The sum of three numbers."""
    row = _row(rng, [3, 1, 4], 1, 6)
    return Posed(
        {"row": row.tolist()},
        int(row.sum()),
        {"CF-MEAN-FOR-SUM": row.mean(), "CF-MAX-FOR-SUM": int(row.max())},
    )


def head_width(rng: Rng) -> Posed:
    """The width of one head."""
    h, d_k = (8, 64) if rng is None else (int(2 ** rng.integers(1, 5)), int(2 ** rng.integers(3, 7)))
    return Posed({"d": h * d_k, "h": h}, d_k, {"CF-FULL-WIDTH-HEADS": h * d_k})


def scale(rng: Rng) -> Posed:
    """What the scores of one head are divided by."""
    given = head_width(rng).given
    d, h = given["d"], given["h"]
    return Posed(
        given,
        (d / h) ** 0.5,
        {"CF-SCALE-D-MODEL": d**0.5, "AT-SCALE-DK": d / h, "CF-SCALE-INVERSE": (h / d) ** 0.5},
    )


def softmax_row(rng: Rng) -> Posed:
    """The softmax of logarithms of whole numbers."""
    n = _row(rng, [1, 3, 4], 1, 6)
    return Posed(
        {"n": ", ".join(f"ln {k}" for k in n)},
        n / n.sum(),
        {"CF-NOT-DIVIDED": n, "CF-LARGEST-ONLY": 1.0 * (n == n.max())},
    )


def softmax_gradient(rng: Rng) -> Posed:
    """A gradient on its way through a softmax."""
    p, dp = np.array([0.5, 0.25, 0.25]), 4 * _row(rng, [1, 0, -2])
    wrong = _slips(attentions.SOFTMAX_BACKWARD, attentions.softmax_backward, dp[None], p[None])
    wrong = {"SM-JAC-DIAGONAL": wrong["SM-JAC-DIAGONAL"][0], "CF-NO-JACOBIAN": dp}
    return Posed({"p": p.tolist(), "dp": dp.tolist()}, p * (dp - (p * dp).sum()), wrong)


def normalised(rng: Rng) -> Posed:
    """One token through layer norm, with eps = 0."""
    x = np.array([1.0, 3, 5, 3]) if rng is None else rng.integers(1, 9) + rng.permutation([0.0, 2, 4, 2])
    gamma, beta = np.array([1.0, 2, 1, 1]), np.array([0.0, 0, 1, -1])
    cube = (x[None, None], gamma, beta, 0.0)
    codes = ("LN-DDOF", "LN-NO-GAMMA", "LN-NO-BETA", "LN-VAR-NOT-STD")
    ways = {code: networks.LAYER_NORM_FORWARD[code] for code in codes}
    wrong = {code: y[0, 0] for code, y in _slips(ways, networks.layer_norm_forward, *cube).items()}
    given = {"x": x.tolist(), "gamma": gamma.tolist(), "beta": beta.tolist()}
    return Posed(given, networks.layer_norm_forward(*cube)[0, 0], wrong)


def uniform_loss(rng: Rng) -> Posed:
    """The cross-entropy of equal logits."""
    V = _pick(rng, 1000, 50, 5000)
    return Posed(
        {"V": V},
        np.log(V),
        {"CF-PROBABILITY-FOR-LOSS": 1 / V, "CF-LOG-10": np.log10(V), "CF-LOG-2": np.log2(V)},
    )


def embedding_scale(rng: Rng) -> Posed:
    """What the paper multiplies its embeddings by."""
    root = 16 if rng is None else int(rng.integers(8, 33))
    d = root * root
    return Posed({"d": d}, root, {"EMB-NO-SCALE": 1, "CF-SCALE-NO-ROOT": d, "CF-SCALE-INVERSE": 1 / root})


def shift_angle(rng: Rng) -> Posed:
    """How far a hand turns in k steps."""
    k = _pick(rng, 5, 2, 9)
    return Posed({"k": k}, k / 100, {"CF-ONE-STEP": 0.01, "CF-FAST-HAND": k, "PE-EXP-COLUMN": k / 10000})


RECIPES: dict[str, Callable[[Rng], Posed]] = {
    f.__name__: f
    for f in (
        pe_entry, pe_row, pair, wavelength, addition, ffn_token, ffn_parameters, bias_gradient, relu_gradient,
        score_cells, causal_cells, votes, total, head_width, scale, softmax_row, softmax_gradient, normalised,
        uniform_loss, embedding_scale, shift_angle,
    )
}  # fmt: skip
