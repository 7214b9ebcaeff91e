"""Tests of the player in Chromium, controlled by playwright. These tests run with pytest -m browser.

One test visits every step. A table lists actions with keys, buttons and fields, and the text that the page
then shows. The numbers of the page are compared with `worked_example`, and with training by npformer.
"""

import hashlib
from importlib import resources

import axe
import numpy as np
import pytest
from test_worked_example import loss_and_gradients
from valid_calls import replaced

from npformer.lessons.named_example import example_from_name
from npformer.lessons.recipes import group_by_form
from npformer.lessons.worked_example import GIVEN, apply_variants, dog_bites_man, worked_example
from npformer.optim import adam_init, adam_update, sgd_update
from npformer.player.player_page import Mark, play
from npformer.tree import leaves

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: uv sync --extra test")
pytestmark = pytest.mark.browser

TRACE = worked_example()
PLACES = [
    [step.name, cell]
    for step in TRACE.steps
    for cell in range(1 if step.equation == GIVEN else step.value.size)
]


@pytest.fixture
def opened(chromium, tmp_path):
    """Return a function that opens a player in a new page; no page may have an error or use the network."""
    pages, troubles = [], []

    def record_network_request(request):
        if not request.url.startswith("file:"):
            troubles.append(request.url)

    def open_page(player=None, place="", width=1280, height=720, **options):
        file = (player or play()).save(tmp_path / "play.html")
        page = chromium.new_page(viewport={"width": width, "height": height}, **options)
        pages.append(page)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda message: troubles.append(message.text))
        page.on("request", record_network_request)
        page.goto(f"{file.as_uri()}{place and '#at='}{place}")
        return page

    yield open_page
    for page in pages:
        page.close()
    assert troubles == []


def where(page):
    return page.evaluate("[player.steps[player.at.step].name, player.at.cell]")


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)


def same_numbers(page, trace, tolerance=1e-9):
    """Compare the numbers of the page with Python's; exp and sin may differ in the last bit."""
    found = np.array(page.evaluate("player.numbers().map(String)"), dtype=float)
    expected = np.concatenate([step.value.ravel() for step in trace.steps])
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def test_other_browsers_have_the_same_numbers(other_browser, tmp_path):
    """The browser opens every step without an error, and all its numbers are those of the trace."""
    other_browser.goto(play().save(tmp_path / "play.html").as_uri())
    same_numbers(other_browser, TRACE, tolerance=1e-12)
    errors, shown = other_browser.evaluate(EVERY_STEP)
    assert errors == []
    for step, texts in zip(TRACE.steps, shown, strict=True):
        expected = [as_given(v) if step.equation == GIVEN else as_shown(v) for v in step.value.flat]
        assert texts == expected, step.name


def as_shown(value):
    return f"{value:z.3f}".replace("-", "−")


def as_given(value):
    return f"{value:g}".replace("-", "−").replace("inf", "∞")


LEVEL = "document.body.dataset.level"
EVERY_STEP = """(async () => {
  const errors = [], shown = [];
  addEventListener("error", event => errors.push(event.message));
  const press = key => document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  for (const step of player.steps) {
    player.open(step.name);
    press("Enter");
    const cells = [...document.querySelectorAll(".result td[data-cell]")];
    shown.push(cells.map(cell => cell.querySelector("input")?.value ?? cell.textContent));
  }
  return [errors, shown];
})()"""


# --- every step -----------------------------------------------------------------------------------

WALK = """presses => Array.from({ length: presses }, () => {
    document.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
    return [player.steps[player.at.step].name, player.at.cell];
})"""
LAYOUT = """() => {
    const part = name => document.querySelector(name), whole = document.documentElement;
    const fits = e => e.scrollHeight <= e.clientHeight && e.scrollWidth <= e.clientWidth;
    const parts = [whole, part(".stage"), part(".sum")];
    const box = e => e.querySelector("input")?.value ?? e.textContent;
    const shown = [...document.querySelectorAll(".result td[data-cell]")].map(box);
    const size = parseFloat(part(".stage").style.fontSize), live = !part(".strip").hidden;
    return [size, parts.every(fits), live, shown, document.querySelectorAll("td.enters").length];
}"""


@pytest.mark.parametrize(("width", "height", "pixels"), [(1280, 720, 24), (1920, 1080, 36)])
def test_each_step_shows_its_numbers_on_one_screen(width, height, pixels, opened):
    """The font size is at least `pixels`, except for one step with many tables."""
    page = opened(width=width, height=height)
    same_numbers(page, TRACE, tolerance=1e-12)
    press(page, "Home")
    assert page.evaluate(WALK, len(PLACES)) == [*PLACES[1:], PLACES[-1]], (
        "each cell is visited once, and the walk stops at the end"
    )
    small, bare = {}, []
    for step in TRACE.steps:
        page.evaluate("name => player.open(name)", step.name)
        press(page, "Enter")
        size, inside, live, shown, entering = page.evaluate(LAYOUT)
        form = "{:g}" if step.equation == GIVEN else "{:z.3f}"
        assert shown == [form.format(v).replace("-", "−") for v in step.value.ravel()], step.name
        assert inside, step.name
        assert not step.recipes or bool(entering) == bool(group_by_form(step.recipes[-1:])[0].inputs.size)
        small |= {step.name: size / pixels} if size < pixels else {}
        bare += [] if live else [step.name]
    assert list(small) == ["d_x"] and small["d_x"] >= 0.75, "seven tables of four columns, and the result"
    assert len(bare) <= 5, bare


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_has_no_accessibility_problems(scheme, opened):
    page = opened(place="ffn.z,8", color_scheme=scheme)
    shown = [("ffn.z,8", ""), ("ffn.z,9", "h"), ("d_h,3", "h"), ("E", ""), ("new_y,2", "t"), ("y", "z")]
    levels = [("ffn.z,8", "+"), ("norm_1.x_hat", "-"), ("attention.weights,4", "n")]
    for name, keys in [*shown, *levels, ("ffn.z", "y")]:
        page.evaluate("name => player.open(name)", name)
        press(page, *keys)
        page.wait_for_function("() => document.getAnimations().every(a => a.playState !== 'running')")
        assert axe.objections(page, axe.ALL) == [], name


def test_scripts_have_no_type_errors():
    start = resources.files("npformer.player").joinpath("page", "start.js")
    assert axe.type_errors(str(start)) == []


