"""What the commands npformer check and grade do; what can be typed is in npformer.cli."""

import os
import signal
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from npformer.exercises.assignment_file import Assignment, assignment_of, read_assignment
from npformer.grader import CONVENTION
from npformer.grader import class_list as register
from npformer.grader import points as marks
from npformer.grader import report_page as page
from npformer.grader import similarity as alike
from npformer.grader import supervisor as run
from npformer.grader.grading_process import Limits, Row
from npformer.grader.submissions import HandIn, hand_ins
from npformer.grader.supervisor import Journal
from npformer.handouts.exercise_commands import ids_of
from npformer.validation.output_files import folder_for, place_for, write_files


def _set(options: Namespace) -> tuple[Assignment, Limits]:
    """What was set, by a file, by a list of ids, or the whole bank; and what a submission may use."""
    if not hasattr(os, "fork"):
        here = "this system cannot start the process in which a submission runs"
        raise ValueError(f"{here}; use WSL or a container, or check(...) in a notebook")
    if not 0 < options.seconds < 1e6 or not 0 <= options.wall < 1e6 or options.megabytes < 1:
        raise ValueError("--seconds, --wall and --megabytes are numbers above 0")
    one_each = assignment_of(ids_of(options.exercises))
    of = read_assignment(Path(options.assignment)) if options.assignment else one_each
    place = Path(options.place).absolute()
    hidden = str(place if place.is_dir() else place.parent)
    return of, Limits(options.seconds, options.megabytes, options.level, options.wall, of.numbers, hidden)


def check(options: Namespace) -> Iterator[str]:
    """The reply to each answer in one file; the exit code is 1 unless all that was set is right."""
    assignment, limits = _set(options)
    out = place_for(options.gradescope) if options.gradescope else None
    try:
        files = [each for each in hand_ins(Path(options.place)) if not each.passed_over]
        if len(files) > 1:
            raise ValueError(f"{options.place!r} holds {len(files)} files to check; expected one")
        rows = run.grade(files, list(assignment.points), limits)
    except ValueError as error:
        if out:  # Gradescope waits for a file, and shows it
            write_files({out: marks.gradescope([], assignment, str(error))})
        raise
    if out:
        write_files({out: marks.gradescope(rows, assignment)})
    yield from _replies(rows, was_set=bool(options.exercises or options.assignment))


def _replies(rows: Sequence[Row], was_set: bool) -> Iterator[str]:
    """The replies; what was not read, stands under a wrong name or is missing; how many are right."""
    answered, missing = [row for row in rows if row.is_answered], [row for row in rows if not row.is_answered]
    yield from (f"{row.exercise}: " + marks.card(row).replace("\n", "\n  ") + "\n" for row in answered)
    not_read = any(row.status == "not read" for row in missing)
    whys = dict.fromkeys(row.evidence for row in missing if row.evidence)
    yield from (f"Not read to the end. {why}\n" if not_read else f"{why}\n" for why in whys)
    if missing and was_set:
        yield f"Not answered: {', '.join(row.exercise for row in missing)}.\n"
    if not answered:
        yield f"No answer was found. {CONVENTION}\n"
    passed = sum(row.passed for row in answered)
    yield f"{passed} right of {len(answered)} answered; {len(rows)} are set."
    if not passed or passed < len(answered) or not_read or (missing and was_set):
        raise SystemExit(1)


def grade(options: Namespace) -> Iterator[str]:
    """The tables, the page and the feedback of a class."""
    assignment, limits = _set(options)
    for name in filter(None, (options.csv, options.html, options.grades, options.anonymous)):
        place_for(name)
    if options.feedback:
        folder_for(options.feedback)
    journal, files = Journal(Path(options.csv), options.resume), hand_ins(Path(options.place))
    students = register.read_register(Path(options.register), options.columns) if options.register else None
    known = marks.numbers_of(Path(options.anonymous)) if options.anonymous else None
    files = files if known is None else marks.numbered(files)
    with _interrupted(journal.path):
        rows = run.grade(files, list(assignment.points), limits, options.workers, journal)
        owners = register.whose(files, {row.submission: row.student for row in rows}, students)
        of = owners if known is None else marks.without_names(owners, known)
        written, said = _results(options, assignment, files, rows, of)
        if known is not None:
            key = ((number, *student) for student, number in sorted(known.items()))
            written[Path(options.anonymous)] = marks.table_of(marks.HEAD, key)
        write_files(written)
        journal.path.unlink()
    yield said
    if ways := ", ".join(sorted(journal.open)):
        yield f"This system did not close for them: {ways}. Run this in a container."
    yield f"written: {options.csv}"


def _results(
    options: Namespace, assignment: Assignment, files: list[HandIn], rows: list[Row], owners: register.Whose
) -> tuple[dict[Path, str], str]:
    """The text of each file that was asked for; and the summary."""
    shown = {name: student.name or student.id for name, student in owners.of.items()}
    shown = {row.submission: "" if options.anonymous else row.student for row in rows} | shown
    rows = [row._replace(student=shown[row.submission]) for row in rows]
    given = marks.marks(files, rows, owners, assignment)
    sent = page.places_of(given, Path(options.feedback)) if options.feedback else {}
    written = {path: page.feedback(mark, assignment) for path, mark in sent.items()}
    written[Path(options.csv)] = marks.answers_table(rows, assignment)
    if options.grades:
        written[Path(options.grades)] = marks.grades_table(given, assignment, sent)
    if options.html:
        pairs = alike.alike((str(owners.of[each.name]), each) for each in files if each.name in owners.of)
        written[Path(options.html)] = page.class_page(rows, given, owners, pairs, assignment)
    return written, page.summary(rows, given, owners)


@contextmanager
def _interrupted(journal: Path) -> Iterator[None]:
    """After Ctrl+C, SIGTERM or a full disk a line says how to go on: what is done is kept."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    except (KeyboardInterrupt, SystemExit, OSError):
        print(f"what is done is in {journal}, and --resume goes on from there", file=sys.stderr, flush=True)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
