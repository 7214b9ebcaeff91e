"""The whole model, forward and backward, and step-by-step decoding."""

from __future__ import annotations  # np.random.Generator in a signature would import numpy.random

from typing import Any, NamedTuple

import numpy as np

from npformer.attention import AttentionParams, attention_forward, causal_mask, merge, padding_mask, split
from npformer.backend import Array, array_module
from npformer.decoder import (
    DecoderBlockParams,
    DecoderCache,
    DecoderParams,
    check_decoder,
    decoder_backward,
    decoder_forward,
    init_decoder,
)
from npformer.embedding import (
    EMBEDDING_AXES,
    EmbeddingCache,
    EmbeddingParams,
    TiedLogitsCache,
    check_id_range,
    embedding_backward,
    embedding_forward,
    init_embedding,
    tied_logits_backward,
    tied_logits_forward,
)
from npformer.encoder import (
    EncoderCache,
    EncoderParams,
    TransformerConfig,
    check_config,
    check_encoder,
    config_sizes,
    encoder_backward,
    encoder_forward,
    init_encoder,
)
from npformer.feed_forward import ffn_forward
from npformer.functional import DropoutCache, dropout_backward, dropout_forward, linear
from npformer.layer_norm import layer_norm_forward
from npformer.positional import (
    LearnedPositionsCache,
    LearnedPositionsParams,
    alibi_bias,
    check_learned,
    learned_positions_backward,
    learned_positions_forward,
    positional_encoding,
    rope_forward,
)
from npformer.validate import (
    check_d_output,
    check_dtype,
    check_float,
    check_generator,
    check_ids,
    check_integer,
    check_kind,
    check_params,
)


class TransformerParams(NamedTuple):
    """Everything that the model trains; the gradients come back in the same type."""

    embedding: EmbeddingParams  # one matrix for both embeddings and the logits
    encoder: EncoderParams
    decoder: DecoderParams
    source_positions: LearnedPositionsParams | None = None
    target_positions: LearnedPositionsParams | None = None


class EmbeddedCache(NamedTuple):
    embedding: EmbeddingCache
    positions: LearnedPositionsCache | None
    dropout: DropoutCache


class TransformerCache(NamedTuple):
    source: EmbeddedCache
    target: EmbeddedCache
    encoder: EncoderCache
    decoder: DecoderCache
    logits: TiedLogitsCache


def init_transformer(
    vocab_size: int, config: TransformerConfig, rng: np.random.Generator, *, dtype: Any = np.float64
) -> TransformerParams:
    """All parameters in the config's sizes; with config.positions="learned" two tables (max_length, d_model).

    The learned tables start normal with the sinusoids' own size, a root mean square of √½. Raises
    TypeError or ValueError for a vocab_size that is not an integer >= 1 or a config out of its range.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2, n_layers=1)
    >>> init_transformer(10, config, np.random.default_rng(0)).embedding.E.shape
    (10, 8)
    """
    check_integer("init_transformer", "vocab_size", vocab_size, minimum=1)
    check_config("init_transformer", config)
    check_generator("init_transformer", rng, required=True)
    dtype = check_dtype("init_transformer", dtype)
    embedding = init_embedding(vocab_size, config.d_model, rng, dtype=dtype)
    encoder, decoder = init_encoder(config, rng, dtype=dtype), init_decoder(config, rng, dtype=dtype)
    if config.positions != "learned":
        return TransformerParams(embedding, encoder, decoder)
    tables = rng.normal(0, 0.5**0.5, size=(2, config.max_length, config.d_model)).astype(dtype)
    return TransformerParams(embedding, encoder, decoder, *map(LearnedPositionsParams, tables))


