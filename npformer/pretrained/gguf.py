"""Load models of the Llama architecture from GGUF files, the format of llama.cpp.

A GGUF file holds the sizes, the vocabulary and the weights of a model.
"""

import math
import os
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npformer.arrays import Array
from npformer.modern.causal_lm import CausalLMConfig, CausalLMParams
from npformer.pretrained.llama import GGUF_NAMES, build_causal_lm_names
from npformer.pretrained.named_arrays import build_config, build_tree, check_settings, get_sizes, require_file
from npformer.pretrained.vocabulary import Vocabulary, make_vocabulary
from npformer.tree import report_damage
from npformer.validation.annotations import DType

if TYPE_CHECKING:
    from pathlib import Path


class Tensor(NamedTuple):
    """The shape and format of a tensor, and its offset in the file."""

    shape: tuple[int, ...]  # in NumPy's order: (d_out, d_in)
    format: int  # a key of FORMATS
    start: int  # the offset of the first byte in the file


def load_gguf(
    path: Any, *, dtype: DType = np.float32
) -> tuple[CausalLMParams, CausalLMConfig, Vocabulary | None]:
    """Load a model of the Llama architecture from a GGUF file.

    The weights in the file are float32, float16, or quantized as Q8_0, Q4_0 or Q4_1. In a quantized format
    each group of 32 neighbouring weights shares one scale. Nothing in the file is executed.

    Parameters
    ----------
    path : str or path
    dtype : float dtype
        The dtype of the returned arrays.

    Returns
    -------
    params : CausalLMParams
        Each weight matrix is transposed to (d_in, d_out).
    config : CausalLMConfig
    tokenizer : Vocabulary or None
        None if the file does not have a byte-level BPE vocabulary like that of GPT-2.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is truncated or damaged, or if the file has a setting that this package does not support
        (biases, scaled RoPE, sliding-window attention, experts). The message names the setting. Settings
        are checked before any weight is read.

    Examples
    --------
    >>> load_gguf("no/such/model.gguf")
    Traceback (most recent call last):
        ...
    FileNotFoundError: load_gguf: there is no file no/such/model.gguf
    """
    file = require_file("load_gguf", "path", path)
    with report_damage("load_gguf", file, "a complete GGUF file"):
        settings, tensors = _read_header(file)
    is_tied = GGUF_NAMES["head"] not in tensors
    config = _build_config(settings, is_tied, file)
    names = build_causal_lm_names(GGUF_NAMES, config, most_blocks=len(tensors))

    def read(name: str) -> Array:
        return read_weights(file, tensors[name], dtype)

    params = build_tree("load_gguf", file, names, tensors, get_sizes(config), read)
    return params, config, _build_tokenizer(settings, len(params.embedding.E), file)


# --- the header: the numbers of tensors and settings, the settings, the positions of the tensors ----

