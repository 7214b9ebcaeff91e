"""Run a function on the calls of an exercise, and record its arrays, its errors and the arguments it changed.

The calls follow from what the task promises. There is one call for each edge, such as equal sizes or the
largest scores that are allowed. Further calls are random: all their sizes differ and no array is symmetric,
so that no two relations coincide.
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
from npformer.exercises.remote_calls import RemoteResult, StudentError
from npformer.exercises.verdict import Finding, find

Arguments = tuple[Any, ...]
Function = Callable[..., Any]


class View(NamedTuple):
    """Derived calls whose answers show something that is computed on the way, such as the weights."""

    change: Callable[..., Arguments]  # of a call
    part: Callable[[Array], Array] = lambda answer: answer  # of the answer that is looked at


class Probe(NamedTuple):
    """The calls of an exercise that asks for a function, and the names of its axes."""

    arguments: str  # "x, gamma, mask=None"
    outputs: tuple[str, ...]
    calls: tuple[Arguments, ...]  # one for each edge of what the task promises, and some that are drawn
    fresh: tuple[Arguments, ...] = ()  # drawn with other sizes: a finding has to hold on these too
    axes: str = ""  # "x: batch T d_model; W_1: d_model d_ff", the axes of arguments and outputs by name
    neutral: dict[str, Any] = {}  # noqa: RUF012  # the value at which an argument does nothing
    landmarks: dict[str, Function] = {}  # noqa: RUF012  # other results that a line of the solution has
    directions: dict[str, Function] = {}  # noqa: RUF012  # along which a row may be off, by their names
    invariances: dict[str, Function] = {}  # noqa: RUF012  # changes of a call that change no correct answer
    views: dict[str, View] = {}  # noqa: RUF012  # derived calls

    @property
    def names(self) -> list[str]:
        """The arguments' names."""
        return [name.split("=")[0] for name in self.arguments.split(", ")]

    @property
    def axis_names(self) -> dict[str, list[str]]:
        """The names of the axes of each argument and output."""
        parts = [part.partition(":") for part in self.axes.split("; ") if part]
        return {name: axes.split() for name, _, axes in parts}

    def sized(self, given: Arguments) -> dict[str, int]:
        """The sizes of one call by the names of the axes."""
        sizes: dict[str, int] = {}
        for name, axes in self.axis_names.items():
            if name not in self.names:
                continue
            value = given[self.names.index(name)]
            lengths = value.shape if isinstance(value, np.ndarray) else [value]
            if value is not None:
                sizes |= dict(zip(axes, lengths, strict=True))
        return sizes


class Draws:
    """Random arguments for one call: no two sizes are equal, and no array is symmetric.

    With `one=k` the k-th size is 1, if the exercise allows that.
    """

    def __init__(self, seed: int, one: int | None = None) -> None:
        self.rng = np.random.default_rng([seed, 45])
        self.count = 0  # of sizes that were drawn
        self._one = one
        self._taken = {1}

    def size(self, low: int = 2, high: int = 9, *, multiple_of: int = 1) -> int:
        """Draw a size that no other axis of this call has; `low` is 2 where a size of 1 is possible."""
        is_one = self.count == self._one and low == 2
        self.count += 1
        if is_one:
            return 1
        free = [n for n in range(low, high + 1) if n not in self._taken and n % multiple_of == 0]
        chosen = int(self.rng.choice(free))
        self._taken.add(chosen)
        return chosen

    def normal(self, *shape: int) -> Array:
        """Draw normally distributed numbers."""
        return self.rng.normal(size=shape)

    def uniform(self, low: float, high: float) -> float:
        """Draw one number between two."""
        return float(self.rng.uniform(low, high))


