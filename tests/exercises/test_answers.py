"""Test the checker with code from lessons, drawn numbers, unusual objects and npformer's functions."""

import ast
import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from codings import CODE, NUMBERS, ROOT, check
from golden import forward

import npformer as npf
from npformer.attention import sum_repeated_heads
from npformer.exercises import show
from npformer.exercises.answer_parsing import read_letter, read_number, read_truth
from npformer.exercises.bank import bank
from npformer.exercises.bank.questions import load_questions
from npformer.exercises.probe import run
from npformer.exercises.task import APART, RIGHT, Choice, Edit, Numbers
from npformer.modern.causal_lm import CausalBlockParams, causal_block_forward
from npformer.modern.generation import smallest_allowed_probability

NAMES = ["", "李"]
RNG = np.random.default_rng(0)


# --- code of the lessons ---------------------------------------------------------------------------


def lesson_function(lesson, name):
    """Return a function that a lesson defines; its code may use `np` and `math`."""
    (path,) = (ROOT / "notebooks").glob(f"{lesson}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    trees = [ast.parse(source) for source in sources if f"def {name}(" in source]
    (node,) = [n for tree in trees for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
    names = {"np": np, "math": math}
    exec(compile(ast.Module([node], []), name, "exec"), names)
    return names[name]


LESSON_CODE = [
    ("01", "table_with_loops", "pe.table", ()),
    ("01", "table_in_one_line", "pe.table", ()),
    ("01", "table_with_the_slip", "pe.table", ("PE-EXP-COLUMN",)),
    ("02", "with_endpoint", "pe.table", ("PE-HALVES-ENDPOINT",)),
    ("03", "forward", "ffn.forward", ()),
    ("03", "backward", "ffn.backward", ()),
    ("04", "softmax", "softmax.forward", ()),
    ("04", "my_layer_norm", "layer_norm.forward", ()),
]


def first_output(function):
    """Make a function that returns the first output of another function, without its cache."""

    def answer(*given):
        found = function(*given)
        return found[0] if isinstance(found, tuple) else found

    return answer


@pytest.mark.parametrize(("lesson", "name", "exercise", "codes"), LESSON_CODE)
def test_check_code_of_a_lesson(lesson, name, exercise, codes):
    function = lesson_function(lesson, name)
    answer = first_output(function)
    if name == "backward":  # this function takes a cache, but the checker passes arrays
        forward_of_lesson = lesson_function("03", "forward")

        def answer(dy, *given):
            return function(dy, forward_of_lesson(*given)[1])

    assert check(exercise, answer).codes == codes


# --- numbers ---------------------------------------------------------------------------------------


ID_AND_NAME = [(task, f"{task.id}@{name}".removesuffix("@"), name) for task in NUMBERS for name in NAMES]
for_each_name = pytest.mark.parametrize(
    ("task", "asked_id", "name"), ID_AND_NAME, ids=lambda value: str(value)[:30]
)


@for_each_name
def test_posed_wrong_answers_are_far(task, asked_id, name):
    question = task.posed(name)
    right = np.asarray(question.answer, float)
    assert task.has_distinct_wrong_answers(question)
    for wrong in question.wrong.values():
        assert np.shape(wrong) != right.shape or np.abs(wrong - right).max() > APART * task.tolerance


@for_each_name
def test_show_fills_in_all_numbers(task, asked_id, name):
    assert "{" not in show(asked_id)


@for_each_name
def test_check_accepts_correct_numbers(task, asked_id, name):
    right = np.asarray(task.posed(name).answer, float)
    for value in (right, np.round(right, task.decimals).tolist()):
        assert check(asked_id, value).status == "pass"


@for_each_name
def test_check_names_known_wrong_numbers(task, asked_id, name):
    for mistake, wrong in task.posed(name).wrong.items():
        for value in (wrong, np.round(np.asarray(wrong, float), max(task.decimals, 3))):
            result = check(asked_id, value)
            assert mistake.code in result.codes and result.question.endswith("?")


@for_each_name
def test_check_rejects_other_numbers(task, asked_id, name):
    right = np.asarray(task.posed(name).answer, float)
    assert check(asked_id, 0 * right).status != "pass"
    assert check(asked_id, 0 * right + 1).status != "pass"
    assert check(asked_id, right + 17.3).status == "unrecognised"


@for_each_name
def test_check_recognises_too_few_decimals(task, asked_id, name):
    right = np.asarray(task.posed(name).answer, float)
    result = check(asked_id, np.round(right, max(task.decimals - 1, 0)))
    has_passed = bool(result)  # rounding does not change an answer whose last decimal is 0
    if not has_passed and not result.codes and task.decimals > 1:
        assert "The answer is correct but" in result.evidence


def count_trained_positions(rows, d, low, high):
    """Count the entries of a learned position table that get a gradient from texts of these lengths."""
    params = npf.LearnedPositionsParams(np.zeros((rows, d)))
    has_gradient = np.zeros((rows, d), bool)
    for length in range(low, high + 1):
        _, cache = npf.learned_positions_forward(np.zeros((length, d)), params)
        _, grads = npf.learned_positions_backward(np.ones((length, d)), cache)
        has_gradient |= grads.P != 0
    return has_gradient.sum()


def find_sample_size(percent):
    """Return the smallest sample size for which this accuracy is significantly better than guessing."""
    n = 1
    while percent / 100 <= 0.5 + 1.96 * np.sqrt(0.25 / n):
        n += 1
    return n


def count_decoder_scores(S, T):
    _, cache = npf.attention_forward(np.ones((T, 1)), np.ones((S, 1)), np.ones((S, 1)))
    return cache.scores.size


def floats(*given):
    return [np.asarray(array, float) for array in given]


# {exercise id: a function that computes the correct answer from the task's numbers in a different way}
COMPUTED: dict[str, Callable[..., Any]] = {
    "order.twins": lambda k: len(set(itertools.permutations(range(k)))),
    "order.coin": find_sample_size,
    "order.alibi": lambda h, i, j: npf.alibi_bias(8, 31, 31)[h - 1, i, j],
    "order.met": count_trained_positions,
    "attention.causal": lambda T: npf.causal_mask(T).sum(),
    "decoder.cells": count_decoder_scores,
    "cost.parameters": lambda d, f: sum(a.size for _, a in npf.leaves(npf.init_ffn(d, f, RNG))),
    "loss.uniform": lambda V: npf.cross_entropy_forward(np.zeros((1, V)), np.array([0]))[0],
    "pe.wavelength": lambda d: npf.wavelengths(d).max() / (2 * np.pi),
    "norm.token": lambda x, *p: npf.layer_norm_forward(x, npf.LayerNormParams(*p), eps=0.0)[0],
    "ffn.token": lambda x, *p: npf.ffn_forward(floats(x)[0], npf.FFNParams(*floats(*p)))[0],
    "backward.softmax": lambda p, dp: npf.softmax_backward(floats(dp)[0], npf.softmax_forward(np.log(p))[1]),
    "lora.count": lambda n, m, r: sum(a.size for _, a in npf.leaves(npf.init_lora(n, m, r, RNG))),
    "reward.kl": lambda p, ref: npf.kl_penalty_forward(np.log([p]), log_p_ref=np.log([ref]))[0][0],
    "modern.kept_bytes": lambda n, h, g, d_k: np.zeros((n, 2, g, d_k), np.float32).nbytes,
}


@pytest.mark.parametrize("name", [*NAMES, *"abcdefgh"])
@pytest.mark.parametrize("exercise", COMPUTED)
def test_posed_answer_equals_a_different_calculation(exercise, name):
    task = bank()[exercise]
    assert isinstance(task, Numbers)
    question = task.posed(name)
    expected = np.asarray(COMPUTED[exercise](*question.given.values()), float)
    assert np.asarray(question.answer, float) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("exercise", load_questions())
def test_every_written_confusion_is_a_wrong_answer(exercise):
    task = bank()[exercise]
    written = set(load_questions()[exercise].answers.values())
    if isinstance(task, Numbers):
        assert written <= set(task.posed().wrong)


# --- numbers and letters ---------------------------------------------------------------------------


def test_check_uses_all_digits_of_a_number():
    rounded = check("pe.entry", 1.0)
    exact = check("pe.entry", np.cos(23 / 10000**0.75))
    assert len(rounded.codes) > 1 and exact.codes == ("PE-EXP-COLUMN",)


READ = {
    "1 234": 1234,
    "1'234'567": 1234567,
    "-1,234,567": -1234567,
    "0,5": 0.5,
    "-3/4": -0.75,
    "12,5 %": 0.125,
    "1/0": None,
    "1/": None,
    "x%": None,
    "1 23": None,
    "6 KB": None,
    "1,23,456": None,
}
LETTERS = {
    "B": "b",
    "2": "b",
    "b) cosine": "b",
    "the answer is b.": "b",
    "Option b": "b",
    "Cosine.": "b",
    "because": "",
    "c": "",
    "3": "",
    "b or a": "",
    "ab": "",
}
TRUTHS = {"yes": True, "No, never": False, "true: it is": True, "no idea": None, "": None, "x.": None}


@pytest.mark.parametrize("text", READ)
def test_read_number_reads_usual_forms_only(text):
    assert read_number(text) == READ[text]


@pytest.mark.parametrize("text", LETTERS)
def test_read_letter_reads_usual_forms_only(text):
    assert read_letter(text, ["Sine.", "Cosine."]) == LETTERS[text]


@pytest.mark.parametrize("text", TRUTHS)
def test_read_truth_reads_usual_forms_only(text):
    assert read_truth(text) is TRUTHS[text]


# --- odd answers -----------------------------------------------------------------------------------


class Rude:
    """An object whose methods all raise an error."""

    def __str__(self):
        raise RuntimeError

    __repr__ = __array__ = __float__ = __len__ = __iter__ = __index__ = __str__


class RudeError(Exception):
    __str__ = Rude.__str__


class LeavingError(BaseException):
    """An error that `except Exception` does not catch."""


def raising(error):
    """Make a function that raises an error."""

    def f(*args):
        raise error

    return f


def returning(value):
    """Make a function that returns a value."""

    def f(*args):
        return value

    return f


def wrapped_in_itself():
    """Make a function that claims to be a decorated version of itself."""

    def looped(*args):
        return np.ones(3)

    looped.__wrapped__ = looped  # type: ignore[attr-defined]  # functools.wraps sets this attribute too
    return looped


ODD_ANSWERS = {
    "huge": 10**400,
    "huge negative": -(10**5000),
    "huge text": "9" * 5000,
    "infinite text": "1e999",
    "open brackets": "[[",
    "many brackets": "(" * 500,
    "rude": Rude(),
    "list of rude": [Rude()],
    "dict": {1: 2},
    "set": {1, 2},
    "object": object(),
    "nan": np.nan,
    "list of nan": [np.nan] * 6,
    "array of objects": np.array([object()]),
    "array of text and None": np.array(["a", None], object),
    "range": range(3),
    "invalid bytes": b"\xff",
    "complex": 1j,
    "surrogate": "\ud800",
    "ragged list": [[1], [2, 3]],
    "raises a rude error": raising(RudeError()),
    "raises a base exception": raising(LeavingError()),
    "exits": raising(SystemExit()),
    "generator": (x for x in "ab"),
    "wrapped in itself": wrapped_in_itself(),
    "class": int,
    "built-in": print,
    "returns rude": returning(Rude()),
    "returns a list of rude": returning([Rude()] * 5),
    "returns an array of objects": returning(np.array([object()])),
    "returns a tuple": returning((1, 2)),
    "returns an empty dict": returning({}),
    "returns text": returning("x"),
    "returns a huge number": returning(10**400),
    "returns a ragged list": returning([[1], [2, 3]]),
    "returns an empty array": returning(np.zeros((0, 3))),
    "returns True": returning(True),
    "returns a complex number": returning(np.array(1j)),
    "returns a dict of rude": returning({"a": Rude()}),
    "returns an empty list": returning([]),
    "returns a masked array": returning(np.ma.masked_all(3)),
    "returns an empty set": returning(set()),
    "returns a generator": returning(x for x in "ab"),
}


@pytest.mark.parametrize("kind", ODD_ANSWERS)
@pytest.mark.parametrize(
    "exercise", ["pe.table", "pe.entry", "pe.row", "order.bag", "ffn.bend", "ffn.backward"]
)
def test_check_returns_a_result_for_odd_answers(exercise, kind):
    result = check(exercise, ODD_ANSWERS[kind])
    assert not result and result.evidence and str(result) and result._repr_html_()


def test_check_does_not_catch_keyboard_interrupt():
    with pytest.raises(KeyboardInterrupt):
        check("pe.table", raising(KeyboardInterrupt()))


# --- npformer's own functions ----------------------------------------------------------------------


def adam(w, g, m, v, t, learning_rate):
    params, state = npf.adam_update(w, g, npf.AdamState(t - 1, m, v), learning_rate=learning_rate)
    return params, state.m, state.v


def lora(dW, A, B, alpha):
    _, cache = npf.lora_forward(0 * dW, npf.LoRAParams(A, B), alpha=alpha)
    return npf.lora_backward(dW, cache)[1]


def dpo(log_p_w, log_p_l, log_p_ref_w, log_p_ref_l, beta):
    reference = {"log_p_ref_w": log_p_ref_w, "log_p_ref_l": log_p_ref_l}
    _, cache = npf.dpo_forward(log_p_w, log_p_l, **reference, beta=beta)
    return npf.dpo_backward(1.0, cache)


def clip(log_p, log_p_old, advantages, epsilon):
    return npf.clipped_policy_forward(log_p, log_p_old=log_p_old, advantages=advantages, epsilon=epsilon)


# {exercise id: a function that builds npformer's arguments}, for exercises with different argument names.
OTHER_NAMES: dict[str, Callable[..., Any]] = {
    "loss.smoothed": lambda z, t, e: {"logits": z, "targets": t, "label_smoothing": e},
    "softmax.backward": lambda dp, p: {"scores": np.log(p), "dy": dp},
    "cross_entropy.backward": lambda z, t: {"logits": z, "targets": t, "dy": 1.0},
    "rope.backward": lambda dy: {"x": dy, "dy": dy},
}
OTHER_FUNCTIONS = {  # npformer's functions that are neither a forward nor a backward function
    "adam.step": adam,
    "grouped.backward": sum_repeated_heads,
    "mask.kept": lambda n, kept: npf.causal_mask(n, kept + n),
    "dpo.backward": dpo,
    "clip.forward": lambda *given: clip(*given)[0],
    "clip.backward": lambda dy, *given: npf.clipped_policy_backward(dy, clip(*given)[1]),
}


def find_npformer_answer(task):
    """Return npformer's own function as an answer to an exercise, or None if there is no such function."""
    name = task.ours or task.name
    operation, _, direction = name.rpartition("_")
    if task.id in OTHER_FUNCTIONS:
        return OTHER_FUNCTIONS[task.id]
    if direction not in ("forward", "backward"):
        return getattr(npf, name, None)
    if not hasattr(npf, name):
        return None

    def answer(*given):
        if task.id in OTHER_NAMES:
            arguments = OTHER_NAMES[task.id](*given)
        else:
            arguments = dict(zip(task.probe.names, given, strict=False))
        y, backward = forward(operation, arguments, {})
        if direction == "forward":
            return y
        gradients = list(backward(arguments["dy"]).values())
        return gradients if len(gradients) > 1 else gradients[0]

    return answer


def port_block(x, *file):
    """Return the output of npformer's block with the arrays of a model file as parameters."""
    W_Q, W_K, W_V, W_O, gamma_1, gate, up, down, gamma_2 = (array.T for array in file)
    config = npf.CausalLMConfig(x.shape[1], gate.shape[1], 4, 2, 1, rope_layout="halves")
    attention = npf.AttentionParams(W_Q, W_K, W_V, W_O)
    ffn = npf.GatedFFNParams(gate, up, down)
    params = CausalBlockParams(attention, npf.RMSNormParams(gamma_1), ffn, npf.RMSNormParams(gamma_2))
    return causal_block_forward(x, params, config, npf.causal_mask(len(x)))[0]


def attend_with_rope(q, k, v):
    return npf.attention_forward(npf.rope_forward(q)[0], npf.rope_forward(k)[0], v)[0]


def attend_in_groups(q, k, v):
    repeats = len(q) // len(k)
    return npf.attention_forward(q, k.repeat(repeats, axis=0), v.repeat(repeats, axis=0))[0]


def sample_with_temperature(logits, temperature):
    return npf.softmax_forward(logits / temperature)[0]


def sample_top_p(p, share):
    kept = p * (p >= smallest_allowed_probability(p, len(p), share))
    return kept / kept.sum()


def sum_answer_log_probs(logits, ids, n_prompt):
    log_p, _ = npf.token_log_probs_forward(logits, npf.answer_targets(ids, n_prompt), ignore_index=-1)
    return log_p.sum()


COMBINATIONS = {  # accepted answers that combine several functions of npformer
    "port.block": port_block,
    "rope.attention": attend_with_rope,
    "attention.grouped": attend_in_groups,
    "sample.temperature": sample_with_temperature,
    "sample.top_p": sample_top_p,
    "answer.log_prob": sum_answer_log_probs,
    "lora.factors": lora,
}


@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_check_recognises_npformers_own_function(task):
    answer = find_npformer_answer(task)
    if answer is not None:
        result = check(task.id, answer)
        assert result.codes == ("NPFORMERS-OWN",) and "your own code" in result.hint
    elif task.id in COMBINATIONS:
        assert check(task.id, COMBINATIONS[task.id])
    else:
        assert task.ours is None, (
            f"npformer has no function {task.name}: in the bank, give {task.id} the argument "
            'ours="the name of its function", or ours=None if npformer has no function for the same thing'
        )


# --- the data of the exercises ---------------------------------------------------------------------


@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_invariances_keep_the_correct_answer(task):
    for change, given in itertools.product(task.probe.invariances.values(), task.probe.calls):
        before = run(task.right, given, task.probe).arrays[0]
        after = run(task.right, change(*given), task.probe).arrays[0]
        assert np.allclose(before, after)


EQUAL_WRONG_ANSWERS = {"pe.entry", "pe.row", "loss.uniform", "modern.kept_bytes"}


@pytest.mark.parametrize("task", NUMBERS, ids=lambda task: task.id)
def test_known_mistakes_give_different_numbers(task):
    questions = [task.posed(f"s{i}") for i in range(4)]
    has_equal_wrong_answers = any(map(task.count_equal_wrong_answers, questions))
    assert not has_equal_wrong_answers or task.id in EQUAL_WRONG_ANSWERS, (
        f"two mistakes give the same answer to {task.id} with any drawn numbers: draw different numbers, or, "
        f"if that is impossible, add {task.id!r} to EQUAL_WRONG_ANSWERS in tests/exercises/test_answers.py"
    )


def test_check_reports_equal_wrong_answers_as_ambiguous():
    result = check("pe.entry@s2", 1.0)
    assert result.status == "ambiguous" and result.hint.startswith(
        "These 2 known mistakes fit your answer: (1) perhaps "
    )


def test_edit_rejects_words_missing_in_the_solution():
    with pytest.raises(ValueError, match=r"the solution does not have 'ddof=0'"):
        Edit("x", "s", "ddof=0", "ddof=1").of("x = x.mean()")


def test_right_option_is_seldom_the_longest():
    choices = [task for task in bank().values() if isinstance(task, Choice)]
    is_longest = [task.options[max(task.options, key=len)] is RIGHT for task in choices]
    assert sum(is_longest) <= len(is_longest) / 3


# --- a changed NumPy -------------------------------------------------------------------------------


def test_check_reports_a_replaced_numpy_function(monkeypatch):
    monkeypatch.setattr(np, "exp", lambda x: x)
    (finding,) = check("order.bag", "b").findings
    assert (finding.kind, finding.parameters) == ("numpy_replaced", {"function": "exp"})
