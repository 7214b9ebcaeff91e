"""At which station does my block first differ? Yours beside the worked example's, by values or by inputs.

Where a block hands out what it has calculated on the way, names are compared with names. Where it hands out
its output alone, it is called with inputs that leave one more station on each time: a weight of 0 switches a
part off, equal keys make the weights equal, a single token leaves nothing to choose from. The first call
whose output differs is the one whose station is not ours.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from npformer.attention import AttentionParams, causal_mask
from npformer.config import TransformerConfig
from npformer.encoder import EncoderBlockParams, encoder_block_forward
from npformer.feed_forward import FFNParams
from npformer.layer_norm import LayerNormParams
from npformer.lessons.worked_example import Trace, worked_example
from npformer.player.player_page import Mark, Player, format_distinct, play
from npformer.tree import leaves
from npformer.validation.checks import check_kind, wrong_kind

Array = np.ndarray[Any, Any]
Block = Callable[..., Any]


class Comparison(NamedTuple):
    """The first station that differs; true when none does. `reveal()` shows the two numbers."""

    station: str = ""  # empty when everything agrees
    place: tuple[int, ...] = ()  # its first wrong cell, where values were compared
    expected: float = math.nan
    received: float = math.nan
    note: str = ""
    agreed: tuple[str, ...] = ()  # the stations that were found right
    trace: Trace | None = None  # what it was held against, if that can be played

    def __bool__(self) -> bool:
        return not self.station

    def __repr__(self) -> str:
        if self:
            return f"agrees at {len(self.agreed)} stations, from {self.agreed[0]} to {self.agreed[-1]}"
        where = f", first at {list(self.place)}" if self.place else ""
        right = f"\nright: {', '.join(self.agreed)}" if self.agreed else ""
        return f"differs at {self.station}{where}: {self.note}{right}"

    def _repr_html_(self) -> str:
        """In a notebook: what `print` says, and the player at that station, its first wrong cell lit."""
        import html

        says = f"<pre>{html.escape(str(self))}</pre>"
        return says if self.trace is None or self else says + self.play()._repr_html_()

    def play(self) -> Player:
        """The player at the station that differs; the wrong cell keeps both numbers until they are asked for.

        Raises ValueError when all agrees, or when what it was held against is no worked example.
        """
        if self.trace is None or self:
            raise ValueError("play: all stations agree" if self else "play: only a trace can be played")
        if math.isnan(self.expected):  # no cell was compared
            return play(self.trace, at=self.station)
        cell = int(np.ravel_multi_index(self.place, self.trace.named[self.station].value.shape))
        return play(self.trace, marks=[Mark(self.station, cell, self.expected, self.received)])

    def reveal(self) -> str:
        """What was expected and what came."""
        if math.isnan(self.expected):
            return "no cell was compared: the output alone shows the station, not its numbers"
        expected, received = format_distinct(self.expected, self.received)
        return f"{self.station}{list(self.place)}: expected {expected}, received {received}"


def compare(
    mine: Block | tuple[Block, Block] | Mapping[str, Array],
    reference: Trace | Mapping[str, Array] | None = None,
    *,
    tolerance: float | None = None,
) -> Comparison:
    """Hold a block, or the values it has calculated, against the worked example: the first that differs.

    mine is one of: a function called as mine(x, params, config) on the worked example's arrays, which returns
    y, or y and what it calculated on the way (a dict or NamedTuple by the worked example's names: "Q",
    "scores", "norm_1.x_hat", "z" …); a pair (forward, backward) of such functions, where forward returns
    (y, cache) and backward(dy, cache) the gradients (dx, grads), grads with the names of params; or a dict of
    values by name. reference is what is right: a trace, or a dict of arrays in order, such as the stored
    activations of a model's layers. tolerance is relative to a station's largest number: 1e-6 unless given,
    1e-4 for float32.

    Raises TypeError for another kind of mine or reference, ValueError for a name that the reference does not
    have, or that two of its stations have.

    >>> from npformer import encoder_block_forward
    >>> compare(encoder_block_forward)
    agrees at 21 stations, from s to attention.exp
    """
    reference = worked_example() if reference is None else reference
    if isinstance(mine, Mapping):
        found = _by_name(mine, _values(reference), tolerance)
        return found._replace(trace=reference if isinstance(reference, Trace) else None)
    check_kind("compare", "reference", reference, Trace)
    functions = mine if isinstance(mine, tuple) else (mine,)
    if not all(map(callable, functions)):
        raise wrong_kind("compare", "mine", mine, "a function, two of them, or a dict")
    trace = cast(Trace, reference)
    return _by_calls(trace, tolerance, *functions)._replace(trace=trace)


def _by_calls(
    trace: Trace, tolerance: float | None, forward: Block, backward: Block | None = None
) -> Comparison:
    """What a forward returns, then, if all of that is right, what its backward does."""
    returned = _played(forward, trace)
    y, inner = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
    seen = _named(inner, trace) | {"y": np.asarray(y)}
    named = len(seen) > 1
    found = _by_name(seen, _values(trace), tolerance) if named else _by_inputs(forward, trace, tolerance)
    if not found or backward is None:
        return found
    dx, grads = backward(_sentences(trace, "d_y"), inner)
    wrong = {"d_x": dx} | {f"d_{path.removeprefix('params.')}": g for path, g in leaves(grads)}
    return _by_name(wrong, _values(trace), tolerance)


def _values(reference: Any) -> dict[str, Array]:
    if isinstance(reference, Trace):
        return {name: step.value for name, step in reference.named.items()}
    if not isinstance(reference, Mapping):
        raise wrong_kind("compare", "reference", reference, "a trace, or a dict of arrays")
    return {name: np.asarray(value) for name, value in reference.items()}


# By name


def _named(inner: Any, trace: Trace) -> dict[str, Array]:
    """The arrays that a block handed out and that have a station's name."""
    given = inner if isinstance(inner, Mapping) else getattr(inner, "_asdict", dict)()
    known = {name.rpartition(".")[2] for name in trace.named} | {*trace.named}
    return {name: np.asarray(v) for name, v in given.items() if name in known and v is not None}


