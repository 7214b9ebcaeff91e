"""The tasks of lessons 6, 7 and 10: right labels, training and test apart, the same from the same seed."""

import re

import numpy as np
import pytest
from together import together

from npformer.teaching import tasks
from npformer.teaching.tasks import (
    NUMBER_VOCABULARY,
    ORDER_VOCABULARY,
    is_small_story,
    number_in_words,
    number_task,
    order_task,
    small_stories,
)
from npformer.teaching.text import decode, tokenize


def generator(seed=0):
    return np.random.default_rng(seed)


# --- which noun comes first -----------------------------------------------------------------------

LENGTHS = (3, 4, 9)
TRAIN, TEST = order_task(LENGTHS, generator())
KINDS = {"a": tasks.ANIMALS, "p": tasks.PEOPLE, "v": tasks.VERBS, "j": tasks.ADJECTIVES}
KIND = {word: letter for letter, kind in KINDS.items() for word in kind}
ORDER_WORDS = np.array(list(ORDER_VOCABULARY))


def test_a_label_says_whether_a_person_comes_first_and_training_and_test_are_apart():
    told = {"train": set(), "test": set()}
    for (part, twins), length in (
        (pair, n) for pair in zip(told, (TRAIN, TEST), strict=True) for n in LENGTHS
    ):
        ids, labels = twins[length]
        assert ids.shape == (len(labels), 2, length) and (labels.sum(axis=1) == 1).all()
        np.testing.assert_array_equal(np.sort(ids[:, 0]), np.sort(ids[:, 1]))
        assert ((ids[:, 0] != ids[:, 1]).sum(axis=-1) == 2).all()
        for row, label in zip(ORDER_WORDS[ids].reshape(-1, length).tolist(), labels.ravel(), strict=True):
            assert re.fullmatch("j*pvj*a" if label else "j*avj*p", "".join(KIND[word] for word in row))
            told[part].add(frozenset(word for word in row if KIND[word] != "j"))
    assert len(told["train"]) == 3000 and len(told["test"]) == 1000 and not told["train"] & told["test"]


def test_the_adjectives_stand_in_both_places_and_vary_and_all_words_differ():
    words = ORDER_WORDS[TRAIN[9].ids[:, 0]]
    assert set(np.isin(words, tasks.ANIMALS).argmax(axis=1)) == set(range(7))
    assert set(tasks.ADJECTIVES) <= set(words.ravel())
    assert sorted(ORDER_VOCABULARY) == list(ORDER_VOCABULARY) and len(ORDER_VOCABULARY) == len(KIND) == 62


def test_the_same_seed_gives_the_same_and_another_seed_something_else():
    for make, first in (
        (lambda rng: order_task(LENGTHS, rng)[0][9].ids, TRAIN[9].ids),
        (lambda rng: number_task(3000, 500, rng)[0].target_ids, LINES.target_ids),
        (lambda rng: np.array(small_stories(300, rng)), np.array(STORIES)),
    ):
        assert (make(generator()) == first).all() and (make(generator(1)) != first).any()


# --- numbers in words -----------------------------------------------------------------------------

LINES, TEST_LINES = number_task(3000, 500, generator())
VALUES = {word: n for n, word in enumerate(tasks.ONES)}
VALUES |= {word: 10 * n for n, word in enumerate(tasks.TENS) if word}


def value(words):
    """What the words say, read from left to right: another way than the one that wrote them."""
    total = below = 0
    for word in words:
        if word == "thousand":
            total, below = 1000 * below, 0
        elif word == "hundred":
            below *= 100
        else:
            below += VALUES[word]
    return total + below


READ_OUT = {
    0: "zero", 19: "nineteen", 20: "twenty", 42: "forty-two", 100: "one hundred", 101: "one hundred one",
    12_013: "twelve thousand thirteen", 300_005: "three hundred thousand five",
    999_999: "nine hundred ninety-nine thousand nine hundred ninety-nine",
}  # fmt: skip


def test_a_number_is_read_out_and_the_words_say_it():
    assert {n: number_in_words(np.int32(n)) for n in READ_OUT} == READ_OUT
    numbers = [*range(2000), *range(999_000, 1_000_000), *generator().integers(1_000_000, size=2000).tolist()]
    assert [value(tokenize(number_in_words(n))) for n in numbers] == numbers


def numbers(lines):
    """The number of each line, from its digits, which must say the same as its words."""
    words, digits = (decode(ids, NUMBER_VOCABULARY) for ids in lines)
    assert all(line[0] == "<start>" and line[-1] == "<stop>" for line in digits)
    found = [int("".join(line[1:-1])) for line in digits]
    assert found == [value(line) for line in words]
    assert ["".join(line[1:-1]) for line in digits] == [str(n) for n in found]
    return found


