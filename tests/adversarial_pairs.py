"""Pairs of forward and backward that are hard to judge, each with what must come out.

The labels are mathematics, written down before the checker that they test:

    right         the backward is the derivative of the forward
    wrong         it is not, or one call spoils what another one needs
    kink          the slope jumps there, and the backward answers with a number between the two slopes
    cannot tell   there is no slope, or float64 keeps too few digits to see it
    refused       the question has no meaning here, and an exception says so by name
"""

import copy
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from npformer.layer_norm import LayerNormParams, layer_norm_backward, layer_norm_forward


class AdversarialPair(NamedTuple):
    must: str  # "right", "wrong", "kink", "cannot tell" or "refused"
    forward: Callable[..., Any]
    backward: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


PAIRS: dict[str, AdversarialPair] = {}

normal = np.random.default_rng(1912).standard_normal
X = np.array([0.7, -1.3, 2.1, 0.4])
POSITIVE = np.array([0.7, 1.3, 2.1, 0.4])


def pair(name: str, must: str, forward: Any, backward: Any, *args: Any, **kwargs: Any) -> None:
    assert name not in PAIRS
    PAIRS[name] = AdversarialPair(must, forward, backward, args, kwargs)


def fresh(pair: AdversarialPair) -> tuple[Any, Any]:
    """Its forward and backward with their state as it was at first: some pairs remember their calls."""
    forward, backward = copy.deepcopy((pair.forward, pair.backward))
    return forward, backward


def elementwise(f: Any, slope: Any) -> tuple[Any, Any]:
    """The pair of a function of each entry and its derivative."""
    return lambda x: (f(x), x), lambda dy, x: dy * slope(x)


# Scales: of x, of the function, of both


SQUARE = elementwise(lambda x: x * x, lambda x: 2 * x)
HALF_SQUARE = elementwise(lambda x: x * x, lambda x: x)
for scale in (1e-150, 1e-100, 1e-30, 1e-15, 1e-9, 1e-6, 1e-3, 1e3, 1e9, 1e30, 1e100, 1e150):
    pair(f"x² at x of {scale:g}", "right", *SQUARE, scale * X)
    pair(f"x² at x of {scale:g}, the factor 2 missing", "wrong", *HALF_SQUARE, scale * X)
for scale in (1e-30, 1e-12, 1e12, 1e150):
    sine = elementwise(lambda x, s=scale: s * np.sin(x), lambda x, s=scale: s * np.cos(x))
    off = elementwise(lambda x, s=scale: s * np.sin(x), lambda x, s=scale: s * np.cos(x) * (1 + 1e-6))
    pair(f"{scale:g} · sin x", "right", *sine, X)
    pair(f"{scale:g} · sin x, a millionth too much", "wrong", *off, X)
for scale in (1e-30, 1e-9, 1e9, 1e30):
    narrow = elementwise(lambda x, s=scale: np.sin(x / s), lambda x, s=scale: np.cos(x / s) / s)
    flipped = elementwise(lambda x, s=scale: np.sin(x / s), lambda x, s=scale: -np.cos(x / s) / s)
    pair(f"sin(x / {scale:g}) at x of {scale:g}", "right", *narrow, scale * X)
    pair(f"sin(x / {scale:g}) at x of {scale:g}, the sign lost", "wrong", *flipped, scale * X)
for scale in (1e-30, 1e-12, 1e-9):
    pair(f"sin(x + 1) at x of {scale:g}", "right", *elementwise(
        lambda x: np.sin(x + 1), lambda x: np.cos(x + 1)), scale * X)  # fmt: skip
    pair(f"sin(x + 1) at x of {scale:g}, a thousandth too much", "wrong", *elementwise(
        lambda x: np.sin(x + 1), lambda x: 1.001 * np.cos(x + 1)), scale * X)  # fmt: skip
pair("x² at exactly 0", "right", *SQUARE, np.zeros(3))
pair("x² at 1e-200: it is 0 for float64", "cannot tell", *SQUARE, np.full(3, 1e-200))
pair("x² at 1e-200, the factor 2 missing", "cannot tell", *HALF_SQUARE, np.full(3, 1e-200))
pair("1 + 1e-20 x²: the second term is swallowed", "cannot tell", *elementwise(
    lambda x: 1 + 1e-20 * x * x, lambda x: 2e-20 * x), X)  # fmt: skip
