"""Detectors that call a wrong function again with changed arguments, one change at a time.

A call is a tuple of arguments with which the checker runs the student's function and the solution. A detector
receives one output of both functions for every call of the exercise. The detector returns a finding that
holds for every call, or None. "The answer" is the output of the student's function.

A derived call is a call with changed arguments, such as v = identity matrix in attention. Then the answer
shows an intermediate result, such as the attention weights. The rule that makes derived calls is called a
view.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.exercises import number_detectors
from npformer.exercises.number_detectors import Detector, are_close, attempt
from npformer.exercises.probe import Arguments, Trial, View
from npformer.exercises.verdict import Finding, make_finding

Change = Callable[..., Arguments]  # takes the arguments of a call, and returns changed arguments


# --- one argument at a time ------------------------------------------------------------------------


def vary(value: Any) -> Any:
    """Return a different value of the same type and shape."""
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
    """Report arguments that do not affect the answer, although they affect the output of the solution."""
    idle = tuple(name for k, name in enumerate(trial.names) if _is_idle(trial, change_arguments([k], vary)))
    if not idle:
        return None
    has_several_outputs = len(trial.probe.outputs) > 1
    if has_several_outputs:
        return make_finding("unused_there", names=idle)
    return make_finding("unused", names=idle)


def _is_idle(trial: Trial, change: Change) -> bool:
    """Return whether a change never affects the answer, but affects the solution's output in some call."""
    affects_correct_answer = False
    for given in trial.calls:
        before = trial.both(given)
        after = trial.both(change(*given))
        if before is None or after is None:
            return False
        if not _are_identical(before[0], after[0]):
            return False
        if not _are_identical(before[1], after[1]):
            affects_correct_answer = True
    return affects_correct_answer


def _are_identical(a: Array, b: Array) -> bool:
    """Return whether two arrays have the same shape and exactly the same numbers."""
    return bool(a.shape == b.shape and np.array_equal(a, b, equal_nan=True))


def is_correct_for(trial: Trial, student_change: Change, correct_change: Change) -> bool:
    """Return whether the answer for changed arguments equals the correct output for other changed arguments.

    `student_change` changes the arguments of the student's function, `correct_change` those of the solution.
    """
    for given in trial.calls:
        found = trial.answer(student_change(*given))
        right = trial.answer(correct_change(*given), right=True)
        has_failed = not found or not right
        if has_failed or not are_close(found[trial.output], right[trial.output]):
            return False
    return True


def keep_arguments(*given: Any) -> Arguments:
    """Return the arguments of a call unchanged."""
    return given


def change_arguments(indices: Sequence[int], change: Callable[[Any], Any]) -> Change:
    """Make a `Change` that applies a function to the arguments with these indices."""

    def change_call(*given: Any) -> Arguments:
        arguments = list(given)
        for k in indices:
            arguments[k] = change(given[k])
        return tuple(arguments)

    return change_call


