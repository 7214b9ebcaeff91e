"""What an answer does when its arguments change: which it does not use, and which it should not see.

The student's function is called again, with one thing changed at a time, beside the right one.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.exercises.probes import Arguments, Subject
from npformer.exercises.relations import Seen, close, named_factor, tried
from npformer.exercises.runs import run

Function = Callable[..., Any]


class Trial(NamedTuple):
    """One output of a student's function, to be called again."""

    subject: Subject
    function: Function
    output: int
    sizes: tuple[dict[str, int], ...]
    memo: dict[Any, tuple[Array, ...]]  # the answers so far: other outputs ask for the same calls

    def answer(self, probe: Arguments, right: bool) -> tuple[Array, ...]:
        """What the student's function, or the right one, gives on a probe; () after an error."""
        key = (right, *(part.tobytes() if isinstance(part, np.ndarray) else part for part in probe))
        if key not in self.memo:
            function = self.subject.right if right else self.function
            arrays = run(function, probe, self.subject).arrays
            self.memo[key] = tuple(array.astype(float) for array in arrays)
        return self.memo[key]

    def both(self, probe: Arguments) -> tuple[Array, Array] | None:
        """The output of the student's function and of the right one, or None after an error."""
        found, right = self.answer(probe, right=False), self.answer(probe, right=True)
        return (found[self.output], right[self.output]) if found and right else None

    def with_argument(self, name: str, change: Callable[[Any], Any]) -> Iterator[Arguments]:
        """Every probe with one argument changed."""
        place = self.subject.names.index(name)
        for probe in self.subject.probes:
            yield (*probe[:place], change(probe[place]), *probe[place + 1 :])


def first_behaviour(trial: Trial, special: tuple[Callable[[Trial], Seen | None], ...]) -> Seen | None:
    """The first thing that the answer does and the right one does not: the exercise's own looks first."""
    looks = (
        *special,
        unused,
        other_argument,
        exchanged,
        transposed_weights,
        added_for_multiplied,
        at_neutral,
        too_wide,
        too_narrow,
        not_cancelled,
        not_linear,
    )
    return next((seen for look in looks if (seen := tried(look, trial)) is not None), None)


# --- one argument at a time ------------------------------------------------------------------------


def other(value: Any) -> Any:
    """Another value of the same kind and shape."""
    rng = np.random.default_rng(3)
    if isinstance(value, float):
        return 3 * value
    if isinstance(value, int):
        return value + 1
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == bool:
        return np.roll(value, 1, axis=-1)
    if value.dtype.kind == "i":
        return (value + 1) % (value.max() + 1)
    noise = rng.normal(size=value.shape)
    return value * np.exp(0.5 * noise) if (value > 0).all() else value + 0.5 * noise


def unused(trial: Trial) -> Seen | None:
    """An argument that the answer does not depend on, and should."""
    before = [trial.both(probe) for probe in trial.subject.probes]
    for name in trial.subject.names:
        pairs = list(zip(before, map(trial.both, trial.with_argument(name, other)), strict=True))
        if all(a and b and _equal(a[0], b[0]) for a, b in pairs):
            if any(a and b and not _equal(a[1], b[1]) for a, b in pairs):
                there = " there" if len(trial.subject.outputs) > 1 else ""
                return Seen(
                    f"{{it}} does not change when {name} does: {name} is not used{there}.",
                    f"Where does {name} enter?",
                )
    return None


def _equal(a: Array, b: Array) -> bool:
    return bool(a.shape == b.shape and np.array_equal(a, b, equal_nan=True))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "with the opposite sign": lambda a: -a,
    "doubled": lambda a: 2 * a,
    "halved": lambda a: a / 2,
    "squared": lambda a: a * a,
    "replaced by its absolute value": np.abs,
    "replaced by its root": lambda a: np.sqrt(np.abs(a)),
    "replaced by 1 less it": lambda a: 1 - a,
    "with 1 added": lambda a: a + 1,
    "with 1 taken away": lambda a: a - 1,
    "replaced by zeros": lambda a: 0 * a,
    "replaced by ones": lambda a: 0 * a + 1,
    "replaced by its mean": lambda a: 0 * a + np.mean(a),
    "in the reverse order": lambda a: a[::-1],
    "turned about (True for False)": np.logical_not,
}


def other_argument(trial: Trial) -> Seen | None:
    """The answer is what comes out right when one argument is another one: doubled, without its sign."""
    found = [trial.both(probe) for probe in trial.subject.probes]
    for name in filter(partial(_matters, trial), trial.subject.names):
        for words, change in CHANGES.items():
            if _right_for(trial, found, list(trial.with_argument(name, partial(_changed, change)))):
                return Seen(
                    f"{{it}} is what comes out right for other values: {name} {words}.",
                    f"What is done with {name} before it is used?",
                )
    return None


