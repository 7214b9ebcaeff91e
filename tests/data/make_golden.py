"""Write the golden values: what PyTorch 2.13 answers, outputs and every gradient, for golden.py to read.

Run it with any Python that has PyTorch and NumPy. npformer never needs PyTorch, and is not imported here.

    python tests/data/make_golden.py

It writes golden_functional.npz, golden_attention.npz, golden_encoder.npz and golden_model.npz beside itself:
on one machine the same bytes each time, on another perhaps another last digit.

How a file is laid out. Three arrays keep it small: `inputs` and `answers` hold all numbers end to end, and
`index` is JSON, a list of cases: the operation and its settings; the shapes of the inputs (`d_y` is the
random upstream gradient) and of the answers (`y`, then `d_<input>` for every gradient) in the order they
are stored; the masks and ids. A stack of blocks keeps one array per parameter, layers along its first axis.
An Adam case has the gradients of all steps among its inputs, `g.<parameter>`, steps along the first axis;
its answers are each parameter after some of the steps, `W_after_10`, and both means at the end, `m.W`, `v.W`.

Why the inputs are float32. PyTorch computes in float64 throughout, but every input is a float32 number. So
one answer is the truth for both: npformer in float64 must meet it to 1e-11, and in float32 it sees the
same inputs.

What is trusted. Each case from attention upwards is computed twice: with PyTorch's own module, loss or
optimizer, and from primitives in the few lines below. The two must agree to 1e-12, gradients included, and
PyTorch's own answer is stored. For a query that may attend to no key PyTorch has no one answer (NaN on one
path, zero on another); npformer's rule, zero output and zero gradient, is stored from the primitives once
all other rows have been compared. RoPE and ALiBi, which PyTorch has no module for, come from the primitives
too.
"""

import json
import math
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

HERE = Path(__file__).parent
ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda z: F.gelu(z, approximate="tanh")}


class Case(NamedTuple):
    """One row of the proof: what is computed, with which options, from which arrays."""

    name: str
    operation: str
    settings: dict
    inputs: dict


# The operations, each from primitives: `t` holds the tensors by name, `s` the settings.


def layer_norm(t, s, x=None, prefix=""):
    x, gamma = t["x"] if x is None else x, t[f"{prefix}gamma"]
    return F.layer_norm(x, gamma.shape, gamma, t[f"{prefix}beta"], s["eps"])


def linear(t, s):
    y = t["x"] @ t["W"]
    return y + t["b"] if "b" in t else y


def activation(t, s):
    return ACTIVATIONS[s["activation"]](t["z"])


def softmax(t, s):
    closed = (t["scores"] == -math.inf).all(s["axis"], keepdim=True)
    weights = torch.softmax(t["scores"].masked_fill(closed, 0.0), s["axis"])
    return weights.masked_fill(closed, 0.0)


def embedding(t, s):
    return F.embedding(t["ids"], t["E"]) * math.sqrt(t["E"].shape[1])


def tied_logits(t, s):
    return F.linear(t["x"], t["E"])


def ffn(t, s, x=None, prefix=""):
    x = t["x"] if x is None else x
    z = x @ t[prefix + "W_1"] + t[prefix + "b_1"]
    if s["activation"] == "relu":
        assert_float32_keeps_signs(z)
    return ACTIVATIONS[s["activation"]](z) @ t[prefix + "W_2"] + t[prefix + "b_2"]


def attend(q, k, v, mask=None, bias=None):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    scores = scores if bias is None else scores + bias
    if mask is None:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool)
    closed = ~mask.any(-1, keepdim=True)
    scores = scores.masked_fill(~mask, -math.inf).masked_fill(closed, 0.0)
    assert_float32_keeps_winner(scores)
    return torch.softmax(scores, -1).masked_fill(closed, 0.0) @ v


def attention(t, s):
    return attend(t["q"], t["k"], t["v"], t.get("mask"), t.get("bias"))


def multi_head(t, s, q=None, k=None, v=None, prefix=""):
    if q is None:
        q, k, v = t["q"], t["k"], t["v"]
    q, k, v = (
        project(t, prefix, letter, x).unflatten(-1, (s["n_heads"], -1)).transpose(-3, -2)
        for letter, x in zip("QKV", (q, k, v), strict=True)
    )
    if s.get("rope"):
        q, k = rotate(q, k.shape[-2] - q.shape[-2]), rotate(k)  # the last query stands at the last key
    mask, bias = over_heads(t.get("mask")), t.get("bias")
    if s.get("alibi"):
        bias = alibi(s["n_heads"], q.shape[-2])
    return project(t, prefix, "O", attend(q, k, v, mask, bias).transpose(-3, -2).flatten(-2))


def project(t, prefix, letter, x):
    y = x @ t[f"{prefix}W_{letter}"]
    return y + t[f"{prefix}b_{letter}"] if f"{prefix}b_{letter}" in t else y


def rotate(x, first=0):
    """RoPE as complex multiplication: two neighbours are one complex number, turned by position · ω_i."""
    n, d = x.shape[-2:]
    omega = 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = (first + torch.arange(n, dtype=torch.float64))[:, None] * omega
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


def alibi(n_heads, n):
    """For a power of two of heads only."""
    slopes = torch.tensor([2.0 ** (-8.0 * (h + 1) / n_heads) for h in range(n_heads)])
    place = torch.arange(n)
    return -slopes.double()[:, None, None] * (place[:, None] - place).abs()


def block(t, s, x=None, prefix=""):
    def norm(x, which):
        return layer_norm(t, s, x, f"{prefix}norm_{which}.")

    x = t["x"] if x is None else x
    if s["norm"] == "pre":
        normed = norm(x, 1)
        x = x + multi_head(t, s, normed, normed, normed, prefix + "attention.")
        return x + ffn(t, s, norm(x, 2), prefix + "ffn.")
    x = norm(x + multi_head(t, s, x, x, x, prefix + "attention."), 1)
    return norm(x + ffn(t, s, x, prefix + "ffn."), 2)


def stack(t, s, one=block):
    x = t["x"]
    for layer in range(s["n_layers"]):
        x = one({**t, **layer_of(t, "blocks.", layer)}, s, x, "blocks.")
    return layer_norm(t, s, x, "norm.") if "norm.gamma" in t else x


def layer_of(t, prefix, layer):
    return {name: value[layer] for name, value in t.items() if name.startswith(prefix)}


