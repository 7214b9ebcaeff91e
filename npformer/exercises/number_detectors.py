"""Detectors that compare the numbers of a wrong answer with the correct ones.

A detector receives one output on every call, with the correct array, and returns a finding or None. A
finding must hold on every call, to the last digits that float32 has. It contains no number of the correct
answer.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations, permutations, product
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.exercises.probe import Trial
from npformer.exercises.verdict import Finding, find
from npformer.gradcheck import relations
from npformer.gradcheck.relations import Case, Relation

EXACT = 2e-5  # of the largest number: answers in float32 are compared too
NEARLY = 5e-3  # of the largest number: what a type with few digits, or a constant with few, may cost
TINY = 1e-12  # what is left of a difference of zeros

Detector = Callable[[Trial], Finding | None]
Holds = Callable[[Array, Array], Any]  # of an answer, and of the correct array of the same shape


def largest(*arrays: Array) -> float:
    """The largest magnitude of the finite numbers in some arrays."""
    return max(float(np.abs(a[np.isfinite(a)]).max(initial=0)) for a in arrays)


def close(a: Array, b: Array) -> bool:
    """Whether two arrays are equal to the last digits that float32 has, NaN and infinities included."""
    if a.shape != b.shape:
        return False
    a, b = np.asarray(a, float), np.asarray(b, float)
    return bool(np.allclose(a, b, rtol=0, atol=EXACT * largest(b) + TINY, equal_nan=True))


def ratio(a: Array, b: Array) -> float | None:
    """The number c with a = c b, or None."""
    c = relations.ratio(a, b, EXACT * float(np.abs(a).max(initial=0)))
    return None if math.isnan(c) else c


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a detector, or None where an answer of an unexpected shape makes it stop."""
    try:
        return function(*arguments)
    except (ValueError, TypeError, IndexError, ArithmeticError, np.linalg.LinAlgError):
        return None


# --- relations that gradcheck knows too --------------------------------------------------------------


def related(detector: Callable[[Sequence[Case]], Relation | None], trial: Trial) -> Finding | None:
    """Apply one of gradcheck's detectors, and express its relation in the terms of an exercise."""
    with np.errstate(all="ignore"):
        cases = [
            Case(a, b, others, exact=EXACT, scale=_scale(b))
            for a, b, others in zip(trial.found, trial.right, neighbours(trial), strict=True)
        ]
        relation = detector(cases)
    if relation is None:
        return None
    given = relation.parameters
    if relation.kind == "constant_along":
        return find("constant_in_each", line=_line(given["axis"], trial))
    if relation.kind == "multiple_along":
        return find("multiple_in_each", name=given["name"], line=_line(given["axis"], trial))
    if relation.kind == "term_added":
        times = given["factor"].value
        if abs(times + 2) < 1e-4:
            return find("term_sign", name=given["name"])
        if abs(times - 1) > 1e-4:
            return find("multiple_added", name=given["name"])
    return Finding(relation.kind, parameters=given)


def _scale(right: Array) -> float:
    """The magnitude that differences are compared with: the largest number, or 1 for an array of zeros."""
    return largest(right) or 1.0


def _line(axis: int, trial: Trial) -> str:
    """The name of one line along an axis: a row, a column, or the name of an axis further out."""
    from_the_end = axis - trial.right[0].ndim
    axes = trial.probe.axis_names.get(trial.probe.outputs[trial.output], [])
    outer = axes[axis] if len(axes) == trial.right[0].ndim else "row"
    return {-1: "row", -2: "column"}.get(from_the_end, outer)


def moved(cases: Sequence[Case]) -> Relation | None:
    """Find correct slices in a different order; one slice everywhere is left to other detectors."""
    relation = relations.moved(cases)
    if relation is None or len(set(relation.parameters["order"])) == 1:
        return None
    return relation


