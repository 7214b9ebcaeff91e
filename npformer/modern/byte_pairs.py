"""Byte-pair encoding: a vocabulary of pieces that grows by joining the most frequent neighbours."""

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from npformer.arrays import Array
from npformer.validation.annotations import Length
from npformer.validation.checks import check_integer, kind_of

BYTES = 256  # the first ids are the bytes themselves


class BytePairs(NamedTuple):
    """A vocabulary: 256 bytes, then one piece for each merge, id 256 + i from the two ids of merges[i]."""

    merges: tuple[tuple[int, int], ...]

    @property
    def pieces(self) -> list[bytes]:
        """The bytes of each id; an id's parts have smaller ids."""
        pieces = [bytes([byte]) for byte in range(BYTES)]
        for i, (a, b) in enumerate(self.merges):
            pieces.append(join_pieces("BytePairs", (a, b), pieces, f"merges[{i}]"))
        return pieces

    def encode(self, text: str | bytes) -> list[int]:
        """The ids of a text: its UTF-8 bytes, joined pair by pair in the order of the merges.

        >>> train_byte_pairs("low lower", 2).encode("slow")
        [115, 257]
        """
        ranks = {pair: i for i, pair in enumerate(self.merges)}

        def rank(a: int, b: int) -> tuple[int, int] | None:
            i = ranks.get((a, b))
            return None if i is None else (i, BYTES + i)

        return merge_pairs(as_bytes("encode", text), rank)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids; a byte that is no part of a letter, as in the middle of one, becomes �.

        >>> train_byte_pairs("low lower", 2).decode([115, 257])
        'slow'
        """
        return join_pieces("decode", ids, self.pieces).decode("utf-8", "replace")


def train_byte_pairs(text: str | bytes, n_merges: Length) -> BytePairs:
    """Join the most frequent pair of neighbours, n_merges times: "aaabdaaabac" -> ZabdZabac -> ZYdZYac -> …

    Gage, "A New Algorithm for Data Compression", 1994; Sennrich et al., "Neural Machine Translation of Rare
    Words with Subword Units", 2016, algorithm 1. It begins with the text's UTF-8 bytes, so that no text is
    unknown. Of pairs that are equally frequent the one with the smaller ids is taken; when no pair occurs
    twice there is nothing to gain, and it ends early.

    >>> train_byte_pairs("aaabdaaabac", 3).pieces[256:]
    [b'aa', b'ab', b'aaab']
    """
    ids = np.frombuffer(as_bytes("train_byte_pairs", text, "text"), np.uint8).astype(np.int64)  # (N,)
    merges: list[tuple[int, int]] = []
    for new in range(BYTES, BYTES + n_merges):
        pairs, counts = np.unique(ids[:-1] * new + ids[1:], return_counts=True)  # all ids are below `new`
        if counts.size == 0 or counts.max() == 1:
            break
        pair = divmod(int(pairs[counts.argmax()]), new)
        merges.append(pair)
        ids = _joined(ids, *pair, new)
    return BytePairs(tuple(merges))


def _joined(ids: Array, a: int, b: int, new: int) -> Array:
    """Every a b as `new`; of a a a, with a = b, the first two."""
    places = np.flatnonzero((ids[:-1] == a) & (ids[1:] == b))
    run = np.cumsum(np.diff(places, prepend=-2) != 1)  # of a run of neighbouring places every other one
    first = np.flatnonzero(np.diff(run, prepend=0))
    places = places[(np.arange(len(places)) - first[run - 1]) % 2 == 0]
    ids[places] = new
    return np.delete(ids, places + 1)


def merge_pairs(ids: Iterable[int], rank: Callable[[int, int], tuple[float, int] | None]) -> list[int]:
    """Join the pair of smallest rank, the leftmost of equals, until no pair of neighbours is known.

    rank(a, b) gives a pair's rank and the id that it becomes, or None. Each id knows the place of its left
    and right neighbour, and a heap holds the pairs, so that n ids take about n log n steps.
    """
    tokens: list[int] = list(ids)
    left, right = list(range(-1, len(tokens) - 1)), list(range(1, len(tokens) + 1))
    heap: list[tuple[float, int, int, int, int]] = []

    def offer(i: int) -> None:
        if i >= 0 and right[i] < len(tokens):
            found = rank(tokens[i], tokens[right[i]])
            if found is not None:
                heappush(heap, (found[0], i, tokens[i], tokens[right[i]], found[1]))

    for i in range(len(tokens)):
        offer(i)
    while heap:
        _, i, a, b, new = heappop(heap)
        j = right[i]
        if j < len(tokens) and (tokens[i], tokens[j]) == (a, b):  # neither has been joined meanwhile
            tokens[i], tokens[j], right[i] = new, GONE, right[j]
            if right[i] < len(tokens):
                left[right[i]] = i
            offer(left[i])
            offer(i)
    return [token for token in tokens if token != GONE]


GONE = -1  # no id: its letters belong to the one on its left


def as_bytes(function: str, text: Any, argument: str = "text") -> bytes:
    """The UTF-8 bytes of a text; bytes are taken as they are."""
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise TypeError(f"{function}: {argument} is {kind_of(text)}; expected a string")
    try:
        return text.encode()
    except UnicodeEncodeError:
        expected = "text that UTF-8 can write"
        message = f"{function}: {argument} holds half of a surrogate pair; expected {expected}"
        raise ValueError(message) from None


def join_pieces(function: str, ids: Iterable[int], pieces: Sequence[bytes], argument: str = "an id") -> bytes:
    """The pieces of the ids, one after the other; an id that names none is refused."""
    return b"".join(pieces[i] for i in known_ids(function, ids, len(pieces), argument))


def known_ids(function: str, ids: Iterable[int], n: int, argument: str = "an id") -> list[int]:
    """The ids as a list, each of them of one of n pieces."""
    numbers = ids.tolist() if isinstance(ids, np.ndarray) and ids.ndim == 1 else ids
    if isinstance(numbers, str | bytes | np.ndarray) or not isinstance(numbers, Iterable):
        raise TypeError(f"{function}: ids is {kind_of(ids)}; expected a list of integers")
    numbers = list(numbers)
    for number in numbers:
        check_integer(function, argument, number, 0)
        if number >= n:
            raise ValueError(f"{function}: {argument} is {number}; expected ids from 0 to {n - 1}")
    return numbers
