"""The checker: mistakes are called by their names, right answers pass, and what is unknown stays unknown."""

import html
import itertools
import json
import re
from functools import partial

import new
import numpy as np
import pytest
from codings import CODE, ROOT, check, own
from hypothesis import given, settings
from hypothesis import strategies as st

from npformer.exercises import (
    Result,
    checker,
    feedback,
    hint,
    list_exercises,
    progress,
    result,
    show,
)
from npformer.exercises.bank import bank, block, questions
from npformer.exercises.detectors import known_mistakes
from npformer.exercises.probe import RELATIVE, Draws, normal
from npformer.exercises.task import RIGHT, Edit
from npformer.exercises.verdict import STATUSES
from npformer.gradcheck import gradcheck

LESSONS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
PE = "pe.table"


# --- every edit of a solution ---------------------------------------------------------------------


ALIKE = [  # no output can tell them apart
    {"PE-EXP-DOUBLED", "PE-BASE-1E8"},
    {"PE-EXP-NO-2", "PE-BASE-100"},
    {"AT-MASK-SIGN", "AT-MASK-INVERTED"},
]


def changed(f, change):
    """f with every output changed."""

    def g(*args):
        out = f(*args)
        return tuple(map(change, out)) if isinstance(out, tuple) else change(out)

    return g


@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_mistakes_survive_float32_and_one_with_something_unlisted_on_top_is_not_guessed_at(task):
    rng = np.random.default_rng(0)
    for mistake, f in task.wrong_functions():
        found, code = check(task.id, changed(f, np.float32)), mistake.code
        alike = next((group for group in ALIKE if code in group), {code})
        assert code in found.codes and set(found.codes) <= alike
        more = changed(f, lambda part: part + 0.02 * rng.normal(size=np.shape(part)))
        assert check(task.id, more).status == "unrecognised"


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1e-3, 1.0, 50.0]),
    task=st.sampled_from(CODE),
)
def test_garbage_of_the_right_shape_is_never_recognised_and_what_is_near_enough_passes(seed, size, task):
    rng = np.random.default_rng(seed)
    garbage = changed(task.right, lambda part: size * rng.normal(size=np.shape(part)))
    share = 0.9 * RELATIVE
    near = changed(task.right, lambda part: part * rng.uniform(1 - share, 1 + share, np.shape(part)))
    assert check(task.id, garbage).status == "unrecognised"
    if "fitting" not in task.id:
        assert check(task.id, near).status in ("pass", "unrecognised")


def test_the_exercise_that_contributing_adds_is_right_and_its_mistakes_are_named(monkeypatch):
    text = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code, words = (re.search(rf"```{kind}\n(.*?)```", text, re.S)[1] for kind in ("python", "markdown"))
    monkeypatch.setattr(questions, "asked", lambda: questions.questions_of(f"\n{words}"))
    monkeypatch.setattr(questions, "words", lambda: questions.mistakes_of(f"\n{words}"))
    names = {"np": np, "Draws": Draws, "Edit": Edit, "coded": questions.coded}
    exec(code, names)
    kl = names["backward"]
    for p, q in kl.probe.calls:
        forth = partial(lambda p, q: ((p * np.log(p / q)).sum(axis=-1).mean(), (p, q)), p)
        assert gradcheck(forth, lambda dloss, given: dloss * kl.right(*given), q)
    assert checker.assess_function(kl, kl.right).passes and len(kl.mistakes) == 3
    for mistake, f in kl.wrong_functions():
        assert checker.assess_function(kl, f).codes == (mistake.code,)


def test_the_way_back_of_a_block_is_the_gradient_of_its_way_forward():
    """Of the other exercises test_answers.py holds it against npformer's own."""
    forth, back = own("block.forward"), own("block.backward")
    for dy, *backs in bank()["block.backward"].probe.calls:
        x, *layers = block.call(dy.shape[1], dy.shape[0])
        assert gradcheck(lambda x, f=layers: (forth(x, *f), ()), lambda dy, _, f=backs: back(dy, *f), x)


# --- one argument at a time -----------------------------------------------------------------------


def fixed(value):
    """A value that does not depend on the call's."""
    if not isinstance(value, np.ndarray):
        return {float: 0.37, int: 1}.get(type(value), value)
    return (
        normal(*value.shape, seed=7) if value.dtype.kind == "f" else np.full_like(value, value.dtype == bool)
    )


