"""Rules about relations between arguments, such as "the number of heads divides d_model".

A rule is written in a signature after a shape or a number. Its function returns None, or raises an error with
the final message. The phase of a rule says when the rule is checked, and so which sizes it can use.

The first section has the rules that any operation can use. Each further section has the rules of the module
in its heading, and uses nothing from other sections except the first one.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import numpy as np

from npformer.arrays import is_array
from npformer.tree import iter_leaves
from npformer.validation import checks
from npformer.validation.annotations import number
from npformer.validation.call import Call, Check, Phase, Rule


def rule(description: str, phase: int = Phase.ARRAYS, reads_values: bool = False) -> Callable[[Check], Rule]:
    """Return a decorator that turns a check function, which checks one value, into a `Rule`."""

    def make_rule(check: Check) -> Rule:
        return Rule(description, check, phase, reads_values=reads_values)

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


# --- any operation: even sizes, ids, axes ---------------------------------------------------------


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


@rule("config.n_layers of them")
def LAYERS(blocks: Any, name: str, call: Call) -> None:
    """Check that a stack has as many blocks as the config says."""
    n_layers = call.arguments["config"].n_layers
    if len(blocks) != n_layers:
        raise call.value_error(f"{name} holds {len(blocks)} blocks; expected config.n_layers={n_layers}")


Id = Annotated[int, ID]


# --- functional.py --------------------------------------------------------------------------------


@rule("an axis of scores", Phase.IDS)
def AXIS(axis: Any, name: str, call: Call) -> None:
    """Check that the scores have this axis."""
    checks.check_integer(call.function, name, axis)
    scores = call.arguments["scores"]
    if not -scores.ndim <= axis < scores.ndim:
        raise call.value_error(f"{name} is {axis}; expected an axis of scores, shape {scores.shape}")


Axis = Annotated[int, AXIS]


# --- config.py; attention.py and modern/causal_lm.py use them too ---------------------------------


@rule("divides d_model", Phase.IDS)
def HEADS(value: Any, name: str, call: Call) -> None:
    """Check that the number of heads divides d_model, and record the number as the size h."""
    checks.check_integer(call.function, name, value, 1)
    d_model = call.sizes["d_model"]
    if d_model % value:
        raise call.value_error(f"{name} is {value}; expected a divisor of d_model={d_model}")
    call.sizes["h"] = value


@rule("RoPE needs an even d_k", Phase.MASKS)
def EVEN_HEADS(value: Any, name: str, call: Call) -> None:
    """Check that d_k is even if the value switches RoPE on, because RoPE rotates pairs of columns."""
    d_model, n_heads = call.sizes["d_model"], call.sizes["h"]
    d_k = d_model // n_heads
    has_rope = value in (True, "rope")
    if has_rope and d_k % 2:
        given = f"d_model={d_model} and n_heads={n_heads} give {d_k}"
        raise call.value_error(f"{name} is {value!r}; expected an even d_k, {given}")


Heads = Annotated[int, HEADS]


# --- attention.py ---------------------------------------------------------------------------------


@rule("divides n_heads", Phase.MASKS)
def KV_HEADS(value: Any, name: str, call: Call) -> None:
    """Check that the number of key heads divides the number of query heads."""
    checks.check_integer(call.function, name, value, 1)
    n_heads = call.sizes["h"]
    if n_heads % value:
        raise call.value_error(f"{name} is {value}; expected a divisor of n_heads={n_heads}")


@rule("tells d_kv")
def KEY_WIDTH(W_Q: Any, name: str, call: Call) -> None:
    """Record d_kv = n_kv_heads · d_k. Without n_kv_heads in the call or its config, d_kv is d_model.

    If the number of heads is wrong, d_kv stays unknown, because a different rule raises the error.
    """
    n_heads = _setting("n_heads", call)
    n_kv_heads = _setting("n_kv_heads", call)
    d_model = call.sizes["d_model"]
    if n_kv_heads is None:
        call.sizes["d_kv"] = d_model
    elif _is_divisor(n_heads, d_model) and _is_divisor(n_kv_heads, n_heads):
        call.sizes["d_kv"] = d_model // n_heads * n_kv_heads


def _setting(name: str, call: Call) -> Any:
    """Return an argument of the call, or the field of its config, or None."""
    if name in call.arguments:
        return call.arguments[name]
    return getattr(call.arguments.get("config"), name, None)


def _is_divisor(value: Any, whole: int) -> bool:
    """Return whether value is a positive integer that divides `whole`."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return is_integer and value >= 1 and whole % value == 0


