"""Tests of `companions`: a submission gets the other files of the same student, and of no one else."""

import os

import pytest
from class_files import format_options, make_submission, read_table, write_text
from honest import make_zip

from npformer import cli
from npformer.grader import companions
from npformer.grader.class_list import read_class_list
from npformer.grader.companions import Companions, attach_all, attach_companions, read_companions
from npformer.grader.grading_process import digest
from npformer.grader.submissions import find_submissions

HW1 = "from helper import LETTER\norder_bag = LETTER\n"
CLASS_LIST = "Name,ID,Login\nAnna Smith,4711,asmith\nEve Moss,4712,emoss\n"
LAYOUTS = {  # the folder and the beginning of each file's name, for two students
    "canvas": ("", "smithanna_4711_{i}_", "mosseve_LATE_4712_{i}_"),
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
        if layout == "folders" and not with_class_list:  # The grader cannot know that a folder is a student.
            expected = {}
        assert dict(found[folder + beginning.format(i=990) + "hw1.py"].files) == expected
        assert "hw1.py" in dict(found[folder + beginning.format(i=991) + "helper.py"].files) or not expected


THEFTS = {  # files of Eve's that try to get the file of Anna, who has the number 4711
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
    members = {"src/hw1.py": HW1, "src/tools/helper.py": "", "data/w.csv": "1"}
    files = {
        "Anna Smith_4711_assignsubmission_file_/hw.zip": make_zip(members),
        "mosseve_4712_991_hw1.py": b"",
    }
    found = read_all(attach_companions(list_files(tmp_path, files), None))
    hw1 = found["Anna Smith_4711_assignsubmission_file_/hw.zip/src/hw1.py"]
    assert hw1 == Companions("src", (("data/w.csv", b"1"), ("src/tools/helper.py", b"")))


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


def test_digest_depends_on_companions():
    digests = {digest(b"x"), digest(b"x", Companions(files=(("a.py", b"1"),)))}
    digests |= {
        digest(b"x", Companions(files=(("a.py", b"2"),))),
        digest(b"x", Companions("a", (("a.py", b"1"),))),
    }
    assert len(digests) == 4 and digest("It is too large.") == "It is too large."


def test_grade_gives_students_their_own_files(tmp_path, capsys, uncached_grading):
    """Both students have a module with the same name, and only Anna's has the correct letter."""
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
    assert cli.main(["grade", str(folder), "--only=order.bag", *options]) == 0
    assert [row["points"] for row in read_table(grades)] == ["1", "0"]
    problem = "helper.py, line 1: torch is not installed here."
    assert f"Problems in asmith/hw1.py: {problem}" in capsys.readouterr().out
    rows = [row for row in read_table(tmp_path / "o.csv") if row["submission"] == "asmith/hw1.py"]
    assert [(row["status"], row["problem"]) for row in rows] == [("pass", problem)]
    feedback = (tmp_path / "back" / "Anna Smith (4711).md").read_text()
    assert f"Problems in asmith/hw1.py:\n\n> {problem}\n" in feedback
