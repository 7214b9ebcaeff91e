"""The tasks of lessons 6, 7 and 10: right labels, training and test apart, the same from the same seed."""

import re

import numpy as np
import pytest

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

ORDER_WORDS = np.array(list(ORDER_VOCABULARY))


def generator(seed=0):
    return np.random.default_rng(seed)


# --- which noun comes first -----------------------------------------------------------------------

LENGTHS = (3, 4, 9)
TRAIN, TEST = order_task(LENGTHS, generator())


def bags(twins):
    """Who does what with whom in each pair of twins, from the words."""
    kinds = (tasks.ANIMALS, tasks.VERBS, tasks.PEOPLE)
    words = ORDER_WORDS[twins.ids[:, 0]]
    return {tuple(next(w for w in row if w in kind) for kind in kinds) for row in words}


@pytest.mark.parametrize("part", [TRAIN, TEST], ids=["train", "test"])
@pytest.mark.parametrize("length", LENGTHS)
def test_a_label_says_whether_a_person_comes_first(part, length):
    ids, labels = part[length]
    assert ids.shape == (len(labels), 2, length)
    for row, label in zip(ORDER_WORDS[ids].reshape(-1, length), labels.ravel(), strict=True):
        kinds = "".join(letter for word in row for letter, kind in KINDS.items() if word in kind)
        assert re.fullmatch("j*pvj*a" if label else "j*avj*p", kinds)


KINDS = {"a": tasks.ANIMALS, "p": tasks.PEOPLE, "v": tasks.VERBS, "j": tasks.ADJECTIVES}


@pytest.mark.parametrize("length", LENGTHS)
def test_twins_have_the_same_words_and_opposite_labels(length):
    ids, labels = TRAIN[length]
    np.testing.assert_array_equal(np.sort(ids[:, 0]), np.sort(ids[:, 1]))
    assert ((ids[:, 0] != ids[:, 1]).sum(axis=-1) == 2).all()
    assert (labels.sum(axis=1) == 1).all()


def test_no_bag_of_the_test_is_in_the_training_at_any_length():
    trained = set().union(*(bags(part) for part in TRAIN.values()))
    tested = set().union(*(bags(part) for part in TEST.values()))
    assert len(trained) == 3000 and len(tested) == 1000
    assert not trained & tested


def test_the_adjectives_stand_in_both_places_and_vary():
    words = ORDER_WORDS[TRAIN[9].ids[:, 0]]
    first = np.isin(words, tasks.ANIMALS).argmax(axis=1)
    assert set(first) == set(range(7))
    assert set(tasks.ADJECTIVES) <= set(words.ravel())


def test_the_words_are_all_different():
    assert sorted(ORDER_VOCABULARY) == list(ORDER_VOCABULARY)
    assert len(ORDER_VOCABULARY) == sum(map(len, KINDS.values())) == 62


def test_the_same_seed_gives_the_same_sentences_and_another_seed_others():
    again, _ = order_task(LENGTHS, generator())
    other, _ = order_task(LENGTHS, generator(1))
    np.testing.assert_array_equal(TRAIN[9].ids, again[9].ids)
    assert (TRAIN[9].ids != other[9].ids).any()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((5, generator()), TypeError, "order_task: lengths is an int (5); expected a list of integers"),
        (("35", generator()), TypeError, "order_task: lengths is the string '35'"),
        (([3, 2], generator()), ValueError, "order_task: lengths[1] is 2; expected an integer of at least 3"),
        (([3.0], generator()), TypeError, "order_task: lengths[0] is a float (3.0); expected an integer"),
        (([3], 0), TypeError, "order_task: rng is an int (0); expected a numpy.random.Generator"),
    ],
)
def test_a_bad_order_task_is_refused(arguments, error, message):
    with pytest.raises(error) as refusal:
        order_task(*arguments)
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize("n_test", [0, 4000])
def test_a_test_that_is_empty_or_everything_is_refused(n_test):
    with pytest.raises(ValueError, match=f"order_task: n_test is {n_test}; expected"):
        order_task([3], generator(), n_test=n_test)


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


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (7, "seven"),
        (10, "ten"),
        (19, "nineteen"),
        (20, "twenty"),
        (42, "forty-two"),
        (100, "one hundred"),
        (101, "one hundred one"),
        (999, "nine hundred ninety-nine"),
        (1000, "one thousand"),
        (12_013, "twelve thousand thirteen"),
        (300_000, "three hundred thousand"),
        (300_005, "three hundred thousand five"),
        (999_999, "nine hundred ninety-nine thousand nine hundred ninety-nine"),
    ],
)
def test_a_number_as_it_is_read_out(number, words):
    assert number_in_words(number) == words
    assert number_in_words(np.int32(number)) == words


def test_the_words_say_the_number():
    numbers = [*range(2000), *range(999_000, 1_000_000), *generator().integers(1_000_000, size=2000).tolist()]
    assert [value(tokenize(number_in_words(n))) for n in numbers] == numbers


@pytest.mark.parametrize("number", [-1, 1_000_000])
def test_a_number_without_words_is_refused(number):
    with pytest.raises(ValueError, match=f"number_in_words: number is {number}; expected"):
        number_in_words(number)
    with pytest.raises(TypeError, match="number_in_words: number is a float"):
        number_in_words(float(number))


