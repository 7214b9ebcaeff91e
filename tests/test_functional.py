"""The smallest operations, linear, ReLU, GELU, softmax and dropout: what is promised, and at their edges."""

import mpmath
import numpy as np
import pytest
from golden import agrees_with_pytorch
from hypothesis import given
from hypothesis import strategies as st
from together import together

import npformer as npf
from npformer.normal import BLOCK, normal_cdf, plain_normal_cdf

DTYPES = together("dtype", [np.float64, np.float32])
ERF_TOLERANCE = {np.float64: 1e-15, np.float32: 3e-7}
EPSILON = {np.float64: 2.0**-52, np.float32: 2.0**-23}


def random(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


class TestLinear:
    # the equation

    def test_every_row_is_a_sum_of_products(self):
        x, W, b = random(2, 3, 4), random(4, 5, seed=1), random(5, seed=2)
        y, _ = npf.linear_forward(x, W, b)
        for i, t, o in np.ndindex(2, 3, 5):
            assert y[i, t, o] == pytest.approx(sum(x[i, t, j] * W[j, o] for j in range(4)) + b[o], abs=1e-14)

    def test_without_bias(self):
        x, W, dy = random(2, 3, 4), random(4, 5, seed=1), random(2, 3, 5, seed=3)
        y, cache = npf.linear_forward(x, W)
        with_zero, cache_with_zero = npf.linear_forward(x, W, np.zeros(5))
        np.testing.assert_array_equal(y, with_zero)
        dx, dW, db = npf.linear_backward(dy, cache)
        expected_dx, expected_dW, _ = npf.linear_backward(dy, cache_with_zero)
        np.testing.assert_array_equal(dx, expected_dx)
        np.testing.assert_array_equal(dW, expected_dW)
        assert db is None

    # the gradient

    def test_gradients(self):
        assert npf.gradcheck(
            npf.linear_forward, npf.linear_backward, random(2, 3, 4), random(4, 5), random(5)
        )

    def test_three_axes_are_many_rows(self):
        x, W, b, dy = random(2, 3, 4), random(4, 5, seed=1), random(5, seed=2), random(2, 3, 5, seed=3)
        dx, dW, db = npf.linear_backward(dy, npf.linear_forward(x, W, b)[1])
        assert (dx.shape, dW.shape, db.shape) == (x.shape, W.shape, b.shape)
        row_by_row = [
            npf.linear_backward(dy[i, t], npf.linear_forward(x[i, t], W, b)[1]) for i, t in np.ndindex(2, 3)
        ]
        np.testing.assert_allclose(dx.reshape(6, 4), [row[0] for row in row_by_row], atol=1e-14)
        np.testing.assert_allclose(dW, sum(row[1] for row in row_by_row), atol=1e-14)
        np.testing.assert_allclose(db, sum(row[2] for row in row_by_row), atol=1e-14)

    # the golden value

    test_golden_values = staticmethod(agrees_with_pytorch("linear"))


class TestReLU:
    # the equation

    def test_what_is_below_zero_is_zero_and_has_no_slope(self):
        y, cache = npf.relu_forward(np.array([-1.0, 2.0]))
        assert y.tolist() == [0, 2] and npf.relu_backward(np.array([-3.0, -3.0]), cache).tolist() == [0, -3]

    # the golden value

    test_golden_values = staticmethod(agrees_with_pytorch("activation"))

    # the edges

    @DTYPES
    def test_around_zero(self, dtype):
        smallest = np.finfo(dtype).smallest_subnormal
        z = np.array([-1.0, -smallest, -0.0, 0.0, smallest, 1.0], dtype)
        y, cache = npf.relu_forward(z)
        np.testing.assert_array_equal(y, np.array([0, 0, 0, 0, smallest, 1], dtype))
        dz = npf.relu_backward(np.full(6, 3.0, dtype), cache)
        np.testing.assert_array_equal(dz, np.array([0, 0, 0, 0, 3, 3], dtype))
        assert y.dtype == dz.dtype == dtype

    def test_nan_is_not_hidden(self):
        assert np.isnan(npf.relu_forward(np.array([np.nan]))[0]).all()


class TestGELU:
    """GELU(z) = z Φ(z) with Φ(z) = ½ (1 + erf(z/√2)): the error function can be read off again."""

    @staticmethod
    def points(dtype):
        """On both sides: everyday values, the far tails, and values next to zero."""
        positive = np.concatenate(
            [np.linspace(0.01, 8, 250), np.geomspace(8, 36, 40), np.geomspace(1e-30, 0.01, 40)]
        )
        return np.concatenate([positive, -positive]).astype(dtype)

    # the equation

    def test_values_that_stand_in_tables(self):
        """Φ(1) and Φ(1.96) as any book of statistics prints them."""
        y, _ = npf.gelu_forward(np.array([1.0, -1.0, 1.96]))
        np.testing.assert_allclose(y, [0.841344746, -0.158655254, 1.96 * 0.975002105], atol=1e-9)

    @DTYPES
    def test_implied_error_function(self, dtype):
        z = self.points(dtype)
        y, _ = npf.gelu_forward(z)
        assert y.dtype == dtype
        with mpmath.workdps(40):
            for point, value in zip(z.tolist(), y.tolist(), strict=True):
                # y/z carries the rounding of the product z Φ too: half a unit in the last place of y.
                implied = 2 * mpmath.mpf(value) / mpmath.mpf(point) - 1
                slack = EPSILON[dtype] * max(0.0, 2 * value / point)
                error = abs(implied - mpmath.erf(mpmath.mpf(point) / mpmath.sqrt(2)))
                assert error <= ERF_TOLERANCE[dtype] + slack, point

    @DTYPES
    def test_error_function(self, dtype):
        """The same without GELU's product, and the whole of Φ's range: no slack here."""
        z = self.points(dtype)
        with mpmath.workdps(40):
            for point, value in zip(z.tolist(), normal_cdf(z).tolist(), strict=True):
                error = abs(2 * mpmath.mpf(value) - 1 - mpmath.erf(mpmath.mpf(point) / mpmath.sqrt(2)))
                assert error <= ERF_TOLERANCE[dtype], point

    @DTYPES
    def test_the_tanh_form(self, dtype):
        z = self.points(dtype)
        y, cache = npf.gelu_forward(z, approximate=True)
        dz = npf.gelu_backward(np.ones_like(z), cache)
        assert y.dtype == dz.dtype == dtype

        def phi(point):
            inner = mpmath.sqrt(2 / mpmath.pi) * (point + mpmath.mpf("0.044715") * point**3)
            return (1 + mpmath.tanh(inner)) / 2

        with mpmath.workdps(40):
            points = [mpmath.mpf(point) for point in z.tolist()]
            values = [float(point * phi(point)) for point in points]
        np.testing.assert_allclose(y, values, rtol=0, atol=36 * EPSILON[dtype])
        with mpmath.workdps(60):
            some = range(0, len(points), 7)
            slopes = [float(mpmath.diff(lambda t: t * phi(t), points[i])) for i in some]
        # 1 - Φ is off by a unit of 1, and is multiplied by z times the slope of the inner function
        np.testing.assert_allclose(dz[list(some)], slopes, rtol=0, atol=64 * EPSILON[dtype])

    def test_the_two_forms_differ_by_less_than_5e_4(self):
        z = np.linspace(-10, 10, 2001)
        difference = abs(npf.gelu_forward(z)[0] - npf.gelu_forward(z, approximate=True)[0]).max()
        assert 4e-4 < difference < 5e-4

    # the gradient

    @DTYPES
    def test_slopes(self, dtype):
        z = self.points(dtype)
        _, cache = npf.gelu_forward(z)
        dz = npf.gelu_backward(np.ones_like(z), cache)
        with mpmath.workdps(40):
            points = [mpmath.mpf(point) for point in z.tolist()]
            expected = [float(mpmath.ncdf(point) + point * mpmath.npdf(point)) for point in points]
        np.testing.assert_allclose(dz, expected, rtol=0, atol=4 * EPSILON[dtype])

    # the edges

    @together(("dtype", "tolerance"), [(np.float64, 4e-16), (np.float32, 1.5e-7)])
    def test_the_fast_form_is_the_plain_definition(self, dtype, tolerance):
        z = np.linspace(-9, 9, 4001).astype(dtype)
        plain = [plain_normal_cdf(float(point)) for point in z]
        np.testing.assert_allclose(normal_cdf(z), plain, rtol=0, atol=tolerance)

    @together("dtype", [np.float64, np.float32])
    @together("size", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5])
    def test_blocks_meet(self, dtype, size):
        z = np.linspace(-3, 3, size).astype(dtype)
        found = normal_cdf(z)
        pieces = [normal_cdf(piece) for piece in np.array_split(z, 7)]
        np.testing.assert_allclose(found, np.concatenate(pieces), rtol=8 * np.finfo(dtype).eps)
        np.testing.assert_allclose(found + found[::-1], 1, atol=8 * np.finfo(dtype).eps)

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

    @together("dtype", [np.float64, np.float32])
    def test_numbers_whose_squares_overflow(self, dtype):
        largest = np.finfo(dtype).max
        z = np.array([largest, -largest, np.inf, -np.inf, largest**0.75, -0.0], dtype)
        with np.errstate(over="ignore"):  # as the front door has it
            assert normal_cdf(z).tolist() == [1, 0, 1, 0, 1, 0.5]
        assert np.isnan(normal_cdf(np.array([np.nan], dtype))).all()

    @DTYPES
    @together("approximate", [False, True])
    def test_far_out_it_is_relu(self, dtype, approximate):
        z = np.array([-1e4, -100.0, 0.0, 100.0, 1e4], dtype)
        y, cache = npf.gelu_forward(z, approximate=approximate)
        np.testing.assert_array_equal(y, np.array([0.0, 0.0, 0.0, 100.0, 1e4], dtype))
        dz = npf.gelu_backward(np.ones_like(z), cache)
        np.testing.assert_array_equal(dz, np.array([0.0, 0.0, 0.5, 1.0, 1.0], dtype))