# --- keys, buttons and fields ---------------------------------------------------------------------

# The step and cell to open | the actions, or alternatives separated by " or " | what the page then shows
HANDS = """
attention.scores,4 |  | .speaker ~ scores head 1, bites, bites:
attention.scores,4 |  | .speaker ~ divided by the root of 2 equals 0.703
d_attention.W_Q,5 |  | .slope ~ {slope}
d_h,3 |  | .from ~ z = h W1 + b1 ; .value td.beside ~ {d_h}
d_h,3 |  | .belt .letter.lit ~ dh
norm_1.x_hat |  | .stage figcaption span ~ s & mean & centred & variance & std & x̂
ffn.z,8 |  | .sum ~ = (−1.392) · (−0.5) + 2.085 · 0 + 0.546 · 1 + (−0.993) · 0.5 + (−1) = −0.255
attention.scores,4 |  | .sum ~ = (3.461 · 0.079 + 2.079 · 0.346) / √2 = 0.995 / √2 = 0.703
attention.weights,0 |  | .sum ~ = 0.229 / (0.229 + 1.000 + 0.339) = 0.229 / 1.568 = 0.146
attention.max,0 |  | .sum ~ = the largest of −1.061, 0.413, −0.668 = 0.413
attention.shifted,0 |  | .sum ~ = −1.061 − 0.413 = −1.474
new_attention.W_Q,0 |  | .sum ~ = 0.5 − 0.01 · 0.415 = 0.496
angles,2 |  | .sum ~ 1 / 10000^(0/4) = 1.000
table,4 |  | .sum ~ = sin(1.000) = 0.841
norm_1.std,0 |  | .sum ~ = √(0.777 + 1e-05) = √(0.777) = 0.882
ffn.hidden,8 |  | .sum ~ = max(0, −0.255) = 0.000
d_ffn.z,9 |  | .sum ~ dz bites, column 3 = 0.064 if z > 0, else 0 (z = 0.504) = 0.064
d_E,0 |  | .sum ~ dE <pad>, column 0 = 0, since this word does not stand in the sentence = 0.000
d_t,5 |  | .sum ~ (−0.572 − (−1.119) − 0.506 · 1.428) / 1.374
ffn.z,8 | ArrowRight or click cell ▶: one cell on | at ~ ffn.z,9
ffn.z,8 | ArrowLeft or click ◀ cell: one cell back | at ~ ffn.z,7
ffn.z,8 | Enter or click all ⏎: the whole step | at ~ ffn.z,17
ffn.z,8 | ArrowDown or click step ▼: one step on | at ~ ffn.hidden,0
ffn.z,8 | ArrowUp or click ▲ step: one step back | at ~ ffn.b_2,0
ffn.z,8 | PageDown or click ▶▶ one station on | at ~ norm_2.gamma,0
ffn.z,8 | PageUp or click ◀◀ one station back | at ~ norm_1.gamma,0
ffn.z,8 | End or ?; click to the end | at ~ new_loss,0
ffn.z,8 | Home or ?; click to the start | at ~ E,0
ffn.z,8 | Home; ArrowUp; PageUp; ArrowLeft | at ~ E,0
x | click feed-forward: feed-forward network | at ~ ffn.W_1,0
ffn.W_1 | on .chips button:has-text("hidden"); on .result td[data-cell] >> nth=15 | at ~ ffn.hidden,15
ffn.z,8 | over td.enters >> nth=2 or focus td.enters >> nth=2 | .peek ~ h bites, column 2
ffn.z,8 | over td.enters >> nth=2 or focus td.enters >> nth=2 | .peek ~ 0.5 · 1.092 + 0 = 0.546
ffn.z,8 | on td.enters >> nth=2 or focus td.enters >> nth=2; Enter | at ~ h,6
ffn.z,8 | on td.enters >> nth=2; on td.enters >> nth=1 | at ~ norm_1.x_hat,6
ffn.z,8 | on td.enters >> nth=2; on td.enters >> nth=1; Backspace; Backspace; Backspace | at ~ ffn.z,8
ffn.z,8 | on td.enters >> nth=8; Control+a; type 1,5; Tab; open ffn.z,8 | .sum ~ + 1.5 = 2.245
ffn.b_1 | on td input >> nth=2; Control+a; type two; Tab; open ffn.z,8 | .sum ~ + (−1) = −0.255
ffn.b_1 | on td input >> nth=2; Control+a; type 2; Tab; click reset; open ffn.z,8 | .sum ~ + (−1) = −0.255
ffn.b_1 | on td input >> nth=2; Control+a; type 2; Tab; click reset | hidden ~ text=reset
ffn.z,8 | h | .sum ~ (−1) = checkshow ; td.now ~ ?
ffn.z,8 | h; type -0.255; Enter or h; on .guess; type −0,255; Enter | .verdict ~ Right.
ffn.z,8 | h; type -0.255; Enter | td.now ~ −0.255
ffn.z,8 | h; type -0.257; Enter or h; type -0.3; Enter | .verdict ~ Rounding: right but for the last digits.
ffn.z,8 | h; type 0.255; Enter | .verdict ~ Look again: the sign.
ffn.z,8 | h; type -0.21; Enter | .verdict ~ Look again. ; td.now ~ ?
ffn.z,8 | h; type -abc; Enter | .verdict ~ Type a number.
attention.scores,4 | h; type -1 | .sum ~ (3.461 · 0.079 + 2.079 · 0.346) / √2 = check
attention.scores,4 | h; type -1; click show | .sum ~ / √2 = 0.995 / √2 = 0.703
attention.scores,4 | h; type -1; Escape; ArrowRight | td.now ~ ?
attention.scores,5 | s | .sum ~ scores head 1, bites, man = {score}
d_attention.W_Q,5 | h | .slope ~ ? ; hidden ~ .tangent
d_h,3 | v | hidden ~ .value
x | z; on .tile[data-name='d_h'] | at ~ d_h,0 ; hidden ~ .whole
x | z; Space | told ~ Each word has a row of numbers
x | z | hidden ~ .stage
x | z; z | hidden ~ .whole
x | Space or on .stage; Space | told ~ Each word has a row
x | click story ␣: the whole block, told in less than a minute | told ~ Each word has a row
ffn.z,8 | + | .closeup ~ 0.696 + 0.000 + 0.546 + (−0.496) + (−1)= −0.255 ; hidden ~ .stage
ffn.z,8 | = or click + closer: the station, the product, the cell | .closeup ~ the column ; hidden ~ .strip
attention.scores,4 | + | .closeup ~ 0.995 / √2= 0.703
attention.scores,4 | h; + | .closeup ~ = ?
norm_1.std,0 | + | .closeup ~ √(0.777 + 1e-05)
ffn.z,8 | +; ArrowRight | .closeup ~ = 0.504 ; at ~ ffn.z,9
ffn.hidden,17 | +; ArrowRight | .closeup ~ f dog, column 0
ffn.z,8 | +; + | .closeup ~ = −0.255
ffn.z,8 | +; Home | hidden ~ .closeup ; at ~ E,0
ffn.b_1 | + | hidden ~ .closeup
ffn.z,8 | +; - | hidden ~ .closeup ; .stage ~ −0.255
ffn.z,8 | - or click − farther: the product, the station, the block | .near ~ hidden ; hidden ~ .stage
ffn.z,8 | -; - or -; -; - or z | .whole ~ backward, the gradients ; hidden ~ .near
ffn.z,8 | -; -; +; + | .stage ~ −0.255 ; at ~ ffn.z,8
ffn.z,8 | -; on .near .tile[data-name='ffn.W_2'] | at ~ ffn.W_2,0 ; hidden ~ .near
x | -; t | .near ~ embedding
ffn.z,8 | h; type 0.21; Enter; type -0.255; Enter | .verdict ~ Right.
ffn.z,8 | | .along .says ~ along W1 row 0, column 0
d_ffn.z,8 | | .along .says ~ along W1 row 0, column 0
norm_2.std,1 | | .along .says ~ along γ column 0
loss | | .along .says ~ along target dog, column 0
ffn.W_2 | | .along .says ~ along W2 row 0, column 0
x | | .training .says ~ after one step (T) {next_loss}
x | t | .training .says ~ step 1 of 1: L = {next_loss}, at the start
ffn.z,8 | ? | .keys ~ one cell on ; .keys ~ full screen
ffn.z,8 | ?; Escape or ?; ? or ?; click close | hidden ~ .keys
ffn.z,8 | ?; click yours Y: paste the numbers of your own block; Escape | hidden ~ .yours
ffn.z,8 | f | hidden ~ .controls ; hidden ~ .strip
ffn.z,0 | f; PageDown | at ~ ffn.z,17
ffn.z,0 | f; PageDown; PageDown | at ~ ffn.hidden,0
ffn.hidden,0 | f; PageUp | at ~ ffn.z,17
ffn.hidden,0 | f; PageUp; PageUp | at ~ ffn.z,0
ffn.z,8 | f; b or f; . | hidden ~ .stage
ffn.z,8 | f; b; b; Escape; ArrowRight | at ~ ffn.z,9
x | choose learning rate=1; click 100 C: 100 training steps | .training .says ~ The steps are too large.
E | y; type {pasted}; click compare | at ~ ffn.z,8
E | y; type {pasted}; click compare | .yours p ~ ffn.z differs: 1 of 18 cells. Right: attention.Q.
E | y; type Q = {listed}; click compare | .yours p ~ Right: attention.Q.
E | y; type d_z 1 2 3; click compare | .yours p ~ d_ffn.z differs: 3 numbers, expected 18.
E | y; type hidden: nan{seventeen}; click compare | .yours p ~ ffn.hidden differs: 18 of 18 cells.
E | y; type nothing; click compare | .yours p ~ Paste numbers.
E | y; Escape | hidden ~ .yours
ffn.z,8 | on .name; type Ada; Enter; wait text=reset; ArrowRight | at ~ ffn.z,9
"""


