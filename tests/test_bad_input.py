"""Every public function rejects wrong arguments with a clear message, and does not change its arguments.

There are three groups of tests:

1. Odd values at every place: in every argument, and in every field of the parameters and the config.
2. RELATIONS: mistakes that involve several arguments, each with its message.
3. Odd values in the arguments of the functions that do not use `checked`.

The tests derive the expected result for an odd value from the text of the annotation, without the code of
npformer/validation. Bounds are evaluated as Python, masks are checked with NumPy's broadcasting, and shapes
are compared with the lengths of all other arrays.
"""

import inspect
import re
import zlib
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
    NAMES_OF_FUNCTIONS,
    TREE,
    UNREADABLE,
    VOCAB_SIZE,
    backward_of,
    call,
    drawn,
    fingerprint,
    first_of_their_kind,
    output_dimensions,
    places,
    replaced,
)

import npformer as npf
from npformer.arrays import describe_value
from npformer.tree import iter_nested_leaves

T, V = TypeError, ValueError

# --- odd values -----------------------------------------------------------------------------------


class Tensor:
    """An array of an unknown library."""

    shape, dtype, ndim, size = (2, 3), np.dtype(np.float64), 2, 6


ODD_VALUES = {
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
NAMES_OF_DTYPES = ("float32", "f8")
FLOAT32 = np.dtype("f4")
ODD_VALUES_OF_KIND = {
    "xp": ["cupy", re],
    "Rng": [0, np.random, np.random.PCG64(0), np.random.RandomState(0)],
    "dtype": ["(-3,)f8", np.dtype(complex), *DTYPES[:6], *NAMES_OF_DTYPES, FLOAT32],
}
FLOATS = ("Float", "Bias", "Constant")
BROADCASTING = ("Mask", "Bias", "Constant", "Counted", "RowNumbers")
ARRAYS = ("Float", "Ids", "Numbers", *BROADCASTING)


def odd_values(place):
    """Return values that are almost valid at this place, and numbers near the bounds in the annotation."""
    value, kind = place.value, place.kind
    if kind in ("int", "float"):
        return [*NUMBERS, *numbers_at_bounds(place)]
    if kind in ARRAYS and value is not None:
        return odd_arrays(place)
    if kind.endswith("Cache"):
        return [cache_of_another_function(place.function), tuple(value), value._asdict()]
    if isinstance(value, tuple):
        return [list(value), value[0], npf.BlockMultiplications(1, 2, 3, 4)]
    if kind == "Literal":
        return ["", value.upper(), value + " "]
    return ODD_VALUES_OF_KIND.get(kind, [])


def numbers_at_bounds(place):
    """Return numbers near each number that occurs in the annotation."""
    step = 1 if place.kind == "int" else 1e-6
    bounds = [int(digits) for digits in re.findall(r"\d+", place.text)]
    return [bound + distance for bound in bounds for distance in (-5, -step, 0, step, 5)]


def odd_arrays(place):
    """Return almost valid arrays, with a wrong type, dtype or shape, or with ids outside the vocabulary."""
    value = place.value
    arrays = [value.tolist(), np.ma.asarray(value), *map(value.astype, DTYPES)]
    if place.kind == "Ids":
        arrays += [with_entry(value, wrong) for wrong in (VOCAB_SIZE, -2)]
    return arrays + [np.ones(shape, value.dtype) for shape in odd_shapes(place)]


def odd_shapes(place):
    """Return wrong and unusual shapes of the array.

    In each shape, one axis is longer or empty (or has length 1 in a mask or bias), an axis is added or
    removed, or the axes are in reverse order.
    """
    shape, lengths = place.value.shape, [0]
    if place.kind in BROADCASTING:
        shape = full_shape(place.dimension_names, recorded_lengths(places(place.function)))
        lengths = [0, 1]
    shapes = {(1, *shape), shape[1:], shape[::-1]}
    for i, length in enumerate(shape):
        for other_length in [length + 2, *lengths]:
            shapes.add((*shape[:i], other_length, *shape[i + 1 :]))
    return sorted(shapes - {place.value.shape})


def cache_of_another_function(backward):
    forwards = list(FORWARD)
    i = forwards.index(backward.replace("_backward", "_forward"))
    another = forwards[i - 1]
    _, cache = call(another, FORWARD[another]())
    return cache


def with_entry(array, value, at=-1):
    """Return a copy of the array with `value` at the flat index `at`."""
    array = array.copy()
    array.reshape(-1)[at] = value
    return array


# --- the expected result ----------------------------------------------------------------------------


def expected(place, value):
    """Return (errors, paths): the errors that the value may cause, and the paths that messages may name.

    If None is among the errors, the call may also be accepted.
    """
    error = error_of_value(place, value)
    if error:
        return {error}, {place.path}
    if isinstance(value, np.ndarray):
        error, paths = error_with_other_arguments(place, value)
        if error:
            return {error}, {place.path, *paths}
    return ({None, T, V} if place.has_relations else {None}), set()


def error_of_value(place, value):
    """Return the error that the value causes independently of the other arguments, or None."""
    if value is None:
        return None if place.is_optional else T
    if not is_right_kind(place, value):
        return T
    return None if is_within_bounds(place, value) else V


def is_array_of(value, *dtypes):
    return type(value) is np.ndarray and value.dtype in [np.dtype(dtype) for dtype in dtypes]


def is_number_of(value, *types):
    return isinstance(value, types) and not isinstance(value, bool)


def is_float_dtype(value):
    return any(value is dtype for dtype in (float, np.float32, *NAMES_OF_DTYPES, FLOAT32))


IS_RIGHT_KIND = {
    "int": lambda value: is_number_of(value, int, np.integer),
    "float": lambda value: is_number_of(value, int, np.integer, float, np.floating),
    "bool": lambda value: isinstance(value, bool | np.bool),
    "xp": lambda value: value is np,
    "Literal": lambda value: isinstance(value, str),
    "dtype": is_float_dtype,
    "Float": lambda value: is_array_of(value, "f4", "f8"),
    "Bias": lambda value: is_array_of(value, "f4", "f8"),
    "Constant": lambda value: is_array_of(value, "f4", "f8"),
    "Counted": lambda value: is_array_of(value, bool),
    "Ids": lambda value: is_array_of(value, *INTEGERS),
    "Mask": lambda value: is_array_of(value, bool),
    "Numbers": lambda value: is_array_of(value, *INTEGERS, "f4", "f8", ">f8"),
    "RowNumbers": lambda value: is_array_of(value, *INTEGERS, "f4", "f8", ">f8"),
}


def is_right_kind(place, value):
    """Return whether the type of the value (and the dtype of an array) is valid for the place."""
    if place.kind in IS_RIGHT_KIND:
        return IS_RIGHT_KIND[place.kind](value)
    return type(value) is type(place.value)


# {words in the description of a rule: the condition that the rule checks}
CONDITIONS = {
    "divides": "8 % (value or 9) == 0",
    "below vocab_size": f"0 <= value < {VOCAB_SIZE}",
    "an axis": "-2 <= value < 2",
    "even]": "value % 2 == 0",
    "even,": "value % 2 == 0",
    "divides d_q": "20 % (value or 9) == 0",
}


def is_within_bounds(place, value):
    """Return whether a value of the right kind has an allowed size or shape, or is an allowed choice."""
    if place.kind in ARRAYS:
        return has_allowed_shape(place, value)
    if place.kind == "Literal":
        return f"'{value}'" in place.text
    if place.kind not in ("int", "float"):
        return True
    conditions = [f"value {bound}" for bound in re.findall(r"(?<!· )[<>]=? \d+", place.text)]
    for bounds in re.findall(r"\d+ <=? · <=? \d+", place.text):
        conditions.append(bounds.replace("·", "value"))
    conditions += [condition for words, condition in CONDITIONS.items() if words in place.text]
    return abs(value) <= 2**53 and all(eval(condition, {"value": value}) for condition in conditions)


def has_allowed_shape(place, array):
    """Return whether the shape would be allowed if the other arrays had suitable lengths."""
    if place.function in BACKWARD:  # the cache determines the shape completely
        return array.shape == place.value.shape
    if place.kind in BROADCASTING:
        return True
    lengths = lengths_by_name(place.dimension_names, array.shape)
    if lengths is None:
        return False
    return not any(length == 0 and name[0] not in "TS." for name, length in lengths)


def error_with_other_arguments(place, array):
    """Return (error, paths) for an array that contradicts other arrays.

    `paths` are the other paths that the message may name.
    """
    every = [p._replace(value=array) if p.path == place.path else p for p in places(place.function)]
    known = recorded_lengths(every)
    floats = [p for p in every if p.kind in FLOATS and p.value is not None and p.path != place.path]
    if place.function in BACKWARD:
        floats.append(place)
    if place.kind in FLOATS and any(p.value.dtype != array.dtype for p in floats):
        return T, {p.path for p in floats if len(floats) == 1}
    for ids in every:
        if ids.kind == "Ids" and ids.value.size and known["vocab_size"]:
            vocab_size = known["vocab_size"][0][1]
            if not 0 <= ids.value.min() <= ids.value.max() < vocab_size:
                return V, {ids.path}
    paths = contradicting_paths(place, known) or paths_that_do_not_broadcast(place, every, known)
    return (V, paths) if paths else (None, set())


def contradicting_paths(place, known):
    """Return the paths that a message may name because a dimension has several lengths."""
    found = set()
    for recorded in known.values():
        if len({length for _, length in recorded}) < 2:
            continue
        others = {path for path, _ in recorded} - {place.path}
        found.add(place.path)
        if len(others) == 1:  # with only two arrays, either may be the wrong one
            found |= others
    return found


def paths_that_do_not_broadcast(place, every, known):
    """Return the paths that a message may name because a mask or a bias does not broadcast."""
    found = set()
    for mask in every:
        if mask.kind in BROADCASTING and mask.value is not None:
            full = full_shape(mask.dimension_names, known)
            has_every_row = mask.kind != "RowNumbers" or mask.value.shape[-1:] == full[-1:]
            if not broadcasts(mask.value.shape, full) or not has_every_row:
                found |= {place.path, mask.path}
    return found


def lengths_by_name(names, shape):
    """Return [(dimension name, length)] for an array of this shape, or None for a wrong number of axes.

    The "length" of "..." is the shape of the leading axes.
    """
    has_leading_axes = names[:1] == ["..."]
    own_names = names[1:] if has_leading_axes else names
    n_leading = len(shape) - len(own_names)
    if n_leading < 0 or (n_leading > 0 and not has_leading_axes):
        return None
    found = list(zip(own_names, shape[n_leading:], strict=True))
    if has_leading_axes:
        found.append(("...", shape[:n_leading]))
    return found


def recorded_lengths(every):
    """Return {dimension name: [(path, length)]} from all places that record lengths."""
    found = defaultdict(list)
    for place in every:
        if "a dimension" in place.text:  # an integer that is the length of a dimension
            name = place.path.rpartition(".")[2]
            found[name].append((place.path, place.value))
        elif place.kind in ("Float", "Ids", "Numbers") and place.value is not None:
            for name, length in lengths_by_name(place.dimension_names, place.value.shape):
                found[name].append((place.path, length))
    return found


def full_shape(names, known):
    """Return the shape to which a mask or a bias must broadcast."""
    shape = []
    for name in names:
        length = CONFIG.n_heads if name == "h" else known[name][0][1]
        shape += length if name == "..." else [length]
    return tuple(shape)


def broadcasts(shape, full):
    try:
        return np.broadcast_shapes(shape, full) == full
    except ValueError:
        return False


# --- odd values at every place ------------------------------------------------------------------------


def rejection(name, arguments):
    """Return the TypeError or ValueError of a call, or None. Check that rejected arguments are unchanged."""
    before = fingerprint(arguments)
    try:
        call(name, arguments)
    except (TypeError, ValueError) as error:
        assert fingerprint(arguments) == before, "the arguments have changed before the error"
        assert error.__context__ is None or error.__suppress_context__, "the traceback shows another error"
        return error
    return None


def problem_with(place, value):
    """Call a function with this value at this place. Return a description of the problem, or None."""
    outcomes, paths = expected(place, value)
    error = rejection(place.function, replaced(CALLS[place.function](), place.path, lambda _: value))
    names = {f" {path}" for path in paths} or {""}
    outcome = type(error) if error else None
    if outcome in outcomes and (error is None or is_clear_message(str(error), place.function, names)):
        return None
    return f"{error!r}, expected {outcomes} of {names}"


def is_clear_message(message, function, names):
    """Return whether a message is short, names the wrong argument, and says what was expected."""
    beginnings = tuple(f"{function}:{name}{end}" for name in names for end in " .'")
    is_short = len(message) < 300 and "\n" not in message
    return message.startswith(beginnings) and "; expected " in message and is_short


PLACES = [place for name in CHECKED for place in places(name)]
FIRST = first_of_their_kind(PLACES)


def values_at(place, sparse):
    """Return the odd values that the test tries at a place. `sparse` leaves out most of them.

    A place in FIRST gets all values from `odd_values` and a quarter of ODD_VALUES. Other places get only a
    few of these values, so that the test stays fast. The choice depends only on the name of the place, so a
    new public function does not change the values of other functions.
    """
    if is_unchecked(place):
        return []
    own_values, common_values = odd_values(place), [*ODD_VALUES.values()]
    choice = zlib.crc32(str(place).encode())
    if str(place) in FIRST:
        return own_values + common_values[choice % 4 :: 4]
    step = 24 if "." in place.path else 4
    if sparse:
        step *= 4
    return (own_values + common_values)[choice % step :: step]


def is_unchecked(place):
    """Return whether the annotation of a place says nothing about its valid values.

    The annotation of a tree of any type begins with a type variable, ~Tree, so its kind is empty.
    """
    return place.kind in ("", "Any", "str") or "abc." in place.kind


@pytest.mark.parametrize("sparse", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("function", CHECKED)
def test_checked_function_rejects_odd_values(function, sparse):
    call(function, CALLS[function]())  # `checked` caches this valid call; the cache must not hide errors
    problems = {}
    for place in PLACES:
        if place.function != function:
            continue
        for value in values_at(place, sparse):
            problem = problem_with(place, value)
            if problem:
                problems[place.path, describe_value(value)] = problem
    assert problems == {}


# Places whose annotation says nothing about valid values. RELATIONS has wrong values for them.
LOSSES = sorted(name for name in FORWARD if not output_dimensions(name))  # the output is one number
UNCHECKED_PLACES = [f"{backward_of(loss)}-dloss" for loss in LOSSES]
UNCHECKED_PLACES += """
    sgd_update-params sgd_update-grads adam_init-params adam_update-params
    adam_update-grads adam_update-state.m adam_update-state.v order_sensitivity-f load_minilm-path
    sentence_embeddings-texts sentence_embeddings-tokenizer encoder_block_from_torch-state
    train_byte_pairs-text load_llama2c-model_file load_llama2c-tokenizer_file load_gguf-path load_llama-path
    causal_lm_from_torch-state
""".split()


def test_every_function_has_a_valid_call():
    missing = NAMES_OF_FUNCTIONS - ELSEWHERE - UNREADABLE - set(CALLS)
    assert missing == set(), "these functions have no valid call in tests/valid_calls.py"


# Optional arguments that keep their default, None, in the valid calls, each with the reason.
KEPT_NONE = {
    "assert_gradients-reference": "test_low_precision.py has references",
    "gradcheck-reference": "test_low_precision.py has references",
    "rope_forward-frequencies": "test_positional.py has frequencies",
    "multi_head_attention_forward-n_kv_heads": "the golden values and RELATIONS have grouped heads",
}


def test_optional_arguments_have_a_value(folder):
    """An argument that is None in every call is not tested."""
    kept = set()
    for name in CALLS:
        parameters = inspect.signature(inspect.unwrap(getattr(npf, name))).parameters.values()
        optional = {parameter.name for parameter in parameters if parameter.default is None}
        kept.update(f"{name}-{argument}" for argument in optional if CALLS[name]()[argument] is None)
    advice = "add a valid value to VALUES_BY_NAME in tests/valid_calls.py, or the reason to KEPT_NONE"
    assert kept == set(KEPT_NONE), advice


def test_every_place_has_odd_values():
    without_values = {str(place) for place in PLACES if not values_at(place, sparse=False)}
    listed = {place for place in UNCHECKED_PLACES if place.partition("-")[0] not in UNREADABLE}
    advice = "add them to UNCHECKED_PLACES and their wrong values to RELATIONS in tests/test_bad_input.py"
    assert without_values - listed == set(), f"no odd values are known for these places: {advice}"
    assert listed - without_values == set(), "remove these places from UNCHECKED_PLACES"


@pytest.mark.parametrize("name", CALLS)
def test_valid_call_is_accepted_and_arrays_checked(name, folder):
    """Every array in the arguments has an annotation with a shape, except in backward functions."""
    arguments = CALLS[name]()
    call(name, arguments)
    if name not in CHECKED or name in BACKWARD:
        return
    paths = [path[1:] for path, end in iter_nested_leaves("", arguments) if isinstance(end, np.ndarray)]
    arrays = {f"{name}-{path}" for path in paths}
    unchecked = tuple(UNCHECKED_PLACES)
    not_checked = {array for array in arrays - set(map(str, PLACES)) if not array.startswith(unchecked)}
    assert not_checked == set(), "these arrays have no annotation with a shape"


# --- relations between arguments ----------------------------------------------------------------------

OTHER_MODEL = drawn(npf.init_transformer, 5, CONFIG._replace(n_layers=2))
ONE_KEY_HEAD = LM.blocks[0].attention._replace(b_K=np.ones(8))
GREEDY = {"temperature": 0, "rng": None}
WIDER_MODEL = drawn(npf.init_transformer, 5, CONFIG._replace(d_model=16))


class Change(NamedTuple):
    """A function that computes the wrong value from the value in the valid call."""

    f: Any


def as_type(dtype):
    return Change(lambda a: a.astype(dtype))


def one(value, at=-1):
    return Change(lambda a: with_entry(a, value, at))


def with_(**fields):
    return Change(lambda value: value | fields if isinstance(value, dict) else value._replace(**fields))


class LikeTensorFlow:
    """A tensor of a different library, with a method that returns a NumPy array."""

    def numpy(self):
        return np.ones(3)


class LikeTorch(LikeTensorFlow):
    def detach(self):
        return self


TABLE = npf.rope_table(np.arange(7), np.ones(2))
RELATIONS = [  # function, place of the wrong value ("" for several places), value, type of the error, message
    # complete messages
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
    # contradictions between arrays, parameters and a config
    ("encoder_block_forward", "config", with_(d_ff=13), V, "params.ffn.W_1 has shape (8, 12)"),
    ("transformer_forward", "params", WIDER_MODEL, V, "params.embedding.E has shape (5, 16)"),
    ("decoder_forward", "config.n_layers", 2, V, "params.blocks holds 1 blocks; expected config.n_layers=2"),
    ("transformer_forward", "config.n_layers", 2, V, "params.encoder.blocks holds 1 blocks"),
    ("transformer_forward", "config.max_length", 11, V, "params.source_positions.P has 9 rows"),
    ("transformer_forward", "config", with_(positions="none"), V, "params.source_positions is a table"),
    ("greedy_decode", "params.target_positions", None, T, "params.target_positions is None"),
    ("decoder_forward", "params.blocks.0", MODEL.encoder.blocks[0], T, "params.blocks.0 is an Enc"),
    ("softmax_forward", "scores", np.array(1.0), V, "scores has shape (); expected at least one axis"),
    ("multi_head_attention_forward", "", with_(n_heads=8, bias=None), V, "rope is True"),
    ("multi_head_attention_forward", "n_kv_heads", 3, V, "n_kv_heads is 3; expected a divisor of n_heads=2"),
    ("multi_head_attention_forward", "n_kv_heads", 1, V,
     "params.W_K has shape (8, 8); expected (d_model, d_kv) with d_model=8, d_kv=4 (n_kv_heads sets d_kv)"),
    ("multi_head_attention_forward", "params", LM.blocks[0].attention, V,
     "params.W_K has shape (8, 4); expected (d_model, d_kv) with d_model=8, d_kv=8 (n_kv_heads sets d_kv)"),
    ("ffn_forward", "params.W_1", np.ones((12, 8)), V,
     "params.W_1 has shape (12, 8); expected (d_model, d_ff) with d_model=8, d_ff=12 (params.W_1.T fits)"),
    ("relu_forward", "z", LikeTorch(), T,
     "z is a LikeTorch; expected an array of float32 or float64 (z.detach().numpy() is one)"),
    ("causal_lm_forward", "ids", LikeTensorFlow(), T,
     "ids is a LikeTensorFlow; expected an array of integers (ids.numpy() is one)"),
    ("multi_head_attention_forward", "", with_(params=ONE_KEY_HEAD, n_kv_heads=1), V,
     "params.b_K has shape (8,); expected (d_kv,) with d_kv=4"),
    ("multi_head_attention_forward", "rope", TABLE._replace(layout="half"), V, "rope.layout is 'half'"),
    ("multi_head_attention_forward", "rope", TABLE._replace(cos=np.ones((7, 2), int)), T,
     "rope.cos has dtype int64"),
    ("multi_head_attention_forward", "rope", TABLE._replace(sin=np.ones((6, 2))), V,
     "rope.sin has shape (6, 2); expected (..., T, pairs) with T=7"),
    ("multi_head_attention_forward", "rope", TABLE._replace(sin=np.ones((7, 1))), V,
     "rope.sin has shape (7, 1); expected (7, 2) like rope.cos"),
    ("multi_head_attention_forward", "rope", TABLE._replace(cos=np.ones((3, 7, 2))), V,
     "rope.cos has shape (3, 7, 2); expected one that broadcasts to (..., T, pairs) = (2, 7, -1)"),
    ("multi_head_attention_forward", "rope", TABLE._replace(cos=np.ones((7, 3))), V,
     "rope.cos has 3 pairs; expected at most 2 pairs with d_k=4"),
    ("rope_forward", "frequencies", np.ones(5), V,
     "frequencies holds 5 numbers; expected at most 4, the pairs of d=8"),
    ("init_causal_lm", "config", with_(frequencies=(1.0,) * 3), V,
     "config.frequencies holds 3 numbers; expected at most 2, d_k/2"),
    ("init_causal_lm", "config", with_(frequencies=("1",)), T, "config.frequencies.0 is the string"),
    ("halves_to_interleaved", "d_k", 6, V, "d_k is 6; expected a divisor of the 20 columns"),
    ("init_encoder", "config", with_(d_model=6, positions="rope"), V, "config.positions is 'rope'"),
    ("rope_forward", "x", np.ones((6, 7)), V, "x's last axis is 7"),
    ("rope_forward", "positions", np.array([0, 1, 2, np.inf, 4, 5]), V, "positions holds NaN or infinity"),
    # too many positions, wrong ids
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
    # trees with different structures
    ("adam_update", "grads.gamma", one(np.nan), V, "grads.gamma holds NaN or a number too large to square"),
    ("adam_update", "grads.beta", one(1e160), V, "grads.beta holds NaN or a number too large to square"),
    ("adam_update", "state.v", None, V, "state.v is not built like params"),
    ("adam_update", "state.m.gamma", np.ones(4), V, "state.m.gamma has shape (4,)"),
    ("adam_update", "params.gamma", np.ones(3, np.int64), T, "params.gamma has dtype int64"),
    ("sgd_update", "grads", Change(tuple), V, "grads is not built like params"),
    ("sgd_update", "grads.gamma", 3, T, "grads.gamma is an int (3); expected an array of float32 or float64"),
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
    # files, folders, names of PyTorch, texts
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
    ("load", "like", (None,), V, "0 is not in `like`, but it is in saved.npz"),
    ("load_safetensors", "like", (np.ones(3),), V,
     "0 has shape (2,) and dtype float64 in saved.safetensors; expected (3,)"),
    ("load_safetensors", "like", (np.ones(2), np.ones(2)), V, "1 is missing from saved.safetensors"),
    ("load_safetensors", "like", (), V, "0 is not in `like`, but it is in saved.safetensors"),
    ("tokenize", "sentence", ["dog"], T, "sentence is a list; expected a string"),
    ("build_vocabulary", "sentences", ["dog"], T, "a sentence is the string 'dog'; expected a list of words"),
    ("encode", "sentences", [["cat"]], V, "'cat' is not in the vocabulary of 3 words"),
    ("decode", "ids", np.array([[7]]), V, "id 7 is not in the vocabulary of 3 words"),
    # functions as arguments
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
    ("gradcheck", "args", (np.ones(3, complex),), T, "z has dtype complex128"),
    ("gradcheck", "args", (np.array([0.0, np.nan]),), V, "z has entries that are not finite"),
    ("to_backend", "backend", 3, T, "backend is an int (3); expected one of 'numpy', 'cupy'"),
    ("to_backend", "backend", "torch", V, "backend is 'torch'; expected one of 'numpy', 'cupy'"),
]  # fmt: skip
for loss in LOSSES:
    RELATIONS += [
        (backward_of(loss), "dloss", np.ones((2, 6)), V, "dloss has shape (2, 6)"),
        (backward_of(loss), "dloss", np.float32(1), T, "dloss is a NumPy scalar (float32)"),
        (backward_of(loss), "dloss", np.nan, V, "dloss is nan; expected a finite number"),
    ]


def id_of_relation(row):
    function, place, *_, message = row
    return f"{function}-{place}-{message[:40]}"


@pytest.mark.parametrize(
    ("function", "place", "value", "error_type", "message"),
    [pytest.param(*row, id=id_of_relation(row)) for row in RELATIONS if row[0] in CALLS],
)
def test_wrong_relation_has_its_message(function, place, value, error_type, message, folder):
    call(function, CALLS[function]())  # `checked` caches this valid call; the cache must not hide errors
    change = value.f if isinstance(value, Change) else lambda _: value
    error = rejection(function, replaced(CALLS[function](), place, change))
    assert type(error) is error_type
    assert str(error).startswith(f"{function}: {message}")


@pytest.mark.parametrize("loss", LOSSES)
def test_loss_of_an_empty_batch_is_rejected(loss):
    """A mean over no rows would be NaN."""
    error = rejection(loss, FORWARD[loss](lead=(0,)))
    assert type(error) is ValueError and str(error).startswith(f"{loss}: ")


# --- functions without `checked`: odd values in every argument ------------------------------------------

TREES = "None, (), 0-d, empty, ints, 2x0 int, float16"
OPTIONS_OF_GRADCHECK = {
    "args": "0-d, empty",
    "rng": "None",
    "directions": "None, 3, np.uint8(2)",
    "reference": "None",
    "tolerance": "3, 2.5, np.float64(1.0), np.float32(1.0), np.uint8(2), {}",
}
ACCEPTED_ODD_VALUES = {  # {function: {argument: the names in ODD_VALUES of values that are valid}}
    "gradcheck": OPTIONS_OF_GRADCHECK,
    "assert_gradients": OPTIONS_OF_GRADCHECK,
    "tokenize": {"sentence": "'x'"},
    "build_vocabulary": {"sentences": "[], {}, ()", "special": "[], ()"},
    "encode": {"sentences": "[], {}, ()"},
    "decode": {"ids": "2x0 int"},
    "save": {"path": "'x'", "tree": f"{TREES}, 3, -1, 2.5, True, nan, np.float64(1.0)"},
    "save_safetensors": {"path": "'x'", "tree": f"{TREES}, {{}}"},
    "load": {"path": "'x'"},
}
ACCEPT_ANYTHING = {"array_module", "leaves", "to_backend", "to_numpy"}  # these functions accept any value
TESTED_ELSEWHERE = {"load_safetensors"}  # tests/pretrained tests this function with damaged files
UNCHECKED_FUNCTIONS = sorted(set(CALLS) - set(CHECKED) - ACCEPT_ANYTHING - TESTED_ELSEWHERE)


def is_called_by_function(place, value):
    """Return whether npformer would call this value. An error in such a call comes from the value itself."""
    return place in ("f", "forward", "backward") and callable(value)


@pytest.mark.parametrize("name", UNCHECKED_FUNCTIONS)
def test_unchecked_function_rejects_odd_values(name, folder):
    arguments = CALLS[name]()
    accepted = defaultdict(set)
    for place, (odd, value) in product(arguments.keys() - {"kwargs"}, ODD_VALUES.items()):
        if is_called_by_function(place, value):
            continue
        if place in ("trees", "args"):
            value = (value,)
        beginnings = [
            name.replace("assert_gradients", "gradcheck") + ": "
        ]  # messages of assert_gradients begin with "gradcheck: "
        if place == "args":
            beginnings.append("relu_forward: ")  # gradcheck passes `args` to relu_forward
        try:
            call(name, arguments | {place: value})
        except (TypeError, ValueError) as error:
            message = str(error)
            assert message.startswith(tuple(beginnings)), (place, odd, error)
            assert len(message) < 300 and "\n" not in message, (place, odd, error)
        else:
            accepted[place].add(odd)
    valid = {place: set(values.split(", ")) for place, values in ACCEPTED_ODD_VALUES.get(name, {}).items()}
    assert accepted == valid, f"add valid odd values of {name} to ACCEPTED_ODD_VALUES"
