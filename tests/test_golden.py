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


def run_layer_norm(a, s):
    y, cache = npf.layer_norm_forward(a["x"], npf.LayerNormParams(a["gamma"], a["beta"]), eps=s["eps"])

    def backward(d_y):
        d_x, grads = npf.layer_norm_backward(d_y, cache)
        return {"x": d_x, **named(grads)}

    return y, backward


def run_linear(a, s):
    y, cache = npf.linear_forward(a["x"], a["W"], a.get("b"))

    def backward(d_y):
        gradients = dict(zip(("x", "W", "b"), npf.linear_backward(d_y, cache), strict=True))
        return {name: gradient for name, gradient in gradients.items() if gradient is not None}

    return y, backward


def run_activation(a, s):
    if s["activation"] == "relu":
        y, cache = npf.relu_forward(a["z"])
        return y, lambda d_y: {"z": npf.relu_backward(d_y, cache)}
    y, cache = npf.gelu_forward(a["z"], approximate=s["activation"] == "gelu_tanh")
    return y, lambda d_y: {"z": npf.gelu_backward(d_y, cache)}


def run_softmax(a, s):
    y, cache = npf.softmax_forward(a["scores"], axis=s["axis"])
    return y, lambda d_y: {"scores": npf.softmax_backward(d_y, cache)}


def run_embedding(a, s):
    y, cache = npf.embedding_forward(a["ids"], npf.EmbeddingParams(a["E"]))
    return y, lambda d_y: named(npf.embedding_backward(d_y, cache))


def run_tied_logits(a, s):
    y, cache = npf.tied_logits_forward(a["x"], npf.EmbeddingParams(a["E"]))

    def backward(d_y):
        d_x, grads = npf.tied_logits_backward(d_y, cache)
        return {"x": d_x, **named(grads)}

    return y, backward


def run_ffn(a, s):
    y, cache = npf.ffn_forward(a["x"], gathered(npf.FFNParams, a), activation=s["activation"])

    def backward(d_y):
        d_x, grads = npf.ffn_backward(d_y, cache)
        return {"x": d_x, **named(grads)}

    return y, backward


def run_attention(a, s):
    y, cache = npf.attention_forward(a["q"], a["k"], a["v"], mask=a.get("mask"), bias=a.get("bias"))
    return y, lambda d_y: dict(zip("qkv", npf.attention_backward(d_y, cache), strict=True))


def run_multi_head(a, s):
    y, cache = npf.multi_head_attention_forward(
        a["q"],
        a["k"],
        a["v"],
        gathered(npf.AttentionParams, a),
        n_heads=s["n_heads"],
        mask=a.get("mask"),
        bias=a.get("bias"),
        rope=s.get("rope", False),
    )

    def backward(d_y):
        d_q, d_k, d_v, grads = npf.multi_head_attention_backward(d_y, cache)
        return {"q": d_q, "k": d_k, "v": d_v, **named(grads)}

    return y, backward


def run_block(a, s):
    params = block_params(a)
    y, cache = npf.encoder_block_forward(a["x"], params, config_of(s, params), mask=a.get("mask"))

    def backward(d_y):
        d_x, grads = npf.encoder_block_backward(d_y, cache)
        return {"x": d_x, **named(grads)}

    return y, backward


def run_stack(a, s):
    params = npf.EncoderParams(*stack_parts(a, s, block_params))
    y, cache = npf.encoder_forward(a["x"], params, config_of(s, params.blocks[0]), mask=a.get("mask"))

    def backward(d_y):
        d_x, grads = npf.encoder_backward(d_y, cache)
        return {"x": d_x, **named_stack(grads)}

    return y, backward


def run_decoder_block(a, s):
    params = decoder_block_params(a)
    y, cache = npf.decoder_block_forward(a["x"], a["memory"], params, config_of(s, params), **masks(a))

    def backward(d_y):
        d_x, d_memory, grads = npf.decoder_block_backward(d_y, cache)
        return {"x": d_x, "memory": d_memory, **named(grads)}

    return y, backward


def run_decoder_stack(a, s):
    params = npf.DecoderParams(*stack_parts(a, s, decoder_block_params))
    config = config_of(s, params.blocks[0])
    y, cache = npf.decoder_forward(a["x"], a["memory"], params, config, **masks(a))

    def backward(d_y):
        d_x, d_memory, grads = npf.decoder_backward(d_y, cache)
        return {"x": d_x, "memory": d_memory, **named_stack(grads)}

    return y, backward


