"""The encoder block and the stack of them, forward and backward."""

from __future__ import annotations  # np.random.Generator in a signature would import numpy.random

from typing import Any, NamedTuple

import numpy as np

from npformer.attention import (
    AttentionParams,
    MultiHeadAttentionCache,
    check_attention,
    check_even_heads,
    init_attention,
    multi_head_attention_backward,
    multi_head_attention_forward,
)
from npformer.backend import Array, array_module
from npformer.feed_forward import (
    ACTIVATIONS,
    FFNCache,
    FFNParams,
    check_ffn,
    ffn_backward,
    ffn_forward,
    init_ffn,
)
from npformer.functional import DropoutCache, dropout_backward, dropout_forward
from npformer.layer_norm import (
    LayerNormCache,
    LayerNormParams,
    check_layer_norm,
    init_layer_norm,
    layer_norm_backward,
    layer_norm_forward,
)
from npformer.positional import alibi_bias
from npformer.validate import (
    check_array,
    check_choice,
    check_d_output,
    check_dtype,
    check_flag,
    check_float,
    check_generator,
    check_integer,
    check_kind,
    check_mask,
    check_number,
)

NORMS = ("post", "pre")
POSITIONS = ("sinusoidal", "learned", "rope", "alibi", "none")


class TransformerConfig(NamedTuple):
    """The sizes and choices of a model; the defaults are the paper's base model (its Table 3)."""

    d_model: int = 512
    d_ff: int = 2048
    n_heads: int = 8
    n_layers: int = 6
    activation: str = "relu"
    norm: str = "post"
    eps: float = 1e-5
    dropout: float = 0.1
    positions: str = "sinusoidal"
    attention_bias: bool = False
    max_length: int = 512


class EncoderBlockParams(NamedTuple):
    """What one encoder block trains; the gradients come back in the same type."""

    attention: AttentionParams
    norm_1: LayerNormParams
    ffn: FFNParams
    norm_2: LayerNormParams


class EncoderParams(NamedTuple):
    """The blocks from the first to the last, and the final norm of a pre-norm stack."""

    blocks: tuple[EncoderBlockParams, ...]
    norm: LayerNormParams | None = None


class EncoderBlockCache(NamedTuple):
    attention: MultiHeadAttentionCache
    dropout_1: DropoutCache
    norm_1: LayerNormCache
    ffn: FFNCache
    dropout_2: DropoutCache
    norm_2: LayerNormCache
    norm: str  # "post" or "pre"


class EncoderCache(NamedTuple):
    blocks: tuple[EncoderBlockCache, ...]
    norm: LayerNormCache | None
    shape: tuple[int, ...]
    dtype: Any


def init_encoder_block(
    config: TransformerConfig, rng: np.random.Generator, *, dtype: Any = np.float64
) -> EncoderBlockParams:
    """The parameters of one block in the config's sizes, drawn by `init_attention` and `init_ffn`.

    Raises TypeError or ValueError for a config with a value out of its range.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> init_encoder_block(config, np.random.default_rng(0)).ffn.W_1.shape
    (8, 32)
    """
    check_config("init_encoder_block", config)
    check_generator("init_encoder_block", rng, required=True)
    dtype = check_dtype("init_encoder_block", dtype)
    return EncoderBlockParams(
        init_attention(config.d_model, rng, bias=config.attention_bias, dtype=dtype),
        init_layer_norm(config.d_model, dtype=dtype),
        init_ffn(config.d_model, config.d_ff, rng, dtype=dtype),
        init_layer_norm(config.d_model, dtype=dtype),
    )