def _matters(trial: Trial, name: str) -> bool:
    """Whether a little more of an argument gives another answer: no threshold, which many values fit."""
    more = trial.with_argument(name, partial(_changed, partial(np.multiply, 1 + 1e-3)))
    rights = [
        (trial.answer(a, right=True), trial.answer(b, right=True))
        for a, b in zip(trial.subject.probes, more, strict=True)
    ]
    steady = all(a and b and _equal(a[trial.output], b[trial.output]) for a, b in rights)
    return not steady or not isinstance(trial.subject.probes[0][trial.subject.names.index(name)], float)


def _changed(change: Callable[[Any], Any], value: Any) -> Any:
    """The changed argument, where that makes sense; else the argument."""
    if isinstance(value, np.ndarray):
        if (value.dtype == bool) != (change is np.logical_not):
            return value
        return change(value) % (value.max() + 1) if value.dtype.kind == "i" else change(value)
    return float(change(np.array([value]))[0]) if isinstance(value, float) else value


def _right_for(trial: Trial, found: list[tuple[Array, Array] | None], probes: list[Arguments]) -> bool:
    """Whether the answers are the right ones of other probes."""
    rights = (trial.answer(probe, right=True) for probe in probes)
    return all(
        pair and right and close(pair[0], right[trial.output])
        for pair, right in zip(found, rights, strict=True)
    )


def exchanged(trial: Trial) -> Seen | None:
    """The answer is right for two arguments that have changed places."""
    found = [trial.both(probe) for probe in trial.subject.probes]
    names = trial.subject.names
    for a, b in combinations(range(len(names)), 2):
        pairs = [(np.shape(probe[a]), np.shape(probe[b])) for probe in trial.subject.probes]
        if all(one == other for one, other in pairs) and _right_for(
            trial, found, [_swapped(probe, a, b) for probe in trial.subject.probes]
        ):
            return Seen(
                f"{{it}} is right for {names[a]} and {names[b]} in each other's place: they are exchanged.",
                f"What does {names[a]} do, and what {names[b]}?",
            )
    return None


def _swapped(probe: Arguments, a: int, b: int) -> Arguments:
    changed = list(probe)
    changed[a], changed[b] = probe[b], probe[a]
    return tuple(changed)


def added_for_multiplied(trial: Trial) -> Seen | None:
    """A factor, such as gamma, that is added: the answer grows by as much as the factor does."""
    for name, value in trial.subject.neutral.items():
        if value != 1 or not isinstance(trial.subject.probes[0][trial.subject.names.index(name)], np.ndarray):
            continue
        place = trial.subject.names.index(name)
        changed = list(trial.with_argument(name, other))
        grown = [
            (trial.both(new), trial.both(old), new[place] - old[place])
            for old, new in zip(trial.subject.probes, changed, strict=True)
        ]
        if all(a and b and close(a[0] - b[0], np.broadcast_to(more, a[0].shape)) for a, b, more in grown):
            return Seen(
                f"{{it}} grows by as much as {name} does: {name} is added.",
                f"What is {name} to do with the numbers that it meets?",
            )
    return None


def transposed_weights(trial: Trial) -> Seen | None:
    """The answer is right once weights are handed over transposed: they are used transposed."""
    places = [k for k, name in enumerate(trial.subject.names) if name[0] == "W"]
    for turned in (c for n in range(1, len(places) + 1) for c in combinations(places, n)):
        pairs = [
            (trial.answer(_transposed(probe, turned), right=False), trial.answer(probe, right=True))
            for probe in trial.subject.probes
        ]
        if all(a and close(a[trial.output], b[trial.output]) for a, b in pairs):
            names = " and ".join(trial.subject.names[k] for k in turned)
            fits = "fits" if len(turned) == 1 else "fit"
            return Seen(
                f"{names} {fits} only the other way round: with rows and columns exchanged before the call, "
                "{it} is right.",
                "Which axis of x meets which axis of a weight in x W?",
            )
    return None


def _transposed(probe: Arguments, places: tuple[int, ...]) -> Arguments:
    return tuple(part.T if k in places else part for k, part in enumerate(probe))


def at_neutral(trial: Trial) -> Seen | None:
    """All agrees where one argument does nothing: what differs is the use of that argument."""
    agree = []
    for name, value in trial.subject.neutral.items():
        pairs = [trial.both(probe) for probe in trial.with_argument(name, partial(_filled, value=value))]
        if all(pair and _close_where_finite(*pair) for pair in pairs):
            near = f"{name} = {value:g}" if value in (0, 1) else f"{name} near 0"
            agree.append((name, near if value is not None else f"without a {name}"))
    if not agree:
        return _all_neutral(trial)
    where = " and ".join(words for _, words in agree)
    names = " or ".join(name for name, _ in agree)
    where = where if where.startswith("without") else f"with {where}"
    return Seen(
        f"{where.capitalize()} {{it}} agrees: the difference comes from how {names} is used.",
        f"Where does {agree[0][0]} enter, and what does it act on?",
    )


