"""Layer normalization, forward and backward."""

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array, array_module
from npformer.functional import as_rows
from npformer.validate import (
    check_array,
    check_d_output,
    check_dtype,
    check_float,
    check_integer,
    check_kind,
    check_number,
    check_params,
    lengths,
)


class LayerNormParams(NamedTuple):
    """A scale and a shift for each column."""

    gamma: Array  # (d_model,)
    beta: Array  # (d_model,)


class LayerNormCache(NamedTuple):
    x_hat: Array  # (..., d_model), each row with mean 0 and variance 1
    std: Array  # (..., 1), √(variance + eps)
    gamma: Array


def init_layer_norm(d_model: int, *, dtype: Any = np.float64) -> LayerNormParams:
    """gamma = 1 and beta = 0, both (d_model,).

    Raises TypeError or ValueError unless d_model is an integer >= 1.

    >>> init_layer_norm(2)
    LayerNormParams(gamma=array([1., 1.]), beta=array([0., 0.]))
    """
    check_integer("init_layer_norm", "d_model", d_model, minimum=1)
    dtype = check_dtype("init_layer_norm", dtype)
    return LayerNormParams(np.ones(d_model, dtype), np.zeros(d_model, dtype))


def layer_norm_forward(
    x: Array, params: LayerNormParams, *, eps: float = 1e-5
) -> tuple[Array, LayerNormCache]:
    """y = gamma x̂ + beta with x̂ = (x - mean x) / √(var x + eps), row by row.

    x (..., d_model) -> y (..., d_model). Ba, Kiros and Hinton, "Layer Normalization", 2016. The variance
    is the mean of the squares (divided by d_model, not d_model - 1) and eps stands inside the root. A
    constant row has x̂ = 0, so its y is beta.

    Raises TypeError for arrays that are not of one float dtype, ValueError for shapes that do not fit or
    an eps that is negative or not finite.

    >>> layer_norm_forward(np.array([[1.0, 3.0]]), init_layer_norm(2), eps=0.0)[0]
    array([[-1.,  1.]])
    """
    check_float("layer_norm_forward", "x", x)
    sizes = check_layer_norm("layer_norm_forward", "params", params, x.dtype)
    check_array("layer_norm_forward", "x", x, ("...", "d_model"), sizes)
    check_number("layer_norm_forward", "eps", eps, minimum=0)

    xp = array_module(x)
    x_hat = x - _mean(x, xp)
    x_hat -= _mean(x_hat, xp)  # again: far from zero, float32 rounds the first mean
    variance = _mean(x_hat * x_hat, xp)  # (..., 1)
    std = xp.sqrt(variance + float(eps))
    if eps == 0:
        std += std == 0  # a constant row: 0 / 1 instead of 0 / 0
    x_hat /= std
    y = x_hat * params.gamma
    y += params.beta
    return y, LayerNormCache(x_hat, std, params.gamma)


def layer_norm_backward(dy: Array, cache: LayerNormCache) -> tuple[Array, LayerNormParams]:
    """dx = (dx̂ - mean dx̂ - x̂ mean(dx̂ x̂)) / std with dx̂ = dy gamma; dgamma = Σ dy x̂, dbeta = Σ dy.

    dy (..., d_model) -> dx (..., d_model), gradients (d_model,), summed over all rows. The first mean is what
    goes back through the row's mean, the second what goes back through its variance.

    Raises TypeError for another function's cache, ValueError for a dy that has not the output's shape.

    >>> y, cache = layer_norm_forward(np.array([[1.0, 3.0]]), init_layer_norm(2), eps=0.0)
    >>> layer_norm_backward(np.array([[5.0, 7.0]]), cache)[1]
    LayerNormParams(gamma=array([-5.,  7.]), beta=array([5., 7.]))
    """
    check_kind("layer_norm_backward", "cache", cache, LayerNormCache)
    x_hat, std, gamma = cache
    check_d_output("layer_norm_backward", "dy", dy, x_hat.shape, x_hat.dtype)

    xp = array_module(dy)
    dgamma = as_rows(dy * x_hat).sum(axis=0)  # (d_model,)
    dbeta = as_rows(dy).sum(axis=0)  # (d_model,)
    dx = dy * gamma  # dx̂, and from here on in place
    through_mean = _mean(dx, xp)  # (..., 1)
    through_variance = _mean(dx * x_hat, xp)
    dx -= through_mean
    dx -= x_hat * through_variance
    dx /= std
    return dx, LayerNormParams(dgamma, dbeta)


def _mean(x: Array, xp: ModuleType) -> Array:
    """The mean of each row as a column, (..., 1): x.mean in a third of its time on short rows."""
    return xp.add.reduce(x, axis=-1, keepdims=True) / x.shape[-1]


def check_layer_norm(
    function: str, argument: str, params: Any, dtype: Any, sizes: dict[str, int] | None = None
) -> dict[str, int]:
    """Refuse parameters that do not fit the sizes, or each other where gamma has to tell d_model."""
    check_kind(function, argument, params, LayerNormParams)
    if sizes is None:
        sizes = lengths(d_model=params.gamma)
    check_params(function, argument, params, LayerNormParams, _AXES, sizes, dtype)
    return sizes


_AXES = {"gamma": ("d_model",), "beta": ("d_model",)}
