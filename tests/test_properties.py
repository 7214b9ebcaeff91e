"""What holds for every function whatever the sizes, settings and numbers: forwards and backwards in many
sizes, nothing in the batch or the sequence among them; integers of every kind; callers who forbid underflow.

The calls are made from the signatures (valid_calls.py); an operation's own ends stand in its own file.
Warnings are errors here, so a test that passes also says that NumPy had nothing to complain about.
"""

from itertools import product

import numpy as np
import pytest
from together import failures, together
from valid_calls import (
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
EMPTY = [  # leading axes, T, S
    ((0,), 3, 4), ((2,), 0, 0), ((2,), 3, 0), ((2,), 0, 4), ((), 0, 3), ((), 3, 0),
    ((2, 0), 3, 3), ((0, 2), 0, 0),
]  # fmt: skip
SIZES = [*EMPTY, ((), 1, 1), ((), 5, 2), ((2,), 3, 4), ((1,), 4, 4), ((3, 2), 2, 5)]


def worst(found, expected):
    """The largest difference between two trees, relative to each leaf's largest entry or to 1."""
    pairs = zip(npf.leaves(found), npf.leaves(expected), strict=True)
    return max((abs(a - b).max() / max(1, abs(b).max()) for (_, a), (_, b) in pairs if b.size), default=0.0)


def locked(tree):
    """The same arrays, but who writes into one is stopped."""
    with_arrays(tree, lambda a: a.setflags(write=False))
    return tree


def made(name, size, dtype=np.float64, rng=generator, seed=0):
    """Arguments in this size, which nobody may write into, and an upstream gradient in the output's shape."""
    arguments, shape = sized(name, *size, rng, seed)
    return locked(like(arguments, dtype)), locked(array(*shape, seed=seed + 50, dtype=dtype))


def results(name, arguments, dy):
    """The output, and the gradients for the upstream gradient dy."""
    y, cache = call(name, arguments)
    return y, *backward(name, dy, cache).values()


# --- every forward and its backward, in many sizes ----------------------------------------------------


@together("dtype", [np.float32, np.float64])
@together("size", SIZES)
@together("name", SIZED)
def test_a_forward_and_its_backward(name, size, dtype):
    arguments, dy = made(name, size, dtype)
    y, cache = call(name, arguments)
    assert type(y) is np.ndarray and (y.shape, y.dtype) == (dy.shape, dtype)
    gradients = backward(name, dy, locked(cache))
    for argument, gradient in gradients.items():
        assert type(gradient) is type(arguments[argument]) and all_finite(gradient)
        assert shapes(gradient) == shapes(arguments[argument])
        assert all_zero(gradient) or 0 not in dy.shape  # where nothing came out, nothing goes back
        assert not all_zero(gradient) or size != ((2,), 3, 4)
    again, cache = call(name, made(name, size, dtype)[0])
    again[...] = np.nan  # an output is the caller's to write into, and so is a gradient
    assert fingerprint(gradients) == fingerprint(backward(name, dy, cache))
    inside = arrays_in(cache)
    assert not any(np.may_share_memory(g, kept) for g in arrays_in(gradients) for kept in inside)


@together("size", SIZES)
@together("name", SIZED)
def test_backward_is_linear_in_the_upstream_gradient(name, size):
    (arguments, dy), other = made(name, size), made(name, size, seed=1)[1]
    _, cache = call(name, arguments)
    one, two, both = (tuple(backward(name, d, cache).values()) for d in (dy, other, 0.7 * dy - 2 * other))
    assert worst(both, npf.tree_map(lambda a, b: 0.7 * a - 2 * b, one, two)) <= 1e-12


BATCHED = set("x z scores q k v memory mask memory_mask ids source_ids target_ids".split())


@together("size", [((3,), 4, 2), ((1,), 3, 3), ((2,), 1, 5)])
@together("name", SIZED)
def test_the_items_of_a_batch_know_nothing_of_each_other(name, size):
    """Each item alone gives its own part of the output and the gradients; parameters get the items' sum."""
    arguments, dy = made(name, size, rng=None)
    y, cache = call(name, arguments)
    alone = []
    for i in range(len(y)):
        item = {argument: value[i] if argument in BATCHED else value for argument, value in arguments.items()}
        y_i, cache_i = call(name, item)
        assert worst(y[i], y_i) <= 1e-13
        alone.append(backward(name, dy[i], cache_i))
    for argument, gradient in backward(name, dy, cache).items():
        items = [gradients[argument] for gradients in alone]
        whole = np.stack(items) if argument in BATCHED else npf.tree_map(lambda *g: sum(g), *items)
        assert worst(gradient, whole) <= 1e-12


def strided(a):
    """An equal array that lies differently: axes exchanged, every second entry from behind, with gaps."""
    room = np.full([2 * n for n in a.shape[::-1]], 7).astype(a.dtype)
    view = room[tuple(slice(None, None, -2 if i % 2 else 2) for i in range(a.ndim))].T
    view[...] = a
    return view


@together("size", SIZES)
@together("name", SIZED)
def test_float32_follows_float64_and_how_arrays_lie_in_memory_does_not_matter(name, size):
    arguments, dy = made(name, size, np.float32)
    narrow = results(name, arguments, dy)
    wide = like(made(name, size, np.float32)[0], np.float64)
    assert worst(narrow, results(name, wide, dy.astype(np.float64))) <= 3e-5
    for dtype, epsilon in EPSILON.items():
        arguments, dy = made(name, size, dtype, rng=None)
        found = results(name, with_arrays(arguments, strided), strided(dy))
        assert worst(found, results(name, arguments, dy)) <= 500 * epsilon


def test_masks_and_biases_of_any_length():
    for T_q, T_k in product((0, 1, 3), repeat=2):
        assert npf.causal_mask(T_q, T_k).shape == (T_q, T_k)
        assert npf.alibi_bias(3, T_q, T_k).shape == (3, T_q, T_k)
        assert npf.positional_encoding(T_q, 5).shape == (T_q, 5)
        assert npf.padding_mask(np.zeros((T_q, T_k), int), 0).shape == (T_q, 1, T_k)


# --- every function: other settings, NumPy's integers, numbers next to nothing ------------------------


def test_every_setting_is_welcome_and_leaves_the_arguments_alone():
    def check(name, setting, arguments):
        call(name, with_arrays(arguments, lambda a: locked(a.copy())))

    assert failures(check, [(name, *variant) for name in CHECKED for variant in variants(name)]) == {}


WHOLE = [p for name in CHECKED for p in places(name) if type(p.value) is int and p.text != "int"]
FIRST = first_of_their_kind(WHOLE)
PLACES = [place for place in WHOLE if str(place) in FIRST or place.function in ("greedy_decode", "generate")]


def outcome(place, value):
    """What a call gives, or how it is refused."""
    try:
        arguments = replaced(CALLS[place.function](), place.path, lambda _: value)
        return fingerprint(call(place.function, arguments))
    except (TypeError, ValueError) as error:
        return str(error)


def test_an_integer_of_numpys_is_an_integer():
    """100 + 100 and 100 * 100 do not fit into np.int8. Of the other kinds two at a place, by turns."""

    def check(place, i):
        for value in {place.value, 100}:
            expected = outcome(place, value)
            for kind in (np.int8, np.uint8, *np.roll(INTEGERS[2:], i)[:2]):
                if np.iinfo(kind).min <= value <= np.iinfo(kind).max:
                    assert outcome(place, kind(value)) == expected, (value, kind)

    assert failures(check, [(place, i) for i, place in enumerate(PLACES)]) == {}


@together("dtype", [np.float32, np.float64])
@together("name", ["relu", "gelu"])
def test_a_result_of_no_axes_is_an_array(name, dtype):
    y, cache = getattr(npf, f"{name}_forward")(np.array(0.5, dtype))
    dz = getattr(npf, f"{name}_backward")(y, cache)
    assert all(type(a) is np.ndarray and a.shape == () and a.dtype == dtype for a in (y, dz))


@together("size", [1e-300, 1e-160, 1e300])
@together("name", [*CHECKED, "gradcheck"])
def test_a_caller_that_raises_at_overflow_and_underflow_is_not_stopped_inside(name, size):
    arguments = with_arrays(CALLS[name](), lambda a: a * size if a.dtype.kind == "f" else a)
    with np.errstate(all="raise"):
        try:
            call(name, arguments)
        except ValueError:  # of what is too large to square, or to draw from
            assert size > 1
        with pytest.raises(FloatingPointError):
            np.float64(1e-300) * 1e-300  # the caller's own lines are as before


def test_what_can_never_be_held_fails_at_once():
    with pytest.raises(MemoryError, match=r"shape \(1000000000, 1000000\)"):  # the first array that is made
        npf.positional_encoding(10**9, 10**6)
