"""Layer normalization: the equation, the gradient, the golden value, the edges (those of RMSNorm too)."""

from itertools import product

import mpmath
import numpy as np
from golden import agrees_with_pytorch
from gradients import gradients_hold
from together import together
from valid_calls import all_zero, array, like, norm_params

import npformer as npf

KINDS = (np.float64, np.float32)
DTYPES = together("dtype", KINDS)
BOTH = together(("forward", "backward", "own"), [  # own: its part of LayerNorm's parameters
    (npf.layer_norm_forward, npf.layer_norm_backward, lambda params: params),
    (npf.rms_norm_forward, npf.rms_norm_backward, lambda params: npf.RMSNormParams(params.gamma)),
])  # fmt: skip


# --- the equation, by hand --------------------------------------------------------------------------


def test_a_row_that_can_be_done_by_hand():
    """(1, 3, 5, 7): mean 4, variance (9 + 1 + 1 + 9)/4 = 5; eps 4 makes the root 3."""
    params = npf.LayerNormParams(np.array([3.0, 3, 3, 6]), np.array([1.0, 0, 0, 0]))
    y, cache = npf.layer_norm_forward(np.array([1.0, 3, 5, 7]), params, eps=4)
    np.testing.assert_allclose(y, [-2, -1, 1, 6], rtol=1e-15)
    assert cache.std.tolist() == [3]


# --- the gradient, the golden value -----------------------------------------------------------------

ONE_COLUMN = {"x": array(4, 1), "params": norm_params(1)}
test_gradients = gradients_hold("layer_norm", {"eps": 0.1}, {"lead": ()}, {"eps": 0.1} | ONE_COLUMN)
test_golden_values = agrees_with_pytorch("layer_norm")


# --- the edges --------------------------------------------------------------------------------------


@together(("d", "eps", "dtype"), product((1, 3, 7, 512), (1e-5, 0.0), KINDS))
def test_a_constant_row_gives_beta(d, eps, dtype):
    x = np.repeat(np.array([0.0, 1.0, 0.1, -1 / 3, 1e4 + 0.1, 1e-30, 7e7], dtype)[:, None], d, axis=1)
    params, dy = like(norm_params(d), dtype), array(len(x), d, seed=5, dtype=dtype)
    y, cache = npf.layer_norm_forward(x, params, eps=eps)
    dx, grads = npf.layer_norm_backward(dy, cache)
    assert (y == params.beta).all() and all_zero((cache.x_hat, grads.gamma))
    # to first order the row's entries only move against their mean, divided by √eps (by 1 where that is 0)
    moved = dy * params.gamma - (dy * params.gamma).mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(dx, moved / (np.sqrt(eps) or 1), rtol=1e-4, atol=1e-4)


@together(("bad", "eps"), product((np.nan, 0.3), (0.0, 1e-5)))
def test_a_row_with_nan_or_of_one_number_does_not_disturb_the_others(bad, eps):
    x = array(3, 4)
    x[1] = bad
    y, _ = npf.layer_norm_forward(x, norm_params(4), eps=eps)
    alone, _ = npf.layer_norm_forward(x[::2], norm_params(4), eps=eps)
    assert np.isnan(y[1]).all() == np.isnan(bad) and (y[::2] == alone).all()


@together("offset", [0.0, 1e2, 1e4, 1e6])
def test_float32_far_from_zero(offset):
    """The trap of the one-pass variance and of a mean rounded once: 1e3 and 5e-4 off at an offset of 1e4."""
    x = (np.random.default_rng(2).normal(size=(5, 64)) + offset).astype(np.float32)
    found, _ = npf.layer_norm_forward(x, npf.init_layer_norm(64, dtype=np.float32))
    with mpmath.workdps(30):
        for row, y in zip(x.tolist(), found.tolist(), strict=True):
            mean = mpmath.fsum(row) / 64
            std = mpmath.sqrt(mpmath.fsum((v - mean) ** 2 for v in row) / 64 + mpmath.mpf("1e-5"))
            assert max(abs((v - mean) / std - got) for v, got in zip(row, y, strict=True)) < 1e-6


@DTYPES
@BOTH
@together("size", [1e-30, 1e-25, 1e25])
def test_without_eps_the_size_of_a_row_does_not_matter(size, forward, backward, own, dtype):
    """In float32 the squares of such rows are 0 or infinite."""
    x, dy, params = array(3, 4, dtype=dtype), array(3, 4, seed=1, dtype=dtype), like(norm_params(4), dtype)
    (y, cache), (small_y, small_cache) = (forward(x * dtype(s), own(params), eps=0) for s in (1, size))
    np.testing.assert_allclose(small_y, y, rtol=1e-5, atol=1e-6)
    dx, small_dx = backward(dy, cache)[0], backward(dy, small_cache)[0]
    np.testing.assert_allclose(small_dx * size, dx, rtol=1e-4, atol=1e-5)


@DTYPES
def test_an_eps_that_float32_does_not_know_is_none_the_less_one(dtype):
    """Of a row whose squares are of its size: x̂ = x / √(mean x² + eps), worked out in float64."""
    x = np.array([[0.0, 0.0], [3e-25, 1e-25]], dtype)
    _, cache = npf.rms_norm_forward(x, npf.RMSNormParams(np.ones(2, dtype)), eps=1e-50)  # (1e-25)²
    np.testing.assert_allclose(cache.x_hat, [[0, 0], [3 / 6**0.5, 1 / 6**0.5]], rtol=1e-5)
    _, cache = npf.layer_norm_forward(x, npf.init_layer_norm(2, dtype=dtype), eps=1e-50)
    np.testing.assert_allclose(cache.x_hat, [[0, 0], [0.5**0.5, -(0.5**0.5)]], rtol=1e-5)
