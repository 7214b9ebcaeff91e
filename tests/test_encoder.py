"""The encoder: what is promised, and what happens at its edges."""

import numpy as np
import pytest
from golden import agrees_with_pytorch
from together import together

from npformer import (
    TransformerConfig,
    causal_mask,
    encoder_backward,
    encoder_block_backward,
    encoder_block_forward,
    encoder_forward,
    ffn_forward,
    gradcheck,
    init_encoder,
    init_encoder_block,
    layer_norm_forward,
    leaves,
    multi_head_attention_forward,
    padding_mask,
    positional_encoding,
    tree_map,
)


def small(**options):
    return TransformerConfig(
        **{"d_model": 4, "d_ff": 6, "n_heads": 2, "n_layers": 2, "dropout": 0.0} | options
    )


def shaken(params, rng):
    """No parameter at the 0 or 1 that it starts from."""
    return tree_map(lambda a: a + 0.3 * rng.normal(size=a.shape), params)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


# --- the equation, by hand --------------------------------------------------------------------------


@together("activation", ["relu", "gelu", "gelu_tanh"])
def test_the_block_is_its_parts_in_the_papers_order(rng, activation):
    config = small(activation=activation)
    p, x = shaken(init_encoder_block(config, rng), rng), rng.normal(size=(2, 3, 4))
    attended = multi_head_attention_forward(x, x, x, p.attention, n_heads=2)[0]
    h = layer_norm_forward(x + attended, p.norm_1)[0]
    expected = layer_norm_forward(h + ffn_forward(h, p.ffn, activation=activation)[0], p.norm_2)[0]
    np.testing.assert_allclose(encoder_block_forward(x, p, config)[0], expected, rtol=0, atol=1e-14)


def test_pre_norm_normalizes_what_enters_and_not_what_goes_past(rng):
    config = small(norm="pre", eps=1e-3)
    p, x = shaken(init_encoder_block(config, rng), rng), rng.normal(size=(2, 3, 4))
    normed = layer_norm_forward(x, p.norm_1, eps=1e-3)[0]
    h = x + multi_head_attention_forward(normed, normed, normed, p.attention, n_heads=2)[0]
    expected = h + ffn_forward(layer_norm_forward(h, p.norm_2, eps=1e-3)[0], p.ffn)[0]
    np.testing.assert_allclose(encoder_block_forward(x, p, config)[0], expected, rtol=0, atol=1e-14)


@together("norm", ["pre", "post"])
def test_the_stack_is_its_blocks_and_pre_norm_ends_with_a_norm(rng, norm):
    config = small(norm=norm, n_layers=3)
    params, x = shaken(init_encoder(config, rng), rng), rng.normal(size=(3, 4))
    assert len(params.blocks) == 3 and (params.norm is None) == (norm == "post")
    y = x
    for block in params.blocks:
        y, _ = encoder_block_forward(y, block, config)
    y = y if norm == "post" else layer_norm_forward(y, params.norm)[0]
    assert (encoder_forward(x, params, config)[0] == y).all()
    none = config._replace(n_layers=0)
    assert encoder_forward(x, params._replace(blocks=()), none)[0].shape == x.shape


def test_the_defaults_are_the_papers_base_model():
    config = TransformerConfig()
    assert config[:5] == (512, 2048, 8, 6, "relu") and (config.norm, config.dropout) == ("post", 0.1)


def permutation_error(f, x, rng):
    order = rng.permutation(x.shape[-2])
    return abs(f(x[..., order, :]) - f(x)[..., order, :]).max()


@together("norm", ["pre", "post"])
def test_without_positions_the_encoder_sees_a_bag_of_words(rng, norm):
    config = small(d_model=8, d_ff=16, norm=norm, n_layers=4)
    params, x = shaken(init_encoder(config, rng), rng), rng.normal(size=(2, 7, 8))

    def bag(x):
        return encoder_forward(x, params, config)[0]

    def ordered(x):
        return bag(x + positional_encoding(7, 8))

    def causal(x):
        return encoder_forward(x, params, config, mask=causal_mask(7))[0]

    def turned(x):
        return encoder_forward(x, params, config._replace(positions="rope"))[0]

    def sloped(x):
        return encoder_forward(x, params, config._replace(positions="alibi"))[0]

    assert permutation_error(bag, x, rng) < 1e-12
    for f in (ordered, causal, turned, sloped):
        assert permutation_error(f, x, rng) > 1e-2


# --- the gradient -----------------------------------------------------------------------------------


