"""Arrange the content of a slide: pictures, tables, code, formulas and words, with a bar for the question.

    title
    area       the blocks of the slide; each block is as large as the area allows
    bar        the question, later the answer

A slide's text becomes blocks. The style sheet stage.css scales each block to the area that is free, so a block
shrinks when the bar appears, and the bar never covers it. For this purpose, the style sheet needs the size of a
block relative to its letters, as CSS variables: the number of lines and of letters in a line, the width and the
height of a formula in em, the ratio of a picture's sides. This module computes these numbers.
"""

import base64
import html
import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from npformer.handouts.slide_pictures import enlarge

COVER = r'(?:<i class="cover"[^>]*></i>)*'
BLOCK = re.compile(
    rf"(?P<picture><img [^>]*>{COVER})|(?P<player><iframe .*?</iframe>{COVER})|(?P<table><pre .*?</pre>)"
    r"|```text\n(?P<printed>.*?)\n```|(?P<code>```python\n.*?\n```)|(?P<formula>(?:\$\$.+?\$\$\s*)+)",
    flags=re.S,
)
FORMULA = re.compile(r"\$\$(.+?)\$\$", flags=re.S)
GAP = re.compile(r"\\qquad|\\quad")
PNG = re.compile(r"data:image/png;base64,([\w+/]{32})")
FULL_PICTURE = 1268 / 656  # the ratio of the sides of a picture that fills a slide
NAMESPACE = re.compile(r"\{.*?\}")
SCRIPT = 0.75  # the size of a subscript relative to its base
LETTER = 0.62  # the mean width of a letter in a formula, in em
WORDS_AREA = 1192 * 560  # the area for words on a slide without other content, in square pixels
BAR_AREA = 1192 * 150  # the area for words in a bar, in square pixels


class Block(NamedTuple):
    """A part of a slide that is scaled as one piece."""

    kind: str  # "picture", "player", "table", "code", "formula" or "words"
    text: str  # Markdown or HTML
    style: str = ""  # the CSS variables with the relative size of the block


def split_blocks(text: str) -> list[Block]:
    """Split Markdown into blocks.

    >>> [block.kind for block in split_blocks("So.\\n\\n$$a$$\\n\\n$$b$$\\n\\n<pre >1</pre>")]
    ['words', 'formula', 'table']
    """
    blocks = []
    end = 0
    for match in BLOCK.finditer(text):
        blocks += _make_words(text[end : match.start()])
        end = match.end()
        kind = str(match.lastgroup)
        if kind == "printed":
            blocks.append(Block("table", enlarge(match["printed"])))
        elif kind == "picture":
            blocks.append(Block(kind, match[0], f"--ratio: {read_ratio(match[0]):.4f}"))
        elif kind == "code":
            blocks.append(Block(kind, match[0], measure_lines(match[0].split("\n")[1:-1])))
        elif kind == "formula":
            blocks.append(make_formulas(FORMULA.findall(match[0])))
        else:
            blocks.append(Block(kind, match[0]))
    return [*blocks, *_make_words(text[end:])]


def _make_words(text: str) -> Iterator[Block]:
    if text.strip():
        yield Block("words", text.strip())


def measure_lines(lines: Sequence[str]) -> str:
    """Return the CSS variables with the number of letters in the longest line and the number of lines.

    >>> measure_lines(["ab", "abc"])
    '--letters: 3; --lines: 2'
    """
    longest = max(len(line) for line in lines)
    return f"--letters: {longest}; --lines: {len(lines)}"


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

    If the formulas are wide, the parts on both sides of \\qquad and \\quad get lines of their own.
    """
    widest, height = measure_formulas(formulas)
    parts = [part.strip() for formula in formulas for part in GAP.split(formula) if part.strip()]
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
    return max(width for width, _ in sizes), sum(height + 0.5 for _, height in sizes)


def measure_formula(tex: str) -> tuple[float, float]:
    """Return the approximate width and height of a displayed formula, in em.

    >>> measure_formula("a")
    (0.62, 1.2)
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
        n_letters = len((element.text or "").strip())
        space = 0.55 if tag == "mo" and (element.text or "") in "=+−-→⋅≈·∑⊙±×<>" else 0.0
        return LETTER * n_letters + space, 1.2
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


def _read_em(width: str) -> float:
    return float(width.removesuffix("em")) if width.endswith("em") else 0.3


# --- words --------------------------------------------------------------------------------------


def choose_words_size(text: str, area: int, smallest: int, largest: int) -> int:
    """Return the font size in pixels at which words fill an area of a slide.

    >>> choose_words_size("Why?", WORDS_AREA, 34, 60)
    60
    """
    plain = re.sub(r"<[^>]*>|[*`$_]|\\\w+", "", html.unescape(text))
    n_letters = len(plain) + 25 * plain.count("\n- ")  # an item of a list ends with a partly empty line
    size = math.sqrt(area / (1.35 * 0.62 * max(n_letters, 1)))
    return max(smallest, min(largest, int(size)))
