"""The clipped objective: equation, gradient, golden values, where it is flat."""

import numpy as np
import pytest
from golden import agrees_with_pytorch
from gradients import combine, make_gradient_test
from valid_calls import array

import npformer as npf

# --- the equation, by hand --------------------------------------------------------------------------

CASES = {  # ρ, Â, the objective, the gradient
    "good and more probable": (1.5, 2.0, 1.2 * 2, 0.0),
    "good and less probable": (0.5, 2.0, 0.5 * 2, 0.5 * 2),
    "bad and more probable": (1.5, -2.0, 1.5 * -2, 1.5 * -2),
    "bad and less probable": (0.5, -2.0, 0.8 * -2, 0.0),
    "inside": (1.1, 2.0, 1.1 * 2, 1.1 * 2),
}


@pytest.mark.parametrize("case", CASES)
def test_clipped_policy_by_hand(case):
    rho, advantage, objective, gradient = CASES[case]
    old, advantages = np.array([-1.0]), np.array([advantage])
    y, cache = npf.clipped_policy_forward(old + np.log(rho), log_p_old=old, advantages=advantages)
    np.testing.assert_allclose(y, [objective], rtol=1e-14)
    np.testing.assert_allclose(npf.clipped_policy_backward(np.ones(1), cache), [gradient], rtol=1e-14)


# --- the gradient, the golden values ----------------------------------------------------------------

test_gradients = make_gradient_test("clipped_policy", *combine(epsilon=[0.2, 0.9], lead=[(), (2,)]))
test_golden_values = agrees_with_pytorch("clipped_policy")


# --- properties -------------------------------------------------------------------------------------


def test_clipped_policy_gradient_equals_policy_gradient_at_first():
    """As long as π = π_old, ρ is 1, and the gradient is the advantage."""
    log_p, advantages = array(3, 4), array(3, 1, seed=1)
    _, cache = npf.clipped_policy_forward(log_p, log_p_old=log_p, advantages=advantages)
    expected = np.broadcast_to(advantages, (3, 4))
    np.testing.assert_array_equal(npf.clipped_policy_backward(np.ones((3, 4)), cache), expected)


def test_clipped_policy_is_at_most_unclipped():
    log_p, old, advantages = array(50, 4), array(50, 4, seed=1), array(50, 1, seed=2)
    y, _ = npf.clipped_policy_forward(log_p, log_p_old=old, advantages=advantages)
    assert (y <= np.exp(log_p - old) * advantages + 1e-12).all()
