"""From words to ids and back."""

import re

import numpy as np
import pytest
from together import together

from npformer import build_vocabulary, decode, encode, tokenize

ARTICLE = "I wonder what will come next! | This is a basic example paragraph. | Hello, what is a basic split?"


def test_the_articles_three_sentences_have_six_tokens_each():
    tokens = [tokenize(sentence) for sentence in ARTICLE.split("|")]
    assert [len(words) for words in tokens] == [6, 6, 6]
    assert tokens[0] == ["i", "wonder", "what", "will", "come", "next"]
    vocabulary = build_vocabulary(tokens)
    ids = encode(tokens, vocabulary)
    assert ids.shape == (3, 6) and ids.dtype == np.intp
    assert decode(ids, vocabulary) == tokens
    assert vocabulary["<pad>"] == 0 and sorted(vocabulary.values()) == list(range(len(vocabulary)))


def test_words_and_numbers_without_punctuation_in_every_script():
    assert tokenize("") == tokenize("...") == []
    assert tokenize("Don't stop: état 北京 привет a-b 3.5") == "don't stop état 北京 привет a b 3 5".split()


def test_shorter_sentences_are_padded_at_the_end_and_special_tokens_come_first_and_once():
    vocabulary = build_vocabulary([["man"], ["dog", "bites"]])
    assert encode([["man"], ["dog", "bites"]], vocabulary).tolist() == [[3, 0], [2, 1]]
    assert decode(np.array([[3, 0], [2, 1]]), vocabulary) == [["man"], ["dog", "bites"]]
    assert encode([], vocabulary).shape == (0, 0) and encode([[], []], vocabulary).shape == (2, 0)
    assert list(build_vocabulary([["<s>", "b", "a"]], special=("<pad>", "<s>"))) == ["<pad>", "<s>", "a", "b"]
    assert encode([["dog"]], {"dog": np.int64(3)}).tolist() == [[3]]


REFUSED = [
    (TypeError, "tokenize: sentence is int; expected a string", lambda: tokenize(3)),
    (TypeError, "build_vocabulary: a sentence is the string 'dog'", lambda: build_vocabulary(["dog"])),
    (TypeError, "build_vocabulary: sentences is the string 'dog'", lambda: build_vocabulary("dog")),
    (TypeError, "build_vocabulary: a sentence holds an int", lambda: build_vocabulary([["dog", 3]])),
    (ValueError, "encode: 'cat' is not in the vocabulary of 1 w", lambda: encode([["cat"]], {"dog": 0})),
    (ValueError, "encode: '<pad>' is not in the vocabulary", lambda: encode([["dog"], []], {"dog": 0})),
    (TypeError, "encode: vocabulary['dog'] is a float (1.5)", lambda: encode([["dog"]], {"dog": 1.5})),
    (TypeError, "encode: vocabulary is a list", lambda: encode([["dog"]], ["dog"])),
    (ValueError, "decode: id 5 is not in the vocabulary", lambda: decode(np.array([[5]]), {"dog": 0})),
    (ValueError, "decode: ids has shape (1,); expected (B, T)", lambda: decode(np.array([5]), {"dog": 0})),
]


@together(("error", "message", "call"), REFUSED)
def test_what_makes_no_sense_is_refused(error, message, call):
    with pytest.raises(error, match=re.escape(message)):
        call()
