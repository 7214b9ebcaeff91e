"""Arrange the content of a slide: pictures, tables, code, formulas and words, with a bar for the question.

    title
    area       the blocks of the slide; each block is as large as the area allows
    bar        the question, later the answer

The style sheet stage.css scales each block to the free area. So a block shrinks when the bar appears, and the
bar never covers a block. The style sheet needs the relative size of a block as CSS variables. This module
computes them: the number of lines and of letters in a line, the width and height of a formula in em, or the
ratio of a picture's sides.
"""

import base64
import html
import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from npformer.handouts.slide_pictures import LINE_WIDTH, enlarge, measure_lines, read_indent

COVER = r'(?:<i class="cover"[^>]*></i>)*'
BLOCK = re.compile(
    rf"(?P<picture><img [^>]*>{COVER})|(?P<player><iframe .*?</iframe>{COVER})|(?P<table><pre .*?</pre>)"
    r"|```text\n(?P<printed>.*?)\n```|(?P<code>```python\n.*?\n```)|(?P<formula>(?:\$\$.+?\$\$\s*)+)",
    flags=re.S,
)
FORMULA = re.compile(r"\$\$(.+?)\$\$", flags=re.S)
GAP = re.compile(r"\\qquad")
PNG = re.compile(r"data:image/png;base64,([\w+/]{32})")
SIZE = re.compile(r'style="([^"]*)"')
LINES = re.compile(r"--lines: (\d+)")
HYPHEN = re.compile(r"(?<=[ \n>(])-(?=\d)|(?<=\[)-(?=\d+\.)")  # the sign of a number, but not of an index
FULL_PICTURE = 1268 / 656  # the ratio of the sides of a picture that fills a slide
NAMESPACE = re.compile(r"\{.*?\}")
RELATIONS = "=+−-→⋅≈·∑⊙±×<>"  # there is a space on both sides of these operators
SPACE = 0.5  # both spaces together, in em
NARROW = ".,()[]|!:ijlt \u00a0"
SCRIPT = 0.75  # the size of a subscript relative to its base
LETTER = 0.62  # the mean width of a letter, in em
COMMENTED = re.compile(r"(?P<code>.*\S)  (?P<comment># .*)")  # a line of code that ends with a comment
BREAK = re.compile(r"(?<=,) | (?=(?:if|else|for|and|or|[-+*/@]{1,2}) )")  # where a line of code may end
HANGING = " " * 8  # the additional indent of a line of code that continues the line above
MOST_LINES = 12  # the number of lines of code and output that fit above an answer


class Block(NamedTuple):
    """A part of a slide that is scaled as a whole."""

    kind: str  # "picture", "player", "table", "code", "formula" or "words"
    text: str  # Markdown or HTML
    style: str = ""  # the CSS variables with the relative size of the block


def split_blocks(text: str) -> list[Block]:
    """Split Markdown into blocks.

    >>> [block.kind for block in split_blocks("So.\\n\\n$$a$$\\n\\n$$b$$\\n\\n<pre >1</pre>")]
    ['words', 'formula', 'table']
    """
    blocks: list[Block] = []
    end = 0
    for match in BLOCK.finditer(text):
        blocks += _make_words(text[end : match.start()])
        end = match.end()
        kind = str(match.lastgroup)
        if kind == "printed":
            blocks.append(make_table(enlarge(match["printed"])))
        elif kind == "picture":
            blocks.append(Block(kind, match[0], f"--ratio: {read_ratio(match[0]):.4f}"))
        elif kind == "code":
            lines = wrap_code(match[0].split("\n")[1:-1])
            blocks.append(Block(kind, "\n".join(["```python", *lines, "```"]), measure_lines(lines)))
        elif kind == "formula":
            blocks.append(make_formulas(FORMULA.findall(match[0])))
        elif kind == "table":
            blocks.append(make_table(match[0]))
        else:
            blocks.append(Block(kind, match[0]))
    return [*blocks, *_make_words(text[end:])]


def wrap_code(lines: Sequence[str]) -> list[str]:
    """Wrap the lines of code that are too long for a slide. A line that continues another is indented.

    A comment at the end of a line that is too long moves to the line above.

    >>> wrap_code(["    x = y  # " + "c" * 70])[1]
    '    x = y'
    """
    wrapped = []
    for line in lines:
        commented = COMMENTED.fullmatch(line)
        if len(line) > LINE_WIDTH and commented:
            wrapped += [read_indent(line) + commented["comment"], *break_line(commented["code"])]
        else:
            wrapped += break_line(line)
    return wrapped


