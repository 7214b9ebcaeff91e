"""The gradient checker, checked: wrong passes are caught and named, right ones pass, reports read well."""

import copy
import math
import pickle
import re
from collections import Counter
from functools import partial
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import mpmath
import numpy as np
import pytest
from make_kill_table import hard, otherwise, planted, refilled
from pairs import BUGS, HARD, MORE, SAID, VERDICT, pair
from together import failures
from valid_calls import fingerprint

import npformer as npf
from npformer import GradientReport, GradientRow, LayerNormParams, assert_gradients, gradcheck
from npformer.gradcheck.report import make_note


def square(x):
    return x * x, x


def square_backward(dy, x):
    return 2 * x * dy


def only_row(*args, **kwargs):
    (row,) = gradcheck(*args, **kwargs).rows
    return row


def verdicts(report):
    return {row.path: row.verdict for row in report.rows}


def worst(report):
    return min((row.verdict for row in report.rows), key=["fail", "unsure", "kink", "pass"].index)


def refused(report):
    return {row.path for row in report.rows if row.verdict == "fail"}


# Wrong backward passes are caught, and named; hard pairs are judged as mathematics says

_, *SECTIONS = (Path(__file__).parent / "data" / "kills.md").read_text(encoding="utf-8").split("\n## ")
TABLES = [partial(planted, BUGS), partial(planted, MORE), hard]


def without_rounding(line):
    """The factor that makes a gradient large is another one where sums are rounded in another order."""
    return re.sub(r"-?[\d.]+e[-+]\d+", "so many", line)


@pytest.mark.parametrize(
    "number, table", [*enumerate(TABLES), pytest.param(3, otherwise, marks=pytest.mark.slow)]
)
def test_the_page_says_of_each_mistake_and_hard_pair_what_is_said_today(number, table):
    """tests/data/make_kill_table.py writes it anew."""
    today, page = (text.splitlines() for text in (refilled(SECTIONS[number], *table()), SECTIONS[number]))
    pairs = zip(today, page, strict=True)
    assert [line for line, was in pairs if without_rounding(line) != without_rounding(was)] == []


def test_every_label_on_the_page_is_met():
    lines = [
        line[2:].replace("\\|", "¦") for line in "\n".join(SECTIONS[:3]).splitlines() if line[:2] == "| "
    ]
    found = {name.replace("¦", "|"): told for name, *told in (line.split(" | ") for line in lines)}
    for name, bug in (BUGS | MORE).items():
        _, verdict, where = found[name]
        assert (verdict, {*where.partition(":")[0].split(", ")}) == ("fail", bug.spoils), name
        assert ";" in where or name not in BUGS, "it has no name"
    assert {name: found[name][:2] for name in HARD} == {
        n: [must, VERDICT[must]] for n, (must, *_) in HARD.items()
    }


def test_what_is_right_passes_without_a_word():
    for bug in {bug.right: bug for bug in (BUGS | MORE).values()}.values():
        report = gradcheck(bug.forward, bug.right, *bug.args)
        assert report and all(row.note == "" for row in report.rows), report


def check_said(name):
    must, forward, backward, args, kwargs, note = pair(*SAID[name])
    before = fingerprint(args)
    try:
        report = gradcheck(forward, backward, *args, **kwargs)
    except (TypeError, ValueError) as error:
        assert must == "refused" and str(error).startswith(f"gradcheck: {note}")
        return
    assert fingerprint(args) == before
    assert worst(report) == VERDICT[must]
    assert note in "\n".join(f"{row.path} {row.verdict}: {row.note}" for row in report.rows)


def test_what_is_said_of_other_pairs():
    assert failures(check_said, product(SAID)) == {} and len(SAID) > 90