KVHeads = Annotated[int, KV_HEADS]


# --- positional.py --------------------------------------------------------------------------------


def _rows_of_params(call: Call, name: str) -> int:
    """Return the number of positions in the table of learned positions."""
    return len(call.arguments["params"].P)


ROWS = max_positions("the table's max_length", _rows_of_params, Phase.IDS)


# --- loss.py --------------------------------------------------------------------------------------


@rule("one counts at least", Phase.MASKS, reads_values=True)
def COUNTED(targets: Any, name: str, call: Call) -> None:
    """Check that at least one target is not ignored, and that all such targets are in the vocabulary."""
    ignore_index = call.arguments.get("ignore_index")
    if not isinstance(targets, np.ndarray):
        return
    counted = targets.ravel() if ignore_index is None else targets[targets != ignore_index]
    if counted.size == 0:
        raise call.value_error(
            f"{name} has no id that counts; expected at least one: there is nothing to average"
        )
    checks.check_id_range(call.function, name, counted, call.sizes["vocab_size"])


@rule("one number")
def ONE_NUMBER(dloss: Any, name: str, call: Call) -> None:
    """Check that the gradient of a loss is one number: a Python number, or an array without axes.

    An array has the dtype that the cache has recorded.
    """
    if isinstance(dloss, int | float):
        checks.check_number(call.function, name, dloss)
        return
    output = "the forward's output"
    checks.check_float(call.function, name, dloss, call.dtype, output)
    checks.check_same_shape(call.function, name, dloss, (), output)


DLoss = Annotated[Any, ONE_NUMBER]
Smoothing = Annotated[float, number("0 <= · <= 1", minimum=0, maximum=1)]


# --- transformer.py; decoding.py and pretrained/minilm.py use TABLE_ROWS too ----------------------


def _rows_of_learned_table(call: Call, name: str) -> int | None:
    """Return the number of positions in the learned table for these ids, or None without such a table."""
    field = name.replace("ids", "positions")  # from source_ids to source_positions
    table = getattr(call.arguments["params"], field)
    return None if table is None else len(table.P)


TABLE_ROWS = max_positions("the learned table's max_length", _rows_of_learned_table, Phase.MASKS)


@rule("as config.positions says")
def TABLE(table: Any, name: str, call: Call) -> None:
    """Require a table of the right length if config.positions is "learned", and None otherwise."""
    config = call.arguments["config"]
    if config.positions != "learned":
        if table is not None:
            expected = f"expected None with config.positions={config.positions!r}"
            raise call.value_error(f"{name} is a table; {expected}")
        return
    if table is None:
        raise checks.wrong_kind(call.function, name, table, "a LearnedPositionsParams")
    if len(table.P) != config.max_length:
        expected = f"expected config.max_length={config.max_length}"
        raise call.value_error(f"{name}.P has {len(table.P)} rows; {expected}")


# --- decoding.py ----------------------------------------------------------------------------------


@rule("<= the learned table's rows", Phase.MASKS)
def TABLE_LENGTH(max_length: Any, name: str, call: Call) -> None:
    """Check that the learned table has a row for each position of the output."""
    table = call.arguments["params"].target_positions
    if table is not None and max_length > len(table.P):
        expected = f"expected at most the learned table's {len(table.P)} positions"
        raise call.value_error(f"{name} is {max_length}; {expected}")


# --- modern/causal_lm.py --------------------------------------------------------------------------


@rule("even d_k")
def EVEN_HEAD(value: Any, name: str, call: Call) -> None:
    """Check that d_k is even in a config of a model that always has RoPE."""
    d_model = call.sizes["d_model"]
    d_k = d_model // value
    if d_k % 2:
        raise call.value_error(f"{name} is {value}; expected an even d_k, d_model={d_model} gives {d_k}")


