"""Copies of the student's other files, which a submission can import, read and run."""

import importlib
import os
import sys
from contextlib import suppress
from functools import partial
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from .statements import Record, Runner
from .student_module import decode_source


def use_student_files(folder: str, files: dict[str, Any], record: Record) -> None:
    """Write the files into the working folder, and change to the submission's own folder, `folder`.

    `files` has the bytes of each file, by path. The copies are read-only.
    """
    top = Path.cwd()
    for name, data in files.items():
        with suppress(OSError):  # The system does not allow the name, or a folder has the same name.
            _write_copy(top / name, data.tobytes())
    with suppress(OSError):
        (top / folder).mkdir(parents=True, exist_ok=True)
        os.chdir(top / folder)
    for path in dict.fromkeys((top, Path.cwd())):
        sys.path.insert(0, str(path))
        loader: Any = partial(StudentLoader, record)
        sys.path_importer_cache[str(path)] = FileFinder(str(path), (loader, SOURCE_SUFFIXES))
    importlib.invalidate_caches()


def _write_copy(path: Path, data: bytes) -> None:
    """Write a read-only file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    path.chmod(0o444)


class StudentLoader(SourceFileLoader):
    """Imports a file of the student. If a statement fails, the other statements still run."""

    def __init__(self, record: Record, fullname: str, path: str) -> None:
        super().__init__(fullname, path)
        self.record = record

    def exec_module(self, module: ModuleType) -> None:
        """Run the file as a module."""
        source = decode_source(Path(self.path).read_bytes())
        Runner(vars(module), self.record).run(source, Path(self.path).name)
