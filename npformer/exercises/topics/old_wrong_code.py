"""The code exercises written wrongly: one function an exercise, and what each known mistake changes in it.

Without options each is right, and written apart from the package's own.
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from npformer.backend import Array

Exponent: TypeAlias = Callable[[Array, int], Array]  # (column numbers j, d_model) -> exponent of 10000
Options: TypeAlias = dict[str, Any]


def by_pair(j: Array, d: int) -> Array:
    """The paper's exponent, 2i/d_model with i = j // 2: both columns of a pair share it."""
    return 2 * (j // 2) / d


def base(value: float) -> Exponent:
    """The paper's exponent for another base, as an exponent of 10000."""
    return lambda j, d: by_pair(j, d) * np.log(value) / np.log(10000)


def table(
    n: int,
    d_model: int,
    *,
    exponent: Exponent = by_pair,
    wave: Callable[[Array, Array], Array] | None = None,
    finish: Callable[[Array], Array] = lambda table: table,
    first: int = 0,
    unit: float = 1.0,
    layout: str = "interleaved",
) -> Array:
    """The position table (n, d_model); every option but the defaults is a mistake or a variant."""
    position = np.arange(first, first + n)[:, None]  # (n, 1)
    j = np.arange(d_model)
    if layout != "interleaved":
        half = (d_model + 1) // 2
        j = np.where(j < half, 2 * j, 2 * (j - half) + 1)
    if layout == "cosines first":
        j = j + 1 - 2 * (j % 2)
    angles = unit * position / 10000.0 ** exponent(j, d_model)  # (n, d_model)
    return finish((wave or paper)(angles, j))


def paper(angles: Array, j: Array) -> Array:
    """Sine in the even columns, cosine in the odd ones."""
    return np.where(j % 2 == 0, np.sin(angles), np.cos(angles))


def _row_0_zero(table: Array) -> Array:
    return np.concatenate([0 * table[:1], table[1:]])


def _alike(row: int) -> Callable[[Array], Array]:
    return lambda table: np.repeat(table[row][None], len(table), axis=0)


_END = {"layout": "halves", "exponent": lambda j, d: (j // 2) / max(d / 2 - 1, 1)}

SLIPS: dict[str, tuple[Options, ...]] = {
    "PE-EXP-COLUMN": ({"exponent": lambda j, d: 2 * j / d},),
    "PE-EXP-DOUBLED": ({"exponent": lambda j, d: 4 * (j // 2) / d},),
    "PE-BASE-1E8": ({"exponent": base(1e8)},),
    "PE-EXP-DOUBLED-COS": ({"exponent": lambda j, d: (4 * (j // 2) + j % 2) / d},),
    "PE-COS-OWN-INDEX": ({"exponent": lambda j, d: j / d},),
    "PE-COS-NEXT-PAIR": ({"exponent": lambda j, d: 2 * ((j + 1) // 2) / d},),
    "PE-EXP-NO-2": ({"exponent": lambda j, d: (j // 2) / d},),
    "PE-BASE-100": ({"exponent": base(100)},),
    "PE-BASE-1000": ({"exponent": base(1000)},),
    "PE-BASE-100000": ({"exponent": base(100000)},),
    "PE-EXP-SQRT-D": ({"exponent": lambda j, d: 2 * (j // 2) / np.sqrt(d)},),
    "PE-EXP-NO-D": ({"exponent": lambda j, d: 2.0 * (j // 2)},),
    "PE-EXP-SIGN": ({"exponent": lambda j, d: -by_pair(j, d)},),
    "PE-SUM": tuple(
        {"exponent": exponent, "wave": lambda angles, j: np.sin(angles) + np.cos(angles)}
        for exponent in (by_pair, lambda j, d: j / d, lambda j, d: 2 * j / d)
    ),
    "PE-SWAPPED": ({"wave": lambda angles, j: paper(angles, j + 1)},),
    "PE-COS-OVERWRITES": ({"wave": lambda angles, j: np.where(j % 2 == 0, np.cos(angles), 0.0)},),
    "PE-SIN-ONLY": tuple(
        {"exponent": exponent, "wave": lambda angles, j: np.sin(angles)}
        for exponent in (by_pair, lambda j, d: j / d, lambda j, d: 2 * j / d)
    ),
    "PE-COS-OF-SIN": (
        {"wave": lambda angles, j: np.where(j % 2 == 0, np.sin(angles), np.cos(np.sin(angles)))},
    ),
    "PE-ODD-EMPTY": ({"wave": lambda angles, j: np.where(j % 2 == 0, np.sin(angles), 0.0)},),
    "PE-POS-UNUSED": (
        *({"finish": _alike(row)} for row in (0, 1, -1)),
        {"finish": _alike(-1), "first": 1},
    ),
    "PE-POS-ONE-BASED": ({"first": 1},),
    "PE-TRANSPOSED": ({"finish": lambda table: table.T},),
    "PE-DEGREES": ({"unit": np.pi / 180},),
    "PE-HALVES": ({"layout": "halves"},),
    "PE-HALVES-ENDPOINT": (_END,),
    "PE-HALVES-COSINE": ({"layout": "cosines first"}, {**_END, "layout": "cosines first"}),
    "PE-ROW0-ZERO": ({"finish": _row_0_zero},),
}

# --- feed-forward and layer norm -------------------------------------------------------------------


Summed: TypeAlias = Callable[[Array], Array]


def _relu(z: Array) -> Array:
    return np.maximum(z, 0)


def _leaky(slope: float, z: Array) -> Array:
    return np.where(z > 0, z, slope * z)


def ffn_forward(
    x: Array,
    W_1: Array,
    b_1: Array,
    W_2: Array,
    b_2: Array,
    *,
    hidden: Callable[[Array, Array], Array] = lambda z, b: _relu(z + b),
    uses_b_1: bool = True,
    uses_b_2: bool = True,
    finish: Callable[[Array], Array] = lambda y: y,
) -> Array:
    """max(0, x W_1 + b_1) W_2 + b_2, or what the options make of it."""
    h = hidden(x @ W_1, b_1 * uses_b_1)
    return finish(h @ W_2 + b_2 * uses_b_2)


def erf(z: Array) -> Array:
    """The error function, number by number."""
    return np.vectorize(math.erf, otypes=[float])(z)


ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], ...]] = {
    "FFN-STEP": (lambda z: 1.0 * (z > 0), lambda z: 1.0 * (z >= 0), np.sign),
    "FFN-GELU": (
        lambda z: z * (1 + erf(z / 2**0.5)) / 2,
        lambda z: z * (1 + np.tanh((2 / np.pi) ** 0.5 * (z + 0.044715 * z**3))) / 2,
    ),
    "FFN-SIGMOID": (lambda z: 1 / (1 + np.exp(-z)),),
    "FFN-TANH": (np.tanh,),
    "FFN-LEAKY": tuple(partial(_leaky, slope) for slope in (0.01, 0.1, 0.2, 0.3)),
    "FFN-ABS": (np.abs,),
}


def _on_the_sum(activation: Callable[[Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda z, b: activation(z + b)


FFN_FORWARD: dict[str, tuple[Options, ...]] = {
    "FFN-NO-RELU": ({"hidden": lambda z, b: z + b},),
    "FFN-RELU-BEFORE-BIAS": ({"hidden": lambda z, b: _relu(z) + b},),
    "FFN-RELU-TWICE": ({"finish": _relu},),
    "FFN-RELU-LAST": ({"hidden": lambda z, b: z + b, "finish": _relu},),
    "FFN-NO-B1": ({"uses_b_1": False},),
    "FFN-NO-B2": ({"uses_b_2": False},),
    **{code: tuple({"hidden": _on_the_sum(f)} for f in ways) for code, ways in ACTIVATIONS.items()},
}


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def _outer(a: Array, b: Array) -> Array:
    return _rows(a).T @ _rows(b)


def _by_batch(a: Array, b: Array) -> Array:
    return a.swapaxes(-1, -2) @ b


def _sum(dz: Array) -> Array:
    return _rows(dz).sum(axis=0)


def ffn_backward(
    dy: Array,
    x: Array,
    W_1: Array,
    b_1: Array,
    W_2: Array,
    b_2: Array,
    *,
    through_relu: Callable[[Array, Array], Array] = lambda dhidden, z: dhidden * (z > 0),
    turn_1: bool = True,
    turn_2: bool = True,
    db_1: Summed = _sum,
    db_2: Summed = _sum,
    dW_1: Callable[[Array, Array], Array] = _outer,
    dW_2: Callable[[Array, Array], Array] = _outer,
    kept: Callable[[Array], Array] = _relu,
    db_1_from_dz: bool = True,
    divide: tuple[Callable[[Array], int], str] = (lambda x: 1, ""),
) -> tuple[Array, ...]:
    """dy and x (B, T, d_model) -> dx, dW_1, db_1, dW_2, db_2, or what the options make of them."""
    z = x @ W_1 + b_1
    dhidden = dy @ (W_2.T if turn_2 else W_2)
    dz = through_relu(dhidden, z)
    dx = dz @ (W_1.T if turn_1 else W_1)
    gradients = {
        "dx": dx,
        "dW_1": dW_1(x, dz),
        "db_1": db_1(dz if db_1_from_dz else dhidden),
        "dW_2": dW_2(kept(z), dy),
        "db_2": db_2(dy),
    }
    count, scope = divide
    return tuple(g / count(x) if name in scope.split() else g for name, g in gradients.items())


_COUNTS: tuple[Callable[[Array], int], ...] = (
    lambda x: x.shape[0] * x.shape[1],
    lambda x: x.shape[0],
    lambda x: x.shape[1],
)


def _averages(*scopes: str) -> tuple[Options, ...]:
    return tuple({"divide": (count, scope)} for count, scope in product(_COUNTS, scopes))


def _either(first: str, second: str, value: object) -> tuple[Options, ...]:
    """The same slip in both places, or in one of them."""
    return {first: value, second: value}, {first: value}, {second: value}


FFN_BACKWARD: dict[str, tuple[Options, ...]] = {
    "FFN-DB-SCALAR": _either("db_1", "db_2", np.sum),
    "FFN-DB-BATCH-ONLY": _either("db_1", "db_2", lambda dz: dz.sum(axis=0)),
    "FFN-DB-UNSUMMED": _either("db_1", "db_2", lambda dz: dz),
    "FFN-DB-MEAN": _averages("db_1 db_2", "db_1", "db_2"),
    "FFN-GRAD-MEAN": _averages("dW_1 db_1 dW_2 db_2", "dx dW_1 db_1 dW_2 db_2"),
    "FFN-DW-UNSUMMED": _either("dW_1", "dW_2", _by_batch),
    "FFN-DB-ROW": _either("db_1", "db_2", lambda dz: _sum(dz)[None])
    + _either("db_1", "db_2", lambda dz: dz.sum(axis=(0, 1), keepdims=True)),
    "FFN-DW-TRANSPOSED": _either("dW_1", "dW_2", lambda a, b: _outer(b, a)),
    "FFN-W-UNTRANSPOSED": _either("turn_1", "turn_2", False),
    "FFN-NO-MASK": ({"through_relu": lambda dhidden, z: dhidden},),
    "FFN-MASK-UPSTREAM": ({"through_relu": lambda dhidden, z: dhidden * (dhidden > 0)},),
    "FFN-MASK-TIMES-Z": ({"through_relu": lambda dhidden, z: dhidden * z},),
    "FFN-MASK-INVERTED": ({"through_relu": lambda dhidden, z: dhidden * (z <= 0)},),
    "FFN-MASK-TIMES-A": ({"through_relu": lambda dhidden, z: dhidden * _relu(z)},),
    "FFN-DW2-PREACT": ({"kept": lambda z: z},),
    "FFN-DB1-DHIDDEN": ({"db_1_from_dz": False},),
    "FFN-RELU-AT-0": ({"through_relu": lambda dhidden, z: dhidden * (z >= 0)},),
}


def _std(variance: Array, eps: float) -> Array:
    return np.sqrt(variance + eps)


def _std_and_eps(variance: Array, eps: float) -> Array:
    return np.sqrt(variance) + eps


def layer_norm_forward(
    x: Array,
    gamma: Array,
    beta: Array,
    eps: float,
    *,
    ddof: int = 0,
    spread: Callable[[Array, float], Array] = _std,
    axis: int | tuple[int, ...] = -1,
    minus_mean: bool = True,
    about_zero: bool = False,
    uses_gamma: bool = True,
    uses_beta: bool = True,
) -> Array:
    """gamma (x - mean) / √(var + eps) + beta, or what the options make of it."""
    centred = x - minus_mean * x.mean(axis=axis, keepdims=True)
    squares = (x * x).mean(axis=axis, keepdims=True)
    variance = squares if about_zero else x.var(axis=axis, ddof=ddof, keepdims=True)
    x_hat = centred / spread(variance, eps)
    return x_hat * (gamma if uses_gamma else 1.0) + (beta if uses_beta else 0.0)


_NO_FEATURES: tuple[Options, ...] = tuple({"axis": axis} for axis in ((-2,), (-3,), (-3, -2)))
_MANY_TOKENS: tuple[Options, ...] = tuple({"axis": axis} for axis in ((-2, -1), (-3, -1), (-3, -2, -1)))
_WRONG_AXES = _NO_FEATURES + _MANY_TOKENS

LAYER_NORM_FORWARD: dict[str, tuple[Options, ...]] = {
    "LN-DDOF": ({"ddof": 1},),
    "LN-EPS-OUTSIDE": ({"spread": _std_and_eps},),
    "LN-DDOF-EPS": ({"ddof": 1, "spread": _std_and_eps},),
    "LN-AXIS": _WRONG_AXES,
    "LN-NO-MEAN": ({"minus_mean": False},),
    "LN-RMS": (
        {"minus_mean": False, "about_zero": True},
        {"minus_mean": False, "about_zero": True, "uses_beta": False},
    ),
    "LN-NO-GAMMA": ({"uses_gamma": False},),
    "LN-NO-BETA": ({"uses_beta": False},),
    "LN-VAR-NOT-STD": (
        {"spread": lambda variance, eps: variance + eps},
        {"spread": lambda variance, eps: variance},
    ),
}


def layer_norm_backward(
    dy: Array,
    x: Array,
    gamma: Array,
    beta: Array,
    eps: float,
    *,
    ddof: int = 0,
    own_divisor: bool = False,
    spread: Callable[[Array, float], Array] = _std,
    axis: int | tuple[int, ...] = -1,
    inside: bool = True,
    outside: bool = False,
    minus_mean: bool = True,
    minus_variance: bool = True,
    dgamma: Summed = _sum,
    dbeta: Summed = _sum,
) -> tuple[Array, Array, Array]:
    """dx, dgamma, dbeta, or what the options make of them."""
    centred = x - x.mean(axis=axis, keepdims=True)
    variance = x.var(axis=axis, ddof=ddof, keepdims=True)
    std = spread(variance, eps)
    x_hat = centred / std
    dx_hat = dy * gamma if inside else dy
    second = (dx_hat * x_hat).mean(axis=axis, keepdims=True)
    if own_divisor:  # the derivative of the spread that was chosen, not the formula for √(var + eps)
        d = x.shape[-1]
        second = second * d / (d - ddof) * (std / np.sqrt(variance) if spread is _std_and_eps else 1.0)
    dx = dx_hat - minus_mean * dx_hat.mean(axis=axis, keepdims=True) - minus_variance * x_hat * second
    return dx / std * (gamma if outside else 1.0), dgamma(dy * x_hat), dbeta(dy)


def _spreads(options: Options) -> tuple[Options, ...]:
    return options, {**options, "own_divisor": True}


LAYER_NORM_BACKWARD: dict[str, tuple[Options, ...]] = {
    "LN-DDOF": _spreads({"ddof": 1}),
    "LN-EPS-OUTSIDE": _spreads({"spread": _std_and_eps}),
    "LN-DDOF-EPS": _spreads({"ddof": 1, "spread": _std_and_eps}),
    "LN-AXIS": _WRONG_AXES,
    "LN-NO-GAMMA": ({"inside": False},),
    "LN-VAR-NOT-STD": ({"spread": lambda variance, eps: variance + eps},),
    "LN-DX-DIRECT": ({"minus_mean": False, "minus_variance": False},),
    "LN-DX-GAMMA-OUTSIDE": ({"inside": False, "outside": True},),
    "LN-DX-NO-MEAN": ({"minus_mean": False},),
    "LN-DX-NO-VAR": ({"minus_variance": False},),
    "LN-DGAMMA-SHAPE": tuple(
        option
        for unsummed in (
            lambda dz: dz,
            lambda dz: dz.sum(axis=0),
            lambda dz: dz.sum(axis=1),
            lambda dz: dz.sum(axis=(0, 1), keepdims=True),
        )
        for option in _either("dgamma", "dbeta", unsummed)
    ),
}

# --- softmax, attention, heads, embedding, loss, block ---------------------------------------------


Axis: TypeAlias = "int | tuple[int, ...] | None"


def softmax(scores: Array, *, axis: Axis = -1, twice: bool = False) -> Array:
    """e^scores / Σ e^scores along one axis, or what the options make of it."""
    powers = np.exp(scores - scores.max(axis=axis, keepdims=True))
    shares = powers / powers.sum(axis=axis, keepdims=True)
    return softmax(shares, axis=axis) if twice else shares


SOFTMAX_FORWARD: dict[str, tuple[Options, ...]] = {
    "SM-AXIS": ({"axis": -2}, {"axis": 0}),
    "SM-GLOBAL-SUM": ({"axis": None},),
    "SM-TWICE": ({"twice": True},),
}


def softmax_backward(
    dp: Array, p: Array, *, axis: Axis = -1, centre: Callable[[Array, Array], Array] | None = None
) -> Array:
    """p (dp - Σ dp p), or what the options make of it."""
    if centre is not None:
        return centre(dp, p)
    return p * (dp - (dp * p).sum(axis=axis, keepdims=True))


SOFTMAX_BACKWARD: dict[str, tuple[Options, ...]] = {
    "SM-JAC-DIAGONAL": ({"centre": lambda dp, p: dp * p * (1 - p)},),
    "SM-JAC-PRODUCT": ({"centre": lambda dp, p: dp * p},),
    "SM-JAC-NO-P": ({"centre": lambda dp, p: dp - (dp * p).sum(axis=-1, keepdims=True)},),
    "SM-GRAD-ROWS": ({"centre": lambda dp, p: softmax_backward(dp, p) / len(p)},),
    "SM-AXIS": ({"axis": -2}, {"axis": 0}),
    "SM-GLOBAL-SUM": ({"axis": None},),
}


def _hide(scores: Array, mask: Array) -> Array:
    return np.where(mask, scores, -np.inf)


def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    *,
    scale: Callable[[int], float] = lambda d_k: d_k**-0.5,
    scale_weights: bool = False,
    hide: Callable[[Array, Array], Array] | None = _hide,
    axis: Axis = -1,
) -> Array:
    """softmax(q kᵀ / √d_k) v, or what the options make of it. hide=None masks the weights instead."""
    d_k = q.shape[-1]
    scores = q @ k.swapaxes(-1, -2) * (1.0 if scale_weights else scale(d_k))
    visible = np.ones((), bool) if mask is None else mask
    weights = softmax(scores if hide is None or mask is None else hide(scores, mask), axis=axis)
    if hide is None:
        weights = weights * visible
    return weights @ v / (d_k**0.5 if scale_weights else 1.0)


def _inverted(fill: float) -> Callable[[Array, Array], Array]:
    return lambda scores, mask: np.where(mask, fill, scores)


def _inverted_added(scores: Array, mask: Array) -> Array:
    return scores - np.where(mask, 1e6, 0.0)


ATTENTION: dict[str, tuple[Options, ...]] = {
    "AT-NO-SCALE": ({"scale": lambda d_k: 1.0},),
    "AT-SCALE-DK": ({"scale": lambda d_k: 1 / d_k},),
    "AT-SCALE-MULTIPLIED": ({"scale": lambda d_k: d_k**0.5},),
    "AT-SCALE-AFTER": ({"scale_weights": True},),
    "AT-MASK-AFTER": ({"hide": None},),
    "AT-MASK-IGNORED": ({"hide": lambda scores, mask: scores},),
    "AT-MASK-ADDED": ({"hide": lambda scores, mask: scores + mask},),
    "AT-MASK-TIMES": ({"hide": lambda scores, mask: np.where(mask, scores, 0.0)},),
    "AT-MASK-SIGN": ({"hide": lambda scores, mask: np.where(mask, scores, 1e9)}, {"hide": _inverted_added}),
    "AT-MASK-INVERTED": (
        {"hide": _inverted(-np.inf)},
        {"hide": _inverted(-1e30)},
        {"hide": _inverted_added},
    ),
    "SM-AXIS": ({"axis": -2}, {"axis": 0}),
    "SM-GLOBAL-SUM": ({"axis": None},),
}


def heads_split(x: Array, n_heads: int, *, turn: bool = True, flat: bool = False) -> Array:
    """(B, T, d_model) -> (B, h, T, d_k), or what the options make of it."""
    B, T, d_model = x.shape
    d_k = d_model // n_heads
    if flat:
        return x.reshape(B, n_heads, T, d_k)
    pieces = x.reshape(B, T, n_heads, d_k)
    return pieces.swapaxes(1, 2) if turn else pieces


HEADS_SPLIT: dict[str, tuple[Options, ...]] = {"AT-HEADS-RESHAPE": ({"flat": True}, {"turn": False})}


def heads_merge(x: Array, *, turn: bool = True) -> Array:
    """(B, h, T, d_k) -> (B, T, d_model), or what the option makes of it."""
    B, h, T, d_k = x.shape
    return (x.swapaxes(1, 2) if turn else x).reshape(B, T, h * d_k)


HEADS_MERGE: dict[str, tuple[Options, ...]] = {"AT-HEADS-RESHAPE": ({"turn": False},)}


def embedding(ids: Array, E: Array, *, power: float = 0.5) -> Array:
    """E[ids] √d_model, or another power of d_model."""
    return E[ids] * E.shape[-1] ** power


EMBEDDING: dict[str, tuple[Options, ...]] = {
    "EMB-NO-SCALE": ({"power": 0.0},),
    "EMB-SCALE-D": ({"power": 1.0},),
    "EMB-SCALE-DIVIDED": ({"power": -0.5},),
}


def _mean(losses: Array, classes: int) -> Array:
    return losses.mean()


def cross_entropy(
    logits: Array,
    targets: Array,
    *,
    twice: bool = False,
    gather: Callable[[Array, int], Array] = _mean,
    smooth: Callable[[Array, Array], Array] = lambda kept, log_p: kept,
) -> Array:
    """The mean of -log p[target], or what the options make of it."""
    log_p = np.log(softmax(softmax(logits) if twice else logits))
    losses = smooth(-np.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0], -log_p)
    return gather(losses, logits.shape[-1])


CROSS_ENTROPY: dict[str, tuple[Options, ...]] = {
    "CE-DOUBLE-SOFTMAX": ({"twice": True},),
    "CE-SUM": ({"gather": lambda losses, classes: losses.sum()},),
    "CE-LOG-2": ({"gather": lambda losses, classes: losses.mean() / np.log(2)},),
    "CE-SIGN": ({"gather": lambda losses, classes: -losses.mean()},),
    "CE-DIVIDED-V": ({"gather": lambda losses, classes: losses.mean() / classes},),
    "CE-UNREDUCED": ({"gather": lambda losses, classes: losses},),
}

Layer: TypeAlias = Callable[[Array], Array]


def block(
    x: Array,
    attend: Layer,
    norm_1: Layer,
    ffn: Layer,
    norm_2: Layer,
    *,
    kind: str = "post",
    keeps: tuple[float, float] = (1, 1),
    from_x: bool = False,
    norms: str = "12",
) -> Array:
    """norm_2(h + ffn(h)) with h = norm_1(x + attend(x)), or what the options make of it."""
    chosen: dict[str, Layer] = {"1": norm_1, "2": norm_2, "-": np.asarray}
    first, second = (chosen[number] for number in norms)
    if kind == "post":
        h = first(keeps[0] * x + attend(x))
        return second(keeps[1] * (x if from_x else h) + ffn(h))
    if kind == "inside":
        h = x + first(attend(x))
        return h + second(ffn(h))
    n = first(x)
    h = (x if kind == "pre" else n) + attend(n)
    n = second(h)
    return (h if kind == "pre" else n) + ffn(n)


BLOCK: dict[str, tuple[Options, ...]] = {
    "BLOCK-PRE-FOR-POST": ({"kind": "pre"},),
    "BLOCK-RESIDUAL-NORMED": ({"kind": "normed"},),
    "BLOCK-NO-RESIDUAL": ({"keeps": (0, 0)}, {"keeps": (0, 1)}, {"keeps": (1, 0)}),
    "BLOCK-RESIDUAL-X": ({"from_x": True},),
    "BLOCK-NORMS-EXCHANGED": ({"norms": "21"},),
    "BLOCK-ONE-NORM-TWICE": ({"norms": "11"}, {"norms": "22"}),
    "BLOCK-NO-NORM": ({"norms": "--"}, {"norms": "1-"}, {"norms": "-2"}),
    "BLOCK-NORM-INSIDE": ({"kind": "inside"},),
}


# --- causal mask, RoPE, a step of Adam, label smoothing --------------------------------------------


def causal(T: int, *, offset: int = 0, upper: bool = False) -> Array:
    """True where a query may look: at itself and what stands before it; or what the options make of it."""
    i, j = np.arange(T)[:, None], np.arange(T)
    return (j >= i + offset) if upper else (j <= i + offset)


CAUSAL: dict[str, tuple[Options, ...]] = {
    "MASK-NOT-ITSELF": ({"offset": -1},),
    "MASK-LOOKS-AHEAD": ({"offset": 1},),
    "MASK-UPPER": ({"upper": True}, {"upper": True, "offset": 1}),
}


def rope(
    x: Array,
    *,
    sign: float = 1.0,
    halves: bool = False,
    start: int = 0,
    exponent: Callable[[Array, int], Array] = lambda i, d: 2 * i / d,
) -> Array:
    """Each pair of columns (2i, 2i+1) turned by p / 10000^(2i/d), or what the options make of it."""
    T, d = x.shape
    i = np.arange(d // 2)
    angles = sign * np.arange(start, start + T)[:, None] / 10000.0 ** exponent(i, d)
    even, odd = (i, i + d // 2) if halves else (2 * i, 2 * i + 1)
    y = np.zeros_like(x)
    y[:, even] = x[:, even] * np.cos(angles) - x[:, odd] * np.sin(angles)
    y[:, odd] = x[:, even] * np.sin(angles) + x[:, odd] * np.cos(angles)
    return y


ROPE: dict[str, tuple[Options, ...]] = {
    "ROPE-SIGN": ({"sign": -1.0},),
    "ROPE-HALVES": ({"halves": True},),
    "ROPE-FROM-1": ({"start": 1},),
    "ROPE-EXP-NO-2": ({"exponent": lambda i, d: i / d},),
    "ROPE-EXP-DOUBLED": ({"exponent": lambda i, d: 4 * i / d},),
}


def adam(
    w: Array,
    g: Array,
    m: Array,
    v: Array,
    t: int,
    learning_rate: float,
    *,
    correct: tuple[bool, bool] = (True, True),
    root: bool = True,
    inside: bool = False,
    sign: float = -1.0,
    mixes: str = "gs",
    steps: int = 0,
) -> tuple[Array, Array, Array]:
    """One step of Adam with β₁ = 0.9, β₂ = 0.98, ε = 1e-9, or what the options make of it."""
    kept_1, kept_2 = (0.1, 0.02) if mixes == "swapped" else (0.9, 0.98)
    m = kept_1 * m + (1 - kept_1) * g
    v = kept_2 * v + (1 - kept_2) * (g if mixes == "no square" else g * g)
    m_hat = m / (1 - 0.9 ** (t + steps)) if correct[0] else m
    v_hat = v / (1 - 0.98 ** (t + steps)) if correct[1] else v
    below = (v_hat + 1e-9 * inside) ** (0.5 if root else 1.0) + 1e-9 * (not inside)
    return w + sign * learning_rate * m_hat / below, m, v


ADAM: dict[str, tuple[Options, ...]] = {
    "ADAM-NO-CORRECTION": (
        {"correct": (False, False)},
        {"correct": (False, True)},
        {"correct": (True, False)},
    ),
    "ADAM-NO-ROOT": ({"root": False},),
    "ADAM-EPS-INSIDE": ({"inside": True},),
    "ADAM-UPHILL": ({"sign": 1.0},),
    "ADAM-MIX-SWAPPED": ({"mixes": "swapped"},),
    "ADAM-NO-SQUARE": ({"mixes": "no square"},),
    "ADAM-STEP-OFF": ({"steps": 1}, {"steps": -1}),
}


def _shared(at: Array, epsilon: float, log_p: Array) -> Array:
    return (1 - epsilon) * at + epsilon * log_p.mean(axis=-1)


def smoothed(
    logits: Array,
    targets: Array,
    epsilon: float,
    *,
    share: Callable[[Array, float, Array], Array] = _shared,
    gather: Callable[[Array], Array] = np.mean,
) -> Array:
    """Cross-entropy against (1 - ε) at the target and ε/V everywhere, or what the options make of it."""
    log_p = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    at = np.take_along_axis(log_p, targets[:, None], axis=-1)[:, 0]
    return -gather(share(at, epsilon, log_p))


def _others(at: Array, epsilon: float, log_p: Array) -> Array:
    return (1 - epsilon) * at + epsilon * (log_p.sum(axis=-1) - at) / (log_p.shape[-1] - 1)


SMOOTHED: dict[str, tuple[Options, ...]] = {
    "LS-IGNORED": ({"share": lambda at, epsilon, log_p: at},),
    "LS-NOT-DIVIDED": ({"share": lambda at, epsilon, log_p: (1 - epsilon) * at + epsilon * log_p.sum(-1)},),
    "LS-OTHERS-ONLY": ({"share": _others},),
    "LS-TARGET-WHOLE": ({"share": lambda at, epsilon, log_p: at + epsilon * log_p.mean(axis=-1)},),
    "LS-NO-SPREAD": ({"share": lambda at, epsilon, log_p: (1 - epsilon) * at},),
    "CE-SUM": ({"gather": np.sum},),
    "CE-SIGN": ({"gather": lambda losses: -losses.mean()},),
}


# --- since 2017: RMSNorm, a gate, shared key heads, RoPE in attention, kept keys, drawing a token -----


def rms_norm(
    x: Array,
    gamma: Array,
    eps: float,
    *,
    above: bool = False,
    below: bool = False,
    spread: Callable[[Array, float], Array] = _std,
    axis: Axis = -1,
    gather: Callable[..., Array] = np.mean,
    uses_gamma: bool = True,
) -> Array:
    """gamma x / √(mean x² + eps), or what the options make of it: a mean taken off above or below."""
    mean = x.mean(axis=axis, keepdims=True)
    squares = gather((x - below * mean) ** 2, axis=axis, keepdims=True)
    return (x - above * mean) / spread(squares, eps) * (gamma if uses_gamma else 1.0)


RMS_NORM: dict[str, tuple[Options, ...]] = {
    "RMS-MEAN-TAKEN": _either("above", "below", True),
    "RMS-EPS-OUTSIDE": ({"spread": _std_and_eps},),
    "RMS-NO-ROOT": ({"spread": lambda squares, eps: squares + eps},),
    "RMS-SUM": ({"gather": np.sum},),
    "RMS-AXIS": _NO_FEATURES,
    "RMS-GLOBAL": _MANY_TOKENS,
    "RMS-NO-GAMMA": ({"uses_gamma": False},),
}


def _sigmoid(z: Array) -> Array:
    return 1 / (1 + np.exp(-z))


def silu(z: Array) -> Array:
    """z times its sigmoid."""
    return z * _sigmoid(z)


Join: TypeAlias = Callable[[Array, Array], Array]


def gated(
    x: Array, W_gate: Array, W_up: Array, W_down: Array, *, join: Join = lambda g, u: silu(g) * u
) -> Array:
    """(SiLU(x W_gate) · (x W_up)) W_down, or what the option makes of it."""
    return join(x @ W_gate, x @ W_up) @ W_down


def _opened_by(activation: Callable[[Array], Array]) -> Join:
    return lambda g, u: activation(g) * u


GATED: dict[str, tuple[Options, ...]] = {
    "GATE-EXCHANGED": ({"join": lambda g, u: g * silu(u)},),
    "GATE-SIGMOID": ({"join": _opened_by(_sigmoid)},),
    "GATE-OTHER-BEND": tuple(
        {"join": _opened_by(f)} for f in (_relu, *ACTIVATIONS["FFN-GELU"], *ACTIVATIONS["FFN-TANH"])
    ),
    "GATE-NO-BEND": ({"join": lambda g, u: g * u},),
    "GATE-BOTH-BENT": ({"join": lambda g, u: silu(g) * silu(u)},),
    "GATE-BENT-AFTER": ({"join": lambda g, u: silu(g * u)},),
    "GATE-ADDED": ({"join": lambda g, u: silu(g) + u},),
}


def repeated(heads: Array, times: int) -> Array:
    """Each key head for its own neighbouring query heads: 0, 0, 1, 1."""
    return np.repeat(heads, times, axis=0)


def tiled(heads: Array, times: int) -> Array:
    """All key heads, again and again: 0, 1, 0, 1."""
    return np.concatenate([heads] * times)


def _first(heads: Array, times: int) -> Array:
    return heads[[0] * (times * len(heads))]


Spread: TypeAlias = Callable[[Array, int], Array]


def grouped_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    spread_k: Spread = repeated,
    spread_v: Spread = repeated,
    scale: Callable[[int], float] = lambda d_k: d_k**-0.5,
) -> Array:
    """Attention of h query heads to fewer key heads, or what the options make of it."""
    times = len(q) // len(k)
    return attention(q, spread_k(k, times), spread_v(v, times), scale=scale)


GROUPED: dict[str, tuple[Options, ...]] = {
    "KV-TILED": _either("spread_k", "spread_v", tiled),
    "KV-FIRST-ONLY": _either("spread_k", "spread_v", _first),
    "AT-NO-SCALE": ATTENTION["AT-NO-SCALE"],
    "AT-SCALE-DK": ATTENTION["AT-SCALE-DK"],
}


def rope_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    turns: tuple[bool, bool, bool] = (True, True, False),
    scale: Callable[[int], float] = lambda d_k: d_k**-0.5,
    **options: Any,
) -> Array:
    """Attention to keys that RoPE has turned, as the queries; or what the options make of it."""
    q, k, v = (rope(x, **options) if turned else x for x, turned in zip((q, k, v), turns, strict=True))
    return attention(q, k, v, scale=scale)


ROPE_ATTENTION: dict[str, tuple[Options, ...]] = {
    "ROPE-ON-VALUES": ({"turns": (True, True, True)},),
    "ROPE-ONE-SIDE": ({"turns": (True, False, False)}, {"turns": (False, True, False)}),
    **{code: ROPE[code] for code in ("ROPE-SIGN", "ROPE-HALVES", "ROPE-EXP-NO-2", "ROPE-EXP-DOUBLED")},
    "AT-NO-SCALE": ATTENTION["AT-NO-SCALE"],
    "AT-SCALE-DK": ATTENTION["AT-SCALE-DK"],
}


def kept_mask(n: int, kept: int, *, offset: int = 0, forgets: bool = False, without: bool = False) -> Array:
    """(n, kept + n): what n more tokens may see, kept earlier ones included; or what the options make."""
    i, j = np.arange(n)[:, None], np.arange(n if without else kept + n)
    return j <= i + offset + (0 if forgets or without else kept)


KEPT_MASK: dict[str, tuple[Options, ...]] = {
    "KEPT-MASK-AHEAD": ({"offset": 1},),
    "KEPT-MASK-NOT-ITSELF": ({"offset": -1},),
    "KEPT-MASK-FROM-0": ({"forgets": True},),
    "KEPT-MASK-NEW-ONLY": ({"without": True},),
}


def with_temperature(
    logits: Array,
    temperature: float,
    *,
    before: Callable[[Array, float], Array] = lambda z, t: z / t,
    after: Callable[[Array, float], Array] = lambda p, t: p,
    axis: Axis = -1,
) -> Array:
    """softmax(logits / temperature), or what the options make of it."""
    return after(softmax(before(logits, temperature), axis=axis), temperature)


def _unchanged(z: Array, t: float) -> Array:
    return z


TEMPERATURE: dict[str, tuple[Options, ...]] = {
    "TEMP-AFTER-SOFTMAX": (
        {"before": _unchanged, "after": lambda p, t: p / t},
        {"before": _unchanged, "after": lambda p, t: softmax(p / t)},
    ),
    "TEMP-MULTIPLIED": ({"before": lambda z, t: z * t},),
    "SM-AXIS": ({"axis": 0},),
    "SM-GLOBAL-SUM": ({"axis": None},),
}


def top_p(
    p: Array,
    share: float,
    *,
    stays: Callable[[Array, Array, float], Array] = lambda falling, sums, share: sums - falling < share,
    sort: bool = True,
    divide: bool = True,
) -> Array:
    """The fewest likeliest tokens that have this share together, as new probabilities; or what else."""
    order = np.argsort(-p) if sort else np.arange(len(p))
    kept = np.zeros_like(p)
    left = order[stays(p[order], np.cumsum(p[order]), share)]
    kept[left] = p[left]
    return kept / kept.sum() if divide else kept


def _without_the_last(falling: Array, sums: Array, share: float) -> Array:
    return sums <= share


def _at_least_one(falling: Array, sums: Array, share: float) -> Array:
    return (sums <= share) | (np.arange(len(sums)) == 0)


TOP_P: dict[str, tuple[Options, ...]] = {
    "TOP-P-LAST-DROPPED": ({"stays": _without_the_last}, {"stays": _at_least_one}),
    "TOP-P-NOT-DIVIDED": ({"divide": False},),
    "TOP-P-UNSORTED": ({"sort": False},),
    "TOP-P-AS-LIMIT": (
        {"stays": lambda falling, sums, share: falling >= share},
        {"stays": lambda falling, sums, share: falling >= 1 - share},
    ),
}
