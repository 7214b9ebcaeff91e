"""Operations with a right backward pass and with wrong ones, as tests/data/planted.txt has them.

Where a mistake sits inside an operation, the operation is written there from the textbook, so that the
checker is tested without the package's layers. Where it sits around one, the package's backward pass is bent.
"""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import npformer as npf
from npformer.tree import ends, ends_mapped

rng = np.random.default_rng(20170612)
normal = rng.standard_normal
CONFIG = npf.TransformerConfig(d_model=4, d_ff=6, n_heads=2, activation="gelu", dropout=0.0)
BLOCK = npf.tree_map(lambda x: x + normal(x.shape) / 2, npf.init_encoder_block(CONFIG, rng))


class Bug(NamedTuple):
    forward: Callable[..., Any]
    right: Callable[..., Any]
    wrong: Callable[..., Any]
    args: tuple[Any, ...]
    spoils: set[str]


def mean(x: Any) -> Any:
    return x.mean(axis=-1, keepdims=True)


def rows_sum(x: Any) -> Any:
    return x.sum(axis=tuple(range(x.ndim - 1)))


def products(x: Any, dy: Any) -> Any:
    return x.reshape(-1, x.shape[-1]).T @ dy.reshape(-1, dy.shape[-1])


def softmax(scores: Any) -> Any:
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def sigmoid(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


KNOWN = {
    "np": np, "math": math, "npf": npf, "rng": rng, "normal": normal, "CONFIG": CONFIG, "BLOCK": BLOCK,
    "mean": mean, "rows_sum": rows_sum, "products": products, "softmax": softmax, "sigmoid": sigmoid,
    "__builtins__": __builtins__,
}  # fmt: skip


def ran(code: Any, names: dict[str, Any]) -> dict[str, Any]:
    """The names after these lines of Python."""
    space = KNOWN | names
    exec(code, space)
    return {name: value for name, value in space.items() if name not in KNOWN}


def forward_of(source: str, arguments: list[str]) -> Callable[..., Any]:
    code = compile(source, "forth", "exec")

    def forth(given: dict[str, Any]) -> Any:
        names = ran(code, given)
        return names["y"], names

    return eval(f"lambda {', '.join(arguments)}: forth(locals())", {"forth": forth})


def backward_of(source: str, arguments: list[str]) -> Callable[..., Any]:
    code = compile(source, "back", "exec")

    def backward(dy: Any, cache: Any) -> Any:
        names = ran(code, cache | {"dy": dy})
        return tuple(names[f"d{name}"] for name in arguments if f"d{name}" in names)

    return backward


def planted(text: str) -> dict[str, Bug]:
    """The mistakes of all operations, each with its operation's name before its own."""
    found = {}
    for block in text.split("\n## ")[1:]:
        head, *lines = block.partition("\n\n")[0].splitlines()
        operation, _, given = head.partition(": ")
        args = eval(f"dict({given})", KNOWN)
        code = [line.strip() for line in lines if line.startswith("    ") or line == "back"]
        forth, back = "\n".join(code).split("\nback\n")
        forward, right = forward_of(forth, [*args]), backward_of(back, [*args])
        for line in lines[len(code) :]:
            name, spoils, piece, written = (part.strip() for part in re.split(r" \|(?= |$)", line))
            assert back.count(piece) == 1 or not piece, line
            wrong = backward_of(back.replace(piece, written) if piece else f"{back}\n{written}", [*args])
            bug = Bug(forward, right, wrong, tuple(args.values()), set(spoils.split()))
            found[f"{operation}: {name}"] = bug
    return found


def cast(tree: Any, dtype: Any) -> Any:
    """With its floating arrays in that dtype."""
    return ends_mapped(lambda x: x.astype(dtype) if is_floating(x) else x, tree)


def is_floating(x: Any) -> bool:
    return isinstance(x, np.ndarray | np.floating) and x.dtype.kind == "f"


def in_float32(forward: Any, backward: Any) -> tuple[Any, Any]:
    """The pair with what it returns in the dtype of the first floating array that it gets."""

    def narrow(*args: Any) -> Any:
        y, cache = forward(*args)
        return np.asarray(y, next(x.dtype for _, x in ends("", args) if is_floating(x))), cache

    return narrow, lambda dy, cache: cast(backward(dy, cache), dy.dtype)


FIRST, SECOND = (Path(__file__).parent / "data" / "planted.txt").read_text(encoding="utf-8").split("\n# ")
BUGS, MORE = planted(FIRST), planted(SECOND)
