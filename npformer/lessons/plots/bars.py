"""Bars, spans and tiles: how much, when, and how far. Lessons 7, 9 and 10."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from npformer.backend import Array
from npformer.lessons.plots.colours import COSINE, FAINT, INK
from npformer.lessons.plots.lines import told_apart
from npformer.lessons.plots.style import describe, in_panels, in_style, new_figure
from npformer.lessons.plots.words import each_in_words, said

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@in_style
def confidence(probabilities: Mapping[str, Array], *, mark: float | None = None) -> "Figure":
    """How sure a model is of the token it chooses, a histogram a panel: {title: probabilities (n,)}.

    >>> [axes.get_title() for axes in confidence({"sure": np.ones(9)}, mark=0.9).axes]
    ['sure']
    """
    figure, beside = in_panels(probabilities, 13 if len(probabilities) > 1 else 8, 3.9, sharey=True)
    for axes, values in beside:
        share = np.full(len(values), 100 / len(values))
        axes.hist(values, bins=np.linspace(0, 1, 41).tolist(), weights=share, color="#CC79A7")
        if mark is not None:
            axes.axvline(mark, color=INK, linewidth=2, linestyle="dashed")
            axes.text(mark - 0.02, 60, f"{mark:.3f}", ha="right")
        axes.set(xlabel="probability of the chosen token", xlim=(0, 1.01))
        axes.grid(color=FAINT, axis="y")
        axes.set_axisbelow(True)
    figure.axes[0].set_ylabel("tokens (%)")
    return describe(figure, each_in_words(probabilities, _heap_in_words))


def _heap_in_words(values: Array) -> str:
    """Where the middle half of the tokens lies."""
    low, high = np.quantile(values, [0.25, 0.75])
    return f"{said(values.mean(), 3)} on average; half from {said(low, 3)} to {said(high, 3)}"


@in_style
def next_token(shares: Mapping[str, Array], tokens: Sequence[str]) -> "Figure":
    """Probabilities of a few next tokens, a panel a way to draw: {title: (len(tokens),)}.

    >>> [axes.get_title() for axes in next_token({"T = 1": np.array([0.75, 0.25])}, ["a", "b"]).axes]
    ['T = 1']
    """
    figure, beside = in_panels(shares, 12, 0.36 * len(tokens) + 1.4, sharey=True)
    for axes, p in beside:
        axes.barh(range(len(tokens)), p, color=INK)
        axes.set(xlim=(0, 1), xlabel="probability")
        axes.set_yticks(range(len(tokens)), [repr(token) for token in tokens])
    figure.axes[0].invert_yaxis()

    def read(p: Array) -> str:
        return ", ".join(f"{token.strip()} {said(share)}" for token, share in zip(tokens, p, strict=True))

    return describe(figure, each_in_words(shares, read))


@in_style
def timeline(panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]) -> "Figure":
    """Who works when, on one axis of time, at most three a panel: {title: {who: (start, end) in ms}}.

    >>> timeline({"one after the other": {"host": [(0, 1)], "device": [(1, 3)]}}).axes[0].get_xlabel()
    'time, ms'
    """
    figure, below = in_panels(panels, 11, 1.7 * len(panels) + 0.6, across=1, loc="left", sharex=True)
    for axes, lanes in below:
        for row, ((colour, _), (_, spans)) in enumerate(told_apart(lanes)):
            bars = [(start, end - start) for start, end in spans]
            axes.broken_barh(bars, (row - 0.4, 0.8), color=colour, edgecolor="white", linewidth=1.5)
        axes.set_yticks(range(len(lanes)), list(lanes))
        axes.tick_params(axis="y", length=0, labelsize=15)
        axes.invert_yaxis()
        axes.grid(axis="x", color=FAINT)
        axes.set_axisbelow(True)
    axes.set_xlabel("time, ms")
    return describe(figure, each_in_words(panels, _spans_in_words))


def _spans_in_words(lanes: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """How often and how long each one works, and when it is done."""
    return "; ".join(
        f"{who} works {len(spans)} times, {said(sum(end - start for start, end in spans), 0)} ms in all, "
        f"until {said(spans[-1][1], 0)} ms"
        for who, spans in lanes.items()
    )


FRAME = {"edgecolor": INK, "linewidth": 1.5}
LOOKS: dict[str, dict[str, Any]] = {
    "done": {"facecolor": "#BFD7E6", **FRAME},
    "in memory now": {"facecolor": COSINE, **FRAME},
    "to come": {"facecolor": FAINT, **FRAME},
    "never computed": {"facecolor": "white", "hatch": "//", **FRAME},
}


def tile_states(n_tiles: int, now: tuple[int, int]) -> Array:
    """Of each tile of a causal table whether it is "done", "in memory now", "to come" or "never computed".

    >>> tile_states(2, (1, 0)).tolist()
    [['done', 'never computed'], ['in memory now', 'to come']]
    """
    row, column = np.indices((n_tiles, n_tiles))
    order = n_tiles * row + column
    states = np.where(order < n_tiles * now[0] + now[1], "done", "to come").astype(object)
    states[column > row], states[now] = "never computed", "in memory now"
    return states


@in_style
def score_tiles(n_tiles: int, now: tuple[int, int]) -> "Figure":
    """A causal table of scores tile by tile, row after row: the one in memory `now`, those before, the rest.

    >>> score_tiles(2, (1, 0)).axes[0].get_xlabel()
    'tiles of keys'
    """
    from matplotlib.patches import Rectangle

    states = tile_states(n_tiles, now)
    figure = new_figure(7.6, 4.6)
    axes = figure.add_subplot()
    for (row, column), state in np.ndenumerate(states):
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **LOOKS[state]))
    axes.set(xlim=(-0.5, n_tiles - 0.5), ylim=(n_tiles - 0.5, -0.5), aspect="equal")
    axes.set(xlabel="tiles of keys", ylabel="tiles of queries", xticks=[], yticks=[])
    known = [Rectangle((0, 0), 1, 1, **look) for look in LOOKS.values()]
    axes.legend(known, list(LOOKS), loc="center left", bbox_to_anchor=(1.02, 0.5))
    counts = ", ".join(f"{int((states == state).sum())} {state}" for state in LOOKS)
    return describe(figure, f"A table of {n_tiles} by {n_tiles} tiles: {counts}")
