"""Find out how a wrong function differs from the solution.

A call is a tuple of arguments for the function, and an answer is the value that the student's function
returns for a call. First this module compares the answers with the answers of the listed mistakes. A mistake
is recognised if its answers are the same on all calls of the exercise, and also on the fresh calls (random
calls with different sizes). If no mistake is recognised, the detectors compare the answers with the correct
answers. A detector is a function that returns a finding (a fact about the answers) or None. A finding must
hold on all calls.
"""

from collections.abc import Iterable, Sequence
from functools import cache
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
    are_equal,
    are_identical,
    are_near,
    as_array,
    compare_outputs,
    is_wrapped,
    run,
    split_stacked_outputs,
    suppress_warnings,
)
from npformer.exercises.task import Code, Mistake
from npformer.exercises.verdict import Finding, make_finding

MOST_FINDINGS = 2  # the largest number of findings in one reply; a student does not read more

# --- listed mistakes ---------------------------------------------------------------------------------


class Known(NamedTuple):
    """A function that makes a listed mistake, with its outcomes on every call of the exercise."""

    mistake: Mistake
    function: Function
    outcomes: tuple[Outcome, ...]
    wrong_outputs: frozenset[str]  # the names of the outputs that are wrong on some call


def run_calls(task: Code, function: Function) -> tuple[Outcome, ...]:
    """Run a function on every call of the exercise."""
    return tuple(run(function, given, task.probe) for given in task.probe.calls)


@cache
def run_solution(task: Code) -> tuple[Outcome, ...]:
    """Run the solution on every call of the exercise."""
    return run_calls(task, task.right)


@cache
def known_mistakes(task: Code) -> tuple[Known, ...]:
    """Run every mutant (one per edit of a listed mistake) on the calls of the exercise."""
    known = []
    for mistake, function in task.wrong_functions():
        answers = run_calls(task, function)
        known.append(Known(mistake, function, answers, find_differing_outputs(task, answers)))
    return tuple(known)


def find_differing_outputs(task: Code, found: Sequence[Outcome]) -> frozenset[str]:
    """Return the names of the outputs that are wrong on at least one call."""
    names = set()
    for outcome, expected in zip(found, run_solution(task), strict=True):
        for name, is_correct in zip(task.probe.outputs, compare_outputs(outcome, expected), strict=True):
            if not is_correct:
                names.add(name)
    return frozenset(names)


def find_agreeing_outputs(task: Code, found: Sequence[Outcome]) -> tuple[str, ...]:
    """Return the names of the outputs that are correct on every call."""
    wrong = find_differing_outputs(task, found)
    return tuple(name for name in task.probe.outputs if name not in wrong)


def find_explanations(
    task: Code, function: Function, found: tuple[Outcome, ...]
) -> list[tuple[Mistake, ...]]:
    """Return the explanations of a wrong answer. Each explanation is a tuple of listed mistakes.

    Usually a single mistake changes exactly the outputs that are wrong. If no single mistake does so, several
    mistakes in different outputs may explain the answer together.
    """
    wrong_outputs = find_differing_outputs(task, found)
    fitting = _find_fitting(task, function, found, wrong_outputs)
    single_mistakes = dict.fromkeys(
        known.mistake for known in fitting if known.wrong_outputs == wrong_outputs
    )
    if single_mistakes:
        return [(mistake,) for mistake in single_mistakes]
    outputs_of: dict[Mistake, frozenset[str]] = {}
    for known in fitting:
        outputs_of[known.mistake] = outputs_of.get(known.mistake, frozenset()) | known.wrong_outputs
    explained = sorted(name for names in outputs_of.values() for name in names)
    explains_each_output_once = explained == sorted(wrong_outputs)
    if explains_each_output_once:
        return [tuple(outputs_of)]
    return []


def _find_fitting(
    task: Code, function: Function, found: tuple[Outcome, ...], wrong_outputs: frozenset[str]
) -> list[Known]:
    """Return the listed mistakes that give the student's wrong outputs on all calls and all fresh calls."""
    candidates = [known for known in known_mistakes(task) if known.wrong_outputs <= wrong_outputs]
    fitting = [known for known in candidates if _fits(task, known, found, known.outcomes)]
    if not fitting:
        return []
    fresh = [run(function, given, task.probe) for given in task.probe.fresh]
    return [known for known in fitting if _fits(task, known, fresh, _on_fresh(task, known.function))]


