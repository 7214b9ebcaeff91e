"""The page that lists the exercises of the bank: what is asked, how hard, where it is taught. No answers."""

from pathlib import Path

from npformer.exercises import list_exercises, show
from npformer.exercises.bank import bank

LESSONS = Path(__file__).resolve().parents[2] / "notebooks"
OPENING = """\
# The exercises

{count} exercises. Each stands in the [exercise notebook](../lessons/exercises.ipynb) with its hint and a cell
to answer it in; `check(ID, answer)` replies with what is right about an answer and what was seen in it, and
never tells the solution. Level 1 is a minute, level 5 a whole backward pass. In a terminal:
`uv run npformer exercises`, `uv run npformer show ID`.
"""
SHORT = {"ffn": "Feed-forward", "gpu": "GPU"}  # topics that are no words
HEAD = "| exercise | kind | level | task | taught in |\n|---|---|---:|---|---|\n"


def exercise_list() -> str:
    """The page, a table for each topic."""
    topics = dict.fromkeys(task.topic for task in bank().values())
    tables = [
        f"## {SHORT.get(topic, topic.capitalize())}\n\n{HEAD}{''.join(rows(topic))}" for topic in topics
    ]
    return "\n".join([OPENING.format(count=len(bank())), *tables])


def rows(topic: str) -> list[str]:
    return [
        f"| `{e.id}` | {e.kind} | {e.level} | {cell(task(e.id))} | {taught(e.teach)} |\n"
        for e in list_exercises()
        if e.topic == topic
    ]


def task(exercise_id: str) -> str:
    """What is asked, with numbers filled in: all of what `show` says, but for its first and last lines."""
    return " ".join(str(show(exercise_id)).splitlines()[1:-1])


def taught(where: str) -> str:
    """ "04, section 4.6, Heads" as a link to the lesson."""
    number, _, section = where.partition(", ")
    pages = sorted(LESSONS.glob(f"{number}_*.ipynb"))
    return f"[{cell(section)}](../lessons/{pages[0].name})" if pages else cell(where)


def cell(words: str) -> str:
    """Text that means itself in a cell of a Markdown table."""
    for mark in "\\`*_[]<>|$":
        words = words.replace(mark, "\\" + mark)
    return words
