"""Test the show of hands: the page of questions, the saved counts, and the printed table."""

import csv
import io

import pytest

from npformer import cli
from npformer.handouts.hands import (
    COLUMNS,
    choose_step,
    correct_share,
    format_counts,
    make_question_slides,
    read_counts,
)

pytest.importorskip("nbconvert", reason="needs nbconvert: uv sync --extra slides")


def make_row(vote=1, answer="A", hands=3, correct="", question="3.1a", class_name="10b", guess=""):
    return [class_name, "2026-11-02", question, vote, answer, guess, hands, correct]


def write_rows(file, rows, columns=COLUMNS):
    text = io.StringIO()
    csv.writer(text).writerows([columns, *rows])
    file.write_text(text.getvalue(), encoding="utf-8")
    return file


@pytest.fixture
def counts(tmp_path):
    rows = [
        make_row(1, "A", 5, "no", guess="two, or three"),
        make_row(1, "B", 12, "yes"),
        make_row(1, "C", 8, "no"),
        make_row(2, "A", 2, "no", guess="two, or three"),
        make_row(2, "B", 20, "yes"),
        make_row(2, "C", 3, "no"),
        make_row(1, "A", 1, question="3.2a"),
    ]
    return write_rows(tmp_path / "hands.csv", rows)


def test_read_counts_joins_the_lines_of_a_question(counts):
    first, second = read_counts([counts])
    assert first.votes == ({"A": 5, "B": 12, "C": 8}, {"A": 2, "B": 20, "C": 3})
    assert (first.correct, second.correct) == ("B", None)
    assert correct_share(first, 0) == 0.48 and correct_share(first, 1) == 0.8
    assert correct_share(second, 0) is None
    assert second.votes == ({"A": 1}, {})


def test_read_counts_later_file_replaces_lines(counts, tmp_path):
    later = write_rows(tmp_path / "later.csv", [make_row(1, "A", 7, "no")])
    first, *_ = read_counts([counts, later])
    assert first.votes[0] == {"A": 7, "B": 12, "C": 8}


def test_read_counts_keeps_classes_apart(tmp_path):
    rows = [make_row(class_name="10a"), make_row(class_name="10b", hands=4)]
    hands = [question.votes[0]["A"] for question in read_counts([write_rows(tmp_path / "x.csv", rows)])]
    assert hands == [3, 4]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vote": 3}, "line 2: vote is '3'; expected one of '1', '2'"),
        ({"answer": "G"}, "line 2: answer is 'G'; expected one of 'A', "),
        ({"correct": "maybe"}, "line 2: correct is 'maybe'; expected one of 'yes', 'no', ''"),
        ({"hands": -1}, "line 2: hands is '-1'; expected a number"),
        ({"hands": "12345678901234567890"}, "expected a number"),
        ({"hands": "²"}, "expected a number"),
    ],
)
def test_read_counts_rejects_bad_values(changes, message, tmp_path):
    file = write_rows(tmp_path / "x.csv", [make_row(**changes)])
    with pytest.raises(ValueError, match=r"^hands: ") as error:
        read_counts([file])
    assert message in str(error.value) and "x.csv" in str(error.value)


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", "day,class\n".encode("utf-16")])
def test_read_counts_rejects_other_files(content, tmp_path):
    file = tmp_path / "x.csv"
    file.write_bytes(content)
    with pytest.raises(ValueError, match="expected"):
        read_counts([file])


def test_read_counts_rejects_a_short_line(tmp_path):
    file = tmp_path / "x.csv"
    file.write_text(",".join(COLUMNS) + "\n10b,2026-11-02,3.1a,1,A\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 2"):
        read_counts([file])


SHARES = {0: "explain", 0.29: "explain", 0.3: "discuss", 0.7: "discuss", 0.71: "continue", 1: "continue"}


@pytest.mark.parametrize(("share", "step"), SHARES.items())
def test_choose_step_has_the_limits_of_lasry(share, step):
    assert choose_step(share) == step


def test_format_counts_shows_both_votes(counts):
    lines = [*format_counts(read_counts([counts]))]
    assert lines[:5] == [
        "class 10b, question 3.1a, 2026-11-02",
        "                  A    B*     C   hands   correct",
        "first vote        5    12     8      25      48 %",
        "second vote       2    20     3      25      80 %",
        "  A: two, or three",
    ]
    # Question 3.1a has a second vote, and question 3.2a has no correct answer. So there is no advice.
    assert not any("What to do next" in line for line in lines)


def test_format_counts_advises_after_the_first_vote(tmp_path):
    file = write_rows(tmp_path / "x.csv", [make_row(1, "A", 1, "yes"), make_row(1, "B", 9, "no")])
    assert "What to do next: explain again, and vote again." in format_counts(read_counts([file]))


def test_hands_prints_saved_counts(counts, capsys):
    assert cli.main(["hands", "--counts", str(counts)]) == 0
    assert "second vote" in capsys.readouterr().out


def test_hands_prints_no_control_characters(tmp_path, capsys):
    file = write_rows(tmp_path / "x.csv", [make_row(class_name="\x1b[31m10b", guess="\x07two")])
    assert cli.main(["hands", "--counts", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "10b" in printed and "two" in printed and "\x1b" not in printed and "\x07" not in printed


def test_hands_without_lines_says_so(tmp_path, capsys):
    assert cli.main(["hands", "--counts", str(write_rows(tmp_path / "x.csv", []))]) == 0
    assert capsys.readouterr().out.strip() == "The files contain no counts."


@pytest.mark.parametrize("words", [["05"], ["--out", "x.html"], ["05", "--counts", "x"], []])
def test_hands_rejects_combinations(words, capsys):
    assert cli.main(["hands", *words]) == 2
    assert "expected" in capsys.readouterr().err


def test_hands_rejects_missing_lesson_and_file(tmp_path, capsys):
    assert cli.main(["hands", "77", "--out", str(tmp_path / "x.html")]) == 2
    assert cli.main(["hands", "05", "--out", str(tmp_path / "x.pdf")]) == 2
    assert cli.main(["hands", "--counts", str(tmp_path / "none.csv")]) == 2
    errors = capsys.readouterr().err
    assert "there is no lesson '77'" in errors and "there is no file" in errors and ".html" in errors


def test_hands_page_asks_every_question_of_the_lesson(tmp_path, capsys):
    assert cli.main(["hands", "03", "--out", str(tmp_path / "x.html")]) == 0
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    for question in ("3.1a", "3.2a"):
        assert page.count(f'data-question="{question}"') == 1


def test_make_question_slides_show_no_answer():
    cells = [
        {
            "cell_type": "markdown",
            "source": "A.\n\n**Predict.** B?",
            "metadata": {"npformer": {"predict": "1.1a"}},
        },
        {"cell_type": "code", "source": 'reveal("1.1a")', "metadata": {"npformer": {"reveal": "1.1a"}}},
    ]
    (slide,) = make_question_slides({"cells": cells})
    assert "B?" in slide.then[0] and "Answer" not in slide.text + slide.notes
