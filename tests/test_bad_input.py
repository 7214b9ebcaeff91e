"""Bad input is refused in our own words, and nothing has been changed.

Three ways to ask: odd values in every place of every function, an argument or a field in it; mistakes that no
single annotation knows, each with what is said of it; and odd values in every argument of the few functions
that do without the door's checks, which know the few that are welcome.

What may stand in a place is read from the text of its annotation, by other means than npformer/door has:
bounds are Python to evaluate, a mask is held against NumPy's own broadcasting, a shape against the lengths
that all other arrays tell of its letters.
"""

import re
from collections import defaultdict, namedtuple
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from valid_calls import (
    BACKWARD,
    CALLS,
    CHECKED,
    CONFIG,
    ELSEWHERE,
    FORWARD,
    INTEGERS,
    LM,
    MODEL,
    TREE,
    UNREADABLE,
    VOCAB_SIZE,
    call,
    drawn,
    fingerprint,
    first_of_their_kind,
    places,
    replaced,
)

import npformer as npf
from npformer.arrays import kind_of
from npformer.tree import ends

T, V = TypeError, ValueError

# --- odd values -----------------------------------------------------------------------------------


class Tensor:
    """Another library's array."""

    shape, dtype, ndim, size = (2, 3), np.dtype(np.float64), 2, 6


ODD = {
    **{repr(odd): odd for odd in (None, "x", 3, -1, 2.5, True, np.nan, [], {}, (), ([1],), b"x", int)},
    **{repr(odd): odd for odd in (np.float64(1), np.float32(1), np.uint8(2), np.bool_(True))},
    "huge": 10**5000, "function": lambda: 0, "0-d": np.array(1.0), "ints": np.ones((2, 6, 8), int),
    "empty": np.ones(0), "2x0 int": np.ones((2, 0), int), "float16": np.ones(2, np.float16),
    "complex": np.ones(2, complex), "objects": np.array([None, 1], object), "texts": np.array(["a"]),
    "records": np.zeros(3, [("a", float)]), "masked": np.ma.ones(2), "tensor": Tensor(),
    "matrix": np.ones((2, 8)).view(np.matrix),
}  # fmt: skip
NUMBERS = [0.5j, np.inf, -np.inf, np.float32("nan"), -(10**400), 0, 1, 5, 7, 16, 99]
DTYPES = [float, np.float32, np.float16, ">f8", int, np.int32, np.uint8, bool, complex, object, str]
WORDS, F4 = ("float32", "f8"), np.dtype("f4")
OTHERS = {
    "xp": ["cupy", re],
    "Rng": [0, np.random, np.random.PCG64(0), np.random.RandomState(0)],
    "dtype": ["(-3,)f8", np.dtype(complex), *DTYPES[:6], *WORDS, F4],
}


def odd_values(place):
    """What is almost right in this place."""
    value, kind = place.value, place.kind
    if kind in ("int", "float"):
        step = 1 if kind == "int" else 1e-6
        bounds = map(int, re.findall(r"\d+", place.text))
        return [*NUMBERS, *(bound + d for bound in bounds for d in (-5, -step, 0, step, 5))]
    if kind in ENTRIES and value is not None:
        near = [value.tolist(), np.ma.asarray(value), *map(value.astype, DTYPES)]
        near += [entry(value, wrong) for wrong in (VOCAB_SIZE, -2)] * (kind == "Ids")
        return near + [np.ones(shape, value.dtype) for shape in odd_shapes(place)]
    if kind.endswith("Cache"):  # of another function
        forwards = list(FORWARD)
        another = forwards[forwards.index(place.function.replace("_backward", "_forward")) - 1]
        return [call(another, FORWARD[another]())[1], tuple(value), value._asdict()]
    if isinstance(value, tuple):
        return [list(value), value[0], npf.BlockMultiplications(1, 2, 3, 4)]
    return ["", value.upper(), value + " "] if kind == "Literal" else OTHERS.get(kind, [])


def odd_shapes(place):
    """Each axis longer and empty, a mask's also of one entry; one axis more and one fewer, transposed."""
    shape, others = place.value.shape, (0, 1) if place.kind in STRETCHED else (0,)
    if place.kind in STRETCHED:
        shape = full_shape(place.letters, lengths(places(place.function)))
    one = [(*shape[:i], m, *shape[i + 1 :]) for i, n in enumerate(shape) for m in (n + 2, *others)]
    return sorted({*one, (1, *shape), shape[1:], shape[::-1]} - {place.value.shape})


