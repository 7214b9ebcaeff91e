"""The checks that every public function makes before any arithmetic: our words, expected and received."""

import math
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

import numpy as np

from npformer.arrays import article, number_of
from npformer.arrays import is_array as is_array
from npformer.arrays import kind_of as kind_of
from npformer.tree import ends

Letters = tuple[str, ...]  # ("...", "T", "d_model")
FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_INTEGERS = (int, np.integer)  # tuples: int | np.integer would be put together anew at every call
_NUMBERS = (int, float, np.integer, np.floating)
LARGEST = 2**53  # float64 knows every integer up to here; no array has so many entries


def check_float(
    function: str, argument: str, x: Any, dtype: Any = None, like: str = "the other arrays"
) -> None:
    """Refuse anything but a float32 or float64 array, saying what to do about it; or one of another dtype."""
    if not (type(x) is np.ndarray or is_array(x)):
        raise wrong_kind(function, argument, x, "an array of float32 or float64")
    if x.dtype not in FLOATS:
        half = "float16 keeps 3 digits and overflows at 65504: sums over a row would be wrong"
        advice = half if x.dtype == np.float16 else f"for example {argument}.astype(np.float64)"
        raise wrong_dtype(function, argument, x, f"float32 or float64 ({advice})")
    if dtype is not None and x.dtype != dtype:
        raise wrong_dtype(function, argument, x, f"{dtype} like {like}")


def check_entries(function: str, argument: str, x: Any, kinds: str, expected: str, dtype: str = "") -> None:
    """Refuse anything but an array whose entries are of these kinds, as NumPy's letters name them."""
    if not is_array(x):
        raise wrong_kind(function, argument, x, expected)
    if x.dtype.kind not in kinds:
        raise wrong_dtype(function, argument, x, dtype or expected)


def check_one_library(function: str, arguments: Mapping[str, Any]) -> None:
    """Refuse arrays of CuPy beside arrays of NumPy: some would be copied to the GPU in silence."""
    if "cupy" not in sys.modules:
        return
    found = (end for name, value in arguments.items() for end in ends(name, value))
    arrays = [(path, "NumPy" if isinstance(x, np.ndarray) else "CuPy") for path, x in found if is_array(x)]
    for path, library in arrays:
        first, expected = arrays[0]
        if library != expected:
            words = f"an array of {library}; expected one of {expected} like {first}"
            raise TypeError(f"{function}: {path} is {words} (to_backend and to_numpy move arrays)")


def check_shape(function: str, argument: str, x: Any, letters: Letters, sizes: Mapping[str, int]) -> None:
    """Refuse an array whose axes are not `letters`; a first "..." is any leading axes.

    `sizes` gives the length of an axis by its letter; a letter without a size stands for any length, 0 only
    for the letters T and S: a sequence can be empty, a row cannot.
    """
    if not _fits(x.shape, letters, sizes):
        raise wrong_shape(function, argument, x, _expected(letters, sizes, empty=0 in x.shape))


def _fits(shape: tuple[int, ...], letters: Letters, sizes: Mapping[str, int]) -> bool:
    if letters and letters[0] == "...":
        n = len(letters) - 1
        letters, shape = letters[1:], shape[-n:] if n else ()
    if len(shape) != len(letters):
        return False
    found = dict(sizes)  # and what the shape itself says of a letter that comes twice
    for length, letter in zip(shape, letters, strict=True):
        expected = int(letter) if letter.isdigit() else found.setdefault(letter, length)
        if length != expected or (length == 0 and letter not in sizes and letter[0] not in "TS"):
            return False
    return True


def _expected(letters: Letters, sizes: Mapping[str, int], empty: bool) -> str:
    """`(..., T, d_model) with d_model=8`"""
    inside = ", ".join(letters) + ("," if len(letters) == 1 else "")
    known = [
        f"{letter}={sizes[letter]}" if letter in sizes else f"{letter} of at least 1"
        for letter in dict.fromkeys(letters)
        if letter in sizes or (empty and letter[0] not in ".TS")
    ]
    return f"({inside})" + (f" with {', '.join(known)}" if known else "")


def check_that(function: str, argument: str, value: Any, holds: Callable[[Any], bool], expected: str) -> None:
    """Refuse a value of another kind than expected."""
    if not holds(value):
        raise wrong_kind(function, argument, value, expected)


def check_kind(function: str, argument: str, value: Any, kind: type) -> None:
    """Refuse anything that is not of this very type: another function's cache, a plain tuple, a dict."""
    check_that(function, argument, value, lambda value: type(value) is kind, article(kind.__name__))


def check_d_output(
    function: str, argument: str, d_output: Any, shape: Any, dtype: Any, like: str = "the forward's output"
) -> None:
    """Refuse an upstream gradient that has not exactly the shape and dtype of the forward's output."""
    check_float(function, argument, d_output, dtype, like)
    if d_output.shape != shape:
        raise wrong_shape(function, argument, d_output, f"{shape} like {like}")


