"""Draw an encoder block step by step with every number, as a figure and as a part of the banner."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from npformer.backend import Array
from npformer.lessons.plots.block import ARROW
from npformer.lessons.plots.colours import INK
from npformer.lessons.plots.squares import draw_framed, largest_of, write_numbers
from npformer.lessons.plots.style import describe, in_style, new_figure
from npformer.lessons.plots.words import range_in_words

Steps = Sequence[tuple[str, Array]]  # the label of each step, and its result (T, d_model)
BETWEEN = 1.2  # the distance between the tables of two steps, in columns


@in_style
def dataflow(rows: Sequence[Steps], tokens: Sequence[str], *, residuals: Sequence[tuple[int, int]]) -> Figure:
    """Draw the steps of a block from left to right in rows, with every number.

    Each pair (from, to) of `residuals` is drawn as a path around the steps in between, in every row.
    """
    T, d = np.shape(rows[0][0][1])
    longest = max(len(steps) for steps in rows)
    figure = new_figure(0.62 * longest * (d + BETWEEN) + 0.5, len(rows) * (0.52 * T + 1.2))
    largest = largest_of(values for steps in rows for _, values in steps)
    for axes, steps in zip(figure.subplots(len(rows), squeeze=False)[:, 0], rows, strict=True):
        draw_steps(axes, steps, tokens, residuals, largest)
        axes.set_xlim(-0.1, longest * (d + BETWEEN) - BETWEEN + 0.1)
        for j, (_, values) in enumerate(steps):
            write_numbers(axes, values, largest, 1, 15, left=j * (d + BETWEEN) + 0.5, top=0.5)
    return describe(figure, f"{T} words by {d} numbers at each step. {_steps_in_words(rows, residuals)}")


def _steps_in_words(rows: Sequence[Steps], residuals: Sequence[tuple[int, int]]) -> str:
    paths = " ".join(
        f"A path leads past {b - a - 1} from table {a + 1} to table {b + 1}." for a, b in residuals
    )
    told = (", then ".join(f"{name} ({range_in_words(values)})" for name, values in steps) for steps in rows)
    return f"{'. '.join(told)}. {paths}".strip()


def draw_steps(
    axes: Axes,
    steps: Steps,
    tokens: Sequence[str],
    residuals: Sequence[tuple[int, int]],
    largest: float,
) -> None:
    """Draw a labelled table per step, an arrow to the next step, and a path for each residual connection."""
    T, d = np.shape(steps[0][1])
    for row, token in enumerate(tokens):
        axes.text(-0.25, row + 0.5, token, ha="right", va="center", fontsize=17)
    for j, (name, values) in enumerate(steps):
        left = j * (d + BETWEEN)
        draw_framed(axes, values, largest, left)
        axes.text(left + d / 2, -0.25, name, ha="center", va="bottom", fontsize=17)
        if j:
            axes.annotate("", (left - 0.15, T / 2), (left - BETWEEN + 0.15, T / 2), arrowprops=ARROW)
    for ends in residuals:
        start, end = (j * (d + BETWEEN) + d / 2 for j in ends)
        axes.plot([start, start, end, end], [T, T + 0.7, T + 0.7, T + 0.5], color=INK, linewidth=2.5)
        axes.annotate("", (end, T + 0.08), (end, T + 0.7), arrowprops=ARROW)
    axes.set(xlim=(-0.1, len(steps) * (d + BETWEEN) - BETWEEN + 0.1), ylim=(T + 0.8, -0.8))
    axes.axis("off")