pair("1 + 1e-20 x², the factor 2 missing", "cannot tell", *elementwise(
    lambda x: 1 + 1e-20 * x * x, lambda x: 1e-20 * x), X)  # fmt: skip


def swallowed(x: Any) -> Any:
    return np.stack([1e-12 * x, 1e15 + 1e-11 * x]), None


pair("half of the gradient flows through a swallowed term", "cannot tell",
     swallowed, lambda dy, _: 1e-12 * dy[0] + 1e-11 * dy[1], X)  # fmt: skip
pair("log at 1e-6", "right", *elementwise(np.log, lambda x: 1 / x), np.array([1e-6, 1e-5, 1.0]))
pair("log at 1e-300", "right", *elementwise(np.log, lambda x: 1 / x), np.array([1e-300]))
pair("log at 1e-6, off by a ten-thousandth there", "wrong", *elementwise(
    np.log, lambda x: (1 + 1e-4 * (x < 1e-3)) / x), np.array([1e-6, 2e-6, 1.0]))  # fmt: skip
pair("√x at 1e-12", "right", *elementwise(np.sqrt, lambda x: 0.5 / np.sqrt(x)), np.array([1e-12, 1.0]))
pair(
    "1/x at 1e-9 beside 1", "right", *elementwise(lambda x: 1 / x, lambda x: -1 / x**2), np.array([1e-9, 1.0])
)
pair("1/x at 1e-9, its square forgotten", "wrong", *elementwise(
    lambda x: 1 / x, lambda x: -1 / x), np.array([1e-9, 1.0]))  # fmt: skip
pair("sin 1000 x", "right", *elementwise(lambda x: np.sin(1000 * x), lambda x: 1000 * np.cos(1000 * x)), X)
pair("sin 1e6 x", "right", *elementwise(lambda x: np.sin(1e6 * x), lambda x: 1e6 * np.cos(1e6 * x)), X)
pair("sin 1e6 x, 1 % too much", "wrong", *elementwise(
    lambda x: np.sin(1e6 * x), lambda x: 1.01e6 * np.cos(1e6 * x)), X)  # fmt: skip
pair("exp at 700", "right", *elementwise(np.exp, np.exp), np.array([700.0, -700.0]))
pair("x + 1e8: eight digits are gone", "right", *elementwise(lambda x: x + 1e8, lambda x: 1 + 0 * x), X)
pair("x + 1e8, 1 % too much", "wrong", *elementwise(lambda x: x + 1e8, lambda x: 1.01 + 0 * x), X)
pair(
    "(x² + 1e4) - 1e4: noise inside", "right", *elementwise(lambda x: (x * x + 1e4) - 1e4, lambda x: 2 * x), X
)
pair("√(x² + 1e-12): round at 1e-6", "right", *elementwise(
    lambda x: np.sqrt(x * x + 1e-12), lambda x: x / np.sqrt(x * x + 1e-12)),
    np.array([0.0, 1e-6, 1.0]))  # fmt: skip
pair("tanh(x / 1e-9) at 0", "right", *elementwise(
    lambda x: np.tanh(x / 1e-9), lambda x: 1e9 / np.cosh(np.minimum(abs(x / 1e-9), 50)) ** 2),
    np.array([0.0, 1e-9]))  # fmt: skip
pair("a bias of zeros beside weights of 1e-12", "right",
     lambda x, b: (x * x + b * 1e-12, x), lambda dy, x: (2 * x * dy, 1e-12 * dy),
     1e-6 * X, np.zeros(4))  # fmt: skip
pair("a sigmoid of a zero bias beside x of 1e100", "right",
     lambda x, b: (np.stack([x * x, 1 / (1 + np.exp(-b))]), (x, b)),
     lambda dy, c: (2 * c[0] * dy[0], dy[1] * 0.25), 1e-100 * X, np.zeros(4))  # fmt: skip
pair("leaves of 1e-20 and 1e20", "right", lambda a, b: (a * b, (a, b)),
     lambda dy, c: (dy * c[1], dy * c[0]), 1e-20 * X, 1e20 * X)  # fmt: skip
