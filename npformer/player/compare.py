"""Find the first step at which a block differs from the worked example, by values or by probes.

A **station** is a step of the worked example. If a block returns its intermediate values, they are compared
with the stations of the same names.

If a block returns only its output, it is called with **probes**. A probe is an input and parameters that
leave only some parts of the block active: weights of 0 switch a sub-layer off, equal keys make the attention
weights equal, and a single token has only one key. Each probe tests one more station. So the first probe with
a wrong output shows which station differs.
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
from npformer.modern.causal_lm import CausalLMConfig, CausalLMParams, causal_lm_forward
from npformer.player.player_page import Mark, Player, add_banner, format_distinct, play
from npformer.player.port_mistakes import (
    Mistake,
    Port,
    describe,
    error_at,
    find_mistakes,
    find_simple_change,
    walk_stations,
)
from npformer.tree import leaves
from npformer.validation.checks import check_kind, wrong_kind
from npformer.validation.signature import checked

FLOAT32_ROUNDING = 1e-5  # a smaller error can come from parts that the original model computes in float32

Array = np.ndarray[Any, Any]
Block = Callable[..., Any]


class Comparison(NamedTuple):
    """The result of `compare`; true if no station differs. `reveal()` returns the two different numbers."""

    station: str = ""  # the first station that differs; empty if all stations agree
    place: tuple[int, ...] = ()  # the index of the first wrong cell, if values were compared
    expected: float = math.nan
    received: float = math.nan
    note: str = ""
    agreed: tuple[str, ...] = ()  # the stations that agree
    trace: Trace | None = None  # the reference, if it is a worked example
    mistakes: tuple[
        Mistake, ...
    ] = ()  # for a port or a dict of arrays: the changes that make the station agree
    largest_error: float = math.nan  # of the station, relative to its largest number
    tolerance: float = math.nan  # the allowed relative error
    not_compared: tuple[str, ...] = ()  # for two dicts of arrays: the stations that only the reference has
    layers_agree: bool = False  # for a port: whether each layer is correct if its input is correct
    right_texts: tuple[int, ...] = ()  # for a port or two dicts: the texts of the batch that are correct
    first_token: int = 0  # for a port or two dicts: the first position with a wrong number in any text

    def __bool__(self) -> bool:
        return not self.station

    def __repr__(self) -> str:
        lines = [self._describe_agreement() if self else self._describe_difference()]
        if self.agreed and not self:
            lines.append(f"right: {', '.join(self.agreed)}")
        if self.layers_agree:
            agreement = "each layer agrees if its input comes from the reference"
            lines.append(f"{agreement}: probably rounding errors that grow")
        elif not self.mistakes:
            lines.extend(self._describe_tokens())
        if self.mistakes:
            lines.append(f"equal with: {', or '.join(map(describe, self.mistakes))}")
        if self.not_compared:
            lines.append(f"not compared: {', '.join(self.not_compared)}")
        return "\n".join(lines)

    def _describe_agreement(self) -> str:
        if len(self.agreed) == 1:
            return f"agrees at 1 station, {self.agreed[0]}"
        return f"agrees at {len(self.agreed)} stations, from {self.agreed[0]} to {self.agreed[-1]}"

    def _describe_difference(self) -> str:
        """Name the station and its first wrong cell. Without a worked example, add the largest error."""
        where = f", first at {list(self.place)}" if self.place else ""
        sentence = f"differs at {self.station}{where}: {self.note}"
        if self.trace is not None or math.isnan(self.largest_error):
            return sentence
        sentence += f"; largest relative error {self.largest_error:.1e}, allowed {self.tolerance:.1e}"
        if self.largest_error < FLOAT32_ROUNDING and not self.layers_agree:
            sentence += "\nperhaps rounding: does the original model compute this part in float32?"
        return sentence

    def _describe_tokens(self) -> Iterator[str]:
        """Yield what the wrong texts and tokens say about a mistake that compare does not know."""
        if self.right_texts:
            yield f"right in the texts {list(self.right_texts)}: look at the mask of the padding"
        if self.first_token:
            yield f"tokens before {self.first_token} are right: look at RoPE, the scores and the masks"

    def _repr_html_(self) -> str:
        """Return the printed text and, if a station differs, the player at that station."""
        import html

        text = f"<pre>{html.escape(str(self))}</pre>"
        if self or self.trace is None:
            return text
        return text + self.play()._repr_html_()

    def play(self) -> Player:
        """Open the player at the station that differs. A banner says where and how it differs.

        The wrong cell is highlighted. The page hides its expected and its received number until the user asks
        for them. If all stations agree, the player opens at its start, and the banner says so.

        Returns
        -------
        player : Player

        Raises
        ------
        ValueError
            If the reference is not a worked example.
        """
        if self.trace is None:
            raise ValueError("play: only a trace can be played")
        if self:
            return add_banner(play(self.trace), f"Your block is correct. It {self!r}.", is_correct=True)
        banner = f"Yours first differs at {self.station}: {self.note}"
        if not self._has_cell:
            return add_banner(play(self.trace, at=self.station), banner)
        cell = int(np.ravel_multi_index(self.place, self.trace.named[self.station].value.shape))
        mark = Mark(self.station, cell, self.expected, self.received)
        return add_banner(play(self.trace, marks=[mark]), banner)

    def reveal(self) -> str:
        """Return the expected number and the received number as a sentence."""
        if not self._has_cell:
            return "no cell was compared: the output alone shows the station, not its numbers"
        expected, received = format_distinct(self.expected, self.received)
        return f"{self.station}{list(self.place)}: expected {expected}, received {received}"

    @property
    def _has_cell(self) -> bool:
        """Whether the comparison has an expected and a received number."""
        return not math.isnan(self.expected)


def compare(
    mine: Block | tuple[Block, Block] | Mapping[str, Array] | CausalLMParams,
    reference: Trace | Mapping[str, Array] | None = None,
    *,
    tolerance: float | None = None,
    config: CausalLMConfig | None = None,
    state: Mapping[str, Array] | None = None,
) -> Comparison:
    """Compare a block, or the values that a block calculated, with the worked example.

    A port of a causal model is compared with the activations of the original model.

    Parameters
    ----------
    mine : function, pair of functions, dict of arrays, or CausalLMParams
        - A function mine(x, params, config) that returns y, or (y, values). `values` is a dict or NamedTuple
          whose keys are names of the worked example: "Q", "scores", "norm_1.x_hat", "z" …
        - A pair (forward, backward). `forward` returns (y, cache), and `backward(dy, cache)` returns
          (dx, grads). `grads` has the field names of `params`.
        - A dict of values by name. If the reference is also a dict, and an array differs, compare reports a
          factor that makes the two arrays equal.
        - The parameters of a port. If a station differs, compare tries the known mistakes of ports on this
          layer, and reports the changes that make the arrays equal.
    reference : Trace or dict of arrays, optional
        The correct values: a trace, or a dict of arrays in order, such as the stored activations of a model's
        layers. "logits" is compared last. By default, the worked example. For a port, a dict with "ids" and
        some of "after block 0" (the embeddings), "after block 1", …, "logits".
    tolerance : float, optional
        The allowed error, relative to the largest number of a station. The default is 1e-6, or 1e-4 for
        float32.
    config : CausalLMConfig, optional
        The config of a port.
    state : dict of arrays, optional
        The arrays of a port's file. With them, compare can find an output matrix that was not used.

    Returns
    -------
    comparison : Comparison
        True if all stations agree. A printed comparison names the first station that differs; a notebook also
        shows the player.

    Raises
    ------
    ValueError
        If `mine` contains a name that no station of the reference has, or that several stations have.

    Examples
    --------
    >>> from npformer import encoder_block_forward
    >>> compare(encoder_block_forward)
    agrees at 21 stations, from s to attention.exp
    """
    if isinstance(mine, CausalLMParams):
        return _compare_port(mine, config, reference, state or {}, tolerance)
    reference = worked_example() if reference is None else reference
    if isinstance(mine, Mapping):
        if not isinstance(reference, Trace):
            return _compare_stations(mine, reference, tolerance)
        return _compare_by_name(mine, _reference_values(reference), tolerance)._replace(trace=reference)
    check_kind("compare", "reference", reference, Trace)
    functions = mine if isinstance(mine, tuple) else (mine,)
    if not all(callable(function) for function in functions):
        raise wrong_kind("compare", "mine", mine, "a function, two of them, or a dict")
    trace = cast(Trace, reference)
    return _compare_functions(trace, tolerance, *functions)._replace(trace=trace)


def _compare_functions(
    trace: Trace, tolerance: float | None, forward: Block, backward: Block | None = None
) -> Comparison:
    """Compare the results of a forward function and, if they are correct, those of its backward function."""
    returned = _call_on_example(forward, trace)
    returns_pair = isinstance(returned, tuple) and len(returned) == 2
    y, inner = returned if returns_pair else (returned, None)
    values = _named_values(inner, trace) | {"y": np.asarray(y)}
    if len(values) > 1:
        comparison = _compare_by_name(values, _reference_values(trace), tolerance)
    else:
        comparison = _compare_by_probes(forward, trace, tolerance)
    if not comparison or backward is None:
        return comparison
    dx, grads = backward(_sentences_of(trace, "d_y"), inner)
    gradients = {"d_x": dx}
    for path, gradient in leaves(grads):
        gradients[f"d_{path.removeprefix('params.')}"] = gradient
    return _compare_by_name(gradients, _reference_values(trace), tolerance)


def _compare_stations(mine: Mapping[str, Array], reference: Any, tolerance: float | None) -> Comparison:
    """Compare two dicts of arrays. If a station differs, look for a factor that makes both arrays equal."""
    correct = _reference_values(reference)
    if "logits" in correct:
        correct["logits"] = correct.pop("logits")  # moves the logits to the end
    unknown = mine.keys() - correct.keys()
    if unknown and correct.keys() < mine.keys():
        names = ", ".join(sorted(unknown))
        message = f"compare: mine holds {names}, which the reference lacks"
        raise ValueError(f"{message}; are the two arguments exchanged? The reference is the second one")
    comparison = _compare_by_name(mine, correct, tolerance)
    compared = {_station_name(name, correct) for name in mine}
    not_compared = tuple(name for name in correct if name not in compared and name != "ids")
    comparison = comparison._replace(not_compared=not_compared)
    if comparison or not comparison._has_cell:
        return comparison
    values = {_station_name(name, correct): np.asarray(value) for name, value in mine.items()}
    expected = correct[comparison.station]
    value = _join_sentences(values[comparison.station], expected)
    allowed = _tolerance_for(value, tolerance)
    found = find_simple_change(value, expected, allowed)
    return _add_wrong_tokens(comparison, value, expected)._replace(mistakes=found)


def _compare_port(
    params: CausalLMParams, config: Any, reference: Any, state: Mapping[str, Array], tolerance: float | None
) -> Comparison:
    """Compare a port with the stations of the original model. If one differs, try the known mistakes."""
    check_kind("compare", "config", config, CausalLMConfig)
    if not isinstance(reference, Mapping) or "ids" not in reference:
        raise wrong_kind("compare", "reference", reference, 'a dict with "ids" and the values of stations')
    ids = np.asarray(reference["ids"])
    checked(causal_lm_forward)(ids, params, config)  # for its error messages
    port = Port(params, config)
    mine = dict(walk_stations(params.embedding.E[ids], 0, port))
    correct = {name: np.asarray(reference[name]) for name in mine if name in reference}
    if not correct:
        raise ValueError(f"compare: reference holds no station; expected some of {', '.join(mine)}")
    comparison = _compare_by_name({name: mine[name] for name in correct}, correct, tolerance)
    if comparison:
        return comparison
    wrong_layer = _find_wrong_layer(port, mine, correct | {"ids": ids}, state, tolerance)
    return comparison._replace(layers_agree=True) if wrong_layer is None else wrong_layer


def _find_wrong_layer(
    port: Port,
    mine: Mapping[str, Array],
    reference: Mapping[str, Array],
    state: Mapping[str, Array],
    tolerance: float | None,
) -> Comparison | None:
    """Return the first layer that differs even if its input comes from the reference, or None."""
    allowed = _tolerance_for(port.params.embedding.E, tolerance)
    agreed: list[str] = []
    for station, value in mine.items():
        if station not in reference:
            continue
        difference = _first_difference(station, value, reference[station], tolerance)
        if difference is not None and not difference.place:  # the shape is wrong
            return difference._replace(agreed=tuple(agreed))
        if difference is None or error_at(station, reference, port) <= allowed:
            agreed.append(station)
            continue
        found = find_mistakes(station, reference, port, state, allowed)
        if not found:
            found = find_simple_change(value, reference[station], allowed)
        difference = _add_wrong_tokens(difference, value, reference[station])
        return difference._replace(agreed=tuple(agreed), mistakes=found)
    return None


def _add_wrong_tokens(comparison: Comparison, value: Array, expected: Array) -> Comparison:
    """Add which texts are correct, and the first wrong token, to a comparison of (texts …, T, columns)."""
    has_tokens = value.ndim > 2 and value.shape == expected.shape
    if not has_tokens:
        return comparison
    is_wrong = _is_wrong(value, expected, comparison.tolerance).any(axis=-1)  # (texts …, T)
    is_wrong = is_wrong.reshape(-1, is_wrong.shape[-1])  # (texts, T)
    right_texts = tuple(int(i) for i in np.flatnonzero(~is_wrong.any(axis=1)))
    first_token = int(np.argmax(is_wrong.any(axis=0)))
    return comparison._replace(right_texts=right_texts, first_token=first_token)


def _reference_values(reference: Any) -> dict[str, Array]:
    if isinstance(reference, Trace):
        return {name: step.value for name, step in reference.named.items()}
    if not isinstance(reference, Mapping):
        raise wrong_kind("compare", "reference", reference, "a trace, or a dict of arrays")
    return {name: _as_numbers(f"reference[{name!r}]", value) for name, value in reference.items()}


def _as_numbers(where: str, value: Any) -> Array:
    """Convert a value to an array of integers or floats. `where` names the value in the message."""
    array = np.asarray(value)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"compare: {where} has dtype {array.dtype}; expected integers or floats")
    return array


# Comparing values by name


def _named_values(inner: Any, trace: Trace) -> dict[str, Array]:
    """Return the arrays that a block returned in addition to its output, by name. Ignore unknown names."""
    if isinstance(inner, Mapping):
        values = dict(inner)
    elif hasattr(inner, "_asdict"):
        values = inner._asdict()
    else:
        values = {}
    short_names = {name.rpartition(".")[2] for name in trace.named}
    known_names = short_names | set(trace.named)
    return {
        name: np.asarray(value) for name, value in values.items() if name in known_names and value is not None
    }


def _compare_by_name(
    mine: Mapping[str, Any], reference: Mapping[str, Array], tolerance: float | None
) -> Comparison:
    """Return the first station of the reference at which `mine` differs."""
    if not mine:
        raise ValueError(f"compare: mine holds no station; expected some of {', '.join(reference)}")
    values = {
        _station_name(name, reference): _as_numbers(f"mine[{name!r}]", value) for name, value in mine.items()
    }
    agreed: list[str] = []
    for station, expected in reference.items():
        if station not in values:
            continue
        value = _join_sentences(values[station], expected)
        difference = _first_difference(station, value, expected, tolerance)
        if difference is not None:
            return difference._replace(agreed=tuple(agreed))
        agreed.append(station)
    return Comparison(agreed=tuple(agreed))


def _join_sentences(value: Array, expected: Array) -> Array:
    """Join the sentences of a batch along the rows, because the worked example has no batch axis."""
    extra_axes = value.ndim - expected.ndim
    if extra_axes > 0 and value.shape[extra_axes + 1 :] == expected.shape[1:]:
        return value.reshape(-1, *expected.shape[1:])
    return value


def _first_difference(
    station: str, value: Array, expected: Array, tolerance: float | None
) -> Comparison | None:
    """Return the first wrong cell of a station, or None if all cells are correct."""
    if value.shape != expected.shape:
        return Comparison(station, note=f"its shape is {value.shape}, expected {expected.shape}")
    allowed = _tolerance_for(value, tolerance)
    is_wrong = _is_wrong(value, expected, allowed)
    wrong = np.argwhere(is_wrong)
    if len(wrong) == 0:
        return None
    place = tuple(int(index) for index in wrong[0])
    note = f"{len(wrong)} of {expected.size} cells"
    n_nan = int(np.isnan(value).sum())
    if n_nan:
        note += f", {n_nan} of them NaN"
    return Comparison(
        station,
        place,
        float(expected[place]),
        float(value[place]),
        note,
        largest_error=_largest_relative_error(value, expected),
        tolerance=allowed,
    )


def _largest_relative_error(value: Array, expected: Array) -> float:
    """Return the largest error of the finite cells, relative to the largest finite expected number."""
    is_finite = np.isfinite(value) & np.isfinite(expected)
    if not is_finite.any():
        return math.nan
    largest = float(np.abs(expected[is_finite]).max())
    error = float(np.abs(value[is_finite] - expected[is_finite]).max())
    return error / largest if largest else math.inf


def _is_wrong(value: Array, expected: Array, tolerance: float) -> Array:
    """Return which cells are wrong. For a masked score (−∞), any number below -1e8 is correct."""
    is_masked = np.isneginf(expected)
    expected = np.where(is_masked, 0, expected)
    allowed = tolerance * max(float(np.abs(expected).max(initial=0)), 1e-300)
    is_very_negative = value < -1e8
    is_close = np.abs(value - expected) <= allowed  # False for NaN, so NaN is wrong
    return np.where(is_masked, ~is_very_negative, ~is_close)


def _station_name(name: str, reference: Mapping[str, Array]) -> str:
    """Return the full name of a station: "ffn.z" for "z", and "d_ffn.z" for "d_z"."""
    if name in reference:
        return name
    prefix, short_name = _split_prefix(name)
    matches = [
        station
        for station in reference
        if station.endswith(f".{short_name}") and _split_prefix(station)[0] == prefix
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        problem = f"{' and '.join(matches)} have this name"
    else:
        problem = f"expected one of {', '.join(reference)}"
    raise ValueError(f"compare: mine holds {name!r}; {problem}")


def _split_prefix(name: str) -> tuple[str, str]:
    """Return the prefix of a name and the rest: ("d_", "z") for "d_z", the gradient of z."""
    for prefix in ("d_", "new_"):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name


def _tolerance_for(value: Array, tolerance: float | None) -> float:
    if tolerance is not None:
        return tolerance
    return 1e-4 if value.dtype == np.float32 else 1e-6


# Comparing by probes

T, D, HEADS, FF = 5, 6, 3, 13  # different, so that swapped axes are an error; some probes need FF > 2 D
LARGE = 1e12  # norm(x + LARGE · a) = norm(a), up to rounding errors
Arrays = Sequence[Array]


class _Probe(NamedTuple):
    """A call of the block that tests one station.

    Without a second call, the output must equal the output of `encoder_block_forward`. With a second call,
    the outputs of both calls must be equal, or different if `must_differ` is True.
    """

    station: str
    x: Array
    params: EncoderBlockParams
    second_call: tuple[Array, EncoderBlockParams] | None = None
    must_differ: bool = False
    only_direction: bool = False  # whether `_direction` normalizes both outputs first
    mask: Array | None = None


def _make_block(
    attention: Arrays | None = None,
    norm_1: Arrays | None = None,
    ffn: Arrays | None = None,
    norm_2: Arrays | None = None,
) -> EncoderBlockParams:
    """Return a block. An omitted sub-layer has zero weights; an omitted norm has gamma = 1 and beta = 0."""
    zero_attention = [np.zeros((D, D))] * 4
    zero_ffn = [np.zeros((D, FF)), np.zeros(FF), np.zeros((FF, D)), np.zeros(D)]
    plain_norm = [np.ones(D), np.zeros(D)]
    return EncoderBlockParams(
        AttentionParams(*(zero_attention if attention is None else attention)),
        LayerNormParams(*(plain_norm if norm_1 is None else norm_1)),
        FFNParams(*(zero_ffn if ffn is None else ffn)),
        LayerNormParams(*(plain_norm if norm_2 is None else norm_2)),
    )


def _make_probes() -> Iterator[_Probe]:
    normal = np.random.default_rng(5).standard_normal
    yield from _norm_probes(normal)
    yield from _ffn_probes(normal)
    yield from _attention_probes(normal)


def _random_ffn(normal: Callable[..., Array]) -> list[Array]:
    return [normal((D, FF)), normal(FF), normal((FF, D)), normal(D)]


def _norm_probes(normal: Callable[..., Array]) -> Iterator[_Probe]:
    """Yield probes of the residuals and of both norms.

    In most of these probes, the sub-layers have zero weights. The second norm rescales the output of the
    first norm. So probes of the first norm compare only the directions of rows.
    """
    unscaled_x, gamma, beta = normal((T, D)), normal(D), normal(D)
    x = 30 * unscaled_x
    with_ffn = _make_block(ffn=_random_ffn(normal))
    other_x = 30 * normal((T, D))
    shifted_x = x + 10 * normal((T, 1))
    yield _Probe("s", x, with_ffn, second_call=(other_x, with_ffn), must_differ=True)
    yield from _norm_place_probes(x, gamma, beta)
    yield from _norm_mean_probes(x, shifted_x, gamma)
    yield from _first_norm_probes(unscaled_x, gamma, beta)
    yield from _second_norm_probes(x, gamma, beta)


def _norm_place_probes(x: Array, gamma: Array, beta: Array) -> Iterator[_Probe]:
    off = _make_block()
    with_norm_1 = _make_block(norm_1=(gamma, beta))
    with_norm_2 = _make_block(norm_2=(gamma, beta))
    # The second call of the first probe equals its first call, so `_other_output` compares the output with x.
    yield _Probe("h", x, off, second_call=(x, off), must_differ=True)
    yield _Probe("y", x, off, second_call=(x, with_norm_2), must_differ=True)
    yield _Probe("t", x, off, second_call=(x, with_norm_1), must_differ=True)


def _norm_mean_probes(x: Array, shifted_x: Array, gamma: Array) -> Iterator[_Probe]:
    """Yield probes that add a constant to each row. A norm that subtracts the mean gives the same output."""
    ones, zeros = np.ones(D), np.zeros(D)
    with_gamma = _make_block(norm_1=(gamma, zeros))
    yield _Probe("norm_1.mean", x, with_gamma, second_call=(shifted_x, with_gamma), only_direction=True)
    yield _Probe("norm_2.mean", x, _make_block(), second_call=(x, _make_block(norm_1=(ones, 3 * ones))))


def _first_norm_probes(unscaled_x: Array, gamma: Array, beta: Array) -> Iterator[_Probe]:
    """Yield probes of the first norm's gamma, beta, variance and eps."""
    x = 30 * unscaled_x
    with_beta = _make_block(norm_1=(np.ones(D), beta))
    with_both = _make_block(norm_1=(gamma, beta))
    yield _Probe("h", x, _make_block(), second_call=(x, with_beta), must_differ=True)
    yield _Probe("norm_1.std", x, with_beta, second_call=(2 * x, with_beta), only_direction=True)
    yield _Probe("norm_1.variance", x, with_beta, only_direction=True)
    yield _Probe("norm_1.std", unscaled_x / 300, with_beta, only_direction=True)
    yield _Probe("h", x, with_both, only_direction=True)


