"""Text generation with a causal model, token by token, with a KV cache.

In shapes, B stands for the leading axes of the ids, usually one batch axis.
"""

from typing import Annotated, Any

import numpy as np

from npformer.arrays import Array, array_module
from npformer.attention import AttentionParams, causal_mask
from npformer.decoding import KVCache, attend_with_cache, check_logits
from npformer.functional import softmax_forward
from npformer.modern.causal_lm import (
    CausalBlockParams,
    CausalLMConfig,
    CausalLMParams,
    logits_forward,
    rope_table_of,
)
from npformer.modern.gated_ffn import gated_ffn_forward
from npformer.modern.rms_norm import rms_norm_forward
from npformer.positional import RoPETable
from npformer.validation.annotations import Count, Ids, Length, NonNegative, Rng, number
from npformer.validation.call import Call, Phase
from npformer.validation.checks import check_generator
from npformer.validation.rules import IN_VOCABULARY, Id, rule

# --- what the arguments must satisfy --------------------------------------------------------------
# Rules are conditions that a shape cannot express. Argument validation (npformer/validation) checks them.


@rule("T >= 1", Phase.MASKS)
def PROMPT(ids: Any, name: str, call: Call) -> None:
    """Check that a prompt has at least one token in each row."""
    if ids.shape[-1] == 0:
        raise call.value_error(f"{name} has shape {ids.shape}; expected at least one token a row")


@rule("T + n <= max_length", Phase.RELATIONS)
def NEW_TOKENS_FIT(n: Any, name: str, call: Call) -> None:
    """Check that the prompt and n new tokens have at most config.max_length positions."""
    n_prompt, max_length = call.sizes["T"], call.arguments["config"].max_length
    if n_prompt + n > max_length:
        given = f"the prompt has {n_prompt} positions and config.max_length={max_length}"
        raise call.value_error(f"{name} is {n}; expected at most {max_length - n_prompt}, {given}")


@rule("only after the tokens", Phase.RELATIONS, reads_values=True)
def PADDING(padding_id: Any, name: str, call: Call) -> None:
    """Check that padding comes only after the last token of a row; an array on a GPU is not checked."""
    ids = call.arguments["ids"]
    if padding_id is None or not isinstance(ids, np.ndarray):
        return
    is_token = ids != padding_id  # (B, T)
    starts_with_token = is_token[..., 0].all()
    has_token_after_padding = (is_token[..., 1:] & ~is_token[..., :-1]).any()
    if not starts_with_token or has_token_after_padding:
        raise call.value_error(f"ids has {name}={padding_id} before a token; expected it at the end only")


@rule("rng unless temperature=0", Phase.RELATIONS)
def NEEDS_GENERATOR(n: Any, name: str, call: Call) -> None:
    """Check that there is a generator if tokens are sampled. With temperature=0 nothing is sampled."""
    if call.arguments.get("temperature", 1.0) != 0:
        check_generator(call.function, "rng", call.arguments.get("rng"))


Share = Annotated[float, number("0 < · <= 1", above=0, maximum=1)]


# --- generation -----------------------------------------------------------------------------------


