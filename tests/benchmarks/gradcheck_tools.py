"""Compare gradient checkers: each one judges the planted mistakes and the hard pairs of tests/data.

    PYTHON tests/benchmarks/gradcheck_tools.py
    PYTHON tests/benchmarks/gradcheck_tools.py --write       replace the JSON file and the table in the guide
    PYTHON tests/benchmarks/gradcheck_tools.py --only jax    one tool, and its verdict on each pair

PYTHON is an interpreter that has torch, jax and autograd, for example
`uv run --isolated --with torch --with jax --with autograd python`. Set OMP_NUM_THREADS=1. All tools together
take a few minutes on one core.

The wrong backward passes are those with the label "wrong" in hard_pairs.txt, and the mistakes in planted.txt
and fresh.txt. The correct ones have the label "right", or are the correct backward passes of the operations
in planted.txt and fresh.txt. Pairs with a different label have no correct verdict. The pairs of
said_pairs.txt are left out: their labels depend on the tolerance of npformer and on its rules for the form of
gradients. Functions with several outputs are left out too.

Each tool has its default settings. It differentiates every floating array, and gets the other arguments as
constants. A generator is copied for each call, so dropout uses the same mask. A tool passes a pair, rejects
it, or cannot run it. An exception counts as a rejection if it comes from backward or later, because then the
test of a user fails. An exception before the first call of backward means that the tool cannot run the pair.
"""

import argparse
import copy
import importlib.metadata
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from pairs import DATA, FRESH_BUGS, HARD_PAIRS, LATER_BUGS, PLANTED_BUGS, make_pair  # noqa: E402

import npformer as npf  # noqa: E402
from npformer.tree import get_branches, iter_nested_leaves, map_nested_leaves  # noqa: E402

PAGE = ROOT / "notebooks" / "guide" / "gradient_tests.md"
RESULTS = DATA / "gradcheck_tools.json"
BUGS = PLANTED_BUGS | LATER_BUGS | FRESH_BUGS
SEED = 0


class Rejected(Exception):
    """A tool rejects a backward pass."""


# The pairs


class Case(NamedTuple):
    """A labelled pair of functions. `make` creates a new copy of the pair."""

    name: str
    is_planted: bool  # in planted.txt or fresh.txt
    label: str  # "wrong" or "right"
    make: Callable[[], "FlatPair"]


def is_float_array(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


def get_float_arrays(tree: Any) -> list[Any]:
    return [leaf for _, leaf in iter_nested_leaves("", tree) if is_float_array(leaf)]


def flatten_gradient(arg: Any, gradient: Any) -> list[Any]:
    """Return the gradients of the floating arrays in an argument. The list is shorter if some are missing."""
    if is_float_array(arg):
        return [gradient]
    given = get_branches(gradient) or {}
    flat = []
    for key, branch in (get_branches(arg) or {}).items():
        if key in given:
            flat += flatten_gradient(branch, given[key])
    return flat


class FlatPair:
    """A pair as a function of its floating arrays, without nested arguments.

    The arrays are copies, because some tools change them in place. They are contiguous, because PyTorch has
    no negative strides.
    """

    def __init__(self, forward: Any, backward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]):
        self.given = forward, backward, args, kwargs
        self.leaves = [np.array(x, order="C") for x in get_float_arrays(args)]
        self.is_backward_called = False
        self.fails_with_read_only_arrays = False  # whether forward fails with the read-only arrays of JAX

    def forward(self, *leaves: Any) -> tuple[Any, Any]:
        """Return the output and the cache for other values of the floating arrays."""
        forward, _, args, kwargs = self.given
        remaining = iter(leaves)

        def replace(old: Any) -> Any:
            if isinstance(old, np.random.Generator):
                return copy.deepcopy(old)
            return next(remaining) if is_float_array(old) else old

        with np.errstate(all="ignore"):
            y, cache = forward(*map_nested_leaves(replace, args), **kwargs)
        return np.asarray(y), cache

    def backward(self, dy: Any, cache: Any) -> list[Any]:
        """Return one gradient for each floating array, as backward returned it."""
        self.is_backward_called = True
        _, backward, args, _ = self.given
        differentiable = [arg for arg in args if get_float_arrays(arg)]
        with np.errstate(all="ignore"):
            found = backward(dy, cache)
        if type(found) is not tuple or (len(differentiable) == 1 and len(found) != 1):
            found = (found,)
        flat = [*found[len(differentiable) :]]
        for arg, gradient in zip(differentiable[::-1], found[: len(differentiable)][::-1], strict=False):
            flat = flatten_gradient(arg, gradient) + flat
        return flat


def make_planted(name: str, is_wrong: bool) -> FlatPair:
    bug = BUGS[name]
    return FlatPair(bug.forward, bug.wrong if is_wrong else bug.right, copy.deepcopy(bug.args), {})


