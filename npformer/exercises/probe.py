"""Run a function on the calls of an exercise, and record arrays, errors and changed arguments.

A call is a tuple of arguments, and an outcome is the result of a call: arrays, or an error. The calls
contain only arguments that the task allows. There is one call for each edge case, such as equal sizes or the
largest allowed scores. Further calls are random. In a random call, all sizes differ and no array is
symmetric, so a wrong function is unlikely to be correct by coincidence.
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
from npformer.exercises.verdict import Finding, make_finding

Arguments = tuple[Any, ...]
Function = Callable[..., Any]


class View(NamedTuple):
    """A rule for derived calls, whose output shows an intermediate result such as attention weights."""

    change: Callable[..., Arguments]  # makes the derived call from the arguments of a call
    part: Callable[[Array], Array] = lambda answer: answer  # selects the intermediate result in the answer


class Probe(NamedTuple):
    """The calls on which an exercise tests a function, and the axis names of its arguments and outputs."""

    arguments: str  # the parameters of the function, such as "x, gamma, mask=None"
    outputs: tuple[str, ...]
    calls: tuple[Arguments, ...]  # one call for each edge case, and some random calls
    fresh: tuple[Arguments, ...] = ()  # random calls with different sizes; each finding must hold on them too
    axes: str = ""  # names of the axes of arguments and outputs: "x: batch T d_model; W_1: d_model d_ff"
    neutral: dict[str, Any] = {}  # noqa: RUF012  # {argument: the value at which it has no effect}
    landmarks: dict[str, Function] = {}  # noqa: RUF012  # {name: makes an intermediate or related result}
    directions: dict[str, Function] = {}  # noqa: RUF012  # {name: makes an array that may be added by mistake}
    invariances: dict[str, Function] = {}  # noqa: RUF012  # changes that keep the correct answer
    views: dict[str, View] = {}  # noqa: RUF012

    @property
    def names(self) -> list[str]:
        """The names of the arguments."""
        return [name.split("=")[0] for name in self.arguments.split(", ")]

    @property
    def axis_names(self) -> dict[str, list[str]]:
        """The names of the axes, by argument or output."""
        names = {}
        for part in filter(None, self.axes.split("; ")):
            name, _, axes = part.partition(":")
            names[name] = axes.split()
        return names

    def sized(self, given: Arguments) -> dict[str, int]:
        """Return the sizes in one call by axis name. A number among the arguments counts as a size."""
        sizes: dict[str, int] = {}
        for name, axes in self.axis_names.items():
            if name not in self.names:
                continue
            value = given[self.names.index(name)]
            if isinstance(value, np.ndarray):
                sizes |= dict(zip(axes, value.shape, strict=True))
            elif value is not None:
                sizes |= dict(zip(axes, [value], strict=True))
        return sizes


class Draws:
    """Draw random arguments for one call. No two sizes are equal, and no array is symmetric.

    With ``one=k``, the k-th size that is drawn (counted from 0) is 1, if the exercise allows 1.
    """

    def __init__(self, seed: int, one: int | None = None) -> None:
        self.rng = np.random.default_rng([seed, 45])
        self.count = 0  # the number of sizes drawn so far
        self._one = one
        self._taken = {1}

    def size(self, low: int = 2, high: int = 9, *, multiple_of: int = 1) -> int:
        """Draw a size that was not drawn before. With ``low=2``, the size with index ``one`` is 1."""
        is_one = self.count == self._one and low == 2
        self.count += 1
        if is_one:
            return 1
        free = [n for n in range(low, high + 1) if n not in self._taken and n % multiple_of == 0]
        chosen = int(self.rng.choice(free))
        self._taken.add(chosen)
        return chosen

    def normal(self, *shape: int) -> Array:
        """Draw an array of normally distributed numbers."""
        return self.rng.normal(size=shape)

    def uniform(self, low: float, high: float) -> float:
        """Draw one number between low and high."""
        return float(self.rng.uniform(low, high))


def draw_from_axes(probe: Probe, draws: Draws) -> Arguments:
    """Draw a normally distributed array for each argument, with the axes that the exercise defines."""
    sizes: dict[str, int] = {}
    arguments: list[Any] = []
    for name in probe.names:
        for axis in probe.axis_names[name]:
            if axis not in sizes:
                sizes[axis] = draws.size()
        arguments.append(draws.normal(*(sizes[axis] for axis in probe.axis_names[name])))
    return tuple(arguments)


def normal(*shape: int, seed: int = 0) -> Array:
    """Return normally distributed numbers that are the same in every run."""
    return np.random.default_rng([seed, *shape]).normal(size=shape)


class ErrorReport(NamedTuple):
    """The data of the error that ended a call."""

    type_name: str
    message: str
    line: int | None = None  # the line of the student's function, counted from 1; None if unknown
    function: str = ""
    is_remote: bool = False  # whether the error comes from another process


class Outcome(NamedTuple):
    """The outcome of one call: arrays, an error, or the reason why the returned value cannot be read."""

    arrays: tuple[Array, ...] = ()  # one array for each output
    error: ErrorReport | None = None
    unreadable: Finding | None = None  # why the returned value does not have the expected form
    changed: tuple[str, ...] = ()  # the names of the arguments that the call changed
    empty: bool = False  # whether the call returned nothing or raised NotImplementedError
    not_implemented: bool = False  # whether the call raised NotImplementedError
    raw: Any = None  # the returned value, before it was converted to arrays

    @property
    def failed(self) -> bool:
        """Whether the call ended with an error or returned a value that cannot be read."""
        return self.error is not None or self.unreadable is not None


class Unreadable(Exception):
    """The returned value does not have the expected form. ``finding`` describes the reason."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.kind)
        self.finding = finding


