"""Bad input is refused before any arithmetic and in our own words.

Three ways to ask: what bad_calls.py makes from the signatures, place by place; a table of messages word for
word, with the mistakes that no single signature knows; and a sweep of odd values over every argument of every
public function, which knows the few that are welcome.
"""

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import pytest
from bad_calls import (
    CHECKED,
    NO_INTEGERS,
    NO_NUMBERS,
    OTHER_KINDS,
    Change,
    as_type,
    entry,
    faults_of,
    first_of_their_kind,
    spoilt,
    valid_places,
)
from valid_calls import CALLS, CONFIG, MODEL, UNREADABLE, call, drawn, fingerprint, replaced, with_arrays

import npformer as npf

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


def refusal(name, arguments):
    """The TypeError or ValueError that a call ends in, or None; a refused call has changed nothing."""
    before = fingerprint(arguments)
    try:
        call(name, arguments)
    except (TypeError, ValueError) as error:
        assert fingerprint(arguments) == before, "changed before it was refused"
        assert error.__cause__ is None, "another error shows behind it"
        assert error.__context__ is None or error.__suppress_context__, "another error shows behind it"
        return error
    return None


# --- from the signatures --------------------------------------------------------------------------

PLACES = [place for name in CHECKED for place in valid_places(name)]

# Where two arrays contradict each other and no third one decides: parameters are believed, then the first.
TIES = {
    "linear_forward-W": {"d_in longer": "x", "d_in shorter": "x", "transposed": "x"}
    | dict.fromkeys(("d_out longer", "d_out shorter"), "b"),
    "learned_positions_forward-params.P": dict.fromkeys(
        ("float32", "d_model longer", "d_model shorter", "transposed"), "x"
    ),
    "tied_logits_forward-params.E": dict.fromkeys(
        ("float32", "d_model longer", "d_model shorter", "transposed"), "x"
    ),
    "attention_forward-q": {"d_k longer": "k", "d_k shorter": "k"},
    "tiled_attention_forward-q": {"d_k longer": "k", "d_k shorter": "k"},
    "tiled_attention_forward-k": {"T_k longer": "v", "T_k shorter": "v"},
    "rms_norm_forward-params.gamma": dict.fromkeys(("float32", "d_model longer", "d_model shorter"), "x"),
    **{
        f"{name}-params.embedding.E": dict.fromkeys(
            ("vocab_size longer", "vocab_size shorter"), "params.head"
        )
        for name in ("causal_lm_forward", "causal_lm_to_torch", "generate")
    },
    **{
        first: dict.fromkeys(("one axis more", "other leading axes", "no leading axes"), second)
        for first, second in (
            ("cross_entropy_forward-logits", "targets"),
            ("decoder_block_forward-x", "memory"),
            ("decoder_forward-x", "memory"),
            ("transformer_forward-source_ids", "target_ids"),
        )
    },
}
ONLY_HERE = {  # refused for a reason of its own, see WORDS and tests/modern
    "order_sensitivity-x: T empty", "generate-ids: T empty", "generate-rng: None",
}  # fmt: skip


def answer(place, fault):
    """What is wrong with the answer to a bad call; nothing when it is refused as it should be."""
    error = refusal(place.function, spoilt(place, fault))
    if fault.error is None:
        return error and f"refused: {error}"
    message, blamed = str(error), TIES.get(str(place), {}).get(fault.name, place.path)
    received = fault.received if blamed == place.path else "; expected "
    good = type(error) is fault.error and received in message and well_said(place.function, blamed, message)
    return None if good else f"{type(error).__name__}: {message}"


def answer_to_spies(place, fault):
    """The same of arrays that cannot be calculated with, which end in another error: nothing is computed."""
    error = refusal(place.function, with_arrays(spoilt(place, fault), spied))
    return None if type(error) is fault.error else f"with spies: {error!r}"


def well_said(function, blamed, message):
    """Function, argument, what was received, what was expected; in a line."""
    start = f"{function}: {blamed}"
    named = message.startswith(start) and message[len(start)] in " .'"
    return named and "; expected " in message and len(message) < 300 and "\n" not in message


FIRST = first_of_their_kind(PLACES)
EVERYWHERE = {fault.name for fault in (*OTHER_KINDS, *NO_INTEGERS, *NO_NUMBERS)}  # a rule each, for all


