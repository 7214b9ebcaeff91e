"""The command `npformer`: what can be typed, and what is done; some rooms have a commands.py of their own."""

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
from typing import Any, TypeAlias

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
from npformer.validation.output_files import folder_for, place_for

ASCII = str.maketrans(
    {"√": "sqrt ", "·": "*", "ᵀ": "^T", "−": "-", "⊙": "*", "½": "1/2", "Σ": "sum", "²": "^2", "ε": "eps"}
    | {"…": "...", "η": "eta", "β": "beta", "′": "'", "─": "-", "“": '"', "”": '"'}
)
CLOSED = (errno.EPIPE, errno.EINVAL)  # what Linux and Windows say where a reader has had enough, as `head`
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
    """Run one command and return its exit code; without a command, say which there are."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser, commands = _parser()
    if given and not given[0].startswith("-") and given[0] not in commands:
        near = "".join(f"; did you mean {other}?" for other in get_close_matches(given[0], commands, 1))
        return _refuse(given[0], f"there is no such command{near or '; --help lists those that there are'}")
    options = parser.parse_args(given)
    if IN_BROWSER and options.command in NOT_IN_A_BROWSER:
        return _refuse(options.command, CANNOT.format(NOT_IN_A_BROWSER[options.command]))
    try:
        for text in options.run(options):
            _say(text)
    except SystemExit as error:  # a command with an exit code of its own
        return int(error.code or 0)
    except ModuleNotFoundError as error:
        extra = "slides" if options.command == "slides" else "plots"
        return _refuse(options.command, f"{error}; to get it: {how_to_get(extra)}")
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno in CLOSED and error.filename is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes again at its exit
            return 1
        return _refuse(options.command, _in_words(error))
    except KeyboardInterrupt:
        _refuse(options.command, "interrupted")
        return 128 + signal.SIGINT
    return 0


def _in_words(error: ValueError | OSError) -> str:
    """What an error says, without the function's name or the system's number."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{str(error.filename)!r} cannot be read or written: {error.strerror}"
    return re.sub(r"^(\[Errno \d+\]|\w+:) ", "", str(error))


def _refuse(command: str | None, message: str) -> int:
    print(f"{' '.join(filter(None, ('npformer', command)))}: {message}", file=sys.stderr)
    return 2


