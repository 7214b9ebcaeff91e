"""Test the quizzes for Moodle and Canvas: each number is computed again from the text of the file."""

import io
import json
import re
import zipfile
from html import unescape
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from lms import answer_item, find_answer, read_moodle, read_qti, read_qti_21

from npformer import cli
from npformer.exercises import check, list_exercises
from npformer.exercises.bank import bank, find_exercise
from npformer.exercises.task import Code, Mistake, Numbers
from npformer.exercises.templates import decapitalise
from npformer.quiz.canvas_qti import write_canvas_package
from npformer.quiz.formulas import HTML, TEX, format_text
from npformer.quiz.moodle_xml import write_moodle_xml
from npformer.quiz.qti_21 import write_qti_21_package
from npformer.quiz.quiz_questions import make_categories, name_variants

IDS = [exercise.id for exercise in list_exercises() if not isinstance(exercise, Code)]
ALL_VARIANTS = pytest.param(30, marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=[2, ALL_VARIANTS])
def categories(request):
    return make_categories(dict.fromkeys(IDS, 2.0), name_variants("quiz", request.param), request.param)


@pytest.fixture(scope="module")
def moodle(categories):
    """Return the questions of all exercises by category, read from the file for Moodle."""
    return read_moodle(write_moodle_xml(categories))


@pytest.fixture(scope="module")
def canvas(categories):
    return read_qti(write_canvas_package(categories, "All exercises"))


def iter_questions(categories, *kinds):
    """Yield the questions of these kinds."""
    found = [
        question for questions in categories.values() for question in questions if question.kind in kinds
    ]
    assert found
    yield from found


def explain(exercise_id, wrong):
    """Return the part of the feedback that names a mistake.

    A list of mistakes is one sentence, in which this part begins with a small letter and has no full stop.
    """
    text = wrong.cause if isinstance(wrong, Mistake) else wrong.says
    return text.removesuffix(".")[1:]


def posed_of(question):
    """Return the exercise of a question, and its numbers for the name in the question's title."""
    task, name = find_exercise(question.name)
    assert isinstance(task, Numbers)
    return task, task.posed(name)


@pytest.fixture(scope="module")
def qti_21(categories):
    return read_qti_21(write_qti_21_package(categories, "All exercises"))


# --- Moodle ------------------------------------------------------------------------------------------


def test_moodle_has_each_exercise_with_different_variants(moodle):
    assert [category.rpartition("/")[2] for category in moodle] == IDS
    for category, questions in moodle.items():
        exercise_id = category.rpartition("/")[2]
        assert all(question.name.partition("@")[0] == exercise_id for question in questions)
        texts = [question.text for question in questions]
        assert len(set(texts)) == len(texts)
        has_numbers = bank()[exercise_id].kind in ("number", "vector")
        assert len(questions) > 1 or not has_numbers
        assert all(question.general.startswith("Read lesson") for question in questions)


def test_moodle_options_get_the_checkers_feedback(moodle):
    for question in iter_questions(moodle, "multichoice", "truefalse"):
        (answers,) = question.answers
        assert question.points == 2 and sum(answer.is_correct for answer in answers) == 1
        for letter, answer in zip("abcdef", answers, strict=False):
            chosen = answer.text if question.kind == "truefalse" else letter
            result = check(question.name, chosen, level=2)
            assert bool(result) == answer.is_correct
            if not result:
                expected = f"{result.evidence} {result.hint} {result.question}".replace("  ", " ")
                assert answer.feedback == format_text(expected.removeprefix("This is not so. "), TEX)


def is_named(exercise_id, wrong, feedback, notation):
    """Return whether the feedback contains the text of a mistake, alone or as a part of a list.

    A part of a list begins with a small letter and has no full stop.
    """
    text = explain(exercise_id, wrong)
    part = decapitalise(text.removesuffix("."))
    return format_text(text, notation) in feedback or format_text(part, notation) in feedback


def check_separate(answers):
    """Check that exactly the first answer is correct, the last fits every number, and no two overlap."""
    assert [answer.is_correct for answer in answers] == [True] + [False] * (len(answers) - 1)
    assert [answer.text for answer in answers].index("*") == len(answers) - 1
    for a, b in combinations(answers[:-1], 2):
        assert a.tolerance > 0 and b.tolerance > 0
        assert abs(float(a.text) - float(b.text)) > a.tolerance + b.tolerance


