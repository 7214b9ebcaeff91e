"""Tests of the notebooks for nbgrader and otter-grader: each task and each option is one paragraph."""

import json
from pathlib import Path

import pytest

from npformer.exercises import list_exercises
from npformer.handouts.assignments import make_assignment_files


@pytest.mark.parametrize("format", ["nbgrader", "otter"])
def test_assignment_has_each_task_in_one_paragraph(format):
    """The text of `show` is wrapped. A wrapped line must not become a paragraph."""
    exercises = list_exercises()
    ids = [exercise.id for exercise in exercises]
    files = make_assignment_files(ids, Path("homework.ipynb"), format=format)
    cells = json.loads(files[Path("homework.ipynb")])["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    paragraphs = {paragraph for text in texts for paragraph in text.split("\n\n")}
    for exercise in exercises:
        assert f"### {exercise.title}" in paragraphs
        assert set(exercise.lines()) <= paragraphs
