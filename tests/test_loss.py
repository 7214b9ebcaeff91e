"""Cross-entropy: equation, gradient, golden values, edge cases."""

import math

import numpy as np
import pytest
from golden import agrees_with_pytorch
from gradients import combine, make_gradient_test
from valid_calls import INTEGERS, array

from npformer import cross_entropy_backward, cross_entropy_forward

TARGETS = np.array([[0, -1, 4, 1], [-1, 3, -1, 3]])


# --- the equation, by hand --------------------------------------------------------------------------


def test_cross_entropy_by_hand():
    """The probabilities are ¼ and ¾, and the target is token 0. Smoothing by ½ makes the targets ¾ and ¼."""
    logits = np.array([[0.0, math.log(3)]])
    assert float(cross_entropy_forward(logits, np.array([0]))[0]) == pytest.approx(math.log(4), rel=1e-15)
    smoothed, cache = cross_entropy_forward(logits, np.array([0]), label_smoothing=0.5)
    assert float(smoothed) == pytest.approx(0.75 * math.log(4) + 0.25 * math.log(4 / 3), rel=1e-15)
    probabilities, targets = np.array([[0.25, 0.75]]), np.array([[0.75, 0.25]])
    np.testing.assert_allclose(cross_entropy_backward(3.0, cache), 3 * (probabilities - targets), rtol=1e-15)


# --- the gradient, the golden value -----------------------------------------------------------------

WAYS = combine(logits=[array(2, 4, 5)], targets=[TARGETS], label_smoothing=[0.0, 0.1, 1.0])
test_gradients = make_gradient_test("cross_entropy", *WAYS)
test_golden_values = agrees_with_pytorch("cross_entropy")


# --- the edges --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ignored", [-100, 2, np.int64(2)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_cross_entropy_ignores_rows_of_ignore_index(ignored, smoothing):
    logits, targets = array(2, 4, 5), np.where(TARGETS == -1, ignored, TARGETS)
    counted, options = targets != ignored, {"ignore_index": ignored, "label_smoothing": smoothing}
    alone, alone_cache = cross_entropy_forward(logits[counted], targets[counted], label_smoothing=smoothing)
    for value in (0.0, 1e308, np.inf, -np.inf, np.nan):
        logits[~counted] = value
        loss, cache = cross_entropy_forward(logits, targets, **options)
        dlogits, expected = (cross_entropy_backward(1.0, c) for c in (cache, alone_cache))
        assert float(loss) == pytest.approx(float(alone), rel=1e-15) and not dlogits[~counted].any()
        np.testing.assert_allclose(dlogits[counted], expected, rtol=1e-14, atol=1e-17)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("size", [1e4, 1e30])
def test_cross_entropy_of_huge_logits_is_exact(size, dtype):
    logits = np.array([[-size, size, 0], [size, size, -size], [-size, -size, -size]], dtype)
    loss, cache = cross_entropy_forward(logits, np.array([1, 0, 2]))
    np.testing.assert_allclose(loss, (0 + np.log(2) + np.log(3)) / 3, rtol=1e-6)
    expected = np.array([[0, 0, 0], [-1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, -2 / 3]]) / 3
    np.testing.assert_allclose(cross_entropy_backward(1.0, cache), expected, rtol=1e-6)
    smoothed, _ = cross_entropy_forward(logits[:1], np.array([1]), label_smoothing=0.3)
    np.testing.assert_allclose(smoothed, 0.1 * (2 * size + size), rtol=1e-6)


def test_cross_entropy_ignores_logits_of_minus_infinity():
    logits, targets = array(3, 4), np.array([0, 3, 1])
    with_infinity = np.insert(logits, 4, -np.inf, axis=-1)
    loss, cache = cross_entropy_forward(with_infinity, targets)
    expected, cache_without = cross_entropy_forward(logits, targets)
    dlogits = cross_entropy_backward(1.0, cache)
    assert loss == expected and not dlogits[:, 4].any()
    np.testing.assert_array_equal(dlogits[:, :4], cross_entropy_backward(1.0, cache_without))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cross_entropy_accepts_integer_targets_and_any_dloss(dtype):
    logits, targets = array(2, 3, 5, dtype=dtype), np.array([[0, 4, 2], [1, 1, 3]])
    losses = {cross_entropy_forward(logits, targets.astype(kind))[0].tobytes() for kind in INTEGERS}
    _, cache = cross_entropy_forward(logits, targets, ignore_index=-100, label_smoothing=np.float64(0.1))
    dlogits = [cross_entropy_backward(one, cache) for one in (1, 1.0, np.float64(1), np.array(1, dtype))]
    assert len(losses) == len({d.tobytes() for d in dlogits}) == 1 and dlogits[2].dtype == dtype
