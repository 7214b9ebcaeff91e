"""Exercises whose answer is computed: the parameters, the right numbers, and those that a mistake would give.

Every recipe takes a generator, or None for the standard parameters, so that neighbours get different numbers.
A draw in which a known wrong answer comes near the right one is thrown away and drawn again.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.exercises.topics import old_wrong_code as wrong_code

Rng = np.random.Generator | None


class Posed(NamedTuple):
    """One question in numbers: what stands in its text, its answer, and answers that show a mistake."""

    given: dict[str, Any]
    answer: Any
    wrong: dict[str, Any]
    decimals: int = 0  # that are asked for; 0 for whole numbers


def _pick(rng: Rng, standard: int, low: int, high: int) -> int:
    return standard if rng is None else int(rng.integers(low, high + 1))


def _row(rng: Rng, standard: list[int], low: int = -3, high: int = 4) -> Array:
    return np.array(standard) if rng is None else rng.integers(low, high + 1, size=len(standard))


VARIANTS = "PE-TRANSPOSED PE-HALVES PE-HALVES-ENDPOINT PE-ROW0-ZERO PE-HALVES-COSINE".split()


def _slips(ways: dict[str, tuple[dict[str, Any], ...]], f: Callable[..., Any], *args: Any) -> dict[str, Any]:
    """What each wrong form gives; variants are no mistakes."""
    wrong = {
        code: options for code, options in ways.items() if not code.startswith("PE-") or code not in VARIANTS
    }
    return {code: f(*args, **options[0]) for code, options in wrong.items()}


# --- the position table ----------------------------------------------------------------------------


def _table_rows(position: int, d_model: int) -> tuple[Array, dict[str, Array]]:
    n = position + 2
    tables = _slips(wrong_code.SLIPS, wrong_code.table, n, d_model)
    wrong = {code: table[position] for code, table in tables.items() if table.shape == (n, d_model)}
    right = wrong_code.table(n, d_model)
    return right[position], {**wrong, "CF-POSITION-BEFORE": right[position - 1]}


def pe_entry(rng: Rng) -> Posed:
    """One entry of the position table, in an odd column: an even one would hide every slip of the cosines."""
    p, d = _pick(rng, 23, 20, 60), 2 * _pick(rng, 4, 3, 5)
    j = 2 * _pick(rng, 1, 1, d // 2 - 1) + 1
    row, wrong = _table_rows(p, d)
    angle = p / 10000 ** ((j - 1) / d)
    ends = {"CF-COLUMN-FROM-1": row[j - 1], "CF-COLUMN-AFTER": row[(j + 1) % d], "CF-ANGLE": angle}
    ends["CF-NOT-SLOWED"] = np.cos(p)
    wrong = {code: other[j] for code, other in wrong.items()} | ends
    return Posed({"p": p, "d": d, "j": j}, row[j], wrong, 3)


def pe_row(rng: Rng) -> Posed:
    """One row of the position table."""
    p = _pick(rng, 3, 2, 40)
    row, wrong = _table_rows(p, 6)
    sines_first = np.concatenate([row[::2], row[1::2]])
    return Posed({"p": p, "d": 6}, row, {**wrong, "CF-SINES-FIRST": sines_first}, 3)


def pair(rng: Rng) -> Posed:
    """The pair number of a column."""
    j = 2 * _pick(rng, 3, 2, 60) + 1
    return Posed({"j": j}, j // 2, {"PE-EXP-COLUMN": j, "CF-PAIR-FROM-1": j // 2 + 1, "CF-NEXT-PAIR": j / 2})


def wavelength(rng: Rng) -> Posed:
    """The longest wavelength of a table, in units of 2π."""
    d = 8 if rng is None else 2 * int(rng.integers(2, 17))
    longest = 10000.0 ** ((d - 2) / d)
    wrong = {
        "CF-WAVELENGTH-LIMIT": 10000.0,
        "CF-FREQUENCY": 1 / longest,
        "CF-TURNS-TOO": 2 * np.pi * longest,
        "PE-BASE-1000": 1000.0 ** ((d - 2) / d),
        "PE-EXP-NO-2": longest**0.5,
        "PE-COS-OWN-INDEX": 10000.0 ** ((d - 1) / d),
        "CF-FASTEST-PAIR": 1.0,
    }
    return Posed({"d": d}, longest, wrong, 1)


def shift_angle(rng: Rng) -> Posed:
    """How far a hand turns in k steps."""
    k = _pick(rng, 5, 3, 40)
    wrong = {
        "CF-ONE-STEP": 0.01,
        "CF-FAST-HAND": k,
        "PE-EXP-COLUMN": k / 10000,
        "PE-DEGREES": np.degrees(k / 100),
        "CF-WAVELENGTH-200": k / 200,
        "CF-ONE-STEP-MORE": (k + 1) / 100,
        "CF-PART-OF-A-TURN": k / (200 * np.pi),
        "CF-SCALE-INVERSE": 100 / k,
        "CF-TIMES-WAVELENGTH": k * 200 * np.pi,
    }
    return Posed({"k": k}, k / 100, wrong, 3)


def addition(rng: Rng) -> Posed:
    """An embedding with the encoding of position 0 added."""
    x, row = _row(rng, [2, -1, 3, 5]), np.array([0, 1, 0, 1])
    wrong = {
        "PE-SWAPPED": x + row[::-1],
        "CF-PRODUCT": x * row,
        "CF-NO-POSITION": x,
        "PE-SUM": x + 1,
        "PE-POS-ONE-BASED": x + wrong_code.table(2, 4)[1],
        "CF-SCALED-TOO": 2 * x + row,
    }
    return Posed({"x": x.tolist()}, x + row, wrong)


def embedding_scale(rng: Rng) -> Posed:
    """What the paper multiplies its embeddings by."""
    root = 16 if rng is None else int(rng.integers(8, 33))
    d = root * root
    return Posed({"d": d}, root, {"EMB-NO-SCALE": 1, "EMB-SCALE-D": d, "EMB-SCALE-DIVIDED": 1 / root})


# --- feed-forward and layer norm ---------------------------------------------------------------------


def ffn_token(rng: Rng) -> Posed:
    """One token through the feed-forward network."""
    x, b_1, b_2 = _row(rng, [2, -3]), _row(rng, [1, -1, 2]), _row(rng, [-2, 1])
    W_1, W_2 = np.array([[1, 2, -1], [1, -1, 1]]), np.array([[1, 0], [2, -1], [-1, 3]])
    given = {"x": x, "W_1": W_1, "b_1": b_1, "W_2": W_2, "b_2": b_2}
    wrong = _slips(wrong_code.FFN_FORWARD, wrong_code.ffn_forward, *given.values())
    wrong["CF-HIDDEN"] = np.maximum(x @ W_1 + b_1, 0)
    right = wrong_code.ffn_forward(*given.values())
    return Posed({name: value.tolist() for name, value in given.items()}, right, wrong)


def ffn_parameters(rng: Rng) -> Posed:
    """The number of parameters of a feed-forward network."""
    d, f = (512, 2048) if rng is None else (int(rng.integers(2, 9)) * 64, int(rng.integers(9, 33)) * 64)
    wrong = {
        "CF-NO-BIASES": 2 * d * f,
        "CF-ONE-MATRIX": d * f + f,
        "CF-ONE-BIAS": 2 * d * f + f,
        "CF-SECOND-BIAS": 2 * d * f + d,
        "CF-EQUAL-BIASES": 2 * d * f + 2 * f,
        "CF-ONE-MATRIX-BARE": d * f,
    }
    return Posed({"d": d, "f": f}, 2 * d * f + f + d, wrong)


def bias_gradient(rng: Rng) -> Posed:
    """The gradient of a bias from the gradients of three rows."""
    dz = np.stack([_row(rng, row) for row in ([1, 2], [2, -1], [4, 3])])
    wrong = {
        "FFN-DB-MEAN": dz.mean(axis=0),
        "FFN-DB-SCALAR": dz.sum(),
        "CF-LAST-ROW": dz[-1],
        "CF-FIRST-ROW": dz[0],
        "CF-ROW-SUMS": dz.sum(axis=1),
        "FFN-DB-UNSUMMED": dz,
        "CF-SIGN": -dz.sum(axis=0),
    }
    return Posed({"dz": dz.tolist()}, dz.sum(axis=0), wrong)


def relu_gradient(rng: Rng) -> Posed:
    """A gradient on its way through ReLU."""
    z, dy = _row(rng, [2, -1, 3, -4], -4, 5), _row(rng, [-5, 2, 1, 3], 1, 5) * np.array([-1, 1, 1, 1])
    dy = dy if rng is not None else np.array([-5, 2, 4, 3])
    z = np.where(z == 0, 5, z)  # the slope at 0 is a choice, and no question
    wrong = {
        "FFN-NO-MASK": dy,
        "FFN-MASK-UPSTREAM": dy * (dy > 0),
        "FFN-MASK-TIMES-A": dy * np.maximum(z, 0),
        "FFN-MASK-INVERTED": dy * (z < 0),
        "FFN-MASK-TIMES-Z": dy * z,
        "CF-MASK-ALONE": 1 * (z > 0),
        "CF-FORWARD": np.maximum(z, 0),
        "CF-MASKED-TWICE": dy * (z > 0) * (dy > 0),
    }
    return Posed({"z": z.tolist(), "dy": dy.tolist()}, dy * (z > 0), wrong)


def normalised(rng: Rng) -> Posed:
    """One token through layer norm, with eps = 0: no feature of it stands at the mean."""
    order = np.array([0, 1, 3, 2]) if rng is None else rng.permutation(4)
    x = np.array([-3.0, -1, 1, 3])[order] + _pick(rng, 5, 2, 9)
    gamma = np.array([1.0, 2, 3, -1])[order[::-1] if rng is None else rng.permutation(4)]
    beta = np.array([1.0, 2, -1, 3])[order if rng is None else rng.permutation(4)]
    kept = ("LN-DDOF", "LN-NO-GAMMA", "LN-NO-BETA", "LN-VAR-NOT-STD", "LN-RMS", "LN-NO-MEAN")
    ways = {code: wrong_code.LAYER_NORM_FORWARD[code] for code in kept}
    tokens = _slips(ways, wrong_code.layer_norm_forward, x[None, None], gamma, beta, 0.0)
    wrong = {code: y[0, 0] for code, y in tokens.items()}
    x_hat = (x - x.mean()) / x.std()
    wrong |= {
        "CF-X-HAT": x_hat,
        "CF-BETA-FIRST": gamma * (x_hat + beta),
        "CF-NOT-DIVIDED-SPREAD": gamma * (x - x.mean()) + beta,
    }
    given = {"x": x.tolist(), "gamma": gamma.tolist(), "beta": beta.tolist()}
    return Posed(given, gamma * x_hat + beta, wrong, 3)


# --- attention and loss --------------------------------------------------------------------------------


def score_cells(rng: Rng) -> Posed:
    """The cells of one head's scores."""
    T = _pick(rng, 10, 6, 30)
    wrong = {"CF-ONE-SCORE-EACH": T, "CF-BOTH-SIDES": 2 * T, "CF-CAUSAL-CELLS": T * (T + 1) // 2}
    return Posed({"T": T}, T * T, {**wrong, "CF-NOT-ITSELF": T * (T - 1)})


def causal_cells(rng: Rng) -> Posed:
    """The cells that a causal mask leaves visible."""
    T = _pick(rng, 5, 4, 30)
    wrong = {
        "CF-NOT-ITSELF": T * (T - 1) // 2,
        "CF-NO-MASK": T * T,
        "CF-HALF": T * T / 2,
        "CF-DIAGONAL-HIDDEN": T * T - T,
        "CF-ONE-SCORE-EACH": T,
    }
    return Posed({"T": T}, T * (T + 1) // 2, wrong)


def cross_cells(rng: Rng) -> Posed:
    """The cells of one head's scores in cross-attention."""
    S, T = _pick(rng, 7, 6, 30), _pick(rng, 5, 3, 30)
    wrong = {
        "CF-SQUARE-TARGET": T * T,
        "CF-SQUARE-SOURCE": S * S,
        "CF-LENGTHS-ADDED": S + T,
        "CF-BOTH-TEXTS": (S + T) ** 2,
    }
    return Posed({"S": S, "T": T}, S * T, wrong)


def kept_keys(rng: Rng) -> Posed:
    """The scores of one head that a decoder computes for t new words when it keeps its keys."""
    t = _pick(rng, 6, 4, 30)
    wrong = {
        "CF-FULL-SQUARES": sum(n * n for n in range(1, t + 1)),
        "CF-LAST-SQUARE": t * t,
        "CF-ONE-SCORE-EACH": t,
    }
    return Posed({"t": t}, t * (t + 1) // 2, {**wrong, "CF-NOT-ITSELF": t * (t - 1) // 2})


def pooled(rng: Rng) -> Posed:
    """The mean of the tokens that are no padding."""
    rows = np.stack([_row(rng, row, 1, 9) for row in ([2, 5], [4, 1], [9, 6])]).astype(float)
    rows = np.concatenate([rows, [[7.0, 8.0]]])
    wrong = {
        "CF-PADDING-COUNTED": rows.mean(axis=0),
        "CF-SUM-NO-MEAN": rows[:3].sum(axis=0),
        "CF-FIRST-TOKEN": rows[0],
        "CF-DIVIDED-BY-ALL": rows[:3].sum(axis=0) / 4,
        "CF-LARGEST": rows[:3].max(axis=0),
        "CF-ROW-MEANS": rows.mean(axis=1),
    }
    return Posed({"rows": rows.astype(int).tolist()}, rows[:3].mean(axis=0), wrong, 2)


def cosine(rng: Rng) -> Posed:
    """The cosine between two vectors."""
    a, b = _row(rng, [3, 4], 1, 9), _row(rng, [1, 7], -9, 9)
    long_a, long_b = np.sqrt((a * a).sum()), np.sqrt((b * b).sum())
    product = float(a @ b)
    if not long_b:
        return Posed({"a": [], "b": []}, 0.0, {}, 3)  # no direction: drawn again
    wrong = {
        "CF-DOT-PRODUCT": product,
        "CF-SQUARED-LENGTHS": product / (long_a * long_b) ** 2,
        "CF-ONE-LENGTH": product / long_a,
        "CF-DISTANCE": np.sqrt(((a - b) ** 2).sum()),
        "CF-ANGLE": np.arccos(np.clip(product / (long_a * long_b), -1, 1)),
        "CF-ANGLE-DEGREES": np.degrees(np.arccos(np.clip(product / (long_a * long_b), -1, 1))),
        "CF-COSINE-DISTANCE": 1 - product / (long_a * long_b),
    }
    return Posed({"a": a.tolist(), "b": b.tolist()}, product / (long_a * long_b), wrong, 3)


def waits(rng: Rng) -> Posed:
    """How often the host waits when the loss is looked at after each k-th step."""
    k, steps = _pick(rng, 10, 3, 20), 0
    steps = k * _pick(rng, 20, 8, 40)
    wrong = {"CF-EVERY-STEP": steps, "CF-ONCE": 1, "CF-INTERVAL": k, "CF-NEVER": 0}
    return Posed({"k": k, "steps": steps}, steps // k, wrong)


def head_width(rng: Rng) -> Posed:
    """The width of one head."""
    h, d_k = (8, 64) if rng is None else (int(2 ** rng.integers(1, 5)), int(2 ** rng.integers(3, 7)))
    wrong = {"CF-FULL-WIDTH-HEADS": h * d_k, "CF-NUMBER-OF-HEADS": h, "CF-WIDTHS-ADDED": h * h * d_k}
    return Posed({"d": h * d_k, "h": h}, d_k, wrong)


def scale(rng: Rng) -> Posed:
    """What the scores of one head are divided by."""
    given = head_width(rng).given
    d, h = given["d"], given["h"]
    wrong = {
        "CF-SCALE-D-MODEL": d**0.5,
        "AT-SCALE-DK": d / h,
        "CF-SCALE-INVERSE": (h / d) ** 0.5,
        "CF-SCALE-HEADS": h**0.5,
    }
    return Posed(given, (d / h) ** 0.5, wrong, 2)


def softmax_row(rng: Rng) -> Posed:
    """The softmax of logarithms of whole numbers."""
    n = _row(rng, [1, 3, 4], 1, 6)
    logs = np.log(n)
    wrong = {
        "CF-NOT-DIVIDED": n,
        "CF-LARGEST-ONLY": 1.0 * (n == n.max()),
        "CF-LOGS-SHARED": logs / max(logs.sum(), 1e-9),
        "CF-EQUAL-SHARES": np.full(3, 1 / 3),
        "CF-LOG-FORGOTTEN": np.exp(n) / np.exp(n).sum(),
    }
    return Posed({"n": ", ".join(f"ln {k}" for k in n)}, n / n.sum(), wrong, 3)


def softmax_gradient(rng: Rng) -> Posed:
    """A gradient on its way through a softmax; Σ p dp is not 0, or the sum would hide."""
    p, dp = np.array([0.5, 0.25, 0.25]), 4 * _row(rng, [1, 3, -2])
    wrong = _slips(wrong_code.SOFTMAX_BACKWARD, wrong_code.softmax_backward, dp[None], p[None])
    kept = {code: wrong[code][0] for code in ("SM-JAC-DIAGONAL", "SM-JAC-PRODUCT", "SM-JAC-NO-P")}
    more = {
        "CF-NO-JACOBIAN": dp,
        "CF-PLAIN-MEAN": p * (dp - dp.mean()),
        "CF-PLAIN-SUM": p * (dp - dp.sum()),
        "CF-SIGN": -p * (dp - (p * dp).sum()),
    }
    return Posed({"p": p.tolist(), "dp": dp.tolist()}, p * (dp - (p * dp).sum()), kept | more, 2)


def uniform_loss(rng: Rng) -> Posed:
    """The cross-entropy of equal logits."""
    V = _pick(rng, 1000, 50, 5000)
    wrong = {
        "CF-PROBABILITY-FOR-LOSS": 1 / V,
        "CF-LOG-10": np.log10(V),
        "CF-LOG-2": np.log2(V),
        "CE-SIGN": -np.log(V),
        "CE-DIVIDED-V": np.log(V) / V,
        "CF-COUNT": V,
        "CF-NO-DOUBT": 0,
    }
    return Posed({"V": V}, np.log(V), wrong, 3)


# --- since 2017 --------------------------------------------------------------------------------------


def gated_width(rng: Rng) -> Posed:
    """The hidden width at which a gated network has as many weights as a plain one of 4 d_model."""
    d = 768 if rng is None else 3 * 64 * int(rng.integers(1, 21))
    wrong = {
        "CF-PLAIN-WIDTH": 4 * d,
        "CF-HALF-WIDTH": 2 * d,
        "CF-A-THIRD": 4 * d // 3,
        "CF-WIDER": 6 * d,
        "CF-COUNT-OF-WEIGHTS": 8 * d * d,
    }
    return Posed({"d": d, "f": 4 * d}, 8 * d // 3, wrong)


def kept_bytes(rng: Rng) -> Posed:
    """The bytes that a model with shared key heads keeps for each token."""
    shared = 4 if rng is None else int(2 ** rng.integers(1, 4))
    g = _pick(rng, 2, 2, 5)
    n, h, d_k = _pick(rng, 6, 3, 9), shared * g, 64 if rng is None else int(2 ** rng.integers(5, 8))
    right = 2 * n * g * d_k * 4
    wrong = {
        "CF-ALL-HEADS-KEPT": right * shared,
        "CF-KEYS-ALONE": right // 2,
        "CF-ONE-BLOCK": right // n,
        "CF-NUMBERS-NOT-BYTES": right // 4,
        "CF-HEADS-NOT-COUNTED": right // g,
        "CF-EIGHT-BYTES": right * 2,
        "CF-BITS": right * 8,
    }
    return Posed({"n": n, "h": h, "g": g, "d_k": d_k}, right, wrong)


RECIPES: dict[str, Callable[[Rng], Posed]] = {
    f.__name__: f
    for f in (
        pe_entry,
        pe_row,
        pair,
        wavelength,
        shift_angle,
        addition,
        embedding_scale,
        ffn_token,
        ffn_parameters,
        bias_gradient,
        relu_gradient,
        normalised,
        score_cells,
        causal_cells,
        cross_cells,
        kept_keys,
        pooled,
        cosine,
        waits,
        head_width,
        scale,
        softmax_row,
        softmax_gradient,
        uniform_loss,
        gated_width,
        kept_bytes,
    )
}
