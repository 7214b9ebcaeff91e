"""Representations of positions: sinusoids, learned positions, RoPE and ALiBi."""

import math
from functools import lru_cache
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
    RowNumbers,
    Shape,
    number,
)
from npformer.validation.call import Call, Phase
from npformer.validation.rules import EVEN, max_positions, rule

# --- what the arguments must satisfy --------------------------------------------------------------
# Rules are conditions that a shape cannot express. Argument validation (npformer/validation) checks them.


def _rows_of_params(call: Call, name: str) -> int:
    """Return the number of positions in the table of learned positions."""
    return len(call.arguments["params"].P)


FITS_TABLE = max_positions("the table's max_length", _rows_of_params, Phase.IDS)


@rule("at most d/2", Phase.MASKS)
def AT_MOST_HALF(frequencies: Any, name: str, call: Call) -> None:
    """Check that d columns have enough pairs for all frequencies."""
    n, d = frequencies.shape[0], call.sizes["d"]
    if n > d // 2:
        raise call.value_error(f"{name} holds {n} numbers; expected at most {d // 2}, the pairs of d={d}")


# --- the operations -------------------------------------------------------------------------------


Layout = Literal["interleaved", "halves"]


def angular_frequencies(d_model: Count, *, base: Positive = 10000.0) -> Float[Array, "pairs"]:
    """ω_i = base^(-2i/d_model) for i = 0, 1, …, ceil(d_model/2) - 1, in radians per position.

    "Attention Is All You Need", section 3.5. Pair i consists of the columns 2i (sine) and 2i + 1 (cosine).

    Parameters
    ----------
    d_model : int
        The number of columns.
    base : float, base > 0

    Returns
    -------
    omega : float array (ceil(d_model/2),)

    Examples
    --------
    >>> angular_frequencies(4)
    array([1.  , 0.01])
    """
    return _frequencies(d_model, float(base))[0].copy()  # The caller may change the copy.


@lru_cache(maxsize=32)
def _frequencies(d_model: int, base: float) -> Array:
    """Compute the frequencies, (1, pairs), or return those of an earlier call. The array is read-only.

    For a small table, computing them takes a sixth of the time, and a model asks for the same ones again.
    """
    exponents = np.arange(0, -d_model, -2, dtype=float) / d_model  # -2i/d_model: (pairs,)
    omega = base ** exponents[None]
    omega.flags.writeable = False
    return np.asarray(omega)


def wavelengths(d_model: Count, *, base: Positive = 10000.0) -> Float[Array, "pairs"]:
    """λ_i = 2π base^(2i/d_model): the number of positions in one full turn of pair i.

    The longest wavelength is 2π · base^((d_model-2)/d_model). With base 10000, this is 100 · 2π for d_model =
    4, and 9647 · 2π for d_model = 512. "Attention Is All You Need", section 3.5, names the limit 10000 · 2π.

    Parameters
    ----------
    d_model : int
        The number of columns.
    base : float, base > 0

    Returns
    -------
    lengths : float array (ceil(d_model/2),)

    Examples
    --------
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
    """PE[p, 2i] = sin(p ω_i), PE[p, 2i+1] = cos(p ω_i) for p = start, …, start + n - 1.

    "Attention Is All You Need", section 3.5. The first 64 rows use this formula. The later rows use a faster
    way, which follows from a remark in the paper: PE[p+k] is a linear function of PE[p]. Write each pair as
    the complex number cos pω + i sin pω = e^(ipω). Then moving by k positions multiplies this number by
    e^(ikω).

    Parameters
    ----------
    n : int
        The number of positions.
    d_model : int
        The number of columns. An odd d_model drops the last cosine.
    base : float, base > 0
    start : int
        The first position.
    layout : "interleaved" or "halves"
        "interleaved" alternates sines and cosines, as in the paper. "halves" puts all sines first.
    dtype : numpy.float32 or numpy.float64
    xp : module
        The array library of the result, numpy or cupy.

    Returns
    -------
    table : float array (n, d_model)

    Examples
    --------
    >>> positional_encoding(3, 4).round(3)
    array([[ 0.   ,  1.   ,  0.   ,  1.   ],
           [ 0.841,  0.54 ,  0.01 ,  1.   ],
           [ 0.909, -0.416,  0.02 ,  1.   ]])
    """
    table = xp.empty((n, d_model), dtype)
    sines, cosines = _sine_and_cosine_columns(table, layout)  # views: (n, pairs), (n, d_model // 2)
    n_cosines = d_model // 2
    omega = xp.asarray(_frequencies(d_model, float(base)))  # (1, pairs)
    p = xp.arange(n, dtype=float)[:DIRECT_ROWS, None]  # (64, 1), or fewer rows
    if start != 0:
        p += start
    angles = p.dot(omega)  # p ω_i, a column times a row: (64, pairs)
    sin, cos = xp.sin(angles), xp.cos(angles)
    sines[:DIRECT_ROWS] = sin
    cosines[:DIRECT_ROWS] = cos[:, :n_cosines]
    if n > DIRECT_ROWS:
        rotations = cos + 1j * sin  # e^(ipω)
        for k in range(DIRECT_ROWS, n, DIRECT_ROWS):
            shifted = rotations[: n - k] * xp.exp(1j * k * omega)  # e^(i(p+k)ω)
            sines[k : k + DIRECT_ROWS] = shifted.imag
            cosines[k : k + DIRECT_ROWS] = shifted.real[:, :n_cosines]
    return table


DIRECT_ROWS = 64  # rows that are computed with the formula itself


def _sine_and_cosine_columns(table: Array, layout: str) -> tuple[Array, Array]:
    """Return views of the table's columns for the sines and for the cosines, in this layout."""
    d_model = table.shape[1]
    if layout == "halves":
        n_sines = d_model - d_model // 2
        return table[:, :n_sines], table[:, n_sines:]
    return table[:, 0::2], table[:, 1::2]


