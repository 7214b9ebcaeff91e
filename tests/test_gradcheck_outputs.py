"""gradcheck accepts outputs that are trees, and calls both functions with arrays that are not contiguous."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import npformer as npf


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_cell(x, h, c, W):
    """One step of a small LSTM without biases. The output is the pair (h, c)."""
    rows = np.concatenate([x, h], -1)
    i, f, o, g = np.split(rows @ W, 4, -1)
    i, f, o, g = sigmoid(i), sigmoid(f), sigmoid(o), np.tanh(g)
    c_new = f * c + i * g
    h_new = o * np.tanh(c_new)
    return (h_new, c_new), (rows, W, i, f, o, g, c, c_new)


def lstm_cell_backward(d_output, cache, forget_c=False):
    dh, dc = d_output
    rows, W, i, f, o, g, c, c_new = cache
    d_outer = 0 * dc if forget_c else dc
    dc_new = d_outer + dh * o * (1 - np.tanh(c_new) ** 2)
    d_gates = np.concatenate(
        [
            dc_new * g * i * (1 - i),
            dc_new * c * f * (1 - f),
            dh * np.tanh(c_new) * o * (1 - o),
            dc_new * i * (1 - g**2),
        ],
        -1,
    )
    d_rows = d_gates @ W.T
    width = c.shape[-1]
    return d_rows[:, :-width], d_rows[:, -width:], dc_new * f, rows.T @ d_gates


@pytest.fixture
def lstm_arguments():
    rng = np.random.default_rng(0)
    return (
        rng.standard_normal((3, 2)),
        rng.standard_normal((3, 4)),
        rng.standard_normal((3, 4)),
        rng.standard_normal((6, 16)),
    )


def test_gradcheck_passes_pair_of_outputs(lstm_arguments):
    assert npf.gradcheck(lstm_cell, lstm_cell_backward, *lstm_arguments)


def test_gradcheck_fails_if_second_output_is_ignored(lstm_arguments):
    report = npf.gradcheck(lstm_cell, lambda d, c: lstm_cell_backward(d, c, forget_c=True), *lstm_arguments)
    assert [row.verdict for row in report.rows] == ["fail"] * 4


def test_gradcheck_names_the_output_that_is_ignored(lstm_arguments):
    report = npf.gradcheck(lstm_cell, lambda d, c: lstm_cell_backward(d, c, forget_c=True), *lstm_arguments)
    for row in report.rows:
        assert row.note.startswith("the gradient does not depend on d_output.1, but it should; ")


def test_gradcheck_names_the_output_with_a_wrong_sign(lstm_arguments):
    def backward(d_output, cache):
        dh, dc = d_output
        return lstm_cell_backward((dh, -dc), cache)

    report = npf.gradcheck(lstm_cell, backward, *lstm_arguments)
    for row in report.rows:
        assert row.note.startswith("the contribution of d_output.1 to the gradient is wrong; ")


def test_gradcheck_names_the_output_gradient_that_was_returned():
    x = np.random.default_rng(0).standard_normal((3, 4))
    report = npf.gradcheck(lambda x: ({"a": x**2, "b": x**3}, x), lambda d, _: d["b"], x)
    assert report.rows[0].note.startswith("the gradient is d_output.b; ")


class Pair(NamedTuple):
    out: Any
    lse: Any


@dataclass(frozen=True)
class Output:
    out: Any
    lse: Any
    name: str = "softmax"


def as_dict(out, lse):
    return {"out": out, "lse": lse}


def as_list(out, lse):
    return [out, lse]


def as_nested(out, lse):
    return {"first": (out, None), "more": [lse, 7]}


def get_parts(d_output):
    """Return the two gradients from any of the forms above."""
    if isinstance(d_output, Output):
        return d_output.out, d_output.lse
    if isinstance(d_output, dict) and "first" in d_output:
        return d_output["first"][0], d_output["more"][0]
    if isinstance(d_output, dict):
        return d_output["out"], d_output["lse"]
    return d_output


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("make", [as_dict, as_list, as_nested, Pair, Output])
def test_gradcheck_accepts_every_form_of_output(make, dtype):
    def forward(x):
        lse = np.log(np.exp(x).sum(-1))
        return make(np.exp(x - lse[..., None]), lse), x

    def backward(d_output, x, factor=1):
        dy, dlse = get_parts(d_output)
        p = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
        return (p * (dy - (dy * p).sum(-1, keepdims=True)) + factor * p * dlse[..., None]).astype(x.dtype)

    x = np.random.default_rng(0).standard_normal((3, 4)).astype(dtype)
    assert npf.gradcheck(forward, backward, x)
    assert npf.gradcheck(forward, backward, x, reference=lambda x: forward(x)[0])
    assert not npf.gradcheck(forward, lambda d, x: backward(d, x, factor=-1), x)


def test_gradcheck_accepts_outputs_of_two_dtypes():
    def forward(x):
        return (x.astype(np.float32), x**2), x

    def backward(d_output, x):
        return d_output[0] + 2 * x * d_output[1]

    x = np.random.default_rng(0).standard_normal(4)
    assert npf.gradcheck(forward, backward, x, reference=lambda x: (x, x**2))


def test_gradcheck_differentiates_fields_of_a_dataclass():
    @dataclass
    class Weights:
        W: Any
        b: Any

    def forward(x, weights):
        return x @ weights.W + weights.b, (x, weights)

    def backward(dy, cache):
        x, weights = cache
        return dy @ weights.W.T, Weights(x.T @ dy, dy.sum(0))

    rng = np.random.default_rng(0)
    weights = Weights(rng.standard_normal((3, 2)), rng.standard_normal(2))
    report = npf.gradcheck(forward, backward, rng.standard_normal((4, 3)), weights)
    assert report, report
    assert [row.path for row in report.rows] == ["x", "weights.W", "weights.b"]


def test_gradcheck_rejects_other_arrays_at_a_later_call():
    calls = []

    def forward(x):
        calls.append(x)
        return (x, x) if len(calls) == 1 else (x, None), x

    with pytest.raises(ValueError, match="forward returned the arrays 0; expected 0, 1"):
        npf.gradcheck(forward, lambda d, x: d[0] + d[1], np.ones(2))


def test_gradcheck_rejects_integer_output():
    with pytest.raises(TypeError, match="output is int64"):
        npf.gradcheck(lambda x: (x.astype(int), x), lambda dy, x: dy, np.ones(2))


# Memory layouts


def read_with_strides_of(values, layout):
    """Read the memory of one array with the strides of another, as a wrong kernel does."""
    return np.lib.stride_tricks.as_strided(values, layout.shape, layout.strides)


@pytest.mark.parametrize("shape", [(3, 4), (5,), (2, 3, 4)])
def test_gradcheck_finds_strides_of_another_array(shape):
    def backward(dy, x):
        return 2 * read_with_strides_of(dy, x) * x

    x = np.random.default_rng(0).standard_normal(shape)
    report = npf.gradcheck(lambda x: (x**2, x), backward, x)
    assert report.rows[0].verdict == "fail"
    assert "not contiguous" in report.rows[0].note


@pytest.mark.parametrize("shape", [(3, 4), (5,), (2, 3, 4)])
def test_gradcheck_finds_kernel_that_ignores_strides(shape):
    def backward(dy, x):
        flat = np.lib.stride_tricks.as_strided(dy, (dy.size,), (dy.itemsize,))
        return 2 * flat.reshape(dy.shape) * x

    x = np.random.default_rng(0).standard_normal(shape)
    report = npf.gradcheck(lambda x: (x**2, x), backward, x)
    assert "not contiguous" in report.rows[0].note


def test_gradcheck_accepts_function_that_rejects_strides():
    def backward(dy, x):
        if not dy.flags.c_contiguous:
            raise ValueError("dy must be contiguous")
        return 2 * dy * x

    assert npf.gradcheck(lambda x: (x**2, x), backward, np.random.default_rng(0).standard_normal((3, 4)))


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0), (1, 1)])
def test_gradcheck_accepts_small_and_empty_arrays(shape):
    x = np.random.default_rng(0).standard_normal(shape)
    assert npf.gradcheck(lambda x: (np.asarray(x**2), x), lambda dy, x: np.asarray(2 * dy * x), x)


# Directions in float32


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("factor, verdict", [(1.0, "pass"), (1.001, "fail")])
def test_gradcheck_directions_allow_for_float32_rounding(seed, factor, verdict):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((8, 4096)).astype(np.float32)
    W = rng.standard_normal((4096, 16)).astype(np.float32)

    def backward(dy, cache):
        x, W = cache
        return (factor * dy @ W.T).astype(dy.dtype), x.T @ dy

    report = npf.gradcheck(lambda x, W: (x @ W, (x, W)), backward, x, W, directions=3, rng=rng)
    assert [row.verdict for row in report.rows] == [verdict, "pass"], report


# Kinks


def total_variation(p, q):
    return abs(p - q).sum() / 2, (p, q)


def total_variation_backward(dy, cache, at_tie):
    p, q = cache
    sign = np.where(p == q, at_tie, np.sign(p - q))
    return dy * sign / 2, -dy * sign / 2


@pytest.mark.parametrize(
    "at_tie, place", [(-1, "the slope on the left"), (0, "the mean of both"), (0.5, "between both")]
)
def test_gradcheck_kinks_pass_says_where_the_gradient_lies(at_tie, place):
    """Liger-Kernel once gave ties the slope on one side (issue #1373). The corrected version gives them 0."""

    def backward(dy, cache):
        return total_variation_backward(dy, cache, at_tie)

    def forward(p, q):
        return total_variation(p, q)

    p = np.array([0.5, 0.25, 0.25])
    q = np.array([0.5, 0.5, 0.125])
    rng = np.random.default_rng(3)  # its first number, d_output, is positive
    assert not npf.gradcheck(forward, backward, p, q, rng=np.random.default_rng(3))
    report = npf.gradcheck(forward, backward, p, q, rng=rng, kinks="pass")
    assert report, report
    assert place in report.rows[0].note


def test_gradcheck_kinks_pass_still_rejects_gradient_outside():
    def backward(dy, cache):
        return total_variation_backward(dy, cache, 1.5)

    p = np.array([0.5, 0.25, 0.25])
    assert not npf.gradcheck(total_variation, backward, p, p.copy(), kinks="pass")


def test_gradcheck_rejects_unknown_kinks():
    with pytest.raises(ValueError, match=r"kinks is .*ignore.*; expected 'report' or 'pass'"):
        npf.gradcheck(total_variation, total_variation_backward, np.ones(2), np.ones(2), kinks="ignore")


def slope_at_zero(function, gradient):
    """Check a gradient of a function of one number at 0, and return the only row."""
    report = npf.gradcheck(lambda x: (function(x), None), lambda dy, _: dy * gradient, np.zeros(1))
    (row,) = report.rows
    return row


@pytest.mark.parametrize(
    "gradient, verdict", [(-0.11, "fail"), (-0.09, "kink"), (1.09, "kink"), (1.11, "fail")]
)
def test_gradcheck_kink_accepts_tenth_of_gap_outside(gradient, verdict):
    assert slope_at_zero(lambda x: np.maximum(x, 0), gradient).verdict == verdict


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: abs(x) + abs(x) ** 1.2, id="slopes that converge slowly"),
        pytest.param(lambda x: abs(x) + 100 * x, id="a small kink on a steep line"),
        pytest.param(lambda x: abs(x) + 100 * x**2, id="a kink with curvature"),
    ],
)
def test_gradcheck_kink_is_found_despite_other_terms(function):
    assert slope_at_zero(function, function(1e-30 * np.ones(1))[0] / 1e-30).verdict == "kink"


