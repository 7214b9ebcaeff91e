"""Pairs of a forward and a backward pass, read from tests/data.

planted.txt has operations. Each has a correct backward pass, and the mistakes that make it wrong, in lines of
Python. hard_pairs.txt has pairs whose verdict is difficult. said_pairs.txt has pairs with a part of their
note. The first lines of each file describe its format.

An operation with a mistake inside is written in the file, as in a textbook. So the tests of the checker do
not depend on the package's layers. For a mistake around an operation, the package's own backward pass is
changed.
"""

import math
import re
from argparse import Namespace
from collections import namedtuple
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import npformer as npf

DATA = Path(__file__).parent / "data"
# The label of a pair, which mathematics decides, and the verdict that the checker must return
VERDICT_OF_LABEL = {
    "right": "pass",
    "wrong": "fail",
    "kink": "kink",
    "cannot tell": "unsure",
    "refused": "refused",
}
SETTINGS = {
    "rng",
    "tolerance",
    "directions",
}  # arguments of gradcheck; other keywords are arguments of forward


class Bug(NamedTuple):
    """An operation with its correct and one wrong backward pass."""

    forward: Any
    right: Any
    wrong: Any
    args: tuple[Any, ...]
    spoils: set[str]  # the names of the arrays whose gradient is wrong


class Pair(NamedTuple):
    """A forward and a backward pass with arguments, and the expected verdict."""

    must: str  # a key of VERDICT
    forward: Any
    backward: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]  # for forward, and settings of the check
    note: str = ""  # a part of the expected note or message


# The names that the lines of Python may use


def softmax(scores):
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_back(dy, s):
    y = softmax(s)
    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))


X = np.array([0.7, -1.3, 2.1, 0.4])
POSITIVE = np.array([0.7, 1.3, 2.1, 0.4])
NAMES = vars(np) | {
    "np": np,
    "math": math,
    "npf": npf,
    "softmax": softmax,
    "softmax_back": softmax_back,
    "mean": lambda x: x.mean(axis=-1, keepdims=True),
    "rows_sum": lambda x: x.sum(axis=tuple(range(x.ndim - 1))),
    "products": lambda x, dy: x.reshape(-1, x.shape[-1]).T @ dy.reshape(-1, dy.shape[-1]),
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "norm": lambda x, p: npf.layer_norm_forward(x, p)[0],
    "norm_back": lambda dy, x, p: npf.layer_norm_backward(dy, npf.layer_norm_forward(x, p)[1]),
    "CONFIG": npf.TransformerConfig(d_model=4, d_ff=6, n_heads=2, activation="gelu", dropout=0.0),
    "X": X,
    "POSITIVE": POSITIVE,
    "STAIR": X + np.copysign(4e-4, X),
    "WIDE": np.ones((4, 8)),
    "zero": 0,
    "Params": npf.LayerNormParams,
    "Other": namedtuple("Other", "gamma beta"),
    "Namespace": Namespace,
}


def make_names():
    """Return the names for one pair: with its own random draws, and objects that remember earlier calls."""
    rng = np.random.default_rng(20170612)
    return NAMES | {"rng": rng, "normal": rng.standard_normal, "own": {}, "calls": count()}


# Functions from their text


def make_function(names, parameters, *lines):
    """Make a function from the text of its parameters and the lines of its body."""
    exec("\n    ".join([f"def f({parameters}):", *lines]), names)
    return names["f"]


def make_backward(names, cached, *lines):
    """Make a backward pass that can use the cached values by their names."""
    parameters = ["dy", "cache", *(f"{name}=None" for name in cached)]
    f = make_function(names, ", ".join(parameters), *lines)
    return lambda dy, cache: f(dy, cache, **cache)


def read_bugs(text):
    """Return the mistakes of all operations by name; the name begins with that of the operation."""
    bugs = {}
    for block in text.split("\n## ")[1:]:
        operation, found = read_operation(block.partition("\n\n")[0])
        for name, bug in found.items():
            bugs[f"{operation}: {name}"] = bug
    return bugs


def read_operation(block):
    """Return the name of an operation, and its mistakes by name."""
    head, *lines = block.splitlines()
    operation, _, arguments = head.partition(": ")
    names = make_names()
    args = eval(f"dict({arguments})", names)
    start = lines.index("back") + 1
    back = [line.strip() for line in lines[start:] if line.startswith("    ")]
    forward_lines = [line.strip() for line in lines[: start - 1]]
    forward = make_function(names, ", ".join(args), *forward_lines, "return y, locals()")
    cached = forward.__code__.co_varnames
    text = "\n".join(back)
    gradients = [f"d{name}" for name in args if re.search(rf"\bd{name}\b", text)]
    answer = f"return {', '.join(gradients)},"
    right = make_backward(names, cached, *back, answer)

    bugs = {}
    for line in lines[start + len(back) :]:
        name, spoils, piece, replacement = (part.strip() for part in re.split(r" \|(?= |$)", line))
        if piece:
            assert text.count(piece) == 1, line
            wrong_lines = [back_line.replace(piece, replacement) for back_line in back]
        else:
            wrong_lines = [*back, replacement]
        wrong = make_backward(names, cached, *wrong_lines, answer)
        bugs[name] = Bug(forward, right, wrong, tuple(args.values()), set(spoils.split()))
    return operation, bugs


def read_rows(file):
    """Return the cells of each pair in a file, by the name of the pair.

    A line with {s} is one pair for each value in the last line that begins with "s: ".
    """
    scales, found = [], {}
    for line in (DATA / file).read_text(encoding="utf-8").splitlines():
        if line.startswith("s: "):
            scales = line[3:].split()
        lines = [line.replace("{s}", s) for s in scales] if "{s}" in line else [line]
        for one_line in lines:
            must, *cells = one_line.split(" | ")
            if must in VERDICT_OF_LABEL:
                name, *others = cells
                found[name] = must, *others
    return found


def make_pair(must, arguments, output, gradients, note=""):
    """Make a new pair, whose functions were never called."""
    names = make_names()
    positional_text, keyword_text = f"{arguments};".split(";")[:2]
    args = eval(f"dict({positional_text})", names)
    kwargs = eval(f"dict({keyword_text})", names)
    keywords = [name for name in kwargs if name not in SETTINGS]
    cached = [*args, *keywords]
    star = ["*"] if keywords else []
    if output.startswith("= "):
        returned = output[2:]
    else:
        cache = ", ".join(f"{name!r}: {name}" for name in cached)
        returned = f"({output}), {{{cache}}}"
    if gradients.startswith("= "):
        gradients = f"dy * ({gradients[2:]})"
    forward = make_function(names, ", ".join([*args, *star, *keywords]), f"return {returned}")
    backward = make_backward(names, cached, f"return {gradients}")
    return Pair(must, forward, backward, tuple(args.values()), kwargs, note.replace("\\n", "\n"))


PLANTED, PLANTED_LATER = (DATA / "planted.txt").read_text(encoding="utf-8").split("\n# ")
PLANTED_BUGS, LATER_BUGS = read_bugs(PLANTED), read_bugs(PLANTED_LATER)
HARD_PAIRS, PAIRS_WITH_NOTES = read_rows("hard_pairs.txt"), read_rows("said_pairs.txt")
