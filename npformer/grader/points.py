"""Compute the points of each student, and format the tables for the teacher and the LMS."""

import csv
import io
import json
import os
import re
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from npformer.exercises import feedback as feedback_text
from npformer.exercises.assignment_file import WHOLE, Assignment
from npformer.grader.class_list import Owners, Student
from npformer.grader.grading_process import Row
from npformer.grader.lateness import sort_attempts
from npformer.grader.submissions import SUFFIX, Submission

# A spreadsheet evaluates a cell as a formula if it starts with one of these characters. Some programs also
# accept the full-width forms.
FORMULA = r"(?=[=+\-@\t\r\n＝＋－＠])"
OWNER_COLUMNS = ("id", "name", "email")
ANSWERS_HEADER = (*Row._fields, "points", *OWNER_COLUMNS)
GRADES_HEADER = (*OWNER_COLUMNS, "points", "of", "days late", "file", "feedback")
PARTLY_CORRECT = (  # the statuses of wrong answers that may have correct outputs
    "known_mistake",
    "ambiguous",
    "unrecognised",
)


class Attempt(NamedTuple):
    """One answer to an exercise, with the points after the deduction for lateness."""

    points: float
    row: Row
    days_late: int


class StudentPoints(NamedTuple):
    """The points of one student, with the answers and files that they come from."""

    student: Student
    points: dict[str, float]  # by exercise id
    days_late: int
    attempts: list[Attempt]  # for each exercise, the answer that gives the points
    files: list[str]

    @property
    def rows(self) -> list[Row]:
        """Return, for each exercise, the row that gives the points."""
        return [attempt.row for attempt in self.attempts]

    @property
    def total(self) -> float:
        """Return the sum of the points."""
        return sum(self.points.values())


def compute_row_points(row: Row, assignment: Assignment) -> float:
    """Return the points for one answer. A wrong answer gets the points for its correct outputs."""
    points_by_output = assignment.points.get(row.exercise, {})
    if row.passed:
        return sum(points_by_output.values())
    if row.status not in PARTLY_CORRECT:
        return 0.0
    return sum(points_by_output.get(output, 0.0) for output in row.agreed)


def explain_outputs(row: Row, assignment: Assignment) -> str:
    """Return a text that lists the outputs with points in a wrong answer; "" without points per output."""
    points_by_output = assignment.points.get(row.exercise, {})
    if row.status not in PARTLY_CORRECT or list(points_by_output) == [WHOLE]:
        return ""
    correct: list[str] = []
    wrong: list[str] = []
    for output, worth in points_by_output.items():
        outputs = correct if output in row.agreed else wrong
        outputs.append(f"{output} ({count(worth, 'point')})")
    return f"Correct outputs: {', '.join(correct) or 'none'}. Other outputs: {', '.join(wrong) or 'none'}."


def count(number: float, noun: str) -> str:
    """Return a number with its noun: "1 point", "2 points".

    >>> count(0.5, "point")
    '0.5 points'
    """
    return f"{number:g} {noun}" if number == 1 else f"{number:g} {noun}s"


def compute_class_points(
    files: Sequence[Submission],
    rows: Iterable[Row],
    owners: Owners,
    assignment: Assignment,
    days_late: dict[str, int],
) -> list[StudentPoints]:
    """Return the points of each student, including students who submitted nothing.

    `days_late` maps the name of each file to the number of days that it is late.
    """
    rows_by_file = defaultdict[str, list[Row]](list)
    for row in rows:
        rows_by_file[row.submission].append(row)
    files_by_student: dict[Student, list[Submission]] = {}
    for student in (*owners.by_file.values(), *owners.missing):
        files_by_student[student] = []
    for file in sort_attempts(files):
        if file.name in owners.by_file:
            files_by_student[owners.by_file[file.name]].append(file)
    return [
        _compute_student_points(student, student_files, rows_by_file, assignment, days_late)
        for student, student_files in files_by_student.items()
    ]


def _compute_student_points(
    student: Student,
    files: list[Submission],
    rows_by_file: dict[str, list[Row]],
    assignment: Assignment,
    days_by_file: dict[str, int],
) -> StudentPoints:
    """Return the points of a student. In `files`, the last attempt comes last."""
    counted: dict[str, Attempt] = {}
    for file in files:
        days_late = days_by_file[file.name]
        factor = _compute_late_factor(days_late, assignment)
        for row in rows_by_file[file.name]:
            attempt = Attempt(compute_row_points(row, assignment) * factor, row, days_late)
            earlier = counted.get(row.exercise)
            if earlier is None or _replaces(attempt, earlier, assignment):
                counted[row.exercise] = attempt
    attempts = list(counted.values())
    answered = [attempt for attempt in attempts if attempt.row.is_answered] or attempts
    points = dict.fromkeys(assignment.points, 0.0)
    points |= {exercise_id: attempt.points for exercise_id, attempt in counted.items()}
    most_days_late = max((attempt.days_late for attempt in answered), default=0)
    file_names = list(dict.fromkeys(attempt.row.submission for attempt in answered))
    return StudentPoints(student, points, most_days_late, attempts, file_names)


def _compute_late_factor(days_late: int, assignment: Assignment) -> float:
    """Return the factor by which the points of a late submission are multiplied."""
    if days_late > assignment.days:
        return 0.0
    return max(0.0, 1 - assignment.per_day * days_late)


