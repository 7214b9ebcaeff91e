"""Linear, ReLU, GELU, softmax, dropout: each forward directly above its backward."""

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.normal import normal_cdf
from npformer.validation.annotations import Float, Rate, Rng, Shape
from npformer.validation.checks import FLOATS
from npformer.validation.rules import Axis


class LinearCache(NamedTuple):
    x: Float[Array, "... d_in"]
    W: Float[Array, "d_in d_out"]
    b: Float[Array, "d_out"] | None


def linear_forward(
    x: Float[Array, "... d_in"], W: Float[Array, "d_in d_out"], b: Float[Array, "d_out"] | None = None
) -> tuple[Float[Array, "... d_out"], LinearCache]:
    """y = x W + b, the same W for every row.

    >>> linear_forward(np.ones((2, 3)), np.ones((3, 1)))[0]
    array([[3.],
           [3.]])
    """
    y = as_rows(x) @ W  # (N, d_out)
    if b is not None:
        y += b
    return y.reshape(*x.shape[:-1], W.shape[1]), LinearCache(x, W, b)  # (..., d_out)


def linear_backward(
    dy: Float[Array, "... d_out"], cache: LinearCache
) -> tuple[Float[Array, "... d_in"], Float[Array, "d_in d_out"], Float[Array, "d_out"] | None]:
    """dx = dy Wᵀ, dW = xᵀ dy, db = Σ dy, the sums over all rows; db is None where b was.

    >>> y, cache = linear_forward(np.ones((2, 3)), np.ones((3, 1)))
    >>> linear_backward(y, cache)[1].ravel()
    array([6., 6., 6.])
    """
    x, W, b = cache
    dy = as_rows(dy)  # (N, d_out)
    dx = (dy @ W.T).reshape(x.shape)  # y = x W: (..., d_in)
    dW = as_rows(x).T @ dy  # y = x W: (d_in, d_out)
    db = None if b is None else sum_rows(dy)  # y = … + b: (d_out,)
    return dx, dW, db


def as_rows(x: Array) -> Array:
    """All leading axes as one, (..., d) -> (N, d): one matrix product instead of one per batch item."""
    return x.reshape(-1, x.shape[-1])


def sum_rows(x: Array) -> Array:
    """The sum over all leading axes, (..., d) -> (d,). x.sum takes twice as long on small arrays."""
    return array_module(x).add.reduce(as_rows(x), axis=0)


def glorot(d_in: int, d_out: int, rng: Rng, dtype: Any) -> Array:
    """Uniform in ±√(6 / (d_in + d_out)): neither signal nor gradient grows or shrinks much. (d_in, d_out)

    Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010.
    """
    limit = math.sqrt(6 / (d_in + d_out))
    return rng.uniform(-limit, limit, size=(d_in, d_out)).astype(dtype)


Activation = Literal["relu", "gelu", "gelu_tanh"]
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


class ReLUCache(NamedTuple):
    z: Float[Array, "..."]


def relu_forward(z: Float[Array, "..."]) -> tuple[Float[Array, "..."], ReLUCache]:
    """y = max(0, z), element by element.

    >>> relu_forward(np.array([-1.0, 0.0, 2.0]))[0]
    array([0., 0., 2.])
    """
    return array_module(z).maximum(z, 0), ReLUCache(z)


def relu_backward(dy: Float[Array, "..."], cache: ReLUCache) -> Float[Array, "..."]:
    """dz = dy where z > 0, else 0. At z = 0 the slope is a choice; here it is 0.

    >>> y, cache = relu_forward(np.array([-1.0, 0.0, 2.0]))
    >>> relu_backward(np.ones(3), cache)
    array([0., 0., 1.])
    """
    return dy * (cache.z > 0)


class GELUCache(NamedTuple):
    z: Float[Array, "..."]
    cdf: Float[Array, "..."]  # Φ(z), or its tanh approximation
    approximate: bool


def gelu_forward(z: Float[Array, "..."], approximate: bool = False) -> tuple[Float[Array, "..."], GELUCache]:
    """y = z Φ(z), Φ the normal distribution function ½ (1 + erf(z/√2)).

    Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016. With approximate=True their tanh form,
    Φ(z) ≈ ½ (1 + tanh(√(2/π) (z + 0.044715 z³))), which is up to 5e-4 off.

    >>> gelu_forward(np.array([-1.0, 0.0, 1.0]))[0].round(3)
    array([-0.159,  0.   ,  0.841])
    """
    if approximate:
        u = SQRT_2_OVER_PI * (z + 0.044715 * (z * z * z))  # z**3 costs fifty times as much in float32
        cdf = 0.5 * (1 + array_module(z).tanh(u))
    else:
        cdf = normal_cdf(z)
    return z * cdf, GELUCache(z, cdf, approximate)


