"""The feed-forward network: equation, gradient, golden values, edge cases."""

import numpy as np
import pytest
from golden import agrees_with_pytorch
from gradients import combine, make_gradient_test
from valid_calls import array, drawn

from npformer import FFNParams, ffn_backward, ffn_forward, gelu_forward, init_ffn

PARAMS = drawn(init_ffn, 4, 6)


# --- the equation, by hand --------------------------------------------------------------------------


def test_ffn_of_two_units_by_hand():
    """For x = (1, 2), z = (1·1 + 2·2 - 1, -1·1 + 0·2) = (4, -1), hidden = (4, 0), y = 4 · (½, 1) + (1, 0)."""
    W_1, b_1 = np.array([[1.0, -1], [2, 0]]), np.array([-1.0, 0])
    W_2, b_2 = np.array([[0.5, 1], [7, 7]]), np.array([1.0, 0])
    y, cache = ffn_forward(np.array([1.0, 2]), FFNParams(W_1, b_1, W_2, b_2))
    assert cache.z.tolist() == [4, -1] and cache.hidden.tolist() == [4, 0] and y.tolist() == [3, 4]
    dx, grads = ffn_backward(np.array([1.0, 0]), cache)
    assert dx.tolist() == [0.5, 1]  # only the first unit is active, and its weight for y[0] is ½
    assert grads.W_1.tolist() == [[0.5, 0], [1, 0]] and grads.b_1.tolist() == [0.5, 0]
    assert grads.W_2.tolist() == [[4, 0], [0, 0]] and grads.b_2.tolist() == [1, 0]


@pytest.mark.parametrize(("activation", "approximate"), [("gelu", False), ("gelu_tanh", True)])
def test_ffn_gelu_equals_gelu_forward(activation, approximate):
    x = array(3, 4)
    z = x @ PARAMS.W_1 + PARAMS.b_1
    y, cache = ffn_forward(x, PARAMS, activation=activation)
    expected = gelu_forward(z, approximate=approximate)[0] @ PARAMS.W_2 + PARAMS.b_2
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-14)
    np.testing.assert_allclose(cache.z, z, rtol=0, atol=1e-14)


# --- the gradient, the golden value -----------------------------------------------------------------

ACTIVATIONS = ["relu", "gelu", "gelu_tanh"]
test_gradients = make_gradient_test(
    "ffn", *combine(activation=ACTIVATIONS, lead=[(), (2, 1)], directions=[3], dropout=[0.5])
)
test_golden_values = agrees_with_pytorch("ffn")


# --- the edges --------------------------------------------------------------------------------------


def test_ffn_has_no_gradient_between_positions():
    """The Jacobian dy[t] / dx[s] is zero unless s = t."""
    _, cache = ffn_forward(array(5, 4), PARAMS)
    for t in range(5):
        dx, _ = ffn_backward(np.eye(5)[:, [t]] * array(4), cache)
        assert (dx.any(axis=-1) == (np.arange(5) == t)).all()


def test_ffn_unit_at_zero_has_no_gradient():
    _, cache = ffn_forward(np.zeros((1, 4)), PARAMS._replace(b_1=np.zeros(6)))
    dx, grads = ffn_backward(np.ones((1, 4)), cache)
    assert not any(g.any() for g in (dx, grads.W_1, grads.b_1))


def test_ffn_dropout_acts_on_hidden_layer():
    """With an rng, dropout changes the hidden layer. Without an rng, it does nothing."""
    x = array(50, 4)
    _, cache = ffn_forward(x, PARAMS, dropout=0.25)
    assert (cache.hidden == np.maximum(cache.z, 0)).all()
    y, dropped = ffn_forward(x, PARAMS, dropout=0.25, rng=np.random.default_rng(1))
    kept = np.random.default_rng(1).random((50, 6), np.float32) >= 0.25
    np.testing.assert_allclose(dropped.hidden, cache.hidden * kept / 0.75, rtol=1e-15)
    np.testing.assert_allclose(y, dropped.hidden @ PARAMS.W_2 + PARAMS.b_2, atol=1e-12)
