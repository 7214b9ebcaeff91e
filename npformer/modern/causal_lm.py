"""A causal language model in the style of Llama: RMSNorm, RoPE, grouped-query attention and a gated FFN.

In a backward function, the comment ``# from y = h + f`` means that the line differentiates this forward
equation. In shapes, B stands for the leading axes of the ids, usually one batch axis.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.attention import (
    AttentionParams,
    KVHeads,
    MultiHeadAttentionCache,
    causal_mask,
    multi_head_attention_forward,
    padding_mask,
)
from npformer.config import Heads
from npformer.embedding import EmbeddingParams, init_embedding, tied_logits_backward, tied_logits_forward
from npformer.encoder import self_attention_backward
from npformer.functional import glorot, linear_backward, linear_forward
from npformer.modern.gated_ffn import (
    GatedFFNCache,
    GatedFFNParams,
    gated_ffn_backward,
    gated_ffn_forward,
    init_gated_ffn,
)
from npformer.modern.rms_norm import (
    RMSNormCache,
    RMSNormParams,
    init_rms_norm,
    rms_norm_backward,
    rms_norm_forward,
)
from npformer.positional import Layout, RoPETable, angular_frequencies, rope_table
from npformer.validation.annotations import (
    Count,
    DType,
    Float,
    Ids,
    Length,
    NonNegative,
    Positive,
    Rng,
    Shape,
    Size,
)
from npformer.validation.call import Call, Phase
from npformer.validation.checks import check_number, wrong_kind
from npformer.validation.rules import IN_VOCABULARY, LAYERS, Id, max_positions, rule

# --- what the arguments must satisfy --------------------------------------------------------------
# Rules are conditions that a shape cannot express. Argument validation (npformer/validation) checks them.


@rule("even d_k")
def EVEN_HEAD(value: Any, name: str, call: Call) -> None:
    """Check that d_k is even, because RoPE rotates pairs of columns."""
    d_model = call.sizes["d_model"]
    d_k = d_model // value
    if d_k % 2:
        raise call.value_error(f"{name} is {value}; expected an even d_k, d_model={d_model} gives {d_k}")


@rule("iff untied", needs="config")
def HEAD_UNLESS_TIED(head: Any, name: str, call: Call) -> None:
    """Check that there is an output matrix if config.tied is False, and none otherwise."""
    is_tied = call.arguments["config"].tied
    if is_tied and head is not None:
        raise call.value_error(f"{name} is an array; expected None with config.tied=True")
    if not is_tied and head is None:
        raise wrong_kind(call.function, name, head, "an array with config.tied=False")


@rule("a tuple of at most d_k/2 numbers", Phase.MASKS)
def FREQUENCIES(value: Any, name: str, call: Call) -> None:
    """Check that the frequencies are numbers, at most one for each pair of columns of a head."""
    if not isinstance(value, tuple) or value == ():
        raise wrong_kind(call.function, name, value, "a tuple of numbers")
    for i, frequency in enumerate(value):
        check_number(call.function, f"{name}.{i}", frequency)
    pairs = call.sizes["d_model"] // call.sizes["h"] // 2
    if len(value) > pairs:
        raise call.value_error(f"{name} holds {len(value)} numbers; expected at most {pairs}, d_k/2")


def _max_length_of_config(call: Call, name: str) -> int:
    """Return the number of positions that the config allows."""
    max_length: int = call.arguments["config"].max_length
    return max_length


FITS_MAX_LENGTH = max_positions("config.max_length", _max_length_of_config, Phase.MASKS)


# --- the model ------------------------------------------------------------------------------------


class CausalLMConfig(NamedTuple):
    """The sizes and choices of a causal language model. The defaults are those of the model stories15M.

    Attributes
    ----------
    d_model : int
        The number of columns of each token's vector.
    d_ff : int
        The number of hidden units of the gated feed-forward network.
    n_heads : int
        The number of heads of queries. Each head has d_k = d_model / n_heads columns, an even number.
    n_kv_heads : int
        The number of heads of keys and values. If it is smaller than n_heads, several heads of queries share
        one head of keys and values.
    n_layers : int
        The number of blocks.
    eps : float, eps >= 0
        The number that RMSNorm adds to the mean square.
    base : float, base > 0
        The base of RoPE's frequencies.
    max_length : int
        The maximum number of positions.
    tied : bool
        If True, the embedding matrix also computes the logits. If False, the logits have a separate matrix.
    rope_layout : "interleaved" or "halves"
        RoPE rotates pairs of neighbouring columns, or pairs of the columns i and i + d_k/2.
    frequencies : tuple of float, optional
        RoPE's frequencies, for example ``tuple(llama3_frequencies(d_k).tolist())``. The default is
        ``angular_frequencies(d_k, base=base)``. With fewer than d_k/2 frequencies, RoPE rotates only the
        first columns of each head, as in ``rope_table``.
    """

    d_model: Size = 288
    d_ff: Size = 768
    n_heads: Annotated[Heads, EVEN_HEAD] = 6
    n_kv_heads: KVHeads = 6
    n_layers: Length = 6
    eps: NonNegative = 1e-5
    base: Positive = 10000.0
    max_length: Count = 256
    tied: bool = True
    rope_layout: Layout = "interleaved"
    frequencies: Annotated[tuple[float, ...], FREQUENCIES] | None = None


class CausalBlockParams(NamedTuple):
    """The parameters of one block. Their gradients have the same type."""

    attention: AttentionParams
    norm_1: RMSNormParams
    ffn: GatedFFNParams
    norm_2: RMSNormParams


class CausalLMParams(NamedTuple):
    """All parameters of the model. Their gradients have the same type."""

    embedding: EmbeddingParams
    blocks: Annotated[tuple[CausalBlockParams, ...], LAYERS]
    norm: RMSNormParams
    head: Annotated[Float[Array, "d_model vocab_size"] | None, HEAD_UNLESS_TIED] = None  # None if config.tied


class CausalBlockCache(NamedTuple):
    norm_1: RMSNormCache
    attention: MultiHeadAttentionCache
    norm_2: RMSNormCache
    ffn: GatedFFNCache


class CausalLMCache(NamedTuple):
    ids: Array
    E: Array
    blocks: tuple[CausalBlockCache, ...]
    norm: RMSNormCache
    logits: Any  # the cache of tied_logits_forward, or of linear_forward if config.tied is False
    shape: Shape[tuple[int, ...], "... T vocab_size"]
    dtype: Any


def init_causal_lm(
    vocab_size: Size, config: CausalLMConfig, rng: Rng, *, dtype: DType = np.float64
) -> CausalLMParams:
    """Draw all parameters of a causal language model.

    Parameters
    ----------
    vocab_size : int
        The number of tokens in the vocabulary.
    config : CausalLMConfig
        With config.tied=False, the model gets a separate matrix for the logits.
    rng : numpy.random.Generator
    dtype : numpy.float32 or numpy.float64

    Returns
    -------
    params : CausalLMParams

    Examples
    --------
    >>> config = CausalLMConfig(d_model=8, d_ff=21, n_heads=4, n_kv_heads=2, n_layers=1)
    >>> init_causal_lm(10, config, np.random.default_rng(0)).blocks[0].attention.W_K.shape
    (8, 4)
    """
    d_model = config.d_model
    embedding = init_embedding(vocab_size, d_model, rng, dtype=dtype)
    blocks = tuple(init_causal_block(config, rng, dtype) for _ in range(config.n_layers))
    head = None if config.tied else glorot(d_model, vocab_size, rng, dtype)
    return CausalLMParams(embedding, blocks, init_rms_norm(d_model, dtype=dtype), head)


def init_causal_block(config: CausalLMConfig, rng: Rng, dtype: Any) -> CausalBlockParams:
    """Draw the parameters of one block. W_K and W_V have n_kv_heads · d_k columns."""
    d_model = config.d_model
    d_kv = d_model // config.n_heads * config.n_kv_heads
    weights = [glorot(d_model, d_out, rng, dtype) for d_out in (d_model, d_kv, d_kv, d_model)]
    return CausalBlockParams(
        AttentionParams(*weights),
        init_rms_norm(d_model, dtype=dtype),
        init_gated_ffn(d_model, config.d_ff, rng, dtype=dtype),
        init_rms_norm(d_model, dtype=dtype),
    )


def causal_lm_forward(
    ids: Ids[Array, "... T", IN_VOCABULARY, FITS_MAX_LENGTH],
    params: CausalLMParams,
    config: CausalLMConfig,
    *,
    padding_id: Id | None = None,
) -> tuple[Float[Array, "... T vocab_size"], CausalLMCache]:
    """logits = RMSNorm(block_n(… block_1(E[ids]))) Eᵀ.

    Touvron et al., "LLaMA", 2023, section 2.2. The logits at each position predict the next token. Each
    position attends to itself and to the earlier positions. Only RoPE represents the order of the tokens, and
    the embedding is not multiplied by √d_model. With config.tied=False, params.head replaces Eᵀ.

    Parameters
    ----------
    ids : integer array (..., T)
        Token ids.
    params : CausalLMParams
    config : CausalLMConfig
    padding_id : int, optional
        The id of the padding token. No query attends to a key with this id.

    Returns
    -------
    logits : float array (..., T, vocab_size)
    cache : CausalLMCache
        Input of ``causal_lm_backward``.

    Examples
    --------
    >>> config = CausalLMConfig(d_model=8, d_ff=21, n_heads=4, n_kv_heads=2, n_layers=1)
    >>> params = init_causal_lm(10, config, np.random.default_rng(0))
    >>> causal_lm_forward(np.array([[1, 2, 3]]), params, config)[0].shape
    (1, 3, 10)
    """
    E = params.embedding.E
    mask = causal_mask(ids.shape[-1], xp=array_module(ids))  # (T, T)
    if padding_id is not None:
        mask = mask & padding_mask(ids, padding_id)  # (B, T, T)
    x = E[ids]  # (B, T, d_model)
    rope = rope_table_of(config, array_module(ids).arange(ids.shape[-1]), x.dtype)  # (T, pairs)
    block_caches = []
    for block in params.blocks:
        x, block_cache = causal_block_forward(x, block, config, mask, rope)
        block_caches.append(block_cache)
    y, norm_cache = rms_norm_forward(x, params.norm, eps=config.eps)
    logits, logits_cache = logits_forward(y, params)  # (B, T, vocab_size)
    cache = CausalLMCache(ids, E, tuple(block_caches), norm_cache, logits_cache, logits.shape, logits.dtype)
    return logits, cache


def causal_lm_backward(dlogits: Float[Array, "... T vocab_size"], cache: CausalLMCache) -> CausalLMParams:
    """Apply the backward function of each line of the forward pass, from the last line to the first.

    If E is tied, the forward pass uses E twice, so dE is the sum of two gradients.

    Parameters
    ----------
    dlogits : float array (..., T, vocab_size)
        Gradient of the loss with respect to the logits.
    cache : CausalLMCache
        Second output of ``causal_lm_forward``.

    Returns
    -------
    grads : CausalLMParams
        The gradients of the parameters. The gradient of an absent head is None.

    Examples
    --------
    >>> config = CausalLMConfig(d_model=8, d_ff=21, n_heads=4, n_kv_heads=2, n_layers=1)
    >>> params = init_causal_lm(10, config, np.random.default_rng(0))
    >>> logits, cache = causal_lm_forward(np.array([[1, 2, 3]]), params, config)
    >>> causal_lm_backward(logits, cache).blocks[0].ffn.W_gate.shape
    (8, 21)
    """
    ids, E, block_caches, norm_cache, logits_cache, _, _ = cache
    xp = array_module(dlogits)
    dy, dE, dhead = logits_backward(dlogits, logits_cache)
    dx, dnorm = rms_norm_backward(dy, norm_cache)
    dblocks = []
    for block_cache in reversed(block_caches):
        dx, dblock = causal_block_backward(dx, block_cache)
        dblocks.append(dblock)
    if dE is None:
        dE = xp.zeros_like(E)
    xp.add.at(dE, ids, dx)  # from x = E[ids]; add.at adds all gradients of a repeated token
    return CausalLMParams(EmbeddingParams(dE), tuple(reversed(dblocks)), dnorm, dhead)


def rope_table_of(config: CausalLMConfig, positions: Array, dtype: Any) -> RoPETable:
    """Compute the rotations of a model's queries and keys at these positions."""
    if config.frequencies is None:
        frequencies = angular_frequencies(config.d_model // config.n_heads, base=config.base)
    else:
        frequencies = np.array(config.frequencies)
    return rope_table(positions, frequencies, layout=config.rope_layout, dtype=dtype)


def causal_block_forward(
    x: Array,
    params: CausalBlockParams,
    config: CausalLMConfig,
    mask: Array | None,
    rope: RoPETable | None = None,
) -> tuple[Array, CausalBlockCache]:
    """h = x + Attention(RMSNorm(x)), y = h + FFN(RMSNorm(h)): (..., T, d_model).

    All blocks of a model share one table of rotations, ``rope``. Without it, the block computes the table.
    """
    if rope is None:
        rope = rope_table_of(config, array_module(x).arange(x.shape[-2]), x.dtype)
    n, norm_1 = rms_norm_forward(x, params.norm_1, eps=config.eps)
    a, attention = multi_head_attention_forward(
        n, n, n, params.attention, n_heads=config.n_heads, mask=mask, rope=rope,
        n_kv_heads=config.n_kv_heads, base=config.base, rope_layout=config.rope_layout,
    )  # fmt: skip
    h = x + a
    m, norm_2 = rms_norm_forward(h, params.norm_2, eps=config.eps)
    f, ffn = gated_ffn_forward(m, params.ffn)
    y = h + f
    return y, CausalBlockCache(norm_1, attention, norm_2, ffn)


def causal_block_backward(dy: Array, cache: CausalBlockCache) -> tuple[Array, CausalBlockParams]:
    """Return dx (..., T, d_model) and the gradients of the block's parameters.

    A sum such as h + f passes its gradient on to both terms without a change.
    """
    dm, dffn = gated_ffn_backward(dy, cache.ffn)  # from f = FFN(m)
    through_ffn, dnorm_2 = rms_norm_backward(dm, cache.norm_2)  # from m = RMSNorm(h)
    dh = dy + through_ffn  # from y = h + f
    dn, dattention = self_attention_backward(dh, cache.attention)  # from a = Attention(n)
    through_attention, dnorm_1 = rms_norm_backward(dn, cache.norm_1)  # from n = RMSNorm(x)
    dx = dh + through_attention  # from h = x + a
    return dx, CausalBlockParams(dattention, dnorm_1, dffn, dnorm_2)


def logits_forward(y: Array, params: CausalLMParams) -> tuple[Array, Any]:
    """Compute y Eᵀ, or `y @ params.head` in an untied model: (..., T, d_model) -> (..., T, vocab_size)."""
    if params.head is None:
        return tied_logits_forward(y, params.embedding)
    return linear_forward(y, params.head)


def logits_backward(dlogits: Array, cache: Any) -> tuple[Array, Array | None, Array | None]:
    """Return dy (..., T, d_model) and the gradients of E and of the head. One of these two is None."""
    is_tied = hasattr(cache, "E")
    if is_tied:
        dy, (dE,) = tied_logits_backward(dlogits, cache)
        return dy, dE, None
    dy, dhead, _ = linear_backward(dlogits, cache)
    return dy, None, dhead
