"""Run a submission, which is a .py file or a notebook and defines the answers as top-level names.

The answer to the exercise "pe.table" is the value or function with the top-level name `pe_table`, or the
entry "pe.table" of a dict `answers`. The variable `student` is a text that determines which numbers this
student gets.
"""

import json
import re
import sys
import tokenize
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from traceback import walk_tb
from types import ModuleType
from typing import Any, NamedTuple

MODULE_NAME = "submission"
MAX_PROBLEMS = 3  # the largest number of problems that are reported
PROBLEM_LENGTH = 120  # the largest length of the reason why a file cannot be read
ERROR_LENGTH = 150  # the largest length of an error that a file has raised
OTHER_LANGUAGES = (
    "bash", "sh", "script", "system", "sx", "!", "cmd", "powershell", "perl", "ruby", "html", "HTML",
    "javascript", "js", "latex", "markdown", "svg", "SVG", "writefile", "file", "cython", "R", "sql",
    "bigquery", "python2",
)  # fmt: skip


class StudentModule(NamedTuple):
    """The names that a submission defines, and a sentence about problems in reading the file."""

    names: dict[str, Any]
    answers: dict[str, Any]  # the entries of the submission's dict `answers`
    student: str
    problem: str  # why the file was not read completely, or ""
    places: frozenset[str]  # the file names in the compiled code, such as "code cell 2"


# --- run the file ---------------------------------------------------------------------------------


def run_submission(name: str, data: bytes) -> StudentModule:
    """Run the file, or the notebook's cells in order. Names that were defined before an error are kept."""
    module = ModuleType(MODULE_NAME)
    sys.modules[MODULE_NAME] = module  # Dataclasses and pickle look up the module here.
    names = vars(module)
    shell = Shell(names)
    names.update({"__file__": name, "display": shell.display, "get_ipython": lambda: shell})
    problems: dict[str, str] = {}  # by name of the file or cell
    try:
        for place, source in split_source(name, data):
            shell.place = place
            problems[place] = _run(source, place, names)
    except RecursionError:
        problems[""] = "The file cannot be read: it is nested too deeply."
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        reason = " ".join(str(error).split())[:PROBLEM_LENGTH]
        problems[""] = f"The file cannot be read: {reason}."
    problem = " ".join([text for text in problems.values() if text][:MAX_PROBLEMS])
    return StudentModule(names, _read_answers(names), _read_student(names), problem, frozenset(problems))


def _read_answers(names: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the dict `answers`, without calling any method that the student may have written."""
    answers = names.get("answers")
    return dict.copy(answers) if isinstance(answers, dict) else {}


def _read_student(names: dict[str, Any]) -> str:
    """Return the text `student`, without calling any method that the student may have written."""
    student = names.get("student")
    return str.__str__(student) if isinstance(student, str) else ""


def _run(source: str, place: str, names: dict[str, Any]) -> str:
    """Run the source. Returns a sentence about the error, or "" if there is no error."""
    try:
        exec(compile(source, place, "exec"), names)
    except SyntaxError as error:
        where = f"{place}, line {error.lineno}" if error.lineno else place
        return f"{where}: this is not Python yet ({error.msg})."
    except BaseException as error:  # A file can also raise SystemExit and KeyboardInterrupt.
        lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == place]
        where = f"{place}, line {lines[-1]}" if lines else place
        return f"{where}: {describe_error(error)}."
    return ""


def describe_error(error: BaseException) -> str:
    """Return the type of an error and its message in one line."""
    text = f"{type(error).__name__}: {format_message(error)}"
    return " ".join(text.split())[:ERROR_LENGTH].rstrip(": ")


def format_message(error: BaseException) -> str:
    """Return the message of an error in one line, or "" if the error's `__str__` fails."""
    try:
        return " ".join(str(error).split())
    except BaseException:  # A `__str__` that the student wrote may raise any error.
        return ""


# --- read the file --------------------------------------------------------------------------------


def split_source(name: str, data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the name and the Python source of the file, or of each code cell of a notebook.

    >>> list(split_source("a.py", b"x = 1"))
    [('a.py', 'x = 1')]
    """
    is_notebook = re.search(r"\.ipynb(\.(txt|json))?$", name, re.IGNORECASE)
    if not is_notebook:
        yield name, decode_source(data)
        return
    for number, cell in enumerate(_read_code_cells(data), 1):
        yield f"code cell {number}", translate_magics("".join(cell.get("source", "")))


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


def translate_magics(source: str) -> str:
    """Translate a cell to Python. IPython replaces each magic by a call of `get_ipython()`.

    If IPython is not installed, lines with magics become `pass`.

    >>> translate_magics("x = 7 % 4")
    'x = 7 % 4'
    """
    with suppress(SyntaxError, ValueError, MemoryError, RecursionError):
        compile(source, "cell", "exec")
        return source
    try:
        from IPython.core.inputtransformer2 import TransformerManager
    except ImportError:
        return re.sub(r"^(\s*)([%!?].*|[\w.]+\?+)$", r"\1pass", source, flags=re.MULTILINE)
    return str(TransformerManager().transform_cell(source))  # type: ignore[no-untyped-call,unused-ignore]


class Shell:
    """Replaces the object that `get_ipython()` returns. Only magics that contain Python run code."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self.place = ""

    def run_line_magic(self, name: str, line: str, *rest: object) -> Any:
        """Run the code of `%time`, without its options, and return its value. Ignore other magics."""
        if name != "time":
            return None
        source = re.sub(r"^(-\S+\s+)*", "", line)
        with suppress(SyntaxError):
            return eval(compile(source, self.place, "eval"), self.names)
        exec(compile(source, self.place, "exec"), self.names)

    def run_cell_magic(self, name: str, line: str, body: str) -> None:
        """Run the Python code below `%%time` or a similar magic.

        An empty line replaces the line of the magic, so that errors have the correct line number.
        """
        if name not in OTHER_LANGUAGES:
            exec(compile(translate_magics(f"\n{body}"), self.place, "exec"), self.names)

    def __getattr__(self, name: str) -> Any:
        """For every other name, such as `system`, return a function that does nothing."""
        return _do_nothing


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
