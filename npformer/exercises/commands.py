"""The commands npformer exercises, show, check and grade."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LEVELS = (1, 2, 3)
SHELTER = (
    "Each submission runs in a process of its own, with limits on time, on output and, where the system has "
    "them, on memory and file size. This guards against mistakes. It is not a sandbox against an attacker."
)
CONVENTION = (
    "The exercise pe.table is answered by the top-level name pe_table, a function or a value, or by an entry "
    'answers["pe.table"] of a dict. A line student = "Ada" chooses the numbers that belong to Ada.'
)


def add_commands(commands: Any) -> None:
    """Register the four commands with a parser's subcommands."""
    _add(commands, "exercises", "every exercise of the bank, the easy ones first", _exercises)
    show = _add(commands, "show", "one exercise", _show)
    show.add_argument("id", metavar="ID", help="such as pe.entry, or pe.entry@Ada for Ada's own numbers")
    check = _add(commands, "check", "the answers in one file", _check, f"{CONVENTION} {SHELTER}")
    check.add_argument("file", metavar="FILE", help="a .py file or a notebook")
    grade = _add(
        commands,
        "grade",
        "a folder of submissions, and a summary of the class",
        _grade,
        f"{CONVENTION} {SHELTER}",
    )
    grade.add_argument("folder", metavar="FOLDER", help="with .py files and notebooks, in folders or not")
    grade.add_argument(
        "--csv", required=True, metavar="OUT.csv", help="one row for each submission and exercise"
    )
    grade.add_argument("--only", metavar="IDS", help="these exercises, with commas between; all unless given")
    grade.add_argument(
        "--workers", type=int, default=2, metavar="N", help="submissions at a time; 2 unless given"
    )
    for command in (check, grade):
        _add_limits(command)


def _add_limits(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--level", type=int, choices=LEVELS, default=2, help="1 observes, 2 asks, 3 says where to read"
    )
    command.add_argument("--seconds", type=float, default=20.0, help="for one process; 20 unless given")
    command.add_argument("--megabytes", type=int, default=2048, help="of memory; 2048 unless given")


def _add(commands: Any, name: str, what: str, run: Any, more: str = "") -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=what, description=f"Print {what}. {more}".strip()
    )
    command.set_defaults(run=run)
    return command


def _exercises(options: argparse.Namespace) -> Iterator[str]:
    from npformer.exercises import list_exercises

    yield str(list_exercises())


def _show(options: argparse.Namespace) -> Iterator[str]:
    from npformer.exercises import show

    yield str(show(options.id))


def _check(options: argparse.Namespace) -> Iterator[str]:
    from npformer.exercises.bank import bank
    from npformer.exercises.grading import UNANSWERED, Limits, grade_one
    from npformer.exercises.result import TITLES

    path = Path(options.file)
    if not path.is_file():
        raise ValueError(f"there is no file {options.file!r}")
    rows = grade_one(path, tuple(bank()), Limits(options.seconds, options.megabytes, options.level))
    answered = [row for row in rows if row.status not in UNANSWERED]
    for problem in sorted({row.evidence for row in rows if row.status == "not read"}):
        yield f"Not read to the end. {problem}\n"
    for row in answered:
        said = "\n".join(f"  {line}" for line in (row.evidence, row.hint, row.question) if line)
        yield f"{row.exercise}: {TITLES[row.status]}\n{said}\n"
    passed = sum(row.status.startswith("pass") for row in answered)
    yield f"{passed} right of {len(answered)} answered; the bank has {len(rows)}."


def _grade(options: argparse.Namespace) -> Iterator[str]:
    from npformer.exercises.bank import bank, find
    from npformer.exercises.grading import Limits, grade, summary, write_csv

    ids = [find(i.strip())[0].id for i in options.only.split(",")] if options.only else list(bank())
    out = Path(options.csv)
    if not out.parent.is_dir():
        raise ValueError(f"there is no folder {str(out.parent)!r}")
    limits = Limits(options.seconds, options.megabytes, options.level)

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    rows = grade(Path(options.folder), ids, limits=limits, workers=options.workers, tell=tell)
    write_csv(rows, out)
    yield summary(rows)
    yield f"written: {out}"
