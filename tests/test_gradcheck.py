"""The gradient checker, checked: it catches planted bugs, accuses no right backward, and can be read."""

import math
from functools import partial
from html.parser import HTMLParser
from typing import NamedTuple

import mpmath
import numpy as np
import pytest
from adversarial_pairs import PAIRS, fresh
from planted_bugs import BUGS

from npformer.attention import (
    AttentionParams,
    attention_backward,
    attention_forward,
    init_attention,
    multi_head_attention_backward,
    multi_head_attention_forward,
)
from npformer.embedding import EmbeddingParams, embedding_backward, embedding_forward
from npformer.encoder import (
    TransformerConfig,
    encoder_backward,
    encoder_block_backward,
    encoder_block_forward,
    encoder_forward,
    init_encoder,
    init_encoder_block,
)
from npformer.feed_forward import FFNParams, ffn_backward, ffn_forward, init_ffn
from npformer.functional import (
    dropout_backward,
    dropout_forward,
    linear_backward,
    linear_forward,
    relu_backward,
    relu_forward,
    softmax_backward,
    softmax_forward,
)
from npformer.gradcheck import GradientReport, GradientRow, gradcheck
from npformer.layer_norm import LayerNormParams, layer_norm_backward, layer_norm_forward
from npformer.tree import tree_map


def square(x):
    return x * x, x


def square_backward(dy, x):
    return 2 * x * dy


def only_row(*args, **kwargs):
    (row,) = gradcheck(*args, **kwargs).rows
    return row


def verdicts(report):
    return {row.path: row.verdict for row in report.rows}


# Wrong backward passes are caught


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught_and_located(name):
    bug = BUGS[name]
    before = gradcheck(bug.forward, bug.right, *bug.args)
    assert before, before
    report = gradcheck(bug.forward, bug.wrong, *bug.args)
    assert not report
    assert {row.path for row in report.rows if row.verdict == "fail"} == bug.spoils, report


@pytest.mark.parametrize("off, verdict", [(0.9e-8, "pass"), (1.1e-8, "fail")])
def test_the_tolerance_is_the_border_between_pass_and_fail(off, verdict):
    assert only_row(square, lambda dy, x: 2 * x * dy * (1 + off), np.array([3.0])).verdict == verdict


def test_a_coarser_tolerance_lets_a_larger_error_pass():
    def off(dy, x):
        return 2 * x * dy * (1 + 1e-5)

    assert gradcheck(square, off, np.array([3.0]), tolerance=1e-4)
    assert not gradcheck(square, off, np.array([3.0]), tolerance=1e-6)


def scaled(x, y):
    return 1000 * x + y, None


@pytest.mark.parametrize("factor, error, verdict", [(1 + 1e-7, 1e-7, "fail"), (1 + 1e-9, 1e-9, "pass")])
def test_an_error_is_relative_to_the_largest_gradient_of_its_leaf(factor, error, verdict):
    report = gradcheck(scaled, lambda dy, _: (1000 * dy, factor * dy), np.ones(3), np.ones(3))
    assert report.rows[1].error == pytest.approx(error, rel=1e-2)
    assert report.rows[1].verdict == verdict


def test_an_error_is_relative_to_a_thousandth_of_all_leaves_where_its_leaf_has_less():
    def forward(x, y):
        return 1e6 * x + y, None

    report = gradcheck(forward, lambda dy, _: (1e6 * dy, dy * (1 + 1e-6)), np.ones(1), np.ones(1))
    assert report
    assert report.rows[1].error == pytest.approx(1e-9, rel=0.1)
    report = gradcheck(forward, lambda dy, _: (1e6 * dy, dy * (1 + 1e-4)), np.ones(1), np.ones(1))
    assert verdicts(report) == {"x": "pass", "y": "fail"}


def test_the_worst_entry_is_named_with_both_numbers():
    def off(dy, x):
        dx = square_backward(dy, x)
        dx[0, 1] *= 1 + 1e-3
        dx[1, 2] += 3 * dx[1, 1]
        return dx

    x = np.arange(1.0, 7.0).reshape(2, 3)
    d_output = np.random.default_rng(0).standard_normal((2, 3))
    row = only_row(square, off, x)
    assert (row.path, row.index, row.verdict, row.note) == ("x", (1, 2), "fail", "")
    assert row.analytic == off(d_output, x)[1, 2]
    assert row.numeric == pytest.approx(2 * x[1, 2] * d_output[1, 2], rel=1e-11)
    assert row.error == pytest.approx(abs(row.analytic - row.numeric) / abs(2 * x * d_output).max(), rel=1e-6)


# Right ones are not accused


def shape(rng, longest=3):
    leading = [(), (1,), (2,), (2, 1)][rng.integers(4)]
    return *leading, int(rng.integers(1, longest + 1))


def sizes(rng):
    return [(1, 3), (1, 4), (2, 4), (3, 3), (4, 4)][rng.integers(5)]  # h, d_model


def layer_norm_case(rng):
    d = int(rng.integers(1, 7))
    params = LayerNormParams(rng.standard_normal(d), rng.standard_normal(d))
    return layer_norm_forward, layer_norm_backward, (rng.standard_normal((*shape(rng), d)), params), {}


def linear_case(rng):
    d_in, d_out = rng.integers(1, 5, size=2)
    b = rng.standard_normal(d_out) if rng.random() < 0.7 else None
    args = rng.standard_normal((*shape(rng), d_in)), rng.standard_normal((d_in, d_out)), b
    return (
        linear_forward,
        linear_backward if b is not None else lambda dy, c: linear_backward(dy, c)[:2],
        args,
        {},
    )


