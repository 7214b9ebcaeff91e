"""What can be seen in an answer that is not right: known mistakes, then looks, in one order.

A look is given one output on every call, beside the right one, and may call the function again with one
thing changed at a time. It says what holds on every call, and asks one question; or it says nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import chain, combinations, compress, product
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
from npformer.exercises.relations import Look, Seen, close, ratio, tried
from npformer.exercises.task import Code, Mistake

__all__ = ["Seen", "close", "ratio"]  # for the topics' own looks
Function = Callable[..., Any]
Change = Callable[..., Arguments]  # of a call


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
    spoilt = differing(task, found)
    met = [known for known in singles(task) if known.spoilt <= spoilt and _fits(task, known, found)]
    if alone := dict.fromkeys(known.mistake for known in met if known.spoilt == spoilt):
        return [(mistake,) for mistake in alone]
    parts = {known.mistake: known.spoilt for known in reversed(met)}  # of each the first form
    told = sorted(name for names in parts.values() for name in names)
    return [tuple(reversed(parts))] if told == sorted(spoilt) else []


def _fits(task: Code, known: Known, found: tuple[Outcome, ...]) -> bool:
    """Whether what a mistake spoils is as it makes it, on every call; or stops where it does."""
    spoils, tolerance = [name in known.spoilt for name in task.probe.outputs], known.mistake.tolerance
    return all(
        all(same(x, y, tolerance) for x, y in compress(zip(a.arrays, b.arrays, strict=True), spoils))
        if a.arrays and b.arrays
        else same_outcome(a, b)
        for a, b in zip(found, known.outcomes, strict=True)
    )


# --- a tuple, a dict, weights the other way round ---------------------------------------------------


def mixed(task: Code, found: tuple[Outcome, ...]) -> Seen | None:
    """The right arrays in a tuple or a dict, too few or too many of them, or in another order."""
    outputs, expected = task.probe.outputs, right(task)
    entries, in_dict = [_entries(outcome.raw) for outcome in found], isinstance(found[0].raw, dict)
    if len({*map(len, entries)}) > 1 or not entries[0]:
        return None
    dues = dict(zip(outputs, zip(*(outcome.arrays for outcome in expected), strict=True), strict=True))
    came = [
        next((name for name, due in dues.items() if all(map(same, parts, due))), "")
        for parts in zip(*entries, strict=True)
    ]
    elsewhere = sum(one not in ("", due) for one, due in zip(came, outputs, strict=False))
    if len(came) == len(outputs) and not in_dict and elsewhere < 2:
        return None
    how = ", in a dict" if in_dict else ", in a tuple" if len(outputs) == 1 else ""
    how = how or ", in this order" * (len(came) == len(outputs))
    asked = f"{len(outputs)} outputs are asked for" if len(outputs) > 1 else "One output is asked for"
    told = listed([name or "something else" for name in came])
    says = f"{asked}, {listed(list(outputs))}; {len(came)} came back{how}: {told}."
    return Seen(says, "What stands behind `return`, and in which order?")


def _entries(raw: Any) -> list[Array]:
    """What stands in a tuple, a list or a dict; what is no array is counted, and agrees with no output."""
    raw = [raw] if isinstance(raw, np.ndarray) else raw
    parts = raw.values() if isinstance(raw, dict) else raw if isinstance(raw, tuple | list) else ()
    arrays: list[Array] = []
    for part in parts:
        try:
            arrays.append(as_array("", part).astype(float))
        except Unread:
            arrays.append(np.array(np.nan))
    return arrays


def turned(task: Code, function: Function) -> Seen | None:
    """Weights that fit only transposed: calls stop, or, with d_ff = d_model, give other numbers."""
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
    """The first thing that is seen: by the numbers alone, by the exercise's own looks, by further calls."""
    looks = (*NUMBERS, *task.looks, *CALLS)
    with quiet():
        if (seen := whole(trial)) is not None:
            return seen
        trial = trial._replace(
            found=tuple(a.astype(float) for a in trial.found),
            right=tuple(b.astype(float) for b in trial.right),
        )
        return next((seen for look in looks if (seen := tried(look, trial)) is not None), None)


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
    idle = [name for place, name in enumerate(trial.names) if _idle(trial, at([place], other))]
    if not idle:
        return None
    there = " there" if len(trial.probe.outputs) > 1 else ""
    return Seen(
        f"{{it}} does not change when {' or '.join(idle)} {verb(idle, 'do')}: {listed(idle)} "
        f"{'is' if len(idle) == 1 else 'are'} not used{there}.",
        f"Where {verb(idle, 'do')} {listed(idle)} enter?",
    )


