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
from pathlib import Path

import matplotlib
import nbformat
import numpy as np
import pytest
import traitlets
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from PIL import Image
from weights import GET_MODEL, skip_without

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
ANY_LENGTH = {"exercises.ipynb"}
MODEL_LESSON = "08_a_real_model.ipynb"
HOW_TO_REWRITE = "If the new output is right: NPFORMER_REWRITE=1 uv run pytest tests/test_notebooks.py"

WIDGET = "application/vnd.jupyter.widget-view+json"
COMPARED = {"text/plain", "text/html", "text/latex", "text/markdown"}
PICTURE = re.compile(r'<img alt="([^"]*)" width="(\d+)" src="data:image/png;base64,([^"]*)">')
KEPT_METADATA = ("tags", "npformer", "slideshow")  # what a cell says to the tests, to the class and on stage
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?")
NOISE = 1e-12  # two numbers smaller than this are both "zero, but for rounding"

# How far two pictures may be apart, of 255: on average, and in any block of so many pixels. A line that moved
# shows in a small block. Another minor version of matplotlib may shape its letters and so its margins
# differently; then only larger blocks can be compared, and a changed curve or colour still shows.
SAME_LETTERS, OTHER_LETTERS = (2.0, 8, 48.0), (16.0, 32, 20.0)


def run_now(path):
    """The first lesson runs with every `pytest`, all of them with `pytest -m slow`."""
    return pytest.param(path, marks=[pytest.mark.slow] if path != NOTEBOOKS[0] else [])


per_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    """(number of the cell in the notebook, cell) for each code cell; cells are counted from 1."""
    return [(i, cell) for i, cell in enumerate(notebook.cells, 1) if cell.cell_type == "code"]


# --- running a notebook and bringing it into its normal form ------------------------------------


class ThisEnvironment(AsyncKernelManager):
    """Starts the Python that runs the tests: a "python3" that some user installed cannot stand in for it."""

    @traitlets.default("kernel_spec_manager")
    def _no_installed_kernels(self):
        return KernelSpecManager(kernel_dirs=[])


def execute(notebook, folder, again=False):
    """A copy with fresh outputs, run in an empty folder.

    With `again` the same kernel then runs each code cell once more, from the last one up, as a class that
    goes back: no cell may need what a later one has overwritten, or what it has overwritten itself.
    """
    executed = copy.deepcopy(notebook)
    if again:
        executed.cells += [copy.deepcopy(cell) for _, cell in code_cells(notebook)[::-1]]
    client = NotebookClient(
        executed,
        kernel_name="python3",
        kernel_manager_class=ThisEnvironment,
        timeout=600,  # a busy machine is no error
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        coalesce_streams=True,  # a progress bar is one line, not one for each of its steps
    )
    # What a slider draws goes to the cell itself, as the figure a reader sees without a kernel. (nbclient's
    # stand-in for an output widget talks to the kernel while it listens, and sometimes misses the answer.)
    client.widget_registry = {}
    client.execute(env={**os.environ, "IPYTHONDIR": str(folder / "ipython")})
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
    for _, cell in code_cells(plain):
        # The slider itself lives only while a kernel runs.
        cell.outputs = joined([o for o in cell.outputs if WIDGET not in o.get("data", {})])
    return plain


def joined(outputs):
    """Pieces of one stream as one output: where a kernel happens to cut its prints is chance."""
    kept = []
    for output in outputs:
        if kept and output.output_type == "stream" == kept[-1].output_type and output.name == kept[-1].name:
            kept[-1].text += output.text
        else:
            kept.append(output)
    return kept


def with_kept_outputs(committed, executed):
    """The executed notebook; cells that show the same keep their old bytes, so that diffs stay small."""
    merged = copy.deepcopy(executed)
    if len(committed.cells) == len(merged.cells):
        for old, new in zip(committed.cells, merged.cells, strict=True):
            if new.cell_type == "code" and old.cell_type == "code" and not cell_difference(old, new):
                new.outputs = old.outputs if "volatile" not in tags_of(new) else new.outputs
    return merged


# --- comparing ----------------------------------------------------------------------------------


def tags_of(cell):
    return cell.metadata.get("tags", [])


def notebook_difference(committed, executed):
    """The first difference as a sentence, or None."""
    for (number, old), (_, new) in zip(code_cells(committed), code_cells(executed), strict=True):
        difference = None if "volatile" in tags_of(old) else cell_difference(old, new)
        if difference:
            return f"cell {number}: {difference}"
    return None


