"""Estimate derivatives from finite differences, each with a bound on its error, for any function.

The arguments are moved along a line by a step t. The function on the line is φ(t) = Σ d_output · output,
where output is the result of the forward pass at the moved arguments. The goal is to estimate φ'(0).

An estimate uses the difference quotients (φ(t) - φ(0)) / t to the right (t > 0) and to the left (t < 0), for
steps of length h, h/2 and h/4. The mean of the right and the left quotient is the central difference D(t).
The truncation error of D(t) contains only even powers of t. Richardson extrapolation removes these powers.
Its first step gives (4 D(t/2) - D(t)) / 3, with an error of O(h⁴). Its second step has 16 and 15 instead of 4
and 3, and gives an error of O(h⁶). Source: L. F. Richardson, "The Approximate Arithmetical Solution by Finite
Differences …", 1911.

The right quotient minus the left quotient is a t + b t³ + O(t⁵). This difference, the jump, tends to 0 as
t → 0, except at a kink, where the derivative jumps.

If the second derivative jumps, the expansion has more powers. Then the right and the left quotients are
extrapolated separately, from q(t) = φ'(0) + a t + b t² + O(t³). The better of the two estimates is used.

The error bound of an estimate is the sum of three parts. The difference between the two extrapolations of
order four bounds the truncation error. The other parts are the jump, extrapolated to t → 0, and the rounding
error of the outputs.
"""

import math
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# The first step h, relative to the scale. For this h, the truncation error h⁶ equals the rounding error
# ε / h.
FIRST_STEP = 2.0 ** (-52 / 7)
# √ε: if the difference of two numbers is √ε times as large as the numbers, half of its digits are lost.
SQRT_EPS = 2.0**-26
# A search first multiplies the scale by this factor. Later it divides the scale by 4 in each step, so it also
# tries the scales in between.
GROWTH = 64.0
SAFETY = 10.0  # Verdicts allow ten times the error bound, because the bound is only an estimate itself.
# A value has two correct digits if it is a hundred times as large as its error.
TWO_DIGITS = 100.0
LONGEST_STEP = 10.0  # of a search, relative to the root mean square of the array or to 1 if that is larger
# The tolerance when quotients with steps t and 2 t are compared. It is relative to the difference between the
# two sides (is there a kink?) or to the size of the quotients (do they grow, as at a jump of the value?).
SAME = 0.1
# At a kink, a gradient may lie outside the range between the two slopes by this share of their difference.
MARGIN_OF_KINK = 0.1
SMALLEST_NUMBER = 5e-324  # the smallest positive float; underflow may change a number by at most this amount


class Reason(Enum):
    """Why the derivative at a point is not known, or why a gradient cannot be judged there.

    The value is the key of the text in reasons.toml.
    """

    NONE = "none"
    HIDDEN = "hidden"  # rounding hides the derivative
    NO_VALUE = "no_value"  # there is no finite output close to the point
    STAIRCASE = "staircase"  # the output is constant for short steps, but not for long ones
    VALUE_JUMPS = "value_jumps"
    DERIVATIVE_DIVERGES = "derivative_diverges"
    ROUGH = "rough"  # the quotients of different steps disagree for no known reason
    KINK = "kink"  # the slopes on the left and on the right differ
    NOISE = "noise"  # the noise of forward explains the difference
    TOO_SMALL = "too_small"  # the gradient differs, but the entry is small compared with the largest entry


class Estimate(NamedTuple):
    """An estimate of the derivative along a line, with its error bound."""

    value: float
    error_bound: float  # the largest expected difference between the value and the derivative
    rounding_error: float  # the part of the error bound that comes from rounded outputs
    hidden: float  # the largest derivative that rounding may hide in output entries that never changed
    terms: Floats  # the contribution of each output entry; the sum of the terms is `value`
    reason: Reason = Reason.NONE  # why the derivative is not known; NONE if it is known
    low: float = math.nan  # at a kink: the smallest gradient that is accepted
    high: float = math.nan  # at a kink: the largest gradient that is accepted
    left: float = math.nan  # at a kink: the slope on the left
    right: float = math.nan  # at a kink: the slope on the right

    @property
    def is_limited_by_rounding(self) -> bool:
        """Whether rounding explains the error bound."""
        return self.error_bound <= SAFETY * self.rounding_error

    @property
    def is_known(self) -> bool:
        """Whether the value has two correct digits, or all digits that rounding allows.

        Estimates with fewer correct digits may agree by accident.
        """
        has_two_digits = TWO_DIGITS * self.error_bound <= abs(self.value)
        return has_two_digits or self.is_limited_by_rounding


