"""Feedback: templates for every kind of finding, and no decision that depends on them."""

import string

import pytest
from codings import CODE, check, codings, plain_answers
from other_words import in_other_words, pseudo

from npformer.exercises import Result, feedback, templates
from npformer.exercises.bank.feed_forward import ACTIVATIONS
from npformer.exercises.call_detectors import CHANGES
from npformer.exercises.number_detectors import CONSTANTS, ScaleFactor
from npformer.exercises.verdict import KINDS, STATUSES, Finding, Verdict, find

CATALOG = templates.catalog()
OF_THE_OUTPUT = {"it", "It", "name_of_output"}


def placeholders(template):
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_template(kind):
    template = CATALOG.findings[kind]
    assert set(template) <= {"says", "says_many", "asks", "asks_many"} and "says" in template
    for text in template.values():
        phrases = {name for name, (kinds, _) in templates.PHRASES.items() if kind in kinds}
        assert placeholders(text) <= {*KINDS[kind].parameters, *phrases, *OF_THE_OUTPUT}, text


def test_every_template_belongs_to_a_kind():
    assert set(CATALOG.findings) <= set(KINDS)


def test_every_name_of_the_bank_has_words():
    landmarks = {name for task in CODE for name in task.probe.landmarks}
    views = {name for task in CODE for name in task.probe.views}
    shifts = {name for task in CODE for name in task.probe.invariances}
    axes = {axis for task in CODE for each in task.probe.axis_names.values() for axis in each}
    sizes = {"eps", "bits", "kept", "t", "all"}  # of numbers, which have no lines
    words = CATALOG.words
    assert (
        landmarks == set(words["landmark"]) and views == set(words["view"]) and shifts == set(words["shift"])
    )
    assert axes - sizes <= set(words["axis"])
    assert set(ACTIVATIONS) == set(words["activation"]) and set(CONSTANTS) == set(words["constant"])
    assert set(CHANGES) <= set(words["change"])
    assert all(f"title_{status}" in CATALOG.texts for status in STATUSES)


def test_finding_rejects_unknown_kinds_and_parameters():
    with pytest.raises(ValueError, match="no kind 'twice'"):
        find("twice")
    with pytest.raises(ValueError, match=r"scaled has the parameters .*; received none"):
        find("scaled")


FACTORS = {
    ScaleFactor(1, 1.0): "1",
    ScaleFactor(-1, 1.0, "two"): "-2, the opposite sign everywhere",
    ScaleFactor(1, 1.0, "", ("d_k",), (), -0.5): "1/√d_k",
    ScaleFactor(1, 1.0, "", ("d_k",), ("T_k",), 0.5): "√(d_k/T_k)",
    ScaleFactor(1, 1.0, "", ("B", "T"), (), -1.0): "1/(B · T)",
    ScaleFactor(1, 1.0, "", ("B",), ("T",), 1.0): "B/T",
    ScaleFactor(1, 3.25): "about 3.25, whatever the sizes are",
    ScaleFactor(-1, 3.25, "", ("N",)): "about -3.25 times N",
}


@pytest.mark.parametrize("factor", FACTORS)
def test_factor_text_names_sizes_and_roots(factor):
    assert templates.factor_text(factor) == FACTORS[factor]


# --- nothing depends on the words --------------------------------------------------------------------


ANSWERS = [
    *((coding.exercise, coding.function) for coding in codings()[::25]),
    *((exercise, answer) for _, exercise, _, _, answer in plain_answers()),
]


def data_of(result):
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
    return [result.evidence, result.hint, result.question or ""]


def test_no_verdict_depends_on_a_template(monkeypatch):
    before = [check(*answer) for answer in ANSWERS]
    words = in_other_words(lambda text: "x")
    monkeypatch.setattr(templates, "catalog", lambda: words)
    after = [check(*answer) for answer in ANSWERS]
    assert [data_of(result) for result in before] == [data_of(result) for result in after]
    assert {word for result in after for text in text_of(result) for word in text.lower().split()} <= {"x"}


def test_every_sentence_comes_from_a_template(monkeypatch):
    before = [check(*answer) for answer in ANSWERS]
    words = in_other_words(pseudo)
    monkeypatch.setattr(templates, "catalog", lambda: words)
    for old, answer in zip(before, ANSWERS, strict=True):
        new = check(*answer)
        assert data_of(new) == data_of(old)
        for one, other in zip(text_of(old), text_of(new), strict=True):
            assert bool(one) == bool(other) and (one != other or not one)
            assert not other or (other.startswith("⟦") and other.endswith("⟧")), other


def test_the_levels_say_more_and_more():
    findings = (find("shape_agrees"), Finding("differs", "y"), Finding("squared", "y"))
    verdict = Verdict("softmax.forward", "unrecognised", findings, (), ("y",), ())
    one, two, three = (feedback.text_of(verdict, level) for level in (1, 2, 3))
    assert (
        "differs" in one.evidence and "square" not in one.evidence and (one.hint, one.question) == ("", None)
    )
    assert "square" in two.evidence and (two.hint, two.question) == ("", None)
    assert three.evidence == two.evidence and three.hint.startswith("Read ") and three.question


def test_result_is_data_first():
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


def test_sentence_of_one_number_names_no_place():
    finding = Finding("nan_at", "loss", {"index": (), "others_agree": False})
    assert templates.sentence(finding, ("loss",)) == "The output loss is NaN where a number is asked for."