@together(
    ("positions", "norm", "activation", "attention_bias"),
    [
        ("sinusoidal", "post", "relu", True),
        ("sinusoidal", "pre", "gelu", False),
        ("rope", "post", "gelu", True),
        ("rope", "pre", "relu", False),
        ("alibi", "post", "relu", False),
        ("alibi", "pre", "gelu", True),
    ],
)
def test_gradients_at_every_parameter(rng, positions, norm, activation, attention_bias):
    """Of any two options every two choices meet; every entry of one stack, the others along directions."""
    config = small(norm=norm, activation=activation, attention_bias=attention_bias, positions=positions)
    whole = (positions, norm) == ("rope", "post")
    config = config._replace(n_layers=2 if positions == "sinusoidal" else 1, d_ff=3)
    params, x = shaken(init_encoder(config, rng), rng), rng.normal(size=(2, 2, 4))
    directions = None if whole else 1
    report = gradcheck(encoder_forward, encoder_backward, x, params, config, directions=directions)
    assert report, report
    assert len(report.rows) == 1 + len(list(leaves(params)))


@together(
    ("leading", "sizes"),
    [
        ((), {"d_ff": 1}),
        ((1,), {"n_heads": 1}),
        ((2, 2), {"n_heads": 4}),
        ((2, 1), {"d_model": 6, "n_heads": 3}),
    ],
)
def test_gradients_of_a_block_of_any_size(rng, leading, sizes):
    config = small(attention_bias=True, **sizes)
    params, x = shaken(init_encoder_block(config, rng), rng), rng.normal(size=(*leading, 2, config.d_model))
    report = gradcheck(encoder_block_forward, encoder_block_backward, x, params, config, directions=3)
    assert report, report


@together("norm", ["pre", "post"])
def test_gradients_with_masks_and_dropout(rng, norm):
    config = small(norm=norm, dropout=0.4, n_layers=1)
    params, x = shaken(init_encoder(config, rng), rng), rng.normal(size=(2, 3, 4))
    mask = padding_mask(np.array([[1, 1, 0], [1, 1, 1]]), 0) & causal_mask(3)

    def forward(x, params):
        return encoder_forward(x, params, config, mask=mask, rng=np.random.default_rng(5))

    report = gradcheck(forward, encoder_backward, x, params, directions=1)
    assert report, report


# --- the golden value -------------------------------------------------------------------------------


test_golden_values = agrees_with_pytorch("block", "stack")


# --- the edges --------------------------------------------------------------------------------------


@together("attention_bias", [True, False])
def test_any_of_the_biases_may_be_absent_as_in_published_models_whose_keys_have_none(rng, attention_bias):
    p = init_encoder_block(small(attention_bias=True), rng)
    p = p._replace(attention=p.attention._replace(b_K=None))
    y, cache = encoder_block_forward(np.ones((3, 4)), p, small(attention_bias=attention_bias))
    _, grads = encoder_block_backward(y, cache)
    assert grads.attention.b_K is None and grads.attention.b_Q.shape == (4,)


def test_a_block_has_no_use_for_the_number_of_layers(rng):
    p = init_encoder_block(small(), rng)
    y, _ = encoder_block_forward(np.ones((3, 4)), p, small(n_layers=7, max_length=2))
    assert np.isfinite(y).all()


@together("norm", ["pre", "post"])
def test_dropout_is_on_each_sub_layers_output_and_only_with_an_rng(rng, norm):
    config = small(norm=norm, dropout=0.5)
    params, x = shaken(init_encoder_block(config, rng), rng), rng.normal(size=(40, 5, 4))
    still, _ = encoder_block_forward(x, params, config)
    assert (encoder_block_forward(x, params, config._replace(dropout=0.0), rng=rng)[0] == still).all()
    y, cache = encoder_block_forward(x, params, config, rng=np.random.default_rng(3))
    for dropped in (cache.residual_1.dropout, cache.residual_2.dropout):
        assert dropped.keep.shape == x.shape and abs(dropped.keep.mean() - 0.5) < 0.06
    assert (cache.residual_1.dropout.keep != cache.residual_2.dropout.keep).any()
    assert (encoder_block_forward(x, params, config, rng=np.random.default_rng(3))[0] == y).all()


@together("dtype", [np.float32, np.float64])
def test_every_parameter_has_the_dtype_that_was_asked_for(rng, dtype):
    config = small(norm="pre", attention_bias=True)
    for params in (init_encoder(config, rng, dtype=dtype), init_encoder_block(config, rng, dtype=dtype)):
        assert {array.dtype for _, array in leaves(params)} == {np.dtype(dtype)}
    assert {array.dtype for _, array in leaves(init_encoder(config, rng))} == {np.dtype(np.float64)}


@together("positions", ["sinusoidal", "rope", "alibi"])
def test_a_block_of_float32_keeps_no_float64(positions):
    config = TransformerConfig(d_model=8, d_ff=12, n_heads=2, positions=positions)
    params = init_encoder_block(config, np.random.default_rng(0), dtype=np.float32)
    _, cache = encoder_block_forward(np.ones((3, 8), np.float32), params, config)
    kept = [array for _, array in leaves(cache.attention) if isinstance(array, np.ndarray)]
    assert {array.dtype for array in kept} == {np.dtype(np.float32)}
