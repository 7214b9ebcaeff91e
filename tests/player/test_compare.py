"""A port held against the worked example: the right station for each mistake, and none for a right port."""

import html
import re

import numpy as np
import pytest
from together import together

from npformer import encoder_block_backward, encoder_block_forward
from npformer.lessons.worked_example import apply_variants, dog_bites_man, worked_example
from npformer.player.compare import compare

PORT = """def layer_norm(v, gamma, beta, eps):
    mean = v.mean(-1, keepdims=True)
    var = ((v - mean) ** 2).mean(-1, keepdims=True)
    std = np.sqrt(var + eps)
    out = gamma * (v - mean) / std + beta
    return out

def split(v, h):
    n, d = v.shape
    cut = v.reshape(n, h, d // h).transpose(1, 0, 2)
    return cut

def merge(v):
    h, n, d = v.shape
    merged = v.transpose(1, 0, 2).reshape(n, h * d)
    return merged

def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    return p

def port(x, params, config, mask=None):
    A, F, n_heads = params.attention, params.ffn, config.n_heads
    Q = x @ A.W_Q
    K = x @ A.W_K
    V = x @ A.W_V
    q, k, v = split(Q, n_heads), split(K, n_heads), split(V, n_heads)
    scale = np.sqrt(q.shape[-1])
    scores = q @ k.transpose(0, 2, 1) / scale
    if mask is not None:
        masked = np.where(mask, scores, -1e30)
        scores = masked
    weights = softmax(scores)
    heads = weights @ v
    a = merge(heads) @ A.W_O
    s = x + a
    h = layer_norm(s, *params.norm_1, config.eps)
    z = h @ F.W_1 + F.b_1
    hidden = np.maximum(z, 0)
    f = hidden @ F.W_2 + F.b_2
    t = h + f
    y = layer_norm(t, *params.norm_2, config.eps)
    return y  # out
"""
PRE = "Q = u @ A.W_Q; K = u @ A.W_K; V = u @ A.W_V; h = s; y = t"
PRE += "; z = layer_norm(s, *params.norm_2, config.eps) @ F.W_1 + F.b_1"

# What stands in the place of the lines that give the same names, and the station that this spoils.
EDITS = """
attention.Q        Q = x @ A.W_Q.T
attention.K        K = x @ A.W_K.T
attention.V        V = x @ A.W_V.T
a                  a = merge(heads) @ A.W_O.T
a                  a = merge(heads)
attention.K        K = x @ A.W_Q
attention.V        V = x @ A.W_K
attention.V        V = x
attention.Q        Q = x @ A.W_K; K = x @ A.W_Q
attention.scores   scale = 1
attention.scores   scale = np.sqrt(x.shape[-1])
attention.scores   scale = q.shape[-1]
attention.scores   scale = 1 / np.sqrt(q.shape[-1])
attention.heads    cut = v.reshape(h, n, d // h)
attention.heads    merged = v.reshape(n, h * d)
attention.scores   q, k, v = split(Q, 1), split(K, 1), split(V, n_heads)
attention.weights  p = e / e.sum(-2, keepdims=True)
attention.weights  p = e / e.sum()
attention.weights  weights = softmax(scores * np.sqrt(q.shape[-1])) / np.sqrt(q.shape[-1])
attention.exp      e = np.exp(s)
attention.weights  weights = scores
attention.weights  weights = 1 / (1 + np.exp(-scores))
attention.weights  masked = np.where(mask, -1e30, scores)
attention.weights  masked = scores * mask
s                  s = a
t                  t = f
t                  t = x + f
norm_1.variance    var = ((v - mean) ** 2).sum(-1, keepdims=True) / (v.shape[-1] - 1)
norm_1.std         std = np.sqrt(var) + eps
norm_1.std         std = np.sqrt(var + 1e-6)
norm_1.std         std = var + eps
norm_1.mean        out = gamma * v / std + beta
norm_1.mean        mean = v.mean(0, keepdims=True); var = ((v - mean) ** 2).mean(0, keepdims=True)
h                  out = (v - mean) / std + beta
h                  out = gamma * (v - mean) / std
y                  y = layer_norm(t, *params.norm_1, config.eps)
norm_2.variance    y = np.sqrt(1 - 1 / t.shape[-1]) * layer_norm(t, *params.norm_2, config.eps)
norm_2.std         y = layer_norm(t, *params.norm_2, 0)
norm_2.std         y = layer_norm(t, *params.norm_2, config.eps) / t.std(-1, keepdims=True)
norm_2.mean        y = params.norm_2.gamma * t / t.std(-1, keepdims=True) + params.norm_2.beta
y                  y = layer_norm(t, params.norm_2.gamma, 0, config.eps)
y                  y = layer_norm(t, np.abs(params.norm_2.gamma), params.norm_2.beta, config.eps)
y                  y = t
ffn.z              z = h @ F.W_1
f                  f = hidden @ F.W_2
ffn.hidden         hidden = 0.5 * z * (1 + np.tanh(0.7978845608 * (z + 0.044715 * z**3)))
ffn.hidden         hidden = z
f                  f = np.maximum(hidden @ F.W_2 + F.b_2, 0)
ffn.z              z = np.maximum(h @ F.W_1, 0); hidden = z + F.b_1
ffn.z              z = s @ F.W_1 + F.b_1
ffn.z              z = x @ F.W_1 + F.b_1
"""
MISTAKES = [re.split(r"  +", line) for line in EDITS.strip().split("\n")]
VALUES = f"dict({', '.join(f'{v}={v}' for v in 'Q K V scores weights heads a s h z hidden f t'.split())})"


