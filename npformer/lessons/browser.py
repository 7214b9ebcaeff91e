"""Helpers for the browser edition of the lessons, where some features of Python are missing."""

import importlib
import linecache
import symtable
import sys
from collections.abc import Callable
from traceback import walk_tb
from typing import Any

# In a browser, the lessons cannot use threads, processes or large files, and they run on one slow core.
IN_BROWSER = sys.platform == "emscripten"


def page_of(lesson: str) -> str:
    """Return the address of the page that shows a lesson with its results, on the site of this edition.

    The browser edition is in the folder lite/ of the site, and the pages are in lessons/. Call this function
    only in a browser.

    Parameters
    ----------
    lesson : str
        The file name of the lesson without .ipynb: "08_a_real_model".
    """
    location = importlib.import_module("js").location  # the module of Pyodide for the page's JavaScript
    site, _, _ = str(location.href).partition("/lite/")
    return f"{site}/lessons/{lesson}.html"


def read_on(lesson: str, lacks: str, *missing: str) -> None:
    """Show a link to the result, instead of an error, in each later cell that needs a missing name.

    A cell that stops at a missing name does not assign its own variables. So later cells that use these
    variables show a link too. Any other undefined name raises an error as usual. Call this function only in a
    browser.

    Parameters
    ----------
    lesson : str
        The file name of the lesson without .ipynb: "08_a_real_model".
    lacks : str
        The beginning of the message that the cell shows: a sentence that says what the browser lacks.
    missing : str
        The names and modules that are missing for this reason.
    """
    notebook: Any = importlib.import_module("IPython")  # `Any`, because IPython has no type annotations
    missing_names = set(missing)

    def show_message(
        shell: Any, kind: type, error: NameError | ImportError, traceback: Any, tb_offset: Any = None
    ) -> None:
        if error.name not in missing_names:
            shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)
            return
        missing_names.update(_assigned_names(_source_of_cell(shell, traceback)))
        reason = f"so this cell, which asks for `{error.name}`, shows its result on"
        message = f"{lacks}, {reason} [the page of this lesson]({page_of(lesson)})."
        notebook.display.display(notebook.display.Markdown(message))

    notebook.get_ipython().set_custom_exc((NameError, ModuleNotFoundError), show_message)


def _source_of_cell(shell: Any, traceback: Any) -> str:
    """Return the code of the cell that raised an error. IPython stores the code of a cell as a file."""
    cell_frames = [frame for frame, _ in walk_tb(traceback) if frame.f_globals is shell.user_ns]
    return "".join(linecache.getlines(cell_frames[0].f_code.co_filename))


def _assigned_names(source: str) -> set[str]:
    """Return the names that a cell sets at its top level.

    >>> sorted(_assigned_names("a, b = 1, 2\\nfor c in a: d = c\\ndef e():\\n    f = 1"))
    ['a', 'b', 'c', 'd', 'e']
    """
    table = symtable.symtable(source, "cell", "exec")
    return {
        symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()
    }


class AtOnce:
    """A replacement for a thread pool in a browser, where no thread can start; `submit` runs the task.

    >>> AtOnce().submit(print, "done").result()
    done
    """

    def submit(self, task: Callable[..., Any], *args: Any) -> "AtOnce":
        """Run the task, and return an object whose `result()` can be called.

        Parameters
        ----------
        task : function
        args : any
            The arguments of the task.
        """
        task(*args)
        return self

    def result(self) -> None:
        """Return immediately: the task is already done."""
