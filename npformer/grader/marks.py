"""Points: what an assignment gives for what, what a student has earned, and the tables that are written."""

import csv
import json
import math
import re
import secrets
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from npformer.exercises import check, show
from npformer.grader.hand_ins import HandIn
from npformer.grader.register import Student, Whose
from npformer.grader.run import Row, replacing

FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # what a spreadsheet would run, in either width
DAY = 86400
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


class Mark(NamedTuple):
    """One student's points, and where they come from."""

    student: Student
    points: dict[str, float]
    days_late: int
    rows: list[Row]  # that count, one an exercise
    files: list[str]

    @property
    def total(self) -> float:
        """All points."""
        return sum(self.points.values())


# --- the assignment -------------------------------------------------------------------------------


def assignment_of(ids: Iterable[str]) -> Assignment:
    """One point an exercise."""
    return Assignment({exercise_id: {WHOLE: 1.0} for exercise_id in ids})


def read_assignment(path: Path) -> Assignment:
    """An assignment file in TOML: title, due, late, count, numbers, and a table of points: what is set.

    Raises ValueError for what is no exercise, no output of one, no number of points, or no such key.
    """
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name}: {error}") from None
    late, due = given.pop("late", {}), given.pop("due", None)
    table = given.pop("points", {})
    points = dict(_points(table)) if isinstance(table, dict) else {}
    title, count = str(given.pop("title", "The class")), given.pop("count", "last")
    numbers = str(given.pop("numbers", ""))
    if given or not points or not isinstance(late, dict) or late.keys() - {"per_day", "days"}:
        wanted = "title, due, late = {per_day, days}, count, numbers and a table [points]"
        raise ValueError(f"{path.name}: expected {wanted}; got {', '.join(given) or 'something else'}")
    if count not in ("last", "best") or not isinstance(due, datetime | None):
        raise ValueError(f'{path.name}: expected count = "last" or "best", and due = 2026-03-01T23:59:00')
    until, most = due.timestamp() if due else math.inf, float(late.get("days", math.inf))
    return Assignment(points, title, until, float(late.get("per_day", 0)), most, count == "best", numbers)


def _points(table: dict[str, Any], before: str = "") -> Iterator[tuple[str, dict[str, float]]]:
    """pe.table = 3 without quotes is a table pe with an entry table; both mean the same here."""
    for name, value in table.items():
        exercise_id = before + name
        if isinstance(value, dict) and "." not in exercise_id:
            yield from _points(value, f"{exercise_id}.")
            continue
        show(exercise_id)  # raises ValueError for one that the bank does not have
        parts = value if isinstance(value, dict) else {WHOLE: value}
        known = {WHOLE, *re.findall(r"\w+", check(exercise_id, lambda *given: 0.0).evidence)}
        for part, worth in parts.items():
            if isinstance(worth, bool) or not isinstance(worth, int | float) or not 0 <= worth < 1e6:
                raise ValueError(f"{exercise_id} is {worth!r}; expected a number of points")
            if part not in known:
                raise ValueError(f"{exercise_id} has no output {part!r}")
        yield exercise_id, {part: float(worth) for part, worth in parts.items()}


def earned(row: Row, parts: dict[str, float]) -> float:
    """The points of one answer: all of a right one; of another one those of the outputs that agree."""
    if row.passed:
        return sum(parts.values())
    agree = re.match(r"([^.]*?) agrees?\.", row.evidence)
    return sum(parts.get(name, 0.0) for name in re.findall(r"\w+", agree[1])) if agree else 0.0


# --- the marks ------------------------------------------------------------------------------------


def marks(files: Sequence[HandIn], rows: Iterable[Row], owners: Whose, assignment: Assignment) -> list[Mark]:
    """One for each student, those who handed in nothing too."""
    by_file = defaultdict[str, list[Row]](list)
    for row in rows:
        by_file[row.submission].append(row)
    handed_in = {student: list[HandIn]() for student in [*owners.of.values(), *owners.missing]}
    for each in sorted(files, key=lambda each: each.time):
        if each.name in owners.of:
            handed_in[owners.of[each.name]].append(each)
    return [_mark(student, own, by_file, assignment) for student, own in handed_in.items()]


def _mark(student: Student, own: list[HandIn], by_file: dict[str, list[Row]], assignment: Assignment) -> Mark:
    """Of each exercise the last answer counts, or the best, less what its day takes away."""
    found: dict[str, tuple[float, Row, int]] = {}
    for each in own:
        days = days_late(each, student, assignment.due)
        factor = max(0.0, 1 - assignment.per_day * days) if days <= assignment.days else 0.0
        for row in by_file[each.name]:
            new = earned(row, assignment.points[row.exercise]) * factor, row, days
            old = found.get(row.exercise, (-1.0, row, 0))
            better = new[0] > old[0] if assignment.best else row.answered or not old[1].answered
            found[row.exercise] = new if better else old
    points = {i: found[i][0] if i in found else 0.0 for i in assignment.points}
    used = [entry for entry in found.values() if entry[1].answered] or list(found.values())
    names = list(dict.fromkeys(row.submission for _, row, _ in used))
    days = max((days for _, _, days in used), default=0)
    return Mark(student, points, days, [entry[1] for entry in found.values()], names)


