"""The commands npformer check, grade, assignment and exam."""

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SHELTER = (
    "Each submission runs in a process of its own, which holds no answers and no checker, with limits on "
    "time, memory, processes, file size and output; what it has started ends with it. On Linux, where the "
    "system lets us, it also sees a root directory of its own with Python and nothing else, has no network "
    "and sees no other process; the last line says where that is not so. This guards against mistakes and "
    "tricks. It is not a sandbox against an attacker: for that, run the whole command in a container."
)
CONVENTION = (
    "The exercise pe.table is answered by the top-level name pe_table, a function or a value, or by an entry "
    'answers["pe.table"] of a dict. A line student = "Ada" chooses the numbers that belong to Ada.'
)


def place_for(name: str) -> Path:
    """Where a file is to be written: asked before any work is done, so that none is lost.

    Raises ValueError for a folder, and in a folder that does not exist or cannot be written.
    """
    path = Path(name)
    if path.exists() and not path.is_file():
        raise ValueError(f"{name!r} is {'a folder' if path.is_dir() else 'a device'}; expected a file")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {str(path.parent)!r}")
    return _writable(path.parent, name, path)


def folder_for(name: str) -> Path:
    """The same for a folder, which may be there; if not, it will be made, with those above it."""
    path = Path(name)
    first = next(above for above in (path, *path.absolute().parents) if above.exists())
    if not first.is_dir():
        raise ValueError(f"{str(first)!r} is a file; expected a folder")
    return _writable(first, name, path)


def _writable(folder: Path, name: str, path: Path) -> Path:
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{name!r} cannot be written; choose another place")
    return path


# --- what can be typed ----------------------------------------------------------------------------

ENDS = "The exit code is 1 when something is wrong, not read, or set and not answered."
EXAM = (
    "Some questions to remember, to compute, to find the bug, to derive, in turn from every topic; a "
    "mark is a minute. The same seed draws the same paper, another seed another one of the same kind. "
    "FOLDER gets exam.html, to print, and exam.ipynb, both again as exam-key, and exam.toml with the marks: "
    "npformer grade HANDED_IN --assignment FOLDER/exam.toml --csv OUT.csv marks the notebooks."
)
FILES = {  # what grade reads and writes
    "--grades": ("FILE.csv", "a row a student, for the gradebook"),
    "--register": ("FILE.csv", "the students, as your learning system exports them"),
    "--columns": ("id=A,name=B", "the register's columns, where they are not known"),
    "--html": ("FILE", "a page on the class; it prints on two sheets"),
    "--feedback": ("FOLDER", "a Markdown file for each student, to send back"),
    "--anonymous": ("KEY.csv", "numbers in the place of names; the key says whose they are"),
}


def add_grader(commands: Any) -> None:
    """Register the commands with a parser's subcommands."""
    what = "check the answers in one file"
    check = _add(commands, "check", what, _check, f"{CONVENTION} {ENDS} {SHELTER}")
    check("file", metavar="FILE", help="a .py file or a notebook; or a folder that holds just one")
    check("--gradescope", metavar="FILE", help="write Gradescope's results.json")
    what = "grade a folder of submissions, and sum up the class"
    grade = _add(commands, "grade", what, _grade, f"{CONVENTION} {SHELTER}")
    grade("folder", metavar="FOLDER", help="with .py files, notebooks and zip files; or one of these")
    grade("--csv", required=True, metavar="OUT.csv", help="one row for each submission and exercise")
    for name, (metavar, says) in FILES.items():
        grade(name, default="", metavar=metavar, help=says)
    grade("--resume", action="store_true", help="go on with a run that was interrupted")
    says = "submissions at a time; the cores unless given"
    grade("--workers", type=int, default=_cores(), metavar="N", help=says)
    for add in (check, grade):
        _add_limits(add)
    what = "write a notebook to hand out, with places for answers and tests that nbgrader or otter-grader run"
    hand_out = _add(commands, "assignment", what, _assignment)
    hand_out("--exercises", required=True, metavar="IDS", help="with commas between")
    hand_out("--out", required=True, metavar="FILE.ipynb", help="the notebook")
    hand_out("--points", type=float, default=1.0, metavar="N", help="for each exercise; 1 unless given")
    hand_out("--format", choices=("nbgrader", "otter"), default="nbgrader", help="nbgrader unless given")
    what = "draw an exam from the bank with its key, as a page and as a notebook"
    _add_exam(_add(commands, "exam", what, _exam, EXAM))


