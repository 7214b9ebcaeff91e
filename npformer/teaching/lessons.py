"""The lessons as files, and their predictions: a question, the cell that answers it, an answer that waits.

In a lesson's notebook the structure is in the cells' metadata. The markdown cell that ends with the question
has `{"npformer": {"predict": "3.2a"}}`, the code cell after it `{"npformer": {"reveal": "3.2a"}}`, and its
last line is `reveal("3.2a")`. The answers are not in the notebook: they are package data, a file a lesson,
`answers/03.md`, a heading an answer, `## 3.2a`.

Why a call, and neither a folded element nor hidden cells: what is not in the file cannot be seen too early,
in whichever program it is opened, and an output below a cell is the one thing that JupyterLab, Notebook 7,
VS Code, the browser edition and an exported page all show alike, in the order of reading; each was tried,
Colab was not. Hidden cells are a convention of one program each, and a page that folds lets a class read
ahead.
"""

import copy
import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

ID = re.compile(r"(\d+)\.\d+[a-z]")
HEADING = re.compile(r"^## (\S+)$", flags=re.M)
QUESTION = "**Predict.**"
FOLDER = "my_lessons"  # of a reader's own: no test and no update touches it


class Answer(NamedTuple):
    """The answer to one prediction: a notebook shows it as Markdown, a terminal as text."""

    text: str

    def _repr_markdown_(self) -> str:
        return f"**Answer.** {self.text}"

    def __repr__(self) -> str:
        return f"Answer. {self.text}"


def reveal(id: str) -> Answer:
    """The answer to prediction `id`, such as "3.2a": as the last line of a cell, it stands below the output.

    Raises TypeError unless id is a string, ValueError when there is no such answer.

    >>> reveal("1.1a")
    Answer. Yes. A sum does not care about order: both sentences are one **bag of words**.
    """
    if not isinstance(id, str):
        raise TypeError(f"reveal: id is a {type(id).__name__}; expected a string such as '1.1a'")
    named = ID.fullmatch(id)
    found = answers(int(named[1])) if named else {}
    if id not in found:
        known = f"that lesson has {', '.join(found)}" if found else "an id is such as '1.1a'"
        raise ValueError(f"reveal: there is no answer {id!r}; {known}")
    return Answer(found[id])


def answers(lesson: int) -> dict[str, str]:
    """{id: answer} of a lesson, in the file's order; none for a lesson without such a file.

    >>> list(answers(1))[:2], answers(99)
    (['1.1a', '1.1b'], {})
    """
    from importlib import resources

    file = resources.files("npformer.teaching").joinpath(f"answers/{lesson:02}.md")
    if not file.is_file():
        return {}
    _, *parts = HEADING.split(file.read_text(encoding="utf-8"))
    return {id: text.strip() for id, text in zip(parts[::2], parts[1::2], strict=True)}


def named(cell: dict[str, Any], role: str) -> str:
    """What a cell's metadata says of its role: the id of a "predict" or "reveal"; "" where it has none.

    >>> named({"metadata": {"npformer": {"predict": "1.1a"}}}, "predict")
    '1.1a'
    """
    said: str = cell["metadata"].get("npformer", {}).get(role, "")
    return said


def source_of(cell: dict[str, Any]) -> str:
    """A cell's text: a file may hold it as lines or as one string.

    >>> source_of({"source": ["a\\n", "b"]})
    'a\\nb'
    """
    return "".join(cell["source"])


def student_copy(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook as a reader gets it: a copy without outputs and without counts of what was run.

    >>> cell = {"cell_type": "code", "source": "1 + 1", "outputs": ["2"], "execution_count": 7}
    >>> student_copy({"cells": [cell]})["cells"][0]["outputs"], cell["outputs"]
    ([], ['2'])
    """
    copied = copy.deepcopy(notebook)
    for cell in copied["cells"]:
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None)
    return copied


def lesson_files() -> list[Path]:
    """The lessons, in order: those in the installed package, or in a clone those of the folder notebooks.

    >>> lesson_files()[0].name
    '01_positional_encoding.ipynb'
    """
    package = Path(__file__).parents[1]
    folders = package / "lessons", package.parent / "notebooks"
    return next((files for folder in folders if (files := sorted(folder.glob("*.ipynb")))), [])


def write_lessons(
    folder: str | os.PathLike[str] = FOLDER, *, force: bool = False
) -> tuple[list[Path], list[Path]]:
    """Write every lesson and the exercises into a folder; what is there is kept, unless `force`.

    Returns what was written, and what was kept. Raises ValueError for a folder that is a file, or that holds
    the lessons themselves or a folder in the place of one, and FileNotFoundError where the package came
    without them.
    """
    # imported here: a wheel is built by this file alone, without the package
    from npformer.teaching.places import folder_for, write_files

    lessons = lesson_files()
    if not lessons:
        raise FileNotFoundError("write_lessons: this copy of npformer has no lessons; install or clone it")
    place = folder_for(folder, (lesson.name for lesson in lessons))
    if place.resolve() == lessons[0].parent.resolve():
        raise ValueError(f"write_lessons: {str(place)!r} holds the lessons themselves; choose another folder")
    files, kept = dict[Path, str | bytes](), list[Path]()
    for lesson in lessons:
        file = place / lesson.name
        if file.exists() and not force:
            kept.append(file)
        else:
            mine = student_copy(json.loads(lesson.read_text(encoding="utf-8")))
            files[file] = json.dumps(mine, indent=1, ensure_ascii=False) + "\n"
    return write_files(files), kept
