"""Cross-entropy of logits against target ids, forward and backward."""

from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array, array_module
from npformer.embedding import check_id_range
from npformer.functional import as_rows
from npformer.validate import check_array, check_d_output, check_ids, check_integer, check_kind, check_number


class CrossEntropyCache(NamedTuple):
    probabilities: Array  # (N, vocab_size), the softmax of the logits, row by row
    targets: Array  # (N,), 0 where ignored
    share: Array  # (N, 1), each row's part in the mean: 1 / number of counted targets, or 0 where ignored
    label_smoothing: float
    shape: tuple[int, ...]  # of the logits


def cross_entropy_forward(
    logits: Array, targets: Array, *, ignore_index: int | None = None, label_smoothing: float = 0.0
) -> tuple[Array, CrossEntropyCache]:
    """loss = mean over the targets of -Σ_c q_c log softmax(logits)_c, with q = (1 - ε) [c = target] + ε / V.

    logits (..., vocab_size), targets (...) integers -> loss (), in the logits' dtype. ε is label_smoothing
    (Szegedy et al., 2016; "Attention Is All You Need", section 5.4, takes 0.1). Targets equal to
    ignore_index do not count.

    Raises TypeError for logits that are not floats or targets that are not integers, ValueError for shapes
    that do not fit, a target outside the vocabulary or no target that counts (values are checked on NumPy
    arrays only: on a GPU it would wait).

    >>> loss, cache = cross_entropy_forward(np.zeros((1, 4)), np.array([2]))
    >>> loss
    array(1.38629436)
    """
    _check_loss(logits, targets, ignore_index, label_smoothing)

    xp, rows, ids = array_module(logits), as_rows(logits), targets.reshape(-1)  # (N, V), (N,)
    counts = xp.ones(ids.shape, bool) if ignore_index is None else ids != ignore_index
    share = (counts / counts.sum()).astype(logits.dtype)[:, None]  # (N, 1)
    ids = xp.where(counts, ids, 0)
    log_p = rows - rows.max(axis=-1, keepdims=True)
    log_p -= xp.log(xp.exp(log_p).sum(axis=-1, keepdims=True))  # (N, V)
    smoothing = float(label_smoothing)
    right = log_p[xp.arange(len(ids)), ids]  # (N,)
    losses = -right if smoothing == 0 else (smoothing - 1) * right - smoothing * log_p.mean(axis=-1)
    loss = xp.asarray((losses * share[:, 0]).sum())  # ()
    return loss, CrossEntropyCache(xp.exp(log_p), ids, share, smoothing, logits.shape)


def cross_entropy_backward(dloss: float | Array, cache: CrossEntropyCache) -> Array:
    """dlogits = dloss (softmax(logits) - q) / number of counted targets, zero where ignored.

    dloss () -> dlogits (..., vocab_size). Raises TypeError for another function's cache, ValueError for a
    dloss that is not one number.

    >>> loss, cache = cross_entropy_forward(np.zeros((1, 4)), np.array([2]))
    >>> cross_entropy_backward(1.0, cache)
    array([[ 0.25,  0.25, -0.75,  0.25]])
    """
    check_kind("cross_entropy_backward", "cache", cache, CrossEntropyCache)
    probabilities, targets, share, smoothing, shape = cache
    if isinstance(dloss, int | float):
        check_number("cross_entropy_backward", "dloss", dloss)
    else:
        check_d_output("cross_entropy_backward", "dloss", dloss, (), probabilities.dtype)
    dlogits = probabilities - smoothing / shape[-1]  # (N, V)
    dlogits[array_module(targets).arange(len(targets)), targets] -= 1 - smoothing
    dlogits *= share * dloss
    return dlogits.reshape(shape)


def _check_loss(logits: Any, targets: Any, ignore_index: Any, label_smoothing: Any) -> None:
    function = "cross_entropy_forward"
    check_array(function, "logits", logits, ("...", "vocab_size"), {})
    check_ids(function, "targets", targets)
    if targets.shape != logits.shape[:-1]:
        raise ValueError(
            f"{function}: targets has shape {targets.shape}; "
            f"expected {logits.shape[:-1]}, an id for each row of logits"
        )
    if ignore_index is not None:
        check_integer(function, "ignore_index", ignore_index)
    check_number(function, "label_smoothing", label_smoothing, minimum=0)
    if label_smoothing > 1:
        raise ValueError(f"{function}: label_smoothing is {label_smoothing}; expected a number from 0 to 1")
    if isinstance(targets, np.ndarray):
        counted = targets.ravel() if ignore_index is None else targets[targets != ignore_index]
        if counted.size == 0:
            raise ValueError(
                f"{function}: targets has no id that counts; "
                "expected at least one: there is nothing to average"
            )
        check_id_range(function, "targets", counted, logits.shape[-1])
