"""Bad input is refused before any arithmetic and in our own words.

Three ways to ask: what bad_calls.py makes from the signatures, place by place; a table of messages word for
word, with the mistakes that no single signature knows; and odd values in every argument of the few functions
that do without the door's checks, which know the few that are welcome.
"""

from collections import defaultdict
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from bad_calls import (
    CHECKED,
    Change,
    as_type,
    entry,
    faults_of,
    first_of_their_kind,
    spoilt,
    tellers,
    valid_places,
)
from valid_calls import (
    CALLS,
    CONFIG,
    ELSEWHERE,
    MODEL,
    UNREADABLE,
    call,
    drawn,
    fingerprint,
    replaced,
    with_arrays,
)

import npformer as npf

# --- from the signatures --------------------------------------------------------------------------


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


def refusal(name, arguments):
    """The TypeError or ValueError that a call ends in, or None; a refused call has changed nothing."""
    before = fingerprint(arguments)
    try:
        call(name, arguments)
    except (TypeError, ValueError) as error:
        assert fingerprint(arguments) == before, "changed before it was refused"
        assert error.__context__ is None or error.__suppress_context__, "another error shows behind it"
        return error
    return None


def answer(place, fault):
    """What is wrong with the answer to a bad call; nothing when it is refused as it should be."""
    error = refusal(place.function, spoilt(place, fault))
    good = type(error) is (fault.error or type(None)) and (
        error is None or well_said(place, fault, str(error))
    )
    return None if good else repr(error)


def well_said(place, fault, message):
    """Function, argument, what was received, what was expected; in a line."""
    starts = tuple(
        f"{place.function}: {path}{c}" for path in {place.path, *at_odds(place, fault)} for c in " .'"
    )
    return (
        message.startswith(starts) and "; expected " in message and len(message) < 300 and "\n" not in message
    )


def at_odds(place, fault):
    """The array that contradicts this one where no third one decides: either may be named."""
    others = [tellers(place, letter) for letter in place.letters * bool(fault.letter)]
    if fault.letter == "dtype":
        others = [[p for p in valid_places(place.function) if p.kind in ("Float", "Bias") and p != place]]
    return [them[0].path for them in others if len(them) == 1]


PLACES = [place for name in CHECKED for place in valid_places(name)]
FIRST = first_of_their_kind(PLACES)
ONLY_HERE = {
    ("order_sensitivity-x", "T"),
    ("generate-ids", "T"),
    ("generate-rng", ""),
}  # see WORDS, tests/modern


def faults_at(number):
    """All faults of a place; where the same rule comes again, in a model's parameters, one in twelve."""
    place = PLACES[number]
    found = [f for f in faults_of(place) if f.error or (str(place), f.letter) not in ONLY_HERE]
    return found if str(place) in FIRST else found[number % 12 :: 12] or found[:1]


@pytest.mark.parametrize("function", CHECKED)
def test_what_may_not_stand_in_a_place_is_refused(function):
    call(function, CALLS[function]())  # a call that passed makes no way for one that looks almost like it
    answers = {}
    for number, place in enumerate(PLACES):
        if place.function == function:
            asked = faults_at(number)
            answers |= {(place.path, str(fault.value), fault.letter): answer(place, fault) for fault in asked}
            for fault in [fault for fault in asked if fault.error and str(place) in FIRST][-1:]:
                error = refusal(function, with_arrays(spoilt(place, fault), spied))
                assert type(error) is fault.error, "nothing is calculated before the refusal"
    assert {where: wrong for where, wrong in answers.items() if wrong} == {}


def test_every_public_function_has_a_valid_call_and_every_place_a_fault(folder):
    functions = {name for name in npf.__all__ if callable(getattr(npf, name)) and name.islower()}
    assert functions - ELSEWHERE - UNREADABLE == set(CALLS)
    without = {str(place) for number, place in enumerate(PLACES) if not faults_at(number)}
    without = {place for place in without if ".attention.b_" not in place}  # absent in a causal model
    assert without == {place for place in FREE.split() if place.partition("-")[0] not in UNREADABLE}
    assert sum(len(faults_at(number)) for number in range(len(PLACES))) > 3000
    for name in CALLS:
        call(name, CALLS[name]())


FREE = """cross_entropy_backward-dloss sgd_update-params sgd_update-grads adam_init-params adam_update-params
adam_update-grads adam_update-state.m adam_update-state.v order_sensitivity-f load_minilm-path
sentence_embeddings-texts sentence_embeddings-tokenizer encoder_block_from_torch-state train_byte_pairs-text
load_llama2c-model_file load_llama2c-tokenizer_file load_gguf-path load_llama-path causal_lm_from_torch-state
"""  # whose annotation asks nothing of a kind that is known here: their faults stand in WORDS


