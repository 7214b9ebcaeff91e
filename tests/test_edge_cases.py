"""What happens at the ends of the ranges, whatever the operation: nothing in the batch or the sequence, an
output that is written into, integers of every kind, a caller who forbids underflow.

An operation's own ends stand in its own file. Warnings are errors here, so a test that passes also says that
NumPy had nothing to complain about.
"""

from itertools import product

import numpy as np
import pytest
from bad_calls import CHECKED, first_of_their_kind, valid_places
from together import failures, together
from valid_calls import (
    CALLS,
    FORWARD,
    INTEGERS,
    all_finite,
    all_zero,
    array,
    backward,
    call,
    fingerprint,
    generator,
    replaced,
    shapes,
    sized,
)

import npformer as npf

# --- nothing in the batch, nothing in the sequence --------------------------------------------------


EMPTY = [
    ((0,), 3, 4),
    ((2,), 0, 0),
    ((2,), 3, 0),
    ((2,), 0, 4),
    ((), 0, 3),
    ((), 3, 0),
    ((2, 0), 3, 3),
    ((0, 2), 0, 0),
]


@together(("lead", "T", "S"), EMPTY)
def test_nothing_goes_forward_and_backward(lead, T, S):
    def check(name, arguments, shape):
        y, cache = call(name, arguments)
        assert (y.shape, y.dtype) == (shape, np.float64)
        gradients = backward(name, array(*shape, seed=4), cache)
        for argument, gradient in gradients.items():
            assert shapes(gradient) == shapes(arguments[argument])
            assert all_finite(gradient)
            if 0 in (*lead, T):  # nothing came out, so nothing goes back
                assert all_zero(gradient)

    cases = sized(lead, T, S, generator())
    assert failures(check, [(name, *case) for name, case in cases.items()]) == {}


def test_the_same_arguments_with_something_in_them_have_gradients():
    """The test above would pass for a backward that returns zeros."""
    for name, (arguments, shape) in sized((2,), 3, 4).items():
        gradients = backward(name, array(*shape, seed=4), call(name, arguments)[1])
        assert not any(all_zero(gradient) for gradient in gradients.values()), name


def test_masks_and_biases_of_any_length():
    for T_q, T_k in product((0, 1, 3), repeat=2):
        assert npf.causal_mask(T_q, T_k).shape == (T_q, T_k)
        assert npf.alibi_bias(3, T_q, T_k).shape == (3, T_q, T_k)
        assert npf.positional_encoding(T_q, 5).shape == (T_q, 5)
        assert npf.padding_mask(np.zeros((T_q, T_k), int), 0).shape == (T_q, 1, T_k)


# --- an output may be written into ------------------------------------------------------------------


def test_an_output_may_be_written_into():
    assert failures(check_writing, FORWARD.items()) == {}


def check_writing(name, forward):
    y, cache = call(name, forward())
    before = [g.copy() for _, g in npf.leaves(tuple(backward(name, np.ones_like(y), cache).values()))]
    y, cache = call(name, forward())
    dy = np.ones_like(y)
    y[...] = np.nan
    after = [g for _, g in npf.leaves(tuple(backward(name, dy, cache).values()))]
    assert all((a == b).all() for a, b in zip(before, after, strict=True))


# --- sizes as NumPy's integers ----------------------------------------------------------------------


WHOLE = [p for name in CHECKED for p in valid_places(name) if type(p.value) is int and p.words != "int"]


FIRST = first_of_their_kind(WHOLE)


PLACES = [place for place in WHOLE if str(place) in FIRST or place.function in ("greedy_decode", "generate")]


def outcome(place, value):
    """What a call gives, or how it is refused."""
    try:
        return fingerprint(
            call(place.function, replaced(CALLS[place.function](), place.path, lambda _: value))
        )
    except (TypeError, ValueError) as error:
        return str(error)


def test_an_integer_of_numpys_is_an_integer():
    """100 + 100 and 100 * 100 do not fit into np.int8. Of the other kinds two at a place, by turns."""
    assert failures(check_integers, [(i, place) for i, place in enumerate(PLACES)]) == {}


def check_integers(i, place):
    for value in {place.value, 100}:
        expected = outcome(place, value)
        for kind in (np.int8, np.uint8, *np.roll(INTEGERS[2:], i)[:2]):
            if np.iinfo(kind).min <= value <= np.iinfo(kind).max:
                assert outcome(place, kind(value)) == expected, (value, kind)


# --- arrays of no axes, numbers next to nothing -----------------------------------------------------


@together("dtype", [np.float32, np.float64])
@together("name", ["relu", "gelu"])
def test_a_result_of_no_axes_is_an_array(name, dtype):
    y, cache = getattr(npf, f"{name}_forward")(np.array(0.5, dtype))
    dz = getattr(npf, f"{name}_backward")(y, cache)
    assert all(type(a) is np.ndarray and a.shape == () and a.dtype == dtype for a in (y, dz))


TINY, HUGE = np.full((2, 2), 1e-300), np.array([[1e300, -1e300], [-np.inf, 0.0]])


EXTREME = {
    "huge softmax": lambda: npf.softmax_forward(HUGE),
    "huge attention": lambda: npf.attention_forward(HUGE[:1], HUGE[:1], HUGE[:1]),
    "huge gelu": lambda: npf.gelu_forward(HUGE),
    "huge gelu backward": lambda: npf.gelu_backward(
        TINY, npf.gelu_forward(np.full((2, 2), 1e200), approximate=True)[1]
    ),
    "huge loss": lambda: npf.cross_entropy_forward(HUGE[:1], np.array([0])),
    "softmax": lambda: npf.softmax_forward(np.array([[0.0, -800.0], [-np.inf, -np.inf]])),
    "softmax backward": lambda: npf.softmax_backward(
        TINY, npf.softmax_forward(np.array([[0.0, -740.0]] * 2))[1]
    ),
    "attention": lambda: npf.attention_forward(
        np.full((2, 2), 30.0), np.array([[30.0, 30], [-30, -30]]), TINY
    ),
    "gelu": lambda: npf.gelu_forward(np.array([-40.0, 1e-310, 40.0])),
    "gelu backward": lambda: npf.gelu_backward(TINY, npf.gelu_forward(np.array([[-38.0, 1e-310]] * 2))[1]),
    "loss": lambda: npf.cross_entropy_forward(np.array([[0.0, -800.0]]), np.array([0])),
    "loss backward": lambda: npf.cross_entropy_backward(
        1e-300, npf.cross_entropy_forward(np.array([[0.0, -740.0]]), np.array([0]))[1]
    ),
    "adam": lambda: npf.adam_update((TINY,), (TINY,), npf.adam_init((TINY,)), learning_rate=1e-3),
    "sgd": lambda: npf.sgd_update((TINY,), (TINY,), learning_rate=1e-200),
    "gradcheck": lambda: npf.gradcheck(npf.softmax_forward, npf.softmax_backward, np.array([[0.0, -740.0]])),
}


@together("name", EXTREME)
def test_a_caller_that_raises_at_overflow_and_underflow_is_not_stopped_inside(name):
    with np.errstate(all="raise"):
        EXTREME[name]()
        with pytest.raises(FloatingPointError):
            TINY * TINY  # the caller's own lines are as before


def test_what_can_never_be_held_fails_at_once():
    with pytest.raises(MemoryError, match=r"shape \(1000000000, 1000000\)"):  # the first array that is made
        npf.positional_encoding(10**9, 10**6)


def test_no_path_is_not_the_folder_where_we_are():
    with pytest.raises(FileNotFoundError, match=r"^load_minilm: there is no folder ''"):
        npf.load_minilm("")