def transformer_forward(
    source_ids: Array,
    target_ids: Array,
    params: TransformerParams,
    config: TransformerConfig,
    *,
    padding_id: int | None = None,
    rng: np.random.Generator | None = None,
) -> tuple[Array, TransformerCache]:
    """Embed and add positions, encode, decode with a causal mask, logits: -> logits (..., T, vocab_size).

    "Attention Is All You Need", figure 1. source_ids (..., S), target_ids (..., T) are integers; the logits
    at position t are for the token after target_ids[t]. Keys that hold padding_id are hidden from every
    query. Dropout (section 5.4: also on embeddings + positions) acts only with an rng.

    Raises TypeError for ids that are not integers or parameters of the wrong kind, ValueError for shapes
    that do not fit, an id outside the vocabulary or a sequence longer than a learned table.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2, n_layers=1)
    >>> params = init_transformer(10, config, np.random.default_rng(0))
    >>> transformer_forward(np.array([[1, 2, 3]]), np.array([[4, 5]]), params, config)[0].shape
    (1, 2, 10)
    """
    function = "transformer_forward"
    _check_transformer(function, params, config, padding_id, rng)
    _check_both_ids(function, source_ids, target_ids, params)
    T = target_ids.shape[-1]
    mask, memory_mask = causal_mask(T, xp=array_module(target_ids)), None  # (T, T)
    if padding_id is not None:
        memory_mask = padding_mask(source_ids, padding_id)  # (..., 1, S)
        mask = mask & padding_mask(target_ids, padding_id)  # (..., T, T)

    x, source = _embed(source_ids, params, params.source_positions, config, rng)  # (..., S, d_model)
    memory, encoder = encoder_forward(x, params.encoder, config, mask=memory_mask, rng=rng)
    x, target = _embed(target_ids, params, params.target_positions, config, rng)  # (..., T, d_model)
    masks = {"mask": mask, "memory_mask": memory_mask}
    y, decoder = decoder_forward(x, memory, params.decoder, config, **masks, rng=rng)
    logits, tied = tied_logits_forward(y, params.embedding)  # (..., T, vocab_size)
    return logits, TransformerCache(source, target, encoder, decoder, tied)


def transformer_backward(dlogits: Array, cache: TransformerCache) -> TransformerParams:
    """The forward's lines from the last one up; the shared matrix gets the sum of its three uses' gradients.

    dlogits (..., T, vocab_size) -> gradients, a TransformerParams. Raises TypeError for another function's
    cache, ValueError for dlogits that have not the output's shape.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2, n_layers=1)
    >>> params = init_transformer(10, config, np.random.default_rng(0))
    >>> logits, cache = transformer_forward(np.array([[1, 2, 3]]), np.array([[4, 5]]), params, config)
    >>> transformer_backward(logits, cache).embedding.E.shape
    (10, 8)
    """
    check_kind("transformer_backward", "cache", cache, TransformerCache)
    x, E = cache.logits
    check_d_output("transformer_backward", "dlogits", dlogits, (*x.shape[:-1], len(E)), E.dtype)

    dy, (dE,) = tied_logits_backward(dlogits, cache.logits)  # (..., T, d_model)
    dx, dmemory, ddecoder = decoder_backward(dy, cache.decoder)
    dE_target, dtarget_positions = _embed_backward(dx, cache.target)
    dE += dE_target
    dx, dencoder = encoder_backward(dmemory, cache.encoder)  # (..., S, d_model)
    dE_source, dsource_positions = _embed_backward(dx, cache.source)
    dE += dE_source
    return TransformerParams(EmbeddingParams(dE), dencoder, ddecoder, dsource_positions, dtarget_positions)


def _embed(
    ids: Array,
    params: TransformerParams,
    table: LearnedPositionsParams | None,
    config: TransformerConfig,
    rng: Any,
) -> tuple[Array, EmbeddedCache]:
    x, embedding = embedding_forward(ids, params.embedding)  # (..., T, d_model)
    learned = None
    if config.positions == "sinusoidal":
        x += positional_encoding(*x.shape[-2:], dtype=x.dtype, xp=array_module(x))
    elif table is not None:
        x, learned = learned_positions_forward(x, table)
    x, dropout = dropout_forward(x, config.dropout, rng)
    return x, EmbeddedCache(embedding, learned, dropout)


def _embed_backward(dx: Array, cache: EmbeddedCache) -> tuple[Array, LearnedPositionsParams | None]:
    dx, dtable = dropout_backward(dx, cache.dropout), None
    if cache.positions is not None:
        dx, dtable = learned_positions_backward(dx, cache.positions)
    return embedding_backward(dx, cache.embedding).E, dtable