def _second_norm_probes(x: Array, gamma: Array, beta: Array) -> Iterator[_Probe]:
    ones, zeros = np.ones(D), np.zeros(D)
    scaled_30 = _make_block(norm_1=(30 * ones, zeros))
    scaled_60 = _make_block(norm_1=(60 * ones, zeros))
    yield _Probe("norm_2.std", x, scaled_30, second_call=(x, scaled_60))
    yield _Probe("norm_2.variance", x, scaled_30)
    yield _Probe("norm_2.std", x, _make_block(norm_1=(ones / 300, zeros)))
    yield _Probe("y", x, _make_block(norm_1=(gamma, beta), norm_2=(beta, gamma)))


def _ffn_probes(normal: Callable[..., Array]) -> Iterator[_Probe]:
    """Yield probes of the feed-forward network.

    ReLU(z) - ReLU(-z) = z, so with W_1 = [B, -B] and W_2 = [A, -A]ᵀ and b_1 = [c, -c] the network
    computes (x B + c) A. A different activation, such as leaky ReLU, only multiplies this result by a factor.
    The norm removes this factor. A is LARGE, so rounding removes the residual x.
    """
    A, B, c = LARGE * normal((D, D)), normal((D, D)), normal(D)
    x = _direction(normal((T, D))) * np.sqrt(D)  # rows with mean 0 and variance 1, which norms do not change
    zeros, eye = np.zeros(D), np.eye(D)
    unused = np.zeros((D, FF - 2 * D))  # the weights of hidden units that the probe does not use

    def make_linear_block(B: Array, c: Array, A: Array, b_2: Array) -> EncoderBlockParams:
        W_1 = np.hstack([B, -B, unused])
        b_1 = np.concatenate([c, -c, unused[0]])
        W_2 = np.vstack([A, -A, unused.T])
        return _make_block(ffn=[W_1, b_1, W_2, b_2])

    yield _Probe("f", x, make_linear_block(0 * B, zeros, 0 * A, c))
    yield _Probe("f", x, make_linear_block(eye, zeros, A, zeros))
    yield _Probe("ffn.z", x, make_linear_block(B, zeros, A, zeros))
    yield _Probe("ffn.z", 3 * x + 1, make_linear_block(B, c, A, zeros))
    yield _Probe("ffn.hidden", x, _make_block(ffn=_random_ffn(normal)))


