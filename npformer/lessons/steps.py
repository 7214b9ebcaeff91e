"""The steps of the worked example, and functions that print them as tables.

A **Step** is one line of the calculation: its name, its equation, its shape, and one recipe for each cell
(`recipes` explains what a recipe is). `equations` writes the steps without numbers; `worked_example` adds the
value, an array. `print(step)` shows the name, the shape, the equation and the numbers:

>>> from npformer.lessons import worked_example
>>> print(worked_example().named["x"])
x  (3, 4)
x = embedding + PE  [sec. 3.5]
dog    2.000  1.000 -1.000  2.000
bites -0.159  2.540  1.010  2.000
man    2.909 -1.416  1.020  1.000

Several small tables are printed next to each other in a **table row**, which is a list of `PlacedTable`.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.lessons.recipes import Recipe

GIVEN = "given"  # the equation of a step whose numbers are not calculated
PLACES = 3  # the number of decimals that are printed if the values are not rounded
TABLE_GAP = "   "  # the space between two matrices or tables on one line


class Step(NamedTuple):
    """One line of the calculation; `print(step)` shows it as a table."""

    section: str
    name: str
    equation: str
    source: (
        str  # where the equation is in the paper: "eq. 1", "sec. 3.5"; empty if the paper does not have it
    )
    axes: tuple[str, ...]  # the names of the dimensions: ("n_heads", "n", "n")
    shape: tuple[int, ...]  # the sizes of the dimensions: (2, 3, 3)
    titles: tuple[str, ...]  # the title of each matrix, if there are several: "head 1"
    rows: tuple[str, ...]  # the label of each row, if the rows have labels: "dog"
    columns: tuple[str, ...]  # the label of each column, if the columns have labels
    recipes: tuple[Recipe, ...]  # one recipe for each cell; empty for a given step
    decimals: int | None = None  # the number of decimals that the value was rounded to
    value: Any = None  # None before the calculation, then an array

    @property
    def size(self) -> int:
        """The number of cells."""
        return math.prod(self.shape)

    @property
    def matrices(self) -> Array:
        """The value as a stack of matrices (n_heads, rows, columns); a vector is a matrix of one row."""
        stack = np.atleast_2d(self.value)
        return stack.reshape(-1, *stack.shape[-2:])

    def __str__(self) -> str:
        return "\n".join(_table_lines(self, labelled=True))


class PlacedTable(NamedTuple):
    """A step in a row of tables. It has no row labels if the table on the left has the same labels."""

    step: Step
    labelled: bool


def arrange_tables(
    steps: Iterable[Step], width_of: Callable[[list[PlacedTable]], float], width: float
) -> Iterator[list[PlacedTable]]:
    """Yield the steps as rows of tables; each row has as many tables as fit into the width."""
    row: list[PlacedTable] = []
    for step in steps:
        needs_labels = not row or _row_layout(row[-1].step) != _row_layout(step)
        longer = [*row, PlacedTable(step, needs_labels)]
        if row and width_of(longer) > width:
            yield row
            longer = [PlacedTable(step, True)]
        row = longer
    yield row


def _row_layout(step: Step) -> tuple[Any, ...]:
    """Return the properties that must be equal in two neighbouring tables that share row labels."""
    has_column_labels = bool(step.columns)
    has_several_matrices = len(step.matrices) > 1
    return step.rows, has_column_labels, has_several_matrices


def text_width(row: list[PlacedTable]) -> int:
    """Return the width of a row of tables, in characters."""
    return max(len(line) for line in text_of(row))


def text_of(row: list[PlacedTable]) -> list[str]:
    """Return the lines of a row of tables."""
    tables = [_table_lines(placed.step, placed.labelled) for placed in row]
    widths = [_longest(table) for table in tables]
    lines = []
    for parts in itertools.zip_longest(*tables, fillvalue=""):
        padded = [part.ljust(width) for part, width in zip(parts, widths, strict=True)]
        lines.append(TABLE_GAP.join(padded).rstrip())
    return lines


def _longest(texts: Iterable[str]) -> int:
    return max(len(text) for text in texts)


def _table_lines(step: Step, labelled: bool) -> list[str]:
    """Return the lines of a table: name and shape, equation, column labels, and numbers with row labels."""
    source = f"  [{step.source}]" if step.source else ""
    heading = [f"{step.name}  {step.shape}", f"{step.equation}{source}"]
    header, body = _grid_lines(step)
    labels = row_words(step) if labelled else ()
    if not labels:
        return [*heading, *header, *body]
    margin = _longest(labels) + 1
    header = [" " * margin + line for line in header]
    body = [label.ljust(margin) + line for label, line in zip(labels, body, strict=True)]
    return [*heading, *header, *body]


def row_words(step: Step) -> tuple[str, ...]:
    """Return the label of each line of a table: "dog/man" if two sentences differ at this position.

    The sentences of a batch are printed next to each other, so one line shows a row of each sentence.
    """
    n = step.matrices.shape[1]
    sentences = [step.rows[i : i + n] for i in range(0, len(step.rows), n)]
    labels = []
    for words in zip(*sentences, strict=True):
        different_words = dict.fromkeys(words)
        labels.append("/".join(different_words))
    return tuple(labels)


def column_words(step: Step) -> list[tuple[str, ...]]:
    """Return the column labels of each matrix: the words of the sentence that the matrix belongs to."""
    n_matrices, _, n = step.matrices.shape
    n_sentences = len(step.columns) // n
    heads_per_sentence = n_matrices // n_sentences
    labels = []
    for i in range(n_matrices):
        first = i // heads_per_sentence * n
        labels.append(step.columns[first : first + n])
    return labels


def _grid_lines(step: Step) -> tuple[list[str], list[str]]:
    """Return the header lines and the lines of numbers. Matrices of a stack are next to each other."""
    texts = [[[format_number(step, value) for value in row] for row in matrix] for matrix in step.matrices]
    every_text = [*step.columns, *itertools.chain.from_iterable(itertools.chain.from_iterable(texts))]
    width = _longest(every_text)

    def join(parts: Iterable[Iterable[str]]) -> str:
        return TABLE_GAP.join(" ".join(text.rjust(width) for text in part) for part in parts)

    header = []
    if step.titles:
        matrix_width = len(join([texts[0][0]]))
        titles = [title.ljust(matrix_width) for title in step.titles]
        header.append(TABLE_GAP.join(titles).rstrip())
    if step.columns:
        header.append(join(column_words(step)))
    body = [join(rows) for rows in zip(*texts, strict=True)]
    return header, body


def format_number(step: Step, value: float) -> str:
    """Return a number as text: a given number in full, a calculated number with the step's decimals."""
    if step.equation == GIVEN:
        text = f"{value:g}"
    else:
        decimals = PLACES if step.decimals is None else step.decimals
        text = f"{value:z.{decimals}f}"
    return text.replace("inf", "∞")
