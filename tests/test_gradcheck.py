"""Tests of the gradient checker: verdicts on correct and wrong backward passes, notes, and the report."""

import copy
import math
import pickle
import re
from argparse import Namespace
from collections import Counter
from functools import cache, partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import mpmath
import numpy as np
import pytest
from make_kill_table import hard, otherwise, planted, refilled, verdict_of
from pairs import (
    FRESH_BUGS,
    HARD_PAIRS,
    LATER_BUGS,
    PAIRS_WITH_NOTES,
    PLANTED_BUGS,
    VERDICT_OF_LABEL,
    make_pair,
)
from valid_calls import fingerprint

import npformer as npf
from npformer import GradientReport, GradientRow, LayerNormParams, assert_gradients, gradcheck
from npformer.gradcheck.diagnosis import _collect_arrays, _compute_tables, _count_failures
from npformer.gradcheck.finite_differences import Estimate, Line, Reason
from npformer.gradcheck.function_calls import Calls
from npformer.gradcheck.high_precision import describe_sampling
from npformer.gradcheck.leaf_comparison import TABLE_LIMIT, LeafComparison
from npformer.gradcheck.notes import describe_count, describe_observation
from npformer.gradcheck.relations import Relation
from npformer.gradcheck.report import VERDICTS, Precision, make_note

ALL_BUGS = PLANTED_BUGS | LATER_BUGS | FRESH_BUGS


def square(x):
    return x * x, x


def square_backward(dy, x):
    return 2 * x * dy


def check_one_row(*args, **kwargs):
    """Run gradcheck, and return the only row of the report."""
    (row,) = gradcheck(*args, **kwargs).rows
    return row


def get_verdicts(report):
    return {row.path: row.verdict for row in report.rows}


def get_worst_verdict(report):
    worst_first = list(VERDICTS)
    return min((row.verdict for row in report.rows), key=worst_first.index)


def get_failing_paths(report):
    return {row.path for row in report.rows if row.verdict == "fail"}


# Wrong backward passes fail and get a note. Hard pairs get the verdict that mathematics determines

PAGE = (Path(__file__).parent / "data" / "kills.md").read_text(encoding="utf-8")
_, *SECTIONS = PAGE.split("\n## ")


def mask_rounding(line):
    """Replace numbers in scientific notation, because they depend on the order in which a sum is rounded."""
    return re.sub(r"-?[\d.]+e[-+]\d+", "so many", line)


@pytest.mark.parametrize(
    "number, make_table",
    [
        pytest.param(0, partial(planted, PLANTED_BUGS), id="planted", marks=pytest.mark.slow),
        pytest.param(1, partial(planted, LATER_BUGS), id="more planted", marks=pytest.mark.slow),
        pytest.param(2, partial(planted, FRESH_BUGS), id="fresh", marks=pytest.mark.slow),
        pytest.param(3, hard, id="hard pairs"),
        pytest.param(4, otherwise, id="float32 and directions", marks=pytest.mark.slow),
    ],
)
def test_gradcheck_reports_match_the_kill_table(number, make_table):
    """If this test fails because kills.md is out of date, run tests/data/make_kill_table.py."""
    current = refilled(SECTIONS[number], *make_table()).splitlines()
    expected = SECTIONS[number].splitlines()
    different = []
    for line, expected_line in zip(current, expected, strict=True):
        if mask_rounding(line) != mask_rounding(expected_line):
            different.append(line)
    assert different == []


@cache
def read_kill_table():
    """Return {first cell: other cells} for all rows of the first four tables in kills.md."""
    cells_by_name = {}
    for line in "\n".join(SECTIONS[:4]).splitlines():
        if line.startswith("| "):
            text = line[2:].replace("\\|", "¦")  # replace escaped bars, because they do not end a cell
            name, *cells = text.split(" | ")
            cells_by_name[name.replace("¦", "|")] = cells
    return cells_by_name


@pytest.mark.parametrize("name", [*ALL_BUGS][3::8])  # the slow test above tries all of them
def test_gradcheck_planted_mistake_has_its_description(name):
    bug = ALL_BUGS[name]
    *_, verdict, description = read_kill_table()[name]
    expected = verdict, mask_rounding(description.removesuffix(" |"))
    current_verdict, current_description = verdict_of(bug.forward, bug.wrong, bug.args)
    assert (current_verdict, mask_rounding(current_description)) == expected


@pytest.mark.parametrize("name", ALL_BUGS)
def test_kill_table_planted_mistake_fails(name):
    _, verdict, description = read_kill_table()[name]
    paths = description.partition(":")[0].split(", ")
    assert verdict == "fail"
    assert set(paths) == ALL_BUGS[name].spoils


@pytest.mark.parametrize("name", PLANTED_BUGS)
def test_kill_table_planted_mistake_is_described(name):
    *_, description = read_kill_table()[name]
    assert ";" in description


def test_kill_table_most_fresh_mistakes_are_named():
    """A note that says only that numbers are wrong does not count: it does not name the mistake."""
    descriptions = [read_kill_table()[name][-1] for name in FRESH_BUGS]
    named = [text for text in descriptions if ";" in text and "with wrong numbers;" not in text]
    assert len(named) >= 0.8 * len(descriptions)


@pytest.mark.parametrize("name", HARD_PAIRS)
def test_kill_table_hard_pair_has_its_verdict(name):
    label, *_ = HARD_PAIRS[name]
    assert read_kill_table()[name][:2] == [label, VERDICT_OF_LABEL[label]]


