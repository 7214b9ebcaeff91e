"""The gated feed-forward network and SiLU: what is promised, and what happens at their edges."""

import numpy as np
import pytest
from golden import agrees_with_pytorch
from gradients import every, gradients_hold

from npformer import (
    GatedFFNParams,
    gated_ffn_backward,
    gated_ffn_forward,
    init_ffn,
    init_gated_ffn,
    leaves,
    silu_backward,
    silu_forward,
)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


# --- the equation, by hand --------------------------------------------------------------------------


def test_one_unit_by_hand():
    """x = (1, 2): gate relu(1·1 + 2·2) = 5, up 1·3 - 2·1 = 1, hidden 5, y = 5 · (2, 1)."""
    params = GatedFFNParams(np.array([[1.0], [2]]), np.array([[3.0], [-1]]), np.array([[2.0, 1]]))
    y, cache = gated_ffn_forward(np.array([1.0, 2]), params, activation="relu")
    assert y.tolist() == [10, 5] and cache.gate == cache.hidden == 5 and cache.up == 1
    dx, grads = gated_ffn_backward(np.array([1.0, 0]), cache)  # dhidden = 2, dgate = 2 · 1, dup = 2 · 5
    assert dx.tolist() == [2 * 1 + 10 * 3, 2 * 2 - 10]
    assert grads.W_gate.tolist() == [[2], [4]] and grads.W_up.tolist() == [[10], [20]]
    assert grads.W_down.tolist() == [[5, 0]]


def test_with_a_gate_that_is_open_it_is_two_linear_maps(rng):
    """x ends in 1, and the gate's weights of that column are 100: σ(100) = 1 in float64."""
    x, params = rng.normal(size=(3, 4)), init_gated_ffn(4, 6, rng)
    x[:, 3], params.W_gate[3] = 1, 100
    y, _ = gated_ffn_forward(x, params, activation="sigmoid")
    np.testing.assert_allclose(y, x @ params.W_up @ params.W_down, atol=1e-14)


def test_two_thirds_of_the_width_cost_as_many_weights_as_the_plain_network(rng):
    gated = sum(w.size for _, w in leaves(init_gated_ffn(24, 64, rng)))
    plain = sum(w.size for path, w in leaves(init_ffn(24, 96, rng)) if path.startswith("W"))
    assert gated == plain


# --- the gradient -----------------------------------------------------------------------------------


test_gradients_of_silu = gradients_hold("silu", {}, {"lead": ()})
GATES = ["silu", "gelu", "relu", "sigmoid"]
test_gradients = gradients_hold("gated_ffn", *every(activation=GATES, lead=[(), (2,)], directions=[3]))


# --- the golden value -------------------------------------------------------------------------------


test_golden_values = agrees_with_pytorch("silu", "gated_ffn")


# --- the edges --------------------------------------------------------------------------------------


def test_silu_far_from_zero():
    """It goes to z on the right and to 0 on the left, without a NaN where exp overflows."""
    y, cache = silu_forward(np.array([-1e4, -700, 0, 700, 1e4]))
    np.testing.assert_allclose(y, [0, 0, 0, 700, 1e4], atol=1e-300)
    np.testing.assert_allclose(silu_backward(np.ones(5), cache), [0, 0, 0.5, 1, 1], atol=1e-300)
    assert silu_forward(np.array([-100.0], np.float32))[0][0] == 0
