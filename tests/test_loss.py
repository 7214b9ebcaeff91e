"""Cross-entropy: the equation, the gradient, the golden value, the edges."""

import math

import numpy as np
import pytest
from golden import agrees_with_pytorch
from gradients import every, gradients_hold
from together import together
from valid_calls import INTEGERS, array

from npformer import cross_entropy_backward, cross_entropy_forward

TARGETS = np.array([[0, -1, 4, 1], [-1, 3, -1, 3]])


# --- the equation, by hand --------------------------------------------------------------------------


def test_by_hand():
    """The model says ¼ and ¾; wanted is the first word, or with ε = ½ the first by ¾ and the other by ¼."""
    logits = np.array([[0.0, math.log(3)]])
    assert float(cross_entropy_forward(logits, np.array([0]))[0]) == pytest.approx(math.log(4), rel=1e-15)
    smoothed, cache = cross_entropy_forward(logits, np.array([0]), label_smoothing=0.5)
    assert float(smoothed) == pytest.approx(0.75 * math.log(4) + 0.25 * math.log(4 / 3), rel=1e-15)
    said, wanted = np.array([[0.25, 0.75]]), np.array([[0.75, 0.25]])
    np.testing.assert_allclose(cross_entropy_backward(3.0, cache), 3 * (said - wanted), rtol=1e-15)


# --- the gradient, the golden value -----------------------------------------------------------------

ALL = every(logits=[array(2, 4, 5)], targets=[TARGETS], label_smoothing=[0.0, 0.1, 1.0])
test_gradients = gradients_hold("cross_entropy", *ALL)
test_golden_values = agrees_with_pytorch("cross_entropy")


# --- the edges --------------------------------------------------------------------------------------


@together("ignored", [-100, 2, np.int64(2)])
@together("smoothing", [0.0, 0.1, 1.0])
def test_ignored_targets_count_as_if_their_rows_were_not_there(ignored, smoothing):
    logits, targets = array(2, 4, 5), np.where(TARGETS == -1, ignored, TARGETS)
    counted, options = targets != ignored, {"ignore_index": ignored, "label_smoothing": smoothing}
    alone, alone_cache = cross_entropy_forward(logits[counted], targets[counted], label_smoothing=smoothing)
    for anything in (0.0, 1e308, np.inf, -np.inf, np.nan):
        logits[~counted] = anything
        loss, cache = cross_entropy_forward(logits, targets, **options)
        dlogits, expected = (cross_entropy_backward(1.0, c) for c in (cache, alone_cache))
        assert float(loss) == pytest.approx(float(alone), rel=1e-15) and not dlogits[~counted].any()
        np.testing.assert_allclose(dlogits[counted], expected, rtol=1e-14, atol=1e-17)


@together("dtype", [np.float64, np.float32])
@together("size", [1e4, 1e30])
def test_huge_logits_give_the_exact_loss_and_gradient(size, dtype):
    logits = np.array([[-size, size, 0], [size, size, -size], [-size, -size, -size]], dtype)
    loss, cache = cross_entropy_forward(logits, np.array([1, 0, 2]))
    np.testing.assert_allclose(loss, (0 + np.log(2) + np.log(3)) / 3, rtol=1e-6)
    wanted = np.array([[0, 0, 0], [-1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, -2 / 3]]) / 3
    np.testing.assert_allclose(cross_entropy_backward(1.0, cache), wanted, rtol=1e-6)
    smoothed, _ = cross_entropy_forward(logits[:1], np.array([1]), label_smoothing=0.3)
    np.testing.assert_allclose(smoothed, 0.1 * (2 * size + size), rtol=1e-6)


def test_a_word_ruled_out_by_minus_infinity_is_as_if_it_were_not_there():
    logits, targets = array(3, 4), np.array([0, 3, 1])
    ruled_out = np.insert(logits, 4, -np.inf, axis=-1)
    (loss, cache), (expected, without) = (cross_entropy_forward(a, targets) for a in (ruled_out, logits))
    dlogits = cross_entropy_backward(1.0, cache)
    assert loss == expected and not dlogits[:, 4].any()
    np.testing.assert_array_equal(dlogits[:, :4], cross_entropy_backward(1.0, without))


@together("dtype", [np.float32, np.float64])
def test_targets_are_integers_of_any_kind_and_the_gradient_of_the_loss_is_any_number(dtype):
    logits, targets = array(2, 3, 5, dtype=dtype), np.array([[0, 4, 2], [1, 1, 3]])
    losses = {cross_entropy_forward(logits, targets.astype(kind))[0].tobytes() for kind in INTEGERS}
    _, cache = cross_entropy_forward(logits, targets, ignore_index=-100, label_smoothing=np.float64(0.1))
    dlogits = [cross_entropy_backward(one, cache) for one in (1, 1.0, np.float64(1), np.array(1, dtype))]
    assert len(losses) == len({d.tobytes() for d in dlogits}) == 1 and dlogits[2].dtype == dtype
