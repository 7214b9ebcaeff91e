"""The player in a real browser: Chromium, driven by playwright, when asked for: pytest -m browser.

One walk looks at every step; what hands do with keys and fields is a table of what is done and what is seen.
Numbers are held against Python's: those of worked_example, and of the package's own training.
"""

from importlib import resources

import axe
import numpy as np
import pytest
from test_worked_example import of_the_package, replaced

from npformer.teaching.player import Mark, play
from npformer.teaching.recipes import by_form
from npformer.teaching.worked_example import GIVEN, dog_bites_man, varied, worked_example
from npformer.teaching.worksheet import example_from_name

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: uv sync --extra test")
pytestmark = pytest.mark.browser

TRACE = worked_example()
PLACES = [
    (step.name, cell)
    for step in TRACE.steps
    for cell in range(1 if step.equation == GIVEN else step.value.size)
]


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


def click(page, name):
    page.get_by_role("button", name=name, exact=True).click()


def numbers(trace):
    return np.concatenate([step.value.ravel() for step in trace.steps])


def same_numbers(page, trace, tolerance=1e-9):
    """Python's numbers and the page's: its exp and sin may differ in the last bit."""
    found = np.array(page.evaluate("player.numbers().map(String)"), dtype=float)
    np.testing.assert_allclose(found, numbers(trace), rtol=0, atol=tolerance)


def arithmetic(page):
    return " ".join(page.inner_text(".sum").split())


def as_shown(value):
    return f"{value:z.3f}".replace("-", "−")


# --- every step -----------------------------------------------------------------------------------

PRESS_THROUGH = """presses => {
    const place = () => [player.steps[player.at.step].name, player.at.cell], seen = [place()];
    const start = performance.now();
    for (let i = 0; i < presses; i++) {
        document.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
        document.body.getBoundingClientRect();
        seen.push(place());
    }
    return [seen, (performance.now() - start) / presses];
}"""


def test_the_keys_lead_from_the_first_cell_to_the_last_sixty_a_second(opened):
    """All of them, each laid out before the next; three tries: another program may have had the processor."""
    page, times = opened(), []
    while not times or (times[-1] >= 1000 / 60 and len(times) < 3):
        press(page, "Home")
        seen, each = page.evaluate(PRESS_THROUGH, len(PLACES) - 1)
        times.append(each)
        assert [tuple(place) for place in seen] == PLACES
    assert times[-1] < 1000 / 60
    press(page, "ArrowRight")
    assert where(page) == PLACES[-1], "the end is the end"
    press(page, *["ArrowLeft"] * 17)
    assert where(page) == PLACES[-18]


LAYOUT = """() => {
    const part = name => document.querySelector(name), whole = document.documentElement;
    const fits = e => e.scrollHeight <= e.clientHeight && e.scrollWidth <= e.clientWidth;
    const parts = [whole, part(".stage"), part(".sum")];
    const box = e => e.querySelector("input")?.value ?? e.textContent;
    const shown = [...document.querySelectorAll(".result td[data-cell]")].map(box);
    const size = parseFloat(part(".stage").style.fontSize), live = !part(".strip").hidden;
    return [size, parts.every(fits), live, shown, document.querySelectorAll("td.enters").length];
}"""


@pytest.mark.parametrize(("width", "height", "pixels"), [(1280, 720, 24), (1280, 800, 24), (1920, 1080, 36)])
def test_each_step_shows_its_numbers_large_and_all_of_it_is_on_the_screen(width, height, pixels, opened):
    """28 pixels, or a seventh less where that makes room for the live strip, which most steps have."""
    page = opened(width=width, height=height)
    same_numbers(page, TRACE, tolerance=1e-12)
    small, bare = {}, []
    for step in TRACE.steps:
        page.evaluate("name => player.open(name)", step.name)
        press(page, "Enter")
        size, inside, live, shown, entering = page.evaluate(LAYOUT)
        form = "{:g}" if step.equation == GIVEN else "{:z.3f}"
        assert shown == [form.format(v).replace("-", "−") for v in step.value.ravel()], step.name
        assert inside, step.name
        assert not step.recipes or bool(entering) == bool(by_form(step.recipes[-1:])[0].enter.size)
        small |= {step.name: size / pixels} if size < pixels else {}
        bare += [] if live else [step.name]
    assert list(small) == ["d_x"] and small["d_x"] >= 0.75, "seven tables of four columns, and the result"
    assert len(bare) <= 5, bare


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(scheme, opened):
    page = opened(place="#at=ffn.z,8", color_scheme=scheme)
    shown = [("ffn.z,8", ""), ("ffn.z,9", "h"), ("d_h,3", "h"), ("E", ""), ("new_y,2", "t"), ("y", "z")]
    for name, keys in [*shown, ("ffn.z", "y")]:
        page.evaluate("name => player.open(name)", name)
        press(page, *keys)
        page.wait_for_timeout(300)  # colours change slowly
        assert axe.violations(page) == [], name


