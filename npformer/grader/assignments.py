"""Notebooks to hand out: chosen exercises with places for answers, and tests for nbgrader or otter-grader.

A test is `assert check("pe.table", pe_table)`. A result that is asserted and is not right raises the
AssertionError itself, with the card's text, which is what both tools show to the student.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from npformer.exercises import list_exercises, show
from npformer.grader.run import replacing
from npformer.installed import version

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


def write_assignment(
    ids: Sequence[str], path: Path, *, points: float = 1.0, format: str = "nbgrader"
) -> list[Path]:
    """Write the notebook; for otter-grader also what it asks for of an environment. Returns what was written.

    Raises ValueError for another suffix than .ipynb, for points below 0 and for an exercise named twice.
    """
    if path.suffix != ".ipynb":
        raise ValueError(f"{path.name!r} should end in .ipynb")
    if not 0 <= points < 1e6 or len(set(ids)) != len(ids):
        raise ValueError("expected points of 0 or more, and every exercise once")
    exercises = [each for exercise_id in ids for each in list_exercises() if each.id == exercise_id]
    make = _for_nbgrader if format == "nbgrader" else _for_otter
    texts = {path: notebook_of(make(exercises, int(points) if points == int(points) else points))}
    if format == "otter":
        texts[path.with_name("environment.yml")] = ENVIRONMENT
    for place, text in texts.items():
        with replacing(place) as file:
            file.write(text)
    return list(texts)


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
    return value.format(exercise.name)


def _test(exercise: Exercise) -> str:
    return f'assert check("{exercise.id}", {exercise.name})\n'


BEGIN, END = "### BEGIN SOLUTION\n", "### END SOLUTION\n"  # nbgrader takes out what is between
BODY, VALUE = f"    {BEGIN}    raise NotImplementedError\n    {END}", f"{BEGIN}{{}} = None\n{END}"


def _for_nbgrader(exercises: Sequence[Exercise], points: float) -> list[Cell]:
    opening = "import numpy as np\n\nfrom npformer.exercises import check\n"
    cells = [cell("markdown", "# Assignment"), cell("code", opening, **_mark("imports", locked=True))]
    for each in exercises:
        tested = _mark(f"test_{each.name}", grade=True, locked=True, points=points)
        cells += [
            cell("markdown", _task(each), **_mark(f"task_{each.name}", locked=True)),
            cell("code", _stub(each, BODY, VALUE), **_mark(f"answer_{each.name}", solution=True)),
            cell("code", _test(each), **tested),
        ]
    return cells


def _mark(name: str, **more: Any) -> dict[str, Any]:
    fixed = {"grade": False, "grade_id": name, "locked": False, "schema_version": 3, "solution": False}
    return {"nbgrader": {**fixed, "task": False, **more}}


CONFIG = f"""\
run_tests: false
environment: environment.yml
autograder_files: [{WHEEL}]
tests:
    ok_format: false
"""


def _for_otter(exercises: Sequence[Exercise], points: float) -> list[Cell]:
    config = f"# ASSIGNMENT CONFIG\n{CONFIG}"
    cells = [cell("raw", config), cell("markdown", "# Assignment"), cell("code", "import numpy as np\n")]
    for exercise in exercises:
        test = f"    from npformer.exercises import check\n    {_test(exercise)}"
        cells += [
            cell("raw", f"# BEGIN QUESTION\nname: {exercise.name}\npoints: {points}\n"),
            cell("markdown", _task(exercise)),
            cell("raw", "# BEGIN SOLUTION"),
            cell("code", _stub(exercise, "    ... # SOLUTION\n", "{} = None # SOLUTION\n")),
            cell("raw", "# END SOLUTION"),
            cell("raw", "# BEGIN TESTS"),
            cell("code", f"def test_{exercise.name}({exercise.name}):\n{test}"),
            cell("raw", "# END TESTS"),
            cell("raw", "# END QUESTION"),
        ]
    return cells
