"""The causal language model of today: RMSNorm first, RoPE, shared key heads, a gate, no biases."""

from typing import Annotated, Any, NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.attention import (
    AttentionParams,
    MultiHeadAttentionCache,
    causal_mask,
    multi_head_attention_forward,
    padding_mask,
)
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
from npformer.positional import Layout
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
from npformer.validation.rules import CONFIG_ROOM, EVEN_HEAD, HEAD, IN_VOCABULARY, LAYERS, Heads, Id, KVHeads


class CausalLMConfig(NamedTuple):
    """The sizes and choices of a causal model; the defaults are those of the story-teller stories15M."""

    d_model: Size = 288  # numbers a token
    d_ff: Size = 768  # hidden units of the gated network
    n_heads: Annotated[Heads, EVEN_HEAD] = 6  # of queries
    n_kv_heads: KVHeads = 6  # of keys and values; fewer are shared by the queries' heads
    n_layers: Length = 6  # blocks
    eps: NonNegative = 1e-5  # of RMSNorm, beside the mean square
    base: Positive = 10000.0  # of RoPE's frequencies
    max_length: Count = 256
    tied: bool = True  # the logits' matrix is the embedding's
    rope_layout: Layout = "interleaved"  # RoPE's pairs: neighbours, or columns i and i + d_k/2


class CausalBlockParams(NamedTuple):
    """What one block trains; the gradients come back in the same type."""

    attention: AttentionParams
    norm_1: RMSNormParams
    ffn: GatedFFNParams
    norm_2: RMSNormParams


class CausalLMParams(NamedTuple):
    """Everything that the model trains; the gradients come back in the same type."""

    embedding: EmbeddingParams
    blocks: Annotated[tuple[CausalBlockParams, ...], LAYERS]
    norm: RMSNormParams
    head: Annotated[Float[Array, "d_model vocab_size"] | None, HEAD] = None


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
    logits: Any  # of `tied_logits_forward`, or of `linear_forward` with an own head
    shape: Shape[tuple[int, ...], "... T vocab_size"]
    dtype: Any


