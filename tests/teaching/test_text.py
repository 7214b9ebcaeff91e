import numpy as np
import pytest

from npformer import build_vocabulary, decode, encode, tokenize

ARTICLE = [
    "I wonder what will come next!",
    "This is a basic example paragraph.",
    "Hello, what is a basic split?",
]


def test_the_articles_three_sentences_have_six_tokens_each():
    tokens = [tokenize(sentence) for sentence in ARTICLE]
    assert [len(words) for words in tokens] == [6, 6, 6]
    assert tokens[0] == ["i", "wonder", "what", "will", "come", "next"]
    vocabulary = build_vocabulary(tokens)
    ids = encode(tokens, vocabulary)
    assert ids.shape == (3, 6) and ids.dtype == np.intp
    assert decode(ids, vocabulary) == tokens
    assert vocabulary["<pad>"] == 0 and sorted(vocabulary.values()) == list(range(len(vocabulary)))


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("", []),
        ("...", []),
        ("Don't stop", ["don't", "stop"]),
        ("état 北京 привет", ["état", "北京", "привет"]),
        ("a-b 3.5", ["a", "b", "3", "5"]),
    ],
)
def test_tokenize(sentence, words):
    assert tokenize(sentence) == words


def test_shorter_sentences_are_padded_at_the_end():
    vocabulary = build_vocabulary([["man"], ["dog", "bites"]])
    assert encode([["man"], ["dog", "bites"]], vocabulary).tolist() == [[3, 0], [2, 1]]
    assert decode(np.array([[3, 0], [2, 1]]), vocabulary) == [["man"], ["dog", "bites"]]
    assert encode([], vocabulary).shape == (0, 0) and encode([[], []], vocabulary).shape == (2, 0)


def test_special_tokens_come_first_and_once():
    assert build_vocabulary([["<s>", "b", "a"]], special=("<pad>", "<s>")) == {
        "<pad>": 0,
        "<s>": 1,
        "a": 2,
        "b": 3,
    }


def test_what_is_refused():
    with pytest.raises(TypeError, match=r"^tokenize: sentence is int; expected a string"):
        tokenize(3)
    with pytest.raises(
        TypeError, match=r"^build_vocabulary: a sentence is the string 'dog'; expected a list of words"
    ):
        build_vocabulary(["dog"])
    with pytest.raises(TypeError, match=r"^encode: a sentence is the string"):
        encode(["dog"], {"dog": 0})
    with pytest.raises(ValueError, match=r"^encode: 'cat' is not in the vocabulary of 1 words"):
        encode([["cat"]], {"dog": 0})
    with pytest.raises(ValueError, match=r"^encode: '<pad>' is not in the vocabulary"):
        encode([["dog"], []], {"dog": 0})
    with pytest.raises(ValueError, match=r"^decode: id 5 is not in the vocabulary of 1 words"):
        decode(np.array([[5]]), {"dog": 0})


def test_a_vocabulary_holds_whole_numbers():
    assert encode([["dog"]], {"dog": np.int64(3)}).tolist() == [[3]]
    with pytest.raises(
        TypeError, match=r"encode: vocabulary\['dog'\] is a float \(1.5\); expected an integer"
    ):
        encode([["dog"]], {"dog": 1.5})
