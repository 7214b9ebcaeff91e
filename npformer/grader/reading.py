"""Reading what a student hands in: a .py file or a notebook, with answers under the names of the exercises.

The exercise pe.table is answered by a top-level name pe_table, a function or a value; or by an entry of a
dict `answers`, under its id. A name `student` chooses the numbers that belong to a student. All of this
happens in the student's process: the module imports no other of npformer.
"""

import json
import re
import sys
import tokenize
from collections.abc import Iterator
from io import BytesIO
from traceback import walk_tb
from types import ModuleType
from typing import Any, NamedTuple

MODULE = "submission"
OTHER_LANGUAGES = (
    "bash", "sh", "script", "system", "sx", "!", "cmd", "powershell", "perl", "ruby", "html", "HTML",
    "javascript", "js", "latex", "markdown", "svg", "SVG", "writefile", "file", "cython", "R", "sql",
    "bigquery", "python2",
)  # fmt: skip
MAGIC = re.compile(
    r"(?P<indent>\s*)(?:(?P<to>[\w., \[\]]+=\s*)?%(?P<name>\w+)\s*(?P<rest>.*)"
    r"|(?:[\w., ]+=\s*)?!.*|\?.*|[^#'\"]*\?)"
)
SHOWN_PROBLEMS = 3


class Submission(NamedTuple):
    """What a file defines, and the line that says why it is not read to its end ("" if it is)."""

    names: dict[str, Any]
    student: str
    problem: str
    places: frozenset[str]  # the names under which its code was compiled


def read_submission(name: str, data: bytes) -> Submission:
    """Run the file, or the notebook's cells in order; what stood before an error counts."""
    module = ModuleType(MODULE)
    sys.modules[MODULE] = module  # dataclasses and pickle look their module up
    names = vars(module)
    names.update({"__file__": name, "display": _show_nothing, "get_ipython": lambda: _Shell(names)})
    problems, places = [], []
    try:
        for place, source in pieces(name, data):
            places.append(place)
            problems.append(_run(source, place, names))
    except RecursionError:
        problems.append("The file cannot be read: it is nested too deeply.")
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        problems.append(f"The file cannot be read: {' '.join(str(error).split())[:120]}.")
    student = names.get("student", "")
    problem = " ".join([problem for problem in problems if problem][:SHOWN_PROBLEMS])
    return Submission(names, student if isinstance(student, str) else "", problem, frozenset(places))


def _show_nothing(*objects: object, **options: object) -> None:
    """`display`, where nobody looks."""


def pieces(name: str, data: bytes) -> Iterator[tuple[str, str]]:
    """(where, source) of the file or of each code cell, as Python.

    >>> list(pieces("a.py", b"x = 1"))
    [('a.py', 'x = 1')]
    """
    if not name.casefold().endswith(".ipynb"):
        yield name, decoded(data)
        return
    if not data.strip():
        raise ValueError("it is empty")
    try:
        notebook = json.loads(decoded(data))
    except ValueError as error:
        raise ValueError(f"it is no notebook: {error}") from None
    for i, source in enumerate(_code_cells(notebook), 1):
        yield f"code cell {i}", plain_python(source)


def decoded(data: bytes) -> str:
    """Text in UTF-8, UTF-16 with its mark, the encoding that a Python file names, or else Latin-1.

    >>> decoded("x = 'é'".encode("utf-16")) == decoded("x = 'é'".encode("latin-1")) == "x = 'é'"
    True
    """
    marked = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        return data.decode("utf-16" if marked else tokenize.detect_encoding(BytesIO(data).readline)[0])
    except (SyntaxError, UnicodeDecodeError):  # an encoding that there is not, or another one than it says
        return data.decode("latin-1")


