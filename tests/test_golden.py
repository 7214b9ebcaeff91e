"""Every operation against PyTorch: output and every gradient, in float64 and in float32; Adam's steps too.

tests/data/make_golden.py wrote the answers and says how the files are laid out. The inputs are float32
numbers and the answers float64 ones, so both precisions are held against the same truth.
"""

import json
import sys
from pathlib import Path

import numpy as np
from together import together

import npformer as npf

DATA = Path(__file__).parent / "data"
FILES = ("golden_functional.npz", "golden_attention.npz", "golden_encoder.npz", "golden_model.npz")
POSITIONS = ("sinusoidal", "learned", "rope", "alibi", "none")
# Of max(1, the largest entry). WebAssembly has no BLAS, which sums in blocks: there, six layers in float32
# are off by 7.6e-5.
TOLERANCE = {np.float64: 1e-11, np.float32: 3e-5 if sys.platform != "emscripten" else 1e-4}
BLOCK_PARAMETERS = {
    "attention": npf.AttentionParams,
    "norm_1": npf.LayerNormParams,
    "ffn": npf.FFNParams,
    "norm_2": npf.LayerNormParams,
}
DECODER_BLOCK_PARAMETERS = {
    "self_attention": npf.AttentionParams,
    "norm_1": npf.LayerNormParams,
    "cross_attention": npf.AttentionParams,
    "norm_2": npf.LayerNormParams,
    "ffn": npf.FFNParams,
    "norm_3": npf.LayerNormParams,
}


def read(filename):
    """The cases of a file, each with its `inputs` and `answers` as arrays."""
    with np.load(DATA / filename) as archive:
        index, inputs, answers = json.loads(str(archive["index"])), archive["inputs"], archive["answers"]
    for case in index:
        case["inputs"], inputs = cut(case["inputs"], inputs)
        case["answers"], answers = cut(case["answers"], answers)
    assert inputs.size == answers.size == 0, f"{filename} holds more numbers than its index says"
    return index


def cut(shapes, numbers):
    """The arrays at the front of `numbers`, by name, and what is left."""
    arrays = {}
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        arrays[name], numbers = numbers[:size].reshape(shape), numbers[size:]
    return arrays, numbers


EVERYTHING = {case["name"]: case for filename in FILES for case in read(filename)}
CASES = {name: case for name, case in EVERYTHING.items() if case["operation"] != "adam"}
TRAJECTORIES = {name: case for name, case in EVERYTHING.items() if case["operation"] == "adam"}


# One runner per operation: from the arrays by name `a` and the settings `s` to y and a function, which
# takes d_y to the gradients by name.


def both(pair, backward, *names, grads_named=None):
    """y, and what takes d_y to the gradients: of the arguments by their names, then of the parameters."""
    y, cache = pair

    def back(d_y):
        found = backward(d_y, cache)
        found = found if type(found) is tuple else (found,)
        gradients = {name: g for name, g in zip(names, found, strict=False) if g is not None}
        return gradients | ((grads_named or named)(found[-1]) if len(found) > len(names) else {})

    return y, back


def run_layer_norm(a, s):
    params = npf.LayerNormParams(a["gamma"], a["beta"])
    return both(npf.layer_norm_forward(a["x"], params, eps=s["eps"]), npf.layer_norm_backward, "x")


def run_linear(a, s):
    return both(npf.linear_forward(a["x"], a["W"], a.get("b")), npf.linear_backward, "x", "W", "b")


def run_activation(a, s):
    if s["activation"] == "relu":
        return both(npf.relu_forward(a["z"]), npf.relu_backward, "z")
    pair = npf.gelu_forward(a["z"], approximate=s["activation"] == "gelu_tanh")
    return both(pair, npf.gelu_backward, "z")


def run_softmax(a, s):
    return both(npf.softmax_forward(a["scores"], axis=s["axis"]), npf.softmax_backward, "scores")


def run_embedding(a, s):
    return both(npf.embedding_forward(a["ids"], npf.EmbeddingParams(a["E"])), npf.embedding_backward)


