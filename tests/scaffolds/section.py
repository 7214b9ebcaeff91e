"""Create a new section of a lesson: cells, an answer, two wrong guesses, minutes in the lesson plan."""

import json
import re

from scaffolds.files import CannotCreate, filled, print_steps, read, replaced_once, write_all
from scaffolds.sections import EXERCISES, SUMMARY, lesson_path, section_number, source_of, titles_of

PAGE = "notebooks/README.md"
PLAN = "npformer/lessons/plan.toml"
GUESSES = "npformer/lessons/guesses.toml"
BANK = "npformer/exercises/bank"
MINUTES = 5  # the minutes that the lesson plan gives to a new section

HEADING = "## <section> <title>\n\nMISSING: write the text of this section."
QUESTION = "**Predict.** MISSING: write the question."
CODE = '# MISSING: compute what the question asks for\nreveal("<id>")'
ANSWER = "\n## <id>\n\nMISSING: write the answer.\n"
TWO_GUESSES = """
[["<id>"]]
guess = "MISSING: a wrong guess."
shows = "The student thinks …"
ask = "a question?"

[["<id>"]]
guess = "MISSING: another wrong guess."
shows = "The student thinks …"
ask = "a question?"
"""


def new_cells(section, title, answer):
    """Return the cells of the section: a heading with text, a question, and code that reveals the answer."""
    name = section.replace(".", "-")
    text = filled(HEADING, section=section, title=title)
    slide = {"slide_type": "slide"}
    question = {"npformer": {"predict": answer, "title": f"{title}?"}, "slideshow": slide}
    code = {"npformer": {"reveal": answer, "title": title}, "slideshow": slide}
    return [
        cell_of("markdown", f"s-{name}", {"slideshow": {"slide_type": "skip"}}, text),
        cell_of("markdown", f"q-{name}a", question, filled(QUESTION)),
        cell_of("code", f"a-{name}a", code, filled(CODE, id=answer)),
    ]


def cell_of(kind, id, metadata, text):
    """Return a cell as a dict with the form of cells in notebook files."""
    cell = {"cell_type": kind, "id": id, "metadata": metadata, "source": text.splitlines(keepends=True)}
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return cell


def with_section(notebook, lesson, number, title):
    """Insert the section before the summary and the exercises. The section number of Exercises grows by 1."""
    old, new = f"## {lesson}.{number} {EXERCISES}", f"## {lesson}.{number + 1} {EXERCISES}"
    cells = []
    for cell in notebook["cells"]:
        text = source_of(cell)
        if old not in text or cell["cell_type"] != "markdown":
            cells.append(cell)
            continue
        before, end = split_at_end_of_lesson(text, old)
        if before:
            cells.append({**cell, "source": lines_of(before), "id": f"before-{lesson}-{number}"})
        cells += new_cells(f"{lesson}.{number}", title, f"{lesson}.{number}a")
        cells.append({**cell, "source": lines_of(end.replace(old, new))})
    return {**notebook, "cells": cells}


def split_at_end_of_lesson(text, exercises):
    """Split a text before the summary of the lesson, or before the exercises if it has no summary."""
    heading = SUMMARY if SUMMARY in text else exercises
    before, heading, after = text.partition(heading)
    return before.rstrip(), heading + after


def lines_of(text):
    """Return the lines of a text, each with its newline, as notebook files contain them."""
    return text.splitlines(keepends=True)


def has_code(notebook, lesson, number):
    """Return whether a section has a code cell; the section ends at the next section's heading."""
    is_inside = False
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code" and is_inside:
            return True
        if cell["cell_type"] == "markdown":
            headings = re.findall(rf"^## {lesson}\.(\d+) ", source_of(cell), re.MULTILINE)
            is_inside = int(headings[-1]) == number if headings else is_inside
    return False


