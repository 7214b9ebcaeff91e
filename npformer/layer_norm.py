"""Layer normalization, forward and backward."""

import math
from types import ModuleType
from typing import NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.functional import sum_rows
from npformer.validation.annotations import DType, Float, NonNegative, Size


class LayerNormParams(NamedTuple):
    """A scale and a shift for each column."""

    gamma: Float[Array, "d_model"]
    beta: Float[Array, "d_model"]


class LayerNormCache(NamedTuple):
    x_hat: Float[Array, "... d_model"]  # each row with mean 0 and variance 1
    std: Float[Array, "... 1"]  # √(variance + eps)
    gamma: Float[Array, "d_model"]


def init_layer_norm(d_model: Size, *, dtype: DType = np.float64) -> LayerNormParams:
    """gamma = 1 and beta = 0.

    >>> init_layer_norm(2)
    LayerNormParams(gamma=array([1., 1.]), beta=array([0., 0.]))
    """
    return LayerNormParams(np.ones(d_model, dtype), np.zeros(d_model, dtype))


def layer_norm_forward(
    x: Float[Array, "... d_model"], params: LayerNormParams, *, eps: NonNegative = 1e-5
) -> tuple[Float[Array, "... d_model"], LayerNormCache]:
    """y = gamma x̂ + beta with x̂ = (x - mean x) / √(var x + eps), row by row.

    Ba, Kiros and Hinton, "Layer Normalization", 2016. The variance is the mean of the squares (divided by
    d_model, not d_model - 1) and eps stands inside the root. A constant row has x̂ = 0, so its y is beta.

    >>> layer_norm_forward(np.array([[1.0, 3.0]]), init_layer_norm(2), eps=0.0)[0]
    array([[-1.,  1.]])
    """
    xp = array_module(x)
    centred = x - mean(x, xp)
    centred -= mean(centred, xp)  # again: far from zero, float32 rounds the first mean
    std = root_mean_square(centred, eps)  # √(var x + eps): (..., 1)
    x_hat = centred / std
    y = params.gamma * x_hat + params.beta
    return y, LayerNormCache(x_hat, std, params.gamma)


def layer_norm_backward(
    dy: Float[Array, "... d_model"], cache: LayerNormCache
) -> tuple[Float[Array, "... d_model"], LayerNormParams]:
    """dx = (dx̂ - mean dx̂ - x̂ mean(dx̂ x̂)) / std with dx̂ = dy gamma; dgamma = Σ dy x̂, dbeta = Σ dy.

    x goes three ways into x̂: directly, through the row's mean and through its variance. These are the three
    terms of dx, in this order. dgamma and dbeta are sums over all rows.

    >>> y, cache = layer_norm_forward(np.array([[1.0, 3.0]]), init_layer_norm(2), eps=0.0)
    >>> layer_norm_backward(np.array([[5.0, 7.0]]), cache)[1]
    LayerNormParams(gamma=array([-5.,  7.]), beta=array([5., 7.]))
    """
    x_hat, std, gamma = cache
    xp = array_module(dy)
    dbeta = sum_rows(dy)  # y = … + beta: (d_model,)
    dgamma = sum_rows(dy * x_hat)  # y = gamma x̂ + …: (d_model,)
    dx_hat = dy * gamma  # y = gamma x̂ + …: (..., d_model)
    through_mean = mean(dx_hat, xp)  # (..., 1)
    through_variance = x_hat * mean(dx_hat * x_hat, xp)  # (..., d_model)
    dx = (dx_hat - through_mean - through_variance) / std  # x̂ = (x - mean) / std
    return dx, LayerNormParams(dgamma, dbeta)


def root_mean_square(x: Array, eps: float) -> Array:
    """√(mean x² + eps) of each row as a column, (..., 1); where that is 0, 1: a row of zeros stays one."""
    xp, root_eps = array_module(x), math.sqrt(eps)
    if eps > 1e-37:  # a number in float32 too, so that no root is 0
        return xp.sqrt(mean(x * x, xp) + float(eps))
    size = xp.maximum(abs(x).max(axis=-1, keepdims=True), root_eps)  # in float32 the square of 1e-25 is 0:
    size += size == 0
    z = x / size  # so the row is squared in its own size
    root = size * xp.sqrt(mean(z * z, xp) + (root_eps / size) ** 2)
    return root + (root == 0)


def mean(x: Array, xp: ModuleType) -> Array:
    """The mean of each row as a column, (..., 1): x.mean in a third of its time on short rows."""
    return xp.add.reduce(x, axis=-1, keepdims=True) / x.shape[-1]
