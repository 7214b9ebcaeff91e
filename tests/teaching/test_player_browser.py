"""The player in a real browser: Chromium, driven by playwright, when asked for: pytest -m browser."""

import numpy as np
import pytest

from npformer.teaching.player import play
from npformer.teaching.worked_example import GIVEN, dog_bites_man, worked_example
from npformer.teaching.worksheet import example_from_name
from npformer.tree import leaves, tree_map

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: uv sync --extra test")
pytestmark = pytest.mark.browser

TRACE = worked_example()
STOPS = sum(1 if step.equation == GIVEN else step.value.size for step in TRACE.steps)


@pytest.fixture
def opened(chromium, tmp_path):
    """Open a player in a page of its own; at the end there was no error, and nothing was asked of anybody."""
    pages, troubles = [], []

    def open_page(player=None, place="", width=1280, height=720, **options):
        file = (player or play()).save(tmp_path / "play.html")
        page = chromium.new_page(viewport={"width": width, "height": height}, **options)
        pages.append(page)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda message: troubles.append(message.text))
        page.on("request", lambda request: request.url.startswith("file:") or troubles.append(request.url))
        page.goto(file.as_uri() + place)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert troubles == []


def where(page):
    return tuple(page.evaluate("[player.steps[player.at.step].name, player.at.cell]"))


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)


def numbers(trace):
    return np.concatenate([step.value.ravel() for step in trace.steps])


def same_numbers(page, trace, tolerance=1e-9):
    """Python's numbers and the page's: its exp and sin may differ in the last bit."""
    np.testing.assert_allclose(page.evaluate("player.numbers()"), numbers(trace), rtol=0, atol=tolerance)


def arithmetic(page):
    return " ".join(page.inner_text(".sum").split())


# --- from start to end ----------------------------------------------------------------------------


def test_the_keys_lead_from_the_first_cell_to_the_last_and_back(opened):
    page = opened()
    press(page, "Home")
    page.evaluate("""() => {
        const place = () => [player.steps[player.at.step].name, player.at.cell];
        window.seen = [place()];
        document.addEventListener("keydown", () => seen.push(place())); // after the player's own
    }""")
    for _ in range(STOPS - 1):
        press(page, "ArrowRight")
    seen = [tuple(place) for place in page.evaluate("seen")]
    expected = [
        (step.name, cell)
        for step in TRACE.steps
        for cell in range(1 if step.equation == GIVEN else step.value.size)
    ]
    assert seen == expected and len(seen) == 703
    press(page, "ArrowRight")
    assert where(page) == ("d_E", 15), "the end is the end"
    for _ in range(17):
        press(page, "ArrowLeft")
    assert where(page) == expected[-18]


def test_other_keys_go_by_steps_and_stations(opened):
    page = opened(place="#at=ffn.z,8")
    for key, place in [
        ("ArrowDown", ("ffn.hidden", 0)),
        ("Enter", ("ffn.hidden", 17)),
        ("ArrowUp", ("ffn.z", 0)),
        ("PageDown", ("norm_2.gamma", 0)),
        ("PageUp", ("ffn.W_1", 0)),
        ("End", ("d_E", 15)),
        ("Home", ("E", 0)),
        ("ArrowUp", ("E", 0)),
        ("PageUp", ("E", 0)),
    ]:
        press(page, key)
        assert where(page) == place, key


def test_buttons_do_what_keys_do(opened):
    page = opened(place="#at=ffn.z,8")
    for name, place in [
        ("one cell on", ("ffn.z", 9)),
        ("one cell back", ("ffn.z", 8)),
        ("the whole step", ("ffn.z", 17)),
        ("one step on", ("ffn.hidden", 0)),
        ("one step back", ("ffn.z", 0)),
        ("one station on", ("norm_2.gamma", 0)),
        ("one station back", ("ffn.W_1", 0)),
        ("to the end", ("d_E", 15)),
        ("to the start", ("E", 0)),
    ]:
        page.get_by_role("button", name=name, exact=True).click()
        assert where(page) == place, name
    page.get_by_role("button", name="feed-forward").click()
    assert where(page) == ("ffn.W_1", 0)
    page.locator(".chips button", has_text="hidden").click()
    assert where(page) == ("ffn.hidden", 0)


PRESS_THROUGH = """presses => {
    player.open("E");
    const start = performance.now();
    for (let i = 0; i < presses; i++) {
        document.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
        document.body.getBoundingClientRect();
    }
    return (performance.now() - start) / presses;
}"""


