"""Each lesson is executed from top to bottom, and the outputs must equal the outputs in the committed file.

Numbers may differ in their last digits, and pictures in their shades of colour, because another machine
rounds differently. Other differences mean that the file is out of date, and are errors. Cells tagged
`volatile` (timings, training curves) are executed, but not compared. To write new outputs:

    NPFORMER_REWRITE=1 uv run pytest tests/test_notebooks.py

A volatile cell keeps its outputs as long as its code is that of the last commit. To replace the outputs,
clear them in Jupyter first. A printed line names each volatile cell that kept its outputs.

The answers below the cells are text of the package. They must equal this text in volatile cells, too. The
command above renews them; with `-k current` it does so without executing the lessons.
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
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import matplotlib
import nbformat
import numpy as np
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from PIL import Image
from predicts import predicts
from weights import GET_MODEL, skip_without

from npformer.lessons.predictions import reveal

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
HOW_TO_REWRITE = (
    "If the new output is correct: NPFORMER_REWRITE=1 uv run pytest tests/test_notebooks.py -k {}"
)

WIDGET = "application/vnd.jupyter.widget-view+json"
PICTURE = re.compile(
    r'<img alt="([^"]*)" width="(\d+)" src="data:image/png;base64,([^"]*)">'
    r'(?:<div class="caption">([^<]*)</div>)?'
)
KEPT_METADATA = ("tags", "npformer", "slideshow")  # the metadata keys that tests, lessons and slides use
ANSWER = "execute_result"  # the type of the output that is the value of a cell's last line, `reveal(…)`
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?")
NOISE = 1e-12  # differences up to this size count as rounding errors
BLOCK = 8  # in pixels: if a line moves, the mean of such a block changes clearly
MEAN_SHADE, BLOCK_SHADE = 2.0, 48.0  # the allowed differences between pictures, on a scale of 255

DRAWN_WITH = (ROOT / "figures" / "drawn_with.txt").read_text(encoding="utf-8").split()[1]
# Other versions of matplotlib draw letters and margins differently, so pictures are compared only if this is
# True.
SAME_LETTERS = DRAWN_WITH.split(".")[:2] == matplotlib.__version__.split(".")[:2]


def read(path):
    """Return a lesson; skip the test if the lesson needs a pretrained model that is not installed."""
    skip_without(path)
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


# --- executing a notebook and normalizing it ----------------------------------------------------


def execute(notebook, folder, again=False):
    """Return a copy with new outputs, executed in an empty folder.

    With `again`, the kernel then executes each code cell once more, from the last to the first, because a
    teacher may go back to any cell. The execution fails if a cell needs the old value of a variable that
    this cell or a later cell overwrites.
    """
    executed = copy.deepcopy(notebook)
    if again:
        executed.cells += copy.deepcopy(code_cells(notebook)[::-1])
    client = NotebookClient(
        executed,
        # With kernel_dirs=[], the kernel is this Python, and not a "python3" kernel that a user installed.
        km=AsyncKernelManager(kernel_spec_manager=KernelSpecManager(kernel_dirs=[])),
        timeout=600,  # in seconds; long, because a busy machine must not cause an error
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        coalesce_streams=True,  # join printed text, because a kernel splits it at random
    )
    client.execute(cleanup_kc=True, env={**os.environ, "IPYTHONDIR": str(folder / "ipython")})
    executed.cells = executed.cells[: len(notebook.cells)]
    return normalised(executed)


def normalised(notebook):
    """Return the form to commit, without metadata of the machine or the editor."""
    plain = copy.deepcopy(notebook)
    slide_metadata = {key: value for key, value in notebook.metadata.items() if key == "npformer"}
    plain.metadata = nbformat.from_dict(METADATA | slide_metadata)
    for cell in plain.cells:
        kept = {key: cell.metadata[key] for key in KEPT_METADATA if cell.metadata.get(key)}
        cell.metadata = nbformat.from_dict(kept)
    for cell in code_cells(plain):
        # Remove widgets of sliders, because they work only with a kernel.
        cell.outputs = [o for o in cell.outputs if WIDGET not in o.get("data", {})]
    return plain


def with_kept_outputs(stored, executed, last_sources):
    """Return the executed notebook, and a message for each volatile cell that keeps its stored outputs.

    Other cells keep their outputs if no difference is visible, so that diffs are small. They get no message.
    """
    merged, messages = copy.deepcopy(executed), []
    for old, new in zip(code_cells(stored), code_cells(merged), strict=True):
        reason = reason_to_keep(old, new, last_sources.get(old.id))
        if reason:
            number = stored.cells.index(old) + 1
            messages.append(f"cell {number} keeps its stored outputs, because {reason}")
        if reason or (not is_volatile(new) and not cell_difference(old, new)):
            new.outputs = old.outputs
        for output in new.outputs:
            if "execution_count" in output:  # A new cell above this cell changes this count.
                output.execution_count = new.execution_count
    return merged, messages


def with_current_answers(notebook):
    """Return a copy in which each stored answer to a prediction is the package's answer."""
    renewed = copy.deepcopy(notebook)
    for predict in predicts(notebook):
        for output in renewed.cells[predict.cell].outputs:
            if output.output_type == ANSWER:
                answer = reveal(predict.id)
                output.data = {"text/markdown": answer._repr_markdown_(), "text/plain": repr(answer)}
    return renewed