class TestSoftmax:
    # the equation

    @DTYPES
    def test_against_many_digits(self, dtype):
        scores = random(4, 7, dtype=dtype) * 5
        y, _ = npf.softmax_forward(scores)
        with mpmath.workdps(40):
            for row, weights in zip(scores.tolist(), y.tolist(), strict=True):
                powers = [mpmath.exp(score) for score in row]
                for power, weight in zip(powers, weights, strict=True):
                    # exp(s - max) is off by the rounding of s - max, which is up to |s - max| units.
                    assert abs(weight * mpmath.fsum(powers) / power - 1) < 40 * EPSILON[dtype]

    @DTYPES
    @together("axis", [-3, -2, -1, 0, 1, 2])
    def test_sums_to_one_along_its_axis(self, dtype, axis):
        y, cache = npf.softmax_forward(random(2, 3, 4, dtype=dtype), axis=axis)
        np.testing.assert_allclose(y.sum(axis=axis), 1, atol=4 * EPSILON[dtype])
        ds = npf.softmax_backward(random(2, 3, 4, seed=1, dtype=dtype), cache)
        np.testing.assert_allclose(ds.sum(axis=axis), 0, atol=8 * EPSILON[dtype])
        assert y.dtype == ds.dtype == dtype

    @given(st.lists(st.floats(-30, 30), min_size=2, max_size=6), st.floats(-1e3, 1e3))
    def test_a_constant_changes_nothing(self, scores, constant):
        row = np.array(scores)
        y, _ = npf.softmax_forward(row)
        shifted, _ = npf.softmax_forward(row + constant)
        np.testing.assert_allclose(shifted, y, atol=1e-12)

    # the gradient

    def test_backward_is_the_jacobian(self):
        """∂y_i/∂s_j = y_i (δ_ij - y_j), entry by entry."""
        y, cache = npf.softmax_forward(random(4))
        for i in range(4):
            row = npf.softmax_backward(np.eye(4)[i], cache)
            for j in range(4):
                assert row[j] == pytest.approx(y[i] * ((i == j) - y[j]), abs=1e-15)

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

    def test_a_column_of_minus_infinity(self):
        y, _ = npf.softmax_forward(np.array([[-np.inf, 1.0], [-np.inf, 1.0]]), axis=0)
        np.testing.assert_array_equal(y, [[0.0, 0.5], [0.0, 0.5]])

    @together("bad", [np.nan, np.inf])
    def test_nan_and_infinity_are_not_hidden(self, bad):
        y, _ = npf.softmax_forward(np.array([[0.0, bad, 1.0], [0.0, 0.0, -np.inf]]))
        assert np.isnan(y[0]).all()
        np.testing.assert_array_equal(y[1], [0.5, 0.5, 0.0])

    @DTYPES
    def test_scores_of_ten_thousand(self, dtype):
        scores = np.array([[1e4, 1e4, -1e4], [-1e4, -1e4, -1e4], [1e4, 0.0, 1e4 - 1]], dtype)
        y, _ = npf.softmax_forward(scores)
        e = np.exp(-1.0)
        expected = [[0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3], [1 / (1 + e), 0, e / (1 + e)]]
        np.testing.assert_allclose(y, expected, atol=2 * EPSILON[dtype])

    @DTYPES
    def test_scores_of_the_largest_size(self, dtype):
        """Finite scores have finite weights, and a finite smallest number is not a mask."""
        largest = np.finfo(dtype).max
        y, _ = npf.softmax_forward(np.array([[largest, largest / 2], [-largest, -largest]], dtype))
        np.testing.assert_array_equal(y, np.array([[1, 0], [0.5, 0.5]], dtype))

    @together(("shape", "axis"), [((0,), 0), ((2, 0), -1), ((0, 3), -1), ((2, 0, 3), 1), ((0, 3), 0)])
    def test_empty(self, shape, axis):
        y, cache = npf.softmax_forward(np.ones(shape), axis=axis)
        assert y.shape == npf.softmax_backward(y, cache).shape == shape

    def test_one_entry_always_weighs_one(self):
        y, cache = npf.softmax_forward(np.array([[-1e4], [0.0], [7.0]]))
        np.testing.assert_array_equal(y, np.ones((3, 1)))
        np.testing.assert_array_equal(npf.softmax_backward(random(3, 1), cache), np.zeros((3, 1)))


