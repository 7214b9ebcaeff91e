"""Cross-entropy: what is promised, and what happens at its edges."""

import math

import numpy as np
import pytest
from golden import agrees_with_pytorch
from together import together
from valid_calls import array, ids

from npformer import (
    cross_entropy_backward,
    cross_entropy_forward,
    gradcheck,
)

SMOOTHINGS = [0.0, 0.1, 1.0]
DTYPES = together("dtype", [np.float64, np.float32])


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def distribution(word, vocab_size, smoothing):
    """ε spread over all words, and the rest on the right one."""
    return [(1 - smoothing) * (c == word) + smoothing / vocab_size for c in range(vocab_size)]


def surprise(row, word, smoothing):
    """-Σ q log p of one row, with sums that lose no digit."""
    total = math.fsum(math.exp(s) for s in row)
    q = distribution(word, len(row), smoothing)
    return -math.fsum(share * math.log(math.exp(s) / total) for share, s in zip(q, row, strict=True))


# --- the equation, by hand --------------------------------------------------------------------------


def test_by_hand():
    """The model says ¼ and ¾; wanted is the first word, or with ε = ½ the first by ¾ and the other by ¼."""
    logits = np.array([[0.0, math.log(3)]])
    assert float(cross_entropy_forward(logits, np.array([0]))[0]) == pytest.approx(math.log(4), rel=1e-15)
    smoothed, cache = cross_entropy_forward(logits, np.array([0]), label_smoothing=0.5)
    assert float(smoothed) == pytest.approx(0.75 * math.log(4) + 0.25 * math.log(4 / 3), rel=1e-15)
    np.testing.assert_allclose(cross_entropy_backward(1.0, cache), [[-0.5, 0.5]], rtol=1e-15)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("leading", [(), (4,), (2, 3), (2, 1, 3)])
def test_it_is_the_mean_surprise_of_the_rows(rng, leading, smoothing):
    logits, targets = 2 * rng.normal(size=(*leading, 5)), rng.integers(5, size=leading)
    loss, _ = cross_entropy_forward(logits, np.asarray(targets), label_smoothing=smoothing)
    rows = zip(logits.reshape(-1, 5).tolist(), np.ravel(targets).tolist(), strict=True)
    assert loss.shape == ()
    assert float(loss) == pytest.approx(np.mean([surprise(*row, smoothing) for row in rows]), rel=1e-14)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_equal_logits_cost_the_logarithm_of_the_vocabulary(smoothing):
    loss, _ = cross_entropy_forward(np.full((3, 8), 7.0), np.array([0, 5, 7]), label_smoothing=smoothing)
    assert float(loss) == pytest.approx(math.log(8), rel=1e-15)


@pytest.mark.parametrize("smoothing", [0.1, 0.5, 1.0])
def test_smoothing_asks_for_a_distribution_and_no_more(smoothing):
    """The loss is lowest, and its gradient zero, where the model says just what is wanted."""
    wanted = np.array([distribution(2, 4, smoothing)])
    loss, cache = cross_entropy_forward(np.log(wanted), np.array([2]), label_smoothing=smoothing)
    assert float(loss) == pytest.approx(-(wanted * np.log(wanted)).sum(), rel=1e-14)  # its entropy
    np.testing.assert_allclose(cross_entropy_backward(1.0, cache), 0, rtol=0, atol=1e-15)


# --- the gradient -----------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_gradients(rng, smoothing):
    logits, targets = rng.normal(size=(2, 3, 5)), np.array([[0, -1, 4], [3, 3, -1]])
    report = gradcheck(
        cross_entropy_forward,
        cross_entropy_backward,
        logits,
        targets,
        ignore_index=-1,
        label_smoothing=smoothing,
    )
    assert report and report.rows[0].error < 1e-9, report


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_the_gradient_is_what_is_said_minus_what_is_wanted(rng, smoothing):
    """Each row of it adds up to zero: raising all logits alike changes nothing."""
    logits, targets = rng.normal(size=(6, 5)), np.array([0, 1, 4, -1, 2, 2])
    options = {"ignore_index": -1, "label_smoothing": smoothing}
    loss, cache = cross_entropy_forward(logits, targets, **options)
    dlogits = cross_entropy_backward(3.0, cache)
    np.testing.assert_allclose(dlogits.sum(axis=-1), 0, rtol=0, atol=1e-15)
    assert float(cross_entropy_forward(logits + 50, targets, **options)[0]) == pytest.approx(
        float(loss), rel=1e-13
    )
    said = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    wanted = [distribution(word, 5, smoothing) for word in targets]
    expected = 3 / 5 * (said - wanted) * (targets != -1)[:, None]  # five targets count
    np.testing.assert_allclose(dlogits, expected, rtol=0, atol=1e-15)


# --- the golden value -------------------------------------------------------------------------------


test_golden_values = agrees_with_pytorch("cross_entropy")


