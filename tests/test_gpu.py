"""Tests with CuPy: results equal NumPy's, no array leaves the device, and memory does not grow.

    uv run --extra cuda12 pytest -m gpu        on a machine with an NVIDIA GPU (or --extra cuda13)

Every test with the fixture `device` runs twice. The run with CuPy has the marker `gpu`. If there is no
working GPU, pytest skips this run and shows the reason. The run with the fake CuPy (fake_cupy.py) works on
every machine. The fake raises an error where an array would leave the GPU, or where the host would wait for
the GPU. If CuPy can be imported, the fake also makes each call with CuPy, so a call that CuPy rejects fails
too.
"""

import gc
import re
import sys
from collections import Counter
from contextlib import contextmanager
from itertools import islice
from typing import Any

import fake_cupy
import numpy as np
import pytest
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
from npformer.tree import iter_nested_leaves

DTYPES = ("float64", "float32")
TOLERANCE = {"float64": 1e-11, "float32": 1e-4}  # largest allowed error / max(1, largest entry)

ON_A_GPU = pytest.param(
    "gpu",
    marks=[pytest.mark.gpu, pytest.mark.filterwarnings("default")],  # warnings of CuPy must not fail a test
)


@pytest.fixture(params=["fake", ON_A_GPU])
def device(request, monkeypatch):
    """Return the module that is `cupy` in this test."""
    if request.param == "gpu":
        if reason := _why_no_cupy():
            pytest.skip(reason)
        return sys.modules["cupy"]
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    return fake_cupy


def test_available_backends_lists_cupy(device):
    assert npf.available_backends() == ("numpy", "cupy")


# Operations that the fake and npformer reject, and places where the host may wait for the device


@pytest.fixture
def names(monkeypatch):
    """Return the names for evaluating an expression with the fake CuPy."""
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    return {"np": np, "cupy": fake_cupy, "x": fake_cupy.asarray(np.array([1.0, 3.0]))}


@pytest.mark.parametrize("expression", [
    "np.exp(x)", "np.sum(x)", "np.ones(2) + x", "x + np.ones(2)", "x * np.float64(2)", "cupy.exp(np.ones(2))",
])  # fmt: skip
def test_fake_cupy_rejects_numpy(names, expression):
    with pytest.raises(TypeError):
        eval(expression, names)


@pytest.mark.parametrize("expression", [
    "x.std()", "cupy.einsum('i->', x)", "x % 2", "x.sum(axis=0, where=True)",
])  # fmt: skip
def test_fake_cupy_has_only_used_functions(names, expression):
    with pytest.raises((AttributeError, TypeError)):
        eval(expression, names)


@pytest.mark.parametrize("expression", [
    "float(x[0])", "1 if x.sum() else 0", "x.sum().item()", "x.get()", "x[x > 0]", "'78'[x.argmax()]",
])  # fmt: skip
def test_fake_cupy_rejects_waiting_in_forward(names, expression):
    """Outside a forward function, the host may wait for the device."""
    package: dict[str, Any] = {"__name__": "npformer.planted"}
    exec(f"def planted_forward(x): return inside(x)\ndef inside(x): return {expression}", package)
    package["inside"](names["x"])
    with pytest.raises(RuntimeError, match="makes the host wait for the device inside planted_forward"):
        package["planted_forward"](names["x"])


def test_greedy_decode_waits_once_per_token(monkeypatch):
    waits = []
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    monkeypatch.setattr(fake_cupy, "_wait", waits.append)
    tokens = call("greedy_decode", with_arrays(CALLS["greedy_decode"](), fake_cupy.asarray)).shape[-1]
    assert waits == ["__bool__"] * tokens  # one wait per token tests whether all rows have stopped


def mixed_calls():
    """Return (function, argument) for each array argument of functions with two or more array arguments."""
    found = []
    for name in CHECKED:
        with_array = [argument for argument, value in CALLS[name]().items() if arrays_in(value)]
        if len(with_array) > 1:
            found += [(name, argument) for argument in with_array]
    return found


MIXED_CALLS = mixed_calls()


def test_mixed_calls_are_many():
    assert len(MIXED_CALLS) > 80


@pytest.mark.parametrize(("name", "argument"), MIXED_CALLS)
def test_functions_reject_arrays_of_two_libraries(device, name, argument):
    arguments = CALLS[name]()
    with pytest.raises(TypeError) as caught:
        call(name, arguments | {argument: with_arrays(arguments[argument], device.asarray)})
    mixed = "(CuPy; expected one of NumPy|NumPy; expected one of CuPy)"
    assert re.match(rf"{name}: [\w.]+ is an array of {mixed} like [\w.]+ ", str(caught.value))
    assert argument in str(caught.value)


