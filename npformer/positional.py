"""Where a token stands, as numbers: sinusoids, learned positions, RoPE, ALiBi."""

import math
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array, array_module
from npformer.validate import (
    check_array,
    check_array_module,
    check_choice,
    check_d_output,
    check_dtype,
    check_integer,
    check_kind,
    check_number,
    check_numbers,
    check_params,
)

LAYOUTS = ("interleaved", "halves")


def angular_frequencies(d_model: int, *, base: float = 10000.0) -> Array:
    """ω_i = 1 / base^(2i/d_model) for the pairs i = 0, 1, …: (ceil(d_model/2),), in radians per position.

    "Attention Is All You Need", section 3.5. The pair i owns the columns 2i (sine) and 2i+1 (cosine).
    Raises TypeError or ValueError unless d_model is an integer >= 1 and base finite and > 0.

    >>> angular_frequencies(4)
    array([1.  , 0.01])
    """
    _check_frequencies("angular_frequencies", d_model, base)
    return _frequencies(int(d_model), base)


def _frequencies(d_model: int, base: float) -> Array:
    exponents = np.arange(0, d_model, 2) / d_model  # 2i/d_model
    frequencies: Array = 1 / np.float64(base) ** exponents  # (ceil(d_model/2),)
    return frequencies


def wavelengths(d_model: int, *, base: float = 10000.0) -> Array:
    """λ_i = 2π base^(2i/d_model), how many positions one full turn of pair i takes: (ceil(d_model/2),).

    The longest is 2π base^((d_model-2)/d_model), short of the 2π base that section 3.5 names: 100 · 2π at
    d_model = 4, 9647 · 2π at 512. Raises TypeError or ValueError as `angular_frequencies` does.

    >>> wavelengths(4).round(2)
    array([  6.28, 628.32])
    """
    _check_frequencies("wavelengths", d_model, base)
    return 2 * math.pi / _frequencies(int(d_model), base)