def _attention_probes(normal: Callable[..., Array]) -> Iterator[_Probe]:
    """Yield probes of the attention, from the values to the mask."""
    eye, zero, all_ones = np.eye(D), np.zeros((D, D)), np.ones((D, D))
    diagonal = np.diag(np.arange(1.0, D + 1))
    x = normal((T, D))
    W_Q, W_K, W_V, W_O = normal((4, D, D))
    equal_sums = x - x.mean(-1, keepdims=True) + 0.5  # rows with equal sums: x @ all_ones is constant
    full = _make_block((W_Q, W_K, W_V, W_O))
    without_W_Q = _make_block((eye, W_K, W_V, W_O))
    without_W_K = _make_block((W_Q, eye, W_V, W_O))
    # A single token has only one key, with attention weight 1. A wrong weight would multiply the result by a
    # factor, and the norm removes this factor.
    yield _Probe("attention.V", equal_sums[:1], _make_block((all_ones, all_ones, LARGE * W_V, eye)))
    yield _Probe("a", equal_sums[:1], _make_block((all_ones, all_ones, W_V, LARGE * W_O)))
    # First probe: all values are equal, so only the sum of the weights matters. Second probe: all scores are
    # 0, so only the split into heads matters.
    yield _Probe("attention.weights", equal_sums, _make_block((W_Q, W_K, all_ones, diagonal)))
    yield _Probe("attention.heads", x, _make_block((zero, zero, W_V, W_O)))
    # Test queries and keys, first with identity matrices as W_Q and W_K, then with random ones.
    yield _Probe("attention.scores", x, _make_block((eye, eye, W_V, W_O)))
    yield _Probe("attention.Q", x, full, second_call=(x, without_W_Q), must_differ=True)
    yield _Probe("attention.K", x, full, second_call=(x, without_W_K), must_differ=True)
    yield _Probe("attention.Q", x, without_W_K)
    yield _Probe("attention.K", x, without_W_Q)
    yield _Probe("attention.scores", x, full)
    yield _Probe("attention.exp", x, _make_block((30 * W_Q, 30 * W_K, W_V, W_O)))
    yield _Probe("attention.weights", x, full, mask=causal_mask(T))


