"""A stand-in for CuPy on machines without a GPU: put in `sys.modules["cupy"]`, it plays the part of `cupy`.

Its arrays wrap NumPy arrays, so the numbers are NumPy's. What matters is what they refuse, as arrays on a
GPU would or should:

- any NumPy function, ufunc or conversion that is handed one (NumPy would have to bring it to the host);
- any mixing with NumPy arrays, and with NumPy scalars, whose float64 would spread through float32 arrays;
- while a forward, a backward or an optimizer's update of the package runs, anything that waits for the
  GPU: `float(…)`, `bool(…)`, `if array:`, `.item()`, `.get()`, indexing by a boolean array, printing.

It has what the package uses of CuPy and no more: whatever is missing here raises AttributeError, among it
what CuPy itself has not (`.mT`, `vecdot`, `errstate`, `device=`, `max(initial=…)`, `Generator.normal`).
"""

import operator
import sys

import numpy as np

WITHOUT_WAITING = ("_forward", "_backward", "_update")  # functions of the package that must never wait


class ndarray:
    """An array "on the device"."""

    __hash__ = None

    def __init__(self, host):
        self._host = host

    # NumPy gets nothing

    def _refuse(self, *args, **kwargs):
        raise TypeError("NumPy was handed an array of the device; `.get()` brings it to the host")

    __array__ = __array_function__ = __array_ufunc__ = _refuse

    # What the host can know without waiting

    shape = property(lambda self: self._host.shape)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    dtype = property(lambda self: self._host.dtype)
    nbytes = property(lambda self: self._host.nbytes)

    def __len__(self):
        return len(self._host)

    # What makes the host wait for the device

    def get(self):
        """A copy on the host."""
        _wait(".get()")
        return self._host.copy()

    def item(self):
        _wait(".item()")
        return self._host.item()

    def __float__(self):
        _wait("float(…)")
        return float(self._host)

    def __int__(self):
        _wait("int(…)")
        return int(self._host)

    def __index__(self):
        _wait("an index")
        return operator.index(self._host)

    def __bool__(self):
        _wait("a truth value")
        return bool(self._host)

    def __repr__(self):
        _wait("printing")
        return f"device {self._host!r}"

    # Views and copies, all on the device

    T = property(lambda self: ndarray(self._host.T))
    real = property(lambda self: ndarray(self._host.real))
    imag = property(lambda self: ndarray(self._host.imag))

    def __iter__(self):
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key):
        if any(isinstance(part, ndarray) and part.dtype == bool for part in _parts(key)):
            _wait("indexing by a boolean array, whose result has a size that only the device knows,")
        return _device(self._host[_host(key)])

    def __setitem__(self, key, value):
        self._host[_host(key)] = _host(value)

    def reshape(self, *shape):
        return ndarray(self._host.reshape(*shape))

    def swapaxes(self, a, b):
        return ndarray(self._host.swapaxes(a, b))

    def view(self, dtype):
        return ndarray(self._host.view(dtype))

    def copy(self):
        return ndarray(self._host.copy())

    def astype(self, dtype):
        return ndarray(self._host.astype(dtype))

    # Reductions; a whole array's sum is a 0-d array, no number

    def sum(self, axis=None, keepdims=False):
        return _device(self._host.sum(axis=axis, keepdims=keepdims))

    def mean(self, axis=None, keepdims=False):
        return _device(self._host.mean(axis=axis, keepdims=keepdims))

    def max(self, axis=None, keepdims=False):
        return _device(self._host.max(axis=axis, keepdims=keepdims))

    def min(self, axis=None, keepdims=False):
        return _device(self._host.min(axis=axis, keepdims=keepdims))

    def all(self, axis=None):
        return _device(self._host.all(axis=axis))

    def argmax(self, axis=None):
        return _device(self._host.argmax(axis=axis))


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
    if isinstance(value, np.ndarray | np.generic | list):
        raise TypeError(f"Unsupported type {type(value)}: not an array of the device")
    return value


def _parts(key):
    return key if isinstance(key, tuple) else (key,)


class _UFunc:
    """A function of elements: broadcasting, `out`, and no `where`."""

    def __init__(self, of_numpy):
        self._of_numpy = of_numpy

    def __call__(self, *args, out=None):
        if out is None:
            return _device(self._of_numpy(*map(_host, args)))
        self._of_numpy(*map(_host, args), out=_host(out))
        return out


class _Maximum(_UFunc):
    """With one method, `reduce`."""

    def reduce(self, a, axis=0, keepdims=False):
        return a.max(axis=axis, keepdims=keepdims)


