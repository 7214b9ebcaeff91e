"""The checker: mistakes are called by their names, right answers pass, and what is unknown stays unknown."""

import html
import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from codings import own
from hypothesis import given, settings
from hypothesis import strategies as st

from npformer import positional_encoding
from npformer.exercises import Result, check, hint, list_exercises, progress, reply, show
from npformer.exercises import task as task_module
from npformer.exercises.probe import Probe, normal
from npformer.exercises.reply import TITLES
from npformer.exercises.task import RIGHT, Choice, Code, Numbers, Truth, Wrong
from npformer.exercises.topics import bank, block, words
from npformer.exercises.topics.positions import fit
from npformer.gradcheck import gradcheck

check = partial(check, level=3)  # which says most

ROOT = Path(__file__).parents[2]
LESSONS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
PE = "pe.table"
OWN_TABLE = own(PE)  # npformer's own is told apart


CODE = [task for task in bank().values() if isinstance(task, Code)]
NUMBERS = [task for task in bank().values() if isinstance(task, Numbers)]


# --- every edit of a solution ---------------------------------------------------------------------


@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_the_solution_passes_and_every_edit_is_met_and_goes_into_it(task):
    assert check(task.id, task.solved()).status == "pass"
    assert not [edit for edits in task.mistakes.values() for edit in edits if not edit.pairs]


@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_mistakes_survive_float32(task):
    for mistake, f in task.wrongly():
        result, code = check(task.id, in_float32(f)), mistake.code
        assert code in result.codes and set(result.codes) <= next(
            (group for group in ALIKE if code in group), {code}
        )


ALIKE = [  # no output can tell them apart
    {"PE-EXP-DOUBLED", "PE-BASE-1E8"},
    {"PE-EXP-NO-2", "PE-BASE-100"},
    {"AT-MASK-SIGN", "AT-MASK-INVERTED"},
]


def in_float32(f):
    def rounded(*args):
        out = f(*args)
        single = isinstance(out, np.ndarray | np.floating)
        return np.float32(out) if single else tuple(np.float32(part) for part in out)

    return rounded


def test_the_exercise_that_contributing_adds_is_right_and_its_mistakes_are_named():
    text = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    names = {name: getattr(task_module, name) for name in ("Code", "Edit", "Mistake", "Place")}
    names |= {"np": np, "Probe": Probe, "normal": normal}
    exec(re.search(r"```python\n(.*?)```", text, re.S)[1], names)
    kl = names["backward"]
    for p_and_q in kl.probe.calls:  # against differences of the loss
        loss = [(p * np.log(p / q)).sum(axis=-1).mean() for p, q in shifted(*p_and_q)]
        slopes = (np.array(loss[::2]) - np.array(loss[1::2])) / 2e-6
        assert np.allclose(kl.right(*p_and_q).ravel(), slopes, atol=1e-6)
    assert reply.check_function(kl, kl.solved())
    for mistake, f in kl.wrongly():
        assert reply.check_function(kl, f).codes == (mistake.code,)
    assert len(kl.mistakes) == 3


def shifted(p, q):
    for place in np.ndindex(q.shape):
        for step in (1e-6, -1e-6):
            other = q.copy()
            other[place] += step
            yield p, other


def way(name, asked):
    """What gradcheck asks for: a way forward, the exercise's solution as its way back, and arguments."""
    back, forth = own(f"{name}.backward"), own(f"{name}.forward") if f"{name}.forward" in bank() else None
    if name == "softmax":
        return lambda s: (forth(s), forth(s)), back, [np.log(asked[1])]
    if name == "cross_entropy":
        return lambda *args: (forth(*args), args), lambda dloss, args: dloss * back(*args), asked
    if name == "rope":
        return lambda x: (forth(x), ()), lambda dy, _: back(dy), asked
    if name == "grouped":
        times = len(asked[0]) // asked[1]
        heads = asked[0][: asked[1]]
        return lambda x: (np.repeat(x, times, axis=0), ()), lambda dy, _: back(dy, asked[1]), [heads]
    if name == "block":
        x, *layers = block.call(asked[0].shape[1])
        return lambda x: (forth(x, *layers), ()), lambda dy, _: back(dy, *asked[1:]), [x]
    return lambda *args: (forth(*args), args), lambda dy, args: back(dy, *args), asked[1:]


