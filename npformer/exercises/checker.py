"""Check an answer to an exercise: a letter, a truth value, numbers or a function.

This module compares the answer with the correct answer. For a wrong function, the module ``detectors``
finds the likely mistake. The verdict is data, and the module ``feedback`` writes the sentences about the
verdict. No finding contains the expected numbers.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from npformer.backend import Array
from npformer.exercises import detectors
from npformer.exercises.answer_parsing import LETTERS, read_letter, read_numbers, read_truth
from npformer.exercises.bank import find_exercise
from npformer.exercises.number_detectors import are_close
from npformer.exercises.probe import (
    Function,
    Outcome,
    Probe,
    TooLong,
    allowed_error,
    are_equal,
    are_equal_outcomes,
    compare_outputs,
    find_replaced_numpy_functions,
    limit_time,
    returns_npformer_result,
    run,
)
from npformer.exercises.result import Result, make_result
from npformer.exercises.task import RIGHT, Choice, Code, Mistake, Numbers, Task, Truth, Wrong
from npformer.exercises.verdict import Finding, Role, Verdict, make_finding

SECONDS = 10.0  # the limit of CPU time for one answer
ROUGH = 2e-2  # the tolerance of hard calls for answers in float32 or float16, which have few digits
HUGE = 10**6  # a larger number of entries is not analysed; no task asks for so many
AXES = 6  # a larger number of axes is not analysed; no task asks for so many


def check(exercise_id: str, answer: Any, *, level: int = 1) -> Result:
    """Check one answer to an exercise, and name the likely mistake if the answer is wrong.

    An error in the student's function is part of the result. It is not raised.

    Parameters
    ----------
    exercise_id : str
        The id of an exercise, such as "pe.entry". With "pe.entry@Ada" the answer is for Ada's own numbers.
    answer : a letter, True or False, a number, a list of numbers, or a function
        The answer, in the form that the exercise asks for. A string such as "1/2" or "√2" counts as a number.
    level : 1, 2 or 3
        How much the feedback says. Level 1 is for finding the mistake without help: it says what is correct
        and where the first difference is. Level 2 is for a lesson: it says what was observed, adds the likely
        cause if one is known, and asks one question. Level 3 is for learning at home: it adds what to read,
        first the section of the lesson, then the paper.

    Returns
    -------
    result : Result
        It is true if the answer is correct. It prints as a card with the feedback.

    Raises
    ------
    ValueError
        If the bank has no exercise with this id, or if the level is not 1, 2 or 3.

    Examples
    --------
    >>> check("ffn.sharing", "a", level=3).question
    'Which weights does the feed-forward part have, and do they differ from position to position?'
    """
    task, name = find_exercise(exercise_id)
    is_integer = isinstance(level, int | np.integer) and not isinstance(level, bool)
    if not is_integer:
        raise TypeError(f"check: level is {level!r}; expected 1, 2 or 3")
    if not 1 <= level <= 3:
        raise ValueError(f"check: level is {level}; expected 1, 2 or 3")
    return make_result(assess(task, answer, name), int(level))


def assess(task: Task, answer: Any, name: str = "") -> Verdict:
    """Return the verdict on an answer to the exercise that has the numbers for this student's name."""
    replaced = find_replaced_numpy_functions()
    if replaced:
        return report_problem(task, make_finding("numpy_replaced", function=replaced[0]))
    try:
        with limit_time(SECONDS):
            return _assess_by_kind(task, answer, name)
    except TooLong:
        return report_problem(task, make_finding("too_long", seconds=SECONDS))
    except Exception as error:  # The answer can be any object, whose methods can raise any error.
        return report_problem(task, make_finding("unreadable", error=type(error).__name__))


def report_problem(task: Task, *findings: Finding) -> Verdict:
    """Return the verdict "error" for an answer that could not be checked completely."""
    return Verdict(task.id, "error", findings)