WALL_FACTOR = 3  # the limit of elapsed time is this factor times the limit of CPU time


class TooLong(BaseException):
    """An answer exceeded its time limit. An ``except Exception`` in the student's code does not catch it."""


@contextmanager
def limit_time(seconds: float) -> Iterator[None]:
    """Raise TooLong in a block after ``seconds`` of CPU time, or after three times as much elapsed time.

    There is no limit outside the main thread, and no limit on a system without timers, such as a browser.
    """
    has_timers = hasattr(signal, "setitimer")
    if not has_timers or threading.current_thread() is not threading.main_thread():
        yield
        return
    tracer = sys.gettrace()
    was_raised = False

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        nonlocal was_raised
        if was_raised:  # The student's code has caught the first TooLong.
            _raise_at_next_line(frame)
        was_raised = True
        raise TooLong

    try:
        with (
            _hide_ignored_errors(TooLong),
            _timer(signal.ITIMER_VIRTUAL, signal.SIGVTALRM, time.process_time, stop, seconds),
            _timer(signal.ITIMER_REAL, signal.SIGALRM, time.monotonic, stop, WALL_FACTOR * seconds),
        ):
            yield
    finally:
        if sys.gettrace() is not tracer:  # Undo the change by `_raise_at_next_line`.
            sys.settrace(tracer)  # pragma: no cover: coverage has no tracer at this line


@contextmanager
def _hide_ignored_errors(error_type: type[BaseException]) -> Iterator[None]:
    """Print no message about errors of a type that Python ignores, such as an error in a weakref callback.

    If Python ignores a TooLong, the timer raises another one.
    """
    hook = sys.unraisablehook

    def report(unraisable: "sys.UnraisableHookArgs") -> None:
        if unraisable.exc_type is not error_type:
            hook(unraisable)

    sys.unraisablehook = report
    try:
        yield
    finally:
        sys.unraisablehook = hook