CORRECT = {name.partition(": ")[0]: bug for name, bug in ALL_BUGS.items()}


def test_correct_pairs_cover_every_planted_operation():
    assert {bug.right for bug in CORRECT.values()} == {bug.right for bug in ALL_BUGS.values()}


@pytest.mark.parametrize("operation", CORRECT)
def test_gradcheck_correct_pair_passes_without_note(operation):
    bug = CORRECT[operation]
    report = gradcheck(bug.forward, bug.right, *bug.args)
    assert report, report
    assert all(row.note == "" for row in report.rows), report


@pytest.mark.parametrize("name", PAIRS_WITH_NOTES)
def test_gradcheck_pair_has_its_verdict_and_note(name):
    label, forward, backward, args, kwargs, note = make_pair(*PAIRS_WITH_NOTES[name])
    before = fingerprint(args)
    if label == "refused":
        with pytest.raises((TypeError, ValueError), match=f"^{re.escape(f'gradcheck: {note}')}"):
            gradcheck(forward, backward, *args, **kwargs)
        return
    report = gradcheck(forward, backward, *args, **kwargs)
    assert fingerprint(args) == before
    assert get_worst_verdict(report) == VERDICT_OF_LABEL[label]
    assert note in "\n".join(f"{row.path} {row.verdict}: {row.note}" for row in report.rows)


def test_pairs_with_a_note_are_many():
    assert len(PAIRS_WITH_NOTES) > 90


def test_gradcheck_row_has_worst_entry_and_numbers():
    def backward_with_two_errors(dy, x):
        dx = square_backward(dy, x)
        dx[0, 1] *= 1 + 1e-3
        dx[1, 2] += 3 * dx[1, 1]
        return dx

    x = np.arange(1.0, 7.0).reshape(2, 3)
    d_output = np.random.default_rng(0).standard_normal((2, 3))
    row = check_one_row(square, backward_with_two_errors, x)
    assert (row.path, row.index, row.verdict) == ("x", (1, 2), "fail")
    assert row.analytic == backward_with_two_errors(d_output, x)[1, 2]
    assert row.numeric == pytest.approx(2 * x[1, 2] * d_output[1, 2], rel=1e-10)
    largest = abs(2 * x * d_output).max()
    assert row.error == pytest.approx(abs(row.analytic - row.numeric) / largest, rel=1e-6)


# Correct gradients do not fail

# The function of x, and its derivative as a function of x and y.
ACTIVATIONS: dict[str, tuple[Any, Any]] = {
    "tanh": (np.tanh, lambda x, y: 1 - y * y),
    "sin": (np.sin, lambda x, y: np.cos(x)),
    "square": (np.square, lambda x, y: 2 * x),
    "relu": (lambda x: np.maximum(x, 0), lambda x, y: x > 0),
    "absolute": (abs, lambda x, y: np.sign(x)),
    "leaky relu": (lambda x: np.where(x > 0, x, x / 8), lambda x, y: np.where(x > 0, 1, 1 / 8)),
}


def make_chain(seed, longest):
    """Make a random pair for y = activations((x W + b) / (s t)), and its arguments.

    Some activations have kinks. x and W have random magnitudes s and t, and b may be 0. The axes of the
    arrays have lengths up to `longest`.
    """
    rng = np.random.default_rng(seed)
    names = rng.choice([*ACTIVATIONS], rng.integers(1, 4))
    dtype = rng.choice([np.float64, np.float32])
    exponents = rng.integers(-8, 9, 2) if dtype is np.float64 else rng.integers(-5, 6, 2)
    s, t = 10.0**exponents
    n, m = rng.integers(1, longest + 1, 2)
    scale_of_b = s * t * rng.integers(2)
    shapes = [((n, m), s), ((m, m), t), ((m,), scale_of_b)]
    arrays = [(scale * rng.standard_normal(shape)).astype(dtype) for shape, scale in shapes]

    def forward(x, W, b):
        values = [(x @ W + b) / x.dtype.type(s * t)]
        for name in names:
            activation, _ = ACTIVATIONS[name]
            values.append(activation(values[-1]))
        return values[-1], (x, W, values)

    def backward(dy, cache):
        x, W, values = cache
        for name, y, before in zip(names[::-1], values[::-1], values[-2::-1], strict=False):
            _, derivative = ACTIVATIONS[name]
            dy = dy * derivative(before, y).astype(dy.dtype)
        dy = dy / dy.dtype.type(s * t)
        return dy @ W.T, x.T @ dy, dy.sum(axis=0)

    return forward, backward, arrays


def make_one_percent_larger(backward):
    """Make a wrong backward pass, in which all gradients are 1 % too large."""

    def wrong_backward(dy, cache):
        return [gradient * gradient.dtype.type(1.01) for gradient in backward(dy, cache)]

    return wrong_backward


CHAINS = [(seed, 2) for seed in range(140)]
HARD_CHAINS = [(seed, 4) for seed in (981, 1000, 1027, 1188, 1228, 1329)]  # difficult, e.g. tanh near 1


