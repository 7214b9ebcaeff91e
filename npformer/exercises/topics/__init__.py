"""The topics, one file each, in the order of the lessons; and the bank: every exercise of all of them."""

from difflib import get_close_matches
from functools import cache
from types import ModuleType

from npformer.exercises.task import MUTATES, NPFORMERS_OWN, Mistake, Task
from npformer.exercises.topics import (
    attention,
    block,
    costs,
    decoder,
    embedding,
    feed_forward,
    layer_norm,
    loss,
    modern,
    optim,
    order,
    port,
    positions,
    rope,
    sampling,
    search_and_gpu,
    softmax,
)

TOPICS: tuple[ModuleType, ...] = (
    positions,
    rope,
    embedding,
    order,
    feed_forward,
    softmax,
    attention,
    layer_norm,
    block,
    costs,
    loss,
    decoder,
    optim,
    modern,
    sampling,
    search_and_gpu,
    port,
)


@cache
def bank() -> dict[str, Task]:
    """Every exercise by its id, the easy ones first, in the order of the lessons."""
    found = [thing for topic in TOPICS for thing in vars(topic).values() if isinstance(thing, Task)]
    return {task.id: task for task in sorted(found, key=lambda task: (task.level, task.teach))}


@cache
def words() -> dict[str, Mistake]:
    """Every mistake by its code."""
    found = [thing for topic in TOPICS for thing in vars(topic).values() if isinstance(thing, Mistake)]
    return {mistake.code: mistake for mistake in (*found, MUTATES, NPFORMERS_OWN)}


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