def ffn_case(activation, dropout, rng):
    d, d_ff = rng.integers(1, 6, size=2)
    params = init_ffn(d, d_ff, rng)._replace(b_1=rng.standard_normal(d_ff))
    kwargs = {"activation": activation, "dropout": dropout, "rng": rng}
    return ffn_forward, ffn_backward, (rng.standard_normal((*shape(rng), d)), params), kwargs


def softmax_case(rng):
    return (
        softmax_forward,
        softmax_backward,
        (rng.standard_normal((*shape(rng), 3)), int(rng.integers(-1, 1))),
        {},
    )


def attention_case(rng):
    *leading, T_q = shape(rng)
    T_k, d_k, d_v = rng.integers(1, 4, size=3)
    args = [rng.standard_normal((*leading, *end)) for end in [(T_q, d_k), (T_k, d_k), (T_k, d_v)]]
    mask = rng.random((T_q, T_k)) < 0.7
    forward = partial(attention_forward, bias=rng.standard_normal((T_q, T_k)))
    return forward, attention_backward, args, {"mask": mask}


def heads_case(rope, rng):
    *leading, T_q = shape(rng)
    n_heads, d = [(1, 2), (2, 4), (1, 4)][rng.integers(3)] if rope else sizes(rng)
    T_k = T_q + int(rng.integers(3))
    args = [rng.standard_normal((*leading, T, d)) for T in (T_q, T_k, T_k)]
    params = AttentionParams(*rng.standard_normal((4, d, d)), *rng.standard_normal((4, d)))
    kwargs = {"n_heads": n_heads, "mask": rng.random((T_q, T_k)) < 0.8, "rope": rope}
    return multi_head_attention_forward, multi_head_attention_backward, (*args, params), kwargs


def block_case(norm, activation, rng):
    n_heads, d = sizes(rng)
    config = TransformerConfig(
        d, int(rng.integers(1, 6)), n_heads, norm=norm, activation=activation, attention_bias=True, n_layers=2
    )
    params = tree_map(lambda p: p + rng.standard_normal(p.shape) / 2, init_encoder_block(config, rng))
    x = rng.standard_normal((*shape(rng, longest=2), d))
    return encoder_block_forward, encoder_block_backward, (x, params, config), {"rng": rng}


def stack_case(d, rng):
    config = TransformerConfig(d, 2, 1, norm="pre", n_layers=2, dropout=0.0)
    params = tree_map(lambda p: p + rng.standard_normal(p.shape) / 2, init_encoder(config, rng))
    return encoder_forward, encoder_backward, (rng.standard_normal((2, 2, d)), params, config), {}


def embedding_case(rng):
    d = int(rng.integers(1, 5))
    args = rng.integers(4, size=shape(rng)), EmbeddingParams(rng.standard_normal((4, d)))
    return embedding_forward, embedding_backward, args, {}


INTEGER = np.dtype(int).name  # int64, or int32 in a browser
CASES = {
    "layer norm": layer_norm_case,
    "linear": linear_case,
    "ffn, relu": partial(ffn_case, "relu", 0.0),
    "ffn, gelu": partial(ffn_case, "gelu", 0.0),
    "ffn, dropout": partial(ffn_case, "relu", 0.3),
    "softmax": softmax_case,
    "attention": attention_case,
    "heads": partial(heads_case, False),
    "heads, rope": partial(heads_case, True),
    "block, post, relu": partial(block_case, "post", "relu"),
    "block, post, gelu": partial(block_case, "post", "gelu"),
    "block, pre, relu": partial(block_case, "pre", "relu"),
    "block, pre, gelu": partial(block_case, "pre", "gelu"),
    "embedding": embedding_case,
}


@pytest.mark.parametrize("name", CASES)
def test_no_right_backward_is_accused(name):
    for seed in range(4):
        forward, backward, args, kwargs = CASES[name](np.random.default_rng(seed))
        report = gradcheck(forward, backward, *args, **kwargs)
        assert report, f"seed {seed}\n{report}"


def test_a_stack_of_blocks_is_not_accused():
    forward, backward, args, kwargs = stack_case(3, np.random.default_rng(0))
    report = gradcheck(forward, backward, *args, **kwargs)
    assert report, report
    assert {"params.blocks.1.ffn.W_2", "params.norm.gamma"} <= verdicts(report).keys()


def test_a_right_backward_is_not_accused_where_rounding_hides_its_gradient():
    # A norm over two features is nearly a sign: gradients of 1e-5, and what they are differences of is 1.
    for seed in (27, 29, 51):
        forward, backward, args, kwargs = stack_case(2, np.random.default_rng(seed))
        report = gradcheck(forward, backward, *args, **kwargs)
        assert "fail" not in verdicts(report).values(), f"seed {seed}\n{report}"


def test_a_gradient_of_zero_passes_beside_larger_ones():
    _, _, args, kwargs = heads_case(False, np.random.default_rng(3))
    report = gradcheck(multi_head_attention_forward, multi_head_attention_backward, *args, **kwargs)
    (row,) = (row for row in report.rows if row.path == "params.b_K")
    assert row.verdict == "pass"
    assert max(abs(row.analytic), abs(row.numeric)) < 1e-11


