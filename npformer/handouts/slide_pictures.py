"""What a cell prints, drawn for the stage: its numbers stay where they are, and get bars or coloured squares.

    learned      16 words:  43.6 %   ██████████
    ALiBi        16 words:  96.5 %   ██████████████████████

Beside a question the same table comes first with its numbers left out, to be filled in.
"""

import html
import re
from collections.abc import Sequence

WHERE = {  # the numbers that are drawn where a lesson names no others
    "bars": r"-?[\d,]*\.?\d+(?=\D*$)",  # the last of each line
    "squares": r"(?<![\w.])-?\d+\.\d*(?![\w.])",  # every one with a point
}
CLAIM = re.compile(r"\b(?:True|False)$")  # for readers, who may ask whether it holds with other seeds
LETTER = 0.522  # the width of a letter on a slide, in em
LONGEST, LEAST = 24, 8  # letters that a bar is wide
SMALL, LARGE = 28, 60  # pixels: how high letters are
WIDTH, HEIGHT = 1186, 300  # pixels that what is printed takes, where its letters are not small


def drawn(printed: str, kind: str, where: str, wide: int, hidden: bool = False) -> str:
    """The printed text as HTML, its numbers drawn as `kind` says, "bars" or "squares".

    `where` is a regular expression for what is drawn, "" for the numbers of `WHERE`; `wide` is how many
    letters a line has room for. All have one scale, up to the largest; percentages are parts of 100, and
    words are marked. Hidden: empty boxes in the place of all.

    >>> drawn("a 1.5\\nb 3.0", "squares", "", 80, hidden=True)
    '<pre class="drawn" style="font-size: 60px">a <b class="box">   </b>\\nb <b class="box">   </b></pre>'
    """
    pattern = re.compile(where or WHERE[kind])
    lines = narrow([line for line in printed.split("\n") if pattern.search(line) or not CLAIM.search(line)])
    found = [list(pattern.finditer(line)) for line in lines]
    if not any(found):
        return large(printed)
    longest, columns = max(map(len, lines)), max(map(len, found))
    room = 0 if kind == "squares" else min(LONGEST, max(LEAST, (wide - longest) // columns - 2))
    rows = []
    for line, matches, row in zip(lines, found, shares(found), strict=True):
        parts = [
            box(len(m[0])) if hidden else square(m[0], 0 if room else s)
            for m, s in zip(matches, row, strict=True)
        ]
        after = [box(room) if hidden else bar(share, room) for share in row if room]
        rows.append("  ".join([replaced(line.ljust(longest), matches, parts), *after]))
    height = points(longest + columns * (room + 2) * bool(room), len(rows))
    return f'<pre class="drawn" style="font-size: {height}px">' + "\n".join(rows) + "</pre>"


def large(printed: str) -> str:
    """The printed text as HTML, in letters as large as it has room for.

    >>> large("1 < 2")
    '<pre style="font-size: 60px">1 &lt; 2</pre>'
    """
    lines = printed.split("\n")
    return (
        f'<pre style="font-size: {points(max(map(len, lines)), len(lines))}px">{html.escape(printed)}</pre>'
    )


def points(letters: int, lines: int) -> int:
    """How high letters are, in pixels of a slide, where so many stand in the longest of so many lines."""
    return max(SMALL, min(LARGE, int(WIDTH / LETTER / letters), HEIGHT // lines))


def narrow(lines: Sequence[str]) -> list[str]:
    """The lines of a table with no more than two blanks between its columns.

    >>> narrow(["a     1", "bc   10"])
    ['a    1', 'bc  10']
    """
    table = [line.ljust(max(map(len, lines))) for line in lines]
    blank = [not "".join(column).strip() for column in zip(*table, strict=True)]
    kept = [i for i in range(len(blank)) if not all(blank[max(0, i - 2) : i + 1])]
    return ["".join(line[i] for i in kept).rstrip() for line in table]


def shares(found: Sequence[Sequence[re.Match[str]]]) -> list[list[float]]:
    """How large the numbers are beside the largest, from 0 to 1; a word has 1, a percentage its part of 100.

    >>> shares([list(re.finditer("[0-9]+|x", line)) for line in ("1 8", "50 %", "2 x")])
    [[0.01, 0.08], [0.5], [0.02, 1.0]]
    """
    per_cent = any(match.string[match.end() :].lstrip().startswith("%") for row in found for match in row)
    most = 100.0 if per_cent else max(size(match[0]) for row in found for match in row) or 1.0  # all are 0
    return [[size(match[0]) / most if size(match[0]) >= 0 else 1.0 for match in row] for row in found]


def size(text: str) -> float:
    """How large a number is, whatever its sign; -1 of what is none.

    >>> size("-1,024"), size("float64")
    (1024.0, -1.0)
    """
    number = text.replace(",", "")
    return abs(float(number)) if re.fullmatch(r"-?\d*\.?\d+\.?", number) else -1.0


def replaced(line: str, matches: Sequence[re.Match[str]], parts: Sequence[str]) -> str:
    """The line as HTML, with these parts in the place of the matches."""
    starts, ends = [m.start() for m in matches], [m.end() for m in matches]
    kept = [html.escape(line[i:j]) for i, j in zip([0, *ends], [*starts, len(line)], strict=True)]
    return kept[0] + "".join(part + text for part, text in zip(parts, kept[1:], strict=True))


def square(text: str, share: float) -> str:
    """A number on its colour, blue or, below zero, orange: the larger, the darker; 0 has none."""
    name, number = "minus square" if text[0] == "-" else "square", html.escape(text)
    return f'<b class="{name}" style="--part: {share:.0%}">{number}</b>' if share else number


def bar(share: float, room: int) -> str:
    """A bar as long as its share of the room, which it takes whole."""
    long, rest = (f"{LETTER * room * part:.2f}em" for part in (share, 1 - share))
    return f'<b class="bar" style="width: {long}; margin-right: {rest}"></b>'


def box(letters: int) -> str:
    """An empty place, so many letters wide."""
    return f'<b class="box">{" " * letters}</b>'
