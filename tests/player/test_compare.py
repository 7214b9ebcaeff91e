"""`compare` finds the station of each mistake in a port of the block, and no station in a correct port."""

import html
import re

import numpy as np
import pytest

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

# Each row has the first wrong station, and new lines. A new line replaces the line of PORT that sets the same
# name.
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

        def indent(match, edit=edit):
            return match[1] + edit

        text, n_replaced = re.subn(rf"^( +){name} = .*$", indent, text, flags=re.M)
        assert n_replaced == 1
    names = {"np": np}
    exec(text, names)
    return names["port"]


NAMED = PORT.replace("return y  # out", f"return y, {VALUES}")  # returns inner values too


per_mistake = pytest.mark.parametrize(("station", "edit"), MISTAKES, ids=[edit for _, edit in MISTAKES])


@per_mistake
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_compare_finds_mistakes_by_the_output_alone(station, edit):
    comparison = compare(port(edit))
    assert not comparison and comparison.station == station
    assert station in str(comparison) and "no cell was compared" in comparison.reveal()


def is_visible_by_name(station, edit):
    """Return whether the values that NAMED returns can show a mistake.

    NAMED returns no values from inside a norm or the softmax.
    """
    return not station.startswith(("norm", "h", "y")) and not re.match(r"masked|e = ", edit)


@pytest.mark.parametrize(
    ("station", "edit"),
    [mistake for mistake in MISTAKES if is_visible_by_name(*mistake)],
    ids=[edit for station, edit in MISTAKES if is_visible_by_name(station, edit)],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_compare_finds_mistakes_by_name(station, edit):
    comparison = compare(port(edit, NAMED))
    also_allowed = ("attention.scores", "a") if "heads" in station else ()
    assert not comparison and comparison.station in (station, *also_allowed)
    assert comparison.place == () or f"expected {comparison.expected:.6g}" in comparison.reveal()


WITHOUT_MASK = PORT.replace(", mask=None", "").replace("mask is not None", "False")


@pytest.mark.parametrize("text", [PORT, NAMED, WITHOUT_MASK], ids=["output", "values", "without mask"])
def test_compare_agrees_with_a_correct_port(text):
    comparison = compare(port("", text))
    assert comparison and "agrees" in str(comparison) and len(comparison.agreed) > 12


def test_compare_agrees_with_a_float32_port():
    assert compare(lambda x, params, config: port()(x, params, config).astype(np.float32))


@pytest.mark.parametrize(
    "variants",
    [[], ["causal"], ["pre-norm"], ["gelu", "one-head"], ["two-sentences"]],
    ids=["paper's block", "causal", "pre-norm", "gelu+one-head", "two-sentences"],
)
def test_compare_uses_the_block_of_the_trace(variants):
    trace = worked_example(apply_variants(dog_bites_man(), variants))
    unmasked = compare(lambda x, params, config: encoder_block_forward(x, params, config)[0], trace)
    assert compare(encoder_block_forward, trace)
    backward = compare((encoder_block_forward, encoder_block_backward), trace)
    assert backward and {"d_x", "d_attention.W_Q"} <= {*backward.agreed}
    assert bool(unmasked) == (variants != ["causal"]), "without a mask, later tokens are visible"


def test_compare_detects_a_pre_norm_block():
    text = PORT.replace("    Q = x", "    u = layer_norm(x, *params.norm_1, config.eps)\n    Q = x")
    assert compare(port(PRE, text)).station == "h"


def test_compare_detects_a_wrong_backward_pass():
    def backward(dy, cache):
        dx, grads = encoder_block_backward(dy, cache)
        return dx, grads._replace(ffn=grads.ffn._replace(b_1=2 * grads.ffn.b_1))

    comparison = compare((encoder_block_forward, backward))
    assert comparison.station == "d_ffn.b_1" and comparison.place == (0,)


def test_compare_reports_wrong_output_shapes():
    fixed = compare(lambda x, params, config: encoder_block_forward(x.reshape(3, 4), params, config)[0])
    assert "ValueError with 5 tokens of 6 numbers" in fixed.note
    assert "shape" in compare(lambda x, params, config: x[:-1]).note


def test_compare_accepts_layers_of_a_model():
    layers = {f"block_{i}": np.full((2, 3), float(i)) for i in range(4)}
    assert compare(layers, layers)
    comparison = compare(layers | {"block_2": layers["block_2"][None] + 0.1}, layers)
    assert (comparison.station, comparison.place, comparison.agreed) == (
        "block_2",
        (0, 0),
        ("block_0", "block_1"),
    )
    assert compare({"block_1": np.ones((3, 2))}, layers).note == "its shape is (3, 2), expected (2, 3)"
    assert compare({"block_2": np.full((2, 3), 2.01)}, layers, tolerance=0.01)


def test_compare_accepts_values_by_name():
    z = worked_example().named["ffn.z"].value
    assert compare({"z": z}) and compare({"z": z.astype(np.float32)})


def test_compare_accepts_any_very_negative_masked_score():
    causal = worked_example(apply_variants(dog_bites_man(), ["causal"]))
    scores = causal.named["attention.masked"].value
    assert compare({"masked": np.where(np.isneginf(scores), -1e9, scores)}, causal)
    assert compare({"masked": np.where(np.isneginf(scores), 0, scores)}, causal).place == (0, 0, 1)
    assert "received nan" in compare({"masked": scores * np.nan}, causal).reveal()


def test_reveal_shows_enough_digits_of_a_scalar():
    loss = worked_example().named["loss"].value
    assert compare({"loss": loss + 0.5}).reveal().startswith(f"loss[]: expected {float(loss):.6g}, received ")
    assert len(set(compare({"loss": loss * (1 + 3e-6)}).reveal().split()[2::2])) == 2


def test_comparison_in_a_notebook_opens_the_player():
    comparison = compare({"z": worked_example().named["ffn.z"].value + np.eye(3, 6)})
    shown = comparison._repr_html_()
    assert shown.startswith("<pre>differs at ffn.z, first at [0, 0]")
    assert comparison.play().page in html.unescape(shown)
    assert '"at":"ffn.z,0"' in comparison.play().page


def test_comparison_by_probes_opens_the_player_without_marks():
    page = compare(port("scale = 1")).play().page
    assert '"at":"attention.scores"' in page and '"marks":[]' in page


def test_banner_says_where_a_block_differs():
    comparison = compare(port("scale = 1"))
    page = comparison.play().page
    assert f"Yours first differs at attention.scores: {html.escape(comparison.note)}</p>" in page


def test_player_of_correct_block_has_a_banner():
    page = compare(encoder_block_forward).play().page
    assert '"marks":[]' in page and "#1b6e3c" in page
    assert re.search(r"Your block is correct. It agrees at \d+ stations, from \S+ to \S+\.</p>", page)


def test_comparison_without_a_trace_has_no_player():
    with pytest.raises(ValueError, match="only a trace can be played"):
        compare({"a": 1}, {"a": 2}).play()  # type: ignore[dict-item]  # Python's numbers are accepted too


@pytest.mark.parametrize(
    "comparison",
    [
        compare({"z": worked_example().named["ffn.z"].value}),
        compare({"a": 1}, {"a": 2}),  # type: ignore[dict-item]  # Python's numbers are accepted too
    ],
    ids=["all agree", "no trace"],
)
def test_comparison_without_a_player_shows_text(comparison):
    assert "<iframe" not in comparison._repr_html_()