def decoder_block(t, s, x=None, prefix=""):
    """RoPE and ALiBi are of the self-attention only, and the memory has a mask of its own."""
    x, memory = t["x"] if x is None else x, t["memory"]
    across = {**t, "mask": t.get("memory_mask")}, {"n_heads": s["n_heads"]}

    def norm(x, which):
        return layer_norm(t, s, x, f"{prefix}norm_{which}.")

    if s["norm"] == "pre":
        normed = norm(x, 1)
        x = x + multi_head(t, s, normed, normed, normed, prefix + "self_attention.")
        x = x + multi_head(*across, norm(x, 2), memory, memory, prefix + "cross_attention.")
        return x + ffn(t, s, norm(x, 3), prefix + "ffn.")
    x = norm(x + multi_head(t, s, x, x, x, prefix + "self_attention."), 1)
    x = norm(x + multi_head(*across, x, memory, memory, prefix + "cross_attention."), 2)
    return norm(x + ffn(t, s, x, prefix + "ffn."), 3)


def decoder_stack(t, s):
    return stack(t, s, decoder_block)


def transformer(t, s):
    """Logits. One matrix E for both embeddings and the logits; padding is hidden from every query."""
    source, target = t["source_ids"] != s["padding_id"], t["target_ids"] != s["padding_id"]
    n = target.shape[-1]
    encoder = part(t, "encoder.") | {"x": embedded(t, s, "source"), "mask": source[..., None, :]}
    decoder = part(t, "decoder.") | {
        "x": embedded(t, s, "target"),
        "memory": stack(encoder, s),
        "mask": torch.ones(n, n, dtype=torch.bool).tril() & target[..., None, :],
        "memory_mask": source[..., None, :],
    }
    return decoder_stack(decoder, s) @ t["E"].mT


def embedded(t, s, which):
    x = math.sqrt(t["E"].shape[1]) * t["E"][t[f"{which}_ids"]]
    if s["positions"] == "sinusoidal":
        x = x + sinusoids(*x.shape[-2:])
    if s["positions"] == "learned":
        x = x + t[f"{which}_positions.P"][: x.shape[-2]]
    return x


def sinusoids(n, d_model):
    """The sine of each pair's angle in its even column, the cosine in its odd one."""
    angle = torch.arange(n)[:, None] / 10000.0 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)


def part(t, prefix):
    return {name.removeprefix(prefix): value for name, value in t.items() if name.startswith(prefix)}


def cross_entropy(t, s, logits=None):
    """Row by row: minus Σ wanted · log p, with wanted ε/V everywhere and 1 - ε more at the label."""
    logits = t["logits"] if logits is None else logits
    rows, ids = logits.flatten(0, -2), t["labels"].flatten()
    smoothing, losses = s["label_smoothing"], []
    for row, label in zip(rows, ids.tolist(), strict=True):
        if label != s["ignore_index"]:
            wanted = torch.full_like(row, smoothing / len(row))
            wanted[label] += 1 - smoothing
            surprise = torch.where(wanted > 0, wanted * (row - row.logsumexp(0)), 0.0)  # 0 · -inf counts 0
            losses.append(-surprise.sum())
    return torch.stack(losses).mean()


def training(t, s):
    return cross_entropy(t, s, transformer(t, s))


# The same with PyTorch's own functions and modules.


def torch_attention(t, s):
    mask = t.get("mask")
    if "bias" in t:
        mask = t["bias"] if mask is None else t["bias"].masked_fill(~mask, -math.inf)
    return F.scaled_dot_product_attention(t["q"], t["k"], t["v"], attn_mask=mask)


def torch_multi_head(t, s):
    q, k, v = (three_axes(t[name]) for name in "qkv")
    module = nn.MultiheadAttention(q.shape[-1], s["n_heads"], bias="b_Q" in t, batch_first=True)
    y, _ = functional_call(
        module, attention_state(t, ""), (q, k, v), {"attn_mask": additive_mask(t, s, t["q"], t["k"])}
    )
    return y.reshape(t["q"].shape)


def through(make, state, mask):
    """A module of PyTorch with our parameters, applied to x and, in a decoder, the memory."""

    def function(t, s):
        x = tuple(three_axes(t[name]) for name in ("x", "memory") if name in t)
        masks = decoder_masks(t, s) if "memory" in t else {mask: additive_mask(t, s, t["x"], t["x"])}
        return functional_call(make(t, s), state(t, s), x, masks).reshape(t["x"].shape)

    return function


def torch_transformer(t, s):
    """nn.Transformer, with the masks as it likes them best: True = hidden, padding by the key."""
    encoder, decoder, d_model = part(t, "encoder."), part(t, "decoder."), t["E"].shape[1]
    source, target = t["source_ids"], t["target_ids"]
    parts = {
        f"custom_{name}": make(p, s)
        for name, make, p in (("encoder", encoder_module, encoder), ("decoder", decoder_module, decoder))
    }
    module = nn.Transformer(d_model, s["n_heads"], batch_first=True, **parts)
    masks = {
        "tgt_mask": torch.ones(2 * target.shape[-1:], dtype=torch.bool).triu(1),
        "src_key_padding_mask": source == s["padding_id"],
        "tgt_key_padding_mask": target == s["padding_id"],
        "memory_key_padding_mask": source == s["padding_id"],
    }
    state = {f"encoder.{name}": value for name, value in stack_state(encoder, s).items()}
    state |= {f"decoder.{name}": value for name, value in stack_state(decoder, s).items()}
    x = torch_embedded(t, s, "source"), torch_embedded(t, s, "target")
    return F.linear(functional_call(module, state, x, masks), t["E"])


def torch_embedded(t, s, which):
    ids = t[f"{which}_ids"]
    x = F.embedding(ids, t["E"]) * math.sqrt(t["E"].shape[1])
    places = torch.arange(ids.shape[-1])
    if s["positions"] == "sinusoidal":
        return x + torch.tensor(
            [[paper_position(p, c, x.shape[-1]) for c in range(x.shape[-1])] for p in places]
        )
    if s["positions"] == "learned":
        return x + F.embedding(places, t[f"{which}_positions.P"])
    return x