SCALAR_DTYPES = {  # the dtype of each scalar type, by the number that stands for the type in the file
    0: "u1",
    1: "i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
TEXT, LIST = 8, 9  # the two value types that are not scalars
LEAST_TENSOR_BYTES, LEAST_SETTING_BYTES = 24, 12  # the shortest possible entries in a header


def _read_header(file: "Path") -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read all settings and tensor descriptions. Any exception means that the file is damaged."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        n_tensors, n_settings = _read_counts(stream, size)
        settings = {}
        for _ in range(n_settings):
            name = _read_text(stream)
            value_type = _read_number(stream, "<u4")
            settings[name] = _read_value(stream, value_type)
        tensors = {}
        for _ in range(n_tensors):
            name, tensor = _read_tensor(stream)
            tensors[name] = tensor
        alignment = settings.get("general.alignment", 32)
        is_valid = type(alignment) is int and alignment > 0
        if not is_valid:
            raise ValueError(f"general.alignment is {alignment!r}; expected a positive integer")
        # The weights begin at the next multiple of the alignment. The offsets in the file count from there.
        n_aligned = -(-stream.tell() // alignment)  # tell() / alignment, rounded up
        weights_start = n_aligned * alignment
    for name, tensor in tensors.items():
        tensors[name] = tensor._replace(start=weights_start + tensor.start)
        if tensors[name].start + _count_bytes(name, tensor) > size:
            raise ValueError(f"it ends before {name} does")
    return settings, tensors


def _read_counts(stream: IO[bytes], size: int) -> tuple[int, int]:
    """Read the numbers of tensors and settings. Raises ValueError if the header is not valid."""
    if stream.read(4) != b"GGUF":
        raise ValueError("it does not begin with the letters GGUF")
    version = _read_number(stream, "<u4")
    n_tensors = _read_number(stream, "<u8")
    n_settings = _read_number(stream, "<u8")
    least_bytes = n_tensors * LEAST_TENSOR_BYTES + n_settings * LEAST_SETTING_BYTES
    if version not in (2, 3) or least_bytes > size:
        raise ValueError(f"version {version} with {n_tensors} tensors and {n_settings} settings")
    return n_tensors, n_settings


def _read_bytes(stream: IO[bytes], n: int) -> bytes:
    """Read n bytes. Raises ValueError if the file has fewer; an n above its size allocates no memory."""
    data = b""
    if n <= os.fstat(stream.fileno()).st_size:
        data = stream.read(n)
    if len(data) < n:
        raise ValueError("it ends in the middle of its header")
    return data


def _read_number(stream: IO[bytes], dtype: str) -> Any:
    data = _read_bytes(stream, np.dtype(dtype).itemsize)
    return np.frombuffer(data, dtype)[0].item()


def _read_text(stream: IO[bytes]) -> str:
    length = _read_number(stream, "<u8")
    return _read_bytes(stream, length).decode()


def _read_value(stream: IO[bytes], value_type: int) -> Any:
    """Read the value of a setting: a text, a number, or a list of texts or numbers."""
    if value_type == TEXT:
        return _read_text(stream)
    if value_type != LIST:
        return _read_number(stream, SCALAR_DTYPES[value_type])
    element_type = _read_number(stream, "<u4")
    n = _read_number(stream, "<u8")
    if element_type == TEXT:
        return [_read_text(stream) for _ in range(n)]
    dtype = SCALAR_DTYPES[element_type]
    return np.frombuffer(_read_bytes(stream, n * np.dtype(dtype).itemsize), dtype).tolist()


def _read_tensor(stream: IO[bytes]) -> tuple[str, Tensor]:
    """Read the name and the description of a tensor. The file lists the last axis of the shape first."""
    name = _read_text(stream)
    n_axes = _read_number(stream, "<u4")
    reversed_shape = np.frombuffer(_read_bytes(stream, 8 * n_axes), "<u8").tolist()
    tensor_format = _read_number(stream, "<u4")
    start = _read_number(stream, "<u8")
    return name, Tensor(tuple(reversed_shape[::-1]), tensor_format, start)


# --- the weights: a format packs a group of weights into some bytes ---------------------------------

F32 = np.dtype("<f4")
F16 = np.dtype("<f2")
Q8_0 = np.dtype([("d", "<f2"), ("q", "i1", 32)])  # W = d q
Q4_0 = np.dtype([("d", "<f2"), ("q", "u1", 16)])  # W = d (q - 8)
Q4_1 = np.dtype([("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)])  # W = d q + m
FORMATS: dict[int, Any] = {0: F32, 1: F16, 2: Q4_0, 3: Q4_1, 8: Q8_0}
QUANTIZED_GROUP = 32  # the number of weights that share one scale


def _count_bytes(name: str, tensor: Tensor) -> int:
    """Return the number of bytes of a tensor.

    Raises ValueError for an unknown format, and for rows that cannot be divided into whole groups.
    """
    if tensor.format not in FORMATS:
        raise ValueError(f"{name} is of kind {tensor.format}; expected F32, F16, Q4_0, Q4_1 or Q8_0")
    dtype = FORMATS[tensor.format]
    is_quantized = dtype.names is not None
    group = QUANTIZED_GROUP if is_quantized else 1
    if not tensor.shape or tensor.shape[-1] % group:
        raise ValueError(f"{name} has shape {tensor.shape}; expected rows of whole groups of {group}")
    return math.prod(tensor.shape) // group * dtype.itemsize


def read_weights(file: "Path", tensor: Tensor, dtype: Any) -> Array:
    """Read the weights of a tensor. Quantized weights are computed in float32."""
    packed_dtype = FORMATS[tensor.format]
    n_groups = _count_bytes("", tensor) // packed_dtype.itemsize
    groups = np.fromfile(file, packed_dtype, n_groups, offset=tensor.start)  # (n_groups,)
    is_quantized = packed_dtype.names is not None
    W = _dequantize(groups) if is_quantized else groups
    return W.astype(dtype, copy=False).reshape(tensor.shape)


def _dequantize(groups: Array) -> Array:
    """Compute the weights of quantized groups: d q, d (q - 8) or d q + m. (n,) -> (n, 32)"""
    d = groups["d"].astype(np.float32)[:, None]  # (n, 1)
    q = groups["q"]  # (n, 32) for Q8_0, else (n, 16)
    if groups.dtype == Q8_0:
        return d * q
    # A byte holds two numbers of 4 bits. The lower bits belong to the first 16 weights of the group.
    q = np.concatenate([q & 15, q >> 4], axis=1)  # (n, 32)
    if groups.dtype == Q4_0:
        return d * (q - np.float32(8))
    m = groups["m"].astype(np.float32)[:, None]  # (n, 1)
    return d * q + m


# --- the settings -----------------------------------------------------------------------------------

CONFIG_FIELDS = {  # the field of CausalLMConfig for each setting in the file
    "llama.embedding_length": "d_model",
    "llama.feed_forward_length": "d_ff",
    "llama.block_count": "n_layers",
    "llama.attention.head_count": "n_heads",
    "llama.attention.head_count_kv": "n_kv_heads",
    "llama.rope.freq_base": "base",
    "llama.attention.layer_norm_rms_epsilon": "eps",
    "llama.context_length": "max_length",
}
KNOWN_SETTINGS = {*CONFIG_FIELDS, "llama.vocab_size"}
HEAD_WIDTHS = ("llama.rope.dimension_count", "llama.attention.key_length", "llama.attention.value_length")


def _build_config(settings: dict[str, Any], is_tied: bool, file: "Path") -> CausalLMConfig:
    """Build the config. Raises ValueError for a setting that this package does not support."""
    architecture = settings.get("general.architecture")
    if architecture != "llama":
        raise ValueError(f"load_gguf: {file} holds a model of the kind {architecture!r}; expected 'llama'")
    defaults = {
        "llama.rope.freq_base": 10000.0,
        "llama.attention.head_count_kv": settings.get("llama.attention.head_count"),
    }
    settings = defaults | settings
    config = build_config("load_gguf", file, settings, CONFIG_FIELDS, CausalLMConfig, tied=is_tied)
    supported: dict[str, Any] = {}
    for name in settings:
        if name.startswith("llama.") and name not in KNOWN_SETTINGS:
            supported[name] = None  # None means that `check_settings` rejects every value
    for name in HEAD_WIDTHS:
        supported[name] = config.d_model // config.n_heads
    check_settings("load_gguf", file, settings, supported)
    return config


SPECIAL_TOKEN_TYPES = (3, 4)  # control tokens, and tokens that a user has added
DIGITS_ALONE = {"smollm": True, "gpt-2": False}  # whether each digit is a word, for each pre-tokenizer


def _build_tokenizer(settings: dict[str, Any], vocab_size: int, file: "Path") -> Vocabulary | None:
    """Build the tokenizer, or return None if the file does not have a byte-level BPE like that of GPT-2."""
    pre_tokenizer = settings.get("tokenizer.ggml.pre")
    if settings.get("tokenizer.ggml.model") != "gpt2" or pre_tokenizer not in DIGITS_ALONE:
        return None
    tokens = settings.get("tokenizer.ggml.tokens", [])
    token_types = settings.get("tokenizer.ggml.token_type", [])
    merges = settings.get("tokenizer.ggml.merges", [])
    with report_damage("load_gguf", file, "a file with a whole vocabulary"):
        if len(tokens) != vocab_size:
            raise ValueError(f"{len(tokens)} tokens; expected {vocab_size}, the embedding's rows")
        special_tokens = {}
        for token_id, (token, token_type) in enumerate(zip(tokens, token_types, strict=False)):
            if token_type in SPECIAL_TOKEN_TYPES:
                special_tokens[token] = token_id
        tokenizer = make_vocabulary(tokens, merges, special_tokens, DIGITS_ALONE[pre_tokenizer])
    return tokenizer._replace(
        stop_id=settings.get("tokenizer.ggml.eos_token_id"),
        chat_template=settings.get("tokenizer.chat_template"),
    )
