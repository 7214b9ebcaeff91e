"""The decoder block and the stack of them, forward and backward."""

from __future__ import annotations  # np.random.Generator in a signature would import numpy.random

from typing import Any, NamedTuple

import numpy as np

from npformer.attention import (
    AttentionParams,
    MultiHeadAttentionCache,
    check_attention,
    init_attention,
    multi_head_attention_backward,
    multi_head_attention_forward,
)
from npformer.backend import Array, array_module
from npformer.encoder import (
    TransformerConfig,
    check_config,
    config_sizes,
    self_attention_backward,
    self_attention_forward,
)
from npformer.feed_forward import FFNCache, FFNParams, check_ffn, ffn_backward, ffn_forward, init_ffn
from npformer.functional import DropoutCache, dropout_backward, dropout_forward
from npformer.layer_norm import (
    LayerNormCache,
    LayerNormParams,
    check_layer_norm,
    init_layer_norm,
    layer_norm_backward,
    layer_norm_forward,
)
from npformer.validate import (
    check_array,
    check_d_output,
    check_dtype,
    check_float,
    check_generator,
    check_kind,
    check_mask,
)


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

    blocks: tuple[DecoderBlockParams, ...]
    norm: LayerNormParams | None = None


class DecoderBlockCache(NamedTuple):
    self_attention: MultiHeadAttentionCache
    dropout_1: DropoutCache
    norm_1: LayerNormCache
    cross_attention: MultiHeadAttentionCache
    dropout_2: DropoutCache
    norm_2: LayerNormCache
    ffn: FFNCache
    dropout_3: DropoutCache
    norm_3: LayerNormCache
    norm: str  # "post" or "pre"


class DecoderCache(NamedTuple):
    blocks: tuple[DecoderBlockCache, ...]
    norm: LayerNormCache | None
    shape: tuple[int, ...]  # of x
    memory_shape: tuple[int, ...]
    dtype: Any


def init_decoder_block(
    config: TransformerConfig, rng: np.random.Generator, *, dtype: Any = np.float64
) -> DecoderBlockParams:
    """The parameters of one block in the config's sizes, drawn by `init_attention` and `init_ffn`.

    Raises TypeError or ValueError for a config with a value out of its range.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> init_decoder_block(config, np.random.default_rng(0)).cross_attention.W_Q.shape
    (8, 8)
    """
    check_config("init_decoder_block", config)
    check_generator("init_decoder_block", rng, required=True)
    dtype = check_dtype("init_decoder_block", dtype)
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
    x: Array,
    memory: Array,
    params: DecoderBlockParams,
    config: TransformerConfig,
    *,
    mask: Array | None = None,
    memory_mask: Array | None = None,
    rng: np.random.Generator | None = None,
) -> tuple[Array, DecoderBlockCache]:
    """Self-attention, attention to the encoder's output, feed-forward; each as in the encoder block.

    "Attention Is All You Need", section 3.1: g = LayerNorm(x + SelfAttention(x)),
    h = LayerNorm(g + Attention(g, memory, memory)), y = LayerNorm(h + FFN(h)); with config.norm="pre" the
    norm stands inside each sum. x (..., T, d_model), memory (..., S, d_model) -> y (..., T, d_model).
    mask broadcasts to (..., T, T), memory_mask to (..., T, S); None masks nothing. Dropout acts only with
    an rng.

    Raises TypeError for arrays that are not of one float dtype, ValueError for shapes that do not fit the
    config or each other, or a config with a value out of its range.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> params = init_decoder_block(config, np.random.default_rng(0))
    >>> decoder_block_forward(np.ones((3, 6, 8)), np.ones((3, 9, 8)), params, config)[0].shape
    (3, 6, 8)
    """
    sizes = config_sizes("decoder_block_forward", config)
    check_float("decoder_block_forward", "x", x)
    check_decoder_block("decoder_block_forward", "params", params, x.dtype, sizes)
    _check_inputs("decoder_block_forward", x, memory, sizes, mask, memory_mask, rng)
    if config.norm == "pre":
        return _pre_norm_forward(x, memory, params, config, mask, memory_mask, rng)
    return _post_norm_forward(x, memory, params, config, mask, memory_mask, rng)