def _assess_by_kind(task: Task, answer: Any, name: str) -> Verdict:
    """Return the verdict on an answer, or report that the exercise asks for a different kind of answer."""
    if answer is None or answer is ...:
        return report_problem(task, make_finding("unanswered"))
    if isinstance(task, Code):
        if callable(answer):
            return assess_function(task, answer)
        return report_problem(
            task, make_finding("function_expected", name=task.name, signature=task.signature)
        )
    if callable(answer):
        return report_problem(task, make_finding("value_expected"))
    if isinstance(task, Numbers):
        return assess_numbers(task, answer, name)
    if isinstance(task, Truth):
        return assess_truth(task, answer)
    assert isinstance(task, Choice)
    return assess_choice(task, answer)


# --- letters and truth values ------------------------------------------------------------------------


def assess_truth(task: Truth, answer: Any) -> Verdict:
    """Return the verdict on a truth value, which may also be given as 1 or 0, or as "yes" or "no"."""
    claimed = read_truth(answer)
    if claimed is None:
        return report_problem(task, make_finding("not_a_truth_value"))
    if claimed == task.right:
        return accept(task)
    return Verdict(task.id, "known_mistake", (make_finding("not_so"),), (task.wrong.code,))


def assess_choice(task: Choice, answer: Any) -> Verdict:
    """Return the verdict on an option, which is given by its letter, its number or its text."""
    letter = read_letter(answer, task.options)
    remaining = len(task.options) - 1
    if not letter:
        return report_problem(task, make_finding("not_a_letter", last=LETTERS[remaining]))
    chosen = list(task.options.values())[LETTERS.index(letter)]
    if chosen is RIGHT:
        return accept(task)
    return Verdict(
        task.id, "known_mistake", (make_finding("not_this_option", left=remaining),), (chosen.code,)
    )


def accept(task: Task) -> Verdict:
    """Return the verdict "pass", in which all outputs are correct."""
    outputs: tuple[str, ...] = ()
    if isinstance(task, Code):
        outputs = task.probe.outputs
    return Verdict(task.id, "pass", (make_finding("all_agree"),), (), outputs, outputs)


# --- numbers ---------------------------------------------------------------------------------------


def assess_numbers(task: Numbers, answer: Any, name: str) -> Verdict:
    """Return the verdict on a number or a list of numbers, for the numbers of this student's name."""
    question = task.posed(name)
    right = np.asarray(question.answer, float)
    given = read_numbers(answer, right.shape, whole=task.decimals == 0)
    if given is None:
        if right.ndim:
            return report_problem(task, make_finding("not_numbers", count=right.size))
        return report_problem(task, make_finding("not_a_number"))
    if agrees(given, right, task):
        return accept(task)
    findings = tuple(compare_numbers(given, right, task))
    wrong_answers = {wrong: np.asarray(value, float) for wrong, value in question.wrong.items()}
    fitting = {wrong: value for wrong, value in wrong_answers.items() if agrees(given, value, task)}
    if fitting:
        codes = tuple(wrong.code for wrong in _choose_nearest(fitting, given, task))
        status = "known_mistake" if len(codes) == 1 else "ambiguous"
        return Verdict(task.id, status, findings, codes)
    return Verdict(task.id, "unrecognised", _add_pattern(findings, given, right, task))


def _add_pattern(
    findings: tuple[Finding, ...], given: Array, right: Array, task: Numbers
) -> tuple[Finding, ...]:
    """Add a finding about the pattern in the wrong numbers, and drop less specific findings."""
    is_comparable = given.shape == right.shape and bool(np.isfinite(given).all())
    if not is_comparable:
        return findings
    rounding = find_rounding(given, right, task)
    if rounding is not None:
        return (rounding,)
    pattern = find_pattern(given, right, task)
    if pattern is None:
        return findings
    others = [finding for finding in findings if finding.role != Role.OBSERVATION]
    return (*others, pattern)


def agrees(a: Array, b: Array, task: Numbers) -> bool:
    """Return whether two answers are equal within the tolerance of a task."""
    return a.shape == b.shape and bool((np.abs(a - b) <= task.tolerance).all())


