"""Moving trees of arrays between NumPy and CuPy, and which of the two are here."""

import sys
from typing import Any

from npformer.arrays import Array, array_module, is_array
from npformer.installation import how_to_get
from npformer.tree import mapped, on_host
from npformer.validation.checks import check_choice

__all__ = ["Array", "array_module", "available_backends", "to_backend", "to_numpy"]


def available_backends() -> tuple[str, ...]:
    """("numpy",), or ("numpy", "cupy") when a small softmax, a matrix product and a scatter ran with CuPy.

    >>> available_backends()[0]
    'numpy'
    """
    return ("numpy",) if _why_no_cupy() else ("numpy", "cupy")


def to_backend(tree: Any, backend: str) -> Any:
    """The tree with its arrays moved to "numpy" or "cupy"; what is there already stays as it is.

    Numbers in the tree (Adam's step) stay numbers. Raises RuntimeError that says whether CuPy is missing or
    its GPU, TypeError or ValueError for another backend.

    >>> import numpy as np
    >>> to_backend((np.ones(2), None), "numpy")
    (array([1., 1.]), None)
    """
    check_choice("to_backend", "backend", backend, ("numpy", "cupy"))
    if backend == "numpy":
        return mapped("to_backend", on_host, tree)
    reason = _why_no_cupy()
    if reason:
        raise RuntimeError(f"to_backend: {reason}")
    cupy = sys.modules["cupy"]
    return mapped("to_backend", lambda leaf: cupy.asarray(leaf) if is_array(leaf) else leaf, tree)


def to_numpy(tree: Any) -> Any:
    """The tree with its arrays on the host, as NumPy arrays.

    >>> import numpy as np
    >>> to_numpy((np.ones(2), None))
    (array([1., 1.]), None)
    """
    return mapped("to_numpy", on_host, tree)


def _why_no_cupy() -> str:
    """Empty when CuPy works; else which of the two is missing, and what to do."""
    try:
        import cupy
    except ImportError:
        return f"CuPy is not installed; to get it: {how_to_get('cuda12')}, or cuda13 for CUDA 13"
    try:  # CuPy imports without a GPU; cuBLAS is loaded and kernels are compiled when they are needed
        y = cupy.ones((2, 2)) @ cupy.ones((2, 2))
        y = cupy.exp(y - y.max(axis=-1, keepdims=True))
        y /= y.sum(axis=-1, keepdims=True)  # softmax
        cupy.add.at(y, cupy.zeros(2, int), cupy.ones((2, 2)))
        y.sum().item()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return f"CuPy is installed, but no GPU answers: {reason}"
    return ""