@pytest.mark.parametrize("chains", [CHAINS[::5], pytest.param(CHAINS + HARD_CHAINS, marks=pytest.mark.slow)])
def test_gradcheck_random_chains_have_the_correct_verdict(chains):
    """Correct gradients do not fail. Gradients that are 1 % too large pass only if they are 0."""
    counts = Counter()
    for seed, longest in chains:
        forward, backward, arrays = make_chain(seed, longest)
        report = gradcheck(forward, backward, *arrays)
        counts["correct", get_worst_verdict(report)] += 1
        report = gradcheck(forward, make_one_percent_larger(backward), *arrays)
        is_zero = not any(row.analytic for row in report.rows)
        counts["zero" if is_zero else "wrong", get_worst_verdict(report)] += 1
    assert counts["correct", "fail"] == 0, counts
    assert counts["wrong", "pass"] == 0, counts
    assert counts["correct", "pass"] > 0.92 * len(chains), counts
    assert counts["wrong", "fail"] > 0.88 * len(chains), counts


# The accuracy of the estimated derivatives, and the steps of the finite differences

FUNCTIONS = {  # {expression: the points of the check}; both NumPy and mpmath evaluate the expression
    "exp(x)": [-3.0, 0.0, 0.1, 2.0],
    "exp(x / 1e30)": [1e30, -3e30],
    "erf(x)": [-1.3, 0.0, 0.9],
    "log(x)": [0.02, 1.0, 1e-6, 1e30, 1e-30],
    "sqrt(x)": [0.7, 1e-6, 1e-12, 1e30],
    "acos(x)": [0.7, -0.3, 0.999],
    "sin(x)": [-3.0, 0.0, 0.3, 10.0],
    "sin(2**14 * pi * x)": [0.3, -1.2, 1.7, 0.01],
    "1 / x": [-0.05, 0.3, 1.0, 40.0],
    "x**7": [-1.1, 0.9, 2.5, 1e3],
    "x * x": [1e-30, -3e30],
}
POINTS = [(text, seed, point) for text, points in FUNCTIONS.items() for seed, point in enumerate(points)]


@pytest.mark.parametrize("factor, verdict", [(1, "pass"), (1.001, "fail")])
@pytest.mark.parametrize("text, seed, point", POINTS)
def test_gradcheck_estimate_has_ten_correct_digits(text, seed, point, factor, verdict):
    """The estimate is accurate even if some steps leave the domain of the function."""
    f = eval(f"lambda x: {text}", vars(np) | {"erf": np.vectorize(math.erf)})
    exact_f = eval(f"lambda x: {text}", vars(mpmath))
    with mpmath.workdps(100):
        derivative = float(mpmath.diff(exact_f, point, h=mpmath.mpf(10) ** -50))

    def forward(x):
        if not np.isfinite(f(x)).all():
            raise ValueError("outside of its domain")
        return f(x), None

    def backward(dy, _):
        return dy * (factor * derivative)

    row = check_one_row(forward, backward, np.array([point]), rng=np.random.default_rng(seed))
    assert row.verdict == verdict, row
    accuracy = 1e-9 if "2**14" in text else 1e-10  # the large argument of this sine is rounded
    assert abs(row.numeric - row.analytic / factor) <= accuracy * abs(row.analytic), row


def test_gradcheck_smooth_function_needs_six_evaluations_an_entry():
    """gradcheck needs six evaluations per entry, and four more for the whole check."""
    points = []

    def forward(x):
        points.append(x.copy())
        return np.sin(x), x

    x = np.array([1.0, -0.8, 0.9, 1.1, -1.2])
    assert gradcheck(forward, lambda dy, x: dy * np.cos(x), x)
    steps = [float(abs(point - x).max()) for point in points]
    assert len(points) == 4 + 6 * 5
    assert max(steps) < 0.01
    assert len(set(steps) - {0.0}) >= 15  # the steps are random


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("k", range(4, 21))
def test_gradcheck_staircase_passes_with_zero_only(seed, k):
    x = np.random.default_rng(seed).standard_normal(4)

    def staircase(x):
        return np.round(x * 2.0**k) / 2.0**k, x

    report = gradcheck(staircase, lambda dy, _: dy, x, rng=np.random.default_rng(seed))
    assert not report, report
    report = gradcheck(staircase, lambda dy, _: 0 * dy, x, rng=np.random.default_rng(seed))
    assert get_worst_verdict(report) in ("pass", "unsure"), report


def test_gradcheck_kink_numeric_is_mean_of_both_sides():
    row = check_one_row(npf.relu_forward, npf.relu_backward, np.array([[1.0, -2.0], [0.0, 3.0]]))
    d_output = np.random.default_rng(0).standard_normal((2, 2))
    assert (row.verdict, row.index, row.analytic) == ("kink", (1, 0), 0.0)
    assert row.numeric == pytest.approx(d_output[1, 0] / 2)


def test_line_estimate_without_finite_confirmation_has_no_bound():
    one = np.ones(1)
    line = Line(lambda t: (t, one * t), 0 * one, one, 2.0**-52, np.random.default_rng(0))
    other = line.estimate(1.0)._replace(value=math.nan)
    assert line.estimate_and_confirm(1.0, math.inf).error_bound < 1e-10
    assert line.estimate_and_confirm(1.0, math.inf, other).error_bound == math.inf


# Large arrays: random directions


@pytest.fixture
def ffn():
    """Return x, parameters, a forward pass, and a list that grows by one at each call of the forward pass."""
    rng = np.random.default_rng(5)
    x, params = rng.standard_normal((2, 3, 40)), npf.init_ffn(40, 60, rng)
    calls = []

    def forward(x, params):
        calls.append(1)
        return npf.ffn_forward(x, params, activation="gelu")

    return x, params, forward, calls


