"""The player: the worked example cell by cell in a browser, forward, back and trained, offline.

`play()` gives one self-contained page: every cell, what enters it, and its arithmetic. The page gets the
numbers that are given and the recipe of every cell (`recipes`), no results: it calculates them, so that it
can calculate them anew when somebody edits a weight or takes a step of training. Its code is in the folder
page/; those files and what writes pages are loaded when used: they cost an `import npformer` nothing.
"""

import math
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npformer.lessons.equations import AGAIN, UPDATES, lines
from npformer.lessons.recipes import packed
from npformer.lessons.steps import GIVEN, PLACES, Step
from npformer.lessons.worked_example import Example, Trace, dog_bites_man, plan_of, varied, worked_example
from npformer.tree import leaves
from npformer.validation.checks import check_kind

if TYPE_CHECKING:
    from pathlib import Path  # imported where a file is written

SCRIPTS = "arithmetic trace words state page belt strip step far places numbers yours start".split()
FRAME_HEIGHT = 640  # pixels in a notebook


class Player(NamedTuple):
    """A page that plays a trace: it shows itself in a notebook, and `save` writes it to a file."""

    title: str
    page: str

    def _repr_html_(self) -> str:
        """A frame that holds the whole page: no widget, no server, no network."""
        import html

        page = self.page.replace("&", "&amp;").replace("'", "&#39;")  # fewest escapes: code is full of "
        look = f"width: 100%; height: {FRAME_HEIGHT}px; border: 1px solid #999"
        return f'<iframe title="{html.escape(self.title)}" style="{look}" srcdoc=\'{page}\'></iframe>'

    def __repr__(self) -> str:
        return f"the player: {self.title}"

    def save(self, path: str | os.PathLike[str]) -> "Path":
        """Write the page to a file, which any browser opens, and return where it is.

        Raises ValueError unless it ends in .html, FileNotFoundError when its folder does not exist.
        """
        from npformer.validation.output_files import place_for, write_files

        (file,) = write_files({place_for(path, ".html"): self.page})
        return file


class Mark(NamedTuple):
    """A cell that is lit because another calculation has another number there; both wait to be asked for."""

    station: str  # the name of a step, "ffn.z"
    cell: int  # counted from 0 along the rows
    expected: float
    received: float


def told_apart(expected: float, received: float) -> tuple[str, str]:
    """Two numbers with as many digits as show that they differ, at least six."""
    pairs = [(f"{expected:.{digits}g}", f"{received:.{digits}g}") for digits in range(6, 18)]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[-1])


def play(
    trace: Trace | None = None,
    *,
    at: str | None = None,
    variants: Sequence[str] = (),
    marks: Sequence[Mark] = (),
) -> Player:
    """The worked example cell by cell: a page for a class, with keys, predictions and numbers to change.

    Without a trace it is `worked_example()`, "dog bites man" with exact numbers. `at` is where to open: the
    name of a step, "ffn.z", or a step and a cell, "ffn.z,8", counted from 0 along the rows. `variants`
    changes the block: "pre-norm", "causal", "gelu", "rms-norm", "two-sentences", "one-head", one or several.
    `marks` are cells to light, each with the number that another calculation found there; the page opens at
    the first unless `at` says otherwise.

    Raises TypeError unless trace is a Trace, at a string and each mark a Mark, ValueError when the trace has
    no such step or cell, or for another variant.

    >>> play(at="ffn.z")
    the player: “dog bites man” through one encoder block and back
    """
    trace = worked_example() if trace is None else trace
    check_kind("play", "trace", trace, Trace)
    if variants:
        rate = float(trace.named["eta"].value)
        example = varied(trace.example, variants)
        trace = worked_example(example, decimals=trace.decimals, update=trace.update, learning_rate=rate)
    for mark in marks:
        check_kind("play", "a mark", mark, Mark)
        _check_place(trace, f"{mark.station},{mark.cell}")
    if at is None and marks:
        at = f"{marks[0].station},{marks[0].cell}"
    _check_place(trace, at)
    title = f"“{' '.join(trace.example.tokens)}” through one encoder block and back"
    return Player(title, _page(title, _data(trace, at, marks)))


