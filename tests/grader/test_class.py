"""Tests of the results of a class: owners of files, points, tables, the class page and feedback."""

import csv
import html.parser
import io
import keyword
import os
import re
import tokenize
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import honest
import pytest
from class_files import format_options, make_submission, read_table, write_text

from npformer import cli
from npformer.exercises import list_exercises
from npformer.exercises.assignment_file import make_assignment, read_assignment
from npformer.grader import points, report_page, similarity, supervisor
from npformer.grader.class_list import Owners, Student, find_owners, read_class_list
from npformer.grader.grading_process import Row
from npformer.grader.submissions import MAX_BYTES

# --- forty submissions of four systems -------------------------------------------------------------

DUE = "2026-03-01T12:00:00"
NUMBER = {  # the pattern that finds the student's number in a path
    "canvas": r"_(\d{4})_77",
    "moodle": r"_(\d{4})_assign",
    "blackboard": r"_u(\d{4})_",
    "gradescope": r"_55(\d{4})/",
}
DAYS_LATE = {"canvas": {"1004": "1"}, "moodle": {}, "blackboard": {"1004": "1"}, "gradescope": {"1004": "2"}}


@pytest.mark.parametrize("system", honest.SYSTEMS)
def test_grade_honest_class_gets_all_points(system, tmp_path, capsys, cached_grading):
    class_path, list_path = honest.write_class(system, tmp_path)
    answers_path, grades_path, feedback = tmp_path / "out.csv", tmp_path / "grades.csv", tmp_path / "back"
    point_table = "[points]\norder.bag = 1\nsoftmax.forward = 1"
    assignment = write_text(tmp_path / "hw.toml", f"due = {DUE}\n{point_table}")
    options = format_options(
        csv=answers_path, assignment=assignment, grades=grades_path, roster=list_path, feedback=feedback
    )
    assert cli.main(["grade", str(class_path), *options]) == 0

    grades = read_table(grades_path)
    assert [row["points"] for row in grades] == ["2"] * 10 + ["0"] and all(row["name"] for row in grades)
    days_late = {row["id"][-4:]: row["days late"] for row in grades if row["days late"] != "0"}
    assert days_late == DAYS_LATE[system]
    assert len({row["id"] for row in grades}) == 11 and {row["of"] for row in grades} == {"2"}
    for row in grades[:10]:
        assert re.search(NUMBER[system], row["file"])[1] == row["id"][-4:]

    summary = capsys.readouterr().out
    assert "Missing: " in summary and "Noether" in summary and "To decide" not in summary
    answers = read_table(answers_path)
    skipped = [row["evidence"] for row in answers if not row["exercise"]]
    assert skipped == ["Not graded: it is a copy that Jupyter made."] and len(os.listdir(feedback)) == 10
    assert all(row["status"] == "pass" and row["student"] for row in answers if row["exercise"])


# --- the class list --------------------------------------------------------------------------------

CLASS_LIST = """Name,Number,Mail
Anna Smith,17,anna@x.org
Anna Smith,1002,smith@x.org
Ben,1003,ben@x.org
"Ode, Ben",1004,ode@x.org
Eva Maria de la Cruz,1005,eva@x.org; eva@y.org; e@x.org; e@y.org
"""
OWNERS = {  # a file: the student that it names, the id of its owner, and what the teacher has to decide
    "a.py": ("Anna Smith", None, "fits Anna Smith (1002) and Anna Smith (17)"),
    "b.py": ("smith@x.org", "1002", None),
    "c/1003/x.py": (
        "Ben Ode",
        "1003",
        "belongs to Ben (1003) by its path, but the file names Ode, Ben (1004)",
    ),
    "Anna Smith/e.py": ("1002", "1002", None),
    "d.py": ("Zed", None, "fits no student on the class list"),
    "hand in Ben_Ode 2.py": ("", "1004", None),
    "hw de la Cruz, Eva Maria.py": ("", "1005", None),
    "1002_hw.py": ("", "1002", None),
    "17/x.py": ("", "17", None),
    "hw_17.py": ("", None, "fits no student on the class list"),
    "smith@x.org.py": ("", "1002", None),
}


