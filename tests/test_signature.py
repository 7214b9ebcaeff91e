"""Tests of `checked`: it only adds checks, and a wrong call is rejected after a similar accepted call."""

import collections
import copy
import dataclasses
import doctest
import functools
import inspect
import multiprocessing
import pickle
import pydoc
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import fake_cupy
import numpy as np
import pytest
import valid_calls
from valid_calls import CALLS, CHECKED, array, call

import npformer as npf
from npformer import Float, Ids, Mask, checked
from npformer.arrays import Array
from npformer.loss import DLoss
from npformer.validation import signature
from npformer.validation.annotations import Numbers
from npformer.validation.cache_key import cache_key
from npformer.validation.signature import MAX_KEYS

# --- a checked function is still an ordinary function -------------------------------------------------


@pytest.mark.parametrize("name", CHECKED)
def test_checked_keeps_what_describes_the_function(name):
    function = getattr(npf, name)
    body = inspect.unwrap(function)
    assert inspect.signature(function) == inspect.signature(body)
    assert inspect.getsource(function) == inspect.getsource(body)
    assert (function.__name__, function.__doc__) == (body.__name__, body.__doc__)
    assert pickle.loads(pickle.dumps(function)) is function
    assert copy.deepcopy(function) is function
    examples = [len(test.examples) for test in doctest.DocTestFinder(recurse=False).find(function, name)]
    assert examples and all(examples)


def test_help_shows_the_shapes():
    shown = pydoc.plain(pydoc.render_doc(npf.attention_forward))
    assert "mask: Mask[Array, '... T_q T_k'] | None" in shown


def test_checked_rejects_annotations_that_are_strings():
    source = "from __future__ import annotations\ndef f(x: Float[None, 3]): ..."
    names: dict[str, Any] = {"Float": Float, "__name__": "exercise"}
    exec(source, names)
    with pytest.raises(TypeError, match=r"^'Float\[None, 3\]' cannot be read: .* without __future__$"):
        checked(names["f"])(np.ones(3))


# --- a function of a user -----------------------------------------------------------------------------


@checked
def scaled(
    x: Float[np.ndarray, "... T d"], ids: Ids[np.ndarray, "... T"],
    mask: Mask[np.ndarray, "... T T"] | None = None, *, by: Float[np.ndarray, "d"] | None = None, n: int = 1,
):  # fmt: skip
    """Return x * by * n, or x itself if `by` is None."""
    return x if by is None else x * by * n


X, IDS = np.ones((2, 6, 8)), np.zeros((2, 6), int)


def test_checked_accepts_positional_keyword_and_missing_arguments():
    by = np.full(8, 2.0)
    assert scaled(X, IDS) is X
    for result in (scaled(X, IDS, None, by=by), scaled(ids=IDS, by=by, x=X), scaled(X, ids=IDS, by=by, n=1)):
        np.testing.assert_array_equal(result, X * 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": X[0, 0]}, "x has shape (8,); expected (..., T, d)"),
        ({"ids": IDS[:1]}, "ids has shape (1, 6); expected the leading axes of x, (2,)"),
        ({"ids": IDS[:, 1:]}, "ids has shape (2, 5); expected (..., T) with T=6"),
        ({"mask": np.ones((6, 5), bool)},
         "mask has shape (6, 5); expected one that broadcasts to (..., T, T) = (2, 6, 6)"),
        ({"by": np.ones(7)}, "x has shape (2, 6, 8); expected (..., T, d) with T=6, d=7"),
        ({"by": [1.0]}, "by is a list; expected None or an array of float32 or float64"),
    ],
    ids=["x axes", "ids batch", "ids length", "mask shape", "by length", "by type"],
)  # fmt: skip
def test_checked_rejects_wrong_arguments_of_user_function(change, message, monkeypatch):
    monkeypatch.delenv("NPFORMER_FULL_TRACEBACK", raising=False)
    with pytest.raises((TypeError, ValueError)) as caught:
        scaled(**{"x": X, "ids": IDS} | change)
    assert message in str(caught.value) and str(caught.value).startswith("scaled: ")
    in_package = [entry for entry in caught.traceback if "npformer" in str(entry.path)]
    files = [entry.path.name for entry in in_package]
    assert files.count("signature.py") <= 1  # at most one line of the wrapper is in the traceback