pair("entries of 1e8 and 1e-8 in one leaf", "right", *SQUARE, np.array([1e8, 1e-8]))
pair("entries of 1e8 and 1e-8, the smaller one's factor 2 missing", "cannot tell", *elementwise(
    lambda x: x * x, lambda x: np.where(x < 1, x, 2 * x)), np.array([1e8, 1e-8]))  # fmt: skip
pair("slopes of 1e10 and 1e-10, the smaller one doubled", "cannot tell", *elementwise(
    lambda x: x * np.array([1e10, 1e-10]), lambda x: np.array([1e10, 2e-10])), np.ones(2))  # fmt: skip


def norm_pair(factor: float) -> tuple[Any, Any]:
    def backward(dy: Any, cache: Any) -> Any:
        dx, grads = layer_norm_backward(dy, cache)
        return dx * factor, grads

    return layer_norm_forward, backward


NORM_PARAMS = LayerNormParams(1 + normal(6) / 4, normal(6))
for scale in (1e-12, 1e-9, 1e-6, 1e-3, 1e3, 1e9):
    pair(f"layer norm at x of {scale:g}", "right", *norm_pair(1), scale * normal((2, 6)), NORM_PARAMS)
    pair(f"layer norm at x of {scale:g}, off by a ten-thousandth", "wrong",
         *norm_pair(1 + 1e-4), scale * normal((2, 6)), NORM_PARAMS)  # fmt: skip
pair("layer norm of x + 1e6", "right", *norm_pair(1), 1e6 + normal((2, 6)), NORM_PARAMS)


# Gradients that are bent only where they are large


def bent(bend: Any) -> tuple[Any, Any]:
    return SQUARE[0], lambda dy, x: bend(2 * x * dy)


pair("clipped at 5, far below it", "wrong", *bent(lambda g: np.clip(g, -5, 5)), 0.1 * X)
pair("clipped at 5, above it", "wrong", *bent(lambda g: np.clip(g, -5, 5)), 100 * X)
pair("clipped at 5 at x of 1e-9", "wrong", *bent(lambda g: np.clip(g, -5, 5)), 1e-9 * X)
pair("clipped from below only", "wrong", *bent(lambda g: np.maximum(g, -50)), 0.1 * X)
pair("clipped by its norm", "wrong", *bent(lambda g: g * min(1, 100 / np.linalg.norm(g))), X)
pair("saturating: tanh of the gradient", "wrong", *bent(np.tanh), 1e-6 * X)
pair("its sign alone", "wrong", *bent(np.sign), X)
pair("normalised to length 1", "wrong", *bent(lambda g: g / np.linalg.norm(g)), X)
pair("an offset of 1e-3", "wrong", *bent(lambda g: g + 1e-3), X)
pair("dy taken for ones", "wrong", SQUARE[0], lambda dy, x: 2 * x, X)


# Calls that spoil what others need


def destroys_its_cache(dy: Any, cache: Any) -> Any:
    cache *= 2
    cache *= dy
    return cache


def empties_its_cache(dy: Any, cache: Any) -> Any:
    return 2 * cache.pop("x") * dy


def scribbles_in_its_cache(dy: Any, cache: Any) -> Any:
    gradient = 2 * cache["x"] * dy
    cache["x"][:] = 0
    return gradient


def writes_into_dy(dy: Any, x: Any) -> Any:
    dy *= 2 * x
    return dy


def zeroes_dy(dy: Any, x: Any) -> Any:
    gradient = 2 * x * dy
    dy[:] = 0
    return gradient


pair("backward destroys its cache", "wrong", lambda x: (x * x, x.copy()), destroys_its_cache, X)
pair("backward pops its cache", "wrong", lambda x: (x * x, {"x": x}), empties_its_cache, X)
pair("backward zeroes its cache when it is done", "wrong",
     lambda x: (x * x, {"x": x.copy()}), scribbles_in_its_cache, X)  # fmt: skip
pair("backward writes into an argument through its cache", "wrong",
     lambda x: (x * x, {"x": x}), scribbles_in_its_cache, X)  # fmt: skip
pair("backward writes its result into dy", "wrong", SQUARE[0], writes_into_dy, X)
pair("backward zeroes dy", "wrong", SQUARE[0], zeroes_dy, X)
pair("backward returns dy itself", "right", lambda x: (x * 1.0, None), lambda dy, _: dy, X)
pair("backward returns a view of dy", "right", lambda x: (x[::-1], None), lambda dy, _: dy[::-1], X)
pair("backward returns an array of its cache", "right",
     lambda x, w: (float((x * w).sum()), (x.copy(), w.copy())), lambda dy, c: (c[1] * dy, c[0] * dy),
     X, POSITIVE)  # fmt: skip


