"""Measure npformer's errors on hard inputs again, and compare the guide page with the stored measurements."""

import json

import numpy as np
import pytest
from golden_files import HERE
from hard_inputs import error, make_cases, npformer_errors, table_of, table_on_page, to_exact

ROWS = json.loads((HERE / "hard_inputs.json").read_text(encoding="utf-8"))
CASES = make_cases()
PAIRS = list(zip(CASES, ROWS, strict=True))


def test_page_has_the_stored_errors():
    assert table_on_page() == table_of(ROWS)


def test_stored_rows_are_the_cases():
    assert [(row["operation"], row["input"], row["dtype"]) for row in ROWS] == [case[:3] for case in CASES]


@pytest.mark.parametrize(("case", "row"), PAIRS, ids=[" ".join(c[:3]) for c in CASES])
def test_npformer_errors_are_as_stored(case, row):
    """Processors round exp and sums differently, so errors may be five times as large as the stored ones."""
    smallest = 5e-16 if case.dtype == "float64" else 3e-7
    for found, stored in zip(npformer_errors(case), row["npformer"], strict=True):
        assert found <= max(5 * stored, smallest)


def test_error_is_relative_to_largest_or_each_entry():
    exact = to_exact(np.array([1.0, 4.0]))
    assert error(np.array([1.5, 4.0]), exact, each=False) == 0.125
    assert error(np.array([1.5, 4.0]), exact, each=True) == 0.5
    assert error(np.array([np.nan, 4.0]), exact, each=True) == np.inf
