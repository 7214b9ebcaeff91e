"""The command `npformer`: its subcommands, their options, and what they print."""

import argparse
import errno
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
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
CANNOT = "a browser cannot start {}; with an installed Python it works: pip install npformer"
NOT_IN_A_BROWSER = {
    "grade": "the process that each submission is judged in",
    "fetch": "npm, which brings the model",
}
OPENING = """\
npformer {version}: the Transformer in plain NumPy, every backward pass by hand and checked.

To learn:
    {npformer} lessons               the lessons, into a folder of your own, for JupyterLab
    {npformer} one-page              a whole Transformer that learns, in one file of 200 lines
    {npformer} play --out play.html  one encoder block in a browser, cell by cell
    {npformer} trace                 the same as text, every number, and the gradient check
    {npformer} exercises             what to try; show ID asks, check FILE names the mistake

To teach: slides, worksheet, exam, grade, assignment. All commands: {npformer} --help"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Without a command, print an overview.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after `npformer`. By default, the words on the command line are used.

    Returns
    -------
    exit_code : int
        0 for success, 1 if answers are wrong or the output was closed, 2 for an error, 130 for Ctrl+C.
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
            # Python flushes the output again when it exits. The null device accepts it without an error.
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
    advice = f"did you mean {similar[0]}?" if similar else "--help lists those that there are"
    return _report_error(name, f"there is no such command; {advice}")


def _format_error(error: ValueError | OSError) -> str:
    """Return an error message without the function name or the system error number at its beginning."""
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
    "Each submission runs in a process of its own, without answers or checker, with limits on time, memory, "
    "processes and files. On Linux, where the system lets us, it sees Python and nothing else, no network; "
    "the last line says where that is not so. Against an attacker run the whole command in a container."
)
ENDS = "The exit code is 1 when something is wrong, not read, or set and not answered."
EXAM = (
    "A mark is a minute; the same seed draws the same paper. FOLDER gets exam.html, to print, exam.ipynb, "
    "both again as exam-key, and exam.toml with the marks: npformer grade HANDED_IN --assignment "
    "FOLDER/exam.toml --csv OUT.csv marks the notebooks."
)


def _make_parser() -> tuple[argparse.ArgumentParser, Collection[str]]:
    """Return the parser and the names of its commands."""
    parser = argparse.ArgumentParser(
        prog="npformer", description="The Transformer in plain NumPy functions: lessons, checks, a reference."
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
    _add_worksheet(commands)
    _add_exam(commands)
    _add_assignment(commands)
    _add_check(commands)
    _add_grade(commands)
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
    summary = "print every number of the worked example, forward and back, then its gradient check"
    trace = _add_command(commands, _run_trace, "trace", summary)
    _add_decimals(trace)


def _add_decimals(command: argparse.ArgumentParser, default: str = "") -> None:
    """Add the option --decimals. The help text ends with `default`, which explains the default."""
    command.add_argument(
        "--decimals",
        help=f"round every step to so many decimals before the next, as on paper{default}",
        metavar=f"1..{MOST_DECIMALS}",
        type=int,
        choices=range(1, MOST_DECIMALS + 1),
    )


def _add_lessons(commands: Commands) -> None:
    summary = "write the lessons into a folder of your own, without outputs"
    lessons = _add_command(commands, _run_lessons, "lessons", summary)
    lessons.add_argument("folder", help=f"{FOLDER} unless given", metavar="FOLDER", nargs="?", default=FOLDER)
    lessons.add_argument("--force", help="overwrite the files that are there", action="store_true")


def _add_one_page(commands: Commands) -> None:
    summary = "write a whole Transformer that learns, in one file of 200 lines"
    one_page = _add_command(commands, _run_one_page, "one-page", summary)
    one_page.add_argument("file", help=f"{PAGE} unless given", metavar="FILE", nargs="?", default=PAGE)
    one_page.add_argument("--force", help="overwrite the file that is there", action="store_true")


def _add_play(commands: Commands) -> None:
    summary = "write the worked example cell by cell, as a page for a browser"
    player = _add_command(commands, _run_play, "play", summary)
    player.add_argument("--out", help="where to: an .html file", metavar="FILE", required=True)
    player.add_argument("--name", help="the numbers of that student's worksheet", metavar="NAME")
    player.add_argument("--at", help='where to open: "ffn.z", or "ffn.z,8" for its cell 8', metavar="STEP")
    player.add_argument(
        "--variant",
        help="another block; may be given several times",
        action="append",
        default=[],
        choices=tuple(VARIANTS),
    )
    player.add_argument(
        "--update", help="how it is trained; sgd unless given", choices=UPDATES, default="sgd"
    )
    _add_decimals(player, f"; with a name it is {DECIMALS} unless given")


def _add_fetch(commands: Commands) -> None:
    summary = "bring a published model of 15 million weights that tells stories, for lesson 10"
    fetch = _add_command(commands, _run_fetch, "fetch", summary, "Needs npm.")
    fetch.add_argument("model", help="stories, the only one", metavar="MODEL", choices=("stories",))


def _add_exercises(commands: Commands) -> None:
    summary = "print every exercise of the bank, the easy ones first"
    _add_command(commands, _run_exercise_command, "exercises", summary)


def _add_show(commands: Commands) -> None:
    show = _add_command(commands, _run_exercise_command, "show", "print one exercise")
    show.add_argument("id", help="such as pe.entry, or pe.entry@Ada for Ada's own numbers", metavar="ID")
    show.add_argument("--bug", help="its solution with one wrong line, to be mended", action="store_true")


def _add_slides(commands: Commands) -> None:
    summary = "write lessons as slides for a browser, with speaker notes, offline"
    slides = _add_command(commands, _run_slides, "slides", summary)
    slides.add_argument("lesson", help="such as 05; all unless given", metavar="LESSON", nargs="*")
    slides.add_argument("--out", help="where to", metavar="FOLDER", required=True)


def _add_worksheet(commands: Commands) -> None:
    summary = "draw the worked example with boxes to fill in by pencil, its numbers drawn from a name"
    worksheet = _add_command(commands, _run_worksheet, "worksheet", summary)
    worksheet.add_argument("--seed", help="the student's name", metavar="NAME", required=True)
    worksheet.add_argument("--out", help="where to: a .pdf or .html file", metavar="FILE", required=True)
    worksheet.add_argument("--key", help="fill the boxes in, for the teacher", action="store_true")
    worksheet.add_argument("--paper", help="a4 unless given", choices=tuple(PAPERS), default="a4")
    worksheet.add_argument(
        "--minutes",
        help="to the end of attention, to the loss, or back and one step; all boxes (hours) unless given",
        type=int,
        choices=tuple(MINUTES),
    )


def _add_exam(commands: Commands) -> None:
    summary = "draw an exam from the bank with its key, as a page and as a notebook"
    exam = _add_command(commands, _run_exercise_command, "exam", summary, EXAM)
    exam.add_argument(
        "--seed", help="any word; it draws the questions and their numbers", metavar="NAME", required=True
    )
    exam.add_argument("--out", help="where to", metavar="FOLDER", required=True)
    exam.add_argument("--minutes", help="20, 45 or 90; 45 unless given", metavar="N", type=int, default=45)
    exam.add_argument(
        "--lessons",
        help="ask what these lessons teach, such as 01,03,04; all unless given",
        metavar="NN,NN",
    )
    exam.add_argument("--force", help="overwrite the files that are there", action="store_true")


def _add_assignment(commands: Commands) -> None:
    summary = (
        "write a notebook to hand out, with places for answers and tests that nbgrader or otter-grader run"
    )
    assignment = _add_command(commands, _run_exercise_command, "assignment", summary)
    assignment.add_argument("--exercises", help="with commas between", metavar="IDS", required=True)
    assignment.add_argument("--out", help="the notebook", metavar="FILE.ipynb", required=True)
    assignment.add_argument(
        "--points", help="for each exercise; 1 unless given", metavar="N", type=float, default=1.0
    )
    assignment.add_argument(
        "--format", help="nbgrader unless given", choices=("nbgrader", "otter"), default="nbgrader"
    )


def _add_check(commands: Commands) -> None:
    summary = "check the answers in one file"
    check = _add_command(commands, _run_grade_command, "check", summary, f"{CONVENTION} {ENDS} {SHELTER}")
    check.add_argument(
        "place", help="a .py file or a notebook; or a folder that holds just one", metavar="FILE"
    )
    check.add_argument("--gradescope", help="write Gradescope's results.json", metavar="FILE")
    _add_grading_options(check)


def _add_grade(commands: Commands) -> None:
    summary = "grade a folder of submissions, and sum up the class"
    grade = _add_command(commands, _run_grade_command, "grade", summary, f"{CONVENTION} {SHELTER}")
    grade.add_argument(
        "place", help="with .py files, notebooks and zip files; or one of these", metavar="FOLDER"
    )
    grade.add_argument(
        "--csv", help="one row for each submission and exercise", metavar="OUT.csv", required=True
    )
    grade.add_argument("--grades", help="a row a student, for the gradebook", metavar="FILE.csv")
    grade.add_argument(
        "--register", help="the students, as your learning system exports them", metavar="FILE.csv"
    )
    grade.add_argument(
        "--columns",
        help="the register's columns, where they are not known",
        metavar="id=A,name=B",
        default="",
    )
    _add_report_options(grade)
    grade.add_argument("--resume", help="go on with a run that was interrupted", action="store_true")
    _add_workers(grade)
    _add_grading_options(grade)


def _add_report_options(grade: argparse.ArgumentParser) -> None:
    grade.add_argument("--html", help="a page on the class; it prints on two sheets", metavar="FILE")
    grade.add_argument("--feedback", help="a Markdown file for each student, to send back", metavar="FOLDER")
    grade.add_argument(
        "--anonymous", help="numbers in the place of names; the key says whose they are", metavar="KEY.csv"
    )


def _add_workers(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--workers",
        help="submissions at a time; the cores unless given",
        metavar="N",
        type=int,
        default=_count_cores(),
    )


def _add_grading_options(command: argparse.ArgumentParser) -> None:
    """Add the options that the commands `check` and `grade` share."""
    command.add_argument(
        "--exercises", "--only", help="what was set, with commas between; all unless given", metavar="IDS"
    )
    command.add_argument(
        "--assignment", help="or a file with what was set, its points and the due date", metavar="FILE.toml"
    )
    command.add_argument(
        "--level", help="1 says where, 2 what, 3 why, and asks", type=int, choices=(1, 2, 3), default=3
    )
    command.add_argument(
        "--seconds",
        help="of CPU, for one submission; 20 unless given",
        metavar="SECONDS",
        type=float,
        default=20.0,
    )
    wall_help = "seconds by the clock; three times the CPU's unless given"
    command.add_argument("--wall", help=wall_help, metavar="WALL", type=float, default=0.0)
    memory_help = "of memory, for one process; 2048 unless given"
    command.add_argument("--megabytes", help=memory_help, metavar="MEGABYTES", type=int, default=2048)


def _count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # macOS and Windows do not have this function
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# --- the commands ---------------------------------------------------------------------------------


def _run_exercise_command(options: argparse.Namespace) -> Iterator[str]:
    """Run the command `exercises`, `show`, `assignment` or `exam`."""
    from npformer.handouts import exercise_commands

    functions: dict[str, Run] = {
        "exercises": exercise_commands.exercises,
        "show": exercise_commands.show,
        "assignment": exercise_commands.assignment,
        "exam": exercise_commands.exam,
    }
    yield from functions[options.command](options)


def _run_grade_command(options: argparse.Namespace) -> Iterator[str]:
    """Run the command `check` or `grade`."""
    from npformer.grader import grade_commands

    functions: dict[str, Run] = {"check": grade_commands.check, "grade": grade_commands.grade}
    yield from functions[options.command](options)


def _run_overview(options: argparse.Namespace) -> Iterator[str]:
    """Print an overview of the commands."""
    yield OPENING.format(version=version(), npformer=_format_command("npformer"))


def _run_trace(options: argparse.Namespace) -> Iterator[str]:
    """Print the worked example and its gradient check."""
    trace = worked_example(decimals=options.decimals)
    yield f"{trace}\n\n{_check_trace(trace)}\n"
    lessons = f"{_format_command('npformer')} lessons"
    yield f"The lessons take these steps one at a time, with pictures:\n\n    {lessons}\n"
    yield "writes them into a folder of your own; begin with 01_positional_encoding.ipynb."


def _check_trace(trace: Trace) -> str:
    """Compare the trace's gradients with `encoder_block_backward`, which `gradcheck` then checks."""
    x, block, config = trace.named["x"].value, trace.example.block, trace.example.config
    _, cache = encoder_block_forward(x, block, config)
    _, grads = encoder_block_backward(trace.named["d_y"].value, cache)
    errors = [float(np.abs(trace.named[f"d_{path}"].value - grad).max()) for path, grad in leaves(grads)]
    largest = max(errors)
    report = gradcheck(encoder_block_forward, encoder_block_backward, x, block, config)
    return (
        "Are these gradients right? encoder_block_backward, which finds them all in one call, differs from\n"
        f"the numbers above by {largest:.1e} at most. Here it is checked against differences of the forward\n"
        f"pass, for a random d_output:\n\n{report}"
    )


