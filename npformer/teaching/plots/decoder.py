"""What a trained decoder looks at and how sure it is: lesson 7."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from npformer.backend import Array
from npformer.teaching.plots.attention import draw_weights
from npformer.teaching.plots.style import FAINT, INK, describe, in_style, new_figure
from npformer.teaching.plots.tables import name_cells
from npformer.teaching.plots.words import said, sentence

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@in_style
def cross_attention(
    weights: Array, words: Sequence[str], written: Sequence[str], *, title: str = ""
) -> "Figure":
    """Which word made which digit: weights (T, S), a row for each token that the decoder writes.

    Weights below 0.05 have their colour and no number.

    >>> [text.get_text() for text in cross_attention(np.eye(2), ["forty", "two"], ["4", "2"]).axes[0].texts]
    ['1.00', '1.00']
    """
    figure = new_figure(1.2 * len(words) + 1.6, 0.46 * len(written) + 1.5)
    axes = figure.add_subplot()
    draw_weights(axes, weights, size=17)
    name_cells(axes, written, words)
    axes.tick_params(labelsize=17)
    axes.set(title=title, xlabel="the word looked at", ylabel="the token written")
    most = zip(written, weights.argmax(axis=1), weights.max(axis=1), strict=True)
    looks = (f"{token} looks at {words[place]} with {said(weight)}" for token, place, weight in most)
    return describe(figure, sentence(title, *looks))


@in_style
def confidence(probabilities: Mapping[str, Array], *, mark: float | None = None) -> "Figure":
    """How sure a model is of the token it chooses, a histogram a panel: {title: probabilities (n,)}.

    >>> [axes.get_title() for axes in confidence({"sure": np.ones(9)}, mark=0.9).axes]
    ['sure']
    """
    figure = new_figure(13 if len(probabilities) > 1 else 8, 3.9)
    beside = figure.subplots(1, len(probabilities), squeeze=False, sharey=True)[0]
    for axes, (title, values) in zip(beside, probabilities.items(), strict=True):
        share = np.full(len(values), 100 / len(values))
        axes.hist(values, bins=np.linspace(0, 1, 41).tolist(), weights=share, color="#CC79A7")
        if mark is not None:
            axes.axvline(mark, color=INK, linewidth=2, linestyle="dashed")
            axes.text(mark - 0.02, 60, f"{mark:.3f}", ha="right")
        axes.set(title=title, xlabel="probability of the chosen token", xlim=(0, 1.01))
        axes.grid(color=FAINT, axis="y")
        axes.set_axisbelow(True)
    beside[0].set_ylabel("tokens (%)")
    return describe(figure, ". ".join(_heap_in_words(*panel) for panel in probabilities.items()))


def _heap_in_words(title: str, values: Array) -> str:
    """Where the middle half of the tokens lies."""
    low, high = np.quantile(values, [0.25, 0.75])
    half = f"half from {said(low, 3)} to {said(high, 3)}"
    return sentence(title, f"{said(values.mean(), 3)} on average", half)