def test_the_worst_entry_is_named_with_both_numbers():
    def off(dy, x):
        dx = square_backward(dy, x)
        dx[0, 1] *= 1 + 1e-3
        dx[1, 2] += 3 * dx[1, 1]
        return dx

    x = np.arange(1.0, 7.0).reshape(2, 3)
    d_output = np.random.default_rng(0).standard_normal((2, 3))
    row = only_row(square, off, x)
    assert (row.path, row.index, row.verdict) == ("x", (1, 2), "fail")
    assert row.analytic == off(d_output, x)[1, 2]
    assert row.numeric == pytest.approx(2 * x[1, 2] * d_output[1, 2], rel=1e-10)
    assert row.error == pytest.approx(abs(row.analytic - row.numeric) / abs(2 * x * d_output).max(), rel=1e-6)


# Right ones are not accused


STEPS = {
    "tanh": (np.tanh, lambda x, y: 1 - y * y),
    "sin": (np.sin, lambda x, y: np.cos(x)),
    "square": (np.square, lambda x, y: 2 * x),
    "relu": (lambda x: np.maximum(x, 0), lambda x, y: x > 0),
    "size": (abs, lambda x, y: np.sign(x)),
    "bend": (lambda x: np.where(x > 0, x, x / 8), lambda x, y: np.where(x > 0, 1, 1 / 8)),
}


def chain(seed):
    """y = steps((x W + b) / s t) with kinks on the way; x and W of any size s and t, b perhaps 0."""
    draw = np.random.default_rng(seed)
    steps, dtype = draw.choice([*STEPS], draw.integers(1, 4)), draw.choice([np.float64, np.float32])
    s, t = 10.0 ** draw.integers(-8, 9, 2) if dtype is np.float64 else 10.0 ** draw.integers(-5, 6, 2)
    n, m = draw.integers(1, 5, 2)
    shapes = [((n, m), s), ((m, m), t), (m, s * t * draw.integers(2))]
    arrays = [(scale * draw.standard_normal(shape)).astype(dtype) for shape, scale in shapes]

    def forward(x, W, b):
        kept = [(x @ W + b) / x.dtype.type(s * t)]
        for step in steps:
            kept.append(STEPS[step][0](kept[-1]))
        return kept[-1], (x, W, kept)

    def backward(dy, cache):
        x, W, kept = cache
        for step, y, before in zip(steps[::-1], kept[::-1], kept[-2::-1], strict=False):
            dy = dy * STEPS[step][1](before, y).astype(dy.dtype)
        dy = dy / dy.dtype.type(s * t)
        return dy @ W.T, x.T @ dy, dy.sum(axis=0)

    return forward, backward, arrays


def test_of_many_chains_no_right_gradient_is_accused_and_only_a_wrong_one_of_zeros_passes():
    told = Counter()
    for seed in (
        *range(140),
        981,
        1000,
        1027,
        1188,
        1228,
        1329,
    ):  # in float32 a tanh that is nearly 1, and more
        forward, backward, arrays = chain(seed)
        wrong = lambda dy, cache: [g * g.dtype.type(1.01) for g in backward(dy, cache)]  # noqa: B023, E731
        told["right", worst(gradcheck(forward, backward, *arrays))] += 1
        report = gradcheck(forward, wrong, *arrays)
        told["wrong" if any(row.analytic for row in report.rows) else "dead", worst(report)] += 1
    assert not told["right", "fail"] and not told["wrong", "pass"], told
    assert told["right", "pass"] > 135 and told["wrong", "fail"] > 130, told


# How good the slopes are, and where they are looked for

