"""A function on its probes: what came back, what went wrong, which arguments were changed.

Probes are drawn so that no two relations coincide: all sizes of a probe differ and change from probe to
probe, no array is symmetric, no two rows have their maximum in common.
"""

import copy
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from npformer.backend import Array
from npformer.exercises.remote import RemoteResult, StudentError

TOLERANCE = 1e-4  # of max(1, the largest right entry): float32 and other orders of summation pass
Arguments = tuple[Any, ...]
Function = Callable[..., Any]


class Probe(NamedTuple):
    """What a code exercise is run on, and what its letters mean."""

    arguments: str  # "x, gamma, mask=None"
    outputs: tuple[str, ...]
    calls: tuple[Arguments, ...]
    sizes: str = ""  # "x: B T d_model; W_1: d_model d_ff", the axes of the arguments by name
    unit: str = "row"  # what stands in a row of the first argument
    outer: str = "sentence"  # what stands along axis 0 of an argument of three axes
    neutral: dict[str, Any] = {}  # noqa: RUF012  # the value at which an argument does nothing
    landmarks: dict[str, Function] = {}  # noqa: RUF012  # what a line of the solution holds, by its name
    directions: dict[str, Function] = {}  # noqa: RUF012  # along which a row may be off, by their names
    cancels: dict[str, Function] = {}  # noqa: RUF012  # changes of a call that the right answer does not see
    shows: dict[str, Function] = {}  # noqa: RUF012  # changes of a call that show what is made on the way

    @property
    def names(self) -> list[str]:
        """The arguments' names."""
        return [name.split("=")[0] for name in self.arguments.split(", ")]

    def sized(self, given: Arguments) -> dict[str, int]:
        """The sizes of one call by name."""
        sizes: dict[str, int] = {}
        for part in filter(None, self.sizes.split("; ")):
            name, _, axes = part.partition(": ")
            value = given[self.names.index(name)]
            lengths = value.shape if isinstance(value, np.ndarray) else [value]
            sizes |= dict(zip(axes.split(), lengths, strict=True))
        return sizes


def normal(*shape: int, seed: int = 0) -> Array:
    """Numbers for a probe: the same in every run."""
    return np.random.default_rng([seed, *shape]).normal(size=shape)


class Outcome(NamedTuple):
    """What a run gave: arrays, or the error that ended it."""

    arrays: tuple[Array, ...] = ()
    error: str = ""  # one line, with the place in the student's own function
    changed: tuple[str, ...] = ()  # arguments that are not what they were
    empty: bool = False  # nothing came back: the stub, or a forgotten return
    raw: Any = None  # what came back, before it was read as arrays
    kind: str = ""  # the error's type


class Unread(TypeError):
    """What came back is not what was asked for; `raw` is kept for a closer look."""


WALL_FACTOR = 3  # an answer may take this many times its CPU time by the clock


class TooLong(BaseException):
    """An answer exceeds its time limit. `except Exception` in the student's code does not catch it."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TooLong in code that uses more than `seconds` of CPU, or three times as many by the clock.

    There is no limit where the system has no such timers (in a browser) and outside the main thread.
    """
    has_timers = hasattr(signal, "setitimer")
    if not has_timers or threading.current_thread() is not threading.main_thread():
        yield
        return
    tracer, is_caught = sys.gettrace(), False

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        nonlocal is_caught
        if is_caught:
            _raise_at_next_line(frame)
        is_caught = True  # if there is a next time
        raise TooLong

    try:
        with (
            _timer(signal.ITIMER_VIRTUAL, signal.SIGVTALRM, time.process_time, stop, seconds),
            _timer(signal.ITIMER_REAL, signal.SIGALRM, time.monotonic, stop, WALL_FACTOR * seconds),
        ):
            yield
    finally:
        if sys.gettrace() is not tracer:  # `_raise_at_next_line` has replaced it
            sys.settrace(tracer)  # pragma: no cover: no tracer sees this line


