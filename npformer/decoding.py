"""Greedy decoding, token by token, with a KV cache.

The KV cache holds the keys and values of the tokens so far. So each step computes them only for the newest
token. In the shapes of this module, B stands for the leading axes of the ids (the batch).
"""

from typing import Annotated, Any, NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.attention import (
    AttentionParams,
    attention_forward,
    merge_heads,
    padding_mask,
    project,
    split_heads,
)
from npformer.config import TransformerConfig
from npformer.decoder import DecoderBlockParams
from npformer.embedding import tied_logits_forward
from npformer.encoder import encoder_forward, residual_forward
from npformer.feed_forward import ffn_forward
from npformer.functional import linear_forward
from npformer.layer_norm import layer_norm_forward
from npformer.positional import RoPETable, alibi_bias, angular_frequencies, rope_table, rotate
from npformer.transformer import FITS_LEARNED_TABLE, TransformerParams, embed_forward
from npformer.tree import leaves
from npformer.validation.annotations import Count, Ids
from npformer.validation.call import Call, Phase
from npformer.validation.rules import IN_VOCABULARY, Id, rule

# --- what the arguments must satisfy --------------------------------------------------------------
# Rules are conditions that a shape cannot express. Argument validation (npformer/validation) checks them.


@rule("<= the learned table's rows", Phase.MASKS)
def OUTPUT_FITS_TABLE(max_length: Any, name: str, call: Call) -> None:
    """Check that the learned table has a row for each position of the output."""
    table = call.arguments["params"].target_positions
    if table is not None and max_length > len(table.P):
        expected = f"expected at most the learned table's {len(table.P)} positions"
        raise call.value_error(f"{name} is {max_length}; {expected}")


# --- greedy decoding ------------------------------------------------------------------------------


class KVCache(NamedTuple):
    """The keys and values of the tokens so far. The arrays have room for more tokens."""

    keys: Array  # (B, h, room, d_k)
    values: Array  # (B, h, room, d_k)
    length: int  # the number of positions that are in use


class BlockState(NamedTuple):
    """The caches of one decoder block."""

    target: KVCache  # for self-attention: of the tokens decoded so far
    memory: KVCache  # for cross-attention: of the output of the encoder


def greedy_decode(
    source_ids: Ids[Array, "... S", IN_VOCABULARY, FITS_LEARNED_TABLE],
    params: TransformerParams,
    config: TransformerConfig,
    *,
    start_id: Id,
    stop_id: Id,
    max_length: Annotated[Count, OUTPUT_FITS_TABLE],
    padding_id: Id | None = None,
) -> Array:
    """ids[t+1] = argmax logits[t], until each row contains stop_id or has max_length tokens.

    With the KV cache, each new token needs only one query. So the cost per token grows linearly with the
    length.

    Parameters
    ----------
    source_ids : integer array (..., S)
        The token ids of the encoder's input.
    params : TransformerParams
    config : TransformerConfig
    start_id : int
        The id that starts the decoder's input. It is not part of the result.
    stop_id : int
        The id that ends a row. All later ids of this row are stop_id too.
    max_length : int
        The maximum number of new tokens.
    padding_id : int, optional
        The id of the padding token. No query attends to a key with this id.

    Returns
    -------
    ids : integer array (..., at most max_length)

    Raises
    ------
    ValueError
        If the logits contain NaN or infinity. The message names a parameter with NaN or infinity, if there is
        one. This is checked for NumPy arrays only.

    Examples
    --------
    >>> from npformer import init_transformer
    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2, n_layers=1)
    >>> params = init_transformer(10, config, np.random.default_rng(0))
    >>> greedy_decode(np.array([[1, 2, 3]]), params, config, start_id=0, stop_id=9, max_length=5).shape[0]
    1
    """
    xp = array_module(source_ids)
    memory_mask = None if padding_id is None else padding_mask(source_ids, padding_id)  # (B, 1, S)
    x, _ = embed_forward(source_ids, params.embedding, params.source_positions, config, None)
    memory, _ = encoder_forward(x, params.encoder, config, mask=memory_mask)  # (B, S, d_model)
    states = [initial_state(block, memory, config) for block in params.decoder.blocks]
    ids = xp.full((*source_ids.shape[:-1], 1), start_id, dtype=np.int64)  # (B, 1)
    is_finished = xp.zeros(source_ids.shape[:-1], dtype=bool)  # (B,)
    for _ in range(max_length):
        mask = None if padding_id is None else padding_mask(ids, padding_id)  # (B, 1, t + 1)
        logits, states = next_logits(ids, states, params, config, mask, memory_mask)
        check_logits("greedy_decode", logits, params)
        likeliest = logits[..., 0, :].argmax(axis=-1)  # (B,)
        new_ids = xp.where(is_finished, stop_id, likeliest)  # (B,)
        ids = xp.concatenate([ids, new_ids[..., None]], axis=-1)  # (B, t + 2)
        is_finished = is_finished | (new_ids == stop_id)
        if bool(is_finished.all()):
            break
    return ids[..., 1:]


