"""The result of a gradient check, as a table with the failing rows first."""

import math
from collections.abc import Sequence
from typing import NamedTuple

COLUMNS = ("leaf", "worst", "analytic", "numeric", "error", "verdict", "note")
COLUMNS_OF_PRECISION = ("leaf", "worst", "analytic", "numeric", "systematic", "verdict", "note")
ALIGNMENTS = "<<>>><<"  # aligns columns with words to the left, and columns with numbers to the right
VERDICTS = {  # each verdict, from the worst to the best, with its text in the summary
    "fail": "failed",
    "unsure": "cannot be judged",
    "kink": "at a kink",
    "pass": "passed",
}


class Note(str):
    """The text of a note. The attribute `headline` is the first part, which the summary shows."""

    headline: str | None = None


def make_note(parts: Sequence[str]) -> Note:
    """Join the parts of a note."""
    note = Note("; ".join(parts))
    if parts:
        note.headline = parts[0]
    return note


def _get_headline(note: str) -> str:
    """Return the headline of a note.

    A note that is a plain string has no headline, so it is returned as a whole.
    """
    if isinstance(note, Note) and note.headline is not None:
        return note.headline
    return note


class GradientRow(NamedTuple):
    """The row of one leaf of the arguments: the worst entry, and the verdict on the whole leaf.

    Attributes
    ----------
    path : str
        The name of the leaf, such as ``params.W_1``. For faults of a function: ``forward`` or ``backward``.
    index : tuple of int
        The index of the worst entry; ``()`` for a leaf that was compared along random directions.
    analytic : float
        The gradient of the worst entry, as the backward pass returned it.
    numeric : float
        The derivative at the worst entry, as finite differences estimate it.
    error : float
        The absolute difference between analytic and numeric, relative to the largest gradient of the leaf.
        For leaves with small gradients, the error is relative to a larger number: see `gradcheck`.
    verdict : str
        "pass", "fail", "kink" or "unsure".
    note : str
        How the gradient differs from the correct gradient, or why the entry cannot be judged. Empty if the
        row passes, except for gradients in low precision whose errors scatter widely or are biased.
    systematic : float
        For gradients in low precision: the systematic error of the worst entry, in units of rounding and
        scatter. Otherwise NaN.
    """

    path: str
    index: tuple[int, ...]  # type: ignore[assignment]  # hides tuple.index
    analytic: float
    numeric: float
    error: float
    verdict: str
    note: str
    systematic: float = math.nan


class Precision(NamedTuple):
    """How gradients in low precision were checked.

    Attributes
    ----------
    dtype : str
        The dtype with the largest unit roundoff among the arguments, such as "bfloat16".
    unit : float
        The unit roundoff of this dtype: the largest relative error of one rounding.
    points : int
        The number of points at which the gradients were compared.
    hidden : float
        A mistake below this share of an entry cannot be distinguished from rounding. This is the median over
        all entries, and NaN if no entry could be compared.
    calls : int
        The number of calls of forward. Backward was called as often.
    reference_calls : int
        The number of calls of the reference.
    """

    dtype: str
    unit: float
    points: int
    hidden: float
    calls: int
    reference_calls: int


class GradientReport(NamedTuple):
    """The result of `gradcheck`: one row for each leaf.

    A report is true if every row passes. It prints as a table, and a notebook shows it as an HTML table.
    Failing rows come first.

    Attributes
    ----------
    rows : tuple of GradientRow
        The rows of the leaves, then a row for each fault of ``forward`` or ``backward``.
    tolerance : float
        The accepted relative error. If leaves have different tolerances, this is the largest.
    sampled : str
        With ``directions=k``: a text about the errors that random directions may miss. Empty if every entry
        was compared.
    precision : Precision, optional
        For gradients in low precision: how they were checked. Then the tolerance is the largest accepted
        systematic error.
    """

    rows: tuple[GradientRow, ...]
    tolerance: float
    sampled: str = ""
    precision: Precision | None = None

    def __bool__(self) -> bool:
        return all(row.verdict == "pass" for row in self.rows)

    def __str__(self) -> str:
        table = [self._columns]
        for row in _sort_worst_first(self.rows):
            table.append(_format_cells(row, self.precision))
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        formats = [f"{alignment}{width}" for alignment, width in zip(ALIGNMENTS, widths, strict=True)]
        lines = [_summarize(self)]
        for cells in table:
            lines.append("  ".join(map(format, cells, formats)).rstrip())
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    @property
    def _columns(self) -> tuple[str, ...]:
        return COLUMNS_OF_PRECISION if self.precision else COLUMNS

    def _repr_html_(self) -> str:
        import html  # imported here because the module is large and rarely needed

        def format_line(tag: str, cells: tuple[str, ...]) -> str:
            elements = [f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells]
            return f"<tr>{''.join(elements)}</tr>"

        lines = [format_line("th", self._columns)]
        for row in _sort_worst_first(self.rows):
            lines.append(format_line("td", _format_cells(row, self.precision)))
        return f"<table><caption>{html.escape(_summarize(self))}</caption>{''.join(lines)}</table>"


