"""How near texts are to each other, theme by theme: lesson 8."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from npformer.backend import Array
from npformer.teaching.plots.style import WEIGHT_MAP, describe, in_style, new_figure
from npformer.teaching.plots.words import said, sentence

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@in_style
def themes(cosines: Array, texts: Mapping[str, int], *, title: str = "") -> "Figure":
    """The cosines of every two texts (n, n), those of one theme beside each other: texts counts each theme's.

    The diagonal, where all are 1, is left white; a negative cosine has no colour either.

    >>> themes(np.eye(3), {"money": 1, "music": 2}).axes[0].get_title()
    ''
    """
    ends = np.cumsum([0, *texts.values()])
    figure = new_figure(7, 4.7)
    axes = figure.add_subplot()
    beside = np.where(np.eye(len(cosines), dtype=bool), 0, cosines)
    image = axes.imshow(beside, aspect="auto", cmap=WEIGHT_MAP, vmin=0, vmax=beside.max() or 1)
    middle, edges = (ends[:-1] + ends[1:]) / 2 - 0.5, ends[1:-1] - 0.5
    axes.set_xticks(middle, list(texts), rotation=30)
    axes.set_yticks(middle, list(texts))
    axes.hlines(edges, -0.5, ends[-1] - 0.5, color="white", linewidth=4)
    axes.vlines(edges, -0.5, ends[-1] - 0.5, color="white", linewidth=4)
    axes.spines[:].set_visible(False)
    axes.set(title=title, xlabel="theme of one text", ylabel="theme of the other")
    figure.colorbar(image, label="cosine")
    return describe(figure, sentence(title, *_blocks_in_words(beside, list(texts), ends)))


def _blocks_in_words(beside: Array, names: Sequence[str], ends: Array) -> list[str]:
    """The mean cosine inside each theme, and that of all texts of different themes."""
    inside = np.zeros(beside.shape, dtype=bool)
    read = []
    for name, start, end in zip(names, ends[:-1], ends[1:], strict=True):
        inside[start:end, start:end] = True
        pairs = max((end - start) * (end - start - 1), 1)  # the diagonal is 0 and does not count
        read.append(f"inside {name} {said(beside[start:end, start:end].sum() / pairs)} on average")
    return [*read, f"between different themes {said(beside[~inside].mean())}"] if len(names) > 1 else read
