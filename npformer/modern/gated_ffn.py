"""The gated feed-forward network and the functions of its gate, each forward directly above its backward."""

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
    """σ(z) = 1 / (1 + exp(-z)), element by element.

    >>> sigmoid_forward(np.zeros(1))[0]
    array([0.5])
    """
    y = 1 / (1 + array_module(z).exp(-z))
    return y, SigmoidCache(y)


def sigmoid_backward(dy: Float[Array, "..."], cache: SigmoidCache) -> Float[Array, "..."]:
    """dz = dy σ(z) (1 - σ(z)).

    >>> y, cache = sigmoid_forward(np.zeros(1))
    >>> sigmoid_backward(np.ones(1), cache)
    array([0.25])
    """
    return dy * cache.y * (1 - cache.y)


class SiLUCache(NamedTuple):
    z: Float[Array, "..."]
    sigmoid: Float[Array, "..."]  # σ(z)


def silu_forward(z: Float[Array, "..."]) -> tuple[Float[Array, "..."], SiLUCache]:
    """y = z σ(z), with σ(z) = 1 / (1 + exp(-z)).

    Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016, who named it; Ramachandran et al., "Searching
    for Activation Functions", 2017, who call it Swish.

    >>> silu_forward(np.array([-1.0, 0.0, 1.0]))[0].round(3)
    array([-0.269,  0.   ,  0.731])
    """
    sigmoid, _ = sigmoid_forward(z)
    return z * sigmoid, SiLUCache(z, sigmoid)


def silu_backward(dy: Float[Array, "..."], cache: SiLUCache) -> Float[Array, "..."]:
    """dz = dy (σ + z σ (1 - σ)), by the product rule.

    >>> y, cache = silu_forward(np.zeros(1))
    >>> silu_backward(np.ones(1), cache)
    array([0.5])
    """
    z, sigmoid = cache
    return dy * (sigmoid * (1 + z * (1 - sigmoid)))  # y = z σ(z)


Gate = Literal["silu", "gelu", "relu", "sigmoid"]
GATES: dict[str, Any] = {
    "silu": (silu_forward, silu_backward),
    "gelu": (gelu_forward, gelu_backward),
    "relu": (relu_forward, relu_backward),
    "sigmoid": (sigmoid_forward, sigmoid_backward),
}


class GatedFFNParams(NamedTuple):
    """Three linear maps without biases; the gradients come back in the same type."""

    W_gate: Float[Array, "d_model d_ff"]
    W_up: Float[Array, "d_model d_ff"]
    W_down: Float[Array, "d_ff d_model"]


class GatedFFNCache(NamedTuple):
    x: Float[Array, "... d_model"]
    gate: Float[Array, "... d_ff"]  # activation(x W_gate): how far each hidden unit is open
    up: Float[Array, "... d_ff"]  # x W_up: what goes through
    activation: Any  # the activation's own cache
    name: str  # of the activation
    params: GatedFFNParams

    @property
    def hidden(self) -> Array:
        """gate · up, what W_down sees: (..., d_ff). Computed anew."""
        return self.gate * self.up


def init_gated_ffn(d_model: Size, d_ff: Size, rng: Rng, *, dtype: DType = np.float64) -> GatedFFNParams:
    """Weights uniform in ±√(6 / (d_in + d_out)). Glorot and Bengio, 2010.

    With d_ff at two thirds of the plain network's it has as many weights.

    >>> init_gated_ffn(8, 21, np.random.default_rng(0)).W_down.shape
    (21, 8)
    """
    W_gate, W_up = (glorot(d_model, d_ff, rng, dtype) for _ in range(2))
    return GatedFFNParams(W_gate, W_up, glorot(d_ff, d_model, rng, dtype))


def gated_ffn_forward(
    x: Float[Array, "... d_model"], params: GatedFFNParams, *, activation: Gate = "silu"
) -> tuple[Float[Array, "... d_model"], GatedFFNCache]:
    """y = (activation(x W_gate) · (x W_up)) W_down, the same for every row.

    Shazeer, "GLU Variants Improve Transformer", 2020, equation 6: with "silu" his SwiGLU, with "gelu" GEGLU,
    "relu" ReGLU, and with "sigmoid" the first of the kind, Dauphin et al.'s GLU of 2017.

    >>> params = init_gated_ffn(8, 21, np.random.default_rng(0))
    >>> gated_ffn_forward(np.ones((3, 6, 8)), params)[0].shape
    (3, 6, 8)
    """
    W_gate, W_up, W_down = params
    z, _ = linear_forward(x, W_gate)  # (..., d_ff)
    gate, activated = GATES[activation][0](z)
    up, _ = linear_forward(x, W_up)  # (..., d_ff)
    y, _ = linear_forward(gate * up, W_down)  # (..., d_model)
    return y, GatedFFNCache(x, gate, up, activated, activation, params)


def gated_ffn_backward(
    dy: Float[Array, "... d_model"], cache: GatedFFNCache
) -> tuple[Float[Array, "... d_model"], GatedFFNParams]:
    """dup = dhidden · gate, dgate = dhidden · up: each factor's gradient is weighed by the other one.

    x went two ways, through W_gate and through W_up, so dx is a sum of two.

    >>> params = init_gated_ffn(8, 21, np.random.default_rng(0))
    >>> y, cache = gated_ffn_forward(np.ones((3, 6, 8)), params)
    >>> gated_ffn_backward(y, cache)[1].W_up.shape
    (8, 21)
    """
    x, gate, up, activated, name, (W_gate, W_up, W_down) = cache
    dhidden, dW_down, _ = linear_backward(dy, LinearCache(cache.hidden, W_down, None))  # y = hidden W_down
    dup = dhidden * gate  # hidden = gate · up: (..., d_ff)
    dx_up, dW_up, _ = linear_backward(dup, LinearCache(x, W_up, None))  # up = x W_up
    dgate = dhidden * up  # hidden = gate · up: (..., d_ff)
    dz = GATES[name][1](dgate, activated)  # gate = activation(z)
    dx_gate, dW_gate, _ = linear_backward(dz, LinearCache(x, W_gate, None))  # z = x W_gate
    return dx_gate + dx_up, GatedFFNParams(dW_gate, dW_up, dW_down)
