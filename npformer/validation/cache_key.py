"""Compute a key that describes the arguments of a call.

A call with the key of an earlier accepted call is not checked again. Two calls with the
same key pass or fail the same checks, except for checks that read the values in arrays.
"""

from collections.abc import Iterable
from types import ModuleType
from typing import Any

import numpy as np

from npformer.validation.annotation_reader import FIELDS_FOR_GRADIENT
from npformer.validation.checks import FLOATS

TYPES_OF_DTYPES = [type(dtype) for dtype in FLOATS]
SETTINGS = {int, float, bool, str, type(None), type, ModuleType, *TYPES_OF_DTYPES}


def cache_key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return the key of a call, or None if this module does not know the type of an argument.

    The key contains the current shape and dtype of each array, and the type and value of each setting.
    Without the type, True, 1 and 1.0 would give equal keys. The key describes a generator by its type, and a
    cache by the fields that determine the gradient. The key contains no array, so it keeps no array in
    memory.
    """
    key: list[Any] = [*kwargs]
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
            key.append(value.dtype)
            continue
        key.append(kind)
        if kind in SETTINGS:
            key.append(value)
        elif isinstance(value, tuple):
            parts: Any = value
            if kind in FIELDS_FOR_GRADIENT:
                parts = [getattr(value, field) for field in FIELDS_FOR_GRADIENT[kind]]
            key.append(len(parts))  # without the length, ((1,), 2) and ((1, 2),) would have the same key
            if not append_descriptions(parts, key):
                return False
        elif kind is not np.random.Generator:
            return False
    return True
