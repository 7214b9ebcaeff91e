"""A stand-in for CuPy on machines without a GPU: put in `sys.modules["cupy"]`, it plays the part of `cupy`.

Its arrays wrap NumPy arrays, so the numbers are NumPy's. What matters is what they refuse, as arrays on a
GPU would or should:

- any NumPy function or conversion that is handed one (CuPy takes some of them; the package says `xp`);
- any mixing with NumPy arrays, and with NumPy scalars, whose float64 would spread through float32 arrays;
- while a forward, a backward or an optimizer's update of the package runs, anything that waits for the
  GPU: `float(…)`, `bool(…)`, `if array:`, `.item()`, `.get()`, indexing by a boolean array, printing.

It has the names that the package uses of CuPy and no more. That CuPy has them, and takes what it is given, is
CuPy's to say: where it can be imported, which takes no GPU and no driver, every call of the stand-in
is made of CuPy too, on arrays that have a shape and a type but no memory. CuPy reads names and arguments
before it looks for a device, and what it objects to is raised here (`ask`).
"""

import operator
import sys
from functools import cache, partial

import numpy as np

from npformer.backend import _why_no_cupy

# Not where a GPU answers: kernels would run there, on no memory. test_gpu.py runs the real thing.
REAL = sys.modules.get("cupy") if _why_no_cupy() else None
HERE = sys.modules[__name__]
WITHOUT_WAITING = ("_forward", "_backward", "_update")  # functions of the package that must never wait


# What CuPy says


def ask(owner, name, *args, **kwargs):
    """Make the call of CuPy itself, once: what it objects to before it looks for a device is raised."""
    call = owner, name, args, kwargs
    if REAL is None or (words := repr(_real(call, lambda a: (a.shape, a.dtype.str)))) in ANSWERED:
        return
    owner, name, args, kwargs = _real(call, _without_memory)
    try:
        getattr(owner, name)(*args, **kwargs)
    except (REAL.cuda.runtime.CUDARuntimeError, ImportError):
        pass  # no driver, or none of CUDA's libraries: up to here all was well
    ANSWERED.add(words)


ANSWERED = set()


def _real(value, of_array):
    """CuPy's own for each part of the stand-in: the module, its ufunc, its arrays."""
    if isinstance(value, ndarray):
        return of_array(value)
    if isinstance(value, tuple | list):
        return type(value)([_real(part, of_array) for part in value])
    if isinstance(value, dict):
        return {key: _real(part, of_array) for key, part in value.items()}
    return REAL if value is HERE else REAL.add if value is add else value


def _without_memory(array):
    nowhere = REAL.cuda.MemoryPointer(REAL.cuda.UnownedMemory(2**40, 2**40, None, device_id=0), 0)
    return _hollow()(array.shape, array.dtype, nowhere, array._host.strides)


@cache
def _hollow():
    """CuPy's arrays, but for printing, which would need the numbers, also within an error's message."""

    class Hollow(REAL.ndarray):
        def __repr__(self):
            return f"<{self.dtype} of shape {self.shape}>"

    return Hollow


# CuPy's functions, methods and operators, with NumPy's of the same name for the numbers

FUNCTIONS = """arange ascontiguousarray concatenate copyto cumsum empty empty_like flatnonzero full ones
partition repeat sort take_along_axis where zeros zeros_like
cos exp isfinite log maximum minimum sin sqrt tanh""".split()
METHODS = "all argmax astype copy dot max mean min reshape sum swapaxes view".split()
OPERATORS = """add subtract multiply divide power matmul bitwise_and bitwise_or invert negative absolute
equal not_equal less less_equal greater greater_equal""".split()
KEYWORDS = {"axis", "dtype", "keepdims", "out"}
KNOWN, VIEWS = ("shape", "ndim", "size", "dtype", "nbytes"), ("T", "real", "imag")


def _call(owner, name, of_numpy, *args, **kwargs):
    """What CuPy's owner has under this name; its numbers are NumPy's."""
    if unused := {*kwargs} - KEYWORDS - ({"where"} if name == "copyto" else set()):
        raise TypeError(f"{name}: the package has not used {unused} of CuPy's yet")
    found = of_numpy(*_host(args), **{key: _host(value) for key, value in kwargs.items()})
    ask(owner, name, *args, **kwargs)
    return kwargs["out"] if "out" in kwargs else _device(found)


def _unwritten(shape, dtype=float):
    """Uninitialised memory: NaN where the type has one, so that reading it shows."""
    return np.full(shape, np.nan if np.dtype(dtype).kind in "fc" else 99, dtype)


UNWRITTEN = {"empty": _unwritten, "empty_like": lambda a: _unwritten(a.shape, a.dtype)}


def __getattr__(name):
    if name in FUNCTIONS:
        return partial(_call, HERE, name, UNWRITTEN.get(name) or getattr(np, name))
    raise AttributeError(f"the package has not used cupy.{name} yet")


add = partial(_call, HERE, "add", np.add)
for _name in ("at", "reduce"):  # of other ufuncs CuPy has none
    setattr(add, _name, partial(_call, add, _name, getattr(np.add, _name)))


# Arrays


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array "on the device"."""

    def __init__(self, host):
        self._host = host

    def __array_ufunc__(self, ufunc, method, *inputs, out=()):
        if method != "__call__" or ufunc.__name__ not in OPERATORS:
            self._refuse()
        return _call(HERE, ufunc.__name__, ufunc, *inputs, **({"out": out[0]} if out else {}))

    def _refuse(self, *args, **kwargs):
        raise TypeError("NumPy was handed an array of the device; `.get()` brings it to the host")

    __array__ = __array_function__ = _refuse

    def __getattr__(self, name):
        if name in METHODS:
            return partial(_call, self, name, getattr(self._host, name))
        if name in KNOWN:
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
    """What makes the host wait for the device."""

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
    """Refuse to wait for the device inside a function of the package that must not."""
    frame = sys._getframe(2)
    while frame is not None:
        function, module = frame.f_code.co_name, frame.f_globals.get("__name__", "")
        if module.startswith("npformer.") and function.endswith(WITHOUT_WAITING):
            raise RuntimeError(f"{what} makes the host wait for the device inside {function}")
        frame = frame.f_back


def _device(result):
    """What NumPy computed, as an array of the device; a NumPy scalar becomes 0-d."""
    return ndarray(np.asarray(result))


def _host(value):
    """The NumPy array inside, for a computation "on the device"; NumPy's own arrays are refused."""
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
    """A copy on the device, of an array of either side or of numbers."""
    return ndarray(np.array(obj._host if isinstance(obj, ndarray) else obj))


def asarray(a):
    return a if isinstance(a, ndarray) else array(a)


asanyarray = asarray


def asnumpy(a):
    return a.get() if isinstance(a, ndarray) else np.asarray(a)


def get_array_module(*args):
    return HERE if any(isinstance(arg, ndarray) for arg in args) else np
