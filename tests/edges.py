"""Make a test from a table of edge cases of an operation.

    test_edges = edges("relu",
        # description        z        y        dy       dz
        ("at zero",          [0.0],   [0.0],   [3.0],   [0.0]))

The result must equal the table exactly, in float64 and in float32. A row with only two arrays does not
check the gradient. An array may be given as a function of `np.finfo(dtype)`.
"""

import numpy as np
import pytest

import npformer as npf


def edges(operation, *rows, **options):
    """Return a test that the operation with these options gives exactly the values of each row."""
    descriptions = [row[0] for row in rows]

    @pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
    @pytest.mark.parametrize("row", rows, ids=descriptions)
    def test(row, dtype):
        description, *values = row
        x, y, *gradients = [array_of(value, dtype) for value in values]
        found, cache = getattr(npf, f"{operation}_forward")(x, **options)
        np.testing.assert_array_equal(found, y, description, strict=True)
        if gradients:
            dy, expected = gradients
            dx = getattr(npf, f"{operation}_backward")(dy, cache)
            np.testing.assert_array_equal(dx, expected, description, strict=True)

    return test


def array_of(value, dtype):
    """Return the array of a table entry, which is a list or a function of the limits of the dtype."""
    if callable(value):
        value = value(np.finfo(dtype))
    return np.array(value, dtype)