@pytest.mark.parametrize("task", [e for e in CODE if e.id.endswith(".backward")], ids=lambda task: task.id)
def test_a_way_back_is_the_gradient_of_its_way_forward(task):
    for asked in task.probe.calls:
        forward, backward, arguments = way(task.id.removesuffix(".backward"), asked)
        verdicts = {row.verdict for row in gradcheck(forward, backward, *arguments).rows}
        assert verdicts == {"pass"} | ({"kink"} & verdicts if task.id == "ffn.backward" else set())  # z = 0


# --- two at once ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exercise", "first", "second"),
    [
        ("ffn.backward", "FFN-DB-MEAN", "FFN-DW-TRANSPOSED"),
        ("ffn.backward", "FFN-DB-SCALAR", "FFN-DW2-PREACT"),
        ("layer_norm.backward", "LN-DX-DIRECT", "LN-DGAMMA-SHAPE"),
        ("layer_norm.backward", "LN-NO-GAMMA", "LN-DGAMMA-SHAPE"),
        ("rms_norm.backward", "RMS-DX-DIRECT", "RMS-DGAMMA-OF-X"),
        ("gate.backward", "GATE-ONE-WAY", "GATE-FOR-HIDDEN"),
    ],
)
def test_mistakes_in_different_outputs_are_both_named(exercise, first, second):
    task = bank()[exercise]
    one, two = (next(f for mistake, f in task.wrongly() if mistake.code == code) for code in (first, second))

    def both(*args):
        parts = zip(one(*args), two(*args), task.right(*args), strict=True)
        return [a if not same(a, c) else b for a, b, c in parts]

    assert set(check(exercise, both).codes) == {first, second}


def same(a, b):
    return a.shape == b.shape and np.allclose(a, b)


def test_a_robust_failure_beside_a_mistake_is_told_and_not_counted():
    def changes(ids, E):
        ids += 1
        return E[ids - 1]

    result = check("embedding.forward", changes)
    assert result.codes == ("EMB-NO-SCALE",)
    assert result.evidence.endswith("And the call changed its argument ids.")


# --- what is not known ----------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1e-3, 1.0, 50.0]),
    exercise=st.sampled_from([task.id for task in CODE]),
)
def test_garbage_of_the_right_shape_is_never_recognised(seed, size, exercise):
    rng, right = np.random.default_rng(seed), bank()[exercise].right

    def garbage(*args):
        out = right(*args)
        parts = [
            size * rng.normal(size=np.shape(part)) for part in (out if isinstance(out, tuple) else [out])
        ]
        return tuple(parts) if isinstance(out, tuple) else parts[0]

    assert check(exercise, garbage).status == "unrecognised"


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), exercise=st.sampled_from([task.id for task in CODE]))
def test_a_right_function_moved_by_less_than_the_tolerance_passes(seed, exercise):
    rng, right = np.random.default_rng(seed), bank()[exercise].right

    def moved(*args):
        out = right(*args)
        parts = [
            part + rng.uniform(-9e-5, 9e-5, np.shape(part))
            for part in (out if isinstance(out, tuple) else [out])
        ]
        return tuple(parts) if isinstance(out, tuple) else parts[0]

    assert check(exercise, moved).status == "pass"


