"""The commands npformer exercises, show, check, grade and assignment."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LEVELS = (1, 2, 3)
SHELTER = (
    "Each submission runs in a process of its own, which holds no answers and no checker, with limits on "
    "time, memory, processes, file size and output; what it has started ends with it. On Linux, where the "
    "system lets us, it also has no network, sees no other process, and can write to its own temporary "
    "folder only; the last line says where that is not so. This guards against mistakes and tricks. It is "
    "not a sandbox against an attacker: for that, --container runs each submission in docker or podman, "
    "without network or privileges. Without a container and outside Linux, this is not protected: the "
    "network, and whatever your own user may read and write by its full path."
)
CONVENTION = (
    "The exercise pe.table is answered by the top-level name pe_table, a function or a value, or by an entry "
    'answers["pe.table"] of a dict. A line student = "Ada" chooses the numbers that belong to Ada.'
)
ENGINE_SECONDS = 60.0  # for an engine to answer
FILES = {
    "--points": ("FILE.toml", 'points an exercise, such as "pe.table" = 3; 1 unless given'),
    "--gradescope": ("FILE", "write the results of one submission as Gradescope's results.json"),
}


def place_for(name: str) -> Path:
    """Where a file is to be written: asked before any work is done, so that none is lost.

    Raises ValueError for a folder, and in a folder that does not exist or cannot be written.
    """
    path = Path(name)
    if path.exists() and not path.is_file():
        raise ValueError(f"{name!r} is {'a folder' if path.is_dir() else 'a device'}; expected a file")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {str(path.parent)!r}")
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"{name!r} cannot be written; choose another place")
    return path


def folder_for(name: str) -> Path:
    """The same for a folder, which may be there; if not, it will be made, with those above it."""
    path = Path(name)
    first = next(above for above in (path, *path.absolute().parents) if above.exists())
    if not first.is_dir():
        raise ValueError(f"{str(first)!r} is a file; expected a folder")
    if not os.access(first, os.W_OK):
        raise ValueError(f"{name!r} cannot be written; choose another place")
    return path


def add_commands(commands: Any) -> None:
    """Register the commands with a parser's subcommands."""
    _add(commands, "exercises", "print every exercise of the bank, the easy ones first", _exercises)
    show = _add(commands, "show", "print one exercise", _show)
    show.add_argument("id", metavar="ID", help="such as pe.entry, or pe.entry@Ada for Ada's own numbers")
    _add_check(commands)
    _add_grade(commands)
    _add_assignment(commands)


def _add_check(commands: Any) -> None:
    ends = "The exit code is 1 when something is wrong, not read, or asked for by --only and not answered."
    check = _add(commands, "check", "check the answers in one file", _check, f"{CONVENTION} {ends} {SHELTER}")
    check.add_argument("file", metavar="FILE", help="a .py file or a notebook")
    _add_limits(check)


def _add_grade(commands: Any) -> None:
    what = "grade a folder of submissions, and sum up the class"
    grade = _add(commands, "grade", what, _grade, f"{CONVENTION} {SHELTER}")
    add = grade.add_argument
    add("folder", metavar="FOLDER", help="with .py files and notebooks, in folders or not")
    add("--csv", required=True, metavar="OUT.csv", help="one row for each submission and exercise")
    add("--resume", action="store_true", help="go on with a run that was interrupted")
    add(
        "--workers",
        type=int,
        default=_cores(),
        metavar="N",
        help="submissions at a time; the cores unless given",
    )
    add("--dask", default="", metavar="ADDRESS", help="judge on the workers of a Dask cluster instead")
    add(
        "--roster",
        metavar="FILE.csv",
        help="the students, a column student or name: who is missing, who is twice",
    )
    add("--html", metavar="FILE", help="a page on the class")
    add("--feedback", metavar="FOLDER", help="a Markdown file for each submission, to send back")
    _add_limits(grade)


