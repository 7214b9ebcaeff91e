"""Prepare wheels in Pyodide, to save a visitor's browser this work. /mnt is the build folder.

Every wheel of /mnt/wheels is written to /mnt/prepared, with bytecode instead of source and without tests and
sample data. /mnt/fontlist.json is matplotlib's list of fonts: the list in its wheel is of another version.
"""

import importlib.util
import re
import shutil
import zipfile

# _code_to_hash_pyc makes a .pyc that is checked by its hash, not by its time. The types of Python lack it.
from importlib._bootstrap_external import _code_to_hash_pyc  # type: ignore[attr-defined]
from pathlib import Path

import matplotlib.font_manager

SITE = "/lib/python3.12/site-packages/"
UNREAD = re.compile(r"/tests/|/sample_data/|\.(pyi|pxd|h|c)$")


def compiled(name: str, source: bytes) -> bytes:
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
