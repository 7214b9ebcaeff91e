"""Write the golden values: what PyTorch 2.13 answers, outputs and every gradient, for golden.py to read.

Run it with any Python that has PyTorch and NumPy. npformer never needs PyTorch, and is not imported here.

    python tests/data/make_golden.py

It writes golden_functional.npz, golden_attention.npz, golden_encoder.npz and golden_model.npz beside itself:
on one machine the same bytes each time, on another perhaps another last digit.

How a file is laid out. Three arrays keep it small: `inputs` and `answers` hold all numbers end to end, and
`index` is JSON, a list of cases: the operation and its settings; the shapes of the inputs (`d_y` is the
random upstream gradient) and of the answers (`y`, then `d_<input>` for every gradient) in the order they
are stored; the masks and ids. A parameter's name is its path in npformer's tree, `blocks.0.ffn.W_1`.
An Adam case has the gradients of all steps among its inputs, `g.<parameter>`, steps along the first axis;
its answers are each parameter after some of the steps, `W_after_10`, and both means at the end, `m.W`, `v.W`.

Why the inputs are float32. PyTorch computes in float64 throughout, but every input is a float32 number. So
one answer is the truth for both: npformer in float64 must meet it to 1e-11, and in float32 it sees the
same inputs.

What is trusted. Every answer is that of PyTorch's own function, module, loss or optimizer, and every gradient
that of its autograd. Two things it does not have are put into its attention in a few lines here: RoPE, and
zero for a query that may attend to no key, for which PyTorch has no one answer (NaN on one path, zero on
another). ALiBi is a mask of numbers, which its modules take.
"""

import json
import math
import zlib
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest import mock

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


def rotate(x, first=0):
    """RoPE as complex multiplication: two neighbours are one complex number, turned by position · ω_i."""
    n, d = x.shape[-2:]
    omega = 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
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
    hidden = ACTIVATIONS[s["activation"]](t["x"] @ t["W_1"] + t["b_1"])
    return hidden @ t["W_2"] + t["b_2"]


def attention(t, s):
    mask = t.get("bias")
    if "mask" in t:
        mask = torch.zeros(()) if mask is None else mask
        mask = mask.masked_fill(~t["mask"], -math.inf)
    return attend(t["q"], t["k"], t["v"], mask)


def multi_head(t, s):
    q, k, v = (three_axes(t[name]) for name in "qkv")
    module = attention_module(q.shape[-1], s["n_heads"], "b_Q" in t, s.get("rope"))
    options = {"attn_mask": additive_mask(t, s, "mask", t["q"], t["k"]), "need_weights": False}
    y, _ = functional_call(module, attention_state(t), (q, k, v), options)
    return y.reshape(t["q"].shape)


def one_block(t, s):
    return applied(layer_module(t, s, "memory" in t), block_state(t), t, s)


def stack(t, s):
    n = s["n_layers"]
    layers = [part(t, f"blocks.{i}.") for i in range(n)]
    layer = layer_module(layers[0], s, "memory" in t)
    norm = nn.LayerNorm(t["norm.gamma"].shape, eps=s["eps"]) if "norm.gamma" in t else None
    if "memory" in t:
        module = nn.TransformerDecoder(layer, n, norm)
    else:
        module = nn.TransformerEncoder(layer, n, norm, enable_nested_tensor=False)
    state = norm_state("norm", part(t, "norm.")) if norm else {}
    for i, own in enumerate(layers):
        state |= {f"layers.{i}.{name}": value for name, value in block_state(own).items()}
    return applied(module, state, t, s)


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


def cross_entropy(t, s, logits=None):
    logits = t["logits"] if logits is None else logits
    options = {name: s[name] for name in ("ignore_index", "label_smoothing")}
    return F.cross_entropy(logits.flatten(0, -2), t["labels"].flatten(), **options)


