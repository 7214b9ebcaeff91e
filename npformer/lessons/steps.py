"""A step of the worked example, and how it is printed: its name, its equation and a table."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.lessons.recipes import Recipe

GIVEN = "given"  # the equation of a number that nobody has to calculate
PLACES = 3  # decimals shown of exact numbers


class Step(NamedTuple):
    """One line of the calculation; `print(step)` shows it as a table."""

    section: str
    name: str
    equation: str
    source: str  # where the paper has it: "eq. 1", "sec. 3.5"; empty where it has nothing
    axes: tuple[str, ...]  # the shape in letters: ("n_heads", "n", "n")
    shape: tuple[int, ...]  # what the letters come to: (2, 3, 3)
    titles: tuple[str, ...]  # a word for each matrix, where there are several: "head 1"
    rows: tuple[str, ...]  # a word for each row, where the rows are words
    columns: tuple[str, ...]
    recipes: tuple[Recipe, ...]  # how each cell comes about; none where it is given
    decimals: int | None = None  # what the value was rounded to
    value: Any = None  # an array, once it is calculated

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def matrices(self) -> Array:
        """The value as matrices (n_heads, rows, columns), one a head; a vector is one of a single row."""
        stacked = np.atleast_2d(self.value)
        return stacked.reshape(-1, *stacked.shape[-2:])

    def __str__(self) -> str:
        return "\n".join(_table(self, labelled=True))


class Placed(NamedTuple):
    """A step in a row of tables; the words of its rows are left out where the table before has the same."""

    step: Step
    labelled: bool


def side_by_side(
    steps: Iterable[Step], width_of: Callable[[list[Placed]], float], width: float
) -> Iterator[list[Placed]]:
    """Rows of tables, as many beside each other as the width allows."""
    row: list[Placed] = []
    for step in steps:
        longer = [*row, Placed(step, not row or _levels(row[-1].step) != _levels(step))]
        if row and width_of(longer) > width:
            yield row
            longer = [Placed(step, True)]
        row = longer
    yield row


def _levels(step: Step) -> tuple[Any, ...]:
    """What two tables must share for their rows to stand at one height and mean the same."""
    return step.rows, bool(step.columns), len(step.matrices) > 1


def text_width(row: list[Placed]) -> int:
    """How wide the tables are beside each other, in letters."""
    return max(map(len, text_of(row)))


def text_of(row: list[Placed]) -> list[str]:
    """The lines of tables beside each other."""
    tables = [_table(*placed) for placed in row]
    widths = [max(map(len, table)) for table in tables]
    return [
        "   ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in itertools.zip_longest(*tables, fillvalue="")
    ]


def _table(step: Step, labelled: bool) -> list[str]:
    """Name and shape, equation, and the numbers, with the words of their columns and rows."""
    over, body = _grid(step)
    labels = row_words(step) if labelled else ()
    margin = max((len(label) + 1 for label in labels), default=0)
    source = f"  [{step.source}]" if step.source else ""
    return [
        f"{step.name}  {step.shape}",
        f"{step.equation}{source}",
        *(" " * margin + line for line in over),
        *(label.ljust(margin) + line for label, line in zip(labels or [""] * len(body), body, strict=True)),
    ]


def row_words(step: Step) -> tuple[str, ...]:
    """A word for each row of the tables side by side: "dog/man" where the sentences of a batch differ."""
    n = step.matrices.shape[1]
    sentences = [step.rows[i : i + n] for i in range(0, len(step.rows), n)]
    return tuple("/".join(dict.fromkeys(words)) for words in zip(*sentences, strict=True))


def column_words(step: Step) -> list[tuple[str, ...]]:
    """The words over the columns of each matrix, those of its own sentence."""
    heads, _, n = step.matrices.shape
    of_a_sentence = heads * n // len(step.columns)
    return [step.columns[i // of_a_sentence * n :][:n] for i in range(heads)]


def _grid(step: Step) -> tuple[list[str], list[str]]:
    """What stands over the columns, and the rows of numbers; heads are side by side."""
    texts = [[[format_number(step, v) for v in row] for row in matrix] for matrix in step.matrices]
    width = max(map(len, itertools.chain(step.columns, *itertools.chain(*texts))))

    def line(parts: Iterable[Iterable[str]]) -> str:
        return "   ".join(" ".join(text.rjust(width) for text in part) for part in parts)

    body = [line(parts) for parts in zip(*texts, strict=True)]
    over = [line(column_words(step))] if step.columns else []
    if step.titles:
        span = len(line([texts[0][0]]))
        over.insert(0, "   ".join(title.ljust(span) for title in step.titles).rstrip())
    return over, body


def format_number(step: Step, value: float) -> str:
    """A number of the step as it is written: a given one as it is, a calculated one with its decimals."""
    places = PLACES if step.decimals is None else step.decimals
    text = f"{value:g}" if step.equation == GIVEN else f"{value:z.{places}f}"
    return text.replace("inf", "∞")