def test_wrong_number_of_arguments_is_pythons_error():
    with pytest.raises(TypeError, match="missing 2 required positional arguments: 'x' and 'ids'"):
        scaled()  # type: ignore[call-arg]  # wrong on purpose, like the two calls below
    with pytest.raises(TypeError, match="takes from 2 to 3 positional arguments but 4 were given"):
        scaled(X, IDS, None, X)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="got multiple values for argument 'x'"):
        scaled(X, IDS, x=X)  # type: ignore[misc]


def test_ids_are_compared_with_floats_after_them():
    @checked
    def chosen(ids: Ids[np.ndarray, "... T"], x: Float[np.ndarray, "... T d"]):
        """Take ids before x, although `checked` checks x before ids."""

    with pytest.raises(ValueError, match=r"^chosen: ids has shape \(2, 5\); expected \(..., T\) with T=6$"):
        chosen(IDS[:, 1:], X)


def test_checked_accepts_an_array_in_a_file(tmp_path):
    x = np.memmap(tmp_path / "x", np.float64, "w+", shape=(2, 6, 8))
    x[:] = array(2, 6, 8)
    arguments = CALLS["layer_norm_forward"]()
    y, _ = call("layer_norm_forward", arguments | {"x": x})
    np.testing.assert_array_equal(y, call("layer_norm_forward", arguments | {"x": np.array(x)})[0])


@checked
def doubled(x: Float[np.ndarray, "n"]):
    """Return 2 x. A process pool finds this function in the module of the user."""
    return 2 * x


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
def test_checked_function_runs_in_a_process_pool():
    assert doubled.__module__ == __name__
    with multiprocessing.get_context("fork").Pool(1) as pool:
        (y,) = pool.map(doubled, [np.ones(3)])
        with pytest.raises(ValueError, match=r"^doubled: x has shape \(\); expected \(n,\)$"):
            pool.map(doubled, [np.array(1.0)])
    np.testing.assert_array_equal(y, [2, 2, 2])


@checked
def combined(
    x: Float[np.ndarray, "n"] | int, rate: str | Float[np.ndarray, "n"] | float | None = None,
    pairs: tuple[int, ...] | Float[np.ndarray, "n n"] | Float[np.ndarray, "n 2"] = (), other: int | str = 0,
):  # fmt: skip
    """Return x. Only annotations of unions with arrays are checked."""
    return x


X3 = np.ones(3)


@pytest.mark.parametrize("call_arguments", [
    (3,), (np.int8(3),), (X3,), (X3, "a"), (X3, X3), (X3, 0.5), (X3, 1), (X3, None), (X3, None, (1,)),
    (X3, None, np.ones((3, 3))), (X3, None, np.ones((3, 2))), (np.ones(2), None, np.ones((2, 2)), [1]),
], ids=str)  # fmt: skip
def test_checked_union_accepts_each_of_its_types(call_arguments):
    assert combined(*call_arguments) is not None


