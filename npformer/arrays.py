"""Which array library an array belongs to, and what a value is in words."""

import math
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


def is_array(x: Any) -> bool:
    """An array of NumPy or CuPy, but no matrix, whose * is @, and no masked array, whose sums leave out."""
    return isinstance(x, array_module(x).ndarray) and not isinstance(x, np.matrix | np.ma.MaskedArray)


def with_arrays(result: Any) -> Any:
    """Arrays of no axes stay arrays: NumPy makes scalars of them, which mix with float32 in another way."""
    if isinstance(result, np.generic):
        return np.asarray(result)
    if type(result) is tuple and isinstance(result[0], np.generic):
        return np.asarray(result[0]), *result[1:]
    return result


def is_foreign(x: Any) -> bool:
    """Whether this is an array of torch, JAX or another library that speaks DLPack or __array__."""
    if isinstance(x, np.ndarray | np.generic | type) or not (hasattr(x, "shape") and hasattr(x, "dtype")):
        return False
    return hasattr(x, "__dlpack__") or hasattr(x, "__array__")


def kind_of_number(x: Any) -> str:
    """f, c, i and so on, as NumPy names the kinds of an array of any library; - for what is no array."""
    if isinstance(x, array_module(x).ndarray):
        return x.dtype.kind
    name = str(x.dtype) if is_foreign(x) else "-"  # torch.float64, bfloat16
    return "f" if "float" in name else "c" if "complex" in name else "-" if name == "-" else "i"


def to_host(x: Any) -> NDArray[Any]:
    """An array of any library as a NumPy array, which may share its memory."""
    xp = array_module(x)
    if xp is not np and isinstance(x, xp.ndarray):
        return x.get()
    if hasattr(x, "detach"):  # pragma: no cover: torch, installed by hand; apart from its graph, on the host
        x = x.detach().cpu()
    return np.asarray(x) if hasattr(x, "__array__") or not is_foreign(x) else np.from_dlpack(x)


def in_kind_of(x: Any, array: NDArray[Any]) -> Any:
    """The array, which is on the host, in x's library and on x's device."""
    xp = array_module(x)
    if xp is not np or not is_foreign(x):
        return xp.asarray(array)
    if hasattr(x, "detach"):  # pragma: no cover: torch, installed by hand
        moved = sys.modules["torch"].asarray(array, device=x.device)
        return moved.requires_grad_() if x.requires_grad else moved
    return x.__array_namespace__().asarray(array, device=x.device)


def copied(x: Any) -> Any:
    """An array with memory of its own, of any library."""
    return in_kind_of(x, np.array(to_host(x))) if is_foreign(x) else x.copy()


def kind_of(value: Any) -> str:
    """`a list`, `None`, `the string 'relu'`: what was received, in a word or two."""
    if value is None:
        return "None"
    if isinstance(value, str):
        return f"the string {value[:40]!r}"
    if isinstance(value, np.generic):
        return f"a NumPy scalar ({value.dtype})"
    if isinstance(value, bool | int | float):
        return f"{article(type(value).__name__)} ({number_of(value)})"
    if isinstance(value, type):
        return f"the type {value.__name__}"
    if isinstance(value, np.dtype):
        return f"the dtype {value}"
    if type(value) is array_module(value).ndarray:
        return f"an array of shape {value.shape}"
    return article(type(value).__name__)


def number_of(value: Any) -> str:
    """The number as it is written; of one that would fill the page, its size."""
    if isinstance(value, int) and abs(value) > 10**20:
        return f"{'-' * (value < 0)}10**{int(value.bit_length() * math.log10(2))} or so"
    return repr(value)


def article(name: str) -> str:
    """The name behind its article."""
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
