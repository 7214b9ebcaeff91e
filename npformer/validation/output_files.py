"""Check output paths before any work is done. Write several files so that none appears if writing fails."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def check_output_file(name: str | os.PathLike[str], *kinds: str) -> Path:
    """Return the path of an output file after a check that the file can be written.

    Parameters
    ----------
    name : str or path
        The path of the file, which may exist already.
    kinds : str
        The allowed suffixes, such as ".html". Without them, every suffix is allowed.

    Returns
    -------
    path : Path

    Raises
    ------
    ValueError
        If the path is a folder or a device, has a suffix that is not allowed, or cannot be written.
    FileNotFoundError
        If the folder of the file does not exist.
    """
    path = Path(name)
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "a device"
        raise ValueError(f"{str(name)!r} is {kind}; expected a file")
    if kinds and path.suffix.lower() not in kinds:
        one_of = "one of " if len(kinds) > 1 else ""
        raise ValueError(f"{path.name!r} should end in {one_of}{', '.join(kinds)}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(path.parent)!r}")
    return _check_writable(path, path.parent)


def check_output_folder(name: str | os.PathLike[str], files: Iterable[str] = ()) -> Path:
    """Return the path of an output folder after a check that the folder and these files can be written.

    The folder need not exist, because `write_files` creates it.

    Parameters
    ----------
    name : str or path
        The path of the folder.
    files : names
        The files that will be written in the folder.

    Returns
    -------
    path : Path

    Raises
    ------
    ValueError
        If the folder or one of the files cannot be written.
    """
    path = Path(name)
    existing = [folder for folder in (path, *path.absolute().parents) if folder.exists()]
    nearest = existing[0]
    if not nearest.is_dir():
        raise ValueError(f"{str(nearest)!r} is a file; expected a folder")
    for file in files:
        if (path / file).exists():
            check_output_file(path / file)
    return _check_writable(path, nearest)


def _check_writable(path: Path, folder: Path) -> Path:
    """Return the path, or raise ValueError if `folder` is read-only.

    `folder` is the path itself or one of its parent folders.
    """
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{str(path)!r} cannot be written; choose another place")
    return path


def write_files(files: Mapping[Path, str | bytes]) -> list[Path]:
    """Write all files and return their paths.

    Missing folders are created. Each file is first written under a temporary name in its folder. The files
    get their final names only after all of them are written. If writing fails, none of the files appears.
    """
    temporary_files = {file: file.with_name(f".{file.name}.{os.getpid()}.part") for file in files}
    try:
        for file, content in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                content = content.encode("utf-8", "backslashreplace")
            with name_file_in_errors(file):
                temporary_files[file].write_bytes(content)
        for file, temporary_file in temporary_files.items():
            temporary_file.replace(file)
    finally:
        for temporary_file in temporary_files.values():
            temporary_file.unlink(missing_ok=True)
    return list(files)


@contextmanager
def name_file_in_errors(file: Path) -> Iterator[None]:
    """Add the name of this file to each OSError of a block. The error for a full disk contains no name."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from None
