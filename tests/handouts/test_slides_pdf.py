"""Test slides as PDF: finding a browser, its errors, and the pages that Chromium and Firefox print."""

import base64
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from browsers import CHROMIUM
from PIL import Image
from printed import needs_firefox, read_pages

from npformer import cli
from npformer.handouts import slides, slides_pdf
from npformer.handouts.slides_pdf import PrintFails, find_browser, save_pdf
from npformer.player.player_page import OLD_BROWSER, play


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Replace the slides of each lesson by a file without content, and return this file."""
    file = tmp_path / "01_a.html"
    file.write_text("")
    monkeypatch.setattr(slides, "save_slides", lambda *_: file)
    return file


@pytest.fixture
def browser(monkeypatch):
    """Return a function that replaces the browser: it gets the command, and prints if `prints`."""

    def replace(prints=True, stderr=b"", error=None):
        def run(command, **_):
            if error is not None:
                raise error
            options = dict(word.partition("=")[::2] for word in command)
            if prints:
                Path(options["--print-to-pdf"]).write_bytes(b"%PDF")
            return subprocess.CompletedProcess(command, 1 - prints, stderr=stderr)

        monkeypatch.setattr(subprocess, "run", run)
        monkeypatch.setenv(slides_pdf.BROWSER_VARIABLE, sys.executable)

    return replace


def test_slides_command_writes_a_pdf(page, browser, tmp_path, capsys):
    browser()
    assert cli.main(["slides", "01", "--pdf", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"written: {page}\nwritten: {page.with_suffix('.pdf')}\n"


def test_slides_command_reports_a_failing_browser(page, browser, tmp_path, capsys):
    page.with_suffix(".pdf").write_text("an old file")
    browser(prints=False, stderr=b"first\nno display\n")
    assert cli.main(["slides", "01", "--pdf", "--out", str(tmp_path)]) == 1
    assert "01_a.html: no display\n" in capsys.readouterr().err
    assert not page.with_suffix(".pdf").exists()


def test_slides_command_without_a_browser_does_no_work(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(slides, "save_slides", lambda *_: pytest.fail("work was done"))
    monkeypatch.delenv(slides_pdf.BROWSER_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(slides_pdf, "PLACES", (str(tmp_path / "none"),))
    assert cli.main(["slides", "01", "--pdf", "--out", str(tmp_path)]) == 2
    assert slides_pdf.NO_BROWSER in capsys.readouterr().err


def test_save_pdf_browser_without_message_or_end(page, browser):
    browser(prints=False)
    with pytest.raises(PrintFails, match="exit code 1"):
        save_pdf(page, sys.executable)
    browser(error=subprocess.TimeoutExpired("x", 1))
    with pytest.raises(PrintFails, match=f"{slides_pdf.PAGE_SECONDS} seconds"):
        save_pdf(page, sys.executable)


@pytest.mark.parametrize(("n_early", "is_written"), [(2, True), (slides_pdf.ATTEMPTS, False)])
def test_save_pdf_repeats_pages_printed_too_early(n_early, is_written, page, monkeypatch):
    """The title in the file says that the players of the page were not loaded yet."""
    calls = []

    def run(command, **_):
        calls.append(command)
        title = slides_pdf.NOT_READY if len(calls) <= n_early else b"1. Where?"
        page.with_suffix(".pdf").write_bytes(b"%PDF /Title (" + title + b")")

    monkeypatch.setattr(subprocess, "run", run)
    if is_written:
        assert b"Where" in save_pdf(page, "chromium").read_bytes()
        assert len(calls) == n_early + 1
    else:
        with pytest.raises(PrintFails, match="too early 5 times"):
            save_pdf(page, "chromium")
        assert not page.with_suffix(".pdf").exists()


@pytest.mark.parametrize("is_root", [True, False])
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no root")
def test_save_pdf_without_sandbox_only_for_root(is_root, page, monkeypatch):
    commands = []

    def run(command, **_):
        commands.append(command)
        page.with_suffix(".pdf").touch()

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(os, "geteuid", lambda: 0 if is_root else 1000)
    assert save_pdf(page, "chromium") == page.with_suffix(".pdf")
    assert ("--no-sandbox" in commands[0]) == is_root


# --- real browsers --------------------------------------------------------------------------------


def make_picture():
    """Return a picture of a slide's size as HTML."""
    file = io.BytesIO()
    Image.new("RGB", (940, 480), "#0072b2").save(file, "PNG")
    encoded = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="a wide picture" src="data:image/png;base64,{encoded}">'


