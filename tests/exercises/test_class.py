"""Files and classes: what a student hands in, however it fails, becomes rows; the commands around it."""

import csv
import json
import os
import runpy
import sys

import pytest

from npformer import cli
from npformer.exercises import worker
from npformer.exercises.bank import bank
from npformer.exercises.grading import Limits, Row, grade, grade_one, submissions, summary, write_csv
from npformer.exercises.recipes import posed
from npformer.exercises.submissions import answer_of, read_submission

PE = """
import numpy as np

def pe_table(n, d_model):
    j = np.arange(d_model)
    angles = np.arange(n)[:, None] / 10000 ** ({exponent} / d_model)
    return np.where(j % 2 == 0, np.sin(angles), np.cos(angles))
"""
RIGHT, COLUMN = PE.format(exponent="2 * (j // 2)"), PE.format(exponent="2 * j")
ON_UNIX = pytest.mark.skipif(sys.platform == "win32", reason="needs the system's limits")


def notebook(*cells):
    return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]})


def written(folder, name, text):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def read_rows(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# --- reading one submission -----------------------------------------------------------------------


def answers(path, *ids):
    submission = read_submission(path)
    return [answer_of(submission, bank()[i]) for i in ids], submission.problem


def test_a_file_answers_by_names_and_by_a_dict(tmp_path):
    path = written(tmp_path, "a.py", "order_bag = 'b'\nanswers = {'pe.even': 'a'}\nffn_bend = True\n")
    assert answers(path, "order.bag", "pe.even", "ffn.bend", "pe.pair") == (["b", "a", True, None], "")


def test_what_is_imported_from_npformer_is_no_answer(tmp_path):
    path = written(tmp_path, "a.py", "from npformer import softmax_forward\n")
    assert answers(path, "softmax.forward") == ([None], "")


def test_a_notebook_runs_its_cells_and_leaves_its_magic_out(tmp_path):
    cells = [
        "%matplotlib inline\n!ls\norder_bag = 'b'",
        "%%bash\nexit",
        "1 / 0",
        ["pe_even = ", "'b'"],
        "display(1)",
    ]
    path = written(tmp_path, "a.ipynb", notebook(*cells))
    assert answers(path, "order.bag", "pe.even") == (
        ["b", "b"],
        "code cell 3, line 1: ZeroDivisionError: division by zero.",
    )


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.py", "x = 1\nraise SystemExit", "a.py, line 2: SystemExit."),
        ("a.py", "def f(:", "a.py, line 1: this is not Python yet (invalid syntax)."),
        ("a.py", "x = '\0'", "a.py"),
        ("a.ipynb", "no", "The file cannot be read: Expecting value: line 1 column 1 (char 0)."),
        ("a.ipynb", "[]", "The file cannot be read: it has no cells."),
        (
            "a.ipynb",
            '{"cells": [{"cell_type": "code", "source": 3}]}',
            "The file cannot be read: can only join",
        ),
        ("a.ipynb", "[" * 10**5, "The file cannot be read: maximum recursion depth exceeded"),
    ],
)
def test_what_cannot_be_read_is_one_line(name, text, problem, tmp_path):
    submission = read_submission(written(tmp_path, name, text))
    assert submission.problem.startswith(problem) and "\n" not in submission.problem
    assert submission.student == ""


def test_a_student_is_a_name(tmp_path):
    assert read_submission(written(tmp_path, "a.py", "student = 'Ada'")).student == "Ada"
    assert read_submission(written(tmp_path, "a.py", "student = 7")).student == ""


# --- the worker, in this process ------------------------------------------------------------------


class Ended(Exception):
    pass


@pytest.fixture
def work(tmp_path):
    """Run a worker here: its report goes to a file, its limits and its end are only noted."""

    def end(code):
        raise Ended(code)

    def run(text, *ids):
        report, limits = tmp_path / "report", []
        path = written(tmp_path, "a.py", text)
        with report.open("w") as file, pytest.MonkeyPatch.context() as patch:
            patch.setattr(worker.os, "dup", lambda fd: fd)
            patch.setattr(worker.os, "dup2", lambda a, b: None)
            patch.setattr(worker.os, "fdopen", lambda *args, **options: file)
            patch.setattr(worker.os, "_exit", end)
            patch.setattr(worker, "_limit", limits.append)
            with pytest.raises(Ended):
                worker.main([str(path), "2", "99", *ids])
        assert limits == [99]
        return [json.loads(line) for line in report.read_text().splitlines()]

    return run


def test_a_worker_reports_line_by_line(work):
    number = posed("pe_entry", "pe.entry", "Ada").answer
    text = f"{COLUMN}\nstudent = 'Ada'\npe_entry = {number}\ndef softmax_forward(s): ..."
    head, *rows = work(text, "pe.table", "pe.entry", "order.bag", "softmax.forward")
    assert head == {"student": "Ada", "problem": ""}
    assert [row["exercise"] for row in rows] == ["pe.table", "pe.entry", "order.bag", "softmax.forward"]
    assert [row["status"] for row in rows] == ["known_mistake", "pass", "not answered", "not answered"]
    assert rows[0]["codes"] == ["PE-EXP-COLUMN"]


