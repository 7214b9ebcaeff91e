"""Bad input is refused before any arithmetic and in our own words.

A row of `BAD` spoils one valid call (valid_calls.py) in one place. The refusal has the right type, begins
with the name of the function that was called, names the argument, says what was received and expected, comes
from a `raise` of this package, and comes before anything was computed, drawn or changed. The sweep at the end
does the same with odd values in every place of every function, and knows the few that are welcome.
"""

import ast
import contextlib
import functools
import inspect
import re
import traceback
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from valid_calls import (
    BACKWARD,
    CALLS,
    CONFIG,
    FORWARD,
    MODEL,
    VOCAB_SIZE,
    call,
    fingerprint,
    replaced,
    with_arrays,
)

import npformer as npf

PACKAGE = Path(npf.__file__).parent


class Change(NamedTuple):
    """Computed from the value that stands in the place, for example its transpose."""

    f: Any


class Bad(NamedTuple):
    place: str  # the argument, or the field in it, that is spoilt
    value: Any  # what stands there instead; a Change is applied to what stood there
    error: type[Exception]
    received: str  # what the message says before "; expected"
    expected: str  # and after it
    blamed: str = ""  # the argument that the message names, where it is not the place
    looks_at_values: bool = False  # the check has to compute: is the gradient finite?


class Tensor:
    """Another library's array."""

    shape, dtype, ndim, size = (2, 3), np.dtype(np.float64), 2, 6


def as_type(dtype):
    return Change(lambda a: a.astype(dtype))


def reshaped(*shape):
    return np.ones(shape)


TRANSPOSED = Change(lambda a: a.T)
ONE_AXIS_MORE = Change(lambda a: a[None])
NO_AXES = np.array(1.0)


# --- rows for every array of floats, every parameter, every cache ---------------------------------

OTHER_KINDS = {
    "list": (Change(np.ndarray.tolist), "is a list", "an array of float32 or float64"),
    "None": (None, "is None", "an array of float32 or float64"),
    "string": ("0.5", "is the string '0.5'", "an array of float32 or float64"),
    "number": (0.5, "is a float (0.5)", "an array of float32 or float64"),
    "NumPy number": (np.float64(0.5), "is a NumPy scalar (float64)", "an array of float32 or float64"),
    "tensor": (Tensor(), "is a Tensor", "an array of float32 or float64"),
    "masked": (Change(np.ma.asarray), "is a MaskedArray", "an array of float32 or float64"),
    "int": (as_type(np.int64), "has dtype int64", "float32 or float64"),
    "bool": (as_type(bool), "has dtype bool", "float32 or float64"),
    "float16": (as_type(np.float16), "has dtype float16", "float32 or float64 (float16 keeps 3 digits"),
    "complex": (as_type(complex), "has dtype complex128", "float32 or float64"),
    "object": (as_type(object), "has dtype object", "float32 or float64"),
    "other byte order": (
        Change(lambda a: a.astype(a.dtype.newbyteorder())),
        "has dtype",
        "float32 or float64",
    ),
}

FLOAT_ARRAYS = {  # the places where an array of floats is required; with a ? where None will do
    "linear_forward": "x W b?",
    "relu_forward": "z",
    "gelu_forward": "z",
    "softmax_forward": "scores",
    "dropout_forward": "x",
    "learned_positions_forward": "x params.P",
    "rope_forward": "x",
    "ffn_forward": "x params.W_1 params.b_1 params.W_2 params.b_2",
    "layer_norm_forward": "x params.gamma params.beta",
    "attention_forward": "q k v bias?",
    "multi_head_attention_forward": "q k v params.W_Q params.W_O params.b_K? bias?",
    "embedding_forward": "params.E",
    "tied_logits_forward": "x params.E",
    "cross_entropy_forward": "logits",
    "encoder_block_forward": "x params.attention.W_V params.attention.b_O? params.norm_1.beta params.ffn.W_2",
    "encoder_forward": "x params.blocks.1.norm_2.beta params.norm.gamma",
    "decoder_block_forward": "x memory params.self_attention.W_Q params.cross_attention.W_K params.ffn.b_2",
    "decoder_forward": "x memory params.blocks.1.ffn.b_1 params.norm.beta",
    "transformer_forward": "params.embedding.E params.encoder.norm.gamma params.decoder.blocks.0.ffn.W_1 "
    "params.source_positions.P",
    "greedy_decode": "params.embedding.E params.target_positions.P",
    "minilm_input": "params.embedding.E params.positions.P params.S params.norm.gamma "
    "params.encoder.blocks.1.ffn.W_2",
    "sentence_embeddings": "params.embedding.E params.positions.P params.S params.norm.beta",
    "encoder_block_to_torch": "params.attention.W_Q params.norm_1.gamma params.ffn.b_1 params.ffn.b_2 "
    "params.norm_2.beta",
    "split_heads": "x",
    "merge_heads": "x",
    "sgd_update": "params.gamma?",
    "adam_init": "params.gamma?",
    "adam_update": "params.gamma?",
    "order_sensitivity": "x",
    "token_similarity": "x",
    "dead_units": "hidden",
}


def required_floats(places):
    for place in places.split():
        for kind, (value, received, expected) in OTHER_KINDS.items():
            if not (place.endswith("?") and kind == "None"):
                yield Bad(place.rstrip("?"), value, TypeError, received, expected)


MIXED = {  # float32 in one place, float64 in all others: which argument the message names
    "linear_forward": {"x": "x", "W": "x", "b": "b"},
    "learned_positions_forward": {"x": "x", "params.P": "x"},
    "ffn_forward": {"x": "params.W_1", "params.W_1": "params.W_1", "params.b_2": "params.b_2"},
    "layer_norm_forward": {"x": "params.gamma", "params.beta": "params.beta"},
    "attention_forward": {"q": "k", "k": "k", "v": "v", "bias": "bias"},
    "multi_head_attention_forward": {"q": "params.W_Q", "v": "v", "params.b_O": "params.b_O", "bias": "bias"},
    "tied_logits_forward": {"x": "params.E", "params.E": "params.E"},
    "encoder_block_forward": {"x": "params.attention.W_Q", "params.ffn.b_2": "params.ffn.b_2"},
    "encoder_forward": {"params.norm.beta": "params.norm.beta", "params.blocks.1.ffn.W_1": ""},
    "decoder_block_forward": {"memory": "memory", "params.norm_2.gamma": "params.norm_2.gamma"},
    "decoder_forward": {"memory": "memory", "params.blocks.0.self_attention.W_O": ""},
    "transformer_forward": {"params.target_positions.P": "", "params.decoder.norm.gamma": ""},
    "minilm_input": {"params.S": "params.embedding.E", "params.norm.beta": ""},
    "sentence_embeddings": {"params.encoder.blocks.1.ffn.b_1": ""},
    "encoder_block_to_torch": {"params.attention.b_V": "", "params.norm_1.beta": ""},
}


def one_dtype(blamed_by_place):
    for place, blamed in blamed_by_place.items():
        yield Bad(place, as_type(np.float32), TypeError, "has dtype float", "float", blamed or place)


def refused_params(kind):
    """The parameters as a dict, a plain tuple, another NamedTuple, nothing at all, or an array alone."""
    yield Bad("params", None, TypeError, "is None", kind)
    yield Bad("params", Change(lambda params: params._asdict()), TypeError, "is a dict", kind)
    yield Bad("params", Change(tuple), TypeError, "is a tuple", kind)
    yield Bad("params", CONFIG, TypeError, "is a TransformerConfig", kind)
    yield Bad("params", np.ones((4, 4)), TypeError, "is an array of shape (4, 4)", kind)


PARAMS = {
    "learned_positions_forward": "LearnedPositionsParams",
    "ffn_forward": "FFNParams",
    "layer_norm_forward": "LayerNormParams",
    "multi_head_attention_forward": "AttentionParams",
    "embedding_forward": "EmbeddingParams",
    "tied_logits_forward": "EmbeddingParams",
    "encoder_block_forward": "EncoderBlockParams",
    "encoder_forward": "EncoderParams",
    "decoder_block_forward": "DecoderBlockParams",
    "decoder_forward": "DecoderParams",
    "transformer_forward": "TransformerParams",
    "greedy_decode": "TransformerParams",
    "minilm_input": "MiniLMParams",
    "sentence_embeddings": "MiniLMParams",
    "encoder_block_to_torch": "EncoderBlockParams",
}


def other_cache(name):
    """The cache of the next operation's forward: as many fields as it likes, but not this one's type."""
    forwards = list(FORWARD)
    other = forwards[(forwards.index(name.replace("_backward", "_forward")) + 1) % len(forwards)]
    return call(other, FORWARD[other]())[1]


