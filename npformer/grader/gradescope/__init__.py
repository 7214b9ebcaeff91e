"""Write the autograder of an assignment for Gradescope: a zip file with two scripts and npformer's wheel.

Gradescope unpacks the zip file to /autograder/source. It runs `setup.sh` once and `run_autograder` for each
submission. The scripts read the variable AUTOGRADER_ROOT, so that they also run in another folder.
"""

import base64
import hashlib
import io
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

SCRIPTS = ("setup.sh", "run_autograder")
PACKAGE = Path(__file__).parents[2]  # the folder of the installed package npformer
METADATA_FILES = ("METADATA", "entry_points.txt", "licenses/LICENSE")
WHEEL_METADATA = "Wheel-Version: 1.0\nGenerator: npformer\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
FILE_MODE = 0o100644  # a regular file that everyone may read
SCRIPT_MODE = 0o100755  # a regular file that everyone may run
UNIX = 3  # the number of Unix in a zip file: without it, the modes are ignored


def make_autograder(assignment: Path) -> bytes:
    """Return the zip file of the autograder for this assignment file.

    Parameters
    ----------
    assignment : Path
        The assignment file, which the caller has checked.

    Returns
    -------
    data : bytes

    Raises
    ------
    ValueError
        If npformer runs from a folder where it is not installed.
    """
    files = {}
    for name in SCRIPTS:
        script = (Path(__file__).parent / name).read_bytes()
        files[name] = script.replace(b"\r\n", b"\n")  # On Windows, git may have written \r\n.
    files[assignment.name] = assignment.read_bytes()
    wheel_name, wheel = make_wheel()
    files[wheel_name] = wheel
    return _make_zip(files)


def make_wheel() -> tuple[str, bytes]:
    """Return the name and the bytes of a wheel with the files of the package that runs now.

    The wheel can be made without a build tool, because the package has only Python code and data. This works
    for an installed package and for a clone that is installed with `uv sync` or `pip install -e`.
    """
    try:
        distribution = metadata.distribution("npformer")
    except metadata.PackageNotFoundError:
        raise ValueError("npformer is not installed; install it with pip or uv sync") from None
    stem = f"npformer-{distribution.version}"
    info = f"{stem}.dist-info"
    files = {}
    for path in sorted(PACKAGE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            files[f"npformer/{path.relative_to(PACKAGE).as_posix()}"] = path.read_bytes()
    for name in METADATA_FILES:
        files[f"{info}/{name}"] = (distribution.read_text(name) or "").encode()
    files[f"{info}/WHEEL"] = WHEEL_METADATA.encode()
    files[f"{info}/RECORD"] = _make_record(files, f"{info}/RECORD")
    return f"{stem}-py3-none-any.whl", _make_zip(files)


def _make_record(files: Mapping[str, bytes], record: str) -> bytes:
    """Return the list of all files in a wheel with their digests. The list itself has no digest."""
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    lines.append(f"{record},,\n")
    return "".join(lines).encode()


def _make_zip(files: Mapping[str, bytes]) -> bytes:
    """Return a zip file. Its scripts are executable, and equal files give equal bytes."""
    buffer = io.BytesIO()
    with ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            member = ZipInfo(name)
            member.create_system = UNIX
            member.compress_type = ZIP_DEFLATED
            mode = SCRIPT_MODE if name.endswith(SCRIPTS) else FILE_MODE
            member.external_attr = mode << 16
            archive.writestr(member, data)
    return buffer.getvalue()
