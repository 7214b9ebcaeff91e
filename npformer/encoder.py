"""The encoder block and the stack of them, forward and backward."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.attention import (
    AttentionParams,
    MultiHeadAttentionCache,
    init_attention,
    multi_head_attention_backward,
    multi_head_attention_forward,
)
from npformer.config import TransformerConfig
from npformer.feed_forward import FFNCache, FFNParams, ffn_backward, ffn_forward, init_ffn
from npformer.functional import DropoutCache, dropout_backward, dropout_forward
from npformer.layer_norm import (
    LayerNormCache,
    LayerNormParams,
    init_layer_norm,
    layer_norm_backward,
    layer_norm_forward,
)
from npformer.positional import alibi_bias
from npformer.validation.annotations import DType, Float, Mask, Rng, Shape
from npformer.validation.rules import LAYERS


class EncoderBlockParams(NamedTuple):
    """What one encoder block trains; the gradients come back in the same type."""

    attention: AttentionParams
    norm_1: LayerNormParams
    ffn: FFNParams
    norm_2: LayerNormParams


class EncoderParams(NamedTuple):
    """The blocks from the first to the last, and the final norm of a pre-norm stack."""

    blocks: Annotated[tuple[EncoderBlockParams, ...], LAYERS]
    norm: LayerNormParams | None = None


class ResidualCache(NamedTuple):
    dropout: DropoutCache
    norm: LayerNormCache
    placement: str  # config.norm, "post" or "pre"


class EncoderBlockCache(NamedTuple):
    attention: MultiHeadAttentionCache
    residual_1: ResidualCache
    ffn: FFNCache
    residual_2: ResidualCache
    shape: Shape[tuple[int, ...], "... T d_model"]  # of y, and so of dy: the front door asks
    dtype: Any


class EncoderCache(NamedTuple):
    blocks: tuple[EncoderBlockCache, ...]
    norm: LayerNormCache | None
    shape: Shape[tuple[int, ...], "... T d_model"]
    dtype: Any


def init_encoder_block(
    config: TransformerConfig, rng: Rng, *, dtype: DType = np.float64
) -> EncoderBlockParams:
    """The parameters of one block in the config's sizes, drawn by `init_attention` and `init_ffn`.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> init_encoder_block(config, np.random.default_rng(0)).ffn.W_1.shape
    (8, 32)
    """
    return EncoderBlockParams(
        init_attention(config.d_model, rng, bias=config.attention_bias, dtype=dtype),
        init_layer_norm(config.d_model, dtype=dtype),
        init_ffn(config.d_model, config.d_ff, rng, dtype=dtype),
        init_layer_norm(config.d_model, dtype=dtype),
    )


def encoder_block_forward(
    x: Float[Array, "... T d_model"],
    params: EncoderBlockParams,
    config: TransformerConfig,
    *,
    mask: Mask[Array, "... T T"] | None = None,
    rng: Rng | None = None,
) -> tuple[Float[Array, "... T d_model"], EncoderBlockCache]:
    """h = LayerNorm(x + Attention(x)), y = LayerNorm(h + FFN(h)).

    "Attention Is All You Need", section 3.1 (post-norm). With config.norm="pre":
    h = x + Attention(LayerNorm(x)), y = h + FFN(LayerNorm(h)). mask is boolean, True = may attend. Dropout
    (section 5.4, on each sub-layer's output) acts only with an rng.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> params = init_encoder_block(config, np.random.default_rng(0))
    >>> encoder_block_forward(np.ones((3, 6, 8)), params, config)[0].shape
    (3, 6, 8)
    """

    def attend(x: Array) -> tuple[Array, MultiHeadAttentionCache]:
        return self_attention_forward(x, params.attention, config, mask)

    def feed(h: Array) -> tuple[Array, FFNCache]:
        return ffn_forward(h, params.ffn, activation=config.activation)

    h, attention, residual_1 = residual_forward(x, attend, params.norm_1, config, rng)
    y, ffn, residual_2 = residual_forward(h, feed, params.norm_2, config, rng)
    return y, EncoderBlockCache(attention, residual_1, ffn, residual_2, x.shape, x.dtype)


def encoder_block_backward(
    dy: Float[Array, "... T d_model"], cache: EncoderBlockCache
) -> tuple[Float[Array, "... T d_model"], EncoderBlockParams]:
    """The forward's lines from the last one up, each undone by its own backward.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> params = init_encoder_block(config, np.random.default_rng(0))
    >>> y, cache = encoder_block_forward(np.ones((3, 6, 8)), params, config)
    >>> encoder_block_backward(y, cache)[1].ffn.W_1.shape
    (8, 32)
    """
    attention, residual_1, ffn, residual_2, _, _ = cache
    dh, dffn, dnorm_2 = residual_backward(dy, ffn_backward, ffn, residual_2)
    dx, dattention, dnorm_1 = residual_backward(dh, self_attention_backward, attention, residual_1)
    return dx, EncoderBlockParams(dattention, dnorm_1, dffn, dnorm_2)


def residual_forward(
    x: Array,
    sub_layer: Callable[[Array], tuple[Array, Any]],
    norm: LayerNormParams,
    config: TransformerConfig,
    rng: Rng | None,
) -> tuple[Array, Any, ResidualCache]:
    """LayerNorm(x + SubLayer(x)), or with config.norm="pre" x + SubLayer(LayerNorm(x)): (..., T, d_model).

    "Attention Is All You Need", section 3.1; pre-norm as in Xiong et al., "On Layer Normalization in the
    Transformer Architecture", 2020. Dropout acts on the sub-layer's output, before the sum.
    """
    if config.norm == "post":
        a, inner = sub_layer(x)
        a, dropped = dropout_forward(a, config.dropout, rng)
        s = x + a
        y, normed = layer_norm_forward(s, norm, eps=config.eps)
    else:
        n, normed = layer_norm_forward(x, norm, eps=config.eps)
        a, inner = sub_layer(n)
        a, dropped = dropout_forward(a, config.dropout, rng)
        y = x + a
    return y, inner, ResidualCache(dropped, normed, config.norm)


def residual_backward(
    dy: Array, sub_layer_backward: Callable[[Array, Any], tuple[Array, Any]], inner: Any, cache: ResidualCache
) -> tuple[Array, Any, LayerNormParams]:
    """The lines of `residual_forward` from the last one up: dy (..., T, d_model) -> dx, both gradients.

    In the sum, x went two ways: into the sub-layer and past it. So its gradients add.
    """
    if cache.placement == "post":
        ds, dnorm = layer_norm_backward(dy, cache.norm)  # y = norm(s)
        da = dropout_backward(ds, cache.dropout)  # s = x + dropout(a)
        dx, grads = sub_layer_backward(da, inner)  # a = sub_layer(x)
        return ds + dx, grads, dnorm
    da = dropout_backward(dy, cache.dropout)  # y = x + dropout(a)
    dn, grads = sub_layer_backward(da, inner)  # a = sub_layer(n)
    dx, dnorm = layer_norm_backward(dn, cache.norm)  # n = norm(x)
    return dy + dx, grads, dnorm


def self_attention_forward(
    x: Array, params: AttentionParams, config: TransformerConfig, mask: Array | None
) -> tuple[Array, MultiHeadAttentionCache]:
    """Attention of x to itself, by the config's heads and positions: x (..., T, d_model) -> same shape."""
    T, h, rope, bias = x.shape[-2], config.n_heads, config.positions == "rope", None
    if config.positions == "alibi":
        bias = alibi_bias(h, T, T, dtype=x.dtype, xp=array_module(x))
    return multi_head_attention_forward(x, x, x, params, n_heads=h, mask=mask, bias=bias, rope=rope)


def self_attention_backward(dy: Array, cache: MultiHeadAttentionCache) -> tuple[Array, AttentionParams]:
    """One x was queries, keys and values, so its gradients add: dy (..., T, d_model) -> dx, gradients."""
    dx_q, dx_k, dx_v, grads = multi_head_attention_backward(dy, cache)
    return dx_q + dx_k + dx_v, grads


def init_encoder(config: TransformerConfig, rng: Rng, *, dtype: DType = np.float64) -> EncoderParams:
    """config.n_layers blocks, and with config.norm="pre" a final norm: no other would normalize the last sum.

    >>> len(init_encoder(TransformerConfig(d_model=8, d_ff=32, n_heads=2), np.random.default_rng(0)).blocks)
    6
    """
    blocks = tuple(init_encoder_block(config, rng, dtype=dtype) for _ in range(config.n_layers))
    norm = init_layer_norm(config.d_model, dtype=dtype) if config.norm == "pre" else None
    return EncoderParams(blocks, norm)


def encoder_forward(
    x: Float[Array, "... T d_model"],
    params: EncoderParams,
    config: TransformerConfig,
    *,
    mask: Mask[Array, "... T T"] | None = None,
    rng: Rng | None = None,
) -> tuple[Float[Array, "... T d_model"], EncoderCache]:
    """One block after the other, then the final norm if there is one.

    x is what enters the first block: embeddings with their positions added already (RoPE and ALiBi act
    inside).

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> encoder_forward(np.ones((3, 6, 8)), init_encoder(config, np.random.default_rng(0)), config)[0].shape
    (3, 6, 8)
    """

    def block_forward(x: Array, block: EncoderBlockParams) -> tuple[Array, EncoderBlockCache]:
        return encoder_block_forward(x, block, config, mask=mask, rng=rng)

    y, blocks, norm = stack_forward(x, block_forward, params, config)
    return y, EncoderCache(blocks, norm, x.shape, x.dtype)


def encoder_backward(
    dy: Float[Array, "... T d_model"], cache: EncoderCache
) -> tuple[Float[Array, "... T d_model"], EncoderParams]:
    """The final norm, then the blocks from the last one down.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> y, cache = encoder_forward(np.ones((6, 8)), init_encoder(config, np.random.default_rng(0)), config)
    >>> encoder_backward(y, cache)[1].blocks[5].ffn.W_1.shape
    (8, 32)
    """
    dx, blocks, norm = stack_backward(dy, encoder_block_backward, cache.blocks, cache.norm)
    return dx, EncoderParams(blocks, norm)


def stack_forward(
    x: Array, block_forward: Callable[[Array, Any], tuple[Array, Any]], params: Any, config: TransformerConfig
) -> tuple[Array, tuple[Any, ...], LayerNormCache | None]:
    """x (..., T, d_model) through all of params.blocks, then params.norm if there is one: y, their caches."""
    caches, norm = [], None
    for block in params.blocks:
        x, cache = block_forward(x, block)
        caches.append(cache)
    if params.norm is not None:
        x, norm = layer_norm_forward(x, params.norm, eps=config.eps)
    return x, tuple(caches), norm


def stack_backward(
    dy: Array,
    block_backward: Callable[[Array, Any], tuple[Array, Any]],
    caches: tuple[Any, ...],
    norm: LayerNormCache | None,
) -> tuple[Array, tuple[Any, ...], LayerNormParams | None]:
    """`stack_forward` from the last line up: dy (..., T, d_model) -> dx, the gradients of blocks and norm."""
    grads, dnorm = [], None
    if norm is not None:
        dy, dnorm = layer_norm_backward(dy, norm)
    for cache in reversed(caches):
        dy, dblock = block_backward(dy, cache)
        grads.append(dblock)
    return dy, tuple(reversed(grads)), dnorm
