"""Tables as coloured squares, alone or beside each other, small ones with their numbers: in every lesson."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from npformer.backend import Array
from npformer.lessons.plots.colours import INK, POSITION, SIGNED_MAP, WEIGHT_MAP
from npformer.lessons.plots.style import describe, in_panels, in_style, new_figure, staged
from npformer.lessons.plots.words import (
    each_in_words,
    large_table_in_words,
    said,
    sentence,
    table_in_words,
    weights_in_words,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@in_style
def heat_map(
    values: Array,
    *,
    title: str = "",
    x_label: str = "column",
    y_label: str = "position p (in tokens)",
    signed: bool = True,
) -> "Figure":
    """A large table as colours: values (rows, columns).

    >>> heat_map(np.eye(3)).axes[0].get_xlabel()
    'column'
    """
    from matplotlib.ticker import MaxNLocator

    rows, columns = np.shape(values)
    figure = new_figure(6.4 if rows == columns else 10, 5.2 if rows == columns else 4.8)
    axes = figure.add_subplot()
    image = draw_colours(axes, values, largest_of([values]), signed, interpolation="nearest")
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    for axis in (axes.xaxis, axes.yaxis):
        # there is no position 2.5
        axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    figure.colorbar(image, label="value")
    return describe(figure, sentence(title, large_table_in_words(values)))


@in_style
def heat_maps(
    tables: Mapping[str, Array], *, x_label: str = "column", y_label: str = "position p (in tokens)"
) -> "Figure":
    """Tables beside each other as signed colours on one scale: {title: values (rows, columns)}.

    >>> len(heat_maps({"a": np.eye(3), "b": -np.eye(3)}).axes)  # two tables and the colour bar
    3
    """
    figure, beside = in_panels(tables, 3.6 * len(tables) + 1.4, 4.8, sharey=True)
    for axes, table in beside:
        image = draw_colours(axes, table, largest_of(tables.values()), interpolation="nearest")
        axes.set_xlabel(x_label)
    figure.axes[0].set_ylabel(y_label)
    figure.colorbar(image, ax=figure.axes, label="value", pad=0.02)
    return describe(figure, each_in_words(tables, large_table_in_words))


def position_similarity(table: Array, *, title: str = "") -> "Figure":
    """How alike two positions are: the dot product of every two rows, at most d_model/2: table (n, d_model).

    >>> position_similarity(np.eye(2)).axes[0].get_xlabel()
    'position q (in tokens)'
    """
    alike = table @ table.T
    figure = heat_map(alike, title=title, x_label="position q (in tokens)", signed=False)
    figure.axes[0].images[0].set_clim(alike.min(), alike.max())  # none is a zero to be seen
    return describe(figure, sentence(title, *_stripes_in_words(alike)))


def _stripes_in_words(alike: Array) -> Iterator[str]:
    """What stands on the diagonal and on some of its parallels."""
    for distance in (d for d in (0, 1, 2, 4, 8, 16, 32) if d < len(alike)):
        stripe = np.diagonal(alike, distance)
        low, high = said(stripe.min()), said(stripe.max())
        yield f"distance {distance}: " + (low if low == high else f"{low} to {high}")


@in_style
def matrix(
    values: Array,
    *,
    title: str = "",
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    x_label: str = "column",
    y_label: str = "position p",
    decimals: int = 3,
    signed: bool = True,
) -> "Figure":
    """A small matrix, each cell one square with its number: values (rows, columns).

    >>> [text.get_text() for text in matrix(np.eye(2), decimals=1).axes[0].texts]
    ['1.0', '0.0', '0.0', '1.0']
    """
    rows, columns = np.shape(values)
    figure = new_figure(max(1.3 * columns + 1.5, 5), (0.9 if rows <= 4 else 0.62) * rows + 1.5)
    axes = figure.add_subplot()
    draw_numbered(axes, values, largest_of([values]), decimals, signed)
    name_cells(axes, row_labels or range(rows), column_labels or range(columns))
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    return describe(figure, sentence(title, table_in_words(values, decimals, row_labels)))


@in_style
def matrices(
    named: Mapping[str, Array],
    *,
    across: int = 3,
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    decimals: int = 2,
    signed: bool = True,
) -> "Figure":
    """Small matrices in one colour scale, `across` of them in a row: {title: values (rows, columns)}.

    The rows are named at the left, the columns, numbered unless they have labels, under each matrix.

    >>> [axes.get_title("left") for axes in matrices({"x": np.eye(2), "y": np.ones((2, 3))}).axes]
    ['x', 'y']
    """
    rows, columns = (max(np.shape(values)[axis] for values in named.values()) for axis in (0, 1))
    across = min(across, len(named))
    down = math.ceil(len(named) / across)
    size = across * (0.78 * columns + 0.55) + 1, down * (0.62 * rows + 1.2)
    figure, grid = in_panels(named, *size, across, loc="left")
    gap = 0.04 if staged() else 0.12  # inches between the panels
    figure.set_layout_engine("constrained", w_pad=gap, h_pad=gap)
    for place, (axes, values) in enumerate(grid):
        draw_numbered(axes, values, largest_of(named.values()), decimals, signed, size=15)
        words = row_labels if place % across == 0 else None
        name_cells(axes, words or [""] * len(values), column_labels or range(np.shape(values)[1]))

    def read(values: Array) -> str:  # the rows have their names where a matrix has as many
        fits = row_labels and len(row_labels) == len(values)
        return table_in_words(values, decimals, row_labels if fits else None)

    return describe(figure, each_in_words(named, read))


@in_style
def binary_counter(bits: Array, table: Array, *, base: float) -> "Figure":
    """Counting in binary beside counting with waves: bits (n, pairs), ones first, table (n, 2 · pairs).

    `base` is the table's, for its title.

    >>> len(binary_counter(np.eye(2), np.ones((2, 4)), base=16).axes)
    2
    """
    from matplotlib.colors import ListedColormap

    n, pairs = np.shape(bits)
    figure = new_figure(2.5 * pairs + 1.2, 0.335 * n + 0.95)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1, 2))
    draw_numbered(left, bits, 1, 0, signed=False, cmap=ListedColormap(["#F2F2F2", POSITION]))
    name_cells(left, range(n), [f"bit {i}" for i in range(pairs)])
    draw_numbered(right, table, largest_of([table]), 1)
    name_cells(right, range(n), [f"{wave} {i}" for i in range(pairs) for wave in ("sin", "cos")])
    left.set(title="counting with bits", ylabel="position p")
    right.set(title=f"counting with waves, base {base:g}")
    read = ", ".join("".join(f"{bit:g}" for bit in row) for row in bits)
    steps = np.linalg.norm(np.diff(table, axis=0), axis=1)
    waves = f"a step in the waves beside them is {said(steps.min())} to {said(steps.max())} long"
    return describe(figure, sentence("Bits of the positions, the fast one first", read, waves))


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


LEAST = 0.05  # weights below have their colour and no number, where there are many


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
    size = across * (0.58 * len(tokens) + 1.2), down * (0.36 * rows + 1.6)
    figure, grid = in_panels(weights, *size, across, loc="left")
    for axes, values in grid:
        draw_numbered(axes, values, 1, 2, signed=False, size=14, least=LEAST)
        name_cells(axes, tokens[len(tokens) - rows :], tokens)
        axes.set_xticks(range(len(tokens)), tokens, rotation=45, ha="right", rotation_mode="anchor")
    figure.supxlabel("the token looked at")
    figure.supylabel("the token that looks")
    return describe(figure, each_in_words(weights, lambda values: weights_in_words(values, tokens)))


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
    draw_numbered(axes, weights, 1, 2, signed=False, least=LEAST)
    name_cells(axes, written, words)
    axes.tick_params(labelsize=17)
    axes.set(title=title, xlabel="the word looked at", ylabel="the token written")
    most = zip(written, weights.argmax(axis=1), weights.max(axis=1), strict=True)
    looks = (f"{token} looks at {words[place]} with {said(weight)}" for token, place, weight in most)
    return describe(figure, sentence(title, *looks))


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
    image = draw_colours(axes, beside, beside.max() or 1, signed=False)
    middle, edges = (ends[:-1] + ends[1:]) / 2 - 0.5, ends[1:-1] - 0.5
    axes.set_xticks(middle, list(texts), rotation=30)
    axes.set_yticks(middle, list(texts))
    axes.hlines(edges, -0.5, ends[-1] - 0.5, color="white", linewidth=4)
    axes.vlines(edges, -0.5, ends[-1] - 0.5, color="white", linewidth=4)
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


# What they are drawn with


def largest_of(tables: Iterable[Array]) -> float:
    """The end of one colour scale for all of them: their largest number, whatever its sign."""
    return max(float(np.abs(values).max()) for values in tables) or 1.0


def draw_colours(axes: "Axes", values: Array, largest: float, signed: bool = True, **look: Any) -> Any:
    """A square for each number: signed values around zero, as far below as above; weights from zero up."""
    scale = {"cmap": SIGNED_MAP if signed else WEIGHT_MAP, "vmin": -largest if signed else 0.0}
    axes.spines[:].set_visible(False)
    return axes.imshow(values, **{"aspect": "auto", "vmax": largest, **scale, **look})


def draw_numbered(
    axes: "Axes",
    values: Array,
    largest: float,
    decimals: int,
    signed: bool = True,
    *,
    size: int = 17,
    least: float = -math.inf,
    **look: Any,
) -> None:
    """The squares, and in them the numbers that are not below `least`."""
    draw_colours(axes, values, largest, signed, **look)
    write_numbers(axes, np.where(values < least, np.nan, values), largest, decimals, size)


def write_numbers(
    axes: "Axes", values: Array, largest: float, decimals: int, size: int, left: float = 0, top: float = 0
) -> None:
    """Each number in its square, white where that is dark; no minus before a zero, and nothing for NaN."""
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            colour, text = "white" if abs(value) > 0.65 * largest else INK, f"{value:z.{decimals}f}"
            place = (left + column, top + row)
            axes.text(*place, text.replace("-", "−"), ha="center", va="center", color=colour, fontsize=size)


def draw_framed(
    axes: "Axes",
    values: Array,
    largest: float,
    left: float,
    top: float = 0.0,
    *,
    high: float = 1.0,
    edgecolor: str = INK,
    linewidth: float = 3,
) -> None:
    """Squares without numbers, a column 1 wide and a row so high, in one frame."""
    from matplotlib.patches import Rectangle

    T, d = np.shape(values)
    right, bottom = left + d, top + T * high
    extent = (left, right, bottom, top)
    draw_colours(axes, values, largest, extent=extent, interpolation="nearest")
    axes.vlines(left + np.arange(1, d), top, bottom, color="white", linewidth=2)
    axes.hlines(top + high * np.arange(1, T), left, right, color="white", linewidth=2)
    frame = Rectangle((left, top), d, T * high, fill=False, edgecolor=edgecolor, linewidth=linewidth)
    axes.add_patch(frame)


def name_cells(axes: "Axes", rows: Sequence[Any], columns: Sequence[Any]) -> None:
    """A name at each row and under each column, white lines between the squares."""
    axes.set_xticks(range(len(columns)), [str(name) for name in columns])
    axes.set_yticks(range(len(rows)), [str(name) for name in rows])
    axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=3)
    axes.tick_params(which="both", length=0)
