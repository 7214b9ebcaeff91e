"""Write the golden values: the outputs and gradients of PyTorch 2.13, which golden.py reads.

Run the script with any Python that has PyTorch and NumPy. npformer never needs PyTorch, and the script does
not import npformer. uv can install PyTorch for this one run:

    uv run --with torch==2.13 python tests/data/make_golden.py

The script computes every case in the golden files again with PyTorch, and prints how much the answers differ
from those in the files. On the same machine they are equal. On another machine a last digit may differ.
Therefore the script writes only the files that get a new case; with --all it writes every file. The inputs in
the files do not change. golden_files.py describes the format.

To add a case, add it to the list of its file in NEW_CASES at the end of the script, and run the script:

    shapes = {"x": (2, 8), "W": (8, 30), "d_y": (2, 30)}
    NEW_CASES = {"golden_functional": [new_case("linear_wide", "linear", {}, shapes)]}

"d_y" is the upstream gradient, with the shape of the output: "d_y": () for a loss. After the run, the file
contains the case, so you can remove it from NEW_CASES. For a new operation, first add a function to
OPERATIONS that computes it with PyTorch.

Every output comes from a function, module, loss or optimizer of PyTorch. Every gradient comes from PyTorch's
autograd. Three features that PyTorch's attention does not have are added here in a few lines: RoPE, the soft
cap of scores, and an output of zero for a query that may attend to no key. For such a query, PyTorch gives
NaN in one implementation and zero in another. ALiBi is an additive mask, which PyTorch's modules accept.
"""

import argparse
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

# Features that PyTorch's attention does not have.

PYTORCH_ATTENTION = F.scaled_dot_product_attention


def attend(q, k, v, attn_mask=None, *rest, **options):
    """Call PyTorch's attention; a query that may attend to no key gets zero output and zero gradient."""
    if attn_mask is None:
        return PYTORCH_ATTENTION(q, k, v, None, *rest, **options)
    is_empty = (attn_mask == -math.inf).all(-1, keepdim=True)
    y = PYTORCH_ATTENTION(q, k, v, attn_mask.masked_fill(is_empty, 0.0), *rest, **options)
    return y.masked_fill(is_empty, 0.0)


def attend_with_rope(q, k, v, *masks, **options):
    """Compute attention with RoPE. The last query has the same position as the last key."""
    return attend(rotate(q, k.shape[-2] - q.shape[-2]), rotate(k), v, *masks, **options)


def rotate(x, first=0, base=10000.0):
    """Apply RoPE: treat each pair of columns as a complex number, and rotate it by position · ω_i."""
    n, d = x.shape[-2:]
    omega = base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = (first + torch.arange(n, dtype=torch.float64))[:, None] * omega
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


class AttentionWithRoPE(nn.MultiheadAttention):
    """PyTorch's module for attention, with RoPE on the queries and keys of every head."""

    def forward(self, *args, **options):
        with mock.patch.object(F, "scaled_dot_product_attention", attend_with_rope):
            return super().forward(*args, **options)


def alibi(n_heads, n):
    """Return the bias of ALiBi; the number of heads must be a power of two."""
    slopes = torch.tensor([2.0 ** (-8.0 * (h + 1) / n_heads) for h in range(n_heads)])
    position = torch.arange(n)
    return -slopes.double()[:, None, None] * (position[:, None] - position).abs()


# The operations. `t` contains the tensors of a case by name, and `s` contains its settings.


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
    if "soft_cap" in s:
        scores = t["q"] @ t["k"].mT * s["scale"]
        capped = s["soft_cap"] * torch.tanh(scores / s["soft_cap"])
        return torch.softmax(capped + mask, -1) @ t["v"]
    return attend(t["q"], t["k"], t["v"], mask, scale=s.get("scale"))


def multi_head_attention(t, s):
    q, k, v = (three_axes(t[name]) for name in "qkv")
    module = attention_module(q.shape[-1], s["n_heads"], "b_Q" in t, s.get("rope"))
    options = {"attn_mask": additive_mask(t, s, "mask", t["q"], t["k"]), "need_weights": False}
    y, _ = functional_call(module, attention_state(t), (q, k, v), options)
    return y.reshape(t["q"].shape)


def grouped_attention(t, s):
    """Compute attention in which several query heads share keys and values.

    PyTorch's function for attention supports shared heads, but its module does not.
    """
    q, k, v = (
        (t[name] @ t[f"W_{name.upper()}"]).unflatten(-1, (n, -1)).transpose(-3, -2)
        for name, n in (("q", s["n_heads"]), ("k", s["n_kv_heads"]), ("v", s["n_kv_heads"]))
    )
    q, k = rotate(q, base=s["base"]), rotate(k, base=s["base"])
    heads = PYTORCH_ATTENTION(q, k, v, is_causal=True, enable_gqa=True)
    return heads.transpose(-3, -2).flatten(-2) @ t["W_O"]


