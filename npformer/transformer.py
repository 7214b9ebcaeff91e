"""The whole model, forward and backward."""

from typing import Annotated, Any, NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.attention import causal_mask, padding_mask
from npformer.config import TransformerConfig
from npformer.decoder import DecoderCache, DecoderParams, decoder_backward, decoder_forward, init_decoder
from npformer.embedding import (
    EmbeddingCache,
    EmbeddingParams,
    TiedLogitsCache,
    embedding_backward,
    embedding_forward,
    init_embedding,
    tied_logits_backward,
    tied_logits_forward,
)
from npformer.encoder import EncoderCache, EncoderParams, encoder_backward, encoder_forward, init_encoder
from npformer.functional import DropoutCache, dropout_backward, dropout_forward
from npformer.positional import (
    LearnedPositionsCache,
    LearnedPositionsParams,
    learned_positions_backward,
    learned_positions_forward,
    positional_encoding,
)
from npformer.validation.annotations import DType, Float, Ids, Rng, Shape, Size
from npformer.validation.rules import IN_VOCABULARY, TABLE, TABLE_ROWS, Id


class TransformerParams(NamedTuple):
    """Everything that the model trains; the gradients come back in the same type."""

    embedding: EmbeddingParams  # one matrix for both embeddings and the logits
    encoder: EncoderParams
    decoder: DecoderParams
    source_positions: Annotated[LearnedPositionsParams | None, TABLE] = None
    target_positions: Annotated[LearnedPositionsParams | None, TABLE] = None


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
    shape: Shape[tuple[int, ...], "... T vocab_size"]
    dtype: Any


def init_transformer(
    vocab_size: Size, config: TransformerConfig, rng: Rng, *, dtype: DType = np.float64
) -> TransformerParams:
    """All parameters in the config's sizes; with config.positions="learned" two tables (max_length, d_model).

    The learned tables start normal with the sinusoids' own size, a root mean square of √½.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2, n_layers=1)
    >>> init_transformer(10, config, np.random.default_rng(0)).embedding.E.shape
    (10, 8)
    """
    embedding = init_embedding(vocab_size, config.d_model, rng, dtype=dtype)
    encoder, decoder = init_encoder(config, rng, dtype=dtype), init_decoder(config, rng, dtype=dtype)
    if config.positions != "learned":
        return TransformerParams(embedding, encoder, decoder)
    source, target = rng.normal(0, 0.5**0.5, size=(2, config.max_length, config.d_model)).astype(dtype)
    tables = LearnedPositionsParams(source), LearnedPositionsParams(target)
    return TransformerParams(embedding, encoder, decoder, *tables)


def transformer_forward(
    source_ids: Ids[Array, "... S", IN_VOCABULARY, TABLE_ROWS],
    target_ids: Ids[Array, "... T", IN_VOCABULARY, TABLE_ROWS],
    params: TransformerParams,
    config: TransformerConfig,
    *,
    padding_id: Id | None = None,
    rng: Rng | None = None,
) -> tuple[Float[Array, "... T vocab_size"], TransformerCache]:
    """Embed and add positions, encode, decode with a causal mask, logits.

    "Attention Is All You Need", figure 1. The logits at position t are for the token after target_ids[t].
    Keys that hold padding_id are hidden from every query. Dropout (section 5.4: also on embeddings +
    positions) acts only with an rng.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2, n_layers=1)
    >>> params = init_transformer(10, config, np.random.default_rng(0))
    >>> transformer_forward(np.array([[1, 2, 3]]), np.array([[4, 5]]), params, config)[0].shape
    (1, 2, 10)
    """
    T = target_ids.shape[-1]
    mask, memory_mask = causal_mask(T, xp=array_module(target_ids)), None  # (T, T)
    if padding_id is not None:
        memory_mask = padding_mask(source_ids, padding_id)  # (..., 1, S)
        mask = mask & padding_mask(target_ids, padding_id)  # (..., T, T)

    x, source = embed_forward(source_ids, params.embedding, params.source_positions, config, rng)
    memory, encoder = encoder_forward(x, params.encoder, config, mask=memory_mask, rng=rng)
    x, target = embed_forward(target_ids, params.embedding, params.target_positions, config, rng)
    y, decoder = decoder_forward(
        x, memory, params.decoder, config, mask=mask, memory_mask=memory_mask, rng=rng
    )  # memory (..., S, d_model), y (..., T, d_model)
    logits, tied = tied_logits_forward(y, params.embedding)  # (..., T, vocab_size)
    return logits, TransformerCache(source, target, encoder, decoder, tied, logits.shape, logits.dtype)


def transformer_backward(
    dlogits: Float[Array, "... T vocab_size"], cache: TransformerCache
) -> TransformerParams:
    """The forward's lines from the last one up; the shared matrix gets the sum of its three uses' gradients.

    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2, n_layers=1)
    >>> params = init_transformer(10, config, np.random.default_rng(0))
    >>> logits, cache = transformer_forward(np.array([[1, 2, 3]]), np.array([[4, 5]]), params, config)
    >>> transformer_backward(logits, cache).embedding.E.shape
    (10, 8)
    """
    dy, logits = tied_logits_backward(dlogits, cache.logits)  # (..., T, d_model)
    dx, dmemory, ddecoder = decoder_backward(dy, cache.decoder)
    target, dtarget_positions = embed_backward(dx, cache.target)
    dx, dencoder = encoder_backward(dmemory, cache.encoder)  # (..., S, d_model)
    source, dsource_positions = embed_backward(dx, cache.source)
    dE = EmbeddingParams(logits.E + target.E + source.E)
    return TransformerParams(dE, dencoder, ddecoder, dsource_positions, dtarget_positions)


def embed_forward(
    ids: Array,
    embedding: EmbeddingParams,
    table: LearnedPositionsParams | None,
    config: TransformerConfig,
    rng: Rng | None,
    start: int = 0,
) -> tuple[Array, EmbeddedCache]:
    """What enters a stack: embeddings, positions from start on, dropout: (..., T) -> (..., T, d_model)."""
    x, embedded = embedding_forward(ids, embedding)  # (..., T, d_model)
    learned = None
    if config.positions == "sinusoidal":
        x = x + positional_encoding(*x.shape[-2:], start=start, dtype=x.dtype, xp=array_module(x))
    elif table is not None:
        x, learned = learned_positions_forward(x, LearnedPositionsParams(table.P[start:]))
    x, dropped = dropout_forward(x, config.dropout, rng)
    return x, EmbeddedCache(embedded, learned, dropped)


def embed_backward(dx: Array, cache: EmbeddedCache) -> tuple[EmbeddingParams, LearnedPositionsParams | None]:
    """`embed_forward` from the last line up, for start = 0: dx (..., T, d_model) -> both gradients."""
    dx, dtable = dropout_backward(dx, cache.dropout), None
    if cache.positions is not None:
        dx, dtable = learned_positions_backward(dx, cache.positions)
    return embedding_backward(dx, cache.embedding), dtable