RECORD_TOLD = """window.told = [];
new MutationObserver(() => told.push(document.querySelector(".told")?.textContent ?? ""))
  .observe(document, {subtree: true, childList: true, characterData: true});"""
DO = {
    "click": lambda page, name: page.get_by_role("button", name=name, exact=True).click(),
    "on": lambda page, element: page.click(element),
    "over": lambda page, element: page.hover(element),
    "focus": lambda page, element: page.focus(element),
    "type": lambda page, text: page.keyboard.type(text),
    "wait": lambda page, element: page.locator(element).wait_for(),
    "open": lambda page, place: page.evaluate("place => player.open(place)", place),
    "choose": lambda page, what: page.get_by_label(what.split("=")[0]).select_option(what.split("=")[1]),
}


def action_cases():
    """Return the rows of HANDS as (place, actions, expected); each alternative gives its own row."""
    Q = TRACE.named["attention.Q"].value.copy()
    z = TRACE.named["ffn.z"].value.copy()
    z.flat[8] = 0.75
    texts = {  # replace the placeholders in HANDS; "pasted" is NumPy's output, "listed" is a list
        "pasted": " ".join(repr({"z": z, "Q": Q.astype(np.float32)}).split()),
        "listed": Q.round(3).tolist(),
        "seventeen": " -7e1" * 17,
        "score": as_shown(TRACE.named["attention.scores"].value[0, 1, 2]),
        "slope": as_shown(TRACE.named["d_attention.W_Q"].value.flat[5]),
        "next_loss": f"{TRACE.named['new_loss'].value:.4f}",
        "d_h": as_shown(TRACE.named["h"].value.flat[3]),
    }
    cases = []
    for line in HANDS.strip().splitlines():
        place, alternatives, expected = (part.strip() for part in line.split("|"))
        for actions in alternatives.split(" or "):
            cases.append((place, actions.strip().format(**texts), expected.format(**texts)))
    return cases


@pytest.fixture(scope="module")
def shared_page(chromium, tmp_path_factory):
    """Open one page that all tests of actions use."""
    file = play().save(tmp_path_factory.mktemp("player") / "play.html")
    page = chromium.new_page(viewport={"width": 1280, "height": 720})
    errors = []

    def record_network_request(request):
        if not request.url.startswith("file:"):
            errors.append(request.url)

    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text))
    page.on("request", record_network_request)
    page.add_init_script(RECORD_TOLD)
    page.goto(file.as_uri())
    yield page
    page.close()
    assert errors == []


