"""A port held against the worked example: the right station for each mistake, and none for a right port."""

import html

import numpy as np
import pytest

from npformer import encoder_block_backward, encoder_block_forward
from npformer.teaching.compare import compare
from npformer.teaching.worked_example import dog_bites_man, varied, worked_example

PORT = """def layer_norm(v, gamma, beta, eps):
    mean = v.mean(-1, keepdims=True)
    var = ((v - mean) ** 2).mean(-1, keepdims=True)
    return gamma * (v - mean) / np.sqrt(var + eps) + beta

def split(v, h):
    n, d = v.shape
    return v.reshape(n, h, d // h).transpose(1, 0, 2)

def merge(v):
    h, n, d = v.shape
    return v.transpose(1, 0, 2).reshape(n, h * d)

def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)

def port(x, params, config, mask=None):
    A, F = params.attention, params.ffn
    Q = x @ A.W_Q
    K = x @ A.W_K
    V = x @ A.W_V
    q, k, v = split(Q, config.n_heads), split(K, config.n_heads), split(V, config.n_heads)
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -1e30)
    weights = softmax(scores)
    heads = weights @ v
    a = merge(heads) @ A.W_O
    s = x + a
    h = layer_norm(s, params.norm_1.gamma, params.norm_1.beta, config.eps)
    z = h @ F.W_1 + F.b_1
    hidden = np.maximum(z, 0)
    f = hidden @ F.W_2 + F.b_2
    t = h + f
    y = layer_norm(t, params.norm_2.gamma, params.norm_2.beta, config.eps)
    return y  # out
"""

PRE = """    n = layer_norm(x, params.norm_1.gamma, params.norm_1.beta, config.eps)
    Q, K, V = n @ A.W_Q, n @ A.W_K, n @ A.W_V
"""

