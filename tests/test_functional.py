"""Linear, ReLU, GELU, softmax and dropout: equations, gradients, golden values, edge cases."""

import math

import mpmath
import numpy as np
import pytest
from edges import edges
from golden import agrees_with_pytorch
from gradients import combine, make_gradient_test
from valid_calls import array

import npformer as npf
from npformer.functional import softmax_in_place, split_rows
from npformer.normal import BLOCK, normal_cdf

DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32])
EPSILON = {np.float64: 2.0**-52, np.float32: 2.0**-23}
INF, NAN = np.inf, np.nan


class TestLinear:
    # the equation

    def test_linear_equals_einsum(self):
        x, W, b = array(2, 3, 4), array(4, 5, seed=1), array(5, seed=2)
        y, _ = npf.linear_forward(x, W, b)
        np.testing.assert_allclose(y, np.einsum("nti,io->nto", x, W) + b, rtol=0, atol=1e-14)

    # the gradient, the golden value

    test_gradients = staticmethod(make_gradient_test("linear", {}, {"lead": ()}))
    test_golden_values = staticmethod(agrees_with_pytorch("linear"))


class TestReLU:
    # the equation, the gradient, the edges

    test_edges = staticmethod(edges(
        "relu",  #                                    z        y        dy      dz
        ("above zero: unchanged",                     [2.0],   [2.0],   [-3.0], [-3.0]),
        ("below zero: 0",                           [-1.0],  [0.0],   [-3.0], [-0.0]),
        ("at zero: derivative 0",                    [0.0],   [0.0],   [3.0],  [0.0]),
        ("at minus zero: same",                       [-0.0],  [0.0],   [3.0],  [0.0]),
        ("smallest number: unchanged", *2 * [lambda f: [f.smallest_subnormal]], [3.0], [3.0]),
        ("NaN stays NaN",                        [NAN],   [NAN]),
    ))  # fmt: skip

    def test_relu_backward_blocks_infinite_gradient(self):
        _, cache = npf.relu_forward(np.array([-1.0, 0.0, 2.0]))
        assert npf.relu_backward(np.full(3, np.inf), cache).tolist() == [0, 0, np.inf]

    test_gradients = staticmethod(make_gradient_test("relu", {}, {"lead": ()}))

    # the golden value

    test_golden_values = staticmethod(agrees_with_pytorch("relu"))


def tanh_cdf(z):
    """Compute the tanh approximation of Φ (Hendrycks and Gimpel) with mpmath."""
    return (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (z + mpmath.mpf("0.044715") * z**3))) / 2


