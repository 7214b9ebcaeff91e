"""The decoder block and the decoder, a stack of such blocks, forward and backward."""

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
from npformer.encoder import (
    ResidualCache,
    residual_backward,
    residual_forward,
    self_attention_backward,
    self_attention_forward,
    stack_backward,
    stack_forward,
)
from npformer.feed_forward import FFNCache, FFNParams, ffn_backward, ffn_forward, init_ffn
from npformer.layer_norm import LayerNormCache, LayerNormParams, init_layer_norm
from npformer.validation.annotations import DType, Float, Mask, Rng, Shape
from npformer.validation.rules import LAYERS


class DecoderBlockParams(NamedTuple):
    """The parameters of one decoder block. Their gradients have the same type."""

    self_attention: AttentionParams
    norm_1: LayerNormParams
    cross_attention: AttentionParams
    norm_2: LayerNormParams
    ffn: FFNParams
    norm_3: LayerNormParams


class DecoderParams(NamedTuple):
    """The parameters of all blocks, in order, and of the final norm, which only a pre-norm decoder has."""

    blocks: Annotated[tuple[DecoderBlockParams, ...], LAYERS]
    norm: LayerNormParams | None = None


class DecoderBlockCache(NamedTuple):
    self_attention: MultiHeadAttentionCache
    residual_1: ResidualCache
    cross_attention: MultiHeadAttentionCache
    residual_2: ResidualCache
    ffn: FFNCache
    residual_3: ResidualCache
    shape: Shape[tuple[int, ...], "... T d_model"]
    dtype: Any


class DecoderCache(NamedTuple):
    blocks: tuple[DecoderBlockCache, ...]
    norm: LayerNormCache | None
    memory: Float[Array, "... S d_model"]
    shape: Shape[tuple[int, ...], "... T d_model"]
    dtype: Any


def init_decoder_block(
    config: TransformerConfig, rng: Rng, *, dtype: DType = np.float64
) -> DecoderBlockParams:
    """Draw the parameters of one decoder block, with ``init_attention`` and ``init_ffn``.

    Parameters
    ----------
    config : TransformerConfig
        It gives d_model, d_ff and attention_bias.
    rng : numpy.random.Generator
    dtype : numpy.float32 or numpy.float64

    Returns
    -------
    params : DecoderBlockParams

    Examples
    --------
    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> init_decoder_block(config, np.random.default_rng(0)).cross_attention.W_Q.shape
    (8, 8)
    """
    d_model, bias = config.d_model, config.attention_bias
    return DecoderBlockParams(
        init_attention(d_model, rng, bias=bias, dtype=dtype),
        init_layer_norm(d_model, dtype=dtype),
        init_attention(d_model, rng, bias=bias, dtype=dtype),
        init_layer_norm(d_model, dtype=dtype),
        init_ffn(d_model, config.d_ff, rng, dtype=dtype),
        init_layer_norm(d_model, dtype=dtype),
    )


