"""Run a submission, which is a .py file or a notebook and defines the answers as top-level names.

The answer to the exercise "pe.table" is the value or function with the top-level name `pe_table`, or the
entry "pe.table" of a dict `answers`. The variable `student` is a text that determines which numbers this
student gets.
"""

import importlib
import json
import os
import re
import shlex
import sys
import tokenize
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from .statements import Record, Runner

MODULE_NAME = "submission"
MAX_PROBLEMS = 3  # the largest number of problems that are reported
MAX_INPUTS = 100  # how often `input()` returns a text
PROBLEM_LENGTH = 120  # the largest length of the reason why a file cannot be read
OTHER_LANGUAGES = (
    "bash", "sh", "script", "system", "sx", "!", "cmd", "powershell", "perl", "ruby", "html", "HTML",
    "javascript", "js", "latex", "markdown", "svg", "SVG", "cython", "R", "sql",
    "bigquery", "python2",
)  # fmt: skip


class StudentModule(NamedTuple):
    """The names that a submission defines, and what happened while it ran."""

    names: dict[str, Any]
    answers: dict[str, Any]  # the entries of the submission's dict `answers`
    student: str
    problem: str  # the first statements that failed, or why the file cannot be read; otherwise ""
    record: Record


# --- run the file ---------------------------------------------------------------------------------


def run_submission(name: str, data: bytes, record: Record | None = None) -> StudentModule:
    """Run the file, or the notebook's cells in order. If a statement fails, the others still run."""
    record = record or Record()
    # Jupyter runs a notebook as a program, in which `__name__` is "__main__". A file is imported.
    module = ModuleType("__main__" if _is_notebook(name) else MODULE_NAME)
    sys.modules[module.__name__] = module  # Dataclasses and pickle look up the module here.
    names = vars(module)
    shell = Shell(Runner(names, record))
    names.update({"__file__": name, "display": shell.display, "get_ipython": lambda: shell})
    names["input"] = make_input(record)
    unreadable = ""
    try:
        if not _is_notebook(name):
            record.main_place = name
        for place, source in split_source(name, data):
            shell.place = place
            shell.runner.run(source, place)
    except RecursionError:
        unreadable = "The file cannot be read: it is nested too deeply."
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        reason = " ".join(str(error).split())[:PROBLEM_LENGTH]
        unreadable = f"The file cannot be read: {reason}."
    problems = [*(failure.problem for failure in record.failures), unreadable]
    problem = " ".join([text for text in problems if text][:MAX_PROBLEMS])
    return StudentModule(names, _read_answers(names), _read_student(names), problem, record)


def make_input(record: Record) -> Callable[..., str]:
    """Return the replacement for `input`. It returns an empty text, as if the student pressed Enter.

    After many calls it raises EOFError, because the submission may repeat the question forever.
    """
    remaining = iter(range(MAX_INPUTS))

    def read_input(prompt: object = "") -> str:
        record.add_note("input() returned an empty text, because no one can type here.")
        if next(remaining, None) is None:
            raise EOFError(f"input() was called more than {MAX_INPUTS} times")
        return ""

    return read_input


def _read_answers(names: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the dict `answers`, without calling any method that the student may have written."""
    answers = names.get("answers")
    return dict.copy(answers) if isinstance(answers, dict) else {}


def _read_student(names: dict[str, Any]) -> str:
    """Return the text `student`, without calling any method that the student may have written."""
    student = names.get("student")
    return str.__str__(student) if isinstance(student, str) else ""


# --- read the file --------------------------------------------------------------------------------


def split_source(name: str, data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the name and the Python source of the file, or of each code cell of a notebook.

    >>> list(split_source("a.py", b"x = 1"))
    [('a.py', 'x = 1')]
    """
    if not _is_notebook(name):
        yield name, decode_source(data)
        return
    for number, cell in enumerate(_read_code_cells(data), 1):
        yield f"code cell {number}", "".join(cell.get("source", ""))


def _is_notebook(name: str) -> bool:
    """Return whether the name is the name of a notebook. Some browsers add .txt or .json."""
    return bool(re.search(r"\.ipynb(\.(txt|json))?$", name, re.IGNORECASE))


def _read_code_cells(data: bytes) -> list[dict[str, Any]]:
    """Return the code cells of a notebook. Raises ValueError for other data."""
    if not data.strip():
        raise ValueError("it is empty")
    try:
        notebook = json.loads(decode_source(data))
    except ValueError as error:
        raise ValueError(f"it is no notebook: {error}") from None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise ValueError("it has no cells")
    return [cell for cell in notebook["cells"] if isinstance(cell, dict) and cell.get("cell_type") == "code"]


def decode_source(data: bytes) -> str:
    """Decode UTF-16 with a byte order mark, UTF-8, the encoding that a Python file declares, or Latin-1.

    >>> decode_source("x = 'é'".encode("utf-16")) == decode_source("x = 'é'".encode("latin-1")) == "x = 'é'"
    True
    """
    has_utf16_mark = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        encoding = "utf-16" if has_utf16_mark else tokenize.detect_encoding(BytesIO(data).readline)[0]
        return data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError):  # The declared encoding is unknown or wrong.
        return data.decode("latin-1")


