"""Lines over one x, and how lines without a colour of their own are told apart: in every lesson."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from npformer.backend import Array
from npformer.lessons.plots.colours import FAINT, GRADIENT, INK, MEANING, POSITION
from npformer.lessons.plots.style import describe, in_panels, in_style, legend_outside, new_figure, staged
from npformer.lessons.plots.words import each_in_words, lines_in_words, said, sentence

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COMPARED = ((INK, "o-"), ("#CC79A7", "s--"), ("#56B4E9", "^:"))  # things that have no colour of their own


@in_style
def curves(
    x: Array, panels: Mapping[str, Mapping[str, Array]], *, x_label: str, y_label: str = ""
) -> "Figure":
    """Lines over one x, at most three in a panel: {title of the panel: {label: y like x}}.

    >>> [axes.get_title() for axes in curves(np.arange(2), {"up": {"x": np.arange(2)}}, x_label="x").axes]
    ['up']
    """
    figure, beside = in_panels(panels, 10 if len(panels) == 1 else 12, 4.4)
    for axes, lines in beside:
        for (colour, line), (label, y) in told_apart(lines):
            axes.plot(x, y, line[1:], color=colour, label=label)
        axes.set_xlabel(x_label)
        axes.grid(color=FAINT)
        axes.legend()
    figure.axes[0].set_ylabel(y_label)
    return describe(figure, sentence(y_label, each_in_words(panels, lambda lines: lines_in_words(x, lines))))


def told_apart(
    lines: Mapping[str, Any], styles: Sequence[tuple[str, str]] = COMPARED
) -> Iterator[tuple[tuple[str, str], tuple[str, Any]]]:
    """(colour, dashes) and (label, values) of each line; more than there are colours would be left out."""
    if len(lines) > len(styles):
        raise ValueError(f"plots: {len(lines)} lines in one panel; expected at most {len(styles)}")
    return zip(styles[: len(lines)], lines.items(), strict=True)


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


SCHEMES = {  # how a model learns of the order
    "no positions": (MEANING, "v:"),
    "sinusoidal": (POSITION, "o-"),
    "learned": ("#CC79A7", "s--"),
    "RoPE": ("#56B4E9", "^-."),
    "ALiBi": (INK, "D:"),
}


@in_style
def accuracy(
    x: Sequence[int],
    panels: Mapping[str, Mapping[str, Sequence[Array] | Array]],
    *,
    x_label: str,
    chance: float = 0.5,
    trained: tuple[int, int] | None = None,
) -> "Figure":
    """How many answers are right, the mean over runs and their range: {title: {scheme: (runs, len(x))}}.

    The schemes are names of SCHEMES. With `trained`, the lengths trained on are shaded, and x, the lengths
    tested, is on a logarithmic axis.

    >>> accuracy([0, 1], {"": {"sinusoidal": np.ones((3, 2))}}, x_label="step").axes[0].get_ylabel()
    'right answers (%)'
    """
    figure, beside = in_panels(panels, 10 if len(panels) == 1 else 13, 3.8, sharey=True)
    for axes, lines in beside:
        axes.axhline(100 * chance, color=INK, linewidth=1.5, zorder=1)
        for scheme, runs in lines.items():
            _draw_runs(axes, x, 100 * np.asarray(runs), scheme)
        axes.set_xlabel(x_label)
        axes.grid(color=FAINT)
        if trained is not None:
            _shade_trained(axes, x, trained)
    lowest = min(chance, *(np.min(runs) for lines in panels.values() for runs in lines.values()))
    figure.axes[0].set(ylabel="right answers (%)", ylim=(100 * lowest - 8, 104))
    axes.text(1.01, 100 * chance, "coin", transform=axes.get_yaxis_transform(), va="center")
    legend_outside(figure)

    def read(lines: Mapping[str, Any]) -> str:
        return lines_in_words(np.asarray(x), {k: 100 * np.mean(runs, axis=0) for k, runs in lines.items()})

    return describe(figure, sentence("right answers in percent", each_in_words(panels, read)))


def _draw_runs(axes: "Axes", x: Sequence[int], percent: Array, scheme: str) -> None:
    colour, line = SCHEMES[scheme]
    axes.fill_between(x, percent.min(axis=0), percent.max(axis=0), color=colour, alpha=0.25, linewidth=0)
    axes.plot(x, percent.mean(axis=0), line, color=colour, label=scheme, markersize=8)


def _shade_trained(axes: "Axes", lengths: Sequence[int], trained: tuple[int, int]) -> None:
    shortest, longest = trained
    axes.set_xscale("log", base=2)
    axes.axvspan(shortest, longest, color="#F2F2F2", zorder=0)
    middle = (shortest * longest) ** 0.5
    axes.text(middle, 0.03, "trained on", ha="center", transform=axes.get_xaxis_transform())
    ticks = [n for n in lengths if n & (n - 1) == 0 or n in trained]
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.set_xticks([], minor=True)


DEPTH = ((GRADIENT, "-"), (INK, "--"), ("#CC79A7", ":"))  # kinds of block, in pictures of their gradients
ENDS = "zero from the next block on"  # what a mark at the end of a line says


@in_style
def gradient_by_depth(panels: Mapping[str, Mapping[str, Array]]) -> "Figure":
    """The size of a gradient at each block, on a logarithmic axis: {title: {label: sizes (n_layers,)}}.

    Two panels stand in a row and share its axis; each has at most three lines. Sizes from which on a gradient
    is zero, but for rounding, are NaN: the line ends there, with a mark.

    >>> gradient_by_depth({"of x": {"pre-norm": np.array([1.0, 0.1])}}).axes[0].get_yscale()
    'log'
    """
    across, down = min(2, len(panels)), math.ceil(len(panels) / 2)
    size = 6 * across, 2.7 * down + 1
    figure, grid = in_panels(panels, *size, across, sharex=True, sharey="row")
    for axes, lines in grid:
        for (colour, line), (label, sizes) in told_apart(lines, DEPTH):
            axes.plot(sizes, line, color=colour, label=label)
            if (end := last_block(sizes)) < len(sizes) - 1:
                axes.scatter(end, sizes[end], marker="X", s=150, color=INK, zorder=3, label=ENDS)
        axes.set_yscale("log")
        axes.grid(color=FAINT)
    for axes in figure.axes[::across]:
        axes.set_ylabel("size of the gradient")
    for axes in figure.axes[-across:]:
        axes.set_xlabel("block (0 reads the words)")
    legend_outside(figure, columnspacing=1 if staged() else 2)
    return describe(figure, each_in_words(panels, _depth_in_words))


def last_block(sizes: Array) -> int:
    """The last block whose gradient is not NaN.

    >>> last_block(np.array([3.0, 2.0, np.nan]))
    1
    """
    return int(np.flatnonzero(~np.isnan(sizes))[-1])


def _depth_in_words(lines: Mapping[str, Array]) -> str:
    told = []
    for label, sizes in lines.items():
        end = last_block(sizes)
        first, last = (said(size, 0) if size >= 1 else f"{size:.0e}" for size in sizes[[0, end]])
        stop = f", {ENDS}" if end < len(sizes) - 1 else ""
        told.append(f"{label} {first} at block 0, {last} at block {end}{stop}")
    return "; ".join(told)


@in_style
def growth(panels: Mapping[str, tuple[Array, Mapping[str, Array]]]) -> "Figure":
    """Times on two logarithmic axes, where a power is a straight line: {x label: (x, {label: y})}.

    >>> growth({"n": (np.array([1.0, 2]), {"measured": np.array([1.0, 2])})}).axes[0].get_xscale()
    'log'
    """
    figure = new_figure(5.0 * len(panels), 4.0)
    beside = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, (x_label, (x, lines)) in zip(beside, panels.items(), strict=True):
        for (colour, line), (label, y) in told_apart(lines):
            axes.plot(x, y, line, color=colour, label=label)
        axes.set(xscale="log", yscale="log", xlabel=x_label)
        axes.set_xticks(x[::2], [f"{value:g}" for value in x[::2]])
        axes.minorticks_off()
        axes.grid(color=FAINT)
    beside[0].set_ylabel("time, ms")
    beside[0].legend()
    told = (sentence(f"over {x_label}", lines_in_words(*panel)) for x_label, panel in panels.items())
    return describe(figure, sentence("time in ms", *told))


def gpu_growth(runs: Sequence[Mapping[str, Any]]) -> "Figure":
    """Time of a block against its words, with NumPy and on the GPU, a panel a dtype, as gpu.json has it.

    >>> run = {"T": 32, "dtype": "float32", "seconds": {"numpy": 0.002, "cupy": 0.001}}
    >>> [line.get_label() for line in gpu_growth([run]).axes[0].get_lines()]
    ['NumPy', 'GPU']
    """
    panels = {}
    for dtype in dict.fromkeys(run["dtype"] for run in runs):
        same = [run for run in runs if run["dtype"] == dtype]
        each = {"NumPy": "numpy", "GPU": "cupy"}.items()
        lines = {name: np.array([1e3 * run["seconds"][key] for run in same]) for name, key in each}
        panels[f"words, {dtype}"] = (np.array([run["T"] for run in same]), lines)
    return growth(panels)
