"""Gradient descent, Adam and the paper's learning rate, over trees of parameters."""

from typing import Any, NamedTuple

import numpy as np  # noqa: F401  # for the examples

from npformer.arrays import Array, array_module
from npformer.tree import refilled, together, tree_map
from npformer.validation.annotations import Count, Length, NonNegative, Rate
from npformer.validation.rules import FloatTree, Gradients, LikeParams


def sgd_update(params: Any, grads: LikeParams, *, learning_rate: NonNegative) -> Any:
    """params - learning_rate · grads, leaf by leaf, as a new tree.

    >>> sgd_update((np.ones(2),), (np.ones(2),), learning_rate=0.5)
    (array([0.5, 0.5]),)
    """
    rate = float(learning_rate)  # a NumPy scalar would turn float32 into float64
    return tree_map(lambda p, g: array_module(p).asanyarray(p - rate * g), params, grads)


class AdamState(NamedTuple):
    """What Adam remembers between updates."""

    step: Length  # updates made so far
    m: LikeParams  # running mean of the gradients
    v: LikeParams  # running mean of their squares


def adam_init(params: FloatTree) -> AdamState:
    """The state before the first update: step 0 and two trees of zeros like params.

    >>> adam_init((np.ones(2),))
    AdamState(step=0, m=(array([0., 0.]),), v=(array([0., 0.]),))
    """
    return AdamState(0, *(tree_map(lambda p: array_module(p).zeros_like(p), params) for _ in range(2)))


def adam_update(
    params: Any,
    grads: Gradients,
    state: AdamState,
    *,
    learning_rate: NonNegative,
    beta_1: Rate = 0.9,
    beta_2: Rate = 0.98,
    eps: NonNegative = 1e-9,
    weight_decay: NonNegative = 0.0,
) -> tuple[Any, AdamState]:
    """m = β₁ m + (1 - β₁) g, v = β₂ v + (1 - β₂) g², p = p - η (m̂ / (√v̂ + eps) + weight_decay p); new trees.

    Kingma and Ba, "Adam", 2015, algorithm 1, with m̂ = m / (1 - β₁ᵗ) and v̂ = v / (1 - β₂ᵗ); the defaults are
    those of "Attention Is All You Need", section 5.3. The decay is decoupled from the gradient (Loshchilov
    and Hutter, "AdamW", 2019).

    A gradient that holds NaN or infinity is refused by the name of its leaf (on NumPy arrays only).

    >>> params, state = adam_update((np.ones(1),), (np.ones(1),), adam_init((np.ones(1),)), learning_rate=0.1)
    >>> params[0].round(6), state.step
    (array([0.9]), 1)
    """
    t, rate, decay = state.step + 1, float(learning_rate), float(weight_decay)
    beta_1, beta_2, eps = float(beta_1), float(beta_2), float(eps)  # NumPy's numbers would widen float32

    def updated(p: Array, g: Array, m: Array, v: Array) -> list[Array]:
        xp = array_module(p)
        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * (g * g)
        m_hat, v_hat = m / (1 - beta_1**t), v / (1 - beta_2**t)
        update = rate * m_hat / (xp.sqrt(v_hat) + (eps if eps > 0 else v == 0))  # 0/1 in place of 0/0
        if decay:
            update += rate * decay * p
        return [xp.asanyarray(array) for array in (p - update, m, v)]  # of 0-d arrays NumPy makes numbers

    leaves = [updated(*arrays) for _, arrays in together("adam_update", params, grads, state.m, state.v)]
    params, m, v = (refilled(params, iter([leaf[i] for leaf in leaves])) for i in range(3))
    return params, AdamState(t, m, v)


def warmup_learning_rate(step: Count, d_model: Count, *, warmup_steps: Count = 4000) -> float:
    """d_model^-½ · min(step^-½, step · warmup_steps^-1½) for step 1, 2, …

    "Attention Is All You Need", equation 3. It rises in a straight line for warmup_steps steps and falls
    as 1/√step after.

    >>> round(warmup_learning_rate(4000, 512), 6)
    0.000699
    """
    return float(d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))
