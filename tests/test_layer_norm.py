"""Layer normalization: equation, gradient, golden values, edge cases (some for RMSNorm too)."""

from itertools import product

import mpmath
import numpy as np
import pytest
from golden import agrees_with_pytorch
from gradients import make_gradient_test
from valid_calls import all_zero, array, like, norm_params

import npformer as npf

BOTH_DTYPES = (np.float64, np.float32)
DTYPES = pytest.mark.parametrize("dtype", BOTH_DTYPES)
# `params_of` converts parameters of LayerNorm to parameters of the tested norm.
BOTH = pytest.mark.parametrize(("forward", "backward", "params_of"), [
    (npf.layer_norm_forward, npf.layer_norm_backward, lambda params: params),
    (npf.rms_norm_forward, npf.rms_norm_backward, lambda params: npf.RMSNormParams(params.gamma)),
], ids=["layer_norm", "rms_norm"])  # fmt: skip


# --- the equation, by hand --------------------------------------------------------------------------


def test_layer_norm_of_one_row_by_hand():
    """The row (1, 3, 5, 7) has mean 4 and variance (9 + 1 + 1 + 9)/4 = 5, so with eps = 4, std is √9 = 3."""
    params = npf.LayerNormParams(np.array([3.0, 3, 3, 6]), np.array([1.0, 0, 0, 0]))
    y, cache = npf.layer_norm_forward(np.array([1.0, 3, 5, 7]), params, eps=4)
    np.testing.assert_allclose(y, [-2, -1, 1, 6], rtol=1e-15)
    assert cache.std.tolist() == [3]


# --- the gradient, the golden value -----------------------------------------------------------------

ONE_COLUMN = {"x": array(4, 1), "params": norm_params(1)}
test_gradients = make_gradient_test("layer_norm", {"eps": 0.1}, {"lead": ()}, {"eps": 0.1} | ONE_COLUMN)
test_golden_values = agrees_with_pytorch("layer_norm")


# --- the edges --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "eps", "dtype"), [*product((1, 3, 7, 512), (1e-5, 0.0), BOTH_DTYPES)])
def test_layer_norm_constant_row_is_beta(d, eps, dtype):
    x = np.repeat(np.array([0.0, 1.0, 0.1, -1 / 3, 1e4 + 0.1, 1e-30, 7e7], dtype)[:, None], d, axis=1)
    params, dy = like(norm_params(d), dtype), array(len(x), d, seed=5, dtype=dtype)
    y, cache = npf.layer_norm_forward(x, params, eps=eps)
    dx, grads = npf.layer_norm_backward(dy, cache)
    assert (y == params.beta).all() and all_zero((cache.x_hat, grads.gamma))
    # dx is approximately (dx̂ - mean of dx̂) / √eps, or dx̂ - mean of dx̂ if eps is 0.
    dx_hat = dy * params.gamma
    centred = dx_hat - dx_hat.mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(dx, centred / (np.sqrt(eps) or 1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_norms_in_float32_when_squares_overflow(eps):
    x = np.array([[1e20, -1e20], [1.0, -1.0]], np.float32)
    ones = np.ones(2, np.float32)
    expected = [[1, -1], [1, -1]]
    y, _ = npf.layer_norm_forward(x, npf.LayerNormParams(ones, 0 * ones), eps=eps)
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    y, _ = npf.rms_norm_forward(x, npf.RMSNormParams(ones), eps=eps)
    np.testing.assert_allclose(y, expected, rtol=1e-5)


@pytest.mark.parametrize(("bad", "eps"), [*product((np.nan, 0.3), (0.0, 1e-5))])
def test_layer_norm_rows_are_independent(bad, eps):
    """A row of NaNs or of equal numbers does not change the output of other rows."""
    x = array(3, 4)
    x[1] = bad
    y, _ = npf.layer_norm_forward(x, norm_params(4), eps=eps)
    alone, _ = npf.layer_norm_forward(x[::2], norm_params(4), eps=eps)
    assert np.isnan(y[1]).all() == np.isnan(bad) and (y[::2] == alone).all()


@pytest.mark.parametrize("offset", [0.0, 1e2, 1e4, 1e6])
def test_layer_norm_float32_far_from_zero(offset):
    """At an offset of 1e4, a one-pass variance would be wrong by 1e3, and a float32 mean by 5e-4."""
    x = (np.random.default_rng(2).normal(size=(5, 64)) + offset).astype(np.float32)
    found, _ = npf.layer_norm_forward(x, npf.init_layer_norm(64, dtype=np.float32))
    with mpmath.workdps(30):
        for row, y in zip(x.tolist(), found.tolist(), strict=True):
            mean = mpmath.fsum(row) / 64
            std = mpmath.sqrt(mpmath.fsum((v - mean) ** 2 for v in row) / 64 + mpmath.mpf("1e-5"))
            assert max(abs((v - mean) / std - got) for v, got in zip(row, y, strict=True)) < 1e-6


@DTYPES
@BOTH
@pytest.mark.parametrize("size", [1e-30, 1e-25, 1e25])
def test_norms_without_eps_ignore_scale(size, forward, backward, params_of, dtype):
    """In float32, squares of numbers of these sizes underflow or overflow, but x̂ must be correct."""
    x, dy, params = array(3, 4, dtype=dtype), array(3, 4, seed=1, dtype=dtype), like(norm_params(4), dtype)
    y, cache = forward(x, params_of(params), eps=0)
    scaled_y, scaled_cache = forward(x * dtype(size), params_of(params), eps=0)
    np.testing.assert_allclose(scaled_y, y, rtol=1e-5, atol=1e-6)
    dx, scaled_dx = backward(dy, cache)[0], backward(dy, scaled_cache)[0]
    np.testing.assert_allclose(scaled_dx * size, dx, rtol=1e-4, atol=1e-5)


@DTYPES
def test_norms_use_eps_below_float32_range(dtype):
    """eps = 1e-50 would be 0 in float32. It changes x̂ of the second row, whose squares are equally small."""
    x = np.array([[0.0, 0.0], [3e-25, 1e-25]], dtype)
    _, rms_cache = npf.rms_norm_forward(x, npf.RMSNormParams(np.ones(2, dtype)), eps=1e-50)  # eps = (1e-25)²
    np.testing.assert_allclose(rms_cache.x_hat, [[0, 0], [3 / 6**0.5, 1 / 6**0.5]], rtol=1e-5)
    _, cache = npf.layer_norm_forward(x, npf.init_layer_norm(2, dtype=dtype), eps=1e-50)
    np.testing.assert_allclose(cache.x_hat, [[0, 0], [0.5**0.5, -(0.5**0.5)]], rtol=1e-5)
