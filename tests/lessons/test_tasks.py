"""The tasks of lessons 6, 7 and 10: right labels, training and test apart, the same from the same seed."""

import re

import numpy as np

from npformer.lessons import tasks
from npformer.lessons.tasks import is_small_story, number_in_words, number_task, order_task, small_stories
from npformer.lessons.text import decode, tokenize


def generator(seed=0):
    return np.random.default_rng(seed)


LENGTHS = (3, 4, 9)
TRAIN, TEST = order_task(LENGTHS, generator())
LINES, TEST_LINES = number_task(3000, 500, generator())
STORIES = small_stories(300, generator())


def test_the_same_seed_gives_the_same_and_another_seed_something_else():
    for make, first in (
        (lambda rng: order_task(LENGTHS, rng)[0][9].ids, TRAIN[9].ids),
        (lambda rng: number_task(3000, 500, rng)[0].target_ids, LINES.target_ids),
        (lambda rng: np.array(small_stories(300, rng)), np.array(STORIES)),
    ):
        assert (make(generator()) == first).all() and (make(generator(1)) != first).any()


# --- which noun comes first -----------------------------------------------------------------------

KINDS = {"a": tasks.ANIMALS, "p": tasks.PEOPLE, "v": tasks.VERBS, "j": tasks.ADJECTIVES}
KIND = {word: letter for letter, kind in KINDS.items() for word in kind}
ORDER_WORDS = np.array(list(tasks.ORDER_VOCABULARY))


def test_a_label_says_whether_a_person_comes_first_and_training_and_test_are_apart():
    told = {3000: set(), 1000: set()}
    for n, (ids, labels) in [(len(twins.ids), twins) for part in (TRAIN, TEST) for twins in part.values()]:
        assert (np.sort(ids[:, 0]) == np.sort(ids[:, 1])).all() and (labels == [0, 1]).all()
        assert ((ids[:, 0] != ids[:, 1]).sum(axis=-1) == 2).all()
        for row, label in zip(ORDER_WORDS[ids].reshape(2 * n, -1).tolist(), labels.ravel(), strict=True):
            assert re.fullmatch("j*pvj*a" if label else "j*avj*p", "".join(KIND[word] for word in row))
            told[n].add(frozenset(word for word in row if KIND[word] != "j"))
    assert [TRAIN[n].ids.shape[2] for n in LENGTHS] == [TEST[n].ids.shape[2] for n in LENGTHS] == [*LENGTHS]
    assert all(len(bags) == n for n, bags in told.items()) and not told[3000] & told[1000]
    words = ORDER_WORDS[TRAIN[9].ids[:, 0]]
    assert set(np.isin(words, tasks.ANIMALS).argmax(axis=1)) == set(range(7))
    assert set(tasks.ADJECTIVES) <= set(words.ravel()) and sorted(tasks.ORDER_VOCABULARY) == sorted(KIND)


# --- numbers in words -----------------------------------------------------------------------------

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


def test_a_number_is_read_out_and_the_words_say_it():
    assert number_in_words(np.int32(999_042)) == "nine hundred ninety-nine thousand forty-two"
    assert [number_in_words(n) for n in (20, 100, 7000)] == ["twenty", "one hundred", "seven thousand"]
    numbers = [*range(2000), *range(999_000, 1_000_000), *generator().integers(1_000_000, size=2000).tolist()]
    assert [value(tokenize(number_in_words(n))) for n in numbers] == numbers


def numbers(lines):
    """The number of each line, which its words say and its digits; padding stands at the end of both."""
    words, digits = (decode(ids, tasks.NUMBER_VOCABULARY) for ids in lines)
    found = [value(line) for line in words]
    assert digits == [["<start>", *str(n), "<stop>"] for n in found]
    for ids in lines:
        padded = ids == tasks.NUMBER_VOCABULARY["<pad>"]
        assert (padded == np.sort(padded, axis=1)).all()
    return found


def test_lines_agree_with_themselves_none_comes_twice_and_short_and_long_are_drawn_alike():
    trained, tested = numbers(LINES), numbers(TEST_LINES)
    both = trained + tested
    assert len(trained) == 3000 and len(tested) == 500 and len({*both}) == 3500
    counts = np.bincount([len(str(n)) for n in trained], minlength=7)
    assert counts[1] + counts[2] > 70  # of 100 that there are
    np.testing.assert_allclose(counts[4:] / 3000, 0.24, atol=0.04)
    assert np.corrcoef(np.arange(3500), both)[0, 1] < 0.1  # not sorted: the test is no harder
    small, _ = number_task(1, 1, generator())  # as wide as 777,777 needs
    assert (small.source_ids.shape, small.target_ids.shape) == ((1, 9), (1, 8))
    first, second, third, *words = tasks.NUMBER_VOCABULARY
    assert (first, second, third, len(words)) == ("<pad>", "<start>", "<stop>", 40)


# --- stories ---------------------------------------------------------------------------------------


def test_the_grammar_tells_many_stories_of_every_plot_and_knows_them_again():
    assert len(set(STORIES)) == 300 and all(map(is_small_story, STORIES))
    for words in ("was not there", "wanted to keep it", "it was cold"):
        assert 60 < sum(words in story for story in STORIES) < 140
    assert all(any(word in story for story in STORIES) for kind in tasks.WORDS.values() for word in kind)


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
