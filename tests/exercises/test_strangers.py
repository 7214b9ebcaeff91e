"""The checker on codings that were not written for it, on numbers drawn for names, and on odd answers."""

import ast
import functools
import inspect
import itertools
import json
import math
import re
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import later_strangers
import make_confusion as confusion
import numpy as np
import pytest
import stranger_codings
from homework_01 import ANSWERS
from labelled import own
from later_strangers import LATER
from stranger_codings import STRANGERS

import npformer
from npformer.exercises import check, show
from npformer.exercises.probe import run
from npformer.exercises.relations import named_factor
from npformer.exercises.task import APART, RIGHT, Code, Numbers
from npformer.exercises.topics import bank

check = partial(check, level=3)  # which says most

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
NUMBERS = [task for task in bank().values() if isinstance(task, Numbers)]
CODE = [task for task in bank().values() if isinstance(task, Code)]
NAMES = ["", "李"]


# --- codings by strangers --------------------------------------------------------------------------


STATUS = {"right": {"pass"}, "variant": {"pass_variant"}, "remarked": {"pass"}}
STATUS["wrong"] = {"known_mistake", "ambiguous", "unrecognised", "error"}
ITS_WORD = {"later_strangers"}  # lists in which a name is not enough: the word has to stand in the reply


@pytest.mark.parametrize(
    ("head", "codings"), confusion.OTHERS, ids=[head[2][5:-1] for head, _ in confusion.OTHERS]
)
def test_what_is_said_to_strangers(head, codings):
    """Each coding is read once: what the table counts, and what holds for every reply."""
    assert "\n".join(confusion.strangers(head, codings)) in confusion.FILE.read_text(encoding="utf-8")
    offences = [f"{e} {f}: {why}" for e, label, word, f in codings for why in offending(e, label, word, f)]
    assert offences == []


def offending(exercise, label, word, f):
    """What is wrong with the reply to a coding."""
    result = confusion.reply(exercise, f)
    yield from [result.status] if result.status not in STATUS[label] else []
    if label == "variant" and not result.codes:
        yield "no code"
    if label == "remarked" and "held above a small number" not in result.evidence:
        yield "no remark"
    if label == "wrong":
        yield from ["no question"] if not result.question.endswith("?") else []
        if (
            result.codes
            and f.__module__ in ITS_WORD
            and not re.search(word, f"{result.hint} {result.evidence}", re.I)
        ):
            yield f"{result.codes} without {word}"
        told = numbers_of(result.evidence)
        yield from (
            f"tells {n}" for n in told if np.isclose(answers_of(exercise), n, rtol=1e-9, atol=0).any()
        )


def numbers_of(text):
    return {float(number) for number in re.findall(r"-?\d+\.\d{2,}", text) if float(number) % 1}


@functools.cache
def answers_of(exercise):
    """The expected numbers of an exercise."""
    task = bank()[exercise]
    right = [run(task.right, given, task.probe) for given in task.probe.calls]
    return np.concatenate([np.ravel(part) for outcome in right for part in outcome.arrays])


def test_homework_in_numbers_and_letters():
    for exercise, answer, label, _ in ANSWERS:
        result = check(exercise, answer, level=3)
        if label == "right":
            assert result or ("cannot be read" in result.evidence and str(answer) in UNREAD), answer
        else:
            assert not result and (result.status == "error" or result.question.endswith("?")), answer


UNREAD = ("10*10", "100 cells", "sqrt(256)", "√256", "7x5", "ln(1000)", "6.908 nats")


def test_every_code_exercise_has_strangers():
    wanted = {e.id for e in bank().values() if e.kind == "code"}
    for label, least in (("right", 2), ("wrong", 5)):
        counted = Counter(e for e, which, _, _ in STRANGERS + LATER if which == label)
        assert {e for e in wanted if counted[e] < least} == set()


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


def test_the_task_states_its_decimals():
    words_of_it = {0: "", 1: "One decimal", 2: "Two decimals", 3: "Three decimals"}
    for exercise in NUMBERS:
        assert words_of_it[exercise.decimals] in " ".join(show(exercise.id).split())


def test_rounding_too_far_gets_that_reply():
    for exercise in NUMBERS:
        question = exercise.posed("Ada")
        if exercise.decimals > 1:
            coarse = np.round(question.answer, exercise.decimals - 1)
            result = check(f"{exercise.id}@Ada", coarse, level=3)
            if not result:  # a number whose last decimal is 0 is not rounded too far
                assert "This is right as far as it goes" in result.evidence and not result.codes
                assert result.question == "How many decimals does the task ask for?"


