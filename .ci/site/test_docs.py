"""Open the built documentation in Chromium from its folder, and read it as a new reader would.

    uv run --group site python .ci/site/build.py build/site --only docs
    uv run --group site pytest -n 0 .ci/site/test_docs.py

The environment variable NPFORMER_SITE names a folder other than build/site.
"""

import functools
import inspect
import json
import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest
from axe import CONTRAST, objections
from conftest import ROOT, SITE, needs_chromium

import npformer

LESSONS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
# The pages to test. The browser edition and the pages inside frames are in other folders.
OURS = ("index.html", "lessons/", "pages/", "api/")
SIZES = {"a laptop": (1280, 800), "a telephone": (390, 844)}

pytestmark = [
    pytest.mark.browser,
    needs_chromium,
    pytest.mark.skipif(not (SITE / "index.html").is_file(), reason=f"no site in {SITE}: .ci/site/build.py"),
]
PAGES = sorted(
    path
    for path in (file.relative_to(SITE).as_posix() for file in SITE.rglob("*.html"))
    if path.startswith(OURS)
)


@pytest.fixture
def opened(chromium):
    """Open pages of the folder. After the test, require that no page used a server or failed."""
    shown, troubles = [], []

    def open_page(path, size="a laptop"):
        width, height = SIZES[size]
        page = chromium.new_page(viewport={"width": width, "height": height})
        shown.append(page)

        def record_request(asked):
            if not is_inside(asked.url):
                troubles.append(f"{path}: {asked.url}")

        def record_failure(asked):
            if not left(asked):
                troubles.append(f"{path}: {asked.url} failed")

        page.on("pageerror", lambda error: troubles.append(f"{path}: {error}"))
        page.on("request", record_request)
        page.on("requestfailed", record_failure)
        page.goto(f"{SITE.as_uri()}/{path}")
        return page

    yield open_page
    for page in shown:
        page.close()
    assert troubles == []


def is_inside(url):
    return url.startswith((SITE.as_uri(), "data:", "blob:", "about:"))


def left(asked):
    """Return whether the request failed because the browser left the page.

    A missing file gives a different error.
    """
    return asked.failure == "net::ERR_ABORTED"


# --- a new reader's first pages -------------------------------------------------------------------


def test_the_front_page_says_what_it_is_and_has_three_doors(opened):
    page = opened("index.html")
    assert page.inner_text("h1").startswith("npformer")
    assert page.locator(".claim").bounding_box()["y"] < 300
    doors = page.locator(".doors a")
    assert doors.count() == 3
    for k in range(3):
        box = doors.nth(k).bounding_box()
        assert box["y"] + box["height"] < 800, "without scrolling"
        assert len(opened(doors.nth(k).get_attribute("href")).inner_text("article")) > 500


def test_the_player_on_the_front_page_goes_a_step(opened):
    page = opened("index.html")
    frame = page.frame_locator("iframe.player")
    before = frame.locator("body").inner_text()
    frame.locator("body").click(position={"x": 5, "y": 5})
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert frame.locator("body").inner_text() != before
    assert "step" in frame.locator("body").inner_text()


def test_a_first_lesson_is_two_clicks_away_and_offers_to_run(opened):
    page = opened("index.html")
    page.locator(".doors a").first.click()
    page.wait_for_url("**/lessons/01_positional_encoding.html")
    button = page.locator("a.button")
    assert button.inner_text() == "Run in the browser"
    assert button.get_attribute("href") == "../lite/notebooks/index.html?path=01_positional_encoding.ipynb"
    # The page explains how to start a server, because Python in the browser cannot load files from a folder.
    assert "http.server" in page.inner_text(".run span")
    if (SITE / "lite").is_dir():
        assert (SITE / "lite" / "notebooks" / "index.html").is_file()
        assert (SITE / "lite" / "files" / "01_positional_encoding.ipynb").is_file()


