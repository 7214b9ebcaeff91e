"""Layer normalization, forward and backward.

In the backward, ``# from y = gamma x̂ + …: (d_model,)`` means that the line differentiates this forward
equation, and that its result has the shape (d_model,).
"""

import math
from types import ModuleType
from typing import NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.functional import sum_rows
from npformer.validation.annotations import DType, Float, NonNegative, Size


class LayerNormParams(NamedTuple):
    """A scale gamma and a shift beta for each column."""

    gamma: Float[Array, "d_model"]
    beta: Float[Array, "d_model"]


class LayerNormCache(NamedTuple):
    x_hat: Float[Array, "... d_model"]  # each row has mean 0 and variance 1
    std: Float[Array, "... 1"]  # √(variance + eps)
    gamma: Float[Array, "d_model"]


def init_layer_norm(d_model: Size, *, dtype: DType = np.float64) -> LayerNormParams:
    """gamma = 1 and beta = 0, so that the new layer only normalizes.

    Parameters
    ----------
    d_model : int
        The number of columns.
    dtype : numpy.float32 or numpy.float64

    Returns
    -------
    params : LayerNormParams

    Examples
    --------
    >>> init_layer_norm(2)
    LayerNormParams(gamma=array([1., 1.]), beta=array([0., 0.]))
    """
    return LayerNormParams(np.ones(d_model, dtype), np.zeros(d_model, dtype))


def layer_norm_forward(
    x: Float[Array, "... d_model"], params: LayerNormParams, *, eps: NonNegative = 1e-5
) -> tuple[Float[Array, "... d_model"], LayerNormCache]:
    """y = gamma x̂ + beta with x̂ = (x - mean x) / √(var x + eps), for each row.

    Ba, Kiros and Hinton, "Layer Normalization", 2016. The variance is the mean of the squared deviations: it
    divides by d_model, not by d_model - 1. A constant row has x̂ = 0, so its y is beta.

    Parameters
    ----------
    x : float array (..., d_model)
    params : LayerNormParams
    eps : float, eps >= 0
        A small number inside the square root, which prevents a division by 0.

    Returns
    -------
    y : float array (..., d_model)
    cache : LayerNormCache
        Input of ``layer_norm_backward``.

    Examples
    --------
    >>> layer_norm_forward(np.array([[1.0, 3.0]]), init_layer_norm(2), eps=0.0)[0]
    array([[-1.,  1.]])
    """
    xp = array_module(x)
    centred = x - mean(x, xp)
    # If x is far from zero, float32 rounds the mean, and centred has a small mean. Subtract this mean as
    # well.
    centred -= mean(centred, xp)
    if eps > SMALLEST_EPS:
        variance = mean(centred * centred, xp)  # (..., 1)
        std = repair_overflow(xp.sqrt(variance + float(eps)), centred, eps)  # (..., 1)
    else:
        std = root_mean_square_without_underflow(centred, eps)  # √(variance + eps) too: (..., 1)
    x_hat = centred / std
    y = params.gamma * x_hat + params.beta
    return y, LayerNormCache(x_hat, std, params.gamma)


def layer_norm_backward(
    dy: Float[Array, "... d_model"], cache: LayerNormCache
) -> tuple[Float[Array, "... d_model"], LayerNormParams]:
    """dx = (dx̂ - mean dx̂ - x̂ mean(dx̂ x̂)) / std with dx̂ = dy gamma; dgamma = Σ dy x̂, dbeta = Σ dy.

    x reaches x̂ in three ways: directly, through the mean of the row and through its variance. These are the
    three terms of dx, in this order. The sums of dgamma and dbeta run over all rows.

    Parameters
    ----------
    dy : float array (..., d_model)
        Gradient of the loss with respect to y.
    cache : LayerNormCache
        Second output of ``layer_norm_forward``.

    Returns
    -------
    dx : float array (..., d_model)
    grads : LayerNormParams
        The gradients of gamma and beta.

    Examples
    --------
    >>> y, cache = layer_norm_forward(np.array([[1.0, 3.0]]), init_layer_norm(2), eps=0.0)
    >>> layer_norm_backward(np.array([[5.0, 7.0]]), cache)[1]
    LayerNormParams(gamma=array([-5.,  7.]), beta=array([5., 7.]))
    """
    x_hat, std, gamma = cache
    xp = array_module(dy)
    dbeta = sum_rows(dy)  # from y = … + beta: (d_model,)
    dgamma = sum_rows(dy * x_hat)  # from y = gamma x̂ + …: (d_model,)
    dx_hat = dy * gamma  # from y = gamma x̂ + …: (..., d_model)
    through_mean = mean(dx_hat, xp)  # (..., 1)
    through_variance = x_hat * mean(dx_hat * x_hat, xp)  # (..., d_model)
    dx = (dx_hat - through_mean - through_variance) / std  # from x̂ = (x - mean) / std
    return dx, LayerNormParams(dgamma, dbeta)


# Below 1.2e-38, float32 loses digits and then rounds to 0. So eps must be larger than this to be added
# directly.
SMALLEST_EPS = 1e-37


def repair_overflow(root: Array, x: Array, eps: float) -> Array:
    """Recompute √(mean x² + eps) where it is infinite, because the square of a number was too large.

    An array on a GPU is not changed, because the test would have to wait for the GPU. Shape: (..., 1).
    """
    if type(root) is not np.ndarray or math.isfinite(np.add.reduce(root, axis=None)):
        return root
    recomputed = root_mean_square_without_underflow(x, eps)
    return np.where(np.isinf(root) & np.isfinite(recomputed), recomputed, root)


def root_mean_square_without_underflow(x: Array, eps: float) -> Array:
    """Compute √(mean x² + eps) for each row, also when x² or eps is too small or too large for the dtype.

    In float32 the square of 1e-25 is 0. So each row is divided by its size (its largest magnitude, but at
    least √eps) before it is squared. The root is multiplied by this size. Where the root is 0, the result is
    1, because x / 1 leaves a row of zeros unchanged. Shapes: (..., d_model) -> (..., 1).
    """
    xp = array_module(x)
    root_eps = math.sqrt(eps)
    size = xp.maximum(abs(x).max(axis=-1, keepdims=True), root_eps)  # (..., 1)
    size += size == 0  # 1 for a row of zeros with eps = 0
    z = x / size
    root = size * xp.sqrt(mean(z * z, xp) + (root_eps / size) ** 2)
    return root + (root == 0)  # 1 where the root is 0


def mean(x: Array, xp: ModuleType) -> Array:
    """Compute the mean of each row: (..., d) -> (..., 1). On short rows ``x.mean`` is three times as slow."""
    return xp.add.reduce(x, axis=-1, keepdims=True) / x.shape[-1]
