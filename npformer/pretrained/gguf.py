"""Llama-like models in GGUF files, as llama.cpp writes them: sizes, vocabulary and weights in one."""

import math
import os
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npformer.arrays import Array
from npformer.modern.causal_lm import CausalLMConfig, CausalLMParams
from npformer.pretrained.llama import GGUF, causal_lm_table
from npformer.pretrained.named_arrays import check_settings, config_from, existing, from_names, sizes_of
from npformer.pretrained.vocabulary import Vocabulary, vocabulary
from npformer.tree import as_damage
from npformer.validation.annotations import DType

if TYPE_CHECKING:
    from pathlib import Path


class Tensor(NamedTuple):
    """Where a tensor lies in a file, and how it is written there."""

    shape: tuple[int, ...]  # as NumPy says it: outputs first
    kind: int
    start: int


def load_gguf(
    path: Any, *, dtype: DType = np.float32
) -> tuple[CausalLMParams, CausalLMConfig, Vocabulary | None]:
    """A Llama-like model from a GGUF file as params, config, tokenizer (None unless it is GPT-2's kind).

    Weights are float32, float16, or quantised as Q8_0, Q4_0 or Q4_1, where 32 neighbours share a scale. They
    come as arrays of the dtype, each W turned over to (d_in, d_out). Nothing in the file is executed.

    Raises FileNotFoundError for a file that is not there; ValueError for one that is cut off or damaged, and
    for one that asks for what these equations do not have (biases, stretched RoPE, a window, experts), which
    it names, before any weight is read.

    >>> load_gguf("no/such/model.gguf")
    Traceback (most recent call last):
        ...
    FileNotFoundError: load_gguf: there is no file no/such/model.gguf
    """
    file = existing("load_gguf", "path", path)
    with as_damage("load_gguf", file, "a complete GGUF file"):
        said, tensors = _header(file)
    config = _config(said, GGUF.split()[-1] not in tensors, file)
    names = causal_lm_table(GGUF, config, tensors)
    params = from_names(
        "load_gguf", file, names, tensors, sizes_of(config), lambda name: weights(file, tensors[name], dtype)
    )
    return params, config, _tokenizer(said, len(params.embedding.E), file)


# The header: how many tensors and settings, the settings, then where each tensor lies

SCALARS = dict(enumerate("u1 i1 <u2 <i2 <u4 <i4 <f4 ? text list <u8 <i8 <f8".split()))
TEXT, LIST = 8, 9  # the two kinds of value that are not one number


