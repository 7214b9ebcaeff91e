"""Published causal models in the file layout of llama2.c, and the tokenizer that comes with them."""

import math
import struct
from collections.abc import Iterable, Sized
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npformer.arrays import Array
from npformer.modern.byte_pairs import as_bytes, known_ids, merge_pairs
from npformer.modern.causal_lm import CausalLMConfig, CausalLMParams
from npformer.pretrained.llama import causal_lm_table
from npformer.pretrained.named_arrays import Entry, config_from, entries, existing, from_names, sizes_of
from npformer.validation.annotations import Count
from npformer.validation.signature import check_value

if TYPE_CHECKING:
    from pathlib import Path  # all that reads files is imported where it is read: not everybody has a model

HEADER = 7 * 4  # seven whole numbers of four bytes
START, STOP = 1, 2  # the ids before and after a text
SPACE = "▁".encode()  # how some files write the space before a word
FIRST_BYTE, FIRST_PIECE = 3, 3 + 256  # before them the two above and "unknown"


class Llama2cTokenizer(NamedTuple):
    """Pieces of text with scores: the two neighbours whose joined piece scores highest are joined first."""

    pieces: tuple[bytes, ...]
    scores: tuple[float, ...]
    ids: dict[bytes, int]  # of the pieces that letters can form: not of the bytes, nor of the marks

    def __repr__(self) -> str:
        return f"Llama2cTokenizer({len(self.pieces)} pieces)"

    def encode(self, text: str, *, start: bool = True) -> list[int]:
        """The ids of a text. start=True writes the start's id and a space first, as in the texts of training.

        A letter that is no piece is written as its UTF-8 bytes, ids 3 to 258.
        """
        as_bytes("encode", text)
        letters = [letter.encode() for letter in (" " * (start and text != "")) + text]
        rows = ([self.ids[x]] if x in self.ids else [FIRST_BYTE + byte for byte in x] for x in letters)
        return [START] * start + merge_pairs((i for row in rows for i in row), self._rank)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, without start and stop, and without the space that `encode` puts at the start."""
        kept = [i for i in known_ids("decode", ids, len(self.pieces)) if i != STOP]
        pairs = zip([STOP, *kept], kept, strict=False)
        pieces = [self.pieces[i].removeprefix(b" " * (before == START)) for before, i in pairs if i != START]
        return b"".join(pieces).decode("utf-8", "replace")

    def _rank(self, a: int, b: int) -> tuple[float, int] | None:
        """Minus the joined piece's score, and its id; the bytes of an unknown letter are never joined."""
        if min(a, b) < FIRST_PIECE:
            return None
        joined = self.ids.get(self.pieces[a] + self.pieces[b])
        return None if joined is None else (-self.scores[joined], joined)


def load_llama2c(
    model_file: Any, tokenizer_file: Any = None
) -> tuple[CausalLMParams, CausalLMConfig, Llama2cTokenizer | None]:
    """A model in the first layout of llama2.c (its .bin files) as params, config, tokenizer or None.

    Seven whole numbers, d_model, d_ff, n_layers, n_heads, n_kv_heads, vocab_size (negative: with an own head)
    and max_length, then the weights as float32, each W with its outputs as rows. They stay in the file: the
    arrays are views of it, read when they are first used. A tokenizer file has a score, a length and the
    bytes of each piece. The stories15M of this layout: `npformer fetch stories`.

    Raises FileNotFoundError for a file that is not there, ValueError for one that is cut off or describes
    something else, before any weight is read.

    >>> load_llama2c("no/such/model.bin")
    Traceback (most recent call last):
        ...
    FileNotFoundError: load_llama2c: there is no file no/such/model.bin
    """
    file = existing("load_llama2c", "model_file", model_file)
    config, vocab_size = _read_header(file)
    shapes = _shapes(config, vocab_size, [0])
    numbers = sum(math.prod(shape) * (config.n_layers if "/" in x else 1) for x, shape in shapes.items())
    found, expected = file.stat().st_size, HEADER + 4 * numbers
    if found != expected:
        raise ValueError(f"load_llama2c: {file} has {found} bytes; expected {expected}, as its header says")
    tokenizer = None if tokenizer_file is None else _read_tokenizer(tokenizer_file, vocab_size)
    blocks = range(config.n_layers)
    names, arrays = causal_lm_table(NAMES, config, blocks), _arrays(file, _shapes(config, vocab_size, blocks))
    return from_names("load_llama2c", file, names, arrays, sizes_of(config)), config, tokenizer


