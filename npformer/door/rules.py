"""Relations between arguments: heads that divide d_model, positions that a table has, trees built alike.

Each is a `Rule` that stands in a signature beside a shape or a number. Its `_ask_…` raises in our words, or
returns nothing; its `turn` says whose letters it waits for.
"""

import math
from contextlib import suppress
from typing import Annotated, Any

import numpy as np

from npformer.arrays import array_module
from npformer.door.annotations import number
from npformer.door.signature import Call, Rule
from npformer.door.validate import (
    FLOATS,
    check_d_output,
    check_float,
    check_generator,
    check_id_range,
    check_integer,
    check_number,
)
from npformer.tree import together, walked

# --- heads, and the pairs of columns that RoPE turns ----------------------------------------------


def _ask_heads(value: Any, name: str, call: Call) -> None:
    """Heads that divide d_model; their number is the letter h."""
    check_integer(call.function, name, value, 1)
    call.letters["h"] = value
    if call.letters["d_model"] % value:
        raise ValueError(
            f"{call.function}: {name} is {value}; expected a divisor of d_model={call.letters['d_model']}"
        )


def _ask_kv_heads(value: Any, name: str, call: Call) -> None:
    """As many heads of keys as divide the heads of queries."""
    check_integer(call.function, name, value, 1)
    if call.letters["h"] % value:
        raise ValueError(
            f"{call.function}: {name} is {value}; expected a divisor of n_heads={call.letters['h']}"
        )


def _ask_width(W_Q: Any, name: str, call: Call) -> None:
    """Tells d_kv = n_kv_heads d_k, which is d_model where neither the call nor its config says n_kv_heads."""
    config, letters = call.arguments.get("config"), call.letters
    h, n_kv_heads = (call.arguments.get(a, getattr(config, a, None)) for a in ("n_heads", "n_kv_heads"))
    if n_kv_heads is None:
        letters["d_kv"] = letters["d_model"]
        return
    with suppress(TypeError, ValueError):  # of a wrong number its own rule will speak
        _ask_heads(h, "n_heads", call)
        _ask_kv_heads(n_kv_heads, "n_kv_heads", call)
        letters["d_kv"] = letters["d_model"] // letters["h"] * n_kv_heads


def _ask_even(value: Any, name: str, call: Call) -> None:
    what, d = (
        (f"{name}'s last axis", value.shape[-1]) if hasattr(value, "ndim") and value.ndim else (name, value)
    )
    if d % 2:
        raise ValueError(f"{call.function}: {what} is {d}; expected an even number, a pair is two columns")


def _ask_pairs(value: Any, name: str, call: Call) -> None:
    """RoPE turns pairs of columns, so each head needs an even number of them."""
    d_model, h = call.letters["d_model"], call.letters["h"]
    if value in (True, "rope") and d_model // h % 2:
        raise ValueError(
            f"{call.function}: {name} is {value!r}; expected an even d_k, "
            f"d_model={d_model} and n_heads={h} give {d_model // h}"
        )


def _ask_even_head(value: Any, name: str, call: Call) -> None:
    """The same, of a config that always has RoPE."""
    d_model = call.letters["d_model"]
    if d_model // value % 2:
        raise ValueError(
            f"{call.function}: {name} is {value}; expected an even d_k, d_model={d_model} gives "
            f"{d_model // value}"
        )


Heads = Annotated[int, Rule("divides d_model", _ask_heads, turn=2)]
KVHeads = Annotated[int, Rule("divides n_heads", _ask_kv_heads, turn=3)]
KEY_WIDTH = Rule("tells d_kv", _ask_width)
EVEN, EVEN_HEAD = Rule("even", _ask_even), Rule("even d_k", _ask_even_head)
EVEN_HEADS = Rule("RoPE needs an even d_k", _ask_pairs, turn=3)


# --- positions: no more than there is room for ----------------------------------------------------


def _ask_room(call: Call, name: str, T: int, most: int, whose: str) -> None:
    if T > most:
        raise ValueError(f"{call.function}: {name} has {T} positions; expected at most {whose}={most}")


def _ask_rows(x: Any, name: str, call: Call) -> None:
    _ask_room(call, name, x.shape[-2], len(call.arguments["params"].P), "the table's max_length")


def _ask_table_rows(ids: Any, name: str, call: Call) -> None:
    table = getattr(call.arguments["params"], name.replace("ids", "positions"))
    if table is not None:
        _ask_room(call, name, ids.shape[-1], len(table.P), "the learned table's max_length")


def _ask_config_room(ids: Any, name: str, call: Call) -> None:
    most = call.arguments["config"].max_length
    _ask_room(call, name, ids.shape[-1], most, "config.max_length")


