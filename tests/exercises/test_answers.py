"""The checker on codings that were not written for it, on numbers drawn for names, and on odd answers."""

import ast
import itertools
import json
import math

import numpy as np
import pytest
from codings import CODE, NUMBERS, ROOT, check
from golden import forward

import npformer as npf
from npformer.attention import sum_repeated
from npformer.exercises import show
from npformer.exercises.answer_parsing import read_letter, read_number, read_truth
from npformer.exercises.bank import bank
from npformer.exercises.bank.questions import asked
from npformer.exercises.probe import run
from npformer.exercises.task import APART, RIGHT, Edit, Numbers
from npformer.modern.causal_lm import CausalBlockParams, causal_block_forward
from npformer.modern.generation import last_left

NAMES, RNG = ["", "李"], np.random.default_rng(0)


# --- code that the lessons show --------------------------------------------------------------


def lesson_function(lesson, name):
    """A function that a lesson defines, run with NumPy alone."""
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


@pytest.mark.parametrize(("lesson", "name", "exercise", "codes"), LESSON_CODE)
def test_code_of_a_lesson_passes_its_own_exercise_and_a_slip_is_named(lesson, name, exercise, codes):
    def answer(*given):
        if name == "backward":  # which takes what its forward kept
            return function(given[0], lesson_function("03", "forward")(*given[1:])[1])
        found = function(*given)
        return found[0] if isinstance(found, tuple) else found

    function = lesson_function(lesson, name)
    assert check(exercise, answer).codes == codes


# --- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("exercise", NUMBERS, ids=lambda e: e.id)
def test_right_numbers_pass_and_wrong_ones_are_far_and_named_for_every_name(exercise):
    decimals = exercise.decimals
    for name in NAMES:
        asked, question = f"{exercise.id}@{name}".removesuffix("@"), exercise.posed(name)
        right = np.asarray(question.answer, float)
        assert exercise.separated(question) and "{" not in show(asked)
        for value in (right, np.round(right, decimals).tolist()):
            assert check(asked, value).status == "pass"
        for shown, wrong in question.wrong.items():
            assert np.shape(wrong) != right.shape or np.abs(wrong - right).max() > APART * exercise.tolerance
            for value in (wrong, np.round(np.asarray(wrong, float), max(decimals, 3))):
                result = check(asked, value)
                assert getattr(shown, "code", shown) in result.codes and result.question.endswith("?")
        for value in (0 * right, 0 * right + 1, right + 17.3):
            assert check(asked, value).status != "pass"
        assert check(asked, right + 17.3).status == "unrecognised"
        rounded = check(asked, np.round(right, max(decimals - 1, 0)))
        if not rounded and decimals > 1 and not rounded.codes:  # its last decimal may be 0
            assert "correct as far as it goes" in rounded.evidence


def met(rows, d, low, high):
    """How many numbers of a learned table get a gradient from texts of these lengths."""
    params, any_gradient = npf.LearnedPositionsParams(np.zeros((rows, d))), np.zeros((rows, d), bool)
    for length in range(low, high + 1):
        _, cache = npf.learned_positions_forward(np.zeros((length, d)), params)
        any_gradient |= npf.learned_positions_backward(np.ones((length, d)), cache)[1].P != 0
    return any_gradient.sum()


def floats(*given):
    return [np.asarray(array, float) for array in given]


ITSELF = {  # what the thing itself gives
    "order.twins": lambda k: len(set(itertools.permutations(range(k)))),
    "order.coin": lambda p: next(n for n in itertools.count(1) if p / 100 > 0.5 + 1.96 * np.sqrt(0.25 / n)),
    "order.alibi": lambda h, i, j: npf.alibi_bias(8, 31, 31)[h - 1, i, j],
    "order.met": met,
    "attention.causal": lambda T: npf.causal_mask(T).sum(),
    "decoder.cells": lambda S, T: (
        npf.attention_forward(*map(np.ones, [(T, 1), *2 * [(S, 1)]]))[1].scores.size
    ),
    "cost.parameters": lambda d, f: sum(a.size for _, a in npf.leaves(npf.init_ffn(d, f, RNG))),
    "loss.uniform": lambda V: npf.cross_entropy_forward(np.zeros((1, V)), np.array([0]))[0],
    "pe.wavelength": lambda d: npf.wavelengths(d).max() / (2 * np.pi),
    "norm.token": lambda x, *p: npf.layer_norm_forward(x, npf.LayerNormParams(*p), eps=0.0)[0],
    "ffn.token": lambda x, *p: npf.ffn_forward(*floats(x), npf.FFNParams(*floats(*p)))[0],
    "backward.softmax": lambda p, dp: npf.softmax_backward(*floats(dp), npf.softmax_forward(np.log(p))[1]),
    "modern.kept_bytes": lambda n, h, g, d_k: np.zeros((n, 2, g, d_k), np.float32).nbytes,
}


