"""Pairs of forward and backward with what must come out: data/hard_pairs.txt and data/said_pairs.txt.

Here stand those whose calls spoil what another one needs.
"""

import copy
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from planted_bugs import softmax

from npformer.layer_norm import LayerNormParams, layer_norm_backward, layer_norm_forward

# what a pair is by mathematics, and what must be said of it
VERDICT = {"right": "pass", "wrong": "fail", "kink": "kink", "cannot tell": "unsure", "refused": "refused"}


class AdversarialPair(NamedTuple):
    must: str  # a key of VERDICT
    forward: Callable[..., Any]
    backward: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]  # for forward, and settings of the check
    note: str = ""  # a part of what is said


normal = np.random.default_rng(1912).standard_normal
X, POSITIVE = np.array([0.7, -1.3, 2.1, 0.4]), np.array([0.7, 1.3, 2.1, 0.4])


def softmax_back(dy: Any, s: Any) -> Any:
    y = softmax(s)
    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))


def norm_back(dy: Any, x: Any, p: Any, factor: float = 1.0) -> Any:
    dx, grads = layer_norm_backward(dy, layer_norm_forward(x, p)[1])
    return dx * factor, grads


def checked_root(x: Any) -> Any:
    if x.min() < 0:
        raise ValueError("outside of its domain")
    return np.sqrt(x)


class Other(NamedTuple):
    gamma: object
    beta: object


KNOWN = vars(np) | {
    "X": X, "POSITIVE": POSITIVE, "STAIR": X + np.copysign(4e-4, X), "normal": normal,
    "TREE": {"W": X, "b": [np.ones(4)]}, "NORM": LayerNormParams(1 + normal(6) / 4, normal(6)),
    "norm": lambda x, p: layer_norm_forward(x, p)[0], "norm_back": norm_back, "length": np.linalg.norm,
    "softmax": softmax, "softmax_back": softmax_back, "Namespace": Namespace, "checked_root": checked_root,
    "masked_array": np.ma.masked_array, "Params": LayerNormParams, "Other": Other, "zero": 0,
    "PAIR": LayerNormParams(X, POSITIVE), "HALF": LayerNormParams(X, None), "WIDE": np.ones((4, 8)),
    "FLOATS": normal((3, 5)).astype(np.float32),
}  # fmt: skip
SETTINGS = {"rng", "tolerance", "directions"}


def table(file: str) -> Iterator[tuple[str, AdversarialPair]]:
    """The pairs of a file: their cache is their arguments."""
    scales: list[str] = []
    for line in (Path(__file__).parent / "data" / file).read_text(encoding="utf-8").splitlines():
        scales = line[3:].split() if line.startswith("s: ") else scales
        for s in scales if "{s}" in line else [""]:
            row = line.replace("{s}", s).split(" | ")
            if row[0] in VERDICT:
                yield row[1], pair_of(*row)


def pair_of(must: str, name: str, given: str, output: str, gradients: str, note: str = "") -> AdversarialPair:
    args, kwargs = (eval(f"dict({part})", KNOWN) for part in f"{given};".split(";")[:2])
    keywords = [name for name in kwargs if name not in SETTINGS]
    names, cache = ", ".join([*args, *["*"][: len(keywords)], *keywords]), ", ".join([*args, *keywords])
    whole = output[2:] if output.startswith("= ") else f"({output}, [{cache}])"
    slope = f"dy * ({gradients[2:]})" if gradients.startswith("= ") else gradients
    forward = eval(f"lambda {names}: {whole}", KNOWN)
    backward = eval(f"lambda dy, cache: (lambda {cache}: ({slope}))(*cache)", KNOWN)
    return AdversarialPair(must, forward, backward, tuple(args.values()), kwargs, note.replace("\\n", "\n"))