def multi_head_latent_attention(t, s):
    """Compute latent attention as DeepSeek's code does: two wide products, which are then split.

    The first product gives the latent vector and the shared key, the second the keys and values of each head.
    """
    n, d_c = s["n_heads"], t["gamma"].shape[0]
    heads = {name: t[f"W_{name}"].unflatten(-1, (n, -1)) for name in ("UK", "UV", "Q", "QR")}
    latent, k_R = (t["x"] @ torch.cat([t["W_DKV"], t["W_KR"]], -1)).tensor_split([d_c], -1)
    kv = rms_norm(latent, t["gamma"], s["eps"]) @ torch.cat([heads["UK"], heads["UV"]], -1).flatten(-2)
    k_C, v = kv.unflatten(-1, (n, -1)).transpose(-3, -2).tensor_split([heads["UK"].shape[-1]], -1)
    q = t["x"] @ torch.cat([heads["Q"], heads["QR"]], -1).flatten(-2)
    q_C, q_R = q.unflatten(-1, (n, -1)).transpose(-3, -2).tensor_split([k_C.shape[-1]], -1)
    k_R = rotate(k_R, base=s["base"]).unsqueeze(-3).expand(*k_C.shape[:-1], -1)
    q, k = torch.cat([q_C, rotate(q_R, base=s["base"])], -1), torch.cat([k_C, k_R], -1)
    mask = torch.zeros(()).masked_fill(~t["mask"].unsqueeze(-3), -math.inf)
    return attend(q, k, v, mask).transpose(-3, -2).flatten(-2) @ t["W_O"]


def stack(t, s):
    """Run an encoder, or a decoder if the case has a memory; each has one or more blocks."""
    is_decoder = "memory" in t
    layers = [t]
    if "blocks.0.ffn.W_1" in t:
        layers = [part(t, f"blocks.{i}.") for i in range(s["n_layers"])]
    norm = nn.LayerNorm(s["d_model"], eps=s["eps"]) if "norm.gamma" in t else None
    if is_decoder:
        module = nn.TransformerDecoder(layer_module(s, is_decoder), len(layers), norm)
    else:
        module = nn.TransformerEncoder(layer_module(s, is_decoder), len(layers), norm, False)
    state = norm_state("norm", part(t, "norm.")) if norm else {}
    for i, layer in enumerate(layers):
        state |= {f"layers.{i}.{name}": value for name, value in block_state(layer).items()}
    masks = [additive_mask(t, s, "mask", t["x"], t["x"])]
    if is_decoder:
        masks += [additive_mask(t, {"n_heads": s["n_heads"]}, "memory_mask", t["x"], t["memory"])]
    x = [three_axes(t[name]) for name in ("x", "memory") if name in t]
    return functional_call(module, state, (*x, *masks)).reshape(t["x"].shape)


def transformer(t, s):
    """Compute the logits of the whole model.

    The source, the target and the logits share the matrix E. No query attends to padding.
    """
    source, target = t["source_ids"] != s["padding_id"], t["target_ids"] != s["padding_id"]
    n = target.shape[-1]
    visible = source[..., None, :]
    memory = stack(part(t, "encoder.") | {"x": embedded(t, s, "source"), "mask": visible}, s)
    causal = torch.ones(n, n, dtype=torch.bool).tril() & target[..., None, :]
    given = {"x": embedded(t, s, "target"), "memory": memory, "mask": causal, "memory_mask": visible}
    return F.linear(stack(part(t, "decoder.") | given, s), t["embedding.E"])


def embedding(t, s=None):
    return F.embedding(t["ids"], t["E"]) * math.sqrt(t["E"].shape[1])


