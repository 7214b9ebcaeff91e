"""The embedding and the tied logits share a matrix: equations, gradients, golden values, edge cases."""

import numpy as np
import pytest
from golden import agrees_with_pytorch
from gradients import make_gradient_test
from valid_calls import INTEGERS, array

import npformer as npf

PARAMS = npf.EmbeddingParams(array(5, 9))
IDS = np.array([[1, 1, 3], [0, 1, 4]])


# --- the equations, by hand -------------------------------------------------------------------------


def test_embedding_scales_rows_and_sums_gradients():
    """The factor is √d_model = 3. The gradient of a repeated token is the sum over all its positions."""
    x, cache = npf.embedding_forward(IDS, PARAMS)
    np.testing.assert_allclose(x, 3 * (np.eye(5)[IDS] @ PARAMS.E), rtol=0, atol=1e-15)
    dy = array(*x.shape, seed=1)
    expected = 3 * np.einsum("btv,btd->vd", np.eye(5)[IDS], dy)
    np.testing.assert_allclose(npf.embedding_backward(dy, cache).E, expected, rtol=0, atol=1e-14)


def test_tied_logits_are_products_with_every_row():
    x = array(2, 9, seed=1)
    logits, _ = npf.tied_logits_forward(x, PARAMS)
    np.testing.assert_allclose(logits, np.einsum("td,vd->tv", x, PARAMS.E), rtol=0, atol=1e-14)


# --- the gradients, the golden values ---------------------------------------------------------------

test_embedding_gradients = make_gradient_test("embedding", {"ids": IDS})
test_tied_logits_gradients = make_gradient_test("tied_logits", {}, {"lead": ()})
test_golden_values = agrees_with_pytorch("embedding", "tied_logits")


# --- the edges --------------------------------------------------------------------------------------


def test_init_embedding_has_mean_zero_and_variance_one():
    x, _ = npf.embedding_forward(np.arange(2000), npf.init_embedding(2000, 64, np.random.default_rng(0)))
    assert x.mean() == pytest.approx(0, abs=0.014)  # the mean of 128,000 draws has a standard error of 0.003
    assert x.var() == pytest.approx(1, abs=0.02)  # the variance has a standard error of 0.004


@pytest.mark.parametrize("kind", INTEGERS)
def test_embedding_accepts_every_integer_type(kind):
    """All integer types must work, though np.take rejects int64 ids on 32-bit systems, such as a browser."""
    x, cache = npf.embedding_forward(IDS.astype(kind), PARAMS)
    y, cache_of_int64 = npf.embedding_forward(IDS, PARAMS)
    assert (x == y).all() and (npf.padding_mask(IDS.astype(kind), 0) == npf.padding_mask(IDS, 0)).all()
    assert (npf.embedding_backward(y, cache).E == npf.embedding_backward(y, cache_of_int64).E).all()


def test_embedding_of_single_id():
    x, cache = npf.embedding_forward(np.array(2), PARAMS)
    dE = npf.embedding_backward(np.ones(9), cache).E
    assert x.shape == (9,) and (dE.any(axis=-1) == [False, False, True, False, False]).all()
