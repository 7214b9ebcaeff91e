"""The clipped objective for answers of an earlier version of the model, forward and backward."""

from typing import Annotated, NamedTuple

from npformer.arrays import Array, array_module
from npformer.validation.annotations import Constant, Float, number

Epsilon = Annotated[float, number("0 < · < 1", above=0, below=1)]


class ClippedPolicyCache(NamedTuple):
    rho: Float[Array, "..."]  # π(y_t) / π_old(y_t)
    advantages: Array  # broadcasts to (...)
    is_clipped: Array  # (...), True where the minimum is the clipped term, which is constant


def clipped_policy_forward(
    log_p: Float[Array, "..."],
    *,
    log_p_old: Constant[Array, "..."],
    advantages: Constant[Array, "..."],
    epsilon: Epsilon = 0.2,
) -> tuple[Float[Array, "..."], ClippedPolicyCache]:
    """y = min(ρ Â, clip(ρ, 1 - ε, 1 + ε) Â) with the importance ratio ρ = π(y_t) / π_old(y_t).

    Schulman et al., "Proximal Policy Optimization Algorithms", 2017, equation 7. The model that sampled the
    answer is π_old. Once the model has moved by the factor 1 ± ε in the desired direction, the objective is
    flat.

    Parameters
    ----------
    log_p : float array (...)
        The log-probability of each token under the model that is trained.
    log_p_old : float array that broadcasts to (...)
        The log-probability of each token under the model that sampled it. It gets no gradient.
    advantages : float array that broadcasts to (...)
    epsilon : float, 0 < epsilon < 1
        ε in the equation.

    Returns
    -------
    y : float array (...)
        The objective of each token. Larger is better.
    cache : ClippedPolicyCache
        Input of ``clipped_policy_backward``.

    Examples
    --------
    >>> import numpy as np
    >>> log_p = np.log(np.array([1.1, 1.5]))
    >>> clipped_policy_forward(log_p, log_p_old=np.zeros(2), advantages=np.ones(2))[0].round(3)
    array([1.1, 1.2])
    """
    xp = array_module(log_p)
    low, high = 1 - float(epsilon), 1 + float(epsilon)
    rho = xp.exp(log_p - log_p_old)  # (...)
    is_too_high = (advantages > 0) & (rho > high)
    is_too_low = (advantages < 0) & (rho < low)
    is_clipped = is_too_high | is_too_low  # (...)
    y = xp.where(is_clipped, xp.clip(rho, low, high), rho) * advantages  # the smaller one: (...)
    return y, ClippedPolicyCache(rho, advantages, is_clipped)


def clipped_policy_backward(dy: Float[Array, "..."], cache: ClippedPolicyCache) -> Float[Array, "..."]:
    """dlog_p = dy ρ Â, and 0 where the objective is clipped.

    Parameters
    ----------
    dy : float array (...)
        Gradient of the loss with respect to y.
    cache : ClippedPolicyCache
        Second output of ``clipped_policy_forward``.

    Returns
    -------
    dlog_p : float array (...)

    Examples
    --------
    >>> import numpy as np
    >>> log_p = np.log(np.array([1.1, 1.5]))
    >>> y, cache = clipped_policy_forward(log_p, log_p_old=np.zeros(2), advantages=np.ones(2))
    >>> clipped_policy_backward(np.ones(2), cache)
    array([1.1, 0. ])
    """
    rho, advantages, is_clipped = cache
    drho = array_module(dy).where(is_clipped, 0, dy * advantages)  # from y = ρ Â: (...)
    return drho * rho  # from ρ = exp(log π - log π_old): (...)
