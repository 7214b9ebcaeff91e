"""The lessons as a class sees them: each Predict has its cell and its answer; a cell fits on one screen."""

import json
import re
from pathlib import Path

import pytest
from predicts import predicts

from npformer.teaching.lessons import QUESTION, answers, named, source_of

FOLDER = Path(__file__).parents[1] / "notebooks"
LESSONS = sorted(FOLDER.glob("[0-9]*.ipynb"))
MOST_LINES, MOST_WORDS, MOST_ANSWER_WORDS = 15, 120, 120

per_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def words_of(text):
    """How many words a reader meets, a formula in a line as one; no tables, drawings, displays, folds."""
    text = re.sub(
        r"```.*?```|<details>.*?</details>|\$\$.*?\$\$|^\|[^\n]*$|^#[^\n]*$", " ", text, flags=re.S | re.M
    )
    return len(re.sub(r"\$[^$]+\$", "formula", text).split())


def classroom_offences(notebook, lesson):
    """What stands between a lesson and a class, in words."""
    cells = notebook["cells"]
    found = [f"cell {n}: {offence}" for n, cell in enumerate(cells, 1) for offence in cell_offences(cell)]
    found += [f"{words} words between two code cells: {start!r}" for words, start in walls(cells)]
    asked = [predict.id for predict in predicts(notebook)]
    revealed = [id for cell in cells if (id := named(cell, "reveal"))]
    found += [f"{id} is revealed and not asked" for id in revealed if id not in asked]
    found += [
        f"{id} is asked or revealed twice"
        for id in set(asked)
        if max(asked.count(id), revealed.count(id)) > 1
    ]
    found += [f"answer {id} belongs to no question" for id in answers(lesson) if id not in asked]
    found += [
        f"answer {id}: {it} touches a letter" for id, text in answers(lesson).items() for it in glued(text)
    ]
    found += [f"{id} is not of this lesson" for id in asked if not id.startswith(f"{lesson}.")]
    return found


def cell_offences(cell):
    text = source_of(cell)
    return markdown_offences(cell, text) if cell["cell_type"] == "markdown" else code_offences(cell, text)


def markdown_offences(cell, text):
    found = [f"{formula} touches a letter or a digit" for formula in glued(text)]
    if text.count(QUESTION) != bool(named(cell, "predict")):
        found.append("**Predict.** and the cell's metadata do not go together")
    elif "\n\n" in text.partition(QUESTION)[2].strip():
        found.append("the question does not end its cell")
    if "clear outputs" in text.lower():
        found.append("tells to clear outputs: the reader's copy has none")
    return found


def glued(text):
    """The formulas that touch a letter or a digit, as in $d$x: VS Code shows them with their dollar signs."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "`", text, flags=re.S)
    parts = re.split(r"(\$\$.*?\$\$|\$[^$]+\$)", text, flags=re.S)
    around = zip(parts[::2], parts[1::2], parts[2::2], strict=False)  # one text more than formulas
    return [it for left, it, right in around if re.search(r"\w", left[-1:] + right[:1], re.A)]


def code_offences(cell, text):
    lines, id = text.splitlines(), named(cell, "reveal")
    found = [f"{len(lines)} lines: more than {MOST_LINES}"] if len(lines) > MOST_LINES else []
    if (f'reveal("{id}")' if id else None) != next(
        (line for line in lines if line.startswith("reveal(")), None
    ):
        found.append("its reveal() and its metadata do not go together")
    elif id and lines[-1] != f'reveal("{id}")':
        found.append("reveal() is not its last line")
    if re.search(r"\balt=", text):
        found.append("an alt text in sight: it belongs into the figure")
    return found


def walls(cells):
    """(words, how it begins) where more than so many words stand between two code cells; exercises may."""
    between, before_code = "", True
    for cell in cells:
        if cell["cell_type"] == "markdown":
            between += source_of(cell) + "\n\n"
        else:
            if not before_code and words_of(between) > MOST_WORDS and "Exercises\n" not in between:
                yield words_of(between), between[:40]
            between, before_code = "", False


@per_lesson
def test_a_lesson_is_fit_for_a_class(path):
    assert classroom_offences(read(path), int(path.name[:2])) == []


@per_lesson
def test_a_lesson_asks_and_answers(path):
    found = predicts(read(path))
    assert len(found) >= 5
    for predict in found:
        assert predict.question
        assert 0 < words_of(predict.answer) <= MOST_ANSWER_WORDS, predict.id
        assert "**Answer" not in predict.answer and "#" not in predict.answer[:1]


@per_lesson
def test_no_number_of_an_answer_is_told_before_its_cell(path):
    """A number with three digits or more that an answer gives, and no cell's text before it."""
    cells = read(path)["cells"]
    for predict in predicts(read(path)):
        prose = source_of(cells[predict.cell - 1])
        asked = set(re.findall(r"\d[\d.,]*\d", predict.question + source_of(cells[predict.cell])))
        told = set(re.findall(r"\d[\d.,]{2,}\d", predict.answer)) - asked
        assert not {number for number in told if number in prose.replace(predict.question, "")}, predict.id


def test_every_file_of_answers_belongs_to_a_lesson():
    folder = Path(__file__).parents[1] / "npformer" / "teaching" / "answers"
    numbers = {path.name[:2] for path in LESSONS}
    assert {path.stem for path in folder.iterdir()} <= numbers


# --- the checks can fail ------------------------------------------------------------------------
