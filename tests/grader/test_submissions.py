"""Tests of `submissions`: which files of a folder are found, and why some files are not graded."""

import os
import zipfile

import honest
import pytest

from npformer.grader import submissions
from npformer.grader.submissions import find_submissions

MAX_BYTES = 2000  # a small limit for these tests; the grader uses 2**24
STUDENT_ZIP = honest.make_zip(
    {"a.py": "x", "b.txt": "", ".DS_Store": "", "deeper.zip": honest.make_zip({"c.py": "y"})}
)
# bomb.zip below declares 2000 bytes for a.py, which has 2001 bytes.
ZIP_BOMB = honest.make_zip({"a.py": "x" * 2001, "b.py": "x" * 2000})
ZIP_FILES = {
    "bad.zip": b"PK no",
    "class.zip": honest.make_zip({"ada.zip": STUDENT_ZIP, "x\ny.py": "z", "x\\ny.py": "Z", "folder/": ""}),
    "bomb.zip": ZIP_BOMB.replace((2001).to_bytes(4, "little"), (2000).to_bytes(4, "little")),
    "large.zip": honest.make_zip({"in.zip": ZIP_BOMB}),
}
LINKS = {"gone.py": "nothing", "around.py": "around.py", "out.py": os.__file__}
EMPTY_FILES = (
    ".git/a.py",
    ".ipynb_checkpoints/a.py",
    "my_env/pyvenv.cfg",
    "x.py/a.py",
    "._a.py",
    os.fsdecode(b"n\xff.py"),
)
EXPECTED = {  # name: the bytes of the file, or the start of the reason why it is not graded
    ".ipynb_checkpoints/a.py": "it is a copy that Jupyter made",
    "2~class.zip/x\\ny.py": b"Z",  # two names become equal when control characters are escaped
    "around.py": "it is a symbolic link",
    "bad.zip": "the zip file cannot be read: File is not a zip file",
    "bomb.zip/a.py": "It ",
    "bomb.zip/b.py": b"x" * 2000,
    "class.zip/ada.zip/a.py": b"x",
    "class.zip/ada.zip/b.txt": "it is not a .py file or a notebook",
    "class.zip/ada.zip/deeper.zip": "it is not a .py file or a notebook",
    "class.zip/x\\ny.py": b"z",
    "deflated.zip/a.py": "It cannot be read: Error -3",
    "essay.pdf": "it is not a .py file or a notebook",
    "gone.py": "it is a symbolic link",
    "large.py": "It is larger than 0 megabytes.",
    "large.zip/in.zip": "the zip file cannot be read: It is larger than 0 megabytes.",
    "linked": "it is a symbolic link",
    "my_env": "it is a virtual environment",
    "n\\xff.py": b"",
    "out.py": "it is a symbolic link",
    "pipe.py": "It cannot be read: it is not a regular file.",
    "secret": "the folder cannot be opened",
    "stored.zip/a.py": "It cannot be read: Bad CRC",
    "x.py/a.py": b"",
}


def write_corrupt_zip(path, compression):
    """Write a zip file with ten wrong bytes in its only member."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("a.py", "x = 1\n" * 99)
    data = path.read_bytes()
    path.write_bytes(data[:34] + b"\xff" * 10 + data[44:])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files of EXPECTED."""
    for name, data in (ZIP_FILES | {"essay.pdf": b"", "large.py": b"x" * 2001}).items():
        (tmp_path / name).write_bytes(data)
    for name, target in LINKS.items():
        (tmp_path / name).symlink_to(target)
    write_corrupt_zip(tmp_path / "stored.zip", zipfile.ZIP_STORED)
    write_corrupt_zip(tmp_path / "deflated.zip", zipfile.ZIP_DEFLATED)
    for name in EMPTY_FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "linked").symlink_to(".git")
    (tmp_path / "secret").mkdir()
    os.mkfifo(tmp_path / "pipe.py")
    os.utime(tmp_path / "class.zip", (0, 0))
    monkeypatch.setattr(submissions, "MAX_BYTES", MAX_BYTES)
    monkeypatch.setattr(submissions.os, "access", lambda path, mode: path.name != "secret")
    return tmp_path


def read_or_explain(file):
    """Return the bytes of a submission, or why it is not graded."""
    try:
        return file.skip_reason or file.read()
    except ValueError as error:
        return str(error)


def test_find_submissions_lists_every_file_of_zips(folder):
    found = {file.name: file for file in find_submissions(folder)}
    assert list(found) == sorted(EXPECTED)
    results = {name: read_or_explain(found[name])[: len(start)] for name, start in EXPECTED.items()}
    assert results == EXPECTED


def test_find_submissions_reads_times(folder):
    found = {file.name: file for file in find_submissions(folder)}
    assert found["class.zip/ada.zip/a.py"].time > 10**9, "the time of the file, not of the zip file"
    assert abs(found["stored.zip/a.py"].time - (folder / "stored.zip").stat().st_mtime) < 60