def refused_backward(name):
    """Another function's cache, none at all, its fields alone; a gradient that is not like the output."""
    dy = next(iter(inspect.signature(getattr(npf, name)).parameters))
    other = other_cache(name)
    yield Bad("cache", other, TypeError, type(other).__name__, "Cache")
    yield Bad("cache", None, TypeError, "is None", "Cache")
    yield Bad("cache", Change(tuple), TypeError, "is a tuple", "Cache")
    yield Bad("cache", Change(lambda cache: cache._asdict()), TypeError, "is a dict", "Cache")
    if name == "cross_entropy_backward":
        return  # its gradient is one number, which may be a Python float
    for value, received, expected in OTHER_KINDS.values():
        yield Bad(dy, value, TypeError, received, expected)
    for value in (NO_AXES, ONE_AXIS_MORE, Change(lambda a: a[:1]), Change(lambda a: a[..., :1])):
        yield Bad(dy, value, ValueError, "has shape (", "like the forward's output")
    yield Bad(dy, as_type(np.float32), TypeError, "has dtype float32", "float64 like the forward's output")


# --- rows for numbers, words, switches, generators ------------------------------------------------


def refused_counts(place, least):
    """What is no integer of at least `least`."""
    an_integer = "an integer"
    yield Bad(place, None, TypeError, "is None", an_integer)
    yield Bad(place, "3", TypeError, "is the string '3'", an_integer)
    yield Bad(place, 2.0, TypeError, "is a float (2.0)", an_integer)
    yield Bad(place, True, TypeError, "is a bool (True)", an_integer)
    yield Bad(place, np.bool_(True), TypeError, "is a NumPy scalar (bool)", an_integer)
    yield Bad(place, np.array(2), TypeError, "is an array of shape ()", an_integer)
    yield Bad(place, least - 1, ValueError, f"is {least - 1}", f"an integer of at least {least}")
    yield Bad(place, 10**400, ValueError, "is 10**400 or so", "an integer between -2**53 and 2**53")


def refused_numbers(place, *out_of_range):
    yield Bad(place, None, TypeError, "is None", "a number")
    yield Bad(place, "0.5", TypeError, "is the string '0.5'", "a number")
    yield Bad(place, False, TypeError, "is a bool (False)", "a number")
    yield Bad(place, 0.5j, TypeError, "is a complex", "a number")
    yield Bad(place, np.array([0.5]), TypeError, "is an array of shape (1,)", "a number")
    for value in (np.nan, np.inf, -np.inf):
        yield Bad(place, value, ValueError, f"is {value}", "a finite number")
    yield Bad(place, 10**400, ValueError, "is 10**400 or so", "a finite number")
    for value, bound in out_of_range:
        yield Bad(place, value, ValueError, f"is {value!r}", bound)


def refused_words(place, word):
    yield Bad(place, None, TypeError, "is None", "one of '")
    yield Bad(place, 1, TypeError, "is an int (1)", "one of '")
    yield Bad(place, word, ValueError, f"is {word!r}", "one of '")
    yield Bad(place, Change(str.upper), ValueError, "is '", "one of '")


def refused_switch(place):
    yield Bad(place, None, TypeError, "is None", "True or False")
    yield Bad(place, 1, TypeError, "is an int (1)", "True or False")
    yield Bad(place, "yes", TypeError, "is the string 'yes'", "True or False")
    yield Bad(place, np.ones((2, 2), bool), TypeError, "is an array of shape (2, 2)", "True or False")


def refused_generators(optional):
    wanted = "None or a numpy.random.Generator" if optional else "a numpy.random.Generator"
    yield Bad("rng", 0, TypeError, "is an int (0)", wanted)
    yield Bad("rng", np.random, TypeError, "is a module", wanted)
    yield Bad("rng", np.random.RandomState(0), TypeError, "is a RandomState", wanted)
    yield Bad("rng", np.random.PCG64(0), TypeError, "is a PCG64", wanted)
    if not optional:
        yield Bad("rng", None, TypeError, "is None", wanted)


def refused_dtypes():
    wanted = "float32 or float64"
    yield Bad("dtype", None, TypeError, "is None", wanted)
    yield Bad("dtype", "x", TypeError, "is the string 'x'", wanted)
    yield Bad("dtype", "(-3,)f8", TypeError, "is the string '(-3,)f8'", wanted)
    yield Bad("dtype", int, TypeError, "is the type int", wanted)
    yield Bad("dtype", np.float16, TypeError, "is the type float16", wanted)
    yield Bad("dtype", np.dtype(complex), TypeError, "is the dtype complex128", wanted)
    yield Bad("dtype", np.ones(2), TypeError, "is an array of shape (2,)", wanted)
    yield Bad("dtype", 64, TypeError, "is an int (64)", wanted)


def refused_libraries():
    yield Bad("xp", None, TypeError, "is None", "an array library")
    yield Bad("xp", "cupy", TypeError, "is the string 'cupy'", "an array library")
    yield Bad("xp", re, TypeError, "is a module", "an array library")


def refused_ids(place):
    yield Bad(place, None, TypeError, "is None", "an array of integers")
    yield Bad(place, Change(np.ndarray.tolist), TypeError, "is a list", "an array of integers")
    yield Bad(place, np.int64(1), TypeError, "is a NumPy scalar (int64)", "an array of integers")
    yield Bad(place, as_type(float), TypeError, "has dtype float64", "an array of integers")
    yield Bad(place, as_type(bool), TypeError, "has dtype bool", "an array of integers")
    yield Bad(place, as_type(str), TypeError, "has dtype <U", "an array of integers")


def refused_id_values(place):
    yield Bad(
        place, Change(lambda ids: ids - VOCAB_SIZE), ValueError, "holds -", f"ids from 0 to {VOCAB_SIZE - 1}"
    )
    yield Bad(
        place, Change(lambda ids: ids + VOCAB_SIZE), ValueError, "holds ", f"ids from 0 to {VOCAB_SIZE - 1}"
    )


def refused_masks(place, *wrong_shapes):
    wanted = "True = may attend"
    yield Bad(place, [[True]], TypeError, "is a list", wanted)
    yield Bad(place, True, TypeError, "is a bool (True)", wanted)
    yield Bad(place, np.bool_(True), TypeError, "is a NumPy scalar (bool)", wanted)
    yield Bad(place, "causal", TypeError, "is the string 'causal'", wanted)
    yield Bad(place, as_type(np.int64), TypeError, "has dtype int64", wanted)
    yield Bad(place, as_type(float), TypeError, "has dtype float64", wanted)
    yield Bad(place, Change(np.ma.asarray), TypeError, "is a MaskedArray", wanted)
    for shape in wrong_shapes:
        yield Bad(
            place, np.ones(shape, bool), ValueError, f"has shape {shape}", "one that broadcasts to (..."
        )


def refused_config(*, has_arrays=True, every_field=False):
    """No config, or one with a field out of its range; beside parameters, a size that is not theirs."""
    yield Bad("config", None, TypeError, "is None", "a TransformerConfig")
    yield Bad("config", CONFIG._asdict(), TypeError, "is a dict", "a TransformerConfig")
    yield Bad("config", tuple(CONFIG), TypeError, "is a tuple", "a TransformerConfig")
    yield Bad("config.n_heads", 3, ValueError, "is 3", "a divisor of d_model=8")
    yield Bad("config.dropout", 1, ValueError, "is 1", "a finite number and >= 0 and < 1")
    yield Bad("config.norm", "sandwich", ValueError, "is 'sandwich'", "one of 'post', 'pre'")
    if has_arrays:
        wider = Change(lambda config: config._replace(d_ff=13))
        yield Bad("config", wider, ValueError, "has shape", "d_ff=13", "ffn.W_1")
    if every_field:
        yield from refused_fields()


def refused_fields():
    for size in ("d_model", "d_ff", "n_heads", "max_length"):
        yield Bad(f"config.{size}", 0, ValueError, "is 0", "an integer of at least 1")
        yield Bad(f"config.{size}", 8.0, TypeError, "is a float (8.0)", "an integer")
    yield Bad("config.n_layers", -1, ValueError, "is -1", "an integer of at least 0")
    yield Bad("config.n_heads", True, TypeError, "is a bool (True)", "an integer")
    yield from refused_words("config.activation", "swish")
    yield from refused_words("config.norm", "sandwich")
    yield from refused_words("config.positions", "clock")
    yield from refused_switch("config.attention_bias")
    yield from refused_numbers("config.eps", (-1e-5, ">= 0"))
    yield from refused_numbers("config.dropout", (-0.1, ">= 0"), (1, "< 1"), (1.0, "< 1"))
    odd_heads = Change(lambda config: config._replace(d_model=6, positions="rope"))
    yield Bad("config", odd_heads, ValueError, "is 'rope'", "an even d_k", "config.positions")


