"""Tests of the lessons for use in class: predictions have answers, cells are short, plan and README agree."""

import base64
import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest
from predicts import predicts

from npformer.exercises.bank import bank
from npformer.handouts.lesson_copies import get_entry, get_source
from npformer.lessons.plan import read_plan
from npformer.lessons.plots.style import read_captions
from npformer.lessons.predictions import QUESTION, answers

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
LESSONS = sorted(FOLDER.glob("[0-9]*.ipynb"))
PLAN, README, COURSE = (
    (ROOT / page).read_text(encoding="utf-8")
    for page in ("notebooks/README.md", "README.md", "notebooks/guide/course.md")
)
MOST_LINES = 15  # the largest number of lines of a code cell
MOST_WORDS = 120  # the largest number of words in an answer, or between two code cells

# The cells that reveal these answers print whether two computations agree (True or False), but the questions
# ask for something else. No other cell that reveals an answer may print a truth value: its code states the
# claim, so a reader would see the answer before the cell runs.
AGREEMENTS = {
    "2.3b", "2.4b", "2.8a", "3.2b", "3.7a", "3.8f", "4.4a", "4.4b", "4.4c", "4.5b", "4.6a", "4.6b",
    "4.8a", "4.9e", "5.4b", "5.5a", "8.2b", "8.9b", "8.10a", "9.3b", "10.6b",
}  # fmt: skip

per_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def cells_of(notebook, kind):
    """Return [(number from 1, cell, source), …] for the cells of one kind."""
    cells = enumerate(notebook["cells"], start=1)
    return [(number, cell, get_source(cell)) for number, cell in cells if cell["cell_type"] == kind]


def words_of(text):
    """Count the words of a text. An inline formula is one word.

    Tables, code, headings, displayed formulas and <details> are not counted.
    """
    text = re.sub(
        r"```.*?```|<details>.*?</details>|\$\$.*?\$\$|^\|[^\n]*$|^#[^\n]*$", " ", text, flags=re.S | re.M
    )
    return len(re.sub(r"\$[^$]+\$", "formula", text).split())


