"""Load causal models in the file layout of llama2.c, and the tokenizer that comes with them."""

import math
import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npformer.arrays import Array
from npformer.modern.byte_pairs import as_bytes, check_ids, merge_pairs
from npformer.modern.causal_lm import CausalLMConfig, CausalLMParams
from npformer.pretrained.llama import build_causal_lm_names
from npformer.pretrained.named_arrays import (
    Entry,
    build_config,
    build_tree,
    get_sizes,
    iter_entries,
    require_file,
)
from npformer.validation.annotations import Count
from npformer.validation.signature import check_value

if TYPE_CHECKING:
    from pathlib import Path  # imported for annotations only, to keep `import npformer` fast

HEADER_NUMBERS = 7
HEADER_BYTES = HEADER_NUMBERS * 4
START_ID, STOP_ID = 1, 2  # the special tokens before and after a text
SPACE_SYMBOL = "▁".encode()  # some files write a space before a word as this character
FIRST_BYTE_ID = 3  # ids 0 to 2 are "unknown", start and stop
FIRST_PIECE_ID = FIRST_BYTE_ID + 256


class Llama2cTokenizer(NamedTuple):
    """A tokenizer whose pieces have scores: it merges the pair with the highest score first."""

    pieces: tuple[bytes, ...]
    scores: tuple[float, ...]
    ids: dict[bytes, int]  # the id of each piece, except special tokens and the 256 single bytes

    def __repr__(self) -> str:
        return f"Llama2cTokenizer({len(self.pieces)} tokens)"

    def encode(self, text: str, *, start: bool = True) -> list[int]:
        """Convert a text to ids.

        A character that is not a piece becomes its UTF-8 bytes, with the ids 3 to 258.

        Parameters
        ----------
        text : str
        start : bool
            Whether to put the start id and a space before the text, as in training.

        Returns
        -------
        ids : list of int
        """
        as_bytes("encode", text)
        ids = [START_ID] if start else []
        if start and text != "":
            text = " " + text
        return ids + merge_pairs(self._character_ids(text), self._rank_pair)

    def decode(self, ids: Iterable[int]) -> str:
        """Convert ids to a text without start and stop tokens and without the space that `encode` adds.

        Parameters
        ----------
        ids : iterable of int

        Returns
        -------
        text : str
        """
        pieces = []
        is_at_start = False
        for token_id in check_ids("decode", ids, len(self.pieces)):
            if token_id == STOP_ID:
                continue
            if token_id != START_ID:
                piece = self.pieces[token_id]
                pieces.append(piece.removeprefix(b" ") if is_at_start else piece)
            is_at_start = token_id == START_ID
        return b"".join(pieces).decode("utf-8", "replace")

    def _character_ids(self, text: str) -> Iterator[int]:
        """Yield the id of each character, or the ids of its bytes."""
        for character in text:
            piece = character.encode()
            if piece in self.ids:
                yield self.ids[piece]
            else:
                yield from (FIRST_BYTE_ID + byte for byte in piece)

    def _rank_pair(self, a: int, b: int) -> tuple[float, int] | None:
        """Return the rank (minus the score) and the id of a merge, or None if the two ids cannot merge."""
        if min(a, b) < FIRST_PIECE_ID:  # the bytes of an unknown character are never merged
            return None
        merged_id = self.ids.get(self.pieces[a] + self.pieces[b])
        if merged_id is None:
            return None
        return -self.scores[merged_id], merged_id


def load_llama2c(
    model_file: Any, tokenizer_file: Any = None
) -> tuple[CausalLMParams, CausalLMConfig, Llama2cTokenizer | None]:
    """Load a model in the first layout of llama2.c (its .bin files).

    The file has seven integers and then the weights as float32, each weight matrix as (d_out, d_in). The
    integers are d_model, d_ff, n_layers, n_heads, n_kv_heads, vocab_size and max_length. A negative
    vocab_size means that the model has its own output matrix. A tokenizer file has a score, a length and the
    bytes of each piece. `npformer fetch stories` downloads the model stories15M, which has this layout.

    Parameters
    ----------
    model_file : str or path
    tokenizer_file : str or path, optional

    Returns
    -------
    params : CausalLMParams
        Views of the file: the weights are read when they are first used.
    config : CausalLMConfig
    tokenizer : Llama2cTokenizer or None
        None without a tokenizer file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If a file is truncated or not in this layout. The sizes are checked before any weight is read.

    Examples
    --------
    >>> load_llama2c("no/such/model.bin")
    Traceback (most recent call last):
        ...
    FileNotFoundError: load_llama2c: there is no file no/such/model.bin
    """
    file = require_file("load_llama2c", "model_file", model_file)
    config, vocab_size = _read_header(file)
    _check_file_size(file, config, vocab_size)
    tokenizer = None
    if tokenizer_file is not None:
        tokenizer = _read_tokenizer(tokenizer_file, vocab_size)
    names = _build_names(config, config.n_layers)
    arrays = _map_arrays(file, _list_shapes(config, vocab_size, config.n_layers))
    params = build_tree("load_llama2c", file, names, arrays, get_sizes(config))
    return params, config, tokenizer