@pytest.mark.parametrize(("place", "actions", "expected"), action_cases())
def test_page_reacts_to_actions(place, actions, expected, shared_page):
    page = shared_page
    page.evaluate("history.replaceState(null, '', location.pathname)")  # forget the place in the address
    page.reload()  # undo the actions of earlier tests
    for action in [f"open {place}", *filter(None, actions.split("; "))]:
        verb, _, argument = action.partition(" ")
        if verb in DO:
            DO[verb](page, argument)
        else:
            press(page, action)
    for part in expected.split(" ; "):
        what, text = part.split(" ~ ")
        if what == "at":
            assert ",".join(map(str, where(page))) == text
        elif what == "hidden":
            playwright.expect(page.locator(text)).to_be_hidden()
        elif what == "told":  # The story goes on while a slow test reads the page, so all sentences are kept.
            page.wait_for_function("text => told.some(sentence => sentence.includes(text))", arg=text)
        else:
            several = text.split(" & ")
            playwright.expect(page.locator(what)).to_contain_text(several if len(several) > 1 else text)


def test_tab_key_reaches_every_part(opened):
    page, reached, focused = opened(place="ffn.z,8"), set(), "document.activeElement"
    for _ in range(90):
        press(page, "Tab")
        reached.add(page.evaluate(f"{focused}.getAttribute('aria-label') ?? {focused}.className"))
    assert {"attention: multi-head attention", "cell ▶: one cell on", "rounding", "learning rate"} <= reached


def test_page_escapes_words(opened):
    words = ("<b>one</b>", "<i", "&lt;")
    page = opened(play(worked_example(dog_bites_man()._replace(tokens=words))), place="ffn.z,0")
    page.hover("td.enters >> nth=0")
    for part, text in {".sum": "z <b>one</b>, column 0", ".peek": "h <b>one</b>, column 0"}.items():
        playwright.expect(page.locator(part)).to_contain_text(text)
    assert page.locator(".result th[scope=row]").all_inner_texts() == list(words)


def test_address_of_the_page_contains_the_cell(opened):
    page = opened(place="d_attention.scores,10")
    press(page, "ArrowRight")
    page.wait_for_url("**#at=d_attention.scores,11")
    page.evaluate("location.hash = '#at=x,3'")
    playwright.expect(page.locator("h1")).to_contain_text("x = embedding")
    assert where(page) == ["x", 3]


@pytest.mark.parametrize(
    ("link", "place"),
    [("", ["a", 2]), ("u", ["a", 2]), ("ffn.z,99", ["ffn.z", 17]), ("ffn.z,x", ["ffn.z", 0])],
)
def test_broken_link_opens_a_valid_place(link, place, opened):
    assert where(opened(play(at="a,2"), place=link)) == place


def test_frame_in_a_notebook_hides_marked_numbers(chromium):
    page = chromium.new_page()
    page.set_content(f"<p>a notebook</p>{play(marks=[Mark('ffn.z', 8, -0.2551, 0.75)])._repr_html_()}")
    frame = page.frame_locator("iframe")
    now, line = frame.locator("td.now"), frame.locator(".sum")
    assert now.inner_text() == "?" and "differs" in now.get_attribute("class")
    assert "0.255" not in line.inner_text()
    DO["click"](frame, "show the received")
    assert "received 0.75" in line.inner_text() and "0.255" not in line.inner_text()
    DO["click"](frame, "show")
    assert "expected −0.2551, received 0.75" in line.inner_text() and now.inner_text() == "−0.255"
    frame.locator("h1").click()
    press(page, "ArrowRight")
    assert now.inner_text() == as_shown(TRACE.named["ffn.z"].value[1, 3])
    page.close()


# --- the camera -----------------------------------------------------------------------------------

SQUARES = "[...document.querySelectorAll('{} rect')].slice({}, {})"
CELLS = "[...document.querySelectorAll('{} .result td[data-cell]')].slice({}, {})"
RECT = """elements => {
    const rects = elements.map(element => element.getBoundingClientRect());
    const least = side => Math.min(...rects.map(rect => rect[side]));
    const most = side => Math.max(...rects.map(rect => rect[side]));
    return [least("left"), least("top"), most("right"), most("bottom")];
}"""
FREEZE = """time => document.getAnimations().forEach(animation => {
    animation.pause();
    animation.currentTime = time;
})"""
MOVED = "document.getAnimations().flatMap(a => a.effect.getKeyframes().flatMap(Object.keys))"


def cells_and_squares(name, cell):
    """Return scripts that measure where a matrix is drawn: in the whole block, the station and the table."""
    n_cells = np.prod(TRACE.named[name].value.shape[-2:])
    first = cell // n_cells * n_cells
    tiles = [
        SQUARES.format(f".{view} [data-name=\\'{name}\\']", first, first + n_cells)
        for view in ("whole", "near")
    ]
    return [f"({RECT})({part})" for part in [*tiles, CELLS.format(".stage", first, first + n_cells)]]


@pytest.mark.parametrize("place", ["ffn.z,8", "attention.weights,12", "d_h,3"])
def test_camera_keeps_tile_and_table_together(place, opened):
    """At each time of a flight, the squares of the tile and the cells of the table have the same place."""
    name, cell = place.split(",")
    block, station, product = cells_and_squares(name, int(cell))
    page = opened(place=place)
    for keys, leaving, entering in [
        ("z", product, block), ("z", block, product), ("-", product, station), ("-", station, block),
        ("+", block, station), ("+", station, product),
    ]:  # fmt: skip
        page.wait_for_function("() => document.getAnimations().length === 0")
        before = page.evaluate(leaving)
        press(page, keys)
        seen = []
        for time in (0, 130, 325, 520, 649.9):
            page.evaluate(FREEZE, time)
            seen.append(page.evaluate(entering))
            np.testing.assert_allclose(page.evaluate(leaving), seen[-1], atol=1.0)
        np.testing.assert_allclose(seen[0], before, atol=1.0)
        assert set(page.evaluate(MOVED)) <= {
            "offset", "computedOffset", "easing", "composite", "transform", "transformOrigin", "opacity"
        }  # fmt: skip
        page.evaluate("document.getAnimations().forEach(animation => animation.finish())")
        page.wait_for_function("() => document.getAnimations().length === 0")
        np.testing.assert_allclose(page.evaluate(entering), seen[-1], atol=1.0)


