"""Adapters of a causal language model: gradients, files in the format of PEFT, errors."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from valid_calls import LM, LM_CONFIG, generator

import npformer as npf
from npformer.post_training import (
    BlockAdapter,
    LoRAParams,
    adapter_gradients,
    init_adapter,
    load_adapter,
    merge_adapter,
    save_adapter,
)

DATA = Path(__file__).parents[1] / "data"
ALL = BlockAdapter._fields
IDS = np.array([[1, 2, 0, 3]])


def make_adapter(matrices=ALL, r=2):
    """Return an adapter in which neither A nor B is 0."""
    adapter = init_adapter(LM, r, generator(), matrices=matrices)
    return npf.tree_map(lambda a: a + 0.1 * generator().standard_normal(a.shape), adapter)


def loss_of(adapter):
    logits, _ = npf.causal_lm_forward(IDS, merge_adapter(LM, adapter, alpha=6.0), LM_CONFIG)
    return float(npf.cross_entropy_forward(logits, IDS)[0])


# --- the gradient -----------------------------------------------------------------------------------


def test_adapter_gradients_equal_finite_differences():
    adapter = make_adapter()
    logits, cache = npf.causal_lm_forward(IDS, merge_adapter(LM, adapter, alpha=6.0), LM_CONFIG)
    _, loss_cache = npf.cross_entropy_forward(logits, IDS)
    grads = npf.causal_lm_backward(npf.cross_entropy_backward(1.0, loss_cache), cache)
    found = adapter_gradients(grads, adapter, alpha=6.0)
    direction = npf.tree_map(lambda a: np.random.default_rng(3).standard_normal(a.shape), adapter)
    step = 1e-6
    plus, minus = (npf.tree_map(lambda a, d, h=h: a + h * d, adapter, direction) for h in (step, -step))
    pairs = zip(npf.leaves(found), npf.leaves(direction), strict=True)
    slope = sum((g * d).sum() for (_, g), (_, d) in pairs)
    assert slope == pytest.approx((loss_of(plus) - loss_of(minus)) / (2 * step), rel=1e-7)


def test_new_adapter_does_not_change_the_model():
    merged = merge_adapter(LM, init_adapter(LM, 2, generator(), matrices=ALL))
    for (path, a), (_, b) in zip(npf.leaves(merged), npf.leaves(LM), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=path)


def test_merge_adapter_changes_only_named_matrices():
    merged = merge_adapter(LM, make_adapter(("W_V", "W_down")))
    before, after = dict(npf.leaves(LM)), dict(npf.leaves(merged))
    changed = {path for path in before if not np.array_equal(before[path], after[path])}
    assert changed == {"blocks.0.attention.W_V", "blocks.0.ffn.W_down"}


# --- the files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_saved_adapter_is_loaded_unchanged(layout, tmp_path):
    pytest.importorskip("safetensors")
    adapter = (BlockAdapter(), *make_adapter())
    config = LM_CONFIG._replace(n_layers=2, rope_layout=layout)
    save_adapter(tmp_path / "new", adapter, config, alpha=16.0)
    found, alpha = load_adapter(str(tmp_path / "new"), config)
    assert alpha == 16.0 and len(found) == 2
    for (path, a), (other, b) in zip(npf.leaves(found), npf.leaves(adapter), strict=True):
        assert path == other
        np.testing.assert_array_equal(a, b)
    longer, _ = load_adapter(tmp_path / "new", config._replace(n_layers=3))
    assert longer[2] == BlockAdapter()


@pytest.mark.parametrize("frequencies", [None, (1.0,)], ids=["all columns rotate", "two columns rotate"])
def test_saved_adapter_fits_the_exported_model(frequencies, tmp_path):
    """Merging before the export gives the same matrices as merging the file after the export."""
    pytest.importorskip("safetensors")
    assert LM_CONFIG.rope_layout == "interleaved" and LM_CONFIG.d_model // LM_CONFIG.n_heads > 2
    config = LM_CONFIG._replace(frequencies=frequencies)
    adapter = make_adapter()
    save_adapter(tmp_path, adapter, config, alpha=4.0)
    arrays = npf.load_safetensors(tmp_path / "adapter_model.safetensors")
    merged = npf.causal_lm_to_torch(merge_adapter(LM, adapter, alpha=4.0), config)
    state = npf.causal_lm_to_torch(LM, config)
    for name, B in arrays.items():
        if name.endswith("lora_B.weight"):
            A = arrays[name.replace("lora_B", "lora_A")]
            weight = name.removeprefix("base_model.model.").replace("lora_B.weight", "weight")
            np.testing.assert_allclose(state[weight] + 4.0 / 2 * B @ A, merged[weight], atol=1e-12)


def test_adapter_of_another_head_size_is_rejected(tmp_path):
    pytest.importorskip("safetensors")
    config = LM_CONFIG._replace(d_model=24, n_heads=2)
    with pytest.raises(
        ValueError, match=r"adapter\[0\]\.W_Q\.B has 8 columns; expected a multiple of d_k = 12"
    ):
        save_adapter(tmp_path, make_adapter(("W_Q",)), config)


def test_saved_adapter_has_names_of_peft(tmp_path):
    pytest.importorskip("safetensors")
    save_adapter(tmp_path, make_adapter(("W_Q", "W_down")), LM_CONFIG)
    arrays = npf.load_safetensors(tmp_path / "adapter_model.safetensors")
    layer = "base_model.model.model.layers.0"
    shapes = {name: a.shape for name, a in arrays.items()}
    assert shapes == {
        f"{layer}.self_attn.q_proj.lora_A.weight": (2, 8),
        f"{layer}.self_attn.q_proj.lora_B.weight": (8, 2),
        f"{layer}.mlp.down_proj.lora_A.weight": (2, 12),
        f"{layer}.mlp.down_proj.lora_B.weight": (8, 2),
    }
    settings = json.loads((tmp_path / "adapter_config.json").read_text(encoding="utf-8"))
    assert settings["r"] == 2 and settings["lora_alpha"] == 8.0
    assert settings["target_modules"] == ["down_proj", "q_proj"]


# --- an adapter that PEFT has trained ---------------------------------------------------------------


def load_base_model(layout):
    """Return the base model of the folder peft_adapter, its configuration, and PEFT's answers."""
    config = npf.CausalLMConfig(
        16, 20, n_heads=2, n_kv_heads=1, n_layers=2, eps=1e-6, base=500.0, max_length=64, tied=False,
        rope_layout=layout,
    )  # fmt: skip
    with np.load(DATA / "golden_adapter.npz") as file:
        arrays = dict(file)
    state = {name: a.astype(np.float64) for name, a in parts_of(arrays, "base.").items() if name != "logits"}
    return npf.causal_lm_from_torch(state, config), config, arrays


