"""Lines over one x, and how lines without a colour of their own are told apart: in every lesson."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from npformer.backend import Array
from npformer.teaching.plots.style import FAINT, INK, describe, in_style, new_figure
from npformer.teaching.plots.words import lines_in_words, sentence

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMPARED = ((INK, "o-"), ("#CC79A7", "s--"), ("#56B4E9", "^:"))  # things that have no colour of their own


@in_style
def curves(
    x: Array, panels: Mapping[str, Mapping[str, Array]], *, x_label: str, y_label: str = ""
) -> "Figure":
    """Lines over one x, at most three in a panel: {title of the panel: {label: y like x}}.

    >>> import numpy as np
    >>> [axes.get_title() for axes in curves(np.arange(2), {"up": {"x": np.arange(2)}}, x_label="x").axes]
    ['up']
    """
    figure = new_figure(10 if len(panels) == 1 else 12, 4.4)
    beside = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, lines) in zip(beside, panels.items(), strict=True):
        for (colour, line), (label, y) in told_apart(lines):
            axes.plot(x, y, line[1:], color=colour, label=label)
        axes.set(title=title, xlabel=x_label)
        axes.grid(color=FAINT)
        axes.legend()
    beside[0].set_ylabel(y_label)
    return describe(figure, sentence(y_label, lines_in_words(x, panels)))


def told_apart(
    lines: Mapping[str, Any], styles: Sequence[tuple[str, str]] = COMPARED
) -> Iterator[tuple[tuple[str, str], tuple[str, Any]]]:
    """(colour, dashes) and (label, values) of each line; more than there are colours would be left out."""
    if len(lines) > len(styles):
        raise ValueError(f"plots: {len(lines)} lines in one panel; expected at most {len(styles)}")
    return zip(styles[: len(lines)], lines.items(), strict=True)
