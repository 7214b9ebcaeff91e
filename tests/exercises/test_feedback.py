"""Test that every kind of finding has a template, and that no verdict depends on the templates."""

import string

import pytest
from codings import CODE, check, list_codings, plain_answers
from other_words import in_other_words, pseudo

from npformer.exercises import Result, feedback, templates
from npformer.exercises.bank.feed_forward import ACTIVATIONS
from npformer.exercises.call_detectors import CHANGES
from npformer.exercises.number_detectors import CONSTANTS, ScaleFactor
from npformer.exercises.verdict import KINDS, STATUSES, Finding, Verdict, make_finding

CATALOG = templates.catalog()
OUTPUT_NAMES = {"it", "It", "name_of_output"}


def placeholders(template):
    """Return the names of the placeholders in a template."""
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_finding_has_a_template(kind):
    template = CATALOG.findings[kind]
    assert (
        set(template) <= {"says", "says_many", "cause", "cause_many", "asks", "asks_many"}
        and "says" in template
    )
    for text in template.values():
        phrases = {name for name, (kinds, _) in templates.PHRASES.items() if kind in kinds}
        assert placeholders(text) <= {*KINDS[kind].parameters, *phrases, *OUTPUT_NAMES}, text


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "says_many" in CATALOG.findings[kind]])
def test_template_for_several_things_counts_things(kind):
    """A finding has a template for several things only if one of its parameters lists these things."""
    assert set(KINDS[kind].parameters) & set(templates.ENUMERATIONS)


@pytest.mark.parametrize(
    ("kind", "parameters", "expected"),
    [
        ("numbers_differ", {"places": (2,)}, "Number 2 is wrong (counted from 1)."),
        ("numbers_differ", {"places": (2, 4, 6)}, "Numbers 2, 4 and 6 are wrong (counted from 1)."),
        ("columns_agree", {"indices": (0, 2)}, "Columns 0 and 2 are correct (counted from 0)."),
    ],
)
def test_sentence_about_several_things_is_plural(kind, parameters, expected):
    assert templates.sentence(make_finding(kind, **parameters)) == expected


def test_every_template_belongs_to_a_kind():
    assert set(CATALOG.findings) <= set(KINDS)


def test_every_name_in_the_bank_has_words():
    words = CATALOG.words
    assert {name for task in CODE for name in task.probe.landmarks} == set(words["landmark"])
    assert {name for task in CODE for name in task.probe.views} == set(words["view"])
    assert set(words["view_output"]) == set(words["view"])
    assert {name for task in CODE for name in task.probe.invariances} == set(words["shift"])
    assert set(ACTIVATIONS) == set(words["activation"])
    assert set(CONSTANTS) == set(words["constant"])
    assert set(CHANGES) <= set(words["change"])


def test_every_axis_in_the_bank_has_a_word():
    axes = {axis for task in CODE for names in task.probe.axis_names.values() for axis in names}
    sizes_of_numbers = {"eps", "bits", "kept", "t", "all"}  # arguments that are numbers, so they have no axes
    assert axes - sizes_of_numbers <= set(CATALOG.words["axis"])


def test_every_status_has_a_title():
    assert all(f"title_{status}" in CATALOG.texts for status in STATUSES)


def test_finding_rejects_unknown_kinds():
    with pytest.raises(ValueError, match="no kind 'twice'"):
        make_finding("twice")


def test_finding_rejects_missing_parameters():
    with pytest.raises(ValueError, match=r"scaled has the parameters .*; received none"):
        make_finding("scaled")


FACTORS = {
    ScaleFactor(1, 1.0): "1",
    ScaleFactor(-1, 1.0, "two"): "-2 (the opposite sign)",
    ScaleFactor(1, 1.0, "", ("d_k",), (), -0.5): "1/√d_k",
    ScaleFactor(1, 1.0, "", ("d_k",), ("T_k",), 0.5): "√(d_k/T_k)",
    ScaleFactor(1, 1.0, "", ("B", "T"), (), -1.0): "1/(B · T)",
    ScaleFactor(1, 1.0, "", ("B",), ("T",), 1.0): "B/T",
    ScaleFactor(1, 3.25): "about 3.25 (the same in every check)",
    ScaleFactor(-1, 3.25, "", ("N",)): "about -3.25 · N",
}


@pytest.mark.parametrize("factor", FACTORS, ids=FACTORS.values())
def test_factor_text_names_sizes_and_roots(factor):
    assert templates.factor_text(factor) == FACTORS[factor]


# --- no decision depends on the templates ------------------------------------------------------------


ANSWERS = [
    *((coding.exercise, coding.function) for coding in list_codings()[::25]),
    *((exercise, answer) for _, exercise, _, _, answer in plain_answers()),
]


def data_of(result):
    """Return the fields of a result that do not depend on the templates."""
    findings = [(finding.kind, finding.output, finding.view) for finding in result.findings]
    return (
        bool(result),
        result.status,
        result.codes,
        result.agreed,
        result.outputs,
        findings,
        result.is_answered,
    )


