"""Decide whether the error of a gradient in low precision is rounding or a mistake.

Rounding errors change when the inputs move by a few units in the last place. The error of a mistake hardly
changes. So the gradient is computed at many points close to the given arguments. At each point, it is
compared with the derivative of a reference in float64. The mean of the errors is the **systematic** part.
Their standard deviation is the **scatter**, which rounding explains. The statistic is

    systematic = |mean error| / (u |gradient| + scatter + floor),

where u is the unit roundoff of the dtype. A correct gradient stays below LIMIT.

Every entry is compared if this takes at most MOST_CALLS calls of the reference. Otherwise the largest arrays
are compared along a few random directions, which are the same at all points.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from npformer.arrays import to_host
from npformer.gradcheck.finite_differences import Floats
from npformer.gradcheck.function_calls import Keys, Leaf, iter_arrays, name_of_dtype
from npformer.gradcheck.kernels import (
    DTYPES,
    STEP,
    Kernel,
    Point,
    ReferenceCalls,
    differentiate,
    to_float64,
)
from npformer.gradcheck.leaf_comparison import make_failing_row
from npformer.gradcheck.noise import measure_noise
from npformer.gradcheck.notes import describe_noise_of_reference, describe_relation
from npformer.gradcheck.relations import (
    DETECTORS,
    Array,
    Case,
    Factor,
    Relation,
    detect_partial_error,
    find_relation,
    is_number,
    max_abs,
)
from npformer.gradcheck.report import GradientReport, GradientRow, Precision, make_note

# The unit roundoff and the smallest positive number (a subnormal number) of each dtype.
UNITS = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
SMALLEST = {"bfloat16": 2.0**-133, "float16": 2.0**-24, "float32": 2.0**-149, "float64": 2.0**-1074}

POINTS = 32  # the number of points
# In measurements, the statistic of correct kernels was at most 2.5. For mistakes larger than rounding, it was
# at least 3.4.
LIMIT = 2.7
NEAR = 8.0  # the largest distance of a point, in units of roundoff of each entry
# Some roundings change only if the inputs move farther. In float16, for example, a probability of 0.9998 is
# saved as 1.0 at all near points. So an error counts only if it remains at points that are this far away.
FAR = 2.0**-5
# Where terms cancel, the error that a mistake causes may vary between these points by more than its mean. But
# along a line, such an error changes smoothly, and a rounding error jumps. A jump is a change from one point
# to the next by more than this share of the error's range.
LARGEST_STEP = 0.25
# In float32, a smooth error above this share of the largest gradient (4096 roundings) is a mistake. In
# float16, a rounding error may be as large, so this rule is not used.
LARGE_ERROR = 2.0**-12
LINES = 2  # the number of lines
MOST_CALLS = 100_000  # the largest number of calls of the reference for a comparison of all entries
DIRECTIONS = 8  # the number of random directions for a large array
MOST_REPEATED = 64  # the largest number of entries that are compared again at far points
# Errors below this share of the largest gradient, or below this number of smallest numbers, are rounding.
FLOOR_OF_GRADIENT = 4 * 2.0**-24
FLOOR_OF_SMALLEST = 4
NOISY = 3.0  # A larger scatter is reported. The rounding of the result alone scatters by about 0.5 units.
# Rounding hides small errors, so some wrong entries may look correct. So the detector of errors in a few
# entries is left out.
DETECTORS_OF_MEANS = tuple(detector for detector in DETECTORS if detector is not detect_partial_error)
LARGEST_DENOMINATOR = 4  # of a factor; with larger denominators, any number would be near some fraction
BIASED = 0.4  # A larger mean error towards zero is reported. Truncation causes about 0.7 units.
ENOUGH_ENTRIES = 16  # The median error of fewer entries may exceed BIASED by accident.


@dataclass(frozen=True, eq=False)
class Comparison:
    """How the gradient of one array is compared: entry by entry, or along random directions."""

    leaf: Leaf
    directions: tuple[Floats, ...] = ()  # empty if every entry is compared

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array, or (0,) if the leaf has no array."""
        return (0,) if self.leaf.x is None else tuple(self.leaf.x.shape)

    @property
    def size(self) -> int:
        """The number of entries of the array."""
        return math.prod(self.shape)

    @property
    def columns(self) -> Sequence[Floats | int]:
        """The directions, or the flat indices of all entries."""
        return self.directions or range(self.size)


