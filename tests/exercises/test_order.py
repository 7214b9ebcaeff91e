"""The numbers of lesson 6, each against the thing itself: orders, tests of every size, a bias, rows."""

from functools import partial
from itertools import count, permutations

import numpy as np
import pytest

from npformer import LearnedPositionsParams, alibi_bias, learned_positions_backward, learned_positions_forward
from npformer.exercises import check
from npformer.exercises.task import Numbers
from npformer.exercises.topics import bank
from npformer.exercises.topics.questions import asked

check = partial(check, level=3)  # which says most

NAMES = ("", *(f"name {i}" for i in range(12)))


def orders(k):
    return len(set(permutations(range(k))))


def least_test(p):
    return next(n for n in count(1) if p / 100 > 0.5 + 1.96 * np.sqrt(0.25 / n))


def bias(h, i, j):
    return alibi_bias(8, 31, 31)[h - 1, i, j]


def numbers_met(rows, d, low, high):
    met = np.zeros((rows, d), bool)
    for length in range(low, high + 1):
        x, params = np.zeros((length, d)), LearnedPositionsParams(np.zeros((rows, d)))
        _, cache = learned_positions_forward(x, params)
        met |= learned_positions_backward(np.ones((length, d)), cache)[1].P != 0
    return met.sum()


@pytest.mark.parametrize(
    ("exercise", "found"),
    [("order.twins", orders), ("order.coin", least_test), ("order.alibi", bias), ("order.met", numbers_met)],
)
def test_the_answer_is_what_the_thing_itself_gives_and_each_slip_is_told(exercise, found):
    for name in NAMES:
        question = bank()[exercise].posed(name)
        assert question.answer == pytest.approx(float(found(**question.given)), abs=1e-12)
        assert check(f"{exercise}@{name}", question.answer)
        for shown, value in question.wrong.items():
            assert shown.code in check(f"{exercise}@{name}", value).codes


def test_every_question_is_asked_and_every_confusion_that_is_written_is_met():
    for name, (_, said) in asked().items():
        exercise = bank()[name]
        met = exercise.posed().wrong if isinstance(exercise, Numbers) else said.values()
        assert set(said.values()) <= set(met), name
