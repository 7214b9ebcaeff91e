"""Reads a submission: a .py file or a notebook that has answers under the names of the exercises.

The exercise pe.table is answered by the top-level name pe_table, a function or a value, or by an entry of a
dict `answers` with the exercise's id as its key. The name `student` chooses the numbers of one student.
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
    """What a file defines, and the sentence that reports why it was not read to its end ("" if it was)."""

    names: dict[str, Any]
    answers: dict[str, Any]  # of its dict `answers`
    student: str
    problem: str
    places: frozenset[str]  # the file names under which its code was compiled


def read_submission(name: str, data: bytes) -> Submission:
    """Run the file, or the cells of the notebook in order. Names that are defined before an error count."""
    module = ModuleType(MODULE)
    sys.modules[MODULE] = module  # dataclasses and pickle look for the module
    names = vars(module)
    shell = Shell(names)
    names.update({"__file__": name, "display": shell.display, "get_ipython": lambda: shell})
    problems = dict[str, str]()  # of each place
    try:
        for place, source in split_source(name, data):
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


def split_source(name: str, data: bytes) -> Iterator[tuple[str, str]]:
    """Yield (place, Python source) of the file, or of each code cell of a notebook.

    >>> list(split_source("a.py", b"x = 1"))
    [('a.py', 'x = 1')]
    """
    if not re.search(r"\.ipynb(\.(txt|json))?$", name, re.IGNORECASE):
        yield name, decode_source(data)
        return
    if not data.strip():
        raise ValueError("it is empty")
    try:
        notebook = json.loads(decode_source(data))
    except ValueError as error:
        raise ValueError(f"it is no notebook: {error}") from None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise ValueError("it has no cells")
    cells = [each for each in notebook["cells"] if isinstance(each, dict) and each.get("cell_type") == "code"]
    for i, each in enumerate(cells, 1):
        yield f"code cell {i}", translate_magics("".join(each.get("source", "")))


def decode_source(data: bytes) -> str:
    """Decode UTF-8, UTF-16 with a byte order mark, the encoding that a Python file declares, or else Latin-1.

    >>> decode_source("x = 'é'".encode("utf-16")) == decode_source("x = 'é'".encode("latin-1")) == "x = 'é'"
    True
    """
    has_utf16_mark = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        encoding = "utf-16" if has_utf16_mark else tokenize.detect_encoding(BytesIO(data).readline)[0]
        return data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError):  # the declared encoding does not exist or is not the real one
        return data.decode("latin-1")


# --- magics ---------------------------------------------------------------------------------------


def translate_magics(source: str) -> str:
    """Translate a cell to Python: IPython turns magics into calls of `get_ipython()`.

    Lines with magics are removed if IPython is not installed.

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
    """What `get_ipython()` returns: magics do nothing, except those that run the Python behind them."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names, self.place = names, ""

    def run_line_magic(self, name: str, line: str, *rest: object) -> Any:
        """Return the value of the code behind `%time`, without the options of `%time`."""
        if name != "time":
            return None
        source = re.sub(r"^(-\S+\s+)*", "", line)
        with suppress(SyntaxError):
            return eval(compile(source, self.place, "eval"), self.names)
        exec(compile(source, self.place, "exec"), self.names)

    def run_cell_magic(self, name: str, line: str, body: str) -> None:
        """Run the cell below `%%time` and the like, one line further down: its lines keep their numbers."""
        if name not in OTHER_LANGUAGES:
            exec(compile(translate_magics(f"\n{body}"), self.place, "exec"), self.names)

    def __getattr__(self, name: str) -> Any:
        return lambda *objects, **options: None


def _run(source: str, place: str, names: dict[str, Any]) -> str:
    """Run the source. Returns a sentence that reports the error, "" without one."""
    try:
        exec(compile(source, place, "exec"), names)
    except SyntaxError as error:
        where = f"{place}, line {error.lineno}" if error.lineno else place
        return f"{where}: this is not Python yet ({error.msg})."
    except BaseException as error:
        lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == place]
        where = f"{place}, line {lines[-1]}" if lines else place
        return f"{where}: {describe_error(error)}."
    return ""


def describe_error(error: BaseException) -> str:
    """Return the type of an error and its message in one line."""
    return " ".join(f"{type(error).__name__}: {message_of(error)}".split())[:150].rstrip(": ")


def message_of(error: BaseException) -> str:
    """Return the message of an error in one line, "" if its `__str__` fails."""
    try:
        return " ".join(str(error).split())
    except BaseException:
        return ""


# --- what it contains -----------------------------------------------------------------------------


def answer_of(submission: Submission, exercise_id: str) -> Any:
    """Return the answer to one exercise, None without one."""
    named = submission.names.get(exercise_id.replace(".", "_"))
    return submission.answers.get(exercise_id, named)


def names_of(submission: Submission) -> str:
    """Return its top-level names and the keys of its dict `answers`: one of them may be misspelt."""
    names = (*submission.names, *submission.answers)
    return " ".join(name for name in names if type(name) is str and name[:1] != "_")