class TestGELU:
    """GELU(z) = z Φ(z) with Φ(z) = ½ (1 + erf(z/√2))."""

    # the equation and the gradient, compared with mpmath's results for 60 digits

    @DTYPES
    # `units` are the allowed errors of the value and of the derivative, in multiples of machine epsilon. Φ
    # has an error of one machine epsilon, and GELU multiplies this error by z, up to 36. In the derivative of
    # the tanh approximation, z and the derivative of the polynomial inside tanh multiply this error.
    @pytest.mark.parametrize(
        ("approximate", "cdf", "units"),
        [(False, mpmath.ncdf, (36, 4)), (True, tanh_cdf, (36, 64))],
        ids=["exact", "tanh"],
    )
    def test_gelu_value_and_derivative_against_mpmath(self, dtype, approximate, cdf, units):
        positive = [np.linspace(0.01, 8, 60), np.geomspace(8, 36, 15), np.geomspace(1e-30, 0.01, 15)]
        z = np.concatenate([*positive, *(-part for part in positive)]).astype(dtype)
        y, cache = npf.gelu_forward(z, approximate=approximate)
        dz = npf.gelu_backward(np.ones_like(z), cache)
        with mpmath.workdps(60):
            points = [mpmath.mpf(point) for point in z.tolist()]
            values = [float(point * cdf(point)) for point in points]
            slopes = [float(mpmath.diff(lambda t: t * cdf(t), point)) for point in points]
        np.testing.assert_allclose(y, values, rtol=0, atol=units[0] * EPSILON[dtype])
        np.testing.assert_allclose(dz, slopes, rtol=0, atol=units[1] * EPSILON[dtype])

    test_gradients = staticmethod(make_gradient_test("gelu", *combine(approximate=[False, True])))

    # the golden value

    test_golden_values = staticmethod(agrees_with_pytorch("gelu"))

    # the edges

    FAR_FROM_ZERO = (
        "far from zero: ReLU",
        [-1e4, -100, 0, 100, 1e4],
        [0, 0, 0, 100, 1e4],
        [1] * 5,
        [0, 0, 0.5, 1, 1],
    )
    test_edges = staticmethod(edges("gelu", FAR_FROM_ZERO))
    test_edges_of_tanh_form = staticmethod(edges("gelu", FAR_FROM_ZERO, approximate=True))

    # edge cases of Φ

    @pytest.mark.parametrize(("dtype", "low", "high", "rtol", "atol"), [
        (np.float64, -9, 9, 0, 4e-16), (np.float32, -9, 9, 0, 1.5e-7),
        # Small values in the left tail are accurate too. The formula ½ (1 + erf) would lose their digits.
        (np.float64, -9, 0, 1e-13, 0), (np.float64, -36, 0, 1e-5, 0),
        (np.float32, -7, 0, 1e-5, 0), (np.float32, -13, 0, 1e-3, 0),
    ])  # fmt: skip
    def test_normal_cdf_against_mpmath(self, dtype, low, high, rtol, atol):
        z = np.linspace(low, high, 300).astype(dtype)
        with mpmath.workdps(40):
            expected = [float(mpmath.ncdf(mpmath.mpf(point))) for point in z.tolist()]
        np.testing.assert_allclose(normal_cdf(z).astype(np.float64), expected, rtol=rtol, atol=atol)

    @DTYPES
    @pytest.mark.parametrize("size", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5])
    def test_normal_cdf_same_in_blocks_and_pieces(self, dtype, size):
        z = np.linspace(-3, 3, size).astype(dtype)
        pieces = [normal_cdf(piece) for piece in np.array_split(z, 7)]
        np.testing.assert_allclose(normal_cdf(z), np.concatenate(pieces), rtol=8 * EPSILON[dtype])

    @DTYPES
    def test_normal_cdf_when_squares_overflow(self, dtype):
        largest = np.finfo(dtype).max
        z = np.array([largest, -largest, INF, -INF, largest**0.75, -0.0, NAN], dtype)
        with np.errstate(over="ignore"):  # npformer.gelu_forward calls normal_cdf with this setting
            np.testing.assert_array_equal(normal_cdf(z), np.array([1, 0, 1, 0, 1, 0.5, NAN], dtype))