@pytest.mark.parametrize("value", [0.0, 1.0, np.nan, np.inf])
def test_constants_are_not_recognised(value):
    def constant(task, *args):
        out = task.right(*args)
        parts = [np.full(np.shape(part), value) for part in (out if isinstance(out, tuple) else [out])]
        return tuple(parts) if isinstance(out, tuple) else parts[0]

    assert {check(task.id, partial(constant, task)).status for task in CODE} == {"unrecognised"}


@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_a_mistake_with_something_unlisted_on_top_is_not_guessed_at(task):
    rng = np.random.default_rng(0)

    def more(f, *args):
        out = f(*args)
        parts = [
            part + 0.02 * rng.normal(size=np.shape(part))
            for part in (out if isinstance(out, tuple) else [out])
        ]
        return tuple(parts) if isinstance(out, tuple) else parts[0]

    for _, f in task.wrongly():
        assert check(task.id, partial(more, f)).status == "unrecognised"


def test_one_size_by_heart_is_not_recognised():
    table = positional_encoding(6, 8)
    result = check(PE, lambda n, d: table, level=3)
    assert result.status == "unrecognised"
    assert "when n or d_model do: n and d_model are not used." in result.evidence
    assert "The shape of table is (6, 8); axis 0 is shorter and axis 1 is shorter" in result.evidence
    assert result.question == "Where do n and d_model enter?"


def test_the_place_of_the_first_difference_is_named_and_nothing_is_given_away():
    def nearly(n, d):
        table = positional_encoding(n, d)
        table[2, 3] += 0.5
        return table

    result = check(PE, nearly)
    assert result.status == "unrecognised"
    assert "Columns 0, 1, 2, 4, 5, 6 and 7 agree." in result.evidence
    assert "table differs first at (2, 3) (1 of 48 entries differ)." in result.evidence


@pytest.mark.parametrize("far", [lambda t: t + 1, lambda t: t[:3], lambda t: 1 / 0])
def test_a_table_that_goes_wrong_far_out_is_unknown(far):
    result = check(PE, lambda n, d: far(OWN_TABLE(n, d)) if n > 100 else OWN_TABLE(n, d))
    assert result.status == "unrecognised"
    assert check(PE, lambda n, d: positional_encoding(n, d) + 5e-5).status == "pass"


# --- the structure of a table ---------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("base", [500.0, 20.0, 123456.0])
def test_another_base_is_read_off(base, layout):
    result = check(PE, partial(positional_encoding, base=base, layout=layout))
    assert result.status == "unrecognised"
    said = f"Sines, cosines and pairs fit exactly ({layout}), with a base of about {base:.3g}."
    assert result.evidence.endswith(said)


def test_structure_is_silent_unless_it_fits():
    table = positional_encoding(6, 8, base=500.0)
    for spoilt in (
        table + 0.01,
        table[:2],
        table[:, :7],
        np.where(np.arange(8) == 5, np.cos(np.arange(6))[:, None] ** 2, table),
        np.full((6, 8), np.nan),
        np.sin(np.arange(6)[:, None] * np.array([1, 1, 2, 2, 3, 3, 1, 1]) + np.pi / 2 * (np.arange(8) % 2)),
        positional_encoding(6, 8) * 0 + np.arange(8) % 2,
    ):
        assert fit((spoilt, spoilt)) is None
    assert fit((table, positional_encoding(6, 8, base=700.0))) is None
    assert fit((table, table.T)) is None
    noise = np.random.default_rng(0).normal(size=(7, 12)) * (np.arange(12) > 0)
    assert check(PE, lambda n, d: noise[:n, :d]).evidence.endswith("(47 of 48 entries differ).")


# --- how a function can fail ----------------------------------------------------------------------


def stub(n, d_model): ...


def raises_not_implemented(n, d_model):
    raise NotImplementedError


@pytest.mark.parametrize("answer", [None, ..., stub, raises_not_implemented])
def test_nothing_answered_is_said(answer):
    result = check(PE, answer, level=3)
    assert (result.status, result.codes, result.question) == ("error", (), None)
    assert result.evidence == "Nothing was answered yet."


