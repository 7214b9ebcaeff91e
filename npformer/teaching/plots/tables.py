"""Pictures of arrays: functions that take arrays and return matplotlib Figures.

One visual language for every lesson. Sine is blue, cosine orange, position green, meaning grey and a gradient
red, always; signed values lie on a diverging map centred at zero, weights on a sequential one. The colours
are Okabe and Ito's, which colour-blind readers tell apart. matplotlib is imported when a picture is drawn,
and pyplot never is, so a figure leaves no state behind.

    from npformer import positional_encoding
    plots.picture(plots.heat_map(positional_encoding(50, 64)), alt="...")
"""

import functools
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from npformer.backend import Array

if TYPE_CHECKING:
    from IPython.display import Image
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")
R = TypeVar("R")

SINE, COSINE, POSITION, MEANING, GRADIENT = "#0072B2", "#E69F00", "#009E73", "#7F7F7F", "#D55E00"
INK, FAINT = "#1A1A1A", "#D9D9D9"
SIGNED_MAP, WEIGHT_MAP = "RdBu_r", "Purples"
COMPARED = ((INK, "o-"), ("#CC79A7", "s--"), ("#56B4E9", "^:"))  # things that have no colour of their own
DEPTH = ((GRADIENT, "-"), (INK, "--"), ("#CC79A7", ":"))  # kinds of block, in pictures of their gradients

STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters on every machine
    "font.size": 15,
    "axes.titlesize": 17,
    "axes.labelsize": 15,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "lines.linewidth": 3.0,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "npformer",
}