LINES, TEST_LINES = number_task(3000, 500, generator())


def numbers(lines):
    """The number of each line, from its digits, which must say the same as its words."""
    words, digits = (decode(ids, NUMBER_VOCABULARY) for ids in lines)
    assert all(line[0] == "<start>" and line[-1] == "<stop>" for line in digits)
    found = [int("".join(line[1:-1])) for line in digits]
    assert found == [value(line) for line in words]
    assert ["".join(line[1:-1]) for line in digits] == [str(n) for n in found]
    return found


def test_words_and_digits_of_a_line_agree_and_no_number_comes_twice():
    trained, tested = numbers(LINES), numbers(TEST_LINES)
    assert len(trained) == 3000 and len(tested) == 500
    assert len({*trained, *tested}) == 3500


def test_padding_stands_at_the_end_and_the_table_is_as_wide_as_the_longest_number():
    small, _ = number_task(1, 1, generator())
    assert small.source_ids.shape == (1, 9) and small.target_ids.shape == (1, 8)
    longest = tokenize(number_in_words(777_777))
    assert len(longest) == 9
    for ids in LINES:
        padded = ids == NUMBER_VOCABULARY["<pad>"]
        assert (padded == np.sort(padded, axis=1)).all()
        assert not padded.all(axis=1).any()


def test_short_and_long_numbers_are_drawn_alike():
    digits = np.array([len(str(n)) for n in numbers(LINES)])
    counts = np.bincount(digits, minlength=7)
    assert counts[1] + counts[2] > 70  # of 100 that there are
    np.testing.assert_allclose(counts[4:] / 3000, 0.24, atol=0.04)
    both = numbers(LINES) + numbers(TEST_LINES)
    assert np.corrcoef(np.arange(3500), both)[0, 1] < 0.1  # not sorted: the test is no harder


def test_the_same_seed_gives_the_same_lines():
    again, _ = number_task(3000, 500, generator())
    other, _ = number_task(3000, 500, generator(1))
    np.testing.assert_array_equal(LINES.source_ids, again.source_ids)
    assert (LINES.target_ids != other.target_ids).any()


def test_the_vocabulary_begins_with_its_marks():
    assert list(NUMBER_VOCABULARY)[:3] == ["<pad>", "<start>", "<stop>"]
    assert len(NUMBER_VOCABULARY) == 3 + 10 + 20 + 8 + 2


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, 1, generator()), ValueError, "number_task: n_train is 0; expected an integer of at least 1"),
        ((1, 0, generator()), ValueError, "number_task: n_test is 0; expected an integer of at least 1"),
        ((1, 1.5, generator()), TypeError, "number_task: n_test is a float (1.5); expected an integer"),
        ((1, 1, None), TypeError, "number_task: rng is None; expected a numpy.random.Generator"),
        ((99_999, 2, generator()), ValueError, "number_task: n_train + n_test is 100001; expected at most"),
    ],
)
def test_a_bad_number_task_is_refused(arguments, error, message):
    with pytest.raises(error) as refusal:
        number_task(*arguments)
    assert str(refusal.value).startswith(message)


# --- stories ---------------------------------------------------------------------------------------

STORIES = small_stories(300, generator())


def test_the_grammar_tells_many_stories_of_every_plot_and_knows_them_again():
    assert len(set(STORIES)) == 300 and all(map(is_small_story, STORIES))
    for words in ("was not there", "wanted to keep it", "it was cold"):
        assert 60 < sum(words in story for story in STORIES) < 140
    assert small_stories(300, generator()) == STORIES != small_stories(300, generator(1))
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


@pytest.mark.parametrize(
    ("story", "slip"),
    [
        (LOST, ("there was the cup", "there was the cap")),
        (LOST, ("Then Tom", "Then Leo")),
        (LOST, ("day she", "day he")),
        (LOST, ("lost her", "lost his")),
        (LOST, ("and on the roof", "and in the hay")),
        (LOST, ("the owl", "the cat")),
        (LOST, ("cup!", "cup! ")),
        (COLD, ("His friend", "Her friend")),
        (COLD, ("ate the soup", "ate the bread")),
        (COLD, ("Ida", "Leo")),
        (COLD, ("kind fox", "kind hawk")),
    ],
)
def test_a_story_with_a_slip_is_not_the_grammars(story, slip):
    assert is_small_story(story)
    assert slip[0] in story and not is_small_story(story.replace(*slip))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: small_stories(0, generator()), ValueError, "small_stories: n is 0; expected an integer of"),
        (lambda: small_stories(True, generator()), TypeError, "small_stories: n is a bool (True); expected"),
        (lambda: small_stories(1, 7), TypeError, "small_stories: rng is an int (7); expected a numpy.random"),
        (lambda: is_small_story(None), TypeError, "is_small_story: text is None; expected a string"),
    ],
)
def test_a_bad_call_for_stories_is_refused(call, error, message):
    with pytest.raises(error) as refusal:
        call()
    assert str(refusal.value).startswith(message)
