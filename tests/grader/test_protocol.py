"""Tests of `worker.protocol`: values survive sending, and forged frames are rejected."""

import base64
import json
import socket
import threading
import time

import numpy as np
import pytest

from npformer.exercises.remote_calls import RemoteResult
from npformer.grader.worker.protocol import MAX_BYTES, Channel, Forged, Opaque, pack, unpack

PATIENCE = 600  # seconds; far more than a slow and busy machine needs


def send_and_receive(value):
    """Return the value after encoding and decoding."""
    return unpack(pack(value))


# --- frames ----------------------------------------------------------------------------------------

VALUES = (None, True, 3, -2.5, "é\udcff", [1, (2, [3])], {"a": 1, "b": None}, {}, 1j, 10**40, ...)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_unpack_returns_plain_values(value):
    received = send_and_receive(value)
    assert received == value and type(received) is type(value)


ARRAYS = {
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "scalar": np.float32(3),
    "empty": np.zeros((0, 4)),
    "no axes": np.array(True),
    "big-endian": np.arange(3, dtype=">i4"),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_unpack_returns_arrays(array):
    received = send_and_receive(array)
    assert type(received) is type(array) and np.array_equal(received, array) and received.shape == array.shape


def test_unpack_returns_writeable_native_arrays():
    received = send_and_receive(ARRAYS["transposed"])
    assert received.flags.writeable and received.dtype.isnative


class HasFloat:
    def __float__(self):
        return 3.0


class HasArray:
    def __array__(self, *arguments, **options):
        return np.ones(2)


class IntSubclass(int):
    pass


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_pack_converts_other_numbers():
    assert np.isnan(send_and_receive(float("nan")))
    assert send_and_receive(HasFloat()) == 3.0
    assert send_and_receive(IntSubclass(7)) == 7
    assert send_and_receive(range(3)) == [0, 1, 2]
    assert np.array_equal(send_and_receive(HasArray()), [1, 1])
    assert send_and_receive(np.matrix([[1]])).shape == (1, 1)


OPAQUE = (object, len, np.array([object()]), np.zeros(2, "M8[s]"), {1}, {1: 2}, Opaque("set"))


@pytest.mark.parametrize("value", OPAQUE, ids=lambda value: type(value).__name__)
def test_pack_sends_type_names_of_others(value):
    assert isinstance(send_and_receive(value), Opaque)


def test_opaque_has_the_type_name():
    assert send_and_receive({1}).kind == send_and_receive(Opaque("set")).kind == "set"
    assert repr(send_and_receive({1})) == "<a set>"


def test_pack_replaces_functions_by_positions():
    functions = []
    frame = pack((len, 1), functions)
    assert functions == [len] and unpack(frame, [max].__getitem__) == (max, 1)


EIGHT_BYTES = base64.b64encode(b"\0" * 8).decode()
FORGED = {
    "nothing": b"",
    "no text": b"\xff" * 40,
    "no JSON": b"1x",
    "nested too deeply": b"[" * 100_000 + b"]" * 100_000,
    "too many items": b"[" + b'{"\\u0000e":0},' * 500_000 + b"0]",
    "too many bytes": b'"' + b"x" * MAX_BYTES + b'"',
    "array without parts": {"\0a": 0},
    "function": {"\0f": 0},
    "complex number of texts": {"\0c": ["a", "b"]},
    "tuple of a number": {"\0t": 1},
    "array of objects": {"\0a": ["|O", [1], EIGHT_BYTES]},
    "unknown dtype": {"\0a": ["<f77", [1], EIGHT_BYTES]},
    "shape too large": {"\0a": ["<f8", [99999999999], EIGHT_BYTES]},
    "negative shape": {"\0a": ["<f8", [-2], EIGHT_BYTES]},
    "too many axes": {"\0a": ["<f8", [1] * 13, EIGHT_BYTES]},
    "empty with a large axis": {"\0a": ["<f8", [0, 2**31], EIGHT_BYTES]},
    "shape of texts": {"\0a": ["<f8", ["a", 9], EIGHT_BYTES]},
    "no base 64": {"\0a": ["<f8", [1], "no base 64"]},
}


@pytest.mark.parametrize("data", FORGED.values(), ids=FORGED)
def test_unpack_rejects_forged_bytes(data):
    frame = data if isinstance(data, bytes) else json.dumps(data).encode()
    with pytest.raises(Forged):
        unpack(frame)


TOO_LARGE = {
    "list": [0] * 600_000,
    "array": np.zeros(MAX_BYTES // 8 + 1),
    "text": "x" * MAX_BYTES,
    "number": 10**9000,
}


@pytest.mark.parametrize("value", TOO_LARGE.values(), ids=TOO_LARGE)
def test_pack_rejects_large_values(value):
    with pytest.raises(ValueError, match=r"more than|bytes|limit"):
        pack(value)


@pytest.mark.parametrize("value", [RemoteResult(np.ones(2), (0,)), {"value": 1, "changed": [0]}])
def test_unpack_returns_no_checker_objects(value):
    received = send_and_receive(value)
    assert type(received) in (tuple, dict) and not isinstance(received, RemoteResult)


# --- the channel -----------------------------------------------------------------------------------


@pytest.fixture
def ends():
    """A channel and the socket at its other end."""
    own_end, other_end = socket.socketpair()
    with own_end, other_end:
        yield Channel(own_end), other_end


def test_channel_receives_what_was_sent(ends):
    channel, other_end = ends
    other = Channel(other_end)
    for frame in (b"", b"x", b"y" * 50_000):
        other.send(frame)
        assert channel.receive() == frame
        channel.send(frame, time.monotonic() + PATIENCE)
        assert other.receive(time.monotonic() + PATIENCE) == frame
    other.close()
    with pytest.raises(EOFError):
        channel.receive()


def test_channel_rejects_a_frame_that_is_too_long(ends):
    channel, other_end = ends
    other_end.sendall(b"\xff" * 8)
    with pytest.raises(Forged, match="a frame of 4,294,967,295 bytes"):
        channel.receive()


@pytest.mark.parametrize("part", [b"", b"\0\0", b"\0\0\0\x09half"])
def test_channel_receive_stops_at_the_deadline(ends, part):
    channel, other_end = ends
    other_end.sendall(part)
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        channel.receive(started + 0.1)
    with pytest.raises(TimeoutError):
        channel.receive(started)
    assert time.monotonic() - started < PATIENCE


def test_channel_receive_stops_while_bytes_trickle(ends):
    """Single bytes from the other side do not extend the deadline."""
    channel, other_end = ends
    other_end.sendall(b"\0\0\xff\xff")
    is_over = threading.Event()

    def trickle():
        while not is_over.wait(0.02):
            other_end.sendall(b"x")

    thread = threading.Thread(target=trickle)
    thread.start()
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        channel.receive(started + 0.2)
    assert time.monotonic() - started < PATIENCE
    is_over.set()
    thread.join()


def test_channel_send_stops_if_nothing_is_read(ends):
    channel, _ = ends
    with pytest.raises(TimeoutError):
        channel.send(b"x" * 2**23, time.monotonic() + 0.1)
