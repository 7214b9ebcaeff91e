"""Tests of order sensitivity, token similarity and dead units with functions whose results are known."""

import numpy as np
import pytest

import npformer as npf

CONFIG = npf.TransformerConfig(d_model=8, d_ff=16, n_heads=2, n_layers=2)
PARAMS = npf.init_encoder(CONFIG, np.random.default_rng(0))


def encode_without_positions(x):
    return npf.encoder_forward(x, PARAMS, CONFIG)[0]


def encode_with_positions(x):
    return npf.encoder_forward(x + npf.positional_encoding(5, 8), PARAMS, CONFIG)[0]


def encode_with_causal_mask(x):
    return npf.encoder_forward(x, PARAMS, CONFIG, mask=npf.causal_mask(5))[0]


def sum_up_positions(x):
    return np.cumsum(x, axis=-2)


def test_order_sensitivity_without_positions_is_zero(rng):
    assert npf.order_sensitivity(encode_without_positions, rng.normal(size=(2, 5, 8)), rng) < 1e-12


@pytest.mark.parametrize("f", [encode_with_positions, encode_with_causal_mask, sum_up_positions])
def test_order_sensitivity_detects_a_dependence_on_order(f, rng):
    assert npf.order_sensitivity(f, rng.normal(size=(2, 5, 8)), rng) > 0.05


def test_order_sensitivity_always_swaps_two_tokens(rng):
    """Of the two permutations of two tokens, the identity must not be used, because it changes nothing."""
    sensitivities = [npf.order_sensitivity(sum_up_positions, np.eye(2), rng) for _ in range(30)]
    assert min(sensitivities) > 0


def test_order_sensitivity_of_zeros_is_zero(rng):
    assert npf.order_sensitivity(np.zeros_like, np.eye(3), rng) == 0


def test_token_similarity_is_the_cosine_of_the_angle():
    angles = np.radians([0, 60, 90, 180])
    x = np.stack([np.cos(angles), np.sin(angles)], axis=-1) * [[1], [5], [0.1], [2]]
    expected = np.cos(angles[:, None] - angles)
    np.testing.assert_allclose(npf.token_similarity(np.stack([x, x]))[1], expected, atol=1e-15)
    x[2] = 0
    assert not npf.token_similarity(x)[2].any()


def test_dead_units_are_zero_for_every_token(rng):
    params = npf.init_ffn(4, 6, rng)
    params = params._replace(b_1=np.array([0.0, -100, 0, 0, -100, 0]))
    _, cache = npf.ffn_forward(rng.normal(size=(2, 20, 4)), params)
    assert np.flatnonzero(npf.dead_units(cache.hidden)).tolist() == [1, 4]