def list_subsets(items: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the nonempty subsets of a list: first single items, then pairs, and so on."""
    for count in range(1, len(items) + 1):
        yield from combinations(items, count)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "negated": lambda a: -a,
    "squared": lambda a: a * a,
    "absolute": np.abs,
    "root": lambda a: np.sqrt(np.abs(a)),
    "one_minus": lambda a: 1 - a,
    "plus_one": lambda a: a + 1,
}


def changed_argument(trial: Trial) -> Finding | None:
    """Report an answer that is correct for a changed argument, for example for x² instead of x."""
    for k, name in enumerate(trial.names):
        for change, function in CHANGES.items():
            change_call = change_arguments([k], partial(_change_if_numeric, function))
            if is_correct_for(trial, keep_arguments, change_call):
                return make_finding("correct_for_changed_argument", name=name, change=change)
    return None


def _change_if_numeric(change: Callable[[Any], Any], value: Any) -> Any:
    """Return a changed float or array. Return other arguments, such as a mask or a count, unchanged."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "i":
        return change(value) % (value.max() + 1)
    if isinstance(value, np.ndarray) and value.dtype != bool:
        return change(value)
    if isinstance(value, float):
        return float(change(np.array([value]))[0])
    return value


def exchanged_arguments(trial: Trial) -> Finding | None:
    """Report an answer that would be correct if two arguments of the same shape were exchanged."""
    count = len(trial.names)
    for a, b in combinations(range(count), 2):
        have_same_shape = all(np.shape(given[a]) == np.shape(given[b]) for given in trial.calls)
        if not have_same_shape:
            continue
        order = list(range(count))
        order[a] = b
        order[b] = a
        if is_correct_for(trial, keep_arguments, partial(_reorder, order)):
            return make_finding("exchanged_arguments", first=trial.names[a], second=trial.names[b])
    return None


def _reorder(order: Sequence[int], *given: Any) -> Arguments:
    """Return the arguments of a call in a different order."""
    return tuple(given[k] for k in order)


def transposed_weights(trial: Trial) -> Finding | None:
    """Report an answer that becomes correct if some weight matrices are passed transposed."""
    weights = [k for k, name in enumerate(trial.names) if name[0] == "W"]
    for indices in list_subsets(weights):
        if is_correct_for(trial, change_arguments(indices, np.transpose), keep_arguments):
            return make_finding("weights_transposed", names=tuple(trial.names[k] for k in indices))
    return None


def neutral_arguments(trial: Trial) -> Finding | None:
    """Report arguments that the function uses wrongly: the answer is correct only if they have no effect."""
    for names in list_subsets(list(trial.probe.neutral)):
        neutralise = partial(_neutralise, trial, names)
        if is_correct_for(trial, neutralise, neutralise):
            if names == ("mask",):
                return make_finding("agrees_without_mask")
            values = tuple(trial.probe.neutral[name] for name in names)
            return make_finding("agrees_at_neutral", names=names, values=values)
    return None


def _neutralise(trial: Trial, names: Sequence[str], *given: Any) -> Arguments:
    """Replace the arguments with these names by their neutral values, at which they have no effect."""
    arguments = []
    for name, value in zip(trial.names, given, strict=True):
        if name in names:
            arguments.append(_fill(value, trial.probe.neutral[name]))
        else:
            arguments.append(value)
    return tuple(arguments)


def _fill(argument: Any, value: Any) -> Any:
    """Return a value, or an array of this value if the argument is an array."""
    if isinstance(argument, np.ndarray) and value is not None:
        return np.full_like(argument, value)
    return value


def broken_invariance(trial: Trial) -> Finding | None:
    """Report an answer that is not invariant under a shift, or a gradient that is not linear in dy."""
    for shift, change in trial.probe.invariances.items():
        if _breaks_scaling(trial, change, 1.0):
            return make_finding("does_not_cancel", shift=shift)
    first = trial.names[0]
    is_backward = first in ("dy", "dp")
    if not is_backward:
        return None
    for change_name, factor in (("doubled", 2.0), ("sign_changed", -1.0)):
        if _breaks_scaling(trial, change_arguments([0], partial(np.multiply, factor)), factor):
            return make_finding("not_linear", name=first, change=change_name)
    return None


def _breaks_scaling(trial: Trial, change: Change, factor: float) -> bool:
    """Return whether there is a call whose answer a change does not multiply by the expected factor."""
    for given in trial.calls:
        before = trial.both(given)
        after = trial.both(change(*given))
        if before is not None and after is not None and not are_close(factor * before[0], after[0]):
            return True
    return False


# --- derived calls ---------------------------------------------------------------------------------


def apply_to_views(trial: Trial, *detectors: Detector) -> Finding | None:
    """Apply detectors to the derived calls of each view, and return the first finding."""
    for name, view in trial.probe.views.items():
        derived = _derive(trial, view)
        if derived is None or all(are_close(*pair) for pair in derived.pairs):
            continue
        for detector in detectors:
            finding = attempt(detector, derived)
            if finding is not None:
                return Finding(finding.kind, parameters=finding.parameters, view=name)
    return None


def _derive(trial: Trial, view: View) -> Trial | None:
    """Make the derived calls of a view. Return None if a call fails or if the answer has a wrong shape."""
    calls = []
    found = []
    right = []
    for given in trial.calls:
        derived_call = view.change(*given)
        pair = trial.both(derived_call)
        if pair is None or pair[0].shape != pair[1].shape:
            return None
        student_part = view.part(pair[0])
        right_part = view.part(pair[1])
        if 1 in right_part.shape:  # Skip this call. With a single key, every attention weight is 1.
            continue
        calls.append(derived_call)
        found.append(student_part)
        right.append(right_part)
    derived_trial = trial._replace(calls=tuple(calls), found=tuple(found), right=tuple(right))
    return derived_trial if calls else None


def hidden_keys(trial: Trial) -> Finding | None:
    """Report masked keys whose attention weight is not 0, or a causal mask in calls without a mask."""
    hidden = [a == 0 for a, b in trial.pairs if (b != 0).all()]
    if hidden and all(map(_is_causal, hidden)):
        return make_finding("causal_without_mask")
    if any(((a != 0) & (b == 0)).any() for a, b in trial.pairs):
        return make_finding("hidden_keys_weighted")
    return None


def _is_causal(hidden: Array) -> bool:
    """Return whether a mask hides exactly the keys after each query's position, as a causal mask does."""
    later = np.triu(np.ones(hidden.shape[-2:], bool), 1)
    return bool((hidden == later).all() and hidden.any())


# --- which entries depend on which -------------------------------------------------------------------


class Reach(NamedTuple):
    """The output entries that depend on one row of an argument, in the answer and in the correct output."""

    name: str  # the name of the argument
    row: tuple[int, ...]  # the index of the changed row, without the last axis
    axes: int  # the length of the index `row`
    is_last: bool  # whether the changed row is the last row; otherwise it is the first row
    mine: Array  # True for each entry of the answer that changes
    right: Array  # True for each entry of the correct output that changes


def reaches(trial: Trial, whole: bool = False) -> list[Reach]:
    """Change the first or the last row of each argument in each call, and record which entries change.

    With ``whole=True``, change the first or the last entry along axis 0 instead.
    """
    found = []
    for is_last, k, given in product((True, False), range(len(trial.names)), trial.calls):
        reach = _reach(trial, given, k, is_last, whole)
        if reach is not None:
            found.append(reach)
    return found


def _reach(trial: Trial, given: Arguments, k: int, is_last: bool, whole: bool) -> Reach | None:
    """Change one row of the argument with index k in one call; return None if this is not possible."""
    name = trial.names[k]
    value = given[k]
    has_rows = np.ndim(value) >= 2 and name[0] != "W" and value.dtype.kind == "f"
    if not has_rows:
        return None
    index_length = 1 if whole else value.ndim - 1
    row = (_end(is_last),) * index_length
    changed_value = value.copy()
    changed_value[row] = vary(value)[row]
    before = trial.both(given)
    after = trial.both((*given[:k], changed_value, *given[k + 1 :]))
    shapes = {array.shape for array in (*(before or ()), *(after or ()))}
    if before is None or after is None or len(shapes) > 1 or np.isnan([before, after]).any():
        return None
    mine, right = (np.abs(b - a) > 1e-9 * (1 + np.abs(b)) for a, b in zip(before, after, strict=True))
    index = tuple(i % n for i, n in zip(row, value.shape, strict=False))
    return Reach(name, index, len(row), is_last, mine, right)


def _end(is_last: bool) -> int:
    """Return -1, the index of the last row, or 0, the index of the first row."""
    return -1 if is_last else 0


def depends_on_too_much(trial: Trial) -> Finding | None:
    """Report an output entry that depends on rows of an argument on which it should not depend."""
    # If the answer has its axes in a different order, its entries cannot be compared with the correct
    # entries.
    if any(a.shape != b.shape for a, b in trial.pairs):
        return None
    found = reaches(trial)
    used = {reach.name for reach in found if reach.right.any()}
    for reach in found:
        extra = reach.mine & ~reach.right
        if not extra.any():
            continue
        if reach.name not in used:
            return make_finding("depends_on_wrong_argument", argument=reach.name)
        # Skip a row that has no effect in this call, such as a token whose hidden units are all 0.
        if not reach.right.any():
            continue
        index = tuple(np.argwhere(extra)[0].tolist())
        crossed_axis = _find_crossed_axis(trial, reach, extra)
        if crossed_axis is not None:
            return make_finding("depends_on_other_lines", argument=reach.name, axis=crossed_axis, index=index)
        axis = _row_axis(trial, reach.name)
        return make_finding("depends_on_too_much", argument=reach.name, axis=axis, index=index)
    return None


def _find_crossed_axis(trial: Trial, reach: Reach, extra: Array) -> str | None:
    """Return the first shared axis along which a changed row affects output entries at other indices.

    The axis must occur in both the argument and the output.
    """
    output_axes = trial.probe.axis_names.get(trial.probe.outputs[trial.output], [])
    argument_axes = trial.probe.axis_names.get(reach.name, [])
    has_named_axes = len(output_axes) == extra.ndim
    for axis, index in zip(argument_axes, reach.row, strict=False):
        if not has_named_axes or axis not in output_axes:
            continue
        entries = np.moveaxis(extra, output_axes.index(axis), 0)
        other_entries = np.delete(entries, index, axis=0)
        if other_entries.any():
            return axis
    return None


def _row_axis(trial: Trial, name: str) -> str:
    """Return the name of the axis that counts the rows of an argument."""
    axes = trial.probe.axis_names.get(name, [])
    return axes[-2] if len(axes) > 1 else "row"


def ignores_a_line(trial: Trial) -> Finding | None:
    """Report a row of an argument, or an entry along its axis 0, that does not affect the answer."""
    if any(a.shape != b.shape for a, b in trial.pairs):
        return None
    for whole in (False, True):
        found = reaches(trial, whole)
        for name, is_last in dict.fromkeys((reach.name, reach.is_last) for reach in found):
            of_row = [reach for reach in found if (reach.name, reach.is_last) == (name, is_last)]
            should_matter = any(reach.right.any() for reach in of_row)
            matters = any(reach.mine.any() for reach in of_row)
            if should_matter and not matters:
                index_length = 1 if whole else of_row[0].axes
                return make_finding("ignores_line", argument=name, index=(_end(is_last),) * index_length)
    return None


# --- the order -------------------------------------------------------------------------------------

VIEW_DETECTORS = (hidden_keys, *number_detectors.DETECTORS, number_detectors.check_row_sums)


def views(trial: Trial) -> Finding | None:
    """Apply the detectors in VIEW_DETECTORS to the derived calls."""
    return apply_to_views(trial, *VIEW_DETECTORS)


def view_proportions(trial: Trial) -> Finding | None:
    """Report rows of a derived call's result that correctly sum to 1, but contain wrong numbers."""
    return apply_to_views(trial, number_detectors.check_proportions)


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
