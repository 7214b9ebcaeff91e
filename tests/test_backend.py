import sys
import types

import numpy as np

from npformer import array_module


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