def run_tied_logits(a, s):
    return both(npf.tied_logits_forward(a["x"], npf.EmbeddingParams(a["E"])), npf.tied_logits_backward, "x")


def run_ffn(a, s):
    pair = npf.ffn_forward(a["x"], gathered(npf.FFNParams, a), activation=s["activation"])
    return both(pair, npf.ffn_backward, "x")


def run_attention(a, s):
    pair = npf.attention_forward(a["q"], a["k"], a["v"], mask=a.get("mask"), bias=a.get("bias"))
    return both(pair, npf.attention_backward, *"qkv")


def run_multi_head(a, s):
    options = {"n_heads": s["n_heads"], "rope": s.get("rope", False)}
    options |= {name: a.get(name) for name in ("mask", "bias")}
    params = gathered(npf.AttentionParams, a)
    pair = npf.multi_head_attention_forward(a["q"], a["k"], a["v"], params, **options)
    return both(pair, npf.multi_head_attention_backward, *"qkv")


def run_block(a, s):
    params = block_params(a)
    pair = npf.encoder_block_forward(a["x"], params, config_of(s, params), mask=a.get("mask"))
    return both(pair, npf.encoder_block_backward, "x")


def run_stack(a, s):
    params = npf.EncoderParams(*stack_parts(a, s, block_params))
    pair = npf.encoder_forward(a["x"], params, config_of(s, params.blocks[0]), mask=a.get("mask"))
    return both(pair, npf.encoder_backward, "x", grads_named=named_stack)


def run_decoder_block(a, s):
    params = decoder_block_params(a)
    pair = npf.decoder_block_forward(a["x"], a["memory"], params, config_of(s, params), **masks(a))
    return both(pair, npf.decoder_block_backward, "x", "memory")


def run_decoder_stack(a, s):
    params = npf.DecoderParams(*stack_parts(a, s, decoder_block_params))
    pair = npf.decoder_forward(a["x"], a["memory"], params, config_of(s, params.blocks[0]), **masks(a))
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


RUNNERS = {name.removeprefix("run_"): run for name, run in list(globals().items()) if name.startswith("run_")}


def named(tree, prefix=""):
    return {prefix + path: array for path, array in npf.leaves(tree)}


def gathered(kind, arrays, prefix=""):
    """The NamedTuple whose fields stand in `arrays` under the prefix; absent attention biases stay None."""
    return kind(**{f: arrays[prefix + f] for f in kind._fields if prefix + f in arrays})


def block_params(arrays):
    parts = {name: gathered(kind, arrays, f"{name}.") for name, kind in BLOCK_PARAMETERS.items()}
    return npf.EncoderBlockParams(**parts)


def decoder_block_params(arrays):
    parts = {name: gathered(kind, arrays, f"{name}.") for name, kind in DECODER_BLOCK_PARAMETERS.items()}
    return npf.DecoderBlockParams(**parts)


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
    tables = {f"{which}_positions": getattr(grads, f"{which}_positions") for which in ("source", "target")}
    learned = {f"{name}.P": table.P for name, table in tables.items() if table is not None}
    return {"E": grads.embedding.E, **stacks, **learned}


def masks(arrays):
    return {name: arrays.get(name) for name in ("mask", "memory_mask")}


def config_of(s, block):
    d_model, d_ff = block.ffn.W_1.shape
    positions = next((word for word in ("rope", "alibi") if s.get(word)), s.get("positions", "sinusoidal"))
    attention = block[0]  # an encoder block's, or a decoder block's own
    return npf.TransformerConfig(
        d_model=d_model,
        d_ff=d_ff,
        n_heads=s["n_heads"],
        n_layers=s.get("n_layers", 1),
        activation=s["activation"],
        norm=s["norm"],
        eps=s["eps"],
        dropout=0.1,  # without an rng it must do nothing
        positions=positions,
        attention_bias=attention.b_Q is not None,
    )


def inputs_of(case, dtype):
    """The case's arrays, read-only: whoever writes into an argument raises."""
    arrays = {name: array.astype(dtype) for name, array in case["inputs"].items()}
    arrays |= {name: np.array(constant) for name, constant in case["constants"].items()}
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


