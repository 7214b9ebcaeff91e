"""One code, two array libraries: CuPy gives NumPy's numbers, nothing leaves the device, memory does not grow.

    uv run --extra cuda12 pytest -m gpu        on a machine with an NVIDIA GPU (or --extra cuda13)

Every test that takes `device` runs twice. On CuPy it carries the mark `gpu`, and where no GPU answers it is
skipped with the reason. On the stand-in for CuPy (standin_cupy.py) it runs everywhere: what would leave a GPU
or make it wait fails there, and so does every call that CuPy, where it can be imported, does not take.
"""

import gc
import json
import re
import sys
import types
from collections import Counter
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import standin_cupy
from bad_calls import CHECKED, variants
from benchmarks import gpu as benchmark
from together import failures
from valid_calls import (
    CALLS,
    FORWARD,
    LM,
    LM_CONFIG,
    VOCAB_SIZE,
    array,
    arrays_in,
    backward,
    backward_of,
    call,
    drawn,
    generator,
    ids,
    like,
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
        return cupy_or_skip()
    monkeypatch.setitem(sys.modules, "cupy", standin_cupy)
    return standin_cupy


def cupy_or_skip():
    reason = _why_no_cupy()
    if reason:
        pytest.skip(reason)
    return sys.modules["cupy"]


def test_the_gpu_is_among_the_backends(device):
    assert npf.available_backends() == ("numpy", "cupy")


# What the stand-in refuses, or it would prove nothing; what the package refuses; where it may wait


def test_the_standin_refuses_what_belongs_to_numpy_and_lets_no_forward_wait(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", standin_cupy)
    x = standin_cupy.asarray(np.array([1.0, 3.0]))
    for use in (
        "np.exp(x)",
        "np.sum(x)",
        "np.ones(2) + x",
        "x + np.ones(2)",
        "x * np.float64(2)",
        "cupy.exp(np.ones(2))",
    ):
        with pytest.raises(TypeError):
            eval(use, {"np": np, "x": x, "cupy": standin_cupy})
    package = {"__name__": "npformer.planted"}
    for waits in (
        "float(x[0])",
        "1 if x.sum() else 0",
        "x.sum().item()",
        "x.get()",
        "x[x > 0]",
        "[7, 8][x.argmax()]",
    ):
        exec(f"def planted_forward(x): return inside(x)\ndef inside(x): return {waits}", package)
        package["inside"](x)  # a wait elsewhere is allowed
        with pytest.raises(RuntimeError, match="makes the host wait for the device inside planted_forward"):
            package["planted_forward"](x)


def test_greedy_decoding_waits_once_a_token(monkeypatch):
    waits = []
    monkeypatch.setitem(sys.modules, "cupy", standin_cupy)
    monkeypatch.setattr(standin_cupy, "_wait", waits.append)
    tokens = call("greedy_decode", with_arrays(CALLS["greedy_decode"](), standin_cupy.asarray)).shape[-1]
    assert waits == ["__bool__"] * tokens  # has every row stopped?


def test_arrays_of_both_libraries_in_one_call_are_refused(device):
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
    found, expected = dict(ends(name, found)), dict(ends(name, expected))
    assert list(found) == list(expected)
    for path, x in expected.items():
        if not isinstance(x, np.ndarray):
            assert found[path] == x, path
            continue
        assert type(found[path]) is device.ndarray, path
        assert (found[path].shape, found[path].dtype) == (x.shape, x.dtype), path
        error, tolerance = distance(device.asnumpy(found[path]), x), TOLERANCE.get(x.dtype.name, 0)
        assert error <= tolerance, f"{path} is off by {error:.1e}, tolerance {tolerance:.0e}"


def distance(found, expected):
    """The largest difference, relative to max(1, largest entry); NaN where one of the two has NaN."""
    if expected.dtype.kind != "f":
        return float((found != expected).sum())
    largest = max(1.0, float(abs(expected).max(initial=0.0)))
    return float(abs(found - expected).max(initial=0.0)) / largest


def check_pair(device, name, arguments):
    """One forward and its backward on both libraries; `arguments()` makes them anew, generator and all."""
    y, cache = call(name, arguments())
    device_y, device_cache = call(name, with_arrays(arguments(), device.asarray))
    check_close(device, (device_y, device_cache), (y, cache), name)
    dy = array(*y.shape, seed=4, dtype=y.dtype)
    gradients = backward(name, dy, cache)
    found = backward(name, device.asarray(dy), device_cache)
    check_close(device, tuple(found.values()), tuple(gradients.values()), backward_of(name))


def check_function(device, name, arguments):
    found = call(name, with_arrays(arguments(), device.asarray))
    check_close(device, found, call(name, arguments()), name)


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
]


def test_every_function_of_arrays_agrees_in_every_setting(device):
    def check(name, setting, arguments, dtype):
        arguments = like(arguments, dtype)
        anew = {"rng": generator} if arguments.get("rng") else {}
        ask = check_pair if name in FORWARD else check_function
        ask(device, name, lambda: arguments | {name: make() for name, make in anew.items()})

    apart = {*map(backward_of, FORWARD), "order_sensitivity"}  # which has a test of its own
    names = [name for name in CHECKED if name not in apart and arrays_in(CALLS[name]())]
    cases = [(name, "as it is", CALLS[name](), dtype) for name in names for dtype in DTYPES]
    cases += [(name, *variant, "float32") for name in names for variant in variants(name)]
    cases += [(name, str(changes), CALLS[name]() | changes, "float32") for name, changes in MORE]
    assert failures(check, cases) == {} and len(cases) > 200


def test_attention_agrees_where_the_host_goes_head_by_head(device, monkeypatch):
    """As for long sequences: a host has little memory to spare, a device little time for small kernels."""
    monkeypatch.setattr(attention, "LARGE", 0)
    for name in ("attention_forward", "multi_head_attention_forward"):
        check_pair(device, name, FORWARD[name])


def test_what_a_cache_computes_anew_agrees(device):
    for name, field, changes in (
        ("attention_forward", "scores", {}),
        ("multi_head_attention_forward", "scores", {}),
        ("multi_head_attention_forward", "weights", {}),
        ("ffn_forward", "z", {"activation": "gelu"}),
        ("ffn_forward", "z", {"activation": "relu"}),
    ):
        _, cache = call(name, FORWARD[name]() | changes)
        _, device_cache = call(name, with_arrays(FORWARD[name]() | changes, device.asarray))
        check_close(device, getattr(device_cache, field), getattr(cache, field), f"{name}: {field}")


def test_asking_whether_any_target_counts_would_be_to_wait(device):
    arguments = FORWARD["cross_entropy_forward"]() | {"targets": np.full((2, 6), -1)}
    loss, _ = call("cross_entropy_forward", with_arrays(arguments, device.asarray))
    assert np.isnan(device.asnumpy(loss))


@pytest.mark.parametrize("device", [ON_A_GPU], indirect=True)  # the stand-in has NumPy's own numbers
def test_a_block_of_the_papers_width_agrees(device):
    config = npf.TransformerConfig(activation="gelu")  # smooth: at a ReLU's zero, roundings decide
    assert 2 * config.n_heads * 160 * 160 > attention.LARGE  # enough for the host to go head by head
    for dtype in DTYPES:
        params = npf.init_encoder_block(config, generator(), dtype=dtype)
        x, mask = array(2, 160, config.d_model, dtype=dtype), npf.causal_mask(160)
        arguments = {"x": x, "params": params, "config": config, "mask": mask, "rng": None}
        check_pair(device, "encoder_block_forward", lambda: arguments)  # noqa: B023


def test_an_order_is_shuffled_on_the_device(device):
    x, weights = array(2, 6, 8), array(6, 1, seed=1)
    expected = npf.order_sensitivity(lambda x: x * weights, x, generator())
    on_device = device.asarray(weights)
    found = npf.order_sensitivity(lambda x: x * on_device, device.asarray(x), generator())
    assert type(found) is float and found == pytest.approx(expected, rel=1e-11) and found > 0.1


def test_arrays_made_on_the_device_agree(device):
    def check(name, changes, dtype):
        arguments = CALLS[name]() | changes | {"dtype": dtype}
        check_close(device, call(name, arguments | {"xp": device}), call(name, arguments), name)

    made = [
        ("positional_encoding", {"n": 5000, "d_model": 64, "layout": "interleaved"}),
        ("positional_encoding", {"n": 130, "d_model": 7, "start": 100_000}),
        ("positional_encoding", {"n": 0}),
        ("alibi_bias", {}),
        ("alibi_bias", {"n_heads": 6, "T_q": 30, "T_k": 40}),
    ]
    assert failures(check, [(*case, dtype) for case in made for dtype in DTYPES]) == {}
    check_close(device, npf.causal_mask(5, 9, xp=device), npf.causal_mask(5, 9))


def test_gradcheck_passes_on_the_device(device):
    for name, n in {"attention_forward": 3, "layer_norm_forward": 2}.items():
        moved = with_arrays(FORWARD[name](), device.asarray)
        positional = [moved.pop(argument) for argument in list(moved)[:n]]
        pair = partial(getattr(npf, name), **moved), getattr(npf, backward_of(name))
        report = npf.gradcheck(*pair, *positional, directions=3 if n == 3 else None)
        assert report, str(report)


# A model that is trained

CONFIG = npf.TransformerConfig(d_model=32, d_ff=64, n_heads=4, n_layers=2, activation="gelu")
WORDS = 20
WARMUP = 400  # steps: after 20 of them a parameter has moved by up to 0.005


def small_model(dtype="float64", config=CONFIG):
    """Parameters, source and target ids, on the host."""
    rng = generator()
    params = npf.init_transformer(WORDS, config, rng, dtype=dtype)
    return params, rng.integers(WORDS, size=(8, 9)), rng.integers(WORDS, size=(8, 11))


def training_step(params, state, source_ids, target_ids, config=CONFIG, rng=None):
    """One step of Adam at the paper's learning rate, on whichever library the arrays are of."""
    logits, cache = npf.transformer_forward(
        source_ids, target_ids[:, :-1], params, config, padding_id=0, rng=rng
    )
    loss, loss_cache = npf.cross_entropy_forward(
        logits, target_ids[:, 1:], ignore_index=0, label_smoothing=0.1
    )
    grads = npf.transformer_backward(npf.cross_entropy_backward(1.0, loss_cache), cache)
    rate = npf.warmup_learning_rate(state.step + 1, config.d_model, warmup_steps=WARMUP)
    params, state = npf.adam_update(params, grads, state, learning_rate=rate)
    return params, state, loss


def trained(params, source_ids, target_ids, config, steps):
    """Parameters, Adam's state and the losses after some steps."""
    rng, state, losses = generator(), npf.adam_init(params), []
    for _ in range(steps):
        params, state, loss = training_step(params, state, source_ids, target_ids, config, rng)
        losses.append(loss)
    return params, state, tuple(losses)


EVERY_MODEL = [
    (SMALL._replace(positions=positions, norm=norm, activation=act, n_layers=1),)
    for positions in ("sinusoidal", "learned", "rope", "alibi", "none")
    for norm, act in (("pre", "gelu"), ("post", "relu"))
]


def test_some_steps_of_training_agree(device):
    def check(config, dtype, steps):
        model = small_model(dtype, config)
        expected = trained(*model, config, steps)
        check_close(device, trained(*npf.to_backend(model, "cupy"), config, steps), expected)
        assert expected[2][-1] < expected[2][0] or steps == 2

    # without attention biases: b_K's gradient is zero but for rounding, and Adam makes full steps of that
    every = [config._replace(attention_bias=False, max_length=10) for (config,) in EVERY_MODEL]
    cases = [(CONFIG, dtype, 6) for dtype in DTYPES] + [(config, "float64", 2) for config in every]
    assert failures(check, cases) == {}


def test_greedy_decoding_agrees(device):
    def check(config):
        params = drawn(npf.init_transformer, VOCAB_SIZE, config)
        for padding_id in (None, 0):
            settings = {"start_id": 1, "stop_id": 2, "max_length": 6, "padding_id": padding_id}
            expected = npf.greedy_decode(ids(3, 6), params, config, **settings)
            found = npf.greedy_decode(*npf.to_backend((ids(3, 6), params), "cupy"), config, **settings)
            check_close(device, found, expected)

    assert failures(check, EVERY_MODEL) == {}


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_file_moves_between_host_and_device(device, tmp_path, dtype):
    params, *_ = small_model(dtype)
    here = npf.adam_init(params)._replace(step=7, m=params)
    there = npf.to_backend(here, "cupy")
    npf.save(tmp_path / "from_host", here)
    npf.save(tmp_path / "from_device", there)
    for file in ("from_host", "from_device"):
        check_identical(npf.load(tmp_path / file, here), here)
        loaded = npf.load(tmp_path / file, there)
        assert all(type(leaf) in (device.ndarray, int) for _, leaf in npf.leaves(loaded))
        check_identical(npf.to_numpy(loaded), here)


def check_identical(found, expected):
    for (path, a), (_, b) in zip(npf.leaves(found), npf.leaves(expected), strict=True):
        assert type(a) is type(b), path
        np.testing.assert_array_equal(a, b, err_msg=path)


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


def test_nothing_leaves_the_device_in_a_training_step_and_only_draws_and_frequencies_come(device):
    for positions, rng, expected in (
        ("learned", None, {}),
        # drawn on two embeddings, and on every sub-layer's output
        ("sinusoidal", generator(), {"bool": 2 + (2 + 3) * CONFIG.n_layers, "float64": 2}),
    ):
        config = CONFIG._replace(positions=positions)
        params, *both_ids = npf.to_backend(small_model(config=config), "cupy")
        state = npf.adam_init(params)
        with passages(device) as seen:
            training_step(params, state, *both_ids, config, rng)
        assert Counter(seen) == {("to the device", dtype): n for dtype, n in expected.items()}


# Memory


def used_bytes(device):
    """What living arrays hold on the device."""
    gc.collect()
    if device is standin_cupy:
        return sum(a.nbytes for a in gc.get_objects() if type(a) is standin_cupy.ndarray)
    return device.get_default_memory_pool().used_bytes()


def growth(device, step, steps):
    """How many bytes more are in use after some steps than after the first three."""
    params, *both_ids = npf.to_backend(small_model(), "cupy")
    state = npf.adam_init(params)
    for t in range(3 + steps):
        if t == 3:
            before = used_bytes(device)
        params, state, _ = step(params, state, *both_ids)
    return used_bytes(device) - before


def test_memory_does_not_grow_over_many_steps(device):
    assert growth(device, training_step, steps=5 if device is standin_cupy else 100) == 0


# The benchmark, without a GPU

TINY = npf.TransformerConfig(d_model=8, d_ff=12, n_heads=2, dropout=0.0, attention_bias=True)
OPTIONS = types.SimpleNamespace(rounds=3, seconds=1e-4)


def test_the_benchmark_measures_what_its_docstring_promises(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", standin_cupy)
    results = benchmark.measure(
        OPTIONS, lambda: None, TINY, {"base": (2, 3)}, growth=(1, 4), say=lambda line: None
    )
    assert json.loads(json.dumps(results)) == results
    assert [[entry["T"] for entry in entries] for entries in results.values()] == [[3, 3], [1, 1, 4, 4]]
    assert all(word in benchmark.__doc__ for entry in results["block"] for word in entry)
    seconds, ratio = results["block"][0]["seconds"], results["block"][0]["ratio"]
    assert 0 < min(seconds.values()) and ratio["numpy"] > 0