def test_gradcheck_directions_report_what_they_may_miss(ffn):
    x, params, forward, calls = ffn
    report = gradcheck(forward, npf.ffn_backward, x, params, directions=2)
    assert report
    assert len(calls) < 100
    sampled = str(report).splitlines()[1]
    assert sampled.startswith("2 random directions for each array of more entries: one wrong")
    assert sampled.endswith("slips through with a chance of 6e-03")


def test_gradcheck_directions_skip_small_arrays():
    assert gradcheck(square, square_backward, np.ones(2), directions=2).sampled == ""


def test_gradcheck_directions_find_one_wrong_entry(ffn):
    x, params, forward, _ = ffn

    def backward_with_one_error(dy, cache):
        dx, grads = npf.ffn_backward(dy, cache)
        W_1 = grads.W_1.copy()
        W_1[7, 5] *= 1.001
        return dx, grads._replace(W_1=W_1)

    report = gradcheck(forward, backward_with_one_error, x, params, directions=2)
    assert get_failing_paths(report) == {"params.W_1"}
    assert report.rows[1].index == ()
    assert report.rows[1].note == ""  # a direction sums over all entries, so the wrong entry is unknown


def test_gradcheck_directions_error_is_relative_to_gradient_length():
    """The root mean square of the derivatives along random directions is the norm of the gradient."""
    w = np.random.default_rng(0).standard_normal(60)

    def forward(x):
        return np.array([x @ w]), None

    row = check_one_row(forward, lambda dy, _: 1.01 * dy * w, np.ones(60), directions=50)
    d_output = np.random.default_rng(0).standard_normal(1)
    length = np.linalg.norm(d_output * w)
    assert abs(row.analytic - row.numeric) / row.error == pytest.approx(length, rel=0.3)


def make_sampled(gradient, error_bounds, max_error, is_sampled=True):
    """Make a comparison along random directions, with only the fields that `describe_sampling` reads."""
    estimates = [Namespace(error_bound=error_bound) for error_bound in error_bounds]
    limits = Namespace(max_error=max_error)
    gradient, count = np.array(gradient), len(estimates)
    return Namespace(
        gradient=gradient, estimates=estimates, limits=limits, count=count, is_sampled=is_sampled
    )


@pytest.mark.parametrize(
    "comparisons, text",
    [
        # An error changes the derivative along a direction by u times the error, where u is standard normal.
        # An error of ten times the limit passes if |u| <= 0.1. The probability is about 0.08.
        pytest.param(
            [make_sampled([1.0, -4.0], [1e-3, 3e-3], 1e-3)],  # accepted share: (1e-3 + 3e-3) / 4
            "2 random directions * off by 1e-02 of * a chance of 6e-03",
            id="bound and accepted error",
        ),
        pytest.param(
            [
                make_sampled([2.0], [0.0] * 3, 2e-6),
                make_sampled([1.0], [0.0] * 3, 3e-5),
                make_sampled([0.0], [0.0] * 3, 1.0),  # a gradient of zeros has no largest entry
                make_sampled([1.0], [0.0] * 3, 1.0, is_sampled=False),
            ],
            "3 random directions * off by 3e-04 of * a chance of 5e-04",
            id="the largest of several leaves",
        ),
    ],
)
def test_describe_sampling_has_error_and_chance(comparisons, text):
    pattern = ".*".join(map(re.escape, text.split("*")))
    assert re.fullmatch(pattern, describe_sampling(comparisons))


def test_gradcheck_directions_name_a_common_factor(ffn):
    x, params, forward, _ = ffn

    def triple(dy, cache):
        return npf.tree_map(lambda g: 3 * g, npf.ffn_backward(dy, cache))

    report = gradcheck(forward, triple, x, params, directions=3)
    assert all(row.note.startswith("the gradient is 3 times the correct gradient") for row in report.rows)


def test_gradcheck_directions_pass_in_spite_of_kinks():
    rng = np.random.default_rng(6)
    x, params = rng.standard_normal((4, 8, 32)), npf.init_ffn(32, 64, rng)
    calls = []

    def forward(x, params):
        calls.append(1)
        return npf.ffn_forward(x, params)

    for seed in range(3):  # the limit of calls below is for all three reports
        rng = np.random.default_rng(seed)
        assert gradcheck(forward, npf.ffn_backward, x, params, directions=2, rng=rng), seed
    assert len(calls) < 3 * 200


# The paths of the leaves


def test_gradcheck_paths_are_names_of_parameters():
    def forward(x, params, *others):
        return x + params.b_1 + others[0][1] + others[1], None

    def backward(dy, _):
        return dy, npf.FFNParams(None, dy, 0 * dy, 0 * dy), (0 * dy, dy), dy

    params = npf.FFNParams(*np.ones((4, 2)))._replace(W_1=None)
    others = (np.ones(2), np.ones(2)), np.ones(2)
    report = gradcheck(forward, backward, np.ones(2), params, *others)
    assert report, report
    assert [row.path for row in report.rows] == [
        "x", "params.b_1", "params.W_2", "params.b_2", "others[0].0", "others[0].1", "others[1]"
    ]  # fmt: skip


def test_gradcheck_function_without_signature_has_numbered_paths():
    class Product:
        __signature__ = "none"

        def __call__(self, x, y):
            return x * y, (x, y)

    def backward(dy, cache):
        return dy * cache[1], dy * cache[0]

    report = gradcheck(Product(), backward, np.ones(2), np.ones(2))
    assert get_verdicts(report) == {"args[0]": "pass", "args[1]": "pass"}