def entry(array, value, at=-1):
    """The array with another number in it."""
    array = array.copy()
    array.reshape(-1)[at] = value
    return array


# --- what must come of them -----------------------------------------------------------------------


def expected(place, value):
    """({errors, or None, that may come of it}, who may be named) with this value in the place."""
    if wrong := wrong_alone(place, value):
        return {wrong}, {place.path}
    wrong, others = wrong_beside(place, value) if isinstance(value, np.ndarray) else (None, set())
    if wrong:
        return {wrong}, {place.path, *others}
    return ({None, T, V} if place.related else {None}), set()


def wrong_alone(place, value):
    """The error that a value must give whatever stands beside it."""
    if value is None:
        return None if place.optional else T
    right = RIGHT.get(place.kind, lambda value: type(value) is type(place.value))
    return T if not right(value) else None if within(place, value) else V


def array_of(*dtypes):
    return lambda value: type(value) is np.ndarray and value.dtype in map(np.dtype, dtypes)


def number_of(*kinds):
    return lambda value: isinstance(value, kinds) and not isinstance(value, bool)


FLOATS, STRETCHED, ENTRIES = ("Float", "Bias"), ("Mask", "Bias"), ("Float", "Bias", "Ids", "Mask", "Numbers")
RIGHT = {
    "int": number_of(int, np.integer),
    "float": number_of(int, np.integer, float, np.floating),
    "xp": lambda value: value is np,
    "Literal": lambda value: isinstance(value, str),
    "dtype": lambda value: any(value is good for good in (float, np.float32, *WORDS, F4)),
    "Float": array_of("f4", "f8"),
    "Bias": array_of("f4", "f8"),
    "Ids": array_of(*INTEGERS),
    "Mask": array_of(bool),
    "Numbers": array_of(*INTEGERS, "f2", "f4", "f8", ">f8"),
}
LIMITS = {
    "divides": "8 % (value or 9) == 0",
    "below vocab_size": f"0 <= value < {VOCAB_SIZE}",
    "an axis": "-2 <= value < 2",
    "even]": "value % 2 == 0",
}


def within(place, value):
    """Whether a value of the right kind is within the bounds, a word one of the choices, no row empty."""
    if place.kind in ENTRIES:
        if place.function in BACKWARD:  # the cache tells all
            return value.shape == place.value.shape
        tells = told(place.letters, value.shape)
        fits = tells is not None and not any(n == 0 and letter[0] not in "TS." for letter, n in tells)
        return fits or place.kind in STRETCHED
    if place.kind not in ("int", "float"):
        return place.kind != "Literal" or f"'{value}'" in place.text
    holds = [f"value {bound}" for bound in re.findall(r"(?<!· )[<>]=? \d+", place.text)]
    holds += [bounds.replace("·", "value") for bounds in re.findall(r"\d+ <=? · <=? \d+", place.text)]
    holds += [limit for words, limit in LIMITS.items() if words in place.text]
    return abs(value) <= 2**53 and all(eval(bound, {"value": value}) for bound in holds)


def wrong_beside(place, array):
    """The error of an array that does not go with the others, and which of them may be named."""
    every = [p._replace(value=array) if p.path == place.path else p for p in places(place.function)]
    known, odd = lengths(every), set()
    floats = [p for p in every if p.kind in FLOATS and p.value is not None and p.path != place.path]
    floats += [place] * (place.function in BACKWARD)
    if place.kind in FLOATS and any(p.value.dtype != array.dtype for p in floats):
        return T, {p.path for p in floats if len(floats) == 1}
    for ids in [p for p in every if p.kind == "Ids" and p.value.size]:
        if known["vocab_size"] and not 0 <= ids.value.min() <= ids.value.max() < known["vocab_size"][0][1]:
            return V, {ids.path}
    for tellers in [them for them in known.values() if len({n for _, n in them}) > 1]:
        paths = {path for path, _ in tellers} - {place.path}
        odd |= {place.path} | (paths if len(paths) == 1 else set())  # where no third one decides
    for mask in [] if odd else [p for p in every if p.kind in STRETCHED and p.value is not None]:
        full = full_shape(mask.letters, known)
        if not broadcasts(mask.value.shape, full):
            odd |= {place.path, mask.path}
    return (V, odd) if odd else (None, set())


