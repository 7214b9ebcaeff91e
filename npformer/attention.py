"""Scaled dot-product attention, multi-head attention and masks, forward and backward.

In a backward function, ``# from y = w v: (..., T_k, d_v)`` means that the line differentiates this forward
equation, and that its result has the shape (..., T_k, d_v). T_q is the number of queries, T_k the number of
keys.
"""

import math
from types import ModuleType
from typing import Annotated, Any, NamedTuple, get_args

import numpy as np

from npformer.arrays import Array, array_module
from npformer.config import EVEN_HEADS, Heads
from npformer.functional import LinearCache, glorot, linear_backward, linear_forward, softmax_in_place
from npformer.positional import (
    Layout,
    RoPECache,
    RoPETable,
    angular_frequencies,
    rope_backward,
    rope_table,
    rotate,
)
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
from npformer.validation.call import Call, Phase
from npformer.validation.checks import (
    check_broadcast,
    check_choice,
    check_float,
    check_integer,
    check_same_shape,
    check_shape,
)
from npformer.validation.rules import rule

# --- scaled dot-product attention -----------------------------------------------------------------


class AttentionCache(NamedTuple):
    q: Float[Array, "... T_q d_k"]
    k: Float[Array, "... T_k d_k"]
    v: Float[Array, "... T_k d_v"]
    bias: Array | None
    weights: Float[Array, "... T_q T_k"]  # each row sums to 1, or to 0 if every key is masked
    scale: float  # 1/√d_k, unless the caller chose a different number
    soft_cap: float | None

    @property
    def scores(self) -> Array:
        """q kᵀ/√d_k, capped, plus bias, before the mask: (..., T_q, T_k).

        The scores are computed again, because the weights overwrote them.
        """
        scores = capped_scores(self.q, self.k, self.scale, self.soft_cap)
        return scores if self.bias is None else scores + self.bias


def attention_forward(
    q: Float[Array, "... T_q d_k"],
    k: Float[Array, "... T_k d_k"],
    v: Float[Array, "... T_k d_v"],
    *,
    mask: Mask[Array, "... T_q T_k"] | None = None,
    bias: Bias[Array, "... T_q T_k"] | None = None,
    scale: Positive | None = None,
    soft_cap: Positive | None = None,
) -> tuple[Float[Array, "... T_q d_v"], AttentionCache]:
    """y = softmax(q kᵀ/√d_k + bias) v. "Attention Is All You Need", equation 1.

    Parameters
    ----------
    q : float array (..., T_q, d_k)
        The queries.
    k : float array (..., T_k, d_k)
        The keys.
    v : float array (..., T_k, d_v)
        The values.
    mask : boolean array that broadcasts to (..., T_q, T_k), optional
        True means that the query may attend to the key. A query without any such key gives zeros.
    bias : float array that broadcasts to (..., T_q, T_k), optional
        A number to add to each score. The number -inf hides the key from the query.
    scale : float, scale > 0, optional
        The factor of q kᵀ, 1/√d_k by default.
    soft_cap : float, soft_cap > 0, optional
        Replaces each score s by c tanh(s/c) with c = soft_cap, before the bias is added. So all scores are
        between -c and c. Gemma Team, "Gemma 2", 2024, section 2.

    Returns
    -------
    y : float array (..., T_q, d_v)
    cache : AttentionCache
        Input of ``attention_backward``. It contains ``scores`` and ``weights``, both (..., T_q, T_k).

    Examples
    --------
    >>> q = k = v = np.eye(2)
    >>> attention_forward(q, k, v, mask=causal_mask(2))[0].round(2)
    array([[1.  , 0.  ],
           [0.33, 0.67]])
    """
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1])
    scale = float(scale)  # A NumPy scalar would turn float32 into float64.
    if soft_cap is not None:
        soft_cap = float(soft_cap)
    scores = capped_scores(q, k, scale, soft_cap)  # q kᵀ/√d_k: (..., T_q, T_k)
    if bias is not None:
        scores += bias
    if mask is not None:
        array_module(q).copyto(scores, -math.inf, where=~mask)
    weights = softmax_in_place(scores)  # (..., T_q, T_k)
    return weights @ v, AttentionCache(q, k, v, bias, weights, scale, soft_cap)  # (..., T_q, d_v)


