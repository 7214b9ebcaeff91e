"""The answer to a prediction, and the lessons as a reader's own files, never written over what is there."""

import copy
import json

import pytest

from npformer.handouts import lesson_copies as lessons
from npformer.handouts.lesson_copies import lesson_files, student_copy, write_lessons
from npformer.lessons.predictions import answers, reveal

NAMES = [path.name for path in lesson_files()]


def test_an_answer_is_markdown_in_a_notebook_and_text_in_a_terminal():
    answer = reveal("1.1a")
    assert answer._repr_markdown_() == f"**Answer.** {answer.text}"
    assert repr(answer) == f"Answer. {answer.text}" and answer.text == answers(1)["1.1a"]


def test_a_student_copy_has_no_results_and_the_original_keeps_its_own():
    code = {"cell_type": "code", "source": "1", "metadata": {"a": 1}, "outputs": ["3"], "execution_count": 4}
    lesson = {"metadata": {}, "cells": [{"cell_type": "markdown", "source": "# 1", "metadata": {}}, code]}
    before = copy.deepcopy(lesson)
    text, copied = student_copy(lesson)["cells"]
    assert lesson == before and text == lesson["cells"][0]
    assert copied == code | {"outputs": [], "execution_count": None}


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package that was installed: its lessons lie inside it, and there is no clone."""
    package = tmp_path / "site-packages" / "npformer"
    (package / "lessons").mkdir(parents=True)
    monkeypatch.setattr(lessons, "__file__", str(package / "handouts" / "lesson_copies.py"))
    return package


def test_every_lesson_is_written_without_outputs(tmp_path):
    written, kept = write_lessons(tmp_path / "a" / "mine")
    assert [path.name for path in written] == NAMES and kept == [] and "exercises.ipynb" in NAMES
    for lesson, path in zip(lesson_files(), written, strict=True):
        here, there = (json.loads(p.read_text(encoding="utf-8")) for p in (lesson, path))
        assert [c["source"] for c in here["cells"]] == [c["source"] for c in there["cells"]]
        code = [c for c in there["cells"] if c["cell_type"] == "code"]
        assert all((c["outputs"], c["execution_count"]) == ([], None) for c in code)
        assert b"\r" not in path.read_bytes()


def test_an_installed_package_has_its_lessons_inside(installed, tmp_path):
    cell = {"cell_type": "code", "source": "1", "metadata": {}, "execution_count": 1, "outputs": [1]}
    (installed / "lessons" / "01_é.ipynb").write_text(json.dumps({"cells": [cell]}))
    (path,), _ = write_lessons(tmp_path / "mine")
    assert path.name == "01_é.ipynb" and json.loads(path.read_text())["cells"][0]["outputs"] == []


def test_what_cannot_be_written_is_refused(installed, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="this copy of npformer has no lessons"):
        write_lessons(tmp_path / "mine")
    lesson = installed / "lessons" / "01.ipynb"
    lesson.write_text("{}")
    with pytest.raises(ValueError, match="holds the lessons themselves"):
        write_lessons(installed / "lessons", force=True)
    with pytest.raises(ValueError, match=r"01\.ipynb' is a file; expected a folder"):
        write_lessons(lesson)
    assert lesson.read_text() == "{}"
