"""Writing with a causal model, token by token, with the keys and values of the earlier ones kept."""

from typing import Annotated

import numpy as np

from npformer.arrays import Array, array_module
from npformer.attention import AttentionParams, causal_mask
from npformer.decoding import KeptKeys, Turn, attend_to_kept, check_logits
from npformer.functional import softmax_forward
from npformer.modern.causal_lm import CausalBlockParams, CausalLMConfig, CausalLMParams, logits_forward
from npformer.modern.gated_ffn import gated_ffn_forward
from npformer.modern.rms_norm import rms_norm_forward
from npformer.positional import rope_turn
from npformer.validation.annotations import Count, Ids, Length, NonNegative, Rng
from npformer.validation.rules import DRAWS, IN_VOCABULARY, NEW_ROOM, PADDING, PROMPT, Id, Share


def generate(
    ids: Ids[Array, "... T", IN_VOCABULARY, PROMPT],
    params: CausalLMParams,
    config: CausalLMConfig,
    *,
    max_new_tokens: Annotated[Length, NEW_ROOM, DRAWS],
    temperature: NonNegative = 1.0,
    top_k: Count | None = None,
    top_p: Share | None = None,
    stop_id: Id | None = None,
    rng: Rng | None = None,
    padding_id: Annotated[Id | None, PADDING] = None,
) -> Array:
    """Each row goes on by max_new_tokens: ids (B, T) -> (B, T + max_new_tokens), the prompt first.

    temperature=0 takes the likeliest token; otherwise one is drawn from softmax(logits / temperature), among
    the top_k likeliest, or among the fewest that have the share top_p together (Holtzman et al., "The Curious
    Case of Neural Text Degeneration", 2020). What follows a row's stop_id is stop_id again. Prompts of
    different lengths end in padding_id: a row's new tokens stand directly behind its own prompt, and its
    padding behind those. Keys and values of the earlier tokens are kept, so that a new token costs one query.

    >>> from npformer import init_causal_lm
    >>> config = CausalLMConfig(d_model=8, d_ff=21, n_heads=4, n_kv_heads=2, n_layers=1)
    >>> params = init_causal_lm(10, config, np.random.default_rng(0))
    >>> generate(np.array([[1, 2, 3]]), params, config, max_new_tokens=5, temperature=0).shape
    (1, 8)
    """
    xp, stop = array_module(ids), -1 if stop_id is None else stop_id  # no id is -1
    ids, own, first, last = _with_room(ids, max_new_tokens, padding_id, stop_id or 0)
    kept, start = [no_keys(block.attention, ids, config) for block in params.blocks], 0
    done = xp.zeros(ids.shape[:-1], bool)
    for t in range(first, last):
        logits, kept = next_logits(ids[..., start:t], kept, params, config)  # (B, vocab_size)
        check_logits("generate", logits, params)
        start, writes, new = t, own[..., t] & ~done, choose(logits, temperature, top_k, top_p, rng)  # (B,)
        ids[..., t], done = xp.where(writes, new, ids[..., t]), done | (writes & (new == stop))
        if stop_id is not None and bool(done.all()):
            break
    return ids


def _with_room(ids: Array, new: int, padding_id: int | None, filler: int) -> tuple[Array, Array, int, int]:
    """The prompts with a filler where new tokens go: (B, T + new), these places, first, last + 1."""
    xp, (*leading, T) = array_module(ids), ids.shape
    is_prompt = xp.ones(ids.shape, bool) if padding_id is None else ids != padding_id  # (B, T)
    ends = is_prompt.sum(axis=-1)[..., None]  # (B, 1), T where nothing is padded
    first, last = (T, T) if padding_id is None or ids.size == 0 else (int(ends.min()), int(ends.max()))
    own = (ends <= xp.arange(T + new)) & (xp.arange(T + new) < ends + new)  # (B, T + new)
    behind = xp.full((*leading, new), padding_id or 0, dtype=np.int64)
    ids = xp.where(own, filler, xp.concatenate([ids.astype(np.int64), behind], axis=-1))
    return ids, own, first, last + new