def told(letters, shape):
    """[(letter, length)] of an array of this shape, "..." for leading axes; None where it has too few."""
    named = letters[letters[:1] == ["..."] :]
    first = len(shape) - len(named)
    if first < 0 or (first and named == letters):
        return None
    return [*zip(named, shape[first:], strict=True), *[("...", shape[:first])] * (named != letters)]


def lengths(every):
    """{letter: [(path, length)]}: what the places tell."""
    found = defaultdict(list)
    for place in every:
        name = place.path.rpartition(".")[2]
        tells = [(name, place.value)] * ("a letter" in place.text)
        if place.kind in ("Float", "Ids", "Numbers") and place.value is not None:
            tells = told(place.letters, place.value.shape)
        for letter, length in tells:
            found[letter].append((place.path, length))
    return found


def full_shape(letters, known):
    """What a mask or a bias must broadcast to."""
    full = [CONFIG.n_heads if letter == "h" else known[letter][0][1] for letter in letters]
    return (*full[0], *full[1:]) if letters[0] == "..." else tuple(full)


def broadcasts(shape, full):
    try:
        return np.broadcast_shapes(shape, full) == full
    except ValueError:
        return False


# --- every value in its place ---------------------------------------------------------------------


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


def answer(place, value):
    """What is wrong with the answer to a value in a place; nothing when it is as expected, in a line."""
    outcomes, named = expected(place, value)
    error = refusal(place.function, replaced(CALLS[place.function](), place.path, lambda _: value))
    said, named = str(error), {f" {path}" for path in named} or {""}
    starts = tuple(f"{place.function}:{path}{c}" for path in named for c in " .'")
    well_said = said.startswith(starts) and "; expected " in said and len(said) < 300 and "\n" not in said
    as_expected = (type(error) if error else None) in outcomes and (error is None or well_said)
    return None if as_expected else f"{error!r}, expected {outcomes} of {named}"


PLACES = [place for name in CHECKED for place in places(name)]
FIRST = first_of_their_kind(PLACES)


def values_at(number):
    """The odd values of a place; where the same rule comes again, some of them, by turns."""
    place = PLACES[number]
    if place.kind in ("Any", "str") or "abc." in place.kind:
        return []
    near, odd = odd_values(place), [*ODD.values()]
    every = 4 if "." not in place.path else 24
    return near + odd[number % 4 :: 4] if str(place) in FIRST else (near + odd)[number % every :: every]


@pytest.mark.parametrize("function", CHECKED)
def test_what_may_not_stand_in_a_place_is_refused(function):
    call(function, CALLS[function]())  # a call that passed makes no way for one that looks almost like it
    answers = {}
    for number, place in enumerate(PLACES):
        if place.function == function:
            answers |= {(place.path, kind_of(value)): answer(place, value) for value in values_at(number)}
    assert {where: wrong for where, wrong in answers.items() if wrong} == {}


def test_every_public_function_has_a_valid_call_and_every_argument_its_places(folder):
    functions = {name for name in npf.__all__ if callable(getattr(npf, name)) and name.islower()}
    assert functions - ELSEWHERE - UNREADABLE == set(CALLS)
    without = {str(place) for number, place in enumerate(PLACES) if not values_at(number)}
    assert without == {place for place in FREE.split() if place.partition("-")[0] not in UNREADABLE}
    for name, arguments in {name: CALLS[name]() for name in CALLS}.items():
        call(name, arguments)
        held = {f"{name}-{path[1:]}" for path, end in ends("", arguments) if isinstance(end, np.ndarray)}
        asked = {str(place) for place in PLACES} if name in CHECKED and name not in BACKWARD else held
        assert not {array for array in held - asked if not array.startswith(tuple(without))}


FREE = """cross_entropy_backward-dloss sgd_update-params sgd_update-grads adam_init-params adam_update-params
adam_update-grads adam_update-state.m adam_update-state.v order_sensitivity-f load_minilm-path
sentence_embeddings-texts sentence_embeddings-tokenizer encoder_block_from_torch-state train_byte_pairs-text
load_llama2c-model_file load_llama2c-tokenizer_file load_gguf-path load_llama-path causal_lm_from_torch-state
"""  # whose annotation asks nothing of a kind that is known here: their faults stand in RELATIONS


# --- relations: what is said of them ----------------------------------------------------------------

