"""The lesson plan and the wrong guesses to expect, read from plan.toml and guesses.toml."""

import tomllib
from importlib.resources import files
from typing import Any, NamedTuple


class Question(NamedTuple):
    """A question that students often ask, as Markdown."""

    question: str
    answer: str


class Plan(NamedTuple):
    """The part of the lesson plan that belongs to one lesson."""

    minutes: dict[str, int]  # {section: minutes}
    break_after: str = ""  # the section before the break
    questions: tuple[Question, ...] = ()


class Guess(NamedTuple):
    """A wrong guess at a prediction, as Markdown."""

    guess: str
    shows: str  # the misconception behind the guess
    ask: str  # a question that helps the student find the mistake


def read_plan(lesson: int) -> Plan:
    """Return the plan of a lesson. If plan.toml does not have the lesson, its plan is empty.

    >>> read_plan(1).minutes["1.1"]
    7
    """
    entry = _read_toml("plan.toml").get(str(lesson))
    if entry is None:
        return Plan({})
    return Plan(entry["minutes"], entry["break_after"], tuple(Question(**q) for q in entry["questions"]))


def read_guesses() -> dict[str, list[Guess]]:
    """Return the likely wrong guesses for each prediction: {"1.1a": [Guess(...), Guess(...)], …}."""
    entries = _read_toml("guesses.toml")
    return {prediction: [Guess(**guess) for guess in guesses] for prediction, guesses in entries.items()}


def _read_toml(name: str) -> dict[str, Any]:
    return tomllib.loads(files("npformer.lessons").joinpath(name).read_text(encoding="utf-8"))