def encoder_block_forward(
    x: Array,
    params: EncoderBlockParams,
    config: TransformerConfig,
    *,
    mask: Array | None = None,
    rng: np.random.Generator | None = None,
) -> tuple[Array, EncoderBlockCache]:
    """h = LayerNorm(x + Attention(x)), y = LayerNorm(h + FFN(h)): x (..., T, d_model) -> y (..., T, d_model).

    "Attention Is All You Need", section 3.1 (post-norm). With config.norm="pre":
    h = x + Attention(LayerNorm(x)), y = h + FFN(LayerNorm(h)). mask is boolean, True = may attend, and
    broadcasts to (..., T, T). Dropout (section 5.4, on each sub-layer's output) acts only with an rng.

    Raises TypeError for arrays that are not of one float dtype, ValueError for shapes that do not fit the
    config or each other, or a config with a value out of its range.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> params = init_encoder_block(config, np.random.default_rng(0))
    >>> encoder_block_forward(np.ones((3, 6, 8)), params, config)[0].shape
    (3, 6, 8)
    """
    sizes = config_sizes("encoder_block_forward", config)
    check_float("encoder_block_forward", "x", x)
    check_encoder_block("encoder_block_forward", "params", params, x.dtype, sizes)
    _check_inputs("encoder_block_forward", x, sizes, mask, rng)
    if config.norm == "pre":
        return _pre_norm_forward(x, params, config, mask, rng)
    return _post_norm_forward(x, params, config, mask, rng)


def encoder_block_backward(dy: Array, cache: EncoderBlockCache) -> tuple[Array, EncoderBlockParams]:
    """The forward's lines from the last one up; where x went two ways, its gradients add.

    dy (..., T, d_model) -> dx (..., T, d_model), and the gradients of the parameters. Raises TypeError
    for another function's cache, ValueError for a dy that has not the output's shape.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> params = init_encoder_block(config, np.random.default_rng(0))
    >>> y, cache = encoder_block_forward(np.ones((3, 6, 8)), params, config)
    >>> encoder_block_backward(y, cache)[1].ffn.W_1.shape
    (8, 32)
    """
    check_kind("encoder_block_backward", "cache", cache, EncoderBlockCache)
    check_d_output("encoder_block_backward", "dy", dy, cache.ffn.x.shape, cache.ffn.x.dtype)
    return _pre_norm_backward(dy, cache) if cache.norm == "pre" else _post_norm_backward(dy, cache)


def _post_norm_forward(
    x: Array, params: EncoderBlockParams, config: TransformerConfig, mask: Any, rng: Any
) -> tuple[Array, EncoderBlockCache]:
    a, attention = self_attention_forward(x, params.attention, config, mask)
    a, dropout_1 = dropout_forward(a, config.dropout, rng)
    a += x  # the residual
    h, norm_1 = layer_norm_forward(a, params.norm_1, eps=config.eps)
    f, ffn = ffn_forward(h, params.ffn, activation=config.activation)
    f, dropout_2 = dropout_forward(f, config.dropout, rng)
    f += h
    y, norm_2 = layer_norm_forward(f, params.norm_2, eps=config.eps)
    return y, EncoderBlockCache(attention, dropout_1, norm_1, ffn, dropout_2, norm_2, config.norm)


def _post_norm_backward(dy: Array, cache: EncoderBlockCache) -> tuple[Array, EncoderBlockParams]:
    df, dnorm_2 = layer_norm_backward(dy, cache.norm_2)
    dh, dffn = ffn_backward(dropout_backward(df, cache.dropout_2), cache.ffn)
    dh += df  # h went into the FFN and past it
    da, dnorm_1 = layer_norm_backward(dh, cache.norm_1)
    dx, dattention = self_attention_backward(dropout_backward(da, cache.dropout_1), cache.attention)
    dx += da  # x went into the attention and past it
    return dx, EncoderBlockParams(dattention, dnorm_1, dffn, dnorm_2)


def _pre_norm_forward(
    x: Array, params: EncoderBlockParams, config: TransformerConfig, mask: Any, rng: Any
) -> tuple[Array, EncoderBlockCache]:
    normed, norm_1 = layer_norm_forward(x, params.norm_1, eps=config.eps)
    h, attention = self_attention_forward(normed, params.attention, config, mask)
    h, dropout_1 = dropout_forward(h, config.dropout, rng)
    h += x  # the residual, not normalized
    normed, norm_2 = layer_norm_forward(h, params.norm_2, eps=config.eps)
    y, ffn = ffn_forward(normed, params.ffn, activation=config.activation)
    y, dropout_2 = dropout_forward(y, config.dropout, rng)
    y += h
    return y, EncoderBlockCache(attention, dropout_1, norm_1, ffn, dropout_2, norm_2, config.norm)


