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
        y, backward = RUNNERS[case["operation"]](arrays, case["settings"])
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


def both(pair, backward, *names, grads_named=None):
    """y, and what takes d_y to the gradients: of the arguments by their names, then of the parameters."""
    y, cache = pair

    def back(d_y):
        found = backward(d_y, cache)
        found = found if type(found) is tuple else (found,)
        gradients = {name: g for name, g in zip(names, found, strict=False) if g is not None}
        return gradients | ((grads_named or named)(found[-1]) if len(found) > len(names) else {})

    return y, back


def run_activation(a, s):
    if s["activation"] == "relu":
        return both(npf.relu_forward(a["z"]), npf.relu_backward, "z")
    pair = npf.gelu_forward(a["z"], approximate=s["activation"] == "gelu_tanh")
    return both(pair, npf.gelu_backward, "z")


def run_multi_head(a, s):
    options = {"n_heads": s["n_heads"], "rope": s.get("rope", False), **given(a, "mask", "bias")}
    pair = npf.multi_head_attention_forward(
        a["q"], a["k"], a["v"], gathered(npf.AttentionParams, a), **options
    )
    return both(pair, npf.multi_head_attention_backward, *"qkv")


def run_grouped_attention(a, s):
    x, options = a["x"], {"n_heads": 4, "n_kv_heads": int(s["kind"]), "rope": True, "base": 100.0}
    params = gathered(npf.AttentionParams, a)
    y, cache = npf.multi_head_attention_forward(x, x, x, params, mask=npf.causal_mask(5), **options)

    def back(d_y):
        dq, dk, dv, grads = npf.multi_head_attention_backward(d_y, cache)
        return {"x": dq + dk + dv, **named(grads)}

    return y, back


def run_block(a, s):
    params = block_params(a)
    pair = npf.encoder_block_forward(a["x"], params, config_of(s, params), **given(a, "mask"))
    return both(pair, npf.encoder_block_backward, "x")


def run_stack(a, s):
    params = npf.EncoderParams(*stack_parts(a, s, block_params))
    pair = npf.encoder_forward(a["x"], params, config_of(s, params.blocks[0]), **given(a, "mask"))
    return both(pair, npf.encoder_backward, "x", grads_named=named_stack)


def run_decoder_block(a, s):
    params, masks = decoder_block_params(a), given(a, "mask", "memory_mask")
    pair = npf.decoder_block_forward(a["x"], a["memory"], params, config_of(s, params), **masks)
    return both(pair, npf.decoder_block_backward, "x", "memory")


def run_decoder_stack(a, s):
    params, masks = (
        npf.DecoderParams(*stack_parts(a, s, decoder_block_params)),
        given(a, "mask", "memory_mask"),
    )
    pair = npf.decoder_forward(a["x"], a["memory"], params, config_of(s, params.blocks[0]), **masks)
    return both(pair, npf.decoder_backward, "x", "memory", grads_named=named_stack)


def run_transformer(a, s):
    params = transformer_params(a, s)
    config = config_of(s, params.encoder.blocks[0])
    if params.source_positions is not None:
        config = config._replace(max_length=len(params.source_positions.P))
    ids = a["source_ids"], a["target_ids"]
    pair = npf.transformer_forward(*ids, params, config, padding_id=s["padding_id"])
    return both(pair, npf.transformer_backward, grads_named=named_transformer)


def run_cross_entropy(a, s):
    options = {name: s[name] for name in ("ignore_index", "label_smoothing")}
    pair = npf.cross_entropy_forward(a["logits"], a["labels"], **options)
    return both(pair, npf.cross_entropy_backward, "logits")


def run_training(a, s):
    """From ids to the loss, and from the loss to the gradient of every parameter."""
    logits, model_backward = run_transformer(a, s)
    loss, loss_backward = run_cross_entropy({"logits": logits, "labels": a["labels"]}, s)
    return loss, lambda d_loss: model_backward(loss_backward(d_loss)["logits"])


def run_causal_lm(a, s):
    def block(i):
        own = under(a, f"blocks.{i}.")
        norms = [gathered(npf.RMSNormParams, own, f"norm_{j}.") for j in (1, 2)]
        attention = gathered(npf.AttentionParams, own, "attention.")
        return npf.CausalBlockParams(attention, norms[0], gathered(npf.GatedFFNParams, own, "ffn."), norms[1])

    sizes = {"d_model": 8, "d_ff": 5, "n_heads": 4, "n_kv_heads": 2, "n_layers": 2, "eps": 1e-3, "base": 50.0}
    config = npf.CausalLMConfig(**sizes, tied=s["kind"] == "tied")
    norm, embedding = gathered(npf.RMSNormParams, a, "norm."), npf.EmbeddingParams(a["embedding.E"])
    params = npf.CausalLMParams(embedding, (block(0), block(1)), norm, a.get("head"))
    return both(npf.causal_lm_forward(a["ids"], params, config), npf.causal_lm_backward)


