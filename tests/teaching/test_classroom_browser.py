"""The lessons in a real JupyterLab, one in Notebook 7 too.

A cell with its output fits on one screen, and every picture's description is in the tree that a screen
reader walks. Stepped through as a reader does, nothing is spoilt: an answer is on the page after its cell
ran, and not before. That is tried with one lesson or two, and by `-m "browser and slow"` with all of them.
Skipped without Chromium or these programs.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest
from nbformat.sign import NotebookNotary
from predicts import predicts
from test_classroom import LESSONS
from weights import skip_without

from npformer.teaching.lessons import named, student_copy

pytest.importorskip("playwright.sync_api", reason="needs playwright: uv sync --extra test")

pytestmark = pytest.mark.browser

SCREEN = {"width": 1280, "height": 800}
HIGHEST = 720  # pixels of a code cell with its output
SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
}
NOTEBOOK = "jupyterapp.shell.currentWidget.content"
TOLD = ".jp-Notebook .jp-OutputArea-output, .jp-Notebook .jp-MarkdownOutput"

PAGES = {"jupyterlab": "lab/tree/{}?reset", "notebook": "notebooks/{}"}  # a notebook's page in each program


@pytest.fixture(scope="module")
def room(request, tmp_path_factory):
    """A server of its own, which touches nothing of the reader's: (a page's address, the folder it shows)."""
    pytest.importorskip(request.param, reason=f"needs it: uv run --with {request.param} pytest …")
    folder = tmp_path_factory.mktemp("room")
    for name, values in SETTINGS.items():
        file = folder / "settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    shown = folder / "lessons"
    shown.mkdir()
    address = f"http://localhost:{free_port()}"
    with (folder / "log").open("w") as log:
        words, env = command(request.param, address, shown), own_folders(folder)
        server = subprocess.Popen(words, env=env, stdout=log, stderr=log)
        try:
            wait_for(address, server)
            yield f"{address}/{PAGES[request.param]}", shown
        finally:
            server.terminate()
            server.wait(30)


def free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def command(program, address, shown):
    options = ["--no-browser", "--allow-root", "--expose-app-in-browser", "--IdentityProvider.token="]
    options += [f"--ServerApp.port={address.rpartition(':')[2]}", f"--ServerApp.root_dir={shown}"]
    return [sys.executable, "-m", program, *options]


def own_folders(folder):
    kinds = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime"}
    kinds |= {"JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "workspaces"}
    return {**os.environ, "IPYTHONDIR": str(folder / "i"), **{k: str(folder / v) for k, v in kinds.items()}}


def wait_for(address, server):
    until = time.monotonic() + 120
    while server.poll() is None and time.monotonic() < until:
        try:
            urllib.request.urlopen(f"{address}/api").close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the notebook server did not start")


@pytest.fixture
def opened(chromium, room):
    """Open a notebook in the room."""
    address, folder = room
    pages = []

    def open_notebook(name, notebook, trusted=True):
        notebook = nbformat.from_dict(notebook)
        if trusted:  # by a signature, as of one who has run it
            NotebookNotary(data_dir=str(folder.parent / "data")).sign(notebook)
        nbformat.write(notebook, folder / name)
        page = chromium.new_page(viewport=SCREEN)
        pages.append(page)
        page.goto(address.format(name), timeout=120_000)
        widget = "window.jupyterapp?.shell.currentWidget"
        page.wait_for_function(f"{widget}?.context?.isReady && {NOTEBOOK}.widgets.length", timeout=120_000)
        idle = f"{widget}.sessionContext.session?.kernel?.status == 'idle'"
        page.wait_for_function(idle, timeout=120_000)
        return page

    yield open_notebook
    for page in pages:
        page.evaluate("jupyterapp.shell.currentWidget.sessionContext.shutdown()")
        page.close()


def lesson(path):
    skip_without(path)
    return json.loads(path.read_text(encoding="utf-8"))


def fragment(answer):
    """The longest part of an answer that reads the same in the file and on the page."""
    words = re.sub(r"\$[^$]+\$|`[^`]+`", "$", answer)
    plain = max(re.split(r"[|$*\[\]()\n\"']", words), key=len).strip()
    assert len(plain) >= 4, f"an answer in which no words follow each other: {answer!r}"
    return plain


def run_one(page, number):
    """Shift + Enter on the active cell, then wait until the kernel has answered."""
    assert page.evaluate(f"{NOTEBOOK}.activeCellIndex") == number
    page.keyboard.press("Shift+Enter")
    model = f"{NOTEBOOK}.widgets[{number}].model"
    page.wait_for_function(f"{model}.type != 'code' || {model}.executionCount", timeout=120_000)


def told(page):
    """What stands on the page outside code cells' input, in one line."""
    return " ".join(" ".join(page.locator(TOLD).all_inner_texts()).split())