@rule("iff untied")
def HEAD(head: Any, name: str, call: Call) -> None:
    """Check that there is an output matrix if config.tied is False, and none otherwise."""
    is_tied = call.arguments["config"].tied
    if is_tied and head is not None:
        raise call.value_error(f"{name} is an array; expected None with config.tied=True")
    if not is_tied and head is None:
        raise checks.wrong_kind(call.function, name, head, "an array with config.tied=False")


def _max_length_of_config(call: Call, name: str) -> int:
    """Return the number of positions that the config allows."""
    max_length: int = call.arguments["config"].max_length
    return max_length


CONFIG_ROOM = max_positions("config.max_length", _max_length_of_config, Phase.MASKS)


# --- modern/generation.py -------------------------------------------------------------------------


@rule("T >= 1", Phase.MASKS)
def PROMPT(ids: Any, name: str, call: Call) -> None:
    """Check that a prompt has at least one token in each row."""
    if ids.shape[-1] == 0:
        raise call.value_error(f"{name} has shape {ids.shape}; expected at least one token a row")


@rule("T + n <= max_length", Phase.RELATIONS)
def NEW_ROOM(n: Any, name: str, call: Call) -> None:
    """Check that the prompt and n new tokens have at most config.max_length positions."""
    n_prompt, max_length = call.sizes["T"], call.arguments["config"].max_length
    if n_prompt + n > max_length:
        given = f"the prompt has {n_prompt} positions and config.max_length={max_length}"
        raise call.value_error(f"{name} is {n}; expected at most {max_length - n_prompt}, {given}")


@rule("behind the tokens", Phase.RELATIONS, reads_values=True)
def PADDING(padding_id: Any, name: str, call: Call) -> None:
    """Check that padding comes only after the last token of a row; an array on a GPU is not checked."""
    ids = call.arguments["ids"]
    if padding_id is None or not isinstance(ids, np.ndarray):
        return
    is_token = ids != padding_id  # (B, T)
    starts_with_token = is_token[..., 0].all()
    has_token_after_padding = (is_token[..., 1:] & ~is_token[..., :-1]).any()
    if not starts_with_token or has_token_after_padding:
        raise call.value_error(f"ids has {name}={padding_id} before a token; expected it at the end only")


@rule("rng unless temperature=0", Phase.RELATIONS)
def DRAWS(n: Any, name: str, call: Call) -> None:
    """Check that a generator is given if tokens are sampled. With temperature=0, no token is sampled."""
    if call.arguments.get("temperature", 1.0) != 0:
        checks.check_generator(call.function, "rng", call.arguments.get("rng"))


Share = Annotated[float, number("0 < · <= 1", above=0, maximum=1)]


# --- optim.py -------------------------------------------------------------------------------------


@rule("a tree of float arrays")
def FLOAT_TREE(params: Any, name: str, call: Call) -> None:
    """Check that every leaf of a tree is a float32 or float64 array."""
    for path, leaf in iter_leaves(call.function, params):
        checks.check_float(call.function, leaf_name(name, path), leaf)


def leaf_name(tree_name: str, path: str) -> str:
    """Return the name of a leaf for a message. A tree that is one array is a leaf with an empty path."""
    return f"{tree_name}.{path}" if path else tree_name


@rule("built like params")
def SAME_STRUCTURE(tree: Any, name: str, call: Call) -> None:
    """Check that a tree has the NamedTuples, shapes and dtypes of `params`."""
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
    """Check that gradients have no NaN and no infinity; an array on a GPU is not checked."""
    for path, gradient in iter_leaves(call.function, grads):
        if isinstance(gradient, np.ndarray) and not _has_finite_squares(gradient):
            what = "NaN or a number too large to square"
            raise call.value_error(f"{leaf_name(name, path)} holds {what}; expected finite ones")


def _has_finite_squares(gradient: Any) -> bool:
    """Return whether the square of every entry is finite."""
    # The dot product finds NaN and infinity without a new array, but a large sum can overflow too.
    return math.isfinite(np.vdot(gradient, gradient)) or bool(np.isfinite(gradient * gradient).all())


FloatTree = Annotated[Any, FLOAT_TREE]
LikeParams = Annotated[Any, SAME_STRUCTURE]
Gradients = Annotated[Any, SAME_STRUCTURE, FINITE]