def _pre_norm_backward(dy: Array, cache: EncoderBlockCache) -> tuple[Array, EncoderBlockParams]:
    dnormed, dffn = ffn_backward(dropout_backward(dy, cache.dropout_2), cache.ffn)
    dh, dnorm_2 = layer_norm_backward(dnormed, cache.norm_2)
    dh += dy  # h went into the second half and past it
    dnormed, dattention = self_attention_backward(dropout_backward(dh, cache.dropout_1), cache.attention)
    dx, dnorm_1 = layer_norm_backward(dnormed, cache.norm_1)
    dx += dh  # x went into the first half and past it
    return dx, EncoderBlockParams(dattention, dnorm_1, dffn, dnorm_2)


def self_attention_forward(
    x: Array, params: AttentionParams, config: TransformerConfig, mask: Array | None
) -> tuple[Array, MultiHeadAttentionCache]:
    """Attention of x to itself, by the config's heads and positions: x (..., T, d_model) -> same shape."""
    T, rope, bias = x.shape[-2], config.positions == "rope", None
    if config.positions == "alibi":
        bias = alibi_bias(config.n_heads, T, T, dtype=x.dtype, xp=array_module(x))
    return multi_head_attention_forward(
        x, x, x, params, n_heads=config.n_heads, mask=mask, bias=bias, rope=rope
    )


def self_attention_backward(dy: Array, cache: MultiHeadAttentionCache) -> tuple[Array, AttentionParams]:
    """One x was queries, keys and values, so its gradients add: dy (..., T, d_model) -> dx, gradients."""
    dx, dk, dv, grads = multi_head_attention_backward(dy, cache)
    dx += dk
    dx += dv
    return dx, grads


def init_encoder(
    config: TransformerConfig, rng: np.random.Generator, *, dtype: Any = np.float64
) -> EncoderParams:
    """config.n_layers blocks, and with config.norm="pre" a final norm: no other would normalize the last sum.

    Raises TypeError or ValueError for a config with a value out of its range.

    >>> len(init_encoder(TransformerConfig(d_model=8, d_ff=32, n_heads=2), np.random.default_rng(0)).blocks)
    6
    """
    check_config("init_encoder", config)
    check_generator("init_encoder", rng, required=True)
    dtype = check_dtype("init_encoder", dtype)
    blocks = tuple(init_encoder_block(config, rng, dtype=dtype) for _ in range(config.n_layers))
    return EncoderParams(
        blocks, init_layer_norm(config.d_model, dtype=dtype) if config.norm == "pre" else None
    )


def encoder_forward(
    x: Array,
    params: EncoderParams,
    config: TransformerConfig,
    *,
    mask: Array | None = None,
    rng: np.random.Generator | None = None,
) -> tuple[Array, EncoderCache]:
    """One block after the other, then the final norm if there is one: x (..., T, d_model) -> y as x.

    x is what enters the first block: embeddings with their positions added already (RoPE and ALiBi act
    inside). Raises what `encoder_block_forward` raises.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> encoder_forward(np.ones((3, 6, 8)), init_encoder(config, np.random.default_rng(0)), config)[0].shape
    (3, 6, 8)
    """
    sizes = config_sizes("encoder_forward", config)
    check_float("encoder_forward", "x", x)
    check_encoder("encoder_forward", "params", params, x.dtype, sizes)
    _check_inputs("encoder_forward", x, sizes, mask, rng)
    y, caches, norm = x, [], None
    for block in params.blocks:
        y, cache = encoder_block_forward(y, block, config, mask=mask, rng=rng)
        caches.append(cache)
    if params.norm is not None:
        y, norm = layer_norm_forward(y, params.norm, eps=config.eps)
    return y, EncoderCache(tuple(caches), norm, x.shape, x.dtype)


