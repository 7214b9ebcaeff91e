"""gradcheck measures noise in forward: rounded values, iterations that stop early, and step functions."""

from collections.abc import Callable

import numpy as np
import pytest

import npformer as npf
from npformer.gradcheck import noise as noise_module
from npformer.gradcheck.function_calls import Calls
from npformer.gradcheck.noise import Noise, measure_noise


def round_to_bfloat16(x):
    """Round to the 8 significant bits of bfloat16."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa * 2.0**8), exponent - 8)


def round_to(dtype):
    """Return a function that rounds to a dtype and returns float64."""
    return lambda x: x.astype(dtype).astype(float)


ROUNDINGS = {"float16": round_to(np.float16), "bfloat16": round_to_bfloat16, "float32": round_to(np.float32)}
UNITS = {"float16": 2.0**-11, "bfloat16": 2.0**-9, "float32": 2.0**-24}


def make_affine(dtype):
    """Return a pair whose product is rounded: the output is tanh(x W + b)."""
    rounded = ROUNDINGS[dtype]

    def forward(x, W, b):
        return np.tanh(rounded(x @ W) + b), (x, W, b)

    def backward(dy, cache):
        x, W, b = cache
        ds = dy * (1 - np.tanh(x @ W + b) ** 2)
        return ds @ W.T, x.T @ ds, ds.sum(0)

    return forward, backward


def make_loss(dtype):
    """Return a pair whose activation is rounded: the output is one number, the sum of tanh(x W + b)²."""
    rounded = ROUNDINGS[dtype]

    def forward(x, W, b):
        return np.sum(rounded(np.tanh(x @ W + b)) ** 2), (x, W, b)

    def backward(dy, cache):
        x, W, b = cache
        y = np.tanh(x @ W + b)
        ds = dy * 2 * y * (1 - y**2)
        return ds @ W.T, x.T @ ds, ds.sum(0)

    return forward, backward


SEEDS = [0, pytest.param(1, marks=pytest.mark.slow)]


def draw_arguments(seed):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((4, 3)), rng.standard_normal((3, 5)), rng.standard_normal(5)


def get_verdicts(report):
    return [row.verdict for row in report.rows]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ROUNDINGS)
@pytest.mark.parametrize("make", [make_affine, make_loss])
def test_gradcheck_forward_that_rounds_inside_is_unsure(make, dtype, seed):
    report = npf.gradcheck(*make(dtype), *draw_arguments(seed), rng=np.random.default_rng(seed))
    assert "fail" not in get_verdicts(report), report
    assert "forward is" in report.rows[0].note


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ROUNDINGS)
def test_gradcheck_forward_that_rounds_inside_passes_with_reference(dtype, seed):
    forward, backward = make_affine(dtype)
    args = draw_arguments(seed)
    report = npf.gradcheck(forward, backward, *args, reference=lambda x, W, b: np.tanh(x @ W + b))
    assert report, report


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])  # bfloat16 has too few digits to find a factor
def test_gradcheck_finds_factor_although_forward_rounds(dtype, seed):
    forward, backward = make_affine(dtype)

    def twice(dy, cache):
        dx, dW, db = backward(dy, cache)
        return 2 * dx, dW, db

    report = npf.gradcheck(forward, twice, *draw_arguments(seed), rng=np.random.default_rng(seed))
    assert report.rows[0].verdict == "fail", report
    assert "fail" not in get_verdicts(report)[1:], report


@pytest.mark.parametrize("dtype", ROUNDINGS)
def test_measure_noise_is_one_rounding_unit(dtype):
    forward, backward = make_affine(dtype)
    calls = Calls(forward, backward, draw_arguments(0), {}, None)
    for leaf in list(calls.leaves.values())[:2]:
        noise = measure_noise(calls, leaf)
        assert UNITS[dtype] / 8 < noise.level < 8 * UNITS[dtype]
        assert noise.height > 0


def bisect(x):
    """Solve y³ + y = x to six digits."""
    low, high = np.full_like(x, -5), np.full_like(x, 5)
    while (high - low).max() > 1e-6:
        middle = (low + high) / 2
        is_above = middle**3 + middle > x
        low, high = np.where(is_above, low, middle), np.where(is_above, middle, high)
    return (low + high) / 2


def test_gradcheck_solver_that_stops_early_is_unsure():
    x = np.random.default_rng(0).standard_normal((4, 3))
    report = npf.gradcheck(lambda x: (bisect(x), x), lambda dy, x: dy / (3 * bisect(x) ** 2 + 1), x)
    assert get_verdicts(report) == ["unsure"]


STAIRS: dict[str, Callable] = {
    "round": np.round,
    "grid": lambda x: np.round(x / 0.01) * 0.01,
    "sign": np.sign,
    "floor": np.floor,
    "step": lambda x: (x > 0) * 1.0,
    "one-hot of argmax": lambda x: np.eye(x.shape[-1])[x.argmax(-1)],
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", STAIRS)
def test_gradcheck_straight_through_gradient_is_unsure(name, seed):
    x = np.random.default_rng(seed).standard_normal((4, 3))
    report = npf.gradcheck(lambda x: (STAIRS[name](x), None), lambda dy, _: dy, x)
    assert get_verdicts(report) == ["unsure"], report
    assert "a staircase with steps of" in report.rows[0].note


@pytest.mark.parametrize("name", STAIRS)
def test_gradcheck_staircase_with_zero_gradient_passes(name):
    x = np.random.default_rng(0).standard_normal((4, 3))
    assert npf.gradcheck(lambda x: (STAIRS[name](x), None), lambda dy, _: 0 * dy, x)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# Functions without steps, though most are constant or nearly constant near the tested point. A wrong
# gradient of such a function must still fail.
FLAT: dict[str, tuple[Callable, np.ndarray]] = {
    "ReLU below 0": (lambda x: np.maximum(x, 0), -abs(np.random.default_rng(0).standard_normal(3)) - 0.1),
    "one ReLU below 0": (lambda x: np.maximum(x, 0), np.array([-1.0])),
    "clip outside": (lambda x: np.clip(x, -0.5, 0.5), np.array([2.0, -3.0])),
    "soft shrinkage": (lambda x: np.sign(x) * np.maximum(abs(x) - 1, 0), np.array([0.2, -0.4, 0.1])),
    "saturated softmax": (softmax, 60 * np.random.default_rng(0).standard_normal((3, 4))),
    "saturated tanh": (np.tanh, np.array([30.0, -25.0, 0.5])),
    "constant": (np.zeros_like, np.array([1.0, 2.0])),
    "absolute value near 0": (abs, np.array([1e-3, -2e-3, 1.0])),
}


@pytest.mark.parametrize("name", FLAT)
def test_gradcheck_constant_part_is_no_staircase(name):
    function, x = FLAT[name]
    report = npf.gradcheck(lambda x: (function(x), None), lambda dy, _: dy, x)
    assert get_verdicts(report) == ["fail"], report


def test_gradcheck_unknown_entries_are_no_evidence():
    """Eleven of twelve entries are at a kink. The note must not say that these entries agree."""
    x = np.zeros(12)
    x[5] = 1.0
    forward = lambda x: (np.maximum(x, 0), x)  # noqa: E731
    report = npf.gradcheck(forward, lambda dy, x: dy * 1.37 * (x > 0), x)
    assert report.rows[0].verdict == "fail"
    assert "the others are correct" not in report.rows[0].note
    assert "11 of 12 at a kink" in report.rows[0].note


def test_gradcheck_empty_array_next_to_wrong_gradient():
    x, empty = np.ones(3), np.ones((0, 2))
    forward = lambda x, empty: (x**2, (x, empty))  # noqa: E731
    report = npf.gradcheck(forward, lambda dy, cache: (dy * cache[0], cache[1]), x, empty)
    assert get_verdicts(report) == ["fail", "pass"]


def test_measure_noise_is_zero_for_smooth_function_only():
    forward, backward = make_affine("float32")
    calls = Calls(forward, backward, draw_arguments(0), {}, None)
    for leaf in list(calls.leaves.values())[:2]:
        assert measure_noise(calls, leaf) != Noise()
    smooth = Calls(lambda x: (np.sin(x), x), lambda dy, x: dy * np.cos(x), (np.ones(3),), {}, None)
    (leaf,) = smooth.leaves.values()
    assert measure_noise(smooth, leaf) == Noise()


def test_gradcheck_many_arrays_have_the_correct_verdicts():
    """With many arrays, a few short steps decide whether there is noise at all."""
    arrays = [np.random.default_rng(seed).standard_normal(4) for seed in range(30)]

    def backward(dy, total):
        slope = dy * np.cos(total)
        return (*([slope] * 29), 2 * slope)

    report = npf.gradcheck(lambda *xs: (np.sin(sum(xs)), sum(xs)), backward, *arrays)
    assert get_verdicts(report) == ["pass"] * 29 + ["fail"], report


def make_calls_with_noise(grid, factor=1.0):
    """Return calls of sin x + c, where c is cos x rounded to a grid. This is noisy, but not a staircase."""
    x = np.random.default_rng(0).standard_normal(6)

    def forward(x):
        return factor * (np.sin(x) + np.round(np.cos(x) / grid) * grid), x

    return Calls(forward, lambda dy, x: dy, (x,), {}, None)


@pytest.mark.parametrize("exponent", [-42, -24, -18, -11, -9])
def test_measure_noise_of_rounded_term_is_its_grid(exponent):
    """Noise of 2⁻⁴² changes the quotients of short steps so little that they still agree."""
    calls = make_calls_with_noise(2.0**exponent)
    (leaf,) = calls.leaves.values()
    noise = measure_noise(calls, leaf)
    assert noise.height == 0
    assert 2.0 ** (exponent - 3) < noise.level < 2.0 ** (exponent + 3)
    assert 0 < noise.share <= noise.level


def test_measure_noise_is_relative_to_output():
    small, large = (make_calls_with_noise(2.0**-24, factor) for factor in (1.0, 1024.0))
    noises = [measure_noise(calls, *calls.leaves.values()) for calls in (small, large)]
    assert noises[0] == pytest.approx(noises[1], rel=1e-9)
    assert noises[0].level > 0


def test_measure_noise_of_smooth_function_is_cheap():
    """24 calls of forward are enough.

    They are at seven points for each of three short steps, two points of a longer step, and one point that
    measures rounding.
    """
    n_calls = []

    def forward(x):
        n_calls.append(1)
        return np.sin(x), x

    calls = Calls(forward, lambda dy, x: dy * np.cos(x), (np.ones(3),), {}, None)
    (leaf,) = calls.leaves.values()
    n_calls.clear()
    measure_noise(calls, leaf)
    assert len(n_calls) == 3 * 7 + 2 + 1


@pytest.mark.parametrize(
    "pairs, levels",
    [
        ([(1, 1), (1, 1), (1, 1)], [1.0]),
        ([(1, 2), (3, 2), (4, 4)], [4.0]),  # still flat: the largest is four times the smallest
        ([(1, 2), (3, 2), (4.1, 4)], []),
        ([(1, 2), (3, 2), (4, 4), (2, 7)], [4.0, 7.0]),
        ([(0, 0), (0, 0), (0, 0)], []),
        ([(1, 1), (1, 1)], []),
    ],
    ids=str,
)
def test_list_flat_runs_of_three_lengths(pairs, levels):
    assert noise_module._list_flat_runs(pairs) == levels


@pytest.mark.parametrize(
    "pairs, level",
    [
        # Without a flat run, the level is the largest number. The two longest steps do not count.
        ([(1, 2), (9, 10), (100, 90), (1000, 1000), (10_000, 10_000)], 100.0),
        ([(1, 1), (1, 1), (1, 1), (5, 6), (7, 8), (9, 9)], 9.0),  # the last flat run
        ([(7, 7), (80, 80)], 0.0),
    ],
    ids=str,
)
def test_find_level_of_staircase_uses_last_flat_run(pairs, level):
    assert noise_module._find_level_of_staircase(pairs) == level


def test_measure_height_survives_a_step_between_neighbours():
    """The output jumps between t = 1 and 1 + CLOSE, so the points 1 + CLOSE and 1 + 2 CLOSE decide."""
    first_step = 1 + noise_module.CLOSE / 2

    def evaluate(t):
        return 0.25 * np.floor(np.array([(t - first_step) / 0.3]))

    assert noise_module._measure_height(evaluate(0.0), evaluate) == 0.25


def make_residual(dtype, factor=1.0):
    """Return a pair whose second term is rounded: the output is x + tanh(x W). `factor` multiplies dx."""
    rounded = ROUNDINGS[dtype]

    def forward(x, W):
        return x + rounded(np.tanh(x @ W)), (x, W)

    def backward(dy, cache):
        x, W = cache
        ds = dy * (1 - np.tanh(x @ W) ** 2)
        return factor * (dy + ds @ W.T), x.T @ ds

    return forward, backward


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ROUNDINGS)
def test_gradcheck_rounded_term_next_to_exact_term(dtype, seed):
    """For short steps, the rounded term is constant, so the output looks smooth but has a wrong slope."""
    x, W, _ = draw_arguments(seed)
    report = npf.gradcheck(*make_residual(dtype), x, W[:, :3])
    assert get_verdicts(report) == ["unsure", "unsure"], report


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_gradcheck_finds_factor_next_to_rounded_term(dtype):
    x, W, _ = draw_arguments(0)
    report = npf.gradcheck(*make_residual(dtype, 2.0), x, W[:, :3])
    assert get_verdicts(report)[0] == "fail", report