def test_gradcheck_passes_modules_and_keywords_on():
    def forward(x, xp, **options):
        return xp.square(x) * options["factor"], x

    assert gradcheck(forward, lambda dy, x: 6 * x * dy, np.ones(2), np, factor=3)


def test_gradcheck_does_not_catch_errors_of_backward():
    def backward(dy, cache):
        raise ZeroDivisionError("the student's own")

    with pytest.raises(ZeroDivisionError, match="the student's own"):
        gradcheck(square, backward, np.ones(2))


# Random numbers


def test_gradcheck_report_depends_on_rng_only():
    x = np.random.default_rng(1).standard_normal((3, 4))
    args = npf.layer_norm_forward, npf.layer_norm_backward, x, LayerNormParams(np.ones(4), np.zeros(4))
    assert gradcheck(*args) == gradcheck(*args) == gradcheck(*args, rng=np.random.default_rng(0))
    assert gradcheck(*args) != gradcheck(*args, rng=np.random.default_rng(1))


def test_gradcheck_generator_among_arguments_is_not_advanced():
    generator, x = np.random.default_rng(5), np.ones((4, 5))
    assert gradcheck(npf.dropout_forward, npf.dropout_backward, x, 0.5, generator)
    assert generator.random() == np.random.default_rng(5).random()


def test_gradcheck_rng_is_copied_for_forward():
    dropped = []

    def forward(x, rate, rng=None):
        y, cache = npf.dropout_forward(x, rate, rng)
        dropped.append((y == 0).sum())
        return y, cache

    x = np.ones((4, 5))
    assert gradcheck(npf.dropout_forward, npf.dropout_backward, x, rate=0.5, rng=np.random.default_rng(5))
    assert gradcheck(forward, npf.dropout_backward, x, 0.5, rng=np.random.default_rng(5))
    assert min(dropped) > 0
    generator, rng = np.random.default_rng(1), np.random.default_rng(5)
    assert gradcheck(forward, npf.dropout_backward, np.ones(3), 0.5, generator, rng=rng)


def test_gradcheck_rejects_dropout_with_hidden_generator():
    generator = np.random.default_rng(5)
    with pytest.raises(ValueError, match=r"^gradcheck: forward gives another output when it is called again"):
        gradcheck(lambda x: npf.dropout_forward(x, 0.5, generator), npf.dropout_backward, np.ones(20))


# float32


def tanh_backward(dy, x):
    return dy * (1 - np.tanh(x) ** 2)


def test_gradcheck_float32_uses_differences_in_float64():
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    dtypes = set()

    def forward(x):
        dtypes.add(x.dtype.name)
        return np.tanh(x), x

    report = gradcheck(forward, tanh_backward, x)
    assert report
    assert 1e-9 < report.rows[0].error < 1e-6
    assert dtypes == {"float32", "float64"}


@pytest.mark.parametrize("factor, verdict", [(1, "pass"), (1 + 1e-5, "fail")])
def test_gradcheck_float32_arguments_may_have_float64_output(factor, verdict):
    """A loss is often summed in float64, but the gradient is still rounded to float32."""
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)

    def forward(x):
        return np.asarray(np.tanh(x).sum(dtype=np.float64)), x

    def backward(dy, x):
        return (factor * tanh_backward(dy, x)).astype(x.dtype)

    assert check_one_row(forward, backward, x).verdict == verdict


def test_gradcheck_forward_that_rounds_does_not_fail():
    """If the forward pass always rounds to float32, gradcheck allows for this rounding."""
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)

    def forward(x):
        return np.tanh(x).astype(np.float32), x

    def backward(dy, x):
        return tanh_backward(dy, x).astype(np.float32)

    assert get_failing_paths(gradcheck(forward, backward, x)) == set()


# The report

NOTE = make_note(["it is 0 everywhere", "a path forgotten"])
PASSING = GradientRow("x", (0, 11), -0.125, -0.12500000001, 2.5e-13, "pass", "")
AT_A_KINK = GradientRow("params.<b>", (), math.nan, math.nan, math.inf, "kink", 'a & "b"')
FAILING = GradientRow("params.W_1", (3,), 1e-20, -1234.56789, 1.0, "fail", NOTE)
ROWS = (PASSING, AT_A_KINK, FAILING)
TABLE = """\
gradient check: 1 of 3 failed, 1 of 3 at a kink; worst params.W_1: it is 0 everywhere (tolerance 1e-08)
leaf        worst    analytic      numeric    error  verdict  note
params.W_1  [3]         1e-20  -1234.56789  1.0e+00  fail     it is 0 everywhere; a path forgotten
params.<b>  -             nan          nan      inf  kink     a & "b"
x           [0, 11]    -0.125       -0.125  2.5e-13  pass"""


def test_report_is_true_when_every_row_passes():
    assert GradientReport((PASSING,), 1e-8)


@pytest.mark.parametrize("row", [AT_A_KINK, FAILING], ids=["kink", "fail"])
def test_report_is_false_if_a_row_fails(row):
    assert not GradientReport((PASSING, row), 1e-8)


def test_str_is_a_table_with_failing_rows_first():
    report = GradientReport(ROWS, 1e-8)
    assert str(report) == TABLE
    assert repr(report) == TABLE


