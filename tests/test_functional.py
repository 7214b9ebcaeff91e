"""The smallest operations, linear, ReLU, GELU, softmax and dropout: what is promised, and at their edges."""

import mpmath
import numpy as np
import pytest
from golden import agrees_with_pytorch
from gradients import every, gradients_hold
from together import together
from valid_calls import array

import npformer as npf
from npformer.normal import BLOCK, normal_cdf, plain_normal_cdf

DTYPES = together("dtype", [np.float64, np.float32])
EPSILON = {np.float64: 2.0**-52, np.float32: 2.0**-23}


class TestLinear:
    # the equation

    def test_every_row_is_a_sum_of_products(self):
        x, W, b = array(2, 3, 4), array(4, 5, seed=1), array(5, seed=2)
        y, _ = npf.linear_forward(x, W, b)
        for i, t, o in np.ndindex(2, 3, 5):
            assert y[i, t, o] == pytest.approx(sum(x[i, t, j] * W[j, o] for j in range(4)) + b[o], abs=1e-14)
        np.testing.assert_array_equal(npf.linear_forward(x, W)[0], npf.linear_forward(x, W, np.zeros(5))[0])

    # the gradient

    test_gradients = staticmethod(gradients_hold("linear", {}, {"lead": ()}))

    # the golden value

    test_golden_values = staticmethod(agrees_with_pytorch("linear"))


class TestReLU:
    # the equation and the gradient

    def test_what_is_below_zero_is_zero_and_has_no_slope(self):
        y, cache = npf.relu_forward(np.array([-1.0, 2.0]))
        assert y.tolist() == [0, 2] and npf.relu_backward(np.array([-3.0, -3.0]), cache).tolist() == [0, -3]

    # the golden value, GELU's too

    test_golden_values = staticmethod(agrees_with_pytorch("relu", "gelu"))

    # the edges

    @DTYPES
    def test_around_zero(self, dtype):
        smallest = np.finfo(dtype).smallest_subnormal
        y, cache = npf.relu_forward(np.array([-1.0, -smallest, -0.0, 0.0, smallest, np.nan], dtype))
        np.testing.assert_array_equal(y, np.array([0, 0, 0, 0, smallest, np.nan], dtype))
        dz = npf.relu_backward(np.full(6, 3.0, dtype), cache)
        np.testing.assert_array_equal(dz[:5], np.array([0, 0, 0, 0, 3], dtype))


def tanh_cdf(z):
    """Hendrycks and Gimpel's stand-in for Φ."""
    return (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (z + mpmath.mpf("0.044715") * z**3))) / 2