def stored_answers(notebook):
    """Return {id: [the data of each answer that is stored below the cell]} of all predictions."""
    return {
        predict.id: [dict(o.data) for o in notebook.cells[predict.cell].outputs if o.output_type == ANSWER]
        for predict in predicts(notebook)
    }


def reason_to_keep(old, new, last_source):
    """Return why a cell keeps its stored outputs although they may differ from the new ones, or None."""
    if not old.outputs:
        return None
    if is_volatile(new) and old.source == last_source:
        return "it is volatile and its code is unchanged; to replace them, clear its outputs first"
    return None


def printed_text(cell):
    """Return everything that a cell prints."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def sources_in_last_commit(path):
    """Return {id of a code cell: its code} of a notebook in the last commit; {} without such a commit."""
    command = ["git", "show", f"HEAD:./{path.name}"]
    shown = subprocess.run(command, cwd=path.parent, capture_output=True, encoding="utf-8")
    if shown.returncode:
        return {}
    return {cell.id: cell.source for cell in code_cells(nbformat.reads(shown.stdout, as_version=4))}


# --- comparing ----------------------------------------------------------------------------------


def is_volatile(cell):
    return "volatile" in cell.metadata.get("tags", [])


def notebook_difference(committed, executed):
    """Return the first difference as a sentence, or None."""
    for old, new in zip(code_cells(committed), code_cells(executed), strict=True):
        difference = None if is_volatile(old) else cell_difference(old, new)
        if difference:
            return f"cell {committed.cells.index(old) + 1}: {difference}"
    return None


def cell_difference(old, new):
    """Return the first difference of two cells as a sentence, or None."""
    old_contents, new_contents = contents(old), contents(new)
    old_kinds = [kind for kind, _ in old_contents]
    new_kinds = [kind for kind, _ in new_contents]
    if new_kinds != old_kinds:
        return f"it gives {new_kinds}, the file has {old_kinds}"
    for (kind, old_text), (_, new_text) in zip(old_contents, new_contents, strict=True):
        compare = picture_difference if kind == "picture" else text_difference
        difference = compare(old_text, new_text)
        if difference:
            return difference
    return None


def contents(cell):
    """Return [(kind, text), …] for the execution count of a cell and all parts of its outputs."""
    parts = [("count", str(cell.execution_count))]
    for output in cell.outputs:
        parts.append((output.output_type, output.get("name", "")))
        data = output.get("data", {"text": output.get("text", "")})
        match = PICTURE.fullmatch(data.get("text/html", ""))
        if match:
            alt, width, picture, caption = match.groups()
            data = {
                "text": data["text/plain"],
                "alt": html.unescape(alt),
                "width": width,
                "picture": picture,
                "caption": html.unescape(caption or ""),
            }
        parts += sorted(data.items())
    return parts


def text_difference(before, now):
    """Return None if the words are equal and the numbers close, else a message with the first difference."""
    for old, new in itertools.zip_longest(before.splitlines(), now.splitlines(), fillvalue="(no such line)"):
        # The number of spaces may differ: a column is wider if it has a −0.0 instead of a 0.0.
        same_words = NUMBER.sub(" # ", old).split() == NUMBER.sub(" # ", new).split()
        if not (same_words and all(map(same_number, NUMBER.findall(old), NUMBER.findall(new)))):
            return "the output is not what the file shows (-), but (+):\n" + "\n".join(
                difflib.ndiff([old], [new])
            )
    return None


def same_number(a, b):
    """Return whether two numbers are equal or close; integers must be equal.

    Close means a relative difference of at most 1e-6. If a number has three or more decimals, a difference of
    one unit in the last decimal is close too.
    """
    are_integers = not re.search("[.eE]", a + b)
    if a == b or are_integers:
        return a == b
    exponents: list[Any] = [Decimal(number).as_tuple().exponent for number in (a, b)]
    last = max(exponents)
    unit = 10.0**last if last <= -3 else 0
    return math.isclose(float(a), float(b), rel_tol=1e-6, abs_tol=max(NOISE, 1.01 * unit))


def picture_difference(before, now):
    """Return None if two pictures look the same, else a sentence that describes the difference."""
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
    """Return a parametrization: notebooks that are not in `now` run only with `pytest -m slow`."""
    cases = [pytest.param(p, marks=[] if p in now else pytest.mark.slow, id=p.stem) for p in NOTEBOOKS]
    return pytest.mark.parametrize("path", cases)


@per_notebook(now=NOTEBOOKS[:1])
def test_notebook_outputs_are_not_stale(path, tmp_path, capsys):
    committed = read(path)
    executed = execute(committed, tmp_path)
    if os.environ.get("NPFORMER_REWRITE") == "1":
        merged, messages = with_kept_outputs(committed, executed, sources_in_last_commit(path))
        nbformat.write(with_current_answers(merged), path)
        with capsys.disabled():
            for message in messages:  # stderr, because pytest-xdist does not show stdout.
                print(f"{path.name}: {message}", file=sys.stderr)
        return
    difference = notebook_difference(committed, executed)
    assert difference is None, f"{path.name}, {difference}\n{HOW_TO_REWRITE.format(path.stem)}"


@per_notebook()
def test_stored_answers_are_current(path):
    notebook = nbformat.read(path, as_version=4)
    renewed = with_current_answers(notebook)
    if os.environ.get("NPFORMER_REWRITE") == "1":
        nbformat.write(renewed, path)
        return
    stored, current = stored_answers(notebook), stored_answers(renewed)
    stale = [id for id in current if stored[id] != current[id]]
    assert not stale, f"the answers {stale} are out of date\n{HOW_TO_REWRITE.format('current')}"
    has_one_answer = {id: len(answers) == 1 for id, answers in stored.items()}
    assert all(has_one_answer.values()), has_one_answer


@per_notebook(now=())
def test_notebook_cells_run_backwards_after_one_run(path, tmp_path):
    execute(read(path), tmp_path, again=True)


@per_notebook()
def test_notebook_is_in_its_normal_form(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    advice = HOW_TO_REWRITE.format(path.stem)
    assert nbformat.writes(normalised(notebook)) + "\n" == path.read_text(encoding="utf-8"), advice


def make_notebook(source, printed, *tags):
    """Return a notebook with one code cell, which has printed a text."""
    cell = nbformat.v4.new_code_cell(source, id="a", metadata={"tags": list(tags)}, execution_count=1)
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=printed)] if printed else []
    return nbformat.v4.new_notebook(cells=[cell])


@pytest.mark.parametrize(("tags", "last_source", "old", "new", "kept"), [
    pytest.param(["volatile"], "f()", "3 s\n", "4 s\n", "cell 1 .* is volatile", id="volatile"),
    pytest.param(["volatile"], "g()", "3 s\n", "4 s\n", None, id="changed volatile"),
    pytest.param(["volatile"], "f()", "", "4 s\n", None, id="cleared volatile"),
    pytest.param([], "f()", "3 words\n", "4 words\n", None, id="changed output"),
    pytest.param(["volatile"], "f()", "3 words\n", "M is not here\n", "cell 1 .* is volatile", id="no model"),
])  # fmt: skip
def test_with_kept_outputs_keeps_stored_outputs(tags, last_source, old, new, kept):
    stored, executed = make_notebook("f()", old, *tags), make_notebook("f()", new, *tags)
    merged, messages = with_kept_outputs(stored, executed, {"a": last_source})
    assert printed_text(merged.cells[0]) == (old if kept else new)
    assert [bool(re.search(kept or "", message)) for message in messages] == [True] * bool(kept)


def test_with_current_answers_replaces_old_text():
    notebook = make_notebook('reveal("1.1a")', "printed\n", "volatile")
    data = {"text/markdown": "**Answer.** Old.", "text/plain": "Answer. Old."}
    notebook.cells[0].outputs.append(nbformat.v4.new_output(ANSWER, data, execution_count=1))
    notebook.cells[0].metadata["npformer"] = {"reveal": "1.1a"}
    question = nbformat.v4.new_markdown_cell("Why?", metadata={"npformer": {"predict": "1.1a"}})
    notebook.cells.insert(0, question)
    renewed = with_current_answers(notebook)
    assert printed_text(renewed.cells[1]) == "printed\n"
    assert stored_answers(notebook) == {"1.1a": [data]}
    (answer,) = stored_answers(renewed)["1.1a"]
    assert answer["text/plain"] == repr(reveal("1.1a"))
    assert answer["text/markdown"] == f"**Answer.** {reveal('1.1a').text}"


def test_sources_in_last_commit_has_code_by_id(tmp_path):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    path = tmp_path / "a.ipynb"
    nbformat.write(make_notebook("f()", ""), path)
    assert sources_in_last_commit(path) == {}
    user = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    for arguments in (["add", "a.ipynb"], [*user, "commit", "-q", "--no-verify", "-m", "Add a"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    nbformat.write(make_notebook("g()", ""), path)
    assert sources_in_last_commit(path) == {"a": "f()"}


@pytest.mark.slow
def test_lesson_without_its_model_explains_the_installation(tmp_path):
    lesson = nbformat.read(ROOT / "notebooks" / "08_a_real_model.ipynb", as_version=4)
    first = code_cells(lesson)[0]
    first.source = "import sys\nsys.modules['safetensors'] = None  # as if not installed\n" + first.source
    with pytest.raises(CellExecutionError) as stopped:
        execute(lesson, tmp_path)
    shown = stopped.value.traceback.rpartition("----\n")[2]  # the message below the source of the cell
    (line,) = shown.strip().splitlines()
    assert GET_MODEL in line
