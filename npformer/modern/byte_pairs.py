"""Byte-pair encoding: a vocabulary that grows by merging the most frequent pair of neighbouring tokens."""

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from npformer.arrays import Array
from npformer.validation.annotations import Length
from npformer.validation.checks import check_integer, describe_value

BYTES = 256  # The ids 0 to 255 are the bytes.


class BytePairs(NamedTuple):
    """A vocabulary of 256 bytes and one token for each merge.

    Attributes
    ----------
    merges : tuple of pairs of ids
        The token with the id 256 + i joins the two tokens of ``merges[i]``.
    """

    merges: tuple[tuple[int, int], ...]

    @property
    def pieces(self) -> list[bytes]:
        """The bytes of each token, by id. A merged token has a larger id than each of its two parts."""
        pieces = [bytes([byte]) for byte in range(BYTES)]
        for i, (a, b) in enumerate(self.merges):
            pieces.append(join_pieces("BytePairs", (a, b), pieces, f"merges[{i}]"))
        return pieces

    def encode(self, text: str | bytes) -> list[int]:
        """Convert a text to ids: merge its UTF-8 bytes pair by pair, in the order of the merges.

        Parameters
        ----------
        text : str or bytes

        Returns
        -------
        ids : list of int

        Examples
        --------
        >>> train_byte_pairs("low lower", 2).encode("slow")
        [115, 257]
        """
        ranks = {pair: i for i, pair in enumerate(self.merges)}

        def find_merge(a: int, b: int) -> tuple[int, int] | None:
            rank = ranks.get((a, b))
            return None if rank is None else (rank, BYTES + rank)

        return merge_pairs(as_bytes("encode", text), find_merge)

    def decode(self, ids: Iterable[int]) -> str:
        """Convert ids to a text. Bytes that are not valid UTF-8, such as half a character, become �.

        Parameters
        ----------
        ids : list or array of int

        Returns
        -------
        text : str

        Raises
        ------
        TypeError
            If ids is not a list of integers.
        ValueError
            If an id is not in the vocabulary.

        Examples
        --------
        >>> train_byte_pairs("low lower", 2).decode([115, 257])
        'slow'
        """
        return join_pieces("decode", ids, self.pieces).decode("utf-8", "replace")


def train_byte_pairs(text: str | bytes, n_merges: Length) -> BytePairs:
    """Merge the most frequent pair of neighbours, n_merges times: aaabdaaabac → ZabdZabac → ZYdZYac → …

    Gage, "A New Algorithm for Data Compression", 1994. Sennrich et al., "Neural Machine Translation of Rare
    Words with Subword Units", 2016, algorithm 1. The first tokens are the UTF-8 bytes of the text, so every
    text can be encoded. If several pairs are equally frequent, the pair with the smallest ids is merged.

    Parameters
    ----------
    text : str or bytes
        The training text.
    n_merges : int
        The number of merges. Training stops earlier if no pair occurs twice.

    Returns
    -------
    tokenizer : BytePairs
        It has the methods ``encode(text)`` and ``decode(ids)``.

    Examples
    --------
    >>> train_byte_pairs("aaabdaaabac", 3).pieces[256:]
    [b'aa', b'ab', b'aaab']
    """
    ids = np.frombuffer(as_bytes("train_byte_pairs", text, "text"), np.uint8).astype(np.int64)  # (N,)
    merges: list[tuple[int, int]] = []
    for new_id in range(BYTES, BYTES + n_merges):
        # All ids are below new_id, so a · new_id + b is a different number for each pair (a, b).
        pairs, counts = np.unique(ids[:-1] * new_id + ids[1:], return_counts=True)
        if counts.size == 0 or counts.max() == 1:
            break
        a, b = divmod(int(pairs[counts.argmax()]), new_id)
        merges.append((a, b))
        ids = _merge_pair(ids, a, b, new_id)
    return BytePairs(tuple(merges))