def shift_matrix(
    k: Finite, d_model: Annotated[Count, EVEN], *, base: Positive = 10000.0
) -> Float[Array, "d_model d_model"]:
    """M with PE[p+k] = PE[p] @ M for every position p, in the interleaved layout.

    "Attention Is All You Need", section 3.5. For each pair, M has a 2 × 2 rotation by the angle k ω_i on its
    diagonal: [[cos, -sin], [sin, cos]].

    Parameters
    ----------
    k : float
        The number of positions. It may be negative or fractional.
    d_model : int
        The number of columns, an even number.
    base : float, base > 0

    Returns
    -------
    M : float array (d_model, d_model)

    Examples
    --------
    >>> bool(np.allclose(positional_encoding(3, 4)[0] @ shift_matrix(2, 4), positional_encoding(3, 4)[2]))
    True
    """
    angles = float(k) * angular_frequencies(d_model, base=base)  # (pairs,)
    even = np.arange(0, d_model, 2)
    M = np.zeros((d_model, d_model))
    M[even, even] = np.cos(angles)
    M[even + 1, even + 1] = np.cos(angles)
    M[even, even + 1] = -np.sin(angles)
    M[even + 1, even] = np.sin(angles)
    return M


def llama3_frequencies(
    d: Annotated[Count, EVEN],
    *,
    base: Positive = 500000.0,
    factor: Positive = 8.0,
    low_freq_factor: Positive = 1.0,
    high_freq_factor: Positive = 4.0,
    original_max_length: Count = 8192,
) -> Float[Array, "pairs"]:
    """ω'_i = s_i ω_i + (1 - s_i) ω_i / factor: RoPE for longer texts than those of the first training.

    Meta's Llama 3.1 (Grattafiori et al., "The Llama 3 Herd of Models", 2024; the formula is in the code of
    the model). A pair makes n_i = original_max_length ω_i / 2π turns in the original length. The share s_i =
    (n_i - low_freq_factor) / (high_freq_factor - low_freq_factor), limited to [0, 1], is 1 for fast pairs,
    which keep their frequency. It is 0 for slow pairs. The defaults are those of Llama 3.1.

    Parameters
    ----------
    d : int
        The number of columns that RoPE rotates, an even number.
    base : float, base > 0
        In config.json, rope_theta.
    factor : float, factor > 0
    low_freq_factor : float, low_freq_factor > 0
    high_freq_factor : float, high_freq_factor > 0
        If it is not larger than low_freq_factor, s_i jumps from 0 to 1 at n_i = low_freq_factor.
    original_max_length : int
        In config.json, original_max_position_embeddings.

    Returns
    -------
    omega : float array (d/2,)

    Examples
    --------
    >>> llama3_frequencies(4, base=1e8, original_max_length=100)
    array([1.00e+00, 1.25e-05])
    """
    omega = angular_frequencies(d, base=base)  # (pairs,)
    turns = original_max_length * omega / (2 * math.pi)
    width = max(high_freq_factor - low_freq_factor, 1e-9)
    share = np.clip((turns - low_freq_factor) / width, 0, 1)  # s_i: (pairs,)
    return np.asarray(share * omega + (1 - share) * omega / factor)


