"""Relations between arguments: heads that divide d_model, positions that a table has, trees built alike.

Each is a `Rule` that stands in a signature beside a shape or a number. It raises in our words, or returns
nothing; its `turn` says whose letters it waits for.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import numpy as np

from npformer.arrays import is_array
from npformer.tree import walked
from npformer.validation import checks as validate
from npformer.validation.annotations import number
from npformer.validation.signature import Call, Rule


def rule(text: str, turn: int = 1, by_value: bool = False) -> Callable[[Callable[..., None]], Rule]:
    """Makes a rule of a function that asks one value."""
    return lambda ask: Rule(text, ask, turn, by_value=by_value)


# --- heads, and the pairs of columns that RoPE turns ----------------------------------------------


@rule("divides d_model", turn=2)
def HEADS(value: Any, name: str, call: Call) -> None:
    """Heads that divide d_model; their number is the letter h."""
    ask_divisor(value, name, call, "d_model", "d_model")
    call.letters["h"] = value


@rule("divides n_heads", turn=3)
def KV_HEADS(value: Any, name: str, call: Call) -> None:
    """As many heads of keys as divide the heads of queries."""
    ask_divisor(value, name, call, "h", "n_heads")


def ask_divisor(value: Any, name: str, call: Call, letter: str, whole: str) -> None:
    """A number of heads that share something evenly."""
    validate.check_integer(call.function, name, value, 1)
    if call.letters[letter] % value:
        call.refuse(f"{name} is {value}; expected a divisor of {whole}={call.letters[letter]}")


@rule("tells d_kv")
def KEY_WIDTH(W_Q: Any, name: str, call: Call) -> None:
    """Tells d_kv = n_kv_heads d_k, which is d_model where neither the call nor its config says n_kv_heads."""
    config, letters = call.arguments.get("config"), call.letters
    h, n_kv_heads = (call.arguments.get(a, getattr(config, a, None)) for a in ("n_heads", "n_kv_heads"))
    if n_kv_heads is None:
        letters["d_kv"] = letters["d_model"]
        return
    with suppress(TypeError, ValueError):  # of a wrong number its own rule will speak
        HEADS.ask(h, "n_heads", call)
        KV_HEADS.ask(n_kv_heads, "n_kv_heads", call)
        letters["d_kv"] = letters["d_model"] // letters["h"] * n_kv_heads


@rule("even")
def EVEN(value: Any, name: str, call: Call) -> None:
    """A number, or an array's last axis, that can be cut into pairs."""
    has_axes = hasattr(value, "ndim") and value.ndim
    what, d = (f"{name}'s last axis", value.shape[-1]) if has_axes else (name, value)
    if d % 2:
        call.refuse(f"{what} is {d}; expected an even number, a pair is two columns")


@rule("RoPE needs an even d_k", turn=3)
def EVEN_HEADS(value: Any, name: str, call: Call) -> None:
    """RoPE turns pairs of columns, so each head needs an even number of them."""
    d_model, h = call.letters["d_model"], call.letters["h"]
    if value in (True, "rope") and d_model // h % 2:
        given = f"d_model={d_model} and n_heads={h} give {d_model // h}"
        call.refuse(f"{name} is {value!r}; expected an even d_k, {given}")


@rule("even d_k")
def EVEN_HEAD(value: Any, name: str, call: Call) -> None:
    """The same, of a config that always has RoPE."""
    d_model = call.letters["d_model"]
    if d_model // value % 2:
        call.refuse(f"{name} is {value}; expected an even d_k, d_model={d_model} gives {d_model // value}")


Heads = Annotated[int, HEADS]
KVHeads = Annotated[int, KV_HEADS]


# --- positions: no more than there is room for ----------------------------------------------------


def room(whose: str, most: Callable[[Call, str], int | None], turn: int = 3) -> Rule:
    """At most so many positions, where a most is known."""

    def ask(x: Any, name: str, call: Call) -> None:
        T, limit = x.shape[-1 if x.dtype.kind in "iu" else -2], most(call, name)  # ids, or rows of numbers
        if limit is not None and T > limit:
            call.refuse(f"{name} has {T} positions; expected at most {whose}={limit}")

    return Rule("T <= max_length", ask, turn)