@pytest.mark.parametrize(
    "verdict, summary", [("pass", "all 1 passed"), ("unsure", "1 of 1 cannot be judged; worst x")]
)
def test_str_summary_counts_the_verdicts(verdict, summary):
    report = GradientReport((PASSING._replace(verdict=verdict),), 1e-8)
    assert str(report).startswith(f"gradient check: {summary} (tolerance 1e-08)\n")


def test_str_second_line_describes_the_directions():
    assert str(GradientReport((PASSING,), 1e-8, "3 directions")).splitlines()[1] == "3 directions"


@pytest.mark.parametrize(
    "copy_rows",
    [copy.deepcopy, lambda rows: pickle.loads(pickle.dumps(rows))],
    ids=["deepcopy", "pickle"],
)
def test_str_summary_survives_copies_of_rows(copy_rows):
    assert str(GradientReport(copy_rows(ROWS), 1e-8)) == TABLE


def test_str_summary_shows_a_plain_note_whole():
    row = FAILING._replace(note="written; by hand")
    assert "worst params.W_1: written; by hand (tolerance" in str(GradientReport((row,), 1e-8))


def test_str_summary_shows_a_message_with_semicolon_whole():
    calls = []

    def backward(dy, x):
        calls.append(dy)
        if len(calls) > 1:
            raise ValueError("once; never again")
        return square_backward(dy, x)

    report = gradcheck(square, backward, np.ones(3))
    message = "backward raises ValueError when it is called again: once; never again"
    assert f"worst backward: {message} (tolerance" in str(report)


def test_assert_gradients_raises_with_the_whole_table():
    assert_gradients(square, square_backward, np.ones(3))
    with pytest.raises(AssertionError) as error:
        assert_gradients(square, lambda dy, x: dy * x, np.ones(3), tolerance=1e-6)
    assert str(error.value) == str(gradcheck(square, lambda dy, x: dy * x, np.ones(3), tolerance=1e-6))


def test_repr_html_is_the_same_table_escaped():
    report = GradientReport(ROWS, 1e-8)
    summary_line, head_line, failing_line, *_ = str(report).splitlines()
    caption, *rows = ElementTree.fromstring(report._repr_html_())
    head, failing, kink, _ = ([cell.text or "" for cell in row] for row in rows)
    assert caption.text == summary_line
    assert head == head_line.split()
    assert failing[:3] == failing_line.split()[:3]
    assert kink == ["params.<b>", "-", "nan", "nan", "inf", "kink", 'a & "b"']


# The note on a wrong gradient

IS_CONSTANT_HERE = "the output is constant close to this point"
IS_CONSTANT = "the output does not depend on this argument"


@pytest.mark.parametrize(
    ("x", "gap"), [((0.0, 0.0), 20.0), ((1e6, 1e6), 3e6), ((0.5, 0.5), None)], ids=["zeros", "large", "never"]
)
@pytest.mark.parametrize(("offset", "slope_of_y"), [(0.0, 1.0), (1e4, 1.0), (0.0, 1e9)])
def test_gradcheck_dead_unit_is_constant_only_here(x, gap, offset, slope_of_y):
    """The output is max(|x₀ - x₁| - gap, 0) + offset + slope · y, so x matters only far from here."""

    def forward(x, y):
        excess = 0.0 if gap is None else np.maximum(abs(x[0] - x[1]) - gap, 0.0)
        return excess + offset + slope_of_y * y, None

    def backward(dy, _):
        return np.ones(2) * dy, slope_of_y * dy

    row, _ = gradcheck(forward, backward, np.array(x), np.array([0.5])).rows
    assert row.verdict == "fail"
    assert row.note.startswith(IS_CONSTANT if gap is None else IS_CONSTANT_HERE), row.note


@pytest.mark.parametrize("unit", [1e-12, 1e-3, 1.0, 1e12])
@pytest.mark.parametrize("make_total", [np.asarray, np.sum], ids=["array", "scalar"])
def test_gradcheck_names_a_factor_in_every_unit(unit, make_total):
    x = np.array([0.3, -1.1, 0.8])
    report = gradcheck(
        lambda x: (unit * make_total(np.sin(x)), x), lambda dy, x: unit / 3 * dy * np.cos(x), x
    )
    assert report.rows[0].note.startswith("the gradient is 1/3 times the correct gradient;"), report


@pytest.mark.parametrize(
    ("factor", "multiple"), [(0.25, "0.25 times this"), (1.0, "the same gradient"), (2.0, "2 times this")]
)
def test_gradcheck_names_multiple_for_large_d_output(factor, multiple):
    """The backward pass returns one gradient for a small d_output, and a multiple of it for a large one."""

    def backward(dy, x):
        largest = abs(dy).max()
        return np.cos(x) if largest < 100 else factor * np.cos(x)

    report = gradcheck(lambda x: (np.sin(x), x), backward, np.array([0.3, -1.1]))
    assert f"times d_output gives {multiple}" in report.rows[0].note, report


# The lengths of the steps


@pytest.mark.parametrize("smallest", [1e-3, 1e-9, 1e-15])
def test_gradcheck_small_entry_gets_its_own_steps(smallest):
    """The derivative of log x at a small entry needs steps that are shorter than this entry."""
    x = np.array([smallest, 1.0, 2.0])
    report = gradcheck(lambda x: (np.log(x), x), lambda dy, x: dy / x, x)
    assert report, report
    d_output = np.random.default_rng(0).standard_normal(3)
    row = gradcheck(lambda x: (np.log(x), x), lambda dy, x: 2 * dy / x, x).rows[0]
    assert row.index == (0,) and row.numeric == pytest.approx(d_output[0] / smallest, rel=1e-8)


