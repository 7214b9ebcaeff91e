"""What a reply says, and what it must not say: slips that were met after the observations were written."""

import re
from functools import partial

import numpy as np
import pytest
from homework_01 import HOMEWORK, _soft, _turn, table_exp_log

from npformer.exercises import check
from npformer.exercises.reading import read_letter, read_number, read_truth

check = partial(check, level=3)  # which says most

PE, CE, ADAM, GQA, AT, RAT = (
    "pe.table",
    "cross_entropy.forward",
    "adam.step",
    "attention.grouped",
    "attention.forward",
    "rope.attention",
)


def table(speeds):
    """A table whose pairs turn by speeds(i, d_model)."""

    def f(n, d_model):
        angle = np.arange(n)[:, None] * speeds(np.arange(d_model // 2), d_model)
        return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(n, d_model)

    return f


def with_column(j, value, first=0):
    def f(n, d_model):
        table = table_exp_log(n, d_model)
        table[first:, j] = value
        return table

    return f


def step(corrections):
    """Adam's step with other divisors of the two means."""

    def f(w, g, m, v, t, rate):
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g
        first, second = corrections(t)
        return w - rate * (m / first) / (np.sqrt(v / second) + 1e-9), m, v

    return f


def clipped(limit):
    return lambda z, t: -np.log(np.maximum(_soft(z)[np.arange(len(t)), t], limit)).mean()


def hinge(z, t):
    return np.mean([max(0, 1 - z[n, t[n]] + np.delete(z[n], t[n]).max()) for n in range(len(t))])


def cells(z, t):
    return -np.log(_soft(z)[np.arange(len(t)), t])


def grouped(q, k, v, order=None, hides=False):
    rep = len(q) // len(k)
    s = q @ k.repeat(rep, 0).swapaxes(1, 2) / q.shape[-1] ** 0.5
    s = np.where(np.tri(*s.shape[1:]) > 0, s, -1e9) if hides else s
    y = _soft(s) @ v.repeat(rep, 0)
    return y if order is None else y[order(len(q), len(k))]


def by_turns(h, g):
    return np.arange(h).reshape(g, -1).T.ravel()


def share_of(a):
    return a / a.sum(1, keepdims=True)


def odd_sizes_fail(ids, E):
    x = E[ids] * np.sqrt(E.shape[1])
    return x + table_exp_log(x.shape[1], x.shape[2])


def some_cosines(n, d_model):
    out = table_exp_log(n, d_model)
    out[:, 5] = out[:, 3]
    return out


SEEN = [
    (PE, table(lambda i, d: i / (i * 10000.0 ** (2 * i / d))), r"first at \(0, 0\); all other", "wave"),
    (PE, with_column(0, np.nan), r"is NaN .* first at \(0, 0\); all other numbers agree", "wave|sine"),
    (
        PE,
        with_column(3, np.inf, 1),
        r"is infinite .* first at \(1, 3\); all other numbers agree",
        "wave|sine",
    ),
    (PE, with_column(slice(2, 4), np.nan, 2), r"is NaN .* first at \(2, 2\)", "wave|in column"),
    (PE, some_cosines, "sine columns agree, and some cosine columns differ. Column 5", "Column 3"),
    (PE, table(lambda i, d: d / 10000.0 ** (2 * i)), "next to nothing", "All rows"),
    (PE, table(lambda i, d: i / 1e8 / d), "next to nothing", "All rows"),
    (PE, table(lambda i, d: 1.0 + 0 * i), "all pairs turn equally fast", "base"),
    (ADAM, step(lambda t: (1 / (1 - 0.9**t), 1 / (1 - 0.98**t))), "one factor that follows t", "place"),
    (ADAM, step(lambda t: (1 - 0.9 * t, abs(1 - 0.98 * t))), "one factor that follows t", "place"),
    (ADAM, step(lambda t: (1 - 0.9 * t, 1 - 0.98 * t)), "NaN or infinite everywhere", "factor"),
    (ADAM, lambda *a: (step(lambda t: (t, 1))(*a)[0][:2], *step(lambda t: (1, 1))(*a)[1:]), "w", "factor"),
    (CE, clipped(1e-3), "stops at 6.91", "single row"),
    (CE, lambda z, t: hinge(z, t) if len(t) > 1 else 1 / 0, "differs", "single row|each row"),
    (CE, lambda z, t: cells(z, t).mean() if len(t) != 3 else np.nan, "NaN .* all other numbers", "first"),
    (CE, hinge, "the loss of a single row is another one", "stops at"),
    (CE, lambda z, t: np.median(cells(z, t)), "For each row by itself the output loss is right", "already"),
    (CE, lambda z, t: (cells(z, t) ** 2).sum() / cells(z, t).sum() if len(t) > 2 else 1.0, "loss", "stops"),
    (CE, lambda z, t: cells(z, t)[1:].sum() + np.sin(z[0, 0]), "loss", "stops|as it should"),
    (
        GQA,
        lambda q, k, v: grouped(q, k, v, by_turns),
        "0, 3, 1",
        "",
    ),
    (GQA, lambda q, k, v: grouped(q, k, v, hides=True), "a causal mask", "does not change"),
    (GQA, lambda q, k, v: _soft(q @ np.tanh(k)[:1].swapaxes(1, 2)) @ v[:1], "heads", "are made from"),
    (
        RAT,
        lambda q, k, v: _soft(np.where(np.tri(len(q)).T > 0, _turn(q) @ _turn(k).T, -1e9)) @ v,
        "does not change|differs",
        "causal",
    ),
    (RAT, lambda q, k, v: _soft(_turn(q) @ _turn(k).T / 9) @ v, "times as large", "causal"),
    (
        "heads.split",
        lambda x, n: np.stack(np.split(x, n, -1), 1)[:, [1, 0, *range(2, n)]],
        "order",
        "",
    ),
    ("mask.kept", lambda n, kept: np.tri(kept + n), "too many rows; the last of them are right", ""),
    ("mask.causal", lambda T: np.tri(T + 2), "too many rows; the first|is longer", ""),
    (
        "embedding.forward",
        odd_sizes_fail,
        "added to every sentence alike.*stopped with ValueError",
        "differs",
    ),
    ("embedding.forward", lambda ids, E: 1 / 0 if E.shape[1] % 2 else np.cos(E[ids]), "ZeroDivision", ""),
    ("rope.forward", lambda x: x + table_exp_log(*x.shape), "do not depend on x", "length"),
    (
        "softmax.forward",
        lambda s: share_of(s - s.min(1, keepdims=True)),
        "not in the ratio",
        "",
    ),
    ("gate.forward", lambda x, a, b, c: (x @ a / (1 + np.exp(-x @ a))) @ c, "W_up is not used", "are right"),
    (
        "ffn.forward",
        lambda x, W_1, b_1, W_2, b_2: (np.tanh(np.maximum(0, x)) @ W_1 + b_1) @ W_2 + b_2,
        "differs",
        "sentence|token",
    ),
    (
        "gate.forward",
        lambda x, a, b, c: (x @ a.T / (1 + np.exp(-x @ a.T)) * (x @ b.T)) @ c.T,
        "W_gate and W_up and W_down fit only the other way round",
        "shapes are right",
    ),
]


@pytest.mark.parametrize(("exercise", "f", "says", "never"), SEEN)
def test_what_is_said_and_what_is_not(exercise, f, says, never):
    result = check(exercise, f, level=3)
    text = f"{result.evidence} {result.hint}"
    assert not result and result.question.endswith("?")
    assert re.search(says, text), text
    assert not (never and re.search(never, text)), text


def test_an_array_has_no_truth_value_of_its_own():
    result = check("ffn.forward", lambda x, W_1, b_1, W_2, b_2: max(0, x @ W_1) @ W_2, level=3)
    assert result.status == "error" and result.question.startswith("Which word in that line (if, and, or")


def test_a_layer_is_called_by_its_name_in_an_error():
    result = check("block.forward", lambda x, attend, norm_1, ffn, norm_2: attend(x, x))
    assert "attend() takes 1 positional argument but 2 were given" in result.evidence


def test_numbers_past_1000_that_are_finite_and_wrong_get_a_question_about_them():
    result = check("softmax.forward", lambda s: _soft(np.clip(s, -50, 50)), level=3)
    assert "near 1000 or -1000 the numbers are finite" in result.evidence
    assert result.question == "Are two scores such as 1000 and 999 still 1 apart when exp meets them?"


def test_no_reply_to_homework_holds_a_sign_twice_or_words_of_the_checkers_own():
    for exercise, _, _, f in HOMEWORK:
        result = check(exercise, f, level=3)
        text = f"{result.evidence} {result.hint} {result.question}"
        assert not re.search(r"--|\{|\}|lambda|_probe|Unread", text), text


# --- numbers and letters ---------------------------------------------------------------------------


def test_a_number_with_all_its_digits_tells_mistakes_apart():
    rounded, whole = check("pe.entry", 1.0), check("pe.entry", np.cos(23 / 10000**0.75))
    assert len(rounded.codes) > 1 and whole.codes == ("PE-EXP-COLUMN",)


def test_a_half_may_be_rounded_either_way():
    for value in ([0.13, 0.38, 0.5], [0.12, 0.38, 0.5]):
        assert "rounded after 2 decimals" in check("attention.softmax", value).evidence
    assert "as far as it goes" not in check("pe.shift", 0).evidence


def test_a_count_that_is_rounded_is_told_so():
    assert "to its last digit" in check("cost.parameters", 2.1e6).evidence
    assert check("cost.parameters", 3e6).hint.startswith("No known mistake fits.")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1 234", 1234),
        ("1'234'567", 1234567),
        ("-1,234,567", -1234567),
        ("0,5", 0.5),
        ("-3/4", -0.75),
        ("12,5 %", 0.125),
        ("1/0", None),
        ("1/", None),
        ("x%", None),
        ("1 23", None),
        ("6 KB", None),
        ("1,23,456", None),
    ],
)
def test_a_number_is_read_or_not(text, number):
    assert read_number(text) == number