def test_a_number_that_is_cut_off_is_told_so():
    assert "cut off after 2 decimals" in check("loss.uniform", 6.90).evidence  # 6.9078


@pytest.mark.parametrize(
    ("exercise", "answer"),
    [
        ("pe.shift", "0.050"),
        ("pe.shift", " 0,05 "),
        ("pe.shift", "0.05."),
        ("pe.shift", [0.05]),
        ("pe.shift", np.array([[0.05]])),
        ("pe.shift", b"0.05"),
        ("pe.shift", np.float32(0.05)),
        ("pe.shift", "5e-2"),
        ("addition.vector", "2, 0, 3, 6"),
        ("addition.vector", "[2 0 3 6]"),
        ("addition.vector", "(2, 0, 3, 6)"),
        ("addition.vector", np.array([[2, 0, 3, 6]])),
        ("addition.vector", np.array([[2], [0], [3], [6]])),
        ("addition.vector", (2.0, 0.0, 3.0, 6.0)),
        ("order.bag", "B"),
        ("order.bag", "b."),
        ("order.bag", "(b)"),
        ("order.bag", ["b"]),
        ("order.bag", np.array("b")),
        ("order.bag", " B: "),
        ("order.bag", b"b"),
        ("order.bag", 2.0),
        ("ffn.bend", "TRUE"),
        ("ffn.bend", np.True_),
        ("ffn.bend", [True]),
        ("ffn.bend", "t"),
    ],
)
def test_an_answer_is_read_in_many_forms(exercise, answer):
    assert check(exercise, answer).status == "pass"


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


ODD = [
    10**400,
    -(10**5000),
    "9" * 5000,
    "1e999",
    "[[",
    "(" * 500,
    Rude(),
    [Rude()],
    {1: 2},
    {1, 2},
    object(),
    np.nan,
    [np.nan] * 6,
    np.array([object()]),
    np.array(["a", None], object),
    range(3),
    (x for x in "ab"),
    b"\xff",
    "\ud800",
    1j,
    [[1], [2, 3]],
    raising(RudeError()),
    raising(Leaves()),
    raising(SystemExit()),
    wrapped_in_itself(),
    int,
    print,
    lambda *a: Rude(),
    lambda *a: [Rude()] * 5,
    lambda *a: np.array([object()]),
    lambda *a: (1, 2),
    lambda *a: {},
    lambda *a: "x",
    lambda *a: 10**400,
    lambda *a: (x for x in a),
    lambda *a: [[1], [2, 3]],
    lambda *a: np.zeros((0, 3)),
    lambda *a: True,
    lambda *a: np.array(1j),
    lambda *a: {"a": Rude()},
    lambda *a: [],
    lambda *a: np.ma.masked_all(3),
    lambda *a: set(),
]


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


@pytest.mark.parametrize(
    ("error", "asks"),
    [
        (NameError("pos"), "name"),
        (AttributeError("no"), "attribute"),
        (IndexError("no"), "index"),
        (KeyError("k"), "keys"),
        (ZeroDivisionError("no"), "0"),
        (RecursionError("no"), "recursion"),
        (TypeError("f() takes 1 argument"), "arguments"),
        (ValueError("no"), "shapes"),
        (OverflowError("no"), "large"),
        (TypeError("no"), "expect"),
        (ImportError("torch"), "NumPy"),
    ],
)
def test_the_question_fits_the_exception(error, asks):
    result = check("pe.table", raising(error), level=3)
    assert result.status == "error" and type(error).__name__ in result.evidence and asks in result.question
    assert type(error) is ValueError or "shape" not in result.question


class Told(Exception):
    """An error of another process, described by its parts."""

    type_name, message, line = "NameError", "name 'pos' is not defined", 3


def test_an_error_from_another_process_is_told_by_its_parts():
    result = check("pe.table", raising(Told()), level=3)
    assert result.evidence == "It stopped with NameError: name 'pos' is not defined, in line 3."
    assert result.question.startswith("Where does this name")


def test_a_forgotten_return_is_told_from_a_stub():
    def forgotten(n, d_model):
        np.zeros((n, d_model))

    assert "returns nothing" in check("pe.table", forgotten).evidence
    stub = functools.partial(forgotten)
    stub.stub = True
    assert check("pe.table", stub).evidence == "Nothing was answered yet."


def test_a_proxy_is_checked_by_what_it_does():
    class Proxy:
        def __call__(self, *args):
            return own("pe.table")(*args)

    assert check("pe.table", Proxy())


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


def test_a_part_may_be_ours():
    def attention(q, k, v, mask=None):
        scores = q @ k.T / math.sqrt(q.shape[1])
        return npformer.softmax_forward(scores if mask is None else np.where(mask, scores, -np.inf))[0] @ v

    assert check("attention.forward", attention)


