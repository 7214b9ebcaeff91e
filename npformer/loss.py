"""Cross-entropy of logits against target ids, forward and backward."""

from typing import Annotated, Any, NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.functional import as_rows
from npformer.validation.annotations import Float, Ids, Integer, number
from npformer.validation.call import Call, Phase
from npformer.validation.checks import check_float, check_id_range, check_number, check_same_shape
from npformer.validation.rules import rule

# --- what the arguments must satisfy --------------------------------------------------------------
# Rules are conditions that a shape cannot express. Argument validation (npformer/validation) checks them.


@rule("not all ignored", Phase.MASKS, reads_values=True)
def COUNTED(targets: Any, name: str, call: Call) -> None:
    """Check that not all targets are ignored, and that all other targets are ids of the vocabulary."""
    ignore_index = call.arguments.get("ignore_index")
    if not isinstance(targets, np.ndarray):
        return
    counted = targets.ravel() if ignore_index is None else targets[targets != ignore_index]
    if counted.size == 0:
        raise call.value_error(
            f"{name} has no id that counts; expected at least one: there is nothing to average"
        )
    check_id_range(call.function, name, counted, call.sizes["vocab_size"])


@rule("one number")
def ONE_NUMBER(dloss: Any, name: str, call: Call) -> None:
    """Check that the gradient of a loss is one number: a Python number, or an array without axes.

    An array must have the dtype of the forward output, which the cache has recorded.
    """
    if isinstance(dloss, int | float):
        check_number(call.function, name, dloss)
        return
    output = "the forward's output"
    check_float(call.function, name, dloss, call.dtype, output)
    check_same_shape(call.function, name, dloss, (), output)


DLoss = Annotated[Any, ONE_NUMBER]
Smoothing = Annotated[float, number("0 <= · <= 1", minimum=0, maximum=1)]


# --- the operations -------------------------------------------------------------------------------


class CrossEntropyCache(NamedTuple):
    probabilities: Float[Array, "N vocab_size"]  # the softmax of each row of logits
    targets: Array  # (N,), with 0 where the target is ignored
    share: Array  # (N, 1), the weight of each row in the mean: 1 / number of counted targets, 0 where ignored
    label_smoothing: float
    shape: tuple[int, ...]  # the shape of the logits


def cross_entropy_forward(
    logits: Float[Array, "... vocab_size"],
    targets: Ids[Array, "...", COUNTED],
    *,
    ignore_index: Integer | None = None,
    label_smoothing: Smoothing = 0.0,
) -> tuple[Float[Array, ""], CrossEntropyCache]:
    """loss = mean of -Σ_c q_c log softmax(logits)_c over the targets, q_c = (1 - ε) [c = target] + ε / V.

    Here ε is label_smoothing, V is vocab_size, and [c = target] is 1 for the target and else 0. Label
    smoothing: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2016, section 7.
    "Attention Is All You Need", section 5.4, uses ε = 0.1.

    Parameters
    ----------
    logits : float array (..., vocab_size)
    targets : integer array (...)
        The id of the correct token in each row. At least one target must differ from ignore_index, and each
        such target must be an id of the vocabulary. This is checked for NumPy arrays only, because on a GPU
        the CPU would have to wait for the check.
    ignore_index : int, optional
        Rows with this target are left out of the loss.
    label_smoothing : float, 0 <= label_smoothing <= 1

    Returns
    -------
    loss : float array ()
    cache : CrossEntropyCache
        Input of ``cross_entropy_backward``.

    Examples
    --------
    >>> loss, cache = cross_entropy_forward(np.zeros((1, 4)), np.array([2]))
    >>> loss
    array(1.38629436)
    """
    xp = array_module(logits)
    rows = as_rows(logits)  # (N, V)
    ids = targets.reshape(-1)  # (N,)
    is_counted = xp.ones(ids.shape, bool) if ignore_index is None else ids != ignore_index  # (N,)
    share = (is_counted / is_counted.sum()).astype(logits.dtype)[:, None]  # (N, 1)
    # Zeros replace the ignored rows, so that a NaN in them does not reach the loss.
    ids = xp.where(is_counted, ids, 0)
    rows = xp.where(is_counted[:, None], rows, 0)
    shifted = rows - rows.max(axis=-1, keepdims=True)
    log_p = shifted - xp.log(xp.exp(shifted).sum(axis=-1, keepdims=True))  # (N, V)
    log_p_target = log_p[xp.arange(len(ids)), ids]  # (N,)
    eps = float(label_smoothing)
    if eps == 0:
        losses = -log_p_target  # The formula below would give 0 · (-inf) = NaN if a probability is 0.
    else:
        losses = (eps - 1) * log_p_target - eps * log_p.mean(axis=-1)  # (N,)
    loss = xp.asarray((losses * share[:, 0]).sum())  # ()
    return loss, CrossEntropyCache(xp.exp(log_p), ids, share, eps, logits.shape)


def cross_entropy_backward(dloss: DLoss, cache: CrossEntropyCache) -> Float[Array, "... vocab_size"]:
    """dlogits = dloss (softmax(logits) - q) / number of counted targets, and zero where a target is ignored.

    Parameters
    ----------
    dloss : float, or float array ()
        Gradient of the final result with respect to the loss. It is 1.0 if the loss is the final result.
    cache : CrossEntropyCache
        Second output of ``cross_entropy_forward``.

    Returns
    -------
    dlogits : float array (..., vocab_size)

    Examples
    --------
    >>> loss, cache = cross_entropy_forward(np.zeros((1, 4)), np.array([2]))
    >>> cross_entropy_backward(1.0, cache)
    array([[ 0.25,  0.25, -0.75,  0.25]])
    """
    probabilities, targets, share, eps, shape = cache
    # softmax(logits) - q, where q is ε / V for all tokens, plus 1 - ε for the target: (N, V)
    dlogits = probabilities - eps / shape[-1]
    dlogits[array_module(targets).arange(len(targets)), targets] -= 1 - eps
    dlogits *= share * dloss
    return dlogits.reshape(shape)
