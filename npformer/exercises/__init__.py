"""Exercises on the parts of a Transformer, and a checker that names the likely mistake.

Show an exercise, check an answer, and look for the wrong line of a function::

    from npformer.exercises import check, find_the_bug, show

    show("pe.entry@Ada")                # Ada's own numbers; without a name, the standard numbers
    check("pe.entry@Ada", 0.841)        # level=2 adds the likely cause, level=3 what to read
    find_the_bug("block.forward@Ada")   # a function in which one line is wrong
"""

from typing import Any

from npformer.exercises import find_the_bug as bugs
from npformer.exercises.bank import bank, find_exercise
from npformer.exercises.checker import check
from npformer.exercises.result import Result, progress
from npformer.exercises.task import Task

__all__ = ["Result", "check", "find_the_bug", "hint", "list_exercises", "progress", "show"]


class Exercises(tuple[Task, ...]):
    """All exercises of the bank, sorted by level. The object prints as a table."""

    def __repr__(self) -> str:
        width = max(len(exercise.id) for exercise in self)
        rows = [f"{task.id:{width}}  {task.level}  {task.kind:7} {task.topic}" for task in self]
        return "\n".join(rows)


class Text(str):
    """A string that a notebook displays without quotes and with its line breaks."""

    def __repr__(self) -> str:
        return str(self)


def list_exercises() -> Exercises:
    """Return every exercise of the bank, sorted by level.

    Returns
    -------
    exercises : tuple of tasks
        The tuple prints as a table with the id, the level (1 to 5), the kind of answer and the topic.

    Examples
    --------
    >>> list_exercises()[0].id
    'order.bag'
    """
    return Exercises(bank().values())


def show(exercise_id: str) -> Text:
    """Return the text of an exercise.

    Parameters
    ----------
    exercise_id : str
        The id of an exercise, such as "pe.entry". With "pe.entry@Ada" the text has Ada's own numbers.

    Returns
    -------
    text : str

    Raises
    ------
    ValueError
        If the bank has no exercise with this id.

    Examples
    --------
    >>> show("pe.entry")
    pe.entry  (sinusoids, level 2)
    The position table has d_model = 8. What is the entry at position 23, column 3?
    (Columns are counted from 0, angles are in radians.) Three decimals.
    Answer with a number.
    """
    task, name = find_exercise(exercise_id)
    return Text(task.text(name))


def hint(exercise_id: str) -> Text:
    """Return a hint for an exercise, and the lesson or paper to read.

    Parameters
    ----------
    exercise_id : str
        The id of an exercise. A student's name after an @ makes no difference.

    Returns
    -------
    text : str

    Raises
    ------
    ValueError
        If the bank has no exercise with this id.

    Examples
    --------
    >>> hint("pe.entry")
    Find the pair first: i = j // 2. The angle is p / 10000^(2i/d_model).
    Read "Attention Is All You Need", section 3.5.
    """
    task, _ = find_exercise(exercise_id)
    return Text(f"{task.hint}\nRead {task.read}.")


def find_the_bug(exercise_id: str, mended: Any = None, *, level: int = 1) -> Text | Result:
    """Return a function in which one line is wrong, or check a corrected function.

    The wrong line contains a listed mistake of the exercise. The student's name decides which mistake.

    Parameters
    ----------
    exercise_id : str
        The id of an exercise that asks for a function. It may end in @ and a student's name.
    mended : callable or str, optional
        The corrected function, or its text.
    level : 1, 2 or 3
        How much the feedback says, as in ``check``.

    Returns
    -------
    text : str
        The text of the function, if ``mended`` is None. It can be saved as a file and run.
    result : Result
        The result of the check, if ``mended`` is given. A function that is still wrong in the same way gets a
        finding of the kind "unmended".

    Raises
    ------
    ValueError
        If the bank has no exercise with this id, or if the exercise does not ask for a function.

    Examples
    --------
    >>> text = find_the_bug("softmax.backward@Ada")
    >>> print(text[text.index("def ") :])
    def softmax_backward(dp, p):
        return p * dp * (1 - p)
    >>> find_the_bug("softmax.backward@Ada", text).findings[0].kind
    'unmended'
    """
    if mended is not None:
        return bugs.check_corrected(exercise_id, mended, level)
    task, name = bugs.find_code_exercise(exercise_id)
    return Text(bugs.write_exercise(task, name))