class Line:
    """The function φ along one line, with all difference quotients that were computed so far."""

    def __init__(
        self,
        evaluate: Callable[[float], tuple[float, Floats]],
        output: Floats,
        d_output: Floats,
        eps: float,
        rng: np.random.Generator,
    ):
        # A function of the step t. It returns the step after rounding, and the output or NaN if there is no
        # output.
        self.evaluate = evaluate
        self.output = output
        self.d_output = d_output
        self.eps = eps  # the precision of the output
        self.rng = rng  # draws the random lengths of the steps
        self.quotients: dict[float, Floats] = {}
        # True for each output entry that some step has changed.
        self.has_changed = np.zeros(output.shape, dtype=bool)
        self.longest_step = 0.0

    def difference_quotient(self, t: float) -> Floats:
        """Return (φ(t) - φ(0)) / t, separately for each output entry."""
        if t not in self.quotients:
            step, output = self.evaluate(t)
            difference = self.d_output * (output - self.output)
            self.has_changed |= (difference != 0) & np.isfinite(difference)
            self.longest_step = max(self.longest_step, abs(step))
            self.quotients[t] = difference / step
        return self.quotients[t]

    def bound_rounding_error(self, t: float) -> float:
        """Bound the part of the difference quotient's error that comes from rounded outputs.

        Output entries that never change do not contribute.
        """
        before = self.d_output * self.output
        after = before + self.difference_quotient(t) * t
        magnitudes = np.maximum(abs(before), abs(after))
        if self.has_changed.any():
            magnitudes = magnitudes[self.has_changed]
        return self._bound_rounded_sum(magnitudes) / abs(t)

    def bound_hidden_derivative(self) -> float:
        """Bound the derivative that rounding may hide in the output entries that never changed."""
        magnitudes = abs(self.d_output * self.output)[~self.has_changed]
        return self._bound_rounded_sum(magnitudes) / self.longest_step

    def _bound_rounded_sum(self, magnitudes: Floats) -> float:
        """Bound the rounding error of a sum whose terms have these magnitudes."""
        error_of_one_term = self.eps * float(magnitudes.max(initial=0)) + SMALLEST_NUMBER
        return error_of_one_term * math.sqrt(magnitudes.size)

    def estimate(self, scale: float) -> Estimate:
        """Estimate the derivative with steps h, h/2 and h/4, where h is about FIRST_STEP times the scale.

        h is random, because a periodic function may have the same value at all fixed steps.
        """
        h = FIRST_STEP * scale * 2 ** self.rng.uniform(-0.5, 0.5)
        right = [self.difference_quotient(t) for t in (h, h / 2, h / 4)]
        left = [self.difference_quotient(-t) for t in (h, h / 2, h / 4)]
        rounding_error = max(self.bound_rounding_error(h / 4), self.bound_rounding_error(-h / 4))
        terms, error = min(
            _extrapolate_central(right, left), _extrapolate_one_sided(right, left), key=lambda pair: pair[1]
        )
        error_bound = error + rounding_error
        if not math.isfinite(error_bound):
            error_bound = math.inf
            rounding_error = 0.0
        hidden = self.bound_hidden_derivative()
        return Estimate(float(terms.sum()), error_bound, rounding_error, hidden, terms)

    def estimate_and_confirm(self, scale: float, best: float, other: Estimate | None = None) -> Estimate:
        """Estimate the derivative. If the error bound is the smallest so far, compute a second estimate.

        Among many estimates, some have a small error bound by accident. `best` is the smallest error bound
        so far, and `other` is an earlier estimate at the same scale.
        """
        estimate = self.estimate(scale)
        if estimate.error_bound >= best:
            return estimate
        if other is None:
            other = self.estimate(scale)
        difference = abs(estimate.value - other.value)
        if not math.isfinite(difference):
            difference = math.inf
        return estimate._replace(error_bound=max(estimate.error_bound, difference))

    def search(
        self, first: Estimate, far: float, near: float, is_sufficient: Callable[[Estimate], bool]
    ) -> Estimate:
        """Search for the estimate with the smallest error bound, until an estimate is sufficient.

        The search confirms the first estimate at the scale `far` and continues at the scale `near`. First the
        steps grow while rounding dominates the error. Then the steps shrink until rounding dominates again.
        """
        best = self.estimate_and_confirm(far, math.inf, first)
        if is_sufficient(best):
            return self.add_reason(best, True)
        scale = near
        last = self.estimate_and_confirm(scale, best.error_bound)
        best = _choose_better(best, last)

        largest_scale = LONGEST_STEP * max(far, 1.0) / FIRST_STEP
        while not is_sufficient(best) and last.is_limited_by_rounding and scale < largest_scale:
            scale = min(scale * GROWTH, largest_scale)
            last = self.estimate_and_confirm(scale, best.error_bound)
            best = _choose_better(best, last)

        smallest_scale = SQRT_EPS * scale
        while not is_sufficient(best) and scale > smallest_scale and _may_improve(best, last):
            scale /= 4
            last = self.estimate_and_confirm(scale, best.error_bound)
            best = _choose_better(best, last)
        return self.add_reason(best, is_sufficient(best))

    def add_reason(self, best: Estimate, is_sufficient: bool) -> Estimate:
        """Return the best estimate. If it is not sufficient, add the reason why the derivative is not known.

        If φ is a staircase, the estimate always gets a reason, because the estimate may look sufficient by
        accident.
        """
        is_limited_by_rounding = best.is_limited_by_rounding
        if self._is_staircase(best, is_sufficient or is_limited_by_rounding):
            return best._replace(reason=Reason.STAIRCASE)
        if is_sufficient:
            return best
        if is_limited_by_rounding:
            return best._replace(reason=Reason.HIDDEN)
        return self._explain_disagreement(best)

    def _is_staircase(self, best: Estimate, is_precise: bool) -> bool:
        """Return whether φ is constant for short steps, but long steps have similar slopes on both sides."""
        longest = max(self.quotients)
        nearby = best
        if not is_precise:
            nearby = self.estimate(SQRT_EPS * longest / FIRST_STEP)
        right = float(self.quotients[longest].sum())
        left = float(self.quotients[-longest].sum())
        is_constant_nearby = not nearby.terms.any()
        rises_on_both_sides = abs(right - left) < abs(right + left) / 2
        return is_constant_nearby and rises_on_both_sides

    def _explain_disagreement(self, best: Estimate) -> Estimate:
        """Add the reason why the quotients of different steps disagree.

        The reason comes from the shortest step at which rounding does not hide the disagreement.
        """
        steps = self._find_doubled_steps()
        shortest = steps[0]
        for t in (shortest, -shortest):
            if not np.isfinite(self.quotients[t]).all():
                return best._replace(reason=Reason.NO_VALUE)
        for t in steps:
            gap = _sum_magnitudes(self.quotients[t] - self.quotients[-t])
            is_hidden_by_rounding = self.bound_rounding_error(t) * TWO_DIGITS > gap
            if not is_hidden_by_rounding:
                return self._classify_disagreement(best, t, gap)
        return best._replace(reason=Reason.HIDDEN)

    def _find_doubled_steps(self) -> list[float]:
        """Return all t > 0 for which the quotients at t, -t, 2t and -2t are known, in ascending order."""
        known = self.quotients.keys()
        return sorted(t for t in known if t > 0 and {-t, 2 * t, -2 * t} <= known)

    def _classify_disagreement(self, best: Estimate, t: float, gap: float) -> Estimate:
        """Compare the quotients at t and at 2t to find a kink, a jump, a pole or a rough function."""
        sides = np.stack([self.quotients[t], self.quotients[-t]])
        sides_at_double = np.stack([self.quotients[2 * t], self.quotients[-2 * t]])
        rise = _sum_magnitudes(sides)
        rise_at_double = _sum_magnitudes(sides_at_double)
        if _sum_magnitudes(sides - sides_at_double) < gap * SAME:
            return _mark_kink(best, sides, gap)
        if _sum_magnitudes(sides - 2 * sides_at_double) < rise * SAME:
            return best._replace(reason=Reason.VALUE_JUMPS)
        if rise_at_double * (1 + SAME) < rise < rise_at_double * (2 - SAME):
            return best._replace(reason=Reason.DERIVATIVE_DIVERGES)
        return best._replace(reason=Reason.ROUGH)


