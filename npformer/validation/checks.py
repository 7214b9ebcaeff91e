"""Checks of one value: each function raises the error with the final message, or returns None.

A check takes the name of the called function and the name of the argument for its message. The message names
the function and the argument. It also says what was expected and what was received.
"""

import math
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from npformer.arrays import add_article, format_number
from npformer.arrays import describe_value as describe_value
from npformer.arrays import is_array as is_array
from npformer.tree import iter_nested_leaves

DimensionNames = tuple[str, ...]  # ("...", "T", "d_model")
FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_INTEGERS = (int, np.integer)  # a tuple, because int | np.integer would create a new object in every call
_NUMBERS = (int, float, np.integer, np.floating)
LARGEST = 2**53  # float64 represents every integer up to this number exactly


# --- arrays ---------------------------------------------------------------------------------------


def check_float(
    function: str, argument: str, x: Any, dtype: Any = None, like: str = "the other arrays"
) -> None:
    """Raise TypeError unless x is a float32 or float64 array. If `dtype` is given, x must have this dtype."""
    # Comparing the types is fast, and decides for almost every array. The slower `is_array` runs only if the
    # type is not exactly np.ndarray.
    if not (type(x) is np.ndarray or is_array(x)):
        raise wrong_kind(function, argument, x, f"an array of float32 or float64{_tensor_hint(argument, x)}")
    if x.dtype not in FLOATS:
        half = "float16 keeps 3 digits and overflows at 65504: sums over a row would be wrong"
        advice = half if x.dtype == np.float16 else f"for example {argument}.astype(np.float64)"
        raise wrong_dtype(function, argument, x, f"float32 or float64 ({advice})")
    if dtype is not None and x.dtype != dtype:
        raise wrong_dtype(function, argument, x, f"{dtype} like {like}")


def check_entries(function: str, argument: str, x: Any, kinds: str, expected: str, dtype: str = "") -> None:
    """Raise TypeError unless x is an array with entries of these kinds.

    `kinds` has the one-letter codes of NumPy, such as "iu" for integers. If `dtype` is given, a message about
    a wrong dtype contains the value of `dtype` instead of the value of `expected`.
    """
    if not is_array(x):
        raise wrong_kind(function, argument, x, f"{expected}{_tensor_hint(argument, x)}")
    if x.dtype.kind not in kinds:
        raise wrong_dtype(function, argument, x, dtype or expected)


def _tensor_hint(argument: str, x: Any) -> str:
    """Return how to turn a tensor of PyTorch or TensorFlow into an array, or "" for any other value."""
    if not callable(getattr(x, "numpy", None)):
        return ""
    detach = ".detach()" if callable(getattr(x, "detach", None)) else ""
    return f" ({argument}{detach}.numpy() is one)"


def check_ids(function: str, argument: str, ids: Any) -> None:
    """Raise TypeError unless ids is an array of integers."""
    check_entries(function, argument, ids, "iu", "an array of integers")


def check_numbers(function: str, argument: str, x: Any) -> None:
    """Raise an error unless x is an array of finite integers or floats."""
    check_entries(function, argument, x, "iuf", "an array of numbers")
    check_finite(function, argument, x)


def check_finite(function: str, argument: str, x: Any) -> None:
    """Raise ValueError if a NumPy array has an entry that is NaN or infinite.

    An array on a GPU is not checked, because the check would have to wait for the GPU.
    """
    if isinstance(x, np.ndarray) and not np.isfinite(x).all():
        raise ValueError(f"{function}: {argument} holds NaN or infinity; expected finite numbers")


def check_one_library(function: str, arguments: Mapping[str, Any]) -> None:
    """Raise TypeError if the arguments mix arrays of NumPy and of CuPy.

    CuPy would copy the arrays of NumPy to the GPU without a warning.
    """
    if "cupy" not in sys.modules:
        return
    first_path = first_library = ""
    for name, value in arguments.items():
        for path, x in iter_nested_leaves(name, value):
            if not is_array(x):
                continue
            library = "NumPy" if isinstance(x, np.ndarray) else "CuPy"
            if not first_path:
                first_path, first_library = path, library
            if library != first_library:
                problem = f"an array of {library}; expected one of {first_library} like {first_path}"
                raise TypeError(f"{function}: {path} is {problem} (to_backend and to_numpy move arrays)")


# --- shapes ---------------------------------------------------------------------------------------