@contextmanager
def _timer(
    timer: int, number: int, clock: Callable[[], float], stop: Callable[..., NoReturn], seconds: float
) -> Iterator[None]:
    """Call ``stop`` after some seconds and then every second. An earlier timer continues after the block."""
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
    """Raise TooLong at the next line of the student's code, after the code has caught an earlier TooLong.

    This also ends a loop with a bare ``except:`` in it. The next line is then the ``except:`` line, which
    does not catch an error that is raised there.
    """
    while frame is not None and not frame.f_code.co_filename.startswith(_LIBRARIES[0]):
        if not _is_library_file(frame.f_code.co_filename):
            frame.f_trace = _raise_at_line
        frame = frame.f_back
    sys.settrace(_trace_no_call)


def _trace_no_call(frame: FrameType, event: str, value: Any) -> None:  # pragma: no cover: runs untraced
    """Return None, so that Python does not trace new function calls."""


def _raise_at_line(frame: FrameType, event: str, value: Any) -> Any:  # pragma: no cover: runs untraced
    """Raise TooLong at the next line of the traced function."""
    if event == "line":
        raise TooLong
    return _raise_at_line


@contextmanager
def pause_wall_limit() -> Iterator[None]:
    """Pause the limit of elapsed time while waiting for another process, which has its own time limit."""
    remaining, interval = signal.setitimer(signal.ITIMER_REAL, 0.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, remaining, interval)


_NUMPY = {name: value for name, value in vars(np).items() if callable(value)}


def find_replaced_numpy_functions() -> list[str]:
    """Return the names of NumPy functions that have been replaced since this module was imported."""
    return [name for name, value in _NUMPY.items() if getattr(np, name, None) is not value]