class Buffers:
    """State that outlives a call, in the ways people keep it."""

    def __init__(self) -> None:
        self.gradient = np.empty(4)
        self.cache = np.empty(4)
        self.output = np.empty(4)
        self.last: Any = None
        self.calls = 0

    def own_gradient(self, dy: Any, x: Any) -> Any:
        np.multiply(2 * x, dy, out=self.gradient)
        return self.gradient

    def accumulates(self, dy: Any, x: Any) -> Any:
        if self.calls == 0:
            self.gradient[:] = 0
        self.calls += 1
        self.gradient += 2 * x * dy
        return self.gradient.copy()

    def shared_cache(self, x: Any) -> Any:
        self.cache[:] = x
        return x * x, self.cache

    def remembers(self, x: Any) -> Any:
        self.last = x
        return x * x, None

    def recalls(self, dy: Any, _: Any) -> Any:
        return 2 * self.last * dy

    def own_output(self, x: Any) -> Any:
        np.multiply(x, x, out=self.output)
        return self.output, x.copy()

    def counts(self, x: Any) -> Any:
        self.calls += 1
        return x * x * (1 + 1e-3 * self.calls), x

    def right_once(self, dy: Any, x: Any) -> Any:
        self.calls += 1
        return 2 * x * dy * (1 if self.calls == 1 else 0.5)

    def counts_in_silence(self, x: Any) -> Any:
        self.calls += 1
        return x * x, x


def own_x(dy: Any, x: Any) -> Any:
    return 2 * x * dy


pair("backward returns a buffer that its next call overwrites", "wrong", SQUARE[0], Buffers().own_gradient, X)
pair("backward adds to what it returned before", "wrong", SQUARE[0], Buffers().accumulates, X)
pair("forward's cache is a buffer that its next call overwrites", "wrong", Buffers().shared_cache, own_x, X)
keeper = Buffers()
pair("backward reads what the last forward left behind", "wrong", keeper.remembers, keeper.recalls, X)
pair("forward returns a buffer that its next call overwrites", "wrong", Buffers().own_output, own_x, X)
pair("forward's output depends on how often it was called", "refused", Buffers().counts, own_x, X)
pair("forward counts its calls and no more", "right", Buffers().counts_in_silence, own_x, X)
pair("backward is right only the first time", "wrong", SQUARE[0], Buffers().right_once, X)


def doubles_its_argument(x: Any) -> Any:
    cache = x.copy()
    x *= x
    return x, cache


pair("forward writes into its argument", "wrong", doubles_its_argument, own_x, X)
pair("forward returns its argument", "right", lambda x: (x, None), lambda dy, _: dy.copy(), X)


# Kinks, jumps, noise


RELU = elementwise(lambda x: np.maximum(x, 0), lambda x: (x > 0) * 1.0)
pair("relu at 0", "kink", *RELU, np.array([0.0, 1.0]))
pair("relu at 0, answered with 1", "kink", *elementwise(
    lambda x: np.maximum(x, 0), lambda x: (x >= 0) * 1.0), np.array([0.0, 1.0]))  # fmt: skip
pair("relu at 0, answered with ½", "kink", *elementwise(
    lambda x: np.maximum(x, 0), lambda x: np.heaviside(x, 0.5)), np.array([0.0, 1.0]))  # fmt: skip
pair("relu at 0, answered with 2", "wrong", *elementwise(
    lambda x: np.maximum(x, 0), lambda x: np.heaviside(x, 2.0)), np.array([0.0, 1.0]))  # fmt: skip
pair("relu at 0, answered with -0.5", "wrong", *elementwise(
    lambda x: np.maximum(x, 0), lambda x: np.heaviside(x, -0.5)), np.array([0.0, 1.0]))  # fmt: skip
for distance in (1e-3, 1e-6, 1e-9, 1e-12, 1e-300):
    pair(f"relu {distance:g} from 0", "right", *RELU, np.array([distance, -distance, 1.0]))
    pair(f"relu {distance:g} from 0, on the wrong side", "wrong", *elementwise(
        lambda x: np.maximum(x, 0), lambda x: (x > -2e-3) * 1.0),
        np.array([distance, -distance, 1.0]))  # fmt: skip
