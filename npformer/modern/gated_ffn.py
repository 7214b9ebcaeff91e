"""The gated feed-forward network and its activation functions.

Each forward function is directly above its backward function. In a backward function, the comment
``# from up = x W_up`` means that the line differentiates this forward equation.
"""

from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.functional import (
    LinearCache,
    gelu_backward,
    gelu_forward,
    glorot,
    linear_backward,
    linear_forward,
    relu_backward,
    relu_forward,
)
from npformer.validation.annotations import DType, Float, Rng, Size


class SigmoidCache(NamedTuple):
    y: Float[Array, "..."]


def sigmoid_forward(z: Float[Array, "..."]) -> tuple[Float[Array, "..."], SigmoidCache]:
    """y = σ(z) = 1 / (1 + exp(-z)), for each entry.

    Parameters
    ----------
    z : float array, any shape

    Returns
    -------
    y : float array, same shape as z
    cache : SigmoidCache
        Input of ``sigmoid_backward``.

    Examples
    --------
    >>> sigmoid_forward(np.zeros(1))[0]
    array([0.5])
    """
    y = 1 / (1 + array_module(z).exp(-z))
    return y, SigmoidCache(y)


def sigmoid_backward(dy: Float[Array, "..."], cache: SigmoidCache) -> Float[Array, "..."]:
    """dz = dy σ(z) (1 - σ(z)).

    Parameters
    ----------
    dy : float array, same shape as z
        Gradient of the loss with respect to y.
    cache : SigmoidCache
        Second output of ``sigmoid_forward``.

    Returns
    -------
    dz : float array, same shape as z

    Examples
    --------
    >>> y, cache = sigmoid_forward(np.zeros(1))
    >>> sigmoid_backward(np.ones(1), cache)
    array([0.25])
    """
    return dy * cache.y * (1 - cache.y)


class SiLUCache(NamedTuple):
    z: Float[Array, "..."]
    sigmoid: Float[Array, "..."]  # σ(z)


def silu_forward(z: Float[Array, "..."]) -> tuple[Float[Array, "..."], SiLUCache]:
    """y = z σ(z), with σ(z) = 1 / (1 + exp(-z)), for each entry.

    Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016, gave this function the name SiLU. Ramachandran
    et al., "Searching for Activation Functions", 2017, call it Swish.

    Parameters
    ----------
    z : float array, any shape

    Returns
    -------
    y : float array, same shape as z
    cache : SiLUCache
        Input of ``silu_backward``.

    Examples
    --------
    >>> silu_forward(np.array([-1.0, 0.0, 1.0]))[0].round(3)
    array([-0.269,  0.   ,  0.731])
    """
    sigmoid, _ = sigmoid_forward(z)
    return z * sigmoid, SiLUCache(z, sigmoid)


def silu_backward(dy: Float[Array, "..."], cache: SiLUCache) -> Float[Array, "..."]:
    """dz = dy (σ(z) + z σ(z) (1 - σ(z))), by the product rule.

    Parameters
    ----------
    dy : float array, same shape as z
        Gradient of the loss with respect to y.
    cache : SiLUCache
        Second output of ``silu_forward``.

    Returns
    -------
    dz : float array, same shape as z

    Examples
    --------
    >>> y, cache = silu_forward(np.zeros(1))
    >>> silu_backward(np.ones(1), cache)
    array([0.5])
    """
    z, sigmoid = cache
    return dy * (sigmoid * (1 + z * (1 - sigmoid)))  # from y = z σ(z)


Gate = Literal["silu", "gelu", "gelu_tanh", "relu", "sigmoid"]
GATES: dict[str, Any] = {
    "silu": (silu_forward, silu_backward),
    "gelu": (gelu_forward, gelu_backward),
    "gelu_tanh": (partial(gelu_forward, approximate=True), gelu_backward),
    "relu": (relu_forward, relu_backward),
    "sigmoid": (sigmoid_forward, sigmoid_backward),
}


class GatedFFNParams(NamedTuple):
    """The weights of three linear maps without biases. Their gradients have the same type."""

    W_gate: Float[Array, "d_model d_ff"]
    W_up: Float[Array, "d_model d_ff"]
    W_down: Float[Array, "d_ff d_model"]


class GatedFFNCache(NamedTuple):
    x: Float[Array, "... d_model"]
    gate: Float[Array, "... d_ff"]  # activation(x W_gate), the factor of each hidden unit
    up: Float[Array, "... d_ff"]  # x W_up
    activation: Any  # the cache of the activation function
    name: str  # the name of the activation function
    params: GatedFFNParams

    @property
    def hidden(self) -> Array:
        """gate · up: (..., d_ff), the input of W_down. The product is recomputed to save memory."""
        return self.gate * self.up


