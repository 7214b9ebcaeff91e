"""The lessons: each is executed from top to bottom, and must show what the committed file shows.

Numbers may differ in their last digits and pictures by a shade, so that another machine's arithmetic
passes; a stale number or a stale picture fails. Cells tagged `volatile` (timings, training curves) run but
are not compared. To write new outputs:

    NPFORMER_REWRITE=1 uv run pytest tests/test_notebooks.py
"""

import base64
import copy
import difflib
import html
import io
import itertools
import math
import os
import re
from decimal import Decimal
from pathlib import Path

import matplotlib
import nbformat
import numpy as np
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from PIL import Image
from weights import GET_MODEL, skip_without

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
HOW_TO_REWRITE = "If the new output is right: NPFORMER_REWRITE=1 uv run pytest tests/test_notebooks.py"

WIDGET = "application/vnd.jupyter.widget-view+json"
PICTURE = re.compile(r'<img alt="([^"]*)" width="(\d+)" src="data:image/png;base64,([^"]*)">')
KEPT_METADATA = ("tags", "npformer", "slideshow")  # what a cell says to the tests, to the class and on stage
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?")
NOISE = 1e-12  # two numbers that are not further apart are the same, but for rounding
BLOCK = 8  # pixels: a moved line shows in a block
MEAN_SHADE, BLOCK_SHADE = 2.0, 48.0  # how far pictures may be apart, of 255

DRAWN_WITH = (ROOT / "figures" / "drawn_with.txt").read_text(encoding="utf-8").split()[1]
# Another version of matplotlib shapes its letters and so its margins differently: no pictures are compared.
SAME_LETTERS = DRAWN_WITH.split(".")[:2] == matplotlib.__version__.split(".")[:2]


def read(path):
    """A lesson; those of published models only where these are installed."""
    skip_without(path)
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


# --- running a notebook and bringing it into its normal form ------------------------------------


def execute(notebook, folder, again=False):
    """A copy with fresh outputs, run in an empty folder.

    With `again` the same kernel then runs each code cell once more, from the last one up, as a class that
    goes back: no cell may need what a later one has overwritten, or what it has overwritten itself.
    """
    executed = copy.deepcopy(notebook)
    if again:
        executed.cells += copy.deepcopy(code_cells(notebook)[::-1])
    client = NotebookClient(
        executed,
        # the Python that runs the tests: a "python3" that some user installed cannot stand in for it
        km=AsyncKernelManager(kernel_spec_manager=KernelSpecManager(kernel_dirs=[])),
        timeout=600,  # a busy machine is no error
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        coalesce_streams=True,  # where a kernel happens to cut its prints is chance
    )
    # What a slider draws goes to the cell itself, as the figure a reader sees without a kernel. (nbclient's
    # stand-in for an output widget talks to the kernel while it listens, and sometimes misses the answer.)
    client.widget_registry = {}
    client.execute(cleanup_kc=True, env={**os.environ, "IPYTHONDIR": str(folder / "ipython")})
    executed.cells = executed.cells[: len(notebook.cells)]
    return normalised(executed)


def normalised(notebook):
    """The form that is committed: nothing depends on the time, the Python patch release or the editor."""
    plain = copy.deepcopy(notebook)
    closing = {key: said for key, said in notebook.metadata.items() if key == "npformer"}  # of its slides
    plain.metadata = nbformat.from_dict(METADATA | closing)
    for cell in plain.cells:
        kept = {key: cell.metadata[key] for key in KEPT_METADATA if cell.metadata.get(key)}
        cell.metadata = nbformat.from_dict(kept)
    for cell in code_cells(plain):
        # The slider itself lives only while a kernel runs.
        cell.outputs = [o for o in cell.outputs if WIDGET not in o.get("data", {})]
    return plain


def with_kept_outputs(committed, executed):
    """The executed notebook; cells that show the same keep their old bytes, so that diffs stay small."""
    merged = copy.deepcopy(executed)
    for old, new in zip(code_cells(committed), code_cells(merged), strict=True):
        if not is_volatile(new) and not cell_difference(old, new):
            new.outputs = old.outputs
    return merged


# --- comparing ----------------------------------------------------------------------------------


def is_volatile(cell):
    return "volatile" in cell.metadata.get("tags", [])


def notebook_difference(committed, executed):
    """The first difference as a sentence, or None."""
    for old, new in zip(code_cells(committed), code_cells(executed), strict=True):
        if not is_volatile(old) and (difference := cell_difference(old, new)):
            return f"cell {committed.cells.index(old) + 1}: {difference}"
    return None