def paper_position(place, column, d_model):
    """Section 3.5 of the paper, one number at a time."""
    angle = float(place) / 10000 ** (2 * (column // 2) / d_model)
    return math.cos(angle) if column % 2 else math.sin(angle)


def torch_cross_entropy(t, s, logits=None):
    logits = t["logits"] if logits is None else logits
    return F.cross_entropy(
        logits.flatten(0, -2),
        t["labels"].flatten(),
        ignore_index=s["ignore_index"],
        label_smoothing=s["label_smoothing"],
    )


def torch_training(t, s):
    return torch_cross_entropy(t, s, torch_transformer(t, s))


def encoder_module(t, s):
    layer = encoder_layer(t, s, "blocks.")
    return nn.TransformerEncoder(layer, s["n_layers"], norm_module(t, s), enable_nested_tensor=False)


def decoder_module(t, s):
    return nn.TransformerDecoder(decoder_layer(t, s, "blocks."), s["n_layers"], norm_module(t, s))


def norm_module(t, s):
    return nn.LayerNorm(t["norm.gamma"].shape, eps=s["eps"]) if "norm.gamma" in t else None


def encoder_layer(t, s, prefix=""):
    d_model, d_ff = t[prefix + "ffn.W_1"].shape[-2:]
    layer = nn.TransformerEncoderLayer(d_model, s["n_heads"], d_ff, **layer_options(s))
    layer.self_attn = attention_module(t, s, prefix + "attention.")
    return layer


def decoder_layer(t, s, prefix=""):
    d_model, d_ff = t[prefix + "ffn.W_1"].shape[-2:]
    layer = nn.TransformerDecoderLayer(d_model, s["n_heads"], d_ff, **layer_options(s))
    layer.self_attn = attention_module(t, s, prefix + "self_attention.")
    layer.multihead_attn = attention_module(t, s, prefix + "cross_attention.")
    return layer


def layer_options(s):
    return {
        "dropout": 0.0,
        "activation": ACTIVATIONS[s["activation"]],
        "layer_norm_eps": s["eps"],
        "batch_first": True,
        "norm_first": s["norm"] == "pre",
    }


def attention_module(t, s, prefix):
    d_model = t[prefix + "W_Q"].shape[-1]
    return nn.MultiheadAttention(d_model, s["n_heads"], bias=prefix + "b_Q" in t, batch_first=True)


def attention_state(t, prefix):
    """PyTorch keeps W transposed, and Q, K and V in one matrix."""
    state = {
        "in_proj_weight": torch.cat([t[f"{prefix}W_{letter}"].mT for letter in "QKV"]),
        "out_proj.weight": t[prefix + "W_O"].mT,
    }
    if prefix + "b_Q" in t:
        state["in_proj_bias"] = torch.cat([t[f"{prefix}b_{letter}"] for letter in "QKV"])
        state["out_proj.bias"] = t[prefix + "b_O"]
    return state


def block_state(t, s=None, prefix=""):
    """Of an encoder block or a decoder block, by the names that its parameters have."""
    theirs = {"attention.": "self_attn", "self_attention.": "self_attn", "cross_attention.": "multihead_attn"}
    state = {}
    for ours, module in theirs.items():
        if f"{prefix}{ours}W_Q" in t:
            own = attention_state(t, prefix + ours)
            state |= {f"{module}.{name}": value for name, value in own.items()}
    for i in (1, 2, 3):
        if f"{prefix}norm_{i}.gamma" in t:
            state |= norm_state(t, f"norm{i}", f"{prefix}norm_{i}.")
    for i in (1, 2):
        state[f"linear{i}.weight"] = t[f"{prefix}ffn.W_{i}"].mT
        state[f"linear{i}.bias"] = t[f"{prefix}ffn.b_{i}"]
    return state


def norm_state(t, theirs, ours):
    return {f"{theirs}.weight": t[f"{ours}gamma"], f"{theirs}.bias": t[f"{ours}beta"]}


def stack_state(t, s):
    state = norm_state(t, "norm", "norm.") if "norm.gamma" in t else {}
    for i in range(s["n_layers"]):
        own = block_state(layer_of(t, "blocks.", i), s, "blocks.")
        state |= {f"layers.{i}.{name}": value for name, value in own.items()}
    return state


def three_axes(x):
    return x.reshape(-1, *x.shape[-2:])


def over_heads(mask):
    return mask if mask is None or mask.ndim < 3 else mask.unsqueeze(-3)


def additive_mask(t, s, q, k):
    """Mask and bias as PyTorch takes them: (batch · heads, T_q, T_k), -inf where not allowed."""
    total = torch.zeros(*q.shape[:-2], s["n_heads"], q.shape[-2], k.shape[-2])
    total = total + t.get("bias", 0.0)
    if "mask" in t:
        total = total.masked_fill(~over_heads(t["mask"]), -math.inf)
    return three_axes(total)


def decoder_masks(t, s):
    across = {"mask": t["memory_mask"]} if "memory_mask" in t else {}
    return {
        "tgt_mask": additive_mask(t, s, t["x"], t["x"]),
        "memory_mask": additive_mask(across, s, t["x"], t["memory"]),
    }


# (from primitives, PyTorch's own or None where the primitives are PyTorch's own functions)
OPERATIONS = {
    "layer_norm": (layer_norm, None),
    "linear": (linear, None),
    "activation": (activation, None),
    "softmax": (softmax, None),
    "embedding": (embedding, None),
    "tied_logits": (tied_logits, None),
    "ffn": (ffn, None),
    "attention": (attention, torch_attention),
    "multi_head": (multi_head, torch_multi_head),
    "block": (block, through(encoder_layer, block_state, "src_mask")),
    "stack": (stack, through(encoder_module, stack_state, "mask")),
    "decoder_block": (decoder_block, through(decoder_layer, block_state, None)),
    "decoder_stack": (decoder_stack, through(decoder_module, stack_state, None)),
    "transformer": (transformer, torch_transformer),
    "cross_entropy": (cross_entropy, torch_cross_entropy),
    "training": (training, torch_training),
}


# Adam, by its paper's algorithm and by PyTorch's optimizers.

STEPS, SHOWN = 100, (1, 10, 100)


def adam(params, grads, s):
    m = v = {name: torch.zeros_like(p) for name, p in params.items()}
    shown = {}
    for step in range(1, STEPS + 1):
        eta = learning_rate(s, step)
        for name, p in params.items():
            g = grads[name][step - 1]
            m = m | {name: s["beta_1"] * m[name] + (1 - s["beta_1"]) * g}
            v = v | {name: s["beta_2"] * v[name] + (1 - s["beta_2"]) * g**2}
            m_hat, v_hat = m[name] / (1 - s["beta_1"] ** step), v[name] / (1 - s["beta_2"] ** step)
            direction = m_hat / (v_hat.sqrt() + s["eps"]) + s["weight_decay"] * p
            params = params | {name: p - eta * direction}
        if step in SHOWN:
            shown |= {f"{name}_after_{step}": p for name, p in params.items()}
    return (
        shown
        | {f"m.{name}": mean for name, mean in m.items()}
        | {f"v.{name}": mean for name, mean in v.items()}
    )


def torch_adam(params, grads, s):
    params = {name: p.clone().requires_grad_() for name, p in params.items()}
    options = {"lr": learning_rate(s, 1), "betas": (s["beta_1"], s["beta_2"]), "eps": s["eps"]}
    if s["weight_decay"]:
        optimizer = torch.optim.AdamW(params.values(), weight_decay=s["weight_decay"], **options)
    else:
        optimizer = torch.optim.Adam(params.values(), **options)
    shown = {}
    for step in range(1, STEPS + 1):
        optimizer.param_groups[0]["lr"] = learning_rate(s, step)
        for name, p in params.items():
            p.grad = grads[name][step - 1].clone()
        optimizer.step()
        if step in SHOWN:
            shown |= {f"{name}_after_{step}": p.detach().clone() for name, p in params.items()}
    means = (("m", "exp_avg"), ("v", "exp_avg_sq"))
    return shown | {
        f"{ours}.{name}": optimizer.state[p][its] for ours, its in means for name, p in params.items()
    }


def learning_rate(s, step):
    """A number, or the paper's schedule with the width and the number of warm-up steps in s."""
    if "warmup_steps" not in s:
        return s["learning_rate"]
    return s["d_model"] ** -0.5 * min(step**-0.5, step * s["warmup_steps"] ** -1.5)


def solve_adam(case):
    tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in case.inputs.items()}
    grads = part(tensors, "g.")
    params = {name: tensors[name] for name in grads}
    own, result = (f(params, grads, case.settings) for f in (adam, torch_adam))
    assert own.keys() == result.keys()
    assert_same(own, result, case.name)
    return case, result


# The checks that the script makes of itself.


def assert_float32_keeps_signs(z):
    """No unit so near ReLU's kink that float32 could rightly land on its other side."""
    assert z.abs().min() > 1e-5 * max(1.0, z.abs().max()), "a unit sits on ReLU's kink: take another draw"


def assert_float32_keeps_winner(scores):
    """Where the softmax saturates, the winner must lead by far more than float32 can lose."""
    finite = scores.detach().masked_fill(scores == -math.inf, -1e300)
    if finite.max() > 1e3 and scores.shape[-1] > 1:
        best, second = finite.topk(2, -1).values.unbind(-1)
        lost = scores.detach().nan_to_num(neginf=0.0).abs().amax(-1) * 1e-5
        sure = (best - second > lost + 200.0) | (best == second)
        assert sure.all(), "two scores are too close: take another draw"


def assert_same(one, other, name):
    for key in one:
        error = (one[key] - other[key]).abs().max() / max(1.0, one[key].abs().max())
        assert error < 1e-12, f"{name}: {key} differs by {error:.1e} between primitives and PyTorch's own"


def answers(function, case, tensors, d_y):
    """Output and gradients of one case, under the names they are stored by."""
    wanted = {name: value for name, value in tensors.items() if value.requires_grad}
    y = function(tensors, case.settings)
    grads = torch.autograd.grad(y, list(wanted.values()), d_y)
    return {"y": y.detach()} | {f"d_{name}": g for name, g in zip(wanted, grads, strict=True)}


def closed_rows(tensors, d_y):
    """True for each output row whose query may attend to nothing; None when there is no such row."""
    closed = torch.zeros(d_y.shape[:-1], dtype=torch.bool)
    for mask in (tensors[name] for name in MASKS if name in tensors):
        closed = closed | ~mask.any(-1)
    return closed if closed.any() else None


MASKS = ("mask", "memory_mask")


def assert_open_rows_same(case, tensors, d_y, closed):
    """Rows opened to all keys, but without upstream gradient, leave the others as they are."""
    ours, theirs = OPERATIONS[case.operation]
    d_y = d_y.masked_fill(closed[..., None], 0.0)
    opened = dict(tensors)
    for name in MASKS:
        if name in opened:
            opened[name] = opened[name] | ~opened[name].any(-1, keepdim=True)
    one, other = answers(ours, case, tensors, d_y), answers(theirs, case, opened, d_y)
    one["y"], other["y"] = one["y"][~closed], other["y"][~closed]
    assert_same(one, other, case.name)


def only_counted_rows(case, tensors, d_y, own):
    """PyTorch's own answer, but for the gradient of ignored rows: what is NaN there becomes 0."""
    found = answers(OPERATIONS[case.operation][1], case, tensors, d_y)
    ignored = (tensors["labels"] == case.settings["ignore_index"])[..., None]
    assert found["d_logits"].masked_select(ignored).isnan().any() or not ignored.any()
    found["d_logits"] = found["d_logits"].masked_fill(ignored, 0.0)
    assert_same(own, found, case.name)
    return found


def solve(case):
    """The case with its upstream gradient among the inputs, and its answers."""
    if case.operation == "adam":
        return solve_adam(case)
    tensors = {name: tensor_of(name, value) for name, value in case.inputs.items()}
    ours, theirs = OPERATIONS[case.operation]
    with torch.no_grad():
        shape = ours(tensors, case.settings).shape
    upstream = numbers(generator(case.name + ": d_y"), *shape)
    d_y = torch.tensor(upstream, dtype=torch.float64)
    result = answers(ours, case, tensors, d_y)
    if case.operation == "cross_entropy" and not tensors["logits"].isfinite().all():
        result = only_counted_rows(case, tensors, d_y, result)
    elif theirs and not {"rope", "alibi"} & case.settings.keys():  # PyTorch's modules have neither
        closed = closed_rows(tensors, d_y)
        if closed is None:
            result, own = answers(theirs, case, tensors, d_y), result
            assert_same(own, result, case.name)
        else:
            assert_open_rows_same(case, tensors, d_y, closed)
    assert all(value.isfinite().all() for value in result.values()), case.name
    return case._replace(inputs=case.inputs | {"d_y": upstream}), result


def tensor_of(name, value):
    if value.dtype == np.float32:
        return torch.tensor(value, dtype=torch.float64, requires_grad=name != "bias")
    return torch.tensor(value)


# The cases. Each draws from a generator seeded by its own name, so a new case moves no other.


def generator(name, draw=0):
    """`draw` moves a case off an unlucky sample, when one of the script's own checks asks for it."""
    return np.random.default_rng([zlib.crc32(name.encode()), draw])


def numbers(rng, *shape, scale=1.0, shift=0.0):
    return (shift + scale * rng.standard_normal(shape)).astype(np.float32)


def norm_params(rng, d_model, prefix="", layers=()):
    return {
        f"{prefix}gamma": numbers(rng, *layers, d_model, scale=0.4, shift=1.0),
        f"{prefix}beta": numbers(rng, *layers, d_model, scale=0.4),
    }


def ffn_params(rng, d_model, d_ff, prefix="", layers=()):
    return {
        f"{prefix}W_1": numbers(rng, *layers, d_model, d_ff, scale=d_model**-0.5),
        f"{prefix}b_1": numbers(rng, *layers, d_ff, scale=0.3),
        f"{prefix}W_2": numbers(rng, *layers, d_ff, d_model, scale=d_ff**-0.5),
        f"{prefix}b_2": numbers(rng, *layers, d_model, scale=0.3),
    }


def attention_params(rng, d_model, biased, prefix="", layers=()):
    scale = d_model**-0.5
    params = {f"{prefix}W_{name}": numbers(rng, *layers, d_model, d_model, scale=scale) for name in "QKVO"}
    if biased:
        params |= {f"{prefix}b_{name}": numbers(rng, *layers, d_model, scale=0.3) for name in "QKVO"}
    return params


def block_params(rng, d_model, d_ff, biased, prefix="", layers=()):
    return (
        attention_params(rng, d_model, biased, f"{prefix}attention.", layers)
        | norm_params(rng, d_model, f"{prefix}norm_1.", layers)
        | ffn_params(rng, d_model, d_ff, f"{prefix}ffn.", layers)
        | norm_params(rng, d_model, f"{prefix}norm_2.", layers)
    )


def causal(t_q, t_k=None):
    t_k = t_q if t_k is None else t_k
    return np.tril(np.ones((t_q, t_k), dtype=bool), t_k - t_q)


def padding(n_keys, lengths):
    """(B, 1, T_k): True for the first `length` keys of each sequence."""
    return np.arange(n_keys) < np.array(lengths)[..., None, None]


def some_closed(t):
    """A causal mask whose rows 1 and 3 may attend to nothing."""
    return causal(t) & ~np.isin(np.arange(t), (1, 3))[:, None]


SIX_SENTENCES = padding(5, [[5, 3, 1], [2, 4, 5]])  # two batch axes: (2, 3, 1, T_k)


def case(name, operation, settings, *arrays, draw=0, **given):
    """Its arrays are drawn from one generator in the order in which they stand here.

    Each is (names, shape, scale, shift), the last two as they are needed, or a function of the generator.
    """
    rng, inputs = generator(name, draw), {}
    for array in arrays:
        if callable(array):
            inputs |= array(rng)
        else:
            names, shape, *size = array
            size = dict(zip(("scale", "shift"), size, strict=False))
            inputs |= {one: numbers(rng, *shape, **size) for one in names.split()}
    return Case(name, operation, settings, inputs | given)


def but(case, array, *entries):
    """The case with some entries of an array written over."""
    for place, value in entries:
        case.inputs[array][place] = value
    return case


def functional_cases() -> Iterator[Case]:
    yield from layer_norm_cases()
    for kind in ("relu", "gelu", "gelu_tanh"):
        for name, scale in {kind: 2.0, f"{kind}_inputs_1e4": 1e4}.items():
            z = case(name, "activation", {"activation": kind}, ("z", (2, 5, 8), scale))
            near, far = (0.0, -0.0, 1e-7, -1e-7), (-30.0, -9.0, -5.5, 6.0, 30.0)
            yield but(z, "z", (np.s_[0, 0, :4], near), (np.s_[1, :, 0], far))
    yield from softmax_cases()
    x, bias = ("x", (2, 5, 8)), ("b", (3,))
    yield case("linear", "linear", {}, x, ("W", (8, 3)), bias)
    yield case("linear_no_bias", "linear", {}, x, ("W", (8, 3)))
    yield case("linear_no_batch", "linear", {}, ("x", (5, 8)), ("W", (8, 3)), bias)
    ids = np.array([[3, 0, 3, 6, 1], [3, 3, 2, 0, 0]])  # 3 adds up; 4 and 5 never occur
    embedding = case("embedding", "embedding", {}, ("E", (7, 8)))
    yield embedding._replace(inputs={"ids": ids} | embedding.inputs)
    yield case("tied_logits", "tied_logits", {}, x, ("E", (7, 8)))
    yield from ffn_cases()


def layer_norm_cases():
    usual = (2, 5, 8)
    for name, shape, eps, *size in (
        ("layer_norm", usual, 1e-5, 1.0, 0.5),
        ("layer_norm_small_eps", usual, 1e-12, 1.0, 0.5),
        ("layer_norm_no_batch", (5, 8), 1e-5, 1.0, 0.5),
        ("layer_norm_two_batch_axes", (2, 3, 4, 8), 1e-5, 1.0, 0.5),
        ("layer_norm_t1_b1", (1, 1, 8), 1e-5, 1.0, 0.5),
        ("layer_norm_d1", (2, 3, 1), 1e-5, 1.0, 0.5),
        ("layer_norm_odd_d", (2, 3, 7), 1e-5, 1.0, 0.5),
        ("layer_norm_tiny_rows", usual, 1e-5, 3e-3, 0.0),  # variance near eps: eps outside the root shows
        ("layer_norm_inputs_1e4", usual, 1e-5, 1e4, 0.0),
        ("layer_norm_offset_1e4", usual, 1e-5, 1.0, 1e4),
        ("layer_norm_constant_row", usual, 1e-5),
    ):
        params = partial(norm_params, d_model=shape[-1])
        normed = case(name, "layer_norm", {"eps": eps}, ("x", shape, *size), params)
        yield but(normed, "x", *[((1, 2), 0.7)] * name.endswith("constant_row"))


def softmax_cases():
    huge = ((0, 0), 1e4), ((0, 1), -1e4), ((0, 2), (1e4, 1e4 - 1, -1e4, 0.0, 1e4 - 2, 1e4))
    ruled_out = [(place, -np.inf) for place in (np.s_[0, 1], np.s_[1, 2, :3], np.s_[1, 3, 1:])]
    for name, axis, shape, scale, entries in (
        ("softmax", -1, (2, 5, 6), 3.0, ()),
        ("softmax_one_row", -1, (6,), 3.0, ()),
        ("softmax_one_entry", -1, (2, 3, 1), 3.0, ()),
        ("softmax_axis_1", 1, (3, 4, 2), 3.0, ()),
        ("softmax_axis_0", 0, (3, 4, 2), 3.0, ()),
        ("softmax_inputs_1e4", -1, (2, 5, 6), 1e4, huge),
        ("softmax_minus_infinity", -1, (2, 5, 6), 3.0, ruled_out),
    ):
        yield but(case(name, "softmax", {"axis": axis}, ("scores", shape, scale)), "scores", *entries)


def ffn_cases():
    for name, kind, shape, d_ff, scale in (
        ("ffn_relu", "relu", (2, 5, 8), 12, 1.0),
        ("ffn_gelu", "gelu", (2, 5, 8), 12, 1.0),
        ("ffn_no_batch", "relu", (5, 8), 12, 1.0),
        ("ffn_two_batch_axes", "gelu", (2, 3, 4, 8), 12, 1.0),
        ("ffn_t1_b1", "relu", (1, 1, 8), 12, 1.0),
        ("ffn_d_ff_1", "relu", (2, 5, 8), 1, 1.0),
        ("ffn_square", "relu", (2, 5, 8), 8, 1.0),  # here no shape betrays a forgotten transpose
        ("ffn_relu_inputs_1e4", "relu", (2, 5, 8), 12, 1e4),
        ("ffn_gelu_inputs_1e4", "gelu", (2, 5, 8), 12, 1e4),
    ):
        params = partial(ffn_params, d_model=shape[-1], d_ff=d_ff)
        yield case(name, "ffn", {"activation": kind}, ("x", shape, scale), params)


def attention_cases() -> Iterator[Case]:
    for name, options in {
        "": {},
        "_causal": {"mask": causal(5)},
        "_padding": {"mask": padding(5, [5, 3])},
        "_bias": {"bias": (5, 5)},
        "_bias_per_batch_and_mask": {"bias": (2, 5, 5), "mask": causal(5)},
        "_closed_rows": {"mask": some_closed(5)},
        "_closed_rows_and_bias": {"mask": some_closed(5), "bias": (5, 5)},
        "_all_padding": {"mask": padding(5, [5, 0])},
        "_cross": {"t_q": 3},
        "_cross_causal": {"t_q": 3, "mask": causal(3, 5)},
        "_more_queries_than_keys": {"t_k": 3, "mask": causal(5, 3)},  # rows 0 and 1 are closed
        "_no_batch": {"batch": ()},
        "_two_batch_axes": {"batch": (2, 3), "t_q": 4, "mask": SIX_SENTENCES},
        "_t1_b1": {"batch": (1,), "t_q": 1, "t_k": 1},
        "_one_query": {"t_q": 1},
        "_inputs_1e4": {"scale": 1e4},
        "_inputs_1e4_causal": {"scale": 1e4, "mask": causal(5)},
    }.items():
        yield attention_case("attention" + name, **options)
    biased = {"biased": True}
    for name, options in {
        "": {},
        "_biased": biased,
        "_causal": {"mask": causal(5)},
        "_causal_biased": biased | {"mask": causal(5)},
        "_padding": {"mask": padding(5, [5, 2])},
        "_bias": {"bias": (2, 5, 5)},
        "_bias_per_batch": biased | {"bias": (2, 2, 5, 5), "mask": causal(5)},
        "_closed_rows": {"mask": some_closed(5)},
        "_closed_rows_biased": biased | {"mask": some_closed(5)},
        "_all_padding": biased | {"mask": padding(5, [0, 4])},
        "_cross": biased | {"t_q": 3},
        "_cross_causal": {"t_q": 3, "mask": causal(3, 5)},
        "_no_batch": biased | {"batch": ()},
        "_two_batch_axes": biased | {"batch": (2, 3), "t_q": 4, "mask": SIX_SENTENCES},
        "_t1_b1": biased | {"batch": (1,), "t_q": 1, "t_k": 1},
        "_one": biased | {"settings": {"n_heads": 1}},
        "_as_many_as_d_model": biased | {"settings": {"n_heads": 8}, "mask": causal(5)},
        "_inputs_1e4": biased | {"scale": 1e4},
        "_rope": {"settings": {"rope": True}, "mask": causal(5)},
        "_rope_cross": biased | {"settings": {"rope": True}, "t_q": 3},
    }.items():
        yield heads_case("heads" + name, **options)


def attention_case(name, batch=(2,), t_q=5, t_k=5, scale=1.0, bias=None, **mask):
    keys, values = (*batch, t_k, 4), (*batch, t_k, 3)
    arrays = ("q", (*batch, t_q, 4), scale), ("k", keys, scale), ("v", values, scale)
    return case(name, "attention", {}, *arrays, *([("bias", bias)] if bias else []), **mask)


def heads_case(name, settings=None, batch=(2,), t_q=5, t_k=5, scale=1.0, biased=False, bias=None, **mask):
    arrays = [("q", (*batch, t_q, 8), scale), ("k v", (*batch, t_k, 8), scale)]
    arrays += [partial(attention_params, d_model=8, biased=biased), *([("bias", bias)] if bias else [])]
    return case(name, "multi_head", {"n_heads": 2} | (settings or {}), *arrays, **mask)


BLOCK = {"n_heads": 2, "activation": "relu", "norm": "post", "eps": 1e-5}


def encoder_cases() -> Iterator[Case]:
    for norm in ("post", "pre"):
        for kind in ("relu", "gelu"):
            yield block_case(f"block_{norm}_{kind}", {"norm": norm, "activation": kind})
            yield block_case(f"block_{norm}_{kind}_biased", {"norm": norm, "activation": kind}, biased=True)
        for name, options in {
            "causal": {"biased": True, "mask": causal(5), "draw": 1},
            "padding": {"mask": padding(5, [3, 5])},
            "closed_rows": {"biased": True, "mask": some_closed(5)},
            "all_padding": {"mask": padding(5, [5, 0])},
            "inputs_1e4": {"scale": 1e4},
            "rope": {"settings": {"rope": True}},
            "alibi": {"settings": {"alibi": True}, "mask": causal(5)},
        }.items():
            settings = {"norm": norm} | options.pop("settings", {})
            yield block_case(f"block_{norm}_{name}", settings, **options)
    yield block_case("block_small_eps", {"eps": 1e-12, "activation": "gelu"})
    yield block_case("block_t1", n=1, biased=True)
    yield block_case("block_b1", batch=(1,))
    yield block_case("block_no_batch", {"norm": "pre"}, batch=())
    yield block_case("block_two_batch_axes", batch=(2, 3), biased=True, mask=SIX_SENTENCES)
    yield block_case("block_d_ff_1", d_ff=1)
    yield block_case("block_one_head", {"n_heads": 1})
    yield block_case("block_as_many_heads_as_d_model", {"n_heads": 8}, biased=True)
    yield stack_case("six_post_relu")
    yield stack_case("six_post_gelu_biased", {"activation": "gelu"}, biased=True, mask=padding(5, [5, 3]))
    yield stack_case("six_pre_relu", {"norm": "pre"})
    yield stack_case("six_pre_relu_final_norm_biased", {"norm": "pre"}, biased=True, final_norm=True)
    gelu = {"norm": "pre", "activation": "gelu"}
    yield stack_case("six_pre_gelu_final_norm_causal", gelu, final_norm=True, mask=causal(5))
    yield stack_case("six_post_inputs_1e4", scale=1e4)
    yield stack_case("six_pre_final_norm_inputs_1e4", {"norm": "pre"}, final_norm=True, scale=1e4)


def block_case(name, settings=None, batch=(2,), n=5, d_ff=12, scale=1.0, biased=False, **given):
    params = partial(block_params, d_model=8, d_ff=d_ff, biased=biased)
    return case(name, "block", BLOCK | (settings or {}), ("x", (*batch, n, 8), scale), params, **given)


def stack_case(name, settings=None, scale=1.0, biased=False, final_norm=False, **given):
    arrays = [("x", (2, 5, 4), scale)]
    arrays += [partial(block_params, d_model=4, d_ff=6, biased=biased, prefix="blocks.", layers=(6,))]
    arrays += [partial(norm_params, d_model=4, prefix="norm.")] * final_norm
    return case(name, "stack", BLOCK | {"n_layers": 6} | (settings or {}), *arrays, **given)


def model_cases() -> Iterator[Case]:
    yield from decoder_cases()
    yield from transformer_cases()
    yield from cross_entropy_cases()
    yield from adam_cases()


def decoder_cases():
    for norm in ("post", "pre"):
        for kind in ("relu", "gelu"):
            options = {"norm": norm, "activation": kind}
            yield decoder_case(f"decoder_{norm}_{kind}", options)
            yield decoder_case(f"decoder_{norm}_{kind}_causal_biased", options, biased=True, mask=causal(5))
        closed = {"mask": causal(5), "memory_mask": padding(3, [0, 2])}
        yield decoder_case(f"decoder_{norm}_causal_memory_padding", {"norm": norm}, **closed)
        both = {"mask": causal(5) & padding(5, [3, 5]), "memory_mask": padding(7, [7, 4]), "draw": 1}
        yield decoder_case(f"decoder_{norm}_padding_in_both", {"norm": norm}, n_memory=7, biased=True, **both)
        yield decoder_case(f"decoder_{norm}_closed_rows", {"norm": norm}, mask=some_closed(5))
        yield decoder_case(f"decoder_{norm}_rope", {"norm": norm, "rope": True}, mask=causal(5))
        yield decoder_case(f"decoder_{norm}_alibi", {"norm": norm, "alibi": True}, mask=causal(5))
        yield decoder_case(f"decoder_{norm}_t1", {"norm": norm}, n=1, mask=causal(1))
    yield decoder_case("decoder_d8", {"activation": "gelu"}, d_model=8, d_ff=12, biased=True, mask=causal(5))
    yield decoder_case("decoder_memory_of_t1", n_memory=1, biased=True, mask=causal(5))
    yield decoder_case("decoder_no_batch", {"norm": "pre"}, batch=(), mask=causal(5))
    two = {"mask": causal(5) & SIX_SENTENCES, "memory_mask": padding(3, [[3, 1, 2], [1, 3, 0]])}
    yield decoder_case("decoder_two_batch_axes", batch=(2, 3), biased=True, **two)
    three = {"n_layers": 3, "n_memory": 7, "mask": causal(5), "memory_mask": padding(7, [7, 3])}
    yield decoder_case("decoders_post_relu", biased=True, **three)
    pre = {"norm": "pre", "activation": "gelu"}
    yield decoder_case("decoders_pre_gelu_final_norm", pre, **three)


def decoder_case(
    name, settings=None, batch=(2,), n=5, n_memory=3, d_model=4, d_ff=6, biased=False, n_layers=None, **given
):  # fmt: skip
    settings = BLOCK | (settings or {})
    arrays = [("x", (*batch, n, d_model)), ("memory", (*batch, n_memory, d_model))]
    params = partial(decoder_block_params, d_model=d_model, d_ff=d_ff, biased=biased)
    if n_layers is None:
        return case(name, "decoder_block", settings, *arrays, params, **given)
    arrays += [partial(params, prefix="blocks.", layers=(n_layers,))]
    arrays += [partial(norm_params, d_model=d_model, prefix="norm.")] * (settings["norm"] == "pre")
    return case(name, "decoder_stack", settings | {"n_layers": n_layers}, *arrays, **given)


def decoder_block_params(rng, d_model, d_ff, biased, prefix="", layers=()):
    return (
        attention_params(rng, d_model, biased, f"{prefix}self_attention.", layers)
        | norm_params(rng, d_model, f"{prefix}norm_1.", layers)
        | attention_params(rng, d_model, biased, f"{prefix}cross_attention.", layers)
        | norm_params(rng, d_model, f"{prefix}norm_2.", layers)
        | ffn_params(rng, d_model, d_ff, f"{prefix}ffn.", layers)
        | norm_params(rng, d_model, f"{prefix}norm_3.", layers)
    )


# Six words at most, and padding (0) behind the shorter sentences; 3 starts a target and 4 ends it.
SOURCE_IDS = np.array([[5, 9, 2, 7, 5, 4], [8, 6, 4, 0, 0, 0]])
TARGET_IDS = np.array([[3, 7, 10, 6, 2], [3, 9, 9, 0, 0]])
LABELS = np.array([[7, 10, 6, 2, 4], [9, 9, 4, 0, 0]])
MODEL = BLOCK | {"n_layers": 2, "padding_id": 0}
LOSS = {"ignore_index": 0, "label_smoothing": 0.1}


def transformer_cases():
    paper = MODEL | {"positions": "sinusoidal"}
    yield model_case("model_post_relu_sinusoidal", "transformer", paper, d_model=8, d_ff=12)
    yield model_case("training_post_relu_sinusoidal", "training", paper | LOSS, d_model=8, d_ff=12)
    modern = MODEL | {"positions": "learned", "norm": "pre", "activation": "gelu"}
    yield model_case("model_pre_gelu_learned_biased", "transformer", modern, biased=True)
    yield model_case("training_pre_gelu_learned_biased", "training", modern | LOSS, biased=True)
    for positions in ("rope", "alibi"):
        own = MODEL | {"positions": positions, positions: True}
        yield model_case(f"model_post_{positions}", "transformer", own)
    nowhere = MODEL | {"positions": "none", "norm": "pre"}
    yield model_case("model_without_positions", "transformer", nowhere, draw=1)


def model_case(name, operation, settings, d_model=4, d_ff=6, biased=False, draw=0):
    sizes = {"d_model": d_model, "d_ff": d_ff, "biased": biased, "layers": (settings["n_layers"],)}
    arrays = [("E", (11, d_model), d_model**-0.5), partial(block_params, prefix="encoder.blocks.", **sizes)]
    arrays += [partial(decoder_block_params, prefix="decoder.blocks.", **sizes)]
    if settings["norm"] == "pre":
        arrays += [
            partial(norm_params, d_model=d_model, prefix=f"{half}.norm.") for half in ("encoder", "decoder")
        ]
    if settings["positions"] == "learned":
        arrays += [("source_positions.P target_positions.P", (7, d_model))]
    ids = {"source_ids": SOURCE_IDS, "target_ids": TARGET_IDS}
    ids |= {"labels": LABELS} if operation == "training" else {}
    return case(name, operation, settings, *arrays, draw=draw, **ids)


def cross_entropy_cases():
    some_ignored = np.array([[0, 6, -100, 3], [-100, 6, 2, -100]])
    for smoothing in (0.0, 0.1, 1.0):
        yield loss_case(f"loss_smoothing_{smoothing}", LABELS[:, :4] % 7, smoothing)
        yield loss_case(f"loss_ignored_smoothing_{smoothing}", some_ignored, smoothing)
    yield loss_case("loss_ignored_is_a_word", some_ignored % 7, 0.1, ignore_index=6)
    yield loss_case("loss_inputs_1e4", some_ignored, 0.0, scale=1e4)
    yield loss_case("loss_inputs_1e4_smoothing", some_ignored, 0.1, scale=1e4)
    extreme = (
        ((0, 0), (1e4, -1e4, -1e4, -1e4, -1e4, -1e4, -1e4)),  # sure, and right
        ((0, 1), (1e4, 1e4, 1e4, 1e4, 1e4, 1e4, -1e4)),  # sure, and wrong
        ((0, 3), (1e4, -1e4, 1e4, 1e4 - 1, -1e4, 0.0, 1e4 - 2)),
        ((1, 1), (-1e4, -1e4, -1e4, -1e4, -1e4, -1e4, 1e4)),
    )
    yield but(loss_case("loss_plus_and_minus_1e4", some_ignored, 0.1), "logits", *extreme)
    infinite = (-math.inf, math.inf, math.nan, 0.0, 1.0, -math.inf, 2.0)
    anything = ((0, 2), math.nan), ((1, 0), -math.inf), ((1, 3), infinite)
    for smoothing in (0.0, 0.1, 1.0):
        name = f"loss_ignored_holds_anything_smoothing_{smoothing}"
        yield but(loss_case(name, some_ignored, smoothing), "logits", *anything)
    ruled_out = [(place, -math.inf) for place in (np.s_[0, 1, :5], np.s_[1, 2, 3:], np.s_[0, 2])]
    yield but(
        loss_case("loss_words_that_cannot_be", some_ignored, 0.0), "logits", *ruled_out
    )  # not the labels


def loss_case(name, labels, label_smoothing, ignore_index=-100, scale=2.0):
    settings = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
    return case(name, "cross_entropy", settings, ("logits", (*labels.shape, 7), scale), labels=labels)


ADAM = {"learning_rate": 0.01, "beta_1": 0.9, "beta_2": 0.98, "eps": 1e-9, "weight_decay": 0.0}


def adam_cases():
    yield adam_case("adam")
    yield adam_case("adam_large_eps", {"eps": 0.5, "beta_1": 0.5, "beta_2": 0.999})
    yield adam_case("adam_no_momentum", {"beta_1": 0.0})
    yield adam_case("adam_warmup", {"d_model": 16, "warmup_steps": 40})
    yield adam_case("adamw", {"weight_decay": 0.3})
    yield adam_case("adamw_warmup", {"weight_decay": 0.1, "d_model": 16, "warmup_steps": 40})


def adam_case(name, settings=None):
    """Gradients from 1e-6 to 1e3, with a trend, and a row that is zero but for one step, as a rare word's."""
    rng = generator(name)
    inputs = {"W": numbers(rng, 4, 3), "b": numbers(rng, 3)}
    sizes = 10.0 ** rng.uniform(-6, 3, size=(4, 3))
    g_W = (sizes * (0.4 + rng.standard_normal((STEPS, 4, 3)))).astype(np.float32)
    g_W[:, 2] = 0.0
    g_W[60, 2] = 1e-3, -5.0, 0.0
    return Case(name, "adam", ADAM | (settings or {}), inputs | {"g.W": g_W, "g.b": numbers(rng, STEPS, 3)})


def write(filename, cases):
    index, inputs, outputs = [], [], []
    for case, result in map(solve, cases):
        floats = {name: value for name, value in case.inputs.items() if value.dtype == np.float32}
        inputs += [value.ravel() for value in floats.values()]
        outputs += [value.numpy().ravel() for value in result.values()]
        index.append(
            {
                "name": case.name,
                "operation": case.operation,
                "settings": case.settings,
                "inputs": {name: value.shape for name, value in floats.items()},
                "answers": {name: tuple(value.shape) for name, value in result.items()},
                "constants": {name: v.tolist() for name, v in case.inputs.items() if name not in floats},
            }
        )
    path = HERE / filename
    text, inputs, outputs = np.array(json.dumps(index)), np.concatenate(inputs), np.concatenate(outputs)
    np.savez_compressed(path, index=text, inputs=inputs, answers=outputs)
    print(f"{filename}: {len(index)} cases, {path.stat().st_size / 1000:.0f} kB")


def main():
    if not torch.__version__.startswith("2.13"):
        print(f"note: the committed values come from PyTorch 2.13, this is {torch.__version__}")
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    # The fused kernels take Σ dy·y for Σ weights·d_weights, which loses digits where the softmax saturates.
    with sdpa_kernel(SDPBackend.MATH):
        write("golden_functional.npz", functional_cases())
        write("golden_attention.npz", attention_cases())
        write("golden_encoder.npz", encoder_cases())
        write("golden_model.npz", model_cases())


if __name__ == "__main__":
    main()
