"""Test the lessons in a real JupyterLab, and one lesson in Notebook 7.

Each code cell with its output fits on one screen. The accessibility tree has the description of every
picture. An answer appears on the page after its cell has run, and not before. One or two lessons are tested
by default, and all of them with `-m "browser and slow"`. Without Chromium, JupyterLab or Notebook 7, the
tests are skipped.
"""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request

import pytest
from browsers import find_free_port
from predicts import predicts
from test_classroom import LESSONS, read
from weights import skip_without

from npformer.handouts.lesson_copies import get_entry, make_student_copy

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: uv sync --extra test")

pytestmark = pytest.mark.browser

SCREEN = {"width": 1280, "height": 800}
HIGHEST = 720  # the largest allowed height of a code cell with its output, in pixels
SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
}
NOTEBOOK = "jupyterapp.shell.currentWidget.content"
VISIBLE_TEXT = ".jp-Notebook .jp-OutputArea-output, .jp-Notebook .jp-MarkdownOutput"
PAGES = {"jupyterlab": "lab/tree/{}?reset", "notebook": "notebooks/{}"}  # the path that opens a notebook


@pytest.fixture(scope="module")
def room(request, tmp_path_factory):
    """Run a notebook server with its own settings. Return the address of a page, and the notebook folder."""
    pytest.importorskip(request.param, reason=f"needs it: uv run --with {request.param} pytest …")
    home = tmp_path_factory.mktemp("room")
    for name, values in SETTINGS.items():
        file = home / ".jupyter" / "lab" / "user-settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    lessons_folder = home / "lessons"
    lessons_folder.mkdir()
    port = find_free_port()
    options = "--no-browser --allow-root --expose-app-in-browser --IdentityProvider.token=".split()
    options += [f"--ServerApp.port={port}", f"--ServerApp.root_dir={lessons_folder}"]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "IPYTHON"))} | {
        "HOME": str(home)
    }
    with (home / "log").open("w") as log:
        command = [sys.executable, "-m", request.param, *options]
        server = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        try:
            wait_for(f"http://localhost:{port}/api", server)
            yield f"http://localhost:{port}/{PAGES[request.param]}", lessons_folder
        finally:
            stop(server)


def stop(server):
    """Stop a notebook server. JupyterLab sometimes ignores SIGTERM, so it is killed after a minute."""
    server.terminate()
    try:
        server.wait(60)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def wait_for(address, server):
    until = time.monotonic() + 600
    while server.poll() is None and time.monotonic() < until:
        try:
            return urllib.request.urlopen(address).close()
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the notebook server did not start")


@pytest.fixture
def opened(chromium, room):
    """Return a function that opens a notebook on the server."""
    address, folder = room
    pages = []

    def open_notebook(name, notebook):
        (folder / name).write_text(json.dumps(notebook), encoding="utf-8")
        page = chromium.new_page(viewport=SCREEN)
        pages.append(page)
        page.goto(address.format(name))
        widget = "window.jupyterapp?.shell.currentWidget"
        page.wait_for_function(f"{widget}?.context?.isReady && {NOTEBOOK}.widgets.length")
        idle = f"{widget}.sessionContext.session?.kernel?.status == 'idle'"
        page.wait_for_function(idle)
        return page

    yield open_notebook
    for page in pages:
        page.evaluate("jupyterapp.shell.currentWidget.sessionContext.shutdown()")
        page.close()


def find_plain_part(answer):
    """Return the longest part of an answer that is the same text in Markdown and on the page."""
    text = re.sub(r"\$[^$]+\$|`[^`]+`", "$", answer)
    plain = max(re.split(r"[|$*\[\]()\n\"']", text), key=len).strip()
    assert len(plain) >= 4, f"the answer has no plain part: {answer!r}"
    return plain


def read_page(page):
    """Return the text of the page in one line, without the source of code cells."""
    return " ".join(" ".join(page.locator(VISIBLE_TEXT).all_inner_texts()).split())


