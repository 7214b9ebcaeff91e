"""What crosses the pipe between a student's process and the judge: plain values and arrays of numbers.

A frame is a tree in JSON and the bytes of its arrays. The tree holds numbers and text as they are; what JSON
has no word for is an object of one entry, named by a letter. Both sides import this module and nothing else
of npformer; the judge takes every byte for forged until it is read, and reads no more than the limits here.
"""

import json
import math
import re
import struct
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

MOST_BYTES = 2**25  # of one frame's arrays
MOST_TEXT = 2**22  # of its tree: what is read of it takes up to 30 times as much memory
MOST_ITEMS = 200_000  # of all its lists, arrays and objects
DEEPEST = 20
LONGEST_TEXT = 20_000
MOST_BITS = 14_000  # of a whole number: Python reads no longer one
LENGTHS = struct.Struct(">II")  # bytes of the tree, bytes of the arrays
NUMBERS = re.compile(r"[<>|=][biufc]\d\d?")  # the types of arrays that cross

Tree: TypeAlias = Any
FunctionAt: TypeAlias = Callable[[int], Any]


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


# --- there ----------------------------------------------------------------------------------------


def pack(value: Any, functions: list[Callable[..., Any]] | None = None) -> bytes:
    """The frame of a value. Functions go by their place in a list that stays here; without a list, by type.

    >>> unpack(pack({"y": (1, None, 2.5)}))
    {'y': (1, None, 2.5)}
    """
    writer = _Writer(functions)
    tree = json.dumps(writer.tree(value, 0)).encode("ascii")
    arrays = b"".join(writer.arrays)
    head = LENGTHS.pack(len(tree), len(arrays))
    length_of(head)
    return head + tree + arrays


class _Writer:
    """A walk through one value, counting what it writes."""

    def __init__(self, functions: list[Callable[..., Any]] | None) -> None:
        self.arrays: list[bytes] = []
        self.functions, self.items = functions, 0

    def tree(self, value: Any, depth: int) -> Tree:
        self.items += 1
        if self.items > MOST_ITEMS or depth > DEEPEST:
            raise Forged(f"more than {MOST_ITEMS:,} things in lists, or lists deeper than {DEEPEST}")
        kind = type(value)
        if value is None or kind in (bool, float) or (kind is int and value.bit_length() <= MOST_BITS):
            return value
        if kind is list:
            return [self.tree(item, depth + 1) for item in value]
        if kind is tuple:
            return {"t": [self.tree(item, depth + 1) for item in value]}
        if kind is dict:
            return {"d": [[self.tree(k, depth + 1), self.tree(v, depth + 1)] for k, v in value.items()]}
        if isinstance(value, str):
            return readable(str.__str__(value), LONGEST_TEXT)
        if callable(value) and self.functions is not None:
            self.functions.append(value)
            return {"f": len(self.functions) - 1}
        return self._foreign(value, kind, depth)

    def _foreign(self, value: Any, kind: type, depth: int) -> Tree:
        """Arrays, and what says itself that it is an array, a sequence or a number; of all else its type."""
        if kind is complex:
            return {"c": [value.real, value.imag]}
        if value is ...:
            return {"e": 0}
        if isinstance(value, Opaque):
            return {"o": readable(value.kind, 100)}
        if callable(value):
            pass
        elif isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
            array = np.asarray(value)
            if type(array) is np.ndarray and NUMBERS.fullmatch(array.dtype.str):
                self.arrays.append(array.tobytes())
                tag = "s" if isinstance(value, np.generic) else "a"
                return {tag: [array.dtype.str, list(array.shape)]}
        elif isinstance(value, tuple | list | range):  # a NamedTuple among them
            return self.tree((tuple if isinstance(value, tuple) else list)(value), depth + 1)
        elif isinstance(value, int):
            return {"o": "number of many digits"} if kind is int else self.tree(int(value), depth + 1)
        elif hasattr(value, "__float__"):
            return float(value)
        return {"o": readable(kind.__name__, 100)}


# --- and back -------------------------------------------------------------------------------------


def unpack(frame: bytes, function_at: FunctionAt = ().__getitem__) -> Any:
    """The value of a frame, with the functions that stand for places; Forged for any other bytes."""
    try:
        start = LENGTHS.size + LENGTHS.unpack_from(frame)[0]
        if len(frame) != LENGTHS.size + length_of(frame):
            raise Forged("another length than it says")
        reader = _Reader(frame[start:], function_at)
        return json.loads(frame[LENGTHS.size : start].decode("ascii"), object_hook=reader.value)
    except Forged:
        raise
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError, struct.error) as error:
        raise Forged(f"not a frame: {type(error).__name__}") from None


def length_of(head: bytes) -> int:
    """How many bytes follow a frame's first ones; Forged where they are too many."""
    of_tree, of_arrays = LENGTHS.unpack_from(head)
    if of_tree > MOST_TEXT or of_arrays > MOST_BYTES:
        raise Forged(f"{of_tree + of_arrays:,} bytes are more than is read")
    return int(of_tree + of_arrays)


class _Reader:
    """What the objects of a tree stand for; its arrays lie one after the other."""

    def __init__(self, arrays: bytes, function_at: FunctionAt) -> None:
        self.arrays, self.function_at, self.place, self.items = arrays, function_at, 0, 0

    def value(self, entries: dict[str, Any]) -> Any:
        """One object."""
        self.items += 1
        if self.items > MOST_ITEMS:
            raise Forged("too many things")
        ((tag, inside),) = entries.items()
        if tag in "as":
            array = self.array(*inside)
            return array if tag == "a" else array[()]
        if tag == "f":
            return self.function_at(_whole(inside))
        return _TAGS[tag](inside)

    def array(self, kind: str, shape: list[int]) -> Any:
        """The next array. Its size is compared with the bytes that came before room is made for it."""
        if not NUMBERS.fullmatch(kind):
            raise Forged("an array of no numbers")
        dtype, count = np.dtype(kind), math.prod(map(_whole, shape))
        begin, self.place = self.place, self.place + count * dtype.itemsize
        if len(shape) > 32 or self.place > len(self.arrays):
            raise Forged("an array of another size than it says")
        flat = np.frombuffer(self.arrays, dtype, count, begin) if count else np.empty(0, dtype)
        return flat.reshape(shape).astype(dtype.newbyteorder("="))  # a copy that may be written to


def _whole(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise Forged("a place or a length that is none")
    return number


_TAGS: dict[str, Callable[[Any], Any]] = {
    "t": tuple,
    "d": dict,
    "c": lambda parts: complex(*parts),
    "e": lambda _: ...,
    "o": lambda kind: Opaque(str(kind)),
}
