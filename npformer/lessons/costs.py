"""What a layer and a model cost: the paper's Table 1 as numbers, parameters, multiplications, bytes."""

import itertools
from typing import Annotated, NamedTuple

import numpy as np

from npformer.config import TransformerConfig
from npformer.modern.causal_lm import CausalLMConfig
from npformer.validation.annotations import Count, DType, Length, integer


class LayerCost(NamedTuple):
    """One row of the paper's Table 1."""

    operations: int  # per layer, without the constant that O(…) leaves open
    sequential: int  # steps that have to wait for each other
    path: int  # the longest way between two positions


Kernel = Annotated[int, integer(">= 2", 2)]


def table_1(n: Count, d: Count, *, k: Kernel = 3, r: Count = 64) -> dict[str, LayerCost]:
    """The paper's Table 1 for n positions of width d: a row a layer type.

    "Attention Is All You Need", section 4. Self-attention n² d, 1, 1; recurrent n d², n, n; convolutional
    k n d², 1, log_k n; self-attention restricted to r neighbours r n d, 1, n / r. k is the kernel's
    width. Path lengths are rounded up.

    >>> table_1(10, 512)["self-attention"]
    LayerCost(operations=51200, sequential=1, path=1)
    """
    path = next(steps for steps in itertools.count(1) if k**steps >= n)  # math.log(243, 3) is above 5
    return {
        "self-attention": LayerCost(n * n * d, 1, 1),
        "recurrent": LayerCost(n * d * d, n, n),
        "convolutional": LayerCost(k * n * d * d, 1, path),
        "restricted self-attention": LayerCost(min(r, n) * n * d, 1, -(-n // r)),
    }


class BlockMultiplications(NamedTuple):
    """Multiplications in one forward of an encoder block, by where they happen."""

    projections: int  # x W_Q, x W_K, x W_V, heads W_O: 4 n d²
    scores: int  # q kᵀ over all heads: n² d
    mixing: int  # weights v over all heads: n² d
    feed_forward: int  # x W_1 and hidden W_2: 2 n d d_ff

    @property
    def total(self) -> int:
        """Of one forward. With the additions twice as many FLOPs; a backward costs twice a forward."""
        return sum(self)


def encoder_block_multiplications(n: Length, config: TransformerConfig) -> BlockMultiplications:
    """Multiplications in the matrix products of one encoder block's forward, for n positions.

    >>> encoder_block_multiplications(10, TransformerConfig()).scores
    51200
    """
    d, f = config.d_model, config.d_ff
    return BlockMultiplications(4 * n * d * d, n * n * d, n * n * d, 2 * n * d * f)


def score_cells(n: Length, n_heads: Count = 1) -> int:
    """Cells in the score matrices of n positions, one n × n matrix a head.

    >>> score_cells(10)
    100
    """
    return n_heads * n**2


class ParameterCount(NamedTuple):
    """Numbers that a model trains, by where they live."""

    embedding: int  # one matrix for both embeddings and the logits
    encoder: int
    decoder: int
    positions: int  # two learned tables, or none

    @property
    def total(self) -> int:
        return sum(self)


def parameter_count(config: TransformerConfig, vocab_size: Count) -> ParameterCount:
    """How many numbers `init_transformer(vocab_size, config, …)` makes.

    The paper's base model with its shared vocabulary of about 37,000 tokens comes to 63.0 million; its
    Table 3 says 65. The vocabulary's exact size, biases in the attention and what counts as a parameter are
    left open there.

    >>> round(parameter_count(TransformerConfig(), 37000).total / 1e6, 1)
    63.0
    """
    d, f, n_layers = config.d_model, config.d_ff, config.n_layers
    attention = 4 * d * d + 4 * d * config.attention_bias
    ffn, norm = 2 * d * f + f + d, 2 * d
    final_norm = norm * (config.norm == "pre")
    return ParameterCount(
        vocab_size * d,
        n_layers * (attention + ffn + 2 * norm) + final_norm,
        n_layers * (2 * attention + ffn + 3 * norm) + final_norm,
        2 * config.max_length * d * (config.positions == "learned"),
    )


def training_bytes(
    config: TransformerConfig, vocab_size: Count, *, dtype: DType = np.float32
) -> dict[str, int]:
    """Bytes that hold the model while it trains: parameters, gradients, and Adam's two running means.

    >>> training_bytes(TransformerConfig(), 37000)["adam"] // 10**6
    504
    """
    one = np.dtype(dtype).itemsize * parameter_count(config, vocab_size).total
    return {"parameters": one, "gradients": one, "adam": 2 * one}


def encoder_block_cache_bytes(
    B: Length, T: Length, config: TransformerConfig, *, dtype: DType = np.float32
) -> int:
    """Bytes that the backward of a post-norm encoder block has to find, without dropout.

    Eight (B, T, d_model): the input, Q, K, V, the merged heads, both x̂ and the FFN's input; the hidden
    layer (B, T, d_ff), three times over with GELU (z, Φ and the product); the weights (B, h, T, T); two
    roots (B, T).

    >>> encoder_block_cache_bytes(8, 128, TransformerConfig()) // 2**20
    28
    """
    hidden = config.d_ff * (1 if config.activation == "relu" else 3)
    row = 8 * config.d_model + hidden + config.n_heads * T + 2
    return np.dtype(dtype).itemsize * B * T * row


def causal_block_multiplications(n: Length, config: CausalLMConfig) -> BlockMultiplications:
    """Multiplications in the matrix products of one causal block's forward, for n positions.

    With d_kv = n_kv_heads d_k: projections 2 n d² + 2 n d d_kv; scores and mixing n² d each, for every query
    head has its own; the gated network 3 n d d_ff.

    >>> causal_block_multiplications(10, CausalLMConfig()).feed_forward
    6635520
    """
    d, f = config.d_model, config.d_ff
    return BlockMultiplications(2 * n * d * (d + _d_kv(config)), n * n * d, n * n * d, 3 * n * d * f)


class CausalParameterCount(NamedTuple):
    """Numbers that a causal model trains, by where they live."""

    embedding: int
    attention: int  # of all blocks
    feed_forward: int
    norms: int
    head: int  # 0 where it is the embedding's

    @property
    def total(self) -> int:
        return sum(self)


def causal_parameter_count(config: CausalLMConfig, vocab_size: Count) -> CausalParameterCount:
    """How many numbers `init_causal_lm(vocab_size, config, …)` makes.

    >>> causal_parameter_count(CausalLMConfig(), 32000).total
    15191712
    """
    d, f, n_layers, embedding = config.d_model, config.d_ff, config.n_layers, vocab_size * config.d_model
    attention, norms = 2 * d * (d + _d_kv(config)), (2 * n_layers + 1) * d
    return CausalParameterCount(
        embedding, n_layers * attention, n_layers * 3 * d * f, norms, 0 if config.tied else embedding
    )


def kept_bytes(config: CausalLMConfig, *, dtype: DType = np.float32) -> int:
    """Bytes that writing keeps for each token: a key and a value in every block, 2 n_layers d_kv numbers.

    >>> kept_bytes(CausalLMConfig()), kept_bytes(CausalLMConfig(n_kv_heads=1))
    (13824, 2304)
    """
    return np.dtype(dtype).itemsize * 2 * config.n_layers * _d_kv(config)


def _d_kv(config: CausalLMConfig) -> int:
    return config.d_model // config.n_heads * config.n_kv_heads