@pytest.mark.parametrize("forward", [
    lambda x: (np.zeros(3), None),
    lambda x: (x.sum() * np.zeros(2) + 7.0, None),
    lambda x: ((x / x) * np.sqrt(x / x), None),
    lambda x: (softmax_forward(x)[0].sum(), None),  # 1, and off by some last bits
])  # fmt: skip
def test_a_gradient_of_zero_passes_alone(forward):
    x = np.linspace(-3, 3, 60) ** 3
    report = gradcheck(forward, lambda dy, cache: np.zeros(60), x)
    assert report, report
    assert not gradcheck(forward, lambda dy, cache: np.full(60, 1e-6 * dy.sum()), x)


def test_a_gradient_that_rounding_hides_is_not_passed():
    """1e-17 may be the rounding of 0, or all there is of a slope; the output, which is 1, cannot tell."""
    x = np.linspace(-3, 3, 60) ** 3
    report = gradcheck(
        lambda x: (softmax_forward(x)[0].sum(), None), lambda dy, _: np.full(60, 1e-17 * dy), x
    )
    assert verdicts(report) == {"x": "unsure"} and "rounding hides it" in report.rows[0].note


def test_an_output_that_is_nothing_but_rounding_is_not_judged():
    x = np.linspace(-3, 3, 60) ** 3
    report = gradcheck(lambda x: (((x - x.mean()) / x.std()).sum(), None), lambda dy, _: 0 * x, x)
    assert verdicts(report) == {"x": "unsure"}


def test_small_gradients_are_checked_as_sharply_as_large_ones():
    x = np.array([0.5, -2.0, 3.0])
    assert gradcheck(lambda x: (1e-4 * x * x, x), lambda dy, x: 2e-4 * x * dy, x)
    assert not gradcheck(lambda x: (1e-4 * x * x, x), lambda dy, x: 2e-4 * x * dy * (1 + 1e-7), x)


def test_large_inputs_to_layer_norm_pass():
    rng = np.random.default_rng(0)
    params = LayerNormParams(rng.standard_normal(6), rng.standard_normal(6))
    for offset, scale in [(1e4, 1.0), (0.0, 1e4), (0.0, 1e-3)]:
        report = gradcheck(
            layer_norm_forward, layer_norm_backward, offset + scale * rng.standard_normal((2, 6)), params
        )
        assert report, report


# How good the numeric slopes are


