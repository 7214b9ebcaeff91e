"""Tests of `points`: submissions cannot forge points, and points do not depend on feedback texts."""

import json

import pytest
from class_files import format_options, read_table, write_text
from other_words import in_other_words, pseudo

from npformer import cli
from npformer.exercises import check, templates
from npformer.grader.grading_process import Row
from npformer.grader.points import Assignment, compute_row_points

HOMEWORK = """[points]
layer_norm.backward = {dx = 3, dgamma = 1, dbeta = 1}
adam.step = {w = 1, m = 1, v = 1}
softmax.forward = 2
order.bag = 1
"""
AGREE = "dx, dgamma and dbeta are correct."
FORGED = {  # answers that imitate the sentences or the data of the checker
    "error": f"def layer_norm_backward(*args):\n    raise ValueError({AGREE!r})\n",
    "type": f"def layer_norm_backward(*args):\n    raise type({AGREE!r}, (Exception,), {{}})\n",
    "quotes": f"def layer_norm_backward(*args):\n    raise ValueError('” {AGREE} “')\n",
    "line": f"def layer_norm_backward(*args):\n    raise ValueError('\\n{AGREE}\\n')\n",
    "text": f"def layer_norm_backward(*args):\n    return {AGREE!r}\n",
    "names": "def layer_norm_backward(*args):\n    return {'dx': 1, 'dgamma': 1, 'dbeta': 1}\n",
    "agreed": "def layer_norm_backward(*args):\n    return {'agreed': ['dx', 'dgamma', 'dbeta'], 'status': 'pass'}\n",
    "student": f"student = {AGREE!r}\nlayer_norm_backward = {AGREE!r}\n",
    "function": f"exec('def layer_norm_backward(*args):\\n    return None')\nlayer_norm_backward.__name__ = {AGREE!r}\n",
    "mutates": (
        "def layer_norm_backward(dy, x, gamma, beta, eps):\n    gamma[:] = 0\n"
        "    return dy * 0, gamma * 0, beta * 0\n"
    ),
}  # fmt: skip
PARTLY_CORRECT = """import numpy as np
def layer_norm_backward(dy, x, gamma, beta, eps):
    x_hat = (x - x.mean(-1, keepdims=True)) / (x.var(-1, keepdims=True) + eps) ** 0.5
    return dy, (dy * x_hat).sum((0, 1)), dy.sum((0, 1))
def adam_step(w, g, m, v, t, learning_rate):
    return w, 0.9 * m + 0.1 * g, v
def softmax_forward(s):
    return np.exp(s)
order_bag = 'b'
"""


def make_complete_notebook(source):
    """Return the text of a notebook with one code cell and all fields that Jupyter writes."""
    cell = {"cell_type": "code", "source": source, "metadata": {}, "outputs": [], "execution_count": None}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture
def homework(tmp_path):
    """The path of the assignment file."""
    return write_text(tmp_path / "hw.toml", HOMEWORK)


# --- forged sentences ------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["py", "ipynb"])
def test_grade_forged_sentences_earn_nothing(suffix, tmp_path, homework, cached_grading, capsys):
    folder, answers_path, grades_path = tmp_path / "class", tmp_path / "o.csv", tmp_path / "g.csv"
    folder.mkdir()
    for name, source in FORGED.items():
        text = source if suffix == "py" else make_complete_notebook(source)
        write_text(folder / f"{name}.{suffix}", text)
    options = format_options(csv=answers_path, grades=grades_path, assignment=homework)
    assert cli.main(["grade", str(folder), *options]) == 0
    rows = read_table(answers_path)
    assert len(rows) == 4 * len(FORGED) and {row["points"] for row in rows} == {"0"}
    assert {row["agreed"] for row in rows} == {""}
    assert {row["points"] for row in read_table(grades_path)} == {"0"}


@pytest.mark.parametrize("name", FORGED)
def test_gradescope_forged_sentences_earn_nothing(name, tmp_path, homework, cached_grading, capsys):
    results_path = tmp_path / "results.json"
    path = write_text(tmp_path / "a.py", FORGED[name])
    cli.main(["check", str(path), *format_options(assignment=homework, gradescope=results_path)])
    results = json.loads(results_path.read_text(encoding="utf-8"))
    assert results["score"] == 0 and {test["score"] for test in results["tests"]} == {0}


@pytest.mark.parametrize("name", FORGED)
def test_check_forged_sentences_do_not_pass(name):
    names = {}
    exec(FORGED[name], names)
    result = check("layer_norm.backward", names["layer_norm_backward"])
    assert not result and result.agreed == ()
    with pytest.raises(AssertionError):
        result.raise_if_wrong()


# --- points of one row -----------------------------------------------------------------------------

ADAM = Assignment({"adam.step": {"w": 1.0, "m": 2.0, "v": 4.0}})
POINTS = {"known_mistake": 6.0, "unrecognised": 6.0, "error": 0.0, "not read": 0.0}


@pytest.mark.parametrize(("status", "expected"), POINTS.items())
def test_compute_row_points_counts_correct_outputs(status, expected):
    """Only the outputs in `agreed` give points, and only if the answer was checked to the end."""
    row = Row("a.py", "", "adam.step", status, (), ("m", "v"), "w and m agree.")
    assert compute_row_points(row, ADAM) == expected


def test_compute_row_points_of_a_correct_answer():
    assert compute_row_points(Row("a.py", "", "adam.step", "pass"), ADAM) == 7.0


# --- templates -------------------------------------------------------------------------------------

TEXT_COLUMNS = ("evidence", "hint", "question")


def grade_everything(folder, out, homework, capsys):
    """Grade a class. Return its data (exit codes, scores, tables), and separately the feedback texts."""
    options = format_options(
        csv=out / "o.csv", grades=out / "g.csv", html=out / "p.html", assignment=homework
    )
    codes = [cli.main(["grade", str(folder), *options])]
    scores = []
    for path in sorted(folder.iterdir()):
        codes.append(
            cli.main(["check", str(path), *format_options(assignment=homework, gradescope=out / "r.json")])
        )
        scores.append(read_scores(out / "r.json"))
    capsys.readouterr()
    rows = read_table(out / "o.csv")
    texts = [row.pop(column) for row in rows for column in TEXT_COLUMNS]
    return (codes, scores, rows, (out / "g.csv").read_text(encoding="utf-8")), texts


def read_scores(path):
    """Return the scores in the file for Gradescope, without the texts."""
    results = json.loads(path.read_text(encoding="utf-8"))
    tests = [(test["name"], test["score"], test["max_score"], test["status"]) for test in results["tests"]]
    return results["score"], tests


def test_points_do_not_depend_on_templates(tmp_path, homework, uncached_grading, capsys, monkeypatch):
    folder = tmp_path / "class"
    folder.mkdir()
    for name, source in {"error": FORGED["error"], "partly": PARTLY_CORRECT}.items():
        write_text(folder / f"{name}.py", source)

    def grade(name):
        (tmp_path / name).mkdir()
        return grade_everything(folder, tmp_path / name, homework, capsys)

    data, texts = grade("plain")
    for name, change in (("x", lambda text: "x"), ("pseudo", pseudo)):
        catalog = in_other_words(change)
        monkeypatch.setattr(templates, "catalog", lambda catalog=catalog: catalog)
        other_data, other_texts = grade(name)
        assert other_data == data
        pairs = [pair for pair in zip(texts, other_texts, strict=True) if pair[0] and "is not" not in pair[0]]
        assert pairs and all(text != other_text for text, other_text in pairs)
