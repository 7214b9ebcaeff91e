"""DPO: equation, gradient, golden values, edge cases."""

import math

import numpy as np
import pytest
from golden import agrees_with_pytorch
from gradients import combine, make_gradient_test

import npformer as npf

# --- the equation, by hand --------------------------------------------------------------------------


def test_dpo_by_hand():
    """The margin is (2 - 1) - (5 - 5) = 1, and β = log 3, so σ(-z) = 1 / (1 + 3) = ¼."""
    reference = {"log_p_ref_w": np.array([1.0]), "log_p_ref_l": np.array([5.0])}
    loss, cache = npf.dpo_forward(np.array([2.0]), np.array([5.0]), beta=math.log(3), **reference)
    assert float(loss) == pytest.approx(-math.log(0.75), rel=1e-15)
    dlog_p_w, dlog_p_l = npf.dpo_backward(2.0, cache)
    np.testing.assert_allclose(dlog_p_w, [-2 * math.log(3) / 4], rtol=1e-14)
    np.testing.assert_array_equal(dlog_p_l, -dlog_p_w)


# --- the gradient, the golden values ----------------------------------------------------------------

test_gradients = make_gradient_test("dpo", *combine(beta=[0.1, 2.0], lead=[(), (2,)]))
test_golden_values = agrees_with_pytorch("dpo")


# --- properties and edges ---------------------------------------------------------------------------


def test_dpo_gradient_is_larger_for_wrong_pair():
    log_p_w, log_p_l = np.array([-1.0, -9.0]), np.array([-9.0, -1.0])
    zeros = np.zeros(2)
    _, cache = npf.dpo_forward(log_p_w, log_p_l, log_p_ref_w=zeros, log_p_ref_l=zeros, beta=1.0)
    correct, wrong = npf.dpo_backward(1.0, cache)[0]
    assert wrong < 0 and wrong < 1000 * correct


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e3, 1e30])
def test_dpo_of_huge_margins_is_exact(size, dtype):
    log_p_w, log_p_l, zeros = np.array([size, -size], dtype), np.zeros(2, dtype), np.zeros(2, dtype)
    loss, cache = npf.dpo_forward(log_p_w, log_p_l, log_p_ref_w=zeros, log_p_ref_l=zeros, beta=1.0)
    assert float(loss) == pytest.approx(size / 2, rel=1e-6)
    np.testing.assert_array_equal(npf.dpo_backward(1.0, cache)[0], [0, -0.5])
