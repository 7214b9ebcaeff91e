"""The house style: which colour means what, how large letters are, and how a figure becomes a file.

One visual language for every lesson. Sine is blue, cosine orange, position green, meaning grey and a gradient
red, always; signed values lie on a diverging map centred at zero, weights on a sequential one. The colours
are Okabe and Ito's, which colour-blind readers tell apart. matplotlib is imported when a picture is drawn,
and pyplot never is, so a figure leaves no state behind.
"""

import functools
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from IPython.display import Image
    from matplotlib.figure import Figure

P = ParamSpec("P")
R = TypeVar("R")

SINE, COSINE, POSITION, MEANING, GRADIENT = "#0072B2", "#E69F00", "#009E73", "#7F7F7F", "#D55E00"
INK, FAINT = "#1A1A1A", "#D9D9D9"
SIGNED_MAP, WEIGHT_MAP = "RdBu_r", "Purples"

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


@in_style
def encoded(figure: "Figure", kind: str = "png") -> bytes:
    """The figure as the bytes of a "png" or "svg" file; nothing in them names the day or the software."""
    metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    file = io.BytesIO()
    figure.draw_without_rendering()  # the layout settles in two passes: this one and the one below
    figure.savefig(file, format=kind, dpi=100, metadata=metadata)
    return file.getvalue()


def picture(figure: "Figure", alt: str) -> "Image":
    """The figure as a notebook shows it, with a description for those who cannot see it."""
    from IPython.display import Image

    return Image(data=encoded(figure), format="png", alt=alt)  # type: ignore[no-untyped-call]