def attention_backward(
    dy: Float[Array, "... T_q d_v"], cache: AttentionCache
) -> tuple[Float[Array, "... T_q d_k"], Float[Array, "... T_k d_k"], Float[Array, "... T_k d_v"]]:
    """dv = wᵀ dy, dw = dy vᵀ, ds = w · (dw - Σ dw w), dq = ds k/√d_k, dk = dsᵀ q/√d_k.

    w denotes the weights, and s the scores. With soft_cap = c, ds is also multiplied by tanh'(s/c) = 1 -
    tanh²(s/c). Σ dw w equals Σ dy y, and Σ dy y has fewer terms. But only Σ dw w
    gives a gradient of exactly zero in a row with one weight of 1 (a saturated softmax).

    Parameters
    ----------
    dy : float array (..., T_q, d_v)
        Gradient of the loss with respect to y.
    cache : AttentionCache
        Second output of ``attention_forward``.

    Returns
    -------
    dq : float array (..., T_q, d_k)
    dk : float array (..., T_k, d_k)
    dv : float array (..., T_k, d_v)

    Examples
    --------
    >>> y, cache = attention_forward(np.eye(2), np.eye(2), np.eye(2))
    >>> [gradient.shape for gradient in attention_backward(y, cache)]
    [(2, 2), (2, 2), (2, 2)]
    """
    q, k, v, _, weights, scale, soft_cap = cache
    is_on_gpu = not isinstance(weights, np.ndarray)
    if is_on_gpu or weights.size <= LARGE:
        return _attention_gradients(dy, q, k, v, weights, scale, soft_cap)
    dq, dk, dv = np.empty_like(q), np.empty_like(k), np.empty_like(v)
    # Processing one head after the other needs memory for only one more (T_q, T_k) array.
    for head in np.ndindex(weights.shape[:-2]):
        dq[head], dk[head], dv[head] = _attention_gradients(
            dy[head], q[head], k[head], v[head], weights[head], scale, soft_cap
        )
    return dq, dk, dv


# If the weights have more entries than this, the CPU processes one head at a time. A GPU always processes all
# heads at once, because starting a separate product for each head would take longer.
LARGE = 2**18


def _attention_gradients(
    dy: Array, q: Array, k: Array, v: Array, w: Array, scale: float, soft_cap: float | None
) -> tuple[Array, Array, Array]:
    """Compute dq, dk and dv from dy and the weights w (..., T_q, T_k)."""
    dv = _transpose(w) @ dy  # from y = w v: (..., T_k, d_v)
    dw = dy @ _transpose(v)  # from y = w v: (..., T_q, T_k)
    ds = dw  # The next two lines overwrite dw, which saves one (T_q, T_k) array.
    ds -= _sum_of_products(dw, w)  # from w = softmax(scores): (..., T_q, 1)
    ds *= w  # from w = softmax(scores): (..., T_q, T_k)
    if soft_cap is not None:
        tanh = capped_scores(q, k, scale, soft_cap) / soft_cap
        ds *= 1 - tanh * tanh  # from scores = c tanh(q kᵀ/√d_k / c)
    dq = ds @ (k * scale)  # from scores = q kᵀ/√d_k: (..., T_q, d_k)
    dk = _transpose(ds) @ (q * scale)  # from scores = q kᵀ/√d_k: (..., T_k, d_k)
    return dq, dk, dv


def _sum_of_products(a: Array, b: Array) -> Array:
    """Compute Σ a b for each row. On the CPU, einsum does not store the products a b."""
    is_on_gpu = not isinstance(a, np.ndarray)
    if is_on_gpu:
        return array_module(a).add.reduce(a * b, axis=-1, keepdims=True)  # (..., 1)
    return np.einsum("...k,...k->...", a, b)[..., None]  # (..., 1)


def capped_scores(q: Array, k: Array, scale: float, soft_cap: float | None) -> Array:
    """Compute s = scale q kᵀ, or c tanh(s/c) with soft_cap = c: (..., T_q, T_k)."""
    scores = q * scale @ _transpose(k)
    if soft_cap is None:
        return scores
    return soft_cap * array_module(q).tanh(scores / soft_cap)


def _transpose(x: Array) -> Array:
    """Swap the last two axes. CuPy arrays have no attribute ``mT``."""
    return x.swapaxes(-1, -2)


# --- what the arguments of multi-head attention must satisfy --------------------------------------
# Rules are conditions that a shape cannot express. Argument validation (npformer/validation) checks them.


