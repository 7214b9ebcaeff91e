"""The encoder: what is promised, and what happens at its edges."""

from functools import partial

import numpy as np
from golden import agrees_with_pytorch
from together import together
from valid_calls import array, drawn

import npformer as npf

small = partial(npf.TransformerConfig, d_model=4, d_ff=6, n_heads=2, n_layers=2, dropout=0.0, eps=1e-3)
NORMS = together("norm", ["pre", "post"])
X = array(2, 3, 4)


# --- the equation, by hand --------------------------------------------------------------------------


@together("activation", ["relu", "gelu", "gelu_tanh"])
@NORMS
def test_the_block_is_its_parts_in_the_papers_order(activation, norm):
    """Pre-norm normalizes what enters a part and not what goes past it."""
    config = small(activation=activation, norm=norm)
    p = drawn(npf.init_encoder_block, config)

    def attend(x):
        return npf.multi_head_attention_forward(x, x, x, p.attention, n_heads=2)[0]

    def feed(h):
        return npf.ffn_forward(h, p.ffn, activation=activation)[0]

    def normed(x, params):
        return npf.layer_norm_forward(x, params, eps=1e-3)[0]

    if norm == "post":
        h = normed(X + attend(X), p.norm_1)
        expected = normed(h + feed(h), p.norm_2)
    else:
        h = X + attend(normed(X, p.norm_1))
        expected = h + feed(normed(h, p.norm_2))
    np.testing.assert_allclose(npf.encoder_block_forward(X, p, config)[0], expected, rtol=0, atol=1e-14)


@NORMS
def test_the_stack_is_its_blocks_and_ends_with_a_norm_if_there_is_one(norm):
    config = small(norm=norm, n_layers=3)
    params = drawn(npf.init_encoder, config)
    assert len(params.blocks) == 3 and (params.norm is None) == (norm == "post")
    y = X
    for block in params.blocks:
        y, _ = npf.encoder_block_forward(y, block, config)
    assert (npf.encoder_forward(X, params._replace(norm=None), config)[0] == y).all()
    if norm == "pre":
        y, _ = npf.layer_norm_forward(y, params.norm, eps=1e-3)
        assert (npf.encoder_forward(X, params, config)[0] == y).all()
    nothing = params._replace(blocks=(), norm=None)
    assert (npf.encoder_forward(X, nothing, config._replace(n_layers=0))[0] == X).all()


def test_the_defaults_are_the_papers_base_model():
    config = npf.TransformerConfig()
    assert config[:5] == (512, 2048, 8, 6, "relu") and (config.norm, config.dropout) == ("post", 0.1)


@NORMS
def test_without_positions_the_encoder_sees_a_bag_of_words(norm):
    config, x, order = small(norm=norm, n_layers=4), array(2, 7, 4), np.array([3, 0, 6, 1, 5, 2, 4])
    params = drawn(npf.init_encoder, config)

    def order_matters(added=0.0, positions="none", mask=None):
        def f(x):
            return npf.encoder_forward(x + added, params, config._replace(positions=positions), mask=mask)[0]

        return abs(f(x[:, order]) - f(x)[:, order]).max()

    assert order_matters() < 1e-12
    ways = {"added": npf.positional_encoding(7, 4)}, {"mask": npf.causal_mask(7)}, {"positions": "rope"}
    for way in (*ways, {"positions": "alibi"}):
        assert order_matters(**way) > 1e-2


# --- the gradient -----------------------------------------------------------------------------------


@together(
    ("positions", "norm", "activation", "attention_bias", "directions"),
    [
        ("sinusoidal", "pre", "gelu", True, 1),
        ("rope", "post", "gelu", False, None),
        ("rope", "pre", "relu", False, 1),
        ("alibi", "post", "relu", True, 1),
    ],
)
def test_gradients_with_masks_and_dropout(positions, norm, activation, attention_bias, directions):
    """Of every parameter: every entry of one stack, the others along a direction."""
    config = small(norm=norm, activation=activation, attention_bias=attention_bias, positions=positions)
    config = config._replace(dropout=0.4, n_layers=2 if positions == "sinusoidal" else 1, d_ff=3)
    params, mask = drawn(npf.init_encoder, config), npf.padding_mask(np.array([[1, 1, 0], [1, 1, 1]]), 0)

    def forward(x, params):
        rng = np.random.default_rng(5)
        return npf.encoder_forward(x, params, config, mask=mask & npf.causal_mask(3), rng=rng)

    report = npf.gradcheck(forward, npf.encoder_backward, X, params, directions=directions)
    assert report, report
    assert len(report.rows) == 1 + len(list(npf.leaves(params)))


# --- the golden value -------------------------------------------------------------------------------


test_golden_values = agrees_with_pytorch("encoder_block", "encoder")


# --- the edges --------------------------------------------------------------------------------------


def test_any_of_the_biases_may_be_absent_as_in_published_models_whose_keys_have_none():
    p = drawn(npf.init_encoder_block, small(attention_bias=True))
    p = p._replace(attention=p.attention._replace(b_K=None))
    for attention_bias in (True, False):
        _, cache = npf.encoder_block_forward(X, p, small(attention_bias=attention_bias))
        _, grads = npf.encoder_block_backward(X, cache)
        assert grads.attention.b_K is None and grads.attention.b_Q.shape == (4,)


@together("dtype", [np.float32, np.float64])
@together("positions", ["sinusoidal", "rope", "alibi"])
def test_a_block_keeps_nothing_of_another_dtype(dtype, positions):
    config = small(norm="pre", attention_bias=True, positions=positions)
    params = npf.init_encoder(config, np.random.default_rng(0), dtype=dtype)
    _, cache = npf.encoder_block_forward(X.astype(dtype), params.blocks[0], config)
    kept = [array for _, array in npf.leaves((params, cache.attention)) if isinstance(array, np.ndarray)]
    assert {array.dtype for array in kept} == {np.dtype(dtype)}
