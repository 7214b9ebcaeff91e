"""Give each submission the other files of the same student: modules to import, and data to read.

The owner of a file is the student whom the LMS or the class list finds by the path. What a file says about
its student does not count here, because a file could name a different student to get those files.
"""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from npformer.grader.class_list import Student, find_owners
from npformer.grader.submissions import NOT_CODE, Submission, parse_lms_name

MAX_COMPANIONS = 40
MAX_COMPANION_BYTES = 8_000_000  # With a submission of 16 MB, this fits into one frame of the protocol.
MODULE_SUFFIX = ".py"
DATA_SUFFIXES = (
    ".csv", ".tsv", ".txt", ".md", ".json", ".yaml", ".yml", ".toml", ".ini", ".xml", ".xlsx", ".dat", ".bin",
    ".npy", ".npz", ".pkl", ".mat", ".h5", ".png", ".jpg", ".jpeg", ".gif",
)  # fmt: skip
# Some systems write the files of all students into one folder. These are the patterns of the text that such a
# system adds before the student's own file name. Each key is also a key of LMS_NAME_PATTERNS.
FLAT_PREFIXES = {
    "canvas": r".+?_(LATE_)?\d+_\d+_(?=.)",
    "anonymous canvas": r"(LATE_)?anon_[^\W_]+_\d+_(?=.)",
    "moodle": r".+?\d+_assignsubmission_[^\W_]+_(?=.)",
    "blackboard": r".+?_attempt_\d{4}(-\d\d){5}_(?=.)",
}
RESUBMISSION_NUMBER = re.compile(r"-\d+(?=\.\w+$)")  # Canvas writes `helper-1.py` for the second helper.py.


class Companions(NamedTuple):
    """The other files of a student, as the submission sees them."""

    folder: str = ""  # the folder of the submission
    files: tuple[tuple[str, bytes], ...] = ()  # path and bytes
    left_out: tuple[str, ...] = ()  # paths of files that are too large or too many


def attach_companions(files: Sequence[Submission], class_list: Sequence[Student] | None) -> list[Submission]:
    """Return the files; each file to grade gets the other usable files of its owner."""
    candidates = [file._replace(skip_reason="") for file in files if not file.skip_reason or _is_usable(file)]
    owners = find_owners(candidates, {}, class_list).by_file
    usable_files = defaultdict[Student, list[Submission]](list)
    for file in files:
        owner = owners.get(file.name)
        if owner and _is_usable(file):
            usable_files[owner].append(file)
    attached = []
    for file in files:
        owner = owners.get(file.name)
        # Without a class list, a student without an id is only a guess.
        is_known = owner is not None and (class_list is not None or bool(owner.id))
        if is_known and owner and not file.skip_reason:
            others = [other for other in usable_files[owner] if other.name != file.name]
            file = file._replace(companions=tuple(others))
        attached.append(file)
    return attached


def attach_all(files: Sequence[Submission]) -> list[Submission]:
    """Return the files of one student; each file to grade gets all other usable files."""
    usable = [file for file in files if _is_usable(file)]
    attached = []
    for file in files:
        others = [other for other in usable if other.name != file.name]
        attached.append(file._replace(companions=tuple(others)))
    return attached


def _is_usable(file: Submission) -> bool:
    """Return whether other files of the student may import or read this file."""
    name = file.original_name.casefold()
    if not file.skip_reason:
        return name.endswith(MODULE_SUFFIX)
    return file.skip_reason == NOT_CODE and name.endswith(DATA_SUFFIXES)


def read_companions(file: Submission) -> Companions:
    """Read the other files of the student. Files that cannot be read are left out."""
    if not _is_safe(file.original_name):
        return Companions()
    paths = _choose_paths(file)
    folder = paths.pop(file.name)
    contents, left_out = _read_contents(file.companions, paths)
    left_out += _add_second_names(contents)
    return Companions(folder, tuple(contents.items()), tuple(left_out))


def _read_contents(files: Sequence[Submission], paths: dict[str, str]) -> tuple[dict[str, bytes], list[str]]:
    """Return the bytes of the files by path, and the paths of the files that are left out."""
    files_by_name = {file.name: file for file in files}
    contents: dict[str, bytes] = {}
    left_out = []
    size = 0
    for name, path in paths.items():
        try:
            data = files_by_name[name].read()
        except ValueError:
            left_out.append(path)
            continue
        if path in contents:  # An earlier attempt has a file with the same name.
            continue
        is_too_much = len(contents) >= MAX_COMPANIONS or size + len(data) > MAX_COMPANION_BYTES
        if is_too_much:
            left_out.append(path)
            continue
        size += len(data)
        contents[path] = data
    return contents, left_out


def _add_second_names(contents: dict[str, bytes]) -> list[str]:
    """Add files that were submitted again under their first names. Returns the names without room."""
    size = sum(map(len, contents.values()))
    left_out = []
    for path, data in list(contents.items()):
        first_path = RESUBMISSION_NUMBER.sub("", path)
        has_room = size + len(data) <= MAX_COMPANION_BYTES
        if first_path in contents:
            continue
        if not has_room:
            left_out.append(first_path)
            continue
        size += len(data)
        contents[first_path] = data
    return left_out


def _choose_paths(file: Submission) -> dict[str, str]:
    """Return the path of each companion by name, and the folder of the file itself.

    The paths begin at the folder that contains all files of the student. A path that leads out of this
    folder is left out.
    """
    own_folder, own_name = posixpath.split(file.original_name)
    # In a folder or zip file of the student, the student has chosen the names of the files.
    is_flat = parse_lms_name(own_folder) is None and _remove_prefix(own_name) != own_name
    located = {file.name: file.original_name}
    for other in file.companions:
        folder, name = posixpath.split(other.original_name)
        if is_flat:
            name = _remove_prefix(name)
        if _is_safe(other.original_name):
            located[other.name] = posixpath.join(folder, name)
    root = _find_common_folder(located.values())
    paths = {name: path[len(root) :] for name, path in located.items()}
    paths[file.name] = posixpath.dirname(paths[file.name])
    return paths


def _remove_prefix(name: str) -> str:
    """Return a file name without the beginning that the LMS has added."""
    lms_name = parse_lms_name(name)
    prefix = "" if lms_name is None else FLAT_PREFIXES.get(lms_name.system, "")
    return re.sub(f"^{prefix}", "", name)


def _is_safe(path: str) -> bool:
    """Return whether a path leads to no place outside its folder. The student may have written a zip file."""
    return set(path.split("/")).isdisjoint({"", ".", ".."})


def _find_common_folder(paths: Iterable[str]) -> str:
    """Return the folder that contains all paths, with a slash at its end, or ""."""
    folder = posixpath.commonpath([posixpath.dirname(path) for path in paths])
    return f"{folder}/" if folder else ""