@pytest.mark.parametrize("exercise", ITSELF)
def test_the_answer_is_what_the_thing_itself_gives(exercise):
    for question in map(bank()[exercise].posed, NAMES + list("abcdefgh")):
        found = ITSELF[exercise](*question.given.values())
        assert np.asarray(question.answer, float) == pytest.approx(np.asarray(found, float), abs=1e-12)


def test_every_question_is_asked_and_every_confusion_that_is_written_is_met():
    for name, (_, said) in asked().items():
        exercise = bank()[name]
        found = exercise.posed().wrong if isinstance(exercise, Numbers) else said.values()
        assert set(said.values()) <= set(found), name


# --- numbers and letters ---------------------------------------------------------------------------


def test_a_number_with_all_its_digits_tells_mistakes_apart():
    rounded, whole = check("pe.entry", 1.0), check("pe.entry", np.cos(23 / 10000**0.75))
    assert len(rounded.codes) > 1 and whole.codes == ("PE-EXP-COLUMN",)


READ = {"1 234": 1234, "1'234'567": 1234567, "-1,234,567": -1234567}
READ |= {"0,5": 0.5, "-3/4": -0.75, "12,5 %": 0.125}
NONE_READ = ("1/0", "1/", "x%", "1 23", "6 KB", "1,23,456")
LETTERS = {**dict.fromkeys(("B", "2", "b) cosine", "the answer is b.", "Option b", "Cosine."), "b")}
LETTERS |= dict.fromkeys(("because", "c", "3", "b or a", "ab"), "")
TRUTHS = {"yes": True, "No, never": False, "true: it is": True, "no idea": None, "": None, "x.": None}


def test_numbers_letters_and_truth_values_are_read_or_not():
    assert {text: read_number(text) for text in READ} == READ
    assert [text for text in NONE_READ if read_number(text) is not None] == []
    assert {said: read_letter(said, ["Sine.", "Cosine."]) for said in LETTERS} == LETTERS
    assert {said: read_truth(said) for said in TRUTHS} == TRUTHS


# --- nothing gets out of check ---------------------------------------------------------------------


class Rude:
    def __str__(self):
        raise RuntimeError

    __repr__ = __array__ = __float__ = __len__ = __iter__ = __index__ = __str__


class RudeError(Exception):
    __str__ = Rude.__str__


class Leaves(BaseException):
    pass


def raising(error):
    def f(*args):
        raise error

    return f


def wrapped_in_itself():
    def looped(*args):
        return np.ones(3)

    looped.__wrapped__ = looped
    return looped


ODD = [10**400, -(10**5000), "9" * 5000, "1e999", "[[", "(" * 500, Rude(), [Rude()], {1: 2}, {1, 2}, object()]
ODD += [np.nan, [np.nan] * 6, np.array([object()]), np.array(["a", None], object), range(3), b"\xff", 1j]
ODD += ["\ud800", [[1], [2, 3]], raising(RudeError()), raising(Leaves()), raising(SystemExit())]
ODD += [(x for x in "ab"), wrapped_in_itself(), int, print]
BACK = [Rude(), [Rude()] * 5, np.array([object()]), (1, 2), {}, "x", 10**400, [[1], [2, 3]], np.zeros((0, 3))]
BACK += [True, np.array(1j), {"a": Rude()}, [], np.ma.masked_all(3), set(), (x for x in "ab")]
ODD += [(lambda *a, back=back: back) for back in BACK]


@pytest.mark.parametrize(
    "exercise", ["pe.table", "pe.entry", "pe.row", "order.bag", "ffn.bend", "ffn.backward"]
)
def test_whatever_the_answer_check_gives_a_result(exercise):
    for place, answer in enumerate(ODD):
        result = check(exercise, answer)
        assert not result and result.evidence and str(result) and result._repr_html_(), place


def test_a_keyboard_interrupt_still_interrupts():
    with pytest.raises(KeyboardInterrupt):
        check("pe.table", raising(KeyboardInterrupt()))


# --- ours ------------------------------------------------------------------------------------------


def adam(w, g, m, v, t, learning_rate):
    new, state = npf.adam_update(w, g, npf.AdamState(t - 1, m, v), learning_rate=learning_rate)
    return new, state.m, state.v


