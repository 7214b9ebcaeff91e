"""Exercises on position tables, feed-forward networks and blocks, and a checker that names the mistake.

from npformer.exercises import check, find_the_bug, show

show("pe.entry@Ada")                # Ada's own numbers; without a name, the standard ones
check("pe.entry@Ada", 0.841)        # the answer; level=2 says what was seen, level=3 asks
find_the_bug("block.forward@Ada")   # a function with one wrong line, to be mended
"""

from typing import Any

from npformer.exercises import find_the_bug as bugs
from npformer.exercises.bank import bank, find
from npformer.exercises.checker import check
from npformer.exercises.result import Result, progress
from npformer.exercises.task import Task

__all__ = ["Result", "check", "find_the_bug", "hint", "list_exercises", "progress", "show"]


class Exercises(tuple[Task, ...]):
    """The bank in order of difficulty; a table when printed."""

    def __repr__(self) -> str:
        width = max(len(exercise.id) for exercise in self)
        return "\n".join(f"{e.id:{width}}  {e.level}  {e.kind:7} {e.topic}" for e in self)


class Text(str):
    """Text that shows its lines in a notebook too."""

    def __repr__(self) -> str:
        return str(self)


def list_exercises() -> Exercises:
    """Every exercise of the bank, the easy ones first.

    >>> list_exercises()[0].id
    'order.bag'
    """
    return Exercises(bank().values())


def show(exercise_id: str) -> Text:
    """The task, with a student's own numbers after an @.

    Raises ValueError for an exercise that the bank does not have.

    >>> show("pe.entry")
    pe.entry  (sinusoids, level 2)
    The position table has d_model = 8. What stands at position 23 in column 3?
    (Columns are counted from 0, angles are in radians.) Three decimals.
    Answer with a number.
    """
    task, name = find(exercise_id)
    return Text(task.told(name))


def hint(exercise_id: str) -> Text:
    """A nudge, and the section to read.

    >>> hint("pe.entry")
    Find the pair first: i = j // 2. The angle is p / 10000^(2i/d_model).
    Read "Attention Is All You Need", section 3.5.
    """
    task, _ = find(exercise_id)
    return Text(f"{task.hint}\nRead {task.read}.")


def find_the_bug(exercise_id: str, mended: Any = None, *, level: int = 1) -> Text | Result:
    """A function in which one line is not right; or, of a mended one, what the checker says.

    The line is one of the mistakes that the exercise knows, drawn for the name after an @. `mended` is the
    function or its text. Levels are those of `check`.

    Raises ValueError for an exercise that the bank does not have, or that asks for no function.

    >>> text = find_the_bug("softmax.backward@Ada")
    >>> print(text[text.index("def ") :])
    def softmax_backward(dp, p):
        return p * dp * (1 - p)
    >>> find_the_bug("softmax.backward@Ada", text).findings[0].kind
    'unmended'
    """
    task, name = bugs.code_of(exercise_id)
    return Text(bugs.told(task, name)) if mended is None else bugs.check_mended(exercise_id, mended, level)