def _replaces(later: Attempt, earlier: Attempt, assignment: Assignment) -> bool:
    """Return whether the points come from the later attempt and not from the earlier attempt.

    The assignment decides whether the best attempt or the last attempt with an answer gives the points.
    """
    if assignment.best:
        return later.points > earlier.points
    return later.row.is_answered or not earlier.row.is_answered


# --- tables ---------------------------------------------------------------------------------------


def format_csv(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a CSV file as a text.

    Students choose the text of some cells. A cell that a spreadsheet would run as a formula gets a quote at
    the beginning. Otherwise a student could run a formula on the teacher's computer.
    """
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(header)
    for line in lines:
        writer.writerow([quote_formula(cell) for cell in line])
    return file.getvalue()


def quote_formula(cell: str) -> str:
    """Return the text of a cell, with a quote at the beginning if a spreadsheet would run it as a formula."""
    return f"'{cell}" if re.match(FORMULA, cell) else cell


def unquote_formula(cell: str) -> str:
    """Remove the quote that `quote_formula` adds."""
    return re.sub(f"^'{FORMULA}", "", cell)


def format_answers_table(
    rows: Iterable[Row], assignment: Assignment, owners: Mapping[str, Student] | None = None
) -> str:
    """Return the CSV table of all answers, with the points for each answer.

    `owners` maps the names of files to their owners. The last columns identify the owner of each file, for
    programs. The column `student` is for people. Of two students with the same name, this column also shows
    the number. For a file without an owner, it shows the name in the file.
    """
    owners = owners or {}
    lines = []
    for row in rows:
        cells = [" ".join(cell) if isinstance(cell, tuple) else cell for cell in row]
        owner = owners.get(row.submission, Student("", "", ""))
        points = f"{compute_row_points(row, assignment):g}"
        lines.append([*cells, points, owner.id, owner.name, owner.email])
    return format_csv(ANSWERS_HEADER, lines)


def format_gradebook(
    class_points: Iterable[StudentPoints], assignment: Assignment, feedback_paths: dict[Path, StudentPoints]
) -> str:
    """Return the CSV table for an LMS gradebook, with one row per student."""
    header = [*GRADES_HEADER, *assignment.points]
    # A path is stored as bytes in UTF-8. Under an ASCII locale, str(path) does not decode them correctly.
    paths = {
        entry.student: os.fsencode(path).decode("utf-8", "backslashreplace")
        for path, entry in feedback_paths.items()
    }
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
    """Return results.json for Gradescope: the rows of one submission, or a problem instead of rows."""
    results: dict[str, Any] = {
        "score": sum(compute_row_points(row, assignment) for row in rows),
        "tests": [_make_gradescope_test(row, assignment) for row in rows],
    }
    if problem:
        results["output"] = problem
    return json.dumps(results, indent=1)


def _make_gradescope_test(row: Row, assignment: Assignment) -> dict[str, Any]:
    """Return the entry for one exercise in results.json."""
    card = format_card(row) or "The file has no answer to this exercise."
    return {
        "name": row.exercise,
        "score": compute_row_points(row, assignment),
        "max_score": sum(assignment.points[row.exercise].values()),
        "status": "passed" if row.passed else "failed",
        "output": "\n".join(filter(None, [card, explain_outputs(row, assignment)])),
        "output_format": "text",
        "visibility": "visible",
    }


def format_card(row: Row) -> str:
    """Return the feedback card of one row."""
    return "\n".join(feedback_text.card_lines(row))


# --- anonymous grading ----------------------------------------------------------------------------

Key: TypeAlias = dict[tuple[str, ...], str]  # maps (id, name, email) to a number such as "student-001"
KEY_HEADER = ("anonymous", "id", "name", "email")


def read_key(path: Path) -> Key:
    """Read a key file; a missing file gives an empty key. Raises ValueError if the file is not a key."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = list(csv.reader(file)) or [[]]
    is_key = tuple(lines[0]) == KEY_HEADER and all(len(line) == len(KEY_HEADER) for line in lines[1:])
    if not is_key:
        raise ValueError(f"{str(path)!r} is not a key of numbers and names; choose a different file")
    key = {}
    for number, *person in lines[1:]:
        key[tuple(unquote_formula(cell) for cell in person)] = number
    return key


def number_files(files: Sequence[Submission]) -> list[Submission]:
    """Replace the names of files by numbers. `find_owners` still uses the original names."""
    numbered = []
    for number, file in enumerate(files, 1):
        match = None if file.skip_reason else SUFFIX.search(file.name)
        suffix = match[1] if match else ""
        numbered.append(file._replace(name=f"file-{number:03}{suffix}"))
    return numbered


def anonymize_owners(owners: Owners, key: Key) -> Owners:
    """Replace students by numbers. Numbers in the key are kept; new students get numbers in random order."""
    students = list(dict.fromkeys([*owners.by_file.values(), *owners.missing]))
    secrets.SystemRandom().shuffle(students)
    anonymous = {}
    for student in students:
        number = key.setdefault((student.id, student.name, student.email), f"student-{len(key) + 1:03}")
        anonymous[student] = student._replace(id=number, name="", email="", keys=frozenset())
    by_file = {name: anonymous[student] for name, student in owners.by_file.items()}
    # Keep only the name of the file, because the rest of the line contains names of students.
    undecided = [line.split()[0] for line in owners.undecided]
    return Owners(by_file, undecided, [anonymous[student] for student in owners.missing])