def test_moodle_numbers_are_correct_and_separate(moodle):
    for question in iter_questions(moodle, "numerical"):
        (answers,) = question.answers
        task, posed = posed_of(question)
        check_separate(answers)
        assert question.points == 2
        for answer in answers[:-1]:
            for share in (-0.99, 0, 0.99):
                number = float(answer.text) + share * answer.tolerance
                assert bool(check(question.name, number)) == answer.is_correct
        for wrong, value in posed.wrong.items():
            if not np.ndim(value):
                for number in (value, np.round(value, task.decimals or 3)):
                    found = find_answer(answers, number)
                    assert not found.is_correct
                    assert is_named(task.id, wrong, found.feedback, TEX)


def test_moodle_wrong_sign_and_few_decimals_are_recognised(moodle):
    for question in iter_questions(moodle, "numerical"):
        (answers,) = question.answers
        for answer in answers[:-1]:
            result = check(question.name, float(answer.text), level=2)
            kinds = {finding.kind for finding in result.findings}
            if not answer.is_correct and not result.codes:
                assert kinds & {
                    "sign_differs",
                    "rounded_answer",
                    "truncated_answer",
                    "one_off",
                    "size_is_right",
                }
                assert format_text(result.evidence, TEX) in answer.feedback
                is_rounded = bool(kinds & {"rounded_answer", "truncated_answer"})
                assert (answer.tolerance < 1e-5) == is_rounded


def test_moodle_lists_are_correct_and_separate(moodle):
    for question in iter_questions(moodle, "cloze"):
        task, posed = posed_of(question)
        right = np.asarray(posed.answer, float)
        assert question.points == max(right.size, 2)
        assert check(question.name, [float(answers[0].text) for answers in question.answers])
        for answers in question.answers:
            check_separate(answers)
            assert not any("(4) " in answer.feedback for answer in answers)
        for wrong, value in posed.wrong.items():
            if np.shape(value) == right.shape:
                found = [find_answer(a, number) for a, number in zip(question.answers, value, strict=True)]
                assert not all(answer.is_correct for answer in found)
                for k, answer in enumerate(found):
                    is_near = abs(value[k] - right[k]) <= 2 * task.tolerance
                    has_name = is_named(task.id, wrong, answer.feedback, HTML)
                    assert is_near or has_name or "Several known mistakes" in answer.feedback


def test_moodle_gaps_share_the_points_and_escape_feedback():
    (category,) = make_categories({"addition.vector": 8.0}, ["Ada"], 1)
    (question,) = category.questions
    known = question.numbers[0][0]._replace(feedback="a < b} ~ {c# \\")
    question = question._replace(numbers=((known,), *question.numbers[1:]))
    ((read,),) = read_moodle(write_moodle_xml([category._replace(questions=(question,))])).values()
    assert read.points == 8
    assert read.answers[0][0].feedback == "a &lt; b} ~ {c# \\"


# --- Canvas ------------------------------------------------------------------------------------------


def plain(html):
    """Return the text of a paragraph without its markup."""
    return unescape(re.sub(r"</?(p|sub|sup)>", "", html))


def test_canvas_options_are_correct_and_differ(canvas):
    assert list(canvas) == IDS
    for question in iter_questions(canvas, "multiple_choice_question", "true_false_question"):
        (answers,) = question.answers
        assert question.points == 2
        assert [answer.is_correct for answer in answers].count(True) == 1
        assert len({answer.text for answer in answers}) == len(answers)
        task, _ = find_exercise(question.name)
        for letter, answer in zip("abcdef", answers, strict=False):
            chosen = letter
            if task.kind == "truth":
                chosen = plain(answer.text)
            elif task.kind != "choice":
                chosen = json.loads(plain(answer.text))
            result = check(question.name, chosen, level=2)
            assert bool(result) == answer.is_correct
            if not result:
                assert result.codes
                is_list = len(result.codes) > 1 or "(2) " in answer.feedback  # several mistakes, one number
                assert is_list or format_text(result.question, HTML) in answer.feedback


