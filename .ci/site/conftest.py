"""Shared by the tests of the built site: its folder, and a Chromium that opens its pages."""

import os
import shutil
from pathlib import Path

import pytest

# pytest must not import these scripts: they start to work on import, and they work only in Pyodide.
collect_ignore = ["prepare.py", "mathematics.py"]
ROOT = Path(__file__).resolve().parents[2]
SITE = Path(os.environ.get("NPFORMER_SITE", ROOT / "build" / "site")).resolve()
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="needs Chromium: apt-get install chromium, or CHROMIUM=path"
)


@pytest.fixture(scope="module")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: uv sync --extra test")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()
