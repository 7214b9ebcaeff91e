"""Rules about relations between arguments, such as "the config has as many layers as the stack has blocks".

In a signature, such a rule follows the shape of an array or the annotation of a number. Its function returns
None, or raises an error with the final message. A rule can use the sizes that rules of earlier phases have
recorded.

This module has the rules that several modules can use, and the rules about trees of parameters. A rule that
belongs to one operation or one model is in the module of that operation or model. For example, attention.py
has the rule "the number of KV heads divides the number of query heads".
"""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import numpy as np

from npformer.arrays import is_array
from npformer.tree import iter_leaves, list_leaves
from npformer.validation import checks
from npformer.validation.call import Call, Check, Phase, Rule


def rule(
    description: str, phase: int = Phase.ARRAYS, reads_values: bool = False, needs: str = ""
) -> Callable[[Check], Rule]:
    """Return a decorator that turns a check function, which checks one value, into a `Rule`.

    `needs` names an argument that the check reads. A function outside of npformer may lack this argument.
    Then the check is left out.
    """

    def make_rule(check: Check) -> Rule:
        return Rule(description, check, phase, reads_values=reads_values, needs=needs)

    return make_rule


def max_positions(limit_name: str, limit_of: Callable[[Call, str], int | None], phase: int) -> Rule:
    """Return the rule that an array has at most `limit_of(call, name)` positions. None means no limit.

    The array has integer ids (..., T), or a row of floats for each position (..., T, d_model).
    """

    def check(x: Any, name: str, call: Call) -> None:
        has_ids = x.dtype.kind in "iu"
        n_positions = x.shape[-1] if has_ids else x.shape[-2]
        limit = limit_of(call, name)
        if limit is not None and n_positions > limit:
            message = f"{name} has {n_positions} positions; expected at most {limit_name}={limit}"
            raise call.value_error(message)

    return Rule("T <= max_length", check, phase)


# --- for several modules: even sizes, ids, blocks --------------------------------------------------


@rule("even")
def EVEN(value: Any, name: str, call: Call) -> None:
    """Check that a number, or the length of an array's last axis, is even."""
    has_axes = hasattr(value, "ndim") and value.ndim > 0
    what = f"{name}'s last axis" if has_axes else name
    length = value.shape[-1] if has_axes else value
    if length % 2:
        raise call.value_error(f"{what} is {length}; expected an even number, a pair is two columns")


@rule("below vocab_size", Phase.MASKS, reads_values=True)
def IN_VOCABULARY(ids: Any, name: str, call: Call) -> None:
    """Check that an array has ids from 0 to vocab_size - 1; an array on a GPU is not checked."""
    checks.check_id_range(call.function, name, ids, call.sizes["vocab_size"])


@rule("below vocab_size", Phase.MASKS)
def ID(value: Any, name: str, call: Call) -> None:
    """Check that a number is an id from 0 to vocab_size - 1."""
    checks.check_integer(call.function, name, value, 0)
    largest_id = call.sizes["vocab_size"] - 1
    if value > largest_id:
        raise call.value_error(f"{name} is {value}; expected an id from 0 to {largest_id}")


@rule("config.n_layers of them", needs="config")
def LAYERS(blocks: Any, name: str, call: Call) -> None:
    """Check that a stack has as many blocks as the config says."""
    n_layers = call.arguments["config"].n_layers
    if len(blocks) != n_layers:
        raise call.value_error(f"{name} holds {len(blocks)} blocks; expected config.n_layers={n_layers}")


Id = Annotated[int, ID]


# --- trees of parameters, for optim.py ------------------------------------------------------------


@rule("a tree of float arrays")
def FLOAT_TREE(params: Any, name: str, call: Call) -> None:
    """Check that every leaf of a tree is a float32 or float64 array."""
    for path, leaf in iter_leaves(call.function, params):
        checks.check_float(call.function, leaf_name(name, path), leaf)


def leaf_name(tree_name: str, path: str) -> str:
    """Return the name of a leaf for a message. If the whole tree is one array, the path is empty."""
    return f"{tree_name}.{path}" if path else tree_name


@rule("built like params", needs="params")
def SAME_STRUCTURE(tree: Any, name: str, call: Call) -> None:
    """Check that a tree has the same NamedTuples, shapes and dtypes as `params`."""
    params = call.arguments["params"]
    with suppress(RecursionError):
        if has_same_structure(params, tree):
            return
    # The trees differ. The code below finds the first difference for the message.
    for path, leaf in iter_leaves(call.function, params):
        checks.check_float(call.function, leaf_name("params", path), leaf)
    expected = dict(iter_leaves(call.function, params))
    found = dict(iter_leaves(call.function, tree))
    if list(found) != list(expected):
        different_paths = sorted(found.keys() ^ expected.keys()) or ["their order"]
        leaves = f"expected the same leaves, they differ in {different_paths[0]}"
        raise call.value_error(f"{name} is not built like params; {leaves}")
    for path, parameter in expected.items():
        leaf, its_name = found[path], leaf_name(name, path)
        checks.check_float(call.function, its_name, leaf, parameter.dtype, "the parameter")
        checks.check_same_shape(call.function, its_name, leaf, parameter.shape, "the parameter")
    raise call.value_error(f"{name} is not built like params; expected the same NamedTuples")


def has_same_structure(tree: Any, other: Any) -> bool:
    """Return whether two trees have the same NamedTuples, and float arrays of the same shape and dtype."""
    if isinstance(tree, tuple):
        if type(tree) is not type(other) or len(tree) != len(other):
            return False
        return all(map(has_same_structure, tree, other))
    if tree is None or other is None:
        return tree is other
    if not (is_array(tree) and is_array(other)):
        return False
    return tree.shape == other.shape and tree.dtype == other.dtype and tree.dtype in checks.FLOATS


@rule("finite", Phase.IDS, reads_values=True)
def FINITE(grads: Any, name: str, call: Call) -> None:
    """Check that all gradients and their squares are finite; an array on a GPU is not checked."""
    arrays = [g for g in list_leaves(grads) if isinstance(g, np.ndarray)]
    # A sum of finite squares can overflow. So if the sum is not finite, the loop checks each square.
    if math.isfinite(_sum_of_squares(arrays)):
        return
    for path, gradient in iter_leaves(call.function, grads):
        if isinstance(gradient, np.ndarray) and not np.isfinite(gradient * gradient).all():
            what = "NaN or a number too large to square"
            raise call.value_error(f"{leaf_name(name, path)} holds {what}; expected finite ones")


def _sum_of_squares(arrays: list[Any]) -> float:
    """Return the sum of the squares of all entries. The product of two long vectors is the fastest way.

    Small arrays are joined to one vector, because many short products would take several times as long.
    """
    small = [a for a in arrays if a.size < SMALL]
    vectors = [a for a in arrays if a.size >= SMALL]
    if small:
        vectors.append(np.concatenate(small, axis=None))
    return float(sum(map(np.vdot, vectors, vectors)))


SMALL = 4096


FloatTree = Annotated[Any, FLOAT_TREE]
LikeParams = Annotated[Any, SAME_STRUCTURE]
Gradients = Annotated[Any, SAME_STRUCTURE, FINITE]
