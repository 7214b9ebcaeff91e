"""What is seen where no listed mistake fits: masks, tokens, gates, key heads, turned pairs, odd answers."""

import math
import re
from functools import partial

import numpy as np
import pytest
from labelled import own
from later_strangers import (
    adam,
    grouped_query_attention,
    log_soft,
    nucleus,
    prefill_mask,
    rope_attention_by,
    rope_gptj,
    soft,
    swiglu_ffn,
)

from npformer.exercises import check
from npformer.exercises.topics import bank
from npformer.grader.frames import Opaque

check = partial(check, level=3)  # which says most

TOP, GATE, GQA, RAT, ADAM, BACK = (
    "sample.top_p",
    "gate.forward",
    "attention.grouped",
    "rope.attention",
    "adam.step",
    "layer_norm.backward",
)


def changed_output(exercise, change):
    """The right answer with its first output changed."""

    def f(*args):
        out = own(exercise)(*args)
        return (change(out[0], *args), *out[1:]) if isinstance(out, tuple) else change(out, *args)

    return f


def heads_of(weigh):
    """Grouped attention whose weights come from weigh(q, k) with one key head for each query head."""
    return lambda q, k, v: weigh(q, k.repeat(len(q) // len(k), 0)) @ v.repeat(len(q) // len(v), 0)


def scores(q, k):
    return q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])


class Column:
    """What a table of another library gives: something that makes an array of itself."""

    def __init__(self, numbers):
        self.numbers = numbers

    def __array__(self, dtype=None, copy=None):
        return np.array(self.numbers, dtype)


def few_or_many(p, share):
    """One token more than needed for large shares, one token only for small ones."""
    n = (nucleus(p, share) > 0).sum()
    order = np.argsort(-p)[: n + 1 if share > 0.6 else 1]
    out = np.zeros(len(p))
    out[order] = p[order] / p[order].sum()
    return out


