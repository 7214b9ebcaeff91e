"""Cross-entropy of logits against target ids, forward and backward."""

from typing import Annotated, Any, NamedTuple

import numpy as np

from npformer.annotations import Float, Ids, Integer, number
from npformer.arrays import Array, array_module
from npformer.functional import as_rows
from npformer.signature import Call, Rule
from npformer.validate import check_d_output, check_id_range, check_number


class CrossEntropyCache(NamedTuple):
    probabilities: Float[Array, "N vocab_size"]  # the softmax of the logits, row by row
    targets: Array  # (N,), 0 where ignored
    share: Array  # (N, 1), each row's part in the mean: 1 / number of counted targets, or 0 where ignored
    label_smoothing: float
    shape: tuple[int, ...]  # of the logits


def _ask_counted(targets: Any, name: str, call: Call) -> None:
    """Those that count are in the vocabulary, and there is one at least."""
    ignore_index = call.arguments.get("ignore_index")
    if isinstance(targets, np.ndarray):
        counted = targets.ravel() if ignore_index is None else targets[targets != ignore_index]
        if counted.size == 0:
            raise ValueError(
                f"{call.function}: {name} has no id that counts; "
                "expected at least one: there is nothing to average"
            )
        check_id_range(call.function, name, counted, call.letters["vocab_size"])


def _ask_dloss(dloss: Any, name: str, call: Call) -> None:
    """One number: of Python, or an array of no axes in the logits' dtype."""
    if isinstance(dloss, int | float):
        check_number(call.function, name, dloss)
    else:
        check_d_output(call.function, name, dloss, (), call.arguments["cache"].probabilities.dtype)


COUNTED = Rule("one counts at least", _ask_counted, turn=3, by_value=True)
Smoothing = Annotated[float, number("0 <= · <= 1", minimum=0, maximum=1)]
DLoss = Annotated[Any, Rule("one number", _ask_dloss)]


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
