import queue
import sys
import types

import numpy as np
import pytest

from npformer import AdamState, array_module, available_backends, to_backend, to_numpy


def test_without_cupy_every_array_is_numpys():
    assert array_module(np.ones(2)) is np
    assert array_module() is np


def test_a_loaded_cupy_is_asked_and_never_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    assert array_module(np.ones(2)) is np and "cupy" not in sys.modules
    cupy = types.ModuleType("cupy")
    cupy.get_array_module = lambda *arrays: cupy if any(a == "on the device" for a in arrays) else np
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert array_module("on the device") is cupy
    assert array_module("on the host") is np


def fake_cupy(gpu):
    """As much of CuPy as `to_backend` touches: an import that works, and kernels that run or do not."""
    cupy = types.ModuleType("cupy")

    class DeviceArray:
        def __init__(self, host):
            self.host = host

        def get(self):
            return self.host

        def __matmul__(self, other):
            return DeviceArray(self.host @ other.host)

        def sum(self):
            if not gpu:
                raise OSError("no CUDA-capable device is detected\nand more lines")
            return self.host.sum()

    cupy.ndarray = DeviceArray
    cupy.get_array_module = lambda *arrays: cupy if any(isinstance(a, DeviceArray) for a in arrays) else np
    cupy.ones = lambda shape: DeviceArray(np.ones(shape))
    cupy.asarray = lambda a: a if isinstance(a, DeviceArray) else DeviceArray(a)
    return cupy


def test_moving_a_tree_there_and_back(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(gpu=True))
    assert available_backends() == ("numpy", "cupy")
    tree = AdamState(3, (np.ones(2), None), np.zeros(1))
    there = to_backend(tree, "cupy")
    assert there.step == 3 and there.m[1] is None and there.m[0].get() is tree.m[0]
    assert to_backend(there, "cupy").v is there.v
    back = to_numpy(there)
    assert back.m[0] is tree.m[0] and back.step == 3


def test_a_gpu_that_does_not_answer_is_told_from_a_cupy_that_is_not_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(gpu=False))
    assert available_backends() == ("numpy",)
    with pytest.raises(
        RuntimeError, match=r"^to_backend: CuPy is installed, but no GPU answers: OSError: no CUDA-cap"
    ):
        to_backend(np.ones(1), "cupy")
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(RuntimeError, match=r"^to_backend: CuPy is not installed; to get it: pip install"):
        to_backend(np.ones(1), "cupy")


@pytest.mark.parametrize("error", [RuntimeError(), OSError("\n"), ImportError("libcublas.so.12\nnot found")])
def test_an_error_without_words_is_told_too(monkeypatch, error):
    cupy = types.ModuleType("cupy")

    def ones(shape):
        raise error

    cupy.ones = ones
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    with pytest.raises(RuntimeError, match=f"no GPU answers: {type(error).__name__}: ") as caught:
        to_backend(np.ones(1), "cupy")
    assert "\n" not in str(caught.value)


def test_only_arrays_are_taken_for_arrays(monkeypatch):
    """A queue has a .get() too, which would wait for ever."""
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(gpu=True))
    waiting = queue.Queue()
    tree = (waiting, "a word", 3)
    assert to_numpy(tree) == tree and to_backend(tree, "cupy") == tree
    with pytest.raises(TypeError, match=r"^to_numpy: a tree is a dict; expected an array, None or a tuple"):
        to_numpy({"get": np.ones(2)})


def test_a_tree_too_deep_is_refused_in_our_words():
    tree = np.ones(1)
    for _ in range(5000):
        tree = (tree,)
    for move in (to_numpy, lambda tree: to_backend(tree, "numpy")):
        with pytest.raises(ValueError, match=r"^to_(numpy|backend): the tree is nested more than 100 deep"):
            move(tree)


def test_numpy_stays_where_it_is():
    tree = (np.ones(2), None)
    assert to_numpy(tree)[0] is tree[0] and available_backends()[0] == "numpy"
    with pytest.raises(ValueError, match=r"^to_backend: backend is 'torch'; expected 'numpy' or 'cupy'"):
        to_backend(tree, "torch")


def test_a_backend_is_asked_for_by_its_name():
    with pytest.raises(TypeError, match="to_backend: backend is int; expected 'numpy' or 'cupy'"):
        to_backend(np.ones(2), 3)
