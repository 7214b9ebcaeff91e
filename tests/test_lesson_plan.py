"""Compare the lesson plan and the wrong guesses, which are data, with the lessons and the pages made of them.

NPFORMER_REWRITE=1 uv run pytest tests/test_lesson_plan.py writes the pages.
"""

import os
from pathlib import Path

from plan_pages import make_guesses_page, with_plan
from test_classroom import LESSONS

from npformer.lessons.plan import Guess, Plan, Question, read_guesses, read_plan
from npformer.lessons.predictions import answers

FOLDER = Path(__file__).parents[1] / "notebooks"
NUMBERS = [int(path.name[:2]) for path in LESSONS]


def compare_page(path, text):
    if os.environ.get("NPFORMER_REWRITE") == "1":
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def test_each_prediction_has_two_wrong_guesses():
    guesses = read_guesses()
    ids = [id for number in NUMBERS for id in answers(number)]
    assert sorted(guesses) == sorted(ids)
    for id, pair in guesses.items():
        assert len(pair) == 2 and pair[0].guess != pair[1].guess, id
        assert all(len(text) > 5 for guess in pair for text in guess), id
        assert all(guess.ask.endswith("?") for guess in pair), id


def test_each_lesson_has_minutes_a_break_and_questions():
    for number in NUMBERS:
        plan = read_plan(number)
        assert list(plan.minutes) == [f"{number}.{i}" for i in range(1, len(plan.minutes) + 1)]
        assert all(1 <= value <= 20 for value in plan.minutes.values())
        assert plan.break_after in plan.minutes
        assert plan.questions and all("?" in asked and answer for asked, answer in plan.questions)


def test_a_lesson_without_a_plan_has_no_minutes():
    assert read_plan(99) == Plan({}, "", ())


def test_guesses_page_contains_all_guesses():
    page = make_guesses_page(read_guesses(), {number: answers(number) for number in NUMBERS})
    compare_page(FOLDER / "guide" / "guesses.md", page)


def test_lesson_plan_page_contains_minutes_and_questions():
    path = FOLDER / "README.md"
    plans = {number: read_plan(number) for number in NUMBERS}
    compare_page(path, with_plan(path.read_text(encoding="utf-8"), plans))


def test_with_plan_replaces_the_rows():
    rows = "| 7 | old |\n| 8 | old |\n"
    plan = Plan({"7.1": 5, "7.2": 6, "7.3": 4}, "7.2", (Question("Why?", "Because."),))
    minutes = "| lesson | section and **minutes** |\n|---|---|\n"
    questions = "| lesson | question | answer |\n|---|---|---|\n"
    text = f"Before.\n\n{minutes}{rows}\nBetween.\n\n{questions}{rows}\nAfter.\n"
    assert with_plan(text, {7: plan}) == (
        f"Before.\n\n{minutes}| 07 | 7.1 **5** · 7.2 **6** ‖ 7.3 **4** |\n\n"
        f"Between.\n\n{questions}| 7 | Why? | Because. |\n\nAfter.\n"
    )


def test_make_guesses_page_keeps_the_order():
    guesses = {"1.1b": [Guess("b", "bb", "b?")], "1.1a": [Guess("a", "aa", "a?")]}
    lines = make_guesses_page(guesses, {1: ["1.1a", "1.1b"]}).splitlines()
    assert lines[4:] == [
        "## Lesson 1", "",
        "- **1.1a** guess: a — shows: aa — ask: a?", "- **1.1b** guess: b — shows: bb — ask: b?",
    ]  # fmt: skip
