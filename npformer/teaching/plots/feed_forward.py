"""The feed-forward network, a lane for each token: lesson 3."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from npformer.backend import Array
from npformer.teaching.plots.style import (
    FAINT,
    INK,
    MEANING,
    POSITION,
    describe,
    in_style,
    new_figure,
    staged,
)
from npformer.teaching.plots.tables import colours_of, write_number
from npformer.teaching.plots.words import said

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAPS = 0.9, 1.8, 0.9, 2.0  # in squares: a sign, the FFN, an arrow, the words at the left
STAGE_GAPS = 0.6, 1.15, 0.5, 1.25


@in_style
def lanes(meaning: Array, position: Array, output: Array, tokens: Sequence[str]) -> "Figure":
    """A lane a token: meaning + order tag go through one shared network: three arrays (T, d_model).

    >>> len(lanes(np.eye(2), np.eye(2), np.eye(2), ["hot", "dog"]).axes[0].get_images())
    8
    """
    T, d = np.shape(meaning)
    total = meaning + position
    figure = new_figure(12, 1.2 * T + 1)
    axes = figure.add_subplot()
    colours = colours_of(np.stack([meaning, position, total, output]), signed=True)
    sign, box, arrow, words = STAGE_GAPS if staged() else GAPS
    inside = 3 * d + 2 * sign + arrow  # where the FFN begins
    starts = (0.0, d + sign, 2 * (d + sign), inside + box + arrow)
    names = {"meaning": MEANING, "order tag": POSITION, "input": INK, "output": INK}
    for start, (name, ink), rows in zip(
        starts, names.items(), (meaning, position, total, output), strict=True
    ):
        axes.text(start + d / 2, -0.62, name, ha="center", color=ink, fontsize=19, fontweight="bold")
        for lane, row in enumerate(rows):
            _draw_strip(axes, row, start, lane, ink, colours)
            _write_strip(axes, row, start, lane, colours["vmax"])
    for lane, token in enumerate(tokens):
        axes.text(-0.3, lane, token, ha="right", va="center", fontsize=19)
        _join_strips(axes, lane, d, sign, box, arrow)
    axes.text(inside + box / 2, -0.62, "one FFN", ha="center", fontsize=19, fontweight="bold")
    axes.hlines(np.arange(T - 1) + 0.5, -words, starts[-1] + d, color=FAINT, linewidth=2, linestyle="dashed")
    axes.set(xlim=(-words - 0.1, starts[-1] + d + 0.1), ylim=(T - 0.5, -1))
    axes.axis("off")
    return describe(figure, _lanes_in_words(total, output, tokens))


def _lanes_in_words(total: Array, output: Array, tokens: Sequence[str]) -> str:
    lanes = (
        f"{token}: {_numbers(before)} in, {_numbers(after)} out"
        for token, before, after in zip(tokens, total, output, strict=True)
    )
    start = (
        f"{len(tokens)} lanes, no arrow from one to another; in each, meaning plus order tag enters an FFN"
    )
    return f"{start}. " + "; ".join(lanes)


def _numbers(row: Array) -> str:
    return ", ".join(said(value, 1) for value in row)


def _draw_strip(
    axes: "Axes", row: Array, start: float, y: float, frame: str, colours: Mapping[str, Any]
) -> None:
    """A row of numbers as squares, with one frame around them."""
    from matplotlib.patches import Rectangle

    extent = (start, start + len(row), y + 0.28, y - 0.28)
    axes.imshow(row[None], extent=extent, aspect="auto", interpolation="nearest", **colours)
    axes.vlines(start + np.arange(1, len(row)), y - 0.28, y + 0.28, color="white", linewidth=2)
    axes.add_patch(Rectangle((start, y - 0.28), len(row), 0.56, fill=False, edgecolor=frame, linewidth=3.5))


def _write_strip(axes: "Axes", row: Array, start: float, y: float, largest: float) -> None:
    for column, value in enumerate(row):
        write_number(axes, (start + column + 0.5, y), value, 1, largest, size=13)


def _join_strips(axes: "Axes", lane: float, d: int, sign: float, box: float, arrow: float) -> None:
    """meaning + order tag = input → FFN → output, all at the height of one lane."""
    from matplotlib.patches import FancyBboxPatch

    for x, name in ((d + sign / 2, "+"), (2 * d + 1.5 * sign, "=")):
        axes.text(x, lane, name, ha="center", va="center", fontsize=22)
    before = 3 * d + 2 * sign  # the input ends there
    corner = (before + arrow, lane - 0.25)
    patch = FancyBboxPatch(corner, box, 0.5, boxstyle="round,pad=0,rounding_size=0.1")
    patch.set(facecolor="#F2F2F2", edgecolor=INK, linewidth=2.5)
    axes.add_patch(patch)
    axes.text(before + arrow + box / 2, lane, "FFN", ha="center", va="center", fontsize=17)
    line = {"arrowstyle": "-|>", "color": INK, "linewidth": 2, "shrinkA": 0, "shrinkB": 0}
    for tail in (before + 0.1, before + arrow + box + 0.05):
        axes.annotate("", (tail + arrow - 0.15, lane), (tail, lane), arrowprops=line)


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
        _draw_strip(axes, values, start, 1.3 * row, INK, colours_of(values, signed=True))
    for narrow_end, wide_end in ((0.28, 1.02), (2.32, 1.58)):
        corners = [(left, narrow_end), (left + narrow, narrow_end), (wide, wide_end), (0, wide_end)]
        axes.add_patch(Polygon(corners, facecolor="#F2F2F2", zorder=0))
    axes.set(xlim=(-0.4, wide + 0.4), ylim=(2.95, -0.8))
    axes.axis("off")
    return describe(figure, f"one row from top to bottom, narrow, wide, narrow: {'; '.join(names)}")