def test_lines_agree_with_themselves_none_comes_twice_and_short_and_long_are_drawn_alike():
    trained, tested = numbers(LINES), numbers(TEST_LINES)
    both = trained + tested
    assert len(trained) == 3000 and len(tested) == 500 and len({*both}) == 3500
    counts = np.bincount([len(str(n)) for n in trained], minlength=7)
    assert counts[1] + counts[2] > 70  # of 100 that there are
    np.testing.assert_allclose(counts[4:] / 3000, 0.24, atol=0.04)
    assert np.corrcoef(np.arange(3500), both)[0, 1] < 0.1  # not sorted: the test is no harder


def test_padding_stands_at_the_end_and_the_table_is_as_wide_as_the_longest_number():
    small, _ = number_task(1, 1, generator())
    assert small.source_ids.shape == (1, len(tokenize(number_in_words(777_777))))
    assert small.target_ids.shape == (1, 8)
    for ids in LINES:
        padded = ids == NUMBER_VOCABULARY["<pad>"]
        assert (padded == np.sort(padded, axis=1)).all() and not padded.all(axis=1).any()
    assert list(NUMBER_VOCABULARY)[:3] == ["<pad>", "<start>", "<stop>"]
    assert len(NUMBER_VOCABULARY) == 3 + 10 + 20 + 8 + 2


# --- stories ---------------------------------------------------------------------------------------

STORIES = small_stories(300, generator())


def test_the_grammar_tells_many_stories_of_every_plot_and_knows_them_again():
    assert len(set(STORIES)) == 300 and all(map(is_small_story, STORIES))
    for words in ("was not there", "wanted to keep it", "it was cold"):
        assert 60 < sum(words in story for story in STORIES) < 140
    for words in (tasks.SHE + tasks.HE, tasks.CREATURES, tasks.MOODS, tasks.HOMES, tasks.THINGS, tasks.FOODS):
        assert all(any(word in story for story in STORIES) for word in words)


LOST = (
    "Anna was a shy cat who lived on a farm. One day she lost her cup. Anna looked in the hay and on the "
    'roof, but the cup was not there. Then Tom the owl came by. "Why are you sad, Anna?" asked Tom. "I have '
    'lost my cup," said Anna. They looked in the grass, and there was the cup!'
)
COLD = (
    "Leo was a kind fox who lived by the sea. One day it was cold. Leo had a bell, but he had nothing to "
    "eat. His friend Ida the dog had soup, but no bell. So they sat in the hay, ate the soup, played with "
    "the bell and were happy."
)
SLIPS = """there was the cup -> there was the cap; Then Tom -> Then Leo; day she -> day he;
lost her -> lost his; and on the roof -> and in the hay; the owl -> the cat; cup! -> cup!!;
His friend -> Her friend; ate the soup -> ate the bread; Ida -> Leo; kind fox -> kind hawk"""


def test_a_story_with_a_slip_is_not_the_grammars():
    assert is_small_story(LOST) and is_small_story(COLD)
    for right, wrong in (slip.strip().split(" -> ") for slip in SLIPS.split(";")):
        story = LOST if right in LOST else COLD
        assert right in story and not is_small_story(story.replace(right, wrong)), right


REFUSED = [
    (lambda: order_task(5, generator()), "order_task: lengths is an int (5); expected a list of integers"),
    (lambda: order_task("35", generator()), "order_task: lengths is the string '35'"),
    (
        lambda: order_task([3, 2], generator()),
        "order_task: lengths[1] is 2; expected an integer of at least 3",
    ),
    (lambda: order_task([3.0], generator()), "order_task: lengths[0] is a float (3.0); expected an integer"),
    (lambda: order_task([3], 0), "order_task: rng is an int (0); expected a numpy.random.Generator"),
    (lambda: order_task([3], generator(), n_test=0), "order_task: n_test is 0; expected"),
    (lambda: order_task([3], generator(), n_test=4000), "order_task: n_test is 4000; expected"),
    (lambda: number_in_words(-1), "number_in_words: number is -1; expected"),
    (lambda: number_in_words(1_000_000), "number_in_words: number is 1000000; expected"),
    (lambda: number_in_words(1.0), "number_in_words: number is a float"),
    (lambda: number_task(0, 1, generator()), "number_task: n_train is 0; expected an integer of at least 1"),
    (lambda: number_task(1, 0, generator()), "number_task: n_test is 0; expected an integer of at least 1"),
    (lambda: number_task(1, 1, None), "number_task: rng is None; expected a numpy.random.Generator"),
    (
        lambda: number_task(99_999, 2, generator()),
        "number_task: n_train + n_test is 100001; expected at most",
    ),
    (lambda: small_stories(0, generator()), "small_stories: n is 0; expected an integer of"),
    (lambda: small_stories(True, generator()), "small_stories: n is a bool (True); expected"),
    (lambda: small_stories(1, 7), "small_stories: rng is an int (7); expected a numpy.random"),
    (lambda: is_small_story(None), "is_small_story: text is None; expected a string"),
]


@together(("call", "message"), REFUSED)
def test_what_makes_no_sense_is_refused(call, message):
    wrong_kind = re.search(r" is (an? \w+|None|the string)", message)
    with pytest.raises(TypeError if wrong_kind else ValueError) as refusal:
        call()
    assert str(refusal.value).startswith(message)
