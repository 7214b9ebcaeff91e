"""A tiny model and tokenizer in llama2.c's layout, written by other means than npformer reads it."""

import struct
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

import npformer as npf
from npformer import CausalLMConfig

PIECES = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(b"<0x%02X>" % byte for byte in range(256))]
WORDS = [(" ", -9), ("a", -9), ("b", -9), ("ñ", -9), ("ab", -1), (" a", -2), (" ab", -3), ("ba", -4)]
VOCAB = len(PIECES) + len(WORDS)
CONFIG = CausalLMConfig(d_model=8, d_ff=5, n_heads=4, n_kv_heads=2, n_layers=2, max_length=9)


def header(config, vocab_size=VOCAB):
    sizes = (config.d_model, config.d_ff, config.n_layers, config.n_heads, config.n_kv_heads)
    return struct.pack("<7i", *sizes, vocab_size if config.tied else -vocab_size, config.max_length)


def written(params, config):
    """The file's bytes, part by part as the layout lists them; npformer's W are turned over."""
    blocks = params.blocks

    def all_of(path, turned=True):
        for block in blocks:
            array = dict(npf.leaves(block))[path]
            yield array.T if turned else array

    parts = [params.embedding.E, *all_of("norm_1.gamma", False)]
    for letter in "QKVO":
        parts += all_of(f"attention.W_{letter}")
    parts += all_of("norm_2.gamma", False)
    for name in ("gate", "down", "up"):  # w1, w2, w3
        parts += all_of(f"ffn.W_{name}")
    parts += [params.norm.gamma, np.full(config.max_length * config.d_model // config.n_heads, np.nan)]
    parts += [] if params.head is None else [params.head.T]
    return header(config) + b"".join(np.ascontiguousarray(part, "<f4").tobytes() for part in parts)


def tokenizer_bytes(space=" "):
    rows = [(piece, 0.0) for piece in PIECES]
    rows += [(word.replace(" ", space).encode(), score) for word, score in WORDS]
    return struct.pack("<i", 7) + b"".join(struct.pack("<fi", s, len(p)) + p for p, s in rows)


def model(config):
    rng = np.random.default_rng(0)
    params = npf.init_causal_lm(VOCAB, config, rng, dtype=np.float32)
    return npf.tree_map(lambda a: a + rng.normal(size=a.shape).astype(np.float32), params)


def write_files(folder):
    """model.bin and tokenizer.bin."""
    (folder / "model.bin").write_bytes(written(model(CONFIG), CONFIG))
    (folder / "tokenizer.bin").write_bytes(tokenizer_bytes())


@cache
def _folder():
    folder = tempfile.TemporaryDirectory()  # removed when Python ends
    write_files(Path(folder.name))
    return folder


def files():
    """The paths of a model and its tokenizer that load_llama2c reads."""
    return Path(_folder().name) / "model.bin", Path(_folder().name) / "tokenizer.bin"
