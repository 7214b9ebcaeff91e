"""The encoder block step by step, and the feed-forward network, a lane for each token: lessons 3 and 5."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from npformer.backend import Array
from npformer.lessons.plots.colours import FAINT, INK, MEANING, POSITION
from npformer.lessons.plots.squares import draw_framed, largest_of, write_numbers
from npformer.lessons.plots.style import describe, in_style, new_figure, staged
from npformer.lessons.plots.words import said

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ARROW: dict[str, Any] = {"arrowstyle": "-|>", "color": INK, "linewidth": 2.5, "shrinkA": 0, "shrinkB": 0}
MIDDLE: dict[str, Any] = {"ha": "center", "va": "center"}


PARTS = {  # of a block, as x meets them; a dot is where a residual leaves, a plus where it comes back
    "post": ("x", "•", "attention", "+", "s", "norm", "h", "•", "FFN", "+", "t", "norm", "y"),
    "pre": ("x", "•", "norm", "attention", "+", "h", "•", "norm", "FFN", "+", "y"),
}
BOXES = {"attention": 2.0, "norm": 1.2, "FFN": 1.0, "•": 0.0}  # how wide; letters and pluses are 0.5


@in_style
def block_diagram(*norms: str) -> "Figure":
    """The stations of a block, left to right, its residuals above them: a row for "post", for "pre".

    >>> block_diagram("post").axes[0].get_title(loc="left")
    'post-norm'
    """
    figure = new_figure(11, 1.75 * len(norms))
    for axes, norm in zip(figure.subplots(len(norms), squeeze=False)[:, 0], norms, strict=True):
        _draw_stations(axes, PARTS[norm])
        axes.set_title(f"{norm}-norm", loc="left")
    told = (f"{norm}-norm: {' '.join(PARTS[norm])}." for norm in norms)
    return describe(figure, f"{' '.join(told)} In a row 2 residuals lead above, from • to the next +.")


def _draw_stations(axes: "Axes", parts: Sequence[str]) -> None:
    end = fork = 0.0
    for part in parts:
        start = end + 0.45 if end else 0.0
        middle, end = start + BOXES.get(part, 0.5) / 2, start + BOXES.get(part, 0.5)
        if part != parts[0]:
            head = {"arrowstyle": "-"} if part == "•" else {}  # the line goes on there
            axes.annotate("", (start, 0), (start - 0.45, 0), arrowprops=ARROW | head)
        if part == "•":
            fork = middle
            continue
        if part == "+":
            axes.plot([fork, fork, middle], [0, 0.95, 0.95], color=INK, linewidth=2.5)
            axes.annotate("", (middle, 0.22), (middle, 0.95), arrowprops=ARROW)
        around = {"boxstyle": "circle,pad=0.1" if part == "+" else "square,pad=0.3", "fc": FAINT, "ec": INK}
        box = around if part == "+" or part in BOXES else None
        axes.text(middle, 0, part, fontsize=17, bbox=box, **MIDDLE)
    axes.set(xlim=(-0.1, end + 0.1), ylim=(-0.5, 1.1))
    axes.axis("off")


GAPS = 0.9, 1.8, 0.9, 2.0  # in squares: a sign, the FFN, an arrow, the words at the left
STAGE_GAPS = 0.6, 1.15, 0.5, 1.25


@in_style
def lanes(meaning: Array, position: Array, output: Array, tokens: Sequence[str]) -> "Figure":
    """A lane a token: meaning + order tag go through one shared network: three arrays (T, d_model).

    >>> len(lanes(np.eye(2), np.eye(2), np.eye(2), ["hot", "dog"]).axes[0].get_images())
    8
    """
    (T, d), total = np.shape(meaning), meaning + position
    figure = new_figure(12, 1.2 * T + 1)
    axes = figure.add_subplot()
    sign, box, arrow, words = STAGE_GAPS if staged() else GAPS
    inside = 3 * d + 2 * sign + arrow  # where the FFN begins
    starts = (0.0, d + sign, 2 * (d + sign), inside + box + arrow)
    names, inks = ("meaning", "order tag", "input", "output"), (MEANING, POSITION, INK, INK)
    tables = (meaning, position, total, output)
    for start, name, ink, rows in zip(starts, names, inks, tables, strict=True):
        axes.text(start + d / 2, -0.62, name, ha="center", color=ink, fontsize=19, fontweight="bold")
        for lane, row in enumerate(rows):
            _draw_strip(axes, row, start, lane, largest_of(tables), ink)
            write_numbers(axes, row[None], largest_of(tables), 1, 13, left=start + 0.5, top=lane)
    for lane, token in enumerate(tokens):
        axes.text(-0.3, lane, token, ha="right", va="center", fontsize=19)
        _join_strips(axes, lane, d, sign, box, arrow)
    axes.text(inside + box / 2, -0.62, "one FFN", ha="center", fontsize=19, fontweight="bold")
    axes.hlines(np.arange(T - 1) + 0.5, -words, starts[-1] + d, color=FAINT, linewidth=2, linestyle="dashed")
    axes.set(xlim=(-words - 0.1, starts[-1] + d + 0.1), ylim=(T - 0.5, -1))
    axes.axis("off")
    return describe(figure, _lanes_in_words(total, output, tokens))


def _lanes_in_words(total: Array, output: Array, tokens: Sequence[str]) -> str:
    read = [[", ".join(said(value, 1) for value in row) for row in table] for table in (total, output)]
    told = "; ".join(f"{token}: {a} in, {b} out" for token, a, b in zip(tokens, *read, strict=True))
    no_way = f"{len(tokens)} lanes, no arrow from one to another"
    return f"{no_way}; in each, meaning plus order tag enters an FFN. {told}"


def _draw_strip(axes: "Axes", row: Array, left: float, y: float, largest: float, frame: str = INK) -> None:
    """A row of numbers as flat squares, around the height y."""
    draw_framed(axes, row[None], largest, left, y - 0.28, high=0.56, edgecolor=frame, linewidth=3.5)


def _join_strips(axes: "Axes", lane: float, d: int, sign: float, box: float, arrow: float) -> None:
    """meaning + order tag = input → FFN → output, all at the height of one lane."""
    from matplotlib.patches import FancyBboxPatch

    for x, name in ((d + sign / 2, "+"), (2 * d + 1.5 * sign, "=")):
        axes.text(x, lane, name, fontsize=22, **MIDDLE)
    before = 3 * d + 2 * sign  # the input ends there
    corner = (before + arrow, lane - 0.25)
    patch = FancyBboxPatch(corner, box, 0.5, boxstyle="round,pad=0,rounding_size=0.1")
    patch.set(facecolor="#F2F2F2", edgecolor=INK, linewidth=2.5)
    axes.add_patch(patch)
    axes.text(before + arrow + box / 2, lane, "FFN", fontsize=17, **MIDDLE)
    for tail in (before + 0.1, before + arrow + box + 0.05):
        axes.annotate("", (tail + arrow - 0.15, lane), (tail, lane), arrowprops=ARROW | {"linewidth": 2})


@in_style
def hourglass(x: Array, hidden: Array, y: Array) -> "Figure":
    """One token on its way through the feed-forward network: x (d_model,), hidden (d_ff,), y (d_model,).

    >>> hourglass(np.ones(2), np.array([1.0, 0.0, 2.0]), np.ones(2)).axes[0].texts[1].get_text()
    'hidden: 3 numbers, 2 of them above 0'
    """
    from matplotlib.patches import Polygon

    on, wide, narrow = int((hidden > 0).sum()), len(hidden), len(x)
    figure = new_figure(12, 4.6)
    axes = figure.add_subplot()
    left = (wide - narrow) / 2
    middle = f"hidden: {wide} numbers, {on} of them above 0"
    names = (f"in: {narrow} numbers", middle, f"out: {narrow} numbers")
    for row, (values, start, name) in enumerate(zip((x, hidden, y), (left, 0, left), names, strict=True)):
        axes.text(wide / 2, 1.3 * row - 0.36, name, ha="center", va="bottom", fontsize=17)
        _draw_strip(axes, values, start, 1.3 * row, largest_of([values]))
    for narrow_end, wide_end in ((0.28, 1.02), (2.32, 1.58)):
        corners = [(left, narrow_end), (left + narrow, narrow_end), (wide, wide_end), (0, wide_end)]
        axes.add_patch(Polygon(corners, facecolor="#F2F2F2", zorder=0))
    axes.set(xlim=(-0.4, wide + 0.4), ylim=(2.95, -0.8))
    axes.axis("off")
    return describe(figure, f"one row from top to bottom, narrow, wide, narrow: {'; '.join(names)}")