def test_the_error_is_one_line_with_the_place_in_the_students_function():
    def helper(d):
        return [][d]

    def broken(n, d_model):
        rows = n
        return helper(rows)

    result = check(PE, broken, level=3)
    assert result.status == "error"
    assert result.evidence == "It stopped with IndexError: list index out of range, in line 2 of helper."
    assert "Traceback" not in str(result)


def test_an_error_without_a_place_of_the_students_is_told_too():
    assert check(PE, len).evidence == "It stopped with TypeError: len() takes exactly one argument (2 given)."


def test_sys_exit_is_an_error_like_another():
    assert check(PE, lambda n, d: sys.exit(3)).evidence.startswith(
        "It stopped with SystemExit: 3, in line 1 of"
    )


@pytest.mark.parametrize("answer", ["text", [["a"]], 1j])
def test_what_are_no_numbers_is_refused(answer):
    result = check(PE, lambda n, d: answer)
    assert result.status == "error" and "table is not an array of real numbers" in result.evidence


def test_a_missing_output_is_an_error():
    result = check("layer_norm.backward", lambda dy, *rest: dy)
    assert result.evidence.startswith("3 outputs are asked for, dx, dgamma and dbeta; 1 came back")


def test_some_calls_that_stop_or_return_nothing_are_told():
    table = positional_encoding
    assert (
        "One of the checks stopped with ZeroDivisionError"
        in check(PE, lambda n, d: 1 / 0 if n == 7 else table(n, d)).evidence
    )
    assert "One call returned nothing." in check(PE, lambda n, d: None if n == 7 else table(n, d)).evidence


def test_a_loss_that_differs_has_no_place():
    seen = check("cross_entropy.forward", lambda logits, targets: 0.3 * logits.max() + 0.1 * targets.sum())
    assert "loss" in seen.evidence and "differs first" not in seen.evidence
    assert (
        "logits and targets are not used"
        in check("cross_entropy.forward", lambda logits, targets: 0.5).evidence
    )


def test_the_evidence_of_a_backward_pass_says_which_gradients_agree():
    f = next(f for mistake, f in bank()["ffn.backward"].wrongly() if mistake.code == "FFN-DB-MEAN")
    said = "dx, dW_1 and dW_2 agree. db_1 and db_2 differ."
    assert check("ffn.backward", f).evidence.startswith(said)


def test_which_gradients_agree_is_said_even_when_a_call_stops():
    right = bank()["ffn.backward"].right

    def only_on_the_probes(dy, x, *params):
        dx, *grads = right(dy, x, *params)
        return (dx, *grads[:-1], grads[-1] + 1) if x.shape == (2, 3, 4) else 1 / 0

    result = check("ffn.backward", only_on_the_probes)
    assert result.evidence.startswith("dx, dW_1, db_1 and dW_2 agree. db_2 differs. ")


def test_no_gradient_right_says_so_in_shapes():
    right = bank()["layer_norm.backward"].right
    result = check("layer_norm.backward", lambda *args: [g + 1 for g in right(*args)])
    assert result.evidence.startswith("The shapes are right. dx is the right one with a constant added")


def test_arguments_reach_the_function_fresh_every_time():
    before = [np.copy(a) for probe in bank()["ffn.forward"].probe.calls for a in probe]
    check("ffn.forward", lambda *args: [a.fill(0) for a in args] and args[0])
    after = [a for probe in bank()["ffn.forward"].probe.calls for a in probe]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


# --- letters, truth values, numbers ---------------------------------------------------------------


@pytest.mark.parametrize("answer", ["b", "B", " b) ", "2", 2])
def test_a_letter_or_a_number_chooses(answer):
    assert check("order.bag", answer)


