"""Tests of the glossary and of the words in texts for students and teachers.

Each term of the glossary occurs in the section that the glossary names. The texts use the usual terms: they
do not contain the words of tests/data/old_words.toml, apart from the exceptions there.
"""

import json
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from npformer.lessons.predictions import answers

ROOT = Path(__file__).parents[1]
GLOSSARY = ROOT / "notebooks" / "guide" / "glossary.md"
LESSONS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
RULES = tomllib.loads((ROOT / "tests" / "data" / "old_words.toml").read_text(encoding="utf-8"))["words"]

TEXTS = [
    ROOT / "README.md",
    *sorted((ROOT / "notebooks").glob("*.md")),
    *sorted((ROOT / "notebooks" / "guide").glob("*.md")),
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
    *sorted((ROOT / "npformer" / "lessons" / "answers").glob("*.md")),
    *sorted((ROOT / "npformer" / "exercises" / "bank").glob("*.md")),
    ROOT / "npformer" / "exercises" / "feedback.toml",
    ROOT / "npformer" / "gradcheck" / "notes.toml",
]


def markdown_cells(notebook):
    """Return the texts of the markdown cells of a notebook."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]


def join_lines(text):
    """Return the text with one space for each line break or other white space."""
    return " ".join(text.split())


@cache
def sections():
    """Return a dict from the number of each section of the lessons, such as "4.2", to its text and the file.

    The text of a section includes its answers, which the lesson reveals.
    """
    found = {}
    for lesson in LESSONS:
        text = "\n\n".join(markdown_cells(lesson))
        _, *parts = re.split(r"^## (\d+\.\d+) ", text, flags=re.MULTILINE)
        for number, part in zip(parts[::2], parts[1::2], strict=True):
            found[number] = (join_lines(part), lesson.name)
        for prediction, answer in answers(int(lesson.name[:2])).items():
            number = prediction.rstrip("abcdefghijklmnopqrstuvwxyz")
            found[number] = (f"{found[number][0]} {join_lines(answer)}", lesson.name)
    return found


def glossary_rows():
    """Return (term, meaning, picture, link, derivative, name in PyTorch) for each row of the glossary."""
    lines = GLOSSARY.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| **")]
    return [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in rows]


def occurs(term, text):
    return re.search(rf"\b{re.escape(term)}", text, flags=re.I) is not None


@pytest.mark.parametrize("row", glossary_rows(), ids=lambda row: row[0].strip("*"))
def test_glossary_term_occurs_in_its_section(row):
    term, meaning, picture, link, _, _ = row
    number, file = re.fullmatch(r"\[(\d+\.\d+)\]\(\.\./(.+)\)", link).groups()
    text, lesson = sections()[number]
    assert file == lesson
    assert occurs(term.strip("*"), text), f"{term} does not occur in section {number}"
    assert meaning.endswith(".")
    lesson_text = " ".join(text for text, name in sections().values() if name == lesson)
    for word in filter(None, picture.split(", ")):
        assert occurs(word, lesson_text), f"the picture {word!r} does not occur in {lesson}"


def test_glossary_is_sorted():
    terms = [row[0].strip("*").lower() for row in glossary_rows()]
    assert len(terms) > 50
    assert terms == sorted(set(terms))


def old_words(text):
    """Return (word, usual word, context) for each match that is not inside an exception of its rule."""
    found = []
    for rule in RULES:
        exceptions = [
            m.span() for part in rule.get("unless", []) for m in re.finditer(part, text, flags=re.I)
        ]
        for match in re.finditer(rule["word"], text, flags=re.I):
            is_exception = any(start <= match.start() and match.end() <= end for start, end in exceptions)
            if not is_exception:
                found.append((match[0], rule["instead"], text[max(0, match.start() - 40) : match.end() + 40]))
    return found


def prose(file):
    """Return the texts of a file that people read, without code blocks, comments and codes of mistakes."""
    if file.suffix == ".ipynb":
        texts = markdown_cells(file)
    elif file.suffix == ".toml":
        texts = re.sub(r"^#.*$", "", file.read_text(encoding="utf-8"), flags=re.M).splitlines()
    else:
        text = re.sub(r"```.*?(?:```|\Z)", "", file.read_text(encoding="utf-8"), flags=re.S)
        texts = re.split(r"\n\s*\n", text)
    without_code = [re.sub(r"```.*?(?:```|\Z)", "", text, flags=re.S) for text in texts]
    return [join_lines(re.sub(r"\b[A-Z]+(?:-[A-Z]+)+\b", "", text)) for text in without_code]


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: file.name)
def test_text_uses_the_usual_words(file):
    assert [found for text in prose(file) for found in old_words(text)] == []


def test_every_exception_has_a_reason_and_is_needed():
    everything = [text for file in TEXTS for text in prose(file)]
    for rule in RULES:
        for part in rule.get("unless", []):
            assert rule["reason"]
            uses = [m[0] for text in everything for m in re.finditer(part, text, flags=re.I)]
            assert any(re.search(rule["word"], use, flags=re.I) for use in uses), part


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A wrong answer is told what it looks like.", ["told"]),
        ("You have told it the word.", []),
        ("One token is a piece of a word, and a piece is short.", ["piece"]),
        ("The Slope, or **derivative**, has another slope.", ["slope"]),
    ],
)
def test_old_words_finds_words_outside_exceptions(text, words):
    assert [found[0] for found in old_words(text)] == words