@pytest.mark.parametrize("words", ["ffn_backward", "sinusoid", "pre-norm"])
def test_search_finds(opened, words):
    page = opened(f"search.html?q={words}")
    page.wait_for_selector("#search-results li a", timeout=20_000)
    links = page.eval_on_selector_all("#search-results li a", "all => all.map(a => a.href)")
    assert words != "ffn_backward" or any("api/npformer.feed_forward.html" in link for link in links)


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("KV cache", "modern.generation"),
        ("backprop", "gradcheck"),
        ("cuda", "backend"),
        ("swiglu", "modern.gated_ffn"),
    ],
)
def test_words_that_the_code_does_not_use_lead_to_what_is_meant(opened, words, page):
    shown = opened(f"search.html?q={words}")
    shown.wait_for_selector(f'#search-results a[href*="api/npformer.{page}.html"]', timeout=20_000)


def test_the_list_of_pages_shows_where_one_is(opened):
    page = opened("api/npformer.gradcheck.html")
    list_, here = (
        page.locator(s).bounding_box() for s in (".sidebar-scroll", ".sidebar-tree li.current-page")
    )
    assert list_["y"] <= here["y"] < list_["y"] + list_["height"]


def test_reference_shows_no_internal_types(opened):
    page = opened("index.html")
    for path in PAGES:
        if path.startswith("api/"):
            page.goto(f"{SITE.as_uri()}/{path}")
            lists = page.locator("dl.field-list, dt.sig, article li").all_inner_texts()
            assert not re.search(r"dtype\[Any\]|type: ignore|Callable\[|~F", " ".join(lists)), path


def test_reference_names_every_parameter(opened):
    page = opened("index.html")
    missing = []
    for path, functions in group_functions_by_page().items():
        page.goto(f"{SITE.as_uri()}/{path}")
        for function in functions:
            entry = page.locator(f'dl.py:has(> dt[id$=".{function.__name__}"])').first.text_content()
            described = entry.partition("Parameters")[2]
            for name in inspect.signature(function).parameters:
                if not re.search(rf"\b{name}\b", described):
                    missing.append(f"{function.__name__}: {name}")
    assert missing == []


def group_functions_by_page():
    """Return {page: the public functions that this page documents}."""
    pages: dict[str, list] = {}
    for name in npformer.__all__:
        function = inspect.unwrap(getattr(npformer, name))
        page = f"api/{function.__module__}.html" if inspect.isfunction(function) else ""
        if (SITE / page).is_file():
            pages.setdefault(page, []).append(function)
    return pages


# --- lessons --------------------------------------------------------------------------------------