def make_hard(row: Any) -> FlatPair:
    pair = make_pair(*row)
    return FlatPair(pair.forward, pair.backward, pair.args, pair.kwargs)


def list_cases() -> list[Case]:
    """Return all pairs that have the label wrong or right."""
    cases = {}
    for name, bug in BUGS.items():
        output, _ = bug.forward(*bug.args)
        if not isinstance(output, np.ndarray | np.generic):
            continue
        operation = f"{name.partition(': ')[0]}, correct"
        cases[operation] = Case(operation, True, "right", partial(make_planted, name, False))
        cases[name] = Case(name, True, "wrong", partial(make_planted, name, True))
    for name, row in HARD_PAIRS.items():
        if row[0] in ("wrong", "right"):
            assert name not in cases, name
            cases[name] = Case(name, False, row[0], partial(make_hard, row))
    return list(cases.values())


# The tools. Each function raises an exception if the tool rejects the pair


def check_with_npformer(pair: FlatPair, _: FlatPair) -> None:
    forward, backward, args, kwargs = pair.given
    report = npf.gradcheck(forward, backward, *args, **kwargs)
    if not report:
        raise Rejected(str(report))


def check_with_torch(pair: FlatPair, _: FlatPair) -> None:
    import torch

    def to_tensor(gradient: Any) -> Any:
        """Convert an array to a tensor. Leave None and other values unchanged, so PyTorch judges them."""
        if not isinstance(gradient, np.ndarray | np.generic):
            return gradient
        x = np.asarray(gradient)
        has_negative_strides = any(stride < 0 for stride in x.strides)
        return torch.from_numpy(x.copy() if has_negative_strides else x)

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *tensors):
            y, ctx.cache = pair.forward(*[x.detach().numpy() for x in tensors])
            return to_tensor(y)

        @staticmethod
        def backward(ctx, dy):
            return tuple(to_tensor(gradient) for gradient in pair.backward(dy.numpy(), ctx.cache))

    torch.manual_seed(SEED)
    tensors = tuple(torch.empty(x.shape, dtype=torch.from_numpy(x).dtype) for x in pair.leaves)
    for tensor, x in zip(tensors, pair.leaves, strict=True):  # torch.tensor gives an empty array strides of 0
        tensor.copy_(torch.from_numpy(x)).requires_grad_()
    torch.autograd.gradcheck(Function.apply, tensors)


def check_with_jax(pair: FlatPair, fresh: FlatPair) -> None:
    """Call the pair through pure_callback. The residuals of JAX contain only the index of a cache."""
    import jax
    from jax.test_util import check_grads

    jax.config.update("jax_enable_x64", True)

    def describe(x: Any) -> Any:
        return jax.ShapeDtypeStruct(x.shape, x.dtype)

    caches = []
    output = describe(fresh.forward(*fresh.leaves)[0])
    gradients = [describe(x) for x in pair.leaves]

    def call_forward(*leaves):
        arrays = [np.asarray(leaf) for leaf in leaves]
        try:
            y, cache = pair.forward(*arrays)
        except ValueError:
            pair.fails_with_read_only_arrays = not all(x.flags.writeable for x in arrays)
            raise
        caches.append(cache)
        return y, np.int64(len(caches) - 1)

    def call_backward(dy, number):
        return pair.backward(np.asarray(dy), caches[number])

    def forward(*leaves):
        return jax.pure_callback(call_forward, (output, jax.ShapeDtypeStruct((), np.int64)), *leaves)

    def backward(number, dy):
        return tuple(jax.pure_callback(call_backward, gradients, dy, number))

    function = jax.custom_vjp(lambda *leaves: forward(*leaves)[0])
    function.defvjp(forward, backward)
    check_grads(function, tuple(pair.leaves), order=1, modes=["rev"])


def check_with_autograd(pair: FlatPair, _: FlatPair) -> None:
    """Check each argument separately, because a common check would add arrays of different shapes."""
    from autograd.extend import defvjp_argnums, primitive
    from autograd.test_util import check_grads

    caches = []

    @primitive
    def function(*leaves):
        y, cache = pair.forward(*leaves)
        caches.append(cache)
        return y

    def make_vjp(numbers, y, leaves, kwargs):
        cache = caches[-1]  # the cache of the call that has just returned y

        def vjp(dy):
            gradients = pair.backward(dy, cache)
            if len(gradients) != len(leaves):
                raise Rejected(f"{len(gradients)} gradients for {len(leaves)} arrays")
            return [gradients[number] for number in numbers]

        return vjp

    defvjp_argnums(function, make_vjp)
    np.random.seed(SEED)  # noqa: NPY002 (autograd draws from this generator)
    for number in range(len(pair.leaves)):
        check_grads(function, number, modes=["rev"], order=1)(*pair.leaves)