def _read_header(file: "Path") -> tuple[CausalLMConfig, int]:
    """Read the config and vocab_size. Raises ValueError if the numbers describe no model."""
    header = np.fromfile(file, "<i4", HEADER_NUMBERS).tolist()
    if len(header) < HEADER_NUMBERS:
        size = file.stat().st_size
        raise ValueError(f"load_llama2c: {file} has {size} bytes; expected a header of {HEADER_BYTES}")
    d_model, d_ff, n_layers, n_heads, n_kv_heads, signed_vocab_size, max_length = header
    settings = {
        "d_model": d_model,
        "d_ff": d_ff,
        "n_layers": n_layers,
        "n_heads": n_heads,
        "n_kv_heads": n_kv_heads,
        "max_length": max_length,
        "tied": signed_vocab_size > 0,
    }
    fields = {name: name for name in settings}
    where = f"{file}, read in llama2.c's first layout"
    config = build_config("load_llama2c", where, settings, fields, CausalLMConfig)
    vocab_size = abs(signed_vocab_size)
    check_value("load_llama2c", f"{where}: vocab_size", vocab_size, Count)
    return config, vocab_size


# --- the weights ------------------------------------------------------------------------------------

FILE_ORDER = (  # the order in the file; "blocks.{}" stands for all blocks, one after the other
    "embedding.E",
    "blocks.{}.norm_1.gamma",
    "blocks.{}.attention.W_Q",
    "blocks.{}.attention.W_K",
    "blocks.{}.attention.W_V",
    "blocks.{}.attention.W_O",
    "blocks.{}.norm_2.gamma",
    "blocks.{}.ffn.W_gate",
    "blocks.{}.ffn.W_down",
    "blocks.{}.ffn.W_up",
    "norm.gamma",
    "angles",
    "head",
)
ANGLES = Entry("angles", ("max_length", "d_k"), False)  # RoPE's cosines and sines, which are skipped


def _build_names(config: CausalLMConfig, n_blocks: int) -> CausalLMParams:
    """Build the name tree. The layout has no names, so each array is named by its path in the tree."""
    return build_causal_lm_names({path: path for path in FILE_ORDER}, config, most_blocks=n_blocks)


def _list_shapes(config: CausalLMConfig, vocab_size: int, n_blocks: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of each array of the first blocks, by name, in the order of the file."""
    sizes = get_sizes(config, vocab_size=vocab_size, d_k=config.d_model // config.n_heads)
    entries = {entry.name: entry for entry in iter_entries(_build_names(config, n_blocks))}
    entries[ANGLES.name] = ANGLES
    shapes = {}
    for path in FILE_ORDER:
        names = [path]
        if path.startswith("blocks."):
            names = [path.format(i) for i in range(n_blocks)]
        for name in names:
            if name in entries:  # a model with tied embeddings has no head
                shapes[name] = tuple(sizes[dimension] for dimension in entries[name].dimensions)
    return shapes


def _check_file_size(file: "Path", config: CausalLMConfig, vocab_size: int) -> None:
    """Raise ValueError unless the file has as many bytes as its header requires."""
    n_numbers = 0
    for name, shape in _list_shapes(config, vocab_size, n_blocks=1).items():
        n_copies = config.n_layers if name.startswith("blocks.") else 1
        n_numbers += n_copies * math.prod(shape)
    found = file.stat().st_size
    expected = HEADER_BYTES + 4 * n_numbers
    if found != expected:
        raise ValueError(f"load_llama2c: {file} has {found} bytes; expected {expected}, as its header says")


def _map_arrays(file: "Path", shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    """Return the arrays as views of a memory map of the file, without RoPE's cosines and sines."""
    numbers = np.asarray(np.memmap(file, "<f4", "r", HEADER_BYTES))
    arrays = {}
    start = 0
    for name, shape in shapes.items():
        stop = start + math.prod(shape)
        if name != ANGLES.name:
            arrays[name] = numbers[start:stop].reshape(shape)
        start = stop
    return arrays


# --- the tokenizer ----------------------------------------------------------------------------------


def _read_tokenizer(path: Any, vocab_size: int) -> Llama2cTokenizer:
    """Read a tokenizer file. Raises ValueError unless it has exactly vocab_size pieces."""
    file = require_file("load_llama2c", "tokenizer_file", path)
    pieces, scores, is_complete = _read_pieces(file.read_bytes(), vocab_size)
    if not is_complete:
        problem = (
            f"ends or goes on after {len(pieces)} pieces; expected exactly {vocab_size}, as the model has"
        )
        raise ValueError(f"load_llama2c: {file} {problem}")
    single_bytes = [bytes([byte]) for byte in range(256)]
    n_bytes = len(pieces) - FIRST_BYTE_ID  # below 256 if the vocabulary is tiny
    pieces[FIRST_BYTE_ID:FIRST_PIECE_ID] = single_bytes[:n_bytes]
    ids = {piece: i for i, piece in enumerate(pieces) if i >= FIRST_PIECE_ID}
    return Llama2cTokenizer(tuple(pieces), tuple(scores), ids)


def _read_pieces(data: bytes, vocab_size: int) -> tuple[list[bytes], list[float], bool]:
    """Read at most vocab_size pieces and scores. Also return whether the data contain exactly this many.

    The data begin with the length of the longest piece. Then each piece has a score, a length and its bytes.
    """
    pieces: list[bytes] = []
    scores: list[float] = []
    position = 4
    while len(pieces) < vocab_size and position + 8 <= len(data):
        score, length = struct.unpack_from("<fi", data, position)
        if length < 0:
            break
        position += 8
        piece = data[position : position + length]
        pieces.append(piece.replace(SPACE_SYMBOL, b" "))
        scores.append(score)
        position += length
    is_complete = len(pieces) == vocab_size and position == len(data)
    return pieces, scores, is_complete
