"""Log-probabilities of tokens: equation, gradient, golden values, edge cases."""

import numpy as np
import pytest
from golden import agrees_with_pytorch
from gradients import combine, make_gradient_test
from valid_calls import array

import npformer as npf

TARGETS = np.array([[0, -1, 4, 1], [-1, 3, -1, 3]])

# --- the equation, by hand --------------------------------------------------------------------------


def test_token_log_probs_by_hand():
    """The probabilities are ¼ and ¾, and the token is 1."""
    log_p, cache = npf.token_log_probs_forward(np.array([[0.0, np.log(3)]]), np.array([1]))
    np.testing.assert_allclose(log_p, [np.log(0.75)], rtol=1e-15)
    dlogits = npf.token_log_probs_backward(np.array([2.0]), cache)
    np.testing.assert_allclose(dlogits, [[-0.5, 0.5]], rtol=1e-15)


def test_token_log_probs_sum_to_one():
    """The probabilities of all 9 answers of two tokens sum to 1 if the two tokens are independent."""
    logits = np.broadcast_to(array(2, 3), (9, 2, 3))
    answers = np.array([[i, j] for i in range(3) for j in range(3)])
    log_p, _ = npf.token_log_probs_forward(logits, answers)
    assert np.exp(log_p.sum(axis=-1)).sum() == pytest.approx(1, rel=1e-14)


# --- the gradient, the golden values ----------------------------------------------------------------

test_gradients = make_gradient_test(
    "token_log_probs", *combine(logits=[array(2, 4, 5)], targets=[TARGETS], ignore_index=[-1])
)
test_golden_values = agrees_with_pytorch("token_log_probs")


def test_token_log_probs_is_minus_cross_entropy():
    logits, targets = array(3, 5), np.array([2, 0, 4])
    log_p, cache = npf.token_log_probs_forward(logits, targets)
    loss, loss_cache = npf.cross_entropy_forward(logits, targets)
    assert float(loss) == pytest.approx(-log_p.mean(), rel=1e-15)
    expected = npf.cross_entropy_backward(1.0, loss_cache)
    np.testing.assert_allclose(npf.token_log_probs_backward(np.full(3, -1 / 3), cache), expected, rtol=1e-14)


# --- the edges --------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, np.inf, np.nan])
def test_token_log_probs_of_ignored_rows_are_zero(value):
    logits = array(2, 4, 5)
    logits[TARGETS == -1] = value
    log_p, cache = npf.token_log_probs_forward(logits, TARGETS, ignore_index=-1)
    dlogits = npf.token_log_probs_backward(np.ones((2, 4)), cache)
    assert not log_p[TARGETS == -1].any() and not dlogits[TARGETS == -1].any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_token_log_probs_of_huge_logits_are_exact(dtype):
    log_p, _ = npf.token_log_probs_forward(np.array([[1e4, 0], [0, 1e4]], dtype), np.array([0, 0]))
    np.testing.assert_array_equal(log_p, [0, -1e4])
