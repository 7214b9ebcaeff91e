"""From sentences to ids: tokenize, vocabulary, padding."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from npformer.backend import Array
from npformer.validation.checks import check_ids, check_integer, wrong_kind, wrong_shape

PADDING = "<pad>"


def tokenize(sentence: str) -> list[str]:
    """The sentence's words in lower case, without punctuation; an apostrophe inside a word stays.

    Raises TypeError unless the sentence is a string.

    >>> tokenize("Hello, what is a basic split?")
    ['hello', 'what', 'is', 'a', 'basic', 'split']
    """
    if not isinstance(sentence, str):
        raise wrong_kind("tokenize", "sentence", sentence, "a string")
    return re.findall(r"\w+(?:['’]\w+)*", sentence.lower())


def build_vocabulary(
    sentences: Iterable[Sequence[str]], *, special: Sequence[str] = (PADDING,)
) -> dict[str, int]:
    """An id for each word: the special tokens first, then the words in alphabetical order.

    Raises TypeError for a sentence that is one string (it would be cut into letters) or words that are none.

    >>> build_vocabulary([["dog", "bites", "man"]])
    {'<pad>': 0, 'bites': 1, 'dog': 2, 'man': 3}
    """
    special = _words("build_vocabulary", "special", special)
    words = {word for sentence in _sentences("build_vocabulary", sentences) for word in sentence}
    return {word: i for i, word in enumerate(dict.fromkeys([*special, *sorted(words)]))}


def encode(sentences: Sequence[Sequence[str]], vocabulary: Mapping[str, int]) -> Array:
    """The ids of tokenized sentences, the shorter ones padded at the end with `<pad>`: integers (B, T).

    Raises ValueError for a word that is not in the vocabulary, or when padding is needed and `<pad>` is not.

    >>> encode([["man"], ["dog", "bites"]], {"<pad>": 0, "bites": 1, "dog": 2, "man": 3})
    array([[3, 0],
           [2, 1]])
    """
    rows = _sentences("encode", sentences)
    _check_vocabulary("encode", vocabulary)
    T = max(map(len, rows), default=0)
    padded = [[*row, *[PADDING] * (T - len(row))] for row in rows]
    for word in (word for row in padded for word in row if word not in vocabulary):
        raise ValueError(f"encode: {word!r} is not in the vocabulary of {len(vocabulary)} words")
    ids = [[vocabulary[word] for word in row] for row in padded]
    return np.array(ids, dtype=np.intp).reshape(len(rows), T)  # (B, T), also when B or T is 0


def decode(ids: Array, vocabulary: Mapping[str, int]) -> list[list[str]]:
    """The words of each row of ids (B, T), padding left out.

    Raises TypeError unless ids is an array of integers, ValueError for another shape or an unknown id.

    >>> decode(np.array([[2, 1, 0]]), {"<pad>": 0, "bites": 1, "dog": 2})
    [['dog', 'bites']]
    """
    check_ids("decode", "ids", ids)
    if ids.ndim != 2:
        raise wrong_shape("decode", "ids", ids, "(B, T)")
    _check_vocabulary("decode", vocabulary)
    words = {i: word for word, i in vocabulary.items()}
    unknown = sorted({int(i) for i in ids.ravel()} - words.keys())
    if unknown:
        raise ValueError(f"decode: id {unknown[0]} is not in the vocabulary of {len(vocabulary)} words")
    return [[words[int(i)] for i in row if words[int(i)] != PADDING] for row in ids]


def _sentences(function: str, sentences: Iterable[Sequence[str]]) -> list[Sequence[str]]:
    if isinstance(sentences, str | np.ndarray) or not isinstance(sentences, Iterable):
        raise wrong_kind(function, "sentences", sentences, "a list of lists of words")
    return [_words(function, "a sentence", sentence) for sentence in sentences]


def _words(function: str, argument: str, words: Sequence[str]) -> Sequence[str]:
    """Refuse a string, which would be cut into letters, and words that are not strings."""
    if isinstance(words, str) or not isinstance(words, Sequence):
        raise wrong_kind(function, argument, words, "a list of words (tokenize makes one)")
    for word in (word for word in words if not isinstance(word, str)):
        raise wrong_kind(function, f"a word of {argument}", word, "a string")
    return words


def _check_vocabulary(function: str, vocabulary: Mapping[str, int]) -> None:
    if not isinstance(vocabulary, Mapping):
        raise wrong_kind(function, "vocabulary", vocabulary, "a dict of words and ids")
    for word, i in vocabulary.items():
        if type(i) is not int:
            check_integer(function, f"vocabulary[{word!r}]", i)