SPELT = {  # arguments by npformer's names, where the exercise has others
    "loss.smoothed": lambda z, t, e: {"logits": z, "targets": t, "label_smoothing": e},
    "softmax.backward": lambda dp, p: {"scores": np.log(p), "dy": dp},
    "cross_entropy.backward": lambda z, t: {"logits": z, "targets": t, "dy": 1.0},
    "rope.backward": lambda dy: {"x": dy, "dy": dy},
}
OTHERS = {  # neither a forward nor its backward
    "adam.step": adam,
    "grouped.backward": sum_repeated,
    "mask.kept": lambda n, kept: npf.causal_mask(n, kept + n),
}


def npformers(task):
    """npformer's answer to the very thing asked: its function of that name, or None."""
    name = task.ours or task.name
    operation, _, way = name.rpartition("_")
    if task.id in OTHERS or way not in ("forward", "backward"):
        return OTHERS.get(task.id, getattr(npf, name, None))

    def answer(*given):
        arrays = SPELT.get(task.id, lambda *a: dict(zip(task.probe.names, a, strict=False)))(*given)
        y, backward = forward(operation, arrays, {})
        found = [y] if way == "forward" else [*backward(arrays["dy"]).values()]
        return found if len(found) > 1 else found[0]

    return answer if hasattr(npf, name) else None


def attended(*qkv):
    return npf.attention_forward(*qkv)[0]


def turned(x):
    return npf.rope_forward(x)[0]


def ported(x, *file):
    """npformer's block on a file's arrays."""
    W_Q, W_K, W_V, W_O, gamma_1, gate, up, down, gamma_2 = (array.T for array in file)
    config = npf.CausalLMConfig(x.shape[1], gate.shape[1], 4, 2, 1, rope_layout="halves")
    attention, ffn = npf.AttentionParams(W_Q, W_K, W_V, W_O), npf.GatedFFNParams(gate, up, down)
    params = CausalBlockParams(attention, npf.RMSNormParams(gamma_1), ffn, npf.RMSNormParams(gamma_2))
    return causal_block_forward(x, params, config, npf.causal_mask(len(x)))[0]


PARTS = {  # made of several of npformer's
    "port.block": ported,
    "rope.attention": lambda q, k, v: attended(turned(q), turned(k), v),
    "attention.grouped": lambda q, k, v: attended(q, *(x.repeat(len(q) // len(k), axis=0) for x in (k, v))),
    "sample.temperature": lambda logits, t: npf.softmax_forward(logits / t)[0],
    "sample.top_p": lambda p, share: (lambda kept: kept / kept.sum())(p * (p >= last_left(p, len(p), share))),
}


@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_what_npformer_answers_is_right_and_an_answer_of_its_own_is_told_so(task):
    if answer := npformers(task):
        result = check(task.id, answer)
        assert result.codes == ("NPFORMERS-OWN",) and "write your own" in result.hint
    elif answer := PARTS.get(task.id):
        assert check(task.id, answer)
    else:
        assert task.ours is None, "name npformer's own function as ours=, or say ours=None in the bank"


# --- single observations ---------------------------------------------------------------------------


def test_what_should_cancel_does_so_in_the_right_answer():
    for task in CODE:
        for change, given in itertools.product(task.probe.invariances.values(), task.probe.calls):
            before, after = (run(task.right, g, task.probe).arrays[0] for g in (given, change(*given)))
            assert np.allclose(before, after), task.id


# --- a changed NumPy ----------------------------------------------------------------------------


def test_a_changed_numpy_is_told_before_anybody_is_blamed(monkeypatch):
    monkeypatch.setattr(np, "exp", lambda x: x)
    (finding,) = check("order.bag", "b").findings
    assert (finding.kind, finding.parameters) == ("numpy_replaced", {"function": "exp"})


def test_a_student_s_numbers_tell_causes_apart_where_any_do_and_else_the_reply_says_one_of():
    alike = {task.id: sum(task.alike(task.posed(f"s{i}")) for i in range(4)) for task in NUMBERS}
    told = {"pe.entry", "pe.row", "loss.uniform", "modern.kept_bytes"}
    assert {name for name, many in alike.items() if many} <= told
    two = check("pe.entry@s2", 1.0)
    assert two.status == "ambiguous" and two.hint.startswith("One of these: ")


def test_an_edit_of_words_that_the_solution_does_not_have_is_refused():
    with pytest.raises(ValueError, match=r"the solution does not have 'ddof=0'"):
        Edit("x", "s", "ddof=0", "ddof=1").of("x = x.mean()")


# --- the words -------------------------------------------------------------------------------------


def test_the_right_option_is_seldom_the_longest():
    choices = [e for e in bank().values() if e.kind == "choice"]
    longest = [e.options[max(e.options, key=len)] is RIGHT for e in choices]
    assert sum(longest) <= len(longest) / 3
