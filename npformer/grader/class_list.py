"""Read the class list, and find the student who owns each submission.

A class list is a table as a learning management system (LMS) exports it: Canvas, Moodle, Gradescope,
Blackboard, or any table with such columns. The separator is a comma, a semicolon or a tab.

A submission is assigned to the student whose number, e-mail address or login fits. If none fits, the name is
used. If a file fits no student or several students, the grader lists the file, and the teacher decides.
"""

import csv
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from npformer.grader.submissions import Submission, parse_lms_name
from npformer.grader.worker.student_module import decode_source

COLUMNS = {  # for each kind of column: the possible column names, the preferred name first
    "id": "sis user id|student id|sid|id number|orgdefinedid|id|identifier|student number",
    "login": "sis login id|login id|username|login",
    "email": "email|email address|e-mail|e-mail address|mail",
    "name": "student|name|full name|student name",
    "first": "first name|given name",
    "last": "last name|surname|family name",
    "submission": "submission id",
    "late": "lateness (h:m:s)",
}
IDENTIFYING_KINDS = ("id", "login", "email", "name", "last")  # A class list needs one of these kinds.
KEY_KINDS = ("id", "login", "email", "submission")
NOT_STUDENTS = ("points possible", "student, test", "test student")  # Canvas adds rows with these names.
MAX_NAME_WORDS = 5
MIN_WORD_LENGTH = 4  # A shorter word in a path could equal a login by accident, so it is ignored.


class Student(NamedTuple):
    """One row of the class list."""

    id: str
    name: str
    email: str
    keys: frozenset[str] = frozenset()  # the student's number, login, e-mail address and submission id
    late: float | None = None  # seconds after the deadline, from Gradescope's column; otherwise None

    def __str__(self) -> str:
        if self.name and self.id:
            return f"{self.name} ({self.id})"
        return self.name or self.id or self.email


class Owners(NamedTuple):
    """The student who owns each file, the decisions for the teacher, and the students without a file."""

    by_file: dict[str, Student]
    undecided: list[str]
    missing: list[Student]


# --- the class list -------------------------------------------------------------------------------


def read_class_list(path: Path, columns: str = "") -> list[Student]:
    """Return the students in a class list.

    `columns` gives column names that are not in COLUMNS, such as "id=Matrikel,name=Nom". Raises ValueError if
    no column identifies a student.
    """
    lines = [line for line in decode_source(path.read_bytes()).splitlines() if line.strip()] or [""]
    separator = max(",;\t", key=lines[0].count)
    rows = list(csv.DictReader(lines, delimiter=separator))
    first_row = rows[0] if rows else {}
    column_names = [name for name in first_row if name]
    chosen = dict(part.split("=", 1) for part in columns.split(",") if "=" in part)
    _check_chosen_columns(path, chosen, column_names)
    columns_by_kind = _find_columns(column_names) | {kind: [name] for kind, name in chosen.items()}
    if not any(columns_by_kind[kind] for kind in IDENTIFYING_KINDS):
        wanted = "a column such as Student, Name, ID or Email, and one line per student"
        raise ValueError(f"{path.name}: expected {wanted}")
    students = dict.fromkeys(_read_student(row, columns_by_kind) for row in rows)  # Skip repeated rows.
    return [student for student in students if _is_real_student(student)]


def _check_chosen_columns(path: Path, chosen: dict[str, str], column_names: Sequence[str]) -> None:
    """Raise ValueError if the option `--columns` names an unknown kind or an unknown column."""
    for kind, name in chosen.items():
        if kind not in COLUMNS or name not in column_names:
            unknown = f"{kind}={name}"
            known = f"kinds are {', '.join(COLUMNS)}; columns are {', '.join(column_names)}"
            raise ValueError(f"{path.name}: there is no column {unknown!r}; {known}")


def _find_columns(column_names: Sequence[str]) -> dict[str, list[str]]:
    """Return the columns of each kind, in the order in which COLUMNS lists their names."""
    by_lowercase_name = {name.strip().casefold(): name for name in reversed(column_names)}
    found = {}
    for kind, known_names in COLUMNS.items():
        found[kind] = [by_lowercase_name[n] for n in known_names.split("|") if n in by_lowercase_name]
    return found


def _is_real_student(student: Student) -> bool:
    """Return whether a row describes a student. Empty rows and rows that Canvas adds do not."""
    has_content = bool(student.name or student.keys)
    return has_content and student.name.casefold() not in NOT_STUDENTS


def _read_student(row: dict[str, str], columns_by_kind: dict[str, list[str]]) -> Student:
    """Return the student that one row describes."""
    cells = {}
    first_cells = {}
    for kind, columns in columns_by_kind.items():
        cells[kind] = [text for text in ((row[column] or "").strip() for column in columns) if text]
        first_cells[kind] = cells[kind][0] if cells[kind] else ""
    name = first_cells["name"] or f"{first_cells['first']} {first_cells['last']}".strip()
    keys = frozenset(_normalize_key(cell) for kind in KEY_KINDS for cell in cells[kind])
    student_id = first_cells["id"] or first_cells["login"]
    return Student(student_id, name, first_cells["email"], keys, _parse_lateness(first_cells["late"]))


