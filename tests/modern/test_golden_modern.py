"""Every operation of npformer/modern against PyTorch: output and every gradient, in float64 and in float32.

tests/data/make_golden_modern.py wrote the answers and says what was computed how.
"""

from pathlib import Path

import numpy as np
from together import together

import npformer as npf

DATA = Path(__file__).parent.parent / "data"
TOLERANCE = {np.float64: 1e-12, np.float32: 3e-5}  # of max(1, the largest entry)

with np.load(DATA / "golden_modern.npz") as archive:
    ANSWERS = dict(archive)


def inputs(case, dtype):
    start = f"{case}."
    return {k.removeprefix(start): v.astype(dtype) for k, v in ANSWERS.items() if k.startswith(start)}


def close(found, name, dtype):
    expected = ANSWERS[name]
    assert found.dtype == dtype, name
    atol = TOLERANCE[dtype] * max(1, abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol, err_msg=name)


def check(case, dtype, y, gradients):
    close(y, f"{case}:y", dtype)
    start = f"{case}:d_"
    assert {f"{start}{name}" for name in gradients} == {k for k in ANSWERS if k.startswith(start)} - {
        f"{start}y"
    }
    for name, gradient in gradients.items():
        close(gradient, start + name, dtype)


def upstream(case, dtype):
    return ANSWERS[f"{case}:d_y"].astype(dtype)


both = together("dtype", [np.float64, np.float32])


@both
def test_rms_norm(dtype):
    a = inputs("rms_norm", dtype)
    y, cache = npf.rms_norm_forward(a["x"], npf.RMSNormParams(a["gamma"]))
    dx, grads = npf.rms_norm_backward(upstream("rms_norm", dtype), cache)
    check("rms_norm", dtype, y, {"x": dx, "gamma": grads.gamma})


@both
def test_silu(dtype):
    y, cache = npf.silu_forward(inputs("silu", dtype)["z"])
    check("silu", dtype, y, {"z": npf.silu_backward(upstream("silu", dtype), cache)})


@both
@together("activation", ["silu", "gelu", "relu", "sigmoid"])
def test_gated_ffn(dtype, activation):
    case = f"gated_ffn_{activation}"
    a = inputs(case, dtype)
    params = npf.GatedFFNParams(a["W_gate"], a["W_up"], a["W_down"])
    y, cache = npf.gated_ffn_forward(a["x"], params, activation=activation)
    dx, grads = npf.gated_ffn_backward(upstream(case, dtype), cache)
    check(case, dtype, y, {"x": dx, **grads._asdict()})


@both
@together("n_kv_heads", [4, 2, 1])
def test_grouped_query_attention(dtype, n_kv_heads):
    case = f"grouped_attention_{n_kv_heads}"
    a = inputs(case, dtype)
    x, params = a["x"], npf.AttentionParams(a["W_Q"], a["W_K"], a["W_V"], a["W_O"])
    y, cache = npf.multi_head_attention_forward(
        x, x, x, params, n_heads=4, n_kv_heads=n_kv_heads, mask=npf.causal_mask(5), rope=True, base=100.0
    )
    dq, dk, dv, grads = npf.multi_head_attention_backward(upstream(case, dtype), cache)
    check(case, dtype, y, {"x": dq + dk + dv} | {n: g for n, g in grads._asdict().items() if g is not None})


def causal_lm_params(a):
    def norm(name):
        return npf.RMSNormParams(a[f"{name}.gamma"])

    def block(i):
        attention = npf.AttentionParams(*[a[f"blocks.{i}.attention.W_{letter}"] for letter in "QKVO"])
        ffn = npf.GatedFFNParams(*[a[f"blocks.{i}.ffn.W_{name}"] for name in ("gate", "up", "down")])
        return npf.CausalBlockParams(attention, norm(f"blocks.{i}.norm_1"), ffn, norm(f"blocks.{i}.norm_2"))

    embedding = npf.EmbeddingParams(a["embedding.E"])
    return npf.CausalLMParams(embedding, (block(0), block(1)), norm("norm"), a.get("head"))


@both
@together("case", ["causal_lm_tied", "causal_lm_own_head"])
def test_causal_lm(dtype, case):
    config = npf.CausalLMConfig(
        d_model=8,
        d_ff=5,
        n_heads=4,
        n_kv_heads=2,
        n_layers=2,
        eps=1e-3,
        base=50.0,
        tied=case.endswith("tied"),
    )
    params = causal_lm_params(inputs(case, dtype))
    logits, cache = npf.causal_lm_forward(ANSWERS[f"{case}:ids"], params, config)
    grads = npf.causal_lm_backward(upstream(case, dtype), cache)
    check(case, dtype, logits, dict(npf.leaves(grads)))
