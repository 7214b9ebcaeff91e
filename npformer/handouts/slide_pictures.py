"""Draw the printed output of a cell for a slide. Each number gets a bar or a coloured square.

    learned      16 words:  43.6 %   ██████████
    ALiBi        16 words:  96.5 %   ██████████████████████

On the slide with the question, the same table has gaps instead of the numbers, and no bars.
"""

import html
import itertools
import math
import re
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

PATTERNS = {  # the default patterns for the numbers that are drawn
    "bars": r"-?[\d,]*\.?\d+(?=\D*$)",  # the last number of each line
    "squares": r"(?<![\w.])-?\d+\.\d*(?![\w.])",  # every number with a decimal point
    "columns": r"(?!)",  # no number
}
PATTERNS["signed"] = PATTERNS["squares"]
CLAIM = re.compile(r"\b(?:True|False)$")  # A line with this end is a check for readers. Slides leave it out.
ARRAY = re.compile(r"\[([^\[\]]*)\]")  # a row of an array in printed output
NUMBERS = re.compile(r"\[*\[ *-?\d+(?:\.\d*| +-?\d+)(?: +-?\d+\.?\d*)* *\]+")  # an array, or one of its rows
POINT = re.compile(r"(?<![^ ])(-?\d+)\.(?= |$)")  # the point of a number without decimals
EXPONENTIAL = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([-+]\d+)\b")
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
DIGITS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
POWER = re.compile(r"(?:(\d+(?:\.\d+)?)·)?10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)")
NUMBER = re.compile(r"(-?\d+)(\.?\d*)")  # a number with the parts before and after its decimal point
MOST_SPACES = 6  # the largest number of spaces that align a number with the other numbers of its column
LETTER = 0.522  # the width of a letter on a slide, in em
LONGEST, SHORTEST = 40, 8  # the limits of a bar's width, in letters
LINE_WIDTH = 81  # the number of letters in a line at 28 pixels, the smallest font size of code
TABLE_WIDTH = 126  # the number of letters in a line at 18 pixels, the smallest font size of a table
WIDTH, HEIGHT = 1186, 500  # the area for a table above an answer, in pixels
SENTENCE = 56  # a sentence that is longer gets several lines
HANGING = " " * 4  # the additional indent of a printed line that continues the line above
LARGEST_FONT = 110  # in pixels
MOST_LINES_WITH_BARS_BELOW = 6  # in a table with more lines, each bar is to the right of its line
# The colours of the largest squares: positive and negative numbers, and numbers in a table without a sign.
# They are lighter colours of SIGNED_MAP and WEIGHT_MAP in npformer.lessons.plots.colours.
RED, BLUE, PURPLE = (0xEF, 0x8A, 0x62), (0x67, 0xA9, 0xCF), (0x9E, 0x9A, 0xC8)
YELLOW = (0xF0, 0xC0, 0x60)  # the colour of a word in the group `other`


class Drawing(NamedTuple):
    """How printed output is drawn."""

    kind: str  # "bars", "squares", "columns", or "signed": squares of numbers that could be negative
    where: str = ""  # a regular expression for the numbers to draw, or "" for the default in `PATTERNS`
    row: str = ""  # a regular expression whose groups are the columns of a row
    head: str = ""  # the names of the columns, separated by "|"; without `row`, of the drawn numbers
    given: str = ""  # a regular expression for the rows whose numbers the question's slide shows
    full: float = 0.0  # the number of a full bar or square, or 0 for the largest number


