"""Find out which array library an array belongs to, convert arrays, and describe values in error messages."""

import math
import sys
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]  # a NumPy or CuPy array


def array_module(*arrays: Any) -> ModuleType:
    """Return the array library of the arrays: NumPy, or CuPy if one of them is a CuPy array.

    The library follows from the arrays, so there is no global setting. This function never imports CuPy. If
    a CuPy array exists, then CuPy has already been imported.

    Parameters
    ----------
    *arrays : arrays, or any other values

    Returns
    -------
    xp : module
        numpy or cupy.

    Examples
    --------
    >>> array_module(np.ones(3)).__name__
    'numpy'
    """
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return np
    module: ModuleType = cupy.get_array_module(*arrays)
    return module


def is_array(x: Any) -> bool:
    """Return whether x is an ordinary array of NumPy or CuPy.

    np.matrix is rejected because its ``*`` is a matrix product. A masked array is rejected because its sums
    leave out the masked entries.
    """
    return isinstance(x, array_module(x).ndarray) and not isinstance(x, np.matrix | np.ma.MaskedArray)


def scalars_to_arrays(result: Any) -> Any:
    """Turn a NumPy scalar into an array without axes. In a tuple, only the first element is converted.

    NumPy returns scalars from operations on arrays without axes. The functions of this package accept only
    arrays, so a scalar could not be passed on to the next function.
    """
    if type(result) is np.ndarray:
        return result
    if isinstance(result, np.number):
        return np.asarray(result)
    if type(result) is tuple and result and isinstance(result[0], np.number):
        return np.asarray(result[0]), *result[1:]
    return result


def is_foreign(x: Any) -> bool:
    """Return whether x is an array of PyTorch, JAX or another library with DLPack or ``__array__``."""
    if isinstance(x, np.ndarray | np.generic | type):
        return False
    if not (hasattr(x, "shape") and hasattr(x, "dtype")):
        return False
    return hasattr(x, "__dlpack__") or hasattr(x, "__array__")


def dtype_kind(x: Any) -> str:
    """Return NumPy's letter for the type of the entries, such as "f", "c" or "i", or "-" if x is no array."""
    if isinstance(x, array_module(x).ndarray):
        return "f" if x.dtype.name == "bfloat16" else x.dtype.kind  # NumPy has no letter for bfloat16
    if not is_foreign(x):
        return "-"
    name = str(x.dtype)  # such as torch.float64 or bfloat16
    if "float" in name:
        return "f"
    if "complex" in name:
        return "c"
    return "i"


def to_host(x: Any) -> NDArray[Any]:
    """Convert an array of any library to a NumPy array. The result may share its memory with x."""
    xp = array_module(x)
    if xp is not np and isinstance(x, xp.ndarray):
        return x.get()
    if hasattr(x, "detach"):  # pragma: no cover: needs PyTorch, which is not a dependency of the tests
        x = x.detach().cpu()
        if str(x.dtype) == "torch.bfloat16":
            from ml_dtypes import bfloat16

            return x.float().numpy().astype(bfloat16)
    if is_foreign(x) and not hasattr(x, "__array__"):
        return np.from_dlpack(x)
    return np.asarray(x)


def convert_like(x: Any, array: NDArray[Any]) -> Any:
    """Convert a NumPy array to the array library and the device of x."""
    xp = array_module(x)
    if xp is not np or not is_foreign(x):
        return xp.asarray(array)
    if hasattr(x, "detach"):  # pragma: no cover: needs PyTorch, which is not a dependency of the tests
        torch = sys.modules["torch"]
        if array.dtype.name == "bfloat16":
            array = array.astype(np.float32)
            tensor = torch.asarray(array, device=x.device).bfloat16()
        else:
            tensor = torch.asarray(array, device=x.device)
        return tensor.requires_grad_() if x.requires_grad else tensor
    return x.__array_namespace__().asarray(array, device=x.device)


def copy_array(x: Any) -> Any:
    """Return a copy of an array of any library, which shares no memory with x."""
    if is_foreign(x):
        return convert_like(x, np.array(to_host(x)))
    return x.copy()


def describe_value(value: Any) -> str:
    """Describe a value in an error message, such as "a list", "None" or "the string 'relu'"."""
    if value is None:
        return "None"
    if isinstance(value, str):
        return f"the string {value[:40]!r}"
    if isinstance(value, np.generic):
        return f"a NumPy scalar ({value.dtype})"
    if isinstance(value, bool | int | float):
        return f"{add_article(type(value).__name__)} ({format_number(value)})"
    if isinstance(value, type):
        return f"the type {value.__name__}"
    if isinstance(value, np.dtype):
        return f"the dtype {value}"
    if type(value) is array_module(value).ndarray:
        return f"an array of shape {value.shape}"
    return add_article(type(value).__name__)


def format_number(value: Any) -> str:
    """Return a number as text. A very large integer is given only as a power of ten."""
    is_large = isinstance(value, int) and abs(value) > 10**20
    if not is_large:
        return repr(value)
    sign = "-" if value < 0 else ""
    exponent = int(value.bit_length() * math.log10(2))
    return f"{sign}10**{exponent} or so"


def add_article(name: str) -> str:
    """Return the name with "a" or "an" before it."""
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