def check_logits(function: str, logits: Array, params: Any) -> None:
    """Raise ValueError if logits (..., vocab_size) contain NaN or infinity, and name a parameter that does.

    Only NumPy arrays are checked. The maximum of each row finds every NaN, because a row with NaN has the
    maximum NaN.
    """
    if not isinstance(logits, np.ndarray) or np.isfinite(logits.max(axis=-1)).all():
        return
    problem = "params give logits that are NaN or infinite"
    for path, array in leaves(params):
        if not np.isfinite(array).all():
            problem = f"params.{path} holds NaN or infinity"
            break
    raise ValueError(f"{function}: {problem}; expected finite numbers")


def initial_state(block: DecoderBlockParams, memory: Array, config: TransformerConfig) -> BlockState:
    """Return the caches of a block before the first token. Only the cache of the memory is filled."""
    cross = block.cross_attention
    keys = split_heads(linear_forward(memory, cross.W_K, cross.b_K)[0], config.n_heads)  # (B, h, S, d_k)
    values = split_heads(linear_forward(memory, cross.W_V, cross.b_V)[0], config.n_heads)
    empty = keys[..., :0, :]  # (B, h, 0, d_k)
    return BlockState(KVCache(empty, empty, 0), KVCache(keys, values, keys.shape[-2]))


def append_to_cache(cache: KVCache, new_keys: Array, new_values: Array) -> KVCache:
    """Add n keys and values, each (B, h, n, d_k).

    If there is not enough room, the room doubles. So most calls copy only the new keys and values.
    """
    keys, values, length = cache
    end = length + new_keys.shape[-2]
    if end > keys.shape[-2]:
        xp = array_module(keys)
        shape = (*keys.shape[:-2], max(end, 16), keys.shape[-1])  # the shape of the additional room
        keys = xp.concatenate([keys, xp.empty(shape, keys.dtype)], axis=-2)
        values = xp.concatenate([values, xp.empty(shape, values.dtype)], axis=-2)
    keys[..., length:end, :] = new_keys
    values[..., length:end, :] = new_values
    return KVCache(keys, values, end)