FUNCTIONS = {
    "exp": (np.exp, mpmath.exp, [-3.0, 0.0, 0.1, 2.0]),
    "sin": (np.sin, mpmath.sin, [-3.0, 0.0, 0.3, 10.0]),
    "tanh": (np.tanh, mpmath.tanh, [-2.0, 0.0, 0.7]),
    "erf": (np.vectorize(math.erf), mpmath.erf, [-1.3, 0.0, 0.9]),
    "log": (np.log, mpmath.log, [0.02, 1.0, 3.0, 1e5]),
    "sqrt": (np.sqrt, mpmath.sqrt, [0.05, 2.0, 1e4]),
    "1/x": (lambda x: 1 / x, lambda x: 1 / x, [-0.05, 0.3, 1.0, 40.0]),
    "x^7": (lambda x: x**7, lambda x: x**7, [-1.1, 0.9, 2.5, 1e3]),
    "sigmoid(20 x)": (
        lambda x: 1 / (1 + np.exp(-20 * x)),
        lambda x: 1 / (1 + mpmath.exp(-20 * x)),
        [-0.1, 0.0, 0.07],
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_slopes_are_good_to_eleven_digits(name):
    f, exact, points = FUNCTIONS[name]
    for point in points:
        with mpmath.workdps(40):
            slope = float(mpmath.diff(exact, mpmath.mpf(point)))
        row = only_row(lambda x: (f(x), None), lambda dy, cache, slope=slope: dy * slope, np.array([point]))
        assert abs(row.numeric - row.analytic) <= 1e-11 * abs(row.analytic), row


def test_the_extrapolation_is_exact_for_a_polynomial_of_degree_five():
    # At this tolerance the first estimate will do, so its error is that of the formula alone.
    evaluations = []

    def forward(x):
        evaluations.append(1)
        return x + 30 * x**2 + 1e3 * x**3 + 1e4 * x**4 + 1e5 * x**5, None

    row = only_row(forward, lambda dy, _: dy, np.zeros(1), tolerance=1e-2)
    assert row.error < 1e-12
    assert len(evaluations) == 3 + 6


def test_the_step_is_the_one_that_was_made():
    # x + h rounds here: it has one bit less after the point than x.
    row = only_row(lambda x: (x * 1.0, None), lambda dy, _: dy, np.nextafter([2.0, 4.0], 0))
    assert row.error < 1e-15


def test_the_estimate_that_is_least_in_doubt_is_kept():
    # Every output is off by up to 1e-12, more than the first step forgives; smaller steps only make it worse.
    x = np.linspace(0.1, 2, 30)
    assert gradcheck(lambda x: ((x * x + 1e4) - 1e4, x), square_backward, x)


def test_a_block_with_736_parameters_is_checked_to_3e_12_with_six_evaluations_an_entry():
    rng = np.random.default_rng(0)
    config = TransformerConfig(8, 24, 2, activation="gelu", attention_bias=True)
    params = tree_map(lambda p: p + rng.standard_normal(p.shape) / 4, init_encoder_block(config, rng))
    evaluations = []

    def counted(*args):
        evaluations.append(1)
        return encoder_block_forward(*args)

    x = rng.standard_normal((2, 3, 8))
    report = gradcheck(counted, encoder_block_backward, x, params, config)
    assert report, report
    errors = {row.path: row.error for row in report.rows}
    assert errors.pop("args[1].attention.b_K") < 1e-9  # of a thousandth: its gradient is zero
    assert max(errors.values()) < 3e-12
    assert len(evaluations) < 6.2 * (x.size + 736)  # a few need smaller steps


def test_a_smooth_function_takes_six_evaluations_an_entry_and_three_more():
    evaluations = []
    gradcheck(lambda x: (evaluations.append(1) or np.sin(x), x), lambda dy, x: dy * np.cos(x), np.ones(5))
    assert len(evaluations) == 3 + 6 * 5


def test_a_singularity_that_is_near_is_approached_with_smaller_steps():
    x = np.array([1e-3, -1e-3, 1e-4])  # the first steps of 2⁻⁷ reach across
    assert gradcheck(lambda x: (1 / x, x), lambda dy, x: -dy / x**2, x)
    assert gradcheck(lambda x: (np.log(x), x), lambda dy, x: dy / x, abs(x))  # where log has no value


# Kinks


def test_relu_at_zero_is_a_kink_and_says_where():
    row = only_row(relu_forward, relu_backward, np.array([[1.0, -2.0], [0.0, 3.0]]))
    d_output = np.random.default_rng(0).standard_normal((2, 2))
    assert (row.verdict, row.index, row.analytic) == ("kink", (1, 0), 0.0)
    assert row.numeric == pytest.approx(d_output[1, 0] / 2)
    assert row.note == (
        f"1 of 4 at a kink, first [1, 0]: slope 0 on its left, {d_output[1, 0]:.3g} on its right"
    )


def test_a_planted_zero_in_the_hidden_layer_marks_every_leaf_that_moves_it():
    rng = np.random.default_rng(1)
    x, params = rng.standard_normal((2, 3, 4)), init_ffn(4, 5, rng)
    params.W_1[:, 2] = [0.5, 1.0, 0.25, 0.0]
    x[1, 0] = [2.0, -1.0, 0.0, 4.0]  # so z is 0 there, to the last bit
    report = gradcheck(ffn_forward, ffn_backward, x, params)
    assert verdicts(report) == {
        "x": "kink", "params.W_1": "kink", "params.b_1": "kink", "params.W_2": "pass", "params.b_2": "pass"
    }  # fmt: skip
    notes = {row.path: row.note for row in report.rows}
    assert notes["x"].startswith("3 of 24 at a kink, first [1, 0, 0]")
    assert notes["params.W_1"].startswith("3 of 20 at a kink, first [0, 2]")
    assert notes["params.b_1"].startswith("1 of 5 at a kink, first [2]")
    assert all(note.count("at a kink") == bool(note) for note in notes.values())  # the first is named


def test_the_absolute_value_at_zero_is_a_kink_though_the_error_is_zero():
    row = only_row(lambda x: (abs(x), x), lambda dy, x: dy * np.sign(x), np.array([0.0, 2.0]))
    assert (row.verdict, row.index, row.error) == ("kink", (0,), 0.0)


@pytest.mark.parametrize("distance", [1e-3, -1e-3, 0.003472, 1e-4, -1e-5, 4e-6])
def test_a_kink_that_is_near_does_not_matter(distance):
    row = only_row(relu_forward, relu_backward, np.array([distance, 1.0]))
    assert row.verdict == "pass"
    assert row.error < 1e-8


@pytest.mark.parametrize("distance", [1e-6, 1e-7, -1e-9, 1e-12, 1e-300])
def test_no_distance_is_too_small_where_the_entry_itself_is_small(distance):
    assert only_row(relu_forward, relu_backward, np.array([distance, 1.0])).verdict == "pass"


def test_a_kink_too_near_for_the_steps_is_no_kink_but_cannot_be_judged():
    row = only_row(relu_forward, relu_backward, np.array([3.0]) - 3 * (1 - 2.0**-40) + 0.0)
    assert row.verdict == "pass"
    row = only_row(lambda x: (np.maximum(x - 3, 0), x), lambda dy, x: dy * (x > 3), np.array([3 + 2.0**-45]))
    assert row.verdict == "unsure" and "the steps do not agree" in row.note


def test_no_distance_to_a_kink_accuses_a_right_backward():
    for distance in np.geomspace(1e-9, 1e-1, 300):
        x = np.array([distance, -distance, 1.0])
        assert only_row(relu_forward, relu_backward, x).verdict != "fail", distance


def test_a_kink_far_from_zero_is_found_in_proportion_to_x():
    def forward(x):
        return np.maximum(x, 1000.0), x

    def backward(dy, x):
        return dy * (x > 1000.0)

    assert only_row(forward, backward, np.array([1000.0, 2000.0])).verdict == "kink"
    assert only_row(forward, backward, np.array([1000.01, 2000.0])).verdict == "pass"


def test_a_wrong_entry_beside_a_kink_is_a_failure():
    row = only_row(relu_forward, lambda dy, cache: 2 * relu_backward(dy, cache), np.array([0.0, 3.0]))
    assert (row.verdict, row.index) == ("fail", (1,))
    assert row.error == pytest.approx(1)
    assert row.note.startswith("1 of 2 at a kink, first [0]")


def test_a_gradient_far_from_both_slopes_of_a_kink_is_a_failure():
    row = only_row(relu_forward, lambda dy, cache: np.full(1, 1000.0), np.array([0.0]))
    assert row.verdict == "fail"


@pytest.mark.parametrize(
    "f", [np.sign, np.sqrt, lambda x: np.sqrt(abs(x)), np.floor, lambda x: x * np.log(x)]
)
def test_a_point_without_a_slope_is_no_kink(f):
    def forward(x):
        with np.errstate(all="ignore"):
            return np.nan_to_num(f(x), nan=0.0 if x[0] == 0 else np.nan), x

    row = only_row(forward, lambda dy, x: 0 * dy, np.array([0.0]))
    assert row.verdict == "unsure"


def test_a_jump_of_the_function_does_not_hide_a_wrong_gradient_of_another_leaf():
    def forward(x, w):
        return 100 * np.floor(x) + w, None

    report = gradcheck(forward, lambda dy, _: (0 * dy, dy * (1 + 2e-8)), np.array([1.0]), np.array([2.0]))
    assert verdicts(report) == {"x": "unsure", "w": "fail"}


def test_warnings_of_the_steps_are_not_the_callers():
    x = np.array([1e-3])  # log of x - 2⁻⁷ warns, and the test run turns warnings into errors
    assert gradcheck(lambda x: (np.log(x), x), lambda dy, x: dy / x, x)


# What is differentiated, and what is left alone


def test_arguments_without_floating_arrays_are_left_alone():
    seen = []

    def forward(x, ids, word, mask, nothing, number, *, scale):
        seen.append((word, nothing, number))
        return x[ids] * np.where(mask, scale, 1.0) * number, (x, ids, mask, scale, number)

    def backward(dy, cache):
        x, ids, mask, scale, number = cache
        dx = np.zeros_like(x)
        np.add.at(dx, ids, dy * np.where(mask, scale, 1.0) * number)
        return dx

    ids, mask = np.array([0, 2, 2]), np.array([True, False, True])
    report = gradcheck(
        forward, backward, np.arange(3.0), ids, "word", mask, None, 1.5, scale=np.array([1, 2, 3])
    )
    assert report and verdicts(report) == {"x": "pass"}
    assert set(seen) == {("word", None, 1.5)}


def test_paths_are_the_parameters_names():
    def forward(x, params, *others):
        return x + params.b_1 + others[0][1] + others[1], None

    params = FFNParams(*np.ones((4, 2)))._replace(W_1=None)
    others = (np.ones(2), np.ones(2)), np.ones(2)
    backward = lambda dy, _: (dy, FFNParams(None, dy, 0 * dy, 0 * dy), (0 * dy, dy), dy)  # noqa: E731
    report = gradcheck(forward, backward, np.ones(2), params, *others)
    assert report, report
    assert [row.path for row in report.rows] == [
        "x", "params.b_1", "params.W_2", "params.b_2", "others[0].0", "others[0].1", "others[1]"
    ]  # fmt: skip


def test_paths_without_a_signature_are_numbered():
    class Foreign:
        __signature__ = "none"

        def __call__(self, x, y):
            return x * y, (x, y)

    report = gradcheck(Foreign(), lambda dy, cache: (dy * cache[1], dy * cache[0]), np.ones(2), np.ones(2))
    assert verdicts(report) == {"args[0]": "pass", "args[1]": "pass"}


def test_one_array_given_twice_is_two_arguments():
    x = np.array([1.0, 2.0])
    report = gradcheck(lambda a, b: (a * b, (a, b)), lambda dy, c: (dy * c[1], dy * c[0]), x, x)
    assert report and len(report.rows) == 2


def test_numbers_without_axes_and_empty_arrays_have_rows():
    report = gradcheck(
        lambda x, y: (x * x + y.sum(), (x, y)),
        lambda dy, c: (2 * c[0] * dy, dy + c[1]),
        np.array(3.0),
        np.ones((0, 2)),
    )
    assert report
    assert report.rows[0].index == ()
    assert report.rows[1] == GradientRow("y", (), 0.0, 0.0, 0.0, "pass", "has no entries")


def test_an_output_without_entries_has_a_gradient_of_zero():
    assert gradcheck(lambda x: (x[:0], x), lambda dy, x: 0 * x, np.ones(3))
    assert not gradcheck(lambda x: (x[:0], x), lambda dy, x: x, np.ones(3))


def test_a_python_float_may_be_the_output():
    assert gradcheck(lambda x: (float((x * x).sum()), x), square_backward, np.array([1.0, 2.0]))


def test_strided_arguments_are_as_good_as_others():
    x = np.arange(12.0).reshape(3, 4)
    assert gradcheck(square, square_backward, x.T[::-1, ::2])


# How a backward pass may answer


@pytest.mark.parametrize("wrap", [lambda g: g, lambda g: (g,), lambda g: [g]])
def test_a_single_gradient_may_come_alone_or_in_a_tuple(wrap):
    assert gradcheck(square, lambda dy, x: wrap(square_backward(dy, x)), np.ones(3))
    assert gradcheck(
        lambda p: (p.gamma * p.beta, p),
        lambda dy, p: wrap(LayerNormParams(dy * p.beta, dy * p.gamma)),
        LayerNormParams(np.ones(2), np.arange(2.0)),
    )


@pytest.mark.parametrize("wrap", [lambda g: g, lambda g: (g,)])
@pytest.mark.parametrize("n", [1, 2])
def test_the_gradient_of_a_tuple_may_come_alone_or_in_a_tuple(wrap, n):
    arrays = tuple(np.arange(6.0).reshape(3, 2)[:n])
    report = gradcheck(
        lambda xs: (sum(x * x for x in xs), xs), lambda dy, xs: wrap(tuple(2 * x * dy for x in xs)), arrays
    )
    assert report, report


def test_several_gradients_may_come_in_a_list():
    assert gradcheck(
        lambda a, b: (a * b, (a, b)), lambda dy, c: [dy * c[1], dy * c[0]], np.ones(2), np.arange(2.0)
    )


@pytest.mark.parametrize("gradient, note", [
    (np.ones((4, 8)).T, "has shape (8, 4), expected (4, 8)"),
    (np.ones(4), "has shape (4,), expected (4, 8)"),
    (np.float64(1), "has shape (), expected (4, 8)"),
    (None, "is None, expected an array of shape (4, 8)"),
    ([1.0, 2.0], "is list of 2, expected an array of shape (4, 8)"),
    ({"x": 1}, "is dict of x, expected an array of shape (4, 8)"),
    (np.ones((4, 8), dtype=np.float32), "has dtype float32, expected float64"),
    (np.ones((4, 8), dtype=int), f"has dtype {INTEGER}, expected float64"),
])  # fmt: skip
def test_a_gradient_of_the_wrong_kind_is_a_row_that_fails(gradient, note):
    row = only_row(lambda x: (x, None), lambda dy, cache: gradient, np.ones((4, 8)))
    assert (row.path, row.verdict, row.note) == ("x", "fail", note)
    assert row.error == math.inf


@pytest.mark.parametrize("result, note", [
    (np.ones(2), "number of gradients is 1, expected 2"),
    ((np.ones(2),) * 3, "number of gradients is 3, expected 2"),
    (LayerNormParams(np.ones(2), np.ones(2)), "number of gradients is 1, expected 2"),
    (None, "number of gradients is 1, expected 2"),
])  # fmt: skip
def test_a_wrong_number_of_gradients_is_a_row_that_fails(result, note):
    row = only_row(lambda x, y: (x + y, None), lambda dy, cache: result, np.ones(2), np.ones(2))
    assert (row.path, row.verdict, row.note) == ("x, y", "fail", note)


class Other(NamedTuple):
    gamma: object
    beta: object


@pytest.mark.parametrize("gradient, failed", [
    (Other(0, 0), {"p": "is Other of 2, expected LayerNormParams of 2"}),
    ((1, 2), {"p": "is tuple of 2, expected LayerNormParams of 2"}),
    (None, {"p": "is None, expected LayerNormParams of 2"}),
    (LayerNormParams(None, None), {"p.gamma": "is None, expected an array of shape (2,)"}),
    (LayerNormParams(np.ones(2), np.ones(2)), {"p.beta": "is ndarray, expected None as the parameter is"}),
])  # fmt: skip
def test_a_tree_of_the_wrong_form_is_a_row_that_fails(gradient, failed):
    def backward(dy, cache):
        return gradient._replace(gamma=dy) if getattr(gradient, "gamma", None) is not None else gradient

    report = gradcheck(lambda p: (p.gamma * 1, None), backward, LayerNormParams(np.ones(2), None))
    assert {row.path: row.note for row in report.rows if row.verdict == "fail"} == failed


def test_a_tuple_of_another_length_is_a_row_that_fails():
    row = only_row(lambda xs: (xs[0] + xs[1], None), lambda dy, _: (dy, dy, dy), (np.ones(2), np.ones(2)))
    assert (row.path, row.note) == ("xs", "is tuple of 3, expected tuple of 2")


def test_a_branch_of_settings_needs_no_gradient():
    report = gradcheck(
        lambda p: (2 * p[0], None), lambda dy, _: (2 * dy, None), (np.ones(2), (np.arange(2),))
    )
    assert verdicts(report) == {"p.0": "pass"}


def test_parameters_that_are_none_have_no_rows_when_their_gradients_are():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 4))
    params = init_attention(4, rng)
    report = gradcheck(
        multi_head_attention_forward, multi_head_attention_backward, x, x, x, params, n_heads=2
    )
    assert report
    assert [row.path for row in report.rows] == ["q", "k", "v", *(f"params.W_{letter}" for letter in "QKVO")]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_fails_and_says_where(value):
    def backward(dy, x):
        dx = square_backward(dy, x)
        dx[1, 0] = value
        return dx

    row = only_row(square, backward, np.arange(1.0, 5.0).reshape(2, 2))
    assert (row.verdict, row.index, row.error, row.note) == ("fail", (1, 0), math.inf, "1 of 4 not finite")
    assert np.array_equal(row.analytic, value, equal_nan=True)
    assert math.isfinite(row.numeric)


