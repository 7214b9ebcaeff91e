"""The checker on answers that were not written for it: codings/, a block each, and plain_answers.txt."""

import functools
import re

import make_confusion as confusion
import numpy as np
import pytest
from codings import CODE, FOLDER, check, codings, plain_answers, reply

from npformer.exercises.bank import bank
from npformer.exercises.bank.questions import asked, text_of, words
from npformer.exercises.probe import run

TOPICS = sorted(path.stem for path in FOLDER.glob("*.txt"))


@pytest.mark.parametrize("topic", TOPICS)
def test_every_coding_gets_its_reply(topic):
    of_topic = [coding for coding in codings() if coding.place.startswith(f"{topic} ")]
    offences = [f"{coding.place}: {why}" for coding in of_topic for why in offending(coding)]
    assert of_topic and offences == []


def offending(coding):
    """What is wrong with the reply to a coding."""
    result = reply(coding)
    text = " ".join([*result.codes, result.evidence, result.hint])
    allowed = {"right": {"pass"}, "remarked": {"pass"}, "variant": {"pass_variant"}}
    if result.status not in allowed.get(
        coding.label, {"known_mistake", "ambiguous", "unrecognised", "error"}
    ):
        yield result.status
    if result.codes != coding.codes:
        yield f"called {result.codes}"
    if bool(re.search(coding.words, text, re.I | re.S)) == (coding.label == "unseen"):
        yield f"the words: {text}"
    if coding.label == "right" and [finding.kind for finding in result.findings] != ["all_agree"]:
        yield text
    if re.search(r"--|\{|\}|(?<!<)lambda|_probe|Unread", f"{text} {result.question}"):
        yield f"a sign twice, or words of the checker's own: {text}"
    if not result:
        yield from ["no question"] if not result.question.endswith("?") else []
        known = [words()[code] for code in coding.codes]
        if known and not result.hint.endswith(f"Read {known[0].place.read}."):
            yield f"read {known[0].place.read}"
        yield from ("no cause" for mistake in known if mistake.cause not in result.hint)
        told = {float(n) for n in re.findall(r"-?\d+\.\d{2,}", result.evidence) if float(n) % 1}
        found = (n for n in told if np.isclose(answers_of(coding.exercise), n, rtol=1e-9, atol=0).any())
        yield from (f"tells {n}" for n in found)


@functools.cache
def answers_of(exercise):
    """The expected numbers of an exercise."""
    task = bank()[exercise]
    right = [run(task.right, given, task.probe) for given in task.probe.calls]
    return np.concatenate([np.ravel(part) for outcome in right for part in outcome.arrays])


def test_every_mistake_is_coded():
    assert {code for coding in codings() for code in coding.codes} == set(words()) - {"NPFORMERS-OWN"}


def test_what_is_written_is_read_and_belongs_to_an_exercise():
    for name, found in (("mistakes.md", words()), ("questions.md", asked())):
        assert text_of(name).count("\n## ") == len(found)
    known = {(mistake.code, e.id) for e in CODE for mistake in (*e.mistakes, *e.hard)}
    assert {(code, place) for code, mistake in words().items() for place in mistake.sees_in} <= known


def test_the_committed_table_is_what_is_said():
    assert confusion.table() == confusion.FILE.read_text(encoding="utf-8")


def test_answers_in_numbers_and_letters():
    for line, exercise, label, words_of_it, answer in plain_answers():
        result = check(exercise, answer)
        assert bool(result) == (label == "right") and re.search(words_of_it, result.evidence), line
        assert ("cannot be read" in result.evidence) >= (label == "unread"), line
        assert result or result.status == "error" or result.question.endswith("?"), line