def decoder_block_forward(
    x: Float[Array, "... T d_model"],
    memory: Float[Array, "... S d_model"],
    params: DecoderBlockParams,
    config: TransformerConfig,
    *,
    mask: Mask[Array, "... T T"] | None = None,
    memory_mask: Mask[Array, "... T S"] | None = None,
    rng: Rng | None = None,
) -> tuple[Float[Array, "... T d_model"], DecoderBlockCache]:
    """g = Norm(x + SelfAttention(x)), h = Norm(g + Attention(g, memory)), y = Norm(h + FFN(h)).

    "Attention Is All You Need", section 3.1. Norm is LayerNorm. Attention(g, memory) is cross-attention: g
    gives the queries, and memory gives the keys and values. With config.norm="pre", the block computes
    g = x + SelfAttention(Norm(x)), h = g + Attention(Norm(g), memory), y = h + FFN(Norm(h)).

    Parameters
    ----------
    x : float array (..., T, d_model)
    memory : float array (..., S, d_model)
        The output of the encoder.
    params : DecoderBlockParams
    config : TransformerConfig
    mask : boolean array that broadcasts to (..., T, T), optional
        The mask of self-attention. True means that the query may attend to the key. None masks nothing, so
        pass ``causal_mask(T)`` for a causal decoder.
    memory_mask : boolean array that broadcasts to (..., T, S), optional
        The mask of cross-attention.
    rng : numpy.random.Generator, optional
        With it, dropout acts on the output of each sub-layer. Without it, nothing is dropped.

    Returns
    -------
    y : float array (..., T, d_model)
    cache : DecoderBlockCache
        Input of ``decoder_block_backward``.

    Examples
    --------
    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> params = init_decoder_block(config, np.random.default_rng(0))
    >>> decoder_block_forward(np.ones((3, 6, 8)), np.ones((3, 9, 8)), params, config)[0].shape
    (3, 6, 8)
    """

    def self_attention(x: Array) -> tuple[Array, MultiHeadAttentionCache]:
        return self_attention_forward(x, params.self_attention, config, mask)

    def cross_attention(g: Array) -> tuple[Array, MultiHeadAttentionCache]:
        return multi_head_attention_forward(
            g, memory, memory, params.cross_attention, n_heads=config.n_heads, mask=memory_mask
        )

    def feed_forward(h: Array) -> tuple[Array, FFNCache]:
        return ffn_forward(h, params.ffn, activation=config.activation)

    g, self_cache, residual_1 = residual_forward(x, self_attention, params.norm_1, config, rng)
    h, cross_cache, residual_2 = residual_forward(g, cross_attention, params.norm_2, config, rng)
    y, ffn_cache, residual_3 = residual_forward(h, feed_forward, params.norm_3, config, rng)
    caches = self_cache, residual_1, cross_cache, residual_2, ffn_cache, residual_3
    return y, DecoderBlockCache(*caches, x.shape, x.dtype)


def decoder_block_backward(
    dy: Float[Array, "... T d_model"], cache: DecoderBlockCache
) -> tuple[Float[Array, "... T d_model"], Float[Array, "... S d_model"], DecoderBlockParams]:
    """Apply the backward of each line of the forward, from the last line to the first.

    Parameters
    ----------
    dy : float array (..., T, d_model)
        Gradient of the loss with respect to y.
    cache : DecoderBlockCache
        Second output of ``decoder_block_forward``.

    Returns
    -------
    dx : float array (..., T, d_model)
    dmemory : float array (..., S, d_model)
    grads : DecoderBlockParams
        The gradients of the parameters.

    Examples
    --------
    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> params = init_decoder_block(config, np.random.default_rng(0))
    >>> y, cache = decoder_block_forward(np.ones((6, 8)), np.ones((9, 8)), params, config)
    >>> decoder_block_backward(y, cache)[1].shape
    (9, 8)
    """
    self_cache, residual_1, cross_cache, residual_2, ffn_cache, residual_3, _, _ = cache
    dh, dffn, dnorm_3 = residual_backward(dy, ffn_backward, ffn_cache, residual_3)
    dg, (dmemory, dcross), dnorm_2 = residual_backward(dh, _cross_attention_backward, cross_cache, residual_2)
    dx, dself, dnorm_1 = residual_backward(dg, self_attention_backward, self_cache, residual_1)
    return dx, dmemory, DecoderBlockParams(dself, dnorm_1, dcross, dnorm_2, dffn, dnorm_3)


def _cross_attention_backward(
    dy: Array, cache: MultiHeadAttentionCache
) -> tuple[Array, tuple[Array, AttentionParams]]:
    """Return dx (..., T, d_model), and the pair of dmemory (..., S, d_model) and the parameters' gradients.

    Keys and values come from the same memory, so dmemory is the sum of two gradients.
    """
    dx, dmemory_k, dmemory_v, grads = multi_head_attention_backward(dy, cache)
    return dx, (dmemory_k + dmemory_v, grads)


