"""Run gradcheck with torch, JAX, CuPy, Numba and array-api-strict, if these libraries are installed.

uv run --with jax --with array-api-strict --with numba pytest -n 0 tests/test_other_libraries.py
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npformer import assert_gradients, gradcheck
from npformer.arrays import dtype_kind, to_host

x = np.random.default_rng(0).standard_normal((3, 4))
w = np.random.default_rng(1).standard_normal(4)


def import_or_skip(name):
    """Import an array library with float64 enabled, or skip the test if the library is not installed."""
    library = pytest.importorskip(name, reason=f"{name} is not installed")
    if name == "jax.numpy":
        pytest.importorskip("jax").config.update("jax_enable_x64", True)
    return library


def make_pair(xp, types):
    """Make a pair for y = tanh(x) w with functions that every library has. Record array types in `types`."""

    def forward(x, w):
        types.update({type(x), type(w)})
        return xp.tanh(x) * w, (x, w)

    def backward(dy, cache):
        x, w = cache
        types.add(type(dy))
        return dy * (1 - xp.tanh(x) ** 2) * w, xp.sum(dy * xp.tanh(x), axis=0)

    return forward, backward


@pytest.mark.parametrize("name", ["torch", "jax.numpy", "array_api_strict"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_gradcheck_passes_arrays_in_their_library(name, dtype):
    xp = import_or_skip(name)
    types = set()
    forward, backward = make_pair(xp, types)
    arrays = [xp.asarray(a.astype(dtype)) for a in (x, w)]
    assert dtype_kind(arrays[0]) == "f"
    assert str(to_host(arrays[0]).dtype) == dtype
    assert gradcheck(forward, backward, *arrays)
    assert types == {type(arrays[0])}


@pytest.mark.parametrize("name", ["torch", "jax.numpy", "array_api_strict"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_gradcheck_wrong_gradient_of_library_fails(name, dtype):
    xp = import_or_skip(name)
    forward, backward = make_pair(xp, set())
    arrays = [xp.asarray(a.astype(dtype)) for a in (x, w)]

    def wrong_backward(dy, cache):
        dx, dw = backward(dy, cache)
        return dx, 2 * dw

    report = gradcheck(forward, wrong_backward, *arrays)
    assert [row.verdict for row in report.rows] == ["pass", "fail"]


# The example for each library in the guide

PAGE = (Path(__file__).parents[1] / "notebooks/guide/gradient_tests.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def find_example(name):
    """Return the only example of the page that uses a library."""
    (example,) = [text for text in EXAMPLES if f"{name}." in text]
    return example


def make_torch_names(torch: Any):
    """Return the names that the example for torch expects: a layer and its argument."""

    class Tanh(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.tanh(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, dy):
            (y,) = ctx.saved_tensors
            return dy * (1 - y * y)

    return {"Layer": Tanh, "x": torch.tensor(x)}


def make_jax_names(jax):
    """Return the names that the guide's example for JAX uses: a function with its derivative, and a pair."""
    f = jax.custom_vjp(jax.numpy.tanh)

    def f_forward(x):
        y = jax.numpy.tanh(x)
        return y, y

    f.defvjp(f_forward, lambda y, dy: (dy * (1 - y * y),))
    return {
        "f": f,
        "forward": lambda *args: jax.vjp(f, *args),
        "backward": lambda dy, vjp: vjp(dy)[0],
    }


@pytest.mark.parametrize("name", ["torch", "jax", "cupy", "numba", "array_api_strict"])
def test_page_example_passes_and_detects_a_factor(name):
    library = pytest.importorskip(name, reason=f"{name} is not installed")
    names = {name: library, "np": np, "assert_gradients": assert_gradients, "x": x}
    names |= {"forward": lambda x: (x * x, x), "backward": lambda dy, x: dy * (x + x)}
    if name == "torch":
        names |= make_torch_names(library)
    if name == "jax":
        names |= make_jax_names(library)
    exec(find_example(name), names)

    forward, backward, argument = names["forward"], names["backward"], names["x"]
    if name == "jax":
        argument = library.numpy.asarray(argument)
    assert_gradients(forward, backward, argument)

    def doubled_backward(dy, cache):
        gradient = backward(dy, cache)
        if isinstance(gradient, tuple):
            gradient = gradient[0]
        return 2 * gradient

    with pytest.raises(AssertionError, match="2 times the correct gradient"):
        assert_gradients(forward, doubled_backward, argument)
