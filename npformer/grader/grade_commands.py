"""Run the commands `npformer check` and `npformer grade`, whose options are defined in npformer.cli."""

import os
import signal
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

from npformer.exercises.assignment_file import Assignment, make_assignment, read_assignment
from npformer.grader import CONVENTION, class_list, companions, points, report_page, similarity, supervisor
from npformer.grader.class_list import Owners
from npformer.grader.grading_process import Limits, Row
from npformer.grader.submissions import Submission, find_submissions
from npformer.grader.supervisor import Journal
from npformer.handouts.exercise_commands import parse_ids
from npformer.validation.output_files import check_output_file, check_output_folder, write_files

MAX_CHECKED_FILES = 20  # the largest number of files in a folder that `npformer check` accepts


def _read_settings(options: Namespace) -> tuple[Assignment, Limits]:
    """Return the assignment, and the limits for each submission. Raises ValueError for invalid options.

    The assignment comes from a file or from a list of exercise ids. If neither is given, it contains all
    exercises.
    """
    if not hasattr(os, "fork"):
        reason = "this system cannot start the separate process in which a submission runs"
        raise ValueError(f"{reason}; use WSL or a container, or check(...) in a notebook")
    if not 0 < options.seconds < 1e6 or not 0 <= options.wall < 1e6 or options.megabytes < 1:
        raise ValueError("--seconds, --wall and --megabytes must be numbers above 0")
    if getattr(options, "workers", 1) < 1:
        raise ValueError(f"--workers is {options.workers}; expected a whole number of at least 1")
    assignment = make_assignment(parse_ids(options.exercises))
    if options.assignment:
        assignment = read_assignment(Path(options.assignment))
    place = Path(options.place).absolute()
    # A submission must not read the other submissions, so the sandbox hides their folder.
    hidden = str(place if place.is_dir() else place.parent)
    limits = Limits(
        options.seconds, options.megabytes, options.level, options.wall, assignment.numbers, hidden
    )
    return assignment, limits


# --- check ----------------------------------------------------------------------------------------


def check(options: Namespace) -> Iterator[str]:
    """Yield the feedback on each answer in one file. The exit code is 0 if all are correct, else 1."""
    assignment, limits = _read_settings(options)
    results_path = check_output_file(options.gradescope) if options.gradescope else None
    try:
        rows = _grade_one_file(Path(options.place), options.place, assignment, limits)
    except ValueError as error:
        if results_path:  # Gradescope needs this file even now, to show the error to the student.
            write_files({results_path: points.format_gradescope_results([], assignment, str(error))})
        raise
    if results_path:
        write_files({results_path: points.format_gradescope_results(rows, assignment)})
    yield from _iter_replies(rows, is_assigned=bool(options.exercises or options.assignment))


def _grade_one_file(path: Path, typed: str, assignment: Assignment, limits: Limits) -> list[Row]:
    """Grade the file with answers in a folder, which may also contain modules and data of the same student.

    Raises ValueError if several files have answers.
    """
    files = [file for file in companions.attach_all(find_submissions(path)) if not file.skip_reason]
    if len(files) > MAX_CHECKED_FILES:
        raise ValueError(f"{typed!r} contains {len(files)} files to check; expected one")
    rows = supervisor.grade_class(files, list(assignment.points), limits)
    answered = {row.submission for row in rows if row.is_answered}
    if len(answered) > 1:
        raise ValueError(f"{typed!r} contains {len(answered)} files with answers; expected one")
    shown = answered or {files[0].name}
    return [row for row in rows if row.submission in shown]


def _iter_replies(rows: Sequence[Row], is_assigned: bool) -> Iterator[str]:
    """Yield the feedback, the problems and the number of correct answers.

    Exits with code 1 unless the file was read and all answers are correct. A missing answer counts as
    wrong only if the user has chosen the exercises (`is_assigned`), or if there is no answer at all.
    """
    answered = [row for row in rows if row.is_answered]
    unanswered = [row for row in rows if not row.is_answered]
    for row in answered:
        yield f"{row.exercise}: " + points.format_card(row).replace("\n", "\n  ") + "\n"
    is_incomplete = any(row.status == "not read" for row in unanswered)
    for problem in dict.fromkeys(row.problem for row in rows if row.problem):
        yield f"Problems in the file: {problem}\n"
    problems = {row.problem for row in rows}
    for reason in dict.fromkeys(row.evidence for row in unanswered if row.evidence):
        if not any(reason in problem for problem in problems):
            yield f"{reason}\n"
    is_answer_missing = bool(unanswered) and is_assigned
    if is_answer_missing:
        yield f"Not answered: {', '.join(row.exercise for row in unanswered)}.\n"
    if not answered:
        yield f"No answer was found. {CONVENTION}\n"
    passed_count = sum(row.passed for row in answered)
    yield f"Answered: {len(answered)} of {len(rows)} exercises. Correct: {passed_count} of {len(answered)}."
    is_all_correct = passed_count == len(answered) > 0
    if not is_all_correct or is_incomplete or is_answer_missing:
        raise SystemExit(1)