def test_the_types_in_the_code_are_right():
    start = resources.files("npformer.teaching").joinpath("page", "start.js")
    assert axe.type_errors(str(start)) == []


LINES = [  # a cell, and how a person writes its arithmetic
    ("ffn.z,8", "= (−1.392) · (−0.5) + 2.085 · 0 + 0.546 · 1 + (−0.993) · 0.5 + (−1) = −0.255"),
    ("attention.scores,4", "= (3.461 · 0.079 + 2.079 · 0.346) / √2 = 0.995 / √2 = 0.703"),
    ("attention.weights,0", "= 0.229 / (0.229 + 1.000 + 0.339) = 0.229 / 1.568 = 0.146"),
    ("attention.max,0", "= the largest of −1.061, 0.413, −0.668 = 0.413"),
    ("attention.shifted,0", "= −1.061 − 0.413 = −1.474"),
    ("new_attention.W_Q,0", "= 0.5 − 0.01 · 0.415 = 0.496"),
    ("angles,2", "1 / 10000^(0/4) = 1.000"),
    ("table,4", "= sin(1.000) = 0.841"),
    ("norm_1.std,0", "= √(0.777 + 1e-05) = √(0.777) = 0.882"),
    ("ffn.hidden,8", "= max(0, −0.255) = 0.000"),
    ("d_ffn.z,9", "dz bites, column 3 = 0.064 if z > 0, else 0 (z = 0.504) = 0.064"),
    ("d_E,0", "dE <pad>, column 0 = 0, since this word does not stand in the sentence = 0.000"),
    ("d_t,5", "(−0.572 − (−1.119) − 0.506 · 1.428) / 1.374"),
]


def test_the_arithmetic_reads_as_a_person_writes_it_and_is_heard(opened):
    page = opened()
    for place, line in LINES:
        page.evaluate("place => player.open(place)", place)
        assert line in arithmetic(page), place
    page.evaluate("player.open('attention.scores,4')")
    speaker = playwright.expect(page.locator(".speaker"))
    speaker.to_contain_text("scores head 1, bites, bites: ")
    speaker.to_contain_text("divided by the root of 2 equals 0.703")


# --- what hands do: each row begins at ffn.z, cell 8 -----------------------------------------------

BUTTONS = {
    "cell ▶: one cell on": ("ArrowRight", ("ffn.z", 9)),
    "◀ cell: one cell back": ("ArrowLeft", ("ffn.z", 7)),
    "all ⏎: the whole step": ("Enter", ("ffn.z", 17)),
    "step ▼: one step on": ("ArrowDown", ("ffn.hidden", 0)),
    "▲ step: one step back": ("ArrowUp", ("ffn.b_2", 0)),
    "▶▶ one station on": ("PageDown", ("norm_2.gamma", 0)),
    "◀◀ one station back": ("PageUp", ("norm_1.gamma", 0)),
    "to the end": ("End", PLACES[-1]),
    "to the start": ("Home", PLACES[0]),
}


def test_keys_and_buttons_do_the_same(opened):
    page = opened()
    for name, (key, place) in BUTTONS.items():
        for act in (lambda key=key: press(page, key), lambda name=name: click(page, name)):
            page.evaluate("document.activeElement.blur(); player.open('ffn.z,8')")
            act()
            assert where(page) == place, name
    press(page, "ArrowUp", "PageUp")
    assert where(page) == PLACES[0]
    page.get_by_role("button", name="feed-forward: feed-forward network").click()
    page.locator(".chips button", has_text="hidden").click()
    assert where(page) == ("ffn.hidden", 0)
    page.click(".result td[data-cell] >> nth=15")
    assert where(page) == ("ffn.hidden", 15)