def _extrapolate_central(right: list[Floats], left: list[Floats]) -> tuple[Floats, float]:
    """Extrapolate the central differences for steps h, h/2 and h/4 to h = 0. Return terms and error."""
    D_0, D_1, D_2 = [(right_t + left_t) / 2 for right_t, left_t in zip(right, left, strict=True)]
    jump_0, jump_1, jump_2 = [float((r - l).sum()) for r, l in zip(right, left, strict=True)]  # noqa: E741
    coarse = (4 * D_1 - D_0) / 3
    fine = (4 * D_2 - D_1) / 3
    terms = (16 * fine - coarse) / 15
    truncation_error = abs(float((fine - coarse).sum()))
    jump = (8 * (2 * jump_2 - jump_1) - (2 * jump_1 - jump_0)) / 7
    return terms, _replace_nan(truncation_error + abs(jump))


def _extrapolate_one_sided(right: list[Floats], left: list[Floats]) -> tuple[Floats, float]:
    """Extrapolate the right and the left quotients separately. Return the mean of both limits and its error.

    This method is better for a function whose second derivative jumps, such as max(0, x)² at x = 0.
    """
    limits = []
    errors = []
    for quotient_0, quotient_1, quotient_2 in (right, left):
        coarse = 2 * quotient_1 - quotient_0
        fine = 2 * quotient_2 - quotient_1
        limits.append((4 * fine - coarse) / 3)
        errors.append(abs(float((fine - coarse).sum())))
    limit_right, limit_left = limits
    jump = abs(float((limit_right - limit_left).sum()))
    return (limit_right + limit_left) / 2, _replace_nan(sum(errors) + jump)


