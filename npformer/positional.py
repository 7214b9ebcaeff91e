"""Where a token stands, as numbers: sinusoids, learned positions, RoPE, ALiBi."""

import math
from types import ModuleType
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.validation.annotations import (
    Count,
    DType,
    Finite,
    Float,
    Integer,
    Length,
    Numbers,
    Positive,
    Shape,
)
from npformer.validation.rules import EVEN, ROWS  # what an argument must be beside its shape

Layout = Literal["interleaved", "halves"]


def angular_frequencies(d_model: Count, *, base: Positive = 10000.0) -> Float[Array, "pairs"]:
    """ω_i = base^(-2i/d_model) for the pairs i = 0, 1, …, ceil(d_model/2) of them, in radians a position.

    "Attention Is All You Need", section 3.5. The pair i owns the columns 2i (sine) and 2i+1 (cosine).

    >>> angular_frequencies(4)
    array([1.  , 0.01])
    """
    exponents = np.arange(0, -d_model, -2, dtype=float) / d_model  # -2i/d_model: (pairs,)
    return float(base) ** exponents


def wavelengths(d_model: Count, *, base: Positive = 10000.0) -> Float[Array, "pairs"]:
    """λ_i = 2π base^(2i/d_model): how many positions one full turn of pair i takes.

    The longest is 2π base^((d_model-2)/d_model), short of the 2π base that section 3.5 names: 100 · 2π at
    d_model = 4, 9647 · 2π at 512.

    >>> wavelengths(4).round(2)
    array([  6.28, 628.32])
    """
    return 2 * math.pi / angular_frequencies(d_model, base=base)


def positional_encoding(
    n: Length,
    d_model: Count,
    *,
    base: Positive = 10000.0,
    start: Integer = 0,
    layout: Layout = "interleaved",
    dtype: DType = np.float64,
    xp: ModuleType = np,
) -> Float[Array, "n d_model"]:
    """PE[p, 2i] = sin(p ω_i), PE[p, 2i+1] = cos(p ω_i) for p = start … start+n-1.

    "Attention Is All You Need", section 3.5. layout="halves" puts all sines first. An odd d_model drops
    the last cosine. The first 64 rows are the formula. The rest, faster, is the paper's remark that PE[p+k]
    is linear in PE[p]: with cos pω + i sin pω = e^(ipω), k positions further is times e^(ikω).

    >>> positional_encoding(3, 4).round(3)
    array([[ 0.   ,  1.   ,  0.   ,  1.   ],
           [ 0.841,  0.54 ,  0.01 ,  1.   ],
           [ 0.909, -0.416,  0.02 ,  1.   ]])
    """
    table, half = xp.empty((n, d_model), dtype), d_model // 2
    sines, cosines = table[:, 0::2], table[:, 1::2]  # (n, pairs), (n, half)
    if layout == "halves":
        sines, cosines = table[:, : d_model - half], table[:, d_model - half :]
    omega = xp.asarray(angular_frequencies(d_model, base=base))  # (pairs,)
    p = xp.arange(start, start + n)[:64, None]  # (64, 1) at most
    angles = p.dot(omega[None])  # p ω_i, a column times a row: (64, pairs) at most
    s, c = xp.sin(angles), xp.cos(angles)
    sines[:64], cosines[:64] = s, c[:, :half]
    if n > 64:
        turns = c + 1j * s  # e^(ipω)
        for k in range(64, n, 64):
            moved = turns[: n - k] * xp.exp(1j * k * omega)  # k positions further on
            sines[k : k + 64], cosines[k : k + 64] = moved.imag, moved.real[:, :half]
    return table


def shift_matrix(
    k: Finite, d_model: Annotated[Count, EVEN], *, base: Positive = 10000.0
) -> Float[Array, "d_model d_model"]:
    """M with PE[p+k] = PE[p] @ M for every p, in the interleaved layout.

    "Attention Is All You Need", section 3.5: one 2 × 2 rotation by k ω_i for each pair on the diagonal,
    [[cos, -sin], [sin, cos]]. k may be negative or fractional; d_model is even.

    >>> bool(np.allclose(positional_encoding(3, 4)[0] @ shift_matrix(2, 4), positional_encoding(3, 4)[2]))
    True
    """
    angles = float(k) * angular_frequencies(d_model, base=base)  # (pairs,)
    even = np.arange(0, d_model, 2)
    M = np.zeros((d_model, d_model))
    M[even, even] = M[even + 1, even + 1] = np.cos(angles)
    M[even, even + 1] = -np.sin(angles)
    M[even + 1, even] = np.sin(angles)
    return M


class LearnedPositionsParams(NamedTuple):
    """One trained row for each position, up to max_length of them."""

    P: Float[Array, "max_length d_model"]


class LearnedPositionsCache(NamedTuple):
    shape: Shape[tuple[int, ...], "... T d_model"]  # of x
    P: Float[Array, "max_length d_model"]


def learned_positions_forward(
    x: Float[Array, "... T d_model", ROWS], params: LearnedPositionsParams
) -> tuple[Float[Array, "... T d_model"], LearnedPositionsCache]:
    """y = x + P[:T], one trained row a position: the alternative of the paper's Table 3, row (E).

    >>> learned_positions_forward(np.ones((1, 2)), LearnedPositionsParams(np.ones((5, 2))))[0]
    array([[2., 2.]])
    """
    return x + params.P[: x.shape[-2]], LearnedPositionsCache(x.shape, params.P)


