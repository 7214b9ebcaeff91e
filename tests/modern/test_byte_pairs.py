"""Byte-pair encoding (BPE): compare training and encoding with plain code that follows the definition."""

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
    """Replace every occurrence of a pair by a new id, from left to right."""
    joined = []
    for i in ids:
        if joined and (joined[-1], i) == pair:
            joined[-1] = new
        else:
            joined.append(i)
    return joined


def plain_train(text, n_merges):
    """Train as the definition of BPE says: count all pairs again for every merge."""
    ids = list(text.encode())
    merges = []
    for new in range(256, 256 + n_merges):
        counts = Counter(pairwise(ids))
        if not counts or max(counts.values()) == 1:
            break
        pair = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(pair)
        ids = join(ids, pair, new)
    return tuple(merges), ids


def plain_encode(data, merges):
    """Encode as the definition of BPE says: make one pass over the text for every merge."""
    ids = list(data)
    for new, pair in enumerate(merges, 256):
        ids = join(ids, pair, new)
    return ids


@given(TEXTS, TEXTS, st.integers(0, 30))
def test_train_byte_pairs_equals_definition(text, other, n_merges):
    pairs = train_byte_pairs(text, n_merges)
    merges, ids = plain_train(text, n_merges)
    assert pairs == BytePairs(merges)
    assert pairs.encode(text) == pairs.encode(text.encode()) == ids
    assert pairs.encode(other) == plain_encode(other.encode(), merges)
    assert pairs.decode(pairs.encode(other)) == other


def test_decode_marks_incomplete_letter():
    assert train_byte_pairs("", 0).decode(list("é!".encode())[1:]) == "�!"
    assert train_byte_pairs("", 0).decode(np.array([104, 105])) == "hi"


def test_merge_pairs_is_linear_in_length():
    """Each merge makes two new pairs, and `rank` is called once for each new pair."""
    for n in (100, 1000):
        rank = Mock(side_effect=lambda a, b: (0, 256) if (a, b) == (97, 98) else None)
        assert merge_pairs(b"ab" * n, rank) == [256] * n
        assert 2 * n <= rank.call_count <= 4 * n


def test_byte_pairs_reject_bad_arguments():
    with pytest.raises(TypeError, match=r"^train_byte_pairs: text is a list; expected"):
        train_byte_pairs(["a"], 1)
    with pytest.raises(ValueError, match=r"^BytePairs: merges\[0\] is 256; expected"):
        BytePairs(((256, 97),)).decode([256])