def glued(text):
    """Return the formulas next to a letter or digit, as in $d$x, because VS Code does not render them."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "`", text, flags=re.S)
    parts = re.split(r"(\$\$.*?\$\$|\$[^$]+\$)", text, flags=re.S)
    texts, formulas = parts[::2], parts[1::2]
    touching = []
    for before, formula, after in zip(texts[:-1], formulas, texts[1:], strict=True):
        if re.search(r"\w", before[-1:] + after[:1], re.ASCII):
            touching.append(formula)
    return touching


# --- cells --------------------------------------------------------------------------


def outputs_of(cell):
    """Return the outputs of a cell as one text, followed by the bytes of its pictures."""
    text = "".join("".join(part) for output in cell["outputs"] for part in output.get("data", {}).values())
    pictures = re.findall(r'base64,([^"]*)"', text)
    return text + "".join(base64.b64decode(picture).decode("latin-1") for picture in pictures)


def prints_a_verdict(cell):
    """Return whether a cell prints at least one truth value, and all its truth values are equal.

    A table with both values, such as "column 0 is right: True", "column 1 is right: False", is a result.
    """
    printed = "".join("".join(output.get("text", "")) for output in cell["outputs"])
    return len(set(re.findall(r"\b(True|False)\b", printed))) == 1


# {problem: function}. Each function gets a cell and its source, and returns whether the cell has the problem.
TEXT_PROBLEMS = {
    "a formula touches a letter or a digit": lambda cell, text: glued(text),
    "**Predict.** and the cell's metadata do not go together": (
        lambda cell, text: text.count(QUESTION) != bool(get_entry(cell, "predict"))
    ),
    "the question does not end its cell": lambda cell, text: "\n\n" in text.partition(QUESTION)[2].strip(),
    "tells to clear outputs: the reader's copy has none": lambda cell, text: "clear outputs" in text.lower(),
}
CODE_PROBLEMS = {
    "no code": lambda cell, text: not text,
    "longer than a slide": lambda cell, text: text.count("\n") >= 25,
    "wider than a slide": lambda cell, text: re.search(r".{101}", text),
    "an error, a warning or other text on stderr": lambda cell, text: any(
        o["output_type"] == "error" or o.get("name") == "stderr" for o in cell["outputs"]
    ),
    "a picture whose description gets lost": lambda cell, text: any(
        "image/png" in o.get("data", {}) for o in cell["outputs"]
    ),
    "a picture without alt text, or one that names its software": (
        lambda cell, text: re.search(r'<img (?!alt="[^"]*\w)|Software', outputs_of(cell))
    ),
    "an alt text in sight: it belongs into the figure": lambda cell, text: re.search(r"\balt=", text),
    "reveal() and the metadata do not go together, or it is not the last line": lambda cell, text: (
        re.findall(r"^reveal\(.*", text, re.M)
        != [f'reveal("{id}")' for id in [get_entry(cell, "reveal")] if id]
        or (get_entry(cell, "reveal") and not text.splitlines()[-1].startswith("reveal("))
    ),
}


@pytest.mark.parametrize("path", [*LESSONS, FOLDER / "exercises.ipynb"], ids=lambda path: path.stem)
def test_cells_have_no_problems(path):
    notebook = read(path)
    for kind, problems in (("markdown", TEXT_PROBLEMS), ("code", CODE_PROBLEMS)):
        for number, cell, text in cells_of(notebook, kind):
            found = [problem for problem, has_problem in problems.items() if has_problem(cell, text)]
            assert found == [], f"cell {number}"


def test_figures_are_numbered_in_order():
    """The text may refer to a figure of the same or of another lesson, so each number must exist."""
    shown, drawn, mentioned = [], [], set()
    for path in LESSONS:
        notebook = read(path)
        for _, cell, text in cells_of(notebook, "code"):
            drawn += re.findall(r'number="([\d.]+)"', text)
            shown += re.findall(r'<div class="caption">Figure ([\d.]+)\. ', outputs_of(cell))
        for _, _, text in cells_of(notebook, "markdown"):
            mentioned |= set(re.findall(r"\b[Ff]igures? (\d+\.\d+)", text))
    assert drawn == list(read_captions())
    counted = Counter()
    for number in drawn:
        lesson, _, count = number.partition(".")
        counted[lesson] += 1
        assert int(count) == counted[lesson], number
    assert set(shown) <= set(drawn) and len(shown) > 0.9 * len(drawn)
    assert mentioned <= set(drawn)


def test_every_picture_of_a_lesson_has_a_number():
    for path in LESSONS:
        for number, _, text in cells_of(read(path), "code"):
            assert text.count("picture(") == text.count('number="'), f"{path.stem}, cell {number}"


@pytest.mark.parametrize("path", [*LESSONS, FOLDER / "exercises.ipynb"], ids=lambda path: path.stem)
def test_sliders_have_a_static_figure_next_to_them(path):
    code = cells_of(read(path), "code")
    for before, (number, cell, text), after in zip(code, code[1:], code[2:], strict=False):
        has_picture = any("<img " in outputs_of(neighbour) for neighbour in (before[1], cell, after[1]))
        assert has_picture or "add_slider(" not in text, (
            f"cell {number}: a slider without a static figure beside it"
        )


# --- a lesson ---------------------------------------------------------------------------------------


@per_lesson
def test_lesson_has_an_answer_for_each_prediction(path):
    predictions, answers_of_lesson = predicts(read(path)), answers(int(path.name[:2]))
    asked = [prediction.id for prediction in predictions]
    revealed = [get_entry(cell, "reveal") for cell in read(path)["cells"] if get_entry(cell, "reveal")]
    assert len(asked) >= 5 and asked == revealed
    assert sorted(asked) == sorted(answers_of_lesson)
    assert not [id for id, text in answers_of_lesson.items() if glued(text)]


@per_lesson
def test_lesson_does_not_reveal_numbers_too_early(path):
    """The text before a question contains no new number of the answer.

    Numbers in the question and in the code of the answering cell are not new.
    """
    cells = read(path)["cells"]
    for predict in predicts(read(path)):
        assert predict.question
        assert 0 < words_of(predict.answer) <= MOST_WORDS, predict.id
        assert "**Answer" not in predict.answer and "#" not in predict.answer[:1]
        prose = get_source(cells[predict.cell - 1]).replace(predict.question, "")
        known = set(re.findall(r"\d[\d.,]*\d", predict.question + get_source(cells[predict.cell])))
        revealed = set(re.findall(r"\d[\d.,]{2,}\d", predict.answer)) - known
        assert not [number for number in revealed if number in prose], predict.id


def test_verdicts_are_below_the_answers():
    """The code of a printed claim shows the answer before it runs. So a claim follows the revealed answer."""
    revealing = [cell for path in LESSONS for cell in read(path)["cells"] if get_entry(cell, "reveal")]
    assert {get_entry(cell, "reveal") for cell in revealing if prints_a_verdict(cell)} == AGREEMENTS


@per_lesson
def test_lesson_has_short_texts_and_cells(path):
    between = None  # None before the first code cell, where texts may be long
    for cell in read(path)["cells"]:
        if cell["cell_type"] == "markdown":
            between = between if between is None else between + get_source(cell) + "\n\n"
            continue
        assert len(get_source(cell).splitlines()) <= MOST_LINES, get_source(cell)
        assert not between or words_of(between) <= MOST_WORDS or "Exercises\n" in between, between[:40]
        between = ""


def test_files_of_answers_belong_to_lessons():
    folder = ROOT / "npformer" / "lessons" / "answers"
    assert {path.stem for path in folder.iterdir()} <= {path.name[:2] for path in LESSONS}


# --- the plan ---------------------------------------------------------------------------------------


def row_of(lesson, text):
    """Return the cells of the table row that links to a lesson; there must be only one such row."""
    (row,) = [line for line in text.splitlines() if line.startswith("|") and f"{lesson})" in line]
    return [cell.strip() for cell in row.strip("|").split("|")]


@per_lesson
def test_plan_lesson_and_readme_agree(path):
    """Compare the minutes of all sections, the place of the break, and the sections of the short course."""
    number, (_, _, minutes, exercises, pause, kept, *_) = int(path.name[:2]), row_of(path.name, PLAN)
    texts = [text for _, _, text in cells_of(read(path), "markdown")]
    opening = " ".join(texts[0].split())
    assert "ou will be able to" in opening
    assert f"about {minutes} minutes, and {exercises} more for the exercises" in opening
    assert row_of(path.name, README)[-1] == f"{minutes} + {exercises}"
    planned = read_plan(number).minutes
    assert pause == read_plan(number).break_after
    assert re.findall(r"after section (\d+\.\d+) is a good place for a break", opening) in ([], [pause])
    sections = re.findall(r"^## (\d+\.\d+) (.*)$", "\n".join(texts), flags=re.M)
    assert list(planned) == [section for section, title in sections if title != "Exercises"]
    assert sum(planned.values()) == int(minutes)
    assert 0.4 <= sum(planned[section] for section in kept.split(", ")) / int(minutes) <= 0.6
    assert read_plan(number).questions


def test_course_has_every_lesson_and_exercise_once():
    """An exercise may be homework after its lesson, but not before it."""
    assert sorted(re.findall(r"\((\w+\.ipynb)\)", PLAN)) == [path.name for path in LESSONS]
    asked, taught = [], set()
    for line in re.findall(r"^\| \d+ .*$", COURSE, re.M):
        _, lesson, _, _, homework = line.strip("|").split("|")
        taught |= {f"{int(number):02}" for number in re.findall(r"[Ll]esson (\d+)", lesson)}
        ids = re.findall(r"\w+\.\w+", homework)
        asked += ids
        assert {bank()[id].teach[:2] for id in ids} <= taught
    assert sorted(asked) == sorted(bank())
    assert taught == {path.name[:2] for path in LESSONS}


# --- the first two minutes ---------------------------------------------------------------


OPENINGS = FOLDER / "guide" / "openings.md"
OPENINGS_HEAD = (
    "# The first two minutes\n\n"
    "This page shows what you can say when a lesson begins. Each opening asks the class a question and says "
    "why the topic matters. It ends with what the students will be able to do. The text in parentheses is "
    "for you. Use your own words. The openings do not give away the answer to a **Predict**. You also find "
    "them in the speaker notes of the first slide (key S).\n"
)


def test_openings_take_two_minutes_and_have_a_page():
    """The openings are metadata of the lessons. NPFORMER_REWRITE=1 writes the page."""
    parts = [OPENINGS_HEAD]
    for path in LESSONS:
        notebook = read(path)
        opening = get_entry(notebook, "opening")
        words = len(" ".join(opening).split())
        assert 120 <= words <= 200 and "?" in opening[0]
        heading = get_source(notebook["cells"][0]).partition("\n")[0].replace("# ", "## Lesson ")
        parts.append("\n\n".join([heading, *opening]) + "\n")
    page = "\n".join(parts)
    if os.environ.get("NPFORMER_REWRITE") == "1":
        OPENINGS.write_text(page, encoding="utf-8")
    assert OPENINGS.read_text(encoding="utf-8") == page
