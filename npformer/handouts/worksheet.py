"""Worksheets: the worked example with empty boxes for a pencil, and with numbers drawn from a student's name.

The same code as in the lessons computes the numbers, and rounds every step to three decimals. So the
teacher's key contains the numbers that a student calculates on paper. All lengths are in millimetres.
matplotlib is optional, so it is imported only when a worksheet is drawn.
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
from npformer.handouts.paper import make_page as page_of
from npformer.lessons.equations import AGAIN, TRAINING
from npformer.lessons.named_example import DECIMALS, example_from_name
from npformer.lessons.plots.colours import GRADIENT, INK
from npformer.lessons.plots.style import STYLE, encoded
from npformer.lessons.steps import GIVEN, PlacedTable, Step, arrange_tables, format_number
from npformer.lessons.worked_example import Trace, worked_example
from npformer.validation.checks import check_choice
from npformer.validation.output_files import check_output_file, write_files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPERS = {"a4": (210.0, 297.0), "letter": (215.9, 279.4)}  # {paper size: (width, height)}

MARGIN = 14.0  # the margin of a page
GAP = 5.0  # the space between tables
HEAD_GAP = 3.0  # the space between attention heads in one table
BOX = (13.0, 7.4)  # width and height of a box for handwriting
GIVEN_BOX = (8.2, 5.2)  # width and height of a box for a printed number
LABEL_WIDTH = 11.0  # the width of the word before a row
LETTER_WIDTH = 1.62
SMALL_LETTER_WIDTH = 1.25
OPENING_HEIGHT = 36.6  # the height of the title and the instructions
SECTION_HEIGHT = 9.0  # the height of a section's heading
HEADING_HEIGHT = 8.4  # the height of the two lines above a table
WORDS_HEIGHT = 4.0  # the height of a line of words above the boxes
NAME_LINE_WIDTH = 45.0
FOOT_HEIGHT = 12.0
LONGEST_NAME = 32  # longer names are cut to this number of letters
QUIET, GIVEN_GREY = "#5F5F5F", "#EDEDED"
TITLE, KEY = "Worksheet: one encoder block by hand", "the teacher's key"

NEW_Y = "y′"  # the result of the second forward pass
TESTS = {  # {step: a test with which a student can check the table}
    "attention.weights": "each row adds up to 1",
    "norm_1.centred": "each row adds up to 0",
    "norm_2.centred": "each row adds up to 0",
    "d_t": "each row adds up to 0",
    "d_s": "each row adds up to 0",
    "d_attention.scores": "each row adds up to 0",
    NEW_Y: "from a second forward pass with these numbers",
    "new_loss": "is smaller than L",
}
STEPS_OF_ATTENTION = (
    "embedding",
    "angles",
    "table",
    "x",
    "attention.Q",
    "attention.scores",
    "attention.max",
    "attention.shifted",
    "attention.exp",
    "attention.weights",
    "attention.heads",
    "a",
)
STEPS_TO_LOSS = (
    *STEPS_OF_ATTENTION,
    "s",
    "norm_1.mean",
    "norm_1.centred",
    "norm_1.variance",
    "norm_1.std",
    "norm_1.x_hat",
    "h",
    "ffn.z",
    "ffn.hidden",
    "f",
    "loss",
)
STEPS_OF_BACKWARD = (
    "d_y",
    "d_norm_2.gamma",
    "d_norm_2.beta",
    "d_norm_2.x_hat",
    "d_norm_2.along_1",
    "d_norm_2.along_x",
    "d_t",
    "d_ffn.W_2",
    "d_ffn.hidden",
    "d_ffn.z",
    "d_h",
    "d_attention.V",
    "d_attention.weights",
    "d_attention.scores",
    "d_attention.Q",
    "d_x",
    "d_E",
    "new_E",
    "new_loss",
)
MINUTES = {
    15: STEPS_OF_ATTENTION,
    30: STEPS_TO_LOSS,
    45: STEPS_OF_BACKWARD,
}  # {minutes: the steps that have empty boxes}
INSTRUCTIONS = (
    "Find the number for every empty box. Numbers on grey are given. Formulas are above the tables.",
    f"Round to {DECIMALS} decimals, a half away from zero (0.4205 becomes 0.421). ε = 0.00001. "
    "Σ: what a table's boxes add up to.",
    "pos counts the tokens from 0, i the pairs of columns; ⊙ multiplies entry by entry, ᵀ turns rows "
    "into columns.",
    "Q, K, V, heads: columns 0 and 1 are head 1, 2 and 3 head 2; d_k = 2. "
    "Angles in radians. Use a calculator.",
)


# --- pages ------------------------------------------------------------------------------------------


class _Sheet(NamedTuple):
    """The steps on a worksheet, and for each step a boolean array, which is True for the empty boxes."""

    steps: list[Step]
    to_find: dict[str, Array]


class _Row(NamedTuple):
    """A row of tables on a page. The first row of a section has the heading of the section."""

    heading: str
    y: float
    tables: list[PlacedTable]


def worksheet_pages(
    name: str, *, key: bool = False, paper: str = "a4", minutes: int | None = None
) -> list["Figure"]:
    """Draw the worksheet for a name.

    Parameters
    ----------
    name : str
        The student's name, from which the numbers are drawn.
    key : bool
        Whether the boxes are filled in, as in the teacher's key.
    paper : str
        "a4" or "letter".
    minutes : int, optional
        With 15, 30 or 45, the student fills in one row of each table, and the other rows are given. A sheet
        for 15 minutes ends after attention, and a sheet for 30 minutes ends at the loss. With 45, the student
        fills in the backward pass and the training step. By default, the student fills in every number.

    Returns
    -------
    figures : list of matplotlib Figure
        One figure per page.

    Raises
    ------
    ValueError
        If the name contains no letter.
    """
    from matplotlib import style

    check_choice("worksheet_pages", "paper", paper, tuple(PAPERS))
    if minutes not in (None, *MINUTES):
        raise ValueError(f"worksheet_pages: minutes is {minutes!r}; expected 15, 30, 45 or None")
    trace = worked_example(example_from_name(name), decimals=DECIMALS)
    sheet = _make_sheet(trace, minutes)
    name = textwrap.shorten(name, LONGEST_NAME, placeholder="…")
    length = f"{minutes} minutes, " if minutes else ""
    with style.context(["default", STYLE]):
        figures = [_draw_page(page, sheet, paper, key) for page in _lay_out(sheet, paper)]
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
    """Draw the worksheet for a name, and write it to a file.

    Parameters
    ----------
    name : str
        The student's name, from which the numbers are drawn.
    path : str or path
        The file, which ends in .pdf or .html.
    key : bool
        Whether the boxes are filled in, as in the teacher's key.
    paper : str
        "a4" or "letter".
    minutes : int, optional
        15, 30 or 45, as in `worksheet_pages`.

    Returns
    -------
    file : Path

    Raises
    ------
    ValueError
        If the path has a different suffix.
    FileNotFoundError
        If the folder of the file does not exist.
    """
    encoders = {".pdf": _encode_pdf, ".html": _encode_html}
    target = check_output_file(path, *encoders)
    pages = worksheet_pages(name, key=key, paper=paper, minutes=minutes)
    encode = encoders[target.suffix.lower()]
    write_files({target: encode(pages, PAPERS[paper])})
    return target


def _encode_pdf(figures: list["Figure"], size: tuple[float, float]) -> bytes:
    """Encode the figures as the pages of a PDF file. The same figures always give the same bytes."""
    from matplotlib.backends.backend_pdf import PdfPages

    file = io.BytesIO()
    with PdfPages(file, metadata={"CreationDate": None, "Creator": None, "Producer": None}) as pdf:
        for figure in figures:
            pdf.savefig(figure)
    return file.getvalue()


def _encode_html(figures: list["Figure"], size: tuple[float, float]) -> bytes:
    """Encode the figures as one HTML page. Each figure is an SVG picture that fills a printed page."""
    sections = []
    for i, figure in enumerate(figures, start=1):
        svg = encoded(figure, "svg").decode()
        svg = svg[svg.index("<svg") :]
        # An id must be unique in the page, so the ids of a picture begin with its page number.
        svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>page{i}-", svg)
        svg = svg.replace("<svg", f'<svg role="img" aria-label="Worksheet, page {i}"', 1)
        sections.append(f"<section>\n<h2>Page {i}</h2>\n{svg}</section>")
    width, height = size
    page_rule = f"@page {{ size: {width}mm {height}mm; margin: 0 }}"
    picture_rule = f"svg {{ width: {width}mm; height: {height}mm }}"
    return page_of("worksheet", TITLE, "\n".join(sections), f"{page_rule} {picture_rule}").encode()


def _lay_out(sheet: _Sheet, paper: str) -> list[list[_Row]]:
    """Place the rows of tables on pages.

    The loss, which comes before the backward pass, and the training step begin on new pages. So a class can
    leave these pages out.
    """
    page_width, page_height = PAPERS[paper]
    pages: list[list[_Row]] = [[]]
    y = MARGIN + OPENING_HEIGHT
    for section, steps in itertools.groupby(sheet.steps, key=lambda step: step.section):
        rows = list(arrange_tables(steps, _row_width, page_width - 2 * MARGIN))
        for i, tables in enumerate(rows):
            heading = section if i == 0 else ""
            needed = _row_height(tables) + _heading_height(heading)
            is_given = all(placed.step.equation == GIVEN for placed in tables)
            if is_given:  # The next row uses these numbers, so both rows are on one page.
                needed += _row_height(rows[i + 1])
            begins_page = heading in ("Loss", TRAINING)
            if begins_page or y + needed > page_height - FOOT_HEIGHT:
                pages.append([])
                y = MARGIN
                heading = heading or f"{section}, continued"
            pages[-1].append(_Row(heading, y, tables))
            y += _row_height(tables) + _heading_height(heading)
    return pages


def _heading_height(heading: str) -> float:
    return SECTION_HEIGHT if heading else 0.0


def _make_sheet(trace: Trace, minutes: int | None) -> _Sheet:
    """Choose the steps and the empty boxes. A short worksheet ends after its last empty box."""
    steps = _list_steps(trace)
    if minutes is None:
        asked = [step.name for step in steps if step.equation != GIVEN]
    else:
        asked = list(MINUTES[minutes])
    to_find = {step.name: np.zeros(step.matrices.shape, dtype=bool) for step in steps}
    for step in steps:
        if step.name in asked:
            boxes = to_find[step.name]  # shape (n_heads, rows, columns)
            if minutes is None:
                boxes[...] = True
            else:
                boxes[0, _choose_row(step, trace.example.tokens[1])] = True
    last = [step.name for step in steps].index(asked[-1])
    return _Sheet([_with_sum(step, to_find[step.name]) for step in steps[: last + 1]], to_find)


def _choose_row(step: Step, word: str) -> int:
    """Return the index of the row that is empty on a short worksheet: the row of this word.

    The rows of a gradient of weights do not belong to words. In such a table, choose the row with the largest
    sum of absolute values.
    """
    row_sums = abs(step.matrices[0]).sum(axis=-1)
    return step.rows.index(word) if step.rows else int(row_sums.argmax())


def _with_sum(step: Step, to_find: Array) -> Step:
    """Add the sum of the empty boxes to the caption of a table with several boxes.

    The sum reveals a mistake.
    """
    if to_find.sum() < 2:
        return step
    total = step.matrices[to_find].sum() + 0.0  # adding 0.0 turns -0.0 into 0.0
    checksum = f"Σ {_format(step, total)}"
    return step._replace(source=f"{step.source} · {checksum}" if step.source else checksum)


def _list_steps(trace: Trace) -> list[Step]:
    """Return the steps on a worksheet.

    The training step is the last page. Its vectors come after its matrices, because then the page has room
    for all tables. From the second forward pass, only the result y′ is given, for the new loss.
    """
    steps = [step for step in trace.steps if not step.section.startswith(AGAIN)]
    before = [step for step in steps if step.section != TRAINING]
    update = [step for step in steps if step.section == TRAINING]
    matrices_and_scalars = [step for step in update if len(step.shape) != 1]
    vectors = sorted((step for step in update if len(step.shape) == 1), key=lambda step: step.size)
    new_y = trace.named["new_y"]._replace(section=TRAINING, name=NEW_Y, equation=GIVEN)
    new_loss = trace.named["new_loss"]._replace(section=TRAINING)
    return [*before, *matrices_and_scalars, *vectors, new_y, new_loss]


# --- the sizes of tables and rows -------------------------------------------------------------------


def _row_words(step: Step) -> tuple[str, ...]:
    """Return the words before the rows of a table. The rows of a gradient of weights have numbers."""
    if step.rows:
        return step.rows
    is_weight_gradient = step.name.startswith("d_") and len(step.shape) == 2
    if is_weight_gradient:
        return tuple(f"row {i + 1}" for i in range(step.shape[0]))
    return ()


def _row_width(row: Sequence[PlacedTable]) -> float:
    gaps = GAP * (len(row) - 1)
    return sum(_table_width(placed) for placed in row) + gaps


def _row_height(row: Sequence[PlacedTable]) -> float:
    return max(_table_height(placed.step) for placed in row) + GAP


def _table_height(step: Step) -> float:
    _, n_rows, _ = step.matrices.shape
    _, box_height = _box_size(step)
    return _height_above(step) + n_rows * box_height


def _table_width(placed: PlacedTable) -> float:
    step = placed.step
    n_heads, _, n_columns = step.matrices.shape
    box_width, _ = _box_size(step)
    boxes = _left_margin(placed) + n_heads * n_columns * box_width + (n_heads - 1) * HEAD_GAP
    equation = LETTER_WIDTH * len(_equation(step))
    caption = SMALL_LETTER_WIDTH * len(_caption(step))
    return max(boxes, equation, caption)


def _left_margin(placed: PlacedTable) -> float:
    """Return the width of the words before the rows."""
    has_words = placed.labelled and bool(_row_words(placed.step))
    return LABEL_WIDTH if has_words else 0.0


def _height_above(step: Step) -> float:
    """Return the height above the boxes.

    It has room for the two caption lines and, if the table has them, for head numbers and column labels.
    """
    height = HEADING_HEIGHT
    if len(step.matrices) > 1:
        height += WORDS_HEIGHT
    if step.columns:
        height += WORDS_HEIGHT
    return height


def _box_size(step: Step) -> tuple[float, float]:
    """Return the width and height of a box.

    Given numbers need smaller boxes. A table with words before its rows has boxes of the same height as empty
    boxes, because such a table may be next to a table with empty boxes.
    """
    if step.equation != GIVEN:
        return BOX
    longest = max(len(_format(step, value)) for value in step.value.ravel())
    width = GIVEN_BOX[0] if longest <= 4 else BOX[0]
    height = BOX[1] if step.rows else GIVEN_BOX[1]
    return width, height


def _caption(step: Step) -> str:
    """Return the caption above a table: its name, "given" for given numbers, its source and its test."""
    given = GIVEN if step.equation == GIVEN else ""
    parts = [step.name, given, step.source, TESTS.get(step.name, "")]
    return " · ".join(part for part in parts if part)


def _equation(step: Step) -> str:
    """Return the equation of a step, or only the symbol for a given array."""
    if step.equation != GIVEN:
        return step.equation
    return "η" if step.name == "eta" else step.name.rpartition(".")[2]


def _format(step: Step, value: float) -> str:
    """Return a number as text, with a minus sign (−) instead of a hyphen."""
    if step.name == NEW_Y:  # The sheet gives these numbers, but they are calculated and rounded.
        step = step._replace(equation="")
    return format_number(step, value).replace("-", "−")


# --- drawing ----------------------------------------------------------------------------------------


def _draw_page(page: list[_Row], sheet: _Sheet, paper: str, key: bool) -> "Figure":
    from matplotlib.figure import Figure

    width, height = PAPERS[paper]
    figure = Figure(figsize=(width / 25.4, height / 25.4))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    for heading, y, tables in page:
        if heading:
            _draw_heading(axes, heading, y)
        x = MARGIN
        for placed in tables:
            top = y + _heading_height(heading)
            _draw_table(axes, placed, x, top, sheet.to_find[placed.step.name], key)
            x += _table_width(placed) + GAP
    return figure


def _draw_heading(axes: "Axes", heading: str, y: float) -> None:
    colour = GRADIENT if heading.startswith("Back") else INK
    right = axes.get_xlim()[1] - MARGIN
    _write(axes, MARGIN, y + 3.2, heading, 11, weight="bold", color=colour)
    axes.plot([MARGIN, right], [y + 6.2, y + 6.2], color=colour, linewidth=0.8)


def _draw_table(axes: "Axes", placed: PlacedTable, x: float, y: float, to_find: Array, key: bool) -> None:
    step = placed.step
    top = y + _height_above(step)  # the upper edge of the boxes
    width, height = _box_size(step)
    _write(axes, x, y + 1.4, _caption(step), 6.3, color=QUIET)
    _write(axes, x, y + 5.2, _equation(step), 8.3)
    if placed.labelled:
        for row, word in enumerate(_row_words(step)):
            _write(axes, x, top + (row + 0.5) * height, word, 7.5)
    for i, matrix in enumerate(step.matrices):
        left = x + _left_margin(placed) + i * (matrix.shape[1] * width + HEAD_GAP)
        if len(step.matrices) > 1:
            _write(axes, left, y + HEADING_HEIGHT + 1.6, f"head {i + 1}", 6.8, color=QUIET)
        for column, word in enumerate(step.columns):
            _write(axes, left + (column + 0.5) * width, top - 1.9, word, 6.8, ha="center", color=QUIET)
        _draw_boxes(axes, step, i, left, top, to_find[i], key)


def _draw_boxes(
    axes: "Axes", step: Step, head: int, left: float, top: float, to_find: Array, key: bool
) -> None:
    """Draw the boxes of one head: white boxes for the student's numbers, grey boxes for given numbers."""
    from matplotlib.patches import Rectangle

    width, height = _box_size(step)
    for (row, column), value in np.ndenumerate(step.matrices[head]):
        is_asked = to_find[row, column]
        face, edge = ("white", INK) if is_asked else (GIVEN_GREY, "white")
        x = left + column * width
        y = top + row * height
        # The border of a white box must be visible over the neighbouring grey boxes.
        zorder = 2 if is_asked else 1
        axes.add_patch(
            Rectangle((x, y), width, height, linewidth=0.7, facecolor=face, edgecolor=edge, zorder=zorder)
        )
        if key or not is_asked:
            _write(axes, x + width / 2, y + height / 2, _format(step, value), 8.5, ha="center")


