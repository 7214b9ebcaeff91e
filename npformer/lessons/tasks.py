"""Tasks that are small enough to train in class: the order of two nouns, numbers in words, and stories.

`order_task`, `number_task` and `small_stories` draw their data with a random generator. The first two of
these functions return a training set and a test set that share no example. `read_short_texts` returns the
texts on which lesson 11 fits the tuned lens.
"""

import itertools
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.lessons.text import PADDING, build_vocabulary, encode, tokenize
from npformer.validation.annotations import Count, Length, Rng
from npformer.validation.checks import check_integer, wrong_kind
from npformer.validation.signature import checked

ANIMALS = tuple(
    "bear camel cat cow dog duck fox frog goat goose hen horse lion mouse pig rat sheep snake tiger "
    "wolf".split()
)
PEOPLE = tuple(
    "baker boy clown cook dancer doctor farmer girl judge king man nurse pupil queen sailor singer teacher "
    "thief woman writer".split()
)
VERBS = tuple("bites calls chases finds follows hears helps likes meets sees".split())
ADJECTIVES = tuple("angry big brave clever happy hungry old quiet sad small tired young".split())
ORDER_VOCABULARY = build_vocabulary([ANIMALS, PEOPLE, VERBS, ADJECTIVES], special=())
SHORTEST = 3  # the length of a sentence without adjectives: two nouns and a verb


class Twins(NamedTuple):
    """Pairs of sentences that differ only in the order of the two nouns."""

    ids: Array  # (n, 2, length), the sentences of each pair: "dog bites man", "man bites dog"
    labels: Array  # (n, 2), 1 ("news") if a person comes before the animal, else 0


@checked
def order_task(
    lengths: Sequence[int], rng: Rng, *, n_test: Count = 1000
) -> tuple[dict[int, Twins], dict[int, Twins]]:
    """Draw sentences whose label depends on the order of the two nouns.

    A sentence is a noun, a verb and a noun; adjectives before the nouns make the sentence as long as
    required. Each combination of an animal, a verb and a person occurs in both orders, as a pair of twins.
    Both twins have the same words, so a model that ignores the order has an accuracy of 50 %. No combination
    of animal, verb and person in the test set occurs in the training set.

    Parameters
    ----------
    lengths : sequence of int
        The lengths of the sentences, each at least 3.
    rng : numpy.random.Generator
    n_test : int
        The number of pairs in the test set, for each length.

    Returns
    -------
    train : dict of Twins
        The training set of each length.
    test : dict of Twins
        The test set of each length. The combinations are the same for every length.

    Raises
    ------
    ValueError
        If n_test leaves no pair for the training set.

    Examples
    --------
    >>> train, test = order_task([3, 5], np.random.default_rng(0))
    >>> train[3].ids.shape, test[5].ids.shape
    ((3000, 2, 3), (1000, 2, 5))
    """
    _check_lengths(lengths)
    n = len(ANIMALS) * len(PEOPLE) * len(VERBS)
    if n_test >= n:
        raise ValueError(f"order_task: n_test is {n_test}; expected less than all {n} pairs of twins")
    combinations = rng.permutation(n)
    labels = np.tile([0, 1], (n, 1))
    train, test = {}, {}
    for length in map(int, lengths):
        ids = _draw_twins(combinations, length, rng)
        train[length] = Twins(ids[n_test:], labels[n_test:])
        test[length] = Twins(ids[:n_test], labels[:n_test])
    return train, test


def _draw_twins(combinations: Array, length: int, rng: np.random.Generator) -> Array:
    """Return the ids of pairs of sentences (n, 2, length); the animal comes first in the first sentence.

    Each number in `combinations` stands for one combination of an animal, a person and a verb.
    """
    n = len(combinations)
    n_words = (len(ANIMALS), len(PEOPLE), len(VERBS))
    animal_index, person_index, verb_index = np.unravel_index(combinations, n_words)
    animal, person, verb = _ids(ANIMALS)[animal_index], _ids(PEOPLE)[person_index], _ids(VERBS)[verb_index]
    adjectives = _ids(ADJECTIVES)[rng.integers(len(ADJECTIVES), size=(n, length))]
    ids = np.stack([adjectives, adjectives], axis=1)  # (n, 2, length), filled with adjectives at first
    row = np.arange(n)
    first_noun = rng.integers(length - SHORTEST + 1, size=n)  # the position of the first noun
    ids[row, :, first_noun] = np.stack([animal, person], axis=1)
    ids[row, :, first_noun + 1] = verb[:, None]
    ids[row, :, -1] = np.stack([person, animal], axis=1)
    return ids


