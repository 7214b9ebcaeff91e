"""Attention tile by tile: the same numbers, and never the whole T × T table. Forward and backward."""

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
    largest: Float[Array, "... T_q 1"]  # score of each row: exp(score - largest) / total is a weight again
    total: Float[Array, "... T_q 1"]  # Σ exp(score - largest)
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
    """y = softmax(q kᵀ/√d_k) v as in `attention_forward`, with 2 tile × tile scores at a time.

    Dao et al., "FlashAttention", 2022, algorithm 1: of each row its largest score so far, Σ exp(score -
    largest) and Σ exp(score - largest) v are enough; where a later tile holds a larger score, both sums
    shrink by exp(old largest - new largest). causal=True is `causal_mask(T_q, T_k)`.

    >>> q = k = v = np.eye(2)
    >>> tiled_attention_forward(q, k, v, causal=True, tile=1)[0].round(2)
    array([[1.  , 0.  ],
           [0.33, 0.67]])
    """
    xp = array_module(q)
    scaled, k, v = (xp.ascontiguousarray(x) for x in (q * (1 / math.sqrt(q.shape[-1])), k, v))
    y = xp.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)  # (..., T_q, d_v)
    largest = xp.full((*q.shape[:-1], 1), float(np.finfo(q.dtype).min), q.dtype)  # (..., T_q, 1)
    total = xp.zeros_like(largest)
    for rows in _slices(q.shape[-2], 2 * tile):  # two tiles of queries for each of keys: half as many steps
        m, sums, mixed = (table[..., rows, :] for table in (largest, total, y))  # views: (..., 2 tile, ·)
        for columns in _slices(k.shape[-2], tile):
            scores = _scores(scaled, k, rows, columns, causal)  # (..., 2 tile, tile)
            if scores is None:
                break
            _take_in(scores, v[..., columns, :], m, sums, mixed)
    total = xp.maximum(total, 1)  # the largest gives 1, or no key was seen: 0
    y /= total
    return y, TiledAttentionCache(q, k, v, y.copy(), largest, total, causal, tile)


def tiled_attention_backward(
    dy: Float[Array, "... T_q d_v"], cache: TiledAttentionCache
) -> tuple[Float[Array, "... T_q d_k"], Float[Array, "... T_k d_k"], Float[Array, "... T_k d_v"]]:
    """`attention_backward`'s lines for each tile; weights are computed anew, exp(scores - largest) / total.

    Dao et al., algorithm 4. Σ dw weights over a whole row, which no tile has, is Σ dy y. It is dy that is
    divided by total, once: every line below is linear in it.

    >>> y, cache = tiled_attention_forward(np.eye(2), np.eye(2), np.eye(2))
    >>> [gradient.shape for gradient in tiled_attention_backward(y, cache)]
    [(2, 2), (2, 2), (2, 2)]
    """
    q, k, v, y, largest, total, causal, tile = cache
    xp, scale = array_module(dy), 1 / math.sqrt(q.shape[-1])
    scaled, dy = xp.ascontiguousarray(q * scale), xp.ascontiguousarray(dy / total)
    dq, dk, dv = xp.zeros_like(q), xp.zeros_like(k), xp.zeros_like(v)
    mean_dw = (dy * y).sum(axis=-1, keepdims=True)  # Σ dw weights: (..., T_q, 1)
    for rows in _slices(q.shape[-2], 2 * tile):  # the forward's blocks, so that scores are rounded alike
        for columns in _slices(k.shape[-2], tile):
            w = _scores(scaled, k, rows, columns, causal)  # (..., 2 tile, tile)
            if w is None:
                break
            w -= largest[..., rows, :]
            xp.exp(w, out=w)  # a weight times total
            dv[..., columns, :] += w.swapaxes(-1, -2) @ dy[..., rows, :]  # y = weights v
            ds = dy[..., rows, :] @ v[..., columns, :].swapaxes(-1, -2)  # y = weights v, so far dw
            ds -= mean_dw[..., rows, :]  # weights = softmax(scores)
            ds *= w
            dq[..., rows, :] += ds @ k[..., columns, :]  # scores = q kᵀ/√d_k
            dk[..., columns, :] += ds.swapaxes(-1, -2) @ scaled[..., rows, :]  # scores = q kᵀ/√d_k
    dq *= scale
    return dq, dk, dv


def _take_in(scores: Array, v: Array, m: Array, sums: Array, mixed: Array) -> None:
    """One more tile of keys into the largest score, Σ exp(score - m) and Σ exp(score - m) v, in place."""
    xp, before = array_module(scores), m.copy()  # (..., 2 tile, 1)
    m[...] = xp.maximum(m, scores.max(axis=-1, keepdims=True))
    shrink = xp.exp(before - m)
    scores -= m
    xp.exp(scores, out=scores)
    sums[...] = sums * shrink + scores.sum(axis=-1, keepdims=True)
    mixed *= shrink
    mixed += scores @ v  # (..., 2 tile, d_v)


def _slices(T: int, tile: int) -> Iterator[slice]:
    return (slice(start, min(start + tile, T)) for start in range(0, T, tile))


def _scores(scaled: Array, k: Array, rows: slice, columns: slice, causal: bool) -> Array | None:
    """One tile of (q/√d_k) kᵀ, -inf where a key is later than its query; None where all keys are."""
    xp, ahead = array_module(k), k.shape[-2] - scaled.shape[-2]  # query i stands at key i + ahead
    if causal and columns.start >= rows.stop + ahead:
        return None
    scores: Array = scaled[..., rows, :] @ k[..., columns, :].swapaxes(-1, -2)  # (..., tile, tile)
    if causal and columns.stop > rows.start + ahead + 1:
        stand = xp.arange(rows.start + ahead, rows.stop + ahead)[:, None]  # (tile, 1)
        xp.copyto(scores, -math.inf, where=stand < xp.arange(columns.start, columns.stop))
    return scores
