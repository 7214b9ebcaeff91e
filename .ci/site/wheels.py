"""Collect Pyodide and its wheels, and verify each wheel with the sha256 in Pyodide's lock file.

The core (interpreter, standard library, lock file) is the npm package `pyodide`. A wheel comes from a local
folder or from Pyodide's server. Pure Python wheels that Pyodide does not include come from the package index
that pip uses, in the version that is installed here.
"""

import hashlib
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from npm import from_npm

PYODIDE = "0.27.7"
SERVER = f"https://cdn.jsdelivr.net/pyodide/v{PYODIDE}/full/"
CORE = "pyodide.js pyodide.mjs pyodide.asm.js pyodide.asm.wasm python_stdlib.zip pyodide-lock.json"

ADVICE = "Give a folder with Pyodide's wheels (--pyodide FOLDER), or build only the pages (--only docs)."

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "pyodide"  # the folder of downloads, kept between builds

Entry = dict[str, Any]
# {package name: (the wheel file, or None if the site does not contain the file; the entry in the lock file)}
Wheels = dict[str, tuple[Path | None, Entry]]


def get_lock() -> dict[str, Any]:
    """Return Pyodide's lock file: the file, checksum and dependencies of each package."""
    lock: dict[str, Any] = json.loads((from_npm(f"pyodide@{PYODIDE}") / "pyodide-lock.json").read_text())
    return lock


def fill(folder: Path, wheels: Wheels) -> None:
    """Write a folder from which Pyodide runs: its core, these wheels, and the lock file that lists them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in CORE.split():
        shutil.copy(from_npm(f"pyodide@{PYODIDE}") / name, folder)
    for file, _ in wheels.values():
        if file:
            shutil.copy(file, folder)
    entries = {name: entry for name, (_, entry) in sorted(wheels.items())}
    (folder / "pyodide-lock.json").write_text(json.dumps({**get_lock(), "packages": entries}))


def from_pyodide(names: Iterable[str], folder: Path | None, without: Iterable[str] = ()) -> Wheels:
    """Return the named packages of Pyodide and all their dependencies, except those named in `without`."""
    packages, todo = get_lock()["packages"], [*names]
    found: Wheels = {}
    while todo:
        name = canonical(todo.pop())
        if name not in found:
            depends = [d for d in packages[name]["depends"] if d not in without]
            entry = {**packages[name], "depends": depends}
            found[name] = get_wheel(entry, folder), entry
            todo += depends
    return found


def get_wheel(entry: Entry, folder: Path | None) -> Path:
    """Return the file of a package from `folder` or from the server. Exit if its checksum is wrong."""
    name = entry["file_name"]
    path = folder / name if folder and (folder / name).exists() else CACHE / "wheels" / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with urllib.request.urlopen(SERVER + name, timeout=20) as answer:
                path.write_bytes(answer.read())
        except OSError as error:
            sys.exit(f"build.py: {SERVER}{name} cannot be downloaded: {error}. {ADVICE}")
    if sha256(path) != entry["sha256"]:
        sys.exit(f"{path}: not the file that Pyodide {PYODIDE} released; its sha256 is {sha256(path)}")
    return path


def get_plain_wheel(name: str, version: str | None = None) -> Path:
    """Download the pure Python wheel of a package, by default in the installed version."""
    wanted = version or importlib.metadata.version(name)
    into = CACHE / "plain"
    pattern = f"{name.replace('-', '_')}-{wanted}-*none-any.whl"
    if not list(into.glob(pattern)):
        pip = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--only-binary", ":all:"]
        pip += ["--retries", "1", "--timeout", "20"]
        result = subprocess.run([*pip, "--dest", str(into), f"{name}=={wanted}"])
        if result.returncode != 0:
            sys.exit(f"build.py: pip cannot download {name} {wanted}. {ADVICE}")
    return next(into.glob(pattern))


def build_npformer(into: Path) -> Path:
    """Build the wheel of npformer from this working tree."""
    shutil.rmtree(into, ignore_errors=True)
    command = ["uv", "build", "--quiet", "--wheel", "--out-dir", str(into), str(ROOT)]
    if subprocess.run(command).returncode != 0:
        sys.exit("build.py: uv cannot build the wheel of npformer. To build only the pages: --only docs")
    return next(into.glob("npformer-*.whl"))


def from_file(wheel: Path, depends: Iterable[str] = ()) -> Wheels:
    """Return the lock file entry of a pure Python wheel. Package and module must have the same name."""
    name, version = wheel.name.split("-")[:2]
    entry = {
        "name": canonical(name),
        "version": version,
        "file_name": wheel.name,
        "install_dir": "site",
        "sha256": sha256(wheel),
        "package_type": "package",
        "imports": [name],
        "depends": list(depends),
        "unvendored_tests": False,
        "shared_library": False,
    }
    return {canonical(name): (wheel, entry)}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