def _idle(trial: Trial, change: Change) -> bool:
    pairs = [(trial.both(given), trial.both(change(*given))) for given in trial.calls]
    still = all(a and b and _equal(a[0], b[0]) for a, b in pairs)
    return still and any(a and b and not _equal(a[1], b[1]) for a, b in pairs)


def _equal(a: Array, b: Array) -> bool:
    return bool(a.shape == b.shape and np.array_equal(a, b, equal_nan=True))


Tried = tuple[str, str, Change, Any]  # what is said and asked where a change holds


def where(
    holds: Callable[[Trial, Change, Any], bool],
) -> Callable[[Callable[[Trial], Iterator[Tried]]], Look]:
    """A look that goes through changes of a call and says the sentence of the first that holds."""

    def looking(changes: Callable[[Trial], Iterator[Tried]]) -> Look:
        def look(trial: Trial) -> Seen | None:
            fit = (Seen(says, asks) for says, asks, mine, more in changes(trial) if holds(trial, mine, more))
            return next(fit, None)

        return look

    return looking


def met(trial: Trial, mine: Change, theirs: Change) -> bool:
    """Whether the answer to calls changed in one way is the right one of calls changed in another way."""
    sides = ((trial.answer(mine(*given)), trial.answer(theirs(*given), right=True)) for given in trial.calls)
    return all(a and b and close(a[trial.output], b[trial.output]) for a, b in sides)


def unmoved(trial: Trial, mine: Change, times: float) -> bool:
    """Whether an answer is not `times` what it was, on some changed call."""
    pairs = ((trial.both(given), trial.both(mine(*given))) for given in trial.calls)
    return any(a and b and not close(times * a[0], b[0]) for a, b in pairs)


def as_it_is(*given: Any) -> Arguments:
    """The call without a change."""
    return given


def at(places: Sequence[int], change: Callable[[Any], Any]) -> Change:
    """A change of the arguments at some places."""
    return lambda *given: tuple(change(part) if k in places else part for k, part in enumerate(given))


