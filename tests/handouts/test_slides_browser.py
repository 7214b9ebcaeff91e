"""Test the slides of every lesson in a real browser: all content fits on its slide, and no font is too small.

The tests measure about four hundred slides at two sizes. When a lesson is run for its slides, letters.py
records the font sizes in each picture. The browser measures the size at which the picture is shown.
"""

import json
import re
from functools import cache
from pathlib import Path

import pytest
from test_classroom import LESSONS
from weights import skip_without

from npformer.handouts.slides import save_slides

pytest.importorskip("playwright.sync_api", reason="needs playwright: uv sync --extra test")
pytest.importorskip("nbconvert", reason="needs nbconvert: uv sync --extra slides")

pytestmark = pytest.mark.browser

SIZES = [(1280, 720), (1920, 1080)]
SMALLEST = 28  # the smallest font size in pixels at 1280 × 720
SMALLEST_IN_TABLE = 18  # a wide table has smaller letters, because its rows are not wrapped
# In pictures with many squares, numbers may be smaller: {part of the description: smallest font size}
CROWDED = {"lanes, no arrow": 24, "tokens look at": 26}
DOTS = 200 / 72  # pictures have 200 dots per inch, and a point is 1/72 inch
MEASURE = """() => {
  const found = [], pictures = [], {clientWidth: width, clientHeight: height} = document.documentElement;
  for (let i = 0; i < Reveal.getTotalSlides(); i++) {
    Reveal.slide(i);
    const slide = Reveal.getCurrentSlide();
    const there = [...slide.querySelectorAll(".text > :not(h2)")];
    if (there.every(part => part.closest("aside, .fragment:not(.visible)")))
      found.push(`slide ${i + 1}: nothing but a title`);
    for (const part of [slide, ...slide.querySelectorAll("*")]) {
      const box = part.getBoundingClientRect();
      if (part.closest("aside") || !box.width) continue;
      if (box.right > width + 1 || box.bottom > height + 1 || box.left < -1 || box.top < -1)
        found.push(`slide ${i + 1}: ${part.tagName} ends at ${box.right}, ${box.bottom}`);
      const written = [...part.childNodes].some(node => node.nodeType == 3 && node.textContent.trim());
      const smallest = part.closest(".table pre") ? SMALLEST_IN_TABLE : SMALLEST;
      if (written && parseFloat(getComputedStyle(part).fontSize) < smallest)
        found.push(`slide ${i + 1}: small letters: ${part.textContent}`);
      if (part.tagName == "IMG" && !(part.alt && part.naturalWidth))
        found.push(`slide ${i + 1}: a picture without description or pixels`);
      if (part.tagName == "IMG") {
        const scale = Math.min(part.offsetWidth / part.naturalWidth, part.offsetHeight / part.naturalHeight);
        pictures.push([part.src.slice(-40), part.alt, scale]);
      }
    }
  }
  return [found, pictures];
}""".replace("SMALLEST_IN_TABLE", str(SMALLEST_IN_TABLE)).replace("SMALLEST", str(SMALLEST))

