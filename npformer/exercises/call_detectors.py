"""Detectors that call a wrong answer again, with one thing changed at a time.

A detector receives one output on every call and may call the student's function again. A finding must hold on
every call.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, combinations, product
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.exercises import number_detectors
from npformer.exercises.number_detectors import Detector, attempt, close
from npformer.exercises.probe import Arguments, Trial, View
from npformer.exercises.verdict import Finding, find

Change = Callable[..., Arguments]  # of a call


# --- one argument at a time ------------------------------------------------------------------------


def vary(value: Any) -> Any:
    """Return another value of the same type and shape."""
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
    noise = np.random.default_rng(3).normal(size=value.shape)
    is_positive = (value > 0).all()
    return value * np.exp(0.5 * noise) if is_positive else value + 0.5 * noise


def unused_arguments(trial: Trial) -> Finding | None:
    """Report arguments that the answer does not depend on, although it should."""
    idle = tuple(name for place, name in enumerate(trial.names) if _is_idle(trial, changing([place], vary)))
    if not idle:
        return None
    has_several_outputs = len(trial.probe.outputs) > 1
    return find("unused_there" if has_several_outputs else "unused", names=idle)


def _is_idle(trial: Trial, change: Change) -> bool:
    """Return whether a change moves the correct answer on some call, and the student's on none."""
    pairs = [(trial.both(given), trial.both(change(*given))) for given in trial.calls]
    stays = all(before and after and _equal(before[0], after[0]) for before, after in pairs)
    return stays and any(before and after and not _equal(before[1], after[1]) for before, after in pairs)


def _equal(a: Array, b: Array) -> bool:
    return bool(a.shape == b.shape and np.array_equal(a, b, equal_nan=True))


def is_correct_for(trial: Trial, mine: Change, theirs: Change) -> bool:
    """Return whether the answer to calls changed one way is correct for calls changed another way."""
    for given in trial.calls:
        found, right = trial.answer(mine(*given)), trial.answer(theirs(*given), right=True)
        if not found or not right or not close(found[trial.output], right[trial.output]):
            return False
    return True


def unchanged(*given: Any) -> Arguments:
    """The call without a change."""
    return given


def changing(places: Sequence[int], change: Callable[[Any], Any]) -> Change:
    """A change of the arguments at some places."""
    return lambda *given: tuple(change(part) if k in places else part for k, part in enumerate(given))


