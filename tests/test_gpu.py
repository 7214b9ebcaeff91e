"""One code, two array libraries: CuPy gives NumPy's numbers, nothing leaves the device, memory does not grow.

    uv run --extra cuda12 pytest -m gpu        on a machine with an NVIDIA GPU (or --extra cuda13)

Every test that takes `device` runs twice. On CuPy it carries the mark `gpu`, and where no GPU answers it is
skipped with the reason. On the stand-in for CuPy (standin_cupy.py) it runs everywhere: what would leave a GPU
or make it wait fails there, and so does every call that CuPy, where it can be imported, does not take.
"""

import gc
import re
import sys
from collections import Counter
from contextlib import contextmanager
from itertools import islice

import numpy as np
import pytest
import standin_cupy
from together import failures
from valid_calls import (
    BACKWARD,
    CALLS,
    CHECKED,
    LM,
    LM_CONFIG,
    VOCAB_SIZE,
    array,
    arrays_in,
    call,
    drawn,
    generator,
    like,
    variants,
    with_arrays,
)
from valid_calls import CONFIG as SMALL

import npformer as npf
from npformer import attention
from npformer.backend import _why_no_cupy
from npformer.tree import ends

DTYPES = ("float64", "float32")
TOLERANCE = {"float64": 1e-11, "float32": 1e-4}  # relative to the array's largest entry, or to 1

ON_A_GPU = pytest.param(
    "gpu",
    marks=[pytest.mark.gpu, pytest.mark.filterwarnings("default")],  # CuPy's warnings are not our errors
)


@pytest.fixture(params=["stand-in", ON_A_GPU])
def device(request, monkeypatch):
    """The module that is `cupy` in this test."""
    if request.param == "gpu":
        if reason := _why_no_cupy():
            pytest.skip(reason)
        return sys.modules["cupy"]
    monkeypatch.setitem(sys.modules, "cupy", standin_cupy)
    return standin_cupy


def test_available_backends_lists_cupy(device):
    assert npf.available_backends() == ("numpy", "cupy")


# What the stand-in refuses, or it would prove nothing; what the package refuses; where it may wait


