"""Read the class list, and find the student who owns each submission.

A class list is a table that a learning management system (LMS) exports. Other tables with such columns work,
too. The known systems are Canvas, Moodle, Gradescope, Blackboard, Brightspace, nbgrader, GitHub Classroom and
Google Classroom.

A submission is assigned to the student whose number, e-mail address or login fits. If none fits, the name is
used. If a file fits no student or several students, the grader lists the file, and the teacher decides.
"""

import posixpath
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from npformer.grader import tables
from npformer.grader.submissions import OTTER_TIME, LmsName, Submission, parse_lms_name
from npformer.grader.tables import Table, normalize_column_name
from npformer.grader.times import parse_duration, parse_time
from npformer.grader.worker.protocol import readable

COLUMNS = {  # for each kind of column: the possible column names, the preferred name first
    "id": "sis user id|student id|sid|id number|id-nummer|numéro d'identification|número de id|orgdefinedid"
    "|roster identifier|id|identifier|identifiant|identificador|student number|user id|canvas user id"
    "|lms user id|integration id",
    "login": "sis login id|login id|username|anmeldename|nom d'utilisateur|nombre de usuario|login"
    "|github username",
    "email": "email|email address|e-mail|e-mail address|e-mail-adresse|adresse de courriel"
    "|dirección de correo|mail",
    "name": "student|name|full name|vollständiger name|nom complet|nombre completo|student name",
    "first": "first name|firstname|given name|vorname|prénom|nombre",
    "last": "last name|lastname|surname|family name|nachname|nom|nom de famille|apellido(s)",
    "submission": "submission id",
    "role": "role|roles",
    "late": "lateness (h:m:s)",
    "minutes": "minutes late|late (minutes)",
    "seconds": "seconds late",
    "submitted": "last modified (submission)|zuletzt geändert (abgabe)|dernière modification (travail remis)"
    "|última modificación (entrega)|submission time",
}
IDENTIFYING_KINDS = ("id", "login", "email", "name", "last")  # A class list needs one of these kinds.
KEY_KINDS = ("id", "login", "email", "submission")
LATENESS_KINDS = ("late", "minutes", "seconds", "submitted")  # the first one that is not empty counts
TEST_STUDENTS = ("student, test", "test student")  # Canvas adds this student.
SUMMARY_ROWS = (  # rows with these names and without a number or address, from Canvas and Google Classroom
    "points possible",
    "date",
    "points",
    "max points",
    "class average",
)
STAFF_ROLES = (
    "instructor",
    "teacher",
    "non-editing teacher",
    "ta",
    "teaching assistant",
    "reader",
    "manager",
)
STUDENT_SUFFIX = re.compile(r"\.(zip|(py|ipynb)(\.txt|\.json)?)$", re.IGNORECASE)
GRADESCOPE_EXPORT = re.compile(r"^assignment_\d+_export/")  # the number of the assignment, not of a student
ALL_REPOSITORIES = "submissions"  # `gh classroom clone student-repos` clones all into hw1-submissions
# Moodle writes one of these words before a number, in English, German, French or Spanish.
PARTICIPANT = re.compile(r"(participante?|teilnehmer(/|\*)?in) ?(?=\d)")
PARTICIPANT_WORDS = {"participant", "participante", "teilnehmerin"}  # the same words in names of files
MAX_HEADER_LENGTH = 300  # the largest length of the columns in an error message; the file may be binary
MAX_NAME_WORDS = 5
MIN_KEY_LENGTH = 4  # A shorter word in a path could equal a login or number by accident, so it is ignored.


