"""The player: a page that shows the worked example cell by cell in a browser, without a network connection.

`play()` returns one self-contained page. For every cell, the page shows the arithmetic and the cells that the
arithmetic uses. The page contains the given numbers and the recipe of every other cell
(`npformer.lessons.recipes`), but no results. The page calculates all results itself. So it can repeat the
calculation after a user changes a weight or takes a training step.

The code of the page is in the folder page/. `import npformer` stays fast, because these files are loaded only
when a page is made.
"""

import math
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npformer.lessons.equations import AGAIN, UPDATES, make_steps
from npformer.lessons.recipes import pack_recipes
from npformer.lessons.steps import GIVEN, PLACES, Step
from npformer.lessons.worked_example import (
    Example,
    Trace,
    apply_variants,
    dog_bites_man,
    make_plan,
    worked_example,
)
from npformer.tree import leaves
from npformer.validation.checks import check_kind

if TYPE_CHECKING:
    from pathlib import Path  # only for annotations; `save` imports pathlib when it writes a file

SCRIPTS = (
    "arithmetic trace words state page motion belt strip closeup step far story levels travel places zoom "
    "numbers yours start"
).split()
OLD_BROWSER = "This page needs a newer browser: Chrome or Edge 111, Firefox 115, Safari 16.2, or later."
FRAME_HEIGHT = 640  # the height of the frame in a notebook, in pixels


class Player(NamedTuple):
    """A page that plays a trace. A notebook shows the page, and `save` writes it to a file.

    Attributes
    ----------
    title : str
        The title of the page.
    page : str
        The HTML of the page.
    """

    title: str
    page: str

    def _repr_html_(self) -> str:
        """Return a frame that contains the whole page, without a widget, a server or a network connection."""
        import html

        # The page has fewer ' than ", so srcdoc in single quotes needs fewer escapes.
        page = self.page.replace("&", "&amp;").replace("'", "&#39;")
        look = f"width: 100%; height: {FRAME_HEIGHT}px; border: 1px solid #999"
        return f'<iframe title="{html.escape(self.title)}" style="{look}" srcdoc=\'{page}\'></iframe>'

    def __repr__(self) -> str:
        return f"the player: {self.title}"

    def save(self, path: str | os.PathLike[str]) -> "Path":
        """Write the page to a file that any browser can open.

        Parameters
        ----------
        path : str or path
            The file, which must end in .html. Its folder must exist.

        Returns
        -------
        file : Path
            The path of the file.

        Raises
        ------
        FileNotFoundError
            If the folder does not exist.
        """
        from npformer.validation.output_files import check_output_file, write_files

        (file,) = write_files({check_output_file(path, ".html"): self.page})
        return file


class Mark(NamedTuple):
    """A cell to highlight, because a second calculation has a different number there."""

    station: str  # the name of a step: "ffn.z"
    cell: int  # the number of the cell within the step, counted from 0 along the rows
    expected: float
    received: float


def format_distinct(expected: float, received: float) -> tuple[str, str]:
    """Return two different numbers as text: with six digits, or with more if the texts would be equal."""
    pairs = [(f"{expected:.{digits}g}", f"{received:.{digits}g}") for digits in range(6, 18)]
    different = [pair for pair in pairs if pair[0] != pair[1]]
    return different[0] if different else pairs[-1]


def play(
    trace: Trace | None = None,
    *,
    at: str | None = None,
    variants: Sequence[str] = (),
    marks: Sequence[Mark] = (),
) -> Player:
    """Show the worked example cell by cell, on a page for a class.

    The page is controlled by keys or buttons. A class can predict a number before the page shows it, change
    given numbers, and train the block.

    Parameters
    ----------
    trace : Trace, optional
        The calculation to show. By default, `worked_example()`: "dog bites man" without rounding.
    at : str, optional
        The step where the page opens, such as "ffn.z", or a step and a cell, such as "ffn.z,8". Cells are
        counted from 0 along the rows. By default, the page opens at the first mark or at the first calculated
        step.
    variants : sequence of str
        Changes of the block: "pre-norm", "causal", "gelu", "rms-norm", "two-sentences", "one-head".
    marks : sequence of Mark
        Cells to highlight, each with the number that another calculation found there.

    Returns
    -------
    player : Player
        A notebook shows the page; `player.save(path)` writes it to a file.

    Raises
    ------
    ValueError
        If the trace does not have the step or the cell of `at` or of a mark.

    Examples
    --------
    >>> play(at="ffn.z")
    the player: “dog bites man” through one encoder block and back
    """
    trace = worked_example() if trace is None else trace
    check_kind("play", "trace", trace, Trace)
    if variants:
        trace = worked_example(
            apply_variants(trace.example, variants),
            decimals=trace.decimals,
            update=trace.update,
            learning_rate=float(trace.named["eta"].value),
        )
    for mark in marks:
        check_kind("play", "a mark", mark, Mark)
        _check_place(trace, f"{mark.station},{mark.cell}")
    if at is None and marks:
        at = f"{marks[0].station},{marks[0].cell}"
    if at is not None:
        _check_place(trace, at)
    title = f"“{' '.join(trace.example.tokens)}” through one encoder block and back"
    return Player(title, _page(title, _page_data(trace, at, marks)))


