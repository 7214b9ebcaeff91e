"""Read and write the tables of other programs: CSV files in the encodings of Excel and of an LMS."""

import codecs
import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

DELIMITERS = ",;\t"
BYTE_ORDER_MARKS = {  # for each encoding: the bytes at the beginning of a file
    "utf-8": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
}


class Table(NamedTuple):
    """A CSV file: its column names, its rows, and how it was written.

    A row has at least as many cells as the header.
    """

    header: list[str]
    rows: list[list[str]]
    delimiter: str = ","
    encoding: str = "utf-8"
    byte_order_mark: bytes = b""
    newline: str = "\n"


def read_table(path: Path) -> Table:
    """Read a CSV file. The delimiter is a comma, a semicolon or a tab.

    A cell in quotation marks may contain delimiters and newlines. Empty rows are left out. The table of an
    empty file has no columns.

    Raises
    ------
    ValueError
        If Python's `csv` module cannot read the file, or if its bytes do not fit its byte order mark.
    """
    delimiter = ","
    lines: list[list[str]] = [[]]
    try:
        encoding, byte_order_mark, text = _decode(path.read_bytes())
        for candidate in DELIMITERS:
            candidate_lines = _parse(text, candidate)
            has_more_columns = len(candidate_lines[0]) > len(lines[0])
            if has_more_columns:
                delimiter = candidate
                lines = candidate_lines
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name}: expected a CSV table; {error}") from None
    header, *rows = lines
    rows = [row + [""] * (len(header) - len(row)) for row in rows]
    newline = "\r\n" if "\r\n" in text else "\n"
    return Table(header, rows, delimiter, encoding, byte_order_mark, newline)


def _decode(data: bytes) -> tuple[str, bytes, str]:
    """Return the encoding of a file, its byte order mark and its text.

    Without a mark the encoding is UTF-8, or Windows-1252 or Latin-1 if the bytes are not valid UTF-8.
    """
    for encoding, mark in BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            return encoding, mark, data.removeprefix(mark).decode(encoding)
    for encoding in ("utf-8", "cp1252"):
        try:
            return encoding, b"", data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return "latin-1", b"", data.decode("latin-1")


def _parse(text: str, delimiter: str) -> list[list[str]]:
    """Return the lines of a CSV text without empty lines and without Excel's line `sep=;`.

    A text without lines gives one line without cells.
    """
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    return [line for line in lines if any(cell.strip() for cell in line) and line[0][:4] != "sep="] or [[]]


def encode_table(table: Table) -> bytes:
    """Return the bytes of a CSV file with the table's delimiter, encoding and byte order mark."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter=table.delimiter, lineterminator=table.newline)
    writer.writerow(table.header)
    writer.writerows(table.rows)
    return table.byte_order_mark + file.getvalue().encode(table.encoding)


def find_column(header: Sequence[str], name: str) -> int | None:
    """Return the index of the column with this name, or None. Names are compared after normalization."""
    names = [normalize_column_name(column) for column in header]
    wanted = normalize_column_name(name)
    return names.index(wanted) if wanted in names else None


def normalize_column_name(name: str) -> str:
    """Return a column name in lowercase, with single spaces instead of underscores and newlines.

    A curved apostrophe, as in French, becomes a straight one.

    >>> normalize_column_name("github_username ")
    'github username'
    """
    return " ".join(name.replace("_", " ").replace("’", "'").casefold().split())
