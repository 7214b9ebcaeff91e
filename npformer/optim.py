"""Gradient descent, Adam and the learning rate of the paper, for trees of parameters."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.tree import Tree, replace_branches, tree_map
from npformer.validation.annotations import Count, Length, NonNegative, Rate
from npformer.validation.rules import FLOAT_TREE, FloatTree, Gradients, LikeParams


def sgd_update(params: Annotated[Tree, FLOAT_TREE], grads: LikeParams, *, learning_rate: NonNegative) -> Tree:
    """p = p - learning_rate · g for each array p of params and its gradient g. The result is a new tree.

    Parameters
    ----------
    params : tree of float arrays
    grads : tree of the same form
        The gradient of each parameter.
    learning_rate : float, learning_rate >= 0

    Returns
    -------
    params : tree of the same form

    Examples
    --------
    >>> sgd_update((np.ones(2),), (np.ones(2),), learning_rate=0.5)
    (array([0.5, 0.5]),)
    """
    rate = float(learning_rate)  # A NumPy scalar would turn float32 into float64.

    def update(p: Array, g: Array) -> Array:
        return array_module(p).asanyarray(p - rate * g)

    return tree_map(update, params, grads)


class AdamState(NamedTuple):
    """The numbers that Adam keeps from one update to the next."""

    step: Length  # the number of updates so far
    m: LikeParams  # running mean of the gradients
    v: LikeParams  # running mean of the squared gradients


def adam_init(params: FloatTree) -> AdamState:
    """step = 0, m = 0, v = 0: the state before the first update.

    Parameters
    ----------
    params : tree of float arrays

    Returns
    -------
    state : AdamState
        m and v are trees of the same form as params.

    Examples
    --------
    >>> adam_init((np.ones(2),))
    AdamState(step=0, m=(array([0., 0.]),), v=(array([0., 0.]),))
    """

    def zeros(p: Array) -> Array:
        return array_module(p).zeros_like(p)

    return AdamState(0, tree_map(zeros, params), tree_map(zeros, params))


class AdamSettings(NamedTuple):
    """The numbers of one Adam update. NumPy scalars would turn float32 into float64, so there are none."""

    rate: Any  # η
    beta_1: Any
    beta_2: Any
    rest_1: Any  # 1 - β₁
    rest_2: Any  # 1 - β₂
    correction_1: Any  # 1 - β₁ᵗ for update t, from 1
    correction_2: Any  # 1 - β₂ᵗ
    eps: Any
    decay: Any  # η weight_decay


@lru_cache(maxsize=2)  # one entry for each dtype
def _in_dtype(settings: AdamSettings, dtype: Any) -> AdamSettings:
    """Return the settings as arrays without axes, which NumPy multiplies faster than Python numbers."""
    return AdamSettings(*(np.asarray(number, dtype) for number in settings))


def adam_update(
    params: Annotated[Tree, FLOAT_TREE],
    grads: Gradients,
    state: AdamState,
    *,
    learning_rate: NonNegative,
    beta_1: Rate = 0.9,
    beta_2: Rate = 0.98,
    eps: NonNegative = 1e-9,
    weight_decay: NonNegative = 0.0,
) -> tuple[Tree, AdamState]:
    """m = β₁ m + (1 - β₁) g, v = β₂ v + (1 - β₂) g², p = p - η (m̂ / (√v̂ + eps) + weight_decay p).

    Here m̂ = m / (1 - β₁ᵗ) and v̂ = v / (1 - β₂ᵗ), where t is the number of the update. Kingma and Ba, "Adam",
    2015, algorithm 1. The defaults are those of "Attention Is All You Need", section 5.3. The weight decay is
    decoupled from the gradient: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019.

    Parameters
    ----------
    params : tree of float arrays
    grads : tree of the same form
        The gradient of each parameter. NaN and infinity raise ValueError, for NumPy arrays only.
    state : AdamState
        The result of ``adam_init`` or of the previous update.
    learning_rate : float, learning_rate >= 0
        η in the equation.
    beta_1 : float, 0 <= beta_1 < 1
        The decay rate β₁ of m.
    beta_2 : float, 0 <= beta_2 < 1
        The decay rate β₂ of v.
    eps : float, eps >= 0
        A small number that prevents a division by 0.
    weight_decay : float, weight_decay >= 0

    Returns
    -------
    params : tree of the same form
        A new tree.
    state : AdamState
        The state for the next update.

    Examples
    --------
    >>> params, state = adam_update((np.ones(1),), (np.ones(1),), adam_init((np.ones(1),)), learning_rate=0.1)
    >>> params[0].round(6), state.step
    (array([0.9]), 1)
    """
    t = state.step + 1
    rate, beta_1, beta_2 = float(learning_rate), float(beta_1), float(beta_2)
    corrections = 1 - beta_1**t, 1 - beta_2**t
    decay = rate * float(weight_decay)
    settings = AdamSettings(rate, beta_1, beta_2, 1 - beta_1, 1 - beta_2, *corrections, float(eps), decay)
    new_params, m, v = _adam_update_tree(params, grads, state.m, state.v, settings)
    return new_params, AdamState(t, m, v)


def _adam_update_tree(p: Any, g: Any, m: Any, v: Any, settings: AdamSettings) -> tuple[Any, Any, Any]:
    """Return the new p, m and v of a tree of parameters. The trees have the same form."""
    if p is None:
        return None, None, None
    if not isinstance(p, tuple):
        return _adam_update_array(p, g, m, v, settings)
    updated = [_adam_update_tree(*branches, settings) for branches in zip(p, g, m, v, strict=True)]
    new_p, new_m, new_v = zip(*updated, strict=True) if updated else ((), (), ())
    return replace_branches(p, new_p), replace_branches(p, new_m), replace_branches(p, new_v)


def _adam_update_array(
    p: Array, g: Array, m: Array, v: Array, settings: AdamSettings
) -> tuple[Array, Array, Array]:
    """Return the new p, m and v of one array of parameters.

    The lines with += and *= write into arrays that this function has made itself, which saves memory.
    """
    xp = array_module(p)
    if xp is np:
        settings = _in_dtype(settings, p.dtype)
    rate, beta_1, beta_2, rest_1, rest_2, correction_1, correction_2, eps, decay = settings
    m = beta_1 * m
    m += rest_1 * g
    v = beta_2 * v
    v += rest_2 * (g * g)
    denominator = xp.sqrt(v / correction_2)  # √v̂
    if eps:  # eps > 0 would take 25 times as long with an array
        denominator += eps
    else:
        denominator += v == 0  # If v is 0, m is 0 too. The result is then 0/1 instead of 0/0.
    update = m / correction_1  # m̂
    update *= rate
    update /= denominator
    if decay:
        update += decay * p
    p = p - update
    if p.ndim == 0:  # NumPy turns the results for 0-d arrays into scalars.
        return xp.asanyarray(p), xp.asanyarray(m), xp.asanyarray(v)
    return p, m, v


def warmup_learning_rate(step: Count, d_model: Count, *, warmup_steps: Count = 4000) -> float:
    """η = d_model^-½ · min(step^-½, step · warmup_steps^-1½).

    "Attention Is All You Need", equation 3. The rate increases linearly for warmup_steps steps, and then
    decreases as 1/√step.

    Parameters
    ----------
    step : int
        The number of the update: 1, 2, …
    d_model : int
        The number of columns of the model.
    warmup_steps : int

    Returns
    -------
    learning_rate : float

    Examples
    --------
    >>> round(warmup_learning_rate(4000, 512), 6)
    0.000699
    """
    return float(d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))