def draw_from_axes(probe: Probe, draws: Draws) -> Arguments:
    """Draw normally distributed arrays with the axes that the exercise declares."""
    sizes: dict[str, int] = {}
    arguments: list[Any] = []
    for name in probe.names:
        for axis in probe.axis_names[name]:
            if axis not in sizes:
                sizes[axis] = draws.size()
        arguments.append(draws.normal(*(sizes[axis] for axis in probe.axis_names[name])))
    return tuple(arguments)


def normal(*shape: int, seed: int = 0) -> Array:
    """Numbers for a call: the same in every run."""
    return np.random.default_rng([seed, *shape]).normal(size=shape)


class ErrorReport(NamedTuple):
    """The error that ended a call: never a traceback."""

    type_name: str
    message: str
    line: int | None = None  # counted from the first line of the student's function
    function: str = ""
    is_remote: bool = False  # whether another process chose the message


class Outcome(NamedTuple):
    """What a run gave: arrays, or the error that ended it."""

    arrays: tuple[Array, ...] = ()
    error: ErrorReport | None = None
    unreadable: Finding | None = None  # why what came back is not what was asked for
    changed: tuple[str, ...] = ()  # arguments that are not what they were
    empty: bool = False  # nothing came back: the stub, or a forgotten return
    not_implemented: bool = False  # the stub raised NotImplementedError
    raw: Any = None  # what came back, before it was read as arrays

    @property
    def failed(self) -> bool:
        """Whether the call ended in an error, or with something that cannot be read."""
        return self.error is not None or self.unreadable is not None


class Unreadable(Exception):
    """What came back is not what was asked for; `finding` says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.kind)
        self.finding = finding


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
        if not _is_ours(frame.f_code.co_filename):
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


def replaced_in_numpy() -> list[str]:
    """The functions of NumPy in whose place somebody has put another."""
    return [name for name, value in _NUMPY.items() if getattr(np, name, None) is not value]


@contextmanager
def quiet() -> Iterator[None]:
    """Neither the student's warnings nor NumPy's."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def call(function: Function, given: Arguments, names: list[str]) -> Any:
    """Call as the signature says; a function may take the mask by its name only."""
    if given and given[-1] is None:
        given = given[:-1]
    may_be_keyword = names[-1] == "mask" and len(given) == len(names)
    try:
        return function(*given)
    except Exception as error:
        if not may_be_keyword or type_name_of(error) != "TypeError":
            raise
    return function(*given[:-1], mask=given[-1])


def run(function: Function, given: Arguments, probe: Probe) -> Outcome:
    """Call the function on copies of the arguments; warnings are silenced, an error becomes a report."""
    copies = copy.deepcopy(given)
    raw = None
    try:
        with quiet():
            answer = call(function, copies, probe.names)
            raw = copied(answer.value if isinstance(answer, RemoteResult) else answer)
            if raw is None or raw is ...:
                return Outcome(empty=True)
            arrays = read(raw, probe)
    except Unreadable as unreadable:
        return Outcome(unreadable=unreadable.finding, raw=raw)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | TooLong):
            raise
        if type_name_of(error) == "NotImplementedError":
            return Outcome(empty=True, not_implemented=True)
        return Outcome(error=report_of(error), raw=raw)
    if isinstance(answer, RemoteResult):
        changed = tuple(probe.names[i] for i in answer.changed)
    else:
        changed = tuple(_changed_names(probe.names, given, copies))
    return Outcome(arrays, changed=changed, raw=raw)


def _changed_names(names: list[str], before: Arguments, after: Arguments) -> Iterator[str]:
    """The names of the array arguments that a call has changed."""
    for name, a, b in zip(names, before, after, strict=False):
        if isinstance(a, np.ndarray) and not np.array_equal(a, b):
            yield name


def copied(raw: Any) -> Any:
    """A copy that later calls cannot change; a thing that cannot be copied, such as a generator, itself."""
    try:
        return copy.deepcopy(raw)
    except TypeError:
        return raw


