"""The encoder: equation, gradient, golden values, edge cases."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from golden import agrees_with_pytorch
from gradients import make_gradient_test
from valid_calls import array, drawn

import npformer as npf

small = partial(npf.TransformerConfig, d_model=4, d_ff=6, n_heads=2, n_layers=2, dropout=0.0, eps=1e-3)
NORMS = pytest.mark.parametrize("norm", ["pre", "post"])
X = array(2, 3, 4)


# --- the equation, by hand --------------------------------------------------------------------------


def with_residual_sums(x, parts, norm):
    """Apply (part, params) pairs: LayerNorm(x + part(x)) in post-norm, x + part(LayerNorm(x)) in pre-norm."""
    for part, params in parts:
        normed = partial(npf.layer_norm_forward, params=params, eps=1e-3)
        x = normed(x + part(x))[0] if norm == "post" else x + part(normed(x)[0])
    return x


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
@NORMS
def test_encoder_block_equals_its_parts_in_order(activation, norm):
    """With pre-norm, LayerNorm applies to the input of each part, but not to the residual path."""
    config = small(activation=activation, norm=norm)
    p = drawn(npf.init_encoder_block, config)

    def attend(x):
        return npf.multi_head_attention_forward(x, x, x, p.attention, n_heads=2)[0]

    def feed(h):
        return npf.ffn_forward(h, p.ffn, activation=activation)[0]

    expected = with_residual_sums(X, [(attend, p.norm_1), (feed, p.norm_2)], norm)
    np.testing.assert_allclose(npf.encoder_block_forward(X, p, config)[0], expected, rtol=0, atol=1e-14)


# --- the gradient, the golden value -----------------------------------------------------------------

TINY: dict[str, Any] = {"d_model": 4, "d_ff": 3, "n_layers": 1, "attention_bias": False}
TINY |= {"dropout": 0.4, "eps": 1e-3}
TINY |= {"x": X, "mask": npf.causal_mask(3) & npf.padding_mask(np.array([[1, 1, 0], [1, 1, 1]]), 0)}
BIASED = drawn(npf.init_encoder_block, small(attention_bias=True))
KEYS_WITHOUT_BIAS = BIASED._replace(attention=BIASED.attention._replace(b_K=None))
test_gradients = make_gradient_test(
    "encoder",  # The first variant checks every entry, the others check one direction per array.
    TINY | {"norm": "post", "activation": "gelu", "positions": "rope"},
    TINY | {"norm": "pre", "activation": "gelu", "n_layers": 2, "attention_bias": True, "directions": 1},
    TINY | {"norm": "pre", "activation": "relu", "positions": "rope", "directions": 1},
    TINY | {"norm": "post", "activation": "relu", "positions": "alibi", "directions": 1},
)
test_encoder_block_gradients_without_key_bias = make_gradient_test(
    "encoder_block", TINY | {"norm": "post", "d_ff": 6, "params": KEYS_WITHOUT_BIAS, "directions": 1}
)
test_golden_values = agrees_with_pytorch("encoder_block", "encoder")


# --- the edges --------------------------------------------------------------------------------------


@NORMS
@pytest.mark.parametrize(("order_matters", "added", "options", "positions"), [
    (False, 0.0, {}, "none"), (True, npf.positional_encoding(7, 4), {}, "none"),
    (True, 0.0, {"mask": npf.causal_mask(7)}, "none"), (True, 0.0, {}, "rope"), (True, 0.0, {}, "alibi"),
], ids=["none", "sinusoidal", "causal-mask", "rope", "alibi"])  # fmt: skip
def test_encoder_without_positions_ignores_order(order_matters, added, options, positions, norm):
    config = small(norm=norm, n_layers=4, positions=positions)
    x, order = array(2, 7, 4), [3, 0, 6, 1, 5, 2, 4]
    params = drawn(npf.init_encoder, config)

    def run(x):
        return npf.encoder_forward(x, params, config, **options)[0]

    difference = abs(run(x[:, order] + added) - run(x + added)[:, order]).max()
    assert difference > 1e-2 if order_matters else difference < 1e-12


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("positions", ["sinusoidal", "rope", "alibi"])
def test_encoder_block_cache_has_input_dtype(dtype, positions):
    config = small(norm="pre", attention_bias=True, positions=positions)
    params = npf.init_encoder(config, np.random.default_rng(0), dtype=dtype)
    _, cache = npf.encoder_block_forward(X.astype(dtype), params.blocks[0], config)
    arrays = [leaf for _, leaf in npf.leaves((params, cache.attention)) if isinstance(leaf, np.ndarray)]
    assert {array.dtype for array in arrays} == {np.dtype(dtype)}