@contextmanager
def suppress_warnings() -> Iterator[None]:
    """Suppress the warnings of the student's code and of NumPy."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def call(function: Function, given: Arguments, names: list[str]) -> Any:
    """Call a function.

    If the last argument is None, it is left out. If a call with a mask raises TypeError, the function is
    called again with the mask as a keyword argument.
    """
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
    """Call a function on copies of the arguments, and record the outcome. An error becomes an ErrorReport."""
    copies = copy.deepcopy(given)
    raw = None
    try:
        with suppress_warnings():
            answer = call(function, copies, probe.names)
            value = answer
            if isinstance(answer, RemoteResult):
                value = answer.value
            raw = copy_if_possible(value)
            if raw is None or raw is ...:
                return Outcome(empty=True)
            arrays = read_arrays(raw, probe)
    except Unreadable as unreadable:
        return Outcome(unreadable=unreadable.finding, raw=raw)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | TooLong):
            raise
        if type_name_of(error) == "NotImplementedError":
            return Outcome(empty=True, not_implemented=True)
        return Outcome(error=describe_error(error), raw=raw)
    if isinstance(answer, RemoteResult):
        changed = tuple(probe.names[i] for i in answer.changed)
    else:
        changed = tuple(_find_changed_arguments(probe.names, given, copies))
    return Outcome(arrays, changed=changed, raw=raw)


def _find_changed_arguments(names: list[str], before: Arguments, after: Arguments) -> Iterator[str]:
    """Yield the names of the arrays that differ before and after a call."""
    for name, a, b in zip(names, before, after, strict=False):
        if isinstance(a, np.ndarray) and not np.array_equal(a, b):
            yield name


def copy_if_possible(raw: Any) -> Any:
    """Return a copy that later calls cannot change, or the value itself if Python cannot copy it."""
    try:
        return copy.deepcopy(raw)
    except TypeError:
        return raw


def read_arrays(raw: Any, probe: Probe) -> tuple[Array, ...]:
    """Convert a returned value to arrays, one for each output. Gradients may be in nested tuples.

    Raises Unreadable if the number of arrays is wrong, or if a part is not an array of real numbers.
    """
    outputs = probe.outputs
    if len(outputs) == 1:
        parts = [raw]
        if is_wrapped(raw, probe):
            raise Unreadable(make_finding("unreadable_type", name=outputs[0], type="tuple"))
    else:
        parts = list(_flatten(split_stacked_outputs(raw, probe)))
    if len(parts) != len(outputs):
        raise Unreadable(make_finding("unreadable_count", expected=outputs))
    return tuple(as_array(name, part) for name, part in zip(outputs, parts, strict=True))


def is_wrapped(raw: Any, probe: Probe) -> bool:
    """Return whether the only output is in a tuple, as after ``return y,``.

    A tuple that contains the rows of a table does not count.
    """
    if not isinstance(raw, tuple) or len(raw) != 1:
        return False
    axes = probe.axis_names.get(probe.outputs[0])
    return axes is None or np.ndim(raw[0]) == len(axes)


def split_stacked_outputs(raw: Any, probe: Probe) -> Any:
    """Return the list of outputs if they are stacked in one array, else the value itself.

    A single array counts as stacked outputs if it has one axis more than each output of the task, and one
    entry per output along its first axis. Python unpacks such an array like a tuple.
    """
    n_outputs = len(probe.outputs)
    n_axes = {len(probe.axis_names.get(name, ())) for name in probe.outputs}
    has_room = isinstance(raw, np.ndarray) and raw.ndim > 1 and n_axes == {raw.ndim - 1}
    is_stacked = n_outputs > 1 and has_room and len(raw) == n_outputs
    return list(raw) if is_stacked else raw


def _flatten(raw: Any) -> Iterator[Any]:
    """Yield the entries of a tuple or list, also from nested tuples. A list of numbers is one entry."""
    is_container = isinstance(raw, tuple | list) and any(map(_is_array_like, raw))
    if not is_container:
        yield raw
        return
    for part in raw:
        if isinstance(part, tuple):
            yield from _flatten(part)
        else:
            yield part


def _is_array_like(part: Any) -> bool:
    """Return whether NumPy can make an array from an object, such as a list or the column of a data frame.

    A NumPy scalar does not count.
    """
    is_convertible = isinstance(part, tuple | list) or hasattr(part, "__array__")
    return is_convertible and not isinstance(part, np.generic)


def as_array(name: str, part: Any) -> Array:
    """Convert one output to an array of real numbers. Raises Unreadable if this is not possible."""
    try:
        array = np.array(part)
        if array.dtype == object:
            array = array.astype(float)
    except (TypeError, ValueError, OverflowError):
        raise Unreadable(make_finding("unreadable_type", name=name, type=_type_name(part))) from None
    if array.dtype.kind not in "fiub":
        kinds = {"c": "complex", "U": "text", "S": "text"}
        kind = kinds.get(array.dtype.kind) or _type_name(part)
        raise Unreadable(make_finding("unreadable_type", name=name, type=kind))
    return array


def _type_name(part: Any) -> str:
    """Return the name of an object's type. For an object in another process, use its type in that process."""
    name = type(part).__name__
    remote_name = getattr(part, "kind", None)
    is_remote = name == "Opaque" and isinstance(remote_name, str)  # the grader's class for remote objects
    if is_remote:
        return str(remote_name)
    return name


def type_name_of(error: BaseException) -> str:
    """Return the name of an error's type. For an error in another process, use its type in that process."""
    if isinstance(error, StudentError):
        return error.type_name
    return type(error).__name__


def describe_error(error: BaseException) -> ErrorReport:
    """Describe an error: its type, its message in one line, and the line in the student's function."""
    if isinstance(error, StudentError):
        message = " ".join(error.message.split())
        return ErrorReport(error.type_name, message, error.line, error.function, is_remote=True)
    try:
        message = " ".join(str(error).split())[:200]
    except Exception:  # The student's own error class may fail in `__str__`.
        message = ""
    student_lines = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not _is_library_file(frame.f_code.co_filename):
            student_lines.append((frame.f_code, line))
    if not student_lines:
        return ErrorReport(type(error).__name__, message)
    code, line = student_lines[-1]
    return ErrorReport(type(error).__name__, message, line - code.co_firstlineno + 1, code.co_name)