def test_find_owners_needs_more_than_a_name(tmp_path):
    """Two students share a name, so a file that contains only this name is assigned to neither of them."""
    students = read_class_list(write_text(tmp_path / "r.csv", CLASS_LIST), "id=Number,email=Mail")
    claims = {name: claim for name, (claim, _, _) in OWNERS.items()}
    owners = find_owners([*map(make_submission, OWNERS)], claims, students)
    ids = {name: student.id for name, student in owners.by_file.items()}
    assert ids == {name: owner for name, (_, owner, _) in OWNERS.items() if owner}
    assert owners.undecided == [f"{name} {decision}" for name, (_, _, decision) in OWNERS.items() if decision]
    assert owners.missing == []


def test_find_owners_without_class_list_uses_names():
    assert find_owners([make_submission("x.py")], {}, None).by_file["x.py"].name == "x.py"


# --- points ----------------------------------------------------------------------------------------

ASSIGNMENT = """
title = "Homework 1"
due = 2026-03-01T12:00:00
late = {per_day = 0.25, days = 2}
[points]
"order.bag" = 1
layer_norm.backward = {dx = 2, dgamma = 1, dbeta = 1}
"""


def make_row(submission, exercise="order.bag", status="pass", evidence="Seen.", agreed=(), student=""):
    return Row(submission, student, exercise, status, (), agreed, evidence)


@pytest.fixture
def homework(tmp_path):
    """The files, rows and owners of four students, and the assignment.

    Ada has two submissions: a late one with a partly correct answer, and an earlier one with two correct answers.
    Ben and Cem are late, too. The fourth student has no submission.
    """
    assignment = read_assignment(write_text(tmp_path / "a.toml", ASSIGNMENT))
    days_late = {"1/hw-2.py": 2, "1/hw.py": 0, "ben.py": 2, "cem.py": 1}
    files = [*map(make_submission, days_late)]
    backward = "layer_norm.backward"
    rows = [
        make_row("1/hw.py"),
        make_row("1/hw.py", backward),
        make_row("1/hw-2.py", status="not answered"),
        make_row("1/hw-2.py", backward, status="known_mistake", agreed=("dgamma", "dbeta")),
        make_row("ben.py"),
        make_row("ben.py", backward, status="error", evidence="No."),
        make_row("cem.py"),
    ]
    ada = Student("1", "Ada", "")
    by_file = dict(zip(days_late, (ada, ada, Student("2", "Ben", ""), Student("3", "Cem", "")), strict=True))
    return files, rows, Owners(by_file, [], [Student("4", "", "")]), assignment, days_late


def test_compute_class_points_last_answer_counts(homework):
    """Each day or part of a day after the due date costs a quarter of the points."""
    last = points.compute_class_points(*homework)
    assert [[*entry.points.values()] for entry in last] == [[1, 2 * 0.5], [0.5, 0], [0.75, 0], [0, 0]]
    assert [entry.days_late for entry in last] == [2, 2, 1, 0] and last[0].files == ["1/hw.py", "1/hw-2.py"]


def test_compute_class_points_best_answer_counts(homework):
    files, rows, owners, assignment, days_late = homework
    best = points.compute_class_points(files, rows, owners, assignment._replace(best=True), days_late)
    assert [*best[0].points.values()] == [1, 4] and best[0].files == ["1/hw.py"]


def test_compute_class_points_nothing_after_last_day(homework):
    files, rows, owners, assignment, days_late = homework
    too_late = points.compute_class_points(files, rows, owners, assignment._replace(days=1), days_late)
    assert too_late[0].points["layer_norm.backward"] == 0


# --- one class with all its output files -----------------------------------------------------------