def neighbours(trial: Trial) -> list[dict[str, Array]]:
    """The arrays that may have been added or multiplied: arguments and directions that fit in every call."""
    fitting: list[dict[str, Array]] = []
    for given, right in zip(trial.arguments, trial.right, strict=True):
        available = dict(given)
        for name, make in trial.probe.directions.items():
            available[name] = make(*given.values())
        fitting.append(
            {name: np.broadcast_to(a, right.shape) for name, a in available.items() if _fits(a, right)}
        )
    in_all = set.intersection(*map(set, fitting))
    return [{name: given[name] for name in given if name in in_all} for given in fitting]


def _fits(value: Any, right: Array) -> bool:
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or value.ndim > right.ndim:
        return False
    return all(n in (1, m) for n, m in zip(value.shape[::-1], right.shape[::-1], strict=False))


# --- a function of the correct answer --------------------------------------------------------------


def is_function_of_right(function: Callable[[Array], Any]) -> Holds:
    """Whether an answer is this function of the correct one."""
    return lambda a, b: close(a, np.asarray(function(b), float))


def _is_half_precision(a: Array, b: Array) -> bool:
    """Whether an answer is near the correct one and has as few digits as float16."""
    is_near = np.isfinite(a).all() and np.abs(a - b).max(initial=0) <= 2e-3 * max(1.0, largest(b))
    return bool(is_near and np.array_equal(a.astype(np.float16), a))


def _is_additive_mask(a: Array, b: Array) -> bool:
    """Whether an answer is 0 for True, and far below 0 for False."""
    return is_two_valued(b) and bool(((b == 1) == (a == 0)).all() and (a[b == 0] <= -1e4).all())


def is_two_valued(array: Array) -> bool:
    """Whether an array holds truth values."""
    return array.size > 1 and bool(np.isin(array, (0, 1)).all())


def _is_one_hot(a: Array, b: Array) -> bool:
    """Whether in each row one of the largest correct numbers became 1, and the others 0."""
    if is_two_valued(b) or not is_two_valued(a) or not (a.sum(axis=-1) == 1).all():
        return False
    return bool((b[a == 1] == b.max(axis=-1).ravel()).all())


def _is_permuted(a: Array, b: Array) -> bool:
    return close(np.sort(a, axis=None), np.sort(b, axis=None))


def _is_scaled_in_each_call(a: Array, b: Array) -> bool:
    return a.size > 1 and bool(ratio(a, b))


def _is_scaled_along(a: Array, b: Array, axis: int) -> bool:
    """Whether each line along an axis is a multiple of the correct one; one number alone always is."""
    if a.ndim < 2 or min(a.shape) < 2:
        return False
    c = relations.fitted(a, b, (axis,))
    return bool((np.abs(a - c * b) <= EXACT * largest(a)).all())