def _is_library_file(path: str) -> bool:
    """Return whether a file belongs to npformer, NumPy or Python. Other files are the student's."""
    return path.startswith("<frozen") or any(path.startswith(str(prefix)) for prefix in _LIBRARIES)


_LIBRARIES = (
    __file__.rpartition("exercises")[0],
    np.__file__.rpartition("numpy")[0],
    copy.__file__.rpartition("copy")[0],
)

# --- when two arrays count as equal ----------------------------------------------------------------

# With these tolerances, a sum in a different order passes, and numbers that are rounded to four digits fail.
RELATIVE = 1e-4  # the tolerance relative to each entry
OF_LARGEST = 1e-5  # a further tolerance relative to the largest entry, for differences of large numbers
SHORT = 1e-4  # the tolerance for answers in float32 or float16, relative to the largest entry or 1


def allowed_error(b: Array, dtype: np.dtype[Any]) -> Array:
    """Return the accepted error of each entry of an answer with this dtype; b is the correct array."""
    magnitude = np.abs(np.where(np.isfinite(b), b, 0))
    largest = float(magnitude.max(initial=0))
    has_few_digits = dtype.kind == "f" and dtype.itemsize < 8
    if has_few_digits:
        return np.full(b.shape, SHORT * max(1.0, largest))
    return RELATIVE * magnitude + OF_LARGEST * largest + 8 * float(np.finfo(float).eps)


def are_equal(a: Array, b: Array) -> bool:
    """Return whether an answer a equals the correct array b, with NaN and infinities in the same entries."""
    if a.shape != b.shape:
        return False
    limit = allowed_error(b.astype(float), a.dtype)
    return _within(a.astype(float), b.astype(float), limit)


def are_near(a: Array, b: Array, tolerance: float) -> bool:
    """Return whether all entries agree within the tolerance, relative to the largest entry or 1."""
    if a.shape != b.shape:
        return False
    a, b = a.astype(float), b.astype(float)
    return _within(a, b, np.full(b.shape, tolerance * size(b)))


def _within(a: Array, b: Array, limit: Array) -> bool:
    """Return whether a is near b where b is finite, and equals b where b is NaN or infinite."""
    if np.isfinite(b).all():
        return bool((np.abs(a - b) <= limit).all())
    finite = np.isfinite(b)
    others_are_equal = np.array_equal(a[~finite], b[~finite], equal_nan=True)
    return others_are_equal and bool((np.abs(a - b)[finite] <= limit[finite]).all())


def size(b: Array) -> float:
    """Return the largest magnitude among the finite numbers of an array, but at least 1."""
    finite = np.abs(b[np.isfinite(b)])
    return max(1.0, float(finite.max(initial=0)))


def compare_outputs(found: Outcome, expected: Outcome) -> tuple[bool, ...]:
    """Return, for each output, whether the output is correct. After an error, no output is correct."""
    if len(found.arrays) != len(expected.arrays):
        return (False,) * max(len(found.arrays), len(expected.arrays))
    return tuple(are_equal(a, b) for a, b in zip(found.arrays, expected.arrays, strict=True))


def are_equal_outcomes(found: Outcome, expected: Outcome, tolerance: float | None = None) -> bool:
    """Return whether two outcomes have the same arrays, or whether both calls failed.

    A tolerance is relative to the largest entry.
    """
    if not expected.arrays or not found.arrays:
        return not expected.arrays and found.failed
    pairs = list(zip(found.arrays, expected.arrays, strict=True))
    if tolerance is None:
        return all(are_equal(a, b) for a, b in pairs)
    return all(are_near(a, b, tolerance) for a, b in pairs)