def described_pictures(page):
    """The names of all images in the accessibility tree."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    images = [node for node in nodes if node.get("role", {}).get("value") == "image"]
    return [node.get("name", {}).get("value", "") for node in images]


def pictures(page):
    """(alt, whether its pixels have arrived, shown height) of each picture among the outputs."""
    found = page.locator(".jp-OutputArea-output img")
    return found.evaluate_all(
        "all => all.map(x => [x.alt, x.naturalWidth > 0, x.getBoundingClientRect().height])"
    )


def present(page):
    """Presentation Mode, as on a stage: larger letters."""
    page.evaluate("jupyterapp.commands.execute('application:toggle-presentation-mode')")
    page.locator(".jp-mod-presentationMode").wait_for()
    page.wait_for_timeout(1000)  # JupyterLab measures its lines again, a moment later


def too_high(page):
    """{number from 1: pixels} of the code cells that with their output do not fit on the screen."""
    cells = page.locator(".jp-Notebook .jp-Cell")
    heights = "all => all.map(x => x.matches('.jp-CodeCell') ? x.getBoundingClientRect().height : 0)"
    return {n: h for n, h in enumerate(cells.evaluate_all(heights), 1) if h > HIGHEST}


def step_through(page, notebook):
    """Run every cell: an answer is there when its cell has run, and not before."""
    asked = {predict.id: fragment(predict.answer) for predict in predicts(notebook)}
    page.evaluate(f"{NOTEBOOK}.activeCellIndex = 0; {NOTEBOOK}.mode = 'command'; {NOTEBOOK}.node.focus()")
    for number, cell in enumerate(notebook["cells"]):
        answered = named(cell, "reveal")
        if answered:
            assert asked[answered] not in told(page), f"the answer {answered} is there before its cell ran"
        run_one(page, number)
        if answered:
            node = page.locator(".jp-Notebook .jp-Cell").nth(number)
            node.get_by_text("Answer.").last.wait_for()
            assert asked[answered] in " ".join(node.inner_text().split())


def check_pictures(page):
    """Each has arrived, fits on the screen, and has its description where a screen reader looks."""
    shown = pictures(page)
    assert all(alt and arrived and height <= 641 for alt, arrived, height in shown), shown
    names = described_pictures(page)
    assert [alt for alt, *_ in shown if alt not in names] == []


def fits(page, on_a_stage=True):
    """Every code cell with its output, in the program as it opens and in JupyterLab's Presentation Mode."""
    assert too_high(page) == {}
    if on_a_stage:
        present(page)
        assert too_high(page) == {}
    check_pictures(page)


def lessons(*soon):
    """All of them in JupyterLab; those that do not start so are slow."""
    marks = {path: [] if path.name.startswith(soon) else pytest.mark.slow for path in LESSONS}
    cases = [pytest.param("jupyterlab", path, marks=marks[path], id=path.stem) for path in LESSONS]
    return pytest.mark.parametrize(("room", "path"), cases, indirect=["room"])


@lessons("01")
def test_nothing_is_spoilt_and_every_cell_fits_on_the_screen(path, opened):
    notebook = lesson(path)
    page = opened(path.name, student_copy(notebook))
    step_through(page, notebook)
    fits(page)


@lessons("01", "05")
def test_every_cell_as_it_was_saved_fits_on_the_screen(path, opened):
    page = opened(path.name, lesson(path))
    fits(page)
    assert len(pictures(page)) > 2


@pytest.mark.parametrize("room", ["notebook"], indirect=True)
def test_a_lesson_in_notebook_7(opened):
    notebook = lesson(LESSONS[0])
    page = opened(LESSONS[0].name, student_copy(notebook))
    step_through(page, notebook)
    fits(page, on_a_stage=False)
    assert pictures(page), "no picture arrived"


@pytest.mark.parametrize("room", ["jupyterlab"], indirect=True)
def test_in_a_notebook_that_is_not_trusted_pictures_have_their_descriptions_too(opened):
    notebook = lesson(LESSONS[0])
    notebook["cells"][1]["source"] = "# as it came by mail"  # another text has another signature
    page = opened("untrusted.ipynb", notebook, trusted=False)
    assert page.evaluate("jupyterapp.shell.currentWidget.content.model.cells.get(1).trusted") is False
    page.locator(".jp-OutputArea-output img").first.wait_for()
    shown, names = pictures(page), described_pictures(page)
    assert len(shown) >= 5
    assert all(alt in names and arrived for alt, arrived, _ in shown)


def test_an_exported_page_has_the_descriptions_and_the_answers(chromium, tmp_path):
    exporters = pytest.importorskip("nbconvert.exporters", reason="needs nbconvert: uv sync --extra notebook")
    page_text, _ = exporters.HTMLExporter().from_filename(str(LESSONS[0]))
    assert "No description has been provided" not in page_text
    file = Path(tmp_path) / "lesson.html"
    file.write_text(re.sub(r"<script\b.*?</script>", "", page_text, flags=re.S), encoding="utf-8")
    page = chromium.new_page(viewport=SCREEN)
    page.goto(file.as_uri())
    names = described_pictures(page)
    assert len(names) >= 5 and all(len(name) > 20 for name in names)
    assert page.get_by_text("Answer.").count() == len(predicts(lesson(LESSONS[0])))
    page.close()
