"""Tasks small enough to train in class: which noun comes first, numbers in words to digits, and stories.

Each is drawn from a seed. The first two come in two parts, one to train on and one to test on, with nothing
in common.
"""

import itertools
import re
from collections.abc import Sequence
from functools import cache
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
SHORTEST = 3  # two nouns and a verb


class Twins(NamedTuple):
    """Sentences that differ from their neighbour in one thing, the order of the two nouns."""

    ids: Array  # (n, 2, length): "dog bites man", "man bites dog"
    labels: Array  # (n, 2): 1, "news", where a person comes before the animal; else 0


@checked
def order_task(
    lengths: Sequence[int], rng: Rng, *, n_test: Count = 1000
) -> tuple[dict[int, Twins], dict[int, Twins]]:
    """Every animal, verb and person together, both ways round: {length: Twins} to train on and to test on.

    A sentence is a noun, a verb and a noun; adjectives before the nouns fill it up to its length. Twins have
    the same words, so that whoever does not see the order is right in one half of them. Both stay on one
    side of the split, and no animal, verb and person of the n_test in the test, whatever the length, are
    together in the training.

    Raises TypeError or ValueError unless the lengths are integers >= 3 and n_test leaves something to train.

    >>> train, test = order_task([3, 5], np.random.default_rng(0))
    >>> train[3].ids.shape, test[5].ids.shape
    ((3000, 2, 3), (1000, 2, 5))
    """
    _check_lengths(lengths)
    n = len(ANIMALS) * len(PEOPLE) * len(VERBS)
    if n_test >= n:
        raise ValueError(f"order_task: n_test is {n_test}; expected less than all {n} pairs of twins")
    bags = rng.permutation(n)
    train, test = {}, {}
    for length in map(int, lengths):
        ids, labels = _twins(bags, length, rng), np.tile([0, 1], (n, 1))
        train[length] = Twins(ids[n_test:], labels[n_test:])
        test[length] = Twins(ids[:n_test], labels[:n_test])
    return train, test


def _twins(bags: Array, length: int, rng: np.random.Generator) -> Array:
    """The sentences of numbered bags of animal, person and verb, the animal first in the first twin."""
    kinds = (ANIMALS, PEOPLE, VERBS)
    members = np.unravel_index(bags, [len(kind) for kind in kinds])
    animal, person, verb = (_ids(kind)[member] for kind, member in zip(kinds, members, strict=True))
    n = len(bags)
    adjectives = _ids(ADJECTIVES)[rng.integers(len(ADJECTIVES), size=(n, length))]
    ids = np.stack([adjectives, adjectives], axis=1)  # (n, 2, length)
    row, first = np.arange(n), rng.integers(length - SHORTEST + 1, size=n)  # where the first noun stands
    ids[row, :, first] = np.stack([animal, person], axis=1)
    ids[row, :, first + 1] = verb[:, None]
    ids[row, :, -1] = np.stack([person, animal], axis=1)
    return ids


def _check_lengths(lengths: Any) -> None:
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
MOST = 100_000  # lines to draw: to draw among a million without repeating gets slow beyond


class Lines(NamedTuple):
    """Numbers, each in words and in digits."""

    source_ids: Array  # (n, 9): three hundred forty two <pad> …
    target_ids: Array  # (n, 8): <start> 3 4 2 <stop> <pad> …


