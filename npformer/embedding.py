"""Token embeddings, and the logits that share their matrix, forward and backward.

In a backward function, ``# from logits = x Eᵀ: (..., d_model)`` means that the line differentiates this
forward equation, and that its result has the shape (..., d_model).
"""

import math
from typing import NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.functional import as_rows
from npformer.validation.annotations import DType, Float, Ids, Rng, Size
from npformer.validation.rules import IN_VOCABULARY


class EmbeddingParams(NamedTuple):
    """The embedding matrix E, with one row for each token of the vocabulary."""

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
    """Draw E from a normal distribution with standard deviation 1/√d_model.

    Then E[ids] √d_model, the output of ``embedding_forward``, has standard deviation 1.

    Parameters
    ----------
    vocab_size : int
        The number of tokens in the vocabulary.
    d_model : int
        The number of columns.
    rng : numpy.random.Generator
    dtype : numpy.float32 or numpy.float64

    Returns
    -------
    params : EmbeddingParams

    Examples
    --------
    >>> init_embedding(10, 4, np.random.default_rng(0)).E.shape
    (10, 4)
    """
    E = rng.normal(0, 1 / math.sqrt(d_model), size=(vocab_size, d_model))
    return EmbeddingParams(E.astype(dtype))


def embedding_forward(
    ids: Ids[Array, "...", IN_VOCABULARY], params: EmbeddingParams
) -> tuple[Float[Array, "... d_model"], EmbeddingCache]:
    """x = E[ids] √d_model. "Attention Is All You Need", section 3.4.

    Parameters
    ----------
    ids : integer array (...)
        Token ids from 0 to vocab_size - 1. The range is checked for NumPy arrays only, because on a GPU the
        CPU would have to wait for the check.
    params : EmbeddingParams

    Returns
    -------
    x : float array (..., d_model)
    cache : EmbeddingCache
        Input of ``embedding_backward``.

    Examples
    --------
    >>> embedding_forward(np.array([1]), EmbeddingParams(np.eye(4)))[0]
    array([[0., 2., 0., 0.]])
    """
    E = params.E
    return E[ids] * math.sqrt(E.shape[1]), EmbeddingCache(ids, E)  # (..., d_model)


def embedding_backward(dy: Float[Array, "... d_model"], cache: EmbeddingCache) -> EmbeddingParams:
    """dE[id] = √d_model Σ dy, summed over all positions that hold this id.

    A token that occurs twice receives both gradients.

    Parameters
    ----------
    dy : float array (..., d_model)
        Gradient of the loss with respect to the output of ``embedding_forward``.
    cache : EmbeddingCache
        Second output of ``embedding_forward``.

    Returns
    -------
    grads : EmbeddingParams
        The gradient of E.

    Examples
    --------
    >>> x, cache = embedding_forward(np.array([1, 1]), EmbeddingParams(np.ones((2, 1))))
    >>> embedding_backward(x, cache).E
    array([[0.],
           [2.]])
    """
    ids, E = cache
    xp = array_module(dy)
    dE = xp.zeros_like(E)
    # dE[ids] += dy would add only one of the gradients of a repeated token. add.at adds all of these
    # gradients.
    xp.add.at(dE, ids, dy)  # from x = E[ids] √d_model
    return EmbeddingParams(dE * math.sqrt(E.shape[1]))


def tied_logits_forward(
    x: Float[Array, "... d_model"], params: EmbeddingParams
) -> tuple[Float[Array, "... vocab_size"], TiedLogitsCache]:
    """logits = x Eᵀ, with the matrix of the embedding. "Attention Is All You Need", section 3.4.

    Parameters
    ----------
    x : float array (..., d_model)
    params : EmbeddingParams
        The parameters of the token embedding, which the logits share.

    Returns
    -------
    logits : float array (..., vocab_size)
    cache : TiedLogitsCache
        Input of ``tied_logits_backward``.

    Examples
    --------
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

    Parameters
    ----------
    dlogits : float array (..., vocab_size)
        Gradient of the loss with respect to the logits.
    cache : TiedLogitsCache
        Second output of ``tied_logits_forward``.

    Returns
    -------
    dx : float array (..., d_model)
    grads : EmbeddingParams
        The gradient of E from this use of E. The embedding adds a second gradient.

    Examples
    --------
    >>> logits, cache = tied_logits_forward(np.ones((1, 2)), EmbeddingParams(np.ones((3, 2))))
    >>> tied_logits_backward(logits, cache)[0]
    array([[6., 6.]])
    """
    x, E = cache
    dlogits = as_rows(dlogits)  # (N, vocab_size)
    dE = dlogits.T @ as_rows(x)  # from logits = x Eᵀ: (vocab_size, d_model)
    dx = (dlogits @ E).reshape(x.shape)  # from logits = x Eᵀ: (..., d_model)
    return dx, EmbeddingParams(dE)
