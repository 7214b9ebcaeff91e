"""Decide the verdict on one entry of a gradient, with the same rule for all entries and directions."""

import math
from typing import NamedTuple

from npformer.gradcheck.finite_differences import SAFETY, TWO_DIGITS, Estimate, Reason

SMALL = 1e-3  # the errors of a small leaf are relative to SMALL times the magnitude of the largest leaf
PRECISE = 10.0  # A precise estimate has an error bound of at most ten times the accepted error.
ONE_DIGIT = 10.0  # A value has one correct digit if it is ten times as large as its error.


class Limits(NamedTuple):
    """The numbers that decide which errors are accepted in one leaf."""

    tolerance: float  # the accepted error, relative to `magnitude`
    eps: float  # the precision of the output
    rounding_bound: float  # the error that float32 may cause in the gradient
    magnitude: float = 0.0  # the largest derivative of the leaf, or the minimum that `update_limits` sets
    max_error: float = 0.0  # the largest accepted error of an entry
    # The share of noise in the output's change: along this leaf, or from rounding along another leaf.
    noise: float = 0.0
    is_noisy: bool = False  # whether there is noise along this leaf


def measure_error(analytic: float, estimate: Estimate) -> float:
    """Return the difference between gradient and estimate, or infinity if the difference is not finite."""
    error = abs(analytic - estimate.value)
    return error if math.isfinite(error) else math.inf


def is_precise(estimate: Estimate, limits: Limits) -> bool:
    """Return whether the error bound is small compared with the accepted error."""
    return estimate.error_bound <= PRECISE * limits.max_error


def decide_verdict(analytic: float, estimate: Estimate, limits: Limits) -> tuple[str, Reason]:
    """Return the verdict on one entry of the gradient, and a reason if there is one.

    - "pass": the gradient agrees with the derivative, and the error bound is small.
    - "fail": the gradient differs from a known derivative by more than the error bound. A gradient that is
      not finite fails too. At a kink, a gradient outside the accepted range fails.
    - "kink": the derivative jumps at this point, and the gradient lies inside the accepted range.
    - "unsure": the differences are not precise enough for any other verdict.
    """
    if _may_mean_a_staircase(analytic, estimate, limits):
        return "unsure", Reason.STAIRCASE
    if _agrees(analytic, estimate, limits):
        return "pass", Reason.NONE
    if not math.isfinite(analytic):
        return "fail", Reason.NONE
    if limits.noise > 0 and _is_explained_by_noise(analytic, estimate, limits):
        return "unsure", Reason.NOISE
    if _differs(analytic, estimate, limits):
        return "fail", Reason.NONE
    if measure_error(analytic, estimate) <= limits.max_error and is_precise(estimate, limits):
        return "unsure", Reason.TOO_SMALL
    is_outside_kink = analytic < estimate.low or analytic > estimate.high
    if is_outside_kink:
        return "fail", estimate.reason
    is_kink = estimate.low < estimate.high
    if is_kink:
        return "kink", Reason.KINK
    if estimate.reason is Reason.NONE:
        return "unsure", Reason.HIDDEN
    return "unsure", estimate.reason


def find_place_at_kink(analytic: float, estimate: Estimate) -> str:
    """Return which of the slopes at a kink the gradient equals: a key of `places_at_kink` in reasons.toml."""
    accepted_error = abs(estimate.right - estimate.left) * SMALL
    places = {
        "left": estimate.left,
        "right": estimate.right,
        "mean": (estimate.left + estimate.right) / 2,
    }
    for name, slope in places.items():
        if abs(analytic - slope) <= accepted_error:
            return name
    return "between"


def _may_mean_a_staircase(analytic: float, estimate: Estimate, limits: Limits) -> bool:
    """Return whether forward is a staircase, and the gradient is 0 or the mean slope of the staircase."""
    if estimate.reason is not Reason.STAIRCASE:
        return False
    is_zero = abs(analytic) <= limits.max_error
    is_overall_slope = measure_error(analytic, estimate) <= _bound_error(estimate)
    return is_zero or is_overall_slope


def _is_explained_by_noise(analytic: float, estimate: Estimate, limits: Limits) -> bool:
    """Return whether the noise of forward may explain the error.

    On a staircase, many differences are 0 by accident. So an estimate without a correct digit is no evidence.
    """
    is_small = measure_error(analytic, estimate) <= SAFETY * limits.noise * limits.magnitude
    has_one_digit = ONE_DIGIT * estimate.error_bound <= abs(estimate.value)
    return is_small or analytic == 0 or (limits.is_noisy and not has_one_digit)


def _agrees(analytic: float, estimate: Estimate, limits: Limits) -> bool:
    """Return whether the gradient agrees with the estimate, and the estimate is precise.

    Two limits apply: the accepted error of the leaf, and an error relative to the entry itself. Without the
    second limit, a small wrong entry would pass if other entries are large.
    """
    is_zero = analytic == limits.magnitude == 0 and estimate.is_limited_by_rounding
    if not (is_zero or is_precise(estimate, limits)):
        return False
    limit_of_leaf = limits.max_error + estimate.error_bound
    limit_of_entry = max(_limit_of_entry(analytic, estimate, limits), SAFETY * estimate.error_bound)
    return measure_error(analytic, estimate) <= min(limit_of_leaf, limit_of_entry)


def _differs(analytic: float, estimate: Estimate, limits: Limits) -> bool:
    """Return whether the derivative is known, and the gradient differs from it by more than the error bounds.

    If other entries are far larger, their rounding errors may explain the error of this entry.
    """
    rounding_of_others = TWO_DIGITS * limits.eps * limits.magnitude
    limit_of_entry = max(_limit_of_entry(analytic, estimate, limits), rounding_of_others)
    accepted_error = max(min(limits.max_error, limit_of_entry), _bound_error(estimate))
    return estimate.is_known and measure_error(analytic, estimate) > accepted_error


def _limit_of_entry(analytic: float, estimate: Estimate, limits: Limits) -> float:
    """Return the accepted error of an entry, relative to the size of the entry."""
    return max(limits.rounding_bound, limits.tolerance / SMALL * max(abs(analytic), abs(estimate.value)))


def _bound_error(estimate: Estimate) -> float:
    """Return the largest error that the estimate may have."""
    return SAFETY * (estimate.error_bound + estimate.hidden)
