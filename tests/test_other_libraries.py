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
    wrong = gradcheck(forward, lambda dy, c: (backward(dy, c)[0], 2 * backward(dy, c)[1]), *arrays)
    assert [row.verdict for row in wrong.rows] == ["pass", "fail"]


def tanh_of_torch(torch):
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

    return Tanh


PAGE = (Path(__file__).parents[1] / "notebooks/guide/gradient_tests.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["torch", "jax", "cupy", "numba", "array_api_strict"])
def test_the_two_lines_of_the_page(name):
    xp = pytest.importorskip(name, reason=f"{name} is not installed")
    (lines,) = (code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if f"{name}." in code)
    names = {name: xp, "np": np, "assert_gradients": assert_gradients, "x": x}
    names |= {"forward": lambda x: (x * x, x), "backward": lambda dy, x: dy * (x + x)}
    if name == "torch":
        names |= {"Layer": tanh_of_torch(xp), "x": xp.tensor(x)}
    if name == "jax":
        f = names["f"] = xp.custom_vjp(xp.numpy.tanh)
        f.defvjp(lambda x: (xp.numpy.tanh(x),) * 2, lambda y, dy: (dy * (1 - y * y),))
        names |= {"forward": lambda *args: xp.vjp(f, *args), "backward": lambda dy, vjp: vjp(dy)[0]}
    exec(lines, names)
    forward, right, last = names["forward"], names["backward"], names["x"]
    last = xp.numpy.asarray(last) if name == "jax" else last
    assert_gradients(forward, right, last)
    with pytest.raises(AssertionError, match="the right one times 2"):
        doubled = lambda dy, cache: 2 * (g[0] if isinstance(g := right(dy, cache), tuple) else g)  # noqa: E731
        assert_gradients(forward, doubled, last)