def _page(title: str, data: dict[str, Any]) -> str:
    """Return the HTML of the page."""
    import html
    import json
    from importlib import resources

    folder = resources.files("npformer.player").joinpath("page")
    template = folder.joinpath("page.html").read_text(encoding="utf-8")
    style = folder.joinpath("look.css").read_text(encoding="utf-8")
    scripts = [folder.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    data_text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    data_text = data_text.replace("<", "\\u003c")  # a "<" in a word could close the script element too early
    return template.format(
        title=html.escape(title),
        style=style,
        old_browser=OLD_BROWSER,
        data=data_text,
        script=join_scripts(scripts),
    )


BANNER = (
    '<p role="status" style="grid-row: 9; margin: 0; padding: 2px 10px; border-radius: 6px; '
    'font-weight: bold; color: #fff; background: {colour}">{text}</p>'
)


def add_banner(player: Player, text: str, *, is_correct: bool = False) -> Player:
    """Return the player with a line of text below its buttons: green if all is correct, else red."""
    import html

    banner = BANNER.format(colour="#1b6e3c" if is_correct else "#a83c00", text=html.escape(text))
    return player._replace(page=player.page.replace("<main>\n", f"<main>\n{banner}\n", 1))


def join_scripts(scripts: Sequence[str]) -> str:
    """Return JavaScript modules as one script, without their imports, type imports and exports."""
    imports = re.compile(r"^(import [^;]*;|/\*\* @typedef \{import.*)\n", re.MULTILINE)
    exports = re.compile(r"^export ", re.MULTILINE)
    return "\n".join(exports.sub("", imports.sub("", script)) for script in scripts)


def _check_place(trace: Trace, at: Any) -> None:
    """Reject a place, "step" or "step,cell", that the trace does not have."""
    check_kind("play", "at", at, str)
    name, _, cell = at.partition(",")
    if name not in trace.named:
        raise ValueError(f"play: at is {at!r}; the trace has no step {name!r}")
    size = trace.named[name].value.size
    is_valid_cell = cell.isdecimal() and int(cell) < size
    if cell and not is_valid_cell:
        raise ValueError(f"play: at is {at!r}; expected a cell of {name} from 0 to {size - 1}")


def _page_data(trace: Trace, at: str | None, marks: Sequence[Mark]) -> dict[str, Any]:
    """Return the data of the page: given numbers, and recipes for calculated numbers.

    The data contains the steps of gradient descent and of Adam, so that the page can switch between the two.
    The data has no recipes of the second pass, because the page makes them from those of the first pass.
    """
    first_calculated = next(step.name for step in trace.steps if step.equation != GIVEN)
    n_before_update = [step.name for step in trace.steps].index("eta")
    looks: dict[Any, int] = {}  # for each look, its index in the data of the page (see LOOK)
    updates = {update: _update_steps(trace, update, n_before_update, looks) for update in UPDATES}
    second_pass = [step for step in trace.steps if step.section.startswith(AGAIN)]
    steps_before_update = [_step_data(step, looks) for step in trace.steps[:n_before_update]]
    return {
        "at": at or first_calculated,
        "decimals": trace.decimals,
        "places": PLACES,
        "named": _has_numbers_of_a_name(trace.example),
        "norm": trace.example.config.norm,
        "update": trace.update,
        "steps": steps_before_update,
        "looks": [dict(zip(LOOK, look, strict=True)) for look in looks],
        "updates": updates,
        "again": [[step.section, step.name, step.equation] for step in second_pass],
        "marks": [_mark_data(mark) for mark in marks],
    }


def _update_steps(
    trace: Trace, update: str, n_before_update: int, looks: dict[Any, int]
) -> list[dict[str, Any]]:
    """Return the steps of the training step, with the learning rate of the trace."""
    eta, *steps = make_steps(make_plan(trace.example, update))[n_before_update:]
    eta = eta._replace(value=trace.named["eta"].value)
    update_steps = [eta, *(step for step in steps if not step.section.startswith(AGAIN))]
    return [_step_data(step, looks) for step in update_steps]


def _has_numbers_of_a_name(example: Example) -> bool:
    """Return whether `example_from_name` could draw this example.

    A name changes the embeddings, the weights and the target, but neither the architecture nor the norms.
    """
    model = dog_bites_man()
    if make_plan(example, "sgd") != make_plan(model, "sgd"):
        return False
    norms = leaves((example.block.norm_1, example.block.norm_2))
    model_norms = leaves((model.block.norm_1, model.block.norm_2))
    return all(
        np.array_equal(array, model_array)
        for (_, array), (_, model_array) in zip(norms, model_norms, strict=True)
    )


# A look is the part of a step's data that many steps have in common. It has these fields.
LOOK = ("axes", "shape", "titles", "rows", "columns")


def _step_data(step: Step, looks: dict[Any, int]) -> dict[str, Any]:
    """Return the data of one step, and add the look of the step to `looks` if it is new."""
    if step.equation == GIVEN:
        # Adam's inputs, such as m and v, have no value yet. They are zero at first.
        value = np.zeros(step.size) if step.value is None else np.ravel(step.value)
        content = {"given": value.tolist()}
    else:
        content = pack_recipes(step.recipes)
    *matrices, n_rows, n_columns = (1, 1, *step.shape)
    shape = (math.prod(matrices), n_rows, n_columns)
    look = (step.axes, shape, step.titles, step.rows, step.columns)
    return {
        "section": step.section,
        "name": step.name,
        "equation": step.equation,
        "source": step.source,
        "look": looks.setdefault(look, len(looks)),
        **content,
    }


def _mark_data(mark: Mark) -> dict[str, Any]:
    expected, received = (text.replace("-", "−") for text in format_distinct(mark.expected, mark.received))
    return {"station": mark.station, "cell": mark.cell, "expected": expected, "received": received}