def encoder_backward(dy: Array, cache: EncoderCache) -> tuple[Array, EncoderParams]:
    """The final norm, then the blocks from the last one down.

    dy (..., T, d_model) -> dx (..., T, d_model), and the gradients of the parameters. Raises TypeError
    for another function's cache, ValueError for a dy that has not the output's shape.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> y, cache = encoder_forward(np.ones((6, 8)), init_encoder(config, np.random.default_rng(0)), config)
    >>> encoder_backward(y, cache)[1].blocks[5].ffn.W_1.shape
    (8, 32)
    """
    check_kind("encoder_backward", "cache", cache, EncoderCache)
    check_d_output("encoder_backward", "dy", dy, cache.shape, cache.dtype)
    dx, grads, dnorm = dy, [], None
    if cache.norm is not None:
        dx, dnorm = layer_norm_backward(dx, cache.norm)
    for block in reversed(cache.blocks):
        dx, dblock = encoder_block_backward(dx, block)
        grads.append(dblock)
    return dx, EncoderParams(tuple(reversed(grads)), dnorm)


def check_config(function: str, config: Any) -> None:
    """Refuse a config with a value out of its range."""
    check_kind(function, "config", config, TransformerConfig)
    for name in ("d_model", "d_ff", "n_heads", "max_length"):
        check_integer(function, f"config.{name}", getattr(config, name), minimum=1)
    check_integer(function, "config.n_layers", config.n_layers, minimum=0)
    if int(config.d_model) % int(config.n_heads):
        raise ValueError(
            f"{function}: config.n_heads is {config.n_heads}; expected a divisor of d_model={config.d_model}"
        )
    check_choice(function, "config.activation", config.activation, ACTIVATIONS)
    check_choice(function, "config.norm", config.norm, NORMS)
    check_number(function, "config.eps", config.eps, minimum=0)
    check_number(function, "config.dropout", config.dropout, minimum=0, below=1)
    check_choice(function, "config.positions", config.positions, POSITIONS)
    check_flag(function, "config.attention_bias", config.attention_bias)
    if config.positions == "rope":
        check_even_heads(function, "config.positions", config.positions, config.d_model, config.n_heads)


def config_sizes(function: str, config: Any) -> dict[str, int]:
    """The lengths that the config gives to the letters of the shapes, once it has been checked."""
    check_config(function, config)
    return {"d_model": config.d_model, "d_ff": config.d_ff}


def check_encoder_block(function: str, argument: str, block: Any, dtype: Any, sizes: dict[str, int]) -> None:
    """Refuse a block whose parameters do not fit the config's sizes."""
    check_kind(function, argument, block, EncoderBlockParams)
    check_attention(function, f"{argument}.attention", block.attention, dtype, sizes)
    check_layer_norm(function, f"{argument}.norm_1", block.norm_1, dtype, sizes)
    check_ffn(function, f"{argument}.ffn", block.ffn, dtype, sizes)
    check_layer_norm(function, f"{argument}.norm_2", block.norm_2, dtype, sizes)


def check_encoder(function: str, argument: str, params: Any, dtype: Any, sizes: dict[str, int]) -> None:
    """Refuse a stack whose parameters do not fit the config's sizes."""
    check_kind(function, argument, params, EncoderParams)
    check_kind(function, f"{argument}.blocks", params.blocks, tuple)
    for i, block in enumerate(params.blocks):
        check_encoder_block(function, f"{argument}.blocks.{i}", block, dtype, sizes)
    if params.norm is not None:
        check_layer_norm(function, f"{argument}.norm", params.norm, dtype, sizes)


def _check_inputs(function: str, x: Any, sizes: dict[str, int], mask: Any, rng: Any) -> None:
    check_array(function, "x", x, ("...", "T", "d_model"), sizes)
    if mask is not None:
        check_mask(function, "mask", mask, "(..., T, T)", (*x.shape[:-1], x.shape[-2]))
    check_generator(function, rng)
