"""Functions that write the files of a class and read what the grader has written."""

import csv
import io
from functools import partial

from npformer.grader.submissions import Submission


def write_text(path, text):
    """Write a file and return its path."""
    path.write_text(text, encoding="utf-8")
    return path


def read_table(path):
    """Return the rows of a CSV file as dicts."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def make_submission(name, data=b""):
    """Return a submission that needs no file: its bytes are `data`."""
    return Submission(name, partial(io.BytesIO, data), name)


def format_options(**options):
    """Return the arguments as options of a command: csv=path becomes "--csv=path"."""
    return [f"--{name}={value}" for name, value in options.items()]
