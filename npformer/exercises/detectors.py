"""Find out what a wrong function does: first compare it with listed mistakes, then apply the detectors.

A listed mistake is recognised if it gives the same answers on the calls of the exercise and on fresh calls
with different sizes. A finding of a detector must hold on all of these calls.
"""

from collections.abc import Sequence
from functools import cache
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.exercises import call_detectors, number_detectors
from npformer.exercises.number_detectors import Detector, attempt
from npformer.exercises.probe import (
    Function,
    Outcome,
    Trial,
    Unreadable,
    agreeing,
    as_array,
    identical,
    is_wrapped,
    near,
    quiet,
    run,
    same,
)
from npformer.exercises.task import Code, Mistake
from npformer.exercises.verdict import Finding, find

MOST_FINDINGS = 2  # of one reply: a student reads no more

# --- what is known -----------------------------------------------------------------------------------


class Known(NamedTuple):
    """One form of a mistake, with its answers to every call."""

    mistake: Mistake
    function: Function
    outcomes: tuple[Outcome, ...]
    spoilt: frozenset[str]  # the outputs that are not correct on some call


def outcomes(task: Code, function: Function) -> tuple[Outcome, ...]:
    """Run a function on every call of the exercise."""
    return tuple(run(function, given, task.probe) for given in task.probe.calls)


@cache
def right(task: Code) -> tuple[Outcome, ...]:
    """Run the solution on every call of the exercise."""
    return outcomes(task, task.right)


@cache
def known_mistakes(task: Code) -> tuple[Known, ...]:
    """Every form of every mistake."""
    made = [(mistake, function, outcomes(task, function)) for mistake, function in task.wrongly()]
    return tuple(Known(*form, differing(task, form[2])) for form in made)


def differing(task: Code, found: Sequence[Outcome]) -> frozenset[str]:
    """The names of the outputs that are not correct on some call."""
    return frozenset(
        name
        for outcome, expected in zip(found, right(task), strict=True)
        for name, is_correct in zip(task.probe.outputs, agreeing(outcome, expected), strict=True)
        if not is_correct
    )


def agreed(task: Code, found: Sequence[Outcome]) -> tuple[str, ...]:
    """The names of the outputs that are correct on every call."""
    wrong = differing(task, found)
    return tuple(name for name in task.probe.outputs if name not in wrong)


def recognised(task: Code, function: Function, found: tuple[Outcome, ...]) -> list[tuple[Mistake, ...]]:
    """The mistakes that answer so on every call; where none does, several in different outputs."""
    spoilt = differing(task, found)
    possible = [known for known in known_mistakes(task) if known.spoilt <= spoilt]
    fitting = [known for known in possible if _fits(task, known, found, known.outcomes)]
    if fitting:
        fresh = [run(function, given, task.probe) for given in task.probe.fresh]
        fitting = [known for known in fitting if _fits(task, known, fresh, _on_fresh(task, known.function))]
    if alone := dict.fromkeys(known.mistake for known in fitting if known.spoilt == spoilt):
        return [(mistake,) for mistake in alone]
    parts: dict[Mistake, frozenset[str]] = {}
    for known in fitting:
        parts[known.mistake] = parts.get(known.mistake, frozenset()) | known.spoilt
    covered = sorted(name for names in parts.values() for name in names)
    explains_each_output_once = covered == sorted(spoilt)
    return [tuple(parts)] if explains_each_output_once else []


def _fits(task: Code, known: Known, found: Sequence[Outcome], expected: Sequence[Outcome]) -> bool:
    """Whether what a mistake spoils is as the mistake makes it, on every call."""
    return all(_fits_one(task, known, a, b) for a, b in zip(found, expected, strict=True))


@cache
def _on_fresh(task: Code, function: Function) -> tuple[Outcome, ...]:
    """Run a function of the bank on the fresh calls."""
    return tuple(run(function, given, task.probe) for given in task.probe.fresh)


@cache
def _right_on_fresh(task: Code) -> tuple[Outcome, ...]:
    """Run the solution on the fresh calls."""
    return _on_fresh(task, task.right)


def _fits_one(task: Code, known: Known, found: Outcome, expected: Outcome) -> bool:
    """Return whether the outputs that a mistake spoils are equal in one call, or whether both calls fail."""
    if not found.arrays or not expected.arrays:
        return found.failed and expected.failed
    spoils = [name in known.spoilt for name in task.probe.outputs]
    pairs = compress(zip(found.arrays, expected.arrays, strict=True), spoils)
    tolerance = known.mistake.tolerance
    if tolerance is None:
        return all(same(a, b) for a, b in pairs)
    return all(near(a, b, tolerance) for a, b in pairs)


# --- the form of what came back ----------------------------------------------------------------------


def is_random(task: Code, function: Function, found: Sequence[Outcome]) -> bool:
    """Return whether some call gives different numbers when it is repeated."""
    again = outcomes(task, function)
    return not all(identical(a, b) for a, b in zip(found, again, strict=True))