def _by_name(mine: Mapping[str, Any], right: Mapping[str, Array], tolerance: float | None) -> Comparison:
    """The first of the reference's stations at which mine differs."""
    places = {_full(name, right): np.asarray(value) for name, value in mine.items()}
    agreed: list[str] = []
    for name in (name for name in right if name in places):
        value, expected = places[name], right[name]
        if value.ndim > expected.ndim and value.shape[value.ndim - expected.ndim + 1 :] == expected.shape[1:]:
            value = value.reshape(-1, *expected.shape[1:])  # a batch's sentences follow each other
        if value.shape != expected.shape:
            note = f"its shape is {value.shape}, expected {expected.shape}"
            return Comparison(name, note=note, agreed=tuple(agreed))
        wrong = np.argwhere(_differs(value, expected, _tolerance(value, tolerance)))
        if len(wrong):
            place = tuple(map(int, wrong[0]))
            note = f"{len(wrong)} of {expected.size} cells"
            return Comparison(name, place, float(expected[place]), float(value[place]), note, tuple(agreed))
        agreed.append(name)
    return Comparison(agreed=tuple(agreed))


def _differs(value: Array, expected: Array, tolerance: float) -> Array:
    """Which cells do; for the −∞ of a hidden score, any number far below 0 will do."""
    hidden = np.isneginf(expected)
    expected = np.where(hidden, 0, expected)
    allowed = tolerance * max(float(np.abs(expected).max(initial=0)), 1e-300)
    return np.where(hidden, ~(value < -1e8), ~(np.abs(value - expected) <= allowed))


def _full(name: str, right: Mapping[str, Array]) -> str:
    """A station's whole name: "z" is "ffn.z", of the first pass, and "new_z" that of the second."""
    last, way = _way(name)
    fits = [full for full in right if full == name] or [
        full for full in right if full.endswith(f".{last}") and _way(full)[1] == way
    ]
    if len(fits) == 1:
        return fits[0]
    why = f"{' and '.join(fits)} have this name" if fits else f"expected one of {', '.join(right)}"
    raise ValueError(f"compare: mine holds {name!r}; {why}")


def _way(name: str) -> tuple[str, str]:
    """What a name is about, and of which pass: ("z", "d_") for "d_z", the gradient of z."""
    way = next((way for way in ("d_", "new_") if name.startswith(way)), "")
    return name.removeprefix(way), way


def _tolerance(value: Array, given: float | None) -> float:
    return given if given is not None else 1e-4 if value.dtype == np.float32 else 1e-6


# By inputs that leave one more station on each time

T, D, HEADS, FF = 5, 6, 3, 13  # all different, and FF > 2 D
FAR = 1e12  # the norm of x + FAR · a is that of a
Arrays = Sequence[Array]


class _Rung(NamedTuple):
    """One call more: what it is given, and which station its output shows.

    The output should be the reference's; or, with `beside`, that of a second call: the same one where
    `matters` is false, another one where it is true.
    """

    station: str
    x: Array
    params: EncoderBlockParams
    beside: tuple[Array, EncoderBlockParams] | None = None
    matters: bool = False
    direction: bool = False  # all that is looked at: each row less its mean, of length 1
    mask: Array | None = None