def read(raw: Any, probe: Probe) -> tuple[Array, ...]:
    """The arrays of an answer, one per output; gradients may come in tuples of tuples.

    Raises Unreadable where their number is different or one is not an array of real numbers.
    """
    outputs = probe.outputs
    parts = [raw] if len(outputs) == 1 else list(_flatten(raw))
    if len(outputs) == 1 and is_wrapped(raw, probe):
        raise Unreadable(find("unreadable_type", name=outputs[0], type="tuple"))
    if len(parts) != len(outputs):
        raise Unreadable(find("unreadable_count", expected=outputs))
    return tuple(as_array(name, part) for name, part in zip(outputs, parts, strict=True))


def is_wrapped(raw: Any, probe: Probe) -> bool:
    """Whether a comma after the only output has made a tuple of it; a table may be a tuple of its rows."""
    if not isinstance(raw, tuple) or len(raw) != 1:
        return False
    axes = probe.axis_names.get(probe.outputs[0])
    return axes is None or np.ndim(raw[0]) == len(axes)


def _flatten(raw: Any) -> Iterator[Any]:
    if isinstance(raw, tuple | list) and any(map(_holds_numbers, raw)):
        for part in raw:
            yield from _flatten(part) if isinstance(part, tuple) else [part]
    else:
        yield raw


def _holds_numbers(part: Any) -> bool:
    """An array, a list, or what makes an array of itself, as the column of a table does; no single number."""
    whole = isinstance(part, tuple | list) or hasattr(part, "__array__")
    return whole and not isinstance(part, np.generic)


def as_array(name: str, part: Any) -> Array:
    """One output as an array of real numbers. Raises Unreadable where it is none."""
    try:
        array = np.array(part)
        array = array.astype(float) if array.dtype == object else array
    except (TypeError, ValueError, OverflowError):
        raise Unreadable(find("unreadable_type", name=name, type=_type_name(part))) from None
    if array.dtype.kind not in "fiub":
        kinds = {"c": "complex", "U": "text", "S": "text"}
        kind = kinds.get(array.dtype.kind) or _type_name(part)
        raise Unreadable(find("unreadable_type", name=name, type=kind))
    return array


def _type_name(part: Any) -> str:
    """The name of a type, also of a thing that has stayed in another process."""
    name, remote = type(part).__name__, getattr(part, "kind", None)
    return remote if name == "Opaque" and isinstance(remote, str) else name


def type_name_of(error: BaseException) -> str:
    """The name of an error's type, also of one in another process."""
    return error.type_name if isinstance(error, StudentError) else type(error).__name__


def report_of(error: BaseException) -> ErrorReport:
    """An error as data: its type, its message in one line, and the line of the student's function."""
    if isinstance(error, StudentError):
        message = " ".join(error.message.split())
        return ErrorReport(error.type_name, message, error.line, error.function, is_remote=True)
    try:
        message = " ".join(str(error).split())[:200]
    except Exception:  # a message that cannot be made
        message = ""
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [(code, line) for code, line in frames if not _is_ours(code.co_filename)]
    if not own:
        return ErrorReport(type(error).__name__, message)
    code, line = own[-1]
    return ErrorReport(type(error).__name__, message, line - code.co_firstlineno + 1, code.co_name)


def _is_ours(path: str) -> bool:
    """Whether a file was not written by the student: the checker's or a library's."""
    return path.startswith("<frozen") or any(path.startswith(str(prefix)) for prefix in _LIBRARIES)


_LIBRARIES = (
    __file__.rpartition("exercises")[0],
    np.__file__.rpartition("numpy")[0],
    copy.__file__.rpartition("copy")[0],
)

# --- what counts as equal --------------------------------------------------------------------------

RELATIVE = 1e-4  # of each entry: other orders of summation pass, rounding to four digits does not
OF_LARGEST = 1e-5  # of the largest entry, for what cancels
SHORT = 1e-4  # of max(1, the largest entry), where an answer has no more than float32's digits


