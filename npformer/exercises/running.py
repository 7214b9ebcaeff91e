"""One run of a function on one probe: what came back, what went wrong, which arguments were changed."""

import copy
import inspect
import traceback
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.exercises.probes import Arguments, Subject

TOLERANCE = 1e-4  # of max(1, the largest right entry): float32 and other orders of summation pass


class Outcome(NamedTuple):
    """What a run gave: arrays, or the error that ended it."""

    arrays: tuple[Array, ...] = ()
    error: str = ""  # one line, with the place in the student's own function
    changed: tuple[str, ...] = ()  # arguments that are not what they were
    empty: bool = False  # nothing came back: the stub, or a forgotten return


def run(function: Callable[..., Any], probe: Arguments, subject: Subject) -> Outcome:
    """Call the function on copies of the arguments. Its warnings stay quiet, its errors become a line."""
    given = copy.deepcopy(probe)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            answer = function(*given)
        if answer is None or answer is ...:
            return Outcome(empty=True)
        arrays = _arrays(answer, subject)
    except NotImplementedError:
        return Outcome(empty=True)
    except (Exception, SystemExit) as error:
        return Outcome(error=_one_line(error, function))
    names = [name.split("=")[0] for name in subject.arguments.split(", ")]
    pairs = zip(names, probe, given, strict=False)
    changed = (name for name, a, b in pairs if isinstance(a, np.ndarray) and not np.array_equal(a, b))
    return Outcome(arrays, changed=tuple(changed))


def _arrays(answer: Any, subject: Subject) -> tuple[Array, ...]:
    parts = (answer,) if len(subject.outputs) == 1 else answer
    if not isinstance(parts, tuple | list) or len(parts) != len(subject.outputs):
        raise TypeError(f"expected {len(subject.outputs)} outputs: {', '.join(subject.outputs)}")
    arrays = tuple(np.array(part) for part in parts)
    for name, array in zip(subject.outputs, arrays, strict=True):
        if array.dtype.kind not in "fiub":
            raise TypeError(f"{name} is not an array of real numbers")
    return arrays


def _one_line(error: BaseException, function: Callable[..., Any]) -> str:
    """The error and its line, counted from the first one of the student's function: never a traceback."""
    said = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(": ")
    code = getattr(inspect.unwrap(function), "__code__", None)
    own = [
        (frame.f_code, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if code is not None and frame.f_code.co_filename == code.co_filename
    ]
    if not own:
        return said
    where, line = own[-1]
    return f"{said}, in line {line - where.co_firstlineno + 1} of {where.co_name}"


def same(a: Array, b: Array, tolerance: float = TOLERANCE) -> bool:
    """Equal shapes and close numbers; NaN and infinities where the other has them."""
    if a.shape != b.shape:
        return False
    finite = np.abs(b[np.isfinite(b)])
    scale = max(1.0, float(finite.max(initial=0)))
    return np.allclose(a.astype(float), b.astype(float), rtol=0, atol=tolerance * scale, equal_nan=True)


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