def _block(
    attention: Arrays | None = None, norm_1: Arrays = (), ffn: Arrays | None = None, norm_2: Arrays = ()
) -> EncoderBlockParams:
    """A block in which what is not given is switched off, and a norm plain."""
    zero, plain = np.zeros((D, D)), (np.ones(D), np.zeros(D))
    nothing = FFNParams(np.zeros((D, FF)), np.zeros(FF), np.zeros((FF, D)), np.zeros(D))
    return EncoderBlockParams(
        AttentionParams(*attention or 4 * (zero,)),
        LayerNormParams(*norm_1 or plain),
        FFNParams(*ffn or nothing),
        LayerNormParams(*norm_2 or plain),
    )


def _rungs() -> Iterator[_Rung]:
    normal = np.random.default_rng(5).standard_normal
    yield from _norm_rungs(normal)
    yield from _ffn_rungs(normal)
    yield from _attention_rungs(normal)


def _norm_rungs(normal: Callable[..., Array]) -> Iterator[_Rung]:
    """What goes past a sub-layer has to arrive, each norm to be in its place; then mean, scale and eps.

    The first norm is seen through the second, whose own scale the direction of its output leaves out.
    """
    X, gamma, beta, ones, zeros = normal((T, D)), normal(D), normal(D), np.ones(D), np.zeros(D)
    x, off, on = 30 * X, _block(), _block(ffn=[normal((D, FF)), normal(FF), normal((FF, D)), normal(D)])
    bent, shifted, both = (_block(norm_1=norm) for norm in ((gamma, zeros), (ones, beta), (gamma, beta)))
    large, larger = _block(norm_1=(30 * ones, zeros)), _block(norm_1=(60 * ones, zeros))
    yield _Rung("s", x, on, beside=(30 * normal((T, D)), on), matters=True)
    yield _Rung("h", x, off, beside=(x, off), matters=True)  # x itself: see `_broken`
    yield _Rung("y", x, off, beside=(x, _block(norm_2=(gamma, beta))), matters=True)
    yield _Rung("t", x, off, beside=(x, both), matters=True)
    yield _Rung("norm_1.mean", x, bent, beside=(x + 10 * normal((T, 1)), bent), direction=True)
    yield _Rung("norm_2.mean", x, off, beside=(x, _block(norm_1=(ones, 3 * ones))))
    yield _Rung("h", x, off, beside=(x, shifted), matters=True)
    yield _Rung("norm_1.std", x, shifted, beside=(2 * x, shifted), direction=True)
    yield _Rung("norm_1.variance", x, shifted, direction=True)
    yield _Rung("norm_1.std", X / 300, shifted, direction=True)
    yield _Rung("h", x, both, direction=True)
    yield _Rung("norm_2.std", x, large, beside=(x, larger))
    yield _Rung("norm_2.variance", x, large)
    yield _Rung("norm_2.std", x, _block(norm_1=(ones / 300, zeros)))
    yield _Rung("y", x, _block(norm_1=(gamma, beta), norm_2=(beta, gamma)))


def _ffn_rungs(normal: Callable[..., Array]) -> Iterator[_Rung]:
    """ReLU(z) - ReLU(-z) = z: with W_1 = [B, -B] and W_2 = [A, -A]ᵀ the activation is a factor at most.

    No factor is seen where the FFN's output is so large that nothing else is left after the norm.
    """
    A, B, c, zero = FAR * normal((D, D)), normal((D, D)), normal(D), np.zeros(D)
    x, none = _direction(normal((T, D))) * np.sqrt(D), np.zeros((D, FF - 2 * D))  # the norm leaves this x

    def ffn(B: Array, c: Array, A: Array, b_2: Array) -> EncoderBlockParams:
        W_1, W_2 = np.hstack([B, -B, none]), np.vstack([A, -A, none.T])
        return _block(ffn=[W_1, np.concatenate([c, -c, none[0]]), W_2, b_2])

    yield _Rung("f", x, ffn(0 * B, zero, 0 * A, c))
    yield _Rung("f", x, ffn(np.eye(D), zero, A, zero))
    yield _Rung("ffn.z", x, ffn(B, zero, A, zero))
    yield _Rung("ffn.z", 3 * x + 1, ffn(B, c, A, zero))
    yield _Rung("ffn.hidden", x, _block(ffn=[normal((D, FF)), normal(FF), normal((FF, D)), normal(D)]))


