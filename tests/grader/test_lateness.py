"""Tests of lateness: it comes only from data that students cannot write."""

import os
import re
import zipfile
from datetime import datetime

import pytest
from class_files import format_options, make_submission, read_table, write_text

from npformer import cli
from npformer.grader.class_list import Owners, Student, read_class_list
from npformer.grader.lateness import NO_SOURCE, find_lateness, sort_attempts, split_timestamps
from npformer.grader.submissions import find_submissions
from npformer.grader.times import parse_time

DUE = datetime(2026, 3, 3, 22, 0).timestamp()

# --- reading times ---------------------------------------------------------------------------------

LATE_EVENING = datetime(2026, 3, 3, 22, 15).timestamp()
TIMES = {  # a text, and the time in seconds since 1970; None if it cannot be read
    "Tuesday, 3 March 2026, 10:15 PM": LATE_EVENING,
    "Tuesday, 03 March 2026, 22:15": LATE_EVENING,
    "3 March 2026, 10:15\u202fpm": LATE_EVENING,
    "Tuesday, March 3, 2026, 10:15 PM": LATE_EVENING,
    "March 3, 2026, 22:15": LATE_EVENING,
    "2026-03-03 22:15:00": LATE_EVENING,
    "2026-03-03T22:15:00": LATE_EVENING,
    "2026-03-03 22:15": LATE_EVENING,
    "2026-03-03-22-15-00": LATE_EVENING,
    "2026-03-03 22:15:00.500000 UTC": 1772576100.5,
    "2026-03-03 22:15:00 +0100": 1772572500.0,
    "2026-03-03 22:15:00-08:00": 1772604900.0,
    "2026-03-03 22:15:00 Europe/Berlin": 1772572500.0,
    "2026-03-03 22:15:00 Europe/Nowhere": None,
    "2026-03-03 22:15:00 +9999": None,
    "Dienstag, 3. März 2026, 22:15": LATE_EVENING,
    "mardi 3 mars 2026, 22:15": LATE_EVENING,
    "martes, 3 de marzo de 2026, 22:15": LATE_EVENING,
    "martes, 3 de marzo de 2026, 10:15 PM": LATE_EVENING,
    "3. märz 2026, 22:15": LATE_EVENING,
    "tirsdag den 3. marts 2026, 22:15": None,
    "3 marts 2026, 22:15": None,
    "3/3/26, 22:15": None,
    "31 February 2026, 22:15": None,
    "-": None,
    "": None,
}


@pytest.mark.parametrize("text", TIMES)
def test_parse_time_of_each_format(text):
    assert parse_time(text) == TIMES[text]


DATES = {  # for each language: how Moodle writes a date, the months, and the days of the week
    "German": (
        "{weekday}, {day}. {month} {year}, 08:05",
        "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
        "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
    ),
    "French": (
        "{weekday} {day} {month} {year}, 08:05",
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        "lundi mardi mercredi jeudi vendredi samedi dimanche",
    ),
    "Spanish": (
        "{weekday}, {day} de {month} de {year}, 08:05",
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        "lunes martes miércoles jueves viernes sábado domingo",
    ),
}


@pytest.mark.parametrize("language", DATES)
def test_parse_time_knows_each_month_and_weekday(language):
    form, months, weekdays = DATES[language]
    for number, month in enumerate(months.split(), start=1):
        for day in range(1, 8):
            time = datetime(2026, number, day, 8, 5)
            weekday = weekdays.split()[time.weekday()]
            text = form.format(weekday=weekday, day=day, month=month, year=2026)
            assert parse_time(text) == time.timestamp(), text


# --- one submission --------------------------------------------------------------------------------