def generate(
    ids: Ids[Array, "... T", IN_VOCABULARY, PROMPT],
    params: CausalLMParams,
    config: CausalLMConfig,
    *,
    max_new_tokens: Annotated[Length, NEW_TOKENS_FIT, NEEDS_GENERATOR],
    temperature: NonNegative = 1.0,
    top_k: Count | None = None,
    top_p: Share | None = None,
    stop_id: Id | None = None,
    rng: Rng | None = None,
    padding_id: Annotated[Id | None, PADDING] = None,
) -> Array:
    """ids[t+1] ~ softmax(logits[t] / temperature), for max_new_tokens steps in each row.

    With the KV cache, each new token needs only one query.

    Parameters
    ----------
    ids : integer array (..., T)
        The prompts. If they have different lengths, each shorter prompt ends with padding.
    params : CausalLMParams
    config : CausalLMConfig
    max_new_tokens : int
        The number of new tokens per row.
    temperature : float, temperature >= 0
        0 selects the most probable token. A lower temperature makes probable tokens more probable.
    top_k : int, optional
        Draw only from the k most probable tokens.
    top_p : float, 0 < top_p <= 1, optional
        Draw only from the smallest set of most probable tokens whose probabilities sum to at least top_p.
        With top_k, top_p is a share of the sum of the k largest probabilities. Source: Holtzman et al.,
        "The Curious Case of Neural Text Degeneration", 2020.
    stop_id : int, optional
        The id that ends a row. All later new ids of this row are stop_id too.
    rng : numpy.random.Generator, optional
        Draws the tokens. It may be omitted only if temperature is 0.
    padding_id : int, optional
        The id of the padding token in the prompts. The new tokens of a row directly follow its prompt, and
        the padding follows the new tokens.

    Returns
    -------
    ids : integer array (..., T + max_new_tokens)
        The prompts and the new tokens.

    Raises
    ------
    ValueError
        If the logits contain NaN or infinity. The message names a parameter that contains such a value. Only
        NumPy arrays are checked.

    Examples
    --------
    >>> from npformer import init_causal_lm
    >>> config = CausalLMConfig(d_model=8, d_ff=21, n_heads=4, n_kv_heads=2, n_layers=1)
    >>> params = init_causal_lm(10, config, np.random.default_rng(0))
    >>> generate(np.array([[1, 2, 3]]), params, config, max_new_tokens=5, temperature=0).shape
    (1, 8)
    """
    xp = array_module(ids)
    filler = 0 if stop_id is None else stop_id
    ids, is_new, first, last = _add_room(ids, max_new_tokens, padding_id, filler)
    caches = [empty_cache(block.attention, ids, config) for block in params.blocks]
    is_finished = xp.zeros(ids.shape[:-1], bool)  # (B,)
    n_cached = 0  # the number of positions whose keys and values are in the caches
    for t in range(first, last):
        logits, caches = next_logits(ids[..., n_cached:t], caches, params, config)  # (B, vocab_size)
        n_cached = t
        check_logits("generate", logits, params)
        new_ids = sample_ids(logits, temperature, top_k, top_p, rng)  # (B,)
        is_written = is_new[..., t] & ~is_finished  # A row that is not written keeps its old id.
        ids[..., t] = xp.where(is_written, new_ids, ids[..., t])
        if stop_id is not None:
            is_finished = is_finished | (is_written & (new_ids == stop_id))
            if bool(is_finished.all()):
                break
    return ids


def _add_room(ids: Array, n_new: int, padding_id: int | None, filler: int) -> tuple[Array, Array, int, int]:
    """Insert n_new filler ids after each prompt, before its padding: ids (B, T) -> (B, T + n_new).

    Returns four values. The first two are the new ids and a boolean array that is True for the fillers. The
    other two are the smallest position with a filler in any row, and the largest such position plus 1.
    """
    xp = array_module(ids)
    *leading, T = ids.shape
    first = last_prompt_end = T
    lengths = xp.full((*leading, 1), T, dtype=np.int64)  # (B, 1), the lengths of the prompts without padding
    if padding_id is not None and ids.size > 0:
        lengths = (ids != padding_id).sum(axis=-1)[..., None]
        first, last_prompt_end = int(lengths.min()), int(lengths.max())
    positions = xp.arange(T + n_new)
    is_new = (lengths <= positions) & (positions < lengths + n_new)  # (B, T + n_new)
    padding = xp.full((*leading, n_new), 0 if padding_id is None else padding_id, dtype=np.int64)
    ids = xp.concatenate([ids.astype(np.int64), padding], axis=-1)
    return xp.where(is_new, filler, ids), is_new, first, last_prompt_end + n_new