def _attention_rungs(normal: Callable[..., Array]) -> Iterator[_Rung]:
    """One token's weight is a factor. Equal values show the weights' sum, no scores the heads; then all."""
    eye, zero, few, all_1 = np.eye(D), np.zeros((D, D)), np.diag(np.arange(1.0, D + 1)), np.ones((D, D))
    x, (W_Q, W_K, W_V, W_O) = normal((T, D)), normal((4, D, D))
    level = x - x.mean(-1, keepdims=True) + 0.5  # rows of one sum: x all_1 is one number everywhere
    both = _block((W_Q, W_K, W_V, W_O))
    yield _Rung("attention.V", level[:1], _block((all_1, all_1, FAR * W_V, eye)))
    yield _Rung("a", level[:1], _block((all_1, all_1, W_V, FAR * W_O)))
    yield _Rung("attention.weights", level, _block((W_Q, W_K, all_1, few)))
    yield _Rung("attention.heads", x, _block((zero, zero, W_V, W_O)))
    yield _Rung("attention.scores", x, _block((eye, eye, W_V, W_O)))
    yield _Rung("attention.Q", x, both, beside=(x, _block((eye, W_K, W_V, W_O))), matters=True)
    yield _Rung("attention.K", x, both, beside=(x, _block((W_Q, eye, W_V, W_O))), matters=True)
    yield _Rung("attention.Q", x, _block((W_Q, eye, W_V, W_O)))
    yield _Rung("attention.K", x, _block((eye, W_K, W_V, W_O)))
    yield _Rung("attention.scores", x, both)
    yield _Rung("attention.exp", x, _block((30 * W_Q, 30 * W_K, W_V, W_O)))
    yield _Rung("attention.weights", x, both, mask=causal_mask(T))


def _by_inputs(forward: Block, trace: Trace, tolerance: float | None) -> Comparison:
    """Climb until a rung breaks, then look at the sentence itself. The rungs are the paper's block's."""
    config = trace.example.config._replace(d_model=D, n_heads=HEADS, d_ff=FF)
    takes_mask = _takes_mask(forward)
    agreed: dict[str, None] = {}
    plain = config.norm == "post" and isinstance(trace.example.block.norm_1, LayerNormParams)
    climbs = plain and (takes_mask or not trace.example.causal)
    for rung in (rung for rung in _rungs() if climbs and (takes_mask or rung.mask is None)):
        try:
            note = _broken(forward, rung, config, tolerance)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as fault:
            note = f"{type(fault).__name__} with {len(rung.x)} tokens of {D} numbers, {HEADS} heads: {fault}"
        if note:
            agreed.pop(rung.station, None)
            return Comparison(rung.station, note=note, agreed=tuple(agreed))
        agreed[rung.station] = None
    found = _by_name({"y": _output(_played(forward, trace))}, _values(trace), tolerance)
    return found._replace(agreed=tuple(agreed) or found.agreed)


def _takes_mask(forward: Block) -> bool:
    import inspect  # costs a fifth of the package's own import time

    return "mask" in inspect.signature(forward).parameters


def _sentences(trace: Trace, name: str) -> Array:
    value, several = trace.named[name].value, trace.example.sentences
    return value.reshape(several, -1, value.shape[-1]).copy() if several > 1 else value.copy()


def _played(forward: Block, trace: Trace) -> Any:
    """What a block makes of the player's sentence."""
    x, example = _sentences(trace, "x"), trace.example
    masked = {"mask": causal_mask(x.shape[-2])} if example.causal and _takes_mask(forward) else {}
    return forward(x, example.block, example.config, **masked)


def _output(returned: Any) -> Array:
    return np.asarray(returned[0] if isinstance(returned, tuple) else returned)


def _broken(forward: Block, rung: _Rung, config: TransformerConfig, tolerance: float | None) -> str:
    """What is not as it should be on this rung, or ""."""
    masked = {} if rung.mask is None else {"mask": rung.mask}
    y = _output(forward(rung.x.copy(), rung.params, config, **masked))
    if y.shape != rung.x.shape:
        return f"its output has shape {y.shape} for an x of shape {rung.x.shape}"
    if rung.beside is None:
        right = encoder_block_forward(rung.x, rung.params, config, mask=rung.mask)[0]
        note = "the first input that gives another output isolates it"
    elif rung.beside[1] is rung.params and rung.beside[0] is rung.x:
        right, note = rung.x, "with both sub-layers off, x comes out as it went in: where do the norms stand?"
    else:
        right = _output(forward(rung.beside[0].copy(), rung.beside[1], config))
        note = f"what should {'' if rung.matters else 'not '}matter here does{' not' * rung.matters}"
    if rung.direction:
        y, right = _direction(y), _direction(right)
    same = np.abs(y - right).max() <= _tolerance(y, tolerance) * np.abs(right).max()
    return "" if same != rung.matters else note


def _direction(y: Array) -> Array:
    """Each row less its mean, of length 1: whatever scale the last norm has."""
    y = y - y.mean(-1, keepdims=True)
    return np.asarray(y / np.maximum(np.sqrt((y * y).sum(-1, keepdims=True)), 1e-300))
