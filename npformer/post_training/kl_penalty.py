"""An estimate of how far the model has moved from a reference model, forward and backward."""

from typing import NamedTuple

from npformer.arrays import Array, array_module
from npformer.validation.annotations import Constant, Float


class KLPenaltyCache(NamedTuple):
    change: Float[Array, "..."]  # π_ref / π - 1


def kl_penalty_forward(
    log_p: Float[Array, "..."], *, log_p_ref: Constant[Array, "..."]
) -> tuple[Float[Array, "..."], KLPenaltyCache]:
    """y = π_ref / π - log(π_ref / π) - 1, for each token.

    Shao et al., "DeepSeekMath", 2024, equation 4. For tokens sampled from π, the expected value of y is
    the Kullback-Leibler divergence of π from π_ref. Unlike log(π / π_ref), y is never negative.

    Parameters
    ----------
    log_p : float array (...)
        The log-probability of each token under the model that is trained.
    log_p_ref : float array that broadcasts to (...)
        The log-probability of each token under the reference model. It gets no gradient.

    Returns
    -------
    y : float array (...)
    cache : KLPenaltyCache
        Input of ``kl_penalty_backward``.

    Examples
    --------
    >>> import numpy as np
    >>> kl_penalty_forward(np.array([-1.0, 0.0]), log_p_ref=np.array([-1.0, -1.0]))[0].round(3)
    array([0.   , 0.368])
    """
    d = log_p_ref - log_p  # log(π_ref / π): (...)
    change = array_module(log_p).expm1(d)  # (...)
    return change - d, KLPenaltyCache(change)


def kl_penalty_backward(dy: Float[Array, "..."], cache: KLPenaltyCache) -> Float[Array, "..."]:
    """dlog_p = dy (1 - π_ref / π). For dy > 0, it is positive where π is larger than π_ref.

    Parameters
    ----------
    dy : float array (...)
        Gradient of the loss with respect to y.
    cache : KLPenaltyCache
        Second output of ``kl_penalty_forward``.

    Returns
    -------
    dlog_p : float array (...)

    Examples
    --------
    >>> import numpy as np
    >>> y, cache = kl_penalty_forward(np.array([-1.0, 0.0]), log_p_ref=np.array([-1.0, -1.0]))
    >>> kl_penalty_backward(np.ones(2), cache).round(3)
    array([-0.   ,  0.632])
    """
    return -dy * cache.change