def allowed(b: Array, dtype: np.dtype[Any]) -> Array:
    """How far each entry of an answer with this dtype may be from the correct array b."""
    magnitude = np.abs(np.where(np.isfinite(b), b, 0))
    largest = float(magnitude.max(initial=0))
    has_few_digits = dtype.kind == "f" and dtype.itemsize < 8
    if has_few_digits:
        return np.full(b.shape, SHORT * max(1.0, largest))
    return RELATIVE * magnitude + OF_LARGEST * largest + 8 * float(np.finfo(float).eps)


def same(a: Array, b: Array) -> bool:
    """Whether an answer a is the correct array b, with NaN and infinities where b has them."""
    if a.shape != b.shape:
        return False
    limit = allowed(b.astype(float), a.dtype)
    return _within(a.astype(float), b.astype(float), limit)


def near(a: Array, b: Array, tolerance: float) -> bool:
    """Whether no entry is further from b than this share of the largest entry, or of 1."""
    if a.shape != b.shape:
        return False
    a, b = a.astype(float), b.astype(float)
    return _within(a, b, np.full(b.shape, tolerance * size(b)))


def _within(a: Array, b: Array, limit: Array) -> bool:
    if np.isfinite(b).all():
        return bool((np.abs(a - b) <= limit).all())
    finite = np.isfinite(b)
    others_are_equal = np.array_equal(a[~finite], b[~finite], equal_nan=True)
    return others_are_equal and bool((np.abs(a - b)[finite] <= limit[finite]).all())


def size(b: Array) -> float:
    """The largest number of an array, and at least 1."""
    finite = np.abs(b[np.isfinite(b)])
    return max(1.0, float(finite.max(initial=0)))


def agreeing(found: Outcome, expected: Outcome) -> tuple[bool, ...]:
    """For each output, whether it is as expected; after an error none is."""
    if len(found.arrays) != len(expected.arrays):
        return (False,) * max(len(found.arrays), len(expected.arrays))
    return tuple(same(a, b) for a, b in zip(found.arrays, expected.arrays, strict=True))


def same_outcome(found: Outcome, expected: Outcome, tolerance: float | None = None) -> bool:
    """The same arrays, or an error in both; within a tolerance of the largest entry where one is given."""
    if not expected.arrays or not found.arrays:
        return not expected.arrays and found.failed
    pairs = list(zip(found.arrays, expected.arrays, strict=True))
    if tolerance is None:
        return all(same(a, b) for a, b in pairs)
    return all(near(a, b, tolerance) for a, b in pairs)


def identical(a: Outcome, b: Outcome) -> bool:
    """Whether two runs gave the same numbers, digit by digit, or the same error."""
    equal = (np.array_equal(x, y, equal_nan=True) for x, y in zip(a.arrays, b.arrays, strict=False))
    return len(a.arrays) == len(b.arrays) and all(equal) and a.failed == b.failed


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
    parts = list(_flatten(value)) if isinstance(value, tuple) else [value]
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
    memo: dict[Any, tuple[Array, ...]]  # the student's answers so far: other outputs ask for the same calls
    right_memo: dict[Any, tuple[Array, ...]]  # the correct answers so far, of every check of the exercise

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
        function, memo = (self.correct, self.right_memo) if right else (self.function, self.memo)
        key = tuple(map(_key, given))
        if key not in memo:
            arrays = run(function, given, self.probe).arrays
            memo[key] = tuple(array.astype(float) for array in arrays)
        return memo[key]

    def both(self, given: Arguments) -> tuple[Array, Array] | None:
        """The output of the student's function and of the right one, or None after an error."""
        found, right = self.answer(given), self.answer(given, right=True)
        return (found[self.output], right[self.output]) if found and right else None


def _key(part: Any) -> Any:
    """A hashable key that distinguishes one argument from another."""
    return (part.shape, part.tobytes()) if isinstance(part, np.ndarray) else part
