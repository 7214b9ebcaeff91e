"""The topics, one file each, in the order of the lessons; and the bank: every exercise of all of them."""

from difflib import get_close_matches
from functools import cache
from importlib import import_module

from npformer.exercises.bank.questions import ticked
from npformer.exercises.task import Task

NAMES = (  # in the order of the lessons
    "positions rope embedding feed_forward softmax attention layer_norm block loss optim modern sampling "
    "in_numbers port"
)
TOPICS = [import_module(f"{__name__}.{name}") for name in NAMES.split()]


@cache
def bank() -> dict[str, Task]:
    """Every exercise by its id, the easy ones first, in the order of the lessons."""
    defined = (thing for topic in TOPICS for thing in vars(topic).values() if isinstance(thing, Task))
    tasks = sorted([*ticked(), *defined], key=lambda task: (task.level, task.teach))
    return {task.id: task for task in tasks}


def find(exercise_id: str) -> tuple[Task, str]:
    """The exercise and the student's name of an id such as "pe.entry" or "pe.entry@Ada".

    Raises TypeError unless the id is text, ValueError for one that the bank does not have.
    """
    if not isinstance(exercise_id, str):
        raise TypeError(f"exercise_id is {exercise_id!r}; expected text such as 'pe.table'")
    plain, _, name = exercise_id.partition("@")
    if plain not in bank():
        others = get_close_matches(plain.casefold(), bank(), 1)
        near = "".join(f"did you mean {other!r}? " for other in others)
        shown = "list_exercises() shows all, in a terminal npformer exercises"
        raise ValueError(f"there is no exercise {plain!r}; {near}{shown}")
    return bank()[plain], name.strip()
