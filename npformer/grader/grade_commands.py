"""Run the commands `npformer check` and `npformer grade`, whose options are defined in npformer.cli."""

import os
import re
import signal
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

from npformer.exercises.assignment_file import Assignment, make_assignment, read_assignment
from npformer.grader import (
    CONVENTION,
    class_list,
    companions,
    grading_process,
    lateness,
    points,
    report_page,
    similarity,
    supervisor,
    worksheets,
)
from npformer.grader.class_list import Owners, Student
from npformer.grader.gradescope import make_autograder
from npformer.grader.grading_process import Limits, Row
from npformer.grader.lateness import Lateness
from npformer.grader.points import StudentPoints
from npformer.grader.regrading import (
    Regrading,
    merge_answers,
    merge_grades,
    merge_rows,
    name_students,
    read_old_grades,
    start_regrading,
)
from npformer.grader.submissions import Submission, find_students, find_submissions, skip_surplus_files
from npformer.grader.supervisor import Journal
from npformer.grader.worksheets import Worksheet
from npformer.handouts.exercise_commands import parse_ids
from npformer.validation.output_files import check_output_file, check_output_folder, write_files

ADVICE = "Install bubblewrap, or run the command in a container."
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
    budget_owners = {file.name: typed for file in files}  # All files share the budget of one student.
    rows = supervisor.grade_class(files, list(assignment.points), limits, students=budget_owners)
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


# --- gradescope -----------------------------------------------------------------------------------


def gradescope(options: Namespace) -> Iterator[str]:
    """Write the autograder of an assignment for Gradescope."""
    assignment_path = Path(options.assignment)
    if assignment_path.suffix != ".toml":
        raise ValueError(f"{assignment_path.name!r} should end in .toml")
    read_assignment(assignment_path)  # an invalid assignment is rejected now, and not on Gradescope
    path = check_output_file(options.out, ".zip")
    write_files({path: make_autograder(assignment_path)})
    yield f"written: {path}"


# --- grade ----------------------------------------------------------------------------------------


class _ClassResult(NamedTuple):
    """The result of grading a class.

    `key` is None unless the grading is anonymous. `regrading` is None unless only one student was graded.
    """

    files: list[Submission]
    rows: list[Row]
    owners: Owners
    lateness: Lateness
    key: points.Key | None
    regrading: Regrading | None = None


def grade(options: Namespace) -> Iterator[str]:
    """Grade a class, and write the tables, the page and the feedback. Yields the summary."""
    assignment, limits = _read_settings(options)
    _check_output_paths(options)
    journal = Journal(Path(options.csv), options.resume)
    _check_protection(options, limits)
    files, timestamps = lateness.split_timestamps(find_submissions(Path(options.place)))
    students, worksheet = _read_students(options, assignment)
    key = points.read_key(Path(options.anonymous)) if options.anonymous else None
    files, students_by_file = _prepare_files(files, students, key)
    regrading = _start_regrading(options, assignment, files, students)
    to_grade = _choose_files(options, files, regrading)
    with _explain_resume(journal.path, regrading is not None):
        rows = supervisor.grade_class(
            to_grade, list(assignment.points), limits, options.workers, journal, students_by_file
        )
        if options.part:
            yield _explain_part(options, journal.path)
            return
        rows, owners = _find_owners(files, rows, students, key, regrading)
        late = lateness.find_lateness(files, owners, assignment.due, timestamps)
        result = _ClassResult(files, rows, owners, late, key, regrading)
        contents, summary = _format_results(options, assignment, result, worksheet)
        write_files(contents)
        journal.path.unlink()
    yield summary
    yield from _iter_last_lines(options, journal, worksheet)


def _iter_last_lines(options: Namespace, journal: Journal, worksheet: Worksheet | None) -> Iterator[str]:
    """Yield the protections that were missing, if there are any, and the names of the tables."""
    if journal.missing_protections:
        missing = ", ".join(sorted(journal.missing_protections))
        yield f"Missing protections on this system: {missing}. {ADVICE}"
    yield f"written: {options.csv}"
    if worksheet is not None:
        yield f"written: {worksheet.target}"


def _read_students(
    options: Namespace, assignment: Assignment
) -> tuple[list[Student] | None, Worksheet | None]:
    """Return the class list and the worksheet, as far as they are given. A worksheet is also a class list."""
    students = None
    worksheet = None
    if options.roster:
        students = class_list.read_class_list(Path(options.roster), options.columns)
    if options.worksheet:
        if options.anonymous:
            raise ValueError("--worksheet needs the students, so it cannot be used with --anonymous")
        columns = "" if options.roster else options.columns
        worksheet = worksheets.read_worksheet(Path(options.worksheet), assignment, columns)
        check_output_file(worksheet.target)
        if students is None:
            students = worksheets.list_students(worksheet)
        students = worksheets.add_lateness(students, worksheet)
    return students, worksheet