OPERATIONS = {
    "layer_norm": lambda t, s: F.layer_norm(t["x"], t["gamma"].shape, t["gamma"], t["beta"], s["eps"]),
    "linear": lambda t, s: t["x"] @ t["W"] + t.get("b", 0.0),
    "activation": lambda t, s: ACTIVATIONS[s["activation"]](t["z"]),
    "softmax": lambda t, s: torch.softmax(t["scores"], s["axis"]),
    "embedding": embedding,
    "tied_logits": lambda t, s: F.linear(t["x"], t["E"]),
    "ffn": ffn,
    "attention": attention,
    "multi_head": multi_head,
    "block": one_block,
    "stack": stack,
    "decoder_block": one_block,
    "decoder_stack": stack,
    "transformer": transformer,
    "cross_entropy": cross_entropy,
    "training": lambda t, s: cross_entropy(t, s, transformer(t, s)),
}


# PyTorch's modules, with our parameters in them.


def attention_module(d_model, n_heads, biased, turned=False):
    kind = TurnedAttention if turned else nn.MultiheadAttention
    return kind(d_model, n_heads, bias=biased, batch_first=True)


def layer_module(t, s, is_decoder):
    """Of one block; the memory knows no positions."""
    d_model, d_ff = t["ffn.W_1"].shape
    kind = nn.TransformerDecoderLayer if is_decoder else nn.TransformerEncoderLayer
    sizes = d_model, s["n_heads"], d_ff, 0.0, ACTIVATIONS[s["activation"]], s["eps"]
    module = kind(*sizes, batch_first=True, norm_first=s["norm"] == "pre")
    attention = d_model, s["n_heads"], any(name.endswith("attention.b_Q") for name in t)
    module.self_attn = attention_module(*attention, s.get("rope"))
    if is_decoder:
        module.multihead_attn = attention_module(*attention)
    return module


def applied(module, state, t, s):
    """The module with these parameters, of x and, in a decoder, the memory, each with its mask."""
    x = [three_axes(t[name]) for name in ("x", "memory") if name in t]
    masks = [additive_mask(t, s, "mask", t["x"], t["x"])]
    if "memory" in t:
        masks += [additive_mask(t, {"n_heads": s["n_heads"]}, "memory_mask", t["x"], t["memory"])]
    return functional_call(module, state, (*x, *masks)).reshape(t["x"].shape)


def additive_mask(t, s, name, q, k):
    """Mask, bias and ALiBi as PyTorch takes them: (batch · heads, T_q, T_k), -inf where not allowed."""
    total = torch.zeros(*q.shape[:-2], s["n_heads"], q.shape[-2], k.shape[-2]) + t.get("bias", 0.0)
    if s.get("alibi"):
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


# Adam.

STEPS, SHOWN = 100, (1, 10, 100)


def adam(case):
    """The case, and each parameter after some of the steps and both means at the end."""
    s, tensors = case.settings, {name: torch.tensor(a).double() for name, a in case.inputs.items()}
    grads = part(tensors, "g.")
    params = {name: tensors[name].requires_grad_() for name in grads}
    kind = torch.optim.AdamW if s["weight_decay"] else torch.optim.Adam
    options = {"betas": (s["beta_1"], s["beta_2"]), "eps": s["eps"], "weight_decay": s["weight_decay"]}
    optimizer, shown = kind(params.values(), **options), {}
    for step in range(1, STEPS + 1):
        optimizer.param_groups[0]["lr"] = learning_rate(s, step)
        for name, p in params.items():
            p.grad = grads[name][step - 1].clone()
        optimizer.step()
        if step in SHOWN:
            shown |= {f"{name}_after_{step}": p.detach().clone() for name, p in params.items()}
    for ours, theirs in (("m", "exp_avg"), ("v", "exp_avg_sq")):
        shown |= {f"{ours}.{name}": optimizer.state[p][theirs] for name, p in params.items()}
    return case, shown


def learning_rate(s, step):
    """A number, or the paper's schedule with the width and the number of warm-up steps in s."""
    if "warmup_steps" not in s:
        return s["learning_rate"]
    return s["d_model"] ** -0.5 * min(step**-0.5, step * s["warmup_steps"] ** -1.5)


def solve(case):
    """The case with its upstream gradient among the inputs, and its answers under the names they have."""
    if case.operation == "adam":
        return adam(case)
    tensors = {name: tensor_of(name, value) for name, value in case.inputs.items()}
    y = OPERATIONS[case.operation](tensors, case.settings)
    upstream = numbers(generator(case.name + ": d_y"), *y.shape)
    wanted = {name: value for name, value in tensors.items() if value.requires_grad}
    grads = torch.autograd.grad(y, list(wanted.values()), torch.tensor(upstream).double())
    result = {"y": y.detach()} | {f"d_{name}": g for name, g in zip(wanted, grads, strict=True)}
    assert all(value.isfinite().all() for value in result.values()), case.name
    return case._replace(inputs=case.inputs | {"d_y": upstream}), result


