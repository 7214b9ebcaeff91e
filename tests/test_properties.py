"""Properties of every function for many sizes, settings and numbers.

The sizes include empty batches and empty sequences. valid_calls.py makes the calls from the signatures. Edge
cases of a single operation are in the test file of this operation. Warnings are errors in these tests.
"""

import inspect
import re
from itertools import product

import numpy as np
import pytest
from valid_calls import (
    ARRAY,
    CALLS,
    CHECKED,
    INTEGERS,
    SIZED,
    all_finite,
    all_zero,
    array,
    arrays_in,
    backward,
    call,
    fingerprint,
    first_of_their_kind,
    generator,
    like,
    places,
    replaced,
    shapes,
    sized,
    variants,
    with_arrays,
)

import npformer as npf

EPSILON = {np.float32: 2.0**-23, np.float64: 2.0**-52}
EMPTY = [  # (leading axes, T, S)
    ((0,), 3, 4), ((2,), 0, 0), ((2,), 3, 0), ((2,), 0, 4), ((), 0, 3), ((), 3, 0),
    ((2, 0), 3, 3), ((0, 2), 0, 0),
]  # fmt: skip
SIZES = [*EMPTY, ((), 1, 1), ((), 5, 2), ((2,), 3, 4), ((1,), 4, 4), ((3, 2), 2, 5)]


def largest_difference(found, expected):
    """Return the largest difference between two trees, divided by max(1, largest entry) for each leaf."""
    pairs = zip(npf.leaves(found), npf.leaves(expected), strict=True)
    return max((abs(a - b).max() / max(1, abs(b).max()) for (_, a), (_, b) in pairs if b.size), default=0.0)


def read_only(tree):
    """Make the arrays of a tree read-only, and return the tree."""
    with_arrays(tree, lambda a: a.setflags(write=False))
    return tree


def call_of_size(name, size, dtype=np.float64, rng=generator, seed=0):
    """Return read-only arguments with these sizes, and an upstream gradient in the shape of the output."""
    lead, T, S = size
    arguments, shape = sized(name, lead, T, S, rng, seed)
    return read_only(like(arguments, dtype)), read_only(array(*shape, seed=seed + 50, dtype=dtype))


def results(name, arguments, dy):
    """Return the output, and the gradients for the upstream gradient dy."""
    y, cache = call(name, arguments)
    return y, *backward(name, dy, cache).values()


# --- every forward and backward function, in many sizes -----------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", SIZED)
def test_forward_and_backward_shapes_and_dtypes(name, size, dtype):
    arguments, dy = call_of_size(name, size, dtype)
    y, cache = call(name, arguments)
    assert type(y) is np.ndarray and (y.shape, y.dtype) == (dy.shape, dtype)
    gradients = backward(name, dy, read_only(cache))
    for argument, gradient in gradients.items():
        assert type(gradient) is type(arguments[argument]) and all_finite(gradient)
        assert shapes(gradient) == shapes(arguments[argument])
        assert all_zero(gradient) or 0 not in dy.shape  # an empty output has zero gradients
        assert not all_zero(gradient) or size != ((2,), 3, 4)
    again, cache = call(name, call_of_size(name, size, dtype)[0])
    again[...] = np.nan  # A caller may overwrite the output, so the cache must not share memory with it.
    assert fingerprint(gradients) == fingerprint(backward(name, dy, cache))
    cached = arrays_in(cache)
    assert not any(np.may_share_memory(g, array) for g in arrays_in(gradients) for array in cached)


# Functions whose outputs may be views of their inputs. Their docstrings say so.
VIEWS = {
    "causal_lm_from_torch", "leaves", "load_llama2c", "merge_heads", "split_heads", "to_backend", "to_numpy",
}  # fmt: skip


def overwrite(tree):
    """Change every entry of every array in a tree."""
    for a in arrays_in(tree):
        if a.dtype.kind == "b":
            np.logical_not(a, out=a)
        else:
            a += 1