def _parse_lateness(text: str) -> float | None:
    """Convert a time such as "23:59:59" to seconds; return None for an empty cell."""
    if not text:
        return None
    numbers = [float(number) for number in re.findall(r"\d+", text)]
    return sum(number * unit for number, unit in zip(numbers, (3600, 60, 1), strict=False))


def _normalize_key(text: str) -> str:
    """Return a number, login or address in lowercase, without Moodle's word "Participant" before it."""
    return text.strip().casefold().removeprefix("participant ")


def _split_name(text: str) -> list[str]:
    """Return the words of a name in lowercase, without accents and punctuation.

    >>> _split_name("Núñez, Zoë-Anna")
    ['nunez', 'zoe', 'anna']
    """
    decomposed = unicodedata.normalize("NFKD", text)
    without_accents = "".join(c for c in decomposed if not unicodedata.combining(c))
    return re.findall(r"[^\W_]+", without_accents.casefold())


# --- owners ---------------------------------------------------------------------------------------


def find_owners(
    files: Iterable[Submission], claims: dict[str, str], class_list: Sequence[Student] | None
) -> Owners:
    """Find the student who owns each file.

    `claims` has the student's name that each file contains (its claim). A claim decides only if the path of
    the file fits no student or several students. If a claim contradicts the path, the file is also listed
    for the teacher. Without a class list, the student is the person whom the file or its path names.
    """
    to_grade = [file for file in files if not file.skip_reason]
    if class_list is None:
        guesses = {file.name: _guess_student(file, claims.get(file.name, "")) for file in to_grade}
        return Owners(guesses, [], [])
    index = _index_students(class_list)
    by_file: dict[str, Student] = {}
    undecided = []
    for file in to_grade:
        claim = claims.get(file.name, "")
        claimed = _find_students(index, [claim], claim)
        candidates = _choose_candidates(_find_by_path(index, file.original_name), claimed)
        if len(candidates) != 1:
            names = _join_students(candidates) or "no student on the class list"
            undecided.append(f"{file.name} fits {names}")
            continue
        (owner,) = candidates
        by_file[file.name] = owner
        if claimed and owner not in claimed:
            path_owner = f"{file.name} belongs to {owner} by its path"
            undecided.append(f"{path_owner}, but the file names {_join_students(claimed)}")
    owners = set(by_file.values())
    return Owners(by_file, undecided, [student for student in class_list if student not in owners])


def _guess_student(file: Submission, claim: str) -> Student:
    """Return the student whom a file or its path names, for grading without a class list."""
    parts = parse_lms_name(file.original_name)
    student_id = parts.get("id") or parts.get("submission") or ""
    name = claim or parts.get("name") or ""
    if not name and not student_id:
        name = file.original_name
    return Student(student_id, name, "")


def _choose_candidates(by_path: set[Student], claimed: set[Student]) -> set[Student]:
    """Return the students who fit the path. If there is not exactly one, use the claim of the file."""
    if not by_path:
        return claimed
    if len(by_path) > 1 and by_path & claimed:
        return by_path & claimed
    return by_path


def _join_students(students: Iterable[Student]) -> str:
    """Return the names of the students, joined by "and"."""
    return " and ".join(sorted(map(str, students)))


# An index finds students by a key (`Student.keys`) or by a name. In the index, a name is a space, followed by
# the words of the name without spaces. The leading space distinguishes names from keys.
Index: TypeAlias = dict[str, set[Student]]


def _index_students(class_list: Iterable[Student]) -> Index:
    """Return the index of a class list. The entries for "Anna Smith" are " annasmith" and " smithanna"."""
    index = defaultdict[str, set[Student]](set)
    for student in class_list:
        words = _split_name(student.name)
        rotations = [" " + "".join(words[i:] + words[:i]) for i in range(len(words))]
        for key in (*student.keys, *rotations):
            index[key].add(student)
    return dict(index)


def _find_by_path(index: Index, path: str) -> set[Student]:
    """Find students by the number or name that an LMS wrote into the path, or else by any word there."""
    parts = parse_lms_name(path)
    if parts:
        return _find_students(
            index, [parts.get("id", ""), parts.get("submission", "")], parts.get("name", "")
        )
    folders = re.sub(r"\.(py|ipynb)\b.*$", "", path, flags=re.IGNORECASE).split("/")
    words = [word for folder in folders for word in re.split(r"[\s_,()]+", folder)]
    long_words = [word for word in words if len(word) >= MIN_WORD_LENGTH]
    addresses = re.findall(r"[\w.+-]+@[\w.-]+\w", path)
    return _find_students(index, [*folders, *long_words, *addresses], path)


def _find_students(index: Index, keys: Iterable[str], text: str) -> set[Student]:
    """Find students by these keys.

    If no key fits, the longest name of a student that occurs in the text decides.
    """
    found = set[Student]().union(*(index.get(_normalize_key(key), set()) for key in keys))
    if found:
        return found
    words = _split_name(text)
    names = set()
    for start in range(len(words)):
        for count in range(1, MAX_NAME_WORDS + 1):
            names.add(" " + "".join(words[start : start + count]))
    longest = max(names & index.keys(), key=len, default=" ")
    return index.get(longest, set())