@pytest.mark.parametrize("steepness", [0, 10, 100])
def test_gradcheck_oscillating_slopes_are_no_kink(steepness):
    """The quotients to the right oscillate between steepness - 1 and steepness + 1, so no slope exists."""

    def oscillate(x):
        return steepness * x + abs(x) * np.sin(4 * np.log(abs(x) + 1e-300))

    row = slope_at_zero(oscillate, steepness)
    assert row.verdict == "unsure"
    assert "slope" not in row.note


@pytest.mark.parametrize("at_zero", [(0, 0), (1, -1)])
def test_gradcheck_kink_accepts_subgradient_of_each_output(at_zero):
    """The outputs have kinks with opposite weights. Each subgradient may be chosen separately."""

    def forward(x):
        return np.concatenate([np.maximum(x, 0), np.maximum(-x, 0)]), None

    rng = np.random.default_rng(0)  # its first two numbers, d_output, are positive and negative
    report = npf.gradcheck(forward, lambda dy, _: (dy @ at_zero).reshape(1), np.zeros(1), rng=rng)
    assert report.rows[0].verdict == "kink", report


@pytest.mark.parametrize(
    "gradient, place",
    [(1 + 1e-4, "the slope on the right"), (1e-4, "the slope on the left"), (0.9, "between")],
)
def test_gradcheck_kink_note_allows_for_small_errors(gradient, place):
    assert f"the gradient is {place}" in slope_at_zero(lambda x: np.maximum(x, 0), gradient).note