def test_a_worker_says_what_was_not_read(work):
    head, row = work("1 / 0", "pe.table")
    assert (
        row["status"] == "not read"
        and row["evidence"] == head["problem"] == "a.py, line 1: ZeroDivisionError: division by zero."
    )


def test_python_m_runs_a_worker(monkeypatch, tmp_path):
    path, report = written(tmp_path, "a.py", "order_bag = 'b'"), tmp_path / "report"
    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.setattr(sys, "argv", ["worker", str(path), "1", "99", "order.bag"])
    monkeypatch.delitem(sys.modules, "npformer.exercises.worker")
    with report.open("w") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "dup", lambda fd: fd)
        patch.setattr(os, "dup2", lambda a, b: None)
        patch.setattr(os, "fdopen", lambda *args, **options: file)
        patch.setattr(os, "_exit", lambda code: None)
        runpy.run_module("npformer.exercises.worker", run_name="__main__")
    assert json.loads(report.read_text().splitlines()[1])["status"] == "pass"


class Resource:
    RLIMIT_AS, RLIMIT_FSIZE = 1, 2

    def __init__(self):
        self.set = {}

    def setrlimit(self, what, most):
        if what == self.RLIMIT_AS:
            raise OSError("not here")
        self.set[what] = most


def test_limits_hold_where_the_system_has_them(monkeypatch):
    resource = Resource()
    monkeypatch.setitem(sys.modules, "resource", resource)
    worker._limit(10)
    assert resource.set == {Resource.RLIMIT_FSIZE: (worker.LARGEST_FILE, worker.LARGEST_FILE)}
    monkeypatch.setitem(sys.modules, "resource", None)
    worker._limit(10)


# --- processes that fail in every way -------------------------------------------------------------

BAD = """
import os, sys
def softmax_forward(s):
    {how}
answers = {{"order.bag": "b", "pe.even": "b"}}
"""
IDS = ("order.bag", "softmax.forward", "pe.even")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("while True: pass", "It was still running after 4 seconds."),
        ("os._exit(3)", "It ended the program."),
        ("sys.exit(3)", "It stopped with SystemExit: 3, in line 2 of softmax_forward."),
        (
            "return input('?')",
            "It stopped with EOFError: EOF when reading a line, in line 2 of softmax_forward.",
        ),
        (
            "for i in range(1000): print('x' * 10**6)",
            "Nothing was answered yet.",
        ),
        pytest.param("return bytearray(10**12)", "It stopped with MemoryError", marks=ON_UNIX),
    ],
)
def test_a_function_that_fails_is_one_row_and_the_others_are_checked(how, said, tmp_path):
    path = written(tmp_path, "a.py", BAD.format(how=how))
    rows = grade_one(path, IDS, Limits(seconds=4))
    assert [row.exercise for row in rows] == list(IDS)
    assert [rows[0].status, rows[2].status] == ["pass", "pass"]
    assert rows[1].status in ("error", "not answered") and rows[1].evidence.startswith(said)


def test_a_file_that_does_not_end_is_not_read(tmp_path):
    path = written(tmp_path, "a.py", "while True: pass")
    rows = grade_one(path, IDS, Limits(seconds=2))
    assert {(row.status, row.evidence) for row in rows} == {
        ("not read", "It was still running after 2 seconds.")
    }
    assert len(rows) == 3


@ON_UNIX
def test_a_file_that_multiplies_keeps_nobody_waiting(tmp_path):
    path = written(tmp_path, "a.py", "import os\nif os.fork() == 0:\n    while True: pass\norder_bag = 'b'")
    rows = grade_one(path, ("order.bag", "pe.even"), Limits(seconds=3))
    assert [row.status for row in rows] == ["pass", "not answered"]
    path = written(tmp_path, "b.py", "import os\nos.fork()\norder_bag = 'b'")
    rows = grade_one(path, ("order.bag", "pe.even"), Limits(seconds=3))
    assert [row.status for row in rows] == ["pass", "not answered"]


def test_a_system_without_process_groups(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "killpg", raising=False)
    path = written(tmp_path, "a.py", "while True: pass")
    assert grade_one(path, ("order.bag",), Limits(seconds=1))[0].status == "not read"


# --- a class --------------------------------------------------------------------------------------


@pytest.fixture
def classroom(tmp_path):
    folder = tmp_path / "class"
    folder.mkdir()
    written(folder, "ada.py", f"{RIGHT}\nstudent = 'Ada'\nanswers = {{'pe.even': 'a'}}")
    written(folder, "ben.ipynb", notebook(COLUMN, "order_bag = 'a'"))
    written(folder, "sub/cem.py", f"{COLUMN}\nstudent = '=1+1'")
    written(folder, "dot.ipynb", "not a notebook")
    written(folder, "notes.txt", "no submission")
    written(folder, ".ipynb_checkpoints/ben.ipynb", notebook(COLUMN))
    return folder