def init_causal_lm(
    vocab_size: Size, config: CausalLMConfig, rng: Rng, *, dtype: DType = np.float64
) -> CausalLMParams:
    """All parameters in the config's sizes, with config.tied=False a head of its own too.

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
    """The parameters of one block; W_K and W_V have n_kv_heads d_k columns."""
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
    ids: Ids[Array, "... T", IN_VOCABULARY, CONFIG_ROOM],
    params: CausalLMParams,
    config: CausalLMConfig,
    *,
    padding_id: Id | None = None,
) -> tuple[Float[Array, "... T vocab_size"], CausalLMCache]:
    """logits = RMSNorm(block_n(… block_1(E[ids]))) Eᵀ: at each position, of the token that comes next.

    Touvron et al., "LLaMA", 2023, section 2.2. Each position sees itself and what is before it; the order is
    in RoPE alone, and the embedding is not multiplied by √d_model. With config.tied=False the logits have a
    matrix of their own, params.head. padding_id is an id that nobody may attend to.

    >>> config = CausalLMConfig(d_model=8, d_ff=21, n_heads=4, n_kv_heads=2, n_layers=1)
    >>> params = init_causal_lm(10, config, np.random.default_rng(0))
    >>> causal_lm_forward(np.array([[1, 2, 3]]), params, config)[0].shape
    (1, 3, 10)
    """
    E, T, caches = params.embedding.E, ids.shape[-1], []
    mask = causal_mask(T, xp=array_module(ids))  # (T, T)
    if padding_id is not None:
        mask = mask & padding_mask(ids, padding_id)  # (B, T, T)
    x = E[ids]  # (B, T, d_model)
    for block in params.blocks:
        x, cache = causal_block_forward(x, block, config, mask)
        caches.append(cache)
    y, norm = rms_norm_forward(x, params.norm, eps=config.eps)
    logits, last = logits_forward(y, params)  # (B, T, vocab_size)
    return logits, CausalLMCache(ids, E, tuple(caches), norm, last, logits.shape, logits.dtype)


def causal_lm_backward(dlogits: Float[Array, "... T vocab_size"], cache: CausalLMCache) -> CausalLMParams:
    """The forward's lines from the last one up. A tied E was used twice, so its gradient is a sum of two.

    >>> config = CausalLMConfig(d_model=8, d_ff=21, n_heads=4, n_kv_heads=2, n_layers=1)
    >>> params = init_causal_lm(10, config, np.random.default_rng(0))
    >>> logits, cache = causal_lm_forward(np.array([[1, 2, 3]]), params, config)
    >>> causal_lm_backward(logits, cache).blocks[0].ffn.W_gate.shape
    (8, 21)
    """
    ids, E, caches, norm, last, _, _ = cache
    dblocks, xp = [], array_module(dlogits)
    dy, dE, dhead = logits_backward(dlogits, last)
    dx, dnorm = rms_norm_backward(dy, norm)
    for block in reversed(caches):
        dx, dblock = causal_block_backward(dx, block)
        dblocks.append(dblock)
    dE = xp.zeros_like(E) if dE is None else dE
    xp.add.at(dE, ids, dx)  # x = E[ids]: a word that occurs twice gets both gradients
    return CausalLMParams(EmbeddingParams(dE), tuple(reversed(dblocks)), dnorm, dhead)


def causal_block_forward(
    x: Array, params: CausalBlockParams, config: CausalLMConfig, mask: Array | None
) -> tuple[Array, CausalBlockCache]:
    """h = x + Attention(RMSNorm(x)), y = h + FFN(RMSNorm(h)): (..., T, d_model)."""
    n, norm_1 = rms_norm_forward(x, params.norm_1, eps=config.eps)
    a, attention = multi_head_attention_forward(
        n, n, n, params.attention, n_heads=config.n_heads, mask=mask, rope=True,
        n_kv_heads=config.n_kv_heads, base=config.base, rope_layout=config.rope_layout,
    )  # fmt: skip
    h = x + a
    m, norm_2 = rms_norm_forward(h, params.norm_2, eps=config.eps)
    f, ffn = gated_ffn_forward(m, params.ffn)
    y = h + f
    return y, CausalBlockCache(norm_1, attention, norm_2, ffn)


def causal_block_backward(dy: Array, cache: CausalBlockCache) -> tuple[Array, CausalBlockParams]:
    """The forward's lines from the last one up: dy (..., T, d_model) -> dx, gradients.

    Each sum hands its gradient to both of its terms.
    """
    dm, dffn = gated_ffn_backward(dy, cache.ffn)  # f = FFN(m)
    through_ffn, dnorm_2 = rms_norm_backward(dm, cache.norm_2)  # m = RMSNorm(h)
    dh = dy + through_ffn  # y = h + f
    dn, dattention = self_attention_backward(dh, cache.attention)  # a = Attention(n)
    through_attention, dnorm_1 = rms_norm_backward(dn, cache.norm_1)  # n = RMSNorm(x)
    dx = dh + through_attention  # h = x + a
    return dx, CausalBlockParams(dattention, dnorm_1, dffn, dnorm_2)


def logits_forward(y: Array, params: CausalLMParams) -> tuple[Array, Any]:
    """y Eᵀ, or y head with an own head: (..., T, d_model) -> (..., T, vocab_size)."""
    if params.head is None:
        return tied_logits_forward(y, params.embedding)
    return linear_forward(y, params.head)


def logits_backward(dlogits: Array, cache: Any) -> tuple[Array, Array | None, Array | None]:
    """dlogits (..., T, vocab_size) -> dy (..., T, d_model), and the gradient of E or of the head."""
    if hasattr(cache, "E"):
        dy, (dE,) = tied_logits_backward(dlogits, cache)
        return dy, dE, None
    dy, dhead, _ = linear_backward(dlogits, cache)
    return dy, None, dhead