def are_identical(a: Outcome, b: Outcome) -> bool:
    """Return whether two outcomes have exactly the same numbers, or whether both calls failed."""
    have_same_form = len(a.arrays) == len(b.arrays) and a.failed == b.failed
    pairs = zip(a.arrays, b.arrays, strict=False)
    return have_same_form and all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)


def returns_npformer_result(name: str, function: Function, probe: Probe) -> bool:
    """Return whether the function calls npformer's function of this name and returns its result."""
    returned: list[tuple[str, Any]] = []

    def record_return(frame: Any, event: str, value: Any) -> None:  # pragma: no cover: runs untraced
        if event == "return" and frame.f_code.co_name == name:
            returned.append((str(frame.f_globals.get("__name__")), value))

    profiler = sys.getprofile()
    sys.setprofile(record_return)
    try:
        outcome = run(function, probe.calls[0], probe)
    finally:
        sys.setprofile(profiler)
    values = [value for module, value in returned if _is_npformer_module(module)]
    return any(_begins_with(value, outcome.arrays) for value in values)


def _is_npformer_module(module: str) -> bool:
    """Return whether a module belongs to npformer, but not to its exercises."""
    return module.startswith("npformer.") and not module.startswith(str(__package__))


def _begins_with(value: Any, arrays: tuple[Array, ...]) -> bool:
    """Return whether a returned value begins with these arrays."""
    parts = [value]
    if isinstance(value, tuple):
        parts = list(_flatten(value))
    numbers = [part for part in parts if isinstance(part, np.ndarray | np.generic)]
    first_numbers = numbers[: len(arrays)]
    has_enough = len(arrays) > 0 and len(first_numbers) == len(arrays)
    return has_enough and all(map(np.array_equal, first_numbers, arrays))


# --- one output on every call ----------------------------------------------------------------------


class Trial(NamedTuple):
    """One output of a student's function, for every call that ran. Detectors can make further calls."""

    probe: Probe
    function: Function
    correct: Function  # the solution
    output: int  # the index of the output
    calls: tuple[Arguments, ...]
    found: tuple[Array, ...]  # the output of the student's function, one array per call
    right: tuple[Array, ...]  # the correct output, one array per call
    memo: dict[Any, tuple[Array, ...]]  # a cache of the student's answers, shared by all outputs
    right_memo: dict[
        Any, tuple[Array, ...]
    ]  # a cache of correct answers, shared by all checks of an exercise

    @property
    def names(self) -> list[str]:
        """The names of the arguments."""
        return self.probe.names

    @property
    def pairs(self) -> list[tuple[Array, Array]]:
        """The student's output and the correct output, call by call."""
        return list(zip(self.found, self.right, strict=True))

    @property
    def arguments(self) -> tuple[dict[str, Any], ...]:
        """The arguments of each call, by name."""
        return tuple(dict(zip(self.names, call, strict=True)) for call in self.calls)

    @property
    def sizes(self) -> tuple[dict[str, int], ...]:
        """The sizes in each call, by the names of the axes."""
        return tuple(map(self.probe.sized, self.calls))

    def answer(self, given: Arguments, right: bool = False) -> tuple[Array, ...]:
        """Return all outputs of the student's function in one call, or () after an error.

        With ``right=True``, return the outputs of the solution.
        """
        function = self.function
        memo = self.memo
        if right:
            function = self.correct
            memo = self.right_memo
        key = tuple(map(_cache_key, given))
        if key not in memo:
            arrays = run(function, given, self.probe).arrays
            memo[key] = tuple(array.astype(float) for array in arrays)
        return memo[key]

    def both(self, given: Arguments) -> tuple[Array, Array] | None:
        """Return this output of the student's function and of the solution, or None after an error."""
        found = self.answer(given)
        right = self.answer(given, right=True)
        if not found or not right:
            return None
        return found[self.output], right[self.output]


def _cache_key(argument: Any) -> Any:
    """Return a hashable key that identifies an argument by its value."""
    if isinstance(argument, np.ndarray):
        return argument.shape, argument.tobytes()
    return argument