def test_a_spy_notices_the_arithmetic_of_a_valid_call():
    views = {"split_heads", "merge_heads", "causal_lm_to_torch"}  # they calculate nothing
    for name in sorted({place.function for place in PLACES if place.kind == "Float"} - views):
        with pytest.raises(Arithmetic):
            call(name, with_arrays(CALLS[name](), spied))


# --- word for word --------------------------------------------------------------------------------

OTHER_MODEL = drawn(npf.init_transformer, 5, CONFIG._replace(n_layers=1))
WIDER_MODEL = drawn(npf.init_transformer, 5, CONFIG._replace(d_model=16))
T, V = TypeError, ValueError


def cut(*place):
    return Change(lambda array: array[place])


def with_(**fields):
    return Change(
        lambda arguments: arguments | fields if isinstance(arguments, dict) else arguments._replace(**fields)
    )


def state(**arrays):
    return Change(lambda state: state | arrays)


class Row(NamedTuple):
    function: str
    place: str  # what is spoilt in the valid call; "" for several arguments at once
    value: Any
    error: type[Exception]
    message: str


WORDS = [Row(*row) for row in (
    # shapes
    ("ffn_forward", "x", np.ones((3, 6, 7)), V,
     "x has shape (3, 6, 7); expected (..., d_model) with d_model=8"),
    ("linear_forward", "W", np.ones(5), V, "W has shape (5,); expected (d_in, d_out) with d_in=4, d_out=5"),
    ("linear_forward", "x", np.ones((2, 0)), V, "x has shape (2, 0); expected (..., d_in) with d_in=4"),
    ("ffn_forward", "params.b_1", np.ones(0), V, "params.b_1 has shape (0,); expected (d_ff,) with d_ff=12"),
    ("merge_heads", "x", np.ones((0, 6, 4)), V,
     "x has shape (0, 6, 4); expected (..., h, T, d_k) with h of at least 1, d_k of at least 1"),
    ("decoder_forward", "memory", cut(0), V, "memory has shape (7, 8); expected the leading axes of x, (2,)"),
    ("attention_forward", "q", cut(0), V, "q has shape (6, 4); expected the leading axes of k, (2,)"),
    ("attention_forward", "mask", np.ones((2, 2, 6, 7), bool), V,
     "mask has shape (2, 2, 6, 7); expected one that broadcasts to (..., T_q, T_k) = (2, 6, 7)"),
    ("decoder_block_backward", "dy", cut(..., slice(4)), V,
     "dy has shape (2, 6, 4); expected (2, 6, 8) like the forward's output"),
    ("encoder_block_forward", "config", with_(d_ff=13), V,
     "params.ffn.W_1 has shape (8, 12); expected (d_model, d_ff) with d_model=8, d_ff=13"),
    ("transformer_forward", "params", WIDER_MODEL, V,
     "params.embedding.E has shape (5, 16); expected (vocab_size, d_model) with d_model=8"),
    ("transformer_forward", "params.encoder", WIDER_MODEL.encoder, V,
     "params.encoder.blocks.0.attention.W_Q has shape (16, 16); expected (d_model, d_model) with d_model=8"),
    # kinds
    ("encoder_forward", "config.n_layers", 3, V, "params.blocks holds 2 blocks; expected config.n_layers=3"),
    ("decoder_forward", "config.n_layers", 1, V, "params.blocks holds 2 blocks; expected config.n_layers=1"),
    ("transformer_forward", "config.n_layers", 1, V,
     "params.encoder.blocks holds 2 blocks; expected config.n_layers=1"),
    ("greedy_decode", "config.n_layers", 1, V,
     "params.encoder.blocks holds 2 blocks; expected config.n_layers=1"),
    ("transformer_forward", "config.max_length", 11, V,
     "params.source_positions.P has 9 rows; expected config.max_length=11"),
    ("greedy_decode", "config.max_length", 8, V,
     "params.source_positions.P has 9 rows; expected config.max_length=8"),
    ("rope_forward", "positions", np.array([0, 1, 2, np.inf, 4, 5]), V,
     "positions holds NaN or infinity; expected finite numbers"),
    ("linear_forward", "x", as_type(np.int64), T,
     "x has dtype int64; expected float32 or float64 (for example x.astype(np.float64))"),
    ("linear_forward", "x", as_type(np.float16), T, "x has dtype float16; expected float32 or float64 "
     "(float16 keeps 3 digits and overflows at 65504: sums over a row would be wrong)"),
    ("linear_forward", "b", 0.5, T, "b is a float (0.5); expected None or an array of float32 or float64"),
    ("decoder_block_forward", "memory", as_type(np.float32), T,
     "memory has dtype float32; expected float64 like the other arrays"),
    ("decoder_forward", "params.blocks.0", MODEL.encoder.blocks[0], T,
     "params.blocks.0 is an EncoderBlockParams; expected a DecoderBlockParams"),
    ("encoder_forward", "params.blocks", [], T, "params.blocks is a list; expected a tuple"),
    ("encoder_forward", "mask", np.ones((6, 6)), T,
     "mask has dtype float64; expected bool, True = may attend"),
    ("dropout_forward", "rng", 7, T,
     "rng is an int (7); expected None or a numpy.random.Generator, for example np.random.default_rng(0)"),
    ("decoder_backward", "cache", npf.DecoderBlockCache(*[None] * 8), T,
     "cache is a DecoderBlockCache; expected a DecoderCache"),
    # numbers and words
    ("ffn_forward", "dropout", 1, V, "dropout is 1; expected a finite number and >= 0 and < 1"),
    ("split_heads", "n_heads", 5, V, "n_heads is 5; expected a divisor of d_model=8"),
    ("causal_mask", "T_q", -1, V, "T_q is -1; expected an integer of at least 0"),
    ("init_decoder", "config.positions", "RoPE", V,
     "config.positions is 'RoPE'; expected one of 'sinusoidal', 'learned', 'rope', 'alibi', 'none'"),
    # relations between arguments
    ("softmax_forward", "scores", np.array(1.0), V, "axis is -1; expected an axis of scores, shape ()"),
    ("multi_head_attention_forward", "", with_(n_heads=8, bias=None), V,
     "rope is True; expected an even d_k, d_model=8 and n_heads=8 give 1"),
    ("init_encoder", "config", with_(d_model=6, positions="rope"), V,
     "config.positions is 'rope'; expected an even d_k, d_model=6 and n_heads=2 give 3"),
    ("rope_forward", "x", np.ones((6, 7)), V,
     "x's last axis is 7; expected an even number, a pair is two columns"),
    ("learned_positions_forward", "x", np.ones((2, 10, 8)), V,
     "x has 10 positions; expected at most the table's max_length=9"),
    ("transformer_forward", "target_ids", np.ones((2, 12), int), V,
     "target_ids has 12 positions; expected at most the learned table's max_length=9"),
    ("transformer_forward", "config", with_(positions="sinusoidal"), V,
     "params.source_positions is a table; expected None with config.positions='sinusoidal'"),
    ("transformer_forward", "source_ids", np.ones((2, 10), int), V,
     "source_ids has 10 positions; expected at most the learned table's max_length=9"),
    ("greedy_decode", "source_ids", np.ones((2, 10), int), V,
     "source_ids has 10 positions; expected at most the learned table's max_length=9"),
    ("transformer_forward", "",
     with_(params=MODEL._replace(source_positions=None), config=CONFIG._replace(positions="none")), V,
     "params.target_positions is a table; expected None with config.positions='none'"),
    ("greedy_decode", "params.target_positions", None, T,
     "params.target_positions is None; expected a LearnedPositionsParams"),
    ("greedy_decode", "max_length", 10, V,
     "max_length is 10; expected at most the learned table's 9 positions"),
    ("greedy_decode", "stop_id", 99, V, "stop_id is 99; expected an id from 0 to 4"),
    ("minilm_input", "config.positions", "alibi", V, "config.positions is 'alibi'; expected 'learned'"),
    ("minilm_input", "ids", np.ones((2, 21), int), V,
     "ids has 21 positions; expected at most the learned table's max_length=20"),
    ("generate", "ids", entry(0, 0), V, "ids has padding_id=0 before a token; expected it at the end only"),
    # the loss
    ("cross_entropy_forward", "targets", entry(5), V,
     "targets holds 5; expected ids from 0 to 4, the vocabulary"),
    ("cross_entropy_forward", "targets", Change(lambda ids: np.eye(5)[ids]), T,
     "targets has dtype float64; expected an array of integers"),
    ("cross_entropy_forward", "targets", Change(lambda ids: np.full_like(ids, -1)), V,
     "targets has no id that counts; expected at least one: there is nothing to average"),
    ("cross_entropy_forward", "targets", Change(np.ravel), V,
     "targets has shape (12,); expected the leading axes of logits, (2, 6)"),
    ("cross_entropy_backward", "dloss", np.ones((2, 6)), V,
     "dloss has shape (2, 6); expected () like the forward's output"),
    ("cross_entropy_backward", "dloss", np.float32(1), T,
     "dloss is a NumPy scalar (float32); expected an array of float32 or float64"),
    ("cross_entropy_backward", "dloss", np.nan, V, "dloss is nan; expected a finite number"),
    # trees that are not alike
    ("adam_update", "grads.gamma", entry(np.nan), V,
     "grads.gamma holds NaN or a number too large to square; expected finite ones"),
    ("adam_update", "grads.beta", entry(1e160), V,
     "grads.beta holds NaN or a number too large to square; expected finite ones"),
    ("adam_update", "state", npf.adam_init(MODEL.encoder.blocks[0].ffn), V,
     "state.m is not built like params; expected the same leaves, they differ in W_1"),
    ("adam_update", "state.v", None, V,
     "state.v is not built like params; expected the same leaves, they differ in beta"),
    ("adam_update", "state.m.gamma", np.ones(4), V,
     "state.m.gamma has shape (4,); expected (3,) like the parameter"),
    ("adam_update", "params.gamma", np.ones(3, np.int64), T,
     "params.gamma has dtype int64; expected float32 or float64 "
     "(for example params.gamma.astype(np.float64))"),
    ("sgd_update", "grads", Change(tuple), V,
     "grads is not built like params; expected the same leaves, they differ in 0"),
    ("sgd_update", "grads.beta", as_type(np.float32), T,
     "grads.beta has dtype float32; expected float64 like the parameter"),
    ("adam_init", "params", MODEL._asdict(), T, "params is a dict; expected an array of float32 or float64"),
    # a file, a folder, PyTorch's names, texts
    ("load_minilm", "path", 3, T, "path is an int (3); expected a string or a pathlib.Path"),
    ("sentence_embeddings", "texts", "dog", T, "texts is the string 'dog'; expected a list of strings"),
    ("sentence_embeddings", "texts", ["dog", None], T, "texts[1] is None; expected a string"),
    ("sentence_embeddings", "texts", ["\udc80"], V,
     "texts[0] holds half of a surrogate pair; expected text that UTF-8 can write"),
    ("encoder_block_from_torch", "state", state(more=None), V,
     "state has the tensor more, which no equation here has; expected the 12 of EncoderBlockParams"),
    ("encoder_block_from_torch", "state", state(**{"norm2.bias": [0.0]}), T,
     "state['norm2.bias'] is a list; expected an array of float32 or float64"),
    ("save", "tree", (np.ones(2, complex),), T, "0 is a leaf (ndarray); expected an array of numbers"),
    ("load", "like", (np.ones(3),), V,
     "0 has shape (2,) and dtype float64 in saved.npz; expected (3,) and float64"),
    ("load", "like", (np.ones(2), np.ones(2)), V, "1 is missing from saved.npz"),
    ("tokenize", "sentence", ["dog"], T, "sentence is list; expected a string"),
    ("build_vocabulary", "sentences", ["dog"], T,
     "a sentence is the string 'dog'; expected a list of words (tokenize makes one)"),
    ("encode", "sentences", [["cat"]], V, "'cat' is not in the vocabulary of 3 words"),
    ("decode", "ids", np.array([[7]]), V, "id 7 is not in the vocabulary of 3 words"),
    # functions given to functions
    ("order_sensitivity", "f", "tanh", T, "f is the string 'tanh'; expected a function"),
    ("order_sensitivity", "f", lambda x: 1.0, T,
     "f(x) is a float (1.0); expected an array of float32 or float64"),
    ("order_sensitivity", "f", lambda x: x[0], V, "f(x) has shape (6, 8); expected (2, 6) and a last axis"),
    ("order_sensitivity", "x", np.ones((2, 0, 8)), V,
     "x has shape (2, 0, 8); expected two positions or more"),
    ("dead_units", "hidden", np.ones((0, 8)), V, "hidden has shape (0, 8); expected at least one token"),
    ("tree_map", "f", None, T, "f is None; expected a function"),
    ("tree_map", "tree", [np.ones(2)], V,
     "the trees differ at the root: a leaf (list) and a tuple of 1"),
    ("gradcheck", "args", (np.ones(3, np.float16),), T, "z has dtype float16; expected float64 or float32"),
    ("gradcheck", "args", (np.array([0.0, np.nan]),), V,
     "z has entries that are not finite; there is no slope there"),
    ("to_backend", "backend", "torch", V, "backend is 'torch'; expected 'numpy' or 'cupy'"),
)]  # fmt: skip


