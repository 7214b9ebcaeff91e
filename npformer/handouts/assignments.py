"""Notebooks to hand out: chosen exercises with places for answers, and tests for nbgrader or otter-grader.

A test is `check("pe.table", pe_table).raise_if_wrong()`. It raises an AssertionError with the feedback as its
message, and both tools show that message to the student.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from npformer.exercises import list_exercises, show
from npformer.installation import version

Cell = dict[str, Any]
Exercise = Any  # an entry of list_exercises()
WHEEL = f"npformer-{version()}-py3-none-any.whl"
ENVIRONMENT = f"""\
name: otter-env
channels: [conda-forge]
dependencies:
  - python=3.12
  - pip
  - pip: [otter-grader, numpy, ipykernel, ./files/{WHEEL}]
"""


def assignment_files(
    ids: Sequence[str], path: Path, *, points: float = 1.0, format: str = "nbgrader"
) -> dict[Path, str]:
    """The notebook's text; for otter-grader also what it asks for of an environment.

    Raises ValueError for another suffix than .ipynb, and for points below 0.
    """
    if path.suffix != ".ipynb":
        raise ValueError(f"{path.name!r} should end in .ipynb")
    if not 0 <= points < 1e6:
        raise ValueError("expected points of 0 or more")
    exercises = [each for exercise_id in ids for each in list_exercises() if each.id == exercise_id]
    worth = int(points) if points == int(points) else points
    if format == "nbgrader":
        return {path: notebook_of(_for_nbgrader(exercises, worth))}
    return {path: notebook_of(_for_otter(exercises, worth)), path.with_name("environment.yml"): ENVIRONMENT}


def notebook_of(cells: Sequence[Cell]) -> str:
    """The text of a notebook's file."""
    notebook = {
        "cells": [{**each, "id": f"cell-{i:03}"} for i, each in enumerate(cells)],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def cell(kind: str, text: str, **metadata: Any) -> Cell:
    """A markdown, code or raw cell."""
    rest: Cell = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": metadata, "source": text.splitlines(keepends=True), **rest}


def _task(exercise: Exercise) -> str:
    """The exercise's text, in which each line stands by itself, and the name of its answer."""
    first, *lines = str(show(exercise.id)).splitlines()
    under = "" if exercise.kind == "code" else f" under the name `{exercise.name}`"
    return "\n\n".join([f"### {first}", *lines[:-1], f"{lines[-1].rstrip('.')}{under}."])


def _stub(exercise: Exercise, body: str, value: str) -> str:
    """The place for the answer: a function's body, or a value."""
    if exercise.kind == "code":
        return f"def {exercise.name}({exercise.signature}):\n{body}"
    return f"{exercise.name} = {value}"


BEGIN, END = "### BEGIN SOLUTION\n", "### END SOLUTION\n"  # nbgrader takes out what is between
IMPORTS = "import numpy as np\n\nfrom npformer.exercises import check\n"


def _for_nbgrader(exercises: Sequence[Exercise], points: float) -> list[Cell]:
    cells = [cell("markdown", "# Assignment"), cell("code", IMPORTS, **_mark("imports", locked=True))]
    for each in exercises:
        answer = _stub(each, f"    {BEGIN}    raise NotImplementedError\n    {END}", "None\n")
        answer = answer if each.kind == "code" else f"{BEGIN}{answer}{END}"
        test = f'check("{each.id}", {each.name}).raise_if_wrong()\n'
        cells += [
            cell("markdown", _task(each), **_mark(f"task_{each.name}", locked=True)),
            cell("code", answer, **_mark(f"answer_{each.name}", solution=True)),
            cell("code", test, **_mark(f"test_{each.name}", grade=True, locked=True, points=points)),
        ]
    return cells


def _mark(name: str, **more: Any) -> dict[str, Any]:
    fixed = {"grade": False, "grade_id": name, "locked": False, "schema_version": 3, "solution": False}
    return {"nbgrader": {**fixed, "task": False, **more}}


CONFIG = f"""\
# ASSIGNMENT CONFIG
run_tests: false
environment: environment.yml
autograder_files: [{WHEEL}]
tests:
    ok_format: false
"""
QUESTION = """\
def test_{0}({0}):
    from npformer.exercises import check
    check("{1}", {0}).raise_if_wrong()
"""


def _for_otter(exercises: Sequence[Exercise], points: float) -> list[Cell]:
    pieces = [("raw", CONFIG), ("markdown", "# Assignment"), ("code", "import numpy as np\n")]
    for each in exercises:
        pieces += [
            ("raw", f"# BEGIN QUESTION\nname: {each.name}\npoints: {points}\n"),
            ("markdown", _task(each)),
            ("raw", "# BEGIN SOLUTION"),
            ("code", _stub(each, "    ... # SOLUTION\n", "None # SOLUTION\n")),
            ("raw", "# END SOLUTION"),
            ("raw", "# BEGIN TESTS"),
            ("code", QUESTION.format(each.name, each.id)),
            ("raw", "# END TESTS"),
            ("raw", "# END QUESTION"),
        ]
    return [cell(kind, text) for kind, text in pieces]
