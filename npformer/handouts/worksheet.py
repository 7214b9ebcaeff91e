"""Worksheets: the worked example with boxes to fill in by pencil, its numbers drawn from a name.

The numbers come from the same code as the lessons' example, rounded to three decimals at every step, so the
teacher's key holds what a pencil gets. matplotlib is imported when a sheet is drawn. Lengths are in mm.
"""

import io
import itertools
import os
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.handouts.paper import paper as page_of
from npformer.lessons.equations import AGAIN, TRAINING
from npformer.lessons.named_example import DECIMALS, example_from_name
from npformer.lessons.plots.colours import GRADIENT, INK
from npformer.lessons.plots.style import STYLE, encoded
from npformer.lessons.steps import GIVEN, Placed, Step, format_number, side_by_side
from npformer.lessons.worked_example import Trace, worked_example
from npformer.validation.checks import check_choice
from npformer.validation.output_files import place_for, write_files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPERS = {"a4": (210.0, 297.0), "letter": (215.9, 279.4)}

MARGIN, GAP, HEAD_GAP = 14.0, 5.0, 3.0  # around a page, between tables, between the heads of one table
BOX, GIVEN_BOX = (13.0, 7.4), (8.2, 5.2)  # room for handwriting, room for print
LABEL, LETTER, SMALL_LETTER = 11.0, 1.62, 1.25  # the widths of a row's word and of letters
OPENING, SECTION, HEADING, WORDS = 36.6, 9.0, 8.4, 4.0  # heights
NAME_LINE, FOOT = 45.0, 12.0
LONGEST_NAME = 32  # letters
QUIET, GIVEN_GREY = "#5F5F5F", "#EDEDED"
TITLE, KEY = "Worksheet: one encoder block by hand", "the teacher's key"

TESTS = {  # by which a student can test a table before going on
    "attention.weights": "each row adds up to 1",
    "norm_1.centred": "each row adds up to 0",
    "norm_2.centred": "each row adds up to 0",
    "d_t": "each row adds up to 0",
    "d_s": "each row adds up to 0",
    "d_attention.scores": "each row adds up to 0",
    "y′": "from a second forward pass with these numbers",
    "new_loss": "is smaller than L",
}
_ATTENTION = """embedding angles table x attention.Q attention.scores attention.max attention.shifted
attention.exp attention.weights attention.heads a"""
_FORWARD = f"""{_ATTENTION} s norm_1.mean norm_1.centred norm_1.variance norm_1.std norm_1.x_hat h
ffn.z ffn.hidden f loss"""
_BACKWARD = """d_y d_norm_2.gamma d_norm_2.beta d_norm_2.x_hat d_norm_2.along_1 d_norm_2.along_x d_t
d_ffn.W_2 d_ffn.hidden d_ffn.z d_h d_attention.V d_attention.weights d_attention.scores d_attention.Q
d_x d_E new_E new_loss"""
MINUTES = {
    length: tuple(names.split()) for length, names in ((15, _ATTENTION), (30, _FORWARD), (45, _BACKWARD))
}
INSTRUCTIONS = (
    "Every box is a number for you to find; what stands on grey is given. The line above a table says how.",
    f"Round to {DECIMALS} decimals, a half away from zero (0.4205 becomes 0.421). ε = 0.00001. "
    "Σ: what a table's boxes add up to.",
    "pos counts the tokens from 0, i the pairs of columns; ⊙ multiplies entry by entry, ᵀ turns rows "
    "into columns.",
    "Q, K, V, heads: columns 0 and 1 are head 1, 2 and 3 head 2; d_k = 2. "
    "Angles in radians. Use a calculator.",
)


# Pages


class _Sheet(NamedTuple):
    """What is on paper: the steps, and which cells of each are to find, in the shape of its matrices."""

    steps: list[Step]
    to_find: dict[str, Array]


class _Line(NamedTuple):
    """A row of tables at a height of the page, under the name of its section if it opens one."""

    heading: str
    y: float
    row: list[Placed]