def _all_neutral(trial: Trial) -> Seen | None:
    """All agrees where several arguments do nothing at once."""
    neutral = {name: value for name, value in trial.subject.neutral.items() if value in (0, 1)}
    if len(neutral) < 2:
        return None
    probes = [
        tuple(
            _filled(old, neutral[name]) if name in neutral else old
            for name, old in zip(names, probe, strict=True)
        )
        for names, probe in ((trial.subject.names, probe) for probe in trial.subject.probes)
    ]
    if not all(pair and close(*pair) for pair in map(trial.both, probes)):
        return None
    where = " and ".join(f"{name} = {value:g}" for name, value in neutral.items())
    names = " and ".join(neutral)
    return Seen(
        f"With {where} {{it}} agrees: the difference comes from how {names} are used.",
        f"Which of {names} multiplies, which is added, and has each entry its own?",
    )


def _close_where_finite(a: Array, b: Array) -> bool:
    """Close, but for entries like 0/0: at most half of them."""
    if a.shape != b.shape or 2 * np.isfinite(a).sum() < a.size:
        return False
    return close(np.where(np.isfinite(a), a, 0), np.where(np.isfinite(a), b, 0))


def _filled(old: Any, value: Any) -> Any:
    return np.full_like(old, value) if isinstance(old, np.ndarray) and value is not None else value


# --- which entries see which -----------------------------------------------------------------------


def _changed_in_part(
    trial: Trial, last: bool, whole: bool = False
) -> Iterator[tuple[str, Arguments, Arguments]]:
    """(argument, the probe, the probe with one row, or the whole of a sentence, of it changed)."""
    for place, name in enumerate(trial.subject.names):
        for probe in trial.subject.probes:
            value = probe[place]
            if (
                isinstance(value, np.ndarray)
                and value.ndim > 1
                and name[0] != "W"
                and value.dtype.kind == "f"
            ):
                new, at = value.copy(), (-1 if last else 0,) * (1 if whole else value.ndim - 1)
                new[at] = other(value)[at]
                yield name, probe, (*probe[:place], new, *probe[place + 1 :])


def _reach(trial: Trial, probe: Arguments, changed: Arguments) -> tuple[Array, Array] | None:
    """Which entries of the output a change reaches, in the student's function and in the right one."""
    before, after = trial.both(probe), trial.both(changed)
    if (
        before is None
        or after is None
        or before[0].shape != before[1].shape
        or before[0].shape != after[0].shape
        or np.isnan([before[0], after[0]]).any()
    ):
        return None
    student, right = (np.abs(b - a) > 1e-9 * (1 + np.abs(b)) for a, b in zip(before, after, strict=True))
    return student, right


def too_wide(trial: Trial) -> Seen | None:
    """An entry depends on rows that are none of its business."""
    reaches = [
        (name, *reach)
        for last in (True, False)
        for name, probe, changed in _changed_in_part(trial, last)
        if (reach := _reach(trial, probe, changed)) is not None
    ]
    seen = {name for name, _, b in reaches if b.any()}
    # a token of which nothing arrives, as one whose units are all off, does not show what it may reach
    far = [
        (name, a, b)
        for name, a, b in reaches
        if not b.all() and (a & ~b).any() and (b.any() or name not in seen)
    ]
    if not far:
        return None
    name, student, right = far[0]
    if name not in seen:
        return Seen(
            f"{{it}} changes when {name} does; it should depend on other arguments only.",
            f"Where does {name} enter?",
        )
    outside = any(_outside(a, b) for other, a, b in far if other == name)
    place = tuple(int(i) for i in np.argwhere(student & ~right)[0])
    return _seen_too_far(name, place, trial.subject.outer if outside else trial.subject.unit)


def _outside(student: Array, right: Array) -> bool:
    """Whether a change reaches entries of axis 0 in which it should reach nothing."""
    rest = tuple(range(1, student.ndim))
    return student.ndim > 2 and bool((student.any(axis=rest) & ~right.any(axis=rest)).any())


def _seen_too_far(name: str, place: tuple[int, ...], unit: str) -> Seen:
    return Seen(
        f"When one {unit} of {name} changes and nothing else, {{it}} changes at other {_many(unit)} "
        f"too, first at {place}: it depends on {_many(unit)} that it should not see.",
        f"Over which axis is anything summed, averaged or repeated, and which {unit} may see which?",
    )


def _many(unit: str) -> str:
    return unit[:-1] + "ies" if unit.endswith("y") else f"{unit}s"


def too_narrow(trial: Trial) -> Seen | None:
    """An entry does not depend on a row, or on a whole sentence, that it should see."""
    for whole in (False, True):
        for last in (True, False):
            reached: dict[str, list[tuple[bool, bool]]] = {}
            for name, probe, changed in _changed_in_part(trial, last, whole):
                reach = _reach(trial, probe, changed)
                if reach is not None:
                    reached.setdefault(name, []).append((bool(reach[0].any()), bool(reach[1].any())))
            blind = [name for name, pairs in reached.items() if _never(pairs)]
            if blind:
                what = "entry of axis 0" if whole else trial.subject.unit
                return _blind_for(blind[0], f"the {'last' if last else 'first'} {what}")
    return None