# --- magics ---------------------------------------------------------------------------------------


class Shell:
    """Replaces the object that `get_ipython()` returns. Only magics that contain Python run code."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.place = ""

    def run_line_magic(self, name: str, line: str, *rest: object) -> Any:
        """Run `%run`, `%cd`, or the code of `%time`, whose value is returned. Ignore other magics."""
        if name == "run":
            self._run_file(line)
        if name == "cd":
            os.chdir(_find_file_name(line))
        if name != "time":
            return None
        source = re.sub(r"^(-\S+\s+)*", "", line)
        with suppress(SyntaxError):
            return eval(compile(source, self.place, "eval"), self.runner.names)
        exec(compile(source, self.place, "exec"), self.runner.names)

    def _run_file(self, line: str) -> None:
        """Run the file that is named in the line of `%run`. Raises FileNotFoundError if it is not there."""
        path = Path(_find_file_name(line))
        if not path.suffix:
            path = path.with_suffix(".py")
        self.runner.run(decode_source(path.read_bytes()), str(path))

    def run_cell_magic(self, name: str, line: str, body: str) -> None:
        """Write a file (`%%writefile`), or run the Python code below `%%time` or a similar magic.

        An empty line replaces the line of the magic, so that errors have the correct line number.
        """
        if name in ("writefile", "file"):
            _write_file(line, body)
        elif name not in OTHER_LANGUAGES:
            self.runner.run(f"\n{body}", self.place)

    def __getattr__(self, name: str) -> Any:
        """For every other name, such as `system`, return a function that does nothing."""
        return _do_nothing


def _find_file_name(line: str) -> str:
    """Return the first word in the line of a magic that is no option. Raises ValueError if there is none."""
    for word in shlex.split(line):
        if not word.startswith("-"):
            return word
    raise ValueError("the magic names no file")


def _write_file(line: str, text: str) -> None:
    """Write the text to the file that is named in the line of `%%writefile`. The option -a appends."""
    path = Path(_find_file_name(line))
    is_appended = "-a" in line.split() and path.exists()
    old_text = path.read_text("utf-8") if is_appended else ""
    path.parent.mkdir(parents=True, exist_ok=True)  # The command `!mkdir` did not run.
    path.unlink(missing_ok=True)  # The file may be a read-only copy of a submitted file.
    path.write_text(old_text + text, "utf-8")
    importlib.invalidate_caches()  # so that `import` finds the new file


def _do_nothing(*objects: object, **options: object) -> None:
    """Do nothing."""


# --- the contents ---------------------------------------------------------------------------------


def find_answer(student_module: StudentModule, exercise_id: str) -> Any:
    """Return the answer to one exercise, or None. The dict `answers` has priority over top-level names."""
    answer_by_name = student_module.names.get(exercise_id.replace(".", "_"))
    return student_module.answers.get(exercise_id, answer_by_name)


def list_names(student_module: StudentModule) -> str:
    """Return the public top-level names and the keys of `answers`, which may be misspelt exercise names."""
    names = (*student_module.names, *student_module.answers)
    return " ".join(name for name in names if type(name) is str and name[:1] != "_")


def explain_missing_answer(student_module: StudentModule, exercise_id: str) -> str:
    """Return the problem of the statement that should have defined the answer, or ""."""
    for name in (exercise_id, exercise_id.replace(".", "_")):
        if name in student_module.record.failed_names:
            return student_module.record.failed_names[name].problem
    return ""
