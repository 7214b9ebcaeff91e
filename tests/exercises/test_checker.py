"""The checker names listed mistakes, accepts correct answers, and does not guess about unlisted mistakes."""

import html
import itertools
import json
import re
from functools import partial
from typing import Any

import new
import numpy as np
import pytest
from codings import CODE, ROOT, check, code_task, solution_of
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
from npformer.exercises.task import RIGHT, Choice, Edit, Truth
from npformer.exercises.verdict import STATUSES
from npformer.gradcheck import gradcheck

LESSONS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
PE = "pe.table"


# --- every listed mistake --------------------------------------------------------------------------

INDISTINGUISHABLE = [  # sets of mistakes that give the same outputs
    {"PE-EXP-DOUBLED", "PE-BASE-1E8"},
    {"PE-EXP-NO-2", "PE-BASE-100"},
    {"AT-MASK-SIGN", "AT-MASK-INVERTED"},
]


def change_outputs(function, change):
    """Make a function that applies a change to every output of another function."""

    def changed_function(*args):
        outputs = function(*args)
        if isinstance(outputs, tuple):
            return tuple(map(change, outputs))
        return change(outputs)

    return changed_function


def find_indistinguishable(code):
    """Return the codes of the mistakes that give the same outputs as the mistake with this code."""
    for codes in INDISTINGUISHABLE:
        if code in codes:
            return codes
    return {code}


@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_check_names_listed_mistakes_in_float32(task):
    for mistake, function in task.wrong_functions():
        codes = check(task.id, change_outputs(function, np.float32)).codes
        assert mistake.code in codes and set(codes) <= find_indistinguishable(mistake.code)


@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_check_names_no_mistake_with_additional_noise(task):
    rng = np.random.default_rng(0)
    for _, function in task.wrong_functions():
        noisy = change_outputs(function, lambda part: part + 0.02 * rng.normal(size=np.shape(part)))
        assert check(task.id, noisy).status == "unrecognised"


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1e-3, 1.0, 50.0]),
    task=st.sampled_from(CODE),
)
def test_check_recognises_nothing_in_random_numbers(seed, size, task):
    rng = np.random.default_rng(seed)
    noise = change_outputs(task.right, lambda part: size * rng.normal(size=np.shape(part)))
    assert check(task.id, noise).status == "unrecognised"


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), task=st.sampled_from(CODE))
def test_check_names_no_mistake_within_the_tolerance(seed, task):
    rng = np.random.default_rng(seed)
    share = 0.9 * RELATIVE
    near = change_outputs(task.right, lambda part: part * rng.uniform(1 - share, 1 + share, np.shape(part)))
    if "fitting" not in task.id:
        assert check(task.id, near).status in ("pass", "unrecognised")


def test_example_exercise_of_contributing_works(monkeypatch):
    text = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code, words = (re.search(rf"```{kind}\n(.*?)```", text, re.S)[1] for kind in ("python", "markdown"))
    monkeypatch.setattr(questions, "load_questions", lambda: questions.questions_of(f"\n{words}"))
    monkeypatch.setattr(questions, "load_mistakes", lambda: questions.mistakes_of(f"\n{words}"))
    names: dict[str, Any] = {
        "np": np,
        "Draws": Draws,
        "Edit": Edit,
        "function_exercise": questions.function_exercise,
    }
    exec(code, names)
    kl = names["backward"]

    def forward(p, q):
        return (p * np.log(p / q)).sum(axis=-1).mean(), (p, q)

    for p, q in kl.probe.calls:
        assert gradcheck(partial(forward, p), lambda dloss, given: dloss * kl.right(*given), q)
    assert checker.assess_function(kl, kl.right).passes and len(kl.mistakes) == 3
    for mistake, function in kl.wrong_functions():
        assert checker.assess_function(kl, function).codes == (mistake.code,)


def test_block_backward_is_the_gradient_of_block_forward():
    """For other backward exercises, test_answers.py compares the solutions with npformer's functions."""
    forward = solution_of("block.forward")
    backward = solution_of("block.backward")
    for dy, *backward_arguments in code_task("block.backward").probe.calls:
        x, *parameters = block.call(dy.shape[1], dy.shape[0])
        assert gradcheck(
            lambda x, parameters=parameters: (forward(x, *parameters), ()),
            lambda dy, _, arguments=backward_arguments: backward(dy, *arguments),
            x,
        )


# --- one argument at a time -----------------------------------------------------------------------