def check_with_differences(pair: FlatPair, _: FlatPair) -> None:
    """Compare with central differences with a step of 1e-6, as in many courses."""
    step = 1e-6
    y, cache = pair.forward(*pair.leaves)
    dy = np.asarray(np.random.default_rng(SEED).standard_normal(y.shape))
    gradients = pair.backward(dy, cache)
    for x, gradient in zip(pair.leaves, gradients, strict=True):
        numeric = np.zeros_like(x)
        for index in np.ndindex(x.shape):
            old = x[index]
            x[index] = old + step
            right = pair.forward(*pair.leaves)[0].copy()
            x[index] = old - step
            left = pair.forward(*pair.leaves)[0].copy()
            x[index] = old
            numeric[index] = ((right - left) * dy).sum() / (2 * step)
        if not np.allclose(gradient, numeric):
            raise Rejected("allclose is False")


# {name in the table: (the function, the name of its package)}
TOOLS = {
    "npformer.gradcheck": (check_with_npformer, "npformer"),
    "torch.autograd.gradcheck": (check_with_torch, "torch"),
    "jax.test_util.check_grads": (check_with_jax, "jax"),
    "autograd.test_util.check_grads": (check_with_autograd, "autograd"),
    "central differences, np.allclose": (check_with_differences, "numpy"),
}


def judge(check: Any, case: Case) -> tuple[str, str]:
    """Return "passes", "fails" or "cannot run", and the message of the tool."""
    pair, fresh = case.make(), case.make()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            check(pair, fresh)
    except Exception as error:  # A tool or a wrong backward pass may raise any exception.
        text = f"{type(error).__name__}: {error}"
        is_rejected = isinstance(error, Rejected) or pair.is_backward_called
        # The arrays of JAX are read-only. So JAX rejects a forward pass that writes into its arguments.
        if is_rejected or pair.fails_with_read_only_arrays:
            return "fails", text
        return "cannot run", text
    return "passes", ""


def measure(tool: str, cases: list[Case], is_verbose: bool) -> dict[str, Any]:
    """Return the counts of a tool, with the names of the pairs that it does not judge correctly."""
    check, package = TOOLS[tool]
    missed, accused, not_run = [], [], []
    for case in cases:
        verdict, text = judge(check, case)
        if is_verbose:
            print(f"{case.label} {verdict} | {case.name} | {text[:300]!r}", file=sys.stderr)
        if verdict == "cannot run":
            not_run.append(case)
        elif case.label == "wrong" and verdict == "passes":
            missed.append(case)
        elif case.label == "right" and verdict == "fails":
            accused.append(case)
    n_wrong = sum(case.label == "wrong" for case in cases)
    return {
        "tool": tool,
        "version": f"{package} {importlib.metadata.version(package).partition('+')[0]}",
        "caught": n_wrong - len(missed) - sum(case.label == "wrong" for case in not_run),
        "missed planted": [case.name for case in missed if case.is_planted],
        "missed hard": [case.name for case in missed if not case.is_planted],
        "accused planted": [case.name for case in accused if case.is_planted],
        "accused hard": [case.name for case in accused if not case.is_planted],
        "cannot run": [case.name for case in not_run],
    }


def make_table(results: Mapping[str, Any]) -> str:
    """Return the table of the guide."""
    lines = [
        "| tool | wrong, rejected | wrong, missed | correct, rejected | cannot run |",
        "|---|---|---|---|---|",
    ]
    n_wrong, n_right = (sum(results[label].values()) for label in ("wrong", "right"))
    for row in results["tools"]:
        n_planted = len(row["missed planted"])
        n_missed = n_planted + len(row["missed hard"])
        n_accused = len(row["accused planted"]) + len(row["accused hard"])
        cells = [
            f"{row['tool']} ({row['version']})",
            f"{row['caught']} of {n_wrong}",
            f"{n_missed} ({n_planted} planted)" if n_missed else "0",
            f"{n_accused} of {n_right}",
            len(row["cannot run"]),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--write", action="store_true", help="replace the JSON file and the table in the guide"
    )
    parser.add_argument("--only", default="", help="a part of a tool's name; prints its verdicts")
    options = parser.parse_args()
    cases = list_cases()
    groups = ("planted", "hard")
    counts = Counter((case.label, "planted" if case.is_planted else "hard") for case in cases)
    tools = [measure(tool, cases, bool(options.only)) for tool in TOOLS if options.only in tool]
    sizes = {label: {group: counts[label, group] for group in groups} for label in ("wrong", "right")}
    results = sizes | {"tools": tools}
    print(make_table(results))
    if options.write:
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        page = PAGE.read_text(encoding="utf-8")
        page = re.sub(r"^\| tool \|.*\n(\|.*\n)+", lambda _: make_table(results), page, flags=re.MULTILINE)
        PAGE.write_text(page, encoding="utf-8")
