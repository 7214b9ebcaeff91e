"""Slips that are easy to make in the modern parts, planted one by one: their tests notice them."""

import numpy as np
import pytest
from together import together

import npformer as npf
from npformer import attention_backward, attention_forward, decoding, gradcheck, rope_backward, rope_forward
from npformer.modern import generation, tiled_attention
from npformer.modern.generation import next_logits, no_keys

CONFIG = npf.CausalLMConfig(d_model=8, d_ff=5, n_heads=4, n_kv_heads=2, n_layers=2, max_length=40)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def drawn(rng):
    return npf.tree_map(lambda a: a + 0.3 * rng.normal(size=a.shape), npf.init_causal_lm(11, CONFIG, rng))


def turning(on_values):
    """Attention to turned keys, forward and backward; with on_values the backward turns dv back as well."""

    def forward(q, k, v):
        (q, turn), (k, _) = rope_forward(q), rope_forward(k)
        y, cache = attention_forward(q, k, v)
        return y, (turn, cache)

    def backward(dy, cache):
        turn, attention = cache
        dq, dk, dv = attention_backward(dy, attention)
        return rope_backward(dq, turn), rope_backward(dk, turn), rope_backward(dv, turn) if on_values else dv

    return forward, backward


@together("on_values", [False, True])
def test_gradcheck_sees_rope_on_values_in_a_backward_pass_and_where(rng, on_values):
    report = gradcheck(*turning(on_values), *rng.normal(size=(3, 2, 5, 6)))
    assert bool(report) is not on_values
    assert [row.verdict == "pass" for row in report.rows] == [True, True, not on_values]


def greedy_logits(ids, params, pieces):
    """The last logits when the ids come in pieces of these lengths, with their keys kept."""
    kept, t = [no_keys(block.attention, ids, CONFIG) for block in params.blocks], 0
    for n in pieces:
        logits, kept = next_logits(ids[..., t : t + n], kept, params, CONFIG)
        t += n
    return logits


def is_the_whole_models(rng):
    """What test_generation asks: kept keys give the same logits as everything computed anew."""
    params, ids = drawn(rng), rng.integers(11, size=(3, 9))
    whole, _ = npf.causal_lm_forward(ids, params, CONFIG)
    return np.abs(greedy_logits(ids, params, [4, 3, 2]) - whole[:, -1]).max() < 1e-12


@together("offset", [0, 1, -1])
def test_kept_keys_behind_a_mask_that_is_off_by_one_are_noticed(rng, monkeypatch, offset):
    def mask(T_q, T_k, *, xp):
        return np.arange(T_k) <= np.arange(T_q)[:, None] + T_k - T_q + offset

    monkeypatch.setattr(generation, "causal_mask", mask)
    assert is_the_whole_models(rng) == (offset == 0)


def test_kept_keys_and_values_that_are_turned_alike_are_noticed(rng, monkeypatch):
    keep, config = decoding.keep, CONFIG

    def keep_turned(kept, key, value):
        positions = np.arange(kept.length, kept.length + value.shape[-2])
        return keep(kept, key, rope_forward(value, positions=positions, base=config.base)[0])

    assert is_the_whole_models(rng)
    monkeypatch.setattr(decoding, "keep", keep_turned)
    assert not is_the_whole_models(rng)


@together("offset", [0, 1, -1])
def test_gradcheck_sees_a_backward_pass_in_tiles_whose_mask_is_off_by_one(rng, monkeypatch, offset):
    scores = tiled_attention._scores

    def backward(dy, cache):
        def moved(scaled, k, rows, columns, causal):
            tile = scores(scaled, k, rows, columns, False)
            i, j = np.arange(rows.start, rows.stop)[:, None], np.arange(columns.start, columns.stop)
            return np.where(j <= i + offset, tile, -np.inf)

        with monkeypatch.context() as bent:
            bent.setattr(tiled_attention, "_scores", moved)
            return npf.tiled_attention_backward(dy, cache)

    def forward(q, k, v):
        return npf.tiled_attention_forward(q, k, v, causal=True, tile=2)

    assert bool(gradcheck(forward, backward, *rng.normal(size=(3, 2, 5, 4)))) is (offset == 0)
