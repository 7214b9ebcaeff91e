"""The show of hands: a page of a lesson's questions, and a table of the hands that a class raised.

A teacher asks a question, and the students vote for an answer with their hands. They discuss the question in
pairs and vote again (peer instruction: Mazur, 1997). The page counts the hands and saves the counts of a
class as a CSV file. Each line of the file is one answer in one vote. This module reads such files.
"""

import csv
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from npformer.handouts.lesson_copies import get_entry
from npformer.handouts.slides import (
    Slide,
    find_lesson,
    find_title,
    format_page,
    make_question_slide,
    read_page_parts,
)
from npformer.lessons.plan import Plan
from npformer.validation.output_files import check_output_file

COLUMNS = ("class", "day", "question", "vote", "answer", "guess", "hands", "correct")
VOTES = ("first", "second")
ANSWERS = "ABCDEF"
CORRECT = {"yes": True, "no": False, "": None}
FEW, MANY = 0.3, 0.7  # Lasry, Mazur and Watkins (2008): between these shares, a discussion helps most
STEPS = {  # what the share of correct answers in the first vote advises
    "explain": "explain again, and vote again",
    "discuss": "discuss in pairs, and vote again",
    "continue": "give a short explanation, and continue",
}
HOW_TO_COUNT = """\
Keys on the slide of a question:

- **1** to **6** counts one hand for the answer A to F. With **Shift**, it takes one hand away.
- **T** changes to the second vote and back.
- **0** shows and hides the counts.

You can also type the numbers and the answers. A click on a letter marks the correct answer."""


class Line(NamedTuple):
    """One line of a file: how many hands one answer got in one vote."""

    class_name: str
    day: str
    question: str
    vote: int  # 0 for the first vote, 1 for the second
    answer: str  # a letter
    guess: str  # what the answer says; may be ""
    hands: int
    correct: bool | None  # None if no answer is marked as correct


class Question(NamedTuple):
    """The counts of one class for one question."""

    class_name: str
    day: str
    question: str
    guesses: dict[str, str]  # {letter: what the answer says}
    correct: str | None  # the letter of the correct answer
    votes: tuple[dict[str, int], dict[str, int]]  # {letter: hands} for both votes


# --- the page -------------------------------------------------------------------------------------


def save_questions(lesson: str, file: str | os.PathLike[str]) -> Path:
    """Write a page with the questions of a lesson, for a teacher who shows the lesson in JupyterLab.

    Parameters
    ----------
    lesson : str
        The number of the lesson, such as "05".
    file : str or path
        The .html file.

    Returns
    -------
    file : Path

    Raises
    ------
    ValueError
        If the lesson does not exist, or the name of the file does not end in .html.
    ModuleNotFoundError
        If the packages of the extra `slides` are not installed.
    """
    notebook_file = find_lesson(lesson)
    page_file = check_output_file(file, ".html")
    notebook = json.loads(notebook_file.read_text(encoding="utf-8"))
    title = find_title(notebook)
    slides = [Slide(f"# {title}\n\n{HOW_TO_COUNT}"), *make_question_slides(notebook)]
    page_file.write_text(format_page(slides, title, read_page_parts()), encoding="utf-8")
    return page_file


def make_question_slides(notebook: dict[str, Any]) -> Iterator[Slide]:
    """Yield a slide for each question of a lesson, without the pictures that the lesson would draw."""
    for cell in notebook["cells"]:
        if get_entry(cell, "predict"):
            yield make_question_slide(cell, Plan({}), {})


# --- the files ------------------------------------------------------------------------------------


def read_counts(files: Iterable[str | os.PathLike[str]]) -> list[Question]:
    """Read the files that the page saved.

    A line of a later file replaces the same line of an earlier file: same class, question, vote and answer.

    Parameters
    ----------
    files : iterable of str or path

    Returns
    -------
    questions : list of Question
        In the order of the first line of each.

    Raises
    ------
    FileNotFoundError
        If a file does not exist.
    ValueError
        If a file has other columns, or a line has an unexpected value.
    """
    lines: dict[tuple[str, str, int, str], Line] = {}
    for file in files:
        for line in read_lines(Path(file)):
            lines[line.class_name, line.question, line.vote, line.answer] = line
    questions: dict[tuple[str, str], Question] = {}
    for line in lines.values():
        key = (line.class_name, line.question)
        if key not in questions:
            questions[key] = Question(line.class_name, line.day, line.question, {}, None, ({}, {}))
        question = questions[key]
        question.votes[line.vote][line.answer] = line.hands
        question.guesses[line.answer] = line.guess
        if line.correct:
            questions[key] = question._replace(correct=line.answer)
    return list(questions.values())