# On every slide, after every click: the share of a block that is covered, the largest empty band below the
# title, all empty bands together, and the left and right edges of the content. A band is at least 50 pixels
# high: a smaller one is the space between two lines.
LAYOUT = """() => {
  const found = [], unit = document.documentElement.clientHeight / 720;
  const area = box => Math.max(0, box.right - box.left) * Math.max(0, box.bottom - box.top);
  const common = (a, b) => area({
    left: Math.max(a.left, b.left), right: Math.min(a.right, b.right),
    top: Math.max(a.top, b.top), bottom: Math.min(a.bottom, b.bottom),
  });
  function boxesOf(top) {
    const boxes = [];
    for (const part of top.querySelectorAll("*")) {
      if (part.matches("img, iframe, pre, math")) boxes.push(part.getBoundingClientRect());
      for (const node of part.childNodes) {
        if (node.nodeType != 3 || !node.textContent.trim()) continue;
        const range = document.createRange();
        range.selectNodeContents(node);
        boxes.push(...range.getClientRects());
      }
    }
    return boxes.filter(box => box.width && box.height);
  }
  for (let i = 0; i < Reveal.getTotalSlides(); i++) {
    Reveal.slide(i);
    const slide = Reveal.getCurrentSlide();
    for (let click = 0; ; click++) {
      const heading = slide.querySelector(".heading").getBoundingClientRect();
      const blocks = boxesOf(slide.querySelector(".area"));
      const footers = [...slide.querySelectorAll(".footer")];
      const bars = footers.map(bar => bar.getBoundingClientRect()).filter(box => box.height);
      const covers = blocks.flatMap(box => [heading, ...bars].map(bar => common(box, bar) / area(box)));
      const all = [...blocks, ...slide.matches(".filled") ? bars : footers.flatMap(boxesOf)];
      all.sort((a, b) => a.top - b.top);
      let end = heading.bottom;
      const gaps = [];
      for (const top of [...all, { top: 720 * unit, bottom: 0 }]) {
        gaps.push((top.top - end) / unit);
        end = Math.max(end, top.bottom);
      }
      const isLast = !Reveal.availableFragments().next;
      found.push({
        slide: i + 1, click, isLast, covered: Math.max(0, ...covers), largest: Math.max(...gaps),
        empty: gaps.filter(gap => gap > 50).reduce((sum, gap) => sum + gap, 0),
        left: Math.min(...all.map(box => box.left)) / unit,
        right: Math.max(...all.map(box => box.right)) / unit,
      });
      if (isLast) break;
      Reveal.nextFragment();
    }
  }
  return found;
}"""
LARGEST_BAND = 330  # the largest allowed empty band, in pixels of 720
MOST_EMPTY = 440  # the largest allowed sum of the empty bands after the last click


def find_layout_problems(measured):
    """Return the measured states of slides that are covered, empty or too wide."""
    problems = []
    for state in measured:
        is_empty = state["largest"] > LARGEST_BAND or (state["isLast"] and state["empty"] > MOST_EMPTY)
        is_too_wide = state["left"] < -1 or state["right"] > 1281
        if state["covered"] > 0.01 or is_empty or is_too_wide:
            problems.append(state)
    return problems


PLAYER = {
    ".chips > :not(.count), h1, .controls button, .belt .letter, .sum:not(.long)": 28,
    ".controls select, .controls input, .sum.long, .belt .station, .title .from": 22,
    ".count": 24,
}
BESIDE_A_QUESTION = {"h1": 28, ".sum:not(.long)": 28, ".sum.long": 22, ".strip": 15}
TABLES = 22  # the smallest allowed font size in the tables of a step; most tables have 28
MANY_TABLES = {"d_x": 16, "d_t": 20, "d_s": 20, "d_attention.scores": 20}  # steps with many tables
IN_THE_PLAYER = """([floors, tables, many, only]) => {
  const found = new Set(), page = document.querySelector(".belt svg").getScreenCTM().a;
  const sticks = part => part.scrollHeight > part.clientHeight + 1 || part.scrollWidth > part.clientWidth + 1;
  const small = (top, floor) => [top, ...top.querySelectorAll("*")].some(part => {
    const written = [...part.childNodes].some(node => node.nodeType == 3 && node.textContent.trim());
    const scale = (part.closest("svg") ? page : 1) / (part.closest("sub, sup") ? 0.7 : 1);
    const size = parseFloat(getComputedStyle(part).fontSize) * scale;
    return written && part.getBoundingClientRect().width && size < floor - 0.01;
  });
  for (const step of player.steps.filter(step => !only || only.includes(step.name))) {
    for (let cell = 0; cell < (step.given ? 1 : step.recipes.length); cell++) {
      player.open(`${step.name},${cell}`);
      for (const [part, floor] of Object.entries({...floors, ".stage": many[step.name] ?? tables}))
        for (const top of document.querySelectorAll(part))
          if (small(top, floor)) found.add(`${step.name}: small letters in ${part}`);
      for (const part of [".sum", ".stage", ".controls"])
        if (sticks(document.querySelector(part))) found.add(`${step.name},${cell}: ${part} is too full`);
    }
  }
  return [...found];
}"""


