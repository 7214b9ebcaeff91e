"""Linear map, ReLU, GELU, softmax and dropout: each forward directly above its backward.

How to read a comment at the end of a line in a backward function: ``# from y = x W: (..., d_in)`` means that
the line differentiates the forward equation y = x W, and that its result has the shape (..., d_in). The
prefix d denotes the gradient of the loss: dx is ∂loss/∂x. N is the product of all leading axes.
"""

import math
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.normal import normal_cdf
from npformer.validation.annotations import Float, Rate, Rng, Shape
from npformer.validation.call import Call, Phase
from npformer.validation.checks import FLOATS, check_integer, wrong_shape
from npformer.validation.rules import rule

# --- what the arguments must satisfy --------------------------------------------------------------
# Rules are conditions that a shape cannot express. Argument validation (npformer/validation) checks them.


@rule("an axis of scores", Phase.IDS)
def AXIS(axis: Any, name: str, call: Call) -> None:
    """Check that the scores have this axis."""
    check_integer(call.function, name, axis)
    scores = call.arguments["scores"]
    if not -scores.ndim <= axis < scores.ndim:
        raise call.value_error(f"{name} is {axis}; expected an axis of scores, shape {scores.shape}")


Axis = Annotated[int, AXIS]


@rule("at least one axis")
def HAS_AXIS(scores: Any, name: str, call: Call) -> None:
    """Check that an array has an axis along which its entries can sum to 1."""
    if scores.ndim == 0:
        raise wrong_shape(call.function, name, scores, "at least one axis")


# --- the operations -------------------------------------------------------------------------------


class LinearCache(NamedTuple):
    x: Float[Array, "... d_in"]
    W: Float[Array, "d_in d_out"]
    b: Float[Array, "d_out"] | None


