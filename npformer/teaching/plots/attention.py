"""Who looks at whom: lesson 4, and the heads of a published model in lesson 8."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from npformer.backend import Array
from npformer.teaching.plots.style import WEIGHT_MAP, in_style, new_figure
from npformer.teaching.plots.tables import matrix, name_cells, write_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def attention_weights(weights: Array, tokens: Sequence[str], *, title: str = "") -> "Figure":
    """Who looks at whom: weights (T, T), a query a row, each row summing to one.

    >>> attention_weights(np.eye(2), ["hot", "dog"]).axes[0].get_ylabel()
    'query: the token that looks'
    """
    return matrix(
        weights,
        title=title,
        row_labels=tokens,
        column_labels=tokens,
        x_label="key: the token looked at",
        y_label="query: the token that looks",
        decimals=2,
        signed=False,
    )


@in_style
def attention_heads(weights: Mapping[str, Array], tokens: Sequence[str], *, across: int = 2) -> "Figure":
    """Several heads on one sentence, in one scale: {title: weights (T, T)}, a row for each token that looks.

    Weights below 0.05 have their colour and no number.

    >>> heads = {"head 0": np.eye(2), "head 1": np.full((2, 2), 0.5)}
    >>> [axes.get_title("left") for axes in attention_heads(heads, ["hot", "dog"]).axes]
    ['head 0', 'head 1']
    """
    across = min(across, len(weights))
    down = math.ceil(len(weights) / across)
    figure = new_figure(across * (0.58 * len(tokens) + 1.2), down * (0.36 * len(tokens) + 1.6))
    for place, (title, values) in enumerate(weights.items(), 1):
        axes = figure.add_subplot(down, across, place)
        draw_weights(axes, values, size=14)
        name_cells(axes, tokens, tokens)
        axes.set_xticks(range(len(tokens)), tokens, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_title(title, loc="left")
    figure.supxlabel("the token looked at")
    figure.supylabel("the token that looks")
    return figure


def draw_weights(axes: "Axes", weights: Array, size: int) -> None:
    """Weights on a scale from 0 to 1, those from 0.05 on with their numbers."""
    axes.imshow(weights, cmap=WEIGHT_MAP, vmin=0.0, vmax=1.0, aspect="auto")
    for (row, column), weight in np.ndenumerate(weights):
        if weight >= 0.05:
            write_number(axes, (column, row), weight, 2, 1.0, size)
