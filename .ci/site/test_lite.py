"""Open each lesson of the browser edition in Chromium, and run it cell by cell as a student would.

    uv run --group site python .ci/site/build.py build/site --only lite
    uv run --group site pytest -n 0 -s -m browser .ci/site/test_lite.py

The tests are skipped if the site is not built or Chromium is not installed. They print sizes and times.
"""

import functools
import gzip
import http.server
import json
import threading
import time

import pytest
from conftest import SITE, needs_chromium
from wheels import SERVER, canonical, get_lock, sha256

PATIENCE = 600  # the time limit per lesson in seconds, long enough for a slow machine
LESSONS = (
    "01_positional_encoding",
    "02_position_geometry",
    "03_feed_forward",
    "04_attention_and_norm",
    "05_encoder_block",
    "06_order",
    "07_decoder",
    "08_a_real_model",
    "09_gpu",
    "10_from_2017_to_today",
    "11_a_chat_model",
    "12_taught_by_reward",
    "exercises",
)

pytestmark = [
    pytest.mark.browser,
    needs_chromium,
    pytest.mark.skipif(
        not (SITE / "lite").is_dir(), reason="build the site first: .ci/site/build.py build/site"
    ),
]

PLACE = "[player.at.step, player.steps.length, player.at.cell]"

READY = """async () => {
    const app = window.jupyterapp;
    await app.started;
    while (!app.shell.currentWidget?.sessionContext) await new Promise(later => setTimeout(later, 50));
    window.lesson = app.shell.currentWidget;
    await lesson.sessionContext.ready;
    window.codes = lesson.content.widgets.filter(cell => cell.model.type === "code");
}"""
RUN = """async number => {
    lesson.content.activeCellIndex = lesson.content.widgets.indexOf(codes[number]);
    await jupyterapp.commands.execute("notebook:run-cell");
    return codes[number].model.toJSON();
}"""
ANSWER = """async source => {
    const cell = codes[codes.length - 1];
    cell.model.sharedModel.setSource(source);
    lesson.content.activeCellIndex = lesson.content.widgets.indexOf(cell);
    await jupyterapp.commands.execute("notebook:run-cell");
    return cell.model.toJSON();
}"""


