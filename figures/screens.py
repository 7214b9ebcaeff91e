"""Take the screenshots of the README: one page, the player, a lesson, a feedback card, a worksheet.

The player is also filmed, as an animated picture.

    uv run --group site python .ci/site/build.py build/site --only docs
    uv run python figures/screens.py

Chromium draws the screenshots, so their bytes differ between machines. A test checks that each file exists,
has the size below and has an alternative text. Two screenshots, `one_page` and `lesson`, show pages of the
built site. The others show pages that the package makes.
"""

import inspect
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from npformer import play
from npformer.exercises import check
from npformer.handouts.worksheet import save_worksheet

FOLDER = Path(__file__).parent
SITE = FOLDER.parent / "build" / "site"
SCREENS = {
    "one_page.webp": (1600, 832),
    "player.webp": (1600, 832),
    "player_moves.webp": (1024, 640),
    "lesson.webp": (1280, 960),
    "card.webp": (1280, 960),
    "worksheet.webp": (1280, 960),
}
FRAME_MILLISECONDS = 80
GO_TO_TIME = """time => document.getAnimations().forEach(animation => {
    animation.pause();
    animation.currentTime = time;
})"""
CARD = """<!doctype html><meta charset="utf-8">
<style>
body {{ font: 23px/1.55 system-ui, sans-serif; margin: 22px; }}
pre {{ font: 18px/1.6 monospace; background: #f2f2f2; padding: 12px; }}</style><pre>{code}</pre>{card}"""
BARE = ".sidebar-drawer, .toc-drawer, .mobile-header, .back-to-top { display: none !important }"
TO_CLOCKS = """() => {  // the question that stands before the first cell that draws clocks
  const cells = [...document.querySelectorAll(".cell")];
  const clocks = cells.find((cell) => cell.innerText.includes("clock_hands(") && cell.querySelector("img"));
  const asked = [...document.querySelectorAll("p > strong:first-child")].filter(
    (strong) => strong.textContent == "Predict." && strong.compareDocumentPosition(clocks) & 4);
  document.documentElement.style.scrollPaddingTop = "16px";
  asked.at(-1).scrollIntoView({behavior: "instant"});
}"""
CODE = """\
def pe_table(n, d_model):
    speed = 1000 ** (-np.arange(0, d_model, 2) / d_model)
    angle = np.arange(n)[:, None] * speed
    table = np.empty((n, d_model))
    table[:, 0::2], table[:, 1::2] = np.sin(angle), np.cos(angle)
    return table

check("pe.table", pe_table, level=2)"""


def one_page(page: Any, scratch: Path) -> None:
    """Layer norm and attention on the one page: the forward pass is on the left; each line of the backward
    pass is on the right, next to its forward line"""
    page.goto((SITE / "_static" / "one_page.html").as_uri())
    page.set_viewport_size({"width": 1400, "height": 728})
    pair = page.locator("section.pair", has_text="def layer_norm")
    pair.evaluate("pair => scrollTo(0, pair.offsetTop - 16)")


def player(page: Any, scratch: Path) -> None:
    """The player in the middle of an encoder block: the conveyor, the hidden units of a feed-forward
    network, and the arithmetic of one hidden unit"""
    page.goto(play(at="ffn.z").save(scratch / "player.html").as_uri())
    page.click("body", position={"x": 5, "y": 5})
    for _ in range(5):
        page.keyboard.press("ArrowRight")


def player_moves(page: Any, scratch: Path) -> Iterator[bytes]:
    """The view moves from the whole block into the feed-forward network. There, a row and a column move
    together, turn into products and become one number. Then the view moves out again"""
    page.goto(play(at="ffn.z,8").save(scratch / "player.html").as_uri())
    page.keyboard.press("z")
    _end_motion(page)
    yield from [page.screenshot()] * 10
    for key, milliseconds, still in (("z", 650, 8), ("n", 1900, 16), ("z", 650, 6)):
        page.keyboard.press(key)
        page.keyboard.press("p")
        for time in range(0, milliseconds, FRAME_MILLISECONDS):
            page.evaluate(GO_TO_TIME, time)
            yield page.screenshot()
        _end_motion(page)
        yield from [page.screenshot()] * still


def _end_motion(page: Any) -> None:
    page.evaluate("document.getAnimations().forEach(animation => animation.finish())")
    page.wait_for_timeout(200)


def lesson(page: Any, scratch: Path) -> None:
    """A lesson: a prediction question, the cell that answers it, the picture of clock hands from this
    cell, and the hidden answer"""
    page.goto((SITE / "lessons" / "01_positional_encoding.html").as_uri())
    page.add_style_tag(content=BARE)
    page.evaluate(TO_CLOCKS)


def card(page: Any, scratch: Path) -> None:
    """A function for the position table with a base of 1000, and the feedback card of the checker: what
    is correct, what was observed, and a question"""
    names: dict[str, Any] = {"np": np, "check": lambda *given, **more: None}
    exec(CODE, names)
    said = check("pe.table", names["pe_table"], level=2)._repr_html_().replace("float:right", "display:none")
    page.set_content(CARD.format(code=CODE, card=said))


def worksheet(page: Any, scratch: Path) -> None:
    """The first page of a pencil worksheet: it has a student's own numbers and boxes to fill in"""
    page.goto(save_worksheet("Ada", scratch / "sheet.html").as_uri())


PAGES: dict[str, Callable[[Any, Path], Iterator[bytes] | None]] = {
    "one_page.webp": one_page,
    "player.webp": player,
    "player_moves.webp": player_moves,
    "lesson.webp": lesson,
    "card.webp": card,
    "worksheet.webp": worksheet,
}


def alt(name: str) -> str:
    """Return the alternative text of a screenshot."""
    return " ".join((PAGES[name].__doc__ or "").split())


def photographed(browser: Any, name: str, scratch: Path) -> bytes:
    """Take a screenshot at twice the size and scale it down, so that small letters stay sharp.

    A page that returns frames becomes an animated picture.
    """
    width, height = SCREENS[name]
    is_film = inspect.isgeneratorfunction(PAGES[name])
    view = {"width": 1280, "height": 800} if is_film else {"width": width * 5 // 8, "height": height * 5 // 8}
    page = browser.new_page(viewport=view, device_scale_factor=1 if is_film else 2)
    frames = PAGES[name](page, scratch)
    if frames is None:
        page.wait_for_timeout(1500)
        frames = iter([page.screenshot()])
    first, *others = [
        Image.open(io.BytesIO(frame)).convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
        for frame in frames
    ]
    page.close()
    file = io.BytesIO()
    if is_film:
        first.save(
            file, "webp", quality=60, method=4, save_all=True, append_images=others,
            duration=FRAME_MILLISECONDS, loop=0,
        )  # fmt: skip
    else:
        first.save(file, "webp", quality=80, method=6)
    return file.getvalue()


def main() -> None:
    """Write all screenshots, or those named on the command line."""
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as p, tempfile.TemporaryDirectory() as scratch:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name in sys.argv[1:] or PAGES:
            data = photographed(browser, name, Path(scratch))
            (FOLDER / name).write_bytes(data)
            print(f"{name:16} {len(data) / 1000:4.0f} kB")
        browser.close()


if __name__ == "__main__":
    main()