def refused_minilm():
    """Parameters that do not fit the config."""
    yield Bad("params.S", reshaped(2, 7), ValueError, "has shape (2, 7)", "with d_model=8")
    yield Bad("params.embedding.E", reshaped(29, 7), ValueError, "has shape (29, 7)", "with d_model=8")
    yield Bad("params.positions.P", reshaped(20, 7), ValueError, "has shape (20, 7)", "with d_model=8")
    yield Bad("params.norm.gamma", reshaped(7), ValueError, "has shape (7,)", "with d_model=8")
    yield Bad(
        "params.encoder.blocks.1.ffn.W_1", TRANSPOSED, ValueError, "has shape (12, 8)", "with d_model=8"
    )
    yield Bad("params.norm", None, TypeError, "is None", "a LayerNormParams")
    yield from refused_config()


# --- the rows of each function --------------------------------------------------------------------

BAD = {
    "linear_forward": [
        Bad("W", reshaped(4), ValueError, "has shape (4,)", "(d_in, d_out)"),
        Bad("W", reshaped(1, 4, 5), ValueError, "has shape (1, 4, 5)", "(d_in, d_out)"),
        Bad("W", TRANSPOSED, ValueError, "has shape (2, 3, 4)", "(..., d_in) with d_in=5", "x"),
        Bad("W", reshaped(4, 0), ValueError, "has shape (4, 0)", "d_out of at least 1"),
        Bad("W", reshaped(0, 5), ValueError, "has shape (0, 5)", "d_in of at least 1"),
        Bad(
            "W",
            Change(lambda a: a.view(np.matrix)),
            TypeError,
            "is a matrix",
            "an array of float32 or float64",
        ),
        Bad("x", reshaped(2, 3), ValueError, "has shape (2, 3)", "(..., d_in) with d_in=4"),
        Bad("x", NO_AXES, ValueError, "has shape ()", "(..., d_in) with d_in=4"),
        Bad("x", reshaped(2, 0), ValueError, "has shape (2, 0)", "(..., d_in) with d_in=4"),
        Bad("b", reshaped(1), ValueError, "has shape (1,)", "(d_out,) with d_out=5"),
        Bad("b", reshaped(1, 5), ValueError, "has shape (1, 5)", "(d_out,) with d_out=5"),
        Bad("b", reshaped(4), ValueError, "has shape (4,)", "(d_out,) with d_out=5"),
        Bad("b", 0.0, TypeError, "is a float (0.0)", "an array of float32 or float64"),
    ],
    "gelu_forward": [
        *refused_switch("approximate"),
        Bad("approximate", "tanh", TypeError, "'tanh'", "True or"),
    ],
    "softmax_forward": [
        Bad("axis", 2, ValueError, "is 2", "an axis of scores, shape (2, 3)"),
        Bad("axis", -3, ValueError, "is -3", "an axis of scores, shape (2, 3)"),
        Bad("axis", None, TypeError, "is None", "an integer"),
        Bad("axis", (0, 1), TypeError, "is a tuple", "an integer"),
        Bad("axis", 1.0, TypeError, "is a float (1.0)", "an integer"),
        Bad("axis", True, TypeError, "is a bool (True)", "an integer"),
        Bad("scores", NO_AXES, ValueError, "is -1", "an axis of scores, shape ()", "axis"),
    ],
    "dropout_forward": [
        *refused_numbers("rate", (1, "< 1"), (1.0, "< 1"), (1.5, "< 1"), (-0.1, ">= 0")),
        *refused_generators(optional=True),
    ],
    "learned_positions_forward": [
        Bad("x", reshaped(2, 10, 8), ValueError, "has 10 positions", "at most the table's max_length=9"),
        Bad("x", reshaped(2, 6, 7), ValueError, "has shape (2, 6, 7)", "(..., T, d_model) with d_model=8"),
        Bad("x", reshaped(8), ValueError, "has shape (8,)", "(..., T, d_model) with d_model=8"),
        Bad("params.P", reshaped(8), ValueError, "has shape (8,)", "(max_length, d_model)"),
        Bad("params.P", reshaped(1, 9, 8), ValueError, "has shape (1, 9, 8)", "(max_length, d_model)"),
        Bad("params.P", reshaped(9, 0), ValueError, "has shape (9, 0)", "d_model of at least 1"),
        Bad("params.P", TRANSPOSED, ValueError, "has shape (2, 6, 8)", "with d_model=9", "x"),
    ],
    "rope_forward": [
        Bad("x", reshaped(6, 7), ValueError, "is 7", "an even number", "x's last axis"),
        Bad("x", reshaped(8), ValueError, "has shape (8,)", "(..., T, d)"),
        Bad("x", reshaped(6, 0), ValueError, "has shape (6, 0)", "(..., T, d) with d of at least 1"),
        Bad("positions", np.arange(5), ValueError, "has shape (5,)", "(T,) with T=6"),
        Bad("positions", np.arange(6)[None], ValueError, "has shape (1, 6)", "(T,) with T=6"),
        Bad("positions", np.array(0), ValueError, "has shape ()", "(T,) with T=6"),
        Bad("positions", [0, 1, 2, 3, 4, 5], TypeError, "is a list", "an array of numbers"),
        Bad("positions", 3, TypeError, "is an int (3)", "an array of numbers"),
        Bad("positions", np.ones(6, bool), TypeError, "has dtype bool", "an array of numbers"),
        Bad("positions", np.ones(6, complex), TypeError, "has dtype complex128", "an array of numbers"),
        Bad("positions", np.array(["a"] * 6), TypeError, "has dtype <U1", "an array of numbers"),
        *refused_numbers("base", (0, "> 0"), (-1.0, "> 0")),
        *refused_words("layout", "sines first"),
    ],
    "ffn_forward": [
        Bad("x", reshaped(2, 6, 7), ValueError, "has shape (2, 6, 7)", "(..., d_model) with d_model=8"),
        Bad("x", NO_AXES, ValueError, "has shape ()", "(..., d_model) with d_model=8"),
        Bad(
            "params.W_1",
            TRANSPOSED,
            ValueError,
            "has shape (12, 8)",
            "(d_model, d_ff) with d_model=8, d_ff=12",
        ),
        Bad(
            "params.W_2",
            TRANSPOSED,
            ValueError,
            "has shape (8, 12)",
            "(d_ff, d_model) with d_ff=12, d_model=8",
        ),
        Bad("params.W_2", ONE_AXIS_MORE, ValueError, "has shape (1, 12, 8)", "(d_ff, d_model)"),
        Bad("params.b_1", reshaped(8), ValueError, "has shape (8, 12)", "d_ff=8", "params.W_1"),
        Bad("params.b_1", reshaped(1, 12), ValueError, "has shape (1, 12)", "(d_ff,)"),
        Bad("params.b_1", reshaped(0), ValueError, "has shape (0,)", "(d_ff,) with d_ff of at least 1"),
        Bad("params.b_2", reshaped(12), ValueError, "has shape (8, 12)", "d_model=12", "params.W_1"),
        *refused_words("activation", "tanh"),
        *refused_numbers("dropout", (1, "< 1"), (1.0, "< 1"), (-0.5, ">= 0")),
        *refused_generators(optional=True),
    ],
    "layer_norm_forward": [
        Bad("x", reshaped(2, 6, 1), ValueError, "has shape (2, 6, 1)", "(..., d_model) with d_model=8"),
        Bad("x", NO_AXES, ValueError, "has shape ()", "(..., d_model) with d_model=8"),
        Bad("params.gamma", reshaped(1), ValueError, "has shape (8,)", "d_model=1", "params.beta"),
        Bad("params.gamma", reshaped(1, 8), ValueError, "has shape (1, 8)", "(d_model,)"),
        Bad("params.beta", reshaped(7), ValueError, "has shape (7,)", "(d_model,) with d_model=8"),
        Bad("params.beta", NO_AXES, ValueError, "has shape ()", "(d_model,) with d_model=8"),
        *refused_numbers("eps", (-1e-5, ">= 0")),
    ],
    "attention_forward": [
        Bad("q", reshaped(2, 5, 3), ValueError, "has shape (2, 6, 4)", "(..., T_k, d_k) with d_k=3", "k"),
        Bad("q", reshaped(4), ValueError, "has shape (4,)", "(..., T_q, d_k)"),
        Bad("q", reshaped(2, 5, 0), ValueError, "has shape (2, 5, 0)", "d_k of at least 1"),
        Bad("q", reshaped(1, 5, 4), ValueError, "has shape (2, 6, 4)", "the leading axes of q, (1,)", "k"),
        Bad("k", TRANSPOSED, ValueError, "has shape (4, 6, 2)", "(..., T_k, d_k) with d_k=4"),
        Bad("k", reshaped(6, 4), ValueError, "has shape (6, 4)", "the leading axes of q, (2,)"),
        Bad("k", reshaped(2, 7, 4), ValueError, "has shape (2, 6, 3)", "with T_k=7", "v"),
        Bad("v", reshaped(2, 5, 3), ValueError, "has shape (2, 5, 3)", "with T_k=6"),
        Bad("v", reshaped(1, 6, 3), ValueError, "has shape (1, 6, 3)", "the leading axes of q, (2,)"),
        Bad("v", reshaped(2, 6, 0), ValueError, "has shape (2, 6, 0)", "d_v of at least 1"),
        *refused_masks("mask", (6, 5), (5,), (2, 5, 5), (4, 5, 6), (2, 2, 5, 6), (0, 6)),
        Bad("bias", reshaped(6, 5), ValueError, "has shape (6, 5)", "one that broadcasts to (..., T_q, T_k)"),
        Bad("bias", reshaped(4, 5, 6), ValueError, "has shape (4, 5, 6)", "= (2, 5, 6)"),
        Bad("bias", reshaped(1, 2, 5, 6), ValueError, "has shape (1, 2, 5, 6)", "= (2, 5, 6)"),
    ],
    "multi_head_attention_forward": [
        Bad("q", reshaped(2, 5, 7), ValueError, "has shape (2, 5, 7)", "(..., T_q, d_model) with d_model=8"),
        Bad("q", reshaped(8), ValueError, "has shape (8,)", "(..., T_q, d_model) with d_model=8"),
        Bad("k", reshaped(2, 6, 4), ValueError, "has shape (2, 6, 4)", "(..., T_k, d_model) with d_model=8"),
        Bad("k", reshaped(6, 8), ValueError, "has shape (6, 8)", "the leading axes of q, (2,)"),
        Bad("v", reshaped(2, 5, 8), ValueError, "has shape (2, 5, 8)", "with T_k=6, d_model=8"),
        Bad("v", reshaped(1, 6, 8), ValueError, "has shape (1, 6, 8)", "the leading axes of q, (2,)"),
        Bad(
            "params.W_Q", reshaped(8, 4), ValueError, "has shape (8, 4)", "(d_model, d_model) with d_model=8"
        ),
        Bad("params.W_Q", reshaped(0, 0), ValueError, "has shape (0, 0)", "d_model of at least 1"),
        Bad("params.W_K", reshaped(2, 8, 4), ValueError, "has shape (2, 8, 4)", "(d_model, d_model)"),
        Bad("params.W_O", reshaped(4, 8), ValueError, "has shape (4, 8)", "with d_model=8"),
        Bad("params.W_O", None, TypeError, "is None", "an array"),
        Bad("params.b_V", reshaped(2, 4), ValueError, "has shape (2, 4)", "(d_model,) with d_model=8"),
        *refused_counts("n_heads", 1),
        Bad("n_heads", 3, ValueError, "is 3", "a divisor of d_model=8"),
        Bad("n_heads", 16, ValueError, "is 16", "a divisor of d_model=8"),
        Bad(
            "",
            Change(lambda arguments: arguments | {"n_heads": 8, "bias": None}),
            ValueError,
            "is True",
            "an even d_k, d_model=8 and n_heads=8 give 1",
            "rope",
        ),
        *refused_masks("mask", (2, 5, 5), (4, 5, 6), (2, 2, 5, 6), (2, 1, 5, 6), (5, 1, 6)),
        Bad(
            "bias", reshaped(3, 5, 6), ValueError, "has shape (3, 5, 6)", "(..., h, T_q, T_k) = (2, 2, 5, 6)"
        ),
        Bad("bias", reshaped(1, 2, 2, 5, 6), ValueError, "has shape (1, 2, 2, 5, 6)", "(..., h, T_q, T_k)"),
        *refused_switch("rope"),
    ],
    "embedding_forward": [
        *refused_ids("ids"),
        *refused_id_values("ids"),
        Bad("params.E", reshaped(8), ValueError, "has shape (8,)", "(vocab_size, d_model)"),
        Bad("params.E", reshaped(0, 8), ValueError, "has shape (0, 8)", "vocab_size of at least 1"),
    ],
    "tied_logits_forward": [
        Bad("x", reshaped(2, 6, 5), ValueError, "has shape (2, 6, 5)", "(..., d_model) with d_model=8"),
        Bad("params.E", TRANSPOSED, ValueError, "has shape (2, 6, 8)", "(..., d_model) with d_model=5", "x"),
    ],
    "cross_entropy_forward": [
        Bad("logits", NO_AXES, ValueError, "has shape ()", "(..., vocab_size)"),
        Bad("logits", reshaped(2, 6, 0), ValueError, "has shape (2, 6, 0)", "vocab_size of at least 1"),
        Bad("logits", reshaped(2, 5, 5), ValueError, "has shape (2, 6)", "(2, 5)", "targets"),
        *refused_ids("targets"),
        *refused_id_values("targets"),
        Bad("targets", Change(lambda ids: ids.ravel()), ValueError, "has shape (12,)", "(2, 6)"),
        Bad("targets", np.full((2, 6), -1), ValueError, "has no id that counts", "one: there is nothing"),
        Bad("ignore_index", 0.0, TypeError, "is a float (0.0)", "an integer"),
        Bad("ignore_index", True, TypeError, "is a bool (True)", "an integer"),
        *refused_numbers("label_smoothing", (-0.1, ">= 0")),
        Bad("label_smoothing", 1.5, ValueError, "is 1.5", "a number from 0 to 1"),
    ],
    "cross_entropy_backward": [
        Bad("dloss", None, TypeError, "is None", "an array of float32 or float64"),
        Bad("dloss", "1", TypeError, "is the string '1'", "an array of float32 or float64"),
        Bad("dloss", np.ones(1), ValueError, "has shape (1,)", "() like the forward's output"),
        Bad(
            "dloss", np.float32(1), TypeError, "is a NumPy scalar (float32)", "an array of float32 or float64"
        ),
        Bad("dloss", np.array(1), TypeError, "has dtype int64", "float32 or float64"),
        Bad("dloss", True, TypeError, "is a bool (True)", "a number"),
        Bad("dloss", np.nan, ValueError, "is nan", "a finite number"),
    ],
    "encoder_block_forward": [
        Bad("x", reshaped(8), ValueError, "has shape (8,)", "(..., T, d_model) with d_model=8"),
        Bad("x", reshaped(2, 6, 4), ValueError, "has shape (2, 6, 4)", "(..., T, d_model) with d_model=8"),
        Bad("params.attention", None, TypeError, "is None", "an AttentionParams"),
        Bad("params.norm_1", MODEL.encoder.blocks[0].ffn, TypeError, "is a FFNParams", "a LayerNormParams"),
        Bad("params.ffn", (), TypeError, "is a tuple", "a FFNParams"),
        Bad("params.ffn.W_1", TRANSPOSED, ValueError, "has shape (12, 8)", "with d_model=8, d_ff=12"),
        Bad("params.attention.W_K", reshaped(8, 9), ValueError, "has shape (8, 9)", "(d_model, d_model)"),
        Bad("params.norm_2.gamma", reshaped(7), ValueError, "has shape (7,)", "(d_model,) with d_model=8"),
        *refused_masks("mask", (5, 5), (6,) * 4, (3, 6, 6)),
        *refused_generators(optional=True),
    ],
    "encoder_forward": [
        Bad("x", reshaped(8), ValueError, "has shape (8,)", "(..., T, d_model) with d_model=8"),
        Bad("params.blocks", [], TypeError, "is a list", "a tuple"),
        Bad("params.blocks", None, TypeError, "is None", "a tuple"),
        Bad("params.blocks.1", None, TypeError, "is None", "an EncoderBlockParams"),
        Bad(
            "params.blocks.1",
            MODEL.decoder.blocks[0],
            TypeError,
            "is a DecoderBlockParams",
            "an EncoderBlock",
        ),
        Bad(
            "params.blocks.1.ffn.b_2",
            reshaped(12),
            ValueError,
            "has shape (12,)",
            "(d_model,) with d_model=8",
        ),
        Bad("params.norm", (), TypeError, "is a tuple", "a LayerNormParams"),
        *refused_masks("mask", (5, 5), (3, 6, 6)),
        *refused_generators(optional=True),
    ],
    "decoder_block_forward": [
        Bad("x", reshaped(2, 5, 4), ValueError, "has shape (2, 5, 4)", "(..., T, d_model) with d_model=8"),
        Bad(
            "memory", reshaped(2, 6, 4), ValueError, "has shape (2, 6, 4)", "(..., S, d_model) with d_model=8"
        ),
        Bad("memory", reshaped(6, 8), ValueError, "has shape (6, 8)", "the leading axes of x, (2,)"),
        Bad("params.cross_attention", None, TypeError, "is None", "an AttentionParams"),
        *refused_masks("mask", (5, 6), (3, 5, 5)),
        *refused_masks("memory_mask", (6, 5), (2, 2, 5, 6)),
        *refused_generators(optional=True),
    ],
    "decoder_forward": [
        Bad("x", reshaped(8), ValueError, "has shape (8,)", "(..., T, d_model) with d_model=8"),
        Bad("memory", reshaped(3, 6, 8), ValueError, "has shape (3, 6, 8)", "the leading axes of x, (2,)"),
        Bad(
            "params.blocks.0",
            MODEL.encoder.blocks[0],
            TypeError,
            "is an EncoderBlockParams",
            "a DecoderBlock",
        ),
        Bad("params.blocks", [], TypeError, "is a list", "a tuple"),
        *refused_masks("mask", (5, 6)),
        *refused_masks("memory_mask", (5, 5)),
        *refused_generators(optional=True),
    ],
    "transformer_forward": [
        *refused_ids("source_ids"),
        *refused_id_values("source_ids"),
        *refused_ids("target_ids"),
        *refused_id_values("target_ids"),
        Bad("source_ids", np.array(1), ValueError, "has shape ()", "(..., T)"),
        Bad(
            "source_ids",
            np.ones((2, 10), int),
            ValueError,
            "has 10 positions",
            "at most the learned table's max_length=9",
        ),
        Bad(
            "target_ids",
            np.ones((3, 5), int),
            ValueError,
            "has shape (3, 5)",
            "the leading axes of source_ids, (2,)",
        ),
        Bad("params.embedding", None, TypeError, "is None", "an EmbeddingParams"),
        Bad("params.encoder", MODEL.decoder, TypeError, "is a DecoderParams", "an EncoderParams"),
        Bad("params.decoder", (), TypeError, "is a tuple", "a DecoderParams"),
        Bad("params.source_positions", None, TypeError, "is None", "a LearnedPositionsParams"),
        Bad("params.target_positions.P", TRANSPOSED, ValueError, "has shape (8, 9)", "with d_model=8"),
        Bad("config.positions", "rope", ValueError, "is a table", "None", "params.source_positions"),
        Bad("padding_id", 0.0, TypeError, "is a float (0.0)", "an integer"),
        Bad("padding_id", False, TypeError, "is a bool (False)", "an integer"),
        *refused_generators(optional=True),
    ],
    "greedy_decode": [
        *refused_ids("source_ids"),
        *refused_id_values("source_ids"),
        *refused_counts("start_id", 0),
        *refused_counts("stop_id", 0),
        Bad("start_id", VOCAB_SIZE, ValueError, f"is {VOCAB_SIZE}", f"an id from 0 to {VOCAB_SIZE - 1}"),
        Bad("stop_id", VOCAB_SIZE, ValueError, f"is {VOCAB_SIZE}", f"an id from 0 to {VOCAB_SIZE - 1}"),
        *refused_counts("max_length", 1),
        Bad("max_length", 10, ValueError, "is 10", "at most the learned table's 9"),
        Bad("padding_id", "0", TypeError, "is the string '0'", "an integer"),
    ],
    "positional_encoding": [
        *refused_counts("n", 0),
        *refused_counts("d_model", 1),
        *refused_numbers("base", (0, "> 0"), (-10000.0, "> 0")),
        Bad("start", 0.5, TypeError, "is a float (0.5)", "an integer"),
        Bad("start", None, TypeError, "is None", "an integer"),
        Bad("start", -(10**400), ValueError, "is -10**400 or so", "an integer between -2**53 and 2**53"),
        *refused_words("layout", "sines first"),
        *refused_dtypes(),
        *refused_libraries(),
    ],
    "angular_frequencies": [*refused_counts("d_model", 1), *refused_numbers("base", (0, "> 0"), (-1, "> 0"))],
    "wavelengths": [*refused_counts("d_model", 1), *refused_numbers("base", (0, "> 0"), (-1, "> 0"))],
    "shift_matrix": [
        *refused_numbers("k"),
        *refused_counts("d_model", 1),
        Bad("d_model", 5, ValueError, "is 5", "an even number"),
        *refused_numbers("base", (0.0, "> 0")),
    ],
    "alibi_bias": [
        *refused_counts("n_heads", 1),
        *refused_counts("T_q", 0),
        *refused_counts("T_k", 0),
        *refused_dtypes(),
        *refused_libraries(),
    ],
    "init_ffn": [
        *refused_counts("d_model", 1),
        *refused_counts("d_ff", 1),
        *refused_generators(optional=False),
        *refused_dtypes(),
    ],
    "init_layer_norm": [*refused_counts("d_model", 1), *refused_dtypes()],
    "init_attention": [
        *refused_counts("d_model", 1),
        *refused_generators(optional=False),
        *refused_switch("bias"),
        *refused_dtypes(),
    ],
    "init_embedding": [
        *refused_counts("vocab_size", 1),
        *refused_counts("d_model", 1),
        *refused_generators(optional=False),
        *refused_dtypes(),
    ],
    "init_transformer": [*refused_counts("vocab_size", 1)],
    "split_heads": [
        Bad("x", reshaped(8), ValueError, "has shape (8,)", "(..., T, d_model)"),
        Bad("x", reshaped(6, 0), ValueError, "has shape (6, 0)", "d_model of at least 1"),
        *refused_counts("n_heads", 1),
        Bad("n_heads", 5, ValueError, "is 5", "a divisor of d_model=8"),
    ],
    "merge_heads": [
        Bad("x", reshaped(6, 8), ValueError, "has shape (6, 8)", "(..., h, T, d_k)"),
        Bad("x", reshaped(0, 6, 4), ValueError, "has shape (0, 6, 4)", "h of at least 1"),
        Bad("x", reshaped(2, 6, 0), ValueError, "has shape (2, 6, 0)", "d_k of at least 1"),
    ],
    "causal_mask": [
        *refused_counts("T_q", 0),
        *(bad for bad in refused_counts("T_k", 0) if bad.value is not None),
        *refused_libraries(),
    ],
    "padding_mask": [
        *refused_ids("ids"),
        Bad("ids", np.array(1), ValueError, "has shape ()", "(..., T_k)"),
        Bad("padding_id", None, TypeError, "is None", "an integer"),
        Bad("padding_id", "<pad>", TypeError, "is the string '<pad>'", "an integer"),
        Bad("padding_id", 0.0, TypeError, "is a float (0.0)", "an integer"),
    ],
    "sgd_update": [
        *refused_numbers("learning_rate", (-0.1, ">= 0")),
        Bad("grads", None, ValueError, "is not built like params", "the same leaves"),
        Bad("grads.beta", None, ValueError, "is not built like params", "the same leaves", "grads"),
        Bad("grads.beta", reshaped(1), ValueError, "has shape (1,)", "(3,)"),
        Bad("grads.gamma", as_type(np.float32), TypeError, "has dtype float32", "float64"),
        Bad("grads.gamma", [0.0, 0.0, 0.0], TypeError, "is a list", "an array of float32 or float64"),
        Bad("params", {"W": np.ones(2)}, TypeError, "is a dict", "an array of float32 or float64"),
    ],
    "adam_init": [Bad("params", [np.ones(2)], TypeError, "is a list", "an array of float32 or float64")],
    "adam_update": [
        *(
            bad
            for beta in ("beta_1", "beta_2")
            for bad in refused_numbers(beta, (1.0, "< 1"), (-0.1, ">= 0"))
        ),
        *(
            bad
            for rate in ("learning_rate", "eps", "weight_decay")
            for bad in refused_numbers(rate, (-1.0, ">= 0"))
        ),
        Bad("state", None, TypeError, "is None", "an AdamState"),
        Bad("state", (0, (), ()), TypeError, "is a tuple", "an AdamState"),
        Bad("state.step", -1, ValueError, "is -1", "an integer of at least 0"),
        Bad("state.step", 1.0, TypeError, "is a float (1.0)", "an integer"),
        Bad("state.m", None, ValueError, "is not built like params", "the same leaves", "m"),
        Bad("state.v.beta", reshaped(2), ValueError, "has shape (2,)", "(3,)", "v.beta"),
        Bad("grads.beta", reshaped(1, 3), ValueError, "has shape (1, 3)", "(3,)"),
        Bad(
            "grads.beta",
            np.array([0, np.nan, 0]),
            ValueError,
            "holds NaN",
            "finite ones",
            looks_at_values=True,
        ),
        Bad(
            "grads.beta",
            np.array([0, np.inf, 0]),
            ValueError,
            "holds NaN",
            "finite ones",
            looks_at_values=True,
        ),
    ],
    "warmup_learning_rate": [
        *refused_counts("step", 1),
        *refused_counts("d_model", 1),
        *refused_counts("warmup_steps", 1),
    ],
    "gradcheck": [
        Bad("forward", None, TypeError, "is None", "a function"),
        Bad("backward", np.ones(2), TypeError, "is an array of shape (2,)", "a function"),
        Bad("args", (), TypeError, "is a floating array or a tree", "nothing to compare", "no argument"),
        Bad(
            "args",
            (np.ones(3, np.int64),),
            TypeError,
            "is a floating array",
            "nothing to compare",
            "no argument",
        ),
        Bad("args", (np.ones(3, np.float32),), TypeError, "has dtype float32", "float64", "z"),
        Bad(
            "args",
            (np.array([0.0, np.nan]),),
            ValueError,
            "has entries that are not finite",
            "there is no slope there",
            "z",
            looks_at_values=True,
        ),
        *refused_numbers("tolerance", (0, "> 0"), (-1e-8, "> 0")),
        *refused_generators(optional=True),
    ],
    "order_sensitivity": [
        Bad("f", None, TypeError, "is None", "a function"),
        Bad("f", "tanh", TypeError, "is the string 'tanh'", "a function"),
        Bad("f", lambda x: 1.0, TypeError, "is a float (1.0)", "an array", "f(x)"),
        Bad("f", lambda x: (x, None), TypeError, "is a tuple", "an array", "f(x)"),
        Bad("f", lambda x: x[..., 0, :], ValueError, "has shape (2, 8)", "(2, 6)", "f(x)"),
        Bad("f", lambda x: x[0], ValueError, "has shape (6, 8)", "(2, 6)", "f(x)"),
        Bad("f", lambda x: x[..., :0], ValueError, "has shape (2, 6, 0)", "(2, 6)", "f(x)"),
        Bad("x", reshaped(6), ValueError, "has shape (6,)", "(..., T, d)"),
        Bad("x", reshaped(1, 8), ValueError, "has shape (1, 8)", "two positions"),
        Bad("x", reshaped(0, 6, 8), ValueError, "has shape (0, 6, 8)", "two positions"),
        *refused_generators(optional=False),
    ],
    "token_similarity": [Bad("x", reshaped(8), ValueError, "has shape (8,)", "(..., T, d)")],
    "dead_units": [
        Bad("hidden", NO_AXES, ValueError, "has shape ()", "(..., d_ff)"),
        Bad("hidden", reshaped(0, 8), ValueError, "has shape (0, 8)", "at least one token"),
    ],
    "tokenize": [
        Bad("sentence", None, TypeError, "is NoneType", "a string"),
        Bad("sentence", ["dog"], TypeError, "is list", "a string"),
        Bad("sentence", b"dog", TypeError, "is bytes", "a string"),
    ],
    "build_vocabulary": [
        Bad("sentences", None, TypeError, "is None", "a list of lists of words"),
        Bad("sentences", "dog bites", TypeError, "is the string 'dog bites'", "a list of lists of words"),
        Bad("sentences", 3, TypeError, "is an int (3)", "a list of lists of words"),
        Bad("sentences", ["dog"], TypeError, "is the string 'dog'", "a list of words", "a sentence"),
        Bad("sentences", [[1, 2]], TypeError, "holds an int (1)", "words", "a sentence"),
        Bad("sentences", [None], TypeError, "is None", "a list of words", "a sentence"),
        Bad("special", "<pad>", TypeError, "is the string '<pad>'", "a list of words"),
        Bad("special", None, TypeError, "is None", "a list of words"),
        Bad("special", [0], TypeError, "holds an int (0)", "words"),
    ],
    "encode": [
        Bad("sentences", "dog", TypeError, "is the string 'dog'", "a list of lists of words"),
        Bad("sentences", [["cat"]], ValueError, "'cat' is not in", "the vocabulary of 3 words", "'cat'"),
        Bad("sentences", [3], TypeError, "is an int (3)", "a list of words", "a sentence"),
        Bad("vocabulary", ["dog"], TypeError, "is a list", "a dict of words and ids"),
        Bad("vocabulary", None, TypeError, "is None", "a dict of words and ids"),
        Bad(
            "vocabulary",
            {"dog": "1", "bites": 2},
            TypeError,
            "is the string '1'",
            "an integer",
            "vocabulary['dog']",
        ),
        Bad("vocabulary", {"dog": 1, "bites": 2}, ValueError, "'<pad>' is not in", "of 2 words", "'<pad>'"),
    ],
    "decode": [
        *refused_ids("ids"),
        Bad("ids", np.arange(3), ValueError, "has shape (3,)", "(B, T)"),
        Bad("ids", np.array([[7]]), ValueError, "id 7 is not in", "the vocabulary of 3 words", "id 7"),
        Bad("vocabulary", ["dog"], TypeError, "is a list", "a dict of words and ids"),
        Bad("vocabulary", {"dog": None}, TypeError, "is None", "an integer", "vocabulary['dog']"),
    ],
    "load_minilm": [
        Bad("path", 3, TypeError, "is an int (3)", "a string or a pathlib.Path"),
        Bad("path", b"minilm", TypeError, "is a bytes", "a string or a pathlib.Path"),
        *refused_dtypes(),
    ],
    "minilm_input": [
        *refused_ids("ids"),
        Bad("ids", np.array([[29]]), ValueError, "holds 29", "ids from 0 to 28, the vocabulary"),
        Bad("ids", np.array([[-1]]), ValueError, "holds -1", "ids from 0 to 28, the vocabulary"),
        Bad("ids", np.array(1), ValueError, "has shape ()", "(..., T)"),
        Bad("ids", np.ones((2, 21), int), ValueError, "has 21 tokens", "at most 20, the positions that were"),
        *refused_minilm(),
    ],
    "sentence_embeddings": [
        Bad("texts", "dog", TypeError, "is the string 'dog'", "a list of strings"),
        Bad("texts", ["dog", None], TypeError, "is None", "a string", "texts[1]"),
        Bad(
            "texts",
            ["\udc80"],
            ValueError,
            "holds half of a surrogate pair",
            "text that UTF-8 can",
            "texts[0]",
        ),
        Bad(
            "texts",
            ["a" * 19],
            ValueError,
            "has 21 tokens",
            "at most 20, the positions that were",
            "texts[0]",
        ),
        Bad("tokenizer", None, TypeError, "is None", "the one of load_minilm"),
        Bad("tokenizer", str.split, TypeError, "is a method_descriptor", "the one of load_minilm"),
        *refused_switch("unit"),
        *refused_minilm(),
    ],
    "encoder_block_from_torch": [
        Bad("state", None, TypeError, "is None", "a dict of names and arrays"),
        Bad("state", {}, ValueError, "has no '", "the 12 arrays of one layer with biases"),
        Bad(
            "state",
            Change(lambda state: state | {"norm3.bias": None}),
            ValueError,
            "holds 'norm3.bias'",
            "the 12",
        ),
        Bad(
            "state",
            Change(lambda state: state | {"norm2.bias": [0.0]}),
            TypeError,
            "is a list",
            "an array of",
        ),
    ],
    "encoder_block_to_torch": [
        Bad("params.ffn.W_1", TRANSPOSED, ValueError, "has shape (12, 8)", "with d_model=8, d_ff=12"),
        Bad("params.attention.b_K", reshaped(4), ValueError, "has shape (4,)", "with d_model=8"),
        Bad("params.ffn", None, TypeError, "is None", "a FFNParams"),
    ],
    "tree_map": [
        Bad("f", None, TypeError, "is None", "a function"),
        Bad("tree", [np.ones(2)], ValueError, "differ at the root: a leaf (list) and", "", "the trees"),
        Bad("tree", (None,), ValueError, "differ at 0: None and a leaf (ndarray)", "", "the trees"),
        Bad(
            "trees",
            ((np.ones(2), np.ones(2)),),
            ValueError,
            "differ at the root: a tuple of 1",
            "",
            "the trees",
        ),
        Bad("trees", (([1, 2],),), TypeError, "is a list", "an array, None or a tuple of trees", "0"),
        Bad("trees", (({},),), TypeError, "is a dict", "an array, None or a tuple of trees", "0"),
    ],
    "to_backend": [
        Bad("tree", [np.ones(2)], TypeError, "is a list", "an array, None or a tuple of trees", "a tree"),
        Bad("backend", None, TypeError, "is NoneType", "'numpy' or 'cupy'"),
        Bad("backend", np, TypeError, "is module", "'numpy' or 'cupy'"),
        Bad("backend", "torch", ValueError, "is 'torch'", "'numpy' or 'cupy'"),
    ],
    "to_numpy": [
        Bad(
            "tree", {"W": np.ones(2)}, TypeError, "is a dict", "an array, None or a tuple of trees", "a tree"
        ),
        Bad("tree", ([1.0],), TypeError, "is a list", "an array, None or a tuple of trees", "0"),
    ],
    "table_1": [
        *refused_counts("n", 1),
        *refused_counts("d", 1),
        *refused_counts("k", 2),
        *refused_counts("r", 1),
    ],
    "encoder_block_multiplications": [*refused_counts("n", 0), *refused_config(has_arrays=False)],
    "score_cells": [*refused_counts("n", 0), *refused_counts("n_heads", 1)],
    "parameter_count": [*refused_config(has_arrays=False), *refused_counts("vocab_size", 1)],
    "training_bytes": [
        *refused_config(has_arrays=False),
        *refused_counts("vocab_size", 1),
        *refused_dtypes(),
    ],
    "encoder_block_cache_bytes": [
        *refused_counts("B", 0),
        *refused_counts("T", 0),
        *refused_config(has_arrays=False),
        *refused_dtypes(),
    ],
    "leaves": [],
    "save": [
        Bad("path", None, TypeError, "is None", "a string or a pathlib.Path"),
        Bad("path", 3, TypeError, "is an int (3)", "a string or a pathlib.Path"),
        Bad("path", "", ValueError, "is ''", "the name of a file"),
        Bad("path", "a\0b", ValueError, "is 'a", "the name of a file"),
        Bad("tree", ("W",), TypeError, "is a leaf (str)", "an array of numbers", "0"),
        Bad("tree", {"W": np.ones(2)}, TypeError, "is a leaf (dict)", "an array of numbers", "the tree"),
        Bad("tree", (np.ones(2, complex),), TypeError, "is a leaf (ndarray)", "an array of numbers", "0"),
        Bad("tree", (np.ma.ones(2),), TypeError, "is a leaf (MaskedArray)", "an array of numbers", "0"),
    ],
    "load": [
        Bad("path", None, TypeError, "is None", "a string or a pathlib.Path"),
        Bad("path", b"saved.npz", TypeError, "is a bytes", "a string or a pathlib.Path"),
        Bad("path", ".", ValueError, "is '.'", "the name of a file"),
        Bad("like", [np.ones(2)], TypeError, "is a leaf (list)", "an array of numbers", "the tree"),
        Bad("like", (np.ones(3),), ValueError, "has shape (2,)", "(3,) and float64", "0"),
        Bad("like", (np.ones(2, np.float32),), ValueError, "has shape (2,)", "(2,) and float32", "0"),
        Bad("like", (np.ones(2), np.ones(2)), ValueError, "is missing from", "saved.npz", "1"),
        Bad("like", (None,), ValueError, "is not in `like`", "saved.npz", "0"),
    ],
}