def _never(pairs: list[tuple[bool, bool]]) -> bool:
    """Whether the student's answer is never reached, and the right one is."""
    return not any(student for student, _ in pairs) and any(right for _, right in pairs)


def _blind_for(name: str, what: str) -> Seen:
    return Seen(
        f"{{it}} does not change when {what} of {name} does.",
        f"Do all rows of {name} take part, the first and the last too?",
    )


def not_cancelled(trial: Trial) -> Seen | None:
    """A change that the right answer does not see."""
    for words, change in trial.subject.cancels.items():
        pairs = [(trial.both(probe), trial.both(change(*probe))) for probe in trial.subject.probes]
        if all(a and b and not close(a[0], b[0]) for a, b in pairs):
            return Seen(
                f"{{it}} changes with {words}: a shift that should cancel.",
                "What is subtracted or divided that makes such a shift cancel?",
            )
    return None


def not_linear(trial: Trial) -> Seen | None:
    """A gradient that does not double when the upstream gradient does."""
    upstream = trial.subject.names[0]
    if upstream not in ("dy", "dp"):
        return None
    before = [trial.both(probe) for probe in trial.subject.probes]
    for words, times in (("is doubled", 2.0), ("changes its sign", -1.0)):
        after = [trial.both(probe) for probe in trial.with_argument(upstream, partial(np.multiply, times))]
        if any(a and b and not close(times * a[0], b[0]) for a, b in zip(before, after, strict=True)):
            return Seen(
                f"{{it}} does not follow when {upstream} {words}: a gradient is in proportion to {upstream}.",
                f"Where does the sign or the size of {upstream} decide anything?",
            )
    return None


# --- one hidden unit -------------------------------------------------------------------------------

SHAPES: dict[str, Callable[[Array], Array]] = {
    "softplus, log(1 + e^z)": lambda z: np.log1p(np.exp(z)),
    "SiLU, z times its sigmoid": lambda z: z / (1 + np.exp(-z)),
    "ELU": lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0))),
    "the square of a ReLU": lambda z: np.maximum(z, 0) ** 2,
    "min(z, 0), the other half": lambda z: np.minimum(z, 0),
    "a ReLU that stops at 1": lambda z: np.clip(z, 0, 1),
    "no bend at all": lambda z: z,
}
POINTS = np.array([-2.0, -1, 0, 1, 2])


def one_unit(trial: Trial) -> Seen | None:
    """The network is right but for what one hidden unit does to its z."""
    hidden = [probe[0] @ probe[1] + probe[2] for probe in trial.subject.probes]
    answers, pairs = _unit(trial, POINTS), zip(hidden, trial.subject.probes, strict=True)
    if answers is None or not all(_rebuilt(trial, z, probe) for z, probe in pairs):
        return None
    known = next((f" It is {name}." for name, f in SHAPES.items() if close(answers, f(POINTS))), "")
    return Seen(
        "Everything around the activation is right. One hidden unit makes of -2, -1, 0, 1, 2: "
        f"{written(answers)}.{known}",
        "What does max(0, z) make of these five numbers?",
    )


def written(numbers: Array) -> str:
    """Numbers in a sentence, three digits each."""
    return ", ".join(f"{number + 0.0:.3g}" for number in numbers)


def _unit(trial: Trial, z: Array) -> Array | None:
    one, none = np.ones((1, 1)), np.zeros(1)
    outcome = run(trial.function, (z.reshape(1, -1, 1), one, none, one, none), trial.subject)
    return outcome.arrays[0].reshape(z.shape) if outcome.arrays and outcome.arrays[0].size == z.size else None


def _rebuilt(trial: Trial, z: Array, probe: Arguments) -> bool:
    hidden, pair = _unit(trial, z), trial.both(probe)
    return hidden is not None and pair is not None and close(pair[0], hidden @ probe[3] + probe[4])


def one_slope(trial: Trial) -> Seen | None:
    """The backward pass is right but for the slope of one hidden unit."""
    answers = _slope(trial, POINTS)
    if trial.output > 2 or answers is None:
        return None
    for probe in trial.subject.probes:
        dy, x, W_1, b_1, W_2, _ = probe
        z, pair = x @ W_1 + b_1, trial.both(probe)
        slope = _slope(trial, z)
        if slope is None or pair is None:
            return None
        dz = slope * (dy @ W_2.T)
        made = (dz @ W_1.T, np.einsum("btd,btf->df", x, dz), dz.sum(axis=(0, 1)))
        if not close(pair[0], made[trial.output]):
            return None
    return Seen(
        "Everything around the activation is right. The slope that one hidden unit has at -2, -1, 0, 1, 2: "
        f"{written(answers)}.",
        "What is the slope of max(0, z) at these five numbers: where is the unit on, where off?",
    )


