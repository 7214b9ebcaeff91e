"""Every operation against PyTorch: output and every gradient, in float64 and in float32.

An operation's own file asks with one line: `test_golden_values = agrees_with_pytorch("attention")`.
tests/data/make_golden.py and make_golden_modern.py wrote the answers and say how the files are laid out. The
inputs are float32 numbers and the answers float64 ones, so both precisions are held against the same truth.
"""

import json
from pathlib import Path

import numpy as np
from together import together

import npformer as npf
from npformer.tree import refilled

DATA = Path(__file__).parent / "data"
FILES = ("golden_functional.npz", "golden_attention.npz", "golden_encoder.npz", "golden_model.npz")
# Of max(1, the largest entry). Six layers in float32 are off by 6e-6 where a processor multiplies and adds in
# one step, by 5e-5 where it does not (WebAssembly too).
TOLERANCE = {np.float64: 1e-11, np.float32: 1e-4}


def agrees_with_pytorch(*operations):
    """A test: each case of these operations gives PyTorch's output and gradients."""

    @together("dtype", TOLERANCE)
    @together("name", [name for name, case in CASES.items() if case["operation"] in operations])
    def test(name, dtype):
        case, arrays = CASES[name], inputs_of(CASES[name], dtype)
        d_y, answers = arrays.pop("d_y"), dict(case["answers"])
        y, backward = OPERATIONS[case["operation"]](arrays, case["settings"])
        assert_close(y, answers.pop("y"), dtype, "y")
        gradients = {f"d_{argument}": gradient for argument, gradient in backward(d_y).items()}
        assert gradients.keys() == answers.keys()
        for argument, expected in answers.items():
            assert_close(gradients[argument], expected, dtype, argument)

    return test


def assert_close(found, expected, dtype, what):
    assert found.dtype == dtype, f"{what} is {found.dtype}"
    assert found.shape == expected.shape, f"{what} has shape {found.shape}, expected {expected.shape}"
    largest = max(1.0, float(abs(expected).max()))
    error = float(abs(found.astype(np.float64) - expected).max()) / largest
    assert error <= TOLERANCE[dtype], f"{what} is off by {error:.1e} of {largest:.3g}"


# --- the files ------------------------------------------------------------------------------------


def read(filename):
    """The cases of a file, each with its `inputs` and `answers` as arrays."""
    with np.load(DATA / filename) as archive:
        index, inputs, answers = json.loads(str(archive["index"])), archive["inputs"], archive["answers"]
    for case in index:
        case["inputs"], inputs = cut(case["inputs"], inputs)
        case["answers"], answers = cut(case["answers"], answers)
    assert inputs.size == answers.size == 0, f"{filename} holds more numbers than its index says"
    return {case["name"]: case for case in index}


def cut(shapes, numbers):
    """The arrays at the front of `numbers`, by name, and what is left."""
    arrays = {}
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        arrays[name], numbers = numbers[:size].reshape(shape), numbers[size:]
    return arrays, numbers


def read_modern():
    """The same of golden_modern.npz, whose arrays say in their names what they are: case.x, case:d_x."""
    cases = {}
    with np.load(DATA / "golden_modern.npz") as archive:
        for name, array in archive.items():
            given = "." in name.partition(":")[0]
            case, what = name.split("." if given else ":", 1)
            found = cases.setdefault(case, {"inputs": {}, "answers": {}, "constants": {}, "settings": {}})
            kind = "constants" if what == "ids" else "inputs" if given or what == "d_y" else "answers"
            found[kind][what] = array
    for name, case in cases.items():
        operation = next(word for word in MODERN if name.startswith(word))
        case |= {"operation": operation, "settings": {"kind": name.removeprefix(f"{operation}_")}}
    return cases


MODERN = ("rms_norm", "silu", "gated_ffn", "grouped_attention", "causal_lm")
EVERYTHING = {name: case for filename in FILES for name, case in read(filename).items()} | read_modern()
CASES = {name: case for name, case in EVERYTHING.items() if case["operation"] != "adam"}
TRAJECTORIES = {name: case for name, case in EVERYTHING.items() if case["operation"] == "adam"}


def inputs_of(case, dtype):
    """The case's arrays, read-only: whoever writes into an argument raises."""
    arrays = {name: array.astype(dtype) for name, array in case["inputs"].items()}
    arrays |= {name: np.array(constant) for name, constant in case["constants"].items()}
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


# --- the operations: from the arrays by name `a` and the settings `s` to y, and what takes d_y to the
# gradients by name ---------------------------------------------------------------------------------


def run(stem, a, names, like=None, *config, **options):
    """`<stem>_forward` of the arrays of these names and of parameters that are built like `like`."""
    arguments = [a.get(name) for name in names.split()]
    if like is not None:
        arguments.append(refilled(like, iter([a[path] for path, _ in npf.leaves(like)])))
    y, cache = getattr(npf, f"{stem}_forward")(*arguments, *config, **options)
    differentiated = [name for name in names.split() if not name.endswith(("ids", "labels"))]

    def backward(d_y):
        found = getattr(npf, f"{stem}_backward")(d_y, cache)
        found = found if type(found) is tuple else (found,)
        gradients = dict(zip(differentiated, found, strict=like is None))
        of_parameters = {} if like is None else dict(npf.leaves(found[-1]))
        return {name: g for name, g in gradients.items() if g is not None} | of_parameters

    return y, backward