SEEN = [
    ("mask.kept", lambda n, kept: ~prefill_mask(n, kept), "True and False exchanged"),
    ("mask.causal", lambda T: np.ones((T, T)), "True everywhere"),
    ("mask.causal", lambda T: (1 - np.tri(T)) * -1e9, "far below 0 where False is"),
    ("mask.causal", lambda T: np.tri(T) + 0.5, "added to every number"),
    ("mask.causal", lambda T: np.eye(T), r"False stands where True .* first at \(1, 0\); elsewhere"),
    ("mask.kept", lambda n, kept: np.triu(np.ones((n, kept + n))), "True stands .*, and False stands"),
    (TOP, lambda p, share: np.where(p > 2 * share, p, 0) / 0, "is NaN or infinite|not finite everywhere"),
    (TOP, lambda p, share: p, "argument p itself|no token is dropped"),
    (TOP, lambda p, share: soft(p), "no token is dropped"),
    (TOP, few_or_many, "on others too few"),
    (TOP, lambda p, share: nucleus(p, share) ** 2 / (nucleus(p, share) ** 2).sum(), "proportions"),
    (TOP, lambda p, share: nucleus(p, share) ** 2, r"sum to 0\.\d+, "),
    (TOP, lambda p, share: np.roll(nucleus(p, share), 1), "in other places|one place too late"),
    (TOP, lambda p, share: nucleus(p[::-1], share) * (p + 1), "a likelier one is not"),
    (TOP, lambda p, share: nucleus(p, share)[None], "another shape"),
    (GATE, lambda x, a, b, c: (x @ a / (1 + np.exp(x @ a)) * (x @ b)) @ c, "sigmoid of -z"),
    (GATE, lambda x, a, b, c: (np.arctan(x @ a) * (x @ b)) @ c, "one hidden unit makes of z"),
    (GATE, lambda x, a, b, c: (soft(x @ a) * (x @ b)) @ c, "softmax over the hidden units"),
    (GATE, lambda x, a, b, c: swiglu_ffn(x, a, b, c) + np.sin(x), "differs first"),
    (GATE, lambda x, a, b, c: np.sin(swiglu_ffn(x, a, b, c)) * (len(c) / (len(c) - 1)), "."),
    (GQA, heads_of(lambda q, k: soft(scores(q, k) * 3)), "1/√d_k times about 3"),
    (GQA, heads_of(lambda q, k: soft(scores(q, k) * q.shape[1] ** 0.5)), "softmax of q·k times one number"),
    (GQA, heads_of(lambda q, k: np.exp(scores(q, k))), "no softmax over the keys"),
    (GQA, heads_of(lambda q, k: soft(scores(q, k) ** 3)), "."),
    (GQA, lambda q, k, v: grouped_query_attention(q, k[::-1], v), "the key heads 1, 1, 1, 0, 0, 0"),
    (GQA, lambda q, k, v: own(GQA)(q, k, 0.9 * v + 0.1 * v.mean(0)), "changes at other heads"),
    (GQA, lambda q, k, v: grouped_query_attention(q, k, v)[:, :, :-1], "columns"),
    (
        GQA,
        lambda q, k, v: own(GQA)(q.reshape(-1, len(k), *q.shape[1:]).swapaxes(0, 1).reshape(q.shape), k, v),
        "made from the queries of the heads 0, 2, 4, 1, 3, 5",
    ),
    (RAT, lambda q, k, v: np.exp(scores(rope_gptj(q), rope_gptj(k))) @ v, "no softmax over the keys"),
    (RAT, lambda q, k, v: own(RAT)(q, k, v)[:, :-1], "columns"),
    (RAT, rope_attention_by(rope_gptj, lambda x: x[::-1]), "differs first"),
    (
        RAT,
        rope_attention_by(rope_gptj, lambda x: rope_gptj(np.vstack([x[:1], x]))[1:]),
        "the key after it get different weights",
    ),
    (
        RAT,
        rope_attention_by(lambda x: rope_gptj(rope_gptj(x)), lambda x: rope_gptj(rope_gptj(x))),
        "turn by 2,",
    ),
    (
        RAT,
        rope_attention_by(rope_gptj, rope_gptj, lambda d: 1.3 * math.sqrt(d)),
        r"right angles.* 0\.769 times as large",
    ),
    (
        RAT,
        lambda q, k, v: soft(scores(rope_gptj(q), rope_gptj(k)) ** 3) @ v,
        "follow the distance|more than its distance|differs first",
    ),
    (
        RAT,
        lambda q, k, v: soft(-np.abs(np.subtract.outer(range(len(q)), range(len(q))) ** 2.0) + q @ k.T) @ v,
        ".",
    ),
    (
        RAT,
        lambda q, k, v: soft(np.where(np.tri(len(q)) > 0, scores(rope_gptj(q), rope_gptj(k)), -1e30)) @ v,
        "a causal mask",
    ),
    (RAT, lambda q, k, v: own(RAT)(np.abs(q), k, v), "q replaced by its absolute value"),
    (ADAM, lambda w, g, m, v, t, a: (w, 0.98 * m + 0.02 * g, v), "0.98 times the old one and 0.02 times g"),
    (
        ADAM,
        lambda w, g, m, v, t, a: (*adam(w, g, m, v, t, a)[:2], v + g * g),
        "1 times the old one and 1 times g²",
    ),
    (ADAM, lambda w, g, m, v, t, a: (*adam(w, g, m, v, t, a)[:2], v + np.cos(g)), "v differs"),
    (ADAM, lambda w, g, m, v, t, a: adam(w, g, m, v, 1, a), "t is not used"),
    (ADAM, changed_output(ADAM, lambda out, w, *a: out - 0.01 * w), "a multiple of w added"),
    (
        BACK,
        changed_output(BACK, lambda dx, dy, x, gamma, beta, eps: three_sums(dy, x, gamma, eps)),
        "the weight d_model and the term along x̂ has the weight d_model",
    ),
    (BACK, changed_output(BACK, lambda dx, *a: np.tanh(dx)), "dx differs"),
    (BACK, changed_output(BACK, lambda dx, *a: np.tanh(dx)[:, :, :2]), "axis 2 is shorter"),
    (RAT, lambda q, k, v: np.tanh(own(RAT)(q, k, v))[:, :2], "axis 1 is shorter"),
    (RAT, lambda q, k, v: np.tanh(own(RAT)(q, k, v))[None, :, :2], "the number of axes asked for is 2"),
    ("softmax.forward", lambda s: soft(s).round(2), "rounded to two decimals"),
    ("softmax.forward", lambda s: np.float16(soft(s)), "those of float16"),
    ("softmax.forward", lambda s: np.float16(soft(2 * s)), "differs|row"),
    ("softmax.forward", lambda s: np.zeros(0), r"no entries: its shape is \(0,\)"),
    ("softmax.forward", lambda s: soft(s) * np.nan, "NaN or infinite everywhere"),
    ("softmax.forward", lambda s: soft(s) / (np.arange(s.shape[1]) > 0), "all other numbers agree"),
    (
        "softmax.forward",
        lambda s: np.r_[soft(s)[:1] * np.nan, np.sin(3 * soft(s)[1:])],
        r"is NaN .* \(0, 0\)\.",
    ),
    ("softmax.forward", lambda s: soft(s) + 0j, "its type is complex"),
    ("softmax.forward", lambda s: str(s), "its type is text"),
    ("softmax.forward", lambda s: (row for row in s), "its type is generator"),
    ("softmax.forward", lambda s: Opaque("Graph"), "its type is Graph"),
    ("softmax.forward", lambda s: (soft(s) + 0j, s), "not an array|differs|came back"),
    ("heads.merge", lambda x: x.reshape(len(x), -1, x.shape[3]), "axis 1 is longer and axis 2 is shorter"),
    (ADAM, lambda *a: (*adam(*a), {}), "4 came back: w, m, v and something else"),
    ("softmax.forward", lambda s: np.full(s.shape, 0.3), "scores is not used"),
    (ADAM, lambda *a: tuple(map(Column, adam(*a)[:2])), "2 came back"),
    (ADAM, lambda *a: "w, m, v", "3 outputs are asked for: w, m, v"),
    (
        "ffn.forward",
        lambda x, a, b, c, d: own("ffn.forward")(x, a, b, c, d) * (x > -0.8),
        r"first at \(0, 1, 0\)\.$",
    ),
    (
        "ffn.backward",
        lambda dy, x, *p: (*own("ffn.backward")(dy, x, *p)[:4], dy.sum((0, 1)) + np.sin(x).sum((0, 1))),
        "db_2 changes when x does",
    ),
    ("cross_entropy.forward", lambda z, t: -log_soft(z)[:, t].mean(), "every row with every target"),
]


