"""A fake of CuPy for machines without a GPU: a test puts it into `sys.modules["cupy"]`.

The fake's arrays wrap NumPy arrays, so NumPy computes all numbers. The fake rejects everything that is wrong
on a GPU:

- a NumPy function of such an array, or the conversion of such an array to NumPy (CuPy accepts some of these
  calls, but npformer must call the functions of `xp`)
- an operation with a NumPy array, or with a NumPy scalar, which would turn float32 arrays into float64
- inside a forward function, a backward function or an optimizer's update, everything that makes the host wait
  for the GPU: `float(…)`, `bool(…)`, `if array:`, `.item()`, `.get()`, boolean indexing, printing.

The fake has only the names of CuPy that the package uses. It does not know whether CuPy has these names and
accepts these arguments. CuPy can be imported without a GPU and without a driver. If CuPy is installed, the
fake makes each call with CuPy too. The arrays of these calls have a shape and a dtype, but no memory. CuPy
checks names and arguments before it looks for a device, and `call_real_cupy` raises CuPy's errors.
"""

import operator
import sys
from collections import Counter
from functools import cache, partial
from types import FrameType
from typing import Any

import numpy as np

from npformer.backend import _why_no_cupy

# The real CuPy, or None on a machine with a working GPU. On such a machine, kernels would run on arrays
# without memory, and test_gpu.py tests the real CuPy.
REAL: Any = sys.modules.get("cupy") if _why_no_cupy() else None
FAKE = sys.modules[__name__]
WITHOUT_WAITING = ("_forward", "_backward", "_update")  # suffixes of functions that must not wait


# Repeating each call with the real CuPy


def call_real_cupy(owner, name, *args, **kwargs):
    """Repeat a call of the fake with CuPy, and raise CuPy's errors. Calls with equal shapes are made once."""
    call = owner, name, args, kwargs
    if REAL is None:
        return
    key = repr(_real(call, lambda a: (a.shape, a.dtype.str)))
    if key in ACCEPTED:
        return
    owner, name, args, kwargs = _real(call, _without_memory)
    try:
        getattr(owner, name)(*args, **kwargs)
    except (REAL.cuda.runtime.CUDARuntimeError, ImportError):
        pass  # There is no driver or no CUDA library, but CuPy has accepted the name and the arguments.
    ACCEPTED.add(key)


ACCEPTED = set()


def _real(value, of_array):
    """Replace the fake module, its ufunc `add` and its arrays by the module, ufunc and arrays of CuPy."""
    if isinstance(value, ndarray):
        return of_array(value)
    if isinstance(value, tuple | list):
        return type(value)([_real(part, of_array) for part in value])
    if isinstance(value, dict):
        return {key: _real(part, of_array) for key, part in value.items()}
    if value is FAKE:
        return REAL
    if value is add:
        return REAL.add
    return value


def _without_memory(array):
    """Return an array of CuPy with this shape and dtype, but without memory."""
    no_memory = REAL.cuda.MemoryPointer(REAL.cuda.UnownedMemory(2**40, 2**40, None, device_id=0), 0)
    return _hollow()(array.shape, array.dtype, no_memory, array._host.strides)


@cache
def _hollow():
    """Return a subclass of CuPy's ndarray whose repr reads no memory, because error messages need a repr."""

    class Hollow(REAL.ndarray):
        def __repr__(self):
            return f"<{self.dtype} of shape {self.shape}>"

    return Hollow


# Functions, methods and operators, computed by NumPy's functions of the same name

FUNCTIONS = """arange ascontiguousarray clip concatenate copyto cumsum empty empty_like flatnonzero full
ones ones_like partition repeat sort take_along_axis where zeros zeros_like
cos exp expm1 isfinite log logaddexp maximum minimum sin sqrt tanh""".split()
METHODS = "all argmax astype copy dot max mean min reshape sum swapaxes view".split()
OPERATORS = """add subtract multiply divide power matmul bitwise_and bitwise_or invert negative absolute
equal not_equal less less_equal greater greater_equal""".split()
KEYWORDS = {"axis", "dtype", "keepdims", "out"}
ATTRIBUTES = ("shape", "ndim", "size", "dtype", "nbytes")
VIEWS = ("T", "real", "imag")


# How often each function was launched on the device. Functions that only make a view launch nothing.
LAUNCHES: Counter[str] = Counter()
WITHOUT_LAUNCH = {"empty", "empty_like", "reshape", "swapaxes", "view", "__getitem__"}


