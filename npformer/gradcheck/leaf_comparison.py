"""Compare the gradient of one leaf with finite differences, for every entry or along random directions."""

import math
import sys
import time
from collections.abc import Sequence

import numpy as np

from npformer.arrays import to_host
from npformer.gradcheck.finite_differences import (
    SQRT_EPS,
    Estimate,
    Floats,
    Line,
    Reason,
)
from npformer.gradcheck.function_calls import Calls, Keys, Leaf
from npformer.gradcheck.noise import Noise
from npformer.gradcheck.notes import describe_kink, describe_noise, describe_reason
from npformer.gradcheck.relations import find_ratio, max_abs, root_mean_square
from npformer.gradcheck.report import VERDICTS, GradientRow, format_index, make_note
from npformer.gradcheck.verdicts import (
    ONE_DIGIT,
    SMALL,
    Limits,
    decide_verdict,
    find_place_at_kink,
    is_precise,
    measure_error,
)

TABLE_LIMIT = 2**20  # the largest size of a table: d_output.size times leaf.size entries (8 MB)
NOT_LINEAR = "d_output taken for 1, a mask made from it, or an array that an update has changed already"
PATIENCE = 20.0  # after this many seconds, a check suggests comparing random directions only
STATUS = {"kink": "at a kink", "unsure": "cannot be judged"}  # the verdicts whose reasons the note lists


