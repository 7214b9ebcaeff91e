"""LoRA: a small trained product A B that is added to a frozen weight matrix, forward and backward.

A comment of the backward function, such as ``# from ΔW = s A B: (d_in, r)``, names the forward equation that
the line differentiates. It also gives the shape of the result.
"""

from typing import NamedTuple

import numpy as np

from npformer.arrays import Array
from npformer.validation.annotations import Count, DType, Float, Positive, Rng, Size


class LoRAParams(NamedTuple):
    """The two factors of ΔW. Their gradients have the same type."""

    A: Float[Array, "d_in r"]
    B: Float[Array, "r d_out"]


class LoRACache(NamedTuple):
    params: LoRAParams
    s: float  # α / r
    W: Float[Array, "d_in d_out"]  # only its shape is used, to validate dW


def init_lora(d_in: Size, d_out: Size, r: Count, rng: Rng, *, dtype: DType = np.float64) -> LoRAParams:
    """A has random entries with the variance 1/d_in, and B = 0, so that ΔW = 0 before the first step.

    Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, section 4.1.

    Parameters
    ----------
    d_in : int
        The number of rows of the frozen matrix.
    d_out : int
        The number of columns of the frozen matrix.
    r : int
        The rank: A has r columns and B has r rows.
    rng : numpy.random.Generator
    dtype : numpy.float32 or numpy.float64

    Returns
    -------
    params : LoRAParams

    Examples
    --------
    >>> params = init_lora(8, 6, 2, np.random.default_rng(0))
    >>> params.A.shape, params.B.shape, bool(params.B.any())
    ((8, 2), (2, 6), False)
    """
    A = (rng.standard_normal((d_in, r)) / np.sqrt(d_in)).astype(dtype)
    return LoRAParams(A, np.zeros((r, d_out), dtype))


def lora_forward(
    W: Float[Array, "d_in d_out"], params: LoRAParams, *, alpha: Positive = 8.0
) -> tuple[Float[Array, "d_in d_out"], LoRACache]:
    """W + ΔW with ΔW = s A B and s = α / r.

    Hu et al., "LoRA", 2021, equation 3. Rows are multiplied from the left here (y = x W), so the paper's B A
    is A B here. The sum is the merged weight matrix: it costs nothing extra when the model generates text.

    Parameters
    ----------
    W : float array (d_in, d_out)
        The frozen matrix of the model.
    params : LoRAParams
    alpha : float, alpha > 0
        α in the equation.

    Returns
    -------
    merged : float array (d_in, d_out)
    cache : LoRACache
        Input of ``lora_backward``.

    Examples
    --------
    >>> params = LoRAParams(np.array([[1.0], [2.0]]), np.array([[3.0, 4.0]]))
    >>> lora_forward(np.zeros((2, 2)), params, alpha=1.0)[0]
    array([[3., 4.],
           [6., 8.]])
    """
    A, B = params
    s = float(alpha) / A.shape[1]
    merged = W + s * (A @ B)  # (d_in, d_out)
    return merged, LoRACache(params, s, W)


def lora_backward(
    dW: Float[Array, "d_in d_out"], cache: LoRACache
) -> tuple[Float[Array, "d_in d_out"], LoRAParams]:
    """dA = s dW Bᵀ, dB = s Aᵀ dW. The first result is the gradient of the frozen matrix, which is dW itself.

    If B = 0, dA is 0 too. So only B changes in the first step.

    Parameters
    ----------
    dW : float array (d_in, d_out)
        Gradient of the loss with respect to the merged matrix.
    cache : LoRACache
        Second output of ``lora_forward``.

    Returns
    -------
    dW : float array (d_in, d_out)
        A trainer ignores it, because W is frozen.
    grads : LoRAParams
        The gradients of A and B.

    Examples
    --------
    >>> params = LoRAParams(np.array([[1.0], [2.0]]), np.array([[3.0, 4.0]]))
    >>> merged, cache = lora_forward(np.zeros((2, 2)), params, alpha=1.0)
    >>> lora_backward(np.ones((2, 2)), cache)[1]
    LoRAParams(A=array([[7.],
           [7.]]), B=array([[3., 3.]]))
    """
    (A, B), s, _ = cache
    dA = s * (dW @ B.T)  # from ΔW = s A B: (d_in, r)
    dB = s * (A.T @ dW)  # from ΔW = s A B: (r, d_out)
    return dW.copy(), LoRAParams(dA, dB)