def _slope(trial: Trial, z: Array) -> Array | None:
    one, none, flat = np.ones((1, 1)), np.zeros(1), z.reshape(1, -1, 1)
    outcome = run(trial.function, (np.ones_like(flat), flat, one, none, one, none), trial.subject)
    return outcome.arrays[0].reshape(z.shape) if outcome.arrays and outcome.arrays[0].size == z.size else None


# --- shares, weights, spreads ----------------------------------------------------------------------


def scale(products: Array, weights: Array) -> float | None:
    """The number s with weights = softmax(s q·k), or None: centred log-weights against centred products.

    >>> from npformer.functional import softmax_forward
    >>> products = np.array([[1.0, 3.0, -2.0], [0.0, 1.0, 5.0]])
    >>> round(scale(products, softmax_forward(0.3 * products)[0]), 3)
    0.3
    """
    if weights.shape != products.shape or not np.isfinite(weights).all() or (weights <= 0).any():
        return None
    logs = np.log(weights)
    x, y = (a - a.mean(axis=-1, keepdims=True) for a in (products, logs))
    slope = float((x * y).sum() / (x * x).sum())
    whole = np.allclose(weights.sum(axis=-1), 1, atol=1e-4)
    return (
        slope if whole and np.allclose(y, slope * x, atol=1e-4 * max(1.0, float(np.abs(y).max()))) else None
    )


def scores_times(trial: Trial) -> Seen | None:
    """A softmax, of the scores times one number."""
    pairs = [(probe[0], trial.both(probe)) for probe in trial.subject.probes]
    found = [scale(scores, pair[0]) if pair else None for scores, pair in pairs]
    if not all(found):
        return None
    name = named_factor([s for s in found if s], trial.sizes)
    return Seen(
        f"{{it}} is a softmax, but of the scores times {name or 'a number that changes from call to call'}.",
        "What happens to the scores before exp: a sign, a base, a division?",
    )


def _row_sums(trial: Trial) -> list[Array]:
    pairs = [trial.both(probe) for probe in trial.subject.probes]
    fits = all(pair and pair[0].shape == pair[1].shape for pair in pairs)
    return [pair[0].sum(axis=-1) for pair in pairs if pair and fits]


def no_exponential(trial: Trial) -> Seen | None:
    """Shares that sum to 1, and come from the scores by something else than exp."""
    sums = _row_sums(trial)
    if not sums or not all(np.allclose(s, 1, atol=1e-6) for s in sums):
        return None
    return Seen(
        "The rows sum to 1; two numbers of a row are not in the ratio e to the power of the difference "
        "of their scores.",
        "By which factor does exp grow when a score grows by 1, and is that so here?",
    )


def shares(trial: Trial) -> Seen | None:
    """Rows that do not sum to 1."""
    sums = _row_sums(trial)
    if not sums or any(np.allclose(s, 1, atol=2e-3) for s in sums):  # float16 has three digits
        return no_exponential(trial)
    return Seen(
        f"The rows do not sum to 1: the first sums to {sums[0][0]:.3g}, the next to {sums[0][1]:.3g}.",
        "What do the numbers of one row sum to in a softmax, and what makes them do so?",
    )


def weights(trial: Trial) -> Seen | None:
    """What the weights of attention are: v = 1 shows them."""
    shown = []
    for q, k, _, mask in trial.subject.probes:
        pair = trial.both((q, k, np.eye(len(k)), mask))
        if pair is None or pair[0].shape != pair[1].shape:
            return None
        shown.append((q @ k.T, k.shape[1], mask, pair[0]))
    free = [(products, w, d_k) for products, d_k, mask, w in shown if mask is None or mask.all()]
    found = [scale(products, w) for products, w, _ in free]
    known = [s for s in found if s]
    if later_keys_hidden([w for _, w, _ in free]):
        return OWN_MASK
    if len(known) < len(found):
        return _no_softmax([w for *_, w in shown])
    if not np.allclose(known, [d_k**-0.5 for *_, d_k in free], rtol=1e-4):
        return _scaled(known, trial)
    hidden = [w[~mask] for _, _, mask, w in shown if mask is not None and not mask.all()]
    if all((w != 0).any() for w in hidden):
        asks = "What has a hidden score to be, so that exp makes 0 of it?"
        return Seen("Keys that the mask hides still get weight.", asks)
    return None


OWN_MASK = Seen(
    "Where nothing is to be hidden, keys that stand later than the query get no weight, and the others do: "
    "a causal mask.",
    "Which keys may a query look at when no mask is given?",
)