def cell_difference(old, new):
    if old.execution_count != new.execution_count:
        return f"it is number {new.execution_count} to run, the file says {old.execution_count}"
    if len(old.outputs) != len(new.outputs):
        return f"it shows {len(new.outputs)} outputs, the file has {len(old.outputs)}"
    for a, b in zip(old.outputs, new.outputs, strict=True):
        if a.output_type != b.output_type:
            return f"it gives {b.output_type}, the file has {a.output_type}"
        before, now = contents(a), contents(b)
        if before.keys() != now.keys():
            return f"it gives {sorted(now)}, the file has {sorted(before)}"
        for kind in sorted(before):
            compare = picture_difference if kind == "picture" else text_difference
            if difference := compare(before[kind], now[kind]):
                return difference
    return None


def contents(output):
    """{kind: text} of an output: a stream's text, or the data a reader gets; of a picture its parts."""
    if output.output_type == "stream":
        return {output.name: output.text}
    data = output.get("data", {})
    unknown = set(data) - COMPARED
    assert not unknown, f"no comparison is known for {sorted(unknown)}"
    shown = PICTURE.fullmatch(data.get("text/html", ""))
    if not shown:
        return data
    alt, width, picture = shown.groups()
    return {"text/plain": data["text/plain"], "alt": html.unescape(alt), "width": width, "picture": picture}


def text_difference(before, now):
    """None when the words are equal and the numbers close; else the first line that differs."""
    pairs = itertools.zip_longest(before.splitlines(), now.splitlines(), fillvalue="(no such line)")
    for i, (old, new) in enumerate(pairs, 1):
        if not same_line(old, new):
            marks = "\n".join(difflib.ndiff([old], [new]))
            return f"line {i} of the output is not what the file shows (-), but (+):\n{marks}"
    return None


def same_line(old, new):
    # Blanks may differ: a column is one wider where a −0.0 became 0.0.
    if NUMBER.sub(" # ", old).split() != NUMBER.sub(" # ", new).split():
        return False
    return all(map(same_number, NUMBER.findall(old), NUMBER.findall(new)))


def same_number(a, b):
    """Equal, close to 1e-6, both noise, or one unit apart in a last digit beyond the second decimal."""
    if a == b:
        return True
    x, y = float(a), float(b)
    whole = not any(mark in text for text in (a, b) for mark in ".eE")
    if whole:
        return False
    unit = max(last_digit(a), last_digit(b))
    return math.isclose(x, y, rel_tol=1e-6) or max(abs(x), abs(y)) < NOISE or abs(x - y) < 1.01 * unit


def last_digit(number):
    """What one unit of the last printed digit is worth; 0 with fewer than three decimals: those are exact."""
    mantissa, _, exponent = number.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - decimals) if decimals >= 3 else 0.0


def pixels(encoded):
    image = Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    return np.asarray(Image.alpha_composite(white, image).convert("RGB"), dtype=float)


def letters():
    """Which comparison fits the matplotlib that is installed."""
    record = (ROOT / "figures" / "drawn_with.txt").read_text(encoding="utf-8")
    same = record.split()[1].split(".")[:2] == matplotlib.__version__.split(".")[:2]
    return SAME_LETTERS if same else OTHER_LETTERS


def picture_difference(before, now, allowed=None):
    """None when the pictures are alike, else how far they are apart; `letters()` says what is allowed."""
    old, new = pixels(before), pixels(now)
    if old.shape != new.shape:
        return f"the picture has shape {new.shape}, the file's {old.shape}"
    mean_shade, block, block_shade = allowed or letters()
    mean = np.abs(old - new).mean()
    worst = np.abs(block_means(old, block) - block_means(new, block)).max()
    if mean < mean_shade and worst < block_shade:
        return None
    return (
        f"the picture is another one: {mean:.2f} of 255 apart on average (allowed {mean_shade}), "
        f"{worst:.0f} in the worst {block} × {block} block (allowed {block_shade:.0f})"
    )


