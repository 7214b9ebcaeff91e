"""`check`: one answer in, one result out.

This module compares letters, truth values, numbers and functions. For a wrong function, `detectors` finds the
likely mistake. Everything is data until `feedback` writes the sentences. No finding contains the expected
numbers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from npformer.backend import Array
from npformer.exercises import detectors
from npformer.exercises.answer_parsing import LETTERS, read_letter, read_numbers, read_truth
from npformer.exercises.bank import find as find_exercise
from npformer.exercises.number_detectors import close
from npformer.exercises.probe import (
    Function,
    Outcome,
    Probe,
    TooLong,
    agreeing,
    allowed,
    replaced_in_numpy,
    returned_by_npformer,
    run,
    same,
    same_outcome,
    within,
)
from npformer.exercises.result import Result, make_result
from npformer.exercises.task import RIGHT, Choice, Code, Mistake, Numbers, Task, Truth, Wrong
from npformer.exercises.verdict import Finding, Role, Verdict, find

SECONDS = 10.0  # that one answer may take
ROUGH = 2e-2  # where logits are as large as 1000, float32 has few digits left
HUGE, AXES = 10**6, 6  # no task asks for so many numbers or axes: nothing is searched in them


def check(exercise_id: str, answer: Any, *, level: int = 1) -> Result:
    """Check one answer: a letter, True or False, a number, a list of numbers or a function.

    An id may end in @ and a name, for a student's own numbers. Level 1 says what is correct and where the
    first difference is. Level 2 says what was observed. Level 3 adds the likely cause, a question, and where
    to read. The answer's own errors become a result.

    Raises ValueError for an exercise that the bank does not have or a level that is not 1, 2 or 3.

    >>> check("ffn.sharing", "a", level=3).question
    'If a sentence grows by a word, does the network grow?'
    """
    task, name = find_exercise(exercise_id)
    if isinstance(level, bool) or not isinstance(level, int | np.integer):
        raise TypeError(f"check: level is {level!r}; expected 1, 2 or 3")
    if not 1 <= level <= 3:
        raise ValueError(f"check: level is {level}; expected 1, 2 or 3")
    return make_result(judge(task, answer, name), int(level))


def judge(task: Task, answer: Any, name: str = "") -> Verdict:
    """The verdict on an answer to the exercise with a student's own numbers."""
    if replaced := replaced_in_numpy():
        return problem(task, find("numpy_replaced", function=replaced[0]))
    try:
        with within(SECONDS):
            return _judge_kind(task, answer, name)
    except TooLong:
        return problem(task, find("too_long", seconds=SECONDS))
    except Exception as error:  # an answer may do anything, in its own methods too
        return problem(task, find("unreadable", error=type(error).__name__))


def problem(task: Task, *findings: Finding) -> Verdict:
    """The verdict on an answer that cannot be checked to the end."""
    return Verdict(task.id, "error", findings)


def _judge_kind(task: Task, answer: Any, name: str) -> Verdict:
    if answer is None or answer is ...:
        return problem(task, find("unanswered"))
    if isinstance(task, Code):
        if callable(answer):
            return judge_function(task, answer)
        return problem(task, find("function_expected", name=task.name, signature=task.signature))
    if callable(answer):
        return problem(task, find("value_expected"))
    if isinstance(task, Numbers):
        return judge_numbers(task, answer, name)
    if isinstance(task, Truth):
        return judge_truth(task, answer)
    assert isinstance(task, Choice)
    return judge_choice(task, answer)


# --- letters and truth values ------------------------------------------------------------------------


def judge_truth(task: Truth, answer: Any) -> Verdict:
    """True or False, also as 1 and 0 or yes and no."""
    claimed = read_truth(answer)
    if claimed is None:
        return problem(task, find("not_a_truth_value"))
    if claimed == task.right:
        return passed(task)
    return Verdict(task.id, "known_mistake", (find("not_so"),), (task.wrong.code,))