# --- single observations ---------------------------------------------------------------------------


def moved(exercise, far=lambda args: False):
    """A right function with an odd term upon it; it stops where `far` says so."""

    def f(*args):
        out = own(exercise)(*args)
        parts = out if isinstance(out, tuple) else (out,)
        stop = 1 // (not far(args))
        parts = tuple(part + stop * np.sin(3 + np.arange(part.size)).reshape(part.shape) for part in parts)
        return parts if isinstance(out, tuple) else parts[0]

    return f


def late_cosine(n, d):
    i = np.arange(d // 2)
    p = np.arange(n)[:, None]
    return np.stack([np.sin(p / 1e4 ** (2 * i / d)), np.cos(p / 1e4 ** ((2 * i + 3) / d))], -1).reshape(n, d)


def slower(x):
    T, d = x.shape
    z = (x[:, ::2] + 1j * x[:, 1::2]) * np.exp(
        1j * np.arange(T)[:, None] / 1e4 ** (1.5 * np.arange(d // 2) / d)
    )
    return np.stack([z.real, z.imag], -1).reshape(T, d)


def one_head(x, h):
    right = own("heads.split")(x, h)
    return np.where(np.arange(h)[:, None, None] == 0, right, np.cos(right))


def plain_norm(x, gamma, beta, eps):
    return own("layer_norm.forward")(x, np.ones_like(gamma), 0 * beta, eps)


OBSERVED = {
    "exchanged": ("adam.step", lambda w, g, *a: own("adam.step")(g, w, *a)),
    "gamma = 1 and beta = 0 the output": (
        "layer_norm.forward",
        lambda x, g, b, e: plain_norm(x, g, b, e) * g.mean() + b.mean(),
    ),
    "y differs first": ("ffn.forward", moved("ffn.forward", lambda args: len(args[0]) == 1)),
    "does not follow when dy is doubled": (
        "ffn.backward",
        moved("ffn.backward", lambda args: len(args[0]) == 1),
    ),
    "differs first at (0, 0)": (
        "attention.forward",
        moved("attention.forward", lambda a: a[2].shape == (5, 5) and a[3:] != (None,) and len(a) > 3),
    ),
    "v squared": (
        "attention.forward",
        lambda q, k, v, mask=None: own("attention.forward")(q, k, v * v, mask),
    ),
    "turn by the angles": ("rope.forward", slower),
    "do not keep their length": ("rope.forward", lambda x: own("rope.forward")(x) + np.sin(x)),
    "(30 of 30 entries differ)": ("rope.forward", moved("rope.forward", lambda args: args[0][0, 0] == 1)),
    "turns by 0.00316 radians": ("pe.table", late_cosine),
    "Ordinary sizes agree": ("softmax.forward", lambda s: own("softmax.forward")(np.clip(s, -50, 50))),
    "Along axis 1, 0 agrees": ("heads.split", one_head),
    "dgamma differs": (
        "layer_norm.backward",
        lambda dy, x, g, b, e: (
            lambda r: (r[0], (dy * own("layer_norm.forward")(x, g, b, e)).sum((0, 1)), r[2])
        )(own("layer_norm.backward")(dy, x, g, b, e)),
    ),
    "its mean over axis 0 agrees, and is not taken yet": (
        "loss.smoothed",
        lambda z, t, e: np.array(
            [own("loss.smoothed")(z[n : n + 1], t[n : n + 1], e) for n in range(len(t))]
        ),
    ),
    "rows do not sum to 1": ("softmax.forward", lambda s: own("softmax.forward")(s) ** 1.5),
    "0 everywhere": ("softmax.forward", lambda s: 0 * s),
    "divided by p": ("softmax.backward", lambda dp, p: dp - (dp * p).sum(1, keepdims=True) + 0 * p),
    "one factor for each column": (
        "softmax.forward",
        lambda s: own("softmax.forward")(s) * np.arange(1, 1 + s.shape[1]),
    ),
    "one number added to each column": (
        "softmax.forward",
        lambda s: own("softmax.forward")(s) + np.arange(s.shape[1]),
    ),
    "one number added to each row": (
        "rope.forward",
        lambda x: own("rope.forward")(x) + np.arange(len(x))[:, None],
    ),
    "one factor for each row": (
        "rope.forward",
        lambda x: own("rope.forward")(x) * (1 + np.arange(len(x)))[:, None],
    ),
    "does not follow when dy": (
        "layer_norm.backward",
        lambda dy, *a: own("layer_norm.backward")(np.maximum(dy, 0.3 * dy), *a),
    ),
    "the first token of": (
        "ffn.forward",
        lambda x, *p: own("ffn.forward")(x[:, :1] * 0 + x * (np.arange(x.shape[1]) > 0)[:, None], *p),
    ),
    "mean is not 0 and its spread is 1": (
        "layer_norm.forward",
        lambda x, g, b, e: own("layer_norm.forward")(x, g, b, e) + g * np.abs(x).sum(-1, keepdims=True),
    ),
    "added up along each row": ("rope.forward", lambda x: np.cumsum(own("rope.forward")(x), axis=-1)),
    "never called": ("block.forward", lambda x, a, n1, f, n2: n2(x + f(n1(x)))),
    "in other places": (
        "heads.split",
        lambda x, h: np.sort(own("heads.split")(x, h), axis=None).reshape(own("heads.split")(x, h).shape),
    ),
    "one factor in each call": ("softmax.forward", lambda s: own("softmax.forward")(s) * np.abs(s).sum()),
    "shift that should cancel": (
        "softmax.forward",
        lambda s: np.maximum(own("softmax.forward")(s), 0.02 * np.abs(s)),
    ),
    "too many rows; the first of them are right": (
        "rope.forward",
        lambda x: np.vstack([own("rope.forward")(x), x[:1]]),
    ),
    "A dict came back": ("adam.step", lambda *a: dict(zip("wmv", own("adam.step")(*a), strict=True))),
}


@pytest.mark.parametrize("said", OBSERVED)
def test_an_observation(said):
    exercise, f = OBSERVED[said]
    result = check(exercise, f, level=3)
    assert not result and (result.codes or said in result.evidence)


@pytest.mark.parametrize(
    ("exercise", "f"),
    [
        ("ffn.backward", moved("ffn.backward", lambda args: args[0].size == 30)),
        ("softmax.forward", lambda s: (own("softmax.forward")(s) + own("softmax.forward")(2 * s)) / 2),
        ("softmax.forward", lambda s: np.tile(own("softmax.forward")(s) ** 1.3, (2, 1))),
        (
            "embedding.forward",
            lambda ids, E: (lambda x: x + np.cos(x) * (np.arange(x.shape[2]) > 0))(
                own("embedding.forward")(ids, E)
            ),
        ),
        (
            "heads.merge",
            lambda x: (
                own("heads.merge")(x) + np.cos(own("heads.merge")(x)) * (np.arange(len(x)) > 0)[:, None, None]
            ),
        ),
    ],
)
def test_where_nothing_holds_the_place_is_told(exercise, f):
    result = check(exercise, f, level=3)
    assert result.status == "unrecognised" and result.evidence and result.question


def test_what_should_cancel_does_so_in_the_right_answer():
    for task in CODE:
        for change, given in itertools.product(task.probe.cancels.values(), task.probe.calls):
            before, after = (run(task.right, g, task.probe).arrays[0] for g in (given, change(*given)))
            assert np.allclose(before, after), task.id


def test_a_factor_has_a_name_or_a_value_or_none():
    sizes = ({"N": 3, "V": 5}, {"N": 4, "V": 9})
    assert named_factor([1 / 15, 1 / 36], sizes) == "1/(N · V)"
    assert named_factor([-(3**0.5), -2.0], sizes) == "-√N"
    assert named_factor([0.123, 0.123], sizes) == "about 0.123, whatever the sizes are"
    assert named_factor([0.123, 0.2], sizes) == ""


# --- the words -------------------------------------------------------------------------------------


def test_the_right_option_is_seldom_the_longest_and_nothing_is_called_the_other_one():
    choices = [e for e in bank().values() if e.kind == "choice"]
    longest = [e.options[max(e.options, key=len)] is RIGHT for e in choices]
    assert sum(longest) <= len(longest) / 3
    assert "the other one" not in "\n".join(map(str, bank().values()))


def test_a_check_is_quick():
    """Counted in calls of functions, which are as many on a busy machine as on an idle one."""
    calls = Counter()
    for exercise, _, _, f in STRANGERS[::25]:
        check(exercise, f)
        sys.setprofile(lambda frame, event, value, exercise=exercise: calls.update([exercise]))
        try:
            check(exercise, f)
        finally:
            sys.setprofile(None)
    assert 1000 < max(calls.values()) < 400_000, calls


def test_strangers_write_in_their_own_way():
    sources = {
        inspect.getsource(module).count(word)
        for module in (stranger_codings, later_strangers)
        for word in ("einsum", "for ", "lambda", "partial", "math.")
    }
    assert min(sources) > 3
