"""Measure how long the player takes to load, and the time between two frames while the camera moves.

    uv run python tests/benchmarks/player.py

The browser is Chromium without a window. On a machine without a GPU, Chromium renders on the CPU. Other
programs then slow it down, so run this script on a quiet machine.
"""

import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, sync_playwright

from npformer.player.player_page import play

sys.path.insert(0, str(Path(__file__).parents[1]))
from browsers import CHROMIUM

SIZES = [(1280, 800), (1920, 1080)]
FLIGHTS = ["+", "+", "+", "-", "-", "-"]  # from the block to a cell, and back to the block
FLIGHT = 640  # the recorded milliseconds of a flight, which takes 650
STORY = 40_000  # the recorded milliseconds of the story, which takes three quarters of a minute
LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"
RECORD = """duration => new Promise(resolve => {
  const times = [], start = performance.now();
  requestAnimationFrame(function record(now) {
    times.push(now);
    if (now - start < duration) requestAnimationFrame(record);
    else resolve(times);
  });
})"""


def measure_frames(page: Page, key: str, duration: int) -> list[float]:
    """Press a key, and return the milliseconds between the frames of the time that follows."""
    page.keyboard.press(key)
    times = page.evaluate(RECORD, duration)
    return [float(after - before) for before, after in pairwise(times)]


def format_row(name: str, milliseconds: list[float]) -> str:
    """Return a row of the table: the number of frames, and three statistics of the time between frames."""
    median, late = np.percentile(milliseconds, [50, 95])
    return f"| {name} | {len(milliseconds)} | {median:.1f} | {late:.1f} | {max(milliseconds):.1f} |"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = play().save(Path(folder) / "play.html")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for width, height in SIZES:
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto(file.as_uri())
            print(f"\n{width} × {height}: loaded after {page.evaluate(LOADED):.0f} ms\n")
            print("| motion | frames | median (ms) | 95 % below (ms) | longest (ms) |\n|---|---|---|---|---|")
            flights = []
            for key in FLIGHTS:
                flights += measure_frames(page, key, FLIGHT)
                page.wait_for_timeout(400)
            print(format_row("six flights of the camera", flights))
            print(format_row("the story, first 40 s", measure_frames(page, " ", STORY)))
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
