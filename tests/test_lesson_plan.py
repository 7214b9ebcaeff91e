"""Plan, lessons and README say the same about each lesson, and the plan's links lead somewhere."""

import json
import re
from pathlib import Path

import pytest

from npformer.exercises.topics import bank

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
PLAN = (FOLDER / "README.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
LESSONS = sorted(path.name for path in FOLDER.glob("[0-9]*.ipynb"))


def row_of(lesson, text):
    """The cells of the one table row that links to a lesson."""
    rows = [line for line in text.splitlines() if line.startswith("|") and f"{lesson})" in line]
    assert len(rows) == 1, f"{lesson} has {len(rows)} rows"
    return [cell.strip() for cell in rows[0].strip("|").split("|")]


def markdown_of(lesson):
    """The markdown cells of a lesson, from top to bottom."""
    cells = json.loads((FOLDER / lesson).read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]


def planned_sections(lesson):
    """From the row of minutes a section: {section: minutes}, and the section before the break."""
    number = lesson[:2]
    (row,) = [line for line in PLAN.splitlines() if re.match(rf"\| {number} \| {int(number)}\.1 ", line)]
    minutes = {section: int(m) for section, m in re.findall(r"(\d+\.\d+) \*\*(\d+)\*\*", row)}
    before = re.findall(r"(\d+\.\d+) \*\*\d+\*\* ‖", row)
    return minutes, before


def test_every_lesson_is_planned_and_no_other():
    assert sorted(re.findall(r"\((\w+\.ipynb)\)", PLAN)) == LESSONS


@pytest.mark.parametrize("lesson", LESSONS)
def test_plan_lesson_and_readme_agree(lesson):
    """On the minutes of each section and their sum, on the break, and on a programme of half the time."""
    _, _, minutes, exercises, pause, kept, *_ = row_of(lesson, PLAN)
    opening, *_ = markdown = markdown_of(lesson)
    opening = " ".join(opening.split())
    assert f"about {minutes} minutes, and {exercises} more for the exercises" in opening
    assert row_of(lesson, README)[-1] == f"{minutes} + {exercises}"
    planned, before = planned_sections(lesson)
    assert before == [pause]
    told = re.findall(r"after section (\d+\.\d+) is a good place for a break", opening)
    assert told in ([], [pause])
    sections = re.findall(r"^## (\d+\.\d+) (.*)$", "\n".join(markdown), flags=re.M)
    assert list(planned) == [number for number, title in sections if title != "Exercises"]
    assert sum(planned.values()) == int(minutes)
    assert 0.4 <= sum(planned[section] for section in kept.split(", ")) / int(minutes) <= 0.6
    assert re.search(rf"^\| {int(lesson[:2])} \| [^|]+\? ", PLAN, flags=re.M), "nobody asks a question"


def test_the_course_asks_each_exercise_once_and_behind_its_lesson():
    """Homework may come later than its lesson, and never before it."""
    text = (FOLDER / "guide" / "course.md").read_text(encoding="utf-8")
    weeks = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if re.match(r"\| \d+ ", line)
    ]
    asked, seen = [], set()
    for _, lesson, _, _, homework in weeks:
        seen |= {f"{int(number):02}" for number in re.findall(r"[Ll]esson (\d+)", lesson)}
        ids = re.findall(r"\w+\.\w+", homework)
        asked += ids
        assert {bank()[name].teach[:2] for name in ids} <= seen
    assert sorted(asked) == sorted(bank())
    assert seen == {lesson[:2] for lesson in LESSONS}
