"""The bank of all exercises. Each topic has its own file, and the files are in the order of the lessons.

The files of the bank use these terms:

- Solution: the correct function, stored as text.
- Call: the arguments with which the checker runs the student's function and the solution.
- Fresh call: a further random call. The checker reports a mistake only if the fresh calls confirm it.
- Edit: a replacement in the text of the solution. It makes a mutant: a wrong function with a listed mistake.
- Code of a mistake: the name under which mistakes.md describes the mistake.
- Detector: a function that examines wrong results. It returns a finding (a fact about the results) or None.
- Landmark: an intermediate result of the solution, or a related array, that a wrong function may return.
- Direction: an array that a wrong function may add to the correct result, or multiply the result by.
- Derived call: a call with changed arguments, so that the returned value shows an intermediate result.
- View: the rule that makes derived calls. For example, a view replaces v by the identity matrix, so that
  attention returns its weights.
"""

from difflib import get_close_matches
from functools import cache
from importlib import import_module

from npformer.exercises.bank.questions import choice_exercises
from npformer.exercises.task import Task

MODULES = (  # in the order of the lessons
    "positions", "rope", "embedding", "feed_forward", "softmax", "attention", "layer_norm", "block",
    "loss", "optim", "modern", "sampling", "in_numbers", "port", "post_training",
)
TOPICS = [import_module(f"{__name__}.{module}") for module in MODULES]


@cache
def bank() -> dict[str, Task]:
    """Return every exercise by its id, sorted by level and then by lesson."""
    tasks: list[Task] = [*choice_exercises()]
    for topic in TOPICS:
        tasks += [value for value in vars(topic).values() if isinstance(value, Task)]
    tasks.sort(key=lambda task: (task.level, task.teach))
    return {task.id: task for task in tasks}


def find_exercise(exercise_id: str) -> tuple[Task, str]:
    """Return the exercise with an id such as "pe.entry" or "pe.entry@Ada", and the student's name in the id.

    Raises TypeError if the id is not a string, and ValueError if the bank has no such exercise.
    """
    if not isinstance(exercise_id, str):
        raise TypeError(f"exercise_id is {exercise_id!r}; expected text such as 'pe.table'")
    plain, _, student = exercise_id.partition("@")
    if plain not in bank():
        similar_ids = get_close_matches(plain.casefold(), bank(), 1)
        suggestion = f"did you mean {similar_ids[0]!r}? " if similar_ids else ""
        where_to_look = "list_exercises() shows all, in a terminal npformer exercises"
        raise ValueError(f"there is no exercise {plain!r}; {suggestion}{where_to_look}")
    return bank()[plain], student.strip()