def assert_close(found, expected, dtype, what):
    assert found.dtype == dtype, f"{what} is {found.dtype}"
    assert found.shape == expected.shape, f"{what} has shape {found.shape}, expected {expected.shape}"
    largest = max(1.0, float(abs(expected).max()))
    error = float(abs(found.astype(np.float64) - expected).max()) / largest
    assert error <= TOLERANCE[dtype], f"{what} is off by {error:.1e} of {largest:.3g}"


@together("dtype", TOLERANCE)
@together("name", CASES)
def test_agrees_with_pytorch(name, dtype):
    case, arrays = CASES[name], inputs_of(CASES[name], dtype)
    d_y, answers = arrays.pop("d_y"), dict(case["answers"])
    y, backward = RUNNERS[case["operation"]](arrays, case["settings"])
    assert_close(y, answers.pop("y"), dtype, "y")
    gradients = {f"d_{argument}": gradient for argument, gradient in backward(d_y).items()}
    assert gradients.keys() == answers.keys()
    for argument, expected in answers.items():
        assert_close(gradients[argument], expected, dtype, argument)


@together("dtype", TOLERANCE)
@together("name", TRAJECTORIES)
def test_adam_follows_pytorch(name, dtype):
    """Each parameter after 1, 10 and 100 steps, and both running means at the end."""
    case, arrays = TRAJECTORIES[name], inputs_of(TRAJECTORIES[name], dtype)
    gradients, options = under(arrays, "g."), dict(case["settings"])
    schedule = [options.pop(word) for word in ("d_model", "warmup_steps") if word in options]
    params, found = tuple(arrays[leaf] for leaf in gradients), {}
    state = npf.adam_init(params)
    for step in range(1, 101):
        if schedule:
            d_model, warmup_steps = schedule
            options["learning_rate"] = npf.warmup_learning_rate(step, d_model, warmup_steps=warmup_steps)
        grads = tuple(gradient[step - 1] for gradient in gradients.values())
        params, state = npf.adam_update(params, grads, state, **options)
        found |= {f"{leaf}_after_{step}": p for leaf, p in zip(gradients, params, strict=True)}
    for mean in ("m", "v"):
        found |= {f"{mean}.{leaf}": a for leaf, a in zip(gradients, getattr(state, mean), strict=True)}
    for what, expected in case["answers"].items():
        assert_close(found[what], expected, dtype, what)


@together("name", [name for name in CASES if "causal" in name])
def test_causal_mask_is_the_one_that_pytorch_was_given(name):
    mask = np.array(CASES[name]["constants"]["mask"])
    np.testing.assert_array_equal(npf.causal_mask(*mask.shape), mask)


def test_padding_mask_is_the_one_that_pytorch_was_given():
    ids = np.array([[5, 2, 9, 4, 1], [3, 6, 8, 0, 0]])  # 0 is the padding: five words, three words
    mask = np.array(CASES["attention_padding"]["constants"]["mask"])
    np.testing.assert_array_equal(npf.padding_mask(ids, 0), mask)


def test_the_proof_is_not_blind():
    """No constant gamma, beta or upstream gradient, no zero bias, no gradient that is zero for no reason."""
    assert {case["operation"] for case in CASES.values()} == set(RUNNERS) and len(TRAJECTORIES) >= 4
    for name, case in EVERYTHING.items():
        for argument, array in case["inputs"].items():
            plain = argument.split(".")[-1]
            if plain in ("gamma", "beta", "d_y") and array.size > 1:
                assert np.ptp(array) > 0.1, f"{name}: {argument} is constant"
            if plain.startswith("b_"):
                assert abs(array).max() > 1e-3, f"{name}: {argument} is zero"
        if "1e4" in name or "t1" in name or "one" in name:
            continue  # a saturated softmax or a single key: Q and K really have no gradient
        for argument, array in case["answers"].items():
            if not argument.endswith("b_K") and name != "layer_norm_d1":
                assert abs(array).max() > 1e-4, f"{name}: {argument} is zero"
