"""The KL penalty: equation, gradient, golden values, its mean."""

import numpy as np
import pytest
from golden import agrees_with_pytorch
from gradients import combine, make_gradient_test
from valid_calls import array

import npformer as npf


def test_kl_penalty_by_hand():
    """π_ref / π = 2."""
    y, cache = npf.kl_penalty_forward(np.array([0.0]), log_p_ref=np.array([np.log(2)]))
    np.testing.assert_allclose(y, [2 - np.log(2) - 1], rtol=1e-15)
    np.testing.assert_allclose(npf.kl_penalty_backward(np.array([3.0]), cache), [3 * (1 - 2)], rtol=1e-15)


test_gradients = make_gradient_test("kl_penalty", *combine(lead=[(), (2,)]))
test_golden_values = agrees_with_pytorch("kl_penalty")


def test_kl_penalty_mean_is_the_divergence():
    """The mean over the tokens, with their probabilities π as weights, is Σ π log(π / π_ref)."""
    log_p, log_p_ref = (a - np.log(np.exp(a).sum()) for a in (array(6), array(6, seed=1)))
    y, _ = npf.kl_penalty_forward(log_p, log_p_ref=log_p_ref)
    expected = (np.exp(log_p) * (log_p - log_p_ref)).sum()
    assert (np.exp(log_p) * y).sum() == pytest.approx(expected, rel=1e-13)
    assert (y > 0).all()


def test_kl_penalty_of_tiny_change_is_accurate():
    """The penalty of a change d is d²/2 - d³/6 …; exp(d) - d - 1 would lose all digits."""
    y, _ = npf.kl_penalty_forward(np.array([0.0]), log_p_ref=np.array([1e-6]))
    assert y[0] == pytest.approx(0.5e-12, rel=1e-3)
