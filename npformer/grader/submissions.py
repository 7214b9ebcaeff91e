"""Find the files of a class in the download of a learning management system (LMS).

The download is a folder, a zip file or a single file. Most systems write the student's number or login into
the names of files or folders; Gradescope writes the number of the submission. A file that is neither a .py
file nor a notebook is listed with the reason why it is not graded.

The modification times of files and of zip entries are never used: students can choose these times, and an LMS
replaces them by the time of the download.
"""

import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, NamedTuple
from zipfile import BadZipFile, ZipFile, ZipInfo
from zlib import error as ZlibError

from npformer.grader.worker.protocol import readable

MAX_BYTES = 2**24  # the largest size of one submission
MAX_FILES = 40  # the largest number of files of one student that are graded
IS_LINK = "it is a symbolic link"
NOT_CODE = "it is not a .py file or a notebook"
MAX_ZIP_DEPTH = 2  # depth 2: the zip file of a class may contain zip files of students
SUFFIX = re.compile(r"(\.py|\.ipynb)(\.txt|\.json)?$", re.IGNORECASE)  # some browsers add .txt or .json
READ_ERRORS = (OSError, RuntimeError, EOFError, BadZipFile, ZlibError, ValueError)
IGNORED_FOLDERS = ("__MACOSX", "__pycache__", "site-packages", "node_modules", ".git")
IGNORED_FILES = (
    "._",
    ".DS_Store",
    "Thumbs.db",
    "desktop.ini",
)  # Files whose names start with these texts come from operating systems.
LMS_NAME_PATTERNS = {  # the beginning of a file's or folder's name, as each system writes it
    "moodle": r"(?:(?P<name>[^_]+)_|(?:Participante?|Teilnehmerin) ?)(?P<id>\d+)_assignsubmission_",
    "canvas": r"(?P<name>.+?)_(?P<late>LATE_)?(?P<id>\d+)_(?P<number>\d+)_.",
    "anonymous canvas": r"(?P<late>LATE_)?(?P<id>anon_[^\W_]+)_(?P<number>\d+)_.",
    "blackboard": r".+?_(?P<id>.+?)_attempt_(?P<time>\d{4}(?:-\d\d){5})",
    "brightspace": r"(?P<id>\d+-\d+) - (?P<name>.+?) - \w+ \d+, \d{4} \d+ [AP]M",
    "gradescope": r"submission_(?P<id>\d+)$",
    "nbgrader": r"(?P<id>.+?)\+[^+]+\+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d",
}
OTTER_TIME = re.compile(r"_\d{4}_\d\d_\d\dT\d\d_\d\d_\d\d_\d+")  # in the names of otter's exports


class LmsName(NamedTuple):
    """The fields that an LMS has written into the name of a file or folder."""

    system: str  # a key of LMS_NAME_PATTERNS
    id: str
    name: str = ""
    is_late: bool = False
    time: str = ""  # Blackboard's time of submission
    number: int = 0  # Canvas' number of the file, which is larger for a later file


class Submission(NamedTuple):
    """One file of a class."""

    name: str  # the path in the folder or zip file; control characters and invalid bytes are escaped
    open: Callable[[], IO[bytes]]
    original_name: str  # the path inside a zip file of the whole class; never replaced by a number
    skip_reason: str = ""  # why the file is not graded; "" if it is graded
    companions: tuple["Submission", ...] = ()  # the student's other files, which this file may use

    def read(self) -> bytes:
        """Return the bytes of the file. Raises ValueError if the file is too large or cannot be read."""
        try:
            with self.open() as file:
                data = file.read(MAX_BYTES + 1)
        except READ_ERRORS as error:
            reason = getattr(error, "strerror", "") or str(error) or "it ends too early"
            raise ValueError(f"It cannot be read: {readable(reason, 80)}.") from None
        if len(data) > MAX_BYTES:
            raise ValueError(f"It is larger than {MAX_BYTES // 2**20} megabytes.")
        return data