def _find_owners(
    files: list[Submission],
    rows: list[Row],
    students: list[Student] | None,
    key: points.Key | None,
    regrading: Regrading | None,
) -> tuple[list[Row], Owners]:
    """Return the rows and the owner of each file. In anonymous grading, the owners are numbers.

    If only one student was graded, the rows of an earlier run are added.
    """
    claims = {row.submission: row.student for row in rows}
    if regrading is not None:
        rows = merge_rows(regrading, files, rows)
        claims = regrading.claims | claims
    owners = class_list.find_owners(files, claims, students)
    if key is not None:
        owners = points.anonymize_owners(owners, key)
    return rows, owners


def _prepare_files(
    files: list[Submission], students: list[Student] | None, key: points.Key | None
) -> tuple[list[Submission], dict[str, str]]:
    """Return the files with their companions, and the student of each file by file name.

    In anonymous grading, the names of the files become numbers.
    """
    if key is not None:
        files = points.number_files(files)
    files, students_by_file = _limit_students(files, students)
    return companions.attach_companions(files, students), students_by_file


def _limit_students(
    files: list[Submission], students: list[Student] | None
) -> tuple[list[Submission], dict[str, str]]:
    """Give a skip reason to each file above its student's maximum. Return all files, and their students."""
    owners = class_list.find_owners(files, {}, students).by_file if students else {}
    ids = {name: student.id or student.name for name, student in owners.items()}
    students_by_file = find_students(files, ids)
    return skip_surplus_files(files, students_by_file), students_by_file


def _check_protection(options: Namespace, limits: Limits) -> None:
    """Warn if this system has no sandbox. Raises ValueError for root without the option --unsafe."""
    protection = grading_process.find_system_protection(limits)
    if protection.has_sandbox:
        return
    warning = f"no sandbox: {protection.problem}"
    missing = f"missing protections: {', '.join(protection.missing)}"
    is_root = os.geteuid() == 0
    if is_root and not options.unsafe:
        raise ValueError(f"{warning}; {missing}; root needs the option --unsafe to grade without a sandbox")
    print(f"{warning}; {missing}", file=sys.stderr, flush=True)


def _start_regrading(
    options: Namespace, assignment: Assignment, files: list[Submission], students: list[Student] | None
) -> Regrading | None:
    """Return what --only needs of the earlier run, or None without --only. Raises ValueError."""
    if not options.only:
        return None
    for name in ("resume", "anonymous", "part"):
        if getattr(options, name):
            raise ValueError(f"--only grades one student again, so it cannot be used with --{name}")
    regrading = start_regrading(options.only, Path(options.csv), files, students, assignment)
    if options.grades:
        read_old_grades(Path(options.grades), assignment)  # a different table is rejected before any work
    return regrading


def _choose_files(
    options: Namespace, files: list[Submission], regrading: Regrading | None
) -> list[Submission]:
    """Return the files to grade: all files, those of one student, or one part of them."""
    if regrading is not None:
        return regrading.files
    if not options.part:
        return files
    match = re.fullmatch(r"(\d+)/(\d+)", options.part)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError(
            f"--part is {options.part!r}; expected K/N, such as 1/3 for the first of three parts"
        )
    return files[int(match[1]) - 1 :: int(match[2])]


def _explain_part(options: Namespace, journal: Path) -> str:
    """Return how to join the parts of a class."""
    return (
        f"written: {journal}, with part {options.part} of the class. Join the files of all parts into one "
        "file OUT.csv.journal, and run the command with --csv OUT.csv --resume and without --part."
    )


def _check_output_paths(options: Namespace) -> None:
    """Raise an error if an output file cannot be written. This runs before any file is graded."""
    for name in (options.csv, options.html, options.grades, options.anonymous):
        if name:
            check_output_file(name)
    if options.feedback:
        check_output_folder(options.feedback)