MOODLE = "Anna Smith_1_assignsubmission_file_/hw.py"
MISSING = "the time of submission of Anna is missing; Anna counts as on time"
UNREAD = "the time of submission of Anna cannot be read: 'gestern'; Anna counts as on time"
ANNA = Student("", "Anna", "")
ON_TIME, LATE = ANNA._replace(submitted=DUE), ANNA._replace(submitted=DUE + 1)
CASES = {  # (path, owner, text of timestamp.txt): days late, and what the teacher has to know
    (MOODLE, LATE, ""): (1, []),
    (MOODLE, ON_TIME, ""): (0, []),
    (MOODLE, ANNA._replace(submitted=DUE + 86401), ""): (2, []),
    (MOODLE, ANNA._replace(late=86400.0), ""): (1, []),
    (MOODLE, ANNA._replace(late=0.0), ""): (0, []),
    (MOODLE, ANNA._replace(unread_time="gestern"), ""): (0, [UNREAD]),
    (MOODLE, ANNA._replace(unread_time=""), ""): (0, [MISSING]),
    (MOODLE, ANNA, ""): (0, [NO_SOURCE]),
    ("anna_1_2_hw.py", ANNA, ""): (0, []),
    ("anna_LATE_1_2_hw.py", ANNA, ""): (1, []),
    ("LATE_anon_k3x9Q_2_hw.py", ANNA, ""): (1, []),
    ("anna_LATE_1_2_hw.zip/old/anna_1_2_hw.py", ON_TIME, ""): (1, []),
    ("anna_LATE_1_2_hw.py", ANNA._replace(submitted=DUE + 86401), ""): (2, []),
    ("anna_1_2_hw.py", ANNA._replace(unread_time="gestern"), ""): (0, [UNREAD]),
    ("HW_anna_attempt_2026-03-03-22-00-00_hw.py", ANNA, ""): (0, []),
    ("HW_anna_attempt_2026-03-03-22-00-01_x_attempt_2026-03-01-00-00-00.py", ANNA, ""): (1, []),
    ("anna/ps1/hw.ipynb", ANNA, "2026-03-03 22:00:00"): (0, []),
    ("anna/ps1/hw.ipynb", ANNA, "2026-03-04 22:00:01"): (2, []),
    ("anna/ps1/x_anna_attempt_2026-03-01-00-00-00_hw.ipynb", ANNA, "2026-03-03 22:00:01"): (1, []),
    ("anna/ps1/hw.ipynb", ANNA, "gestern"): (0, [UNREAD]),
    ("anna/hw.py", ANNA, ""): (0, [NO_SOURCE]),
}


@pytest.mark.parametrize("case", CASES, ids=map(str, range(len(CASES))))
def test_find_lateness_of_one_submission(case):
    path, student, timestamp = case
    timestamps = {"anna/ps1": timestamp} if timestamp else {}
    owners = Owners({path: student}, [], [])
    lateness = find_lateness([make_submission(path)], owners, DUE, timestamps)
    notes = lateness.undecided + ([lateness.note] if lateness.note else [])
    assert (lateness.days[path], notes) == CASES[case]


def test_find_lateness_without_deadline_reports_nothing():
    owners = Owners({MOODLE: ANNA, "anna_LATE_1_2_hw.py": ANNA}, [], [])
    lateness = find_lateness([*map(make_submission, [*owners.by_file, "x.py"])], owners, float("inf"), {})
    assert lateness == ({MOODLE: 0, "anna_LATE_1_2_hw.py": 1}, [], "")


# --- the class list --------------------------------------------------------------------------------