def test_a_gradient_that_is_not_finite_at_a_kink_fails():
    row = only_row(relu_forward, lambda dy, cache: np.full(1, math.nan), np.array([0.0]))
    assert (row.verdict, row.note) == ("fail", "1 of 1 not finite")
    row = only_row(lambda x: (np.sqrt(x), x), lambda dy, x: dy * math.inf, np.array([0.0]))
    assert (row.verdict, row.note) == ("fail", "1 of 1 not finite")


def test_what_a_backward_raises_comes_through():
    def backward(dy, cache):
        raise ZeroDivisionError("the student's own")

    with pytest.raises(ZeroDivisionError, match="the student's own"):
        gradcheck(square, backward, np.ones(2))


# Copies and random numbers


def test_functions_that_write_into_their_arguments_are_named_and_do_no_harm():
    def forward(x, shift):
        cache = x.copy(), shift.copy()
        x += shift
        shift *= 2
        x *= x
        return x, cache

    def backward(dy, cache):
        dy *= 2 * (cache[0] + cache[1])
        return dy, dy

    x, shift = np.array([1.0, 2.0]), np.ones(2)
    report = gradcheck(forward, backward, x, shift)
    assert (x == [1.0, 2.0]).all() and (shift == 1).all()
    assert [row.verdict for row in report.rows] == ["pass", "pass", "fail", "fail", "fail"], report
    assert [row.path for row in report.rows] == ["x", "shift", "forward", "forward", "backward"]
    assert [row.note for row in report.rows[2:]] == [
        "forward writes into its arguments (0)",
        "forward writes into its arguments (1)",
        "backward writes into d_output",
    ]


