"""Scaled dot-product attention and multi-head attention, forward and backward; masks."""

import math
from types import ModuleType
from typing import Annotated, NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.functional import LinearCache, glorot, linear_backward, linear_forward, softmax_in_place
from npformer.positional import Layout, RoPECache, rope_backward, rope_forward
from npformer.validation.annotations import (
    Bias,
    DType,
    Float,
    Ids,
    Integer,
    Length,
    Mask,
    Positive,
    Rng,
    Size,
)
from npformer.validation.rules import EVEN_HEADS, KEY_WIDTH, Heads, KVHeads  # beside shapes


class AttentionCache(NamedTuple):
    q: Float[Array, "... T_q d_k"]
    k: Float[Array, "... T_k d_k"]
    v: Float[Array, "... T_k d_v"]
    bias: Array | None
    weights: Float[Array, "... T_q T_k"]  # each row's sum is 1, or 0 where every key is masked

    @property
    def scores(self) -> Array:
        """q kᵀ/√d_k + bias, before the mask: (..., T_q, T_k). Computed anew: the weights took its place."""
        scores = self.q * (1 / math.sqrt(self.q.shape[-1])) @ _transposed(self.k)
        return scores if self.bias is None else scores + self.bias


def attention_forward(
    q: Float[Array, "... T_q d_k"],
    k: Float[Array, "... T_k d_k"],
    v: Float[Array, "... T_k d_v"],
    *,
    mask: Mask[Array, "... T_q T_k"] | None = None,
    bias: Bias[Array, "... T_q T_k"] | None = None,
) -> tuple[Float[Array, "... T_q d_v"], AttentionCache]:
    """y = softmax(q kᵀ/√d_k + bias) v, "Attention Is All You Need", equation 1.

    mask is boolean, True = may attend. A query that may attend to no key gets zeros.

    >>> q = k = v = np.eye(2)
    >>> attention_forward(q, k, v, mask=causal_mask(2))[0].round(2)
    array([[1.  , 0.  ],
           [0.33, 0.67]])
    """
    scores = q * (1 / math.sqrt(q.shape[-1])) @ _transposed(k)  # q kᵀ/√d_k: (..., T_q, T_k)
    if bias is not None:
        scores += bias
    if mask is not None:
        array_module(q).copyto(scores, -math.inf, where=~mask)
    weights = softmax_in_place(scores)  # (..., T_q, T_k)
    return weights @ v, AttentionCache(q, k, v, bias, weights)  # (..., T_q, d_v)


def attention_backward(
    dy: Float[Array, "... T_q d_v"], cache: AttentionCache
) -> tuple[Float[Array, "... T_q d_k"], Float[Array, "... T_k d_k"], Float[Array, "... T_k d_v"]]:
    """dv = weightsᵀ dy, dw = dy vᵀ, ds = weights · (dw - Σ dw weights), dq = ds k/√d_k, dk = dsᵀ q/√d_k.

    Σ dw weights is also Σ dy y, a shorter sum, but only this one leaves an exact zero where one weight is 1
    and the softmax is saturated.

    >>> y, cache = attention_forward(np.eye(2), np.eye(2), np.eye(2))
    >>> [gradient.shape for gradient in attention_backward(y, cache)]
    [(2, 2), (2, 2), (2, 2)]
    """
    q, k, v, _, weights = cache
    if not isinstance(weights, np.ndarray) or weights.size <= LARGE:
        return _gradients(dy, q, k, v, weights)
    dq, dk, dv = np.empty_like(q), np.empty_like(k), np.empty_like(v)
    for h in np.ndindex(weights.shape[:-2]):  # head by head: only one (T_q, T_k) more in memory
        dq[h], dk[h], dv[h] = _gradients(dy[h], q[h], k[h], v[h], weights[h])
    return dq, dk, dv


LARGE = 2**18  # entries of weights; a GPU takes all heads at once, because it starts each product anew


def _gradients(dy: Array, q: Array, k: Array, v: Array, w: Array) -> tuple[Array, Array, Array]:
    xp, scale = array_module(dy), 1 / math.sqrt(q.shape[-1])
    dv = _transposed(w) @ dy  # y = w v: (..., T_k, d_v)
    ds = dy @ _transposed(v)  # y = w v: (..., T_q, T_k), so far dw
    ds -= xp.add.reduce(ds * w, axis=-1, keepdims=True)  # w = softmax(scores), in the memory of dw
    ds *= w
    dq = ds @ (k * scale)  # scores = q kᵀ/√d_k: (..., T_q, d_k)
    dk = _transposed(ds) @ (q * scale)  # scores = q kᵀ/√d_k: (..., T_k, d_k)
    return dq, dk, dv


def _transposed(x: Array) -> Array:
    return x.swapaxes(-1, -2)  # CuPy's arrays have no .mT


