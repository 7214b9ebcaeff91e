"""What is in a picture, in words made from its numbers: for those who cannot see it. In every lesson."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from npformer.backend import Array

T = TypeVar("T")
FEW = 36  # numbers of one array that are read out one by one


def said(value: float, decimals: int = 2) -> str:
    """A number as it is read aloud: at most so many decimals, a minus that is no hyphen, none before a zero.

    >>> said(-0.5), said(3.0), said(-0.001), said(47117.2)
    ('−0.5', '3', '0', '47,117.2')
    """
    text = f"{value:z,.{decimals}f}"
    return (text.rstrip("0").rstrip(".") if decimals else text).replace("-", "−")


def range_in_words(values: Array) -> str:
    """From the smallest number to the largest.

    >>> range_in_words(np.array([2.0, -1.0]))
    'numbers from −1 to 2'
    """
    return f"numbers from {said(np.min(values))} to {said(np.max(values))}"


def table_in_words(values: Array, decimals: int = 2, rows: Sequence[Any] | None = None) -> str:
    """Every number of a small table, row by row; of a large one how large it is and how far its numbers go.

    >>> table_in_words(np.eye(2), rows=["dog", "man"])
    'row dog: 1, 0; row man: 0, 1'
    >>> table_in_words(np.ones((9, 9)))
    '9 rows, 9 columns, numbers from 1 to 1'
    """
    if np.size(values) > FEW:
        n_rows, columns = np.shape(values)
        shape = f"{n_rows} row{'s' * (n_rows != 1)}, {columns} column{'s' * (columns != 1)}"
        return f"{shape}, {range_in_words(values)}"
    names = range(len(values)) if rows is None else rows
    read = (", ".join(said(value, decimals) for value in row) for row in values)
    return "; ".join(f"row {name}: {numbers}" for name, numbers in zip(names, read, strict=True))


def large_table_in_words(values: Array) -> str:
    """A table as colours: what `table_in_words` says, and which side of it is busy, the left or the right.

    >>> large_table_in_words(np.array([[0.0, 0.0], [1.0, 0.0]]))[26:]
    'from one row to the next a number changes by 1 on average in the left quarter and by 0 in the right one'
    >>> large_table_in_words(np.array([[1.0, 2.0]]))
    'row 0: 1, 2'
    """
    if len(values) < 2:
        return table_in_words(values)
    change = np.abs(np.diff(values, axis=0))
    quarter = -(-np.shape(values)[1] // 4)  # rounded up
    left, right = said(change[:, :quarter].mean()), said(change[:, -quarter:].mean())
    side = f"changes by {left} on average in the left quarter and by {right} in the right one"
    return f"{table_in_words(values)}; from one row to the next a number {side}"


STRONGEST = 4  # weights of a table that are told in words


def weights_in_words(weights: Array, tokens: Sequence[str]) -> str:
    """How large a table of weights is, and who looks most at whom: the largest weight of a few rows.

    Fewer rows than tokens are those of the last tokens.

    >>> weights_in_words(np.array([[0.75, 0.25], [0.5, 0.5]]), ["hot", "dog"])
    '2 tokens look at 2; hot at hot 0.75, dog at hot 0.5'
    """
    best, looking = np.argmax(weights, axis=1), tokens[len(tokens) - len(weights) :]
    rows = sorted(range(len(looking)), key=lambda row: -weights[row, best[row]])[:STRONGEST]
    told = (f"{looking[row]} at {tokens[best[row]]} {said(weights[row, best[row]])}" for row in sorted(rows))
    return f"{len(looking)} tokens look at {len(tokens)}; {', '.join(told)}"


def line_in_words(name: str, x: Array, y: Array) -> str:
    """Where a line begins and ends, and where it is lowest and highest; small numbers have more decimals.

    >>> line_in_words("sines", np.arange(3), np.array([0.0, 2.0, 1.0]))
    'sines from 0 at 0 to 1 at 2, lowest 0 at 0, highest 2 at 1'
    >>> line_in_words("rate", np.arange(2), np.array([0.0125, 0.025]))
    'rate from 0.0125 at 0 to 0.025 at 1, lowest 0.0125 at 0, highest 0.025 at 1'
    """
    low, high = int(np.nanargmin(y)), int(np.nanargmax(y))
    largest = max(abs(float(y[low])), abs(float(y[high])))
    decimals = 2 if largest >= 0.1 or largest == 0 else 2 - math.floor(math.log10(largest))
    ends = (f"{said(float(y[i]), decimals)} at {said(float(x[i]))}" for i in (0, -1, low, high))
    first, last, lowest, highest = ends
    return f"{name} from {first} to {last}, lowest {lowest}, highest {highest}"


def sentence(title: str, *parts: str) -> str:
    """A title and what is said under it, in one line; the title may be missing.

    >>> sentence("step", "4 rows", "1 column"), sentence("", "4 rows")
    ('step: 4 rows; 1 column', '4 rows')
    """
    return ": ".join(text for text in (title, "; ".join(parts)) if text).replace("\n", " ")


def lines_in_words(x: Array, lines: Mapping[str, Array]) -> str:
    """Each line of a panel.

    >>> lines_in_words(np.arange(2), {"x": np.arange(2)})
    'x from 0 at 0 to 1 at 1, lowest 0 at 0, highest 1 at 1'
    """
    return "; ".join(line_in_words(name, np.asarray(x), np.asarray(y)) for name, y in lines.items())


def each_in_words(panels: Mapping[str, T], read: Callable[[T], str]) -> str:
    """What each panel shows, which `read` says, under its title.

    >>> each_in_words({"A": np.ones(1), "B": np.arange(2)}, range_in_words)
    'A: numbers from 1 to 1. B: numbers from 0 to 1'
    """
    return ". ".join(sentence(title, read(shown)) for title, shown in panels.items())