def init_decoder(config: TransformerConfig, rng: Rng, *, dtype: DType = np.float64) -> DecoderParams:
    """Draw the parameters of config.n_layers decoder blocks, and of a final norm if config.norm is "pre".

    Parameters
    ----------
    config : TransformerConfig
        It gives n_layers, norm, and the sizes of each block.
    rng : numpy.random.Generator
    dtype : numpy.float32 or numpy.float64

    Returns
    -------
    params : DecoderParams

    Examples
    --------
    >>> len(init_decoder(TransformerConfig(d_model=8, d_ff=32, n_heads=2), np.random.default_rng(0)).blocks)
    6
    """
    blocks = tuple(init_decoder_block(config, rng, dtype=dtype) for _ in range(config.n_layers))
    norm = init_layer_norm(config.d_model, dtype=dtype) if config.norm == "pre" else None
    return DecoderParams(blocks, norm)


def decoder_forward(
    x: Float[Array, "... T d_model"],
    memory: Float[Array, "... S d_model"],
    params: DecoderParams,
    config: TransformerConfig,
    *,
    mask: Mask[Array, "... T T"] | None = None,
    memory_mask: Mask[Array, "... T S"] | None = None,
    rng: Rng | None = None,
) -> tuple[Float[Array, "... T d_model"], DecoderCache]:
    """y = block_n(… block_1(x, memory) …, memory), followed by the final norm if params has one.

    "Attention Is All You Need", section 3.1. All blocks receive the same memory.

    Parameters
    ----------
    x : float array (..., T, d_model)
        The embeddings. Sinusoidal or learned positions are already added. RoPE and ALiBi act in the blocks.
    memory : float array (..., S, d_model)
        The output of the encoder.
    params : DecoderParams
    config : TransformerConfig
    mask : boolean array that broadcasts to (..., T, T), optional
        The mask of self-attention. True means that the query may attend to the key. None masks nothing, so
        pass ``causal_mask(T)`` for a causal decoder.
    memory_mask : boolean array that broadcasts to (..., T, S), optional
        The mask of cross-attention.
    rng : numpy.random.Generator, optional
        Without it, nothing is dropped.

    Returns
    -------
    y : float array (..., T, d_model)
    cache : DecoderCache
        Input of ``decoder_backward``.

    Examples
    --------
    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> params = init_decoder(config, np.random.default_rng(0))
    >>> decoder_forward(np.ones((6, 8)), np.ones((9, 8)), params, config)[0].shape
    (6, 8)
    """

    def block_forward(x: Array, block: DecoderBlockParams) -> tuple[Array, DecoderBlockCache]:
        return decoder_block_forward(x, memory, block, config, mask=mask, memory_mask=memory_mask, rng=rng)

    y, blocks, norm = stack_forward(x, block_forward, params, config)
    return y, DecoderCache(blocks, norm, memory, x.shape, x.dtype)


def decoder_backward(
    dy: Float[Array, "... T d_model"], cache: DecoderCache
) -> tuple[Float[Array, "... T d_model"], Float[Array, "... S d_model"], DecoderParams]:
    """Apply the backward of the final norm and of each block, from the last block to the first.

    Parameters
    ----------
    dy : float array (..., T, d_model)
        Gradient of the loss with respect to y.
    cache : DecoderCache
        Second output of ``decoder_forward``.

    Returns
    -------
    dx : float array (..., T, d_model)
    dmemory : float array (..., S, d_model)
        The sum of the gradients from all blocks.
    grads : DecoderParams
        The gradients of the parameters. The gradient of an absent norm is None.

    Examples
    --------
    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> params = init_decoder(config, np.random.default_rng(0))
    >>> y, cache = decoder_forward(np.ones((6, 8)), np.ones((9, 8)), params, config)
    >>> decoder_backward(y, cache)[1].shape
    (9, 8)
    """

    def block_backward(dy: Array, block: DecoderBlockCache) -> tuple[Array, tuple[Array, DecoderBlockParams]]:
        dx, dmemory, grads = decoder_block_backward(dy, block)
        return dx, (dmemory, grads)

    dx, block_grads, dnorm = stack_backward(dy, block_backward, cache.blocks, cache.norm)
    dmemory = array_module(dy).zeros_like(cache.memory)
    dblocks = []
    for dmemory_of_block, dblock in block_grads:
        dmemory = dmemory + dmemory_of_block  # All blocks use the same memory, so its gradients add up.
        dblocks.append(dblock)
    return dx, dmemory, DecoderParams(tuple(dblocks), dnorm)
