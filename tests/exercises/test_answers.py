"""The checker on codings that were not written for it, on numbers drawn for names, and on odd answers."""

import ast
import functools
import itertools
import json
import math
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from codings import codings

import npformer
from npformer.exercises import check, show
from npformer.exercises.probe import run
from npformer.exercises.task import APART, RIGHT, Code, Numbers
from npformer.exercises.topics import bank

check = partial(check, level=3)  # which says most

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
NUMBERS = [task for task in bank().values() if isinstance(task, Numbers)]
CODE = [task for task in bank().values() if isinstance(task, Code)]
NAMES = ["", "李"]


# --- code that the lessons show --------------------------------------------------------------


def lesson_function(lesson, name):
    """A function that a lesson defines, run with NumPy alone."""
    (path,) = NOTEBOOKS.glob(f"{lesson}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    trees = [ast.parse(source) for source in sources if f"def {name}(" in source]
    (node,) = [n for tree in trees for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
    names = {"np": np, "math": math}
    exec(compile(ast.Module([node], []), name, "exec"), names)
    return names[name]


def given_the_cache(backward):
    """A lesson's backward pass, with the cache that its forward pass keeps."""

    def f(dy, x, W_1, b_1, W_2, b_2):
        _, cache = lesson_function("03", "forward")(x, W_1, b_1, W_2, b_2)
        return backward(dy, cache)

    return f


LESSON_CODE = [
    ("01", "table_with_loops", "pe.table", lambda f: f),
    ("01", "table_in_one_line", "pe.table", lambda f: f),
    ("02", "with_endpoint", "pe.table", lambda f: f),
    ("03", "forward", "ffn.forward", lambda f: lambda *args: f(*args)[0]),
    ("03", "backward", "ffn.backward", given_the_cache),
    ("04", "softmax", "softmax.forward", lambda f: f),
    ("04", "my_layer_norm", "layer_norm.forward", lambda f: lambda *args: f(*args)[0]),
]


@pytest.mark.parametrize(("lesson", "name", "exercise", "adapted"), LESSON_CODE)
def test_code_of_a_lesson_passes_its_own_exercise(lesson, name, exercise, adapted):
    assert check(exercise, adapted(lesson_function(lesson, name)))


@pytest.mark.parametrize(("lesson", "name", "exercise"), [("01", "table_with_the_slip", "pe.table")])
def test_a_slip_that_a_lesson_shows_is_named(lesson, name, exercise):
    assert check(exercise, lesson_function(lesson, name)).codes == ("PE-EXP-COLUMN",)


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
                result = check(asked, value, level=3)
                assert getattr(shown, "code", shown) in result.codes and result.question.endswith("?")
        for value in (0 * right, 0 * right + 1, right + 17.3):
            assert check(asked, value).status != "pass"
        assert check(asked, right + 17.3).status == "unrecognised"


def test_rounding_too_far_gets_that_reply():
    for exercise in NUMBERS:
        question = exercise.posed("Ada")
        if exercise.decimals > 1:
            coarse = np.round(question.answer, exercise.decimals - 1)
            result = check(f"{exercise.id}@Ada", coarse, level=3)
            if not result:  # a number whose last decimal is 0 is not rounded too far
                assert "This is right as far as it goes" in result.evidence and not result.codes
                assert result.question == "How many decimals does the task ask for?"


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
        result = check(exercise, answer, level=3)
        assert not result and result.evidence and str(result) and result._repr_html_(), place


def test_a_keyboard_interrupt_still_interrupts():
    with pytest.raises(KeyboardInterrupt):
        check("pe.table", raising(KeyboardInterrupt()))


# --- forms and errors ------------------------------------------------------------------------------


def test_a_forgotten_return_is_told_from_a_stub():
    def forgotten(n, d_model):
        np.zeros((n, d_model))

    assert "returns nothing" in check("pe.table", forgotten).evidence
    stub = functools.partial(forgotten)
    stub.stub = True
    assert check("pe.table", stub).evidence == "Nothing was answered yet."


# --- ours ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exercise", "answer"),
    [
        ("pe.table", npformer.positional_encoding),
        ("pe.table", lambda n, d: npformer.positional_encoding(n, d)),
        ("pe.table", functools.partial(npformer.positional_encoding, start=0)),
        ("softmax.forward", lambda scores: npformer.softmax_forward(scores)[0]),
        ("heads.split", npformer.split_heads),
        ("heads.merge", lambda x: np.array(npformer.merge_heads(x))),
        ("ffn.forward", lambda x, *p: npformer.ffn_forward(x, npformer.FFNParams(*p))[0]),
        ("attention.forward", lambda q, k, v, mask=None: npformer.attention_forward(q, k, v, mask=mask)[0]),
        ("cross_entropy.forward", lambda z, t: npformer.cross_entropy_forward(z, t)[0]),
    ],
)
def test_an_answer_of_npformers_own_is_told_so(exercise, answer):
    result = check(exercise, answer, level=3)
    assert result.codes == ("NPFORMERS-OWN",) and "write your own" in result.hint


# --- single observations ---------------------------------------------------------------------------


def test_what_should_cancel_does_so_in_the_right_answer():
    for task in CODE:
        for change, given in itertools.product(task.probe.cancels.values(), task.probe.calls):
            before, after = (run(task.right, g, task.probe).arrays[0] for g in (given, change(*given)))
            assert np.allclose(before, after), task.id


# --- the words -------------------------------------------------------------------------------------


def test_the_right_option_is_seldom_the_longest_and_nothing_is_called_the_other_one():
    choices = [e for e in bank().values() if e.kind == "choice"]
    longest = [e.options[max(e.options, key=len)] is RIGHT for e in choices]
    assert sum(longest) <= len(longest) / 3
    assert "the other one" not in "\n".join(map(str, bank().values()))


def test_a_check_is_quick():
    """Counted in calls of functions, which are as many on a busy machine as on an idle one."""
    calls = Counter()
    for exercise, *_, f, _ in codings()[::25]:
        check(exercise, f)
        sys.setprofile(lambda frame, event, value, exercise=exercise: calls.update([exercise]))
        try:
            check(exercise, f)
        finally:
            sys.setprofile(None)
    assert 1000 < max(calls.values()) < 400_000, calls
