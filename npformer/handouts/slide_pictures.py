"""Draw the printed output of a cell for a slide. Each number gets a bar or a coloured square.

    learned      16 words:  43.6 %   ██████████
    ALiBi        16 words:  96.5 %   ██████████████████████

On the slide with the question, the same table has gaps instead of the numbers.
"""

import html
import re
from collections.abc import Sequence

PATTERNS = {  # the default patterns for the numbers that are drawn
    "bars": r"-?[\d,]*\.?\d+(?=\D*$)",  # the last number of each line
    "squares": r"(?<![\w.])-?\d+\.\d*(?![\w.])",  # every number with a decimal point
}
CLAIM = re.compile(r"\b(?:True|False)$")  # A line with this end is a check for readers. Slides leave it out.
LETTER = 0.522  # the width of a letter on a slide, in em
LONGEST, SHORTEST = 24, 8  # the limits of a bar's width, in letters
BLUE, ORANGE = (0x56, 0xB4, 0xE9), (0xE6, 0x9F, 0x00)  # squares of positive and of negative numbers


def draw_numbers(printed: str, kind: str, where: str, line_width: int, hidden: bool = False) -> str:
    """Format printed output as HTML, and draw its numbers as bars or squares.

    All numbers share one scale, which ends at the largest number, or at 100 if there are percentages. A word
    that matches gets a full bar or square.

    Parameters
    ----------
    printed : str
    kind : str
        "bars" or "squares".
    where : str
        A regular expression that matches the numbers to draw, or "" for the default in `PATTERNS`.
    line_width : int
        The number of letters that fit into a line.
    hidden : bool
        Whether gaps replace the numbers.

    Returns
    -------
    html : str

    Examples
    --------
    >>> draw_numbers("a 1.5\\nb 3.0", "squares", "", 80, hidden=True)
    '<pre class="drawn" style="--letters: 5; --lines: 2">a <b class="box">   </b>\\nb <b class="box">   </b></pre>'
    """
    pattern = re.compile(where or PATTERNS[kind])
    lines = [line for line in printed.split("\n") if pattern.search(line) or not CLAIM.search(line)]
    lines = narrow_columns(lines)
    matches = [list(pattern.finditer(line)) for line in lines]
    if not any(matches):
        return enlarge(printed)
    longest = max(len(line) for line in lines)
    most_matches = max(len(row) for row in matches)
    bar_width = 0
    if kind != "squares":
        free = (line_width - longest) // most_matches - 2
        bar_width = min(LONGEST, max(SHORTEST, free))
    rows = [
        _draw_line(line.ljust(longest), line_matches, line_shares, bar_width, hidden)
        for line, line_matches, line_shares in zip(lines, matches, compute_shares(matches), strict=True)
    ]
    room_for_bars = most_matches * (bar_width + 2) if bar_width else 0
    size = f"--letters: {longest + room_for_bars}; --lines: {len(rows)}"
    return f'<pre class="drawn" style="{size}">' + "\n".join(rows) + "</pre>"


def _draw_line(
    line: str, matches: Sequence[re.Match[str]], shares: Sequence[float], bar_width: int, hidden: bool
) -> str:
    """Draw one line, with its numbers on squares or with bars after the line."""
    numbers = []
    bars = []
    for match, share in zip(matches, shares, strict=True):
        if hidden:
            numbers.append(draw_gap(len(match[0])))
        else:
            numbers.append(draw_square(match[0], 0 if bar_width else share))
        if bar_width:
            bars.append(draw_gap(bar_width) if hidden else draw_bar(share, bar_width))
    return "  ".join([replace_matches(line, matches, numbers), *bars])


def enlarge(printed: str) -> str:
    """Format printed output as HTML with its number of letters and lines, for the largest letters that fit.

    >>> enlarge("1 < 2")
    '<pre style="--letters: 5; --lines: 1">1 &lt; 2</pre>'
    """
    lines = printed.split("\n")
    longest = max(len(line) for line in lines)
    return f'<pre style="--letters: {longest}; --lines: {len(lines)}">{html.escape(printed)}</pre>'


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


def compute_shares(matches: Sequence[Sequence[re.Match[str]]]) -> list[list[float]]:
    """Return each number divided by the largest number, or by 100 if there are percentages. A word gets 1.

    >>> compute_shares([list(re.finditer("[0-9]+|x", line)) for line in ("1 8", "50 %", "2 x")])
    [[0.01, 0.08], [0.5], [0.02, 1.0]]
    """
    largest = 0.0
    has_percentages = False
    for row in matches:
        for match in row:
            largest = max(largest, parse_magnitude(match[0]))
            after = match.string[match.end() :]
            has_percentages = has_percentages or after.lstrip().startswith("%")
    if has_percentages:
        largest = 100.0
    return [[_compute_share(match[0], largest) for match in row] for row in matches]


def _compute_share(text: str, largest: float) -> float:
    magnitude = parse_magnitude(text)
    if magnitude < 0:  # a word
        return 1.0
    return magnitude / largest if largest else 0.0


def parse_magnitude(text: str) -> float:
    """Return the absolute value of a number, or -1 for a word.

    >>> parse_magnitude("-1,024"), parse_magnitude("float64")
    (1024.0, -1.0)
    """
    number = text.replace(",", "")
    if re.fullmatch(r"-?\d*\.?\d+\.?", number):
        return abs(float(number))
    return -1.0


def replace_matches(line: str, matches: Sequence[re.Match[str]], parts: Sequence[str]) -> str:
    """Return the line as HTML, in which parts replace the matches."""
    pieces = []
    position = 0
    for match, part in zip(matches, parts, strict=True):
        pieces.append(html.escape(line[position : match.start()]))
        pieces.append(part)
        position = match.end()
    pieces.append(html.escape(line[position:]))
    return "".join(pieces)


def draw_square(text: str, share: float) -> str:
    """Return a number on a coloured square. A larger magnitude gives a darker square.

    The square is blue, or orange if the number is negative. With a share of 0 there is no square.
    """
    number = html.escape(text)
    if not share:
        return number
    colour = mix_with_white(ORANGE if text[0] == "-" else BLUE, share)
    return f'<b class="square" style="background: {colour}">{number}</b>'


def mix_with_white(colour: tuple[int, int, int], share: float) -> str:
    """Return a mixture of a colour and white in CSS.

    >>> mix_with_white(BLUE, 1), mix_with_white(BLUE, 0)
    ('#56b4e9', '#ffffff')
    """
    return "#" + "".join(f"{round(255 + (channel - 255) * share):02x}" for channel in colour)


def draw_bar(share: float, bar_width: int) -> str:
    """Return a bar that fills a share of the full width. The rest of the width remains empty."""
    length = LETTER * bar_width * share
    rest = LETTER * bar_width * (1 - share)
    return f'<b class="bar" style="width: {length:.2f}em; margin-right: {rest:.2f}em"></b>'


def draw_gap(n_letters: int) -> str:
    """Return an empty box, as wide as n letters."""
    return f'<b class="box">{" " * n_letters}</b>'