def judge_choice(task: Choice, answer: Any) -> Verdict:
    """A letter, the number of an option counted from 1, or its words."""
    letter, left = read_letter(answer, task.options), len(task.options) - 1
    if not letter:
        return problem(task, find("not_a_letter", last=LETTERS[left]))
    chosen = list(task.options.values())[LETTERS.index(letter)]
    if chosen is RIGHT:
        return passed(task)
    return Verdict(task.id, "known_mistake", (find("not_this_option", left=left),), (chosen.code,))


def passed(task: Task) -> Verdict:
    """The verdict on an answer with which every check agrees."""
    outputs = task.probe.outputs if isinstance(task, Code) else ()
    return Verdict(task.id, "pass", (find("all_agree"),), (), outputs, outputs)


# --- numbers ---------------------------------------------------------------------------------------


def judge_numbers(task: Numbers, answer: Any, name: str) -> Verdict:
    """A number or a list of numbers, for those that belong to the student's name."""
    question = task.posed(name)
    right = np.asarray(question.answer, float)
    given = read_numbers(answer, right.shape, whole=task.decimals == 0)
    if given is None:
        is_list = right.ndim > 0
        return problem(task, find("not_numbers", count=right.size) if is_list else find("not_a_number"))
    if agrees(given, right, task):
        return passed(task)
    wrong = {shown: np.asarray(value, float) for shown, value in question.wrong.items()}
    fitting = {shown: value for shown, value in wrong.items() if agrees(given, value, task)}
    findings = list(compare_numbers(given, right, task))
    if fitting:
        codes = tuple(shown.code for shown in _nearest(fitting, given, task))
        status = "ambiguous" if len(codes) > 1 else "known_mistake"
        return Verdict(task.id, status, tuple(findings), codes)
    is_comparable = given.shape == right.shape and bool(np.isfinite(given).all())
    if is_comparable and (rounded := find_rounding(given, right, task)):
        return Verdict(task.id, "unrecognised", (rounded,))
    if is_comparable and (likeness := find_likeness(given, right, task)):
        findings = [finding for finding in findings if finding.role != Role.OBSERVATION]
        findings.append(likeness)
    return Verdict(task.id, "unrecognised", tuple(findings))


def agrees(a: Array, b: Array, task: Numbers) -> bool:
    """Equal to the decimals that are asked for; the last one may be off by a little more than its half."""
    return a.shape == b.shape and bool((np.abs(a - b) <= task.tolerance).all())


def _nearest(fitting: Mapping[Mistake | Wrong, Array], given: Array, task: Numbers) -> list[Mistake | Wrong]:
    """Of several wrong answers those that are met to the last digit, where the answer has so many."""
    is_rounded = np.allclose(given, np.round(given, task.decimals), rtol=0, atol=1e-9)
    exact = [shown for shown, value in fitting.items() if np.allclose(given, value, rtol=1e-7, atol=1e-9)]
    return list(fitting) if is_rounded or not exact else exact


def compare_numbers(given: Array, right: Array, task: Numbers) -> Iterator[Finding]:
    """Report whether the form is correct, which numbers agree, and whether the others are too large."""
    if given.shape != right.shape:
        if right.ndim:
            yield find("wrong_count_of_numbers", found=given.size, shape=given.shape, expected=right.size)
        else:
            yield find("one_number_expected", found=given.size, shape=given.shape)
        return
    if not np.isfinite(given).all():
        yield find("not_finite_answer")
        return
    off = np.where(np.abs(given - right) > task.tolerance, given - right, 0)
    if right.ndim:
        yield from _compare_list(off)
    else:
        yield find("one_number")
        yield find("too_large" if off >= 0 else "too_small")