def tensor_of(name, value):
    if value.dtype == np.float32:
        return torch.tensor(value, dtype=torch.float64, requires_grad=name != "bias")
    return torch.tensor(value)


# The cases. Each draws from a generator seeded by its own name, so a new case moves no other.


def generator(name, draw=0):
    """`draw` moves a case off an unlucky sample: a unit on ReLU's kink, two scores that float32 confuses."""
    return np.random.default_rng([zlib.crc32(name.encode()), draw])


def numbers(rng, *shape, scale=1.0, shift=0.0):
    return (shift + scale * rng.standard_normal(shape)).astype(np.float32)


LEAVES = {
    "norm": ("gamma", "beta"),
    "ffn": ("W_1", "b_1", "W_2", "b_2"),
    "attention": ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"),
}
ENCODER_BLOCK = "attention norm_1 ffn norm_2"
DECODER_BLOCK = "self_attention norm_1 cross_attention norm_2 ffn norm_3"


def block(rng, parts, prefix="", n_layers=0, **sizes):
    """The parameters of these parts by their paths; of a stack, those of all its layers drawn together."""
    layers = (n_layers,) if n_layers else ()
    drawn = {}
    for name in parts.split():
        found = leaves(rng, next(kind for kind in LEAVES if kind in name), layers=layers, **sizes)
        drawn |= {f"{name}.{leaf}": array for leaf, array in found.items()}
    if not n_layers:
        return drawn
    return {f"{prefix}blocks.{i}.{name}": drawn[name][i] for i in range(n_layers) for name in drawn}


def leaves(rng, kind, d_model, d_ff=0, biased=True, prefix="", layers=()):
    shapes, found = {"W_1": (d_model, d_ff), "b_1": (d_ff,), "W_2": (d_ff, d_model)}, {}
    for leaf in LEAVES[kind][: None if biased or kind != "attention" else 4]:
        is_matrix = leaf.startswith("W")
        shape = shapes.get(leaf, (d_model, d_model) if is_matrix else (d_model,))
        scale = shape[0] ** -0.5 if is_matrix else 0.3 if leaf.startswith("b_") else 0.4
        array = numbers(rng, *layers, *shape, scale=scale, shift=float(leaf == "gamma"))
        found[prefix + leaf] = array
    return found


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


def functional_cases():
    yield from layer_norm_cases()
    for kind in ("relu", "gelu", "gelu_tanh"):
        for name, scale in {kind: 2.0, f"{kind}_inputs_1e4": 1e4}.items():
            yield case(name, "activation", {"activation": kind}, ("z", (2, 5, 8), scale))
    for name, axis, shape in (
        ("softmax", -1, (2, 5, 6)),
        ("softmax_axis_1", 1, (3, 4, 2)),
        ("softmax_axis_0", 0, (3, 4, 2)),
    ):
        yield case(name, "softmax", {"axis": axis}, ("scores", shape, 3.0))
    x, bias = ("x", (2, 5, 8)), ("b", (3,))
    yield case("linear", "linear", {}, x, ("W", (8, 3)), bias)
    yield case("linear_no_bias", "linear", {}, x, ("W", (8, 3)))
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
        ("layer_norm_odd_d", (2, 3, 7), 1e-5, 1.0, 0.5),
        ("layer_norm_tiny_rows", usual, 1e-5, 3e-3, 0.0),  # variance near eps: eps outside the root shows
        ("layer_norm_inputs_1e4", usual, 1e-5, 1e4, 0.0),
        ("layer_norm_offset_1e4", usual, 1e-5, 1.0, 1e4),
    ):
        params = partial(leaves, kind="norm", d_model=shape[-1])
        yield case(name, "layer_norm", {"eps": eps}, ("x", shape, *size), params)


