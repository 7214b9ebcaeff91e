"""The lessons as a reader's own files: written once, never over what is there, and found where they lie."""

import json

import pytest

from npformer.teaching import handout
from npformer.teaching.handout import lesson_files, write_lessons

NAMES = [path.name for path in lesson_files()]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package that was installed: its lessons lie inside it, and there is no clone."""
    package = tmp_path / "site-packages" / "npformer"
    (package / "lessons").mkdir(parents=True)
    monkeypatch.setattr(handout, "__file__", str(package / "teaching" / "handout.py"))
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
