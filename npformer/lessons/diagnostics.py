"""Tests for a model that does not learn: order sensitivity, similarity of tokens, dead units."""

from collections.abc import Callable

import numpy as np

from npformer.arrays import Array, array_module
from npformer.functional import as_rows
from npformer.validation.annotations import Float, Rng
from npformer.validation.checks import check_callable, check_float


def order_sensitivity(f: Callable[[Array], Array], x: Float[Array, "... T d"], rng: Rng) -> float:
    """``max |f(P x) - P f(x)| / max |f(x)|`` for a random permutation P of the positions.

    A result of 0 (up to rounding errors) shows that f treats its rows as a bag of words. For such an f, word
    order does not matter: "dog bites man" is the same as "man bites dog".

    Parameters
    ----------
    f : function
        Maps (..., T, d) to (..., T, any width). If the model has positional encodings, f must add them.
    x : float array (..., T, d)
        The input, with at least two positions.
    rng : numpy.random.Generator
        Draws the permutation.

    Returns
    -------
    sensitivity : float

    Raises
    ------
    ValueError
        If there are fewer than two positions, or if the axes of f(x) before the last one differ from those of
        x.

    Examples
    --------
    >>> order_sensitivity(np.tanh, np.eye(3), np.random.default_rng(0))
    0.0
    """
    check_callable("order_sensitivity", "f", f)
    T = x.shape[-2]
    if T < 2 or x.size == 0:
        raise ValueError(f"order_sensitivity: x has shape {x.shape}; expected two positions or more")
    y = _call(f, x)  # (..., T, any width)
    order = rng.permutation(T)
    while (order == np.arange(T)).all():  # draw again: the identity would not change the order
        order = rng.permutation(T)
    order = array_module(x).asarray(order)
    difference = abs(_call(f, x[..., order, :]) - y[..., order, :]).max()
    largest = abs(y).max()
    if largest == 0:
        return float(difference)
    return float(difference / largest)


def _call(f: Callable[[Array], Array], x: Array) -> Array:
    """Return f(x). Raise ValueError if the shapes of f(x) and x differ before the last axis."""
    y = f(x)
    check_float("order_sensitivity", "f(x)", y)
    if y.ndim != x.ndim or y.shape[:-1] != x.shape[:-1] or y.size == 0:
        raise ValueError(
            f"order_sensitivity: f(x) has shape {y.shape}; expected {x.shape[:-1]} and a last axis"
        )
    return y


def token_similarity(x: Float[Array, "... T d"]) -> Float[Array, "... T T"]:
    """The cosine similarity of each pair of rows: ``x_i · x_j / (|x_i| |x_j|)``.

    If all cosines are near 1, the model has nearly the same representation for every token. A row of zeros
    has cosine 0 with every row.

    Parameters
    ----------
    x : float array (..., T, d)

    Returns
    -------
    similarity : float array (..., T, T)

    Examples
    --------
    >>> token_similarity(np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]]))[0]
    array([1., 1., 0.])
    """
    length = array_module(x).sqrt((x * x).sum(axis=-1, keepdims=True))  # (..., T, 1)
    unit = x / (length + (length == 0))
    similarity: Array = unit @ unit.swapaxes(-1, -2)  # (..., T, T)
    return similarity


def dead_units(hidden: Float[Array, "... d_ff"]) -> Array:
    """Return which hidden units are 0 for every token after ReLU.

    A dead unit gets no gradient from these tokens, so training with them does not change it.

    Parameters
    ----------
    hidden : float array (..., d_ff)
        The hidden layer, such as `cache.hidden` of `ffn_forward`.

    Returns
    -------
    dead : boolean array (d_ff,)

    Raises
    ------
    ValueError
        If there is no token.

    Examples
    --------
    >>> dead_units(np.array([[0.0, 1.0], [0.0, 0.0]]))
    array([ True, False])
    """
    if hidden.size == 0:
        raise ValueError(f"dead_units: hidden has shape {hidden.shape}; expected at least one token")
    dead: Array = (as_rows(hidden) == 0).all(axis=0)  # (d_ff,)
    return dead