def _ask_length(max_length: Any, name: str, call: Call) -> None:
    table = call.arguments["params"].target_positions
    if table is not None and max_length > len(table.P):
        raise ValueError(
            f"{call.function}: {name} is {max_length}; "
            f"expected at most the learned table's {len(table.P)} positions"
        )


def _ask_new(n: Any, name: str, call: Call) -> None:
    T, most = call.letters["T"], call.arguments["config"].max_length
    if T + n > most:
        raise ValueError(
            f"{call.function}: {name} is {n}; expected at most {most - T}, "
            f"the prompt has {T} positions and config.max_length={most}"
        )


def _ask_table(table: Any, name: str, call: Call) -> None:
    """A learned table stands where config.positions asks for one, and nowhere else."""
    config = call.arguments["config"]
    if config.positions != "learned":
        if table is not None:
            raise ValueError(
                f"{call.function}: {name} is a table; expected None with "
                f"config.positions={config.positions!r}"
            )
    elif table is None:
        raise TypeError(f"{call.function}: {name} is None; expected a LearnedPositionsParams")
    elif len(table.P) != config.max_length:
        raise ValueError(
            f"{call.function}: {name}.P has {len(table.P)} rows; "
            f"expected config.max_length={config.max_length}"
        )


ROWS = Rule("T <= max_length", _ask_rows, turn=2)
TABLE = Rule("as config.positions says", _ask_table)
TABLE_ROWS = Rule("T <= max_length", _ask_table_rows, turn=3)
TABLE_LENGTH = Rule("<= the learned table's rows", _ask_length, turn=3)
CONFIG_ROOM = Rule("T <= max_length", _ask_config_room, turn=3)
NEW_ROOM = Rule("T + n <= max_length", _ask_new, turn=4)


# --- tokens ---------------------------------------------------------------------------------------


def _ask_vocabulary(ids: Any, name: str, call: Call) -> None:
    """Ids from 0 to vocab_size - 1, looked at on the host only."""
    check_id_range(call.function, name, ids, call.letters["vocab_size"])


def _ask_id(value: Any, name: str, call: Call) -> None:
    """One id from 0 to vocab_size - 1."""
    check_integer(call.function, name, value, 0)
    if value >= call.letters["vocab_size"]:
        last = call.letters["vocab_size"] - 1
        raise ValueError(f"{call.function}: {name} is {value}; expected an id from 0 to {last}")


def _ask_counted(targets: Any, name: str, call: Call) -> None:
    """Those that count are in the vocabulary, and there is one at least."""
    ignore_index = call.arguments.get("ignore_index")
    if isinstance(targets, np.ndarray):
        counted = targets.ravel() if ignore_index is None else targets[targets != ignore_index]
        if counted.size == 0:
            raise ValueError(
                f"{call.function}: {name} has no id that counts; "
                "expected at least one: there is nothing to average"
            )
        check_id_range(call.function, name, counted, call.letters["vocab_size"])


def _ask_prompt(ids: Any, name: str, call: Call) -> None:
    """At least one token in each row."""
    if ids.shape[-1] == 0:
        raise ValueError(f"{call.function}: {name} has shape {ids.shape}; expected at least one token a row")


def _ask_padding(padding_id: Any, name: str, call: Call) -> None:
    """Padding behind a row's last token only, looked at on the host."""
    ids = call.arguments["ids"]
    if padding_id is not None and isinstance(ids, np.ndarray):
        token = ids != padding_id  # (B, T)
        if not token[..., 0].all() or (token[..., 1:] & ~token[..., :-1]).any():
            raise ValueError(
                f"{call.function}: ids has {name}={padding_id} before a token; expected it at the end only"
            )


def _ask_draws(n: Any, name: str, call: Call) -> None:
    """Drawing needs a generator; the likeliest token does not."""
    if call.arguments.get("temperature", 1.0) != 0:
        check_generator(call.function, "rng", call.arguments.get("rng"))


IN_VOCABULARY = Rule("below vocab_size", _ask_vocabulary, turn=3, by_value=True)
Id = Annotated[int, Rule("below vocab_size", _ask_id, turn=3)]
COUNTED = Rule("one counts at least", _ask_counted, turn=3, by_value=True)
PROMPT = Rule("T >= 1", _ask_prompt, turn=3)
PADDING = Rule("behind the tokens", _ask_padding, turn=4, by_value=True)
DRAWS = Rule("rng unless temperature=0", _ask_draws, turn=4)
Smoothing = Annotated[float, number("0 <= · <= 1", minimum=0, maximum=1)]
Share = Annotated[float, number("0 < · <= 1", above=0, maximum=1)]