def _format_results(
    options: Namespace, assignment: Assignment, result: _ClassResult, worksheet: Worksheet | None
) -> tuple[dict[Path, str | bytes], str]:
    """Return the content of each requested file, and the summary."""
    owners = result.owners._replace(undecided=result.owners.undecided + result.lateness.undecided)
    note = result.lateness.note
    rows = _replace_student_names(result)
    class_points = points.compute_class_points(result.files, rows, owners, assignment, result.lateness.days)
    feedback_paths = _choose_feedback_paths(options, class_points)
    contents = _format_feedback_files(feedback_paths, assignment, result.regrading)
    tables = {Path(options.csv): points.format_answers_table(rows, assignment, owners.by_file)}
    if options.grades:
        tables[Path(options.grades)] = points.format_gradebook(class_points, assignment, feedback_paths)
    if result.regrading is not None:
        _keep_other_students(options, assignment, result.regrading, owners, tables)
    contents |= tables
    if worksheet is not None:
        contents[worksheet.target], undecided = worksheets.fill_worksheet(worksheet, class_points)
        owners = owners._replace(undecided=owners.undecided + undecided)
    if options.html:
        owned = [(str(owners.by_file[f.name]), f) for f in result.files if f.name in owners.by_file]
        similar = similarity.find_similar(owned)
        page = report_page.format_class_page(rows, class_points, owners, similar, assignment, note)
        contents[Path(options.html)] = page
    if result.key is not None:
        contents[Path(options.anonymous)] = _format_key(result.key)
    if result.regrading is None:
        return contents, report_page.format_summary(rows, class_points, owners, note)
    return contents, report_page.format_student_summary(class_points, result.regrading.student, assignment)


def _choose_feedback_paths(
    options: Namespace, class_points: Sequence[StudentPoints]
) -> dict[Path, StudentPoints]:
    """Return the path of each student's feedback file, if feedback was requested."""
    if not options.feedback:
        return {}
    return report_page.choose_feedback_paths(class_points, Path(options.feedback))


def _format_feedback_files(
    paths: dict[Path, StudentPoints], assignment: Assignment, regrading: Regrading | None
) -> dict[Path, str | bytes]:
    """Return the feedback for each student, or for the only student that was graded."""
    contents: dict[Path, str | bytes] = {}
    for path, entry in paths.items():
        is_graded = regrading is None or entry.student == regrading.student
        if is_graded:
            contents[path] = report_page.format_feedback(entry, assignment)
    return contents


def _keep_other_students(
    options: Namespace, assignment: Assignment, regrading: Regrading, owners: Owners, tables: dict[Path, str]
) -> None:
    """Replace the new tables by the old tables, in which only the student's lines are new."""
    answers = Path(options.csv)
    tables[answers] = merge_answers(regrading, tables[answers], owners)
    if options.grades:
        grades = Path(options.grades)
        old_lines = read_old_grades(grades, assignment)
        tables[grades] = merge_grades(regrading.student, old_lines, tables[grades])


def _replace_student_names(result: _ClassResult) -> list[Row]:
    """Return the rows after setting the field `student` of each row to the owner of the file.

    A file without an owner keeps the name that the file claims. In anonymous grading this name is removed.
    """
    shown = {}
    for row in result.rows:
        shown[row.submission] = row.student if result.key is None else ""
    shown_names = name_students([*result.owners.by_file.values(), *result.owners.missing])
    for name, student in result.owners.by_file.items():
        shown[name] = shown_names[student]
    return [row._replace(student=shown[row.submission]) for row in result.rows]


def _format_key(key: points.Key) -> str:
    """Return the key of an anonymous grading as a CSV table, sorted by student id and name."""
    lines = [(number, *person) for person, number in sorted(key.items())]
    return points.format_csv(points.KEY_HEADER, lines)


@contextmanager
def _explain_resume(journal: Path, is_regrading: bool) -> Iterator[None]:
    """Print how to go on if Ctrl+C, SIGTERM or an error (such as a full disk) stops the grading."""

    def exit_on_signal(number: int, frame: object) -> NoReturn:
        sys.exit(128 + number)

    old_handler = signal.signal(signal.SIGTERM, exit_on_signal)
    try:
        yield
    except (KeyboardInterrupt, SystemExit, Exception):
        print(_choose_advice(journal, is_regrading), file=sys.stderr, flush=True)
        raise
    finally:
        signal.signal(signal.SIGTERM, old_handler)


def _choose_advice(journal: Path, is_regrading: bool) -> str:
    """Return what is kept after an interruption, and what to do next. --only needs no journal."""
    if is_regrading:
        journal.unlink(missing_ok=True)
        return "no file was changed; run the same command again"
    if not journal.exists():
        return "no submission was graded; run the same command again"
    return f"the results so far are in {journal}; --resume continues from there"