def rows_of_table(call: Call, name: str) -> int | None:
    """How many positions the model's learned table has, where there is one."""
    table = getattr(call.arguments["params"], name.replace("ids", "positions"))
    return None if table is None else len(table.P)


ROWS = room("the table's max_length", lambda call, name: len(call.arguments["params"].P), turn=2)
TABLE_ROWS = room("the learned table's max_length", rows_of_table)
CONFIG_ROOM = room("config.max_length", lambda call, name: call.arguments["config"].max_length)


@rule("<= the learned table's rows", turn=3)
def TABLE_LENGTH(max_length: Any, name: str, call: Call) -> None:
    """A text to be written that the learned table has rows for."""
    table = call.arguments["params"].target_positions
    if table is not None and max_length > len(table.P):
        call.refuse(f"{name} is {max_length}; expected at most the learned table's {len(table.P)} positions")


@rule("T + n <= max_length", turn=4)
def NEW_ROOM(n: Any, name: str, call: Call) -> None:
    """Tokens to be written for which there is room behind the prompt."""
    T, most = call.letters["T"], call.arguments["config"].max_length
    if T + n > most:
        given = f"the prompt has {T} positions and config.max_length={most}"
        call.refuse(f"{name} is {n}; expected at most {most - T}, {given}")


@rule("as config.positions says")
def TABLE(table: Any, name: str, call: Call) -> None:
    """A learned table stands where config.positions asks for one, and nowhere else."""
    config = call.arguments["config"]
    if config.positions != "learned":
        if table is not None:
            call.refuse(f"{name} is a table; expected None with config.positions={config.positions!r}")
    elif table is None:
        raise validate.wrong_kind(call.function, name, table, "a LearnedPositionsParams")
    elif len(table.P) != config.max_length:
        expected = f"expected config.max_length={config.max_length}"
        call.refuse(f"{name}.P has {len(table.P)} rows; {expected}")


# --- tokens ---------------------------------------------------------------------------------------


@rule("below vocab_size", turn=3, by_value=True)
def IN_VOCABULARY(ids: Any, name: str, call: Call) -> None:
    """Ids from 0 to vocab_size - 1, looked at on the host only."""
    validate.check_id_range(call.function, name, ids, call.letters["vocab_size"])


@rule("below vocab_size", turn=3)
def ID(value: Any, name: str, call: Call) -> None:
    """One id from 0 to vocab_size - 1."""
    validate.check_integer(call.function, name, value, 0)
    if value >= call.letters["vocab_size"]:
        call.refuse(f"{name} is {value}; expected an id from 0 to {call.letters['vocab_size'] - 1}")


@rule("one counts at least", turn=3, by_value=True)
def COUNTED(targets: Any, name: str, call: Call) -> None:
    """Those that count are in the vocabulary, and there is one at least."""
    ignore_index = call.arguments.get("ignore_index")
    if isinstance(targets, np.ndarray):
        counted = targets.ravel() if ignore_index is None else targets[targets != ignore_index]
        if counted.size == 0:
            call.refuse(f"{name} has no id that counts; expected at least one: there is nothing to average")
        validate.check_id_range(call.function, name, counted, call.letters["vocab_size"])


@rule("T >= 1", turn=3)
def PROMPT(ids: Any, name: str, call: Call) -> None:
    """At least one token in each row."""
    if ids.shape[-1] == 0:
        call.refuse(f"{name} has shape {ids.shape}; expected at least one token a row")


@rule("behind the tokens", turn=4, by_value=True)
def PADDING(padding_id: Any, name: str, call: Call) -> None:
    """Padding behind a row's last token only, looked at on the host."""
    ids = call.arguments["ids"]
    if padding_id is not None and isinstance(ids, np.ndarray):
        token = ids != padding_id  # (B, T)
        if not token[..., 0].all() or (token[..., 1:] & ~token[..., :-1]).any():
            call.refuse(f"ids has {name}={padding_id} before a token; expected it at the end only")


@rule("rng unless temperature=0", turn=4)
def DRAWS(n: Any, name: str, call: Call) -> None:
    """Drawing needs a generator; the likeliest token does not."""
    if call.arguments.get("temperature", 1.0) != 0:
        validate.check_generator(call.function, "rng", call.arguments.get("rng"))


