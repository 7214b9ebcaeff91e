"""Find the bug: a right function with one line made wrong by a listed mistake, drawn for a student's name."""

import json
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from npformer.exercises.bank import find
from npformer.exercises.checker import check, problem
from npformer.exercises.detectors import outcomes
from npformer.exercises.probe import identical
from npformer.exercises.result import Result, make_result
from npformer.exercises.task import LINE, Code, Edit, compiled, generator
from npformer.exercises.verdict import Verdict
from npformer.exercises.verdict import find as make_finding


class Bug(NamedTuple):
    """A function with one wrong line, and what that line should be."""

    text: str
    line: int  # counted from 1
    right: str

    def mended(self) -> str:
        """The text with the line as it should be."""
        lines = self.text.splitlines()
        wrong = lines[self.line - 1]
        lines[self.line - 1] = wrong[: len(wrong) - len(wrong.lstrip())] + self.right
        return "\n".join(lines) + "\n"


def bug_of(task: Code, name: str = "") -> Bug:
    """The one that belongs to a name: every mistake is as likely; without a name the first."""
    mistakes = _bugs(task)
    if not name:
        return mistakes[0][0]
    rng = generator(f"bug of {task.id}@{name.casefold()}")
    forms = mistakes[int(rng.integers(len(mistakes)))]
    return forms[int(rng.integers(len(forms)))]


@cache
def _bugs(task: Code) -> list[list[Bug]]:
    """The forms of each mistake that changes the numbers and stands in one line."""
    wrong = (edits for mistake, edits in task.mistakes.items() if mistake.kind == "wrong")
    return [forms for edits in wrong if (forms := list(_in_one_line(task, edits)))]


def _in_one_line(task: Code, edits: list[Edit]) -> Iterator[Bug]:
    right = under_its_name(task, task.solution)
    for edit in edits:
        text = under_its_name(task, edit.of(task.solution))
        pairs = list(zip(right.splitlines(), text.splitlines(), strict=False))
        differ = [i for i, (a, b) in enumerate(pairs) if a != b]
        alike = len(differ) == 1 and text.count("\n") == right.count("\n")
        if alike and len(pairs[differ[0]][1]) <= LINE:  # a longer line would show itself
            yield Bug(text, differ[0] + 1, pairs[differ[0]][0].strip())


def under_its_name(task: Code, text: str) -> str:
    """The text, its last function under the name that the checker looks for."""
    before, _, last = f"\n{text.strip()}\n".rpartition("\ndef ")
    return f"{before}\ndef {task.name}({last.partition('(')[2]}".lstrip("\n")


def code_of(exercise_id: str) -> tuple[Code, str]:
    """An exercise that asks for a function, and the student's name. Raises ValueError for another."""
    task, name = find(exercise_id)
    if not isinstance(task, Code):
        raise ValueError(f"{task.id} asks for no function; those that do are 'code' in list_exercises()")
    return task, name


def told(task: Code, name: str) -> str:
    """The text as it is handed out: it can be run, mended, and checked as a file."""
    bug, asked = bug_of(task, name), json.dumps(f"{task.id}@{name}".rstrip("@"), ensure_ascii=False)
    ask = "One line below is not right. Find it and mend it; this says whether it is right now:"
    said = [*textwrap.wrap(f"{task.id}: {task.task}", LINE - 2), *textwrap.wrap(ask, LINE - 2)]
    said.append(f"find_the_bug({asked}, {task.name})")
    imports = "import math\n" * ("math." in bug.text) + "import numpy as np"
    return "\n".join([*(f"# {line}" for line in said), imports, "\n", bug.text.rstrip()])


def check_mended(exercise_id: str, mended: Any, level: int) -> Result:
    """Check a mended function or its text; of one that is as it was handed out, only that is reported."""
    task, _ = code_of(exercise_id)
    try:
        function = compiled(mended) if isinstance(mended, str) else mended
    except Exception as error:
        finding = make_finding("text_stopped", error=type(error).__name__, message=str(error))
        return make_result(problem(task, finding), level)
    if callable(function) and _is_unmended(exercise_id, function):
        verdict = Verdict(task.id, "unrecognised", (make_finding("unmended"),), (), task.probe.outputs, ())
        return make_result(verdict, level)
    return check(exercise_id, function, level=level)


def _is_unmended(exercise_id: str, function: Any) -> bool:
    """Whether a function gives the same numbers as the text that was handed out."""
    task, name = code_of(exercise_id)
    handed_out = outcomes(task, compiled(bug_of(task, name).text))
    return all(map(identical, outcomes(task, function), handed_out))
