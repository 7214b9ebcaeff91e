"""Greedy decoding: one token after the other, with the keys and values of the earlier ones kept."""

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
from npformer.positional import alibi_bias, rope_turn, rotate
from npformer.transformer import TransformerParams, embed_forward
from npformer.tree import leaves
from npformer.validation.annotations import Count, Ids
from npformer.validation.rules import IN_VOCABULARY, TABLE_LENGTH, TABLE_ROWS, Id

Turn = tuple[Array, Array, str]  # RoPE's cosines and sines, (n, pairs) each, and its layout
How = tuple[Turn | None, Array | None, Array | None]  # turn, mask and bias of self-attention


class KeptKeys(NamedTuple):
    """The keys and values of the tokens so far, in arrays with room for more."""

    keys: Array  # (B, h, room, d_k)
    values: Array
    length: int  # how many are filled


class BlockState(NamedTuple):
    """What one decoder block keeps from token to token."""

    own: KeptKeys  # of the tokens decoded so far
    memory: KeptKeys  # of the encoder's output, made once


def greedy_decode(
    source_ids: Ids[Array, "... S", IN_VOCABULARY, TABLE_ROWS],
    params: TransformerParams,
    config: TransformerConfig,
    *,
    start_id: Id,
    stop_id: Id,
    max_length: Annotated[Count, TABLE_LENGTH],
    padding_id: Id | None = None,
) -> Array:
    """The likeliest next token, again and again, until every row has said stop_id or max_length is reached.

    source_ids (B, S) -> ids (B, at most max_length). The rows come without start_id; what follows a row's
    stop_id is stop_id again. Keys and values of the earlier tokens are kept, so that a new token costs
    one query (linear in the length).

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
    states = [first_state(block, memory, config) for block in params.decoder.blocks]
    ids = xp.full((*source_ids.shape[:-1], 1), start_id, dtype=np.int64)  # (B, 1)
    done = xp.zeros(source_ids.shape[:-1], dtype=bool)
    for _ in range(max_length):
        mask = None if padding_id is None else padding_mask(ids, padding_id)  # (B, 1, t + 1)
        logits, states = next_logits(ids, states, params, config, mask, memory_mask)
        check_logits("greedy_decode", logits, params)
        new = xp.where(done, stop_id, logits[..., 0, :].argmax(axis=-1))
        ids = xp.concatenate([ids, new[..., None]], axis=-1)  # (B, t + 2)
        done = done | (new == stop_id)
        if bool(done.all()):
            break
    return ids[..., 1:]


def check_logits(function: str, logits: Array, params: Any) -> None:
    """Refuse to choose among logits (..., vocab_size) that are no numbers; name the weights that are none.

    Looked at on the host only. The largest of a row with a NaN is NaN.
    """
    if isinstance(logits, np.ndarray) and not np.isfinite(logits.max(axis=-1)).all():
        wrong = [f"params.{path} holds" for path, a in leaves(params) if not np.isfinite(a).all()]
        words = f"{wrong[0]} NaN or infinity" if wrong else "params give logits that are NaN or infinite"
        raise ValueError(f"{function}: {words}; expected finite numbers")


def first_state(block: DecoderBlockParams, memory: Array, config: TransformerConfig) -> BlockState:
    """Before the first token: the memory's keys and values, and none of the block's own."""
    cross, h = block.cross_attention, config.n_heads
    keys = split_heads(linear_forward(memory, cross.W_K, cross.b_K)[0], h)  # (B, h, S, d_k)
    values = split_heads(linear_forward(memory, cross.W_V, cross.b_V)[0], h)
    none = keys[..., :0, :]  # (B, h, 0, d_k)
    return BlockState(KeptKeys(none, none, 0), KeptKeys(keys, values, keys.shape[-2]))


def keep(kept: KeptKeys, key: Array, value: Array) -> KeptKeys:
    """n more keys and values, (B, h, n, d_k). A full room doubles, so that adding stays cheap."""
    keys, values, length = kept
    end = length + key.shape[-2]
    if end > keys.shape[-2]:
        xp, more = array_module(keys), (*keys.shape[:-2], max(end, 16), keys.shape[-1])
        keys = xp.concatenate([keys, xp.empty(more, keys.dtype)], axis=-2)
        values = xp.concatenate([values, xp.empty(more, values.dtype)], axis=-2)
    keys[..., length:end, :] = key
    values[..., length:end, :] = value
    return KeptKeys(keys, values, end)


def next_logits(
    ids: Array,
    states: list[BlockState],
    params: TransformerParams,
    config: TransformerConfig,
    mask: Array | None,
    memory_mask: Array | None,
) -> tuple[Array, list[BlockState]]:
    """The last token through all blocks: ids (B, t + 1) -> logits (B, 1, vocab_size), and what is kept."""
    xp, h, t, after = array_module(ids), config.n_heads, ids.shape[-1] - 1, []
    x, _ = embed_forward(ids[..., t:], params.embedding, params.target_positions, config, None, start=t)
    turn = bias = None
    if config.positions == "rope":
        turn = (*rope_turn(xp.asarray([t]), config.d_model // h, 10000.0, x.dtype), "interleaved")
    if config.positions == "alibi":
        bias = alibi_bias(h, 1, t + 1, dtype=x.dtype, xp=xp)  # (h, 1, t + 1)
    how = turn, mask, bias
    for block, before in zip(params.decoder.blocks, states, strict=True):
        x, now = next_through_block(x, before, block, config, how, memory_mask)  # (B, 1, d_model)
        after.append(now)
    if params.decoder.norm is not None:
        x, _ = layer_norm_forward(x, params.decoder.norm, eps=config.eps)
    return tied_logits_forward(x, params.embedding)[0], after


def next_through_block(
    x: Array,
    state: BlockState,
    block: DecoderBlockParams,
    config: TransformerConfig,
    how: How,
    memory_mask: Array | None,
) -> tuple[Array, BlockState]:
    """`decoder_block_forward` for one more token, x (B, 1, d_model)."""

    def look_back(x: Array) -> tuple[Array, KeptKeys]:
        return attend_to_kept(x, state.own, block.self_attention, config.n_heads, *how)

    def look_across(g: Array) -> tuple[Array, None]:
        cross = block.cross_attention
        q = split_heads(linear_forward(g, cross.W_Q, cross.b_Q)[0], config.n_heads)  # (B, h, 1, d_k)
        return attend(q, state.memory, cross, memory_mask, None), None

    def feed(h: Array) -> tuple[Array, None]:
        return ffn_forward(h, block.ffn, activation=config.activation)[0], None

    g, own, _ = residual_forward(x, look_back, block.norm_1, config, None)
    h, _, _ = residual_forward(g, look_across, block.norm_2, config, None)
    y, _, _ = residual_forward(h, feed, block.norm_3, config, None)
    return y, BlockState(own, state.memory)


def attend_to_kept(
    x: Array,
    kept: KeptKeys,
    params: AttentionParams,
    n_heads: int,
    turn: Turn | None,
    mask: Array | None,
    bias: Array | None = None,
) -> tuple[Array, KeptKeys]:
    """Self-attention of n more tokens, x (B, n, d_model), to those kept, which they join.

    turn is of their positions, for RoPE: cosines, sines and the layout; mask is (n, T_k), or (B, 1, T_k).
    """
    Q, K, V = project(x, x, x, params, n_heads, kept.keys.shape[-3])  # (B, h or n_kv_heads, n, d_k)
    if turn is not None:
        Q, K = rotate(Q, *turn), rotate(K, *turn)
    kept = keep(kept, K, V)
    return attend(Q, kept, params, mask, bias), kept


def attend(
    Q: Array, kept: KeptKeys, params: AttentionParams, mask: Array | None, bias: Array | None
) -> Array:
    """Queries (B, h, n, d_k) against kept keys and values, and the output projection: (B, n, d_model).

    The queries that share a key head stand one below the other, so that no key is copied.
    """
    keys, values = kept.keys[..., : kept.length, :], kept.values[..., : kept.length, :]
    *leading, h, n, d_k = Q.shape
    n_kv_heads = keys.shape[-3]
    groups = Q.reshape(*leading, n_kv_heads, h // n_kv_heads * n, d_k)
    if mask is not None:
        rows = [mask] * (h // n_kv_heads)
        mask = array_module(Q).concatenate(rows, axis=-2)[..., None, :, :]  # (B, 1, rows of a group, T_k)
    heads, _ = attention_forward(groups, keys, values, mask=mask, bias=bias)
    merged = merge_heads(heads.reshape(Q.shape))  # (B, n, d_model)
    return linear_forward(merged, params.W_O, params.b_O)[0]
