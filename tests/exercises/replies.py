"""Print what the checker says at each level to every coding, every letter and every number that is listed.

    uv run python tests/exercises/replies.py > FILE

before a change and after it; `diff` shows each reply that became another one.
"""

import contextlib
import io
import warnings

from codings import NUMBERS, check, codings, plain_answers

from npformer.exercises import list_exercises, show

NAMES = ("", "@Ada", "@Bo 3", "@李")


def told():
    """(what was answered, exercise, answer) of everything."""
    yield from ((coding.place, coding.exercise, coding.function) for coding in codings())
    yield from ((line, exercise, answer) for line, exercise, _, _, answer in plain_answers())
    for exercise in list_exercises():
        yield from ((f"{exercise.id} {answer}", exercise.id, answer) for answer in (*"abcdef", True, False))
    for exercise, name in ((exercise, name) for exercise in NUMBERS for name in NAMES):
        question = exercise.posed(name[1:])
        for value in (question.answer, *question.wrong.values()):
            yield f"{show(exercise.id + name)} {value}", exercise.id + name, value


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for place, exercise, answer in told():
        for level in (1, 2, 3):
            with contextlib.redirect_stdout(io.StringIO()):  # what the answer itself prints is lost
                result = check(exercise, answer, level=level)
            print(place, level, (result.status, result.codes, result.evidence, result.hint, result.question))