def test_camera_goes_from_a_cell_to_its_arithmetic(opened):
    page = opened(place="ffn.z,8")
    cell, result = (f"({RECT})([document.querySelector('{part}')])" for part in ("td.now", "[data-result]"))
    before = page.evaluate(cell)
    press(page, "+")
    for time in (0, 325, 649):
        page.evaluate(FREEZE, time)
        np.testing.assert_allclose(page.evaluate(cell), page.evaluate(result), atol=1.0)
        if time == 0:
            np.testing.assert_allclose(page.evaluate(cell), before, atol=1.0)


def test_camera_is_paused_and_switched_off_by_keys(opened):
    page, time = opened(place="ffn.z,8"), "document.getAnimations()[0]?.currentTime"
    press(page, "z", "p")
    page.wait_for_function("() => document.getAnimations().every(animation => !animation.pending)")
    paused = page.evaluate(time)
    page.wait_for_timeout(100)
    assert page.evaluate(time) == paused < 650
    press(page, "p")
    playwright.expect(page.locator(".stage")).to_be_hidden()
    press(page, "m", "z")
    assert page.evaluate(time) is None and page.locator(".stage").is_visible()


def test_levels_change_without_motion_if_motion_is_reduced(opened):
    page = opened(place="ffn.z,8", reduced_motion="reduce")
    for key, part in [("+", ".closeup"), ("-", ".stage"), ("-", ".near"), ("-", ".whole"), ("z", ".stage")]:
        press(page, key)
        assert page.evaluate("document.getAnimations().length") == 0
        views = (".whole", ".near", ".stage", ".closeup")
        assert [view for view in views if page.locator(view).is_visible()] == [part]


def test_wheel_and_two_fingers_change_the_level(opened):
    """The wheel goes to the tile or cell under the mouse. It scrolls where something can scroll."""
    page, level = opened(reduced_motion="reduce"), LEVEL
    count = "window.turns = 0; addEventListener('wheel', () => turns++, { capture: true, passive: true })"
    page.evaluate(count)

    def turn(element, by):
        before = page.evaluate("turns")
        page.locator(element).hover()
        page.mouse.wheel(0, by)
        page.wait_for_function("before => turns > before", arg=before)
        page.wait_for_timeout(450)  # the level changes at most once in this time

    turn(".stage", 100)
    assert page.evaluate(level) == "station"
    turn(".near", 30)
    assert page.evaluate(level) == "station", "less than one notch"
    turn(".near", 30)
    assert page.evaluate(level) == "block"
    turn(".tile[data-name=y]", -100)
    assert (page.evaluate(level), where(page)) == ("station", ["y", 0])
    turn(".near .tile[data-name='norm_2.std']", -100)
    assert (page.evaluate(level), where(page)) == ("product", ["norm_2.std", 0])
    turn(".result td[data-cell] >> nth=2", -100)
    assert (page.evaluate(level), where(page)) == ("cell", ["norm_2.std", 2])
    fingers = """spreads => spreads.forEach(spread => {
        const view = document.querySelector(".closeup"), touch = (identifier, clientX) =>
            new Touch({ identifier, target: view, clientX, clientY: 300 });
        const touches = [touch(0, 300), touch(1, 300 + spread)];
        view.dispatchEvent(new TouchEvent("touchmove", { touches, bubbles: true, cancelable: true }));
    })"""
    page.evaluate(fingers, [200, 190, 180])
    assert page.evaluate(level) == "cell"
    page.evaluate(fingers, [140])
    assert page.evaluate(level) == "product"
    page.set_viewport_size({"width": 390, "height": 700})
    turn(".stage", 100)
    assert page.evaluate(level) == "product" and page.evaluate("scrollY + document.body.scrollTop") > 0


ROWS_IN_VIEW = """() => {
  const stage = document.querySelector(".stage");
  const rows = [...stage.querySelectorAll("tr")].map(row => row.getBoundingClientRect());
  return [stage.scrollHeight - stage.clientHeight, rows.filter(row => row.bottom <= innerHeight - 50).length];
}"""


def test_double_zoom_shows_tables_in_large_type(opened):
    """A window of 1440 × 900 with a zoom of 200 % has 720 × 450 pixels: the page scrolls, not the tables."""
    page = opened(width=720, height=450)
    for step in ("h", "ffn.z", "d_x"):
        page.evaluate("name => player.open(name)", step)
        hidden, rows = page.evaluate(ROWS_IN_VIEW)
        assert hidden <= 0 and rows >= 3, step


def test_tiles_have_numbers_only_in_large_type(opened):
    page, sizes = opened(place="loss", reduced_motion="reduce"), []
    for step in TRACE.steps:
        page.evaluate("name => player.open(name)", step.name)
        press(page, "-")
        found = page.evaluate(
            """() => [...document.querySelectorAll(".near .legible text")].map(text => [
                parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a, text.textContent])"""
        )
        sizes += [size for size, _ in found]
    assert len(sizes) > 100 and min(sizes) >= 24 * 720 / 800 - 0.1


# --- the motion of a cell -------------------------------------------------------------------------

BOXES = """() => [...document.querySelectorAll(".mover")].filter(box => box.textContent).map(box => {
    const { left, top, width, height } = box.getBoundingClientRect();
    const cells = box.dataset.cells.split(" ").filter(Boolean).map(Number);
    return [box.className.split(" ")[1], box.textContent, cells, Number(getComputedStyle(box).opacity),
            [left, top, left + width, top + height]];
})"""
NUMBERS = np.concatenate([step.value.ravel() for step in TRACE.steps])
GIVEN_CELLS = np.concatenate([np.full(step.value.size, step.equation == GIVEN) for step in TRACE.steps])


def true_text(look, cells):
    """Return the text of a moving box, from the numbers of the trace."""
    values = NUMBERS[cells]
    if look == "ruler":
        return "1"
    if look == "total":
        return f"sum {as_shown(values.sum())}"
    if len(cells) == 1 and GIVEN_CELLS[cells[0]]:
        return f"{values[0]:g}".replace("-", "−")
    return as_shown(np.prod(values))


def start_motion(page, place):
    """Open a cell and start its motion. Return the function that shows the motion at a time."""
    page.evaluate("place => player.open(place)", place)
    press(page, "n", "p")

    def boxes_at(time):
        page.evaluate(FREEZE, time)
        return page.evaluate(BOXES)

    return boxes_at


