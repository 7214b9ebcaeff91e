"""The whole Transformer: embeddings, encoder, decoder and logits, forward and backward."""

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
from npformer.validation.call import Call, Phase
from npformer.validation.checks import wrong_kind
from npformer.validation.rules import IN_VOCABULARY, Id, max_positions, rule

# --- what the arguments must satisfy --------------------------------------------------------------
# Rules are conditions that a shape cannot express. Argument validation (npformer/validation) checks them.
# The modules decoding and pretrained.minilm use FITS_LEARNED_TABLE too.


def _rows_of_learned_table(call: Call, name: str) -> int | None:
    """Return the number of positions in the learned table for these ids, or None without such a table."""
    field = name.replace("ids", "positions")  # for example, source_positions for source_ids
    table = getattr(call.arguments["params"], field)
    return None if table is None else len(table.P)


FITS_LEARNED_TABLE = max_positions("the learned table's max_length", _rows_of_learned_table, Phase.MASKS)


@rule("as config.positions says", needs="config")
def TABLE_AS_CONFIGURED(table: Any, name: str, call: Call) -> None:
    """Check that a learned table exists if and only if config.positions is "learned". Check its length."""
    config = call.arguments["config"]
    if config.positions != "learned":
        if table is not None:
            expected = f"expected None with config.positions={config.positions!r}"
            raise call.value_error(f"{name} is a table; {expected}")
        return
    if table is None:
        raise wrong_kind(call.function, name, table, "a LearnedPositionsParams")
    if len(table.P) != config.max_length:
        expected = f"expected config.max_length={config.max_length}"
        raise call.value_error(f"{name}.P has {len(table.P)} rows; {expected}")


# --- the model ------------------------------------------------------------------------------------


class TransformerParams(NamedTuple):
    """All parameters of the model. Their gradients have the same type."""

    embedding: EmbeddingParams  # one matrix for the source, the target and the logits
    encoder: EncoderParams
    decoder: DecoderParams
    source_positions: Annotated[LearnedPositionsParams | None, TABLE_AS_CONFIGURED] = None
    target_positions: Annotated[LearnedPositionsParams | None, TABLE_AS_CONFIGURED] = None


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
    """Draw all parameters of a Transformer.

    With config.positions="learned", the model gets two position tables, each (max_length, d_model). Their
    entries are drawn from a normal distribution with standard deviation √½. This is also the root mean square
    of the sinusoids.

    Parameters
    ----------
    vocab_size : int
        The number of tokens in the vocabulary.
    config : TransformerConfig
    rng : numpy.random.Generator
    dtype : numpy.float32 or numpy.float64

    Returns
    -------
    params : TransformerParams

    Examples
    --------
    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2, n_layers=1)
    >>> init_transformer(10, config, np.random.default_rng(0)).embedding.E.shape
    (10, 8)
    """
    embedding = init_embedding(vocab_size, config.d_model, rng, dtype=dtype)
    encoder = init_encoder(config, rng, dtype=dtype)
    decoder = init_decoder(config, rng, dtype=dtype)
    if config.positions != "learned":
        return TransformerParams(embedding, encoder, decoder)
    source, target = rng.normal(0, 0.5**0.5, size=(2, config.max_length, config.d_model)).astype(dtype)
    return TransformerParams(
        embedding, encoder, decoder, LearnedPositionsParams(source), LearnedPositionsParams(target)
    )


