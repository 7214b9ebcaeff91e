"""Tests of the commands check, grade and assignment: their output, and the options that they reject."""

import json
import os
from typing import Any

import numpy as np
import pytest
from class_files import write_text

from npformer import cli
from npformer.exercises import check, list_exercises, show
from npformer.grader import supervisor

# --- check -----------------------------------------------------------------------------------------

WRONG = "import numpy as np\nstudent = 'Ada'\norder_bag = 'b'\ndef pe_table(n, d):\n    return np.zeros((n, d))\n1 / 0"
CHECKS = (  # a file, the options, the exit code, and a part of the output
    (WRONG, [], 1, "Problems in the file: line 6: ZeroDivisionError: division by zero; the statement was skipped.\n"),
    ("import torch\norder_bag = 'b'", [], 0, "Problems in the file: line 1: torch is not installed here.\n"),
    ("import torch\npe_evn = 1", ["--only=pe.even"], 1, "The file has pe_evn: did you mean pe_even?\n"),
    ("def f(:\npe_evn = 1", ["--only=pe.even"], 1, "Correct: 0 of 0.\n"),
    (WRONG, [], 1, "order.bag: Correct\n  Your answer passes every check.\n\n"),
    (WRONG, [], 1, "pe.table: Not yet"),
    (WRONG.removesuffix("\n1 / 0"), [], 1, f"Answered: 2 of {len(list_exercises())} exercises. Correct: 1 of 2.\n"),
    ("order_bag = 'b'", [], 0, "order.bag: Correct"),
    ("order_bag = 'b'", ["--exercises=order.bag"], 0, "Answered: 1 of 1 exercises. Correct: 1 of 1."),
    ("order_bag = 'b'", ["--only=order.bag,pe.even,pe.table"], 1, "\nNot answered: pe.even, pe.table.\n"),
    ("order_bag = 'a'", ["--exercises=order.bag", "--level=1"], 1, "Correct: 0 of 1."),
    ("order_bag = 'a'", ["--exercises=order.bag", "--level=2"], 1, "order.bag: Not yet"),
    ("answers = {'order.bag': 'b', 'pe.evn': 3}", [], 0, "The file has pe.evn: did you mean pe_even?"),
    ("def pe_tabel(n, d): return n", [], 1, "The file has pe_tabel: did you mean pe_table?"),
    ("tabel = 1", [], 1, "No answer was found. The answer to the exercise pe.table is a function"),
    ("from npformer import softmax_forward", ["--only=softmax.forward"], 1, "softmax_forward is npformer's own: write your own”"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "options", "code", "expected"), CHECKS)
def test_check_exit_code_and_output(text, options, code, expected, tmp_path, capsys, cached_grading):
    path = write_text(tmp_path / "ada.py", text)
    assert cli.main(["check", str(path), *options]) == code
    assert expected in capsys.readouterr().out


@pytest.fixture
def gradescope_command(tmp_path):
    """The arguments of the command that Gradescope runs on a folder with one file."""
    folder = tmp_path / "submission"
    folder.mkdir()
    write_text(folder / "whatever name.py", "order_bag = 'b'")
    results_path = tmp_path / "results.json"
    return ["check", str(folder), "--gradescope", str(results_path), "--exercises=order.bag,pe.even"]


def test_check_writes_results_for_gradescope(gradescope_command, tmp_path, cached_grading):
    assert cli.main(gradescope_command) == 1
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["score"] == 1 and [test["status"] for test in results["tests"]] == ["passed", "failed"]
    assert results["tests"][0] == {
        "name": "order.bag", "score": 1.0, "max_score": 1.0, "status": "passed",
        "output": "Correct\nYour answer passes every check.", "output_format": "text", "visibility": "visible",
    }  # fmt: skip


def test_check_reports_errors_to_gradescope(gradescope_command, tmp_path, capsys, cached_grading):
    write_text(tmp_path / "submission" / "second.py", "order_bag = 'b'")
    assert cli.main(gradescope_command) == 2
    assert "contains 2 files with answers; expected one" in capsys.readouterr().err
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["score"], results["tests"]) == (0, []) and "contains 2 files" in results["output"]