def fix(value):
    """Return a value of the same type and shape that does not depend on the given value."""
    if not isinstance(value, np.ndarray):
        return {float: 0.37, int: 1}.get(type(value), value)
    if value.dtype.kind == "f":
        return normal(*value.shape, seed=7)
    return np.full_like(value, value.dtype == bool)


def replace_argument(function, k, change):
    """Make a function that changes its argument with index k, and then calls another function."""
    return lambda *given: function(*given[:k], change(given[k]), *given[k + 1 :])


def reorder_arguments(function, order):
    """Make a function that calls another function with its arguments in a different order."""
    return lambda *given: function(*(given[k] for k in order))


def misuse_one_argument(task):
    """Yield (expected kind of finding, name in the finding, function) for wrong uses of the arguments.

    A function ignores an argument, transposes it, exchanges two of them, or returns an intermediate result.
    """
    names = task.probe.names
    unused = "unused_there" if len(task.probe.outputs) > 1 else "unused"
    for k, name in enumerate(names):
        yield unused, name, replace_argument(task.right, k, fix)
        if name[0] == "W":
            yield "weights_transposed", name, replace_argument(task.right, k, np.transpose)
    for i, j in itertools.combinations(range(len(names)), 2):
        if all(np.shape(given[i]) == np.shape(given[j]) for given in task.probe.calls):
            order = list(range(len(names)))
            order[i] = j
            order[j] = i
            yield "exchanged_arguments", names[i], reorder_arguments(task.right, order)
    for landmark, function in task.probe.landmarks.items():
        yield "is_landmark", landmark, function


EARLIER_FINDINGS = {  # other true findings, which the checker may report instead of the expected finding
    "calls_in_order", "call_gets_other_array", "wrong_shape", "weight_depends_on_more", "weights_asymmetric",
    "likelier_token_dropped", "one_hot", "outputs_returned", "too_many_and_too_few_tokens", "unused_there",
    "unfilled", "factor_per_call",
}  # fmt: skip


@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_check_finds_wrong_uses_of_one_argument(task):
    for kind, name, function in misuse_one_argument(task):
        result = check(task.id, function)
        expected = [finding for finding in result.findings if finding.kind == kind]
        is_named = any(name in str(finding.parameters) for finding in expected)
        has_earlier_finding = EARLIER_FINDINGS & {finding.kind for finding in result.findings}
        assert result or result.codes or is_named or has_earlier_finding, (kind, name, result)


# --- two mistakes at once -------------------------------------------------------------------------


def combine_outputs(task, first, second, from_first):
    """Make a function that takes some outputs from one function and the others from another function."""

    def combined(*args):
        parts = zip(task.probe.outputs, first(*args), second(*args), strict=True)
        return [a if name in from_first else b for name, a, b in parts]

    return combined


@pytest.mark.parametrize("task", [e for e in CODE if len(e.probe.outputs) > 1], ids=lambda task: task.id)
def test_check_names_mistakes_in_different_outputs(task):
    """Combine each listed mistake with the next mistake, if the two change different outputs."""
    for one, two in itertools.pairwise(known_mistakes(task)):
        have_run = all(outcome.arrays for known in (one, two) for outcome in known.outcomes)
        if one.wrong_outputs & two.wrong_outputs or not have_run:
            continue
        combined = combine_outputs(task, one.function, two.function, one.wrong_outputs)
        assert set(check(task.id, combined).codes) == {one.mistake.code, two.mistake.code}


# --- functions that return nothing ----------------------------------------------------------------


def stub(n, d_model): ...


def raise_not_implemented(n, d_model):
    raise NotImplementedError


def forget_return(n, d_model):
    np.zeros((n, d_model))


@pytest.mark.parametrize("answer", [None, ..., stub, raise_not_implemented])
def test_check_reports_a_missing_answer(answer):
    result = check(PE, answer)
    assert (result.status, result.evidence, result.question) == (
        "error",
        "This exercise has not been answered yet.",
        None,
    )
    assert not result.is_answered


def test_check_reports_a_forgotten_return():
    result = check(PE, forget_return)
    assert "returns nothing" in result.evidence and result.is_answered


# --- letters, truth values, numbers ---------------------------------------------------------------


OPTIONS = [  # (exercise id, letter, option)
    (task.id, letter, option)
    for task in bank().values()
    if isinstance(task, Choice)
    for letter, option in zip("abcdef", task.options.values(), strict=False)
]
CLAIMS = [  # (exercise id, True or False, option)
    (task.id, claim, RIGHT if claim == task.right else task.wrong)
    for task in bank().values()
    if isinstance(task, Truth)
    for claim in (True, False)
]