class AttentionParams(NamedTuple):
    """The projections of multi-head attention; its biases may be absent (None)."""

    W_Q: Float[Array, "d_model d_model", KEY_WIDTH]  # heads side by side: head 0 owns the first d_k columns
    W_K: Float[Array, "d_model d_kv"]  # d_kv = d_model, or less with n_kv_heads
    W_V: Float[Array, "d_model d_kv"]
    W_O: Float[Array, "d_model d_model"]
    b_Q: Float[Array, "d_model"] | None = None
    b_K: Float[Array, "d_kv"] | None = None
    b_V: Float[Array, "d_kv"] | None = None
    b_O: Float[Array, "d_model"] | None = None


class MultiHeadAttentionCache(NamedTuple):
    q: Float[Array, "... T_q d_model"]
    k: Float[Array, "... T_k d_model"]
    v: Float[Array, "... T_k d_model"]
    rope: tuple[RoPECache, RoPECache] | None  # for the queries and the keys
    attention: AttentionCache  # of all heads at once, over (..., h, T, d_k)
    merged: Float[Array, "... T_q d_model"]  # the heads' outputs side by side: what W_O sees
    params: AttentionParams

    @property
    def weights(self) -> Array:
        """Who attends to whom, head by head: (..., h, T_q, T_k)."""
        return self.attention.weights

    @property
    def scores(self) -> Array:
        """Scaled and biased, before the mask: (..., h, T_q, T_k)."""
        return self.attention.scores


def init_attention(
    d_model: Size, rng: Rng, *, bias: bool = False, dtype: DType = np.float64
) -> AttentionParams:
    """Four weights, uniform in ±√(3 / d_model); with bias=True zero biases.

    >>> init_attention(8, np.random.default_rng(0)).W_Q.shape
    (8, 8)
    """
    weights = [glorot(d_model, d_model, rng, dtype) for _ in range(4)]
    return AttentionParams(*weights, *[np.zeros(d_model, dtype) if bias else None for _ in range(4)])


def multi_head_attention_forward(
    q: Float[Array, "... T_q d_model"],
    k: Float[Array, "... T_k d_model"],
    v: Float[Array, "... T_k d_model"],
    params: AttentionParams,
    *,
    n_heads: Heads,
    mask: Mask[Array, "... T_q T_k"] | None = None,
    bias: Bias[Array, "... h T_q T_k"] | None = None,
    rope: Annotated[bool, EVEN_HEADS] = False,
    n_kv_heads: KVHeads | None = None,
    base: Positive = 10000.0,
    rope_layout: Layout = "interleaved",
) -> tuple[Float[Array, "... T_q d_model"], MultiHeadAttentionCache]:
    """y = concat(head_1, …, head_h) W_O, head_i = attention(q W_Q_i, k W_K_i, v W_V_i), d_k = d_model / h.

    "Attention Is All You Need", section 3.2.2. The mask is the same for every head. rope=True turns each
    head's queries and keys by their positions, as `rope_forward` does with this base and layout; the last
    query stands at the last key. With n_kv_heads there are fewer heads of keys and values,
    d_kv = n_kv_heads d_k columns of them: query head i looks at key head i // (h / n_kv_heads). Ainslie et
    al., "GQA", 2023; with one key head Shazeer, "Fast Transformer Decoding", 2019.

    >>> params = init_attention(8, np.random.default_rng(0))
    >>> x = np.ones((3, 6, 8))
    >>> y, cache = multi_head_attention_forward(x, x, x, params, n_heads=4)
    >>> y.shape, cache.weights.shape
    ((3, 6, 8), (3, 4, 6, 6))
    """
    Q, K, V = project(q, k, v, params, n_heads, n_kv_heads or n_heads)  # (..., h or n_kv_heads, T, d_k)
    turned = None
    if rope:
        at = array_module(q).arange(q.shape[-2]) + (k.shape[-2] - q.shape[-2])  # the queries' positions
        Q, turned_Q = rope_forward(Q, positions=at, base=base, layout=rope_layout)
        K, turned_K = rope_forward(K, base=base, layout=rope_layout)
        turned = turned_Q, turned_K
    K, V = repeat_heads(K, n_heads), repeat_heads(V, n_heads)  # (..., h, T_k, d_k)
    if mask is not None and mask.ndim >= 3:
        mask = mask[..., None, :, :]  # (..., 1, T_q, T_k)
    heads, attention = attention_forward(Q, K, V, mask=mask, bias=bias)  # (..., h, T_q, d_k)
    merged = merge_heads(heads)  # (..., T_q, d_model)
    y, _ = linear_forward(merged, params.W_O, params.b_O)  # (..., T_q, d_model)
    return y, MultiHeadAttentionCache(q, k, v, turned, attention, merged, params)