def _check_lengths(lengths: Any) -> None:
    """Reject lengths that are not a sequence of integers of at least SHORTEST."""
    if not isinstance(lengths, Sequence):
        raise wrong_kind("order_task", "lengths", lengths, "a list of integers")
    for i, length in enumerate(lengths):
        check_integer("order_task", f"lengths[{i}]", length, minimum=SHORTEST)


def _ids(words: Sequence[str]) -> Array:
    return np.array([ORDER_VOCABULARY[word] for word in words])


ONES = tuple(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen".split()
)
TENS = ("", "", *"twenty thirty forty fifty sixty seventy eighty ninety".split())
START, STOP = "<start>", "<stop>"
NUMBER_VOCABULARY = build_vocabulary(
    [[*ONES, *TENS[2:], "hundred", "thousand"], "0 1 2 3 4 5 6 7 8 9".split()], special=(PADDING, START, STOP)
)
LARGEST = 999_999
MOST = 100_000  # the maximum number of lines: drawing more than this without repetition is slow
SOURCE_LENGTH, TARGET_LENGTH = 9, 8  # at most 9 words; at most 6 digits, <start> and <stop>


class Lines(NamedTuple):
    """Numbers in words and in digits."""

    source_ids: Array  # (n, 9): three hundred forty two <pad> …
    target_ids: Array  # (n, 8): <start> 3 4 2 <stop> <pad> …


@checked
def number_in_words(number: Length) -> str:
    """Return a number in words.

    Parameters
    ----------
    number : int
        From 0 to 999,999.

    Returns
    -------
    words : str

    Examples
    --------
    >>> number_in_words(342_605)
    'three hundred forty-two thousand six hundred five'
    """
    if number > LARGEST:
        raise ValueError(f"number_in_words: number is {number}; expected at most {LARGEST}")
    return _in_words(int(number))