def _add_limits(add: Any) -> None:
    add("--exercises", "--only", metavar="IDS", help="what was set, with commas between; all unless given")
    add("--assignment", metavar="FILE.toml", help="or a file with what was set, its points and the due date")
    add("--level", type=int, choices=(1, 2, 3), default=3, help="1 says where, 2 what, 3 why, and asks")
    add("--seconds", type=float, default=20.0, help="of CPU, for one submission; 20 unless given")
    add("--wall", type=float, default=0.0, help="seconds by the clock; three times the CPU's unless given")
    add("--megabytes", type=int, default=2048, help="of memory, for one process; 2048 unless given")


def _add_exam(add: Any) -> None:
    add("--seed", required=True, metavar="NAME", help="any word; it draws the questions and their numbers")
    add("--out", required=True, metavar="FOLDER", help="where to")
    add("--minutes", type=int, default=45, metavar="N", help="20, 45 or 90; 45 unless given")
    add("--lessons", metavar="NN,NN", help="ask what these lessons teach, such as 01,03,04; all unless given")
    add("--force", action="store_true", help="overwrite the files that are there")


def _add(commands: Any, name: str, what: str, run: Any, more: str = "") -> Any:
    """A command; comes back as what adds its options."""
    said = f"{what[0].upper()}{what[1:]}. {more}".strip()
    command = commands.add_parser(name, help=what, description=said)
    command.set_defaults(run=run)
    return command.add_argument


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _set(options: argparse.Namespace) -> Any:
    """What was set, by a file, by a list of ids, or the whole bank."""
    from npformer.grader.marks import assignment_of, read_assignment

    if not hasattr(os, "fork"):
        here = "this system cannot start the process in which a submission runs"
        raise ValueError(f"{here}; use WSL or a container, or check(...) in a notebook")
    if options.assignment:
        return read_assignment(_given(options.assignment))
    return assignment_of(_ids(options.exercises))


def _ids(chosen: str | None) -> list[str]:
    from npformer.exercises import list_exercises, show

    if not chosen:
        return [exercise.id for exercise in list_exercises()]
    ids = [each.strip().partition("@")[0] for each in chosen.split(",")]
    for exercise_id in ids:
        show(exercise_id)  # raises ValueError for one that the bank does not have
    return list(dict.fromkeys(ids))


def _limits(options: argparse.Namespace, numbers: str) -> Any:
    from npformer.grader.judge import Limits

    if not 0 < options.seconds < 1e6 or not 0 <= options.wall < 1e6 or options.megabytes < 1:
        raise ValueError("--seconds, --wall and --megabytes are numbers above 0")
    return Limits(options.seconds, options.megabytes, options.level, options.wall, numbers)


def _given(name: str) -> Path:
    """A file that is to be read; ValueError where it is not there."""
    if Path(name).is_dir():
        raise ValueError(f"{name!r} is a folder; expected a file")
    if not Path(name).is_file():
        raise ValueError(f"there is no file {name!r}")
    return Path(name)


# --- check ----------------------------------------------------------------------------------------


def _check(options: argparse.Namespace) -> Iterator[str]:
    from npformer.grader.marks import card, write_gradescope

    assignment = _set(options)
    limits = _limits(options, assignment.numbers)
    out = place_for(options.gradescope) if options.gradescope else None
    try:
        rows = _rows_of_one(Path(options.file), assignment, limits)
    except ValueError as error:
        if out:  # Gradescope waits for a file, and shows it
            write_gradescope([], assignment, out, str(error))
        raise
    if out:
        write_gradescope(rows, assignment, out)
    answered = [row for row in rows if row.answered]
    yield from (f"{row.exercise}: " + card(row).replace("\n", "\n  ") + "\n" for row in answered)
    yield from _not_there(options, rows)
    passed = sum(row.passed for row in answered)
    yield f"{passed} right of {len(answered)} answered; {len(rows)} are set."
    all_asked = len(answered) == len(rows) or not (options.exercises or options.assignment)
    all_read = not any(row.status == "not read" for row in rows)
    if not (answered and passed == len(answered) and all_asked and all_read):
        raise SystemExit(1)


def _rows_of_one(path: Path, assignment: Any, limits: Any) -> Any:
    from npformer.grader.hand_ins import hand_ins
    from npformer.grader.run import grade

    files = [each for each in hand_ins(path) if not each.passed_over]
    if len(files) > 1:
        raise ValueError(f"{str(path)!r} holds {len(files)} files to check; expected one")
    return grade(files, list(assignment.points), limits=limits, hidden=[str(path.absolute().parent)])