class Sample(NamedTuple):
    """Points close to the given arguments, with the gradients of the pair under test."""

    points: list[Point]
    gradients: list[dict[Keys, Leaf]]


class Errors(NamedTuple):
    """The errors of one gradient over all points, with one number per column: per entry or direction."""

    found: Floats  # the mean gradient of the pair under test
    true: Floats  # the mean derivative of the reference; NaN if most points are at a kink
    mean: Floats  # the mean error
    scatter: Floats  # the standard deviation of the error
    rounding: Floats  # the largest error of one rounding of the gradient, plus the floor

    def systematic(self) -> Floats:
        """Return the statistic: the systematic part of the error in units of rounding and scatter."""
        return abs(self.mean) / (self.rounding + self.scatter)


@np.errstate(all="ignore")
def check_low_precision(kernel: Kernel, directions: int | None) -> GradientReport:
    """Compare the gradients of a pair in low precision with the derivative of its reference."""
    comparisons = choose_comparisons(kernel, directions)
    near = draw_sample(kernel, NEAR * find_unit(kernel))
    errors_of = {}
    rows = []
    for comparison in comparisons:
        note = comparison.leaf.note or find_change_of_form(near, comparison.leaf.keys)
        if note:
            rows.append(make_failing_row(comparison.leaf.path, [note]))
        else:
            errors_of[comparison] = compute_errors(kernel, comparison, near, comparison.columns)
    arrays = collect_arrays(kernel, errors_of)
    judged = []  # the errors of the gradients that have a verdict
    for comparison, errors in errors_of.items():
        row = decide_row(kernel, comparison, errors, arrays)
        if row.verdict != "pass" or measure_scatter(errors) > NOISY:
            row = explain_by_noise(kernel, comparison, row)
        if row.verdict != "unsure":
            judged.append(errors)
        rows.append(row)
    rows += [make_failing_row(fault.path, [fault.text]) for fault in kernel.faults]
    precision = describe_precision(kernel, judged)
    return GradientReport(tuple(rows), LIMIT, describe_directions(comparisons), precision)


def find_unit(kernel: Kernel) -> float:
    """Return the largest unit roundoff of all arguments."""
    return max(UNITS[name_of_dtype(x)] for _, x in iter_arrays(kernel.args, "f"))


def find_change_of_form(sample: Sample, keys: Keys) -> str:
    """Return a note if a gradient at some point has an unexpected type, shape or dtype, else ""."""
    for leaves in sample.gradients:
        if keys not in leaves or leaves[keys].note:
            return "has another form when called again"
    return ""


# What is compared


def choose_comparisons(kernel: Kernel, directions: int | None) -> list[Comparison]:
    """Decide for each array whether to compare every entry or random directions."""
    count = directions or DIRECTIONS
    comparisons = [Comparison(leaf) for leaf in kernel.leaves]
    largest_first = sorted(range(len(comparisons)), key=lambda i: -comparisons[i].size)
    for i in largest_first:
        n_calls = sum(2 * POINTS * len(comparison.columns) for comparison in comparisons)
        is_affordable = directions is None and n_calls <= MOST_CALLS
        if not is_affordable and comparisons[i].size > count:
            shape = comparisons[i].shape
            drawn = tuple(np.asarray(kernel.rng.standard_normal(shape)) for _ in range(count))
            comparisons[i] = Comparison(comparisons[i].leaf, drawn)
    return comparisons


def draw_sample(kernel: Kernel, radius: float) -> Sample:
    """Draw points within a radius, and compute the gradients at each."""
    return compute_sample(kernel, [kernel.draw_point(radius) for _ in range(POINTS)])


def compute_sample(kernel: Kernel, points: list[Point]) -> Sample:
    """Compute the gradients at each point."""
    return Sample(points, [kernel.compute_gradients(point) for point in points])


# The errors


