"""Compare the formulas for costs with counted multiplications and with the sizes of arrays in caches."""

import math

import numpy as np
import pytest
from valid_calls import arrays_in

import npformer as npf
from npformer import TransformerConfig, init_encoder_block, leaves, table_1
from npformer.modern.causal_lm import causal_block_forward
from npformer.modern.generation import empty_cache, next_logits


class Counting(np.ndarray):
    """An array that counts the multiplications of every matrix product that uses it."""

    multiplications = 0

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        plain = [x.view(np.ndarray) if isinstance(x, Counting) else x for x in inputs]
        if "out" in kwargs:
            kwargs["out"] = tuple(x.view(np.ndarray) if isinstance(x, Counting) else x for x in kwargs["out"])
        result = getattr(ufunc, method)(*plain, **kwargs)
        if ufunc is np.matmul:
            Counting.multiplications += result.size * plain[0].shape[-1]
        return np.asarray(result).view(Counting)


def count_multiplications(function, *args):
    """Return the result of a function, and the number of multiplications in its matrix products."""
    Counting.multiplications = 0
    return function(*args), Counting.multiplications


@pytest.mark.parametrize(("d_model", "d_ff", "n_heads", "n"), [(8, 12, 2, 5), (6, 7, 3, 1), (4, 32, 4, 9)])
def test_encoder_block_multiplications_are_made(d_model, d_ff, n_heads, n):
    config = TransformerConfig(d_model=d_model, d_ff=d_ff, n_heads=n_heads)
    params = init_encoder_block(config, np.random.default_rng(0))
    x = np.random.default_rng(1).normal(size=(n, d_model)).view(Counting)
    expected = npf.encoder_block_multiplications(n, config)
    (y, cache), forward_count = count_multiplications(npf.encoder_block_forward, x, params, config)
    _, backward_count = count_multiplications(npf.encoder_block_backward, y, cache)
    assert forward_count == expected.total
    assert backward_count == 2 * expected.total
    assert expected.scores == expected.mixing == n * n * d_model


def test_score_cells_counts_all_heads():
    assert npf.score_cells(10) == 100 and npf.score_cells(10, 8) == 800


def test_table_1_has_the_numbers_of_the_paper():
    table = table_1(10, 512, k=3, r=4)
    assert list(table) == ["self-attention", "recurrent", "convolutional", "restricted self-attention"]
    assert table["self-attention"] == (10 * 10 * 512, 1, 1)
    assert table["recurrent"] == (10 * 512 * 512, 10, 10)
    assert table["convolutional"] == (3 * 10 * 512 * 512, 1, 3)  # two layers reach only 3² = 9 positions
    assert table["restricted self-attention"] == (4 * 10 * 512, 1, 3)


def test_table_1_neighbourhood_may_be_the_whole_sentence():
    assert table_1(10, 8, r=99)["restricted self-attention"] == table_1(10, 8)["self-attention"]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 9, 10, 27, 28, 243, 244, 59049, 59050])
def test_table_1_path_is_the_logarithm_rounded_up(n):
    assert table_1(n, 8)["convolutional"].path == max(1, math.ceil(round(math.log(n, 3), 9)))


def size_of(tree):
    return sum(array.size for _, array in leaves(tree))


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("attention_bias", [True, False])
def test_parameter_count_counts_the_initialized_parameters(positions, norm, attention_bias):
    small = TransformerConfig(d_model=8, d_ff=12, n_heads=2, n_layers=3)
    config = small._replace(norm=norm, attention_bias=attention_bias, positions=positions)
    params = npf.init_transformer(17, config, np.random.default_rng(0))
    count = npf.parameter_count(config, 17)
    parts = (params.embedding, params.encoder, params.decoder, params[3:])
    assert count == tuple(size_of(part) for part in parts)
    assert count.total == size_of(params)
    n_bytes = 8 * size_of(params)
    expected = {"parameters": n_bytes, "gradients": n_bytes, "adam": 2 * n_bytes}
    assert npf.training_bytes(config, 17, dtype=np.float64) == expected


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_encoder_block_cache_bytes_counts_the_cache(activation, dtype):
    config = TransformerConfig(d_model=16, d_ff=24, n_heads=4, activation=activation)
    params = init_encoder_block(config, np.random.default_rng(0), dtype=dtype)
    _, cache = npf.encoder_block_forward(np.ones((2, 5, 16), dtype), params, config)
    parameter_ids = {id(array) for _, array in leaves(params)}
    bytes_of = {}
    for array in arrays_in(cache):
        while isinstance(array.base, np.ndarray):  # count the memory of views only once
            array = array.base
        if id(array) not in parameter_ids:
            bytes_of[id(array)] = array.nbytes
    assert sum(bytes_of.values()) == npf.encoder_block_cache_bytes(2, 5, config, dtype=dtype)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
def test_causal_counts_match_the_model(n_kv_heads, tied):
    config = npf.CausalLMConfig(d_model=8, d_ff=5, n_heads=4, n_kv_heads=n_kv_heads, n_layers=3, tied=tied)
    params = npf.init_causal_lm(11, config, np.random.default_rng(0))
    count = npf.causal_parameter_count(config, 11)
    sizes = {path: array.size for path, array in leaves(params)}
    for field, path_part in zip(count._fields, ("E", "attention", "ffn", "gamma", "head"), strict=True):
        assert getattr(count, field) == sum(size for path, size in sizes.items() if path_part in path)
    assert count.total == sum(sizes.values())
    x = np.ones((6, 8)).view(Counting)
    _, multiplications = count_multiplications(causal_block_forward, x, params.blocks[0], config, None)
    assert multiplications == npf.causal_block_multiplications(6, config).total


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kept_bytes_counts_the_kv_cache(dtype):
    config = npf.CausalLMConfig(d_model=8, d_ff=5, n_heads=4, n_kv_heads=2, n_layers=3)
    params = npf.init_causal_lm(11, config, np.random.default_rng(0), dtype=dtype)
    ids = np.ones((1, 16), int)
    caches = [empty_cache(block.attention, ids, config) for block in params.blocks]
    _, cache = next_logits(ids, caches, params, config)
    n_bytes = sum(block.keys.nbytes + block.values.nbytes for block in cache)
    assert n_bytes == 16 * npf.kept_bytes(config, dtype=dtype)