def cell_difference(old, new):
    before, now = contents(old), contents(new)
    if (given := [kind for kind, _ in now]) != (there := [kind for kind, _ in before]):
        return f"it gives {given}, the file has {there}"
    for (kind, a), (_, b) in zip(before, now, strict=True):
        if difference := (picture_difference if kind == "picture" else text_difference)(a, b):
            return difference
    return None


def contents(cell):
    """[(kind, text), …] of a cell: which it is to run, and what a reader gets; of a picture its parts."""
    found = [("count", str(cell.execution_count))]
    for output in cell.outputs:
        found.append((output.output_type, output.get("name", "")))
        data = output.get("data", {"text": output.get("text", "")})
        if shown := PICTURE.fullmatch(data.get("text/html", "")):
            alt, width, picture = shown.groups()
            data = {"text": data["text/plain"], "alt": html.unescape(alt), "width": width, "picture": picture}
        found += sorted(data.items())
    return found


def text_difference(before, now):
    """None when the words are equal and the numbers close; else the first line that differs."""
    for old, new in itertools.zip_longest(before.splitlines(), now.splitlines(), fillvalue="(no such line)"):
        # Blanks may differ: a column is one wider where a −0.0 became 0.0.
        same_words = NUMBER.sub(" # ", old).split() == NUMBER.sub(" # ", new).split()
        if not (same_words and all(map(same_number, NUMBER.findall(old), NUMBER.findall(new)))):
            return "the output is not what the file shows (-), but (+):\n" + "\n".join(
                difflib.ndiff([old], [new])
            )
    return None


def same_number(a, b):
    """Equal; or not whole, and close to 1e-6 or to one unit of a last digit beyond the second decimal."""
    if a == b or not re.search("[.eE]", a + b):
        return a == b
    last = max(Decimal(number).as_tuple().exponent for number in (a, b))
    unit = 10.0**last if last <= -3 else 0
    return math.isclose(float(a), float(b), rel_tol=1e-6, abs_tol=max(NOISE, 1.01 * unit))


def picture_difference(before, now):
    """None when the pictures are alike."""
    if not SAME_LETTERS:
        return None
    old, new = (Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGB") for encoded in (before, now))
    if old.size != new.size:
        return f"the picture has size {new.size}, the file's {old.size}"
    apart = [np.abs(np.asarray(old.reduce(k), float) - np.asarray(new.reduce(k), float)) for k in (1, BLOCK)]
    if apart[0].mean() < MEAN_SHADE and apart[1].max() < BLOCK_SHADE:
        return None
    return (
        f"the picture is another one: {apart[0].mean():.2f} of 255 apart on average (allowed {MEAN_SHADE}), "
        f"{apart[1].max():.0f} in the worst {BLOCK} × {BLOCK} block (allowed {BLOCK_SHADE})"
    )


# --- the lessons --------------------------------------------------------------------------------


def per_notebook(now=NOTEBOOKS):
    """Some run with every `pytest`, all of them with `pytest -m slow`."""
    cases = [pytest.param(p, marks=[] if p in now else pytest.mark.slow, id=p.stem) for p in NOTEBOOKS]
    return pytest.mark.parametrize("path", cases)


@per_notebook(now=NOTEBOOKS[:1])
def test_a_notebook_runs_and_shows_what_the_file_shows(path, tmp_path):
    committed = read(path)
    executed = execute(committed, tmp_path)
    if os.environ.get("NPFORMER_REWRITE") == "1":
        nbformat.write(with_kept_outputs(committed, executed), path)
        return
    difference = notebook_difference(committed, executed)
    assert difference is None, f"{path.name}, {difference}\n{HOW_TO_REWRITE}"


@per_notebook(now=())
def test_the_cells_of_a_notebook_run_backwards_after_one_run(path, tmp_path):
    execute(read(path), tmp_path, again=True)


@per_notebook()
def test_a_notebook_is_in_its_normal_form(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert nbformat.writes(normalised(notebook)) + "\n" == path.read_text(encoding="utf-8"), HOW_TO_REWRITE


@pytest.mark.slow
def test_without_the_model_its_lesson_stops_at_one_line_that_says_how_to_get_it(tmp_path):
    lesson = nbformat.read(ROOT / "notebooks" / "08_a_real_model.ipynb", as_version=4)
    first = code_cells(lesson)[0]
    first.source = "import sys\nsys.modules['safetensors'] = None  # as if not installed\n" + first.source
    with pytest.raises(CellExecutionError) as stopped:
        execute(lesson, tmp_path)
    shown = stopped.value.traceback.rpartition("----\n")[2]  # what stands below the cell's own code
    (line,) = shown.strip().splitlines()
    assert GET_MODEL in line
