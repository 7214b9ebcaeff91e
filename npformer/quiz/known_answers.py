"""The numbers to which the known mistakes of an exercise lead, as intervals that do not overlap."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.exercises.checker import assess_numbers, compare_numbers
from npformer.exercises.feedback import title_of, write_feedback
from npformer.exercises.task import Mistake, Numbers, PosedQuestion, Wrong
from npformer.exercises.verdict import Finding, Verdict

LEVEL = 2  # the level of the feedback: the observation, the likely cause and a question
# A student's answer counts as the result of a mistake if it differs from this result by at most 0.9
# tolerances of the exercise. This is more than half a unit of the last decimal, so the rounded result counts,
# too. The interval of the correct answer extends 1 tolerance to each side. Groups of wrong answers are more
# than 2 tolerances from each other and from the correct answer. So no two intervals overlap.
WRONG_SHARE = 0.9
EXACT = 1e-6  # the tolerance for an answer that was rounded to too few decimals
MORE_DECIMALS = 3  # the number of decimals after those that the exercise asks for
WHOLE_DECIMALS = 3  # used if the exercise asks for a whole number, because wrong answers may have decimals
MOST_CODES = 3  # If more mistakes lead to the same number of a list, the feedback does not list them.
ROUNDED = {"rounded_answer", "truncated_answer"}  # kinds of findings
PATTERNS = {*ROUNDED, "sign_differs", "one_off", "size_is_right"}
ALONE = "Judged by number {} alone: {}"
MANY = "Several known mistakes lead to this number. {}"

Group = dict[Mistake | Wrong, Array]  # {mistake: its answer}; the answers are too close to be distinguished


class NumberAnswer(NamedTuple):
    """A number that an LMS recognises, with its feedback.

    Attributes
    ----------
    value, tolerance : float
        Every number that differs from the value by at most the tolerance is recognised.
    is_correct : bool
    codes : tuple of str
        The codes of the mistakes that lead to this number. A wrong number without codes shows a pattern, such
        as a wrong sign.
    feedback : str
    """

    value: float
    tolerance: float
    is_correct: bool
    codes: tuple[str, ...]
    feedback: str


class ListAnswer(NamedTuple):
    """A list of numbers that an LMS recognises if it compares the whole list, with its feedback.

    Attributes
    ----------
    lists : tuple of tuples of float
        An answer is recognised if each of its numbers differs by at most the tolerance from the corresponding
        number in one of these lists.
    tolerance, is_correct, codes, feedback
        As in `NumberAnswer`.
    """

    lists: tuple[tuple[float, ...], ...]
    tolerance: float
    is_correct: bool
    codes: tuple[str, ...]
    feedback: str


def group_answers(task: Numbers, answers: Mapping[Mistake | Wrong, Array]) -> list[Group]:
    """Group the known wrong answers so that a student's answer cannot fit two groups.

    Parameters
    ----------
    task : Numbers
    answers : mapping
        The answer to which each mistake leads.

    Returns
    -------
    groups : list of dict
    """
    groups: list[Group] = []
    for wrong, value in answers.items():
        merged: Group = {}
        others = []
        for group in groups:
            is_near = any(task.are_equal(value, other) for other in group.values())
            if is_near:
                merged |= group
            else:
                others.append(group)
        merged[wrong] = value
        groups = [*others, merged]
    return groups


def find_wrong_answers(question: PosedQuestion) -> dict[Mistake | Wrong, Array]:
    """Return the answer to which each mistake leads, as an array."""
    return {wrong: np.asarray(value, float) for wrong, value in question.wrong.items()}


def write_answers(task: Numbers, name: str) -> tuple[NumberAnswer, ...]:
    """Return the recognised answers to an exercise whose answer is one number, the correct one first."""
    question = task.posed(name)
    right = np.asarray(question.answer, float)
    wrong_numbers = {
        wrong: value for wrong, value in find_wrong_answers(question).items() if value.shape == right.shape
    }
    answers = [_make_correct_answer(task, right, write_correct_feedback())]
    for group in group_answers(task, wrong_numbers):
        codes = list_codes(group)
        feedback = write_wrong_feedback(task, codes, compare_numbers(_find_center(group), right, task))
        answers.append(_make_wrong_answer(task, group, feedback))
    for number in _iter_likely_numbers(task, float(right)):
        is_near = any(task.are_equal(np.asarray(number), np.asarray(known.value)) for known in answers)
        if not is_near:
            answers += _recognise_pattern(task, name, number)
    return tuple(answers)


def write_entry_answers(task: Numbers, name: str, k: int) -> tuple[NumberAnswer, ...]:
    """Return the recognised answers for number k of a list, counted from 0, the correct one first.

    An LMS compares each number of a list separately, so the feedback is about this number alone. A mistake
    that does not change this number is left out. So is a mistake that leads to a list of a different length.
    """
    question = task.posed(name)
    right = np.asarray(question.answer, float)
    wrong_numbers = {}
    for wrong, value in find_wrong_answers(question).items():
        if value.shape == right.shape and not task.are_equal(value[k], right[k]):
            wrong_numbers[wrong] = value[k]
    answers = [_make_correct_answer(task, right[k], "")]
    for group in group_answers(task, wrong_numbers):
        codes = list_codes(group)
        feedback = write_wrong_feedback(task, codes)
        if len(codes) > MOST_CODES:
            feedback = MANY.format(task.question)
        answers.append(_make_wrong_answer(task, group, ALONE.format(k + 1, feedback)))
    return tuple(answers)


def write_list_answers(task: Numbers, name: str) -> tuple[ListAnswer, ...]:
    """Return the recognised answers to an exercise whose answer is a list, the correct one first.

    A mistake that leads to a list of a different length is left out.
    """
    question = task.posed(name)
    right = np.asarray(question.answer, float)
    wrong_lists = {
        wrong: value for wrong, value in find_wrong_answers(question).items() if value.shape == right.shape
    }
    lists: tuple[tuple[float, ...], ...] = (_shorten_list(task, right),)
    answers = [ListAnswer(lists, task.tolerance, True, (), write_correct_feedback())]
    for group in group_answers(task, wrong_lists):
        codes = list_codes(group)
        first = next(iter(group.values()))
        feedback = write_wrong_feedback(task, codes, compare_numbers(first, right, task))
        lists = tuple(_shorten_list(task, value) for value in group.values())
        answers.append(ListAnswer(lists, WRONG_SHARE * task.tolerance, False, codes, feedback))
    return tuple(answers)


def _shorten_list(task: Numbers, numbers: Array) -> tuple[float, ...]:
    """Round each number of a list, but with more decimals than the exercise asks for."""
    return tuple(_shorten(task, float(number)) for number in numbers)


def _find_center(group: Group) -> Array:
    """Return the middle of the numbers in a group."""
    numbers = list(group.values())
    return np.asarray((min(numbers) + max(numbers)) / 2)


def _make_correct_answer(task: Numbers, right: Array, feedback: str) -> NumberAnswer:
    """Make the recognised answer for the correct number."""
    return NumberAnswer(_shorten(task, float(right)), task.tolerance, True, (), feedback)


def _make_wrong_answer(task: Numbers, group: Group, feedback: str) -> NumberAnswer:
    """Make a recognised answer whose interval contains the numbers of a group with their tolerances."""
    numbers = [float(number) for number in group.values()]
    tolerance = WRONG_SHARE * task.tolerance + (max(numbers) - min(numbers)) / 2
    value = _shorten(task, float(_find_center(group)))
    return NumberAnswer(value, tolerance, False, list_codes(group), feedback)


def _shorten(task: Numbers, number: float) -> float:
    """Round a number, but with more decimals than the exercise asks for."""
    return round(number, MORE_DECIMALS + (task.decimals or WHOLE_DECIMALS)) + 0.0


# --- patterns --------------------------------------------------------------------------------------


def _iter_likely_numbers(task: Numbers, right: float) -> Iterator[float]:
    """Yield the correct number with a wrong sign or too few decimals, or the neighbours of a whole number."""
    yield -right
    for kept in reversed(range(task.decimals)):
        yield round(right, kept)
        yield float(np.trunc(right * 10**kept)) / 10**kept
    if not task.decimals:
        yield right + 1
        yield right - 1


def _recognise_pattern(task: Numbers, name: str, number: float) -> Sequence[NumberAnswer]:
    """Return a recognised answer if the checker finds a pattern in a wrong number, and otherwise nothing."""
    verdict = assess_numbers(task, number, name)
    kinds = {finding.kind for finding in verdict.findings}
    if not kinds & PATTERNS:
        return ()
    tolerance = WRONG_SHARE * task.tolerance
    if kinds & ROUNDED:
        tolerance = EXACT
    return (NumberAnswer(_shorten(task, number), tolerance, False, (), join_feedback(verdict)),)


def list_codes(group: Iterable[Mistake | Wrong]) -> tuple[str, ...]:
    """Return the codes of the mistakes in a group."""
    return tuple(wrong.code for wrong in group)


# --- feedback --------------------------------------------------------------------------------------


def write_correct_feedback() -> str:
    """Return the feedback on a correct answer."""
    return f"{title_of('pass')}."


def write_wrong_feedback(task: Numbers, codes: tuple[str, ...], findings: Iterable[Finding] = ()) -> str:
    """Return the feedback on an answer to which these mistakes lead, or which no mistake explains."""
    status = ("unrecognised", "known_mistake", "ambiguous")[min(len(codes), 2)]
    return join_feedback(Verdict(task.id, status, tuple(findings), codes))


def join_feedback(verdict: Verdict) -> str:
    """Return the sentences of the feedback on a verdict as one text."""
    text = write_feedback(verdict, LEVEL)
    return " ".join(part for part in (text.evidence, text.hint, text.question) if part)


def format_answer(task: Numbers, answer: Array) -> str:
    """Return a number or a list of numbers as text, with the decimals that the exercise asks for.

    A whole number has no decimal point.
    """
    if answer.ndim:
        return f"[{', '.join(format_answer(task, part) for part in answer)}]"
    text = f"{float(answer) + 0.0:.{task.decimals or WHOLE_DECIMALS}f}"
    if not task.decimals:
        text = text.rstrip("0").rstrip(".")
    if float(text) == 0:
        text = text.removeprefix("-")
    return text


def format_number(number: float) -> str:
    """Write a number for an LMS, without an exponent.

    >>> format_number(804160.0), format_number(0.00054)
    ('804160', '0.00054')
    """
    return np.format_float_positional(round(number, 9), trim="-")
