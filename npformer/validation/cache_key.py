"""Compute a key that describes the arguments of a call.

If a call has the key of an earlier accepted call, only the checks that read the values in arrays run again.
All other checks have the same result for two calls with the same key.
"""

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import numpy as np

from npformer.arrays import array_module, is_array
from npformer.validation.annotation_reader import FIELDS_FOR_GRADIENT
from npformer.validation.checks import FLOATS

TYPES_OF_DTYPES = [type(dtype) for dtype in FLOATS]
SETTINGS = {int, float, bool, str, type(None), type, ModuleType, *TYPES_OF_DTYPES}


def cache_key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return the key of a call, or None if this module does not know the type of an argument.

    The key contains the current shape and dtype of each array, and the type and value of each setting.
    Without the type, True, 1 and 1.0 would give equal keys. The key describes a generator by its type, and a
    cache by the fields that determine the gradient, and by its array library if CuPy is loaded. The key
    contains no array, so it keeps no array in memory.
    """
    key: list[Any] = [None, *kwargs]  # The first entry is the dtype of the last array so far.
    try:
        is_complete = append_descriptions(args + tuple(kwargs.values()), key)
    except RecursionError:  # a tuple is nested too deeply
        return None
    return tuple(key) if is_complete else None


def append_descriptions(values: Iterable[Any], key: list[Any]) -> bool:
    """Append the description of each value to the key; return False at a value of an unknown type.

    This function runs in every call of every public function, so it has to be fast.
    """
    for value in values:
        kind = type(value)
        if kind is np.ndarray:
            key.append(value.shape)
            if value.dtype is not key[0]:  # Most arrays of a call have the dtype of the array before them.
                key[0] = value.dtype
                key.append(key[0])
            continue
        key.append(kind)
        if kind in SETTINGS:
            key.append(value)
        elif isinstance(value, tuple):
            parts = parts_of_cache(value) if kind in FIELDS_FOR_GRADIENT else value
            key.append(len(parts))  # without the length, ((1,), 2) and ((1, 2),) would have the same key
            if not append_descriptions(parts, key):
                return False
        elif kind is array_module(value).ndarray:  # an array of CuPy
            key += (value.shape, value.dtype)
        elif kind is not np.random.Generator:
            return False
    return True


def parts_of_cache(cache: Any) -> list[Any]:
    """Return the fields that determine the gradient. If CuPy is loaded, add the type of the arrays."""
    parts = [getattr(cache, field) for field in FIELDS_FOR_GRADIENT[type(cache)]]
    if "cupy" in sys.modules:
        parts.append(type_of_first_array(cache))
    return parts


def type_of_first_array(value: Any) -> type | None:
    """Return the type of the first array in nested tuples, or None without an array."""
    if not isinstance(value, tuple):
        return type(value) if is_array(value) else None
    types = map(type_of_first_array, value)
    return next((kind for kind in types if kind is not None), None)
