"""Find the notebooks, titles and paragraphs of lessons and sections, given by their numbers."""

import json
import re

from scaffolds.files import ROOT, CannotCreate

EXERCISES = "Exercises"  # the title of the last section of every lesson
SUMMARY = "## What you learned\n"  # the heading of the summary, which is directly before the exercises


def section_number(text):
    """Convert "07.2" or "7.2" to (7, 2)."""
    found = re.fullmatch(r"(\d{1,2})\.(\d{1,2})", text)
    if not found:
        raise CannotCreate(f"{text!r} is no number of a section; expected one such as 07.2")
    return int(found[1]), int(found[2])


def lesson_path(lesson):
    """Return the path of a lesson's notebook, such as "notebooks/07_decoder.ipynb"."""
    found = sorted((ROOT / "notebooks").glob(f"{lesson:02}_*.ipynb"))
    if not found:
        raise CannotCreate(f"there is no lesson {lesson:02} in notebooks")
    return str(found[0].relative_to(ROOT))


def source_of(cell):
    """Return the text of a notebook's cell."""
    return "".join(cell["source"])


def titles_of(lesson):
    """Return {number: title} for the sections of a lesson."""
    notebook = json.loads((ROOT / lesson_path(lesson)).read_text(encoding="utf-8"))
    text = "\n".join(source_of(cell) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    headings = re.findall(rf"^## {lesson}\.(\d+) (.*)$", text, re.MULTILINE)
    return {int(number): title for number, title in headings}


def title_of(lesson, number):
    """Return a section's title; raise CannotCreate if the lesson does not have the section."""
    titles = titles_of(lesson)
    if number not in titles:
        last = f"{lesson}.{max(titles)}"
        raise CannotCreate(f"lesson {lesson:02} has no section {lesson}.{number}; the last is {last}")
    return titles[number]


def with_paragraph(text, lesson, number, paragraph):
    """Return the text of questions.md or mistakes.md with one more paragraph for a section.

    Each part of these files begins with a heading such as "# 07, section 7.2, Teacher forcing". If a
    section has no part, a new part is inserted in the order of the lessons.
    """
    introduction, *parts = re.split(r"^(?=# \d\d, section )", text, flags=re.MULTILINE)
    numbers = [part_number(part) for part in parts]
    if (lesson, number) in numbers:
        last = len(numbers) - 1 - numbers[::-1].index((lesson, number))
        parts[last] = f"{parts[last].rstrip()}\n\n{paragraph.strip()}\n\n"
    else:
        heading = f"# {lesson:02}, section {lesson}.{number}, {title_of(lesson, number)}"
        reference = f"Read lesson {lesson:02}, section {lesson}.{number}."
        index = sum(earlier < (lesson, number) for earlier in numbers)
        parts.insert(index, f"{heading}\n\n{reference}\n\n{paragraph.strip()}\n\n")
    return introduction + "".join(parts).rstrip() + "\n"


def part_number(part):
    """Return (lesson, section), such as (7, 2) for a part that begins with "# 07, section 7.2, …"."""
    lesson, number = re.match(r"# \d\d, section (\d+)\.(\d+)", part).groups()
    return int(lesson), int(number)
