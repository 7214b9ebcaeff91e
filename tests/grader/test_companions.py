"""Tests of `companions`: a submission gets the other files of the same student, and of no one else."""

import os
from pathlib import Path

import numpy as np
import pytest
from class_files import format_options, make_submission, read_table, write_text
from honest import make_zip

from npformer import cli
from npformer.grader import companions, supervisor
from npformer.grader.bubblewrap import Protection
from npformer.grader.class_list import read_class_list
from npformer.grader.companions import Companions, attach_all, attach_companions, read_companions
from npformer.grader.grading_process import Limits, SubmissionGrader, digest
from npformer.grader.submissions import MAX_BYTES, find_submissions
from npformer.grader.worker.protocol import pack

HW1 = "from helper import LETTER\norder_bag = LETTER\n"
CLASS_LIST = "Name,ID,Login\nAnna Smith,4711,asmith\nEve Moss,4712,emoss\n"
LAYOUTS = {  # the folder and the beginning of each file's name, for two students
    "canvas": ("", "smithanna_4711_{i}_", "mosseve_LATE_4712_{i}_"),
    "canvas, anonymous": ("", "anon_k3x9Q_{i}_", "LATE_anon_00471_{i}_"),
    "moodle, no folders": (
        "",
        "Anna Smith_4711_assignsubmission_file_",
        "Eve Moss_4712_assignsubmission_file_",
    ),
    "moodle": ("", "Anna Smith_4711_assignsubmission_file_/", "Eve Moss_4712_assignsubmission_file_/"),
    "blackboard": (
        "",
        "HW 1_asmith_attempt_2026-03-01-10-00-00_",
        "HW 1_emoss_attempt_2026-03-01-10-00-09_",
    ),
    "gradescope": ("", "submission_4711/", "submission_4712/"),
    "folders": ("week1/", "4711/", "4712/"),
}