def choose(
    logits: Array, temperature: float, top_k: int | None, top_p: float | None, rng: Rng | None
) -> Array:
    """An id for each row, drawn from softmax(logits / temperature): (B, vocab_size) -> (B,).

    top_k leaves the k likeliest; top_p the fewest of those that have this share of their sum together
    (Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020). Whatever is as likely as the last
    one left stays too. temperature=0 draws nothing: the likeliest. The draws are NumPy's everywhere.
    """
    if rng is None or temperature == 0:
        return logits.argmax(axis=-1)
    xp, tiny = array_module(logits), float(np.finfo(logits.dtype).tiny)
    temperature = max(float(temperature), tiny)  # or it would be 0 in float32
    p, _ = softmax_forward((logits - logits.max(axis=-1, keepdims=True)) / temperature)  # (B, vocab_size)
    if top_k is not None or top_p is not None:
        p = p * (p >= last_left(p, top_k or p.shape[-1], float(top_p or 1)))
    sums = xp.cumsum(p, axis=-1)
    drawn = xp.asarray(rng.random(p.shape[:-1]))[..., None] * sums[..., -1:]  # (B, 1)
    return (sums <= drawn).sum(axis=-1)  # the first whose sum is above


def last_left(p: Array, top_k: int, top_p: float) -> Array:
    """The smallest of the probabilities that top_k and top_p leave: (B, vocab_size) -> (B, 1)."""
    xp = array_module(p)
    likeliest = -xp.sort(-p, axis=-1)[..., :top_k]  # (B, k), in falling order
    before = xp.cumsum(likeliest, axis=-1) - likeliest  # what stands before each one
    enough = top_p * likeliest.sum(axis=-1, keepdims=True)  # (B, 1)
    left = xp.maximum((before < enough).sum(axis=-1), 1)[..., None]  # (B, 1), how many
    return xp.take_along_axis(likeliest, left - 1, axis=-1)


def no_keys(params: AttentionParams, ids: Array, config: CausalLMConfig) -> KeptKeys:
    """What a block has kept before the first token."""
    d_k = config.d_model // config.n_heads
    shape = (*ids.shape[:-1], config.n_kv_heads, 0, d_k)  # (B, n_kv_heads, 0, d_k)
    none = array_module(ids).empty(shape, params.W_K.dtype)
    return KeptKeys(none, none, 0)


def next_logits(
    ids: Array, kept: list[KeptKeys], params: CausalLMParams, config: CausalLMConfig
) -> tuple[Array, list[KeptKeys]]:
    """n more tokens through all blocks: ids (B, n) -> the last logits (B, vocab_size), and what is kept."""
    x, after = params.embedding.E[ids], []  # (B, n, d_model)
    xp, n, t = array_module(ids), ids.shape[-1], kept[0].length if kept else 0
    cos, sin = rope_turn(xp.arange(t, t + n), config.d_model // config.n_heads, config.base, x.dtype)
    mask = None if n == 1 else causal_mask(n, t + n, xp=xp)
    for block, before in zip(params.blocks, kept, strict=True):
        x, now = next_through_block(x, before, block, config, (cos, sin, config.rope_layout), mask)
        after.append(now)
    y, _ = rms_norm_forward(x[..., -1, :], params.norm, eps=config.eps)  # (B, d_model)
    return logits_forward(y, params)[0], after


def next_through_block(
    x: Array,
    kept: KeptKeys,
    params: CausalBlockParams,
    config: CausalLMConfig,
    turn: Turn,
    mask: Array | None,
) -> tuple[Array, KeptKeys]:
    """`causal_block_forward` for n more tokens, x (B, n, d_model)."""
    n, _ = rms_norm_forward(x, params.norm_1, eps=config.eps)
    a, kept = attend_to_kept(n, kept, params.attention, config.n_heads, turn, mask)
    h = x + a
    m, _ = rms_norm_forward(h, params.norm_2, eps=config.eps)
    f, _ = gated_ffn_forward(m, params.ffn)
    return h + f, kept