def transformer_forward(
    source_ids: Ids[Array, "... S", IN_VOCABULARY, FITS_LEARNED_TABLE],
    target_ids: Ids[Array, "... T", IN_VOCABULARY, FITS_LEARNED_TABLE],
    params: TransformerParams,
    config: TransformerConfig,
    *,
    padding_id: Id | None = None,
    rng: Rng | None = None,
) -> tuple[Float[Array, "... T vocab_size"], TransformerCache]:
    """memory = Encoder(embed(source_ids)), logits = Decoder(embed(target_ids), memory) Eᵀ.

    "Attention Is All You Need", figure 1. embed(ids) is E[ids] √d_model plus positions. The decoder uses a
    causal mask. The logits at position t predict the token after target_ids[t].

    Parameters
    ----------
    source_ids : integer array (..., S)
        The token ids of the encoder's input.
    target_ids : integer array (..., T)
        The token ids of the decoder's input.
    params : TransformerParams
    config : TransformerConfig
    padding_id : int, optional
        The id of the padding token. No query attends to a key with this id.
    rng : numpy.random.Generator, optional
        With it, dropout acts on the output of each sub-layer, and on the sums of embeddings and positions
        (section 5.4). Without it, nothing is dropped.

    Returns
    -------
    logits : float array (..., T, vocab_size)
    cache : TransformerCache
        Input of ``transformer_backward``.

    Examples
    --------
    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2, n_layers=1)
    >>> params = init_transformer(10, config, np.random.default_rng(0))
    >>> transformer_forward(np.array([[1, 2, 3]]), np.array([[4, 5]]), params, config)[0].shape
    (1, 2, 10)
    """
    mask = causal_mask(target_ids.shape[-1], xp=array_module(target_ids))  # (T, T)
    memory_mask = None
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
    """Apply the backward of each line of the forward, from the last line to the first.

    The model uses E three times: for the source, the target and the logits. So dE is the sum of three
    gradients.

    Parameters
    ----------
    dlogits : float array (..., T, vocab_size)
        Gradient of the loss with respect to the logits.
    cache : TransformerCache
        Second output of ``transformer_forward``.

    Returns
    -------
    grads : TransformerParams
        The gradients of the parameters. The gradient of an absent position table is None.

    Examples
    --------
    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2, n_layers=1)
    >>> params = init_transformer(10, config, np.random.default_rng(0))
    >>> logits, cache = transformer_forward(np.array([[1, 2, 3]]), np.array([[4, 5]]), params, config)
    >>> transformer_backward(logits, cache).embedding.E.shape
    (10, 8)
    """
    dy, from_logits = tied_logits_backward(dlogits, cache.logits)  # (..., T, d_model)
    dx, dmemory, ddecoder = decoder_backward(dy, cache.decoder)
    from_target, dtarget_positions = embed_backward(dx, cache.target)
    dx, dencoder = encoder_backward(dmemory, cache.encoder)  # (..., S, d_model)
    from_source, dsource_positions = embed_backward(dx, cache.source)
    dE = from_logits.E + from_target.E + from_source.E  # E is used three times: (vocab_size, d_model)
    return TransformerParams(EmbeddingParams(dE), dencoder, ddecoder, dsource_positions, dtarget_positions)


def embed_forward(
    ids: Array,
    embedding: EmbeddingParams,
    table: LearnedPositionsParams | None,
    config: TransformerConfig,
    rng: Rng | None,
    start: int = 0,
) -> tuple[Array, EmbeddedCache]:
    """Compute the input of the encoder or the decoder: ids (..., T) -> x (..., T, d_model).

    The input is the embedding plus the positions from ``start`` on, with dropout.
    """
    x, embedding_cache = embedding_forward(ids, embedding)  # (..., T, d_model)
    positions_cache = None
    if config.positions == "sinusoidal":
        x = x + positional_encoding(*x.shape[-2:], start=start, dtype=x.dtype, xp=array_module(x))
    elif table is not None:
        x, positions_cache = learned_positions_forward(x, LearnedPositionsParams(table.P[start:]))
    x, dropout_cache = dropout_forward(x, config.dropout, rng)
    return x, EmbeddedCache(embedding_cache, positions_cache, dropout_cache)


def embed_backward(dx: Array, cache: EmbeddedCache) -> tuple[EmbeddingParams, LearnedPositionsParams | None]:
    """Return the gradients of the embedding and of the position table. dx has the shape (..., T, d_model).

    This function assumes that ``embed_forward`` was called with start = 0.
    """
    dx = dropout_backward(dx, cache.dropout)
    dtable = None
    if cache.positions is not None:
        dx, dtable = learned_positions_backward(dx, cache.positions)
    return embedding_backward(dx, cache.embedding), dtable