# --- what fits to a config, an array or a cache ---------------------------------------------------


def _ask_layers(blocks: Any, name: str, call: Call) -> None:
    n_layers = call.arguments["config"].n_layers
    if len(blocks) != n_layers:
        raise ValueError(
            f"{call.function}: {name} holds {len(blocks)} blocks; expected config.n_layers={n_layers}"
        )


def _ask_head(head: Any, name: str, call: Call) -> None:
    """An own matrix stands where config.tied is False, and nowhere else."""
    tied = call.arguments["config"].tied
    if tied and head is not None:
        raise ValueError(f"{call.function}: {name} is an array; expected None with config.tied=True")
    if not tied and head is None:
        raise TypeError(f"{call.function}: {name} is None; expected an array with config.tied=False")


def _ask_axis(axis: Any, name: str, call: Call) -> None:
    check_integer(call.function, name, axis)
    scores = call.arguments["scores"]
    if not -scores.ndim <= axis < scores.ndim:
        raise ValueError(
            f"{call.function}: {name} is {axis}; expected an axis of scores, shape {scores.shape}"
        )


def _ask_dloss(dloss: Any, name: str, call: Call) -> None:
    """One number: of Python, or an array of no axes in the logits' dtype."""
    if isinstance(dloss, int | float):
        check_number(call.function, name, dloss)
    else:
        check_d_output(call.function, name, dloss, (), call.arguments["cache"].probabilities.dtype)


LAYERS, HEAD = Rule("config.n_layers of them", _ask_layers), Rule("iff untied", _ask_head)
Axis = Annotated[int, Rule("an axis of scores", _ask_axis, turn=2)]
DLoss = Annotated[Any, Rule("one number", _ask_dloss)]


# --- trees built alike ----------------------------------------------------------------------------


def _ask_floats(params: Any, name: str, call: Call) -> None:
    """A tree of float arrays."""
    for path, leaf in walked(call.function, "", params):
        check_float(call.function, _name(name, path), leaf)


def _ask_alike(tree: Any, name: str, call: Call) -> None:
    """A tree with the parameters' NamedTuples, shapes and dtypes."""
    _check_alike(call.function, name, call.arguments["params"], tree)


def _ask_finite(grads: Any, name: str, call: Call) -> None:
    """Gradients without NaN and infinity, looked at on the host only."""
    for path, g in walked(call.function, "", grads):
        # one product finds NaN and infinity and allocates nothing; but its sum can overflow by itself
        if isinstance(g, np.ndarray) and not math.isfinite(np.vdot(g, g)) and not np.isfinite(g * g).all():
            raise ValueError(
                f"{call.function}: {_name(name, path)} holds NaN or a number too large to square; "
                "expected finite ones"
            )


ALIKE = Rule("built like params", _ask_alike)
FloatTree = Annotated[Any, Rule("a tree of float arrays", _ask_floats)]
LikeParams = Annotated[Any, ALIKE]
Gradients = Annotated[Any, ALIKE, Rule("finite", _ask_finite, turn=2, by_value=True)]


def _check_alike(function: str, argument: str, params: Any, tree: Any) -> None:
    """Refuse a tree whose NamedTuples, shapes or dtypes are not those of the parameters."""
    try:
        alike = all(map(_are_alike, together(params, tree)))
    except ValueError:
        alike = False
    if not alike:
        _explain(function, argument, params, tree)


def _are_alike(arrays: tuple[Any, ...]) -> bool:
    """The common case, without a path to put together: arrays of one library, shape and float dtype."""
    p, other = arrays
    return (
        type(p) is type(other) is array_module(p).ndarray
        and p.shape == other.shape
        and p.dtype is other.dtype
        and p.dtype in FLOATS
    )


def _explain(function: str, argument: str, params: Any, tree: Any) -> None:
    """Say where two trees differ, if they do."""
    expected, found = dict(walked(function, "", params)), dict(walked(function, "", tree))
    for path, p in expected.items():
        check_float(function, _name("params", path), p)
    if list(found) != list(expected):
        wrong = sorted(found.keys() ^ expected.keys()) or ["their order"]
        raise ValueError(
            f"{function}: {argument} is not built like params; "
            f"expected the same leaves, they differ in {wrong[0]}"
        )
    for path, p in expected.items():
        check_d_output(function, _name(argument, path), found[path], p.shape, p.dtype, "the parameter")
    try:
        together(params, tree)
    except ValueError:
        raise ValueError(
            f"{function}: {argument} is not built like params; expected the same NamedTuples"
        ) from None


def _name(argument: str, path: str) -> str:
    return f"{argument}.{path}" if path else argument
