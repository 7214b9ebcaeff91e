"""Byte-level BPE as in GPT-2: a text is split into words, and then the bytes of each word are merged."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from unicodedata import category

from npformer.modern.byte_pairs import as_bytes, join_pieces, merge_pairs


class Vocabulary(NamedTuple):
    """The byte-level BPE vocabulary of a pretrained model."""

    pieces: tuple[bytes, ...]  # the bytes of each token, by id
    ranks: dict[
        tuple[int, int], tuple[int, int]
    ]  # for two neighbouring ids that can merge: the rank of the merge, and the merged id
    bytes: dict[int, int]  # the id of each byte; some vocabularies lack a few of the 256 bytes
    special_tokens: dict[str, int]  # the special tokens, such as <|im_start|>, and their ids
    digits_alone: bool  # whether each digit is a separate word: then 2026 is four words
    stop_id: int | None = None
    chat_template: str | None = None  # a Jinja template for conversations, which is never executed

    def __repr__(self) -> str:
        return f"Vocabulary({len(self.pieces)} tokens, {len(self.special_tokens)} special tokens)"

    def encode(self, text: str, *, with_special_tokens: bool = True) -> list[int]:
        """Convert a text to ids.

        A byte that the vocabulary lacks is left out, as in the model's original tokenizer.

        Parameters
        ----------
        text : str
        with_special_tokens : bool
            Whether special tokens in the text become their ids. If False, they are encoded as ordinary text,
            so that a user cannot insert special tokens.

        Returns
        -------
        ids : list of int
        """
        as_bytes("encode", text)
        ids: list[int] = []
        special_tokens = self.special_tokens if with_special_tokens else {}
        for part in _split_special_tokens(text, special_tokens):
            if part in special_tokens:
                ids.append(special_tokens[part])
            else:
                ids += self._encode_words(part)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Convert ids to a text. Bytes that are not valid UTF-8 become �.

        Parameters
        ----------
        ids : iterable of int

        Returns
        -------
        text : str
        """
        return join_pieces("decode", ids, self.pieces).decode("utf-8", "replace")

    def _encode_words(self, text: str) -> Iterator[int]:
        """Yield the ids of a text without special tokens, word by word."""
        for word in split_words(text, self.digits_alone):
            byte_ids = [self.bytes[byte] for byte in word.encode() if byte in self.bytes]
            yield from merge_pairs(byte_ids, self._rank_pair)

    def _rank_pair(self, a: int, b: int) -> tuple[int, int] | None:
        """Return the rank of the merge of two ids and the merged id, or None if the two ids cannot merge."""
        return self.ranks.get((a, b))


def _split_special_tokens(text: str, special_tokens: Iterable[str]) -> list[str]:
    """Split a text before and after each special token. If two special tokens match, the longer one wins."""
    longest_first = sorted(special_tokens, key=len, reverse=True)
    if not longest_first:
        return [text]
    alternatives = "|".join(re.escape(token) for token in longest_first)
    return re.split(f"({alternatives})", text)


ENDING = re.compile("'(?:s|t|re|ve|m|ll|d)")  # English endings, such as 'd in I'd
WORD = re.compile(r" ?L+| ?N+| ?O+|[ _]+(?![LNO])|[ _]+")  # matches the classes from `_classify_character`


def split_words(text: str, digits_alone: bool = False) -> Iterator[str]:
    """Split a text into words as GPT-2 does. Tokens of different words are never merged.

    A run of letters, of digits or of other characters is one word. A space belongs to the word after it.
    Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.2.

    Parameters
    ----------
    text : str
    digits_alone : bool
        Whether each digit is a word.

    Yields
    ------
    word : str

    Examples
    --------
    >>> list(split_words("I'd say 42  times!"))
    ['I', "'d", ' say', ' 42', ' ', ' times', '!']
    >>> list(split_words("say 42", digits_alone=True))
    ['say', ' ', '4', '2']
    """
    classes = "".join(_classify_character(character) for character in text)
    start = 0
    while start < len(text):
        end = _find_word_end(text, classes, start, digits_alone)
        yield text[start:end]
        start = end


def _find_word_end(text: str, classes: str, start: int, digits_alone: bool) -> int:
    """Return the index after the last character of the word that begins at `start`."""
    limit = len(text)
    if digits_alone:
        if classes[start] == "N":
            return start + 1
        next_digit = classes.find("N", start)
        if next_digit != -1:
            limit = next_digit
    match = ENDING.match(text, start, limit) or WORD.match(classes, start, limit)
    return match.end() if match else limit


def _classify_character(character: str) -> str:
    """Return L for a letter, N for a number, " " for a space, _ for other white space, O for the rest."""
    if character == " ":
        return " "
    major_category = category(character)[0]
    if major_category in "LN":
        return major_category
    is_separator = character in "\x1c\x1d\x1e\x1f"  # white space for Python, but not for GPT-2
    return "_" if character.isspace() and not is_separator else "O"


def _list_byte_characters() -> list[str]:
    """Return the character that represents each of the 256 bytes in GPT-2's files.

    A printable byte is represented by its own character. The other bytes are represented by Ā, ā, Ă, …
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    characters = []
    n_others = 0
    for byte in range(256):
        if byte in printable:
            characters.append(chr(byte))
        else:
            characters.append(chr(256 + n_others))
            n_others += 1
    return characters


CHARACTER_OF_BYTE = _list_byte_characters()
BYTE_OF_CHARACTER = {character: byte for byte, character in enumerate(CHARACTER_OF_BYTE)}


def make_vocabulary(
    tokens: list[str], merges: list[str], special_tokens: dict[str, int], digits_alone: bool = False
) -> Vocabulary:
    """Make a vocabulary from the lists of a file.

    `tokens` are in the order of their ids. `merges` are pairs such as "Ġ t", in the order of their ranks.
    Raises KeyError if a merge contains a token that is not in `tokens`.
    """
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    ranks: dict[tuple[int, int], tuple[int, int]] = {}
    for rank, merge in enumerate(merges):
        a, b = merge.split(" ")
        ranks.setdefault((ids[a], ids[b]), (rank, ids[a + b]))
    pieces = []
    for token in tokens:
        if token in special_tokens:
            pieces.append(token.encode())
        else:
            pieces.append(bytes(BYTE_OF_CHARACTER[character] for character in token))
    byte_ids = {byte: ids[character] for byte, character in enumerate(CHARACTER_OF_BYTE) if character in ids}
    return Vocabulary(tuple(pieces), ranks, byte_ids, special_tokens, digits_alone)
