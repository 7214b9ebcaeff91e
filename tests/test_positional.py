"""Positions against many digits, against the printed tables, and by the properties that they are used for."""

import math
from typing import ClassVar

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from together import together

import npformer as npf

DTYPES = together("dtype", [np.float64, np.float32])
LAYOUTS = together("layout", ["interleaved", "halves"])
MILLION = 1_000_000


def random(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def row_of_many_digits(position, d_model, base=10000, layout="interleaved"):
    """The table's row from the paper's formula with 40 digits: every column by its own sine or cosine."""
    with mpmath.workdps(40):
        angles = [position / mpmath.mpf(base) ** (mpmath.mpf(2 * (j // 2)) / d_model) for j in range(d_model)]
        row = [float(mpmath.cos(a) if j % 2 else mpmath.sin(a)) for j, a in enumerate(angles)]
    return row[0::2] + row[1::2] if layout == "halves" else row


def assert_rows(table, first, positions, tolerance, **options):
    """Rows of a table that starts at position `first`, compared one by one."""
    for position in positions:
        expected = row_of_many_digits(position, table.shape[1], **options)
        np.testing.assert_allclose(
            table[position - first].astype(np.float64),
            expected,
            rtol=0,
            atol=tolerance,
            err_msg=f"row {position}",
        )


class TestTable:
    # the equation

    def test_the_printed_example(self):
        """n = 3, d_model = 4, as a course prints it to three decimals."""
        printed = [[0, 1, 0, 1], [0.841, 0.540, 0.010, 1.000], [0.909, -0.416, 0.020, 1.000]]
        np.testing.assert_array_equal(npf.positional_encoding(3, 4).round(3), printed)

    @LAYOUTS
    @together("d_model", [1, 2, 3, 6, 7, 10])
    def test_small_tables_entry_by_entry(self, d_model, layout):
        table = npf.positional_encoding(150, d_model, layout=layout)
        assert table.shape == (150, d_model)
        assert table.dtype == np.float64
        assert_rows(table, 0, [*range(9), *range(125, 134), 149], 1e-14, layout=layout)

    @together("base", [10, 1000, 123456.7])
    def test_another_base(self, base):
        table = npf.positional_encoding(200, 8, base=base)
        assert_rows(table, 0, range(0, 200, 9), 1e-13, base=base)

    def test_the_last_cosine_has_no_room_at_odd_d_model(self):
        """The odd table is the formula at its own d_model, not a wider table cut off."""
        table = npf.positional_encoding(3, 5)
        omega = [1, 10000 ** (-2 / 5), 10000 ** (-4 / 5)]
        expected = [
            math.sin(2),
            math.cos(2),
            math.sin(2 * omega[1]),
            math.cos(2 * omega[1]),
            math.sin(2 * omega[2]),
        ]
        np.testing.assert_allclose(table[2], expected, atol=1e-15)

    @given(st.integers(1, 9))
    def test_halves_are_the_same_columns_in_another_order(self, d_model):
        interleaved = npf.positional_encoding(20, d_model)
        halves = npf.positional_encoding(20, d_model, layout="halves")
        np.testing.assert_array_equal(halves, np.hstack([interleaved[:, 0::2], interleaved[:, 1::2]]))

    def test_similarity_depends_on_the_distance_only(self):
        table = npf.positional_encoding(60, 16)
        similarity = table @ table.T
        for distance in range(60):
            np.testing.assert_allclose(np.diag(similarity, distance), similarity[0, distance], atol=1e-12)
        np.testing.assert_allclose(np.diag(similarity), 8, atol=1e-12)

    # the edges

    @LAYOUTS
    def test_the_sizes_of_real_models(self, layout):
        table = npf.positional_encoding(4097, 512, layout=layout)
        assert_rows(table, 0, [0, 1, 63, 64, 65, 2048, 3967, 4095, 4096], 1e-12, layout=layout)

    @DTYPES
    @together("d_model", [4, 33, 64])
    @together("start", [1, 100, 3967, 10_007, 65_535, 524_287, MILLION - 129])
    def test_far_positions(self, start, d_model, dtype):
        """A float32 near a million is a multiple of 1/16: only float64 angles keep float32 tables right."""
        table = npf.positional_encoding(130, d_model, start=start, dtype=dtype)
        exact = 1e-12 if start + 129 <= 4096 else 1e-9
        tolerance = exact if dtype is np.float64 else 6e-8
        assert table.dtype == dtype
        assert_rows(table, start, [start, start + 1, start + 64, start + 128, start + 129], tolerance)

    @DTYPES
    def test_one_table_of_a_million_rows(self, dtype):
        """Rows late in a long table, in case errors add up on the way there."""
        table = npf.positional_encoding(MILLION + 1, 6, dtype=dtype)
        rows = np.random.default_rng(0).integers(4097, MILLION, 60).tolist()
        assert_rows(
            table,
            0,
            [*rows, 65_535, 65_536, 2**19, 2**19 + 127, MILLION],
            1e-9 if dtype is np.float64 else 6e-8,
        )
        assert_rows(table, 0, [4095, 4096], 1e-12 if dtype is np.float64 else 6e-8)

    def test_positions_before_zero(self):
        assert_rows(npf.positional_encoding(5, 6, start=-3), -3, range(-3, 2), 1e-14)

    @given(st.integers(0, 5000), st.integers(0, 300), st.integers(1, 12))
    def test_a_window_is_a_piece_of_the_table(self, start, n, d_model):
        whole = npf.positional_encoding(start + n, d_model)
        np.testing.assert_allclose(
            npf.positional_encoding(n, d_model, start=start), whole[start:], atol=1e-12
        )


class TestFrequencies:
    @together("d_model", [1, 2, 5, 64, 512, 767])
    @together("base", [10000, 500000, 10])
    def test_against_many_digits(self, d_model, base):
        omega = npf.angular_frequencies(d_model, base=base)
        assert omega.shape == (math.ceil(d_model / 2),)
        assert omega.dtype == np.float64
        with mpmath.workdps(40):
            expected = [float(mpmath.mpf(base) ** (-mpmath.mpf(2 * i) / d_model)) for i in range(len(omega))]
        np.testing.assert_allclose(omega, expected, rtol=1e-14)
        np.testing.assert_allclose(
            npf.wavelengths(d_model, base=base), 2 * math.pi / np.array(expected), rtol=1e-14
        )

    @together("d_model", [4, 64, 512])
    def test_the_longest_wave_is_short_of_what_the_paper_names(self, d_model):
        waves = npf.wavelengths(d_model)
        assert waves[0] == pytest.approx(2 * math.pi, rel=1e-15)
        assert waves[-1] == pytest.approx(2 * math.pi * 10000 ** ((d_model - 2) / d_model), rel=1e-14)
        assert waves[-1] < 2 * math.pi * 10000
        np.testing.assert_allclose(waves[1:] / waves[:-1], 10000 ** (2 / d_model), rtol=1e-13)

    def test_after_one_wavelength_the_pair_is_back(self):
        """At d_model 8 pair 2 turns once in 628.3 positions, so 4 turns are 2513 positions and a bit."""
        table = npf.positional_encoding(2514, 8)
        assert npf.wavelengths(8)[2] == pytest.approx(628.3185, abs=1e-4)
        np.testing.assert_allclose(table[2513, 4:6], table[0, 4:6], atol=0.01)


positions = st.integers(0, 10_000)
even_sizes = st.integers(1, 16).map(lambda pairs: 2 * pairs)
whole_shifts = st.integers(-5000, 5000)
shifts = st.floats(-1000, 1000)


class TestShiftMatrix:
    # the equation

    def test_by_hand(self):
        """d_model = 4: one turn by 1 radian, one by 0.01, and nothing between the pairs."""
        c, s, small_c, small_s = math.cos(1), math.sin(1), math.cos(0.01), math.sin(0.01)
        expected = [[c, -s, 0, 0], [s, c, 0, 0], [0, 0, small_c, -small_s], [0, 0, small_s, small_c]]
        np.testing.assert_allclose(npf.shift_matrix(1, 4), expected, atol=1e-16)

    @given(positions, whole_shifts, even_sizes)
    def test_moves_any_row_by_k(self, p, k, d_model):
        here = npf.positional_encoding(1, d_model, start=p)[0]
        there = npf.positional_encoding(1, d_model, start=p + k)[0]
        np.testing.assert_allclose(here @ npf.shift_matrix(k, d_model), there, atol=1e-11)

    @given(positions, shifts, even_sizes, st.sampled_from([10.0, 1000.0, 10000.0]))
    def test_moves_by_fractions_too(self, p, k, d_model, base):
        moved = npf.positional_encoding(1, d_model, start=p, base=base)[0] @ npf.shift_matrix(
            k, d_model, base=base
        )
        expected = row_of_many_digits(mpmath.mpf(p) + mpmath.mpf(k), d_model, base=base)
        np.testing.assert_allclose(moved, expected, atol=1e-11)

    @together("k", [1, -7, 2.5])
    def test_one_matrix_for_every_position(self, k):
        table = npf.positional_encoding(50, 12)
        expected = [row_of_many_digits(mpmath.mpf(p) + mpmath.mpf(k), 12) for p in range(50)]
        np.testing.assert_allclose(table @ npf.shift_matrix(k, 12), expected, atol=1e-13)

    @given(shifts, shifts, even_sizes)
    def test_two_shifts_are_their_sum(self, a, b, d_model):
        both = npf.shift_matrix(a, d_model) @ npf.shift_matrix(b, d_model)
        np.testing.assert_allclose(both, npf.shift_matrix(a + b, d_model), atol=1e-11)

    @given(shifts, even_sizes)
    def test_turns_and_keeps_lengths(self, k, d_model):
        M = npf.shift_matrix(k, d_model)
        np.testing.assert_allclose(M @ M.T, np.eye(d_model), atol=1e-14)
        assert np.linalg.det(M) == pytest.approx(1, abs=1e-12)

    # the edges

    def test_no_shift_is_the_identity(self):
        np.testing.assert_array_equal(npf.shift_matrix(0, 6), np.eye(6))

    @given(shifts, even_sizes)
    def test_back_is_the_transpose(self, k, d_model):
        np.testing.assert_array_equal(npf.shift_matrix(-k, d_model), npf.shift_matrix(k, d_model).T)


class TestLearnedPositions:
    # the equation and the gradient

    @DTYPES
    @together("batch", [(), (3,), (2, 3)])
    def test_row_by_row(self, batch, dtype):
        x, P, dy = (
            random(*batch, 4, 5, dtype=dtype),
            random(6, 5, seed=1, dtype=dtype),
            random(*batch, 4, 5, seed=2),
        )
        y, cache = npf.learned_positions_forward(x, npf.LearnedPositionsParams(P))
        dx, grads = npf.learned_positions_backward(dy.astype(dtype), cache)
        np.testing.assert_array_equal(dx, dy.astype(dtype))
        assert type(grads) is npf.LearnedPositionsParams
        assert y.dtype == dx.dtype == grads.P.dtype == dtype
        assert grads.P.shape == P.shape
        for t in range(4):
            np.testing.assert_array_equal(y[..., t, :], x[..., t, :] + P[t])
            expected = sum((dy[(*index, t)] for index in np.ndindex(batch)), np.zeros(5))
            np.testing.assert_allclose(grads.P[t], expected, atol=1e-14 if dtype is np.float64 else 1e-6)
        np.testing.assert_array_equal(grads.P[4:], np.zeros((2, 5)))

    # the edges

    def test_the_longest_sequence_and_one_more(self):
        params = npf.LearnedPositionsParams(np.zeros((6, 5)))
        assert npf.learned_positions_forward(np.ones((6, 5)), params)[0].shape == (6, 5)
        with pytest.raises(ValueError, match=r"learned_positions_forward: x has 7 positions; .*max_length=6"):
            npf.learned_positions_forward(np.ones((7, 5)), params)


def pairs(x, layout):
    """x as complex numbers, one for each pair of columns."""
    half = x.shape[-1] // 2
    if layout == "halves":
        return x[..., :half] + 1j * x[..., half:]
    return x[..., 0::2] + 1j * x[..., 1::2]


class TestRoPE:
    # the equation

    @DTYPES
    @LAYOUTS
    @together("shape", [(5, 6), (2, 5, 2), (2, 3, 5, 8), (1, 4)])
    @together("base", [{}, {"base": 50.0}])
    def test_each_pair_is_turned_by_its_angle(self, shape, layout, dtype, base):
        x = random(*shape, dtype=dtype)
        y, _ = npf.rope_forward(x, layout=layout, **base)
        assert y.shape == shape
        assert y.dtype == dtype
        T, d = shape[-2:]
        base = base.get("base", 10000)
        angles = np.array([[p * base ** (-2 * i / d) for i in range(d // 2)] for p in range(T)])
        expected = pairs(x.astype(np.float64), layout) * np.exp(1j * angles)
        tolerance = 1e-14 if dtype is np.float64 else 1e-6
        np.testing.assert_allclose(pairs(y.astype(np.float64), layout), expected, atol=tolerance)

    def test_positions_default_to_counting_from_zero(self):
        x = random(2, 5, 4)
        y, _ = npf.rope_forward(x)
        given_positions, _ = npf.rope_forward(x, positions=np.arange(5))
        np.testing.assert_array_equal(y, given_positions)
        np.testing.assert_array_equal(y[:, 0], x[:, 0])

    @LAYOUTS
    @given(st.integers(0, 500), st.integers(0, 500), st.integers(-400, 400))
    def test_only_the_distance_counts(self, layout, p, q, shift):
        query, key = random(1, 8), random(1, 8, seed=1)

        def score(at_query, at_key):
            turned = [
                npf.rope_forward(x, positions=np.array([at]), layout=layout)[0]
                for x, at in ((query, at_query), (key, at_key))
            ]
            return float((turned[0] * turned[1]).sum())

        assert score(p, q) == pytest.approx(score(p + shift, q + shift), abs=1e-11)

    def test_distance_does_count(self):
        x = np.ones((6, 4))
        y, _ = npf.rope_forward(x)
        assert abs(np.diff(y @ y[0])).min() > 0.01

    @LAYOUTS
    def test_lengths_stay(self, layout):
        x = random(2, 7, 6)
        y, _ = npf.rope_forward(x, layout=layout)
        np.testing.assert_allclose((y * y).sum(-1), (x * x).sum(-1), rtol=1e-14)

    # the gradient

    @DTYPES
    @LAYOUTS
    def test_backward_turns_back(self, layout, dtype):
        x, dy = random(2, 7, 6, dtype=dtype), random(2, 7, 6, seed=1, dtype=dtype)
        at = np.array([3, 0, 11, 4, 4, -2, 900])
        y, cache = npf.rope_forward(x, positions=at, layout=layout)
        tolerance = 1e-14 if dtype is np.float64 else 1e-6
        np.testing.assert_allclose(npf.rope_backward(y, cache), x, atol=tolerance)
        back, _ = npf.rope_forward(dy, positions=-at, layout=layout)
        dx = npf.rope_backward(dy, cache)
        np.testing.assert_allclose(dx, back, atol=tolerance)
        assert dx.dtype == dtype
        # The gradient of a linear map is its transpose: ⟨dy, rope(x)⟩ = ⟨dx, x⟩.
        assert float((dy * y).sum()) == pytest.approx(float((dx * x).sum()), abs=100 * tolerance)

    # the edges

    @DTYPES
    @together("position", [0, 4096, 100_003, MILLION])
    def test_far_positions_by_many_digits(self, position, dtype):
        """[1, 0] becomes (cos, sin): the angle itself is on show, in float32 too."""
        x = np.tile(np.array([1, 0], dtype), 8)[None, :]
        y, _ = npf.rope_forward(x, positions=np.array([position]))
        row = row_of_many_digits(position, 16)
        swapped = [row[j + 1 - 2 * (j % 2)] for j in range(16)]
        np.testing.assert_allclose(y[0], swapped, rtol=0, atol=1e-9 if dtype is np.float64 else 6e-8)


class TestALiBi:
    # -log2 of the slopes, head by head, by the paper's rule: for a power of two a geometric sequence starting
    # at its own ratio; for any other number that of the power below, then every other one of its double.
    EXPONENTS: ClassVar = {
        1: [8],
        2: [4, 8],
        3: [4, 8, 2],
        4: [2, 4, 6, 8],
        5: [2, 4, 6, 8, 1],
        6: [2, 4, 6, 8, 1, 3],
        8: [1, 2, 3, 4, 5, 6, 7, 8],
        12: [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5],
        16: [0.5 * i for i in range(1, 17)],
    }

    @together("n_heads", EXPONENTS)
    def test_slopes(self, n_heads):
        slopes = -npf.alibi_bias(n_heads, 1, 2)[:, 0, 0]  # the one query stands at key 1: distance 1 to key 0
        np.testing.assert_allclose(
            slopes, [2.0**-exponent for exponent in self.EXPONENTS[n_heads]], rtol=1e-15
        )

    @together("n_heads", [7, 20, 31, 33, 100])
    def test_slopes_of_odd_numbers_of_heads(self, n_heads):
        power = 2 ** (n_heads.bit_length() - 1)
        expected = [2 ** (-8 * (i + 1) / power) for i in range(power)]
        expected += [2 ** (-8 * (i + 1) / (2 * power)) for i in range(2 * power)][0::2][: n_heads - power]
        slopes = -npf.alibi_bias(n_heads, 1, 2)[:, 0, 0]
        np.testing.assert_allclose(slopes, expected, rtol=1e-14)

    @DTYPES
    @together(("T_q", "T_k"), [(4, 4), (2, 5), (5, 2), (1, 1)])
    def test_distances_with_the_last_query_at_the_last_key(self, T_q, T_k, dtype):
        bias = npf.alibi_bias(2, T_q, T_k, dtype=dtype)
        assert bias.shape == (2, T_q, T_k)
        assert bias.dtype == dtype
        for back_q in range(T_q):
            for back_k in range(T_k):
                for head, slope in enumerate((1 / 16, 1 / 256)):
                    entry = bias[head, T_q - 1 - back_q, T_k - 1 - back_k]
                    assert entry == -slope * abs(back_q - back_k)