def refused_in_other_words(row):
    """Nothing when a call is refused as the row says, else what was said."""
    change = row.value.f if isinstance(row.value, Change) else lambda _: row.value
    call(row.function, CALLS[row.function]())
    error = refusal(row.function, replaced(CALLS[row.function](), row.place, change))
    as_said = (type(error), str(error)) == (row.error, f"{row.function}: {row.message}")
    return None if as_said else f"{type(error).__name__}: {error}"


def test_the_refusals_say_word_for_word(folder):
    asked = [row for row in WORDS if row.function in CALLS]
    answers = {f"{row.function}: {row.message}": refused_in_other_words(row) for row in asked}
    assert {row: wrong for row, wrong in answers.items() if wrong} == {}


def test_the_words_are_few():
    assert len(WORDS) <= 90


@pytest.mark.parametrize("state", [(), (npf.adam_init(MODEL),)])
def test_the_gradients_of_another_model_are_refused_by_their_first_leaf(state):
    update = npf.adam_update if state else npf.sgd_update
    with pytest.raises(
        ValueError, match=r"grads is not built like params; .* differ in decoder\.blocks\.1\."
    ):
        update(MODEL, OTHER_MODEL, *state, learning_rate=0.1)
    with pytest.raises(ValueError, match=r"grads\.embedding\.E has shape \(5, 16\); expected \(5, 8\)"):
        update(MODEL, WIDER_MODEL, *state, learning_rate=0.1)


