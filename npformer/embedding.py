"""Token embeddings and the logits that share their matrix, forward and backward."""

from __future__ import annotations  # np.random.Generator in a signature would import numpy.random

import math
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array, array_module
from npformer.functional import as_rows
from npformer.validate import (
    check_array,
    check_d_output,
    check_dtype,
    check_float,
    check_generator,
    check_ids,
    check_integer,
    check_kind,
    check_params,
)


class EmbeddingParams(NamedTuple):
    """One row for each word of the vocabulary."""

    E: Array  # (vocab_size, d_model)


class EmbeddingCache(NamedTuple):
    ids: Array  # (...)
    E: Array


class TiedLogitsCache(NamedTuple):
    x: Array  # (..., d_model)
    E: Array


def init_embedding(
    vocab_size: int, d_model: int, rng: np.random.Generator, *, dtype: Any = np.float64
) -> EmbeddingParams:
    """E normal with standard deviation 1/√d_model, so that E[ids] √d_model has 1: (vocab_size, d_model).

    Raises TypeError or ValueError unless the sizes are integers >= 1 and rng is a Generator.

    >>> init_embedding(10, 4, np.random.default_rng(0)).E.shape
    (10, 4)
    """
    check_integer("init_embedding", "vocab_size", vocab_size, minimum=1)
    check_integer("init_embedding", "d_model", d_model, minimum=1)
    check_generator("init_embedding", rng, required=True)
    dtype = check_dtype("init_embedding", dtype)
    E = rng.normal(0, 1 / math.sqrt(d_model), size=(vocab_size, d_model))
    return EmbeddingParams(E.astype(dtype))


def embedding_forward(ids: Array, params: EmbeddingParams) -> tuple[Array, EmbeddingCache]:
    """x = E[ids] √d_model: ids (..., T) integers -> x (..., T, d_model).

    "Attention Is All You Need", section 3.4. Raises TypeError unless ids is an array of integers,
    ValueError for an id outside the vocabulary (checked on NumPy arrays only: on a GPU it would wait).

    >>> embedding_forward(np.array([1]), EmbeddingParams(np.eye(4)))[0]
    array([[0., 2., 0., 0.]])
    """
    check_params("embedding_forward", "params", params, EmbeddingParams, EMBEDDING_AXES, {})
    check_ids("embedding_forward", "ids", ids)
    E = params.E
    check_id_range("embedding_forward", "ids", ids, len(E))
    x = E[ids]  # (..., T, d_model), a copy
    x *= math.sqrt(E.shape[1])
    return x, EmbeddingCache(ids, E)


def embedding_backward(dy: Array, cache: EmbeddingCache) -> EmbeddingParams:
    """dE[id] = √d_model Σ dy where id stands: dy (..., T, d_model) -> dE (vocab_size, d_model).

    A word that occurs twice gets both gradients. Raises TypeError for another function's cache,
    ValueError for a dy that has not the output's shape.

    >>> x, cache = embedding_forward(np.array([1, 1]), EmbeddingParams(np.ones((2, 1))))
    >>> embedding_backward(x, cache).E
    array([[0.],
           [2.]])
    """
    check_kind("embedding_backward", "cache", cache, EmbeddingCache)
    ids, E = cache
    check_d_output("embedding_backward", "dy", dy, (*ids.shape, E.shape[1]), E.dtype)
    xp = array_module(dy)
    dE = xp.zeros_like(E)
    xp.add.at(dE, ids, dy)  # dE[ids] += dy would keep one of several gradients of a repeated word
    dE *= math.sqrt(E.shape[1])
    return EmbeddingParams(dE)


def tied_logits_forward(x: Array, params: EmbeddingParams) -> tuple[Array, TiedLogitsCache]:
    """logits = x Eᵀ, with the embedding's own matrix: x (..., d_model) -> logits (..., vocab_size).

    "Attention Is All You Need", section 3.4. Raises TypeError for arrays that are not of one float dtype,
    ValueError for shapes that do not fit.

    >>> tied_logits_forward(np.ones((1, 2)), EmbeddingParams(np.ones((3, 2))))[0]
    array([[2., 2., 2.]])
    """
    check_float("tied_logits_forward", "x", x)
    check_params("tied_logits_forward", "params", params, EmbeddingParams, EMBEDDING_AXES, {}, x.dtype)
    E = params.E
    check_array("tied_logits_forward", "x", x, ("...", "d_model"), {"d_model": E.shape[1]})
    logits = (as_rows(x) @ E.T).reshape(*x.shape[:-1], len(E))  # (..., vocab_size)
    return logits, TiedLogitsCache(x, E)


def tied_logits_backward(dlogits: Array, cache: TiedLogitsCache) -> tuple[Array, EmbeddingParams]:
    """dx = dlogits E, dE = dlogitsᵀ x, summed over all rows.

    dlogits (..., vocab_size) -> dx (..., d_model), dE (vocab_size, d_model). Raises TypeError for another
    function's cache, ValueError for dlogits that have not the output's shape.

    >>> logits, cache = tied_logits_forward(np.ones((1, 2)), EmbeddingParams(np.ones((3, 2))))
    >>> tied_logits_backward(logits, cache)[0]
    array([[6., 6.]])
    """
    check_kind("tied_logits_backward", "cache", cache, TiedLogitsCache)
    x, E = cache
    check_d_output("tied_logits_backward", "dlogits", dlogits, (*x.shape[:-1], len(E)), E.dtype)
    rows = as_rows(dlogits)  # (N, vocab_size)
    dx = (rows @ E).reshape(x.shape)  # (..., d_model)
    return dx, EmbeddingParams(rows.T @ as_rows(x))


EMBEDDING_AXES = {"E": ("vocab_size", "d_model")}


def check_id_range(function: str, argument: str, ids: Array, vocab_size: int) -> None:
    """Refuse ids that name no row; NumPy would read -1 as the last word. Looks at values on the host only."""
    if not isinstance(ids, np.ndarray) or ids.size == 0 or (ids.min() >= 0 and ids.max() < vocab_size):
        return
    wrong = ids[(ids < 0) | (ids >= vocab_size)][0]
    raise ValueError(
        f"{function}: {argument} holds {wrong}; expected ids from 0 to {vocab_size - 1}, the vocabulary"
    )