def _sort_worst_first(rows: tuple[GradientRow, ...]) -> list[GradientRow]:
    """Sort the rows from the worst verdict to the best. Rows with the same verdict keep their order."""
    worst_first = list(VERDICTS)
    return sorted(rows, key=lambda row: worst_first.index(row.verdict))


def _summarize(report: GradientReport) -> str:
    """Return the lines above the table. The first one counts the verdicts and names the worst leaf.

    pytest shows this line in its summary.
    """
    rows = _sort_worst_first(report.rows)
    failures = [row for row in rows if row.verdict != "pass"]
    if failures:
        summary = f"{_count_verdicts(failures, len(rows))}; {_describe_worst(failures)}"
    else:
        summary = f"all {len(rows)} passed"
    if report.precision:
        lines = _summarize_precision(report.precision, report, summary)
    else:
        lines = [f"gradient check: {summary} (tolerance {report.tolerance:g})"]
    if report.sampled:
        lines.append(report.sampled)
    return "\n".join(lines)


def _summarize_precision(precision: Precision, report: GradientReport, summary: str) -> list[str]:
    """Return the two lines above a table in low precision. Numbers that are not known are left out."""
    first = f"gradient check in {precision.dtype}: {summary}"
    known = [row.systematic for row in report.rows if not math.isnan(row.systematic)]
    if known:
        first += f"; the largest systematic error is {max(known):.2g} rounding units"
        first += f" (at most {report.tolerance:g} passes)"
    second = (
        f"{precision.points} points, {precision.calls} calls of forward and of backward, "
        f"{precision.reference_calls} calls of the reference"
    )
    if not math.isnan(precision.hidden):
        share = f"{100 * precision.hidden:.2g} %"
        second += f"; a mistake below {share} of an entry cannot be told from rounding"
    return [first, second]


def _count_verdicts(rows: Sequence[GradientRow], total: int) -> str:
    """Count the rows with each verdict, as in "1 of 3 failed, 1 of 3 at a kink"."""
    verdicts = [row.verdict for row in rows]
    counts = []
    for verdict, text in VERDICTS.items():
        if verdict in verdicts:
            counts.append(f"{verdicts.count(verdict)} of {total} {text}")
    return ", ".join(counts)


def _describe_worst(rows: Sequence[GradientRow]) -> str:
    """Name the leaf with the worst verdict and the largest error, and add the headline of its note."""
    worst_verdict = rows[0].verdict
    worst = max((row for row in rows if row.verdict == worst_verdict), key=lambda row: row.error)
    if worst.note:
        return f"worst {worst.path}: {_get_headline(worst.note)}"
    return f"worst {worst.path}"


def _format_cells(row: GradientRow, precision: Precision | None = None) -> tuple[str, ...]:
    """Return the cells of one row of the table."""
    numbers = (f"{row.analytic:.9g}", f"{row.numeric:.9g}", f"{row.error:.1e}")
    if precision:
        numbers = (f"{row.analytic:.4g}", f"{row.numeric:.6g}", f"{row.systematic:.2g}")
    return (row.path, format_index(row.index), *numbers, row.verdict, row.note)


def format_index(index: tuple[int, ...]) -> str:
    """Format the index of an entry in brackets. An empty index becomes a dash."""
    if not index:
        return "-"
    return f"[{', '.join(map(str, index))}]"