Id = Annotated[int, ID]
Smoothing = Annotated[float, number("0 <= · <= 1", minimum=0, maximum=1)]
Share = Annotated[float, number("0 < · <= 1", above=0, maximum=1)]


# --- what fits to a config, an array or a cache ---------------------------------------------------


@rule("config.n_layers of them")
def LAYERS(blocks: Any, name: str, call: Call) -> None:
    """As many blocks as the config says."""
    n_layers = call.arguments["config"].n_layers
    if len(blocks) != n_layers:
        call.refuse(f"{name} holds {len(blocks)} blocks; expected config.n_layers={n_layers}")


@rule("iff untied")
def HEAD(head: Any, name: str, call: Call) -> None:
    """An own matrix stands where config.tied is False, and nowhere else."""
    tied = call.arguments["config"].tied
    if tied and head is not None:
        call.refuse(f"{name} is an array; expected None with config.tied=True")
    if not tied and head is None:
        raise validate.wrong_kind(call.function, name, head, "an array with config.tied=False")


@rule("an axis of scores", turn=2)
def AXIS(axis: Any, name: str, call: Call) -> None:
    """An axis that the scores have."""
    validate.check_integer(call.function, name, axis)
    scores = call.arguments["scores"]
    if not -scores.ndim <= axis < scores.ndim:
        call.refuse(f"{name} is {axis}; expected an axis of scores, shape {scores.shape}")


@rule("one number")
def ONE_NUMBER(dloss: Any, name: str, call: Call) -> None:
    """One number: of Python, or an array of no axes in the logits' dtype."""
    if isinstance(dloss, int | float):
        validate.check_number(call.function, name, dloss)
    else:
        validate.check_d_output(call.function, name, dloss, (), call.arguments["cache"].probabilities.dtype)


Axis = Annotated[int, AXIS]
DLoss = Annotated[Any, ONE_NUMBER]


# --- trees built alike ----------------------------------------------------------------------------


@rule("a tree of float arrays")
def FLOAT_TREE(params: Any, name: str, call: Call) -> None:
    """Every leaf is of float32 or float64."""
    for path, leaf in walked(call.function, params):
        validate.check_float(call.function, f"{name}.{path}".rstrip("."), leaf)


@rule("built like params")
def ALIKE(tree: Any, name: str, call: Call) -> None:
    """A tree with the parameters' NamedTuples, shapes and dtypes; only of another one is said where."""
    params = call.arguments["params"]
    with suppress(RecursionError):
        if are_alike(params, tree):
            return
    FLOAT_TREE.ask(params, "params", call)
    expected, found = (dict(walked(call.function, t)) for t in (params, tree))
    if list(found) != list(expected):
        wrong = sorted(found.keys() ^ expected.keys()) or ["their order"]
        leaves = f"expected the same leaves, they differ in {wrong[0]}"
        call.refuse(f"{name} is not built like params; {leaves}")
    for path, p in expected.items():
        validate.check_d_output(
            call.function, f"{name}.{path}".rstrip("."), found[path], p.shape, p.dtype, "the parameter"
        )
    call.refuse(f"{name} is not built like params; expected the same NamedTuples")


def are_alike(p: Any, other: Any) -> bool:
    """The same NamedTuples, with arrays of the same shape and float dtype."""
    if isinstance(p, tuple):
        return type(p) is type(other) and len(p) == len(other) and all(map(are_alike, p, other))
    if not (is_array(p) and is_array(other)):
        return p is other is None
    return p.shape == other.shape and p.dtype == other.dtype in validate.FLOATS


@rule("finite", turn=2, by_value=True)
def FINITE(grads: Any, name: str, call: Call) -> None:
    """Gradients without NaN and infinity, looked at on the host only."""
    for path, g in walked(call.function, grads):
        # one product finds NaN and infinity and allocates nothing; but its sum can overflow by itself
        if isinstance(g, np.ndarray) and not math.isfinite(np.vdot(g, g)) and not np.isfinite(g * g).all():
            place = f"{name}.{path}".rstrip(".")
            call.refuse(f"{place} holds NaN or a number too large to square; expected finite ones")


FloatTree = Annotated[Any, FLOAT_TREE]
LikeParams = Annotated[Any, ALIKE]
Gradients = Annotated[Any, ALIKE, FINITE]