def draw_numbers(printed: str, drawing: Drawing, hidden: bool = False) -> str:
    """Format printed output as HTML, and draw its numbers as bars or squares.

    All numbers share one scale, which ends at `drawing.full`. If this is 0, the scale ends at the largest
    number, or at 100 if there are percentages. A word that matches gets a full bar or square. In a group of
    the pattern with the name `other`, the square has a different colour. In a group with the name `pale`, the
    text is grey, without a square. The result is empty if the output contains only claims.

    Parameters
    ----------
    printed : str
    drawing : Drawing
    hidden : bool
        Whether gaps replace the numbers, except in the given rows. The places of the bars are empty.

    Returns
    -------
    html : str

    Examples
    --------
    >>> draw_numbers("a 1.5", Drawing("squares"), hidden=True)
    '<pre class="drawn" style="--letters: 5; --lines: 1">a <b class="box">   </b></pre>'
    """
    pattern = re.compile(drawing.where or PATTERNS[drawing.kind])
    lines = select_lines(printed, drawing, pattern)
    if not lines:
        return ""
    matches = [list(pattern.finditer(line)) for line in lines]
    if not any(matches):
        return enlarge("\n".join(lines))
    if drawing.head and not drawing.row:
        lines.insert(0, name_numbers(drawing.head.split("|"), max(matches, key=len)))
        matches.insert(0, [])
    longest = max(len(line) for line in lines)
    bars = _place_bars(lines, matches) if drawing.kind == "bars" else Bars()
    rows = _draw_lines([line.ljust(longest) for line in lines], matches, drawing, bars, hidden)
    if bars.names:
        padded = [html.escape(name.ljust(bars.width)) for name in bars.names]
        rows[_find_first_row(matches) - 1] += "".join(f"  {name}" for name in padded)
    n_letters, n_lines = _measure_table(longest, matches, bars)
    style = f"--letters: {n_letters}; --lines: {n_lines}"
    header = split_names(drawing.head) if drawing.row else []
    return f'<pre class="drawn" style="{style}">{_join_rows(rows, len(header))}</pre>'


def _join_rows(rows: Sequence[str], n_header_lines: int) -> str:
    """Join the lines of a table. The lines of its header are closer to each other than the other lines."""
    n_upper_lines = max(n_header_lines - 1, 0)  # all lines of the header but its last one
    upper_lines = [f'<span class="upper">{row}</span>' for row in rows[:n_upper_lines]]
    return "".join(upper_lines) + "\n".join(rows[n_upper_lines:])


def _draw_lines(
    lines: Sequence[str],
    matches: Sequence[Sequence[re.Match[str]]],
    drawing: Drawing,
    bars: "Bars",
    hidden: bool,
) -> list[str]:
    """Return the HTML of each line of a table."""
    is_signed = drawing.kind == "signed" or any(match[0].startswith("-") for row in matches for match in row)
    lines = [remove_brackets(line) for line in lines]
    places = widen_places(lines, [[match.span() for match in row] for row in matches])
    rows = []
    for i, line_shares in enumerate(compute_shares(matches, drawing.full)):
        is_given = drawing.given != "" and re.search(drawing.given, lines[i]) is not None
        is_hidden = hidden and not is_given
        groups = [match.lastgroup for match in matches[i]]
        rows.append(
            _draw_line(lines[i], places[i], line_shares, groups, bars.width, is_hidden, bars.below, is_signed)
        )
    return rows


class Bars(NamedTuple):
    """The place of the bars."""

    width: int = 0  # in letters
    below: bool = False  # whether a bar is below its line of text, or to the right of it
    names: Sequence[str] = ()  # the names of the columns of bars


def _place_bars(lines: Sequence[str], matches: Sequence[Sequence[re.Match[str]]]) -> Bars:
    """Choose the place of the bars from the size of the table."""
    longest = max(len(line) for line in lines)
    most_matches = max(len(row) for row in matches)
    has_few_lines = len(lines) <= MOST_LINES_WITH_BARS_BELOW
    below = most_matches == 1 and longest > LINE_WIDTH // 2 and has_few_lines
    names = find_names(lines, matches)
    width = longest if below else choose_bar_width(longest, most_matches, len(lines))
    return Bars(max([width, *map(len, names)]), below, names)


def _measure_table(longest: int, matches: Sequence[Sequence[re.Match[str]]], bars: Bars) -> tuple[int, int]:
    """Return the number of letters in a row, and the number of lines, of a table with its bars."""
    if bars.below:
        return longest, len(matches) + sum(bool(row) for row in matches)
    if bars.width:
        longest += max(len(row) for row in matches) * (bars.width + 2)
    return longest, len(matches)


def name_numbers(names: Sequence[str], row: Sequence[re.Match[str]]) -> str:
    """Return a line with a name above each number of a row. A name ends where its number ends.

    >>> name_numbers(["loss", "after"], list(re.finditer("[0-9]+", "row  12    345")))
    '   loss  after'
    """
    line = ""
    for name, match in zip(names, row, strict=False):
        space = "  " if line else ""
        line = (line + space).ljust(match.end() - len(name)) + name
    return line