class TestGELU:
    """GELU(z) = z Φ(z) with Φ(z) = ½ (1 + erf(z/√2)); its golden values stand with ReLU's."""

    # the equation

    def test_values_that_stand_in_tables(self):
        """Φ(1) and Φ(1.96) as any book of statistics prints them."""
        y, _ = npf.gelu_forward(np.array([1.0, -1.0, 1.96]))
        np.testing.assert_allclose(y, [0.841344746, -0.158655254, 1.96 * 0.975002105], atol=1e-9)

    # the equation and the gradient, against many digits

    @DTYPES
    @together(
        ("approximate", "cdf", "units"), [(False, mpmath.ncdf, (36, 4)), (True, tanh_cdf, (36, 64))]
    )  # 1 - Φ is off by a unit of 1; in the tanh form's slope it is multiplied by z times its inner slope
    def test_value_and_slope_to_the_last_digits(self, dtype, approximate, cdf, units):
        positive = [np.linspace(0.01, 8, 60), np.geomspace(8, 36, 15), np.geomspace(1e-30, 0.01, 15)]
        z = np.concatenate([*positive, *(-part for part in positive)]).astype(dtype)
        y, cache = npf.gelu_forward(z, approximate=approximate)
        dz = npf.gelu_backward(np.ones_like(z), cache)
        assert y.dtype == dz.dtype == dtype
        with mpmath.workdps(60):
            points = [mpmath.mpf(point) for point in z.tolist()]
            values = [float(point * cdf(point)) for point in points]
            slopes = [float(mpmath.diff(lambda t: t * cdf(t), point)) for point in points]
        np.testing.assert_allclose(y, values, rtol=0, atol=units[0] * EPSILON[dtype])
        np.testing.assert_allclose(dz, slopes, rtol=0, atol=units[1] * EPSILON[dtype])

    # the edges: Φ

    @together(("dtype", "tolerance"), [(np.float64, 4e-16), (np.float32, 1.5e-7)])
    def test_the_fast_form_is_the_plain_definition(self, dtype, tolerance):
        z = np.linspace(-9, 9, 4001).astype(dtype)
        plain = [plain_normal_cdf(float(point)) for point in z]
        np.testing.assert_allclose(normal_cdf(z), plain, rtol=0, atol=tolerance)

    @DTYPES
    @together("size", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5])
    def test_blocks_meet(self, dtype, size):
        z = np.linspace(-3, 3, size).astype(dtype)
        pieces = [normal_cdf(piece) for piece in np.array_split(z, 7)]
        np.testing.assert_allclose(normal_cdf(z), np.concatenate(pieces), rtol=8 * EPSILON[dtype])

    @together(
        ("dtype", "lowest", "tolerance"),
        [(np.float64, -9, 1e-13), (np.float64, -36, 1e-5), (np.float32, -7, 1e-5), (np.float32, -13, 1e-3)],
    )
    def test_a_tail_keeps_its_leading_digits(self, dtype, lowest, tolerance):
        """½ (1 + erf) would lose them all to cancellation, and GELU's far left with them."""
        z = np.linspace(lowest, 0, 300).astype(dtype)
        with mpmath.workdps(40):
            expected = [float(mpmath.ncdf(mpmath.mpf(point))) for point in z.tolist()]
        np.testing.assert_allclose(normal_cdf(z).astype(np.float64), expected, rtol=tolerance)

    @DTYPES
    def test_numbers_whose_squares_overflow(self, dtype):
        largest = np.finfo(dtype).max
        z = np.array([largest, -largest, np.inf, -np.inf, largest**0.75, -0.0, np.nan], dtype)
        with np.errstate(over="ignore"):  # as the front door has it
            np.testing.assert_array_equal(normal_cdf(z), np.array([1, 0, 1, 0, 1, 0.5, np.nan], dtype))

    # the edges

    @DTYPES
    @together("approximate", [False, True])
    def test_far_out_it_is_relu(self, dtype, approximate):
        y, cache = npf.gelu_forward(np.array([-1e4, -100, 0, 100, 1e4], dtype), approximate=approximate)
        np.testing.assert_array_equal(y, np.array([0, 0, 0, 100, 1e4], dtype))
        dz = npf.gelu_backward(np.ones_like(y), cache)
        np.testing.assert_array_equal(dz, np.array([0, 0, 0.5, 1, 1], dtype))


