"""The lessons as a class sees them: each Predict has its cell and its answer, a cell fits on one screen, and
plan, lessons and README say the same about each lesson."""

import base64
import json
import re
from pathlib import Path

import pytest
from predicts import predicts

from npformer.exercises.bank import bank
from npformer.handouts.lesson_copies import named, source_of
from npformer.lessons.predictions import QUESTION, answers

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
LESSONS = sorted(FOLDER.glob("[0-9]*.ipynb"))
PLAN, README, COURSE = (
    (ROOT / page).read_text(encoding="utf-8")
    for page in ("notebooks/README.md", "README.md", "notebooks/guide/course.md")
)
MOST_LINES, MOST_WORDS = 15, 120  # of a code cell; of an answer, and of what stands between two code cells

per_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def cells_of(notebook, kind):
    """(number from 1, cell, its text)"""
    cells = enumerate(notebook["cells"], 1)
    return [(n, cell, source_of(cell)) for n, cell in cells if cell["cell_type"] == kind]


def words_of(text):
    """How many words a reader meets, a formula in a line as one; no tables, drawings, displays, folds."""
    text = re.sub(
        r"```.*?```|<details>.*?</details>|\$\$.*?\$\$|^\|[^\n]*$|^#[^\n]*$", " ", text, flags=re.S | re.M
    )
    return len(re.sub(r"\$[^$]+\$", "formula", text).split())