def _draw_opening(axes: "Axes", trace: Trace, name: str, key: bool) -> None:
    """Draw the title, the name and the instructions at the top of the first page."""
    config = trace.example.config
    right = axes.get_xlim()[1] - MARGIN
    _write(axes, MARGIN, MARGIN + 4, f"“{' '.join(trace.example.tokens)}”, by hand", 19, weight="bold")
    _draw_name(axes, right, MARGIN + 2, name, 13, ha="right")
    if key:
        _write(axes, right, MARGIN + 8, KEY, 9, ha="right", color=GRADIENT, weight="bold")
    sizes = f"d_model = {config.d_model}, {config.n_heads} heads, d_ff = {config.d_ff}"
    opening = f"One encoder block of “Attention Is All You Need”: {sizes}, norm after each sub-layer, ReLU."
    for i, line in enumerate((opening, *INSTRUCTIONS)):
        _write(axes, MARGIN, MARGIN + 12.5 + 4.6 * i, line, 8.3)


def _draw_footer(axes: "Axes", name: str, page: str, key: bool) -> None:
    """Draw the name and the page number at the bottom of a page, because printed sheets get mixed up."""
    right, bottom = axes.get_xlim()[1], axes.get_ylim()[0]
    page = f"{KEY}, {page}" if key else page
    _write(axes, right - MARGIN, bottom - 7, page, 7, ha="right", color=QUIET)
    _draw_name(axes, MARGIN, bottom - 7, name, 7)