def test_an_entering_number_leads_to_where_it_came_from_and_back_by_mouse_and_keyboard(opened):
    page = opened(place="#at=ffn.z,8")
    for way in ("mouse", "keys"):
        assert not page.locator(".peek").is_visible()
        entering = page.locator("td.enters").nth(2)
        entering.hover() if way == "mouse" else entering.focus()
        said = page.locator(".peek").inner_text()
        assert "h bites, column 2" in said and "0.5 · 1.092 + 0 = 0.546" in said
        entering.click() if way == "mouse" else press(page, "Enter")
        assert where(page) == ("h", 6)
        page.click("td.enters >> nth=1")
        assert where(page) == ("norm_1.x_hat", 6)
        press(page, *["Backspace"] * 3)  # there is nowhere else to return to
        assert where(page) == ("ffn.z", 8)
        page.mouse.move(0, 0)
    reached, focused = set(), "document.activeElement"
    for _ in range(90):
        press(page, "Tab")
        reached.add(page.evaluate(f"{focused}.getAttribute('aria-label') ?? {focused}.className"))
    assert {"attention: multi-head attention", "cell ▶: one cell on", "rounding", "learning rate"} <= reached
    page.click("td.enters >> nth=8")
    assert where(page) == ("ffn.b_1", 0) and page.evaluate("document.activeElement.value") == "−1"


JUDGED = {
    "-0.255": "Right.",
    "−0,255": "Right.",
    "-0.257": "Rounding: right but for the last digits.",
    "-0.3": "Rounding: right but for the last digits.",
    "0.255": "Look again: the sign.",
    "-0.21": "Look again.",
    "abc": "Type a number.",
}


def test_a_prediction_hides_the_result_until_it_is_right_or_asked_for(opened):
    page = opened(place="#at=ffn.z,8")
    press(page, "h")
    assert arithmetic(page).endswith("(−1) = checkshow") and "0.255" not in page.inner_text("body")
    for typed, verdict in JUDGED.items():
        page.evaluate("player.open('x'); player.open('ffn.z,8')")
        page.fill(".guess", typed)
        press(page, "Enter")
        assert page.locator(".verdict").inner_text() == verdict
        assert page.locator("td.now").inner_text() == ("−0.255" if verdict[0] == "R" else "?"), typed
    page.evaluate("player.open('attention.scores,4')")
    press(page, "-", "1")
    assert page.input_value(".guess") == "-1", "a digit goes into the prediction"
    assert "(3.461 · 0.079 + 2.079 · 0.346) / √2 = check" in arithmetic(page)
    click(page, "show")
    assert "/ √2 = 0.995 / √2 = 0.703" in arithmetic(page)
    press(page, "Escape", "ArrowRight")
    assert page.locator("td.now").inner_text() == "?" and page.input_value(".guess") == ""
    press(page, "h", "s")
    score = as_shown(TRACE.named["attention.scores"].value[0, 1, 2])
    assert arithmetic(page) == f"scores head 1, bites, man = {score}"


def test_a_gradient_stands_beside_its_value_and_the_rows_on_the_way_are_shown(opened):
    page = opened(place="#at=d_h,3")
    assert page.locator(".from").inner_text() == "forward: z = h W1 + b1 ; t = h + f"
    for count in (1, 0, 1):
        assert page.locator(".value td.beside").count() == count
        press(page, "v")
    assert page.locator(".belt .letter.lit").all_text_contents() == ["dh"]
    page.evaluate("player.open('norm_1.x_hat')")
    shown = page.locator(".stage figcaption span").all_inner_texts()
    assert shown == ["s", "mean", "centred", "variance", "std", "x\u0302"]


def test_words_are_words_and_never_code(opened):
    words = ("<b>one</b>", "<i", "&lt;")
    page = opened(play(worked_example(dog_bites_man()._replace(tokens=words))), place="#at=ffn.z,0")
    assert "z <b>one</b>, column 0" in arithmetic(page)
    page.hover("td.enters >> nth=0")
    assert "h <b>one</b>, column 0" in page.locator(".peek").inner_text()
    assert page.locator(".result th[scope=row]").all_inner_texts() == list(words)


def test_a_link_opens_at_its_cell_the_address_follows_and_a_broken_one_does_no_harm(opened):
    page = opened(place="#at=d_attention.scores,10")
    press(page, "ArrowRight")
    page.wait_for_url("**#at=d_attention.scores,11")
    page.evaluate("location.hash = '#at=x,3'")
    playwright.expect(page.locator("h1")).to_contain_text("x = embedding")
    assert where(page) == ("x", 3)
    broken = {"": ("a", 2), "#at=u": ("a", 2), "#at=ffn.z,99": ("ffn.z", 17), "#at=ffn.z,x": ("ffn.z", 0)}
    for link, place in broken.items():
        assert where(opened(play(at="a,2"), place=link)) == place