TABLE = """import numpy as np
from npformer.exercises import check

def table(n, d_model):
    angles = np.arange(n)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)
    pe = np.zeros((n, d_model))
    pe[:, 0::2], pe[:, 1::2] = np.{even}(angles), np.{odd}(angles)[:, : d_model // 2]
    return pe

print(check("pe.table", table))
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address():
    handler = functools.partial(Quiet, directory=str(SITE))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def opened(chromium, address):
    """Open lessons as a new visitor. After the test, require that no request went to a different server."""
    outside, contexts = [], []

    def open_lesson(name, asked=None):
        context = chromium.new_context(viewport={"width": 1280, "height": 800})
        contexts.append(context)

        def record_request(request):
            if not request.url.startswith((address, "data:", "blob:")):
                outside.append(request.url)
            if asked is not None:
                asked.add(request.url)

        context.on("request", record_request)
        page = context.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        page.goto(f"{address}/lite/notebooks/index.html?path={name}.ipynb")
        page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        return page

    yield open_lesson
    for context in contexts:
        context.close()
    assert outside == []


def errors(cell):
    return [output for output in cell["outputs"] if output["output_type"] == "error"]


def printed(cell):
    """Return the text output of a cell."""
    texts = [o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell["outputs"]]
    return "".join("".join(text) for text in texts)


@pytest.mark.parametrize("name", LESSONS)
def test_every_lesson_runs_cell_by_cell(opened, name):
    start = time.monotonic()
    page = opened(name)
    shown = time.monotonic() - start
    page.evaluate(READY)
    first = None
    for number in range(page.evaluate("codes.length")):
        cell = page.evaluate(RUN, number)
        first = first or time.monotonic() - start
        assert cell["execution_count"] == number + 1
        assert not errors(cell), "\n".join(errors(cell)[0]["traceback"])
        assert "building the font cache" not in json.dumps(cell["outputs"])
    whole = time.monotonic() - start
    print(f"\n{name}: page {shown:.1f} s, first cell {first:.1f} s, all {number + 1} cells {whole:.0f} s")
    MORE.get(name, lambda page: None)(page)


def read_on(page):
    """Check in lesson 8 that a cell without its weights shows one line with a link to the stored result."""
    shown = [page.evaluate("k => codes[k].model.toJSON()", k)["outputs"] for k in (1, 2)]
    for outputs in shown:
        assert len(outputs) == 1 and "\n" not in (line := "".join(outputs[0]["data"]["text/markdown"]))
        assert line.startswith("A browser cannot hold") and "/lessons/08_a_real_model.html)" in line
    (mistake,) = page.evaluate(ANSWER, "print(vektors)")["outputs"]
    assert (mistake["output_type"], mistake["evalue"]) == ("error", "name 'vektors' is not defined")


def slider_and_checker(page):
    """Check in lesson 1 that the slider draws a new picture, and that the checker judges two answers."""
    slider = page.locator(".widget-interact .noUi-target").first
    slider.scroll_into_view_if_needed()
    page.wait_for_selector(".widget-interact img")
    before = page.locator(".widget-interact img").first.get_attribute("src")
    box = slider.bounding_box()
    page.mouse.click(box["x"] + 0.7 * box["width"], box["y"] + box["height"] / 2)
    page.wait_for_function(
        "before => document.querySelector('.widget-interact img')?.src !== before", arg=before
    )
    cell = page.evaluate(ANSWER, TABLE.format(even="sin", odd="cos"))
    assert printed(cell).startswith("Right")
    cell = page.evaluate(ANSWER, TABLE.format(even="cos", odd="sin"))
    assert not errors(cell) and "known" in printed(cell) and not printed(cell).startswith("Right")


def player(page):
    """Check in lesson 5 that the player reaches the last cell of its last step."""
    page.evaluate(ANSWER, "import npformer\nnpformer.play()")
    frame = page.wait_for_selector("iframe[srcdoc]").content_frame()
    frame.locator("h1").click()
    presses, before, now = 0, None, frame.evaluate(PLACE)
    while now != before:
        for _ in range(50):
            page.keyboard.press("ArrowRight")
        presses, before, now = presses + 50, now, frame.evaluate(PLACE)
    assert now[0] == now[1] - 1 and presses > 700


MORE = {"01_positional_encoding": slider_and_checker, "05_encoder_block": player, "08_a_real_model": read_on}


@pytest.mark.parametrize(
    "window", ["notebooks/index.html?path=01_positional_encoding.ipynb", "lab/index.html"]
)
def test_the_menu_help_leads_back_to_the_site(chromium, address, window):
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.goto(f"{address}/lite/{window}")
    page.click(".lm-MenuBar-item >> text=Help")
    with context.expect_page() as opened:
        page.click(".lm-Menu-itemLabel >> text=Back to the site")
    opened.value.wait_for_load_state()
    assert opened.value.url == f"{address}/index.html"
    context.close()


def test_every_wheel_of_the_lock_is_there_or_is_pyodides_own_on_its_server():
    """Also verify the checksums. The test works for sites that were built with or without --cdn."""
    folder, released = SITE / "lite" / "static" / "pyodide", get_lock()["packages"]
    packages = json.loads((folder / "pyodide-lock.json").read_text())["packages"]
    assert packages
    for name, entry in packages.items():
        if "://" in entry["file_name"]:
            assert entry["file_name"] == SERVER + released[name]["file_name"]
            assert entry["sha256"] == released[name]["sha256"]
        else:
            assert sha256(folder / entry["file_name"]) == entry["sha256"]
        assert {canonical(each) for each in entry["depends"]} <= set(packages)


FILE = "print(open('kept.txt', 'w').write('a word'))"
SECOND = "print(open('kept.txt').read())"
KEPT = "async () => (await jupyterapp.serviceManager.contents.get('kept.txt', {content: true})).content"


def test_files_of_the_page_and_a_kernel_that_is_started_again(opened):
    """The worker of the first kernel starts before JupyterLab, and the worker of the second kernel after it.

    The first kernel writes a file. The page and the second kernel can read it.
    """
    page = opened("exercises")
    page.evaluate(READY)
    assert any(worker.url.endswith("/early_worker.js") for worker in page.workers)
    cell = page.evaluate(ANSWER, FILE)
    assert not errors(cell), errors(cell)
    assert page.evaluate(KEPT) == "a word"
    page.evaluate("lesson.sessionContext.session.kernel.restart()")
    assert "a word" in printed(page.evaluate(ANSWER, SECOND))
    assert not any(worker.url.endswith("/early_worker.js") for worker in page.workers)


def test_sizes(opened):
    """Print the size of the site, and how much a first visitor downloads before the first cell runs."""
    asked: set[str] = set()
    page = opened("01_positional_encoding", asked)
    page.evaluate(READY)
    page.evaluate(RUN, 0)
    address = page.url.partition("/lite/")[0]
    files = {SITE / url.partition("?")[0].removeprefix(address).lstrip("/") for url in asked}
    fetched = [file.read_bytes() for file in files if file.is_file()]
    whole = sum(file.stat().st_size for file in (SITE / "lite").rglob("*") if file.is_file())
    print(f"\nthe browser edition: {whole / 1e6:.1f} MB")
    print(f"before the first cell: {sum(map(len, fetched)) / 1e6:.1f} MB in {len(fetched)} files, ", end="")
    print(f"compressed {sum(len(gzip.compress(content, 6)) for content in fetched) / 1e6:.1f} MB")
    assert len(fetched) > 50 and whole < 60e6
