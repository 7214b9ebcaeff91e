"""Tests of the position table, its frequencies, the shift matrix, learned positions, RoPE and ALiBi."""

import math
from functools import cache

import mpmath
import numpy as np
import pytest
from gradients import combine, make_gradient_test
from hypothesis import given
from hypothesis import strategies as st
from valid_calls import array

import npformer as npf

DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32])
LAYOUTS = pytest.mark.parametrize("layout", ["interleaved", "halves"])
MILLION = 1_000_000


@cache
def exact_row(position, d_model, base=10000, layout="interleaved"):
    """Compute a row of the position table by the paper's formula with 40 digits."""
    with mpmath.workdps(40):
        angles = [position / mpmath.mpf(base) ** (mpmath.mpf(2 * (j // 2)) / d_model) for j in range(d_model)]
        row = [float(mpmath.cos(a) if j % 2 else mpmath.sin(a)) for j, a in enumerate(angles)]
    return row[0::2] + row[1::2] if layout == "halves" else row


class TestTable:
    # the equation, and edge cases: odd widths, positions near multiples of 64, large positions

    @DTYPES
    @LAYOUTS
    @pytest.mark.parametrize(("start", "n", "d_model", "base", "tolerance"), [
        *[(0, 150, d_model, 10000.0, 1e-14) for d_model in (1, 2, 3, 6, 7, 10)],  # odd widths end in a sine
        (0, 200, 8, 10, 1e-12), (0, 200, 8, 123456.7, 1e-12), (0, 4097, 64, 10000.0, 1e-12),
        (-3, 5, 6, 10000.0, 1e-12), (3967, 130, 6, 10000.0, 1e-12), (524_287, 130, 6, 10000.0, 1e-9),
        (0, MILLION + 1, 2, 10000.0, 1e-9), (MILLION - 129, 130, 6, 10000.0, 1e-9),
    ])  # fmt: skip
    def test_positional_encoding_equals_formula(self, start, n, d_model, base, tolerance, layout, dtype):
        """Angles need float64, because float32 numbers near a million are multiples of 1/16."""
        table = npf.positional_encoding(n, d_model, start=start, base=base, layout=layout, dtype=dtype)
        assert (table.shape, table.dtype) == ((n, d_model), dtype)
        positions = sorted({0, 1, 2, 63, 64, 65, 127, 128, n // 2, n * 4 // 5, n - 1} & {*range(n)})
        expected = [exact_row(start + p, d_model, base, layout) for p in positions]
        tolerance = tolerance if dtype is np.float64 else 6e-8
        np.testing.assert_allclose(table[positions].astype(np.float64), expected, rtol=0, atol=tolerance)

    def test_positional_encoding_beyond_float64_integers(self):
        """Compare every second row, because above 2**53 only even integers are float64 numbers."""
        table = npf.positional_encoding(5, 2, start=2**53)
        expected = [exact_row(2**53 + p, 2) for p in (0, 2, 4)]
        np.testing.assert_allclose(table[::2], expected, rtol=0, atol=1e-15)

    @given(st.integers(0, 5000), st.integers(0, 300), st.integers(1, 12))
    def test_positional_encoding_window_is_slice_of_table(self, start, n, d_model):
        table = npf.positional_encoding(start + n, d_model)
        window = npf.positional_encoding(n, d_model, start=start)
        np.testing.assert_allclose(window, table[start:], atol=1e-12)


class TestFrequencies:
    # the equation

    @pytest.mark.parametrize("d_model", [1, 2, 5, 64, 512, 767])
    @pytest.mark.parametrize("base", [10000, 500000, 10])
    def test_angular_frequencies_and_wavelengths_against_mpmath(self, d_model, base):
        omega, waves = (f(d_model, base=base) for f in (npf.angular_frequencies, npf.wavelengths))
        with mpmath.workdps(40):
            exponents = [-mpmath.mpf(2 * i) / d_model for i in range(math.ceil(d_model / 2))]
            expected = np.array([float(mpmath.mpf(base) ** exponent) for exponent in exponents])
        np.testing.assert_allclose(omega, expected, rtol=1e-14)
        np.testing.assert_allclose(waves, 2 * math.pi / expected, rtol=1e-14)


class TestShiftMatrix:
    # the equation

    def test_shift_matrix_by_hand(self):
        """With d_model = 4, a shift by 1 rotates the first pair by 1 radian and the second by 0.01."""
        c, s, small_c, small_s = math.cos(1), math.sin(1), math.cos(0.01), math.sin(0.01)
        expected = [[c, -s, 0, 0], [s, c, 0, 0], [0, 0, small_c, -small_s], [0, 0, small_s, small_c]]
        np.testing.assert_allclose(npf.shift_matrix(1, 4), expected, atol=1e-16)

    # the edge cases: fractions, large negative shifts, no shift

    @given(st.floats(-1000, 1000), st.integers(1, 16), st.sampled_from([10.0, 1000.0, 10000.0]))
    def test_shift_matrix_moves_rows_and_transpose_undoes(self, k, n_pairs, base):
        d_model, M = 2 * n_pairs, npf.shift_matrix(k, 2 * n_pairs, base=base)
        moved = npf.positional_encoding(40, d_model, base=base) @ M
        for p in (0, 17, 39):
            expected = exact_row(p + mpmath.mpf(k), d_model, base=base)
            np.testing.assert_allclose(moved[p], expected, atol=1e-11)
        np.testing.assert_array_equal(npf.shift_matrix(-k, d_model, base=base), M.T)
        np.testing.assert_array_equal(npf.shift_matrix(0, d_model), np.eye(d_model))


class TestLearnedPositions:
    # the equation and the gradient

    @pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
    def test_learned_positions_adds_one_row_per_position(self, batch):
        x, P, dy = array(*batch, 4, 5), array(6, 5, seed=1), array(*batch, 4, 5, seed=2)
        y, cache = npf.learned_positions_forward(x, npf.LearnedPositionsParams(P))
        dx, grads = npf.learned_positions_backward(dy, cache)
        assert (y == x + P[:4]).all() and (dx == dy).all() and not grads.P[4:].any()
        np.testing.assert_allclose(grads.P[:4], dy.reshape(-1, 4, 5).sum(axis=0), atol=1e-14)

    test_gradients = staticmethod(make_gradient_test("learned_positions", {}, {"lead": ()}))


def complex_pairs(x, layout):
    """Return x as complex numbers, one for each pair of columns."""
    half = x.shape[-1] // 2
    first, second = (x[..., :half], x[..., half:]) if layout == "halves" else (x[..., 0::2], x[..., 1::2])
    return first + 1j * second


class TestRoPE:
    """The golden values of multi-head attention test RoPE, because PyTorch has no function for RoPE."""

    # the equation

    @LAYOUTS
    @pytest.mark.parametrize(
        ("shape", "options"),
        [((2, 3, 5, 8), {}), ((5, 6), {"base": 50.0}), ((1, 4), {})],
        ids=["batch", "base", "one-row"],
    )
    def test_rope_rotates_each_pair_by_its_angle(self, shape, layout, options):
        x, (T, d), base = array(*shape), shape[-2:], options.get("base", 10000.0)
        y, _ = npf.rope_forward(x, layout=layout, **options)
        angles = np.arange(T)[:, None] * np.array([base ** (-2 * i / d) for i in range(d // 2)])
        np.testing.assert_allclose(
            complex_pairs(y, layout), complex_pairs(x, layout) * np.exp(1j * angles), atol=1e-14
        )

    @LAYOUTS
    @given(st.integers(0, 500), st.integers(0, 500), st.integers(-400, 400))
    def test_rope_products_depend_on_distance_only(self, layout, p, q, shift):
        x = array(2, 8)

        def rotated(*positions):
            return npf.rope_forward(x, positions=np.array(positions), layout=layout)[0]

        query, key = rotated(p, q)
        shifted_query, shifted_key = rotated(p + shift, q + shift)
        assert query @ key == pytest.approx(shifted_query @ shifted_key, abs=1e-11)
        assert query @ query == pytest.approx(x[0] @ x[0], rel=1e-14)

    @LAYOUTS
    def test_rope_with_fewer_frequencies_keeps_other_columns(self, layout):
        x, omega = array(2, 5, 8), np.array([1.0, 0.25])
        y, _ = npf.rope_forward(x, layout=layout, frequencies=omega)
        rotated = complex_pairs(x[..., :4], layout) * np.exp(1j * np.arange(5)[:, None] * omega)
        np.testing.assert_allclose(complex_pairs(y[..., :4], layout), rotated, atol=1e-14)
        assert (y[..., 4:] == x[..., 4:]).all()

    def test_rope_positions_of_each_row(self):
        x, positions = array(2, 3, 4), np.array([[0, 1, 2], [0, 0, 7]])
        y, _ = npf.rope_forward(x, positions=positions)
        for row, its_positions, expected in zip(x, positions, y, strict=True):
            assert (npf.rope_forward(row, positions=its_positions)[0] == expected).all()

    def test_llama3_frequencies_scale_slow_pairs_only(self):
        omega = npf.angular_frequencies(64, base=500000.0)
        turns = 8192 * omega / (2 * np.pi)
        ratio = npf.llama3_frequencies(64) / omega
        assert (ratio[turns >= 4] == 1).all() and np.allclose(ratio[turns <= 1], 1 / 8, rtol=1e-15)
        between = (turns > 1) & (turns < 4)
        assert between.any() and (np.diff(ratio) <= 0).all()
        np.testing.assert_allclose(ratio[between], 1 / 8 + 7 / 8 * (turns[between] - 1) / 3, rtol=1e-14)
        step = npf.llama3_frequencies(64, low_freq_factor=2.0, high_freq_factor=2.0) / omega
        np.testing.assert_allclose(step, np.where(turns > 2, 1, 1 / 8), rtol=1e-15)

    def test_yarn_frequencies_scale_slow_pairs_only(self):
        omega = npf.angular_frequencies(64)
        turns = 4096 * omega / (2 * np.pi)
        ratio = npf.yarn_frequencies(64, factor=4.0, original_max_length=4096) / omega
        assert (ratio[turns >= 40] == 1).all() and np.allclose(ratio[turns <= 0.8], 1 / 4, rtol=1e-15)
        between = (ratio > 0.26) & (ratio < 0.99)
        assert between.sum() > 5 and np.ptp(np.diff(ratio[between])) < 1e-14  # a straight line
        options = {"original_max_length": 10, "beta_fast": 2.0, "beta_slow": 2.0}
        step = npf.yarn_frequencies(4, factor=2.0, base=1e4, **options)  # both bounds are the same pair
        assert step.tolist() == [1, 0.005]

    # the gradient

    POSITIONS = np.array([3, 0, 900])
    test_rope_gradients = staticmethod(
        make_gradient_test(
            "rope",
            *combine(layout=["interleaved", "halves"], positions=[POSITIONS]),
            *combine(layout=["interleaved", "halves"], frequencies=[np.array([1.0, 0.3])]),
        )
    )

    # the edges

    @DTYPES
    @pytest.mark.parametrize("position", [0, 4096, 100_003, MILLION])
    def test_rope_far_positions_against_mpmath(self, position, dtype):
        """RoPE rotates the pair (1, 0) to (cos, sin), so the output shows every error of the angle."""
        x = np.tile(np.array([1, 0], dtype), 8)[None, :]
        y, _ = npf.rope_forward(x, positions=np.array([position]))
        swapped = np.array(exact_row(position, 16)).reshape(8, 2)[:, ::-1].ravel()
        np.testing.assert_allclose(y[0], swapped, rtol=0, atol=1e-9 if dtype is np.float64 else 6e-8)


class TestALiBi:
    # The equation is the rule of the ALiBi paper. Each head has a slope, and `exponents` are -log2 of the
    # slopes. If the number of heads is a power of two, the slopes are a geometric sequence whose first term
    # equals its ratio. Otherwise, take the slopes for the next smaller power of two, and then every second
    # slope for twice this power.

    @pytest.mark.parametrize(("n_heads", "exponents"), [
        (1, [8]), (2, [4, 8]), (3, [4, 8, 2]), (6, [2, 4, 6, 8, 1, 3]), (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
        (31, [*(0.5 * i for i in range(1, 17)), *(0.25 * i for i in range(1, 31, 2))]),
    ])  # fmt: skip
    def test_alibi_bias_slopes(self, n_heads, exponents):
        slopes = -npf.alibi_bias(n_heads, 1, 2)[:, 0, 0]  # the only query has distance 1 from key 0
        np.testing.assert_allclose(slopes, 2.0 ** -np.array(exponents), rtol=1e-15)

    @DTYPES
    @pytest.mark.parametrize(("T_q", "T_k"), [(4, 4), (2, 5), (5, 2), (1, 1)])
    def test_alibi_bias_distances_aligned_at_end(self, T_q, T_k, dtype):
        bias = npf.alibi_bias(2, T_q, T_k, dtype=dtype)
        assert (bias.shape, bias.dtype) == ((2, T_q, T_k), dtype)
        for head, back_q, back_k in np.ndindex(bias.shape):
            entry = bias[head, T_q - 1 - back_q, T_k - 1 - back_k]
            assert entry == -[1 / 16, 1 / 256][head] * abs(back_q - back_k)
