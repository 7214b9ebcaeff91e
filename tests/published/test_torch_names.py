"""PyTorch's names of a layer's arrays against ours; tests/data/golden_layer.npz has a layer in its words."""

import re
from pathlib import Path

import numpy as np
import pytest

import npformer as npf

CONFIG = npf.TransformerConfig(8, 12, 2, 1, activation="gelu", attention_bias=True)


@pytest.fixture(params=["post", "pre"])
def golden(request):
    with np.load(Path(__file__).parents[1] / "data" / "golden_layer.npz") as file:
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


def test_our_gradients_take_the_names_of_pytorch(golden):
    norm, arrays = golden
    params = npf.encoder_block_from_torch(under("state.", arrays))
    _, cache = npf.encoder_block_forward(arrays["x"], params, CONFIG._replace(norm=norm))
    found = npf.encoder_block_to_torch(npf.encoder_block_backward(arrays["d_y"], cache)[1])
    expected = under("d_state.", arrays)
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-11, err_msg=name)


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
    state = npf.encoder_block_to_torch(params)
    assert (state["self_attn.in_proj_bias"] == np.zeros(24)).all()
    assert (state["self_attn.out_proj.bias"] == np.zeros(8)).all()
    x = np.random.default_rng(1).normal(size=(3, 8))
    y, _ = npf.encoder_block_forward(x, params, CONFIG)
    again, _ = npf.encoder_block_forward(x, npf.encoder_block_from_torch(state), CONFIG)
    assert (y == again).all()


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
