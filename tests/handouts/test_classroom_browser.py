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

import pytest
from predicts import predicts
from test_classroom import LESSONS, read
from weights import skip_without

from npformer.handouts.lesson_copies import named, student_copy

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
    home = tmp_path_factory.mktemp("room")
    for name, values in SETTINGS.items():
        file = home / ".jupyter" / "lab" / "user-settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    (shown := home / "lessons").mkdir()
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    options = "--no-browser --allow-root --expose-app-in-browser --IdentityProvider.token=".split()
    options += [f"--ServerApp.port={port}", f"--ServerApp.root_dir={shown}"]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "IPYTHON"))} | {
        "HOME": str(home)
    }
    with (home / "log").open("w") as log:
        command = [sys.executable, "-m", request.param, *options]
        server = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        try:
            wait_for(f"http://localhost:{port}/api", server)
            yield f"http://localhost:{port}/{PAGES[request.param]}", shown
        finally:
            server.terminate()
            server.wait(30)


def wait_for(address, server):
    until = time.monotonic() + 120
    while server.poll() is None and time.monotonic() < until:
        try:
            return urllib.request.urlopen(address).close()
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the notebook server did not start")


@pytest.fixture
def opened(chromium, room):
    """Open a notebook in the room."""
    address, folder = room
    pages = []

    def open_notebook(name, notebook):
        (folder / name).write_text(json.dumps(notebook), encoding="utf-8")
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


def fragment(answer):
    """The longest part of an answer that reads the same in the file and on the page."""
    words = re.sub(r"\$[^$]+\$|`[^`]+`", "$", answer)
    plain = max(re.split(r"[|$*\[\]()\n\"']", words), key=len).strip()
    assert len(plain) >= 4, f"an answer in which no words follow each other: {answer!r}"
    return plain


def told(page):
    """What stands on the page outside code cells' input, in one line."""
    return " ".join(" ".join(page.locator(TOLD).all_inner_texts()).split())


def step_through(page, notebook):
    """Run every cell: an answer is there when its cell has run, and not before."""
    asked = {predict.id: fragment(predict.answer) for predict in predicts(notebook)}
    page.evaluate(f"{NOTEBOOK}.activeCellIndex = 0; {NOTEBOOK}.mode = 'command'; {NOTEBOOK}.node.focus()")
    for number, cell in enumerate(notebook["cells"]):
        answered = named(cell, "reveal")
        if answered:
            assert asked[answered] not in told(page), f"the answer {answered} is there before its cell ran"
        assert page.evaluate(f"{NOTEBOOK}.activeCellIndex") == number
        page.keyboard.press("Shift+Enter")
        model = f"{NOTEBOOK}.widgets[{number}].model"
        page.wait_for_function(f"{model}.type != 'code' || {model}.executionCount", timeout=120_000)
        if answered:
            node = page.locator(".jp-Notebook .jp-Cell").nth(number)
            node.get_by_text("Answer.").last.wait_for()
            assert asked[answered] in " ".join(node.inner_text().split())


def too_high(page):
    """{number from 1: pixels} of the code cells that with their output do not fit on the screen."""
    cells = page.locator(".jp-Notebook .jp-Cell")
    heights = "all => all.map(x => x.matches('.jp-CodeCell') ? x.getBoundingClientRect().height : 0)"
    return {n: h for n, h in enumerate(cells.evaluate_all(heights), 1) if h > HIGHEST}


def check_pictures(page):
    """Some are there; each has arrived, fits on the screen, and is described where a screen reader looks."""
    page.locator(".jp-OutputArea-output img").first.wait_for()
    looks = "all => all.map(x => [x.alt, x.naturalWidth > 0, x.getBoundingClientRect().height])"
    shown = page.locator(".jp-OutputArea-output img").evaluate_all(looks)
    assert len(shown) > 2 and all(alt and arrived and height <= 641 for alt, arrived, height in shown), shown
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    names = [n.get("name", {}).get("value") for n in nodes if n.get("role", {}).get("value") == "image"]
    assert [alt for alt, *_ in shown if alt not in names] == []


def check_screen(page, program):
    """Every code cell with its output fits, in JupyterLab's Presentation Mode with its larger letters too."""
    check_pictures(page)
    assert too_high(page) == {}
    if program == "jupyterlab":
        page.evaluate("jupyterapp.commands.execute('application:toggle-presentation-mode')")
        page.locator(".jp-mod-presentationMode").wait_for()
        page.wait_for_timeout(1000)  # JupyterLab measures its lines again, a moment later
        assert too_high(page) == {}


def lessons(*soon):
    """All of them in JupyterLab; those that do not start so are slow. The first in Notebook 7 too."""
    marks = {path: [] if path.name.startswith(soon) else pytest.mark.slow for path in LESSONS}
    cases = [pytest.param("jupyterlab", path, marks=marks[path], id=path.stem) for path in LESSONS]
    cases.append(pytest.param("notebook", LESSONS[0], id="notebook_7"))
    return pytest.mark.parametrize(("room", "path"), cases, indirect=["room"])


@lessons("01")
def test_nothing_is_spoilt_and_every_cell_fits_on_the_screen(path, opened, request):
    skip_without(path)
    page = opened(path.name, student_copy(read(path)))
    step_through(page, read(path))
    check_screen(page, request.node.callspec.params["room"])


@lessons("01", "05")
def test_every_cell_as_it_was_saved_fits_on_the_screen(path, opened, request):
    """As it came by mail: the notebook is not trusted, and its pictures are described all the same."""
    page = opened(path.name, read(path))
    assert page.evaluate(f"{NOTEBOOK}.model.cells.get(1).trusted") is False
    check_screen(page, request.node.callspec.params["room"])
