"""The installed version, and how messages say to install an extra."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np

from npformer import installation

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_is_that_of_what_is_installed_or_of_the_clone(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: f"{name} 7.8.9")
    assert installation.version() == "npformer 7.8.9"

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert installation.version() == PROJECT["version"]


def test_the_extras_that_messages_name_are_there():
    for extra in ("plots", "notebook", "slides", "cuda12", "cuda13"):
        assert extra in PROJECT["optional-dependencies"] and extra in installation.how_to_get(extra)


def test_python_m_npformer_works_in_a_clone_without_installation(tmp_path):
    """NumPy is there, the package is not: only its folder is."""
    places = [str(Path(np.__file__).parents[1]), str(ROOT)]
    hide = f"""
import runpy, sys
sys.path[:] = [p for p in sys.path if 'site-packages' not in p] + {places}
from importlib import metadata
def missing(name):
    raise metadata.PackageNotFoundError(name)
metadata.version = missing
sys.argv = ['npformer', *sys.argv[1:]]
runpy.run_module('npformer', run_name='__main__')
"""
    for argument, said in (
        ("--version", f"npformer {PROJECT['version']}"),
        ("trace", "check: all 13 passed"),
    ):
        command = [sys.executable, "-I", "-c", hide, argument]
        result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=tmp_path)
        assert (result.returncode, result.stderr) == (0, ""), result.stderr
        assert said in result.stdout


def test_a_release_has_one_number_and_its_workflows_name_each_action_by_a_hash():
    changelog = (ROOT / "notebooks" / "guide" / "changelog.md").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", changelog, re.MULTILINE)
    assert headings[0] in ("Unreleased", PROJECT["version"])
    assert PROJECT["version"] in headings
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == PROJECT["version"]
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        used = re.findall(r"uses: (.+)", workflow.read_text(encoding="utf-8"))
        assert used and all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", action) for action in used)
