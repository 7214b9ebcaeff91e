"""A published byte-level vocabulary, as GPT-2's: words first, then merges by rank, marks as they are."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from unicodedata import category

from npformer.modern.byte_pairs import as_bytes, join_pieces, merge_pairs


class Vocabulary(NamedTuple):
    """The bytes of each id, the ids that two neighbours become, and the marks that are no text."""

    pieces: tuple[bytes, ...]
    ranks: dict[tuple[int, int], tuple[int, int]]  # two ids: the rank of their merge, and the id they become
    bytes: dict[int, int]  # the id of each byte; some vocabularies lack those that no text has
    marks: dict[str, int]  # <|im_start|> and its like
    digits_alone: bool  # 2026 as four words
    stop_id: int | None = None
    chat_template: str | None = None  # how a conversation is written, for Jinja; nothing here runs it

    def __repr__(self) -> str:
        return f"Vocabulary({len(self.pieces)} pieces, {len(self.marks)} marks)"

    def encode(self, text: str, *, marks: bool = True) -> list[int]:
        """The ids of a text; with marks=False a mark that a text spells is text, whoever wrote it.

        A byte that the vocabulary lacks is left out, as by the readers of those who made it.
        """
        as_bytes("encode", text)
        known = sorted(self.marks, key=len, reverse=True) if marks else []  # of two that fit, the longer
        ids: list[int] = []
        for part in re.split(f"({'|'.join(map(re.escape, known))})", text) if known else [text]:
            ids += [self.marks[part]] if part in known else self._word_ids(part)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids; a byte that is no part of a letter becomes �."""
        return join_pieces("decode", ids, self.pieces).decode("utf-8", "replace")

    def _word_ids(self, part: str) -> Iterator[int]:
        for word in words(part, self.digits_alone):
            letters = [self.bytes[byte] for byte in word.encode() if byte in self.bytes]
            yield from merge_pairs(letters, lambda a, b: self.ranks.get((a, b)))


ENDING = re.compile("'(?:s|t|re|ve|m|ll|d)")
WORD = re.compile(r" ?L+| ?N+| ?O+|[ _]+(?![LNO])|[ _]+")  # over the kinds of the letters


def words(text: str, digits_alone: bool = False) -> Iterator[str]:
    """The text cut where GPT-2 cuts it: a space goes to the word behind it, letters, digits and signs apart.

    Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.2: no merge
    crosses such a cut.

    >>> list(words("I'd say 42  times!"))
    ['I', "'d", ' say', ' 42', ' ', ' times', '!']
    >>> list(words("say 42", digits_alone=True))
    ['say', ' ', '4', '2']
    """
    kinds, i = "".join(map(_kind, text)), 0
    while i < len(text):
        end = i + 1
        if not (digits_alone and kinds[i] == "N"):
            stop = kinds.find("N", i) if digits_alone else -1
            stop = len(text) if stop == -1 else stop
            found = ENDING.match(text, i, stop) or WORD.match(kinds, i, stop)
            end = found.end() if found else stop
        yield text[i:end]
        i = end


def _kind(letter: str) -> str:
    """L a letter, N a number, a space, _ other white space, O any other sign."""
    if letter == " ":
        return " "
    kind = category(letter)[0]
    return kind if kind in "LN" else "_" if letter.isspace() and letter not in "\x1c\x1d\x1e\x1f" else "O"


def _letters_of_bytes() -> str:
    """How GPT-2's files write the 256 bytes: one that prints as itself, another as a letter from Ā on."""
    prints = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return "".join(chr(byte if byte in prints else next(others)) for byte in range(256))


LETTERS = _letters_of_bytes()
BYTES = {letter: byte for byte, letter in enumerate(LETTERS)}


def vocabulary(
    tokens: list[str], merges: list[str], marks: dict[str, int], digits_alone: bool = False
) -> Vocabulary:
    """From the lists in a file: the tokens in the order of their ids, and merges as "Ġ t", the first first.

    Raises KeyError for a merge of tokens that are not there.
    """
    ids = {token: i for i, token in enumerate(tokens)}
    ranks: dict[tuple[int, int], tuple[int, int]] = {}
    for rank, merge in enumerate(merges):
        a, b = merge.split(" ")
        ranks.setdefault((ids[a], ids[b]), (rank, ids[a + b]))
    pieces = tuple(x.encode() if x in marks else bytes(BYTES[letter] for letter in x) for x in tokens)
    first = {byte: ids[letter] for byte, letter in enumerate(LETTERS) if letter in ids}
    return Vocabulary(pieces, ranks, first, marks, digits_alone)
