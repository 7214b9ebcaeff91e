"""Write the golden values: what PyTorch 2.13 answers, outputs and every gradient, for golden.py to read.

Run it with any Python that has PyTorch and NumPy. npformer never needs PyTorch, and is not imported here.

    python tests/data/make_golden.py

It asks PyTorch anew about every case in the golden files, writes the answers and says by how much they differ
from those that stood there: on one machine by nothing, on another perhaps by a last digit. The inputs are
those that the files hold. How a file is laid out: golden_files.py. Another case is written by

    shapes = {"x": (2, 8), "W": (8, 30), "d_y": (2, 30)}
    write(file, [*read(file), solve(new_case("linear_wide", "linear", {}, shapes))])

What is trusted. Every answer is that of PyTorch's own function, module, loss or optimizer, and every gradient
that of its autograd. Two things it does not have are put into its attention in a few lines here: RoPE, and
zero for a query that may attend to no key, for which PyTorch has no one answer (NaN on one path, zero on
another). ALiBi is a mask of numbers, which its modules take.
"""

import math
import zlib
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from golden_files import FILES, read, write
from torch import nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda z: F.gelu(z, approximate="tanh")}
ACTIVATIONS |= {"silu": F.silu, "sigmoid": torch.sigmoid}

# What PyTorch's attention does not have.

PYTORCHS = F.scaled_dot_product_attention


def attend(q, k, v, attn_mask=None, *others, **options):
    """PyTorch's attention; a query that may attend to no key gives zero and sends nothing back."""
    if attn_mask is None:
        return PYTORCHS(q, k, v, None, *others, **options)
    closed = (attn_mask == -math.inf).all(-1, keepdim=True)
    y = PYTORCHS(q, k, v, attn_mask.masked_fill(closed, 0.0), *others, **options)
    return y.masked_fill(closed, 0.0)


def attend_turned(q, k, v, *masks, **options):
    """With RoPE; the last query stands at the last key."""
    return attend(rotate(q, k.shape[-2] - q.shape[-2]), rotate(k), v, *masks, **options)


def rotate(x, first=0, base=10000.0):
    """RoPE as complex multiplication: two neighbours are one complex number, turned by position · ω_i."""
    n, d = x.shape[-2:]
    omega = base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = (first + torch.arange(n, dtype=torch.float64))[:, None] * omega
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


class TurnedAttention(nn.MultiheadAttention):
    """PyTorch's module, whose heads turn their queries and keys."""

    def forward(self, *args, **options):
        with mock.patch.object(F, "scaled_dot_product_attention", attend_turned):
            return super().forward(*args, **options)


def alibi(n_heads, n):
    """For a power of two of heads only."""
    slopes = torch.tensor([2.0 ** (-8.0 * (h + 1) / n_heads) for h in range(n_heads)])
    place = torch.arange(n)
    return -slopes.double()[:, None, None] * (place[:, None] - place).abs()


# The operations: `t` holds the tensors by name, `s` the settings.


def ffn(t, s):
    return ACTIVATIONS[s["activation"]](t["x"] @ t["W_1"] + t["b_1"]) @ t["W_2"] + t["b_2"]


def gated_ffn(t, s):
    return (ACTIVATIONS[s["activation"]](t["x"] @ t["W_gate"]) * (t["x"] @ t["W_up"])) @ t["W_down"]


def rms_norm(x, gamma, eps):
    return F.rms_norm(x, gamma.shape, gamma, eps)


def attention(t, s):
    mask = t.get("bias")
    if "mask" in t:
        mask = torch.zeros(()) if mask is None else mask
        mask = mask.masked_fill(~t["mask"], -math.inf)
    return attend(t["q"], t["k"], t["v"], mask)


def multi_head_attention(t, s):
    q, k, v = (three_axes(t[name]) for name in "qkv")
    module = attention_module(q.shape[-1], s["n_heads"], "b_Q" in t, s.get("rope"))
    options = {"attn_mask": additive_mask(t, s, "mask", t["q"], t["k"]), "need_weights": False}
    y, _ = functional_call(module, attention_state(t), (q, k, v), options)
    return y.reshape(t["q"].shape)