def test_sixty_presses_a_second_do_not_lag(opened):
    """All of them, each laid out before the next, in less than a sixtieth of a second on average.

    Three tries: another program may have had the processor.
    """
    page = opened()
    assert any(page.evaluate(PRESS_THROUGH, STOPS - 1) < 1000 / 60 for _ in range(3))
    assert where(page) == ("d_E", 15)


# --- what stands on the page ----------------------------------------------------------------------


def test_a_cell_shows_what_enters_it_and_its_arithmetic(opened):
    page = opened(place="#at=ffn.z,8")
    assert arithmetic(page) == (
        "z bites, column 2 = (−1.392) · (−0.5) + 2.085 · 0 + 0.546 · 1 + (−0.993) · 0.5 + (−1) = −0.255"
    )
    entering = page.locator("td.enters").all_inner_texts()
    assert entering == ["−1.392", "2.085", "0.546", "−0.993", "−0.5", "0", "1", "0.5", "−1"]
    result = page.locator(".result td")
    texts = [text.strip() for text in result.all_inner_texts()]
    assert texts[:9] == [f"{v:.3f}".replace("-", "−") for v in TRACE.named["ffn.z"].value.ravel()[:9]]
    assert texts[9:] == [""] * 9
    assert page.locator("h1").inner_text().startswith("z = h W1 + b1")


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("attention.scores,4", "= (3.461 · 0.079 + 2.079 · 0.346) / √2 = 0.995 / √2 = 0.703"),
        ("attention.weights,0", "= 0.346 / (0.346 + 1.512 + 0.513) = 0.346 / 2.371 = 0.146"),
        ("angles,2", "1 / 10000^(0/4) = 1.000"),
        ("table,4", "= sin(1.000) = 0.841"),
        ("norm_1.std,0", "= √(0.777 + 1e-05) = √(0.777) = 0.882"),
        ("ffn.hidden,8", "= max(0, −0.255) = 0.000"),
        ("d_ffn.z,8", "dz bites, column 2 = 0.751 if z > 0, else 0 (z = −0.255) = 0.000"),
        ("d_ffn.z,9", "dz bites, column 3 = 0.064 if z > 0, else 0 (z = 0.504) = 0.064"),
        ("d_E,0", "dE <pad>, column 0 = 0, since this word does not stand in the sentence = 0.000"),
        ("d_t,5", "(−0.572 − (−1.119) − 0.506 · 1.428) / 1.374"),
    ],
)
def test_the_arithmetic_reads_as_a_person_writes_it(place, line, opened):
    assert line in arithmetic(opened(place=f"#at={place}"))


def test_a_gradient_stands_beside_its_value_and_under_its_forward_line(opened):
    page = opened(place="#at=d_h,3")
    assert page.locator(".from").inner_text() == "forward: z = h W1 + b1 ; t = h + f"
    assert page.locator(".value td.beside").inner_text() == "−1.221"
    press(page, "v")
    assert page.locator(".value").count() == 0
    press(page, "v")
    assert page.locator(".value").count() == 1
    assert "backward" in page.locator(".chips b").inner_text()
    assert page.locator(".belt .letter.lit").all_text_contents() == ["dh"]


def test_softmax_and_layer_norm_show_the_rows_on_the_way(opened):
    page = opened(place="#at=attention.weights,4")
    assert page.locator("figcaption span").all_inner_texts() == ["scores", "exp", "weights"]
    page.evaluate("player.open('norm_1.x_hat')")
    shown = page.locator("figcaption span").all_inner_texts()
    assert shown == ["s", "mean", "centred", "variance", "std", "x\u0302"]


def test_every_number_that_is_shown_is_the_traces(opened):
    page = opened()
    same_numbers(page, TRACE, tolerance=1e-12)
    for place in range(len(TRACE.steps)):
        step = TRACE.steps[place]
        page.evaluate("name => player.open(name)", step.name)
        press(page, "Enter")
        shown = page.locator(".result td").evaluate_all(
            "boxes => boxes.map(box => box.querySelector('input')?.value ?? box.textContent)"
        )
        form = "{:g}" if step.equation == GIVEN else "{:z.3f}"
        assert shown == [form.format(v).replace("-", "−") for v in step.value.ravel()], step.name


# --- predictions ----------------------------------------------------------------------------------