# What is written in another way, and the station that this spoils.
EDITS = {
    "W_Q transposed": ("x @ A.W_Q", "x @ A.W_Q.T", "attention.Q"),
    "W_K transposed": ("x @ A.W_K", "x @ A.W_K.T", "attention.K"),
    "W_V transposed": ("x @ A.W_V", "x @ A.W_V.T", "attention.V"),
    "W_O transposed": ("@ A.W_O", "@ A.W_O.T", "a"),
    "W_O forgotten": ("merge(heads) @ A.W_O", "merge(heads)", "a"),
    "K from W_Q": ("x @ A.W_K", "x @ A.W_Q", "attention.K"),
    "V from W_K": ("x @ A.W_V", "x @ A.W_K", "attention.V"),
    "V is x": ("x @ A.W_V", "x", "attention.V"),
    "Q and K exchanged": (
        "Q = x @ A.W_Q\n    K = x @ A.W_K",
        "Q = x @ A.W_K\n    K = x @ A.W_Q",
        "attention.Q",
    ),
    "no scale": (" / np.sqrt(q.shape[-1])", "", "attention.scores"),
    "scale of d_model": ("np.sqrt(q.shape[-1])", "np.sqrt(x.shape[-1])", "attention.scores"),
    "scale d_k": ("np.sqrt(q.shape[-1])", "q.shape[-1]", "attention.scores"),
    "scale multiplied": ("/ np.sqrt(q.shape[-1])", "* np.sqrt(q.shape[-1])", "attention.scores"),
    "heads split by reshape": (
        "v.reshape(n, h, d // h).transpose(1, 0, 2)",
        "v.reshape(h, n, d // h)",
        "attention.heads",
    ),
    "heads merged by reshape": (
        "v.transpose(1, 0, 2).reshape(n, h * d)",
        "v.reshape(n, h * d)",
        "attention.heads",
    ),
    "one head": (
        "split(Q, config.n_heads), split(K, config.n_heads)",
        "split(Q, 1), split(K, 1)",
        "attention.scores",
    ),
    "softmax over queries": ("e.sum(-1, keepdims=True)", "e.sum(-2, keepdims=True)", "attention.weights"),
    "softmax over all": ("e / e.sum(-1, keepdims=True)", "e / e.sum()", "attention.weights"),
    "scaled after softmax": (
        "weights = softmax(scores)",
        "weights = softmax(scores * np.sqrt(q.shape[-1])) / np.sqrt(q.shape[-1])",
        "attention.weights",
    ),
    "no maximum": ("np.exp(s - s.max(-1, keepdims=True))", "np.exp(s)", "attention.exp"),
    "softmax forgotten": ("softmax(scores)", "scores", "attention.weights"),
    "sigmoid for softmax": ("softmax(scores)", "1 / (1 + np.exp(-scores))", "attention.weights"),
    "mask inverted": ("np.where(mask, scores, -1e30)", "np.where(mask, -1e30, scores)", "attention.weights"),
    "mask times": ("np.where(mask, scores, -1e30)", "scores * mask", "attention.weights"),
    "residual 1 missing": ("s = x + a", "s = a", "s"),
    "residual 2 missing": ("t = h + f", "t = f", "t"),
    "residual 2 from x": ("t = h + f", "t = x + f", "t"),
    "ddof": (
        ".mean(-1, keepdims=True)\n    return",
        ".sum(-1, keepdims=True) / (v.shape[-1] - 1)\n    return",
        "norm_1.variance",
    ),
    "eps outside": ("np.sqrt(var + eps)", "(np.sqrt(var) + eps)", "norm_1.std"),
    "eps 1e-6": ("var + eps", "var + 1e-6", "norm_1.std"),
    "variance for std": ("np.sqrt(var + eps)", "(var + eps)", "norm_1.std"),
    "no mean": ("gamma * (v - mean)", "gamma * v", "norm_1.mean"),
    "norm over tokens": (
        "mean = v.mean(-1, keepdims=True)\n    var = ((v - mean) ** 2).mean(-1, keepdims=True)",
        "mean = v.mean(0, keepdims=True)\n    var = ((v - mean) ** 2).mean(0, keepdims=True)",
        "norm_1.mean",
    ),
    "gamma missing": ("gamma * (v", "(v", "h"),
    "beta missing": (" + beta", "", "h"),
    "norm_1 twice": (
        "params.norm_2.gamma, params.norm_2.beta",
        "params.norm_1.gamma, params.norm_1.beta",
        "y",
    ),
    "norm_2 ddof only": (
        "y = layer_norm(t,",
        "y = np.sqrt(1 - 1 / t.shape[-1]) * layer_norm(t,",
        "norm_2.variance",
    ),
    "last norm missing": (
        "y = layer_norm(t, params.norm_2.gamma, params.norm_2.beta, config.eps)",
        "y = t",
        "y",
    ),
    "b_1 missing": (" + F.b_1", "", "ffn.z"),
    "b_2 missing": (" + F.b_2", "", "f"),
    "GELU": (
        "np.maximum(z, 0)",
        "0.5 * z * (1 + np.tanh(0.7978845608 * (z + 0.044715 * z**3)))",
        "ffn.hidden",
    ),
    "no activation": ("np.maximum(z, 0)", "z", "ffn.hidden"),
    "ReLU after the second": ("f = hidden @ F.W_2 + F.b_2", "f = np.maximum(hidden @ F.W_2 + F.b_2, 0)", "f"),
    "ReLU before bias": (
        "z = h @ F.W_1 + F.b_1\n    hidden = np.maximum(z, 0)",
        "z = np.maximum(h @ F.W_1, 0)\n    hidden = z + F.b_1",
        "ffn.z",
    ),
    "FFN reads s": ("z = h @", "z = s @", "ffn.z"),
    "FFN reads x": ("z = h @", "z = x @", "ffn.z"),
}
VALUES = f"dict({', '.join(f'{v}={v}' for v in 'Q K V scores weights heads a s h z hidden f t'.split())})"


def made(text):
    names = {"np": np}
    exec(text, names)
    return names["port"]


def edited(name):
    old, new, station = EDITS[name]
    assert PORT.count(old) == 1
    return PORT.replace(old, new), station


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", EDITS)
def test_the_output_alone_shows_the_station(name):
    text, station = edited(name)
    found = compare(made(text))
    assert not found and found.station == station
    assert station in str(found) and "no cell was compared" in found.reveal()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "name",
    [name for name in EDITS if EDITS[name][2].split(".")[0] in ("attention", "a", "s", "t", "f", "ffn")],
)
def test_named_values_show_the_first_station(name):
    """A port that hands out its values is told the first of them that is not right, and where."""
    text, station = edited(name)
    if "mask" in name or "maximum" in name:
        return  # not to be seen on the sentence: no mask, small scores
    found = compare(made(text.replace("return y  # out", f"return y, {VALUES}")))
    assert not found
    assert (
        found.station in (station, "attention.scores", "a")
        if "heads" in station
        else found.station == station
    )
    assert found.place == () or f"expected {found.expected:.6g}" in found.reveal()