def three_sums(dy, x, gamma, eps):
    """The gradient with two sums where means belong."""
    centred = x - x.mean(-1, keepdims=True)
    std = np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    x_hat, dx_hat = centred / std, dy * gamma
    along = x_hat * (dx_hat * x_hat).sum(-1, keepdims=True)
    return (dx_hat - dx_hat.sum(-1, keepdims=True) - along) / std


@pytest.mark.parametrize(
    ("exercise", "f", "said"), SEEN, ids=lambda value: value if type(value) is str else ""
)
def test_what_is_seen(exercise, f, said):
    result = check(exercise, f, level=3)
    text = " ".join([*result.codes, result.evidence])
    assert not result and re.search(said, text), text
    assert result.question and result.question.endswith("?")


@pytest.mark.parametrize("kind", [Column, np.asarray, np.ma.masked_array, np.ndarray.tolist])
def test_numbers_are_read_in_many_forms(kind):
    assert check(ADAM, lambda *a: tuple(map(kind, adam(*a))))
    assert check("mask.causal", lambda T: kind(np.tri(T)))


def test_a_threshold_is_not_read_as_another_argument():
    for probe in bank()[TOP].probe.calls:
        assert np.array_equal(own(TOP)(*probe), own(TOP)(probe[0], 1.001 * probe[1]))
    result = check(TOP, lambda p, share: nucleus(p, share**0.5))
    assert "root" not in result.evidence and "too many" in result.evidence


def test_a_log_of_0_is_a_remark_where_one_class_counts_and_a_mistake_where_all_do():
    remark = check("cross_entropy.forward", lambda z, t: -np.log(soft(z)[range(len(t)), t]).mean())
    assert remark.status == "pass" and remark.codes == ("CE-LOG-OF-0",)

    def smoothed(z, t, e):
        return -((1 - e) * np.eye(z.shape[1])[t] + e / z.shape[1]).ravel() @ np.log(soft(z)).ravel() / len(t)

    assert check("loss.smoothed", smoothed).codes == ("LS-LOG-OF-0",)


@pytest.mark.parametrize("subtracted", [np.min, np.mean])
def test_only_the_maximum_of_a_row_is_safe_to_subtract(subtracted):
    def softmax(scores):
        e = np.exp(scores - subtracted(scores, axis=-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def attention(q, k, v, mask=None):
        return softmax(np.where(True if mask is None else mask, scores(q, k), -1e3)) @ v

    assert check("softmax.forward", softmax).codes == ("SM-OVERFLOW",)
    assert check("sample.temperature", lambda z, t: softmax(z / t)).codes == ("SM-OVERFLOW",)
    assert not check("attention.forward", attention)