def find_names(lines: Sequence[str], matches: Sequence[Sequence[re.Match[str]]]) -> list[str]:
    """Return the names of two or more columns of numbers, from the line above the first row.

    The result is empty if there is only one column, or if a column has no name.

    >>> lines = ["seed  first  second", "   0    1.5     2.5"]
    >>> find_names(lines, [[], list(re.finditer(r"\\d\\.\\d", lines[1]))])
    ['first', 'second']
    """
    first = _find_first_row(matches)
    if first == 0 or len(matches[first]) < 2:
        return []
    names = []
    for cell in re.finditer(r"\S+(?: \S+)*", lines[first - 1]):
        is_above = any(cell.start() < match.end() and match.start() < cell.end() for match in matches[first])
        if is_above:
            names.append(cell[0])
    return names if len(names) == len(matches[first]) else []


def _find_first_row(matches: Sequence[Sequence[re.Match[str]]]) -> int:
    return next(i for i, row in enumerate(matches) if row)


def select_lines(printed: str, drawing: Drawing, pattern: re.Pattern[str]) -> list[str]:
    """Return the lines to draw: a table if the drawing describes its rows, else all lines but claims."""
    if drawing.row and re.search(drawing.row, printed, flags=re.M):
        return arrange_columns(printed, drawing.row, drawing.head)
    lines = printed.split("\n")
    lines = [line for line in lines if pattern.search(line) or not CLAIM.search(line)]
    return narrow_columns(align_arrays(lines)) if lines else []


def arrange_columns(printed: str, row: str, head: str) -> list[str]:
    """Return a table with a row for each match in printed output, and with the names of the columns above.

    The names may have several lines (see `split_names`).

    >>> arrange_columns("loss 0.5, slope -0.25\\ndone", r"loss (\\S+), slope (\\S+)", "loss|slope")
    ['loss   slope', '0.5    -0.25']
    >>> arrange_columns("p 5: 0.1 0.9", r"p (\\d): (\\S+) (\\S+)", "p|pair 0\\nsin|cos")
    ['    pair 0', 'p      sin   cos', '5      0.1   0.9']
    """
    names = split_names(head)
    table = list(names)
    for match in re.finditer(row, printed, flags=re.M):
        first, *others = ((column or "") for column in match.groups())
        table.append([first.rstrip(), *(column.strip() for column in others)])
    table = [[format_powers(cell) for cell in cells] for cells in table]
    body = table[len(names) :]
    columns = [cells if i == 0 else align_points(cells) for i, cells in enumerate(zip(*body, strict=True))]
    table[len(names) :] = [list(cells) for cells in zip(*columns, strict=True)]
    widths = [max(len(cell) for cell in cells) for cells in zip(*table, strict=True)]
    arranged = []
    for first, *others in table:
        cells = [first.ljust(widths[0])]
        for column, width in zip(others, widths[1:], strict=True):
            cells.append(column.rjust(width))
        arranged.append("   ".join(cells).rstrip())
    return arranged


def split_names(head: str) -> list[list[str]]:
    """Return the lines of a table's header. A name may have several lines; the last ones are side by side.

    >>> split_names("positions|weight of\\nthe token")
    [['', 'weight of'], ['positions', 'the token']]
    """
    if not head:
        return []
    columns = [name.split("\n") for name in head.split("|")]
    n_lines = max(len(lines) for lines in columns)
    padded = [[""] * (n_lines - len(lines)) + lines for lines in columns]
    return [list(line) for line in zip(*padded, strict=True)]


def format_powers(cell: str) -> str:
    """Write numbers in Python's exponential notation with a power of ten, or in full if they are 1 to 9999.

    >>> format_powers("3e-08"), format_powers("eps = 1e-5"), format_powers("0.5"), format_powers("2e+01")
    ('3·10⁻⁸', 'eps = 10⁻⁵', '0.5', '20')
    """
    return EXPONENTIAL.sub(_format_power, cell)


def _format_power(match: re.Match[str]) -> str:
    exponent = int(match[2])
    if 0 <= exponent <= 3:
        return f"{float(match[0]):g}"
    power = "10" + str(exponent).translate(SUPERSCRIPTS)
    return power if match[1] == "1" else f"{match[1]}·{power}"