def _replace_nan(error: float) -> float:
    """Return the error, or infinity if it is not a number."""
    return math.inf if math.isnan(error) else error


def _mark_kink(estimate: Estimate, sides: Floats, gap: float) -> Estimate:
    """Mark an estimate as a kink. Add both one-sided derivatives, and the range of accepted gradients."""
    right = float(sides[0].sum()) + 0.0  # adding 0.0 turns -0.0 into 0.0
    left = float(sides[1].sum()) + 0.0
    margin = gap * MARGIN_OF_KINK
    low = float(sides.min(axis=0).sum()) - margin
    high = float(sides.max(axis=0).sum()) + margin
    return estimate._replace(reason=Reason.KINK, low=low, high=high, left=left, right=right)


def _choose_better(best: Estimate, last: Estimate) -> Estimate:
    """Return the estimate with the smaller error bound."""
    return last if last.error_bound < best.error_bound else best


def _may_improve(best: Estimate, last: Estimate) -> bool:
    """Return whether shorter steps may give a better estimate than the best estimate so far.

    Shorter steps do not help if the rounding error alone exceeds the best error bound. Shorter steps do not
    help either if the best estimate has two correct digits and the last error bound is a hundred times
    larger.
    """
    has_lost_two_digits = best.error_bound * TWO_DIGITS < min(abs(best.value), last.error_bound)
    return last.rounding_error < best.error_bound and not has_lost_two_digits


def _sum_magnitudes(x: Floats) -> float:
    """Return the sum of the absolute values."""
    return float(abs(x).sum())
