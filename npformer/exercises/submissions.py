"""Reading what a student hands in: a .py file or a notebook, with answers under the names of the exercises.

The exercise pe.table is answered by a top-level name pe_table, a function or a value; or by an entry of a
dict `answers`, under its id. A name `student` chooses the numbers that belong to a student.
"""

import json
from pathlib import Path
from traceback import walk_tb
from typing import Any, NamedTuple

from npformer.exercises.bank import Exercise

SUFFIXES = (".py", ".ipynb")


class Submission(NamedTuple):
    """What a file defines, and the line that says why it is not read to its end ("" if it is)."""

    names: dict[str, Any]
    student: str
    problem: str


def read_submission(path: Path) -> Submission:
    """Run the file, or the notebook's cells in order; what stood before an error counts."""
    names: dict[str, Any] = {"__name__": "submission", "__file__": str(path), "display": print}
    problem = ""
    try:
        for place, source in _pieces(path):
            failed = _run(source, place, names)
            problem = problem or failed
    except (OSError, ValueError, TypeError, RecursionError) as error:
        problem = f"The file cannot be read: {' '.join(str(error).split())[:120]}."
    student = names.get("student", "")
    return Submission(names, student if isinstance(student, str) else "", problem)


def _pieces(path: Path) -> list[tuple[str, str]]:
    """(where, source) of the file or of each code cell, without what only a notebook understands."""
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix != ".ipynb":
        return [(path.name, text)]
    notebook = json.loads(text)
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise ValueError("it has no cells")
    cells = [cell for cell in notebook["cells"] if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    return [(f"code cell {i}", _plain("".join(cell.get("source", "")))) for i, cell in enumerate(cells, 1)]


def _plain(source: str) -> str:
    if source.lstrip().startswith("%%"):
        return ""
    lines = (line if not line.lstrip().startswith(("%", "!")) else "pass" for line in source.splitlines())
    return "\n".join(lines)


def _run(source: str, place: str, names: dict[str, Any]) -> str:
    try:
        exec(compile(source, place, "exec"), names)
    except SyntaxError as error:
        return f"{place}, line {error.lineno}: this is not Python yet ({error.msg})."
    except (Exception, SystemExit) as error:
        lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == place]
        where = f"{place}, line {lines[-1]}" if lines else place
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(": ")
        return f"{where}: {said}."
    return ""


def answer_of(submission: Submission, exercise: Exercise) -> Any:
    """The answer to one exercise, or None. What was imported from npformer is not the student's."""
    answers = submission.names.get("answers")
    if isinstance(answers, dict) and exercise.id in answers:
        return answers[exercise.id]
    answer = submission.names.get(exercise.name)
    imported = str(getattr(answer, "__module__", "")).split(".")[0] == "npformer"
    return None if imported else answer


def personal(submission: Submission, exercise: Exercise) -> str:
    """The id with the student's name, where the exercise draws its numbers from it."""
    name = submission.student.strip()
    return f"{exercise.id}@{name}" if name and exercise.recipe else exercise.id