def _fits(task: Code, known: Known, found: Sequence[Outcome], expected: Sequence[Outcome]) -> bool:
    """Return whether a listed mistake gives the student's outputs on every call.

    Only the outputs that the mistake changes are compared.
    """
    return all(_fits_one(task, known, a, b) for a, b in zip(found, expected, strict=True))


@cache
def _on_fresh(task: Code, function: Function) -> tuple[Outcome, ...]:
    """Run the solution, or the function of a listed mistake, on the fresh calls."""
    return tuple(run(function, given, task.probe) for given in task.probe.fresh)


@cache
def _right_on_fresh(task: Code) -> tuple[Outcome, ...]:
    """Run the solution on the fresh calls."""
    return _on_fresh(task, task.right)


def _fits_one(task: Code, known: Known, found: Outcome, expected: Outcome) -> bool:
    """Return whether a listed mistake gives the student's outputs in one call, as in `_fits`.

    If both functions fail in this call, they count as equal.
    """
    if not found.arrays or not expected.arrays:
        return found.failed and expected.failed
    tolerance = known.mistake.tolerance
    for name, a, b in zip(task.probe.outputs, found.arrays, expected.arrays, strict=True):
        if name not in known.wrong_outputs:
            continue
        if tolerance is None:
            is_equal = are_equal(a, b)
        else:
            is_equal = are_near(a, b, tolerance)
        if not is_equal:
            return False
    return True


# --- the form of the returned value ------------------------------------------------------------------


def is_random(task: Code, function: Function, found: Sequence[Outcome]) -> bool:
    """Return whether some call gives different numbers when it is repeated."""
    again = run_calls(task, function)
    return not all(are_identical(a, b) for a, b in zip(found, again, strict=True))


def find_misplaced_outputs(task: Code, found: Sequence[Outcome]) -> Finding | None:
    """Report outputs in a wrong order or a wrong container, or a wrong number of outputs."""
    outputs = task.probe.outputs
    values_of_calls = [_entries(split_stacked_outputs(outcome.raw, task.probe)) for outcome in found]
    counts = {len(values) for values in values_of_calls}
    if len(counts) > 1 or counts == {0}:
        return None
    returned = _name_entries(task, values_of_calls)
    raw = found[0].raw
    has_right_count = len(returned) == len(outputs)
    container = ""
    if isinstance(raw, dict):
        container = "dict"
    elif len(outputs) == 1:
        container = "tuple"
    elif has_right_count:
        container = "order"
    misplaced = [name for name, due in zip(returned, outputs, strict=False) if name not in ("", due)]
    has_other_order = len(misplaced) >= 2
    is_in_tuple = len(outputs) == 1 and is_wrapped(raw, task.probe)
    has_right_form = has_right_count and not has_other_order and not is_in_tuple
    if has_right_form and not isinstance(raw, dict):
        return None
    return make_finding("outputs_returned", expected=outputs, returned=returned, container=container)


def _name_entries(task: Code, values_of_calls: Sequence[Sequence[Array]]) -> tuple[str, ...]:
    """Return, for each entry of the returned value, the name of the output that equals it, or ""."""
    correct = {}
    for k, name in enumerate(task.probe.outputs):
        correct[name] = [outcome.arrays[k] for outcome in run_solution(task)]
    names = []
    for entries in zip(*values_of_calls, strict=True):
        matching = [name for name, arrays in correct.items() if all(map(are_equal, entries, arrays))]
        names.append(matching[0] if matching else "")
    return tuple(names)


def _entries(raw: Any) -> list[Array]:
    """Return the entries of a tuple, list or dict as arrays. Other entries become NaN."""
    parts: Iterable[Any] = ()
    if isinstance(raw, np.ndarray):
        parts = [raw]
    elif isinstance(raw, dict):
        parts = raw.values()
    elif isinstance(raw, tuple | list):
        parts = raw
    arrays: list[Array] = []
    for part in parts:
        try:
            arrays.append(as_array("", part).astype(float))
        except Unreadable:
            arrays.append(np.array(np.nan))
    return arrays