def test_canvas_feedback_names_each_known_mistake(canvas):
    """Together, the variants of a question with numbers name all known mistakes, or at least ten of them."""
    for exercise_id, questions in canvas.items():
        task = bank()[exercise_id]
        if task.kind not in ("number", "vector"):
            continue
        texts = [answer.feedback for question in questions for answer in question.answers[0]]
        _, posed = posed_of(questions[0])
        named = [w for w in posed.wrong if any(is_named(task.id, w, text, HTML) for text in texts)]
        assert len(named) >= min(10, len(posed.wrong))


# --- QTI 2.1 -----------------------------------------------------------------------------------------


def test_qti_21_numbers_and_lists_are_recognised(qti_21):
    """The whole list is compared, so the feedback names each known mistake."""
    numbers = [item for item in qti_21 if item.gaps]
    assert {find_exercise(item.name)[0].kind for item in numbers} == {"number", "vector"}
    for item in numbers:
        task, posed = posed_of(item)
        right = np.atleast_1d(posed.answer)
        assert check(item.name, item.correct if right.size > 1 else item.correct[0])
        for digits in (task.decimals or 3, 9):
            score, feedback = answer_item(item, np.round(right, digits))
            assert score == 1 and "Correct." in feedback
            for wrong, value in posed.wrong.items():
                if np.shape(value) == np.shape(posed.answer):
                    score, feedback = answer_item(item, np.atleast_1d(np.round(value, digits)))
                    assert score == 0 and is_named(task.id, wrong, feedback, HTML)
        for unknown in (np.full(right.size, 98765.5), [None] * right.size):
            score, feedback = answer_item(item, unknown)
            assert score == 0 and format_text(task.question, HTML) in feedback


def test_qti_21_options_get_the_checkers_feedback(qti_21):
    choices = [item for item in qti_21 if not item.gaps]
    assert len(choices) == sum(bank()[exercise_id].kind in ("choice", "truth") for exercise_id in IDS)
    for item in choices:
        for letter, (option, text) in zip("abcdef", item.options.items(), strict=False):
            task = bank()[item.name]
            result = check(item.name, text if task.kind == "truth" else letter, level=2)
            score, feedback = answer_item(item, [option])
            assert score == bool(result) and (option in item.correct) == bool(result)
            assert format_text(result.question or "Correct.", HTML) in feedback


# --- the files ---------------------------------------------------------------------------------------


def test_files_need_no_network(categories):
    xml = write_moodle_xml(categories)
    assert "http" not in xml and "src=" not in xml
    for write in (write_canvas_package, write_qti_21_package):
        data = write(categories, "All exercises")
        assert data == write(categories, "All exercises")
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            texts = [archive.read(name).decode() for name in archive.namelist()]
        namespaces = {'xmlns="http://www.imsglobal.org'}
        assert all(re.findall(".{6}.http.{20}", text) == [*namespaces] for text in texts)
        assert not any("src=" in text or 'href="http' in text for text in texts)


STRANGE = 'O\'Brien "<b>&co</b>" ]]> {~#}'


@pytest.mark.parametrize(("format", "suffix"), [("moodle", "xml"), ("qti", "zip"), ("qti21", "zip")])
def test_quiz_escapes_special_characters(tmp_path, capsys, format, suffix):
    file = tmp_path / f"quiz.{suffix}"
    command = ["quiz", "pe.entry,pe.row", "order.bag", "--format", format, "--out", str(file)]
    assert cli.main([*command, "--seed", STRANGE, "--variants", "2"]) == 0
    lines = ["pe.entry: 1 point, 2 variants", "pe.row: 1 point, 2 variants", "order.bag: 1 point, 1 variant"]
    assert capsys.readouterr().out.splitlines() == [*lines, f"written: {file}"]
    if format == "qti21":
        names = [item.name for item in read_qti_21(file.read_bytes())]
    else:
        categories = (read_moodle if format == "moodle" else read_qti)(file.read_bytes())
        names = [question.name for questions in categories.values() for question in questions]
    prefixes = [name.rpartition(" ")[0] for name in names]
    assert prefixes == [f"{task}@{STRANGE.lower()}" for task in ("pe.entry",) * 2 + ("pe.row",) * 2] + [""]