@pytest.fixture
def opened(chromium):
    """Return a function that opens a page of slides. No page may have an error or use the network."""
    pages, problems = [], []

    def record_network_request(request):
        if not request.url.startswith(("file:", "data:")):
            problems.append(request.url)

    def open_page(file):
        page = chromium.new_page(viewport={"width": 1280, "height": 720})
        pages.append(page)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", record_network_request)
        page.goto(file.as_uri())
        page.wait_for_function("Reveal.isReady()")
        return page

    yield open_page
    for page in pages:
        page.close()
    assert problems == []


@pytest.fixture(scope="module")
def decks(tmp_path_factory):
    """Return a function that makes the slides of a lesson; a second call returns the same slides."""
    return cache(lambda lesson: make_deck(lesson, tmp_path_factory.mktemp("deck")))


def make_deck(lesson, folder):
    """Make the slides of a lesson. Return the file and what letters.py recorded about each picture.

    The key of a record is the last characters of the encoded picture.
    """
    startup = folder / "profile_default" / "startup"
    notes = folder / "notes"
    startup.mkdir(parents=True)
    recorder = Path(__file__).parents[1] / "lessons" / "letters.py"
    (startup / "00.py").write_bytes(recorder.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(folder))
        patch.setenv("NOTE_LETTERS", str(notes))
        # The lesson sets these variables too late, because letters.py has already imported NumPy.
        for library in ("OPENBLAS", "OMP"):
            patch.setenv(f"{library}_NUM_THREADS", "1")
        file = save_slides(lesson, folder)
    lines = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
    return file, {note["end"]: note for note in map(json.loads, lines)}


def find_small_letters(pictures, notes, smallest=SMALLEST):
    """Return the texts in pictures that are too small, cut off, or overlap other texts."""
    found = []
    for end, alt, scale in pictures:
        found += [(alt[:40], trouble) for trouble in notes[end]["troubles"]]
        crowded = next((pixels for words, pixels in CROWDED.items() if words in alt), smallest)
        for text, points in notes[end]["letters"]:
            floor = crowded if re.fullmatch(r"−?\d+\.\d+", text) else smallest
            if points * DOTS * scale < floor:
                found.append((alt[:40], text, round(points * DOTS * scale, 1)))
    return found


LONG = ("02", "04", "05", "06", "07", "08", "09", "10", "11", "12")  # lessons that run only with -m slow


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=pytest.mark.slow if p.name.startswith(LONG) else []) for p in LESSONS],
    ids=lambda path: path.stem,
)
def test_slides_fit_and_letters_are_legible(path, opened, decks):
    skip_without(path)
    file, notes = decks(path.name[:2])
    page = opened(file)
    assert 25 <= page.evaluate("Reveal.getTotalSlides()") <= 40
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(f"Math.abs(Reveal.getScale() - {height / 720}) < 0.01")
        found, pictures = page.evaluate(MEASURE)
        assert found == [] and find_small_letters(pictures, notes) == [] and len(pictures) > 2
    assert find_layout_problems(page.evaluate(LAYOUT)) == []
    # A fixed size covers the title, a position at the bottom covers the content, and a small size is empty.
    for style in ("pre, math { font-size: 150px !important; }", ".footer { position: absolute; bottom: 0; }"):
        added = page.add_style_tag(content=f".reveal {style}")
        assert find_layout_problems(page.evaluate(LAYOUT))
        added.evaluate("style => style.remove()")
    page.add_style_tag(content=".reveal h2 { font-size: 20px; } .reveal h1 { height: 900px; }")
    # The added style makes some text too small and a heading too large. The measurement must detect both.
    found, pictures = page.evaluate(MEASURE)
    assert any("small letters" in each for each in found) and "slide 1: H1 ends at" in str(found)
    assert find_small_letters([(end, alt, 0.5 * scale) for end, alt, scale in pictures], notes)


FIRST = (
    "Reveal.slide([...document.querySelectorAll('section section')].findIndex(s => s.querySelector('{}')))"
)
SEEN = """names => names.map(name => {
  const part = Reveal.getCurrentSlide().querySelector(name);
  return part.checkVisibility({ visibilityProperty: true, opacityProperty: true });
})"""


