"""What a teacher gets of an honest class: who handed in what, points, tables, a page, feedback."""

import csv
import html.parser
import io
import os
import re
import time
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

import honest
import pytest

from npformer import cli
from npformer.exercises import list_exercises
from npformer.exercises.assignment_file import assignment_of, read_assignment
from npformer.grader import points as marks
from npformer.grader import report_page as page
from npformer.grader import similarity as alike
from npformer.grader import supervisor as run
from npformer.grader.class_list import Student, Whose, read_register, whose
from npformer.grader.grading_process import Row
from npformer.grader.submissions import HandIn


def table(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def file(name, data=b"", at=0.0):
    return HandIn(name, partial(io.BytesIO, data), at, name)


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
Eva Maria de la Cruz,1005,eva@x.org; eva@y.org; e@x.org; e@y.org
"""
OWNERS = {  # a file: what it says of itself, whose it is, and what a person has to decide
    "a.py": ("Anna Smith", None, "fits Anna Smith (1002) and Anna Smith (17)"),
    "b.py": ("smith@x.org", "1002", None),
    "c/1003/x.py": ("Ben Ode", "1003", "is Ben (1003)'s by its place, and says it is Ode, Ben (1004)'s"),
    "Anna Smith/e.py": ("1002", "1002", None),
    "d.py": ("Zed", None, "fits nobody on the register"),
    "hand in Ben_Ode 2.py": ("", "1004", None),
    "hw de la Cruz, Eva Maria.py": ("", "1005", None),
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
    assert found.missing == [] and whose([file("x.py")], {}, None).of["x.py"].name == "x.py"


# --- points ---------------------------------------------------------------------------------------

TOML = """
title = "Homework 1"
due = 2026-03-01T12:00:00
late = {per_day = 0.25, days = 2}
[points]
"order.bag" = 1
layer_norm.backward = {dx = 2, dgamma = 1, dbeta = 1}
"""


def row(submission, exercise="order.bag", status="pass", evidence="Seen.", agreed=(), student=""):
    return Row(submission, student, exercise, status, (), agreed, evidence)


def test_points_for_parts_and_for_late_work(tmp_path):
    """Of two tries the last answer counts, or the best; each day begun takes a quarter."""
    assignment = read_assignment(write(tmp_path / "a.toml", TOML))
    backward = {"exercise": "layer_norm.backward"}
    wrong = {"status": "known_mistake", "agreed": ("dgamma", "dbeta")}
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


# --- one class, and all that is written about it --------------------------------------------------

MINE = (
    "def f{0}(a, b):\n    c = a * {0} + b ** 2{0} - 3\n    return [c // k for k in range({0}) if k % 3{0}]\n"
)
OTHER = "while x{0} < {0}:\n    x{0} += y[{0}] @ z - 7{0}\n    print(x{0}, 'a')\n"
MINE, OTHER = ("".join(text.replace("{0}", str(i)) for i in range(9)) for text in (MINE, OTHER))
COPY = re.sub(r"\b[abck]\b", lambda m: f"other_{m[0]}", MINE).replace("\n", "  # mine\n")
PARTLY = """import numpy as np
def layer_norm_backward(dy, x, gamma, beta, eps):
    x_hat = (x - x.mean(-1, keepdims=True)) / (x.var(-1, keepdims=True) + eps) ** 0.5
    return dy, (dy * x_hat).sum((0, 1)), dy.sum((0, 1))
"""
HANDED_IN = {
    "smithanna_LATE_4711_99_hw1.py": f"{MINE}{PARTLY}order_bag = 'b'\nundefined",
    "eve_4712_98_hw1.ipynb": honest.notebook(COPY, f"{PARTLY}order_bag = 'a'").decode(),
    **{f"nobody{i:02}.py": "order_bag = 'a'" for i in range(13)},
    "essay.pdf": "",
}
REGISTER = "Student,ID,Email\nAnna Smith,4711,anna@x.org\n=Eve <b>,4712,eve@x.org\nE-my Noether,4713,\n"
SET = [each.id for each in list_exercises() if each.id.startswith(("order", "pe", "ffn", "norm"))][:26]
HW = f"""title = "HW <1>"
due = 2100-01-01T00:00:00
late = {{per_day = 0.25, days = 2}}
[points]
layer_norm.backward = {{dx = 4, dgamma = 2, dbeta = 1}}
{" = 1; ".join([*SET, ""])}""".replace("; ", "\n")
ANNA, EVE = "back/Anna Smith (4711).md", "back/_Eve _b_ (4712).md"
SAID = (  # in which file what stands
    ("said", "16 files, 17 answers, 1 right.\nTo teach again, and how many students:\n     2  04, section 4."),
    ("said", "        layer_norm.backward: Which line "),
    ("said", "\n     1  01, section 1.1, Two sentences, the same three words\n        order.bag: If "),
    ("said", "To decide: nobody12.py fits nobody on the register.\nMissing: E-my Noether (4713).\n"),
    ("said", "smithanna_LATE_4711_99_hw1.py: smithanna_LATE_4711_99_hw1.py, line 33: NameError: "),
    ("said", "\nessay.pdf: Not graded: no .py file and no notebook.\n"),
    ("o.csv", "=Eve <b>,layer_norm.backward,unrecognised,,dgamma dbeta,dgamma and dbeta agree. "),
    ("o.csv", "\r\nessay.pdf,,,passed over,,,Not graded: "),
    ("g.csv", "4711,Anna Smith,anna@x.org,3,33,1,smithanna_LATE_4711_99_hw1.py,"),
    ("g.csv", "4712,'=Eve <b>,eve@x.org,3,33,0,eve_4712_98_hw1.ipynb,"),
    ("g.csv", "4713,E-my Noether,,0,33,0,,,0,"),
    (ANNA, "# HW \\<1\\>: Anna Smith (4711)\n\n3 of 33 points; 1 day late.\n\nNot read to the end:\n\n> smith"),
    (ANNA, "\n\n## order.bag: Correct (1 points)\n\nEvery check agrees.\n\nNot answered: order"),
    (EVE, "## layer_norm.backward: Not yet (3 points)\n\ndgamma and dbeta agree. dx "),
    ("p.html", "<title>HW &lt;1&gt;</title>"),
    ("p.html", '<b>0–3.3</b><span class="bar"><span class="many" style="width:100.0%"></span></span><span class="n">2<'),
    ("p.html", '<b>29.7–33</b><span class="bar"><span class="many" style="width:0.0%"></span></span><span class="n"></span>'),
    ("p.html", '<span class="right" style="width:0.0%"></span><span class="wrong" style="width:100.0%"></span></span><span class="n">0%<'),
    ("p.html", "<p>2 of 3 students; 16 files, 17 answers, 1 right.</p>"),
    ("p.html", "<h2>What to teach again, and how many students went wrong there</h2>"),
    ("p.html", "<b>=Eve &lt;b&gt; (4712)</b>"),
    ("p.html", "<p>Not right yet: layer_norm.backward, order.bag, order.encoding_use, order.trained and 23 more</p>"),
    ("p.html", "<p>and 4 more</p>"),
    ("p.html", "<p>3 more are not shown.</p>"),
    ("p.html", "<p>=Eve &lt;b&gt; (4712) and Anna Smith (4711): 100% of the shorter</p>"),
)  # fmt: skip


@pytest.fixture(scope="module")
def graded(tmp_path_factory, kept_reports):
    """Grades the class, with more options, and gives what is printed and written: {place: text}."""
    top = tmp_path_factory.mktemp("class")
    (top / "in").mkdir()
    for name, text in (HANDED_IN | {"../r.csv": REGISTER, "../hw.toml": HW}).items():
        write(top / "in" / name, text)
    names = {"csv": "o.csv", "grades": "g.csv", "html": "p.html", "feedback": "back"}

    def grade(to, *more, **there):
        (top / to).mkdir()
        for name, text in there.items():
            write(top / to / name, text)
        options = given(**{name: top / to / at for name, at in names.items()}, register=top / "r.csv")
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setattr(run, "iter_reports", kept_reports)
            patch.chdir(top / to)
            assert cli.main(["grade", "../in", "--assignment=../hw.toml", *options, *more]) == 0
        files = [path for path in (top / to).rglob("*") if path.is_file()]
        texts = {path.relative_to(top / to).as_posix(): path.read_bytes().decode() for path in files}
        return texts | {"said": out.getvalue(), "told": err.getvalue()}

    return grade


def test_what_is_written_about_a_class(graded):
    found = graded("open")
    assert [each for each in SAID if each[1] not in found[each[0]]] == []
    html.parser.HTMLParser().feed(found["p.html"])
    assert "Eve <" not in found["p.html"] and "http" not in found["p.html"].replace("http-equiv", "")
    assert sorted(found) == sorted([ANNA, EVE, "g.csv", "o.csv", "p.html", "said", "told"])


def test_without_names_there_is_only_the_key(graded):
    """A key that is there, of an earlier homework, is kept to."""
    there = graded("first", "--anonymous=key.txt")["key.txt"].replace("student-0", "student-7")
    found = graded("secret", "--anonymous=key.txt", **{"key.txt": there})
    assert found.pop("key.txt") == there
    key = {line["id"]: line["anonymous"] for line in csv.DictReader(there.splitlines())}
    assert sorted(key.values()) == ["student-701", "student-702", "student-703"]
    assert not re.search(r"smith|anna|eve\b|471\d|nobody\d|noether", str(found), re.IGNORECASE)
    assert f"{key['4712']},,,3,33,0,file-002.ipynb," in found["g.csv"]
    assert f"{key['4711']},,,3,33,1,file-016.py," in found["g.csv"], (
        "the names of files are read before they go"
    )
    assert f"file-016.py,{key['4711']},order.bag,pass," in found["o.csv"]
    assert "To decide: file-003.py.\n" in found["said"] and f"Missing: {key['4713']}." in found["said"]
    assert f"<p>{key['4712']} and {key['4711']}: 100% of the shorter</p>" in found["p.html"]
    assert "\n> file-016.py, line 33: NameError: " in found[f"back/{key['4711']}.md"]
    odd = [file("Eve.PY.txt"), file("Ada.py")._replace(passed_over="a copy by Jupyter")]
    assert [each.name for each in marks.numbered(odd)] == ["file-001.PY", "file-002"]


# --- what no class on disk has -------------------------------------------------------------------


def test_formulas_stay_text():
    line = marks.table_of(["x"], [["@x", "-1", "+1", "\t=1", "=SUM(A1)", "\r=1", "＝1", "1"]])
    cells = list(csv.reader(io.StringIO(line, newline="")))[1]
    assert cells == ["'@x", "'-1", "'+1", "'\t=1", "'=SUM(A1)", "'\r=1", "'＝1", "1"]


def test_a_class_of_nobody_has_a_page_and_a_summary():
    nobody, assignment = Whose({}, [], []), assignment_of(map(str, range(33)))
    text = page.class_page([], [], nobody, [], assignment)
    assert "0 of 0 students" in text and "<p>9 more are not shown.</p>" in text
    assert page.summary([], [], nobody) == "0 files, 0 answers, 0 right."


def test_feedback_is_one_file_a_student_and_markdown_is_left_alone():
    names = {"0.py": "A/x", "1.py": "A?x", "2.py": "...", "3.py": "", "a.py": "a_x"}
    owners = Whose({file_name: Student("", name, "") for file_name, name in names.items()}, [], [])
    assignment = assignment_of(["order.bag", "pe.table"])
    odd = row("a.py", "pe.table", "error", "It stopped with “<b>” *y*.")
    given = marks.marks([*map(file, names)], [odd, *map(row, names)], owners, assignment)
    sent = page.places_of([*given, given[0]._replace(rows=[])], Path("f"))
    assert [path.name for path in sent] == ["A_x.md", "A_x~2.md", "_.md", "_~2.md", "a_x~3.md"]
    text = page.feedback(given[-1]._replace(days_late=2), assignment)
    assert text.startswith("# The class: a\\_x\n\n1 of 2 points; 2 days late.")
    assert (
        "It stopped with “\\<b\\>” \\*y\\*." in text and "pe.table: Not checked to the end (0 points)" in text
    )


def test_hand_ins_that_are_alike_are_found_under_other_names():
    """A copy with other names and comments is found, the common notebook is not, npformer's source is."""
    handed_in = [(f"s{i}", "a.py", honest.SOFTMAX.encode()) for i in range(9)] + [
        ("ada", "a.py", (honest.SOFTMAX + MINE).encode()),
        ("ben", "b.ipynb", honest.notebook(honest.SOFTMAX, COPY)),
        ("cem", "a.py", (Path(run.__file__).parents[1] / "attention.py").read_bytes()),
        ("dot", "a.py", OTHER.encode()),
        ("eve", "a.ipynb", b"no"),
        ("fin", "a.py", b"x = '''"),
        *((who, "a.py", f"x = {[*range(70, 84)]}".encode()) for who in ("gus", "hal")),  # 20 runs in common
        *((who, "a.py", f"x = +{[*range(50, 63)]}".encode()) for who in ("ida", "jon")),  # 19
    ]
    found = alike.alike((who, file(name, data)) for who, name, data in handed_in)
    assert {frozenset(pair[1:]) for pair in found} == {
        frozenset(("ada", "ben")),
        frozenset((alike.OURS, "cem")),
        frozenset(("gus", "hal")),
    }
    assert all(pair[0] > 0.9 for pair in found)
