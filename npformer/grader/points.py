"""Compute the points of each student, and format the tables for the teacher and the LMS."""

import csv
import io
import json
import math
import re
import secrets
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from npformer.exercises import feedback as feedback_text
from npformer.exercises.assignment_file import Assignment
from npformer.grader.class_list import Owners, Student
from npformer.grader.grading_process import Row
from npformer.grader.submissions import SUFFIX, Submission, parse_lms_name

FORMULA = (
    r"(?=[=+\-@\t\r\n＝＋－＠])"  # a spreadsheet runs text that starts so, also in full-width characters
)
SECONDS_PER_DAY = 86400
PARTLY_CORRECT = (  # statuses of answers that were checked to the end
    "known_mistake",
    "ambiguous",
    "unrecognised",
)


class StudentPoints(NamedTuple):
    """The points of one student, and where they come from."""

    student: Student
    points: dict[str, float]  # of each exercise
    days_late: int
    rows: list[Row]  # the row that counts of each exercise
    files: list[str]

    @property
    def total(self) -> float:
        """Return the sum of the points."""
        return sum(self.points.values())


class _Attempt(NamedTuple):
    """One answer to an exercise, and the points for it after the deduction for days late."""

    points: float
    row: Row
    days_late: int


def compute_row_points(row: Row, assignment: Assignment) -> float:
    """Return the points of one answer: all points if it is correct, else those of its correct outputs."""
    points_by_output = assignment.points.get(row.exercise, {})
    if row.passed:
        return sum(points_by_output.values())
    if row.status not in PARTLY_CORRECT:
        return 0.0
    return sum(points_by_output.get(output, 0.0) for output in row.agreed)


def compute_class_points(
    files: Sequence[Submission], rows: Iterable[Row], owners: Owners, assignment: Assignment
) -> list[StudentPoints]:
    """Return the points of each student, including students who submitted nothing."""
    rows_by_file = defaultdict[str, list[Row]](list)
    for row in rows:
        rows_by_file[row.submission].append(row)
    files_by_student: dict[Student, list[Submission]] = {}
    for student in (*owners.by_file.values(), *owners.missing):
        files_by_student[student] = []
    for file in sorted(files, key=lambda file: file.time):
        if file.name in owners.by_file:
            files_by_student[owners.by_file[file.name]].append(file)
    return [
        _compute_student_points(student, student_files, rows_by_file, assignment)
        for student, student_files in files_by_student.items()
    ]


def _compute_student_points(
    student: Student, files: list[Submission], rows_by_file: dict[str, list[Row]], assignment: Assignment
) -> StudentPoints:
    """Return the points of a student. `files` are in the order of their submission times."""
    counted: dict[str, _Attempt] = {}
    for file in files:
        days_late = count_days_late(file, student, assignment.due)
        factor = _compute_late_factor(days_late, assignment)
        for row in rows_by_file[file.name]:
            attempt = _Attempt(compute_row_points(row, assignment) * factor, row, days_late)
            earlier = counted.get(row.exercise)
            if earlier is None or _replaces(attempt, earlier, assignment):
                counted[row.exercise] = attempt
    attempts = list(counted.values())
    answered = [attempt for attempt in attempts if attempt.row.is_answered] or attempts
    points = dict.fromkeys(assignment.points, 0.0)
    points |= {exercise_id: attempt.points for exercise_id, attempt in counted.items()}
    most_days_late = max((attempt.days_late for attempt in answered), default=0)
    file_names = list(dict.fromkeys(attempt.row.submission for attempt in answered))
    return StudentPoints(student, points, most_days_late, [attempt.row for attempt in attempts], file_names)


def _compute_late_factor(days_late: int, assignment: Assignment) -> float:
    """Return the part of the points that a submission keeps after so many days."""
    if days_late > assignment.days:
        return 0.0
    return max(0.0, 1 - assignment.per_day * days_late)


def _replaces(later: _Attempt, earlier: _Attempt, assignment: Assignment) -> bool:
    """Return whether the later attempt counts instead of the earlier one.

    The best attempt counts if the assignment says so, otherwise the last one that is an answer.
    """
    if assignment.best:
        return later.points > earlier.points
    return later.row.is_answered or not earlier.row.is_answered


def count_days_late(file: Submission, student: Student, due: float) -> int:
    """Return the number of days begun after the due date.

    The lateness comes from the class list (Gradescope) or the time of the file. If both are in time, the word
    LATE that Canvas writes into the name of a file counts as one day.
    """
    if not math.isfinite(due):
        return 0
    seconds_late = file.time - due if student.late is None else student.late
    if seconds_late > 0:
        return math.ceil(seconds_late / SECONDS_PER_DAY)
    return int("late" in parse_lms_name(file.original_name))