def find_transposed_weights(task: Code, function: Function) -> Finding | None:
    """Report weights that the function wrongly transposes or does not transpose, even if calls fail."""
    calls = task.probe.calls + task.probe.fresh
    trial = Trial(
        task.probe, function, task.right, output=0, calls=calls, found=(), right=(), memo={},
        right_memo=correct_answers(task),
    )  # fmt: skip
    with suppress_warnings():
        finding: Finding | None = attempt(call_detectors.transposed_weights, trial)
    if finding is None:
        return None
    return _with_output(finding, task.probe.outputs[0])


@cache
def correct_answers(task: Code) -> dict[Any, Any]:
    """Return the dict that caches the correct answers to the calls that detectors make."""
    return {}


# --- detectors -----------------------------------------------------------------------------------------


def apply_detectors(task: Code, function: Function, found: Sequence[Outcome]) -> list[Finding]:
    """Apply the detectors to each wrong output, and stop after MOST_FINDINGS findings.

    Calls that failed are not passed to the detectors.
    """
    calls = task.probe.calls + task.probe.fresh
    answers = [*found, *(run(function, given, task.probe) for given in task.probe.fresh)]
    expected = [*run_solution(task), *_right_on_fresh(task)]
    used = _choose_calls(answers, expected)
    trial_without_output = Trial(
        task.probe, function, task.right, output=0, calls=tuple(calls[n] for n in used), found=(), right=(),
        memo={}, right_memo=correct_answers(task),
    )  # fmt: skip
    findings: list[Finding] = []
    for k, name in enumerate(task.probe.outputs):
        if len(findings) == MOST_FINDINGS:
            break
        trial = trial_without_output._replace(
            output=k,
            found=tuple(answers[n].arrays[k] for n in used),
            right=tuple(expected[n].arrays[k] for n in used),
        )
        if all(map(are_equal, trial.found, trial.right)):
            continue
        finding = first_finding(task, trial)
        if finding is not None and not any(_is_same_fact(finding, other) for other in findings):
            findings.append(_with_output(finding, name))
    return findings


def _choose_calls(answers: Sequence[Outcome], expected: Sequence[Outcome]) -> list[int]:
    """Return the indices of the calls that returned arrays, without degenerate calls if possible."""
    ran = [n for n, outcome in enumerate(answers) if outcome.arrays]
    ordinary = [n for n in ran if not _is_degenerate(expected[n])]
    return ordinary or ran


def _is_degenerate(outcome: Outcome) -> bool:
    """Return whether some axis has length 1.

    On an axis of length 1, several relations hold by chance. For example, a softmax over a single column is
    always 1.
    """
    return any(1 in array.shape for array in outcome.arrays)


def _with_output(finding: Finding, output: str) -> Finding:
    """Return a copy of the finding that names this output."""
    return Finding(finding.kind, output, finding.parameters, finding.view)


def _is_same_fact(a: Finding, b: Finding) -> bool:
    """Return whether two findings are the same, apart from the name of the output."""
    return (a.kind, a.parameters) == (b.kind, b.parameters)


def first_finding(task: Code, trial: Trial) -> Finding | None:
    """Return the first finding of all detectors.

    The detectors that compare numbers run first, then the detectors of the exercise, then the detectors that
    call the function again.
    """
    detectors = (*number_detectors.DETECTORS, *task.detectors, *call_detectors.DETECTORS)
    with suppress_warnings():
        if returns_integers(trial):
            return make_finding("integers")
        trial = trial._replace(
            found=tuple(a.astype(float) for a in trial.found),
            right=tuple(b.astype(float) for b in trial.right),
        )
        return first_of(detectors, trial)


def first_of(detectors: Sequence[Detector], trial: Trial) -> Finding | None:
    """Return the finding of the first detector that finds something, or None."""
    for detector in detectors:
        finding: Finding | None = attempt(detector, trial)
        if finding is not None:
            return finding
    return None


def returns_integers(trial: Trial) -> bool:
    """Return whether the answer has an integer dtype although the correct numbers are not all integers."""
    are_integers = all(a.dtype.kind in "iu" for a in trial.found)
    return are_integers and not all(np.array_equal(b, np.round(b)) for b in trial.right)