@checked
def number_in_words(number: Length) -> str:
    """The number as it is read out, from 0 to 999,999.

    Raises TypeError or ValueError unless it is an integer in that range.

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
        return TENS[number // 10] + (f"-{ONES[number % 10]}" if number % 10 else "")
    unit, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    rest = f" {_in_words(number % unit)}" if number % unit else ""
    return f"{_in_words(number // unit)} {name}{rest}"


@checked
def number_task(n_train: Count, n_test: Count, rng: Rng) -> tuple[Lines, Lines]:
    """Different numbers, in words and in digits: -> Lines to train on and Lines to test on.

    One digit, two, … six: each is drawn as often as the others, until the short ones are used up.

    Raises TypeError or ValueError unless both sizes are integers >= 1 with a sum of at most 100,000 and rng
    is a Generator.

    >>> train, test = number_task(1000, 100, np.random.default_rng(0))
    >>> train.source_ids.shape, test.target_ids.shape
    ((1000, 9), (100, 8))
    """
    n = int(n_train) + int(n_test)
    if n > MOST:
        raise ValueError(f"number_task: n_train + n_test is {n}; expected at most {MOST}")
    counts = np.diff([0, *10 ** np.arange(1, 7)])  # 10 numbers of one digit, 90 of two, …
    drawn = rng.choice(LARGEST + 1, size=n, replace=False, p=np.repeat(1 / counts, counts) / len(counts))
    numbers = rng.permutation(drawn).tolist()  # small numbers tend to be drawn early
    return _lines(numbers[: int(n_train)]), _lines(numbers[int(n_train) :])


def _lines(numbers: list[int]) -> Lines:
    """Ids in tables as wide as the longest number needs, also where no such number was drawn."""
    words = [tokenize(_in_words(number)) for number in numbers]
    digits = [[START, *str(number), STOP] for number in numbers]
    padded = (encode([*rows, [PADDING] * n], NUMBER_VOCABULARY) for rows, n in ((words, 9), (digits, 8)))
    return Lines(*(ids[:-1] for ids in padded))


SHE, HE = tuple("Anna Ida Mia Rosa".split()), tuple("Ben Leo Otto Tom".split())
WORDS = {  # what is drawn together is different
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
    """n stories of three plots, of words that a child knows: who, what and where are drawn.

    One of eight names stands in a story from its beginning to its end, with the pronoun that
    belongs to it, and what is lost is what is found: a model has to carry them along.

    Raises TypeError or ValueError unless n is an integer >= 1 and rng is a Generator.

    >>> small_stories(1, np.random.default_rng(1))[0][:50]
    'Leo was a brave cat who lived by the sea. One day '
    """
    return [_small_story(rng) for _ in range(int(n))]


def _small_story(rng: np.random.Generator) -> str:
    words: dict[str, str] = {}
    for names, kind in WORDS.items():
        words |= {name: kind[i] for name, i in zip(names.split(), rng.permutation(len(kind)), strict=False)}
    return _told(PLOTS[int(rng.integers(len(PLOTS)))], words["name"] in SHE).format(**words)


def _told(plot: str, of_a_girl: bool) -> str:
    """The story with its pronouns, and without its words."""
    she, her = ("she", "her") if of_a_girl else ("he", "his")
    story = (OPENING + plot).replace("{she}", she)
    return story.replace("{her}", her).replace("{Her}", her.capitalize())


def is_small_story(text: str) -> bool:
    """Whether `small_stories` could have told it: nobody changes the name, nothing turns into something else.

    >>> story = small_stories(1, np.random.default_rng(1))[0]
    >>> is_small_story(story), is_small_story(story.replace("cap", "cup", 1))
    (True, False)
    """
    if not isinstance(text, str):
        raise wrong_kind("is_small_story", "text", text, "a string")
    return any(re.fullmatch(pattern, text) for pattern in _patterns())


@cache
def _patterns() -> list[str]:
    """Each plot as a regular expression: a word where it is first told, and then the same one."""
    patterns = []
    for plot, of_a_girl in itertools.product(PLOTS, (True, False)):
        pattern = re.escape(_told(plot, of_a_girl)).replace(r"\{", "{").replace(r"\}", "}")
        for names, kind in WORDS.items():
            others = ""  # of its kind, which it is not
            for name in names.split():
                words = "|".join(kind if name != "name" else SHE if of_a_girl else HE)
                pattern = pattern.replace(f"{{{name}}}", f"(?P<{name}>{others}(?:{words}))", 1)
                pattern = pattern.replace(f"{{{name}}}", f"(?P={name})")
                others += f"(?!(?P={name}))"
        patterns.append(pattern)
    return patterns
