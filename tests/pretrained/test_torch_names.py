"""Compare converted models with PyTorch.

golden_layer.npz has an encoder layer of PyTorch. golden_llama.npz has a whole model of `transformers`, and
golden_exports.npz has several smaller ones. test_transformers.py runs the library itself.
"""

from pathlib import Path

import numpy as np
import pytest
from small_models import DAMAGES, assert_same_tree, damage_tensor

import npformer as npf

DATA = Path(__file__).parents[1] / "data"
CONFIG = npf.TransformerConfig(8, 12, 2, 1, activation="gelu", attention_bias=True)
LLAMA = npf.CausalLMConfig(16, 10, 4, 2, 2, 1e-6, 500.0, 9, tied=False, rope_layout="halves")


def load_golden(name, prefix=""):
    """Return the golden arrays whose names begin with the prefix; remove the prefix from the names."""
    with np.load(DATA / f"golden_{name}.npz") as file:
        return {x.removeprefix(prefix): array for x, array in file.items() if x.startswith(prefix)}


# --- one encoder layer --------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_encoder_block_from_torch_agrees_with_pytorch(norm):
    golden = load_golden("layer", f"{norm}.")
    params = npf.encoder_block_from_torch(load_golden("layer", f"{norm}.state."))
    y, cache = npf.encoder_block_forward(golden["x"], params, CONFIG._replace(norm=norm))
    dx, grads = npf.encoder_block_backward(golden["d_y"], cache)
    expected_grads = npf.encoder_block_from_torch(load_golden("layer", f"{norm}.d_state."))
    assert len(list(npf.leaves(expected_grads))) == 16
    assert_same_tree(y, golden["y"], 1e-11)
    assert_same_tree(dx, golden["d_x"], 1e-11)
    assert_same_tree(grads, expected_grads, 1e-11)


def load_layer_state(dtype):
    return {name: a.astype(dtype) for name, a in load_golden("layer", "post.state.").items()}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_encoder_block_to_torch_undoes_from_torch(dtype):
    state = load_layer_state(dtype)
    params = npf.encoder_block_from_torch(state)
    back = npf.encoder_block_to_torch(params)
    assert list(back) == list(state)  # the names and their order are the same
    for name in state:
        assert (back[name].dtype, back[name].tobytes()) == (dtype, state[name].tobytes())
        assert back[name].flags.c_contiguous
    assert_same_tree(npf.encoder_block_from_torch(back), params)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_encoder_block_conversions_copy_the_arrays(dtype):
    """PyTorch's optimizers change arrays in place, and this must not change the converted parameters."""
    state = load_layer_state(dtype)
    params = npf.encoder_block_from_torch(state)
    back = npf.encoder_block_to_torch(params)
    copied = npf.tree_map(np.copy, params)
    for array in (*state.values(), *back.values()):
        array += 1
    assert_same_tree(params, copied)


def test_encoder_block_to_torch_absent_biases_are_zeros():
    params = npf.init_encoder_block(CONFIG._replace(attention_bias=False), np.random.default_rng(0))
    back = npf.encoder_block_from_torch(npf.encoder_block_to_torch(params))
    assert [b.tolist() for b in back.attention[4:]] == [[0] * 8] * 4


# --- a whole model under Hugging Face's names -------------------------------------------------------


@pytest.fixture
def llama():
    """Return ids, logits and named weights of a tiny Llama model, which `transformers` computed."""
    weights = {name: array for name, array in load_golden("llama").items() if "block" not in name}
    return weights.pop("ids"), weights.pop("logits"), weights


def test_causal_lm_from_torch_agrees_with_transformers(llama):
    ids, logits, state = llama
    params = npf.causal_lm_from_torch(state, LLAMA)
    found, _ = npf.causal_lm_forward(ids, params, LLAMA)
    tolerance = 1e-6 * abs(logits).max()  # transformers computes RoPE in float32
    np.testing.assert_allclose(found, logits, rtol=0, atol=tolerance)
    greedy = npf.generate(ids, params, LLAMA, max_new_tokens=2, temperature=0)
    assert (greedy[:, 7] == logits[:, -1].argmax(axis=-1)).all()


def test_causal_lm_wrong_rope_layout_changes_the_logits(llama):
    """No error reports this mistake, because all shapes are correct."""
    ids, logits, state = llama
    params = npf.causal_lm_from_torch(state, LLAMA)
    wrong, _ = npf.causal_lm_forward(ids, params, LLAMA._replace(rope_layout="interleaved"))
    assert abs(wrong - logits).max() > 0.1 * abs(logits).max()


def test_causal_lm_to_torch_undoes_from_torch(llama):
    _, _, state = llama
    back = npf.causal_lm_to_torch(npf.causal_lm_from_torch(state, LLAMA), LLAMA)
    assert back.keys() == state.keys()
    assert all((back[name] == state[name]).all() for name in state)


LAYOUTS = pytest.mark.parametrize("layout", ["halves", "interleaved"])
HEADS = pytest.mark.parametrize(
    "n_kv_heads", [4, 2]
)  # the models with grouped heads have biases in attention
TIED = pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])


def load_export(layout, tied, n_kv_heads):
    """Return the config, ids, logits and named float64 weights of one model in golden_exports.npz."""
    config = npf.CausalLMConfig(24, 10, 4, n_kv_heads, 1, 1e-6, 500.0, 9, tied, layout)
    golden = load_golden("exports", f"{'tied' if tied else 'untied'} {n_kv_heads}.")
    state = {x.removeprefix("state."): a.astype(float) for x, a in golden.items() if x.startswith("state.")}
    return config, load_golden("exports")["ids"], golden["logits"], state


