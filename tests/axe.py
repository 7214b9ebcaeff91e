"""Programs from npm for the tests in a browser: axe-core on a page, and TypeScript's eye on JavaScript.

They are fetched once a run into a folder that is thrown away: nothing of them is kept or committed.
"""

import shutil
import subprocess
import tarfile
import tempfile
from functools import cache
from pathlib import Path

import pytest

AXE, TYPESCRIPT = "axe-core@4.10.3", "typescript@5.9.3"


@cache
def package(name):
    """The folder of a package from npm; the test is skipped where npm or its registry is not."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm")
    folder = Path(tempfile.mkdtemp(prefix="npm-"))
    fetched = subprocess.run(["npm", "pack", "--silent", name], cwd=folder, capture_output=True, text=True)
    if fetched.returncode:
        pytest.skip(f"npm does not give {name}")
    with tarfile.open(folder / fetched.stdout.split()[-1]) as archive:
        archive.extractall(folder, filter="data")
    return folder / "package"


def violations(page):
    """What axe-core finds wrong with a page that a browser shows, all its rules: [(rule, where, why), …]."""
    page.evaluate((package(AXE) / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run().then(result => result.violations)")
    return [
        (rule["id"], " ".join(map(str, node["target"])), node["failureSummary"])
        for rule in found
        for node in rule["nodes"]
    ]


def type_errors(script):
    """What TypeScript says about a module and those that it imports; their types stand in JSDoc comments."""
    look = "--noEmit --allowJs --checkJs --noUnusedLocals --target esnext --module esnext".split()
    where = "--moduleResolution bundler --lib esnext,dom,dom.iterable".split()
    compiler = package(TYPESCRIPT) / "bin" / "tsc"
    run = subprocess.run(["node", compiler, *look, *where, script], capture_output=True, text=True)
    return run.stdout.splitlines()
