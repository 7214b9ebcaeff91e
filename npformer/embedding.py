"""Token embeddings and the logits that share their matrix, forward and backward."""

import math
from typing import NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.functional import as_rows
from npformer.validation.annotations import DType, Float, Ids, Rng, Size
from npformer.validation.rules import IN_VOCABULARY


class EmbeddingParams(NamedTuple):
    """One row for each word of the vocabulary."""

    E: Float[Array, "vocab_size d_model"]


class EmbeddingCache(NamedTuple):
    ids: Ids[Array, "..."]
    E: Float[Array, "vocab_size d_model"]


class TiedLogitsCache(NamedTuple):
    x: Float[Array, "... d_model"]
    E: Float[Array, "vocab_size d_model"]


def init_embedding(
    vocab_size: Size, d_model: Size, rng: Rng, *, dtype: DType = np.float64
) -> EmbeddingParams:
    """E normal with standard deviation 1/√d_model, so that E[ids] √d_model has standard deviation 1.

    >>> init_embedding(10, 4, np.random.default_rng(0)).E.shape
    (10, 4)
    """
    E = rng.normal(0, 1 / math.sqrt(d_model), size=(vocab_size, d_model))
    return EmbeddingParams(E.astype(dtype))


def embedding_forward(
    ids: Ids[Array, "...", IN_VOCABULARY], params: EmbeddingParams
) -> tuple[Float[Array, "... d_model"], EmbeddingCache]:
    """x = E[ids] √d_model, "Attention Is All You Need", section 3.4.

    An id outside the vocabulary is refused on NumPy arrays only: on a GPU the check would have to wait.

    >>> embedding_forward(np.array([1]), EmbeddingParams(np.eye(4)))[0]
    array([[0., 2., 0., 0.]])
    """
    E = params.E
    return E[ids] * math.sqrt(E.shape[1]), EmbeddingCache(ids, E)  # (..., d_model)


def embedding_backward(dy: Float[Array, "... d_model"], cache: EmbeddingCache) -> EmbeddingParams:
    """dE[id] = √d_model Σ dy over the places where id stands: a word that occurs twice gets both gradients.

    >>> x, cache = embedding_forward(np.array([1, 1]), EmbeddingParams(np.ones((2, 1))))
    >>> embedding_backward(x, cache).E
    array([[0.],
           [2.]])
    """
    ids, E = cache
    xp = array_module(dy)
    dE = xp.zeros_like(E)
    xp.add.at(dE, ids, dy)  # dE[ids] += dy would keep one of several gradients of a repeated word
    return EmbeddingParams(dE * math.sqrt(E.shape[1]))


def tied_logits_forward(
    x: Float[Array, "... d_model"], params: EmbeddingParams
) -> tuple[Float[Array, "... vocab_size"], TiedLogitsCache]:
    """logits = x Eᵀ, with the embedding's own matrix. "Attention Is All You Need", section 3.4.

    >>> tied_logits_forward(np.ones((1, 2)), EmbeddingParams(np.ones((3, 2))))[0]
    array([[2., 2., 2.]])
    """
    E = params.E
    logits = (as_rows(x) @ E.T).reshape(*x.shape[:-1], len(E))  # (..., vocab_size)
    return logits, TiedLogitsCache(x, E)


def tied_logits_backward(
    dlogits: Float[Array, "... vocab_size"], cache: TiedLogitsCache
) -> tuple[Float[Array, "... d_model"], EmbeddingParams]:
    """dx = dlogits E, dE = dlogitsᵀ x, summed over all rows.

    >>> logits, cache = tied_logits_forward(np.ones((1, 2)), EmbeddingParams(np.ones((3, 2))))
    >>> tied_logits_backward(logits, cache)[0]
    array([[6., 6.]])
    """
    x, E = cache
    dlogits = as_rows(dlogits)  # (N, vocab_size)
    dE = dlogits.T @ as_rows(x)  # logits = x Eᵀ: (vocab_size, d_model)
    dx = (dlogits @ E).reshape(x.shape)  # logits = x Eᵀ: (..., d_model)
    return dx, EmbeddingParams(dE)