def _header(file: "Path") -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What the file says of itself, and its tensors; ValueError or KeyError where it is none."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise ValueError("it does not begin with the letters GGUF")
        version, n_tensors, n_settings = (_number(stream, kind) for kind in ("<u4", "<u8", "<u8"))
        if version not in (2, 3) or n_tensors * 24 + n_settings * 12 > size:
            raise ValueError(f"version {version} with {n_tensors} tensors and {n_settings} settings")
        said = {_text(stream): _value(stream, _number(stream, "<u4")) for _ in range(n_settings)}
        found = [_tensor(stream) for _ in range(n_tensors)]
        unit = said.get("general.alignment", 32)
        start = -(-stream.tell() // unit) * unit  # the next multiple: places count from there
    tensors = {name: tensor._replace(start=start + tensor.start) for name, tensor in found}
    for name, tensor in tensors.items():
        if tensor.start + _bytes(name, tensor) > size:
            raise ValueError(f"it ends before {name} does")
    return said, tensors


def _take(stream: IO[bytes], n: int) -> bytes:
    """The next n bytes; a number that is larger than the file is refused before memory is asked for."""
    data = stream.read(n) if n <= os.fstat(stream.fileno()).st_size else b""
    if len(data) < n:
        raise ValueError("it ends in the middle of its header")
    return data


def _number(stream: IO[bytes], kind: str) -> Any:
    return np.frombuffer(_take(stream, np.dtype(kind).itemsize), kind)[0].item()


def _text(stream: IO[bytes]) -> str:
    return _take(stream, _number(stream, "<u8")).decode()


def _value(stream: IO[bytes], kind: int) -> Any:
    if kind == TEXT:
        return _text(stream)
    if kind != LIST:
        return _number(stream, SCALARS[kind])
    inner, n = _number(stream, "<u4"), _number(stream, "<u8")
    if inner == TEXT:
        return [_text(stream) for _ in range(n)]
    return np.frombuffer(_take(stream, n * np.dtype(SCALARS[inner]).itemsize), SCALARS[inner]).tolist()


def _tensor(stream: IO[bytes]) -> tuple[str, Tensor]:
    """Name, shape (the last axis first in the file), kind, and its place among the weights."""
    name, n_axes = _text(stream), _number(stream, "<u4")
    shape = np.frombuffer(_take(stream, 8 * n_axes), "<u8")[::-1].tolist()
    return name, Tensor(tuple(shape), _number(stream, "<u4"), _number(stream, "<u8"))


# The weights: each kind is groups of so many weights in so many bytes

Q8_0 = np.dtype([("d", "<f2"), ("q", "i1", 32)])  # W = d q
Q4_0 = np.dtype([("d", "<f2"), ("q", "u1", 16)])  # W = d (q - 8)
Q4_1 = np.dtype([("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)])  # W = d q + m
KINDS: dict[int, Any] = {0: np.dtype("<f4"), 1: np.dtype("<f2"), 2: Q4_0, 3: Q4_1, 8: Q8_0}


def _bytes(name: str, tensor: Tensor) -> int:
    """How long a tensor is in the file; a kind that is not read here, and rows of odd length, are refused."""
    if tensor.kind not in KINDS:
        raise ValueError(f"{name} is of kind {tensor.kind}; expected F32, F16, Q4_0, Q4_1 or Q8_0")
    dtype, group = KINDS[tensor.kind], 32 if KINDS[tensor.kind].names else 1
    if not tensor.shape or tensor.shape[-1] % group:
        raise ValueError(f"{name} has shape {tensor.shape}; expected rows of whole groups of {group}")
    return math.prod(tensor.shape) // group * dtype.itemsize


def weights(file: "Path", tensor: Tensor, dtype: Any) -> Array:
    """A tensor's numbers, dequantised in float32: d q, d (q - 8), or d q + m."""
    kind, n = KINDS[tensor.kind], _bytes("", tensor) // KINDS[tensor.kind].itemsize
    groups = np.fromfile(file, kind, n, offset=tensor.start)  # (n,)
    if kind.names is None:
        return groups.astype(dtype, copy=False).reshape(tensor.shape)
    d, q = groups["d"].astype(np.float32)[:, None], groups["q"]  # (n, 1), (n, 32 or 16)
    if kind != Q8_0:  # two weights a byte: the first 16 in the lower halves, the next 16 in the upper
        q = np.concatenate([q & 15, q >> 4], axis=1)  # (n, 32)
    W = d * (q - np.float32(8)) if kind == Q4_0 else d * q  # (n, 32)
    if kind == Q4_1:
        W += groups["m"].astype(np.float32)[:, None]
    return W.astype(dtype, copy=False).reshape(tensor.shape)


# What the settings say

SIZES = {
    "llama.embedding_length": "d_model", "llama.feed_forward_length": "d_ff", "llama.block_count": "n_layers",
    "llama.attention.head_count": "n_heads", "llama.attention.head_count_kv": "n_kv_heads",
    "llama.rope.freq_base": "base", "llama.attention.layer_norm_rms_epsilon": "eps",
    "llama.context_length": "max_length",
}  # fmt: skip
KNOWN = {*SIZES, "llama.vocab_size"}
HEAD_WIDTHS = ("llama.rope.dimension_count", "llama.attention.key_length", "llama.attention.value_length")


def _config(said: dict[str, Any], tied: bool, file: "Path") -> CausalLMConfig:
    """The sizes; a setting of the model that these equations do not have is refused by its name."""
    kind = said.get("general.architecture")
    if kind != "llama":
        raise ValueError(f"load_gguf: {file} holds a model of the kind {kind!r}; expected 'llama'")
    heads = said.get("llama.attention.head_count")
    said = {"llama.rope.freq_base": 10000.0, "llama.attention.head_count_kv": heads} | said
    config = config_from("load_gguf", file, said, SIZES, CausalLMConfig, tied=tied)
    asked = dict.fromkeys(name for name in said if name.startswith("llama.") and name not in KNOWN)
    widths = dict.fromkeys(HEAD_WIDTHS, config.d_model // config.n_heads)
    check_settings("load_gguf", file, said, asked | widths)
    return config


CONTROL = (3, 4)  # kinds of token: marks, and what a user has added
PIECES_OF = {"smollm": True, "gpt-2": False}  # ways to cut a text into words: are digits alone?


def _tokenizer(said: dict[str, Any], vocab_size: int, file: "Path") -> Vocabulary | None:
    """The vocabulary that stands in the file, where it is of GPT-2's kind."""
    if said.get("tokenizer.ggml.model") != "gpt2" or said.get("tokenizer.ggml.pre") not in PIECES_OF:
        return None
    tokens, kinds, merges = (said.get(f"tokenizer.ggml.{x}", []) for x in ("tokens", "token_type", "merges"))
    with as_damage("load_gguf", file, "a file with a whole vocabulary"):
        if len(tokens) != vocab_size:
            raise ValueError(f"{len(tokens)} tokens; expected {vocab_size}, the embedding's rows")
        marks = {x: i for i, (x, kind) in enumerate(zip(tokens, kinds, strict=False)) if kind in CONTROL}
        ours = vocabulary(tokens, merges, marks, PIECES_OF[said["tokenizer.ggml.pre"]])
    stop_id, template = said.get("tokenizer.ggml.eos_token_id"), said.get("tokenizer.chat_template")
    return ours._replace(stop_id=stop_id, chat_template=template)
