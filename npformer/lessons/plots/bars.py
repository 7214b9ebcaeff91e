"""Bars, time spans and tiles, for lessons 7, 9 and 10."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from npformer.backend import Array
from npformer.lessons.plots.colours import COSINE, FAINT, INK
from npformer.lessons.plots.lines import assign_styles
from npformer.lessons.plots.style import describe, in_style, make_panels, new_figure
from npformer.lessons.plots.words import format_small, format_value, panels_in_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@in_style
def confidence(probabilities: Mapping[str, Array], *, mark: float | None = None) -> "Figure":
    """Draw how confident a model is: a histogram of the probabilities of the tokens that it chose.

    Parameters
    ----------
    probabilities : mapping of float arrays (n,)
        The probabilities of each panel, by its title.
    mark : float, optional
        A probability to mark with a vertical line.

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> [axes.get_title() for axes in confidence({"sure": np.ones(9)}, mark=0.9).axes]
    ['sure']
    """
    width = 13 if len(probabilities) > 1 else 8
    figure, panels = make_panels(probabilities, width, 3.9, sharey=True)
    for axes, values in panels:
        percent_per_token = np.full(len(values), 100 / len(values))
        axes.hist(values, bins=np.linspace(0, 1, 41).tolist(), weights=percent_per_token, color="#CC79A7")
        if mark is not None:
            axes.axvline(mark, color=INK, linewidth=2, linestyle="dashed")
            axes.text(mark - 0.02, 60, f"{mark:.3f}", ha="right")
        axes.set(xlabel="probability of the chosen token", xlim=(0, 1.01))
        axes.grid(color=FAINT, axis="y")
        axes.set_axisbelow(True)
    figure.axes[0].set_ylabel("tokens (%)")
    return describe(figure, panels_in_words(probabilities, _histogram_in_words))


def _histogram_in_words(values: Array) -> str:
    """Return the mean and the quartiles of the probabilities as text."""
    numbers = (values.mean(), *np.quantile(values, [0.25, 0.75]))
    mean, low, high = (format_value(number, 3) for number in numbers)
    return f"{mean} on average; half from {low} to {high}"


@in_style
def next_token(shares: Mapping[str, Array], tokens: Sequence[str]) -> "Figure":
    """Draw the probabilities of a few next tokens as bars, one panel for each way of sampling.

    Parameters
    ----------
    shares : mapping of float arrays (len(tokens),)
        The probabilities of each panel, by its title.
    tokens : sequence of str
        The tokens.

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> [axes.get_title() for axes in next_token({"T = 1": np.array([0.75, 0.25])}, ["a", "b"]).axes]
    ['T = 1']
    """
    figure, panels = make_panels(shares, 12, 0.36 * len(tokens) + 1.4, sharey=True)
    for axes, p in panels:
        axes.barh(range(len(tokens)), p, color=INK)
        axes.set(xlim=(0, 1), xlabel="probability")
        axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        axes.set_yticks(range(len(tokens)), tokens)
    figure.axes[0].invert_yaxis()

    def describe_panel(p: Array) -> str:
        return ", ".join(
            f"{token.strip()} {format_small(share)}" for token, share in zip(tokens, p, strict=True)
        )

    return describe(figure, panels_in_words(shares, describe_panel))


@in_style
def timeline(panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]) -> "Figure":
    """Draw the times at which each processor works, on one time axis.

    Parameters
    ----------
    panels : mapping of mappings
        The panels by their titles. A panel maps the name of a processor to its time spans. A span is (start,
        end) in ms. A panel has at most three processors.

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> timeline({"one after the other": {"host": [(0, 1)], "device": [(1, 3)]}}).axes[0].get_xlabel()
    'time, ms'
    """
    height = 1.25 * len(panels) + 0.7
    figure, axes_and_spans = make_panels(panels, 11, height, across=1, loc="left", sharex=True)
    for axes, spans_of in axes_and_spans:
        for row, styled in enumerate(assign_styles(spans_of)):
            bars = [(start, end - start) for start, end in styled.values]
            axes.broken_barh(bars, (row - 0.4, 0.8), color=styled.colour, edgecolor="white", linewidth=1.5)
        axes.set_yticks(range(len(spans_of)), list(spans_of))
        axes.tick_params(axis="y", length=0, labelsize=15)
        axes.invert_yaxis()
        axes.grid(axis="x", color=FAINT)
        axes.set_axisbelow(True)
    axes.set_xlabel("time, ms")
    return describe(figure, panels_in_words(panels, _spans_in_words))


def _spans_in_words(spans_of: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Return the number of spans, their total length and the end of the last span, for each processor."""
    texts = []
    for name, spans in spans_of.items():
        total = format_value(sum(end - start for start, end in spans), 0)
        end_of_last = format_value(spans[-1][1], 0)
        texts.append(f"{name} works {len(spans)} times, {total} ms in all, until {end_of_last} ms")
    return "; ".join(texts)


FRAME = {"edgecolor": INK, "linewidth": 1.5}
LOOKS: dict[str, dict[str, Any]] = {
    "done": {"facecolor": "#BFD7E6", **FRAME},
    "in memory now": {"facecolor": COSINE, **FRAME},
    "to come": {"facecolor": FAINT, **FRAME},
    "never computed": {"facecolor": "white", "hatch": "//", **FRAME},
}


def tile_states(n_tiles: int, now: tuple[int, int]) -> Array:
    """Return the state of each tile of a causal table of scores. The states are the keys of LOOKS.

    The tiles are computed row by row, and `now` is the tile (row, column) that is being computed.

    >>> tile_states(2, (1, 0)).tolist()
    [['done', 'never computed'], ['in memory now', 'to come']]
    """
    row, column = np.indices((n_tiles, n_tiles))
    order = n_tiles * row + column
    states = np.where(order < n_tiles * now[0] + now[1], "done", "to come").astype(object)
    states[column > row] = "never computed"
    states[now] = "in memory now"
    return states


@in_style
def score_tiles(n_tiles: int, now: tuple[int, int]) -> "Figure":
    """Draw a causal table of scores that is computed tile by tile, row after row.

    Parameters
    ----------
    n_tiles : int
        The number of tiles in a row and in a column.
    now : tuple of two ints
        The row and the column of the tile that is in memory.

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> score_tiles(2, (1, 0)).axes[0].get_xlabel()
    'tiles of keys'
    """
    from matplotlib.patches import Rectangle

    states = tile_states(n_tiles, now)
    figure = new_figure(7.6, 4.1)
    axes = figure.add_subplot()
    for (row, column), state in np.ndenumerate(states):
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **LOOKS[state]))
    axes.set(xlim=(-0.5, n_tiles - 0.5), ylim=(n_tiles - 0.5, -0.5), aspect="equal")
    axes.set(xlabel="tiles of keys", ylabel="tiles of queries", xticks=[], yticks=[])
    legend_tiles = [Rectangle((0, 0), 1, 1, **look) for look in LOOKS.values()]
    axes.legend(legend_tiles, list(LOOKS), loc="center left", bbox_to_anchor=(1.02, 0.5))
    counts = ", ".join(f"{int((states == state).sum())} {state}" for state in LOOKS)
    return describe(figure, f"A table of {n_tiles} by {n_tiles} tiles: {counts}")
