"""Print the checker's reply at each level to every coding, plain answer, letter, truth value and number.

    uv run python tests/exercises/replies.py > FILE

Run this before a change and after it. Then `diff` shows every reply that has changed.
"""

import contextlib
import io
import warnings

from codings import NUMBERS, check, list_codings, plain_answers

from npformer.exercises import list_exercises, show

NAMES = ("", "@Ada", "@Bo 3", "@李")
SIMPLE_ANSWERS = (*"abcdef", True, False)


def list_answers():
    """Yield (title, exercise id, answer) for every answer."""
    for coding in list_codings():
        yield coding.place, coding.exercise, coding.function
    for line, exercise, _, _, answer in plain_answers():
        yield line, exercise, answer
    for task in list_exercises():
        for answer in SIMPLE_ANSWERS:
            yield f"{task.id} {answer}", task.id, answer
    for task in NUMBERS:
        for name in NAMES:
            yield from list_numbers(task, name)


def list_numbers(task, name):
    """Yield the correct answer and the known wrong answers to a task with the numbers of one student."""
    exercise = task.id + name
    question = task.posed(name.removeprefix("@"))
    for value in (question.answer, *question.wrong.values()):
        yield f"{show(exercise)} {value}", exercise, value


def print_replies():
    """Print the replies to all answers."""
    for title, exercise, answer in list_answers():
        for level in (1, 2, 3):
            with contextlib.redirect_stdout(io.StringIO()):  # discard what the answer itself prints
                result = check(exercise, answer, level=level)
            print(title, level, (result.status, result.codes, result.evidence, result.hint, result.question))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print_replies()
