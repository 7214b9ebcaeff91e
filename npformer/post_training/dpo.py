"""Direct preference optimization: two answers, one loss, forward and backward."""

from typing import Any, NamedTuple

from npformer.arrays import Array, array_module
from npformer.loss import DLoss
from npformer.validation.annotations import Constant, Float, Positive
from npformer.validation.call import Call
from npformer.validation.rules import rule


@rule("not empty")
def NOT_EMPTY(log_p: Any, name: str, call: Call) -> None:
    """Check that there is at least one pair of answers. A mean over no pairs would be NaN."""
    if log_p.size == 0:
        raise call.value_error(f"{name} has no pair; expected at least one: there is nothing to average")


class DPOCache(NamedTuple):
    z: Float[Array, "..."]  # β times the difference of the two log-ratios
    beta: float


def dpo_forward(
    log_p_w: Float[Array, "...", NOT_EMPTY],
    log_p_l: Float[Array, "..."],
    *,
    log_p_ref_w: Constant[Array, "..."],
    log_p_ref_l: Constant[Array, "..."],
    beta: Positive = 0.1,
) -> tuple[Float[Array, ""], DPOCache]:
    """loss = mean of -log σ(z) with z = β ((log π(y_w) - log π_ref(y_w)) - (log π(y_l) - log π_ref(y_l))).

    Rafailov et al., "Direct Preference Optimization", 2023, equation 7. y_w is the preferred answer (it
    wins) and y_l the other one (it loses). If π = π_ref, the loss is log 2.

    Parameters
    ----------
    log_p_w : float array (...)
        log π(y_w | x): the sum of the log-probabilities of the tokens of the preferred answer.
    log_p_l : float array (...)
        log π(y_l | x).
    log_p_ref_w : float array that broadcasts to (...)
        log π_ref(y_w | x), from the model before the training. It gets no gradient.
    log_p_ref_l : float array that broadcasts to (...)
        log π_ref(y_l | x).
    beta : float, beta > 0
        β in the equation. A larger β keeps the model closer to the reference.

    Returns
    -------
    loss : float array ()
    cache : DPOCache
        Input of ``dpo_backward``.

    Examples
    --------
    >>> import numpy as np
    >>> log_p = np.array([-3.0])
    >>> dpo_forward(log_p, log_p, log_p_ref_w=log_p, log_p_ref_l=log_p)[0]
    array(0.69314718)
    """
    xp = array_module(log_p_w)
    z = float(beta) * ((log_p_w - log_p_ref_w) - (log_p_l - log_p_ref_l))  # (...)
    losses = xp.logaddexp(xp.zeros_like(z), -z)  # -log σ(z) = log(1 + exp(-z)): (...)
    return xp.asarray(losses.mean()), DPOCache(z, float(beta))


def dpo_backward(dloss: DLoss, cache: DPOCache) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """dlog_p_w = -β σ(-z) / N and dlog_p_l = +β σ(-z) / N.

    σ(-z) is the probability that the model gives to the wrong order of the two answers. So a pair that is
    already in the correct order hardly changes the model.

    Parameters
    ----------
    dloss : float, or float array ()
        Gradient of the final result with respect to the loss. It is 1.0 if the loss is the final result.
    cache : DPOCache
        Second output of ``dpo_forward``.

    Returns
    -------
    dlog_p_w : float array (...)
    dlog_p_l : float array (...)

    Examples
    --------
    >>> import numpy as np
    >>> log_p = np.array([-3.0])
    >>> loss, cache = dpo_forward(log_p, log_p, log_p_ref_w=log_p, log_p_ref_l=log_p, beta=0.5)
    >>> dpo_backward(1.0, cache)
    (array([-0.25]), array([0.25]))
    """
    z, beta = cache
    xp = array_module(z)
    wrong = xp.exp(-xp.logaddexp(xp.zeros_like(z), z))  # σ(-z), without overflow: (...)
    dz = -wrong * (dloss / z.size)  # from loss = mean of -log σ(z): (...)
    return beta * dz, -beta * dz  # from z = β (… log π(y_w) … - log π(y_l) …)
