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

from npformer.grader.frames import readable

LARGEST = 2**24
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

    @property
    def kind(self) -> str:
        """Its name as Python's: x.py for x.py.txt."""
        found = KIND.fullmatch(self.name)
        return found["name"] if found else self.name


def hand_ins(top: Path) -> list[HandIn]:
    """What is below a folder or in a zip file, or one file; in order of name.

    Raises ValueError where there is no file to grade.
    """
    if not top.exists():
        raise ValueError(f"there is no file or folder {str(top)!r}")
    if top.is_dir():
        found = [each for path in sorted(_below(top)) for each in _of_file(top, path)]
    else:
        found = list(_of_file(top.parent, top))
    if not any(not each.passed_over for each in found):
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


def _below(top: Path) -> Iterator[Path]:
    """Every file, and the folders that are not looked into."""
    for here, folders, names in os.walk(top, onerror=lambda error: None):
        for folder in list(folders):
            path = Path(here, folder)
            if folder in NO_WORK:
                folders.remove(folder)
            elif why_not(path):
                folders.remove(folder)
                yield path
        yield from (Path(here, name) for name in names if not name.startswith(NO_FILE))


def why_not(folder: Path) -> str:
    """Why a folder is not looked into, or ""."""
    if folder.is_symlink():
        return "a link to a folder"
    if (folder / "pyvenv.cfg").exists():
        return "a virtual environment"
    if not os.access(folder, os.R_OK | os.X_OK):
        return "a folder that cannot be opened"
    return ""


def _of_file(top: Path, path: Path) -> Iterator[HandIn]:
    name, when = shown(path, top), path.lstat().st_mtime
    if path.is_dir():
        yield _not_graded(name, when, why_not(path))
    elif path.suffix.casefold() == ".zip" and path.is_file():
        yield from _of_zip(name, lambda: path, when, 1)
    elif KIND.fullmatch(path.name) and ".ipynb_checkpoints" not in path.parts:
        yield HandIn(name, lambda: read_file(path, top), _time_of(name, when))
    else:
        yield _not_graded(name, when, "no .py file and no notebook")


def _not_graded(name: str, when: float, why: str) -> HandIn:
    return HandIn(name, lambda: b"", when, "a copy by Jupyter" if ".ipynb_checkpoints" in name else why)


def shown(path: Path, folder: Path) -> str:
    """A path inside a folder, in text that every codec can write.

    >>> shown(Path("class", os.fsdecode(bytes([0xFF])) + ".py"), Path("class"))
    '\\\\xff.py'
    """
    inside = os.fsencode(path.relative_to(folder).as_posix()).decode("utf-8", "backslashreplace")
    return readable(inside, 1000).replace("\n", "\\n").replace("\t", "\\t")


def _time_of(name: str, otherwise: float) -> float:
    written = shape_of(name).get("time")
    return time.mktime(time.strptime(written, "%Y-%m-%d-%H-%M-%S")) if written else otherwise


def read_file(path: Path, inside: Path) -> bytes:
    """The bytes of a submission; ValueError in a few words for what is none."""
    try:
        if not path.resolve().is_relative_to(inside.resolve()):
            raise ValueError("It is a link to a place outside the folder.")
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ValueError("It is no file.")
        if os.stat(path).st_size > LARGEST:
            raise ValueError(f"It is larger than {LARGEST // 2**20} megabytes.")
        return path.read_bytes()
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", "") or "a circle of links"
        raise ValueError(f"The file cannot be read: {reason}.") from None


# --- zip files ------------------------------------------------------------------------------------


def _of_zip(name: str, place: Callable[[], Path | IO[bytes]], when: float, depth: int) -> Iterator[HandIn]:
    """What is in a zip file, of one student or of a class."""
    try:
        archive = ZipFile(place())
        members = [each for each in archive.infolist() if not each.is_dir() and _is_work(each.filename)]
    except (BadZipFile, OSError, ValueError, NotImplementedError) as error:
        yield _not_graded(name, when, f"a zip file that cannot be read: {readable(str(error), 80)}")
        return
    for member in members:
        inside = readable(f"{name}/{member.filename}", 1000).replace("\n", "\\n").replace("\t", "\\t")
        at = _zip_time(member, when)
        if member.filename.casefold().endswith(".zip") and depth < DEEPEST:
            yield from _of_zip(inside, partial(_stream, _bytes_of(archive, member)), at, depth + 1)
        elif KIND.fullmatch(inside) and "/.ipynb_checkpoints/" not in inside:
            yield HandIn(inside, _bytes_of(archive, member), _time_of(inside, at))
        else:
            yield _not_graded(inside, at, "no .py file and no notebook")


def _is_work(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and not any(p in NO_WORK for p in parts) and not parts[-1].startswith(NO_FILE)


def _bytes_of(archive: ZipFile, member: ZipInfo) -> Callable[[], bytes]:
    """A member's bytes, read when they are asked for: never more than it says, and never too many."""

    def read() -> bytes:
        if member.file_size > LARGEST:
            raise ValueError(f"It is larger than {LARGEST // 2**20} megabytes.")
        try:
            return archive.read(member)
        except (BadZipFile, RuntimeError, NotImplementedError, OSError, EOFError) as error:
            raise ValueError(f"It cannot be taken out of its zip file: {readable(str(error), 80)}.") from None

    return read


def _stream(of: Callable[[], bytes]) -> IO[bytes]:
    return io.BytesIO(of())


def _zip_time(member: ZipInfo, otherwise: float) -> float:
    try:
        return time.mktime((*member.date_time, 0, 0, -1))
    except (ValueError, OverflowError):
        return otherwise