def _choose_nearest(
    fitting: Mapping[Mistake | Wrong, Array], given: Array, task: Numbers
) -> list[Mistake | Wrong]:
    """Select the known wrong answers that equal the student's numbers.

    If the student gives extra digits, prefer wrong answers that agree in these digits too.
    """
    is_rounded = np.allclose(given, np.round(given, task.decimals), rtol=0, atol=1e-9)
    exact = [wrong for wrong, value in fitting.items() if np.allclose(given, value, rtol=1e-7, atol=1e-9)]
    if is_rounded or not exact:
        return list(fitting)
    return exact


def compare_numbers(given: Array, right: Array, task: Numbers) -> Iterator[Finding]:
    """Report a wrong form of the answer, or which numbers are correct, too large or too small."""
    if given.shape != right.shape:
        if right.ndim:
            yield make_finding(
                "wrong_count_of_numbers", found=given.size, shape=given.shape, expected=right.size
            )
        else:
            yield make_finding("one_number_expected", found=given.size, shape=given.shape)
        return
    if not np.isfinite(given).all():
        yield make_finding("not_finite_answer")
        return
    errors = np.where(np.abs(given - right) > task.tolerance, given - right, 0)
    if right.ndim:
        yield from _compare_list(errors)
        return
    yield make_finding("one_number")
    if errors >= 0:
        yield make_finding("too_large")
    else:
        yield make_finding("too_small")


def _compare_list(errors: Array) -> Iterator[Finding]:
    """Report which numbers of a list are correct (error 0), and which numbers are too large or too small."""
    are_all_larger = bool(errors.min() >= 0)
    are_all_smaller = bool(errors.max() <= 0)
    is_correct = errors == 0
    if is_correct.any():
        yield make_finding("some_numbers_agree", count=errors.size, agreeing=int(is_correct.sum()))
        yield make_finding("first_wrong_number", first=int(np.argmin(is_correct)) + 1)
        kind = "numbers_differ"
        if are_all_larger:
            kind = "numbers_too_large"
        elif are_all_smaller:
            kind = "numbers_too_small"
        yield make_finding(kind, places=tuple(int(k) + 1 for k in np.flatnonzero(errors)))
        return
    yield make_finding("no_number_agrees", count=errors.size)
    if are_all_larger:
        yield make_finding("all_too_large")
    elif are_all_smaller:
        yield make_finding("all_too_small")
    else:
        yield make_finding("too_large_and_too_small")


def find_rounding(given: Array, right: Array, task: Numbers) -> Finding | None:
    """Report an answer that is correct, but rounded or truncated to too few decimals."""
    if not given.any():
        return None
    for kept in range(task.decimals - 1, -1, -1):
        unit = 10.0**-kept
        has_kept_decimals = np.allclose(given / unit, np.round(given / unit), rtol=0, atol=1e-9)
        if not has_kept_decimals:
            continue
        # The factor is slightly larger than 0.5, because the student may round a digit 5 up or down.
        is_rounded = np.abs(given - right).max() <= (0.5 + 1e-9) * unit
        if is_rounded:
            return make_finding("rounded_answer", kept=kept, decimals=task.decimals)
        is_truncated = np.allclose(given, np.trunc(right / unit) * unit, rtol=0, atol=1e-9)
        if is_truncated:
            return make_finding("truncated_answer", kept=kept, decimals=task.decimals)
    return None


MANY = 1000  # from this magnitude on, an integer with an error below 1 % gets the finding "size_is_right"
FEW = 10  # for a smaller integer, the finding "off by one" would reveal the answer
NORMAL_FORMS: dict[
    str, Callable[[Array, Array], tuple[Array, Array]]
] = {  # {pattern: makes two arrays, which are equal if the answer has the pattern}
    "sign_differs": lambda a, b: (-a, b),
    "numbers_permuted": lambda a, b: (np.sort(a), np.sort(b)),
    "some_signs_differ": lambda a, b: (np.abs(a), np.abs(b)),
    "numbers_shifted": lambda a, b: (a - a.mean(), b - b.mean()),
    "numbers_scaled": lambda a, b: (a / (a @ b) * (b @ b), b),
}


