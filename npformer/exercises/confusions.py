"""What is said about a number that shows a confusion: words of the known mistakes, or of confusions.toml."""

import tomllib
from functools import cache
from importlib.resources import files

from npformer.exercises.bank import Exercise
from npformer.exercises.mistakes import words


@cache
def confusions() -> dict[str, str]:
    """An observation for each confusion that is no known mistake of a function."""
    text = files("npformer.exercises").joinpath("confusions.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def said_of(code: str, exercise: Exercise) -> tuple[str, str, str]:
    """(observation, cause, question) for a number that shows this mistake or confusion."""
    if code in words():
        return "", words()[code].cause, words()[code].question
    return confusions()[code], "", exercise.question
