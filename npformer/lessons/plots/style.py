"""The style of all figures: font sizes, panels and legends, and how a figure becomes a file or a picture.

matplotlib is imported only when a picture is drawn. pyplot is never imported, so a figure leaves no global
state behind.
"""

import functools
import io
import math
import os
import re
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from npformer.lessons.plots.colours import FAINT, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")
R = TypeVar("R")

STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so it is the same on every machine
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
    """Make a function draw in STYLE. When the function ends, the user's matplotlib settings are restored."""

    @functools.wraps(draw)
    def draw_in_style(*args: P.args, **kwargs: P.kwargs) -> R:
        from matplotlib import style

        with style.context(["default", STYLE]):
            return draw(*args, **kwargs)

    return draw_in_style


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of this size in inches. Drawing the figure lays out its panels."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def make_panels(
    contents: Mapping[str, R],
    width: float,
    height: float,
    across: int | None = None,
    loc: Any = "center",
    **shared: Any,
) -> tuple["Figure", list[tuple["Axes", R]]]:
    """Return a figure with a panel for each title of `contents`, and the pairs (axes, content).

    `across` is the number of panels in a row. By default, all panels are in one row. `loc` aligns the titles.
    `shared` is passed on to `Figure.subplots`.
    """
    n_panels = len(contents)
    across = n_panels if across is None else min(across, n_panels)
    figure = new_figure(width, height)
    grid = figure.subplots(math.ceil(n_panels / across), across, squeeze=False, **shared).ravel()
    for axes in grid[n_panels:]:
        axes.remove()
    for axes, title in zip(grid[:n_panels], contents, strict=True):
        axes.set_title(title, loc=loc)
    return figure, list(zip(figure.axes, contents.values(), strict=True))


def legend_outside(figure: "Figure", loc: Any = "outside lower center", **look: Any) -> None:
    """Add one legend in one row outside the panels. A label that several panels use appears once."""
    handle_of: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        handle_of.update(zip(labels, handles, strict=True))
    figure.legend(handle_of.values(), handle_of.keys(), loc=loc, ncols=len(handle_of), **look)


@in_style
def encoded(figure: "Figure", kind: str = "png") -> bytes:
    """Return the bytes of an image file of a figure, without the date and the name of the software.

    Parameters
    ----------
    figure : Figure
    kind : "png" or "svg"

    Returns
    -------
    data : bytes
    """
    metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    dots_per_inch = 200 if is_for_slides() else 100
    figure.draw_without_rendering()  # the layout is final after two passes: this call and `savefig`
    file = io.BytesIO()
    figure.savefig(file, format=kind, dpi=dots_per_inch, metadata=metadata)
    return file.getvalue()


STAGE = "NPFORMER_STAGE"  # this environment variable is set when a lesson is run for slides
STAGE_SIZE = (9.4, 4.86)  # the size of a picture that fills a slide, in inches
STAGE_POINTS = 15  # the font size on slides: 15 points are 28 pixels on a slide that is 720 pixels high
INDEX = 0.7  # the size of a subscript or superscript in matplotlib, relative to the text


def is_for_slides() -> bool:
    """Return whether pictures are drawn for slides."""
    return STAGE in os.environ


@in_style
def fill_stage(figure: "Figure") -> None:
    """Resize a figure to the width of a slide, and limit the font size to 15 points.

    Fonts that are smaller than 15 points, where many numbers are close together, keep their size. A text with
    a subscript or superscript is enlarged: the subscript gets the size that the text had before.
    """
    from matplotlib.text import Text

    width, height = STAGE_SIZE
    figure.set_size_inches(width, min(height, figure.get_figheight()))
    figure.draw_without_rendering()  # before this call, the axes have no ticks
    for text in figure.findobj(Text):
        points = min(float(text.get_fontsize()), STAGE_POINTS)
        has_index = re.search(r"\$.*[_^].*\$", text.get_text())
        text.set_fontsize(points / INDEX if has_index else points)
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            for label in axis.get_ticklabels()[:1]:
                # Unlike `set_fontsize`, this call also makes matplotlib choose a number of ticks that fits.
                axis.set_tick_params(labelsize=label.get_fontsize())


def panels_of(figure: "Figure") -> str:
    """Return the position of each panel of a drawn figure as text: "outside,left,right,top,bottom …".

    The numbers are percentages of the figure's width and height. `outside` is the left edge of the
    panel's labels.
    """
    width, height = figure.bbox.size
    panels = []
    for axes in figure.axes:
        inner = axes.get_window_extent()
        outer = axes.get_tightbbox()
        left_with_labels = outer.x0 if outer else inner.x0
        fractions = [
            left_with_labels / width,
            inner.x0 / width,
            inner.x1 / width,
            1 - inner.y1 / height,
            1 - inner.y0 / height,
        ]
        panels.append(",".join(f"{100 * fraction:.1f}" for fraction in fractions))
    return " ".join(panels)