def find_pattern(given: Array, right: Array, task: Numbers) -> Finding | None:
    """Report wrong numbers that differ by sign, by 1, by order, by a factor or by a constant."""
    kinds = ["sign_differs"]
    if right.ndim:
        kinds = list(NORMAL_FORMS)
    with np.errstate(all="ignore"):
        for kind in kinds:
            if agrees(*NORMAL_FORMS[kind](given, right), task):
                return make_finding(kind)
    if right.ndim or task.decimals:
        return None
    error = np.abs(given - right).max()
    magnitude = np.abs(right).max()
    if magnitude >= FEW and error == 1:
        return make_finding("one_off")
    if magnitude >= MANY and error < 0.01 * magnitude:
        return make_finding("size_is_right")
    return None


# --- a function --------------------------------------------------------------------------------------


def assess_function(task: Code, function: Function) -> Verdict:
    """Return the verdict on a function.

    The checks run in this order:

    - whether the function returns anything;
    - whether its numbers are correct;
    - whether it makes a listed mistake;
    - whether its numbers are random;
    - whether the returned value has a wrong form;
    - whether a detector finds a pattern.
    """
    found = detectors.run_calls(task, function)
    if all(outcome.empty for outcome in found):
        return _assess_empty(task, function, found)
    if not detectors.find_differing_outputs(task, found):
        return _assess_correct_numbers(task, function, found)
    if any(array.size > HUGE or array.ndim > AXES for outcome in found for array in outcome.arrays):
        return reject_unrecognised(task, found)
    explanations = detectors.find_explanations(task, function, found)
    if explanations:
        return assess_known_mistakes(task, found, explanations)
    if detectors.is_random(task, function, found):
        return reject_unrecognised(task, found, make_finding("random"))
    form = detectors.find_misplaced_outputs(task, found)
    if form is None:
        form = detectors.find_transposed_weights(task, function)
    if form is not None:
        return reject_unrecognised(task, found, form)
    return reject_unrecognised(task, found, *detectors.apply_detectors(task, function, found))


def assess_known_mistakes(
    task: Code, found: Sequence[Outcome], explanations: Sequence[tuple[Mistake, ...]]
) -> Verdict:
    """Return the verdict on an answer with listed mistakes.

    It passes if every listed mistake is an accepted variant.
    """
    mistakes = {mistake.code: mistake for explanation in explanations for mistake in explanation}
    codes = tuple(mistakes)
    outputs = task.probe.outputs
    is_ambiguous = len(explanations) > 1
    if not is_ambiguous and all(mistake.passes for mistake in mistakes.values()):
        return Verdict(task.id, "pass_variant", (), codes, outputs, outputs)
    findings = (
        *report_agreement(task, found),
        *find_first_difference(task, found),
        *find_size_of_difference(task, found),
        *report_changed_arguments(found),
        *report_nan(task, found),
    )
    status = "ambiguous" if is_ambiguous else "known_mistake"
    return Verdict(task.id, status, findings, codes, outputs, detectors.find_agreeing_outputs(task, found))


def reject_unrecognised(task: Code, found: Sequence[Outcome], *observations: Finding) -> Verdict:
    """Return the verdict on a wrong answer that no listed mistake explains.

    The findings of the verdict include ``observations``.
    """
    has_run = any(outcome.arrays for outcome in found)
    if not has_run and not observations:
        return _reject_failed(task, found)
    findings = (
        *report_agreement(task, found),
        *find_first_difference(task, found),
        *observations,
        *report_changed_arguments(found),
    )
    agreed = detectors.find_agreeing_outputs(task, found)
    return Verdict(task.id, "unrecognised", findings, (), task.probe.outputs, agreed)


def _reject_failed(task: Code, found: Sequence[Outcome]) -> Verdict:
    """Return the verdict on a function that did not return readable arrays on any call."""
    findings = list(find_differences(task.probe, found[0], detectors.run_solution(task)[0]))
    failed = [outcome for outcome in found if outcome.failed]
    if failed and failed[0].error:
        findings = [_report_error("stopped", failed[0])]
    return Verdict(task.id, "error", tuple(findings[:1]), (), task.probe.outputs, ())