def _in_words(number: int) -> str:
    if number < 20:
        return ONES[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return f"{TENS[tens]}-{ONES[ones]}" if ones else TENS[tens]
    unit, unit_name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    count, rest = divmod(number, unit)
    words = f"{_in_words(count)} {unit_name}"
    return f"{words} {_in_words(rest)}" if rest else words


@checked
def number_task(n_train: Count, n_test: Count, rng: Rng) -> tuple[Lines, Lines]:
    """Draw a training set and a test set of different numbers, in words and in digits.

    All lengths from one to six digits are equally likely, until all short numbers have been drawn.

    Parameters
    ----------
    n_train : int
        The number of lines in the training set.
    n_test : int
        The number of lines in the test set; at most 100,000 together with `n_train`.
    rng : numpy.random.Generator

    Returns
    -------
    train, test : Lines
        The training set and the test set.

    Examples
    --------
    >>> train, test = number_task(1000, 100, np.random.default_rng(0))
    >>> train.source_ids.shape, test.target_ids.shape
    ((1000, 9), (100, 8))
    """
    n = int(n_train) + int(n_test)
    if n > MOST:
        raise ValueError(f"number_task: n_train + n_test is {n}; expected at most {MOST}")
    counts = np.diff([0, *10 ** np.arange(1, 7)])  # 10 numbers have one digit, 90 have two, …
    probabilities = np.repeat(1 / counts, counts) / len(counts)
    drawn = rng.choice(LARGEST + 1, size=n, replace=False, p=probabilities)
    numbers = rng.permutation(drawn).tolist()  # without shuffling, small numbers would come first
    return _make_lines(numbers[: int(n_train)]), _make_lines(numbers[int(n_train) :])


def _make_lines(numbers: list[int]) -> Lines:
    """Return the ids of numbers, always padded to the length of the longest possible number."""
    words = [tokenize(_in_words(number)) for number in numbers]
    digits = [[START, *str(number), STOP] for number in numbers]
    return Lines(_encode_padded(words, SOURCE_LENGTH), _encode_padded(digits, TARGET_LENGTH))


def _encode_padded(rows: list[list[str]], length: int) -> Array:
    padding_row = [PADDING] * length  # makes `encode` pad every row to this length
    return encode([*rows, padding_row], NUMBER_VOCABULARY)[:-1]


SHE = tuple("Anna Ida Mia Rosa".split())
HE = tuple("Ben Leo Otto Tom".split())
WORDS = {  # the words for each placeholder; "name friend": these two get different words from one list
    "name friend": SHE + HE,
    "creature other": "bear cat dog fox goat mouse owl rabbit".split(),
    "place other_place third_place": (
        "under the bed", "behind the door", "in the grass", "on the roof", "under a tree", "in the hay"
    ),
    "thing": "ball bell boat cap cup drum kite ring".split(),
    "food": "apples bread cheese honey nuts soup".split(),
    "mood": "brave clever kind little quiet shy small young".split(),
    "home": ("in a forest", "by the sea", "on a farm", "near a river", "on a hill", "in an old house"),
}  # fmt: skip
OPENING = "{name} was a {mood} {creature} who lived {home}. "
PLOTS = (
    "One day {she} lost {her} {thing}. {name} looked {place} and {other_place}, but the {thing} was not "
    'there. Then {friend} the {other} came by. "Why are you sad, {name}?" asked {friend}. "I have lost my '
    '{thing}," said {name}. They looked {third_place}, and there was the {thing}!',
    "One day {she} found a {thing} {place}. {name} wanted to keep it. But then {friend} the {other} came by "
    'and cried: "Where is my {thing}?" {name} gave the {thing} back, and {friend} was so happy that they ate '
    "{food} together.",
    "One day it was cold. {name} had a {thing}, but {she} had nothing to eat. {Her} friend {friend} the "
    "{other} had {food}, but no {thing}. So they sat {place}, ate the {food}, played with the {thing} and "
    "were happy.",
)


@checked
def small_stories(n: Count, rng: Rng) -> list[str]:
    """Draw stories with a grammar of three plots and simple words.

    The name of the main character, the pronoun and the thing stay the same within a story. A language model
    has to learn to keep them the same.

    Parameters
    ----------
    n : int
        The number of stories.
    rng : numpy.random.Generator

    Returns
    -------
    stories : list of str

    Examples
    --------
    >>> small_stories(1, np.random.default_rng(1))[0][:50]
    'Leo was a brave cat who lived by the sea. One day '
    """
    return [_small_story(rng) for _ in range(int(n))]


def _small_story(rng: np.random.Generator) -> str:
    words: dict[str, str] = {}
    for placeholders, choices in WORDS.items():
        order = rng.permutation(len(choices))
        for placeholder, i in zip(placeholders.split(), order, strict=False):
            words[placeholder] = choices[i]
    plot = PLOTS[int(rng.integers(len(PLOTS)))]
    return _add_pronouns(plot, words["name"] in SHE).format(**words)


def _add_pronouns(plot: str, is_girl: bool) -> str:
    """Return the story with its pronouns filled in; the other placeholders are kept."""
    she, her = ("she", "her") if is_girl else ("he", "his")
    story = OPENING + plot
    return story.replace("{she}", she).replace("{her}", her).replace("{Her}", her.capitalize())


def is_small_story(text: str) -> bool:
    """Return whether `small_stories` could have drawn a text: its names, pronouns and things are consistent.

    Parameters
    ----------
    text : str

    Returns
    -------
    is_story : bool

    Examples
    --------
    >>> story = small_stories(1, np.random.default_rng(1))[0]
    >>> is_small_story(story), is_small_story(story.replace("cap", "cup", 1))
    (True, False)
    """
    if not isinstance(text, str):
        raise wrong_kind("is_small_story", "text", text, "a string")
    return any(re.fullmatch(pattern, text) for pattern in _patterns())


@cache
def _patterns() -> list[str]:
    """Return a regular expression for each combination of a plot and a pronoun."""
    return [_pattern(plot, is_girl) for plot, is_girl in itertools.product(PLOTS, (True, False))]


def _pattern(plot: str, is_girl: bool) -> str:
    """Return the regular expression of a plot.

    The first occurrence of a placeholder matches any of its words, as a named group. Later occurrences match
    the same word. Placeholders that share a key of WORDS must match different words.
    """
    pattern = re.escape(_add_pronouns(plot, is_girl)).replace(r"\{", "{").replace(r"\}", "}")
    for placeholders, choices in WORDS.items():
        not_used_before = ""
        for placeholder in placeholders.split():
            if placeholder == "name":
                choices_here: Sequence[str] = SHE if is_girl else HE
            else:
                choices_here = choices
            group = f"(?P<{placeholder}>{not_used_before}(?:{'|'.join(choices_here)}))"
            same_word = f"(?P={placeholder})"
            pattern = pattern.replace(f"{{{placeholder}}}", group, 1)
            pattern = pattern.replace(f"{{{placeholder}}}", same_word)
            not_used_before += f"(?!{same_word})"
    return pattern


def read_short_texts() -> list[str]:
    """Return 64 short, true texts about everyday things, with one to three sentences each.

    Lesson 11 fits the tuned lens on these texts. They contain none of the facts that the lesson asks for.

    Returns
    -------
    texts : list of str

    Examples
    --------
    >>> len(read_short_texts()), read_short_texts()[0][:30]
    (64, 'Bread is made from flour, wate')
    """
    file = Path(__file__).with_name("short_texts.txt")
    return file.read_text(encoding="utf-8").splitlines()
