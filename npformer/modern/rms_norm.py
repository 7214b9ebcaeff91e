"""Root mean square normalization over the feature axis, forward and backward."""

from typing import NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.functional import as_rows
from npformer.layer_norm import mean, root_mean_square
from npformer.validation.annotations import DType, Float, NonNegative, Size


class RMSNormParams(NamedTuple):
    """A scale for each column; there is no shift."""

    gamma: Float[Array, "d_model"]


class RMSNormCache(NamedTuple):
    x_hat: Float[Array, "... d_model"]  # each row with mean square 1
    rms: Float[Array, "... 1"]  # √(mean x² + eps)
    gamma: Float[Array, "d_model"]


def init_rms_norm(d_model: Size, *, dtype: DType = np.float64) -> RMSNormParams:
    """gamma = 1.

    >>> init_rms_norm(2)
    RMSNormParams(gamma=array([1., 1.]))
    """
    return RMSNormParams(np.ones(d_model, dtype))


def rms_norm_forward(
    x: Float[Array, "... d_model"], params: RMSNormParams, *, eps: NonNegative = 1e-5
) -> tuple[Float[Array, "... d_model"], RMSNormCache]:
    """y = gamma x̂ with x̂ = x / √(mean x² + eps), row by row.

    Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, equation 4. Of LayerNorm only the
    division is left: no mean is taken away and no beta is added, so a shift of x stays visible in y.

    >>> rms_norm_forward(np.array([[3.0, 3.0, -3.0]]), init_rms_norm(3), eps=0.0)[0]
    array([[ 1.,  1., -1.]])
    """
    rms = root_mean_square(x, eps)  # (..., 1)
    x_hat = x / rms
    return params.gamma * x_hat, RMSNormCache(x_hat, rms, params.gamma)


def rms_norm_backward(
    dy: Float[Array, "... d_model"], cache: RMSNormCache
) -> tuple[Float[Array, "... d_model"], RMSNormParams]:
    """dx = (dx̂ - x̂ mean(dx̂ x̂)) / rms with dx̂ = dy gamma; dgamma = Σ dy x̂ over all rows.

    x goes two ways into x̂: directly, and through the row's root mean square. LayerNorm has a third, through
    the mean.

    >>> y, cache = rms_norm_forward(np.array([[3.0, 3.0, -3.0]]), init_rms_norm(3), eps=0.0)
    >>> rms_norm_backward(np.array([[5.0, 6.0, 7.0]]), cache)[1]
    RMSNormParams(gamma=array([ 5.,  6., -7.]))
    """
    x_hat, rms, gamma = cache
    dgamma = as_rows(dy * x_hat).sum(axis=0)  # y = gamma x̂: (d_model,)
    dx_hat = dy * gamma  # y = gamma x̂: (..., d_model)
    through_rms = x_hat * mean(dx_hat * x_hat, array_module(dy))  # (..., d_model)
    dx = (dx_hat - through_rms) / rms  # x̂ = x / rms
    return dx, RMSNormParams(dgamma)
