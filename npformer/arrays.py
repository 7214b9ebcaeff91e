"""Which array library an array belongs to."""

import sys
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]  # a NumPy or CuPy array


def array_module(*arrays: Any) -> ModuleType:
    """The array library that the arrays belong to: NumPy, or CuPy if any of them is a CuPy array.

    The library follows the data, so there is no switch to set. CuPy is looked up among the modules that
    are loaded already: whoever holds a CuPy array has imported it, and nobody else pays for it.

    >>> array_module(np.ones(3)).__name__
    'numpy'
    """
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return np
    module: ModuleType = cupy.get_array_module(*arrays)
    return module


def with_arrays(result: Any) -> Any:
    """Arrays of no axes stay arrays: NumPy makes scalars of them, which mix with float32 in another way."""
    if isinstance(result, np.generic):
        return np.asarray(result)
    if type(result) is tuple and isinstance(result[0], np.generic):
        return np.asarray(result[0]), *result[1:]
    return result