def test_click_shows_more_and_speaker_has_notes(opened, decks):
    page = opened(decks("01")[0])
    page.evaluate(FIRST.format(".fragment"))
    assert page.evaluate(SEEN, [".fragment"]) == [False]
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"({SEEN})(['.fragment'])[0]")
    page.evaluate("Reveal.slide(0)")
    with page.expect_popup() as popup:
        page.keyboard.press("s")
    notes = "document.querySelector('.speaker-controls-notes .value').textContent"
    popup.value.wait_for_function(f"{notes}.includes('Questions to expect')")
    popup.value.close()
    page = opened(decks("03")[0])
    page.evaluate(FIRST.format(".cover"))  # go to the first slide that covers a picture until the answer
    parts = [".cover", ".over:not(.answer)", ".over.answer"]
    visible = ("[true,false,false]", "[true,true,false]", "[false,false,true]")
    for key, expected in zip(("Shift", "ArrowRight", "ArrowRight"), visible, strict=True):
        page.keyboard.press(key)
        page.wait_for_function(f"JSON.stringify(({SEEN})({parts})) == '{expected}'")


def open_player(page, has_question):
    """Show the first slide with a player, and with or without a question. Return the player's frame."""
    place = (
        "[...document.querySelectorAll('section section')].findIndex(s => s.querySelector('iframe') "
        f"&& !!s.querySelector('.fragment') == {str(has_question).lower()})"
    )
    page.evaluate(f"Reveal.slide({place})")
    frame = page.locator("section.present iframe").element_handle().content_frame()
    frame.wait_for_function("window.player && document.readyState == 'complete'")
    return frame


def test_player_on_a_slide_has_large_letters(opened, decks):
    page = opened(decks("03")[0])
    assert len(page.frames) == 1 + page.locator("iframe").count() and "pages" in page.content()
    assert not page.locator("iframe[srcdoc]").count()  # no frame is loaded before its slide is shown
    frame, here = open_player(page, has_question=False), page.evaluate("Reveal.getSlidePastCount()")
    frame.wait_for_function("innerWidth == 1266 || innerWidth == 1268")
    assert frame.evaluate(IN_THE_PLAYER, [PLAYER, TABLES, MANY_TABLES]) == []
    assert len(frame.evaluate(IN_THE_PLAYER, [{".chips b": 29}, TABLES, {}])) == 122 + len(MANY_TABLES)
    frame.evaluate("player.open('ffn.z')")
    page.locator("section.present iframe").click(position={"x": 640, "y": 560})
    page.keyboard.press("ArrowRight")
    frame.wait_for_function("document.querySelector('.count').textContent.includes('cell 2 of')")
    assert page.evaluate("Reveal.getSlidePastCount()") == here
    page.mouse.click(400, 30)
    page.keyboard.press("ArrowRight")
    assert page.evaluate("Reveal.getSlidePastCount()") == here + 1


@pytest.mark.parametrize(("lesson", "questions"), [("01", 1), pytest.param("05", 6, marks=pytest.mark.slow)])
def test_player_of_a_question_hides_the_result(lesson, questions, opened, decks):
    page = opened(decks(lesson)[0])
    frame = open_player(page, has_question=True)
    frame.wait_for_function("document.querySelector('.sum .guess')")
    results = frame.locator("td[data-role=result]").all_text_contents()
    assert results[0] == "?" and not "".join(results[1:]).strip()
    assert frame.locator(".strip").is_hidden()
    frame.evaluate("player.open('h')")
    frame.evaluate("document.querySelector('[aria-keyshortcuts=l]').click()")  # shows the live pictures
    frame.wait_for_function("document.querySelectorAll('.strip svg').length > 2")
    asked = page.locator("iframe").evaluate_all("all => all.map(frame => frame.dataset.at)")
    assert len(asked) >= questions
    assert frame.evaluate(IN_THE_PLAYER, [BESIDE_A_QUESTION, TABLES, {}, asked]) == []