def days_late(file: HandIn, student: Student, due: float) -> int:
    """Days begun after the due date: by the register, by the file's time, or one where Canvas says late."""
    late = student.late if student.late is not None else file.time - due
    by_clock = math.ceil(late / DAY) if math.isfinite(due) and late > 0 else 0
    return by_clock or int(math.isfinite(due) and "late" in file.shape)


# --- tables ---------------------------------------------------------------------------------------


def harmless(cell: str) -> str:
    """A cell that no spreadsheet runs."""
    return f"'{cell}" if cell.startswith(FORMULA) else cell


def write_table(head: Sequence[str], lines: Iterable[Sequence[str]], path: Path) -> None:
    """A CSV file. What a spreadsheet would take for a formula gets a quote in front."""
    with replacing(path) as file:
        table = csv.writer(file)
        table.writerow(head)
        table.writerows([harmless(cell) for cell in line] for line in lines)


def write_rows(rows: Iterable[Row], assignment: Assignment, path: Path) -> None:
    """Every answer, with its points."""
    lines = ((*row, f"{earned(row, assignment.points.get(row.exercise, {})):g}") for row in rows)
    write_table([*Row._fields, "points"], lines, path)


def write_grades(
    given: Iterable[Mark], assignment: Assignment, feedback: dict[Student, str], path: Path
) -> None:
    """A row a student, for the gradebook."""
    head = ["id", "name", "email", "points", "of", "days late", "file", "feedback", *assignment.points]
    lines = []
    for mark in given:
        s = mark.student
        own = [s.id, s.name, s.email, f"{mark.total:g}", f"{assignment.worth():g}", str(mark.days_late)]
        each = [f"{points:g}" for points in mark.points.values()]
        lines.append([*own, "; ".join(mark.files), feedback.get(s, ""), *each])
    write_table(head, lines, path)


def write_gradescope(rows: Sequence[Row], assignment: Assignment, path: Path, problem: str = "") -> None:
    """results.json as Gradescope reads it, from the rows of one submission; or why there are none."""
    tests = [
        {
            "name": row.exercise,
            "score": earned(row, assignment.points[row.exercise]),
            "max_score": sum(assignment.points[row.exercise].values()),
            "status": "passed" if row.passed else "failed",
            "output": card(row),
            "output_format": "text",
            "visibility": "visible",
        }
        for row in rows
    ]
    score = sum(float(str(test["score"])) for test in tests)
    with replacing(path) as file:
        json.dump({"score": score, "tests": tests} | ({"output": problem} if problem else {}), file, indent=1)


def card(row: Row) -> str:
    """One row as lines to read."""
    titles = {"pass": "Right", "pass_variant": "Right, in another form", "error": "Not checked to the end"}
    title = titles.get(row.status, "Not yet" if row.answered else row.status.capitalize())
    return "\n".join(filter(None, [title, row.evidence, row.hint, row.question]))


# --- without names --------------------------------------------------------------------------------


KEY = ("anonymous", "id", "name", "email")


def without_names(
    rows: list[Row], files: Sequence[HandIn], owners: Whose, key: Path
) -> tuple[list[Row], list[HandIn], Whose]:
    """Everybody under a number, and a key that says whose it is; a key that is there already is kept to."""
    everybody = list(dict.fromkeys([*owners.of.values(), *owners.missing]))
    known = numbers_of(key)
    secrets.SystemRandom().shuffle(everybody)
    for student in everybody:
        known.setdefault(student[:3], f"student-{len(known) + 1:03}")
    write_table(KEY, [(new, *old) for old, new in sorted(known.items())], key)
    as_new = {s: Student(known[s[:3]], "", "", late=s.late) for s in everybody}
    who = {name: as_new[student].id for name, student in owners.of.items()}
    new_name = {each.name: f"{who.get(each.name, 'nobody')}-{i}" for i, each in enumerate(files, 1)}
    as_told = [
        row._replace(
            submission=new_name[row.submission],
            student=who.get(row.submission, "nobody"),
            evidence=row.evidence.replace(row.submission.rpartition("/")[2], new_name[row.submission]),
        )
        for row in rows
    ]
    of = {new_name[name]: as_new[student] for name, student in owners.of.items()}
    doubtful = [new_name[name] for name in new_name if any(line.startswith(name) for line in owners.doubtful)]
    renamed = [each._replace(name=new_name[each.name], named=each.name) for each in files]
    return as_told, renamed, Whose(of, doubtful, [as_new[student] for student in owners.missing])


def numbers_of(key: Path) -> dict[tuple[str, ...], str]:
    """The number of each student (id, name, email), of a key that is there; ValueError where it is no key."""
    if not key.exists():
        return {}
    with key.open(newline="", encoding="utf-8-sig") as file:
        head, *lines = list(csv.reader(file)) or [[]]
    if tuple(head) != KEY or any(len(line) != len(KEY) for line in lines):
        raise ValueError(f"{str(key)!r} is no key of numbers and names; choose another file")
    return {tuple(rest): new for new, *rest in lines}