def test_pre_norm_is_seen_from_its_output():
    text = PORT.replace(PORT[PORT.index("    Q = x") : PORT.index("    q, k, v")], PRE)
    text = text.replace("h = layer_norm(s, params.norm_1.gamma, params.norm_1.beta, config.eps)", "h = s")
    text = text.replace("z = h @", "z = layer_norm(s, params.norm_2.gamma, params.norm_2.beta, config.eps) @")
    text = text.replace("y = layer_norm(t, params.norm_2.gamma, params.norm_2.beta, config.eps)", "y = t")
    assert compare(made(text)).station == "h"


@pytest.mark.parametrize(
    "text",
    [
        PORT,
        PORT.replace("return y  # out", f"return y, {VALUES}"),
        PORT.replace(", mask=None", "").replace("mask is not None", "False"),
    ],
)
def test_a_right_port_agrees(text):
    found = compare(made(text))
    assert found and "agrees" in str(found) and len(found.agreed) > 12


def test_ours_and_its_backward_agree():
    assert compare(encoder_block_forward)
    both = compare((encoder_block_forward, encoder_block_backward))
    assert both and "d_attention.W_Q" in both.agreed and "d_x" in both.agreed


@pytest.mark.parametrize("variants", [["causal"], ["pre-norm"], ["gelu", "one-head"], ["two-sentences"]])
def test_another_block_is_held_against_its_own_numbers(variants):
    trace = worked_example(varied(dog_bites_man(), variants))
    unmasked = compare(lambda x, params, config: encoder_block_forward(x, params, config)[0], trace)
    assert compare(encoder_block_forward, trace)
    backward = compare((encoder_block_forward, encoder_block_backward), trace)
    assert backward and "d_x" in backward.agreed
    assert bool(unmasked) == (variants != ["causal"]), "without a mask, what comes later is seen"


def test_a_float32_port_is_held_to_what_float32_has():
    port = made(PORT)
    assert compare(lambda x, params, config: port(x, params, config).astype(np.float32))


def test_a_wrong_backward_is_told_by_its_gradient():
    def backward(dy, cache):
        dx, grads = encoder_block_backward(dy, cache)
        return dx, grads._replace(ffn=grads.ffn._replace(b_1=2 * grads.ffn.b_1))

    found = compare((encoder_block_forward, backward))
    assert found.station == "d_ffn.b_1" and found.place == (0,)


def test_a_port_with_fixed_sizes_is_told_so():
    def port(x, params, config):
        return encoder_block_forward(x.reshape(3, 4), params, config)[0]

    assert "ValueError with 5 tokens of 6 numbers" in compare(port).note
    assert "shape" in compare(lambda x, params, config: x[:-1]).note


def test_layers_of_a_model_by_name():
    layers = {f"block_{i}": np.full((2, 3), float(i)) for i in range(4)}
    assert compare(layers, layers)
    found = compare(layers | {"block_2": layers["block_2"][None] + 0.1}, layers)
    assert (found.station, found.place, found.agreed) == ("block_2", (0, 0), ("block_0", "block_1"))
    assert compare({"block_1": np.ones((3, 2))}, layers).note == "its shape is (3, 2), expected (2, 3)"
    assert compare({"block_2": np.full((2, 3), 2.01)}, layers, tolerance=0.01)


def test_pasted_numbers_are_read_by_their_short_names():
    z = worked_example().named["ffn.z"].value
    assert compare({"z": z})
    assert compare({"z": z.astype(np.float32)})
    with pytest.raises(ValueError, match=r"norm_1\.x_hat and norm_2.x_hat have this name"):
        compare({"x_hat": z})
    with pytest.raises(ValueError, match=r"compare: mine holds 'zz'; expected one of E, embedding"):
        compare({"zz": z})


def test_a_scalar_a_hidden_score_and_a_small_difference_are_cells_too():
    causal = worked_example(varied(dog_bites_man(), ["causal"]))
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
    assert shown.startswith("<pre>differs at ffn.z, first at [0, 0]") and found.play().page in html.unescape(
        shown
    )
    assert '"at":"ffn.z,0"' in found.play().page
    by_inputs = compare(made(edited("no scale")[0]))
    assert '"at":"attention.scores"' in by_inputs.play().page and '"marks":[]' in by_inputs.play().page
    for nothing in (compare({"z": worked_example().named["ffn.z"].value}), compare({"a": 1}, {"a": 2})):
        assert "<iframe" not in nothing._repr_html_()
        with pytest.raises(ValueError, match="play: "):
            nothing.play()


@pytest.mark.parametrize(
    "mine, reference",
    [(3, None), ((encoder_block_forward, 3), None), (encoder_block_forward, {"a": 1}), ({}, 3)],
)
def test_another_kind_is_refused(mine, reference):
    with pytest.raises(TypeError, match="compare: "):
        compare(mine, reference)
