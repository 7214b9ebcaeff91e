"""Write what PyTorch 2.13 answers where npformer/modern is asked, for tests/test_golden.py.

    python tests/data/make_golden_modern.py [stories15M.bin]

Run it with any Python that has PyTorch and NumPy; npformer is not imported here. It writes golden_modern.npz
beside itself and, given the published model, golden_stories.npz.

Every input is a float32 number and every answer is computed in float64, so that one answer is the truth for
both precisions. An array's name is case.x for an input, case:y for the output and case:d_x for a gradient;
case:d_y is the random upstream gradient. Norm, gates and attention are PyTorch's own functions (rms_norm,
silu, scaled_dot_product_attention with enable_gqa); RoPE, which it has no function for, is multiplication by
complex numbers.
"""

import struct
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

HERE = Path(__file__).parent
GATES = {"silu": F.silu, "gelu": F.gelu, "relu": F.relu, "sigmoid": torch.sigmoid}
STORY = [1, 9038, 2501, 263, 931, 29892, 727, 471, 263, 2217, 7826, 4257, 365, 2354, 29889]


def rotate(x, base):
    """Two neighbours are one complex number, turned by position · ω_i: x (..., T, d_k)."""
    T, d = x.shape[-2:]
    omega = base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = torch.arange(T, dtype=torch.float64)[:, None] * omega
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


def grouped_attention(t, n_heads, n_kv_heads, base):
    q, k, v = (
        (t["x"] @ t[f"W_{letter}"]).unflatten(-1, (h, -1)).transpose(-3, -2)
        for letter, h in (("Q", n_heads), ("K", n_kv_heads), ("V", n_kv_heads))
    )
    q, k = rotate(q, base), rotate(k, base)
    heads = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return heads.transpose(-3, -2).flatten(-2) @ t["W_O"]


def gated(t, gate):
    return (gate(t["x"] @ t["W_gate"]) * (t["x"] @ t["W_up"])) @ t["W_down"]


def causal_lm(ids, t, s):
    x = t["embedding.E"][ids]
    for i in range(s["n_layers"]):
        b = {name.removeprefix(f"blocks.{i}."): value for name, value in t.items()}
        n = F.rms_norm(x, x.shape[-1:], b["norm_1.gamma"], s["eps"])
        a = {"x": n} | {f"W_{letter}": b[f"attention.W_{letter}"] for letter in "QKVO"}
        x = x + grouped_attention(a, s["n_heads"], s["n_kv_heads"], s["base"])
        m = F.rms_norm(x, x.shape[-1:], b["norm_2.gamma"], s["eps"])
        x = x + gated({"x": m} | {f"W_{w}": b[f"ffn.W_{w}"] for w in ("gate", "up", "down")}, F.silu)
    y = F.rms_norm(x, x.shape[-1:], t["norm.gamma"], s["eps"])
    return y @ (t["head"] if "head" in t else t["embedding.E"].T)


def case(name, f, inputs, rng):
    """Inputs, upstream gradient, output and gradients, by their names in the file."""
    t = {key: torch.tensor(value, dtype=torch.float64, requires_grad=True) for key, value in inputs.items()}
    y = f(t)
    dy = rng.normal(size=y.shape).astype(np.float32)
    y.backward(torch.tensor(dy, dtype=torch.float64))
    rows = {f"{name}.{key}": value for key, value in inputs.items()}
    rows |= {f"{name}:y": y.detach().numpy(), f"{name}:d_y": dy}
    return rows | {f"{name}:d_{key}": value.grad.numpy() for key, value in t.items()}


def drawn(rng, **shapes):
    return {key: rng.normal(size=shape).astype(np.float32) for key, shape in shapes.items()}


def lm_inputs(rng, s):
    d, f = s["d_model"], s["d_ff"]
    d_kv = d // s["n_heads"] * s["n_kv_heads"]
    shapes = {"embedding.E": (s["vocab_size"], d), "norm.gamma": (d,)} | (
        {} if s["tied"] else {"head": (d, s["vocab_size"])}
    )
    for i in range(s["n_layers"]):
        block = {"attention.W_Q": (d, d), "attention.W_K": (d, d_kv), "attention.W_V": (d, d_kv)}
        block |= {"attention.W_O": (d, d), "norm_1.gamma": (d,), "norm_2.gamma": (d,)}
        block |= {"ffn.W_gate": (d, f), "ffn.W_up": (d, f), "ffn.W_down": (f, d)}
        shapes |= {f"blocks.{i}.{key}": shape for key, shape in block.items()}
    return {key: value * np.float32(0.5) for key, value in drawn(rng, **shapes).items()}


