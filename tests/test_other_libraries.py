"""gradcheck with arrays of torch, JAX, array-api-strict and Numba, where they are installed.

uv run --with jax --with array-api-strict --with numba pytest -n 0 tests/test_other_libraries.py
"""

import re
from pathlib import Path

import numpy as np
import pytest

from npformer import assert_gradients, gradcheck
from npformer.arrays import kind_of_number, to_host

x = np.random.default_rng(0).standard_normal((3, 4))
w = np.random.default_rng(1).standard_normal(4)


def refused(report):
    return {row.path for row in report.rows if row.verdict == "fail"}


def pair(xp, seen):
    """y = tanh(x) w, with functions that every library has under these names."""

    def forward(x, w):
        seen.update({type(x), type(w)})
        return xp.tanh(x) * w, (x, w)

    def backward(dy, cache):
        x, w = cache
        seen.add(type(dy))
        return dy * (1 - xp.tanh(x) ** 2) * w, xp.sum(dy * xp.tanh(x), axis=0)

    return forward, backward


@pytest.mark.parametrize("name", ["torch", "jax.numpy", "array_api_strict"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_arrays_go_in_and_come_back_in_their_own_kind(name, dtype):
    xp = pytest.importorskip(name, reason=f"{name} is not installed")
    if name.startswith("jax"):
        pytest.importorskip("jax").config.update("jax_enable_x64", True)
    seen = set()
    forward, backward = pair(xp, seen)
    arrays = [xp.asarray(a.astype(dtype)) for a in (x, w)]
    assert kind_of_number(arrays[0]) == "f" and str(to_host(arrays[0]).dtype) == dtype
    assert gradcheck(forward, backward, *arrays)
    assert seen == {type(arrays[0])}
    assert refused(
        gradcheck(forward, lambda dy, c: (backward(dy, c)[0], 2 * backward(dy, c)[1]), *arrays)
    ) == {"w"}


def tanh_of_torch(torch):
    class Tanh(torch.autograd.Function):
        slope = 1.0

        @staticmethod
        def forward(ctx, x):
            y = torch.tanh(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, dy):
            (y,) = ctx.saved_tensors
            return dy * (Tanh.slope - y * y)

    return Tanh


def test_a_function_of_torch_with_a_backward_of_its_own():
    torch = pytest.importorskip("torch", reason="torch is not installed")

    Tanh = tanh_of_torch(torch)

    def forward(x):
        y = Tanh.apply(x)
        return y, (x, y)

    def backward(dy, cache):
        return torch.autograd.grad(cache[1], cache[0], dy, retain_graph=True)

    tensor = torch.tensor(x, requires_grad=True)
    assert gradcheck(forward, backward, tensor)
    Tanh.slope = 2.0
    assert refused(gradcheck(forward, backward, tensor)) == {"x"}


def test_a_custom_vjp_of_jax():
    jax = pytest.importorskip("jax", reason="jax is not installed")
    jax.config.update("jax_enable_x64", True)

    def tanh(slope):
        f = jax.custom_vjp(jax.numpy.tanh)
        f.defvjp(lambda x: (jax.numpy.tanh(x),) * 2, lambda y, dy: (dy * (slope - y * y),))
        return lambda *args: jax.vjp(f, *args)

    assert gradcheck(tanh(1.0), lambda dy, vjp: vjp(dy), jax.numpy.asarray(x))
    assert refused(gradcheck(tanh(2.0), lambda dy, vjp: vjp(dy), jax.numpy.asarray(x))) == {"args[0]"}


def test_functions_compiled_by_numba():
    numba = pytest.importorskip("numba", reason="numba is not installed")
    forward = numba.njit(lambda x: (np.tanh(x), x))
    assert gradcheck(forward, numba.njit(lambda dy, x: dy * (1 - np.tanh(x) ** 2)), x)
    assert not gradcheck(forward, numba.njit(lambda dy, x: dy * (1 - np.tanh(x))), x)


PAGE = (Path(__file__).parents[1] / "notebooks/guide/gradient_tests.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["torch", "jax", "cupy", "numba", "array_api_strict"])
def test_the_two_lines_of_the_page(name):
    xp = pytest.importorskip(name, reason=f"{name} is not installed")
    (lines,) = (code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if f"{name}." in code)
    names = {name: xp, "np": np, "assert_gradients": assert_gradients, "x": x}
    names |= dict(zip(("forward", "backward"), pair(np, set()), strict=True))
    if name == "torch":
        names["Layer"], names["x"] = tanh_of_torch(xp), xp.tensor(x)
    elif name == "jax":
        names["f"] = xp.custom_vjp(xp.numpy.tanh)
        names["f"].defvjp(lambda x: (xp.numpy.tanh(x),) * 2, lambda y, dy: (dy * (1 - y * y),))
    else:
        names["forward"] = lambda x: (x * x, x)
        names["backward"] = lambda dy, x: dy * (x + x)
    exec(lines, names)
    if "assert_gradients" not in lines:
        assert_gradients(names["forward"], names["backward"], names["x"])
    with pytest.raises(AssertionError, match="the right one times 2"):
        right = names["backward"] if name != "jax" else lambda dy, vjp: vjp(dy)[0]
        forward = names["forward"] if name != "jax" else lambda *args: xp.vjp(names["f"], *args)
        doubled = lambda dy, cache: 2 * (g[0] if isinstance(g := right(dy, cache), tuple) else g)  # noqa: E731
        assert_gradients(forward, doubled, names["x"] if name != "jax" else xp.numpy.asarray(x))
