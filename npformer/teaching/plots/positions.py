"""Positions as waves, clocks, bits and likeness: lessons 1 and 2."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from npformer.backend import Array
from npformer.teaching.plots.lines import told_apart
from npformer.teaching.plots.style import (
    COSINE,
    FAINT,
    MEANING,
    POSITION,
    SINE,
    describe,
    in_style,
    new_figure,
)
from npformer.teaching.plots.tables import colours_of, heat_map, name_cells, write_numbers
from npformer.teaching.plots.words import said, sentence

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
    figure.legend(*bands[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
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


@in_style
def clock_hands(
    positions: Sequence[int], omega: Array, *, names: Sequence[str] = ("fast", "medium", "slow")
) -> "Figure":
    """Each pair as the hand of a clock, a row of clocks for each position: omega (pairs,), as many as names.

    Right is the sine and up is the cosine, so that a hand starts at twelve and turns as a clock's does.

    >>> len(clock_hands([0, 1], np.array([1.0, 0.1, 0.01])).axes)
    6
    """
    figure = new_figure(10, 1.6 * len(positions) + 1.7)
    dials = figure.subplots(len(positions), len(names), squeeze=False)
    for p, row in zip(positions, dials, strict=True):
        for i, axes in enumerate(row):
            s, c = math.sin(p * float(omega[i])), math.cos(p * float(omega[i]))
            draw_clock(axes, s, c)
            axes.set_xlabel(f"({s:z.2f}, {c:z.2f})".replace("-", "−"), fontsize=17)
        row[0].set_ylabel(f"p = {p}", rotation=0, labelpad=40, va="center", fontsize=22, color=POSITION)
    for i, (axes, name) in enumerate(zip(dials[0], names, strict=True)):
        axes.set_title(f"{name} hand, pair {i}\n{2 * math.pi / omega[i]:,.1f} positions a turn")
    figure.legend(*dials[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return describe(figure, ". ".join(_hands_in_words(p, omega, names) for p in positions))


def _hands_in_words(p: int, omega: Array, names: Sequence[str]) -> str:
    """How far each hand has turned since twelve."""
    turned = ((name, p * float(speed) / (2 * math.pi)) for name, speed in zip(names, omega, strict=False))
    return sentence(
        f"Position {p}", *(f"the {name} hand has made {said(turns)} turns" for name, turns in turned)
    )


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


@in_style
def wavelength_curves(curves: Mapping[str, Array], *, title: str = "") -> "Figure":
    """How many positions one turn of each pair takes, on a logarithmic axis: {label: wavelengths (pairs,)}.

    >>> wavelength_curves({"base 10000": np.array([6.3, 628.0])}).axes[0].get_yscale()
    'log'
    """
    figure = new_figure(10, 5)
    axes = figure.add_subplot()
    for (colour, line), (label, wavelengths) in told_apart(curves):
        axes.plot(wavelengths, line, color=colour, label=label, markersize=8)
        end = (len(wavelengths) - 1, wavelengths[-1])
        axes.annotate(f"{end[1]:,.0f}", end, (10, 0), textcoords="offset points", va="center")
    axes.set(title=title, yscale="log", xlabel="pair i", ylabel="wavelength (positions a turn)")
    axes.grid(color=FAINT)
    axes.legend()
    ends = (
        f"{name} from {said(float(y[0]))} to {said(float(y[-1]))} positions" for name, y in curves.items()
    )
    return describe(figure, sentence(title or "Wavelengths", *ends))


def position_similarity(table: Array, *, title: str = "") -> "Figure":
    """How alike two positions are: the dot product of every two rows, at most d_model/2: table (n, d_model).

    >>> position_similarity(np.eye(2)).axes[0].get_xlabel()
    'position q (in tokens)'
    """
    alike = table @ table.T
    figure = heat_map(alike, title=title, x_label="position q (in tokens)", signed=False)
    figure.axes[0].images[0].set_clim(alike.min(), alike.max())  # none is a zero to be seen
    return describe(figure, sentence(title, *_stripes_in_words(alike)))


def _stripes_in_words(alike: Array) -> Iterator[str]:
    """What stands on the diagonal and on some of its parallels."""
    for distance in (d for d in (0, 1, 2, 4, 8, 16, 32) if d < len(alike)):
        stripe = np.diagonal(alike, distance)
        low, high = said(stripe.min()), said(stripe.max())
        yield f"distance {distance}: " + (low if low == high else f"{low} to {high}")


@in_style
def binary_counter(bits: Array, table: Array, *, base: float) -> "Figure":
    """Counting in binary beside counting with waves: bits (n, pairs), ones first, table (n, 2 · pairs).

    `base` is the table's, for its title.

    >>> len(binary_counter(np.eye(2), np.ones((2, 4)), base=16).axes)
    2
    """
    from matplotlib.colors import ListedColormap

    n, pairs = np.shape(bits)
    figure = new_figure(2.5 * pairs + 1.2, 0.335 * n + 0.95)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1, 2))
    left.imshow(bits, cmap=ListedColormap(["#F2F2F2", POSITION]), vmin=0, vmax=1, aspect="auto")
    write_numbers(left, bits, 0, signed=False)
    name_cells(left, range(n), [f"bit {i}" for i in range(pairs)])
    right.imshow(table, **colours_of(table, signed=True), aspect="auto")
    write_numbers(right, table, 1, signed=True)
    name_cells(right, range(n), [f"{wave} {i}" for i in range(pairs) for wave in ("sin", "cos")])
    left.set(title="counting with bits", ylabel="position p")
    right.set(title=f"counting with waves, base {base:g}")
    read = ("".join(f"{bit:g}" for bit in row) for row in bits)
    return describe(
        figure, sentence("Bits of the positions, the fast one first", ", ".join(read), _waves_in_words(table))
    )


def _waves_in_words(table: Array) -> str:
    steps = np.linalg.norm(np.diff(table, axis=0), axis=1)
    return f"a step in the waves beside them is {said(steps.min())} to {said(steps.max())} long"
