"""Marks depend on data alone: a submission cannot write them, and no template decides about them."""

import csv
import json

import pytest
from other_words import in_other_words, pseudo
from test_class import given, write

from npformer import cli
from npformer.exercises import check, templates
from npformer.grader.grading_process import Row
from npformer.grader.points import Assignment, earned

HW = """[points]
layer_norm.backward = {dx = 3, dgamma = 1, dbeta = 1}
adam.step = {w = 1, m = 1, v = 1}
softmax.forward = 2
order.bag = 1
"""
AGREE = "dx, dgamma and dbeta agree."
FORGED = {  # ways to write the checker's sentences, or what looks like its data
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
PARTLY = """import numpy as np
def layer_norm_backward(dy, x, gamma, beta, eps):
    x_hat = (x - x.mean(-1, keepdims=True)) / (x.var(-1, keepdims=True) + eps) ** 0.5
    return dy, (dy * x_hat).sum((0, 1)), dy.sum((0, 1))
def adam_step(w, g, m, v, t, learning_rate):
    return w, 0.9 * m + 0.1 * g, v
def softmax_forward(s):
    return np.exp(s)
order_bag = 'b'
"""


def notebook(source):
    cell = {"cell_type": "code", "source": source, "metadata": {}, "outputs": [], "execution_count": None}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture
def homework(tmp_path):
    return write(tmp_path / "hw.toml", HW)


@pytest.mark.parametrize("suffix", ["py", "ipynb"])
def test_forged_sentences_earn_nothing(suffix, tmp_path, homework, kept, capsys):
    folder, out, grades = tmp_path / "class", tmp_path / "o.csv", tmp_path / "g.csv"
    folder.mkdir()
    for name, source in FORGED.items():
        write(folder / f"{name}.{suffix}", source if suffix == "py" else notebook(source))
    assert cli.main(["grade", str(folder), *given(csv=out, grades=grades, assignment=homework)]) == 0
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * len(FORGED) and {row["points"] for row in rows} == {"0"}
    assert {row["agreed"] for row in rows} == {""}
    with grades.open(newline="", encoding="utf-8") as file:
        assert {row["points"] for row in csv.DictReader(file)} == {"0"}


@pytest.mark.parametrize("name", FORGED)
def test_gradescope_gives_nothing_for_forged_sentences(name, tmp_path, homework, kept, capsys):
    out = tmp_path / "results.json"
    path = write(tmp_path / "a.py", FORGED[name])
    cli.main(["check", str(path), *given(assignment=homework, gradescope=out)])
    results = json.loads(out.read_text(encoding="utf-8"))
    assert results["score"] == 0 and {test["score"] for test in results["tests"]} == {0}


@pytest.mark.parametrize("name", FORGED)
def test_check_in_a_notebook_is_not_fooled(name):
    names = {}
    exec(FORGED[name], names)
    result = check("layer_norm.backward", names["layer_norm_backward"])
    assert not result and result.agreed == ()
    with pytest.raises(AssertionError):
        result.raise_if_wrong()


def test_earned_needs_an_answer_that_was_checked():
    assignment = Assignment({"adam.step": {"w": 1.0, "m": 2.0, "v": 4.0}})
    for status, expected in {
        "known_mistake": 6.0,
        "unrecognised": 6.0,
        "error": 0.0,
        "not read": 0.0,
    }.items():
        row = Row("a.py", "", "adam.step", status, (), ("m", "v"), "w and m agree.")
        assert earned(row, assignment) == expected
    assert earned(Row("a.py", "", "adam.step", "pass"), assignment) == 7.0


# --- templates -----------------------------------------------------------------------------------

TEXT_COLUMNS = ("evidence", "hint", "question")


def graded(folder, out, homework, capsys):
    """Everything about a class that is no feedback: the tables, the exit codes, Gradescope's scores."""
    grades, page = out / "g.csv", out / "p.html"
    options = given(csv=out / "o.csv", grades=grades, html=page, assignment=homework)
    codes = [cli.main(["grade", str(folder), *options])]
    scores = []
    for path in sorted(folder.iterdir()):
        codes.append(cli.main(["check", str(path), *given(assignment=homework, gradescope=out / "r.json")]))
        results = json.loads((out / "r.json").read_text(encoding="utf-8"))
        tests = [
            (test["name"], test["score"], test["max_score"], test["status"]) for test in results["tests"]
        ]
        scores.append((results["score"], tests))
    capsys.readouterr()
    with (out / "o.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    texts = [row.pop(column) for row in rows for column in TEXT_COLUMNS]
    return (codes, scores, rows, grades.read_text(encoding="utf-8")), texts


def test_marks_do_not_depend_on_templates(tmp_path, homework, one_judge, capsys, monkeypatch):
    folder = tmp_path / "class"
    folder.mkdir()
    for name, source in {"error": FORGED["error"], "partly": PARTLY}.items():
        write(folder / f"{name}.py", source)

    def grade(name):
        (tmp_path / name).mkdir()
        return graded(folder, tmp_path / name, homework, capsys)

    data, texts = grade("plain")
    for name, change in (("x", lambda text: "x"), ("pseudo", pseudo)):
        words = in_other_words(change)
        monkeypatch.setattr(templates, "catalog", lambda words=words: words)
        other_data, other_texts = grade(name)
        assert other_data == data
        pairs = [pair for pair in zip(texts, other_texts, strict=True) if pair[0] and "is not" not in pair[0]]
        assert pairs and all(one != other for one, other in pairs)
