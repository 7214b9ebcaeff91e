"""Tables as coloured squares; small tables also show their numbers. All lessons use them."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from npformer.backend import Array
from npformer.lessons.plots.colours import INK, POSITION, SIGNED_MAP, WEIGHT_MAP
from npformer.lessons.plots.style import describe, in_style, is_for_slides, make_panels, new_figure
from npformer.lessons.plots.words import (
    LEAST,
    format_value,
    large_table_in_words,
    panels_in_words,
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
    """Draw a large table as colours.

    Parameters
    ----------
    values : float array (rows, columns)
    title : str
    x_label : str
    y_label : str
    signed : bool
        Whether the colour scale is centred at zero; otherwise it starts at zero.

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> heat_map(np.eye(3)).axes[0].get_xlabel()
    'column'
    """
    from matplotlib.ticker import MaxNLocator

    rows, columns = np.shape(values)
    is_square = rows == columns
    figure = new_figure(5.8, 4.7) if is_square else new_figure(10, 4.8)
    axes = figure.add_subplot()
    image = draw_colours(axes, values, largest_of([values]), signed, interpolation="nearest")
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    for axis in (axes.xaxis, axes.yaxis):
        # Positions and columns are integers, so there is no tick at 2.5.
        axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    figure.colorbar(image, label="value")
    return describe(figure, sentence(title, large_table_in_words(values)))


@in_style
def heat_maps(
    tables: Mapping[str, Array],
    *,
    x_label: str = "column",
    y_label: str = "position p (in tokens)",
    colour_label: str = "value",
    signed: bool = True,
) -> "Figure":
    """Draw tables next to each other as colours on one scale.

    Parameters
    ----------
    tables : mapping of float arrays (rows, columns)
        The tables by their titles.
    x_label : str
    y_label : str
    colour_label : str
        The label of the colour bar.
    signed : bool
        Whether the colour scale is centred at zero; otherwise it starts at zero.

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> len(heat_maps({"a": np.eye(3), "b": -np.eye(3)}).axes)  # two tables and the colour bar
    3
    """
    figure, panels = make_panels(tables, 3.6 * len(tables) + 1.4, 4.8, sharey=True)
    for axes, table in panels:
        image = draw_colours(axes, table, largest_of(tables.values()), signed, interpolation="nearest")
        axes.set_xlabel(x_label)
    figure.axes[0].set_ylabel(y_label)
    figure.colorbar(image, ax=figure.axes, label=colour_label, pad=0.02)
    return describe(figure, panels_in_words(tables, large_table_in_words))


def position_similarity(table: Array, *, title: str = "") -> "Figure":
    """Draw the similarity of every two positions: the dot product of their rows in the position table.

    The dot product of two rows of sinusoids is at most d_model/2.

    Parameters
    ----------
    table : float array (n, d_model)
    title : str

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> position_similarity(np.eye(2)).axes[0].get_xlabel()
    'position q (in tokens)'
    """
    products = table @ table.T
    figure = heat_map(products, title=title, x_label="position q (in tokens)", signed=False)
    # The colour scale goes from the smallest to the largest product, and need not contain zero.
    figure.axes[0].images[0].set_clim(products.min(), products.max())
    return describe(figure, sentence(title, *_diagonals_in_words(products)))


def _diagonals_in_words(products: Array) -> Iterator[str]:
    """Yield the range of the main diagonal, and of some diagonals parallel to it, as text."""
    for distance in (0, 1, 2, 4, 8, 16, 32):
        if distance < len(products):
            diagonal = np.diagonal(products, distance)
            low, high = format_value(diagonal.min()), format_value(diagonal.max())
            numbers = low if low == high else f"{low} to {high}"
            yield f"distance {distance}: {numbers}"


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
    """Draw a small matrix: each cell is a square with its number.

    Parameters
    ----------
    values : float array (rows, columns)
    title : str
    row_labels : sequence of str, optional
        Numbers from 0 if omitted.
    column_labels : sequence of str, optional
        Numbers from 0 if omitted.
    x_label : str
    y_label : str
    decimals : int
        The number of decimals in the squares.
    signed : bool
        Whether the colour scale is centred at zero; otherwise it starts at zero.

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> [text.get_text() for text in matrix(np.eye(2), decimals=1).axes[0].texts]
    ['1.0', '0.0', '0.0', '1.0']
    """
    rows, columns = np.shape(values)
    row_height = 0.9 if rows <= 4 else 0.56
    figure = new_figure(max(1.3 * columns + 1.5, 5), row_height * rows + 1.5)
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
    row_labels: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    column_labels: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    x_label: str = "",
    y_label: str = "",
    decimals: int = 2,
    signed: bool = True,
) -> "Figure":
    """Draw small matrices in one colour scale.

    Parameters
    ----------
    named : mapping of float arrays (rows, columns)
        The matrices by their titles.
    across : int
        The number of matrices in a row.
    row_labels : sequence of str, or mapping of sequences of str, optional
        The labels at the left of each row of matrices. A mapping gives the labels of single matrices by their
        titles; a matrix without an entry has no labels.
    column_labels : sequence of str, or mapping of sequences of str, optional
        The labels under each matrix, or a mapping of the labels by title; numbers from 0 if omitted.
    x_label : str
        What the columns are, under each matrix.
    y_label : str
        What the rows are, at the left of each row of matrices.
    decimals : int
        The number of decimals in the squares.
    signed : bool
        Whether the colour scale is centred at zero; otherwise it starts at zero.

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> [axes.get_title("left") for axes in matrices({"x": np.eye(2), "y": np.ones((2, 3))}).axes]
    ['x', 'y']
    """
    most_rows = max(np.shape(values)[0] for values in named.values())
    most_columns = max(np.shape(values)[1] for values in named.values())
    across = min(across, len(named))
    room_for_labels = len(row_labels) if isinstance(row_labels, Mapping) else 1  # inches
    width = across * (0.78 * most_columns + 0.55) + room_for_labels
    height = math.ceil(len(named) / across) * (0.62 * most_rows + 1.2)
    figure, panels = make_panels(named, width, height, across, loc="left")
    gap = 0.04 if is_for_slides() else 0.12  # inches between the panels
    figure.set_layout_engine("constrained", w_pad=gap, h_pad=gap)
    descriptions = []
    for i, ((title, values), (axes, _)) in enumerate(zip(named.items(), panels, strict=True)):
        draw_numbered(axes, values, largest_of(named.values()), decimals, signed, size=15)
        if isinstance(row_labels, Mapping):
            rows = drawn_rows = row_labels.get(title)
        else:
            rows = row_labels if row_labels and len(row_labels) == len(values) else None
            drawn_rows = row_labels if i % across == 0 else None
        columns = column_labels[title] if isinstance(column_labels, Mapping) else column_labels
        name_cells(axes, drawn_rows or [""] * len(values), columns or range(np.shape(values)[1]))
        axes.set(xlabel=x_label, ylabel=y_label if i % across == 0 else "")
        descriptions.append(sentence(title, table_in_words(values, decimals, rows)))
    return describe(figure, ". ".join(descriptions))


@in_style
def binary_counter(bits: Array, table: Array, *, base: float) -> "Figure":
    """Draw two ways to count next to each other: with bits and with waves.

    Parameters
    ----------
    bits : array (n, pairs)
        The bits of the numbers from 0 to n - 1. Column 0 is the lowest bit.
    table : float array (n, 2 · pairs)
        The sinusoids of the positions from 0 to n - 1.
    base : float
        The base of the sinusoids, for the title.

    Returns
    -------
    figure : Figure

    Examples
    --------
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
    numbers = ["".join(f"{bit:g}" for bit in row) for row in bits]
    step_lengths = np.linalg.norm(np.diff(table, axis=0), axis=1)
    shortest, longest = format_value(step_lengths.min()), format_value(step_lengths.max())
    waves = f"each step in the waves next to them is {shortest} to {longest} long"
    title = "Bits of the positions, the fast one first"
    return describe(figure, sentence(title, ", ".join(numbers), waves))