@contextmanager
def _timer(
    timer: int, number: int, clock: Callable[[], float], stop: Callable[..., NoReturn], seconds: float
) -> Iterator[None]:
    """Call `stop` after `seconds` and again each second. A timer that was running continues afterwards."""
    handler = signal.signal(number, stop)
    started = clock()
    remaining, interval = signal.setitimer(timer, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(timer, 0.0)
        signal.signal(number, handler)
        if remaining:
            signal.setitimer(timer, max(remaining - (clock() - started), 1e-6), interval)


def _raise_at_next_line(frame: FrameType | None) -> None:
    """Raise TooLong at the next line of the student's code, which has caught an earlier one.

    In a loop that goes on after a bare `except:`, the next line is this `except:`. An error that is raised
    there ends the loop.
    """
    while frame is not None and not frame.f_code.co_filename.startswith(_LIBRARIES[0]):
        if not _ours(frame.f_code.co_filename):
            frame.f_trace = _raise_at_line
        frame = frame.f_back
    sys.settrace(_trace_no_call)


def _trace_no_call(frame: FrameType, event: str, value: Any) -> None:  # pragma: no cover: a tracer
    """Trace no function that is called from now on."""


def _raise_at_line(frame: FrameType, event: str, value: Any) -> Any:  # pragma: no cover: a tracer
    """Raise TooLong at the next line of a function."""
    if event == "line":
        raise TooLong
    return _raise_at_line


@contextmanager
def pause_wall_limit() -> Iterator[None]:
    """Stop the wall clock of `within` during a wait for another process, which has a limit of its own."""
    remaining, interval = signal.setitimer(signal.ITIMER_REAL, 0.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, remaining, interval)


_NUMPY = {name: value for name, value in vars(np).items() if callable(value)}


def changed_in_numpy() -> list[str]:
    """The functions of NumPy in whose place somebody has put another."""
    return [name for name, value in _NUMPY.items() if getattr(np, name, None) is not value]


@contextmanager
def quiet() -> Iterator[None]:
    """Neither the student's warnings nor NumPy's."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def call(function: Function, given: Arguments, names: list[str]) -> Any:
    """The call as the signature writes it; a mask may be taken by name only."""
    given = given[:-1] if given and given[-1] is None else given
    try:
        return function(*given)
    except (TypeError, StudentError) as error:
        has_mask = names[-1] == "mask" and len(given) == len(names)
        if not has_mask or (isinstance(error, StudentError) and error.type_name != "TypeError"):
            raise
        return function(*given[:-1], mask=given[-1])


def run(function: Function, given: Arguments, probe: Probe) -> Outcome:
    """Call the function on copies of the arguments. Its warnings stay quiet, its errors become a line."""
    fresh, raw = copy.deepcopy(given), None
    changed_remotely: tuple[int, ...] = ()
    try:
        with quiet():
            raw = call(function, fresh, probe.names)
            if isinstance(raw, RemoteResult):
                raw, changed_remotely = raw
            raw = _copied(raw)
            if raw is None or raw is ...:
                return Outcome(empty=True)
            arrays = read(raw, probe.outputs)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | TooLong):
            raise
        kind = named(error)
        if kind == "NotImplementedError":
            return Outcome(empty=True, kind=kind)
        return Outcome(error=_one_line(error, kind), raw=raw, kind=kind)
    pairs = enumerate(zip(given, fresh, strict=True))
    changed_here = {i for i, (a, b) in pairs if isinstance(a, np.ndarray) and not np.array_equal(a, b)}
    changed = sorted(changed_here.union(changed_remotely))
    return Outcome(arrays, changed=tuple(probe.names[i] for i in changed), raw=raw)


def _copied(raw: Any) -> Any:
    """A copy that later calls cannot change; a thing that cannot be copied, as a generator, itself."""
    try:
        return copy.deepcopy(raw)
    except TypeError:
        return raw


def named(error: BaseException) -> str:
    """The name of an error's type, also of an error from another process."""
    return error.type_name if isinstance(error, StudentError) else type(error).__name__


def read(raw: Any, outputs: tuple[str, ...]) -> tuple[Array, ...]:
    """The arrays of an answer, one an output; gradients may come in tuples of tuples.

    Raises Unread where the number of outputs is another one or an output is not an array of real numbers.
    """
    parts = [raw] if len(outputs) == 1 else list(_flat(raw))
    if len(parts) != len(outputs):
        raise Unread(f"{len(outputs)} outputs are asked for: {', '.join(outputs)}")
    return tuple(as_array(name, part) for name, part in zip(outputs, parts, strict=True))


def _flat(raw: Any) -> Iterator[Any]:
    if isinstance(raw, tuple | list) and any(map(_holds_numbers, raw)):
        for part in raw:
            yield from _flat(part) if isinstance(part, tuple) else [part]
    else:
        yield raw


def _holds_numbers(part: Any) -> bool:
    """An array, a list, or what makes an array of itself, as the column of a table does; no single number."""
    whole = isinstance(part, tuple | list) or hasattr(part, "__array__")
    return whole and not isinstance(part, np.generic)


def as_array(name: str, part: Any) -> Array:
    """One output as an array of real numbers. Raises Unread where it is none."""
    try:
        array = np.array(part)
        array = array.astype(float) if array.dtype == object else array
    except (TypeError, ValueError, OverflowError):
        raise Unread(_no_numbers(name, _type_name(part))) from None
    if array.dtype.kind not in "fiub":
        kinds = {"c": "complex", "U": "text", "S": "text"}
        raise Unread(_no_numbers(name, kinds.get(array.dtype.kind) or _type_name(part)))
    return array


def _type_name(part: Any) -> str:
    """The name of a type, also of a thing that has stayed in another process."""
    name, told = type(part).__name__, getattr(part, "kind", None)
    return told if name == "Opaque" and isinstance(told, str) else name


def _no_numbers(name: str, kind: str) -> str:
    return f"{name} is not an array of real numbers; its type is {kind}"


def said(error: BaseException) -> str:
    """The message of an error, "" if it has none. A message from another process is in quotation marks."""
    if isinstance(error, StudentError):
        return f"“{error.message}”" if error.message else ""
    try:
        return str(error)
    except Exception:
        return ""


def _one_line(error: BaseException, kind: str) -> str:
    """The error and its line, counted from the first one of the student's function: never a traceback."""
    text = " ".join(f"{kind}: {said(error)}".split())[:200].rstrip(": ")
    if isinstance(error, StudentError):
        line, function = error.line, error.function
    else:
        line, function = _place(error)
    return text if line is None else f"{text}, in line {line} of {function}"


def _place(error: BaseException) -> tuple[int | None, str]:
    """The last line of the student's code that an error came through, and its function; None without one."""
    for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
        code = frame.f_code
        if not _ours(code.co_filename):
            return line - code.co_firstlineno + 1, code.co_name
    return None, ""


def _ours(path: str) -> bool:
    """A file that the student did not write: the checker's or a library's."""
    return path.startswith("<frozen") or any(path.startswith(str(prefix)) for prefix in _LIBRARIES)


_LIBRARIES = (
    __file__.rpartition("exercises")[0],  # the checker
    np.__file__.rpartition("numpy")[0],
    copy.__file__.rpartition("copy")[0],
)


def same(a: Array, b: Array, tolerance: float = TOLERANCE) -> bool:
    """Equal shapes and close numbers; NaN and infinities where the other has them."""
    if a.shape != b.shape:
        return False
    a, b = a.astype(float), b.astype(float)
    if not np.isfinite(b).all():
        return bool(np.allclose(a, b, rtol=0, atol=tolerance * size(b), equal_nan=True))
    return bool((np.abs(a - b) <= tolerance * size(b)).all())  # np.allclose, and several times as fast


def size(b: Array) -> float:
    """The largest number of an array, and at least 1."""
    finite = np.abs(b[np.isfinite(b)])
    return max(1.0, float(finite.max(initial=0)))


def agreeing(found: Outcome, expected: Outcome) -> tuple[bool, ...]:
    """For each output, whether it is as expected; after an error none is."""
    if len(found.arrays) != len(expected.arrays):
        return (False,) * max(len(found.arrays), len(expected.arrays))
    return tuple(same(a, b) for a, b in zip(found.arrays, expected.arrays, strict=True))


def same_outcome(found: Outcome, expected: Outcome, tolerance: float = TOLERANCE) -> bool:
    """The same arrays, or an error in both."""
    if not expected.arrays or not found.arrays:
        return not expected.arrays and bool(found.error)
    return all(same(a, b, tolerance) for a, b in zip(found.arrays, expected.arrays, strict=True))


def returned_by_npformer(name: str, function: Function, probe: Probe) -> bool:
    """Whether the answer is what npformer's own function for the very thing asked returned."""
    made: list[Any] = []

    def watch(frame: Any, event: str, value: Any) -> None:  # pragma: no cover: a tracer is not traced
        if event == "return" and frame.f_code.co_name == name:
            module = str(frame.f_globals.get("__name__"))
            if module.startswith("npformer.") and not module.startswith(__package__):
                made.append(value)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        outcome = run(function, probe.calls[0], probe)
    finally:
        sys.setprofile(before)
    return any(_is(value, outcome.arrays) for value in made)


def _is(value: Any, arrays: tuple[Array, ...]) -> bool:
    """Whether a returned value, or its first part, holds these very numbers."""
    parts = list(_flat(value)) if isinstance(value, tuple) else [value]
    heads = [p for p in parts if isinstance(p, np.ndarray | np.generic)][: len(arrays)]
    return bool(arrays) and len(heads) == len(arrays) and all(map(np.array_equal, heads, arrays))


# --- one output, to be looked at -------------------------------------------------------------------


class Trial(NamedTuple):
    """One output of a student's function on every call that ran; the function can be called again."""

    probe: Probe
    function: Function
    correct: Function
    output: int
    calls: tuple[Arguments, ...]
    found: tuple[Array, ...]  # this output, call by call
    right: tuple[Array, ...]
    memo: dict[Any, tuple[Array, ...]]  # the answers so far: other outputs ask for the same calls

    @property
    def names(self) -> list[str]:
        """The arguments' names."""
        return self.probe.names

    @property
    def pairs(self) -> list[tuple[Array, Array]]:
        """What came back and what is right, call by call."""
        return list(zip(self.found, self.right, strict=True))

    @property
    def arguments(self) -> tuple[dict[str, Any], ...]:
        """The arguments of every call by name."""
        return tuple(dict(zip(self.names, call, strict=True)) for call in self.calls)

    @property
    def sizes(self) -> tuple[dict[str, int], ...]:
        """The sizes of every call by name."""
        return tuple(map(self.probe.sized, self.calls))

    def answer(self, given: Arguments, right: bool = False) -> tuple[Array, ...]:
        """All outputs of the student's function, or of the right one, in a call; () after an error."""
        key = (right, *(part.tobytes() if isinstance(part, np.ndarray) else part for part in given))
        if key not in self.memo:
            arrays = run(self.correct if right else self.function, given, self.probe).arrays
            self.memo[key] = tuple(array.astype(float) for array in arrays)
        return self.memo[key]

    def both(self, given: Arguments) -> tuple[Array, Array] | None:
        """The output of the student's function and of the right one, or None after an error."""
        found, right = self.answer(given), self.answer(given, right=True)
        return (found[self.output], right[self.output]) if found and right else None