def _compare_by_probes(forward: Block, trace: Trace, tolerance: float | None) -> Comparison:
    """Call the block with every probe until one fails. If none fails, call it with the trace's sentences."""
    config = trace.example.config._replace(d_model=D, n_heads=HEADS, d_ff=FF)
    agreed: dict[str, None] = {}  # an ordered set
    for probe in _probes_for(forward, trace):
        try:
            note = _find_failure(forward, probe, config, tolerance)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            size = f"{len(probe.x)} tokens of {D} numbers, {HEADS} heads"
            note = f"{type(error).__name__} with {size}: {error}"
        if note:
            agreed.pop(probe.station, None)
            return Comparison(probe.station, note=note, agreed=tuple(agreed))
        agreed[probe.station] = None
    y = _output_of(_call_on_example(forward, trace))
    comparison = _compare_by_name({"y": y}, _reference_values(trace), tolerance)
    return comparison._replace(agreed=tuple(agreed) or comparison.agreed)


def _probes_for(forward: Block, trace: Trace) -> list[_Probe]:
    """Return the probes that fit the block. There are only probes for post-norm blocks with layer norm."""
    example = trace.example
    is_paper_block = example.config.norm == "post" and isinstance(example.block.norm_1, LayerNormParams)
    takes_mask = _takes_mask(forward)
    if not is_paper_block or (example.causal and not takes_mask):
        return []
    return [probe for probe in _make_probes() if takes_mask or probe.mask is None]


