"""What a gradient check found, as a table: failing rows first."""

from collections.abc import Sequence
from typing import NamedTuple

HEAD = ("leaf", "worst", "analytic", "numeric", "error", "verdict", "note")
VERDICTS = {
    "fail": "failed",
    "unsure": "cannot be judged",
    "kink": "at a kink",
    "pass": "passed",
}  # worst first


class Note(str):
    """The text of a note, which remembers its first part for the summary of the report."""

    headline: str | None = None


def make_note(parts: Sequence[str]) -> Note:
    """Join the parts of a note."""
    note = Note("; ".join(parts))
    if parts:
        note.headline = parts[0]
    return note


def _get_headline(note: str) -> str:
    """Return the first part of a note, or the whole note if its parts are unknown."""
    if isinstance(note, Note) and note.headline is not None:
        return note.headline
    return note


class GradientRow(NamedTuple):
    """One leaf of the arguments: its worst entry and the verdict on all of them."""

    path: str  # the leaf, such as params.W_1
    index: tuple[int, ...]  # type: ignore[assignment]  # its worst entry; shadows tuple.index
    analytic: float  # what the backward pass says there
    numeric: float  # what the differences say there
    error: float  # |analytic - numeric|, relative to the size of the leaf's gradient
    verdict: str  # "pass", "fail", "kink" or "unsure"
    note: str  # what it looks like beside the right one, or why it cannot be judged; "" of a row that passes


class GradientReport(NamedTuple):
    """A row for each leaf; true when every row passes, a table when printed or shown in a notebook."""

    rows: tuple[GradientRow, ...]
    tolerance: float
    sampled: str = ""  # what was looked at, and what may have slipped through, where not every entry was

    def __bool__(self) -> bool:
        return all(row.verdict == "pass" for row in self.rows)

    def __str__(self) -> str:
        table = [HEAD, *map(_cells, _worst_first(self.rows))]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        sides = "<<>>><<"  # words to the left, numbers to the right
        forms = [f"{side}{width}" for side, width in zip(sides, widths, strict=True)]
        return "\n".join([_summary(self), *("  ".join(map(format, row, forms)).rstrip() for row in table)])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        import html  # with its table of entities, which few need

        def line(kind: str, cells: tuple[str, ...]) -> str:
            return "<tr>" + "".join(f"<{kind}>{html.escape(cell)}</{kind}>" for cell in cells) + "</tr>"

        lines = [line("th", HEAD), *(line("td", _cells(row)) for row in _worst_first(self.rows))]
        return f"<table><caption>{html.escape(_summary(self))}</caption>{''.join(lines)}</table>"


def _worst_first(rows: tuple[GradientRow, ...]) -> list[GradientRow]:
    return sorted(rows, key=lambda row: [*VERDICTS].index(row.verdict))


def _summary(report: GradientReport) -> str:
    """Count the verdicts and name the worst leaf, because pytest shows only this of a long table."""
    rows, n = _worst_first(report.rows), len(report.rows)
    verdicts = [row.verdict for row in rows]
    counts = [f"{verdicts.count(v)} of {n} {VERDICTS[v]}" for v in dict.fromkeys(verdicts) if v != "pass"]
    said = f"gradient check: {', '.join(counts) or f'all {n} passed'}"
    if counts:
        worst = max((row for row in rows if row.verdict == verdicts[0]), key=lambda row: row.error)
        said += f"; worst {worst.path}"
        if worst.note:
            said += f": {_get_headline(worst.note)}"
    return f"{said} (tolerance {report.tolerance:g})" + f"\n{report.sampled}" * bool(report.sampled)


def _cells(row: GradientRow) -> tuple[str, ...]:
    numbers = (f"{row.analytic:.9g}", f"{row.numeric:.9g}", f"{row.error:.1e}")
    return (row.path, show(row.index), *numbers, row.verdict, row.note)


def show(index: tuple[int, ...]) -> str:
    """An entry's place in brackets; a dash for what has none."""
    return f"[{', '.join(map(str, index))}]" if index else "-"
