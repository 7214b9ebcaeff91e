"""Generation with a KV cache: comparison with generation without one, sampled tokens, edge cases."""

import numpy as np
import pytest

import npformer as npf
from npformer import CausalLMConfig, causal_lm_forward, generate, init_causal_lm
from npformer.modern.generation import empty_cache, next_logits, sample_ids

CONFIG = CausalLMConfig(d_model=8, d_ff=5, n_heads=4, n_kv_heads=2, n_layers=2, eps=0.1, max_length=40)
KEY_HEADS = pytest.mark.parametrize(
    "config", [CONFIG._replace(n_kv_heads=n) for n in (1, 2, 4)], ids=lambda config: f"kv{config.n_kv_heads}"
)


def drawn(config, vocab_size=11):
    """Return random parameters whose last gammas have both signs, so the model seldom repeats a token."""
    rng = np.random.default_rng(0)
    params = init_causal_lm(vocab_size, config, rng)
    params = npf.tree_map(lambda a: a + 0.3 * rng.normal(size=a.shape), params)
    return params._replace(norm=npf.RMSNormParams(2 * rng.normal(size=config.d_model)))


def generate_without_cache(ids, params, config, n, choose_id):
    """Generate `n` tokens, and run the whole model on all tokens again for each new token."""
    for _ in range(n):
        logits, _ = causal_lm_forward(ids, params, config)
        ids = np.concatenate([ids, choose_id(logits[..., -1, :])[..., None]], axis=-1)
    return ids


# --- equal to generation without a KV cache ---------------------------------------------------------


@KEY_HEADS
@pytest.mark.parametrize("pieces", [[6, 1, 1, 1], [1] * 9, [2, 3, 4], [9]], ids=str)
@pytest.mark.parametrize("leading", [(), (2, 3)])
def test_next_logits_equals_causal_lm_forward(rng, config, pieces, leading):
    params, ids = drawn(config), rng.integers(11, size=(*leading, 9))
    expected, _ = causal_lm_forward(ids, params, config)
    kv_cache = [empty_cache(block.attention, ids, config) for block in params.blocks]
    t = 0
    for n in pieces:
        logits, kv_cache = next_logits(ids[..., t : t + n], kv_cache, params, config)
        t += n
        np.testing.assert_allclose(logits, expected[..., t - 1, :], rtol=0, atol=1e-12)
    assert kv_cache[0].length == 9 and kv_cache[0].keys.shape[-3] == config.n_kv_heads


@KEY_HEADS
@pytest.mark.parametrize("has_biases", [False, True])
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(0, None, None), (0.8, None, None), (0.8, 3, None), (0.8, 4, 0.9)]
)
def test_generate_equals_generation_without_kv_cache(rng, config, has_biases, temperature, top_k, top_p):
    """Test models with and without biases: `init_causal_lm` makes none, but loaded models may have them."""
    params, ids, d_kv = drawn(config), rng.integers(11, size=(3, 4)), 2 * config.n_kv_heads
    if has_biases:
        biases = {f"b_{x}": rng.normal(size=8 if x in "QO" else d_kv) / 4 for x in "QKVO"}
        blocks = tuple(b._replace(attention=b.attention._replace(**biases)) for b in params.blocks)
        params = params._replace(blocks=blocks)
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    first, again = np.random.default_rng(5), np.random.default_rng(5)
    found = generate(ids, params, config, max_new_tokens=20, rng=first, **options)

    def choose(logits):
        return sample_ids(logits, temperature, top_k, top_p, again)

    assert (found == generate_without_cache(ids, params, config, 20, choose)).all()
    assert len(np.unique(found[:, 4:])) >= 4


@KEY_HEADS
@pytest.mark.parametrize("padding_id", [0, 10])
def test_generate_treats_padded_prompts_independently(config, padding_id):
    params, lengths = drawn(config), (5, 3, 1, 5)
    ids = np.full((4, 6), padding_id)
    for row, n in zip(ids, lengths, strict=True):
        row[:n] = np.random.default_rng(n).integers(1, 10, size=n)
    found = generate(ids, params, config, max_new_tokens=7, temperature=0, padding_id=padding_id)
    assert found.shape == (4, 13)
    for row, found_row, n in zip(ids, found, lengths, strict=True):
        alone = generate(row[:n], params, config, max_new_tokens=7, temperature=0)
        assert (found_row[: n + 7] == alone).all() and (found_row[n + 7 :] == padding_id).all()


# --- the sampled tokens -----------------------------------------------------------------------------