def wrong_outputs(task: Code, found: Sequence[Outcome]) -> Finding | None:
    """Report correct arrays in a tuple or a dict, too few or too many of them, or in a different order."""
    outputs = task.probe.outputs
    entries = [_entries(outcome.raw) for outcome in found]
    if len({len(each) for each in entries}) > 1 or not entries[0]:
        return None
    expected = {name: [outcome.arrays[k] for outcome in right(task)] for k, name in enumerate(outputs)}
    returned = []
    for parts in zip(*entries, strict=True):
        matching = [name for name, arrays in expected.items() if all(map(same, parts, arrays))]
        returned.append(matching[0] if matching else "")
    in_a_dict = isinstance(found[0].raw, dict)
    in_a_tuple = len(outputs) == 1 and is_wrapped(found[0].raw, task.probe)
    elsewhere = [one for one, due in zip(returned, outputs, strict=False) if one not in ("", due)]
    has_right_count = len(returned) == len(outputs)
    if has_right_count and len(elsewhere) < 2 and not in_a_dict and not in_a_tuple:
        return None
    container = "dict" if in_a_dict else "tuple" if len(outputs) == 1 else "order" if has_right_count else ""
    return find("outputs_returned", expected=outputs, returned=tuple(returned), container=container)


def _entries(raw: Any) -> list[Array]:
    """List the entries of a tuple, a list or a dict; an entry that is not an array becomes NaN."""
    if isinstance(raw, np.ndarray):
        raw = [raw]
    parts = raw.values() if isinstance(raw, dict) else raw if isinstance(raw, tuple | list) else ()
    arrays: list[Array] = []
    for part in parts:
        try:
            arrays.append(as_array("", part).astype(float))
        except Unreadable:
            arrays.append(np.array(np.nan))
    return arrays


def transposed(task: Code, function: Function) -> Finding | None:
    """Report weights that fit only transposed, also where the calls with other sizes fail."""
    calls = task.probe.calls + task.probe.fresh
    trial = Trial(task.probe, function, task.right, 0, calls, (), (), {}, correct_answers(task))
    with quiet():
        finding: Finding | None = attempt(call_detectors.transposed_weights, trial)
    return _about(finding, task.probe.outputs[0])


@cache
def correct_answers(task: Code) -> dict[Any, Any]:
    """The correct answers to the calls that detectors have made so far, of an exercise."""
    return {}


# --- detectors -----------------------------------------------------------------------------------------


def observe(task: Code, function: Function, found: Sequence[Outcome]) -> list[Finding]:
    """Apply the detectors to the outputs that differ, until there are two findings.

    Calls that failed are left out.
    """
    calls = task.probe.calls + task.probe.fresh
    answers = [*found, *(run(function, given, task.probe) for given in task.probe.fresh)]
    expected = [*right(task), *_right_on_fresh(task)]
    ran = [n for n, outcome in enumerate(answers) if outcome.arrays]
    telling = [n for n in ran if not _is_degenerate(expected[n])]
    ran = telling or ran
    memo: dict[Any, Any] = {}
    right_memo = correct_answers(task)
    findings: list[Finding] = []
    for k, name in enumerate(task.probe.outputs):
        mine = tuple(answers[n].arrays[k] for n in ran)
        theirs = tuple(expected[n].arrays[k] for n in ran)
        if len(findings) == MOST_FINDINGS or all(map(same, mine, theirs)):
            continue
        ran_calls = tuple(calls[n] for n in ran)
        memos = memo, right_memo
        trial = Trial(task.probe, function, task.right, k, ran_calls, mine, theirs, *memos)
        finding = _about(first_finding(task, trial), name)
        if finding and not any(_says_the_same(finding, other) for other in findings):
            findings.append(finding)
    return findings


def _is_degenerate(outcome: Outcome) -> bool:
    """Whether an axis of length 1 makes several relations hold at once, as one column of a softmax does."""
    return any(1 in array.shape for array in outcome.arrays)


def _about(finding: Finding | None, output: str) -> Finding | None:
    """The finding with the name of the output that it is about."""
    return finding and Finding(finding.kind, output, finding.parameters, finding.view)


def _says_the_same(a: Finding, b: Finding) -> bool:
    return (a.kind, a.parameters) == (b.kind, b.parameters)


def first_finding(task: Code, trial: Trial) -> Finding | None:
    """Return the first finding: by the numbers alone, by the exercise's own detectors, by further calls."""
    detectors = (*number_detectors.DETECTORS, *task.detectors, *call_detectors.DETECTORS)
    with quiet():
        if returns_integers(trial):
            return find("integers")
        trial = trial._replace(
            found=tuple(a.astype(float) for a in trial.found),
            right=tuple(b.astype(float) for b in trial.right),
        )
        return first_of(detectors, trial)


def first_of(detectors: Sequence[Detector], trial: Trial) -> Finding | None:
    """Return the finding of the first detector that has one."""
    for detector in detectors:
        finding: Finding | None = attempt(detector, trial)
        if finding is not None:
            return finding
    return None


def returns_integers(trial: Trial) -> bool:
    """Return whether the answer has whole numbers where the correct array has others."""
    are_integers = all(a.dtype.kind in "iu" for a in trial.found)
    return are_integers and not all(np.array_equal(b, np.round(b)) for b in trial.right)