@pytest.mark.parametrize("exercise", [e for e in bank().values() if e.kind == "choice"], ids=lambda e: e.id)
def test_every_distractor_names_its_confusion(exercise):
    for letter, option in zip("abcdef", exercise.options.values(), strict=False):
        result = check(exercise.id, letter, level=3)
        if option is RIGHT:
            assert result.status == "pass" and result.question is None
        else:
            assert result.codes == (option.code,) and result.evidence == option.says
            assert result.question == exercise.question


@pytest.mark.parametrize("exercise", [e for e in bank().values() if e.kind == "truth"], ids=lambda e: e.id)
def test_true_and_false(exercise):
    right = exercise.right
    for answer in (right, int(right), str(right), np.bool_(right)):
        assert check(exercise.id, answer).status == "pass"
    assert check(exercise.id, not right).codes == (exercise.wrong.code,)


def test_neighbours_get_different_numbers():
    tasks = {show(f"pe.entry@{name}") for name in "Ada Ben Cem Dot Eli Fay Gil Hal".split()}
    assert len(tasks) > 4
    assert show("pe.entry@ada") == show("pe.entry@Ada")


def test_a_comma_among_thousands_is_read_in_text_and_told_in_code():
    assert check("modern.kept_bytes", "6,144") and not check("addition.scale", "16,000")
    told = check("modern.kept_bytes", (6, 144))  # what Python makes of 6,144
    assert told.evidence.endswith("In Python a comma begins another number: 12345, not 12,345.")
    assert check("pe.entry", "-0,666")


@pytest.mark.parametrize(
    ("exercise", "slip", "says"),
    [
        ("pe.row", lambda y: -y, "every sign differs"),
        ("pe.entry", lambda y: -y, "Only the sign differs"),
        ("backward.softmax", abs, "not all of the signs"),
        ("norm.token", lambda y: y[::-1], "in another order"),
        ("norm.token", lambda y: y + 0.3, "off by the same amount"),
        ("ffn.token", lambda y: 3 * y, "off by the same factor"),
        ("cost.parameters", lambda y: y + 1, "One off"),
        ("attention.causal", lambda y: y - 1, "One off"),
        ("attention.causal", lambda y: y - 3, "One number, as asked"),
        ("attention.width", lambda y: y + 1, "One number, as asked"),  # of 8, "one off" would say too much
        ("pe.entry", lambda y: y + 1, "One number, as asked"),
        ("norm.token", lambda y: 0 * y, "4 numbers, as asked; none agrees"),
    ],
)
def test_numbers_near_the_right_ones_are_told_by_what_parts_them(exercise, slip, says):
    right = np.asarray(bank()[exercise].posed("Ada").answer, float)
    result = check(f"{exercise}@Ada", slip(right))
    assert result.status == "unrecognised" and says in result.evidence, result


@pytest.mark.parametrize(
    ("exercise", "answer", "said"),
    [
        ("order.bag", "z", "expected a letter from a to c"),
        ("order.bag", 7, "expected a letter from a to c"),
        ("ffn.bend", "maybe", "expected True or False"),
        ("pe.entry", "many", "expected a number"),
        ("pe.row", [[1], 2], "expected a list of 6 numbers"),
        ("pe.entry", abs, "its answer is asked for"),
        ("pe.table", 3, "A function is asked for: pe_table(n, d_model)."),
    ],
)
def test_an_answer_of_the_wrong_kind_is_told_so(exercise, answer, said):
    result = check(exercise, answer)
    assert result.status == "error" and said in result.evidence


def test_what_cannot_be_read_is_told_without_the_name_of_an_error_of_ours():
    result = check("pe.table", lambda n, d_model: "a table")
    assert result.status == "error"
    seen = "What came back cannot be read: table is not an array of real numbers; its type is text."
    assert result.evidence == seen


def test_one_number_may_have_several_causes():
    result = check("attention.width", 512)
    assert result.status == "known_mistake"
    question = bank()["pe.entry"].posed()
    assert check("pe.entry", question.wrong[words()["PE-EXP-NO-2"]]).status == "ambiguous"


