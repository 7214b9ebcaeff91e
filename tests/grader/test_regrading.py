"""Tests of `npformer grade --only STUDENT`, of `--part K/N`, of names under an ASCII locale, and of a full disk."""

import csv
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from class_files import format_options, read_table, write_text

from npformer import cli
from npformer.grader.class_list import Student
from npformer.grader.regrading import choose_student

CLASS_LIST = """Name,ID,Email
Anna Smith,17,anna@x.org
Anna Smith,1002,smith@x.org
=Ben,1003,ben@x.org
Jürgen Groß,1004,juergen@x.org
Zoë,1005,zoe@x.org
"""
FILES = {  # two students of the same name, who are known by a line in their files
    "a.py": "student = '17'\norder_bag = 'b'\n",
    "b.py": "student = '1002'\norder_bag = 'a'\n",
    "=1003/hw.py": "order_bag = 'b'\n",
    "ben_1003_7_hw.py": "order_bag = 'a'\n",
    "ben_1003_8_old.py": "order_bag = 'a'\n",
    "Jürgen Groß_1004_assignsubmission_file_/hw.py": "order_bag = 'a'\n1 / 0\n",
    "stranger.py": "order_bag = 'a'\n",
    "essay.pdf": "",
}
IDS = "order.bag,pe.even"


def write_class(folder, files=FILES):
    for name, text in files.items():
        path = folder / "class" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)


@pytest.fixture
def graded_class(tmp_path, monkeypatch, cached_grading):
    """Grade a class in the current folder, and return a function that runs the same command with more options."""
    monkeypatch.chdir(tmp_path)
    write_class(tmp_path)
    write_text(tmp_path / "list.csv", CLASS_LIST)
    options = format_options(csv="o.csv", grades="g.csv", feedback="back", roster="list.csv", exercises=IDS)

    def grade(*more_options):
        return cli.main(["grade", "class", *options, *more_options])

    assert grade() == 0
    return grade


def read_outputs():
    """Return the lines of the two tables, and the texts of the feedback files. The page is left out."""
    tables = {name: Path(name).read_bytes().splitlines() for name in ("o.csv", "g.csv")}
    return tables, {path.name: path.read_text(encoding="utf-8") for path in Path("back").iterdir()}


def count_changes(before, after):
    """Return the lines that differ in two tables of the same length."""
    return [new for old, new in zip(before, after, strict=True) if old != new]


CHANGES = {  # the student, a file to change, and its name in the table
    "1002": ("b.py", "student = '1002'\n"),
    "ANNA@x.org": ("a.py", "student = '17'\n"),
    "=ben": ("ben_1003_7_hw.py", ""),
    "Jürgen Groß": ("Jürgen Groß_1004_assignsubmission_file_/hw.py", ""),
}


@pytest.mark.parametrize("student", CHANGES)
def test_only_changes_the_lines_of_one_student(graded_class, student, capsys):
    """All files get a different answer, but only one student is graded again. The teacher's notes remain."""
    grades = Path("g.csv").read_text(encoding="utf-8")
    write_text(Path("g.csv"), grades.replace("zoe@x.org,0", "zoe@x.org,0.5"))  # the teacher's own change
    old_tables, old_texts = read_outputs()
    write_class(
        Path(), {name: text.replace("'a'", "'c'").replace("'b'", "'d'") for name, text in FILES.items()}
    )
    capsys.readouterr()
    assert graded_class(f"--only={student}") == 0
    new_tables, new_texts = read_outputs()
    name, _ = CHANGES[student]
    own_names = [row["submission"] for row in read_table(Path("o.csv")) if row["student"] == "'=Ben"]
    for line in count_changes(old_tables["o.csv"], new_tables["o.csv"]):
        assert line.decode().startswith(name) or (
            student == "=ben" and line.decode().split(",")[0] in own_names
        )
    assert len(count_changes(old_tables["g.csv"], new_tables["g.csv"])) <= 1
    changed = [file for file in old_texts if old_texts[file] != new_texts[file]]
    assert old_texts.keys() == new_texts.keys() and len(changed) == 1
    assert not Path("o.csv.journal").exists()
    assert " of 2 points. Not correct yet: order.bag, pe.even.\n" in capsys.readouterr().out


