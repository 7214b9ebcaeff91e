"""RMSNorm: equation, gradient, golden values, edge cases."""

import numpy as np
from golden import agrees_with_pytorch
from gradients import combine, make_gradient_test

import npformer as npf

# --- the equation, by hand --------------------------------------------------------------------------


def test_rms_norm_of_one_row_by_hand():
    """For x = (1, -7), the mean square is 25, so rms = 5. For dx̂ = dy gamma = (2, 0), mean(dx̂ x̂) = 0.2."""
    y, cache = npf.rms_norm_forward(np.array([1.0, -7]), npf.RMSNormParams(np.array([2.0, 3])), eps=0)
    np.testing.assert_allclose(y, [0.4, -4.2], rtol=1e-15)
    dx, grads = npf.rms_norm_backward(np.array([1.0, 0]), cache)
    np.testing.assert_allclose(dx, [(2 - 0.2 * 0.2) / 5, 1.4 * 0.2 / 5], rtol=1e-14)
    np.testing.assert_allclose(grads.gamma, [0.2, 0], rtol=1e-15)


# --- the gradient -----------------------------------------------------------------------------------


test_gradients = make_gradient_test("rms_norm", *combine(eps=[0.0, 0.5], lead=[(), (2,)]))


# --- the golden value -------------------------------------------------------------------------------


test_golden_values = agrees_with_pytorch("rms_norm")


# --- the edges --------------------------------------------------------------------------------------


def test_rms_norm_row_of_zeros_is_zero():
    y, cache = npf.rms_norm_forward(np.zeros((2, 3)), npf.init_rms_norm(3), eps=0)
    dx, _ = npf.rms_norm_backward(np.ones((2, 3)), cache)
    assert not y.any() and np.isfinite(dx).all()
