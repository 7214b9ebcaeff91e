"""The address of a lesson's page, as a browser edition works it out from its own."""

import sys
from types import SimpleNamespace

import pytest

from npformer.teaching.browser import IN_BROWSER, AtOnce, page_of


@pytest.mark.parametrize("site", ["https://example.org", "http://localhost:8000/npformer"])
def test_a_page_is_found_from_the_folder_of_the_browser_edition(site, monkeypatch):
    here = SimpleNamespace(location=SimpleNamespace(href=f"{site}/lite/extensions/kernel/worker.js"))
    monkeypatch.setitem(sys.modules, "js", here)
    assert page_of("09_gpu") == f"{site}/lessons/09_gpu.html"


def test_this_is_a_browser_only_where_python_was_compiled_for_one():
    assert IN_BROWSER == (sys.platform == "emscripten")


def test_without_a_thread_work_is_done_when_it_is_handed_in():
    done = []
    waiting = AtOnce().submit(done.append, "work")
    assert done == ["work"]
    assert waiting.result() is None