def init_gated_ffn(d_model: Size, d_ff: Size, rng: Rng, *, dtype: DType = np.float64) -> GatedFFNParams:
    """Draw the three weights uniformly between -r and r, with r = √(6 / (d_in + d_out)).

    Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010. A
    gated network has as many weights as a network of ``init_ffn`` with 1.5 times as many hidden units.

    Parameters
    ----------
    d_model : int
        The number of columns of the input and the output.
    d_ff : int
        The number of hidden units.
    rng : numpy.random.Generator
    dtype : numpy.float32 or numpy.float64

    Returns
    -------
    params : GatedFFNParams

    Examples
    --------
    >>> init_gated_ffn(8, 21, np.random.default_rng(0)).W_down.shape
    (21, 8)
    """
    W_gate = glorot(d_model, d_ff, rng, dtype)
    W_up = glorot(d_model, d_ff, rng, dtype)
    W_down = glorot(d_ff, d_model, rng, dtype)
    return GatedFFNParams(W_gate, W_up, W_down)


def gated_ffn_forward(
    x: Float[Array, "... d_model"], params: GatedFFNParams, *, activation: Gate = "silu"
) -> tuple[Float[Array, "... d_model"], GatedFFNCache]:
    """y = (activation(x W_gate) · (x W_up)) W_down, with the same parameters for every row.

    Shazeer, "GLU Variants Improve Transformer", 2020, equation 6.

    Parameters
    ----------
    x : float array (..., d_model)
    params : GatedFFNParams
    activation : "silu", "gelu", "gelu_tanh", "relu" or "sigmoid"
        The paper calls the networks with SiLU, GELU, ReLU and the sigmoid SwiGLU, GEGLU, ReGLU and GLU. The
        last one is from Dauphin et al., "Language Modeling with Gated Convolutional Networks", 2017.
        "gelu_tanh" approximates GELU, as in Gemma.

    Returns
    -------
    y : float array (..., d_model)
    cache : GatedFFNCache
        Input of ``gated_ffn_backward``. It contains ``gate``, ``up`` and ``hidden``, all (..., d_ff).

    Examples
    --------
    >>> params = init_gated_ffn(8, 21, np.random.default_rng(0))
    >>> gated_ffn_forward(np.ones((3, 6, 8)), params)[0].shape
    (3, 6, 8)
    """
    W_gate, W_up, W_down = params
    activation_forward, _ = GATES[activation]
    z, _ = linear_forward(x, W_gate)  # (..., d_ff)
    gate, activation_cache = activation_forward(z)  # (..., d_ff)
    up, _ = linear_forward(x, W_up)  # (..., d_ff)
    y, _ = linear_forward(gate * up, W_down)  # (..., d_model)
    return y, GatedFFNCache(x, gate, up, activation_cache, activation, params)


def gated_ffn_backward(
    dy: Float[Array, "... d_model"], cache: GatedFFNCache
) -> tuple[Float[Array, "... d_model"], GatedFFNParams]:
    """dup = dhidden · gate, dgate = dhidden · up, where dhidden = dy W_downᵀ.

    The gradient of each factor of a product is multiplied by the other factor. The forward pass uses x twice,
    with W_gate and with W_up, so dx is the sum of two gradients.

    Parameters
    ----------
    dy : float array (..., d_model)
        Gradient of the loss with respect to y.
    cache : GatedFFNCache
        Second output of ``gated_ffn_forward``.

    Returns
    -------
    dx : float array (..., d_model)
    grads : GatedFFNParams
        The gradients of the parameters.

    Examples
    --------
    >>> params = init_gated_ffn(8, 21, np.random.default_rng(0))
    >>> y, cache = gated_ffn_forward(np.ones((3, 6, 8)), params)
    >>> gated_ffn_backward(y, cache)[1].W_up.shape
    (8, 21)
    """
    x, gate, up, activation_cache, name, (W_gate, W_up, W_down) = cache
    _, activation_backward = GATES[name]
    dhidden, dW_down, _ = linear_backward(
        dy, LinearCache(cache.hidden, W_down, None)
    )  # from y = hidden W_down
    dup = dhidden * gate  # from hidden = gate · up: (..., d_ff)
    dx_up, dW_up, _ = linear_backward(dup, LinearCache(x, W_up, None))  # from up = x W_up
    dgate = dhidden * up  # from hidden = gate · up: (..., d_ff)
    dz = activation_backward(dgate, activation_cache)  # from gate = activation(z): (..., d_ff)
    dx_gate, dW_gate, _ = linear_backward(dz, LinearCache(x, W_gate, None))  # from z = x W_gate
    return dx_gate + dx_up, GatedFFNParams(dW_gate, dW_up, dW_down)
