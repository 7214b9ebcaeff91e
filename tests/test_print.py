"""Open and print pages in several browsers: all print the same text, and all of the page is printed.

tests/handouts/test_slides_pdf.py prints slides, and .ci/site/test_docs.py prints pages of the site.
"""

import pytest
from browsers import FIREFOX
from printed import A4, count_letters, read_pages

from npformer.exercises.assignment_file import WHOLE, Assignment
from npformer.grader.class_list import Owners
from npformer.grader.report_page import format_class_page
from npformer.handouts.exam import draw_exam, make_exam_page
from npformer.player.player_page import play

pytestmark = pytest.mark.browser

# The text of the elements that are visible on paper.
SHOWN = """() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), text = [];
  while (walker.nextNode()) {
    const { parentElement: parent, data } = walker.currentNode;
    const isShown = parent.checkVisibility({ visibilityProperty: true });
    const isForEars = parent.offsetWidth === 1; // only a screen reader reads it
    if (isShown && !isForEars && !parent.closest("script, style")) text.push(data);
  }
  return text.join("");
}"""
MARGIN = dict.fromkeys(("top", "bottom", "left", "right"), "1cm")  # as in Firefox


def make_class_page():
    """Return the page about a class without students."""
    assignment = Assignment({"03-ffn-flops": {WHOLE: 1.0}}, "Homework")
    return format_class_page([], [], Owners({}, [], []), [], assignment)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Write one page of each kind. Return the files."""
    folder = tmp_path_factory.mktemp("pages")
    for step in ("h", "d_x"):  # a step with few tables, and the one with the most
        play(at=step).save(folder / f"player {step}.html")
    (folder / "exam.html").write_text(make_exam_page(draw_exam("Ada", 20)), encoding="utf-8")
    (folder / "class.html").write_text(make_class_page(), encoding="utf-8")
    return sorted(folder.iterdir())


def count_printed(pdf):
    """Return the letters on all sheets, because browsers break a long text at different lines."""
    return count_letters("".join(sheet.text for sheet in read_pages(pdf)))


def test_other_browsers_show_the_same_text(pages, chromium, other_browser):
    page = chromium.new_page()
    for file in pages:
        page.goto(file.as_uri())
        other_browser.goto(file.as_uri())
        shown = count_letters(page.evaluate(SHOWN))
        assert shown and count_letters(other_browser.evaluate_document(f"({SHOWN})()")) == shown, file.name
    page.close()


def test_both_browsers_print_the_text_of_the_page(pages, chromium, request):
    firefox = request.getfixturevalue("firefox") if FIREFOX else None
    page = chromium.new_page(viewport={"width": 794, "height": 1123})  # A4
    for file in pages:
        page.goto(file.as_uri())
        page.emulate_media(media="print")
        shown = count_letters(page.evaluate(SHOWN))
        page.emulate_media(media="null")
        printed = count_printed(page.pdf(format="A4", margin=MARGIN, print_background=True))
        assert shown and shown - printed == {}, file.name
        if firefox:
            firefox.goto(file.as_uri())
            assert count_printed(firefox.print(background=True, page=A4)) == printed, file.name
    page.close()