def parts_of(arrays, prefix):
    """Return the arrays whose name begins with the prefix, without the prefix."""
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_adapter_of_peft_gives_its_logits_and_gradients(layout):
    """The tolerance is large, because transformers computes RoPE in float32."""
    pytest.importorskip("safetensors")
    params, config, expected = load_base_model(layout)
    adapter, alpha = load_adapter(DATA / "peft_adapter", config)
    adapter = npf.tree_map(lambda a: a.astype(np.float64), adapter)
    merged = merge_adapter(params, adapter, alpha=alpha)
    ids = expected["ids"]
    before, _ = npf.causal_lm_forward(ids, params, config)
    np.testing.assert_allclose(before, expected["base.logits"], atol=1e-5)
    logits, cache = npf.causal_lm_forward(ids, merged, config)
    np.testing.assert_allclose(logits, expected["adapted.logits"], atol=1e-5)

    targets = np.pad(ids[:, 1:], ((0, 0), (0, 1)), constant_values=-1)
    _, loss_cache = npf.cross_entropy_forward(logits, targets, ignore_index=-1)
    grads = npf.causal_lm_backward(npf.cross_entropy_backward(1.0, loss_cache), cache)
    halves = npf.post_training.adapter.interleaved_to_halves
    found = adapter_gradients(grads, adapter, alpha=alpha)
    if layout == "interleaved":  # the columns of B are in a different order than in the file
        found = npf.post_training.adapter._reorder_columns("test", found, config, halves)
    for name, gradient in npf.post_training.adapter.adapter_to_torch(found).items():
        np.testing.assert_allclose(gradient, expected[f"gradient.{name}"], atol=1e-5, err_msg=name)


