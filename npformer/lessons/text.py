"""Convert sentences to ids and back: tokens, vocabulary, padding."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from npformer.backend import Array
from npformer.validation.checks import check_ids, check_integer, wrong_kind, wrong_shape

PADDING = "<pad>"


def tokenize(sentence: str) -> list[str]:
    """Split a sentence into lowercase words without punctuation. Apostrophes inside words are kept.

    Parameters
    ----------
    sentence : str

    Returns
    -------
    words : list of str

    Examples
    --------
    >>> tokenize("Hello, what is a basic split?")
    ['hello', 'what', 'is', 'a', 'basic', 'split']
    """
    if not isinstance(sentence, str):
        raise wrong_kind("tokenize", "sentence", sentence, "a string")
    return re.findall(r"\w+(?:['’]\w+)*", sentence.lower())


def build_vocabulary(
    sentences: Iterable[Sequence[str]], *, special: Sequence[str] = (PADDING,)
) -> dict[str, int]:
    """Give every word an id: the special tokens come first, then the words in alphabetical order.

    Parameters
    ----------
    sentences : iterable of lists of str
        The tokenized sentences. A sentence that is a string raises TypeError, because it is not tokenized.
    special : sequence of str
        The special tokens.

    Returns
    -------
    vocabulary : dict
        The id of each word.

    Examples
    --------
    >>> build_vocabulary([["dog", "bites", "man"]])
    {'<pad>': 0, 'bites': 1, 'dog': 2, 'man': 3}
    """
    special = _check_words("build_vocabulary", "special", special)
    words = {word for sentence in _check_sentences("build_vocabulary", sentences) for word in sentence}
    without_repeats = dict.fromkeys([*special, *sorted(words)])
    return {word: i for i, word in enumerate(without_repeats)}


def encode(sentences: Sequence[Sequence[str]], vocabulary: Mapping[str, int]) -> Array:
    """Replace the words of tokenized sentences by ids; shorter sentences are padded at the end with `<pad>`.

    Parameters
    ----------
    sentences : sequence of lists of str
        B tokenized sentences; the longest has T words.
    vocabulary : mapping
        The id of each word.

    Returns
    -------
    ids : integer array (B, T)

    Raises
    ------
    ValueError
        If a word is not in the vocabulary, or if padding is needed and `<pad>` is not in it.

    Examples
    --------
    >>> encode([["man"], ["dog", "bites"]], {"<pad>": 0, "bites": 1, "dog": 2, "man": 3})
    array([[3, 0],
           [2, 1]])
    """
    rows = _check_sentences("encode", sentences)
    _check_vocabulary("encode", vocabulary)
    T = max((len(row) for row in rows), default=0)
    padded_rows = [[*row, *[PADDING] * (T - len(row))] for row in rows]
    ids = [[_id_of(word, vocabulary) for word in row] for row in padded_rows]
    return np.array(ids, dtype=np.intp).reshape(len(rows), T)  # (B, T); `reshape` is needed if B or T is 0


def _id_of(word: str, vocabulary: Mapping[str, int]) -> int:
    if word not in vocabulary:
        raise ValueError(f"encode: {word!r} is not in the vocabulary of {len(vocabulary)} words")
    return vocabulary[word]


def decode(ids: Array, vocabulary: Mapping[str, int]) -> list[list[str]]:
    """Replace the ids of each row by words; padding is left out.

    Parameters
    ----------
    ids : integer array (B, T)
    vocabulary : mapping
        The id of each word.

    Returns
    -------
    sentences : list of lists of str

    Raises
    ------
    ValueError
        If an id is not in the vocabulary.

    Examples
    --------
    >>> decode(np.array([[2, 1, 0]]), {"<pad>": 0, "bites": 1, "dog": 2})
    [['dog', 'bites']]
    """
    check_ids("decode", "ids", ids)
    if ids.ndim != 2:
        raise wrong_shape("decode", "ids", ids, "(B, T)")
    _check_vocabulary("decode", vocabulary)
    words = {i: word for word, i in vocabulary.items()}
    rows = [[int(i) for i in row] for row in ids]
    unknown_ids = {i for row in rows for i in row} - words.keys()
    if unknown_ids:
        raise ValueError(f"decode: id {min(unknown_ids)} is not in the vocabulary of {len(vocabulary)} words")
    return [[words[i] for i in row if words[i] != PADDING] for row in rows]


def _check_sentences(function: str, sentences: Iterable[Sequence[str]]) -> list[Sequence[str]]:
    """Return the sentences as a list; reject everything that is not a list of lists of words."""
    if isinstance(sentences, str | np.ndarray) or not isinstance(sentences, Iterable):
        raise wrong_kind(function, "sentences", sentences, "a list of lists of words")
    return [_check_words(function, "a sentence", sentence) for sentence in sentences]


def _check_words(function: str, argument: str, words: Sequence[str]) -> Sequence[str]:
    """Return the words. Reject a string, which would be split into letters, and words of other types."""
    if isinstance(words, str) or not isinstance(words, Sequence):
        raise wrong_kind(function, argument, words, "a list of words (tokenize makes one)")
    for word in words:
        if not isinstance(word, str):
            raise wrong_kind(function, f"a word of {argument}", word, "a string")
    return words


def _check_vocabulary(function: str, vocabulary: Mapping[str, int]) -> None:
    if not isinstance(vocabulary, Mapping):
        raise wrong_kind(function, "vocabulary", vocabulary, "a dict of words and ids")
    for word, i in vocabulary.items():
        if type(i) is not int:
            check_integer(function, f"vocabulary[{word!r}]", i)