# --- levels, cards, progress ----------------------------------------------------------------------


LEVELS = [  # an exercise, a wrong answer, and what each level says more: where, what, why
    ("ffn.sharing", "a", "Not this one; 2 are left.", "Then a longer text would need more weights.", ""),
    ("ffn.bend", False, "Not so.", "are one linear map", ""),
    ("pe.shift", 0.01, "One number, as asked.", "This is one step of the slow hand.", ""),
    ("pe.shift", 0.3, "One number, as asked.", "It is too large.", "No known mistake fits."),
    ("addition.vector", [2, 0, 3, 7], "3 of 4 agree", "Number 4 differs: too large.", "No known"),
    (
        "addition.vector",
        [7, 9, 8, 9],
        "asked; none agrees.",
        "All are too large.",
        "",
    ),
    (
        "pe.table",
        lambda n, d: np.where(np.arange(d) == 3, OWN_TABLE(n, d), 7.0),
        "Column 3 agrees",
        "turn by 0, 0, 0, 0",
        "",
    ),
    ("softmax.forward", np.exp, r"first at \(0, 0\) \(12 of 12", "e to the power of the scores", ""),
    (
        "embedding.forward",
        lambda ids, E: E[ids],
        "x differs first",
        "smaller by one constant factor",
        "This output",
    ),
]


@pytest.mark.parametrize(("exercise", "answer", "where", "what", "why"), LEVELS)
def test_level_1_says_where_level_2_what_level_3_why(exercise, answer, where, what, why):
    one, two, three = (check(exercise, answer, level=level) for level in (1, 2, 3))
    assert re.search(where, one.evidence) and one.question is None and one.hint == ""
    assert re.search(what, two.evidence) and not re.search(what, one.evidence)
    assert two.question is None and two.hint == "" and two.evidence == three.evidence
    assert re.match(rf"{why}.*Read .*\.$", three.hint) and three.question.endswith("?")


def test_where_nothing_more_was_seen_level_2_asks():
    rounded, stopped = check("pe.entry", -0.7, level=2), check(PE, lambda n, d: 1 / 0, level=2)
    assert rounded.question and stopped.question == "Which number is 0 in that line?"
    assert check(PE, lambda n, d: 1 / 0, level=1).question is None


@pytest.mark.parametrize("level", [0, 4, True, "2"])
def test_other_levels_are_refused(level):
    with pytest.raises((TypeError, ValueError), match=r"level"):
        check("ffn.sharing", "a", level=level)


@pytest.mark.parametrize("function", [show, hint, lambda name: check(name, 1)])
def test_an_unknown_exercise_is_refused(function):
    with pytest.raises(ValueError, match=r"there is no exercise 'pe\.tabel'"):
        function("pe.tabel")
    with pytest.raises(TypeError, match="exercise_id"):
        function(7)


def test_a_card_is_plain_text_and_quiet_html():
    result = Result("known_mistake", ("PE-SUM",), "a < b", "cause", "why?")
    text, card = str(result), result._repr_html_()
    assert (
        repr(result)
        == text
        == f"Not yet: this pattern is known  ({progress()} passed)\n  a < b\n  cause\n  why?"
    )
    assert html.escape("a < b") in card and progress() in card and "Not yet" in card
    for status in TITLES:
        assert TITLES[status] in Result(status, (), "", "", None)._repr_html_()


def test_an_open_exercise_has_a_card_of_one_line():
    assert str(check(PE, None)) == f"Nothing was answered yet.  ({progress()} passed)"
    assert check(PE, None)._repr_html_().count("Nothing was answered yet.") == 1


def test_progress_counts_each_exercise_once(monkeypatch):
    monkeypatch.setattr(reply, "_passed", set())
    for answer in ("a", "b", "b", "a"):
        check("order.bag", answer)
    assert progress() == f"1 of {len(bank())}"