def gelu_backward(dy: Float[Array, "..."], cache: GELUCache) -> Float[Array, "..."]:
    """dz = dy (Φ(z) + z φ(z)), φ = Φ' the normal density exp(-z²/2)/√(2π).

    >>> y, cache = gelu_forward(np.zeros(1))
    >>> gelu_backward(np.ones(1), cache)
    array([0.5])
    """
    z, cdf, approximate = cache
    if approximate:  # with Φ = ½ (1 + tanh u): Φ' = ½ (1 - tanh² u) u' = 2 Φ (1 - Φ) u'
        pdf = 2 * cdf * (1 - cdf) * (SQRT_2_OVER_PI * (1 + 3 * 0.044715 * z * z))
    else:
        pdf = array_module(z).exp(-0.5 * z * z) * (1 / math.sqrt(2 * math.pi))
    return dy * (cdf + z * pdf)  # y = z Φ(z), by the product rule


class SoftmaxCache(NamedTuple):
    y: Float[Array, "..."]
    axis: int


def softmax_forward(scores: Float[Array, "..."], axis: Axis = -1) -> tuple[Float[Array, "..."], SoftmaxCache]:
    """y = exp(s - max s) / Σ exp(s - max s) along the axis; the entries of each line add up to 1.

    Subtracting the maximum keeps exp from overflowing and changes nothing else. A line of -inf (every key
    masked) has no distribution: its y is zero. NaN and +inf give NaN.

    >>> softmax_forward(np.array([[0.0, 0.0], [-np.inf, -np.inf]]))[0]
    array([[0.5, 0.5],
           [0. , 0. ]])
    """
    y = softmax_in_place(scores.copy(), axis)
    return y, SoftmaxCache(y.copy(), axis)  # y is the caller's to change


def softmax_backward(dy: Float[Array, "..."], cache: SoftmaxCache) -> Float[Array, "..."]:
    """ds = y (dy - Σ dy y), which is dy times the Jacobian diag(y) - y yᵀ.

    >>> y, cache = softmax_forward(np.zeros(2))
    >>> softmax_backward(np.array([1.0, 0.0]), cache)
    array([ 0.25, -0.25])
    """
    y, axis = cache
    return y * (dy - (dy * y).sum(axis=axis, keepdims=True))


LOWEST = {dtype: float(np.finfo(dtype).min) for dtype in FLOATS}  # looked up once: np.finfo takes a while


def softmax_in_place(s: Array, axis: int = -1) -> Array:
    """Softmax in the memory of the scores: attention's largest array, 0.7 of the time at T = 1024."""
    if s.shape[axis] == 0:
        return s
    xp, lowest = array_module(s), LOWEST[s.dtype]
    s -= xp.maximum(s.max(axis=axis, keepdims=True), lowest)  # -inf - (-inf) would be NaN
    xp.exp(s, out=s)
    s /= xp.maximum(s.sum(axis=axis, keepdims=True), 1)  # 1 or more, or 0 for a line of -inf
    return s


class DropoutCache(NamedTuple):
    keep: Array | None  # True where x was kept; None when nothing was dropped
    rate: float
    shape: Shape[tuple[int, ...], "..."]  # of y, and so of dy: the front door asks
    dtype: Any


def dropout_forward(
    x: Float[Array, "..."], rate: Rate, rng: Rng | None
) -> tuple[Float[Array, "..."], DropoutCache]:
    """y = x · keep / (1 - rate), each entry kept with probability 1 - rate.

    The division keeps the expected value of y at x. With rng=None, or at rate 0, y is x. Srivastava et
    al., "Dropout", 2014. The draws are NumPy's on every array library, so they are the same everywhere.

    >>> dropout_forward(np.ones(4), 0.5, np.random.default_rng(0))[0]
    array([2., 2., 2., 0.])
    """
    if rng is None or rate == 0:
        return x, DropoutCache(None, 0.0, x.shape, x.dtype)
    keep = array_module(x).asarray(rng.random(x.shape, dtype=np.float32) >= rate)
    return x * keep * (1 / (1 - float(rate))), DropoutCache(keep, float(rate), x.shape, x.dtype)


def dropout_backward(dy: Float[Array, "..."], cache: DropoutCache) -> Float[Array, "..."]:
    """dx = dy · keep / (1 - rate), with the forward's own draws.

    >>> y, cache = dropout_forward(np.ones(4), 0.5, np.random.default_rng(0))
    >>> dropout_backward(np.ones(4), cache)
    array([2., 2., 2., 0.])
    """
    return dy if cache.keep is None else dy * cache.keep * (1 / (1 - cache.rate))
