"""Tests of the layouts in which systems export a class: each file gets its owner or is listed.

The names are exactly as the systems write them. Sources: Canvas, `lib/content_zipper.rb`; Moodle,
`mod/assign/classes/downloader.php` and, for older versions, `mod/assign/locallib.php`; nbgrader,
`exchange/default/submit.py` and `collect.py`.
"""

import io
import zipfile

import pytest
from class_files import make_submission

from npformer.grader.class_list import Student, find_owners, index_students, read_class_list
from npformer.grader.submissions import find_submissions, parse_lms_name

ANNA, OTHER_ANNA, BEN, ZOE, CHER = "A1", "A2", "B3", "Z4", "C5"
CLASS_LIST = """id,identifier,username,github_username,email,name
A1,4711,asmith,anna-s,anna@x.org,Anna Smith
A2,4712,asmith2,s,smith@x.org,Anna Smith
B3,4713,bode,ben,ben@x.org,"Ode, Ben"
Z4,4714,znunez,znz,zoe@x.org,Zoë Núñez
C5,4715,c_j,c-c,c@x.org,Cher
"""
LAYOUTS: dict[
    str, dict[str, str | None]
] = {  # for each layout: the owner of each file; None if the teacher has to decide
    "canvas": {
        "smithanna_4711_990_hw1.py": ANNA,
        "smithanna_LATE_4712_991_hw1-1.ipynb": OTHER_ANNA,
        "odeben_4713_992_answers.zip/src/hw1.py": BEN,
        "nunez_zoe_4714_993_hw1_2026_03_03T22_15_00_123456.zip/hw1.ipynb": ZOE,
        "nobody_9999_994_hw1.zip/Ben Ode/hw1.py": None,
    },
    "canvas, anonymous": {"anon_k3x9Q_990_hw1.py": None, "LATE_anon_00471_991_4711_1_hw1.py": None},
    "moodle, folders": {
        "Anna Smith_4711_assignsubmission_file_/hw1.py": ANNA,
        "Anna Smith_4712_assignsubmission_file_/src/bode.py": OTHER_ANNA,
        "Zoë Núñez_4714_assignsubmission_file_/a.zip/hw1.py": ZOE,
        "Ben Ode_4713_assignsubmission_file_/x_4711_1_hw1.py": BEN,
    },
    "moodle, folders, since 4.1": {"Anna Smith_4711_assignsubmission_file/hw1.py": ANNA},
    "moodle, no folders": {
        "Anna Smith_4711_assignsubmission_file_hw1.py": ANNA,
        "Ben Ode_4713_assignsubmission_file_x_4711_1_hw1.py": BEN,
    },
    "moodle, anonymous": {
        "Participant 4711_assignsubmission_file_/hw1.py": ANNA,
        "Participant_4713_assignsubmission_file_/hw1.py": BEN,
    },
    "moodle, anonymous, in German": {
        "Teilnehmerin4711_assignsubmission_file_/hw1.py": ANNA,
        "Teilnehmerin_4713_assignsubmission_file_/hw1.py": BEN,
    },
    "moodle, anonymous, in French": {
        "Participant4711_assignsubmission_file_/hw1.py": ANNA,
        "Participant_4713_assignsubmission_file_/hw1.py": BEN,
    },
    "moodle, anonymous, in Spanish": {
        "Participante4711_assignsubmission_file_/hw1.py": ANNA,
        "Participante_4713_assignsubmission_file_/hw1.py": BEN,
    },
    "moodle, groups": {
        "Group A_4711_assignsubmission_file_/hw1.py": None,
        "Default group_assignsubmission_file_/hw1.py": None,
    },
    "moodle, other number": {"Zoë Núñez_99_assignsubmission_file_/hw1.py": ZOE},
    "blackboard": {
        "HW 1_asmith_attempt_2026-03-03-22-15-00_hw1.py": ANNA,
        "HW_1_asmith2_attempt_2026-03-03-22-15-00_hw1.py": OTHER_ANNA,
        "HW 1_c_j_attempt_2026-03-03-22-15-00_hw1.py": CHER,
        "HW 1_bode_attempt_2026-03-03-22-15-00_x_4711_1_hw1.py": BEN,
    },
    "gradescope": {
        "assignment_4712_export/submission_4711/hw1.py": ANNA,
        "assignment_4712_export/submission_9/submission_4711/hw1.py": None,
    },
    "brightspace": {
        "4713-99 - Zoë Núñez - Mar 3, 2026 1015 PM/hw1.py": ZOE,
        "88-99 - Anna Smith - Mar 3, 2026 1015 PM/hw1.py": None,
    },
    "nbgrader, collected": {"asmith/ps1/problem1.ipynb": ANNA, "bode/ps1/asmith/problem1.ipynb": BEN},
    "nbgrader, course": {"submitted/asmith/ps1/p.ipynb": ANNA, "autograded/bode/ps1/p.ipynb": BEN},
    "nbgrader, exchange": {"asmith2+ps1+2026-03-03 22:15:00.123456 UTC+dG9r/p.ipynb": OTHER_ANNA},
    "nbgrader, zip_collect": {"ps1_asmith_attempt_2026-03-03-22-15-00_problem1.ipynb": ANNA},
    "github classroom": {
        "hw1-anna-s/hw1.py": ANNA,
        "hw1-ben/anna-s/hw1.py": BEN,
        "hw1-znz/hw1.ipynb": ZOE,
        "hw1-x-ben/hw1.py": None,
        "hw1-anna-smith/hw1.py": None,
        "hw1-ben-1/hw1.py": None,
        "README.py": None,
    },
    "github classroom, cloned": {
        "week-2-hw-submissions/week-2-hw-anna-s/hw1.py": ANNA,
        "week-2-hw-submissions/week-2-hw-s/hw1.py": OTHER_ANNA,
    },
    "google classroom": {"HW 1/Zoë Núñez - hw1.ipynb": ZOE, "HW 1/Copy of hw1.ipynb": None},
    "a folder with a student's number": {
        "CS101-HW 1-4711/Zoë Núñez_4714_assignsubmission_file_/hw1.py": ZOE,
        "CS101-HW 1-4711/Ben Ode_4713_assignsubmission_file_/hw1.py": BEN,
        "CS101-HW 1-4711/Anna Smith/4712.py": None,
    },
    "absolute paths in a zip file": {"/hw/4713/hw1.py": BEN, "/hw/4714/hw1.py": ZOE},
    "a folder of one student": {"hw 4711/bode.py": ANNA, "hw 4711/src/help.py": ANNA},
    "otter": {"hw1_4711_03_03T22_15_00_004712.zip/hw1.ipynb": None},
    "e-mail": {
        "anna@x.org/hw1.py": ANNA,
        "Ben Ode <ben@x.org>/hw1.py": BEN,
        "Nunez, Zoe/hw1 (1).py": ZOE,
        "4712 hw1 (2).py": OTHER_ANNA,
        "asmith_hw1.py": ANNA,
        "Anna Smith.py": None,
        "smith.py": None,
        "homework by ben.py": None,
        "Cher/hw.py": CHER,
        "homework by Cher.py": None,
    },
}