for _name in BACKWARD:
    BAD[_name] = [*refused_backward(_name), *BAD.get(_name, [])]
for _name, _places in FLOAT_ARRAYS.items():
    BAD[_name] = [*required_floats(_places), *BAD.get(_name, [])]
for _name, _blamed in MIXED.items():
    BAD[_name] += one_dtype(_blamed)
for _name, _kind in PARAMS.items():
    BAD[_name] += refused_params(_kind)
for _name in ("encoder_block", "encoder", "decoder_block", "decoder", "transformer"):
    BAD[f"{_name}_forward"] += refused_config(every_field=_name == "transformer")
    BAD[f"init_{_name}"] = [
        *BAD.get(f"init_{_name}", []),
        *refused_config(has_arrays=False, every_field=_name == "encoder_block"),
        *refused_generators(optional=False),
        *refused_dtypes(),
    ]
BAD["greedy_decode"] += refused_config()

ROWS = [
    pytest.param(name, bad, id=f"{name}-{bad.place}-{i}")
    for name, rows in BAD.items()
    for i, bad in enumerate(rows)
]

# Messages that say what is wrong without a "; expected": what differs between two trees, a file and a tree, a
# word and a vocabulary.
OTHER_WORDING = {"gradcheck", "load", "encode", "decode", "tree_map"}


