"""npformer/modern on the stand-in for CuPy: NumPy's own numbers, and no waiting in a forward or backward."""

import sys

import numpy as np
import pytest
import standin_cupy as cupy
from test_standin_cupy import check_same, to_device

import npformer as npf
from npformer import CausalLMConfig

CONFIG = CausalLMConfig(d_model=8, d_ff=5, n_heads=4, n_kv_heads=2, n_layers=2, max_length=30)


@pytest.fixture(autouse=True)
def _standin(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", cupy)


def array(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def model(config=CONFIG):
    params = npf.init_causal_lm(7, config, np.random.default_rng(0))
    return npf.tree_map(lambda a: a + 0.3 * array(*a.shape, seed=1), params)


IDS = np.array([[3, 1, 4, 1], [5, 2, 0, 0]])
X = array(2, 3, 8)
QKV = array(2, 5, 4), array(2, 6, 4), array(2, 6, 3)
GATED = npf.GatedFFNParams(array(8, 5), array(8, 5), array(5, 8))
OWN_HEAD = CONFIG._replace(tied=False)
CASES = {
    "rms_norm": ((X, npf.RMSNormParams(array(8))), {}),
    "rms_norm of zeros": ((0 * X, npf.RMSNormParams(array(8))), {"eps": 0.0}),
    "silu": ((X,), {}),
    **{
        f"gated_ffn with {gate}": ((X, GATED), {"activation": gate})
        for gate in ("silu", "gelu", "relu", "sigmoid")
    },
    "tiled_attention": (QKV, {"tile": 2}),
    "tiled_attention, causal": (QKV, {"tile": 2, "causal": True}),
    "multi_head_attention": (
        (X, X, X, model().blocks[0].attention), {"n_heads": 4, "n_kv_heads": 2, "rope": True, "base": 50.0}
    ),
    "causal_lm": ((IDS, model(), CONFIG), {"padding_id": 0}),
    "causal_lm with an own head": ((IDS, model(OWN_HEAD), OWN_HEAD), {}),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("case", CASES)
def test_a_forward_and_its_backward_stay_on_the_device(case, dtype):
    def as_type(a):
        return a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a

    arguments, settings = CASES[case]
    arguments = [
        npf.tree_map(as_type, a) if isinstance(a, tuple) and not isinstance(a, CausalLMConfig) else as_type(a)
        for a in arguments
    ]
    name = case.split()[0].rstrip(",")
    forward, backward = (getattr(npf, f"{name}_{way}") for way in ("forward", "backward"))
    y, cache = forward(*arguments, **settings)
    device_y, device_cache = forward(*map(to_device, arguments), **settings)
    assert y.dtype == dtype
    check_same(device_y, y, case, last_bits=1000)
    dy = array(*y.shape, seed=4).astype(dtype)
    check_same(backward(cupy.asarray(dy), device_cache), backward(dy, cache), case, last_bits=1000)


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0},
        {"temperature": 0, "stop_id": 3, "padding_id": 0},
        {"temperature": 0.7, "padding_id": 0},
        {"top_k": 3, "top_p": 0.8},
    ],
)
def test_writing_gives_the_same_tokens(settings):
    found = npf.generate(
        cupy.asarray(IDS),
        to_device(model()),
        CONFIG,
        max_new_tokens=8,
        rng=np.random.default_rng(2),
        **settings,
    )
    expected = npf.generate(IDS, model(), CONFIG, max_new_tokens=8, rng=np.random.default_rng(2), **settings)
    check_same(found, expected)