def ffn_cases():
    for name, kind, d_ff, scale in (
        ("ffn_relu", "relu", 12, 1.0),
        ("ffn_gelu", "gelu", 12, 1.0),
        ("ffn_d_ff_1", "relu", 1, 1.0),
        ("ffn_square", "relu", 8, 1.0),  # here no shape betrays a forgotten transpose
        ("ffn_relu_inputs_1e4", "relu", 12, 1e4),
        ("ffn_gelu_inputs_1e4", "gelu", 12, 1e4),
    ):
        params = partial(leaves, kind="ffn", d_model=8, d_ff=d_ff)
        yield case(name, "ffn", {"activation": kind}, ("x", (2, 5, 8), scale), params)


def attention_cases():
    for name, options in {
        "": {},
        "_causal": {"mask": causal(5)},
        "_padding": {"mask": padding(5, [5, 3])},
        "_bias": {"bias": (5, 5)},
        "_bias_per_batch_and_mask": {"bias": (2, 5, 5), "mask": causal(5)},
        "_closed_rows_and_bias": {"mask": some_closed(5), "bias": (5, 5)},
        "_all_padding": {"mask": padding(5, [5, 0])},
        "_cross_causal": {"t_q": 3, "mask": causal(3, 5)},
        "_more_queries_than_keys": {"t_k": 3, "mask": causal(5, 3)},  # rows 0 and 1 are closed
        "_inputs_1e4": {"scale": 1e4},
        "_inputs_1e4_causal": {"scale": 1e4, "mask": causal(5)},
    }.items():
        yield attention_case("attention" + name, **options)
    biased = {"biased": True}
    for name, options in {
        "": {},
        "_biased": biased,
        "_causal_biased": biased | {"mask": causal(5)},
        "_padding": {"mask": padding(5, [5, 2])},
        "_bias": {"bias": (2, 5, 5)},
        "_bias_per_batch": biased | {"bias": (2, 2, 5, 5), "mask": causal(5)},
        "_closed_rows_biased": biased | {"mask": some_closed(5)},
        "_all_padding": biased | {"mask": padding(5, [0, 4])},
        "_cross_causal": {"t_q": 3, "mask": causal(3, 5)},
        "_two_batch_axes": biased | {"batch": (2, 3), "t_q": 4, "mask": SIX_SENTENCES},
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
    arrays += [partial(leaves, kind="attention", d_model=8, biased=biased)]
    arrays += [("bias", bias)] if bias else []
    return case(name, "multi_head", {"n_heads": 2} | (settings or {}), *arrays, **mask)


BLOCK = {"n_heads": 2, "activation": "relu", "norm": "post", "eps": 1e-5}


def encoder_cases():
    one, six = partial(block_case, width=(8, 12)), partial(block_case, n_layers=6)
    for norm in ("post", "pre"):
        for kind in ("relu", "gelu"):
            yield one(f"block_{norm}_{kind}", {"norm": norm, "activation": kind})
        yield one(f"block_{norm}_causal", {"norm": norm}, biased=True, mask=causal(5), draw=1)
        yield one(f"block_{norm}_closed_rows", {"norm": norm}, biased=True, mask=some_closed(5))
        yield one(f"block_{norm}_inputs_1e4", {"norm": norm}, scale=1e4)
        yield one(f"block_{norm}_rope", {"norm": norm, "rope": True})
        yield one(f"block_{norm}_alibi", {"norm": norm, "alibi": True}, mask=causal(5))
    yield one("block_small_eps", {"eps": 1e-12, "activation": "gelu"})
    yield one("block_two_batch_axes", batch=(2, 3), biased=True, mask=SIX_SENTENCES)
    yield six("six_post_relu")
    yield six("six_post_gelu_biased", {"activation": "gelu"}, biased=True, mask=padding(5, [5, 3]))
    yield six("six_pre_relu_final_norm_biased", {"norm": "pre"}, biased=True)
    yield six("six_pre_gelu_final_norm_causal", {"norm": "pre", "activation": "gelu"}, mask=causal(5))


def block_case(
    name, settings=None, batch=(2,), n_memory=0, width=(4, 6), scale=1.0, biased=False, n_layers=0, **given
):
    """Of an encoder or, with a memory, a decoder; of one block or a stack of them."""
    (d_model, d_ff), parts = width, DECODER_BLOCK if n_memory else ENCODER_BLOCK
    settings = BLOCK | (settings or {}) | ({"n_layers": n_layers} if n_layers else {})
    arrays = [("x", (*batch, 5, d_model), scale)]
    arrays += [("memory", (*batch, n_memory, d_model))] * bool(n_memory)
    arrays += [partial(block, parts=parts, d_model=d_model, d_ff=d_ff, biased=biased, n_layers=n_layers)]
    arrays += [final_norm(d_model)] * (n_layers > 0 and settings["norm"] == "pre")
    return case(
        name, "decoder_" * bool(n_memory) + ("stack" if n_layers else "block"), settings, *arrays, **given
    )


def final_norm(d_model, prefix=""):
    return partial(leaves, kind="norm", d_model=d_model, prefix=f"{prefix}norm.")


def model_cases():
    yield from decoder_cases()
    yield from transformer_cases()
    yield from cross_entropy_cases()
    yield from adam_cases()


def decoder_cases():
    one = partial(block_case, n_memory=3)
    for norm in ("post", "pre"):
        for kind in ("relu", "gelu"):
            options = {"norm": norm, "activation": kind}
            yield one(f"decoder_{norm}_{kind}_causal_biased", options, biased=True, mask=causal(5))
        hidden = {"mask": causal(5), "memory_mask": padding(3, [0, 2])}
        yield one(f"decoder_{norm}_causal_memory_padding", {"norm": norm}, **hidden)
        both = {"mask": causal(5) & padding(5, [3, 5]), "memory_mask": padding(7, [7, 4]), "draw": 1}
        yield one(f"decoder_{norm}_padding_in_both", {"norm": norm}, n_memory=7, biased=True, **both)
        yield one(f"decoder_{norm}_closed_rows", {"norm": norm}, mask=some_closed(5))
        yield one(f"decoder_{norm}_rope", {"norm": norm, "rope": True}, mask=causal(5))
        yield one(f"decoder_{norm}_alibi", {"norm": norm, "alibi": True}, mask=causal(5))
    two = {"mask": causal(5) & SIX_SENTENCES, "memory_mask": padding(3, [[3, 1, 2], [1, 3, 0]])}
    yield one("decoder_two_batch_axes", batch=(2, 3), biased=True, **two)
    three = {"n_layers": 3, "n_memory": 7, "mask": causal(5), "memory_mask": padding(7, [7, 3])}
    yield one("decoders_post_relu", biased=True, **three)
    yield one("decoders_pre_gelu_final_norm", {"norm": "pre", "activation": "gelu"}, **three)


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
    sizes = {"d_model": d_model, "d_ff": d_ff, "biased": biased, "n_layers": settings["n_layers"]}
    arrays = [("embedding.E", (11, d_model), d_model**-0.5)]
    for half, parts in (("encoder", ENCODER_BLOCK), ("decoder", DECODER_BLOCK)):
        arrays += [partial(block, parts=parts, prefix=f"{half}.", **sizes)]
    if settings["norm"] == "pre":
        arrays += [final_norm(d_model, "encoder."), final_norm(d_model, "decoder.")]
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
        entry = {"name": case.name, "operation": case.operation, "settings": case.settings}
        entry |= {"inputs": {name: value.shape for name, value in floats.items()}}
        entry |= {"answers": {name: tuple(value.shape) for name, value in result.items()}}
        entry |= {"constants": {name: v.tolist() for name, v in case.inputs.items() if name not in floats}}
        index.append(entry)
    path, text = HERE / filename, np.array(json.dumps(index))
    np.savez_compressed(path, index=text, inputs=np.concatenate(inputs), answers=np.concatenate(outputs))
    print(f"{filename}: {len(index)} cases, {path.stat().st_size / 1000:.0f} kB")


def main():
    if not torch.__version__.startswith("2.13"):
        print(f"note: the committed values come from PyTorch 2.13, this is {torch.__version__}")
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    # The fused kernels take Σ dy·y for Σ weights·d_weights, which loses digits where the softmax saturates.
    own = mock.patch.object(F, "scaled_dot_product_attention", attend)
    with sdpa_kernel(SDPBackend.MATH), own:
        write("golden_functional.npz", functional_cases())
        write("golden_attention.npz", attention_cases())
        write("golden_encoder.npz", encoder_cases())
        write("golden_model.npz", model_cases())


if __name__ == "__main__":
    main()
