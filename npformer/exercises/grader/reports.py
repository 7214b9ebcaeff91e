"""What is made of the rows of a class: a summary, points, a roster, a page, feedback, Gradescope's file."""

import csv
import html
import json
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from npformer.exercises.grader.grading import UNANSWERED, Row, replacing
from npformer.exercises.reply import PASSES, TITLES
from npformer.exercises.topics import bank, find, words

COMMONEST = 10
NAME_COLUMNS = ("student", "name", "full name")


# --- the summary ----------------------------------------------------------------------------------


class Pattern(NamedTuple):
    """A mistake that students share: how many, where it is taught, and what a teacher can say."""

    students: int
    what: str
    teach: str
    say: str


def summary(rows: Sequence[Row]) -> str:
    """For the class: how many are right, the commonest mistakes, where they are taught, and what to say."""
    answered = [row for row in rows if row.status not in UNANSWERED]
    passed = sum(row.status in PASSES for row in answered)
    unread = sorted({row.submission for row in rows if row.status == "not read"})
    known, unknown = patterns(rows)
    return "\n".join(
        [
            f"{len({row.submission for row in rows})} submissions, {len(answered)} answers, {passed} right.",
            *_ranked("The commonest patterns, and how many students:", known),
            *_ranked("Explained by no known mistake:", unknown),
            *([f"Not read to the end: {', '.join(unread)}."] if unread else []),
        ]
    )


def patterns(rows: Iterable[Row]) -> tuple[list[Pattern], list[Pattern]]:
    """The known mistakes of a class, and the exercises whose answers none explains; the commonest first."""
    known: Counter[tuple[str, str]] = Counter()
    unknown: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row.status in UNANSWERED:
            continue
        known.update((f"{code}  in {row.exercise}", code) for code in row.codes.split())
        if row.status in ("unrecognised", "error"):
            unknown[row.exercise, ""] += 1
    return _sorted(known), _sorted(unknown)


def _sorted(counted: Counter[tuple[str, str]]) -> list[Pattern]:
    first = sorted(counted.items(), key=lambda item: (-item[1], item[0]))[:COMMONEST]
    return [_pattern(n, what, code) for (what, code), n in first]


def _pattern(count: int, what: str, code: str) -> Pattern:
    exercise = bank()[what.rpartition(" ")[2]]
    entry = words().get(code)
    teach, question = (entry.place.teach, entry.question) if entry else (exercise.teach, exercise.question)
    return Pattern(count, what, teach, question or f"Let us read {exercise.id} together.")


def _ranked(heading: str, found: list[Pattern]) -> list[str]:
    lines = [
        line
        for p in found
        for line in (f"  {p.students:4}  {p.what}; teach {p.teach}", f"        say: {p.say}")
    ]
    return [heading, *lines] if found else []


# --- points and a roster --------------------------------------------------------------------------


def read_points(path: Path, ids: Iterable[str]) -> dict[str, float]:
    """Points for each exercise: 1 unless the file says otherwise, in lines such as "pe.table" = 3.

    A line `default = 0` gives nothing to the exercises that the file does not name.
    Raises ValueError for an exercise that the bank does not have, and for what is no number ≥ 0.
    """
    try:
        given = dict(_flat(tomllib.loads(path.read_text(encoding="utf-8-sig"))))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name}: {error}") from None
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
            raise ValueError(f"{path.name}: {name} is {value!r}; expected a number of points")
        if name != "default":
            find(name)
    return {i: float(given.get(i, given.get("default", 1))) for i in ids}