# --- grade ----------------------------------------------------------------------------------------


class _ClassResult(NamedTuple):
    """The result of grading a class. `key` is None unless the grading is anonymous."""

    files: list[Submission]
    rows: list[Row]
    owners: Owners
    key: points.Key | None


def grade(options: Namespace) -> Iterator[str]:
    """Grade a class, and write the tables, the page and the feedback. Yields the summary."""
    assignment, limits = _read_settings(options)
    _check_output_paths(options)
    journal = Journal(Path(options.csv), options.resume)
    files = find_submissions(Path(options.place))
    students = class_list.read_class_list(Path(options.roster), options.columns) if options.roster else None
    key = points.read_key(Path(options.anonymous)) if options.anonymous else None
    if key is not None:
        files = points.number_files(files)
    files = companions.attach_companions(files, students)
    with _explain_resume(journal.path):
        rows = supervisor.grade_class(files, list(assignment.points), limits, options.workers, journal)
        claims = {row.submission: row.student for row in rows}
        owners = class_list.find_owners(files, claims, students)
        if key is not None:
            owners = points.anonymize_owners(owners, key)
        texts, summary = _format_results(options, assignment, _ClassResult(files, rows, owners, key))
        write_files(texts)
        journal.path.unlink()
    yield summary
    if journal.missing_protections:
        missing = ", ".join(sorted(journal.missing_protections))
        yield f"Missing protections on this system: {missing}. Run the command in a container."
    yield f"written: {options.csv}"


def _check_output_paths(options: Namespace) -> None:
    """Raise an error if an output file cannot be written. This runs before any file is graded."""
    for name in (options.csv, options.html, options.grades, options.anonymous):
        if name:
            check_output_file(name)
    if options.feedback:
        check_output_folder(options.feedback)


def _format_results(
    options: Namespace, assignment: Assignment, result: _ClassResult
) -> tuple[dict[Path, str], str]:
    """Return the text of each requested file, and the summary."""
    owners = result.owners
    rows = _replace_student_names(result)
    class_points = points.compute_class_points(result.files, rows, owners, assignment)
    feedback_paths = {}
    if options.feedback:
        feedback_paths = report_page.choose_feedback_paths(class_points, Path(options.feedback))
    texts = {path: report_page.format_feedback(entry, assignment) for path, entry in feedback_paths.items()}
    texts[Path(options.csv)] = points.format_answers_table(rows, assignment)
    if options.grades:
        texts[Path(options.grades)] = points.format_gradebook(class_points, assignment, feedback_paths)
    if options.html:
        owned = [(str(owners.by_file[f.name]), f) for f in result.files if f.name in owners.by_file]
        similar = similarity.find_similar(owned)
        page = report_page.format_class_page(rows, class_points, owners, similar, assignment)
        texts[Path(options.html)] = page
    if result.key is not None:
        texts[Path(options.anonymous)] = _format_key(result.key)
    return texts, report_page.format_summary(rows, class_points, owners)


def _replace_student_names(result: _ClassResult) -> list[Row]:
    """Return the rows after setting the field `student` of each row to the owner of the file.

    A file without an owner keeps the name that the file claims. In anonymous grading this name is removed.
    """
    shown = {}
    for row in result.rows:
        shown[row.submission] = row.student if result.key is None else ""
    for name, student in result.owners.by_file.items():
        shown[name] = student.name or student.id
    return [row._replace(student=shown[row.submission]) for row in result.rows]


def _format_key(key: points.Key) -> str:
    """Return the key of an anonymous grading as a CSV table, sorted by student id and name."""
    lines = [(number, *person) for person, number in sorted(key.items())]
    return points.format_csv(points.KEY_HEADER, lines)


@contextmanager
def _explain_resume(journal: Path) -> Iterator[None]:
    """Print how to resume if Ctrl+C, SIGTERM or an OSError (such as a full disk) stops the grading."""

    def exit_on_signal(number: int, frame: object) -> NoReturn:
        sys.exit(128 + number)

    old_handler = signal.signal(signal.SIGTERM, exit_on_signal)
    try:
        yield
    except (KeyboardInterrupt, SystemExit, OSError):
        message = f"the results so far are in {journal}; --resume continues from there"
        print(message, file=sys.stderr, flush=True)
        raise
    finally:
        signal.signal(signal.SIGTERM, old_handler)
