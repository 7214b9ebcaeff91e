"""Download packages from npm: MathJax and Pyodide's core. npm verifies the checksum of each archive."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / "build" / "npm"  # the folder of downloads, kept between builds


def from_npm(package: str) -> Path:
    """Return the folder of a package such as mathjax@3.2.2, and download the package if it is missing."""
    folder = CACHE / package.replace("@", "-")
    if not folder.is_dir():
        npm = shutil.which("npm") or sys.exit(f"npm is needed to download {package}")
        CACHE.mkdir(parents=True, exist_ok=True)
        command = [npm, "pack", "--silent", "--fetch-retries=0", "--fetch-timeout=20000", package]
        result = subprocess.run(command, cwd=CACHE, capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(
                f"build.py: npm cannot download {package}, which the site needs: {result.stderr.strip()}"
            )
        with tarfile.open(CACHE / result.stdout.split()[-1]) as archive:
            archive.extractall(folder, filter="data")
    return folder / "package"
