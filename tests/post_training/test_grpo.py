"""GRPO: equation, gradient, golden values, padding."""

import numpy as np
import pytest
from golden import agrees_with_pytorch
from gradients import combine, make_gradient_test
from valid_calls import array

import npformer as npf

COUNTED = np.array([[True, True, False], [True, False, False]])
OLD, REF, ADVANTAGES = array(2, 3, seed=1), array(2, 3, seed=2), array(2, 1, seed=3)

# --- the equation, by hand --------------------------------------------------------------------------


def test_grpo_by_hand():
    """One answer of two tokens: ρ = 1 and 3, Â = 2, ε = ½, and π_ref / π = 1 and ½."""
    old = np.zeros((1, 2))
    log_p = np.log(np.array([[1.0, 3.0]]))
    log_p_ref = log_p + np.log(np.array([[1.0, 0.5]]))
    loss, cache = npf.grpo_forward(
        log_p, log_p_old=old, advantages=np.array([[2.0]]), log_p_ref=log_p_ref, epsilon=0.5, beta=0.1
    )
    kl = 0.5 - np.log(0.5) - 1
    assert float(loss) == pytest.approx(-(2 + (1.5 * 2 - 0.1 * kl)) / 2, rel=1e-14)
    np.testing.assert_allclose(npf.grpo_backward(1.0, cache), [[-1, 0.1 * 0.5 / 2]], rtol=1e-14)


# --- the gradient, the golden values ----------------------------------------------------------------

VARIANTS = combine(
    log_p=[array(2, 3)], log_p_old=[OLD], advantages=[ADVANTAGES], log_p_ref=[None, REF],
    is_counted=[None, COUNTED],
)  # fmt: skip
test_gradients = make_gradient_test("grpo", *VARIANTS)
test_golden_values = agrees_with_pytorch("grpo")


# --- properties and edges ---------------------------------------------------------------------------


def test_grpo_first_gradient_is_policy_gradient():
    log_p = array(2, 3)
    _, cache = npf.grpo_forward(log_p, log_p_old=log_p, advantages=ADVANTAGES)
    _, expected = npf.policy_gradient_forward(log_p, advantages=ADVANTAGES)
    np.testing.assert_allclose(
        npf.grpo_backward(1.0, cache), npf.policy_gradient_backward(1.0, expected), rtol=1e-14
    )


def test_grpo_ignores_padding():
    settings = {"log_p_old": OLD, "advantages": ADVANTAGES, "log_p_ref": REF, "is_counted": COUNTED}
    log_p = array(2, 3)
    expected, _ = npf.grpo_forward(log_p, **settings)
    for value in (np.nan, np.inf, -np.inf, 1e308):
        loss, cache = npf.grpo_forward(np.where(COUNTED, log_p, value), **settings)
        assert loss == expected and not npf.grpo_backward(1.0, cache)[~COUNTED].any()