FUNCTIONS = {  # and points, each judged alone; the same words mean the function for mpmath
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


@pytest.mark.parametrize("words", FUNCTIONS)
def test_slopes_are_good_to_ten_digits_and_nothing_outside_the_domain_is_in_the_way(words):
    f = eval(f"lambda x: {words}", vars(np) | {"erf": np.vectorize(math.erf)})

    def forward(x):
        if not np.isfinite(f(x)).all():
            raise ValueError("outside of its domain")
        return f(x), None

    for seed, point in enumerate(FUNCTIONS[words]):
        with mpmath.workdps(100):
            exact = mpmath.diff(eval(f"lambda x: {words}", vars(mpmath)), point, h=mpmath.mpf(10) ** -50)
        for factor, verdict in ((1, "pass"), (1.001, "fail")):
            backward = lambda dy, _, slope=factor * float(exact): dy * slope  # noqa: E731
            row = only_row(forward, backward, np.array([point]), rng=np.random.default_rng(seed))
            assert row.verdict == verdict, row
            off = 1e-9 if "2**14" in words else 1e-10  # there the phase is rounded
            assert abs(row.numeric - row.analytic / factor) <= off * abs(row.analytic), row


def test_a_smooth_function_takes_six_evaluations_an_entry_and_three_more():
    near = []
    x = np.array([1.0, -0.8, 0.9, 1.1, -1.2])
    assert gradcheck(lambda x: (near.append(x.copy()) or np.sin(x), x), lambda dy, x: dy * np.cos(x), x)
    assert len(near) == 3 + 6 * 5
    assert max(abs(y - x).max() for y in near) < 0.01
    assert len({float(abs(y - x).max()) for y in near} - {0.0}) >= 15  # the steps are drawn


@pytest.mark.parametrize("seed", range(2))
def test_of_a_function_by_stairs_no_slope_passes_but_zero(seed):
    x = np.random.default_rng(seed).standard_normal(4)
    for k in range(4, 21):
        stairs = lambda x, k=k: (np.round(x * 2.0**k) / 2.0**k, x)  # noqa: E731
        assert not gradcheck(stairs, lambda dy, _: dy, x, rng=np.random.default_rng(seed)), k
        zero = gradcheck(stairs, lambda dy, _: 0 * dy, x, rng=np.random.default_rng(seed))
        assert worst(zero) in ("pass", "unsure"), f"{k}\n{zero}"


def test_at_a_kink_the_numbers_are_those_of_both_sides():
    row = only_row(npf.relu_forward, npf.relu_backward, np.array([[1.0, -2.0], [0.0, 3.0]]))
    d_output = np.random.default_rng(0).standard_normal((2, 2))
    assert (row.verdict, row.index, row.analytic) == ("kink", (1, 0), 0.0)
    assert row.numeric == pytest.approx(d_output[1, 0] / 2)


# Large arrays


def test_along_directions_a_report_says_what_was_looked_at_and_what_may_slip_through():
    rng = np.random.default_rng(5)
    x, params = rng.standard_normal((2, 3, 40)), npf.init_ffn(40, 60, rng)
    calls = []

    def counted(x, params):
        calls.append(1)
        return npf.ffn_forward(x, params, activation="gelu")

    report = gradcheck(counted, npf.ffn_backward, x, params, directions=2)
    assert report and len(calls) < 100
    sampled = str(report).splitlines()[1]
    assert sampled.startswith("2 random directions for each array of more entries: one wrong")
    assert sampled.endswith("slips through with a chance of 6e-03")
    assert gradcheck(square, square_backward, np.ones(2), directions=2).sampled == ""

    def one_off(dy, cache):
        dx, grads = npf.ffn_backward(dy, cache)
        W_1 = grads.W_1.copy()
        W_1[7, 5] *= 1.001
        return dx, grads._replace(W_1=W_1)

    wrong = gradcheck(counted, one_off, x, params, directions=2)
    assert refused(wrong) == {"params.W_1"} and wrong.rows[1].index == ()
    assert wrong.rows[1].note == ""  # how far a single entry is off, a sum over all does not show
    thrice = gradcheck(
        counted, lambda dy, c: npf.tree_map(lambda g: 3 * g, npf.ffn_backward(dy, c)), x, params, directions=3
    )
    assert all(row.note.startswith("it is the right one times 3") for row in thrice.rows)


def test_relus_on_the_way_do_not_accuse_a_right_backward():
    rng = np.random.default_rng(6)
    x, params = rng.standard_normal((4, 8, 32)), npf.init_ffn(32, 64, rng)
    calls = []

    def counted(x, params):
        calls.append(1)
        return npf.ffn_forward(x, params)

    for seed in range(3):
        rng = np.random.default_rng(seed)
        assert gradcheck(counted, npf.ffn_backward, x, params, directions=2, rng=rng), seed
    assert len(calls) < 3 * 200


# What is said of which leaf


def test_paths_are_the_parameters_names():
    def forward(x, params, *others):
        return x + params.b_1 + others[0][1] + others[1], None

    params = npf.FFNParams(*np.ones((4, 2)))._replace(W_1=None)
    others = (np.ones(2), np.ones(2)), np.ones(2)
    backward = lambda dy, _: (dy, npf.FFNParams(None, dy, 0 * dy, 0 * dy), (0 * dy, dy), dy)  # noqa: E731
    report = gradcheck(forward, backward, np.ones(2), params, *others)
    assert report, report
    assert [row.path for row in report.rows] == [
        "x", "params.b_1", "params.W_2", "params.b_2", "others[0].0", "others[0].1", "others[1]"
    ]  # fmt: skip

    class Foreign:
        __signature__ = "none"

        def __call__(self, x, y):
            return x * y, (x, y)

    report = gradcheck(Foreign(), lambda dy, cache: (dy * cache[1], dy * cache[0]), np.ones(2), np.ones(2))
    assert verdicts(report) == {"args[0]": "pass", "args[1]": "pass"}


def test_what_a_backward_raises_comes_through():
    def backward(dy, cache):
        raise ZeroDivisionError("the student's own")

    with pytest.raises(ZeroDivisionError, match="the student's own"):
        gradcheck(square, backward, np.ones(2))


# Copies and random numbers


def test_reports_repeat_and_follow_their_rng():
    x = np.random.default_rng(1).standard_normal((3, 4))
    args = npf.layer_norm_forward, npf.layer_norm_backward, x, LayerNormParams(np.ones(4), np.zeros(4))
    assert gradcheck(*args) == gradcheck(*args) == gradcheck(*args, rng=np.random.default_rng(0))
    assert gradcheck(*args) != gradcheck(*args, rng=np.random.default_rng(1))


def test_a_generator_among_the_arguments_gives_one_mask_and_is_not_advanced():
    generator, x = np.random.default_rng(5), np.ones((4, 5))
    assert gradcheck(npf.dropout_forward, npf.dropout_backward, x, 0.5, generator)
    assert gradcheck(npf.dropout_forward, npf.dropout_backward, x, rate=0.5, rng=np.random.default_rng(5))
    assert generator.random() == np.random.default_rng(5).random()
    dropped = []

    def forward(x, rate, rng=None):  # gets a copy of the generator that draws d_output
        y, cache = npf.dropout_forward(x, rate, rng)
        dropped.append((y == 0).sum())
        return y, cache

    assert gradcheck(forward, npf.dropout_backward, x, 0.5, rng=generator)
    assert min(dropped) > 0
    assert gradcheck(forward, npf.dropout_backward, np.ones(3), 0.5, np.random.default_rng(1), rng=generator)
    with pytest.raises(ValueError, match=r"^gradcheck: forward gives another output when it is called again"):
        gradcheck(lambda x: npf.dropout_forward(x, 0.5, generator), npf.dropout_backward, np.ones(20))


# float32


def test_float32_is_checked_against_differences_in_float64():
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    seen = set()

    def forward(x):
        seen.add(x.dtype.name)
        return np.tanh(x), x

    right = gradcheck(forward, lambda dy, x: dy * (1 - np.tanh(x) ** 2), x)
    assert right and 1e-9 < right.rows[0].error < 1e-6 and seen == {"float32", "float64"}
    # a forward that rounds to float32 whatever it gets is judged as far as that allows
    narrow = lambda x: (np.tanh(x).astype(np.float32), x)  # noqa: E731
    assert not refused(gradcheck(narrow, lambda dy, x: (dy * (1 - np.tanh(x) ** 2)).astype(np.float32), x))


# The report

NOTE = make_note(["it is 0 everywhere", "a path forgotten"])
ROWS = (
    GradientRow("x", (0, 11), -0.125, -0.12500000001, 2.5e-13, "pass", ""),
    GradientRow("params.<b>", (), math.nan, math.nan, math.inf, "kink", 'a & "b"'),
    GradientRow("params.W_1", (3,), 1e-20, -1234.56789, 1.0, "fail", NOTE),
)


def test_a_report_is_true_when_every_row_passes_and_has_failing_rows_first_in_a_table():
    assert GradientReport(ROWS[:1], 1e-8) and not any(
        GradientReport((ROWS[0], row), 1e-8) for row in ROWS[1:]
    )
    report = GradientReport(ROWS, 1e-8)
    assert (
        repr(report)
        == str(report)
        == """\
gradient check: 1 of 3 failed, 1 of 3 at a kink; worst params.W_1: it is 0 everywhere (tolerance 1e-08)
leaf        worst    analytic      numeric    error  verdict  note
params.W_1  [3]         1e-20  -1234.56789  1.0e+00  fail     it is 0 everywhere; a path forgotten
params.<b>  -             nan          nan      inf  kink     a & "b"
x           [0, 11]    -0.125       -0.125  2.5e-13  pass"""
    )
    for verdict, said in (("pass", "all 1 passed"), ("unsure", "1 of 1 cannot be judged; worst x")):
        one = str(GradientReport((ROWS[0]._replace(verdict=verdict),), 1e-8))
        assert one.startswith(f"gradient check: {said} (tolerance 1e-08)\n")
    assert str(GradientReport(ROWS[:1], 1e-8, "3 directions")).splitlines()[1] == "3 directions"


@pytest.mark.parametrize("change", [copy.deepcopy, lambda rows: pickle.loads(pickle.dumps(rows))])
def test_str_summary_survives_copies_of_rows(change):
    assert str(GradientReport(change(ROWS), 1e-8)) == str(GradientReport(ROWS, 1e-8))


def test_str_summary_shows_a_plain_note_whole():
    row = ROWS[2]._replace(note="written; by hand")
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


def test_an_assertion_shows_the_whole_table():
    assert_gradients(square, square_backward, np.ones(3))
    with pytest.raises(AssertionError) as error:
        assert_gradients(square, lambda dy, x: dy * x, np.ones(3), tolerance=1e-6)
    assert str(error.value) == str(gradcheck(square, lambda dy, x: dy * x, np.ones(3), tolerance=1e-6))


def test_the_notebook_shows_the_same_table_with_names_escaped():
    report = GradientReport(ROWS, 1e-8)
    caption, *rows = ElementTree.fromstring(report._repr_html_())
    assert caption.text == str(report).splitlines()[0]
    head, first, second, _ = ([cell.text or "" for cell in row] for row in rows)
    assert [head, first[:3]] == [
        line.split()[:n] for line, n in zip(str(report).splitlines()[1:3], (7, 3), strict=True)
    ]
    assert second == ["params.<b>", "-", "nan", "nan", "inf", "kink", 'a & "b"']


# Arrays of another library; with the real ones: test_other_libraries.py


class Far:
    """An array far away: its library has `asarray`, and it speaks DLPack only, as the standard asks."""

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


def test_arrays_that_speak_dlpack_come_back_in_their_own_kind():
    def product(x, params):
        return x * params["w"], (x, params["w"])

    x, w = np.random.default_rng(0).standard_normal((2, 3))
    report = gradcheck(product, lambda dy, c: (dy * c[1], {"w": dy * c[0]}), Far(x), {"w": Far(w)})
    assert report and list(verdicts(report)) == ["x", "params.w"], report
    wrong = gradcheck(product, lambda dy, c: (dy * c[0], {"w": dy * c[0]}), Far(x), {"w": Far(w)})
    assert verdicts(wrong) == {"x": "fail", "params.w": "pass"}
