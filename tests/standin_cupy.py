"""A stand-in for CuPy on machines without a GPU: put in `sys.modules["cupy"]`, it plays the part of `cupy`.

Its arrays wrap NumPy arrays, so the numbers are NumPy's. What matters is what they refuse, as arrays on a
GPU would or should:

- any NumPy function, ufunc or conversion that is handed one (CuPy takes some of them; the package says `xp`);
- any mixing with NumPy arrays, and with NumPy scalars, whose float64 would spread through float32 arrays;
- while a forward, a backward or an optimizer's update of the package runs, anything that waits for the
  GPU: `float(…)`, `bool(…)`, `if array:`, `.item()`, `.get()`, indexing by a boolean array, printing.

It has the names that the package uses of CuPy, with the arguments that it uses, and no more. That CuPy has
them is CuPy's to say: where it can be imported, which takes no GPU and no driver, every call of the stand-in
is made of CuPy too, on arrays that have a shape and a type but no memory. CuPy reads names and arguments
before it looks for a device, and what it objects to is raised here (`ask`).
"""

import functools
import inspect
import operator
import sys
from functools import cache

import numpy as np

from npformer.backend import _why_no_cupy

# Not where a GPU answers: kernels would run there, on no memory. test_gpu.py runs the real thing.
REAL = sys.modules.get("cupy") if _why_no_cupy() else None

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
    """CuPy's own for each part of the stand-in: the module, its ufuncs, its arrays."""
    if isinstance(value, ndarray):
        return of_array(value)
    if value is sys.modules[__name__].add:
        return REAL.add
    if isinstance(value, tuple | list):
        return type(value)([_real(part, of_array) for part in value])
    if isinstance(value, dict):
        return {key: _real(part, of_array) for key, part in value.items()}
    return REAL if value is sys.modules[__name__] else value


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


# Arrays


class ndarray:
    """An array "on the device"."""

    __hash__ = None

    def __init__(self, host):
        self._host = host

    # NumPy gets nothing

    def _refuse(self, *args, **kwargs):
        raise TypeError("NumPy was handed an array of the device; `.get()` brings it to the host")

    __array__ = __array_function__ = __array_ufunc__ = _refuse

    def __len__(self):
        return len(self._host)

    def __iter__(self):
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key):
        if any(isinstance(part, ndarray) and part.dtype == bool for part in _parts(key)):
            _wait("indexing by a boolean array, whose result has a size that only the device knows,")
        found = self._host[_host(key)]
        ask(self, "__getitem__", key)
        return _device(found)

    def __setitem__(self, key, value):
        self._host[_host(key)] = _host(value)
        ask(self, "__setitem__", key, value)


def _known(name):
    """What the host knows without waiting, and views on the device."""
    value = property(lambda self: getattr(self._host, name))
    return value if name in KNOWN else property(lambda self: ndarray(getattr(self._host, name)))


def _waiting(name, of_host):
    """What makes the host wait for the device."""

    def wait(self):
        _wait(name)
        return of_host(self._host)

    return wait


KNOWN, VIEWS = ("shape", "ndim", "size", "dtype", "nbytes"), ("T", "real", "imag")
WAITING = {
    "get": np.copy, "item": np.ndarray.item, "__float__": float, "__int__": int, "__index__": operator.index,
    "__bool__": bool, "__repr__": lambda host: f"device {host!r}",
}  # fmt: skip
for _name in (*KNOWN, *VIEWS):
    setattr(ndarray, _name, _known(_name))
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


def _parts(key):
    return key if isinstance(key, tuple) else (key,)


# Functions, methods and operators: CuPy's, with NumPy's of the same name for the numbers

FUNCTIONS = [
    "arange(start, stop=None, step=1)", "ascontiguousarray(a)", "concatenate(tup, axis=0)",
    "copyto(dst, src, *, where)", "cumsum(a, axis)", "empty(shape, dtype=float)", "empty_like(prototype)",
    "flatnonzero(a)", "full(shape, fill_value, dtype=None)", "ones(shape, dtype=float)",
    "partition(a, kth, axis)", "repeat(a, repeats, axis)", "sort(a, axis)",
    "take_along_axis(a, indices, axis)", "where(condition, x, y)", "zeros(shape, dtype=float)",
    "zeros_like(a)",
    *(f"{name}(x, *, out=None)" for name in "cos exp isfinite log sin sqrt tanh".split()),
    *(f"{name}(x1, x2, *, out=None)" for name in "add maximum minimum".split()),
]  # fmt: skip
OPERATORS = {  # and CuPy's function of the same
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "pow": "power",
    "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or",
}  # fmt: skip
COMPARISONS_AND_SIGNS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal", "neg": "negative", "abs": "absolute", "invert": "invert",
}  # fmt: skip
UFUNCS = {f"__{side}{name}__": ufunc for name, ufunc in OPERATORS.items() for side in ("", "r", "i")}
UFUNCS |= {f"__{name}__": ufunc for name, ufunc in COMPARISONS_AND_SIGNS.items()}
METHODS = [
    "all(axis=None)", "argmax(axis=None)", "astype(dtype)", "copy()", "max(axis=None, keepdims=False)",
    "mean(axis=None, keepdims=False)", "min(axis=None, keepdims=False)", "reshape(*shape)",
    "sum(axis=None, keepdims=False)", "swapaxes(axis1, axis2)", "view(dtype)",
    *(f"{name}(*other)" for name in UFUNCS),
]  # fmt: skip
OF_ADD = ["at(a, indices, b)", "reduce(array, axis=0, keepdims=False)"]  # of other ufuncs CuPy has none


def _standing_for(text, owner, of_numpy):
    """What CuPy's owner has under this name, with these parameters; its numbers are NumPy's."""
    name, _, parameters = text[:-1].partition("(")
    signature = inspect.signature(eval(f"lambda {parameters}: None"))
    in_place = name.startswith("__i") and name != "__invert__"

    def call(owner, *args, **kwargs):
        signature.bind(*args, **kwargs)
        found = of_numpy(owner, name)(*_host(args), **{key: _host(value) for key, value in kwargs.items()})
        if name in UFUNCS:
            ask(sys.modules[__name__], UFUNCS[name], owner, *args, **{"out": owner} if in_place else {})
        else:
            ask(owner, name, *args, **kwargs)
        return owner if in_place else kwargs.get("out", _device(found))

    function = call if owner is ndarray else functools.partial(call, owner)
    setattr(owner, name, function)


def _unwritten(shape, dtype=float):
    """Uninitialised memory: NaN where the type has one, so that reading it shows."""
    return np.full(shape, np.nan if np.dtype(dtype).kind in "fc" else 99, dtype)


UNWRITTEN = {"empty": _unwritten, "empty_like": lambda a: _unwritten(a.shape, a.dtype)}
for _text in FUNCTIONS:
    _standing_for(_text, sys.modules[__name__], lambda _, name: UNWRITTEN.get(name) or getattr(np, name))
for _text in METHODS:
    _standing_for(_text, ndarray, lambda a, name: getattr(a._host, name))
for _text in OF_ADD:
    _standing_for(_text, sys.modules[__name__].add, lambda _, name: getattr(np.add, name))


def array(obj):
    """A copy on the device, of an array of either side or of numbers."""
    return ndarray(np.array(obj._host if isinstance(obj, ndarray) else obj))


def asarray(a):
    return a if isinstance(a, ndarray) else array(a)


asanyarray = asarray


def asnumpy(a):
    return a.get() if isinstance(a, ndarray) else np.asarray(a)


def get_array_module(*args):
    return sys.modules[__name__] if any(isinstance(arg, ndarray) for arg in args) else np