@pytest.mark.parametrize(
    ("said", "letter"),
    [
        ("B", "b"),
        ("2", "b"),
        ("b) cosine", "b"),
        ("the answer is b.", "b"),
        ("Option b", "b"),
        ("Cosine.", "b"),
        ("because", ""),
        ("c", ""),
        ("3", ""),
        ("b or a", ""),
        ("ab", ""),
    ],
)
def test_a_letter_is_read_or_not(said, letter):
    assert read_letter(said, ["Sine.", "Cosine."]) == letter


@pytest.mark.parametrize(
    ("said", "truth"),
    [("yes", True), ("No, never", False), ("true: it is", True), ("no idea", None), ("", None), ("x.", None)],
)
def test_a_truth_value_is_read_or_not(said, truth):
    assert read_truth(said) is truth


def test_a_list_may_hold_fractions_and_shares_and_decimal_commas():
    for answer in (["1/8", 0.375, "50%"], "0,125; 0,375; 0,5", "p = [0.125, 3/8, 0.5]"):
        assert check("attention.softmax", answer)
    assert check("attention.softmax", "0,125 0,375 0,500") and check("attention.softmax", "0.125, 0.375, 0.5")
    assert check("addition.vector", "2,0 , 3, 6") and check("addition.vector", "2 0 3 6")
    for answer in (["1/8", "x", "1/2"], "1|3|4", "1 3 x"):
        assert check("attention.softmax", answer).status == "error"
