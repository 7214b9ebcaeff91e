"""Tests of the tasks of lessons 6, 7 and 10: labels, separate training and test sets, fixed seeds."""

import re
from pathlib import Path

import numpy as np
import pytest

from npformer.lessons import tasks
from npformer.lessons.tasks import (
    is_small_story,
    number_in_words,
    number_task,
    order_task,
    read_short_texts,
    small_stories,
)
from npformer.lessons.text import decode, tokenize


def generator(seed=0):
    return np.random.default_rng(seed)


LENGTHS = (3, 4, 9)
TRAIN, TEST = order_task(LENGTHS, generator())
LINES, TEST_LINES = number_task(3000, 500, generator())
STORIES = small_stories(300, generator())


def draw_twins(rng):
    return order_task(LENGTHS, rng)[0][9].ids


def draw_numbers(rng):
    return number_task(3000, 500, rng)[0].target_ids


def draw_stories(rng):
    return np.array(small_stories(300, rng))


@pytest.mark.parametrize(
    ("draw", "first"),
    [(draw_twins, TRAIN[9].ids), (draw_numbers, LINES.target_ids), (draw_stories, np.array(STORIES))],
    ids=["order_task", "number_task", "small_stories"],
)
def test_tasks_depend_only_on_the_seed(draw, first):
    assert (draw(generator()) == first).all()
    assert (draw(generator(1)) != first).any()


# --- which noun comes first -----------------------------------------------------------------------

KINDS = {"a": tasks.ANIMALS, "p": tasks.PEOPLE, "v": tasks.VERBS, "j": tasks.ADJECTIVES}
KIND = {word: letter for letter, words in KINDS.items() for word in words}
ORDER_WORDS = np.array(list(tasks.ORDER_VOCABULARY))
ALL_TWINS = [*TRAIN.values(), *TEST.values()]
per_twins = pytest.mark.parametrize(
    "twins", ALL_TWINS, ids=[f"{part} {n}" for part in ("train", "test") for n in LENGTHS]
)


def sentences_of(twins):
    """Return (the words of each sentence, the label of each sentence)."""
    n = len(twins.ids)
    return ORDER_WORDS[twins.ids].reshape(2 * n, -1).tolist(), twins.labels.ravel().tolist()


def combinations_of(data):
    """Return the combinations of animal, person and verb that occur in the sentences of all lengths."""
    sentences = [sentence for twins in data.values() for sentence in sentences_of(twins)[0]]
    return {frozenset(word for word in sentence if KIND[word] != "j") for sentence in sentences}


@per_twins
def test_order_task_twins_differ_in_two_words(twins):
    ids, labels = twins
    assert (np.sort(ids[:, 0]) == np.sort(ids[:, 1])).all() and (labels == [0, 1]).all()
    assert ((ids[:, 0] != ids[:, 1]).sum(axis=-1) == 2).all()


@per_twins
def test_order_task_label_is_one_for_person_first(twins):
    for sentence, label in zip(*sentences_of(twins), strict=True):
        pattern = "j*pvj*a" if label else "j*avj*p"
        assert re.fullmatch(pattern, "".join(KIND[word] for word in sentence))


def test_order_task_training_and_test_share_no_combination():
    train, test = combinations_of(TRAIN), combinations_of(TEST)
    assert (len(train), len(test)) == (3000, 1000)
    assert not train & test


def test_order_task_uses_every_word_and_position():
    assert [TRAIN[n].ids.shape[2] for n in LENGTHS] == [TEST[n].ids.shape[2] for n in LENGTHS] == [*LENGTHS]
    words = ORDER_WORDS[TRAIN[9].ids[:, 0]]
    assert set(np.isin(words, tasks.ANIMALS).argmax(axis=1)) == set(range(7))
    assert set(tasks.ADJECTIVES) <= set(words.ravel()) and sorted(tasks.ORDER_VOCABULARY) == sorted(KIND)


# --- numbers in words -----------------------------------------------------------------------------

VALUES = {word: n for n, word in enumerate(tasks.ONES)}
VALUES |= {word: 10 * n for n, word in enumerate(tasks.TENS) if word}


def value(words):
    """Return the number that the words express.

    This function reads from left to right, unlike `number_in_words`, which is recursive.
    """
    total = below = 0
    for word in words:
        if word == "thousand":
            total, below = 1000 * below, 0
        elif word == "hundred":
            below *= 100
        else:
            below += VALUES[word]
    return total + below


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (np.int32(999_042), "nine hundred ninety-nine thousand forty-two"),
        (20, "twenty"),
        (100, "one hundred"),
        (7000, "seven thousand"),
    ],
)
def test_number_in_words_is_english(number, words):
    assert number_in_words(number) == words


def test_number_in_words_has_its_value():
    numbers = [*range(2000), *range(999_000, 1_000_000), *generator().integers(1_000_000, size=2000).tolist()]
    assert [value(tokenize(number_in_words(n))) for n in numbers] == numbers