def align_points(cells: Sequence[str]) -> list[str]:
    """Add spaces to the numbers of a column, so that their decimal points are below each other.

    If one number has many more decimals than another, the column stays as it is.

    >>> align_points(["0.54", "-0.841", "0", ""])
    ['0.54 ', '-0.841', '0    ', '']
    >>> align_points(["17000", "0.00000006"])
    ['17000', '0.00000006']
    """
    decimals = []
    for cell in cells:
        number = NUMBER.fullmatch(cell)
        if cell and number is None:
            return list(cells)
        decimals.append(len(number[2]) if number else 0)
    longest = max(decimals)
    if longest - min(decimals) > MOST_SPACES:
        return list(cells)
    return [cell and cell + " " * (longest - n) for cell, n in zip(cells, decimals, strict=True)]


def align_arrays(lines: Sequence[str]) -> list[str]:
    """Align the arrays of successive lines that begin with a name and have equally many numbers.

    >>> align_arrays(["x [0. 1.]", "row [-0.5  2. ]"])
    ['x   [ 0.  1.]', 'row [-0.5 2.]']
    """
    aligned: list[str] = []
    for counts, group in itertools.groupby(lines, count_numbers):
        similar = list(group)
        aligned += _align_similar(similar) if counts and len(similar) > 1 else similar
    return aligned


def count_numbers(line: str) -> tuple[int, ...]:
    """Return how many numbers each array of a line has, or () for a line without a name or with other arrays.

    >>> count_numbers("row [1. 2.] -> [0.5]"), count_numbers(" [1. 2.]]")
    ((2, 1), ())
    """
    arrays = [array.split() for array in ARRAY.findall(line)]
    has_name = re.match(r"\s*\w", line) is not None
    are_numbers = all(NUMBER.fullmatch(number) for array in arrays for number in array)
    return tuple(len(array) for array in arrays) if has_name and are_numbers else ()


def _align_similar(lines: Sequence[str]) -> list[str]:
    """Align lines with equally many arrays, which have equally many numbers."""
    columns = []  # each column: the same text or array of all lines
    for i, parts in enumerate(zip(*map(ARRAY.split, lines), strict=True)):
        is_array = i % 2 == 1
        columns.append(_align_numbers(parts) if is_array else _pad(parts))
    return ["".join(parts).rstrip() for parts in zip(*columns, strict=True)]


def _align_numbers(arrays: Sequence[str]) -> list[str]:
    """Align the decimal points of the numbers in each column."""
    columns = []
    for numbers in zip(*(array.split() for array in arrays), strict=True):
        parts = [NUMBER.findall(number)[0] for number in numbers]
        whole = max(len(before) for before, _ in parts)
        columns.append(_pad([before.rjust(whole) + after for before, after in parts]))
    return [f"[{' '.join(numbers)}]" for numbers in zip(*columns, strict=True)]


def _pad(texts: Sequence[str]) -> list[str]:
    width = max(len(text) for text in texts)
    return [text.ljust(width) for text in texts]


def choose_bar_width(longest: int, most_matches: int, n_lines: int) -> int:
    """Return the width of a bar, in letters, with which a table fills the width and the height of its area.

    `longest` is the number of letters in the longest line.
    """
    font_size = min(LARGEST_FONT, HEIGHT / (2.2 * n_lines))
    room = max(WIDTH / (LETTER * font_size) - longest, 0.7 * longest)
    free = min(room, LINE_WIDTH - longest) / most_matches - 2
    return int(min(LONGEST, max(SHORTEST, free)))


def remove_brackets(line: str) -> str:
    """Replace the brackets of arrays, and the points of numbers without decimals, by spaces.

    >>> remove_brackets("x[0] [[1. 2.5]")
    'x[0]   1  2.5 '
    """
    line = NUMBERS.sub(lambda array: re.sub(r"[\[\]]", " ", array[0]), line)
    return POINT.sub(r"\1 ", line)


def widen_places(
    lines: Sequence[str], places: Sequence[Sequence[tuple[int, int]]]
) -> list[list[tuple[int, int]]]:
    """Return the places of the numbers with the same place for all numbers of a column.

    Successive rows belong together if they have equally many numbers and the i-th numbers overlap. A place
    is not widened if it would contain or touch other text.

    >>> widen_places(["a  1.5", "b 12.5"], [[(3, 6)], [(2, 6)]])
    [[(2, 6)], [(2, 6)]]
    """
    columns: list[tuple[int, int]] = []
    groups: list[tuple[list[int], list[tuple[int, int]]]] = []  # the rows and the columns of each table
    for i, row in enumerate(places):
        if not row:
            continue
        united = _unite_places(columns, row)
        if united:
            groups[-1][0].append(i)
            groups[-1][1][:] = united
        else:
            groups.append(([i], list(row)))
        columns = groups[-1][1]
    widened = [list(row) for row in places]
    for rows, columns in groups:
        for i in rows:
            for j, (start, end) in enumerate(columns):
                own_start, own_end = places[i][j]
                before = lines[i][max(start - 1, 0) : own_start] if start < own_start else ""
                after = lines[i][own_end : end + 1] if end > own_end else ""
                is_free = (before + after).strip() == ""
                if is_free:
                    widened[i][j] = (start, end)
    return widened


