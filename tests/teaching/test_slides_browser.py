"""The slides of every lesson in a real browser, slide by slide: nothing sticks out, no letter is too small.

About a thousand slides, each measured at two sizes in one page a lesson.
"""

import pytest
from test_classroom import LESSONS

from npformer.teaching.slides import save_slides

pytest.importorskip("playwright.sync_api", reason="needs playwright: uv sync --extra test")
pytest.importorskip("nbconvert", reason="needs nbconvert: uv sync --extra slides")

pytestmark = pytest.mark.browser

SIZES = [(1280, 720), (1920, 1080)]
SMALLEST = 28  # pixels of a letter at 1280 × 720
SMALLEST_IN_A_PICTURE = 17.5  # of letters of 13 points, the smallest in any (test_plots), 100 dots an inch
MEASURE = """inPicture => {
  const found = [], {clientWidth: width, clientHeight: height} = document.documentElement;
  for (let i = 0; i < Reveal.getTotalSlides(); i++) {
    Reveal.slide(i);
    const slide = Reveal.getCurrentSlide();
    for (const part of [slide, ...slide.querySelectorAll("*")]) {
      const box = part.getBoundingClientRect();
      if (part.closest("aside") || !box.width) continue;
      if (box.right > width + 1 || box.bottom > height + 1 || box.left < -1 || box.top < -1)
        found.push(`slide ${i + 1}: ${part.tagName} ends at ${box.right}, ${box.bottom}`);
      const written = [...part.childNodes].some(node => node.nodeType == 3 && node.textContent.trim());
      if (written && parseFloat(getComputedStyle(part).fontSize) < SMALLEST)
        found.push(`slide ${i + 1}: small letters: ${part.textContent}`);
      if (part.tagName == "IMG" && !(part.alt && part.naturalWidth))
        found.push(`slide ${i + 1}: a picture without description or pixels`);
      if (part.tagName == "IMG") {
        const scale = Math.min(part.offsetWidth / part.naturalWidth, part.offsetHeight / part.naturalHeight);
        if (scale * 13 * 100 / 72 < inPicture) found.push(`slide ${i + 1}: small letters in a picture`);
      }
    }
  }
  return found;
}""".replace("SMALLEST", str(SMALLEST))


def opened(chromium, file, troubles):
    page = chromium.new_page(viewport={"width": 1280, "height": 720})
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on(
        "request", lambda request: request.url.startswith(("file:", "data:")) or troubles.append(request.url)
    )
    page.goto(file.as_uri())
    page.wait_for_function("Reveal.isReady()")
    return page


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_no_slide_overflows_and_every_letter_is_legible(path, chromium, tmp_path):
    troubles = []
    page = opened(chromium, save_slides(path.name[:2], tmp_path), troubles)
    assert page.evaluate("Reveal.getTotalSlides()") > 40
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(f"Math.abs(Reveal.getScale() - {height / 720}) < 0.01")
        assert page.evaluate(MEASURE, SMALLEST_IN_A_PICTURE) == []
    page.close()
    assert troubles == []


def test_a_slide_that_overflows_or_is_too_small_is_caught(chromium, tmp_path):
    page = opened(chromium, save_slides("01", tmp_path), [])
    page.add_style_tag(content=".reveal .pause { font-size: 20px; } .reveal h1 { height: 900px; }")
    found = page.evaluate(MEASURE, 28)
    assert any("small letters in a picture" in each for each in found)
    assert any("small letters: Write your guess down." in each for each in found)
    assert any("slide 1: H1 ends at" in each for each in found)
    page.close()


def test_what_is_printed_appears_with_the_next_click(chromium, tmp_path):
    page = opened(chromium, save_slides("01", tmp_path), [])
    page.keyboard.press("End")
    page.evaluate("Reveal.slide(0)")
    steps = 0
    while not page.evaluate("Reveal.getCurrentSlide().querySelector('.fragment')"):
        page.keyboard.press("ArrowRight")
        steps += 1
        assert steps < 20
    shown = "Reveal.getCurrentSlide().querySelector('.fragment').classList.contains('visible')"
    assert page.evaluate(shown) is False
    page.keyboard.press("ArrowRight")
    assert page.evaluate(shown) is True
    page.close()


def test_the_player_runs_on_its_slide(chromium, tmp_path):
    troubles = []
    page = opened(chromium, save_slides("03", tmp_path), troubles)
    frames = [frame for frame in page.frames if frame != page.main_frame]
    place = "[...document.querySelectorAll('section section')].findIndex(s => s.querySelector('iframe'))"
    page.evaluate(f"Reveal.slide({place})")
    frame, here = frames[0], page.evaluate("Reveal.getSlidePastCount()")
    counted = frame.locator(".count")
    before = counted.text_content()
    assert "cell 1 of" in before
    page.locator("section.present iframe").click(position={"x": 640, "y": 560})
    page.keyboard.press("ArrowRight")
    frame.wait_for_function("document.querySelector('.count').textContent.includes('cell 2 of')")
    assert page.evaluate("Reveal.getSlidePastCount()") == here
    page.mouse.click(20, 700)
    page.keyboard.press("ArrowRight")
    assert page.evaluate("Reveal.getSlidePastCount()") == here + 1
    page.close()
    assert len(frames) == 2 and troubles == []