def test_predicting_hides_the_result_until_it_is_asked_for(opened):
    page = opened(place="#at=ffn.z,8")
    press(page, "h")
    assert page.locator("td.now").inner_text() == "?"
    assert arithmetic(page).endswith("(−1) = checkshow") and "0.255" not in page.inner_text("body")
    page.get_by_role("button", name="show", exact=True).click()
    assert page.locator("td.now").inner_text() == "−0.255"
    press(page, "ArrowRight")
    assert page.locator("td.now").inner_text() == "?"
    press(page, "h")
    assert page.locator("td.now").inner_text() != "?"


def test_predicting_hides_what_is_worked_out_on_the_way(opened):
    page = opened(place="#at=attention.scores,4")
    press(page, "h")
    assert "(3.461 · 0.079 + 2.079 · 0.346) / √2 = check" in arithmetic(page)
    page.get_by_role("button", name="show", exact=True).click()
    assert "/ √2 = 0.995 / √2 = 0.703" in arithmetic(page)


@pytest.mark.parametrize(
    ("typed", "verdict", "shown"),
    [
        ("-0.255", "Right.", True),
        ("−0,255", "Right.", True),
        ("-0.257", "Rounding: right but for the last digits.", True),
        ("-0.3", "Rounding: right but for the last digits.", True),
        ("-0.26", "Rounding: right but for the last digits.", True),
        ("0.255", "Look again: the sign.", False),
        ("-0.21", "Look again.", False),
        ("-2.55", "Look again.", False),
        ("abc", "Type a number.", False),
    ],
)
def test_a_prediction_is_judged(typed, verdict, shown, opened):
    page = opened(place="#at=ffn.z,8")
    press(page, "h")
    page.fill(".guess", typed)
    press(page, "Enter")
    assert page.locator(".verdict").inner_text() == verdict
    assert page.locator("td.now").inner_text() == ("−0.255" if shown else "?")


def test_a_digit_goes_into_the_prediction_and_escape_back_to_the_keys(opened):
    page = opened(place="#at=ffn.z,8")
    press(page, "h", "-", "0", ".", "2", "5", "5")
    assert page.input_value(".guess") == "-0.255"
    press(page, "Escape", "ArrowRight")
    assert where(page) == ("ffn.z", 9) and page.input_value(".guess") == ""


def test_the_arithmetic_can_be_hidden(opened):
    page = opened(place="#at=ffn.z,8")
    press(page, "s")
    assert arithmetic(page) == "z bites, column 2 = −0.255"


# --- where a number came from ---------------------------------------------------------------------


def test_an_entering_number_says_where_it_came_from_and_leads_there_and_back(opened):
    page = opened(place="#at=ffn.z,8")
    assert not page.locator(".peek").is_visible()
    page.hover("td.enters >> nth=2")
    said = page.locator(".peek").inner_text()
    assert "h bites, column 2" in said and "0.5 · 1.092 + 0 = 0.546" in said
    page.click("td.enters >> nth=2")
    assert where(page) == ("h", 6)
    page.click("td.enters >> nth=1")
    assert where(page) == ("norm_1.x_hat", 6)
    press(page, "Backspace", "Backspace")
    assert where(page) == ("ffn.z", 8)
    press(page, "Backspace")
    assert where(page) == ("ffn.z", 8), "nowhere to return to"


def test_the_same_by_keyboard_alone(opened):
    page = opened(place="#at=ffn.z,8")
    page.locator("td.enters").nth(2).focus()
    assert "h bites, column 2" in page.locator(".peek").inner_text()
    press(page, "Enter")
    assert where(page) == ("h", 6)
    press(page, "Backspace")
    assert where(page) == ("ffn.z", 8)
    reached = set()
    for _ in range(60):
        press(page, "Tab")
        focused = "document.activeElement"
        reached.add(page.evaluate(f"{focused}.getAttribute('aria-label') ?? {focused}.className"))
    assert {"attention", "one cell on", "hide each result until you ask for it", "rounding"} <= reached
    assert any("enters" in name for name in reached)


def test_words_are_words_and_never_code(opened):
    words = ("<b>one</b>", "<i", "&lt;")
    page = opened(play(worked_example(dog_bites_man()._replace(tokens=words))), place="#at=ffn.z,0")
    assert "z <b>one</b>, column 0" in arithmetic(page)
    page.hover("td.enters >> nth=0")
    assert "h <b>one</b>, column 0" in page.locator(".peek").inner_text()
    assert page.locator(".result th[scope=row]").all_inner_texts() == list(words)


def test_a_click_on_a_box_of_the_result_goes_there(opened):
    page = opened(place="#at=ffn.z,8")
    page.click(".result td >> nth=15")
    assert where(page) == ("ffn.z", 15)