def compute_errors(
    kernel: Kernel, comparison: Comparison, sample: Sample, columns: Sequence[Floats | int]
) -> Errors:
    """Summarize the errors of the gradient at all points, for some columns."""
    found, true = compare_at_points(kernel, comparison, sample, columns)
    gradients = [leaves[comparison.leaf.keys].gradient for leaves in sample.gradients]
    magnitude = np.mean([abs(gradient) for gradient in gradients], axis=0)
    return summarize_errors(found, true, comparison, magnitude, columns)


def compare_at_points(
    kernel: Kernel, comparison: Comparison, sample: Sample, columns: Sequence[Floats | int]
) -> tuple[Floats, Floats]:
    """Return the gradient and the derivative of the reference, for each point and each column."""
    keys = comparison.leaf.keys
    found, true = [], []
    for point, leaves in zip(sample.points, sample.gradients, strict=True):
        found.append(project(leaves[keys].gradient, columns))
        args = to_float64(point.args)
        d_output = kernel.form.flatten(point.d_output, "d_output", DTYPES).astype(float)
        true.append(differentiate(kernel, args, d_output, keys, columns))
    return np.array(found), np.array(true)


def project(gradient: Floats, columns: Sequence[Floats | int]) -> Floats:
    """Return the gradient along some directions, or at some flat indices."""
    flat = gradient.ravel()
    return np.array(
        [flat[column] if isinstance(column, int) else float((gradient * column).sum()) for column in columns]
    )


def summarize_errors(
    found: Floats, true: Floats, comparison: Comparison, magnitude: Floats, columns: Sequence[Floats | int]
) -> Errors:
    """Return the mean and the scatter of the errors over all points. Points at a kink are left out."""
    is_known = ~np.isnan(true)
    count = is_known.sum(axis=0)
    count = np.where(2 * count >= len(true), count, math.nan)  # at most points, the derivative is known
    error = np.where(is_known, found - true, 0.0)
    mean = error.sum(axis=0) / count
    scatter = np.sqrt(np.where(is_known, (error - mean) ** 2, 0.0).sum(axis=0) / (count - 1))
    mean_true = np.where(is_known, true, 0.0).sum(axis=0) / count
    dtype = name_of_dtype(comparison.leaf.x)
    floor = max(FLOOR_OF_SMALLEST * SMALLEST[dtype], FLOOR_OF_GRADIENT * max_abs(magnitude))
    rounding = np.array([size_of_rounding(UNITS[dtype] * magnitude, floor, column) for column in columns])
    return Errors(found.mean(axis=0), mean_true, mean, scatter, rounding)


def size_of_rounding(rounding: Floats, floor: float, column: Floats | int) -> float:
    """Return the error of one rounding, with the floor, at an entry or along a direction.

    The roundings of different entries are independent, so along a direction their squares are added.
    """
    if isinstance(column, int):
        return float(rounding.flat[column]) + floor
    return float(np.linalg.norm((rounding + floor) * column))


# The verdict


def decide_row(
    kernel: Kernel, comparison: Comparison, errors: Errors, arrays: Mapping[str, Floats]
) -> GradientRow:
    """Make the row of one array: its verdict, its worst column, and its note."""
    systematic = measure_systematic(kernel, comparison, errors)
    is_unknown = np.isnan(errors.true)
    if (systematic > LIMIT).any():
        verdict = "fail"
        parts = describe_failure(comparison, errors, systematic, arrays)
    elif is_unknown.any():
        verdict = "kink"
        parts = [f"{is_unknown.sum()} of {is_unknown.size} at a kink"]
    else:
        verdict = "pass"
        parts = describe_scatter(errors)
    return make_row(comparison, errors, systematic, verdict, parts)


def explain_by_noise(kernel: Kernel, comparison: Comparison, row: GradientRow) -> GradientRow:
    """Change the verdict of a row to "unsure" if the reference is too noisy for any verdict.

    A reference that rounds to float32 inside is noisy. A difference quotient divides this noise by STEP, so
    the error of the quotient is much larger than the noise.
    """
    noise = measure_noise(ReferenceCalls(kernel), comparison.leaf)
    error = noise.level / STEP  # of a difference quotient, relative
    is_accurate = noise.height == 0 and error <= find_unit(kernel)
    if is_accurate:
        return row
    note = describe_noise_of_reference(noise, is_forward=kernel.reference is None)
    return row._replace(verdict="unsure", note=note, systematic=math.nan)


