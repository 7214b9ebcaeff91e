"""Fill the points into the table that a learning management system (LMS) imports.

The table is Moodle's grading worksheet or Canvas' gradebook. Only one column changes. The importers of both
systems find a student by the number in the file, so every other cell stays as it is.

Sources: Moodle, `mod/assign/feedback/offline/importgradeslib.php` and `locallib.php`, and for other languages
`assign.php` of the language packs; Canvas, `lib/gradebook_importer.rb`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from npformer.exercises.assignment_file import Assignment
from npformer.grader.class_list import (
    MAX_HEADER_LENGTH,
    Student,
    find_same_student,
    index_students,
    read_students,
)
from npformer.grader.points import StudentPoints, count
from npformer.grader.tables import BYTE_ORDER_MARKS, Table, encode_table, find_column, read_table
from npformer.grader.worker.protocol import readable

CANVAS_COLUMNS = ("ID", "Section")  # Canvas' importer needs these names, and one of the names below.
CANVAS_FIRST_COLUMNS = (["Student"], ["LastName"])
CANVAS_ASSIGNMENT = r"(?P<title>.+) \(\d+\)$"  # Canvas finds the assignment by this number.
KEPT_GRADES = ("EX", "N/A")  # In Canvas, the student is excused, or does not have the assignment.


class MoodleColumns(NamedTuple):
    """The names of the columns of Moodle's grading worksheet that the grader needs, in one language."""

    identifier: str
    grade: str
    last_modified: str  # the time of the last change of the grade
    maximum: str


MOODLE_COLUMNS = {  # Moodle's importer needs the first three names in the language of the user.
    "English": MoodleColumns("Identifier", "Grade", "Last modified (grade)", "Maximum grade"),
    "German": MoodleColumns("ID", "Bewertung", "Zuletzt geändert (Bewertung)", "Bestwertung"),
    "French": MoodleColumns("Identifiant", "Note", "Dernière modification (note)", "Note maximale"),
    "Spanish": MoodleColumns(
        "Identificador", "Calificación", "Última modificación (calificación)", "Calificación máxima"
    ),
}
# Importers ignore a byte order mark before these names.
MARKED_COLUMNS = ("Student", *(columns.identifier for columns in MOODLE_COLUMNS.values()))


class Worksheet(NamedTuple):
    """A table into which points are filled."""

    name: str
    target: Path  # the new file
    table: Table
    students: list[Student | None]  # for each row of the table
    column: int  # the column that gets the points


def read_worksheet(path: Path, assignment: Assignment, columns: str = "") -> Worksheet:
    """Read a gradebook of Canvas, or a grading worksheet of Moodle in a language of MOODLE_COLUMNS.

    Raises
    ------
    ValueError
        If the table has other columns, if the assignment's column is not found, or if the assignment gives
        more points than Moodle accepts.
    """
    table = read_table(path)
    names = [name.strip() for name in table.header]
    moodle_columns = _find_moodle_columns(names)
    if moodle_columns:
        column = names.index(moodle_columns.grade)
        _check_maximum_grade(path.name, table, moodle_columns.maximum, assignment)
    elif names[:1] in CANVAS_FIRST_COLUMNS and set(CANVAS_COLUMNS) <= set(names):
        column = _find_assignment_column(path.name, names, assignment.title)
    else:
        languages = [f"{name}: {', '.join(columns[:3])}" for name, columns in MOODLE_COLUMNS.items()]
        moodle = f"Moodle's grading worksheet (columns in {'; in '.join(languages)})"
        canvas = "Canvas' gradebook (columns Student, ID, Section)"
        known = readable(", ".join(names), MAX_HEADER_LENGTH)
        raise ValueError(f"{path.name}: expected {moodle} or {canvas}; the columns are {known}")
    target = path.with_name(f"{path.stem}-graded{path.suffix}")
    return Worksheet(path.name, target, table, read_students(table, path.name, columns), column)


def _find_moodle_columns(names: Sequence[str]) -> MoodleColumns | None:
    """Return the columns of Moodle's grading worksheet in the language of these column names."""
    for columns in MOODLE_COLUMNS.values():
        needed = {columns.identifier, columns.grade, columns.last_modified}
        if needed <= set(names):
            return columns
    return None


