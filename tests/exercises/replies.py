"""Print what the checker says at each level to every coding, and to letters and numbers near the right ones.

    uv run python tests/exercises/replies.py > FILE

before a change and after it; `diff` shows each reply that became another one.
"""

import contextlib
import io
import warnings

import numpy as np
from codings import codings

from npformer.exercises import check, list_exercises, show

NAMES = ("", "@Ada", "@Bo 3", "@李")
NEAR = (0.0, 1.0, -1.0, 17.3, 6.9, "half", [1, 2], None)


def plain_answers(exercise):
    """(asked, answer) of what is no code: each letter, the right number, known wrong ones, some near it."""
    if exercise.kind in ("choice", "truth"):
        letters = "abcdef"[: len(exercise.options)] if exercise.kind == "choice" else (True, False)
        yield from ((exercise.id, answer) for answer in (*letters, "maybe", None))
    elif exercise.kind != "code":
        for name in NAMES:
            question = exercise.posed(name[1:])
            right = np.asarray(question.answer, float)
            near = (right, -right, right + 1, 2 * right, np.round(right, 1), right[..., None][::-1])
            for value in (*question.wrong.values(), *near, *NEAR):
                yield exercise.id + name, value if value is None else np.asarray(value).tolist()


def told():
    """(what was answered, exercise, answer) of everything."""
    yield from ((coding.place, coding.exercise, coding.function) for coding in codings())
    for exercise in list_exercises():
        print(*(show(exercise.id + name) for name in NAMES), sep="\n")
        yield from ((f"{asked} {answer!r}", asked, answer) for asked, answer in plain_answers(exercise))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for place, exercise, answer in told():
        for level in (1, 2, 3):
            with contextlib.redirect_stdout(io.StringIO()):  # what the answer itself prints is lost
                result = tuple(check(exercise, answer, level=level))
            print(place, level, result)
