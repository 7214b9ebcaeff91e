"""Pairs of a forward and a backward pass, read from tests/data.

planted.txt and fresh.txt have operations in lines of Python. Each operation has a correct backward pass, and
mistakes that change the backward pass. hard_pairs.txt has pairs that are hard to judge. said_pairs.txt has
pairs with a part of the expected note. The first lines of each file describe its format.

For a mistake inside an operation, planted.txt contains the whole operation. So these tests of gradcheck do
not depend on npformer's layers. For a mistake in the use of an operation, the file calls npformer's
functions.
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
# Mathematics determines the label of a pair, and the label determines the verdict that gradcheck must return.
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
}  # these keywords are for gradcheck; all other keywords are for `forward`


class Bug(NamedTuple):
    """A forward pass, the correct backward pass, and a wrong backward pass."""

    forward: Any
    right: Any
    wrong: Any
    args: tuple[Any, ...]
    spoils: set[str]  # the names of the arrays whose gradient is wrong


class Pair(NamedTuple):
    """A forward and a backward pass with arguments, and the expected verdict."""

    must: str  # a key of VERDICT_OF_LABEL
    forward: Any
    backward: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]  # keyword arguments of `forward` and of gradcheck
    note: str = ""  # a part of the expected note or message


# The names that lines of Python in these files may use


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
    """Return NAMES for one pair, with a new random generator and new objects that persist between calls."""
    rng = np.random.default_rng(20170612)
    return NAMES | {"rng": rng, "normal": rng.standard_normal, "own": {}, "calls": count()}


# Making functions from the text of the files


def make_function(names, parameters, *lines):
    """Make a function from the text of its parameters and the lines of its body."""
    exec("\n    ".join([f"def f({parameters}):", *lines]), names)
    return names["f"]


def make_backward(names, cached, *lines):
    """Make a backward pass whose lines can use the cached values by their names."""
    parameters = ["dy", "cache", *(f"{name}=None" for name in cached)]
    f = make_function(names, ", ".join(parameters), *lines)
    return lambda dy, cache: f(dy, cache, **cache)


def read_bugs(text):
    """Return {"operation: mistake": Bug} for all operations in a text."""
    bugs = {}
    for block in text.split("\n## ")[1:]:
        operation, found = read_operation(block.partition("\n\n")[0])
        for name, bug in found.items():
            bugs[f"{operation}: {name}"] = bug
    return bugs


def read_operation(block):
    """Return the name of an operation, and {mistake: Bug}."""
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
    """Return {name of the pair: cells of its row} for a file.

    A line with {s} gives one pair for each value in the nearest earlier line that begins with "s: ".
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
    """Make a pair with new functions, because some functions remember earlier calls."""
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
FRESH_BUGS = read_bugs((DATA / "fresh.txt").read_text(encoding="utf-8"))
HARD_PAIRS, PAIRS_WITH_NOTES = read_rows("hard_pairs.txt"), read_rows("said_pairs.txt")