@functools.cache
def stored(lesson):
    """Count the code cells, pictures, players and answers of a notebook, which its page must show."""
    cells = json.loads((ROOT / "notebooks" / f"{lesson}.ipynb").read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    markup = ["".join(o.get("data", {}).get("text/html", "")) for o in outputs]
    said = ["".join(o.get("data", {}).get("text/markdown", "")) for o in outputs]
    return {
        "code": sum(cell["cell_type"] == "code" for cell in cells),
        "pictures": sum(
            "image/png" in o.get("data", {}) or "<img" in text
            for o, text in zip(outputs, markup, strict=True)
        ),
        "players": sum("<iframe" in text for text in markup),
        "answers": sum(text.strip().startswith("**Answer.**") for text in said),
    }


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_is_there_with_its_outputs_and_its_answers_folded(opened, lesson):
    page = opened(f"lessons/{lesson}.html")
    found = {
        "code": page.locator(".cell_input").count(),
        "pictures": page.locator(".cell_output img").count(),
        "players": page.locator(".cell_output iframe").count(),
        "answers": page.locator("details.answer").count(),
    }
    assert found == stored(lesson)
    assert page.locator("details.answer[open]").count() == 0
    for k in range(found["answers"]):
        assert len(page.locator("details.answer").nth(k).text_content()) > 8
    assert page.locator("a.button").count() == 1
    assert_drawn(page)


def assert_drawn(page):
    """Check that every equation of the page is drawn, and that none shows an error."""
    drawn = (
        "document.querySelectorAll('.math').length <= document.querySelectorAll('mjx-container svg').length"
    )
    page.wait_for_function(drawn, timeout=60_000)
    assert page.locator("mjx-merror").count() == 0


# --- every page -----------------------------------------------------------------------------------


def test_reference_shows_equation_shapes_example_and_code(opened):
    page = opened("api/npformer.feed_forward.html")
    entry = page.locator("dl.py.function", has=page.locator("#npformer\\.feed_forward\\.ffn_forward"))
    text = entry.text_content()
    assert "ffn_forward(x, params, *, activation='relu', dropout=0.0, rng=None)" in text
    assert "float array (..., d_model)" in text
    assert "max(0, x W_1" in entry.locator("dd > p").first.text_content()
    assert ">>> ffn_forward(np.ones((3, 6, 8)), params)[0].shape" in text
    source = entry.locator('a[href*="_modules"]').first.get_attribute("href")
    assert source == "../_modules/npformer/feed_forward.html#ffn_forward"
    assert "as_rows(x) @ W_1" in opened(f"api/{source}").text_content("article")


def test_every_public_name_is_in_the_reference(opened):
    import npformer

    page = opened("genindex.html")
    said = set(re.split(r"\W+", page.inner_text("article")))
    assert {name for name in npformer.__all__ if name != "__version__"} <= said


def test_no_page_is_wider_than_the_screen(opened):
    page, wide = opened("index.html"), []
    for path in PAGES:
        page.goto(f"{SITE.as_uri()}/{path}")
        page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
        for size, (width, height) in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
                wide.append((path, size))
    assert wide == []


class Read(HTMLParser):
    """Collect the links and anchors of a page, and its pictures without an alternative text."""

    def __init__(self, path):
        super().__init__()
        self.links, self.places, self.bare = [], set(), []
        self.feed((SITE / path).read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.places |= {found[key] for key in ("id", "name") if found.get(key)}
        self.links += [found[key] for key in ("href", "src") if found.get(key)]
        if tag == "img" and not found.get("alt"):
            self.bare.append(found.get("src"))
        if tag == "iframe" and not found.get("title"):
            self.bare.append(found.get("src"))


@functools.cache
def read(path):
    return Read(path)


def broken(page, link):
    """Return whether a link is broken. If the browser edition is not built, links to it are not checked."""
    parts = urlsplit(link)
    if parts.scheme or link.startswith("//"):
        return False
    target = (SITE / page).parent / unquote(parts.path) if parts.path else SITE / page
    inside = target.resolve().relative_to(SITE).as_posix()
    if inside.startswith("lite/") and not (SITE / "lite").is_dir():
        return False
    if not target.is_file():
        return True
    is_page = inside.startswith(OURS) and parts.fragment and inside.endswith(".html")
    return bool(is_page and unquote(parts.fragment) not in read(inside).places)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere_and_pictures_are_described(page):
    found = read(page)
    assert [link for link in found.links if broken(page, link)] == []
    assert found.bare == []


# --- the one page ---------------------------------------------------------------------------------


def test_on_the_one_page_each_backward_line_stands_beside_its_forward_line(opened):
    """A phone is too narrow for two columns, so the backward lines come below the forward lines.

    Nothing overflows.
    """
    for width, height in [(1280, 800), (1920, 1080), (390, 844)]:
        page = opened("_static/one_page.html")
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        pairs = page.evaluate("""[...document.querySelectorAll(".pair")].map(pair =>
            [...pair.querySelectorAll(".cell:has(b)")].map(cell => {
              const box = cell.getBoundingClientRect(), number = cell.querySelector("b").textContent;
              return [number, cell.classList[1], box.top + box.height / 2, box.left]; }))""")
        assert len(pairs) == 6
        for cells in pairs:
            forward, backward = (
                {n: (y, x) for n, side, y, x in cells if side == s} for s in ("forward", "backward")
            )
            assert forward.keys() == backward.keys() and len(forward) >= 2
            beside = all(
                abs(forward[n][0] - backward[n][0]) < 1 and forward[n][1] < backward[n][1] for n in forward
            )
            below = max(y for y, _ in forward.values()) < min(y for y, _ in backward.values())
            assert beside if width > 1000 else below


PAPERS = {"A4": (210, 297), "A1": (594, 841)}  # in mm


def test_no_line_of_the_one_page_wraps(opened):
    """The test covers screens that are at least 1024 pixels wide, and both paper sizes."""
    wide = {f"_static/one_page_{paper}.html": [round(size[0] * 96 / 25.4)] for paper, size in PAPERS.items()}
    for place, widths in {"_static/one_page.html": [1024, 1280, 1366, 1920], **wide}.items():
        for width in widths:
            page = opened(place)
            page.set_viewport_size({"width": width, "height": 1000})
            page.emulate_media(media="print" if place in wide else "screen")
            wrapped = page.evaluate("""[...document.querySelectorAll(".line, .equation, h2, .words pre")]
                .filter(line => {
                  const high = parseFloat(getComputedStyle(line).lineHeight);
                  const lines = line.textContent.split("\\n").length;
                  return line.scrollWidth > line.clientWidth + 1 || line.clientHeight > high * (lines + 0.7);
                }).map(line => line.textContent)""")
            assert wrapped == [], (place, width)


def test_the_posters_are_one_sheet_each():
    for paper, (wide, high) in PAPERS.items():
        sheet = (SITE / "_static" / f"one_page_{paper}.pdf").read_bytes()
        assert len(re.findall(rb"/Type /Page\b", sheet)) == 1
        box = re.search(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", sheet)
        assert box is not None
        assert [round(float(points) * 25.4 / 72) for points in box.groups()] == [wide, high]


# --- accessibility --------------------------------------------------------------------------------

KINDS = (
    "index.html", "lessons/01_positional_encoding.html", "lessons/exercises.html", "lessons/plan.html",
    "pages/play.html", "pages/figures.html", "pages/kills.html", "pages/comparison.html",
    "pages/exercises.html",
    "pages/one_page.html", "_static/one_page.html", "api/index.html", "api/npformer.attention.html",
    "genindex.html",
)  # fmt: skip


# {appearance of a page: the accessibility rules to check}. An empty dict means all rules.
LOOKS = {"light": {}, "dark": {"only": [CONTRAST]}, "a telephone": {"without": [CONTRAST]}}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("path", KINDS)
def test_axe_has_nothing_against_a_kind_of_page(opened, path, look):
    page = opened(path, look if look in SIZES else "a laptop")
    page.emulate_media(color_scheme="dark" if look == "dark" else "light")
    if "lessons/" in path:
        assert_drawn(page)
    assert objections(page, not_ours=["iframe"], **LOOKS[look]) == []


def test_axe_has_nothing_against_a_worksheet(chromium, tmp_path):
    from npformer.handouts.worksheet import save_worksheet

    file = save_worksheet("Ada", tmp_path / "sheet.html", key=True, minutes=15)
    page = chromium.new_page()
    page.goto(file.as_uri())
    assert objections(page) == []
    page.close()


def test_a_table_that_is_cut_shows_it_and_the_site_has_an_icon(opened):
    page = opened("pages/comparison.html", "a telephone")
    box = page.locator(".table-wrapper").first
    assert box.evaluate("box => box.scrollWidth > box.clientWidth && box.tabIndex === 0")
    assert "linear-gradient" in box.evaluate("box => getComputedStyle(box).backgroundImage")
    assert (SITE / "_static" / "favicon.svg").is_file()
    assert page.locator('link[rel~="icon"]').get_attribute("href").endswith("favicon.svg")