def list_files(folder, files):
    """Write the files, and return the submissions that the grader finds."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return find_submissions(folder)


def read_all(files):
    """Return {name: companions} of the files to grade."""
    return {file.name: read_companions(file) for file in files if not file.skip_reason}


@pytest.mark.parametrize("with_class_list", [False, True], ids=["without list", "with list"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_attach_companions_takes_files_of_the_same_student(layout, with_class_list, tmp_path):
    folder, *beginnings = LAYOUTS[layout]
    files = {}
    for beginning, letter in zip(beginnings, (b"b", b"c"), strict=True):
        contents = {
            "hw1.py": HW1.encode(),
            "helper.py": b"LETTER = 'b'",
            "data.csv": letter,
            "essay.pdf": b"",
        }
        for i, (name, data) in enumerate(contents.items(), 990):
            files[folder + beginning.format(i=i) + name] = data
    class_list = read_class_list(write_text(tmp_path / "r.csv", CLASS_LIST)) if with_class_list else None
    found = read_all(attach_companions(list_files(tmp_path / "class", files), class_list))
    for beginning, letter in zip(beginnings, (b"b", b"c"), strict=True):
        expected = {"helper.py": b"LETTER = 'b'", "data.csv": letter}
        # Without a class list, the grader cannot know that each folder belongs to one student. Anonymous ids
        # are on no class list.
        is_unknown = layout == ("canvas, anonymous" if with_class_list else "folders")
        if is_unknown:
            expected = {}
        assert dict(found[folder + beginning.format(i=990) + "hw1.py"].files) == expected
        assert "hw1.py" in dict(found[folder + beginning.format(i=991) + "helper.py"].files) or not expected


THEFTS = {  # files with which Eve tries to get the file of Anna, who has the number 4711
    "a claim": ("mosseve_4712_991_hw1.py", b"student = 'Anna Smith'"),
    "a claim without a path": ("homework.py", b"student = 'Anna Smith'"),
    "a name like Anna's": ("mosseve_4712_991_smithanna_4711_992_hw1.py", b""),
    "a path in a zip file": (
        "mosseve_4712_991_hw1.zip",
        make_zip({"../smithanna_4711_990_x.py": "", "x.py": ""}),
    ),
    "a link": ("mosseve_4712_991_hw1.py", None),
}


@pytest.mark.parametrize("with_class_list", [False, True], ids=["without list", "with list"])
@pytest.mark.parametrize(("name", "data"), THEFTS.values(), ids=THEFTS)
def test_attach_companions_takes_no_file_of_others(name, data, with_class_list, tmp_path):
    files = {"smithanna_4711_990_hw1.py": b"order_bag = 'b'", "mosseve_4712_990_a.py": b"", name: data or b""}
    if data is None:
        os.symlink(tmp_path / "smithanna_4711_990_hw1.py", tmp_path / "mosseve_4712_990_data.csv")
    class_list = read_class_list(write_text(tmp_path / "r.csv", CLASS_LIST)) if with_class_list else None
    (tmp_path / "r.csv").unlink(missing_ok=True)
    found = read_all(attach_companions(list_files(tmp_path, files), class_list))
    assert found["smithanna_4711_990_hw1.py"].files == ()
    for file_name, given in found.items():
        assert b"order_bag = 'b'" not in dict(given.files).values(), file_name


def test_read_companions_keeps_folders_and_the_own_folder(tmp_path):
    members = {"src/hw1.py": HW1, "src/tools/helper.py": "", "data/w.csv": "1", "data/plot.png": "2"}
    files = {
        "Anna Smith_4711_assignsubmission_file_/hw.zip": make_zip(members),
        "mosseve_4712_991_hw1.py": b"",
    }
    found = read_all(attach_companions(list_files(tmp_path, files), None))
    hw1 = found["Anna Smith_4711_assignsubmission_file_/hw.zip/src/hw1.py"]
    others = (("data/plot.png", b"2"), ("data/w.csv", b"1"), ("src/tools/helper.py", b""))
    assert hw1 == Companions("src", others)


def test_read_companions_names_files_that_are_left_out(monkeypatch):
    monkeypatch.setattr(companions, "MAX_COMPANION_BYTES", 5)
    names = ("hw1.py", "a.py", "b.py", "c.py")
    files = attach_all(
        [make_submission(name, data) for name, data in zip(names, (b"", b"123", b"456", b"7"), strict=True)]
    )
    assert read_companions(files[0]) == Companions("", (("a.py", b"123"), ("c.py", b"7")), ("b.py",))
    monkeypatch.setattr(companions, "MAX_COMPANIONS", 1)
    assert read_companions(files[0]).left_out == ("b.py", "c.py")


def test_read_companions_leaves_out_unreadable_files():
    def fail():
        raise OSError("no")

    files = [make_submission("hw1.py"), make_submission("a.py")._replace(open=fail)]
    assert read_companions(attach_all(files)[0]) == Companions(left_out=("a.py",))


@pytest.mark.parametrize("name", ["../a.py", "/a.py", "x/../../a.py", "x//a.py"])
def test_read_companions_rejects_paths_to_other_places(name):
    first, second = attach_all([make_submission("hw1.py"), make_submission(name)])
    assert read_companions(first) == read_companions(second) == Companions()


def test_read_companions_renames_canvas_resubmissions(tmp_path):
    files = {"smithanna_4711_990_hw1-2.py": b"", "smithanna_4711_991_helper-1.py": b"new"}
    found = read_all(attach_companions(list_files(tmp_path, files), None))
    helpers = (("helper-1.py", b"new"), ("helper.py", b"new"))
    assert found["smithanna_4711_990_hw1-2.py"].files == helpers
    both = files | {"smithanna_4711_992_helper.py": b"old", "smithanna_4711_993_helper.py": b"older"}
    found = read_all(attach_companions(list_files(tmp_path, both), None))
    expected = (("helper-1.py", b"new"), ("helper.py", b"old"))
    assert found["smithanna_4711_990_hw1-2.py"].files == expected


CHOSEN_NAMES = {  # a path in the class, and the path that the submission sees: students chose x_4711_1_w.csv
    "canvas": ("smithanna_4711_991_x_4711_1_w.csv", "x_4711_1_w.csv"),
    "blackboard": ("HW 1_asmith_attempt_2026-03-01-10-00-00_x_4711_1_w.csv", "x_4711_1_w.csv"),
    "moodle, folders": ("Anna Smith_4711_assignsubmission_file_/x_4711_1_w.csv", "x_4711_1_w.csv"),
    "moodle, no folders": ("Anna Smith_4711_assignsubmission_file_x_4711_1_w.csv", "x_4711_1_w.csv"),
}


@pytest.mark.parametrize(("path", "expected"), CHOSEN_NAMES.values(), ids=CHOSEN_NAMES)
def test_read_companions_keeps_the_name_of_the_student(path, expected, tmp_path):
    own_path = path.replace("w.csv", "hw1.py")
    found = read_all(attach_companions(list_files(tmp_path, {path: b"1", own_path: b""}), None))
    assert found[own_path].files == ((expected, b"1"),)


def test_largest_files_fit_into_one_frame():
    """A frame encodes bytes in base64, which needs a third more space."""
    paths = ["x" * 1000 + str(i) for i in range(2 * companions.MAX_COMPANIONS)]
    sizes = [companions.MAX_COMPANION_BYTES, *[0] * (len(paths) - 1)]
    files = {path: np.zeros(size, np.uint8) for path, size in zip(paths, sizes, strict=True)}
    assert pack({"data": np.zeros(MAX_BYTES, np.uint8), "files": files})


def test_read_companions_counts_second_names(monkeypatch):
    """A second name of a file counts as a second copy. Here, this copy would exceed the limit of bytes."""
    monkeypatch.setattr(companions, "MAX_COMPANION_BYTES", 5)
    files = attach_all([make_submission("hw1.py"), make_submission("w-1.py", b"123")])
    assert read_companions(files[0]) == Companions("", (("w-1.py", b"123"),), ("w.py",))


READS_FILES = """
import os
from tools.helper import LETTER
is_read_only = not os.stat("w.txt").st_mode & 0o222
order_bag = LETTER if is_read_only and open("../w.txt").read() == "outer" else "a"
"""
FILES = (("w.txt", b"outer"), ("src/w.txt", b"inner"), ("src/tools/helper.py", b"LETTER = 'b'"))


@pytest.mark.parametrize("has_sandbox", [True, False], ids=["bubblewrap", "no sandbox"])
def test_worker_gets_companions_in_its_directory(has_sandbox, tmp_path, monkeypatch):
    with SubmissionGrader(str(tmp_path), Limits()) as grader:
        if has_sandbox and not grader.protection.has_sandbox:
            pytest.skip(grader.protection.problem)
        has_own_users = grader.protection.has_own_users and has_sandbox
        grader.protection = Protection(has_sandbox, has_own_users)
        for given, status in ((Companions("src", FILES), "pass"), (Companions(), "not read")):
            (row,) = grader.grade("a.py", READS_FILES.encode(), ["order.bag"], given)
            assert row.status == status, row
    assert os.listdir(tmp_path) == ["npformer.py"]


def test_digest_depends_on_companions():
    digests = {digest(b"x"), digest(b"x", Companions(files=(("a.py", b"1"),)))}
    digests |= {
        digest(b"x", Companions(files=(("a.py", b"2"),))),
        digest(b"x", Companions("a", (("a.py", b"1"),))),
    }
    assert len(digests) == 4 and digest("It is too large.") == "It is too large."


def test_grade_gives_students_their_own_files(tmp_path, capsys, uncached_grading):
    """The files of both students have the same names. Only Anna's letter.txt has the correct letter."""
    folder = tmp_path / "class"
    (folder / "asmith").mkdir(parents=True)
    (folder / "emoss").mkdir()
    for name, letter in (("asmith", "b"), ("emoss", "c")):
        write_text(folder / name / "hw1.py", HW1)
        write_text(folder / name / "helper.py", "import torch\nLETTER = open('letter.txt').read()\n")
        write_text(folder / name / "letter.txt", letter)
    class_list = write_text(tmp_path / "r.csv", CLASS_LIST)
    grades = tmp_path / "g.csv"
    options = format_options(
        csv=tmp_path / "o.csv", grades=grades, roster=class_list, feedback=tmp_path / "back"
    )
    assert cli.main(["grade", str(folder), "--exercises=order.bag", *options]) == 0
    assert [row["points"] for row in read_table(grades)] == ["1", "0"]
    problem = "helper.py, line 1: torch is not installed here."
    assert f"Problems in asmith/hw1.py: {problem}" in capsys.readouterr().out
    rows = [row for row in read_table(tmp_path / "o.csv") if row["submission"] == "asmith/hw1.py"]
    assert [(row["status"], row["problem"]) for row in rows] == [("pass", problem)]
    feedback = (tmp_path / "back" / "Anna Smith (4711).md").read_text()
    assert f"Problems in asmith/hw1.py:\n\n> {problem}\n" in feedback