def _takes_mask(forward: Block) -> bool:
    import inspect  # imported here, as it takes a fifth of the time of `import npformer`

    return "mask" in inspect.signature(forward).parameters


def _sentences_of(trace: Trace, name: str) -> Array:
    """Return a copy of a value of the trace, with a batch axis if the trace has several sentences."""
    value, n_sentences = trace.named[name].value, trace.example.sentences
    if n_sentences > 1:
        value = value.reshape(n_sentences, -1, value.shape[-1])
    return value.copy()


def _call_on_example(forward: Block, trace: Trace) -> Any:
    """Call a block with the sentences of the trace, and with a causal mask if the example needs one."""
    x, example = _sentences_of(trace, "x"), trace.example
    if example.causal and _takes_mask(forward):
        return forward(x, example.block, example.config, mask=causal_mask(x.shape[-2]))
    return forward(x, example.block, example.config)


def _output_of(returned: Any) -> Array:
    """Return the output of a block: the returned value, or the first item of a returned tuple."""
    return np.asarray(returned[0] if isinstance(returned, tuple) else returned)


def _find_failure(forward: Block, probe: _Probe, config: TransformerConfig, tolerance: float | None) -> str:
    """Return a message about the wrong output of the block for a probe, or "" if the output is correct."""
    if probe.mask is None:
        y = _output_of(forward(probe.x.copy(), probe.params, config))
    else:
        y = _output_of(forward(probe.x.copy(), probe.params, config, mask=probe.mask))
    if y.shape != probe.x.shape:
        return f"its output has shape {y.shape} for an x of shape {probe.x.shape}"
    other, note = _other_output(forward, probe, config)
    if probe.only_direction:
        y, other = _direction(y), _direction(other)
    is_equal = np.abs(y - other).max() <= _tolerance_for(y, tolerance) * np.abs(other).max()
    is_wrong = is_equal == probe.must_differ
    return note if is_wrong else ""


def _other_output(forward: Block, probe: _Probe, config: TransformerConfig) -> tuple[Array, str]:
    """Return an array to compare the block's output with, and the message for a failed comparison."""
    if probe.second_call is None:
        expected = encoder_block_forward(probe.x, probe.params, config, mask=probe.mask)[0]
        return expected, "this is the first input for which the two outputs differ"
    x, params = probe.second_call
    if x is probe.x and params is probe.params:
        # The second call would repeat the first call, so the output is compared with x instead.
        return x, "without both sub-layers, the output equals x: where are the norms?"
    y = _output_of(forward(x.copy(), params, config))
    if probe.must_differ:
        return y, "the output should change here, and it does not"
    return y, "the output should not change here, and it does"


def _direction(y: Array) -> Array:
    """Subtract the mean of each row and scale the row to length 1. This removes the last norm's scale."""
    y = y - y.mean(-1, keepdims=True)
    length = np.sqrt((y * y).sum(-1, keepdims=True))
    return np.asarray(y / np.maximum(length, 1e-300))