OTHER_MODEL = drawn(npf.init_transformer, 5, CONFIG._replace(n_layers=2))
ONE_KEY_HEAD = npf.AttentionParams(*LM.blocks[0].attention[:4], b_K=np.ones(8))
GREEDY = {"temperature": 0, "rng": None}
WIDER_MODEL = drawn(npf.init_transformer, 5, CONFIG._replace(d_model=16))


class Change(NamedTuple):
    """Computed from what stands in the place in the valid call."""

    f: Any


def as_type(dtype):
    return Change(lambda a: a.astype(dtype))


def one(value, at=-1):
    return Change(lambda a: entry(a, value, at))


def with_(**fields):
    return Change(lambda value: value | fields if isinstance(value, dict) else value._replace(**fields))


RELATIONS = [  # function, what is spoilt in its valid call ("": several arguments), by what, what is said
    # whole sentences
    ("ffn_forward", "x", np.ones((3, 6, 7)), V,
     "x has shape (3, 6, 7); expected (..., d_model) with d_model=8"),
    ("merge_heads", "x", np.ones((0, 6, 4)), V,
     "x has shape (0, 6, 4); expected (..., h, T, d_k) with h of at least 1, d_k of at least 1"),
    ("attention_forward", "mask", np.ones((2, 2, 6, 7), bool), V,
     "mask has shape (2, 2, 6, 7); expected one that broadcasts to (..., T_q, T_k) = (2, 6, 7)"),
    ("decoder_block_backward", "dy", np.ones((2, 6, 4)), V,
     "dy has shape (2, 6, 4); expected (2, 6, 8) like the forward's output"),
    ("linear_forward", "x", as_type(np.int64), T,
     "x has dtype int64; expected float32 or float64 (for example x.astype(np.float64))"),
    ("linear_forward", "x", as_type(np.float16), T, "x has dtype float16; expected float32 or float64 "
     "(float16 keeps 3 digits and overflows at 65504: sums over a row would be wrong)"),
    ("linear_forward", "b", 0.5, T, "b is a float (0.5); expected None or an array of float32 or float64"),
    ("linear_forward", "W", np.ones(5), V, "W has shape (5,); expected (d_in, d_out) with d_in=4, d_out=5"),
    ("decoder_forward", "memory", np.ones((7, 8)), V,
     "memory has shape (7, 8); expected the leading axes of x, (2,)"),
    ("encoder_forward", "params.blocks", [], T, "params.blocks is a list; expected a tuple"),
    ("dropout_forward", "rng", 7, T,
     "rng is an int (7); expected None or a numpy.random.Generator, for example np.random.default_rng(0)"),
    ("ffn_forward", "dropout", 1, V, "dropout is 1; expected a finite number and >= 0 and < 1"),
    ("causal_mask", "T_q", -1, V, "T_q is -1; expected an integer of at least 0"),
    ("init_decoder", "config.positions", "RoPE", V,
     "config.positions is 'RoPE'; expected one of 'sinusoidal', 'learned', 'rope', 'alibi', 'none'"),
    # between arrays, parameters and a config
    ("encoder_block_forward", "config", with_(d_ff=13), V, "params.ffn.W_1 has shape (8, 12)"),
    ("transformer_forward", "params", WIDER_MODEL, V, "params.embedding.E has shape (5, 16)"),
    ("decoder_forward", "config.n_layers", 2, V, "params.blocks holds 1 blocks; expected config.n_layers=2"),
    ("transformer_forward", "config.n_layers", 2, V, "params.encoder.blocks holds 1 blocks"),
    ("transformer_forward", "config.max_length", 11, V, "params.source_positions.P has 9 rows"),
    ("transformer_forward", "config", with_(positions="none"), V, "params.source_positions is a table"),
    ("greedy_decode", "params.target_positions", None, T, "params.target_positions is None"),
    ("decoder_forward", "params.blocks.0", MODEL.encoder.blocks[0], T, "params.blocks.0 is an Enc"),
    ("softmax_forward", "scores", np.array(1.0), V, "axis is -1; expected an axis of scores, shape ()"),
    ("multi_head_attention_forward", "", with_(n_heads=8, bias=None), V, "rope is True"),
    ("multi_head_attention_forward", "n_kv_heads", 3, V, "n_kv_heads is 3; expected a divisor of n_heads=2"),
    ("multi_head_attention_forward", "n_kv_heads", 1, V,
     "params.W_K has shape (8, 8); expected (d_model, d_kv) with d_model=8, d_kv=4"),
    ("multi_head_attention_forward", "params", LM.blocks[0].attention, V,
     "params.W_K has shape (8, 4); expected (d_model, d_kv) with d_model=8, d_kv=8"),
    ("multi_head_attention_forward", "", with_(params=ONE_KEY_HEAD, n_kv_heads=1), V,
     "params.b_K has shape (8,); expected (d_kv,) with d_kv=4"),
    ("init_encoder", "config", with_(d_model=6, positions="rope"), V, "config.positions is 'rope'"),
    ("rope_forward", "x", np.ones((6, 7)), V, "x's last axis is 7"),
    ("rope_forward", "positions", np.array([0, 1, 2, np.inf, 4, 5]), V, "positions holds NaN or infinity"),
    # room for positions, ids
    ("learned_positions_forward", "x", np.ones((2, 10, 8)), V, "x has 10 positions"),
    ("transformer_forward", "target_ids", np.ones((2, 12), int), V, "target_ids has 12 positions"),
    ("greedy_decode", "source_ids", np.ones((2, 10), int), V, "source_ids has 10 positions"),
    ("greedy_decode", "max_length", 10, V, "max_length is 10"),
    ("greedy_decode", "stop_id", 99, V, "stop_id is 99; expected an id from 0 to 4"),
    ("greedy_decode", "params.decoder.blocks.0.ffn.b_1", one(np.nan), V,
     "params.decoder.blocks.0.ffn.b_1 holds NaN or infinity; expected finite numbers"),
    ("greedy_decode", "params.decoder.norm.gamma", Change(lambda gamma: 1e308 * gamma), V,
     "params give logits that are NaN or infinite; expected finite numbers"),
    ("minilm_input", "config.positions", "alibi", V, "config.positions is 'alibi'; expected 'learned'"),
    ("minilm_input", "ids", np.ones((2, 21), int), V, "ids has 21 positions"),
    ("generate", "ids", one(0, 0), V, "ids has padding_id=0 before a token; expected it at the end only"),
    ("generate", "ids", np.ones((2, 0), int), V, "ids has shape (2, 0); expected at least one token a row"),
    ("generate", "max_new_tokens", 38, V, "max_new_tokens is 38; expected at most 5, the prompt"),
    ("generate", "", with_(rng=None, temperature=1.0), T, "rng is None; expected a numpy.random.Generator"),
    ("generate", "", with_(params=replaced(LM, "head", one(np.nan).f), **GREEDY), V, "params.head holds NaN"),
    ("generate", "", with_(params=replaced(LM, "blocks.0.ffn.W_up", one(np.inf).f), **GREEDY), V,
     "params.blocks.0.ffn.W_up holds NaN or infinity; expected finite numbers"),
    ("generate", "", with_(params=replaced(LM, "norm.gamma", lambda a: 1e308 * a), **GREEDY), V,
     "params give logits that are NaN or infinite; expected finite numbers"),
    ("causal_lm_forward", "ids", np.ones((2, 10), int), V, "ids has 10 positions; expected at most"),
    ("causal_lm_forward", "config.tied", True, V, "params.head is an array; expected None"),
    ("causal_lm_forward", "params.head", None, T, "params.head is None; expected an array with config.tied"),
    ("causal_lm_forward", "config.n_heads", 8, V, "config.n_heads is 8; expected an even d_k"),
    # the loss
    ("cross_entropy_forward", "targets", one(5), V, "targets holds 5"),
    ("cross_entropy_forward", "targets", Change(lambda ids: np.full_like(ids, -1)), V, "targets has no id"),
    ("cross_entropy_forward", "", with_(logits=np.ones((0, 5)), targets=np.ones(0, int)), V,
     "targets has no id that counts; expected at least one: there is nothing to average"),
    ("cross_entropy_forward", "targets", Change(np.ravel), V, "targets has shape (12,)"),
    ("cross_entropy_backward", "dloss", np.ones((2, 6)), V, "dloss has shape (2, 6)"),
    ("cross_entropy_backward", "dloss", np.float32(1), T, "dloss is a NumPy scalar (float32)"),
    ("cross_entropy_backward", "dloss", np.nan, V, "dloss is nan; expected a finite number"),
    # trees that are not alike
    ("adam_update", "grads.gamma", one(np.nan), V, "grads.gamma holds NaN or a number too large to square"),
    ("adam_update", "grads.beta", one(1e160), V, "grads.beta holds NaN or a number too large to square"),
    ("adam_update", "state.v", None, V, "state.v is not built like params"),
    ("adam_update", "state.m.gamma", np.ones(4), V, "state.m.gamma has shape (4,)"),
    ("adam_update", "params.gamma", np.ones(3, np.int64), T, "params.gamma has dtype int64"),
    ("sgd_update", "grads", Change(tuple), V, "grads is not built like params"),
    ("sgd_update", "", with_(params=TREE, grads=(np.ones(2), ())), V,
     "grads is not built like params; expected the same NamedTuples"),
    ("adam_update", "grads", Change(lambda g: namedtuple("Alike", g._fields)(*g)), V,
     "grads is not built like params; expected the same NamedTuples"),
    ("adam_update", "grads", Change(lambda g: namedtuple("Turned", g._fields[::-1])(*g[::-1])), V,
     "grads is not built like params; expected the same leaves, they differ in their order"),
    ("sgd_update", "grads.beta", as_type(np.float32), T, "grads.beta has dtype float32"),
    ("sgd_update", "", with_(params=MODEL, grads=OTHER_MODEL), V,
     "grads is not built like params; expected the same leaves, they differ in decoder.blocks.1."),
    ("sgd_update", "", with_(params=MODEL, grads=WIDER_MODEL), V, "grads.embedding.E has shape (5, 16)"),
    ("adam_init", "params", MODEL._asdict(), T, "params is a dict"),
    # a file, a folder, PyTorch's names, texts
    ("load_minilm", "path", 3, T, "path is an int (3); expected a string or a pathlib.Path"),
    ("load_gguf", "path", 3, T, "path is an int (3); expected a string or a pathlib.Path"),
    ("load_gguf", "dtype", "float16", T, "dtype is the string 'float16'; expected float32 or"),
    ("load_llama", "path", 3, T, "path is an int (3); expected a string or a pathlib.Path"),
    ("load_llama2c", "model_file", 3, T, "model_file is an int (3); expected a string or a pathlib.Path"),
    ("sentence_embeddings", "texts", "dog", T, "texts is the string 'dog'; expected a list of strings"),
    ("sentence_embeddings", "texts", ["dog", None], T, "texts[1] is None; expected a string"),
    ("sentence_embeddings", "texts", ["\udc80"], V, "texts[0] holds half of a surrogate pair"),
    ("encoder_block_from_torch", "state", with_(more=None), V, "state has the tensor more"),
    ("encoder_block_from_torch", "state", with_(**{"norm2.bias": [0.0]}), T, "state['norm2.bias'] is a list"),
    ("save", "tree", (np.ones(2, complex),), T, "0 is a leaf (ndarray); expected an array of numbers"),
    ("save", "path", "a\0b", V, "path is 'a\\x00b'; expected the name of a file"),
    ("load", "path", "", V, "path is ''; expected the name of a file"),
    ("load", "like", (np.ones(3),), V, "0 has shape (2,) and dtype float64 in saved.npz; expected (3,)"),
    ("load", "like", (np.ones(2, np.float32),), V,
     "0 has shape (2,) and dtype float64 in saved.npz; expected (2,) and float32"),
    ("load", "like", (np.ones(2), np.ones(2)), V, "1 is missing from saved.npz"),
    ("load", "like", (None,), V, "0 is not in `like` but stands in saved.npz"),
    ("load_safetensors", "like", (np.ones(3),), V,
     "0 has shape (2,) and dtype float64 in saved.safetensors; expected (3,)"),
    ("load_safetensors", "like", (np.ones(2), np.ones(2)), V, "1 is missing from saved.safetensors"),
    ("load_safetensors", "like", (), V, "0 is not in `like` but stands in saved.safetensors"),
    ("tokenize", "sentence", ["dog"], T, "sentence is a list; expected a string"),
    ("build_vocabulary", "sentences", ["dog"], T, "a sentence is the string 'dog'; expected a list of words"),
    ("encode", "sentences", [["cat"]], V, "'cat' is not in the vocabulary of 3 words"),
    ("decode", "ids", np.array([[7]]), V, "id 7 is not in the vocabulary of 3 words"),
    # functions given to functions
    ("order_sensitivity", "f", "tanh", T, "f is the string 'tanh'; expected a function"),
    ("order_sensitivity", "f", lambda x: 1.0, T, "f(x) is a float (1.0)"),
    ("order_sensitivity", "f", lambda x: x[0], V, "f(x) has shape (6, 8); expected (2, 6) and a last axis"),
    ("order_sensitivity", "x", np.ones((2, 0, 8)), V, "x has shape (2, 0, 8)"),
    ("dead_units", "hidden", np.ones((0, 8)), V, "hidden has shape (0, 8); expected at least one token"),
    ("tree_map", "f", None, T, "f is None; expected a function"),
    ("tree_map", "tree", [np.ones(2)], V, "the trees differ at the root: a leaf (list) and a tuple of 1"),
    ("tree_map", "tree", (None,), V, "the trees differ at 0: None and a leaf (ndarray)"),
    ("tree_map", "tree", npf.RMSNormParams(1), V, "the trees differ at the root: a RMSNormParams of 1"),
    ("tree_map", "", with_(tree=(npf.RMSNormParams((1, 1)),), trees=((npf.RMSNormParams((1,)),),)), V,
     "the trees differ at 0.gamma: a tuple of 2 and a tuple of 1"),
    ("gradcheck", "args", (np.ones(3, np.float16),), T, "z has dtype float16"),
    ("gradcheck", "args", (np.array([0.0, np.nan]),), V, "z has entries that are not finite"),
    ("to_backend", "backend", 3, T, "backend is an int (3); expected one of 'numpy', 'cupy'"),
    ("to_backend", "backend", "torch", V, "backend is 'torch'; expected one of 'numpy', 'cupy'"),
]  # fmt: skip