# --- functions without the door's checks: odd values in every argument ----------------------------

ODD = {
    **{repr(odd): odd for odd in (None, "x", 3, 0, -1, 2.5, True, np.nan, [], {}, (), ([1],), b"x", int)},
    **{repr(odd): odd for odd in (np.float64(1), np.float32(1), np.uint8(2), np.bool_(True))},
    "10**5000": 10**5000,
    "object": object(),
    "function": lambda: 0,
    "0-d": np.array(1.0),
    "0-d int": np.array(1),
    "ints": np.ones((2, 6, 8), int),
    "empty": np.ones(0),
    "2x6x0": np.ones((2, 6, 0)),
    "2x0 int": np.ones((2, 0), int),
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
ARRAYS = "0-d, empty, 2x6x0, 5-d"
NUMBERS = "3, 2.5, np.float64(1.0), np.float32(1.0), np.uint8(2)"
WELCOME = {  # the odd values that are no mistake
    "gradcheck": (
        said := {
            "args": ARRAYS,
            "rng": "None",
            "tolerance": NUMBERS,
            "directions": "None, 3, np.uint8(2)",
        }
    ),
    "assert_gradients": said,
    "tokenize": {"sentence": "'x'"},
    "build_vocabulary": {"sentences": "[], {}, ()", "special": "[], ()"},
    "encode": {"sentences": "[], {}, ()"},
    "decode": {"ids": "2x0 int"},
    "save": {
        "path": "'x'",
        "tree": f"3, 0, -1, 2.5, True, nan, np.float64(1.0), None, (), {ARRAYS}, 0-d int, ints, 2x0 int, "
        "float16",
    },
    "save_safetensors": {
        "path": "'x'",
        "tree": f"None, (), {{}}, {ARRAYS}, 0-d int, ints, 2x0 int, float16",
    },
    "load": {"path": "'x'"},
}
UNCARING = {"array_module", "leaves", "to_backend", "to_numpy"}  # they pass on what they do not know
SWEPT = set(CALLS) - set(CHECKED) - UNCARING - {"load_safetensors"}  # tests/published has its files


@pytest.mark.parametrize("name", sorted(SWEPT))
def test_odd_values_are_refused_or_welcome(name, folder):
    arguments, taken = CALLS[name](), defaultdict(set)
    name_in_words = name.replace("assert_gradients", "gradcheck")  # which it calls
    names = (f"{name_in_words}: ", "relu_forward: ")  # and which calls this
    for place, odd in product(arguments.keys() - {"kwargs"}, ODD):
        if place in ("f", "forward", "backward") and callable(ODD[odd]):
            continue  # called by us, it raises its own errors
        value = (ODD[odd],) if place in ("trees", "args") else ODD[odd]
        try:
            call(name, arguments | {place: value})
        except (TypeError, ValueError) as error:
            assert str(error).startswith(names if place == "args" else names[0]), (place, odd, error)
            assert len(str(error)) < 300 and "\n" not in str(error), (place, odd, error)
        else:
            taken[place].add(odd)
    assert taken == {place: set(values.split(", ")) for place, values in WELCOME.get(name, {}).items()}