def decoder_block_backward(dy: Array, cache: DecoderBlockCache) -> tuple[Array, Array, DecoderBlockParams]:
    """The forward's lines from the last one up; where x went two ways, its gradients add.

    dy (..., T, d_model) -> dx like x, dmemory like memory, and the gradients of the parameters. Raises
    TypeError for another function's cache, ValueError for a dy that has not the output's shape.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> params = init_decoder_block(config, np.random.default_rng(0))
    >>> y, cache = decoder_block_forward(np.ones((6, 8)), np.ones((9, 8)), params, config)
    >>> decoder_block_backward(y, cache)[1].shape
    (9, 8)
    """
    check_kind("decoder_block_backward", "cache", cache, DecoderBlockCache)
    check_d_output("decoder_block_backward", "dy", dy, cache.ffn.x.shape, cache.ffn.x.dtype)
    return _pre_norm_backward(dy, cache) if cache.norm == "pre" else _post_norm_backward(dy, cache)


def _post_norm_forward(
    x: Array,
    memory: Array,
    params: DecoderBlockParams,
    config: TransformerConfig,
    mask: Any,
    memory_mask: Any,
    rng: Any,
) -> tuple[Array, DecoderBlockCache]:
    a, attention = self_attention_forward(x, params.self_attention, config, mask)
    a, dropout_1 = dropout_forward(a, config.dropout, rng)
    a += x  # the residual
    g, norm_1 = layer_norm_forward(a, params.norm_1, eps=config.eps)
    c, cross = _cross_attention_forward(g, memory, params.cross_attention, config, memory_mask)
    c, dropout_2 = dropout_forward(c, config.dropout, rng)
    c += g
    h, norm_2 = layer_norm_forward(c, params.norm_2, eps=config.eps)
    f, ffn = ffn_forward(h, params.ffn, activation=config.activation)
    f, dropout_3 = dropout_forward(f, config.dropout, rng)
    f += h
    y, norm_3 = layer_norm_forward(f, params.norm_3, eps=config.eps)
    return y, DecoderBlockCache(
        attention, dropout_1, norm_1, cross, dropout_2, norm_2, ffn, dropout_3, norm_3, config.norm
    )


def _post_norm_backward(dy: Array, cache: DecoderBlockCache) -> tuple[Array, Array, DecoderBlockParams]:
    df, dnorm_3 = layer_norm_backward(dy, cache.norm_3)
    dh, dffn = ffn_backward(dropout_backward(df, cache.dropout_3), cache.ffn)
    dh += df  # h went into the FFN and past it
    dc, dnorm_2 = layer_norm_backward(dh, cache.norm_2)
    dg, dmemory, dcross = _cross_attention_backward(
        dropout_backward(dc, cache.dropout_2), cache.cross_attention
    )
    dg += dc
    da, dnorm_1 = layer_norm_backward(dg, cache.norm_1)
    dx, dattention = self_attention_backward(dropout_backward(da, cache.dropout_1), cache.self_attention)
    dx += da
    return dx, dmemory, DecoderBlockParams(dattention, dnorm_1, dcross, dnorm_2, dffn, dnorm_3)


def _pre_norm_forward(
    x: Array,
    memory: Array,
    params: DecoderBlockParams,
    config: TransformerConfig,
    mask: Any,
    memory_mask: Any,
    rng: Any,
) -> tuple[Array, DecoderBlockCache]:
    normed, norm_1 = layer_norm_forward(x, params.norm_1, eps=config.eps)
    g, attention = self_attention_forward(normed, params.self_attention, config, mask)
    g, dropout_1 = dropout_forward(g, config.dropout, rng)
    g += x  # the residual, not normalized
    normed, norm_2 = layer_norm_forward(g, params.norm_2, eps=config.eps)
    h, cross = _cross_attention_forward(normed, memory, params.cross_attention, config, memory_mask)
    h, dropout_2 = dropout_forward(h, config.dropout, rng)
    h += g
    normed, norm_3 = layer_norm_forward(h, params.norm_3, eps=config.eps)
    y, ffn = ffn_forward(normed, params.ffn, activation=config.activation)
    y, dropout_3 = dropout_forward(y, config.dropout, rng)
    y += h
    return y, DecoderBlockCache(
        attention, dropout_1, norm_1, cross, dropout_2, norm_2, ffn, dropout_3, norm_3, config.norm
    )


