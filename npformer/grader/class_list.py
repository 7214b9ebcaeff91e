"""Who is in the class, and whose each hand-in is: by number, address or login first, by name last.

A register is a table as learning systems export it (Canvas, Moodle, Gradescope, Blackboard, or any with such
columns), with commas, semicolons or tabs. What fits nobody, or more than one, is left for a person to decide.
"""

import csv
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from npformer.grader.submissions import HandIn, shape_of
from npformer.grader.worker.student_module import decode_source

COLUMNS = {  # as the exports of learning systems name them, the first of a kind being the one that is shown
    "id": "sis user id|student id|sid|id number|orgdefinedid|id|identifier|student number",
    "login": "sis login id|login id|username|login",
    "email": "email|email address|e-mail|e-mail address|mail",
    "name": "student|name|full name|student name",
    "first": "first name|given name",
    "last": "last name|surname|family name",
    "submission": "submission id",
    "late": "lateness (h:m:s)",
}
NO_STUDENT = ("points possible", "student, test", "test student")  # rows of Canvas
MOST_WORDS = 5  # of a name


class Student(NamedTuple):
    """One line of the register."""

    id: str
    name: str
    email: str
    keys: frozenset[str] = frozenset()  # what belongs to nobody else: numbers, logins, addresses
    late: float | None = None  # seconds, where the register says it

    def __str__(self) -> str:
        return f"{self.name} ({self.id})" if self.name and self.id else self.name or self.id or self.email


class Whose(NamedTuple):
    """The student of each file, what a person has to decide, and who has handed in nothing."""

    of: dict[str, Student]
    doubtful: list[str]
    missing: list[Student]


def read_register(path: Path, columns: str = "") -> list[Student]:
    """The students of a table; `columns` such as "id=Matrikel,name=Nom" where it has names of its own.

    Raises ValueError where no column tells one student from another.
    """
    lines = [line for line in decode_source(path.read_bytes()).splitlines() if line.strip()] or [""]
    rows = list(csv.DictReader(lines, delimiter=max(",;\t", key=lines[0].count)))
    names = [name for name in (rows[0] if rows else ()) if name]
    own = dict(part.split("=", 1) for part in columns.split(",") if "=" in part)
    if unknown := [f"{k}={v}" for k, v in own.items() if k not in COLUMNS or v not in names]:
        kinds = f"kinds are {', '.join(COLUMNS)}; columns are {', '.join(names)}"
        raise ValueError(f"{path.name}: there is no column {unknown[0]!r}; {kinds}")
    plain = {name.strip().casefold(): name for name in reversed(names)}
    of = {kind: [plain[c] for c in known.split("|") if c in plain] for kind, known in COLUMNS.items()}
    of |= {kind: [name] for kind, name in own.items()}
    if not any(of[kind] for kind in ("id", "login", "email", "name", "last")):
        wanted = "a column such as Student, Name, ID or Email, and a line a student"
        raise ValueError(f"{path.name}: expected {wanted}")
    found = dict.fromkeys(_student(row, of) for row in rows)
    return [s for s in found if (s.name or s.keys) and s.name.casefold() not in NO_STUDENT]


def _student(row: dict[str, str], of: dict[str, list[str]]) -> Student:
    cells = {kind: [(row[column] or "").strip() for column in columns] for kind, columns in of.items()}
    one = {kind: next(filter(None, values), "") for kind, values in cells.items()}
    name = one["name"] or f"{one['first']} {one['last']}".strip()
    keys = [_key(cell) for kind in ("id", "login", "email", "submission") for cell in cells[kind] if cell]
    clock = [float(number) for number in re.findall(r"\d+", one["late"])]
    late = sum(n * size for n, size in zip(clock, (3600, 60, 1), strict=False)) if one["late"] else None
    return Student(one["id"] or one["login"], name, one["email"], frozenset(keys), late)


def _key(text: str) -> str:
    return text.strip().casefold().removeprefix("participant ")  # of Moodle's identifiers


def _words(text: str) -> list[str]:
    """The words of a name, without case, accents and signs.

    >>> _words("Núñez, Zoë-Anna")
    ['nunez', 'zoe', 'anna']
    """
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return re.findall(r"[^\W_]+", plain.casefold())


def whose(files: Iterable[HandIn], claims: dict[str, str], register: Sequence[Student] | None) -> Whose:
    """Whose each file is. `claims` has what a file itself calls its student; it counts last.

    Without a register everybody is who the name of the file, or the file itself, says.
    """
    index, of, doubtful = _index(register or ()), dict[str, Student](), []
    for each in (each for each in files if not each.passed_over):
        claim = claims.get(each.name, "")
        if register is None:
            shape = shape_of(each.named)
            own = shape.get("id") or shape.get("submission") or ""
            name = claim or shape.get("name") or (not own and each.named) or ""
            of[each.name] = Student(own, name, "")
            continue
        fits, claimed = _by_place(index, each.named), _find(index, [claim], claim)
        fits = fits & claimed if len(fits) > 1 and fits & claimed else fits or claimed
        if len(fits) != 1:
            doubtful.append(f"{each.name} fits {_all(fits) or 'nobody on the register'}")
            continue
        (of[each.name],) = fits
        if claimed and not fits & claimed:
            doubtful.append(f"{each.name} is {_all(fits)}'s by its place, and says it is {_all(claimed)}'s")
    here = set(of.values())
    return Whose(of, doubtful, [student for student in register or () if student not in here])


def _all(students: Iterable[Student]) -> str:
    return " and ".join(sorted(map(str, students)))


Index: TypeAlias = dict[str, set[Student]]  # by keys, and, after a blank, by names in every order


def _index(register: Iterable[Student]) -> Index:
    index = defaultdict[str, set[Student]](set)
    for student in register:
        words = _words(student.name)
        turns = (" " + "".join(words[i:] + words[:i]) for i in range(len(words)))
        for key in (*student.keys, *turns):
            index[key].add(student)
    return dict(index)


def _by_place(index: Index, name: str) -> set[Student]:
    """By what the learning system wrote into the name, or else by any whole word of the path."""
    if shape := shape_of(name):
        return _find(index, [shape.get("id", ""), shape.get("submission", "")], shape.get("name", ""))
    parts = re.sub(r"\.(py|ipynb)\b.*$", "", name, flags=re.IGNORECASE).split("/")
    words = [word for part in parts for word in re.split(r"[\s_,()]+", part) if len(word) > 3]
    return _find(index, [*parts, *words, *re.findall(r"[\w.+-]+@[\w.-]+\w", name)], name)


def _find(index: Index, keys: Iterable[str], text: str) -> set[Student]:
    """By any of these keys, or else by the longest name that stands in a text."""
    if found := set[Student]().union(*(index.get(_key(key), set()) for key in keys)):
        return found
    words = _words(text)
    runs = {" " + "".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, i + 1 + MOST_WORDS)}
    return index.get(max(runs & index.keys(), key=len, default=" "), set())
