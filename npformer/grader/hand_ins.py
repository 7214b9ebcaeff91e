"""The files of a class as the learning systems give them out: folders, zip files, and names that say whose.

Canvas, Moodle, Blackboard and Gradescope each write a student's number or login, and more, into the names of
what they hand out. What is no .py file and no notebook is not passed over in silence: it is listed too.
"""

import io
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple
from zipfile import BadZipFile, ZipFile, ZipInfo
from zlib import error as Corrupt

from npformer.grader.frames import readable

LARGEST = 2**24
TOO_LARGE = f"It is larger than {LARGEST // 2**20} megabytes."
DEEPEST = 2  # zip files in a zip file of a class
KIND = re.compile(r"(?P<name>.*\.(?:py|ipynb))(?:\.(?:txt|json))?", re.IGNORECASE | re.DOTALL)
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
    read: Callable[[], bytes]  # ValueError in a few words where it cannot be read
    time: float  # seconds since 1970, by the name or by the file
    passed_over: str = ""  # why, where it is nothing to grade
    named: str = ""  # as it was handed in, where `name` is a number

    @property
    def kind(self) -> str:
        """Its name as Python's: x.py for x.py.txt."""
        found = KIND.fullmatch(self.name)
        return found["name"] if found else self.name

    @property
    def shape(self) -> dict[str, str]:
        """What a learning system wrote into its name."""
        return shape_of(self.named or self.name)


def hand_ins(top: Path) -> list[HandIn]:
    """What is below a folder or in a zip file, or one file; in order of name.

    Raises ValueError where there is no file to grade.
    """
    if not top.exists():
        raise ValueError(f"there is no file or folder {str(top)!r}")
    inside, paths = (top, _below(top)) if top.is_dir() else (top.parent, iter([(top, "")]))
    found = [each for path, why in paths for each in _of_file(path, inside, why)]
    if all(each.passed_over for each in found):
        raise ValueError(f"no .py or .ipynb file in {str(top)!r}")
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
        for folder in list(folders):
            why = why_not(Path(here, folder))
            if why or folder in NO_WORK:
                folders.remove(folder)
            if why and folder not in NO_WORK:
                yield Path(here, folder), why
        yield from ((Path(here, name), "") for name in names if not name.startswith(NO_FILE))


def why_not(folder: Path) -> str:
    """Why a folder is not looked into, or ""."""
    if folder.is_symlink():
        return "a link to a folder"
    if (folder / "pyvenv.cfg").exists():
        return "a virtual environment"
    return "" if os.access(folder, os.R_OK | os.X_OK) else "a folder that cannot be opened"


def _of_file(path: Path, top: Path, why: str) -> Iterator[HandIn]:
    inside = os.fsencode(path.relative_to(top).as_posix()).decode("utf-8", "backslashreplace")
    when, archive = path.lstat().st_mtime, (lambda: path) if path.is_file() else None
    yield from _sorted_out(inside, when, lambda: read_file(path, top), archive, why=why)


def _sorted_out(
    inside: str,
    when: float,
    read: Callable[[], bytes],
    archive: Callable[[], Path | IO[bytes]] | None,
    depth: int = 1,
    why: str = "",
) -> Iterator[HandIn]:
    """One file: work, what is in it where it is a zip file, or why it is neither.

    >>> next(_sorted_out("a" + chr(10) + "b.py", 0.0, bytes, None)).name
    'a\\\\nb.py'
    """
    name = readable(inside, 1000).replace("\n", "\\n").replace("\t", "\\t")
    if name.casefold().endswith(".zip") and archive and depth <= DEEPEST:
        yield from _of_zip(name, archive, when, depth)
        return
    if not why and "/.ipynb_checkpoints/" in f"/{name}":
        why = "a copy by Jupyter"
    elif not why and not KIND.fullmatch(name):
        why = "no .py file and no notebook"
    written = shape_of(name).get("time")
    at = time.mktime(time.strptime(written, "%Y-%m-%d-%H-%M-%S")) if written else when
    yield HandIn(name, bytes if why else read, at, why)


def read_file(path: Path, inside: Path) -> bytes:
    """The bytes of a submission; ValueError in a few words for what is none."""
    try:
        if not path.resolve().is_relative_to(inside.resolve()):
            raise ValueError("It is a link to a place outside the folder.")
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ValueError("It is no file.")
        if os.stat(path).st_size > LARGEST:
            raise ValueError(TOO_LARGE)
        return path.read_bytes()
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", "") or "a circle of links"
        raise ValueError(f"The file cannot be read: {reason}.") from None


# --- zip files ------------------------------------------------------------------------------------


def _of_zip(name: str, place: Callable[[], Path | IO[bytes]], when: float, depth: int) -> Iterator[HandIn]:
    """What is in a zip file, of one student or of a class."""
    try:
        archive = ZipFile(place())
    except (BadZipFile, OSError, ValueError, NotImplementedError) as error:
        why = f"a zip file that cannot be read: {readable(str(error), 80)}"
        yield HandIn(name, bytes, when, why)
        return
    for member in archive.infolist():
        *folders, last = PurePosixPath(member.filename).parts or ("",)
        if not member.is_dir() and not {*folders, last} & {*NO_WORK} and not last.startswith(NO_FILE):
            at, read = time.mktime((*member.date_time, 0, 0, -1)), partial(_member, archive, member)
            stream = partial(_stream, read)
            yield from _sorted_out(f"{name}/{member.filename}", at, read, stream, depth + 1)


def _member(archive: ZipFile, member: ZipInfo) -> bytes:
    """Its bytes: never more than it says, and never too many."""
    if member.file_size > LARGEST:
        raise ValueError(TOO_LARGE)
    try:
        return archive.read(member)
    except (BadZipFile, RuntimeError, NotImplementedError, OSError, EOFError, Corrupt) as error:
        raise ValueError(f"It cannot be taken out of its zip file: {readable(str(error), 80)}.") from None


def _stream(read: Callable[[], bytes]) -> IO[bytes]:
    return io.BytesIO(read())