RUNNERS = {name.removeprefix("run_"): run for name, run in list(globals().items()) if name.startswith("run_")}
RUNNERS |= {
    "linear": lambda a, s: both(
        npf.linear_forward(a["x"], a["W"], a.get("b")), npf.linear_backward, "x", "W", "b"
    ),
    "softmax": lambda a, s: both(
        npf.softmax_forward(a["scores"], axis=s["axis"]), npf.softmax_backward, "scores"
    ),
    "layer_norm": lambda a, s: both(
        npf.layer_norm_forward(a["x"], gathered(npf.LayerNormParams, a), eps=s["eps"]),
        npf.layer_norm_backward,
        "x",
    ),
    "embedding": lambda a, s: both(
        npf.embedding_forward(a["ids"], gathered(npf.EmbeddingParams, a)), npf.embedding_backward
    ),
    "tied_logits": lambda a, s: both(
        npf.tied_logits_forward(a["x"], gathered(npf.EmbeddingParams, a)), npf.tied_logits_backward, "x"
    ),
    "ffn": lambda a, s: both(
        npf.ffn_forward(a["x"], gathered(npf.FFNParams, a), activation=s["activation"]), npf.ffn_backward, "x"
    ),
    "attention": lambda a, s: both(
        npf.attention_forward(a["q"], a["k"], a["v"], **given(a, "mask", "bias")),
        npf.attention_backward,
        *"qkv",
    ),
    "rms_norm": lambda a, s: both(
        npf.rms_norm_forward(a["x"], gathered(npf.RMSNormParams, a)), npf.rms_norm_backward, "x"
    ),
    "silu": lambda a, s: both(npf.silu_forward(a["z"]), npf.silu_backward, "z"),
    "gated_ffn": lambda a, s: both(
        npf.gated_ffn_forward(a["x"], gathered(npf.GatedFFNParams, a), activation=s["kind"]),
        npf.gated_ffn_backward,
        "x",
    ),
}


# --- trees of parameters by the names of their leaves ----------------------------------------------


def given(arrays, *names):
    return {name: arrays.get(name) for name in names}


def named(tree, prefix=""):
    return {prefix + path: array for path, array in npf.leaves(tree)}


def gathered(kind, arrays, prefix=""):
    """The NamedTuple whose fields stand in `arrays` under the prefix; absent attention biases stay None."""
    return kind(**{f: arrays[prefix + f] for f in kind._fields if prefix + f in arrays})


PARTS = {
    "attention": npf.AttentionParams,
    "self_attention": npf.AttentionParams,
    "cross_attention": npf.AttentionParams,
    "ffn": npf.FFNParams,
    **dict.fromkeys(("norm_1", "norm_2", "norm_3"), npf.LayerNormParams),
}


def block_params(arrays, kind=npf.EncoderBlockParams):
    return kind(**{name: gathered(PARTS[name], arrays, f"{name}.") for name in kind._fields})


def decoder_block_params(arrays):
    return block_params(arrays, npf.DecoderBlockParams)


def under(arrays, prefix):
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def stack_parts(arrays, s, make_block):
    """The blocks and the final norm of a stack whose parameters keep their layers along the first axis."""
    stacked = under(arrays, "blocks.")
    layers = [{name: array[i] for name, array in stacked.items()} for i in range(s["n_layers"])]
    norm = gathered(npf.LayerNormParams, arrays, "norm.") if "norm.gamma" in arrays else None
    return tuple(make_block(layer) for layer in layers), norm


def named_stack(grads, prefix=""):
    blocks = [named(block, f"{prefix}blocks.") for block in grads.blocks]
    stacked = {name: np.stack([block[name] for block in blocks]) for name in blocks[0]}
    return stacked | named(grads.norm, f"{prefix}norm.")


def transformer_params(arrays, s):
    tables = [
        npf.LearnedPositionsParams(arrays[f"{which}_positions.P"]) if s["positions"] == "learned" else None
        for which in ("source", "target")
    ]
    encoder = npf.EncoderParams(*stack_parts(under(arrays, "encoder."), s, block_params))
    decoder = npf.DecoderParams(*stack_parts(under(arrays, "decoder."), s, decoder_block_params))
    return npf.TransformerParams(npf.EmbeddingParams(arrays["E"]), encoder, decoder, *tables)


def named_transformer(grads):
    stacks = named_stack(grads.encoder, "encoder.") | named_stack(grads.decoder, "decoder.")
    tables = {name: getattr(grads, name) for name in ("source_positions", "target_positions")}
    learned = {f"{name}.P": table.P for name, table in tables.items() if table is not None}
    return {"E": grads.embedding.E, **stacks, **learned}


def config_of(s, block):
    d_model, d_ff = block.ffn.W_1.shape
    positions = next((word for word in ("rope", "alibi") if s.get(word)), s.get("positions", "sinusoidal"))
    own = {name: s[name] for name in ("n_heads", "activation", "norm", "eps")}
    own |= {"n_layers": s.get("n_layers", 1), "attention_bias": block[0].b_Q is not None}
    # without an rng the dropout must do nothing
    return npf.TransformerConfig(d_model=d_model, d_ff=d_ff, dropout=0.1, positions=positions, **own)