# --- the edges --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ignored", [-100, 2, np.int64(2)])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_ignored_targets_count_as_if_their_rows_were_not_there(rng, ignored, smoothing):
    logits, targets = rng.normal(size=(2, 4, 5)), np.array([[0, ignored, 4, 1], [ignored, 3, ignored, 1]])
    options = {"ignore_index": ignored, "label_smoothing": smoothing}
    loss, cache = cross_entropy_forward(logits, targets, **options)
    counted = targets != ignored
    alone, alone_cache = cross_entropy_forward(logits[counted], targets[counted], label_smoothing=smoothing)
    assert float(loss) == pytest.approx(float(alone), rel=1e-15)
    dlogits = cross_entropy_backward(1.0, cache)
    assert not dlogits[~counted].any()
    np.testing.assert_allclose(
        dlogits[counted], cross_entropy_backward(1.0, alone_cache), rtol=1e-14, atol=1e-17
    )
    for anything in (1e4, 1e308, np.inf, -np.inf, np.nan):
        logits[~counted] = anything
        again, cache = cross_entropy_forward(logits, targets, **options)
        assert again == loss and (cross_entropy_backward(1.0, cache) == dlogits).all()


def test_a_mean_over_no_target_is_refused():
    for logits, targets in ((array(0, 5), ids(0)), (array(2, 0, 5), ids(2, 0))):
        with pytest.raises(ValueError, match=r"^cross_entropy_forward: targets has no id that counts"):
            cross_entropy_forward(logits, targets)
    with pytest.raises(ValueError, match=r"nothing to average"):
        cross_entropy_forward(array(2, 5), np.array([3, 3]), ignore_index=3)


@DTYPES
@together("size", [1e4, 1e30])
def test_huge_logits_give_the_exact_loss_and_gradient(size, dtype):
    logits = np.array([[-size, size, 0], [size, size, -size], [-size, -size, -size]], dtype)
    loss, cache = cross_entropy_forward(logits, np.array([1, 0, 2]))
    np.testing.assert_allclose(loss, (0 + np.log(2) + np.log(3)) / 3, rtol=1e-6)
    wanted = np.array([[0, 0, 0], [-1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, -2 / 3]]) / 3
    np.testing.assert_allclose(cross_entropy_backward(1.0, cache), wanted, rtol=1e-6)
    loss, _ = cross_entropy_forward(logits[:1], np.array([0]))
    np.testing.assert_allclose(loss, 2 * size, rtol=1e-6)
    smoothed, _ = cross_entropy_forward(logits[:1], np.array([1]), label_smoothing=0.3)
    np.testing.assert_allclose(smoothed, 0.1 * (2 * size + size), rtol=1e-6)


def test_a_word_ruled_out_by_minus_infinity_is_as_if_it_were_not_there(rng):
    logits, targets = rng.normal(size=(3, 4)), np.array([0, 3, 1])
    longer = np.insert(logits, 4, -np.inf, axis=-1)
    loss, cache = cross_entropy_forward(longer, targets)
    expected, expected_cache = cross_entropy_forward(logits, targets)
    assert loss == expected
    dlogits = cross_entropy_backward(1.0, cache)
    assert not dlogits[:, 4].any()
    np.testing.assert_array_equal(dlogits[:, :4], cross_entropy_backward(1.0, expected_cache))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_dtypes_of_logits_and_targets(rng, dtype, kind):
    logits, targets = rng.normal(size=(2, 3, 5)).astype(dtype), np.array([[0, 4, 2], [1, 1, 3]], kind)
    loss, cache = cross_entropy_forward(logits, targets, ignore_index=-100, label_smoothing=np.float64(0.1))
    assert loss.dtype == dtype and loss.shape == ()
    for one in (1, 1.0, np.float64(1), np.array(1, dtype)):
        dlogits = cross_entropy_backward(one, cache)
        assert dlogits.dtype == dtype and dlogits.shape == logits.shape
        np.testing.assert_array_equal(dlogits, cross_entropy_backward(1.0, cache))
    np.testing.assert_allclose(
        cross_entropy_backward(-2.5, cache), -2.5 * cross_entropy_backward(1.0, cache), rtol=1e-6
    )


def test_rows_that_are_not_contiguous_give_the_same_loss(rng):
    logits, targets = rng.normal(size=(5, 3, 4)), rng.integers(5, size=(3, 4))
    turned = np.moveaxis(logits, 0, -1)  # the vocabulary first in memory
    assert not turned.flags.c_contiguous
    loss, cache = cross_entropy_forward(turned, targets[:, ::-1])
    same, same_cache = cross_entropy_forward(np.ascontiguousarray(turned), targets[:, ::-1].copy())
    assert loss == same
    np.testing.assert_array_equal(cross_entropy_backward(1.0, cache), cross_entropy_backward(1.0, same_cache))