def _not_there(options: argparse.Namespace, rows: Any) -> Iterator[str]:
    """What was not read or is under a wrong name, what is missing; how to answer, where nothing is."""
    missing = [row for row in rows if not row.answered]
    for why in dict.fromkeys(row.evidence for row in missing if row.evidence):
        yield f"Not read to the end. {why}\n" if any(r.status == "not read" for r in missing) else f"{why}\n"
    if missing and (options.exercises or options.assignment):
        yield f"Not answered: {', '.join(row.exercise for row in missing)}.\n"
    if len(missing) == len(rows):
        yield f"No answer was found. {CONVENTION}\n"


# --- grade ----------------------------------------------------------------------------------------


def _grade(options: argparse.Namespace) -> Iterator[str]:
    from npformer.grader.hand_ins import hand_ins
    from npformer.grader.register import read_register
    from npformer.grader.run import Journal, grade

    assignment = _set(options)
    limits, out = _limits(options, assignment.numbers), _places(options)
    register = read_register(_given(options.register), options.columns) if options.register else None
    top, left_open = Path(options.folder).absolute(), set[str]()
    files, ids = hand_ins(Path(options.folder)), list(assignment.points)
    journal = Journal(out, options.resume)
    with _interrupted(out):
        how = {"limits": limits, "workers": options.workers, "tell": _tell}
        hidden = [str(top if top.is_dir() else top.parent)]
        rows = grade(files, ids, hidden=hidden, journal=journal, left_open=left_open, **how)
        said = _written(options, rows, files, register, assignment)
        journal.remove()
    yield said
    if left_open:
        yield f"This system did not close for them: {', '.join(sorted(left_open))}. Run this in a container."
    yield f"written: {out}"


def _places(options: argparse.Namespace) -> Path:
    """Whether all that is written at the end has its place; the table's."""
    from npformer.grader.marks import numbers_of

    journal = Path(f"{options.csv}.journal")
    if journal.exists() and not options.resume:
        begun = "is of a run that was interrupted: --resume goes on; to begin anew, remove it"
        raise ValueError(f"{str(journal)!r} {begun}")
    for name in filter(None, (options.csv, options.html, options.grades, options.anonymous)):
        place_for(name)
    if options.feedback:
        folder_for(options.feedback)
    if options.anonymous:
        numbers_of(Path(options.anonymous))
    return Path(options.csv)


def _written(options: argparse.Namespace, rows: Any, files: Any, register: Any, assignment: Any) -> str:
    """All that was asked for; and the summary."""
    from npformer.grader import alike, marks, page
    from npformer.grader.register import whose

    owners = whose(files, {row.submission: row.student for row in rows}, register)
    names = {file: student.name for file, student in owners.of.items()}
    rows = [row._replace(student=names.get(row.submission, row.student)) for row in rows]
    if options.anonymous:
        rows, files, owners = marks.without_names(rows, files, owners, Path(options.anonymous))
    given = marks.marks(files, rows, owners, assignment)
    marks.write_rows(rows, assignment, Path(options.csv))
    sent = page.write_feedback(given, assignment, Path(options.feedback)) if options.feedback else {}
    if options.grades:
        marks.write_grades(given, assignment, sent, Path(options.grades))
    if options.html:
        pairs = alike.alike((str(owners.of[f.name]), f.kind, f.read()) for f in files if f.name in owners.of)
        page.write_page(rows, given, owners, pairs, assignment, Path(options.html))
    return page.summary(rows, given, owners)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def _interrupted(out: Path) -> Iterator[None]:
    """Ctrl+C and SIGTERM end the run in order: what is done is kept, and a line says how to go on."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt(number)

    goes_on = f"what is done is in {out}.journal, and --resume goes on from there"
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt as error:
        _tell(f"interrupted; {goes_on}")
        raise SystemExit(128 + (error.args[0] if error.args else signal.SIGINT)) from None
    except OSError as error:
        _tell(goes_on if error.filename else f"in {str(out.parent)!r}: {error.strerror}; {goes_on}")
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


# --- assignment -----------------------------------------------------------------------------------


def _assignment(options: argparse.Namespace) -> Iterator[str]:
    from npformer.grader.assignments import write_assignment

    out = place_for(options.out)
    written = write_assignment(_ids(options.exercises), out, points=options.points, format=options.format)
    yield from (f"written: {path}" for path in written)


# --- exam -----------------------------------------------------------------------------------------


def _exam(options: argparse.Namespace) -> Iterator[str]:
    from npformer.grader.exam import draw_exam, write_exam

    folder = folder_for(options.out)
    lessons = [f"{number.strip():0>2}" for number in options.lessons.split(",")] if options.lessons else []
    exam = draw_exam(options.seed, options.minutes, lessons)
    written = write_exam(exam, folder, force=options.force)
    yield from (f"written: {path}" for path in written)