def later_keys_hidden(shown: list[Array]) -> bool:
    """Whether every weight above the diagonal is 0, and none on it or below."""
    above = [np.triu(np.ones(w.shape[-2:], bool), k=1) for w in shown]
    return all(
        hidden.any() and (w[..., ~hidden] > 0).all() and not w[..., hidden].any()
        for w, hidden in zip(shown, above, strict=True)
    )


def _no_softmax(shown: list[Array]) -> Seen:
    if not any(np.allclose(w.sum(axis=-1), 1, atol=1e-6) for w in shown):
        return Seen(
            "The weights of one query do not sum to 1, so they are no softmax over the keys.",
            "What do the weights of one query sum to, and over which axis?",
        )
    return Seen(
        "The weights of each query sum to 1, and they are no softmax of q·k times one number.",
        "What stands between the products q·k and the weights, line by line?",
    )


def _scaled(found: list[float], trial: Trial) -> Seen:
    free = [
        sizes
        for sizes, probe in zip(trial.sizes, trial.subject.probes, strict=True)
        if probe[3] is None or probe[3].all()
    ]
    name = named_factor(found, tuple(free))
    return Seen(
        "Without a mask the weights are a softmax of q·k times one number, "
        f"{name.replace('the sizes are', 'd_k is') or 'another one for each d_k'}"
        f"{', whose sign is the opposite' * (found[0] < 0)}.",
        "By what are the scores divided, and does it follow d_k?",
    )


def spread(trial: Trial) -> Seen | None:
    """Mean and spread of each token, with gamma = 1 and beta = 0."""
    told = []
    for x, gamma, beta, _ in trial.subject.probes:
        pair = trial.both((x, np.ones_like(gamma), np.zeros_like(beta), 1e-12))
        if pair is None or pair[0].shape != x.shape or not np.isfinite(pair[0]).all():
            return None
        big = x.var(axis=-1) > 1e-4
        told.append(
            (
                np.abs(pair[0].mean(axis=-1)[big]).max() < 1e-6,
                np.abs(pair[0].std(axis=-1)[big] - 1).max() < 1e-4,
            )
        )
    means, spreads = (all(part) for part in zip(*told, strict=True))
    if means and spreads:
        return None
    mean, wide = ("is" if ok else "is not" for ok in (means, spreads))
    return Seen(
        f"With gamma = 1 and beta = 0, each token's mean {mean} 0 and its spread {wide} 1.",
        "Which line sets the spread (variance, root)?" if means else "What is subtracted from each token?",
    )


# --- the stations of a block -----------------------------------------------------------------------


def stations(trial: Trial) -> Seen | None:
    """Which of the four functions are called, in which order, and which first gets another argument."""
    names = trial.subject.names[1:]
    student, right = (
        _calls(f, trial.subject.probes[0], names) for f in (trial.function, trial.subject.right)
    )
    order = [name for name, _ in student]
    missing = [name for name in names if name not in order]
    if missing:
        be = "is" if len(missing) == 1 else "are"
        return Seen(f"{' and '.join(missing)} {be} never called.", "Which stations are there in a block?")
    if order != [name for name, _ in right]:
        return Seen(
            f"The calls come in this order: {', '.join(order)}.",
            "Which of them comes first in the paper's block, and how often is each called?",
        )
    return _first_other_argument(student, right)


def _first_other_argument(student: list[tuple[str, Array]], right: list[tuple[str, Array]]) -> Seen:
    for (name, given), (_, wanted) in zip(student, right, strict=True):
        if not close(given, wanted):
            return Seen(
                f"The order of the calls is right. {name} is the first that gets another array than in the "
                "paper's block: look at what is added (the residual) or subtracted before it.",
                f"What goes into {name}?",
            )
    return Seen(
        "All four calls get the right arrays; {it} differs after the last of them: "
        "something is added or changed once more.",
        "What is done after norm_2?",
    )


def _calls(function: Function, probe: Arguments, names: list[str]) -> list[tuple[str, Array]]:
    made: list[tuple[str, Array]] = []

    def watched(name: str, f: Function) -> Function:
        def layer(x: Array) -> Any:
            made.append((name, np.array(x, float)))
            return f(x)

        return layer

    function(probe[0].copy(), *(watched(name, f) for name, f in zip(names, probe[1:], strict=True)))
    return made


