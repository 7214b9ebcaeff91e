"""Move trees of arrays between NumPy and CuPy, and find out whether CuPy works on this machine."""

import sys
from functools import cache
from typing import Any

from npformer.arrays import Array, array_module, is_array
from npformer.installation import how_to_get
from npformer.tree import Tree, copy_to_host, map_leaves
from npformer.validation.checks import check_choice

__all__ = ["Array", "array_module", "available_backends", "to_backend", "to_numpy"]


def available_backends() -> tuple[str, ...]:
    """Return the array libraries that work on this machine.

    "cupy" is available if a small softmax, a matrix product and a scatter operation run on the GPU.

    Returns
    -------
    names : ("numpy",) or ("numpy", "cupy")

    Examples
    --------
    >>> available_backends()[0]
    'numpy'
    """
    return ("numpy",) if _why_no_cupy() else ("numpy", "cupy")


def to_backend(tree: Tree, backend: str) -> Tree:
    """Move the arrays of a tree to NumPy or CuPy.

    Parameters
    ----------
    tree : tree
        Arrays that already belong to `backend` are not copied. Numbers, such as Adam's step, stay numbers.
    backend : "numpy" or "cupy"

    Returns
    -------
    tree : tree of the same form

    Raises
    ------
    RuntimeError
        If CuPy is not installed, or if it has no working GPU. The message says which.

    Examples
    --------
    >>> import numpy as np
    >>> to_backend((np.ones(2), None), "numpy")
    (array([1., 1.]), None)
    """
    check_choice("to_backend", "backend", backend, ("numpy", "cupy"))
    if backend == "numpy":
        return map_leaves("to_backend", copy_to_host, tree)
    reason = _why_no_cupy()
    if reason:
        raise RuntimeError(f"to_backend: {reason}")
    cupy = sys.modules["cupy"]

    def copy_to_gpu(leaf: Any) -> Any:
        return cupy.asarray(leaf) if is_array(leaf) else leaf

    return map_leaves("to_backend", copy_to_gpu, tree)


def to_numpy(tree: Tree) -> Tree:
    """Copy the arrays of a tree to the memory of the CPU, as NumPy arrays.

    Parameters
    ----------
    tree : tree
        NumPy arrays are not copied.

    Returns
    -------
    tree : tree of the same form

    Examples
    --------
    >>> import numpy as np
    >>> to_numpy((np.ones(2), None))
    (array([1., 1.]), None)
    """
    return map_leaves("to_numpy", copy_to_host, tree)


def _why_no_cupy() -> str:
    """Return the reason why CuPy does not work, with advice, or "" if CuPy works."""
    try:
        import cupy
    except ImportError:
        return f"CuPy is not installed; to get it: {how_to_get('cuda12')}, or cuda13 for CUDA 13"
    try:
        _run_small_calculation(cupy)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return f"CuPy is installed, but it cannot use a GPU: {reason}"
    return ""


@cache  # A calculation that works is not repeated. An exception is not cached, so the next call tries again.
def _run_small_calculation(cupy: Any) -> None:
    """Use the GPU: raise an exception if CuPy cannot load cuBLAS or cannot compile and run kernels.

    CuPy can be imported without a GPU, and it loads cuBLAS and compiles kernels only when it needs them. So
    only a small calculation shows whether it works.
    """
    y = cupy.ones((2, 2)) @ cupy.ones((2, 2))
    y = cupy.exp(y - y.max(axis=-1, keepdims=True))
    y /= y.sum(axis=-1, keepdims=True)  # softmax
    cupy.add.at(y, cupy.zeros(2, int), cupy.ones((2, 2)))
    y.sum().item()
