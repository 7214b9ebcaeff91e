"""The encoder block and the encoder, a stack of such blocks, forward and backward.

In a backward function, ``# from s = x + dropout(a)`` means that the line differentiates this forward
equation.
"""

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
    """The parameters of one encoder block. Their gradients have the same type."""

    attention: AttentionParams
    norm_1: LayerNormParams
    ffn: FFNParams
    norm_2: LayerNormParams


class EncoderParams(NamedTuple):
    """The parameters of all blocks, in order, and of the final norm, which only a pre-norm encoder has."""

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
    shape: Shape[tuple[int, ...], "... T d_model"]  # the shape of y, which dy must have too
    dtype: Any


class EncoderCache(NamedTuple):
    blocks: tuple[EncoderBlockCache, ...]
    norm: LayerNormCache | None
    shape: Shape[tuple[int, ...], "... T d_model"]
    dtype: Any


def init_encoder_block(
    config: TransformerConfig, rng: Rng, *, dtype: DType = np.float64
) -> EncoderBlockParams:
    """Draw the parameters of one encoder block, with ``init_attention`` and ``init_ffn``.

    Parameters
    ----------
    config : TransformerConfig
        It gives d_model, d_ff and attention_bias.
    rng : numpy.random.Generator
    dtype : numpy.float32 or numpy.float64

    Returns
    -------
    params : EncoderBlockParams

    Examples
    --------
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

    "Attention Is All You Need", section 3.1 (post-norm). With config.norm="pre", the block computes
    h = x + Attention(LayerNorm(x)), y = h + FFN(LayerNorm(h)).

    Parameters
    ----------
    x : float array (..., T, d_model)
    params : EncoderBlockParams
    config : TransformerConfig
    mask : boolean array that broadcasts to (..., T, T), optional
        True means that the query may attend to the key.
    rng : numpy.random.Generator, optional
        With it, dropout acts on the output of each sub-layer (section 5.4). Without it, nothing is dropped.

    Returns
    -------
    y : float array (..., T, d_model)
    cache : EncoderBlockCache
        Input of ``encoder_block_backward``.

    Examples
    --------
    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> params = init_encoder_block(config, np.random.default_rng(0))
    >>> encoder_block_forward(np.ones((3, 6, 8)), params, config)[0].shape
    (3, 6, 8)
    """

    def attend(x: Array) -> tuple[Array, MultiHeadAttentionCache]:
        return self_attention_forward(x, params.attention, config, mask)

    def feed_forward(h: Array) -> tuple[Array, FFNCache]:
        return ffn_forward(h, params.ffn, activation=config.activation)

    h, attention, residual_1 = residual_forward(x, attend, params.norm_1, config, rng)
    y, ffn, residual_2 = residual_forward(h, feed_forward, params.norm_2, config, rng)
    return y, EncoderBlockCache(attention, residual_1, ffn, residual_2, x.shape, x.dtype)


