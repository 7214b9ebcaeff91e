"""Describe how each gradient that fails is related to the correct gradient."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np

from npformer.arrays import to_host
from npformer.gradcheck.finite_differences import SQRT_EPS
from npformer.gradcheck.function_calls import Calls, Keys, iter_arrays
from npformer.gradcheck.leaf_comparison import TABLE_LIMIT, LeafComparison
from npformer.gradcheck.notes import describe_count, describe_relation
from npformer.gradcheck.relations import (
    DETECTORS,
    DETECTORS_OF_UNRELIABLE_GRADIENTS,
    Array,
    Case,
    Relation,
    find_relation,
    max_abs,
)

# The kinds of relations that can also be found if gradients are known along random directions only.
KINDS_OF_WHOLE_ARRAYS = ("zero", "should_be_zero", "should_be_zero_here", "sign", "factor")
# The steps that decide whether the output depends on an array at all. Their lengths are relative to the root
# mean square of the array, or to 1 if that is larger.
FAR_STEPS = (0.5, 1.0, 2.0, 4.0, 8.0, 64.0)


def describe_failures(calls: Calls, comparisons: Sequence[LeafComparison]) -> dict[Keys, tuple[str, ...]]:
    """Return the parts of a note for each failing gradient.

    They describe the relation to the correct gradient or, if no relation is found, how many entries are
    wrong.
    """
    failures = [comparison for comparison in comparisons if comparison.fails()]
    if not failures:
        return {}
    unit = _find_unit(calls)
    arrays = _collect_arrays(calls, comparisons, unit)
    lengths = _collect_lengths(calls, comparisons)
    tables = _compute_tables(calls, comparisons)
    descriptions = {}
    for comparison in failures:
        keys = comparison.leaf.keys
        relation = _find_relation(comparison, arrays, lengths, tables.get(keys), unit)
        if relation is not None:
            descriptions[keys] = describe_relation(relation)
        elif not comparison.is_sampled:
            descriptions[keys] = _count_failures(comparison)
    return descriptions


def _count_failures(comparison: LeafComparison) -> tuple[str, ...]:
    """Describe how many entries are wrong. Return () if the note describes the failure in another way."""
    n_failures = sum(verdict == "fail" for verdict, _ in comparison.verdicts)
    is_finite = all(math.isfinite(analytic) for analytic in comparison.analytic)
    if comparison.leaf.note or comparison.faults or not is_finite or not n_failures:
        return ()
    return (describe_count(n_failures, comparison.count),)


def _find_unit(calls: Calls) -> float:
    """Return d_output if the output is a single number, and 1 otherwise.

    Gradients are divided by this unit, because such a d_output is one random factor. Without the division,
    the note on a wrong gradient 3 z · d_output would contain this random factor.
    """
    if calls.d_output.ndim == 0:
        return float(calls.d_output.item())
    return 1.0


def _collect_arrays(calls: Calls, comparisons: Sequence[LeafComparison], unit: float) -> dict[str, Array]:
    """Return, by name, the arrays that a wrong backward pass may have used."""
    arrays: dict[str, Array] = {}
    for comparison in comparisons:
        if not comparison.is_sampled:
            arrays[_name_gradient(comparison)] = comparison.make_correct_gradient() / unit
    arrays |= _collect_outputs(calls)
    for path, x in iter_arrays({**calls.args_float64, "cache": calls.cache_copy}, "fi"):
        arrays[path] = np.asarray(to_host(x), float)
    return arrays


def _collect_outputs(calls: Calls) -> dict[str, Array]:
    """Return d_output and the output by name. If forward has several outputs, each has its own name."""
    if not calls.form.is_tree:
        return {"d_output": calls.d_output, "the output": calls.output}
    outputs = {"d_output": calls.form.restore(calls.d_output), "output": calls.form.restore(calls.output)}
    return {path: np.asarray(to_host(x), float) for path, x in iter_arrays(outputs, "f")}


def _name_gradient(comparison: LeafComparison) -> str:
    """Return the name that a note uses for the gradient of a leaf."""
    return f"the gradient of {comparison.leaf.path}"


def _collect_lengths(calls: Calls, comparisons: Sequence[LeafComparison]) -> dict[str, int]:
    """Return the lengths of all axes by name.

    If several axes have the same length, only the first is kept.
    """
    arrays: list[tuple[str, Array]] = [("the output", calls.output)]
    arrays += [(comparison.leaf.path, comparison.x) for comparison in comparisons]
    names: dict[int, str] = {}
    for path, x in arrays:
        for axis, length in enumerate(x.shape):
            names.setdefault(length, f"axis {axis} of {path}")
    return {name: length for length, name in names.items()}


def _compute_tables(calls: Calls, comparisons: Sequence[LeafComparison]) -> dict[Keys, Array]:
    """Return a table for each gradient (see `relations`).

    Return no tables if they would be too large, if random directions are compared, or if backward fails.
    """
    n = calls.d_output.size
    shape = calls.d_output.shape
    is_too_large = n * sum(comparison.x.size for comparison in comparisons) > TABLE_LIMIT
    if is_too_large or any(comparison.is_sampled for comparison in comparisons):
        return {}
    tables = {}
    with suppress(Exception):  # If backward rejects such a d_output, there are no tables.
        units = np.eye(n, dtype=calls.d_output.dtype).reshape(-1, *shape)
        answers = [calls.call_both(calls.args, unit) for unit in units]
        for keys, leaf in calls.leaves.items():
            table = np.stack([answer[keys].gradient for answer in answers])
            tables[keys] = table.reshape(shape + np.shape(leaf.gradient))
    return tables


def _find_relation(
    comparison: LeafComparison,
    arrays: Mapping[str, Array],
    lengths: Mapping[str, int],
    table: Array | None,
    unit: float,
) -> Relation | None:
    """Return the relation between a gradient and the correct gradient, or None if no relation is found."""
    if not _can_be_related(comparison):
        return None
    is_reliable = not comparison.faults
    case = _make_case(comparison, arrays, lengths, unit)
    if table is not None and is_reliable:
        d_output = comparison.calls.d_output
        right_table = comparison.make_correct_table()
        outputs = comparison.calls.form.find_places()
        case = case._replace(d_output=d_output, found_table=table, right_table=right_table, outputs=outputs)
    if max_abs(case.right) <= case.exact * case.scale:
        case = case._replace(is_zero_here_only=_depends_on(comparison))
    relation = find_relation([case], DETECTORS if is_reliable else DETECTORS_OF_UNRELIABLE_GRADIENTS)
    if relation is not None and comparison.is_sampled and relation.kind not in KINDS_OF_WHOLE_ARRAYS:
        return None
    return relation


@np.errstate(all="ignore")
def _depends_on(comparison: LeafComparison) -> bool:
    """Return whether the output changes when the array moves far, in several random directions."""
    calls = comparison.calls
    smallest_change = SQRT_EPS * max_abs(calls.output)
    scale = max(comparison.scale, 1.0)
    for factor in FAR_STEPS:
        x = comparison.x + factor * scale * calls.step_rng.standard_normal(comparison.x.shape)
        output = calls.compute_output(comparison.leaf.keys, x)
        if np.isfinite(output).all() and max_abs(output - calls.output) > smallest_change:
            return True
    return False


def _can_be_related(comparison: LeafComparison) -> bool:
    """Return whether a gradient can be compared with the correct gradient to find a relation.

    For random directions, the gradient must have the correct shape, and there must be two directions or more.
    """
    if comparison.leaf.gradient is None:
        return False
    if comparison.is_sampled:
        return not comparison.leaf.note and comparison.count > 1
    return True


def _make_case(
    comparison: LeafComparison, arrays: Mapping[str, Array], lengths: Mapping[str, int], unit: float
) -> Case:
    """Make the case for one gradient: the received gradient, the correct gradient, and the other arrays."""
    if comparison.is_sampled:
        found = np.array(comparison.analytic)
        others = {}
    else:
        found = comparison.leaf.gradient
        own_name = _name_gradient(comparison)
        others = {name: x for name, x in arrays.items() if name != own_name}
    limits = comparison.limits
    bounds = [estimate.error_bound for estimate in comparison.estimates if comparison.is_known(estimate)]
    largest_bound = max([*bounds, limits.rounding_bound])
    exact = max(limits.tolerance, largest_bound / (limits.magnitude or math.inf))
    scale = limits.magnitude / abs(unit)
    return Case(found / unit, comparison.make_correct_gradient() / unit, others, lengths, exact, scale)
