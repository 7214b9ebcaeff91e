"""Run Python source statement by statement. If a statement fails, the other statements still run.

If the source is not valid Python, its magics are translated, and the statements that can be parsed are run. A
module that is not installed is replaced by an object that raises an error as soon as it is used.
"""

import __future__

import ast
import codeop
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from traceback import walk_tb
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from .magics import translate_magics

ERROR_LENGTH = 150  # the largest length of an error that a file has raised
MAX_STATEMENT_PARTS = 300  # the largest number of unindented lines in a statement, see `_find_statement`
PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)
NO_START = re.compile(r"\s|#|$")  # the beginning of a line that does not begin a statement
BRANCH = re.compile(r"(else|elif|except|finally)\b")  # the beginning of a line that may continue a statement
MAIN_BLOCK = "the block below `if __name__ == ...` did not run, because the file is imported."
MISSING_MODULE = "_make_missing_module"  # the top-level name of the function that replaces a module
BOUND_NAME = re.compile(r"^(?:async\s+)?(?:def|class)\s+(\w+)|^(\w+)\s*(?::[^=]*)?=(?!=)", re.MULTILINE)


class Failure(NamedTuple):
    """A statement that did not define its names: the cause in a few words, and a sentence about it."""

    cause: str  # such as "line 3 failed"
    problem: str


class Record:
    """The failures and notes of a submission, collected while its statements run."""

    def __init__(self, main_place: str = "") -> None:
        self.main_place = main_place  # the place whose name is left out of messages
        self.places = set[str]()  # the file names in the compiled code, such as "code cell 2"
        self.failures: list[Failure] = []
        self.failed_names: dict[str, Failure] = {}  # the statements that should have defined these names
        self.notes: list[str] = []  # sentences about events after which every statement has still run

    def add_failure(self, where: str, reason: str, names: set[str]) -> None:
        """Record a failed statement, which should have defined these names."""
        failure = Failure(f"{where} failed", f"{where}: {reason}; the statement was skipped.")
        self.failures.append(failure)
        self.failed_names |= dict.fromkeys(names, failure)

    def add_main_block(self, where: str, names: set[str]) -> None:
        """Record a block that runs only in a program. It should have defined these names."""
        failure = Failure(f"{where} did not run", f"{where}: {MAIN_BLOCK}")
        self.failed_names |= dict.fromkeys(names, failure)

    def add_note(self, note: str) -> None:
        """Record a sentence, once."""
        if note not in self.notes:
            self.notes.append(note)

    def format_where(self, place: str, line: int) -> str:
        """Return the place and line of a statement. The name of the main file is left out."""
        return f"line {line}" if place == self.main_place else f"{place}, line {line}"

    def explain_name_error(self, error: BaseException) -> str:
        """Return the reason why a name is not defined, if a failed statement should have defined it."""
        if not isinstance(error, NameError) or error.name not in self.failed_names:
            return ""
        return f" because {self.failed_names[error.name].cause}"


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


# --- run ------------------------------------------------------------------------------------------


