"""Run the code of the guide page ports.md on small models of transformers, and compare every station.

tests/data/make_golden_ports.py wrote golden_ports.npz, the weights, ids and stations of these models. The
tolerance is that of float32, in which transformers computes RoPE and some norms.
"""

from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npformer as npf

ROOT = Path(__file__).parents[2]
LLAMA = npf.CausalLMConfig(
    16, 20, n_heads=2, n_kv_heads=1, n_layers=2, eps=1e-6, base=500.0, max_length=64, tied=False,
    rope_layout="halves",
)  # fmt: skip
# For each model: the function of the page, and its arguments after ids and state.
PORTS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt-2": ("gpt_2", {"n_layers": 2, "n_heads": 2}),
    "bert": ("bert", {"n_layers": 2, "n_heads": 2}),
    "pythia": ("pythia", {"n_layers": 2, "n_heads": 2, "rotary_pct": 0.5, "base": 500.0}),
    "phi": ("phi", {"n_layers": 2, "n_heads": 2, "partial_rotary_factor": 0.5, "base": 500.0}),
    "yarn": ("yarn", {"config": LLAMA, "factor": 4.0, "original_max_length": 16, "beta_fast": 2.0}),
    "helium": ("helium", {"config": LLAMA}),
    "bloom": ("bloom", {"n_layers": 2, "n_heads": 3}),
    "cohere": ("cohere", {"n_layers": 2, "n_heads": 2, "base": 500.0, "logit_scale": 0.25}),
    "granite": ("granite", {
        "config": LLAMA, "embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.6,
        "logits_scaling": 4.0,
    }),
    "marian": ("marian", {"n_layers": 2, "n_heads": 2, "padding_id": 19, "embedding_factor": 4.0}),
    "t5": ("t5_encoder", {"n_layers": 2, "n_heads": 3, "n_rows": 8, "max_distance": 6}),
    "gemma 2": ("gemma_2", {
        "n_layers": 2, "n_heads": 2, "head_dim": 12, "scalar": 7.0, "base": 500.0, "soft_cap": 2.0,
        "final_cap": 1.5,
    }),
}  # fmt: skip


@cache
def functions_of_page():
    page = (ROOT / "notebooks" / "guide" / "ports.md").read_text(encoding="utf-8")
    names = {}
    exec("".join(part.partition("```")[0] for part in page.split("```python\n")[1:]), names)
    return names


def load_model(model, dtype=np.float64):
    """Return the arrays of a golden model in this dtype, its ids, and its stations."""
    with np.load(ROOT / "tests" / "data" / "golden_ports.npz") as file:
        arrays = {name: file[f"{model}.{name}"] for name in names_of(file, model)}
    ids = arrays.pop("ids")
    prefix = "state."
    state = {
        name.removeprefix(prefix): a.astype(dtype) for name, a in arrays.items() if name.startswith(prefix)
    }
    return state, ids, {name: a for name, a in arrays.items() if not name.startswith(prefix)}


def names_of(file, model):
    return [name.removeprefix(f"{model}.") for name in file if name.startswith(f"{model}.")]


@pytest.mark.parametrize("model", PORTS)
def test_port_has_stations_of_transformers(model):
    function, arguments = PORTS[model]
    state, ids, expected = load_model(model)
    if "decoder_ids" in expected:
        arguments = arguments | {"decoder_ids": expected.pop("decoder_ids")}
    found = functions_of_page()[function](ids=ids, state=state, **arguments)
    comparison = npf.compare(found, expected, tolerance=1e-5)
    assert comparison, comparison
    assert comparison.agreed[-1] == "logits" and len(comparison.agreed) == len(found)


@pytest.mark.parametrize("first_layout", ["interleaved", "halves"])
def test_reordered_columns_change_the_layout_only(first_layout):
    """For d_k = 6, the two converters permute the columns differently. For d_k = 4, they would be equal."""
    converters = {"interleaved": npf.interleaved_to_halves, "halves": npf.halves_to_interleaved}
    other_layout = "halves" if first_layout == "interleaved" else "interleaved"
    rng = np.random.default_rng(0)
    x, params = rng.standard_normal((5, 12)), npf.init_attention(12, rng, bias=True)
    params = npf.tree_map(lambda a: a + rng.standard_normal(a.shape), params)
    run = partial(npf.multi_head_attention_forward, x, x, x, n_heads=2, rope=True)
    expected, _ = run(params, rope_layout=first_layout)
    moved = {
        name: converters[first_layout](getattr(params, name), 6) for name in ("W_Q", "W_K", "b_Q", "b_K")
    }
    found, _ = run(params._replace(**moved), rope_layout=other_layout)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)
    back = converters[other_layout](moved["W_Q"], 6)
    assert (back == params.W_Q).all()


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("frequencies", [None, (1.0,), (1.0, 0.3), (1.0, 0.3, 0.1)], ids=str)
def test_exports_keep_the_logits_with_partial_rotation(layout, frequencies):
    """RoPE rotates none, some or all of the six columns of a head."""
    rng = np.random.default_rng(1)
    config = npf.CausalLMConfig(
        12, 10, n_heads=2, n_kv_heads=1, n_layers=2, rope_layout=layout, frequencies=frequencies
    )
    params = npf.init_causal_lm(11, config, rng)
    params = npf.tree_map(lambda a: a + 0.3 * rng.standard_normal(a.shape), params)
    ids = rng.integers(0, 11, (2, 7))
    expected, _ = npf.causal_lm_forward(ids, params, config)
    as_halves = config._replace(rope_layout="halves")
    exported = npf.causal_lm_from_torch(npf.causal_lm_to_torch(params, config), as_halves)
    logits, _ = npf.causal_lm_forward(ids, exported, as_halves)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-12)
    back = npf.causal_lm_from_torch(npf.causal_lm_to_torch(exported, as_halves), config)
    logits, _ = npf.causal_lm_forward(ids, back, config)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("convert", [npf.interleaved_to_halves, npf.halves_to_interleaved])
def test_converters_reject_too_many_rotated_columns(convert):
    with pytest.raises(ValueError, match=f"{convert.__name__}: n_rotated is 6; expected at most d_k=4"):
        convert(np.ones((3, 8)), 4, n_rotated=6)
    with pytest.raises(ValueError, match="n_rotated is 3; expected an even"):
        convert(np.ones((3, 8)), 4, n_rotated=3)


def test_llama_3_frequencies_agree_with_transformers():
    state, ids, expected = load_model("llama 3.1")
    frequencies = npf.llama3_frequencies(8, base=500.0, original_max_length=16)
    config = LLAMA._replace(frequencies=tuple(frequencies.tolist()))
    logits, _ = npf.causal_lm_forward(ids, npf.causal_lm_from_torch(state, config), config)
    assert npf.compare({"logits": logits}, expected)
    without, _ = npf.causal_lm_forward(ids, npf.causal_lm_from_torch(state, LLAMA), LLAMA)
    assert not npf.compare({"logits": without}, expected)
    prompt = ids[:, :5]
    longer = npf.generate(
        prompt, npf.causal_lm_from_torch(state, config), config, max_new_tokens=3, temperature=0
    )
    for t in (5, 6, 7):  # the KV cache has the same frequencies
        logits, _ = npf.causal_lm_forward(longer[:, :t], npf.causal_lm_from_torch(state, config), config)
        assert (logits[:, -1].argmax(-1) == longer[:, t]).all()