class Student(NamedTuple):
    """One row of the class list."""

    id: str
    name: str
    email: str
    keys: frozenset[str] = frozenset()  # the student's number, login, e-mail address and submission id
    late: float | None = None  # seconds after the deadline, if the class list has them
    submitted: float | None = None  # the time of submission in seconds since 1970, if the class list has it
    unread_time: str | None = None  # the cell of the lateness or the time, if the cell cannot be read

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

    `columns` gives column names that are not in COLUMNS, such as "id=Matrikel,name=Navn". Raises ValueError
    if no column identifies a student.
    """
    students = read_students(tables.read_table(path), path.name, columns)
    return list(dict.fromkeys(student for student in students if student))  # Skip repeated rows.


def read_students(table: Table, file_name: str, columns: str = "") -> list[Student | None]:
    """Return the student of each row of a table; None for a row that describes no student."""
    chosen = dict(part.split("=", 1) for part in columns.split(",") if "=" in part)
    columns_by_kind = _find_columns(table.header) | _find_chosen_columns(file_name, chosen, table.header)
    if not any(columns_by_kind[kind] for kind in IDENTIFYING_KINDS):
        wanted = "a column such as Student, Name, ID or Email, and one line per student"
        known = readable(", ".join(table.header), MAX_HEADER_LENGTH)
        raise ValueError(f"{file_name}: expected {wanted}; the columns are {known}")
    return [_read_student(row, columns_by_kind) for row in table.rows]


def _find_chosen_columns(
    file_name: str, chosen: dict[str, str], column_names: Sequence[str]
) -> dict[str, list[int]]:
    """Return the columns that the option `--columns` names.

    Raises ValueError if the option names an unknown kind or an unknown column.
    """
    found = {}
    for kind, name in chosen.items():
        index = tables.find_column(column_names, name)
        if kind not in COLUMNS or index is None:
            unknown = f"{kind}={name}"
            known = f"kinds are {', '.join(COLUMNS)}; columns are {', '.join(column_names)}"
            raise ValueError(f"{file_name}: there is no column {unknown!r}; {known}")
        found[kind] = [index]
    return found


def _find_columns(column_names: Sequence[str]) -> dict[str, list[int]]:
    """Return the indices of the columns of each kind, in the order in which COLUMNS lists their names."""
    index_by_name = {}
    for index, name in reversed(list(enumerate(column_names))):
        index_by_name[normalize_column_name(name)] = index
    found = {}
    for kind, known_names in COLUMNS.items():
        found[kind] = [index_by_name[name] for name in known_names.split("|") if name in index_by_name]
    return found


def _read_student(row: list[str], columns_by_kind: dict[str, list[int]]) -> Student | None:
    """Return the student that one row describes. Return None for staff, test students and summary rows."""
    cells = {}
    first_cells = {}
    for kind, columns in columns_by_kind.items():
        texts = [" ".join(row[column].split()) for column in columns]
        cells[kind] = [text for text in texts if text]
        first_cells[kind] = cells[kind][0] if cells[kind] else ""
    name = first_cells["name"] or f"{first_cells['first']} {first_cells['last']}".strip()
    keys = frozenset(normalize_key(cell) for kind in KEY_KINDS for cell in cells[kind])
    student_id = (first_cells["id"] or first_cells["login"]).removeprefix("#")
    if not name and " " in student_id:  # GitHub Classroom's identifier is often the name.
        name = student_id
    is_summary = not keys and name.casefold() in ("", *SUMMARY_ROWS)
    is_test = name.casefold() in TEST_STUDENTS
    is_staff = first_cells["role"].casefold() in STAFF_ROLES
    if is_summary or is_test or is_staff:
        return None
    student = Student(student_id, name, first_cells["email"], keys)
    has_lateness = any(columns_by_kind[kind] for kind in LATENESS_KINDS)
    return _add_lateness(student, first_cells) if has_lateness else student


def _add_lateness(student: Student, cells: dict[str, str]) -> Student:
    """Return the student with the lateness or the time of submission from the first cell with a text."""
    kind = next((kind for kind in LATENESS_KINDS if cells[kind]), "late")
    text = cells[kind]
    if kind == "submitted":
        student = student._replace(submitted=parse_time(text))
    elif kind == "late":
        student = student._replace(late=parse_duration(text))
    elif re.fullmatch(r"-?\d+(\.\d*)?", text):
        student = student._replace(late=float(text) * (60 if kind == "minutes" else 1))
    if student.late is None and student.submitted is None:
        student = student._replace(unread_time=text.strip("-"))  # Moodle writes "-" for no time.
    return student


def normalize_key(text: str) -> str:
    """Return a number, login or address in lowercase.

    Moodle's word "Participant" and Brightspace's "#" before it are removed.

    >>> normalize_key("Teilnehmer/in88")
    '88'
    """
    key = text.strip().casefold()
    match = PARTICIPANT.match(key)
    return key[match.end() :] if match else key.removeprefix("#")


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

    `claims` maps each file to its claim, the text that the file gives as `student`. A claim decides only if
    the path of the file fits no student or several students. If a claim contradicts the path, the file is
    also listed for the teacher. Without a class list, the student is the person whom the file or its path
    names.
    """
    to_grade = [file for file in files if not file.skip_reason]
    if class_list is None:
        guesses = {file.name: _guess_student(file, claims.get(file.name, "")) for file in to_grade}
        return Owners(guesses, [], [])
    index = index_students(class_list)
    top = _find_class_folder(index, [file.original_name for file in to_grade])
    paths = {file.name: file.original_name.removeprefix(top) for file in to_grade}
    prefix = _find_repository_prefix(index, paths.values())
    by_file: dict[str, Student] = {}
    undecided = []
    for file in to_grade:
        claimed = _find_by_claim(index, claims.get(file.name, ""))
        by_path = _find_by_path(index, paths[file.name], prefix)
        candidates = _choose_candidates(by_path, claimed)
        if len(candidates) == 1:
            (by_file[file.name],) = candidates
        problem = _describe_conflict(file.name, candidates, claimed)
        if problem:
            undecided.append(problem)
    owners = set(by_file.values())
    return Owners(by_file, undecided, [student for student in class_list if student not in owners])


