"""A lesson shows a slider with ipywidgets. Without it, the lesson still runs."""

import json
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest

from npformer.lessons.sliders import add_slider

LESSON = Path(__file__).parents[2] / "notebooks" / "01_positional_encoding.ipynb"
# Run the cells in IPython. Every module that belongs to a blocked package is missing.
PROGRAM = """\
import json, sys
blocked, cells = json.load(sys.stdin)

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in cells:
    shell.run_cell(cell).raise_error()
print("all cells ran")
"""


def test_add_slider_calls_with_its_position(monkeypatch):
    import ipywidgets

    positions, calls = [], []
    monkeypatch.setattr(ipywidgets, "interact", lambda show, **sliders: calls.append((show, sliders)))
    add_slider(positions.append, -3, 9, value=4, label="steps")
    ((show, sliders),) = calls
    (slider,) = sliders.values()
    assert (slider.min, slider.max, slider.value, slider.description) == (-3, 9, 4, "steps")
    show(**dict.fromkeys(sliders, 7))
    assert positions == [7]


def list_dependencies(package):
    """Return a package and everything that it requires, with lower-case names."""
    found, waiting = set(), [package]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        try:
            required = requires(name) or []
        except PackageNotFoundError:
            continue  # it is for another system
        for requirement in required:
            if "extra ==" not in requirement:
                waiting.append(re.match(r"[\w.-]+", requirement)[0].lower())
    return found


@pytest.mark.slow
def test_lesson_1_needs_three_packages():
    allowed = {"npformer"}
    for package in ("numpy", "matplotlib", "ipython"):
        allowed |= list_dependencies(package)
    normal_names = {name.replace("_", "-") for name in allowed}
    blocked = []
    for module, owners in packages_distributions().items():
        if not any(owner.lower().replace("_", "-") in normal_names for owner in owners):
            blocked.append(module)
    assert {"ipywidgets", "tqdm", "ipykernel"} <= set(blocked)
    cells = json.loads(LESSON.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    program = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([blocked, sources]),
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert program.returncode == 0, program.stderr + program.stdout
    assert "all cells ran" in program.stdout and "For a slider: pip install ipywidgets" in program.stdout
