"""The causal language model: properties, gradient, golden values, edge cases."""

import numpy as np
from golden import agrees_with_pytorch
from gradients import make_gradient_test
from valid_calls import drawn

import npformer as npf
from npformer import CausalLMConfig, causal_lm_forward, init_causal_lm
from npformer.modern import causal_lm

CONFIG = CausalLMConfig(
    d_model=8, d_ff=5, n_heads=4, n_kv_heads=2, n_layers=2, eps=1e-3, base=50.0, max_length=9
)


PARAMS = drawn(init_causal_lm, 7, CONFIG)


# --- properties ------------------------------------------------------------------------------------


def test_causal_lm_depends_on_distances_only():
    """RoPE makes the logits depend on distances, so padding in front of a text does not change its logits."""
    params, ids = PARAMS, np.array([[3, 1, 4, 1, 5]])
    padded = np.concatenate([np.zeros((1, 3), int), ids], axis=1)
    logits, _ = causal_lm_forward(ids, params, CONFIG, padding_id=0)
    padded_logits, _ = causal_lm_forward(padded, params, CONFIG, padding_id=0)
    np.testing.assert_allclose(padded_logits[:, 3:], logits, rtol=0, atol=1e-12)
    exchanged, _ = causal_lm_forward(ids[:, [1, 0, 2, 3, 4]], params, CONFIG)
    assert abs(exchanged[:, 2:] - logits[:, 2:]).max() > 1e-3


def test_causal_lm_config_defaults_are_stories15m():
    params = init_causal_lm(32000, CausalLMConfig(), np.random.default_rng(0), dtype=np.float32)
    assert sum(a.size for _, a in npf.leaves(params)) == 15_191_712
    assert {a.dtype for _, a in npf.leaves(params)} == {np.dtype(np.float32)}


def test_causal_lm_computes_one_rope_table(monkeypatch):
    """All blocks share the angles, in a forward pass and in each step of generation."""
    calls = []

    def count(*args, **options):
        calls.append(args)
        return npf.rope_table(*args, **options)

    monkeypatch.setattr(causal_lm, "rope_table", count)
    ids = np.array([[3, 1, 4]])
    causal_lm_forward(ids, PARAMS, CONFIG)
    assert len(PARAMS.blocks) == 2 and len(calls) == 1
    npf.generate(ids, PARAMS, CONFIG, max_new_tokens=2, temperature=0)
    assert len(calls) == 3


# --- the gradient -----------------------------------------------------------------------------------

TINY = {"d_model": 4, "d_ff": 3, "ids": np.array([[3, 1, 3, 2], [2, 4, 0, 0]])}
test_gradients = make_gradient_test(
    "causal_lm",  # The first variant checks every entry, the others check 3 directions per array.
    TINY | {"tied": False, "n_kv_heads": 1, "n_layers": 1},
    TINY | {"tied": True, "n_kv_heads": 2, "padding_id": None, "directions": 3},
    TINY | {"tied": True, "n_kv_heads": 1, "n_layers": 1, "directions": 3},
    TINY | {"n_layers": 1, "n_heads": 1, "n_kv_heads": 1, "frequencies": (0.7,), "directions": 3},
)


# --- the golden value -------------------------------------------------------------------------------


test_golden_values = agrees_with_pytorch("causal_lm")


# --- the edges --------------------------------------------------------------------------------------


def test_causal_lm_later_token_changes_no_earlier_logits():
    params, ids = PARAMS, np.random.default_rng(0).integers(7, size=(2, 6))
    logits, _ = causal_lm_forward(ids, params, CONFIG)
    for t in range(6):
        changed = ids.copy()
        changed[:, t] = (changed[:, t] + 1) % 7
        changed_logits, _ = causal_lm_forward(changed, params, CONFIG)
        assert (changed_logits[:, :t] == logits[:, :t]).all() and (changed_logits[:, t] != logits[:, t]).any()


def test_causal_lm_ignores_padding():
    config = CONFIG._replace(tied=False)
    params, ids = drawn(init_causal_lm, 7, config), np.array([[3, 1, 4, 0, 0]])
    padded, _ = causal_lm_forward(ids, params, config, padding_id=0)
    np.testing.assert_allclose(padded[:, :3], causal_lm_forward(ids[:, :3], params, config)[0], atol=1e-14)
    ids = np.array([[3, 0, 4]])  # the token after the padding must not attend to it
    logits, _ = causal_lm_forward(ids, params, config, padding_id=0)
    params.embedding.E[0] += 1
    changed_logits, _ = causal_lm_forward(ids, params, config, padding_id=0)
    np.testing.assert_allclose(changed_logits[0, 2], logits[0, 2], atol=1e-14)