COLUMNS = {  # a column and its cell: the fields late, submitted, unread_time
    ("Last modified (submission)", "Tuesday, 3 March 2026, 10:15 PM"): (None, LATE_EVENING, None),
    ("Last modified (submission)", "-"): (None, None, ""),
    ("Last modified (submission)", ""): (None, None, ""),
    ("Submission Time", "2026-03-03 22:15:00 +0100"): (None, 1772572500.0, None),
    ("Lateness (H:M:S)", "26:00:01"): (93601.0, None, None),
    ("Lateness (H:M:S)", "late"): (None, None, "late"),
    ("Minutes Late", "2.5"): (150.0, None, None),
    ("seconds_late", "-3"): (-3.0, None, None),
    ("seconds_late", "no"): (None, None, "no"),
    ("Last access", "Tuesday, 3 March 2026, 10:15 PM"): (None, None, None),
    ("submission_timestamp", "2026-03-03 22:15:00 UTC"): (None, None, None),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_read_class_list_reads_lateness(case, tmp_path):
    """GitHub's `submission_timestamp` is the time of a commit, which the student's computer writes."""
    column, cell = case
    (student,) = read_class_list(write_text(tmp_path / "r.csv", f'ID,{column}\n1,"{cell}"\n'))
    assert student[-3:] == COLUMNS[case]


# --- nbgrader's timestamp.txt ----------------------------------------------------------------------

COLLECTED = ["anna/ps1/hw.py", "ben/ps1/hw.py"]
STAMPS = {  # for each class: the folders whose timestamp.txt counts
    ("anna/ps1/timestamp.txt", "ben/ps1/timestamp.txt"): {"anna/ps1", "ben/ps1"},
    ("anna/ps1/timestamp.txt", "anna/ps1/submission_secret.txt"): {"anna/ps1"},
    ("anna/ps1/src/timestamp.txt", "ben/timestamp.txt"): set(),
    ("anna/ps1.zip/timestamp.txt", "anna.zip/ps1/timestamp.txt", "anna/ps1/a.zip/timestamp.txt"): set(),
    ("anna/ps1/timestamp.txt", "ben/ps1/timestamp.txt", "cem/hw.py"): set(),
    ("anna/ps1/timestamp.txt", "cem/ps1/a.py", "dan/ps1/a.py"): set(),
    ("anna/ps1/timestamp.txt", "Ed_1_assignsubmission_file_/ps1/timestamp.txt", MOODLE): set(),
}


@pytest.mark.parametrize("names", STAMPS)
def test_split_timestamps_needs_the_collected_layout(names):
    files = []
    for name in (*COLLECTED, *names):
        reason = "" if name.endswith(".py") else "it is not a .py file"
        files.append(make_submission(name, b"2026-03-03\n")._replace(skip_reason=reason))
    remaining, timestamps = split_timestamps(files)
    assert timestamps == dict.fromkeys(STAMPS[names], "2026-03-03")
    is_own = [
        file.original_name.split("/")[-1] in ("timestamp.txt", "submission_secret.txt") for file in files
    ]
    assert len(remaining) == len(files) - (sum(is_own) if timestamps else 0)


def test_split_timestamps_of_the_course_folder():
    names = ["submitted/anna/ps1/hw.py", "submitted/anna/ps1/timestamp.txt"]
    assert split_timestamps([*map(make_submission, names)])[1] == {"anna/ps1": ""}


def test_split_timestamps_of_an_unreadable_file(tmp_path):
    folder = tmp_path / "anna" / "ps1"
    folder.mkdir(parents=True)
    write_text(folder / "hw.py", "")
    os.mkfifo(folder / "timestamp.txt")
    assert split_timestamps(find_submissions(tmp_path))[1] == {"anna/ps1": ""}


# --- the order of attempts -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        ["hw1.py", "hw1-1.py", "hw1-2.py", "hw1-10.py"],
        ["hw1.ipynb", "hw1 (1).ipynb", "hw1 (2).ipynb"],
        ["anna_1_98_hw.py", "anna_1_99_hw.py", "anna_1_100_a.py"],
        ["HW_a_attempt_2026-03-01-10-00-00_z.py", "HW_a_attempt_2026-03-02-10-00-00_a.py"],
    ],
)
def test_sort_attempts_puts_the_last_attempt_last(names):
    files = sort_attempts(map(make_submission, reversed(names)))
    assert [file.name for file in files] == names


# --- a class ---------------------------------------------------------------------------------------