def test_ffn_rejects_params_of_two_libraries(device):
    params = npf.FFNParams(array(4, 8), array(8), device.asarray(array(8, 4)), array(4))
    with pytest.raises(
        TypeError, match=r"^ffn_forward: params.W_2 is an array of CuPy; expected one of NumPy"
    ):
        npf.ffn_forward(array(2, 4), params)


# Comparing the results of CuPy and NumPy


def check_close(device, found, expected, name="result"):
    """Check that arrays on the device are close to NumPy's arrays, and that all other values are equal."""
    found = dict(iter_nested_leaves(name, (found, computed(found))))
    expected = dict(iter_nested_leaves(name, (expected, computed(expected))))
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
    """Return the values of all properties of a cache, because the fields do not include them."""
    cache = result[-1] if isinstance(result, tuple) and result else None
    names = vars(type(cache)) if hasattr(cache, "_fields") else {}
    return [getattr(cache, name) for name in names if isinstance(names[name], property)]


MODELS = [
    SMALL._replace(positions=positions, norm=norm, activation=act, n_layers=1)
    for positions in ("sinusoidal", "learned", "rope", "alibi", "none")
    for norm, act in (("pre", "gelu"), ("post", "relu"))
]
MORE = [  # further calls, whose settings do not occur in valid_calls.py
    ("softmax_forward", {"axis": 0, "scores": np.array([[1.0, -np.inf], [2.0, -np.inf]])}),
    ("softmax_forward", {"scores": np.ones((2, 0))}),
    ("layer_norm_forward", {"x": np.ones((2, 8)), "eps": 0}),
    ("rms_norm_forward", {"x": np.zeros((2, 8)), "eps": 0}),
    ("tiled_attention_forward", {"k": array(2, 9, 4), "v": array(2, 9, 3)}),  # skips tiles of later keys
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
    """Compare the results with CuPy and with NumPy. For a forward function, compare the gradients too."""

    def result(xp, arguments):
        converted = like(arguments, dtype)
        if arguments.get("rng"):
            converted["rng"] = generator()
        if "xp" in converted:
            converted["xp"] = xp
        elif "dtype" in converted:
            converted["dtype"] = dtype
        if xp is not np:
            converted = with_arrays(converted, device.asarray)
        return call(name, converted)

    found, expected = result(device, arguments), result(np, arguments)
    check_close(device, found, expected, name)
    backward = name.replace("_forward", "_backward")
    if backward != name:
        dy = array(*expected[0].shape, seed=4, dtype=expected[0].dtype)
        gradients = getattr(npf, backward)(device.asarray(dy), found[1])
        check_close(device, gradients, getattr(npf, backward)(dy, expected[1]), backward)


def takes_arrays(name):
    """Return whether a function takes arrays or an array library."""
    arguments = CALLS[name]()
    return bool(arrays_in(arguments)) or "xp" in arguments


def device_calls():
    """Return test parameters (function, arguments, dtype) for valid calls, their variants, and MORE."""
    found = []
    for name in [name for name in CHECKED if name not in BACKWARD and takes_arrays(name)]:
        found += [pytest.param(name, CALLS[name](), dtype, id=f"{name}-{dtype}") for dtype in DTYPES]
        for setting, arguments in variants(name):
            found.append(pytest.param(name, arguments, "float32", id=f"{name}-{setting}"))
    for number, (name, changes) in enumerate(MORE):
        words = "-".join(changes) + f"-{number}"
        found.append(pytest.param(name, CALLS[name]() | changes, "float32", id=f"{name}-{words}"))
    return found


DEVICE_CALLS = device_calls()


def test_device_calls_are_many():
    assert len(DEVICE_CALLS) > 200


@pytest.mark.parametrize(("name", "arguments", "dtype"), DEVICE_CALLS)
def test_functions_agree_on_cupy_and_numpy(device, name, arguments, dtype):
    check_function(device, name, arguments, dtype)


def test_attention_agrees_for_long_sequences(device, monkeypatch):
    """For long sequences, NumPy computes one head at a time to save memory, but CuPy computes all at once."""
    monkeypatch.setattr(attention, "LARGE", 0)
    for name in ("attention_forward", "multi_head_attention_forward"):
        check_function(device, name, CALLS[name]())


def test_cross_entropy_without_targets_is_nan_on_device(device):
    """On a GPU, no error is raised: the check for at least one target would make the host wait."""
    arguments = CALLS["cross_entropy_forward"]() | {"targets": np.full((2, 6), -1)}
    loss, _ = call("cross_entropy_forward", with_arrays(arguments, device.asarray))
    assert np.isnan(device.asnumpy(loss))


@pytest.mark.parametrize("device", [ON_A_GPU], indirect=True)  # only a real GPU: the fake computes with NumPy
def test_encoder_block_of_paper_width_agrees(device):
    config = npf.TransformerConfig(activation="gelu")  # because rounding near ReLU's kink changes gradients
    assert 2 * config.n_heads * 160 * 160 > attention.LARGE  # so NumPy computes one head at a time
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


# Training a small model

CONFIG = npf.TransformerConfig(d_model=32, d_ff=64, n_heads=4, n_layers=2, activation="gelu")
WORDS = 20


def small_model(dtype="float64", config=CONFIG) -> tuple[Any, Any, Any]:
    """Return parameters, source ids and target ids on the host."""
    rng = generator()
    params = npf.init_transformer(WORDS, config, rng, dtype=dtype)
    return params, rng.integers(WORDS, size=(8, 9)), rng.integers(WORDS, size=(8, 11))


def training(params, source_ids, target_ids, config=CONFIG, rng=None):
    """Train without end; yield the parameters, Adam's state and the loss after each step."""
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
    used = []
    model = npf.to_backend(small_model(), "cupy")
    gc.freeze()  # gc.get_objects() then omits all earlier objects
    for _ in islice(training(*model), 8 if device is fake_cupy else 100):
        gc.collect()
        if device is fake_cupy:
            used.append(sum(a.nbytes for a in gc.get_objects() if type(a) is fake_cupy.ndarray))
        else:
            used.append(device.get_default_memory_pool().used_bytes())
    gc.unfreeze()
    assert used[-1] == used[2] > 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_save_and_load_between_host_and_device(device, tmp_path, dtype):
    params, *_ = small_model(dtype)
    on_host = npf.adam_init(params)._replace(step=7, m=params)
    on_device = npf.to_backend(on_host, "cupy")
    npf.save(tmp_path / "from_host", on_host)
    npf.save(tmp_path / "from_device", on_device)
    for file in ("from_host", "from_device"):
        loaded = npf.load(tmp_path / file, on_device)
        assert all(type(leaf) in (device.ndarray, int) for _, leaf in npf.leaves(loaded))
        for back in (npf.load(tmp_path / file, on_host), npf.to_numpy(loaded)):
            npf.tree_map(np.testing.assert_array_equal, back, on_host)


# Copies between host and device


@contextmanager
def recorded_copies(device):
    """Record every copy between host and device in a `with` block, as (direction, dtype).

    CuPy's `.item()`, `float(…)`, `bool(…)`, `print` and `asnumpy` all call `.get()`.
    """
    copies = []
    get = device.ndarray.get
    asarray = device.asarray

    def recording_get(self, *args, **kwargs):
        copies.append(("to the host", self.dtype.name))
        return get(self, *args, **kwargs)

    def recording_asarray(a, *args, **kwargs):
        on_device = asarray(a, *args, **kwargs)
        if not isinstance(a, device.ndarray):
            copies.append(("to the device", on_device.dtype.name))
        return on_device

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device.ndarray, "get", recording_get)
        patch.setattr(device, "asarray", recording_asarray)
        yield copies


