"""Files and classes: what a student hands in, however it fails, becomes rows; the commands around it."""

import csv
import json
import sys

import pytest

from npformer import cli
from npformer.exercises.grader.grading import Row, grade, grade_one, submissions, write_csv
from npformer.exercises.grader.judging import Limits
from npformer.exercises.grader.reports import summary
from npformer.exercises.grader.submissions import answer_of, decoded, read_submission, said
from npformer.exercises.topics import bank

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


def answers(name, text, *ids):
    submission = read_submission(name, text if isinstance(text, bytes) else text.encode())
    return [answer_of(submission, i) for i in ids], submission.problem


def test_a_file_answers_by_names_and_by_a_dict():
    text = "order_bag = 'b'\nanswers = {'pe.even': 'a'}\nffn_bend = True\n"
    assert answers("a.py", text, "order.bag", "pe.even", "ffn.bend", "pe.pair") == (
        ["b", "a", True, None],
        "",
    )


def test_a_notebook_runs_its_cells_and_leaves_its_magic_out():
    cells = [
        "%matplotlib inline\n!ls\norder_bag = 'b'",
        "%%bash\nexit",
        "1 / 0",
        ["pe_even = ", "'b'"],
        "display(1)",
    ]
    assert answers("a.ipynb", notebook(*cells), "order.bag", "pe.even") == (
        ["b", "b"],
        "code cell 3, line 1: ZeroDivisionError: division by zero.",
    )


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.py", "x = 1\nraise SystemExit", "a.py, line 2: SystemExit."),
        ("a.py", "raise KeyboardInterrupt", "a.py, line 1: KeyboardInterrupt."),
        ("a.py", "def f(:", "a.py, line 1: this is not Python yet (invalid syntax)."),
        ("a.py", "x = '\0'", "a.py"),
        ("a.ipynb", " ", "The file cannot be read: it is empty."),
        (
            "a.ipynb",
            "no",
            "The file cannot be read: it is no notebook: Expecting value: line 1 column 1 (char 0).",
        ),
        ("a.ipynb", "[]", "The file cannot be read: it has no cells."),
        ("a.ipynb", "{}", "The file cannot be read: it has no cells."),
        (
            "a.ipynb",
            '{"cells": [{"cell_type": "code", "source": 3}]}',
            "The file cannot be read: can only join",
        ),
        ("a.ipynb", "[" * 10**5, "The file cannot be read: it is nested too deeply."),
    ],
)
def test_what_cannot_be_read_is_one_line(name, text, problem):
    submission = read_submission(name, text.encode())
    assert submission.problem.startswith(problem) and "\n" not in submission.problem
    assert submission.student == ""


def test_bad_cells_are_named_with_their_numbers():
    _, problem = answers("a.ipynb", notebook("x = 1", "def f(:", "x = 2", "1 / 0", "y", "z"))
    assert problem.startswith("code cell 2, line 1: this is not Python yet")
    assert "code cell 4, line 1: ZeroDivisionError" in problem and "code cell 5, line 1: NameError" in problem
    assert "code cell 6" not in problem, "three are enough to say"


def test_a_student_is_a_name():
    assert read_submission("a.py", b"student = 'Ada'").student == "Ada"
    assert read_submission("a.py", b"student = 7").student == ""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1"])
def test_files_are_read_in_the_encodings_that_students_have(encoding):
    assert answers("a.py", "x = 'Zoë'\norder_bag = 'b'".encode(encoding), "order.bag") == (["b"], "")
    assert answers("a.ipynb", notebook("order_bag = 'é'").encode(encoding), "order.bag") == (["é"], "")


def test_a_file_may_name_its_encoding():
    text = "# coding: cp1252\norder_bag = '\u20ac'".encode("cp1252")
    assert answers("a.py", text, "order.bag") == (["\u20ac"], "")
    assert decoded(b"# coding: klingon\nx = '\xe9'", python=True).endswith("'\xe9'")


def test_an_old_notebook_is_upgraded():
    sheets = {"worksheets": [{"cells": [{"cell_type": "code", "input": ["order_bag = ", "'b'"]}]}]}
    assert answers("a.ipynb", json.dumps(sheets), "order.bag") == (["b"], "")


CELLS = {
    "%%time\nx = 1": {"x": 1},
    "\n%%timeit -n 1\n%%capture out\nx = 1": {"x": 1},
    "%%bash\nx=1": {},
    "%%html\n<b>": {},
    "x = 1\n%time y = 2": {"x": 1, "y": 2},
    "%%time\n%timeit": {},
    "!ls \\\n  -la \\\n -h\nx = 1": {"x": 1},
    "x = 7 % 4\nif x != 2:\n    %matplotlib inline\n    y = x": {"x": 3, "y": 3},
    "import math\nmath.sin?\n?math\nx = 1": {"x": 1},
    "files = !ls\nx = 1": {"x": 1},
    "get_ipython().run_cell_magic('time', '', 'x = 1')": {"x": 1},
    "get_ipython().run_cell_magic('bash', '', 'x=1')": {},
    "get_ipython().run_line_magic('time', 'x = 1')\nget_ipython().run_line_magic('matplotlib', 'inline')": {
        "x": 1
    },
}


@pytest.mark.parametrize("source", CELLS)
@pytest.mark.parametrize("installed", [True, False])
def test_magics_go_and_the_code_stays(source, installed, monkeypatch):
    if not installed:
        monkeypatch.setitem(sys.modules, "IPython.core.inputtransformer2", None)
    submission = read_submission("a.ipynb", notebook(source).encode())
    assert submission.problem == ""
    assert {key: submission.names[key] for key in "xy" if key in submission.names} == CELLS[source]


