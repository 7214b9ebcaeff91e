"""What the browser edition of the lessons cannot do: where a lesson's page shows it instead."""

import importlib
import linecache
import symtable
import sys
from collections.abc import Callable
from traceback import walk_tb
from typing import Any

IN_BROWSER = sys.platform == "emscripten"  # no threads, no processes, one slow core, no large files


def page_of(lesson: str) -> str:
    """The address of a lesson's page, results included, on the site that this browser edition belongs to.

    The edition is the folder lite/ of the site, the pages are in lessons/. Only to be called in a browser.
    """
    here = importlib.import_module("js").location  # what Pyodide gives of the page's own world
    site, _, _ = str(here.href).partition("/lite/")
    return f"{site}/lessons/{lesson}.html"


def read_on(lesson: str, lacks: str, *missing: str) -> None:
    """From here on a cell that asks for what is missing says where its result is; no error.

    `lacks` is what the browser has not, as the beginning of that line; `missing` are the names and modules
    that are not there for this reason. A cell that stops at one of them leaves names of its own unset, and
    these are missing from then on too. Any other name that is not there is an error as ever. Only to be
    called in a browser.
    """
    notebook: Any = importlib.import_module("IPython")  # untyped
    without = {*missing}

    def say(
        shell: Any, kind: type, error: NameError | ImportError, traceback: Any, tb_offset: Any = None
    ) -> None:
        if error.name not in without:
            shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)
            return
        without.update(_set_by(_cell(shell, traceback)))
        stopped = f"so this cell, which asks for `{error.name}`, shows its result on"
        line = f"{lacks}, {stopped} [the page of this lesson]({page_of(lesson)})."
        notebook.display.display(notebook.display.Markdown(line))

    notebook.get_ipython().set_custom_exc((NameError, ModuleNotFoundError), say)


def _cell(shell: Any, traceback: Any) -> str:
    """The code of the cell that a traceback came through: IPython keeps it as the lines of a file."""
    frames = (frame for frame, _ in walk_tb(traceback) if frame.f_globals is shell.user_ns)
    return "".join(linecache.getlines(next(frames).f_code.co_filename))


def _set_by(source: str) -> set[str]:
    """The names that a cell sets at its top level.

    >>> sorted(_set_by("a, b = 1, 2\\nfor c in a: d = c\\ndef e():\\n    f = 1"))
    ['a', 'b', 'c', 'd', 'e']
    """
    table = symtable.symtable(source, "cell", "exec")
    return {
        symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()
    }


class AtOnce:
    """In the place of a pool with one thread, where no thread can start: work is done when it is handed in.

    >>> AtOnce().submit(print, "done").result()
    done
    """

    def submit(self, task: Callable[..., Any], *args: Any) -> "AtOnce":
        """Do the task before anything else happens."""
        task(*args)
        return self

    def result(self) -> None:
        """Nothing is left to wait for."""