# --- links ----------------------------------------------------------------------------------------


def test_a_link_opens_at_its_cell_and_the_address_follows(opened):
    page = opened(place="#at=d_attention.scores,10")
    assert where(page) == ("d_attention.scores", 10)
    press(page, "ArrowRight")
    page.wait_for_url("**#at=d_attention.scores,11")
    page.evaluate("location.hash = '#at=x,3'")
    playwright.expect(page.locator("h1")).to_contain_text("x = embedding")
    assert where(page) == ("x", 3)


@pytest.mark.parametrize(
    ("link", "place"),
    [("", ("a", 2)), ("#at=u", ("a", 2)), ("#at=ffn.z,99", ("ffn.z", 17)), ("#at=ffn.z,x", ("ffn.z", 0))],
)
def test_a_broken_link_does_no_harm(link, place, opened):
    assert where(opened(play(at="a,2"), place=link)) == place


def test_a_frame_in_a_notebook_opens_at_its_step_and_hears_its_keys(chromium, tmp_path):
    page = chromium.new_page()
    page.set_content(f"<p>a notebook</p>{play(at='ffn.z,8')._repr_html_()}")
    frame = page.frame_locator("iframe")
    assert frame.locator("td.now").inner_text() == "−0.255"
    frame.locator("h1").click()
    press(page, "ArrowRight")
    assert frame.locator("td.now").inner_text() == f"{TRACE.named['ffn.z'].value[1, 3]:.3f}".replace("-", "−")
    page.close()


# --- numbers of one's own -------------------------------------------------------------------------


def changed(example, name, at, value):
    """The example with one given number changed."""

    def change(array):
        array = array.copy()
        array.flat[at] = value
        return array

    if name == "target":
        return example._replace(target=change(example.target))
    parts = {"E": example.embedding.E} | dict(leaves(example.block))
    embedding, block = tree_map(
        lambda array: change(array) if array is parts[name] else array, (example.embedding, example.block)
    )
    return example._replace(embedding=embedding, block=block)


@pytest.mark.parametrize("decimals", [None, 3])
def test_twenty_edits_in_the_page_give_the_numbers_that_python_gives(decimals, opened):
    rng = np.random.default_rng(0)
    example = dog_bites_man()
    page = opened(play(worked_example(example, decimals=decimals)))
    given = [step for step in TRACE.steps if step.equation == GIVEN]
    for _ in range(20):
        step = given[rng.integers(len(given))]
        at, value = int(rng.integers(step.value.size)), float(rng.integers(-8, 9)) / 4
        example = changed(example, step.name, at, value)
        first = sum(other.value.size for other in TRACE.steps[: TRACE.steps.index(step)])
        page.evaluate("([cell, value]) => player.edit(cell, value)", [first + at, value])
        same_numbers(page, worked_example(example, decimals=decimals))


def test_a_number_typed_in_changes_what_comes_after_it_and_can_be_reset(opened):
    page = opened(place="#at=ffn.b_1")
    reset = page.get_by_role("button", name="reset")
    assert not reset.is_visible()
    page.locator(".result input").nth(2).fill("1,5")
    press(page, "Tab", "Escape")
    assert page.locator(".result input").nth(2).input_value() == "1.5"
    page.evaluate("player.open('ffn.z,8')")
    assert arithmetic(page).endswith("+ 1.5 = 2.245")
    reset.click()
    assert arithmetic(page).endswith("+ (−1) = −0.255") and not reset.is_visible()


def test_a_typed_word_leaves_the_number_as_it_was(opened):
    page = opened(place="#at=ffn.b_1")
    page.locator(".result input").nth(2).fill("two")
    press(page, "Tab")
    assert page.locator(".result input").nth(2).input_value() == "−1"


def test_a_given_number_that_enters_leads_to_its_box(opened):
    page = opened(place="#at=ffn.z,8")
    page.click("td.enters >> nth=8")
    assert where(page) == ("ffn.b_1", 0)
    assert page.evaluate("document.activeElement.value") == "−1"


def test_rounding_can_be_chosen_in_the_page(opened):
    page = opened(play(worked_example(decimals=3)))
    for choice, decimals in [("exact", None), ("2 decimals", 2), ("3 decimals", 3)]:
        page.get_by_label("rounding").select_option(label=choice)
        same_numbers(page, worked_example(decimals=decimals))


def test_a_worksheets_numbers_are_played(opened):
    trace = worked_example(example_from_name("Ada"), decimals=3)
    same_numbers(opened(play(trace)), trace)