def faults_at(number):
    """All faults of a place, but of the kinds of values that are faults everywhere one in four by turns.

    Where the same rule comes again, a field of parameters in a model, it is one in twelve of all.
    """
    place = PLACES[number]
    faults = [
        f for f in faults_of(place, valid_places(place.function)) if f"{place}: {f.name}" not in ONLY_HERE
    ]
    everywhere = [fault for fault in faults if fault.name in EVERYWHERE]
    own = [fault for fault in faults if fault.name not in EVERYWHERE]
    if str(place) in FIRST:
        return own + (everywhere[number % 4 :: 4] or everywhere[:1])
    return faults[number % 12 :: 12] or faults[:1]


@pytest.mark.parametrize("function", CHECKED)
def test_what_may_not_stand_in_a_place_is_refused(function):
    call(function, CALLS[function]())  # a call that passed makes no way for one that looks almost like it
    answers = {}
    for number, place in enumerate(PLACES):
        faults = faults_at(number) if place.function == function else ()
        answers |= {(place.path, fault.name): answer(place, fault) for fault in faults}
        bad = [fault for fault in faults if fault.error and str(place) in FIRST]
        answers |= {(place.path, fault.name): answer_to_spies(place, fault) for fault in bad[-1:]}
    assert {where: wrong for where, wrong in answers.items() if wrong} == {}


def test_every_public_function_has_a_valid_call_and_every_place_a_fault():
    functions = {name for name in npf.__all__ if callable(getattr(npf, name)) and name.islower()}
    assert functions - {"checked", "play", "compare"} - UNREADABLE == set(CALLS)  # tested in teaching
    without = {str(place) for number, place in enumerate(PLACES) if not faults_at(number)}
    assert without == {place for place in FREE if place.partition("-")[0] not in UNREADABLE}
    assert sum(len(faults_at(number)) for number in range(len(PLACES))) > 3000
    assert {fault.name for number in range(len(PLACES)) for fault in faults_at(number)} >= EVERYWHERE


FREE = {  # whose annotation asks nothing of a kind that is known here: their faults stand in WORDS
    "cross_entropy_backward-dloss", "sgd_update-params", "sgd_update-grads", "adam_init-params",
    "adam_update-params", "adam_update-grads", "adam_update-state.m", "adam_update-state.v",
    "order_sensitivity-f", "load_minilm-path", "sentence_embeddings-texts", "sentence_embeddings-tokenizer",
    "encoder_block_from_torch-state", "train_byte_pairs-text", "load_llama2c-model_file",
    "load_llama2c-tokenizer_file", "load_gguf-path", "causal_lm_from_torch-state",
    *(
        f"{name}-params.blocks.{i}.attention.b_{letter}"
        for name in ("causal_lm_forward", "causal_lm_to_torch", "generate")
        for i in (0, 1) for letter in "QKVO"
    ),
}  # fmt: skip


def test_the_calls_are_valid_before_they_are_spoilt(folder):
    for name in CALLS:
        call(name, CALLS[name]())


VIEWS = {"split_heads", "merge_heads", "causal_lm_to_torch"}  # they calculate nothing


def test_a_spy_notices_the_arithmetic_of_a_valid_call():
    for name in sorted({place.function for place in PLACES if "Float[" in place.words} - VIEWS):
        with pytest.raises(Arithmetic):
            call(name, with_arrays(CALLS[name](), spied))
            print(f"{name} calculated, and no spy saw it")


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
    ("decoder_forward", "memory", cut(0), V, "memory has shape (6, 8); expected the leading axes of x, (2,)"),
    ("attention_forward", "q", cut(0), V, "q has shape (5, 4); expected the leading axes of k, (2,)"),
    ("attention_forward", "mask", np.ones((2, 2, 5, 6), bool), V,
     "mask has shape (2, 2, 5, 6); expected one that broadcasts to (..., T_q, T_k) = (2, 5, 6)"),
    ("decoder_block_backward", "dy", cut(..., slice(4)), V,
     "dy has shape (2, 5, 4); expected (2, 5, 8) like the forward's output"),
    ("encoder_block_forward", "config", with_(d_ff=13), V,
     "params.ffn.W_1 has shape (8, 12); expected (d_model, d_ff) with d_model=8, d_ff=13"),
    ("transformer_forward", "params", WIDER_MODEL, V,
     "params.embedding.E has shape (5, 16); expected (vocab_size, d_model) with d_model=8"),
    ("transformer_forward", "params.encoder", WIDER_MODEL.encoder, V,
     "params.encoder.blocks.0.attention.W_Q has shape (16, 16); expected (d_model, d_model) with d_model=8"),
    # kinds
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
     "ids has 21 tokens; expected at most 20, the positions that were trained; cut it into pieces"),
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
    assert len(WORDS) <= 80


