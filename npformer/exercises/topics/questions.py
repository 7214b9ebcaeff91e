"""The exercises of questions.md: choices, true or false, and the words around numbers that a topic draws."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from npformer.exercises.task import RIGHT, Choice, Draw, Numbers, Place, Posed, Task, Truth, Wrong

QUESTION = re.compile(
    r"""^## (?P<id>\S+) \((?P<topic>.+), level (?P<level>\d)\)

(?P<task>.+)

(?P<answers>(?:- .+\n(?:  .+\n)?)*)\n?Hint: (?P<hint>.+)
Ask: (?P<question>.+)""",
    re.MULTILINE,
)
ANSWER = re.compile(r"^- (?:\[([x ])\] (.+)\n?)?(?: *([A-Z0-9-]+): (.+))?", re.MULTILINE)


class Asked(NamedTuple):
    """One question as it is written."""

    task: dict[str, Any]  # what a Task has
    said: dict[str, Wrong]  # of each option, or of each wrong number by its code


@cache
def asked() -> dict[str, Asked]:
    """Every question of questions.md by its id."""
    found = {}
    text = Path(__file__).with_name("questions.md").read_text(encoding="utf-8")
    for section in text.split("\n# ")[1:]:
        teach, read = section[: section.index(".\n\n## ")].split("\n\nRead ")
        for written in QUESTION.finditer(section):
            task: dict[str, Any] = {**written.groupdict(), "place": Place(read, teach)}
            task["level"] = int(task["level"])
            answers = ANSWER.findall(task.pop("answers"))
            said = {
                option or code: RIGHT if x == "x" else Wrong(code, says) for x, option, code, says in answers
            }
            found[task["id"]] = Asked(task, said)
    return found


def ticked() -> list[Task]:
    """The questions of which one answer is ticked: choices, and what is true or false."""
    found: list[Task] = []
    for task, said in asked().values():
        if list(said) == ["True", "False"]:
            right = said["True"] is RIGHT
            found.append(Truth(**task, right=right, wrong=said[str(not right)]))
        elif RIGHT in said.values():
            found.append(Choice(**task, options=said))
    return found


def drawn(name: str, decimals: int = 0) -> Callable[[Callable[[Draw], Posed]], Numbers]:
    """The exercise of this id, whose numbers are drawn by the function below; it gives confusions by code."""
    task, said = asked()[name]

    def exercise(draw: Callable[[Draw], Posed]) -> Numbers:
        def posed(numbers: Draw) -> Posed:
            question = draw(numbers)
            wrong = {said[key] if isinstance(key, str) else key: w for key, w in question.wrong.items()}
            return question._replace(wrong=wrong)

        return Numbers(**task, draw=posed, decimals=decimals)

    return exercise
