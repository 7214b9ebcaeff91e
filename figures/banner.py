"""Draw the banner of the README: a position table, one of its rows as clock hands, the steps of a block."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from steps import Steps, draw_steps

from npformer.lessons.plots.colours import FAINT, POSITION
from npformer.lessons.plots.squares import draw_colours, largest_of
from npformer.lessons.plots.style import in_style, new_figure
from npformer.lessons.plots.waves import draw_clock


@in_style
def draw_banner(
    table: np.ndarray,
    p: int,
    pairs: Sequence[int],
    steps: Steps,
    tokens: Sequence[str],
    *,
    residuals: Sequence[tuple[int, int]],
) -> Figure:
    """Draw the table (n, d_model), some pairs of row p as clock hands, and the steps of a block.

    The picture is a white card on a transparent background, for light and dark pages.
    """
    figure = new_figure(16, 4.8)
    figure.set_layout_engine("none")  # every part is placed by hand
    card = draw_card(figure)
    left, bottom, width, height = 0.022, 0.075, 0.345, 0.755
    draw_marked_row(figure.add_axes((left, bottom, width, height)), table, p)
    n, d_model = np.shape(table)
    y = bottom + height * (1 - (p + 0.5) / n)
    card.plot([left + width, 0.44], [y, y], color=POSITION, linewidth=4)
    draw_clocks(figure, table[p], pairs, y)
    block = figure.add_axes((0.45, 0.05, 0.53, 0.345))
    draw_steps(block, steps, tokens, residuals, largest_of(values for _, values in steps))
    card.text(left, 0.875, f"{n} positions, {d_model} numbers each", fontsize=21)
    card.text(0.45, 0.875, f"position {p} as clock hands, fast to slow", fontsize=21, color=POSITION)
    card.text(0.45, 0.435, "one encoder block, a step at a time", fontsize=21)
    return figure


def draw_card(figure: Figure) -> Axes:
    """Draw a white card with round corners on a transparent background. Its axes go from 0 to 1."""
    figure.patch.set_alpha(0)
    card = figure.add_axes((0, 0, 1, 1), xlim=(0, 1), ylim=(0, 1))
    sheet = FancyBboxPatch(
        (0.002, 0.006), 0.996, 0.988, boxstyle="round,pad=0,rounding_size=0.015", mutation_aspect=16 / 4.8
    )
    sheet.set(facecolor="white", edgecolor=FAINT, linewidth=2)
    card.add_patch(sheet)
    card.axis("off")
    return card


def draw_marked_row(axes: Axes, table: np.ndarray, p: int) -> None:
    """Draw the table as a heat map with a frame around row p."""
    d_model = np.shape(table)[1]
    draw_colours(axes, table, largest_of([table]), interpolation="nearest")
    axes.add_patch(Rectangle((-0.5, p - 0.8), d_model, 1.6, fill=False, edgecolor=POSITION, linewidth=4))
    axes.axis("off")


def draw_clocks(figure: Figure, row: np.ndarray, pairs: Sequence[int], y: float) -> None:
    """Draw one clock per pair in a row at height y, and a legend of the colours."""
    width = 0.54 / len(pairs)
    for j, i in enumerate(pairs):
        dial = figure.add_axes((0.445 + j * width, y - 0.145, width, 0.29))
        draw_clock(dial, *row[2 * i : 2 * i + 2])
        dial.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2))
    handles, _ = dial.get_legend_handles_labels()
    figure.legend(
        handles[:2],
        ["sine", "cosine"],
        loc="center right",
        bbox_to_anchor=(0.985, 0.895),
        ncols=2,
        fontsize=17,
        handlelength=1.2,
        columnspacing=1.2,
    )