def cases(rng):
    yield case(
        "rms_norm",
        lambda t: F.rms_norm(t["x"], (6,), t["gamma"], 1e-5),
        drawn(rng, x=(2, 3, 6), gamma=6),
        rng,
    )
    yield case("silu", lambda t: F.silu(t["z"]), {"z": np.linspace(-30, 30, 25, dtype=np.float32)}, rng)
    for name, gate in GATES.items():
        inputs = drawn(rng, x=(2, 3, 4), W_gate=(4, 5), W_up=(4, 5), W_down=(5, 4))
        yield case(f"gated_ffn_{name}", lambda t, gate=gate: gated(t, gate), inputs, rng)
    for n_kv_heads in (4, 2, 1):
        width = 2 * n_kv_heads
        inputs = drawn(rng, x=(2, 5, 8), W_Q=(8, 8), W_K=(8, width), W_V=(8, width), W_O=(8, 8))
        name = f"grouped_attention_{n_kv_heads}"
        yield case(name, lambda t, n=n_kv_heads: grouped_attention(t, 4, n, 100.0), inputs, rng)
    for tied in (True, False):
        s = {"vocab_size": 7, "d_model": 8, "d_ff": 5, "n_heads": 4, "n_kv_heads": 2, "n_layers": 2}
        s |= {"eps": 1e-3, "base": 50.0, "tied": tied}
        ids = rng.integers(7, size=(2, 5))
        name = "causal_lm_tied" if tied else "causal_lm_own_head"
        rows = case(name, lambda t, ids=ids, s=s: causal_lm(torch.tensor(ids), t, s), lm_inputs(rng, s), rng)
        yield rows | {f"{name}:ids": ids}


def read_stories(file):
    """The weights of a llama2.c file by the names above, and its settings."""
    with open(file, "rb") as stream:
        d, f, n, h, h_kv, vocab, T = struct.unpack("<7i", stream.read(28))
        numbers = np.frombuffer(stream.read(), "<f4")
    t, at = {}, 0
    d_kv = d // h * h_kv
    parts = [("attention.W_Q", d, d), ("attention.W_K", d_kv, d), ("attention.W_V", d_kv, d)]
    parts += [("attention.W_O", d, d), ("norm_2.gamma", d), ("ffn.W_gate", f, d)]
    parts = [("norm_1.gamma", d), *parts, ("ffn.W_down", d, f), ("ffn.W_up", f, d)]
    t["embedding.E"], at = numbers[: vocab * d].reshape(vocab, d), vocab * d
    for name, *shape in parts:
        for i in range(n):
            size = int(np.prod(shape))
            t[f"blocks.{i}.{name}"] = numbers[at : at + size].reshape(shape).T
            at += size
    t["norm.gamma"] = numbers[at : at + d]
    assert vocab > 0 and at + d + T * (d // h) == numbers.size
    settings = {"n_layers": n, "n_heads": h, "n_kv_heads": h_kv, "eps": 1e-5, "base": 10000.0}
    return {name: torch.tensor(value.astype(np.float64)) for name, value in t.items()}, settings


def stories(file):
    """Logits at some places after a story's beginning, and the words that PyTorch goes on with."""
    t, s = read_stories(file)
    logits = causal_lm(torch.tensor([STORY]), t, s)[0]
    columns = np.linspace(0, logits.shape[1] - 1, 50).astype(int)
    ids = list(STORY)
    for _ in range(40):
        ids.append(int(causal_lm(torch.tensor([ids]), t, s)[0, -1].argmax()))
    return {
        "ids": np.array(ids),
        "prompt": len(STORY),
        "columns": columns,
        "logits": logits.numpy()[:, columns],
    }


if __name__ == "__main__":
    answers = {}
    for rows in cases(np.random.default_rng(18)):
        answers |= rows
    np.savez_compressed(HERE / "golden_modern.npz", **answers)
    for model_file in sys.argv[1:]:
        with torch.no_grad():
            np.savez_compressed(HERE / "golden_stories.npz", **stories(model_file))