def check_shape(
    function: str, argument: str, x: Any, names: DimensionNames, sizes: Mapping[str, int]
) -> None:
    """Raise ValueError unless the axes of x fit the dimension names.

    If the first name is "...", x may have any number of leading axes. `sizes` has the known lengths by
    dimension name. A dimension without a known size may have any length. Only dimensions whose names begin
    with T or S may have length 0: a sequence can be empty, a row cannot.
    """
    if not _fits(x.shape, names, sizes):
        expected = _expected_shape(names, sizes, is_empty=0 in x.shape)
        raise wrong_shape(function, argument, x, expected + _shape_hint(argument, x, names, sizes))


def _shape_hint(argument: str, x: Any, names: DimensionNames, sizes: Mapping[str, int]) -> str:
    """Return a likely repair of a wrong shape, or ""."""
    is_transposed = len(x.shape) == 2 and _fits(x.shape[::-1], names, sizes)
    if is_transposed:
        return f" ({argument}.T fits)"
    has_wrong_d_kv = (
        len(x.shape) == len(names)
        and names[-1] == "d_kv"
        and x.shape[:-1] == tuple(sizes.get(name, -1) for name in names[:-1])
    )
    return " (n_kv_heads sets d_kv)" if has_wrong_d_kv else ""


def _fits(shape: tuple[int, ...], names: DimensionNames, sizes: Mapping[str, int]) -> bool:
    """Return whether a shape fits the dimension names."""
    if names and names[0] == "...":
        names = names[1:]
        shape = shape[-len(names) :] if names else ()
    if len(shape) != len(names):
        return False
    known_sizes = dict(sizes)  # if a name occurs twice, the first of the two axes sets the size
    for length, name in zip(shape, names, strict=True):
        expected = int(name) if name.isdigit() else known_sizes.setdefault(name, length)
        if length != expected:
            return False
        if length == 0 and name not in sizes and not may_be_empty(name):
            return False
    return True


def may_be_empty(name: str) -> bool:
    """Return whether a dimension may have length 0.

    Only sequence lengths may be 0. Their names begin with T or S.
    """
    return name[0] in "TS"


def _expected_shape(names: DimensionNames, sizes: Mapping[str, int], is_empty: bool) -> str:
    """Return the expected shape for a message: `(..., T, d_model) with d_model=8`."""
    conditions = []
    for name in dict.fromkeys(names):  # `fromkeys` removes repeated names
        if name in sizes:
            conditions.append(f"{name}={sizes[name]}")
        elif is_empty and name != "..." and not may_be_empty(name):
            conditions.append(f"{name} of at least 1")
    trailing_comma = "," if len(names) == 1 else ""
    shape = f"({', '.join(names)}{trailing_comma})"
    return f"{shape} with {', '.join(conditions)}" if conditions else shape


def check_same_shape(function: str, argument: str, x: Any, shape: Any, like: str) -> None:
    """Raise ValueError unless x has exactly this shape. `like` names the array that has this shape."""
    if x.shape != shape:
        raise wrong_shape(function, argument, x, f"{shape} like {like}")


def check_broadcast(
    function: str, argument: str, x: Any, names: DimensionNames, shape: tuple[int, ...]
) -> None:
    """Raise ValueError unless x broadcasts to exactly this shape. x must not add an axis.

    A length of -1 in the shape is an unknown length.
    """
    has_too_many_axes = len(x.shape) > len(shape)
    # Broadcasting compares axes from the last axis to the first. `shape` may have more axes than x.
    axes = zip(reversed(x.shape), reversed(shape), strict=False)
    has_wrong_length = any(length not in (1, full) and full >= 0 for length, full in axes)
    if has_too_many_axes or has_wrong_length:
        expected = f"one that broadcasts to ({', '.join(names)}) = {shape}"
        raise wrong_shape(function, argument, x, expected)


# --- numbers and ids ------------------------------------------------------------------------------


def check_id_range(function: str, argument: str, ids: Any, vocab_size: int) -> None:
    """Raise ValueError if a NumPy array has an id outside the vocabulary.

    NumPy would read the id -1 as the last row of the embedding matrix. An array on a GPU is not checked.
    """
    if not isinstance(ids, np.ndarray) or ids.size == 0:
        return
    # The methods `min` and `max` take 1.5 times as long as these two functions.
    smallest, largest = np.minimum.reduce(ids, axis=None), np.maximum.reduce(ids, axis=None)
    if smallest < 0 or largest >= vocab_size:
        first_wrong_id = ids[(ids < 0) | (ids >= vocab_size)][0]
        raise ValueError(
            f"{function}: {argument} holds {first_wrong_id}; "
            f"expected ids from 0 to {vocab_size - 1}, the vocabulary"
        )