def test_check_reads_modules_beside_the_answers(tmp_path, capsys, cached_grading):
    write_text(tmp_path / "hw1.py", "from helper import LETTER\norder_bag = LETTER")
    write_text(tmp_path / "helper.py", "LETTER = open('letter.txt').read()")
    write_text(tmp_path / "letter.txt", "b")
    assert cli.main(["check", str(tmp_path), "--only=order.bag"]) == 0
    assert "Correct: 1 of 1." in capsys.readouterr().out


def test_check_rejects_a_folder_of_many_files(tmp_path, capsys):
    for i in range(21):
        write_text(tmp_path / f"{i}.py", "")
    assert cli.main(["check", str(tmp_path)]) == 2
    assert "contains 21 files to check; expected one" in capsys.readouterr().err


# --- rejected options ------------------------------------------------------------------------------

GRADE = "grade {} --csv={}/o.csv"
REJECTED = (  # a command, and a part of the message; {} is the folder
    ("grade {}/none --csv={}/o.csv", "there is no file or folder '{}/none'"),
    ("grade {}/empty --csv={}/o.csv", "no .py or .ipynb file in '{}/empty'"),
    ("grade {} --csv={}/none/o.csv", "there is no folder '{}/none'"),
    ("grade {} --csv={}/begun.csv", "'{}/begun.csv.journal' belongs to an interrupted run: --resume"),
    (f"{GRADE} --exercises=pe.tabel", "there is no exercise 'pe.tabel'"),
    (f"{GRADE} --html={{}}", "'{}' is a folder; expected a file"),
    (f"{GRADE} --roster={{}}/none.csv", "there is no file '{}/none.csv'"),
    (f"{GRADE} --assignment={{}}", "'{}' is a folder; expected a file"),
    (f"{GRADE} --seconds=nan", "must be numbers above 0"),
    (f"{GRADE} --workers=0", "--workers is 0; expected a whole number of at least 1"),
    (f"{GRADE} --feedback={{}}/a.py", "'{}/a.py' is a file; expected a folder"),
    (f"{GRADE} --anonymous={{}}/a.py", "'{}/a.py' is not a key of numbers and names"),
    ("check {}/none.py", "there is no file or folder '{}/none.py'"),
    ("check {}/a.py --wall=-1", "must be numbers above 0"),
    ("assignment --exercises=pe.table --out={}/a.txt", "'a.txt' should end in .ipynb"),
    ("assignment --exercises=pe.table --out={}/none/a.ipynb", "there is no folder '{}/none'"),
    ("assignment --exercises=pe.table --out={}/a.ipynb --points=-1", "expected points of 0 or more"),
    ("assignment --exercises=pe.tabel --out={}/a.ipynb", "there is no exercise 'pe.tabel'"),
    (f"{GRADE} --roster={{}}/a.py", "expected a column such as Student, Name, ID or Email"),
    (f"{GRADE} --roster={{}}/r.csv", "expected a column such as"),
    (
        f"{GRADE} --roster={{}}/r.csv --columns=name=Nam",
        "there is no column 'name=Nam'; kinds are id, login, email",
    ),
    (f"{GRADE} --roster={{}}/r.csv --columns=navn=Navn", "there is no column 'navn=Navn'"),
    ("exam --seed= --out={}/exam", "the name is empty"),
    (
        "exam --seed=x --minutes=90 --lessons=1,2 --out={}/exam",
        "the part 'Derive' needs 3 exercises, but lessons 01, 02 have ",
    ),
    ("exam --seed=x --lessons=99 --out={}/exam", "lesson '99' has no exercises; expected some of 01, 02, 03"),
    ("exam --seed=a --minutes=30 --out={}/exam", "minutes is 30; expected one of 20, 45, 90"),
)
LATE_VALUES = ("hours = 1", "per_day = [1]", "per_day = 'x'", "per_day = 1.5", "per_day = -1", "days = nan")
REJECTED_ASSIGNMENTS = (  # the text of the file, and a part of the message
    ("points = 3", "expected title, due = 2026-03-01T23:59:00, late = {per_day, days}, count"),
    ("[points]", "and a table [points]"),
    ("[points]\npe = {}", "and a table [points]"),
    ("colour = 1\n[points]\npe.table = 1", "got colour = 1"),
    *((f"late = {{{late}}}\n[points]\npe.table = 1", f"; got late.{late}") for late in LATE_VALUES),
    ("late = {per_day = true}\n[points]\npe.table = 1", "; got late.per_day = True"),
    ("numbers = true\n[points]\npe.table = 1", "; got numbers = True"),
    ('count = "first"\n[points]\npe.table = 1', 'count = "last" or "best"'),
    ('due = "soon"\n[points]\npe.table = 1', "got due = 'soon'"),
    ("[points]\npe.table = '3'", "pe.table is '3'; expected a number of points"),
    ("[points]\npe.table = true", "expected a number of points"),
    ("[points]\npe.table = -1", "expected a number of points"),
    ("[points]\npe.tabel = 1", "there is no exercise 'pe.tabel'"),
    ("[points]\nlayer_norm.backward = {dx = 1, db = 2}", "layer_norm.backward has no output 'db'"),
    ("[points]\npe.table = = 1", "hw.toml: Invalid value"),
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a submission, a journal and a class list. No command may grade or overwrite these."""
    monkeypatch.setattr(supervisor, "grade_class", lambda *given, **options: pytest.fail("graded"))
    (tmp_path / "empty").mkdir()
    write_text(tmp_path / "a.py", "")
    write_text(tmp_path / "r.csv", "Navn;Note\nx;1\n")
    journal = write_text(tmp_path / "begun.csv.journal", "hours of work")
    yield tmp_path
    assert journal.read_text() == "hours of work"
    assert not (tmp_path / "o.csv").exists() and not (tmp_path / "exam").exists()


def run_rejected(command, folder, capsys):
    """Run a command that must fail, and return its error message; {} in the command is the folder."""
    assert cli.main([word.replace("{}", str(folder)) for word in command.split()]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(("command", "message"), REJECTED)
def test_commands_reject_options_before_any_work(command, message, folder, capsys):
    assert message.replace("{}", str(folder)) in run_rejected(command, folder, capsys)


@pytest.mark.parametrize(("text", "message"), REJECTED_ASSIGNMENTS)
def test_grade_rejects_assignment_files_before_grading(text, message, folder, capsys):
    write_text(folder / "hw.toml", text)
    assert message in run_rejected(f"{GRADE} --assignment={{}}/hw.toml", folder, capsys)


def test_check_without_fork_reports_alternatives(tmp_path, capsys, monkeypatch):
    monkeypatch.delattr(os, "fork")
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert cli.main(["check", str(write_text(tmp_path / "a.py", ""))]) == 2
    assert "use WSL or a container, or check(...) in a notebook" in capsys.readouterr().err


# --- assignment ------------------------------------------------------------------------------------


def write_assignment(folder, form):
    """Write the notebook of two exercises, and return its path."""
    out = folder / "hw.ipynb"
    options = ["--exercises=pe.table,order.bag", f"--out={out}", f"--format={form}", "--points=1.5"]
    assert cli.main(["assignment", *options]) == 0
    return out


@pytest.mark.parametrize("form", ["nbgrader", "otter"])
def test_assignment_is_a_notebook_without_answers(form, tmp_path):
    out = write_assignment(tmp_path, form)
    nbformat = pytest.importorskip("nbformat")
    nbformat.validate(nbformat.read(out, 4))
    text = out.read_text(encoding="utf-8")
    assert 'check(\\"pe.table\\", pe_table).raise_if_wrong()' in text
    assert "1.5" in text and "order_bag = None" in text
    assert (tmp_path / "environment.yml").exists() is (form == "otter")


@pytest.mark.parametrize("form", ["nbgrader", "otter"])
def test_assignment_cells_name_and_test_answers(form, tmp_path):
    notebook = json.loads(write_assignment(tmp_path, form).read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"]]
    (named_cell,) = (cell for cell in cells if "under the name" in cell)
    last_line = show("order.bag").rstrip(".").splitlines()[-1]
    assert named_cell.endswith(f"\n\n{last_line} under the name `order_bag`.")
    test_cells = [cell for cell in cells if "raise_if_wrong()" in cell and "pe_table" in cell]
    names: dict[str, Any] = {"check": check, "pe_table": lambda n, d: np.zeros((n, d))}
    with pytest.raises(AssertionError, match="Not yet"):  # the tools show this text to the student
        exec(test_cells[0], names)
        names["test_pe_table"](names["pe_table"])
