import numpy as np

import npformer as npf


def test_order_sensitivity_tells_a_bag_from_a_sequence(rng):
    config = npf.TransformerConfig(d_model=8, d_ff=16, n_heads=2, n_layers=2)
    params, x = npf.init_encoder(config, rng), rng.normal(size=(2, 5, 8))
    assert npf.order_sensitivity(lambda x: npf.encoder_forward(x, params, config)[0], x, rng) < 1e-12
    for f in (
        lambda x: npf.encoder_forward(x + npf.positional_encoding(5, 8), params, config)[0],
        lambda x: npf.encoder_forward(x, params, config, mask=npf.causal_mask(5))[0],
        lambda x: np.cumsum(x, axis=-2),
    ):
        assert npf.order_sensitivity(f, x, rng) > 0.05


def test_two_tokens_are_always_swapped_and_zeros_are_not_sensitive(rng):
    """Half of all shuffles of two change nothing; none of these may prove that order does not matter."""
    assert all(npf.order_sensitivity(lambda x: np.cumsum(x, axis=-2), np.eye(2), rng) > 0 for _ in range(30))
    assert npf.order_sensitivity(np.zeros_like, np.eye(3), rng) == 0


def test_token_similarity_is_the_cosine_of_the_angle(rng):
    angles = np.radians([0, 60, 90, 180])
    x = np.stack([np.cos(angles), np.sin(angles)], axis=-1) * [[1], [5], [0.1], [2]]
    expected = np.cos(angles[:, None] - angles)
    np.testing.assert_allclose(npf.token_similarity(np.stack([x, x]))[1], expected, atol=1e-15)
    x[2] = 0
    assert not npf.token_similarity(x)[2].any()


def test_dead_units_are_those_that_no_token_wakes(rng):
    params = npf.init_ffn(4, 6, rng)
    params = params._replace(b_1=np.array([0.0, -100, 0, 0, -100, 0]))
    _, cache = npf.ffn_forward(rng.normal(size=(2, 20, 4)), params)
    assert np.flatnonzero(npf.dead_units(cache.hidden)).tolist() == [1, 4]