def _parser() -> tuple[argparse.ArgumentParser, Collection[str]]:
    """The parser, and the names of its commands."""
    parser = argparse.ArgumentParser(
        prog="npformer", description="The Transformer in plain NumPy functions: lessons, checks, a reference."
    )
    parser.set_defaults(run=_opening)
    parser.add_argument("--version", action="version", version=f"npformer {version()}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    for add in (_to_learn, _to_try, _to_teach, _papers, _to_grade):
        add(commands)
    return parser, commands.choices


# --- what can be typed ----------------------------------------------------------------------------

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Run: TypeAlias = Callable[[argparse.Namespace], Iterator[str]]
Add: TypeAlias = Callable[..., object]  # what adds an option to a command
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


def _add(commands: Commands, run: Run, name: str, does: str, more: str = "") -> Add:
    """A command; comes back as what adds its options: a name, what it is for, and a word for its value."""
    said = f"{does[0].upper()}{does[1:]}. {more}".strip()
    command = commands.add_parser(name, help=does, description=said)
    command.set_defaults(run=run)

    def add(option: str, says: str, value: str = "", **how: Any) -> None:
        if value:
            how["metavar"] = value
        elif "choices" not in how:
            how["action"] = "store_true"
        command.add_argument(*option.split(), help=says, **how)

    return add


def _to_learn(commands: Commands) -> None:
    does = "print every number of the worked example, forward and back, then its gradient check"
    _decimals(_add(commands, _trace, "trace", does))
    add = _add(commands, _lessons, "lessons", "write the lessons into a folder of your own, without outputs")
    add("folder", f"{FOLDER} unless given", "FOLDER", nargs="?", default=FOLDER)
    add("--force", "overwrite the files that are there")
    does = "write a whole Transformer that learns, in one file of 200 lines"
    add = _add(commands, _one_page, "one-page", does)
    add("file", f"{PAGE} unless given", "FILE", nargs="?", default=PAGE)
    add("--force", "overwrite the file that is there")
    add = _add(commands, _play, "play", "write the worked example cell by cell, as a page for a browser")
    add("--out", "where to: an .html file", "FILE", required=True)
    add("--name", "the numbers of that student's worksheet", "NAME")
    add("--at", 'where to open: "ffn.z", or "ffn.z,8" for its cell 8', "STEP")
    says = "another block; may be given several times"
    add("--variant", says, action="append", default=[], choices=tuple(VARIANTS))
    add("--update", "how it is trained; sgd unless given", choices=UPDATES, default="sgd")
    _decimals(add, f"; with a name it is {DECIMALS} unless given")
    does = "bring a published model of 15 million weights that tells stories, for lesson 10"
    add = _add(commands, _fetch, "fetch", does, "Needs npm.")
    add("model", "stories, the only one", "MODEL", choices=("stories",))


def _decimals(add: Add, unless_given: str = "") -> None:
    says = f"round every step to so many decimals before the next, as on paper{unless_given}"
    add("--decimals", says, f"1..{MOST_DECIMALS}", type=int, choices=range(1, MOST_DECIMALS + 1))


def _to_try(commands: Commands) -> None:
    _add(commands, _exercises, "exercises", "print every exercise of the bank, the easy ones first")
    add = _add(commands, _exercises, "show", "print one exercise")
    add("id", "such as pe.entry, or pe.entry@Ada for Ada's own numbers", "ID")
    add("--bug", "its solution with one wrong line, to be mended")


def _to_teach(commands: Commands) -> None:
    does = "write lessons as slides for a browser, with speaker notes, offline"
    add = _add(commands, _slides, "slides", does)
    add("lesson", "such as 05; all unless given", "LESSON", nargs="*")
    add("--out", "where to", "FOLDER", required=True)
    does = "draw the worked example with boxes to fill in by pencil, its numbers drawn from a name"
    add = _add(commands, _worksheet, "worksheet", does)
    add("--seed", "the student's name", "NAME", required=True)
    add("--out", "where to: a .pdf or .html file", "FILE", required=True)
    add("--key", "fill the boxes in, for the teacher")
    add("--paper", "a4 unless given", choices=tuple(PAPERS), default="a4")
    says = "to the end of attention, to the loss, or back and one step; all boxes (hours) unless given"
    add("--minutes", says, type=int, choices=tuple(MINUTES))


def _papers(commands: Commands) -> None:
    does = "draw an exam from the bank with its key, as a page and as a notebook"
    add = _add(commands, _exercises, "exam", does, EXAM)
    add("--seed", "any word; it draws the questions and their numbers", "NAME", required=True)
    add("--out", "where to", "FOLDER", required=True)
    add("--minutes", "20, 45 or 90; 45 unless given", "N", type=int, default=45)
    add("--lessons", "ask what these lessons teach, such as 01,03,04; all unless given", "NN,NN")
    add("--force", "overwrite the files that are there")
    does = "write a notebook to hand out, with places for answers and tests that nbgrader or otter-grader run"
    add = _add(commands, _exercises, "assignment", does)
    add("--exercises", "with commas between", "IDS", required=True)
    add("--out", "the notebook", "FILE.ipynb", required=True)
    add("--points", "for each exercise; 1 unless given", "N", type=float, default=1.0)
    add("--format", "nbgrader unless given", choices=("nbgrader", "otter"), default="nbgrader")


def _to_grade(commands: Commands) -> None:
    more = f"{CONVENTION} {ENDS} {SHELTER}"
    check = _add(commands, _grader, "check", "check the answers in one file", more)
    check("place", "a .py file or a notebook; or a folder that holds just one", "FILE")
    check("--gradescope", "write Gradescope's results.json", "FILE")
    does = "grade a folder of submissions, and sum up the class"
    grade = _add(commands, _grader, "grade", does, f"{CONVENTION} {SHELTER}")
    grade("place", "with .py files, notebooks and zip files; or one of these", "FOLDER")
    grade("--csv", "one row for each submission and exercise", "OUT.csv", required=True)
    grade("--grades", "a row a student, for the gradebook", "FILE.csv")
    grade("--register", "the students, as your learning system exports them", "FILE.csv")
    grade("--columns", "the register's columns, where they are not known", "id=A,name=B", default="")
    grade("--html", "a page on the class; it prints on two sheets", "FILE")
    grade("--feedback", "a Markdown file for each student, to send back", "FOLDER")
    grade("--anonymous", "numbers in the place of names; the key says whose they are", "KEY.csv")
    grade("--resume", "go on with a run that was interrupted")
    grade("--workers", "submissions at a time; the cores unless given", "N", type=int, default=_cores())
    for add in (check, grade):
        add("--exercises --only", "what was set, with commas between; all unless given", "IDS")
        add("--assignment", "or a file with what was set, its points and the due date", "FILE.toml")
        add("--level", "1 says where, 2 what, 3 why, and asks", type=int, choices=(1, 2, 3), default=3)
        add("--seconds", "of CPU, for one submission; 20 unless given", "SECONDS", type=float, default=20.0)
        says = "seconds by the clock; three times the CPU's unless given"
        add("--wall", says, "WALL", type=float, default=0.0)
        says = "of memory, for one process; 2048 unless given"
        add("--megabytes", says, "MEGABYTES", type=int, default=2048)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --- what is done ---------------------------------------------------------------------------------


def _exercises(options: argparse.Namespace) -> Iterator[str]:
    from npformer.handouts import exercise_commands as commands

    yield from getattr(commands, options.command)(options)


def _grader(options: argparse.Namespace) -> Iterator[str]:
    from npformer.grader import grade_commands as commands

    yield from getattr(commands, options.command)(options)


def _opening(options: argparse.Namespace) -> Iterator[str]:
    yield OPENING.format(version=version(), npformer=_typed("npformer"))


def _trace(options: argparse.Namespace) -> Iterator[str]:
    trace = worked_example(decimals=options.decimals)
    yield f"{trace}\n\n{_verdict(trace)}\n"
    yield f"The lessons take these steps one at a time, with pictures:\n\n    {_typed('npformer')} lessons\n"
    yield "writes them into a folder of your own; begin with 01_positional_encoding.ipynb."


def _lessons(options: argparse.Namespace) -> Iterator[str]:
    written, kept = write_lessons(options.folder, force=options.force)
    yield from (f"written: {file}" for file in written)
    yield from (f"kept as it was: {file}" for file in kept)
    if kept:
        yield "\nWhat was there is yours and stays; --force writes it anew."
    if find_spec("jupyterlab") is None:
        yield f"\nJupyterLab opens them. To get it:\n\n    {how_to_get('notebook')}"
    yield f"\nNow type:\n\n    {_typed('jupyter')} lab {_quoted(options.folder)}"


def _quoted(name: str) -> str:
    return f'"{name}"' if " " in name else name


def _typed(tool: str) -> str:
    """How to type a tool of this Python's own so that it is found, and is this one and no other."""
    if "UV" in os.environ:  # uv names itself to what it runs
        return f"uv run {tool}"
    ours, found = Path(sys.executable), shutil.which(tool)
    if tool == "python":
        return "python" if found and Path(found) == ours else _quoted(str(ours))
    return tool if found and Path(found).parent == ours.parent else f"{_typed('python')} -m {tool}"


def _one_page(options: argparse.Namespace) -> Iterator[str]:
    out = place_for(options.file)
    if out.exists() and not options.force:
        raise ValueError(f"{options.file!r} is there and stays; --force writes it anew")
    shutil.copyfile(Path(__file__).parent / "handouts" / PAGE, out)
    yield f"written: {out}\n\nRead it in twenty minutes. To see it learn in half a one, type:"
    yield f"\n    {_typed('python')} {_quoted(options.file)}"


def _slides(options: argparse.Namespace) -> Iterator[str]:
    from npformer.handouts.slides import LessonFails, lesson_file, lesson_numbers, save_slides

    lessons, failed = options.lesson or list(lesson_numbers()), False
    pages = [f"{lesson_file(lesson).stem}.html" for lesson in lessons]
    folder = folder_for(options.out, pages)  # what cannot be is said before any work
    for i, lesson in enumerate(lessons, start=1):
        _working(f"slides {i} of {len(lessons)}: lesson {lesson} is run for its pictures")
        try:
            yield f"written: {save_slides(lesson, folder, partial(_refuse, 'slides'))}"
        except LessonFails as error:
            failed = bool(_refuse("slides", str(error)))
    if failed:
        raise SystemExit(1)


def _worksheet(options: argparse.Namespace) -> Iterator[str]:
    _working(f"the worksheet of {options.seed} is drawn")
    choices = {"key": options.key, "paper": options.paper, "minutes": options.minutes}
    yield f"written: {save_worksheet(options.seed, options.out, **choices)}"


def _fetch(options: argparse.Namespace) -> Iterator[str]:
    yield f"written: {', '.join(map(str, fetch_stories()))}"


def _play(options: argparse.Namespace) -> Iterator[str]:
    out, named = place_for(options.out, ".html"), options.name is not None
    example = example_from_name(options.name) if named else None
    decimals = DECIMALS if named and options.decimals is None else options.decimals
    trace = worked_example(example, decimals=decimals, update=options.update)
    player = play(trace, at=options.at, variants=options.variant)
    yield f"written: {player.save(out)}"


def _verdict(trace: Trace) -> str:
    """The gradient check of the block that the trace went through, and how near the trace is to the block."""
    x, block, config = trace.named["x"].value, trace.example.block, trace.example.config
    _, cache = encoder_block_forward(x, block, config)
    _, grads = encoder_block_backward(trace.named["d_y"].value, cache)
    far = max(float(np.abs(trace.named[f"d_{path}"].value - grad).max()) for path, grad in leaves(grads))
    report = gradcheck(encoder_block_forward, encoder_block_backward, x, block, config)
    return (
        "Are these gradients right? encoder_block_backward, which finds them all in one call, differs from\n"
        f"the numbers above by {far:.1e} at most. Here it is checked against differences of the forward\n"
        f"pass, for a random d_output:\n\n{report}"
    )


def _working(what: str) -> None:
    """Said while something takes its time, to whoever looks on; a file or a pipe gets the result alone."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"{what} …".translate(ASCII), file=sys.stderr, flush=True)


def _say(text: str) -> None:
    """Print at once, in ASCII where the terminal knows no other letters."""
    if sys.stdout is None:  # closed: nobody wants to read
        return
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(ASCII).encode(encoding, "replace").decode(encoding)
    print(text, flush=True)