def test_relations_that_do_not_hold_are_told(folder):
    answers = {}
    for function, place, value, error, said in [row for row in RELATIONS if row[0] in CALLS]:
        call(function, CALLS[function]())
        change = value.f if isinstance(value, Change) else lambda _, value=value: value
        found = refusal(function, replaced(CALLS[function](), place, change))
        if type(found) is not error or not str(found).startswith(f"{function}: {said}"):
            answers[f"{function}: {said}"] = repr(found)
    assert answers == {}


# --- functions without the door's checks: odd values in every argument ----------------------------

TREES = "None, (), 0-d, empty, ints, 2x0 int, float16"
CHECKS = {"args": "0-d, empty", "rng": "None", "directions": "None, 3, np.uint8(2)"} | {
    "tolerance": "3, 2.5, np.float64(1.0), np.float32(1.0), np.uint8(2)"
}
WELCOME = {  # the odd values that are no mistake
    "gradcheck": CHECKS,
    "assert_gradients": CHECKS,
    "tokenize": {"sentence": "'x'"},
    "build_vocabulary": {"sentences": "[], {}, ()", "special": "[], ()"},
    "encode": {"sentences": "[], {}, ()"},
    "decode": {"ids": "2x0 int"},
    "save": {"path": "'x'", "tree": f"{TREES}, 3, -1, 2.5, True, nan, np.float64(1.0)"},
    "save_safetensors": {"path": "'x'", "tree": f"{TREES}, {{}}"},
    "load": {"path": "'x'"},
}
UNCARING = {"array_module", "leaves", "to_backend", "to_numpy"}  # they pass on what they do not know
SWEPT = set(CALLS) - set(CHECKED) - UNCARING - {"load_safetensors"}  # tests/pretrained has its files


@pytest.mark.parametrize("name", sorted(SWEPT))
def test_odd_values_are_refused_or_welcome(name, folder):
    arguments, taken = CALLS[name](), defaultdict(set)
    own = f"{name.replace('assert_gradients', 'gradcheck')}: "  # which it calls, and which calls the function
    for place, odd in product(arguments.keys() - {"kwargs"}, ODD):
        if place in ("f", "forward", "backward") and callable(ODD[odd]):
            continue  # called by us, it raises its own errors
        value = (ODD[odd],) if place in ("trees", "args") else ODD[odd]
        try:
            call(name, arguments | {place: value})
        except (TypeError, ValueError) as error:
            said = str(error)
            assert said.startswith((own, "relu_forward: ") if place == "args" else own), (place, odd, error)
            assert len(said) < 300 and "\n" not in said, (place, odd, error)
        else:
            taken[place].add(odd)
    assert taken == {place: set(values.split(", ")) for place, values in WELCOME.get(name, {}).items()}
