"""Root mean square normalization over the feature axis, forward and backward.

In the backward function, the comment ``# from y = gamma x̂: (d_model,)`` means that the line differentiates
this forward equation, and that the result has the shape (d_model,).
"""

from typing import NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.functional import as_rows
from npformer.layer_norm import SMALLEST_EPS, mean, repair_overflow, root_mean_square_without_underflow
from npformer.validation.annotations import DType, Float, NonNegative, Size


class RMSNormParams(NamedTuple):
    """A scale gamma for each column. RMSNorm has no shift."""

    gamma: Float[Array, "d_model"]


class RMSNormCache(NamedTuple):
    x_hat: Float[Array, "... d_model"]  # each row has mean square 1
    rms: Float[Array, "... 1"]  # √(mean x² + eps)
    gamma: Float[Array, "d_model"]


def init_rms_norm(d_model: Size, *, dtype: DType = np.float64) -> RMSNormParams:
    """gamma = 1, so that the new layer only normalizes.

    Parameters
    ----------
    d_model : int
        The number of columns.
    dtype : numpy.float32 or numpy.float64

    Returns
    -------
    params : RMSNormParams

    Examples
    --------
    >>> init_rms_norm(2)
    RMSNormParams(gamma=array([1., 1.]))
    """
    return RMSNormParams(np.ones(d_model, dtype))


def rms_norm_forward(
    x: Float[Array, "... d_model"], params: RMSNormParams, *, eps: NonNegative = 1e-5
) -> tuple[Float[Array, "... d_model"], RMSNormCache]:
    """y = gamma x̂ with x̂ = x / √(mean x² + eps), for each row.

    Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, equation 4. RMSNorm keeps the
    division and gamma of LayerNorm. It does not subtract the mean or add beta, so a shift of x changes y.

    Parameters
    ----------
    x : float array (..., d_model)
    params : RMSNormParams
    eps : float, eps >= 0
        A small number inside the square root, which prevents a division by 0.

    Returns
    -------
    y : float array (..., d_model)
    cache : RMSNormCache
        Input of ``rms_norm_backward``.

    Examples
    --------
    >>> rms_norm_forward(np.array([[3.0, 3.0, -3.0]]), init_rms_norm(3), eps=0.0)[0]
    array([[ 1.,  1., -1.]])
    """
    xp = array_module(x)
    if eps > SMALLEST_EPS:
        rms = repair_overflow(xp.sqrt(mean(x * x, xp) + float(eps)), x, eps)  # (..., 1)
    else:
        rms = root_mean_square_without_underflow(x, eps)  # the same number: (..., 1)
    x_hat = x / rms
    return params.gamma * x_hat, RMSNormCache(x_hat, rms, params.gamma)


def rms_norm_backward(
    dy: Float[Array, "... d_model"], cache: RMSNormCache
) -> tuple[Float[Array, "... d_model"], RMSNormParams]:
    """dx = (dx̂ - x̂ mean(dx̂ x̂)) / rms with dx̂ = dy gamma; dgamma = Σ dy x̂ over all rows.

    x reaches x̂ in two ways: directly, and through the root mean square of the row. In LayerNorm there is a
    third way, through the mean.

    Parameters
    ----------
    dy : float array (..., d_model)
        Gradient of the loss with respect to y.
    cache : RMSNormCache
        Second output of ``rms_norm_forward``.

    Returns
    -------
    dx : float array (..., d_model)
    grads : RMSNormParams
        The gradient of gamma.

    Examples
    --------
    >>> y, cache = rms_norm_forward(np.array([[3.0, 3.0, -3.0]]), init_rms_norm(3), eps=0.0)
    >>> rms_norm_backward(np.array([[5.0, 6.0, 7.0]]), cache)[1]
    RMSNormParams(gamma=array([ 5.,  6., -7.]))
    """
    x_hat, rms, gamma = cache
    dgamma = as_rows(dy * x_hat).sum(axis=0)  # from y = gamma x̂: (d_model,)
    dx_hat = dy * gamma  # from y = gamma x̂: (..., d_model)
    through_rms = x_hat * mean(dx_hat * x_hat, array_module(dy))  # (..., d_model)
    dx = (dx_hat - through_rms) / rms  # from x̂ = x / rms
    return dx, RMSNormParams(dgamma)