def test_a_class_is_graded_alike_by_any_number_of_workers(classroom, tmp_path, capsys):
    outs = []
    for workers in (1, 3):
        out = tmp_path / f"{workers}.csv"
        ids = "--only=pe.table,order.bag, pe.even"
        assert cli.main(["grade", str(classroom), "--csv", str(out), ids, "--workers", str(workers)]) == 0
        shown, err = capsys.readouterr()
        names = ["ada.py", "ben.ipynb", "dot.ipynb", "sub/cem.py"]
        assert err.splitlines() == [f"{i} of 4  {name}" for i, name in enumerate(names, 1)]
        outs.append((out.read_bytes(), shown.replace(str(out), "")))
    assert outs[0] == outs[1]
    rows = read_rows(out)
    assert len(rows) == 4 * 3 and list(rows[0]) == list(Row._fields)
    assert {i: row["codes"] for i, row in enumerate(rows) if row["codes"]} == {
        2: "PE-SWAPPED",
        3: "PE-EXP-COLUMN",
        4: "CF-PAIRS-ARE-ORDER",
        9: "PE-EXP-COLUMN",
    }
    assert rows[-1]["student"] == "'=1+1" and rows[6]["status"] == "not read"
    assert shown.splitlines()[:3] == [
        "4 submissions, 5 answers, 1 right.",
        "The commonest patterns, and how many students:",
        "     2  PE-EXP-COLUMN  in pe.table; teach 01, section 1.3, The formula",
    ]
    assert "Not read to the end: dot.ipynb." in shown


def test_without_a_choice_the_whole_bank_is_graded(tmp_path, capsys):
    written(tmp_path, "ada.py", "pe_pair = -1\npe_table = 3")
    assert cli.main(["grade", str(tmp_path), "--csv", str(tmp_path / "out.csv")]) == 0
    assert len(read_rows(tmp_path / "out.csv")) == len(bank())
    out = capsys.readouterr().out
    assert "Explained by no known mistake:" in out and "pe.pair; teach 01, section 1.3" in out


def test_a_summary_of_nothing_is_short():
    assert summary([]) == "0 submissions, 0 answers, 0 right."


def test_formulas_stay_text(tmp_path):
    row = Row("a.py", "@x", "-1", "+1", "", "=SUM(A1)", "", "")
    write_csv([row], tmp_path / "out.csv")
    assert list(read_rows(tmp_path / "out.csv")[0].values()) == [
        "a.py",
        "'@x",
        "'-1",
        "'+1",
        "",
        "'=SUM(A1)",
        "",
        "",
    ]


def test_grading_tells_nobody_unless_asked(tmp_path):
    written(tmp_path, "ada.py", "order_bag = 'b'")
    assert [row.status for row in grade(tmp_path, ["order.bag"])] == ["pass"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["grade", "{}/none", "--csv", "{}/o.csv"], "there is no folder '{}/none'"),
        (["grade", "{}", "--csv", "{}/o.csv"], "no .py or .ipynb file in '{}'"),
        (["grade", "{}", "--csv", "{}/none/o.csv"], "there is no folder '{}/none'"),
        (["grade", "{}", "--csv", "{}/o.csv", "--only", "pe.tabel"], "there is no exercise 'pe.tabel'"),
        (["check", "{}/none.py"], "there is no file '{}/none.py'"),
        (["show", "pe.tabel"], "there is no exercise 'pe.tabel'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(arguments, message, tmp_path, capsys):
    assert cli.main([a.format(tmp_path) for a in arguments]) == 2
    assert message.format(tmp_path) in capsys.readouterr().err


# --- the other commands ---------------------------------------------------------------------------


def test_a_file_is_checked(tmp_path, capsys):
    path = written(tmp_path, "ada.py", f"{COLUMN}\norder_bag = 'b'\n1 / 0")
    assert cli.main(["check", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Not read to the end. ada.py, line 10: ZeroDivisionError: division by zero.\n")
    assert "order.bag: Right\n  Every check agrees.\n" in out
    assert "pe.table: Not yet: this pattern is known\n" in out and "Which columns share one i?" in out
    assert out.endswith(f"1 right of 2 answered; the bank has {len(bank())}.\n")


def test_the_bank_and_an_exercise_are_shown(capsys):
    assert cli.main(["exercises"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(bank())
    assert cli.main(["show", "pe.table"]) == 0
    assert "Answer with a function pe_table(n, d_model)." in capsys.readouterr().out


def test_the_help_says_what_the_shelter_is_not(capsys):
    with pytest.raises(SystemExit):
        cli.main(["grade", "--help"])
    assert "not a sandbox" in " ".join(capsys.readouterr().out.split())


def test_submissions_come_in_order_of_name(classroom):
    assert [p.name for p in submissions(classroom)] == ["ada.py", "ben.ipynb", "dot.ipynb", "cem.py"]
