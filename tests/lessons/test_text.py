"""From words to ids and back."""

import numpy as np

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
