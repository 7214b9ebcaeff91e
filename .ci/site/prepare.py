"""Prepare wheels in Pyodide, so that the browser of a visitor does not have to do this work.

The build folder is mounted at /mnt. The script writes every wheel of /mnt/wheels to /mnt/prepared, with
bytecode instead of source code, and without tests and sample data. It also writes /mnt/fontlist.json, the
list of fonts that matplotlib makes here.
"""

import importlib.util
import re
import shutil
import zipfile

# _code_to_hash_pyc makes a .pyc that contains a hash of the source instead of a modification time. Type
# checkers do not know this private function, so mypy must ignore this line.
from importlib._bootstrap_external import _code_to_hash_pyc  # type: ignore[attr-defined]
from pathlib import Path

import matplotlib.font_manager

SITE = "/lib/python3.12/site-packages/"
UNREAD = re.compile(r"/tests/|/sample_data/|\.(pyi|pxd|h|c)$")


def compiled(name: str, source: bytes) -> bytes:
    """Compile source code to the bytes of a .pyc file, which Python loads without checking the source."""
    code = compile(source, SITE + name, "exec", dont_inherit=True)
    return bytes(_code_to_hash_pyc(code, importlib.util.source_hash(source), checked=False))


def prepare(wheel: Path, into: Path) -> None:
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(into / wheel.name, "w", zipfile.ZIP_DEFLATED) as new:
        for item in old.infolist():
            if item.is_dir() or UNREAD.search(item.filename):
                continue
            content = old.read(item)
            if item.filename.endswith(".py"):
                item.filename, content = item.filename + "c", compiled(item.filename, content)
            new.writestr(zipfile.ZipInfo(item.filename), content, zipfile.ZIP_DEFLATED)


prepared = Path("/mnt/prepared")
prepared.mkdir()
for wheel in Path("/mnt/wheels").glob("*.whl"):
    prepare(wheel, prepared)
shutil.copy(Path(matplotlib.font_manager.__file__).with_name("fontlist.json"), "/mnt/fontlist.json")