def positional_encoding(
    n: int,
    d_model: int,
    *,
    base: float = 10000.0,
    start: int = 0,
    layout: str = "interleaved",
    dtype: Any = np.float64,
    xp: ModuleType = np,
) -> Array:
    """PE[p, 2i] = sin(p ω_i), PE[p, 2i+1] = cos(p ω_i) for p = start … start+n-1: (n, d_model).

    "Attention Is All You Need", section 3.5. layout="halves" puts all sines first. An odd d_model drops
    the last cosine. The paper's remark that PE[p+k] is linear in PE[p] is the algorithm here: every row is
    an earlier row turned, one complex product a pair, and no sine is taken but those of the turns.

    Raises TypeError or ValueError unless n >= 0, d_model >= 1 and start are integers, base is finite and > 0.

    >>> positional_encoding(3, 4).round(3)
    array([[ 0.   ,  1.   ,  0.   ,  1.   ],
           [ 0.841,  0.54 ,  0.01 ,  1.   ],
           [ 0.909, -0.416,  0.02 ,  1.   ]])
    """
    check_integer("positional_encoding", "n", n, minimum=0)
    check_integer("positional_encoding", "start", start)
    _check_frequencies("positional_encoding", d_model, base)
    check_choice("positional_encoding", "layout", layout, LAYOUTS)
    dtype = check_dtype("positional_encoding", dtype)
    check_array_module("positional_encoding", xp)

    n, d_model, start = int(n), int(d_model), int(start)  # NumPy's small integers would overflow
    omega = xp.asarray(_frequencies(d_model, base))  # (pairs,), ceil(d_model/2) of them
    fine = _clock_hands(min(n, ROWS), omega, xp)  # (rows, pairs), positions 0, 1, … 63
    coarse = _clock_hands(-(-n // ROWS), ROWS * omega, xp)  # positions 0, 64, 128, …
    coarse *= -1j * _turn(start, omega, xp)  # -1j: the product of two hands has the i of both
    table = xp.empty((n, d_model), dtype=dtype)
    _fill(table, fine, coarse, layout, xp)
    return table


ROWS = 64  # rows of the table made at a time: few enough to stay in the processor's cache


def _fill(table: Array, fine: Array, coarse: Array, layout: str, xp: ModuleType) -> None:
    """Row 64 j + p is coarse[j] fine[p], one complex product a pair."""
    in_place = layout == "interleaved" and table.dtype == np.float64 and table.shape[1] % 2 == 0
    room = xp.empty_like(fine)  # for every product: a new array each time would cost more than the product
    for j in range(len(coarse)):
        rows = table[j * ROWS : (j + 1) * ROWS]
        hands = rows.view(np.complex128) if in_place else room[: len(rows)]  # in memory: sin, cos, sin, cos …
        xp.multiply(fine[: len(rows)], coarse[j], out=hands)
        if not in_place:
            _write_pairs(hands, rows, layout)


def _turn(positions: float | Array, omega: Array, xp: ModuleType) -> Array:
    """exp(-i a) for the angles a that each pair turns by in so many positions: (..., pairs)"""
    angles = positions * omega
    return xp.cos(angles) - 1j * xp.sin(angles)  # a complex exp takes four times as long


def _clock_hands(n: int, omega: Array, xp: ModuleType) -> Array:
    """sin a + i cos a = i exp(-i a) for the angles a = p ω, p = 0 … n-1: (n, pairs), complex.

    Filled by doubling: the rows so far, turned on by as many positions, are the next ones. The angles of
    the turns are p ω with p a power of two, which no rounding touches.
    """
    hands = xp.empty((n, len(omega)), dtype=np.complex128)
    hands[:1] = 1j
    doublings = 2.0 ** xp.arange(max(n - 1, 0).bit_length())  # 1, 2, 4, … below n
    for k, turn in enumerate(_turn(doublings[:, None], omega, xp)):
        following = hands[2**k : 2 ** (k + 1)]
        xp.multiply(hands[: len(following)], turn, out=following)
    return hands


def _write_pairs(hands: Array, rows: Array, layout: str) -> None:
    """Real parts are sines, imaginary parts cosines; an odd d_model has no room for the last cosine."""
    d_model = rows.shape[-1]
    if layout == "halves":
        rows[:, : (d_model + 1) // 2] = hands.real
        rows[:, (d_model + 1) // 2 :] = hands.imag[:, : d_model // 2]
    else:
        rows[...] = hands.view(np.float64)[:, :d_model]


def shift_matrix(k: float, d_model: int, *, base: float = 10000.0) -> Array:
    """M with PE[p+k] = PE[p] @ M for every p, in the interleaved layout: (d_model, d_model).

    "Attention Is All You Need", section 3.5: one 2 × 2 rotation by k ω_i for each pair on the diagonal,
    [[cos, -sin], [sin, cos]]. k may be negative or fractional.

    Raises TypeError or ValueError unless k is a finite number, d_model an even integer >= 2, base > 0.

    >>> bool(np.allclose(positional_encoding(3, 4)[0] @ shift_matrix(2, 4), positional_encoding(3, 4)[2]))
    True
    """
    check_number("shift_matrix", "k", k)
    _check_frequencies("shift_matrix", d_model, base)
    _check_even("shift_matrix", "d_model", d_model)

    d_model = int(d_model)
    angles = float(k) * _frequencies(d_model, base)
    even = np.arange(0, d_model, 2)
    M = np.zeros((d_model, d_model))
    M[even, even] = M[even + 1, even + 1] = np.cos(angles)
    M[even, even + 1] = -np.sin(angles)
    M[even + 1, even] = np.sin(angles)
    return M


class LearnedPositionsParams(NamedTuple):
    """One trained row for each position, up to max_length of them."""

    P: Array  # (max_length, d_model)


class LearnedPositionsCache(NamedTuple):
    shape: tuple[int, ...]  # of x
    P: Array


def learned_positions_forward(
    x: Array, params: LearnedPositionsParams
) -> tuple[Array, LearnedPositionsCache]:
    """y = x + P[:T], one trained row a position: x (..., T, d_model), P (max_length, d_model) -> y like x.

    The alternative of the paper's Table 3, row (E). Raises TypeError for other dtypes, ValueError for a
    sequence longer than the table.

    >>> learned_positions_forward(np.ones((1, 2)), LearnedPositionsParams(np.ones((5, 2))))[0]
    array([[2., 2.]])
    """
    function = "learned_positions_forward"
    check_learned(function, "params", params)
    max_length, d_model = params.P.shape
    check_array(function, "x", x, ("...", "T", "d_model"), {"d_model": d_model}, params.P.dtype)
    T = x.shape[-2]
    if T > max_length:
        raise ValueError(
            f"{function}: x has {T} positions; expected at most the table's max_length={max_length}"
        )
    return x + params.P[:T], LearnedPositionsCache(x.shape, params.P)


def learned_positions_backward(
    dy: Array, cache: LearnedPositionsCache
) -> tuple[Array, LearnedPositionsParams]:
    """dx = dy, dP[:T] = Σ dy over the batch, zero beyond T: dy (..., T, d_model) -> dx (..., T, d_model), dP.

    Raises TypeError for another function's cache, ValueError for a dy that has not the output's shape.

    >>> y, cache = learned_positions_forward(np.ones((3, 1, 2)), LearnedPositionsParams(np.ones((2, 2))))
    >>> learned_positions_backward(y, cache)[1].P
    array([[6., 6.],
           [0., 0.]])
    """
    check_kind("learned_positions_backward", "cache", cache, LearnedPositionsCache)
    check_d_output("learned_positions_backward", "dy", dy, cache.shape, cache.P.dtype)
    T, d_model = cache.shape[-2:]
    dP = array_module(dy).zeros_like(cache.P)
    dP[:T] = dy.reshape(math.prod(cache.shape[:-2]), T, d_model).sum(axis=0)  # (T, d_model)
    return dy, LearnedPositionsParams(dP)


def check_learned(
    function: str, argument: str, params: Any, dtype: Any = None, sizes: dict[str, int] | None = None
) -> None:
    """Refuse anything but a table of learned positions, in the model's sizes where these are known."""
    axes = {"P": ("max_length", "d_model")}
    check_params(function, argument, params, LearnedPositionsParams, axes, sizes or {}, dtype)


class RoPECache(NamedTuple):
    cos: Array  # (T, d/2)
    sin: Array
    layout: str
    shape: tuple[int, ...]


def rope_forward(
    x: Array, *, positions: Array | None = None, base: float = 10000.0, layout: str = "interleaved"
) -> tuple[Array, RoPECache]:
    """Turn each pair (a, b) of x at position p by p ω_i: (a cos - b sin, a sin + b cos): x (..., T, d) -> y.

    Su et al., "RoFormer", 2021, equation 34: the product of a turned query and a turned key depends on
    their positions' difference only. A pair is two neighbours, or with layout="halves" the columns i and
    i + d/2. positions (T,) are 0 … T-1 unless given.

    Raises TypeError for other dtypes, ValueError for an odd d or positions of another length.

    >>> rope_forward(np.array([[1.0, 0.0], [1.0, 0.0]]))[0].round(3)
    array([[1.   , 0.   ],
           [0.54 , 0.841]])
    """
    function = "rope_forward"
    check_array(function, "x", x, ("...", "T", "d"), {})
    check_number(function, "base", base, above=0)
    check_choice(function, "layout", layout, LAYOUTS)
    T, d = x.shape[-2:]
    _check_even(function, "x's last axis", d)
    xp = array_module(x)
    if positions is None:
        positions = xp.arange(T)
    else:
        check_numbers(function, "positions", positions)
        if positions.shape != (T,):
            raise ValueError(f"{function}: positions has shape {positions.shape}; expected (T,) with T={T}")
    angles = positions[:, None] * xp.asarray(_frequencies(d, base))  # (T, d/2), in float64
    cache = RoPECache(xp.cos(angles).astype(x.dtype), xp.sin(angles).astype(x.dtype), layout, x.shape)
    return _rotate(x, cache.cos, cache.sin, layout), cache


def rope_backward(dy: Array, cache: RoPECache) -> Array:
    """dx is dy turned back by the same angles: dy (..., T, d) -> dx (..., T, d).

    Raises TypeError for another function's cache, ValueError for a dy that has not the output's shape.

    >>> y, cache = rope_forward(np.eye(2))
    >>> rope_backward(y, cache).round(9) + 0.0
    array([[1., 0.],
           [0., 1.]])
    """
    check_kind("rope_backward", "cache", cache, RoPECache)
    check_d_output("rope_backward", "dy", dy, cache.shape, cache.cos.dtype)
    return _rotate(dy, cache.cos, -cache.sin, cache.layout)


def _rotate(x: Array, cos: Array, sin: Array, layout: str) -> Array:
    half = x.shape[-1] // 2
    first, second = (
        (slice(None, half), slice(half, None))
        if layout == "halves"
        else (slice(0, None, 2), slice(1, None, 2))
    )
    a, b = x[..., first], x[..., second]  # (..., T, d/2)
    y = array_module(x).empty_like(x)
    y[..., first] = a * cos - b * sin
    y[..., second] = a * sin + b * cos
    return y


def alibi_bias(n_heads: int, T_q: int, T_k: int, *, dtype: Any = np.float64, xp: ModuleType = np) -> Array:
    """bias[h, i, j] = -m_h |i - j|, added to the scores: (n_heads, T_q, T_k).

    Press et al., "Train Short, Test Long", 2022. For n heads, n a power of two, the slopes m are
    2^(-8/n), 2^(-16/n), …; for another n, those of the power of two below it and then every other slope
    of the next one. The last query stands at the last key (bottom-right), as in `causal_mask`.

    Raises TypeError or ValueError unless n_heads >= 1, T_q >= 0 and T_k >= 0 are integers.

    >>> alibi_bias(8, 1, 3)[0]
    array([[-1. , -0.5, -0. ]])
    """
    check_integer("alibi_bias", "n_heads", n_heads, minimum=1)
    check_integer("alibi_bias", "T_q", T_q, minimum=0)
    check_integer("alibi_bias", "T_k", T_k, minimum=0)
    dtype = check_dtype("alibi_bias", dtype)
    check_array_module("alibi_bias", xp)
    n_heads, T_q, T_k = int(n_heads), int(T_q), int(T_k)  # NumPy's small integers would overflow
    slopes = xp.asarray(_alibi_slopes(n_heads)).reshape(n_heads, 1, 1)
    query_at = xp.arange(T_q)[:, None] + (T_k - T_q)
    bias: Array = (-slopes * abs(query_at - xp.arange(T_k))).astype(dtype)  # (n_heads, T_q, T_k)
    return bias


def _alibi_slopes(n_heads: int) -> Array:
    power = 2 ** (n_heads.bit_length() - 1)  # the power of two at or below n_heads
    slopes = 2.0 ** (-8 / power * np.arange(1, power + 1))
    every_other = np.arange(1, 2 * (n_heads - power), 2)  # of the slopes for 2 · power heads
    between = 2.0 ** (-4 / power * every_other)
    return np.concatenate([slopes, between])


def _check_frequencies(function: str, d_model: Any, base: Any) -> None:
    check_integer(function, "d_model", d_model, minimum=1)
    check_number(function, "base", base, above=0)


def _check_even(function: str, argument: str, d: int) -> None:
    if d % 2:
        raise ValueError(f"{function}: {argument} is {d}; expected an even number, a pair is two columns")