@pytest.mark.parametrize(("exercise", "answer", "option"), [*OPTIONS, *CLAIMS])
def test_check_names_the_confusion_of_each_option(exercise, answer, option):
    result = check(exercise, answer)
    if option is RIGHT:
        assert result.status == "pass" and result.question is None
    else:
        assert result.codes == (option.code,)
        rejected = r"This (option is not correct; \d options are left|answer is not correct)\."
        assert re.fullmatch(f"{rejected} {re.escape(option.says)}", result.evidence)
        assert result.question == bank()[exercise].question


@pytest.mark.parametrize("form", [int, str, np.bool_])
@pytest.mark.parametrize("task", [e for e in bank().values() if e.kind == "truth"], ids=lambda task: task.id)
def test_check_accepts_truth_values_in_other_forms(task, form):
    assert check(task.id, form(task.right))


def test_show_draws_different_numbers_for_names():
    tasks = {show(f"pe.entry@{name}") for name in "Ada Ben Cem Dot Eli Fay Gil Hal".split()}
    assert len(tasks) > 4
    assert show("pe.entry@ada") == show("pe.entry@Ada")


# --- levels, cards, progress ----------------------------------------------------------------------


LEVELS = [  # an exercise, a wrong answer, the place at level 1, the observation and the cause at level 2
    (
        "ffn.sharing",
        "a",
        "This option is not correct; 2 options are left.",
        "a longer text would need more weights.",
        "",
    ),
    ("ffn.bend", False, "This answer is not correct.", "do the same as one linear layer", ""),
    ("pe.shift", 0.01, "not the correct number.", "the angle by which the hand turns in one step.", ""),
    (
        "addition.vector",
        [2, 0, 3, 7],
        "3 of them are correct",
        r"Number 4 is too large \(counted from 1\)\.",
        "No known",
    ),
    (
        "addition.vector",
        [7, 9, 8, 9],
        "none of them is correct at its position.",
        "All your numbers are too large.",
        "",
    ),
    ("softmax.forward", np.exp, r"12 of 12 .* first at index \(0, 0\)", "e to the power of the scores", ""),
    (
        "embedding.forward",
        lambda ids, E: E[ids],
        "In the output `x`, ",
        "too small by a constant factor",
        "Perhaps the paper's factor",
    ),
]


@pytest.mark.parametrize(("exercise", "answer", "where", "what", "why"), LEVELS)
def test_check_says_more_at_each_level(exercise, answer, where, what, why):
    one, two, three = (check(exercise, answer, level=level) for level in (1, 2, 3))
    assert re.search(where, one.evidence) and one.question is None and one.hint == ""
    assert re.search(what, two.evidence) and not re.search(what, one.evidence)
    assert two.evidence == three.evidence and two.question == three.question and two.question.endswith("?")
    assert re.match(rf"{why}(?!.*Read )", two.hint)
    assert re.fullmatch(rf"{re.escape(two.hint)} ?Read lesson \d\d.*\.", three.hint)


def test_check_level_1_describes_a_fragile_answer():
    overflowing = check(
        "softmax.forward", lambda s: np.exp(s) / np.exp(s).sum(axis=-1, keepdims=True), level=1
    )
    assert overflowing.codes == ("SM-OVERFLOW",) and "such as 1000 and -1000" in overflowing.evidence
    assert overflowing.hint == "" and overflowing.question is None


def test_check_asks_at_level_2():
    rounded = check("pe.entry", -0.7, level=2)
    stopped = check(PE, lambda n, d: 1 / 0, level=2)
    assert rounded.question and stopped.question == "Which divisor is 0 in this line?"
    assert check(PE, lambda n, d: 1 / 0, level=1).question is None


@pytest.mark.parametrize("function", [show, hint, partial(check, answer=1)], ids=["show", "hint", "check"])
def test_unknown_exercises_are_rejected(function):
    with pytest.raises(ValueError, match=r"there is no exercise 'pe\.tabel'"):
        function("pe.tabel")
    with pytest.raises(TypeError, match="exercise_id"):
        function(7)


@pytest.mark.parametrize("level", [0, 4, True, "2"])
def test_check_rejects_other_levels(level):
    with pytest.raises((TypeError, ValueError), match="level"):
        check("ffn.sharing", "a", level=level)


RESULT = Result("known_mistake", ("PE-SUM",), (), ("table",), (), "a < b", "cause", "why?")


def test_result_prints_as_a_card(monkeypatch):
    monkeypatch.setattr(result, "_passed", {"order.bag", "pe.table"})
    title = "Not yet: the checker recognises this mistake"
    expected = f"{title}  (passed so far: 2)\n  a < b\n  cause\n  why?"
    assert str(RESULT) == repr(RESULT) == expected