def test_quiz_takes_points_and_numbers_of_an_assignment(tmp_path, capsys):
    assignment = tmp_path / "hw.toml"
    assignment.write_text('title = "Week 1"\nnumbers = "Monday"\n[points]\n"pe.entry" = 3\n"pe.table" = 4\n')
    file = tmp_path / "quiz.zip"
    command = ["quiz", "--format", "qti", "--out", str(file), "--assignment", str(assignment)]
    assert cli.main(command) == 0
    assert "left out, because a quiz cannot check a function: pe.table" in capsys.readouterr().out
    ((question,),) = read_qti(file.read_bytes()).values()
    assert (question.name, question.points) == ("pe.entry@Monday", 3)
    command = ["quiz", "pe.entry", "--format", "moodle", "--assignment", str(assignment)]
    assert cli.main([*command, "--out", str(tmp_path / "quiz.xml")]) == 0


HOMEWORK = '[points]\n"pe.table" = 4\n'
REJECTED = [
    ("pe.entri --format qti --out {}/q.zip", "there is no exercise 'pe.entri'; did you mean 'pe.entry'?"),
    ("pe.table --format qti --out {}/q.zip", "pe.table asks for a function, which a quiz cannot check"),
    ("pe.entry --format qti --out {}/q.xml", "'q.xml' should end in .zip"),
    ("pe.entry --format moodle --out {}/q.zip", "'q.zip' should end in .xml"),
    ("pe.entry --format moodle --out {}/b/q.xml", "there is no folder '{}/b'"),
    ("pe.entry --format qti --out {}/q.zip --variants 0", "--variants is 0; expected a whole number"),
    ("pe.entry --format qti --out {}/q.zip --seed=", "--seed: the name is empty"),
    ("pe.entry --format qti --out {}/q.zip --seed=\x01", "'\\x01' has a character that XML cannot contain"),
    (
        "pe.entry --format qti --out {}/q.zip --assignment {}/hw.toml",
        "the assignment gives no points for pe.",
    ),
    (
        "--format qti --out {}/q.zip --assignment {}/hw.toml",
        "a quiz cannot check a function, and pe.table ask",
    ),
]


@pytest.mark.parametrize(("options", "message"), REJECTED)
def test_quiz_rejects_wrong_arguments(tmp_path, capsys, options, message):
    (tmp_path / "hw.toml").write_text(HOMEWORK)
    words = [word.replace("{}", str(tmp_path)) for word in options.split()]
    assert cli.main(["quiz", *words]) == 2
    assert capsys.readouterr().err.startswith(f"npformer quiz: {message.replace('{}', str(tmp_path))}")
    assert [path.name for path in tmp_path.iterdir()] == ["hw.toml"]


@pytest.mark.parametrize("words", [["--format", "gift", "--out", "q.xml"], ["--format", "moodle"]])
def test_quiz_requires_a_format_and_a_file(capsys, words):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["quiz", "pe.entry", *words])
    assert re.search("invalid choice: 'gift'|required: --out", capsys.readouterr().err)


GUIDE = Path(__file__).parents[2] / "notebooks" / "guide" / "quiz.md"
CORRECT = """
import numpy as np
print("noise")
def pe_table(n, d_model):
    angles = np.arange(n)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, d_model)
"""


@pytest.mark.parametrize(("answer", "fraction", "message"), [
    (CORRECT, 1, "Your answer passes every check."),
    (CORRECT.replace("10000", "1000"), 0, "Perhaps the base is 1000"),
    ("x = 1 / 0", 0, "ZeroDivisionError: division by zero"),
    ("", 0, "This exercise has not been answered yet."),
])  # fmt: skip
def test_coderunner_template_prints_the_feedback(capsys, answer, fraction, message):
    template = GUIDE.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    program = template.replace("{{ STUDENT_ANSWER | e('py') }}", answer)
    exec(program, {})
    printed = json.loads(capsys.readouterr().out)
    assert printed["fraction"] == fraction and message in printed["prologuehtml"]


def test_quiz_overwrites_an_existing_file(tmp_path):
    file = tmp_path / "quiz.xml"
    file.write_text("old")
    assert cli.main(["quiz", "pe.pair", "--format", "moodle", "--out", str(file), "--variants", "1"]) == 0
    assert read_moodle(file.read_bytes())
