"""PyTorch's names against ours: golden_layer.npz has a layer in its words, golden_llama.npz a whole model."""

import re
from pathlib import Path

import numpy as np
import pytest
from small_models import same, spoilt
from together import failures, together

import npformer as npf

DATA = Path(__file__).parents[1] / "data"
CONFIG = npf.TransformerConfig(8, 12, 2, 1, activation="gelu", attention_bias=True)
LLAMA = npf.CausalLMConfig(16, 10, 4, 2, 2, 1e-6, 500.0, 9, tied=False, rope_layout="halves")


def golden(name, prefix=""):
    with np.load(DATA / f"golden_{name}.npz") as file:
        return {x.removeprefix(prefix): array for x, array in file.items() if x.startswith(prefix)}


# --- one layer --------------------------------------------------------------------------------------


@together("norm", ["post", "pre"])
def test_a_layer_of_pytorch_computes_the_same_here(norm):
    x, y, d_y, d_x = (golden("layer", f"{norm}.")[name] for name in ("x", "y", "d_y", "d_x"))
    params = npf.encoder_block_from_torch(golden("layer", f"{norm}.state."))
    found, cache = npf.encoder_block_forward(x, params, CONFIG._replace(norm=norm))
    dx, grads = npf.encoder_block_backward(d_y, cache)
    expected = npf.encoder_block_from_torch(golden("layer", f"{norm}.d_state."))  # gradients turn over too
    assert len(list(npf.leaves(expected))) == 16
    for tree, right in ((found, y), (dx, d_x), (grads, expected)):
        same(tree, right, 1e-11)


@together("dtype", [np.float64, np.float32])
def test_there_and_back_is_the_same_to_the_bit_and_nothing_is_shared(dtype):
    """PyTorch's optimizers write into a layer's arrays; what was converted before must not change."""
    state = {name: a.astype(dtype) for name, a in golden("layer", "post.state.").items()}
    params = npf.encoder_block_from_torch(state)
    back, kept = npf.encoder_block_to_torch(params), npf.tree_map(np.copy, params)
    assert list(back) == list(state)  # in PyTorch's order too
    for name in state:
        assert (back[name].dtype, back[name].tobytes()) == (dtype, state[name].tobytes())
        assert back[name].flags.c_contiguous
    same(npf.encoder_block_from_torch(back), params)
    for array in (*state.values(), *back.values()):
        array += 1
    same(params, kept)


def test_absent_biases_become_zeros():
    params = npf.init_encoder_block(CONFIG._replace(attention_bias=False), np.random.default_rng(0))
    back = npf.encoder_block_from_torch(npf.encoder_block_to_torch(params))
    assert [b.tolist() for b in back.attention[4:]] == [[0] * 8] * 4


# --- a whole model by the names in Hugging Face's files ---------------------------------------------


@pytest.fixture
def llama():
    """A tiny model of `transformers`: ids, its logits, and its weights by their names."""
    weights = {name: array for name, array in golden("llama").items() if "block" not in name}
    return weights.pop("ids"), weights.pop("logits"), weights


def test_the_names_of_hugging_face_give_their_logits(llama):
    ids, logits, state = llama
    params = npf.causal_lm_from_torch(state, LLAMA)
    ours, _ = npf.causal_lm_forward(ids, params, LLAMA)
    np.testing.assert_allclose(ours, logits, rtol=0, atol=1e-6 * abs(logits).max())  # their RoPE: float32
    wrong, _ = npf.causal_lm_forward(ids, params, LLAMA._replace(rope_layout="interleaved"))
    assert abs(wrong - logits).max() > 0.1 * abs(logits).max()  # the mistake that no shape shows
    greedy = npf.generate(ids, params, LLAMA, max_new_tokens=2, temperature=0)
    assert (greedy[:, 7] == logits[:, -1].argmax(axis=-1)).all()
    back = npf.causal_lm_to_torch(params, LLAMA)
    assert back.keys() == state.keys() and all((back[name] == state[name]).all() for name in state)


@together(("change", "said"), [
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
    weights = golden("llama")
    np.savez("reference.npz", **{name: weights.pop(name) for name in ("ids", "after block 1", "logits")})
    npf.save_safetensors("model.safetensors", weights)
    page = (DATA.parents[1] / "notebooks" / "guide" / "port.md").read_text(encoding="utf-8")
    port = "".join(part.partition("```")[0] for part in page.split("```python\n")[1:])
    assert change[0] in port
    exec(port.replace(*change) if change[0] else port, {})
    assert capsys.readouterr().out.startswith(said)


# --- what is no layer, and no model -----------------------------------------------------------------

TELLS = ("norm1.weight", "linear1.bias")  # of a layer: another length is another size for all the others


@together("function", ["encoder_block_from_torch", "causal_lm_from_torch"])
def test_a_state_that_does_not_fit_is_refused_by_name(llama, function):
    more, state = ((), golden("layer", "post.state.")) if "block" in function else ((LLAMA,), llama[2])

    def check(name, array, said):
        changed = {x: a for x, a in (state | {name: array}).items() if a is not None}
        with pytest.raises(TypeError if re.search("dtype|list", said) else ValueError) as told:
            getattr(npf, function)(changed, *more)
        said = "'] has shape (" if name in TELLS and "shape" in said else said
        assert str(told.value).startswith(f"{function}: state") and said in str(told.value)

    last, a = [*state.items()][-1]
    kinds = [(last, a.tolist(), "'] is a list; exp"), (last, np.float32(a), "has dtype float32; expected fl")]
    assert failures(check, [*(case for case in spoilt(state) if "NaN" not in case[2]), *kinds]) == {}
    with pytest.raises(TypeError, match=f"{function}: state is a list; expected a dict of names and arrays"):
        getattr(npf, function)(list(state), *more)
