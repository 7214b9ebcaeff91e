"""What crosses the pipe between a student's process and the judge: plain values and arrays of numbers.

A frame is a value in JSON. What JSON has no word for is an object of one entry, named by NUL and a letter; an
array is its type, its shape and its bytes. Both sides import this module and nothing else of npformer; the
judge takes every byte for forged until it is read, and reads no more than the limits here.
"""

import base64
import json
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

MOST_BYTES = 2**25
MOST_MARKS = 500_000  # brackets and commas: an empty list takes 30 times the memory of its two letters
MOST_AXES = 12  # of an array: the checker looks at every choice of them
NUMBERS = re.compile(r"[<>|=][biufc]\d\d?")  # the types of arrays that cross

Functions: TypeAlias = list[Callable[..., Any]]


class Forged(ValueError):
    """Bytes that are no frame."""


class Opaque:
    """What is no number, text or array: only the name of its type has crossed.

    >>> Opaque("Graph")
    <a Graph>
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"<a {self.kind}>"


def readable(text: str, most: int = 300) -> str:
    """Text that every codec can write: lone surrogates and control characters as escapes, cut at a length.

    >>> readable("a" + chr(0xDCFF) + chr(0))
    'a\\\\udcff\\\\x00'
    """
    plain = text[:most].encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in plain)


def _within_limits(text: bytes) -> bytes:
    if len(text) > MOST_BYTES or sum(map(text.count, b"[{,")) > MOST_MARKS:
        raise Forged(f"more than {MOST_BYTES:,} bytes, or {MOST_MARKS:,} things in lists and arrays")
    return text


def pack(value: Any, functions: Functions | None = None) -> bytes:
    """A value in JSON. Functions go by their place in a list that stays here; without a list, by type.

    >>> unpack(pack({"y": (1, None, 2.5)}))
    {'y': (1, None, 2.5)}
    """
    return _within_limits(json.dumps(_tree(value, functions), separators=(",", ":")).encode("ascii"))


def _tree(value: Any, functions: Functions | None) -> Any:
    """What JSON has a word for as it is, all else by its letter."""
    inside = partial(_tree, functions=functions)
    if callable(value) and functions is not None:
        functions.append(value)
        return {"\0f": len(functions) - 1}
    if isinstance(value, np.ndarray | np.generic) or (hasattr(value, "__array__") and not callable(value)):
        return _array_tree(value)
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, tuple):  # a NamedTuple among them
        return {"\0t": [*map(inside, value)]}
    if isinstance(value, list | range):
        return [*map(inside, value)]
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return {key: inside(item) for key, item in value.items()}
    if isinstance(value, complex):
        return {"\0c": [value.real, value.imag]}
    if value is ...:
        return {"\0e": 0}
    if hasattr(value, "__float__") and not callable(value):
        return float(value)
    return {"\0o": value.kind if isinstance(value, Opaque) else type(value).__name__}


def _array_tree(value: Any) -> Any:
    array = np.asarray(value)
    if not NUMBERS.fullmatch(array.dtype.str):
        return {"\0o": type(value).__name__}
    if array.nbytes > MOST_BYTES:
        raise Forged(f"an array of {array.nbytes:,} bytes")
    data = base64.b64encode(array.tobytes()).decode("ascii")
    return {"\0s" if isinstance(value, np.generic) else "\0a": [array.dtype.str, list(array.shape), data]}


def unpack(text: bytes, function_at: Callable[[int], Any] = ().__getitem__) -> Any:
    """The value, with the functions that stand for places; Forged for any other bytes."""
    try:
        things = partial(_thing, _TAGS | {"\0f": function_at})
        return json.loads(_within_limits(text).decode("ascii"), object_hook=things)
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError) as error:
        raise Forged(f"not a frame: {error}") from None


def _thing(tags: dict[str, Callable[[Any], Any]], entries: dict[str, Any]) -> Any:
    """What an object of the tree stands for; a dict where it is none of ours."""
    tag = next(iter(entries), "")
    return tags[tag](entries[tag]) if tag in tags else entries


def _array(parts: Any) -> Any:
    """An array of the bytes that are there, whatever it says of itself: a copy that may be written to."""
    kind, shape, data = parts
    entries = math.prod(int(n) or 1 for n in shape)  # an empty array's sum over its empty axis is not empty
    if not NUMBERS.fullmatch(kind) or len(shape) > MOST_AXES or entries > MOST_BYTES:
        raise Forged("an array of no numbers, or of too many axes or entries")
    array: Any = np.ndarray(shape, kind, base64.b64decode(data, validate=True))
    return array.astype(array.dtype.newbyteorder("="))


_TAGS: dict[str, Callable[[Any], Any]] = {
    "\0a": _array,
    "\0s": lambda parts: _array(parts)[()],
    "\0t": tuple,
    "\0c": lambda parts: complex(*parts),
    "\0e": lambda _: ...,
    "\0o": lambda kind: Opaque(str(kind)),
}