def test_choose_draws_with_given_probabilities(rng):
    logits = np.log([0.5, 0.1, 0.3, 0.1])
    many = np.broadcast_to(logits, (4, 5_000, 4))
    squared = np.array([0.25, 0.01, 0.09, 0.01])
    for (temperature, top_k, top_p), expected in {
        (1.0, None, None): [0.5, 0.1, 0.3, 0.1],
        (0.5, None, None): squared / squared.sum(),
        (1.0, 2, None): [0.625, 0, 0.375, 0],
        (1.0, None, 0.75): [0.625, 0, 0.375, 0],
        (1.0, None, 0.85): [0.5, 0.1, 0.3, 0.1],  # top_p keeps both tokens of probability 0.1
        (1.0, 2, 0.6): [1, 0, 0, 0],  # after top_k, the first token has probability 0.625
        (1.0, 99, 1.0): [0.5, 0.1, 0.3, 0.1],
    }.items():
        shares = np.bincount(sample_ids(many, temperature, top_k, top_p, rng).ravel(), minlength=4) / 20_000
        np.testing.assert_allclose(shares, expected, atol=0.02 * (max(expected) < 1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e-3, 100.0])
@pytest.mark.parametrize("tiny", [1e-50, 5e-324])
def test_choose_with_tiny_temperature_or_share_is_greedy(tiny, size, dtype, rng):
    logits = (rng.normal(size=(5, 11)) * size).astype(dtype)
    with np.errstate(all="ignore"):
        for temperature, top_k, top_p in ((tiny, None, None), (1.0, None, tiny), (1.0, 3, tiny)):
            assert (sample_ids(logits, temperature, top_k, top_p, rng) == logits.argmax(axis=-1)).all()


# --- the edges --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [(4, 4), (4, 2)], ids=str)
def test_generate_repeats_stop_id_after_stop(lengths):
    params = drawn(CONFIG)
    ids = np.array([[3, 1, 4, 1], [2, 7, 1, 8]])
    ids[1, lengths[1] :] = 0
    settings = {"max_new_tokens": 12, "temperature": 0, "padding_id": 0}
    without_stop = generate(ids, params, CONFIG, **settings)
    for row, n in enumerate(lengths):
        stop_id = int(without_stop[row, n + 2])
        stopped = generate(ids, params, CONFIG, stop_id=stop_id, **settings)
        for found, expected, m in zip(stopped, without_stop, lengths, strict=True):
            new = list(expected[m : m + 12])
            end = new.index(stop_id) + 1 if stop_id in new else 12
            assert list(found[m : m + 12]) == new[:end] + [stop_id] * (12 - end)
            assert (found[m + 12 :] == 0).all() and (found[:m] == expected[:m]).all()


def test_generate_stops_when_every_row_has_stopped(monkeypatch):
    params, ids, calls = drawn(CONFIG), np.array([[3, 1, 4, 1]]), []
    stop_id = int(generate(ids, params, CONFIG, max_new_tokens=1, temperature=0)[0, -1])

    def counting_next_logits(*args):
        calls.append(args)
        return next_logits(*args)

    monkeypatch.setattr("npformer.modern.generation.next_logits", counting_next_logits)
    found = generate(ids, params, CONFIG, max_new_tokens=30, temperature=0, stop_id=stop_id)
    assert len(calls) == 1 and found.shape == (1, 34) and (found[0, 4:] == stop_id).all()


def test_generate_accepts_float32_and_small_integers(rng):
    config = CONFIG._replace(max_length=400)
    params = npf.tree_map(lambda a: a.astype(np.float32), drawn(config, 300))
    ids, options, found = rng.integers(11, size=(2, 3)), {"max_new_tokens": 100, "temperature": 5.0}, []
    for kind in (np.int64, np.uint8, np.int8, np.uint64):
        found.append(npf.generate(ids.astype(kind), params, config, rng=np.random.default_rng(0), **options))
        assert found[-1].dtype == np.int64 and (found[-1] == found[0]).all()
    assert found[0].max() > 255
    kv_cache = [empty_cache(block.attention, ids, CONFIG) for block in params.blocks]
    logits, kv_cache = next_logits(ids, kv_cache, params, CONFIG)
    assert logits.dtype == kv_cache[0].keys.dtype == np.float32


@pytest.mark.parametrize("padding_id", [None, 0])
def test_generate_without_rows_or_new_tokens(padding_id):
    params, options = drawn(CONFIG), {"temperature": 0, "padding_id": padding_id}
    assert generate(np.zeros((0, 3), int), params, CONFIG, max_new_tokens=2, **options).shape == (0, 5)
    ids = np.array([[3, 1]])
    assert (generate(ids, params, CONFIG, max_new_tokens=0, **options) == ids).all()