def worksheet_pages(
    name: str, *, key: bool = False, paper: str = "a4", minutes: int | None = None
) -> list["Figure"]:
    """The worksheet of a name, one Figure a page; with `key` the boxes are filled in. Paper "a4" or "letter".

    With `minutes` one word is followed: what each kind of operation does is found once, the rest is given. 15
    go to the end of attention, 30 to the loss, 45 back and through the step of training.

    Raises TypeError or ValueError unless name is a string with a letter in it, paper is one of the two, and
    minutes, if given, one of the three.
    """
    from matplotlib import style

    check_choice("worksheet_pages", "paper", paper, tuple(PAPERS))
    if minutes not in (None, *MINUTES):
        raise ValueError(f"worksheet_pages: minutes is {minutes!r}; expected 15, 30, 45 or None")
    trace = worked_example(example_from_name(name), decimals=DECIMALS)
    sheet = _sheet(trace, minutes)
    name = textwrap.shorten(name, LONGEST_NAME, placeholder="…")
    length = f"{minutes} minutes, " if minutes else ""
    with style.context(["default", STYLE]):
        figures = [_draw_page(page, sheet, paper, key) for page in _layout(sheet, paper)]
        _draw_opening(figures[0].axes[0], trace, name, key)
        for i, figure in enumerate(figures, start=1):
            _draw_footer(figure.axes[0], name, f"{length}page {i} of {len(figures)}", key)
    return figures


def save_worksheet(
    name: str,
    path: str | os.PathLike[str],
    *,
    key: bool = False,
    paper: str = "a4",
    minutes: int | None = None,
) -> Path:
    """Write the worksheet of a name to a .pdf or .html file and return where it is.

    Raises ValueError for another kind of file, FileNotFoundError where there is no folder for it.
    """
    kinds = {".pdf": _pdf, ".html": _html}
    target = place_for(path, *kinds)
    pages = worksheet_pages(name, key=key, paper=paper, minutes=minutes)
    (file,) = write_files({target: kinds[target.suffix.lower()](pages, PAPERS[paper])})
    return file


def _pdf(figures: list["Figure"], size: tuple[float, float]) -> bytes:
    """One figure a page: the same figures give the same bytes."""
    from matplotlib.backends.backend_pdf import PdfPages

    file = io.BytesIO()
    with PdfPages(file, metadata={"CreationDate": None, "Creator": None, "Producer": None}) as pdf:
        for figure in figures:
            pdf.savefig(figure)
    return file.getvalue()


def _html(figures: list["Figure"], size: tuple[float, float]) -> bytes:
    """One page of HTML with every sheet as a picture in it, to be printed without margins of its own."""
    pictures, (width, height) = [], size
    for i, figure in enumerate(figures, start=1):
        svg = encoded(figure, "svg").decode()
        svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>page{i}-", svg[svg.index("<svg") :])
        svg = svg.replace("<svg", f'<svg role="img" aria-label="Worksheet, page {i}"', 1)
        pictures.append(f"<section>\n<h2>Page {i}</h2>\n{svg}</section>")
    paper, picture = f"size: {width}mm {height}mm; margin: 0", f"width: {width}mm; height: {height}mm"
    sheet = f"@page {{ {paper} }} svg {{ {picture} }}"
    return page_of("worksheet", TITLE, "\n".join(pictures), sheet).encode()


def _layout(sheet: _Sheet, paper: str) -> list[list[_Line]]:
    """Where everything goes. The way back and the training begin pages: a class can leave them out."""
    width, height = PAPERS[paper]
    turns = ("Loss", TRAINING)
    pages: list[list[_Line]] = [[]]
    y = MARGIN + OPENING
    for section, group in itertools.groupby(sheet.steps, key=lambda step: step.section):
        rows = list(side_by_side(group, _row_width, width - 2 * MARGIN))
        for i, row in enumerate(rows):
            heading = "" if i else section
            needed = _row_height(row) + (SECTION if heading else 0.0)
            if all(placed.step.equation == GIVEN for placed in row):  # stays with the row that uses it
                needed += _row_height(rows[i + 1])
            if y + needed > height - FOOT or heading in turns:
                pages.append([])
                heading, y = heading or f"{section}, continued", MARGIN
            pages[-1].append(_Line(heading, y, row))
            y += _row_height(row) + (SECTION if heading else 0.0)
    return pages


def _sheet(trace: Trace, minutes: int | None) -> _Sheet:
    """A short sheet ends with the last step that it asks for."""
    steps = _on_paper(trace)
    asked = [step.name for step in steps if step.equation != GIVEN] if minutes is None else MINUTES[minutes]
    last = [step.name for step in steps].index(asked[-1])
    cells = {step.name: np.zeros(step.matrices.shape, dtype=bool) for step in steps}
    for step in steps:
        if step.name in asked:
            cells[step.name][... if minutes is None else _followed(step, trace.example.tokens[1])] = True
    return _Sheet([_with_sum(step, cells[step.name]) for step in steps[: last + 1]], cells)