def grouped_attention(t, s):
    """Several heads of queries share keys and values, which PyTorch's module has not, but its function."""
    q, k, v = (
        (t[name] @ t[f"W_{name.upper()}"]).unflatten(-1, (n, -1)).transpose(-3, -2)
        for name, n in (("q", s["n_heads"]), ("k", s["n_kv_heads"]), ("v", s["n_kv_heads"]))
    )
    q, k = rotate(q, base=s["base"]), rotate(k, base=s["base"])
    heads = PYTORCHS(q, k, v, is_causal=True, enable_gqa=True)
    return heads.transpose(-3, -2).flatten(-2) @ t["W_O"]


def stack(t, s):
    """An encoder or, with a memory, a decoder, of several blocks or of one."""
    layers, is_decoder = [part(t, f"blocks.{i}.") for i in range(s["n_layers"])], "memory" in t
    layers = layers if "blocks.0.ffn.W_1" in t else [t]
    norm = nn.LayerNorm(s["d_model"], eps=s["eps"]) if "norm.gamma" in t else None
    if is_decoder:
        module = nn.TransformerDecoder(layer_module(s, is_decoder), len(layers), norm)
    else:
        module = nn.TransformerEncoder(layer_module(s, is_decoder), len(layers), norm, False)
    state = norm_state("norm", part(t, "norm.")) if norm else {}
    for i, own in enumerate(layers):
        state |= {f"layers.{i}.{name}": value for name, value in block_state(own).items()}
    masks = [additive_mask(t, s, "mask", t["x"], t["x"])]
    if is_decoder:
        masks += [additive_mask(t, {"n_heads": s["n_heads"]}, "memory_mask", t["x"], t["memory"])]
    x = [three_axes(t[name]) for name in ("x", "memory") if name in t]
    return functional_call(module, state, (*x, *masks)).reshape(t["x"].shape)


def transformer(t, s):
    """Logits. One matrix E for both embeddings and the logits; padding is hidden from every query."""
    source, target = t["source_ids"] != s["padding_id"], t["target_ids"] != s["padding_id"]
    n = target.shape[-1]
    hidden = source[..., None, :]
    memory = stack(part(t, "encoder.") | {"x": embedded(t, s, "source"), "mask": hidden}, s)
    causal = torch.ones(n, n, dtype=torch.bool).tril() & target[..., None, :]
    given = {"x": embedded(t, s, "target"), "memory": memory, "mask": causal, "memory_mask": hidden}
    return F.linear(stack(part(t, "decoder.") | given, s), t["embedding.E"])


def embedding(t, s=None):
    return F.embedding(t["ids"], t["E"]) * math.sqrt(t["E"].shape[1])


