"""Positions as waves and as the hands of clocks: lesson 1."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from npformer.backend import Array
from npformer.lessons.plots.colours import COSINE, FAINT, MEANING, POSITION, SINE
from npformer.lessons.plots.style import describe, in_style, legend_outside, new_figure
from npformer.lessons.plots.words import each_in_words, said, sentence

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@in_style
def frequency_bands(omega: Array, *, pairs: Sequence[int] = (0, 1, 2, 3), n: int = 64) -> "Figure":
    """The sine and the cosine of a few pairs, one band a pair: omega (d_model/2,) in radians per position.

    >>> len(frequency_bands(np.array([1.0, 0.1]), pairs=(0, 1)).axes)
    2
    """
    figure = new_figure(10, 1.02 * len(pairs) + 1.1)
    bands = figure.subplots(len(pairs), sharex=True, squeeze=False)[:, 0]
    for axes, i in zip(bands, pairs, strict=True):
        _draw_band(axes, float(omega[i]), n)
        turn = 2 * math.pi / omega[i]
        axes.set_title(
            f"pair i = {i}: columns {2 * i} and {2 * i + 1}, {turn:,.1f} positions a turn", loc="left"
        )
    bands[-1].set_xlabel("position p (in tokens)")
    legend_outside(figure, "outside upper right")
    turns = (f"pair {i} makes {said((n - 1) * float(omega[i]) / (2 * math.pi), 1)} turns" for i in pairs)
    return describe(figure, sentence(f"Sine and cosine at positions 0 to {n - 1}", *turns))


def _draw_band(axes: "Axes", omega: float, n: int) -> None:
    """Dots where there are tokens, and the waves between them, which no token sees."""
    between, tokens = np.linspace(0, n - 1, 20 * n), np.arange(n)
    for wave, colour, name in ((np.sin, SINE, "sine, column 2i"), (np.cos, COSINE, "cosine, column 2i+1")):
        axes.plot(between, wave(omega * between), color=colour, label=name)
        axes.plot(tokens, wave(omega * tokens), "o", color=colour, markersize=5)
    axes.set(ylim=(-1.25, 1.25), xlim=(-0.5, n - 0.5), yticks=(-1, 0, 1))
    axes.axhline(0, color=FAINT, linewidth=1, zorder=0)


HANDS = ("fast", "medium", "slow")


@in_style
def clock_hands(positions: Sequence[int], omega: Array) -> "Figure":
    """The first three pairs as the hands of clocks, a row of clocks for each position: omega (pairs,).

    Right is the sine and up is the cosine, so that a hand starts at twelve and turns as a clock's does.

    >>> len(clock_hands([0, 1], np.array([1.0, 0.1, 0.01])).axes)
    6
    """
    figure = new_figure(10, 1.6 * len(positions) + 1.7)
    dials = figure.subplots(len(positions), len(HANDS), squeeze=False)
    for p, row in zip(positions, dials, strict=True):
        for i, axes in enumerate(row):
            s, c = math.sin(p * float(omega[i])), math.cos(p * float(omega[i]))
            draw_clock(axes, s, c)
            axes.set_xlabel(f"({s:z.2f}, {c:z.2f})".replace("-", "−"), fontsize=17)
        row[0].set_ylabel(f"p = {p}", rotation=0, labelpad=40, va="center", fontsize=22, color=POSITION)
    for i, (axes, name) in enumerate(zip(dials[0], HANDS, strict=True)):
        axes.set_title(f"{name} hand, pair {i}\n{2 * math.pi / omega[i]:,.1f} positions a turn")
    legend_outside(figure)

    def read(p: int) -> str:  # how far each hand has turned since twelve
        turns = [said(p * float(speed) / (2 * math.pi)) for speed in omega]
        return "; ".join(f"the {name} hand has made {n} turns" for name, n in zip(HANDS, turns, strict=False))

    return describe(figure, each_in_words({f"Position {p}": p for p in positions}, read))


def draw_clock(axes: "Axes", s: float, c: float) -> None:
    """The hand at (sin, cos), and the two steps that lead to its tip."""
    from matplotlib.patches import Circle

    axes.add_patch(Circle((0, 0), 1, facecolor="white", edgecolor=FAINT, linewidth=3))
    for hour in np.arange(12) * math.pi / 6:
        axes.plot(*np.outer((np.sin(hour), np.cos(hour)), (0.92, 1)), color=MEANING, linewidth=2)
    axes.plot((0, s), (0, 0), color=SINE, linewidth=5, label="sine: to the right")
    axes.plot((s, s), (0, c), color=COSINE, linewidth=5, label="cosine: up")
    axes.plot((0, s), (0, c), color=POSITION, linewidth=5, solid_capstyle="round", label="the hand")
    axes.plot(s, c, "o", color=POSITION, markersize=11)
    axes.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", xticks=(), yticks=())
    axes.spines[:].set_visible(False)
