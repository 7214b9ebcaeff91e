"""The feed-forward network: what is promised, and what happens at its edges."""

import numpy as np
import pytest
from golden import agrees_with_pytorch
from together import together

from npformer import (
    FFNParams,
    ffn_backward,
    ffn_forward,
    gelu_forward,
    gradcheck,
    init_ffn,
    tree_map,
)


def random_ffn(d_model, d_ff, rng):
    return tree_map(lambda a: a + 0.3 * rng.normal(size=a.shape), init_ffn(d_model, d_ff, rng))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


# --- the equation, by hand --------------------------------------------------------------------------


def test_two_units_by_hand():
    """x = (1, 2): z = (1·1 + 2·2 - 1, -1·1 + 0·2 + 0) = (4, -1), hidden = (4, 0), y = 4 · (½, 1) + (1, 0)."""
    params = FFNParams(
        np.array([[1.0, -1], [2, 0]]), np.array([-1.0, 0]), np.array([[0.5, 1], [7, 7]]), np.array([1.0, 0])
    )
    y, cache = ffn_forward(np.array([1.0, 2]), params)
    assert cache.z.tolist() == [4, -1] and cache.hidden.tolist() == [4, 0] and y.tolist() == [3, 4]
    dx, grads = ffn_backward(np.array([1.0, 0]), cache)
    assert dx.tolist() == [0.5, 1]  # ½ through the one unit that is on
    assert grads.W_1.tolist() == [[0.5, 0], [1, 0]] and grads.b_1.tolist() == [0.5, 0]
    assert grads.W_2.tolist() == [[4, 0], [0, 0]] and grads.b_2.tolist() == [1, 0]


def test_it_is_two_convolutions_of_kernel_size_one(rng):
    """The paper's other description, with np.convolve over the positions for every pair of channels."""

    def convolution(x, W, b):  # x (T, c_in), W (c_in, c_out)
        c_in, c_out = W.shape
        channels = [
            sum(np.convolve(x[:, i], W[i, o : o + 1], mode="same") for i in range(c_in)) + b[o]
            for o in range(c_out)
        ]
        return np.stack(channels, axis=-1)

    x, params = rng.normal(size=(7, 4)), random_ffn(4, 6, rng)
    hidden = np.clip(convolution(x, params.W_1, params.b_1), 0, None)
    expected = convolution(hidden, params.W_2, params.b_2)
    np.testing.assert_allclose(ffn_forward(x, params)[0], expected, rtol=0, atol=1e-13)


def test_the_column_form_is_the_same_thing(rng):
    """W_2 σ(W_1 h + b_1) + b_2 with column vectors h, as one of the source texts writes it."""
    x, params = rng.normal(size=(3, 4)), random_ffn(4, 6, rng)
    for h, y in zip(x, ffn_forward(x, params)[0], strict=True):
        h = h[:, None]
        column = params.W_2.T @ np.maximum(params.W_1.T @ h + params.b_1[:, None], 0) + params.b_2[:, None]
        np.testing.assert_allclose(y, column[:, 0], rtol=0, atol=1e-14)


@together(("activation", "approximate"), [("gelu", False), ("gelu_tanh", True)])
def test_the_two_gelus_are_those_of_gelu_forward(rng, activation, approximate):
    x, params = rng.normal(size=(3, 4)), random_ffn(4, 6, rng)
    hidden, _ = gelu_forward(x @ params.W_1 + params.b_1, approximate=approximate)
    y = ffn_forward(x, params, activation=activation)[0]
    np.testing.assert_allclose(y, hidden @ params.W_2 + params.b_2, rtol=0, atol=1e-14)
    other = ffn_forward(x, params, activation="gelu" if approximate else "gelu_tanh")[0]
    assert 1e-7 < abs(y - other).max() < 1e-2


# --- the gradient -----------------------------------------------------------------------------------


@together("activation", ["relu", "gelu", "gelu_tanh"])
@together("shape", [(4,), (2, 1, 2, 4)])
@together("d_ff", [1, 4])
def test_gradients(rng, activation, shape, d_ff):
    params = random_ffn(4, d_ff, rng)
    x = rng.normal(size=shape)
    assert gradcheck(ffn_forward, ffn_backward, x, params, activation=activation)


def test_gradients_with_dropout(rng):
    def forward(x, params):
        return ffn_forward(x, params, dropout=0.5, rng=np.random.default_rng(7))

    assert gradcheck(forward, ffn_backward, rng.normal(size=(2, 3, 4)), random_ffn(4, 6, rng))


def test_the_gradient_of_a_bias_is_a_sum_over_every_token(rng):
    x, params = rng.normal(size=(2, 3, 4)), random_ffn(4, 6, rng)
    dy = rng.normal(size=x.shape)
    whole = ffn_backward(dy, ffn_forward(x, params)[1])[1]
    parts = [ffn_backward(dy[b, t], ffn_forward(x[b, t], params)[1])[1] for b in range(2) for t in range(3)]
    for name, gradient in whole._asdict().items():
        np.testing.assert_allclose(gradient, sum(getattr(part, name) for part in parts), rtol=0, atol=1e-13)


def test_no_position_looks_at_another(rng):
    """The Jacobian dy[t] / dx[s] is zero unless s = t."""
    x, params = rng.normal(size=(5, 4)), random_ffn(4, 6, rng)
    y, cache = ffn_forward(x, params)
    for t in range(5):
        for column in range(4):
            dy = np.zeros_like(y)
            dy[t, column] = 1
            dx, _ = ffn_backward(dy, cache)
            assert not dx[np.arange(5) != t].any() and dx[t].any()


# --- the golden value -------------------------------------------------------------------------------


test_golden_values = agrees_with_pytorch("ffn")


# --- the edges --------------------------------------------------------------------------------------


def test_a_unit_at_exactly_zero_gives_no_gradient():
    params = FFNParams(np.zeros((2, 3)), np.zeros(3), np.ones((3, 2)), np.zeros(2))
    _, cache = ffn_forward(np.ones((1, 2)), params)
    dx, grads = ffn_backward(np.ones((1, 2)), cache)
    assert not any(g.any() for g in (dx, grads.W_1, grads.b_1))


def test_dropout_acts_on_the_hidden_layer_and_only_with_an_rng(rng):
    x, params = rng.normal(size=(50, 4)), random_ffn(4, 200, rng)
    _, cache = ffn_forward(x, params, dropout=0.25)
    assert (cache.hidden == np.maximum(cache.z, 0)).all()
    dropped, with_dropout = ffn_forward(x, params, dropout=0.25, rng=np.random.default_rng(1))
    on = cache.hidden > 0
    ratio = with_dropout.hidden[on] / cache.hidden[on]
    assert set(np.round(np.unique(ratio), 12)) == {0, round(4 / 3, 12)}
    assert abs((ratio == 0).mean() - 0.25) < 0.02  # 5,000 draws: a standard deviation of 0.006
    np.testing.assert_allclose(dropped, with_dropout.hidden @ params.W_2 + params.b_2, atol=1e-12)
