"""What crosses the pipe between a student's process and the process that judges: plain values and arrays.

A frame is a tree in JSON and a list of arrays in the .npy format without pickle. The tree holds numbers and
text as they are; what JSON has no word for is an object of one entry, named by TAGS. Both sides import this
module and nothing else of npformer; the judge takes every byte for forged until it is read.
"""

import json
import struct
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, TypeAlias

import numpy as np
from numpy.lib import format as npy

MOST_BYTES = 2**25  # of one frame
MOST_ITEMS = 200_000  # of all lists in one frame
DEEPEST = 20
LONGEST_TEXT = 20_000
LARGEST_INT = 2**63
MOST_BITS = 16_000  # of a whole number
LENGTHS = struct.Struct(">II")  # bytes of the tree, bytes of the arrays
KINDS = "biufc"

Tree: TypeAlias = Any


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


def pack(value: Any, functions: list[Callable[..., Any]] | None = None) -> bytes:
    """The frame of a value. Functions go by their place in a list that stays here; without a list, by type.

    >>> unpack(pack({"y": (1, None, 2.5)}))
    {'y': (1, None, 2.5)}
    """
    arrays: list[bytes] = []
    writer = _Writer(arrays, functions)
    tree = json.dumps(writer.tree(value, 0)).encode("ascii")
    blobs = b"".join(struct.pack(">I", len(blob)) + blob for blob in arrays)
    if len(tree) + len(blobs) > MOST_BYTES:
        raise Forged(f"{len(tree) + len(blobs):,} bytes; at most {MOST_BYTES:,} are read")
    return LENGTHS.pack(len(tree), len(blobs)) + tree + blobs


class _Writer:
    """A walk through one value, counting what it writes."""

    def __init__(self, arrays: list[bytes], functions: list[Callable[..., Any]] | None) -> None:
        self.arrays, self.functions, self.items = arrays, functions, 0

    def tree(self, value: Any, depth: int) -> Tree:
        self.items += 1
        kind = type(value)
        if self.items > MOST_ITEMS or depth > DEEPEST:
            raise Forged(f"more than {MOST_ITEMS:,} numbers in lists, or lists deeper than {DEEPEST}")
        if value is None or kind is bool or kind is float:
            return value
        if kind is int:
            return value if abs(value) < LARGEST_INT else _long(value)
        if kind is list:
            return [self.tree(item, depth + 1) for item in value]
        if kind is tuple:
            return {"t": [self.tree(item, depth + 1) for item in value]}
        if kind is dict:
            return {"d": [[self.tree(k, depth + 1), self.tree(v, depth + 1)] for k, v in value.items()]}
        return self._rest(value, kind, depth)

    def _rest(self, value: Any, kind: type, depth: int) -> Tree:
        if isinstance(value, str):
            return readable(str.__str__(value), LONGEST_TEXT)
        if kind is complex:
            return {"c": [value.real, value.imag]}
        if value is ...:
            return {"e": 0}
        if isinstance(value, np.generic) and value.dtype.kind in KINDS:
            return {"s": self._array(np.asarray(value))}
        if callable(value) and self.functions is not None:
            self.functions.append(value)
            return {"f": len(self.functions) - 1}
        if isinstance(value, Opaque):
            return {"o": readable(value.kind, 100)}
        return self._foreign(value, kind, depth)

    def _foreign(self, value: Any, kind: type, depth: int) -> Tree:
        """Arrays, and what says itself that it is an array, a sequence or a number."""
        if not callable(value) and not isinstance(value, type):
            if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
                array = np.asarray(value)
                if type(array) is np.ndarray and array.dtype.kind in KINDS:
                    return {"a": self._array(array)}
            elif isinstance(value, tuple | list | range):  # a NamedTuple among them
                return self.tree(tuple(value) if isinstance(value, tuple) else list(value), depth + 1)
            elif isinstance(value, int):
                return self.tree(int(value), depth + 1)
            elif hasattr(value, "__float__"):
                return float(value)
        return {"o": readable(kind.__name__, 100)}

    def _array(self, array: Any) -> int:
        file = BytesIO()
        npy.write_array(file, array, version=(1, 0), allow_pickle=False)
        self.arrays.append(file.getvalue())
        return len(self.arrays) - 1