pair("|x| at 0", "kink", *elementwise(abs, np.sign), np.array([0.0, 2.0]))
pair("max(x, 1000) at 1000", "kink", *elementwise(
    lambda x: np.maximum(x, 1000), lambda x: (x > 1000) * 1.0), np.array([1000.0, 2000.0]))  # fmt: skip
pair("the larger of two equals", "kink",
     lambda x: (x.max(axis=-1), x), lambda dy, x: dy[:, None] * (np.arange(2) == x.argmax(axis=-1)[:, None]),
     np.array([[1.0, 1.0], [2.0, 3.0]]))  # fmt: skip
pair("median of an even number of equals", "kink", lambda x: (abs(x[0] - x[1]), None),
     lambda dy, _: np.zeros(2), np.array([3.0, 3.0]))  # fmt: skip
pair("relu(x) and relu(-x) at 0 with opposite weights", "kink",
     lambda x: (np.stack([np.maximum(x, 0), np.maximum(-x, 0)]), x),
     lambda dy, x: dy[0] * (x > 0) - dy[1] * (x < 0), np.array([0.0, 1.0]))  # fmt: skip
pair("relu(x) - relu(-x) at 0: it is x, and 0 is no slope of it", "wrong",
     lambda x: (np.maximum(x, 0) - np.maximum(-x, 0), x),
     lambda dy, x: dy * ((x > 0) * 1.0 + (x < 0)), np.array([0.0, 1.0]))  # fmt: skip
pair("a wrong entry beside a kink", "wrong", *elementwise(
    lambda x: np.maximum(x, 0), lambda x: 2.0 * (x > 0)), np.array([0.0, 1.0]))  # fmt: skip
pair(
    "x |x| at 0: smooth once",
    "right",
    *elementwise(lambda x: x * abs(x), lambda x: 2 * abs(x)),
    np.array([0.0, 1.0]),
)
pair("relu² at 0: smooth once", "right", *elementwise(
    lambda x: np.maximum(x, 0) ** 2, lambda x: 2 * np.maximum(x, 0)), np.array([0.0, 1.0]))  # fmt: skip
pair("the cube root at 0: upright", "cannot tell", *elementwise(np.cbrt, lambda x: 0 * x), np.array([0.0]))
pair("√|x| at 0: a cusp", "cannot tell", *elementwise(
    lambda x: np.sqrt(abs(x)), lambda x: 0 * x), np.array([0.0]))  # fmt: skip
pair("√x at 0: nothing on its left", "cannot tell", *elementwise(np.sqrt, lambda x: 0 * x), np.array([0.0]))
pair("x log x at 0", "cannot tell", *elementwise(
    lambda x: x * np.log(np.where(x == 0, 1, x)), lambda x: 0 * x), np.array([0.0]))  # fmt: skip
pair(
    "the sign at 0: the value jumps",
    "cannot tell",
    *elementwise(np.sign, lambda x: 0 * x),
    np.array([0.0, 1.0]),
)
pair(
    "floor at 1: the value jumps",
    "cannot tell",
    *elementwise(np.floor, lambda x: 0 * x),
    np.array([1.0, 1.5]),
)
pair("floor between two jumps", "right", *elementwise(np.floor, lambda x: 0 * x), np.array([1.5, -0.3]))
STAIR = np.array([0.7004, -1.3004, 2.1004, 0.4004])
pair(
    "rounded to 1e-3: a stair, from afar a slope",
    "cannot tell",
    *elementwise(lambda x: np.round(x, 3), lambda x: 0 * x),
    STAIR,
)
pair(
    "rounded to 1e-3, answered with 1",
    "wrong",
    *elementwise(lambda x: np.round(x, 3), lambda x: 1 + 0 * x),
    STAIR,
)
pair("noise of 1e-5 that repeats", "cannot tell", *elementwise(
    lambda x: x * x + 1e-5 * np.sin(1e13 * x), lambda x: 2 * x), X)  # fmt: skip
pair("float32 inside", "cannot tell", *elementwise(
    lambda x: (x.astype(np.float32) ** 2).astype(float), lambda x: 2 * x), X)  # fmt: skip