def _guess_student(file: Submission, claim: str) -> Student:
    """Return the student whom a file or its path names, for grading without a class list."""
    lms_name = parse_lms_name(file.original_name)
    if lms_name is None:
        return Student("", claim or file.original_name, "")
    return Student(lms_name.id, claim or lms_name.name, "")


def _choose_candidates(by_path: set[Student], claimed: set[Student]) -> set[Student]:
    """Return the students who fit a file, by its path and its claim.

    If no student fits the path, the claim decides. If several do, only those who also fit the claim remain,
    unless none of them fits it.
    """
    if not by_path:
        return claimed
    if len(by_path) > 1 and by_path & claimed:
        return by_path & claimed
    return by_path


def _describe_conflict(file: str, candidates: set[Student], claimed: set[Student]) -> str:
    """Return a message if the teacher must decide who owns a file, otherwise ""."""
    if len(candidates) != 1:
        return f"{file} fits {_join_students(candidates) or 'no student on the class list'}"
    (owner,) = candidates
    if claimed and owner not in claimed:
        return f"{file} belongs to {owner} by its path, but the file names {_join_students(claimed)}"
    return ""


def _join_students(students: Iterable[Student]) -> str:
    """Return the names of the students, joined by "and"."""
    return " and ".join(sorted(map(str, students)))


# An index finds students by a key (`Student.keys`) or by a name. In the index, a name is a space, followed by
# the words of the name without spaces. The leading space distinguishes names from keys. A name of one word
# has two spaces, because it may only match a whole text: "Ben" must not be found in "Ben Ode".
Index: TypeAlias = dict[str, set[Student]]


def index_students(class_list: Iterable[Student]) -> Index:
    """Return the index of a class list. The entries for "Anna Smith" are " annasmith" and " smithanna"."""
    index = defaultdict[str, set[Student]](set)
    for student in class_list:
        words = _split_name(student.name)
        spaces = "  " if len(words) == 1 else " "
        rotations = [spaces + "".join(words[i:] + words[:i]) for i in range(len(words))]
        for key in (*student.keys, *rotations):
            index[key].add(student)
    return dict(index)


def find_same_student(index: Index, student: Student) -> set[Student]:
    """Find the student of another table by a number, login or address, or else by the whole name."""
    found = set[Student]().union(*(index.get(key, set()) for key in student.keys))
    return found or _find_by_whole_name(index, student.name)


def _find_by_path(index: Index, path: str, prefix: str) -> set[Student]:
    """Find students by the first folder or file name in a path that identifies anyone.

    Students choose all names below their own folder, so later names do not count.
    """
    for part in OTTER_TIME.sub("", GRADESCOPE_EXPORT.sub("", path)).split("/"):
        lms_name = parse_lms_name(part)
        if lms_name:
            return _find_by_lms_name(index, lms_name)
        login = part.casefold().removeprefix(prefix)
        if prefix and login != part.casefold() and login != ALL_REPOSITORIES:
            return index.get(login, set())
        found = _find_by_text(index, STUDENT_SUFFIX.sub("", part))
        if found:
            return found
    return set()