def _long(value: int) -> Tree:
    return {"i": hex(value)} if value.bit_length() <= MOST_BITS else {"o": "number of more than 4,000 digits"}


def readable(text: str, most: int = 300) -> str:
    """Text that every codec can write: lone surrogates and control characters as escapes, cut at a length.

    >>> readable("a" + chr(0xDCFF) + chr(0))
    'a\\\\udcff\\\\x00'
    """
    plain = text[:most].encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in plain)


def unpack(frame: bytes, functions: Sequence[Callable[..., Any]] = ()) -> Any:
    """The value of a frame; Forged for any other bytes."""
    try:
        of_tree, of_arrays = LENGTHS.unpack_from(frame)
        start = LENGTHS.size + of_tree
        if len(frame) != start + of_arrays:
            raise Forged("another length than it says")
        tree = json.loads(frame[LENGTHS.size : start].decode("ascii"))
        return _value(tree, _arrays(frame[start:]), functions)
    except Forged:
        raise
    except (ValueError, TypeError, LookupError, RecursionError, struct.error, SyntaxError) as error:
        raise Forged(f"not a frame: {type(error).__name__}") from None


def length_of(head: bytes) -> int:
    """How many bytes follow a frame's first ones; Forged where they are too many."""
    total = sum(LENGTHS.unpack(head))
    if total > MOST_BYTES:
        raise Forged(f"{total:,} bytes; at most {MOST_BYTES:,} are read")
    return total


def _arrays(blobs: bytes) -> list[Any]:
    found, place = [], 0
    while place < len(blobs):
        (size,) = struct.unpack_from(">I", blobs, place)
        found.append(_array(blobs[place + 4 : place + 4 + size]))
        place += 4 + size
    return found


def _array(blob: bytes) -> Any:
    """One array of numbers. Its size is compared with the bytes that came before room is made for it."""
    file = BytesIO(blob)
    if npy.read_magic(file) != (1, 0):
        raise Forged("an unknown .npy version")
    shape, fortran, dtype = npy.read_array_header_1_0(file)
    if dtype.kind not in KINDS or dtype.hasobject or any(n < 0 for n in shape) or len(shape) > 32:
        raise Forged(f"an array of {dtype}")
    count = int(np.prod(shape, dtype=object)) if shape else 1
    if count * dtype.itemsize != len(blob) - file.tell():
        raise Forged("an array of another size than it says")
    flat = np.frombuffer(blob, dtype, count, file.tell()) if count else np.empty(0, dtype)
    array = flat.reshape(shape, order="F" if fortran else "C")
    return array.astype(dtype.newbyteorder("="))  # a copy that may be written to


def _value(tree: Tree, arrays: list[Any], functions: Sequence[Callable[..., Any]]) -> Any:
    if isinstance(tree, list):
        return [_value(item, arrays, functions) for item in tree]
    if not isinstance(tree, dict):
        return tree
    ((tag, inside),) = tree.items()
    if tag in ("a", "s", "f"):
        if type(inside) is not int or inside < 0:
            raise Forged("a place that is none")
        if tag == "f":
            return functions[inside]
        return arrays[inside] if tag == "a" else arrays[inside][()]
    if tag == "d":
        return {_key(k): _value(v, arrays, functions) for k, v in inside}
    return _TAGS[tag]([_value(item, arrays, functions) for item in inside] if tag in "tc" else inside)


def _key(tree: Tree) -> Any:
    return str(tree) if isinstance(tree, dict | list) else tree


_TAGS: dict[str, Callable[[Any], Any]] = {
    "t": tuple,
    "c": lambda parts: complex(*parts),
    "i": lambda text: int(str(text)[:5000], 16),
    "e": lambda _: ...,
    "o": lambda kind: Opaque(str(kind)),
}
