"""Pyodide and the wheels that run on it, each as Pyodide released it: its sha256 stands in Pyodide's lock file.

The core (interpreter, standard library, lock file) is the npm package `pyodide`. A wheel comes from a folder that
already holds it, or from Pyodide's own server. Wheels in plain Python that Pyodide does not carry come from the
package index that pip is set to, in the version that is installed here.
"""

import hashlib
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PYODIDE = "0.27.7"
SERVER = f"https://cdn.jsdelivr.net/pyodide/v{PYODIDE}/full/"
CORE = (
    "pyodide.js",
    "pyodide.mjs",
    "pyodide.asm.js",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
)

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "pyodide"  # what was fetched once

Entry = dict[str, Any]


def get_core() -> Path:
    """The folder with Pyodide's core; npm compares the archive with the sum that its registry signed."""
    folder = CACHE / f"core-{PYODIDE}"
    if not all((folder / name).exists() for name in CORE):
        npm = shutil.which("npm") or sys.exit("Pyodide's core is an npm package: npm is needed")
        folder.mkdir(parents=True, exist_ok=True)
        said = subprocess.run(
            [npm, "pack", "--silent", f"pyodide@{PYODIDE}"], cwd=folder, check=True, capture_output=True, text=True
        )
        with tarfile.open(folder / said.stdout.split()[-1]) as archive:
            for name in CORE:
                member = archive.extractfile(f"package/{name}")
                assert member is not None
                (folder / name).write_bytes(member.read())
    return folder


def get_lock() -> dict[str, Any]:
    """Pyodide's own list of packages: their files, their sums, what they need."""
    lock: dict[str, Any] = json.loads((get_core() / "pyodide-lock.json").read_text())
    return lock


def with_needs(packages: dict[str, Entry], names: Iterable[str], without: Iterable[str] = ()) -> dict[str, Entry]:
    """The named packages and all they depend on, except what is named in `without`."""
    todo, found = [canonical(name) for name in names], {}
    while todo:
        name = todo.pop()
        if name not in found and name not in without:
            found[name] = {**packages[name], "depends": [d for d in packages[name]["depends"] if d not in without]}
            todo += [canonical(d) for d in found[name]["depends"]]
    return found


def get_wheel(entry: Entry, folder: Path | None) -> Path:
    """The file of one package of the lock: from `folder`, or else fetched. Another file than the lock's is refused."""
    name = entry["file_name"]
    path = folder / name if folder and (folder / name).exists() else CACHE / "wheels" / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(SERVER + name, timeout=120) as answer:
            path.write_bytes(answer.read())
    if sha256(path) != entry["sha256"]:
        sys.exit(f"{path}: not the file that Pyodide {PYODIDE} released; its sha256 is {sha256(path)}")
    return path


def get_plain_wheel(name: str, version: str | None = None) -> Path:
    """The wheel in plain Python of an installed package, or of the version that is asked for."""
    wanted = version or importlib.metadata.version(name)
    into = CACHE / "plain"
    pattern = f"{name.replace('-', '_')}-{wanted}-*none-any.whl"
    if not list(into.glob(pattern)):
        pip = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*pip, "--dest", str(into), f"{name}=={wanted}"], check=True)
    return next(into.glob(pattern))


def build_npformer(into: Path) -> Path:
    """npformer's own wheel, from this working tree."""
    shutil.rmtree(into, ignore_errors=True)
    subprocess.run(["uv", "build", "--quiet", "--wheel", "--out-dir", str(into), str(ROOT)], check=True)
    return next(into.glob("npformer-*.whl"))


def lock_entry(wheel: Path, imports: Iterable[str], depends: Iterable[str]) -> Entry:
    """The line of the lock for a wheel that Pyodide does not carry."""
    name, version = wheel.name.split("-")[:2]
    return {
        "name": canonical(name),
        "version": version,
        "file_name": wheel.name,
        "install_dir": "site",
        "sha256": sha256(wheel),
        "package_type": "package",
        "imports": list(imports),
        "depends": list(depends),
        "unvendored_tests": False,
        "shared_library": False,
    }


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
