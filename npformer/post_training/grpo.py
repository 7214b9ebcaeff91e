"""Group relative policy optimization: the clipped objective minus the KL penalty, forward and backward."""

from typing import NamedTuple

from npformer.arrays import Array, array_module
from npformer.loss import DLoss
from npformer.post_training.clipped_policy import (
    ClippedPolicyCache,
    Epsilon,
    clipped_policy_backward,
    clipped_policy_forward,
)
from npformer.post_training.kl_penalty import KLPenaltyCache, kl_penalty_backward, kl_penalty_forward
from npformer.post_training.policy_gradient import NOT_EMPTY, token_shares
from npformer.validation.annotations import Constant, Counted, Float, NonNegative


class GRPOCache(NamedTuple):
    share: Float[Array, "... T"]  # the weight of each token in the mean
    policy: ClippedPolicyCache
    kl: KLPenaltyCache | None
    beta: float


def grpo_forward(
    log_p: Float[Array, "... T", NOT_EMPTY],
    *,
    log_p_old: Constant[Array, "... T"],
    advantages: Constant[Array, "... T"],
    log_p_ref: Constant[Array, "... T"] | None = None,
    is_counted: Counted[Array, "... T"] | None = None,
    epsilon: Epsilon = 0.2,
    beta: NonNegative = 0.04,
) -> tuple[Float[Array, ""], GRPOCache]:
    """loss = -mean over answers of the mean over tokens of min(ρ Â, clip(ρ, 1 - ε, 1 + ε) Â) - β KL.

    Shao et al., "DeepSeekMath", 2024, equation 3. Here ρ = π(y_t) / π_old(y_t), and KL is the estimate of
    ``kl_penalty_forward``. ``group_advantages`` computes Â.

    Parameters
    ----------
    log_p : float array (..., T)
        The log-probability of each token under the model that is trained.
    log_p_old : float array that broadcasts to (..., T)
        The log-probability of each token under the model that sampled it. It gets no gradient.
    advantages : float array that broadcasts to (..., T)
        For one advantage per answer, pass an array (..., 1).
    log_p_ref : float array that broadcasts to (..., T), optional
        The log-probability of each token under the reference model. Without it, there is no KL term.
    is_counted : boolean array that broadcasts to (..., T), optional
        False means that the token is padding and does not count.
    epsilon : float, 0 < epsilon < 1
    beta : float, beta >= 0

    Returns
    -------
    loss : float array ()
    cache : GRPOCache
        Input of ``grpo_backward``.

    Examples
    --------
    >>> import numpy as np
    >>> log_p, advantages = np.log([[0.5, 0.5], [0.25, 0.25]]), np.array([[1.0], [-1.0]])
    >>> grpo_forward(log_p, log_p_old=log_p, advantages=advantages)[0]
    array(-0.)
    """
    xp = array_module(log_p)
    share = token_shares(log_p, is_counted)  # (..., T)
    log_p = xp.where(share > 0, log_p, 0)  # padding may hold any number
    objective, policy_cache = clipped_policy_forward(
        log_p, log_p_old=log_p_old, advantages=advantages, epsilon=epsilon
    )
    kl_cache = None
    if log_p_ref is not None:
        kl, kl_cache = kl_penalty_forward(log_p, log_p_ref=log_p_ref)
        objective = objective - float(beta) * kl  # (..., T)
    loss = -xp.where(share > 0, share * objective, 0).sum()  # ()
    return xp.asarray(loss), GRPOCache(share, policy_cache, kl_cache, float(beta))


def grpo_backward(dloss: DLoss, cache: GRPOCache) -> Float[Array, "... T"]:
    """dlog_p = -dloss share (ρ Â [not clipped] - β (1 - π_ref / π)).

    The share of a token is 1 / (number of answers · number of tokens of the answer).

    Parameters
    ----------
    dloss : float, or float array ()
        Gradient of the final result with respect to the loss. It is 1.0 if the loss is the final result.
    cache : GRPOCache
        Second output of ``grpo_forward``.

    Returns
    -------
    dlog_p : float array (..., T)

    Examples
    --------
    >>> import numpy as np
    >>> log_p, advantages = np.log([[0.5, 0.5], [0.25, 0.25]]), np.array([[1.0], [-1.0]])
    >>> loss, cache = grpo_forward(log_p, log_p_old=log_p, advantages=advantages)
    >>> grpo_backward(1.0, cache)
    array([[-0.25, -0.25],
           [ 0.25,  0.25]])
    """
    share, policy_cache, kl_cache, beta = cache
    dobjective = -dloss * share  # from loss = -Σ share · objective: (..., T)
    dlog_p = clipped_policy_backward(dobjective, policy_cache)  # (..., T)
    if kl_cache is not None:
        dlog_p = dlog_p + kl_penalty_backward(-beta * dobjective, kl_cache)
    return dlog_p
