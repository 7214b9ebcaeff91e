from fractions import Fraction

import mpmath
import numpy as np
from together import together

from npformer import LayerNormParams, gradcheck, init_layer_norm, layer_norm_backward, layer_norm_forward


def random_params(d, rng):
    return LayerNormParams(rng.normal(size=d) + 1.5, rng.normal(size=d))


def test_a_row_that_can_be_done_by_hand():
    """(1, 3, 5, 7): mean 4, variance (9 + 1 + 1 + 9)/4 = 5; eps 4 makes the root 3."""
    y, cache = layer_norm_forward(
        np.array([1.0, 3, 5, 7]), LayerNormParams(np.array([3.0, 3, 3, 6]), np.array([1.0, 0, 0, 0])), eps=4
    )
    assert [Fraction(v).limit_denominator(100) for v in y] == [-2, -1, 1, 6]
    assert cache.std.tolist() == [3]


def test_every_row_has_mean_zero_and_biased_variance_one():
    x = np.random.default_rng(0).normal(3, 7, size=(2, 5, 6))
    y, cache = layer_norm_forward(x, init_layer_norm(6), eps=0.0)
    np.testing.assert_allclose(y.mean(-1), 0, atol=1e-14)
    np.testing.assert_allclose((y**2).sum(-1), 6, rtol=1e-14)
    assert cache.x_hat.shape == x.shape


def test_scaling_and_shifting_a_row_changes_nothing_when_eps_is_zero():
    rng = np.random.default_rng(1)
    x, params = rng.normal(size=(4, 9)), random_params(9, rng)
    y = layer_norm_forward(x, params, eps=0.0)[0]
    np.testing.assert_allclose(layer_norm_forward(1e3 * x + 17, params, eps=0.0)[0], y, atol=1e-11)


@together("offset", [0.0, 1e2, 1e4, 1e6])
def test_float32_far_from_zero(offset):
    """The trap of the one-pass variance and of a mean rounded once: 1e3 and 5e-4 off at an offset of 1e4."""
    x = (np.random.default_rng(2).normal(size=(50, 64)) + offset).astype(np.float32)
    params = init_layer_norm(64, dtype=np.float32)
    with mpmath.workdps(30):
        for row, y in zip(x[:5], layer_norm_forward(x, params)[0][:5], strict=True):
            row = [mpmath.mpf(float(v)) for v in row]
            mean = sum(row) / 64
            std = mpmath.sqrt(sum((v - mean) ** 2 for v in row) / 64 + mpmath.mpf("1e-5"))
            assert max(abs((v - mean) / std - float(got)) for v, got in zip(row, y, strict=True)) < 1e-6


def test_eps_is_a_hundred_thousandth_unless_said():
    x, params = np.random.default_rng(6).normal(size=(3, 5)) / 100, random_params(5, np.random.default_rng(6))
    assert (layer_norm_forward(x, params)[0] == layer_norm_forward(x, params, eps=1e-5)[0]).all()


def test_dx_never_moves_the_mean_or_along_x_hat():
    """y does not change when x is shifted, nor (eps = 0) when it is stretched: dx is orthogonal to both."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(3, 8))
    _, cache = layer_norm_forward(x, random_params(8, rng), eps=0.0)
    dx, _ = layer_norm_backward(rng.normal(size=(3, 8)), cache)
    np.testing.assert_allclose(dx.sum(-1), 0, atol=1e-13)
    np.testing.assert_allclose((dx * cache.x_hat).sum(-1), 0, atol=1e-13)
    assert abs(dx).max() > 0.1


@together("shape", [(5,), (1, 5), (2, 3, 5), (2, 1, 3, 5), (4, 1)])
def test_gradients(shape):
    rng = np.random.default_rng(5)
    x, params = rng.normal(size=shape), random_params(shape[-1], rng)
    assert gradcheck(layer_norm_forward, layer_norm_backward, x, params, eps=0.1)