FUNCTIONS: dict[str, Holds] = {
    "half_precision": _is_half_precision,
    "additive_mask": _is_additive_mask,
    "inverted": lambda a, b: is_two_valued(b) and bool((a == 1 - b).all()),
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
    """The first kind of a table that is true on every call."""
    for kind, holds in table.items():
        with np.errstate(all="ignore"):
            if all(a.shape == b.shape and attempt(holds, a, b) for a, b in trial.pairs):
                return find(kind)
    return None


# --- one factor ------------------------------------------------------------------------------------


class ScaleFactor(NamedTuple):
    """A factor as data: sign · number · (top / bottom)^power, top and bottom products of sizes by name."""

    sign: int
    number: float  # 1 where the factor is a size or a constant with a name alone
    constant: str = ""  # a key of CONSTANTS
    top: tuple[str, ...] = ()
    bottom: tuple[str, ...] = ()
    power: float = 1.0  # 1, -1, 0.5 or -0.5

    @property
    def is_one(self) -> bool:
        """Whether nothing is multiplied."""
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
    """Factors with a name, and their value in each call: 1, constants, a size, two sizes, a quotient."""
    single = {name: np.array([float(s[name]) for s in sizes]) for name in sizes[0]}
    single = {name: values for name, values in single.items() if values.min() > 0}
    calls = len(sizes)
    found = {ScaleFactor(1, 1.0): np.ones(calls)}
    for name, value in CONSTANTS.items():
        found[ScaleFactor(1, 1.0, name)] = np.full(calls, value)
    lengths: dict[tuple[tuple[str, ...], tuple[str, ...]], Array] = {}
    for name, values in single.items():
        lengths[(name,), ()] = values
    for a, b in combinations(single, 2):
        lengths[(a, b), ()] = single[a] * single[b]
    for a, b in permutations(single, 2):
        lengths[(a,), (b,)] = single[a] / single[b]
    for power, ((top, bottom), values) in product(POWERS, lengths.items()):
        found[ScaleFactor(1, 1.0, "", top, bottom, power)] = values**power
    return found


def name_factor(ratios: Sequence[float], sizes: Sequence[dict[str, int]]) -> ScaleFactor | None:
    """The factor that explains a ratio in every call: one with a name, or a number times such a one."""
    quotients = {factor: np.asarray(ratios) / values for factor, values in candidate_factors(sizes).items()}
    for factor, times in quotients.items():
        has_one_sign = len({*np.sign(times)}) == 1
        if has_one_sign and np.allclose(np.abs(times), 1, rtol=1e-4, atol=0):
            return factor._replace(sign=int(np.sign(times[0])))
    for factor, times in quotients.items() if len(ratios) > 1 else ():
        if np.allclose(times, times[0], rtol=1e-4, atol=0):
            return factor._replace(sign=int(np.sign(times[0])), number=abs(float(times[0])))
    return None


def find_factor(trial: Trial, function: Callable[[Array], Array] = lambda a: a) -> ScaleFactor | None:
    """The one factor between the answer and the correct one, or between what a function makes of the two."""
    with np.errstate(all="ignore"):
        ratios = [ratio(function(a), function(b)) for a, b in trial.pairs]
    known = [r for r in ratios if r]
    return name_factor(known, trial.sizes) if len(known) == len(ratios) else None


def scaled(trial: Trial) -> Finding | None:
    """The correct array times one factor."""
    factor = find_factor(trial)
    return find("scaled", factor=factor) if factor else None


def shifted(trial: Trial) -> Finding | None:
    """The correct array with a constant added to every number, and perhaps a factor."""
    factor = find_factor(trial, lambda a: a - a.mean())
    if factor is None:
        return None
    return find("shifted") if factor.is_one else find("scaled_and_shifted", factor=factor)


def exponents(p: Array) -> Array:
    """Return the scores that a softmax was taken of, minus their row mean; NaN if rows do not sum to 1."""
    sums_to_1 = bool(np.allclose(p.sum(axis=-1, keepdims=True), 1, atol=1e-4) and (p >= 0).all())
    if not sums_to_1:
        return np.full_like(p, np.nan)
    logs = np.where(p > 0, np.log(p), np.nan)
    return np.nan_to_num(logs - np.nanmean(logs, axis=-1, keepdims=True))


def softmax_of_scaled(trial: Trial) -> Finding | None:
    """A softmax of the correct scores times one factor."""
    factor = find_factor(trial, exponents)
    return find("softmax_of_scaled_scores", factor=factor) if factor else None


# --- something else that was there -----------------------------------------------------------------


def is_argument(trial: Trial) -> Finding | None:
    """Report an answer that equals one of the arguments."""
    for name in trial.names:
        there = [given[name] for given in trial.arguments]
        if all(isinstance(t, np.ndarray) and close(a, t) for a, t in zip(trial.found, there, strict=True)):
            return find("is_argument", name=name)
    return None


def is_landmark(trial: Trial) -> Finding | None:
    """Report an answer that equals another array of the solution, or another known result."""
    for landmark, there in _landmarks(trial):
        if all(map(close, trial.found, there)):
            return find("is_landmark", landmark=landmark)
    return None


def is_scaled_landmark(trial: Trial) -> Finding | None:
    """Report an answer that is a multiple of such an array."""
    for landmark, there in _landmarks(trial):
        factor = find_factor(trial._replace(right=there))
        if factor:
            return find("is_scaled_landmark", landmark=landmark, factor=factor)
    return None


def _landmarks(trial: Trial) -> list[tuple[str, tuple[Array, ...]]]:
    with np.errstate(all="ignore"):
        return [
            (landmark, tuple(np.asarray(make(*given)) for given in trial.calls))
            for landmark, make in trial.probe.landmarks.items()
        ]


def multiplied(trial: Trial) -> Finding | None:
    """The correct answer times or divided by an argument, entry by entry."""
    ways = {"multiplied_by_argument": np.multiply, "divided_by_argument": np.divide}
    others = neighbours(trial)
    for name, (kind, operation) in product(others[0], ways.items()):
        expected = [operation(b, there[name]) for b, there in zip(trial.right, others, strict=True)]
        if all(map(close, trial.found, expected)):
            return find(kind, name=name)
    return None


# --- some places alone -----------------------------------------------------------------------------


def wrong_length(trial: Trial) -> Finding | None:
    """Too few or too many entries of one axis."""
    ndim = trial.right[0].ndim
    for axis in range(ndim):
        ends = [set(_matching_parts(a, b, axis)) for a, b in trial.pairs]
        for few_or_many, end in _PARTS:
            if all((few_or_many, end) in more for more in ends):
                return _of_axis(few_or_many, end, axis, ndim)
    return None


_PARTS = (("few", "first"), ("few", "last"), ("few", "every_second"), ("many", "first"), ("many", "last"))


def _of_axis(few_or_many: str, end: str, axis: int, ndim: int) -> Finding:
    """The finding about rows, columns, or entries of an axis further out."""
    if ndim > 1 and axis == ndim - 1:
        return find(f"too_{few_or_many}", line="column", end=end)
    if axis >= ndim - 2:
        return find(f"too_{few_or_many}", line="row", end=end)
    return find(f"too_{few_or_many}_entries", axis=axis, end=end)


def _matching_parts(found: Array, right: Array, axis: int) -> list[tuple[str, str]]:
    """List which entries of an axis were returned, if some are missing or too many."""
    found = np.expand_dims(found, axis) if found.ndim == right.ndim - 1 else found
    a, b = np.moveaxis(found, axis, 0), np.moveaxis(right, axis, 0)
    n, m = len(a), len(b)
    parts = {
        ("few", "first"): (a, b[:n]),
        ("few", "last"): (a, b[max(m - n, 0) :]),
        ("few", "every_second"): (a, b[::2]),
        ("many", "first"): (a[:m], b),
        ("many", "last"): (a[max(n - m, 0) :], b),
    }
    return [part for part, (one, two) in parts.items() if close(one, two)]


def first_index(trial: Trial, is_wrong: Holds) -> tuple[int, ...] | None:
    """The first place where something is so, call by call."""
    for a, b in trial.pairs:
        places = np.argwhere(is_wrong(a, b))
        if len(places):
            return tuple(places[0].tolist())
    return None


def wrong_truths(trial: Trial) -> Finding | None:
    """Report where a mask has True instead of False, or False instead of True."""
    if not all(is_two_valued(a) and is_two_valued(b) and a.shape == b.shape for a, b in trial.pairs):
        return None
    shown, hidden = first_index(trial, np.greater), first_index(trial, np.less)
    if shown is not None and hidden is not None:
        return find("both_truths_wrong", index=shown, other=hidden)
    if shown is not None:
        return find("true_for_false", index=shown)
    return find("false_for_true", index=hidden) if hidden is not None else None


def unfilled(trial: Trial) -> Finding | None:
    """Correct where it is not 0: some places were never filled, or were cut off."""

    def is_missing(a: Array, b: Array) -> Array:
        return np.asarray((a == 0) & (np.abs(b) > EXACT * largest(b)))

    if not all(a.any() and a.ndim and close(np.where(a == 0, 0, b), a) for a, b in trial.pairs):
        return None
    index = first_index(trial, is_missing)
    a, b = next((a, b) for a, b in trial.pairs if not close(a, b))
    whole_line = any(is_missing(a, b).all(axis).any() for axis in range(-a.ndim, 0)[-2:])
    return find("unfilled", index=index, whole_line=whole_line)


def not_finite(trial: Trial) -> Finding | None:
    """NaN or infinities, everywhere or among the numbers."""
    if any(a.shape != b.shape for a, b in trial.pairs):
        return None
    if whole_calls := not_finite_calls(trial):
        return whole_calls
    bad = [~np.isfinite(a) & np.isfinite(b) for a, b in trial.pairs]
    if all(places.all() for places in bad):
        return find("nowhere_finite")
    nan = first_index(trial, lambda a, b: np.isnan(a) & np.isfinite(b))
    infinite = first_index(trial, lambda a, b: np.isinf(a) & np.isfinite(b))
    others_agree = all(
        close(np.where(p, 0, a), np.where(p, 0, b)) for p, (a, b) in zip(bad, trial.pairs, strict=True)
    )
    if nan is not None:
        return find("nan_at", index=nan, others_agree=others_agree)
    if infinite is not None:
        return find("infinite_at", index=infinite, others_agree=others_agree)
    return None


def not_finite_calls(trial: Trial) -> Finding | None:
    """No finite number in some calls, and the correct ones in the others: those without a mask, perhaps."""
    without = [bool(a.size and not np.isfinite(a).any() and np.isfinite(b).all()) for a, b in trial.pairs]
    others = [pair for pair, is_bad in zip(trial.pairs, without, strict=True) if not is_bad]
    if not any(without) or all(without) or not all(close(*pair) for pair in others):
        return None
    masked = [given.get("mask") is not None for given in trial.arguments]
    if "mask" in trial.names and without == [not mask for mask in masked]:
        return find("not_finite_without_mask")
    return find("not_finite_in_calls", bad=sum(without), calls=len(without))


def nearly_correct(trial: Trial) -> Finding | None:
    """Every number is near the correct one: digits are lost somewhere."""
    for a, b in trial.pairs:
        if a.shape != b.shape or not np.isfinite(a).all() or not a.ndim:
            return None
        if np.abs(a - b).max(initial=0) > NEARLY * largest(b):
            return None
    return find("nearly_correct")


def only_not_finite(trial: Trial) -> Finding | None:
    """Not one finite number, or NaN and infinities among numbers that are correct."""
    found = not_finite(trial)
    if found is None or found.parameters.get("others_agree", True):
        return found
    return None


def row_sums(trial: Trial) -> Finding | None:
    """Report rows that should sum to 1 and do not."""
    if not all(a.shape == b.shape and sums_to_1(b) for a, b in trial.pairs) or sums_to_1(*trial.found):
        return None
    sums = np.concatenate([np.ravel(a.sum(axis=-1)) for a in trial.found if not sums_to_1(a)])
    farthest = float(sums[np.argmax(np.abs(sums - 1))])
    is_vector = trial.right[0].ndim == 1
    return find("sum_is_not_1" if is_vector else "rows_do_not_sum_to_1", sum=farthest)


def proportions(trial: Trial) -> Finding | None:
    """Report rows that sum to 1 as they should, but contain different numbers."""
    if not all(a.shape == b.shape and sums_to_1(a, b) for a, b in trial.pairs):
        return None
    return find("ratios_in_vector" if trial.right[0].ndim == 1 else "ratios_in_rows")


def sums_to_1(*arrays: Array) -> bool:
    """Whether each row sums to 1, to the last digits that float32 has."""
    return all(a.size > 1 and np.allclose(a.sum(axis=-1), 1, rtol=0, atol=EXACT) for a in arrays)


# --- the order -------------------------------------------------------------------------------------

DETECTORS: tuple[Detector, ...] = (
    partial(related, relations.nothing),
    partial(related, relations.form),
    wrong_length,
    is_argument,
    is_landmark,
    partial(related, moved),
    partial(first_that_holds, FUNCTIONS),
    wrong_truths,
    is_scaled_landmark,
    scaled,
    unfilled,
    partial(related, relations.added),
    multiplied,
    shifted,
    softmax_of_scaled,
    partial(first_that_holds, WHOLE_ARRAY),
    only_not_finite,
)
PARTIAL_DETECTORS: tuple[Detector, ...] = (  # what holds of a part of the answer
    not_finite,
    partial(related, relations.leftover),
    partial(first_that_holds, LINES),
    row_sums,
    proportions,
)