class Runner:
    """Runs sources in the same namespace, and writes what happened into a record."""

    def __init__(self, names: dict[str, Any], record: Record) -> None:
        self.names = names
        self.record = record
        self.compile: Any = codeop.Compile()  # It remembers `from __future__ import` of earlier statements.
        self.compile.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        names[MISSING_MODULE] = self.make_missing_module

    def run(self, source: str, place: str) -> None:
        """Run the statements of a source. `place` is the name of the file or cell."""
        self.record.places.add(place)
        for statement in parse_statements(source):
            if isinstance(statement, BrokenStatement):
                where = self.record.format_where(place, statement.line)
                self.record.add_failure(where, statement.reason, statement.names)
                continue
            for part in _split_import(statement):
                self._run_statement(part, place)

    def _run_statement(self, statement: ast.stmt, place: str) -> None:
        """Run one statement. Record its error."""
        try:
            self._execute(statement, place)
        except BaseException as error:  # A file can also raise SystemExit and KeyboardInterrupt.
            is_handled = self._replace_module(statement, place, error) or self._define_without_annotations(
                statement, place, error
            )
            if not is_handled:
                self._record_error(statement, place, error)
        if _is_main_block(statement) and self.names["__name__"] != "__main__":
            names = _list_bound_names(statement) - self.names.keys()
            self.record.add_main_block(self.record.format_where(place, statement.lineno), names)

    def _execute(self, statement: ast.stmt, place: str) -> None:
        """Run one statement. `await` is allowed, as in a notebook."""
        self._guard_function_imports(statement, place)
        code = self.compile(ast.Module([statement], []), place, "exec")
        result = eval(code, self.names)
        if code.co_flags & inspect.CO_COROUTINE:
            import asyncio  # imported here because few submissions need it

            asyncio.run(result)

    def _define_without_annotations(self, statement: ast.stmt, place: str, error: BaseException) -> bool:
        """Define a function or class without evaluating its annotations. Returns False if this fails too.

        Python 3.14 and newer do not evaluate annotations at this point either. An annotation such as
        `x: torch.Tensor` should also not fail only because the module torch is missing.
        """
        is_definition = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if not is_definition or not isinstance(error, Exception):
            return False
        flags = self.compile.flags | __future__.annotations.compiler_flag
        try:
            exec(compile(ast.Module([statement], []), place, "exec", flags), self.names)
        except BaseException:
            return False
        if not isinstance(error, ModuleNotFoundError):  # A missing module has a separate note.
            where = self._find_line(statement, place, error)
            self.record.add_note(f"{where}: an annotation was ignored ({describe_error(error)}).")
        return True

    def _replace_module(self, statement: ast.stmt, place: str, error: BaseException) -> bool:
        """Define the name of an import whose module is not installed. Returns False for other statements.

        If the name is already defined, it keeps its value.
        """
        if not isinstance(error, ModuleNotFoundError):
            return False
        if not isinstance(statement, ast.Import | ast.ImportFrom):
            return False
        where = self.record.format_where(place, statement.lineno)
        replacement = self.make_missing_module(_get_requested_module(statement), where)
        for name in _list_bound_names(statement) - {"*"}:
            self.names.setdefault(name, replacement)
        return True

    def make_missing_module(self, requested: str, where: str) -> "MissingModule":
        """Return the replacement for a module, and note that the module is not installed.

        The current exception gives the name of the missing module. This can be the requested module, or a
        module that the requested module imports.
        """
        module = getattr(sys.exception(), "name", None) or "a module"
        if requested.startswith(f"{module}."):
            module = requested
        self.record.add_note(f"{where}: {module} is not installed here.")
        return MissingModule(module)

    def _guard_function_imports(self, statement: ast.stmt, place: str) -> None:
        """Change the imports in functions, so that a missing module is replaced as at the top level."""
        for node in ast.walk(statement):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                _ImportGuard(partial(self.record.format_where, place)).generic_visit(node)

    def _record_error(self, statement: ast.stmt, place: str, error: BaseException) -> None:
        """Record the error of a statement."""
        where = self._find_line(statement, place, error)
        reason = describe_error(error) + self.record.explain_name_error(error)
        if isinstance(error, SyntaxError):
            reason = _describe_syntax_error(error)
        self.record.add_failure(where, reason, _list_bound_names(statement))

    def _find_line(self, statement: ast.stmt, place: str, error: BaseException) -> str:
        """Return the place with the line that raised the error, or else with the line of the statement."""
        lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == place]
        line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
        return self.record.format_where(place, line or (lines[-1] if lines else statement.lineno))


def _split_import(statement: ast.stmt) -> Iterator[ast.stmt]:
    """Yield an import of several names as several statements, so that one bad name does not affect others."""
    if not isinstance(statement, ast.Import | ast.ImportFrom):
        yield statement
        return
    for alias in statement.names:
        if isinstance(statement, ast.Import):
            part: ast.stmt = ast.Import([alias])
        else:
            part = ast.ImportFrom(statement.module, [alias], statement.level)
        yield ast.copy_location(part, statement)


def _get_requested_module(statement: ast.Import | ast.ImportFrom) -> str:
    """Return the name of the module that an import of one name requests."""
    return getattr(statement, "module", None) or statement.names[0].name


class _ImportGuard(ast.NodeTransformer):
    """Puts each import into a `try` statement, which replaces a module that is not installed.

    An import inside a `try` or `with` statement does not change, because the student may handle the error.
    """

    def __init__(self, format_where: Callable[[int], str]) -> None:
        self.format_where = format_where

    def visit_Import(self, node: Any) -> list[ast.stmt]:
        return [self._guard(part) for part in _split_import(node)]

    visit_ImportFrom = visit_Import

    def visit_Try(self, node: Any) -> ast.stmt:
        return node

    visit_TryStar = visit_With = visit_Try

    def _guard(self, statement: Any) -> ast.stmt:
        """Return a `try` statement around an import of one name."""
        arguments = f"{_get_requested_module(statement)!r}, {self.format_where(statement.lineno)!r}"
        handler = f"except ModuleNotFoundError: name = {MISSING_MODULE}({arguments})"
        guard: Any = ast.parse(f"try: pass\n{handler}").body[0]
        guard.body = [statement]
        guard.handlers[0].body[0].targets[0].id = _list_bound_names(statement).pop()
        for node in ast.walk(guard):
            ast.copy_location(node, statement)
        return guard