def test_training_step_copies_only_masks_and_frequencies(device):
    masks = 2 + (2 + 3) * CONFIG.n_layers  # one dropout mask per embedding and per sublayer
    for positions, rng, expected in (
        ("learned", None, {}),
        ("sinusoidal", generator(), {"bool": masks, "float64": 2}),
    ):
        config = CONFIG._replace(positions=positions)
        model = npf.to_backend(small_model(config=config), "cupy")
        with recorded_copies(device) as copies:
            next(training(*model, config, rng))
        assert Counter(copies) == {("to the device", dtype): n for dtype, n in expected.items()}


def count_launches(function, *args, **kwargs):
    """Return the result of a call and the number of functions that it launches on the fake device."""
    before = fake_cupy.LAUNCHES.total()
    result = function(*args, **kwargs)
    return result, fake_cupy.LAUNCHES.total() - before


def test_training_step_launches_few_kernels(monkeypatch):
    """On a GPU, the number of launches determines the time of a small model. pytest -s prints it."""
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    config = npf.TransformerConfig(d_model=8, d_ff=12, n_heads=2, n_layers=1)
    tree = npf.init_encoder(config, np.random.default_rng(0))
    params = npf.tree_map(fake_cupy.asarray, tree)
    x = fake_cupy.asarray(np.ones((2, 3, 8)))
    (y, cache), forward = count_launches(npf.encoder_forward, x, params, config)
    (_, grads), backward = count_launches(npf.encoder_backward, y, cache)
    settings = {"learning_rate": 0.1}
    _, update = count_launches(npf.adam_update, params, grads, npf.adam_init(params), **settings)
    n_leaves = len(list(npf.leaves(params)))
    print(f"launches: forward {forward}, backward {backward}, Adam {update / n_leaves} for each array")
    # Three launches of the forward pass and three of the backward pass are copies, because the output of
    # dropout with rate 0 is a new array.
    assert forward <= 52 and backward <= 59 and update <= 14 * n_leaves