def read_lines(file: Path) -> Iterator[Line]:
    """Yield the lines of one file. Raises ValueError for unexpected columns or values."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"hands: {str(file)!r} is not a text file; expected a saved CSV file") from None
    reader = csv.DictReader(text.splitlines())
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise ValueError(f"hands: {str(file)!r} has other columns; expected {', '.join(COLUMNS)}")
    for row in reader:
        where = f"hands: {str(file)!r}, line {reader.line_num}"
        vote = _read_choice(row, "vote", ("1", "2"), where)
        answer = _read_choice(row, "answer", tuple(ANSWERS), where)
        correct = _read_choice(row, "correct", tuple(CORRECT), where)
        hands = row["hands"]
        if hands is None or not (hands.isascii() and hands.isdecimal() and len(hands) < 6):
            raise ValueError(f"{where}: hands is {hands!r}; expected a number")
        yield Line(
            _make_printable(row["class"]),
            _make_printable(row["day"]),
            _make_printable(row["question"]),
            int(vote) - 1,
            answer,
            _make_printable(row["guess"]),
            int(hands),
            CORRECT[correct],
        )


def _make_printable(text: str) -> str:
    """Replace control characters, with which a file could change the colours or the lines of a terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def _read_choice(row: dict[str, str], column: str, choices: Sequence[str], where: str) -> str:
    value = row[column]
    if value not in choices:
        expected = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{where}: {column} is {value!r}; expected one of {expected}")
    return value


# --- the table ------------------------------------------------------------------------------------


def correct_share(question: Question, vote: int) -> float | None:
    """Return the share of correct answers in a vote, or None if nobody voted or no answer is marked.

    >>> correct_share(Question("", "", "1.1a", {}, "A", ({"A": 3, "B": 1}, {})), 0)
    0.75
    """
    hands = question.votes[vote]
    total = sum(hands.values())
    if question.correct is None or total == 0:
        return None
    return hands.get(question.correct, 0) / total


def choose_step(share: float) -> str:
    """Return what to do after a first vote with this share of correct answers: a key of STEPS.

    >>> choose_step(0.2), choose_step(0.5), choose_step(0.8)
    ('explain', 'discuss', 'continue')
    """
    if share < FEW:
        return "explain"
    if share > MANY:
        return "continue"
    return "discuss"


def format_counts(questions: Sequence[Question]) -> Iterator[str]:
    """Yield the lines of a table for each question: the hands for each answer in both votes."""
    for question in questions:
        class_name = f"class {question.class_name}, " if question.class_name else ""
        yield f"{class_name}question {question.question}, {question.day}"
        letters = sorted(question.guesses)
        marked = [letter + ("*" if letter == question.correct else "") for letter in letters]
        yield "             " + "".join(f"{letter:>6}" for letter in marked) + "   hands   correct"
        for vote, name in enumerate(VOTES):
            hands = question.votes[vote]
            if sum(hands.values()) == 0:
                continue
            numbers = "".join(f"{hands.get(letter, 0):>6}" for letter in letters)
            share = correct_share(question, vote)
            correct = "" if share is None else f"{100 * share:>8.0f} %"
            yield f"{name + ' vote':<13}{numbers}{sum(hands.values()):>8}{correct}".rstrip()
        for letter in letters:
            if question.guesses[letter]:
                yield f"  {letter}: {question.guesses[letter]}"
        first = correct_share(question, 0)
        was_repeated = sum(question.votes[1].values()) > 0
        if first is not None and not was_repeated:
            yield f"What to do next: {STEPS[choose_step(first)]}."
        yield ""