def _draw_name(axes: "Axes", x: float, y: float, name: str, size: float, ha: str = "left") -> None:
    """Write the name in a font that has all its characters. If no font has them, draw a line for the name."""
    family = _find_font(name)
    if family is None:
        left = x if ha == "left" else x - NAME_LINE_WIDTH
        axes.plot([left, left + NAME_LINE_WIDTH], [y + 2, y + 2], color=INK, linewidth=0.8)
    else:
        _write(axes, x, y, name, size, ha=ha, family=family)


def _find_font(text: str) -> str | None:
    """Return the family of an installed font that has all characters, or None. Try our own font first."""
    from matplotlib.font_manager import fontManager
    from matplotlib.ft2font import FT2Font

    for font in sorted(fontManager.ttflist, key=lambda font: font.name != STYLE["font.family"]):
        is_unsuitable = (
            "Last Resort" in font.name or "Emoji" in font.name
        )  # These fonts draw no letters, or cannot be printed.
        if is_unsuitable:
            continue
        font_file = FT2Font(font.fname)
        if all(font_file.get_char_index(ord(character)) for character in text):
            return font.name
    return None


def _write(axes: "Axes", x: float, y: float, text: str, size: float, **options: Any) -> None:
    axes.text(x, y, text, fontsize=size, va="center_baseline", parse_math=False, **options)