def greedy_decode(
    source_ids: Array,
    params: TransformerParams,
    config: TransformerConfig,
    *,
    start_id: int,
    stop_id: int,
    max_length: int,
    padding_id: int | None = None,
) -> Array:
    """The likeliest next token, again and again, until every row has said stop_id or max_length is reached.

    source_ids (B, S) -> ids (B, at most max_length). The rows come without start_id; what follows a row's
    stop_id is stop_id again. Keys and values of the earlier tokens are kept, so that a new token costs
    one query (linear in the length).

    Raises TypeError for ids that are not integers, ValueError for an id outside the vocabulary, a
    max_length below 1, or a sequence longer than a learned table.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2, n_layers=1)
    >>> params = init_transformer(10, config, np.random.default_rng(0))
    >>> greedy_decode(np.array([[1, 2, 3]]), params, config, start_id=0, stop_id=9, max_length=5).shape[0]
    1
    """
    _check_decoding(source_ids, params, config, start_id, stop_id, max_length, padding_id)
    xp, max_length = array_module(source_ids), int(max_length)  # NumPy's small integers would overflow
    mask = None if padding_id is None else padding_mask(source_ids, padding_id)  # (B, 1, S)
    x, _ = _embed(source_ids, params, params.source_positions, config, None)
    memory, _ = encoder_forward(x, params.encoder, config, mask=mask)
    steps = [_first_step(block, memory, config, max_length) for block in params.decoder.blocks]
    ids = xp.full((*source_ids.shape[:-1], max_length + 1), stop_id, dtype=np.int64)
    ids[..., 0] = start_id
    done = xp.zeros(source_ids.shape[:-1], dtype=bool)
    for t in range(max_length):
        so_far = ids[..., : t + 1]
        logits = _next_logits(so_far, steps, params, config, mask, padding_id)  # (B, 1, vocab_size)
        ids[..., t + 1] = xp.where(done, stop_id, logits[..., 0, :].argmax(axis=-1))
        done |= ids[..., t + 1] == stop_id
        if bool(done.all()):
            break
    return ids[..., 1 : t + 2]


class _Step(NamedTuple):
    """What a decoder block keeps from token to token."""

    keys: Array  # (B, h, max_length, d_k), filled as tokens come
    values: Array
    memory_keys: Array  # (B, h, S, d_k), of the encoder's output, made once
    memory_values: Array


