"""Test the show of hands in a real browser: the keys, the fields, the bars, and the saved file."""

import pytest

from npformer.handouts.hands import read_counts, save_questions

pytest.importorskip("playwright.sync_api", reason="needs playwright: uv sync --extra test")
pytest.importorskip("nbconvert", reason="needs nbconvert: uv sync --extra slides")
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return save_questions("03", tmp_path_factory.mktemp("hands") / "hands.html")


@pytest.fixture
def page(chromium, file):
    """Open the page at its first question. The page must have no error."""
    page = chromium.new_page(viewport={"width": 1280, "height": 720})
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(file.as_uri())
    page.wait_for_function("Reveal.isReady()")
    page.keyboard.press("ArrowRight")
    yield page
    page.context.close()
    assert problems == []


def press(page, keys):
    for key in keys:
        page.keyboard.press(key)


def read_numbers(page):
    return page.eval_on_selector_all(".hands .number", "fields => fields.map(field => field.value)")


def test_keys_count_hands_in_two_votes(page):
    press(page, ["1", "2", "2", "Shift+Digit2", "t", "2", "2", "4"])
    assert read_numbers(page) == ["1", "0", "1", "2", "0", "0", "0", "1"]
    assert page.inner_text(".summary").split("\n") == ["First vote: 2 hands", "Second vote: 3 hands"]


def test_keys_on_the_title_do_nothing(page):
    press(page, ["ArrowLeft", "1", "0"])
    assert page.is_hidden(".hands")


def test_fewer_than_no_hands_is_impossible(page):
    press(page, ["1", "Shift+Digit1", "Shift+Digit1", "2"])
    assert read_numbers(page)[:4] == ["0", "", "1", ""]


def test_zero_hides_and_shows_the_counts(page):
    press(page, ["1", "0"])
    assert page.is_hidden(".hands")
    press(page, ["0"])
    assert page.is_visible(".hands") and read_numbers(page)[0] == "1"


def test_another_question_has_its_own_counts(page):
    press(page, ["1"])
    first = page.evaluate("findQuestion()")
    while page.evaluate("findQuestion()") == first:
        page.keyboard.press("ArrowRight")
    assert page.is_hidden(".hands")
    press(page, ["2"])
    assert read_numbers(page)[:4] == ["0", "", "1", ""]


def test_bars_have_the_shares_of_the_votes(page):
    press(page, ["1", "2", "2", "2"])
    widths = page.eval_on_selector_all(
        ".bar.first", "bars => bars.map(bar => bar.getBoundingClientRect().width)"
    )
    assert widths[1] == pytest.approx(3 * widths[0], abs=0.1) and widths[2] == 0


def test_typed_text_moves_no_slide(page):
    press(page, ["1"])
    slide = page.evaluate("Reveal.getIndices()")
    page.click(".hands [aria-label='Answer A']")
    page.keyboard.type("12 n p o f")
    page.keyboard.press("Enter")
    assert page.evaluate("Reveal.getIndices()") == slide and read_numbers(page)[0] == "1"
    assert page.input_value(".hands [aria-label='Answer A']") == "12 n p o f"
    press(page, ["1"])  # after Enter, the keys count again
    assert read_numbers(page)[0] == "2"


def test_saved_file_is_read_by_the_command(page, tmp_path):
    press(page, ["1", "2", "2"])
    page.fill(".hands .class", '10b, "B"')
    page.keyboard.press("Enter")
    page.fill(".hands [aria-label='Answer B']", 'one, "shared"')
    page.keyboard.press("Enter")
    page.fill(".hands [aria-label='Hands for C, second vote']", "11")
    page.keyboard.press("Enter")
    page.click(".hands .letter >> nth=1")
    with page.expect_download() as download:
        page.click(".hands .save")
    assert download.value.suggested_filename == "hands-10b_B_.csv"
    download.value.save_as(tmp_path / "saved.csv")
    (question,) = read_counts([tmp_path / "saved.csv"])
    assert (question.class_name, question.question) == ('10b, "B"', "3.1a")
    assert question.votes == ({"A": 1, "B": 2, "C": 0}, {"A": 0, "B": 0, "C": 11})
    assert question.correct == "B" and question.guesses["B"] == 'one, "shared"'


def test_counts_survive_a_reload_of_the_page(page):
    press(page, ["3"])
    page.reload()
    page.wait_for_function("Reveal.isReady()")
    page.evaluate("Reveal.slide(1)")
    press(page, ["0"])
    assert read_numbers(page)[4] == "1"


def test_box_fits_on_the_slide(page):
    press(page, ["6", "t", "6"])
    box = page.locator(".hands").bounding_box()
    assert box["x"] + box["width"] <= 1280 and box["y"] + box["height"] <= 560  # above the question