NAMES = """Ada Björn Chen Dana Emeka Fatima Goran Hana Ines Jun Kofi Lea Mirza Noor Olga Straße ΣΊΣΥΦΟΣ
Işık 太郎 🙂""".split()


def test_a_name_draws_the_numbers_of_its_worksheet_in_the_page(opened):
    page = opened()
    for name in [*NAMES, "  jean   PAUL "]:
        page.evaluate("name => player.drawName(name)", name)
        expected = numbers(worked_example(example_from_name(name), decimals=3))
        np.testing.assert_allclose(
            page.evaluate("player.numbers()"), expected, rtol=0, atol=1e-9, err_msg=name
        )


def test_a_name_is_typed_in_and_given_up_again(opened):
    page = opened(place="#at=ffn.z,8")
    page.get_by_label("a name").fill("Ada")
    press(page, "Enter")
    playwright.expect(page.get_by_label("rounding")).to_have_value("3")
    value = worked_example(example_from_name("Ada"), decimals=3).named["ffn.z"].value[1, 2]
    assert page.locator("td.now").inner_text() == f"{value:.3f}".replace("-", "−")
    press(page, "ArrowRight")
    assert where(page) == ("ffn.z", 9), "the keys are the player's again"
    page.get_by_role("button", name="reset").click()
    assert page.get_by_label("a name").input_value() == ""
    np.testing.assert_allclose(
        page.evaluate("player.numbers()"), numbers(worked_example(decimals=3)), atol=1e-9
    )


def test_another_sentence_has_no_box_for_a_name(opened):
    example = dog_bites_man()
    other = example._replace(tokens=("man", "bites", "dog"), ids=example.ids[::-1])
    assert not opened(play(worked_example(other))).get_by_label("a name").is_visible()


# --- for everybody --------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "height", "pixels"), [(1280, 720, 28), (1280, 800, 28), (1920, 1080, 42)])
def test_the_numbers_are_large_and_all_of_the_page_is_on_the_screen(width, height, pixels, opened):
    page = opened(width=width, height=height)
    small = {}
    for step in TRACE.steps:
        page.evaluate("name => player.open(name)", step.name)
        size, inside = page.evaluate("""() => {
            const part = name => document.querySelector(name), whole = document.documentElement;
            const fits = e => e.scrollHeight <= e.clientHeight && e.scrollWidth <= e.clientWidth;
            const parts = [whole, part(".stage"), part(".sum")];
            return [parseFloat(part(".stage").style.fontSize), parts.every(fits)];
        }""")
        assert inside, step.name
        if size < pixels:
            small[step.name] = size / pixels
    assert list(small) == ["d_x"] and small["d_x"] >= 0.75, "seven tables of four columns, and the result"


def test_a_screen_reader_hears_the_arithmetic(opened):
    page = opened(place="#at=attention.scores,4")
    speaker = page.locator("[role=status]")
    playwright.expect(speaker).to_contain_text("scores head 1, bites, bites: ")
    playwright.expect(speaker).to_contain_text("divided by the root of 2 equals 0.703")


def test_colour_is_never_alone(opened):
    page = opened(place="#at=ffn.z,8")
    look = "e => [getComputedStyle(e).fontWeight, getComputedStyle(e).boxShadow]"
    enters, now, plain = (
        page.locator(f"td{name} >> nth=0").evaluate(look)
        for name in (".enters", ".now", ":not(.enters):not(.now)")
    )
    assert int(enters[0]) > int(plain[0]) and enters[1] != "none" and plain[1] == "none"
    assert int(now[0]) > int(enters[0]) and now[1] != enters[1]


def test_night_and_stillness_are_respected(opened):
    paper = "getComputedStyle(document.body).backgroundColor"
    moves = "getComputedStyle(document.querySelector('td')).transitionDuration"
    day, night = opened(color_scheme="light"), opened(color_scheme="dark", reduced_motion="reduce")
    assert (day.evaluate(paper), night.evaluate(paper)) == ("rgb(255, 255, 255)", "rgb(22, 22, 22)")
    assert day.evaluate(moves) != "0s" and night.evaluate(moves) == "0s"


def test_a_finger_is_enough(opened):
    page = opened(place="#at=ffn.z,8", has_touch=True, width=800, height=1200)
    page.get_by_role("button", name="one cell on").tap()
    assert where(page) == ("ffn.z", 9)
    page.locator("td.enters").first.tap()
    assert where(page) == ("h", 4)
