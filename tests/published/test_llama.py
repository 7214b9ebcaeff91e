"""A Llama-like model from a folder of Hugging Face's: what it gives, and what it refuses."""

import numpy as np
import pytest
from small_llama import CONFIG, SAID, params, write_model

import npformer as npf

pytest.importorskip("safetensors", reason="needs safetensors: uv sync --extra pretrained")

LLAMA_3 = {"rope_type": "llama3", "factor": 8.0}


def without(*names):
    return {name: value for name, value in SAID.items() if name not in names}


@pytest.mark.parametrize(("said", "config"), [
    (SAID, CONFIG),
    (SAID | {"model_type": "mistral", "sliding_window": None, "head_dim": 4, "mlp_bias": False}, CONFIG),
    (SAID | {"attention_bias": False, "partial_rotary_factor": 1.0}, CONFIG),
    (without("rope_theta") | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}, CONFIG),
    (without("rope_theta", "rope_scaling", "hidden_act"), CONFIG._replace(base=10000.0)),
])  # fmt: skip
def test_the_plan_and_the_arrays_are_those_of_the_files(tmp_path, said, config):
    found, plan = npf.load_llama(write_model(tmp_path, said))
    assert plan == config
    for (path, a), (_, b) in zip(npf.leaves(found), npf.leaves(params()), strict=True):
        assert a.dtype == np.float32 and (a == b).all(), path
    wide, _ = npf.load_llama(tmp_path, dtype=np.float64)
    assert {x.dtype.name for _, x in npf.leaves(wide)} == {"float64"}


def test_a_model_in_parts_and_a_head_that_is_the_embedding(tmp_path):
    said = SAID | {"tie_word_embeddings": True}
    state = npf.load_safetensors(
        write_model(tmp_path, said, **{"lm_head.weight": None}) / "model.safetensors"
    )
    (tmp_path / "model.safetensors").unlink()
    for i, part in enumerate((list(state)[::2], list(state)[1::2])):
        npf.save_safetensors(tmp_path / f"model-{i}.safetensors", {name: state[name] for name in part})
    found, plan = npf.load_llama(tmp_path)
    assert plan.tied and found.head is None and (found.embedding.E == params().embedding.E).all()


NO_SUCH = "expected no such thing, which no equation here has"


@pytest.mark.parametrize(("said", "words"), [
    ({"model_type": "gemma"}, "of the kind 'gemma'; expected llama or mistral"),
    ({"rope_scaling": LLAMA_3}, f"rope_scaling = {LLAMA_3}; {NO_SUCH}"),
    ({"rope_parameters": LLAMA_3}, "rope_type = 'llama3'; expected 'default'"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5; expected 1.0"),
    ({"sliding_window": 4}, f"sliding_window = 4; {NO_SUCH}"),
    ({"attention_bias": True}, "attention_bias = True; expected False"),
    ({"mlp_bias": True}, "mlp_bias = True; expected False"),
    ({"hidden_act": "gelu"}, "hidden_act = 'gelu'; expected 'silu'"),
    ({"head_dim": 8}, "head_dim = 8; expected 4"),
    ({"num_attention_heads": 3}, "config.n_heads is 3"),
    ({"num_key_value_heads": None}, r"k_proj.weight'] has shape \(8, 16\); expected \(d_kv, d_model\)"),
    ({"rms_norm_eps": "1e-6"}, "config.eps is the string"),
])  # fmt: skip
def test_what_the_equations_do_not_have_is_refused_by_name(tmp_path, said, words):
    write_model(tmp_path, SAID | said)
    with pytest.raises((ValueError, TypeError), match=f"^load_llama: .*{words}"):
        npf.load_llama(tmp_path)


BIAS, NORM = "model.layers.0.self_attn.q_proj.bias", "model.layers.1.self_attn.q_norm.weight"


@pytest.mark.parametrize(("tensors", "words"), [
    ({BIAS: np.ones(16)}, f"the tensor {BIAS}, which no equation here has"),  # as Qwen2
    ({NORM: np.ones(4)}, f"the tensor {NORM}, which no equation here has"),  # as Qwen3
    ({"lm_head.weight": None}, "no tensor lm_head.weight"),
    ({"model.norm.weight": np.full(16, np.nan)}, "model.norm.weight"),
])  # fmt: skip
def test_a_tensor_too_many_or_too_few_is_refused_by_name(tmp_path, tensors, words):
    write_model(tmp_path, **tensors)
    with pytest.raises(ValueError, match=f"^load_llama: .*{words}"):
        npf.load_llama(tmp_path)


def test_a_file_that_is_not_there_or_damaged_is_named(tmp_path):
    write_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"load_llama: there is no file .*model\.safetensors"):
        npf.load_llama(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"load_llama: .*config\.json is not JSON"):
        npf.load_llama(tmp_path)