def test_unanswered_result_has_no_title(monkeypatch):
    monkeypatch.setattr(result, "_passed", set())
    assert str(check(PE, None)) == "This exercise has not been answered yet.  (passed so far: 0)"


@pytest.mark.parametrize("status", STATUSES)
def test_result_in_html_has_title_and_progress(status, monkeypatch):
    monkeypatch.setattr(result, "_passed", {"order.bag"})
    page = RESULT._replace(status=status)._repr_html_()
    assert feedback.title_of(status) in page
    assert html.escape("a < b") in page and "passed so far: 1" in page


def test_raise_if_wrong_raises_the_feedback():
    check("order.bag", "b").raise_if_wrong()
    with pytest.raises(AssertionError) as caught:
        check("order.bag", "a").raise_if_wrong()
    assert str(caught.value) == str(check("order.bag", "a"))
    with pytest.raises(AssertionError):
        assert check("order.bag", "a")


def test_result_bool_has_no_side_effect():
    wrong = check("order.bag", "a")
    assert [bool(wrong), bool(wrong)] == [False, False] and not wrong


def test_progress_counts_each_exercise_once(monkeypatch):
    monkeypatch.setattr(result, "_passed", set())
    for answer in ("a", "b", "b", "a"):
        check("order.bag", answer)
    assert progress() == f"1 of {len(bank())}"


def test_list_exercises_prints_as_a_table():
    lines = str(list_exercises()).splitlines()
    assert len(lines) == len(bank()) == len(list_exercises()) and lines[0].startswith("order.bag")
    assert repr(show("pe.table")) == show("pe.table")


# --- the data of the exercises --------------------------------------------------------------------


@pytest.mark.parametrize("task", bank().values(), ids=lambda task: task.id)
def test_every_exercise_is_complete(task):
    assert task.task and task.hint and task.read and task.teach
    assert task.question.endswith("?") and 1 <= task.level <= 5
    assert hint(task.id) == f"{task.hint}\nRead {task.read}."
    assert show(task.id) == str(task)


@pytest.mark.parametrize("task", [e for e in bank().values() if e.kind == "choice"], ids=lambda task: task.id)
def test_every_choice_has_one_correct_option(task):
    options = list(task.options.values())
    assert len(options) >= 3 and options.count(RIGHT) == 1
    assert all(option.code and option.says for option in options if option is not RIGHT)


def test_every_section_to_teach_exists():
    texts = [path.read_text(encoding="utf-8") for path in LESSONS]
    cells = [cell for text in texts for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
    plain = "\n".join("".join(cell["source"]) for cell in cells).replace("$\\sqrt{d_k}$", "√d_k")
    of_exercises = {task.teach for task in bank().values()}
    of_mistakes = {mistake.place.teach for mistake in questions.load_mistakes().values()}
    for section in of_exercises | of_mistakes:
        lesson, number, title = re.fullmatch(r"(\d\d), section (\d+\.\d+), (.*)", section).groups()
        assert int(lesson) == int(number.split(".")[0])
        assert f"## {number} {title}" in plain.splitlines()


# --- the notebooks --------------------------------------------------------------------------------


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_every_lesson_ends_with_exercises(lesson):
    last = "".join(json.loads(lesson.read_text(encoding="utf-8"))["cells"][-1]["source"])
    named = [word for word in re.findall(r"`([\w.]+)`", last.split("exercises.ipynb")[0]) if word in bank()]
    assert 3 <= len(named) <= 6


def test_exercise_notebook_has_every_exercise_unanswered():
    cells = json.loads((ROOT / "notebooks" / "exercises.ipynb").read_text(encoding="utf-8"))["cells"]
    checks = [cell for cell in cells if cell["cell_type"] == "code" and "check(" in "".join(cell["source"])]
    text = "\n".join("".join(cell["source"]) for cell in checks)
    asked = [i.removesuffix("@{student}") for i in re.findall(r'check\(f?"([^"]+)"', text)]
    assert sorted(asked) == sorted(bank())
    outputs = [json.dumps(cell["outputs"]) for cell in checks]
    assert all("This exercise has not been answered yet." in output for output in outputs)


def test_lists_of_exercises_are_up_to_date():
    """The command `uv run python tests/new.py exercises` writes these lists."""
    assert new.NOTEBOOK.read_text(encoding="utf-8") == new.notebook_text()
    assert new.README.read_text(encoding="utf-8") == new.readme_text()
    assert list(new.lacking()) == []