class _Add(_UFunc):
    """Of the methods of ufuncs the package uses `at` and `reduce`, of `add` and `maximum` only."""

    def at(self, a, indices, b):
        self._of_numpy.at(_host(a), _host(indices), _host(b))

    def reduce(self, a, axis=0, keepdims=False):
        return a.sum(axis=axis, keepdims=keepdims)


def _operators(**ufuncs):
    """Write the operators of `ndarray`: a + b, b + a and a += b, each through its ufunc."""

    def write(name, ufunc):
        def forwards(self, other):
            return ufunc(self, other)

        def reflected(self, other):
            return ufunc(other, self)

        def in_place(self, other):
            return ufunc(self, other, out=self)

        setattr(ndarray, f"__{name}__", forwards)
        setattr(ndarray, f"__r{name}__", reflected)
        setattr(ndarray, f"__i{name}__", in_place)

    for name, ufunc in ufuncs.items():
        write(name, ufunc)


def _comparisons_and_signs(**ufuncs):
    """Write a == b, a < b, -a and the like."""
    for name, ufunc in ufuncs.items():
        setattr(ndarray, f"__{name}__", lambda *args, ufunc=ufunc: ufunc(*args))


add, multiply, divide = _Add(np.add), _UFunc(np.multiply), _UFunc(np.divide)
maximum, minimum, matmul = _Maximum(np.maximum), _UFunc(np.minimum), _UFunc(np.matmul)
exp, log, sqrt, tanh = _UFunc(np.exp), _UFunc(np.log), _UFunc(np.sqrt), _UFunc(np.tanh)
sin, cos, isfinite = _UFunc(np.sin), _UFunc(np.cos), _UFunc(np.isfinite)

_operators(
    add=add, mul=multiply, truediv=divide, matmul=matmul, sub=_UFunc(np.subtract), pow=_UFunc(np.power),
    **{"and": _UFunc(np.bitwise_and), "or": _UFunc(np.bitwise_or)},
)  # fmt: skip
_comparisons_and_signs(
    eq=_UFunc(np.equal), ne=_UFunc(np.not_equal), lt=_UFunc(np.less), le=_UFunc(np.less_equal),
    gt=_UFunc(np.greater), ge=_UFunc(np.greater_equal),
    neg=_UFunc(np.negative), abs=_UFunc(np.absolute), invert=_UFunc(np.invert),
)  # fmt: skip


def get_array_module(*args):
    return sys.modules[__name__] if any(isinstance(arg, ndarray) for arg in args) else np


def array(a):
    """A copy on the device, of an array of either side or of numbers."""
    return ndarray(np.array(a._host if isinstance(a, ndarray) else a))


def asarray(a):
    return a if isinstance(a, ndarray) else array(a)


asanyarray = asarray


def asnumpy(a):
    return a.get() if isinstance(a, ndarray) else np.asarray(a)


def arange(*args):
    return ndarray(np.arange(*args))


def empty(shape, dtype=float):
    """Uninitialised memory: NaN where the type has one, so that reading it shows."""
    return ndarray(np.full(shape, np.nan if np.dtype(dtype).kind in "fc" else 99, dtype))


def empty_like(a):
    return ndarray(np.full_like(_host(a), np.nan))


def zeros(shape, dtype=float):
    return ndarray(np.zeros(shape, dtype))


def zeros_like(a):
    return ndarray(np.zeros_like(_host(a)))


def ones(shape, dtype=float):
    return ndarray(np.ones(shape, dtype))


def full(shape, fill_value, dtype=None):
    return ndarray(np.full(shape, _host(fill_value), dtype))


def concatenate(arrays, axis=0):
    return ndarray(np.concatenate([_host(a) for a in arrays], axis))


def ascontiguousarray(a):
    return ndarray(np.ascontiguousarray(_host(a)))


def repeat(a, repeats, axis):
    return ndarray(np.repeat(_host(a), repeats, axis))


def sort(a, axis):
    return ndarray(np.sort(_host(a), axis))


def partition(a, kth, axis):
    return ndarray(np.partition(_host(a), kth, axis))


def flatnonzero(a):
    return ndarray(np.flatnonzero(_host(a)))


def cumsum(a, axis):
    return ndarray(np.cumsum(_host(a), axis))


def take_along_axis(a, indices, axis):
    return ndarray(np.take_along_axis(_host(a), _host(indices), axis))


def where(condition, x, y):
    return _device(np.where(_host(condition), _host(x), _host(y)))


def copyto(dst, src, where):
    np.copyto(_host(dst), _host(src), where=_host(where))