class TestSoftmax:
    # the equation

    def test_logarithms_of_the_odds(self):
        y, _ = npf.softmax_forward(np.log([[1.0, 3.0], [4.0, 1.0]]))
        np.testing.assert_allclose(y, [[0.25, 0.75], [0.8, 0.2]], rtol=1e-15)

    @DTYPES
    @together("axis", [-3, -2, -1, 0, 1, 2])
    def test_sums_to_one_along_its_axis_whatever_is_added(self, dtype, axis):
        scores = array(2, 3, 4, dtype=dtype)
        y, cache = npf.softmax_forward(scores, axis=axis)
        np.testing.assert_allclose(y.sum(axis=axis), 1, atol=4 * EPSILON[dtype])
        np.testing.assert_allclose(
            npf.softmax_forward(scores - 500, axis=axis)[0], y, rtol=500 * EPSILON[dtype]
        )
        ds = npf.softmax_backward(array(2, 3, 4, seed=1, dtype=dtype), cache)
        np.testing.assert_allclose(ds.sum(axis=axis), 0, atol=8 * EPSILON[dtype])

    # the gradient

    test_gradients = staticmethod(gradients_hold("softmax", *every(lead=[(2, 2)], axis=[-3, -1, 1])))

    # the golden value

    test_golden_values = staticmethod(agrees_with_pytorch("softmax"))

    # the edges

    @DTYPES
    def test_a_row_of_minus_infinity_has_no_weights_and_no_gradient(self, dtype):
        scores = np.array([[-np.inf, -np.inf, -np.inf], [0.0, -np.inf, 0.0], [-np.inf, 3.0, -np.inf]], dtype)
        y, cache = npf.softmax_forward(scores)
        np.testing.assert_array_equal(y, np.array([[0, 0, 0], [0.5, 0, 0.5], [0, 1, 0]], dtype))
        ds = npf.softmax_backward(np.array([[1.0, 2.0, 4.0]] * 3, dtype), cache)
        np.testing.assert_array_equal(ds, np.array([[0, 0, 0], [-0.75, 0, 0.75], [0, 0, 0]], dtype))
        np.testing.assert_array_equal(npf.softmax_forward(scores.T, axis=0)[0], y.T)

    @together("bad", [np.nan, np.inf])
    def test_nan_and_infinity_are_not_hidden(self, bad):
        y, _ = npf.softmax_forward(np.array([[0.0, bad, 1.0], [0.0, 0.0, -np.inf]]))
        np.testing.assert_array_equal(y, [[np.nan] * 3, [0.5, 0.5, 0.0]])

    @DTYPES
    def test_scores_of_the_largest_size(self, dtype):
        """Finite scores have finite weights, and a finite smallest number is not a mask."""
        largest = np.finfo(dtype).max
        y, _ = npf.softmax_forward(np.array([[largest, largest / 2], [-largest, -largest]], dtype))
        np.testing.assert_array_equal(y, np.array([[1, 0], [0.5, 0.5]], dtype))


class TestDropout:
    # the equation

    @DTYPES
    @together("rate", [0.1, 0.5, 0.9])
    def test_drops_at_its_rate_and_scales_what_stays_so_that_the_mean_stays(self, dtype, rate):
        n = 200_000
        y, cache = npf.dropout_forward(np.ones(n, dtype), rate, np.random.default_rng(0))
        kept = y[y != 0]
        np.testing.assert_allclose(kept, 1 / (1 - rate), rtol=4 * EPSILON[dtype])
        five_sigma = 5 * np.sqrt(rate * (1 - rate) / n)
        assert 1 - len(kept) / n == pytest.approx(rate, abs=five_sigma)
        assert y.dtype == npf.dropout_backward(y, cache).dtype == dtype

    # the gradient

    def test_backward_uses_the_same_draws(self):
        """They decide, not whether the output is zero: a zero that was kept passes its gradient."""
        x, dy = np.zeros((20, 30)), array(20, 30, seed=1)
        _, cache = npf.dropout_forward(x, 0.3, np.random.default_rng(0))
        ones, _ = npf.dropout_forward(x + 1, 0.3, np.random.default_rng(0))
        np.testing.assert_allclose(npf.dropout_backward(dy, cache), dy * ones, rtol=1e-15)

    # the edges

    @together(("rate", "rng"), [(0.5, None), (0.0, np.random.default_rng(0))])
    def test_without_a_generator_or_at_rate_zero_it_does_nothing(self, rate, rng):
        x, dy = array(3, 4), array(3, 4, seed=1)
        y, cache = npf.dropout_forward(x, rate, rng)
        np.testing.assert_array_equal(y, x)
        np.testing.assert_array_equal(npf.dropout_backward(dy, cache), dy)

    def test_one_seed_one_mask_in_both_precisions_and_the_generator_moves_on(self):
        rng = np.random.default_rng(7)
        first, second = (npf.dropout_forward(np.ones(100), 0.5, rng)[0] for _ in range(2))
        again, _ = npf.dropout_forward(np.ones(100, np.float32), 0.5, np.random.default_rng(7))
        np.testing.assert_array_equal(first, again)
        np.testing.assert_array_equal(first > 0, np.random.default_rng(7).random(100, np.float32) >= 0.5)
        assert (first != second).any()