# --- what a refusal is ----------------------------------------------------------------------------


class Arithmetic(AssertionError):
    """NumPy was asked to calculate."""


class Spy(np.ndarray):
    """An array that can be looked at (shape, dtype) and cut, but not calculated with."""

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        raise Arithmetic(ufunc.__name__)

    def __array_function__(self, function, types, args, options):
        raise Arithmetic(function.__name__)


def spied(array):
    floats = type(array) is np.ndarray and array.dtype in (np.float32, np.float64)
    return array.view(Spy) if floats else array


@pytest.fixture(autouse=True, scope="module")
def folder(tmp_path_factory):
    """Where files are written."""
    with contextlib.chdir(tmp_path_factory.mktemp("files")):
        yield


@functools.cache
def raise_lines(path):
    """The lines of a module where a raise statement stands."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    return {line for node in nodes for line in range(node.lineno, node.end_lineno + 1)}


def is_ours(error):
    """Raised on purpose, by a raise of this package, and not while another error was handled."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    inside = PACKAGE in Path(frame.filename).parents and frame.lineno in raise_lines(frame.filename)
    return inside and (error.__context__ is None or error.__suppress_context__)


def refusal(name, arguments):
    """The TypeError or ValueError that the call ends in: ours, and raised before anything was changed."""
    before = fingerprint(arguments)
    with pytest.raises((TypeError, ValueError)) as caught:
        call(name, arguments)
    assert fingerprint(arguments) == before
    assert is_ours(caught.value), f"not ours: {caught.value}"
    return caught.value


