"""Who looks at whom: lesson 4, and the heads of a published model in lesson 8."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from npformer.backend import Array
from npformer.teaching.plots.style import WEIGHT_MAP, describe, in_style, new_figure
from npformer.teaching.plots.tables import matrix, name_cells, write_number
from npformer.teaching.plots.words import said, sentence

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def attention_weights(weights: Array, tokens: Sequence[str], *, title: str = "") -> "Figure":
    """Who looks at whom: weights (T, T), a query a row, each row summing to one.

    >>> attention_weights(np.eye(2), ["hot", "dog"]).axes[0].get_ylabel()
    'query: the token that looks'
    """
    figure = matrix(
        weights,
        title=title,
        row_labels=tokens,
        column_labels=tokens,
        x_label="key: the token looked at",
        y_label="query: the token that looks",
        decimals=2,
        signed=False,
    )
    return describe(figure, sentence(title, weights_in_words(weights, tokens)))


STRONGEST = 4  # weights of a table that are told in words


def weights_in_words(weights: Array, tokens: Sequence[str]) -> str:
    """How large a table of weights is, and who looks most at whom: the largest weight of a few rows.

    Fewer rows than tokens are those of the last tokens.

    >>> weights_in_words(np.array([[0.75, 0.25], [0.5, 0.5]]), ["hot", "dog"])
    '2 tokens look at 2; hot at hot 0.75, dog at hot 0.5'
    """
    best, looking = np.argmax(weights, axis=1), tokens[len(tokens) - len(weights) :]
    rows = sorted(range(len(looking)), key=lambda row: -weights[row, best[row]])[:STRONGEST]
    told = (f"{looking[row]} at {tokens[best[row]]} {said(weights[row, best[row]])}" for row in sorted(rows))
    return f"{len(looking)} tokens look at {len(tokens)}; {', '.join(told)}"


@in_style
def attention_heads(weights: Mapping[str, Array], tokens: Sequence[str], *, across: int = 2) -> "Figure":
    """Several heads on one sentence, in one scale: {title: weights (T, T)}, a row for each token that looks.

    With fewer rows these are the last tokens. Weights below 0.05 have their colour and no number.

    >>> heads = {"head 0": np.eye(2), "head 1": np.full((2, 2), 0.5)}
    >>> [axes.get_title("left") for axes in attention_heads(heads, ["hot", "dog"]).axes]
    ['head 0', 'head 1']
    """
    across, rows = min(across, len(weights)), len(next(iter(weights.values())))
    down = math.ceil(len(weights) / across)
    figure = new_figure(across * (0.58 * len(tokens) + 1.2), down * (0.36 * rows + 1.6))
    for place, (title, values) in enumerate(weights.items(), 1):
        axes = figure.add_subplot(down, across, place)
        draw_weights(axes, values, size=14)
        name_cells(axes, tokens[len(tokens) - rows :], tokens)
        axes.set_xticks(range(len(tokens)), tokens, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_title(title, loc="left")
    figure.supxlabel("the token looked at")
    figure.supylabel("the token that looks")
    heads = (sentence(title, weights_in_words(values, tokens)) for title, values in weights.items())
    return describe(figure, ". ".join(heads))


def draw_weights(axes: "Axes", weights: Array, size: int) -> None:
    """Weights on a scale from 0 to 1, those from 0.05 on with their numbers."""
    axes.imshow(weights, cmap=WEIGHT_MAP, vmin=0.0, vmax=1.0, aspect="auto")
    for (row, column), weight in np.ndenumerate(weights):
        if weight >= 0.05:
            write_number(axes, (column, row), weight, 2, 1.0, size)