def _in_style(draw: Callable[P, R]) -> Callable[P, R]:
    """Run a function in our style, whatever the reader's own matplotlib settings are, and put those back."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> R:
        from matplotlib import style

        with style.context(["default", STYLE]):
            return draw(*args, **kwargs)

    return drawn


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


@_in_style
def encoded(figure: "Figure", kind: str = "png") -> bytes:
    """The figure as the bytes of a "png" or "svg" file; nothing in them names the day or the software."""
    metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    file = io.BytesIO()
    figure.draw_without_rendering()  # the layout settles in two passes: this one and the one below
    figure.savefig(file, format=kind, dpi=100, metadata=metadata)
    return file.getvalue()


def picture(figure: "Figure", alt: str) -> "Image":
    """The figure as a notebook shows it, with a description for those who cannot see it."""
    from IPython.display import Image

    return Image(data=encoded(figure), format="png", alt=alt)  # type: ignore[no-untyped-call]


# --- arrays as squares --------------------------------------------------------------------------


@_in_style
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
    rows, columns = np.shape(values)
    figure = _figure(7 if rows == columns else 10, 6 if rows == columns else 5)
    axes = figure.add_subplot()
    image = axes.imshow(values, aspect="auto", interpolation="nearest", **_colours(values, signed))
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    axes.spines[:].set_visible(False)
    figure.colorbar(image, label="value")
    return figure


@_in_style
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
    figure = _figure(max(1.3 * columns + 1.5, 5), 1.1 * rows + 1.6)
    axes = figure.add_subplot()
    axes.imshow(values, **_colours(values, signed), aspect="auto")
    _write_numbers(axes, values, decimals, signed)
    _name_cells(axes, row_labels or range(rows), column_labels or range(columns))
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    return figure


def _colours(values: Array, signed: bool) -> dict[str, Any]:
    """Signed values around zero, as far below as above; weights from zero up."""
    largest = float(np.abs(values).max()) or 1.0
    return {
        "cmap": SIGNED_MAP if signed else WEIGHT_MAP,
        "vmin": -largest if signed else 0.0,
        "vmax": largest,
    }


def _write_numbers(axes: "Axes", values: Array, decimals: int, signed: bool) -> None:
    """Each number in the middle of its square."""
    largest = _colours(values, signed)["vmax"]
    for (row, column), value in np.ndenumerate(values):
        _write_number(axes, (column, row), value, decimals, largest, size=17)


def _write_number(
    axes: "Axes", place: tuple[float, float], value: float, decimals: int, largest: float, size: int
) -> None:
    """White where the square is dark; no minus before a zero."""
    colour = "white" if abs(value) > 0.65 * largest else INK
    text = f"{value:z.{decimals}f}".replace("-", "−")
    axes.text(*place, text, ha="center", va="center", color=colour, fontsize=size)


def _name_cells(axes: "Axes", rows: Sequence[Any], columns: Sequence[Any]) -> None:
    axes.set_xticks(range(len(columns)), [str(name) for name in columns])
    axes.set_yticks(range(len(rows)), [str(name) for name in rows])
    axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=3)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)


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


def position_similarity(table: Array, *, title: str = "") -> "Figure":
    """How alike two positions are: the dot product of every two rows, at most d_model/2: table (n, d_model).

    >>> position_similarity(np.eye(2)).axes[0].get_xlabel()
    'position q (in tokens)'
    """
    return heat_map(table @ table.T, title=title, x_label="position q (in tokens)")


# --- waves and clocks ---------------------------------------------------------------------------


@_in_style
def frequency_bands(omega: Array, *, pairs: Sequence[int] = (0, 1, 2, 3), n: int = 64) -> "Figure":
    """The sine and the cosine of a few pairs, one band a pair: omega (d_model/2,) in radians per position.

    >>> len(frequency_bands(np.array([1.0, 0.1]), pairs=(0, 1)).axes)
    2
    """
    figure = _figure(10, 1.4 * len(pairs) + 1.2)
    bands = figure.subplots(len(pairs), sharex=True, squeeze=False)[:, 0]
    for axes, i in zip(bands, pairs, strict=True):
        _draw_band(axes, float(omega[i]), n)
        turn = 2 * math.pi / omega[i]
        axes.set_title(
            f"pair i = {i}: columns {2 * i} and {2 * i + 1}, {turn:,.1f} positions a turn", loc="left"
        )
    bands[-1].set_xlabel("position p (in tokens)")
    figure.legend(*bands[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return figure


def _draw_band(axes: "Axes", omega: float, n: int) -> None:
    """Dots where there are tokens, and the waves between them, which no token sees."""
    between, tokens = np.linspace(0, n - 1, 20 * n), np.arange(n)
    for wave, colour, name in ((np.sin, SINE, "sine, column 2i"), (np.cos, COSINE, "cosine, column 2i+1")):
        axes.plot(between, wave(omega * between), color=colour, label=name)
        axes.plot(tokens, wave(omega * tokens), "o", color=colour, markersize=5)
    axes.set(ylim=(-1.25, 1.25), xlim=(-0.5, n - 0.5), yticks=(-1, 0, 1))
    axes.axhline(0, color=FAINT, linewidth=1, zorder=0)


@_in_style
def clock_hands(
    positions: Sequence[int], omega: Array, *, names: Sequence[str] = ("fast", "medium", "slow")
) -> "Figure":
    """Each pair as the hand of a clock, a row of clocks for each position: omega (pairs,), as many as names.

    Right is the sine and up is the cosine, so that a hand starts at twelve and turns as a clock's does.

    >>> len(clock_hands([0, 1], np.array([1.0, 0.1, 0.01])).axes)
    6
    """
    figure = _figure(10, 2.5 * len(positions) + 2)
    dials = figure.subplots(len(positions), len(names), squeeze=False)
    for p, row in zip(positions, dials, strict=True):
        for i, axes in enumerate(row):
            s, c = math.sin(p * float(omega[i])), math.cos(p * float(omega[i]))
            _draw_clock(axes, s, c)
            axes.set_xlabel(f"({s:z.2f}, {c:z.2f})".replace("-", "−"), fontsize=17)
        row[0].set_ylabel(f"p = {p}", rotation=0, labelpad=40, va="center", fontsize=22, color=POSITION)
    for i, (axes, name) in enumerate(zip(dials[0], names, strict=True)):
        axes.set_title(f"{name} hand, pair {i}\n{2 * math.pi / omega[i]:,.1f} positions a turn")
    figure.legend(*dials[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _draw_clock(axes: "Axes", s: float, c: float) -> None:
    """The hand at (sin, cos), and the two steps that lead to its tip."""
    from matplotlib.patches import Circle

    axes.add_patch(Circle((0, 0), 1, facecolor="white", edgecolor=FAINT, linewidth=3))
    for hour in np.arange(12) * math.pi / 6:
        axes.plot(*np.outer((np.sin(hour), np.cos(hour)), (0.92, 1)), color=MEANING, linewidth=2)
    axes.plot((0, s), (0, 0), color=SINE, linewidth=5, label="sine: to the right")
    axes.plot((s, s), (0, c), color=COSINE, linewidth=5, label="cosine: up")
    axes.plot((0, s), (0, c), color=POSITION, linewidth=5, solid_capstyle="round", label="the hand")
    axes.plot(s, c, "o", color=POSITION, markersize=11)
    axes.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", xticks=(), yticks=())
    axes.spines[:].set_visible(False)


def _told_apart(
    lines: Mapping[str, Any], styles: Sequence[tuple[str, str]] = COMPARED
) -> Iterator[tuple[tuple[str, str], tuple[str, Any]]]:
    """(colour, dashes) and (label, values) of each line; more than there are colours would be left out."""
    if len(lines) > len(styles):
        raise ValueError(f"plots: {len(lines)} lines in one panel; expected at most {len(styles)}")
    return zip(styles[: len(lines)], lines.items(), strict=True)


@_in_style
def wavelength_curves(curves: Mapping[str, Array], *, title: str = "") -> "Figure":
    """How many positions one turn of each pair takes, on a logarithmic axis: {label: wavelengths (pairs,)}.

    >>> wavelength_curves({"base 10000": np.array([6.3, 628.0])}).axes[0].get_yscale()
    'log'
    """
    figure = _figure(10, 5)
    axes = figure.add_subplot()
    for (colour, line), (label, wavelengths) in _told_apart(curves):
        axes.plot(wavelengths, line, color=colour, label=label, markersize=8)
        end = (len(wavelengths) - 1, wavelengths[-1])
        axes.annotate(f"{end[1]:,.0f}", end, (10, 0), textcoords="offset points", va="center")
    axes.set(title=title, yscale="log", xlabel="pair i", ylabel="wavelength (positions a turn)")
    axes.grid(color=FAINT)
    axes.legend()
    return figure


# --- several arrays beside each other ------------------------------------------------------------


@_in_style
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
    figure = _figure(across * (0.78 * columns + 0.55) + 1, down * (0.62 * rows + 1.2))
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)  # inches between the panels
    largest = max(_colours(values, signed)["vmax"] for values in named.values())
    for place, (title, values) in enumerate(named.items(), 1):
        axes = figure.add_subplot(down, across, place)
        _draw_numbered(axes, values, largest, decimals, signed)
        words = row_labels if (place - 1) % across == 0 else None
        _name_cells(axes, words or [""] * len(values), column_labels or range(np.shape(values)[1]))
        axes.set_title(title, loc="left")
    return figure


def _draw_numbered(axes: "Axes", values: Array, largest: float, decimals: int, signed: bool) -> None:
    """The squares and their numbers, coloured on a scale up to `largest`, which other panels share."""
    axes.imshow(values, **_colours(np.array(largest), signed), aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        _write_number(axes, (column, row), value, decimals, largest, size=15)


@_in_style
def gradient_by_depth(panels: Mapping[str, Mapping[str, Array]], *, across: int = 2) -> "Figure":
    """The size of a gradient at each block, on a logarithmic axis: {title: {label: sizes (n_layers,)}}.

    `across` panels stand in a row and share its axis; the first panel has every label, at most three. A line
    stops where its sizes are NaN.

    >>> gradient_by_depth({"of x": {"pre-norm": np.array([1.0, 0.1])}}).axes[0].get_yscale()
    'log'
    """
    across = min(across, len(panels))
    down = math.ceil(len(panels) / across)
    figure = _figure(6 * across, 3.9 * down + 1)
    grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey="row")
    for axes, (title, lines) in zip(grid.ravel(), panels.items(), strict=True):
        for (colour, line), (label, sizes) in _told_apart(lines, DEPTH):
            axes.plot(sizes, line, color=colour, label=label)
        axes.set(title=title, yscale="log")
        axes.grid(color=FAINT)
    for row in grid:
        row[0].set_ylabel("size of the gradient")
    for axes in grid[-1]:
        axes.set_xlabel("block (0 reads the words)")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


# --- lines and tables beside each other ---------------------------------------------------------


@_in_style
def curves(
    x: Array, panels: Mapping[str, Mapping[str, Array]], *, x_label: str, y_label: str = ""
) -> "Figure":
    """Lines over one x, at most three in a panel: {title of the panel: {label: y like x}}.

    >>> [axes.get_title() for axes in curves(np.arange(2), {"up": {"x": np.arange(2)}}, x_label="x").axes]
    ['up']
    """
    figure = _figure(10 if len(panels) == 1 else 12, 5)
    beside = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, lines) in zip(beside, panels.items(), strict=True):
        for (colour, line), (label, y) in _told_apart(lines):
            axes.plot(x, y, line[1:], color=colour, label=label)
        axes.set(title=title, xlabel=x_label)
        axes.grid(color=FAINT)
        axes.legend()
    beside[0].set_ylabel(y_label)
    return figure


@_in_style
def growth(panels: Mapping[str, tuple[Array, Mapping[str, Array]]]) -> "Figure":
    """Times on two logarithmic axes, where a power is a straight line: {x label: (x, {label: y})}.

    >>> growth({"n": (np.array([1.0, 2]), {"measured": np.array([1.0, 2])})}).axes[0].get_xscale()
    'log'
    """
    figure = _figure(4.2 * len(panels), 4.6)
    beside = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, (x_label, (x, lines)) in zip(beside, panels.items(), strict=True):
        for (colour, line), (label, y) in _told_apart(lines):
            axes.plot(x, y, line, color=colour, label=label)
        axes.set(xscale="log", yscale="log", xlabel=x_label)
        axes.set_xticks(x[::2], [f"{value:g}" for value in x[::2]])
        axes.minorticks_off()
        axes.grid(color=FAINT)
    beside[0].set_ylabel("time, ms")
    beside[0].legend()
    return figure


@_in_style
def timeline(panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]) -> "Figure":
    """Who works when, on one axis of time, at most three a panel: {title: {who: (start, end) in ms}}.

    >>> timeline({"one after the other": {"host": [(0, 1)], "device": [(1, 3)]}}).axes[0].get_xlabel()
    'time, ms'
    """
    figure = _figure(11, 2.6 * len(panels) + 0.6)
    below = figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0]
    for axes, (title, lanes) in zip(below, panels.items(), strict=True):
        for row, ((colour, _), (_, spans)) in enumerate(_told_apart(lanes)):
            bars = [(start, end - start) for start, end in spans]
            axes.broken_barh(bars, (row - 0.4, 0.8), color=colour, edgecolor="white", linewidth=1.5)
        axes.set_title(title, loc="left")
        axes.set_yticks(range(len(lanes)), list(lanes))
        axes.tick_params(axis="y", length=0, labelsize=15)
        axes.invert_yaxis()
        axes.grid(axis="x", color=FAINT)
        axes.set_axisbelow(True)
    below[-1].set_xlabel("time, ms")
    return figure


@_in_style
def heat_maps(
    tables: Mapping[str, Array], *, x_label: str = "column", y_label: str = "position p (in tokens)"
) -> "Figure":
    """Tables beside each other as signed colours on one scale: {title: values (rows, columns)}.

    >>> len(heat_maps({"a": np.eye(3), "b": -np.eye(3)}).axes)  # two tables and the colour bar
    3
    """
    figure = _figure(3.6 * len(tables) + 1.4, 4.8)
    beside = figure.subplots(1, len(tables), sharey=True, squeeze=False)[0]
    colours = _colours(np.array([np.abs(table).max() for table in tables.values()]), signed=True)
    for axes, (title, table) in zip(beside, tables.items(), strict=True):
        image = axes.imshow(table, aspect="auto", interpolation="nearest", **colours)
        axes.set(title=title, xlabel=x_label)
        axes.spines[:].set_visible(False)
    beside[0].set_ylabel(y_label)
    figure.colorbar(image, ax=beside, label="value", pad=0.02)
    return figure


@_in_style
def binary_counter(bits: Array, table: Array) -> "Figure":
    """Counting in binary beside counting with waves: bits (n, pairs), ones first, table (n, 2 · pairs).

    >>> len(binary_counter(np.eye(2), np.ones((2, 4))).axes)
    2
    """
    from matplotlib.colors import ListedColormap

    n, pairs = np.shape(bits)
    figure = _figure(2.5 * pairs + 1.2, 0.44 * n + 1.2)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1, 2))
    left.imshow(bits, cmap=ListedColormap(["#F2F2F2", POSITION]), vmin=0, vmax=1, aspect="auto")
    _write_numbers(left, bits, 0, signed=False)
    _name_cells(left, range(n), [f"bit {i}" for i in range(pairs)])
    right.imshow(table, **_colours(table, signed=True), aspect="auto")
    _write_numbers(right, table, 1, signed=True)
    _name_cells(right, range(n), [f"{wave} {i}" for i in range(pairs) for wave in ("sin", "cos")])
    left.set(title="counting with bits", ylabel="position p")
    right.set(title="counting with waves")
    return figure


# --- lanes --------------------------------------------------------------------------------------


@_in_style
def lanes(meaning: Array, position: Array, output: Array, tokens: Sequence[str]) -> "Figure":
    """A lane a token: meaning + order tag go through one shared block: three arrays (T, d_model).

    >>> len(lanes(np.eye(2), np.eye(2), np.eye(2), ["hot", "dog"]).axes[0].get_images())
    8
    """
    T, d = np.shape(meaning)
    total = meaning + position
    figure = _figure(12, 1.2 * T + 1)
    axes = figure.add_subplot()
    colours = _colours(np.stack([meaning, position, total, output]), signed=True)
    starts = (0.0, d + 0.9, 2 * d + 1.8, 3 * d + 5.4)
    names = {"meaning": MEANING, "order tag": POSITION, "input": INK, "output": INK}
    for start, (name, ink), rows in zip(
        starts, names.items(), (meaning, position, total, output), strict=True
    ):
        axes.text(start + d / 2, -0.62, name, ha="center", color=ink, fontsize=19, fontweight="bold")
        for lane, row in enumerate(rows):
            _draw_strip(axes, row, start, lane, ink, colours)
            _write_strip(axes, row, start, lane, colours["vmax"])
    for lane, token in enumerate(tokens):
        axes.text(-0.3, lane, token, ha="right", va="center", fontsize=19)
        _join_strips(axes, lane, d)
    axes.text(3 * d + 3.6, -0.62, "one block", ha="center", fontsize=19, fontweight="bold")
    axes.hlines(np.arange(T - 1) + 0.5, -2, 4 * d + 5.4, color=FAINT, linewidth=2, linestyle="dashed")
    axes.set(xlim=(-2.1, 4 * d + 5.5), ylim=(T - 0.5, -1))
    axes.axis("off")
    return figure


def _draw_strip(
    axes: "Axes", row: Array, start: float, y: float, frame: str, colours: Mapping[str, Any]
) -> None:
    """A row of numbers as squares, with one frame around them."""
    from matplotlib.patches import Rectangle

    extent = (start, start + len(row), y + 0.28, y - 0.28)
    axes.imshow(row[None], extent=extent, aspect="auto", interpolation="nearest", **colours)
    axes.vlines(start + np.arange(1, len(row)), y - 0.28, y + 0.28, color="white", linewidth=2)
    axes.add_patch(Rectangle((start, y - 0.28), len(row), 0.56, fill=False, edgecolor=frame, linewidth=3.5))


def _write_strip(axes: "Axes", row: Array, start: float, y: float, largest: float) -> None:
    for column, value in enumerate(row):
        _write_number(axes, (start + column + 0.5, y), value, 1, largest, size=13)


def _join_strips(axes: "Axes", lane: float, d: int) -> None:
    """meaning + order tag = input → block → output, all at the height of one lane."""
    from matplotlib.patches import FancyBboxPatch

    for x, sign in ((d + 0.45, "+"), (2 * d + 1.35, "=")):
        axes.text(x, lane, sign, ha="center", va="center", fontsize=22)
    block = FancyBboxPatch((3 * d + 2.7, lane - 0.25), 1.8, 0.5, boxstyle="round,pad=0,rounding_size=0.1")
    block.set(facecolor="#F2F2F2", edgecolor=INK, linewidth=2.5)
    axes.add_patch(block)
    axes.text(3 * d + 3.6, lane, "FFN", ha="center", va="center", fontsize=17)
    arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 2, "shrinkA": 0, "shrinkB": 0}
    for tail in (3 * d + 1.9, 3 * d + 4.55):
        axes.annotate("", (tail + 0.75, lane), (tail, lane), arrowprops=arrow)


@_in_style
def hourglass(x: Array, hidden: Array, y: Array) -> "Figure":
    """One token on its way through the feed-forward network: x (d_model,), hidden (d_ff,), y (d_model,).

    >>> hourglass(np.ones(2), np.array([1.0, 0.0, 2.0]), np.ones(2)).axes[0].texts[1].get_text()
    'hidden: 3 numbers, 2 of them above 0'
    """
    from matplotlib.patches import Polygon

    on, wide, narrow = int((hidden > 0).sum()), len(hidden), len(x)
    figure = _figure(12, 4.6)
    axes = figure.add_subplot()
    left = (wide - narrow) / 2
    middle = f"hidden: {wide} numbers, {on} of them above 0"
    names = (f"in: {narrow} numbers", middle, f"out: {narrow} numbers")
    for row, (values, start, name) in enumerate(zip((x, hidden, y), (left, 0, left), names, strict=True)):
        axes.text(wide / 2, 1.3 * row - 0.36, name, ha="center", va="bottom", fontsize=17)
        _draw_strip(axes, values, start, 1.3 * row, INK, _colours(values, signed=True))
    for narrow_end, wide_end in ((0.28, 1.02), (2.32, 1.58)):
        corners = [(left, narrow_end), (left + narrow, narrow_end), (wide, wide_end), (0, wide_end)]
        axes.add_patch(Polygon(corners, facecolor="#F2F2F2", zorder=0))
    axes.set(xlim=(-0.4, wide + 0.4), ylim=(2.95, -0.8))
    axes.axis("off")
    return figure


# --- trained models -----------------------------------------------------------------------------

SCHEMES = {  # how a model learns of the order
    "no positions": (MEANING, "v:"),
    "sinusoidal": (POSITION, "o-"),
    "learned": ("#CC79A7", "s--"),
    "RoPE": ("#56B4E9", "^-."),
    "ALiBi": (INK, "D:"),
}


@_in_style
def accuracy(
    x: Sequence[int],
    panels: Mapping[str, Mapping[str, Sequence[Array] | Array]],
    *,
    x_label: str,
    chance: float = 0.5,
    trained: tuple[int, int] | None = None,
) -> "Figure":
    """How many answers are right, the mean over runs and their range: {title: {scheme: (runs, len(x))}}.

    The schemes are names of SCHEMES. With `trained`, the lengths trained on are shaded, and x, the lengths
    tested, is on a logarithmic axis.

    >>> accuracy([0, 1], {"": {"sinusoidal": np.ones((3, 2))}}, x_label="step").axes[0].get_ylabel()
    'right answers (%)'
    """
    figure = _figure(10 if len(panels) == 1 else 13, 5.6)
    beside = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, (title, lines) in zip(beside, panels.items(), strict=True):
        axes.axhline(100 * chance, color=INK, linewidth=1.5, zorder=1)
        for scheme, runs in lines.items():
            _draw_runs(axes, x, 100 * np.asarray(runs), scheme)
        axes.set(title=title, xlabel=x_label)
        axes.grid(color=FAINT)
        if trained is not None:
            _shade_trained(axes, x, trained)
    lowest = min(chance, *(np.min(runs) for lines in panels.values() for runs in lines.values()))
    beside[0].set(ylabel="right answers (%)", ylim=(100 * lowest - 8, 104))
    right_edge = beside[-1].get_yaxis_transform()
    beside[-1].text(1.01, 100 * chance, "coin", transform=right_edge, va="center")
    named = {k: v for axes in beside for v, k in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=len(named))
    return figure


def _draw_runs(axes: "Axes", x: Sequence[int], percent: Array, scheme: str) -> None:
    colour, line = SCHEMES[scheme]
    axes.fill_between(x, percent.min(axis=0), percent.max(axis=0), color=colour, alpha=0.25, linewidth=0)
    axes.plot(x, percent.mean(axis=0), line, color=colour, label=scheme, markersize=8)


def _shade_trained(axes: "Axes", lengths: Sequence[int], trained: tuple[int, int]) -> None:
    shortest, longest = trained
    axes.set_xscale("log", base=2)
    axes.axvspan(shortest, longest, color="#F2F2F2", zorder=0)
    middle = (shortest * longest) ** 0.5
    axes.text(middle, 0.03, "trained on", ha="center", transform=axes.get_xaxis_transform())
    ticks = [n for n in lengths if n & (n - 1) == 0 or n in trained]
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.set_xticks([], minor=True)


@_in_style
def cross_attention(
    weights: Array, words: Sequence[str], written: Sequence[str], *, title: str = ""
) -> "Figure":
    """Which word made which digit: weights (T, S), a row for each token that the decoder writes.

    Weights below 0.05 have their colour and no number.

    >>> [text.get_text() for text in cross_attention(np.eye(2), ["forty", "two"], ["4", "2"]).axes[0].texts]
    ['1.00', '1.00']
    """
    figure = _figure(1.3 * len(words) + 1.6, 0.62 * len(written) + 2.0)
    axes = figure.add_subplot()
    _draw_weights(axes, weights, size=17)
    _name_cells(axes, written, words)
    axes.tick_params(labelsize=17)
    axes.set(title=title, xlabel="the word looked at", ylabel="the token written")
    return figure


def _draw_weights(axes: "Axes", weights: Array, size: int) -> None:
    """Weights on a scale from 0 to 1, those from 0.05 on with their numbers."""
    axes.imshow(weights, cmap=WEIGHT_MAP, vmin=0.0, vmax=1.0, aspect="auto")
    for (row, column), weight in np.ndenumerate(weights):
        if weight >= 0.05:
            _write_number(axes, (column, row), weight, 2, 1.0, size)


@_in_style
def attention_heads(weights: Mapping[str, Array], tokens: Sequence[str], *, across: int = 2) -> "Figure":
    """Several heads on one sentence, in one scale: {title: weights (T, T)}, a row for each token that looks.

    Weights below 0.05 have their colour and no number.

    >>> heads = {"head 0": np.eye(2), "head 1": np.full((2, 2), 0.5)}
    >>> [axes.get_title("left") for axes in attention_heads(heads, ["hot", "dog"]).axes]
    ['head 0', 'head 1']
    """
    across = min(across, len(weights))
    down = math.ceil(len(weights) / across)
    figure = _figure(across * (0.58 * len(tokens) + 1.2), down * (0.36 * len(tokens) + 1.6))
    for place, (title, values) in enumerate(weights.items(), 1):
        axes = figure.add_subplot(down, across, place)
        _draw_weights(axes, values, size=14)
        _name_cells(axes, tokens, tokens)
        axes.set_xticks(range(len(tokens)), tokens, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_title(title, loc="left")
    figure.supxlabel("the token looked at")
    figure.supylabel("the token that looks")
    return figure


@_in_style
def confidence(probabilities: Mapping[str, Array], *, mark: float | None = None) -> "Figure":
    """How sure a model is of the token it chooses, a histogram a panel: {title: probabilities (n,)}.

    >>> [axes.get_title() for axes in confidence({"sure": np.ones(9)}, mark=0.9).axes]
    ['sure']
    """
    figure = _figure(13 if len(probabilities) > 1 else 8, 4.4)
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
    return figure


# --- a block as a row of steps ------------------------------------------------------------------

Steps = Sequence[tuple[str, Array]]  # what a step gives, in words or letters, and its numbers (T, d_model)
BETWEEN = 1.2  # columns from the table of one step to that of the next


@_in_style
def dataflow(
    rows: Sequence[Steps], tokens: Sequence[str], *, residuals: Sequence[tuple[int, int]]
) -> "Figure":
    """The steps of a block, left to right and row below row, with every number.

    A path leads past the steps between each (from, to) of `residuals`, which are the same in every row.

    >>> steps = [("x", np.eye(2)), ("f = FFN(x)", np.ones((2, 2))), ("x + f", np.eye(2) + 1)]
    >>> figure = dataflow([steps], ["hot", "dog"], residuals=[(0, 2)])
    >>> [text.get_text() for text in figure.axes[0].texts if "x" in text.get_text()]
    ['x', 'f = FFN(x)', 'x + f']
    """
    T, d = np.shape(rows[0][0][1])
    longest = max(len(steps) for steps in rows)
    figure = _figure(0.62 * longest * (d + BETWEEN) + 0.5, len(rows) * (0.52 * T + 1.2))
    largest = _largest([values for steps in rows for _, values in steps])
    for axes, steps in zip(figure.subplots(len(rows), squeeze=False)[:, 0], rows, strict=True):
        _draw_steps(axes, steps, tokens, residuals, largest)
        axes.set_xlim(-0.1, longest * (d + BETWEEN) - BETWEEN + 0.1)
        for j, (_, values) in enumerate(steps):
            for (row, column), value in np.ndenumerate(values):
                place = (j * (d + BETWEEN) + column + 0.5, row + 0.5)
                _write_number(axes, place, value, 1, largest, size=15)
    return figure


def _largest(arrays: Sequence[Array]) -> float:
    """The end of one colour scale for all of them."""
    return max(_colours(values, signed=True)["vmax"] for values in arrays)


def _draw_steps(
    axes: "Axes",
    steps: Steps,
    tokens: Sequence[str],
    residuals: Sequence[tuple[int, int]],
    largest: float,
) -> None:
    """Tables with a name above each, an arrow from each to the next, and a path for each residual."""
    T, d = np.shape(steps[0][1])
    arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 2.5, "shrinkA": 0, "shrinkB": 0}
    for row, token in enumerate(tokens):
        axes.text(-0.25, row + 0.5, token, ha="right", va="center", fontsize=17)
    for j, (name, values) in enumerate(steps):
        left = j * (d + BETWEEN)
        _draw_table(axes, values, left, largest)
        axes.text(left + d / 2, -0.25, name, ha="center", va="bottom", fontsize=17)
        if j:
            axes.annotate("", (left - 0.15, T / 2), (left - BETWEEN + 0.15, T / 2), arrowprops=arrow)
    for ends in residuals:
        start, end = (j * (d + BETWEEN) + d / 2 for j in ends)
        axes.plot([start, start, end, end], [T, T + 0.7, T + 0.7, T + 0.5], color=INK, linewidth=2.5)
        axes.annotate("", (end, T + 0.08), (end, T + 0.7), arrowprops=arrow)
    axes.set(xlim=(-0.1, len(steps) * (d + BETWEEN) - BETWEEN + 0.1), ylim=(T + 0.8, -0.8))
    axes.axis("off")


def _draw_table(axes: "Axes", values: Array, left: float, largest: float) -> None:
    """Squares without numbers, a column wide and a row high, in one frame."""
    from matplotlib.patches import Rectangle

    T, d = np.shape(values)
    extent, colours = (left, left + d, T, 0), _colours(np.array(largest), signed=True)
    axes.imshow(values, extent=extent, aspect="auto", interpolation="nearest", **colours)
    axes.vlines(left + np.arange(1, d), 0, T, color="white", linewidth=2)
    axes.hlines(np.arange(1, T), left, left + d, color="white", linewidth=2)
    axes.add_patch(Rectangle((left, 0), d, T, fill=False, edgecolor=INK, linewidth=3))


@_in_style
def banner(
    table: Array,
    p: int,
    pairs: Sequence[int],
    steps: Steps,
    tokens: Sequence[str],
    *,
    residuals: Sequence[tuple[int, int]],
) -> "Figure":
    """One picture for the top of a page: table (n, d_model), pairs of its row p as hands, a block's steps.

    It is a white card on no background, so that it sits well on light and dark pages.

    >>> steps = [("in", np.eye(2)), ("out", np.ones((2, 2)))]
    >>> banner(np.eye(4), 1, [0, 1], steps, ["hot", "dog"], residuals=[]).get_size_inches().tolist()
    [16.0, 4.8]
    """
    figure = _figure(16, 4.8)
    figure.set_layout_engine("none")  # every part has its place
    card = _draw_card(figure)
    left, bottom, width, height = 0.022, 0.075, 0.345, 0.755
    _draw_marked_row(figure.add_axes((left, bottom, width, height)), table, p)
    n, d_model = np.shape(table)
    y = bottom + height * (1 - (p + 0.5) / n)
    card.plot([left + width, 0.44], [y, y], color=POSITION, linewidth=4)
    _draw_clocks(figure, table[p], pairs, y)
    block = figure.add_axes((0.45, 0.05, 0.53, 0.345))
    _draw_steps(block, steps, tokens, residuals, _largest([values for _, values in steps]))
    card.text(left, 0.875, f"{n} positions, {d_model} numbers each", fontsize=21)
    card.text(0.45, 0.875, f"position {p} as clock hands, fast to slow", fontsize=21, color=POSITION)
    card.text(0.45, 0.435, "one encoder block, a step at a time", fontsize=21)
    return figure


def _draw_card(figure: "Figure") -> "Axes":
    """A white sheet with round corners and nothing behind it; its axes go from 0 to 1."""
    from matplotlib.patches import FancyBboxPatch

    figure.patch.set_alpha(0)
    card = figure.add_axes((0, 0, 1, 1), xlim=(0, 1), ylim=(0, 1))
    sheet = FancyBboxPatch(
        (0.002, 0.006), 0.996, 0.988, boxstyle="round,pad=0,rounding_size=0.015", mutation_aspect=16 / 4.8
    )
    sheet.set(facecolor="white", edgecolor=FAINT, linewidth=2)
    card.add_patch(sheet)
    card.axis("off")
    return card


def _draw_marked_row(axes: "Axes", table: Array, p: int) -> None:
    from matplotlib.patches import Rectangle

    d_model = np.shape(table)[1]
    axes.imshow(table, aspect="auto", interpolation="nearest", **_colours(table, signed=True))
    axes.add_patch(Rectangle((-0.5, p - 0.8), d_model, 1.6, fill=False, edgecolor=POSITION, linewidth=4))
    axes.axis("off")


def _draw_clocks(figure: "Figure", row: Array, pairs: Sequence[int], y: float) -> None:
    """A clock a pair, in a line at the height y of the banner, and which colour is which wave."""
    width = 0.54 / len(pairs)
    for j, i in enumerate(pairs):
        dial = figure.add_axes((0.445 + j * width, y - 0.145, width, 0.29))
        _draw_clock(dial, *row[2 * i : 2 * i + 2])
        dial.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2))
    handles, _ = dial.get_legend_handles_labels()
    figure.legend(
        handles[:2],
        ["sine", "cosine"],
        loc="center right",
        bbox_to_anchor=(0.985, 0.895),
        ncols=2,
        fontsize=17,
        handlelength=1.2,
        columnspacing=1.2,
    )
