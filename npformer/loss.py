"""Cross-entropy of logits against target ids, forward and backward."""

from typing import NamedTuple

import numpy as np  # noqa: F401  # for the examples

from npformer.arrays import Array, array_module
from npformer.functional import as_rows
from npformer.validation.annotations import Float, Ids, Integer
from npformer.validation.rules import COUNTED, DLoss, Smoothing


class CrossEntropyCache(NamedTuple):
    probabilities: Float[Array, "N vocab_size"]  # the softmax of the logits, row by row
    targets: Array  # (N,), 0 where ignored
    share: Array  # (N, 1), each row's part in the mean: 1 / number of counted targets, or 0 where ignored
    label_smoothing: float
    shape: tuple[int, ...]  # of the logits


def cross_entropy_forward(
    logits: Float[Array, "... vocab_size"],
    targets: Ids[Array, "...", COUNTED],
    *,
    ignore_index: Integer | None = None,
    label_smoothing: Smoothing = 0.0,
) -> tuple[Float[Array, ""], CrossEntropyCache]:
    """loss = mean over the targets of -Σ_c q_c log softmax(logits)_c, with q = (1 - ε) [c = target] + ε / V.

    ε is label_smoothing (Szegedy et al., 2016; "Attention Is All You Need", section 5.4, takes 0.1). Rows
    whose target is ignore_index count for nothing, whatever they hold. That one target counts, and that each
    is in the vocabulary, is checked on NumPy arrays only: on a GPU the check would have to wait.

    >>> loss, cache = cross_entropy_forward(np.zeros((1, 4)), np.array([2]))
    >>> loss
    array(1.38629436)
    """
    xp, rows, ids = array_module(logits), as_rows(logits), targets.reshape(-1)  # (N, V), (N,)
    counts = xp.ones(ids.shape, bool) if ignore_index is None else ids != ignore_index
    share = (counts / counts.sum()).astype(logits.dtype)[:, None]  # (N, 1)
    ids, rows = xp.where(counts, ids, 0), xp.where(counts[:, None], rows, 0)
    shifted = rows - rows.max(axis=-1, keepdims=True)
    log_p = shifted - xp.log(xp.exp(shifted).sum(axis=-1, keepdims=True))  # (N, V)
    eps, right = float(label_smoothing), log_p[xp.arange(len(ids)), ids]  # (N,)
    losses = -right if eps == 0 else (eps - 1) * right - eps * log_p.mean(axis=-1)  # 0 · -inf would be NaN
    loss = xp.asarray((losses * share[:, 0]).sum())  # ()
    return loss, CrossEntropyCache(xp.exp(log_p), ids, share, eps, logits.shape)


def cross_entropy_backward(dloss: DLoss, cache: CrossEntropyCache) -> Float[Array, "... vocab_size"]:
    """dlogits = dloss (softmax(logits) - q) / number of counted targets, zero where ignored.

    dloss is one number, of Python or an array of no axes.

    >>> loss, cache = cross_entropy_forward(np.zeros((1, 4)), np.array([2]))
    >>> cross_entropy_backward(1.0, cache)
    array([[ 0.25,  0.25, -0.75,  0.25]])
    """
    probabilities, targets, share, eps, shape = cache
    dlogits = probabilities - eps / shape[-1]  # (N, V), so far softmax - q but for the target
    dlogits[array_module(targets).arange(len(targets)), targets] -= 1 - eps
    dlogits *= share * dloss
    return dlogits.reshape(shape)