def run_transformer(a, s):
    params = transformer_params(a, s)
    config = config_of(s, params.encoder.blocks[0])
    if params.source_positions is not None:
        config = config._replace(max_length=len(params.source_positions.P))
    logits, cache = npf.transformer_forward(
        a["source_ids"], a["target_ids"], params, config, padding_id=s["padding_id"]
    )
    return logits, lambda d_logits: named_transformer(npf.transformer_backward(d_logits, cache))


def run_cross_entropy(a, s):
    options = {name: s[name] for name in ("ignore_index", "label_smoothing")}
    loss, cache = npf.cross_entropy_forward(a["logits"], a["labels"], **options)
    return loss, lambda d_loss: {"logits": npf.cross_entropy_backward(d_loss, cache)}


def run_training(a, s):
    """From ids to the loss, and from the loss to the gradient of every parameter."""
    logits, model_backward = run_transformer(a, s)
    loss, loss_backward = run_cross_entropy({"logits": logits, "labels": a["labels"]}, s)
    return loss, lambda d_loss: model_backward(loss_backward(d_loss)["logits"])


RUNNERS = {
    "layer_norm": run_layer_norm,
    "linear": run_linear,
    "activation": run_activation,
    "softmax": run_softmax,
    "embedding": run_embedding,
    "tied_logits": run_tied_logits,
    "ffn": run_ffn,
    "attention": run_attention,
    "multi_head": run_multi_head,
    "block": run_block,
    "stack": run_stack,
    "decoder_block": run_decoder_block,
    "decoder_stack": run_decoder_stack,
    "transformer": run_transformer,
    "cross_entropy": run_cross_entropy,
    "training": run_training,
}


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


def test_the_proof_covers_what_it_says():
    """The data may be rewritten; these situations must stay in it."""
    operations = [case["operation"] for case in CASES.values()]
    assert set(operations) == set(RUNNERS) and len(TRAJECTORIES) >= 4
    attention_biases = "attention.b_Q", "blocks.attention.b_Q"
    found = {
        (
            case["operation"],
            case["settings"]["norm"],
            case["settings"]["activation"],
            any(name in case["inputs"] for name in attention_biases),
        )
        for case in CASES.values()
        if case["operation"] in ("block", "stack")
    }
    for norm in ("post", "pre"):
        for activation in ("relu", "gelu"):
            assert {("block", norm, activation, biased) for biased in (True, False)} <= found
            assert {biased for kind, *rest, biased in found if (kind, *rest) == ("stack", norm, activation)}
    for operation in ("attention", "multi_head", "block", "decoder_block"):
        used = [np.array(c["constants"].get("mask", True)) for c in of_operation(operation)]
        assert any(not mask.any(-1).all() for mask in used), f"{operation}: no row without an allowed key"
        assert any(mask.ndim >= 3 for mask in used), f"{operation}: no padding mask"
        assert any(mask.shape == (5, 5) and mask.any(-1).all() for mask in used), (
            f"{operation}: no causal mask"
        )


def of_operation(operation):
    return [case for case in EVERYTHING.values() if case["operation"] == operation]


def test_the_proof_covers_the_decoder_and_the_model():
    blocks = of_operation("decoder_block")
    found = {(c["settings"]["norm"], c["settings"]["activation"], "mask" in c["constants"]) for c in blocks}
    assert {(n, a, m) for n in ("post", "pre") for a in ("relu", "gelu") for m in (True, False)} <= found
    lengths = {(c["inputs"]["x"].shape[-2], c["inputs"]["memory"].shape[-2]) for c in blocks}
    assert any(T == 1 for T, _ in lengths) and any(S > T > 1 for T, S in lengths)
    assert any(not np.array(c["constants"].get("memory_mask", True)).any(-1).all() for c in blocks)
    assert {c["settings"]["positions"] for c in of_operation("transformer")} == set(POSITIONS)
    for c in of_operation("training"):
        assert c["settings"]["n_layers"] == 2 and 0 < c["settings"]["label_smoothing"] < 1
        for name in ("source_ids", "target_ids", "labels"):
            assert c["settings"]["padding_id"] in np.array(c["constants"][name]), f"{name} has no padding"
    losses = [c["settings"]["label_smoothing"] for c in of_operation("cross_entropy")]
    assert {0.0, 0.1, 1.0} <= set(losses)
    assert any(abs(c["inputs"]["logits"]).max() >= 1e4 for c in of_operation("cross_entropy"))
    decays = {c["settings"]["weight_decay"] > 0 for c in of_operation("adam")}
    assert decays == {True, False} and all("W_after_100" in c["answers"] for c in of_operation("adam"))


def test_the_proof_is_not_blind():
    """No constant gamma, beta or upstream gradient, no zero bias, no gradient that is zero for no reason."""
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