PRINTED = "\n".join(["```text", *(f"row {i}: {i}.000" for i in range(14)), "```"])
QUESTION = slides.ASKED.format("5.1a") + "**Predict.** Which?"
ANSWER = slides.ANSWERED + "**Answer.** This one. " + "And one more sentence, for a second line. " * 2
# The slides, and for each of their pages the words that must be on it and the words that must not.
SLIDES = [
    (slides.Slide("# The title\n\nOne"), [("title One", "")]),
    (
        slides.Slide(f"## The player\n\n{play(at='h')._repr_html_()}", (QUESTION,)),
        [("player dog bites man check", "Predict"), ("player dog bites man check Predict", "")],
    ),
    (
        slides.Slide(f"## A picture\n\n{make_picture()}", (QUESTION, ANSWER)),
        [("picture", "Predict"), ("picture Predict", "Answer"), ("picture Answer", "Predict")],
    ),
    (slides.Slide(f"## A table\n\n{PRINTED}", (ANSWER,)), [("13.000", "Answer"), ("13.000 Answer", "")]),
    (slides.Slide("## No content", (QUESTION,)), [("content Predict", "")]),
]
SLIDE = {
    "page": {"width": 33.867, "height": 19.05},
    "margin": dict.fromkeys(("top", "bottom", "left", "right"), 0),
}
PAGES = [page for _, pages in SLIDES for page in pages]
COVERED = """async () => {
  await printable;
  const found = [];
  for (const slide of document.querySelectorAll(".pdf-page section")) {
    const title = slide.querySelector("h1, h2").textContent, { bottom, left } = slide.getBoundingClientRect();
    const isShown = part => part.checkVisibility({ visibilityProperty: true, opacityProperty: true });
    const bars = [...slide.querySelectorAll(".footer")].filter(isShown);
    const top = Math.min(bottom, ...bars.map(bar => bar.getBoundingClientRect().top));
    const parts = [...slide.querySelectorAll(".area :is(p, pre, img, iframe)")].filter(isShown);
    for (const part of parts) {
      const box = part.getBoundingClientRect();
      if (box.bottom > top + 1) found.push(`${title}: covered from ${top} to ${box.bottom}`);
      if (box.left < left) found.push(`${title}: cut at the left`);
    }
  }
  return found;
}"""


@pytest.fixture(scope="module")
def deck(tmp_path_factory):
    """Write a file with a slide of each kind."""
    pytest.importorskip("nbconvert", reason="needs nbconvert: uv sync --extra slides")
    page = slides.format_page([slide for slide, _ in SLIDES], "x", slides.read_page_parts())
    file = tmp_path_factory.mktemp("deck") / "few.html"
    file.write_text(page, encoding="utf-8")
    return file


def check_pages(pages):
    """Check the text of each page of `deck`."""
    assert len(pages) == len(PAGES)
    n_with_picture = sum("picture" in present for present, _ in PAGES)
    assert sum(page.n_pictures for page in pages) == n_with_picture
    for page, (present, absent) in zip(pages, PAGES, strict=True):
        assert all(word in page.text for word in present.split()), (present, page.text)
        assert not any(word in page.text for word in absent.split()), (absent, page.text)


@pytest.mark.browser
def test_chromium_prints_each_state_of_each_slide(deck, chromium, monkeypatch):
    monkeypatch.setenv(slides_pdf.BROWSER_VARIABLE, CHROMIUM)
    check_pages(read_pages(save_pdf(deck, find_browser()).read_bytes()))
    page = chromium.new_page(viewport={"width": 1280, "height": 720})
    page.goto(f"{deck.as_uri()}?print-pdf")
    assert page.evaluate(COVERED) == []
    page.add_style_tag(content=".pdf-page .area > * { flex: none; height: 700px; margin-left: -60px; }")
    found = page.evaluate(COVERED)  # with the added style, the content is too large
    assert "A table: covered" in str(found) and "A picture: cut at the left" in found
    page.close()


@pytest.mark.browser
@needs_firefox
def test_firefox_prints_the_same_pages(deck, firefox):
    firefox.goto(f"{deck.as_uri()}?print-pdf")
    assert firefox.evaluate(f"({COVERED})()") == []
    check_pages(read_pages(firefox.print(background=True, shrinkToFit=False, **SLIDE)))


STEP_THROUGH = """async () => {
  const errors = [];
  addEventListener("error", event => errors.push(event.message));
  for (let i = 0; i < 20 && !Reveal.isLastSlide(); i++) {
    Reveal.next();
    await new Promise(requestAnimationFrame);
  }
  return [Reveal.isLastSlide(), errors];
}"""


@pytest.mark.browser
def test_other_browsers_step_through_the_slides(deck, other_browser):
    other_browser.goto(deck.as_uri())
    assert other_browser.evaluate(f"({STEP_THROUGH})()") == [True, []]


@pytest.mark.browser
@pytest.mark.parametrize("is_old", [True, False])
def test_slides_and_player_report_an_old_browser(is_old, deck, chromium, tmp_path):
    page = chromium.new_page()
    if is_old:
        page.add_init_script("CSS.supports = () => false")
    for file in (deck, play().save(tmp_path / "player.html")):
        page.goto(file.as_uri())
        assert page.get_by_text(OLD_BROWSER).count() == is_old
    page.close()
