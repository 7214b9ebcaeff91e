"""Tests of moving arrays between NumPy and CuPy, and of finding out whether a GPU works."""

import queue
import sys
import types
from typing import Any

import fake_cupy
import numpy as np
import pytest

from npformer import AdamState, array_module, available_backends, to_backend, to_numpy
from npformer.backend import _run_small_calculation


@pytest.fixture(autouse=True)
def _gpu_is_tried_again():
    """Clear a cache before each test, so that the test tries CuPy again, as a new process does."""
    _run_small_calculation.cache_clear()


def test_array_module_never_imports_cupy(monkeypatch):
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    assert array_module(np.ones(2)) is np and "cupy" not in sys.modules
    cupy: Any = types.ModuleType("cupy")
    cupy.get_array_module = lambda *arrays: cupy if any(a == "on the device" for a in arrays) else np
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert array_module("on the device") is cupy
    assert array_module("on the host") is np


def test_to_backend_and_to_numpy_round_trip(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    assert available_backends() == ("numpy", "cupy")
    tree = AdamState(3, (np.ones(2), None), np.zeros(1))
    on_device = to_backend(tree, "cupy")
    assert on_device.step == 3 and on_device.m[1] is None and type(on_device.v) is fake_cupy.ndarray
    assert to_backend(on_device, "cupy").v is on_device.v
    assert array_module(tree.v, on_device.v) is fake_cupy
    back = to_numpy(on_device)
    assert (back.m[0] == tree.m[0]).all() and type(back.v) is np.ndarray and back.step == 3


@pytest.mark.parametrize(
    "error", [OSError("no device\nand more lines"), RuntimeError(), OSError("\n")], ids=repr
)
@pytest.mark.parametrize("place", ["ones", "ndarray.__matmul__", "exp", "add.at", "ndarray.item"])
def test_available_backends_requires_working_gpu(monkeypatch, error, place):
    """A GPU counts as working only if a softmax, a matrix product and a scatter run on it without error."""

    def fails(*args, **kwargs):
        raise error

    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    monkeypatch.setattr(f"fake_cupy.{place}", fails)
    assert available_backends() == ("numpy",)
    reason = f"to_backend: CuPy is installed, but it cannot use a GPU: {type(error).__name__}: "
    with pytest.raises(RuntimeError, match="^" + reason) as caught:
        to_backend(np.ones(1), "cupy")
    assert "\n" not in str(caught.value)


def test_to_backend_tries_a_working_gpu_once(monkeypatch):
    calls: list[Any] = []
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    exp = fake_cupy.exp

    def counting_exp(x):
        calls.append(x)
        return exp(x)

    monkeypatch.setattr(fake_cupy, "exp", counting_exp)
    for _ in range(3):
        to_backend(np.ones(1), "cupy")
    assert len(calls) == 1


def test_to_backend_tries_a_failing_gpu_again(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    with monkeypatch.context() as without_device:
        without_device.setattr(fake_cupy, "exp", None)
        assert available_backends() == ("numpy",)
    assert available_backends() == ("numpy", "cupy")


def test_to_backend_reports_missing_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert available_backends() == ("numpy",)
    with pytest.raises(RuntimeError, match=r"^to_backend: CuPy is not installed; to get it: pip install"):
        to_backend(np.ones(1), "cupy")


def test_to_numpy_converts_only_arrays(monkeypatch):
    """A queue has a method `get`, as CuPy's arrays do. A call of the queue's method would wait forever."""
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    empty_queue = queue.Queue()
    tree = (empty_queue, "a word", 3)
    assert to_numpy(tree) == tree and to_backend(tree, "cupy") == tree
    with pytest.raises(TypeError, match=r"^to_numpy: a tree is a dict; expected an array, None or a tuple"):
        to_numpy({"get": np.ones(2)})


def test_to_numpy_returns_same_numpy_array():
    tree = (np.ones(2), None)
    assert to_numpy(tree)[0] is tree[0] and array_module() is np