MINE_TEMPLATE = (
    "def f{0}(a, b):\n    c = a * {0} + b ** 2{0} - 3\n    return [c // k for k in range({0}) if k % 3{0}]\n"
)
OTHER_TEMPLATE = "while x{0} < {0}:\n    x{0} += y[{0}] @ z - 7{0}\n    print(x{0}, 'a')\n"
MINE = "".join(MINE_TEMPLATE.replace("{0}", str(i)) for i in range(9))
OTHER = "".join(OTHER_TEMPLATE.replace("{0}", str(i)) for i in range(9))
COPY = re.sub(r"\b[abck]\b", lambda match: f"other_{match[0]}", MINE).replace("\n", "  # mine\n")
PARTLY_CORRECT = """import numpy as np
def layer_norm_backward(dy, x, gamma, beta, eps):
    x_hat = (x - x.mean(-1, keepdims=True)) / (x.var(-1, keepdims=True) + eps) ** 0.5
    return dy, (dy * x_hat).sum((0, 1)), dy.sum((0, 1))
"""
SUBMISSIONS = {
    "smithanna_LATE_4711_99_hw1.py": f"{MINE}{PARTLY_CORRECT}order_bag = 'b'\nundefined",
    "eve_4712_98_hw1.ipynb": honest.make_notebook(COPY, f"{PARTLY_CORRECT}order_bag = 'a'").decode(),
    **{f"nobody{i:02}.py": "order_bag = 'a'" for i in range(13)},
    "essay.pdf": "",
}
STUDENTS = "Student,ID,Email\nAnna Smith,4711,anna@x.org\n=Eve <b>,4712,eve@x.org\nE-my Noether,4713,\n"
TOPICS = ("order", "pe", "ffn", "norm")
EXERCISES = [exercise.id for exercise in list_exercises() if exercise.id.startswith(TOPICS)][:26]
HOMEWORK = f"""title = "HW <1>"
due = 2100-01-01T00:00:00
late = {{per_day = 0.25, days = 2}}
[points]
layer_norm.backward = {{dx = 4, dgamma = 2, dbeta = 1}}
{"".join(f"{exercise_id} = 1" + chr(10) for exercise_id in EXERCISES)}"""
ANNA, EVE = "back/Anna Smith (4711).md", "back/_Eve _b_ (4712).md"
EXPECTED_TEXTS = (  # a file, and a text that occurs in it
    ("stdout", "16 files, 17 answers, 1 correct.\nTopics to teach again, with the number of students:\n     2  04, section 4."),
    ("stdout", "        layer_norm.backward: Which variable "),
    ("stdout", "\n     1  01, section 1.1, Two sentences, the same three words\n        order.bag: If "),
    ("stdout", "To decide: nobody12.py fits no student on the class list.\nMissing: E-my Noether (4713).\n"),
    ("stdout", "smithanna_LATE_4711_99_hw1.py: line 33: NameError: "),
    ("stdout", "\nessay.pdf: Not graded: it is not a .py file or a notebook.\n"),
    ("o.csv", "=Eve <b>,layer_norm.backward,unrecognised,,dgamma dbeta,dgamma and dbeta are correct. "),
    ("o.csv", "\r\nessay.pdf,,,passed over,,,Not graded: "),
    ("g.csv", "4711,Anna Smith,anna@x.org,3,33,1,smithanna_LATE_4711_99_hw1.py,"),
    ("g.csv", "4712,'=Eve <b>,eve@x.org,3,33,0,eve_4712_98_hw1.ipynb,"),
    ("g.csv", "4713,E-my Noether,,0,33,0,,,0,"),
    (ANNA, "# HW \\<1\\>: Anna Smith (4711)\n\n3 of 33 points; 1 day late.\n\nProblems in smithanna\\_LATE\\_4711\\_99\\_hw1.py:\n\n> line 33: "),
    (ANNA, "\n\n## order.bag: Correct (0.75 of 1 point)\n\nYour answer passes every check.\n\nThe answer gives 1 point, minus 0.25 points because the file is 1 day late.\n\nNot answered, so 0 of 25 points:\n\n- order"),
    (ANNA, "Correct outputs: dgamma (2 points), dbeta (1 point). Other outputs: dx (4 points).\n\nThe answer gives 3 points, minus 0.75 points because "),
    (ANNA, ": see the problems above.\n"),
    (EVE, "- norm.token: the file gives no value to the name norm\\_token.\n"),
    (EVE, "## layer_norm.backward: Not yet (3 of 7 points)\n\ndgamma and dbeta are correct. dx "),
    (EVE, "\n\nCorrect outputs: dgamma (2 points), dbeta (1 point). Other outputs: dx (4 points).\n\n"),
    (EVE, "## order.bag: Not yet: the checker recognises this mistake (0 of 1 point)"),
    ("p.html", "<title>HW &lt;1&gt;</title>"),
    ("p.html", '<b>0–3.3</b><span class="bar"><span class="many" style="width:100.0%"></span></span><span class="n">2<'),
    ("p.html", '<b>29.7–33</b><span class="bar"><span class="many" style="width:0.0%"></span></span><span class="n"></span>'),
    ("p.html", '<span class="right" style="width:0.0%"></span><span class="wrong" style="width:100.0%"></span></span><span class="n">0%<'),
    ("p.html", "<p>2 of 3 students submitted; 16 files, 17 answers, 1 correct.</p>"),
    ("p.html", "<h2>What to teach again, and how many students made a mistake there</h2>"),
    ("p.html", "<b>=Eve &lt;b&gt; (4712)</b>"),
    ("p.html", "<p>Not correct yet: layer_norm.backward, order.bag, order.encoding_use, order.trained and 23 more</p>"),
    ("p.html", "<p>and 4 more</p>"),
    ("p.html", "<p>3 more exercises are not shown.</p>"),
    ("p.html", "<p>=Eve &lt;b&gt; (4712) and Anna Smith (4711): 100% of the shorter submission is also in the longer one</p>"),
)  # fmt: skip