def spoilt(name, place, value):
    change = value.f if isinstance(value, Change) else lambda _: value
    return replaced(CALLS[name](), place, change)


@pytest.mark.parametrize(("name", "bad"), ROWS)
def test_bad_input_is_refused(name, bad):
    arguments = spoilt(name, bad.place, bad.value)
    error = refusal(name, arguments)
    assert type(error) is bad.error
    message = str(error)
    function, _, words = message.partition(": ")
    assert function == name
    received, _, expected = words.partition("; expected ")
    assert (bad.blamed or bad.place) in received
    assert bad.received in received
    assert bad.expected in (expected if name not in OTHER_WORDING else words)
    assert bool(expected) or name in OTHER_WORDING
    assert "\n" not in message and len(message) < 300
    if not bad.looks_at_values:
        assert type(refusal(name, with_arrays(arguments, spied))) is bad.error


# --- the table itself -----------------------------------------------------------------------------


def test_the_table_is_long():
    assert len(ROWS) >= 200


UNREFUSING = {"array_module", "leaves", "available_backends"}  # they take anything, or nothing at all


def test_every_public_function_and_argument_has_rows():
    functions = {name for name in npf.__all__ if inspect.isfunction(getattr(npf, name))}
    assert functions - UNREFUSING == set(BAD) - UNREFUSING
    for name in sorted(functions - UNREFUSING):
        parameters = set(inspect.signature(getattr(npf, name)).parameters) - {"kwargs"}
        places = {bad.place.split(".")[0] for bad in BAD[name]} - {""}
        assert parameters == places, name


