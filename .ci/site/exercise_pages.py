"""Write the page that lists every exercise with its task, its level and its lesson, but without answers."""

from pathlib import Path

from npformer.exercises import list_exercises
from npformer.exercises.bank import bank, find_exercise

LESSONS = Path(__file__).resolve().parents[2] / "notebooks"
OPENING = """\
# The exercises

{count} exercises. Each stands in the [exercise notebook](../lessons/exercises.ipynb) with its hint and a cell
to answer it in; `check(ID, answer)` replies with what is right about an answer and what was seen in it, and
never tells the solution. Level 1 is a minute, level 5 a whole backward pass. In a terminal:
`uv run npformer exercises`, `uv run npformer show ID`.
"""
SHORT = {"ffn": "Feed-forward", "gpu": "GPU"}  # the headings of topics that are abbreviations
HEAD = "| exercise | kind | level | task | taught in |\n|---|---|---:|---|---|\n"


def exercise_list() -> str:
    """Return the page, with one table per topic."""
    topics = dict.fromkeys(task.topic for task in bank().values())
    tables = [
        f"## {SHORT.get(topic, topic.capitalize())}\n\n{HEAD}{''.join(rows(topic))}" for topic in topics
    ]
    return "\n".join([OPENING.format(count=len(bank())), *tables])


def rows(topic: str) -> list[str]:
    """Return the table rows of a topic."""
    return [
        f"| `{e.id}` | {e.kind} | {e.level} | {escape(task(e.id))} | {link_to_lesson(e.teach)} |\n"
        for e in list_exercises()
        if e.topic == topic
    ]


def task(exercise_id: str) -> str:
    """Return the task text with its numbers, without the title and the form of the answer."""
    exercise, name = find_exercise(exercise_id)
    return " ".join(exercise.lines(name))


def link_to_lesson(where: str) -> str:
    """Turn "04, section 4.6, Heads" into a link to the lesson."""
    number, _, section = where.partition(", ")
    pages = sorted(LESSONS.glob(f"{number}_*.ipynb"))
    return f"[{escape(section)}](../lessons/{pages[0].name})" if pages else escape(where)


def escape(text: str) -> str:
    """Escape the characters that Markdown would read as markup in a table."""
    for character in "\\`*_[]<>|$":
        text = text.replace(character, "\\" + character)
    return text