def _followed(step: Step, word: str) -> tuple[int, int]:
    """Head 1 and the row of the word; of a weight's gradient the row with the most in it."""
    row = step.rows.index(word) if step.rows else int(abs(step.matrices[0]).sum(axis=-1).argmax())
    return 0, row


def _with_sum(step: Step, to_find: Array) -> Step:
    """The step with what its boxes add up to, where they are several: a slip ends where it was made."""
    if to_find.sum() < 2:
        return step
    total = format_number(step, step.matrices[to_find].sum() + 0.0).replace("-", "−")
    return step._replace(source=" · ".join(filter(None, (step.source, f"Σ {total}"))))


def _on_paper(trace: Trace) -> list[Step]:
    """The step of training is the last page, its vectors below its matrices, so that all of it fits there.

    Of the second pass it has y as it comes out, to find the loss.
    """
    steps = [step for step in trace.steps if not step.section.startswith(AGAIN)]
    before = [step for step in steps if step.section != TRAINING]
    update = [step for step in steps if step.section == TRAINING]
    update.sort(key=lambda step: (len(step.shape) == 1) * step.size)
    new_y, new_loss = trace.named["new_y"], trace.named["new_loss"]
    new_y = new_y._replace(section=TRAINING, name="y′", equation=GIVEN)
    return [*before, *update, new_y, new_loss._replace(section=TRAINING)]


def _words(step: Step) -> tuple[str, ...]:
    """The words of its rows; the rows of a weight's gradient are counted."""
    gradient = step.name.startswith("d_") and len(step.shape) == 2
    return step.rows or (tuple(f"row {i + 1}" for i in range(step.shape[0])) if gradient else ())


def _row_width(row: Sequence[Placed]) -> float:
    return sum(map(_width, row)) + GAP * (len(row) - 1)


def _row_height(row: Sequence[Placed]) -> float:
    return max(_above(step) + step.matrices.shape[1] * _box(step)[1] for step, _ in row) + GAP


def _width(placed: Placed) -> float:
    step = placed.step
    heads, _, columns = step.matrices.shape
    body = _margin(placed) + heads * columns * _box(step)[0] + (heads - 1) * HEAD_GAP
    return max(body, LETTER * len(_equation(step)), SMALL_LETTER * len(_caption(step)))


def _margin(placed: Placed) -> float:
    return LABEL if placed.labelled and _words(placed.step) else 0.0


def _above(step: Step) -> float:
    """The height of what stands over the boxes: two lines of title, numbers of heads, words of columns."""
    return HEADING + WORDS * ((len(step.matrices) > 1) + bool(step.columns))


def _box(step: Step) -> tuple[float, float]:
    """Given numbers need little room, but are as high as boxes where they stand beside some."""
    if step.equation != GIVEN:
        return BOX
    width = max(len(format_number(step, value)) for value in step.value.ravel())
    return (GIVEN_BOX if width <= 4 else BOX)[0], (BOX if step.rows else GIVEN_BOX)[1]


def _caption(step: Step) -> str:
    given = GIVEN if step.equation == GIVEN else ""
    return " · ".join(filter(None, (step.name, given, step.source, TESTS.get(step.name))))


def _equation(step: Step) -> str:
    """The step's equation; a given array has only its letter."""
    letter = "η" if step.name == "eta" else step.name.rpartition(".")[2]
    return letter if step.equation == GIVEN else step.equation


# Drawing


def _draw_page(page: list[_Line], sheet: _Sheet, paper: str, key: bool) -> "Figure":
    from matplotlib.figure import Figure

    width, height = PAPERS[paper]
    figure = Figure(figsize=(width / 25.4, height / 25.4))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    for heading, y, row in page:
        if heading:
            _draw_heading(axes, heading, y)
            y += SECTION
        x = MARGIN
        for placed in row:
            _draw_table(axes, placed, x, y, sheet.to_find[placed.step.name], key)
            x += _width(placed) + GAP
    return figure


def _draw_heading(axes: "Axes", heading: str, y: float) -> None:
    colour = GRADIENT if heading.startswith("Back") else INK
    right = axes.get_xlim()[1] - MARGIN
    _write(axes, MARGIN, y + 3.2, heading, 11, weight="bold", color=colour)
    axes.plot([MARGIN, right], [y + 6.2, y + 6.2], color=colour, linewidth=0.8)


