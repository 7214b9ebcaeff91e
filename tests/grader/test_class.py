"""What a teacher gets of an honest class: who handed in what, points, tables, a page, feedback."""

import csv
import html.parser
import io
import json
import os
import re
import time
from functools import partial
from pathlib import Path

import honest
import pytest

from npformer import cli
from npformer.exercises import list_exercises
from npformer.grader import alike, marks, page, run
from npformer.grader.hand_ins import HandIn
from npformer.grader.register import Student, Whose, read_register, whose
from npformer.grader.run import Row

ONLY = f"--exercises={','.join(honest.IDS)}"


def table(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def file(name, data=b"", at=0.0):
    return HandIn(name, partial(io.BytesIO, data), at)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def given(**options):
    """Options of the command, as they are typed."""
    return [f"--{name}={value}" for name, value in options.items()]


# --- forty hand-ins of four systems ---------------------------------------------------------------

DUE = {"blackboard": "2026-03-01T12:00:00"}  # by the name; by no file's own time
NUMBER = {"canvas": r"_(\d{4})_77", "moodle": r"_(\d{4})_assign", "blackboard": r"_u(\d{4})_", "gradescope": r"_55(\d{4})/"}  # fmt: skip
LATE = {"canvas": {"1004": "1"}, "moodle": {}, "blackboard": {"1004": "1"}, "gradescope": {"1004": "2"}}


@pytest.mark.parametrize("system", honest.SYSTEMS)
def test_an_honest_class_has_all_its_points_and_everybody_has_their_own(system, tmp_path, capsys, kept):
    folder, register = honest.write(system, tmp_path)
    out, grades, back = tmp_path / "out.csv", tmp_path / "grades.csv", tmp_path / "back"
    points = "[points]\norder.bag = 1\nsoftmax.forward = 1"
    hw = write(tmp_path / "hw.toml", f"due = {DUE.get(system, '2100-01-01T00:00:00')}\n{points}")
    options = given(csv=out, assignment=hw, grades=grades, register=register, feedback=back)
    assert cli.main(["grade", str(folder), *options]) == 0
    said, rows, answers = capsys.readouterr().out, table(grades), table(out)
    assert [row["points"] for row in rows] == ["2"] * 10 + ["0"] and all(row["name"] for row in rows)
    assert {row["id"][-4:]: row["days late"] for row in rows if row["days late"] != "0"} == LATE[system]
    assert len({row["id"] for row in rows}) == 11 and {row["of"] for row in rows} == {"2"}
    for row in rows[:10]:
        assert re.search(NUMBER[system], row["file"])[1] == row["id"][-4:]
    assert "Missing: " in said and "Noether" in said and "To decide" not in said
    passed_over = [row["evidence"] for row in answers if not row["exercise"]]
    assert passed_over == ["Not graded: a copy by Jupyter."] and len(os.listdir(back)) == 10
    assert all(row["status"] == "pass" and row["student"] for row in answers if row["exercise"])


# --- the register ---------------------------------------------------------------------------------

NAMESAKES = """Name,Number,Mail
Anna Smith,17,anna@x.org
Anna Smith,1002,smith@x.org
Ben,1003,ben@x.org
"Ode, Ben",1004,ode@x.org
"""
OWNERS = {  # a file: what it says of itself, whose it is, and what a person has to decide
    "a.py": ("Anna Smith", None, "fits Anna Smith (1002) and Anna Smith (17)"),
    "b.py": ("smith@x.org", "1002", None),
    "c/1003/x.py": ("Ben Ode", "1003", "is Ben (1003)'s by its place, and says it is Ode, Ben (1004)'s"),
    "d.py": ("Zed", None, "fits nobody on the register"),
    "hand in Ben_Ode 2.py": ("", "1004", None),
    "1002_hw.py": ("", "1002", None),
    "17/x.py": ("", "17", None),
    "hw_17.py": ("", None, "fits nobody on the register"),
    "smith@x.org.py": ("", "1002", None),
}


def test_a_name_alone_never_decides_between_two(tmp_path):
    register = read_register(write(tmp_path / "r.csv", NAMESAKES), "id=Number,email=Mail")
    found = whose([*map(file, OWNERS)], {name: claim for name, (claim, *_) in OWNERS.items()}, register)
    of = {name: student.id for name, student in found.of.items()}
    assert of == {name: owner for name, (_, owner, _) in OWNERS.items() if owner}
    assert found.doubtful == [f"{name} {why}" for name, (_, _, why) in OWNERS.items() if why]
    assert found.missing == []


NO_REGISTER = (
    ("", "", "expected a column such as Student, Name, ID or Email"),
    ("Nom;Note\nx;1\n", "", "expected a column such as"),
    ("Nom;Note\nx;1\n", "name=Nam", "there is no column 'name=Nam'; kinds are id, login, email"),
    ("Nom;Note\nx;1\n", "nom=Nom", "there is no column 'nom=Nom'"),
)


def test_a_register_that_tells_nobody_apart_is_refused_before_grading(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "grade", lambda *given, **options: pytest.fail("graded"))
    write(tmp_path / "a.py", "")
    for text, columns, message in NO_REGISTER:
        options = given(csv=tmp_path / "o.csv", register=write(tmp_path / "r.csv", text), columns=columns)
        assert cli.main(["grade", str(tmp_path), *options]) == 2, message
        assert message in capsys.readouterr().err


# --- points ---------------------------------------------------------------------------------------

TOML = """
title = "Homework 1"
due = 2026-03-01T12:00:00
late = {per_day = 0.25, days = 2}
[points]
"order.bag" = 1
layer_norm.backward = {dx = 2, dgamma = 1, dbeta = 1}
"""


def row(submission, exercise="order.bag", status="pass", evidence="Seen.", codes="", question="", student=""):
    return Row(submission, student, exercise, status, codes, evidence, "", question)


NO_SENSE = (
    ("points = 3", "expected title, due, late"),
    ("[points]", "expected title, due, late"),
    ("colour = 1\n[points]\npe.table = 1", "got colour"),
    ("late = {hours = 1}\n[points]\npe.table = 1", "expected title, due, late"),
    ('count = "first"\n[points]\npe.table = 1', 'expected count = "last" or "best"'),
    ('due = "soon"\n[points]\npe.table = 1', "due = 2026-03-01T23:59:00"),
    ("[points]\npe.table = '3'", "pe.table is '3'; expected a number of points"),
    ("[points]\npe.table = true", "expected a number of points"),
    ("[points]\npe.table = -1", "expected a number of points"),
    ("[points]\npe.tabel = 1", "there is no exercise 'pe.tabel'"),
    ("[points]\nlayer_norm.backward = {dx = 1, db = 2}", "layer_norm.backward has no output 'db'"),
    ("[points]\npe.table = = 1", "a.toml: "),
)


def test_an_assignment_that_makes_no_sense_is_refused(tmp_path):
    for text, message in NO_SENSE:
        with pytest.raises(ValueError, match=re.escape(message)):
            marks.read_assignment(write(tmp_path / "a.toml", text))
            print(f"taken: {text}")


def test_points_for_parts_and_for_late_work(tmp_path):
    """Of two tries the last answer counts, or the best; each day begun takes a quarter."""
    assignment = marks.read_assignment(write(tmp_path / "a.toml", TOML))
    backward = {"exercise": "layer_norm.backward"}
    wrong = {"status": "known_mistake", "evidence": "dgamma and dbeta agree. dx differs."}
    ada, ben = Student("1", "Ada", ""), Student("2", "Ben", "", late=30.0 * 3600)
    noon = time.mktime((2026, 3, 1, 12, 0, 0, 0, 0, -1))
    times = {"late.py": noon + 90_000, "early.py": noon - 9, "ben.py": 0, "x_LATE_3_4_a.py": 0}
    rows = [
        row("early.py"), row("early.py", **backward), row("late.py", status="not answered"),
        row("late.py", **wrong, **backward), row("ben.py"), row("ben.py", status="error", evidence="No.", **backward),
        row("x_LATE_3_4_a.py"),
    ]  # fmt: skip
    of = dict(zip(times, (ada, ada, ben, Student("3", "Cem", "")), strict=True))
    owners, files = Whose(of, [], [Student("4", "", "")]), [file(name, at=at) for name, at in times.items()]
    last = marks.marks(files, rows, owners, assignment)
    assert [[*mark.points.values()] for mark in last] == [[1, 2 * 0.5], [0.5, 0], [0.75, 0], [0, 0]]
    assert [mark.days_late for mark in last] == [2, 2, 1, 0] and last[0].files == ["early.py", "late.py"]
    best = marks.marks(files, rows, owners, assignment._replace(best=True))
    assert [*best[0].points.values()] == [1, 4] and best[0].files == ["early.py"]
    too_late = marks.marks(files, rows, owners, assignment._replace(days=1))
    assert too_late[0].points["layer_norm.backward"] == 0


def test_the_names_of_outputs_that_agree_are_the_checker_s_own():
    """A part is paid by the first sentence of a reply, as the real checker says it."""
    from npformer.exercises import check

    def backward(dy, x, gamma, beta, eps):
        x_hat = (x - x.mean(-1, keepdims=True)) / (x.var(-1, keepdims=True) + eps) ** 0.5
        return dy, (dy * x_hat).sum((0, 1)), dy.sum((0, 1))

    found = check("layer_norm.backward", backward)
    parts = {"dx": 4.0, "dgamma": 2.0, "dbeta": 1.0}
    assert marks.earned(row("a", "layer_norm.backward", found.status, found.evidence), parts) == 3


def test_without_names_there_is_only_the_key(tmp_path, capsys, kept):
    folder = tmp_path / "class"
    folder.mkdir()
    write(folder / "smithanna_LATE_17_99_hw1.py", "order_bag = 'b'\n1 / 0")
    hw = write(tmp_path / "hw.toml", "due = 2100-01-01T00:00:00\n[points]\norder.bag = 1\npe.even = 1")
    write(folder / "nobody.py", "order_bag = 'a'")
    register = write(tmp_path / "r.csv", "Student,ID,Email\nAnna Smith,17,anna@x.org\nBen Ode,18,ben@x.org\n")
    names = {"csv": "o.csv", "grades": "g.csv", "html": "p.html", "feedback": "back", "anonymous": "key.csv"}
    options = given(**{name: tmp_path / to for name, to in names.items()}, register=register, assignment=hw)
    command = ["grade", str(folder), *options]
    assert cli.main(command) == 0
    assert sorted(line["anonymous"] for line in table(tmp_path / "key.csv")) == ["student-001", "student-002"]
    write(tmp_path / "key.csv", (tmp_path / "key.csv").read_text().replace("student-0", "student-7"))
    assert cli.main(command) == 0
    key = {line["name"]: line["anonymous"] for line in table(tmp_path / "key.csv")}
    assert sorted(key.values()) == ["student-701", "student-702"], "a key that is there is kept to"
    files = [tmp_path / "o.csv", tmp_path / "g.csv", tmp_path / "p.html", *(tmp_path / "back").iterdir()]
    written = "".join(path.read_text() for path in files)
    assert not re.search(r"smith|anna|17|ben|ode\b", written, re.IGNORECASE) and key["Anna Smith"] in written
    late = {line["id"]: line["days late"] for line in table(tmp_path / "g.csv")}
    assert late == {key["Anna Smith"]: "1", key["Ben Ode"]: "0"}, "the names of files are read before they go"
    assert "ZeroDivisionError" in (tmp_path / "back" / f"{key['Anna Smith']}.md").read_text()
    assert "smith" not in capsys.readouterr().out.casefold()


# --- tables, Gradescope ---------------------------------------------------------------------------


def test_formulas_stay_text(tmp_path):
    marks.write_table(["x"], [["@x", "-1", "+1", "\t=1", "=SUM(A1)", "\r=1", "＝1", "1"]], tmp_path / "o.csv")
    with (tmp_path / "o.csv").open(newline="") as file:
        assert list(csv.reader(file))[1] == ["'@x", "'-1", "'+1", "'\t=1", "'=SUM(A1)", "'\r=1", "'＝1", "1"]


def test_gradescope_gets_its_file_whatever_was_handed_in(tmp_path, capsys, kept):
    folder, out = tmp_path / "submission", tmp_path / "results.json"
    folder.mkdir()
    write(folder / "whatever name.py", "order_bag = 'b'")
    command = ["check", str(folder), "--gradescope", str(out), "--exercises=order.bag,pe.even"]
    assert cli.main(command) == 1
    found = json.loads(out.read_text())
    assert found["score"] == 1 and [test["status"] for test in found["tests"]] == ["passed", "failed"]
    assert found["tests"][0] == {
        "name": "order.bag", "score": 1.0, "max_score": 1.0, "status": "passed",
        "output": "Right\nEvery check agrees.", "output_format": "text", "visibility": "visible",
    }  # fmt: skip
    for name, why in (
        ("second.py", "holds 2 files to check; expected one"),
        ("essay.pdf", "no .py or .ipynb file in"),
    ):
        for each in folder.glob("second.py" * (name == "second.py") or "*"):
            each.unlink()
        write(folder / name, "")
        assert cli.main(command) == 2 and why in capsys.readouterr().err
        found = json.loads(out.read_text())
        assert found["score"] == 0 and found["tests"] == [] and why in found["output"]


# --- what a teacher reads -------------------------------------------------------------------------


def classroom(students=30):
    """Marks of a class in which the first fail most; made up, to look at."""
    ids = [exercise.id for exercise in list_exercises() if exercise.kind == "code"]
    known = {"status": "known_mistake", "codes": "A-CODE", "question": "What is divided by?"}
    replies = [known, {"status": "unrecognised"}, {"evidence": "Every check agrees.", "codes": "ODD-WIDTH"}]
    rows, owners = [], {}
    for i in range(students):
        owners[f"s{i:02}.py"] = Student(f"{1000 + i}", f"Student <{i}>", "")
        for j, exercise in enumerate(ids):
            kind = (j % 3 == 0) if (i * 7 + j * 5) % 30 > i + 4 else 2
            told = {"status": "not answered"} if (i + j) % 9 == 0 else replies[kind]
            rows.append(row(f"s{i:02}.py", exercise, **told))
    whole = Whose(owners, ["x.py fits nobody on the register"] * 15, [Student("1", "Emmy <Noether>", "")])
    assignment = marks.assignment_of(ids)
    return rows, marks.marks([*map(file, owners)], rows, whole, assignment), whole, assignment


SHOWN = ("What to teach again", "Who needs help first", "To decide", "and 4 more", "more are not shown", "&lt;a&gt; and b: 90%")  # fmt: skip


def test_the_page_needs_nothing_else_and_what_passes_is_no_mistake(tmp_path):
    rows, given, owners, assignment = classroom()
    taught = page.to_teach(given)
    assert taught and all(p.seen != "Every check agrees." for _, _, patterns in taught for p in patterns)
    assert [n for _, n, _ in taught] == sorted((n for _, n, _ in taught), reverse=True)
    more = assignment._replace(points=assignment.points | {f"x.{i}": {"": 0.0} for i in range(9)})
    page.write_page(rows, given, owners, [alike.Pair("<a>", "b", 0.9)], more, tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text()
    html.parser.HTMLParser().feed(text)
    assert "<a>" not in text and "Student &lt;0&gt;" in text and "http" not in text.replace("http-equiv", "")
    assert [said for said in SHOWN if said not in text] == []
    page.write_page([], [], Whose({}, [], []), [], assignment, tmp_path / "p.html")
    assert "0 of 0 students" in (tmp_path / "p.html").read_text()


def test_a_summary_says_what_to_teach_and_what_to_decide():
    passed_over = row("c.py", "", "passed over", "Not graded: x.")
    rows = [
        row("a.py", status="unrecognised", question="Which?"),
        row("b.py", status="not answered"),
        passed_over,
    ]
    owners = Whose({"a.py": Student("", "Ada", "")}, ["b.py fits nobody"], [])
    given = marks.marks([file("a.py")], rows, owners, marks.assignment_of(["order.bag"]))
    first, above, taught, *rest = page.summary(rows, given, owners).splitlines()
    assert first == "3 files, 1 answers, 0 right." and above == "To teach again, and how many students:"
    assert taught.startswith("     1  01, section 1.1") and rest[0] == "        order.bag: Which?"
    assert rest[1:] == ["To decide: b.py fits nobody.", "c.py: Not graded: x."]
    assert page.summary([], [], Whose({}, [], [])) == "0 files, 0 answers, 0 right."


def test_feedback_is_one_file_a_student_and_markdown_is_left_alone(tmp_path):
    lost = row("a.py", status="not read", evidence="a.py, line 1: `x` *y*.")
    rows = [lost, row("a.py", "pe.table", "error", "It stopped with “<b>”.", question="What?")]
    names = {"0.py": "A/x", "1.py": "A?x", "2.py": "...", "3.py": "", "a.py": "a_x"}
    owners = Whose({file_name: Student("", name, "") for file_name, name in names.items()}, [], [])
    assignment = marks.assignment_of(["order.bag", "pe.table"])
    given = marks.marks([*map(file, names)], [*rows, *map(row, names)], owners, assignment)
    late = [mark._replace(days_late=2) for mark in given]
    sent = page.write_feedback(late, assignment, tmp_path / "f")
    assert sorted(os.path.basename(path) for path in sent.values()) == sorted(os.listdir(tmp_path / "f"))
    assert sorted(os.listdir(tmp_path / "f")) == ["A_x.md", "A_x~2.md", "_.md", "_~2.md", "a_x~3.md"]
    text = (tmp_path / "f" / "a_x~3.md").read_text()
    assert text.startswith("# The class: a\\_x\n\n1 of 2 points; 2 days late.")
    assert "It stopped with “\\<b\\>”." in text and "pe.table: Not checked to the end (0 points)" in text
    text = page.feedback(given[-1]._replace(rows=rows[:1]), marks.assignment_of(["order.bag"]))
    assert "> a.py, line 1: \\`x\\` \\*y\\*." in text and "Not answered: order.bag." in text


MINE = (
    "def f{0}(a, b):\n    c = a * {0} + b ** 2{0} - 3\n    return [c // k for k in range({0}) if k % 3{0}]\n"
)
OTHER = "while x{0} < {0}:\n    x{0} += y[{0}] @ z - 7{0}\n    print(x{0}, 'a')\n"


def test_hand_ins_that_are_alike_are_found_under_other_names():
    """A copy with other names and comments is found, the common notebook is not, npformer's source is."""
    mine, other = ("".join(text.replace("{0}", str(i)) for i in range(9)) for text in (MINE, OTHER))
    copy = re.sub(r"\b[abck]\b", lambda m: f"other_{m[0]}", mine).replace("\n", "  # mine\n")
    handed_in = [(f"s{i}", "a.py", honest.SOFTMAX.encode()) for i in range(9)] + [
        ("ada", "a.py", (honest.SOFTMAX + mine).encode()),
        ("ben", "b.ipynb", honest.notebook(honest.SOFTMAX, copy)),
        ("cem", "a.py", (Path(run.__file__).parents[1] / "attention.py").read_bytes()),
        ("dot", "a.py", other.encode()),
        ("eve", "a.ipynb", b"no"),
        ("fin", "a.py", b"x = '''"),
    ]
    found = alike.alike(handed_in)
    assert {frozenset(pair[:2]) for pair in found} == {
        frozenset(("ada", "ben")),
        frozenset((alike.OURS, "cem")),
    }
    assert all(pair.share > 0.9 for pair in found)