def numbers_of(lines):
    """Return the number that the words of each line express."""
    return [value(words) for words in decode(lines.source_ids, tasks.NUMBER_VOCABULARY)]


NUMBERS, TEST_NUMBERS = numbers_of(LINES), numbers_of(TEST_LINES)


@pytest.mark.parametrize(
    ("lines", "numbers"), [(LINES, NUMBERS), (TEST_LINES, TEST_NUMBERS)], ids=["train", "test"]
)
def test_number_task_words_and_digits_are_the_same(lines, numbers):
    digits = decode(lines.target_ids, tasks.NUMBER_VOCABULARY)
    assert digits == [["<start>", *str(n), "<stop>"] for n in numbers]


@pytest.mark.parametrize("ids", [*LINES, *TEST_LINES])
def test_number_task_pads_only_at_the_end(ids):
    is_padding = ids == tasks.NUMBER_VOCABULARY["<pad>"]
    assert (is_padding == np.sort(is_padding, axis=1)).all()


def test_number_task_draws_no_number_twice():
    assert len(NUMBERS) == 3000 and len(TEST_NUMBERS) == 500
    assert len({*NUMBERS, *TEST_NUMBERS}) == 3500


def test_number_task_draws_all_lengths_equally_often():
    counts = np.bincount([len(str(n)) for n in NUMBERS], minlength=7)
    assert counts[1] + counts[2] > 70  # only 100 numbers have one or two digits
    np.testing.assert_allclose(counts[4:] / 3000, 0.24, atol=0.04)


def test_number_task_is_not_sorted():
    assert np.corrcoef(np.arange(3500), NUMBERS + TEST_NUMBERS)[0, 1] < 0.1


def test_number_task_is_always_padded_to_the_longest():
    lines, _ = number_task(1, 1, generator())  # the arrays have space for 777,777, which has nine words
    assert (lines.source_ids.shape, lines.target_ids.shape) == ((1, 9), (1, 8))


def test_number_vocabulary_begins_with_special_tokens():
    first, second, third, *words = tasks.NUMBER_VOCABULARY
    assert (first, second, third, len(words)) == ("<pad>", "<start>", "<stop>", 40)


# --- stories ---------------------------------------------------------------------------------------


def test_small_stories_are_different_and_recognized():
    assert len(set(STORIES)) == 300 and all(map(is_small_story, STORIES))


@pytest.mark.parametrize("words", ["was not there", "wanted to keep it", "it was cold"])
def test_small_stories_use_every_plot(words):
    assert 60 < sum(words in story for story in STORIES) < 140


def test_small_stories_use_every_word():
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
MISTAKES = """there was the cup -> there was the cap; Then Tom -> Then Leo; day she -> day he;
lost her -> lost his; and on the roof -> and in the hay; the owl -> the cat; cup! -> cup!!;
His friend -> Her friend; ate the soup -> ate the bread; Ida -> Leo; kind fox -> kind hawk"""


@pytest.mark.parametrize("story", [LOST, COLD], ids=["lost", "cold"])
def test_is_small_story_accepts_stories_of_the_grammar(story):
    assert is_small_story(story)


@pytest.mark.parametrize("mistake", [mistake.strip() for mistake in MISTAKES.split(";")])
def test_is_small_story_rejects_inconsistent_stories(mistake):
    right, wrong = mistake.split(" -> ")
    story = LOST if right in LOST else COLD
    assert right in story
    assert not is_small_story(story.replace(right, wrong))


# --- the texts of the tuned lens ---------------------------------------------------------------------

TESTED = ["The capital of France is| Paris", "The opposite of hot is| cold", "The capital of Japan is| Tokyo"]
FILE = Path(__file__).parents[1] / "data" / "lens_sentences.txt"
SENTENCES = FILE.read_text(encoding="utf-8").splitlines()
LEAST_LETTERS = 5  # shorter words, such as "the", occur in every text


def find_facts(texts, sentences):
    """Return the (sentence, text) pairs in which a text has the answer and a long word of the sentence."""
    found = []
    for sentence in sentences:
        start, _, answer = sentence.partition("|")
        long_words = {word for word in tokenize(start) if len(word) >= LEAST_LETTERS}
        found += [
            (sentence, text)
            for text in texts
            if {*tokenize(answer)} <= {*tokenize(text)} and long_words & {*tokenize(text)}
        ]
    return found


def test_short_texts_contain_no_tested_fact():
    assert len(SENTENCES) == len(set(SENTENCES)) == 50
    assert find_facts(read_short_texts(), [*TESTED, *SENTENCES]) == []
    assert find_facts(["In France we went to Paris."], TESTED) == [(TESTED[0], "In France we went to Paris.")]


def test_short_texts_are_different_sentences():
    texts = read_short_texts()
    assert len(set(texts)) == 64 and all(text.endswith(".") for text in texts)
