"""Line plots over a common x axis, and styles for lines whose colours have no meaning."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.lessons.plots.colours import FAINT, GRADIENT, INK, MEANING, POSITION
from npformer.lessons.plots.style import (
    describe,
    in_style,
    is_for_slides,
    legend_outside,
    make_panels,
    new_figure,
)
from npformer.lessons.plots.words import format_value, lines_in_words, panels_in_words, sentence

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COMPARED = ((INK, "o-"), ("#CC79A7", "s--"), ("#56B4E9", "^:"))  # (colour, marker and dashes)
FULL_HEIGHT = 4.4  # of a figure, in inches


@in_style
def curves(
    x: Array,
    panels: Mapping[str, Mapping[str, Array]],
    *,
    x_label: str,
    y_label: str = "",
    mark: tuple[float, str] | None = None,
    shared_legend: bool = False,
    height: float = FULL_HEIGHT,
) -> "Figure":
    """Draw lines over a common x axis, at most three in a panel.

    Parameters
    ----------
    x : float array (n,)
    panels : mapping of mappings of float arrays (n,)
        The panels by their titles. A panel maps the label of a line to its y values.
    x_label : str
    y_label : str
    mark : tuple of a float and a str, optional
        An x value to mark with a vertical line, and the text next to the line.
    shared_legend : bool
        Whether one legend below the panels replaces the legends inside the panels.
    height : float
        The height of the figure in inches. On slides, the figure always has its full height.

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> [axes.get_title() for axes in curves(np.arange(2), {"up": {"x": np.arange(2)}}, x_label="x").axes]
    ['up']
    """
    width = 10 if len(panels) == 1 else 12
    figure, axes_and_lines = make_panels(panels, width, FULL_HEIGHT if is_for_slides() else height)
    for axes, lines in axes_and_lines:
        for line in assign_styles(lines):
            dashes = line.marker_and_dashes[1:]
            axes.plot(x, line.values, dashes, color=line.colour, label=line.label)
        axes.set_xlabel(x_label)
        axes.grid(color=FAINT)
        if mark:
            place, name = mark
            axes.axvline(place, color=INK, linewidth=2, linestyle="dashed")
            axes.text(place, 0.95, f" {name}", transform=axes.get_xaxis_transform())
        if not shared_legend:
            axes.legend(loc="lower left" if mark else "best")
    if shared_legend:
        legend_outside(figure)
    figure.axes[0].set_ylabel(y_label)
    texts = [panels_in_words(panels, lambda lines: lines_in_words(x, lines))]
    if mark:
        texts.append(f"{mark[1]} at {format_value(mark[0])}")
    return describe(figure, sentence(y_label, *texts))


class StyledLine(NamedTuple):
    """A line and its style."""

    label: str
    values: Any
    colour: str
    marker_and_dashes: str  # a matplotlib format: "o-"


def assign_styles(lines: Mapping[str, Any], styles: Sequence[tuple[str, str]] = COMPARED) -> list[StyledLine]:
    """Return the lines of a panel, each with a different style; reject more lines than there are styles."""
    if len(lines) > len(styles):
        raise ValueError(f"plots: {len(lines)} lines in one panel; expected at most {len(styles)}")
    return [
        StyledLine(label, values, colour, marker_and_dashes)
        for (label, values), (colour, marker_and_dashes) in zip(lines.items(), styles, strict=False)
    ]


@in_style
def wavelength_curves(curves: Mapping[str, Array], *, title: str = "") -> "Figure":
    """Draw the wavelength of each pair of columns, in positions per turn, on a logarithmic axis.

    Parameters
    ----------
    curves : mapping of float arrays (pairs,)
        The wavelengths of each curve, by its label; at most three curves.
    title : str

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> wavelength_curves({"base 10000": np.array([6.3, 628.0])}).axes[0].get_yscale()
    'log'
    """
    figure = new_figure(10, 5)
    axes = figure.add_subplot()
    for curve in assign_styles(curves):
        axes.plot(curve.values, curve.marker_and_dashes, color=curve.colour, label=curve.label, markersize=8)
        last_wavelength = curve.values[-1]
        end = (len(curve.values) - 1, last_wavelength)
        axes.annotate(f"{last_wavelength:,.0f}", end, (10, 0), textcoords="offset points", va="center")
    axes.set(title=title, yscale="log", xlabel="pair i", ylabel="wavelength (positions per turn)")
    axes.grid(color=FAINT)
    axes.legend()
    ends = (
        f"{name} from {format_value(float(y[0]))} to {format_value(float(y[-1]))} positions"
        for name, y in curves.items()
    )
    return describe(figure, sentence(title or "Wavelengths", *ends))


FIRST = 10  # `ranks` shades the first ten ranks


@in_style
def ranks(x: Array, panels: Mapping[str, Mapping[str, Array]], *, x_label: str) -> "Figure":
    """Draw the rank of a token on a logarithmic axis, with rank 1 at the top and the first ten ranks shaded.

    Parameters
    ----------
    x : int array (n,)
    panels : mapping of mappings of int arrays (n,)
        The panels by their titles. A panel maps the label of a line to ranks, at most three lines.
    x_label : str

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> figure = ranks(np.arange(2), {"": {"plain": np.array([500, 1])}}, x_label="blocks passed")
    >>> str(figure.get_label())
    'rank of the correct token: plain 500 at 0, 1 at 1, among the first ten from 1 on'
    """
    width = 10 if len(panels) == 1 else 13
    figure, axes_and_lines = make_panels(panels, width, 4.6, sharey=True)
    for axes, lines in axes_and_lines:
        for line in assign_styles(lines):
            axes.plot(
                x, line.values, line.marker_and_dashes, color=line.colour, label=line.label, markersize=7
            )
        axes.axhspan(1, FIRST, color="#F2F2F2", zorder=0)
        axes.set_xlabel(x_label)
        axes.grid(color=FAINT)
    most = max(np.max(ranks_of_line) for lines in panels.values() for ranks_of_line in lines.values())
    axes.set(yscale="log", ylim=(2 * most, 0.7))
    ticks = [10**i for i in range(len(str(most)))]
    axes.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    for axes in figure.axes:
        axes.minorticks_off()
    figure.axes[0].set_ylabel("rank of the correct token")
    figure.axes[0].text(0.03, FIRST * 0.8, "first ten", transform=figure.axes[0].get_yaxis_transform())
    legend_outside(figure)
    text = panels_in_words(panels, lambda lines: _ranks_in_words(x, lines))
    return describe(figure, sentence("rank of the correct token", text))


def _ranks_in_words(x: Array, lines: Mapping[str, Array]) -> str:
    texts = []
    for label, values in lines.items():
        ends = ", ".join(f"{format_value(values[i])} at {x[i]}" for i in (0, -1))
        is_later = np.flatnonzero(values > FIRST)
        start = is_later[-1] + 1 if len(is_later) else 0
        when = f"among the first ten from {x[start]} on" if start < len(x) else "not among the first ten"
        texts.append(f"{label} {ends}, {when}")
    return "; ".join(texts)


SCHEMES = {  # the style of each position scheme: colour, marker and dashes
    "no positions": (MEANING, "v-"),
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
    """Draw the accuracy of models: the mean over several runs, and their range as a band.

    Parameters
    ----------
    x : sequence of int
        The training steps, or the lengths of the test sentences.
    panels : mapping of mappings of float arrays (runs, len(x))
        The panels by their titles. A panel maps a position scheme, a key of SCHEMES, to its accuracies.
    x_label : str
    chance : float
        The accuracy of guessing, drawn as a line.
    trained : tuple of two ints, optional
        The shortest and the longest length of the training sentences. These lengths are shaded, and the x
        axis is logarithmic.

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> accuracy([0, 1], {"": {"sinusoidal": np.ones((3, 2))}}, x_label="step").axes[0].get_ylabel()
    'accuracy (%)'
    """
    width = 10 if len(panels) == 1 else 13
    figure, axes_and_lines = make_panels(panels, width, 3.8, sharey=True)
    for axes, lines in axes_and_lines:
        axes.axhline(100 * chance, color=INK, linewidth=1.5, linestyle="--", zorder=1)
        for scheme, runs in lines.items():
            _draw_runs(axes, x, 100 * np.asarray(runs), scheme)
        axes.set_xlabel(x_label)
        axes.grid(color=FAINT)
        if trained is not None:
            _shade_trained(axes, x, trained)
    lowest_run = min(np.min(runs) for lines in panels.values() for runs in lines.values())
    lowest = min(chance, lowest_run)
    figure.axes[0].set(ylabel="accuracy (%)", ylim=(100 * lowest - 8, 104))
    axes.text(1.01, 100 * chance, "coin", transform=axes.get_yaxis_transform(), va="center")
    legend_outside(figure)

    def describe_panel(lines: Mapping[str, Any]) -> str:
        means = {scheme: 100 * np.mean(runs, axis=0) for scheme, runs in lines.items()}
        return lines_in_words(np.asarray(x), means)

    text = panels_in_words(panels, describe_panel)
    return describe(figure, sentence("accuracy in percent", text))


def _draw_runs(axes: "Axes", x: Sequence[int], percent: Array, scheme: str) -> None:
    """Draw the mean of the runs as a line, and their range as a band."""
    colour, marker_and_dashes = SCHEMES[scheme]
    axes.fill_between(x, percent.min(axis=0), percent.max(axis=0), color=colour, alpha=0.25, linewidth=0)
    axes.plot(x, percent.mean(axis=0), marker_and_dashes, color=colour, label=scheme, markersize=8)


def _shade_trained(axes: "Axes", lengths: Sequence[int], trained: tuple[int, int]) -> None:
    shortest, longest = trained
    axes.set_xscale("log", base=2)
    axes.axvspan(shortest, longest, color="#F2F2F2", zorder=0)
    middle = (shortest * longest) ** 0.5
    axes.text(middle, 0.03, "trained on", ha="center", transform=axes.get_xaxis_transform())
    ticks = [n for n in lengths if _is_power_of_two(n) or n in trained]
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.set_xticks([], minor=True)


def _is_power_of_two(n: int) -> bool:
    return n & (n - 1) == 0


DEPTH = ((GRADIENT, "-"), (INK, "--"), ("#CC79A7", ":"))  # the styles of the lines in `gradient_by_depth`
ENDS = "zero from the next block on"  # the label of the mark at the end of a line


@in_style
def gradient_by_depth(panels: Mapping[str, Mapping[str, Array]], *, unit: str = "block") -> "Figure":
    """Draw the size of a gradient at each block, on a logarithmic axis, two panels in a row.

    Parameters
    ----------
    panels : mapping of mappings of float arrays (n_layers,)
        The panels by their titles. A panel maps the label of a line to the sizes of a gradient. A panel has
        at most three lines. The size must be NaN where only rounding errors are left of a gradient. A mark
        shows where such a line ends.
    unit : str
        What the x axis counts: "block" or "layer".

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> gradient_by_depth({"of x": {"pre-norm": np.array([1.0, 0.1])}}).axes[0].get_yscale()
    'log'
    """
    across = min(2, len(panels))
    n_rows = math.ceil(len(panels) / 2)
    figure, axes_and_lines = make_panels(
        panels, 6 * across, 2.7 * n_rows + 1, across, sharex=True, sharey="row"
    )
    for axes, lines in axes_and_lines:
        for line in assign_styles(lines, DEPTH):
            axes.plot(line.values, line.marker_and_dashes, color=line.colour, label=line.label)
            end = last_block(line.values)
            if end < len(line.values) - 1:
                axes.scatter(end, line.values[end], marker="X", s=150, color=INK, zorder=3, label=ENDS)
        axes.set_yscale("log")
        axes.grid(color=FAINT)
    for axes in figure.axes[::across]:
        axes.set_ylabel("size of the gradient")
    for axes in figure.axes[-across:]:
        axes.set_xlabel(f"{unit} (0 reads the words)")
    legend_outside(figure, columnspacing=1 if is_for_slides() else 2)
    return describe(figure, panels_in_words(panels, lambda lines: _depth_in_words(lines, unit)))


def last_block(sizes: Array) -> int:
    """Return the last block whose gradient is not NaN.

    >>> last_block(np.array([3.0, 2.0, np.nan]))
    1
    """
    return int(np.flatnonzero(~np.isnan(sizes))[-1])


def _depth_in_words(lines: Mapping[str, Array], unit: str) -> str:
    texts = []
    for label, sizes in lines.items():
        end = last_block(sizes)
        note = f", {ENDS}" if end < len(sizes) - 1 else ""
        texts.append(
            f"{label} {_format_size(sizes[0])} at {unit} 0, {_format_size(sizes[end])} at {unit} {end}{note}"
        )
    return "; ".join(texts)


def _format_size(size: float) -> str:
    """Return a size as text: an integer such as "12", or "1e-03" if the size is smaller than 1."""
    return format_value(size, 0) if size >= 1 else f"{size:.0e}"


@in_style
def growth(panels: Mapping[str, tuple[Array, Mapping[str, Array]]], *, y_label: str = "time, ms") -> "Figure":
    """Draw times on two logarithmic axes, where a power law is a straight line.

    Parameters
    ----------
    panels : mapping of pairs
        The panels by their x labels. A panel is a pair: x, a float array (n,), and a mapping from line labels
        to times in ms. A panel has at most three lines.
    y_label : str

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> growth({"n": (np.array([1.0, 2]), {"measured": np.array([1.0, 2])})}).axes[0].get_xscale()
    'log'
    """
    figure = new_figure(5.0 * len(panels), 4.0)
    axes_of_panels = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, (x_label, (x, lines)) in zip(axes_of_panels, panels.items(), strict=True):
        for line in assign_styles(lines):
            axes.plot(x, line.values, line.marker_and_dashes, color=line.colour, label=line.label)
        axes.set(xscale="log", yscale="log", xlabel=x_label)
        axes.set_xticks(x[::2], [f"{value:g}" for value in x[::2]])
        axes.minorticks_off()
        axes.grid(color=FAINT)
    axes_of_panels[0].set_ylabel(y_label)
    axes_of_panels[0].yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    legend_outside(figure)
    texts = [sentence(f"over {x_label}", lines_in_words(x, lines)) for x_label, (x, lines) in panels.items()]
    return describe(figure, sentence("time in ms", *texts))


def gpu_growth(runs: Sequence[Mapping[str, Any]]) -> "Figure":
    """Draw the run time of a block over the number of tokens, for NumPy and a GPU, one panel per dtype.

    Parameters
    ----------
    runs : sequence of mappings
        The runs of gpu.json. A run has the number of tokens "T", the "dtype", and the times "seconds" of
        "numpy" and "cupy".

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> run = {"T": 32, "dtype": "float32", "seconds": {"numpy": 0.002, "cupy": 0.001}}
    >>> [line.get_label() for line in gpu_growth([run]).axes[0].get_lines()]
    ['NumPy', 'GPU']
    """
    panels = {}
    for dtype in dict.fromkeys(run["dtype"] for run in runs):
        runs_of_dtype = [run for run in runs if run["dtype"] == dtype]
        tokens = np.array([run["T"] for run in runs_of_dtype])
        milliseconds = {
            "NumPy": np.array([1e3 * run["seconds"]["numpy"] for run in runs_of_dtype]),
            "GPU": np.array([1e3 * run["seconds"]["cupy"] for run in runs_of_dtype]),
        }
        panels[f"tokens, {dtype}"] = (tokens, milliseconds)
    return growth(panels)