def test_a_frame_in_a_notebook_opens_at_its_step_and_hears_its_keys(chromium):
    page = chromium.new_page()
    page.set_content(f"<p>a notebook</p>{play(at='ffn.z,8')._repr_html_()}")
    frame = page.frame_locator("iframe")
    assert frame.locator("td.now").inner_text() == "−0.255"
    frame.locator("h1").click()
    press(page, "ArrowRight")
    assert frame.locator("td.now").inner_text() == as_shown(TRACE.named["ffn.z"].value[1, 3])
    page.close()


# --- numbers of one's own: Python calculates the same ----------------------------------------------


def changed(example, name, at, value):
    """The example with one given number changed."""

    def change(array):
        array = array.copy()
        array.flat[at] = value
        return array

    return replaced(name, change, example)


def test_edits_rounding_names_and_blocks_give_the_numbers_that_python_gives(opened):
    rng, example = np.random.default_rng(0), dog_bites_man()
    page = opened(play(worked_example(example, decimals=3)))
    given = [step for step in TRACE.steps if step.equation == GIVEN]
    for _ in range(20):
        step = given[rng.integers(len(given))]
        at, value = int(rng.integers(step.value.size)), float(rng.integers(-8, 9)) / 4
        example = changed(example, step.name, at, value)
        first = sum(other.value.size for other in TRACE.steps[: TRACE.steps.index(step)])
        page.evaluate("([cell, value]) => player.edit(cell, value)", [first + at, value])
        same_numbers(page, worked_example(example, decimals=3))
    for choice, decimals in (("exact", None), ("2 decimals", 2)):
        page.get_by_label("rounding").select_option(label=choice)
        same_numbers(page, worked_example(example, decimals=decimals))
    page = opened()  # a name draws all but the norms
    for name in "Ada Björn Straße ΣΊΣΥΦΟΣ Işık 太郎 🙂".split():
        page.evaluate("name => player.drawName(name)", f"  {name} ")
        same_numbers(page, worked_example(example_from_name(name), decimals=3))
    for variants in ([], ["pre-norm", "causal", "gelu", "two-sentences", "one-head"], ["rms-norm"]):
        page = opened(play(variants=variants))
        for update in ("adam", "sgd"):
            page.evaluate("update => player.choose(update, 0.03)", update)
            with np.errstate(invalid="ignore"):
                block = varied(dog_bites_man(), variants)
                same_numbers(page, worked_example(block, update=update, learning_rate=0.03))


def test_a_number_and_a_name_are_typed_in_and_reset(opened):
    page = opened(place="#at=ffn.b_1")
    reset, box = page.get_by_role("button", name="reset"), page.locator(".result input").nth(2)
    for typed, kept in (("two", "−1"), ("1,5", "1.5")):
        assert not reset.is_visible()
        box.fill(typed)
        press(page, "Tab", "Escape")
        assert box.input_value() == kept
    page.evaluate("player.open('ffn.z,8')")
    assert arithmetic(page).endswith("+ 1.5 = 2.245")
    reset.click()
    assert arithmetic(page).endswith("+ (−1) = −0.255") and not reset.is_visible()
    page.get_by_label("a name").fill("Ada")
    press(page, "Enter")
    playwright.expect(page.get_by_label("rounding")).to_have_value("3")
    press(page, "ArrowRight")
    assert where(page) == ("ffn.z", 9), "the keys are the player's again"
    reset.click()
    assert page.get_by_label("a name").input_value() == ""
    same_numbers(page, worked_example(decimals=3))
    other = dog_bites_man()._replace(tokens=("man", "bites", "dog"))
    assert not opened(play(worked_example(other))).get_by_label("a name").is_visible()


