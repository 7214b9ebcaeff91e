"""Translate the magic commands of notebooks to Python: each becomes a call of `get_ipython()`."""

import re
import warnings
from contextlib import suppress

# Text that IPython translates: magics, shell commands, requests for help, prompts, or an indented cell.
MAGIC_SIGN = re.compile(r"\A\s|^\s*(%|!|\?|>>>|In \[)|\?\s*$|=\s*[%!]", re.MULTILINE)
CELL_MAGIC = re.compile(r"\s*%%([\w!]+)[ \t]*(.*)\n?")
LINE_MAGIC = re.compile(r"^(\s*)%(\w+)[ \t]*(.*)$", re.MULTILINE)
# Shell commands, requests for help, and cell magics that are not at the beginning of the cell.
OTHER_LINE = re.compile(r"^(\s*)(!.*|%%.*|\?{1,2}[\w.]+|[\w.]+\?+)$", re.MULTILINE)


def translate_magics(source: str) -> str:
    """Translate a cell, a file or a statement that is not Python.

    If IPython is installed, it translates all magics except a cell magic. Without IPython, each line that
    begins with a single % is translated as a magic, and a line in `OTHER_LINE` becomes `pass`.

    >>> translate_magics("%%time -q\\nx = 1")
    "get_ipython().run_cell_magic('time', '-q', 'x = 1')"
    """
    if not MAGIC_SIGN.search(source):
        return source
    cell_magic = CELL_MAGIC.match(source)
    if cell_magic:
        name, line = cell_magic.groups()
        return f"get_ipython().run_cell_magic({name!r}, {line.strip()!r}, {source[cell_magic.end() :]!r})"
    with suppress(ImportError, SyntaxError):
        from IPython.core.inputtransformer2 import TransformerManager

        manager = TransformerManager()  # type: ignore[no-untyped-call,unused-ignore]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = str(manager.transform_cell(source))
        # IPython removes empty lines at the beginning, but line numbers count them.
        empty_lines = len(source) - len(source.lstrip("\n"))
        return "\n" * empty_lines + code.lstrip("\n")
    return OTHER_LINE.sub(r"\1pass", LINE_MAGIC.sub(_call_line_magic, source))


def _call_line_magic(match: re.Match[str]) -> str:
    """Return the call that replaces the line of a magic."""
    indentation, name, line = match.groups()
    return f"{indentation}get_ipython().run_line_magic({name!r}, {line!r})"