def check_broadcast(function: str, argument: str, x: Any, letters: Letters, shape: tuple[int, ...]) -> None:
    """Refuse a mask or bias that does not stretch to this shape, or that would add a batch axis to it.

    A length of -1 is not known.
    """
    axes = zip(reversed(x.shape), reversed(shape), strict=False)
    if len(x.shape) > len(shape) or any(length not in (1, full) and full >= 0 for length, full in axes):
        expected = f"one that broadcasts to ({', '.join(letters)}) = {shape}"
        raise wrong_shape(function, argument, x, expected)


def check_ids(function: str, argument: str, ids: Any) -> None:
    """Refuse anything but an array of integers."""
    check_entries(function, argument, ids, "iu", "an array of integers")


def check_id_range(function: str, argument: str, ids: Any, vocab_size: int) -> None:
    """Refuse ids that name no row; NumPy would read -1 as the last word. Looks at values on the host only."""
    if not isinstance(ids, np.ndarray) or ids.size == 0 or (ids.min() >= 0 and ids.max() < vocab_size):
        return
    wrong = ids[(ids < 0) | (ids >= vocab_size)][0]
    raise ValueError(
        f"{function}: {argument} holds {wrong}; expected ids from 0 to {vocab_size - 1}, the vocabulary"
    )


def check_numbers(function: str, argument: str, x: Any) -> None:
    """Refuse anything but an array of integers or floats, finite ones where NumPy can look at them."""
    check_entries(function, argument, x, "iuf", "an array of numbers")
    if isinstance(x, np.ndarray) and not np.isfinite(x).all():
        raise ValueError(f"{function}: {argument} holds NaN or infinity; expected finite numbers")


def check_integer(function: str, argument: str, value: Any, minimum: int = -LARGEST) -> None:
    """Refuse a number that is not whole (2.0 and True are not integers here), too small or beyond 2^53."""
    if isinstance(value, bool) or not isinstance(value, _INTEGERS):
        raise wrong_kind(function, argument, value, "an integer")
    if not minimum <= value <= LARGEST:
        expected = f"of at least {minimum}" if value < minimum > -LARGEST else "between -2**53 and 2**53"
        raise ValueError(f"{function}: {argument} is {number_of(value)}; expected an integer {expected}")


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
    """Refuse anything but a finite real number with above < value < below and minimum <= value <= maximum."""
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        raise wrong_kind(function, argument, value, "a number")
    if not (_is_finite(value) and above < value < below and minimum <= value <= maximum):
        bounds = {">": above, ">=": minimum, "<": below, "<=": maximum}
        words = [f"{sign} {bound:g}" for sign, bound in bounds.items() if math.isfinite(bound)]
        expected = " and ".join(["a finite number", *words])
        raise ValueError(f"{function}: {argument} is {number_of(value)}; expected {expected}")


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an int that no float can hold
        return False


def check_choice(function: str, argument: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse a word that is not one of the choices."""
    expected = f"one of {', '.join(map(repr, choices))}"
    if not isinstance(value, str):
        raise wrong_kind(function, argument, value, expected)
    if value not in choices:
        raise ValueError(f"{function}: {argument} is {value[:40]!r}; expected {expected}")


def check_callable(function: str, argument: str, value: Any) -> None:
    """Refuse what cannot be called."""
    check_that(function, argument, value, callable, "a function")


def check_generator(function: str, argument: str, rng: Any) -> None:
    """Refuse a source of random numbers other than a numpy.random.Generator."""
    expected = "a numpy.random.Generator, for example np.random.default_rng(0)"
    check_that(function, argument, rng, lambda rng: isinstance(rng, np.random.Generator), expected)


def is_library(xp: Any) -> bool:
    """Whether this is an array library."""
    return xp is np or (isinstance(xp, ModuleType) and hasattr(xp, "ndarray"))


def names_floats(dtype: Any) -> bool:
    """Whether new arrays of this dtype would be of float32 or float64."""
    with suppress(TypeError, ValueError):
        # np.dtype takes None, and anything that has a dtype, for one
        return isinstance(dtype, type | str | np.dtype) and np.dtype(dtype) in FLOATS
    return False


def wrong_kind(function: str, argument: str, value: Any, expected: str) -> TypeError:
    """The error that says what was received in place of what."""
    return TypeError(f"{function}: {argument} is {kind_of(value)}; expected {expected}")


def wrong_dtype(function: str, argument: str, x: Any, expected: str) -> TypeError:
    """The same of an array's dtype."""
    return TypeError(f"{function}: {argument} has dtype {x.dtype}; expected {expected}")


def wrong_shape(function: str, argument: str, x: Any, expected: str) -> ValueError:
    """The same of its shape."""
    return ValueError(f"{function}: {argument} has shape {x.shape}; expected {expected}")
