"""A lesson shows a slider with ipywidgets. Without it, the lesson still runs."""

import json
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import HTML, display
from ipywidgets import IntSlider

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


@pytest.fixture
def messages():
    """Start IPython. Return a list of its display messages: (data, transient, whether it is an update)."""
    published = []

    class Recorder(DisplayPublisher):
        def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **_):
            published.append((data, transient, update))

    shell = InteractiveShell.instance()
    shell.display_pub = Recorder(parent=shell)
    yield published
    InteractiveShell.clear_instance()


def test_moves_replace_the_picture(messages):
    made = []
    IntSlider.on_widget_constructed(made.append)
    add_slider(lambda k: display(HTML(f"<b>{k}</b>")), -3, 9, value=4, label="steps")
    IntSlider.on_widget_constructed(None)
    slider = next(widget for widget in made if isinstance(widget, IntSlider))
    assert (slider.min, slider.max, slider.value, slider.description) == (-3, 9, 4, "steps")
    slider.value = 7
    shown_slider, first, second = messages
    assert "application/vnd.jupyter.widget-view+json" in shown_slider[0]
    assert (first[0]["text/html"], first[2]) == ("<b>4</b>", False)
    assert (second[0]["text/html"], second[2]) == ("<b>7</b>", True)
    assert first[1] == second[1] != {}, "both have the same display_id"


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
            continue  # required only on a different operating system
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
