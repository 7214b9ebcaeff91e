"""The house style: how large letters are, what stands beside and below, and how a figure becomes a file.

matplotlib is imported when a picture is drawn, and pyplot never is, so a figure leaves no state behind.
"""

import functools
import io
import math
import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from npformer.lessons.plots.colours import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")
R = TypeVar("R")

STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters on every machine
    "font.size": 15,
    "axes.titlesize": 17,
    "axes.labelsize": 15,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "lines.linewidth": 3.0,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "npformer",
}


def in_style(draw: Callable[P, R]) -> Callable[P, R]:
    """Run a function in our style, whatever the reader's own matplotlib settings are, and put those back."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> R:
        from matplotlib import style

        with style.context(["default", STYLE]):
            return draw(*args, **kwargs)

    return drawn


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure, in inches, whose parts find their places when it is drawn."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def in_panels(
    named: Mapping[str, R], width: float, height: float, across: int = 0, loc: Any = "center", **shared: Any
) -> tuple["Figure", list[tuple["Axes", R]]]:
    """A figure with a panel for each title, `across` or all in a row: it, and [(axes, what to show), …]."""
    figure, across = new_figure(width, height), min(across or len(named), len(named))
    grid = figure.subplots(math.ceil(len(named) / across), across, squeeze=False, **shared).ravel()
    for empty in grid[len(named) :]:
        empty.remove()
    for axes, title in zip(grid, named, strict=False):
        axes.set_title(title, loc=loc)
    return figure, list(zip(figure.axes, named.values(), strict=True))


def legend_outside(figure: "Figure", loc: Any = "outside lower center", **look: Any) -> None:
    """One legend for all panels, in one row beside them: each label once."""
    every = [axes.get_legend_handles_labels() for axes in figure.axes]
    named = {label: handle for found in every for handle, label in zip(*found, strict=True)}
    figure.legend(named.values(), named.keys(), loc=loc, ncols=len(named), **look)


@in_style
def encoded(figure: "Figure", kind: str = "png") -> bytes:
    """The figure as the bytes of a "png" or "svg" file; nothing in them names the day or the software."""
    metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    file, dots = io.BytesIO(), 200 if staged() else 100
    figure.draw_without_rendering()  # the layout settles in two passes: this one and the one below
    figure.savefig(file, format=kind, dpi=dots, metadata=metadata)
    return file.getvalue()


STAGE = "NPFORMER_STAGE"  # set in the environment of a lesson that is run for slides
STAGE_SIZE = (9.4, 4.86)  # inches of a picture that fills a slide: 15 points are 28 of 720 pixels there
STAGE_POINTS = 15
INDEX = 0.7  # of the letters beside it: how large matplotlib writes what is raised or lowered


def staged() -> bool:
    """Whether pictures are drawn for slides."""
    return STAGE in os.environ


@in_style
def fill_stage(figure: "Figure") -> None:
    """Make a figure one for a slide: as wide as that, with letters of 15 points, those of an index too.

    Letters that were smaller, where many numbers stand close together, stay as they are, on less paper.
    """
    from matplotlib.text import Text

    width, height = STAGE_SIZE
    figure.set_size_inches(width, min(height, figure.get_figheight()))
    figure.draw_without_rendering()  # now the axes have their ticks
    for text in figure.findobj(Text):
        index = INDEX if re.search(r"\$.*[_^].*\$", text.get_text()) else 1
        text.set_fontsize(min(float(text.get_fontsize()), STAGE_POINTS) / index)
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        for label in axis.get_ticklabels()[:1]:
            axis.set_tick_params(labelsize=label.get_fontsize())  # as many ticks as have room now


def panels_of(figure: "Figure") -> str:
    """Where the panels of a drawn figure are, in percent of it: "outside,left,right,top,bottom …".

    `outside` is the left edge of what belongs to a panel, its labels too.
    """
    found, (width, height) = [], figure.bbox.size
    for axes in figure.axes:
        inner, outer = axes.get_window_extent(), axes.get_tightbbox()
        across = [at / width for at in (outer.x0 if outer else inner.x0, inner.x0, inner.x1)]
        down = [1 - at / height for at in (inner.y1, inner.y0)]
        found.append(",".join(f"{100 * at:.1f}" for at in across + down))
    return " ".join(found)


HIGHEST = 640  # pixels of a picture in a notebook: it and its code are on one screen


class Picture(NamedTuple):
    """A picture and its description, as every notebook program shows both.

    The bytes stand in an `<img>` with its `alt`: JupyterLab, Notebook 7 and nbconvert drop the description
    that may go with an image/png. They keep this element in notebooks that are not trusted, too.
    """

    png: bytes
    alt: str
    panels: str = ""  # in a picture for slides: what `panels_of` says

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        import base64
        import html

        data = base64.b64encode(self.png).decode()
        source = f'src="data:image/png;base64,{data}"'
        panels = f' data-panels="{self.panels}"' if self.panels else ""
        return {
            "text/html": f'<img alt="{html.escape(self.alt)}" width="{self.width}"{panels} {source}>',
            "text/plain": self.alt,
        }

    @property
    def width(self) -> int:
        """In pixels: its own, or less where it would be higher than 640."""
        width, height = (
            int.from_bytes(self.png[start : start + 4]) for start in (16, 20)
        )  # the PNG's header
        return round(width * min(1, HIGHEST / height))

    def __repr__(self) -> str:
        return self.alt


def describe(figure: "Figure", text: str) -> "Figure":
    """Give a figure the words for those who cannot see it, and return it: `picture` hands them on."""
    figure.set_label(text)
    return figure


def picture(figure: "Figure", alt: str | None = None) -> None:
    """Show the figure in a notebook, where it is called: code may go on below, as `reveal` does.

    Its description is `alt`, or else what `describe` gave the figure.

    Raises ValueError for a figure without any description.
    """
    from IPython.display import display

    if staged():
        fill_stage(figure)
    words = alt or str(figure.get_label())
    if not words:
        raise ValueError("picture: the figure has no description; expected describe(figure, text) or alt=")
    drawn = encoded(figure)
    display(Picture(drawn, words, panels_of(figure) if staged() else ""))  # type: ignore[no-untyped-call]