def _first_step(
    block: DecoderBlockParams, memory: Array, config: TransformerConfig, max_length: int
) -> _Step:
    cross, h = block.cross_attention, config.n_heads
    keys = split(linear(memory, cross.W_K, cross.b_K), h)  # (B, h, S, d_k)
    values = split(linear(memory, cross.W_V, cross.b_V), h)
    room = (*memory.shape[:-2], h, max_length, config.d_model // h)
    xp = array_module(memory)
    return _Step(xp.empty(room, memory.dtype), xp.empty(room, memory.dtype), keys, values)


def _next_logits(
    ids: Array,
    steps: list[_Step],
    params: TransformerParams,
    config: TransformerConfig,
    mask: Any,
    padding_id: Any,
) -> Array:
    """The last token through all blocks: ids (B, t + 1) -> logits (B, 1, vocab_size)."""
    t = ids.shape[-1] - 1
    x, _ = embedding_forward(ids[..., t:], params.embedding)  # (B, 1, d_model)
    if config.positions == "sinusoidal":
        x += positional_encoding(1, config.d_model, start=t, dtype=x.dtype, xp=array_module(x))
    elif params.target_positions is not None:
        x += params.target_positions.P[t]
    own_mask = None if padding_id is None else padding_mask(ids, padding_id)  # (B, 1, t + 1)
    for step, block in zip(steps, params.decoder.blocks, strict=True):
        x = _next_through_block(x, t, step, block, config, own_mask, mask)
    if params.decoder.norm is not None:
        x, _ = layer_norm_forward(x, params.decoder.norm, eps=config.eps)
    return tied_logits_forward(x, params.embedding)[0]


def _next_through_block(
    x: Array,
    t: int,
    step: _Step,
    block: DecoderBlockParams,
    config: TransformerConfig,
    own_mask: Any,
    mask: Any,
) -> Array:
    def look_back(x: Array) -> Array:
        return _look_back(x, t, step, block.self_attention, config, own_mask)

    def look_across(x: Array) -> Array:
        q = split(linear(x, block.cross_attention.W_Q, block.cross_attention.b_Q), config.n_heads)
        return _attend(q, step.memory_keys, step.memory_values, block.cross_attention, mask, None)

    def feed(x: Array) -> Array:
        return ffn_forward(x, block.ffn, activation=config.activation)[0]

    for sub_layer, norm in ((look_back, block.norm_1), (look_across, block.norm_2), (feed, block.norm_3)):
        if config.norm == "pre":
            x = x + sub_layer(layer_norm_forward(x, norm, eps=config.eps)[0])
        else:
            x = layer_norm_forward(x + sub_layer(x), norm, eps=config.eps)[0]
    return x


def _look_back(
    x: Array, t: int, step: _Step, params: AttentionParams, config: TransformerConfig, mask: Any
) -> Array:
    """Self-attention of the token at position t over those kept, which it joins: x (B, 1, d_model)."""
    xp, h, bias = array_module(x), config.n_heads, None
    q = split(linear(x, params.W_Q, params.b_Q), h)  # (B, h, 1, d_k)
    k = split(linear(x, params.W_K, params.b_K), h)
    if config.positions == "rope":
        q, k = (rope_forward(z, positions=xp.asarray([t]))[0] for z in (q, k))
    if config.positions == "alibi":
        bias = alibi_bias(h, 1, t + 1, dtype=x.dtype, xp=xp)
    step.keys[..., t : t + 1, :] = k
    step.values[..., t : t + 1, :] = split(linear(x, params.W_V, params.b_V), h)
    return _attend(q, step.keys[..., : t + 1, :], step.values[..., : t + 1, :], params, mask, bias)


def _attend(q: Array, k: Array, v: Array, params: AttentionParams, mask: Any, bias: Any) -> Array:
    mask = mask if mask is None else mask[..., None, :, :]  # (B, 1, 1, T_k)
    heads, _ = attention_forward(q, k, v, mask=mask, bias=bias)  # (B, h, 1, d_k)
    return linear(merge(heads), params.W_O, params.b_O)  # (B, 1, d_model)


def _check_transformer(function: str, params: Any, config: Any, padding_id: Any, rng: Any = None) -> None:
    check_kind(function, "params", params, TransformerParams)
    sizes = config_sizes(function, config)
    check_kind(function, "params.embedding", params.embedding, EmbeddingParams)
    check_float(function, "params.embedding.E", params.embedding.E)
    dtype = params.embedding.E.dtype
    check_params(
        function, "params.embedding", params.embedding, EmbeddingParams, EMBEDDING_AXES, sizes, dtype
    )
    check_encoder(function, "params.encoder", params.encoder, dtype, sizes)
    check_decoder(function, "params.decoder", params.decoder, dtype, sizes)
    for name in ("source_positions", "target_positions"):
        table = getattr(params, name)
        if config.positions == "learned":
            check_learned(function, f"params.{name}", table, dtype, sizes)
        elif table is not None:
            raise ValueError(
                f"{function}: params.{name} is a table; "
                f"expected None with config.positions={config.positions!r}"
            )
    if padding_id is not None:
        _check_id(function, "padding_id", padding_id, params)
    check_generator(function, rng)


def _check_ids(function: str, argument: str, ids: Any, params: TransformerParams, table: Any) -> None:
    check_ids(function, argument, ids)
    if ids.ndim == 0:
        raise ValueError(f"{function}: {argument} has shape (); expected (..., T), an id for each position")
    check_id_range(function, argument, ids, len(params.embedding.E))
    if table is not None and ids.shape[-1] > len(table.P):
        raise ValueError(
            f"{function}: {argument} has {ids.shape[-1]} positions; "
            f"expected at most the learned table's max_length={len(table.P)}"
        )


def _check_id(function: str, argument: str, value: Any, params: TransformerParams) -> None:
    check_integer(function, argument, value, minimum=0)
    vocab_size = len(params.embedding.E)
    if value >= vocab_size:
        raise ValueError(f"{function}: {argument} is {value}; expected an id from 0 to {vocab_size - 1}")


def _check_both_ids(function: str, source_ids: Any, target_ids: Any, params: TransformerParams) -> None:
    _check_ids(function, "source_ids", source_ids, params, params.source_positions)
    _check_ids(function, "target_ids", target_ids, params, params.target_positions)
    if source_ids.shape[:-1] != target_ids.shape[:-1]:
        raise ValueError(
            f"{function}: target_ids has shape {target_ids.shape}; "
            f"expected the leading axes of source_ids, {source_ids.shape[:-1]}"
        )


def _check_decoding(
    source_ids: Any, params: Any, config: Any, start_id: Any, stop_id: Any, max_length: Any, padding_id: Any
) -> None:
    function = "greedy_decode"
    _check_transformer(function, params, config, padding_id)
    _check_ids(function, "source_ids", source_ids, params, params.source_positions)
    _check_id(function, "start_id", start_id, params)
    _check_id(function, "stop_id", stop_id, params)
    check_integer(function, "max_length", max_length, minimum=1)
    table = params.target_positions
    if table is not None and max_length > len(table.P):
        raise ValueError(
            f"{function}: max_length is {max_length}; "
            f"expected at most the learned table's {len(table.P)} positions"
        )
