"""What can be seen in an answer that is not right: known mistakes, then looks, in one order.

A look is given one output on every call, beside the right one, and may call the function again with one
thing changed at a time. It says what holds on every call, and asks one question; or it says nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.exercises import relations
from npformer.exercises.probe import (
    Arguments,
    Outcome,
    Trial,
    Unread,
    agreeing,
    as_array,
    quiet,
    run,
    same,
    same_outcome,
)
from npformer.exercises.relations import EXACT, Seen, close, named_factor, ratio, tried
from npformer.exercises.task import Code, Mistake

__all__ = ["EXACT", "Seen", "close", "named_factor", "ratio", "tried"]  # for the topics' own looks
Function = Callable[..., Any]
Look = Callable[[Trial], Seen | None]


# --- what is known -----------------------------------------------------------------------------------


class Known(NamedTuple):
    """What one form of a mistake answers on every call."""

    mistake: Mistake
    outcomes: tuple[Outcome, ...]
    spoilt: frozenset[str]  # the outputs that are not right on some call


def outcomes(task: Code, function: Function) -> tuple[Outcome, ...]:
    """What a function answers on every call."""
    return tuple(run(function, given, task.probe) for given in task.probe.calls)


@cache
def right(task: Code) -> tuple[Outcome, ...]:
    """What the right function answers on every call."""
    return outcomes(task, task.right)


@cache
def singles(task: Code) -> tuple[Known, ...]:
    """Every form of every mistake."""
    made = [(mistake, outcomes(task, function)) for mistake, function in task.wrongly()]
    return tuple(Known(mistake, found, differing(task, found)) for mistake, found in made)


def differing(task: Code, found: tuple[Outcome, ...]) -> frozenset[str]:
    """The names of the outputs that are not right on some call."""
    return frozenset(
        name
        for outcome, expected in zip(found, right(task), strict=True)
        for name, same in zip(task.probe.outputs, agreeing(outcome, expected), strict=True)
        if not same
    )


def recognised(task: Code, found: tuple[Outcome, ...]) -> list[tuple[Mistake, ...]]:
    """The mistakes that answer so on every call; where none does, several in different outputs."""
    fits = [(known.mistake,) for known in singles(task) if _same(known, found)]
    return list(dict.fromkeys(fits)) or _beside_each_other(task, found)


def _same(known: Known, found: tuple[Outcome, ...]) -> bool:
    pairs = zip(found, known.outcomes, strict=True)
    fits = all(same_outcome(a, b, known.mistake.tolerance) for a, b in pairs)
    return fits and not any(known.mistake.unless(a) for outcome in found for a in outcome.arrays)


def _beside_each_other(task: Code, found: tuple[Outcome, ...]) -> list[tuple[Mistake, ...]]:
    """A mistake for each of the outputs that differ, where each answers so in all that it spoils."""
    spoilt, met = differing(task, found), dict[Mistake, frozenset[str]]()
    if len(spoilt) < 2 or not all(outcome.arrays for outcome in found):
        return []
    for known in singles(task):
        if known.spoilt <= spoilt and all(_same_output(task, known, found, name) for name in known.spoilt):
            met.setdefault(known.mistake, known.spoilt)
    told = frozenset[str]().union(*met.values())
    apart = sum(map(len, met.values())) == len(told)
    return [tuple(met)] if told == spoilt and apart else []


def _same_output(task: Code, known: Known, found: tuple[Outcome, ...], name: str) -> bool:
    k = task.probe.outputs.index(name)
    pairs = zip(found, known.outcomes, strict=True)
    return all(b.arrays and same(a.arrays[k], b.arrays[k], known.mistake.tolerance) for a, b in pairs)


# --- a tuple, a dict, weights the other way round ---------------------------------------------------


def mixed(task: Code, found: tuple[Outcome, ...]) -> Seen | None:
    """The right arrays in a tuple or dict where one is asked for, in another order, or not all of them."""
    outputs, named = task.probe.outputs, [_named(outcome.raw) for outcome in found]
    if len(outputs) == 1 and isinstance(found[0].raw, np.ndarray):
        return None
    if any(not parts or parts.keys() != named[0].keys() for parts in named):
        return None
    places = {label: _place_of(label, named, task) for label in named[0]}
    fits = {label: name for label, name in places.items() if name}
    kind = "dict" if isinstance(found[0].raw, dict) else "tuple"
    if len(outputs) > 1:
        return _several(list(outputs), places, kind)
    entry = next(iter(fits), None)
    says = f"A {kind} came back, and its entry {entry!r} agrees. One array is asked for."
    return Seen(says, "What stands behind `return`, and which of it is asked for?") if fits else None


def _several(outputs: list[str], places: dict[Any, str], kind: str) -> Seen | None:
    asks = f"In which order are {listed(outputs)} asked for?"
    came = [name or "something else" for name in places.values()]
    if kind == "dict":
        fine = sum(map(bool, places.values()))
        return Seen(f"A dict came back: {fine} of its entries agree. A tuple is asked for.", asks)
    if len(came) != len(outputs):
        says = (
            f"{len(outputs)} outputs are asked for, {listed(outputs)}; {len(came)} came back: {listed(came)}."
        )
        return Seen(says, asks)
    moved = [name for label, name in places.items() if name and outputs.index(name) != label]
    return (
        Seen(f"The outputs stand in another order: {listed(came)} came back.", asks)
        if len(moved) > 1
        else None
    )


def _named(raw: Any) -> dict[Any, Array]:
    """The entries of a tuple, a list or a dict as arrays; a plain array is one entry of several outputs."""
    if isinstance(raw, np.ndarray):
        raw = (raw,)
    entries = raw if isinstance(raw, dict) else dict(enumerate(raw)) if isinstance(raw, tuple | list) else {}
    arrays = {}
    for label, part in entries.items():
        try:
            arrays[label] = as_array(str(label), part).astype(float)
        except Unread:
            arrays[label] = np.array(np.nan)  # it is counted, and agrees with no output
    return arrays


def _place_of(label: Any, named: list[dict[Any, Array]], task: Code) -> str:
    """The output that an entry agrees with on every probe, or ""."""
    for k, name in enumerate(task.probe.outputs):
        if all(
            same(parts[label], wanted.arrays[k]) for parts, wanted in zip(named, right(task), strict=True)
        ):
            return name
    return ""


def turned(task: Code, function: Function, found: tuple[Outcome, ...]) -> Seen | None:
    """Weights that fit only transposed: most calls stop, or, with d_ff = d_model, give other numbers."""
    if not any(outcome.error for outcome in found):
        return None
    trial = Trial(task.probe, function, task.right, 0, task.probe.calls, (), (), {})
    with quiet():
        seen = tried(transposed_weights, trial)
    return about(seen, task.probe.outputs, task.probe.outputs[0]) if seen else None


def listed(names: list[str]) -> str:
    """Names in a sentence: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def verb(names: Sequence[object], word: str) -> str:
    """The word with an s after a single name."""
    return word if len(names) > 1 else "does" if word == "do" else f"{word}s"