def check_integer(function: str, argument: str, value: Any, minimum: int = -LARGEST) -> None:
    """Raise an error unless value is an integer from `minimum` to 2**53. 2.0 and True are not integers."""
    if isinstance(value, bool) or not isinstance(value, _INTEGERS):
        raise wrong_kind(function, argument, value, "an integer")
    if not minimum <= value <= LARGEST:
        expected = f"of at least {minimum}" if value < minimum > -LARGEST else "between -2**53 and 2**53"
        raise ValueError(f"{function}: {argument} is {format_number(value)}; expected an integer {expected}")


def check_number(
    function: str,
    argument: str,
    value: Any,
    *,
    above: float = -math.inf,
    minimum: float = -math.inf,
    below: float = math.inf,
    maximum: float = math.inf,
) -> None:
    """Raise an error unless value is a finite real number within the bounds.

    The bounds are above < value < below and minimum <= value <= maximum.
    """
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        raise wrong_kind(function, argument, value, "a number")
    is_within_bounds = above < value < below and minimum <= value <= maximum
    if not (_is_finite(value) and is_within_bounds):
        bounds = {">": above, ">=": minimum, "<": below, "<=": maximum}
        conditions = [f"{sign} {bound:g}" for sign, bound in bounds.items() if math.isfinite(bound)]
        expected = " and ".join(["a finite number", *conditions])
        raise ValueError(f"{function}: {argument} is {format_number(value)}; expected {expected}")


def _is_finite(value: Any) -> bool:
    """Return whether a number is finite as a float."""
    try:
        return math.isfinite(value)
    except OverflowError:  # the integer is too large for a float
        return False


# --- other values ---------------------------------------------------------------------------------


def check_that(function: str, argument: str, value: Any, holds: Callable[[Any], bool], expected: str) -> None:
    """Raise TypeError unless holds(value) returns True."""
    if not holds(value):
        raise wrong_kind(function, argument, value, expected)


def check_kind(function: str, argument: str, value: Any, kind: type) -> None:
    """Raise TypeError unless the type of value is exactly `kind`.

    This rejects the cache of another function, and a plain tuple or a dict instead of parameters.
    """
    if type(value) is not kind:
        raise wrong_kind(function, argument, value, add_article(kind.__name__))


def check_choice(function: str, argument: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise an error unless value is one of the strings in `choices`."""
    expected = f"one of {', '.join(map(repr, choices))}"
    if not isinstance(value, str):
        raise wrong_kind(function, argument, value, expected)
    if value not in choices:
        raise ValueError(f"{function}: {argument} is {value[:40]!r}; expected {expected}")


def check_callable(function: str, argument: str, value: Any) -> None:
    """Raise TypeError unless value can be called."""
    if not callable(value):
        raise wrong_kind(function, argument, value, "a function")


def check_generator(function: str, argument: str, rng: Any) -> None:
    """Raise TypeError unless rng is a numpy.random.Generator."""
    if not isinstance(rng, np.random.Generator):
        expected = "a numpy.random.Generator, for example np.random.default_rng(0)"
        raise wrong_kind(function, argument, rng, expected)


def is_bool(value: Any) -> bool:
    """Return whether value is True or False."""
    return isinstance(value, bool)


def is_library(xp: Any) -> bool:
    """Return whether xp is an array library: NumPy, or a module with an array type."""
    return xp is np or (isinstance(xp, ModuleType) and hasattr(xp, "ndarray"))


def names_floats(dtype: Any) -> bool:
    """Return whether dtype is float32 or float64, in any form that NumPy accepts for new arrays."""
    # np.dtype accepts too much: None, and every object with an attribute `dtype`.
    if not isinstance(dtype, type | str | np.dtype):
        return False
    with suppress(TypeError, ValueError):
        return np.dtype(dtype) in FLOATS
    return False


# --- errors ---------------------------------------------------------------------------------------


class WrongKind(NamedTuple):
    """The data of an error about a value of the wrong type."""

    argument: str
    value: Any
    expected: str


def wrong_kind(function: str, argument: str, value: Any, expected: str) -> TypeError:
    """Return the error about a value of the wrong type. Its attribute `wrong_kind` has the data."""
    error = TypeError(f"{function}: {argument} is {describe_value(value)}; expected {expected}")
    error.wrong_kind = WrongKind(argument, value, expected)  # type: ignore[attr-defined]
    return error


def wrong_dtype(function: str, argument: str, x: Any, expected: str) -> TypeError:
    """Return the error about an array of the wrong dtype."""
    return TypeError(f"{function}: {argument} has dtype {x.dtype}; expected {expected}")


def wrong_shape(function: str, argument: str, x: Any, expected: str) -> ValueError:
    """Return the error about an array of the wrong shape."""
    return ValueError(f"{function}: {argument} has shape {x.shape}; expected {expected}")
