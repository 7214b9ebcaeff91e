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
from contextlib import suppress
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


class Submission(NamedTuple):
    """What a file defines, and the line that says why it is not read to its end ("" if it is)."""

    names: dict[str, Any]
    answers: dict[str, Any]  # of its dict `answers`
    student: str
    problem: str
    places: frozenset[str]  # the names under which its code was compiled


def read_submission(name: str, data: bytes) -> Submission:
    """Run the file, or the notebook's cells in order; what stood before an error counts."""
    module = ModuleType(MODULE)
    sys.modules[MODULE] = module  # dataclasses and pickle look their module up
    names = vars(module)
    shell = Shell(names)
    names.update({"__file__": name, "display": shell.display, "get_ipython": lambda: shell})
    problems = dict[str, str]()  # of each place
    try:
        for place, source in pieces(name, data):
            shell.place = place
            problems[place] = _run(source, place, names)
    except RecursionError:
        problems[""] = "The file cannot be read: it is nested too deeply."
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        problems[""] = f"The file cannot be read: {' '.join(str(error).split())[:120]}."
    student, answers = names.get("student"), names.get("answers")
    student = str.__str__(student) if isinstance(student, str) else ""
    answers = dict.copy(answers) if isinstance(answers, dict) else {}
    problem = " ".join([*filter(None, problems.values())][:3])
    return Submission(names, answers, student, problem, frozenset(problems))


def pieces(name: str, data: bytes) -> Iterator[tuple[str, str]]:
    """(where, source) of the file or of each code cell, as Python.

    >>> list(pieces("a.py", b"x = 1"))
    [('a.py', 'x = 1')]
    """
    if not re.search(r"\.ipynb(\.(txt|json))?$", name, re.IGNORECASE):
        yield name, decoded(data)
        return
    if not data.strip():
        raise ValueError("it is empty")
    try:
        notebook = json.loads(decoded(data))
    except ValueError as error:
        raise ValueError(f"it is no notebook: {error}") from None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise ValueError("it has no cells")
    cells = [each for each in notebook["cells"] if isinstance(each, dict) and each.get("cell_type") == "code"]
    for i, each in enumerate(cells, 1):
        yield f"code cell {i}", plain_python("".join(each.get("source", "")))


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


# --- magics ---------------------------------------------------------------------------------------


def plain_python(source: str) -> str:
    """A cell as Python: IPython makes calls of `get_ipython()` of all that only a notebook understands.

    Where IPython is not installed, lines of magic go.

    >>> plain_python("x = 7 % 4")
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
    """`get_ipython()`: magics do nothing, but for those that run the Python behind them."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names, self.place = names, ""

    def run_line_magic(self, name: str, line: str, *rest: object) -> Any:
        """The value of what `%time` stands before; options of its own go."""
        if name != "time":
            return None
        source = re.sub(r"^(-\S+\s+)*", "", line)
        with suppress(SyntaxError):
            return eval(compile(source, self.place, "eval"), self.names)
        exec(compile(source, self.place, "exec"), self.names)

    def run_cell_magic(self, name: str, line: str, body: str) -> None:
        """A cell below `%%time` and the like; a line further down, so that lines keep their numbers."""
        if name not in OTHER_LANGUAGES:
            exec(compile(plain_python(f"\n{body}"), self.place, "exec"), self.names)

    def __getattr__(self, name: str) -> Any:
        return lambda *objects, **options: None


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
    named = submission.names.get(exercise_id.replace(".", "_"))
    return submission.answers.get(exercise_id, named)


def names_of(submission: Submission) -> str:
    """Its top-level names and the keys of its dict `answers`, beside each other: one may be misspelt."""
    names = (*submission.names, *submission.answers)
    return " ".join(name for name in names if type(name) is str and name[:1] != "_")