pair("a jump in one leaf, a wrong gradient in the other", "wrong",
     lambda x, w: (100 * np.floor(x) + w, None), lambda dy, _: (0 * dy, dy * (1 + 1e-6)),
     np.array([1.0]), np.array([2.0]))  # fmt: skip
pair("sin(1/x) at 1e-3", "right", *elementwise(
    lambda x: np.sin(1 / x), lambda x: -np.cos(1 / x) / x**2), np.array([1e-3]))  # fmt: skip


# Gradients of zero


pair("a constant", "right", lambda x: (np.full(3, 7.0), x), lambda dy, x: 0 * x, X)
pair("a constant, answered with 1e-6", "wrong", lambda x: (np.full(3, 7.0), x), lambda dy, x: 1e-6 + 0 * x, X)
pair("0 · x, answered with 1e-6", "wrong", lambda x: (0 * x, x), lambda dy, x: 1e-6 + 0 * x, X)
pair("an output without entries", "right", lambda x: (x[:0], x), lambda dy, x: 0 * x, X)
pair("a leaf without entries", "right", lambda x, y: (x * x + y.sum(), (x, y)),
     lambda dy, c: (2 * c[0] * dy, dy.sum() + c[1]), X, np.ones((0, 2)))  # fmt: skip


def shifted_softmax(s: Any, b: Any) -> Any:
    e = np.exp(s + b - (s + b).max(axis=-1, keepdims=True))
    y = e / e.sum(axis=-1, keepdims=True)
    return y, y


def shifted_softmax_backward(dy: Any, y: Any) -> Any:
    ds = y * (dy - (dy * y).sum(axis=-1, keepdims=True))
    return ds, ds.sum()


pair("a bias that softmax ignores", "right", shifted_softmax,
     lambda dy, y: (shifted_softmax_backward(dy, y)[0], np.array(shifted_softmax_backward(dy, y)[1])),
     normal((3, 4)), np.array(0.3))  # fmt: skip
pair("a bias that softmax ignores, answered with 1e-6", "wrong", shifted_softmax,
     lambda dy, y: (shifted_softmax_backward(dy, y)[0], np.array(1e-6)),
     normal((3, 4)), np.array(0.3))  # fmt: skip
pair("the sum of a softmax: exactly 1", "right", lambda x: (shifted_softmax(x, 0.0)[0].sum(), x),
     lambda dy, x: 0 * x, 3 * normal(40))  # fmt: skip
pair("the sum of a softmax, answered with 1e-6", "wrong", lambda x: (shifted_softmax(x, 0.0)[0].sum(), x),
     lambda dy, x: 1e-6 + 0 * x, 3 * normal(40))  # fmt: skip
pair("a dead relu", "right", *RELU, np.array([-1.0, -2.0, 0.5]))
pair("x - x", "right", lambda x: (x - x, x), lambda dy, x: 0 * dy, X)


# Where the arrays stand


def tree_forward(params: Any) -> Any:
    return params["W"] * params["W"] + params["b"][0], params


def tree_backward(dy: Any, params: Any) -> Any:
    return {"W": 2 * params["W"] * dy, "b": [dy]}


def half_tree_backward(dy: Any, params: Any) -> Any:
    return {"W": params["W"] * dy, "b": [dy]}


TREE = {"W": X, "b": [np.ones(4)]}
pair("parameters in a dict", "right", tree_forward, tree_backward, TREE)
pair("parameters in a dict, the factor 2 missing", "wrong", tree_forward, half_tree_backward, TREE)
pair("parameters in a dict, a key missing", "wrong", tree_forward,
     lambda dy, p: {"W": 2 * p["W"] * dy}, TREE)  # fmt: skip
pair("parameters in a list", "right", lambda p: (p[0] * p[1], p), lambda dy, p: [dy * p[1], dy * p[0]],
     [X, POSITIVE])  # fmt: skip
pair("parameters in a list, the second gradient wrong", "wrong", lambda p: (p[0] * p[1], p),
     lambda dy, p: [dy * p[1], 2 * dy * p[0]], [X, POSITIVE])  # fmt: skip
pair("a list beside an array", "right", lambda x, p: (x * p[0] + p[1], (x, p)),
     lambda dy, c: (dy * c[1][0], [dy * c[0], dy]), X, [POSITIVE, np.ones(4)])  # fmt: skip
