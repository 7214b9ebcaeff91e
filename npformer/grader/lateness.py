"""Find out how late each submission is, from data that only the learning management system (LMS) writes.

These data are a column of the class list, nbgrader's file `timestamp.txt`, and the file names of Blackboard
and Canvas. The modification times of files and zip entries are not used.
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from npformer.grader.class_list import Owners, Student
from npformer.grader.submissions import Submission, parse_lms_name
from npformer.grader.times import parse_time
from npformer.grader.worker.protocol import readable

SECONDS_PER_DAY = 86400
CANVAS = ("canvas", "anonymous canvas")  # these systems mark every late file
NO_SOURCE = (
    "No lateness: the download has no trustworthy time of submission; no one counts as late. "
    "A class list with such a column has it, for example Moodle's grading worksheet."
)
# A student can choose such folder names inside a zip file, so neither folder may be a zip file.
NBGRADER_FOLDER = r"(submitted/)?(?P<folder>[^/]+(?<!\.zip)/[^/]+(?<!\.zip))/"
NBGRADER_FILES = ("timestamp.txt", "submission_secret.txt")  # nbgrader writes these files


class Lateness(NamedTuple):
    """How late the submissions are, with messages about this for the teacher."""

    days: dict[str, int]  # {name of a file: the number of days that it is late}
    undecided: list[str]  # students whose time of submission is missing or cannot be read
    note: str  # NO_SOURCE if nothing shows who is late, else ""


def split_timestamps(files: Sequence[Submission]) -> tuple[list[Submission], dict[str, str]]:
    """Return the files without nbgrader's own files, and the text of `timestamp.txt` by folder.

    nbgrader's collector writes STUDENT/ASSIGNMENT/timestamp.txt. Other systems let students choose such
    paths. Therefore these files count only if every submission is in such a folder, and at least half of the
    folders have a `timestamp.txt`.
    """
    folders = set()
    timestamps = {}
    own_files = set()
    for file in files:
        folder, rest = _split_nbgrader_path(file.original_name)
        if not file.skip_reason:
            folders.add(folder)
        if folder and rest in NBGRADER_FILES:
            own_files.add(file)
        if folder and rest == "timestamp.txt":
            timestamps[folder] = _read_text(file)
    is_collected = bool(timestamps) and "" not in folders and 2 * len(timestamps) >= len(folders)
    if not is_collected:
        return list(files), {}
    return [file for file in files if file not in own_files], timestamps


def _split_nbgrader_path(path: str) -> tuple[str, str]:
    """Split a path after STUDENT/ASSIGNMENT. The first part is "" if the path has another layout."""
    match = re.match(NBGRADER_FOLDER, path)
    if match is None or parse_lms_name(path.split("/")[0]):
        return "", path
    return match["folder"], path[match.end() :]


def _read_text(file: Submission) -> str:
    """Return the text of a short file, or "" if the file cannot be read."""
    try:
        return readable(file.read().decode("utf-8", "replace").strip(), 80)
    except ValueError:
        return ""


def find_lateness(
    files: Iterable[Submission], owners: Owners, due: float, timestamps: dict[str, str]
) -> Lateness:
    """Return how many days late each file is. A day that has begun counts as a full day."""
    days = {}
    undecided = []
    has_source = bool(timestamps)
    for file in files:
        if file.name not in owners.by_file:
            continue
        student = owners.by_file[file.name]
        timestamp = timestamps.get(_split_nbgrader_path(file.original_name)[0], "")
        days_late = _count_days_late(file, student, due, timestamp)
        days[file.name] = days_late or 0
        has_source = has_source or days_late is not None or student.unread_time is not None
        if days_late is None:
            text = student.unread_time or timestamp
            reason = f"cannot be read: {text!r}" if text else "is missing"
            undecided.append(f"the time of submission of {student} {reason}; {student} counts as on time")
    if math.isinf(due):  # Without a deadline, no time is missing.
        return Lateness(days, [], "")
    if not has_source:
        return Lateness(days, [], NO_SOURCE)
    return Lateness(days, list(dict.fromkeys(undecided)), "")


def _count_days_late(file: Submission, student: Student, due: float, timestamp: str) -> int | None:
    """Return the number of days after the deadline, or None if no source has it.

    The word LATE in a file name of Canvas counts as one day if no other source shows a delay.
    """
    lms_name = parse_lms_name(file.original_name)
    seconds_late = student.late
    time = student.submitted
    if seconds_late is None and time is None:
        time = parse_time(timestamp or (lms_name.time if lms_name else ""))
    if seconds_late is None and time is not None:
        seconds_late = time - due
    if seconds_late is not None and seconds_late > 0:
        return math.ceil(seconds_late / SECONDS_PER_DAY)
    if lms_name and lms_name.is_late:
        return 1
    is_marked_when_late = lms_name is not None and lms_name.system in CANVAS and student.unread_time is None
    return 0 if seconds_late is not None or is_marked_when_late else None


# --- the order of attempts ------------------------------------------------------------------------


def sort_attempts(files: Iterable[Submission]) -> list[Submission]:
    """Sort the files of a student, the last attempt last.

    The files are sorted by the time or number that the LMS wrote, then by the number of a copy, then by name.
    A copy has a name such as `hw1-2.py` or `hw1 (2).py`.
    """
    return sorted(files, key=_get_attempt_key)


def _get_attempt_key(file: Submission) -> tuple[str, int, int, str]:
    """Return the key by which `sort_attempts` sorts."""
    lms_name = parse_lms_name(file.original_name)
    time, number = (lms_name.time, lms_name.number) if lms_name else ("", 0)
    copy = re.search(r"(?:-| ?\()(\d{1,3})\)?(?:\.\w+)+$", file.original_name)
    return time, number, int(copy[1]) if copy else 0, file.original_name
