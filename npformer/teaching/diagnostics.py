"""Two questions for a model that does not learn: does order matter to it, are its representations flat?"""

from __future__ import annotations  # np.random.Generator in a signature would import numpy.random

from collections.abc import Callable

import numpy as np

from npformer.backend import Array, array_module
from npformer.functional import as_rows
from npformer.validate import check_array, check_callable, check_float, check_generator


def order_sensitivity(f: Callable[[Array], Array], x: Array, rng: np.random.Generator) -> float:
    """max |f(P x) - P f(x)| / max |f(x)| for a random reordering P of the positions: x (..., T, d) -> number.

    0 (to rounding) says that f treats its rows as a bag: it cannot tell "dog bites man" from "man bites
    dog". `f` maps (..., T, d) to (..., T, anything) and adds the positions itself if it has any.

    Raises TypeError unless x is a float array and rng a Generator, ValueError when there are fewer than two
    positions or f(x) lost them.

    >>> order_sensitivity(np.tanh, np.eye(3), np.random.default_rng(0))
    0.0
    """
    check_callable("order_sensitivity", "f", f)
    check_array("order_sensitivity", "x", x, ("...", "T", "d"), {})
    check_generator("order_sensitivity", rng, required=True)
    T = x.shape[-2]
    if T < 2 or x.size == 0:
        raise ValueError(f"order_sensitivity: x has shape {x.shape}; expected two positions or more")
    y = _applied(f, x)  # (..., T, anything)
    order = rng.permutation(T)
    while (order == np.arange(T)).all():  # a shuffle that changes nothing would prove nothing
        order = rng.permutation(T)
    order = array_module(x).asarray(order)
    moved = abs(_applied(f, x[..., order, :]) - y[..., order, :]).max()
    return float(moved / (abs(y).max() or 1))


def _applied(f: Callable[[Array], Array], x: Array) -> Array:
    y = f(x)
    check_float("order_sensitivity", "f(x)", y)
    if y.ndim != x.ndim or y.shape[:-1] != x.shape[:-1] or y.size == 0:
        raise ValueError(
            f"order_sensitivity: f(x) has shape {y.shape}; expected {x.shape[:-1]} and a last axis"
        )
    return y


def token_similarity(x: Array) -> Array:
    """The cosine between every two rows, x_i · x_j / (|x_i| |x_j|): x (..., T, d) -> (..., T, T).

    Off the diagonal near 1 everywhere, the representations are flat: every token says the same. A row of
    zeros is like nothing: its cosines are 0. Raises TypeError unless x is a float array.

    >>> token_similarity(np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]]))[0]
    array([1., 1., 0.])
    """
    check_array("token_similarity", "x", x, ("...", "T", "d"), {})
    length = array_module(x).sqrt((x * x).sum(axis=-1, keepdims=True))  # (..., T, 1)
    unit = x / (length + (length == 0))
    similarity: Array = unit @ unit.swapaxes(-1, -2)  # (..., T, T)
    return similarity


def dead_units(hidden: Array) -> Array:
    """True for a hidden unit that is 0 for every token: hidden (..., d_ff), after ReLU -> (d_ff,).

    A dead unit gets no gradient from these tokens, so it stays dead while they come. Raises TypeError
    unless hidden is a float array, ValueError when it holds no token.

    >>> dead_units(np.array([[0.0, 1.0], [0.0, 0.0]]))
    array([ True, False])
    """
    check_array("dead_units", "hidden", hidden, ("...", "d_ff"), {})
    if hidden.size == 0:
        raise ValueError(f"dead_units: hidden has shape {hidden.shape}; expected at least one token")
    dead: Array = (as_rows(hidden) == 0).all(axis=0)  # (d_ff,)
    return dead