def break_line(line: str) -> list[str]:
    """Break a line of code into lines that fit on a slide.

    The line ends at the first place in its second half that is in the smallest number of brackets.
    """
    indent = read_indent(line) + HANGING
    broken = []
    while len(line) > LINE_WIDTH:
        places = [match.start() for match in BREAK.finditer(line, LINE_WIDTH // 2, LINE_WIDTH)]
        if not places:
            break
        end = min(places, key=lambda place: count_open_brackets(line[:place]))
        broken.append(line[:end])
        line = indent + line[end:].strip()
    return [*broken, line]


def count_open_brackets(code: str) -> int:
    """Return the number of brackets that are open at the end of a piece of code.

    >>> count_open_brackets("f(a[0], (b")
    2
    """
    n_opened = sum(code.count(bracket) for bracket in "([{")
    n_closed = sum(code.count(bracket) for bracket in ")]}")
    return n_opened - n_closed


def make_table(table: str) -> Block:
    """Make the block of a table. The block gets the CSS variables of the table.

    Negative numbers get a minus sign, which is wider than a hyphen.

    >>> make_table("<pre >-1  x[-1]</pre>").text
    '<pre >−1  x[-1]</pre>'
    """
    size = SIZE.search(table)
    return Block("table", HYPHEN.sub("−", table), size[1] if size else "")


def _make_words(text: str) -> Iterator[Block]:
    if text.strip():
        yield Block("words", text.strip())


def read_ratio(picture: str) -> float:
    """Return the width of a PNG picture in a data URL, divided by its height."""
    data = PNG.search(picture)
    if data is None:
        return FULL_PICTURE
    header = base64.b64decode(data[1])
    return int.from_bytes(header[16:20]) / int.from_bytes(header[20:24])


# --- formulas -----------------------------------------------------------------------------------


def make_formulas(formulas: Sequence[str]) -> Block:
    """Make one block of displayed formulas.

    If the formulas are wide, the parts on both sides of \\qquad get separate lines.
    """
    widest, height = measure_formulas(formulas)
    parts = [part.strip(" \n,") for formula in formulas for part in GAP.split(formula) if part.strip()]
    part_width, part_height = measure_formulas(parts)
    if _is_larger((part_width, part_height), (widest, height)):
        formulas, widest, height = parts, part_width, part_height
    text = "\n\n".join(f"$${formula.strip()}$$" for formula in formulas)
    return Block("formula", text, f"--wide: {widest:.2f}; --high: {height:.2f}")


def _is_larger(size: tuple[float, float], other: tuple[float, float]) -> bool:
    """Return whether the first size, in em, allows larger letters in an area of 1190 × 480 pixels."""
    letters, other_letters = (min(90, 1190 / width, 480 / height) for width, height in (size, other))
    return letters > 1.15 * other_letters


def measure_formulas(formulas: Sequence[str]) -> tuple[float, float]:
    """Return the width and the height of formulas below each other, in em."""
    sizes = [measure_formula(formula) for formula in formulas]
    return 1.15 * max(width for width, _ in sizes), sum(height + 0.5 for _, height in sizes)


def measure_formula(tex: str) -> tuple[float, float]:
    """Return the approximate width and height of a displayed formula, in em.

    >>> measure_formula("A")
    (0.76, 1.2)
    """
    from latex2mathml.converter import convert

    return _measure(ElementTree.fromstring(convert(tex, display="block")))


def _measure(element: ElementTree.Element) -> tuple[float, float]:
    """Return the approximate width and height of a MathML element, in em."""
    tag = NAMESPACE.sub("", element.tag)
    sizes = [_measure(child) for child in element]
    widths = [width for width, _ in sizes]
    heights = [height for _, height in sizes]
    if tag == "mspace":
        return _read_em(element.get("width", "0")), 0.0
    if not sizes:
        text = element.text or ""
        space = SPACE if tag == "mo" and text in RELATIONS else 0.0
        return sum(_measure_letter(letter) for letter in text) + space, 1.2
    if tag == "mfrac":
        return max(widths) + 0.2, sum(heights) + 0.2
    if tag in ("msub", "msup"):
        return widths[0] + SCRIPT * widths[1], heights[0] + 0.4
    if tag == "msubsup":
        return widths[0] + SCRIPT * max(widths[1:]), heights[0] + 0.8
    if tag in ("munder", "mover", "munderover"):
        return max(widths[0], SCRIPT * max(widths[1:])), heights[0] + SCRIPT * sum(heights[1:])
    if tag == "mtable":
        rows = [[_measure(entry) for entry in row] for row in element]
        width = sum(max(row[i][0] for row in rows) + 0.9 for i in range(len(rows[0])))
        return width, sum(max(height for _, height in row) + 0.25 for row in rows)
    if tag == "msqrt":
        return sum(widths) + 0.8, max(heights) + 0.2
    return sum(widths), max(heights)


def _measure_letter(letter: str) -> float:
    """Return the approximate width of a letter, in em."""
    if letter in NARROW:
        return 0.36
    return 0.76 if letter.isupper() or letter in RELATIONS else 0.54


def _read_em(width: str) -> float:
    return float(width.removesuffix("em")) if width.endswith("em") else 0.3


# --- the slide ----------------------------------------------------------------------------------


def name_layout(blocks: Sequence[Block], later: Sequence[Block], has_bar: bool) -> str:
    """Return the CSS classes of a slide.

    `later` are the blocks that appear after a click. A slide that "asks" has a question or an answer. On a
    "long" slide, the output takes the place of the code. On a "pictured" slide, formulas are small.
    """
    classes = []
    if has_bar:
        classes.append("asks")
    n_lines = sum(count_lines(block) for block in (*blocks, *later))
    if later and n_lines > MOST_LINES:
        classes.append("long")
    if any(block.kind == "picture" for block in blocks):
        classes.append("pictured")
    return " ".join(classes)


def count_lines(block: Block) -> int:
    """Return the number of lines of code or of a table, or 0 for a different block."""
    lines = LINES.search(block.style)
    return int(lines[1]) if lines else 0


def wrap_block(block: Block, words_size: int, click: int | None = None) -> tuple[str, str]:
    """Return the HTML before and after a block. `click` is the number of the click that shows the block.

    A table with gaps gets the class "gaps". The output of the slide's code takes its place.
    """
    style = f"--size: {words_size}px" if block.kind == "words" else block.style
    classes = f"block {block.kind}"
    if '<b class="box">' in block.text:
        classes += " gaps"
    before = f'<div class="{classes}" style="{style}">'
    if click is not None:
        before = f'<div class="{classes} fragment" data-fragment-index="{click}" style="{style}">'
    if block.kind == "picture":
        return f'{before}<div class="picture-box">', "</div></div>"
    return before, "</div>"


def choose_words_size(text: str, blocks: Sequence[Block], has_bar: bool) -> int:
    """Return the font size of the words above the bar, in pixels. Words without other blocks are larger.

    >>> choose_words_size("One.", [Block("words", "One.")], has_bar=False)
    72
    """
    is_alone = all(block.kind == "words" for block in blocks) and not has_bar
    return fit_words(text, 1192 * 560, 34, 72) if is_alone else 34


def choose_bar_size(text: str, blocks: Sequence[Block]) -> int:
    """Return the font size of a question or an answer, in pixels. The other blocks need the most room.

    >>> choose_bar_size("Why?", []), choose_bar_size("Why?", [Block("picture", "")])
    (80, 36)
    """
    kinds = {block.kind for block in blocks}
    if not kinds:
        return fit_words(text, 1192 * 560, 40, 80)
    if kinds <= {"formula", "words"}:
        return fit_words(text, 1192 * 330, 34, 56)
    return fit_words(text, 1192 * 150, 30, 36)


def fit_words(text: str, area: int, smallest: int, largest: int) -> int:
    """Return the font size in pixels with which words fill an area, given in square pixels."""
    plain = re.sub(r"<[^>]*>|[*`$_]|\\\w+", "", html.unescape(text))
    n_letters = len(plain) + 25 * plain.count("\n- ")  # the last line of an item is partly empty
    size = math.sqrt(area / (1.35 * LETTER * max(n_letters, 1)))
    return max(smallest, min(largest, int(size)))