@pytest.fixture(scope="module")
def grade_class(tmp_path_factory, cached_iter_reports):
    """Return a function that grades the class with these options and returns {name: text} of all outputs."""
    top = tmp_path_factory.mktemp("class")
    (top / "in").mkdir()
    for name, text in SUBMISSIONS.items():
        write_text(top / "in" / name, text)
    class_list = write_text(top / "r.csv", STUDENTS)
    write_text(top / "hw.toml", HOMEWORK)
    output_names = {"csv": "o.csv", "grades": "g.csv", "html": "p.html", "feedback": "back"}

    def grade(folder_name, *more_options, **existing_files):
        folder = top / folder_name
        folder.mkdir()
        for name, text in existing_files.items():
            write_text(folder / name, text)
        output_paths = {option: folder / name for option, name in output_names.items()}
        options = format_options(**output_paths, roster=class_list)
        stdout, stderr = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(stdout), redirect_stderr(stderr):
            patch.setattr(supervisor, "iter_reports", cached_iter_reports)
            patch.chdir(folder)
            assert cli.main(["grade", "../in", "--assignment=../hw.toml", *options, *more_options]) == 0
        files = [path for path in folder.rglob("*") if path.is_file()]
        texts = {path.relative_to(folder).as_posix(): path.read_bytes().decode() for path in files}
        return texts | {"stdout": stdout.getvalue(), "stderr": stderr.getvalue()}

    return grade


@pytest.fixture(scope="module")
def class_texts(grade_class):
    """Grade the class, and return {name: text} of all output files."""
    return grade_class("open")


def test_grade_writes_about_a_class(class_texts):
    missing = [(name, text) for name, text in EXPECTED_TEXTS if text not in class_texts[name]]
    assert missing == []


def test_grade_writes_the_requested_files(class_texts):
    expected = [ANNA, EVE, "g.csv", "o.csv", "p.html", "stdout", "stderr"]
    assert sorted(class_texts) == sorted(expected)


def test_format_class_page_escapes_names(class_texts):
    page = class_texts["p.html"]
    html.parser.HTMLParser().feed(page)
    assert "Eve <" not in page and "http" not in page.replace("http-equiv", "")