def test_the_bank_prints_as_a_table():
    lines = str(list_exercises()).splitlines()
    assert len(lines) == len(bank()) == len(list_exercises())
    assert repr(list_exercises()) == str(list_exercises()) and repr(show("pe.table")) == show("pe.table")
    assert lines[0].startswith("order.bag")


# --- the data -------------------------------------------------------------------------------------


def test_the_bank_is_whole():
    exercises = list(bank().values())
    assert len(exercises) >= 48
    assert {e.kind for e in exercises} == {"choice", "truth", "number", "vector", "code"}
    assert [e.level for e in exercises] == sorted(e.level for e in exercises)
    assert len({e.name for e in exercises}) == len(exercises)


def test_every_exercise_is_complete():
    for e in bank().values():
        assert all((e.task, e.hint, e.read, e.teach, e.question.endswith("?"), 1 <= e.level <= 5)), e.id
        assert hint(e.id) == f"{e.hint}\nRead {e.read}."
        if e.kind == "choice":
            options = list(e.options.values())
            assert len(options) >= 3 and options.count(RIGHT) == 1, e.id
            assert all(option.code and option.says for option in options if option is not RIGHT), e.id


def test_the_tone():
    known = [*words().values(), *(mistake for task in CODE for mistake, _ in task.wrongly())]
    said = [text for mistake in known for text in (mistake.sees, mistake.cause, mistake.question)]
    said += [text for e in bank().values() for text in (e.task, e.hint, e.question)]
    said += [option.says for e in bank().values() if isinstance(e, Choice) for option in e.options.values()]
    said += [e.wrong.says for e in bank().values() if isinstance(e, Truth)]
    said += [shown.says for task in NUMBERS for shown in task.posed().wrong if isinstance(shown, Wrong)]
    assert [
        text for text in said if re.search(r"\b(just|simply|obviously|wrong|you swapped)\b", text, re.I)
    ] == []
    assert [code for code, entry in words().items() if not re.search(r"^[^?]+\?$", entry.question)] == []


def test_every_section_to_teach_again_is_there():
    texts = [path.read_text(encoding="utf-8") for path in LESSONS]
    cells = [cell for text in texts for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
    plain = "\n".join("".join(cell["source"]) for cell in cells).replace("$\\sqrt{d_k}$", "√d_k")
    named = {e.teach for e in bank().values()} | {mistake.place.teach for mistake in words().values()}
    for section in named:
        lesson, number, title = re.fullmatch(r"(\d\d), section (\d+\.\d+), (.*)", section).groups()
        assert int(lesson) == int(number.split(".")[0])
        assert f"## {number} {title}" in plain.splitlines()


# --- what it costs --------------------------------------------------------------------------------


def test_importing_npformer_does_not_import_the_exercises():
    probe = "import npformer, sys; print('npformer.exercises' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
        == "False\n"
    )


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_ends_with_exercises_of_the_bank(lesson):
    last = "".join(json.loads(lesson.read_text(encoding="utf-8"))["cells"][-1]["source"])
    named = [word for word in re.findall(r"`([\w.]+)`", last.split("exercises.ipynb")[0]) if word in bank()]
    assert 3 <= len(named) <= 6


def test_the_students_copy_asks_every_exercise_once_and_answers_none():
    cells = json.loads((ROOT / "notebooks" / "exercises.ipynb").read_text(encoding="utf-8"))["cells"]
    checks = [cell for cell in cells if cell["cell_type"] == "code" and "check(" in "".join(cell["source"])]
    text = "\n".join("".join(cell["source"]) for cell in checks)
    asked = [i.removesuffix("@{student}") for i in re.findall(r'check\(f?"([^"]+)"', text)]
    assert sorted(asked) == sorted(bank())
    shown = [json.dumps(cell["outputs"]) for cell in checks]
    assert all("Nothing was answered yet." in output for output in shown)
