import queue
import sys
import types

import numpy as np
import pytest
import standin_cupy

from npformer import AdamState, array_module, available_backends, to_backend, to_numpy


def test_a_loaded_cupy_is_asked_and_never_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    assert array_module(np.ones(2)) is np and "cupy" not in sys.modules
    cupy = types.ModuleType("cupy")
    cupy.get_array_module = lambda *arrays: cupy if any(a == "on the device" for a in arrays) else np
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert array_module("on the device") is cupy
    assert array_module("on the host") is np


def test_moving_a_tree_there_and_back(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", standin_cupy)
    assert available_backends() == ("numpy", "cupy")
    tree = AdamState(3, (np.ones(2), None), np.zeros(1))
    there = to_backend(tree, "cupy")
    assert there.step == 3 and there.m[1] is None and type(there.v) is standin_cupy.ndarray
    assert to_backend(there, "cupy").v is there.v and array_module(tree.v, there.v) is standin_cupy
    back = to_numpy(there)
    assert (back.m[0] == tree.m[0]).all() and type(back.v) is np.ndarray and back.step == 3


@pytest.mark.parametrize("error", [OSError("no device\nand more lines"), RuntimeError(), OSError("\n")])
@pytest.mark.parametrize("place", ["ones", "ndarray.__matmul__", "exp", "add.at", "ndarray.item"])
def test_a_gpu_counts_when_a_softmax_a_product_and_a_scatter_ran(monkeypatch, error, place):
    def fails(*args, **kwargs):
        raise error

    monkeypatch.setitem(sys.modules, "cupy", standin_cupy)
    monkeypatch.setattr(f"standin_cupy.{place}", fails)
    assert available_backends() == ("numpy",)
    reason = f"to_backend: CuPy is installed, but no GPU answers: {type(error).__name__}: "
    with pytest.raises(RuntimeError, match="^" + reason) as caught:
        to_backend(np.ones(1), "cupy")
    assert "\n" not in str(caught.value)


def test_a_cupy_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert available_backends() == ("numpy",)
    with pytest.raises(RuntimeError, match=r"^to_backend: CuPy is not installed; to get it: pip install"):
        to_backend(np.ones(1), "cupy")


def test_only_arrays_are_taken_for_arrays(monkeypatch):
    """A queue has a .get() too, which would wait for ever."""
    monkeypatch.setitem(sys.modules, "cupy", standin_cupy)
    waiting = queue.Queue()
    tree = (waiting, "a word", 3)
    assert to_numpy(tree) == tree and to_backend(tree, "cupy") == tree
    with pytest.raises(TypeError, match=r"^to_numpy: a tree is a dict; expected an array, None or a tuple"):
        to_numpy({"get": np.ones(2)})


def test_numpy_stays_where_it_is():
    tree = (np.ones(2), None)
    assert to_numpy(tree)[0] is tree[0] and array_module() is np
