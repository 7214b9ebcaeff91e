"""Test the assignment files of the course against the table in the guide."""

from datetime import datetime
from pathlib import Path

import pytest

from npformer import cli
from npformer.exercises.assignment_file import read_assignment
from npformer.exercises.bank import bank
from npformer.handouts.homework import HOMEWORK

COURSE = Path(__file__).parents[2] / "notebooks" / "guide" / "course.md"


def read_course():
    """Return the last column of the course's table, by week, without its remarks."""
    section = COURSE.read_text(encoding="utf-8").partition("\n## Week by week\n")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| ")]
    weeks = {int(row[1]): row[-2] for row in rows if row[1].strip().isdigit()}
    return {week: cell.partition(";")[0].split() for week, cell in weeks.items()}


def test_homework_is_that_of_the_course():
    assert {week: ids.split() for week, ids in HOMEWORK.items()} == read_course()
    assert {exercise_id for ids in HOMEWORK.values() for exercise_id in ids.split()} <= bank().keys()


@pytest.mark.parametrize("start", ["", "2026-09-07"])
def test_homework_writes_readable_assignment_files(tmp_path, capsys, start):
    options = ["--start", start] if start else []
    assert cli.main(["homework", "--out", str(tmp_path / "hw"), *options]) == 0
    files = [tmp_path / "hw" / f"hw{week}.toml" for week in HOMEWORK]
    assert capsys.readouterr().out == "".join(f"written: {file}\n" for file in files)
    for week, file in zip(HOMEWORK, files, strict=True):
        assignment = read_assignment(file)
        assert list(assignment.points) == HOMEWORK[week].split()
        assert (assignment.title, assignment.worth()) == (f"Week {week}", len(assignment.points))
    due = read_assignment(files[1]).due
    assert due == (datetime(2026, 9, 20, 23, 59).timestamp() if start else float("inf"))


def test_homework_overwrites_only_with_force(tmp_path, capsys):
    file = tmp_path / "hw3.toml"
    file.write_text("mine")
    command = ["homework", "--out", str(tmp_path)]
    assert cli.main(command) == 2
    assert "already contains 'hw3.toml'; --force overwrites it" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["hw3.toml"] and file.read_text() == "mine"
    assert cli.main([*command, "--force"]) == 0
    assert read_assignment(file).title == "Week 3"


def test_homework_rejects_a_start_that_is_no_date(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["homework", "--out", str(tmp_path), "--start", "monday"])
    assert "'monday' is no date; expected one such as 2026-09-07" in capsys.readouterr().err