def test_the_standin_refuses_what_belongs_to_numpy_and_lets_no_forward_wait(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", standin_cupy)
    names = {"np": np, "cupy": standin_cupy, "x": standin_cupy.asarray(np.array([1.0, 3.0]))}
    numpys = "np.exp(x), np.sum(x), np.ones(2) + x, x + np.ones(2), x * np.float64(2), cupy.exp(np.ones(2))"
    for use in numpys.split(", "):
        with pytest.raises(TypeError):
            eval(use, names)
    for name in ("x.std()", "cupy.einsum('i->', x)", "x % 2", "x.sum(axis=0, where=True)"):
        with pytest.raises((AttributeError, TypeError)):
            eval(name, names)
    package = {"__name__": "npformer.planted"}
    waiting = "float(x[0]), 1 if x.sum() else 0, x.sum().item(), x.get(), x[x > 0], '78'[x.argmax()]"
    for waits in waiting.split(", "):
        exec(f"def planted_forward(x): return inside(x)\ndef inside(x): return {waits}", package)
        package["inside"](names["x"])  # a wait elsewhere is allowed
        with pytest.raises(RuntimeError, match="makes the host wait for the device inside planted_forward"):
            package["planted_forward"](names["x"])


def test_greedy_decode_waits_once_per_token(monkeypatch):
    waits = []
    monkeypatch.setitem(sys.modules, "cupy", standin_cupy)
    monkeypatch.setattr(standin_cupy, "_wait", waits.append)
    tokens = call("greedy_decode", with_arrays(CALLS["greedy_decode"](), standin_cupy.asarray)).shape[-1]
    assert waits == ["__bool__"] * tokens  # has every row stopped?


def test_functions_reject_arrays_of_two_libraries(device):
    def check(name, holder):
        arguments = CALLS[name]()
        with pytest.raises(TypeError) as caught:
            call(name, arguments | {holder: with_arrays(arguments[holder], device.asarray)})
        mixed = "(CuPy; expected one of NumPy|NumPy; expected one of CuPy)"
        assert re.match(rf"{name}: [\w.]+ is an array of {mixed} like [\w.]+ ", str(caught.value))
        assert holder in str(caught.value)

    holders = {name: [n for n, v in CALLS[name]().items() if arrays_in(v)] for name in CHECKED}
    mixed = [(name, holder) for name, them in holders.items() for holder in them if len(them) > 1]
    assert failures(check, mixed) == {} and len(mixed) > 80
    params = npf.FFNParams(array(4, 8), array(8), device.asarray(array(8, 4)), array(4))
    with pytest.raises(
        TypeError, match=r"^ffn_forward: params.W_2 is an array of CuPy; expected one of NumPy"
    ):
        npf.ffn_forward(array(2, 4), params)


# The same numbers


def check_close(device, found, expected, name="result"):
    """Each of NumPy's arrays has its like on the device, within the tolerance; everything else is equal."""
    found, expected = (dict(ends(name, (tree, computed(tree)))) for tree in (found, expected))
    assert list(found) == list(expected)
    for path, x in expected.items():
        if isinstance(x, np.ndarray):
            assert type(found[path]) is device.ndarray, path
            assert (found[path].shape, found[path].dtype) == (x.shape, x.dtype), path
            rtol = TOLERANCE.get(x.dtype.name, 0)
            atol = rtol * max(1, abs(x).max(initial=0)) if rtol else 0
            np.testing.assert_allclose(device.asnumpy(found[path]), x, rtol=0, atol=atol, err_msg=path)
        else:
            assert found[path] == (pytest.approx(x, rel=1e-11) if isinstance(x, float) else x), path


def computed(result):
    """What a cache does not keep and computes anew when it is asked."""
    cache = result[-1] if isinstance(result, tuple) and result else None
    names = vars(type(cache)) if hasattr(cache, "_fields") else {}
    return [getattr(cache, name) for name in names if isinstance(names[name], property)]


MODELS = [
    SMALL._replace(positions=positions, norm=norm, activation=act, n_layers=1)
    for positions in ("sinusoidal", "learned", "rope", "alibi", "none")
    for norm, act in (("pre", "gelu"), ("post", "relu"))
]
MORE = [  # what no word, flag or None tells
    ("softmax_forward", {"axis": 0, "scores": np.array([[1.0, -np.inf], [2.0, -np.inf]])}),
    ("softmax_forward", {"scores": np.ones((2, 0))}),
    ("layer_norm_forward", {"x": np.ones((2, 8)), "eps": 0}),
    ("rms_norm_forward", {"x": np.zeros((2, 8)), "eps": 0}),
    ("tiled_attention_forward", {"k": array(2, 9, 4), "v": array(2, 9, 3)}),  # tiles beyond the last query
    ("attention_forward", {"mask": np.zeros((6, 7), bool)}),
    ("multi_head_attention_forward", {"params": LM.blocks[0].attention, "n_kv_heads": 1}),
    ("cross_entropy_forward", {"ignore_index": 2}),
    ("causal_lm_forward", {"params": LM._replace(head=None), "config": LM_CONFIG._replace(tied=True)}),
    ("adam_update", {"eps": 0.0}),
    ("generate", {"temperature": 0}),
    ("positional_encoding", {"n": 5000, "d_model": 64, "layout": "interleaved"}),
    ("positional_encoding", {"n": 130, "d_model": 7, "start": 100_000}),
    ("alibi_bias", {"n_heads": 6, "T_q": 30, "T_k": 40}),
    *[
        (name, {"params": drawn(npf.init_transformer, VOCAB_SIZE, config), "config": config})
        for name in ("transformer_forward", "greedy_decode")
        for config in MODELS
    ],
]


def check_function(device, name, arguments, dtype="float64"):
    """A call on both libraries; of a forward its backward too."""

    def result(xp, arguments):
        moved = like(arguments | {"rng": generator()} if arguments.get("rng") else arguments, dtype)
        moved |= {"xp": xp} if "xp" in moved else {"dtype": dtype} if "dtype" in moved else {}
        return call(name, moved if xp is np else with_arrays(moved, device.asarray))

    found, expected = result(device, arguments), result(np, arguments)
    check_close(device, found, expected, name)
    backward = name.replace("_forward", "_backward")
    if backward != name:
        dy = array(*expected[0].shape, seed=4, dtype=expected[0].dtype)
        gradients = getattr(npf, backward)(device.asarray(dy), found[1])
        check_close(device, gradients, getattr(npf, backward)(dy, expected[1]), backward)


def test_functions_agree_on_cupy_and_numpy(device):
    names = [n for n in CHECKED if n not in BACKWARD and (arrays_in(a := CALLS[n]()) or "xp" in a)]
    cases = [(name, "as it is", CALLS[name](), dtype) for name in names for dtype in DTYPES]
    cases += [(name, *variant, "float32") for name in names for variant in variants(name)]
    cases += [(name, str(changes), CALLS[name]() | changes, "float32") for name, changes in MORE]
    check = lambda name, setting, arguments, dtype: check_function(device, name, arguments, dtype)  # noqa: E731
    assert failures(check, cases) == {} and len(cases) > 200


def test_attention_agrees_for_long_sequences(device, monkeypatch):
    """As for long sequences: a host has little memory to spare, a device little time for small kernels."""
    monkeypatch.setattr(attention, "LARGE", 0)
    for name in ("attention_forward", "multi_head_attention_forward"):
        check_function(device, name, CALLS[name]())


def test_cross_entropy_without_targets_is_nan_on_device(device):
    arguments = CALLS["cross_entropy_forward"]() | {"targets": np.full((2, 6), -1)}
    loss, _ = call("cross_entropy_forward", with_arrays(arguments, device.asarray))
    assert np.isnan(device.asnumpy(loss))


@pytest.mark.parametrize("device", [ON_A_GPU], indirect=True)  # the stand-in has NumPy's own numbers
def test_encoder_block_of_paper_width_agrees(device):
    config = npf.TransformerConfig(activation="gelu")  # smooth: at a ReLU's zero, roundings decide
    assert 2 * config.n_heads * 160 * 160 > attention.LARGE  # enough for the host to go head by head
    params, x = npf.init_encoder_block(config, generator()), array(2, 160, config.d_model)
    arguments = {"x": x, "params": params, "config": config, "mask": npf.causal_mask(160), "rng": None}
    for dtype in DTYPES:
        check_function(device, "encoder_block_forward", arguments, dtype)


def test_gradcheck_passes_on_device(device):
    for name, n in {"attention_forward": 3, "layer_norm_forward": 2}.items():
        positional = list(with_arrays(CALLS[name](), device.asarray).values())[:n]
        pair = getattr(npf, name), getattr(npf, name.replace("_forward", "_backward"))
        report = npf.gradcheck(*pair, *positional, directions=3 if n == 3 else None)
        assert report, str(report)


# A model that is trained

CONFIG = npf.TransformerConfig(d_model=32, d_ff=64, n_heads=4, n_layers=2, activation="gelu")
WORDS = 20


def small_model(dtype="float64", config=CONFIG):
    """Parameters, source and target ids, on the host."""
    rng = generator()
    params = npf.init_transformer(WORDS, config, rng, dtype=dtype)
    return params, rng.integers(WORDS, size=(8, 9)), rng.integers(WORDS, size=(8, 11))


def training(params, source_ids, target_ids, config=CONFIG, rng=None):
    """Parameters, Adam's state and the loss after each step at the paper's learning rate."""
    state = npf.adam_init(params)
    while True:
        batch = source_ids, target_ids[:, :-1]
        logits, cache = npf.transformer_forward(*batch, params, config, padding_id=0, rng=rng)
        options = {"ignore_index": 0, "label_smoothing": 0.1}
        loss, loss_cache = npf.cross_entropy_forward(logits, target_ids[:, 1:], **options)
        grads = npf.transformer_backward(npf.cross_entropy_backward(1.0, loss_cache), cache)
        rate = npf.warmup_learning_rate(state.step + 1, config.d_model, warmup_steps=400)
        params, state = npf.adam_update(params, grads, state, learning_rate=rate)
        yield params, state, loss


@pytest.mark.parametrize("dtype", DTYPES)
def test_training_steps_agree(device, dtype):
    model = small_model(dtype)
    expected = list(islice(training(*model, rng=generator()), 6))
    found = list(islice(training(*npf.to_backend(model, "cupy"), rng=generator()), 6))
    check_close(device, found, expected)
    assert expected[-1][2] < expected[0][2]


def test_training_memory_does_not_grow(device):
    used, model = [], npf.to_backend(small_model(), "cupy")
    gc.freeze()  # what was there before is not looked at again
    for _ in islice(training(*model), 8 if device is standin_cupy else 100):
        gc.collect()
        if device is standin_cupy:
            used.append(sum(a.nbytes for a in gc.get_objects() if type(a) is standin_cupy.ndarray))
        else:
            used.append(device.get_default_memory_pool().used_bytes())
    gc.unfreeze()
    assert used[-1] == used[2] > 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_save_and_load_between_host_and_device(device, tmp_path, dtype):
    params, *_ = small_model(dtype)
    here = npf.adam_init(params)._replace(step=7, m=params)
    there = npf.to_backend(here, "cupy")
    npf.save(tmp_path / "from_host", here)
    npf.save(tmp_path / "from_device", there)
    for file in ("from_host", "from_device"):
        loaded = npf.load(tmp_path / file, there)
        assert all(type(leaf) in (device.ndarray, int) for _, leaf in npf.leaves(loaded))
        for back in (npf.load(tmp_path / file, here), npf.to_numpy(loaded)):
            npf.tree_map(np.testing.assert_array_equal, back, here)


# What passes between host and device


@contextmanager
def passages(device):
    """Everything that goes from one side to the other while the block runs, as (direction, dtype).

    CuPy's `.item()`, `float(…)`, `bool(…)`, `print` and `asnumpy` all go through `.get()`.
    """
    seen, get, asarray = [], device.ndarray.get, device.asarray

    def noted_get(self, *args, **kwargs):
        seen.append(("to the host", self.dtype.name))
        return get(self, *args, **kwargs)

    def noted_asarray(a, *args, **kwargs):
        on_device = asarray(a, *args, **kwargs)
        if not isinstance(a, device.ndarray):
            seen.append(("to the device", on_device.dtype.name))
        return on_device

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device.ndarray, "get", noted_get)
        patch.setattr(device, "asarray", noted_asarray)
        yield seen


def test_training_step_copies_only_masks_and_frequencies(device):
    drawn = 2 + (2 + 3) * CONFIG.n_layers  # on two embeddings, and on every sub-layer's output
    for positions, rng, expected in (
        ("learned", None, {}),
        ("sinusoidal", generator(), {"bool": drawn, "float64": 2}),
    ):
        config = CONFIG._replace(positions=positions)
        model = npf.to_backend(small_model(config=config), "cupy")
        with passages(device) as seen:
            next(training(*model, config, rng))
        assert Counter(seen) == {("to the device", dtype): n for dtype, n in expected.items()}