def embedded(t, s, which):
    x = embedding({"ids": t[f"{which}_ids"], "E": t["embedding.E"]})
    n, d_model = x.shape[-2:]
    if s["positions"] == "sinusoidal":
        place, column = torch.arange(n)[:, None], torch.arange(d_model)
        angle = place / 10000 ** (2 * (column // 2) / d_model)  # section 3.5 of the paper
        return x + torch.where(column % 2 == 0, angle.sin(), angle.cos())
    if s["positions"] == "learned":
        return x + t[f"{which}_positions.P"][:n]
    return x


def causal_lm(t, s):
    x = t["embedding.E"][t["ids"]]
    for i in range(s["n_layers"]):
        b = part(t, f"blocks.{i}.")
        n = rms_norm(x, b["norm_1.gamma"], s["eps"])
        x = x + grouped_attention(part(b, "attention.") | dict.fromkeys("qkv", n), s)
        m = rms_norm(x, b["norm_2.gamma"], s["eps"])
        x = x + gated_ffn(part(b, "ffn.") | {"x": m}, {"activation": "silu"})
    y = rms_norm(x, t["norm.gamma"], s["eps"])
    return y @ (t["head"] if "head" in t else t["embedding.E"].T)


def cross_entropy(t, s, logits=None):
    logits = t["logits"] if logits is None else logits
    options = {name: s[name] for name in ("ignore_index", "label_smoothing")}
    return F.cross_entropy(logits.flatten(0, -2), t["targets"].flatten(), **options)


OPERATIONS = {
    "layer_norm": lambda t, s: F.layer_norm(t["x"], t["gamma"].shape, t["gamma"], t["beta"], s["eps"]),
    "linear": lambda t, s: t["x"] @ t["W"] + t.get("b", 0.0),
    "relu": lambda t, s: F.relu(t["z"]),
    "gelu": lambda t, s: F.gelu(t["z"], approximate="tanh" if s["approximate"] else "none"),
    "silu": lambda t, s: F.silu(t["z"]),
    "softmax": lambda t, s: torch.softmax(t["scores"], s["axis"]),
    "tied_logits": lambda t, s: F.linear(t["x"], t["E"]),
    "training": lambda t, s: cross_entropy(t, s, transformer(t, s)),
    "rms_norm": lambda t, s: rms_norm(t["x"], t["gamma"], s["eps"]),
}
UNDER_THEIR_NAMES = embedding, ffn, gated_ffn, attention, multi_head_attention, grouped_attention
UNDER_THEIR_NAMES += transformer, causal_lm, cross_entropy
OPERATIONS |= {function.__name__: function for function in UNDER_THEIR_NAMES}
OPERATIONS |= dict.fromkeys(("encoder_block", "encoder", "decoder_block", "decoder"), stack)


# PyTorch's modules, with our parameters in them.


def attention_module(d_model, n_heads, biased, turned=False):
    kind = TurnedAttention if turned else nn.MultiheadAttention
    return kind(d_model, n_heads, bias=biased, batch_first=True)


def layer_module(s, is_decoder):
    """Of one block; the memory knows no positions."""
    kind = nn.TransformerDecoderLayer if is_decoder else nn.TransformerEncoderLayer
    sizes = s["d_model"], s["n_heads"], s["d_ff"], 0.0, ACTIVATIONS[s["activation"]], s["eps"]
    module = kind(*sizes, batch_first=True, norm_first=s["norm"] == "pre")
    attention = s["d_model"], s["n_heads"], s["attention_bias"]
    module.self_attn = attention_module(*attention, s["positions"] == "rope")
    if is_decoder:
        module.multihead_attn = attention_module(*attention)
    return module


def additive_mask(t, s, name, q, k):
    """Mask, bias and ALiBi as PyTorch takes them: (batch · heads, T_q, T_k), -inf where not allowed."""
    total = torch.zeros(*q.shape[:-2], s["n_heads"], q.shape[-2], k.shape[-2]) + t.get("bias", 0.0)
    if s.get("positions") == "alibi":
        total = total + alibi(s["n_heads"], q.shape[-2])
    if name in t:
        mask = t[name] if t[name].ndim < 3 else t[name].unsqueeze(-3)
        total = total.masked_fill(~mask, -math.inf)
    return three_axes(total)


def attention_state(t):
    """PyTorch keeps W transposed, and Q, K and V in one matrix."""
    state = {"in_proj_weight": torch.cat([t[f"W_{x}"].mT for x in "QKV"]), "out_proj.weight": t["W_O"].mT}
    if "b_Q" in t:
        state |= {"in_proj_bias": torch.cat([t[f"b_{x}"] for x in "QKV"]), "out_proj.bias": t["b_O"]}
    return state


def block_state(t):
    """Of an encoder block or a decoder block, by the names that its parameters have."""
    theirs = {"attention.": "self_attn", "self_attention.": "self_attn", "cross_attention.": "multihead_attn"}
    state = {}
    for ours, module in theirs.items():
        if f"{ours}W_Q" in t:
            own = attention_state(part(t, ours))
            state |= {f"{module}.{name}": value for name, value in own.items()}
    for i in (1, 2, 3):
        if f"norm_{i}.gamma" in t:
            state |= norm_state(f"norm{i}", part(t, f"norm_{i}."))
    for i in (1, 2):
        state |= {f"linear{i}.weight": t[f"ffn.W_{i}"].mT, f"linear{i}.bias": t[f"ffn.b_{i}"]}
    return state


def norm_state(name, t):
    return {f"{name}.weight": t["gamma"], f"{name}.bias": t["beta"]}


def part(t, prefix):
    return {name.removeprefix(prefix): value for name, value in t.items() if name.startswith(prefix)}


def three_axes(x):
    return x.reshape(-1, *x.shape[-2:])


# A case and its answers.

STEPS, SHOWN = 100, (1, 10, 100)


def adam(t, s):
    """Each parameter after some of the steps and both means at the end."""
    grads = part(t, "g.")
    params = {name: t[name] for name in grads}
    kind = torch.optim.AdamW if s["weight_decay"] else torch.optim.Adam
    options = {"betas": (s["beta_1"], s["beta_2"]), "eps": s["eps"], "weight_decay": s["weight_decay"]}
    optimizer, shown = kind(params.values(), **options), {}
    for step in range(1, STEPS + 1):
        optimizer.param_groups[0]["lr"] = learning_rate(s, step)
        for name, p in params.items():
            p.grad = grads[name][step - 1].detach().clone()
        optimizer.step()
        if step in SHOWN:
            shown |= {f"{name}_after_{step}": p.detach().clone() for name, p in params.items()}
    for ours, theirs in (("m", "exp_avg"), ("v", "exp_avg_sq")):
        shown |= {f"{ours}.{name}": optimizer.state[p][theirs] for name, p in params.items()}
    return shown


def learning_rate(s, step):
    """A number, or the paper's schedule with the width and the number of warm-up steps in s."""
    if "warmup_steps" not in s:
        return s["learning_rate"]
    return s["d_model"] ** -0.5 * min(step**-0.5, step * s["warmup_steps"] ** -1.5)


def solve(case):
    """The case with PyTorch's answers."""
    t = {name: torch.tensor(a, dtype=torch.float64) for name, a in case["inputs"].items()}
    wanted = {name: x.requires_grad_() for name, x in t.items() if name not in ("bias", "d_y")}
    t |= {name: torch.tensor(constant) for name, constant in case["constants"].items()}
    if case["operation"] == "adam":
        answers = adam(t, case["settings"])
    else:
        y = OPERATIONS[case["operation"]](t, case["settings"])
        grads = torch.autograd.grad(y, list(wanted.values()), t["d_y"])
        answers = {"y": y.detach()} | {f"d_{name}": g for name, g in zip(wanted, grads, strict=True)}
    assert all(value.isfinite().all() for value in answers.values()), case["name"]
    return case | {"answers": {name: value.numpy() for name, value in answers.items()}}


def new_case(name, operation, settings, shapes, **constants):
    """A case whose numbers are drawn from a seed of its name: `shapes` has those of its inputs and of d_y."""
    rng, inputs = np.random.default_rng(zlib.crc32(name.encode())), {}
    for path, shape in shapes.items():
        leaf = path.rpartition(".")[2]
        scale = shape[0] ** -0.5 if leaf.startswith("W") else 1.0
        inputs[path] = ((leaf == "gamma") + scale * rng.standard_normal(shape)).astype(np.float32)
    return {
        "name": name, "operation": operation, "settings": settings, "inputs": inputs, "constants": constants,
    }  # fmt: skip


def main():
    if not torch.__version__.startswith("2.13"):
        print(f"note: the committed values come from PyTorch 2.13, this is {torch.__version__}")
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    # The fused kernels take Σ dy·y for Σ weights·d_weights, which loses digits where the softmax saturates.
    own = mock.patch.object(F, "scaled_dot_product_attention", attend)
    for file in FILES:
        before = read(file)
        with sdpa_kernel(SDPBackend.MATH), own:
            after = [solve(case) for case in before]
        write(file, after)
        moved = max(
            abs(old["answers"][name] - x).max() / max(1, abs(x).max())
            for old, new in zip(before, after, strict=True)
            for name, x in new["answers"].items()
            if name in old["answers"]
        )
        print(f"{file.name}: {len(after)} cases, moved by {moved:.1e}, {file.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