class TestDropout:
    # the equation

    @DTYPES
    def test_what_stays_is_scaled(self, dtype):
        x = 1 + abs(random(20, 30, dtype=dtype))
        y, _ = npf.dropout_forward(x, 0.25, np.random.default_rng(0))
        kept = y != 0
        np.testing.assert_allclose(y[kept], x[kept] / 0.75, rtol=4 * EPSILON[dtype])

    @DTYPES
    @together("rate", [0.1, 0.5, 0.9])
    def test_keeps_the_mean_and_drops_at_its_rate(self, dtype, rate):
        n = 200_000
        y, _ = npf.dropout_forward(np.ones(n, dtype), rate, np.random.default_rng(0))
        five_sigma = 5 * np.sqrt(rate * (1 - rate) / n)
        assert np.mean(y == 0) == pytest.approx(rate, abs=five_sigma)
        assert y.astype(np.float64).mean() == pytest.approx(1, abs=five_sigma / (1 - rate))
        assert y.dtype == dtype

    # the gradient

    @DTYPES
    def test_backward_uses_the_same_draws(self, dtype):
        x, dy = np.ones((20, 30), dtype), random(20, 30, seed=1, dtype=dtype)
        y, cache = npf.dropout_forward(x, 0.3, np.random.default_rng(0))
        dx = npf.dropout_backward(dy, cache)
        np.testing.assert_allclose(dx, dy * y, rtol=4 * EPSILON[dtype])
        assert dx.dtype == dtype

    def test_a_zero_that_was_kept_passes_its_gradient(self):
        """The mask is of the draws, not of where the output is zero."""
        _, cache = npf.dropout_forward(np.zeros(100), 0.5, np.random.default_rng(0))
        dx = npf.dropout_backward(np.ones(100), cache)
        assert 30 < np.count_nonzero(dx) < 70

    # the edges

    @DTYPES
    def test_without_a_generator_it_does_nothing(self, dtype):
        x, dy = random(3, 4, dtype=dtype), random(3, 4, seed=1, dtype=dtype)
        y, cache = npf.dropout_forward(x, 0.5, None)
        np.testing.assert_array_equal(y, x)
        np.testing.assert_array_equal(npf.dropout_backward(dy, cache), dy)

    def test_at_rate_zero_it_does_nothing(self):
        x = random(3, 4)
        y, cache = npf.dropout_forward(x, 0.0, np.random.default_rng(0))
        np.testing.assert_array_equal(y, x)
        np.testing.assert_array_equal(npf.dropout_backward(x, cache), x)

    def test_one_seed_one_mask_and_the_generator_moves_on(self):
        x = np.ones(100)
        rng = np.random.default_rng(7)
        first, second = npf.dropout_forward(x, 0.5, rng)[0], npf.dropout_forward(x, 0.5, rng)[0]
        again = npf.dropout_forward(x, 0.5, np.random.default_rng(7))[0]
        np.testing.assert_array_equal(first, again)
        assert (first != second).any()

    def test_both_precisions_drop_the_same(self):
        masks = [
            npf.dropout_forward(np.ones(50, d), 0.5, np.random.default_rng(3))[0] > 0 for d in ERF_TOLERANCE
        ]
        np.testing.assert_array_equal(*masks)
