"""Find the lesson notebooks, and write copies without outputs for readers and students.

The wheel build loads this file when npformer is not importable, so functions import npformer when called.
"""

import copy
import json
import os
from pathlib import Path
from typing import Any

FOLDER = "my_lessons"  # the reader's own folder; npformer's tests and updates never change its files


def get_entry(cell: dict[str, Any], role: str) -> str:
    """Return an entry of a cell's npformer metadata, such as "predict", or "" if the entry is missing.

    Parameters
    ----------
    cell : dict
        A cell of a notebook.
    role : str
        The key of the entry.

    Returns
    -------
    entry : str

    Examples
    --------
    >>> get_entry({"metadata": {"npformer": {"predict": "1.1a"}}}, "predict")
    '1.1a'
    """
    entry: str = cell["metadata"].get("npformer", {}).get(role, "")
    return entry


def get_source(cell: dict[str, Any]) -> str:
    """Return the text of a cell as one string. A notebook may store the text as a list of lines.

    Parameters
    ----------
    cell : dict
        A cell of a notebook.

    Returns
    -------
    source : str

    Examples
    --------
    >>> get_source({"source": ["a\\n", "b"]})
    'a\\nb'
    """
    return "".join(cell["source"])


def make_student_copy(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a notebook without outputs and execution counts.

    Parameters
    ----------
    notebook : dict

    Returns
    -------
    copied : dict

    Examples
    --------
    >>> cell = {"cell_type": "code", "source": "1 + 1", "outputs": ["2"], "execution_count": 7}
    >>> make_student_copy({"cells": [cell]})["cells"][0]["outputs"], cell["outputs"]
    ([], ['2'])
    """
    copied = copy.deepcopy(notebook)
    for cell in copied["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = []
            cell["execution_count"] = None
    return copied


def list_lesson_files() -> list[Path]:
    """Return the notebooks of the lessons, in order.

    An installed package contains the notebooks. In a clone, they are in the folder `notebooks`.

    Returns
    -------
    files : list of Path
        Empty if this copy of npformer has no lessons.

    Examples
    --------
    >>> list_lesson_files()[0].name
    '01_positional_encoding.ipynb'
    """
    package = Path(__file__).parents[1]
    installed = sorted((package / "lessons").glob("*.ipynb"))
    if installed:
        return installed
    return sorted((package.parent / "notebooks").glob("*.ipynb"))


def write_lessons(
    folder: str | os.PathLike[str] = FOLDER, *, force: bool = False
) -> tuple[list[Path], list[Path]]:
    """Write a copy of each lesson notebook, without outputs, into a folder.

    Parameters
    ----------
    folder : str or path
        The folder, which is created if it does not exist.
    force : bool
        Whether to overwrite existing files.

    Returns
    -------
    written : list of Path
    kept : list of Path
        The files that existed and were not overwritten.

    Raises
    ------
    FileNotFoundError
        If this copy of npformer has no lessons.
    ValueError
        If the folder is a file, contains the original lessons, or contains a folder named like a lesson.
    """
    from npformer.validation.output_files import check_output_folder, write_files

    lessons = list_lesson_files()
    if not lessons:
        raise FileNotFoundError("write_lessons: this copy of npformer has no lessons; install or clone it")
    target = check_output_folder(folder, [lesson.name for lesson in lessons])
    if target.resolve() == lessons[0].parent.resolve():
        raise ValueError(
            f"write_lessons: {str(target)!r} is the folder of the lessons; choose a different folder"
        )
    new_files: dict[Path, str | bytes] = {}
    kept: list[Path] = []
    for lesson in lessons:
        file = target / lesson.name
        if file.exists() and not force:
            kept.append(file)
        else:
            copied = make_student_copy(json.loads(lesson.read_text(encoding="utf-8")))
            new_files[file] = json.dumps(copied, indent=1, ensure_ascii=False) + "\n"
    return write_files(new_files), kept
