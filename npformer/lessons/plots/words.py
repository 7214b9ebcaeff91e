"""Write alternative texts: descriptions of pictures for readers who cannot see the pictures.

Each function makes a text from the numbers in a picture. All lessons use them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from npformer.backend import Array

T = TypeVar("T")
FEW = 36  # an array with more numbers is described only by its size and range


def format_value(value: float, decimals: int = 2) -> str:
    """Return a number as text, with a real minus sign, without trailing zeros, and never as −0.

    >>> format_value(-0.5), format_value(3.0), format_value(-0.001), format_value(47117.2)
    ('−0.5', '3', '0', '47,117.2')
    """
    text = f"{value:z,.{decimals}f}"
    if decimals:
        text = text.rstrip("0").rstrip(".")
    return text.replace("-", "−")


SMALL = 0.1  # a number that is closer to 0 has two significant digits, at least
SMALLEST = 1e-4  # a number that is closer to 0 has a power of ten


def format_small(value: float, decimals: int = 2) -> str:
    """Return a number as text with at least two significant digits, so that only 0 is written as 0.

    >>> format_small(0.004), format_small(-0.0186), format_small(3.0), format_small(2.5e-7), format_small(0)
    ('0.004', '−0.019', '3', '2.5e−07', '0')
    """
    size = abs(value)
    if 0 < size < SMALLEST:
        return f"{value:.1e}".replace("-", "−")
    if SMALLEST <= size < SMALL:
        decimals = max(decimals, 1 - math.floor(math.log10(size)))
    return format_value(value, decimals)


def range_in_words(values: Array) -> str:
    """Return the smallest and the largest number as text.

    >>> range_in_words(np.array([2.0, -1.0]))
    'numbers from −1 to 2'
    """
    return f"numbers from {format_value(np.min(values))} to {format_value(np.max(values))}"


def table_in_words(values: Array, decimals: int = 2, rows: Sequence[Any] | None = None) -> str:
    """Return every number of a small table, row by row, or the size and the range of a large table.

    >>> table_in_words(np.eye(2), rows=["dog", "man"])
    'row dog: 1, 0; row man: 0, 1'
    >>> table_in_words(np.ones((9, 9)))
    '9 rows, 9 columns, numbers from 1 to 1'
    """
    if np.size(values) > FEW:
        n_rows, n_columns = np.shape(values)
        shape = f"{_count(n_rows, 'row')}, {_count(n_columns, 'column')}"
        return f"{shape}, {range_in_words(values)}"
    row_names = range(len(values)) if rows is None else rows
    texts = []
    for name, row in zip(row_names, values, strict=True):
        numbers = ", ".join(format_value(value, decimals) for value in row)
        texts.append(f"row {name}: {numbers}")
    return "; ".join(texts)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def large_table_in_words(values: Array) -> str:
    """Describe a table that is drawn as colours.

    The text also says how much neighbouring rows differ in the left quarter and in the right quarter of the
    table.

    >>> large_table_in_words(np.array([[0.0, 0.0], [1.0, 0.0]]))[26:]
    'from one row to the next a number changes by 1 on average in the left quarter and by 0 in the right one'
    >>> large_table_in_words(np.array([[1.0, 2.0]]))
    'row 0: 1, 2'
    """
    if len(values) < 2:
        return table_in_words(values)
    change = np.abs(np.diff(values, axis=0))
    quarter = math.ceil(np.shape(values)[1] / 4)  # the number of columns in a quarter of the table
    left = format_value(change[:, :quarter].mean())
    right = format_value(change[:, -quarter:].mean())
    side = f"changes by {left} on average in the left quarter and by {right} in the right one"
    return f"{table_in_words(values)}; from one row to the next a number {side}"


STRONGEST = 4  # the number of rows whose largest weight is in the alternative text
LEAST = 0.05  # smaller weights in large tables have a colour, but no number


def weights_in_words(weights: Array, tokens: Sequence[str], asked: str = "") -> str:
    """Return the size of a table of attention weights, and the largest weight of a few rows.

    If there are fewer rows than tokens, the rows belong to the last tokens. For the token `asked`, the text
    has all weights that are not too small.

    >>> weights_in_words(np.array([[0.75, 0.25], [0.5, 0.5]]), ["hot", "dog"])
    '2 tokens look at 2; hot at hot 0.75, dog at hot 0.5'
    >>> weights_in_words(np.array([[0.75, 0.25], [0.5, 0.5]]), ["hot", "dog"], asked="dog")
    '2 tokens look at 2; hot at hot 0.75, dog at hot 0.5. The row of dog: hot 0.5, dog 0.5'
    """
    queries = tokens[len(tokens) - len(weights) :]
    best_key = np.argmax(weights, axis=1)
    largest = np.max(weights, axis=1)
    strongest_rows = np.argsort(-largest, kind="stable")[:STRONGEST]
    texts = [
        f"{queries[row]} at {tokens[best_key[row]]} {format_value(largest[row])}"
        for row in sorted(strongest_rows)
    ]
    text = f"{len(queries)} tokens look at {len(tokens)}; {', '.join(texts)}"
    if not asked:
        return text
    row = zip(tokens, weights[list(queries).index(asked)], strict=True)
    parts = [f"{token} {format_value(weight)}" for token, weight in row if weight >= LEAST]
    return f"{text}. The row of {asked}: {', '.join(parts)}"


def line_in_words(name: str, x: Array, y: Array) -> str:
    """Return the first, last, lowest and highest point of a line. Small numbers have more decimals.

    >>> line_in_words("sines", np.arange(3), np.array([0.0, 2.0, 1.0]))
    'sines from 0 at 0 to 1 at 2, lowest 0 at 0, highest 2 at 1'
    >>> line_in_words("rate", np.arange(2), np.array([0.0125, 0.025]))
    'rate from 0.0125 at 0 to 0.025 at 1, lowest 0.0125 at 0, highest 0.025 at 1'
    >>> line_in_words("time", np.arange(2), np.array([0.004, 10.0]))
    'time from 0.004 at 0 to 10 at 1, lowest 0.004 at 0, highest 10 at 1'
    """
    low, high = int(np.nanargmin(y)), int(np.nanargmax(y))
    largest = max(abs(float(y[low])), abs(float(y[high])))
    is_small = 0 < largest < 0.1
    decimals = 2 - math.floor(math.log10(largest)) if is_small else 2

    def point(i: int) -> str:
        return f"{format_small(float(y[i]), decimals)} at {format_value(float(x[i]))}"

    first, last, lowest, highest = point(0), point(-1), point(low), point(high)
    return f"{name} from {first} to {last}, lowest {lowest}, highest {highest}"


def sentence(title: str, *parts: str) -> str:
    """Join a title and the texts under the title into one line. The title may be empty.

    >>> sentence("step", "4 rows", "1 column"), sentence("", "4 rows")
    ('step: 4 rows; 1 column', '4 rows')
    """
    texts = [title, "; ".join(parts)]
    return ": ".join(text for text in texts if text).replace("\n", " ")


def lines_in_words(x: Array, lines: Mapping[str, Array]) -> str:
    """Return the texts of all lines of a panel.

    >>> lines_in_words(np.arange(2), {"x": np.arange(2)})
    'x from 0 at 0 to 1 at 1, lowest 0 at 0, highest 1 at 1'
    """
    return "; ".join(line_in_words(name, np.asarray(x), np.asarray(y)) for name, y in lines.items())


def panels_in_words(panels: Mapping[str, T], describe_panel: Callable[[T], str]) -> str:
    """Return the title of each panel and its text, which `describe_panel` writes.

    >>> panels_in_words({"A": np.ones(1), "B": np.arange(2)}, range_in_words)
    'A: numbers from 1 to 1. B: numbers from 0 to 1'
    """
    return ". ".join(sentence(title, describe_panel(content)) for title, content in panels.items())
