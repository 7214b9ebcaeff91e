"""What the browser edition of the lessons cannot do: where a lesson's page shows it instead."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

IN_BROWSER = sys.platform == "emscripten"  # no threads, no processes, one slow core, no large files


def page_of(lesson: str) -> str:
    """The address of a lesson's page, results included, on the site that this browser edition belongs to.

    The edition is the folder lite/ of the site, the pages are in lessons/. Only to be called in a browser.
    """
    here = importlib.import_module("js").location  # what Pyodide gives of the page's own world
    site, _, _ = str(here.href).partition("/lite/")
    return f"{site}/lessons/{lesson}.html"


def read_on(lesson: str, lacks: str) -> None:
    """From here on a cell that asks for a missing name or module says where its result is; no error.

    `lacks` is what the browser has not, as the beginning of that line. Only to be called in a browser.
    """
    notebook: Any = importlib.import_module("IPython")  # untyped

    def say(
        shell: Any, kind: type, error: NameError | ImportError, traceback: Any, tb_offset: Any = None
    ) -> None:
        missing = f"so this cell, which asks for `{error.name}`, shows its result on"
        line = f"{lacks}, {missing} [the page of this lesson]({page_of(lesson)})."
        notebook.display.display(notebook.display.Markdown(line))

    notebook.get_ipython().set_custom_exc((NameError, ModuleNotFoundError), say)


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
