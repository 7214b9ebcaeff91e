"""Write new and changed files: everything is checked first, then everything is written."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# In two pieces: tests/test_project_rules.py rejects every file that contains the mark.
MARK = "TO" + "DO:"


class CannotCreate(Exception):
    """Nothing was written: the message says why, and what to do."""


def filled(template, **values):
    """Return a template with its values; MISSING becomes the mark that the tests look for."""
    text = template.replace("MISSING:", MARK)
    for name, value in values.items():
        text = text.replace(f"<{name}>", value)
    return text


def read(path):
    """Return the text of a file of the project, such as "tests/data/contract.txt"."""
    return (ROOT / path).read_text(encoding="utf-8")


def reject_existing(*paths):
    """Raise CannotCreate if one of these files exists."""
    existing = [path for path in paths if (ROOT / path).exists()]
    if existing:
        raise CannotCreate(f"{existing[0]} exists already; choose another name")


def replaced_once(text, old, new, path):
    """Replace the first occurrence of `old`; raise CannotCreate if the file does not contain it."""
    if old not in text:
        raise CannotCreate(f"{path} does not contain {old.strip()!r}, where a line has to be added")
    return text.replace(old, new, 1)


def write_all(texts):
    """Write the texts, given by path, and print what was created and what was changed."""
    for path, text in texts.items():
        file = ROOT / path
        action = "changed" if file.exists() else "created"
        file.write_text(text, encoding="utf-8")
        print(f"{action}: {path}")


def sort_imports(*paths):
    """Let ruff sort and merge the imports of these files."""
    ruff = [sys.executable, "-m", "ruff", "check", "--quiet", "--select", "I", "--fix", *paths]
    subprocess.run(ruff, cwd=ROOT, check=True)


def print_steps(steps):
    """Print what is left to do, as a numbered list."""
    print("\nNext:")
    for number, step in enumerate(steps, start=1):
        print(f"{number}. {step}")
