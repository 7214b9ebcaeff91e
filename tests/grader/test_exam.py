"""Exams: a seed has its paper, every paper the same balance; its key is right, and its pages can be read."""

import json
from collections import Counter
from contextlib import redirect_stdout
from io import StringIO

import nbformat
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from npformer import cli
from npformer.exercises import list_exercises
from npformer.grader.exam import LENGTHS, draw_exam, exam_notebook
from npformer.grader.exam_pages import exam_pages, write_exam
from npformer.grader.marks import read_assignment

SEEDS = ("monday", "Tuesday", "ß", "李", "a name of more letters than a page has room for at its foot")
FILES = ["exam-key.ipynb", "exam-key.pdf", "exam.ipynb", "exam.pdf", "exam.toml"]


@pytest.mark.parametrize("minutes", LENGTHS)
def test_every_paper_has_its_balance(minutes):
    topics = {task.topic for task in list_exercises()}
    for seed in SEEDS:
        questions = draw_exam(seed, minutes).questions
        assert Counter(question.part for question in questions) == LENGTHS[minutes]
        assert sum(question.marks for question in questions) == minutes
        assert len({question.task.id for question in questions}) == len(questions)
        asked = Counter(question.task.topic for question in questions)
        assert len(asked) >= min(len(topics), len(questions)) - 2 and max(asked.values()) <= 4
        levels = [question.task.level for question in questions if question.part == "Remember"]
        assert levels == sorted(levels) and levels[-1] > 1


def test_a_seed_has_its_paper_and_its_numbers():
    papers = [str(exam_notebook(draw_exam(seed))) for seed in SEEDS]
    assert len(set(papers)) == len(SEEDS) and papers[0] == exam_notebook(draw_exam(" MONDAY "))
    texts = {}
    for seed in ("a", "b"):
        for question in draw_exam(seed, 90).questions:
            texts.setdefault(question.task.id, set()).add(question.text)
    assert len(texts["ffn.token"]) == 2


def test_some_lessons_alone_are_asked_and_too_few_refused():
    lessons = ["01", "03", "04"]
    assert {q.task.teach[:2] for q in draw_exam("x", 45, lessons).questions} == set(lessons)
    with pytest.raises(ValueError, match=r"3 questions are due under 'Derive'; of lessons 01, 02 there "):
        draw_exam("x", 90, ["01", "02"])
    with pytest.raises(ValueError, match=r"there is no lesson '99'; expected some of 01, 02, 03"):
        draw_exam("x", 45, ["99"])


# --- the notebook ---------------------------------------------------------------------------------


def ran(notebook):
    """What the cells of a notebook print."""
    names, out = {}, StringIO()
    with redirect_stdout(out):
        for cell in json.loads(notebook)["cells"]:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), names)
    return out.getvalue()


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_the_key_earns_every_mark_and_the_paper_as_it_is_none(seed):
    exam = draw_exam(seed, 90)
    assert ran(exam_notebook(exam, key=True)).splitlines()[-1] == "90 of 90 marks"
    paper = exam_notebook(exam)
    nbformat.validate(json.loads(paper))
    assert ran(paper).splitlines()[-1] == "0 of 90 marks"
    assert not [q for q in exam.questions if q.part == "Find the bug" and q.bug.mended() in paper]


def test_the_class_run_asks_the_papers_numbers_whatever_a_student_is_called(tmp_path):
    write_exam(draw_exam("monday 李", 20), tmp_path)
    key = tmp_path / "exam-key.ipynb"
    key.write_text(
        key.read_text(encoding="utf-8").replace('student = \\"\\"', 'student = \\"Ada\\"'), encoding="utf-8"
    )
    assert cli.main(["check", str(key), "--assignment", str(tmp_path / "exam.toml")]) == 0


# --- the pages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [False, True])
def test_every_question_is_on_the_pages_and_no_letter_beyond_or_upon_another(key):
    exam = draw_exam(SEEDS[-1], 90)
    figures = exam_pages(exam, key=key)
    shown = " ".join(text.get_text() for figure in figures for text in figure.axes[0].texts)
    plain = "".join(shown.split())
    for question in exam.questions:
        assert "".join(question.text.split()) in plain.replace(question.worth.replace(" ", ""), "")
        assert (
            ("".join(str(question.answer()).split()) in plain) or question.part == "Find the bug" or not key
        )
    assert ("lesson 0" in shown) == key and ("Name: ___" in shown) != key and "$" not in shown
    for figure in figures:
        boxes = extents(figure)
        page = figure.bbox
        assert all(
            0 < box.x0 and box.x1 < page.width and 0 < box.y0 and box.y1 < page.height for box in boxes
        )
        assert not [
            1 for i, a in enumerate(boxes) for b in boxes[:i] if a.padded(-1.5).overlaps(b.padded(-1.5))
        ]
        assert {t.get_fontfamily()[0] for t in figure.axes[0].texts if "def " in t.get_text()} <= {
            "DejaVu Sans Mono"
        }


def extents(figure):
    """The boxes of all letters on a page."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    return [text.get_window_extent(renderer) for text in figure.axes[0].texts if text.get_text()]


# --- the command ----------------------------------------------------------------------------------


def test_the_command_writes_five_files_the_same_ones_again_and_over_none(tmp_path, capsys):
    asked = ["exam", "--seed", "Monday", "--minutes", "20", "--lessons", "1,3,4,7", "--out"]
    assert cli.main([*asked, str(tmp_path / "a")]) == cli.main([*asked, str(tmp_path / "b")]) == 0
    assert sorted(file.name for file in (tmp_path / "a").iterdir()) == FILES
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert (tmp_path / "a" / "exam.pdf").read_bytes().startswith(b"%PDF-")
    assert read_assignment(tmp_path / "a" / "exam.toml").worth() == 20
    assert capsys.readouterr().out.count("written: ") == 10

    (tmp_path / "a" / "exam.toml").write_text("mine")
    assert cli.main([*asked, str(tmp_path / "a")]) == 2
    assert capsys.readouterr().err.endswith("holds 'exam.pdf', which stays; --force writes it anew\n")
    assert (tmp_path / "a" / "exam.toml").read_text() == "mine"
    assert cli.main([*asked, str(tmp_path / "a"), "--force", "--paper", "letter"]) == 0
    assert read_assignment(tmp_path / "a" / "exam.toml").worth() == 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", " "], "the seed is empty"),
        (["--seed", "a", "--minutes", "30"], "expected one of 20, 45, 90"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(arguments, message, tmp_path, capsys):
    assert cli.main(["exam", *arguments, "--out", str(tmp_path / "exam")]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())
