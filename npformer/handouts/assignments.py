"""Assignment notebooks with chosen exercises, cells for the answers, and tests for nbgrader or otter-grader.

A test is `check("pe.table", pe_table).raise_if_wrong()`. For a wrong answer, the test raises an
AssertionError whose message is the feedback. Both tools show this message to the student.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from npformer.exercises import list_exercises
from npformer.installation import version

Cell = dict[str, Any]
Exercise = Any  # an exercise from list_exercises()
WHEEL = f"npformer-{version()}-py3-none-any.whl"
ENVIRONMENT = f"""\
name: otter-env
channels: [conda-forge]
dependencies:
  - python=3.12
  - pip
  - pip: [otter-grader, numpy, ipykernel, ./files/{WHEEL}]
"""


def make_assignment_files(
    ids: Sequence[str], path: Path, *, points: float = 1.0, format: str = "nbgrader"
) -> dict[Path, str]:
    """Make an assignment notebook. For otter-grader, also make the description of its environment.

    Parameters
    ----------
    ids : sequence of str
        The ids of the exercises, in the order of the notebook.
    path : Path
        The path of the notebook, which ends in .ipynb.
    points : float
        The points for each exercise, 0 or more.
    format : str
        "nbgrader" or "otter".

    Returns
    -------
    files : dict of Path to str
        The content of each file. No file is written.

    Raises
    ------
    ValueError
        If the path has a different suffix or the points are out of range.
    """
    if path.suffix != ".ipynb":
        raise ValueError(f"{path.name!r} should end in .ipynb")
    if not 0 <= points < 1e6:
        raise ValueError("expected points of 0 or more")
    by_id = {exercise.id: exercise for exercise in list_exercises()}
    exercises = [by_id[exercise_id] for exercise_id in ids if exercise_id in by_id]
    points = int(points) if points == int(points) else points  # so that 2.0 is written as 2
    if format == "nbgrader":
        return {path: format_notebook(_make_nbgrader_cells(exercises, points))}
    return {
        path: format_notebook(_make_otter_cells(exercises, points)),
        path.with_name("environment.yml"): ENVIRONMENT,
    }


def format_notebook(cells: Sequence[Cell]) -> str:
    """Return the content of the .ipynb file with these cells."""
    notebook = {
        "cells": [{**cell, "id": f"cell-{i:03}"} for i, cell in enumerate(cells)],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def make_cell(cell_type: str, text: str, **metadata: Any) -> Cell:
    """Make a cell of the type "markdown", "code" or "raw"."""
    cell: Cell = {"cell_type": cell_type, "metadata": metadata, "source": text.splitlines(keepends=True)}
    if cell_type == "code":
        cell["execution_count"] = None
        cell["outputs"] = []
    return cell


def _format_task(exercise: Exercise) -> str:
    """Return the exercise as Markdown, with one paragraph per line.

    The last paragraph says how to answer. If the answer is not a function, it also has the variable's name.
    """
    answer_name = "" if exercise.kind == "code" else f" under the name `{exercise.name}`"
    last_line = f"{exercise.answer_form.rstrip('.')}{answer_name}."
    return "\n\n".join([f"### {exercise.title}", *exercise.lines(), last_line])


def _make_stub(exercise: Exercise, body: str, value: str) -> str:
    """Return the code that the student completes: a function with this body, or a name with this value."""
    if exercise.kind == "code":
        return f"def {exercise.name}({exercise.signature}):\n{body}"
    return f"{exercise.name} = {value}"


# --- nbgrader ---------------------------------------------------------------------------------------

BEGIN = "### BEGIN SOLUTION\n"  # nbgrader removes the lines between BEGIN and END
END = "### END SOLUTION\n"
IMPORTS = "import numpy as np\n\nfrom npformer.exercises import check\n"


def _make_nbgrader_cells(exercises: Sequence[Exercise], points: float) -> list[Cell]:
    """Make the cells of the notebook. Each exercise has three cells: the task, the answer and the test."""
    cells = [
        make_cell("markdown", "# Assignment"),
        make_cell("code", IMPORTS, **_make_nbgrader_metadata("imports", locked=True)),
    ]
    for exercise in exercises:
        name = exercise.name
        answer = _make_stub(exercise, f"    {BEGIN}    raise NotImplementedError\n    {END}", "None\n")
        if exercise.kind != "code":
            answer = f"{BEGIN}{answer}{END}"
        test = f'check("{exercise.id}", {name}).raise_if_wrong()\n'
        task_metadata = _make_nbgrader_metadata(f"task_{name}", locked=True)
        answer_metadata = _make_nbgrader_metadata(f"answer_{name}", solution=True)
        test_metadata = _make_nbgrader_metadata(f"test_{name}", grade=True, locked=True, points=points)
        cells.append(make_cell("markdown", _format_task(exercise), **task_metadata))
        cells.append(make_cell("code", answer, **answer_metadata))
        cells.append(make_cell("code", test, **test_metadata))
    return cells


def _make_nbgrader_metadata(name: str, **changes: Any) -> dict[str, Any]:
    """Return the metadata that tells nbgrader the purpose of a cell."""
    defaults = {"grade": False, "grade_id": name, "locked": False, "schema_version": 3, "solution": False}
    return {"nbgrader": {**defaults, "task": False, **changes}}


# --- otter-grader -----------------------------------------------------------------------------------

CONFIG = f"""\
# ASSIGNMENT CONFIG
run_tests: false
environment: environment.yml
autograder_files: [{WHEEL}]
tests:
    ok_format: false
"""
TEST = """\
def test_{name}({name}):
    from npformer.exercises import check
    check("{id}", {name}).raise_if_wrong()
"""


def _make_otter_cells(exercises: Sequence[Exercise], points: float) -> list[Cell]:
    """Make the cells of the notebook. Raw cells mark the questions, solutions and tests."""
    cells = [
        make_cell("raw", CONFIG),
        make_cell("markdown", "# Assignment"),
        make_cell("code", "import numpy as np\n"),
    ]
    for exercise in exercises:
        solution = _make_stub(exercise, "    ... # SOLUTION\n", "None # SOLUTION\n")
        cells += [
            make_cell("raw", f"# BEGIN QUESTION\nname: {exercise.name}\npoints: {points}\n"),
            make_cell("markdown", _format_task(exercise)),
            make_cell("raw", "# BEGIN SOLUTION"),
            make_cell("code", solution),
            make_cell("raw", "# END SOLUTION"),
            make_cell("raw", "# BEGIN TESTS"),
            make_cell("code", TEST.format(name=exercise.name, id=exercise.id)),
            make_cell("raw", "# END TESTS"),
            make_cell("raw", "# END QUESTION"),
        ]
    return cells
