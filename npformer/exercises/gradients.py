"""A student's backward pass against differences of the forward pass, in one sentence."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from npformer.backend import Array
from npformer.exercises.evidence import listed, verb
from npformer.exercises.running import TOLERANCE
from npformer.feed_forward import FFNParams, ffn_forward
from npformer.gradcheck import gradcheck
from npformer.layer_norm import LayerNormParams, layer_norm_forward


def _ffn(x: Array, W_1: Array, b_1: Array, W_2: Array, b_2: Array) -> tuple[Array, tuple[Array, ...]]:
    return ffn_forward(x, FFNParams(W_1, b_1, W_2, b_2))[0], (x, W_1, b_1, W_2, b_2)


def _layer_norm(x: Array, gamma: Array, beta: Array) -> tuple[Array, tuple[Any, ...]]:
    return layer_norm_forward(x, LayerNormParams(gamma, beta), eps=0.1)[0], (x, gamma, beta, 0.1)


FORWARDS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], tuple[str, ...]]] = {
    "ffn.backward": (_ffn, ((2, 2, 3), (3, 4), (4,), (4, 3), (3,)), ("dx", "dW_1", "db_1", "dW_2", "db_2")),
    "layer_norm.backward": (_layer_norm, ((2, 2, 4), (4,), (4,)), ("dx", "dgamma", "dbeta")),
}


def compared(exercise_id: str, function: Callable[..., Any]) -> str:
    """Which gradients agree with differences of the forward pass; "" where that cannot be said."""
    if exercise_id not in FORWARDS:
        return ""
    forward, shapes, names = FORWARDS[exercise_id]
    rng = np.random.default_rng(7)
    args = [1 + rng.normal(size=shape) for shape in shapes]

    def backward(dy: Array, cache: tuple[Any, ...]) -> tuple[Array, ...]:
        given = [np.array(part) if isinstance(part, np.ndarray) else part for part in cache]
        gradients = function(dy.copy(), *given)
        if not isinstance(gradients, tuple | list) or len(gradients) != len(names):
            raise TypeError
        return tuple(np.array(gradient, float) for gradient in gradients)

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            rows = gradcheck(forward, backward, *args, tolerance=TOLERANCE).rows
    except (Exception, SystemExit):
        return ""
    agree = [name for name, row in zip(names, rows, strict=True) if row.verdict == "pass"]
    differ = [name for name in names if name not in agree]
    if not agree:
        return ""
    ends = f"; {listed(differ)} {verb(differ, 'differ')}" if differ else ""
    return f"Against differences of the forward pass, {listed(agree)} {verb(agree, 'agree')}{ends}."
