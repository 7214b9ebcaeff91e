"""Attention in tiles, forward and backward: the same result, without a T × T array in memory.

In the backward function, the comment ``# from y = w v`` means that the line differentiates this forward
equation. In a matrix of scores, each row belongs to a query and each column to a key.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.validation.annotations import Count, Float


class TiledAttentionCache(NamedTuple):
    q: Float[Array, "... T_q d_k"]
    k: Float[Array, "... T_k d_k"]
    v: Float[Array, "... T_k d_v"]
    y: Float[Array, "... T_q d_v"]
    largest: Float[Array, "... T_q 1"]  # the largest score of each row
    total: Float[Array, "... T_q 1"]  # Σ exp(score - largest); a weight is exp(score - largest) / total
    causal: bool
    tile: int


def tiled_attention_forward(
    q: Float[Array, "... T_q d_k"],
    k: Float[Array, "... T_k d_k"],
    v: Float[Array, "... T_k d_v"],
    *,
    causal: bool = False,
    tile: Count = 128,
) -> tuple[Float[Array, "... T_q d_v"], TiledAttentionCache]:
    """y = softmax(q kᵀ/√d_k) v, as in ``attention_forward``, computed for one tile of scores at a time.

    Dao et al., "FlashAttention", 2022, algorithm 1. For each row, the algorithm keeps the largest score so
    far, Σ exp(score - largest) and Σ exp(score - largest) v. If a later tile has a larger score, both sums
    are multiplied by exp(old largest - new largest).

    Parameters
    ----------
    q : float array (..., T_q, d_k)
        The queries.
    k : float array (..., T_k, d_k)
        The keys.
    v : float array (..., T_k, d_v)
        The values.
    causal : bool
        True applies ``causal_mask(T_q, T_k)``.
    tile : int
        The number of keys in a tile. The number of queries in a tile is 2 · tile.

    Returns
    -------
    y : float array (..., T_q, d_v)
    cache : TiledAttentionCache
        Input of ``tiled_attention_backward``.

    Examples
    --------
    >>> q = k = v = np.eye(2)
    >>> tiled_attention_forward(q, k, v, causal=True, tile=1)[0].round(2)
    array([[1.  , 0.  ],
           [0.33, 0.67]])
    """
    xp = array_module(q)
    scaled_q = xp.ascontiguousarray(q * (1 / math.sqrt(q.shape[-1])))
    k, v = xp.ascontiguousarray(k), xp.ascontiguousarray(v)
    y = xp.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)  # (..., T_q, d_v)
    largest = xp.full((*q.shape[:-1], 1), float(np.finfo(q.dtype).min), q.dtype)  # (..., T_q, 1)
    total = xp.zeros_like(largest)  # (..., T_q, 1)
    for rows in _slices(q.shape[-2], 2 * tile):  # more queries than keys in a tile: fewer steps
        # These are views, so _add_tile updates the whole arrays: (..., 2 tile, ·)
        results = largest[..., rows, :], total[..., rows, :], y[..., rows, :]
        for columns in _slices(k.shape[-2], tile):
            scores = _tile_of_scores(scaled_q, k, rows, columns, causal)  # (..., 2 tile, tile)
            if scores is None:
                break
            _add_tile(scores, v[..., columns, :], *results)
    # The largest score of a row contributes exp(0) = 1, so the total of a row with keys is at least 1. A row
    # without keys has total 0, which becomes 1 to avoid 0 / 0.
    total = xp.maximum(total, 1)
    y /= total
    return y, TiledAttentionCache(q, k, v, y.copy(), largest, total, causal, tile)


def tiled_attention_backward(
    dy: Float[Array, "... T_q d_v"], cache: TiledAttentionCache
) -> tuple[Float[Array, "... T_q d_k"], Float[Array, "... T_k d_k"], Float[Array, "... T_k d_v"]]:
    """Apply the equations of ``attention_backward`` to each tile, with w = exp(scores - largest) / total.

    Dao et al., "FlashAttention", 2022, algorithm 4. The weights w are recomputed. A tile may contain
    only a part of a row, so Σ dy y replaces the sum Σ dw w over a row. dy is divided by total once, and the
    weights are not. The gradients are the same, because they are linear in dy.

    Parameters
    ----------
    dy : float array (..., T_q, d_v)
        Gradient of the loss with respect to y.
    cache : TiledAttentionCache
        Second output of ``tiled_attention_forward``.

    Returns
    -------
    dq : float array (..., T_q, d_k)
    dk : float array (..., T_k, d_k)
    dv : float array (..., T_k, d_v)

    Examples
    --------
    >>> y, cache = tiled_attention_forward(np.eye(2), np.eye(2), np.eye(2))
    >>> [gradient.shape for gradient in tiled_attention_backward(y, cache)]
    [(2, 2), (2, 2), (2, 2)]
    """
    q, k, v, y, largest, total, causal, tile = cache
    xp, scale = array_module(dy), 1 / math.sqrt(q.shape[-1])
    scaled_q, dy = xp.ascontiguousarray(q * scale), xp.ascontiguousarray(dy / total)
    dq, dk, dv = xp.zeros_like(q), xp.zeros_like(k), xp.zeros_like(v)
    sum_dw_w = (dy * y).sum(axis=-1, keepdims=True)  # Σ dw w = Σ dy y: (..., T_q, 1)
    for rows in _slices(q.shape[-2], 2 * tile):  # the same tiles as in the forward pass, for identical scores
        for columns in _slices(k.shape[-2], tile):
            w = _tile_of_scores(scaled_q, k, rows, columns, causal)  # w = scores: (..., 2 tile, tile)
            if w is None:
                break
            w -= largest[..., rows, :]
            xp.exp(w, out=w)  # w = weights · total
            dv[..., columns, :] += w.swapaxes(-1, -2) @ dy[..., rows, :]  # from y = w v
            ds = dy[..., rows, :] @ v[..., columns, :].swapaxes(-1, -2)  # ds = dw, from y = w v
            ds -= sum_dw_w[..., rows, :]  # from w = softmax(scores)
            ds *= w  # from w = softmax(scores)
            dq[..., rows, :] += ds @ k[..., columns, :]  # from scores = q kᵀ/√d_k
            dk[..., columns, :] += ds.swapaxes(-1, -2) @ scaled_q[..., rows, :]  # from scores = q kᵀ/√d_k
    dq *= scale
    return dq, dk, dv


def _add_tile(scores: Array, v: Array, largest: Array, total: Array, weighted_v: Array) -> None:
    """Add one tile of keys, in place, to the three results of each row.

    These are the largest score, total = Σ exp(score - largest) and weighted_v = Σ exp(score - largest) v.
    """
    xp = array_module(scores)
    old_largest = largest.copy()  # (..., 2 tile, 1)
    largest[...] = xp.maximum(largest, scores.max(axis=-1, keepdims=True))
    shrink = xp.exp(old_largest - largest)  # (..., 2 tile, 1)
    scores -= largest
    xp.exp(scores, out=scores)
    total[...] = total * shrink + scores.sum(axis=-1, keepdims=True)
    weighted_v *= shrink
    weighted_v += scores @ v  # (..., 2 tile, d_v)


def _slices(T: int, size: int) -> Iterator[slice]:
    """Split the positions 0, …, T - 1 into slices of this size. The last slice may be shorter."""
    return (slice(start, min(start + size, T)) for start in range(0, T, size))


def _tile_of_scores(scaled_q: Array, k: Array, rows: slice, columns: slice, causal: bool) -> Array | None:
    """Compute one tile of (q/√d_k) kᵀ, with -inf where the key is later than the query.

    Returns None if all keys of the tile are later than all of its queries.
    """
    xp = array_module(k)
    offset = k.shape[-2] - scaled_q.shape[-2]  # Query i has the position i + offset.
    if causal and columns.start >= rows.stop + offset:
        return None
    scores: Array = scaled_q[..., rows, :] @ k[..., columns, :].swapaxes(-1, -2)  # (..., 2 tile, tile)
    has_later_keys = columns.stop > rows.start + offset + 1
    if causal and has_later_keys:
        query_positions = xp.arange(rows.start + offset, rows.stop + offset)[:, None]  # (2 tile, 1)
        key_positions = xp.arange(columns.start, columns.stop)  # (tile,)
        xp.copyto(scores, -math.inf, where=query_positions < key_positions)
    return scores
