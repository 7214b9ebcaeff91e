"""The policy gradient: answers with a positive advantage become more probable, forward and backward."""

from typing import Any, NamedTuple

from npformer.arrays import Array, array_module
from npformer.loss import DLoss
from npformer.validation.annotations import Constant, Counted, Float
from npformer.validation.call import Call
from npformer.validation.rules import rule


@rule("not empty")
def NOT_EMPTY(log_p: Any, name: str, call: Call) -> None:
    """Check that there is at least one answer. A mean over no answers would be NaN."""
    if 0 in log_p.shape[:-1]:
        raise call.value_error(f"{name} has no answer; expected at least one: there is nothing to average")


class PolicyGradientCache(NamedTuple):
    share: Float[Array, "... T"]  # the weight of each token in the mean
    advantages: Array  # broadcasts to (..., T)


def policy_gradient_forward(
    log_p: Float[Array, "... T", NOT_EMPTY],
    *,
    advantages: Constant[Array, "... T"],
    is_counted: Counted[Array, "... T"] | None = None,
) -> tuple[Float[Array, ""], PolicyGradientCache]:
    """loss = -mean over the answers of the mean over their tokens of Â_t log π(y_t).

    Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement learning",
    1992 (REINFORCE). Only the gradient of this loss has a meaning: in expectation, it is the gradient of
    minus the expected reward. The value of the loss need not decrease.

    Parameters
    ----------
    log_p : float array (..., T)
        The log-probability of each token that the model has sampled.
    advantages : float array that broadcasts to (..., T)
        The reward of the answer minus a baseline. It gets no gradient.
    is_counted : boolean array that broadcasts to (..., T), optional
        False means that the token is padding and does not count.

    Returns
    -------
    loss : float array ()
    cache : PolicyGradientCache
        Input of ``policy_gradient_backward``.

    Examples
    --------
    >>> import numpy as np
    >>> log_p, advantages = np.log([[0.5, 0.5], [0.25, 0.25]]), np.array([[1.0], [-1.0]])
    >>> policy_gradient_forward(log_p, advantages=advantages)[0].round(3)
    np.float64(-0.347)
    """
    xp = array_module(log_p)
    share = token_shares(log_p, is_counted)  # (..., T)
    is_used = share > 0
    loss = -xp.where(is_used, share * advantages * xp.where(is_used, log_p, 0), 0).sum()  # ()
    return xp.asarray(loss), PolicyGradientCache(share, advantages)


def policy_gradient_backward(dloss: DLoss, cache: PolicyGradientCache) -> Float[Array, "... T"]:
    """dlog_p = -dloss Â_t / (number of answers · number of tokens of the answer).

    Parameters
    ----------
    dloss : float, or float array ()
        Gradient of the final result with respect to the loss. It is 1.0 if the loss is the final result.
    cache : PolicyGradientCache
        Second output of ``policy_gradient_forward``.

    Returns
    -------
    dlog_p : float array (..., T)

    Examples
    --------
    >>> import numpy as np
    >>> advantages = np.array([[1.0], [-1.0]])
    >>> loss, cache = policy_gradient_forward(np.zeros((2, 2)), advantages=advantages)
    >>> policy_gradient_backward(1.0, cache)
    array([[-0.25, -0.25],
           [ 0.25,  0.25]])
    """
    share, advantages = cache
    return -dloss * share * advantages


def token_shares(log_p: Array, is_counted: Array | None) -> Array:
    """Return the weight of each token in the mean over answers of the mean over tokens: (..., T).

    The weight is 1 / (number of answers · number of counted tokens of the answer), and 0 for other tokens.
    """
    xp = array_module(log_p)
    counted = xp.ones_like(log_p)  # (..., T)
    if is_counted is not None:
        counted = counted * is_counted
    n_tokens = xp.maximum(counted.sum(axis=-1, keepdims=True), 1)  # (..., 1)
    n_answers = n_tokens.size
    return counted / (n_tokens * n_answers)
