"""The door: a checked function stays a function like any other, and no call makes way for a wrong one."""

import copy
import doctest
import inspect
import pickle
import pydoc
import warnings
import weakref

import numpy as np
import pytest
from together import together
from valid_calls import CALLS, CHECKED, array, call

import npformer as npf
from npformer import Float, Ids, Mask, checked
from npformer.validation.signature import MOST, look_of

# --- a function like any other --------------------------------------------------------------------


@together("name", CHECKED)
def test_a_checked_function_is_like_its_body(name):
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


def test_annotations_of_the_future_are_refused_in_words():
    source = "from __future__ import annotations\ndef f(x: Float[None, 3]): ..."
    names = {"Float": Float, "__name__": "exercise"}
    exec(source, names)
    with pytest.raises(TypeError, match=r"^'Float\[None, 3\]' cannot be read: .* without __future__$"):
        checked(names["f"])(np.ones(3))


# --- a function of one's own ----------------------------------------------------------------------


@checked
def scaled(
    x: Float[np.ndarray, "... T d"], ids: Ids[np.ndarray, "... T"],
    mask: Mask[np.ndarray, "... T T"] | None = None, *, by: Float[np.ndarray, "d"] | None = None, n: int = 1,
):  # fmt: skip
    """An exercise: x, scaled."""
    return x if by is None else x * by * n


X, IDS = np.ones((2, 6, 8)), np.zeros((2, 6), int)


def test_arguments_by_place_by_name_and_left_out():
    by = np.full(8, 2.0)
    assert scaled(X, IDS) is X
    for result in (scaled(X, IDS, None, by=by), scaled(ids=IDS, by=by, x=X), scaled(X, ids=IDS, by=by, n=1)):
        np.testing.assert_array_equal(result, X * 2)


@together(
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
)  # fmt: skip
def test_a_function_of_ones_own_is_checked(change, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        scaled(**{"x": X, "ids": IDS} | change)
    assert message in str(caught.value) and str(caught.value).startswith("scaled: ")
    lines = [entry.path.name for entry in caught.traceback if "npformer" in str(entry.path)]
    assert lines.count("signature.py") <= 1  # the caller's line, and one of ours


def test_a_wrong_number_of_arguments_is_pythons_own_error():
    with pytest.raises(TypeError, match="missing 2 required positional arguments: 'x' and 'ids'"):
        scaled()
    with pytest.raises(TypeError, match="takes from 2 to 3 positional arguments but 4 were given"):
        scaled(X, IDS, None, X)
    with pytest.raises(TypeError, match="got multiple values for argument 'x'"):
        scaled(X, IDS, x=X)


def test_ids_are_held_to_the_floats_wherever_they_stand():
    @checked
    def chosen(ids: Ids[np.ndarray, "... T"], x: Float[np.ndarray, "... T d"]):
        """Ids first, but x is asked first."""

    with pytest.raises(ValueError, match=r"^chosen: ids has shape \(2, 5\); expected \(..., T\) with T=6$"):
        chosen(IDS[:, 1:], X)


def test_an_array_in_a_file_is_welcome(tmp_path):
    x = np.memmap(tmp_path / "x", np.float64, "w+", shape=(2, 6, 8))
    x[:] = array(2, 6, 8)
    arguments = CALLS["layer_norm_forward"]()
    y, _ = call("layer_norm_forward", arguments | {"x": x})
    np.testing.assert_array_equal(y, call("layer_norm_forward", arguments | {"x": np.array(x)})[0])


# --- what a call that has passed makes no way for: see also test_bad_input.py ----------------------


def reshaped(array, *shape):
    """Its shape changed in place, which NumPy will take back one day."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array.shape = shape


def test_a_kind_that_no_glance_knows_is_asked_at_every_call():
    x = np.ones((2, 3))
    npf.dropout_forward(x, np.float32(0.5), None)
    with pytest.raises(ValueError, match=r"^dropout_forward: rate is np.float32\(2.0\); expected a finite"):
        npf.dropout_forward(x, np.float32(2), None)
    npf.dropout_forward(x, 0, None)
    for wrong in (False, 1, "0"):
        with pytest.raises((TypeError, ValueError)):
            npf.dropout_forward(x, wrong, None)
    assert look_of((((1,), 2),), {}) != look_of((((1, 2),),), {}) != look_of((((1,), [2]),), {}) is None


def test_what_passed_as_one_argument_is_asked_as_another():
    x, memory, block, config = list(CALLS["decoder_block_forward"]().values())[:4]
    npf.decoder_block_forward(x, memory, block, config, mask=np.ones((6, 6), bool))
    with pytest.raises(ValueError, match=r"^decoder_block_forward: memory_mask has shape \(6, 6\)"):
        npf.decoder_block_forward(x, memory, block, config, memory_mask=np.ones((6, 6), bool))


def test_shapes_are_read_at_every_call():
    x, params = np.ones((2, 3)), npf.LayerNormParams(np.ones(3), np.zeros(3))
    _, cache = npf.layer_norm_forward(x, params)
    npf.layer_norm_backward(np.ones((2, 3)), cache)
    reshaped(x, 3, 2)
    with pytest.raises(ValueError, match=r"^layer_norm_forward: x has shape \(3, 2\)"):
        npf.layer_norm_forward(x, params)
    reshaped(cache.x_hat, 3, 2)
    with pytest.raises(ValueError, match=r"dy has shape \(2, 3\); expected \(3, 2\)"):
        npf.layer_norm_backward(np.ones((2, 3)), cache)


def test_no_array_is_kept_and_only_so_many_looks():
    x = np.ones((2, 3))
    gone = weakref.ref(x)
    npf.softmax_forward(x)
    del x
    assert gone() is None
    for n in range(1, 3 * MOST):
        npf.causal_mask(n)
    looks = inspect.getclosurevars(npf.causal_mask).nonlocals["passed"]
    assert 0 < len(looks) <= MOST