def text_of(result):
    """Return the texts of a result."""
    return [result.evidence, result.hint, result.question or ""]


def test_no_verdict_depends_on_a_template(monkeypatch):
    before = [check(*answer) for answer in ANSWERS]
    other_catalog = in_other_words(lambda text: "x")
    monkeypatch.setattr(templates, "catalog", lambda: other_catalog)
    after = [check(*answer) for answer in ANSWERS]
    assert [data_of(result) for result in before] == [data_of(result) for result in after]
    assert {word for result in after for text in text_of(result) for word in text.lower().split()} <= {"x"}


def test_every_sentence_comes_from_a_template(monkeypatch):
    before = [check(*answer) for answer in ANSWERS]
    other_catalog = in_other_words(pseudo)
    monkeypatch.setattr(templates, "catalog", lambda: other_catalog)
    for old, answer in zip(before, ANSWERS, strict=True):
        new = check(*answer)
        assert data_of(new) == data_of(old)
        for old_text, new_text in zip(text_of(old), text_of(new), strict=True):
            assert bool(old_text) == bool(new_text)
            if old_text:
                assert new_text != old_text
                assert new_text.startswith("⟦") and new_text.endswith("⟧"), new_text


def test_text_of_says_more_at_each_level():
    findings = (make_finding("shape_agrees"), Finding("differs", "y"), Finding("squared", "y"))
    verdict = Verdict("softmax.forward", "unrecognised", findings, (), ("y",), ())
    one, two, three = (feedback.write_feedback(verdict, level) for level in (1, 2, 3))
    assert (
        "not correct" in one.evidence
        and "square" not in one.evidence
        and (one.hint, one.question) == ("", None)
    )
    assert "square" in two.evidence and two.hint.startswith("Perhaps ") and two.question.endswith("?")
    assert three.evidence == two.evidence and three.question == two.question
    assert three.hint.startswith(f"{two.hint} Read lesson 04, section 4.3, and then ")


def write_ambiguous(exercise, codes):
    """Write the feedback of level 2 on an answer that fits these mistakes."""
    return feedback.write_feedback(Verdict(exercise, "ambiguous", (), codes, (), ()), 2)


def test_list_of_mistakes_is_one_sentence_about_causes():
    text = write_ambiguous("ffn.token", ("FFN-NO-B1", "FFN-NO-B2"))
    assert text.evidence == ""
    assert text.hint.endswith(": (1) perhaps b_1 is not added; (2) perhaps b_2 is not added.")
    assert text.question == CATALOG.texts["ask_which_mistake"]


def test_list_of_mistakes_does_not_repeat_one_observation():
    codes = ("AT-MASK-SIGN", "AT-MASK-INVERTED")
    one, two = (CATALOG.mistakes[code] for code in codes)
    text = write_ambiguous("attention.forward", codes)
    first, second = (templates.decapitalise(mistake.cause.removesuffix(".")) for mistake in (one, two))
    assert text.evidence == one.sees and text.hint.endswith(f": (1) {first}; (2) {second}.")


def test_list_of_wrong_options_has_no_causes():
    codes = ("CF-KEYS-ALONE", "CF-HEADS-NOT-COUNTED")
    one, two = (CATALOG.options["modern.kept_bytes", code] for code in codes)
    text = write_ambiguous("modern.kept_bytes", codes)
    first, second = (templates.decapitalise(option.removesuffix(".")) for option in (one, two))
    assert text.evidence == "" and text.hint.endswith(f": (1) {first}; (2) {second}.")


def test_result_fields_are_data_then_text():
    assert Result._fields == (
        "status",
        "codes",
        "agreed",
        "outputs",
        "findings",
        "evidence",
        "hint",
        "question",
    )


def test_sentence_about_one_number_has_no_index():
    finding = Finding("nan_at", "loss", {"index": (), "others_agree": False})
    text = templates.sentence(finding, ("loss",))
    assert text == "The output `loss` is NaN where the task asks for a number."


@pytest.mark.parametrize(
    ("share", "text"), [(0.004, "less than 1 %"), (0.4, "40 %"), (40, "more than 1000 %")]
)
def test_share_of_an_error_as_text(share, text):
    _, write = templates.PHRASES["share"]
    assert write({"share": share}) == text


@pytest.mark.parametrize(
    ("number", "text"), [(2000.4, "2000"), (-12345.0, "-12300"), (2.5e7, "2.5e+07"), (-0.0, "0")]
)
def test_number_text_has_three_digits(number, text):
    assert templates.number_text(number) == text


@pytest.mark.parametrize(
    ("expected", "text"), [(0, "one number, which has no axes."), (1, "1 axis."), (2, "2 axes.")]
)
def test_expected_number_of_axes_as_text(expected, text):
    finding = Finding("wrong_number_of_axes", "y", {"found": (3, 1, 1), "expected": expected})
    assert templates.sentence(finding, ("y",)).endswith(f"(3, 1, 1), but the task asks for {text}")