pair("a list beside an array, its gradient wrong", "wrong", lambda x, p: (x * p[0] + p[1], (x, p)),
     lambda dy, c: (dy * c[1][0], [dy * c[0], 0 * dy]), X, [POSITIVE, np.ones(4)])  # fmt: skip
pair("a floating array given by keyword", "refused", lambda x, *, w: (x * w, (x, w)),
     lambda dy, c: dy * c[1], X, w=POSITIVE)  # fmt: skip
pair("a floating array in a dict given by keyword", "refused", lambda x, *, w: (x * w["w"], (x, w)),
     lambda dy, c: dy * c[1]["w"], X, w={"w": POSITIVE})  # fmt: skip
pair("integers and masks given by keyword", "right",
     lambda x, *, ids, mask: (x[ids] * mask, (x, ids, mask)),
     lambda dy, c: np.bincount(c[1], dy * c[2], len(c[0])), X,
     ids=np.array([0, 2, 2]), mask=np.array([True, False, True]))  # fmt: skip


class Holder:
    def __init__(self, w: Any) -> None:
        self.w = w


pair("a floating array inside an object", "refused", lambda x, o: (x * o.w, (x, o)),
     lambda dy, c: dy * c[1].w, X, Holder(POSITIVE))  # fmt: skip
pair("an object without arrays", "right", lambda x, o: (x * o.w, o), lambda dy, o: dy * o.w, X, Holder(3.0))
pair("complex numbers", "refused", lambda z: (abs(z) ** 2, z), lambda dy, z: 2 * dy * z, X + 1j)
pair("complex numbers in a tuple", "refused", lambda x, p: (x * abs(p[0]), (x, p)),
     lambda dy, c: (dy * abs(c[1][0]),), X, (X + 1j,))  # fmt: skip
pair("a complex output", "refused", lambda x: (x * 1j, x), lambda dy, x: dy, X)
pair("float32", "right", *SQUARE, X.astype(np.float32))
pair("integers alone", "refused", *SQUARE, np.arange(3))
pair("a masked array", "refused", *SQUARE, np.ma.masked_array(X, [True, False, False, False]))
pair("NaN among the arguments", "refused", *SQUARE, np.array([1.0, math.nan]))
pair(
    "an output of inf",
    "refused",
    *elementwise(lambda x: np.where(x > 0, x, math.inf), lambda x: 1 + 0 * x),
    X,
)
pair("integers beside floats", "right", lambda x, n: (x * n, n), lambda dy, n: dy * n, X, np.arange(4))
pair(
    "one array given twice", "right", lambda a, b: (a * b, (a, b)), lambda dy, c: (dy * c[1], dy * c[0]), X, X
)
pair("one array given twice, one gradient for both", "wrong", lambda a, b: (a * b, (a, b)),
     lambda dy, c: 2 * dy * c[1], X, X)  # fmt: skip
pair("a gradient that is NaN in one entry", "wrong", *elementwise(
    lambda x: x * x, lambda x: np.where(x == X[1], math.nan, 2 * x)), X)  # fmt: skip
pair("a gradient that is infinite at a kink", "wrong", *elementwise(
    abs, lambda x: np.where(x == 0, math.inf, np.sign(x))), np.array([0.0, 1.0]))  # fmt: skip
pair("a gradient of another shape", "wrong", SQUARE[0], lambda dy, x: (2 * x * dy)[:, None], X)
pair("a gradient in float32", "wrong", SQUARE[0], lambda dy, x: (2 * x * dy).astype(np.float32), X)
pair("a gradient as a list of numbers", "wrong", SQUARE[0], lambda dy, x: (2 * x * dy).tolist(), X)
pair("no gradient", "wrong", SQUARE[0], lambda dy, x: None, X)
pair("transposed and strided", "right", *SQUARE, normal((4, 6)).T[::2, ::-1])
pair("x of shape ()", "right", *SQUARE, np.array(3.0))
pair("entries exchanged", "wrong", SQUARE[0], lambda dy, x: (2 * x * dy)[::-1], X)
pair("one entry of 400 off by a ten-millionth of the largest", "wrong", SQUARE[0],
     lambda dy, x: 2 * x * dy + 1e-6 * (np.arange(400) == 123), 1 + abs(normal(400)))  # fmt: skip