def _merge_pair(ids: Array, a: int, b: int, new_id: int) -> Array:
    """Replace each pair (a, b) by new_id, from left to right: if a = b, (a, a, a) becomes (new_id, a).

    Returns a new array that is shorter. The array `ids` (N,) is overwritten too.
    """
    starts = np.flatnonzero((ids[:-1] == a) & (ids[1:] == b))  # the positions where the pair starts
    # If a = b, a run of pairs overlaps: the pairs start at p, p + 1, p + 2, … Only every second pair can
    # merge.
    run_number = np.cumsum(np.diff(starts, prepend=-2) != 1)  # 1, 1, 2, …: the run of each start
    first_of_run = np.flatnonzero(np.diff(run_number, prepend=0))  # the index of each run's first start
    index_in_run = np.arange(len(starts)) - first_of_run[run_number - 1]
    starts = starts[index_in_run % 2 == 0]
    ids[starts] = new_id
    return np.delete(ids, starts + 1)


def merge_pairs(ids: Iterable[int], find_merge: Callable[[int, int], tuple[float, int] | None]) -> list[int]:
    """Merge the pair of neighbours with the smallest rank, again and again, until no pair can be merged.

    ``find_merge(a, b)`` returns the rank of a pair and the id of the merged token, or None. Of several pairs
    with the same rank, the leftmost is merged first. The tokens form a linked list, and a heap contains the
    pairs. So the time for n ids is O(n log n).
    """
    tokens: list[int] = list(ids)
    left = list(range(-1, len(tokens) - 1))  # the position of each token's left neighbour
    right = list(range(1, len(tokens) + 1))  # the position of each token's right neighbour
    heap: list[tuple[float, int, int, int, int]] = []  # (rank, position, a, b, merged id)

    def push_pair(i: int) -> None:
        if i >= 0 and right[i] < len(tokens):
            a, b = tokens[i], tokens[right[i]]
            merge = find_merge(a, b)
            if merge is not None:
                rank, merged = merge
                heappush(heap, (rank, i, a, b, merged))

    for i in range(len(tokens)):
        push_pair(i)
    while heap:
        _, i, a, b, merged = heappop(heap)
        j = right[i]
        is_current = j < len(tokens) and (tokens[i], tokens[j]) == (a, b)  # Merges may have changed the pair.
        if is_current:
            _merge_tokens(tokens, left, right, i, merged)
            push_pair(left[i])
            push_pair(i)
    return [token for token in tokens if token != MERGED_AWAY]


MERGED_AWAY = -1  # not an id: this token has become part of the token on its left


def _merge_tokens(tokens: list[int], left: list[int], right: list[int], i: int, merged: int) -> None:
    """Replace the token at position i and its right neighbour by one token, in place."""
    j = right[i]
    tokens[i] = merged
    tokens[j] = MERGED_AWAY
    right[i] = right[j]
    if right[i] < len(tokens):
        left[right[i]] = i


def as_bytes(function: str, text: Any, argument: str = "text") -> bytes:
    """Convert a text to its UTF-8 bytes. Bytes are returned as they are."""
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise TypeError(f"{function}: {argument} is {describe_value(text)}; expected a string")
    try:
        return text.encode()
    except UnicodeEncodeError:
        expected = "text that UTF-8 can write"
        message = f"{function}: {argument} holds half of a surrogate pair; expected {expected}"
        raise ValueError(message) from None


def join_pieces(function: str, ids: Iterable[int], pieces: Sequence[bytes], argument: str = "an id") -> bytes:
    """Join the bytes of the tokens with these ids. Raises ValueError for an id without a token."""
    return b"".join(pieces[i] for i in check_ids(function, ids, len(pieces), argument))


def check_ids(function: str, ids: Iterable[int], n: int, argument: str = "an id") -> list[int]:
    """Return the ids as a list, and raise an error if one is not an integer from 0 to n - 1."""
    numbers: Any = ids
    if isinstance(ids, np.ndarray) and ids.ndim == 1:
        numbers = ids.tolist()
    if isinstance(numbers, str | bytes | np.ndarray) or not isinstance(numbers, Iterable):
        raise TypeError(f"{function}: ids is {describe_value(ids)}; expected a list of integers")
    numbers = list(numbers)
    for number in numbers:
        check_integer(function, argument, number, 0)
        if number >= n:
            raise ValueError(f"{function}: {argument} is {number}; expected ids from 0 to {n - 1}")
    return numbers