def next_logits(
    ids: Array,
    states: list[BlockState],
    params: TransformerParams,
    config: TransformerConfig,
    mask: Array | None,
    memory_mask: Array | None,
) -> tuple[Array, list[BlockState]]:
    """Apply the decoder to the last token of ids (B, t + 1), whose position is t.

    Returns the logits (B, 1, vocab_size) and the new states of the blocks.
    """
    xp = array_module(ids)
    t = ids.shape[-1] - 1
    x, _ = embed_forward(ids[..., t:], params.embedding, params.target_positions, config, None, start=t)
    rope = bias = None
    if config.positions == "rope":
        frequencies = angular_frequencies(config.d_model // config.n_heads)
        rope = rope_table(xp.asarray([t]), frequencies, dtype=x.dtype)
    if config.positions == "alibi":
        bias = alibi_bias(config.n_heads, 1, t + 1, dtype=x.dtype, xp=xp)  # (h, 1, t + 1)
    new_states = []
    for block, old_state in zip(params.decoder.blocks, states, strict=True):
        x, new_state = next_through_block(x, old_state, block, config, rope, mask, bias, memory_mask)
        new_states.append(new_state)
    if params.decoder.norm is not None:
        x, _ = layer_norm_forward(x, params.decoder.norm, eps=config.eps)  # (B, 1, d_model)
    return tied_logits_forward(x, params.embedding)[0], new_states


def next_through_block(
    x: Array,
    state: BlockState,
    block: DecoderBlockParams,
    config: TransformerConfig,
    rope: RoPETable | None,
    mask: Array | None,
    bias: Array | None,
    memory_mask: Array | None,
) -> tuple[Array, BlockState]:
    """Do the same as ``decoder_block_forward`` for one more token, x (B, 1, d_model)."""

    def self_attention(x: Array) -> tuple[Array, KVCache]:
        return attend_with_cache(x, state.target, block.self_attention, config.n_heads, rope, mask, bias)

    def cross_attention(g: Array) -> tuple[Array, None]:
        cross = block.cross_attention
        q = split_heads(linear_forward(g, cross.W_Q, cross.b_Q)[0], config.n_heads)  # (B, h, 1, d_k)
        return attend(q, state.memory, cross, memory_mask, None), None

    def feed_forward(h: Array) -> tuple[Array, None]:
        return ffn_forward(h, block.ffn, activation=config.activation)[0], None

    g, target, _ = residual_forward(x, self_attention, block.norm_1, config, None)
    h, _, _ = residual_forward(g, cross_attention, block.norm_2, config, None)
    y, _, _ = residual_forward(h, feed_forward, block.norm_3, config, None)
    return y, BlockState(target, state.memory)


def attend_with_cache(
    x: Array,
    cache: KVCache,
    params: AttentionParams,
    n_heads: int,
    rope: RoPETable | None,
    mask: Array | None,
    bias: Array | None = None,
) -> tuple[Array, KVCache]:
    """Apply self-attention to n more tokens, x (B, n, d_model), after adding their keys to the cache.

    ``rope`` is the rotation at the positions of the n tokens. The mask is (n, T_k) or (B, 1, T_k).
    """
    n_kv_heads = cache.keys.shape[-3]
    Q, K, V = project(x, x, x, params, n_heads, n_kv_heads)  # (B, h or n_kv_heads, n, d_k)
    if rope is not None:
        Q, K = rotate(Q, *rope), rotate(K, *rope)
    cache = append_to_cache(cache, K, V)
    return attend(Q, cache, params, mask, bias), cache


def attend(
    Q: Array, cache: KVCache, params: AttentionParams, mask: Array | None, bias: Array | None
) -> Array:
    """Attend with queries (B, h, n, d_k) to the cached keys, and apply W_O: (B, n, d_model).

    Several query heads may share one KV head. The queries of these heads are joined to one longer sequence,
    so the keys need not be copied.
    """
    keys = cache.keys[..., : cache.length, :]  # (B, n_kv_heads, T_k, d_k)
    values = cache.values[..., : cache.length, :]
    *leading, h, n, d_k = Q.shape
    n_kv_heads = keys.shape[-3]
    group_size = h // n_kv_heads  # query heads per KV head
    groups = Q.reshape(*leading, n_kv_heads, group_size * n, d_k)
    if mask is not None:
        mask = array_module(Q).concatenate([mask] * group_size, axis=-2)  # for each query head
        mask = mask[..., None, :, :]  # (B, 1, rows, T_k)
    heads, _ = attention_forward(groups, keys, values, mask=mask, bias=bias)
    merged = merge_heads(heads.reshape(Q.shape))  # (B, n, d_model)
    return linear_forward(merged, params.W_O, params.b_O)[0]
