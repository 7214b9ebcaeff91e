"""Test the version, the advice for installing extras, and the files of a release."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from npformer import installation

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_version_is_the_installed_one(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: f"{name} 7.8.9")
    assert installation.version() == "npformer 7.8.9"


def test_version_of_a_clone_is_the_project_version(monkeypatch):
    def raise_not_found(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", raise_not_found)
    assert installation.version() == PROJECT["version"]


@pytest.mark.parametrize("extra", ["plots", "notebook", "slides", "cuda12", "cuda13"])
def test_how_to_get_names_an_existing_extra(extra):
    assert extra in PROJECT["optional-dependencies"]
    assert extra in installation.how_to_get(extra)


@pytest.mark.parametrize(
    ("argument", "printed"),
    [("--version", f"npformer {PROJECT['version']}"), ("trace", "check: all 13 passed")],
)
def test_python_m_npformer_works_without_installation(tmp_path, argument, printed):
    """Run npformer from its folder, with NumPy installed and npformer not installed."""
    folders = [str(Path(np.__file__).parents[1]), str(ROOT)]
    program = f"""
import runpy, sys
sys.path[:] = [p for p in sys.path if 'site-packages' not in p] + {folders}
from importlib import metadata
def missing(name):
    raise metadata.PackageNotFoundError(name)
metadata.version = missing
sys.argv = ['npformer', *sys.argv[1:]]
runpy.run_module('npformer', run_name='__main__')
"""
    command = [sys.executable, "-I", "-c", program, argument]
    result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    assert printed in result.stdout


def test_release_files_have_the_same_version():
    changelog = (ROOT / "notebooks" / "guide" / "changelog.md").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", changelog, re.MULTILINE)
    assert headings[0] in ("Unreleased", PROJECT["version"])
    assert PROJECT["version"] in headings
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == PROJECT["version"]


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_pin_every_action_by_hash(workflow):
    actions = re.findall(r"uses: (.+)", workflow.read_text(encoding="utf-8"))
    assert actions
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", action) for action in actions)