def given(a, *names):
    return {name: a.get(name) for name in names}


def attention_like(a):
    return npf.AttentionParams(*[a.get(name) for name in npf.AttentionParams._fields])


def config_of(a, s):
    d_model, d_ff = next(array.shape for name, array in a.items() if name.endswith("ffn.W_1"))
    positions = next((word for word in ("rope", "alibi") if s.get(word)), s.get("positions", "sinusoidal"))
    own = {name: s[name] for name in ("n_heads", "activation", "norm", "eps")}
    own |= {"attention_bias": any(name.endswith("b_Q") for name in a), "n_layers": s.get("n_layers", 1)}
    table = a.get("source_positions.P", ())
    # without an rng the dropout must do nothing
    sizes = {"d_model": d_model, "d_ff": d_ff, "dropout": 0.1, "max_length": len(table) or 512}
    return npf.TransformerConfig(positions=positions, **sizes, **own)


def run_part(stem, names, *masks):
    """Of a block or a stack; `init_<stem>` says how its parameters are built."""

    def operation(a, s):
        config = config_of(a, s)
        like = getattr(npf, f"init_{stem}")(config, np.random.default_rng(0))
        return run(stem, a, names, like, config, **given(a, *masks))

    return operation


def run_transformer(a, s):
    config = config_of(a, s)
    like = npf.init_transformer(len(a["embedding.E"]), config, np.random.default_rng(0))
    return run("transformer", a, "source_ids target_ids", like, config, padding_id=s["padding_id"])


def run_cross_entropy(a, s):
    options = {name: s[name] for name in ("ignore_index", "label_smoothing")}
    return run("cross_entropy", a, "logits labels", **options)


def run_training(a, s):
    """From ids to the loss, and from the loss to the gradient of every parameter."""
    logits, model_backward = run_transformer(a, s)
    loss, loss_backward = run_cross_entropy({"logits": logits, "labels": a["labels"]}, s)
    return loss, lambda d_loss: model_backward(loss_backward(d_loss)["logits"])


def run_multi_head(a, s):
    options = {"n_heads": s["n_heads"], "rope": s.get("rope", False), **given(a, "mask", "bias")}
    return run("multi_head_attention", a, "q k v", attention_like(a), **options)


def run_grouped_attention(a, s):
    options = {"n_heads": 4, "n_kv_heads": int(s["kind"]), "rope": True, "base": 100.0}
    own, mask = a | dict.fromkeys("qkv", a["x"]), npf.causal_mask(5)
    y, backward = run("multi_head_attention", own, "q k v", attention_like(a), mask=mask, **options)

    def summed(d_y):
        gradients = backward(d_y)
        return {"x": sum(gradients.pop(name) for name in "qkv"), **gradients}

    return y, summed


def run_causal_lm(a, s):
    sizes = {"d_model": 8, "d_ff": 5, "n_heads": 4, "n_kv_heads": 2, "n_layers": 2, "eps": 1e-3, "base": 50.0}
    config = npf.CausalLMConfig(**sizes, tied=s["kind"] == "tied")
    like = npf.init_causal_lm(len(a["embedding.E"]), config, np.random.default_rng(0))
    return run("causal_lm", a, "ids", like, config)


def run_activation(a, s):
    if s["activation"] == "relu":
        return run("relu", a, "z")
    return run("gelu", a, "z", approximate=s["activation"] == "gelu_tanh")


LAYER_NORM, RMS_NORM = npf.init_layer_norm(1), npf.init_rms_norm(1)
FFN, GATED_FFN = npf.FFNParams(*np.ones(4)), npf.GatedFFNParams(*np.ones(3))
EMBEDDING = npf.EmbeddingParams(np.ones(1))
OPERATIONS = {
    "linear": lambda a, s: run("linear", a, "x W b"),
    "activation": run_activation,
    "softmax": lambda a, s: run("softmax", a, "scores", axis=s["axis"]),
    "layer_norm": lambda a, s: run("layer_norm", a, "x", LAYER_NORM, eps=s["eps"]),
    "embedding": lambda a, s: run("embedding", a, "ids", EMBEDDING),
    "tied_logits": lambda a, s: run("tied_logits", a, "x", EMBEDDING),
    "ffn": lambda a, s: run("ffn", a, "x", FFN, activation=s["activation"]),
    "attention": lambda a, s: run("attention", a, "q k v", **given(a, "mask", "bias")),
    "multi_head": run_multi_head,
    "block": run_part("encoder_block", "x", "mask"),
    "stack": run_part("encoder", "x", "mask"),
    "decoder_block": run_part("decoder_block", "x memory", "mask", "memory_mask"),
    "decoder_stack": run_part("decoder", "x memory", "mask", "memory_mask"),
    "transformer": run_transformer,
    "cross_entropy": run_cross_entropy,
    "training": run_training,
    "rms_norm": lambda a, s: run("rms_norm", a, "x", RMS_NORM),
    "silu": lambda a, s: run("silu", a, "z"),
    "gated_ffn": lambda a, s: run("gated_ffn", a, "x", GATED_FFN, activation=s["kind"]),
    "grouped_attention": run_grouped_attention,
    "causal_lm": run_causal_lm,
}