def assert_outputs_can_be_overwritten(name, arguments):
    """Write into every output. The inputs, the cache and the gradients of a second backward stay the same."""
    output, cache = call(name, arguments), ()
    is_forward = name.endswith("_forward")
    if is_forward:
        output, cache = output
        dy = array(*output.shape, seed=9)
        gradients = backward(name, dy, cache)
        expected = fingerprint(gradients)
        arguments = arguments | {"upstream gradient": dy}
    before = fingerprint((arguments, cache))
    overwrite(output)
    assert fingerprint((arguments, cache)) == before
    if is_forward:
        overwrite(gradients)
        assert fingerprint((arguments, cache)) == before
        assert fingerprint(backward(name, dy, cache)) == expected


@pytest.mark.parametrize("name", sorted({*CALLS} - VIEWS))
def test_output_shares_no_memory(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some functions write files
    assert_outputs_can_be_overwritten(name, CALLS[name]())


@pytest.mark.parametrize("name", sorted({*CHECKED} - VIEWS))
def test_output_shares_no_memory_in_variants(name):
    for _, arguments in variants(name):
        assert_outputs_can_be_overwritten(name, arguments)


@pytest.mark.parametrize("name", ["encoder_forward", "decoder_forward", "transformer_forward"])
def test_output_of_empty_stack_shares_no_memory(name):
    arguments = CALLS[name]()
    config = arguments["config"]._replace(n_layers=0, norm="post")
    arguments = replaced(arguments, "config", lambda _: config)
    for stack in ("encoder.", "decoder.") if name == "transformer_forward" else ("",):
        arguments = replaced(arguments, f"params.{stack}blocks", lambda _: ())
        arguments = replaced(arguments, f"params.{stack}norm", lambda _: None)
    assert_outputs_can_be_overwritten(name, arguments)


def test_dropout_with_rate_0_shares_no_memory():
    assert_outputs_can_be_overwritten("dropout_forward", CALLS["dropout_forward"]() | {"rate": 0})


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_docstring_names_outputs_that_are_views(name):
    assert re.search(r"\b[Vv]iews?\b|not copied", getattr(npf, name).__doc__)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", SIZED)
def test_backward_is_linear_in_upstream_gradient(name, size):
    (arguments, dy), other = call_of_size(name, size), call_of_size(name, size, seed=1)[1]
    _, cache = call(name, arguments)
    one, two, both = (tuple(backward(name, d, cache).values()) for d in (dy, other, 0.7 * dy - 2 * other))
    assert largest_difference(both, npf.tree_map(lambda a, b: 0.7 * a - 2 * b, one, two)) <= 1e-12


def batched_arguments(name):
    """Return the arguments that have one part for each item of a batch: arrays with leading axes "...".

    A bias has such axes too, but valid_calls.py makes one bias for all items.
    """
    annotations = inspect.unwrap(getattr(npf, name)).__annotations__
    found = {argument: ARRAY.match(str(annotation)) for argument, annotation in annotations.items()}
    return {
        argument
        for argument, match in found.items()
        if match and match[1] not in ("Bias", "Constant") and match[2].startswith("...")
    } - {"return"}


@pytest.mark.parametrize("size", [((3,), 4, 2), ((1,), 3, 3), ((2,), 1, 5)], ids=str)
@pytest.mark.parametrize("name", SIZED)
def test_forward_and_backward_treat_batch_items_independently(name, size):
    """A batch gives the same output and gradients as its single items; gradients of parameters are summed."""
    arguments, dy = call_of_size(name, size, rng=None)
    y, cache = call(name, arguments)
    batched = batched_arguments(name)
    alone = []
    for i in range(len(y)):
        item = {argument: value[i] if argument in batched else value for argument, value in arguments.items()}
        y_i, cache_i = call(name, item)
        assert largest_difference(y[i], y_i) <= 1e-13
        alone.append(backward(name, dy[i], cache_i))
    for argument, gradient in backward(name, dy, cache).items():
        items = [gradients[argument] for gradients in alone]
        is_batched = argument in batched
        expected = np.stack(items) if is_batched else npf.tree_map(lambda *g: sum(g), *items)
        assert largest_difference(gradient, expected) <= 1e-12


def strided(a):
    """Return an equal array with a different memory layout: transposed, with gaps, some axes reversed."""
    memory = np.full([2 * n for n in a.shape[::-1]], 7).astype(a.dtype)
    view = memory[tuple(slice(None, None, -2 if i % 2 else 2) for i in range(a.ndim))].T
    view[...] = a
    return view


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", SIZED)
def test_forward_and_backward_in_float32_follow_float64(name, size):
    arguments, dy = call_of_size(name, size, np.float32)
    narrow = results(name, arguments, dy)
    wide = like(call_of_size(name, size, np.float32)[0], np.float64)
    assert largest_difference(narrow, results(name, wide, dy.astype(np.float64))) <= 3e-5


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", SIZED)
def test_forward_and_backward_ignore_memory_layout(name, size):
    for dtype, epsilon in EPSILON.items():
        arguments, dy = call_of_size(name, size, dtype, rng=None)
        found = results(name, with_arrays(arguments, strided), strided(dy))
        assert largest_difference(found, results(name, arguments, dy)) <= 500 * epsilon, dtype


def test_masks_and_biases_accept_any_length():
    for T_q, T_k in product((0, 1, 3), repeat=2):
        assert npf.causal_mask(T_q, T_k).shape == (T_q, T_k)
        assert npf.alibi_bias(3, T_q, T_k).shape == (3, T_q, T_k)
        assert npf.positional_encoding(T_q, 5).shape == (T_q, 5)
        assert npf.padding_mask(np.zeros((T_q, T_k), int), 0).shape == (T_q, 1, T_k)


# --- every function: settings, NumPy's integers, tiny and huge numbers --------------------------------


VARIANTS = [pytest.param(name, arguments, id=f"{name}-{setting}") for name in CHECKED
            for setting, arguments in variants(name)]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), VARIANTS)