def test_a_gradient_of_nan_deep_in_a_model_is_named():
    grads = npf.tree_map(np.zeros_like, MODEL)
    grads.decoder.blocks[1].cross_attention.b_V[3] = np.nan
    with pytest.raises(
        ValueError, match=r"^adam_update: grads\.decoder\.blocks\.1\.cross_attention\.b_V holds"
    ):
        npf.adam_update(MODEL, grads, npf.adam_init(MODEL), learning_rate=0.1)


@pytest.mark.parametrize("state", [(), (npf.adam_init(MODEL),)])
def test_the_gradients_of_another_model_are_refused_by_their_first_leaf(state):
    update = npf.adam_update if state else npf.sgd_update
    with pytest.raises(
        ValueError, match=r"grads is not built like params; .* differ in decoder\.blocks\.1\."
    ):
        update(MODEL, OTHER_MODEL, *state, learning_rate=0.1)
    with pytest.raises(ValueError, match=r"grads\.embedding\.E has shape \(5, 16\); expected \(5, 8\)"):
        update(MODEL, WIDER_MODEL, *state, learning_rate=0.1)


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
    "2x0x8": np.ones((2, 0, 8)),
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


NUMBERS = "3, 2.5, float64(1), float32(1), uint8(2)"
COUNT, COUNT_0 = "3, uint8(2)", "3, 0, uint8(2)"
ANY_SHAPE = "0-d, empty, 2x6x0, 2x0x8, 5-d"
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
CAUSAL_SIZES = {
    "config.d_ff": COUNT,
    "config.n_heads": "uint8(2)",
    "config.n_kv_heads": "uint8(2)",
    "config.n_layers": COUNT_0,
    "config.eps": f"{NUMBERS}, 0",
    "config.base": NUMBERS,
    "config.max_length": COUNT,
    "config.tied": "True",
}
SIZES = {**OPTIONS, "config.d_model": "uint8(2)", "config.d_ff": COUNT}
ENCODER = without_biases("blocks.0.attention") | {"norm": "None"}
DECODER = without_biases(
    *(f"blocks.{i}.{attention}" for i in range(1) for attention in ("self_attention", "cross_attention"))
) | {"norm": "None"}
CAUSAL = without_biases("params.blocks.0.attention") | {
    "config.n_heads": "uint8(2)",
    "config.n_layers": "uint8(2)",
    "config.eps": f"{NUMBERS}, 0",
    "config.base": NUMBERS,
}
FORWARD_OPTIONS = {**OPTIONS, "mask": "None", "rng": "None"}
IN_ALL = {"config.n_layers": "uint8(2)"}  # a stack has as many blocks as its config says
IN_MODEL = {k: v for k, v in (OPTIONS | IN_ALL).items() if k != "config.max_length"}  # its tables' rows


def inside(place, welcome):
    return {f"{place}.{name}": values for name, values in welcome.items()}


STACKS = {**inside("params.encoder", ENCODER), **inside("params.decoder", DECODER)}

