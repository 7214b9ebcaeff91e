"""What is asked, in questions.md, and what is said of mistakes, in mistakes.md; how both are read."""

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

from npformer.exercises.probe import Arguments, Draws, Probe, draw_from_axes
from npformer.exercises.task import (
    RIGHT,
    Choice,
    Code,
    Draw,
    Mistake,
    Numbers,
    Place,
    Posed,
    Truth,
    Wrong,
    compiled,
    instead,
)

DRAWN, FRESH = 2, 2  # calls that are drawn to check an answer, and to confirm what is found
QUESTION = re.compile(
    r"""^## (?P<id>\S+) \((?P<topic>.+), level (?P<level>\d)\)

(?P<task>.+)

(?P<answers>(?:- .+\n(?:  .+\n)?)*)\n?Hint: (?P<hint>.+)
Ask: (?P<question>.+)""",
    re.MULTILINE,
)
ANSWER = re.compile(r"^- (?:\[([x ])\] (.+)\n?)?(?: *([A-Z0-9-]+): (.+))?", re.MULTILINE)
MISTAKE = re.compile(
    r"""^## (?P<code>\S+)(?: \((?P<kind>\w+)(?:, within (?P<tolerance>\S+))?\))?
(?P<sees>.+)
(?P<sees_in>(?:In \S+: .+\n)*)(?P<cause>.+)
(?P<question>.+)""",
    re.MULTILINE,
)


def text_of(name: str) -> str:
    """One of the two files."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def found_in(text: str, pattern: re.Pattern[str]) -> Iterator[dict[str, Any]]:
    """What is written in each place of a text, by the pattern's names; and the place."""
    for section in text.split("\n# ")[1:]:
        teach, read = section[: section.index(".\n\n## ")].split("\n\nRead ")
        for written in pattern.finditer(section):
            given = {name: words for name, words in written.groupdict().items() if words is not None}
            yield given | {"place": Place(read, teach)}


# --- what is said ------------------------------------------------------------------------------------


def mistakes_of(text: str) -> dict[str, Mistake]:
    """The mistakes of a text by their codes."""
    found = {}
    for words in found_in(text, MISTAKE):
        words["sees_in"] = dict(re.findall(r"In (\S+): (.+)", words["sees_in"]))
        if "tolerance" in words:
            words["tolerance"] = float(words["tolerance"])
        found[words["code"]] = Mistake(**words)
    return found


@cache
def words() -> dict[str, Mistake]:
    """Every mistake by its code."""
    return mistakes_of(text_of("mistakes.md"))


# --- what is asked -----------------------------------------------------------------------------------


class Asked(NamedTuple):
    """One question as it is written."""

    task: dict[str, Any]  # what a Task has
    said: dict[str, Wrong]  # of each option, or of each wrong number by its code


def questions_of(text: str) -> dict[str, Asked]:
    """The questions of a text by their ids."""
    found = {}
    for task in found_in(text, QUESTION):
        answers = ANSWER.findall(task.pop("answers"))
        said = {option or code: RIGHT if x == "x" else Wrong(code, says) for x, option, code, says in answers}
        found[task["id"]] = Asked(task | {"level": int(task["level"])}, said)
    return found


@cache
def asked() -> dict[str, Asked]:
    """Every question by its id."""
    return questions_of(text_of("questions.md"))


def ticked() -> Iterator[Choice | Truth]:
    """The questions of which one answer is ticked: choices, and what is true or false."""
    for task, said in asked().values():
        if list(said) == ["True", "False"]:
            right = said["True"] is RIGHT
            yield Truth(**task, right=right, wrong=said[str(not right)])
        elif RIGHT in said.values():
            yield Choice(**task, options=said)


def drawn(name: str, decimals: int = 0) -> Callable[[Callable[[Draw], Posed]], Numbers]:
    """The exercise of this id, whose numbers the function below draws; it gives wrong ones by their codes."""
    task, said = asked()[name]

    def exercise(draw: Callable[[Draw], Posed]) -> Numbers:
        def posed(numbers: Draw) -> Posed:
            question = draw(numbers)
            wrong = {said.get(code) or words()[code]: value for code, value in question.wrong.items()}
            return question._replace(wrong=wrong)

        return Numbers(**task, draw=posed, decimals=decimals)

    return exercise


def with_sizes_of_1(draw: Callable[[Draws], Arguments]) -> Iterator[Arguments]:
    """One call for each size that can be 1, with that size of 1."""
    counting = Draws(0)
    draw(counting)
    for k in range(counting.count):
        yield draw(Draws(0, one=k))


def coded(
    name: str,
    outputs: tuple[str, ...],
    calls: tuple[Arguments, ...],
    *,
    draw: Callable[[Draws], Arguments] | None = None,
    **parts: Any,
) -> Code:
    """The exercise of this id, which asks for a function: its outputs, calls to try it on, and its parts.

    `calls` has one call for each edge of what the task promises. More are drawn with random sizes, by `draw`
    or from the axes. Mistakes are given by their codes; landmarks and directions by the solution's names.
    """
    text, right = parts["solution"], compiled(parts["solution"])
    for part in ("mistakes", "hard"):
        parts[part] = {words()[code]: way for code, way in parts.get(part, {}).items()}
    for part in ("landmarks", "directions"):
        parts[part] = {what: instead(text, other) for what, other in parts.get(part, {}).items()}
    of_probe = {part: parts.pop(part) for part in Probe._fields if part in parts}
    probe = Probe(str(signature(right))[1:-1], outputs, (), **of_probe)
    draw = draw or partial(draw_from_axes, probe)
    drawn = [draw(Draws(seed)) for seed in range(DRAWN + FRESH)]
    every_call = (*calls, *drawn[:DRAWN], *with_sizes_of_1(draw))
    probe = probe._replace(calls=every_call, fresh=tuple(drawn[DRAWN:]))
    return Code(**asked()[name].task, probe=probe, draw=draw, **parts)