class With:
    """A function with something of its own that outlives a call."""

    def __init__(self, own: Any, f: Callable[..., Any]) -> None:
        self.own, self.f = own, f

    def __call__(self, *args: Any) -> Any:
        return self.f(self.own, *args)


def fresh(pair: AdversarialPair) -> tuple[Any, Any]:
    """Its forward and backward with their state as it was at first: some pairs remember their calls."""
    forward, backward = copy.deepcopy((pair.forward, pair.backward))
    return forward, backward


SHARED: dict[str, Any] = {}
square, slope = lambda x: (x * x, x), lambda dy, x: 2 * x * dy
CALLS: dict[str, tuple[Any, ...]] = {
    "backward destroys its cache": (
        "wrong", lambda x: (x * x, x.copy()), lambda dy, c: np.multiply(2 * c, dy, out=c)),
    "backward pops its cache": ("wrong", lambda x: (x * x, {"x": x}), lambda dy, c: 2 * c.pop("x") * dy,
        "backward writes into its cache (x)"),
    "backward zeroes its cache when it is done": (
        "wrong", lambda x: (x * x, {"x": x.copy()}), lambda dy, c: (2 * c["x"] * dy, c["x"].fill(0))[0],
        "backward writes into its cache (x)"),
    "backward writes into an argument through its cache": (
        "wrong", lambda x: (x * x, {"x": x}), lambda dy, c: (2 * c["x"] * dy, c["x"].fill(0))[0],
        "backward writes into its cache (x)"),
    "backward writes its result into dy": ("wrong", square, lambda dy, x: np.multiply(2 * x, dy, out=dy),
        "backward writes into d_output"),
    "backward zeroes dy": ("wrong", square, lambda dy, x: (2 * x * dy, dy.fill(0))[0]),
    "backward returns dy itself": ("right", lambda x: (x * 1.0, None), lambda dy, _: dy),
    "backward returns a view of dy": ("right", lambda x: (x[::-1], None), lambda dy, _: dy[::-1]),
    "backward returns a buffer that its next call overwrites": (
        "wrong", square, With(np.empty(4), lambda own, dy, x: np.multiply(2 * x, dy, out=own)),
        "backward returns a buffer that its next call"),
    "backward adds to what it returned before": (
        "wrong", square, With(np.zeros(4), lambda own, dy, x: np.add(own, 2 * x * dy, out=own).copy())),
    "forward's cache is a buffer that its next call overwrites": (
        "wrong", With(np.empty(4), lambda own, x: (x * x, np.add(x, 0, out=own))), slope,
        "forward's next call writes into the cache"),
    "backward reads what the last forward left behind": (
        "wrong", With(SHARED, lambda own, x: (x * x, own.update(x=x))),
        With(SHARED, lambda own, dy, _: 2 * own["x"] * dy),
        "another gradient when called again"),
    "forward returns a buffer that its next call overwrites": (
        "wrong", With(np.empty(4), lambda own, x: (np.multiply(x, x, out=own), x.copy())), slope,
        "forward returns a buffer that its next call"),
    "forward's output depends on how often it was called": (
        "refused", With([], lambda own, x: (own.append(1) or x * x * (1 + 1e-3 * len(own)), x)), slope),
    "forward counts its calls and no more": (
        "right", With([], lambda own, x: (own.append(1) or x * x, x)), slope),
    "backward is right only the first time": (
        "wrong", square, With([], lambda own, dy, x: own.append(1) or 2 * x * dy / min(2, len(own)))),
    "forward writes into its argument": (
        "wrong", lambda x: (x.copy(), np.multiply(x, x, out=x))[::-1], slope),
    "forward returns its argument": ("right", lambda x: (x, None), lambda dy, _: dy.copy()),
}  # fmt: skip

PAIRS = dict(table("hard_pairs.txt"))
PAIRS |= {name: AdversarialPair(*pair[:3], (X,), {}, *pair[3:]) for name, pair in CALLS.items()}
SAID = dict(table("said_pairs.txt"))