def _add_limits(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--only", metavar="IDS", help="these exercises, with commas between; all unless given")
    add("--level", type=int, choices=LEVELS, default=2, help="1 observes, 2 asks, 3 says where to read")
    add("--seconds", type=float, default=20.0, help="of CPU, for one submission; 20 unless given")
    add("--wall", type=float, default=0.0, help="seconds by the clock; three times the CPU's unless given")
    add("--megabytes", type=int, default=2048, help="of memory; 2048 unless given")
    add("--container", choices=("docker", "podman"), default="", help="run each submission in a container")
    add("--image", default="npformer-student", help="with Python and NumPy; npformer-student unless given")
    for name, (metavar, said) in FILES.items():
        add(name, metavar=metavar, help=said)


def _add_assignment(commands: Any) -> None:
    what = "write a notebook to hand out, with places for answers and tests that nbgrader or otter-grader run"
    add = _add(commands, "assignment", what, _assignment).add_argument
    add("--exercises", required=True, metavar="IDS", help="with commas between")
    add("--out", required=True, metavar="FILE.ipynb", help="the notebook")
    add("--points", type=float, default=1.0, metavar="N", help="for each exercise; 1 unless given")
    add("--format", choices=("nbgrader", "otter"), default="nbgrader", help="nbgrader unless given")


def _add(commands: Any, name: str, what: str, run: Any, more: str = "") -> argparse.ArgumentParser:
    said = f"{what[0].upper()}{what[1:]}. {more}".strip()
    command: argparse.ArgumentParser = commands.add_parser(name, help=what, description=said)
    command.set_defaults(run=run)
    return command


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _exercises(options: argparse.Namespace) -> Iterator[str]:
    from npformer.exercises import list_exercises

    yield str(list_exercises())


def _show(options: argparse.Namespace) -> Iterator[str]:
    from npformer.exercises import show

    yield str(show(options.id))


def _chosen(options: argparse.Namespace) -> tuple[str, ...]:
    from npformer.exercises.topics import bank, find

    return tuple(find(i.strip())[0].id for i in options.only.split(",")) if options.only else tuple(bank())


def _limits(options: argparse.Namespace) -> Any:
    from npformer.exercises.grader.judging import Limits

    if not 0 < options.seconds < 1e6 or not 0 <= options.wall < 1e6 or options.megabytes < 1:
        raise ValueError("--seconds, --wall and --megabytes are numbers above 0")
    if options.container:
        _ask_engine(options.container, options.image)
    wall, image = options.wall, options.image
    return Limits(options.seconds, options.megabytes, options.level, wall, options.container, image)


def _ask_engine(name: str, image: str) -> None:
    """Refuse an engine that would refuse every submission: not installed, not running, without the image."""
    engine = shutil.which(name)
    if engine is None:
        raise ValueError(f"{name} is not installed; install it, or leave --container out")
    if said := _objection([engine, "ps"]):
        raise ValueError(f"{name} does not answer; start it, then try again. `{name} ps` says: {said}")
    if said := _objection([engine, "image", "inspect", image]):
        how = f"build or pull it, or name another with --image. `{name} image inspect {image}` says: {said}"
        raise ValueError(f"{name} has no image {image!r}; {how}")


def _objection(command: Sequence[str]) -> str:
    """The first line of what a command has to say where it fails; "" where it does its work."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=ENGINE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"nothing in {ENGINE_SECONDS:g} seconds"
    except OSError as error:
        return str(error.strerror)
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return (lines or [f"nothing, with exit code {done.returncode}"])[0] if done.returncode else ""


def _check(options: argparse.Namespace) -> Iterator[str]:
    from npformer.exercises.grader.grading import UNANSWERED, grade_one
    from npformer.exercises.grader.reports import card
    from npformer.exercises.grader.submissions import SUFFIXES

    path, ids = _given(options.file, *SUFFIXES), _chosen(options)
    if options.gradescope:
        place_for(options.gradescope)
    points = _points(options, ids)
    rows = grade_one(path, ids, _limits(options))
    _gradescope(options, rows, points)
    answered = [row for row in rows if row.status not in UNANSWERED]
    for problem in sorted({row.evidence for row in rows if row.status == "not read"}):
        yield f"Not read to the end. {problem}\n"
    for row in answered:
        yield f"{row.exercise}: " + card(row).replace("\n", "\n  ") + "\n"
    yield from _missing(options, rows, answered)
    passed = sum(row.status.startswith("pass") for row in answered)
    yield f"{passed} right of {len(answered)} answered; the bank has {len(_bank())}."
    if (
        passed < len(answered)
        or not answered
        or (options.only and len(answered) < len(rows))
        or _unread(rows)
    ):
        raise SystemExit(1)


def _missing(options: argparse.Namespace, rows: Any, answered: Any) -> Iterator[str]:
    """What was asked for and is not there, or under a wrong name; how to answer, where nothing is there."""
    from npformer.exercises.reply import NOTHING

    for said in sorted({row.evidence for row in rows if row.status == "not answered"} - {"", NOTHING}):
        yield f"{said}\n"
    if options.only and len(answered) < len(rows):
        yield f"Not answered: {', '.join(row.exercise for row in rows if row not in answered)}.\n"
    if not answered and not _unread(rows):
        yield f"No answer was found. {CONVENTION}\n"


def _bank() -> Any:
    from npformer.exercises.topics import bank

    return bank()


def _unread(rows: Any) -> bool:
    return any(row.status == "not read" for row in rows)


def _points(options: argparse.Namespace, ids: tuple[str, ...]) -> dict[str, float] | None:
    from npformer.exercises.grader.reports import read_points

    return read_points(_given(options.points), ids) if options.points else None


def _given(name: str, *endings: str) -> Path:
    """A file that is to be read; ValueError where it is not there or has another ending."""
    if Path(name).is_dir():
        raise ValueError(f"{name!r} is a folder; expected a file")
    if endings and not name.casefold().endswith(endings):
        raise ValueError(f"{Path(name).name!r} should end in {' or '.join(endings)}")
    if not Path(name).is_file():
        raise ValueError(f"there is no file {name!r}")
    return Path(name)


def _gradescope(options: argparse.Namespace, rows: Any, points: dict[str, float] | None) -> None:
    from npformer.exercises.grader.reports import write_gradescope

    if options.gradescope:
        write_gradescope(
            rows, points or dict.fromkeys((row.exercise for row in rows), 1.0), Path(options.gradescope)
        )


def _grade(options: argparse.Namespace) -> Iterator[str]:
    from npformer.exercises.grader.grading import Journal, grade

    ids, out, open_walls = _chosen(options), Path(options.csv), set[str]()
    _check_places(options)
    points, limits = _points(options, ids), _limits(options)
    with Journal(out, options.resume) as journal, _interrupted(out):
        rows = grade(
            Path(options.folder),
            ids,
            limits=limits,
            workers=options.workers,
            tell=_tell,
            journal=journal,
            cluster=options.dask,
            walls=open_walls,
        )
    try:
        yield from _written(options, rows, points, out)
    except (ValueError, OSError):
        _tell(f"what is graded is in {out}.journal, and --resume goes on from there")
        raise
    journal.remove()
    if open_walls:
        yield f"This system did not close for them: {', '.join(sorted(open_walls))}. See --container."
    yield f"written: {out}"


def _check_places(options: argparse.Namespace) -> None:
    """Whether all that is read is there, and all that is written at the end has its place."""
    from npformer.exercises.grader.grading import listed

    journal = Path(f"{options.csv}.journal")
    if journal.exists() and not options.resume:
        begun = "is of a run that was interrupted: --resume goes on; to begin anew, remove it"
        raise ValueError(f"{str(journal)!r} {begun}")
    for name in filter(None, (options.csv, options.html, options.gradescope)):
        place_for(name)
    if options.feedback:
        folder_for(options.feedback)
    if options.roster:
        _given(options.roster)
    found, passed_over = listed(Path(options.folder))
    if options.gradescope and len(found) > 1:
        raise ValueError("--gradescope writes the results of one submission; this folder holds more")
    for name in passed_over:
        _tell(f"passed over: {name}")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _written(
    options: argparse.Namespace, rows: Any, points: dict[str, float] | None, out: Path
) -> Iterator[str]:
    from npformer.exercises.grader import reports
    from npformer.exercises.grader.grading import write_csv

    roster = reports.read_roster(Path(options.roster), rows) if options.roster else None
    write_csv(rows, out, points)
    _gradescope(options, rows, points)
    if options.html:
        reports.write_page(rows, Path(options.html), points, roster)
    if options.feedback:
        reports.write_feedback(rows, points, Path(options.feedback))
    yield reports.summary(rows)
    if roster:
        yield str(roster)


@contextmanager
def _interrupted(out: Path) -> Iterator[None]:
    """Ctrl+C and SIGTERM end the run in order: what is done is kept, and a line says how to go on."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt(number)

    ours = threading.current_thread() is threading.main_thread()
    before = (
        {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)} if ours else {}
    )
    try:
        yield
    except KeyboardInterrupt as error:
        number = error.args[0] if error.args else signal.SIGINT
        _tell(f"interrupted; what is done is in {out}.journal, and --resume goes on from there")
        raise SystemExit(128 + number) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _assignment(options: argparse.Namespace) -> Iterator[str]:
    from npformer.exercises.grader.assignments import write_assignment
    from npformer.exercises.topics import find

    ids = [find(i.strip())[0].id for i in options.exercises.split(",")]
    out = place_for(options.out)
    write_assignment(ids, out, points=options.points, format=options.format)
    yield f"written: {out}"
