"""Published causal models in the file layout of llama2.c, and the tokenizer that comes with them."""

import math
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npformer.arrays import Array
from npformer.attention import AttentionParams
from npformer.door.signature import check_value
from npformer.door.validate import kind_of
from npformer.embedding import EmbeddingParams
from npformer.modern.byte_pairs import as_bytes, join_pieces, merge_pairs
from npformer.modern.causal_lm import CausalBlockParams, CausalLMConfig, CausalLMParams
from npformer.modern.gated_ffn import GatedFFNParams
from npformer.modern.rms_norm import RMSNormParams

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
        ids = [
            i for letter in letters for i in ([self.ids[letter]] if letter in self.ids else _bytes(letter))
        ]
        return [START] * start + merge_pairs(ids, self._rank)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, without start and stop, and without the space that `encode` puts at the start."""
        text, *others = (join_pieces("decode", part, self.pieces) for part in _texts(ids))
        parts = [text, *(part.removeprefix(b" ") for part in others)]
        return b"".join(parts).decode("utf-8", "replace")

    def _rank(self, a: int, b: int) -> tuple[float, int] | None:
        """Minus the joined piece's score, and its id; the bytes of an unknown letter are never joined."""
        if min(a, b) < FIRST_PIECE:
            return None
        joined = self.ids.get(self.pieces[a] + self.pieces[b])
        return None if joined is None else (-self.scores[joined], joined)


def _bytes(letter: bytes) -> list[int]:
    return [FIRST_BYTE + byte for byte in letter]


def _texts(ids: Any) -> list[Any]:
    """What stands before the first start, and after each; without the stops."""
    if not isinstance(ids, list | tuple | np.ndarray) or getattr(ids, "ndim", 1) != 1:
        raise TypeError(f"decode: ids is {kind_of(ids)}; expected a list of integers")
    texts: list[list[Any]] = [[]]
    for i in ids:
        if i == START:
            texts.append([])
        elif i != STOP:
            texts[-1].append(i)
    return texts


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
    file = _file("model_file", model_file)
    config, vocab_size = _read_header(file)
    shapes = _shapes(config, vocab_size)
    found, expected = file.stat().st_size, HEADER + 4 * sum(map(math.prod, shapes.values()))
    if found != expected:
        raise ValueError(f"load_llama2c: {file} has {found} bytes; expected {expected}, as its header says")
    tokenizer = None
    if tokenizer_file is not None:
        tokenizer = _read_tokenizer(_file("tokenizer_file", tokenizer_file), vocab_size)
    return _params(_arrays(file, shapes), config), config, tokenizer


def _file(argument: str, path: Any) -> "Path":
    from pathlib import Path

    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"load_llama2c: {argument} is {kind_of(path)}; expected a string or a pathlib.Path")
    if not Path(path).is_file():
        raise FileNotFoundError(f"load_llama2c: there is no file {path}")
    return Path(path)


def _read_header(file: "Path") -> tuple[CausalLMConfig, int]:
    """The sizes that the file begins with, and the vocabulary's; anything else is refused."""
    with file.open("rb") as stream:
        header = stream.read(HEADER)
    if len(header) < HEADER:
        raise ValueError(f"load_llama2c: {file} has {len(header)} bytes; expected a header of {HEADER}")
    d_model, d_ff, n_layers, n_heads, n_kv_heads, vocab_size, T = np.frombuffer(header, "<i4").tolist()
    config = CausalLMConfig(d_model, d_ff, n_heads, n_kv_heads, n_layers, max_length=T, tied=vocab_size > 0)
    try:
        check_value("header", "config", config, CausalLMConfig)
        if vocab_size == 0:
            raise ValueError("header: vocab_size is 0; expected another number")
    except ValueError as error:
        wrong = str(error).removeprefix("header: ").removeprefix("config.")
        raise ValueError(f"load_llama2c: {file} is no model in llama2.c's first layout: {wrong}") from None
    return config, abs(vocab_size)


def _shapes(config: CausalLMConfig, vocab_size: int) -> dict[str, tuple[int, ...]]:
    """What the file holds, in its order; each W stands there with its outputs as rows."""
    d, f, n, d_k = config.d_model, config.d_ff, config.n_layers, config.d_model // config.n_heads
    d_kv = d_k * config.n_kv_heads
    shapes: dict[str, tuple[int, ...]] = {
        "E": (vocab_size, d),
        "norm_1": (n, d),
        "W_Q": (n, d, d),
        "W_K": (n, d_kv, d),
        "W_V": (n, d_kv, d),
        "W_O": (n, d, d),
        "norm_2": (n, d),
        "W_gate": (n, f, d),
        "W_down": (n, d, f),
        "W_up": (n, f, d),
        "norm": (d,),
        "angles": (2, config.max_length, d_k // 2),  # cosines and sines of an older program, not used
    }
    return shapes if config.tied else shapes | {"head": (vocab_size, d)}


def _arrays(file: "Path", shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    """Views of the file's numbers, each W turned over: (..., d_in, d_out)."""
    numbers = np.asarray(np.memmap(file, "<f4", "r", HEADER))
    arrays, start = {}, 0
    for name, shape in shapes.items():
        array = numbers[start : start + math.prod(shape)].reshape(shape)
        arrays[name] = array.swapaxes(-1, -2) if name.startswith("W") or name == "head" else array
        start += array.size
    return arrays


OF_A_BLOCK = ("norm_1", "W_Q", "W_K", "W_V", "W_O", "norm_2", "W_gate", "W_down", "W_up")  # a row a block


def _params(arrays: dict[str, Array], config: CausalLMConfig) -> CausalLMParams:
    def block(i: int) -> CausalBlockParams:
        norm_1, W_Q, W_K, W_V, W_O, norm_2, gate, down, up = (arrays[name][i] for name in OF_A_BLOCK)
        return CausalBlockParams(
            AttentionParams(W_Q, W_K, W_V, W_O),
            RMSNormParams(norm_1),
            GatedFFNParams(gate, up, down),
            RMSNormParams(norm_2),
        )

    blocks = tuple(block(i) for i in range(config.n_layers))
    return CausalLMParams(
        EmbeddingParams(arrays["E"]), blocks, RMSNormParams(arrays["norm"]), arrays.get("head")
    )


def _read_tokenizer(file: "Path", vocab_size: int) -> Llama2cTokenizer:
    """After one number, the longest piece's length: score, length and bytes of each piece."""
    data, at = file.read_bytes(), 4
    pieces: list[bytes] = []
    scores: list[float] = []
    while len(pieces) < vocab_size and at + 8 <= len(data):
        length = int(np.frombuffer(data, "<i4", 1, at + 4)[0])
        if length < 0 or at + 8 + length > len(data):
            break
        pieces.append(data[at + 8 : at + 8 + length].replace(SPACE, b" "))
        scores.append(float(np.frombuffer(data, "<f4", 1, at)[0]))
        at += 8 + length
    if len(pieces) < vocab_size or at != len(data):
        raise ValueError(
            f"load_llama2c: {file} ends or goes on after {len(pieces)} pieces; "
            f"expected exactly {vocab_size}, the model's vocabulary"
        )
    pieces[FIRST_BYTE:FIRST_PIECE] = [bytes([byte]) for byte in range(256)][: len(pieces) - FIRST_BYTE]
    ids = {piece: i for i, piece in enumerate(pieces) if i >= FIRST_PIECE}
    return Llama2cTokenizer(tuple(pieces), tuple(scores), ids)
