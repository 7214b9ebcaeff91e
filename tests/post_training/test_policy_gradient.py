"""The policy gradient: equation, gradient, golden values, edges, an expectation."""

import numpy as np
import pytest
from golden import agrees_with_pytorch
from gradients import combine, make_gradient_test
from valid_calls import array

import npformer as npf

COUNTED = np.array([[True, True, False], [True, False, False]])

# --- the equation, by hand --------------------------------------------------------------------------


def test_policy_gradient_by_hand():
    """Two answers with 2 tokens and 1 token: the tokens have the weights ¼, ¼ and ½."""
    log_p, advantages = np.array([[-1.0, -3.0, np.nan], [-2.0, np.nan, np.inf]]), np.array([[2.0], [-1.0]])
    loss, cache = npf.policy_gradient_forward(log_p, advantages=advantages, is_counted=COUNTED)
    assert float(loss) == pytest.approx(-(2 * -4 / 4 + 2 / 2), rel=1e-15)
    np.testing.assert_array_equal(npf.policy_gradient_backward(1.0, cache), [[-0.5, -0.5, 0], [0.5, 0, 0]])


# --- the gradient, the golden values ----------------------------------------------------------------

VARIANTS = combine(log_p=[array(2, 3)], advantages=[array(2, 1)], is_counted=[None, COUNTED])
test_gradients = make_gradient_test("policy_gradient", *VARIANTS)
test_golden_values = agrees_with_pytorch("policy_gradient")


# --- properties and edges ---------------------------------------------------------------------------


def test_policy_gradient_expectation_is_gradient_of_reward():
    """Each action occurs once; the factor 4 p replaces its frequency. The gradient is that of -Σ p R."""
    logits, rewards = array(4), np.array([1.0, 0.0, 3.0, -2.0])
    p = np.exp(logits) / np.exp(logits).sum()
    log_p, cache = npf.token_log_probs_forward(np.tile(logits, (4, 1, 1)), np.arange(4)[:, None])
    _, loss_cache = npf.policy_gradient_forward(log_p, advantages=4 * (p * rewards)[:, None])
    dlog_p = npf.policy_gradient_backward(1.0, loss_cache)
    dlogits = npf.token_log_probs_backward(dlog_p, cache).sum(axis=(0, 1))
    np.testing.assert_allclose(dlogits, -p * (rewards - p @ rewards), rtol=1e-12)


def test_policy_gradient_without_counted_token_is_zero():
    loss, cache = npf.policy_gradient_forward(
        array(2, 3), advantages=array(2, 1), is_counted=np.zeros((2, 3), bool)
    )
    assert loss == 0 and not npf.policy_gradient_backward(1.0, cache).any()