@LAYOUTS
@TIED
@HEADS
def test_causal_lm_from_torch_every_layout_agrees(layout, tied, n_kv_heads):
    config, ids, logits, state = load_export(layout, tied, n_kv_heads)
    found, _ = npf.causal_lm_forward(ids, npf.causal_lm_from_torch(state, config), config)
    np.testing.assert_allclose(found, logits, rtol=0, atol=1e-6 * abs(logits).max())


@LAYOUTS
@TIED
@HEADS
def test_causal_lm_to_torch_undoes_every_layout(layout, tied, n_kv_heads):
    config, _, _, state = load_export(layout, tied, n_kv_heads)
    back = npf.causal_lm_to_torch(npf.causal_lm_from_torch(state, config), config)
    if tied:
        state.pop("lm_head.weight")
    assert back.keys() == state.keys()
    for name in state:
        np.testing.assert_array_equal(back[name], state[name], err_msg=name)
        assert back[name].flags.c_contiguous


def test_causal_lm_to_torch_exports_only_present_biases():
    config, _, _, state = load_export("interleaved", tied=False, n_kv_heads=2)
    del state["model.layers.0.self_attn.o_proj.bias"]  # as in Qwen 2
    params = npf.causal_lm_from_torch(state, config)
    assert params.blocks[0].attention.b_O is None
    assert npf.causal_lm_to_torch(params, config).keys() == state.keys()


@pytest.mark.parametrize("change", [lambda E: E + 1, lambda E: E[:-1]], ids=["values", "shape"])
def test_causal_lm_from_torch_different_tied_head_raises(change):
    config, _, _, state = load_export("halves", tied=True, n_kv_heads=4)
    state["lm_head.weight"] = change(state["lm_head.weight"])
    with pytest.raises(ValueError, match=r"^causal_lm_from_torch: state has a head of its own: lm_head"):
        npf.causal_lm_from_torch(state, config)


@pytest.fixture
def port_code(tmp_path, monkeypatch):
    """Write the files that the code of the guide page port.md reads, and return this code."""
    pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    weights = load_golden("llama")
    reference = {name: weights.pop(name) for name in ("ids", "after block 1", "logits")}
    np.savez("reference.npz", **reference)
    npf.save_safetensors("model.safetensors", weights)
    page = (DATA.parents[1] / "notebooks" / "guide" / "port.md").read_text(encoding="utf-8")
    return "".join(part.partition("```")[0] for part in page.split("```python\n")[1:])


def test_port_page_reports_agreement(port_code, capsys):
    exec(port_code, {})
    assert capsys.readouterr().out.startswith("agrees at 2 stations, from after block 1 to logits")


@pytest.mark.parametrize(("right", "wrong", "message"), [
    ("reference, config=config,", "reference, config=config._replace(rope_layout=\"interleaved\"),",
     "differs at after block 1, first at [0, 1, 0]"),  # position 0 is not rotated
    ("base=500.0", "base=50.0", "differs at after block 1, first at [0, 1, 0]"),
    ("eps=1e-6", "eps=1e-5", "differs at after block 1, first at [0, 0, 0]"),
    ("compare(params,", "compare(params._replace(head=-params.head),", "differs at logits"),
], ids=["RoPE layout", "RoPE base", "eps", "head"])  # fmt: skip
def test_port_page_finds_a_mistake(port_code, capsys, right, wrong, message):
    assert right in port_code
    exec(port_code.replace(right, wrong), {})
    assert capsys.readouterr().out.startswith(message)


# --- rejected states --------------------------------------------------------------------------------

# The lengths of these arrays determine the sizes of all others. If one of these lengths is wrong, the error
# names a different array.
SIZE_NAMES = ("norm1.weight", "linear1.bias")
SHAPE_DAMAGES = ("additional_axis", "shorter", "transposed")


@pytest.fixture(params=["encoder_block_from_torch", "causal_lm_from_torch"])
def conversion(request, llama):
    """Return the name of a conversion function, a valid state, and the further arguments of the function."""
    if request.param == "causal_lm_from_torch":
        return request.param, llama[2], (LLAMA,)
    return request.param, load_golden("layer", "post.state."), ()


@pytest.mark.parametrize("damage", [damage for damage in DAMAGES if damage not in ("nan", "infinity")])
def test_from_torch_names_a_damaged_array(conversion, damage):
    function, state, arguments = conversion
    error_type = TypeError if damage == "integers" else ValueError
    for name, array in state.items():
        damaged_name, damaged_array, expected = damage_tensor(damage, name, array)
        damaged_state = state | {damaged_name: damaged_array}
        if damaged_array is None:
            del damaged_state[damaged_name]
        if name in SIZE_NAMES and damage in SHAPE_DAMAGES:
            expected = "'] has shape ("
        with pytest.raises(error_type) as error:
            getattr(npf, function)(damaged_state, *arguments)
        message = str(error.value)
        assert message.startswith(f"{function}: state") and expected in message, (name, message)


@pytest.mark.parametrize(
    ("convert", "expected"),
    [
        pytest.param(np.ndarray.tolist, "'] is a list; exp", id="list"),
        pytest.param(np.float32, "has dtype float32; expected fl", id="other float dtype"),
    ],
)
def test_from_torch_rejects_a_different_type(conversion, convert, expected):
    function, state, arguments = conversion
    last_name, last_array = list(state.items())[-1]
    with pytest.raises(TypeError) as error:
        getattr(npf, function)(state | {last_name: convert(last_array)}, *arguments)
    message = str(error.value)
    assert message.startswith(f"{function}: state") and expected in message


def test_from_torch_rejects_a_list(conversion):
    function, state, arguments = conversion
    with pytest.raises(TypeError, match=f"{function}: state is a list; expected a dict of names and arrays"):
        getattr(npf, function)(list(state), *arguments)
