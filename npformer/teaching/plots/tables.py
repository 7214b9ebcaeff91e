"""Tables and small matrices as coloured squares, alone or beside each other: in every lesson."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from npformer.backend import Array
from npformer.teaching.plots.style import INK, SIGNED_MAP, WEIGHT_MAP, describe, in_style, new_figure, staged
from npformer.teaching.plots.words import large_table_in_words, sentence, table_in_words

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
    image = axes.imshow(values, aspect="auto", interpolation="nearest", **colours_of(values, signed))
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    axes.spines[:].set_visible(False)
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
    figure = new_figure(3.6 * len(tables) + 1.4, 4.8)
    beside = figure.subplots(1, len(tables), sharey=True, squeeze=False)[0]
    colours = colours_of(np.array([np.abs(table).max() for table in tables.values()]), signed=True)
    for axes, (title, table) in zip(beside, tables.items(), strict=True):
        image = axes.imshow(table, aspect="auto", interpolation="nearest", **colours)
        axes.set(title=title, xlabel=x_label)
        axes.spines[:].set_visible(False)
    beside[0].set_ylabel(y_label)
    figure.colorbar(image, ax=beside, label="value", pad=0.02)
    words = (sentence(title, large_table_in_words(table)) for title, table in tables.items())
    return describe(figure, ". ".join(words))


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
    axes.imshow(values, **colours_of(values, signed), aspect="auto")
    write_numbers(axes, values, decimals, signed)
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
    figure = new_figure(across * (0.78 * columns + 0.55) + 1, down * (0.62 * rows + 1.2))
    gap = 0.04 if staged() else 0.12  # inches between the panels
    figure.set_layout_engine("constrained", w_pad=gap, h_pad=gap)
    largest = max(colours_of(values, signed)["vmax"] for values in named.values())
    for place, (title, values) in enumerate(named.items(), 1):
        axes = figure.add_subplot(down, across, place)
        _draw_numbered(axes, values, largest, decimals, signed)
        words = row_labels if (place - 1) % across == 0 else None
        name_cells(axes, words or [""] * len(values), column_labels or range(np.shape(values)[1]))
        axes.set_title(title, loc="left")
    return describe(figure, _matrices_in_words(named, decimals, row_labels))


def _matrices_in_words(named: Mapping[str, Array], decimals: int, rows: Sequence[str] | None) -> str:
    """Each matrix under its title; the rows have their names only where a matrix has as many."""
    names = ((rows if rows and len(rows) == len(values) else None) for values in named.values())
    parts = zip(named.items(), names, strict=True)
    return ". ".join(
        sentence(title, table_in_words(x, decimals, row_names)) for (title, x), row_names in parts
    )


def _draw_numbered(axes: "Axes", values: Array, largest: float, decimals: int, signed: bool) -> None:
    """The squares and their numbers, coloured on a scale up to `largest`, which other panels share."""
    axes.imshow(values, **colours_of(np.array(largest), signed), aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        write_number(axes, (column, row), value, decimals, largest, size=15)


def colours_of(values: Array, signed: bool) -> dict[str, Any]:
    """Signed values around zero, as far below as above; weights from zero up."""
    largest = float(np.abs(values).max()) or 1.0
    return {
        "cmap": SIGNED_MAP if signed else WEIGHT_MAP,
        "vmin": -largest if signed else 0.0,
        "vmax": largest,
    }


def write_numbers(axes: "Axes", values: Array, decimals: int, signed: bool) -> None:
    """Each number in the middle of its square."""
    largest = colours_of(values, signed)["vmax"]
    for (row, column), value in np.ndenumerate(values):
        write_number(axes, (column, row), value, decimals, largest, size=17)


def write_number(
    axes: "Axes", place: tuple[float, float], value: float, decimals: int, largest: float, size: int
) -> None:
    """White where the square is dark; no minus before a zero."""
    colour = "white" if abs(value) > 0.65 * largest else INK
    text = f"{value:z.{decimals}f}".replace("-", "−")
    axes.text(*place, text, ha="center", va="center", color=colour, fontsize=size)


def name_cells(axes: "Axes", rows: Sequence[Any], columns: Sequence[Any]) -> None:
    """A name at each row and under each column, white lines between the squares and no frame around them."""
    axes.set_xticks(range(len(columns)), [str(name) for name in columns])
    axes.set_yticks(range(len(rows)), [str(name) for name in rows])
    axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=3)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
