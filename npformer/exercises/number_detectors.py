"""Detectors that compare the numbers of a wrong answer with the correct numbers.

A detector receives one output of the function for every call, together with the correct arrays. "The answer"
is the output of the student's function. The detector returns a finding or None. A finding must hold for every
call, within the accuracy of float32, and contains no number of the correct answer.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations, permutations
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.exercises.probe import Trial
from npformer.exercises.verdict import Finding, make_finding
from npformer.gradcheck import relations
from npformer.gradcheck.relations import Case, Relation

EXACT = 2e-5  # the tolerance relative to the largest number, for answers that may be in float32
NEARLY = 5e-3  # the largest relative error that too few digits in a dtype or a constant can cause
TINY = 1e-12  # the tolerance for an array of zeros, which has no largest number

Detector = Callable[[Trial], Finding | None]
Holds = Callable[[Array, Array], Any]  # returns whether an answer has a relation to the correct array


def largest(*arrays: Array) -> float:
    """Return the largest magnitude among all finite numbers in these arrays."""
    return max(float(np.abs(a[np.isfinite(a)]).max(initial=0)) for a in arrays)


def are_close(a: Array, b: Array) -> bool:
    """Return whether two arrays are equal within the accuracy of float32, with equal NaN and infinities."""
    if a.shape != b.shape:
        return False
    a, b = np.asarray(a, float), np.asarray(b, float)
    return bool(np.allclose(a, b, rtol=0, atol=EXACT * largest(b) + TINY, equal_nan=True))


def find_ratio(a: Array, b: Array) -> float | None:
    """Return the number c with a = c b, or None if there is no such number."""
    c = relations.find_ratio(a, b, EXACT * float(np.abs(a).max(initial=0)))
    if math.isnan(c):
        return None
    return c


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a detector, or None if the detector fails because of the answer's shape."""
    try:
        return function(*arguments)
    except (ValueError, TypeError, IndexError, ArithmeticError, np.linalg.LinAlgError):
        return None


# --- relations that gradcheck also detects -----------------------------------------------------------


def related(detector: Callable[[Sequence[Case]], Relation | None], trial: Trial) -> Finding | None:
    """Apply a detector of gradcheck, and convert the relation that it returns to a finding."""
    with np.errstate(all="ignore"):
        cases = [
            Case(a, b, others, exact=EXACT, scale=_scale(b))
            for a, b, others in zip(trial.found, trial.right, neighbours(trial), strict=True)
        ]
        relation = detector(cases)
    if relation is None:
        return None
    parameters = relation.parameters
    if relation.kind == "constant_along":
        return make_finding("constant_in_each", line=_name_line(parameters["axis"], trial))
    if relation.kind == "multiple_along":
        line = _name_line(parameters["axis"], trial)
        return make_finding("multiple_in_each", name=parameters["name"], line=line)
    if relation.kind == "term_added":
        factor = parameters["factor"].value
        is_sign_error = abs(factor + 2) < 1e-4
        if is_sign_error:
            return make_finding("term_sign", name=parameters["name"])
        is_multiple = abs(factor - 1) > 1e-4
        if is_multiple:
            return make_finding("multiple_added", name=parameters["name"])
    return Finding(relation.kind, parameters=parameters)


def _scale(right: Array) -> float:
    """Return the magnitude to which errors are relative: the largest correct number, or 1 if all are 0."""
    return largest(right) or 1.0


def _name_line(axis: int, trial: Trial) -> str:
    """Return the word for a line along an axis: "row" for the last axis, "column" for the axis before it.

    For an earlier axis, the word is the axis name.
    """
    ndim = trial.right[0].ndim
    if axis == ndim - 1:
        return "row"
    if axis == ndim - 2:
        return "column"
    axis_names = trial.probe.axis_names.get(trial.probe.outputs[trial.output], [])
    return axis_names[axis] if len(axis_names) == ndim else "row"


def find_moved_slices(cases: Sequence[Case]) -> Relation | None:
    """Detect correct slices in a wrong order. Other detectors handle a single repeated slice."""
    relation = relations.detect_moved_slices(cases)
    if relation is None or len(set(relation.parameters["order"])) == 1:
        return None
    return relation