def measure_systematic(kernel: Kernel, comparison: Comparison, errors: Errors) -> Floats:
    """Return the systematic error of each column. An error at near points must remain at far points.

    The far points are used only if they are farther away than the near points, and only for at most
    MOST_REPEATED columns. In float32 and float64, a large error that changes smoothly along lines counts too,
    even if it does not remain. The systematic error is infinite for a gradient that is not finite, and 0 at
    a kink.
    """
    systematic = np.where(np.isnan(errors.true), 0.0, errors.systematic())
    systematic = np.where(np.isfinite(errors.found), systematic, math.inf)
    (wrong,) = np.nonzero(systematic > LIMIT)
    has_far_points = FAR > NEAR * find_unit(kernel)
    if has_far_points and 0 < len(wrong) <= MOST_REPEATED:
        columns = [comparison.columns[i] for i in wrong.tolist()]
        far = compute_errors(kernel, comparison, draw_sample(kernel, FAR), columns)
        remaining = far.systematic()
        is_large = abs(errors.mean[wrong]) > LARGE_ERROR * max_abs(errors.true)
        is_doubtful = is_large & (remaining <= LIMIT)
        if is_doubtful.any() and find_unit(kernel) <= UNITS["float32"]:
            is_smooth = changes_smoothly(kernel, comparison, columns)
            remaining = np.where(is_doubtful & is_smooth, math.inf, remaining)
        systematic[wrong] = np.fmin(systematic[wrong], remaining)
    return systematic


def changes_smoothly(kernel: Kernel, comparison: Comparison, columns: Sequence[Floats | int]) -> Array:
    """Return for each column whether the error has no jump along a few lines. Such an error is a mistake."""
    is_smooth = np.ones(len(columns), dtype=np.bool_)
    for _ in range(LINES):
        sample = compute_sample(kernel, kernel.draw_line(2 * FAR, POINTS))
        found, true = compare_at_points(kernel, comparison, sample, columns)
        error = found - true
        largest_step = abs(np.diff(error, axis=0)).max(axis=0)
        is_smooth &= largest_step <= LARGEST_STEP * np.ptp(error, axis=0)
    return is_smooth


def describe_failure(
    comparison: Comparison, errors: Errors, systematic: Floats, arrays: Mapping[str, Floats]
) -> list[str]:
    """Describe a systematic error: its size, a relation if one is found, and the number of entries."""
    n_not_finite = int((~np.isfinite(errors.found)).sum())
    if n_not_finite:
        return [f"{n_not_finite} of {errors.found.size} not finite"]
    worst = int(np.argmax(systematic))
    size = abs(errors.mean[worst]) / errors.rounding[worst]
    scatter = errors.scatter[worst] / errors.rounding[worst]
    parts = [f"a systematic error of {size:.2g} rounding units; scatter explains {scatter:.2g}"]
    if comparison.directions:
        return parts
    parts += find_description(comparison, errors, arrays)
    parts.append(f"{int((systematic > LIMIT).sum())} of {comparison.size} entries have a systematic error")
    return parts


def find_description(comparison: Comparison, errors: Errors, arrays: Mapping[str, Floats]) -> tuple[str, ...]:
    """Describe how the mean gradient is related to the mean true gradient, if a relation is found."""
    shape = comparison.shape
    noise = max_abs(errors.rounding + errors.scatter) / (max_abs(errors.true) or math.inf)
    others = {name: x for name, x in arrays.items() if name != name_gradient(comparison)}
    case = Case(errors.found.reshape(shape), errors.true.reshape(shape), others, {}, LIMIT * noise)
    relation = find_relation([case], DETECTORS_OF_MEANS)
    if relation is None:
        return ()
    return describe_relation(round_relation(relation, noise))


def round_relation(relation: Relation, noise: float) -> Relation:
    """Round the factor of a relation with `round_factor`. A relation without a factor is unchanged."""
    if "factor" not in relation.parameters:
        return relation
    factor = round_factor(relation.parameters["factor"].value, noise)
    if relation.kind != "factor":
        return Relation(relation.kind, {**relation.parameters, "factor": factor})
    if is_number(factor, -1):
        return Relation("sign")
    return Relation("factor", {"factor": factor, "origins": ()})


