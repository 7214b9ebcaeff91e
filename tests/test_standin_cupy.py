"""The stand-in for CuPy: what it has CuPy has, and what it refuses; and arrays of two libraries in a call.

    uv run --isolated --with cupy-cuda12x==14.0.1 pytest tests/test_standin_cupy.py tests/test_gpu.py

asks CuPy itself about every call, without a GPU. What runs so has not been shown to be fast on a GPU, nor
that CuPy's kernels round as NumPy does: `pytest -m gpu` is for that.
"""

import inspect
import re
import sys

import numpy as np
import pytest
import standin_cupy as cupy
from bad_calls import CHECKED
from together import together
from valid_calls import CALLS, array, call, with_arrays

import npformer as npf
from npformer.tree import ends


@pytest.fixture(autouse=True)
def _standin(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", cupy)


def to_device(tree):
    return with_arrays(tree, cupy.asarray)


# The stand-in has no more than CuPy, and no more than the package uses

ASKS = pytest.mark.skipif(cupy.REAL is None, reason="CuPy is not here to be asked: .ci/run asks it")


def names(owner):
    """What the stand-in or its array offers."""
    return {
        name: value
        for name, value in vars(owner).items()
        if isinstance(value, property) or getattr(value, "__module__", "") == cupy.__name__
        if not name.startswith("_") and value is not cupy.ask
    }


def parameters(function):
    """By inspection; what is compiled has them in the first line of its docstring."""
    try:
        return inspect.signature(function).parameters
    except ValueError:
        return re.findall(r"(\w+)(?:=[^,)]+)?[,)]", function.__doc__.partition("\n")[0])


@ASKS
def test_cupy_has_every_name_and_every_parameter():
    for mine, real in ((cupy, cupy.REAL), (cupy.ndarray, cupy.REAL.ndarray)):
        for name, value in names(mine).items():
            assert hasattr(real, name), name
            if inspect.isfunction(value):
                own = set(inspect.signature(value).parameters) - {"self"}
                assert own <= set(parameters(getattr(real, name))), name


@ASKS
def test_cupy_has_the_ufuncs_and_their_methods():
    x = cupy.ones((2, 2))
    calls = {"reduce": (x,), "at": (x, cupy.zeros(2, int), x)}
    for name in cupy.UFUNCS:
        cupy.ask(cupy, name, *[x] * getattr(np, name).nin, out=x)
        for method in names(type(getattr(cupy, name))):
            cupy.ask(getattr(cupy, name), method, *calls[method])


@ASKS
@together(
    ("error", "asked"),
    [
        (NotImplementedError, lambda x: cupy.ask(cupy.maximum, "reduce", x, axis=-1)),
        (TypeError, lambda x: cupy.ask(cupy.add, "reduce", x, where=x > 0)),
        (AttributeError, lambda x: cupy.ask(cupy, "vecdot", x, x)),
        (TypeError, lambda x: cupy.ask(cupy, "exp", x, where=x > 0)),
        (TypeError, lambda x: cupy.ask(x, "max", axis=0, initial=0)),
        (TypeError, lambda x: cupy.ask(cupy, "zeros", 2, device="gpu")),
        (AttributeError, lambda x: cupy.ask(x, "__array_namespace__")),
        (AttributeError, lambda x: cupy.ask(cupy, "errstate")),
        (IndexError, lambda x: cupy.ask(x, "__getitem__", 7)),
    ],
)
def test_cupy_objects(error, asked):
    with pytest.raises(error):
        asked(cupy.ones((2, 2)))


# What it refuses: a check that cannot fail proves nothing


@together(
    "use",
    [
        lambda d: np.exp(d),
        lambda d: np.sum(d),
        lambda d: np.asarray(d),
        lambda d: np.concatenate([d, d]),
        lambda d: np.ones(2) + d,
        lambda d: d + np.ones(2),
        lambda d: d * np.float64(2),
        lambda d: d.__imul__(np.ones(2)),
        lambda d: np.ones(2)[d],
        lambda d: d[np.array([0])],
        lambda d: d.__setitem__(0, np.ones(1)),
        lambda d: cupy.where(np.ones(2, bool), d, d),
        lambda d: cupy.zeros(2, device="gpu"),
        lambda d: d.max(initial=0.0),
        lambda d: list(d[0]),
        lambda d: len(d[0]),
        lambda d: hash(d),
    ],
)
def test_the_standin_refuses_what_belongs_to_numpy(use):
    with pytest.raises(TypeError):
        use(cupy.asarray(np.ones(2)))


WAITING = [
    "float(x[0])", "bool(x[0])", "int(x[0])", "1 if x.sum() else 0", "x.sum() and x", "x.sum().item()",
    "x.get()", "x[x > 0]", "[7, 8][x.argmax()]", "f'{x}'",
]  # fmt: skip


@together("expression", WAITING)
def test_the_standin_lets_no_forward_wait(expression):
    x = cupy.asarray(np.array([1.0, 3.0]))
    package = {"__name__": "npformer.planted"}
    exec(f"def planted_forward(x): return inside(x)\ndef inside(x): return {expression}", package)
    package["inside"](x)  # a wait elsewhere is allowed
    with pytest.raises(RuntimeError, match="makes the host wait for the device inside planted_forward"):
        package["planted_forward"](x)


def test_greedy_decoding_waits_once_a_token(monkeypatch):
    waits = []
    monkeypatch.setattr(cupy, "_wait", waits.append)
    arguments = to_device(CALLS["greedy_decode"]())
    tokens = call("greedy_decode", arguments).shape[-1]
    assert waits == ["a truth value"] * tokens  # has every row stopped?


def holders(arguments):
    """The arguments with arrays in them."""
    trees = {name: ends(name, value) for name, value in arguments.items()}
    return [name for name, tree in trees.items() if any(isinstance(x, np.ndarray) for _, x in tree)]


HOLDERS = {name: holders(CALLS[name]()) for name in CHECKED}
MIXED = [(name, holder) for name, them in HOLDERS.items() for holder in them if len(them) > 1]


@together(("name", "holder"), MIXED)
def test_arrays_of_both_libraries_in_one_call_are_refused(name, holder):
    arguments = CALLS[name]()
    with pytest.raises(TypeError) as caught:
        call(name, arguments | {holder: to_device(arguments[holder])})
    mixed = "(CuPy; expected one of NumPy|NumPy; expected one of CuPy)"
    assert re.match(rf"{name}: [\w.]+ is an array of {mixed} like [\w.]+ ", str(caught.value))
    assert holder in str(caught.value)


def test_a_mixed_tree_is_refused_with_the_path_in_it():
    assert len(MIXED) > 80
    params = npf.FFNParams(array(4, 8), array(8), cupy.asarray(array(8, 4)), array(4))
    with pytest.raises(TypeError) as caught:
        npf.ffn_forward(array(2, 4), params)
    assert str(caught.value) == (
        "ffn_forward: params.W_2 is an array of CuPy; expected one of NumPy like x "
        "(to_backend and to_numpy move arrays)"
    )