class TestSoftmax:
    # the equation

    def test_softmax_without_axes_raises(self):
        with pytest.raises(
            ValueError, match=r"^softmax_forward: scores has shape \(\); expected at least one"
        ):
            npf.softmax_forward(np.array(1.0))

    def test_softmax_of_large_array_is_rowwise(self):
        """The rows of a large array are processed in groups, which changes no bit."""
        scores = array(300, 700, dtype=np.float32)
        assert len(split_rows(scores)) > 1
        expected = [softmax_in_place(row.copy()) for row in scores]
        assert (softmax_in_place(scores.copy()) == expected).all()
        in_columns = softmax_in_place(np.asfortranarray(scores))  # not split, as rows are not contiguous
        np.testing.assert_allclose(in_columns, expected, rtol=1e-5)

    def test_softmax_of_logarithms_by_hand(self):
        y, _ = npf.softmax_forward(np.log([[1.0, 3.0], [4.0, 1.0]]))
        np.testing.assert_allclose(y, [[0.25, 0.75], [0.8, 0.2]], rtol=1e-15)

    @DTYPES
    @pytest.mark.parametrize("axis", [-3, -2, -1, 0, 1, 2])
    def test_softmax_sums_to_one_and_ignores_shift(self, dtype, axis):
        scores = array(2, 3, 4, dtype=dtype)
        (y, cache), (moved, _) = (npf.softmax_forward(s, axis=axis) for s in (scores, scores - 500))
        np.testing.assert_allclose(y.sum(axis=axis), 1, atol=4 * EPSILON[dtype])
        np.testing.assert_allclose(moved, y, rtol=500 * EPSILON[dtype])
        ds = npf.softmax_backward(array(2, 3, 4, seed=1, dtype=dtype), cache)
        np.testing.assert_allclose(ds.sum(axis=axis), 0, atol=8 * EPSILON[dtype])

    # the gradient, the golden value

    test_gradients = staticmethod(make_gradient_test("softmax", *combine(lead=[(2, 2)], axis=[-3, -1, 1])))
    test_golden_values = staticmethod(agrees_with_pytorch("softmax"))

    # the edges

    test_edges = staticmethod(edges(
        "softmax",  #                          scores              y              dy         ds
        ("a row of -inf: zeros",              [-INF, -INF, -INF], [0, 0, 0],     [1, 2, 4], [0, 0, 0]),
        ("-inf: weight 0, gradient 0",        [0, -INF, 0],       [0.5, 0, 0.5], [1, 2, 4], [-0.75, 0, 0.75]),
        ("one finite score: weight 1",        [-INF, 3, -INF],    [0, 1, 0],     [1, 2, 4], [0, 0, 0]),
        ("NaN stays in its row",              [[0, NAN], [0, 0]], [[NAN, NAN], [0.5, 0.5]]),
        ("infinity gives NaN",                   [[0, INF], [0, 0]], [[NAN, NAN], [0.5, 0.5]]),
        ("largest scores stay finite",         lambda f: [f.max, f.max / 2], [1, 0]),
        ("smallest number is no mask",         lambda f: [f.min, f.min],     [0.5, 0.5]),
    ))  # fmt: skip
    test_edges_along_first_axis = staticmethod(
        edges("softmax", ("a column of -inf", [[-INF, 0], [-INF, 0]], [[0, 0.5], [0, 0.5]]), axis=0)
    )


class TestDropout:
    # the equation, the gradient

    @DTYPES
    @pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
    def test_dropout_keeps_mean_and_reuses_mask(self, dtype, rate):
        """The backward pass uses the drawn mask: a kept entry passes its gradient even if its value is 0."""
        n, rng = 200_000, np.random.default_rng(0)
        keep = np.random.default_rng(0).random(n, np.float32) >= rate  # drawn in float32 for every dtype
        x, dy = np.arange(n, dtype=dtype) % 2, array(n, dtype=dtype)
        y, cache = npf.dropout_forward(x, rate, rng)
        np.testing.assert_allclose(y, x * keep / (1 - rate), rtol=4 * EPSILON[dtype])
        np.testing.assert_allclose(
            npf.dropout_backward(dy, cache), dy * keep / (1 - rate), rtol=4 * EPSILON[dtype]
        )
        assert y.mean() == pytest.approx(0.5, abs=5 * math.sqrt(rate / (1 - rate) / 2 / n))
        assert (npf.dropout_forward(x, rate, rng)[0] != y).any(), "the second call must draw another mask"

    test_gradients = staticmethod(make_gradient_test("dropout", *combine(rate=[0.0, 0.5])))

    # the edges

    @pytest.mark.parametrize(
        ("rate", "rng"), [(0.5, None), (0.0, np.random.default_rng(0))], ids=["no-rng", "rate-0"]
    )
    def test_dropout_without_rng_or_rate_is_identity(self, rate, rng):
        x, dy = array(3, 4), array(3, 4, seed=1)
        y, cache = npf.dropout_forward(x, rate, rng)
        assert (y == x).all() and (npf.dropout_backward(dy, cache) == dy).all()