@pytest.mark.parametrize(("update", "rate"), [("sgd", 0.01), ("adam", 0.03)])
def test_the_hundredth_step_of_training_is_the_packages(update, rate, opened):
    """By the keyboard alone: from the first cell to step 100, into one of its cells, and back again."""
    page = opened()
    page.evaluate("([update, rate]) => player.choose(update, rate)", [update, rate])
    press(page, "Home", *"t" * 10, *"x" * 9)
    losses = {k: of_the_package(dog_bites_man(), k, update, rate)[0] for k in (0, 57, 100)}
    params = of_the_package(dog_bites_man(), 100, update, rate)[2]
    page.wait_for_function("document.querySelector('.fall, .training .says')")
    loss = "player.numbers()[player.steps.find(step => step.name === 'loss').first]"
    assert page.evaluate(loss) == pytest.approx(losses[100], abs=1e-9)
    given = page.evaluate("Object.fromEntries(player.steps.map(step => [step.name, step.given]))")
    for path, array in params.items():
        np.testing.assert_allclose(given[path.split(".", 1)[1]], array.ravel(), rtol=0, atol=1e-9)
    page.evaluate("player.openTraining(57)")
    assert page.evaluate(loss) == pytest.approx(losses[57], abs=1e-9)
    press(page, "b")
    assert page.evaluate(loss) == pytest.approx(losses[0], abs=1e-9)
    playwright.expect(page.locator(".training .says")).to_contain_text("step 0 of 100")
    page.get_by_label("update").select_option("sgd")
    page.get_by_label("learning rate").select_option("1")
    page.get_by_role("button", name="100 C").click()
    playwright.expect(page.locator(".training .says")).to_contain_text("The steps are too large.")


# --- the live strip and the whole -----------------------------------------------------------------

SLOPE = """() => {
    const path = document.querySelector(".tangent").getAttribute("d").match(/-?[\\d.]+/g).map(Number);
    const line = document.querySelector(".along .loss").getAttribute("points").split(" ");
    const points = line.map(point => point.split(",").map(Number));
    const drag = document.querySelector(".along input");
    return [path, points, Number(drag.min), Number(drag.max)];
}"""


@pytest.mark.parametrize(("name", "cell"), [("attention.W_Q", 5), ("ffn.W_1", 9), ("E", 6), ("target", 3)])
def test_the_tangent_is_the_gradient_and_touches_the_curve(name, cell, opened):
    """Against differences of Python's own loss; the picture's line has that slope in the picture's scale."""

    def loss(value):
        return float(worked_example(changed(dog_bites_man(), name, cell, value)).named["loss"].value)

    page = opened(place=f"#at={name}")
    page.locator(".result input").nth(cell).focus()
    value, size = TRACE.named[name].value.flat[cell], 1e-5
    slope = (loss(value + size) - loss(value - size)) / (2 * size)
    playwright.expect(page.locator(".slope")).to_have_text(as_shown(slope))
    (x1, y1, x2, y2), points, low, high = page.evaluate(SLOPE)
    wide, near = points[-1][0] / (high - low), [loss(low + (high - low) * i / 48) for i in (0, 20, 48)]
    tall = (points[48][1] - points[0][1]) / (near[2] - near[0])
    assert points[20][1] - points[0][1] == pytest.approx((near[1] - near[0]) * tall, abs=0.2)
    assert (y2 - y1) / (x2 - x1) == pytest.approx(slope * tall / wide, abs=0.01)


def test_a_number_is_dragged_and_the_arcs_bend(opened):
    page = opened(place="#at=attention.W_Q")
    page.locator(".result input").nth(0).focus()
    arcs = "document.querySelector('.arcs svg').innerHTML"
    before = page.evaluate(arcs)
    curve = page.wait_for_function(  # it is drawn anew when a number gets the focus
        "(box => box?.width && box.toJSON())(document.querySelector('.along svg')?.getBoundingClientRect())"
    ).json_value()
    middle = curve["y"] + curve["height"] / 2
    page.mouse.move(curve["x"] + curve["width"] / 2, middle)
    page.mouse.down()
    page.mouse.move(curve["x"] + curve["width"] * 0.75, middle)
    page.mouse.up()
    dragged = page.evaluate("player.steps.find(step => step.name === 'attention.W_Q').given[0]")
    assert dragged == pytest.approx(1.5, abs=0.02)
    page.wait_for_function(f"before => {arcs} !== before", arg=before)
    same_numbers(page, worked_example(changed(dog_bites_man(), "attention.W_Q", 0, dragged)))
    page = opened(place="#at=d_attention.W_Q,5")
    press(page, "h")
    playwright.expect(page.locator(".slope")).to_have_text("?")  # a prediction is not given away
    assert page.locator(".tangent").count() == 0


def test_the_whole_block_from_afar_leads_to_its_numbers(opened):
    page = opened(place="#at=x")
    press(page, "z")
    assert page.locator(".tile.value").count() == 15 and page.locator(".tile.gradient").count() == 14
    page.locator(".tile[data-name='d_h']").click()
    assert where(page) == ("d_h", 0) and not page.locator(".whole").is_visible()
    press(page, "z", " ")
    playwright.expect(page.locator(".told")).to_contain_text("Each word has a row of numbers")
    playwright.expect(page.locator(".tile.lit")).to_have_count(2)
    press(page, "z")
    assert page.locator(".stage").is_visible()