def find_submissions(top: Path) -> list[Submission]:
    """Return the files in a folder or zip file, or a single file, sorted by name. The names are unique.

    Raises ValueError if there is no file to grade.
    """
    if not top.exists():
        raise ValueError(f"there is no file or folder {str(top)!r}")
    folder = top if top.is_dir() else top.parent
    paths = _walk_folder(top) if top.is_dir() else [(top, "")]
    found: list[Submission] = []
    for path, skip_reason in paths:
        name = os.fsencode(path.relative_to(folder).as_posix()).decode("utf-8", "backslashreplace")
        file = Submission(name, partial(_open_inside, path, folder), name)
        found += _classify(file, skip_reason)
    is_class_zip = not top.is_dir() and parse_lms_name(top.name) is None
    if is_class_zip:  # The teacher or the LMS has named this zip file for the class, not for a student.
        found = [file._replace(original_name=file.name.removeprefix(f"{top.name}/")) for file in found]
    if all(file.skip_reason for file in found):
        raise ValueError(f"no .py or .ipynb file in {str(top)!r}")
    return sorted(_make_names_unique(found), key=lambda file: file.name)


def _make_names_unique(files: list[Submission]) -> Iterator[Submission]:
    """Put a number before repeated names, because a zip file can contain two files with the same name."""
    counts = Counter[str]()
    for file in files:
        counts[file.name] += 1
        number = counts[file.name]
        yield file if number == 1 else file._replace(name=f"{number}~{file.name}")


def parse_lms_name(path: str) -> LmsName | None:
    """Return the fields that an LMS has written into a path, or None for a path without such a name.

    The name that an LMS writes ends with the name of the uploaded file, which the student has chosen. The
    student has also chosen all names inside an uploaded zip file. Therefore only the first part of the path
    that fits a pattern counts. If this part fits several patterns, the one whose id begins first counts.

    >>> parse_lms_name("class/smithanna_LATE_4711_990_hw1.zip/eve_4712_991_hw1.py")
    LmsName(system='canvas', id='4711', name='smithanna', is_late=True, time='', number=990)
    """
    for part in OTTER_TIME.sub("", path).split("/"):
        matches = {system: re.match(pattern, part) for system, pattern in LMS_NAME_PATTERNS.items()}
        found = {system: match for system, match in matches.items() if match}
        if found:
            system = min(found, key=lambda system: found[system].start("id"))
            fields = found[system].groupdict(default="")
            is_late = bool(fields.get("late"))
            number = int(fields.get("number", 0))
            return LmsName(
                system, fields["id"], fields.get("name", ""), is_late, fields.get("time", ""), number
            )
    return None


def find_students(files: list[Submission], owners: Mapping[str, str]) -> dict[str, str]:
    """Return a text that identifies the student of each file, by file name.

    The result is used only for limits per student. `owners` maps files to the students that the class list
    gives. For any other file, the text is the id that an LMS has written into the path, or else the path of
    the zip file that contains the file. Files without any of these are left out.
    """
    students = {}
    for file in files:
        lms_name = parse_lms_name(file.original_name)
        in_path = _get_zip_name(file.original_name) if lms_name is None else lms_name.id
        student = owners.get(file.name, in_path)
        if student:
            students[file.name] = student
    return students


def _get_zip_name(path: str) -> str:
    """Return the path of the first zip file that contains this file, or ""."""
    folders = path.split("/")[:-1]
    for count, folder in enumerate(folders, start=1):
        if folder.casefold().endswith(".zip"):
            return "/".join(folders[:count])
    return ""


def skip_surplus_files(files: list[Submission], students: Mapping[str, str]) -> list[Submission]:
    """Return the files. After a student's first MAX_FILES files to grade, the rest get a skip reason."""
    counts = Counter[str]()
    checked = []
    for file in files:
        student = students.get(file.name, "")
        if student and not file.skip_reason:
            counts[student] += 1
            if counts[student] > MAX_FILES:
                file = file._replace(skip_reason=f"the student has more than {MAX_FILES} files")
        checked.append(file)
    return checked


