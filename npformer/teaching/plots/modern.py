"""What came after 2017: the table of scores in tiles, and the next token's probabilities. Lesson 10."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from npformer.backend import Array
from npformer.teaching.plots.style import COSINE, FAINT, INK, describe, in_style, new_figure
from npformer.teaching.plots.words import said, sentence

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FRAME = {"edgecolor": INK, "linewidth": 1.5}
LOOKS: dict[str, dict[str, Any]] = {
    "done": {"facecolor": "#BFD7E6", **FRAME},
    "in memory now": {"facecolor": COSINE, **FRAME},
    "to come": {"facecolor": FAINT, **FRAME},
    "never computed": {"facecolor": "white", "hatch": "//", **FRAME},
}


def tile_states(n_tiles: int, now: tuple[int, int]) -> Array:
    """Of each tile of a causal table whether it is "done", "in memory now", "to come" or "never computed".

    >>> tile_states(2, (1, 0)).tolist()
    [['done', 'never computed'], ['in memory now', 'to come']]
    """
    row, column = np.indices((n_tiles, n_tiles))
    order = n_tiles * row + column
    states = np.where(order < n_tiles * now[0] + now[1], "done", "to come").astype(object)
    states[column > row], states[now] = "never computed", "in memory now"
    return states


@in_style
def score_tiles(n_tiles: int, now: tuple[int, int]) -> "Figure":
    """A causal table of scores tile by tile, row after row: the one in memory `now`, those before, the rest.

    >>> score_tiles(2, (1, 0)).axes[0].get_xlabel()
    'tiles of keys'
    """
    from matplotlib.patches import Rectangle

    states = tile_states(n_tiles, now)
    figure = new_figure(7.6, 4.6)
    axes = figure.add_subplot()
    for (row, column), state in np.ndenumerate(states):
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **LOOKS[state]))
    axes.set(xlim=(-0.5, n_tiles - 0.5), ylim=(n_tiles - 0.5, -0.5), aspect="equal")
    axes.set(xlabel="tiles of keys", ylabel="tiles of queries", xticks=[], yticks=[])
    known = [Rectangle((0, 0), 1, 1, **look) for look in LOOKS.values()]
    axes.legend(known, list(LOOKS), loc="center left", bbox_to_anchor=(1.02, 0.5))
    counts = ", ".join(f"{int((states == state).sum())} {state}" for state in LOOKS)
    return describe(figure, f"A table of {n_tiles} by {n_tiles} tiles: {counts}")


@in_style
def next_token(shares: Mapping[str, Array], tokens: Sequence[str]) -> "Figure":
    """Probabilities of a few next tokens, a panel a way to draw: {title: (len(tokens),)}.

    >>> [axes.get_title() for axes in next_token({"T = 1": np.array([0.75, 0.25])}, ["a", "b"]).axes]
    ['T = 1']
    """
    figure = new_figure(12, 0.36 * len(tokens) + 1.4)
    panels = figure.subplots(1, len(shares), sharey=True, squeeze=False)[0]
    for axes, (title, p) in zip(panels, shares.items(), strict=True):
        axes.barh(range(len(tokens)), p, color=INK)
        axes.set(title=title, xlim=(0, 1), xlabel="probability")
        axes.set_yticks(range(len(tokens)), [repr(token) for token in tokens])
    panels[0].invert_yaxis()
    told = (
        sentence(
            title, ", ".join(f"{token.strip()} {said(share)}" for token, share in zip(tokens, p, strict=True))
        )
        for title, p in shares.items()
    )
    return describe(figure, ". ".join(told))