def round_factor(value: float, noise: float) -> Factor:
    """Return a factor as a simple fraction if the noise allows it, otherwise without the noisy digits."""
    fraction = Fraction(value).limit_denominator(LARGEST_DENOMINATOR)
    if abs(float(fraction) - value) <= noise * abs(value):
        return Factor(float(fraction), fraction, is_root=False)
    digits = max(1, math.ceil(-math.log10(noise)))
    return Factor(float(f"{value:.{digits}g}"), None, is_root=False)


def measure_scatter(errors: Errors) -> float:
    """Return the median scatter over all columns, in rounding units. Returns 0 if there are no columns."""
    return float(np.nanmedian(errors.scatter / errors.rounding)) if errors.scatter.size else 0.0


def describe_scatter(errors: Errors) -> list[str]:
    """Describe errors that are accepted but unusual: a large scatter, or a bias towards zero."""
    parts = []
    scatter = measure_scatter(errors)
    if scatter > NOISY:
        parts.append(
            f"noisy: the error scatters by {scatter:.2g} rounding units; "
            "perhaps a sum is accumulated in low precision, or terms cancel"
        )
    towards_zero = -np.sign(errors.true) * errors.mean / errors.rounding
    has_enough_entries = towards_zero.size >= ENOUGH_ENTRIES
    bias = float(np.nanmedian(towards_zero)) if has_enough_entries else 0.0
    if BIASED < bias < LIMIT:
        parts.append(
            f"biased towards zero by {bias:.2g} rounding units; perhaps numbers are truncated or flushed to 0"
        )
    return parts


def make_row(
    comparison: Comparison, errors: Errors, systematic: Floats, verdict: str, parts: Sequence[str]
) -> GradientRow:
    """Make the row of one array from the numbers of its worst column."""
    path = comparison.leaf.path
    i = int(np.argmax(systematic)) if systematic.size else 0
    if not errors.found.size:
        return GradientRow(path, (), 0.0, 0.0, 0.0, verdict, make_note(parts), 0.0)
    index = () if comparison.directions else tuple(map(int, np.unravel_index(i, comparison.shape)))
    error = abs(errors.mean[i]) / (max_abs(errors.true) or math.inf)
    found, true = float(errors.found[i]), float(errors.true[i])
    note = make_note(parts)
    return GradientRow(path, index, found, true, float(error), verdict, note, float(systematic[i]))


# The report


def name_gradient(comparison: Comparison) -> str:
    """Return the name that a note uses for the gradient of an array."""
    return f"the gradient of {comparison.leaf.path}"


def collect_arrays(kernel: Kernel, errors_of: Mapping[Comparison, Errors]) -> dict[str, Floats]:
    """Return, by name, the arrays that a wrong backward pass may have used."""
    arrays = {}
    for comparison, errors in errors_of.items():
        if not comparison.directions:
            arrays[name_gradient(comparison)] = errors.true.reshape(comparison.shape)
    arrays["d_output"] = kernel.d_output
    for path, x in iter_arrays(kernel.args, "fi"):
        arrays[path] = to_host(x).astype(float)
    return arrays


def describe_directions(comparisons: Sequence[Comparison]) -> str:
    """Describe which arrays were compared along random directions. Returns "" if none was."""
    sampled = [comparison for comparison in comparisons if comparison.directions]
    if not sampled:
        return ""
    names = ", ".join(comparison.leaf.path for comparison in sampled)
    count = len(sampled[0].directions)
    return f"{count} random directions for {names}: a mistake in a few entries may not be found"


def describe_precision(kernel: Kernel, judged: Sequence[Errors]) -> Precision:
    """Describe the precision of the check: dtype, points, calls, and the size of hidden mistakes."""
    unit = find_unit(kernel)
    (dtype,) = [name for name, value in UNITS.items() if value == unit]
    shares = []
    for errors in judged:
        share = LIMIT * (errors.rounding + errors.scatter) / abs(errors.true)
        shares += share[np.isfinite(share)].tolist()
    hidden = float(np.median(shares)) if shares else math.nan
    return Precision(dtype, unit, POINTS, hidden, kernel.n_calls, kernel.n_reference_calls)