def block_means(picture, block):
    """The picture at a fraction of its size: a letter moved by a pixel hardly shows, a line moved does."""
    height, width = (length // block * block for length in picture.shape[:2])
    blocks = picture[:height, :width].reshape(height // block, block, width // block, block, 3)
    return blocks.mean(axis=(1, 3))


# --- the lessons --------------------------------------------------------------------------------


def with_its_packages(path):
    """A lesson; those of published models only where these are installed."""
    skip_without(path)
    return read(path)


@pytest.mark.parametrize("path", [run_now(path) for path in NOTEBOOKS], ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_the_file_shows(path, tmp_path):
    committed = with_its_packages(path)
    executed = execute(committed, tmp_path)
    if os.environ.get("NPFORMER_REWRITE") == "1":
        nbformat.write(with_kept_outputs(committed, executed), path)
        return
    difference = notebook_difference(committed, executed)
    assert difference is None, f"{path.name}, {difference}\n{HOW_TO_REWRITE}"


@pytest.mark.slow
@per_notebook
def test_the_cells_of_a_notebook_run_backwards_after_one_run(path, tmp_path):
    execute(with_its_packages(path), tmp_path, again=True)


@per_notebook
def test_a_notebook_keeps_the_rules(path):
    text = path.read_text(encoding="utf-8")
    notebook = read(path)
    nbformat.validate(notebook)
    assert rule_offences(notebook, any_length=path.name in ANY_LENGTH) == []
    assert nbformat.writes(normalised(notebook)) + "\n" == text, (
        f"{path.name} was saved by an editor. {HOW_TO_REWRITE}"
    )


@pytest.mark.slow
def test_without_the_model_its_lesson_stops_at_one_line_that_says_how_to_get_it(tmp_path):
    lesson = read(ROOT / "notebooks" / MODEL_LESSON)
    (_, first), *_ = code_cells(lesson)
    first.source = "import sys\nsys.modules['safetensors'] = None  # as if not installed\n" + first.source
    with pytest.raises(CellExecutionError) as stopped:
        execute(lesson, tmp_path)
    shown = stopped.value.traceback.rpartition("----\n")[2]  # what stands below the cell's own code
    (line,) = shown.strip().splitlines()
    assert GET_MODEL in line


def rule_offences(notebook, any_length=False):
    """What a lesson must be: short, opened by its aim and its minutes, quiet, its pictures described."""
    opening = notebook.cells[0].source.lower() if notebook.cells[0].cell_type == "markdown" else ""
    wanted = ("you will be able to", "minutes")
    found = [f"the first cell does not say '{words}'" for words in wanted if words not in opening]
    cells = code_cells(notebook)
    shown = [cell for _, cell in cells if "check(f" not in cell.source]
    if not any_length and not 10 <= len(shown) <= 45:
        found.append(f"{len(shown)} code cells without the exercises: a lesson has 10 to 45")
    if len({cell.id for cell in notebook.cells}) < len(notebook.cells):
        found.append("two cells share one id")
    for position, (number, cell) in enumerate(cells):
        found += [f"cell {number}: {offence}" for offence in cell_offences(cell)]
        neighbours = [c for _, c in cells[max(position - 1, 0) : position + 2]]
        if "interact(" in cell.source and not any(pictures(c) for c in neighbours):
            found.append(f"cell {number}: a slider without a static figure beside it")
    return found


def cell_offences(cell):
    lines, outputs, shown = cell.source.splitlines(), cell.outputs, pictures(cell)
    found = {
        "no code": not lines,
        "longer than a slide (25 lines)": len(lines) > 25,
        "a line wider than a slide (100 characters)": any(len(line) > 100 for line in lines),
        "an error in the output": any(o.output_type == "error" for o in outputs),
        "a warning or other text on stderr": any(o.get("name") == "stderr" for o in outputs),
        "a picture whose description gets lost": any("image/png" in o.get("data", {}) for o in outputs),
        "a picture without alt text": any(not picture["alt"].strip() for picture in shown),
        "a picture that names its software": any(
            b"Software" in base64.b64decode(picture["picture"]) for picture in shown
        ),
    }
    return [offence for offence, there in found.items() if there]


def pictures(cell):
    """The contents of each output that is a picture."""
    found = (contents(o) for o in cell.outputs if "<img " in o.get("data", {}).get("text/html", ""))
    return [shown for shown in found if "picture" in shown]


# --- the checks can fail ------------------------------------------------------------------------


def png(array, **options):
    file = io.BytesIO()
    Image.fromarray(array.astype(np.uint8)).save(file, "png", **options)
    return base64.b64encode(file.getvalue()).decode()


def drawing(row):
    """A white picture with one dark line, three pixels thick."""
    picture = np.full((160, 320, 3), 255.0)
    picture[row : row + 3] = (0, 114, 178)
    return picture


def small_notebook():
    """A committed notebook in miniature: a stream, a table, a picture and a volatile cell."""
    stream, result = ({"output_type": kind} for kind in ("stream", "execute_result"))
    outputs = [
        {**stream, "name": "stdout", "text": "loss 0.6931 after 20 steps\n"},
        {**result, "data": {"text/plain": "array([0.84147098, 1.])"}, "execution_count": 2, "metadata": {}},
        picture_output("a line"),
        {**stream, "name": "stdout", "text": "took 3.2 s\n"},
    ]
    notebook = lesson_of(4)
    for cell, output in zip(notebook.cells[1:], outputs, strict=True):
        cell.outputs = [nbformat.from_dict(output)]
    notebook.cells[-1].metadata.tags = ["volatile"]
    return notebook


def test_equal_notebooks_and_other_last_digits_pass():
    committed, executed = small_notebook(), small_notebook()
    assert notebook_difference(committed, executed) is None
    executed.cells[2].outputs[0].data["text/plain"] = "array([0.84147099, 1.  ])"
    lighter = np.clip(drawing(80) + 1, 0, 255)
    executed.cells[3].outputs[0] = picture_output("a line", png(lighter, compress_level=1))
    executed.cells[4].outputs[0].text = "took 4.7 s\n"
    assert notebook_difference(committed, executed) is None


@pytest.mark.parametrize(
    ("cell", "tamper"),
    [
        (1, lambda o: o.update(text="loss 0.6951 after 20 steps\n")),
        (1, lambda o: o.update(text="loss 0.6931 after 21 steps\n")),
        (1, lambda o: o.update(text="cost 0.6931 after 20 steps\n")),
        (1, lambda o: o.update(text=o.text + "one line more\n")),
        (1, lambda o: o.update(name="stderr")),
        (2, lambda o: o["data"].update({"text/plain": "array([0.84147198, 1.])"})),
        (2, lambda o: o["data"].update({"text/plain": "array([0.84147098, 0.])"})),
        (2, lambda o: o["data"].update({"text/html": "<b>1</b>"})),
        (3, lambda o: o.update(picture_output("a line", png(drawing(90))))),
        (3, lambda o: o.update(picture_output("a line", png(drawing(80) * 0.97)))),
        (3, lambda o: o.update(picture_output("a line", png(drawing(80)[:-1])))),
        (3, lambda o: o.update(picture_output("a circle"))),
        (3, lambda o: o.update(picture_output("a line", width=300))),
        (2, lambda o: o.update(output_type="display_data")),
    ],
)
def test_a_stale_number_word_or_picture_is_caught(cell, tamper, monkeypatch):
    monkeypatch.setitem(globals(), "letters", lambda: SAME_LETTERS)
    committed, executed = small_notebook(), small_notebook()
    tamper(executed.cells[cell].outputs[0])
    assert notebook_difference(committed, executed).startswith(f"cell {cell + 1}: ")
    for tamper_all in ({"outputs": []}, {"execution_count": 7}):
        executed = small_notebook()
        executed.cells[cell].update(tamper_all)
        assert notebook_difference(committed, executed)


SAME = "0.841 0.842; 2.2e-16 0.0; 1.0000001e+03 1.0000002e+03; -0.0 0.0"
OTHER = """0.841 0.843; 0.84 0.85; 0.5 0.6; 1. 2.; 7 8; 1000000 1000001; 2.2e-16 3.1e-12; -0.25 0.25"""


def test_which_numbers_are_the_same():
    assert all(same_number(*pair.split()) for pair in SAME.split(";"))
    assert not any(same_number(*pair.split()) for pair in OTHER.split(";"))


def lesson_of(n_cells):
    """A notebook that keeps every rule."""
    new = nbformat.v4
    cells = [new.new_code_cell("x = 1", execution_count=i + 1) for i in range(n_cells)]
    return new.new_notebook(cells=[new.new_markdown_cell("You will be able to add. 20 minutes."), *cells])


def picture_output(alt, encoded=None, width=320):
    """What plots.picture leaves in a notebook."""
    picture = encoded or png(drawing(80))
    page = f'<img alt="{html.escape(alt)}" width="{width}" src="data:image/png;base64,{picture}">'
    return nbformat.v4.new_output("display_data", data={"text/html": page, "text/plain": alt})
