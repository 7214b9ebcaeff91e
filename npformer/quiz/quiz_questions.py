"""Make the questions of a quiz from exercises: several variants of each exercise, with different numbers."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from npformer.exercises.answer_parsing import LETTERS
from npformer.exercises.bank import find_exercise
from npformer.exercises.checker import assess_choice, assess_truth
from npformer.exercises.feedback import write_reading
from npformer.exercises.task import Choice, Code, Numbers, Task, Truth
from npformer.exercises.verdict import Verdict
from npformer.quiz.known_answers import (
    ListAnswer,
    NumberAnswer,
    find_wrong_answers,
    format_answer,
    group_answers,
    join_feedback,
    list_codes,
    write_answers,
    write_correct_feedback,
    write_entry_answers,
    write_list_answers,
    write_wrong_feedback,
)

MOST_WRONG = 5  # the largest number of wrong options in a choice between numbers
TRIES = 20  # The search for different variants ends after this number of names per variant.


class Option(NamedTuple):
    """One option of a choice, with the codes of the mistakes that lead to it, and its feedback."""

    text: str
    is_correct: bool
    codes: tuple[str, ...]
    feedback: str


class QuizQuestion(NamedTuple):
    """One question of a quiz.

    Attributes
    ----------
    id : str
        The id of the exercise with the name that selects its numbers, as `npformer show` takes it.
    kind : str
        "choice", "truth", "number" or "vector", as the field ``kind`` of an exercise.
    text, answer_form, hint, reading : str
        The text of the question, the form of the answer, the hint, and what to read.
    options : tuple of Option
        The options of a choice. For a number or a list of numbers, these are the correct answer and the
        answers to which some mistakes lead.
    numbers : tuple of tuples of NumberAnswer
        The recognised answers for each number of the answer: one tuple for a number, none for a choice.
    lists : tuple of ListAnswer
        The recognised answers for an LMS that compares whole lists, if the answer is a list of numbers.
    other : str
        The feedback on a number that is not recognised.
    """

    id: str
    kind: str
    text: str
    answer_form: str
    hint: str
    reading: str
    options: tuple[Option, ...]
    numbers: tuple[tuple[NumberAnswer, ...], ...] = ()
    lists: tuple[ListAnswer, ...] = ()
    other: str = ""


class QuizCategory(NamedTuple):
    """The variants of one exercise. A quiz asks each student one of them."""

    exercise_id: str
    points: float
    questions: tuple[QuizQuestion, ...]


def name_variants(seed: str, variants: int) -> list[str]:
    """Return the names that select the numbers of the variants: "quiz 1", "quiz 2", … for the seed "quiz".

    There are more names than variants, because two names may give the same numbers.
    """
    return [f"{seed} {i}" for i in range(1, TRIES * variants + 1)]


def make_categories(points: Mapping[str, float], names: Iterable[str], variants: int) -> list[QuizCategory]:
    """Make the questions of a quiz.

    Parameters
    ----------
    points : mapping
        The points for each exercise, by its id.
    names : iterable of str
        The names that select the numbers.
    variants : int
        The largest number of variants of an exercise. An exercise without numbers has one variant.

    Returns
    -------
    categories : list of QuizCategory

    Raises
    ------
    ValueError
        If an exercise does not exist or asks for a function, or if `variants` is below 1.
    """
    if variants < 1:
        raise ValueError(f"quiz: --variants is {variants}; expected a whole number of at least 1")
    categories = []
    for exercise_id, worth in points.items():
        task, _ = find_exercise(exercise_id)
        if isinstance(task, Code):
            raise ValueError(
                f"quiz: {exercise_id} asks for a function, which a quiz cannot check. Leave it out here; "
                "npformer assignment writes it into a notebook, and npformer grade checks it"
            )
        questions = tuple(_draw_questions(task, names, variants))
        categories.append(QuizCategory(exercise_id, worth, questions))
    return categories


def _draw_questions(task: Task, names: Iterable[str], variants: int) -> Iterator[QuizQuestion]:
    """Yield variants of an exercise, no two of which have the same text."""
    if not isinstance(task, Numbers):
        yield _make_option_question(task)
        return
    texts: set[str] = set()
    for name in names:
        if len(texts) == variants:
            return
        text = " ".join(task.lines(name))
        if text not in texts:
            yield _make_number_question(task, name, len(texts))
            texts.add(text)


def _make_option_question(task: Task) -> QuizQuestion:
    """Make the question from a choice, or from a statement that is true or false."""
    if isinstance(task, Truth):
        options = [_make_option(str(value), assess_truth(task, value)) for value in (True, False)]
    else:
        assert isinstance(task, Choice)
        letters = zip(LETTERS, task.options, strict=False)
        options = [_make_option(text, assess_choice(task, letter)) for letter, text in letters]
    reading = write_reading(Verdict(task.id, "unrecognised"))
    return QuizQuestion(task.id, task.kind, task.task, "", task.hint, reading, tuple(options))


def _make_option(text: str, verdict: Verdict) -> Option:
    """Make an option with the feedback that the checker gives on it."""
    feedback = join_feedback(verdict)
    if verdict.passes:
        feedback = write_correct_feedback()
    return Option(text, verdict.passes, verdict.codes, feedback)


def _make_number_question(task: Numbers, name: str, variant: int) -> QuizQuestion:
    """Make the question from an exercise whose answer is a number or a list, for one name."""
    lists: tuple[ListAnswer, ...] = ()
    if task.kind == "vector":
        lists = write_list_answers(task, name)
        size = np.size(task.posed(name).answer)
        other = task.question
        numbers = tuple(write_entry_answers(task, name, k) for k in range(size))
    else:
        other = write_wrong_feedback(task, ())
        numbers = (write_answers(task, name),)
    return QuizQuestion(
        id=f"{task.id}@{name}",
        kind=task.kind,
        text=" ".join(task.lines(name)),
        answer_form=task.answer_form,
        hint=task.hint,
        reading=write_reading(Verdict(task.id, "unrecognised")),
        options=tuple(_choose_options(task, name, variant)),
        numbers=numbers,
        lists=lists,
        other=other,
    )


def _choose_options(task: Numbers, name: str, variant: int) -> list[Option]:
    """Return the correct answer and the answers of some mistakes as options, sorted by their values.

    If an exercise has more than MOST_WRONG groups of known mistakes, the next variant uses the next groups.
    """
    posed = task.posed(name)
    right = np.asarray(posed.answer, float)
    groups = group_answers(task, find_wrong_answers(posed))
    first = MOST_WRONG * variant
    chosen = [groups[(first + j) % len(groups)] for j in range(min(MOST_WRONG, len(groups)))]
    correct = Option(format_answer(task, right), True, (), write_correct_feedback())
    options = {tuple(right.ravel()): correct}
    for group in chosen:
        value = next(iter(group.values()))
        codes = list_codes(group)
        option = Option(format_answer(task, value), False, codes, write_wrong_feedback(task, codes))
        options[tuple(value.ravel())] = option
    return [options[key] for key in sorted(options)]
