"""What an operation does at its edges, as a table, exactly so in float64 and in float32.

    test_edges = edges("relu",
        # what               z        y        dy       dz
        ("at zero",          [0.0],   [0.0],   [3.0],   [0.0]))

A row of two arrays says nothing of the gradient; an array may be made from the dtype's finfo.
"""

import numpy as np
from together import together

import npformer as npf


def edges(operation, *rows, **options):
    """A test: every row holds, to the last bit."""

    @together("dtype", [np.float64, np.float32])
    @together("row", rows)
    def test(row, dtype):
        what, *arrays = row
        arrays = [np.array(a(np.finfo(dtype)) if callable(a) else a, dtype) for a in arrays]
        x, y, *gradient = arrays
        found, cache = getattr(npf, f"{operation}_forward")(x, **options)
        np.testing.assert_array_equal(found, y, what, strict=True)
        if gradient:
            dx = getattr(npf, f"{operation}_backward")(gradient[0], cache)
            np.testing.assert_array_equal(dx, gradient[1], what, strict=True)

    return test
