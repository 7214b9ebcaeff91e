from collections import Counter
from itertools import pairwise
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npformer import BytePairs, train_byte_pairs
from npformer.modern.byte_pairs import merge_pairs

TEXTS = st.text(alphabet="aab ñ漢", max_size=40)


def join(ids, pair, new):
    """Every occurrence of the pair, from the left, by hand."""
    joined = []
    for i in ids:
        if joined and (joined[-1], i) == pair:
            joined[-1] = new
        else:
            joined.append(i)
    return joined


def plain_train(text, n_merges):
    """The definition: count all pairs anew for every merge."""
    ids, merges = list(text.encode()), []
    for new in range(256, 256 + n_merges):
        counts = Counter(pairwise(ids))
        if not counts or max(counts.values()) == 1:
            break
        pair = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(pair)
        ids = join(ids, pair, new)
    return tuple(merges), ids


def plain_encode(data, merges):
    ids = list(data)
    for new, pair in enumerate(merges, 256):
        ids = join(ids, pair, new)
    return ids


@given(TEXTS, TEXTS, st.integers(0, 30))
def test_training_and_encoding_are_those_of_the_definition(text, other, n_merges):
    pairs = train_byte_pairs(text, n_merges)
    merges, ids = plain_train(text, n_merges)
    assert pairs == BytePairs(merges)
    assert pairs.encode(text) == pairs.encode(text.encode()) == ids
    assert pairs.encode(other) == plain_encode(other.encode(), merges)
    assert pairs.decode(pairs.encode(other)) == other


def test_a_letter_cut_in_two_is_marked():
    assert train_byte_pairs("", 0).decode(list("é!".encode())[1:]) == "�!"
    assert train_byte_pairs("", 0).decode(np.array([104, 105])) == "hi"


def test_a_long_text_takes_no_square_of_its_length():
    """Each merge asks for two new pairs, wherever it happens."""
    for n in (100, 1000):
        rank = Mock(side_effect=lambda a, b: (0, 256) if (a, b) == (97, 98) else None)
        assert merge_pairs(b"ab" * n, rank) == [256] * n
        assert 2 * n <= rank.call_count <= 4 * n


def test_what_does_not_fit_is_refused():
    with pytest.raises(TypeError, match=r"^train_byte_pairs: text is a list; expected"):
        train_byte_pairs(["a"], 1)
    with pytest.raises(ValueError, match=r"^BytePairs: merges\[0\] is 256; expected"):
        BytePairs(((256, 97),)).decode([256])
