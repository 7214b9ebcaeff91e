"""The log-probability of each token of a sequence, forward and backward."""

from typing import Any, NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.validation.annotations import Float, Ids, Integer
from npformer.validation.call import Call, Phase
from npformer.validation.checks import check_id_range
from npformer.validation.rules import rule


@rule("below vocab_size unless ignored", Phase.MASKS, reads_values=True)
def TOKENS(targets: Any, name: str, call: Call) -> None:
    """Check that all targets that are not ignored are ids of the vocabulary."""
    ignore_index = call.arguments.get("ignore_index")
    if not isinstance(targets, np.ndarray):
        return
    counted = targets.ravel() if ignore_index is None else targets[targets != ignore_index]
    check_id_range(call.function, name, counted, call.sizes["vocab_size"])


class TokenLogProbsCache(NamedTuple):
    probabilities: Float[Array, "... vocab_size"]  # the softmax of the logits
    targets: Array  # (...), with 0 where the target is ignored
    is_counted: Array  # (...), False where the target is ignored


def token_log_probs_forward(
    logits: Float[Array, "... vocab_size"],
    targets: Ids[Array, "...", TOKENS],
    *,
    ignore_index: Integer | None = None,
) -> tuple[Float[Array, "..."], TokenLogProbsCache]:
    """log π(y_t | x, y_<t) = log softmax(logits)[y_t] for each token, and 0 where the target is ignored.

    The log-probability of a whole answer, log π(y | x), is the sum over its tokens: ``log_p.sum(axis=-1)``.
    In the backward pass, each of these tokens receives the gradient of the sum.

    Parameters
    ----------
    logits : float array (..., vocab_size)
    targets : integer array (...)
        The id of the next token at each position, for example from ``answer_targets``.
    ignore_index : int, optional
        Tokens with this target get 0, and do not change a sum.

    Returns
    -------
    log_p : float array (...)
    cache : TokenLogProbsCache
        Input of ``token_log_probs_backward``.

    Examples
    --------
    >>> logits = np.log(np.array([[0.25, 0.75], [0.5, 0.5]]))
    >>> log_p, cache = token_log_probs_forward(logits, np.array([1, 0]))
    >>> np.exp(log_p.sum(axis=-1)).round(3)
    np.float64(0.375)
    """
    xp = array_module(logits)
    is_counted = xp.ones(targets.shape, bool) if ignore_index is None else targets != ignore_index  # (...)
    # Zeros replace the ignored rows, so that a NaN in them does not reach the result.
    ids = xp.where(is_counted, targets, 0)
    rows = xp.where(is_counted[..., None], logits, 0)
    shifted = rows - rows.max(axis=-1, keepdims=True)
    log_softmax = shifted - xp.log(xp.exp(shifted).sum(axis=-1, keepdims=True))  # (..., vocab_size)
    log_p = xp.take_along_axis(log_softmax, ids[..., None], axis=-1)[..., 0]  # (...)
    log_p = xp.where(is_counted, log_p, 0)
    return log_p, TokenLogProbsCache(xp.exp(log_softmax), ids, is_counted)


def token_log_probs_backward(
    dlog_p: Float[Array, "..."], cache: TokenLogProbsCache
) -> Float[Array, "... vocab_size"]:
    """dlogits = dlog_p ([c = y_t] - softmax(logits)_c), and 0 where the target is ignored.

    [c = y_t] is 1 for the target and 0 for all other tokens. The sign is the opposite of cross-entropy's.

    Parameters
    ----------
    dlog_p : float array (...)
        Gradient of the loss with respect to log_p.
    cache : TokenLogProbsCache
        Second output of ``token_log_probs_forward``.

    Returns
    -------
    dlogits : float array (..., vocab_size)

    Examples
    --------
    >>> logits = np.log(np.array([[0.25, 0.75]]))
    >>> log_p, cache = token_log_probs_forward(logits, np.array([1]))
    >>> token_log_probs_backward(np.ones(1), cache)
    array([[-0.25,  0.25]])
    """
    probabilities, targets, is_counted = cache
    xp = array_module(probabilities)
    is_target = xp.arange(probabilities.shape[-1]) == targets[..., None]  # (..., vocab_size)
    dlog_p = xp.where(is_counted, dlog_p, 0)
    return dlog_p[..., None] * (is_target - probabilities)