def _read_header(file: "Path") -> tuple[CausalLMConfig, int]:
    """The sizes that the file begins with, and the vocabulary's; anything else is refused."""
    header = np.fromfile(file, "<i4", HEADER // 4).tolist()
    if len(header) < HEADER // 4:
        size = file.stat().st_size
        raise ValueError(f"load_llama2c: {file} has {size} bytes; expected a header of {HEADER}")
    *sizes, vocab_size, T = header
    said, of = dict(zip(SIZES, sizes, strict=True)), f"{file}, read in llama2.c's first layout"
    config = config_from("load_llama2c", of, said, SIZES, CausalLMConfig, max_length=T, tied=vocab_size > 0)
    check_value("load_llama2c", f"{of}: vocab_size", abs(vocab_size), Count)
    return config, abs(vocab_size)


SIZES = {letter: letter for letter in ("d_model", "d_ff", "n_layers", "n_heads", "n_kv_heads")}
NAMES = "E  W_Q/{} W_K/{} W_V/{} W_O/{} - - - - norm_1/{} W_gate/{} W_up/{} W_down/{} norm_2/{}  norm head"
IN_ORDER = "E norm_1 W_Q W_K W_V W_O norm_2 W_gate W_down W_up norm angles head".split()
ANGLES = Entry("angles", ("max_length", "d_k"), False)  # cosines and sines of an older program, not used


def _shapes(config: CausalLMConfig, vocab_size: int, blocks: Sized) -> dict[str, tuple[int, ...]]:
    """What the file holds, in its order: of a block's array all blocks', one after the other."""
    sizes = sizes_of(config, vocab_size=vocab_size, d_k=config.d_model // config.n_heads)
    held = [*entries(causal_lm_table(NAMES, config, blocks)), ANGLES]
    held.sort(key=lambda entry: IN_ORDER.index(entry.name.partition("/")[0]))
    return {name: tuple(sizes[letter] for letter in letters) for name, letters, _ in held}


def _arrays(file: "Path", shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    """Views of the file's numbers."""
    numbers = np.asarray(np.memmap(file, "<f4", "r", HEADER))
    parts = np.split(numbers, np.cumsum([math.prod(shape) for shape in shapes.values()]))
    rows = zip(shapes.items(), parts, strict=False)
    return {name: part.reshape(shape) for (name, shape), part in rows if name != ANGLES.name}


def _read_tokenizer(path: Any, vocab_size: int) -> Llama2cTokenizer:
    """After one number, the longest piece's length: score, length and bytes of each piece."""
    file = existing("load_llama2c", "tokenizer_file", path)
    data, at = file.read_bytes(), 4
    pieces: list[bytes] = []
    scores: list[float] = []
    while len(pieces) < vocab_size and at + 8 <= len(data):
        score, length = struct.unpack_from("<fi", data, at)
        if length < 0:
            break
        pieces.append(data[at + 8 : at + 8 + length].replace(SPACE, b" "))
        scores.append(score)
        at += 8 + length
    if len(pieces) < vocab_size or at != len(data):
        words = f"ends or goes on after {len(pieces)} pieces; expected exactly {vocab_size}, as the model has"
        raise ValueError(f"load_llama2c: {file} {words}")
    pieces[FIRST_BYTE:FIRST_PIECE] = [bytes([byte]) for byte in range(256)][: len(pieces) - FIRST_BYTE]
    ids = {piece: i for i, piece in enumerate(pieces) if i >= FIRST_PIECE}
    return Llama2cTokenizer(tuple(pieces), tuple(scores), ids)