def test_motion_shows_only_numbers_of_the_trace(opened):
    """At every time of every kind of motion, each box has the number of its cell, product or sum."""
    page, n_boxes = opened(), 0
    for step in TRACE.steps[:70]:
        if step.equation == GIVEN:
            continue
        boxes_at = start_motion(page, f"{step.name},{step.value.size // 2}")
        for time in (0, 333, 777, 1111, 1555, 1999):
            for look, text, cells, _, _ in boxes_at(time):
                assert text == true_text(look, cells), step.name
                n_boxes += 1
    assert n_boxes > 2000


def test_row_and_column_join_and_become_the_cell(opened):
    page = opened()
    boxes_at = start_motion(page, "ffn.z,8")
    recipe = group_by_form(TRACE.named["ffn.z"].recipes[8:9])[0].inputs.ravel().tolist()
    pairs, bias = [recipe[0:2], recipe[2:4], recipe[4:6], recipe[6:8]], recipe[8]

    def by_cells(time):
        return {tuple(cells): (opacity, place) for _, _, cells, opacity, place in boxes_at(time)}

    begin, joined, multiplied, last = (by_cells(time) for time in (0, 700, 1100, 1839))
    for cell in recipe:
        opacity, place = begin[(cell,)]
        table = page.evaluate(f"({RECT})([document.querySelector('td.enters[data-cell=\"{cell}\"]')])")
        np.testing.assert_allclose(place, table, atol=0.6)
        assert opacity == 1
    for row, column in pairs:
        (_, above), (_, below) = joined[(row,)], joined[(column,)]
        assert abs(above[3] - below[1]) < 6, "the column is below the row"
        assert abs(above[0] + above[2] - below[0] - below[2]) < 2
        assert [multiplied[key][0] for key in ((row, column), (row,), (column,))] == [1, 0, 0]
    left, top, right, bottom = page.evaluate(f"({RECT})([document.querySelector('td.now')])")
    for key in [*map(tuple, pairs), (bias,)]:
        opacity, place = last[key]
        assert opacity > 0.9
        assert left < (place[0] + place[2]) / 2 < right and top < (place[1] + place[3]) / 2 < bottom
    page.evaluate("document.getAnimations().forEach(animation => animation.finish())")
    playwright.expect(page.locator(".mover")).to_have_count(0)
    assert page.locator("td.now").inner_text() == "−0.255"


def test_softmax_divides_bars_by_their_sum(opened):
    page, widths = opened(), []
    boxes_at = start_motion(page, "attention.weights,4")
    bars = f"() => [...document.querySelectorAll('.share, .ruler')].map(bar => ({RECT})([bar]))"
    for time in (600, 1500):
        boxes_at(time)
        edges = np.array(page.evaluate(bars))
        widths.append(edges[:, 2] - edges[:, 0])
        np.testing.assert_allclose(edges[1:3, 0], edges[:2, 2], atol=0.5)  # no gaps
    exps, weights = (TRACE.named[f"attention.{name}"].value[0, 1] for name in ("exp", "weights"))
    np.testing.assert_allclose(widths[0][:3] / widths[0][3], exps, atol=0.02)
    np.testing.assert_allclose(widths[1][:3] / widths[1][3], weights, atol=0.02)
    totals = {text for look, text, _, opacity, _ in boxes_at(600) if look == "total" and opacity == 1}
    assert totals == {f"sum {as_shown(exps.sum())}"}
    totals = {text for look, text, _, opacity, _ in boxes_at(1500) if look == "total" and opacity == 1}
    assert totals == {"sum 1.000"}


def test_gradient_comes_back_the_way_the_value_went(opened):
    """First the value goes to every gradient that the cell uses. Then these gradients come to the cell."""
    page = opened()
    boxes_at = start_motion(page, "d_h,3")
    value = page.evaluate(f"({RECT})([document.querySelector('td.beside')])")
    gradients = page.locator("td.enters").evaluate_all(
        f"cells => cells.map(cell => [Number(cell.dataset.cell), ({RECT})([cell])])"
    )
    first_gradient = page.evaluate("player.steps.find(step => step.name === 'd_y').first")
    goals = {cell: place for cell, place in gradients if cell >= first_gradient}
    assert len(goals) == 1 + 6, "one cell of dt, and a row of dz"
    sent = [box for box in boxes_at(0) if box[0] == "value"]
    assert [text for _, text, *_ in sent] == [as_shown(TRACE.named["h"].value.flat[3])] * 7
    for *_, place in sent:
        np.testing.assert_allclose(place, value, atol=0.6)

    def middles(places):
        return sorted(
            (round((left + right) / 2), round((top + bottom) / 2)) for left, top, right, bottom in places
        )

    arrived = [place for look, *_, place in boxes_at(700) if look == "value"]
    np.testing.assert_allclose(middles(arrived), middles(goals.values()), atol=2)
    flowing = {cells[0] for look, _, cells, opacity, _ in boxes_at(1300) if look == "gradient" and opacity}
    assert flowing == set(goals)


def test_motion_stops_at_its_moments_and_is_paused(opened):
    page = opened(place="ffn.z,8")
    time = "document.querySelector('.mover')?.getAnimations()[0].currentTime"
    for stop in (700, 1300):
        press(page, "n")
        page.wait_for_function(f"() => {time} === {stop}")
    press(page, "n")
    page.wait_for_function("() => document.getAnimations().length === 0")
    press(page, "ArrowRight")
    page.wait_for_function(f"() => {time} > 0")
    press(page, "p")
    page.wait_for_function("() => document.getAnimations().every(animation => !animation.pending)")
    paused = page.evaluate(time)
    page.wait_for_timeout(100)
    assert page.evaluate(time) == paused
    press(page, "p")
    page.wait_for_function(f"() => {time} > {paused}")
    page.evaluate("player.open('x')")
    assert page.locator(".mover").count() == 0


@pytest.mark.parametrize(("reduced", "keys"), [("reduce", "n"), ("no-preference", "mn")])
def test_cells_do_not_move_without_motion(reduced, keys, opened):
    page = opened(place="ffn.z,8", reduced_motion=reduced)
    press(page, *keys, "ArrowRight")
    page.wait_for_timeout(200)
    assert page.locator(".mover").count() == 0 and page.locator("td.now").inner_text() == "0.504"


