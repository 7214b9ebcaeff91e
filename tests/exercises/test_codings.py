"""Test that the checker gives the expected replies to the answers in codings/ and plain_answers.txt."""

import functools
import re

import make_confusion as confusion
import numpy as np
import pytest
from codings import CODE, FOLDER, NUMBERS, check, code_task, get_reply, list_codings, plain_answers

from npformer.exercises.bank.questions import load_mistakes, load_questions, read_text
from npformer.exercises.probe import run

TOPICS = sorted(path.stem for path in FOLDER.glob("*.txt"))
STATUSES = {
    "right": {"pass"},
    "remarked": {"pass"},
    "variant": {"pass_variant"},
}  # the statuses of correct answers, by label
FAILED = {"known_mistake", "ambiguous", "unrecognised", "error"}


@pytest.mark.parametrize("topic", TOPICS)
def test_check_gives_each_coding_its_reply(topic):
    of_topic = [coding for coding in list_codings() if coding.place.startswith(f"{topic} ")]
    problems = [f"{coding.place}: {problem}" for coding in of_topic for problem in find_problems(coding)]
    assert of_topic and problems == []


def find_problems(coding):
    """Yield a description of each way in which the reply to a sample answer (a coding) is wrong."""
    result = get_reply(coding)
    text = " ".join([*result.codes, result.evidence, result.hint])
    if result.status not in STATUSES.get(coding.label, FAILED):
        yield result.status
    if result.codes != coding.codes:
        yield f"the codes are {result.codes}"
    has_words = bool(re.search(coding.words, text, re.I | re.S))
    should_have_words = coding.label != "unseen"
    if has_words != should_have_words:
        yield f"the words: {text}"
    if coding.label == "right" and [finding.kind for finding in result.findings] != ["all_agree"]:
        yield text
    if re.search(r"--|\{|\}|(?<!<)lambda|_probe|Unread", f"{text} {result.question}"):
        yield f"two minus signs, or internal names of the checker: {text}"
    if not result:
        yield from find_problems_of_rejection(coding, result)


def find_problems_of_rejection(coding, result):
    """Yield each part that the reply to a wrong answer lacks, and each expected number that it reveals."""
    if not result.question.endswith("?"):
        yield "no question"
    mistakes = [load_mistakes()[code] for code in coding.codes]
    read = mistakes[0].place.read if mistakes else ""
    if not result.hint.endswith(f"{read}.") or "Read lesson " not in result.hint:
        yield f"it should end with the lesson to read, and then: {read}."
    for mistake in mistakes:
        cause_in_a_list = mistake.cause.removesuffix(".")[1:]  # items of a list begin with a small letter
        if cause_in_a_list not in result.hint:
            yield f"the cause of {mistake.code} is missing"
    for text in re.findall(r"-?\d+\.\d{2,}", result.evidence):
        number = float(text)
        is_integer = number % 1 == 0
        if not is_integer and np.isclose(answers_of(coding.exercise), number, rtol=1e-9, atol=0).any():
            yield f"it gives away the expected number {number}"


@functools.cache
def answers_of(exercise):
    """Return the expected numbers of an exercise, from all calls and outputs."""
    task = code_task(exercise)
    right = [run(task.right, given, task.probe) for given in task.probe.calls]
    return np.concatenate([np.ravel(part) for outcome in right for part in outcome.arrays])


def test_every_mistake_has_a_coding():
    assert {code for coding in list_codings() for code in coding.codes} == set(load_mistakes()) - {
        "NPFORMERS-OWN"
    }


@pytest.mark.parametrize(("name", "read"), [("mistakes.md", load_mistakes), ("questions.md", load_questions)])
def test_every_paragraph_of_the_bank_is_read(name, read):
    assert read_text(name).count("\n## ") == len(read())


def test_special_observations_belong_to_existing_exercises():
    known = {(mistake.code, task.id) for task in CODE for mistake in (*task.mistakes, *task.hard)}
    known |= {(mistake.code, task.id) for task in NUMBERS for mistake in task.posed("").wrong}
    assert {
        (code, exercise) for code, mistake in load_mistakes().items() for exercise in mistake.sees_in
    } <= known


def test_confusion_table_is_up_to_date():
    assert confusion.table() == confusion.FILE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("line", "exercise", "label", "pattern", "answer"),
    list(plain_answers()),
    ids=lambda value: ascii(value)[:60],
)
def test_check_gives_each_plain_answer_its_reply(line, exercise, label, pattern, answer):
    result = check(exercise, answer)
    assert bool(result) == (label == "right") and re.search(pattern, result.evidence)
    if label == "unread":
        assert "cannot be read" in result.evidence
    assert result or result.status == "error" or result.question.endswith("?")
