"""Tests of gradcheck in float16, bfloat16 and float32 with a reference: rounding passes, mistakes fail.

The kernels load low precision, compute in float32 and store low precision, as kernels on a GPU do. Each
kernel also has wrong variants, with mistakes from published kernels. Mathematics determines which variants
are correct, and gradcheck must agree.
"""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

import npformer as npf
from npformer.gradcheck import low_precision
from npformer.gradcheck.kernels import Kernel, differentiate
from npformer.gradcheck.relations import Factor, Relation

ml_dtypes = pytest.importorskip("ml_dtypes")
BF16, F16, F32 = ml_dtypes.bfloat16, np.float16, np.float32
DTYPES = pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(BF16, id="bfloat16"),
        pytest.param(F16, id="float16", marks=pytest.mark.slow),
        pytest.param(F32, id="float32", marks=pytest.mark.slow),
    ],
)


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def wide(x):
    """Load an array of low precision as float32."""
    return np.asarray(x).astype(F32)


# --- the kernels ------------------------------------------------------------------------------------


def layer_norm(x, gamma, beta, eps=1e-5):
    """Compute layer norm in the precision of its arguments, as the reference for the kernel."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * gamma + beta


def layer_norm_kernel(dtype, mistake=""):
    """Return forward and backward of layer norm. `mistake` selects a mistake in the backward pass, if any."""

    def forward(x, gamma, beta):
        return layer_norm(wide(x), wide(gamma), wide(beta)).astype(dtype), (x, gamma)

    def backward(dy, cache):
        x, gamma, dy = (wide(a) for a in (*cache, dy))
        n = x.shape[-1]
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred**2).mean(-1, keepdims=True)
        if mistake == "n - 1":
            variance = variance * n / (n - 1)
        std = np.sqrt(variance + (1e-3 if mistake == "eps" else 1e-5))
        x_hat = centred / std
        dx_hat = dy if mistake == "gamma" else dy * gamma
        mean = 0 if mistake == "mean" else dx_hat.mean(-1, keepdims=True)
        dx = (dx_hat - mean - x_hat * (dx_hat * x_hat).mean(-1, keepdims=True)) / std
        dgamma = (dy * x_hat).sum(0)
        if mistake == "accumulated":  # no mistake, but every addition is rounded
            dgamma = np.zeros(n, dtype)
            for row in dy * x_hat:
                dgamma = (wide(dgamma) + row).astype(dtype)
        if mistake == "last row":
            dgamma = (dy * x_hat)[:-1].sum(0)
        return dx.astype(dtype), wide(dgamma).astype(dtype), dy.sum(0).astype(dtype)

    return forward, backward


def softmax(scores):
    """Compute softmax in the precision of its argument, as the reference for the kernel."""
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_kernel(dtype, share=1.0):
    """Return forward and backward of softmax. `share` multiplies the sum in the backward pass."""

    def forward(scores):
        p = softmax(wide(scores)).astype(dtype)
        return p, p  # the output is saved after rounding

    def backward(dp, p):
        p, dp = wide(p), wide(dp)
        return (p * (dp - share * (dp * p).sum(-1, keepdims=True))).astype(dtype)

    return forward, backward


def gelu(z):
    """Compute GELU, z Φ(z), as the reference for the kernel."""
    return npf.gelu_forward(z)[0]


def gelu_kernel(dtype, is_approximate=False):
    """Return forward and backward of GELU; the backward pass may belong to the approximation with tanh."""

    def forward(z):
        return gelu(wide(z)).astype(dtype), z

    def backward(dy, z):
        _, cache = npf.gelu_forward(wide(z), approximate=is_approximate)
        return npf.gelu_backward(wide(dy), cache).astype(dtype)

    return forward, backward


def linear_kernel(dtype, factor=1.0):
    """Return forward and backward of x W. `factor` multiplies dW."""

    def forward(x, W):
        return (wide(x) @ wide(W)).astype(dtype), (x, W)

    def backward(dy, cache):
        x, W, dy = (wide(a) for a in (*cache, dy))
        return (dy @ W.T).astype(dtype), (factor * x.T @ dy).astype(dtype)

    return forward, backward


def norm_args(dtype, offset=0.0):
    return tuple(
        a.astype(dtype) for a in (array(6, 8) + offset, 1 + 0.3 * array(8, seed=1), array(8, seed=2))
    )


# --- correct kernels pass, mistakes fail ------------------------------------------------------------


@DTYPES
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_low_precision_correct_layer_norm_passes(dtype, offset):
    report = npf.gradcheck(*layer_norm_kernel(dtype), *norm_args(dtype, offset), reference=layer_norm)
    assert report, report
    assert max(row.systematic for row in report.rows) < 2


@DTYPES
@pytest.mark.parametrize(
    ("mistake", "leaf"), [("eps", "x"), ("mean", "x"), ("gamma", "x"), ("last row", "gamma")]
)
def test_low_precision_wrong_layer_norm_fails(dtype, mistake, leaf):
    report = npf.gradcheck(*layer_norm_kernel(dtype, mistake), *norm_args(dtype), reference=layer_norm)
    failing = {row.path: row for row in report.rows if row.verdict == "fail"}
    assert leaf in failing
    assert failing[leaf].systematic > 4
    assert failing[leaf].note.startswith("a systematic error of ")


@DTYPES
@pytest.mark.parametrize(("share", "is_correct"), [(1.0, True), (1.01, False), (0.0, False)])
def test_low_precision_softmax_needs_the_whole_sum(dtype, share, is_correct):
    kernel = softmax_kernel(dtype, share)
    report = npf.gradcheck(*kernel, (2 * array(5, 8)).astype(dtype), reference=softmax)
    assert bool(report) == is_correct, report


@DTYPES
@pytest.mark.parametrize("is_approximate", [False, True])
def test_low_precision_gelu_is_not_its_approximation(dtype, is_approximate):
    kernel = gelu_kernel(dtype, is_approximate)
    report = npf.gradcheck(*kernel, (2 * array(5, 6)).astype(dtype), reference=gelu)
    assert bool(report) == (not is_approximate), report


def test_low_precision_saved_probability_of_one_passes():
    """Rounding the saved output to 1 gives the same error at all near points, but not at far points."""
    scores = (20 * array(8, 32, seed=1)).astype(F16)
    report = npf.gradcheck(*softmax_kernel(F16), scores, reference=softmax)
    assert report, report


def alibi(scores, slopes):
    """Compute attention weights with a linear penalty on the distance, and one slope per head."""
    distances = abs(np.arange(5)[:, None] - np.arange(5))
    return softmax(scores - slopes[:, None, None] * distances)


@pytest.mark.parametrize("is_correct", [True, False])
def test_low_precision_error_that_changes_its_sign_fails(is_correct):
    """The slope of head 1 may wrongly get the gradient of head 0.

    The error of this gradient is large, but it has the opposite sign at far points.
    """

    def forward(scores, slopes):
        p = alibi(wide(scores), wide(slopes))
        return p.astype(F32), p

    def backward(dp, p):
        ds = p * (dp - (dp * p).sum(-1, keepdims=True))
        distances = abs(np.arange(5)[:, None] - np.arange(5))
        dslopes = -(ds * distances).sum((1, 2))
        if not is_correct:
            dslopes[1] = dslopes[0]
        return ds.astype(F32), dslopes.astype(F32)

    rng = np.random.default_rng(28)
    args = rng.standard_normal((2, 5, 5)).astype(F32), rng.uniform(0.1, 1, size=2).astype(F32)
    report = npf.gradcheck(forward, backward, *args, reference=alibi)
    assert [row.verdict == "pass" for row in report.rows] == [True, is_correct], report


# --- random directions ------------------------------------------------------------------------------


@DTYPES
@pytest.mark.parametrize(("factor", "is_correct"), [(1.0, True), (0.98, False)])
def test_low_precision_large_arrays_use_directions(dtype, factor, is_correct):
    x, W = array(40, 64).astype(dtype), (array(64, 32, seed=1) / 8).astype(dtype)
    report = npf.gradcheck(*linear_kernel(dtype, factor), x, W, reference=np.matmul)
    assert [row.verdict == "pass" for row in report.rows] == [True, is_correct]
    assert "8 random directions for x, W" in str(report)
    assert report.precision.reference_calls < 3000


def test_low_precision_given_number_of_directions_is_used():
    x, W = array(6, 8).astype(F16), array(8, 4, seed=1).astype(F16)
    report = npf.gradcheck(*linear_kernel(F16), x, W, reference=np.matmul, directions=3)
    assert report and report.sampled.startswith("3 random directions for x, W")


# --- the report -------------------------------------------------------------------------------------


def test_low_precision_report_gives_units_points_and_calls():
    x, W = array(3, 4).astype(BF16), array(4, 2, seed=1).astype(BF16)
    report = npf.gradcheck(*linear_kernel(BF16, 2.0), x, W, reference=np.matmul)
    text = str(report)
    assert report.precision.dtype == "bfloat16" and report.precision.points == 32
    assert report.precision.unit == 2.0**-8
    assert text.startswith("gradient check in bfloat16: 1 of 2 failed; worst W: a systematic error of ")
    assert "32 points, 33 calls of forward and of backward, " in text
    assert "% of an entry cannot be told from rounding" in text
    assert "; the gradient is 2 times the correct gradient; " in report.rows[1].note
    assert report.rows[1].note.endswith("; 8 of 8 entries have a systematic error")
    assert "<th>systematic</th>" in report._repr_html_()


def test_low_precision_names_accumulation_as_noisy():
    """A sum whose partial sums are rounded scatters by far more than one rounding, but not systematically."""

    def forward(x):
        total = np.zeros(x.shape[1], BF16)
        for row in wide(x):
            total = (wide(total) + row).astype(BF16)
        return (wide(total) ** 2).astype(BF16), (total, len(x))

    def backward(dy, cache):
        total, n = cache
        return np.repeat((2 * wide(total) * wide(dy)).astype(BF16)[None], n, axis=0)

    x = array(200, 3).astype(BF16)
    report = npf.gradcheck(forward, backward, x, reference=lambda x: x.sum(0) ** 2, directions=6)
    assert report, report
    assert "noisy: the error scatters by " in report.rows[0].note


def truncate(x):
    """Round float32 numbers to bfloat16 towards zero, by cutting off bits."""
    return (np.asarray(x, F32).view(np.uint32) & 0xFFFF0000).view(F32).astype(BF16)


@pytest.mark.parametrize("shape, start", [((8, 8), "biased towards zero by 0."), ((3, 5), "")], ids=str)
def test_low_precision_names_truncation_as_bias(shape, start):
    def forward(x):
        return truncate(wide(x) ** 2), x

    def backward(dy, x):
        return truncate(2 * wide(x) * wide(dy))

    report = npf.gradcheck(forward, backward, array(*shape).astype(BF16), reference=np.square)
    (row,) = report.rows
    assert report and row.note.startswith(start) and bool(row.note) == bool(start)


# --- edges ------------------------------------------------------------------------------------------


def relu_forward(x):
    return np.maximum(x, 0).astype(x.dtype), x


def relu_backward(dy, x):
    return dy * (x > 0).astype(x.dtype)


def test_low_precision_reports_kinks():
    x = array(3, 4).astype(F16)
    x[1, 2] = 0
    report = npf.gradcheck(relu_forward, relu_backward, x, reference=lambda x: np.maximum(x, 0.0))
    assert [row.verdict for row in report.rows] == ["kink"]
    assert report.rows[0].note == "1 of 12 at a kink"


def product_kernel(dtype, factor=1.0):
    """Return forward and backward of x W. They compute in float32, also for arguments in float64."""

    def forward(x, W):
        return (wide(x) @ wide(W)).astype(x.dtype), (x, W)

    def backward(dy, cache):
        x, W, dy = (wide(a) for a in (*cache, dy))
        return (factor * dy @ W.T).astype(dtype), (factor * x.T @ dy).astype(dtype)

    return forward, backward


@pytest.mark.parametrize("factor", [1.0, 1.5])
@pytest.mark.parametrize("directions", [None, 2])
def test_forward_in_float32_is_no_reference_for_itself(factor, directions):
    """Neither a correct nor a wrong gradient is judged, and the note says what to do."""
    x, W = array(4, 6).astype(BF16), array(6, 3, seed=1).astype(BF16)
    forward, backward = product_kernel(BF16, factor)
    report = npf.gradcheck(forward, backward, x, W, directions=directions)
    assert [row.verdict for row in report.rows] == ["unsure", "unsure"]
    for row in report.rows:
        assert row.note.startswith("forward rounds to lower precision") and "pass reference=" in row.note
    assert "rounding" not in str(report).partition("leaf")[0], "no number is known"
    exact = npf.gradcheck(forward, backward, x, W, directions=directions, reference=lambda x, W: x @ W)
    assert bool(exact) == (factor == 1.0) and not math.isnan(exact.precision.hidden)


def test_noisy_reference_is_named():
    x, W = array(4, 6).astype(BF16), array(6, 3, seed=1).astype(BF16)
    reference = lambda x, W: (wide(x) @ wide(W)).astype(float)  # noqa: E731
    report = npf.gradcheck(*product_kernel(BF16), x, W, reference=reference)
    assert [row.verdict for row in report.rows] == ["unsure", "unsure"]
    assert all(row.note.startswith("the reference is noisy") for row in report.rows)


def test_reference_that_is_a_staircase_is_named():
    """The gradient of a straight-through estimator is not the slope of its staircase."""
    x = (array(5) + 0.1).astype(BF16)
    kernel = (lambda x: (np.round(2 * wide(x)).astype(BF16), ()), lambda dy, _: (2 * wide(dy)).astype(BF16))
    (row,) = npf.gradcheck(*kernel, x, reference=lambda x: np.round(2 * x)).rows
    assert row.verdict == "unsure"
    assert row.note.startswith("the reference is a staircase with steps of 1;")


def test_reference_may_fail_far_from_the_arguments():
    """The noise of a reference is measured only where the reference has a value."""

    def reference(x):
        if abs(x).max() > 1.6:
            raise ArithmeticError("out of range")
        return (wide(x) ** 2).astype(float)

    x = np.linspace(0.5, 1.5, 6).astype(BF16)
    square = (lambda x: ((wide(x) ** 2).astype(BF16), x), lambda dy, x: (wide(dy) * wide(x)).astype(BF16))
    (row,) = npf.gradcheck(*square, x, reference=reference).rows
    assert row.verdict == "unsure" and row.note.startswith("the reference is noisy")
    (row,) = npf.gradcheck(*square, x, reference=lambda x: x * x).rows
    assert row.verdict == "fail" and "1/2" in row.note


def test_low_precision_mask_of_zeros_passes():
    """The derivative of 0 x is 0, and so is the gradient in low precision: nothing is divided by zero."""
    report = npf.gradcheck(lambda x: (0 * x, None), lambda dy, _: 0 * dy, array(5).astype(F16))
    assert report and report.rows[0].systematic == 0


@pytest.mark.parametrize(
    ("backward", "note"),
    [
        (lambda dy, x: dy[:-1], "has shape (4,), expected (5,)"),
        (lambda dy, x: dy * np.float16(np.nan), "5 of 5 not finite"),
        (lambda dy, x: (dy, dy), "is tuple of 2, expected an array of shape (5,)"),
    ],
    ids=["shape", "NaN", "count"],
)
def test_low_precision_rejects_gradients_of_wrong_form(backward, note):
    report = npf.gradcheck(lambda x: (x, x), backward, array(5).astype(F16))
    assert not report and note in report.rows[0].note


def test_low_precision_gradient_may_have_higher_precision():
    report = npf.gradcheck(lambda x: (x, x), lambda dy, x: dy.astype(F32), array(5).astype(F16))
    assert report


def test_low_precision_notices_a_change_of_form():
    calls = []

    def backward(dy, x):
        calls.append(None)
        return dy if len(calls) == 1 else dy[:1]

    report = npf.gradcheck(lambda x: (x, x), backward, array(5).astype(F16))
    assert report.rows[0].note == "has another form when called again"


def test_low_precision_notices_changed_arguments():
    def forward(x):
        x *= 2
        return x.copy(), x

    def backward(dy, x):
        dy *= 2
        x += 1
        return dy.copy()

    report = npf.gradcheck(forward, backward, array(5).astype(F16), reference=lambda x: 2 * x)
    notes = {row.note for row in report.rows if row.path in ("forward", "backward")}
    assert {note.partition(" (")[0] for note in notes} == {
        "forward writes into its arguments",
        "backward writes into d_output",
        "backward writes into its cache",
    }


def test_low_precision_copies_generators_for_every_call():
    """Dropout draws the same mask in the pair and in the reference."""

    def forward(x, rng):
        mask = rng.random(x.shape) < 0.5
        return x * mask.astype(x.dtype), mask

    def backward(dy, mask):
        return dy * mask.astype(dy.dtype)

    x = array(6, 4).astype(F16)
    assert npf.gradcheck(forward, backward, x, rng=np.random.default_rng(3))

    def reference(x, rng):
        return forward(x, rng)[0]

    assert npf.gradcheck(forward, backward, x, rng=np.random.default_rng(3), reference=reference)


def scaled_forward(x, factor=1.0):
    return (x * np.float16(factor)).astype(x.dtype), factor


def scaled_backward(dy, factor):
    return (dy * np.float16(factor)).astype(dy.dtype)


@pytest.mark.parametrize(
    "reference",
    [lambda x, factor: x * factor, lambda x, **settings: x * settings["factor"], None],
    ids=["by name", "all", "forward"],
)
def test_low_precision_reference_gets_settings(reference):
    x = array(4).astype(F16)
    assert npf.gradcheck(scaled_forward, scaled_backward, x, factor=3.0, reference=reference)
    assert not npf.gradcheck(scaled_forward, scaled_backward, x, factor=3.0, reference=lambda x: x)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (lambda x: x[:2], r"reference returned an array of shape \(2,\); expected \(4,\)"),
        (lambda x: x.astype(np.float32), r"reference's output is float32; expected an array of float64"),
        (3, "reference is an int"),
        (lambda x: x.missing, "reference raises AttributeError: "),
    ],
)
def test_low_precision_rejects_wrong_references(reference, message):
    with pytest.raises((TypeError, ValueError), match=f"^gradcheck: {message}"):
        npf.gradcheck(scaled_forward, scaled_backward, array(4).astype(F16), reference=reference)


def test_low_precision_rejects_functions_of_wrong_form():
    x = array(4).astype(F16)
    with pytest.raises(TypeError, match=r"^gradcheck: forward returned ndarray; expected a pair"):
        npf.gradcheck(lambda x: x, scaled_backward, x)
    with pytest.raises(TypeError, match=r"^gradcheck: forward's output is float16 for arguments in float64"):
        npf.gradcheck(lambda x: (x.astype(F16), x), scaled_backward, x)
    with pytest.raises(ValueError, match=r"^gradcheck: forward's output has entries that are not finite"):
        npf.gradcheck(lambda x: (x / np.float16(0), x), scaled_backward, x)


class Compiled:
    """A callable without a signature, like some functions written in C."""

    __signature__ = "unknown"

    def __call__(self, x, y, n):
        return x * y


def test_low_precision_reference_without_signature_gets_no_settings():
    """Arguments that are no floating arrays, such as a number, reach the reference unchanged."""
    report = npf.gradcheck(
        lambda x, y, n, factor: (factor * x * y, (x, y)),
        lambda d, cache: (d * cache[1], d * cache[0]),
        array(3).astype(F16),
        array(3, seed=1).astype(F16),
        4,
        factor=1,
        reference=Compiled(),
    )
    assert report


def test_low_precision_array_without_entries_passes():
    x, empty = array(3).astype(F16), np.zeros((0, 2), F16)
    report = npf.gradcheck(lambda x, y: (x, y), lambda dx, y: (dx, y), x, empty)
    assert report and [row.path for row in report.rows] == ["x", "y"]
    assert report.rows[1][1:5] == ((), 0.0, 0.0, 0.0) and report.rows[1].systematic == 0


def test_low_precision_counts_entries_with_systematic_errors():
    def backward(dy, x):
        dx = dy.copy()
        dx[:, 0] *= 2
        return dx

    report = npf.gradcheck(lambda x: (x, x), backward, array(6, 4).astype(BF16))
    assert report.rows[0].note.endswith("; 6 of 24 entries have a systematic error")


def test_low_precision_hidden_share_is_limit_in_units():
    """The gradient is d_output itself, without rounding, so errors of up to LIMIT units stay hidden."""
    report = npf.gradcheck(lambda x: (x, x), lambda dy, x: dy, array(9).astype(F16))
    limit = low_precision.LIMIT * 2.0**-11
    assert limit < report.precision.hidden < 1.1 * limit


@pytest.mark.parametrize(
    "value, noise, factor, fraction",
    [
        (2.0003, 1e-3, 2.0, 2),
        (-0.3334, 1e-3, -1 / 3, Fraction(-1, 3)),
        (2.0003, 1e-5, 2.0003, None),
        (0.1251, 0.03, 0.13, None),
    ],
)
def test_round_factor_is_as_exact_as_noise(value, noise, factor, fraction):
    assert low_precision.round_factor(value, noise) == (factor, fraction, False)


@pytest.mark.parametrize(
    "relation, rounded",
    [
        (Relation("sign"), Relation("sign")),
        (Relation("factor", {"factor": Factor(-1.0003, None, False), "origins": ()}), Relation("sign")),
        (
            Relation("symmetric", {"factor": Factor(0.5003, None, False)}),
            Relation("symmetric", {"factor": Factor(0.5, Fraction(1, 2), False)}),
        ),
    ],
)
def test_round_relation_keeps_the_known_digits(relation, rounded):
    assert low_precision.round_relation(relation, 1e-3) == rounded


def test_low_precision_names_no_array_fitting_badly():
    """The sum of softmax is missing, so the gradient is p d_output. It is not a multiple of d_output."""
    segments = np.array([0, 0, 1, 2, 1, 0, 2])

    def segment_softmax(x):
        e = np.exp(x)
        return e / np.bincount(segments, e)[segments]

    def forward(x):
        p = segment_softmax(wide(x))
        return p.astype(BF16), p

    def backward(dy, p):
        return (p * wide(dy)).astype(BF16)

    scores = array(7, seed=29).astype(BF16)
    (row,) = npf.gradcheck(forward, backward, scores, reference=segment_softmax).rows
    assert row.verdict == "fail"
    assert "times d_output" not in row.note


def test_choose_comparisons_samples_the_largest_array_first():
    """All 2010 entries need 128,640 calls of the reference. The small array alone needs 640."""
    args = array(10).astype(F16), array(2000).astype(F16)
    kernel = Kernel(lambda x, y: (x, None), lambda dy, _: (dy, np.zeros(2000, F16)), None, args, {}, None)
    small, large = low_precision.choose_comparisons(kernel, None)
    assert small.directions == () and len(large.directions) == low_precision.DIRECTIONS


def test_assert_gradients_passes_the_reference_on():
    x = array(4).astype(F16)
    npf.assert_gradients(partial(scaled_forward, factor=2.0), scaled_backward, x, reference=lambda x: 2 * x)
    with pytest.raises(AssertionError, match="gradient check in float16"):
        npf.assert_gradients(scaled_forward, scaled_backward, x, reference=lambda x: 2 * x)


def test_low_precision_float32_with_reference_counts_units():
    assert low_precision.UNITS["float32"] == np.finfo(np.float32).eps / 2
    assert low_precision.UNITS["bfloat16"] == float(ml_dtypes.finfo(BF16).eps) / 2
    assert low_precision.SMALLEST["bfloat16"] == float(ml_dtypes.finfo(BF16).smallest_subnormal)
    assert low_precision.SMALLEST["float16"] == float(np.finfo(F16).smallest_subnormal)
    assert math.log2(low_precision.SMALLEST["float32"]) == -149


def test_low_precision_factor_has_the_known_digits():
    x, W = array(3, 4).astype(F32), array(4, 2, seed=1).astype(F32)
    report = npf.gradcheck(*linear_kernel(F32, 7.1234), x, W, reference=np.matmul)
    assert "; the gradient is 7.1234" in report.rows[1].note


def test_low_precision_wrong_function_has_no_relation():
    """If the gradient belongs to a different function, the note names no relation to the correct gradient."""
    report = npf.gradcheck(
        lambda z: (np.sin(wide(z)).astype(F16), z),
        lambda dy, z: (wide(dy) * np.cos(wide(z)) ** 3).astype(F16),
        array(6, 5).astype(F16),
        reference=np.sin,
    )
    assert report.rows[0].note.count(";") == 2 and "times" not in report.rows[0].note


# --- the derivative of the reference ----------------------------------------------------------------


def differentiate_reference(reference, x, signs):
    """Return the derivative of sum(signs * reference(x)) with respect to each entry of x."""
    kernel = Kernel(lambda x: (x, None), lambda dy, _: dy, reference, (x.astype(F32),), {}, None)
    return differentiate(kernel, {"x": x}, np.array(signs), ("x",), range(x.size))


@pytest.mark.parametrize("signs", [(1.0, 1.0, 1.0), (-1.0, -1.0, -1.0)])
@pytest.mark.parametrize(("bend", "slopes"), [(np.maximum, (0, 1)), (np.minimum, (1, 0))])
def test_differentiate_returns_nan_only_at_kinks(bend, slopes, signs):
    """The derivatives of max(x, 0) and min(x, 0) are known on both sides of 0."""
    found = differentiate_reference(lambda x: bend(x, 0.0), np.array([-0.5, 0.0, 1.0]), signs)
    assert np.isnan(found[1])
    np.testing.assert_allclose(found[[0, 2]], np.multiply(signs[0], slopes), atol=1e-9)


@pytest.mark.parametrize("rate", [1.0, 3000.0])
def test_differentiate_knows_that_a_curve_has_no_kink(rate):
    """The slope of exp(3000 x) changes by 0.3 % within one step. This is not a kink."""
    x = np.array([1.0, -0.9, 1.1])
    found = differentiate_reference(lambda t: np.exp(rate * (t - x)), x, (1.0, -2.0, 0.5))
    np.testing.assert_allclose(found, np.multiply((1.0, -2.0, 0.5), rate), rtol=1e-5)
