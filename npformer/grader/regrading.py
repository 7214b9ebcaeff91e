"""Grade one student again, for `npformer grade --only STUDENT`.

The rows of all other students come from the table of answers that an earlier run has written. In every table,
only the lines of the student change.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from npformer.exercises.assignment_file import Assignment
from npformer.grader.class_list import Owners, Student, find_owners
from npformer.grader.grading_process import Row
from npformer.grader.points import (
    ANSWERS_HEADER,
    GRADES_HEADER,
    OWNER_COLUMNS,
    format_csv,
    quote_formula,
    unquote_formula,
)
from npformer.grader.submissions import Submission

MAX_SIMILAR = 5  # the largest number of similar names in an error message
MIN_SIMILARITY = 0.5


class Regrading(NamedTuple):
    """One student to grade again, and the table of answers of an earlier run."""

    student: Student
    files: list[Submission]  # the files to grade again
    lines: list[list[str]]  # the lines of the old table, without the header
    old_rows: list[Row]  # the rows of all other files that still exist
    claims: dict[str, str]  # for each file of the table, a text that names its student
    old_names: set[str]  # all files that belonged to the student in the old table


def start_regrading(
    text: str,
    table: Path,
    files: Sequence[Submission],
    students: Sequence[Student] | None,
    assignment: Assignment,
) -> Regrading:
    """Find the student whom `text` names, and the files to grade again.

    These are the files of the student and the files without an owner, because a new file of the student may
    be among them. Raises ValueError if the table belongs to other exercises, or if `text` does not name
    exactly one student.
    """
    lines = _read_lines(table, ANSWERS_HEADER)
    names = {quote_formula(file.name): file.name for file in files}
    rows = [_read_row(line, names) for line in lines]
    _check_exercises(rows, table, assignment)
    claims = _read_claims(lines, rows, has_class_list=students is not None)
    owners = find_owners(files, claims, students)
    known = students if students is not None else [*owners.by_file.values()]
    student = choose_student(text, known)
    existing = {file.name for file in files}
    to_grade = []
    for file in files:
        is_of_other = owners.by_file.get(file.name, student) != student
        if not file.skip_reason and not is_of_other:
            to_grade.append(file)
    again = {file.name for file in to_grade}
    old_rows = [row for row in rows if row.submission in existing and row.submission not in again]
    old_names = {name for name, owner in owners.by_file.items() if owner == student}
    old_names |= _find_removed_files(lines, rows, student) - existing
    return Regrading(student, to_grade, lines, old_rows, claims, old_names)


def _find_removed_files(lines: Iterable[Sequence[str]], rows: Iterable[Row], student: Student) -> set[str]:
    """Return the names of all files that belonged to a student in the old table."""
    key = _get_key(student)
    found = set()
    for line, row in zip(lines, rows, strict=True):
        if _get_key(_read_owner(line)) == key:
            found.add(row.submission)
    return found


def choose_student(text: str, students: Iterable[Student]) -> Student:
    """Return the student with this number, login, email address or name.

    Raises ValueError for no student or several students. The message lists similar names.
    """
    by_word: dict[str, list[Student]] = {}
    for student in dict.fromkeys(students):
        words = (student.id, student.name, student.email, str(student), *student.keys)
        for word in {word.casefold() for word in words if word}:
            by_word.setdefault(word, []).append(student)
    wanted = text.strip().casefold()
    found = by_word.get(wanted, [])
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"--only {text!r} fits {_join(found)}; use the number or the email address")
    parts = [word for word in by_word if wanted and wanted in word]
    similar = dict.fromkeys([*parts, *get_close_matches(wanted, by_word, MAX_SIMILAR, MIN_SIMILARITY)])
    near = dict.fromkeys(student for word in similar for student in by_word[word])
    advice = f"similar: {_join([*near][:MAX_SIMILAR])}" if near else "no name is similar"
    raise ValueError(f"--only {text!r} is not a student of this class; {advice}")


def _join(students: Iterable[Student]) -> str:
    """Return the names of the students, separated by commas."""
    return ", ".join(map(str, students))


def _read_claims(lines: Iterable[Sequence[str]], rows: Iterable[Row], has_class_list: bool) -> dict[str, str]:
    """Return, for each file of the table, a text by which `find_owners` finds its student again.

    With a class list, the text is the student's number, or else the email address, or else the name. Without
    a class list, the text is the name, because `find_owners` takes the number from the path.
    """
    claims = {}
    for line, row in zip(lines, rows, strict=True):
        student = _read_owner(line)
        claims[row.submission] = _get_key(student) if has_class_list else student.name
    return claims


def _read_owner(line: Sequence[str]) -> Student:
    """Return the owner in a line of the table of answers. A file without an owner has empty cells."""
    student_id, name, email = map(unquote_formula, line[-len(OWNER_COLUMNS) :])
    return Student(student_id, name, email)


def _get_key(student: Student) -> str:
    """Return the number of a student, or else the email address, or else the name."""
    return student.id or student.email or student.name


def name_students(students: Iterable[Student]) -> dict[Student, str]:
    """Return the name of each student in the table of answers. Students of the same name get a number."""
    students = list(dict.fromkeys(students))
    names = [student.name for student in students]
    shown = {}
    for student in students:
        is_unique = names.count(student.name) == 1
        shown[student] = student.name if student.name and is_unique else str(student)
    return shown


# --- the tables -----------------------------------------------------------------------------------


def _read_lines(table: Path, header: Sequence[str]) -> list[list[str]]:
    """Return the lines of a table without its header. Raises ValueError if it is not the expected table."""
    if not table.exists():
        raise ValueError(f"--only changes the tables of an earlier run, but there is no file {str(table)!r}")
    with table.open(newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))
    if not lines or lines[0] != [*header]:
        raise ValueError(f"{str(table)!r} is not the table of an earlier run with the same exercises")
    return lines[1:]


def _read_row(line: Sequence[str], names: dict[str, str]) -> Row:
    """Convert a line of the table of answers to a row.

    `names` maps cells to names of files, because `quote_formula` may have changed the name in the cell.
    """
    cells: dict[str, str | tuple[str, ...]] = dict(zip(Row._fields, map(unquote_formula, line), strict=False))
    for field, default in Row._field_defaults.items():
        if isinstance(default, tuple):
            cells[field] = tuple(str(cells[field]).split())
    cells["submission"] = names.get(line[0], line[0])
    return Row.from_list([*cells.values()])


def _check_exercises(rows: Iterable[Row], table: Path, assignment: Assignment) -> None:
    """Raise ValueError if the table has other exercises than the assignment."""
    exercises = {row.exercise for row in rows if row.exercise}
    if exercises != set(assignment.points):
        raise ValueError(f"{str(table)!r} has other exercises than this assignment")


def read_old_grades(path: Path, assignment: Assignment) -> list[list[str]]:
    """Return the lines of the table of grades. Raises ValueError if there is no such table."""
    return _read_lines(path, [*GRADES_HEADER, *assignment.points])


def merge_rows(regrading: Regrading, files: Iterable[Submission], new_rows: Iterable[Row]) -> list[Row]:
    """Return the old and the new rows, in the order of the files."""
    by_file: dict[str, list[Row]] = {}
    for row in (*regrading.old_rows, *new_rows):
        by_file.setdefault(row.submission, []).append(row)
    return [row for file in files for row in by_file.get(file.name, [])]


def merge_answers(regrading: Regrading, text: str, owners: Owners) -> str:
    """Return the old table of answers with the student's lines replaced by those of the new table `text`."""
    own_names = {name for name, owner in owners.by_file.items() if owner == regrading.student}
    changed = {quote_formula(name) for name in own_names | regrading.old_names}
    new_lines = list(csv.reader(io.StringIO(text, newline="")))[1:]
    lines = [line for line in regrading.lines if line[0] not in changed]
    lines += [line for line in new_lines if line[0] in changed]
    lines.sort(key=lambda line: unquote_formula(line[0]))  # the lines of one file keep their order
    return format_csv(ANSWERS_HEADER, lines)


def merge_grades(student: Student, old_lines: Sequence[list[str]], text: str) -> str:
    """Return the old table of grades with the student's line replaced by that of the new table `text`.

    If the old table has no line of the student, the new line is added at the end.
    """
    header, *lines = csv.reader(io.StringIO(text, newline=""))
    key = [quote_formula(cell) for cell in (student.id, student.name, student.email)]
    new_lines = [line for line in lines if line[: len(key)] == key]
    merged = []
    is_placed = False
    for line in old_lines:
        is_own_line = line[: len(key)] == key
        merged += new_lines if is_own_line else [line]
        is_placed = is_placed or is_own_line
    if not is_placed:
        merged += new_lines
    return format_csv(header, merged)