def hide_contents(figure: "Figure") -> None:
    """Hide the curves, bars, squares, texts and legends inside the axes of a figure that was drawn.

    The axes keep their places, titles, labels and ticks, and get a grid. A colour bar loses its numbers. A
    slide with a question shows this version.
    """
    figure.set_layout_engine("none")
    for axes in figure.axes:
        if axes.get_label() == "<colorbar>":
            axes.tick_params(which="both", length=0, labelright=False)
            continue
        has_squares = len(axes.images) > 0
        for artists in (axes.lines, axes.patches, axes.collections, axes.images, axes.texts):
            for artist in artists:
                artist.set_visible(False)
        legend = axes.get_legend()
        if legend:
            legend.set_visible(False)
        if has_squares:
            axes.spines[:].set_visible(True)
        axes.grid(which="minor" if has_squares else "major", color=FAINT, linewidth=1.5)


MOST_PIXELS = 640  # the maximum height of a picture in a notebook, so that one screen shows picture and code


class Picture(NamedTuple):
    """A picture and its alternative text, in a form that every notebook program shows.

    The picture is an `<img>` element with an `alt` attribute. JupyterLab, Notebook 7 and nbconvert would drop
    the alternative text of an image/png output. These programs show an `<img>` element even in untrusted
    notebooks.
    """

    png: bytes
    alt: str
    panels: str = ""  # the result of `panels_of`, in a picture for slides
    caption: str = ""  # the result of `caption_of`, or "" for a picture without a number
    empty: bytes = b""  # the same picture after `hide_contents`, in a picture for slides

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        import base64
        import html

        data = base64.b64encode(self.png).decode()
        source = f'src="data:image/png;base64,{data}"'
        for_slides = ""
        if self.panels:
            empty = base64.b64encode(self.empty).decode()
            for_slides = f' data-panels="{self.panels}" data-empty="{empty}"'
        image = f'<img alt="{html.escape(self.alt)}" width="{self.width}"{for_slides} {source}>'
        if not self.caption:
            return {"text/html": image, "text/plain": repr(self)}
        # Not <figure>: JupyterLab removes the style of an untrusted notebook, and a figure has wide margins.
        caption = f'<div class="caption">{html.escape(self.caption)}</div>'
        return {
            "text/html": f"{image}{caption}",
            "text/plain": repr(self),
        }

    @property
    def width(self) -> int:
        """The width in pixels. A picture that is higher than MOST_PIXELS is scaled down."""
        width = int.from_bytes(self.png[16:20])  # the PNG header has the width and the height in these bytes
        height = int.from_bytes(self.png[20:24])
        return round(width * min(1, MOST_PIXELS / height))

    def __repr__(self) -> str:
        return f"{self.caption} {self.alt}" if self.caption else self.alt


def describe(figure: "Figure", text: str) -> "Figure":
    """Give a figure its alternative text, which `picture` shows, and return the figure.

    Parameters
    ----------
    figure : Figure
    text : str
        What the figure shows, for readers who cannot see it.

    Returns
    -------
    figure : Figure
        The same figure.
    """
    figure.set_label(text)
    return figure


@functools.cache
def read_captions() -> dict[str, str]:
    """Return the captions of the lessons' figures by number: {"1.1": "The table …", …}."""
    import tomllib

    file = files("npformer.lessons").joinpath("captions.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def caption_of(number: str) -> str:
    """Return the whole caption of a figure. Raises ValueError if no figure has this number.

    >>> caption_of("5.1")
    'Figure 5.1. The encoder block with post-norm.'
    """
    captions = read_captions()
    if number not in captions:
        raise ValueError(f"picture: no figure has the number {number!r}; expected a key of captions.toml")
    return f"Figure {number}. {captions[number]}"


def picture(figure: "Figure", alt: str | None = None, *, number: str | None = None) -> None:
    """Show a figure in a notebook; the call need not be the last line of a cell.

    Parameters
    ----------
    figure : Figure
    alt : str, optional
        The alternative text; the text of `describe` if omitted.
    number : str, optional
        The number of the figure, such as "5.1". The caption with this number, from `captions.toml`, is shown
        below the figure. Slides have titles instead of captions.

    Raises
    ------
    ValueError
        If the figure has no alternative text, or if no caption has this number.
    """
    from IPython.display import display

    caption = caption_of(number) if number else ""

    if is_for_slides():
        fill_stage(figure)
    text = alt or str(figure.get_label())
    if not text:
        raise ValueError("picture: the figure has no description; expected describe(figure, text) or alt=")
    png = encoded(figure)
    if is_for_slides():
        panels = panels_of(figure)
        hide_contents(figure)
        shown = Picture(png, text, panels, empty=encoded(figure))
    else:
        shown = Picture(png, text, caption=caption)
    display(shown)  # type: ignore[no-untyped-call]