# --- what is seen ------------------------------------------------------------------------------------


def observations(task: Code, function: Function, found: tuple[Outcome, ...]) -> list[Seen]:
    """What can be said of the outputs that differ, at most two of them; [] where nothing holds exactly.

    Calls that stopped are left out: what the others show is told all the same.
    """
    ran = [n for n, outcome in enumerate(found) if outcome.arrays]
    sides = [(found[n].arrays, right(task)[n].arrays) for n in ran]
    memo: dict[Any, Any] = {}
    seen: dict[Seen, Seen] = {}  # as it is seen, and with the output's name
    for k, name in enumerate(task.probe.outputs):
        if len(seen) < 2 and not all(same(a[k], b[k]) for a, b in sides):
            mine, theirs = (tuple(pair[n][k] for pair in sides) for n in (0, 1))
            calls = tuple(task.probe.calls[n] for n in ran)
            trial = Trial(task.probe, function, task.right, k, calls, mine, theirs, memo)
            look = first_look(task, trial)
            if look and look not in seen:
                seen[look] = about(look, task.probe.outputs, name)
    return list(seen.values())


def about(seen: Seen, outputs: Sequence[str], name: str) -> Seen:
    """The observation with the name of the output in it."""
    it = name if len(outputs) > 1 else f"the output {name}"
    return Seen(seen.says.replace("{it}", it), seen.asks)


def first_look(task: Code, trial: Trial) -> Seen | None:
    """The first thing that is seen: the exercise's own order of looks, or the general one."""
    with quiet():
        if (seen := whole(trial)) is not None:
            return seen
        trial = trial._replace(
            found=tuple(a.astype(float) for a in trial.found),
            right=tuple(b.astype(float) for b in trial.right),
        )
        return next((seen for look in task.looks or LOOKS if (seen := tried(look, trial)) is not None), None)


def whole(trial: Trial) -> Seen | None:
    """Numbers that were cut to whole ones."""
    cut = all(a.dtype.kind in "iu" for a in trial.found)
    if not cut or all(np.array_equal(b, np.round(b)) for b in trial.right):
        return None
    return Seen(
        "{it} holds whole numbers: its type is integer.", "Which type has the array that holds the numbers?"
    )


def written(numbers: Array) -> str:
    """Numbers in a sentence, three digits each."""
    return ", ".join(f"{number + 0.0:.3g}" for number in numbers)


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
    """Arguments that the answer does not depend on, and should."""
    before = [trial.both(given) for given in trial.calls]
    idle = [name for name in trial.names if _idle(name, trial, before)]
    if not idle:
        return None
    there = " there" if len(trial.probe.outputs) > 1 else ""
    return Seen(
        f"{{it}} does not change when {' or '.join(idle)} {verb(idle, 'do')}: {listed(idle)} "
        f"{'is' if len(idle) == 1 else 'are'} not used{there}.",
        f"Where {verb(idle, 'do')} {listed(idle)} enter?",
    )


