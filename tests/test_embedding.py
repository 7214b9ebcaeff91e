"""The embedding and the logits that share its matrix: what is promised, and what happens at their edges."""

import numpy as np
import pytest
from golden import agrees_with_pytorch
from together import failures
from valid_calls import INTEGERS, MODEL, VOCAB_SIZE, all_zero, array, ids

from npformer import (
    EmbeddingParams,
    cross_entropy_forward,
    embedding_backward,
    embedding_forward,
    gradcheck,
    init_embedding,
    padding_mask,
    tied_logits_backward,
    tied_logits_forward,
)


@pytest.fixture
def params():
    return EmbeddingParams(np.random.default_rng(0).normal(size=(5, 9)))


# --- the equation, by hand --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ids", [np.array([[0, 4], [4, 4]]), np.array([2]), np.array(3), np.zeros((0, 3), int)]
)
@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_rows_times_the_root_of_d_model(params, ids, kind):
    x, _ = embedding_forward(ids.astype(kind), params)
    assert x.shape == (*ids.shape, 9)
    for place in np.ndindex(ids.shape):
        np.testing.assert_allclose(x[place], 3 * params.E[ids[place]], rtol=1e-15)


def test_it_is_the_product_with_one_hot_rows(params):
    ids = np.array([[1, 1, 3], [0, 1, 4]])
    x, cache = embedding_forward(ids, params)
    np.testing.assert_allclose(x, 3 * (np.eye(5)[ids] @ params.E), rtol=0, atol=1e-15)
    dy = np.random.default_rng(1).normal(size=x.shape)
    expected = 3 * np.einsum("btv,btd->vd", np.eye(5)[ids], dy)
    np.testing.assert_allclose(embedding_backward(dy, cache).E, expected, rtol=0, atol=1e-14)


def test_the_logits_are_products_with_every_word(params):
    x = np.random.default_rng(1).normal(size=(2, 9))
    logits, _ = tied_logits_forward(x, params)
    for i in range(2):
        for word in range(5):
            assert logits[i, word] == pytest.approx(x[i] @ params.E[word], rel=1e-14)


def test_drawn_around_zero_with_the_deviation_that_is_told():
    E = init_embedding(400, 100, np.random.default_rng(0)).E
    assert abs(E.mean()) < 5 * 0.1 / 200  # the mean of 40,000 draws
    assert E.std() == pytest.approx(0.1, rel=0.02)


def test_embeddings_times_the_root_of_d_model_have_variance_one():
    x, _ = embedding_forward(np.arange(2000), init_embedding(2000, 64, np.random.default_rng(0)))
    assert x.var() == pytest.approx(1, abs=0.02)  # 128,000 draws: a standard deviation of 0.004


# --- the gradient -----------------------------------------------------------------------------------


def test_gradients(params):
    ids = np.array([[1, 1, 3], [0, 1, 4]])
    assert gradcheck(embedding_forward, embedding_backward, ids, params)
    assert gradcheck(
        tied_logits_forward, tied_logits_backward, np.random.default_rng(1).normal(size=(2, 3, 9)), params
    )


# --- the golden value -------------------------------------------------------------------------------


test_golden_values = agrees_with_pytorch("embedding", "tied_logits")


# --- the edges --------------------------------------------------------------------------------------


def test_ids_of_every_integer_type_mean_the_same():
    """np.take would refuse int64 ids where an index has 32 bits (in a browser)."""
    assert failures(check_ids, [(kind,) for kind in INTEGERS]) == {}


def check_ids(kind):
    wide, narrow = ids(2, 6), ids(2, 6).astype(kind)
    y, cache = embedding_forward(narrow, MODEL.embedding)
    expected, expected_cache = embedding_forward(wide, MODEL.embedding)
    np.testing.assert_array_equal(y, expected)
    grads, expected_grads = embedding_backward(y, cache), embedding_backward(y, expected_cache)
    np.testing.assert_array_equal(grads.E, expected_grads.E)
    logits = array(2, 6, VOCAB_SIZE)
    assert cross_entropy_forward(logits, narrow)[0] == cross_entropy_forward(logits, wide)[0]
    np.testing.assert_array_equal(padding_mask(narrow, 0), padding_mask(wide, 0))


def test_one_id_alone_is_copied_out_of_the_table():
    E = MODEL.embedding.E.copy()
    x, cache = embedding_forward(np.array(2), MODEL.embedding)
    assert x.shape == (8,) and (MODEL.embedding.E == E).all()
    dE = embedding_backward(np.ones(8), cache).E
    assert dE[2].all() and all_zero(np.delete(dE, 2, axis=0))