@pytest.mark.parametrize("name", CALLS)
def test_the_call_is_valid_before_it_is_spoilt(name):
    call(name, CALLS[name]())


VIEWS = {"split_heads", "merge_heads"}  # they calculate nothing


@pytest.mark.parametrize("name", [name for name in FLOAT_ARRAYS if name not in VIEWS] + list(BACKWARD))
def test_a_spy_notices_the_arithmetic_of_a_valid_call(name):
    with pytest.raises(Arithmetic):
        call(name, with_arrays(CALLS[name](), spied))


def test_an_error_of_numpy_or_python_is_not_ours():
    for f in (np.add, lambda a: a):
        with pytest.raises((TypeError, ValueError)) as caught:
            npf.tree_map(f, np.ones(2), np.ones(3))
        assert not is_ours(caught.value)


# --- the sweep: odd values everywhere -------------------------------------------------------------

ODD = {
    "None": None,
    "text": "x",
    "3": 3,
    "0": 0,
    "-1": -1,
    "2.5": 2.5,
    "True": True,
    "nan": np.nan,
    "10**5000": 10**5000,
    "[]": [],
    "{}": {},
    "()": (),
    "([1],)": ([1],),
    "bytes": b"x",
    "object": object(),
    "function": lambda: 0,
    "type": int,
    "float64(1)": np.float64(1),
    "float32(1)": np.float32(1),
    "uint8(2)": np.uint8(2),
    "bool_": np.bool_(True),
    "0-d": np.array(1.0),
    "0-d int": np.array(1),
    "ints": np.ones((2, 6, 8), int),
    "empty": np.ones(0),
    "2x6x0": np.ones((2, 6, 0)),
    "5-d": np.ones((1, 2, 2, 6, 8)),
    "float16": np.ones((2, 6, 8), np.float16),
    "complex": np.ones((2, 6, 8), complex),
    "objects": np.array([None, 1], object),
    "texts": np.array(["a", "b"]),
    "records": np.zeros(3, [("a", float)]),
    "dates": np.zeros((2, 6, 8), "M8[s]"),
    "masked": np.ma.ones((2, 6, 8)),
    "matrix": np.ones((2, 8)).view(np.matrix),
}


