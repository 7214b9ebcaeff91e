"""Find the bug: a correct function in which one line was replaced by a listed mistake.

A student's name decides which mistake is used.
"""

import json
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from npformer.exercises.bank import find_exercise
from npformer.exercises.checker import check, report_problem
from npformer.exercises.detectors import run_calls
from npformer.exercises.probe import are_identical
from npformer.exercises.result import Result, make_result
from npformer.exercises.task import LINE, Code, Edit, compile_function, make_generator
from npformer.exercises.verdict import Verdict, make_finding


class Bug(NamedTuple):
    """The text of a function with one wrong line, and the correct line."""

    text: str
    line: int  # the number of the wrong line, counted from 1
    right: str  # the correct line without its indentation

    def mended(self) -> str:
        """Return the text with the correct line."""
        lines = self.text.splitlines()
        wrong_line = lines[self.line - 1]
        indentation = wrong_line[: len(wrong_line) - len(wrong_line.lstrip())]
        lines[self.line - 1] = indentation + self.right
        return "\n".join(lines) + "\n"


def draw_bug(task: Code, name: str = "") -> Bug:
    """Return the bug that belongs to a student's name. Without a name, return the first bug.

    Every mistake of the exercise has the same probability.
    """
    mistakes = _list_bugs(task)
    if not name:
        return mistakes[0][0]
    rng = make_generator(f"bug of {task.id}@{name.casefold()}")
    bugs = mistakes[int(rng.integers(len(mistakes)))]
    return bugs[int(rng.integers(len(bugs)))]


@cache
def _list_bugs(task: Code) -> list[list[Bug]]:
    """List the bugs of each mistake that changes the numbers, if the mistake changes a single line."""
    bugs_of_mistakes = []
    for mistake, edits in task.mistakes.items():
        if mistake.kind != "wrong":
            continue
        bugs = list(_make_bugs(task, edits))
        if bugs:
            bugs_of_mistakes.append(bugs)
    return bugs_of_mistakes


def _make_bugs(task: Code, edits: list[Edit]) -> Iterator[Bug]:
    """Yield a bug for each edit that changes a single line, if the changed line is short."""
    right = rename_function(task, task.solution)
    for edit in edits:
        wrong = rename_function(task, edit.of(task.solution))
        if wrong.count("\n") != right.count("\n"):
            continue
        line_pairs = zip(right.splitlines(), wrong.splitlines(), strict=True)
        changed = [(i, a, b) for i, (a, b) in enumerate(line_pairs, start=1) if a != b]
        if len(changed) != 1:
            continue
        number, right_line, wrong_line = changed[0]
        if len(wrong_line) <= LINE:  # A longer line would show at once that it is the wrong line.
            yield Bug(wrong, number, right_line.strip())


def rename_function(task: Code, text: str) -> str:
    """Rename the last function of a text to the name that the checker expects."""
    before, _, last_function = f"\n{text.strip()}\n".rpartition("\ndef ")
    _, _, after_name = last_function.partition("(")
    return f"{before}\ndef {task.name}({after_name}".lstrip("\n")


def find_code_exercise(exercise_id: str) -> tuple[Code, str]:
    """Return an exercise that asks for a function, and the student's name in the id.

    Raises ValueError if the exercise does not ask for a function.
    """
    task, name = find_exercise(exercise_id)
    if not isinstance(task, Code):
        raise ValueError(f"{task.id} asks for no function; those that do are 'code' in list_exercises()")
    return task, name


def write_exercise(task: Code, name: str) -> str:
    """Return the text for the student: the task as a comment, the imports, and the wrong function."""
    bug = draw_bug(task, name)
    request = "One line below is wrong. Find the line and correct it. This call checks your correction:"
    quoted_id = json.dumps(f"{task.id}@{name}".rstrip("@"), ensure_ascii=False)
    comments = [
        *textwrap.wrap(f"{task.id}: {task.task}", LINE - 2),
        *textwrap.wrap(request, LINE - 2),
        f"find_the_bug({quoted_id}, {task.name})",
    ]
    lines = [f"# {comment}" for comment in comments]
    imports = ["import math", "import numpy as np"] if "math." in bug.text else ["import numpy as np"]
    lines += [*imports, "", "", bug.text.rstrip()]
    return "\n".join(lines)


def check_corrected(exercise_id: str, corrected: Any, level: int) -> Result:
    """Check a corrected function or its text.

    If the function still has the original bug, the result says only that. Further details would reveal the
    bug.
    """
    task, _ = find_code_exercise(exercise_id)
    function = corrected
    if isinstance(corrected, str):
        try:
            function = compile_function(corrected)
        except Exception as error:
            finding = make_finding("text_stopped", error=type(error).__name__, message=str(error))
            return make_result(report_problem(task, finding), level)
    if callable(function) and _has_original_bug(exercise_id, function):
        verdict = Verdict(task.id, "unrecognised", (make_finding("unmended"),), (), task.probe.outputs, ())
        return make_result(verdict, level)
    return check(exercise_id, function, level=level)


def _has_original_bug(exercise_id: str, function: Any) -> bool:
    """Return whether a function returns the same numbers as the wrong function that the student received."""
    task, name = find_code_exercise(exercise_id)
    original = compile_function(draw_bug(task, name).text)
    pairs = zip(run_calls(task, function), run_calls(task, original), strict=True)
    return all(are_identical(a, b) for a, b in pairs)