# --- tables ---------------------------------------------------------------------------------------


def format_csv(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a CSV file as a text.

    Students choose the text of some cells. A cell that a spreadsheet would run as a formula gets a quote in
    front. Otherwise, a student could run a formula on the teacher's computer.
    """
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(header)
    for line in lines:
        writer.writerow([f"'{cell}" if re.match(FORMULA, cell) else cell for cell in line])
    return file.getvalue()


def format_answers_table(rows: Iterable[Row], assignment: Assignment) -> str:
    """Return the table of all answers with their points."""
    lines = []
    for row in rows:
        cells = [" ".join(cell) if isinstance(cell, tuple) else cell for cell in row]
        lines.append([*cells, f"{compute_row_points(row, assignment):g}"])
    return format_csv([*Row._fields, "points"], lines)


def format_gradebook(
    class_points: Iterable[StudentPoints], assignment: Assignment, feedback_paths: dict[Path, StudentPoints]
) -> str:
    """Return the table for the gradebook of an LMS, with one row per student."""
    header = ["id", "name", "email", "points", "of", "days late", "file", "feedback", *assignment.points]
    paths = {entry.student: str(path) for path, entry in feedback_paths.items()}
    lines = []
    for entry in class_points:
        student = entry.student
        lines.append(
            [
                student.id,
                student.name,
                student.email,
                f"{entry.total:g}",
                f"{assignment.worth():g}",
                str(entry.days_late),
                "; ".join(entry.files),
                paths.get(student, ""),
                *(f"{points:g}" for points in entry.points.values()),
            ]
        )
    return format_csv(header, lines)


def format_gradescope_results(rows: Sequence[Row], assignment: Assignment, problem: str = "") -> str:
    """Return results.json for Gradescope: the rows of one submission, or the problem if there are no rows."""
    results: dict[str, Any] = {
        "score": sum(compute_row_points(row, assignment) for row in rows),
        "tests": [_make_gradescope_test(row, assignment) for row in rows],
    }
    if problem:
        results["output"] = problem
    return json.dumps(results, indent=1)


def _make_gradescope_test(row: Row, assignment: Assignment) -> dict[str, Any]:
    """Return the entry of one exercise in results.json."""
    return {
        "name": row.exercise,
        "score": compute_row_points(row, assignment),
        "max_score": sum(assignment.points[row.exercise].values()),
        "status": "passed" if row.passed else "failed",
        "output": format_card(row),
        "output_format": "text",
        "visibility": "visible",
    }


def format_card(row: Row) -> str:
    """Return the feedback card of one row."""
    return "\n".join(feedback_text.card_lines(row))


# --- anonymous grading ----------------------------------------------------------------------------

Key: TypeAlias = dict[tuple[str, ...], str]  # the number of each (id, name, email), such as "student-001"
KEY_HEADER = ("anonymous", "id", "name", "email")


def read_key(path: Path) -> Key:
    """Return the numbers of a key file, none if it does not exist. Raises ValueError if it is no key."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = list(csv.reader(file)) or [[]]
    is_key = tuple(lines[0]) == KEY_HEADER and all(len(line) == len(KEY_HEADER) for line in lines[1:])
    if not is_key:
        raise ValueError(f"{str(path)!r} is not a key of numbers and names; choose a different file")
    key = {}
    for number, *person in lines[1:]:
        key[tuple(re.sub(f"^'{FORMULA}", "", cell) for cell in person)] = number  # undo `format_csv`
    return key


def number_files(files: Sequence[Submission]) -> list[Submission]:
    """Replace the names of files by numbers. `find_owners` still reads the original names."""
    numbered = []
    for number, file in enumerate(files, 1):
        match = None if file.skip_reason else SUFFIX.search(file.name)
        suffix = match[1] if match else ""
        numbered.append(file._replace(name=f"file-{number:03}{suffix}"))
    return numbered


def anonymize_owners(owners: Owners, key: Key) -> Owners:
    """Replace students by numbers. New numbers are random and are added to the key; old ones stay."""
    students = list(dict.fromkeys([*owners.by_file.values(), *owners.missing]))
    secrets.SystemRandom().shuffle(students)
    anonymous = {}
    for student in students:
        number = key.setdefault((student.id, student.name, student.email), f"student-{len(key) + 1:03}")
        anonymous[student] = Student(number, "", "", late=student.late)
    by_file = {name: anonymous[student] for name, student in owners.by_file.items()}
    undecided = [line.split()[0] for line in owners.undecided]  # only the file: the rest contains names
    return Owners(by_file, undecided, [anonymous[student] for student in owners.missing])
