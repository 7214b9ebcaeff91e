"""The position-wise feed-forward network, forward and backward.

In the backward, ``# from z = x W_1: (d_model, d_ff)`` means that the line differentiates this forward
equation, and that its result has the shape (d_model, d_ff). N is the product of all leading axes.
"""

from typing import NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.functional import (
    Activation,
    DropoutCache,
    GELUCache,
    as_rows,
    dropout_backward,
    dropout_forward,
    gelu_backward,
    gelu_forward,
    glorot,
    sum_rows,
)
from npformer.validation.annotations import DType, Float, Rate, Rng, Size


class FFNParams(NamedTuple):
    """The weights and biases of equation 2. Their gradients have the same type."""

    W_1: Float[Array, "d_model d_ff"]
    b_1: Float[Array, "d_ff"]
    W_2: Float[Array, "d_ff d_model"]
    b_2: Float[Array, "d_model"]


class FFNCache(NamedTuple):
    x: Float[Array, "... d_model"]
    hidden: Float[Array, "... d_ff"]  # after the activation and its dropout: the input of W_2
    gelu: GELUCache | None  # None for ReLU, whose backward needs only the sign of hidden
    dropout: DropoutCache
    params: FFNParams

    @property
    def z(self) -> Array:
        """x W_1 + b_1, the input of the activation: (..., d_ff).

        z is computed again, because ReLU overwrote it.
        """
        return self.x @ self.params.W_1 + self.params.b_1


def init_ffn(d_model: Size, d_ff: Size, rng: Rng, *, dtype: DType = np.float64) -> FFNParams:
    """Draw both weights uniformly from ±√(6 / (d_in + d_out)), and set both biases to zero.

    Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010.

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
    params : FFNParams

    Examples
    --------
    >>> init_ffn(8, 32, np.random.default_rng(0)).W_1.shape
    (8, 32)
    """
    W_1 = glorot(d_model, d_ff, rng, dtype)
    W_2 = glorot(d_ff, d_model, rng, dtype)
    return FFNParams(W_1, np.zeros(d_ff, dtype), W_2, np.zeros(d_model, dtype))


def ffn_forward(
    x: Float[Array, "... d_model"],
    params: FFNParams,
    *,
    activation: Activation = "relu",
    dropout: Rate = 0.0,
    rng: Rng | None = None,
) -> tuple[Float[Array, "... d_model"], FFNCache]:
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, with the same parameters for every row.

    "Attention Is All You Need", equation 2.

    Parameters
    ----------
    x : float array (..., d_model)
    params : FFNParams
    activation : "relu", "gelu" or "gelu_tanh"
        "gelu" replaces the maximum by GELU, and "gelu_tanh" by the tanh form of GELU.
    dropout : float, 0 <= dropout < 1
        The dropout rate on the hidden layer.
    rng : numpy.random.Generator, optional
        Without it, nothing is dropped.

    Returns
    -------
    y : float array (..., d_model)
    cache : FFNCache
        Input of ``ffn_backward``. It contains ``z`` and ``hidden``, both (..., d_ff).

    Examples
    --------
    >>> params = init_ffn(8, 32, np.random.default_rng(0))
    >>> ffn_forward(np.ones((3, 6, 8)), params)[0].shape
    (3, 6, 8)
    """
    W_1, b_1, W_2, b_2 = params
    z = as_rows(x) @ W_1  # (N, d_ff)
    z += b_1
    if activation == "relu":
        # hidden overwrites z to save memory, because z is the largest array of an encoder block.
        hidden = array_module(x).maximum(z, 0, out=z)
        gelu = None
    else:
        hidden, gelu = gelu_forward(z, approximate=activation == "gelu_tanh")
    hidden, dropout_cache = dropout_forward(hidden, dropout, rng)
    y = hidden @ W_2  # (N, d_model)
    y += b_2
    hidden = hidden.reshape(*x.shape[:-1], len(b_1))  # (..., d_ff)
    return y.reshape(x.shape), FFNCache(x, hidden, gelu, dropout_cache, params)


def ffn_backward(
    dy: Float[Array, "... d_model"], cache: FFNCache
) -> tuple[Float[Array, "... d_model"], FFNParams]:
    """dW_2 = hiddenᵀ dy, dz = (dy W_2ᵀ) · [z > 0], dW_1 = xᵀ dz, dx = dz W_1ᵀ; db_2 = Σ dy, db_1 = Σ dz.

    [z > 0] is 1 where z > 0, and 0 elsewhere. With GELU, the derivative GELU'(z) replaces [z > 0]. All sums
    run over all rows.

    Parameters
    ----------
    dy : float array (..., d_model)
        Gradient of the loss with respect to y.
    cache : FFNCache
        Second output of ``ffn_forward``.

    Returns
    -------
    dx : float array (..., d_model)
    grads : FFNParams
        The gradients of the parameters.

    Examples
    --------
    >>> params = init_ffn(8, 32, np.random.default_rng(0))
    >>> y, cache = ffn_forward(np.ones((3, 6, 8)), params)
    >>> ffn_backward(y, cache)[1].W_1.shape
    (8, 32)
    """
    x, hidden, gelu, dropout_cache, (W_1, _, W_2, _) = cache
    dy = as_rows(dy)  # (N, d_model)
    hidden = as_rows(hidden)  # (N, d_ff)
    db_2 = sum_rows(dy)  # from y = … + b_2: (d_model,)
    dW_2 = hidden.T @ dy  # from y = hidden W_2: (d_ff, d_model)
    dhidden = dropout_backward(dy @ W_2.T, dropout_cache)  # from y = hidden W_2: (N, d_ff)
    if gelu is None:
        dz = dhidden  # The next line overwrites dhidden to save memory.
        dz *= hidden > 0  # from hidden = max(0, z): (N, d_ff)
    else:
        dz = gelu_backward(dhidden, gelu)  # from hidden = GELU(z): (N, d_ff)
    del dhidden  # Its memory is needed below.
    db_1 = sum_rows(dz)  # from z = … + b_1: (d_ff,)
    dW_1 = as_rows(x).T @ dz  # from z = x W_1: (d_model, d_ff)
    dx = (dz @ W_1.T).reshape(x.shape)  # from z = x W_1: (..., d_model)
    return dx, FFNParams(dW_1, db_1, dW_2, db_2)
