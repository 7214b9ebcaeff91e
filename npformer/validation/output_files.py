"""Where files are written: asked before any work is done, so that none is lost; and all of them, or none."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path


def place_for(name: str | os.PathLike[str], *kinds: str) -> Path:
    """Where a file is to be written, whose name ends in one of the kinds, if some are given.

    Raises ValueError for a folder, another kind, and where no file can be made, FileNotFoundError where
    there is no folder for it.
    """
    path = Path(name)
    if path.exists() and not path.is_file():
        raise ValueError(f"{str(name)!r} is {'a folder' if path.is_dir() else 'a device'}; expected a file")
    if kinds and path.suffix.lower() not in kinds:
        one_of = "one of " * (len(kinds) > 1)
        raise ValueError(f"{path.name!r} should end in {one_of}{', '.join(kinds)}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(path.parent)!r}")
    return _writable(path, path.parent)


def folder_for(name: str | os.PathLike[str], files: Iterable[str] = ()) -> Path:
    """The same for a folder and for these files in it; if it is not there, it will be made."""
    path = Path(name)
    first = next(above for above in (path, *path.absolute().parents) if above.exists())
    if not first.is_dir():
        raise ValueError(f"{str(first)!r} is a file; expected a folder")
    for file in (path / file for file in files if (path / file).exists()):
        place_for(file)
    return _writable(path, first)


def _writable(path: Path, folder: Path) -> Path:
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{str(path)!r} cannot be written; choose another place")
    return path


def write_files(files: Mapping[Path, str | bytes]) -> list[Path]:
    """All of them, or after an error none, in folders that are made; returns where they are."""
    parts = {file: file.with_name(f".{file.name}.{os.getpid()}.part") for file in files}
    try:
        for file, content in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            whole = content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
            parts[file].write_bytes(whole)
        for file, part in parts.items():
            part.replace(file)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
    return list(files)