def learned_positions_backward(
    dy: Float[Array, "... T d_model"], cache: LearnedPositionsCache
) -> tuple[Float[Array, "... T d_model"], LearnedPositionsParams]:
    """dx = dy, dP[:T] = Σ dy over the batch, and zero beyond T.

    >>> y, cache = learned_positions_forward(np.ones((3, 1, 2)), LearnedPositionsParams(np.ones((2, 2))))
    >>> learned_positions_backward(y, cache)[1].P
    array([[6., 6.],
           [0., 0.]])
    """
    dP = array_module(dy).zeros_like(cache.P)
    dP[: dy.shape[-2]] = dy.sum(axis=tuple(range(dy.ndim - 2)))  # y = x + P[:T]: (T, d_model)
    return dy, LearnedPositionsParams(dP)


class RoPECache(NamedTuple):
    cos: Float[Array, "T pairs"]
    sin: Float[Array, "T pairs"]
    layout: str
    shape: Shape[tuple[int, ...], "... T d"]


def rope_forward(
    x: Float[Array, "... T d", EVEN],
    *,
    positions: Numbers[Array, "T"] | None = None,
    base: Positive = 10000.0,
    layout: Layout = "interleaved",
) -> tuple[Float[Array, "... T d"], RoPECache]:
    """Turn each pair (a, b) of x at position p by p ω_i: (a cos - b sin, a sin + b cos).

    Su et al., "RoFormer", 2021, equation 34: the product of a turned query and a turned key depends on
    their positions' difference only. A pair is two neighbours, or with layout="halves" the columns i and
    i + d/2. positions are 0 … T-1 unless given; d is even.

    >>> rope_forward(np.array([[1.0, 0.0], [1.0, 0.0]]))[0].round(3)
    array([[1.   , 0.   ],
           [0.54 , 0.841]])
    """
    xp, (T, d) = array_module(x), x.shape[-2:]
    positions = xp.arange(T) if positions is None else positions
    cos, sin = rope_turn(positions, d, base, x.dtype)  # (T, pairs)
    return rotate(x, cos, sin, layout), RoPECache(cos, sin, layout, x.shape)


def rope_backward(dy: Float[Array, "... T d"], cache: RoPECache) -> Float[Array, "... T d"]:
    """dx is dy turned back by the same angles: a rotation's inverse is its transpose.

    >>> y, cache = rope_forward(np.eye(2))
    >>> rope_backward(y, cache).round(9) + 0.0
    array([[1., 0.],
           [0., 1.]])
    """
    return rotate(dy, cache.cos, -cache.sin, cache.layout)


def rope_turn(positions: Array, d: int, base: float, dtype: Any) -> tuple[Array, Array]:
    """cos and sin of p ω_i, the angles taken in float64: positions (T,) -> twice (T, pairs)."""
    xp = array_module(positions)
    angles = positions[:, None] * xp.asarray(angular_frequencies(d, base=base))  # (T, pairs)
    return xp.cos(angles).astype(dtype), xp.sin(angles).astype(dtype)


def rotate(x: Array, cos: Array, sin: Array, layout: str = "interleaved") -> Array:
    """Each pair (a, b) of x to (a cos - b sin, a sin + b cos)."""
    half = x.shape[-1] // 2
    first, second = slice(0, None, 2), slice(1, None, 2)
    if layout == "halves":
        first, second = slice(None, half), slice(half, None)
    a, b = x[..., first], x[..., second]  # (..., T, pairs)
    y = array_module(x).empty_like(x)
    y[..., first] = a * cos - b * sin
    y[..., second] = a * sin + b * cos
    return y


def alibi_bias(
    n_heads: Count, T_q: Length, T_k: Length, *, dtype: DType = np.float64, xp: ModuleType = np
) -> Float[Array, "n_heads T_q T_k"]:
    """bias[h, i, j] = -m_h |i - j|, which is added to the scores.

    Press et al., "Train Short, Test Long", 2022. For n heads, n a power of two, the slopes m are
    2^(-8/n), 2^(-16/n), …; for another n, those of the power of two below it and then every other slope
    of the next one. The last query stands at the last key (bottom-right), as in `causal_mask`.

    >>> alibi_bias(8, 1, 3)[0]
    array([[-1. , -0.5, -0. ]])
    """
    slopes = xp.asarray(_alibi_slopes(n_heads)).reshape(n_heads, 1, 1)
    query_at = xp.arange(T_q)[:, None] + (T_k - T_q)  # (T_q, 1)
    return (-slopes * abs(query_at - xp.arange(T_k))).astype(dtype)  # (n_heads, T_q, T_k)


def _alibi_slopes(n_heads: int) -> Array:
    power = 2 ** (n_heads.bit_length() - 1)  # the power of two at or below n_heads
    slopes = 2.0 ** (-8 / power * np.arange(1, power + 1))
    every_other = np.arange(1, 2 * (n_heads - power), 2)  # of the slopes for 2 · power heads
    between = 2.0 ** (-4 / power * every_other)
    return np.concatenate([slopes, between])