def _compare_list(off: Array) -> Iterator[Finding]:
    """Report which numbers of a list agree, and whether the others are too large; `off` is the difference."""
    is_larger, is_smaller, correct = bool(off.min() >= 0), bool(off.max() <= 0), off == 0
    if correct.any():
        first = int(np.argmin(correct)) + 1
        yield find("some_numbers_agree", count=off.size, agreeing=int(correct.sum()), first=first)
        places = tuple(int(k) + 1 for k in np.flatnonzero(off))
        kind = "numbers_too_large" if is_larger else "numbers_too_small" if is_smaller else "numbers_differ"
        yield find(kind, places=places)
        return
    yield find("no_number_agrees", count=off.size)
    if is_larger or is_smaller:
        yield find("all_too_large" if is_larger else "all_too_small")
    else:
        yield find("too_large_and_too_small")


def find_rounding(given: Array, right: Array, task: Numbers) -> Finding | None:
    """Whether an answer is correct, and rounded or cut off too early."""
    for kept in range(task.decimals - 1, -1, -1):
        unit = 10.0**-kept
        is_whole = np.allclose(given / unit, np.round(given / unit), rtol=0, atol=1e-9)
        is_rounded = np.abs(given - right).max() <= (0.5 + 1e-9) * unit  # a half may go either way
        is_cut = np.allclose(given, np.trunc(right / unit) * unit, rtol=0, atol=1e-9)
        if given.any() and is_whole and is_rounded:
            return find("rounded_answer", kept=kept, decimals=task.decimals)
        if given.any() and is_whole and is_cut:
            return find("truncated_answer", kept=kept, decimals=task.decimals)
    return None


MANY = 1000  # of a larger whole number a few more or less are left out by rounding
FEW = 10  # of a smaller whole number "one off" would leave nothing to think about
LIKENESS: dict[str, Callable[[Array, Array], tuple[Array, Array]]] = {  # which two are equal then
    "sign_differs": lambda a, b: (-a, b),
    "numbers_permuted": lambda a, b: (np.sort(a), np.sort(b)),
    "some_signs_differ": lambda a, b: (np.abs(a), np.abs(b)),
    "numbers_shifted": lambda a, b: (a - a.mean(), b - b.mean()),
    "numbers_scaled": lambda a, b: (a / (a @ b) * (b @ b), b),
}


def find_likeness(given: Array, right: Array, task: Numbers) -> Finding | None:
    """Recognise numbers that are off by a sign, by one, by their order, by a factor or by a sum."""
    kinds = list(LIKENESS) if right.ndim else ["sign_differs"]
    with np.errstate(all="ignore"):
        for kind in kinds:
            if agrees(*LIKENESS[kind](given, right), task):
                return find(kind)
    off, size = np.abs(given - right).max(), np.abs(right).max()
    if right.ndim or task.decimals:
        return None
    if size >= FEW and off == 1:
        return find("one_off")
    return find("size_is_right") if size >= MANY and off < 0.01 * size else None


# --- a function --------------------------------------------------------------------------------------


def judge_function(task: Code, function: Function) -> Verdict:
    """One verdict: it runs, inputs, shapes, right, variants, mistakes, relations, in this order."""
    found = detectors.run_calls(task, function)
    if all(outcome.empty for outcome in found):
        return _nothing_came_back(task, function, found)
    if not detectors.find_differing_outputs(task, found):
        return _judge_correct_numbers(task, function, found)
    if any(a.size > HUGE or a.ndim > AXES for outcome in found for a in outcome.arrays):
        return unrecognised(task, found)
    if fitting := detectors.find_explanations(task, function, found):
        return recognised(task, found, fitting)
    if detectors.is_random(task, function, found):
        return unrecognised(task, found, find("random"))
    form = detectors.find_misplaced_outputs(task, found) or detectors.find_transposed_weights(task, function)
    if form is not None:
        return unrecognised(task, found, form)
    return unrecognised(task, found, *detectors.apply_detectors(task, function, found))