def _flat(table: dict[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    """pe.table = 3 without quotes is a table pe with an entry table; both mean the same here."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value


class Roster(NamedTuple):
    """Who is missing, who handed in more than once, and which submissions belong to nobody."""

    missing: list[str]
    twice: dict[str, list[str]]
    unknown: list[str]
    of: dict[str, str]  # submission: name on the roster

    def __str__(self) -> str:
        twice = [f"{name} ({', '.join(files)})" for name, files in self.twice.items()]
        lists = (("Missing", self.missing), ("More than once", twice), ("Not on the roster", self.unknown))
        return (
            "\n".join(f"{what}: {', '.join(names)}." for what, names in lists if names)
            or "Everybody is there."
        )


def read_roster(path: Path, rows: Iterable[Row]) -> Roster:
    """Compare a list of students, a CSV file with a column student or name, with what was handed in.

    A submission belongs to a student whose name, or any other cell of whose line, is the name in the file
    or stands in the submission's path. Raises ValueError where there is no such column.
    """
    with path.open(newline="", encoding="utf-8-sig", errors="backslashreplace") as file:
        lines = list(csv.DictReader(file))
    column = next((c for c in (lines[0] if lines else ()) if str(c).strip().casefold() in NAME_COLUMNS), None)
    if column is None:
        raise ValueError(
            f"{path.name}: expected a column called {' or '.join(NAME_COLUMNS)}, and a line a student"
        )
    keys = {
        line[column].strip(): {_key(cell) for cell in line.values() if isinstance(cell, str)}
        for line in lines
    }
    handed_in = {row.submission: row.student for row in rows}
    of = {file: _owner(file, student, keys) for file, student in handed_in.items()}
    by_name = defaultdict(list)
    for submission, name in of.items():
        by_name[name].append(submission)
    twice = {name: files for name, files in by_name.items() if name and len(files) > 1}
    return Roster([n for n in keys if n not in by_name], twice, by_name.get("", []), of)


def _key(text: str) -> str:
    return " ".join(re.sub(r"[\W_]+", " ", text.casefold()).split())


def _owner(submission: str, student: str, keys: dict[str, set[str]]) -> str:
    """By the name in the file, or else by the path, where the longest match counts."""
    for name, cells in keys.items():
        if _key(student) and _key(student) in cells:
            return name
    path = f" {_key(re.sub(r'[.](py|ipynb)$', '', submission, flags=re.IGNORECASE))} "
    fits = [
        (len(cell), name) for name, cells in keys.items() for cell in cells if cell and f" {cell} " in path
    ]
    return max(fits)[1] if fits else ""


# --- files ----------------------------------------------------------------------------------------


def by_submission(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each submission, in order."""
    grouped: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row.submission].append(row)
    return dict(grouped)


def earned(rows: Iterable[Row], points: dict[str, float]) -> float:
    """The points of the right answers."""
    return sum(points[row.exercise] for row in rows if row.status in PASSES)


def card(row: Row) -> str:
    """One row as lines to read."""
    said = [line for line in (row.evidence, row.hint, row.question) if line]
    return "\n".join([TITLES.get(row.status, row.status.capitalize()), *said])


def write_gradescope(rows: Sequence[Row], points: dict[str, float], path: Path) -> None:
    """results.json as Gradescope reads it, from the rows of one submission.

    Its fields are those that Gradescope documents: score, and for each of tests its name, score, max_score,
    status, output and visibility.
    """
    tests = [
        {
            "name": row.exercise,
            "score": points[row.exercise] * (row.status in PASSES),
            "max_score": points[row.exercise],
            "status": "passed" if row.status in PASSES else "failed",
            "output": card(row),
            "output_format": "text",
            "visibility": "visible",
        }
        for row in rows
    ]
    with replacing(path) as file:
        json.dump({"score": earned(rows, points), "tests": tests}, file, indent=1)


def write_feedback(rows: Sequence[Row], points: dict[str, float] | None, folder: Path) -> int:
    """A Markdown file for each submission, named after it; returns how many."""
    folder.mkdir(parents=True, exist_ok=True)
    taken: set[str] = set()
    grouped = by_submission(rows)
    for submission, own in grouped.items():
        stem = re.sub(r"[^\w.() -]+", "_", submission).strip(" .")[:150] or "_"
        name, n = stem, 1
        while name.casefold() in taken:
            n += 1
            name = f"{stem}~{n}"
        taken.add(name.casefold())
        with replacing(folder / f"{name}.md") as file:
            file.write(feedback(own, points))
    return len(grouped)


def feedback(rows: Sequence[Row], points: dict[str, float] | None = None) -> str:
    """One student's replies, to send back."""
    answered = [row for row in rows if row.status not in UNANSWERED]
    passed = sum(row.status in PASSES for row in answered)
    lines = [
        f"# {_markdown(rows[0].student or rows[0].submission)}",
        "",
        f"{passed} right of {len(answered)} answered.",
    ]
    if points is not None:
        lines.append(f"Points: {earned(rows, points):g} of {sum(points[row.exercise] for row in rows):g}.")
    lines += [
        f"\nNot read to the end. {_markdown(p)}"
        for p in {r.evidence: 0 for r in rows if r.status == "not read"}
    ]
    for row in answered:
        title, *said = card(row).split("\n")
        lines += ["", f"## {row.exercise}: {title}", *("\n" + _markdown(line) for line in said)]
    missing = [row.exercise for row in rows if row.status in UNANSWERED]
    return "\n".join([*lines, *(["", f"Not answered: {', '.join(missing)}."] if missing else []), ""])


def _markdown(text: str) -> str:
    """Text that Markdown leaves as it is."""
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", text)


# --- one page -------------------------------------------------------------------------------------

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em }}
table {{ border-collapse: collapse }}
th, td {{ padding: .2em .6em; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top }}
td.n {{ text-align: right }}
.right {{ color: #00664b }} .wrong {{ color: #a84300 }} .none {{ color: #767676 }}
</style>
<h1>{title}</h1>
{body}
</html>
"""


def write_page(
    rows: Sequence[Row], path: Path, points: dict[str, float] | None, roster: Roster | None
) -> None:
    """The class on one page that needs nothing else: commonest mistakes, what to teach, a row a student."""
    known, unknown = patterns(rows)
    body = [f"<p>{_safe(summary(rows).splitlines()[0])}</p>"]
    body += _pattern_table("What to teach again", known) + _pattern_table(
        "Explained by no known mistake", unknown
    )
    body += [f"<h2>Roster</h2><p>{_safe(str(roster)).replace(chr(10), '<br>')}</p>"] if roster else []
    body += ["<h2>Students</h2>", *_student_table(by_submission(rows), points, roster)]
    with replacing(path) as file:
        file.write(PAGE.format(title="The class", body="\n".join(body)))


def _safe(text: str) -> str:
    return html.escape(text)


def _pattern_table(heading: str, found: list[Pattern]) -> list[str]:
    lines = [
        f"<tr><td class=n>{p.students}<td>{_safe(p.what)}<td>{_safe(p.teach)}<td>{_safe(p.say)}</tr>"
        for p in found
    ]
    head = "<tr><th>students<th>what<th>teach<th>a line to say</tr>"
    return [f"<h2>{heading}</h2>", f"<table>{head}", *lines, "</table>"] if found else []


def _student_table(
    grouped: dict[str, list[Row]], points: dict[str, float] | None, roster: Roster | None
) -> list[str]:
    lines = []
    for submission, rows in grouped.items():
        passed = sum(row.status in PASSES for row in rows)
        score = f"{passed} of {len(rows)}" if points is None else f"{earned(rows, points):g}"
        name = (roster.of[submission] if roster else "") or rows[0].student
        lines.append(
            f"<tr><td>{_safe(submission)}<td>{_safe(name)}<td class=n>{score}<td>{_marks(rows)}</tr>"
        )
    head = f"<tr><th>submission<th>student<th>{'right' if points is None else 'points'}<th>exercises</tr>"
    return [f"<table>{head}", *lines, "</table>"]


def _marks(rows: Sequence[Row]) -> str:
    """Each exercise with a sign and a colour, and its evidence when the pointer rests on it."""
    signs = []
    for row in rows:
        kind, sign = ("none", "·") if row.status in UNANSWERED else ("wrong", "✗")
        kind, sign = ("right", "✓") if row.status in PASSES else (kind, sign)
        said = _safe(f"{row.codes} {row.evidence}".strip())
        signs.append(f'<span class="{kind}" title="{said}">{sign} {_safe(row.exercise)}</span>')
    return " ".join(signs)