def test_functions_accept_settings_and_change_no_argument(name, arguments):
    call(name, with_arrays(arguments, lambda a: read_only(a.copy())))


INTEGER_PLACES = [p for name in CHECKED for p in places(name) if type(p.value) is int and p.text != "int"]
FIRST = first_of_their_kind(INTEGER_PLACES)
DECODING = ("greedy_decode", "generate")
PLACES = [p for p in INTEGER_PLACES if str(p) in FIRST or p.function in DECODING]


def outcome(place, value):
    """Return the result of a call with this integer, or the message of its error."""
    try:
        arguments = replaced(CALLS[place.function](), place.path, lambda _: value)
        return fingerprint(call(place.function, arguments))
    except (TypeError, ValueError) as error:
        return str(error)


@pytest.mark.parametrize(("number", "place"), [*enumerate(PLACES)], ids=str)
def test_functions_accept_numpy_integers(number, place):
    """The value 100 reveals overflow: 100 + 100 and 100 * 100 overflow in np.int8.

    Each place is tested with np.int8, np.uint8 and two of the six other integer types.
    """
    for value in {place.value, 100}:
        expected = outcome(place, value)
        for dtype in (np.int8, np.uint8, *np.roll(INTEGERS[2:], number)[:2]):
            if np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
                assert outcome(place, dtype(value)) == expected, (value, dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["relu", "gelu"])
def test_activations_of_number_return_array(name, dtype):
    y, cache = getattr(npf, f"{name}_forward")(np.array(0.5, dtype))
    dz = getattr(npf, f"{name}_backward")(y, cache)
    assert all(type(a) is np.ndarray and a.shape == () and a.dtype == dtype for a in (y, dz))


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e300])
@pytest.mark.parametrize("name", [*CHECKED, "gradcheck"])
def test_functions_ignore_callers_floating_point_errors(name, size):
    arguments = with_arrays(CALLS[name](), lambda a: a * size if a.dtype.kind == "f" else a)
    with np.errstate(all="raise"):
        try:
            call(name, arguments)
        except ValueError:  # some functions reject numbers that are too large to square
            assert size > 1
        with pytest.raises(FloatingPointError):
            np.float64(1e-300) * 1e-300  # this raises because the setting of the caller is unchanged


def test_positional_encoding_too_large_raises_memory_error():
    with pytest.raises(MemoryError, match=r"shape \(1000000000, 1000000\)"):  # the shape of the whole table
        npf.positional_encoding(10**9, 10**6)
