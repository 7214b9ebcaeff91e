"""Diagrams of the encoder block and of the feed-forward network, for lessons 3 and 5."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.lessons.plots.colours import FAINT, INK, MEANING, POSITION
from npformer.lessons.plots.squares import draw_framed, largest_of, write_numbers
from npformer.lessons.plots.style import describe, in_style, is_for_slides, new_figure
from npformer.lessons.plots.words import format_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ARROW: dict[str, Any] = {"arrowstyle": "-|>", "color": INK, "linewidth": 2.5, "shrinkA": 0, "shrinkB": 0}
MIDDLE: dict[str, Any] = {"ha": "center", "va": "center"}


PARTS = {  # the parts of a block in order; a residual connection leads from each dot to the next plus
    "post": ("x", "•", "attention", "a", "+", "s", "norm", "h", "•", "FFN", "f", "+", "t", "norm", "y"),
    "pre": ("x", "•", "norm", "attention", "a", "+", "h", "•", "norm", "FFN", "f", "+", "y"),
}
WIDTHS = {"attention": 2.0, "norm": 1.2, "FFN": 1.0, "•": 0.0}  # all other parts have width 0.5


@in_style
def block_diagram(*norms: str) -> "Figure":
    """Draw the parts of a block from left to right, with the residual connections above them.

    Parameters
    ----------
    norms : "post" or "pre"
        The blocks to draw, one row each.

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> block_diagram("post").axes[0].get_title(loc="left")
    'post-norm'
    """
    figure = new_figure(11, 1.75 * len(norms))
    for axes, norm in zip(figure.subplots(len(norms), squeeze=False)[:, 0], norms, strict=True):
        _draw_parts(axes, PARTS[norm])
        axes.set_title(f"{norm}-norm", loc="left")
    texts = " ".join(f"{norm}-norm: {' '.join(PARTS[norm])}." for norm in norms)
    lines = "In each row, 2 residual connections lead above the parts from • to the next +."
    return describe(figure, f"{texts} {lines}")


def _draw_parts(axes: "Axes", parts: Sequence[str]) -> None:
    end = fork = 0.0
    for i, part in enumerate(parts):
        width = WIDTHS.get(part, 0.5)
        start = 0.0 if i == 0 else end + 0.45
        middle = start + width / 2
        end = start + width
        if i > 0:
            # A line that ends at a dot has no arrowhead, because the next line continues there.
            style = ARROW | {"arrowstyle": "-"} if part == "•" else ARROW
            axes.annotate("", (start, 0), (start - 0.45, 0), arrowprops=style)
        if part == "•":
            fork = middle
            continue
        if part == "+":
            _draw_residual(axes, fork, middle)
        axes.text(middle, 0, part, fontsize=17, bbox=_box_of(part), **MIDDLE)
    axes.set(xlim=(-0.1, end + 0.1), ylim=(-0.5, 1.1))
    axes.axis("off")


def _draw_residual(axes: "Axes", start: float, end: float) -> None:
    axes.plot([start, start, end], [0, 0.95, 0.95], color=INK, linewidth=2.5)
    axes.annotate("", (end, 0.22), (end, 0.95), arrowprops=ARROW)


def _box_of(part: str) -> dict[str, Any] | None:
    """Return the style of the box around a part; None for a letter, which has no box."""
    if part == "+":
        return {"boxstyle": "circle,pad=0.1", "fc": FAINT, "ec": INK}
    if part in WIDTHS:
        return {"boxstyle": "square,pad=0.3", "fc": FAINT, "ec": INK}
    return None


class _Gaps(NamedTuple):
    """The widths of the signs, arrows and words around the tables in `lanes`. A square has width 1."""

    sign: float  # a plus sign or an equals sign
    ffn: float
    arrow: float
    words: float  # the words at the left


GAPS = _Gaps(sign=0.9, ffn=1.8, arrow=0.9, words=2.0)
STAGE_GAPS = _Gaps(sign=0.6, ffn=1.15, arrow=0.5, words=1.25)


@in_style
def lanes(meaning: Array, position: Array, output: Array, tokens: Sequence[str]) -> "Figure":
    """Draw one lane per token: meaning + order tag go through one shared feed-forward network.

    Parameters
    ----------
    meaning : float array (T, d_model)
        The embeddings.
    position : float array (T, d_model)
        The positional encoding, or order tag.
    output : float array (T, d_model)
        The output of the network.
    tokens : sequence of str

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> len(lanes(np.eye(2), np.eye(2), np.eye(2), ["hot", "dog"]).axes[0].get_images())
    8
    """
    T, d = np.shape(meaning)
    total = meaning + position
    gaps = STAGE_GAPS if is_for_slides() else GAPS
    ffn_start = 3 * d + 2 * gaps.sign + gaps.arrow
    output_start = ffn_start + gaps.ffn + gaps.arrow
    figure = new_figure(12, 1.2 * T + 1)
    axes = figure.add_subplot()
    largest = largest_of((meaning, position, total, output))
    _draw_column(axes, meaning, "meaning", 0.0, largest, MEANING)
    _draw_column(axes, position, "order tag", d + gaps.sign, largest, POSITION)
    _draw_column(axes, total, "input", 2 * (d + gaps.sign), largest, INK)
    _draw_column(axes, output, "output", output_start, largest, INK)
    for lane, token in enumerate(tokens):
        axes.text(-0.3, lane, token, ha="right", va="center", fontsize=19)
        _join_strips(axes, lane, d, gaps)
    axes.text(ffn_start + gaps.ffn / 2, -0.62, "FFN", ha="center", fontsize=19, fontweight="bold")
    left, right = -gaps.words, output_start + d
    axes.hlines(np.arange(T - 1) + 0.5, left, right, color=FAINT, linewidth=2, linestyle="dashed")
    axes.set(xlim=(left - 0.1, right + 0.1), ylim=(T - 0.5, -1))
    axes.axis("off")
    return describe(figure, _lanes_in_words(total, output, tokens))


def _lanes_in_words(total: Array, output: Array, tokens: Sequence[str]) -> str:
    texts = []
    for token, inputs, outputs in zip(tokens, total, output, strict=True):
        texts.append(f"{token}: {_join_numbers(inputs)} in, {_join_numbers(outputs)} out")
    no_arrow = f"{len(tokens)} lanes, no arrow from one to another"
    return f"{no_arrow}; in each, meaning plus order tag enters an FFN. {'; '.join(texts)}"


def _join_numbers(row: Array) -> str:
    return ", ".join(format_value(value, 1) for value in row)


def _draw_column(axes: "Axes", table: Array, title: str, left: float, largest: float, colour: str) -> None:
    """Draw one table of `lanes`: a strip of numbered squares in each lane, below a title."""
    d = np.shape(table)[1]
    axes.text(left + d / 2, -0.62, title, ha="center", color=colour, fontsize=19, fontweight="bold")
    for lane, row in enumerate(table):
        _draw_strip(axes, row, left, lane, largest, colour)
        write_numbers(axes, row[None], largest, 1, 13, left=left + 0.5, top=lane)


def _draw_strip(axes: "Axes", row: Array, left: float, y: float, largest: float, frame: str = INK) -> None:
    """Draw a row of numbers as flat rectangles, centred at the height y."""
    draw_framed(axes, row[None], largest, left, y - 0.28, high=0.56, edgecolor=frame, linewidth=3.5)


def _join_strips(axes: "Axes", lane: float, d: int, gaps: _Gaps) -> None:
    """Draw the symbols between the strips of one lane: meaning + order tag = input → FFN → output."""
    from matplotlib.patches import FancyBboxPatch

    axes.text(d + gaps.sign / 2, lane, "+", fontsize=22, **MIDDLE)
    axes.text(2 * d + 1.5 * gaps.sign, lane, "=", fontsize=22, **MIDDLE)
    input_end = 3 * d + 2 * gaps.sign
    ffn_start = input_end + gaps.arrow
    ffn_end = ffn_start + gaps.ffn
    corner = (ffn_start, lane - 0.25)
    patch = FancyBboxPatch(corner, gaps.ffn, 0.5, boxstyle="round,pad=0,rounding_size=0.1")
    patch.set(facecolor="#F2F2F2", edgecolor=INK, linewidth=2.5)
    axes.add_patch(patch)
    axes.text(ffn_start + gaps.ffn / 2, lane, "FFN", fontsize=17, **MIDDLE)
    for tail in (input_end + 0.1, ffn_end + 0.05):
        tip = tail + gaps.arrow - 0.15
        axes.annotate("", (tip, lane), (tail, lane), arrowprops=ARROW | {"linewidth": 2})


@in_style
def hourglass(x: Array, hidden: Array, y: Array) -> "Figure":
    """Draw the row of one token in the feed-forward network: narrow, wide, narrow.

    Parameters
    ----------
    x : float array (d_model,)
        The input.
    hidden : float array (d_ff,)
        The hidden layer.
    y : float array (d_model,)
        The output.

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> hourglass(np.ones(2), np.array([1.0, 0.0, 2.0]), np.ones(2)).axes[0].texts[1].get_text()
    'hidden: 3 numbers, 2 of them above 0'
    """
    from matplotlib.patches import Polygon

    wide, narrow = len(hidden), len(x)
    n_active = int((hidden > 0).sum())
    names = (
        f"in: {narrow} numbers",
        f"hidden: {wide} numbers, {n_active} of them above 0",
        f"out: {narrow} numbers",
    )
    figure = new_figure(12, 4.6)
    axes = figure.add_subplot()
    left = (wide - narrow) / 2
    strips = zip((x, hidden, y), (left, 0, left), names, strict=True)
    for row, (values, start, name) in enumerate(strips):
        axes.text(wide / 2, 1.3 * row - 0.36, name, ha="center", va="bottom", fontsize=17)
        _draw_strip(axes, values, start, 1.3 * row, largest_of([values]))
    # Each of the two grey funnels has a narrow end and a wide end at these heights.
    for narrow_end, wide_end in ((0.28, 1.02), (2.32, 1.58)):
        corners = [(left, narrow_end), (left + narrow, narrow_end), (wide, wide_end), (0, wide_end)]
        axes.add_patch(Polygon(corners, facecolor="#F2F2F2", zorder=0))
    axes.set(xlim=(-0.4, wide + 0.4), ylim=(2.95, -0.8))
    axes.axis("off")
    return describe(figure, f"one row from top to bottom, narrow, wide, narrow: {'; '.join(names)}")