def _unite_places(
    columns: Sequence[tuple[int, int]], row: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return columns that contain a row too, or [] if the row does not have the same columns."""
    if len(columns) != len(row):
        return []
    united = []
    for (start, end), (row_start, row_end) in zip(columns, row, strict=True):
        overlap = min(end, row_end) - max(start, row_start)
        if overlap <= 0:
            return []
        united.append((min(start, row_start), max(end, row_end)))
    return united


def _draw_line(
    line: str,
    places: Sequence[tuple[int, int]],
    shares: Sequence[float],
    groups: Sequence[str | None],
    bar_width: int,
    hidden: bool,
    below: bool,
    is_signed: bool,
) -> str:
    """Draw one line, with its numbers on squares, or with bars after or below the line."""
    numbers = []
    bars = []
    for (start, end), share, group in zip(places, shares, groups, strict=True):
        if hidden:
            numbers.append(draw_gap(end - start))
        elif group == "pale":
            numbers.append(f'<b class="pale">{html.escape(line[start:end])}</b>')
        else:
            numbers.append(draw_square(line[start:end], 0 if bar_width else share, is_signed, group))
        if bar_width:
            bars.append(draw_bar(0 if hidden else share, bar_width))
    return ("\n" if below else "  ").join([replace_places(line, places, numbers), *bars])


def enlarge(printed: str) -> str:
    """Format printed output as HTML with its number of letters and lines, for the largest letters that fit.

    >>> enlarge("1 < 2")
    '<pre style="--letters: 5; --lines: 1">1 &lt; 2</pre>'
    """
    lines = wrap_printed(align_arrays(printed.split("\n")))
    text = html.escape("\n".join(lines))
    return f'<pre style="{measure_lines(lines)}">{text}</pre>'


def wrap_printed(lines: Sequence[str]) -> list[str]:
    """Wrap long sentences. A row of a table stays one line if it fits at the smallest font size.

    A single sentence gets lines of similar length. Otherwise, the continuation of a line is indented.

    >>> wrap_printed(["a  " + "1.0 " * 30]) == ["a  " + "1.0 " * 30]
    True
    """
    if len(lines) == 1 and is_sentence(lines[0]) and len(lines[0]) > SENTENCE:
        n_lines = math.ceil(len(lines[0]) / SENTENCE)
        return textwrap.wrap(lines[0], math.ceil(len(lines[0]) / n_lines) + 6)
    width = SENTENCE if len(lines) <= 2 else LINE_WIDTH  # Few lines have room for larger letters.
    wrapped = []
    for line in lines:
        widest = LINE_WIDTH if is_sentence(line) else TABLE_WIDTH
        if len(line) <= widest:
            wrapped.append(line)
        else:
            wrapped += textwrap.wrap(line, width, subsequent_indent=read_indent(line) + HANGING)
    return wrapped


def is_sentence(line: str) -> bool:
    """Return whether a line has no columns, which two spaces separate.

    >>> is_sentence("It is 2."), is_sentence("loss  0.5")
    (True, False)
    """
    return "  " not in line.strip()


def read_indent(line: str) -> str:
    """Return the spaces at the beginning of a line."""
    return line[: len(line) - len(line.lstrip())]


def measure_lines(lines: Sequence[str]) -> str:
    """Return the CSS variables with the number of letters in the longest line and the number of lines.

    >>> measure_lines(["ab", "abc"])
    '--letters: 3; --lines: 2'
    """
    longest = max(len(line) for line in lines)
    return f"--letters: {longest}; --lines: {len(lines)}"


def narrow_columns(lines: Sequence[str]) -> list[str]:
    """Return the lines of a table with at most two spaces between its columns.

    >>> narrow_columns(["a     1", "bc   10"])
    ['a    1', 'bc  10']
    """
    longest = max(len(line) for line in lines)
    table = [line.ljust(longest) for line in lines]
    is_blank = ["".join(column).strip() == "" for column in zip(*table, strict=True)]
    kept = []
    for i in range(len(is_blank)):
        follows_two_blanks = all(is_blank[max(0, i - 2) : i + 1])
        if not follows_two_blanks:
            kept.append(i)
    return ["".join(line[i] for i in kept).rstrip() for line in table]


def compute_shares(matches: Sequence[Sequence[re.Match[str]]], full: float = 0.0) -> list[list[float]]:
    """Return each number divided by `full`, but at most 1. A word gets 1.

    If `full` is 0, return each number divided by the largest number, or by 100 if there are percentages.

    >>> compute_shares([list(re.finditer("[0-9]+%?|x", line)) for line in ("1 8", "50 %", "2% x")])
    [[0.01, 0.08], [0.5], [0.02, 1.0]]
    >>> compute_shares([list(re.finditer("[0-9]", "1 8"))], full=4)  # 8 is more than full
    [[0.25, 1.0]]
    """
    largest = 0.0
    has_percentages = False
    for row in matches:
        for match in row:
            largest = max(largest, parse_magnitude(match[0]))
            after = match.string[match.end() :]
            has_percentages = has_percentages or match[0].endswith("%") or after.lstrip().startswith("%")
    if has_percentages:
        largest = 100.0
    largest = full or largest
    return [[_compute_share(match[0], largest) for match in row] for row in matches]


def _compute_share(text: str, largest: float) -> float:
    magnitude = parse_magnitude(text)
    if magnitude < 0:  # a word
        return 1.0
    return min(magnitude / largest, 1.0) if largest else 0.0


def parse_magnitude(text: str) -> float:
    """Return the absolute value of a number, or -1 for a word.

    >>> parse_magnitude("-1,024"), parse_magnitude(" 5·10⁻²"), parse_magnitude(" 2"), parse_magnitude("int")
    (1024.0, 0.05, 2.0, -1.0)
    """
    power = POWER.fullmatch(text.strip())
    if power:
        return float(f"{power[1] or 1}e{power[2].translate(DIGITS)}")
    number = text.strip().replace(",", "").removesuffix("%")
    if re.fullmatch(r"-?\d*\.?\d+\.?", number):
        return abs(float(number))
    return -1.0


def replace_places(line: str, places: Sequence[tuple[int, int]], parts: Sequence[str]) -> str:
    """Return the line as HTML, in which parts replace the letters at the given places.

    >>> replace_places("1 < 2", [(0, 1), (4, 5)], ["a", "b"])
    'a &lt; b'
    """
    pieces = []
    position = 0
    for (start, end), part in zip(places, parts, strict=True):
        pieces.append(html.escape(line[position:start]))
        pieces.append(part)
        position = end
    pieces.append(html.escape(line[position:]))
    return "".join(pieces)


def draw_square(text: str, share: float, is_signed: bool, group: str | None = None) -> str:
    """Return a number on a coloured square. A larger magnitude gives a darker square.

    The colours have the same meaning as in the heat maps: in a signed table, positive numbers are red and
    negative numbers are blue. In other tables, the squares are purple, and yellow in the group `other`. With
    a share of 0 there is no square.
    """
    number = html.escape(text)
    if not share:
        return number
    largest_colour = PURPLE
    if is_signed:
        largest_colour = BLUE if text.lstrip().startswith("-") else RED
    elif group == "other":
        largest_colour = YELLOW
    return f'<b class="square" style="background: {mix_with_white(largest_colour, share)}">{number}</b>'


def mix_with_white(colour: tuple[int, int, int], share: float) -> str:
    """Return a mixture of a colour and white in CSS.

    >>> mix_with_white(BLUE, 1), mix_with_white(BLUE, 0)
    ('#67a9cf', '#ffffff')
    """
    return "#" + "".join(f"{round(255 + (channel - 255) * share):02x}" for channel in colour)


def draw_bar(share: float, bar_width: int) -> str:
    """Return a bar that fills a share of its track, which shows the full width."""
    track = f"width: {LETTER * bar_width:.2f}em"
    return f'<b class="track" style="{track}"><b class="bar" style="width: {100 * share:.1f}%"></b></b>'


def draw_gap(n_letters: int) -> str:
    """Return an empty box, as wide as n letters."""
    return f'<b class="box">{" " * n_letters}</b>'
