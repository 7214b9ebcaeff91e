"""Multi-head latent attention: the keys and values of all heads come from one short vector per token.

The superscripts of the paper become endings: q_C is the content part of a query, and q_R is the part that
RoPE rotates. In the backward function, the comment ``# from x W_Q`` means that the line differentiates this
product of the forward function. In the shape of several arrays, · is the number of columns, which differs
between them.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.attention import (
    AttentionCache,
    attention_backward,
    attention_forward,
    is_divisor,
    merge_heads,
    repeat_heads,
    split_heads,
    sum_repeated_heads,
)
from npformer.functional import LinearCache, glorot, linear_backward, linear_forward
from npformer.modern.rms_norm import RMSNormCache, RMSNormParams, rms_norm_backward, rms_norm_forward
from npformer.positional import Layout, RoPECache, rope_backward, rope_forward
from npformer.validation.annotations import Count, DType, Float, Mask, NonNegative, Positive, Rng, Size
from npformer.validation.call import Call, Phase
from npformer.validation.checks import check_integer
from npformer.validation.rules import EVEN, rule

# --- what the arguments must satisfy --------------------------------------------------------------
# Rules are conditions that a shape cannot express. Argument validation (npformer/validation) checks them.


@rule("d_R columns for each head")
def COLUMNS_OF_HEADS(W_QR: Any, name: str, call: Call) -> None:
    """Check that W_QR has d_R columns for each head. A different rule rejects a wrong number of heads."""
    n_heads: Any = call.arguments.get("n_heads")
    n_columns, d_R = W_QR.shape[-1], call.sizes["d_R"]
    if _divides_columns(n_heads, call) and n_columns != n_heads * d_R:
        raise call.value_error(f"{name} has {n_columns} columns; expected n_heads · d_R = {n_heads * d_R}")


@rule("divides d_Q and d_V", Phase.IDS)
def LATENT_HEADS(value: Any, name: str, call: Call) -> None:
    """Check that the heads have equally many columns, and record the number of heads as the size h."""
    check_integer(call.function, name, value, 1)
    if not _divides_columns(value, call):
        d_Q, d_V = call.sizes["d_Q"], call.sizes["d_V"]
        raise call.value_error(f"{name} is {value}; expected a divisor of d_Q={d_Q} and d_V={d_V}")
    call.sizes["h"] = value


def _divides_columns(n_heads: Any, call: Call) -> bool:
    """Return whether the columns of the keys and of the values can be split into this number of heads."""
    return is_divisor(n_heads, call.sizes["d_Q"]) and is_divisor(n_heads, call.sizes["d_V"])


LatentHeads = Annotated[int, LATENT_HEADS]


# --- the operation --------------------------------------------------------------------------------


class LatentAttentionParams(NamedTuple):
    """The projections of multi-head latent attention. In W_Q, W_QR, W_UK and W_UV, head 0 comes first."""

    W_DKV: Float[Array, "d_model d_c"]  # down: from a token to its latent vector, with d_c columns
    gamma: Float[Array, "d_c"]  # of the RMSNorm of the latent vector
    W_UK: Float[Array, "d_c d_Q"]  # up: from the latent vector to the keys; d_Q = n_heads · d_k
    W_UV: Float[Array, "d_c d_V"]  # up: from the latent vector to the values; d_V = n_heads · d_v
    W_KR: Float[Array, "d_model d_R", EVEN]  # to the one rotated key that all heads share
    W_Q: Float[Array, "d_model d_Q"]
    W_QR: Float[Array, "d_model d_QR", COLUMNS_OF_HEADS]  # d_QR = n_heads · d_R
    W_O: Float[Array, "d_V d_model"]


class LatentAttentionCache(NamedTuple):
    x: Float[Array, "... T d_model"]
    c_KV: Float[Array, "... T d_c"]  # a model that generates text stores this and k_R, and no more
    norm: RMSNormCache
    rope: tuple[RoPECache, RoPECache]  # of the queries and of the shared key
    attention: AttentionCache  # of all heads at once; the columns of q and k are d_k of content, then d_R
    merged: Float[Array, "... T d_V"]  # the concatenated outputs of the heads, which W_O multiplies
    params: LatentAttentionParams

    @property
    def k_R(self) -> Array:
        """The rotated key that all heads share: (..., T, d_R)."""
        d_R = self.params.W_KR.shape[-1]
        return self.attention.k[..., 0, :, -d_R:]

    @property
    def weights(self) -> Array:
        """The attention weights of each head: (..., h, T, T)."""
        return self.attention.weights

    @property
    def scores(self) -> Array:
        """The scores of each head, scaled, before the mask: (..., h, T, T)."""
        return self.attention.scores


def init_latent_attention(
    d_model: Size,
    rng: Rng,
    *,
    n_heads: Count,
    d_k: Size,
    d_c: Size,
    d_R: Annotated[Size, EVEN],
    dtype: DType = np.float64,
) -> LatentAttentionParams:
    """Draw each matrix uniformly from ±√(6 / (rows + columns)), and set gamma to 1.

    Parameters
    ----------
    d_model : int
        The number of columns of each token's vector.
    rng : numpy.random.Generator
    n_heads : int
        The number of heads.
    d_k : int
        The number of columns of each head's values, and of the content part of its queries and keys.
    d_c : int
        The number of columns of the latent vector.
    d_R : int
        The number of columns that RoPE rotates, an even number.
    dtype : numpy.float32 or numpy.float64

    Returns
    -------
    params : LatentAttentionParams

    Examples
    --------
    >>> init_latent_attention(8, np.random.default_rng(0), n_heads=4, d_k=2, d_c=3, d_R=2).W_UK.shape
    (3, 8)
    """
    d_heads = n_heads * d_k
    return LatentAttentionParams(
        W_DKV=glorot(d_model, d_c, rng, dtype),
        gamma=np.ones(d_c, dtype),
        W_UK=glorot(d_c, d_heads, rng, dtype),
        W_UV=glorot(d_c, d_heads, rng, dtype),
        W_KR=glorot(d_model, d_R, rng, dtype),
        W_Q=glorot(d_model, d_heads, rng, dtype),
        W_QR=glorot(d_model, n_heads * d_R, rng, dtype),
        W_O=glorot(d_heads, d_model, rng, dtype),
    )


def multi_head_latent_attention_forward(
    x: Float[Array, "... T d_model"],
    params: LatentAttentionParams,
    *,
    n_heads: LatentHeads,
    mask: Mask[Array, "... T T"] | None = None,
    eps: NonNegative = 1e-6,
    base: Positive = 10000.0,
    rope_layout: Layout = "interleaved",
) -> tuple[Float[Array, "... T d_model"], LatentAttentionCache]:
    """c_KV = RMSNorm(x W_DKV), k_C = c_KV W_UK, v_C = c_KV W_UV, scores = (q_C k_Cᵀ + q_R k_Rᵀ)/√(d_k + d_R).

    DeepSeek-AI, "DeepSeek-V2", 2024, equations 9 to 19. The parts that RoPE rotates are q_R = RoPE(x W_QR)
    and k_R = RoPE(x W_KR). All heads share k_R. Then y = concat(softmax(scores) v_C) W_O. The RMSNorm of the
    latent vector is not in these equations; section 3.1.2 and DeepSeek's code (``kv_a_layernorm``) have it.
    As in DeepSeek-V2-Lite, the queries come from x directly. The large models first project x to a second
    latent vector (equations 12 and 13), which saves memory in training and does not change the KV cache.

    Parameters
    ----------
    x : float array (..., T, d_model)
    params : LatentAttentionParams
    n_heads : int
        The number of heads h.
    mask : boolean array that broadcasts to (..., T, T), optional
        True means that the query may attend to the key. All heads use the same mask.
    eps : float, eps >= 0
        A small number inside the square root of RMSNorm.
    base : float, base > 0
        The base of RoPE's frequencies.
    rope_layout : "interleaved" or "halves"
        The layout of RoPE's pairs, as in ``rope_forward``.

    Returns
    -------
    y : float array (..., T, d_model)
    cache : LatentAttentionCache
        Input of ``multi_head_latent_attention_backward``. It contains ``c_KV`` (..., T, d_c), ``k_R``
        (..., T, d_R) and ``weights`` (..., h, T, T).

    Examples
    --------
    >>> params = init_latent_attention(8, np.random.default_rng(0), n_heads=4, d_k=2, d_c=3, d_R=2)
    >>> y, cache = multi_head_latent_attention_forward(np.ones((5, 6, 8)), params, n_heads=4)
    >>> y.shape, cache.c_KV.shape, cache.k_R.shape
    ((5, 6, 8), (5, 6, 3), (5, 6, 2))
    """
    W_DKV, gamma, W_UK, W_UV, W_KR, W_Q, W_QR, W_O = params
    c_KV, norm = rms_norm_forward(linear_forward(x, W_DKV)[0], RMSNormParams(gamma), eps=eps)  # (..., T, d_c)
    k_C = split_heads(linear_forward(c_KV, W_UK)[0], n_heads)  # (..., h, T, d_k)
    v_C = split_heads(linear_forward(c_KV, W_UV)[0], n_heads)  # (..., h, T, d_v)
    k_R = linear_forward(x, W_KR)[0][..., None, :, :]  # (..., 1, T, d_R), one for all heads
    q_C = split_heads(linear_forward(x, W_Q)[0], n_heads)  # (..., h, T, d_k)
    q_R = split_heads(linear_forward(x, W_QR)[0], n_heads)  # (..., h, T, d_R)
    k_R, rope_K = rope_forward(k_R, base=base, layout=rope_layout)
    q_R, rope_Q = rope_forward(q_R, base=base, layout=rope_layout)
    xp = array_module(x)
    q = xp.concatenate([q_C, q_R], axis=-1)  # (..., h, T, d_k + d_R)
    k = xp.concatenate([k_C, repeat_heads(k_R, n_heads)], axis=-1)  # (..., h, T, d_k + d_R)
    if mask is not None and mask.ndim >= 3:
        mask = mask[..., None, :, :]  # (..., 1, T, T)
    heads, attention = attention_forward(q, k, v_C, mask=mask)  # (..., h, T, d_v)
    merged = merge_heads(heads)  # (..., T, d_V)
    y, _ = linear_forward(merged, W_O)  # (..., T, d_model)
    return y, LatentAttentionCache(x, c_KV, norm, (rope_Q, rope_K), attention, merged, params)


def multi_head_latent_attention_backward(
    dy: Float[Array, "... T d_model"], cache: LatentAttentionCache
) -> tuple[Float[Array, "... T d_model"], LatentAttentionParams]:
    """Apply the backward of each line of the forward, from the last line to the first.

    x is used four times and c_KV twice, so dx and dc_KV are sums. All heads share k_R, so dk_R is the sum
    over the heads.

    Parameters
    ----------
    dy : float array (..., T, d_model)
        Gradient of the loss with respect to y.
    cache : LatentAttentionCache
        Second output of ``multi_head_latent_attention_forward``.

    Returns
    -------
    dx : float array (..., T, d_model)
    grads : LatentAttentionParams
        The gradients of the parameters.

    Examples
    --------
    >>> params = init_latent_attention(8, np.random.default_rng(0), n_heads=4, d_k=2, d_c=3, d_R=2)
    >>> y, cache = multi_head_latent_attention_forward(np.ones((5, 6, 8)), params, n_heads=4)
    >>> multi_head_latent_attention_backward(y, cache)[1].W_UK.shape
    (3, 8)
    """
    x, c_KV, norm, (rope_Q, rope_K), attention, merged, params = cache
    W_DKV, _, W_UK, W_UV, W_KR, W_Q, W_QR, W_O = params
    d_k, n_heads = attention.q.shape[-1] - W_KR.shape[-1], attention.q.shape[-3]
    dmerged, dW_O, _ = linear_backward(dy, LinearCache(merged, W_O, None))  # from y = merged W_O
    dq, dk, dv_C = attention_backward(split_heads(dmerged, n_heads), attention)  # (..., h, T, ·)
    dk_R = sum_repeated_heads(dk[..., d_k:], 1)  # all heads share k_R: (..., 1, T, d_R)
    dq_C, dq_R = dq[..., :d_k], rope_backward(dq[..., d_k:], rope_Q)  # (..., h, T, ·)
    dk_C, dk_R = dk[..., :d_k], rope_backward(dk_R, rope_K)  # (..., h or 1, T, ·)
    through_q_R, dW_QR, _ = linear_backward(merge_heads(dq_R), LinearCache(x, W_QR, None))  # from x W_QR
    through_q_C, dW_Q, _ = linear_backward(merge_heads(dq_C), LinearCache(x, W_Q, None))  # from x W_Q
    through_k_R, dW_KR, _ = linear_backward(merge_heads(dk_R), LinearCache(x, W_KR, None))  # from x W_KR
    through_v, dW_UV, _ = linear_backward(merge_heads(dv_C), LinearCache(c_KV, W_UV, None))  # from c_KV W_UV
    through_k, dW_UK, _ = linear_backward(merge_heads(dk_C), LinearCache(c_KV, W_UK, None))  # from c_KV W_UK
    dc_KV, (dgamma,) = rms_norm_backward(through_k + through_v, norm)  # from c_KV = RMSNorm(…)
    through_c_KV, dW_DKV, _ = linear_backward(dc_KV, LinearCache(x, W_DKV, None))  # from x W_DKV
    dx = through_c_KV + through_k_R + through_q_C + through_q_R  # (..., T, d_model)
    return dx, LatentAttentionParams(dW_DKV, dgamma, dW_UK, dW_UV, dW_KR, dW_Q, dW_QR, dW_O)
