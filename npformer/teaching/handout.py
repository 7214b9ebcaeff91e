"""The lessons as files of a reader's own: without outputs, in a folder that no test and no update touches."""

import json
import os
from pathlib import Path

from npformer.teaching.lessons import student_copy
from npformer.teaching.places import folder_for, write_files

FOLDER = "my_lessons"


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
            copy = student_copy(json.loads(lesson.read_text(encoding="utf-8")))
            files[file] = json.dumps(copy, indent=1, ensure_ascii=False) + "\n"
    return write_files(files), kept