def neighbours(trial: Trial) -> list[dict[str, Array]]:
    """Return the arrays that a wrong function may have added or multiplied by mistake, for each call.

    These are the arguments of the call, and the exercise's `directions` (arrays that are likely to be added
    by mistake). Arrays whose shape does not fit the output in every call are left out.
    """
    fitting: list[dict[str, Array]] = []
    for given, right in zip(trial.arguments, trial.right, strict=True):
        available = dict(given)
        for name, make in trial.probe.directions.items():
            available[name] = make(*given.values())
        fitting.append(
            {name: np.broadcast_to(a, right.shape) for name, a in available.items() if _fits(a, right)}
        )
    in_every_call = set.intersection(*map(set, fitting))
    return [{name: given[name] for name in given if name in in_every_call} for given in fitting]


def _fits(value: Any, right: Array) -> bool:
    """Return whether a value is a float array that can be broadcast to the shape of an output."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or value.ndim > right.ndim:
        return False
    return all(n in (1, m) for n, m in zip(value.shape[::-1], right.shape[::-1], strict=False))


# --- a function of the correct answer --------------------------------------------------------------


def is_function_of_right(function: Callable[[Array], Any]) -> Holds:
    """Make a relation that holds if the answer equals this function of the correct array.

    The relation takes the answer and the correct array, and returns True or False.
    """

    def holds(a: Array, b: Array) -> bool:
        return are_close(a, np.asarray(function(b), float))

    return holds


def _is_half_precision(a: Array, b: Array) -> bool:
    """Return whether an answer is near the correct array and equals its own rounding to float16."""
    if not np.isfinite(a).all():
        return False
    is_near = np.abs(a - b).max(initial=0) <= 2e-3 * max(1.0, largest(b))
    return bool(is_near) and np.array_equal(a.astype(np.float16), a)


def _is_additive_mask(a: Array, b: Array) -> bool:
    """Return whether an answer is 0 where a mask is True, and far below 0 where the mask is False."""
    if not is_two_valued(b):
        return False
    is_zero_for_true = ((b == 1) == (a == 0)).all()
    is_low_for_false = (a[b == 0] <= -1e4).all()
    return bool(is_zero_for_true and is_low_for_false)


def _is_inverted(a: Array, b: Array) -> bool:
    """Return whether an answer is True exactly where a mask is False."""
    return is_two_valued(b) and bool((a == 1 - b).all())


def is_two_valued(array: Array) -> bool:
    """Return whether an array contains only 0 and 1, as a mask does."""
    return array.size > 1 and bool(np.isin(array, (0, 1)).all())


def _is_one_hot(a: Array, b: Array) -> bool:
    """Return whether each row is 1 where the correct number is largest, and 0 elsewhere."""
    if is_two_valued(b) or not is_two_valued(a) or not (a.sum(axis=-1) == 1).all():
        return False
    return bool((b[a == 1] == b.max(axis=-1).ravel()).all())


def _is_permuted(a: Array, b: Array) -> bool:
    """Return whether an answer has the correct numbers, possibly in a wrong order."""
    return are_close(np.sort(a, axis=None), np.sort(b, axis=None))


def _is_scaled_in_each_call(a: Array, b: Array) -> bool:
    """Return whether an answer is a multiple of the correct array."""
    return a.size > 1 and bool(find_ratio(a, b))


def _is_scaled_along(a: Array, b: Array, axis: int) -> bool:
    """Return whether each line along an axis is a multiple of the corresponding correct line.

    An array with an axis of length 1 does not count, because a single number is always a multiple.
    """
    if a.ndim < 2 or min(a.shape) < 2:
        return False
    c = relations.fit_factors(a, b, (axis,))
    return bool((np.abs(a - c * b) <= EXACT * largest(a)).all())


FUNCTIONS: dict[str, Holds] = {  # relations in which the answer is a function of the correct array
    "half_precision": _is_half_precision,
    "additive_mask": _is_additive_mask,
    "inverted": _is_inverted,
    "logarithm": is_function_of_right(np.log),
    "squared": is_function_of_right(np.square),
    "one_hot": _is_one_hot,
    "rounded": is_function_of_right(np.round),
    "rounded_to_two_decimals": is_function_of_right(partial(np.round, decimals=2)),
    "cumulative_over_rows": is_function_of_right(partial(np.cumsum, axis=-2)),
    "cumulative_in_rows": is_function_of_right(partial(np.cumsum, axis=-1)),
}
WHOLE_ARRAY: dict[str, Holds] = {"permuted": _is_permuted, "factor_per_call": _is_scaled_in_each_call}
LINES: dict[str, Holds] = {
    "factor_per_row": partial(_is_scaled_along, axis=-1),
    "factor_per_column": partial(_is_scaled_along, axis=-2),
}


def first_that_holds(table: dict[str, Holds], trial: Trial) -> Finding | None:
    """Return a finding of the first kind whose relation holds for every call, or None.

    The keys of the table are kinds of findings, and the values are the relations.
    """
    for kind, holds in table.items():
        with np.errstate(all="ignore"):
            if all(a.shape == b.shape and attempt(holds, a, b) for a, b in trial.pairs):
                return make_finding(kind)
    return None


# --- one factor ------------------------------------------------------------------------------------


class ScaleFactor(NamedTuple):
    """A factor of the form sign · number · constant, or sign · number · (top / bottom)^power.

    ``top`` and ``bottom`` are products of sizes. The fields contain the names of the axes with these sizes.
    """

    sign: int
    number: float  # 1 if a named constant or sizes explain the whole factor
    constant: str = ""  # a key of CONSTANTS
    top: tuple[str, ...] = ()
    bottom: tuple[str, ...] = ()
    power: float = 1.0  # 1, -1, 0.5 or -0.5

    @property
    def is_one(self) -> bool:
        """Whether the factor is 1."""
        return self == ScaleFactor(1, 1.0)


CONSTANTS = {
    "two": 2.0,
    "half": 0.5,
    "1/log 2": 1 / math.log(2),
    "log 2": math.log(2),
    "1/log 10": 1 / math.log(10),
}
POWERS = (1.0, -1.0, 0.5, -0.5)


def candidate_factors(sizes: Sequence[dict[str, int]]) -> dict[ScaleFactor, Array]:
    """Return the factors that the feedback can name, with their values in each call.

    These factors are 1, the constants, powers of a size, and powers of a product or quotient of two sizes.
    """
    single = {name: np.array([float(s[name]) for s in sizes]) for name in sizes[0]}
    single = {name: values for name, values in single.items() if values.min() > 0}
    call_count = len(sizes)
    found = {ScaleFactor(1, 1.0): np.ones(call_count)}
    for name, value in CONSTANTS.items():
        found[ScaleFactor(1, 1.0, name)] = np.full(call_count, value)
    quotients: dict[tuple[tuple[str, ...], tuple[str, ...]], Array] = {}
    for name, values in single.items():
        quotients[(name,), ()] = values
    for a, b in combinations(single, 2):
        quotients[(a, b), ()] = single[a] * single[b]
    for a, b in permutations(single, 2):
        quotients[(a,), (b,)] = single[a] / single[b]
    for power in POWERS:
        for (top, bottom), values in quotients.items():
            found[ScaleFactor(1, 1.0, "", top, bottom, power)] = values**power
    return found


def name_factor(ratios: Sequence[float], sizes: Sequence[dict[str, int]]) -> ScaleFactor | None:
    """Find a named factor, or a number times a named factor, that equals the ratios in all calls."""
    quotients = {factor: np.asarray(ratios) / values for factor, values in candidate_factors(sizes).items()}
    for factor, numbers in quotients.items():
        has_one_sign = len({*np.sign(numbers)}) == 1
        if has_one_sign and np.allclose(np.abs(numbers), 1, rtol=1e-4, atol=0):
            return factor._replace(sign=int(np.sign(numbers[0])))
    # With a single ratio, every named factor fits after multiplication by some number. This shows nothing.
    has_several_ratios = len(ratios) > 1
    for factor, numbers in quotients.items():
        if has_several_ratios and np.allclose(numbers, numbers[0], rtol=1e-4, atol=0):
            return factor._replace(sign=int(np.sign(numbers[0])), number=abs(float(numbers[0])))
    return None


def _keep(a: Array) -> Array:
    """Return the array itself."""
    return a


def find_factor(trial: Trial, function: Callable[[Array], Array] = _keep) -> ScaleFactor | None:
    """Find the factor by which the correct array has to be multiplied to give the answer, in all calls.

    If a function is given, compare its values for the answer and for the correct array.
    """
    with np.errstate(all="ignore"):
        ratios = [find_ratio(function(a), function(b)) for a, b in trial.pairs]
    known_ratios = [c for c in ratios if c]
    if len(known_ratios) < len(ratios):
        return None
    return name_factor(known_ratios, trial.sizes)


def scaled(trial: Trial) -> Finding | None:
    """Report an answer that is the correct array times one factor, or that has the opposite sign."""
    factor = find_factor(trial)
    if factor is None:
        return None
    if factor == ScaleFactor(-1, 1.0):
        return make_finding("sign")
    return make_finding("scaled", factor=factor)


def shifted(trial: Trial) -> Finding | None:
    """Report an answer that is the correct array plus a constant, possibly also times a factor."""
    factor = find_factor(trial, _subtract_mean)
    if factor is None:
        return None
    if factor.is_one:
        return make_finding("shifted")
    return make_finding("scaled_and_shifted", factor=factor)


def _subtract_mean(a: Array) -> Array:
    """Return an array minus its mean."""
    return np.asarray(a - a.mean())


def exponents(p: Array) -> Array:
    """Compute scores that have this softmax and row mean 0. Returns NaN if the rows do not sum to 1."""
    sums_to_1 = bool(np.allclose(p.sum(axis=-1, keepdims=True), 1, atol=1e-4) and (p >= 0).all())
    if not sums_to_1:
        return np.full_like(p, np.nan)
    logs = np.where(p > 0, np.log(p), np.nan)
    return np.nan_to_num(logs - np.nanmean(logs, axis=-1, keepdims=True))


def softmax_of_scaled(trial: Trial) -> Finding | None:
    """Report an answer that is the softmax of the correct scores times one factor."""
    factor = find_factor(trial, exponents)
    if factor is None:
        return None
    return make_finding("softmax_of_scaled_scores", factor=factor)


# --- other arrays ----------------------------------------------------------------------------------


def is_argument(trial: Trial) -> Finding | None:
    """Report an answer that equals one of the arguments."""
    for name in trial.names:
        values = [given[name] for given in trial.arguments]
        are_arrays = all(isinstance(value, np.ndarray) for value in values)
        if are_arrays and all(map(are_close, trial.found, values)):
            return make_finding("is_argument", name=name)
    return None


def is_landmark(trial: Trial) -> Finding | None:
    """Report an answer that equals an intermediate result of the solution, or a different known result."""
    for landmark, arrays in _landmarks(trial):
        if all(map(are_close, trial.found, arrays)):
            return make_finding("is_landmark", landmark=landmark)
    return None


def is_scaled_landmark(trial: Trial) -> Finding | None:
    """Report an answer that is a multiple of an intermediate result or of a different known result."""
    for landmark, arrays in _landmarks(trial):
        factor = find_factor(trial._replace(right=arrays))
        if factor is not None:
            return make_finding("is_scaled_landmark", landmark=landmark, factor=factor)
    return None


def _landmarks(trial: Trial) -> list[tuple[str, tuple[Array, ...]]]:
    """Return the name of each landmark of the exercise, with one array per call.

    A landmark is an intermediate result of the solution, or a related array that is not the answer.
    """
    landmarks = []
    with np.errstate(all="ignore"):
        for name, make in trial.probe.landmarks.items():
            arrays = tuple(np.asarray(make(*given)) for given in trial.calls)
            landmarks.append((name, arrays))
    return landmarks


def multiplied(trial: Trial) -> Finding | None:
    """Report an answer that is the correct array, multiplied or divided by an argument entry by entry."""
    operations = {"multiplied_by_argument": np.multiply, "divided_by_argument": np.divide}
    arguments = neighbours(trial)
    for name in arguments[0]:
        for kind, operation in operations.items():
            expected = [operation(b, given[name]) for b, given in zip(trial.right, arguments, strict=True)]
            if all(map(are_close, trial.found, expected)):
                return make_finding(kind, name=name)
    return None


# --- single entries and lines ----------------------------------------------------------------------


def wrong_length(trial: Trial) -> Finding | None:
    """Report an answer with too few or too many entries along one axis, or without this axis."""
    ndim = trial.right[0].ndim
    for axis in range(ndim):
        matches_of_calls = [_find_matching_parts(a, b, axis) for a, b in trial.pairs]
        for few_or_many, end in _PARTS:
            if all((few_or_many, end) in matches for matches in matches_of_calls):
                has_lost_axis = all(a.ndim == b.ndim - 1 for a, b in trial.pairs)
                if has_lost_axis:
                    return make_finding("lost_axis", axis=axis, end=end)
                return _report_length(few_or_many, end, axis, ndim)
    return None


_PARTS = (("few", "first"), ("few", "last"), ("few", "every_second"), ("many", "first"), ("many", "last"))


def _report_length(few_or_many: str, end: str, axis: int, ndim: int) -> Finding:
    """Report too few or too many columns, rows, or entries of an earlier axis."""
    if ndim > 1 and axis == ndim - 1:
        return make_finding(f"too_{few_or_many}", line="column", end=end)
    if axis >= ndim - 2:
        return make_finding(f"too_{few_or_many}", line="row", end=end)
    return make_finding(f"too_{few_or_many}_entries", axis=axis, end=end)


def _find_matching_parts(found: Array, right: Array, axis: int) -> list[tuple[str, str]]:
    """Return how the answer is too short or too long along an axis, as items of _PARTS.

    An item with "few" means that the answer equals a part of the correct array. An item with "many" means
    that a part of the answer equals the correct array.
    """
    if found.ndim == right.ndim - 1:  # The answer lacks this axis and is a single entry along it.
        found = np.expand_dims(found, axis)
    a = np.moveaxis(found, axis, 0)
    b = np.moveaxis(right, axis, 0)
    n = len(a)
    m = len(b)
    parts = {
        ("few", "first"): (a, b[:n]),
        ("few", "last"): (a, b[max(m - n, 0) :]),
        ("few", "every_second"): (a, b[::2]),
        ("many", "first"): (a[:m], b),
        ("many", "last"): (a[max(n - m, 0) :], b),
    }
    return [part for part, (one, two) in parts.items() if are_close(one, two)]


def first_index(trial: Trial, is_wrong: Holds) -> tuple[int, ...] | None:
    """Return the index of the first wrong entry, in the first call with a wrong entry."""
    for a, b in trial.pairs:
        indices = np.argwhere(is_wrong(a, b))
        if len(indices):
            return tuple(indices[0].tolist())
    return None


def wrong_truths(trial: Trial) -> Finding | None:
    """Report where a mask has True instead of False, or False instead of True."""
    if not all(is_two_valued(a) and is_two_valued(b) and a.shape == b.shape for a, b in trial.pairs):
        return None
    true_for_false = first_index(trial, np.greater)
    false_for_true = first_index(trial, np.less)
    if true_for_false is not None and false_for_true is not None:
        return make_finding("both_truths_wrong", index=true_for_false, other=false_for_true)
    if true_for_false is not None:
        return make_finding("true_for_false", index=true_for_false)
    return None if false_for_true is None else make_finding("false_for_true", index=false_for_true)


def unfilled(trial: Trial) -> Finding | None:
    """Report an answer in which some entries are 0 by mistake and all other entries are correct."""
    for a, b in trial.pairs:
        has_numbers = a.ndim > 0 and a.any()
        if not has_numbers or not are_close(np.where(a == 0, 0, b), a):
            return None
    index = first_index(trial, _is_missing)
    wrong_pairs = [(a, b) for a, b in trial.pairs if not are_close(a, b)]
    missing = _is_missing(*wrong_pairs[0])
    last_two_axes = range(-missing.ndim, 0)[-2:]
    has_missing_line = any(missing.all(axis).any() for axis in last_two_axes)
    return make_finding("unfilled", index=index, whole_line=has_missing_line)


def _is_missing(a: Array, b: Array) -> Array:
    """Return, for each entry, whether the answer is 0 although the correct number is not."""
    return np.asarray((a == 0) & (np.abs(b) > EXACT * largest(b)))


def not_finite(trial: Trial) -> Finding | None:
    """Report NaN or infinities in every entry of some calls, in all entries, or in some entries."""
    if any(a.shape != b.shape for a, b in trial.pairs):
        return None
    in_whole_calls = not_finite_calls(trial)
    if in_whole_calls is not None:
        return in_whole_calls
    if all(_is_not_finite(a, b).all() for a, b in trial.pairs):
        return make_finding("nowhere_finite")
    others_agree = all(_agrees_where_finite(a, b) for a, b in trial.pairs)
    nan = first_index(trial, _is_nan)
    if nan is not None:
        return make_finding("nan_at", index=nan, others_agree=others_agree)
    infinite = first_index(trial, _is_infinite)
    if infinite is not None:
        return make_finding("infinite_at", index=infinite, others_agree=others_agree)
    return None


def _is_nan(a: Array, b: Array) -> Array:
    """Return, for each entry, whether the answer is NaN although the correct number is finite."""
    return np.asarray(np.isnan(a) & np.isfinite(b))


def _is_infinite(a: Array, b: Array) -> Array:
    """Return, for each entry, whether the answer is infinite although the correct number is finite."""
    return np.asarray(np.isinf(a) & np.isfinite(b))


def _is_not_finite(a: Array, b: Array) -> Array:
    """Return, for each entry, whether the answer is NaN or infinite although the correct number is finite."""
    return np.asarray(~np.isfinite(a) & np.isfinite(b))


def _agrees_where_finite(a: Array, b: Array) -> bool:
    """Return whether all finite entries of an answer are correct."""
    is_bad = _is_not_finite(a, b)
    return are_close(np.where(is_bad, 0, a), np.where(is_bad, 0, b))


def not_finite_calls(trial: Trial) -> Finding | None:
    """Report that some calls, such as calls without a mask, give no finite number.

    All other calls must be correct.
    """
    is_bad = [_has_no_finite_number(a, b) for a, b in trial.pairs]
    if not any(is_bad) or all(is_bad):
        return None
    other_pairs = [pair for pair, bad in zip(trial.pairs, is_bad, strict=True) if not bad]
    if not all(are_close(a, b) for a, b in other_pairs):
        return None
    has_no_mask = [given.get("mask") is None for given in trial.arguments]
    if "mask" in trial.names and is_bad == has_no_mask:
        return make_finding("not_finite_without_mask")
    return make_finding("not_finite_in_calls", bad=sum(is_bad), calls=len(is_bad))


def _has_no_finite_number(a: Array, b: Array) -> bool:
    """Return whether every entry of an answer is NaN or infinite, and every correct number is finite."""
    return bool(a.size and not np.isfinite(a).any() and np.isfinite(b).all())


def nearly_correct(trial: Trial) -> Finding | None:
    """Report an answer in which every number is near the correct number, but has too few correct digits."""
    for a, b in trial.pairs:
        if a.shape != b.shape or not np.isfinite(a).all() or not a.ndim:
            return None
        if np.abs(a - b).max(initial=0) > NEARLY * largest(b):
            return None
    return make_finding("nearly_correct")


def only_not_finite(trial: Trial) -> Finding | None:
    """Report NaN or infinities, if all entries are NaN or infinite, or if the finite entries are correct."""
    found = not_finite(trial)
    if found is None or found.parameters.get("others_agree", True):
        return found
    return None


def check_row_sums(trial: Trial) -> Finding | None:
    """Report rows that do not sum to 1, although the correct rows do."""
    if not all(a.shape == b.shape and sums_to_1(b) for a, b in trial.pairs) or sums_to_1(*trial.found):
        return None
    sums = np.concatenate([np.ravel(a.sum(axis=-1)) for a in trial.found if not sums_to_1(a)])
    largest = float(np.abs(sums - 1).max())
    is_vector = trial.right[0].ndim == 1
    kind = "sum_is_not_1" if is_vector else "rows_do_not_sum_to_1"
    return make_finding(kind, difference=largest)


def check_proportions(trial: Trial) -> Finding | None:
    """Report rows that sum to 1 as they should, but contain wrong numbers."""
    if not all(a.shape == b.shape and sums_to_1(a, b) for a, b in trial.pairs):
        return None
    is_vector = trial.right[0].ndim == 1
    return make_finding("ratios_in_vector" if is_vector else "ratios_in_rows")


def sums_to_1(*arrays: Array) -> bool:
    """Return whether each row of some arrays sums to 1, within the accuracy of float32."""
    return all(a.size > 1 and np.allclose(a.sum(axis=-1), 1, rtol=0, atol=EXACT) for a in arrays)


# --- the order -------------------------------------------------------------------------------------

DETECTORS: tuple[Detector, ...] = (
    partial(related, relations.detect_zero),
    partial(related, relations.detect_form),
    wrong_length,
    is_argument,
    is_landmark,
    partial(related, find_moved_slices),
    partial(first_that_holds, FUNCTIONS),
    wrong_truths,
    is_scaled_landmark,
    scaled,
    unfilled,
    partial(related, relations.detect_term),
    multiplied,
    shifted,
    softmax_of_scaled,
    partial(first_that_holds, WHOLE_ARRAY),
    only_not_finite,
)
PARTIAL_DETECTORS: tuple[Detector, ...] = (  # These findings describe only a part of the answer.
    not_finite,
    partial(related, relations.detect_error_along_axis),
    partial(first_that_holds, LINES),
    check_row_sums,
    check_proportions,
)
