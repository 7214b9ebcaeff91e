"""The cost of a layer and of a model: the paper's Table 1, parameters, multiplications and bytes."""

from typing import Annotated, NamedTuple

import numpy as np

from npformer.config import TransformerConfig
from npformer.modern.causal_lm import CausalLMConfig
from npformer.validation.annotations import Count, DType, Length, integer


class LayerCost(NamedTuple):
    """One row of the paper's Table 1."""

    operations: int  # the number of operations in one layer, without the constant factor of O(…)
    sequential: int  # the number of steps that must run one after the other
    path: int  # the length of the longest path between two positions


Kernel = Annotated[int, integer(">= 2", 2)]


def table_1(n: Count, d: Count, *, k: Kernel = 3, r: Count = 64) -> dict[str, LayerCost]:
    """The numbers of the paper's Table 1 for n positions of width d ("Attention Is All You Need", section 4).

    Operations, sequential operations and path length: self-attention n² d, 1, 1; recurrent n d², n, n;
    convolutional k n d², 1, log_k n; restricted self-attention r n d, 1, n / r. Path lengths are rounded up.

    Parameters
    ----------
    n : int
        The number of positions.
    d : int
        The width d_model.
    k : int
        The width of the convolution's kernel, at least 2.
    r : int
        The number of neighbours that restricted self-attention attends to.

    Returns
    -------
    table : dict of LayerCost
        The costs by layer type.

    Examples
    --------
    >>> table_1(10, 512)["self-attention"]
    LayerCost(operations=51200, sequential=1, path=1)
    """
    convolutional_path = 1
    while k**convolutional_path < n:  # not with math.log, because math.log(125, 5) is slightly above 3
        convolutional_path += 1
    return {
        "self-attention": LayerCost(n * n * d, 1, 1),
        "recurrent": LayerCost(n * d * d, n, n),
        "convolutional": LayerCost(k * n * d * d, 1, convolutional_path),
        "restricted self-attention": LayerCost(min(r, n) * n * d, 1, -(-n // r)),  # n / r is rounded up
    }


class BlockMultiplications(NamedTuple):
    """The number of multiplications in each part of one block's forward pass."""

    projections: int  # 4 n d², for x W_Q, x W_K, x W_V and heads W_O
    scores: int  # n² d, for q kᵀ in all heads
    mixing: int  # n² d, for weights v in all heads
    feed_forward: int  # 2 n d d_ff, for x W_1 and hidden W_2

    @property
    def total(self) -> int:
        """The multiplications of one forward pass. A backward pass needs twice as many.

        Each multiplication has an addition, so the number of FLOPs is twice this number.
        """
        return sum(self)


def encoder_block_multiplications(n: Length, config: TransformerConfig) -> BlockMultiplications:
    """Count the multiplications in the matrix products of one encoder block's forward pass.

    Projections 4 n d²; scores n² d; weighted sums of the values n² d; feed-forward 2 n d d_ff.

    Parameters
    ----------
    n : int
        The number of positions.
    config : TransformerConfig
        The sizes of the block.

    Returns
    -------
    multiplications : BlockMultiplications
        The counts by part; `multiplications.total` is their sum.

    Examples
    --------
    >>> encoder_block_multiplications(10, TransformerConfig()).scores
    51200
    """
    d, f = config.d_model, config.d_ff
    return BlockMultiplications(4 * n * d * d, n * n * d, n * n * d, 2 * n * d * f)


def score_cells(n: Length, n_heads: Count = 1) -> int:
    """Count the cells of the score matrices: n_heads n², one n × n matrix per head.

    Parameters
    ----------
    n : int
        The number of positions.
    n_heads : int
        The number of heads.

    Returns
    -------
    cells : int

    Examples
    --------
    >>> score_cells(10)
    100
    """
    return n_heads * n**2


class ParameterCount(NamedTuple):
    """The number of trained parameters of a model, by part."""

    embedding: int  # one matrix, which both embeddings and the logits share
    encoder: int
    decoder: int
    positions: int  # the two tables of learned positions; otherwise 0

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(self)


def parameter_count(config: TransformerConfig, vocab_size: Count) -> ParameterCount:
    """Count the parameters of `init_transformer(vocab_size, config, …)`.

    The paper's base model with its shared vocabulary of about 37,000 tokens has 63.0 million parameters;
    Table 3 of the paper says 65 million. The paper does not state the exact size of the vocabulary, whether
    the attention has biases, or which arrays are counted.

    Parameters
    ----------
    config : TransformerConfig
        The sizes of the model.
    vocab_size : int
        The number of tokens in the vocabulary.

    Returns
    -------
    count : ParameterCount
        The counts by part; `count.total` is their sum.

    Examples
    --------
    >>> round(parameter_count(TransformerConfig(), 37000).total / 1e6, 1)
    63.0
    """
    d, f, n_layers = config.d_model, config.d_ff, config.n_layers
    attention = 4 * d * d
    if config.attention_bias:
        attention += 4 * d
    ffn = 2 * d * f + f + d
    norm = 2 * d
    final_norm = norm if config.norm == "pre" else 0
    return ParameterCount(
        embedding=vocab_size * d,
        encoder=n_layers * (attention + ffn + 2 * norm) + final_norm,
        decoder=n_layers * (2 * attention + ffn + 3 * norm) + final_norm,
        positions=2 * config.max_length * d if config.positions == "learned" else 0,
    )


def training_bytes(
    config: TransformerConfig, vocab_size: Count, *, dtype: DType = np.float32
) -> dict[str, int]:
    """Count the bytes of the parameters, the gradients and Adam's two running means during training.

    The activations in the caches are not included; `encoder_block_cache_bytes` counts them for one block.

    Parameters
    ----------
    config : TransformerConfig
        The sizes of the model.
    vocab_size : int
        The number of tokens in the vocabulary.
    dtype : dtype
        The dtype of all arrays.

    Returns
    -------
    bytes : dict of int
        The bytes of the "parameters", the "gradients" and "adam".

    Examples
    --------
    >>> training_bytes(TransformerConfig(), 37000)["adam"] // 10**6
    504
    """
    parameter_bytes = np.dtype(dtype).itemsize * parameter_count(config, vocab_size).total
    return {"parameters": parameter_bytes, "gradients": parameter_bytes, "adam": 2 * parameter_bytes}


def encoder_block_cache_bytes(
    B: Length, T: Length, config: TransformerConfig, *, dtype: DType = np.float32
) -> int:
    """Count the bytes of the cache of a post-norm encoder block without dropout.

    The cache holds eight arrays (B, T, d_model): the input, Q, K, V, the merged heads, both x̂ and the input
    of the FFN. It also holds the hidden layer (B, T, d_ff), the attention weights (B, n_heads, T, T) and two
    standard deviations (B, T). With GELU the cache holds three hidden arrays: z, Φ(z) and z Φ(z).

    Parameters
    ----------
    B : int
        The batch size.
    T : int
        The number of positions.
    config : TransformerConfig
        The sizes of the block.
    dtype : dtype
        The dtype of all arrays.

    Returns
    -------
    bytes : int

    Examples
    --------
    >>> encoder_block_cache_bytes(8, 128, TransformerConfig()) // 2**20
    28
    """
    hidden_arrays = 1 if config.activation == "relu" else 3
    numbers_per_token = 8 * config.d_model + hidden_arrays * config.d_ff + config.n_heads * T + 2
    return np.dtype(dtype).itemsize * B * T * numbers_per_token


def causal_block_multiplications(n: Length, config: CausalLMConfig) -> BlockMultiplications:
    """Count the multiplications in the matrix products of one causal block's forward pass.

    With d_kv = n_kv_heads · d_k: projections 2 n d² + 2 n d d_kv; scores n² d; weighted sums of the values
    n² d; gated feed-forward 3 n d d_ff. Fewer KV heads do not reduce n² d, because every query head has its
    own attention weights.

    Parameters
    ----------
    n : int
        The number of positions.
    config : CausalLMConfig
        The sizes of the block.

    Returns
    -------
    multiplications : BlockMultiplications
        The counts by part; `multiplications.total` is their sum.

    Examples
    --------
    >>> causal_block_multiplications(10, CausalLMConfig()).feed_forward
    6635520
    """
    d, f = config.d_model, config.d_ff
    return BlockMultiplications(2 * n * d * (d + _d_kv(config)), n * n * d, n * n * d, 3 * n * d * f)


class CausalParameterCount(NamedTuple):
    """The number of trained parameters of a causal model, by part."""

    embedding: int
    attention: int  # in all blocks together
    feed_forward: int
    norms: int
    head: int  # the output matrix; 0 if the embedding matrix computes the logits (tied)

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(self)


def causal_parameter_count(config: CausalLMConfig, vocab_size: Count) -> CausalParameterCount:
    """Count the parameters of `init_causal_lm(vocab_size, config, …)`.

    Parameters
    ----------
    config : CausalLMConfig
        The sizes of the model.
    vocab_size : int
        The number of tokens in the vocabulary.

    Returns
    -------
    count : CausalParameterCount
        The counts by part; `count.total` is their sum.

    Examples
    --------
    >>> causal_parameter_count(CausalLMConfig(), 32000).total
    15191712
    """
    d, f, n_layers = config.d_model, config.d_ff, config.n_layers
    embedding = vocab_size * d
    return CausalParameterCount(
        embedding=embedding,
        attention=n_layers * 2 * d * (d + _d_kv(config)),
        feed_forward=n_layers * 3 * d * f,
        norms=(2 * n_layers + 1) * d,
        head=0 if config.tied else embedding,
    )


def kept_bytes(config: CausalLMConfig, *, dtype: DType = np.float32) -> int:
    """Count the bytes of the KV cache per token: a key and a value in every block, 2 n_layers d_kv numbers.

    Parameters
    ----------
    config : CausalLMConfig
        The sizes of the model.
    dtype : dtype
        The dtype of the cache.

    Returns
    -------
    bytes : int

    Examples
    --------
    >>> kept_bytes(CausalLMConfig()), kept_bytes(CausalLMConfig(n_kv_heads=1))
    (13824, 2304)
    """
    return np.dtype(dtype).itemsize * 2 * config.n_layers * _d_kv(config)


def _d_kv(config: CausalLMConfig) -> int:
    """Return the number of columns of K, the keys of all heads together."""
    return config.d_model // config.n_heads * config.n_kv_heads