class LeafComparison:
    """The comparison of the gradient of one leaf with estimates of all derivatives.

    Usually there is one estimate per entry. If `directions` is a number k, a leaf with more than k entries is
    compared along k random directions, with one estimate per direction.
    """

    def __init__(self, calls: Calls, leaf: Leaf, tolerance: float, directions: int | None):
        self.calls = calls
        self.leaf = leaf
        self.x = np.zeros(0) if leaf.x is None else np.array(to_host(leaf.x), dtype=float)
        self.gradient = np.full(self.x.shape, math.nan) if leaf.note else leaf.gradient
        self.scale = root_mean_square(self.x)
        self.directions: list[Floats] = []
        self.is_sampled = False
        if directions is not None and self.x.size > directions:
            self.is_sampled = True
            self.directions = [calls.step_rng.standard_normal(self.x.shape) for _ in range(directions)]
        # The gradient along each entry or direction.
        self.analytic: list[float] = self.gradient.ravel().tolist()
        if self.is_sampled:
            self.analytic = [float((self.gradient * u).sum()) for u in self.directions]
        rounding_bound = calls.rounding_bounds.get(leaf.keys, 0.0)
        if self.is_sampled:
            # The roundings of the n entries are independent, so their sum along a direction grows with √n.
            rounding_bound *= math.sqrt(self.x.size)
        self.limits = Limits(tolerance, calls.eps, rounding_bound)
        self.faults: list[str] = []  # texts for the note about differences between calls of backward
        self.verdicts: list[tuple[str, Reason]] = []  # a verdict and a reason for each estimate
        self.fits_in_table = self.x.size * calls.output.size <= TABLE_LIMIT
        self.noise: Noise | None = None  # the noise of forward, if it was measured
        self.estimates = self._estimate_all()

    @property
    def count(self) -> int:
        """The number of estimates: one per entry, or one per direction."""
        return len(self.analytic)

    # Finite differences

    def _estimate_all(self) -> list[Estimate]:
        """Return a first estimate for every entry or direction."""
        first_scale = self.scale or 1.0
        estimates = []
        for i in range(self.count):
            estimates.append(self._trim(self._make_line(i).estimate(first_scale)))
            self._report_progress(i + 1)
        return estimates

    def _report_progress(self, n_done: int) -> None:
        """Suggest random directions on stderr, once per check, if comparing all entries takes long."""
        seconds = time.monotonic() - self.calls.start
        is_long = seconds >= PATIENCE and not self.is_sampled and not self.calls.has_proposed_directions
        if is_long:
            self.calls.has_proposed_directions = True
            print(
                f"gradcheck: {n_done:,} of {self.count:,} entries of {self.leaf.path} after {seconds:.0f} s; "
                "directions=3 compares three random directions of each array instead, in seconds",
                file=sys.stderr,
            )

    def _make_line(self, i: int) -> Line:
        """Return the line along the i-th entry or direction."""
        if self.is_sampled:
            direction = self.directions[i]
        else:
            direction = np.zeros(self.x.shape)
            direction.flat[i] = 1.0

        def evaluate(t: float) -> tuple[float, Floats]:
            shift = t * direction
            x = self.x + shift
            rounding = x - self.x - shift  # the rounding error of each entry in x
            step = self._measure_step(t, rounding, self.analytic[i])
            return step, self.calls.compute_output(self.leaf.keys, x)

        calls = self.calls
        return Line(evaluate, calls.output, calls.d_output.astype(float), self.limits.eps, calls.step_rng)

    def _measure_step(self, t: float, rounding: Floats, analytic: float) -> float:
        """Return the effective length of a step: t plus a correction for the rounding of the moved entries.

        The correction assumes that the gradient is correct.
        """
        step = t + float((self.gradient * rounding).sum()) / (analytic or math.inf)
        is_usable = step != 0 and math.isfinite(step)
        return step if is_usable else t

    def _find_near_scale(self, i: int) -> float:
        """Return the scale at which the search for a better estimate continues.

        For an entry, this is the magnitude of the entry, or the scale of the leaf if the entry is 0. A step
        along a random direction moves all entries and may pass many kinks. So the search continues at a
        smaller scale: the scale of the leaf times SQRT_EPS to the power of 1/4. (A whole search reduces its
        largest scale by at most the factor SQRT_EPS.)
        """
        if self.is_sampled:
            return self._find_leaf_scale(i) * SQRT_EPS**0.25
        magnitude = abs(float(self.x.flat[i]))
        if magnitude != 0:
            return magnitude
        return self._find_leaf_scale(i)

    def _find_leaf_scale(self, i: int) -> float:
        """Return the scale of the leaf: its root mean square.

        For a leaf of zeros, the scale is usually 1. If the gradient is large, the scale is a shorter step:
        according to the gradient, this step changes the output by the magnitude of the output.
        """
        if self.scale != 0:
            return self.scale
        magnitude = float(abs(self.calls.d_output * self.calls.output).sum())
        step = magnitude / (abs(self.analytic[i]) or math.inf)
        return min(1.0, step) or 1.0

    def _trim(self, estimate: Estimate) -> Estimate:
        """Drop the terms of an estimate if the table that collects all terms would be too large."""
        if self.fits_in_table:
            return estimate
        return estimate._replace(terms=np.zeros(0))

    # Verdicts

    def measure_error(self, i: int) -> float:
        """Return the difference between gradient and estimate, for one entry or direction."""
        return measure_error(self.analytic[i], self.estimates[i])

    def _decide_verdict(self, i: int, estimate: Estimate) -> tuple[str, Reason]:
        """Return the verdict on one entry or direction, and the reason for the verdict."""
        verdict, reason = decide_verdict(self.analytic[i], estimate, self.limits)
        if self.noise is not None and verdict == "unsure":
            return verdict, Reason.NOISE
        return verdict, reason

    def consider_noise(self, own: Noise, largest: Noise) -> None:
        """Decide again about the failing entries. The measured noise is the precision of forward's output.

        `own` is the noise along this leaf. `largest` may be the noise of rounding along another leaf. An
        error that the largest noise explains is not a failure.
        """
        eps = max(self.limits.eps, own.level)
        self.limits = self.limits._replace(eps=eps, noise=largest.share, is_noisy=own.level > 0)
        self.noise = own if own.level > 0 else largest
        for i, (verdict, _) in enumerate(self.verdicts):
            if verdict == "fail":
                if own.level > 0:
                    self.estimates[i] = self._trim(self._make_line(i).estimate(self.scale or 1.0))
                    self._search(i)
                self.verdicts[i] = self._decide_verdict(i, self.estimates[i])
            elif verdict == "unsure" and own.level > 0 and self.estimates[i].reason is not Reason.NO_VALUE:
                self.verdicts[i] = (verdict, Reason.NOISE)

    def _is_settled(self, i: int, estimate: Estimate) -> bool:
        """Return whether the estimate is precise enough.

        Then a better estimate would change nothing in the report.
        """
        verdict, _ = self._decide_verdict(i, estimate)
        if verdict == "fail":
            return is_precise(estimate, self.limits)
        return verdict == "pass"

    def refine(self) -> None:
        """Search for better estimates where needed, confirm one failing entry, and decide all verdicts."""
        is_failure_confirmed = False
        for i in sorted(range(self.count), key=self.measure_error, reverse=True):
            needs_search = not self._is_settled(i, self.estimates[i])
            if not needs_search and not is_failure_confirmed:
                needs_search = self._fails_at(i)
            if needs_search:
                self._search(i)
                is_failure_confirmed = is_failure_confirmed or self._fails_at(i)
        self.verdicts = [self._decide_verdict(i, self.estimates[i]) for i in range(self.count)]

    def _fails_at(self, i: int) -> bool:
        """Return whether the verdict on one entry or direction is "fail"."""
        verdict, _ = self._decide_verdict(i, self.estimates[i])
        return verdict == "fail"

    def _search(self, i: int) -> None:
        """Search for a better estimate of one derivative."""

        def is_sufficient(estimate: Estimate) -> bool:
            return self._is_settled(i, estimate)

        far = self.scale or 1.0
        near = self._find_near_scale(i)
        estimate = self._make_line(i).search(self.estimates[i], far, near, is_sufficient)
        self.estimates[i] = self._trim(estimate)

    def fails(self) -> bool:
        """Return whether the row of this leaf fails."""
        has_failing_entry = any(verdict == "fail" for verdict, _ in self.verdicts)
        return bool(self.leaf.note or self.faults or has_failing_entry)

    def passes(self) -> bool:
        """Return whether every entry or direction passes."""
        return not self.leaf.note and all(verdict == "pass" for verdict, _ in self.verdicts)

    # Further calls of backward

    def compare_repeated(self, leaves: dict[Keys, Leaf], factor: float) -> None:
        """Add a fault if the gradient for `factor` times d_output is not `factor` times the gradient."""
        if self.leaf.note:
            return
        repeated = leaves.get(self.leaf.keys)
        if repeated is None or repeated.note:
            self.faults.append("has another form when called again")
            return
        see = self._find_difference(repeated.gradient / np.float64(factor))
        if see is None:
            return
        if factor == 1:
            self.faults.append(f"another gradient when called again with the same d_output and cache{see}")
            return
        gives = self._describe_multiple(repeated.gradient)
        self.faults.append(f"it is not linear in d_output: {factor:.3g} times d_output gives {gives}{see}")
        self.faults.append(NOT_LINEAR)

    def compare_with_strides(self, leaves: dict[Keys, Leaf]) -> None:
        """Add a fault if the gradient differs when d_output and the arguments are not contiguous."""
        repeated = leaves.get(self.leaf.keys)
        if self.faults or self.leaf.note or repeated is None or repeated.note:
            return
        # Products of arrays with another layout are rounded differently. Wrong strides make a larger error.
        see = self._find_difference(repeated.gradient, SMALL * max_abs(self.gradient))
        if see is not None:
            self.faults.append(f"a different gradient when the arrays are not contiguous{see}")
            self.faults.append("perhaps the strides of one array are used for another, or none are used")

    def _find_difference(self, repeated: Floats, accepted: float = 0.0) -> str | None:
        """Return a text that names the entry where a repeated gradient differs most from the first one.

        Return None if both gradients agree.
        """
        error = abs(repeated - self.gradient)
        max_error = max(accepted, self.limits.max_error, self.limits.tolerance * max_abs(self.gradient))
        is_same = (error <= max_error) | ~np.isfinite(self.gradient)
        if is_same.all():
            return None
        worst = self._find_index(int(np.argmax(np.where(is_same, -1.0, error))))
        return f", see {format_index(worst)}" if worst else ""

    def _describe_multiple(self, gradient: Floats) -> str:
        """Describe how a repeated gradient is related to the first gradient: "2 times this", for example."""
        ratio = find_ratio(gradient, self.gradient, SQRT_EPS * max_abs(gradient))
        if math.isnan(ratio):
            return "no multiple of this"
        if abs(ratio - 1) <= SQRT_EPS:
            return "the same gradient"
        return f"{ratio:.3g} times this"

    # The row of the report

    def make_row(self, description: Sequence[str]) -> GradientRow:
        """Make the row of this leaf, with its worst entry. The description is the first part of the note."""
        parts = [*description, *self._list_reasons(), *self.faults]
        path = self.leaf.path
        if self.leaf.note:
            return make_failing_row(path, [self.leaf.note, *parts])
        note = make_note(parts)
        if not self.verdicts:
            return GradientRow(path, (), 0.0, 0.0, 0.0, "fail" if self.faults else "pass", note)
        i = self._find_worst()
        verdict = "fail" if self.faults else self.verdicts[i][0]
        index = () if self.is_sampled else self._find_index(i)
        error = self._measure_relative_error(i)
        return GradientRow(path, index, self.analytic[i], self.estimates[i].value, error, verdict, note)

    def _find_worst(self) -> int:
        """Return the number of the entry with the worst verdict.

        If there are several, return the one with the largest error.
        """
        worst_first = list(VERDICTS)

        def rank(i: int) -> tuple[int, float]:
            verdict, _ = self.verdicts[i]
            return worst_first.index(verdict), -self.measure_error(i)

        return min(range(self.count), key=rank)

    def _measure_relative_error(self, i: int) -> float:
        """Return the error of one entry relative to the magnitude of the leaf."""
        error = self.measure_error(i)
        if self.limits.magnitude != 0:
            return error / self.limits.magnitude
        return math.inf if error else 0.0

    def _find_index(self, i: int) -> tuple[int, ...]:
        """Return the index of the i-th entry of the leaf."""
        return tuple(map(int, np.unravel_index(i, self.x.shape)))

    def _list_reasons(self) -> list[str]:
        """Describe how many entries are not finite, at a kink or unsure, and name the first of each kind."""
        if self.leaf.note:
            return []
        reasons = []
        not_finite = sum(not math.isfinite(analytic) for analytic in self.analytic)
        if not_finite:
            reasons.append(f"{not_finite} of {self.count} not finite")
        for verdict, status in STATUS.items():
            entries = [i for i in range(self.count) if self.verdicts[i][0] == verdict]
            if entries:
                first = entries[0]
                place = "" if self.is_sampled else f", first {format_index(self._find_index(first))}"
                reasons.append(
                    f"{len(entries)} of {self.count} {status}{place}: {self._describe_reason(first)}"
                )
        return reasons

    def _describe_reason(self, i: int) -> str:
        """Describe why one entry or direction is at a kink or cannot be judged."""
        _, reason = self.verdicts[i]
        if reason is Reason.NOISE and self.noise is not None:
            return describe_noise(self.noise)
        if reason is Reason.KINK:
            estimate = self.estimates[i]
            return describe_kink(
                estimate.left, estimate.right, find_place_at_kink(self.analytic[i], estimate)
            )
        if reason is Reason.NO_VALUE:
            return describe_reason(reason) + self.calls.error_text
        return describe_reason(reason)

    # The correct gradient, where it is known

    def is_known(self, estimate: Estimate) -> bool:
        """Return whether an estimate is precise enough to describe the correct gradient."""
        is_precise_enough = is_precise(estimate, self.limits) or self.limits.magnitude == 0
        return is_precise_enough and estimate.reason is not Reason.STAIRCASE

    def make_correct_gradient(self) -> Floats:
        """Return the correct gradient, with one number per entry or direction; NaN where it is not known."""
        values = [estimate.value if self.is_known(estimate) else math.nan for estimate in self.estimates]
        return np.reshape(values, (-1,) if self.is_sampled else self.x.shape)

    def make_correct_table(self) -> Floats:
        """Return the table of the correct gradient (see `relations`). Unknown entries are NaN."""
        d_output = self.calls.d_output
        columns = []
        for estimate in self.estimates:
            columns.append(estimate.terms / d_output if self.is_known(estimate) else d_output * math.nan)
        table = np.moveaxis(np.reshape(columns, (-1, *d_output.shape)), 0, -1)
        return table.reshape(d_output.shape + self.x.shape)


def make_failing_row(path: str, parts: Sequence[str]) -> GradientRow:
    """Make a failing row without numbers."""
    return GradientRow(path, (), math.nan, math.nan, math.inf, "fail", make_note(parts))


def update_limits(comparisons: Sequence[LeafComparison]) -> None:
    """Set the magnitude of each leaf. The errors of the leaf are relative to this magnitude.

    The magnitude is the largest derivative of the leaf, but at least SMALL times the largest magnitude of all
    leaves. Imprecise estimates are ignored. For random directions, the magnitude is the root mean square of
    the estimates, which approximates the length of the gradient.
    """
    magnitudes = []
    for comparison in comparisons:
        precise = [e.value for e in comparison.estimates if ONE_DIGIT * e.error_bound < abs(e.value)]
        values = np.array(precise)
        magnitudes.append(root_mean_square(values) if comparison.is_sampled else max_abs(values))
    largest = max(magnitudes, default=0.0)
    for comparison, own_magnitude in zip(comparisons, magnitudes, strict=True):
        magnitude = max(own_magnitude, SMALL * largest)
        limits = comparison.limits
        max_error = max(limits.tolerance * magnitude, limits.rounding_bound)
        comparison.limits = limits._replace(magnitude=magnitude, max_error=max_error)