def linear_forward(
    x: Float[Array, "... d_in"], W: Float[Array, "d_in d_out"], b: Float[Array, "d_out"] | None = None
) -> tuple[Float[Array, "... d_out"], LinearCache]:
    """y = x W + b, with the same W and b for every row of x.

    Parameters
    ----------
    x : float array (..., d_in)
    W : float array (d_in, d_out)
    b : float array (d_out,), optional
        None means that no bias is added.

    Returns
    -------
    y : float array (..., d_out)
    cache : LinearCache
        Input of ``linear_backward``.

    Examples
    --------
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
    """dx = dy Wᵀ, dW = xᵀ dy, db = Σ dy. The sums run over all rows.

    Parameters
    ----------
    dy : float array (..., d_out)
        Gradient of the loss with respect to y.
    cache : LinearCache
        Second output of ``linear_forward``.

    Returns
    -------
    dx : float array (..., d_in)
    dW : float array (d_in, d_out)
    db : float array (d_out,), or None if b was None

    Examples
    --------
    >>> y, cache = linear_forward(np.ones((2, 3)), np.ones((3, 1)))
    >>> linear_backward(y, cache)[1].ravel()
    array([6., 6., 6.])
    """
    x, W, b = cache
    dy = as_rows(dy)  # (N, d_out)
    dx = (dy @ W.T).reshape(x.shape)  # from y = x W: (..., d_in)
    dW = as_rows(x).T @ dy  # from y = x W: (d_in, d_out)
    db = None if b is None else sum_rows(dy)  # from y = … + b: (d_out,)
    return dx, dW, db


def as_rows(x: Array) -> Array:
    """Reshape (..., d) to (N, d), so that one matrix product covers the whole batch."""
    return x.reshape(-1, x.shape[-1])


def sum_rows(x: Array) -> Array:
    """Sum over all leading axes: (..., d) -> (d,). On small arrays ``x.sum`` takes twice as long."""
    return array_module(x).add.reduce(as_rows(x), axis=0)


def glorot(d_in: int, d_out: int, rng: Rng, dtype: Any) -> Array:
    """Draw a weight (d_in, d_out) uniformly from ±√(6 / (d_in + d_out)).

    With this range, the sizes of activations and gradients change little from layer to layer. Glorot and
    Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010.
    """
    limit = math.sqrt(6 / (d_in + d_out))
    return rng.uniform(-limit, limit, size=(d_in, d_out)).astype(dtype)


Activation = Literal["relu", "gelu", "gelu_tanh"]
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


class ReLUCache(NamedTuple):
    z: Float[Array, "..."]


def relu_forward(z: Float[Array, "..."]) -> tuple[Float[Array, "..."], ReLUCache]:
    """y = max(0, z), for each entry.

    Parameters
    ----------
    z : float array, any shape

    Returns
    -------
    y : float array, same shape as z
    cache : ReLUCache
        Input of ``relu_backward``.

    Examples
    --------
    >>> relu_forward(np.array([-1.0, 0.0, 2.0]))[0]
    array([0., 0., 2.])
    """
    return array_module(z).maximum(z, 0), ReLUCache(z)


def relu_backward(dy: Float[Array, "..."], cache: ReLUCache) -> Float[Array, "..."]:
    """dz = dy where z > 0, and 0 elsewhere.

    ReLU has no derivative at z = 0. This function takes 0 there, as most libraries do.

    Parameters
    ----------
    dy : float array, same shape as z
        Gradient of the loss with respect to y.
    cache : ReLUCache
        Second output of ``relu_forward``.

    Returns
    -------
    dz : float array, same shape as z

    Examples
    --------
    >>> y, cache = relu_forward(np.array([-1.0, 0.0, 2.0]))
    >>> relu_backward(np.ones(3), cache)
    array([0., 0., 1.])
    """
    return array_module(dy).where(cache.z > 0, dy, 0)  # a product would turn an infinite dy into NaN


class GELUCache(NamedTuple):
    z: Float[Array, "..."]
    cdf: Float[Array, "..."]  # Φ(z), or its tanh approximation
    approximate: bool


def gelu_forward(z: Float[Array, "..."], approximate: bool = False) -> tuple[Float[Array, "..."], GELUCache]:
    """y = z Φ(z), where Φ(z) = ½ (1 + erf(z/√2)) is the normal distribution function.

    Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.

    Parameters
    ----------
    z : float array, any shape
    approximate : bool
        True selects the tanh form of the same paper, Φ(z) ≈ ½ (1 + tanh(√(2/π) (z + 0.044715 z³))). Its
        error is at most 5e-4.

    Returns
    -------
    y : float array, same shape as z
    cache : GELUCache
        Input of ``gelu_backward``.

    Examples
    --------
    >>> gelu_forward(np.array([-1.0, 0.0, 1.0]))[0].round(3)
    array([-0.159,  0.   ,  0.841])
    """
    if approximate:
        u = SQRT_2_OVER_PI * (z + 0.044715 * (z * z * z))  # In float32, z**3 takes fifty times as long.
        cdf = 0.5 * (1 + array_module(z).tanh(u))
    else:
        cdf = normal_cdf(z)
    return z * cdf, GELUCache(z, cdf, approximate)


def gelu_backward(dy: Float[Array, "..."], cache: GELUCache) -> Float[Array, "..."]:
    """dz = dy (Φ(z) + z φ(z)), where φ(z) = Φ'(z) = exp(-z²/2)/√(2π) is the normal density.

    Parameters
    ----------
    dy : float array, same shape as z
        Gradient of the loss with respect to y.
    cache : GELUCache
        Second output of ``gelu_forward``.

    Returns
    -------
    dz : float array, same shape as z

    Examples
    --------
    >>> y, cache = gelu_forward(np.zeros(1))
    >>> gelu_backward(np.ones(1), cache)
    array([0.5])
    """
    z, cdf, approximate = cache
    if approximate:
        # Φ = ½ (1 + tanh u) has the derivative Φ' = ½ (1 - tanh² u) u' = 2 Φ (1 - Φ) u'.
        pdf = 2 * cdf * (1 - cdf) * (SQRT_2_OVER_PI * (1 + 3 * 0.044715 * z * z))
    else:
        pdf = array_module(z).exp(-0.5 * z * z) * (1 / math.sqrt(2 * math.pi))
    return dy * (cdf + z * pdf)  # from y = z Φ(z), by the product rule


class SoftmaxCache(NamedTuple):
    y: Float[Array, "..."]
    axis: int


def softmax_forward(
    scores: Float[Array, "...", HAS_AXIS], axis: Axis = -1
) -> tuple[Float[Array, "..."], SoftmaxCache]:
    """Softmax along one axis: y = exp(s - max s) / Σ exp(s - max s).

    Subtracting the maximum prevents overflow and does not change the result. A row that is entirely -inf
    (every key is masked) returns zeros. NaN and +inf give NaN.

    Parameters
    ----------
    scores : float array, any shape
    axis : int
        The axis along which the result sums to 1.

    Returns
    -------
    y : float array, same shape as scores
    cache : SoftmaxCache
        Input of ``softmax_backward``.

    Examples
    --------
    >>> softmax_forward(np.array([[0.0, 0.0], [-np.inf, -np.inf]]))[0]
    array([[0.5, 0.5],
           [0. , 0. ]])
    """
    y = softmax_in_place(scores.copy(), axis)
    return y, SoftmaxCache(y.copy(), axis)  # The caller may change y, so the cache holds a copy.


def softmax_backward(dy: Float[Array, "..."], cache: SoftmaxCache) -> Float[Array, "..."]:
    """ds = y (dy - Σ dy y). This is dy times the Jacobian diag(y) - y yᵀ.

    Parameters
    ----------
    dy : float array, same shape as scores
        Gradient of the loss with respect to y.
    cache : SoftmaxCache
        Second output of ``softmax_forward``.

    Returns
    -------
    ds : float array, same shape as scores
        Gradient of the loss with respect to the scores.

    Examples
    --------
    >>> y, cache = softmax_forward(np.zeros(2))
    >>> softmax_backward(np.array([1.0, 0.0]), cache)
    array([ 0.25, -0.25])
    """
    y, axis = cache
    return y * (dy - (dy * y).sum(axis=axis, keepdims=True))


# The most negative number of each dtype. They are stored here because np.finfo is slow.
LOWEST = {dtype: float(np.finfo(dtype).min) for dtype in FLOATS}


def softmax_in_place(s: Array, axis: int = -1) -> Array:
    """Overwrite the scores with their softmax, so that attention needs only one array of this size.

    With 1024 tokens, this takes 70 % of the time of a softmax into a new array.
    """
    if s.shape[axis] == 0:
        return s
    xp = array_module(s)
    groups = split_rows(s) if axis == -1 else [s]
    for rows in groups:
        # In a row of -inf, subtracting the maximum -inf would give -inf - (-inf) = NaN. So a finite number is
        # subtracted there.
        rows -= xp.maximum(rows.max(axis=axis, keepdims=True), LOWEST[s.dtype])
        xp.exp(rows, out=rows)
        # The largest score gives exp(0) = 1, so each sum is at least 1. Only a row of -inf has the sum 0.
        # The maximum with 1 leaves the other sums alone, and gives 0 / 1 = 0 for that row.
        rows /= xp.maximum(rows.sum(axis=axis, keepdims=True), 1)
    return s


def split_rows(s: Array) -> list[Array]:
    """Split a large array into views of a few rows, which fit into the CPU's cache.

    Several passes over a few rows are faster than several passes over the whole array. With 8 × 1024 × 1024
    scores, softmax takes two thirds of the time, and its result is the same. Small arrays and arrays on a GPU
    are not split.
    """
    is_on_gpu = not isinstance(s, np.ndarray)
    if is_on_gpu or s.size <= IN_CACHE or not s.flags.c_contiguous:
        return [s]
    table = s.reshape(-1, s.shape[-1])
    n = max(IN_CACHE // s.shape[-1], 1)
    return [table[i : i + n] for i in range(0, len(table), n)]


IN_CACHE = 2**17  # the largest number of entries that are not split: 0.5 MB of float32


class DropoutCache(NamedTuple):
    keep: Array | None  # True where x was kept; None if nothing was dropped
    rate: float
    shape: Shape[tuple[int, ...], "..."]  # the shape of y, which dy must have too
    dtype: Any


def dropout_forward(
    x: Float[Array, "..."], rate: Rate, rng: Rng | None
) -> tuple[Float[Array, "..."], DropoutCache]:
    """y = x · keep / (1 - rate), where each entry of keep is 1 with probability 1 - rate, and else 0.

    The division by 1 - rate makes the expected value of y equal to x. Srivastava et al., "Dropout", 2014.

    Parameters
    ----------
    x : float array, any shape
    rate : float, 0 <= rate < 1
        The probability that an entry becomes 0. At rate 0, y is x.
    rng : numpy.random.Generator or None
        With None, y is x. NumPy draws the random numbers for every array library, so all libraries drop the
        same entries.

    Returns
    -------
    y : float array, same shape as x
    cache : DropoutCache
        Input of ``dropout_backward``.

    Examples
    --------
    >>> dropout_forward(np.ones(4), 0.5, np.random.default_rng(0))[0]
    array([2., 2., 2., 0.])
    """
    if rng is None or rate == 0:
        # The caller may change y, so it is a copy of x.
        return x.copy(), DropoutCache(None, 0.0, x.shape, x.dtype)
    keep = array_module(x).asarray(rng.random(x.shape, dtype=np.float32) >= rate)
    return x * keep * (1 / (1 - float(rate))), DropoutCache(keep, float(rate), x.shape, x.dtype)


def dropout_backward(dy: Float[Array, "..."], cache: DropoutCache) -> Float[Array, "..."]:
    """dx = dy · keep / (1 - rate), with the same keep as in the forward pass.

    Parameters
    ----------
    dy : float array, same shape as x
        Gradient of the loss with respect to y.
    cache : DropoutCache
        Second output of ``dropout_forward``.

    Returns
    -------
    dx : float array, same shape as x

    Examples
    --------
    >>> y, cache = dropout_forward(np.ones(4), 0.5, np.random.default_rng(0))
    >>> dropout_backward(np.ones(4), cache)
    array([2., 2., 2., 0.])
    """
    if cache.keep is None:
        return dy.copy()
    return dy * cache.keep * (1 / (1 - cache.rate))