def _code_cells(notebook: Any) -> list[str]:
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise ValueError("it has no cells")
    code = [cell for cell in notebook["cells"] if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    return ["".join(cell.get("source", "")) for cell in code]


# --- magics ---------------------------------------------------------------------------------------


def plain_python(source: str) -> str:
    """A cell without what only a notebook understands. Magics go, the code behind them stays.

    >>> plain_python("%%time" + chr(10) + "x = 1")
    '\\nx = 1'
    >>> plain_python("%%bash" + chr(10) + "exit")
    ''
    """
    while magic := re.match(r"\s*%%(\S*)[^\n]*", source):
        if magic[1] in OTHER_LANGUAGES:
            return ""
        source = "\n" * source[: magic.end()].count("\n") + source[magic.end() :]  # lines keep their numbers
    plain = _without_magic(source)
    if _fault(plain) is None:
        return plain
    try:  # IPython's own transformer, where IPython is installed
        from IPython.core.inputtransformer2 import TransformerManager
    except ImportError:
        return plain
    manager: Any = TransformerManager
    return str(manager().transform_cell(source))


def _without_magic(source: str) -> str:
    """Leave out each line at which reading stops and that is a magic."""
    lines = source.split("\n")
    while (at := _fault("\n".join(lines))) is not None and at < len(lines):
        if not (magic := MAGIC.fullmatch(lines[at])):
            break
        code = _timed(magic["rest"]) if magic["name"] == "time" else ""
        goes_on = lines[at].endswith("\\")
        lines[at] = magic["indent"] + ((magic["to"] or "") + code if code else "pass")
        while goes_on and at + 1 < len(lines):
            at += 1
            goes_on, lines[at] = lines[at].endswith("\\"), ""
    return "\n".join(lines)


def _fault(source: str) -> int | None:
    """The line, counted from 0, at which this is no Python."""
    try:
        compile(source, "cell", "exec")
    except SyntaxError as error:
        return max(error.lineno or 1, 1) - 1
    except (ValueError, MemoryError, RecursionError):
        pass
    return None


def _timed(line: str) -> str:
    """The Python behind %time and its options."""
    return re.sub(r"^(-\S+\s+)*", "", line).strip()


class _Shell:
    """`get_ipython()`: magics do nothing, but for those that time the Python behind them."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names

    def run_line_magic(self, name: str, line: str, *rest: object) -> None:
        if name == "time":
            exec(compile(_timed(line), "a line of magic", "exec"), self.names)

    def run_cell_magic(self, name: str, line: str, body: str) -> None:
        if name not in OTHER_LANGUAGES:
            exec(compile(body, "a cell of magic", "exec"), self.names)

    def __getattr__(self, name: str) -> Any:
        return _show_nothing


# --- what happens ---------------------------------------------------------------------------------


def _run(source: str, place: str, names: dict[str, Any]) -> str:
    try:
        exec(compile(source, place, "exec"), names)
    except SyntaxError as error:
        where = f"{place}, line {error.lineno}" if error.lineno else place
        return f"{where}: this is not Python yet ({error.msg})."
    except BaseException as error:
        lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == place]
        return f"{place}, line {lines[-1]}: {said(error)}." if lines else f"{place}: {said(error)}."
    return ""


def said(error: BaseException) -> str:
    """The type of an error and its message, in one line, even if it fails to say it."""
    try:
        message = str(error)
    except BaseException:
        message = ""
    return " ".join(f"{type(error).__name__}: {message}".split())[:150].rstrip(": ")


def answer_of(submission: Submission, exercise_id: str) -> Any:
    """The answer to one exercise, or None."""
    answers = submission.names.get("answers")
    if isinstance(answers, dict) and dict.__contains__(answers, exercise_id):
        return dict.__getitem__(answers, exercise_id)
    return submission.names.get(exercise_id.replace(".", "_"))


def names_of(submission: Submission) -> str:
    """Its top-level names and the keys of its dict `answers`, beside each other: one may be misspelt."""
    answers = submission.names.get("answers")
    keys = dict.__iter__(answers) if isinstance(answers, dict) else ()
    return " ".join(name for name in (*submission.names, *keys) if type(name) is str and name[:1] != "_")