def attention_weights(weights: Array, tokens: Sequence[str], *, title: str = "") -> "Figure":
    """Draw the attention weights of one head.

    Parameters
    ----------
    weights : float array (T, T)
        One row per query; each row sums to 1.
    tokens : sequence of str
    title : str

    Returns
    -------
    figure : Figure

    Examples
    --------
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


@in_style
def attention_heads(
    weights: Mapping[str, Array], tokens: Sequence[str], *, across: int = 2, asked: str = ""
) -> "Figure":
    """Draw the attention weights of several heads for one sentence, in one colour scale.

    Weights below 0.05 have a colour, but no number.

    Parameters
    ----------
    weights : mapping of float arrays (T, T)
        The weights of each head, by its title; one row per query. If there are fewer rows than tokens, the
        rows belong to the last tokens.
    tokens : sequence of str
    across : int
        The number of heads in a row.
    asked : str
        A token. The alternative text describes its whole row.

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> heads = {"head 0": np.eye(2), "head 1": np.full((2, 2), 0.5)}
    >>> [axes.get_title("left") for axes in attention_heads(heads, ["hot", "dog"]).axes]
    ['head 0', 'head 1']
    """
    across = min(across, len(weights))
    first_head, *_ = weights.values()
    n_queries = len(first_head)
    width = across * (0.58 * len(tokens) + 1.2)
    height = math.ceil(len(weights) / across) * (0.36 * n_queries + 1.6)
    figure, panels = make_panels(weights, width, height, across, loc="left")
    for axes, values in panels:
        draw_numbered(axes, values, 1, 2, signed=False, size=14, least=LEAST)
        name_cells(axes, tokens[len(tokens) - n_queries :], tokens)
        axes.set_xticks(range(len(tokens)), tokens, rotation=45, ha="right", rotation_mode="anchor")
    figure.supxlabel("the token looked at")
    figure.supylabel("the token that looks")
    text = panels_in_words(weights, lambda values: weights_in_words(values, tokens, asked))
    return describe(figure, text)


@in_style
def cross_attention(
    weights: Array, words: Sequence[str], written: Sequence[str], *, title: str = ""
) -> "Figure":
    """Draw which words the decoder attends to when it writes a token.

    Weights below 0.05 have a colour, but no number.

    Parameters
    ----------
    weights : float array (T, S)
        The weights of the cross-attention; one row per written token.
    words : sequence of str
        The S words that the decoder attends to.
    written : sequence of str
        The T tokens that the decoder writes.
    title : str

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> [text.get_text() for text in cross_attention(np.eye(2), ["forty", "two"], ["4", "2"]).axes[0].texts]
    ['1.00', '1.00']
    """
    figure = new_figure(1.2 * len(words) + 1.6, 0.46 * len(written) + 1.5)
    axes = figure.add_subplot()
    draw_numbered(axes, weights, 1, 2, signed=False, least=LEAST)
    name_cells(axes, written, words)
    axes.tick_params(labelsize=17)
    axes.set(title=title, xlabel="the word looked at", ylabel="the token written")
    largest = zip(written, weights.argmax(axis=1), weights.max(axis=1), strict=True)
    texts = [
        f"{token} looks at {words[column]} with {format_value(weight)}" for token, column, weight in largest
    ]
    return describe(figure, sentence(title, *texts))


@in_style
def themes(cosines: Array, texts: Mapping[str, int], *, title: str = "") -> "Figure":
    """Draw the cosine of every two texts; texts with the same theme are neighbours.

    The diagonal, where all cosines are 1, is white. Negative cosines are white too.

    Parameters
    ----------
    cosines : float array (n, n)
    texts : mapping of ints
        The number of texts of each theme.
    title : str

    Returns
    -------
    figure : Figure

    Examples
    --------
    >>> themes(np.eye(3), {"money": 1, "music": 2}).axes[0].get_title()
    ''
    """
    ends = np.cumsum([0, *texts.values()])
    figure = new_figure(6.6, 4.4)
    axes = figure.add_subplot()
    is_diagonal = np.eye(len(cosines), dtype=bool)
    off_diagonal = np.where(is_diagonal, 0, cosines)
    largest = off_diagonal.max()
    image = draw_colours(axes, off_diagonal, 1.0 if largest == 0 else largest, signed=False)
    middle = (ends[:-1] + ends[1:]) / 2 - 0.5
    edges = ends[1:-1] - 0.5
    axes.set_xticks(middle, list(texts), rotation=30)
    axes.set_yticks(middle, list(texts))
    axes.hlines(edges, -0.5, ends[-1] - 0.5, color="white", linewidth=4)
    axes.vlines(edges, -0.5, ends[-1] - 0.5, color="white", linewidth=4)
    axes.set(title=title, xlabel="theme of one text", ylabel="theme of the other text")
    figure.colorbar(image, label="cosine")
    return describe(figure, sentence(title, *_themes_in_words(off_diagonal, list(texts), ends)))


def _themes_in_words(off_diagonal: Array, names: Sequence[str], ends: Array) -> list[str]:
    """Return the mean cosine inside each theme, and the mean cosine of texts of different themes."""
    has_same_theme = np.zeros(off_diagonal.shape, dtype=bool)
    texts = []
    for name, start, end in zip(names, ends[:-1], ends[1:], strict=True):
        has_same_theme[start:end, start:end] = True
        n_texts = end - start
        n_pairs = max(n_texts * (n_texts - 1), 1)  # without the diagonal, which is 0 in `off_diagonal`
        mean = off_diagonal[start:end, start:end].sum() / n_pairs
        texts.append(f"inside {name} {format_value(mean)} on average")
    if len(names) > 1:
        texts.append(f"between different themes {format_value(off_diagonal[~has_same_theme].mean())}")
    return texts


# Helpers of the functions above


def largest_of(tables: Iterable[Array]) -> float:
    """Return the end of a colour scale: the largest absolute value in all tables, or 1 if all are 0."""
    largest = max(float(np.abs(values).max()) for values in tables)
    return 1.0 if largest == 0 else largest


def draw_colours(axes: "Axes", values: Array, largest: float, signed: bool = True, **look: Any) -> Any:
    """Draw a square for each number. Signed scales are centred at zero, unsigned ones start at zero."""
    if signed:
        scale = {"cmap": SIGNED_MAP, "vmin": -largest}
    else:
        scale = {"cmap": WEIGHT_MAP, "vmin": 0.0}
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
    """Draw a square for each number, and write each number that is at least `least` into its square."""
    draw_colours(axes, values, largest, signed, **look)
    write_numbers(axes, np.where(values < least, np.nan, values), largest, decimals, size)


def write_numbers(
    axes: "Axes", values: Array, largest: float, decimals: int, size: int, left: float = 0, top: float = 0
) -> None:
    """Write each number in its square, white on dark squares; NaN is not written."""
    for (row, column), value in np.ndenumerate(values):
        if np.isnan(value):
            continue
        is_on_dark = abs(value) > 0.65 * largest
        text = f"{value:z.{decimals}f}".replace("-", "−")
        axes.text(
            left + column,
            top + row,
            text,
            ha="center",
            va="center",
            color="white" if is_on_dark else INK,
            fontsize=size,
        )


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
    """Draw squares without numbers in a frame; a column has width 1, and a row has the height `high`."""
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
    """Write a label at each row and under each column, and draw white lines between the squares."""
    axes.set_xticks(range(len(columns)), [str(name) for name in columns])
    axes.set_yticks(range(len(rows)), [str(name) for name in rows])
    axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=3)
    axes.tick_params(which="both", length=0)