@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("rate", [1.0, 1e6, 1e12])
def test_gradcheck_zeros_get_steps_that_fit_the_gradient(rate, unit):
    """At x = 0, only the gradient shows that sin(10¹² x) needs short steps, whatever the output's unit is."""
    report = gradcheck(
        lambda x: (unit * (1 + np.sin(rate * x)), x),
        lambda dy, x: dy * unit * rate * np.cos(rate * x),
        np.zeros(3),
    )
    assert report, report


def test_compute_tables_only_if_they_fit():
    calls = Calls(lambda x: (2 * x, None), lambda dy, _: 2 * dy, (np.ones(4),), {}, None)
    for n_entries, has_table in ((TABLE_LIMIT // 4, True), (TABLE_LIMIT // 4 + 1, False)):
        comparisons = [Namespace(x=np.zeros(n_entries), is_sampled=False)]
        assert bool(_compute_tables(calls, comparisons)) == has_table
        halves = [Namespace(x=np.zeros(n), is_sampled=False) for n in (10, n_entries - 10)]
        assert bool(_compute_tables(calls, halves)) == has_table


# Arrays of a fake library. test_other_libraries.py tests arrays of real libraries


class Far:
    """An array of a fake library on another device. It supports only DLPack and the array API standard."""

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)
    device = "far"

    def __init__(self, array):
        self.array = np.array(array)

    @staticmethod
    def __array_namespace__():
        return Far

    @staticmethod
    def asarray(array, device):
        assert device == "far"
        return Far(array)

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __mul__(self, other):
        assert isinstance(other, Far)
        return Far(self.array * other.array)


def multiply(x, params):
    return x * params["w"], (x, params["w"])


def test_gradcheck_passes_dlpack_arrays_in_their_library():
    x, w = np.random.default_rng(0).standard_normal((2, 3))
    report = gradcheck(multiply, lambda dy, c: (dy * c[1], {"w": dy * c[0]}), Far(x), {"w": Far(w)})
    assert report, report
    assert list(get_verdicts(report)) == ["x", "params.w"]


def test_gradcheck_dlpack_arrays_fail_with_wrong_gradient():
    x, w = np.random.default_rng(0).standard_normal((2, 3))
    report = gradcheck(multiply, lambda dy, c: (dy * c[0], {"w": dy * c[0]}), Far(x), {"w": Far(w)})
    assert get_verdicts(report) == {"x": "fail", "params.w": "pass"}


@pytest.mark.parametrize(
    "right, left, reason",
    [
        # The quotients (φ(t) - φ(0)) / t on both sides of 0, as functions of t.
        pytest.param(lambda t: 1 / t + 0.5, lambda t: 1 / t - 0.5, Reason.VALUE_JUMPS, id="sign x + |x| / 2"),
        pytest.param(lambda t: 1 / t + 0.5, lambda t: 0.5, Reason.VALUE_JUMPS, id="step + x / 2"),
        pytest.param(lambda t: 2.0, lambda t: 1.0, Reason.KINK, id="kink"),
        pytest.param(lambda t: t**-0.5, lambda t: -(t**-0.5), Reason.DERIVATIVE_DIVERGES, id="root of |x|"),
    ],
)
def test_line_names_why_quotients_disagree(right, left, reason):
    t = 2.0**-10
    line = Line(lambda t: (t, np.zeros(1)), np.ones(1), np.ones(1), 2.0**-52, np.random.default_rng(0))
    for step in (t, 2 * t):
        line.quotients |= {step: np.array([right(step)]), -step: np.array([left(step)])}
    best = Estimate(0.0, math.inf, 0.0, 0.0, np.zeros(1))
    assert line._explain_disagreement(best).reason is reason


def test_str_precision_has_largest_error_and_percent():
    rows = PASSING, PASSING._replace(systematic=1.5), PASSING._replace(systematic=0.5)
    precision = Precision("bfloat16", 2.0**-8, 32, 0.25, 40, 70)
    first, second, *_ = str(GradientReport(rows, 2.7, "", precision)).splitlines()
    assert "the largest systematic error is 1.5 rounding units" in first
    assert "40 calls of forward" in second
    assert "below 25 % of an entry" in second


def test_str_summary_names_leaf_with_largest_error():
    smaller = FAILING._replace(path="b", error=0.5)
    assert "worst params.W_1" in str(GradientReport((smaller, FAILING), 1e-8))


def test_repr_html_escapes_the_summary():
    assert "<b>" not in GradientReport((AT_A_KINK,), 1e-8)._repr_html_()


# What a note is made from


def make_comparisons(forward, backward, *args, directions=None):
    """Return the calls of a pair, and the comparison of each leaf."""
    calls = Calls(forward, backward, args, {}, None)
    return calls, [LeafComparison(calls, leaf, 1e-8, directions) for leaf in calls.leaves.values()]


FAILURE, KINK, PASS = ("fail", Reason.NONE), ("kink", Reason.KINK), ("pass", Reason.NONE)


def test_describe_count_has_count_before_size():
    assert "in 1 of 3" in describe_count(1, 3)


@pytest.mark.parametrize(
    "changes, description",
    [
        ({}, (describe_count(1, 3),)),
        ({"verdicts": [KINK, PASS, PASS]}, ()),
        ({"faults": ["it is not linear"]}, ()),
        ({"leaf": Namespace(note="is None")}, ()),
        ({"analytic": [1.0, math.nan, 3.0]}, ()),
    ],
)
def test_count_failures_counts_failing_entries_only(changes, description):
    parts = {"verdicts": [FAILURE, KINK, PASS], "analytic": [1.0, 2.0, 3.0], "faults": []}
    parts |= {"leaf": Namespace(note=""), "count": 3}
    assert _count_failures(Namespace(**parts | changes)) == description


def sum_of_squares(x, ids):
    return np.asarray((x[ids] ** 2).sum()), (x, ids)


def sum_of_squares_backward(dy, cache):
    x, ids = cache
    return dy * 2 * x * np.bincount(ids, minlength=len(x))


def test_collect_arrays_divides_gradients_by_the_unit():
    x, ids = np.array([1.0, 3.0, -2.0]), np.array([0, 2, 2])
    calls, comparisons = make_comparisons(sum_of_squares, sum_of_squares_backward, x, ids)
    for comparison in comparisons:
        comparison.refine()
    arrays = _collect_arrays(calls, comparisons, float(calls.d_output))
    assert np.allclose(arrays["the gradient of x"], [2, 0, -8], atol=1e-6)
    assert arrays["ids"].tolist() == [0, 2, 2]


def test_collect_arrays_has_no_gradient_along_directions():
    x, ids = np.array([1.0, 3.0, -2.0]), np.array([0, 2, 2])
    calls, comparisons = make_comparisons(sum_of_squares, sum_of_squares_backward, x, ids, directions=2)
    assert "the gradient of x" not in _collect_arrays(calls, comparisons, 1.0)


def test_collect_arrays_has_each_output_of_a_tree():
    x = np.array([1.0, 3.0])
    calls, comparisons = make_comparisons(lambda x: ((x, 2 * x), x), lambda dy, x: dy[0] + 2 * dy[1], x)
    arrays = _collect_arrays(calls, comparisons, 1.0)
    assert arrays["output.1"].tolist() == [2, 6]
    assert arrays["d_output.1"].shape == (2,)


def test_compute_tables_keeps_the_dtype_of_d_output():
    dtypes = set()

    def backward(dy, x):
        dtypes.add(dy.dtype.name)
        return 2 * dy * x

    calls, comparisons = make_comparisons(square, backward, np.ones(3, np.float32))
    dtypes.clear()
    assert _compute_tables(calls, comparisons)
    assert dtypes == {"float32"}


def test_compute_tables_needs_every_entry_of_every_leaf():
    args = np.ones(3), np.ones(2)
    calls, comparisons = make_comparisons(
        lambda x, y: (x.sum() + y, len(x)), lambda dy, n: (np.full(n, dy.sum()), dy), *args, directions=2
    )
    assert [comparison.is_sampled for comparison in comparisons] == [True, False]
    assert _compute_tables(calls, comparisons) == {}


def test_gradcheck_names_no_factor_of_a_changing_gradient():
    """The first gradient is twice the correct one, but the next call returns a different gradient."""
    factors = iter([2.0] + 100 * [5.0])
    x = np.random.default_rng(0).standard_normal(6)
    row = check_one_row(square, lambda dy, x: next(factors) * 2 * x * dy, x)
    assert row.verdict == "fail"
    assert "2 times the correct gradient" not in row.note


def test_gradcheck_one_direction_names_no_factor():
    """Along one direction, every wrong gradient is a multiple of the correct one."""
    x = np.random.default_rng(0).standard_normal(6)
    row = check_one_row(square, lambda dy, x: 4 * x * dy, x, directions=1)
    assert row.verdict == "fail"
    assert "2 times" not in row.note


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradcheck_names_a_factor_in_every_dtype(dtype):
    x = (np.random.default_rng(0).standard_normal(6) + 3).astype(dtype)
    row = check_one_row(lambda x: (np.tanh(x), x), lambda dy, x: dtype(2) * tanh_backward(dy, x), x)
    assert row.note.startswith("the gradient is 2 times the correct gradient")


SHOULD_BE_ZERO = describe_observation(Relation("should_be_zero", {"other": None}))
SHOULD_BE_ZERO_HERE = describe_observation(Relation("should_be_zero_here", {"other": None}))


@pytest.mark.parametrize("seed", [0, 4])  # d_output is negative for seed 4
def test_gradcheck_names_unused_argument_for_any_sign(seed):
    x, y = np.array([1.0, 3.0, -2.0]), np.array([0.5, 2.0, 0.7])
    report = gradcheck(
        lambda x, y: (np.asarray((x**2).sum()), (x, y)),
        lambda dy, cache: (2 * dy * cache[0], dy * cache[1] ** 3),
        x,
        y,
        rng=np.random.default_rng(seed),
    )
    assert report.rows[1].note.startswith(SHOULD_BE_ZERO)


@pytest.mark.parametrize("directions", [None, 3])
def test_gradcheck_bump_is_constant_only_here(directions):
    """The output depends only on entries between 2 and 10, but all eight entries are 0.5."""
    x = np.full(8, 0.5)

    def forward(x):
        return np.maximum(0, 4 - abs(x - 6)), x

    row = check_one_row(forward, lambda dy, x: dy * np.cos(np.arange(8.0)), x, directions=directions)
    assert row.note.startswith(SHOULD_BE_ZERO_HERE)
