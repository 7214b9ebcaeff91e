"""Positions as waves and as clock hands, for lesson 1."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from npformer.backend import Array
from npformer.lessons.plots.colours import COSINE, FAINT, MEANING, POSITION, SINE
from npformer.lessons.plots.style import describe, in_style, legend_outside, new_figure
from npformer.lessons.plots.words import format_value, panels_in_words, sentence

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@in_style
def frequency_bands(omega: Array, *, pairs: Sequence[int] = (0, 1, 2, 3), n: int = 64) -> "Figure":
    """Draw the sine and the cosine of a few pairs of columns, one panel per pair.

    Parameters
    ----------
    omega : float array (d_model/2,)
        The angular frequency of each pair, in radians per position.
    pairs : sequence of int
        The pairs to draw.
    n : int
        The number of positions.

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> len(frequency_bands(np.array([1.0, 0.1]), pairs=(0, 1)).axes)
    2
    """
    figure = new_figure(10, 1.02 * len(pairs) + 1.1)
    bands = figure.subplots(len(pairs), sharex=True, squeeze=False)[:, 0]
    for axes, i in zip(bands, pairs, strict=True):
        _draw_band(axes, float(omega[i]), n)
        turn = 2 * math.pi / omega[i]
        axes.set_title(
            f"pair i = {i}: columns {2 * i} and {2 * i + 1}, {turn:,.1f} positions per turn", loc="left"
        )
    bands[-1].set_xlabel("position p (in tokens)")
    legend_outside(figure, "outside upper right")
    texts = []
    for i in pairs:
        n_turns = (n - 1) * float(omega[i]) / (2 * math.pi)
        texts.append(f"pair {i} makes {format_value(n_turns, 1)} turns")
    return describe(figure, sentence(f"Sine and cosine at positions 0 to {n - 1}", *texts))


def _draw_band(axes: "Axes", omega: float, n: int) -> None:
    """Draw the waves as lines, with dots at the positions of the tokens."""
    line, tokens = np.linspace(0, n - 1, 20 * n), np.arange(n)
    axes.plot(line, np.sin(omega * line), color=SINE, label="sine, column 2i")
    axes.plot(tokens, np.sin(omega * tokens), "o", color=SINE, markersize=5)
    axes.plot(line, np.cos(omega * line), color=COSINE, label="cosine, column 2i+1")
    axes.plot(tokens, np.cos(omega * tokens), "o", color=COSINE, markersize=5)
    axes.set(ylim=(-1.25, 1.25), xlim=(-0.5, n - 0.5), yticks=(-1, 0, 1))
    axes.axhline(0, color=FAINT, linewidth=1, zorder=0)


HANDS = ("fast", "medium", "slow")


@in_style
def clock_hands(positions: Sequence[int], omega: Array) -> "Figure":
    """Draw the first three pairs of columns as clock hands, one row of clocks per position.

    The sine is drawn to the right and the cosine upwards. So a hand starts at twelve and turns clockwise.

    Parameters
    ----------
    positions : sequence of int
    omega : float array (pairs,)
        The angular frequency of each pair, in radians per position.

    Returns
    -------
    figure : Figure

    Examples
    --------
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
        axes.set_title(f"{name} hand, pair {i}\n{2 * math.pi / omega[i]:,.1f} positions per turn")
    legend_outside(figure)

    def describe_position(p: int) -> str:
        texts = []
        for name, speed in zip(HANDS, omega, strict=False):
            n_turns = p * float(speed) / (2 * math.pi)
            texts.append(f"the {name} hand has made {format_value(n_turns)} turns")
        return "; ".join(texts)

    return describe(figure, panels_in_words({f"Position {p}": p for p in positions}, describe_position))


def draw_clock(axes: "Axes", s: float, c: float) -> None:
    """Draw a clock hand from the centre to (s, c), and the steps to its tip: s to the right, c upwards."""
    from matplotlib.patches import Circle

    axes.add_patch(Circle((0, 0), 1, facecolor="white", edgecolor=FAINT, linewidth=3))
    for angle in np.arange(12) * math.pi / 6:  # the twelve hour marks
        x, y = np.outer((np.sin(angle), np.cos(angle)), (0.92, 1))
        axes.plot(x, y, color=MEANING, linewidth=2)
    axes.plot((0, s), (0, 0), color=SINE, linewidth=5, label="sine: to the right")
    axes.plot((s, s), (0, c), color=COSINE, linewidth=5, label="cosine: up")
    axes.plot((0, s), (0, c), color=POSITION, linewidth=5, solid_capstyle="round", label="the hand")
    axes.plot(s, c, "o", color=POSITION, markersize=11, clip_on=False)
    axes.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", xticks=(), yticks=())
    axes.spines[:].set_visible(False)
