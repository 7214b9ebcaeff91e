"""The player: the worked example cell by cell in a browser, forward and back, offline.

`play()` gives one self-contained page: every cell, what enters it, and its arithmetic. The page gets the
numbers that are given and the recipe of every cell (`recipes`), no results: it calculates them, so that it
can calculate them anew when somebody edits a weight. The drawing is in player.js. That file and what writes
pages is loaded when used: `npformer.play` costs an `import npformer` nothing.
"""

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npformer.teaching.recipes import check_recipes, recipes
from npformer.teaching.worked_example import (
    GIVEN,
    PLACES,
    Example,
    Step,
    Trace,
    dog_bites_man,
    worked_example,
)
from npformer.tree import leaves
from npformer.validate import check_kind

if TYPE_CHECKING:
    from pathlib import Path  # imported where a file is written

PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; \
style-src 'unsafe-inline'">
<title>{title}</title>
<body>
<script type="application/json" id="data">{data}</script>
<script type="module">
{script}
window.player = start(document.body, JSON.parse(document.getElementById("data").textContent));
</script>
"""
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
        from pathlib import Path

        target = Path(path)
        if target.suffix.lower() != ".html":
            raise ValueError(f"save: {target.name!r} should end in .html")
        if not target.parent.is_dir():
            raise FileNotFoundError(f"save: there is no folder {str(target.parent)!r}")
        target.write_text(self.page, encoding="utf-8")
        return target


def play(trace: Trace | None = None, *, at: str | None = None) -> Player:
    """The worked example cell by cell: a page for a class, with keys, predictions and numbers to change.

    Without a trace it is `worked_example()`, "dog bites man" with exact numbers. `at` is where to open: the
    name of a step, "ffn.z", or a step and a cell, "ffn.z,8", counted from 0 along the rows.

    Raises TypeError unless trace is a Trace and at a string, ValueError when the trace has no such step or
    cell, or when a number in it is not what its step's equation gives.

    >>> play(at="ffn.z")
    the player: “dog bites man” through one encoder block and back
    """
    trace = worked_example() if trace is None else trace
    check_kind("play", "trace", trace, Trace)
    _check_place(trace, at)
    title = f"“{' '.join(trace.example.tokens)}” through one encoder block and back"
    return Player(title, _page(title, _data(trace, at)))


def _page(title: str, data: dict[str, Any]) -> str:
    import html
    import json
    from importlib import resources

    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    script = resources.files("npformer.teaching").joinpath("player.js").read_text(encoding="utf-8")
    # "<" in a text of the data could end the script element early
    return PAGE.format(title=html.escape(title), data=text.replace("<", "\\u003c"), script=script)


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


def _data(trace: Trace, at: str | None) -> dict[str, Any]:
    """What the page needs: the given numbers, and for all others their recipes."""
    found = recipes(trace)
    check_recipes(trace, found)
    first = next(step.name for step in trace.steps if step.equation != GIVEN)
    return {
        "at": at or first,
        "decimals": trace.decimals,
        "places": PLACES,
        "named": _is_like_a_worksheet(trace.example),
        "steps": [_step(step, found.get(step.name)) for step in trace.steps],
    }


def _is_like_a_worksheet(example: Example) -> bool:
    """Whether a name can draw this example's numbers: what no name draws must be that of the model."""
    model = dog_bites_man()
    same = (getattr(example, field) == getattr(model, field) for field in ("tokens", "vocabulary", "config"))
    norms = [leaves((some.block.norm_1, some.block.norm_2)) for some in (example, model)]
    return all(same) and all(np.array_equal(a, b) for (_, a), (_, b) in zip(*norms, strict=True))


def _step(step: Step, found: list[Any] | None) -> dict[str, Any]:
    content = {"given": np.ravel(step.value).tolist()} if found is None else {"recipes": found}
    return {
        "section": step.section,
        "name": step.name,
        "equation": step.equation,
        "source": step.source,
        "axes": step.axes,
        "shape": step.matrices.shape,
        "rows": step.rows,
        "columns": step.columns,
        **content,
    }
