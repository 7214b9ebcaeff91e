"""The lessons as files: where they are, and copies without outputs for readers and students."""

import copy
import json
import os
from pathlib import Path
from typing import Any

FOLDER = "my_lessons"  # the reader's own folder: no test and no update changes it


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
    from npformer.validation.output_files import folder_for, write_files

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