def by_one_argument(task):
    """The finding that is due, and a function that ignores, transposes or exchanges, or stops early."""
    right, names, calls = task.right, task.probe.names, task.probe.calls
    for k, name in enumerate(names):
        unused = "unused_there" if len(task.probe.outputs) > 1 else "unused"
        yield (unused, name), lambda *a, k=k: right(*a[:k], fixed(a[k]), *a[k + 1 :])
        if name[0] == "W":
            yield ("weights_transposed", name), lambda *a, k=k: right(*a[:k], a[k].T, *a[k + 1 :])
    for i, j in itertools.combinations(range(len(names)), 2):
        if all(np.shape(given[i]) == np.shape(given[j]) for given in calls):
            order = [{i: j, j: i}.get(k, k) for k in range(len(names))]
            yield ("exchanged_arguments", names[i]), lambda *a, order=order: right(*(a[k] for k in order))
    for landmark, f in task.probe.landmarks.items():
        yield ("is_landmark", landmark), f


FOUND_BEFORE = {  # what is as true, and is found earlier
    "calls_in_order", "call_gets_other_array", "wrong_shape", "weight_depends_on_more", "weights_asymmetric",
    "likelier_token_dropped", "one_hot", "outputs_returned", "too_many_and_too_few_tokens", "unused_there",
}  # fmt: skip


@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_what_is_done_with_one_argument_is_found(task):
    for (kind, name), f in by_one_argument(task):
        found = check(task.id, f)
        due = [finding for finding in found.findings if finding.kind == kind]
        is_named = any(name in str(finding.parameters) for finding in due)
        is_found_before = FOUND_BEFORE & {finding.kind for finding in found.findings}
        assert found or found.codes or is_named or is_found_before, (kind, name, found)


# --- two at once ----------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [e for e in CODE if len(e.probe.outputs) > 1], ids=lambda task: task.id)
def test_mistakes_in_different_outputs_are_both_named(task):
    """Each listed mistake together with the next one that spoils other outputs."""
    known = known_mistakes(task)
    for one, two in itertools.pairwise(known):
        if not one.wrong_outputs & two.wrong_outputs and all(
            o.arrays for k in (one, two) for o in k.outcomes
        ):

            def both(*args, f=one.function, g=two.function, spoilt=one.wrong_outputs):
                parts = zip(task.probe.outputs, f(*args), g(*args), strict=True)
                return [a if name in spoilt else b for name, a, b in parts]

            assert set(check(task.id, both).codes) == {one.mistake.code, two.mistake.code}


# --- how a function can fail ----------------------------------------------------------------------


def stub(n, d_model): ...


def raises_not_implemented(n, d_model):
    raise NotImplementedError


def forgotten(n, d_model):
    np.zeros((n, d_model))


def test_nothing_answered_is_told_from_a_forgotten_return():
    for answer in (None, ..., stub, raises_not_implemented):
        found = check(PE, answer)
        assert (found.status, found.evidence, found.question) == ("error", "Nothing was answered yet.", None)
        assert not found.is_answered
    assert "returns nothing" in check(PE, forgotten).evidence and check(PE, forgotten).is_answered


# --- letters, truth values, numbers ---------------------------------------------------------------


@pytest.mark.parametrize(
    "exercise", [e for e in bank().values() if e.kind in ("choice", "truth")], ids=lambda e: e.id
)
def test_every_distractor_names_its_confusion(exercise):
    if exercise.kind == "choice":
        answers = dict(zip("abcdef", exercise.options.values(), strict=False))
    else:
        answers = {said: RIGHT if said == exercise.right else exercise.wrong for said in (True, False)}
        assert all(check(exercise.id, form(exercise.right)) for form in (int, str, np.bool_))
    for answer, option in answers.items():
        found = check(exercise.id, answer)
        if option is RIGHT:
            assert found.status == "pass" and found.question is None
        else:
            assert (found.codes, found.evidence) == ((option.code,), option.says)
            assert found.question == exercise.question


def test_neighbours_get_different_numbers():
    tasks = {show(f"pe.entry@{name}") for name in "Ada Ben Cem Dot Eli Fay Gil Hal".split()}
    assert len(tasks) > 4
    assert show("pe.entry@ada") == show("pe.entry@Ada")


# --- levels, cards, progress ----------------------------------------------------------------------


