"""The files of a class as the learning systems give them out: folders, zip files, and names that say whose.

Canvas, Moodle, Blackboard and Gradescope each write a student's number or login, and more, into the names of
what they hand out. What is no .py file and no notebook is not passed over in silence: it is listed too.
"""

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, NamedTuple
from zipfile import BadZipFile, ZipFile
from zlib import error as Corrupt

from npformer.grader.worker.protocol import readable

LARGEST = 2**24
DEEPEST = 2  # zip files in a zip file of a class
KIND = re.compile(r"(\.py|\.ipynb)(\.txt|\.json)?$", re.IGNORECASE)  # a browser adds the second
UNREADABLE = (OSError, RuntimeError, EOFError, BadZipFile, Corrupt, ValueError)
NO_WORK = ("__MACOSX", "__pycache__", "site-packages", "node_modules", ".git")
NO_FILE = ("._", ".DS_Store", "Thumbs.db", "desktop.ini")  # a system's, and nobody's
SHAPES = (  # Canvas, Moodle, Blackboard, Gradescope
    r"(?P<name>[^_/]+)_(?P<late>LATE_)?(?P<id>\d+)_\d+_[^/]+$",
    r"(?P<name>[^_/]+)_(?P<id>\d+)_assignsubmission_",
    r"[^/]+?_(?P<id>[^_/]+)_attempt_(?P<time>\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d)",
    r"submission_(?P<submission>\d+)/",
)


class HandIn(NamedTuple):
    """One file of a class."""

    name: str  # its place in the folder, through zip files, in text that every codec can write
    open: Callable[[], IO[bytes]]
    time: float  # seconds since 1970, by the name or by the file
    named: str  # the same place, where `name` has got or become a number
    passed_over: str = ""  # why, where it is nothing to grade

    def read(self) -> bytes:
        """Its bytes, and never too many; ValueError in a few words where it cannot be read."""
        try:
            with self.open() as file:
                data = file.read(LARGEST + 1)
        except UNREADABLE as error:
            why = getattr(error, "strerror", "") or str(error) or "it ends too early"
            raise ValueError(f"It cannot be read: {readable(why, 80)}.") from None
        if len(data) > LARGEST:
            raise ValueError(f"It is larger than {LARGEST // 2**20} megabytes.")
        return data


def hand_ins(top: Path) -> list[HandIn]:
    """What is below a folder or in a zip file, or one file; in order of name, of which no two have the same.

    Raises ValueError where there is no file to grade.
    """
    if not top.exists():
        raise ValueError(f"there is no file or folder {str(top)!r}")
    inside, found = top if top.is_dir() else top.parent, list[HandIn]()
    for path, why in _below(top) if top.is_dir() else [(top, "")]:
        name = os.fsencode(path.relative_to(inside).as_posix()).decode("utf-8", "backslashreplace")
        found += _sorted_out(HandIn(name, partial(_opened, path, inside), path.lstat().st_mtime, name), why)
    if all(each.passed_over for each in found):
        raise ValueError(f"no .py or .ipynb file in {str(top)!r}")
    names = Counter[str]()
    for i, each in enumerate(found):
        names[each.name] += 1
        if names[each.name] > 1:  # a zip file may hold two of one name
            found[i] = each._replace(name=f"{names[each.name]}~{each.name}")
    return sorted(found, key=lambda each: each.name)


def shape_of(name: str) -> dict[str, str]:
    """What a learning system wrote into a name.

    >>> shape_of("smithanna_LATE_4711_990_hw1.py")
    {'name': 'smithanna', 'late': 'LATE_', 'id': '4711'}
    """
    for shape in SHAPES:
        if found := re.search(rf"(?:^|/){shape}", name):
            return {key: value for key, value in found.groupdict().items() if value}
    return {}


def _below(top: Path) -> Iterator[tuple[Path, str]]:
    """Every file; and the folders that are not looked into, with the reason."""
    for here, folders, names in os.walk(top):
        closed = {folder: _why_not(Path(here, folder)) for folder in folders}
        folders[:] = [folder for folder in folders if folder not in NO_WORK and not closed[folder]]
        yield from ((Path(here, folder), why) for folder, why in closed.items() if why)
        yield from ((Path(here, name), "") for name in names)


def _why_not(folder: Path) -> str:
    if folder.is_symlink():
        return "a link to a folder"
    if not os.access(folder, os.R_OK | os.X_OK):
        return "a folder that cannot be opened"
    return "a virtual environment" if (folder / "pyvenv.cfg").exists() else ""


def _opened(path: Path, top: Path) -> IO[bytes]:
    if not path.resolve().is_relative_to(top.resolve()):
        raise ValueError("it is a link to a place outside the folder")
    if path.exists() and not path.is_file():
        raise ValueError("it is no file")
    return path.open("rb")


def _sorted_out(one: HandIn, why: str = "", depth: int = 1) -> Iterator[HandIn]:
    """A file: work, what is in it where it is a zip file, or why it is neither; nothing where it is nobody's.

    >>> next(_sorted_out(HandIn("a" + chr(10) + "b.py", BytesIO, 0.0, ""))).name
    'a\\\\nb.py'
    """
    *folders, last = one.name.split("/")
    if {*folders, last} & {*NO_WORK} or last.startswith(NO_FILE):
        return
    name = readable(one.name, 1000).replace("\n", "\\n").replace("\t", "\\t")
    if name.casefold().endswith(".zip") and not why and depth <= DEEPEST:
        yield from _of_zip(one._replace(name=name), depth)
        return
    if not why and ".ipynb_checkpoints" in folders:
        why = "a copy by Jupyter"
    elif not why and not KIND.search(name):
        why = "no .py file and no notebook"
    written = shape_of(name).get("time")
    at = time.mktime(time.strptime(written, "%Y-%m-%d-%H-%M-%S")) if written else one.time
    yield HandIn(name, one.open, at, name, why)


def _of_zip(one: HandIn, depth: int) -> Iterator[HandIn]:
    """What is in a zip file, of one student or of a class."""
    try:
        with one.open() as file:  # a class's may be large: it is not read as a whole
            archive = ZipFile(file.name if depth == 1 else BytesIO(one.read()))
    except UNREADABLE as error:
        yield one._replace(passed_over=f"a zip file that cannot be read: {readable(str(error), 80)}")
        return
    for member in (each for each in archive.infolist() if not each.is_dir()):
        name, at = f"{one.name}/{member.filename}", time.mktime((*member.date_time, 0, 0, -1))
        yield from _sorted_out(HandIn(name, partial(archive.open, member), at, name), depth=depth + 1)