def test_an_error_that_cannot_be_said_is_named():
    class Mute(Exception):
        def __str__(self):
            raise ValueError

    assert said(Mute()) == "Mute"


# --- one file, in processes that fail in every way --------------------------------------------------

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
        ("while True: pass", "It was still running after 0.5 seconds."),
        ("os._exit(3)", "It ended the program."),
        ("sys.exit(3)", "It stopped with SystemExit: 3, in line 2 of softmax_forward."),
        (
            "return input('?')",
            "It stopped with EOFError: EOF when reading a line, in line 2 of softmax_forward.",
        ),
        ("for i in range(10): print('x' * 10**6)", "The function runs, and returns nothing (None)."),
        ("raise NotImplementedError", "Nothing was answered yet."),
        pytest.param("return bytearray(10**12)", "It stopped with MemoryError", marks=ON_UNIX),
    ],
)
def test_a_function_that_fails_is_one_row_and_the_others_are_checked(how, said, tmp_path):
    path = written(tmp_path, "a.py", BAD.format(how=how))
    rows = grade_one(path, IDS, Limits(seconds=1))
    assert [row.exercise for row in rows] == list(IDS)
    assert [rows[0].status, rows[2].status] == ["pass", "pass"]
    assert rows[1].status in ("error", "not answered") and rows[1].evidence.startswith(said)


def test_what_is_npformers_own_is_told_so(tmp_path):
    text = "from npformer import softmax_forward\nimport npformer\n"
    text += "def pe_table(n, d): return npformer.positional_encoding(n, d)\n"
    path = written(tmp_path, "a.py", text)
    rows = grade_one(path, ("softmax.forward", "pe.table"))
    assert [row.status for row in rows] == ["error", "error"]
    assert rows[0].evidence == "softmax_forward is npformer's own: write your own."
    assert "positional_encoding is npformer's own: write your own, in line 1 of pe_table" in rows[1].evidence


def test_a_file_that_does_not_end_is_not_read(tmp_path):
    path = written(tmp_path, "a.py", "while True: pass")
    rows = grade_one(path, IDS, Limits(seconds=0.5))
    assert {(row.status, row.evidence) for row in rows} == {
        ("not read", "It was still running after 0.5 seconds.")
    }
    assert len(rows) == 3


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
    row = Row("a.py", "@x", "-1", "+1", "\t=1", "=SUM(A1)", "\r=1", "")
    write_csv([row], tmp_path / "out.csv")
    assert list(read_rows(tmp_path / "out.csv")[0].values()) == [
        "a.py",
        "'@x",
        "'-1",
        "'+1",
        "'\t=1",
        "'=SUM(A1)",
        "'\r=1",
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
        (["show", "pe.tabel"], "there is no exercise 'pe.tabel'; did you mean 'pe.table'? list_exercises()"),
        (["show", "xyz"], "there is no exercise 'xyz'; list_exercises() shows all"),
        (["check", __file__, "--points", "{}/none.toml"], "check: there is no file '{}/none.toml'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(arguments, message, tmp_path, capsys):
    assert cli.main([a.format(tmp_path) for a in arguments]) == 2
    assert message.format(tmp_path) in capsys.readouterr().err


# --- the other commands ---------------------------------------------------------------------------


def test_a_file_is_checked(tmp_path, capsys):
    path = written(tmp_path, "ada.py", f"{COLUMN}\norder_bag = 'b'\n1 / 0")
    assert cli.main(["check", str(path)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("Not read to the end. ada.py, line 10: ZeroDivisionError: division by zero.\n")
    assert "order.bag: Right\n  Every check agrees.\n" in out
    assert "pe.table: Not yet: this pattern is known\n" in out and "Which columns share one i?" in out
    assert out.endswith(f"1 right of 2 answered; the bank has {len(bank())}.\n")


def test_what_is_missing_in_a_file_is_named(tmp_path, capsys):
    path = written(tmp_path, "ada.py", "order_bag = 'b'")
    assert cli.main(["check", str(path), "--only", "order.bag,pe.table,pe.even"]) == 1
    assert "\nNot answered: pe.table, pe.even.\n" in capsys.readouterr().out
    assert cli.main(["check", str(path), "--only", "order.bag"]) == 0
    assert "Not answered" not in capsys.readouterr().out


def test_an_answer_under_a_name_of_no_exercise_is_named(tmp_path, capsys):
    path = written(tmp_path, "ada.py", "answers = {'order.bag': 'b', 'pe.evn': 3}")
    assert cli.main(["check", str(path)]) == 0
    said = capsys.readouterr().out
    assert said.count("answers has 'pe.evn', which is no exercise.") == 1 and "order.bag: Right" in said


def test_a_file_without_an_answer_is_told_how_to_give_one(tmp_path, capsys):
    assert cli.main(["check", str(written(tmp_path, "ada.py", "tabel = 1"))]) == 1
    assert capsys.readouterr().out.startswith(
        "No answer was found. The exercise pe.table is answered by the top"
    )


def test_the_bank_and_an_exercise_are_shown(capsys):
    assert cli.main(["exercises"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(bank())
    assert cli.main(["show", "pe.table"]) == 0
    assert "Answer with a function pe_table(n, d_model); it changes no argument." in capsys.readouterr().out


def test_the_help_says_what_the_shelter_is_not(capsys):
    with pytest.raises(SystemExit):
        cli.main(["grade", "--help"])
    assert "not a sandbox" in " ".join(capsys.readouterr().out.split())


def test_submissions_come_in_order_of_name(classroom):
    assert [p.name for p in submissions(classroom)] == ["ada.py", "ben.ipynb", "dot.ipynb", "cem.py"]
