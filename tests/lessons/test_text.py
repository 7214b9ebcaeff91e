"""Tests of tokenizing, building a vocabulary, encoding to ids and decoding."""

from typing import Any

import numpy as np
import pytest

from npformer import build_vocabulary, decode, encode, tokenize

SENTENCES = [tokenize("Don't stop: état 北京 a-b 3.5"), ["man"], tokenize("Dog bites man!")]


@pytest.mark.parametrize("sentence", ["", "..."])
def test_tokenize_without_words_is_empty(sentence):
    assert tokenize(sentence) == []


def test_tokenize_lowercases_and_removes_punctuation():
    assert tokenize("Don't stop: état 北京 a-b 3.5") == "don't stop état 北京 a b 3 5".split()


def test_decode_inverts_encode_without_padding():
    vocabulary = build_vocabulary(SENTENCES)
    ids = encode(SENTENCES, vocabulary)
    assert ids.shape == (3, 8) and ids.dtype == np.intp
    assert decode(ids, vocabulary) == SENTENCES


def test_build_vocabulary_numbers_words_from_zero():
    vocabulary = build_vocabulary(SENTENCES)
    assert vocabulary["<pad>"] == 0 and list(vocabulary.values()) == list(range(12))


def test_build_vocabulary_special_tokens_are_first_and_unique():
    vocabulary = build_vocabulary([["<s>", "b", "a"]], special=("<pad>", "<s>"))
    assert list(vocabulary) == ["<pad>", "<s>", "a", "b"]


def test_encode_pads_shorter_sentences_at_the_end():
    vocabulary = build_vocabulary([["man"], ["dog", "bites"]])
    assert encode([["man"], ["dog", "bites"]], vocabulary).tolist() == [[3, 0], [2, 1]]


def test_encode_accepts_empty_sentences():
    vocabulary = build_vocabulary([["man"], ["dog", "bites"]])
    assert encode([], vocabulary).shape == (0, 0)
    assert encode([[], []], vocabulary).shape == (2, 0)


def test_encode_accepts_numpy_ids():
    vocabulary: Any = {"dog": np.int64(3)}
    assert encode([["dog"]], vocabulary).tolist() == [[3]]
