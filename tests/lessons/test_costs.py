import math

import numpy as np
import pytest
from valid_calls import arrays_in

import npformer as npf
from npformer import TransformerConfig, init_encoder_block, leaves, table_1
from npformer.modern.causal_lm import causal_block_forward
from npformer.modern.generation import next_logits, no_keys


class Counting(np.ndarray):
    """An array that counts the multiplications of every matrix product it takes part in."""

    multiplications = 0

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        plain = [x.view(np.ndarray) if isinstance(x, Counting) else x for x in inputs]
        if "out" in kwargs:
            kwargs["out"] = tuple(x.view(np.ndarray) if isinstance(x, Counting) else x for x in kwargs["out"])
        result = getattr(ufunc, method)(*plain, **kwargs)
        if ufunc is np.matmul:
            Counting.multiplications += result.size * plain[0].shape[-1]
        return np.asarray(result).view(Counting)


def multiplied(function, *given):
    """(what it returns, how many numbers its matrix products multiplied)"""
    Counting.multiplications = 0
    return function(*given), Counting.multiplications


def test_the_multiplications_of_a_block_are_those_that_it_makes():
    for d_model, d_ff, n_heads, n in [(8, 12, 2, 5), (6, 7, 3, 1), (4, 32, 4, 9)]:
        config = TransformerConfig(d_model=d_model, d_ff=d_ff, n_heads=n_heads)
        params = init_encoder_block(config, np.random.default_rng(0))
        x = np.random.default_rng(1).normal(size=(n, d_model)).view(Counting)
        expected = npf.encoder_block_multiplications(n, config)
        (y, cache), forward = multiplied(npf.encoder_block_forward, x, params, config)
        assert forward == expected.total
        assert multiplied(npf.encoder_block_backward, y, cache)[1] == 2 * expected.total
        assert expected.scores == expected.mixing == n * n * d_model


def test_table_1_by_hand():
    table = table_1(10, 512, k=3, r=4)
    assert npf.score_cells(10) == 100 and npf.score_cells(10, 8) == 800
    assert list(table) == ["self-attention", "recurrent", "convolutional", "restricted self-attention"]
    assert table["self-attention"] == (10 * 10 * 512, 1, 1)
    assert table["recurrent"] == (10 * 512 * 512, 10, 10)
    assert table["convolutional"] == (3 * 10 * 512 * 512, 1, 3)  # 3² = 9 positions are not 10
    assert table["restricted self-attention"] == (4 * 10 * 512, 1, 3)
    assert table_1(10, 8, r=99)["restricted self-attention"] == table_1(10, 8)["self-attention"]
    for n in (1, 2, 3, 4, 9, 10, 27, 28, 243, 244, 59049, 59050):
        assert table_1(n, 8)["convolutional"].path == max(1, math.ceil(round(math.log(n, 3), 9)))


def size(tree):
    return sum(array.size for _, array in leaves(tree))


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("attention_bias", [True, False])
def test_the_parameters_are_those_that_init_makes(positions, norm, attention_bias):
    small = TransformerConfig(d_model=8, d_ff=12, n_heads=2, n_layers=3)
    config = small._replace(norm=norm, attention_bias=attention_bias, positions=positions)
    params = npf.init_transformer(17, config, np.random.default_rng(0))
    count, one = npf.parameter_count(config, 17), 8 * size(params)
    assert count == (size(params.embedding), size(params.encoder), size(params.decoder), size(params[3:]))
    assert count.total == size(params)
    held = npf.training_bytes(config, 17, dtype=np.float64)
    assert held == {"parameters": one, "gradients": one, "adam": 2 * one}


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_cache_holds_what_is_counted(activation, dtype):
    config = TransformerConfig(d_model=16, d_ff=24, n_heads=4, activation=activation)
    params = init_encoder_block(config, np.random.default_rng(0), dtype=dtype)
    _, cache = npf.encoder_block_forward(np.ones((2, 5, 16), dtype), params, config)
    own = {id(array) for _, array in leaves(params)}
    held = {}
    for array in arrays_in(cache):
        while isinstance(array.base, np.ndarray):
            array = array.base
        if id(array) not in own:
            held[id(array)] = array.nbytes
    assert sum(held.values()) == npf.encoder_block_cache_bytes(2, 5, config, dtype=dtype)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
def test_causal_parameters_and_multiplications_are_those_of_the_model(n_kv_heads, tied):
    config = npf.CausalLMConfig(d_model=8, d_ff=5, n_heads=4, n_kv_heads=n_kv_heads, n_layers=3, tied=tied)
    params = npf.init_causal_lm(11, config, np.random.default_rng(0))
    count = npf.causal_parameter_count(config, 11)
    sizes = {path: array.size for path, array in leaves(params)}
    for part, word in zip(count._fields, ("E", "attention", "ffn", "gamma", "head"), strict=True):
        assert getattr(count, part) == sum(n for path, n in sizes.items() if word in path)
    assert count.total == sum(sizes.values())
    _, made = multiplied(causal_block_forward, np.ones((6, 8)).view(Counting), params.blocks[0], config, None)
    assert made == npf.causal_block_multiplications(6, config).total


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kept_bytes_are_those_that_writing_keeps(dtype):
    config = npf.CausalLMConfig(d_model=8, d_ff=5, n_heads=4, n_kv_heads=2, n_layers=3)
    params, ids = npf.init_causal_lm(11, config, np.random.default_rng(0), dtype=dtype), np.ones((1, 16), int)
    kept = [no_keys(block.attention, ids, config) for block in params.blocks]
    _, kept = next_logits(ids, kept, params, config)
    stored = sum(block.keys.nbytes + block.values.nbytes for block in kept)
    assert stored == 16 * npf.kept_bytes(config, dtype=dtype)
