"""The position-wise feed-forward network, forward and backward."""

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
    """The two linear maps of equation 2; the gradients come back in the same type."""

    W_1: Float[Array, "d_model d_ff"]
    b_1: Float[Array, "d_ff"]
    W_2: Float[Array, "d_ff d_model"]
    b_2: Float[Array, "d_model"]


class FFNCache(NamedTuple):
    x: Float[Array, "... d_model"]
    hidden: Float[Array, "... d_ff"]  # after the activation and its dropout: what W_2 sees
    gelu: GELUCache | None  # None for ReLU: where hidden > 0 says all that its backward needs
    dropout: DropoutCache
    params: FFNParams

    @property
    def z(self) -> Array:
        """x W_1 + b_1, before the activation: (..., d_ff). Computed anew: ReLU does not keep it."""
        return self.x @ self.params.W_1 + self.params.b_1


def init_ffn(d_model: Size, d_ff: Size, rng: Rng, *, dtype: DType = np.float64) -> FFNParams:
    """Weights uniform in ±√(6 / (d_in + d_out)), biases zero. Glorot and Bengio, 2010.

    >>> init_ffn(8, 32, np.random.default_rng(0)).W_1.shape
    (8, 32)
    """
    W_1, W_2 = glorot(d_model, d_ff, rng, dtype), glorot(d_ff, d_model, rng, dtype)
    return FFNParams(W_1, np.zeros(d_ff, dtype), W_2, np.zeros(d_model, dtype))


def ffn_forward(
    x: Float[Array, "... d_model"],
    params: FFNParams,
    *,
    activation: Activation = "relu",
    dropout: Rate = 0.0,
    rng: Rng | None = None,
) -> tuple[Float[Array, "... d_model"], FFNCache]:
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same for every row.

    "Attention Is All You Need", equation 2. activation="gelu" puts GELU for the maximum, "gelu_tanh" its
    tanh form. `dropout` acts on the hidden layer, and only when an rng is passed.

    >>> params = init_ffn(8, 32, np.random.default_rng(0))
    >>> ffn_forward(np.ones((3, 6, 8)), params)[0].shape
    (3, 6, 8)
    """
    W_1, b_1, W_2, b_2 = params
    z = as_rows(x) @ W_1  # (N, d_ff), a block's largest array: changed in place
    z += b_1
    if activation == "relu":
        hidden, gelu = array_module(x).maximum(z, 0, out=z), None
    else:
        hidden, gelu = gelu_forward(z, approximate=activation == "gelu_tanh")
    hidden, dropped = dropout_forward(hidden, dropout, rng)
    y = hidden @ W_2  # (N, d_model)
    y += b_2
    hidden = hidden.reshape(*x.shape[:-1], len(b_1))  # (..., d_ff)
    return y.reshape(x.shape), FFNCache(x, hidden, gelu, dropped, params)


def ffn_backward(
    dy: Float[Array, "... d_model"], cache: FFNCache
) -> tuple[Float[Array, "... d_model"], FFNParams]:
    """dW_2 = hiddenᵀ dy, dz = (dy W_2ᵀ) · [z > 0], dW_1 = xᵀ dz, dx = dz W_1ᵀ; db is a sum over all rows.

    With GELU, GELU'(z) stands for [z > 0].

    >>> params = init_ffn(8, 32, np.random.default_rng(0))
    >>> y, cache = ffn_forward(np.ones((3, 6, 8)), params)
    >>> ffn_backward(y, cache)[1].W_1.shape
    (8, 32)
    """
    x, hidden, gelu, dropped, (W_1, _, W_2, _) = cache
    dy, hidden = as_rows(dy), as_rows(hidden)  # (N, d_model), (N, d_ff)
    db_2 = sum_rows(dy)  # y = … + b_2: (d_model,)
    dW_2 = hidden.T @ dy  # y = hidden W_2: (d_ff, d_model)
    dz = dropout_backward(dy @ W_2.T, dropped)  # y = hidden W_2: (N, d_ff), so far dhidden
    if gelu is None:
        dz *= hidden > 0  # hidden = max(0, z), in the memory of dhidden: it is a block's largest array
    else:
        dz = gelu_backward(dz, gelu)  # hidden = gelu(z)
    db_1 = sum_rows(dz)  # z = … + b_1: (d_ff,)
    dW_1 = as_rows(x).T @ dz  # z = x W_1: (d_model, d_ff)
    dx = (dz @ W_1.T).reshape(x.shape)  # z = x W_1: (..., d_model)
    return dx, FFNParams(dW_1, db_1, dW_2, db_2)