def find_first_difference(task: Code, found: Sequence[Outcome]) -> list[Finding]:
    """Return the first difference as a list with one finding. Failed calls come before the other calls."""
    pairs = list(zip(found, detectors.run_solution(task), strict=True))
    failed = [pair for pair in pairs if pair[0].failed or pair[0].empty]
    differences = (find_differences(task.probe, outcome, expected) for outcome, expected in failed or pairs)
    return list(itertools.islice(itertools.chain.from_iterable(differences), 1))


def find_size_of_difference(task: Code, found: Sequence[Outcome]) -> list[Finding]:
    """Find the largest error of the first output that differs. Returns a list with at most one finding.

    The error is taken over all calls, relative to the largest correct number of its call. Errors that are not
    finite are left out.
    """
    shares: dict[str, list[float]] = {}
    for outcome, expected in zip(found, detectors.run_solution(task), strict=True):
        for name, a, b in zip(task.probe.outputs, outcome.arrays, expected.arrays, strict=False):
            if not are_equal(a, b):
                shares.setdefault(name, []).append(_measure_difference(a, b))
    first = next(iter(shares), "")
    finite = [share for share in shares.get(first, []) if np.isfinite(share)]
    if not finite:
        return []
    return [Finding("off_by", first, {"share": max(finite)})]


def _measure_difference(a: Array, b: Array) -> float:
    """Return the largest error relative to the largest correct number; NaN if it cannot be measured."""
    is_comparable = a.shape == b.shape and b.dtype.kind == "f"
    if not is_comparable:
        return math.nan
    error = float(np.abs(a.astype(float) - b).max(initial=0))
    return error / max(float(np.abs(b).max(initial=0)), 1e-300)


def report_changed_arguments(found: Sequence[Outcome]) -> list[Finding]:
    """Report the arguments that the student's function has changed in some call."""
    names = tuple(sorted({name for outcome in found for name in outcome.changed}))
    if not names:
        return []
    return [make_finding("argument_changed", names=names)]


def report_nan(task: Code, found: Sequence[Outcome]) -> list[Finding]:
    """Report NaN in a call whose correct numbers are all finite."""
    for outcome, expected in zip(found, detectors.run_solution(task), strict=True):
        for a, b in zip(outcome.arrays, expected.arrays, strict=False):
            has_nan = a.dtype.kind == "f" and np.isnan(a).any()
            if has_nan and np.isfinite(b.astype(float)).all():
                return [make_finding("has_nan")]
    return []


# --- functions with correct numbers --------------------------------------------------------------------


def _assess_correct_numbers(task: Code, function: Function, found: Sequence[Outcome]) -> Verdict:
    """Return the verdict on a function whose numbers are correct on every ordinary call.

    To pass, the function must not be npformer's own, must not change its arguments, and must pass the hard
    calls.
    """
    outputs = task.probe.outputs
    name = task.ours or task.name
    if task.ours is not None and returns_npformer_result(name, function, task.probe):
        findings: tuple[Finding, ...] = (make_finding("is_npformers", function=name),)
        return Verdict(task.id, "known_mistake", findings, ("NPFORMERS-OWN",), outputs, ())
    changed = report_changed_arguments(found)
    if changed:
        findings = (make_finding("numbers_are_correct"), *changed)
        return Verdict(task.id, "known_mistake", findings, ("MUTATES-INPUT",), outputs, ())
    for mistake, given in task.hard.items():
        verdict = _assess_hard_call(task, function, mistake, given)
        if verdict is not None:
            return verdict
    return accept(task)


# The module `math` raises these errors where NumPy returns inf or NaN, so these errors count as infinity.
NO_NUMBER = ("OverflowError", "ZeroDivisionError", "ValueError")


