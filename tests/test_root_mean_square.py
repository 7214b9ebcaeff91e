"""The helper that avoids underflow computes the same number as the equation of LayerNorm and RMSNorm."""

import numpy as np
import pytest
from valid_calls import array

from npformer.layer_norm import root_mean_square_without_underflow


@pytest.mark.parametrize("eps", [0.0, 1e-5, 2.0])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-15), (np.float32, 5e-7)], ids=["f64", "f32"]
)
def test_root_mean_square_without_underflow_equals_equation(dtype, tolerance, eps):
    x = array(5, 64, dtype=dtype) * dtype(3)
    expected = np.sqrt((x * x).mean(axis=-1, keepdims=True) + dtype(eps))
    found = root_mean_square_without_underflow(x, eps)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=tolerance)
