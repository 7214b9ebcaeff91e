"""The encoder block, step by step, and its gradients over many blocks: lesson 5."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from npformer.backend import Array
from npformer.teaching.plots.lines import told_apart
from npformer.teaching.plots.style import FAINT, GRADIENT, INK, describe, in_style, new_figure, staged
from npformer.teaching.plots.tables import colours_of, write_number
from npformer.teaching.plots.words import range_in_words, said, sentence

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Steps = Sequence[tuple[str, Array]]  # what a step gives, in words or letters, and its numbers (T, d_model)
BETWEEN = 1.2  # columns from the table of one step to that of the next


@in_style
def dataflow(
    rows: Sequence[Steps], tokens: Sequence[str], *, residuals: Sequence[tuple[int, int]]
) -> "Figure":
    """The steps of a block, left to right and row below row, with every number.

    A path leads past the steps between each (from, to) of `residuals`, which are the same in every row.

    >>> steps = [("x", np.eye(2)), ("f = FFN(x)", np.ones((2, 2))), ("x + f", np.eye(2) + 1)]
    >>> figure = dataflow([steps], ["hot", "dog"], residuals=[(0, 2)])
    >>> [text.get_text() for text in figure.axes[0].texts if "x" in text.get_text()]
    ['x', 'f = FFN(x)', 'x + f']
    """
    T, d = np.shape(rows[0][0][1])
    longest = max(len(steps) for steps in rows)
    figure = new_figure(0.62 * longest * (d + BETWEEN) + 0.5, len(rows) * (0.52 * T + 1.2))
    largest = largest_of([values for steps in rows for _, values in steps])
    for axes, steps in zip(figure.subplots(len(rows), squeeze=False)[:, 0], rows, strict=True):
        draw_steps(axes, steps, tokens, residuals, largest)
        axes.set_xlim(-0.1, longest * (d + BETWEEN) - BETWEEN + 0.1)
        for j, (_, values) in enumerate(steps):
            for (row, column), value in np.ndenumerate(values):
                place = (j * (d + BETWEEN) + column + 0.5, row + 0.5)
                write_number(axes, place, value, 1, largest, size=15)
    return describe(figure, f"{T} words by {d} numbers at each step. {_steps_in_words(rows, residuals)}")


def _steps_in_words(rows: Sequence[Steps], residuals: Sequence[tuple[int, int]]) -> str:
    paths = " ".join(
        f"A path leads past {b - a - 1} from table {a + 1} to table {b + 1}." for a, b in residuals
    )
    told = (", then ".join(f"{name} ({range_in_words(values)})" for name, values in steps) for steps in rows)
    return f"{'. '.join(told)}. {paths}".strip()


def draw_steps(
    axes: "Axes",
    steps: Steps,
    tokens: Sequence[str],
    residuals: Sequence[tuple[int, int]],
    largest: float,
) -> None:
    """Tables with a name above each, an arrow from each to the next, and a path for each residual."""
    T, d = np.shape(steps[0][1])
    arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 2.5, "shrinkA": 0, "shrinkB": 0}
    for row, token in enumerate(tokens):
        axes.text(-0.25, row + 0.5, token, ha="right", va="center", fontsize=17)
    for j, (name, values) in enumerate(steps):
        left = j * (d + BETWEEN)
        _draw_table(axes, values, left, largest)
        axes.text(left + d / 2, -0.25, name, ha="center", va="bottom", fontsize=17)
        if j:
            axes.annotate("", (left - 0.15, T / 2), (left - BETWEEN + 0.15, T / 2), arrowprops=arrow)
    for ends in residuals:
        start, end = (j * (d + BETWEEN) + d / 2 for j in ends)
        axes.plot([start, start, end, end], [T, T + 0.7, T + 0.7, T + 0.5], color=INK, linewidth=2.5)
        axes.annotate("", (end, T + 0.08), (end, T + 0.7), arrowprops=arrow)
    axes.set(xlim=(-0.1, len(steps) * (d + BETWEEN) - BETWEEN + 0.1), ylim=(T + 0.8, -0.8))
    axes.axis("off")


def _draw_table(axes: "Axes", values: Array, left: float, largest: float) -> None:
    """Squares without numbers, a column wide and a row high, in one frame."""
    from matplotlib.patches import Rectangle

    T, d = np.shape(values)
    extent, colours = (left, left + d, T, 0), colours_of(np.array(largest), signed=True)
    axes.imshow(values, extent=extent, aspect="auto", interpolation="nearest", **colours)
    axes.vlines(left + np.arange(1, d), 0, T, color="white", linewidth=2)
    axes.hlines(np.arange(1, T), left, left + d, color="white", linewidth=2)
    axes.add_patch(Rectangle((left, 0), d, T, fill=False, edgecolor=INK, linewidth=3))


def largest_of(arrays: Sequence[Array]) -> float:
    """The end of one colour scale for all of them."""
    return max(colours_of(values, signed=True)["vmax"] for values in arrays)


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
    arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 2.5, "shrinkA": 0, "shrinkB": 0}
    end = fork = 0.0
    for part in parts:
        start = end + 0.45 if end else 0.0
        middle, end = start + BOXES.get(part, 0.5) / 2, start + BOXES.get(part, 0.5)
        if part != parts[0]:
            axes.annotate("", (start, 0), (start - 0.45, 0), arrowprops=arrow | NO_HEAD.get(part, {}))
        if part == "•":
            fork = middle
            continue
        if part == "+":
            axes.plot([fork, fork, middle], [0, 0.95, 0.95], color=INK, linewidth=2.5)
            axes.annotate("", (middle, 0.22), (middle, 0.95), arrowprops=arrow)
        around = {"boxstyle": "circle,pad=0.1" if part == "+" else "square,pad=0.3", "fc": FAINT, "ec": INK}
        box = around if part == "+" or part in BOXES else None
        axes.text(middle, 0, part, ha="center", va="center", fontsize=17, bbox=box)
    axes.set(xlim=(-0.1, end + 0.1), ylim=(-0.5, 1.1))
    axes.axis("off")


NO_HEAD = {"•": {"arrowstyle": "-"}}  # the line goes on there


DEPTH = ((GRADIENT, "-"), (INK, "--"), ("#CC79A7", ":"))  # kinds of block, in pictures of their gradients


ENDS = "zero from the next block on"  # what a mark at the end of a line says


@in_style
def gradient_by_depth(panels: Mapping[str, Mapping[str, Array]], *, across: int = 2) -> "Figure":
    """The size of a gradient at each block, on a logarithmic axis: {title: {label: sizes (n_layers,)}}.

    `across` panels stand in a row and share its axis; the first panel has every label, at most three. Sizes
    from which on a gradient is zero, but for rounding, are NaN: the line ends there, with a mark.

    >>> gradient_by_depth({"of x": {"pre-norm": np.array([1.0, 0.1])}}).axes[0].get_yscale()
    'log'
    """
    across = min(across, len(panels))
    down = math.ceil(len(panels) / across)
    figure = new_figure(6 * across, 2.7 * down + 1)
    grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey="row")
    marks = {}
    for axes, (title, lines) in zip(grid.ravel(), panels.items(), strict=True):
        for (colour, line), (label, sizes) in told_apart(lines, DEPTH):
            axes.plot(sizes, line, color=colour, label=label)
            if (end := last_block(sizes)) < len(sizes) - 1:
                marks[ENDS] = axes.scatter(end, sizes[end], marker="X", s=150, color=INK, zorder=3)
        axes.set(title=title, yscale="log")
        axes.grid(color=FAINT)
    for row in grid:
        row[0].set_ylabel("size of the gradient")
    for axes in grid[-1]:
        axes.set_xlabel("block (0 reads the words)")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    entries = [*handles, *marks.values()], [*labels, *marks]
    figure.legend(*entries, loc="outside lower center", ncols=4, columnspacing=1 if staged() else 2)
    return describe(figure, _depth_in_words(panels))


def last_block(sizes: Array) -> int:
    """The last block whose gradient is not NaN.

    >>> last_block(np.array([3.0, 2.0, np.nan]))
    1
    """
    return int(np.flatnonzero(~np.isnan(sizes))[-1])


def _depth_in_words(panels: Mapping[str, Mapping[str, Array]]) -> str:
    return ". ".join(
        sentence(title, *(_line_in_words(label, sizes) for label, sizes in lines.items()))
        for title, lines in panels.items()
    )


def _line_in_words(label: str, sizes: Array) -> str:
    end = last_block(sizes)
    stop = f", {ENDS}" if end < len(sizes) - 1 else ""
    return f"{label} {_size(sizes[0])} at block 0, {_size(sizes[end])} at block {end}{stop}"


def _size(value: float) -> str:
    return said(value, 0) if value >= 1 else f"{value:.0e}"