NOTES = {
    "backward destroys its cache": "backward writes into its cache",
    "backward pops its cache": "backward writes into its cache",
    "backward zeroes its cache when it is done": "backward writes into its cache (x)",
    "backward writes its result into dy": "backward writes into d_output",
    "backward returns a buffer that its next call overwrites": "backward returns a buffer that its next call",
    "forward's cache is a buffer that its next call overwrites": "forward's next call writes into the cache",
    "forward returns a buffer that its next call overwrites": "forward returns a buffer that its next call",
    "backward reads what the last forward left behind": "another gradient when called again",
    "backward is right only the first time": "another gradient when called again",
    "clipped at 5, far below it": "not linear in d_output: -6.44e+09 times d_output",
    "√x at 0: nothing on its left": "there is no finite value close to it",
    "√|x| at 0: a cusp": "its slope grows without end",
    "floor at 1: the value jumps": "the value jumps",
    "1 + 1e-20 x²: the second term is swallowed": "too small to judge, rounding hides it",
    "entries of 1e8 and 1e-8, the smaller one's factor 2 missing": "too small beside the largest",
}


@pytest.mark.parametrize("name", NOTES)
def test_the_note_says_what_is_wrong(name):
    pair = PAIRS[name]
    notes = "; ".join(row.note for row in gradcheck(*fresh(pair), *pair.args).rows)
    assert NOTES[name] in notes


