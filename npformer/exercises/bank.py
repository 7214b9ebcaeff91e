"""The bank of exercises: bank.toml as records, in order of difficulty; and what a session has passed."""

import tomllib
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from itertools import chain
from textwrap import wrap
from typing import NamedTuple

LINE = 80  # letters in a line: a notebook on a stage shows no more, and breaks longer ones within words
KINDS = ("choice", "truth", "number", "vector", "code")
TOPICS = (
    "order",
    "sinusoids",
    "addition",
    "ffn",
    "sharing",
    "cost",
    "attention",
    "norm",
    "block",
    "backward",
    "decoder",
    "search",
    "gpu",
    "modern",
)


class Option(NamedTuple):
    """One answer of a choice: right, or the confusion it stands for and what to say about it."""

    text: str = ""  # none for True and False
    confusion: str = ""
    says: str = ""


class Exercise(NamedTuple):
    """One exercise of the bank; `str` is its task and how to answer."""

    id: str
    kind: str
    topic: str
    level: int  # of difficulty, 1 to 5
    task: str
    hint: str
    read: str  # where to read on
    question: str  # asked when the answer is wrong and nothing more is known
    teach: str  # the lesson's section
    options: tuple[Option, ...] = ()
    right: str = ""  # a letter, or "true" or "false"
    recipe: str = ""  # the function in `computed` that knows the number or the vector
    signature: str = ""

    def __str__(self) -> str:
        lettered = [
            f"  {letter}) {option.text}"
            for letter, option in zip("abcdef", self.options, strict=False)
            if option.text
        ]
        ways = {
            "choice": "Answer with a letter.",
            "truth": "Answer with True or False.",
            "number": "Answer with a number.",
            "vector": "Answer with a list of numbers.",
            "code": f"Answer with a function {self.name}({self.signature}); it changes no argument.",
        }
        head = f"{self.id}  ({self.topic}, level {self.level})"
        below = [wrap(part, LINE, break_on_hyphens=False) for part in (self.task, *lettered, ways[self.kind])]
        return "\n".join([head, *chain.from_iterable(below)])

    @property
    def name(self) -> str:
        """The exercise's id as a name in Python: pe.table is pe_table."""
        return self.id.replace(".", "_")


@cache
def bank() -> dict[str, Exercise]:
    """Every exercise by its id, the easy ones first."""
    text = files("npformer.exercises").joinpath("bank.toml").read_text(encoding="utf-8")
    entries = [_exercise(exercise_id, entry) for exercise_id, entry in tomllib.loads(text).items()]
    return {exercise.id: exercise for exercise in sorted(entries, key=lambda exercise: exercise.level)}


def _exercise(exercise_id: str, entry: dict[str, object]) -> Exercise:
    options = entry.pop("options", [])
    assert isinstance(options, list)
    return Exercise(id=exercise_id, **entry, options=tuple(Option(**o) for o in options))  # type: ignore[arg-type]


@cache
def confusions() -> dict[str, str]:
    """An observation for each confusion that is no known mistake of a function."""
    text = files("npformer.exercises").joinpath("confusions.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


_passed: set[str] = set()  # the one thing here that remembers


def record(exercise_id: str, passed: bool) -> None:
    """Remember an exercise that passed; a later wrong answer does not take it back."""
    if passed:
        _passed.add(exercise_id)


def progress() -> str:
    """How many exercises passed in this session of Python.

    >>> progress().endswith(f"of {len(bank())}")
    True
    """
    return f"{len(_passed)} of {len(bank())}"


def find(exercise_id: str) -> tuple[Exercise, str]:
    """The exercise and the student's name of an id such as "pe.entry" or "pe.entry@Ada".

    Raises TypeError unless the id is text, ValueError for one that the bank does not have.
    """
    if not isinstance(exercise_id, str):
        raise TypeError(f"exercise_id is {exercise_id!r}; expected text such as 'pe.table'")
    plain, _, name = exercise_id.partition("@")
    if plain not in bank():
        near = "".join(f"did you mean {other!r}? " for other in get_close_matches(plain, bank(), 1))
        shown = "list_exercises() shows all, in a terminal npformer exercises"
        raise ValueError(f"there is no exercise {plain!r}; {near}{shown}")
    return bank()[plain], name.strip()