def _idle(name: str, trial: Trial, before: list[tuple[Array, Array] | None]) -> bool:
    pairs = list(zip(before, map(trial.both, trial.with_argument(name, other)), strict=True))
    if not all(a and b and _equal(a[0], b[0]) for a, b in pairs):
        return False
    return any(a and b and not _equal(a[1], b[1]) for a, b in pairs)


def _equal(a: Array, b: Array) -> bool:
    return bool(a.shape == b.shape and np.array_equal(a, b, equal_nan=True))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "with the opposite sign": lambda a: -a,
    "squared": lambda a: a * a,
    "replaced by its absolute value": np.abs,
    "replaced by its root": lambda a: np.sqrt(np.abs(a)),
    "replaced by 1 less it": lambda a: 1 - a,
    "with 1 added": lambda a: a + 1,
    "in the reverse order": lambda a: a[::-1],
}


def other_argument(trial: Trial) -> Seen | None:
    """The answer is what comes out right when one argument is another one: squared, without its sign."""
    found = [trial.both(probe) for probe in trial.calls]
    for name in filter(partial(_matters, trial), trial.names):
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
        for a, b in zip(trial.calls, more, strict=True)
    ]
    steady = all(a and b and _equal(a[trial.output], b[trial.output]) for a, b in rights)
    return not steady or not isinstance(trial.calls[0][trial.names.index(name)], float)


def _changed(change: Callable[[Any], Any], value: Any) -> Any:
    """The changed argument, where that makes sense; else the argument."""
    if isinstance(value, np.ndarray):
        if value.dtype == bool:
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
    found = [trial.both(probe) for probe in trial.calls]
    names = trial.names
    for a, b in combinations(range(len(names)), 2):
        pairs = [(np.shape(probe[a]), np.shape(probe[b])) for probe in trial.calls]
        if all(one == other for one, other in pairs) and _right_for(
            trial, found, [_swapped(probe, a, b) for probe in trial.calls]
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


def transposed_weights(trial: Trial) -> Seen | None:
    """The answer is right once weights are handed over transposed: they are used transposed."""
    places = [k for k, name in enumerate(trial.names) if name[0] == "W"]
    for turned in (c for n in range(1, len(places) + 1) for c in combinations(places, n)):
        pairs = [
            (trial.answer(_transposed(probe, turned), right=False), trial.answer(probe, right=True))
            for probe in trial.calls
        ]
        if all(a and close(a[trial.output], b[trial.output]) for a, b in pairs):
            names = " and ".join(trial.names[k] for k in turned)
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
    for name, value in trial.probe.neutral.items():
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
    neutral = {name: value for name, value in trial.probe.neutral.items() if value in (0, 1)}
    if len(neutral) < 2:
        return None
    probes = [
        tuple(
            _filled(old, neutral[name]) if name in neutral else old
            for name, old in zip(names, probe, strict=True)
        )
        for names, probe in ((trial.names, probe) for probe in trial.calls)
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
    for place, name in enumerate(trial.names):
        for probe in trial.calls:
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
    return _seen_too_far(name, place, trial.probe.outer if outside else trial.probe.unit)


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
                what = "entry of axis 0" if whole else trial.probe.unit
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
    for words, change in trial.probe.cancels.items():
        pairs = [(trial.both(probe), trial.both(change(*probe))) for probe in trial.calls]
        if all(a and b and not close(a[0], b[0]) for a, b in pairs):
            return Seen(
                f"{{it}} changes with {words}: a shift that should cancel.",
                "What is subtracted or divided that makes such a shift cancel?",
            )
    return None


def not_linear(trial: Trial) -> Seen | None:
    """A gradient that does not double when the upstream gradient does."""
    upstream = trial.names[0]
    if upstream not in ("dy", "dp"):
        return None
    before = [trial.both(probe) for probe in trial.calls]
    for words, times in (("is doubled", 2.0), ("changes its sign", -1.0)):
        after = [trial.both(probe) for probe in trial.with_argument(upstream, partial(np.multiply, times))]
        if any(a and b and not close(times * a[0], b[0]) for a, b in zip(before, after, strict=True)):
            return Seen(
                f"{{it}} does not follow when {upstream} {words}: a gradient is in proportion to {upstream}.",
                f"Where does the sign or the size of {upstream} decide anything?",
            )
    return None


# --- the order -----------------------------------------------------------------------------------------

NUMBERS: tuple[Look, ...] = relations.LOOKS  # what the numbers alone show
CALLS: tuple[Look, ...] = (  # what further calls show, and what holds of a part
    unused,
    other_argument,
    exchanged,
    transposed_weights,
    at_neutral,
    too_wide,
    too_narrow,
    not_cancelled,
    not_linear,
    *relations.PARTLY,
)
LOOKS = (*NUMBERS, *CALLS)  # an exercise puts its own between the two: (*NUMBERS, spread, *CALLS)
