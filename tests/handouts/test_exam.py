"""Test exams: the questions that a seed draws, the key, the pages, and the command."""

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
from npformer.handouts.exam import LENGTHS, draw_exam, make_exam_files, make_exam_notebook, make_exam_page
from npformer.validation.output_files import write_files

SEEDS = ("monday", "Tuesday", "ß", "李", "<b>&")
FILES = ["exam-key.html", "exam-key.ipynb", "exam.html", "exam.ipynb", "exam.toml"]


# --- the questions --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("minutes", LENGTHS)
def test_draw_exam_balances_parts_and_topics(minutes, seed):
    topics = {task.topic for task in list_exercises()}
    exam = draw_exam(seed, minutes)
    assert Counter(question.part for question in exam.questions) == LENGTHS[minutes]
    assert f"{minutes} minutes, {minutes} points" in exam.title
    assert len({question.task.id for question in exam.questions}) == len(exam.questions)
    questions_of_topic = Counter(question.task.topic for question in exam.questions)
    assert len(questions_of_topic) >= min(len(topics), len(exam.questions)) - 2
    assert max(questions_of_topic.values()) <= 4


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("minutes", LENGTHS)
def test_draw_exam_puts_easy_questions_first(minutes, seed):
    questions = draw_exam(seed, minutes).questions
    levels = [question.task.level for question in questions if question.part == "Remember"]
    assert levels == sorted(levels) and levels[-1] > 1


def test_draw_exam_differs_only_with_the_seed():
    papers = [make_exam_notebook(draw_exam(seed)) for seed in SEEDS]
    assert len(set(papers)) == len(SEEDS)
    assert papers[0] == make_exam_notebook(draw_exam(" MONDAY "))


def test_draw_exam_draws_the_numbers_from_the_seed():
    texts = set()
    for seed in ("a", "b"):
        for question in draw_exam(seed, 90).questions:
            if question.task.id == "ffn.token":
                texts.add(question.text)
    assert len(texts) == 2


def test_draw_exam_uses_only_the_chosen_lessons():
    lessons = ["01", "03", "04"]
    questions = draw_exam("x", 45, lessons).questions
    assert {question.task.teach[:2] for question in questions} == set(lessons)


# --- the notebook ---------------------------------------------------------------------------------


def run_notebook(notebook):
    """Run the code cells of a notebook and return the printed text."""
    names, out = {}, StringIO()
    with redirect_stdout(out):
        for cell in json.loads(notebook)["cells"]:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), names)
    return out.getvalue()


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_exam_notebook_key_gets_all_points(seed):
    key = make_exam_notebook(draw_exam(seed, 90), key=True)
    assert run_notebook(key).splitlines()[-1] == "90 of 90 points"


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_exam_notebook_unanswered_gets_no_points(seed):
    exam = draw_exam(seed, 90)
    paper = make_exam_notebook(exam)
    nbformat.validate(json.loads(paper))
    assert run_notebook(paper).splitlines()[-1] == "0 of 90 points"
    bugs = [question for question in exam.questions if question.part == "Find the bug"]
    assert not any(question.solved in paper for question in bugs)


def test_check_uses_the_numbers_of_the_paper(tmp_path):
    """The seed of the exam determines the numbers, and the name of the student does not change them."""
    write_files(make_exam_files(draw_exam("monday 李", 20), tmp_path))
    key = tmp_path / "exam-key.ipynb"
    key.write_text(
        key.read_text(encoding="utf-8").replace('student = \\"\\"', 'student = \\"Ada\\"'), encoding="utf-8"
    )
    assert cli.main(["check", str(key), "--assignment", str(tmp_path / "exam.toml")]) == 0


# --- the page -------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [False, True])
def test_exam_page_has_every_question(key):
    exam = draw_exam(SEEDS[-1], 90)
    page = make_exam_page(exam, key)
    assert page.count("<section>") == page.count("</section>") == len(exam.questions)
    assert "<b>" not in page  # the seed contains <b>, which must be escaped
    assert all(question.text in unescape(page) for question in exam.questions)


def test_exam_page_has_no_answers():
    exam = draw_exam(SEEDS[-1], 90)
    page = make_exam_page(exam)
    text = unescape(page)
    assert "Name: ___" in text and "lesson 0" not in text and "☒" not in text
    assert "of 90 points" in text and "Permitted aids: ___" in text
    assert not any(question.answer in text for question in exam.questions if question.part == "Derive")
    assert page.count("<pre") == 4 + 3  # code with a bug, and signatures of functions to derive
    assert page.count('class="line"') == 11 * 2 + 4 + 3 * 12


def test_exam_page_key_has_every_answer():
    exam = draw_exam(SEEDS[-1], 90)
    page = make_exam_page(exam, key=True)
    text = unescape(page)
    assert "Name: ___" not in text and "of 90 points" not in text and "lesson 0" in text and "☒" in text
    for question in exam.questions:
        expected = f"☒ {question.answer}" if question.options else question.answer
        assert expected in text
    assert page.count("<pre") == 4 + 11 + 4 + 3
    assert page.count('class="line"') == 0


# --- the command ----------------------------------------------------------------------------------


COMMAND = ["exam", "--seed", "Monday", "--minutes", "20", "--lessons", "1,3,4,7", "--out"]


def test_exam_command_writes_the_same_five_files(tmp_path, capsys):
    for folder in ("a", "b"):
        assert cli.main([*COMMAND, str(tmp_path / folder)]) == 0
    assert sorted(file.name for file in (tmp_path / "a").iterdir()) == FILES
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert read_assignment(tmp_path / "a" / "exam.toml").worth() == 20
    assert capsys.readouterr().out.count("written: ") == 10


def test_exam_command_overwrites_only_with_force(tmp_path, capsys):
    file = tmp_path / "exam.toml"
    file.write_text("mine")
    assert cli.main([*COMMAND, str(tmp_path)]) == 2
    assert capsys.readouterr().err.endswith("already contains 'exam.toml'; --force overwrites it\n")
    assert file.read_text() == "mine"
    assert cli.main([*COMMAND, str(tmp_path), "--force"]) == 0
    assert read_assignment(file).worth() == 20