def _assess_hard_call(
    task: Code, function: Function, mistake: Mistake, given: tuple[Any, ...]
) -> Verdict | None:
    """Return the verdict on a call with extreme arguments, or None if the function's result is correct."""
    answer = run(function, given, task.probe)
    expected = run(task.right, given, task.probe)
    is_about_precision = mistake.kind == "precision"
    tolerance = None if is_about_precision else _choose_tolerance(answer)
    if are_equal_outcomes(answer, expected, tolerance):
        return None
    outputs = task.probe.outputs
    if is_about_precision and are_equal_outcomes(answer, expected, mistake.tolerance):
        return Verdict(task.id, "pass_variant", (), (mistake.code,), outputs, outputs)
    has_stopped = answer.error is not None and answer.error.type_name not in NO_NUMBER
    is_finite = bool(answer.arrays) and all(bool(np.isfinite(a).all()) for a in answer.arrays)
    is_fragile = mistake.kind == "robustness"
    fits = mistake.kind == "wrong" or (is_fragile and not is_finite)
    if fits and not has_stopped:
        return Verdict(task.id, "known_mistake", (), (mistake.code,), outputs, ())
    findings = [
        make_finding("ordinary_sizes_agree"),
        *list(find_differences(task.probe, answer, expected))[:1],
    ]
    if is_fragile and not has_stopped:
        findings.append(make_finding("finite_but_wrong_far_out"))
    return Verdict(task.id, "unrecognised", tuple(findings), (), outputs, ())


def _choose_tolerance(answer: Outcome) -> float:
    """Return the tolerance of a hard call.

    Float32 answers have few digits, so they get a larger tolerance.
    """
    has_few_digits = any(a.dtype.kind == "f" and a.dtype.itemsize < 8 for a in answer.arrays)
    return ROUGH if has_few_digits else 1e-4


# --- functions that return nothing ---------------------------------------------------------------------


def _assess_empty(task: Code, function: Function, found: Sequence[Outcome]) -> Verdict:
    """Return the verdict on a function that returns None: a stub, or a function without ``return``."""
    if is_stub(function) or any(outcome.not_implemented for outcome in found):
        return report_problem(task, make_finding("unanswered"))
    return report_problem(task, make_finding("returned_none"))


def is_stub(function: Function) -> bool:
    """Return whether the body of a function does nothing, for example ``...`` or ``pass``."""
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    is_short = len(code.co_code) <= 8
    if code.co_names or not is_short:
        return False
    return all(part is None or part is ... or isinstance(part, str) for part in code.co_consts)


# --- agreements and differences ------------------------------------------------------------------------


def report_agreement(task: Code, found: Sequence[Outcome]) -> list[Finding]:
    """Report the outputs that agree. If no output agrees, report a correct shape and the rows that agree."""
    pairs = [(a, b) for a, b in zip(found, detectors.run_solution(task), strict=True) if a.arrays]
    if not pairs:
        return []
    outputs = task.probe.outputs
    agree = _find_outputs_that_agree(outputs, pairs)
    if len(outputs) > 1 and agree:
        differ = tuple(name for name in outputs if name not in agree)
        if differ:
            return [make_finding("some_outputs_agree", agree=agree, differ=differ)]
        kind = "outputs_agree_where_it_runs" if len(pairs) < len(found) else "outputs_agree"
        return [make_finding(kind, agree=agree)]
    sides = [side for a, b in pairs for side in zip(a.arrays, b.arrays, strict=True)]
    if any(a.shape != b.shape for a, b in sides):
        return [make_finding("runs")]
    has_failed_calls = len(pairs) < len(found)
    if has_failed_calls:
        shape = make_finding("shape_agrees_where_it_runs")
    elif len(outputs) == 1:
        shape = make_finding("shape_agrees")
    else:
        shape = make_finding("shapes_agree")
    is_correct = all(are_equal(a, b) for a, b in sides)
    if len(outputs) == 1 and not is_correct:
        return [shape, *find_agreeing_lines(task.probe, sides)]
    return [shape]


