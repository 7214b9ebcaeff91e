"""Write slides as PDF. An installed Chromium, Chrome or Edge prints them.

Each state of a slide is a page: without its question, with the question, and with the answer. The script
stage/print.js makes these pages when the address ends in ?print-pdf.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BROWSER_VARIABLE = "CHROMIUM"
COMMANDS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "microsoft-edge",
    "msedge",
)
# Where the installers of macOS and Windows put a browser, which is not on the path there.
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Microsoft\Edge\Application\msedge.exe",
)
NO_BROWSER = (
    "a PDF needs Chromium, Chrome or Edge, and none is installed; "
    f"if it is at an unusual place, set {BROWSER_VARIABLE} to its path"
)
PAGE_SECONDS = 600  # the limit for printing one lesson: of the command, and of the browser's virtual time
ATTEMPTS = 5  # how often a deck is printed at most, if the browser prints it too early
NOT_READY = b"npformer: not ready"  # the title in a file that was printed too early: see print.js


class PrintFails(RuntimeError):
    """The browser did not write the PDF."""


def find_browser() -> str:
    """Return the path of a browser that can print.

    Raises ValueError if no browser is found.
    """
    chosen = os.environ.get(BROWSER_VARIABLE)
    candidates = [chosen] if chosen else [*COMMANDS, *PLACES]
    for candidate in candidates:
        browser = shutil.which(candidate)
        if browser:
            return browser
    raise ValueError(f"slides: {NO_BROWSER}")


def save_pdf(slides: Path, browser: str) -> Path:
    """Print slides to a PDF file next to them.

    Parameters
    ----------
    slides : Path
        The HTML file of the slides.
    browser : str
        The path of the browser, from `find_browser`.

    Returns
    -------
    file : Path

    Raises
    ------
    PrintFails
        If the browser does not write the file in ten minutes, or prints it too early several times.
    """
    file = slides.resolve().with_suffix(".pdf")
    for _ in range(ATTEMPTS):
        file.unlink(missing_ok=True)  # so that an old file cannot be mistaken for the new one
        _print_once(slides, file, browser)
        was_too_early = NOT_READY in file.read_bytes()
        if not was_too_early:
            return file
    file.unlink()
    raise PrintFails(f"{browser} printed {slides.name} too early {ATTEMPTS} times. Try again later.")


def _print_once(slides: Path, file: Path, browser: str) -> None:
    """Let the browser print the slides to the file. Raises PrintFails if the browser writes no file."""
    # Chromium does not start for root, for example in a container, unless its own sandbox is off.
    is_root = sys.platform != "win32" and os.geteuid() == 0
    # A new profile, because a browser that is already open would take over the command and print nothing.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            browser,
            "--headless",
            "--no-pdf-header-footer",
            f"--user-data-dir={profile}",
            # The browser prints when its page has been idle for so many milliseconds of the page's own clock.
            f"--virtual-time-budget={1000 * PAGE_SECONDS}",
            f"--print-to-pdf={file}",
            *(["--no-sandbox"] if is_root else []),
            f"{slides.resolve().as_uri()}?print-pdf",
        ]
        try:
            done = subprocess.run(command, capture_output=True, timeout=PAGE_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise PrintFails(f"{browser} did not print {slides.name} in {PAGE_SECONDS} seconds.") from None
    if not file.exists():
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise PrintFails(f"{browser} did not print {slides.name}: {lines[-1]}")
