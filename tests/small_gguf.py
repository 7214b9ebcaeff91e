"""A tiny model in a GGUF file, written number by number by other means than npformer reads it."""

import struct
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from npformer import CausalLMConfig

CONFIG = CausalLMConfig(d_model=32, d_ff=64, n_heads=4, n_kv_heads=2, n_layers=2, max_length=50, base=500.0)
PRINTS = [*range(33, 127), *range(161, 173), *range(174, 256)]  # of the 256 bytes; the others are Ā, ā, …
LETTERS = [chr(b) for b in PRINTS] + [chr(256 + i) for i in range(256 - len(PRINTS))]
MERGES = ["Ġ t", "h e", "Ġt he", "a n"]
TOKENS = ["<|end|>", *LETTERS, *(merge.replace(" ", "") for merge in MERGES), "<|mark|>"]
VOCAB = len(TOKENS)
F32, F16, Q4_0, Q4_1, Q8_0 = 0, 1, 2, 3, 8
U32, F4, BOOL, TEXT, LIST, U64 = 4, 6, 7, 8, 9, 10


def text(words):
    return struct.pack("<Q", len(words.encode())) + words.encode()


def value(x):
    """The kind of a setting's value, and the value."""
    if isinstance(x, str):
        return struct.pack("<I", TEXT) + text(x)
    if isinstance(x, list):
        inner = TEXT if x and isinstance(x[0], str) else U32
        parts = [text(y) if inner == TEXT else struct.pack("<I", y) for y in x]
        return struct.pack("<IIQ", LIST, inner, len(x)) + b"".join(parts)
    return struct.pack("<If", F4, x) if isinstance(x, float) else struct.pack("<II", U32, x)


def packed(rng, shape, kind):
    """Random bytes of this kind, and the numbers that they mean, one by one."""
    n, data, numbers = int(np.prod(shape)), b"", []
    if kind in (F32, F16):
        a = rng.normal(size=n).astype("<f4" if kind == F32 else "<f2")
        return a.tobytes(), a.astype(np.float32).reshape(shape)
    for _ in range(n // 32):
        d, m = (float(x) for x in rng.normal(size=2).astype("<f2"))
        if kind == Q8_0:
            q = rng.integers(-128, 128, 32).tolist()
            data += struct.pack("<e32b", d, *q)
            numbers += [d * x for x in q]
            continue
        q = rng.integers(0, 16, 32).tolist()
        data += struct.pack("<ee", d, m) if kind == Q4_1 else struct.pack("<e", d)
        data += bytes(q[i] + 16 * q[i + 16] for i in range(16))
        numbers += [d * x + m if kind == Q4_1 else d * (x - 8) for x in q]
    return data, np.array(numbers, np.float32).reshape(shape)


def tensors(config=CONFIG, tied=True):
    """{name: (shape, kind)}: every kind that is read."""
    d, f, d_kv = config.d_model, config.d_ff, config.d_model // config.n_heads * config.n_kv_heads
    found = {"token_embd.weight": ((VOCAB, d), Q8_0), "output_norm.weight": ((d,), F32)}
    found |= {} if tied else {"output.weight": ((VOCAB, d), F16)}
    for i in range(config.n_layers):
        found |= {
            f"blk.{i}.{name}.weight": of
            for name, of in {
                "attn_q": ((d, d), Q4_0), "attn_k": ((d_kv, d), Q4_1), "attn_v": ((d_kv, d), F16),
                "attn_output": ((d, d), Q4_1), "attn_norm": ((d,), F32), "ffn_gate": ((f, d), Q4_0),
                "ffn_up": ((f, d), Q8_0), "ffn_down": ((d, f), Q4_1), "ffn_norm": ((d,), F32),
            }.items()
        }  # fmt: skip
    return found


def settings(config=CONFIG):
    return {
        "general.architecture": "llama", "llama.block_count": config.n_layers,
        "llama.context_length": config.max_length, "llama.embedding_length": config.d_model,
        "llama.feed_forward_length": config.d_ff, "llama.attention.head_count": config.n_heads,
        "llama.attention.head_count_kv": config.n_kv_heads, "llama.rope.freq_base": config.base,
        "llama.attention.layer_norm_rms_epsilon": config.eps, "llama.vocab_size": VOCAB,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [3] + [1] * (VOCAB - 2) + [4], "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.eos_token_id": 0, "tokenizer.chat_template": "{{ messages }}",
    }  # fmt: skip


def written(said=None, found=None):
    """The file's bytes, and what each tensor's numbers are."""
    said, found, rng = said or settings(), found or tensors(), np.random.default_rng(0)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(found), len(said))
    head += b"".join(text(name) + value(x) for name, x in said.items())
    body, numbers = b"", {}
    for name, (shape, kind) in found.items():
        groups = kind in (F32, F16) or (kind in (Q4_0, Q4_1, Q8_0) and shape[-1] % 32 == 0)
        data, numbers[name] = packed(rng, shape, kind) if groups else (b"", None)
        axes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        head += text(name) + axes + struct.pack("<IQ", kind, len(body))
        body += data + b"\0" * (-len(data) % 32)
    return head + b"\0" * (-len(head) % 32) + body, numbers


@cache
def _folder():
    folder = tempfile.TemporaryDirectory()  # removed when Python ends
    (Path(folder.name) / "model.gguf").write_bytes(written()[0])
    return folder


def file():
    """The path of a model that load_gguf reads."""
    return Path(_folder().name) / "model.gguf"