def _find_outputs_that_agree(
    outputs: tuple[str, ...], pairs: Sequence[tuple[Outcome, Outcome]]
) -> tuple[str, ...]:
    """Return the names of the outputs that are correct in all of these calls."""
    agreements = [compare_outputs(found, expected) for found, expected in pairs]
    return tuple(name for k, name in enumerate(outputs) if all(correct[k] for correct in agreements))


def find_agreeing_lines(probe: Probe, sides: Sequence[tuple[Array, Array]]) -> list[Finding]:
    """Report the columns that are correct in every call.

    If no column is correct, report correct rows, or else the correct indices of an earlier axis.
    """
    ndim = sides[0][1].ndim
    for axis in reversed(range(ndim)):
        lengths = [b.shape[axis] for _, b in sides]
        agree = tuple(i for i in range(min(lengths)) if _agrees_at(sides, axis, i))
        if 0 < len(agree) < max(lengths):
            return [_report_agreeing_lines(probe, axis, ndim, agree)]
    return []


def _agrees_at(sides: Sequence[tuple[Array, Array]], axis: int, index: int) -> bool:
    """Return whether the answer is correct at this index of an axis in every call."""
    return all(are_close(a.take(index, axis), b.take(index, axis)) for a, b in sides)


def _report_agreeing_lines(probe: Probe, axis: int, ndim: int, indices: tuple[int, ...]) -> Finding:
    """Report that the entries with these indices along an axis are correct."""
    if ndim == 1:
        return make_finding("numbers_agree", indices=indices)
    if axis == ndim - 1:
        return make_finding("columns_agree", indices=indices)
    if axis == ndim - 2:
        return make_finding("rows_agree", indices=indices)
    axis_names = probe.axis_names.get(probe.outputs[0], [])
    name = axis_names[axis] if len(axis_names) == ndim else "row"
    return make_finding("entries_agree", axis=name, indices=indices)


def find_differences(probe: Probe, found: Outcome, expected: Outcome) -> Iterator[Finding]:
    """Compare one call with the correct outcome, and yield a finding for each output that differs."""
    if found.unreadable is not None:
        yield found.unreadable
    elif found.error is not None:
        yield _report_error("stopped_in_one_check", found)
    elif found.empty:
        yield make_finding("one_call_returned_none")
    else:
        for name, a, b in zip(probe.outputs, found.arrays, expected.arrays, strict=True):
            if not are_equal(a, b):
                finding = compare_shapes(a.shape, b.shape) or compare_entries(a, b)
                yield Finding(finding.kind, name, finding.parameters)


def _report_error(kind: str, outcome: Outcome) -> Finding:
    """Report the error that ended a call."""
    error = outcome.error
    assert error is not None
    return make_finding(
        kind,
        error=error.type_name,
        message=error.message,
        line=error.line,
        function=error.function,
        is_remote=error.is_remote,
    )


def compare_shapes(found: tuple[int, ...], right: tuple[int, ...]) -> Finding | None:
    """Report axes that are longer or shorter than the correct axes, or a wrong number of axes."""
    if found == right:
        return None
    if len(found) != len(right):
        return make_finding("wrong_number_of_axes", found=found, expected=len(right))
    axes = range(len(right))
    longer = tuple(axis for axis in axes if found[axis] > right[axis])
    shorter = tuple(axis for axis in axes if found[axis] < right[axis])
    return make_finding("wrong_shape", found=found, longer=longer, shorter=shorter)


def compare_entries(a: Array, b: Array) -> Finding:
    """Report the first entry that differs from the correct entry, and the number of entries that differ."""
    if b.ndim == 0:
        return make_finding("differs")
    wrong = ~(np.abs(a.astype(float) - b.astype(float)) <= allowed_error(b.astype(float), a.dtype))
    index = tuple(np.argwhere(wrong)[0].tolist())
    has_nan = bool(a.dtype.kind == "f" and np.isnan(a[wrong]).any())
    return make_finding(
        "differs_at", index=index, differing=int(wrong.sum()), entries=wrong.size, has_nan=has_nan
    )