def step_through(page, notebook):
    """Run every cell. Check that each answer appears after its cell has run, and not before."""
    answers = {predict.id: find_plain_part(predict.answer) for predict in predicts(notebook)}
    page.evaluate(f"{NOTEBOOK}.activeCellIndex = 0; {NOTEBOOK}.mode = 'command'; {NOTEBOOK}.node.focus()")
    for number, cell in enumerate(notebook["cells"]):
        prediction = get_entry(cell, "reveal")
        if prediction:
            assert answers[prediction] not in read_page(page), f"{prediction} is visible before its cell ran"
        assert page.evaluate(f"{NOTEBOOK}.activeCellIndex") == number
        page.keyboard.press("Shift+Enter")
        model = f"{NOTEBOOK}.widgets[{number}].model"
        page.wait_for_function(f"{model}.type != 'code' || {model}.executionCount")
        if prediction:
            node = page.locator(".jp-Notebook .jp-Cell").nth(number)
            node.get_by_text("Answer.").last.wait_for()
            assert answers[prediction] in " ".join(node.inner_text().split())


def find_high_cells(page):
    """Return {cell number from 1: height} of the code cells that, with output, do not fit on the screen."""
    cells = page.locator(".jp-Notebook .jp-Cell")
    heights = "all => all.map(x => x.matches('.jp-CodeCell') ? x.getBoundingClientRect().height : 0)"
    return {n: h for n, h in enumerate(cells.evaluate_all(heights), 1) if h > HIGHEST}


def check_pictures(page):
    """Check that there are pictures, and that each is loaded, fits on the screen and has a description."""
    page.locator(".jp-OutputArea-output img").first.wait_for()
    looks = "all => all.map(x => [x.alt, x.naturalWidth > 0, x.getBoundingClientRect().height])"
    shown = page.locator(".jp-OutputArea-output img").evaluate_all(looks)
    assert len(shown) > 2 and all(alt and arrived and height <= 641 for alt, arrived, height in shown), shown
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    names = [n.get("name", {}).get("value") for n in nodes if n.get("role", {}).get("value") == "image"]
    assert [alt for alt, *_ in shown if alt not in names] == []


def check_screen(page, program):
    """Check that every code cell fits on the screen, also with the large font of Presentation Mode."""
    check_pictures(page)
    assert find_high_cells(page) == {}
    if program == "jupyterlab":
        page.evaluate("jupyterapp.commands.execute('application:toggle-presentation-mode')")
        page.locator(".jp-mod-presentationMode").wait_for()
        page.wait_for_timeout(1000)  # wait until JupyterLab has measured all lines again
        assert find_high_cells(page) == {}


def check_slider(page):
    """Check that an arrow key on the first slider, if there is one, replaces the picture below it."""
    handle = page.locator(".widget-slider .noUi-handle").first
    if not handle.count():
        return
    cell = page.locator(".jp-CodeCell", has=handle)
    before = cell.locator("img").get_attribute("src")
    handle.press("ArrowRight")
    other_picture = "([image, before]) => image.isConnected ? image.src != before : true"
    page.wait_for_function(other_picture, arg=[cell.locator("img").element_handle(), before])
    playwright.expect(cell.locator("img")).to_have_count(1)
    assert cell.locator("img").get_attribute("src") != before


def parametrize_lessons(*default):
    """Parametrize a test with all lessons in JupyterLab, and with the first one in Notebook 7.

    Lessons whose file names do not begin with a number in `default` get the marker `slow`.
    """
    marks = {path: [] if path.name.startswith(default) else pytest.mark.slow for path in LESSONS}
    cases = [pytest.param("jupyterlab", path, marks=marks[path], id=path.stem) for path in LESSONS]
    cases.append(pytest.param("notebook", LESSONS[0], id="notebook_7"))
    return pytest.mark.parametrize(("room", "path"), cases, indirect=["room"])


@parametrize_lessons("01")
def test_answers_appear_after_their_cells(path, opened, request):
    skip_without(path)
    page = opened(path.name, make_student_copy(read(path)))
    step_through(page, read(path))
    check_slider(page)
    check_screen(page, request.node.callspec.params["room"])


@parametrize_lessons("01", "05")
def test_saved_cells_fit_on_the_screen(path, opened, request):
    """Jupyter does not trust the notebook, as if it came by mail. Its pictures still have descriptions."""
    page = opened(path.name, read(path))
    assert page.evaluate(f"{NOTEBOOK}.model.cells.get(1).trusted") is False
    check_screen(page, request.node.callspec.params["room"])