@rule("divides n_heads", Phase.MASKS)
def KV_HEADS(value: Any, name: str, call: Call) -> None:
    """Check that the number of KV heads divides the number of query heads."""
    check_integer(call.function, name, value, 1)
    n_heads = call.sizes["h"]
    if n_heads % value:
        raise call.value_error(f"{name} is {value}; expected a divisor of n_heads={n_heads}")


@rule("records d_kv")
def RECORDS_D_KV(W_Q: Any, name: str, call: Call) -> None:
    """Record d_kv = n_kv_heads d_k. Without n_kv_heads in the call or its config, d_kv is d_model.

    If a number of heads is wrong, d_kv stays unknown. A different rule then rejects the wrong number. It
    also stays unknown in a function outside of npformer that lacks the argument n_heads.
    """
    n_heads = _setting("n_heads", call)
    n_kv_heads = _setting("n_kv_heads", call)
    d_model = call.sizes["d_model"]
    if n_heads is None:
        return
    if n_kv_heads is None:
        call.sizes["d_kv"] = d_model
    elif is_divisor(n_heads, d_model) and is_divisor(n_kv_heads, n_heads):
        call.sizes["d_kv"] = d_model // n_heads * n_kv_heads


def _setting(name: str, call: Call) -> Any:
    """Return the argument with this name, or else the config field with this name, or else None."""
    if name in call.arguments:
        return call.arguments[name]
    return getattr(call.arguments.get("config"), name, None)