@pytest.fixture
def graded_names(uncached_grading, monkeypatch):
    """Return a list to which each run adds the names of the files that it grades."""
    names = []
    iter_reports = supervisor.iter_reports

    def record(files, *settings):
        names.extend(file.name for file in files)
        return iter_reports(files, *settings)

    monkeypatch.setattr(supervisor, "iter_reports", record)
    return names


def test_parts_and_only_keep_companions(tmp_path, monkeypatch, graded_names):
    """The files of a student are in different parts of the class, but each gets all companions."""
    (tmp_path / "class").mkdir()
    monkeypatch.chdir(tmp_path)
    for number, letter in (("4711", "b"), ("4712", "c")):
        write_text(tmp_path / "class" / f"x_{number}_1_hw1.py", HW1)
        write_text(tmp_path / "class" / f"x_{number}_2_helper.py", f"LETTER = '{letter}'")
    command = ["grade", "class", "--exercises=order.bag"]
    for part in ("1/2", "2/2"):
        assert cli.main([*command, f"--csv={part[0]}.csv", f"--part={part}"]) == 0
    journals = [Path(f"{number}.csv.journal").read_bytes() for number in (1, 2)]
    Path("o.csv.journal").write_bytes(b"".join(journals))
    assert len(graded_names) == 4
    assert cli.main([*command, "--csv=o.csv", "--resume"]) == 0
    assert len(graded_names) == 4 and read_statuses() == {
        "x_4711_1_hw1.py": "pass",
        "x_4712_1_hw1.py": "known_mistake",
    }
    write_text(tmp_path / "class" / "x_4712_2_helper.py", "LETTER = 'b'")
    assert cli.main([*command, "--csv=o.csv", "--only=4712"]) == 0
    assert graded_names[4:] == ["x_4712_1_hw1.py", "x_4712_2_helper.py"]
    assert read_statuses() == {"x_4711_1_hw1.py": "pass", "x_4712_1_hw1.py": "pass"}


def test_resume_grades_again_after_a_companion_changed(tmp_path, monkeypatch, graded_names):
    (tmp_path / "class").mkdir()
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "class" / "x_4711_1_hw1.py", HW1)
    write_text(tmp_path / "class" / "x_4711_2_w.csv", "1")
    command = ["grade", "class", "--exercises=order.bag", "--csv=o.csv"]
    assert cli.main([*command, "--part=1/1"]) == 0
    write_text(tmp_path / "class" / "x_4711_2_w.csv", "2")
    assert cli.main([*command, "--resume"]) == 0
    assert graded_names == ["x_4711_1_hw1.py"] * 2


def read_statuses():
    """Return the status of each answered row in the table, by file name."""
    return {
        row["submission"]: row["status"] for row in read_table(Path("o.csv")) if "hw1" in row["submission"]
    }
