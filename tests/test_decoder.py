"""The decoder: equation, gradient, golden values, edge cases."""

from typing import Any

import numpy as np
import pytest
from golden import agrees_with_pytorch
from gradients import make_gradient_test
from test_encoder import NORMS, small, with_residual_sums
from valid_calls import array, drawn

import npformer as npf

X, MEMORY = array(2, 3, 4), array(2, 5, 4, seed=1)
KEEP = npf.padding_mask(np.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1]]), 0)
MASKS = {"mask": npf.causal_mask(3), "memory_mask": KEEP}


# --- the equation, by hand --------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@NORMS
def test_decoder_block_equals_its_parts_in_order(activation, norm):
    """Pre-norm applies LayerNorm to the input of each part, but not to the memory or the residual path."""
    config = small(activation=activation, norm=norm)
    p, attend = drawn(npf.init_decoder_block, config), npf.multi_head_attention_forward

    def attend_to_target(x):
        return attend(x, x, x, p.self_attention, n_heads=2, mask=npf.causal_mask(3))[0]

    def attend_to_memory(g):
        return attend(g, MEMORY, MEMORY, p.cross_attention, n_heads=2, mask=KEEP)[0]

    def feed(h):
        return npf.ffn_forward(h, p.ffn, activation=activation)[0]

    parts = [(attend_to_target, p.norm_1), (attend_to_memory, p.norm_2), (feed, p.norm_3)]
    expected = with_residual_sums(X, parts, norm)
    y, _ = npf.decoder_block_forward(X, MEMORY, p, config, **MASKS)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-14)


# --- the gradient, the golden value -----------------------------------------------------------------

TINY: dict[str, Any] = {"d_model": 4, "d_ff": 3, "n_layers": 1, "attention_bias": False}
TINY |= {"dropout": 0.3, "eps": 1e-3}
TINY |= {"x": X, "memory": MEMORY}
TINY |= {  # One token attends to no token, and the second sentence attends to no memory.
    "mask": npf.causal_mask(3) & npf.padding_mask(np.array([[1, 1, 0], [0, 1, 1]]), 0),
    "memory_mask": KEEP & (np.arange(2)[:, None, None] < 1),
}
test_gradients = make_gradient_test(
    "decoder",  # The first variant checks every entry, the others check one direction per array.
    TINY | {"norm": "pre", "activation": "gelu", "positions": "none", "attention_bias": True},
    TINY | {"norm": "pre", "activation": "relu", "positions": "alibi", "directions": 1},
    TINY | {"norm": "post", "activation": "relu", "n_layers": 2, "attention_bias": True, "directions": 1},
    TINY | {"norm": "post", "activation": "gelu", "positions": "rope", "directions": 1},
)
test_decoder_block_gradients = make_gradient_test(
    "decoder_block",
    TINY | {"norm": "pre", "activation": "gelu", "positions": "rope", "directions": 1},
    TINY | {"norm": "post", "activation": "relu", "positions": "none", "directions": 1},
)
test_golden_values = agrees_with_pytorch("decoder_block", "decoder")


# --- the edges --------------------------------------------------------------------------------------


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rope", "alibi", "none"])
def test_decoder_positions_act_on_target_only(positions):
    """The order of the memory does not matter. The order of x matters only with RoPE and ALiBi."""
    config = small(positions=positions)
    params = drawn(npf.init_decoder, config)
    y = npf.decoder_forward(X, MEMORY, params, config)[0]
    reversed_memory = npf.decoder_forward(X, MEMORY[:, ::-1], params, config)[0]
    np.testing.assert_allclose(reversed_memory, y, rtol=0, atol=1e-13)
    exchanged = npf.decoder_forward(X[:, [1, 0, 2]], MEMORY, params, config)[0][:, [1, 0, 2]]
    assert (abs(exchanged - y).max() > 1e-3) == (positions in ("rope", "alibi"))


@NORMS
def test_decoder_ignores_masked_memory(norm):
    config = small(norm=norm)
    params, changed = drawn(npf.init_decoder, config), MEMORY + 1e6 * ~KEEP.swapaxes(-1, -2)
    y, cache = npf.decoder_forward(X, changed, params, config, memory_mask=KEEP)
    _, dmemory, _ = npf.decoder_backward(array(*y.shape, seed=2), cache)
    assert not dmemory[0, 2:].any() and dmemory[0, :2].all() and dmemory[1].all()
    alone, _ = npf.decoder_forward(X[:1], MEMORY[:1, :2], params, config)
    np.testing.assert_allclose(y[:1], alone, rtol=0, atol=1e-14)


@NORMS
def test_decoder_block_fully_masked_memory_adds_zero(norm):
    """If all memory is masked, cross-attention adds only its bias b_O, and the output is not NaN."""
    config = small(norm=norm, attention_bias=True)
    p = drawn(npf.init_decoder_block, config)
    y, cache = npf.decoder_block_forward(X, MEMORY, p, config, memory_mask=np.zeros(5, bool))
    silent = p._replace(cross_attention=p.cross_attention._replace(W_O=np.zeros((4, 4))))
    for memory, params in ((MEMORY, silent), (MEMORY[:, :0], p)):
        expected, _ = npf.decoder_block_forward(X, memory, params, config)
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-14)
    _, dmemory, grads = npf.decoder_block_backward(np.ones_like(y), cache)
    assert not dmemory.any() and not grads.cross_attention.W_K.any() and grads.cross_attention.b_O.all()


def test_decoder_without_blocks_returns_x():
    y, cache = npf.decoder_forward(X, MEMORY, npf.DecoderParams(()), small(n_layers=0))
    dx, dmemory, grads = npf.decoder_backward(np.ones_like(X), cache)
    assert (y == X).all() and (dx == 1).all() and grads == npf.DecoderParams(())
    assert dmemory.shape == MEMORY.shape and not dmemory.any()