def yarn_frequencies(
    d: Annotated[Count, EVEN],
    *,
    factor: Positive,
    original_max_length: Count,
    base: Annotated[float, number("> 1", above=1)] = 10000.0,
    beta_fast: Positive = 32.0,
    beta_slow: Positive = 1.0,
) -> Float[Array, "pairs"]:
    """ω'_i = s_i ω_i + (1 - s_i) ω_i / factor, where s_i falls linearly with i from 1 to 0.

    Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023, section 3.2, as in
    the authors' code. Pair i makes original_max_length ω_i / 2π turns in the original length. The share s_i
    is 1 for pairs with more than beta_fast turns, and 0 for pairs with fewer than beta_slow turns. YaRN also
    multiplies the scores by (0.1 ln factor + 1)², which is the argument ``scale`` of attention.

    Parameters
    ----------
    d : int
        The number of columns that RoPE rotates, an even number.
    factor : float, factor > 0
    original_max_length : int
        In config.json, original_max_position_embeddings.
    base : float, base > 1
        In config.json, rope_theta.
    beta_fast : float, beta_fast > 0
    beta_slow : float, beta_slow > 0

    Returns
    -------
    omega : float array (d/2,)

    Examples
    --------
    >>> yarn_frequencies(4, factor=4.0, original_max_length=100)
    array([1.    , 0.0025])
    """
    omega = angular_frequencies(d, base=base)  # (pairs,)

    def pair_with_turns(turns: float) -> float:
        """Solve turns = original_max_length ω_i / 2π for i, with ω_i = base^(-2i/d)."""
        return d * math.log(original_max_length / (2 * math.pi * turns)) / (2 * math.log(base))

    first_slowed = max(math.floor(pair_with_turns(beta_fast)), 0)
    first_slowest = min(math.ceil(pair_with_turns(beta_slow)), d - 1)
    width: float = first_slowest - first_slowed
    if width == 0:
        width = 0.001  # as in the authors' code
    slowed = np.clip((np.arange(d // 2) - first_slowed) / width, 0, 1)  # 1 - s_i: (pairs,)
    return np.asarray((1 - slowed) * omega + slowed * omega / factor)


class LearnedPositionsParams(NamedTuple):
    """The trained table P, with one row for each position below max_length."""

    P: Float[Array, "max_length d_model"]


class LearnedPositionsCache(NamedTuple):
    shape: Shape[tuple[int, ...], "... T d_model"]  # of x
    P: Float[Array, "max_length d_model"]


def learned_positions_forward(
    x: Float[Array, "... T d_model", FITS_TABLE], params: LearnedPositionsParams
) -> tuple[Float[Array, "... T d_model"], LearnedPositionsCache]:
    """y = x + P[:T], with one trained row per position.

    "Attention Is All You Need", Table 3, row (E).

    Parameters
    ----------
    x : float array (..., T, d_model)
        T is at most max_length, the number of rows of P.
    params : LearnedPositionsParams

    Returns
    -------
    y : float array (..., T, d_model)
    cache : LearnedPositionsCache
        Input of ``learned_positions_backward``.

    Examples
    --------
    >>> learned_positions_forward(np.ones((1, 2)), LearnedPositionsParams(np.ones((5, 2))))[0]
    array([[2., 2.]])
    """
    return x + params.P[: x.shape[-2]], LearnedPositionsCache(x.shape, params.P)


def learned_positions_backward(
    dy: Float[Array, "... T d_model"], cache: LearnedPositionsCache
) -> tuple[Float[Array, "... T d_model"], LearnedPositionsParams]:
    """dx = dy, and dP[:T] = Σ dy, summed over the batch. The rows of dP from T on are zero.

    Parameters
    ----------
    dy : float array (..., T, d_model)
        Gradient of the loss with respect to y.
    cache : LearnedPositionsCache
        Second output of ``learned_positions_forward``.

    Returns
    -------
    dx : float array (..., T, d_model)
    grads : LearnedPositionsParams
        The gradient of P.

    Examples
    --------
    >>> y, cache = learned_positions_forward(np.ones((3, 1, 2)), LearnedPositionsParams(np.ones((2, 2))))
    >>> learned_positions_backward(y, cache)[1].P
    array([[6., 6.],
           [0., 0.]])
    """
    dP = array_module(dy).zeros_like(cache.P)
    batch_axes = tuple(range(dy.ndim - 2))
    dP[: dy.shape[-2]] = dy.sum(axis=batch_axes)  # This line differentiates y = x + P[:T]: (T, d_model).
    return dy.copy(), LearnedPositionsParams(dP)


class RoPETable(NamedTuple):
    """The cosines and sines of all angles that RoPE rotates by. ``rope_table`` computes them."""

    cos: Array  # (..., T, pairs)
    sin: Array  # (..., T, pairs)
    layout: str


def rope_table(
    positions: Numbers[Array, "... T"],
    frequencies: Numbers[Array, "pairs"],
    *,
    layout: Layout = "interleaved",
    dtype: DType = np.float64,
) -> RoPETable:
    """cos(p ω_i) and sin(p ω_i) for each position p and each frequency ω_i.

    Su et al., "RoFormer", 2021, equation 34. All blocks of a model use the same table. The angles are
    float64, because float32 angles are wrong by 5e-3 at position 100,000.

    Parameters
    ----------
    positions : integer or float array (..., T)
        The position of each token. With leading axes, each text has its own positions.
    frequencies : float array (pairs,)
        The angle per position of each pair, such as ``angular_frequencies(d_k)``. With fewer than d_k/2
        frequencies, RoPE rotates only the first 2 · pairs columns of each head.
    layout : "interleaved" or "halves"
        "interleaved" pairs neighbouring columns. "halves" pairs the columns i and i + pairs.
    dtype : numpy.float32 or numpy.float64
        The dtype of the queries and keys.

    Returns
    -------
    table : RoPETable
        The argument ``rope`` of ``multi_head_attention_forward``.

    Examples
    --------
    >>> rope_table(np.arange(3), angular_frequencies(4)).cos.round(3)
    array([[ 1.   ,  1.   ],
           [ 0.54 ,  1.   ],
           [-0.416,  1.   ]])
    """
    xp = array_module(positions)
    angles = positions[..., None] * xp.asarray(frequencies).astype(np.float64)  # (..., T, pairs)
    return RoPETable(xp.cos(angles).astype(dtype), xp.sin(angles).astype(dtype), layout)


class RoPECache(NamedTuple):
    cos: Array  # (..., T, pairs)
    sin: Array  # (..., T, pairs)
    layout: str
    shape: Shape[tuple[int, ...], "... T d"]


def rope_forward(
    x: Float[Array, "... T d", EVEN],
    *,
    positions: RowNumbers[Array, "... T"] | None = None,
    base: Positive = 10000.0,
    layout: Layout = "interleaved",
    frequencies: Annotated[Numbers[Array, "pairs"], AT_MOST_HALF] | None = None,
) -> tuple[Float[Array, "... T d"], RoPECache]:
    """Rotate each pair (a, b) of x at position p by the angle p ω_i: (a cos - b sin, a sin + b cos).

    Su et al., "RoFormer", 2021, equation 34. The dot product of a rotated query and a rotated key depends
    only on the difference of their positions.

    Parameters
    ----------
    x : float array (..., T, d)
        d is even.
    positions : integer or float array that broadcasts to (..., T), optional
        The position of each row. The default is 0, 1, …, T - 1.
    base : float, base > 0
    layout : "interleaved" or "halves"
        "interleaved" pairs neighbouring columns. "halves" pairs the columns i and i + d/2.
    frequencies : float array (pairs,), optional
        The frequencies ω_i, ``angular_frequencies(d, base=base)`` by default. With fewer than d/2
        frequencies, only the first 2 · pairs columns are rotated, and "halves" pairs the columns i and
        i + pairs.

    Returns
    -------
    y : float array (..., T, d)
    cache : RoPECache
        Input of ``rope_backward``.

    Examples
    --------
    >>> rope_forward(np.array([[1.0, 0.0], [1.0, 0.0]]))[0].round(3)
    array([[1.   , 0.   ],
           [0.54 , 0.841]])
    """
    T, d = x.shape[-2:]
    if positions is None:
        positions = array_module(x).arange(T)
    if frequencies is None:
        frequencies = angular_frequencies(d, base=base)
    cos, sin, _ = rope_table(positions, frequencies, layout=layout, dtype=x.dtype)  # (..., T, pairs)
    return rotate(x, cos, sin, layout), RoPECache(cos, sin, layout, x.shape)


def rope_backward(dy: Float[Array, "... T d"], cache: RoPECache) -> Float[Array, "... T d"]:
    """dx is dy rotated by the negative angles, because the inverse of a rotation is its transpose.

    Parameters
    ----------
    dy : float array (..., T, d)
        Gradient of the loss with respect to y.
    cache : RoPECache
        Second output of ``rope_forward``.

    Returns
    -------
    dx : float array (..., T, d)

    Examples
    --------
    >>> y, cache = rope_forward(np.eye(2))
    >>> rope_backward(y, cache).round(9) + 0.0
    array([[1., 0.],
           [0., 1.]])
    """
    return rotate(dy, cache.cos, -cache.sin, cache.layout)


def rotate(x: Array, cos: Array, sin: Array, layout: str = "interleaved") -> Array:
    """Map each pair (a, b) of x (..., T, d) to (a cos - b sin, a sin + b cos).

    The cosines and sines are (..., T, pairs). The columns from 2 · pairs on do not change.
    """
    pairs = cos.shape[-1]
    if layout == "halves":
        first, second = slice(pairs), slice(pairs, 2 * pairs)
    else:
        first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    a, b = x[..., first], x[..., second]  # (..., T, pairs)
    y = array_module(x).empty_like(x)
    y[..., first] = a * cos - b * sin
    y[..., second] = a * sin + b * cos
    if 2 * pairs < x.shape[-1]:  # a launch less on a GPU
        y[..., 2 * pairs :] = x[..., 2 * pairs :]
    return y


def alibi_bias(
    n_heads: Count, T_q: Length, T_k: Length, *, dtype: DType = np.float64, xp: ModuleType = np
) -> Float[Array, "n_heads T_q T_k"]:
    """``bias[h, i, j] = -m_h |i - j|``, which attention adds to its scores.

    Press et al., "Train Short, Test Long", 2022. If n_heads is a power of two, the slopes are m_h =
    2^(-8h/n_heads) for h = 1, …, n_heads. For any other n_heads, the first slopes are those of the next
    smaller power of two. The remaining slopes are every second slope of the next larger power of two.

    Parameters
    ----------
    n_heads : int
        The number of attention heads.
    T_q : int
        The number of queries. The last query has the position of the last key, as in ``causal_mask``.
    T_k : int
        The number of keys.
    dtype : numpy.float32 or numpy.float64
    xp : module
        The array library of the result, numpy or cupy.

    Returns
    -------
    bias : float array (n_heads, T_q, T_k)

    Examples
    --------
    >>> alibi_bias(8, 1, 3)[0]
    array([[-1. , -0.5, -0. ]])
    """
    slopes = xp.asarray(_alibi_slopes(n_heads)).reshape(n_heads, 1, 1)
    query_positions = xp.arange(T_q)[:, None] + (T_k - T_q)  # (T_q, 1)
    key_positions = xp.arange(T_k)  # (T_k,)
    return (-slopes * abs(query_positions - key_positions)).astype(dtype)  # (n_heads, T_q, T_k)


def _alibi_slopes(n_heads: int) -> Array:
    """Compute the slopes m_h of all heads, (n_heads,)."""
    power = 2 ** (n_heads.bit_length() - 1)  # the largest power of two up to n_heads
    slopes = 2.0 ** (-8 / power * np.arange(1, power + 1))  # the slopes for `power` heads
    odd = np.arange(1, 2 * (n_heads - power), 2)  # 1, 3, 5, …
    more_slopes = 2.0 ** (-4 / power * odd)  # every second slope for 2 · power heads
    return np.concatenate([slopes, more_slopes])