def glued(text):
    """The formulas that touch a letter or a digit, as in $d$x: VS Code shows them with their dollar signs."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "`", text, flags=re.S)
    parts = re.split(r"(\$\$.*?\$\$|\$[^$]+\$)", text, flags=re.S)
    around = zip(parts[::2], parts[1::2], parts[2::2], strict=False)  # one text more than formulas
    return [it for left, it, right in around if re.search(r"\w", left[-1:] + right[:1], re.A)]


# --- what stands in a cell --------------------------------------------------------------------------


def outputs_of(cell):
    """What a reader sees below it, as one text, pictures as their bytes."""
    shown = "".join("".join(part) for o in cell["outputs"] for part in o.get("data", {}).values())
    return shown + "".join(
        base64.b64decode(p).decode("latin-1") for p in re.findall(r'base64,([^"]*)"', shown)
    )


ASKED = {  # what stands between a text and a class: cell, text -> whether it does
    "a formula touches a letter or a digit": lambda cell, text: glued(text),
    "**Predict.** and the cell's metadata do not go together": (
        lambda cell, text: text.count(QUESTION) != bool(named(cell, "predict"))
    ),
    "the question does not end its cell": lambda cell, text: "\n\n" in text.partition(QUESTION)[2].strip(),
    "tells to clear outputs: the reader's copy has none": lambda cell, text: "clear outputs" in text.lower(),
}
RUN = {
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
        re.findall(r"^reveal\(.*", text, re.M) != [f'reveal("{id}")' for id in [named(cell, "reveal")] if id]
        or (named(cell, "reveal") and not text.splitlines()[-1].startswith("reveal("))
    ),
}


@pytest.mark.parametrize("path", [*LESSONS, FOLDER / "exercises.ipynb"], ids=lambda path: path.stem)
def test_every_cell_is_fit_for_a_class(path):
    notebook = read(path)
    for kind, rules in (("markdown", ASKED), ("code", RUN)):
        for number, cell, text in cells_of(notebook, kind):
            assert [rule for rule, broken in rules.items() if broken(cell, text)] == [], f"cell {number}"
    code = cells_of(notebook, "code")
    for before, (number, here, text), after in zip(code, code[1:], code[2:], strict=False):
        pictured = any("<img " in outputs_of(cell) for cell in (before[1], here, after[1]))
        assert pictured or "interact(" not in text, (
            f"cell {number}: a slider without a static figure beside it"
        )


# --- a lesson ---------------------------------------------------------------------------------------


@per_lesson
def test_a_lesson_asks_and_answers(path):
    """Five times or more, each once; and no number of an answer is told before its cell."""
    cells, found, of_lesson = read(path)["cells"], predicts(read(path)), answers(int(path.name[:2]))
    asked, revealed = [p.id for p in found], [id for cell in cells if (id := named(cell, "reveal"))]
    assert len(asked) >= 5 and asked == revealed
    assert sorted(asked) == sorted(of_lesson)
    assert not [id for id, text in of_lesson.items() if glued(text)]
    for predict in found:
        assert predict.question
        assert 0 < words_of(predict.answer) <= MOST_WORDS, predict.id
        assert "**Answer" not in predict.answer and "#" not in predict.answer[:1]
        prose = source_of(cells[predict.cell - 1]).replace(predict.question, "")
        known = set(re.findall(r"\d[\d.,]*\d", predict.question + source_of(cells[predict.cell])))
        told = set(re.findall(r"\d[\d.,]{2,}\d", predict.answer)) - known
        assert not [number for number in told if number in prose], predict.id


@per_lesson
def test_a_lesson_has_no_wall_of_words_and_no_cell_that_is_too_long(path):
    between = None  # what stands before the first code cell may be longer, and so may exercises
    for cell in read(path)["cells"]:
        if cell["cell_type"] == "markdown":
            between = between if between is None else between + source_of(cell) + "\n\n"
            continue
        assert len(source_of(cell).splitlines()) <= MOST_LINES, source_of(cell)
        assert not between or words_of(between) <= MOST_WORDS or "Exercises\n" in between, between[:40]
        between = ""


def test_every_file_of_answers_belongs_to_a_lesson():
    folder = ROOT / "npformer" / "lessons" / "answers"
    assert {path.stem for path in folder.iterdir()} <= {path.name[:2] for path in LESSONS}


# --- the plan ---------------------------------------------------------------------------------------


def row_of(lesson, text):
    """The cells of the one table row that links to a lesson."""
    (row,) = [line for line in text.splitlines() if line.startswith("|") and f"{lesson})" in line]
    return [cell.strip() for cell in row.strip("|").split("|")]


@per_lesson
def test_plan_lesson_and_readme_agree(path):
    """On the minutes of each section and their sum, on the break, and on a programme of half the time."""
    number, (_, _, minutes, exercises, pause, kept, *_) = int(path.name[:2]), row_of(path.name, PLAN)
    texts = [text for _, _, text in cells_of(read(path), "markdown")]
    opening = " ".join(texts[0].split())
    assert "ou will be able to" in opening
    assert f"about {minutes} minutes, and {exercises} more for the exercises" in opening
    assert row_of(path.name, README)[-1] == f"{minutes} + {exercises}"
    (row,) = re.findall(rf"^\| {number:02} \| {number}\.1 .*$", PLAN, re.M)  # of minutes a section
    planned = {section: int(m) for section, m in re.findall(r"(\d+\.\d+) \*\*(\d+)\*\*", row)}
    assert re.findall(r"(\d+\.\d+) \*\*\d+\*\* ‖", row) == [pause]
    assert re.findall(r"after section (\d+\.\d+) is a good place for a break", opening) in ([], [pause])
    sections = re.findall(r"^## (\d+\.\d+) (.*)$", "\n".join(texts), flags=re.M)
    assert list(planned) == [section for section, title in sections if title != "Exercises"]
    assert sum(planned.values()) == int(minutes)
    assert 0.4 <= sum(planned[section] for section in kept.split(", ")) / int(minutes) <= 0.6
    assert re.search(rf"^\| {number} \| [^|]+\? ", PLAN, flags=re.M), "nobody asks a question"


def test_the_course_has_every_lesson_and_asks_each_exercise_once_and_behind_its_lesson():
    """Homework may come later than its lesson, and never before it."""
    assert sorted(re.findall(r"\((\w+\.ipynb)\)", PLAN)) == [path.name for path in LESSONS]
    asked, seen = [], set()
    for line in re.findall(r"^\| \d+ .*$", COURSE, re.M):
        _, lesson, _, _, homework = line.strip("|").split("|")
        seen |= {f"{int(number):02}" for number in re.findall(r"[Ll]esson (\d+)", lesson)}
        asked += (ids := re.findall(r"\w+\.\w+", homework))
        assert {bank()[name].teach[:2] for name in ids} <= seen
    assert sorted(asked) == sorted(bank())
    assert seen == {path.name[:2] for path in LESSONS}