def test_grade_anonymous_names_only_in_key(grade_class):
    """Students who are in the key of an earlier homework keep their numbers."""
    old_key = grade_class("first", "--anonymous=key.txt")["key.txt"].replace("student-0", "student-7")
    texts = grade_class("secret", "--anonymous=key.txt", **{"key.txt": old_key})
    assert texts.pop("key.txt") == old_key
    key = {line["id"]: line["anonymous"] for line in csv.DictReader(old_key.splitlines())}
    assert sorted(key.values()) == ["student-701", "student-702", "student-703"]
    assert not re.search(r"smith|anna|eve\b|471\d|nobody\d|noether", str(texts), re.IGNORECASE)
    assert f"{key['4712']},,,3,33,0,file-002.ipynb," in texts["g.csv"]
    late = "the original name of the file has the word LATE"
    assert f"{key['4711']},,,3,33,1,file-016.py," in texts["g.csv"], late
    assert f"file-016.py,{key['4711']},order.bag,pass," in texts["o.csv"]
    assert "To decide: file-003.py.\n" in texts["stdout"] and f"Missing: {key['4713']}." in texts["stdout"]
    assert (
        f"<p>{key['4712']} and {key['4711']}: 100% of the shorter submission is also in the longer one</p>"
        in texts["p.html"]
    )
    assert "Problems in file-016.py:\n\n> line 33: NameError: " in texts[f"back/{key['4711']}.md"]


def test_number_files_keeps_suffixes_of_graded_files():
    skipped = make_submission("Ada.py")._replace(skip_reason="a copy by Jupyter")
    files = points.number_files([make_submission("Eve.PY.txt"), skipped])
    assert [file.name for file in files] == ["file-001.PY", "file-002"]


# --- single functions ------------------------------------------------------------------------------


def test_format_csv_quotes_formulas():
    text = points.format_csv(["x"], [["@x", "-1", "+1", "\t=1", "=SUM(A1)", "\r=1", "＝1", "1"]])
    cells = list(csv.reader(io.StringIO(text, newline="")))[1]
    assert cells == ["'@x", "'-1", "'+1", "'\t=1", "'=SUM(A1)", "'\r=1", "'＝1", "1"]


def test_report_page_of_an_empty_class():
    owners, assignment = Owners({}, [], []), make_assignment(map(str, range(33)))
    page = report_page.format_class_page([], [], owners, [], assignment)
    assert "0 of 0 students" in page and "<p>9 more exercises are not shown.</p>" in page
    assert report_page.format_summary([], [], owners) == "0 files, 0 answers, 0 correct."


@pytest.fixture
def feedback_class():
    """The points of five students with odd names, and the assignment."""
    names = {"0.py": "A/x", "1.py": "A?x", "2.py": "...", "3.py": "", "a.py": "a_x"}
    owners = Owners({file_name: Student("", name, "") for file_name, name in names.items()}, [], [])
    assignment = make_assignment(["order.bag", "pe.table"])
    rows = [make_row("a.py", "pe.table", "error", "It stopped with “<b>” *y*."), *map(make_row, names)]
    files = [make_submission(name) for name in names]
    return points.compute_class_points(files, rows, owners, assignment, dict.fromkeys(names, 0)), assignment


def test_choose_feedback_paths_one_per_student(feedback_class):
    class_points, _ = feedback_class
    without_rows = class_points[0]._replace(attempts=[])
    paths = report_page.choose_feedback_paths([*class_points, without_rows], Path("f"))
    assert [path.name for path in paths] == ["A_x.md", "A_x~2.md", "_.md", "_~2.md", "a_x~3.md"]


def test_format_feedback_escapes_markdown(feedback_class):
    class_points, assignment = feedback_class
    text = report_page.format_feedback(class_points[-1]._replace(days_late=2), assignment)
    assert text.startswith("# The class: a\\_x\n\n1 of 2 points; 2 days late.")
    assert "It stopped with “\\<b\\>” \\*y\\*." in text
    assert "pe.table: Not checked (0 of 1 point)" in text


def test_format_feedback_names_file_and_lateness(homework):
    """The student sees which file counts, and why a late answer gives fewer points or none."""
    files, rows, owners, assignment, days_late = homework
    ada, *_ = points.compute_class_points(*homework)
    text = report_page.format_feedback(ada, assignment)
    assert "## order.bag: Correct (1 of 1 point)" in text
    assert "This answer is in 1/hw.py. The last answer to each exercise counts." in text
    assert "The answer gives 2 points, minus 1 point because the file is 2 days late." in text
    strict = assignment._replace(days=1)
    too_late, *_ = points.compute_class_points(files, rows, owners, strict, days_late)
    text = report_page.format_feedback(too_late, assignment)
    assert "The answer gives 2 points, but no points remain 2 days after the due date." in text