def subsets(things: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Each thing, each two of them, and so on."""
    return chain.from_iterable(combinations(things, n) for n in range(1, len(things) + 1))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "with the opposite sign": lambda a: -a,
    "squared": lambda a: a * a,
    "replaced by its absolute value": np.abs,
    "replaced by its root": lambda a: np.sqrt(np.abs(a)),
    "replaced by 1 less it": lambda a: 1 - a,
    "with 1 added": lambda a: a + 1,
}


@where(met)
def other_argument(trial: Trial) -> Iterator[Tried]:
    """The answer is what comes out right when one argument is another one: squared, without its sign."""
    for place, name in enumerate(trial.names):
        for words, change in CHANGES.items():
            says = f"{{it}} is what comes out right for other values: {name} {words}."
            asks = f"What is done with {name} before it is used?"
            yield says, asks, as_it_is, at([place], partial(_changed, change))


def _changed(change: Callable[[Any], Any], value: Any) -> Any:
    """The changed argument, where that makes sense; else the argument."""
    if isinstance(value, np.ndarray) and value.dtype != bool:
        return change(value) % (value.max() + 1) if value.dtype.kind == "i" else change(value)
    return float(change(np.array([value]))[0]) if isinstance(value, float) else value


@where(met)
def exchanged(trial: Trial) -> Iterator[Tried]:
    """The answer is right for two arguments that have changed places."""
    for a, b in combinations(range(len(trial.names)), 2):
        if all(np.shape(given[a]) == np.shape(given[b]) for given in trial.calls):
            order = [b if k == a else a if k == b else k for k in range(len(trial.names))]
            one, two = trial.names[a], trial.names[b]
            says = f"{{it}} is right for {one} and {two} in each other's place: they are exchanged."
            change = partial(lambda order, *given: tuple(given[k] for k in order), order)
            yield says, f"What does {one} do, and what {two}?", as_it_is, change


@where(met)
def transposed_weights(trial: Trial) -> Iterator[Tried]:
    """The answer is right once weights are handed over transposed: they are used transposed."""
    for places in subsets([k for k, name in enumerate(trial.names) if name[0] == "W"]):
        names = " and ".join(trial.names[k] for k in places)
        says = (
            f"{names} {verb(places, 'fit')} only the other way round: with rows and columns exchanged before "
            "the call, {it} is right."
        )
        yield says, "Which axis of x meets which axis of a weight in x W?", at(places, np.transpose), as_it_is


@where(met)
def at_neutral(trial: Trial) -> Iterator[Tried]:
    """All agrees where one argument does nothing, or several: what differs is the use of that."""
    for names in map(list, subsets(list(trial.probe.neutral))):
        values = [(name, trial.probe.neutral[name]) for name in names]
        told = (f"{name} = {value:g}" if value in (0, 1) else f"{name} near 0" for name, value in values)
        call = "Without a mask" if names == ["mask"] else f"With {' and '.join(told)}"
        be, it = ("is", "it") if len(names) == 1 else ("are", "each of them")
        says = f"{call} {{it}} agrees: the difference comes from how {listed(names)} {be} used."
        asks = f"Where {verb(names, 'do')} {listed(names)} enter, and what does {it} act on?"
        filled = partial(_neutral, trial, names)
        yield says, asks, filled, filled


def _neutral(trial: Trial, names: list[str], *given: Any) -> Arguments:
    """The call with arguments that do nothing."""
    kept = zip(trial.names, given, strict=True)
    return tuple(_filled(old, trial.probe.neutral[name]) if name in names else old for name, old in kept)


def _filled(old: Any, value: Any) -> Any:
    return np.full_like(old, value) if isinstance(old, np.ndarray) and value is not None else value


@where(unmoved)
def not_cancelled(trial: Trial) -> Iterator[Tried]:
    """A change that the right answer does not see; a gradient that does not follow the one that arrives."""
    for words, change in trial.probe.cancels.items():
        asks = "What is subtracted or divided that makes such a shift cancel?"
        yield f"{{it}} changes with {words}: a shift that should cancel.", asks, change, 1.0
    dy = trial.names[0]
    for words, times in (("is doubled", 2.0), ("changes its sign", -1.0)) if dy in ("dy", "dp") else ():
        says = f"{{it}} does not follow when {dy} {words}: a gradient is in proportion to {dy}."
        asks = f"Where does the sign or the size of {dy} decide anything?"
        yield says, asks, at([0], partial(np.multiply, times)), times


def shown(trial: Trial, *looks: Look) -> Seen | None:
    """What calls show that are made for it, as v = 1 shows the weights: looked at as the answer itself is."""
    for words, change in trial.probe.shows.items():
        calls = tuple(change(*given) for given in trial.calls)
        pairs = [pair for pair in map(trial.both, calls) if pair and pair[0].shape == pair[1].shape]
        if len(pairs) == len(calls) and not all(close(*pair) for pair in pairs):
            found, due = zip(*pairs, strict=True)
            view = trial._replace(calls=calls, found=found, right=due)
            if seen := next((one for look in looks if (one := tried(look, view))), None):
                return Seen(f"{words}: {seen.says}", seen.asks)
    return None


def hidden(view: Trial) -> Seen | None:
    """Shares of keys that are to be hidden, or no shares where nothing is."""
    closed = [a == 0 for a, b in view.pairs if (b != 0).all()]
    if closed and all((c == np.triu(np.ones(c.shape[-2:], bool), 1)).all() and c.any() for c in closed):
        return OWN_MASK
    if any(((a != 0) & (b == 0)).any() for a, b in view.pairs):
        asks = "What has a hidden score to be, so that exp makes 0 of it?"
        return Seen("keys that the mask hides still get weight.", asks)
    return None


OWN_MASK = Seen(
    "where nothing is to be hidden, keys that stand later than the query get no weight, and the others do: "
    "a causal mask.",
    "Which keys may a query look at when no mask is given?",
)


# --- which entries see which -----------------------------------------------------------------------


class Reach(NamedTuple):
    """Which entries change with one row of an argument: of the answer, and of the right one."""

    name: str
    last: bool  # row, or the first one
    mine: Array
    due: Array


def reaches(trial: Trial, whole: bool = False) -> list[Reach]:
    """What one row of each argument reaches in each call; or the whole of one entry along axis 0."""
    found = []
    for last, (place, name), given in product((True, False), enumerate(trial.names), trial.calls):
        value = given[place]
        if np.ndim(value) < 2 or name[0] == "W" or value.dtype.kind != "f":
            continue
        new, entry = value.copy(), (-1 if last else 0,) * (1 if whole else value.ndim - 1)
        new[entry] = other(value)[entry]
        before, after = trial.both(given), trial.both((*given[:place], new, *given[place + 1 :]))
        shapes = {part.shape for pair in (before, after) if pair for part in pair}
        if before and after and len(shapes) == 1 and not np.isnan([before, after]).any():
            changes = (np.abs(b - a) > 1e-9 * (1 + np.abs(b)) for a, b in zip(before, after, strict=True))
            found.append(Reach(name, last, *changes))
    return found


def too_wide(trial: Trial) -> Seen | None:
    """An entry depends on rows that are none of its business."""
    found = reaches(trial)
    used = {reach.name for reach in found if reach.due.any()}
    for name, _, mine, due in found:
        # a token of which nothing arrives, as one whose units are all off, does not show what it may reach
        if not (mine & ~due).any() or (name in used and not due.any()):
            continue
        if name not in used:
            says = f"{{it}} changes when {name} does; it should depend on other arguments only."
            return Seen(says, f"Where does {name} enter?")
        rest = tuple(range(1, due.ndim))
        outside = len(rest) > 1 and (mine.any(axis=rest) & ~due.any(axis=rest)).any()
        unit, place = trial.probe.outer if outside else trial.probe.unit, np.argwhere(mine & ~due)[0].tolist()
        many = unit[:-1] + "ies" if unit.endswith("y") else f"{unit}s"
        return Seen(
            f"When one {unit} of {name} changes and nothing else, {{it}} changes at other {many} too, first "
            f"at {tuple(place)}: it depends on {many} that it should not see.",
            f"Over which axis is anything summed, averaged or repeated, and which {unit} may see which?",
        )
    return None


def too_narrow(trial: Trial) -> Seen | None:
    """An entry does not depend on a row, or on a whole sentence, that it should see."""
    for whole in (False, True):
        found = reaches(trial, whole)
        for name, last in dict.fromkeys((reach.name, reach.last) for reach in found):
            same_row = [reach for reach in found if (reach.name, reach.last) == (name, last)]
            if any(r.due.any() for r in same_row) and not any(r.mine.any() for r in same_row):
                what = f"{'last' if last else 'first'} {'entry of axis 0' if whole else trial.probe.unit}"
                return Seen(
                    f"{{it}} does not change when the {what} of {name} does.",
                    f"Do all rows of {name} take part, the first and the last too?",
                )
    return None


# --- the order -----------------------------------------------------------------------------------------

NUMBERS: tuple[Look, ...] = relations.LOOKS  # what the numbers alone show
CALLS: tuple[Look, ...] = (  # what further calls show, and what holds of a part
    unused,
    lambda trial: shown(trial, hidden, *NUMBERS, relations.row_sums),
    other_argument,
    exchanged,
    at_neutral,
    too_wide,
    too_narrow,
    not_cancelled,
    lambda trial: shown(trial, relations.proportions),
    *relations.PARTLY,
)