def subsets(things: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Each thing, each two of them, and so on."""
    return chain.from_iterable(combinations(things, n) for n in range(1, len(things) + 1))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "negated": lambda a: -a,
    "squared": lambda a: a * a,
    "absolute": np.abs,
    "root": lambda a: np.sqrt(np.abs(a)),
    "one_minus": lambda a: 1 - a,
    "plus_one": lambda a: a + 1,
}


def changed_argument(trial: Trial) -> Finding | None:
    """Report an answer that is correct for another value of one argument, such as its square."""
    for place, name in enumerate(trial.names):
        for change, function in CHANGES.items():
            if is_correct_for(trial, unchanged, changing([place], partial(_changed, function))):
                return find("correct_for_changed_argument", name=name, change=change)
    return None


def _changed(change: Callable[[Any], Any], value: Any) -> Any:
    """The changed argument, where that makes sense; else the argument."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "i":
        return change(value) % (value.max() + 1)
    if isinstance(value, np.ndarray) and value.dtype != bool:
        return change(value)
    if isinstance(value, float):
        return float(change(np.array([value]))[0])
    return value


def exchanged_arguments(trial: Trial) -> Finding | None:
    """Report an answer that is correct once two arguments are exchanged."""
    for a, b in combinations(range(len(trial.names)), 2):
        if all(np.shape(given[a]) == np.shape(given[b]) for given in trial.calls):
            order = [b if k == a else a if k == b else k for k in range(len(trial.names))]
            if is_correct_for(trial, unchanged, partial(_reordered, order)):
                return find("exchanged_arguments", first=trial.names[a], second=trial.names[b])
    return None


def _reordered(order: Sequence[int], *given: Any) -> Arguments:
    return tuple(given[k] for k in order)


def transposed_weights(trial: Trial) -> Finding | None:
    """Report an answer that is correct once weights are passed transposed."""
    for places in subsets([k for k, name in enumerate(trial.names) if name[0] == "W"]):
        if is_correct_for(trial, changing(places, np.transpose), unchanged):
            return find("weights_transposed", names=tuple(trial.names[k] for k in places))
    return None


def neutral_arguments(trial: Trial) -> Finding | None:
    """Report arguments without which the answer is correct: the mistake is in how they are used."""
    for names in subsets(list(trial.probe.neutral)):
        filled = partial(_neutral, trial, names)
        if is_correct_for(trial, filled, filled):
            if names == ("mask",):
                return find("agrees_without_mask")
            values = tuple(trial.probe.neutral[name] for name in names)
            return find("agrees_at_neutral", names=names, values=values)
    return None


def _neutral(trial: Trial, names: Sequence[str], *given: Any) -> Arguments:
    """The call with arguments that do nothing."""
    pairs = zip(trial.names, given, strict=True)
    return tuple(_filled(old, trial.probe.neutral[name]) if name in names else old for name, old in pairs)


def _filled(old: Any, value: Any) -> Any:
    return np.full_like(old, value) if isinstance(old, np.ndarray) and value is not None else value


def broken_invariance(trial: Trial) -> Finding | None:
    """Report an answer that changes with a shift that should cancel, or a gradient not linear in dy."""
    for shift, change in trial.probe.invariances.items():
        if _moves(trial, change, 1.0):
            return find("does_not_cancel", shift=shift)
    first = trial.names[0]
    for change_name, times in (("doubled", 2.0), ("sign_changed", -1.0)) if first in ("dy", "dp") else ():
        if _moves(trial, changing([0], partial(np.multiply, times)), times):
            return find("not_linear", name=first, change=change_name)
    return None


def _moves(trial: Trial, change: Change, times: float) -> bool:
    """Whether an answer is not `times` what it was, on some changed call."""
    pairs = [(trial.both(given), trial.both(change(*given))) for given in trial.calls]
    return any(before and after and not close(times * before[0], after[0]) for before, after in pairs)


# --- derived calls ---------------------------------------------------------------------------------


def seen_in_views(trial: Trial, *detectors: Detector) -> Finding | None:
    """Apply detectors to derived calls, such as those that show the attention weights."""
    for name, view in trial.probe.views.items():
        derived = _derive(trial, view)
        if derived is None or all(close(*pair) for pair in derived.pairs):
            continue
        for detector in detectors:
            finding = attempt(detector, derived)
            if finding is not None:
                return Finding(finding.kind, parameters=finding.parameters, view=name)
    return None


def _derive(trial: Trial, view: View) -> Trial | None:
    """The derived calls; None where one stops or gives another shape."""
    calls, found, right = [], [], []
    for given in trial.calls:
        derived_call = view.change(*given)
        pair = trial.both(derived_call)
        if pair is None or pair[0].shape != pair[1].shape:
            return None
        mine, theirs = view.part(pair[0]), view.part(pair[1])
        if 1 not in theirs.shape:  # with one key alone every weight is 1
            calls.append(derived_call)
            found.append(mine)
            right.append(theirs)
    return trial._replace(calls=tuple(calls), found=tuple(found), right=tuple(right)) if calls else None


def hidden_keys(trial: Trial) -> Finding | None:
    """Report masked keys that get weight, or a causal mask where none was passed."""
    closed = [a == 0 for a, b in trial.pairs if (b != 0).all()]
    if closed and all(_is_causal(c) for c in closed):
        return find("causal_without_mask")
    if any(((a != 0) & (b == 0)).any() for a, b in trial.pairs):
        return find("hidden_keys_weighted")
    return None


def _is_causal(closed: Array) -> bool:
    later = np.triu(np.ones(closed.shape[-2:], bool), 1)
    return bool((closed == later).all() and closed.any())


# --- which entries depend on which -------------------------------------------------------------------


class Reach(NamedTuple):
    """The entries that change with one row of an argument, in the answer and in the correct array."""

    name: str
    row: tuple[int, ...]  # the changed row: its index along all axes but the last
    axes: int  # how many axes that index has
    is_last: bool  # or the first
    mine: Array
    right: Array


def reaches(trial: Trial, whole: bool = False) -> list[Reach]:
    """Change one row of each argument in each call (or one whole entry of axis 0) and record the effect."""
    found = []
    for is_last, (place, name), given in product((True, False), enumerate(trial.names), trial.calls):
        value = given[place]
        if np.ndim(value) < 2 or name[0] == "W" or value.dtype.kind != "f":
            continue
        row = (-1 if is_last else 0,) * (1 if whole else value.ndim - 1)
        new = value.copy()
        new[row] = vary(value)[row]
        before, after = trial.both(given), trial.both((*given[:place], new, *given[place + 1 :]))
        shapes = {part.shape for pair in (before, after) if pair for part in pair}
        if before and after and len(shapes) == 1 and not np.isnan([before, after]).any():
            changes = (np.abs(b - a) > 1e-9 * (1 + np.abs(b)) for a, b in zip(before, after, strict=True))
            index = tuple(i % n for i, n in zip(row, value.shape, strict=False))
            found.append(Reach(name, index, len(row), is_last, *changes))
    return found


def depends_on_too_much(trial: Trial) -> Finding | None:
    """Report an entry that depends on rows of an argument that it should not depend on."""
    if any(a.shape != b.shape for a, b in trial.pairs):  # axes in a different order, perhaps
        return None
    found = reaches(trial)
    used = {reach.name for reach in found if reach.right.any()}
    for reach in found:
        extra = reach.mine & ~reach.right
        # a row that reaches nothing here, such as a token whose units are all off, shows nothing
        if not extra.any() or (reach.name in used and not reach.right.any()):
            continue
        if reach.name not in used:
            return find("depends_on_wrong_argument", argument=reach.name)
        index = tuple(np.argwhere(extra)[0].tolist())
        for axis in crossed_axes(trial, reach, extra):
            return find("depends_on_other_lines", argument=reach.name, axis=axis, index=index)
        axis = _row_axis(trial, reach.name)
        return find("depends_on_too_much", argument=reach.name, axis=axis, index=index)
    return None


def crossed_axes(trial: Trial, reach: Reach, extra: Array) -> Iterator[str]:
    """The axes that argument and output share, and along which the change reaches other entries."""
    output_axes = trial.probe.axis_names.get(trial.probe.outputs[trial.output], [])
    for axis, at in zip(trial.probe.axis_names.get(reach.name, []), reach.row, strict=False):
        if axis in output_axes and len(output_axes) == extra.ndim:
            others = np.delete(np.moveaxis(extra, output_axes.index(axis), 0), at, axis=0)
            if others.any():
                yield axis


def _row_axis(trial: Trial, name: str) -> str:
    """The axis along which an argument has its rows."""
    axes = trial.probe.axis_names.get(name, [])
    return axes[-2] if len(axes) > 1 else "row"


def ignores_a_line(trial: Trial) -> Finding | None:
    """Report a row, or a whole entry of axis 0, that the answer ignores."""
    if any(a.shape != b.shape for a, b in trial.pairs):
        return None
    for whole in (False, True):
        found = reaches(trial, whole)
        for name, is_last in dict.fromkeys((reach.name, reach.is_last) for reach in found):
            of_row = [reach for reach in found if (reach.name, reach.is_last) == (name, is_last)]
            is_due = any(reach.right.any() for reach in of_row)
            if is_due and not any(reach.mine.any() for reach in of_row):
                axes = 1 if whole else of_row[0].axes
                return find("ignores_line", argument=name, index=(-1 if is_last else 0,) * axes)
    return None


# --- the order -------------------------------------------------------------------------------------

VIEWED = (hidden_keys, *number_detectors.DETECTORS, number_detectors.row_sums)


def views(trial: Trial) -> Finding | None:
    """Apply the detectors for whole arrays to the derived calls."""
    return seen_in_views(trial, *VIEWED)


def view_proportions(trial: Trial) -> Finding | None:
    """Compare the ratios within a row of the derived calls."""
    return seen_in_views(trial, number_detectors.proportions)


DETECTORS: tuple[Detector, ...] = (
    unused_arguments,
    views,
    changed_argument,
    exchanged_arguments,
    neutral_arguments,
    depends_on_too_much,
    ignores_a_line,
    number_detectors.nearly_correct,
    broken_invariance,
    view_proportions,
    *number_detectors.PARTIAL_DETECTORS,
)
