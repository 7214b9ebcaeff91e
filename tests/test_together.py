"""A test of many cases fails where one does, and names it."""

import numpy as np
import pytest
from together import failures, together


@pytest.fixture
def rng():
    return np.random.default_rng(0)


drawn = []


@together(("a", "b"), [(1, 1), (2, 3), (4, 4), (5, 6)])
@together("c", "xy")
def equal(a, b, c, rng):
    drawn.append(rng.random())
    assert a == b, f"{c} is told too"


def test_every_case_that_fails_is_told(rng):
    with pytest.raises(AssertionError) as caught:
        equal(rng=rng)
    said = str(caught.value)
    assert all(f"\n{told}: " in said for told in ("2, 3", "5, 6", "x", "y"))
    assert "1, 1" not in said and said.count("is told too") == 4
    assert len(drawn) == 8 and len(set(drawn)) == 1, "each case begins with the same generator"


def test_what_fails_by_an_error_is_told_with_its_line():
    wrong = failures(lambda x: 1 / x, [(0,), (1,)])
    assert list(wrong) == ["0"] and wrong["0"].startswith("ZeroDivisionError in line ")
