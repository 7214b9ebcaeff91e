"""What is set and what it is worth: read from a file in TOML, or written for an exam."""

import json
import math
import tomllib
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from npformer.exercises.bank import find
from npformer.exercises.task import Code, Task

WHOLE = ""  # the one part of an exercise without parts


class Assignment(NamedTuple):
    """What was set, and how it counts."""

    points: dict[str, dict[str, float]]  # of each part of each exercise
    title: str = "The class"
    due: float = math.inf  # seconds since 1970
    per_day: float = 0.0  # the part of the points that each day begun takes away
    days: float = math.inf  # after so many nothing counts
    best: bool = False  # of several hand-ins; else the last
    numbers: str = ""  # the name, or an exam's seed, whose numbers everybody has

    def worth(self) -> float:
        """All points."""
        return sum(sum(parts.values()) for parts in self.points.values())


KINDS = {  # of what can stand in an assignment file
    "title": str, "due": datetime, "late": dict, "count": str, "numbers": str | int, "points": dict,
}  # fmt: skip
LATE = {"per_day": 1.0, "days": math.inf}  # the most that each can be
EXPECTED = 'title, due = 2026-03-01T23:59:00, late = {per_day, days}, count = "last" or "best", numbers'


def assignment_of(ids: Iterable[str]) -> Assignment:
    """One point an exercise."""
    return Assignment({exercise_id: {WHOLE: 1.0} for exercise_id in ids})


def read_assignment(path: Path) -> Assignment:
    """An assignment file in TOML: title, due, late, count, numbers, and a table of points: what is set.

    Raises ValueError for what is no exercise, no output of one, no number of points or days, or no such key.
    """
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name}: {error}") from None
    odd = {k: v for k, v in given.items() if isinstance(v, bool) or not isinstance(v, KINDS.get(k, ()))}
    wrong = [f"{key} = {value!r}" for key, value in odd.items()]
    points = {} if wrong else dict(_points(given.get("points", {})))
    late, count = {} if wrong else given.get("late", {}), given.get("count", "last")
    for key, each in late.items():
        if isinstance(each, bool) or not isinstance(each, int | float) or not 0 <= each <= LATE.get(key, -1):
            wrong.append(f"late.{key} = {each!r}")
    if wrong or not points or count not in ("last", "best"):
        got = f"; got {wrong[0]}" if wrong else ""
        raise ValueError(f"{path.name}: expected {EXPECTED} and a table [points]{got}")
    due = given["due"].timestamp() if "due" in given else math.inf
    per_day, days = float(late.get("per_day", 0)), float(late.get("days", math.inf))
    title, numbers = given.get("title", "The class"), str(given.get("numbers", ""))
    return Assignment(points, title, due, per_day, days, count == "best", numbers)


def _points(table: dict[str, Any], before: str = "") -> Iterator[tuple[str, dict[str, float]]]:
    """pe.table = 3 without quotes is a table pe with an entry table; both mean the same here."""
    for name, value in table.items():
        exercise_id = before + name
        is_half_a_name = isinstance(value, dict) and "." not in exercise_id
        if is_half_a_name:
            yield from _points(value, f"{exercise_id}.")
            continue
        parts = value if isinstance(value, dict) else {WHOLE: value}
        check_parts(exercise_id, parts)
        yield exercise_id, {part: float(worth) for part, worth in parts.items()}


def check_parts(exercise_id: str, parts: dict[str, Any]) -> None:
    """Raise ValueError for points that are no numbers, and for names that are no outputs of the exercise."""
    task, _ = find(exercise_id)
    for part, worth in parts.items():
        if isinstance(worth, bool) or not isinstance(worth, int | float) or not 0 <= worth < 1e6:
            raise ValueError(f"{exercise_id} is {worth!r}; expected a number of points")
        if part != WHOLE and part not in outputs_of(task):
            names = ", ".join(outputs_of(task)) or "none: it has one answer"
            raise ValueError(f"{exercise_id} has no output {part!r}; expected one of its outputs, {names}")


def outputs_of(task: Task) -> tuple[str, ...]:
    """The names of the outputs of an exercise; none for one that asks for no function."""
    return task.probe.outputs if isinstance(task, Code) else ()


def written(assignment: Assignment) -> str:
    """The same as a file, with its title, numbers and whole points."""
    texts = (json.dumps(text, ensure_ascii=False) for text in (assignment.title, assignment.numbers))
    title, seed = (text.replace("\x7f", "\\u007f") for text in texts)  # as TOML asks
    lines = (f'"{exercise_id}" = {parts[WHOLE]:g}\n' for exercise_id, parts in assignment.points.items())
    return f"title = {title}\nnumbers = {seed}\n\n[points]\n{''.join(lines)}"
