"""Softmax, attention, heads, embedding, loss and block written wrongly, as `positions` and `networks` do."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from npformer.backend import Array
from npformer.exercises.positions import Options

Axis: TypeAlias = "int | tuple[int, ...] | None"


def softmax(scores: Array, *, axis: Axis = -1, stable: bool = True) -> Array:
    """e^scores / Σ e^scores along one axis, or what the options make of it."""
    shifted = scores - scores.max(axis=axis, keepdims=True) if stable else scores
    powers = np.exp(shifted)
    return powers / powers.sum(axis=axis, keepdims=True)


SOFTMAX_FORWARD: dict[str, tuple[Options, ...]] = {
    "SM-AXIS": ({"axis": -2}, {"axis": 0}),
    "SM-GLOBAL-SUM": ({"axis": None},),
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
    "AT-MASK-TIMES": ({"hide": lambda scores, mask: scores * mask},),
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


def embedding(ids: Array, E: Array, *, scaled: bool = True) -> Array:
    """E[ids] √d_model, or without the root."""
    return E[ids] * (E.shape[-1] ** 0.5 if scaled else 1.0)


EMBEDDING: dict[str, tuple[Options, ...]] = {"EMB-NO-SCALE": ({"scaled": False},)}


def cross_entropy(logits: Array, targets: Array, *, twice: bool = False) -> Array:
    """The mean of -log p[target], or the same for a softmax taken twice."""
    p = softmax(softmax(logits) if twice else logits)
    return -np.log(np.take_along_axis(p, targets[..., None], axis=-1)).mean()


CROSS_ENTROPY: dict[str, tuple[Options, ...]] = {"CE-DOUBLE-SOFTMAX": ({"twice": True},)}

Layer: TypeAlias = Callable[[Array], Array]


def block(x: Array, attend: Layer, norm_1: Layer, ffn: Layer, norm_2: Layer, *, kind: str = "post") -> Array:
    """norm_2(h + ffn(h)) with h = norm_1(x + attend(x)), or another placement of the norms."""
    if kind == "post":
        h = norm_1(x + attend(x))
        return norm_2(h + ffn(h))
    n = norm_1(x)
    h = (x if kind == "pre" else n) + attend(n)
    n = norm_2(h)
    return (h if kind == "pre" else n) + ffn(n)


BLOCK: dict[str, tuple[Options, ...]] = {
    "BLOCK-PRE-FOR-POST": ({"kind": "pre"},),
    "BLOCK-RESIDUAL-NORMED": ({"kind": "normed"},),
}