def _mark(mark: Mark) -> dict[str, Any]:
    expected, received = (text.replace("-", "−") for text in told_apart(mark.expected, mark.received))
    return {"station": mark.station, "cell": mark.cell, "expected": expected, "received": received}


def _page(title: str, data: dict[str, Any]) -> str:
    import html
    import json
    from importlib import resources

    folder = resources.files("npformer.player").joinpath("page")
    read = {name: folder.joinpath(name).read_text(encoding="utf-8") for name in ("page.html", "look.css")}
    scripts = [folder.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    # "<" in a text of the data could end the script element early
    data_text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    parts = {"title": html.escape(title), "style": read["look.css"], "data": data_text}
    return read["page.html"].format(script=joined(scripts), **parts)


def joined(scripts: Sequence[str]) -> str:
    """Modules as one: without what they import from each other, types included, and nothing exported."""
    imported = re.compile(r"^(import [^;]*;|/\*\* @typedef \{import.*)\n", re.MULTILINE)
    without = (imported.sub("", script) for script in scripts)
    return "\n".join(re.sub(r"^export ", "", script, flags=re.MULTILINE) for script in without)


def _check_place(trace: Trace, at: Any) -> None:
    if at is None:
        return
    check_kind("play", "at", at, str)
    name, _, cell = at.partition(",")
    if name not in trace.named:
        raise ValueError(f"play: at is {at!r}; the trace has no step {name!r}")
    size = trace.named[name].value.size
    if cell and not (cell.isdecimal() and int(cell) < size):
        raise ValueError(f"play: at is {at!r}; expected a cell of {name} from 0 to {size - 1}")


def _data(trace: Trace, at: str | None, marks: Sequence[Mark]) -> dict[str, Any]:
    """What the page needs: the given numbers, and for all others their recipes.

    Both updates are in it, so that the page can change from one to the other. The second pass has the cells
    of the first, but for what the update made: it needs no recipes of its own.
    """
    first = next(step.name for step in trace.steps if step.equation != GIVEN)
    before = [step.name for step in trace.steps].index("eta")
    updates, looks = {}, dict[Any, int]()
    for update in UPDATES:
        eta, *steps = lines(plan_of(trace.example, update))[before:]
        steps = [step for step in steps if not step.section.startswith(AGAIN)]
        eta = eta._replace(value=trace.named["eta"].value)
        updates[update] = [_step(step, looks) for step in (eta, *steps)]
    again = [step for step in trace.steps if step.section.startswith(AGAIN)]
    steps_before = [_step(step, looks) for step in trace.steps[:before]]
    return {
        "at": at or first,
        "decimals": trace.decimals,
        "places": PLACES,
        "named": _is_like_a_worksheet(trace.example),
        "norm": trace.example.config.norm,
        "update": trace.update,
        "steps": steps_before,
        "looks": [dict(zip(LOOK, look, strict=True)) for look in looks],
        "updates": updates,
        "again": [[step.section, step.name, step.equation] for step in again],
        "marks": [_mark(mark) for mark in marks],
    }


def _is_like_a_worksheet(example: Example) -> bool:
    """Whether a name can draw this example's numbers: what no name draws must be that of the model."""
    model = dog_bites_man()
    norms = [leaves((some.block.norm_1, some.block.norm_2)) for some in (example, model)]
    return plan_of(example, "sgd") == plan_of(model, "sgd") and all(
        np.array_equal(ours, theirs) for (_, ours), (_, theirs) in zip(*norms, strict=True)
    )


LOOK = ("axes", "shape", "titles", "rows", "columns")  # of a step, which many have in common


def _step(step: Step, looks: dict[Any, int]) -> dict[str, Any]:
    zeros = np.zeros(step.size)  # Adam's m, v and k begin with them
    value = zeros if step.value is None else np.ravel(step.value)
    content = {"given": value.tolist()} if step.equation == GIVEN else packed(step.recipes)
    *matrices, n_rows, n_columns = (1, 1, *step.shape)
    shape = (math.prod(matrices), n_rows, n_columns)
    look = looks.setdefault((step.axes, shape, step.titles, step.rows, step.columns), len(looks))
    says = {"section": step.section, "name": step.name, "equation": step.equation, "source": step.source}
    return {**says, "look": look, **content}
