"""Two questions for a model that does not learn: does order matter to it, are its representations flat?"""

from collections.abc import Callable

import numpy as np

from npformer.arrays import Array, array_module
from npformer.functional import as_rows
from npformer.validation.annotations import Float, Rng
from npformer.validation.checks import check_callable, check_float


def order_sensitivity(f: Callable[[Array], Array], x: Float[Array, "... T d"], rng: Rng) -> float:
    """max |f(P x) - P f(x)| / max |f(x)| for a random reordering P of the positions.

    0 (to rounding) says that f treats its rows as a bag: it cannot tell "dog bites man" from "man bites
    dog". `f` maps (..., T, d) to (..., T, anything) and adds the positions itself if it has any.

    Raises ValueError when there are fewer than two positions, or when f(x) has other ones.

    >>> order_sensitivity(np.tanh, np.eye(3), np.random.default_rng(0))
    0.0
    """
    check_callable("order_sensitivity", "f", f)
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


def token_similarity(x: Float[Array, "... T d"]) -> Float[Array, "... T T"]:
    """The cosine between every two rows, x_i · x_j / (|x_i| |x_j|).

    Off the diagonal near 1 everywhere, the representations are flat: every token says the same. A row of
    zeros is like nothing: its cosines are 0.

    >>> token_similarity(np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]]))[0]
    array([1., 1., 0.])
    """
    length = array_module(x).sqrt((x * x).sum(axis=-1, keepdims=True))  # (..., T, 1)
    unit = x / (length + (length == 0))
    similarity: Array = unit @ unit.swapaxes(-1, -2)  # (..., T, T)
    return similarity


def dead_units(hidden: Float[Array, "... d_ff"]) -> Array:
    """True for a hidden unit that is 0 for every token, after ReLU: (d_ff,).

    A dead unit gets no gradient from these tokens, so it stays dead while they come. Raises ValueError when
    there is no token.

    >>> dead_units(np.array([[0.0, 1.0], [0.0, 0.0]]))
    array([ True, False])
    """
    if hidden.size == 0:
        raise ValueError(f"dead_units: hidden has shape {hidden.shape}; expected at least one token")
    dead: Array = (as_rows(hidden) == 0).all(axis=0)  # (d_ff,)
    return dead