WELCOME = {  # the odd values that are no mistake
    "linear_forward": {"b": "None"},
    "relu_forward": {"z": ANY_SHAPE},
    "gelu_forward": {"z": ANY_SHAPE, "approximate": "True"},
    "softmax_forward": {"scores": "empty, 2x6x0, 2x0x8, 5-d", "axis": "0, -1"},
    "dropout_forward": {"x": ANY_SHAPE, "rate": "0", "rng": "None"},
    "learned_positions_forward": {"x": "2x0x8, 5-d"},
    "rope_forward": {"x": "5-d", "positions": "None", "base": NUMBERS},
    "ffn_forward": {"x": "2x0x8, 5-d", "dropout": "0", "rng": "None"},
    "layer_norm_forward": {"x": "2x0x8, 5-d", "eps": f"{NUMBERS}, 0"},
    "attention_forward": {"mask": "None", "bias": "None, 0-d"},
    "multi_head_attention_forward": {
        **without_biases("params"),
        "n_heads": "uint8(2)",
        "mask": "None",
        "bias": "None, 0-d",
        "rope": "True",
        "n_kv_heads": "None, uint8(2)",
        "base": NUMBERS,
    },
    "rms_norm_forward": {"x": "2x0x8, 5-d", "eps": f"{NUMBERS}, 0"},
    "silu_forward": {"z": ANY_SHAPE},
    "gated_ffn_forward": {"x": "2x0x8, 5-d"},
    "tiled_attention_forward": {"causal": "True", "tile": COUNT},
    "causal_lm_forward": {"ids": "2x0 int, ints", **CAUSAL, "padding_id": f"{COUNT_0}, None"},
    "generate": {
        **CAUSAL,
        "max_new_tokens": COUNT_0,
        "temperature": f"{NUMBERS}, 0",
        "top_k": f"{COUNT}, None",
        "top_p": "None, float32(1), float64(1)",
        "stop_id": f"{COUNT_0}, None",
        "padding_id": "0, None",
    },
    "init_rms_norm": {"d_model": COUNT},
    "init_gated_ffn": {"d_model": COUNT, "d_ff": COUNT},
    "init_causal_lm": {"vocab_size": COUNT, **CAUSAL_SIZES},
    "causal_block_multiplications": {"n": COUNT_0, **CAUSAL_SIZES},
    "causal_parameter_count": {"vocab_size": COUNT, **CAUSAL_SIZES},
    "kept_bytes": CAUSAL_SIZES,
    "train_byte_pairs": {"text": "text, bytes", "n_merges": COUNT_0},
    "embedding_forward": {"ids": "0-d int, ints, 2x0 int"},
    "tied_logits_forward": {"x": "2x0x8, 5-d"},
    "cross_entropy_forward": {
        "ignore_index": f"{COUNT_0}, None, -1",
        "label_smoothing": "0, float64(1), float32(1)",
    },
    "cross_entropy_backward": {"dloss": "3, 0, -1, 2.5, float64(1), uint8(2), 0-d"},
    "encoder_block_forward": {"x": "5-d", **without_biases("params.attention"), **FORWARD_OPTIONS},
    "encoder_forward": {"x": "5-d", **inside("params", ENCODER), **FORWARD_OPTIONS, **IN_ALL},
    "decoder_block_forward": {
        **without_biases("params.self_attention", "params.cross_attention"),
        **FORWARD_OPTIONS,
        "memory_mask": "None",
    },
    "decoder_forward": {**inside("params", DECODER), **FORWARD_OPTIONS, **IN_ALL, "memory_mask": "None"},
    "transformer_forward": {
        "source_ids": "2x0 int",
        "target_ids": "2x0 int",
        **STACKS,
        **IN_MODEL,
        "padding_id": f"{COUNT_0}, None",
        "rng": "None",
    },
    "greedy_decode": {
        **STACKS,
        **IN_MODEL,
        "source_ids": "ints, 2x0 int",
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
    "split_heads": {"x": "2x0x8, 5-d", "n_heads": "uint8(2)"},
    "merge_heads": {"x": "2x0x8, 5-d"},
    "causal_mask": {"T_q": COUNT_0, "T_k": f"{COUNT_0}, None"},
    "padding_mask": {"ids": "ints, 2x0 int", "padding_id": f"{COUNT_0}, -1"},
    "sgd_update": {"learning_rate": f"{NUMBERS}, 0"},
    "adam_init": dict.fromkeys(("params", "params.gamma", "params.beta"), LEAVES),
    "adam_update": {
        "state.step": COUNT_0,
        **dict.fromkeys(("learning_rate", "eps", "weight_decay"), f"{NUMBERS}, 0"),
        **dict.fromkeys(("beta_1", "beta_2"), "0"),
    },
    "warmup_learning_rate": dict.fromkeys(("step", "d_model", "warmup_steps"), COUNT),
    "gradcheck": (
        said := {"args": ANY_SHAPE, "rng": "None", "tolerance": NUMBERS, "directions": f"None, {COUNT}"}
    ),
    "assert_gradients": said,
    "order_sensitivity": {"x": "5-d"},
    "token_similarity": {"x": "2x0x8, 5-d"},
    "dead_units": {"hidden": "5-d"},
    "tokenize": {"sentence": "text"},
    "build_vocabulary": {"sentences": "[], {}, ()", "special": "[], ()"},
    "encode": {"sentences": "[], {}, ()"},
    "decode": {"ids": "2x0 int"},
    "table_1": dict.fromkeys("ndkr", COUNT),
    "encoder_block_multiplications": {"n": COUNT_0, **SIZES},
    "score_cells": {"n": COUNT_0, "n_heads": COUNT},
    "parameter_count": {"vocab_size": COUNT, **SIZES},
    "training_bytes": {"vocab_size": COUNT, **SIZES},
    "encoder_block_cache_bytes": {"B": COUNT_0, "T": COUNT_0, **SIZES},
    "minilm_input": {"ids": "ints, 2x0 int", **inside("params.encoder", ENCODER), **OPTIONS, **IN_ALL},
    "sentence_embeddings": {
        "texts": "[], ()",
        "unit": "True",
        **inside("params.encoder", ENCODER),
        **OPTIONS,
        **IN_ALL,
    },
    "encoder_block_to_torch": without_biases("params.attention"),
    "causal_lm_to_torch": CAUSAL,
    "causal_lm_from_torch": {k: v for k, v in CAUSAL.items() if k.startswith("config.")},
    "save": {
        "path": "text",
        "tree": f"3, 0, -1, 2.5, True, nan, float64(1), {LEAVES}, 0-d int, ints, 2x0 int, float16",
    },
    "save_safetensors": {"path": "text", "tree": f"{LEAVES}, 0-d int, ints, 2x0 int, float16, {{}}"},
    "load": {"path": "text"},
}
UNCARING = {"array_module", "leaves", "to_backend", "to_numpy"}  # they pass on what they do not know
SWEPT = [
    name
    for name in CALLS
    if name not in UNCARING | {"load_minilm", "load_llama2c", "load_gguf", "load_safetensors"}
]  # tests/published has their files


def swept_places(name):
    """The arguments, the fields that the signature of a checked function knows, the leaves of other trees."""
    checked = [place.path for place in valid_places(name)] if name in CHECKED else []
    for argument, value in CALLS[name]().items():
        yield from (
            path for path in checked if f"{path}.".startswith(f"{argument}.") and ".blocks.1" not in path
        )
        if argument not in checked and argument != "kwargs":
            yield argument
        if argument in ("params", "grads") and f"{argument}.gamma" not in checked and hasattr(value, "gamma"):
            yield from (f"{argument}.{leaf}" for leaf in value._fields)
    yield from ("state.m.beta", "state.v.gamma") if name == "adam_update" else ()


def with_odd(place, odd, arguments):
    return replaced(arguments, place, lambda _: (ODD[odd],) if place in ("trees", "args") else ODD[odd])


DECISIVE = {odd for places in WELCOME.values() for values in places.values() for odd in values.split(", ")}


def odd_ones(name, number, place, welcome):
    """What is welcome somewhere, of the others one in four; one in twelve where a rule comes again."""
    first = name not in CHECKED or f"{name}-{place}" in FIRST
    turn = {odd for i, odd in enumerate(ODD) if (i + number) % (4 if first else 12) == 0}
    called = place in ("f", "forward", "backward")  # by us, it raises its own errors
    return {odd for odd in turn | (DECISIVE if first else welcome) if not (called and callable(ODD[odd]))}


@pytest.mark.parametrize("name", SWEPT)
def test_odd_values_are_refused_or_welcome(name, folder):
    arguments, taken = CALLS[name](), defaultdict(set)
    name_in_words = name.replace("assert_gradients", "gradcheck")  # which it calls
    names = (f"{name_in_words}: ", "relu_forward: ")  # and which calls this
    expected = {place: set(values.split(", ")) for place, values in WELCOME.get(name, {}).items()}
    for number, place in enumerate(swept_places(name)):
        for odd in odd_ones(name, number, place, expected.get(place, set())):
            try:
                call(name, with_odd(place, odd, arguments))
            except (TypeError, ValueError) as error:
                assert str(error).startswith(names if place == "args" else names[0]), (place, odd, error)
                assert len(str(error)) < 300 and "\n" not in str(error), (place, odd, error)
            else:
                taken[place].add(odd)
    assert taken == expected