def encoder_block_backward(
    dy: Float[Array, "... T d_model"], cache: EncoderBlockCache
) -> tuple[Float[Array, "... T d_model"], EncoderBlockParams]:
    """Apply the backward of each line of the forward, from the last line to the first.

    Parameters
    ----------
    dy : float array (..., T, d_model)
        Gradient of the loss with respect to y.
    cache : EncoderBlockCache
        Second output of ``encoder_block_forward``.

    Returns
    -------
    dx : float array (..., T, d_model)
    grads : EncoderBlockParams
        The gradients of the parameters.

    Examples
    --------
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
    """LayerNorm(x + SubLayer(x)), or x + SubLayer(LayerNorm(x)) with config.norm="pre": (..., T, d_model).

    "Attention Is All You Need", section 3.1. Pre-norm: Xiong et al., "On Layer Normalization in the
    Transformer Architecture", 2020. Dropout acts on the output of the sub-layer, before the sum. The second
    result is the cache of the sub-layer.
    """
    if config.norm == "post":
        a, sub_layer_cache = sub_layer(x)
        a, dropout_cache = dropout_forward(a, config.dropout, rng)
        s = x + a
        y, norm_cache = layer_norm_forward(s, norm, eps=config.eps)
    else:
        n, norm_cache = layer_norm_forward(x, norm, eps=config.eps)
        a, sub_layer_cache = sub_layer(n)
        a, dropout_cache = dropout_forward(a, config.dropout, rng)
        y = x + a
    return y, sub_layer_cache, ResidualCache(dropout_cache, norm_cache, config.norm)


def residual_backward(
    dy: Array,
    sub_layer_backward: Callable[[Array, Any], tuple[Array, Any]],
    sub_layer_cache: Any,
    cache: ResidualCache,
) -> tuple[Array, Any, LayerNormParams]:
    """Return dx (..., T, d_model) and the gradients of the sub-layer and of the norm.

    The forward uses x twice: in the sub-layer and in the sum. So dx is the sum of two gradients.
    """
    if cache.placement == "post":
        ds, dnorm = layer_norm_backward(dy, cache.norm)  # from y = norm(s)
        da = dropout_backward(ds, cache.dropout)  # from s = x + dropout(a)
        dx, grads = sub_layer_backward(da, sub_layer_cache)  # from a = sub_layer(x)
        return ds + dx, grads, dnorm
    da = dropout_backward(dy, cache.dropout)  # from y = x + dropout(a)
    dn, grads = sub_layer_backward(da, sub_layer_cache)  # from a = sub_layer(n)
    dx, dnorm = layer_norm_backward(dn, cache.norm)  # from n = norm(x)
    return dy + dx, grads, dnorm


def self_attention_forward(
    x: Array, params: AttentionParams, config: TransformerConfig, mask: Array | None
) -> tuple[Array, MultiHeadAttentionCache]:
    """Compute the self-attention of x (..., T, d_model), with the heads and positions of the config."""
    T, h = x.shape[-2], config.n_heads
    bias = None
    if config.positions == "alibi":
        bias = alibi_bias(h, T, T, dtype=x.dtype, xp=array_module(x))
    rope = config.positions == "rope"
    return multi_head_attention_forward(x, x, x, params, n_heads=h, mask=mask, bias=bias, rope=rope)


def self_attention_backward(dy: Array, cache: MultiHeadAttentionCache) -> tuple[Array, AttentionParams]:
    """Return dx (..., T, d_model) and the gradients of the parameters.

    Queries, keys and values come from the same x, so dx is the sum of three gradients.
    """
    dx_q, dx_k, dx_v, grads = multi_head_attention_backward(dy, cache)
    return dx_q + dx_k + dx_v, grads


def init_encoder(config: TransformerConfig, rng: Rng, *, dtype: DType = np.float64) -> EncoderParams:
    """Draw the parameters of config.n_layers encoder blocks.

    With config.norm="pre", the encoder gets a final norm, because without it the last residual sum would not
    be normalized.

    Parameters
    ----------
    config : TransformerConfig
        It gives n_layers, norm, and the sizes of each block.
    rng : numpy.random.Generator
    dtype : numpy.float32 or numpy.float64

    Returns
    -------
    params : EncoderParams

    Examples
    --------
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
    """y = block_n(… block_1(x)), followed by the final norm if params has one.

    "Attention Is All You Need", section 3.1.

    Parameters
    ----------
    x : float array (..., T, d_model)
        The embeddings. Sinusoidal or learned positions are already added. RoPE and ALiBi act in the blocks.
    params : EncoderParams
    config : TransformerConfig
    mask : boolean array that broadcasts to (..., T, T), optional
        True means that the query may attend to the key.
    rng : numpy.random.Generator, optional
        Without it, nothing is dropped.

    Returns
    -------
    y : float array (..., T, d_model)
    cache : EncoderCache
        Input of ``encoder_backward``.

    Examples
    --------
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
    """Apply the backward of the final norm and of each block, from the last block to the first.

    Parameters
    ----------
    dy : float array (..., T, d_model)
        Gradient of the loss with respect to y.
    cache : EncoderCache
        Second output of ``encoder_forward``.

    Returns
    -------
    dx : float array (..., T, d_model)
    grads : EncoderParams
        The gradients of the parameters. The gradient of an absent norm is None.

    Examples
    --------
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
    """Apply all blocks of params to x (..., T, d_model), then the final norm if there is one.

    Returns y, the cache of each block and the cache of the norm.
    """
    y = x
    block_caches = []
    for block in params.blocks:
        y, cache = block_forward(y, block)
        block_caches.append(cache)
    norm_cache = None
    if params.norm is not None:
        y, norm_cache = layer_norm_forward(y, params.norm, eps=config.eps)
    if y is x:  # an empty stack; the caller may change y
        y = x.copy()
    return y, tuple(block_caches), norm_cache


def stack_backward(
    dy: Array,
    block_backward: Callable[[Array, Any], tuple[Array, Any]],
    caches: tuple[Any, ...],
    norm: LayerNormCache | None,
) -> tuple[Array, tuple[Any, ...], LayerNormParams | None]:
    """Return dx (..., T, d_model), the gradients of each block and the gradient of the final norm."""
    dx = dy
    dnorm = None
    if norm is not None:
        dx, dnorm = layer_norm_backward(dx, norm)
    dblocks = []
    for cache in reversed(caches):
        dx, dblock = block_backward(dx, cache)
        dblocks.append(dblock)
    if dx is dy:  # an empty stack; the caller may change dx
        dx = dy.copy()
    return dx, tuple(reversed(dblocks)), dnorm
