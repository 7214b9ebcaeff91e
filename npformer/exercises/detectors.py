"""What can be found out about a wrong function: listed mistakes, then detectors, in one order.

A listed mistake is recognised where it gives the same answers on the exercise's calls and on fresh ones that
were drawn with other sizes. What a detector finds has to hold on all of these calls.
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
    """What one form of a mistake answers on every call."""

    mistake: Mistake
    function: Function
    outcomes: tuple[Outcome, ...]
    spoilt: frozenset[str]  # the outputs that are not correct on some call


def outcomes(task: Code, function: Function) -> tuple[Outcome, ...]:
    """What a function answers on every call."""
    return tuple(run(function, given, task.probe) for given in task.probe.calls)


@cache
def right(task: Code) -> tuple[Outcome, ...]:
    """What the correct function answers on every call."""
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
    """What a function of the bank answers on the fresh calls."""
    return tuple(run(function, given, task.probe) for given in task.probe.fresh)


@cache
def _right_on_fresh(task: Code) -> tuple[Outcome, ...]:
    """What the correct function answers on the fresh calls."""
    return _on_fresh(task, task.right)


def _fits_one(task: Code, known: Known, found: Outcome, expected: Outcome) -> bool:
    """Whether the outputs that a mistake spoils are alike in one call; or whether both stop."""
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
    """Whether some call gives other numbers when it is made again."""
    again = outcomes(task, function)
    return not all(identical(a, b) for a, b in zip(found, again, strict=True))


def wrong_outputs(task: Code, found: Sequence[Outcome]) -> Finding | None:
    """The correct arrays in a tuple or a dict, too few or too many of them, or in another order."""
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
    """What stands in a tuple, a list or a dict; what is no array is counted, and agrees with no output."""
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
    """Weights that fit only transposed: calls stop, or, with d_ff = d_model, give other numbers."""
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
    """What can be said of the outputs that differ, at most two of them; [] where nothing holds exactly.

    Calls that stopped are left out: what the others show is reported all the same.
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
    """The first finding: by the numbers alone, by the exercise's own detectors, by further calls."""
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
    """What the first detector finds that finds anything."""
    for detector in detectors:
        finding: Finding | None = attempt(detector, trial)
        if finding is not None:
            return finding
    return None


def returns_integers(trial: Trial) -> bool:
    """Whether numbers were cut to whole ones."""
    are_integers = all(a.dtype.kind in "iu" for a in trial.found)
    return are_integers and not all(np.array_equal(b, np.round(b)) for b in trial.right)
