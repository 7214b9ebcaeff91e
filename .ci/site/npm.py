"""Packages of npm: MathJax, Pyodide's core. npm compares an archive with the sum that its registry signed."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / "build" / "npm"  # what was fetched once


def from_npm(package: str) -> Path:
    """The folder of a package, such as mathjax@3.2.2."""
    folder = CACHE / package.replace("@", "-")
    if not folder.is_dir():
        npm = shutil.which("npm") or sys.exit(f"npm is needed, once, for {package}")
        CACHE.mkdir(parents=True, exist_ok=True)
        command = [npm, "pack", "--silent", package]
        said = subprocess.run(command, cwd=CACHE, check=True, capture_output=True, text=True)
        with tarfile.open(CACHE / said.stdout.split()[-1]) as archive:
            archive.extractall(folder, filter="data")
    return folder / "package"