def _is_main_block(statement: ast.stmt) -> bool:
    """Return whether a statement is a block such as `if __name__ == "__main__":`."""
    return isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)


def _list_bound_names(statement: ast.stmt) -> set[str]:
    """Return the names that a statement defines, and the keys that it sets in a dict such as `answers`."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    names = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.split(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            names.add(str(node.slice.value))
    return names


class MissingModule(ModuleType):
    """Replaces a module that is not installed, or a name from such a module. Any use raises an error."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python itself looks up such names.
            raise AttributeError(name)
        self()

    def __call__(self, *arguments: object, **options: object) -> NoReturn:
        raise ModuleNotFoundError(f"{self.__name__} is not installed here", name=self.__name__)

    __getitem__ = __call__


# --- parse ----------------------------------------------------------------------------------------


class BrokenStatement(NamedTuple):
    """A statement that is not Python."""

    line: int
    reason: str
    names: set[str]


def parse_statements(source: str) -> Iterator[ast.stmt | BrokenStatement]:
    """Yield the statements of a source, after translating magics.

    Yield a BrokenStatement for a part that is not Python.

    >>> [type(statement).__name__ for statement in parse_statements("x = 1\\ny = = 2\\ndef f(): pass")]
    ['Assign', 'BrokenStatement', 'FunctionDef']
    """
    for prepare in (str, translate_magics):
        with suppress(*PARSE_ERRORS):
            yield from ast.parse(prepare(source)).body
            return
    lines = re.split(r"\r\n|\r|\n", source)
    starts = [i for i, line in enumerate(lines) if not NO_START.match(line)]
    starts = sorted({0, *starts})
    position = 0
    while position < len(starts):
        start = starts[position]
        ends = [*starts[position + 1 : position + MAX_STATEMENT_PARTS], len(lines)]
        count = _find_statement(lines, start, ends)
        if count:
            yield from _parse_lines(lines[start : ends[count - 1]], start)
            position += count
            continue
        yield from _parse_broken(lines[start : ends[0]], start)
        position += 1


def _parse_lines(lines: list[str], start: int) -> list[ast.stmt]:
    """Return the statements in these lines; `start` is the number of lines above them."""
    body = ast.parse("\n".join(lines)).body
    return [ast.increment_lineno(statement, start) for statement in body]


def _find_statement(lines: list[str], start: int, ends: list[int]) -> int:
    """Return how many parts make a complete statement, or 0. The parts begin at `start` and end at `ends`.

    A statement can have several parts, because a part ends before the next unindented line. Such lines occur
    inside a list or string with several lines, and at branches such as `else`.
    """
    found = 0
    for count, end in enumerate(ends, 1):
        text = "\n".join(lines[start:end])
        if _is_python(text):
            found = count
            has_branch = end < len(lines) and BRANCH.match(lines[end])
            if not has_branch:
                return found
        elif found or not _is_incomplete(text):
            return found
    return found


def _is_python(text: str) -> bool:
    """Return whether a text can be parsed."""
    with suppress(*PARSE_ERRORS):
        ast.parse(text)
        return True
    return False


def _is_incomplete(text: str) -> bool:
    """Return whether more lines could make these lines a statement."""
    try:
        return codeop.compile_command(text, symbol="exec") is None
    except (*PARSE_ERRORS, OverflowError):
        return False


def _parse_broken(lines: list[str], start: int) -> Iterator[ast.stmt | BrokenStatement]:
    """Yield the statements after translating magics, or the part that is broken.

    If the first line is a statement, only the lines below are broken, such as lines that are indented.
    """
    text = "\n".join(lines)
    with suppress(*PARSE_ERRORS):
        yield from _parse_lines([translate_magics(text)], start)
        return
    first: list[ast.stmt] = []
    if len(lines) > 1:
        with suppress(*PARSE_ERRORS):
            first = _parse_lines(lines[:1], start)
    yield from first
    try:
        ast.parse(text)
    except SyntaxError as error:
        line = start + min(error.lineno or 1, len(lines))
        reason = _describe_syntax_error(error)
    except (ValueError, RecursionError, MemoryError):
        line = start + 1
        reason = "the statement is nested too deeply"
    names = set() if first else {a or b for a, b in BOUND_NAME.findall(text)}
    yield BrokenStatement(line, reason, names)


def _describe_syntax_error(error: SyntaxError) -> str:
    """Return the reason why a text is not Python."""
    return f"this is not Python yet ({error.msg})"