def test_story_goes_into_a_cell_and_out_again(opened):
    """The test moves the page's clock forward instead of waiting. Each tile that lights up stays lit."""
    page = opened(reduced_motion="reduce")
    page.clock.install()
    press(page, "Space")
    seen, told = [], []
    for _ in range(90):
        page.clock.run_for(425)
        seen.append(
            page.evaluate("[document.body.dataset.level, document.querySelectorAll('.tile.lit').length]")
        )
        told.append(page.locator(".told").inner_text())
        if seen[-1][0] == "product":
            assert where(page) in (["ffn.z", 8], ["attention.weights", 4], ["d_h", 3])
            assert page.locator("td.now").inner_text() in ("−0.255", "0.283", "0.257")
    levels = [level for level, _ in seen]
    visits = [i for i in range(1, len(levels)) if levels[i - 1 : i + 1] == ["block", "product"]]
    assert len(visits) == 3 and levels[-1] == "block"
    lit = [count for _, count in seen]
    assert lit == sorted(lit) and lit[-1] == page.locator(".tile").count()
    assert "A row times a column, added up: one number." in told and "that is training" in told[-1]
    assert not page.evaluate("document.body.classList.contains('telling')")


def test_story_is_paused_and_continued(opened):
    """While the story is paused, no tile lights up. Later, the next tile waits only the rest of its time."""
    page = opened(reduced_motion="reduce")
    page.clock.install(time=0)
    page.clock.pause_at(60_000)  # in milliseconds; from now on, time passes only in `run_for`
    lit = "document.querySelectorAll('.tile.lit').length"
    press(page, "Space")
    page.clock.run_for(2 * 850 + 400)
    before = page.evaluate(lit)
    press(page, "p")
    page.clock.run_for(60_000)
    assert page.evaluate(lit) == before and page.evaluate("document.body.classList.contains('held')")
    press(page, "p")
    page.clock.run_for(400)
    assert page.evaluate(lit) == before, "850 - 400 ms are left"
    page.clock.run_for(100)
    assert page.evaluate(lit) > before
    press(page, "p", "Space")
    assert not page.evaluate("document.body.classList.contains('held')"), "another key ends the story"
    press(page, "Space")
    page.clock.run_for(60_000)
    assert page.evaluate(lit) == page.locator(".tile").count()


def test_story_pauses_its_motion(opened):
    page = opened()
    press(page, "Space")
    page.locator(".mover >> nth=0").wait_for(state="attached")
    press(page, "p")
    page.wait_for_function("() => document.getAnimations().every(motion => motion.playState == 'paused')")
    paused, level = page.evaluate("document.getAnimations()[0].currentTime"), page.evaluate(LEVEL)
    page.wait_for_timeout(1500)
    assert page.evaluate("document.getAnimations()[0].currentTime") == paused
    assert page.evaluate(LEVEL) == level
    press(page, "p")
    page.wait_for_function(f"() => {LEVEL} == 'block'")


@pytest.mark.parametrize("key", ["z", "ArrowRight", "-"])
def test_another_key_ends_the_story(key, opened):
    page = opened(reduced_motion="reduce")
    press(page, "Space", key)
    assert not page.evaluate("document.body.classList.contains('telling')")


def test_motion_does_not_show_a_hidden_result(opened):
    page = opened(place="ffn.z,8")
    press(page, "h", "n", "ArrowRight")
    page.wait_for_timeout(200)
    assert page.locator(".mover").count() == 0
    DO["click"](page, "show")
    page.locator(".mover >> nth=0").wait_for(state="attached")


# --- changed numbers ------------------------------------------------------------------------------


def changed(example, name, at, value):
    """Return the example with `value` at flat index `at` of the array `name`."""
    path = {"E": "embedding.E", "target": "target"}.get(name, f"block.{name}")
    return replaced(example, path, lambda a: np.where(np.arange(a.size).reshape(a.shape) == at, value, a))


def test_changed_numbers_equal_those_of_python(opened):
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
    page = opened()  # a name changes all parameters but those of norms, and reset undoes this
    for name in "Ada Björn Straße ΣΊΣΥΦΟΣ Işık 太郎 🙂".split():
        page.evaluate("name => player.drawName(name)", f"  {name} ")
        same_numbers(page, worked_example(example_from_name(name), decimals=3))
    DO["click"](page, "reset")
    same_numbers(page, worked_example(decimals=3))
    other = dog_bites_man()._replace(tokens=("man", "bites", "dog"))
    assert not opened(play(worked_example(other))).get_by_label("a name").is_visible()
    for variants in ([], ["pre-norm", "causal", "gelu", "two-sentences", "one-head"], ["rms-norm"]):
        page = opened(play(variants=variants))
        for update in ("adam", "sgd"):
            page.evaluate("update => player.choose(update, 0.03)", update)
            with np.errstate(invalid="ignore"):
                block = apply_variants(dog_bites_man(), variants)
                same_numbers(page, worked_example(block, update=update, learning_rate=0.03))


def embedding_of_word(word):
    """Draw four numbers, not all zeros, from the bytes of SHA-256, as the numbers of a name are drawn."""
    numbers = [-1, -0.5, 0, 0, 0, 0, 0.5, 1]
    digest = hashlib.sha256(f"{word} 0".encode()).digest()
    rows = [[numbers[byte % 8] for byte in digest[i : i + 4]] for i in range(0, 32, 4)]
    return next(row for row in rows if any(row))


def test_sentence_of_three_words_draws_their_embeddings(opened):
    """The expected numbers are those of Python for an example with these words and these embeddings."""
    page, example = opened(place="x"), dog_bites_man()
    E = example.embedding.E.copy()
    words = ("cats", "chase", "mice")
    for word, token_id in zip(words, example.ids.ravel(), strict=True):
        E[token_id] = embedding_of_word(word)
    page.get_by_label("three words").fill(" Cats  chase mice")
    press(page, "Enter")
    page.locator("text=reset").wait_for()
    example = example._replace(tokens=words, embedding=example.embedding._replace(E=E))
    same_numbers(page, worked_example(example))
    assert page.locator(".result th[scope=row]").all_inner_texts() == ["Cats", "chase", "mice"]
    DO["click"](page, "reset")
    same_numbers(page, TRACE)
    assert page.locator(".result th[scope=row]").all_inner_texts() == ["dog", "bites", "man"]


@pytest.mark.parametrize("sentence", ["one two", "one two three four", "the the cat", "The the cat"])
def test_sentence_needs_three_different_words(sentence, opened):
    page = opened(place="x")
    page.get_by_label("three words").fill(sentence)
    press(page, "Enter")
    message = page.get_by_label("three words").evaluate("field => field.validationMessage")
    assert message == "Type 3 different words."
    same_numbers(page, TRACE)