def _walk_folder(top: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file with an empty reason, and each rejected folder with the reason.

    Folders in IGNORED_FOLDERS are left out without a reason.
    """
    for parent, folders, names in os.walk(top):
        reasons = {folder: _get_folder_skip_reason(Path(parent, folder)) for folder in folders}
        # `os.walk` visits only the folders that remain in this list.
        folders[:] = [folder for folder in folders if folder not in IGNORED_FOLDERS and not reasons[folder]]
        for folder, reason in reasons.items():
            if reason:
                yield Path(parent, folder), reason
        for name in names:
            path = Path(parent, name)
            yield path, IS_LINK if path.is_symlink() else ""


def _get_folder_skip_reason(folder: Path) -> str:
    """Return the reason why a folder is skipped, or "" if the folder is visited."""
    if folder.is_symlink():
        return IS_LINK
    if not os.access(folder, os.R_OK | os.X_OK):
        return "the folder cannot be opened"
    if (folder / "pyvenv.cfg").exists():
        return "it is a virtual environment"
    return ""


def _open_inside(path: Path, folder: Path) -> IO[bytes]:
    """Open a file in the folder.

    A link is never followed, because it could lead to another student's answers or to the teacher's files.
    Links are already skipped when the files are listed. They are checked again here, because a submission
    that runs without a sandbox could replace a file by a link.
    """
    is_link = path.is_symlink() or not path.resolve().is_relative_to(folder.resolve())
    if is_link and path != folder:
        raise ValueError(IS_LINK)
    if path.exists() and not path.is_file():
        raise ValueError("it is not a regular file")
    return path.open("rb")


def _classify(file: Submission, skip_reason: str = "", depth: int = 1) -> Iterator[Submission]:
    """Yield a file with its skip reason, or the members of a zip file. Ignored files are left out.

    >>> next(_classify(Submission("a" + chr(10) + "b.py", BytesIO, ""))).name
    'a\\\\nb.py'
    """
    parts = file.name.split("/")
    is_ignored = not set(parts).isdisjoint(IGNORED_FOLDERS) or parts[-1].startswith(IGNORED_FILES)
    if is_ignored:
        return
    name = readable(file.name, 1000).replace("\n", "\\n").replace("\t", "\\t")
    is_zip = name.casefold().endswith(".zip")
    if is_zip and not skip_reason and depth <= MAX_ZIP_DEPTH:
        yield from _iter_zip_members(file._replace(name=name), depth)
        return
    if not skip_reason and ".ipynb_checkpoints" in parts[:-1]:
        skip_reason = "it is a copy that Jupyter made"
    elif not skip_reason and not SUFFIX.search(name):
        skip_reason = NOT_CODE
    yield Submission(name, file.open, name, skip_reason)


def _iter_zip_members(zip_file: Submission, depth: int) -> Iterator[Submission]:
    """Yield the files in a zip file. At depth 1 the zip file is on disk, at depth 2 in another zip file."""
    try:
        with zip_file.open() as file:
            # A zip file on disk may be large (a whole class), so it is not read into memory.
            archive = ZipFile(file.name if depth == 1 else BytesIO(zip_file.read()))
    except READ_ERRORS as error:
        yield zip_file._replace(skip_reason=f"the zip file cannot be read: {readable(str(error), 80)}")
        return
    for member in archive.infolist():
        if not member.filename.endswith(("/", "\\")):
            # A zip file that was made on Unix stores the mode of each file in these bits.
            is_link = stat.S_ISLNK(member.external_attr >> 16)
            reason = IS_LINK if is_link else ""
            yield from _classify(_make_member(zip_file.name, archive, member), reason, depth=depth + 1)


def _make_member(zip_name: str, archive: ZipFile, member: ZipInfo) -> Submission:
    """Return a member of a zip file as a submission. Some Windows programs write backslashes into paths."""
    path = member.filename.replace("\\", "/")
    name = f"{zip_name}/{path}"
    return Submission(name, partial(archive.open, member), name)
