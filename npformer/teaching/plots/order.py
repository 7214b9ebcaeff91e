"""How well trained models know the order of the words: lesson 6."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from npformer.backend import Array
from npformer.teaching.plots.style import FAINT, INK, MEANING, POSITION, describe, in_style, new_figure
from npformer.teaching.plots.words import lines_in_words, sentence

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    figure = new_figure(10 if len(panels) == 1 else 13, 3.8)
    beside = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, (title, lines) in zip(beside, panels.items(), strict=True):
        axes.axhline(100 * chance, color=INK, linewidth=1.5, zorder=1)
        for scheme, runs in lines.items():
            _draw_runs(axes, x, 100 * np.asarray(runs), scheme)
        axes.set(title=title, xlabel=x_label)
        axes.grid(color=FAINT)
        if trained is not None:
            _shade_trained(axes, x, trained)
    lowest = min(chance, *(np.min(runs) for lines in panels.values() for runs in lines.values()))
    beside[0].set(ylabel="right answers (%)", ylim=(100 * lowest - 8, 104))
    right_edge = beside[-1].get_yaxis_transform()
    beside[-1].text(1.01, 100 * chance, "coin", transform=right_edge, va="center")
    named = {k: v for axes in beside for v, k in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=len(named))
    return describe(figure, _accuracy_in_words(x, panels))


def _accuracy_in_words(x: Sequence[int], panels: Mapping[str, Mapping[str, Any]]) -> str:
    """Each line's mean over its runs."""
    means = {
        title: {scheme: 100 * np.mean(runs, axis=0) for scheme, runs in lines.items()}
        for title, lines in panels.items()
    }
    return sentence("right answers in percent", lines_in_words(np.asarray(x), means))


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