def test_a_marked_cell_keeps_both_numbers_until_they_are_asked_for(opened):
    page = opened(play(marks=[Mark("ffn.z", 8, -0.2551, 0.75)]))
    assert where(page) == ("ffn.z", 8) and "differs" in page.locator("td.now").get_attribute("class")
    assert page.locator("td.now").inner_text() == "?" and "0.255" not in page.inner_text(".sum")
    click(page, "show the received")
    assert "received 0.75" in page.inner_text(".sum") and "0.255" not in page.inner_text(".sum")
    click(page, "show")
    assert "expected −0.2551, received 0.75" in page.inner_text(".sum")


PASTED = [  # as NumPy prints them, as a list with three decimals, too few, none
    ("{{'z': {z!r},\n 'Q': {Q!r}}}", ("ffn.z", 8), "ffn.z differs: 1 of 18 cells. Right: attention.Q."),
    ("Q = {listed}", ("embedding", 0), "Right: attention.Q."),
    ("d_z 1 2 3", ("d_ffn.z", 0), "d_ffn.z differs: 3 numbers, expected 18."),
    ("hidden: nan{seventeen}", ("ffn.hidden", 0), "ffn.hidden differs: 18 of 18 cells."),
    ("nothing", ("embedding", 0), "Paste numbers."),
]


@pytest.mark.parametrize(("text", "place", "says"), PASTED)
def test_pasted_numbers_are_compared(text, place, says, opened):
    page, Q = opened(), TRACE.named["attention.Q"].value
    z = TRACE.named["ffn.z"].value.copy()
    z.flat[8] = 0.75
    text = text.format(z=z, Q=Q.astype(np.float32), listed=Q.round(3).tolist(), seventeen=" -7e1" * 17)
    press(page, "y")
    page.get_by_role("textbox", name="numbers of your own block").fill(text)
    click(page, "compare")
    assert (where(page), page.inner_text(".yours p")) == (place, says)
    press(page, "Escape", "y", "Escape")
    assert not page.locator(".yours").is_visible()


# --- every screen ---------------------------------------------------------------------------------


def test_colour_is_never_alone_and_night_and_stillness_are_respected(opened):
    look = "e => [getComputedStyle(e).fontWeight, getComputedStyle(e).outlineStyle]"
    paper = "getComputedStyle(document.body).backgroundColor"
    moves = "getComputedStyle(document.querySelector('td[data-cell]')).transitionDuration"
    day, night = opened(color_scheme="light"), opened(color_scheme="dark", reduced_motion="reduce")
    assert (day.evaluate(paper), night.evaluate(paper)) == ("rgb(255, 255, 255)", "rgb(22, 22, 22)")
    assert day.evaluate(moves) != "0s" and night.evaluate(moves) == "0s"
    day.evaluate("player.open('ffn.z,8')")
    enters, now, plain = (
        day.locator(f"td[data-cell]{name} >> nth=0").evaluate(look)
        for name in (".enters", ".now", ":not(.enters):not(.now)")
    )
    assert int(now[0]) > int(enters[0]) > int(plain[0]) and enters[1] != "none" and plain[1] == "none"
    forced = opened(place="#at=ffn.z,8", forced_colors="active")
    marks = [".stage td.now", ".stage td.enters >> nth=0", "button.on", "[aria-pressed=true] >> nth=0"]
    assert [forced.locator(mark).evaluate(look)[1] for mark in marks] == ["solid", "dashed", "solid", "solid"]


def test_a_finger_is_enough_and_on_a_phone_the_page_is_not_too_wide(opened):
    page = opened(place="#at=ffn.z,8", has_touch=True, width=800, height=1200)
    page.get_by_role("button", name="cell ▶: one cell on").tap()
    assert where(page) == ("ffn.z", 9)
    page.locator("td.enters").first.tap()
    assert where(page) == ("h", 4)
    page = opened(place="#at=ffn.z,8", width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    inside = """e => { const text = document.createRange(); text.selectNodeContents(e);
        const [a, b] = [e, text].map(part => part.getBoundingClientRect());
        return a.left <= b.left && b.right <= a.right && getComputedStyle(e).outlineOffset; }"""
    assert page.locator("td.now").evaluate(inside) == "0px"