def test_only_grades_no_other_student(graded_class, graded_data):
    """The command grades the two files of the student, and the file without an owner."""
    assert graded_class("--only=1003", "--csv=o.csv") == 0
    expected = [FILES[name].encode() for name in ("=1003/hw.py", "ben_1003_7_hw.py", "ben_1003_8_old.py")]
    assert sorted(graded_data) == sorted([*expected, FILES["stranger.py"].encode()])


def test_only_reads_no_text_for_people(graded_class):
    """The column `student` may contain anything, because the columns id, name and email identify the owner."""
    table = Path("o.csv").read_text(encoding="utf-8")
    header, *lines = csv.reader(io.StringIO(table, newline=""))
    column = header.index("student")
    assert header[-3:] == ["id", "name", "email"]
    for line in lines:
        line[column] = "Zoë"
    with Path("o.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *lines])
    grades = Path("g.csv").read_bytes()
    for student in ("17", "1002", "1003"):
        assert graded_class(f"--only={student}") == 0
        assert Path("g.csv").read_bytes() == grades
    changed = {row["id"] for row in read_table(Path("o.csv")) if row["student"] != "Zoë"}
    assert changed == {"17", "1002", "1003"}


def test_only_without_a_change_changes_no_byte(graded_class):
    assert graded_class("--html=p.html") == 0
    before = read_outputs(), Path("p.html").read_bytes()
    for student in ("17", "1002", "1003", "1004", "1005"):
        more_options = ["--html=p.html"] if student == "1002" else []
        assert graded_class(f"--only={student}", *more_options) == 0
        assert (read_outputs(), Path("p.html").read_bytes()) == before


def test_only_adds_new_and_removes_old_files(graded_class):
    write_class(Path(), {"zoe_1005_9_new.py": "order_bag = 'b'\n"})
    assert graded_class("--only=Zoë") == 0
    points_by_id = {row["id"]: row["points"] for row in read_table(Path("g.csv"))}
    assert points_by_id == {"17": "1", "1002": "0", "1003": "0", "1004": "0", "1005": "1"}
    names = [row["submission"] for row in read_table(Path("o.csv"))]
    assert names == sorted(names, key=lambda name: name.removeprefix("'"))
    Path("class/zoe_1005_9_new.py").unlink()
    assert graded_class("--only=Zoë") == 0
    assert "zoe_1005_9_new.py" not in Path("o.csv").read_text(encoding="utf-8")


def test_only_adds_a_student_who_joined_later(graded_class):
    before = Path("g.csv").read_bytes()
    write_text(Path("list.csv"), CLASS_LIST + "Mia,1006,mia@x.org\n")
    write_class(Path(), {"mia_1006_9_hw.py": "order_bag = 'b'\n"})
    assert graded_class("--only=mia@x.org") == 0
    assert Path("g.csv").read_bytes().startswith(before)
    assert read_table(Path("g.csv"))[-1]["points"] == "1"


def test_only_needs_no_class_list(tmp_path, monkeypatch, cached_grading, capsys):
    """Without a class list, the files name the students. The option --grades may be left out."""
    monkeypatch.chdir(tmp_path)
    files = {"x/submission_55/a.py": "order_bag = 'a'", "ada.py": "student = 'Ada'\norder_bag = 'a'"}
    write_class(tmp_path, files | {"ben_12_34_a.py": "order_bag = 'b'"})
    command = ["grade", "class", "--csv=o.csv", f"--exercises={IDS}"]
    assert cli.main([*command, "--grades=g.csv"]) == 0
    before = Path("g.csv").read_bytes()
    write_class(tmp_path, {"ada.py": "student = 'Ada'\norder_bag = 'b'"})
    assert cli.main([*command, "--only=ada", "--grades=g.csv"]) == 0
    assert len(count_changes(before.splitlines(), Path("g.csv").read_bytes().splitlines())) == 1
    assert cli.main([*command, "--only=55"]) == 0
    write_class(tmp_path, {"ada.py": "student = 'Eva'\norder_bag = 'b'"})
    capsys.readouterr()
    assert cli.main([*command, "--only=Ada", "--grades=g.csv"]) == 0
    assert "Ada has no file any more." in capsys.readouterr().out


def test_only_tells_equal_names_apart_without_class_list(tmp_path, monkeypatch, cached_grading, capsys):
    """Two pairs of students have the same name: one pair by the paths, one pair by a line in the files."""
    monkeypatch.chdir(tmp_path)
    files = {f"smith_{number}_1_a.py": "order_bag = 'a'" for number in (70, 71)}
    files |= {f"x_{number}_1_a.py": "student = 'Ada'\norder_bag = 'a'" for number in (80, 81)}
    write_class(tmp_path, files)
    command = ["grade", "class", "--csv=o.csv", "--grades=g.csv", "--feedback=back", f"--exercises={IDS}"]
    assert cli.main(command) == 0
    before = read_outputs()
    for number, name in ((70, "smith"), (80, "Ada")):
        capsys.readouterr()
        assert cli.main([*command, f"--only={number}"]) == 0
        assert f"{name} ({number}): 0 of 2 points." in capsys.readouterr().out and read_outputs() == before


REJECTED = (  # more options, and a part of the message
    (["--only=Ana Smth"], "'Ana Smth' is not a student of this class; similar: Anna Smith (17), Anna Smith (1002)"),
    (["--only=smith"], "similar: Anna Smith (17), Anna Smith (1002)"),
    (["--only=Anna Smith"], "fits Anna Smith (17), Anna Smith (1002); use the number or the email address"),
    (["--only=qqqqqq"], "'qqqqqq' is not a student of this class; no name is similar"),
    (["--only=17", "--resume"], "--only grades one student again, so it cannot be used with --resume"),
    (["--only=17", "--anonymous=k.csv"], "cannot be used with --anonymous"),
    (["--only=17", "--part=1/2"], "cannot be used with --part"),
    (["--only=17", "--exercises=order.bag"], "'o.csv' has other exercises than this assignment"),
    (["--only=17", "--csv=none.csv"], "there is no file 'none.csv'"),
    (["--only=17", "--csv=list.csv"], "'list.csv' is not the table of an earlier run with the same exercises"),
    (["--only=17", "--grades=list.csv"], "'list.csv' is not the table of an earlier run"),
    (["--part=3/2"], "--part is '3/2'; expected K/N, such as 1/3 for the first of three parts"),
    (["--part=half"], "--part is 'half'; expected K/N"),
)  # fmt: skip


@pytest.mark.parametrize(("options", "message"), REJECTED)
def test_only_and_part_reject_wrong_options(graded_class, options, message, capsys):
    before = read_outputs()
    assert graded_class(*options) == 2
    assert message in capsys.readouterr().err and read_outputs() == before


def test_choose_student_by_each_of_its_names():
    ada, ben = Student("1", "Ada", "a@x.org", frozenset({"login1"})), Student("2", "Ben", "")
    for text in ("1", "ada", " A@X.org ", "LOGIN1", "Ada (1)"):
        assert choose_student(text, [ada, ben]) == ada


# --- several machines ------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [2, 3])
def test_parts_of_two_machines_join_to_one_table(graded_class, parts, tmp_path, capsys):
    """The joined journals give the same bytes as one machine, without grading any file again."""
    assert graded_class("--html=p.html") == 0
    expected = read_outputs(), Path("p.html").read_bytes()
    capsys.readouterr()
    journals = []
    for k in range(1, parts + 1):
        assert graded_class(f"--part={k}/{parts}", f"--csv=part{k}.csv") == 0
        assert f"written: part{k}.csv.journal, with part {k}/{parts} of the class." in capsys.readouterr().out
        assert not Path(f"part{k}.csv").exists()
        journals.append(Path(f"part{k}.csv.journal").read_bytes())
    for path in (Path("o.csv"), Path("g.csv"), Path("p.html")):
        path.unlink()
    Path("o.csv.journal").write_bytes(b"".join(journals))
    capsys.readouterr()
    assert graded_class("--resume", "--html=p.html") == 0
    assert capsys.readouterr().err == "", "a file was graded again"
    assert (read_outputs(), Path("p.html").read_bytes()) == expected


def test_journals_of_different_settings_do_not_join(graded_class, capsys):
    assert graded_class("--part=1/2", "--csv=x.csv") == 0
    assert graded_class("--part=2/2", "--csv=y.csv", "--seconds=30") == 0
    joined = Path("x.csv.journal").read_bytes() + Path("y.csv.journal").read_bytes()
    Path("o.csv.journal").write_bytes(joined)
    assert graded_class("--resume") == 2
    assert "'o.csv.journal' belongs to other exercises, other limits" in capsys.readouterr().err
    assert Path("o.csv.journal").read_bytes() == joined


# --- an ASCII locale -------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="macOS always uses UTF-8 for the names of files")
def test_grade_writes_umlauts_under_ascii_locale(tmp_path):
    """The names of feedback files are in UTF-8, whatever the locale, and so are all texts."""
    write_class(tmp_path)
    write_text(tmp_path / "list.csv", CLASS_LIST)
    options = format_options(csv="ö.csv", grades="g.csv", feedback="zurück", roster="list.csv")
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "npformer", "grade", "class", f"--exercises={IDS}", *options]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True)
    assert result.returncode == 0, result.stderr
    names = sorted(os.listdir(os.fsencode(tmp_path)))
    assert "ö.csv".encode() in names and not any(name.endswith(b".journal") for name in names)
    feedback = tmp_path / "zurück" / "Jürgen Groß (1004).md"
    assert "Jürgen Groß" in feedback.read_text(encoding="utf-8")
    paths = [row["feedback"] for row in read_table(tmp_path / "g.csv")]
    assert "zurück/Jürgen Groß (1004).md" in paths