def port(edits="", text=PORT):
    for edit in filter(None, edits.split("; ")):
        name = re.escape(edit.partition(" = ")[0])
        text, found = re.subn(rf"^( +){name} = .*$", lambda m, edit=edit: m[1] + edit, text, flags=re.M)
        assert found == 1
    names = {"np": np}
    exec(text, names)
    return names["port"]


NAMED = PORT.replace("return y  # out", f"return y, {VALUES}")  # hands out what it has calculated on the way


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@together(("station", "edit"), MISTAKES)
def test_the_station_of_each_mistake_is_found_by_the_output_alone_and_by_name(station, edit):
    found = compare(port(edit))
    assert not found and found.station == station
    assert station in str(found) and "no cell was compared" in found.reveal()
    if not station.startswith(("norm", "h", "y")) and not re.match(r"masked|e = ", edit):
        found = compare(port(edit, NAMED))
        also = ("attention.scores", "a") if "heads" in station else ()
        assert not found and found.station in (station, *also)
        assert found.place == () or f"expected {found.expected:.6g}" in found.reveal()


@together("text", [PORT, NAMED, PORT.replace(", mask=None", "").replace("mask is not None", "False")])
def test_a_right_port_agrees_also_in_float32(text):
    found = compare(port("", text))
    assert found and "agrees" in str(found) and len(found.agreed) > 12
    assert compare(lambda x, params, config: port()(x, params, config).astype(np.float32))


@pytest.mark.parametrize("variants", [[], ["causal"], ["pre-norm"], ["gelu", "one-head"], ["two-sentences"]])
def test_another_block_is_held_against_its_own_numbers(variants):
    trace = worked_example(apply_variants(dog_bites_man(), variants))
    unmasked = compare(lambda x, params, config: encoder_block_forward(x, params, config)[0], trace)
    assert compare(encoder_block_forward, trace)
    backward = compare((encoder_block_forward, encoder_block_backward), trace)
    assert backward and {"d_x", "d_attention.W_Q"} <= {*backward.agreed}
    assert bool(unmasked) == (variants != ["causal"]), "without a mask, what comes later is seen"


def test_pre_norm_a_wrong_backward_and_fixed_sizes_are_told():
    text = PORT.replace("    Q = x", "    u = layer_norm(x, *params.norm_1, config.eps)\n    Q = x")
    assert compare(port(PRE, text)).station == "h"

    def backward(dy, cache):
        dx, grads = encoder_block_backward(dy, cache)
        return dx, grads._replace(ffn=grads.ffn._replace(b_1=2 * grads.ffn.b_1))

    found = compare((encoder_block_forward, backward))
    assert found.station == "d_ffn.b_1" and found.place == (0,)
    fixed = compare(lambda x, params, config: encoder_block_forward(x.reshape(3, 4), params, config)[0])
    assert "ValueError with 5 tokens of 6 numbers" in fixed.note
    assert "shape" in compare(lambda x, params, config: x[:-1]).note


def test_layers_of_a_model_and_pasted_numbers_are_compared_by_name():
    layers = {f"block_{i}": np.full((2, 3), float(i)) for i in range(4)}
    assert compare(layers, layers)
    found = compare(layers | {"block_2": layers["block_2"][None] + 0.1}, layers)
    assert (found.station, found.place, found.agreed) == ("block_2", (0, 0), ("block_0", "block_1"))
    assert compare({"block_1": np.ones((3, 2))}, layers).note == "its shape is (3, 2), expected (2, 3)"
    assert compare({"block_2": np.full((2, 3), 2.01)}, layers, tolerance=0.01)
    z = worked_example().named["ffn.z"].value
    assert compare({"z": z}) and compare({"z": z.astype(np.float32)})


def test_a_scalar_a_hidden_score_and_a_small_difference_are_cells_too():
    causal = worked_example(apply_variants(dog_bites_man(), ["causal"]))
    scores = causal.named["attention.masked"].value
    assert compare({"masked": np.where(np.isneginf(scores), -1e9, scores)}, causal)
    assert compare({"masked": np.where(np.isneginf(scores), 0, scores)}, causal).place == (0, 0, 1)
    assert "received nan" in compare({"masked": scores * np.nan}, causal).reveal()
    loss = worked_example().named["loss"].value
    assert compare({"loss": loss + 0.5}).reveal().startswith(f"loss[]: expected {float(loss):.6g}, received ")
    assert len(set(compare({"loss": loss * (1 + 3e-6)}).reveal().split()[2::2])) == 2


def test_in_a_notebook_the_player_opens_at_the_station():
    found = compare({"z": worked_example().named["ffn.z"].value + np.eye(3, 6)})
    shown = found._repr_html_()
    assert shown.startswith("<pre>differs at ffn.z, first at [0, 0]")
    assert found.play().page in html.unescape(shown)
    assert '"at":"ffn.z,0"' in found.play().page
    by_inputs = compare(port("scale = 1"))
    assert '"at":"attention.scores"' in by_inputs.play().page and '"marks":[]' in by_inputs.play().page
    for nothing in (compare({"z": worked_example().named["ffn.z"].value}), compare({"a": 1}, {"a": 2})):
        assert "<iframe" not in nothing._repr_html_()