def test_letter_keys_work_on_a_cyrillic_keyboard(opened):
    page = opened(place="ffn.z,8")
    page.evaluate(
        "document.dispatchEvent(new KeyboardEvent('keydown', { key: 'р', code: 'KeyH', bubbles: true }))"
    )
    assert page.locator("td.now").inner_text() == "?"


def trained(steps, update, rate):
    """Train with npformer. Return the loss before each step and after the last step, and the parameters."""
    example, losses = dog_bites_man(), []
    params = (example.embedding, example.block)
    state = adam_init(params)
    for step in range(steps + 1):
        loss, grads, _ = loss_and_gradients(example._replace(embedding=params[0], block=params[1]))
        losses.append(loss)
        if step < steps and update == "sgd":
            params = sgd_update(params, grads, learning_rate=rate)
        elif step < steps:
            params, state = adam_update(params, grads, state, learning_rate=rate)
    return losses, params


@pytest.mark.parametrize(("update", "rate"), [("sgd", 0.01), ("adam", 0.03)])
def test_training_step_100_equals_the_package(update, rate, opened):
    """Train 100 steps with the keyboard and compare step 100 with npformer.

    Then open step 57 and return to step 0.
    """
    page = opened()
    page.evaluate("([update, rate]) => player.choose(update, rate)", [update, rate])
    press(page, "Home", *"t" * 10, *"x" * 9)
    losses, params = trained(100, update, rate)
    loss = "player.numbers()[player.steps.find(step => step.name === 'loss').first]"
    assert page.evaluate(loss) == pytest.approx(losses[100], abs=1e-9)
    given = page.evaluate("Object.fromEntries(player.steps.map(step => [step.name, step.given]))")
    for path, array in leaves(params):
        np.testing.assert_allclose(given[path.split(".", 1)[1]], array.ravel(), rtol=0, atol=1e-9)
    page.evaluate("player.openTraining(57)")
    assert page.evaluate(loss) == pytest.approx(losses[57], abs=1e-9)
    press(page, "b")
    assert page.evaluate(loss) == pytest.approx(losses[0], abs=1e-9)
    playwright.expect(page.locator(".training .says")).to_contain_text("step 0 of 100")


# --- the live strip ------------------------------------------------------------------------------

SLOPE = """() => {
    const path = document.querySelector(".tangent").getAttribute("d").match(/-?[\\d.]+/g).map(Number);
    const line = document.querySelector(".along .loss").getAttribute("points").split(" ");
    const points = line.map(point => point.split(",").map(Number));
    const drag = document.querySelector(".along input");
    return [path, points, Number(drag.min), Number(drag.max)];
}"""


@pytest.mark.parametrize(("name", "cell"), [("attention.W_Q", 5), ("ffn.W_1", 9), ("E", 6), ("target", 3)])
def test_tangent_of_the_loss_curve_is_the_gradient(name, cell, opened):
    """Compare the printed slope and the drawn tangent with a finite difference of the loss in Python."""

    def loss(value):
        return float(worked_example(changed(dog_bites_man(), name, cell, value)).named["loss"].value)

    page = opened(place=name)
    page.locator(".result input").nth(cell).focus()
    value, size = TRACE.named[name].value.flat[cell], 1e-5
    slope = (loss(value + size) - loss(value - size)) / (2 * size)
    playwright.expect(page.locator(".slope")).to_have_text(as_shown(slope))
    (x1, y1, x2, y2), points, low, high = page.evaluate(SLOPE)
    wide, near = points[-1][0] / (high - low), [loss(low + (high - low) * i / 48) for i in (0, 20, 48)]
    tall = (points[48][1] - points[0][1]) / (near[2] - near[0])
    assert points[20][1] - points[0][1] == pytest.approx((near[1] - near[0]) * tall, abs=0.2)
    assert (y2 - y1) / (x2 - x1) == pytest.approx(slope * tall / wide, abs=0.01)


def test_dragging_a_number_changes_the_attention(opened):
    page = opened(place="attention.W_Q")
    page.locator(".result input").nth(0).focus()
    arcs = "document.querySelector('.arcs svg').innerHTML"
    before = page.evaluate(arcs)
    curve = page.locator(".along .picture")
    box = curve.bounding_box()
    curve.drag_to(curve, target_position={"x": 0.75 * box["width"], "y": box["height"] / 2})
    dragged = page.evaluate("player.steps.find(step => step.name === 'attention.W_Q').given[0]")
    assert dragged == pytest.approx(1.5, abs=0.02)
    page.wait_for_function(f"before => {arcs} !== before", arg=before)
    same_numbers(page, worked_example(changed(dog_bites_man(), "attention.W_Q", 0, dragged)))


def test_strip_is_drawn_before_printing(opened):
    script = """() => {
      document.querySelector(".arcs").replaceChildren();
      dispatchEvent(new Event("beforeprint")); // a browser may print before the next frame
      return document.querySelectorAll(".arcs path").length;
    }"""
    heads, words = TRACE.named["attention.weights"].value.shape[0], 3
    assert opened(place="h").evaluate(script) == heads * words * words


# --- screens --------------------------------------------------------------------------------------


def test_page_respects_colour_and_motion_settings(opened):
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
    forced = opened(place="ffn.z,8", forced_colors="active")
    press(forced, "?")
    marks = [".stage td.now", ".stage td.enters >> nth=0", "button.on", "[aria-pressed=true] >> nth=0"]
    assert [forced.locator(mark).evaluate(look)[1] for mark in marks] == ["solid", "dashed", "solid", "solid"]


def test_page_works_on_touch_screens_and_phones(opened):
    page = opened(place="ffn.z,8", has_touch=True, width=800, height=1200)
    page.get_by_role("button", name="cell ▶: one cell on").tap()
    assert where(page) == ["ffn.z", 9]
    page.locator("td.enters").first.tap()
    assert where(page) == ["h", 4]
    page = opened(place="ffn.z,8", width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    inside = """e => { const text = document.createRange(); text.selectNodeContents(e);
        const [a, b] = [e, text].map(part => part.getBoundingClientRect());
        return a.left <= b.left && b.right <= a.right && getComputedStyle(e).outlineOffset; }"""
    assert page.locator("td.now").evaluate(inside) == "0px"
