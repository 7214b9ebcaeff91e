"""Where the time goes: lesson 9 and the README."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from npformer.backend import Array
from npformer.teaching.plots.lines import told_apart
from npformer.teaching.plots.style import FAINT, describe, in_style, new_figure
from npformer.teaching.plots.words import line_in_words, said, sentence

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@in_style
def growth(panels: Mapping[str, tuple[Array, Mapping[str, Array]]]) -> "Figure":
    """Times on two logarithmic axes, where a power is a straight line: {x label: (x, {label: y})}.

    >>> import numpy as np
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
    return describe(figure, sentence("time in ms", *(_growth_in_words(*panel) for panel in panels.items())))


def _growth_in_words(x_label: str, panel: tuple[Array, Mapping[str, Array]]) -> str:
    x, lines = panel
    return sentence(f"over {x_label}", *(line_in_words(name, x, y) for name, y in lines.items()))


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


@in_style
def timeline(panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]) -> "Figure":
    """Who works when, on one axis of time, at most three a panel: {title: {who: (start, end) in ms}}.

    >>> timeline({"one after the other": {"host": [(0, 1)], "device": [(1, 3)]}}).axes[0].get_xlabel()
    'time, ms'
    """
    figure = new_figure(11, 1.7 * len(panels) + 0.6)
    below = figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0]
    for axes, (title, lanes) in zip(below, panels.items(), strict=True):
        for row, ((colour, _), (_, spans)) in enumerate(told_apart(lanes)):
            bars = [(start, end - start) for start, end in spans]
            axes.broken_barh(bars, (row - 0.4, 0.8), color=colour, edgecolor="white", linewidth=1.5)
        axes.set_title(title, loc="left")
        axes.set_yticks(range(len(lanes)), list(lanes))
        axes.tick_params(axis="y", length=0, labelsize=15)
        axes.invert_yaxis()
        axes.grid(axis="x", color=FAINT)
        axes.set_axisbelow(True)
    below[-1].set_xlabel("time, ms")
    return describe(figure, ". ".join(_lanes_in_words(*panel) for panel in panels.items()))


def _lanes_in_words(title: str, lanes: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """How often and how long each one works, and when it is done."""
    read = (
        f"{who} works {len(spans)} times, {said(sum(end - start for start, end in spans), 0)} ms in all, "
        f"until {said(spans[-1][1], 0)} ms"
        for who, spans in lanes.items()
    )
    return sentence(title, *read)