@pytest.mark.parametrize(("call_arguments", "message"), [
    (("a",), "x is the string 'a'; expected an array of float32 or float64 or an integer"),
    ((None,), "x is None; expected an array of float32 or float64 or an integer"),
    ((2.0,), "x is a float (2.0); expected an array of float32 or float64 or an integer"),
    ((X3[None],), "x has shape (1, 3); expected (n,)"),
    ((X3, [1]), "rate is a list; expected None or a str or an array of float32 or float64 or a number"),
    ((X3, np.ones(2)), "rate has shape (2,); expected (n,) with n=3"),
    ((X3, None, np.ones((3, 4))), "pairs has shape (3, 4); expected (n, n) with n=3"),
    ((X3, np.nan), "rate is nan; expected a finite number"),
], ids=str)  # fmt: skip
def test_checked_union_rejects_all_other_values(call_arguments, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        combined(*call_arguments)
    assert str(caught.value) == f"combined: {message}"


def test_checked_union_reads_values_in_every_call():
    @checked
    def picked(positions: Numbers[np.ndarray, "n"] | int):
        """Take positions, whose values are checked."""

    picked(np.ones(2))
    with pytest.raises(ValueError, match=r"^picked: positions holds NaN"):
        picked(np.full(2, np.nan))


@checked
def gathered(
    x: Float[np.ndarray, "n"],
    *rows: Float[np.ndarray, "n"],
    scale: Float[np.ndarray, "n"] | None = None,
    **ids: Ids[np.ndarray, "n"],
):
    """Return how many rows and ids were given."""
    return len(rows), len(ids)


def test_checked_checks_every_argument_of_args_and_kwargs():
    i = np.zeros(3, int)
    assert gathered(X3) == (0, 0)
    assert gathered(X3, X3, X3, scale=X3, a=i, b=i) == (2, 2)
    for arguments, keywords, message in [
        ((X3, X3, np.ones(2)), {}, r"rows.1 has shape \(2,\); expected \(n,\) with n=3"),
        ((X3, "x"), {}, "rows.0 is the string 'x'; expected an array"),
        ((X3,), {"a": i, "b": X3}, "b has dtype float64; expected an array of integers"),
        ((X3,), {"a": i[:2]}, r"a has shape \(2,\); expected \(n,\) with n=3"),
    ]:
        with pytest.raises((TypeError, ValueError), match=f"^gathered: {message}"):
            gathered(*arguments, **keywords)


@pytest.mark.parametrize("dimensions", ["T 2*d", "*b T d", "T ... d", "_ d", "T d+1", "d=3", "²"])
def test_annotation_rejects_dimensions_that_are_no_names(dimensions):
    """jaxtyping reads some of these as expressions. Here they would be new names, which fit any length."""
    with pytest.raises(ValueError, match=r"^Float\[Array, .*; expected a name, a whole number, or \.\.\. as"):
        Float[np.ndarray, dimensions]


@pytest.mark.parametrize("item", [np.ndarray, (np.ndarray,), (np.ndarray, 3)])
def test_annotation_rejects_missing_dimensions(item):
    with pytest.raises(TypeError, match=r"is no annotation; expected an array type and text: Float\["):
        Float[item]


# --- a loss function that a user defines ------------------------------------------------------------


class SquaredErrorCache(NamedTuple):
    difference: Array  # this annotation has no shape


class SizedErrorCache(NamedTuple):
    mask: Array  # not a float array, so it does not determine the dtype of dloss
    difference: Float[Array, "n"]


class TypedErrorCache(NamedTuple):
    weight: Float[Array, "n"]  # its precision differs from the precision of the loss
    dtype: np.dtype


@checked
def squared_error_backward(dloss: DLoss, cache: SquaredErrorCache):
    """Return the gradient of a sum of squares; the annotations of the cache have no shapes."""
    return 2 * dloss * cache.difference


@checked
def sized_error_backward(dloss: DLoss, cache: SizedErrorCache):
    """Return the gradient of a sum of squares; one annotation of the cache has a shape."""
    return 2 * dloss * cache.difference


@checked
def typed_error_backward(dloss: DLoss, cache: TypedErrorCache):
    """Return the gradient of a weighted sum; the cache has a field with the dtype of the loss."""
    return dloss * cache.weight


FLOAT32 = np.ones(3, np.float32)
LOSSES = [
    pytest.param(squared_error_backward, SquaredErrorCache(FLOAT32), id="first float array"),
    pytest.param(sized_error_backward, SizedErrorCache(np.ones(3, bool), FLOAT32), id="array with a shape"),
    pytest.param(typed_error_backward, TypedErrorCache(np.ones(3), np.dtype(np.float32)), id="field dtype"),
]


@pytest.mark.parametrize(("backward", "cache"), LOSSES)
def test_loss_of_user_takes_dtype_from_cache(backward, cache):
    for dloss in (1, 0.5, np.array(2.0, np.float32)):
        assert backward(dloss, cache).shape == (3,)
    name = backward.__name__
    with pytest.raises(TypeError) as wrong_dtype:
        backward(np.array(2.0), cache)
    expected = "expected float32 like the forward's output"
    assert str(wrong_dtype.value) == f"{name}: dloss has dtype float64; {expected}"
    with pytest.raises(ValueError) as wrong_shape:
        backward(np.ones(3, np.float32), cache)
    assert str(wrong_shape.value) == f"{name}: dloss has shape (3,); expected () like the forward's output"


def test_loss_of_user_is_checked_for_every_dtype():
    dloss = np.array(2.0, np.float32)
    squared_error_backward(dloss, SquaredErrorCache(FLOAT32))
    with pytest.raises(TypeError, match="dloss has dtype float32; expected float64"):
        squared_error_backward(dloss, SquaredErrorCache(np.ones(3)))


def test_loss_of_user_without_floats_accepts_any_float():
    cache = SquaredErrorCache(np.ones(3, int))
    for dtype in (np.float32, np.float64):
        assert squared_error_backward(np.array(2.0, dtype), cache).shape == (3,)


# --- the traceback of a rejected call ---------------------------------------------------------------------

PACKAGE = Path(npf.__file__).parent


def functions_in_traceback(error):
    """Return the names of the package's functions in the traceback of an error, starting with the call.

    For a rejected call, these are functions of npformer/validation, and possibly a rule in the module of the
    operation.
    """
    frames = traceback.extract_tb(error.__traceback__)
    return [frame.name for frame in frames if PACKAGE in Path(frame.filename).parents]


def error_of(name, change):
    with pytest.raises((TypeError, ValueError)) as caught:
        call(name, valid_calls.replaced(CALLS[name](), *change))
    return caught.value


WRONG_CALLS = [
    pytest.param("linear_forward", "x", np.ones((2, 3)), "check_shape", id="shape"),
    pytest.param("attention_forward", "k", np.ones((3, 7, 4)), "check", id="leading axes"),
    pytest.param("attention_forward", "mask", np.ones((5, 5), bool), "check_broadcast", id="mask shape"),
    pytest.param("linear_forward", "x", np.ones((2, 4), int), "check_float", id="dtype"),
    pytest.param("linear_forward", "b", 0.5, "check_float", id="type of optional array"),
    pytest.param("embedding_forward", "ids", np.ones(2), "check_entries", id="dtype of ids"),
    pytest.param("embedding_forward", "ids", np.full((2, 6), 99), "check_id_range", id="values of ids"),
    pytest.param("rope_forward", "positions", np.full(6, np.nan), "check_finite", id="values of numbers"),
    pytest.param("encoder_forward", "config.d_ff", -1, "check_integer", id="config field"),
    pytest.param("encoder_forward", "config.norm", "x", "check_choice", id="choice in config"),
    pytest.param("encoder_forward", "config.n_heads", 3, "HEADS", id="relation in config"),
    pytest.param("ffn_forward", "params.W_1", np.ones((8, 9)), "check_shape", id="params field"),
    pytest.param("encoder_forward", "params.blocks", [], "check_kind", id="params type"),
    pytest.param("layer_norm_backward", "dy", np.ones((2, 6)), "check_same_shape", id="gradient shape"),
    pytest.param("layer_norm_backward", "dy", np.ones(2, int), "check_float", id="gradient dtype"),
    pytest.param("cross_entropy_backward", "dloss", np.ones(3), "check_same_shape", id="gradient of loss"),
    pytest.param("dropout_forward", "rng", 7, "check_generator", id="generator"),
    pytest.param("causal_mask", "xp", 7, "check_that", id="array library"),
    pytest.param("adam_update", "grads.gamma", np.ones(4), "check_same_shape", id="tree of gradients"),
    pytest.param("adam_update", "grads.gamma", np.ones(3, int), "check_float", id="dtype in tree"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "path", "value", "last"), WRONG_CALLS)
def test_full_traceback_has_at_most_four_functions(name, path, value, last, monkeypatch):
    """The four functions are the wrapper, `check_call`, the `check` method of a rule, and a single check."""
    monkeypatch.setenv("NPFORMER_FULL_TRACEBACK", "1")
    functions = functions_in_traceback(error_of(name, (path, lambda _: value)))
    assert functions[:2] == ["wrapper", "check_call"] and functions[-1] == last
    assert len(functions) <= 4


@pytest.mark.parametrize("setting", [None, "", "0"], ids=["not set", "empty", "0"])
def test_traceback_ends_in_the_callers_line(setting, monkeypatch):
    if setting is None:
        monkeypatch.delenv("NPFORMER_FULL_TRACEBACK", raising=False)
    else:
        monkeypatch.setenv("NPFORMER_FULL_TRACEBACK", setting)
    error = error_of("linear_forward", ("x", lambda _: np.ones((2, 3))))
    assert functions_in_traceback(error) == ["wrapper"]


@pytest.mark.parametrize(("name", "path", "value", "last"), WRONG_CALLS)
def test_full_traceback_keeps_the_message(name, path, value, last, monkeypatch):
    monkeypatch.delenv("NPFORMER_FULL_TRACEBACK", raising=False)
    short = error_of(name, (path, lambda _: value))
    monkeypatch.setenv("NPFORMER_FULL_TRACEBACK", "1")
    full = error_of(name, (path, lambda _: value))
    assert (type(full), str(full)) == (type(short), str(short))
    assert full.__context__ is None


# --- an accepted call does not hide a wrong one; see also test_bad_input.py -------------------------------


def set_shape(array, *shape):
    """Change the shape of an array in place. A later version of NumPy will forbid this."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array.shape = shape


def test_setting_of_unknown_type_is_always_checked():
    x = np.ones((2, 3))
    npf.dropout_forward(x, np.float32(0.5), None)
    with pytest.raises(ValueError, match=r"^dropout_forward: rate is np.float32\(2.0\); expected a finite"):
        npf.dropout_forward(x, np.float32(2), None)
    npf.dropout_forward(x, 0, None)
    for wrong in (False, 1, "0"):
        with pytest.raises((TypeError, ValueError)):
            npf.dropout_forward(x, wrong, None)


def test_checked_accepts_booleans_of_numpy():
    arguments = CALLS["multi_head_attention_forward"]()
    expected, _ = call("multi_head_attention_forward", arguments | {"rope": True})
    found, _ = call("multi_head_attention_forward", arguments | {"rope": np.True_})
    np.testing.assert_array_equal(found, expected)


def test_rope_forward_rejects_positions_in_float16():
    with pytest.raises(TypeError, match=r"^rope_forward: positions has dtype float16; expected integers, "):
        npf.rope_forward(np.ones((1, 4)), positions=np.array([2049], np.float16))


def test_cache_key_distinguishes_nested_tuples():
    assert cache_key((((1,), 2),), {}) != cache_key((((1, 2),),), {})
    assert cache_key((((1,), [2]),), {}) is None


def test_accepted_argument_is_checked_under_another_name():
    x, memory, block, config = list(CALLS["decoder_block_forward"]().values())[:4]
    npf.decoder_block_forward(x, memory, block, config, mask=np.ones((6, 6), bool))
    with pytest.raises(ValueError, match=r"^decoder_block_forward: memory_mask has shape \(6, 6\)"):
        npf.decoder_block_forward(x, memory, block, config, memory_mask=np.ones((6, 6), bool))


def test_shapes_are_read_at_every_call():
    x, params = np.ones((2, 3)), npf.LayerNormParams(np.ones(3), np.zeros(3))
    _, cache = npf.layer_norm_forward(x, params)
    npf.layer_norm_backward(np.ones((2, 3)), cache)
    set_shape(x, 3, 2)
    with pytest.raises(ValueError, match=r"^layer_norm_forward: x has shape \(3, 2\)"):
        npf.layer_norm_forward(x, params)
    set_shape(cache.x_hat, 3, 2)
    with pytest.raises(ValueError, match=r"dy has shape \(2, 3\); expected \(3, 2\)"):
        npf.layer_norm_backward(np.ones((2, 3)), cache)


def test_checked_keeps_no_array_and_limited_keys():
    x = np.ones((2, 3))
    reference = weakref.ref(x)
    npf.softmax_forward(x)
    del x
    assert reference() is None
    for n in range(1, 3 * MAX_KEYS):
        npf.causal_mask(n)
    accepted = inspect.getclosurevars(npf.causal_mask).nonlocals["accepted"]
    assert 0 < len(accepted) <= MAX_KEYS


REPEATED = ["adam_update", "causal_lm_forward", "dropout_backward", "encoder_block_backward", "sgd_update"]


def on_library(arguments, library):
    """Return arguments whose arrays belong to a library, numpy or the fake CuPy."""
    if library == "numpy":
        return arguments
    return valid_calls.with_arrays(arguments, lambda a: fake_cupy.asarray(np.asarray(a)))


@pytest.mark.parametrize("library", ["numpy", "cupy"])
@pytest.mark.parametrize("name", REPEATED)
def test_equal_call_is_not_checked_again(name, library, monkeypatch):
    """This also holds if CuPy is loaded. Only checks of the values in arrays run again."""
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    arguments = on_library(CALLS[name](), library)
    call(name, arguments)
    monkeypatch.setattr(signature, "check_call", None)
    call(name, arguments)


def test_equal_call_on_another_library_is_checked(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    for name in ("layer_norm_backward", "encoder_block_backward"):
        arguments = CALLS[name]()
        call(name, arguments)
        moved = on_library({"cache": arguments["cache"]}, "cupy")
        with pytest.raises(TypeError, match=rf"^{name}: cache.* is an array of CuPy; expected one of NumPy"):
            call(name, arguments | moved)


class Chosen(NamedTuple):
    positions: tuple[Numbers[np.ndarray, "T"], ...]


def test_values_in_fields_are_checked_every_time():
    @checked
    def chosen(x: Float[np.ndarray, "T"], chosen: Chosen):
        return x

    for _ in range(2):
        chosen(np.ones(3), Chosen((np.arange(3),)))
    with pytest.raises(ValueError, match=r"^chosen: chosen.positions.0 holds NaN or infinity"):
        chosen(np.ones(3), Chosen((np.array([0, 1, np.nan]),)))
    with pytest.raises(ValueError, match=r"^chosen: chosen.positions.0 holds NaN or infinity"):
        chosen(np.ones(3), Chosen((np.array([0, np.inf, 2.0]),)))


# --- messages of valid_calls.py for a new function ---------------------------------------------------------


def test_valid_calls_names_a_missing_value(monkeypatch):
    def new_forward(z: Float[Array, "... T d"], *, sharpness: float):
        """A new operation."""

    monkeypatch.setattr(npf, "new_forward", new_forward, raising=False)
    message = r'add "sharpness": <a valid value> to VALUES_BY_NAME in tests'
    with pytest.raises(LookupError, match=message):
        valid_calls.arguments("new_forward")


def test_valid_calls_names_a_missing_length(monkeypatch):
    def new_forward(z: Float[Array, "... T d_new"]):
        """A new operation."""

    monkeypatch.setattr(npf, "new_forward", new_forward, raising=False)
    with pytest.raises(LookupError, match=r'add "d_new": <a length> to LENGTHS in tests'):
        valid_calls.arguments("new_forward")


# --- functions of other packages -------------------------------------------------------------------


class KeysCache(NamedTuple):
    """The keys of earlier tokens. This is the cache of a forward function, which no backward pass reads."""

    k: Float[Array, "S d"]


@dataclasses.dataclass
class Weights:
    """Parameters that `checked` cannot read."""

    W: Float[Array, "d d"]


def timed(function):
    """Return a function that only calls the given function, as many decorators do."""

    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs)

    return inner


def test_checked_reads_arguments_below_other_decorators():
    @checked
    @timed
    def add(x: Float[Array, "n"], y: Float[Array, "n"]) -> Array:
        return x + y

    assert (add(np.ones(2), y=np.ones(2)) == 2).all()
    with pytest.raises(ValueError, match=r"add: y has shape \(3,\); expected \(n,\) with n=2"):
        add(np.ones(2), np.ones(3))
    with pytest.raises(ValueError, match=r"add: y has shape \(3,\); expected \(n,\) with n=2"):
        add(np.ones(2), y=np.ones(3))


def test_checked_accepts_a_bound_method():
    class Model:
        def forward(self, x: Float[Array, "n"], y: Float[Array, "n"]) -> Array:
            return x + y

    forward = checked(Model().forward)
    assert (forward(np.ones(2), np.ones(2)) == 2).all()
    with pytest.raises(ValueError, match=r"forward: y has shape \(3,\)"):
        forward(np.ones(2), np.ones(3))


@pytest.mark.parametrize(
    "body",
    [functools.partial(pow, 2), len, KeysCache, staticmethod(timed)],
    ids=["partial", "built-in function", "class", "staticmethod"],
)
def test_checked_rejects_what_is_no_function(body):
    with pytest.raises(TypeError, match=r"checked: body is .*; expected a function made with def"):
        checked(body)


@pytest.mark.parametrize(
    "annotation",
    [
        list[Float[Array, "n"]],
        dict[str, Float[Array, "n"]],
        tuple[Float[Array, "n"], Float[Array, "n"]],
        list[Float[Array, "n"]] | None,
        Annotated[list[Float[Array, "n"]], "weights"],
        Callable[[Float[Array, "n"]], None],
        Weights,
    ],
    ids=str,
)
def test_checked_rejects_arrays_that_it_cannot_read(annotation):
    def run(x, y):
        return x

    run.__annotations__ = {"x": Float[Array, "n"], "y": annotation}
    with pytest.raises(
        TypeError, match="checked: run has arrays inside the annotation of y; expected arrays"
    ):
        checked(run)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the statement `type` needs Python 3.12")
def test_checked_reads_a_named_annotation():
    names: dict[str, Any] = {"Float": Float, "Array": Array, "checked": checked}
    exec('type V = Float[Array, "n"]\n@checked\ndef f(x: V, y: V): return x', names)
    with pytest.raises(ValueError, match=r"f: y has shape \(3,\)"):
        names["f"](np.ones(2), np.ones(3))


@pytest.mark.parametrize("annotation", [dict, dict | None, KeysCache, Float[Array, "S d"]], ids=str)
def test_cache_of_a_forward_is_an_ordinary_argument(annotation):
    """Only arrays whose names begin with d, next to a NamedTuple "...Cache", are gradients."""

    def decode(x, cache):
        return x

    decode.__annotations__ = {"x": Float[Array, "T d"], "cache": annotation}
    caches = {dict: {}, KeysCache: KeysCache(np.ones((5, 4)))}
    cache = caches.get(annotation, np.ones((5, 4)))
    assert checked(decode)(np.ones((1, 4)), cache).shape == (1, 4)


@pytest.mark.parametrize("kind", [npf.CausalLMParams, npf.EncoderParams, npf.AdamState])
def test_parameters_need_no_config_in_other_functions(kind):
    def count(tree):
        return len(list(npf.leaves(tree)))

    count.__annotations__ = {"tree": kind}
    config = npf.CausalLMConfig(8, 12, n_heads=2, n_kv_heads=1, n_layers=1)
    model = npf.init_causal_lm(5, config, np.random.default_rng(0))
    encoder = npf.init_encoder(npf.TransformerConfig(8, 12, 2, 1), np.random.default_rng(0))
    trees = {npf.CausalLMParams: model, npf.EncoderParams: encoder, npf.AdamState: npf.adam_init(model)}
    assert checked(count)(trees[kind]) > 0
    with pytest.raises(TypeError, match=f"count: tree is None; expected an? {kind.__name__}"):
        checked(count)(None)


class Postponed(NamedTuple):
    """The field has the annotation that `from __future__ import annotations` makes."""

    W: 'Float[Array, "d d"]'


def test_checked_rejects_postponed_annotations_of_fields():
    def run(params):
        return params

    run.__annotations__ = {"params": Postponed}
    with pytest.raises(TypeError, match=r"'Float.Array.*needs annotations without __future__"):
        checked(run)(Postponed(np.ones((2, 3))))


class Longer(KeysCache):
    """A NamedTuple that inherits its field."""

    extra: int = 3


def test_checked_reads_inherited_fields_of_named_tuples():
    Plain = collections.namedtuple("Plain", "k extra")
    for kind in (Longer, Plain):

        def run(x, params):
            return x

        run.__annotations__ = {"x": Float[Array, "T d"], "params": kind}
        assert checked(run)(np.ones((2, 4)), kind(*[np.ones((5, 4))] * len(kind._fields))).shape == (2, 4)
    run.__annotations__["params"] = Longer
    with pytest.raises(ValueError, match=r"run: params.k has shape \(5, 3\); expected \(S, d\) with d=4"):
        checked(run)(np.ones((2, 4)), Longer(np.ones((5, 3))))


def test_result_of_user_function_keeps_its_type():
    def mean(x: Float[Array, "n"]) -> float:
        return x.mean()

    def total(x: Float[Array, "n"]) -> Array:
        return x.sum()

    x = np.ones(3)
    assert isinstance(checked(mean)(x), float) and f"{checked(mean)(x):.1f}" == "1.0"
    assert isinstance(checked(total)(x), np.ndarray)
    for result in ((), "text", np.True_, (np.str_("a"), 1)):
        assert checked(lambda x, result=result: result)(x) is result
