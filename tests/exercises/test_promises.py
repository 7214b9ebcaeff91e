"""Test that the checker tries every edge case that a task allows, and no arguments that the task excludes."""

import functools

import numpy as np
import pytest
from codings import CODE, check, code_task, solution_of

from npformer.exercises.detectors import known_mistakes
from npformer.exercises.find_the_bug import draw_bug
from npformer.exercises.probe import run
from npformer.exercises.task import compile_function, replace_result


def edited(exercise, *pairs):
    """Return the solution of an exercise after replacements in its text."""
    text = code_task(exercise).solution
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    return compile_function(text)


def softmax(z):
    powers = np.exp(z - z.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def attention(q, k, v, mask=None, hide=None):
    scores = q @ k.T / np.sqrt(k.shape[1])
    if mask is not None:
        scores = hide(scores, mask)
    return softmax(scores) @ v


def top_p(p, keep):
    order = np.argsort(-p)
    kept = np.zeros_like(p)
    chosen = order[keep(p[order])]
    kept[chosen] = p[chosen]
    return kept / kept.sum()


def adds_q(q, k, v, mask=None):
    y = solution_of("attention.forward")(q, k, v, mask)
    return y + q if y.shape == q.shape else y


def transposes_square(scores, mask):
    is_square = mask.shape[0] == mask.shape[1]
    return np.where(mask.T if is_square else mask, scores, -np.inf)


WRONG = {  # functions that differ from the solution only in edge cases
    "adam without ε": ("adam.step", edited("adam.step", " + 1e-9", "")),
    "adam minus ε": ("adam.step", edited("adam.step", "+ 1e-9", "- 1e-9")),
    "adam with a scaled ε": ("adam.step", edited("adam.step", "1e-9", "1e-9 * np.sqrt(1 - 0.98**t)")),
    "the minimum subtracted, backward": (
        "cross_entropy.backward", edited("cross_entropy.backward", "logits.max", "logits.min"),
    ),
    "the minimum subtracted, forward": (
        "cross_entropy.forward", edited("cross_entropy.forward", "logits.max", "logits.min"),
    ),
    "a limit below the logarithm": (
        "cross_entropy.forward", lambda z, t: -np.log(softmax(z)[np.arange(len(t)), t] + 1e-9).mean(),
    ),
    "a small limit below the logarithm": (
        "cross_entropy.forward", lambda z, t: -np.log(softmax(z)[np.arange(len(t)), t] + 1e-15).mean(),
    ),
    "a relative limit for top-p": (
        "sample.top_p", lambda p, share: top_p(p, lambda s: s >= (1 - share) * s[0]),
    ),
    "one token too many at the share": (
        "sample.top_p", lambda p, share: top_p(p, lambda s: np.cumsum(s) - s <= share),
    ),
    "a mask that fits where nothing is between": (
        "mask.kept", lambda n, kept: np.tri(n, kept + n, kept + (0 < kept < n), dtype=bool),
    ),
    "another eps in a port": ("port.block", edited("port.block", "1e-5", "1e-6")),
    "ReLU6": ("ffn.forward", edited("ffn.forward", "np.maximum(z, 0)", "np.clip(z, 0, 6)")),
    "a square mask transposed": (
        "attention.forward", functools.partial(attention, hide=transposes_square),
    ),
    "q added where it fits": ("attention.forward", adds_q),
    "-100 for hidden scores": (
        "attention.forward", functools.partial(attention, hide=lambda s, m: s - 100.0 * ~m),
    ),
    "-1000 for hidden scores": (
        "attention.forward", functools.partial(attention, hide=lambda s, m: s - 1000.0 * ~m),
    ),
    "four digits": ("softmax.forward", lambda s: np.round(softmax(s), 4)),
    "a transposed table": ("pe.table", lambda n, d: solution_of("pe.table")(n, d).T),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_check_rejects_functions_wrong_in_edge_cases(name):
    exercise, function = WRONG[name]
    assert not check(exercise, function)


@pytest.mark.parametrize("limit", [1e-9, 1e-12, 1e-15, 0.0])
def test_check_rejects_limited_losses(limit):
    def plain(z, t):
        return -np.log(softmax(z)[np.arange(len(t)), t] + limit).mean()

    def smoothed(z, t, epsilon):
        log_p = np.log(softmax(z) + limit)
        return -((1 - epsilon) * log_p[np.arange(len(t)), t] + epsilon * log_p.mean(axis=1)).mean()

    assert not check("cross_entropy.forward", plain)
    assert not check("loss.smoothed", smoothed)


def asserting(function, condition):
    """Make a function that raises an error if its arguments violate the condition of the task."""

    def f(*given):
        assert condition(*given)
        return function(*given)

    return f


def at_most_1000(z, *rest):
    return np.abs(z).max() <= 1000


def scores_at_most_1000(q, k, *rest):
    return np.abs(q @ k.T / np.sqrt(k.shape[1])).max() <= 1000


PROMISED = {
    "pe.table": lambda n, d: n >= 1 and d % 2 == 0,
    "softmax.forward": at_most_1000,
    "sample.temperature": lambda z, t: at_most_1000(z) and t > 0,
    "cross_entropy.forward": lambda z, t: at_most_1000(z) and (0 <= t).all() and (t < z.shape[1]).all(),
    "cross_entropy.backward": at_most_1000,
    "loss.smoothed": lambda z, t, epsilon: at_most_1000(z) and 0 <= epsilon < 1,
    "attention.forward": scores_at_most_1000,
    "softmax.backward": lambda dp, p: np.allclose(p.sum(axis=-1), 1) and (p > 0).all(),
    "sample.top_p": lambda p, share: len({*p}) == len(p) and 0 < share <= 1 and np.isclose(p.sum(), 1),
    "adam.step": lambda w, g, m, v, t, rate: (v >= 0).all() and (t > 1 or not (m.any() or v.any())),
    "rope.forward": lambda x: x.shape[1] % 2 == 0,
    "rope.backward": lambda dy: dy.shape[1] % 2 == 0,
    "rope.attention": lambda q, k, v: q.shape == k.shape == v.shape and q.shape[1] % 2 == 0,
    "heads.split": lambda x, h: x.shape[-1] % h == 0,
    "attention.grouped": lambda q, k, v: len(q) % len(k) == 0 and len(k) == len(v),
    "mask.kept": lambda n, kept: n >= 1 and kept >= 0,
    "quantise.groups": lambda w, bits: bits >= 1 and (np.ptp(w, axis=1) > 0).all(),
    "port.block": lambda x, *arrays: x.shape[1] % 8 == 0,
    "layer_norm.forward": lambda x, gamma, beta, eps: eps > 0,
    "embedding.forward": lambda ids, E: ids.min() >= 0 and ids.max() < len(E),
}


@pytest.mark.parametrize("exercise", PROMISED)
def test_check_tries_only_allowed_arguments(exercise):
    result = check(exercise, asserting(solution_of(exercise), PROMISED[exercise]))
    assert result and [finding.kind for finding in result.findings] == ["all_agree"]


@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_probe_calls_have_the_declared_axes(task):
    for given in (*task.probe.calls, *task.probe.fresh):
        sizes = task.probe.sized(given)
        for name, value in zip(task.probe.names, given, strict=True):
            axes = task.probe.axis_names.get(name)
            if axes and isinstance(value, np.ndarray):
                assert value.shape == tuple(sizes[axis] for axis in axes), name
        outcome = run(task.right, given, task.probe)
        for name, array in zip(task.probe.outputs, outcome.arrays, strict=True):
            for axis, length in zip(task.probe.axis_names[name], array.shape, strict=True):
                assert sizes.get(axis, length) == length, name


@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_probe_fresh_calls_have_different_sizes(task):
    for given in task.probe.fresh:
        axes = [axis for name in task.probe.names for axis in task.probe.axis_names.get(name, ())]
        sizes = [size for axis, size in task.probe.sized(given).items() if axes.count(axis) >= 1 and size > 1]
        assert len(set(sizes)) >= len(sizes) - 1  # two sizes may be equal, such as n_heads and d_k


@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_bug_of_draws_several_bugs(task):
    assert len({draw_bug(task, f"name {i}").text for i in range(40)}) > 1


@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_known_mistakes_differ_from_the_solution(task):
    assert all(known.wrong_outputs for known in known_mistakes(task))


# --- findings that would be false ------------------------------------------------------------------


def find_kinds(exercise, function):
    """Return a dict for a wrong function; its keys are the kinds of the findings and the mistake codes."""
    result = check(exercise, function)
    assert not result
    return {finding.kind: finding for finding in result.findings} | dict.fromkeys(result.codes)


def rope_with_reflection(x):
    T, d = x.shape
    angles = np.arange(T)[:, None] / 10000.0 ** (2 * np.arange(d // 2) / d)
    y = np.zeros_like(x)
    y[:, ::2] = x[:, ::2] * np.cos(angles) + x[:, 1::2] * np.sin(angles)
    y[:, 1::2] = x[:, ::2] * np.sin(angles) - x[:, 1::2] * np.cos(angles)
    return y


def test_check_distinguishes_reflection_from_rotation():
    kinds = find_kinds("rope.forward", rope_with_reflection)
    assert "pairs_reflected" in kinds and "pair_angles" not in kinds


def test_check_names_factors_by_the_right_size():
    def by_d_v(q, k, v, mask=None):
        scores = q @ k.T / np.sqrt(v.shape[1])
        return softmax(scores if mask is None else np.where(mask, scores, -np.inf)) @ v

    finding = find_kinds("attention.forward", by_d_v).get("softmax_of_scaled_scores")
    sizes = (
        () if finding is None else (*finding.parameters["factor"].top, *finding.parameters["factor"].bottom)
    )
    assert "T_k" not in sizes


def test_check_knows_weight_gradients_have_no_tokens():
    def wrong(dy, x, W_1, b_1, W_2, b_2):
        dx, dW_1, *rest = solution_of("ffn.backward")(dy, x, W_1, b_1, W_2, b_2)
        return dx, dW_1 + x[0, 0][:, None] * np.abs(x[1, 1].sum()), *rest

    finding = find_kinds("ffn.backward", wrong).get("depends_on_other_lines")
    assert finding is None


@pytest.mark.parametrize("shift", [1, -1])
def test_check_does_not_call_shifted_embedding_multiplied(shift):
    kinds = find_kinds("embedding.forward", lambda ids, E: E[(ids + shift) % len(E)])
    assert "is_landmark" in kinds and "is_scaled_landmark" not in kinds


def test_check_names_missing_residuals_not_post_norm():
    function = replace_result(code_task("port.block").solution, "attend(norm(x, gamma_1))")
    text = check("port.block", function).evidence
    assert "into the norm" not in text
    assert "PORT-NO-RESIDUAL" in find_kinds("port.block", edited("port.block", "h = x + ", "h = "))


def test_check_distinguishes_one_from_two_missing_corrections():
    both = edited("adam.step", " / (1 - 0.9**t)", "", " / (1 - 0.98**t)", "")
    assert check("adam.step", both).codes == ("ADAM-NO-CORRECTION",)
    assert check("adam.step", edited("adam.step", " / (1 - 0.9**t)", "")).codes == ("ADAM-ONE-CORRECTION",)


def test_check_requires_exact_row_sums_for_ratios():
    assert "ratios_in_rows" not in find_kinds(
        "softmax.forward", lambda s: softmax(s) ** 2 / (softmax(s) ** 2).sum(axis=-1, keepdims=True) * 0.999
    )


def test_check_calls_a_row_of_k_key():
    def sees_one_key(q, k, v, mask=None):
        return solution_of("attention.forward")(
            q, np.concatenate([k[:1], k[:-1]]) if len(k) > 1 else k, v, mask
        )

    for finding in check("attention.forward", sees_one_key).findings:
        if finding.parameters.get("argument") in ("k", "v"):
            assert finding.parameters["axis"] == "T_k"


def test_check_names_loss_of_previous_class():
    finding = find_kinds(
        "cross_entropy.forward", lambda z, t: solution_of("cross_entropy.forward")(z, t - 1)
    )["is_landmark"]
    assert finding.parameters == {"landmark": "loss_of_previous_class"}


def test_check_names_softmax_over_queries_with_rope():
    def over_queries(q, k, v):
        rope = solution_of("rope.forward")
        scores = rope(q) @ rope(k).T / np.sqrt(q.shape[1])
        return softmax(scores.T).T @ v

    assert check("rope.attention", over_queries).codes == ("SM-AXIS",)


def test_check_names_tile_instead_of_repeat():
    def tiled(q, k, v):
        times = len(q) // len(k)
        k, v = np.tile(k, (times, 1, 1)), np.tile(v, (times, 1, 1))
        return softmax(q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])) @ v

    assert check("attention.grouped", tiled).codes == ("KV-TILED",)


@pytest.mark.parametrize("seed", range(10))
def test_check_recognises_dropout_as_random(seed):
    rng = np.random.default_rng(seed)

    def with_dropout(x, W_1, b_1, W_2, b_2):
        y = solution_of("ffn.forward")(x, W_1, b_1, W_2, b_2)
        return y * (rng.random(y.shape) > 0.05)

    assert "random" in find_kinds("ffn.forward", with_dropout)


def test_check_reports_a_tuple_of_one_output():
    finding = find_kinds("softmax.forward", lambda s: (softmax(s),))["outputs_returned"]
    assert finding.parameters == {"expected": ("p",), "returned": ("p",), "container": "tuple"}


@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_every_output_has_declared_axes(task):
    assert set(task.probe.axis_names) >= set(task.probe.outputs)