def _draw_table(axes: "Axes", placed: Placed, x: float, y: float, to_find: Array, key: bool) -> None:
    step, top = placed.step, y + _above(placed.step)
    width, height = _box(step)
    _write(axes, x, y + 1.4, _caption(step), 6.3, color=QUIET)
    _write(axes, x, y + 5.2, _equation(step), 8.3)
    for row, word in enumerate(_words(step) if placed.labelled else ()):
        _write(axes, x, top + (row + 0.5) * height, word, 7.5)
    for i, matrix in enumerate(step.matrices):
        left = x + _margin(placed) + i * (matrix.shape[1] * width + HEAD_GAP)
        if len(step.matrices) > 1:
            _write(axes, left, y + HEADING + 1.6, f"head {i + 1}", 6.8, color=QUIET)
        for column, word in enumerate(step.columns):
            _write(axes, left + (column + 0.5) * width, top - 1.9, word, 6.8, ha="center", color=QUIET)
        _draw_boxes(axes, step, i, left, top, to_find[i], key)


def _draw_boxes(
    axes: "Axes", step: Step, head: int, left: float, top: float, to_find: Array, key: bool
) -> None:
    from matplotlib.patches import Rectangle

    width, height = _box(step)
    for (row, column), value in np.ndenumerate(step.matrices[head]):
        asked = to_find[row, column]
        face, edge = ("white", INK) if asked else (GIVEN_GREY, "white")
        x, y = left + column * width, top + row * height
        axes.add_patch(
            Rectangle((x, y), width, height, linewidth=0.7, facecolor=face, edgecolor=edge, zorder=1 + asked)
        )
        if key or not asked:
            text = format_number(step, value).replace("-", "−")
            _write(axes, x + width / 2, y + height / 2, text, 8.5, ha="center")


def _draw_opening(axes: "Axes", trace: Trace, name: str, key: bool) -> None:
    config, right = trace.example.config, axes.get_xlim()[1] - MARGIN
    _write(axes, MARGIN, MARGIN + 4, f"“{' '.join(trace.example.tokens)}”, by hand", 19, weight="bold")
    _draw_name(axes, right, MARGIN + 2, name, 13, ha="right")
    if key:
        _write(axes, right, MARGIN + 8, KEY, 9, ha="right", color=GRADIENT, weight="bold")
    sizes = f"d_model = {config.d_model}, {config.n_heads} heads, d_ff = {config.d_ff}"
    opening = f"One encoder block of “Attention Is All You Need”: {sizes}, norm after each sub-layer, ReLU."
    for i, line in enumerate((opening, *INSTRUCTIONS)):
        _write(axes, MARGIN, MARGIN + 12.5 + 4.6 * i, line, 8.3)


def _draw_footer(axes: "Axes", name: str, page: str, key: bool) -> None:
    """At the foot of every page, so that printed sheets can be told apart."""
    right, bottom = axes.get_xlim()[1], axes.get_ylim()[0]
    page = f"{KEY}, {page}" if key else page
    _write(axes, right - MARGIN, bottom - 7, page, 7, ha="right", color=QUIET)
    _draw_name(axes, MARGIN, bottom - 7, name, 7)


def _draw_name(axes: "Axes", x: float, y: float, name: str, size: float, ha: str = "left") -> None:
    """The name in a font that has its letters; where no font has them, a line to write it on."""
    family = _font_with(name)
    if family is None:
        left = x if ha == "left" else x - NAME_LINE
        axes.plot([left, left + NAME_LINE], [y + 2, y + 2], color=INK, linewidth=0.8)
    else:
        _write(axes, x, y, name, size, ha=ha, family=family)


def _font_with(letters: str) -> str | None:
    """The family of an installed font that has all the letters, ours first."""
    from matplotlib.font_manager import fontManager
    from matplotlib.ft2font import FT2Font

    for font in sorted(fontManager.ttflist, key=lambda font: font.name != STYLE["font.family"]):
        pictures = "Last Resort" in font.name or "Emoji" in font.name  # no letters, or none that print
        if not pictures and all(map(FT2Font(font.fname).get_char_index, map(ord, letters))):
            return font.name
    return None


def _write(axes: "Axes", x: float, y: float, text: str, size: float, **look: Any) -> None:
    axes.text(x, y, text, fontsize=size, va="center_baseline", parse_math=False, **look)