# --- a full disk -----------------------------------------------------------------------------------

OUTPUTS = ["o.csv", "g.csv", "p.html", "back/_Ben (1003).md"]


def fill_disk_for(path):
    """Send what is written to this file to /dev/full, where the kernel answers that the disk is full."""
    path.parent.mkdir(exist_ok=True)
    path.with_name(f".{path.name}.{os.getpid()}.part").symlink_to("/dev/full")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("output", OUTPUTS)
def test_full_disk_keeps_results_of_each_output(graded_class, output, capsys):
    expected = read_outputs()
    page = ["--html=p.html"] if output == "p.html" else []
    fill_disk_for(Path(output))
    assert graded_class(*page) == 2
    err = capsys.readouterr().err
    assert f"'{output}' cannot be read or written: No space left on device\n" in err
    assert "the results so far are in o.csv.journal; --resume continues from there\n" in err
    assert read_outputs() == expected
    capsys.readouterr()
    assert graded_class("--resume") == 0
    assert capsys.readouterr().err == "" and read_outputs() == expected


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk_at_start_and_with_only(graded_class, capsys):
    fill_disk_for(Path("o.csv.journal"))
    assert graded_class() == 2
    err = capsys.readouterr().err
    assert "no submission was graded; run the same command again\n" in err
    assert "'o.csv.journal' cannot be read or written: No space left on device\n" in err
    fill_disk_for(Path("g.csv"))
    assert graded_class("--only=1003") == 2
    assert "no file was changed; run the same command again\n" in capsys.readouterr().err
    assert not Path("o.csv.journal").exists() and graded_class("--only=1003") == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk_loses_no_line_of_journal(graded_class, capsys):
    """The old journal remains if the disk is full when a run is resumed."""
    fill_disk_for(Path("g.csv"))
    assert graded_class() == 2
    journal = Path("o.csv.journal").read_bytes()
    fill_disk_for(Path("o.csv.journal"))
    assert graded_class("--resume") == 2
    assert Path("o.csv.journal").read_bytes() == journal and graded_class("--resume") == 0
