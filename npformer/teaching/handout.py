"""The lessons as files of a reader's own: without outputs, in a folder that no test and no update touches."""

import json
import os
from pathlib import Path
from typing import NamedTuple

from npformer.teaching.lessons import student_copy
from npformer.teaching.places import write_files

FOLDER = "my_lessons"


class Handout(NamedTuple):
    """What was written, and what was there before and stayed as it was."""

    written: list[Path]
    kept: list[Path]


def lesson_files() -> list[Path]:
    """The lessons, in order: those in the installed package, or in a clone those of the folder notebooks.

    >>> lesson_files()[0].name
    '01_positional_encoding.ipynb'
    """
    package = Path(__file__).parents[1]
    folders = package / "lessons", package.parent / "notebooks"
    return next((files for folder in folders if (files := sorted(folder.glob("*.ipynb")))), [])


def write_lessons(folder: str | os.PathLike[str] = FOLDER, *, force: bool = False) -> Handout:
    """Write every lesson and the exercises into a folder. A file that is there is kept, unless `force`.

    Raises ValueError for a folder that is a file, or that holds the lessons themselves or a folder in the
    place of one, and FileNotFoundError where the package came without them.
    """
    place, lessons = Path(folder), lesson_files()
    if not lessons:
        raise FileNotFoundError("write_lessons: this copy of npformer has no lessons; install or clone it")
    if place.exists() and not place.is_dir():
        raise ValueError(f"write_lessons: {str(place)!r} is a file; expected a folder")
    if place.resolve() == lessons[0].parent.resolve():
        raise ValueError(f"write_lessons: {str(place)!r} holds the lessons themselves; choose another folder")
    for file in (place / lesson.name for lesson in lessons):
        if file.is_dir():
            raise ValueError(f"write_lessons: {str(file)!r} is a folder; expected a file, or another folder")
    handout = Handout([], [])
    for lesson in lessons:
        file = place / lesson.name
        if file.exists() and not force:
            handout.kept.append(file)
            continue
        copy = student_copy(json.loads(lesson.read_text(encoding="utf-8")))
        text = json.dumps(copy, indent=1, ensure_ascii=False) + "\n"
        handout.written.extend(write_files({file: text}))
    return handout