def _check_maximum_grade(file_name: str, table: Table, column_name: str, assignment: Assignment) -> None:
    """Raise ValueError if Moodle would ignore points, because they are above the maximum grade."""
    column = find_column(table.header, column_name)
    texts = {row[column] for row in table.rows} if column is not None else set()
    for text in sorted(texts):
        try:
            maximum = float(text.replace(",", "."))
        except ValueError:
            raise ValueError(f"{file_name}: expected a number as maximum grade, got {text!r}") from None
        if assignment.worth() > maximum:
            reason = f"the assignment gives {count(assignment.worth(), 'point')}, the maximum grade is {text}"
            raise ValueError(f"{file_name}: {reason}; Moodle ignores larger grades")


def _find_assignment_column(file_name: str, names: Sequence[str], title: str) -> int:
    """Return the column of an assignment in Canvas' gradebook: the one with its title, or the only one."""
    titles = {}
    for index, name in enumerate(names):
        match = re.match(CANVAS_ASSIGNMENT, name)
        if match:
            titles[index] = match["title"]
    same_title = [index for index, name in titles.items() if title in (name, names[index])]
    candidates = same_title or list(titles)
    if len(candidates) != 1:
        known = ", ".join(names[index] for index in titles) or "none"
        wanted = "the assignment file's title to be one of the assignments in the gradebook"
        raise ValueError(
            f"{file_name}: expected {wanted}; the title is {title!r}, the assignments are {known}"
        )
    return candidates[0]


def list_students(worksheet: Worksheet) -> list[Student]:
    """Return the students of a worksheet, which can serve as the class list."""
    return list(dict.fromkeys(student for student in worksheet.students if student))


def add_lateness(class_list: Iterable[Student], worksheet: Worksheet) -> list[Student]:
    """Return the class list with the times of submission that only the worksheet has."""
    index = index_students(list_students(worksheet))
    students = []
    for student in class_list:
        found = find_same_student(index, student)
        has_time = student.late is not None or student.submitted is not None
        if len(found) == 1 and not has_time:
            (row,) = found
            student = student._replace(late=row.late, submitted=row.submitted, unread_time=row.unread_time)
        students.append(student)
    return students


def fill_worksheet(worksheet: Worksheet, class_points: Iterable[StudentPoints]) -> tuple[bytes, list[str]]:
    """Return the bytes of the worksheet with the points, and what the teacher has to decide.

    Only students with a submission that was read get points. The other cells stay as they are.
    """
    entries, undecided = _match_rows(worksheet, class_points)
    rows = [list(row) for row in worksheet.table.rows]
    for row, student in zip(rows, worksheet.students, strict=True):
        if student is None or student not in entries:
            continue
        entry = entries[student]
        old_grade = row[worksheet.column].strip()
        if old_grade in KEPT_GRADES:
            undecided.append(f"{_describe(entry)}, but the grade {old_grade} in {worksheet.name} is kept")
        else:
            row[worksheet.column] = f"{entry.total:g}"
    return encode_table(_add_byte_order_mark(worksheet.table._replace(rows=rows))), undecided


def _match_rows(
    worksheet: Worksheet, class_points: Iterable[StudentPoints]
) -> tuple[dict[Student, StudentPoints], list[str]]:
    """Return the points of each student with exactly one row, and a message for each other submission."""
    index = index_students(list_students(worksheet))
    matches = defaultdict[Student, list[StudentPoints]](list)
    undecided = []
    for entry in class_points:
        if not entry.files:
            continue
        found = find_same_student(index, entry.student)
        was_read = any(row.status != "not read" for row in entry.rows)
        if not was_read:
            undecided.append(f"the submission of {entry.student} was not read; {worksheet.name} is kept")
        elif len(found) == 1:
            matches[found.pop()].append(entry)
        else:
            undecided.append(f"{_describe(entry)}, but not exactly one row in {worksheet.name}")
    for entries in matches.values():
        if len(entries) > 1:
            undecided += [f"{_describe(entry)}, but shares a row in {worksheet.name}" for entry in entries]
    return {student: entries[0] for student, entries in matches.items() if len(entries) == 1}, undecided


def _describe(entry: StudentPoints) -> str:
    """Return a student with the points."""
    return f"{entry.student} has {count(entry.total, 'point')}"


def _add_byte_order_mark(table: Table) -> Table:
    """Add the mark that Excel needs for names with accents, where the LMS accepts it.

    Canvas rejects a marked gradebook with the columns LastName and FirstName.
    """
    is_ascii = all(cell.isascii() for row in (table.header, *table.rows) for cell in row)
    is_accepted = table.encoding == "utf-8" and table.header[0] in MARKED_COLUMNS
    if is_ascii or not is_accepted:
        return table
    return table._replace(byte_order_mark=BYTE_ORDER_MARKS["utf-8"])
