"""From words to ids and back."""

import re

import numpy as np
import pytest
from together import together

from npformer import build_vocabulary, decode, encode, tokenize


def test_sentences_in_every_script_come_back_in_lower_case_without_punctuation():
    assert tokenize("") == tokenize("...") == []
    tokens = [tokenize("Don't stop: état 北京 a-b 3.5"), ["man"], tokenize("Dog bites man!")]
    assert tokens[0] == "don't stop état 北京 a b 3 5".split()
    vocabulary = build_vocabulary(tokens)
    ids = encode(tokens, vocabulary)
    assert ids.shape == (3, 8) and ids.dtype == np.intp and decode(ids, vocabulary) == tokens
    assert vocabulary["<pad>"] == 0 and list(vocabulary.values()) == list(range(12))


def test_shorter_sentences_are_padded_at_the_end_and_special_tokens_come_first_and_once():
    vocabulary = build_vocabulary([["man"], ["dog", "bites"]])
    assert encode([["man"], ["dog", "bites"]], vocabulary).tolist() == [[3, 0], [2, 1]]
    assert encode([], vocabulary).shape == (0, 0) and encode([[], []], vocabulary).shape == (2, 0)
    assert list(build_vocabulary([["<s>", "b", "a"]], special=("<pad>", "<s>"))) == ["<pad>", "<s>", "a", "b"]
    assert encode([["dog"]], {"dog": np.int64(3)}).tolist() == [[3]]


REFUSED = [
    (TypeError, "tokenize: sentence is an int (3); expected a string", lambda: tokenize(3)),
    (TypeError, "build_vocabulary: a sentence is the string 'dog'", lambda: build_vocabulary(["dog"])),
    (TypeError, "build_vocabulary: sentences is the string 'dog'", lambda: build_vocabulary("dog")),
    (TypeError, "build_vocabulary: a word of a sentence is an int", lambda: build_vocabulary([["dog", 3]])),
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