def _run_lessons(options: argparse.Namespace) -> Iterator[str]:
    """Write the lessons, and print how to open them."""
    written, kept = write_lessons(options.folder, force=options.force)
    for file in written:
        yield f"written: {file}"
    for file in kept:
        yield f"kept as it was: {file}"
    if kept:
        yield "\nWhat was there is yours and stays; --force writes it anew."
    if find_spec("jupyterlab") is None:
        yield f"\nJupyterLab opens them. To get it:\n\n    {how_to_get('notebook')}"
    yield f"\nNow type:\n\n    {_format_command('jupyter')} lab {_quote(options.folder)}"


def _run_one_page(options: argparse.Namespace) -> Iterator[str]:
    """Write the model on one page, and print how to run it."""
    file = check_output_file(options.file)
    if file.exists() and not options.force:
        raise ValueError(f"{options.file!r} is there and stays; --force writes it anew")
    shutil.copyfile(Path(__file__).parent / "handouts" / PAGE, file)
    yield f"written: {file}\n\nRead it in twenty minutes. To see it learn in half a one, type:"
    yield f"\n    {_format_command('python')} {_quote(options.file)}"


def _run_slides(options: argparse.Namespace) -> Iterator[str]:
    """Write the slides of each lesson. If a lesson fails, continue with the next, and set exit code 1."""
    from npformer.handouts.slides import LessonFails, find_lesson, list_lessons, save_slides

    lessons = options.lesson or list(list_lessons())
    pages = [f"{find_lesson(lesson).stem}.html" for lesson in lessons]
    # Reject an invalid lesson (line above) or folder (line below) before the first lesson runs for minutes.
    folder = check_output_folder(options.out, pages)
    has_failed = False
    for i, lesson in enumerate(lessons, start=1):
        _print_progress(f"slides {i} of {len(lessons)}: lesson {lesson} is run for its pictures")
        try:
            file = save_slides(lesson, folder, partial(_report_error, "slides"))
        except LessonFails as error:
            _report_error("slides", str(error))
            has_failed = True
        else:
            yield f"written: {file}"
    if has_failed:
        raise SystemExit(1)


def _run_worksheet(options: argparse.Namespace) -> Iterator[str]:
    """Draw a worksheet."""
    _print_progress(f"the worksheet of {options.seed} is drawn")
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
    """Return the command that starts a tool from the Python installation that runs this program."""
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
    """Print a text at once, in ASCII if the terminal cannot show its characters."""
    if sys.stdout is None:  # the output was closed before Python started
        return
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(ASCII).encode(encoding, "replace").decode(encoding)
    print(text, flush=True)