def places(tree, path=""):
    """Every argument and every field of the parameters and the config in them; a cache is taken as it is."""
    if isinstance(tree, dict) and not path:
        for name, value in tree.items():
            yield from places(value, name)
    else:
        yield path
        inside = path.startswith(("params", "config", "state", "grads")) and isinstance(tree, tuple)
        names = getattr(tree, "_fields", range(len(tree))) if inside else ()
        for name, branch in zip(names, tree if inside else (), strict=True):
            yield from places(branch, f"{path}.{name}")


NUMBERS = "3, 2.5, float64(1), float32(1), uint8(2)"
COUNT, COUNT_0 = "3, uint8(2)", "3, 0, uint8(2)"
ANY_SHAPE = "0-d, empty, 2x6x0, 5-d"
LEAVES = f"None, (), {ANY_SHAPE}"


def without_biases(*attentions):
    return {f"{attention}.b_{letter}": "None" for attention in attentions for letter in "QKVO"}


OPTIONS = {
    "config.n_heads": "uint8(2)",
    "config.n_layers": COUNT_0,
    "config.eps": f"{NUMBERS}, 0",
    "config.dropout": "0",
    "config.attention_bias": "True",
    "config.max_length": COUNT,
}
SIZES = {**OPTIONS, "config.d_model": "uint8(2)", "config.d_ff": COUNT}
ENCODER = without_biases("blocks.0.attention", "blocks.1.attention") | {"blocks": "()", "norm": "None"}
DECODER = without_biases(
    *(f"blocks.{i}.{attention}" for i in range(2) for attention in ("self_attention", "cross_attention"))
) | {"blocks": "()", "norm": "None"}
FORWARD_OPTIONS = {**OPTIONS, "mask": "None", "rng": "None"}


def inside(place, welcome):
    return {f"{place}.{name}": values for name, values in welcome.items()}


STACKS = {**inside("params.encoder", ENCODER), **inside("params.decoder", DECODER)}

WELCOME = {  # the odd values that are no mistake
    "linear_forward": {"b": "None"},
    "relu_forward": {"z": ANY_SHAPE},
    "gelu_forward": {"z": ANY_SHAPE, "approximate": "True"},
    "softmax_forward": {"scores": "empty, 2x6x0, 5-d", "axis": "0, -1"},
    "dropout_forward": {"x": ANY_SHAPE, "rate": "0", "rng": "None"},
    "learned_positions_forward": {"x": "5-d"},
    "rope_forward": {"x": "5-d", "positions": "None", "base": NUMBERS},
    "ffn_forward": {"x": "5-d", "dropout": "0", "rng": "None"},
    "layer_norm_forward": {"x": "5-d", "eps": f"{NUMBERS}, 0"},
    "attention_forward": {"mask": "None", "bias": "None, 0-d"},
    "multi_head_attention_forward": {
        **without_biases("params"),
        "n_heads": "uint8(2)",
        "mask": "None",
        "bias": "None, 0-d",
        "rope": "True",
    },
    "embedding_forward": {"ids": "0-d int, ints"},
    "tied_logits_forward": {"x": "5-d"},
    "cross_entropy_forward": {
        "ignore_index": f"{COUNT_0}, None, -1",
        "label_smoothing": "0, float64(1), float32(1)",
    },
    "cross_entropy_backward": {"dloss": "3, 0, -1, 2.5, float64(1), 0-d"},
    "encoder_block_forward": {"x": "5-d", **without_biases("params.attention"), **FORWARD_OPTIONS},
    "encoder_forward": {"x": "5-d", **inside("params", ENCODER), **FORWARD_OPTIONS},
    "decoder_block_forward": {
        **without_biases("params.self_attention", "params.cross_attention"),
        **FORWARD_OPTIONS,
        "memory_mask": "None",
    },
    "decoder_forward": {**inside("params", DECODER), **FORWARD_OPTIONS, "memory_mask": "None"},
    "transformer_forward": {**STACKS, **OPTIONS, "padding_id": f"{COUNT_0}, None", "rng": "None"},
    "greedy_decode": {
        **STACKS,
        **OPTIONS,
        "source_ids": "ints",
        "start_id": COUNT_0,
        "stop_id": COUNT_0,
        "max_length": COUNT,
        "padding_id": f"{COUNT_0}, None",
    },
    "positional_encoding": {"n": COUNT_0, "d_model": COUNT, "base": NUMBERS, "start": f"{COUNT_0}, -1"},
    "angular_frequencies": {"d_model": COUNT, "base": NUMBERS},
    "wavelengths": {"d_model": COUNT, "base": NUMBERS},
    "shift_matrix": {"k": f"{NUMBERS}, 0, -1", "d_model": "uint8(2)", "base": NUMBERS},
    "alibi_bias": {"n_heads": COUNT, "T_q": COUNT_0, "T_k": COUNT_0},
    "init_ffn": {"d_model": COUNT, "d_ff": COUNT},
    "init_layer_norm": {"d_model": COUNT},
    "init_attention": {"d_model": COUNT, "bias": "True"},
    "init_embedding": {"vocab_size": COUNT, "d_model": COUNT},
    **dict.fromkeys(("init_encoder_block", "init_encoder", "init_decoder_block", "init_decoder"), SIZES),
    "init_transformer": {"vocab_size": COUNT, **SIZES},
    "split_heads": {"x": "5-d", "n_heads": "uint8(2)"},
    "merge_heads": {"x": "5-d"},
    "causal_mask": {"T_q": COUNT_0, "T_k": f"{COUNT_0}, None"},
    "padding_mask": {"ids": "ints", "padding_id": f"{COUNT_0}, -1"},
    "sgd_update": {"learning_rate": f"{NUMBERS}, 0"},
    "adam_init": dict.fromkeys(("params", "params.gamma", "params.beta"), LEAVES),
    "adam_update": {
        "state.step": COUNT_0,
        **dict.fromkeys(("learning_rate", "eps", "weight_decay"), f"{NUMBERS}, 0"),
        **dict.fromkeys(("beta_1", "beta_2"), "0"),
    },
    "warmup_learning_rate": dict.fromkeys(("step", "d_model", "warmup_steps"), COUNT),
    "gradcheck": {"args": ANY_SHAPE, "rng": "None", "tolerance": NUMBERS},
    "order_sensitivity": {"x": "5-d"},
    "token_similarity": {"x": "5-d"},
    "dead_units": {"hidden": "5-d"},
    "tokenize": {"sentence": "text"},
    "build_vocabulary": {"sentences": "[], {}, ()", "special": "[], ()"},
    "encode": {"sentences": "[], {}, ()"},
    "table_1": dict.fromkeys("ndkr", COUNT),
    "encoder_block_multiplications": {"n": COUNT_0, **SIZES},
    "score_cells": {"n": COUNT_0, "n_heads": COUNT},
    "parameter_count": {"vocab_size": COUNT, **SIZES},
    "training_bytes": {"vocab_size": COUNT, **SIZES},
    "encoder_block_cache_bytes": {"B": COUNT_0, "T": COUNT_0, **SIZES},
    "minilm_input": {"ids": "ints", **inside("params.encoder", ENCODER), **OPTIONS},
    "sentence_embeddings": {
        "texts": "[], ()",
        "unit": "True",
        **inside("params.encoder", ENCODER),
        **OPTIONS,
    },
    "encoder_block_to_torch": without_biases("params.attention"),
    "save": {
        "path": "text",
        "tree": f"3, 0, -1, 2.5, True, nan, float64(1), {LEAVES}, 0-d int, ints, float16",
    },
    "load": {"path": "text"},
}
UNCARING = {"array_module", "leaves", "to_backend", "to_numpy"}  # they pass on what they do not know
SWEPT = [
    name for name in CALLS if name not in UNCARING | {"load_minilm"}
]  # tests/published/test_minilm.py has its folders


@pytest.mark.parametrize("name", SWEPT)
def test_odd_values_are_refused_or_welcome(name):
    arguments = CALLS[name]()
    taken = defaultdict(set)
    for place in places(arguments):
        for odd, value in ODD.items():
            if (place in ("f", "forward", "backward") and callable(value)) or place == "kwargs":
                continue  # called by us, it raises its own errors; ** is Python's own business
            odd_value = (value,) if place in ("trees", "args") else value
            names = (f"{name}: ", "relu_forward: ") if place == "args" else f"{name}: "  # gradcheck calls it
            try:
                call(name, replaced(arguments, place, lambda _, value=odd_value: value))
            except (TypeError, ValueError) as error:
                assert is_ours(error) and str(error).startswith(names), (place, odd, error)
                assert len(str(error)) < 300 and "\n" not in str(error), (place, odd, error)
            else:
                taken[place].add(odd)
    expected = {place: set(values.split(", ")) for place, values in WELCOME.get(name, {}).items()}
    assert taken == expected
