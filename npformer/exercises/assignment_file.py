"""Assignments: the exercises, the points that each exercise gives, and the deadline.

A teacher writes an assignment as a TOML file. The exam commands write such a file, too.
"""

import json
import math
import tomllib
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from npformer.exercises.bank import find_exercise
from npformer.exercises.task import Code, Task

WHOLE = ""  # the key under which `points` stores the points for an exercise as a whole


class Assignment(NamedTuple):
    """The exercises of an assignment, their points, and the rules for late submissions.

    Attributes
    ----------
    points : dict of dicts
        The points by exercise id and output name. The name ``WHOLE`` gives the points for the whole exercise.
    title : str
    due : float
        The deadline in seconds since 1970, or infinity.
    per_day : float
        The share of the points, from 0 to 1, that is lost for each day that has begun after the deadline.
    days : float
        The number of days after which a late submission gets no points.
    best : bool
        Whether the best of several submissions counts. Otherwise the last one counts.
    numbers : str
        The name that selects the same numbers for every student, such as the seed of an exam. With "", each
        student has different numbers.
    """

    points: dict[str, dict[str, float]]
    title: str = "The class"
    due: float = math.inf
    per_day: float = 0.0
    days: float = math.inf
    best: bool = False
    numbers: str = ""

    def worth(self) -> float:
        """Return the sum of all points."""
        return sum(sum(parts.values()) for parts in self.points.values())


TYPES = {  # the allowed keys of an assignment file, with the type of each value
    "title": str, "due": datetime, "late": dict, "count": str, "numbers": str | int, "points": dict,
}  # fmt: skip
LARGEST_LATE = {"per_day": 1.0, "days": math.inf}  # the largest value for each key of the table `late`
EXPECTED = 'title, due = 2026-03-01T23:59:00, late = {per_day, days}, count = "last" or "best", numbers'


def make_assignment(ids: Iterable[str]) -> Assignment:
    """Make an assignment in which each exercise gives one point.

    Parameters
    ----------
    ids : iterable of str
        The ids of the exercises.

    Returns
    -------
    assignment : Assignment
    """
    return Assignment({exercise_id: {WHOLE: 1.0} for exercise_id in ids})


def read_assignment(path: Path) -> Assignment:
    """Read an assignment from a TOML file.

    Parameters
    ----------
    path : Path
        The file. It has a table ``points``, and optionally ``title``, ``due``, ``late``, ``count`` and
        ``numbers``.

    Returns
    -------
    assignment : Assignment

    Raises
    ------
    ValueError
        If the file is not TOML, has an unknown key, has a value of the wrong type or outside its range, or
        names an exercise or an output that does not exist.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name}: {error}") from None
    problems = [f"{key} = {value!r}" for key, value in table.items() if not _has_expected_type(key, value)]
    points = {}
    if not problems:
        points = dict(_read_points(table.get("points", {})))
        problems = list(_find_problems_of_late(table.get("late", {})))
    has_valid_count = table.get("count", "last") in ("last", "best")
    if problems or not points or not has_valid_count:
        received = ""
        if problems:
            received = f"; got {problems[0]}"
        raise ValueError(f"{path.name}: expected {EXPECTED} and a table [points]{received}")
    return _make_assignment(table, points)


def _has_expected_type(key: str, value: Any) -> bool:
    """Return whether an assignment file may have this key with this value."""
    if key not in TYPES or isinstance(value, bool):
        return False
    return isinstance(value, TYPES[key])


def _find_problems_of_late(late: dict[str, Any]) -> Iterator[str]:
    """Yield the entries of the table ``late`` that are unknown, or that are not numbers in their range."""
    for key, value in late.items():
        is_in_range = _is_number(value) and 0 <= value <= LARGEST_LATE.get(key, -1)
        if not is_in_range:
            yield f"late.{key} = {value!r}"


def _is_number(value: Any) -> bool:
    """Return whether a value is an integer or a float; True and False are not numbers here."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _make_assignment(table: dict[str, Any], points: dict[str, dict[str, float]]) -> Assignment:
    """Make an assignment from the content of a file that was found to be correct."""
    due = math.inf
    if "due" in table:
        due = table["due"].timestamp()
    late = table.get("late", {})
    return Assignment(
        points,
        title=table.get("title", "The class"),
        due=due,
        per_day=float(late.get("per_day", 0)),
        days=float(late.get("days", math.inf)),
        best=table.get("count", "last") == "best",
        numbers=str(table.get("numbers", "")),
    )


def _read_points(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the id of each exercise in a table of points, with the points for the exercise's outputs.

    In TOML, the key ``pe.table`` without quotes makes a table ``pe`` with a key ``table``. Both this key and
    the key ``"pe.table"`` in quotes name the exercise ``pe.table``.
    """
    for key, value in table.items():
        exercise_id = prefix + key
        is_half_of_an_id = isinstance(value, dict) and "." not in exercise_id
        if is_half_of_an_id:
            yield from _read_points(value, f"{exercise_id}.")
            continue
        parts = value
        if not isinstance(value, dict):
            parts = {WHOLE: value}
        _check_parts(exercise_id, parts)
        yield exercise_id, {part: float(worth) for part, worth in parts.items()}


def _check_parts(exercise_id: str, parts: dict[str, Any]) -> None:
    """Raise ValueError for points that are not numbers, and for names of outputs that do not exist."""
    task, _ = find_exercise(exercise_id)
    outputs = _list_outputs(task)
    for part, worth in parts.items():
        is_valid = _is_number(worth) and 0 <= worth < 1e6
        if not is_valid:
            raise ValueError(f"{exercise_id} is {worth!r}; expected a number of points")
        if part != WHOLE and part not in outputs:
            names = ", ".join(outputs) or "none: it has one answer"
            raise ValueError(f"{exercise_id} has no output {part!r}; expected one of its outputs, {names}")


def _list_outputs(task: Task) -> tuple[str, ...]:
    """Return the names of an exercise's outputs, or () if the exercise does not ask for a function."""
    if isinstance(task, Code):
        return task.probe.outputs
    return ()


def format_assignment(assignment: Assignment) -> str:
    """Return the content of an assignment file: the title, the name in `numbers`, the due date, the points.

    Parameters
    ----------
    assignment : Assignment
        An assignment that gives points only for whole exercises, not for single outputs.

    Returns
    -------
    text : str
        The text of a TOML file.
    """
    lines = [
        f"title = {_quote_for_toml(assignment.title)}\n",
        f"numbers = {_quote_for_toml(assignment.numbers)}\n",
    ]
    if math.isfinite(assignment.due):
        lines.append(f"due = {datetime.fromtimestamp(assignment.due).isoformat()}\n")
    lines.append("\n[points]\n")
    for exercise_id, parts in assignment.points.items():
        lines.append(f'"{exercise_id}" = {parts[WHOLE]:g}\n')
    return "".join(lines)


def _quote_for_toml(text: str) -> str:
    """Quote a string for TOML, as JSON does. TOML also requires an escape for the character DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