LEVELS = [  # an exercise, a wrong answer, and what each level says more: where, what, why
    ("ffn.sharing", "a", "Not this one; 2 are left.", "Then a longer text would need more weights.", ""),
    ("ffn.bend", False, "Not so.", "are one linear map", ""),
    ("pe.shift", 0.01, "One number, as asked.", "This is one step of the slow hand.", ""),
    ("addition.vector", [2, 0, 3, 7], "3 of 4 agree", "Number 4 differs: too large.", "No known"),
    ("addition.vector", [7, 9, 8, 9], "asked; none agrees.", "All are too large.", ""),
    ("softmax.forward", np.exp, r"first at \(0, 0\) \(12 of 12", "e to the power of the scores", ""),
    ("embedding.forward", lambda ids, E: E[ids], "x differs first", "smaller by one constant", "This output"),
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


def test_an_unknown_exercise_and_other_levels_are_refused():
    for function in (show, hint, partial(check, answer=1)):
        with pytest.raises(ValueError, match=r"there is no exercise 'pe\.tabel'"):
            function("pe.tabel")
        with pytest.raises(TypeError, match="exercise_id"):
            function(7)
    for level in (0, 4, True, "2"):
        with pytest.raises((TypeError, ValueError), match="level"):
            check("ffn.sharing", "a", level=level)


def test_a_card_is_plain_text_and_quiet_html():
    made = Result("known_mistake", ("PE-SUM",), (), ("table",), (), "a < b", "cause", "why?")
    said = f"Not yet: this is a known mistake  ({progress()} passed)\n  a < b\n  cause\n  why?"
    assert str(made) == repr(made) == said
    assert html.escape("a < b") in made._repr_html_() and progress() in made._repr_html_()
    for status in STATUSES:
        assert feedback.title_of(status) in made._replace(status=status)._repr_html_()
    assert str(check(PE, None)) == f"Nothing was answered yet.  ({progress()} passed)"


def test_raise_if_wrong_raises_the_feedback():
    check("order.bag", "b").raise_if_wrong()
    with pytest.raises(AssertionError) as caught:
        check("order.bag", "a").raise_if_wrong()
    assert str(caught.value) == str(check("order.bag", "a"))
    with pytest.raises(AssertionError):
        assert check("order.bag", "a")


def test_bool_of_a_result_has_no_side_effect():
    wrong = check("order.bag", "a")
    assert [bool(wrong), bool(wrong)] == [False, False] and not wrong


def test_progress_counts_each_exercise_once(monkeypatch):
    monkeypatch.setattr(result, "_passed", set())
    for answer in ("a", "b", "b", "a"):
        check("order.bag", answer)
    assert progress() == f"1 of {len(bank())}"


def test_the_bank_prints_as_a_table():
    lines = str(list_exercises()).splitlines()
    assert len(lines) == len(bank()) == len(list_exercises()) and lines[0].startswith("order.bag")
    assert repr(show("pe.table")) == show("pe.table")


# --- the data -------------------------------------------------------------------------------------


def test_every_exercise_is_complete():
    for e in bank().values():
        assert all((e.task, e.hint, e.read, e.teach, e.question.endswith("?"), 1 <= e.level <= 5)), e.id
        assert hint(e.id) == f"{e.hint}\nRead {e.read}." and show(e.id) == str(e)
        if e.kind == "choice":
            options = list(e.options.values())
            assert len(options) >= 3 and options.count(RIGHT) == 1, e.id
            assert all(option.code and option.says for option in options if option is not RIGHT), e.id


def test_every_section_to_teach_again_is_there():
    texts = [path.read_text(encoding="utf-8") for path in LESSONS]
    cells = [cell for text in texts for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
    plain = "\n".join("".join(cell["source"]) for cell in cells).replace("$\\sqrt{d_k}$", "√d_k")
    named = {e.teach for e in bank().values()} | {m.place.teach for m in questions.words().values()}
    for section in named:
        lesson, number, title = re.fullmatch(r"(\d\d), section (\d+\.\d+), (.*)", section).groups()
        assert int(lesson) == int(number.split(".")[0])
        assert f"## {number} {title}" in plain.splitlines()


# --- what it costs --------------------------------------------------------------------------------


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


def test_one_command_has_written_the_lists_of_the_exercises():
    """uv run python tests/new.py exercises"""
    assert new.NOTEBOOK.read_text(encoding="utf-8") == new.notebook_text()
    assert new.README.read_text(encoding="utf-8") == new.readme_text()
    assert list(new.lacking()) == []