def recognised(task: Code, found: Sequence[Outcome], fitting: Sequence[tuple[Mistake, ...]]) -> Verdict:
    """The verdict on an answer that shows listed mistakes, in one output or in several."""
    mistakes = {mistake.code: mistake for group in fitting for mistake in group}
    codes = tuple(mistakes)
    agreed = detectors.find_agreeing_outputs(task, found)
    is_ambiguous = len(fitting) > 1
    if not is_ambiguous and all(mistake.passes for mistake in mistakes.values()):
        return Verdict(task.id, "pass_variant", (), codes, task.probe.outputs, task.probe.outputs)
    places = first_difference(task, found)
    sizes = size_of_difference(task, found)
    remarks = (*changed_arguments(found), *nan_remark(task, found))
    findings = (*agreement(task, found), *places, *sizes, *remarks)
    status = "ambiguous" if is_ambiguous else "known_mistake"
    return Verdict(task.id, status, findings, codes, task.probe.outputs, agreed)


def unrecognised(task: Code, found: Sequence[Outcome], *observations: Finding) -> Verdict:
    """The verdict on an answer that shows no listed mistake: the findings, or the first difference."""
    agreed = detectors.find_agreeing_outputs(task, found)
    ran = any(outcome.arrays for outcome in found)
    if not ran and not observations:
        places = list(differences(task.probe, found[0], detectors.run_solution(task)[0]))
        failed = next((outcome for outcome in found if outcome.failed), found[0])
        if failed.error:
            places = [_stopped("stopped", failed)]
        return Verdict(task.id, "error", tuple(places[:1]), (), task.probe.outputs, ())
    findings = (
        *agreement(task, found), *first_difference(task, found), *observations, *changed_arguments(found)
    )  # fmt: skip
    return Verdict(task.id, "unrecognised", findings, (), task.probe.outputs, agreed)


def first_difference(task: Code, found: Sequence[Outcome]) -> list[Finding]:
    """Find the first difference: in a call that stopped, if there is one, else in the first call."""
    pairs = list(zip(found, detectors.run_solution(task), strict=True))
    failed = [pair for pair in pairs if pair[0].failed or pair[0].empty]
    every = [list(differences(task.probe, *pair)) for pair in (failed or pairs)]
    return [findings[0] for findings in every if findings][:1]


def size_of_difference(task: Code, found: Sequence[Outcome]) -> list[Finding]:
    """Measure the first difference, as a share of the largest correct number of that call."""
    sides = [
        side
        for outcome, expected in zip(found, detectors.run_solution(task), strict=True)
        for side in zip(task.probe.outputs, outcome.arrays, expected.arrays, strict=False)
    ]
    findings = []
    for name, a, b in [side for side in sides if not same(*side[1:])][:1]:
        is_comparable = a.shape == b.shape and b.dtype.kind == "f"
        off = float(np.abs(a.astype(float) - b).max(initial=0)) if is_comparable else np.nan
        share = off / max(float(np.abs(b).max(initial=0)), 1e-300)
        if np.isfinite(share):
            findings.append(Finding("off_by", name, {"share": share}))
    return findings


def changed_arguments(found: Sequence[Outcome]) -> list[Finding]:
    """The arguments that some call has changed."""
    names = tuple(sorted({name for outcome in found for name in outcome.changed}))
    return [find("argument_changed", names=names)] if names else []


def nan_remark(task: Code, found: Sequence[Outcome]) -> list[Finding]:
    """Whether some call gives NaN where a number is asked for."""
    for outcome, expected in zip(found, detectors.run_solution(task), strict=True):
        for a, b in zip(outcome.arrays, expected.arrays, strict=False):
            if a.dtype.kind == "f" and np.isnan(a).any() and np.isfinite(b.astype(float)).all():
                return [find("has_nan")]
    return []


# --- correct numbers, and what else is asked -----------------------------------------------------------