def _pre_norm_backward(dy: Array, cache: DecoderBlockCache) -> tuple[Array, Array, DecoderBlockParams]:
    dnormed, dffn = ffn_backward(dropout_backward(dy, cache.dropout_3), cache.ffn)
    dh, dnorm_3 = layer_norm_backward(dnormed, cache.norm_3)
    dh += dy  # h went into the FFN and past it
    dc = dropout_backward(dh, cache.dropout_2)
    dnormed, dmemory, dcross = _cross_attention_backward(dc, cache.cross_attention)
    dg, dnorm_2 = layer_norm_backward(dnormed, cache.norm_2)
    dg += dh
    dnormed, dattention = self_attention_backward(dropout_backward(dg, cache.dropout_1), cache.self_attention)
    dx, dnorm_1 = layer_norm_backward(dnormed, cache.norm_1)
    dx += dg
    return dx, dmemory, DecoderBlockParams(dattention, dnorm_1, dcross, dnorm_2, dffn, dnorm_3)


def _cross_attention_forward(
    x: Array, memory: Array, params: AttentionParams, config: TransformerConfig, mask: Array | None
) -> tuple[Array, MultiHeadAttentionCache]:
    return multi_head_attention_forward(x, memory, memory, params, n_heads=config.n_heads, mask=mask)


def _cross_attention_backward(
    dy: Array, cache: MultiHeadAttentionCache
) -> tuple[Array, Array, AttentionParams]:
    dx, dmemory, dv, grads = multi_head_attention_backward(dy, cache)
    dmemory += dv  # one memory was keys and values
    return dx, dmemory, grads


def init_decoder(
    config: TransformerConfig, rng: np.random.Generator, *, dtype: Any = np.float64
) -> DecoderParams:
    """config.n_layers blocks, and with config.norm="pre" a final norm.

    Raises TypeError or ValueError for a config with a value out of its range.

    >>> len(init_decoder(TransformerConfig(d_model=8, d_ff=32, n_heads=2), np.random.default_rng(0)).blocks)
    6
    """
    check_config("init_decoder", config)
    check_generator("init_decoder", rng, required=True)
    dtype = check_dtype("init_decoder", dtype)
    blocks = tuple(init_decoder_block(config, rng, dtype=dtype) for _ in range(config.n_layers))
    return DecoderParams(
        blocks, init_layer_norm(config.d_model, dtype=dtype) if config.norm == "pre" else None
    )


def decoder_forward(
    x: Array,
    memory: Array,
    params: DecoderParams,
    config: TransformerConfig,
    *,
    mask: Array | None = None,
    memory_mask: Array | None = None,
    rng: np.random.Generator | None = None,
) -> tuple[Array, DecoderCache]:
    """One block after the other, all with the same memory, then the final norm if there is one.

    x (..., T, d_model), the embeddings with their positions, memory (..., S, d_model) -> y (..., T, d_model).
    Raises what `decoder_block_forward` raises.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> params = init_decoder(config, np.random.default_rng(0))
    >>> decoder_forward(np.ones((6, 8)), np.ones((9, 8)), params, config)[0].shape
    (6, 8)
    """
    sizes = config_sizes("decoder_forward", config)
    check_float("decoder_forward", "x", x)
    check_decoder("decoder_forward", "params", params, x.dtype, sizes)
    _check_inputs("decoder_forward", x, memory, sizes, mask, memory_mask, rng)
    y, caches, norm = x, [], None
    for block in params.blocks:
        y, cache = decoder_block_forward(
            y, memory, block, config, mask=mask, memory_mask=memory_mask, rng=rng
        )
        caches.append(cache)
    if params.norm is not None:
        y, norm = layer_norm_forward(y, params.norm, eps=config.eps)
    return y, DecoderCache(tuple(caches), norm, x.shape, memory.shape, x.dtype)