def is_divisor(value: Any, whole: int) -> bool:
    """Return whether value is a positive integer that divides `whole`."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return is_integer and value >= 1 and whole % value == 0


KVHeads = Annotated[int, KV_HEADS]


@rule("a table of the T positions", Phase.MASKS)
def FITS_HEADS(rope: Any, name: str, call: Call) -> None:
    """Check that a RoPE table has the dtype of q, a row for each position, and at most d_k/2 pairs."""
    if not isinstance(rope, RoPETable):
        return
    check_choice(call.function, f"{name}.layout", rope.layout, get_args(Layout))
    d_k = call.sizes["d_model"] // call.sizes["h"]
    T = max(call.sizes["T_q"], call.sizes["T_k"])
    for field in ("cos", "sin"):
        array, path = getattr(rope, field), f"{name}.{field}"
        check_float(call.function, path, array, call.dtype)
        check_shape(call.function, path, array, ("...", "T", "pairs"), {"T": T})
        check_broadcast(call.function, path, array, ("...", "T", "pairs"), (*call.leading, T, -1))
        if array.shape[-1] > d_k // 2:
            expected = f"at most {d_k // 2} pairs with d_k={d_k}"
            raise call.value_error(f"{path} has {array.shape[-1]} pairs; expected {expected}")
    check_same_shape(call.function, f"{name}.sin", rope.sin, rope.cos.shape, f"{name}.cos")


# --- multi-head attention -------------------------------------------------------------------------


class AttentionParams(NamedTuple):
    """The projections of multi-head attention. The biases may be absent (None)."""

    W_Q: Float[Array, "d_model d_model", RECORDS_D_KV]  # head 0 has the first d_k columns, head 1 the next
    W_K: Float[Array, "d_model d_kv"]  # d_kv = n_kv_heads · d_k, and d_kv = d_model without n_kv_heads
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
    rope: tuple[RoPECache, RoPECache] | None  # of the queries and of the keys
    attention: AttentionCache  # of all heads at once: (..., h, T, d_k)
    merged: Float[Array, "... T_q d_model"]  # the concatenated outputs of the heads, which W_O multiplies
    params: AttentionParams

    @property
    def weights(self) -> Array:
        """The attention weights of each head: (..., h, T_q, T_k)."""
        return self.attention.weights

    @property
    def scores(self) -> Array:
        """The scores of each head, scaled and with bias, before the mask: (..., h, T_q, T_k)."""
        return self.attention.scores


def init_attention(
    d_model: Size, rng: Rng, *, bias: bool = False, dtype: DType = np.float64
) -> AttentionParams:
    """Draw the four weights uniformly from ±√(3 / d_model).

    Parameters
    ----------
    d_model : int
        The number of columns.
    rng : numpy.random.Generator
    bias : bool
        True adds four biases, which are zero. False sets the biases to None.
    dtype : numpy.float32 or numpy.float64

    Returns
    -------
    params : AttentionParams

    Examples
    --------
    >>> init_attention(8, np.random.default_rng(0)).W_Q.shape
    (8, 8)
    """
    weights = [glorot(d_model, d_model, rng, dtype) for _ in range(4)]
    if not bias:
        return AttentionParams(*weights)
    biases = [np.zeros(d_model, dtype) for _ in range(4)]
    return AttentionParams(*weights, *biases)


def multi_head_attention_forward(
    q: Float[Array, "... T_q d_model"],
    k: Float[Array, "... T_k d_model"],
    v: Float[Array, "... T_k d_model"],
    params: AttentionParams,
    *,
    n_heads: Heads,
    mask: Mask[Array, "... T_q T_k"] | None = None,
    bias: Bias[Array, "... h T_q T_k"] | None = None,
    rope: Annotated[bool | RoPETable, EVEN_HEADS, FITS_HEADS] = False,
    n_kv_heads: KVHeads | None = None,
    base: Positive = 10000.0,
    rope_layout: Layout = "interleaved",
    scale: Positive | None = None,
    soft_cap: Positive | None = None,
) -> tuple[Float[Array, "... T_q d_model"], MultiHeadAttentionCache]:
    """y = concat(head_1, …, head_h) W_O, head_i = attention(q W_Q_i, k W_K_i, v W_V_i), d_k = d_model / h.

    "Attention Is All You Need", section 3.2.2. With n_kv_heads it is grouped-query attention: Ainslie et al.,
    "GQA", 2023. With n_kv_heads=1 it is multi-query attention: Shazeer, "Fast Transformer Decoding", 2019.

    Parameters
    ----------
    q : float array (..., T_q, d_model)
        The input of the queries.
    k : float array (..., T_k, d_model)
        The input of the keys.
    v : float array (..., T_k, d_model)
        The input of the values.
    params : AttentionParams
    n_heads : int
        The number of heads h. It divides d_model.
    mask : boolean array that broadcasts to (..., T_q, T_k), optional
        True means that the query may attend to the key. All heads use the same mask.
    bias : float array that broadcasts to (..., h, T_q, T_k), optional
        A number to add to each score. The number -inf hides a key from the queries of one head.
    rope : bool or RoPETable
        True applies ``rope_forward`` to the queries and keys of each head. The last query has the position
        of the last key. A table from ``rope_table`` replaces the arguments base and rope_layout. It has
        max(T_q, T_k) rows, and may have the leading axes of q.
    n_kv_heads : int, optional
        The number of heads of keys and values, n_heads by default. It divides n_heads. Query head i uses key
        head i // (n_heads / n_kv_heads). W_K and W_V have n_kv_heads · d_k columns.
    base : float, base > 0
        The base of RoPE's frequencies.
    rope_layout : "interleaved" or "halves"
        The layout of RoPE's pairs, as in ``rope_forward``.
    scale : float, scale > 0, optional
        The factor of the dot products, 1/√d_k by default.
    soft_cap : float, soft_cap > 0, optional
        The limit of the scores, as in ``attention_forward``.

    Returns
    -------
    y : float array (..., T_q, d_model)
    cache : MultiHeadAttentionCache
        Input of ``multi_head_attention_backward``. It contains ``weights`` (..., h, T_q, T_k).

    Examples
    --------
    >>> params = init_attention(8, np.random.default_rng(0))
    >>> x = np.ones((3, 6, 8))
    >>> y, cache = multi_head_attention_forward(x, x, x, params, n_heads=4)
    >>> y.shape, cache.weights.shape
    ((3, 6, 8), (3, 4, 6, 6))
    """
    if n_kv_heads is None:
        n_kv_heads = n_heads
    Q, K, V = project(q, k, v, params, n_heads, n_kv_heads)  # (..., h or n_kv_heads, T, d_k)
    rope_caches = None
    if rope is not False:
        table = default_rope_table(Q, K, base, rope_layout) if rope is True else rope
        (Q, rope_Q), (K, rope_K) = rotate_heads(Q, table), rotate_heads(K, table)
        rope_caches = rope_Q, rope_K
    K, V = repeat_heads(K, n_heads), repeat_heads(V, n_heads)  # (..., h, T_k, d_k)
    if mask is not None and mask.ndim >= 3:
        mask = mask[..., None, :, :]  # (..., 1, T_q, T_k)
    heads, attention = attention_forward(Q, K, V, mask=mask, bias=bias, scale=scale, soft_cap=soft_cap)
    merged = merge_heads(heads)  # (..., T_q, d_model)
    y, _ = linear_forward(merged, params.W_O, params.b_O)  # (..., T_q, d_model)
    return y, MultiHeadAttentionCache(q, k, v, rope_caches, attention, merged, params)


def multi_head_attention_backward(
    dy: Float[Array, "... T_q d_model"], cache: MultiHeadAttentionCache
) -> tuple[
    Float[Array, "... T_q d_model"],
    Float[Array, "... T_k d_model"],
    Float[Array, "... T_k d_model"],
    AttentionParams,
]:
    """Apply the backward of each line of the forward, from the last line to the first.

    In self-attention, q, k and v are the same x. Then dx = dq + dk + dv.

    Parameters
    ----------
    dy : float array (..., T_q, d_model)
        Gradient of the loss with respect to y.
    cache : MultiHeadAttentionCache
        Second output of ``multi_head_attention_forward``.

    Returns
    -------
    dq : float array (..., T_q, d_model)
    dk : float array (..., T_k, d_model)
    dv : float array (..., T_k, d_model)
    grads : AttentionParams
        The gradients of the parameters. The gradient of an absent bias is None.

    Examples
    --------
    >>> x = np.ones((3, 6, 8))
    >>> params = init_attention(8, np.random.default_rng(0))
    >>> y, cache = multi_head_attention_forward(x, x, x, params, n_heads=4)
    >>> multi_head_attention_backward(y, cache)[3].W_O.shape
    (8, 8)
    """
    q, k, v, rope_caches, attention, merged, (W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O) = cache
    dmerged, dW_O, db_O = linear_backward(dy, LinearCache(merged, W_O, b_O))  # (..., T_q, d_model)
    dheads = split_heads(dmerged, attention.q.shape[-3])  # (..., h, T_q, d_k)
    dQ, dK, dV = attention_backward(dheads, attention)  # (..., h, T, d_k)
    del dmerged, dheads  # This frees memory for the lines below, which need the most memory.
    n_kv_heads = W_K.shape[-1] // dK.shape[-1]
    dK, dV = (
        sum_repeated_heads(dK, n_kv_heads),
        sum_repeated_heads(dV, n_kv_heads),
    )  # (..., n_kv_heads, T_k, d_k)
    if rope_caches is not None:
        rope_Q, rope_K = rope_caches
        dQ, dK = rope_backward(dQ, rope_Q), rope_backward(dK, rope_K)
    dq, dW_Q, db_Q = linear_backward(merge_heads(dQ), LinearCache(q, W_Q, b_Q))  # (..., T_q, d_model)
    del dQ
    dk, dW_K, db_K = linear_backward(merge_heads(dK), LinearCache(k, W_K, b_K))  # (..., T_k, d_model)
    del dK
    dv, dW_V, db_V = linear_backward(merge_heads(dV), LinearCache(v, W_V, b_V))  # (..., T_k, d_model)
    return dq, dk, dv, AttentionParams(dW_Q, dW_K, dW_V, dW_O, db_Q, db_K, db_V, db_O)


def project(
    q: Array, k: Array, v: Array, params: AttentionParams, n_heads: int, n_kv_heads: int
) -> tuple[Array, Array, Array]:
    """Compute q W_Q, k W_K and v W_V, and split them into heads.

    The queries have the shape (..., h, T_q, d_k), the keys and the values (..., n_kv_heads, T_k, d_k).
    """
    Q = split_heads(linear_forward(q, params.W_Q, params.b_Q)[0], n_heads)
    K = split_heads(linear_forward(k, params.W_K, params.b_K)[0], n_kv_heads)
    V = split_heads(linear_forward(v, params.W_V, params.b_V)[0], n_kv_heads)
    return Q, K, V


def default_rope_table(Q: Array, K: Array, base: float, layout: Layout) -> RoPETable:
    """Compute the rotations of queries and keys at the positions up to T_k - 1."""
    T_q, T_k = Q.shape[-2], K.shape[-2]
    positions = array_module(Q).arange(min(0, T_k - T_q), T_k)
    frequencies = angular_frequencies(Q.shape[-1], base=base)
    return rope_table(positions, frequencies, layout=layout, dtype=Q.dtype)


def rotate_heads(x: Array, table: RoPETable) -> tuple[Array, RoPECache]:
    """Apply RoPE to the queries or keys of all heads, x (..., h, T, d_k), with the last T rows of the table.

    A table with leading axes has no axis of heads, so this axis is inserted.
    """
    T = x.shape[-2]
    first = table.cos.shape[-2] - T
    cos, sin = table.cos[..., first:, :], table.sin[..., first:, :]  # (..., T, pairs)
    if cos.ndim > 2:
        cos, sin = cos[..., None, :, :], sin[..., None, :, :]  # (..., 1, T, pairs)
    return rotate(x, cos, sin, table.layout), RoPECache(cos, sin, table.layout, x.shape)


def repeat_heads(x: Array, n_heads: int) -> Array:
    """Repeat each head n_heads / n_kv_heads times: (..., n_kv_heads, T, d_k) -> (..., n_heads, T, d_k)."""
    times = n_heads // x.shape[-3]
    if times == 1:
        return x
    return array_module(x).repeat(x, times, axis=-3)


def sum_repeated_heads(dy: Array, n_kv_heads: int) -> Array:
    """Backward of ``repeat_heads``: add the gradients of the copies of each head.

    Shapes: (..., n_heads, T, d_k) -> (..., n_kv_heads, T, d_k).
    """
    *leading, h, T, d_k = dy.shape
    if h == n_kv_heads:
        return dy
    groups = dy.reshape(*leading, n_kv_heads, h // n_kv_heads, T, d_k)
    return groups.sum(axis=-3)


def split_heads(x: Float[Array, "... T d_model"], n_heads: Heads) -> Float[Array, "... h T d_k"]:
    """Split the columns of each row into h heads of d_k = d_model / h columns.

    Parameters
    ----------
    x : float array (..., T, d_model)
    n_heads : int
        The number of heads h. It divides d_model.

    Returns
    -------
    heads : float array (..., h, T, d_k)
        A view of x if possible.

    Examples
    --------
    >>> split_heads(np.arange(8.0).reshape(2, 4), 2)[1]
    array([[2., 3.],
           [6., 7.]])
    """
    heads = x.reshape(*x.shape[:-1], n_heads, x.shape[-1] // n_heads)  # (..., T, h, d_k)
    return heads.swapaxes(-2, -3)  # (..., h, T, d_k)


def merge_heads(x: Float[Array, "... h T d_k"]) -> Float[Array, "... T d_model"]:
    """Concatenate the columns of all heads. This is the inverse of ``split_heads``.

    Parameters
    ----------
    x : float array (..., h, T, d_k)

    Returns
    -------
    merged : float array (..., T, d_model)
        d_model = h · d_k. With one head, this is a view of x.

    Examples
    --------
    >>> merge_heads(split_heads(np.arange(8.0).reshape(2, 4), 2))[0]
    array([0., 1., 2., 3.])
    """
    *leading, h, T, d_k = x.shape
    return x.swapaxes(-2, -3).reshape(*leading, T, h * d_k)  # (..., T, d_model)


# --- masks ----------------------------------------------------------------------------------------


def causal_mask(T_q: Length, T_k: Length | None = None, *, xp: ModuleType = np) -> Array:
    """mask[i, j] is True where key j is not later than query i.

    "Attention Is All You Need", section 3.2.3.

    Parameters
    ----------
    T_q : int
        The number of queries.
    T_k : int, optional
        The number of keys, T_q by default. The last query has the position of the last key, as in decoding
        token by token.
    xp : module
        The array library of the result, numpy or cupy.

    Returns
    -------
    mask : boolean array (T_q, T_k)

    Examples
    --------
    >>> causal_mask(2, 3)
    array([[ True,  True, False],
           [ True,  True,  True]])
    """
    if T_k is None:
        T_k = T_q
    query_positions = xp.arange(T_q)[:, None] + (T_k - T_q)  # (T_q, 1)
    return query_positions >= xp.arange(T_k)  # (T_q, T_k)


def padding_mask(ids: Ids[Array, "... T_k"], padding_id: Integer) -> Array:
    """For every query, the mask is True where the key is a token, and False where the key is padding.

    Parameters
    ----------
    ids : integer array (..., T_k)
        The token ids of the keys.
    padding_id : int
        The id of the padding token.

    Returns
    -------
    mask : boolean array (..., 1, T_k)

    Examples
    --------
    >>> padding_mask(np.array([[5, 2, 0]]), 0)
    array([[[ True,  True, False]]])
    """
    return (ids != padding_id)[..., None, :]  # (..., 1, T_k)