def embedded(t, s, which):
    x = embedding({"ids": t[f"{which}_ids"], "E": t["embedding.E"]})
    n, d_model = x.shape[-2:]
    if s["positions"] == "sinusoidal":
        position, column = torch.arange(n)[:, None], torch.arange(d_model)
        angle = position / 10000 ** (2 * (column // 2) / d_model)  # section 3.5 of the paper
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


def lora(t, s):
    """Compute the merged weight as PEFT does: it stores A as (r, d_in) and B and W as (d_out, …)."""
    lora_A, lora_B = t["A"].mT, t["B"].mT
    return (t["W"].mT + lora_B @ lora_A * (s["alpha"] / lora_A.shape[0])).mT


def token_log_probs(t, s):
    return -F.cross_entropy(t["logits"].mT, t["targets"], ignore_index=s["ignore_index"], reduction="none")


def dpo(t, s):
    policy = t["log_p_w"] - t["log_p_l"]
    reference = t["log_p_ref_w"] - t["log_p_ref_l"]
    return -F.logsigmoid(s["beta"] * (policy - reference)).mean()


def clipped_policy(t, s):
    ratio = torch.exp(t["log_p"] - t["log_p_old"])
    clipped = torch.clamp(ratio, 1 - s["epsilon"], 1 + s["epsilon"])
    return torch.min(ratio * t["advantages"], clipped * t["advantages"])


def kl_penalty(t, s):
    log_ratio = t["log_p_ref"] - t["log_p"]
    return torch.exp(log_ratio) - log_ratio - 1


def mean_over_answers(per_token, t):
    """Average over the counted tokens of each answer, then over the answers."""
    counted = torch.broadcast_to(t.get("is_counted", torch.tensor(True)), per_token.shape)
    return ((per_token * counted).sum(-1) / counted.sum(-1)).mean()


def policy_gradient(t, s):
    return -mean_over_answers(t["log_p"] * t["advantages"], t)


def grpo(t, s):
    per_token = clipped_policy(t, s)
    if "log_p_ref" in t:
        per_token = per_token - s["beta"] * kl_penalty(t, s)
    return -mean_over_answers(per_token, t)


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
FUNCTIONS = (
    embedding,
    ffn,
    gated_ffn,
    attention,
    multi_head_attention,
    grouped_attention,
    multi_head_latent_attention,
    transformer,
    causal_lm,
    cross_entropy,
    lora,
    token_log_probs,
    dpo,
    policy_gradient,
    clipped_policy,
    kl_penalty,
    grpo,
)
OPERATIONS |= {function.__name__: function for function in FUNCTIONS}
OPERATIONS |= dict.fromkeys(("encoder_block", "encoder", "decoder_block", "decoder"), stack)


# PyTorch's modules, and npformer's parameters converted to PyTorch's names.


def attention_module(d_model, n_heads, has_biases, has_rope=False):
    kind = AttentionWithRoPE if has_rope else nn.MultiheadAttention
    return kind(d_model, n_heads, bias=has_biases, batch_first=True)


def layer_module(s, is_decoder):
    """Return PyTorch's module for one block. RoPE applies to self-attention, never to cross-attention."""
    kind = nn.TransformerDecoderLayer if is_decoder else nn.TransformerEncoderLayer
    sizes = s["d_model"], s["n_heads"], s["d_ff"], 0.0, ACTIVATIONS[s["activation"]], s["eps"]
    module = kind(*sizes, batch_first=True, norm_first=s["norm"] == "pre")
    attention = s["d_model"], s["n_heads"], s["attention_bias"]
    module.self_attn = attention_module(*attention, s["positions"] == "rope")
    if is_decoder:
        module.multihead_attn = attention_module(*attention)
    return module


def additive_mask(t, s, name, q, k):
    """Return the sum of bias, ALiBi and mask (-inf where masked), of shape (batch · heads, T_q, T_k)."""
    total = torch.zeros(*q.shape[:-2], s["n_heads"], q.shape[-2], k.shape[-2]) + t.get("bias", 0.0)
    if s.get("positions") == "alibi":
        total = total + alibi(s["n_heads"], q.shape[-2])
    if name in t:
        mask = t[name] if t[name].ndim < 3 else t[name].unsqueeze(-3)
        total = total.masked_fill(~mask, -math.inf)
    return three_axes(total)


def attention_state(t):
    """Return parameters of attention as PyTorch stores them.

    Each W is transposed, and the matrices for Q, K and V are concatenated.
    """
    state = {"in_proj_weight": torch.cat([t[f"W_{x}"].mT for x in "QKV"]), "out_proj.weight": t["W_O"].mT}
    if "b_Q" in t:
        state |= {"in_proj_bias": torch.cat([t[f"b_{x}"] for x in "QKV"]), "out_proj.bias": t["b_O"]}
    return state


def block_state(t):
    """Return the parameters of an encoder or decoder block under PyTorch's names."""
    modules = {
        "attention.": "self_attn",
        "self_attention.": "self_attn",
        "cross_attention.": "multihead_attn",
    }
    state = {}
    for prefix, module in modules.items():
        if f"{prefix}W_Q" in t:
            attention = attention_state(part(t, prefix))
            state |= {f"{module}.{name}": value for name, value in attention.items()}
    for i in (1, 2, 3):
        if f"norm_{i}.gamma" in t:
            state |= norm_state(f"norm{i}", part(t, f"norm_{i}."))
    for i in (1, 2):
        state |= {f"linear{i}.weight": t[f"ffn.W_{i}"].mT, f"linear{i}.bias": t[f"ffn.b_{i}"]}
    return state


def norm_state(name, t):
    return {f"{name}.weight": t["gamma"], f"{name}.bias": t["beta"]}


def part(t, prefix):
    """Return the tensors whose names begin with a prefix; remove the prefix from the names."""
    return {name.removeprefix(prefix): value for name, value in t.items() if name.startswith(prefix)}


def three_axes(x):
    return x.reshape(-1, *x.shape[-2:])


# A case and its answers.

STEPS = 100
STORED_STEPS = (1, 10, 100)


def adam(t, s):
    """Return each parameter after the steps in STORED_STEPS, and both running means after the last step."""
    grads = part(t, "g.")
    params = {name: t[name] for name in grads}
    kind = torch.optim.AdamW if s["weight_decay"] else torch.optim.Adam
    options = {"betas": (s["beta_1"], s["beta_2"]), "eps": s["eps"], "weight_decay": s["weight_decay"]}
    optimizer = kind(params.values(), **options)
    answers = {}
    for step in range(1, STEPS + 1):
        optimizer.param_groups[0]["lr"] = learning_rate(s, step)
        for name, p in params.items():
            p.grad = grads[name][step - 1].detach().clone()
        optimizer.step()
        if step in STORED_STEPS:
            answers |= {f"{name}_after_{step}": p.detach().clone() for name, p in params.items()}
    for mean, name_in_pytorch in (("m", "exp_avg"), ("v", "exp_avg_sq")):
        answers |= {f"{mean}.{name}": optimizer.state[p][name_in_pytorch] for name, p in params.items()}
    return answers


def learning_rate(s, step):
    """Return the learning rate of a step: constant, or by the paper's schedule if `s` has warmup_steps."""
    if "warmup_steps" not in s:
        return s["learning_rate"]
    return s["d_model"] ** -0.5 * min(step**-0.5, step * s["warmup_steps"] ** -1.5)


# The inputs that get no gradient.
WITHOUT_GRADIENT = {"bias", "d_y", "advantages", "log_p_old", "log_p_ref", "log_p_ref_w", "log_p_ref_l"}


def solve(case):
    """Return the case with PyTorch's answers."""
    t = {name: torch.tensor(a, dtype=torch.float64) for name, a in case["inputs"].items()}
    differentiable = {name: x.requires_grad_() for name, x in t.items() if name not in WITHOUT_GRADIENT}
    t |= {name: torch.tensor(constant) for name, constant in case["constants"].items()}
    if case["operation"] == "adam":
        answers = adam(t, case["settings"])
    else:
        y = OPERATIONS[case["operation"]](t, case["settings"])
        grads = torch.autograd.grad(y, list(differentiable.values()), t["d_y"])
        answers = {"y": y.detach()} | {f"d_{name}": g for name, g in zip(differentiable, grads, strict=True)}
    assert all(value.isfinite().all() for value in answers.values()), case["name"]
    return case | {"answers": {name: value.numpy() for name, value in answers.items()}}


def new_case(name, operation, settings, shapes, **constants):
    """Return a case with random inputs of the given shapes, including d_y. The case's name is the seed."""
    rng, inputs = np.random.default_rng(zlib.crc32(name.encode())), {}
    for path, shape in shapes.items():
        leaf = path.rpartition(".")[2]
        scale = shape[0] ** -0.5 if leaf.startswith("W") else 1.0
        inputs[path] = ((leaf == "gamma") + scale * rng.standard_normal(shape)).astype(np.float32)
    return {
        "name": name, "operation": operation, "settings": settings, "inputs": inputs, "constants": constants,
    }  # fmt: skip


NEW_CASES = {}  # {name of a golden file: its new cases}; cases that the file has already are ignored


def main():
    """Compute all golden files again, and write those with a new case; with --all, write all of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="write every file, also those without a new case")
    writes_all = parser.parse_args().all
    if not torch.__version__.startswith("2.13"):
        print(f"note: the committed values come from PyTorch 2.13, this is {torch.__version__}")
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    # SDPBackend.MATH switches the fused kernels off, because they lose digits for large weights: they compute
    # Σ dy·y instead of Σ weights·d_weights.
    with_zero_rows = mock.patch.object(F, "scaled_dot_product_attention", attend)
    for file in FILES:
        before = read(file)
        names = {case["name"] for case in before}
        new = [case for case in NEW_CASES.get(file.stem, []) if case["name"] not in names]
        with sdpa_kernel(SDPBackend.MATH), with_zero_rows:
            after = [solve(case) for case in [*before, *new]]
        if new or writes_all:
            write(file, after)
        difference = max(
            abs(old["answers"][name] - x).max() / max(1, abs(x).max())
            for old, new in zip(before, after[: len(before)], strict=True)
            for name, x in new["answers"].items()
            if name in old["answers"]
        )
        what = "written" if new or writes_all else "not written: no new case"
        print(f"{file.name}: {len(after)} cases, {len(new)} new, difference {difference:.1e}, {what}")


if __name__ == "__main__":
    main()