def _judge_correct_numbers(task: Code, function: Function, found: Sequence[Outcome]) -> Verdict:
    """The numbers are correct. Whose are they? What about changed arguments, large logits, far positions?"""
    outputs = task.probe.outputs
    name = task.ours or task.name
    if task.ours is not None and returned_by_npformer(name, function, task.probe):
        findings: tuple[Finding, ...] = (find("is_npformers", function=name),)
        return Verdict(task.id, "known_mistake", findings, ("NPFORMERS-OWN",), outputs, ())
    changed = changed_arguments(found)
    if changed:
        findings = (find("numbers_are_correct"), *changed)
        return Verdict(task.id, "known_mistake", findings, ("MUTATES-INPUT",), outputs, ())
    for mistake, given in task.hard.items():
        verdict = _judge_hard_call(task, function, mistake, given)
        if verdict is not None:
            return verdict
    return passed(task)


NO_NUMBER = ("OverflowError", "ZeroDivisionError", "ValueError")  # of `math`, where NumPy gives inf or NaN


def _judge_hard_call(
    task: Code, function: Function, mistake: Mistake, given: tuple[Any, ...]
) -> Verdict | None:
    """The verdict on a call at an edge of what the task promises; None where the answer is correct there."""
    answer, expected = run(function, given, task.probe), run(task.right, given, task.probe)
    if mistake.kind == "precision":
        is_correct = same_outcome(answer, expected)
    else:
        is_correct = same_outcome(answer, expected, _roughness(answer))
    if is_correct:
        return None
    outputs = task.probe.outputs
    place = tuple(differences(task.probe, answer, expected))[:1]
    stopped = answer.error is not None and answer.error.type_name not in NO_NUMBER
    is_finite = bool(answer.arrays) and all(bool(np.isfinite(a).all()) for a in answer.arrays)
    is_near = same_outcome(answer, expected, mistake.tolerance) if mistake.kind == "precision" else False
    if mistake.kind == "precision" and is_near:
        return Verdict(task.id, "pass_variant", (), (mistake.code,), outputs, outputs)
    fits = mistake.kind == "wrong" or (mistake.kind == "robustness" and not is_finite)
    if fits and not stopped:
        return Verdict(task.id, "known_mistake", (), (mistake.code,), outputs, ())
    findings = [find("ordinary_sizes_agree"), *place]
    if mistake.kind == "robustness" and not stopped:
        findings.append(find("finite_but_wrong_far_out"))
    return Verdict(task.id, "unrecognised", tuple(findings), (), outputs, ())


def _roughness(answer: Outcome) -> float:
    """The tolerance for scores near 1000, where float32 has few digits left."""
    has_few_digits = any(a.dtype.kind == "f" and a.dtype.itemsize < 8 for a in answer.arrays)
    return ROUGH if has_few_digits else 1e-4


# --- nothing -------------------------------------------------------------------------------------------


def _nothing_came_back(task: Code, function: Function, found: Sequence[Outcome]) -> Verdict:
    """The stub as it was handed out, or a function without a return."""
    if is_stub(function) or any(outcome.not_implemented for outcome in found):
        return problem(task, find("unanswered"))
    return problem(task, find("returned_none"))