def decoder_backward(dy: Array, cache: DecoderCache) -> tuple[Array, Array, DecoderParams]:
    """The final norm, then the blocks from the last one down; dmemory is the sum of every block's.

    dy (..., T, d_model) -> dx (..., T, d_model), dmemory (..., S, d_model), gradients. Raises TypeError for
    another function's cache, ValueError for a dy that has not the output's shape.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> params = init_decoder(config, np.random.default_rng(0))
    >>> y, cache = decoder_forward(np.ones((6, 8)), np.ones((9, 8)), params, config)
    >>> decoder_backward(y, cache)[1].shape
    (9, 8)
    """
    check_kind("decoder_backward", "cache", cache, DecoderCache)
    check_d_output("decoder_backward", "dy", dy, cache.shape, cache.dtype)
    dx, grads, dnorm = dy, [], None
    dmemory = array_module(dy).zeros(cache.memory_shape, cache.dtype)
    if cache.norm is not None:
        dx, dnorm = layer_norm_backward(dx, cache.norm)
    for block in reversed(cache.blocks):
        dx, dblock_memory, dblock = decoder_block_backward(dx, block)
        dmemory += dblock_memory
        grads.append(dblock)
    return dx, dmemory, DecoderParams(tuple(reversed(grads)), dnorm)


def check_decoder_block(function: str, argument: str, block: Any, dtype: Any, sizes: dict[str, int]) -> None:
    """Refuse a block whose parameters do not fit the config's sizes."""
    check_kind(function, argument, block, DecoderBlockParams)
    check_attention(function, f"{argument}.self_attention", block.self_attention, dtype, sizes)
    check_layer_norm(function, f"{argument}.norm_1", block.norm_1, dtype, sizes)
    check_attention(function, f"{argument}.cross_attention", block.cross_attention, dtype, sizes)
    check_layer_norm(function, f"{argument}.norm_2", block.norm_2, dtype, sizes)
    check_ffn(function, f"{argument}.ffn", block.ffn, dtype, sizes)
    check_layer_norm(function, f"{argument}.norm_3", block.norm_3, dtype, sizes)


def check_decoder(function: str, argument: str, params: Any, dtype: Any, sizes: dict[str, int]) -> None:
    """Refuse a stack whose parameters do not fit the config's sizes."""
    check_kind(function, argument, params, DecoderParams)
    check_kind(function, f"{argument}.blocks", params.blocks, tuple)
    for i, block in enumerate(params.blocks):
        check_decoder_block(function, f"{argument}.blocks.{i}", block, dtype, sizes)
    if params.norm is not None:
        check_layer_norm(function, f"{argument}.norm", params.norm, dtype, sizes)


def _check_inputs(
    function: str, x: Any, memory: Any, sizes: dict[str, int], mask: Any, memory_mask: Any, rng: Any
) -> None:
    check_array(function, "x", x, ("...", "T", "d_model"), sizes)
    check_array(function, "memory", memory, ("...", "S", "d_model"), sizes, x.dtype)
    if memory.shape[:-2] != x.shape[:-2]:
        raise ValueError(
            f"{function}: memory has shape {memory.shape}; expected the leading axes of x, {x.shape[:-2]}"
        )
    T, S = x.shape[-2], memory.shape[-2]
    if mask is not None:
        check_mask(function, "mask", mask, "(..., T, T)", (*x.shape[:-2], T, T))
    if memory_mask is not None:
        check_mask(function, "memory_mask", memory_mask, "(..., T, S)", (*x.shape[:-2], T, S))
    check_generator(function, rng)