def test_a_backward_that_raises_when_it_is_called_again_says_so():
    report = gradcheck(lambda x: (x * x, [x]), lambda dy, cache: 2 * dy * cache.pop(), np.ones(2))
    assert "backward raises IndexError when it is called again: pop from empty list" in str(report)


def test_a_backward_that_answers_otherwise_when_it_is_called_again_says_so():
    answers = iter([1, None, None])

    def backward(dy, x):
        return 2 * x * dy if next(answers) else None

    assert only_row(square, backward, np.ones(2)).note.startswith("has another form when called again")


def test_reports_repeat():
    x = np.random.default_rng(1).standard_normal((3, 4))
    params = LayerNormParams(np.ones(4), np.zeros(4))
    first = gradcheck(layer_norm_forward, layer_norm_backward, x, params)
    assert first == gradcheck(layer_norm_forward, layer_norm_backward, x, params)
    given = gradcheck(layer_norm_forward, layer_norm_backward, x, params, rng=np.random.default_rng(0))
    assert first == given
    other = gradcheck(layer_norm_forward, layer_norm_backward, x, params, rng=np.random.default_rng(1))
    assert other and first != other


def test_a_generator_among_the_arguments_gives_one_mask_and_is_not_advanced():
    generator, x = np.random.default_rng(5), np.ones((4, 5))
    assert gradcheck(dropout_forward, dropout_backward, x, 0.5, generator)
    assert gradcheck(dropout_forward, dropout_backward, x, rate=0.5, rng=np.random.default_rng(5))
    assert generator.random() == np.random.default_rng(5).random()


def test_a_forward_with_an_rng_of_its_own_gets_a_copy():
    dropped = []

    def forward(x, rate, rng=None):
        y, cache = dropout_forward(x, rate, rng)
        dropped.append((y == 0).sum())
        return y, cache

    generator = np.random.default_rng(5)
    assert gradcheck(forward, dropout_backward, np.ones((4, 5)), 0.5, rng=generator)
    assert min(dropped) > 0
    reference = np.random.default_rng(5)
    reference.standard_normal((4, 5))  # the one draw that was made: d_output
    assert generator.random() == reference.random()
    # an rng that is among args already is the forward's, and the other one d_output's
    assert gradcheck(forward, dropout_backward, np.ones(3), 0.5, np.random.default_rng(1), rng=generator)


def test_a_forward_that_draws_anew_each_time_is_refused():
    generator = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"^gradcheck: forward gives another output when it is called again"):
        gradcheck(lambda x: dropout_forward(x, 0.5, generator), dropout_backward, np.ones(20))


# What is refused


def test_float32_is_refused_with_the_cast():
    message = (
        r"^gradcheck: params\.beta has dtype float32; expected float64.*params\.beta\.astype\(np\.float64\)"
    )
    params = LayerNormParams(np.ones(2), np.zeros(2, dtype=np.float32))
    with pytest.raises(TypeError, match=message):
        gradcheck(layer_norm_forward, layer_norm_backward, np.ones((1, 2)), params)


@pytest.mark.parametrize("args", [(), (3.0,), (np.arange(3),), ("x", None), (np.float64(2),)])
def test_nothing_to_differentiate_is_refused(args):
    with pytest.raises(TypeError, match=r"^gradcheck: no argument is a floating array"):
        gradcheck(lambda *args: (np.ones(1), None), lambda dy, cache: dy, *args)


@pytest.mark.parametrize("result, received", [
    (np.ones(2), "ndarray"),
    ((np.ones(2),), "tuple of 1"),
    (LayerNormParams(np.ones(2), None), "LayerNormParams of 2"),
    (None, "None"),
])  # fmt: skip
def test_a_forward_without_a_cache_is_refused(result, received):
    with pytest.raises(
        TypeError, match=rf"^gradcheck: forward returned {received}; expected a pair \(output, cache\)$"
    ):
        gradcheck(lambda x: result, lambda dy, cache: dy, np.ones(2))