def multi_head_attention_backward(
    dy: Float[Array, "... T_q d_model"], cache: MultiHeadAttentionCache
) -> tuple[
    Float[Array, "... T_q d_model"],
    Float[Array, "... T_k d_model"],
    Float[Array, "... T_k d_model"],
    AttentionParams,
]:
    """The forward's lines from the last one up, each by its own backward: dq, dk, dv, the parameters'.

    In self-attention, where q, k and v are one x, dx = dq + dk + dv.

    >>> x = np.ones((3, 6, 8))
    >>> params = init_attention(8, np.random.default_rng(0))
    >>> y, cache = multi_head_attention_forward(x, x, x, params, n_heads=4)
    >>> multi_head_attention_backward(y, cache)[3].W_O.shape
    (8, 8)
    """
    q, k, v, turned, attention, merged, (W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O) = cache
    dmerged, dW_O, db_O = linear_backward(dy, LinearCache(merged, W_O, b_O))  # (..., T_q, d_model)
    dheads = split_heads(dmerged, attention.q.shape[-3])  # (..., h, T_q, d_k)
    dQ, dK, dV = attention_backward(dheads, attention)  # (..., h, T, d_k)
    del dmerged, dheads  # memory for what comes: the backward's most arrays are alive below
    n_kv_heads = W_K.shape[-1] // dK.shape[-1]
    dK, dV = sum_repeated(dK, n_kv_heads), sum_repeated(dV, n_kv_heads)  # (..., n_kv_heads, T_k, d_k)
    if turned is not None:
        dQ, dK = rope_backward(dQ, turned[0]), rope_backward(dK, turned[1])
    dq, dW_Q, db_Q = linear_backward(merge_heads(dQ), LinearCache(q, W_Q, b_Q))  # (..., T_q, d_model)
    del dQ
    dk, dW_K, db_K = linear_backward(merge_heads(dK), LinearCache(k, W_K, b_K))  # (..., T_k, d_model)
    del dK
    dv, dW_V, db_V = linear_backward(merge_heads(dV), LinearCache(v, W_V, b_V))
    return dq, dk, dv, AttentionParams(dW_Q, dW_K, dW_V, dW_O, db_Q, db_K, db_V, db_O)


def project(
    q: Array, k: Array, v: Array, params: AttentionParams, n_heads: int, n_kv_heads: int
) -> tuple[Array, Array, Array]:
    """q W_Q, k W_K and v W_V, cut into heads: (..., h, T_q, d_k) and twice (..., n_kv_heads, T_k, d_k)."""
    Q = split_heads(linear_forward(q, params.W_Q, params.b_Q)[0], n_heads)
    K = split_heads(linear_forward(k, params.W_K, params.b_K)[0], n_kv_heads)
    V = split_heads(linear_forward(v, params.W_V, params.b_V)[0], n_kv_heads)
    return Q, K, V


def repeat_heads(x: Array, n_heads: int) -> Array:
    """Each head's copies side by side, up to n_heads: (..., n_kv_heads, T, d_k) -> (..., n_heads, T, d_k)."""
    times = n_heads // x.shape[-3]
    return x if times == 1 else array_module(x).repeat(x, times, axis=-3)


def sum_repeated(dy: Array, n_kv_heads: int) -> Array:
    """The copies' gradients added, the way back from `repeat_heads`: (..., n_kv_heads, T, d_k)."""
    *leading, h, T, d_k = dy.shape
    groups = dy.reshape(*leading, n_kv_heads, h // n_kv_heads, T, d_k)
    return dy if h == n_kv_heads else groups.sum(axis=-3)


def split_heads(x: Float[Array, "... T d_model"], n_heads: Heads) -> Float[Array, "... h T d_k"]:
    """Each row cut into h pieces of d_k = d_model / h, as a view.

    >>> split_heads(np.arange(8.0).reshape(2, 4), 2)[1]
    array([[2., 3.],
           [6., 7.]])
    """
    pieces = x.reshape(*x.shape[:-1], n_heads, x.shape[-1] // n_heads)  # (..., T, h, d_k)
    return pieces.swapaxes(-2, -3)  # (..., h, T, d_k)


def merge_heads(x: Float[Array, "... h T d_k"]) -> Float[Array, "... T d_model"]:
    """The heads' pieces side by side again; undoes `split_heads`.

    >>> merge_heads(split_heads(np.arange(8.0).reshape(2, 4), 2))[0]
    array([0., 1., 2., 3.])
    """
    *leading, h, T, d_k = x.shape
    return x.swapaxes(-2, -3).reshape(*leading, T, h * d_k)  # (..., T, d_model)


def causal_mask(T_q: Length, T_k: Length | None = None, *, xp: ModuleType = np) -> Array:
    """True where key j is not later than query i: (T_q, T_k), T_k = T_q unless given. Section 3.2.3.

    With fewer queries than keys the last query stands at the last key (bottom-right), as in step-by-step
    decoding.

    >>> causal_mask(2, 3)
    array([[ True,  True, False],
           [ True,  True,  True]])
    """
    T_k = T_q if T_k is None else T_k
    return xp.arange(T_q)[:, None] + (T_k - T_q) >= xp.arange(T_k)


def padding_mask(ids: Ids[Array, "... T_k"], padding_id: Integer) -> Array:
    """True where a key is a token, False where it is padding: ids (B, T_k) -> (B, 1, T_k), for every query.

    >>> padding_mask(np.array([[5, 2, 0]]), 0)
    array([[[ True,  True, False]]])
    """
    return (ids != padding_id)[..., None, :]  # (B, 1, T_k)