def _find_by_lms_name(index: Index, lms_name: LmsName) -> set[Student]:
    """Find students by the number that an LMS wrote, or else by the name.

    For group submissions, Moodle writes the number and the name of the group. This number can be equal to
    the number of a student, so the name must have a word in common with the student's name.
    """
    found = index.get(normalize_key(lms_name.id), set())
    if lms_name.system == "blackboard":
        found = _find_by_login_after_title(index, lms_name.id)
    written_words = set(_split_name(lms_name.name))
    names_someone = not written_words <= PARTICIPANT_WORDS
    must_compare = lms_name.system == "moodle" and names_someone
    if found and must_compare:
        return {student for student in found if _shares_word(student, written_words)}
    return found or _find_by_name(index, lms_name.name)


def _find_by_login_after_title(index: Index, text: str) -> set[Student]:
    """Find students by a login at the end of a text. Titles and logins can contain underscores."""
    parts = text.split("_")
    logins = ["_".join(parts[start:]) for start in range(len(parts))]
    return set[Student]().union(*(index.get(normalize_key(login), set()) for login in logins))


def _shares_word(student: Student, words: set[str]) -> bool:
    """Return whether the student's name contains one of these words, or the class list has no name."""
    own_words = _split_name(student.name)
    return not own_words or not words.isdisjoint(own_words)


def _find_by_claim(index: Index, claim: str) -> set[Student]:
    """Find students by the line `student = …` of a file, which is a key or contains a name."""
    found = index.get(normalize_key(claim), set()) or _find_by_whole_name(index, claim)
    return found or _find_by_name(index, claim)


def _find_by_text(index: Index, text: str) -> set[Student]:
    """Find students by the name of a folder or file, which is a key or a name, or contains one.

    A word of the text counts as a key if it comes first, has a digit or is an e-mail address.
    """
    found = index.get(normalize_key(text), set()) or _find_by_whole_name(index, text)
    if found:
        return found
    words = re.split(r"[\s_,()<>]+", text)
    long_words = [word for word in words if len(word) >= MIN_KEY_LENGTH]
    keys = [word for word in long_words if word == words[0] or re.search(r"\d", word)]
    addresses = re.findall(r"[\w.+-]+@[\w.-]+\w", text)
    found = found.union(*(index.get(normalize_key(key), set()) for key in (*keys, *addresses)))
    return found or _find_by_name(index, text)


def _find_by_whole_name(index: Index, text: str) -> set[Student]:
    """Find students whose name is the whole text."""
    name = "".join(_split_name(text))
    return index.get(f" {name}", set()) | index.get(f"  {name}", set())


def _find_by_name(index: Index, text: str) -> set[Student]:
    """Find students by the longest name of two words or more that the text contains."""
    words = _split_name(text)
    names = set()
    for start in range(len(words)):
        for count in range(1, MAX_NAME_WORDS + 1):
            names.add(" " + "".join(words[start : start + count]))
    longest = max(names & index.keys(), key=len, default=" ")
    return index.get(longest, set())


def _find_class_folder(index: Index, paths: Sequence[str]) -> str:
    """Return the folder of the whole class with a slash at its end, or "".

    The name of this folder can contain a number that is also a student's number, such as the number of the
    assignment. So a folder with all files does not identify a student if two students have files in it.
    """
    folders = posixpath.commonprefix([path.split("/")[:-1] for path in paths])
    top = "".join(f"{folder}/" for folder in folders)
    rests = [path.removeprefix(top) for path in paths]
    prefix = _find_repository_prefix(index, rests)
    found = {student for rest in rests for student in _find_by_path(index, rest, prefix)}
    return top if len(found) > 1 else ""


def _find_repository_prefix(index: Index, paths: Iterable[str]) -> str:
    """Return the beginning of the names of GitHub Classroom's folders, such as "hw1-" for `hw1-ada`.

    The beginning is the same for the whole class. Therefore the result is the beginning that precedes a login
    in the largest number of folders.
    """
    folders = {part for path in paths for part in path.casefold().split("/")[:2]}
    counts = Counter[str]()
    for folder in folders:
        for match in re.finditer("-", folder):
            if folder[match.end() :] in index:
                counts[folder[: match.end()]] += 1
    return max(sorted(counts, key=len), key=lambda prefix: counts[prefix], default="")