def sample_ids(
    logits: Array, temperature: float, top_k: int | None, top_p: float | None, rng: Rng | None
) -> Array:
    """Draw an id for each row from softmax(logits / temperature): (B, vocab_size) -> (B,).

    top_k and top_p restrict the choice as in ``generate``. A token that is exactly as probable as the last
    allowed token is allowed too. With temperature=0 or without rng, the result is the most probable token.
    NumPy draws the random numbers for every array library.
    """
    if rng is None or temperature == 0:
        return logits.argmax(axis=-1)
    p = _tempered_probabilities(logits, temperature)  # (B, vocab_size)
    if top_k is not None or top_p is not None:
        max_tokens = p.shape[-1] if top_k is None else top_k
        min_share = 1.0 if top_p is None else float(top_p)
        smallest_allowed = smallest_allowed_probability(p, max_tokens, min_share)  # (B, 1)
        p = p * (p >= smallest_allowed)  # Tokens that are not allowed get probability 0.
    # Inverse transform sampling: draw a number below the total, and take the first token whose cumulative
    # sum is above it.
    xp = array_module(p)
    cumulative = xp.cumsum(p, axis=-1)  # (B, vocab_size)
    total = cumulative[..., -1:]  # (B, 1)
    drawn = xp.asarray(rng.random(p.shape[:-1]))[..., None] * total  # (B, 1)
    return (cumulative <= drawn).sum(axis=-1)


def _tempered_probabilities(logits: Array, temperature: float) -> Array:
    """Compute softmax(logits / temperature) for temperature > 0: (B, vocab_size)."""
    tiny = float(np.finfo(logits.dtype).tiny)
    temperature = max(float(temperature), tiny)  # A smaller temperature could become 0 in this dtype.
    # The largest shifted logit is 0, so the division cannot overflow to +inf.
    shifted = logits - logits.max(axis=-1, keepdims=True)
    p, _ = softmax_forward(shifted / temperature)
    return p


def smallest_allowed_probability(p: Array, top_k: int, top_p: float) -> Array:
    """Return the smallest probability that top_k and top_p allow: (B, vocab_size) -> (B, 1)."""
    xp = array_module(p)
    likeliest = -xp.sort(-p, axis=-1)[..., :top_k]  # (B, k), in decreasing order
    sum_before = xp.cumsum(likeliest, axis=-1) - likeliest  # (B, k), the sum of all larger probabilities
    needed = top_p * likeliest.sum(axis=-1, keepdims=True)  # (B, 1)
    n_allowed = xp.maximum((sum_before < needed).sum(axis=-1), 1)[..., None]  # (B, 1)
    return xp.take_along_axis(likeliest, n_allowed - 1, axis=-1)


def empty_cache(params: AttentionParams, ids: Array, config: CausalLMConfig) -> KVCache:
    """Return the empty KV cache of a block, before the first token."""
    d_k = config.d_model // config.n_heads
    shape = (*ids.shape[:-1], config.n_kv_heads, 0, d_k)  # (B, n_kv_heads, 0, d_k)
    empty = array_module(ids).empty(shape, params.W_K.dtype)
    return KVCache(empty, empty, 0)


def next_logits(
    ids: Array, caches: list[KVCache], params: CausalLMParams, config: CausalLMConfig
) -> tuple[Array, list[KVCache]]:
    """Apply the model to n more tokens, ids (B, n).

    Returns the logits after the last token (B, vocab_size) and the new KV caches of the blocks.
    """
    xp = array_module(ids)
    n = ids.shape[-1]
    t = caches[0].length if caches else 0  # the position of the first new token
    x = params.embedding.E[ids]  # (B, n, d_model)
    rope = rope_table_of(config, xp.arange(t, t + n), x.dtype)  # (n, pairs)
    mask = None if n == 1 else causal_mask(n, t + n, xp=xp)  # (n, t + n)
    new_caches = []
    for block, old_cache in zip(params.blocks, caches, strict=True):
        x, new_cache = next_through_block(x, old_cache, block, config, rope, mask)
        new_caches.append(new_cache)
    y, _ = rms_norm_forward(x[..., -1, :], params.norm, eps=config.eps)  # (B, d_model)
    return logits_forward(y, params)[0], new_caches


def next_through_block(
    x: Array,
    cache: KVCache,
    params: CausalBlockParams,
    config: CausalLMConfig,
    rope: RoPETable,
    mask: Array | None,
) -> tuple[Array, KVCache]:
    """Apply a block to n more tokens x (B, n, d_model), with the keys and values of earlier tokens cached."""
    n, _ = rms_norm_forward(x, params.norm_1, eps=config.eps)
    a, cache = attend_with_cache(n, cache, params.attention, config.n_heads, rope, mask)
    h = x + a
    m, _ = rms_norm_forward(h, params.norm_2, eps=config.eps)
    f, _ = gated_ffn_forward(m, params.ffn)
    return h + f, cache
