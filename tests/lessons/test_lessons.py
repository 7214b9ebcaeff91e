"""Tests of the answers to predictions, and of the students' copies of the lessons."""

import copy
import json
from typing import Any

import pytest

from npformer.handouts import lesson_copies as lessons
from npformer.handouts.lesson_copies import list_lesson_files, make_student_copy, write_lessons
from npformer.lessons.predictions import answers, reveal

NAMES = [path.name for path in list_lesson_files()]


def test_reveal_shows_markdown_in_notebooks_and_text_elsewhere():
    answer = reveal("1.1a")
    assert answer._repr_markdown_() == f"**Answer.** {answer.text}"
    assert repr(answer) == f"Answer. {answer.text}" and answer.text == answers(1)["1.1a"]


def test_student_copy_has_no_outputs():
    code = {"cell_type": "code", "source": "1", "metadata": {"a": 1}, "outputs": ["3"], "execution_count": 4}
    lesson: dict[str, Any] = {
        "metadata": {},
        "cells": [{"cell_type": "markdown", "source": "# 1", "metadata": {}}, code],
    }
    before = copy.deepcopy(lesson)
    text, copied = make_student_copy(lesson)["cells"]
    assert lesson == before and text == lesson["cells"][0]
    assert copied == code | {"outputs": [], "execution_count": None}


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return the folder of a mock installation, in which the lessons are inside the package."""
    package = tmp_path / "site-packages" / "npformer"
    (package / "lessons").mkdir(parents=True)
    monkeypatch.setattr(lessons, "__file__", str(package / "handouts" / "lesson_copies.py"))
    return package


def test_write_lessons_writes_every_lesson_without_outputs(tmp_path):
    written, kept = write_lessons(tmp_path / "a" / "mine")
    assert [path.name for path in written] == NAMES and kept == [] and "exercises.ipynb" in NAMES
    for lesson, path in zip(list_lesson_files(), written, strict=True):
        original = json.loads(lesson.read_text(encoding="utf-8"))["cells"]
        copied = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert [cell["source"] for cell in original] == [cell["source"] for cell in copied]
        code_cells = [cell for cell in copied if cell["cell_type"] == "code"]
        assert all((cell["outputs"], cell["execution_count"]) == ([], None) for cell in code_cells)
        assert b"\r" not in path.read_bytes()


def test_write_lessons_copies_lessons_of_an_installed_package(installed, tmp_path):
    cell = {"cell_type": "code", "source": "1", "metadata": {}, "execution_count": 1, "outputs": [1]}
    (installed / "lessons" / "01_é.ipynb").write_text(json.dumps({"cells": [cell]}))
    (path,), _ = write_lessons(tmp_path / "mine")
    assert path.name == "01_é.ipynb" and json.loads(path.read_text())["cells"][0]["outputs"] == []


def test_write_lessons_rejects_a_package_without_lessons(installed, tmp_path):
    with pytest.raises(FileNotFoundError, match="this copy of npformer has no lessons"):
        write_lessons(tmp_path / "mine")


def test_write_lessons_rejects_unsuitable_folders(installed):
    lesson = installed / "lessons" / "01.ipynb"
    lesson.write_text("{}")
    with pytest.raises(ValueError, match="is the folder of the lessons"):
        write_lessons(installed / "lessons", force=True)
    with pytest.raises(ValueError, match=r"01\.ipynb' is a file; expected a folder"):
        write_lessons(lesson)
    assert lesson.read_text() == "{}"
