"""Exams: a seed has its paper, every paper the same balance; its key is right, and its pages can be read."""

import json
from collections import Counter
from contextlib import redirect_stdout
from html import unescape
from io import StringIO

import nbformat
import pytest

from npformer import cli
from npformer.exercises import list_exercises
from npformer.exercises.assignment_file import read_assignment
from npformer.handouts.exam import LENGTHS, draw_exam, exam_files, exam_notebook, exam_page
from npformer.validation.output_files import write_files

SEEDS = ("monday", "Tuesday", "ß", "李", "<b>&")
FILES = ["exam-key.html", "exam-key.ipynb", "exam.html", "exam.ipynb", "exam.toml"]


@pytest.mark.parametrize("minutes", LENGTHS)
def test_every_paper_has_its_balance(minutes):
    topics = {task.topic for task in list_exercises()}
    for seed in SEEDS:
        questions = draw_exam(seed, minutes).questions
        assert Counter(question.part for question in questions) == LENGTHS[minutes]
        assert f"{minutes} minutes, {minutes} marks" in draw_exam(seed, minutes).title
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
    lessons = ["01", "03", "04"]
    assert {q.task.teach[:2] for q in draw_exam("x", 45, lessons).questions} == set(lessons)


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
    assert not [q for q in exam.questions if q.part == "Find the bug" and q.solved in paper]


def test_the_class_run_asks_the_papers_numbers_whatever_a_student_is_called(tmp_path):
    write_files(exam_files(draw_exam("monday 李", 20), tmp_path))
    key = tmp_path / "exam-key.ipynb"
    key.write_text(
        key.read_text(encoding="utf-8").replace('student = \\"\\"', 'student = \\"Ada\\"'), encoding="utf-8"
    )
    assert cli.main(["check", str(key), "--assignment", str(tmp_path / "exam.toml")]) == 0


# --- the page -------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [False, True])
def test_every_question_is_on_the_page_and_only_the_key_has_answers(key):
    exam = draw_exam(SEEDS[-1], 90)
    page = exam_page(exam, key)
    shown = unescape(page)
    assert page.count("<section>") == page.count("</section>") == len(exam.questions) and "<b>" not in page
    for question in exam.questions:
        answer = question.answer
        assert question.text in shown and (key or question.part != "Derive" or answer not in shown)
        assert not key or (f"☒ {answer}" if question.options else answer) in shown
    assert ("lesson 0" in shown) == key and ("Name: ___" in shown) != key and ("☒" in shown) == key
    assert page.count("<pre") == 4 + (11 + 4 + 3 if key else 3)
    assert page.count('class="line"') == 0 if key else page.count('class="line"') == 11 * 2 + 4 + 3 * 12


# --- the command ----------------------------------------------------------------------------------


def test_the_command_writes_five_files_the_same_ones_again_and_over_none(tmp_path, capsys):
    asked = ["exam", "--seed", "Monday", "--minutes", "20", "--lessons", "1,3,4,7", "--out"]
    assert cli.main([*asked, str(tmp_path / "a")]) == cli.main([*asked, str(tmp_path / "b")]) == 0
    assert sorted(file.name for file in (tmp_path / "a").iterdir()) == FILES
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert read_assignment(tmp_path / "a" / "exam.toml").worth() == 20
    assert capsys.readouterr().out.count("written: ") == 10

    (tmp_path / "a" / "exam.toml").write_text("mine")
    assert cli.main([*asked, str(tmp_path / "a")]) == 2
    assert capsys.readouterr().err.endswith("holds 'exam.toml', which stays; --force writes it anew\n")
    assert (tmp_path / "a" / "exam.toml").read_text() == "mine"
    assert cli.main([*asked, str(tmp_path / "a"), "--force"]) == 0
    assert read_assignment(tmp_path / "a" / "exam.toml").worth() == 20
