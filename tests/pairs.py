"""Pairs of a forward and a backward, from tests/data: mistakes that were planted, and pairs hard to judge.

planted.txt has operations, each with a right backward pass and what makes it wrong, in lines of Python;
hard_pairs.txt and said_pairs.txt have a pair a line. Each file says at its top how it is written. Where a
mistake sits inside an operation, this is written there from the textbook, so that the checker is tested
without the package's layers; where it sits around one, the package's own backward pass is bent.
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
# what a pair is by mathematics, and what must be said of it
VERDICT = {"right": "pass", "wrong": "fail", "kink": "kink", "cannot tell": "unsure", "refused": "refused"}
SETTINGS = {"rng", "tolerance", "directions"}  # of the check; other keywords are forward's


class Bug(NamedTuple):
    forward: Any
    right: Any
    wrong: Any
    args: tuple[Any, ...]
    spoils: set[str]  # the arrays whose gradient is wrong


class Pair(NamedTuple):
    must: str  # a key of VERDICT
    forward: Any
    backward: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]  # for forward, and settings of the check
    note: str = ""  # a part of what is said


# --- what the lines of Python know ------------------------------------------------------------------


def softmax(scores):
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_back(dy, s):
    y = softmax(s)
    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))


X, POSITIVE = np.array([0.7, -1.3, 2.1, 0.4]), np.array([0.7, 1.3, 2.1, 0.4])
KNOWN = vars(np) | {
    "np": np, "math": math, "npf": npf, "softmax": softmax, "softmax_back": softmax_back,
    "mean": lambda x: x.mean(axis=-1, keepdims=True),
    "rows_sum": lambda x: x.sum(axis=tuple(range(x.ndim - 1))),
    "products": lambda x, dy: x.reshape(-1, x.shape[-1]).T @ dy.reshape(-1, dy.shape[-1]),
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "norm": lambda x, p: npf.layer_norm_forward(x, p)[0],
    "norm_back": lambda dy, x, p: npf.layer_norm_backward(dy, npf.layer_norm_forward(x, p)[1]),
    "CONFIG": npf.TransformerConfig(d_model=4, d_ff=6, n_heads=2, activation="gelu", dropout=0.0),
    "X": X, "POSITIVE": POSITIVE, "STAIR": X + np.copysign(4e-4, X), "WIDE": np.ones((4, 8)), "zero": 0,
    "Params": npf.LayerNormParams, "Other": namedtuple("Other", "gamma beta"), "Namespace": Namespace,
}  # fmt: skip


def known():
    """Names for one pair: draws that no other one has part in; what outlives a call, and counts calls."""
    rng = np.random.default_rng(20170612)
    return KNOWN | {"rng": rng, "normal": rng.standard_normal, "own": {}, "calls": count()}


# --- functions from their text ----------------------------------------------------------------------


def function(names, head, *lines):
    exec("\n    ".join([f"def f({head}):", *lines]), names)
    return names["f"]


def backward_of(names, kept, *lines):
    """A backward that finds what its cache keeps under the same names."""
    inside = function(names, ", ".join(["dy", "cache", *(f"{name}=None" for name in kept)]), *lines)
    return lambda dy, cache: inside(dy, cache, **cache)


def planted(text):
    """The mistakes of all operations, each with its operation's name before its own."""
    found = {}
    for block in text.split("\n## ")[1:]:
        head, *lines = block.partition("\n\n")[0].splitlines()
        operation, _, given = head.partition(": ")
        names, way = known(), lines.index("back")
        args = eval(f"dict({given})", names)
        back = [line.strip() for line in lines[way + 1 :] if line.startswith("    ")]
        forward = function(names, ", ".join(args), *map(str.strip, lines[:way]), "return y, locals()")
        answer = ", ".join(f"d{name}" for name in args if re.search(rf"\bd{name}\b", "\n".join(back)))

        def backward(lines, names=names, kept=forward.__code__.co_varnames, answer=answer):
            return backward_of(names, kept, *lines, f"return {answer},")

        right = backward(back)
        for line in lines[way + 1 + len(back) :]:
            name, spoils, piece, written = (part.strip() for part in re.split(r" \|(?= |$)", line))
            assert not piece or "\n".join(back).count(piece) == 1, line
            wrong = [each.replace(piece, written) for each in back] if piece else [*back, written]
            bug = Bug(forward, right, backward(wrong), tuple(args.values()), {*spoils.split()})
            found[f"{operation}: {name}"] = bug
    return found


def rows(file):
    """{name: the row} of a file with a pair a line."""
    scales, found = [], {}
    for line in (DATA / file).read_text(encoding="utf-8").splitlines():
        scales = line[3:].split() if line.startswith("s: ") else scales
        for s in scales if "{s}" in line else [""]:
            must, *row = line.replace("{s}", s).split(" | ")
            if must in VERDICT:
                found[row[0]] = must, *row[1:]
    return found


def pair(must, given, output, gradients, note=""):
    """A pair that nobody has called yet."""
    names = known()
    args, kwargs = (eval(f"dict({part})", names) for part in f"{given};".split(";")[:2])
    keywords = [name for name in kwargs if name not in SETTINGS]
    kept = [*args, *keywords]
    cache = ", ".join(f"{name!r}: {name}" for name in kept)
    whole = output[2:] if output.startswith("= ") else f"({output}), {{{cache}}}"
    slope = f"dy * ({gradients[2:]})" if gradients.startswith("= ") else gradients
    forward = function(names, ", ".join([*args, *["*"][: len(keywords)], *keywords]), f"return {whole}")
    backward = backward_of(names, kept, f"return {slope}")
    return Pair(must, forward, backward, tuple(args.values()), kwargs, note.replace("\\n", "\n"))


BUGS, MORE = map(planted, (DATA / "planted.txt").read_text(encoding="utf-8").split("\n# "))
HARD, SAID = rows("hard_pairs.txt"), rows("said_pairs.txt")