def steps_for_text_before(notebook, lesson, number):
    """Return a step for the author if the section before the new one has no code cell."""
    if has_code(notebook, lesson, number - 1):
        return []
    return [
        f"Section {lesson}.{number - 1} has no code cell, so its text and the new text count as one text. "
        f"It has at most 120 words: add a code cell to section {lesson}.{number - 1}, or shorten the texts."
    ]


def with_guesses(text, lesson, answer):
    """Return the text of guesses.toml with two more guesses, before the guesses of the next lesson."""
    new = filled(TWO_GUESSES, id=answer)
    before, next_lesson, after = text.partition(f'\n[["{lesson + 1}.1a"]]\n')
    return before.rstrip() + "\n" + new + next_lesson + after


def with_minutes(text, lesson, number):
    """Return the text of plan.toml with the minutes of the new section."""
    previous = re.search(rf'^"{lesson}\.{number - 1}" = \d+$', text, re.MULTILINE)
    if not previous:
        raise CannotCreate(f"{PLAN} has no minutes of section {lesson}.{number - 1}")
    return replaced_once(text, previous[0], f'{previous[0]}\n"{lesson}.{number}" = {MINUTES}', PLAN)


def with_new_number_of_exercises(text, lesson, number):
    """Return a bank file's text in which the section number of Exercises is increased by 1."""
    old = f"section {lesson}.{number}, {EXERCISES}"
    return text.replace(old, f"section {lesson}.{number + 1}, {EXERCISES}")


def create_section(section, title):
    """Create the last section before the exercises: cells, an answer, guesses, minutes in the plan."""
    lesson, number = section_number(section)
    path, titles = lesson_path(lesson), titles_of(lesson)
    (exercises,) = [other for other, words in titles.items() if words == EXERCISES]
    if number != exercises:
        taken = f"has the title {titles[number]!r}" if number in titles else "would leave a gap"
        raise CannotCreate(
            f"section {lesson}.{number} {taken}; a new section is the last one before the exercises, "
            f"which is {lesson:02}.{exercises}"
        )
    answer, answers = f"{lesson}.{number}a", f"npformer/lessons/answers/{lesson:02}.md"
    old_notebook = json.loads(read(path))
    notebook = with_section(old_notebook, lesson, number, title)
    texts = {
        path: json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n",
        answers: read(answers).rstrip() + "\n" + filled(ANSWER, id=answer),
        PLAN: with_minutes(read(PLAN), lesson, number),
        GUESSES: with_guesses(read(GUESSES), lesson, answer),
    }
    for name in (f"{BANK}/questions.md", f"{BANK}/mistakes.md"):
        text = with_new_number_of_exercises(read(name), lesson, number)
        if text != read(name):
            texts[name] = text
    write_all(texts)
    print_steps([
        f"Replace every mark in these files. The lesson's exercises are section {lesson}.{number + 1} now.",
        *steps_for_text_before(old_notebook, lesson, number),
        f"The plan gives the section {MINUTES} minutes. "
        f"Change the lesson's sum in its first cell, in {PAGE} and in README.md.",
        "`NPFORMER_REWRITE=1 uv run pytest tests/test_lesson_plan.py` writes the minutes and the guesses "
        "into their pages.",
        f"`NPFORMER_REWRITE=1 uv run pytest tests/test_notebooks.py -k {lesson:02}_` writes the outputs.",
        "A slide has at most 40 words, and two of three slides have a picture. Under `npformer` in the "
        "metadata of a cell, write `answer` or `stage` (a shorter answer or text for the slide), "
        "`drawn` (bars or squares: how printed numbers are drawn) and `where` (a regular expression: "
        "which numbers are drawn). npformer/handouts/slides.py explains all entries.",
        "`uv run pytest tests/test_project_rules.py tests/test_notebooks.py` and "
        "`uv run pytest tests/test_classroom.py tests/handouts/test_slides.py`: "
        "the failing tests say what is missing.",
    ])  # fmt: skip
