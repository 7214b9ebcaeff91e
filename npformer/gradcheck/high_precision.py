"""Compare the gradients of float64 or float32 arguments with finite differences."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from npformer.gradcheck.diagnosis import describe_failures
from npformer.gradcheck.finite_differences import SAFETY, SQRT_EPS
from npformer.gradcheck.function_calls import Calls
from npformer.gradcheck.leaf_comparison import LeafComparison, make_failing_row, update_limits
from npformer.gradcheck.noise import LARGEST_ROUNDING, Noise, measure_noise
from npformer.gradcheck.relations import max_abs
from npformer.gradcheck.report import GradientReport
from npformer.validation.annotations import Rng

DEFAULT_TOLERANCE = 1e-8


def check_float64(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    rng: Rng | None,
    tolerance: float | Mapping[str, float],
    directions: int | None,
) -> GradientReport:
    """Compare gradients of float64 or float32 arguments with finite differences."""
    calls = Calls(forward, backward, args, kwargs, rng)
    tolerances = _find_tolerances(tolerance, calls)
    comparisons = [
        LeafComparison(calls, leaf, tolerances[leaf.path], directions) for leaf in calls.leaves.values()
    ]
    _refine(comparisons)
    if not all(comparison.passes() for comparison in comparisons):
        _consider_noise(calls, comparisons)
    _repeat_calls(calls, comparisons)
    descriptions = describe_failures(calls, comparisons)
    rows = [comparison.make_row(descriptions.get(comparison.leaf.keys, ())) for comparison in comparisons]
    rows += [make_failing_row(fault.path, [fault.text]) for fault in calls.faults]
    return GradientReport(tuple(rows), max(tolerances.values()), describe_sampling(comparisons))


def _find_tolerances(tolerance: float | Mapping[str, float], calls: Calls) -> dict[str, float]:
    """Return the tolerance of each leaf by its path. Raises ValueError for a name that is not a leaf."""
    paths = [leaf.path for leaf in calls.leaves.values()]
    if not isinstance(tolerance, Mapping):
        return dict.fromkeys(paths, tolerance)
    for name in tolerance:
        if name not in paths:
            raise ValueError(
                f"gradcheck: tolerance has the name {name!r}; expected some of {', '.join(paths)}"
            )
    return {path: tolerance.get(path, DEFAULT_TOLERANCE) for path in paths}


def _refine(comparisons: Sequence[LeafComparison]) -> None:
    """Improve the estimates of all leaves where needed, and decide all verdicts."""
    for _ in range(2):  # A second round, because better estimates change the magnitudes of the leaves.
        update_limits(comparisons)
        for comparison in comparisons:
            comparison.refine()


def _consider_noise(calls: Calls, comparisons: Sequence[LeafComparison]) -> None:
    """Measure the noise of forward. If there is noise, decide again about the leaves that do not pass."""
    noises = {comparison.leaf.keys: measure_noise(calls, comparison.leaf) for comparison in comparisons}
    rounding = max((noise for noise in noises.values() if noise.share <= LARGEST_ROUNDING), default=Noise())
    for comparison in comparisons:
        own = noises[comparison.leaf.keys]
        if own.level > 0 or rounding.level > 0:
            comparison.consider_noise(own, max(own, rounding))


def _repeat_calls(calls: Calls, comparisons: Sequence[LeafComparison]) -> None:
    """Call backward with the same d_output, with a multiple of it, and with arrays that are not contiguous.

    A correct gradient is linear in d_output, and does not depend on the memory layout of the arrays. The
    multiple is chosen so that the largest gradient is about 1/√ε. This is large enough to reveal clipping or
    saturation in backward.
    """
    calls.check_first_results()
    largest = max(comparison.limits.magnitude for comparison in comparisons)
    for factor in (1.0, -1 / (SQRT_EPS * (largest or 1.0))):
        leaves = calls.repeat_backward(factor)
        if leaves is not None:
            for comparison in comparisons:
                comparison.compare_repeated(leaves, factor)
    leaves = calls.repeat_with_strides()
    if leaves is not None:
        for comparison in comparisons:
            comparison.compare_with_strides(leaves)


def describe_sampling(comparisons: Sequence[LeafComparison]) -> str:
    """Describe which errors random directions may miss. Returns "" if every entry was compared."""
    sampled = [comparison for comparison in comparisons if comparison.is_sampled]
    sampled = [comparison for comparison in sampled if max_abs(comparison.gradient) > 0]
    if not sampled:
        return ""
    # A wrong entry with the error E changes the derivative along a direction by u E, where u is a standard
    # normal variable. The entry passes if |u| E is at most a limit: the accepted error plus the error bound.
    # If E is SAFETY times this limit, the entry passes for |u| ≤ 1 / SAFETY. The probability density of |u|
    # at 0 is √(2/π). So one direction misses the error with a probability of about √(2/π) / SAFETY.
    shares = []
    for comparison in sampled:
        error_bound = max(estimate.error_bound for estimate in comparison.estimates)
        accepted_error = comparison.limits.max_error + error_bound
        shares.append(accepted_error / max_abs(comparison.gradient))
    k = sampled[0].count
    probability = (math.sqrt(2 / math.pi) / SAFETY) ** k
    return (
        f"{k} random directions for each array of more entries: one wrong entry, off by "
        f"{SAFETY * max(shares):.0e} of its leaf's largest, slips through with a chance of {probability:.0e}"
    )