def turning(trial: Trial) -> Seen | None:
    """Whether each pair of columns keeps its length, and by how much it turns from position 0 to 1."""
    T, d = trial.subject.probes[0][0].shape
    east = np.tile([1.0, 0.0], (T, d // 2))
    pair, general = trial.both((east,)), trial.both(trial.subject.probes[0])
    if pair is None or general is None or pair[0].shape != (T, d) or general[0].shape != (T, d):
        return None
    if close(pair[0] - east, general[0] - trial.subject.probes[0][0]):
        return Seen(
            "{it} is x with numbers added to it that do not depend on x: nothing is turned.",
            "What does a rotation make of a row of zeros?",
        )
    lengths = [np.hypot(a[:, 0::2], a[:, 1::2]) for a in (general[0], trial.subject.probes[0][0])]
    if not close(*lengths):
        return Seen(
            "The two columns of a pair do not keep their length together, as a rotation would.",
            "What do the two columns (a, b) of one pair become: which product has a minus, and are a and b "
            "still the old ones in it?",
        )
    angles = np.arctan2(pair[0][1, 1::2], pair[0][1, 0::2])
    return Seen(
        "Each pair of columns keeps its length and turns; from position 0 to 1 the pairs turn by the angles "
        f"{written(angles)}.",
        "By which angle does pair i turn in one step, and which columns are pair i?",
    )


# --- a loss, row by row ----------------------------------------------------------------------------


def loss_by_row(trial: Trial) -> Seen | None:
    """Whether the loss of one row is wrong already, and whether several rows give the mean of theirs."""
    single, whole = [], []
    for logits, targets, *more in trial.subject.probes:
        rows = [trial.both((logits[[n]], targets[[n]], *more)) for n in range(len(targets))]
        pair, told = trial.both((logits, targets, *more)), [row for row in rows if row and not row[0].ndim]
        if pair is None or pair[0].ndim or len(told) < len(rows):
            return None
        single += [close(*row) for row in told]
        whole.append(close(pair[0], np.asarray(np.mean([found for found, _ in told]))))
    if all(single):
        return Seen(
            "For each row by itself {it} is right; for several rows it is not the mean of theirs.",
            "How do N losses become one?",
        )
    if not all(whole):
        return None
    return limit_of_loss(trial) or Seen(
        "For several rows {it} is the mean of the rows' losses, as it should be; the loss of a single row is "
        "another one already.",
        "What happens in one row, from its logits to its loss?",
    )


def limit_of_loss(trial: Trial) -> Seen | None:
    """A loss that stops growing while the right class becomes ever less likely."""
    more = trial.subject.probes[0][2:]
    gaps = [np.array([[gap, 0.0, 0.0]]) for gap in (1.0, 50.0, 100.0)]
    found = [pair[0] for logits in gaps if (pair := trial.both((logits, np.array([1]), *more)))]
    if len(found) < len(gaps) or not close(found[1], found[2]) or close(found[0], found[1]):
        return None
    return Seen(
        f"While the right class becomes ever less likely, {{it}} stops at {float(found[2]):.3g}.",
        "Is a probability held above a limit before its logarithm is taken?",
    )


# --- the waves of a position table -----------------------------------------------------------------


class Fit(NamedTuple):
    """sin and cos of position · base^(-2i/d_model), in one of two layouts."""

    base: float
    layout: str


def fit(tables: tuple[Array, ...]) -> Fit | None:
    """The base and the layout that explain every table, or None.

    >>> from npformer.positional import positional_encoding
    >>> found = fit((positional_encoding(6, 8, base=500.0), positional_encoding(7, 12, base=500.0)))
    >>> round(found.base), found.layout
    (500, 'interleaved')
    """
    fits = [_fit_one(table) for table in tables]
    first = fits[0]
    agree = first is not None and all(
        f is not None and f.layout == first.layout and abs(np.log(f.base / first.base)) < 1e-2 for f in fits
    )
    return first if agree else None


def _fit_one(table: Array) -> Fit | None:
    found = speeds(table)
    return _base(*found) if found else None


def speeds(table: Array) -> tuple[Array, str] | None:
    """By how much each pair turns from row to row, and the layout, where sines and cosines explain all."""
    if table.ndim != 2 or len(table) < 3 or table.shape[1] % 2 or not np.isfinite(table).all():
        return None
    sines, layout = _layout(table[0])
    if layout == "":
        return None
    table = table.astype(float)
    sine, cosine = table[:, sines], table[:, ~sines]
    # sin 2ω = 2 sin ω cos ω tells cos ω, and the two together tell ω
    cos_w = sine[2] / (2 * np.where(sine[1] == 0, np.inf, sine[1]))
    turns = np.arctan2(sine[1], cos_w)
    angles = np.arange(len(table))[:, None] * turns
    explained = np.allclose(sine, np.sin(angles), atol=1e-4) and np.allclose(
        cosine, np.cos(angles), atol=1e-4
    )
    return (turns, layout) if explained else None


def _layout(row: Array) -> tuple[Array, str]:
    """Row 0 is sin 0 = 0 or cos 0 = 1: which columns are sines, and the name of their order."""
    sines = np.abs(row) < 1e-4
    j = np.arange(len(row))
    orders = {"interleaved": j % 2 == 0, "halves": j < len(row) // 2}
    known = np.all(sines | (np.abs(row - 1) < 1e-4))
    fits = [name for name, order in orders.items() if known and np.array_equal(sines, order)]
    return sines, fits[0] if fits else ""


def _base(speeds: Array, layout: str) -> Fit | None:
    """A straight line through log ω over i: its slope is -log(base) / (number of pairs)."""
    i = np.arange(len(speeds))
    if (speeds <= 0).any():
        return None
    slope, start = np.polyfit(i, np.log(speeds), 1)
    straight = np.allclose(np.log(speeds), slope * i + start, atol=1e-3) and abs(start) < 1e-3
    return Fit(float(np.exp(-slope * len(speeds))), layout) if straight else None


def table_fits(trial: Trial) -> Seen | None:
    """A table of sines and cosines, but for its base."""
    pairs = [trial.both(probe) for probe in trial.subject.probes]
    if not all(pair and pair[0].shape == pair[1].shape for pair in pairs):
        return None
    found = fit(tuple(pair[0] for pair in pairs if pair))
    if found is None:
        return _other_speeds(next(pair[0] for pair in pairs if pair))
    if abs(found.base - 1) < 1e-2:
        return Seen(
            "Sines and cosines stand where they should, and all pairs turn equally fast.",
            "What makes a later pair slower, and what does that number come to in pair 1?",
        )
    return Seen(
        f"Sines, cosines and pairs fit exactly ({found.layout}), with a base of about {found.base:.3g}.",
        "Which base does the paper choose, and how do its speeds fall along the row?",
    )


def _other_speeds(table: Array) -> Seen | None:
    """Sines and cosines in the paper's places, at speeds of which hardly anything is left in some pair."""
    turns, layout = speeds(table) or (np.zeros(1), "")
    if layout != "interleaved" or np.abs(turns).min() > 1e-6:
        return None
    return Seen(
        "Sines and cosines stand where they should; from row to row the pairs turn by "
        f"{written(turns)} radians (whole turns do not show), which is next to nothing in some of them.",
        "By what is the position divided in columns 2 and 3: what does that come to, bracket by bracket?",
    )


def halves_of_pairs(trial: Trial) -> Seen | None:
    """All sine columns agree, or all cosine columns; and what the first of the others does."""
    pairs = [trial.both(probe) for probe in trial.subject.probes]
    if not all(pair and pair[0].shape == pair[1].shape for pair in pairs):
        return None
    tables = [pair for pair in pairs if pair]
    for start, good, bad in ((0, "sine", "cosine"), (1, "cosine", "sine")):
        if all(close(a[:, start::2], b[:, start::2]) for a, b in tables):
            found, right = tables[0]
            differ = [j for j in range(1 - start, found.shape[1], 2) if not close(found[:, j], right[:, j])]
            some = "the" if 2 * len(differ) >= found.shape[1] - 2 else "some"
            return Seen(
                f"All {good} columns agree, and {some} {bad} columns differ."
                f"{_first_wave(found, right, next((j for j in differ if j > 1), 0))}",
                f"What is the angle of a {bad}, and what is done with it?",
            )
    found, _ = tables[0]
    turned = [speed for j in range(found.shape[1]) if (speed := wave(found[:, j])) is not None]
    if len(turned) < found.shape[1]:
        return None
    said = ", ".join(f"{speed:.3g}" for speed in turned[::2])
    return Seen(
        f"Every column is a wave; in one step from row to row the even columns turn by {said} radians.",
        "By what is the position divided, or multiplied, in columns 0 and 2: which speed has each pair?",
    )


def _first_wave(table: Array, right: Array, column: int) -> str:
    """What the first wrong column beyond pair 0 is, in the student's own numbers."""
    speed, wanted = wave(table[:, column]), wave(right[:, column])
    if speed is None or wanted is None:
        return ""
    if abs(speed - wanted) < 1e-6:
        return (
            f" Column {column} is a wave and turns at the right speed; its start or its sign is another one."
        )
    return f" Column {column} is a wave that turns by {speed:.3g} radians a row."


def wave(column: Array) -> float | None:
    """ω with x[p-1] + x[p+1] = 2 cos ω x[p] for every p, which sines and cosines of ωp obey, or None."""
    middle, sides = column[1:-1], column[:-2] + column[2:]
    if not np.isfinite(column).all() or np.abs(middle).max() < 1e-6:
        return None
    cosine = float((middle * sides).sum() / (middle * middle).sum() / 2)
    return float(np.arccos(cosine)) if abs(cosine) <= 1 and close(sides, 2 * cosine * middle) else None


SPECIAL: dict[str, tuple[Callable[[Trial], Seen | None], ...]] = {
    "pe.table": (table_fits, halves_of_pairs),
    "ffn.forward": (one_unit,),
    "ffn.backward": (one_slope,),
    "softmax.forward": (scores_times,),
    "attention.forward": (unused, weights),
    "layer_norm.forward": (exchanged, added_for_multiplied, spread),
    "block.forward": (stations,),
}
LATER: dict[str, Callable[[Trial], Seen | None]] = {
    "softmax.forward": shares,
    "rope.forward": turning,
    "cross_entropy.forward": loss_by_row,
    "loss.smoothed": loss_by_row,
}