def test_format_feedback_suggests_the_right_name(feedback_class):
    class_points, assignment = feedback_class
    row = make_row("a.py", "pe.table", "not answered", "The file has pe_tabel: did you mean pe_table?")
    entry = class_points[0]._replace(attempts=[points.Attempt(0, row, 0)])
    text = report_page.format_feedback(entry, assignment)
    lines = "\n\n- pe.table: The file has pe\\_tabel: did you mean pe\\_table?\n"
    assert text.endswith(f"Not answered, so 0 of 1 point:{lines}")


def test_find_similar_ignores_names_and_comments():
    """The grader finds copies of a classmate's code or of npformer's source.

    Code that all students share does not count.
    """
    source = (Path(supervisor.__file__).parents[1] / "attention.py").read_bytes()
    twenty_runs = f"x = {[*range(70, 84)]}".encode()
    nineteen_runs = f"x = +{[*range(50, 63)]}".encode()
    submissions = [(f"s{i}", "a.py", honest.SOFTMAX.encode()) for i in range(9)] + [
        ("ada", "a.py", (honest.SOFTMAX + MINE).encode()),
        ("ben", "b.ipynb", honest.make_notebook(honest.SOFTMAX, COPY)),
        ("cem", "a.py", source),
        ("dot", "a.py", OTHER.encode()),
        ("eve", "a.ipynb", b"no"),
        ("fin", "a.py", b"x = '''"),
        ("gus", "a.py", twenty_runs),
        ("hal", "a.py", twenty_runs),
        ("ida", "a.py", nineteen_runs),
        ("jon", "a.py", nineteen_runs),
    ]
    pairs = similarity.find_similar((owner, make_submission(name, data)) for owner, name, data in submissions)
    expected = {("ada", "ben"), (similarity.PACKAGE, "cem"), ("gus", "hal")}
    assert {frozenset(pair[1:]) for pair in pairs} == {*map(frozenset, expected)}
    assert all(share > 0.9 for share, _, _ in pairs)


def read_standard_tokens(source):
    """Return the tokens that Python's own module finds, with names and strings replaced."""
    kinds = (tokenize.NAME, tokenize.NUMBER, tokenize.OP, tokenize.STRING)
    tokens = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_name = token.type == tokenize.NAME and not keyword.iskeyword(token.string)
        text = "text" if token.type == tokenize.STRING else token.string
        if token.type in kinds:
            tokens.append("name" if is_name else text)
    return tokens


SOURCES = [  # statements without f-strings, of which newer versions of Python make several tokens
    "x = 1e-5 + .5j - 0x1F // 3_000 ** -y  # it's a comment\nlambda *a, **k: a[..., 1:] if a != k else -1.\n",
    "a: int = b'\\'' + rb\"\\\"\"  'c'\nif (n := len(a)) >= 2: n <<= 1; n //= 3\n",
    'def f(x) -> str:\n    """It\'s "one" text: \\""""\n    return x @ y \\\n        is not None\n',
    "u = \"one \\\n line\"; v = '''two\n \"lines\" '''\n",
]


@pytest.mark.parametrize("source", SOURCES)
def test_iter_tokens_finds_the_tokens_of_python(source):
    assert list(similarity._iter_tokens(source)) == read_standard_tokens(source)


@pytest.mark.parametrize(
    ("source", "count"), [("'" * 3 + "\\" + "'" * 3, 1), ('"a\nb', 2), ("'\\", 1), ("a \\", 1)]
)
def test_iter_tokens_ends_a_text_without_end(source, count):
    assert len(list(similarity._iter_tokens(source))) == count


def test_read_runs_of_a_too_large_file():
    assert similarity._read_runs(make_submission("a.py", b"#" * (MAX_BYTES + 1))) == set()