ANSWER = "order_bag = 'b'"
HOMEWORK = "due = 2026-03-03T22:00:00\nlate = {per_day = 0.5, days = 1}\n[points]\norder.bag = 4"


@pytest.fixture
def grade_class(tmp_path, cached_grading, capsys):
    """Return a function that grades these files and returns {student: (points, days late)} and the texts."""

    def grade(files, class_list=None):
        place = tmp_path / "class.zip"
        with zipfile.ZipFile(place, "w") as archive:
            for name, text in files.items():
                archive.writestr(zipfile.ZipInfo(name, (2026, 3, 9, 1, 2, 4)), text)
        os.utime(place, (2**31, 2**31))
        options = {
            "csv": tmp_path / "o.csv",
            "grades": tmp_path / "g.csv",
            "html": tmp_path / "p.html",
            "assignment": write_text(tmp_path / "hw.toml", HOMEWORK),
        }
        if class_list:
            options["roster"] = write_text(tmp_path / "r.csv", class_list)
        assert cli.main(["grade", str(place), *format_options(**options)]) == 0
        rows = read_table(options["grades"])
        grades = {row["name"] or row["id"]: (row["points"], row["days late"]) for row in rows}
        page = re.sub(r"&#x27;", "'", options["html"].read_text(encoding="utf-8"))
        return grades, capsys.readouterr().out, page

    return grade


def test_grade_ignores_the_times_of_files(grade_class):
    """The times of the zip entries are six days late, and the time of the zip file is 12 years late."""
    grades, output, page = grade_class({"Anna/hw.py": ANSWER, "Ben/hw.py": ANSWER})
    assert set(grades.values()) == {("4", "0")}
    assert NO_SOURCE in output and NO_SOURCE in page


def test_grade_canvas_marks_late_zip_files(grade_class, tmp_path):
    """Only the zip file's own name, from Canvas, counts: students choose the names and times inside it."""
    with zipfile.ZipFile(tmp_path / "hw.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo("anna_1_2_hw.py", (2020, 1, 1, 0, 0, 0)), ANSWER)
    data = (tmp_path / "hw.zip").read_bytes()
    files = {"anna_LATE_1_2_hw.zip": data, "ben_3_4_hw.py": ANSWER}
    grades, output, page = grade_class(files, "Student,ID\nAnna,1\nBen,3\n")
    assert grades == {"Anna": ("2", "1"), "Ben": ("4", "0")}
    assert "No lateness" not in output + page and "To decide" not in output


def test_grade_reports_times_that_cannot_be_read(grade_class):
    class_list = (
        "Identifier,Full name,Last modified (submission)\n"
        'Participant 1,Anna,"Wednesday, 4 March 2026, 9:30 AM"\nParticipant 2,Ben,"onsdag, 4. mars"\n'
    )
    files = {"Anna_1_assignsubmission_file_/hw.py": ANSWER, "Ben_2_assignsubmission_file_/hw.py": ANSWER}
    grades, output, page = grade_class(files, class_list)
    assert grades == {"Anna": ("2", "1"), "Ben": ("4", "0")}
    assert "To decide: the time of submission of Ben (Participant 2) cannot be read: 'onsdag" in output
    assert "onsdag" in page and "No lateness" not in output + page


def test_grade_reads_timestamps_of_nbgrader(grade_class):
    files = {
        "anna/ps1/hw.py": ANSWER,
        "anna/ps1/timestamp.txt": "2026-03-04 09:00:00",
        "ben/ps1/hw.py": ANSWER,
        "ben/ps1/timestamp.txt": "2026-03-03 09:00:00",
        "cem/ps1/hw.py": ANSWER,
    }
    grades, output, _ = grade_class(files, "id,first_name,last_name\nanna,Anna,A\nben,Ben,B\ncem,Cem,C\n")
    assert grades == {"Anna A": ("2", "1"), "Ben B": ("4", "0"), "Cem C": ("4", "0")}
    assert "the time of submission of Cem C (cem) is missing" in output and "timestamp.txt" not in output
