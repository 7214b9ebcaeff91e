"""The address of a lesson's page, as a browser edition works it out from its own."""

import sys
from types import SimpleNamespace

import pytest
from IPython.core.interactiveshell import InteractiveShell

from npformer.teaching.browser import IN_BROWSER, AtOnce, page_of, read_on


@pytest.mark.parametrize("site", ["https://example.org", "http://localhost:8000/npformer"])
def test_a_page_is_found_from_the_folder_of_the_browser_edition(site, monkeypatch):
    here = SimpleNamespace(location=SimpleNamespace(href=f"{site}/lite/extensions/kernel/worker.js"))
    monkeypatch.setitem(sys.modules, "js", here)
    assert page_of("09_gpu") == f"{site}/lessons/09_gpu.html"


def test_a_cell_that_lacks_something_says_where_to_read_on_and_a_mistake_stays_one(monkeypatch, capsys):
    shell = InteractiveShell()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    here = SimpleNamespace(location=SimpleNamespace(href="https://example.org/lite/worker.js"))
    monkeypatch.setitem(sys.modules, "js", here)
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    read_on("08_a_real_model", "A browser cannot hold them")
    shell.run_cell("print(params)")
    assert capsys.readouterr().out == ""
    assert [text.data for text in shown] == [
        "A browser cannot hold them, so this cell, which asks for `params`, shows its result on "
        "[the page of this lesson](https://example.org/lessons/08_a_real_model.html)."
    ]
    shell.run_cell("import no_such_module")
    assert "asks for `no_such_module`" in shown[1].data
    shell.run_cell("1 / 0")
    assert "ZeroDivisionError" in capsys.readouterr().out
    assert len(shown) == 2


def test_this_is_a_browser_only_where_python_was_compiled_for_one():
    assert IN_BROWSER == (sys.platform == "emscripten")


def test_without_a_thread_work_is_done_when_it_is_handed_in():
    done = []
    waiting = AtOnce().submit(done.append, "work")
    assert done == ["work"]
    assert waiting.result() is None
