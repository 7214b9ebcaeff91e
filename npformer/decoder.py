"""The decoder block and the stack of them, forward and backward."""

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
    """What one decoder block trains; the gradients come back in the same type."""

    self_attention: AttentionParams
    norm_1: LayerNormParams
    cross_attention: AttentionParams
    norm_2: LayerNormParams
    ffn: FFNParams
    norm_3: LayerNormParams


class DecoderParams(NamedTuple):
    """The blocks from the first to the last, and the final norm of a pre-norm stack."""

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
    """The parameters of one block in the config's sizes, drawn by `init_attention` and `init_ffn`.

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
    """Self-attention, attention to the encoder's output, feed-forward; each as in the encoder block.

    "Attention Is All You Need", section 3.1: g = LayerNorm(x + SelfAttention(x)),
    h = LayerNorm(g + Attention(g, memory, memory)), y = LayerNorm(h + FFN(h)); with config.norm="pre" the
    norm stands inside each sum. A mask that is None masks nothing. Dropout acts only with an rng.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> params = init_decoder_block(config, np.random.default_rng(0))
    >>> decoder_block_forward(np.ones((3, 6, 8)), np.ones((3, 9, 8)), params, config)[0].shape
    (3, 6, 8)
    """

    def look_back(x: Array) -> tuple[Array, MultiHeadAttentionCache]:
        return self_attention_forward(x, params.self_attention, config, mask)

    def look_across(g: Array) -> tuple[Array, MultiHeadAttentionCache]:
        cross, h = params.cross_attention, config.n_heads
        return multi_head_attention_forward(g, memory, memory, cross, n_heads=h, mask=memory_mask)

    def feed(h: Array) -> tuple[Array, FFNCache]:
        return ffn_forward(h, params.ffn, activation=config.activation)

    g, attention, residual_1 = residual_forward(x, look_back, params.norm_1, config, rng)
    h, cross, residual_2 = residual_forward(g, look_across, params.norm_2, config, rng)
    y, ffn, residual_3 = residual_forward(h, feed, params.norm_3, config, rng)
    caches = attention, residual_1, cross, residual_2, ffn, residual_3
    return y, DecoderBlockCache(*caches, x.shape, x.dtype)


def decoder_block_backward(
    dy: Float[Array, "... T d_model"], cache: DecoderBlockCache
) -> tuple[Float[Array, "... T d_model"], Float[Array, "... S d_model"], DecoderBlockParams]:
    """The forward's lines from the last one up, each undone by its own backward: dx, dmemory, gradients.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> params = init_decoder_block(config, np.random.default_rng(0))
    >>> y, cache = decoder_block_forward(np.ones((6, 8)), np.ones((9, 8)), params, config)
    >>> decoder_block_backward(y, cache)[1].shape
    (9, 8)
    """
    attention, residual_1, cross, residual_2, ffn, residual_3, _, _ = cache
    dh, dffn, dnorm_3 = residual_backward(dy, ffn_backward, ffn, residual_3)
    dg, (dmemory, dcross), dnorm_2 = residual_backward(dh, _cross_attention_backward, cross, residual_2)
    dx, dattention, dnorm_1 = residual_backward(dg, self_attention_backward, attention, residual_1)
    return dx, dmemory, DecoderBlockParams(dattention, dnorm_1, dcross, dnorm_2, dffn, dnorm_3)


def _cross_attention_backward(
    dy: Array, cache: MultiHeadAttentionCache
) -> tuple[Array, tuple[Array, AttentionParams]]:
    """One memory was keys and values, so its gradients add: dy (..., T, d_model) -> dx, (dmemory, grads)."""
    dx, dmemory_k, dmemory_v, grads = multi_head_attention_backward(dy, cache)
    return dx, (dmemory_k + dmemory_v, grads)


def init_decoder(config: TransformerConfig, rng: Rng, *, dtype: DType = np.float64) -> DecoderParams:
    """config.n_layers blocks, and with config.norm="pre" a final norm.

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
    """One block after the other, all with the same memory, then the final norm if there is one.

    x is the embeddings with their positions added already, memory the encoder's output.

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
    """The final norm, then the blocks from the last one down; dmemory is the sum of every block's.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> params = init_decoder(config, np.random.default_rng(0))
    >>> y, cache = decoder_forward(np.ones((6, 8)), np.ones((9, 8)), params, config)
    >>> decoder_backward(y, cache)[1].shape
    (9, 8)
    """

    def block_backward(dy: Array, block: DecoderBlockCache) -> tuple[Array, tuple[Array, DecoderBlockParams]]:
        dx, dmemory, grads = decoder_block_backward(dy, block)
        return dx, (dmemory, grads)

    dx, pairs, norm = stack_backward(dy, block_backward, cache.blocks, cache.norm)
    dmemory = array_module(dy).zeros_like(cache.memory)
    for dblock_memory, _ in pairs:  # every block looked at the one memory
        dmemory = dmemory + dblock_memory
    return dx, dmemory, DecoderParams(tuple(grads for _, grads in pairs), norm)
