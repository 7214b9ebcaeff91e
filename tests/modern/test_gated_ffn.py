"""The gated feed-forward network and SiLU: equation, gradient, golden values, edge cases."""

import numpy as np
from golden import agrees_with_pytorch
from gradients import combine, make_gradient_test

import npformer as npf

# --- the equation, by hand --------------------------------------------------------------------------


def test_gated_ffn_of_one_unit_by_hand():
    """For x = (1, 2), gate = relu(1·1 + 2·2) = 5, up = 1·3 - 2·1 = 1, hidden = 5 · 1 and y = 5 · (2, 1)."""
    params = npf.GatedFFNParams(np.array([[1.0], [2]]), np.array([[3.0], [-1]]), np.array([[2.0, 1]]))
    y, cache = npf.gated_ffn_forward(np.array([1.0, 2]), params, activation="relu")
    assert y.tolist() == [10, 5] and cache.gate == cache.hidden == 5 and cache.up == 1
    dx, grads = npf.gated_ffn_backward(np.array([1.0, 0]), cache)  # dhidden = 2, dgate = 2 · 1, dup = 2 · 5
    assert dx.tolist() == [2 * 1 + 10 * 3, 2 * 2 - 10]
    assert grads.W_gate.tolist() == [[2], [4]] and grads.W_up.tolist() == [[10], [20]]
    assert grads.W_down.tolist() == [[5, 0]]


# --- the gradient -----------------------------------------------------------------------------------


test_silu_gradients = make_gradient_test("silu", {}, {"lead": ()})
GATES = ["silu", "gelu", "relu", "sigmoid"]
WAYS = combine(activation=GATES, lead=[(), (2,)], directions=[3])
test_gated_ffn_gradients = make_gradient_test("gated_ffn", *WAYS)


# --- the golden value -------------------------------------------------------------------------------


test_golden_values = agrees_with_pytorch("silu", "gated_ffn")


# --- the edges --------------------------------------------------------------------------------------


def test_silu_far_from_zero():
    """SiLU(z) is close to z far above 0 and close to 0 far below, without NaN where exp overflows."""
    y, cache = npf.silu_forward(np.array([-1e4, -700, 0, 700, 1e4]))
    np.testing.assert_allclose(y, [0, 0, 0, 700, 1e4], atol=1e-300)
    np.testing.assert_allclose(npf.silu_backward(np.ones(5), cache), [0, 0, 0.5, 1, 1], atol=1e-300)
    assert npf.silu_forward(np.array([-100.0], np.float32))[0][0] == 0