def test_merged_adapter_has_the_weights_of_peft():
    pytest.importorskip("safetensors")
    params, config, arrays = load_base_model("interleaved")
    adapter, alpha = load_adapter(DATA / "peft_adapter", config)
    adapter = npf.tree_map(lambda a: a.astype(np.float64), adapter)
    state = npf.causal_lm_to_torch(merge_adapter(params, adapter, alpha=alpha), config)
    expected = parts_of(arrays, "merged.")
    assert len(expected) == 14
    for name, weight in expected.items():
        np.testing.assert_allclose(state[name], weight, rtol=1e-12, atol=1e-14, err_msg=name)


# --- errors -----------------------------------------------------------------------------------------


def test_adapter_that_does_not_fit_is_rejected():
    (part,) = make_adapter(("W_Q",))
    short = (part._replace(W_Q=LoRAParams(part.W_Q.A[:3], part.W_Q.B)),)
    for function in (merge_adapter, adapter_gradients):
        with pytest.raises(ValueError, match=r"adapter has 2 blocks; expected 1"):
            function(LM, (part, part))
        with pytest.raises(ValueError, match=re.escape("adapter[0].W_Q has the shapes ((3, 2), (2, 8))")):
            function(LM, short)
        with pytest.raises(ValueError, match="alpha is 0"):
            function(LM, (part,), alpha=0)
    with pytest.raises(ValueError, match="matrices is 'W'"):
        init_adapter(LM, 2, generator(), matrices=("W",))
    with pytest.raises(ValueError, match="r is 0"):
        init_adapter(LM, 0, generator())


@pytest.mark.parametrize("adapter", [(), (BlockAdapter(),), make_adapter(r=1) + make_adapter()])
def test_save_adapter_requires_one_rank(adapter, tmp_path):
    with pytest.raises(ValueError, match="expected one rank"):
        save_adapter(tmp_path, adapter, LM_CONFIG)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"use_dora": True}, "use_dora = True"),
        ({"lora_alpha": None}, "lora_alpha"),
        ({"bias": "all"}, "bias"),
        ({"alora_invocation_tokens": [5]}, "alora_invocation_tokens"),
        ({"layer_replication": [[0, 1], [0, 1]]}, "layer_replication"),
        ({"init_lora_weights": "pissa_niter_4"}, "PEFT also changes the weights of the base model"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_load_adapter_rejects_other_settings(change, message, tmp_path):
    pytest.importorskip("safetensors")
    save_adapter(tmp_path, make_adapter(), LM_CONFIG)
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | change), encoding="utf-8")
    with pytest.raises((ValueError, TypeError), match=message):
        load_adapter(tmp_path, LM_CONFIG)


def test_load_adapter_rejects_unknown_or_missing_arrays(tmp_path):
    pytest.importorskip("safetensors")
    save_adapter(tmp_path, make_adapter(), LM_CONFIG)
    file = tmp_path / "adapter_model.safetensors"
    arrays = npf.load_safetensors(file)
    npf.save_safetensors(file, arrays | {"model.layers.99999999999.x": np.ones(2)})
    with pytest.raises(ValueError, match=r"model\.layers\.99999999999\.x, which no equation"):
        load_adapter(tmp_path, LM_CONFIG)
    del arrays["base_model.model.model.layers.0.mlp.up_proj.lora_B.weight"]
    npf.save_safetensors(file, arrays)
    with pytest.raises(ValueError, match=r"no tensor .*up_proj\.lora_B"):
        load_adapter(tmp_path, LM_CONFIG)