def _call(owner, name, of_numpy, *args, **kwargs):
    """Compute a call with NumPy, and make the same call with CuPy if it is installed."""
    if unused := {*kwargs} - KEYWORDS - ({"where"} if name == "copyto" else set()):
        raise TypeError(f"{name}: the package has not used {unused} of CuPy's yet")
    if name not in WITHOUT_LAUNCH:
        LAUNCHES[name] += 1
    found = of_numpy(*_host(args), **{key: _host(value) for key, value in kwargs.items()})
    call_real_cupy(owner, name, *args, **kwargs)
    return kwargs["out"] if "out" in kwargs else _device(found)


def _unwritten(shape, dtype=float):
    """Return an array of NaN, or of 99 for integers, so that tests notice a read of uninitialised memory."""
    return np.full(shape, np.nan if np.dtype(dtype).kind in "fc" else 99, dtype)


UNWRITTEN = {"empty": _unwritten, "empty_like": lambda a: _unwritten(a.shape, a.dtype)}


def __getattr__(name):
    if name in FUNCTIONS:
        return partial(_call, FAKE, name, UNWRITTEN.get(name) or getattr(np, name))
    raise AttributeError(f"the package has not used cupy.{name} yet")


add = partial(_call, FAKE, "add", np.add)
for _name in ("at", "reduce"):  # the methods that CuPy has for `add`, but not for other functions
    setattr(add, _name, partial(_call, add, _name, getattr(np.add, _name)))


# Arrays


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array "on the device"."""

    def __init__(self, host):
        self._host = host

    def __array_ufunc__(self, ufunc, method, *inputs, out=()):
        if method != "__call__" or ufunc.__name__ not in OPERATORS:
            self._reject()
        return _call(FAKE, ufunc.__name__, ufunc, *inputs, **({"out": out[0]} if out else {}))

    def _reject(self, *args, **kwargs):
        raise TypeError("NumPy was handed an array of the device; `.get()` brings it to the host")

    __array__ = __array_function__ = _reject

    def __getattr__(self, name):
        if name in METHODS:
            return partial(_call, self, name, getattr(self._host, name))
        if name in ATTRIBUTES:
            return getattr(self._host, name)
        if name in VIEWS:
            return ndarray(getattr(self._host, name))
        raise AttributeError(f"the package has not used the array's {name} yet")

    def __len__(self):
        return len(self._host)

    def __iter__(self):
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key):
        parts = key if isinstance(key, tuple) else (key,)
        if any(isinstance(part, ndarray) and part.dtype == bool for part in parts):
            _wait("indexing by a boolean array, whose result has a size that only the device knows,")
        return _call(self, "__getitem__", self._host.__getitem__, key)

    def __setitem__(self, key, value):
        _call(self, "__setitem__", self._host.__setitem__, key, value)


def _waiting(name, of_host):
    """Return a method that makes the host wait for the device."""

    def wait(self):
        _wait(name)
        return of_host(self._host)

    return wait


WAITING = {
    "get": np.copy, "item": np.ndarray.item, "__float__": float, "__int__": int, "__index__": operator.index,
    "__bool__": bool, "__repr__": lambda host: f"device {host!r}",
}  # fmt: skip
for _name, _of_host in WAITING.items():
    setattr(ndarray, _name, _waiting(_name, _of_host))


def _wait(what):
    """Raise RuntimeError if a function of the package that must not wait is running."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        function, module = frame.f_code.co_name, frame.f_globals.get("__name__", "")
        is_operation = module.startswith("npformer.") and not module.startswith("npformer.gradcheck")
        if is_operation and function.endswith(WITHOUT_WAITING):
            raise RuntimeError(f"{what} makes the host wait for the device inside {function}")
        frame = frame.f_back


def _device(result):
    """Return a result of NumPy as an array of the device; a scalar becomes an array without axes."""
    return ndarray(np.asarray(result))


def _host(value):
    """Return the NumPy array inside an array of the device; reject NumPy's own arrays."""
    if isinstance(value, ndarray):
        return value._host
    if isinstance(value, tuple):
        return tuple(map(_host, value))
    if isinstance(value, list) and all(isinstance(part, ndarray) for part in value):
        return list(map(_host, value))
    if isinstance(value, np.ndarray | np.generic | list):
        raise TypeError(f"Unsupported type {type(value)}: not an array of the device")
    return value


def array(obj):
    """Return a copy on the device of an array or of numbers."""
    return ndarray(np.array(obj._host if isinstance(obj, ndarray) else obj))


def asarray(a):
    return a if isinstance(a, ndarray) else array(a)


asanyarray = asarray


def asnumpy(a):
    return a.get() if isinstance(a, ndarray) else np.asarray(a)


def get_array_module(*args):
    return FAKE if any(isinstance(arg, ndarray) for arg in args) else np
