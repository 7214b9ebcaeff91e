"""What a student has earned of what was set, and the tables of it."""

import csv
import io
import json
import math
import re
import secrets
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from npformer.exercises import feedback as feedback_text
from npformer.exercises.assignment_file import Assignment
from npformer.grader.class_list import Student, Whose
from npformer.grader.grading_process import Row
from npformer.grader.submissions import KIND, HandIn, shape_of

FORMULA = r"(?=[=+\-@\t\r\n＝＋－＠])"  # before what a spreadsheet would run, in either width
DAY = 86400
PARTLY_CORRECT = (
    "known_mistake",
    "ambiguous",
    "unrecognised",
)  # statuses of answers that were checked to the end


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


def earned(row: Row, assignment: Assignment) -> float:
    """The points of one answer: all of a correct one; else those of the outputs that are correct."""
    parts = assignment.points.get(row.exercise, {})
    if row.passed:
        return sum(parts.values())
    if row.status not in PARTLY_CORRECT:
        return 0.0
    return sum(parts.get(name, 0.0) for name in row.agreed)


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
            new = earned(row, assignment) * factor, row, days
            old = found.get(row.exercise, (-1.0, row, 0))
            better = new[0] > old[0] if assignment.best else row.is_answered or not old[1].is_answered
            found[row.exercise] = new if better else old
    used = [entry for entry in found.values() if entry[1].is_answered] or list(found.values())
    points = dict.fromkeys(assignment.points, 0.0) | {i: entry[0] for i, entry in found.items()}
    files = list(dict.fromkeys(row.submission for _, row, _ in used))
    days = max((days for _, _, days in used), default=0)
    return Mark(student, points, days, [row for _, row, _ in found.values()], files)


def days_late(file: HandIn, student: Student, due: float) -> int:
    """Days begun after the due date: by the register, by the file's time, or one where Canvas says late."""
    late = student.late if student.late is not None else file.time - due
    by_clock = math.ceil(late / DAY) if math.isfinite(due) and late > 0 else 0
    return by_clock or int(math.isfinite(due) and "late" in shape_of(file.named))


def table_of(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A CSV file. What a spreadsheet would take for a formula gets a quote in front."""
    file = io.StringIO(newline="")
    harmless = ([f"'{cell}" if re.match(FORMULA, cell) else cell for cell in line] for line in lines)
    csv.writer(file).writerows([head, *harmless])
    return file.getvalue()


def answers_table(rows: Iterable[Row], assignment: Assignment) -> str:
    """Every answer, with its points."""
    lines = (
        [" ".join(cell) if isinstance(cell, tuple) else cell for cell in row]
        + [f"{earned(row, assignment):g}"]
        for row in rows
    )
    return table_of([*Row._fields, "points"], lines)


def grades_table(given: Iterable[Mark], assignment: Assignment, feedback: dict[Path, Mark]) -> str:
    """A row a student, for the gradebook."""
    head = ["id", "name", "email", "points", "of", "days late", "file", "feedback", *assignment.points]
    sent, lines = {mark.student: str(path) for path, mark in feedback.items()}, []
    for mark in given:
        total, of, *each = (f"{n:g}" for n in (mark.total, assignment.worth(), *mark.points.values()))
        names, back = "; ".join(mark.files), sent.get(mark.student, "")
        lines.append([*mark.student[:3], total, of, str(mark.days_late), names, back, *each])
    return table_of(head, lines)


def gradescope(rows: Sequence[Row], assignment: Assignment, problem: str = "") -> str:
    """results.json as Gradescope reads it, from the rows of one submission; or why there are none."""
    tests = []
    for row in rows:
        score, most = earned(row, assignment), sum(assignment.points[row.exercise].values())
        said = {"status": "passed" if row.passed else "failed", "output": card(row), "output_format": "text"}
        points = {"name": row.exercise, "score": score, "max_score": most}
        tests.append({**points, **said, "visibility": "visible"})
    score = sum(earned(row, assignment) for row in rows)
    return json.dumps({"score": score, "tests": tests} | ({"output": problem} if problem else {}), indent=1)


def card(row: Row) -> str:
    """One row as lines to read."""
    return "\n".join(feedback_text.card_lines(row))


# --- without names --------------------------------------------------------------------------------

Key: TypeAlias = dict[tuple[str, ...], str]  # the number of each (id, name, email)
HEAD = ("anonymous", "id", "name", "email")


def numbers_of(key: Path) -> Key:
    """The numbers in a key, none where there is no file yet; ValueError where it is no key."""
    if not key.exists():
        return {}
    with key.open(newline="", encoding="utf-8-sig") as file:
        head, *lines = list(csv.reader(file)) or [[]]
    if tuple(head) != HEAD or any(len(line) != len(HEAD) for line in lines):
        raise ValueError(f"{str(key)!r} is no key of numbers and names; choose another file")
    return {tuple(re.sub(f"^'{FORMULA}", "", cell) for cell in rest): new for new, *rest in lines}


def numbered(files: Sequence[HandIn]) -> list[HandIn]:
    """The files under numbers, before they are graded: what they are called, only `whose` asks."""
    kinds = (None if each.passed_over else KIND.search(each.name) for each in files)
    names = (f"file-{i:03}{kind[1] if kind else ''}" for i, kind in enumerate(kinds, 1))
    return [each._replace(name=name) for each, name in zip(files, names, strict=True)]


def without_names(owners: Whose, known: Key) -> Whose:
    """The same with numbers for students, which the key then has too; who has a number keeps it."""
    everybody = list(dict.fromkeys([*owners.of.values(), *owners.missing]))
    secrets.SystemRandom().shuffle(everybody)
    for student in everybody:
        known.setdefault(student[:3], f"student-{len(known) + 1:03}")
    new = {student: Student(known[student[:3]], "", "", late=student.late) for student in everybody}
    of = {name: new[student] for name, student in owners.of.items()}
    return Whose(of, [line.split()[0] for line in owners.doubtful], [new[each] for each in owners.missing])