@pytest.fixture
def class_list(tmp_path):
    (tmp_path / "r.csv").write_text(CLASS_LIST, encoding="utf-8")
    return read_class_list(tmp_path / "r.csv")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_find_owners_of_each_layout(layout, class_list):
    expected = LAYOUTS[layout]
    owners = find_owners([*map(make_submission, expected)], {}, class_list)
    ids = {name: student.id for name, student in owners.by_file.items()}
    assert ids == {name: owner for name, owner in expected.items() if owner}
    assert len(owners.undecided) == len(expected) - len(ids)


def test_find_owners_claim_does_not_name_by_numbers(class_list):
    """A sentence in the line `student = …` can contain the number of another student."""
    name = "Zoë Núñez_99_assignsubmission_file_/hw1.py"
    owners = find_owners([make_submission(name)], {name: "not 4711"}, class_list)
    assert owners.by_file[name].id == ZOE and owners.undecided == []


@pytest.mark.parametrize("name", ["anon_k3x9Q_990_hw1.py", "LATE_anon_k3x9Q_990_hw1.py"])
def test_find_owners_without_class_list_keeps_anonymous_ids(name):
    owners = find_owners([make_submission(name)], {}, None)
    assert owners.by_file[name] == Student("anon_k3x9Q", "", "")


def test_index_students_of_an_empty_name():
    assert index_students([Student("1", "", "", frozenset({"1"}))]).keys() == {"1"}


def test_find_submissions_reads_windows_paths(tmp_path):
    """A zip file that an old Windows program wrote has backslashes in its paths."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(zipfile.ZipInfo("Anna Smith_4711_assignsubmission_file_\\hw1.py"), "x = 1")
        archive.writestr(zipfile.ZipInfo("Anna Smith_4711_assignsubmission_file_\\"), "")
    (tmp_path / "class.zip").write_bytes(data.getvalue())
    (file,) = find_submissions(tmp_path / "class.zip")
    assert file.name == "class.zip/Anna Smith_4711_assignsubmission_file_/hw1.py"
    assert parse_lms_name(file.original_name).id == "4711" and file.read() == b"x = 1"


@pytest.mark.parametrize(
    ("zip_name", "original_name"),
    [("CS-4711.zip", "a.py"), ("smithanna_4711_9_a.zip", "smithanna_4711_9_a.zip/a.py")],
)
def test_find_submissions_name_of_the_class_zip(zip_name, original_name, tmp_path):
    """The number in the name of a class's zip file is not the number of a student."""
    with zipfile.ZipFile(tmp_path / zip_name, "w") as archive:
        archive.writestr("a.py", "")
    (file,) = find_submissions(tmp_path / zip_name)
    assert file.original_name == original_name


@pytest.mark.parametrize("start", ["Participant ", "Participant", "Participante", "Teilnehmerin"])
@pytest.mark.parametrize("separator", ["", "_"])
def test_parse_lms_name_of_anonymous_moodle_submission(start, separator):
    lms_name = parse_lms_name(f"{start}{separator}4711_assignsubmission_file_")
    assert (lms_name.system, lms_name.id) == ("moodle", "4711")