@pytest.mark.parametrize("output, received", [
    (np.ones(2, dtype=np.float32), "float32"),
    (np.ones(2, dtype=int), INTEGER),
    ([1.0], "list of 1"),
    (3, "int"),
])  # fmt: skip
def test_an_output_that_is_not_float64_is_refused(output, received):
    message = rf"^gradcheck: forward's output is {received}; expected an array of float64$"
    with pytest.raises(TypeError, match=message):
        gradcheck(lambda x: (output, None), lambda dy, cache: dy, np.ones(2))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_finite_are_refused(value):
    with pytest.raises(ValueError, match=r"^gradcheck: x has entries that are not finite"):
        gradcheck(square, square_backward, np.array([1.0, value]))
    with pytest.raises(ValueError, match=r"^gradcheck: forward's output has entries that are not finite"):
        gradcheck(lambda x: (x + value, None), lambda dy, cache: dy, np.ones(2))


def test_settings_are_checked():
    with pytest.raises(ValueError, match=r"^gradcheck: tolerance is 0"):
        gradcheck(square, square_backward, np.ones(2), tolerance=0)
    with pytest.raises(TypeError, match=r"^gradcheck: rng is an int"):
        gradcheck(square, square_backward, np.ones(2), rng=0)


# The report


ROWS = (
    GradientRow("x", (0, 11), -0.125, -0.12500000001, 2.5e-13, "pass", ""),
    GradientRow("params.W_1", (3,), 1e-20, -1234.56789, 1.0, "fail", "has shape (4,), expected (4, 8)"),
    GradientRow("params.<b>", (), math.nan, math.nan, math.inf, "kink", 'a & "b"'),
)


def test_a_report_is_true_when_every_row_passes():
    assert GradientReport(ROWS[:1], 1e-8)
    for row in ROWS[1:]:
        assert not GradientReport((ROWS[0], row), 1e-8)


def test_the_table_is_aligned():
    summary, head, *lines = str(GradientReport(ROWS, 1e-8)).splitlines()
    assert summary == "gradient check: 1 of 3 failed, 1 of 3 at a kink (tolerance 1e-08)"
    assert head.split() == ["leaf", "worst", "analytic", "numeric", "error", "verdict", "note"]
    for row, line in zip(ROWS, lines, strict=True):
        for column, word in [("leaf", row.path), ("verdict", row.verdict), ("note", row.note)]:
            assert line[head.index(column) :].startswith(word)
        for column, number in [("analytic", f"{row.analytic:.9g}"), ("numeric", f"{row.numeric:.9g}")]:
            assert line[: head.index(column) + len(column)].endswith(number)
        assert line == line.rstrip()
    assert "[0, 11]" in lines[0]


@pytest.mark.parametrize("rows, words", [
    (ROWS[:1], "all 1 passed"), (ROWS[:2], "1 of 2 failed"), (ROWS[::2], "1 of 2 at a kink")
])  # fmt: skip
def test_the_summary_counts(rows, words):
    assert str(GradientReport(rows, 1e-8)).startswith(f"gradient check: {words} (tolerance 1e-08)\n")


def test_the_table_is_what_a_terminal_shows():
    report = GradientReport(ROWS, 1e-8)
    assert repr(report) == str(report)


def test_a_mistake_can_be_read_from_the_table():
    def backward(dy, cache):
        dx, grads = layer_norm_backward(dy, cache)
        gamma = grads.gamma.copy()
        gamma[2] *= 1.5
        return dx, grads._replace(gamma=gamma)

    x = np.random.default_rng(4).standard_normal((5, 3))
    report = gradcheck(layer_norm_forward, backward, x, LayerNormParams(np.ones(3), np.zeros(3)))
    (line,) = (line for line in str(report).splitlines() if "fail  " in f"{line}  " and "params" in line)
    assert line.split()[:2] == ["params.gamma", "[2]"]
    row = report.rows[1]
    assert row.analytic == pytest.approx(1.5 * row.numeric)


class _Table(HTMLParser):
    """The text of each cell, row by row, with every tag closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.rows, self.caption = [], [], ""

    def handle_starttag(self, tag, attributes):
        assert not attributes  # no colour, no style: the words carry the meaning
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1] == "caption":
            self.caption += data
        else:
            self.rows[-1][-1] += data


def test_the_notebook_shows_the_same_table_with_names_escaped():
    report = GradientReport(ROWS, 1e-8)
    table = _Table()
    table.feed(report._repr_html_())
    table.close()
    assert table.open == []
    assert table.caption == str(report).splitlines()[0]
    assert table.rows[0] == ["leaf", "worst", "analytic", "numeric", "error", "verdict", "note"]
    assert table.rows[2] == [
        "params.W_1", "[3]", "1e-20", "-1234.56789", "1.0e+00", "fail", "has shape (4,), expected (4, 8)"
    ]  # fmt: skip
    assert table.rows[3] == ["params.<b>", "-", "nan", "nan", "inf", "kink", 'a & "b"']
    assert "<b>" not in report._repr_html_()


def test_the_tolerance_is_a_hundred_millionth_unless_said():
    assert gradcheck(lambda x: (x * x, x), lambda dy, x: 2 * dy * x, np.ones(2)).tolerance == 1e-8


def test_an_entry_that_rounding_hides_wholly_is_not_held_against_its_gradient():
    def forward(x):
        return np.array([1e8 + 1e-22 * x[0], x[1]]), None  # x[0] never changes a digit of the first output

    row = only_row(forward, lambda dy, _: np.array([1e-22, 1.0]) * dy, np.array([1.0, 2.0]))
    assert row.verdict == "pass"
