"""Encode, send and receive the messages between a worker and the grading process.

A message contains only plain values and arrays of numbers.

A message is sent as a **frame**, a value in JSON. JSON has no types such as tuples and arrays. A value of
such a type is sent as an object with one entry. The key of this entry is the character NUL and a letter. An
array is sent as dtype, shape and bytes.

A submission can send any bytes to the grading process. Therefore the grading process checks every frame
before using a value, and rejects frames that exceed the limits defined below. The process does not use
pickle, which can run code.
"""

import base64
import json
import math
import re
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

MAX_BYTES = 2**25
# The largest number of brackets and commas. An empty list needs 30 times the memory of its text "[]".
MAX_ITEMS = 500_000
MAX_AXES = 12  # the largest number of axes; the checker tries every combination of axes
NUMERIC_DTYPE = re.compile(r"[<>|=][biufc]\d\d?")
CHUNK_BYTES = 2**20  # the largest number of bytes in one read
LENGTH_BYTES = 4  # each frame begins with its length, a number of this many bytes

Functions: TypeAlias = list[Callable[..., Any]]


class Forged(ValueError):
    """The received bytes are not a frame, or the frame exceeds the limits."""


class Opaque:
    """Represents a value that is not a number, text or array. Only the name of its type is sent.

    >>> Opaque("Graph")
    <a Graph>
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"<a {self.kind}>"


def readable(text: str, max_length: int = 300) -> str:
    """Cut a text, and escape lone surrogates and control characters so that every encoding can write it.

    >>> readable("a" + chr(0xDCFF) + chr(0))
    'a\\\\udcff\\\\x00'
    """
    without_surrogates = text[:max_length].encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(map(_escape_control, without_surrogates))


def _escape_control(character: str) -> str:
    """Return a printable character, newline or tab unchanged. Escape any other character."""
    if character.isprintable() or character in "\n\t":
        return character
    return ascii(character)[1:-1]  # without the quotes


# --- the channel ----------------------------------------------------------------------------------


class Channel:
    """Sends and receives frames through one end of a pair of sockets.

    `deadline` is a time on the clock `time.monotonic`. TimeoutError is raised if the whole frame is not sent
    or received before the deadline. Single bytes from the other side do not extend the deadline. Without a
    deadline, the channel waits without limit.
    """

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    def send(self, frame: bytes, deadline: float = math.inf) -> None:
        """Send one frame."""
        self.socket.settimeout(_get_remaining(deadline))
        self.socket.sendall(len(frame).to_bytes(LENGTH_BYTES, "big") + frame)

    def receive(self, deadline: float = math.inf) -> bytes:
        """Receive one frame. Raises EOFError if the other process has closed its end of the channel."""
        length = int.from_bytes(self._read(LENGTH_BYTES, deadline), "big")
        if length > MAX_BYTES:
            raise Forged(f"a frame of {length:,} bytes")
        return self._read(length, deadline)

    def _read(self, length: int, deadline: float) -> bytes:
        """Read exactly this many bytes."""
        data = bytearray()
        while len(data) < length:
            self.socket.settimeout(_get_remaining(deadline))
            part = self.socket.recv(min(length - len(data), CHUNK_BYTES))
            if not part:
                raise EOFError("the other side has closed the channel")
            data += part
        return bytes(data)

    def close(self) -> None:
        """Close this end of the channel."""
        self.socket.close()


def _get_remaining(deadline: float) -> float | None:
    """Return the seconds until a deadline, or None without a deadline. Raises TimeoutError if it is over."""
    if deadline == math.inf:
        return None
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


# --- frames ---------------------------------------------------------------------------------------


def pack(value: Any, functions: Functions | None = None) -> bytes:
    """Encode a value as a frame.

    A function is appended to the list `functions`, and its index in this list is encoded. Without a list,
    only the name of the function's type is encoded.

    >>> unpack(pack({"y": (1, None, 2.5)}))
    {'y': (1, None, 2.5)}
    """
    text = json.dumps(_encode(value, functions), separators=(",", ":"))
    return _check_size(text.encode("ascii"))


def _reject_position(position: int) -> Any:
    """Raise LookupError, because a frame contains a function but the receiver expects no function."""
    raise LookupError(f"function {position}")


def unpack(frame: bytes, function_at: Callable[[int], Any] = _reject_position) -> Any:
    """Decode a frame.

    `function_at` returns the function for an index. Raises Forged if the bytes are not a valid frame.
    """
    try:
        decode = partial(_decode, _DECODERS | {"\0f": function_at})
        return json.loads(_check_size(frame).decode("ascii"), object_hook=decode)
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError) as error:
        raise Forged(f"not a frame: {error}") from None


def _check_size(frame: bytes) -> bytes:
    """Return the frame. Raises Forged if the frame exceeds the limits."""
    item_count = frame.count(b"[") + frame.count(b"{") + frame.count(b",")
    if len(frame) > MAX_BYTES or item_count > MAX_ITEMS:
        raise Forged(f"more than {MAX_BYTES:,} bytes, or {MAX_ITEMS:,} things in lists and arrays")
    return frame


def _encode(value: Any, functions: Functions | None) -> Any:
    """Convert a value to types that JSON has. A NamedTuple becomes a plain tuple."""
    encode = partial(_encode, functions=functions)
    is_function = callable(value)
    is_plain_dict = type(value) is dict and all(isinstance(key, str) for key in value)
    if is_function and functions is not None:
        functions.append(value)
        return {"\0f": len(functions) - 1}
    if isinstance(value, np.ndarray | np.generic) or (hasattr(value, "__array__") and not is_function):
        return _encode_array(value)
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, tuple):
        return {"\0t": list(map(encode, value))}
    if isinstance(value, list | range):
        return list(map(encode, value))
    if is_plain_dict:
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, complex):
        return {"\0c": [value.real, value.imag]}
    if value is ...:
        return {"\0e": 0}
    if hasattr(value, "__float__") and not is_function:
        return float(value)
    return {"\0o": value.kind if isinstance(value, Opaque) else type(value).__name__}


def _encode_array(value: Any) -> Any:
    """Encode an array of numbers as dtype, shape and bytes, and any other array as the name of its type."""
    array = np.asarray(value)
    if not NUMERIC_DTYPE.fullmatch(array.dtype.str):
        return {"\0o": type(value).__name__}
    if array.nbytes > MAX_BYTES:
        raise Forged(f"an array of {array.nbytes:,} bytes")
    key = "\0s" if isinstance(value, np.generic) else "\0a"
    data = base64.b64encode(array.tobytes()).decode("ascii")
    return {key: [array.dtype.str, list(array.shape), data]}


def _decode(decoders: dict[str, Callable[[Any], Any]], entries: dict[str, Any]) -> Any:
    """Decode a JSON object.

    If the first key is in `decoders`, call the decoder of this key. Otherwise return a dict.
    """
    keys = list(entries)
    if keys and keys[0] in decoders:
        return decoders[keys[0]](entries[keys[0]])
    return entries


def _decode_array(parts: Any) -> Any:
    """Decode an array, which is writeable. NumPy rejects a shape that does not fit the number of bytes."""
    dtype, shape, data = parts
    # An axis of length 0 counts as 1. Otherwise an array of shape (0, 2**31) would be accepted as empty. But
    # its sum over axis 0 has 2**31 entries, which need too much memory.
    entry_count = math.prod(int(n) or 1 for n in shape)
    if not NUMERIC_DTYPE.fullmatch(dtype) or len(shape) > MAX_AXES or entry_count > MAX_BYTES:
        raise Forged("an array of no numbers, or of too many axes or entries")
    array: Any = np.ndarray(shape, dtype, base64.b64decode(data, validate=True))
    return array.astype(array.dtype.newbyteorder("="))


def _decode_scalar(parts: Any) -> Any:
    """Decode a NumPy scalar, which is encoded as an array of shape ()."""
    return _decode_array(parts)[()]


def _decode_complex(parts: Any) -> complex:
    """Decode a complex number from its real and imaginary parts."""
    return complex(*parts)


def _decode_ellipsis(_: Any) -> Any:
    """Decode `...`, which has no content."""
    return ...


def _decode_opaque(kind: Any) -> Opaque:
    """Return the replacement for a value of this type."""
    return Opaque(str(kind))


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "\0a": _decode_array,
    "\0s": _decode_scalar,
    "\0t": tuple,
    "\0c": _decode_complex,
    "\0e": _decode_ellipsis,
    "\0o": _decode_opaque,
}
