"""Tests of `worker`, which runs a submission and reads its answers. Here it is a thread of this process."""

import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hostile
import pytest
from honest import make_notebook

from npformer.grader.worker import server as worker_server
from npformer.grader.worker.student_module import find_answer, run_submission

# --- rows ------------------------------------------------------------------------------------------

BLOCK = re.compile(r"^=== (py|ipynb) (\S+) (\w+) \|(.*)\n((?:(?!===|# ---).*\n)*)", re.MULTILINE)
EXPECTED_ROWS = BLOCK.findall(Path(__file__).with_name("expected_rows.txt").read_text("utf-8"))


def test_expected_rows_are_all_read():
    assert len(EXPECTED_ROWS) > 40


@pytest.mark.parametrize(("kind", "exercise_id", "status", "expected", "text"), EXPECTED_ROWS)
def test_grade_reports_each_kind_of_answer(thread_grader, kind, exercise_id, status, expected, text):
    data = text.encode() if kind == "py" else make_notebook(*text.rstrip("\n").split("\n\n"))
    (row,) = thread_grader.grade(f"a.{kind}", data, [exercise_id])
    expected = expected.strip()
    assert row.status.replace(" ", "_") == status
    assert expected in row.evidence
    if expected.endswith("."):
        assert row.evidence.endswith(expected)
    assert row.evidence.count("did you mean") == expected.count("did you mean")


# --- run_submission --------------------------------------------------------------------------------

MINUS_SIGNS = "x = " + "-" * 100_000 + "1"
PROBLEMS = {  # a file's name and bytes, its answer to order.bag, and the start of the reported problem
    "number as student": ("a.py", b"student = 3\nx = '\0'", None, "line 2: "),
    "Windows encoding": ("a.py", "# coding: cp1252\norder_bag = '€'".encode("cp1252"), "€", ""),
    "unknown encoding": ("a.py", b"# coding: klingon\norder_bag = '\xe9'", "é", ""),
    "error in a library": (
        "(1).py",
        b"import json\njson.loads('')",
        None,
        "line 2: JSONDecodeError: ",
    ),
    "empty notebook": ("a.ipynb", b" ", None, "The file cannot be read: it is empty."),
    "no JSON": (
        "a.ipynb",
        b"no",
        None,
        "The file cannot be read: it is no notebook: Expecting value: line 1 column 1",
    ),
    "no cells": ("a.ipynb", b"[]", None, "The file cannot be read: it has no cells."),
    "number as source": ("a.ipynb", make_notebook(3), None, "The file cannot be read: can only join"),
    "nested": ("a.ipynb", b"[" * 10**5, None, "The file cannot be read: it is nested too deeply."),
    "minus signs": (
        "a.ipynb",
        make_notebook(MINUS_SIGNS, "order_bag = 'b'"),
        "b",
        "code cell 1, line 1: the statement is nested too deeply;",
    ),
}


def run(name, data):
    """Run a submission. Return its answer to order.bag, and the reported problem."""
    student_module = run_submission(name, data)
    return find_answer(student_module, "order.bag"), student_module.problem


@pytest.mark.parametrize(("name", "data", "expected", "start"), PROBLEMS.values(), ids=PROBLEMS)
def test_run_submission_reports_problems_in_one_line(name, data, expected, start):
    answer, problem = run(name, data)
    assert answer == expected
    assert problem.startswith(start) and bool(problem) == bool(start)
    assert "\n" not in problem


MAGIC_CELLS = (
    "%%time\n%matplotlib inline\n!ls\nif 1:\n    len?\n    order_bag = 'b'",
    ">>> x = 1\n>>> y = 2",
)


def test_run_submission_translates_magics_with_ipython():
    pytest.importorskip("IPython")
    assert run("a.ipynb", make_notebook(*MAGIC_CELLS)) == ("b", "")


def test_run_submission_removes_magics_without_ipython(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython.core.inputtransformer2", None)
    answer, problem = run("a.ipynb", make_notebook(*MAGIC_CELLS))
    assert answer == "b" and problem.startswith("code cell 2, line 1: this is not Python")


# --- the server ------------------------------------------------------------------------------------


def test_leave_search_path_removes_our_directory(monkeypatch):
    monkeypatch.setattr(sys, "path", ["/ours", "/home", "/packages"])
    monkeypatch.setenv("PYTHONPATH", "/ours:/home:/packages")
    worker_server.leave_search_path()
    assert sys.path == ["/packages"] and os.environ["PYTHONPATH"] == "/home:/packages"


@pytest.fixture
def fake_finder(monkeypatch):
    """Call `hide_npformer`, and return the finder that imports a replacement for npformer."""
    modules = {"npformer": 1, "npformer.exercises.bank": 2, "__main__": worker_server, "os": os}
    monkeypatch.setattr(sys, "modules", modules)
    monkeypatch.setattr(sys, "meta_path", [])
    worker_server.hide_npformer()
    return sys.meta_path[0]


def test_hide_npformer_removes_its_modules(fake_finder):
    assert sorted(sys.modules) == ["__main__", "os"] and not hasattr(sys.modules["__main__"], "__file__")
    assert fake_finder.find_spec("numpy") is None and fake_finder.create_module(None) is None


def test_hide_npformer_replaces_it(fake_finder):
    package: Any = SimpleNamespace(__name__="npformer")
    exercises: Any = SimpleNamespace(__name__="npformer.exercises")
    for module in (package, exercises):
        assert fake_finder.find_spec(module.__name__).name == module.__name__
        fake_finder.exec_module(module)
    with pytest.raises(AttributeError):
        package.__getattr__("__path__")
    with pytest.raises(RuntimeError, match="ffn_forward is npformer's own: write your own"):
        package.__getattr__("ffn_forward")(1)
    assert exercises.__getattr__("check")("pe.table", 3) is True


ODD_CASES = {name: case for name, case in hostile.read_cases().items() if "odd" in case.flags}
ODD_CASES |= {name: case for name, case in hostile.FILES.items() if name != "plots.py"}  # plots.py takes long


def test_odd_cases_are_all_read():
    assert len(ODD_CASES) > 55


@pytest.mark.parametrize("name", ODD_CASES)
def test_grade_odd_answers_cost_only_themselves(thread_grader, name):
    """These files harm no process, so they need no sandbox. test_grader.py grades the other files."""
    case = ODD_CASES[name]
    rows = thread_grader.grade(name, hostile.encode(case.text), hostile.IDS)
    assert [row.exercise for row in rows] == list(hostile.IDS)
    for row, allowed in zip(rows, case.allowed, strict=True):
        assert row.status in hostile.STATUSES[allowed], row


def test_serve_submission_ends_a_forked_copy(thread_grader):
    process_ids = iter([1, 2])
    worker_server.os.getpid = lambda: next(process_ids)
    (row,) = thread_grader.grade("a.py", b"order_bag = 'b'", ["order.bag"])
    assert (row.status, row.evidence) == ("not read", "The code ended the program.")
