"""The numbers of lesson 6, each against the thing itself: orders, tests of every size, a bias, rows."""

from itertools import count, permutations

import numpy as np
import pytest

from npformer import LearnedPositionsParams, alibi_bias, learned_positions_backward, learned_positions_forward
from npformer.exercises.task import Numbers
from npformer.exercises.topics import bank
from npformer.exercises.topics.questions import asked

NAMES = ("", *(f"name {i}" for i in range(12)))


def twins(k):
    return len(set(permutations(range(k))))


def coin(p):
    return next(n for n in count(1) if p / 100 > 0.5 + 1.96 * np.sqrt(0.25 / n))


def alibi(h, i, j):
    return alibi_bias(8, 31, 31)[h - 1, i, j]


def met(rows, d, low, high):
    any_gradient = np.zeros((rows, d), bool)
    for length in range(low, high + 1):
        x, params = np.zeros((length, d)), LearnedPositionsParams(np.zeros((rows, d)))
        _, cache = learned_positions_forward(x, params)
        any_gradient |= learned_positions_backward(np.ones((length, d)), cache)[1].P != 0
    return any_gradient.sum()


@pytest.mark.parametrize("found", [twins, coin, alibi, met])
def test_the_answer_is_what_the_thing_itself_gives(found):
    exercise = bank()[f"order.{found.__name__}"]
    for question in map(exercise.posed, NAMES):
        assert question.answer == pytest.approx(float(found(**question.given)), abs=1e-12)


def test_every_question_is_asked_and_every_confusion_that_is_written_is_met():
    for name, (_, said) in asked().items():
        exercise = bank()[name]
        found = exercise.posed().wrong if isinstance(exercise, Numbers) else said.values()
        assert set(said.values()) <= set(found), name
