"""One valid call of every public function, by argument name: what the tests of bad input spoil in one place.

`CALLS[name]()` makes fresh arguments; `call(name, arguments)` calls npformer's function of that name. A
backward gets the cache of its own forward's valid call. A new public function needs a line here, as a test in
test_bad_input.py says. Different letters have different lengths, so that a wrong letter shows.
"""

import inspect
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import small_gguf
import small_llama2c
import small_minilm

import npformer as npf

CONFIG = npf.TransformerConfig(
    d_model=8,
    d_ff=12,
    n_heads=2,
    n_layers=2,
    norm="pre",
    positions="learned",
    attention_bias=True,
    max_length=9,
)
VOCABULARY = {"<pad>": 0, "bites": 1, "dog": 2}
VOCAB_SIZE = 5


def array(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def generator():
    return np.random.default_rng(0)


def ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(VOCAB_SIZE, size=shape)


def drawn(init, *sizes):
    """Parameters without a 0 or a 1 that would hide a mistake."""
    return npf.tree_map(lambda a: a + 0.1 * array(*a.shape, seed=1), init(*sizes, generator()))


def norm_params(d_model):
    return npf.LayerNormParams(1 + 0.1 * array(d_model, seed=2), 0.1 * array(d_model, seed=3))


MODEL = drawn(npf.init_transformer, VOCAB_SIZE, CONFIG)
LM_CONFIG = npf.CausalLMConfig(
    d_model=8, d_ff=12, n_heads=2, n_kv_heads=1, n_layers=2, max_length=9, tied=False
)
LM = drawn(npf.init_causal_lm, VOCAB_SIZE, LM_CONFIG)
E = npf.EmbeddingParams(MODEL.embedding.E)

FORWARD = {
    "linear_forward": lambda: {"x": array(2, 3, 4), "W": array(4, 5), "b": array(5)},
    "relu_forward": lambda: {"z": array(2, 3)},
    "gelu_forward": lambda: {"z": array(2, 3), "approximate": False},
    "softmax_forward": lambda: {"scores": array(2, 3), "axis": -1},
    "dropout_forward": lambda: {"x": array(2, 3), "rate": 0.5, "rng": generator()},
    "learned_positions_forward": lambda: {"x": array(2, 6, 8), "params": MODEL.source_positions},
    "rope_forward": lambda: {
        "x": array(2, 6, 8),
        "positions": np.arange(6),
        "base": 100.0,
        "layout": "halves",
    },
    "ffn_forward": lambda: {
        "x": array(2, 6, 8),
        "params": MODEL.encoder.blocks[0].ffn,
        "activation": "gelu",
        "dropout": 0.1,
        "rng": generator(),
    },
    "layer_norm_forward": lambda: {"x": array(2, 6, 8), "params": norm_params(8), "eps": 1e-5},
    "attention_forward": lambda: {
        "q": array(2, 5, 4),
        "k": array(2, 6, 4, seed=1),
        "v": array(2, 6, 3, seed=2),
        "mask": npf.causal_mask(5, 6)[None],
        "bias": array(2, 5, 6),
    },
    "multi_head_attention_forward": lambda: {
        "q": array(2, 5, 8),
        "k": array(2, 6, 8, seed=1),
        "v": array(2, 6, 8, seed=2),
        "params": MODEL.encoder.blocks[0].attention,
        "n_heads": 2,
        "mask": np.ones((2, 1, 6), bool),
        "bias": array(2, 2, 5, 6),
        "rope": True,
        "n_kv_heads": None,
        "base": 100.0,
        "rope_layout": "halves",
    },
    "rms_norm_forward": lambda: {"x": array(2, 6, 8), "params": LM.norm, "eps": 1e-5},
    "silu_forward": lambda: {"z": array(2, 3)},
    "gated_ffn_forward": lambda: {
        "x": array(2, 6, 8),
        "params": LM.blocks[0].ffn,
        "activation": "gelu",
    },
    "tiled_attention_forward": lambda: {
        "q": array(2, 5, 4),
        "k": array(2, 6, 4, seed=1),
        "v": array(2, 6, 3, seed=2),
        "causal": True,
        "tile": 2,
    },
    "causal_lm_forward": lambda: {
        "ids": ids(2, 6),
        "params": LM,
        "config": LM_CONFIG,
        "padding_id": 0,
    },
    "embedding_forward": lambda: {"ids": ids(2, 6), "params": E},
    "tied_logits_forward": lambda: {"x": array(2, 6, 8), "params": E},
    "cross_entropy_forward": lambda: {
        "logits": array(2, 6, VOCAB_SIZE),
        "targets": ids(2, 6),
        "ignore_index": -1,
        "label_smoothing": 0.1,
    },
    "encoder_block_forward": lambda: {
        "x": array(2, 6, 8),
        "params": MODEL.encoder.blocks[0],
        "config": CONFIG,
        "mask": npf.causal_mask(6)[None],
        "rng": generator(),
    },
    "encoder_forward": lambda: {
        "x": array(2, 6, 8),
        "params": MODEL.encoder,
        "config": CONFIG,
        "mask": npf.causal_mask(6)[None],
        "rng": generator(),
    },
    "decoder_block_forward": lambda: {
        "x": array(2, 5, 8),
        "memory": array(2, 6, 8, seed=1),
        "params": MODEL.decoder.blocks[0],
        "config": CONFIG,
        "mask": npf.causal_mask(5)[None],
        "memory_mask": np.ones((2, 1, 6), bool),
        "rng": generator(),
    },
    "decoder_forward": lambda: {
        "x": array(2, 5, 8),
        "memory": array(2, 6, 8, seed=1),
        "params": MODEL.decoder,
        "config": CONFIG,
        "mask": npf.causal_mask(5)[None],
        "memory_mask": np.ones((2, 1, 6), bool),
        "rng": generator(),
    },
    "transformer_forward": lambda: {
        "source_ids": ids(2, 6),
        "target_ids": ids(2, 5),
        "params": MODEL,
        "config": CONFIG,
        "padding_id": 0,
        "rng": generator(),
    },
}


DIFFERENTIATED = {  # the arguments whose gradients the backward returns, in its order
    "linear_forward": "x W b",
    "rms_norm_forward": "x params",
    "silu_forward": "z",
    "gated_ffn_forward": "x params",
    "tiled_attention_forward": "q k v",
    "causal_lm_forward": "params",
    "relu_forward": "z",
    "gelu_forward": "z",
    "softmax_forward": "scores",
    "dropout_forward": "x",
    "learned_positions_forward": "x params",
    "rope_forward": "x",
    "ffn_forward": "x params",
    "layer_norm_forward": "x params",
    "attention_forward": "q k v",
    "multi_head_attention_forward": "q k v params",
    "embedding_forward": "params",
    "tied_logits_forward": "x params",
    "cross_entropy_forward": "logits",
    "encoder_block_forward": "x params",
    "encoder_forward": "x params",
    "decoder_block_forward": "x memory params",
    "decoder_forward": "x memory params",
    "transformer_forward": "params",
}


def backward(forward, dy, cache):
    """The backward's gradients by the name of the argument that they belong to."""
    gradients = getattr(npf, backward_of(forward))(dy, cache)
    names = DIFFERENTIATED[forward].split()
    return dict(zip(names, gradients if len(names) > 1 else (gradients,), strict=True))


def backward_of(forward):
    return forward.replace("_forward", "_backward")


def backward_call(forward):
    """The arguments of the backward: a random gradient in the output's shape, and the forward's cache."""

    def arguments():
        y, cache = call(forward, FORWARD[forward]())
        first, _ = inspect.signature(getattr(npf, backward_of(forward))).parameters
        return {first: array(*y.shape, seed=4), "cache": cache}

    return arguments


def saved():
    npf.save("saved.npz", (np.ones(2),))
    return {"path": "saved.npz", "like": (np.ones(2),)}


def saved_in_safetensors():
    npf.save_safetensors("saved.safetensors", (np.ones(2),))
    return {"path": "saved.safetensors", "like": (np.ones(2),)}


def minilm_folder():
    """The path of a folder that load_minilm reads; what writes it comes with the extra."""
    pytest.importorskip("safetensors", reason="not installed: uv sync --extra pretrained")
    return Path(_written().name) / "minilm"


@cache
def _written():
    folder = tempfile.TemporaryDirectory()  # removed when Python ends
    small_minilm.write_model(Path(folder.name) / "minilm")
    return folder


MINILM = small_minilm.small_model()

BACKWARD = {backward_of(forward): backward_call(forward) for forward in FORWARD}

CALLS = {
    **FORWARD,
    **BACKWARD,
    "positional_encoding": lambda: {
        "n": 3,
        "d_model": 4,
        "base": 100.0,
        "start": 0,
        "layout": "halves",
        "dtype": np.float64,
        "xp": np,
    },
    "angular_frequencies": lambda: {"d_model": 4, "base": 100.0},
    "wavelengths": lambda: {"d_model": 4, "base": 100.0},
    "shift_matrix": lambda: {"k": 2, "d_model": 4, "base": 100.0},
    "alibi_bias": lambda: {"n_heads": 2, "T_q": 3, "T_k": 4, "dtype": np.float64, "xp": np},
    "init_ffn": lambda: {"d_model": 8, "d_ff": 12, "rng": generator(), "dtype": np.float64},
    "init_layer_norm": lambda: {"d_model": 8, "dtype": np.float64},
    "init_attention": lambda: {"d_model": 8, "rng": generator(), "bias": True, "dtype": np.float64},
    "init_embedding": lambda: {"vocab_size": 5, "d_model": 8, "rng": generator(), "dtype": np.float64},
    "init_encoder_block": lambda: {"config": CONFIG, "rng": generator(), "dtype": np.float64},
    "init_encoder": lambda: {"config": CONFIG, "rng": generator(), "dtype": np.float64},
    "init_decoder_block": lambda: {"config": CONFIG, "rng": generator(), "dtype": np.float64},
    "init_decoder": lambda: {"config": CONFIG, "rng": generator(), "dtype": np.float64},
    "init_transformer": lambda: {"vocab_size": 5, "config": CONFIG, "rng": generator(), "dtype": np.float64},
    "init_rms_norm": lambda: {"d_model": 8, "dtype": np.float64},
    "init_gated_ffn": lambda: {"d_model": 8, "d_ff": 12, "rng": generator(), "dtype": np.float64},
    "init_causal_lm": lambda: {"vocab_size": 5, "config": LM_CONFIG, "rng": generator(), "dtype": np.float64},
    "generate": lambda: {
        "ids": 1 + ids(2, 4) % 4,
        "params": LM,
        "config": LM_CONFIG,
        "max_new_tokens": 3,
        "temperature": 0.8,
        "top_k": 3,
        "top_p": 0.9,
        "stop_id": 2,
        "rng": generator(),
        "padding_id": 0,
    },
    "train_byte_pairs": lambda: {"text": "low lower", "n_merges": 3},
    "load_llama2c": lambda: dict(zip(("model_file", "tokenizer_file"), small_llama2c.files(), strict=True)),
    "load_gguf": lambda: {"path": small_gguf.file(), "dtype": np.float32},
    "causal_lm_from_torch": lambda: {"state": npf.causal_lm_to_torch(LM, LM_CONFIG), "config": LM_CONFIG},
    "causal_lm_to_torch": lambda: {"params": LM, "config": LM_CONFIG},
    "causal_block_multiplications": lambda: {"n": 10, "config": LM_CONFIG},
    "causal_parameter_count": lambda: {"config": LM_CONFIG, "vocab_size": 5},
    "kept_bytes": lambda: {"config": LM_CONFIG, "dtype": np.float64},
    "split_heads": lambda: {"x": array(2, 6, 8), "n_heads": 2},
    "merge_heads": lambda: {"x": array(3, 2, 6, 4)},
    "causal_mask": lambda: {"T_q": 3, "T_k": 4, "xp": np},
    "padding_mask": lambda: {"ids": ids(2, 6), "padding_id": 0},
    "greedy_decode": lambda: {
        "source_ids": ids(2, 6),
        "params": MODEL,
        "config": CONFIG,
        "start_id": 1,
        "stop_id": 2,
        "max_length": 4,
        "padding_id": 0,
    },
    "sgd_update": lambda: {"params": norm_params(3), "grads": norm_params(3), "learning_rate": 0.1},
    "adam_init": lambda: {"params": norm_params(3)},
    "adam_update": lambda: {
        "params": norm_params(3),
        "grads": norm_params(3),
        "state": npf.adam_init(norm_params(3)),
        "learning_rate": 0.1,
        "beta_1": 0.9,
        "beta_2": 0.98,
        "eps": 1e-9,
        "weight_decay": 0.01,
    },
    "warmup_learning_rate": lambda: {"step": 3, "d_model": 512, "warmup_steps": 4000},
    "gradcheck": lambda: {
        "forward": npf.relu_forward,
        "backward": npf.relu_backward,
        "args": (array(3),),
        "rng": generator(),
        "tolerance": 1e-6,
        "directions": 2,
        "kwargs": {},
    },
    "assert_gradients": lambda: {
        "forward": npf.relu_forward,
        "backward": npf.relu_backward,
        "args": (array(3),),
        "rng": generator(),
        "tolerance": 1e-6,
        "directions": 2,
        "kwargs": {},
    },
    "order_sensitivity": lambda: {"f": np.tanh, "x": array(2, 6, 8), "rng": generator()},
    "token_similarity": lambda: {"x": array(2, 6, 8)},
    "dead_units": lambda: {"hidden": array(2, 6, 8)},
    "tokenize": lambda: {"sentence": "Dog bites man."},
    "build_vocabulary": lambda: {"sentences": [["dog", "bites"]], "special": ["<pad>"]},
    "encode": lambda: {"sentences": [["dog", "bites"], ["dog"]], "vocabulary": VOCABULARY},
    "decode": lambda: {"ids": np.array([[1, 2]]), "vocabulary": VOCABULARY},
    "tree_map": lambda: {"f": np.add, "tree": (np.ones(2),), "trees": ((np.ones(2),),)},
    "leaves": lambda: {"tree": (np.ones(2),)},
    "to_backend": lambda: {"tree": (np.ones(2), None), "backend": "numpy"},
    "to_numpy": lambda: {"tree": (np.ones(2), None)},
    "available_backends": lambda: {},
    "array_module": lambda: {"arrays": (np.ones(2),)},
    "table_1": lambda: {"n": 10, "d": 8, "k": 3, "r": 4},
    "encoder_block_multiplications": lambda: {"n": 10, "config": CONFIG},
    "score_cells": lambda: {"n": 10, "n_heads": 2},
    "parameter_count": lambda: {"config": CONFIG, "vocab_size": 5},
    "training_bytes": lambda: {"config": CONFIG, "vocab_size": 5, "dtype": np.float64},
    "encoder_block_cache_bytes": lambda: {"B": 2, "T": 6, "config": CONFIG, "dtype": np.float64},
    "load_minilm": lambda: {"path": minilm_folder(), "dtype": np.float64},
    "minilm_input": lambda: {"ids": ids(2, 6), "params": MINILM, "config": small_minilm.CONFIG},
    "sentence_embeddings": lambda: {
        "texts": ["dog", "bites", ""],
        "params": MINILM,
        "config": small_minilm.CONFIG,
        "tokenizer": small_minilm.Letters(),
        "unit": True,
    },
    "encoder_block_from_torch": lambda: {"state": npf.encoder_block_to_torch(MODEL.encoder.blocks[0])},
    "encoder_block_to_torch": lambda: {"params": MODEL.encoder.blocks[0]},
    "save": lambda: {"path": "written.npz", "tree": (np.ones(2),)},
    "load": saved,
    "save_safetensors": lambda: {"path": "written.safetensors", "tree": (np.ones(2),)},
    "load_safetensors": saved_in_safetensors,
}


UNREADABLE = (
    {"load_minilm", "load_safetensors", "save_safetensors"} if find_spec("safetensors") is None else set()
)  # without the extra
for name in UNREADABLE:
    del CALLS[name]


PARAMETERS = cache(lambda function: tuple(inspect.signature(function).parameters.values()))


def call(name, arguments):
    """Call the function with its arguments by position where it takes them so, by name otherwise."""
    function, positional, named = getattr(npf, name), [], {}
    for parameter in PARAMETERS(function):
        value = arguments[parameter.name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += value
        elif parameter.kind is parameter.VAR_KEYWORD:
            named |= value
        elif parameter.kind is parameter.KEYWORD_ONLY:
            named[parameter.name] = value
        else:
            positional.append(value)
    result = function(*positional, **named)
    return list(result) if inspect.isgenerator(result) else result


def replaced(tree, path, change):
    """The arguments (or a tree) with change(value) for the value at the path, such as params.ffn.W_1."""
    head, _, rest = path.partition(".")
    if not path:
        return change(tree)
    if isinstance(tree, dict):
        return tree | {head: replaced(tree[head], rest, change)}
    if hasattr(tree, "_fields"):
        return tree._replace(**{head: replaced(getattr(tree, head), rest, change)})
    here = int(head)
    return (*tree[:here], replaced(tree[here], rest, change), *tree[here + 1 :])


def with_arrays(tree, change):
    """The arguments with change(array) for every array in them, however deep."""
    if isinstance(tree, np.ndarray):
        return change(tree)
    if isinstance(tree, dict):
        return {name: with_arrays(branch, change) for name, branch in tree.items()}
    if hasattr(tree, "_fields"):
        return type(tree)(*(with_arrays(branch, change) for branch in tree))
    if type(tree) is tuple:
        return tuple(with_arrays(branch, change) for branch in tree)
    return tree


def like(tree, dtype):
    """The same arguments in another precision; ids and masks stay what they are."""
    return with_arrays(tree, lambda a: a.astype(dtype) if a.dtype.kind == "f" else a)


def shapes(tree):
    return [(path, a.shape, a.dtype) for path, a in npf.leaves(tree)]


def fingerprint(tree):
    """Equal for two values when nothing in them differs: shapes, dtypes, bytes, a generator's state."""
    if isinstance(tree, np.ndarray):
        return type(tree), tree.shape, tree.dtype, tree.tobytes()
    if isinstance(tree, np.random.Generator):
        return repr(tree.bit_generator.state)
    if isinstance(tree, dict):
        return {name: fingerprint(branch) for name, branch in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree), [fingerprint(branch) for branch in tree]
    return type(tree), repr(tree)


def sized(lead, T, S, rng=None, seed=0):
    """Arguments of the forwards: `lead` leading axes, T positions (queries), S keys of another sequence.

    Beside them the shape that the output must have. Masks are random and have all axes; a cross-entropy is
    not here, as it is the mean over the batch.
    """
    encoder, decoder = MODEL.encoder, MODEL.decoder
    x, memory = array(*lead, T, 8, seed=seed), array(*lead, S, 8, seed=seed + 1)

    def mask(*shape, seed=seed):
        return np.random.default_rng(seed).random((*lead, *shape)) < 0.7

    block = {"config": CONFIG, "rng": rng, "mask": mask(T, T)}
    across = {**block, "memory": memory, "memory_mask": mask(T, S)}
    ffn = {"params": encoder.blocks[0].ffn, "activation": "gelu", "dropout": 0.1, "rng": rng}
    attention = {"k": memory, "mask": mask(T, S)}
    heads = {
        "params": encoder.blocks[0].attention,
        "n_heads": 2,
        "bias": npf.alibi_bias(2, T, S),
        "rope": True,
        "n_kv_heads": None,
        "base": 100.0,
        "rope_layout": "halves",
    }
    return {
        "linear_forward": ({"x": x, "W": array(8, 5), "b": array(5)}, (*lead, T, 5)),
        "relu_forward": ({"z": x}, x.shape),
        "gelu_forward": ({"z": x, "approximate": False}, x.shape),
        "softmax_forward": ({"scores": array(*lead, T, S, seed=seed), "axis": -1}, (*lead, T, S)),
        "dropout_forward": ({"x": x, "rate": 0.5, "rng": rng}, x.shape),
        "learned_positions_forward": ({"x": x, "params": MODEL.source_positions}, x.shape),
        "rope_forward": ({"x": x, "positions": None, "base": 100.0, "layout": "halves"}, x.shape),
        "ffn_forward": ({"x": x, **ffn}, x.shape),
        "layer_norm_forward": ({"x": x, "params": norm_params(8), "eps": 1e-5}, x.shape),
        "attention_forward": (
            {"q": x, "v": memory[..., :3], "bias": array(T, S), **attention},
            (*lead, T, 3),
        ),
        "multi_head_attention_forward": ({"q": x, "v": memory, **attention, **heads}, x.shape),
        "rms_norm_forward": ({"x": x, "params": LM.norm, "eps": 1e-5}, x.shape),
        "silu_forward": ({"z": x}, x.shape),
        "gated_ffn_forward": ({"x": x, "params": LM.blocks[0].ffn, "activation": "silu"}, x.shape),
        "tiled_attention_forward": (
            {"q": x, "k": memory, "v": memory[..., :3], "causal": True, "tile": 2},
            (*lead, T, 3),
        ),
        "causal_lm_forward": (
            {"ids": ids(*lead, T, seed=seed), "params": LM, "config": LM_CONFIG, "padding_id": 0},
            (*lead, T, VOCAB_SIZE),
        ),
        "embedding_forward": ({"ids": ids(*lead, T, seed=seed), "params": MODEL.embedding}, x.shape),
        "tied_logits_forward": ({"x": x, "params": MODEL.embedding}, (*lead, T, VOCAB_SIZE)),
        "encoder_block_forward": ({"x": x, "params": encoder.blocks[0], **block}, x.shape),
        "encoder_forward": ({"x": x, "params": encoder, **block}, x.shape),
        "decoder_block_forward": ({"x": x, "params": decoder.blocks[0], **across}, x.shape),
        "decoder_forward": ({"x": x, "params": decoder, **across}, x.shape),
        "transformer_forward": (
            {
                "source_ids": ids(*lead, S, seed=seed),
                "target_ids": ids(*lead, T, seed=seed + 1),
                "params": MODEL,
                "config": CONFIG,
                "padding_id": 0,
                "rng": rng,
            },
            (*lead, T, VOCAB_SIZE),
        ),
    }


SIZED = tuple(sized((), 1, 1))
