"""PyTorch's names against ours: golden_layer.npz has a layer in its words, golden_llama.npz a whole model."""

import re
from pathlib import Path

import numpy as np
import pytest

import npformer as npf

DATA = Path(__file__).parents[1] / "data"
CONFIG = npf.TransformerConfig(8, 12, 2, 1, activation="gelu", attention_bias=True)


@pytest.fixture(params=["post", "pre"])
def golden(request):
    with np.load(DATA / "golden_layer.npz") as file:
        arrays = {
            name.removeprefix(f"{request.param}."): file[name] for name in file.files if request.param in name
        }
    return request.param, arrays


def under(prefix, arrays):
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}


def test_a_layer_of_pytorch_computes_the_same_here(golden):
    norm, arrays = golden
    params = npf.encoder_block_from_torch(under("state.", arrays))
    y, cache = npf.encoder_block_forward(arrays["x"], params, CONFIG._replace(norm=norm))
    np.testing.assert_allclose(y, arrays["y"], rtol=0, atol=1e-12)
    d_x, grads = npf.encoder_block_backward(arrays["d_y"], cache)
    np.testing.assert_allclose(d_x, arrays["d_x"], rtol=0, atol=1e-11)
    expected = dict(
        npf.leaves(npf.encoder_block_from_torch(under("d_state.", arrays)))
    )  # gradients turn over too
    assert len(expected) == 16
    for name, gradient in npf.leaves(grads):
        np.testing.assert_allclose(gradient, expected[name], rtol=0, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_there_and_back_is_the_same_to_the_bit(golden, dtype):
    state = {name: a.astype(dtype) for name, a in under("state.", golden[1]).items()}
    params = npf.encoder_block_from_torch(state)
    back = npf.encoder_block_to_torch(params)
    assert list(back) == list(state)  # in PyTorch's order too
    for name in state:
        assert back[name].dtype == dtype
        assert (back[name] == state[name]).all()
        assert back[name].flags.c_contiguous
    for (name, a), (_, b) in zip(
        npf.leaves(params), npf.leaves(npf.encoder_block_from_torch(back)), strict=True
    ):
        assert (a == b).all(), name


def test_absent_biases_become_zeros():
    params = npf.init_encoder_block(CONFIG._replace(attention_bias=False), np.random.default_rng(0))
    back = npf.encoder_block_from_torch(npf.encoder_block_to_torch(params))
    assert [b.tolist() for b in back.attention[4:]] == [[0] * 8] * 4


def test_nothing_is_shared(golden):
    """PyTorch's optimizers write into a layer's arrays; what was converted before must not change."""
    state = under("state.", golden[1])
    params = npf.encoder_block_from_torch(state)
    back = npf.encoder_block_to_torch(params)
    kept = npf.tree_map(np.copy, params)
    for array in (*state.values(), *back.values()):
        array += 1
    for (name, a), (_, b) in zip(npf.leaves(params), npf.leaves(kept), strict=True):
        assert (a == b).all(), name


def without(state, name):
    return {key: a for key, a in state.items() if key != name}


BAD = [
    (lambda s: list(s), TypeError, "state is a list; expected a dict of names and arrays"),
    (lambda s: without(s, "linear1.weight"), ValueError,
     "state has no tensor linear1.weight; expected the 12 of Enc"),
    (lambda s: without(s, "norm1.weight"), ValueError,
     "state has no tensor norm1.weight; expected the 12 of Enc"),
    (lambda s: s | {"linear3.bias": s["linear1.bias"]}, ValueError,
     "state has the tensor linear3.bias, which no equation here has; expected the 12 of Enc"),
    (lambda s: s | {"norm1.weight": s["norm1.weight"].tolist()}, TypeError,
     "state['norm1.weight'] is a list; exp"),
    (lambda s: s | {"norm1.weight": np.ones(())}, ValueError,
     "state['norm1.weight'] has shape (); expected (d_model,)"),
    (lambda s: s | {"linear1.weight": s["linear1.weight"].T}, ValueError,
     "state['linear1.weight'] has shape (8, 12); expected (d_ff, d_model) with d_ff=12, d_model=8"),
    (lambda s: s | {"self_attn.in_proj_weight": s["self_attn.in_proj_weight"].T}, ValueError,
     "state['self_attn.in_proj_weight'] has shape (8, 24); expected (3 d_model, d_model) with 3"),
    (lambda s: s | {"norm2.bias": s["norm2.bias"].astype(np.float32)}, TypeError,
     "state['norm2.bias'] has dtype float32; expected float64 like the other arrays"),
]  # fmt: skip


@pytest.mark.parametrize("spoil, error, message", BAD)
def test_a_state_that_is_not_one_layer_is_refused(golden, spoil, error, message):
    with pytest.raises(error, match="^" + re.escape(f"encoder_block_from_torch: {message}")):
        npf.encoder_block_from_torch(spoil(under("state.", golden[1])))


def test_parameters_that_are_no_block_are_refused(golden):
    params = npf.encoder_block_from_torch(under("state.", golden[1]))
    with pytest.raises(
        TypeError, match=r"^encoder_block_to_torch: params is a dict; expected an EncoderBlockParams"
    ):
        npf.encoder_block_to_torch({})
    turned = params._replace(ffn=params.ffn._replace(W_1=params.ffn.W_1.T))
    with pytest.raises(
        ValueError, match=r"^encoder_block_to_torch: params\.ffn\.W_1 has shape \(12, 8\); expected"
    ):
        npf.encoder_block_to_torch(turned)


# --- a whole model by the names in Hugging Face's files ---------------------------------------------


@pytest.fixture
def llama():
    """A tiny model of `transformers`, its weights by their names, and its logits."""
    with np.load(DATA / "golden_llama.npz") as file:
        golden = {name: array for name, array in file.items() if "block" not in name}
    config = npf.CausalLMConfig(16, 10, 4, 2, 2, 1e-6, 500.0, 9, tied=False, rope_layout="halves")
    return golden.pop("ids"), golden.pop("logits"), golden, config


def test_the_names_of_hugging_face_give_their_logits(llama):
    ids, logits, state, config = llama
    params = npf.causal_lm_from_torch(state, config)
    ours, _ = npf.causal_lm_forward(ids, params, config)
    np.testing.assert_allclose(ours, logits, rtol=0, atol=1e-6 * abs(logits).max())  # their RoPE: float32
    greedy = npf.generate(ids, params, config, max_new_tokens=2, temperature=0)
    assert (greedy[:, 7] == logits[:, -1].argmax(axis=-1)).all()
    wrong, _ = npf.causal_lm_forward(ids, params, config._replace(rope_layout="interleaved"))
    assert abs(wrong - logits).max() > 0.1 * abs(logits).max()  # the mistake that no shape shows
    back = npf.causal_lm_to_torch(params, config)
    assert back.keys() == state.keys() and all((back[name] == state[name]).all() for name in state)


def test_a_layout_is_an_order_of_columns(llama):
    """Turned in halves, or, with the columns of each head in another order, as neighbours: the same."""
    ids, _, state, config = llama
    order = np.arange(16).reshape(4, 2, 2).swapaxes(1, 2).ravel()  # a head's 0 1 2 3 -> 0 2 1 3
    moved = {n: a[order[: len(a)]] if "q_proj" in n or "k_proj" in n else a for n, a in state.items()}
    same, _ = npf.causal_lm_forward(ids, npf.causal_lm_from_torch(state, config), config)
    config = config._replace(rope_layout="interleaved")
    found, _ = npf.causal_lm_forward(ids, npf.causal_lm_from_torch(moved, config), config)
    np.testing.assert_allclose(found, same, rtol=0, atol=1e-12)


def test_gradients_hold_in_halves(llama):
    ids, _, state, config = llama
    params = npf.causal_lm_from_torch(state, config)
    npf.assert_gradients(npf.causal_lm_forward, npf.causal_lm_backward, ids, params, config, directions=2)


@pytest.mark.parametrize(("change", "error", "words"), [
    ({"model.layers.0.self_attn.q_norm.weight": np.ones(4)}, ValueError, "q_norm.weight, which no equation"),
    ({"model.norm.weight": None}, ValueError, "state has no tensor model.norm.weight"),
    ({"model.norm.weight": [1.0]}, TypeError, "state.'model.norm.weight'. is a list"),
    ({"lm_head.weight": np.ones((20, 8))}, ValueError, r"state\['lm_head.weight'\] has shape \(20, 8\)"),
])  # fmt: skip
def test_a_state_that_is_not_one_model_is_refused(llama, change, error, words):
    _, _, state, config = llama
    state = {name: array for name, array in (state | change).items() if array is not None}
    with pytest.raises(error, match=f"causal_lm_from_torch: .*{words}"):
        npf.causal_lm_from_torch(state, config)


@pytest.mark.parametrize(("change", "said"), [
    (("", ""), "agrees at 2 stations, from after block 1 to logits"),
    (("halves", "interleaved"), "differs at after block 1, first at [0, 1, 0]"),  # from the second token on
    (("base=500.0", "base=50.0"), "differs at after block 1, first at [0, 1, 0]"),
    (("eps=1e-6", "eps=1e-5"), "differs at after block 1, first at [0, 0, 0]"),
    (("params, config)\n", "params._replace(head=-params.head), config)\n"), "differs at logits"),
])  # fmt: skip
def test_the_page_on_ports_runs_and_finds_what_is_wrong(tmp_path, monkeypatch, capsys, change, said):
    """Its commands, in a folder with a file of weights and what is right."""
    pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    with np.load(DATA / "golden_llama.npz") as file:
        golden = dict(file)
    np.savez("reference.npz", **{name: golden.pop(name) for name in ("ids", "after block 1", "logits")})
    npf.save_safetensors("model.safetensors", golden)
    page = (DATA.parents[1] / "notebooks" / "guide" / "port.md").read_text(encoding="utf-8")
    port = "".join(part.partition("```")[0] for part in page.split("```python\n")[1:])
    assert change[0] in port
    exec(port.replace(*change) if change[0] else port, {})
    assert capsys.readouterr().out.startswith(said)
