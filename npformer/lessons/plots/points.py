"""Plots of single measurements as points."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from npformer.backend import Array
from npformer.lessons.plots.colours import FAINT, GRADIENT, INK
from npformer.lessons.plots.style import describe, in_style, make_panels, new_figure
from npformer.lessons.plots.words import format_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@in_style
def error_clouds(panels: Mapping[str, Array], *, y_label: str) -> "Figure":
    """Draw errors at neighbouring points, with their mean and their standard deviation.

    Parameters
    ----------
    panels : mapping of float arrays (n,)
        The errors by the title of the panel. All panels have the same vertical axis.
    y_label : str

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> [axes.get_title() for axes in error_clouds({"correct": np.zeros(3)}, y_label="error").axes]
    ['correct']
    """
    figure, axes_and_errors = make_panels(panels, 12, 4.4)
    largest = max(float(abs(np.asarray(errors)).max(initial=0)) for errors in panels.values()) or 1.0
    sentences = []
    for (axes, errors), title in zip(axes_and_errors, panels, strict=True):
        mean, scatter = float(np.mean(errors)), float(np.std(errors, ddof=1))
        axes.axhline(0, color=INK, linewidth=1)
        axes.axhspan(mean - scatter, mean + scatter, color=FAINT, zorder=0)
        axes.axhline(mean, color=GRADIENT, linestyle="--", label="mean: systematic")
        axes.plot(np.arange(1, len(errors) + 1), errors, "o", color=GRADIENT, label="error at one point")
        axes.set_ylim(-1.3 * largest, 1.3 * largest)
        axes.set_xlabel("point")
        axes.legend(loc="upper right")
        sentences.append(f"{title}: mean {mean:.1f}, standard deviation {scatter:.1f}")
    figure.axes[0].set_ylabel(y_label)
    return describe(figure, "; ".join(sentences))


@in_style
def seeds(runs: Mapping[str, Sequence[float]], *, x_label: str) -> "Figure":
    """Draw one row of points for each setting of a training: a point is the result of one seed.

    Parameters
    ----------
    runs : mapping of sequences of float
        The results of each setting, by its name.
    x_label : str

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> seeds({"with": [60.0, 70.0], "without": [20.0, 10.0]}, x_label="correct (%)").axes[0].get_xlabel()
    'correct (%)'
    """
    figure = new_figure(10, 0.36 * len(runs) + 1.1)
    axes = figure.add_subplot()
    for row, results in enumerate(runs.values()):
        axes.plot([min(results), max(results)], [row, row], color=FAINT, linewidth=9, zorder=1)
        axes.plot(results, [row] * len(results), "o", color=INK, markersize=8, alpha=0.6)
    axes.set_yticks(range(len(runs)), list(runs))
    axes.invert_yaxis()
    axes.set_xlabel(x_label)
    axes.grid(axis="x", color=FAINT)
    axes.set_axisbelow(True)
    texts = []
    for name, results in runs.items():
        least, most = format_value(min(results), 1), format_value(max(results), 1)
        texts.append(f"{name} from {least} to {most} in {len(results)} runs")
    return describe(figure, f"{x_label}: {'; '.join(texts)}")
