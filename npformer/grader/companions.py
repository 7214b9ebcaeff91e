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
from npformer.grader.submissions import NOT_CODE, Submission

MAX_COMPANIONS = 40
MAX_COMPANION_BYTES = 2**23  # together with a submission of 16 MB, this fits into one frame of the protocol
MODULE_SUFFIX = ".py"
DATA_SUFFIXES = (".csv", ".tsv", ".txt", ".json", ".dat", ".npy", ".npz", ".pkl")
# The beginning of a file name that comes from Canvas or Blackboard. The name in the submission follows it.
FLAT_PREFIX = re.compile(r".+?_(LATE_)?(\d+|anon_[^\W_]+)_\d+_(?=.)|.+?_attempt_\d{4}(-\d\d){5}_(?=.)")
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
    companions_by_name = {other.name: other for other in file.companions}
    contents: dict[str, bytes] = {}
    left_out = []
    size = 0
    for name, path in paths.items():
        try:
            data = companions_by_name[name].read()
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
    for path in list(contents):
        contents.setdefault(RESUBMISSION_NUMBER.sub("", path), contents[path])
    return Companions(folder, tuple(contents.items()), tuple(left_out))


def _choose_paths(file: Submission) -> dict[str, str]:
    """Return the path of each companion by name, and the folder of the file itself.

    The paths begin at the folder that contains all files of the student. A path that leads out of this
    folder is left out.
    """
    is_flat = bool(FLAT_PREFIX.match(posixpath.basename(file.original_name)))
    located = {file.name: file.original_name}
    for other in file.companions:
        folder, name = posixpath.split(other.original_name)
        if is_flat:
            name = FLAT_PREFIX.sub("", name, count=1)
        if _is_safe(other.original_name):
            located[other.name] = posixpath.join(folder, name)
    root = _find_common_folder(located.values())
    paths = {name: path[len(root) :] for name, path in located.items()}
    paths[file.name] = posixpath.dirname(paths[file.name])
    return paths


def _is_safe(path: str) -> bool:
    """Return whether a path leads to no place outside its folder. The student may have written a zip file."""
    return set(path.split("/")).isdisjoint({"", ".", ".."})


def _find_common_folder(paths: Iterable[str]) -> str:
    """Return the folder that contains all paths, with a slash at its end, or ""."""
    folder = posixpath.commonpath([posixpath.dirname(path) for path in paths])
    return f"{folder}/" if folder else ""