def is_stub(function: Function) -> bool:
    """Whether a body does nothing at all, as `...` and `pass`."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_names or len(code.co_code) > 8:
        return False
    return all(part is None or part is ... or isinstance(part, str) for part in code.co_consts)


# --- what is correct, and where it ends ----------------------------------------------------------------


def agreement(task: Code, found: Sequence[Outcome]) -> list[Finding]:
    """Report which outputs agree, or else whether the shape is correct and which rows or columns agree."""
    pairs = [(a, b) for a, b in zip(found, detectors.run_solution(task), strict=True) if a.arrays]
    if not pairs:
        return []
    outputs = task.probe.outputs
    verdicts = [agreeing(a, b) for a, b in pairs]
    agree = tuple(name for name, *each in zip(outputs, *verdicts, strict=True) if all(each))
    if len(outputs) > 1 and agree:
        differ = tuple(name for name in outputs if name not in agree)
        if differ:
            return [find("some_outputs_agree", agree=agree, differ=differ)]
        return [find("outputs_agree", agree=agree)]
    sides = [side for a, b in pairs for side in zip(a.arrays, b.arrays, strict=True)]
    if any(a.shape != b.shape for a, b in sides):
        return [find("runs")]
    if len(pairs) < len(found):
        shape = find("shape_agrees_where_it_runs")
    else:
        shape = find("shape_agrees") if len(outputs) == 1 else find("shapes_agree")
    is_wrong = not all(same(a, b) for a, b in sides)
    if len(outputs) == 1 and is_wrong:
        return [shape, *agreeing_lines(task.probe, sides)]
    return [shape]


def agreeing_lines(probe: Probe, sides: Sequence[tuple[Array, Array]]) -> list[Finding]:
    """Entries of an axis that agree in every call: columns, rows, or one head."""
    ndim = sides[0][1].ndim
    for axis in reversed(range(ndim)):
        lengths = [b.shape[axis] for _, b in sides]
        agree = tuple(
            i for i in range(min(lengths)) if all(close(a.take(i, axis), b.take(i, axis)) for a, b in sides)
        )
        if 0 < len(agree) < max(lengths):
            if axis == ndim - 1 and ndim > 1:
                return [find("columns_agree", indices=agree)]
            if ndim == 1:
                return [find("numbers_agree", indices=agree)]
            if axis == ndim - 2:
                return [find("rows_agree", indices=agree)]
            names = probe.axis_names.get(probe.outputs[0], [])
            name = names[axis] if len(names) == ndim else "row"
            return [find("entries_agree", axis=name, indices=agree)]
    return []


def differences(probe: Probe, found: Outcome, expected: Outcome) -> Iterator[Finding]:
    """How an answer differs from the correct one in one call, output by output."""
    if found.unreadable is not None:
        yield found.unreadable
    elif found.error is not None:
        yield _stopped("stopped_in_one_check", found)
    elif found.empty:
        yield find("one_call_returned_none")
    else:
        for name, a, b in zip(probe.outputs, found.arrays, expected.arrays, strict=True):
            if not same(a, b):
                finding = shape_difference(a.shape, b.shape) or entry_difference(a, b)
                yield Finding(finding.kind, name, finding.parameters)


def _stopped(kind: str, outcome: Outcome) -> Finding:
    error = outcome.error
    assert error is not None
    return find(
        kind, error=error.type_name, message=error.message, line=error.line, function=error.function,
        is_remote=error.is_remote,
    )  # fmt: skip


def shape_difference(found: tuple[int, ...], right: tuple[int, ...]) -> Finding | None:
    """Report the axes that are longer or shorter than they should be, or their expected number."""
    if found == right:
        return None
    if len(found) != len(right):
        return find("wrong_number_of_axes", found=found, expected=len(right))
    sides = list(enumerate(zip(found, right, strict=True)))
    longer = tuple(axis for axis, (a, b) in sides if a > b)
    shorter = tuple(axis for axis, (a, b) in sides if a < b)
    return find("wrong_shape", found=found, longer=longer, shorter=shorter)


def entry_difference(a: Array, b: Array) -> Finding:
    """Where an output differs first, and in how many entries."""
    if b.ndim == 0:
        return find("differs")
    wrong = ~(np.abs(a.astype(float) - b.astype(float)) <= allowed(b.astype(float), a.dtype))
    index = tuple(np.argwhere(wrong)[0].tolist())
    has_nan = bool(a.dtype.kind == "f" and np.isnan(a[wrong]).any())
    return find("differs_at", index=index, differing=int(wrong.sum()), entries=wrong.size, has_nan=has_nan)
