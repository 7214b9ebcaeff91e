"""Find relations between a wrong array and the correct array, as data: a kind with parameters.

The module handles any arrays and contains no code for particular layers. `KINDS` lists all kinds of
relations. `DETECTORS` lists the functions that find relations. The module notes.py describes a relation in
words.

A backward pass is linear in d_output. So each entry of the gradient is a sum of contributions, one from each
entry of d_output. The **table** of a backward pass contains all these contributions. A missing mask,
transpose or term changes the table itself, so some detectors examine the table if it is available.

A relation must hold in every case, up to the rounding errors of both arrays. The relation must explain at
least 99 % of the difference between the arrays. NaN in the correct array means that the value is unknown.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain, combinations, permutations, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npformer.gradcheck.finite_differences import SQRT_EPS

Array = NDArray[Any]

KINDS: dict[str, tuple[str, ...]] = {  # every kind of relation, with the names of its parameters
    "zero": (),
    "transposed": ("order",),
    "reshaped": ("shape",),
    "sum_missing": ("axes",),
    "mean_missing": ("axes",),
    "sum_too_many": ("axes",),
    "mean_too_many": ("axes",),
    "should_be_zero": ("other",),  # other: a second relation, of kind "other", or None
    "should_be_zero_here": ("other",),  # the same, if the output depends on the argument at other points
    "sign": (),
    "factor": ("factor", "origins"),
    "other": ("name", "factor", "times_d_output"),
    "moved": ("axis", "order"),
    "flipped": ("axes",),
    "shifted_by": ("shifts",),  # the shift along each axis
    "symmetric": ("factor",),  # the sum of the correct array and its transpose, times a factor
    "term_missing": ("name",),
    "term_added": ("name", "factor"),
    "multiple_along": ("name", "axis"),
    "constant_along": ("axis",),
    "few": ("count", "size", "index"),
    "near": ("share",),
    "ends_exchanged": ("axes",),
    "partners": ("axis", "found_distance", "right_distance"),
    "untransposed": ("name",),
    "multiplied": ("name", "instead_of"),  # one of the two may be ""
    "mixes": ("axis", "not_along"),  # not_along: the axis that should be mixed instead, or None
    "own_only": ("axis",),
    "one_index": ("indices", "axis"),
    "zero_there": ("count", "size"),
    "outputs_unused": ("names",),
    "outputs_wrong": ("names",),
    "not_zero_there": ("count", "size"),
    "another_mask": ("count", "size"),
    "stray": ("from_index", "to_index"),
    "d_output_transposed": ("order",),
    "d_output_moved": (),
    "reversed_each": ("axes",),
    "factor_along": ("axes",),
    "d_output_factor_along": ("axes",),
    "others_wrong": ("axis",),
    "own_wrong": ("axis",),
    "wrong_there": ("count", "size"),
    "numbers": (),
}


@dataclass(frozen=True)
class Relation:
    """A relation between a wrong array and the correct array.

    Parameters
    ----------
    kind : str
        A key of `KINDS`.
    parameters : mapping
        A value for each parameter of the kind: a number, an axis, a shape, an index, a factor, or the name of
        an array from the caller. No value is an English phrase.

    Raises
    ------
    ValueError
        The kind is unknown, or the parameters are not exactly those of `KINDS`.

    Examples
    --------
    >>> Relation("moved", {"axis": 0, "order": (1, 0)}).parameters["order"]
    (1, 0)
    """

    kind: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"Relation: kind is {self.kind!r}; expected one of {', '.join(KINDS)}")
        received, expected = sorted(self.parameters), sorted(KINDS[self.kind])
        if received != expected:
            raise ValueError(f"Relation: parameters of {self.kind!r} are {received}; expected {expected}")


class Factor(NamedTuple):
    """A measured factor, and a fraction that equals the factor if such a fraction exists."""

    value: float
    fraction: Fraction | None  # equals the value, or the square of the value if `is_root`
    is_root: bool  # whether the value is plus or minus the square root of the fraction


class Origin(NamedTuple):
    """A length, or a product of two lengths, that explains a factor."""

    names: tuple[str, ...]  # the names of the lengths, which are keys of `Case.sizes`
    is_root: bool  # whether the factor is the square root of the length


class Case(NamedTuple):
    """A received array, the correct array, and the other arrays and lengths of the same call."""

    found: Array
    right: Array
    others: Mapping[str, Array] = {}  # arrays that may have been used by mistake: {"cache.x_hat": ...}
    sizes: Mapping[str, int] = {}  # lengths that may explain a factor: {"axis 0 of x": 3}
    exact: float = SQRT_EPS  # the relative error that counts as zero
    scale: float = 0.0  # errors are relative to the largest number of `right`, but at least to `scale`
    d_output: Array | None = None
    found_table: Array | None = None  # shape d_output.shape + found.shape
    right_table: Array | None = None  # shape d_output.shape + right.shape
    is_zero_here_only: bool = False  # whether a gradient of 0 is not 0 at other points
    outputs: Mapping[str, slice] = {}  # the place of each output in d_output, if forward has several outputs


_Pair = tuple[Array, Array, float]  # received array, correct array, the error that counts as zero
_Quadruple = tuple[Array, Array, Array, float]  # a pair with an additional array before the error
# An error that counts as zero is at most this share of the error that a relation explains.
NEGLIGIBLE = 0.01
CHANCE = 0.01  # the probability with which a random number may match a simple fraction
CHANCE_OF_ROOT = 1e-4  # the same for the root of a fraction; people write short ones only
NEAR = 1e-3  # an error of at most this share of the largest entry may come from too few digits
# One or two numbers are often a multiple or a sum of other numbers by accident.
MOST_ACCIDENTAL = 2
Detector = Callable[[Sequence[Case]], Relation | None]


def find_relation(cases: Sequence[Case], detectors: Sequence[Detector] | None = None) -> Relation | None:
    """Return the first relation that holds in all cases.

    Parameters
    ----------
    cases : sequence of Case
    detectors : sequence of Detector, optional
        The detectors to try, in order. Default: `DETECTORS`.

    Returns
    -------
    relation : Relation or None
        None if every array is correct, an entry is not finite, or no detector finds anything.
    """
    if detectors is None:
        detectors = DETECTORS
    with np.errstate(all="ignore"):
        is_correct = all(is_close(c.found, c.right, c.exact * max(max_abs(c.right), c.scale)) for c in cases)
        is_finite = all(np.isfinite(c.found).all() for c in cases)
        if is_correct or not is_finite:
            return None
        if not all(_has_enough_known(c.right) for c in cases):
            detectors = (detect_factor,)  # It accepts a simple fraction only.
        return _find_first(detectors, cases)


def _find_first(detectors: Sequence[Callable[[Any], Relation | None]], subject: Any) -> Relation | None:
    """Return the first relation that a detector finds in the subject."""
    for detect in detectors:
        relation = detect(subject)
        if relation is not None:
            return relation
    return None


def _has_enough_known(right: Array) -> bool:
    """Return whether all entries are known, or so many that a relation does not hold by accident."""
    is_complete = not np.isnan(right).any()
    return is_complete or _count_known(right) > MOST_ACCIDENTAL


def _count_known(x: Array) -> int:
    """Return the number of entries that are known and not 0."""
    return int(np.count_nonzero(np.nan_to_num(x)))


# Equality within rounding errors


def max_abs(x: Array) -> float:
    """Return the largest magnitude of the known entries. NaN means unknown."""
    return float(np.fmax.reduce(np.abs(x), axis=None, initial=0.0))  # fmax ignores NaN


def root_mean_square(x: Array) -> float:
    """Return the root mean square. The squares of large numbers do not overflow."""
    largest = max_abs(x) or 1.0
    return largest * math.sqrt(float(((x / largest) ** 2).sum()) / max(x.size, 1))


def is_close(a: Array, b: Array, zero: float) -> bool:
    """Return whether a and b have the same shape and differ by at most `zero` wherever b is known."""
    return a.shape == b.shape and bool((np.abs(a - b)[~np.isnan(b)] <= zero).all())


def _make_pair(found: Array, right: Array, exact: float, scale: float = 0.0) -> _Pair:
    """Return both arrays, and the error `zero` that counts as rounding.

    Unknown entries (NaN in `right`) become 0 in both arrays. If `found` is wrong, `zero` is far smaller than
    its error.
    """
    zero = exact * max(max_abs(right), scale)
    if found.shape != right.shape:
        return found, right, zero
    known = ~np.isnan(right)
    found, right = np.where(known, found, 0.0), np.where(known, right, 0.0)
    error = max_abs(found - right)
    if error > zero:
        zero = min(zero, NEGLIGIBLE * error)
    return found, right, zero


def _make_pairs(cases: Sequence[Case], same_shape: bool = True) -> list[_Pair]:
    """Return the pair of each case, or [] if `same_shape` is required and some shapes differ."""
    if same_shape and any(c.found.shape != c.right.shape for c in cases):
        return []
    return [_make_pair(c.found, c.right, c.exact, c.scale) for c in cases]


def fit_factors(a: Array, b: Array, axes: tuple[int, ...] | None = None) -> Array:
    """Return the least-squares factors c in a ≈ c b. All entries along `axes` share one factor."""
    denominator = (b * b).sum(axes, keepdims=True)
    safe_denominator = np.where(denominator > 0, denominator, 1.0)
    return np.asarray((a * b).sum(axes, keepdims=True) / safe_denominator)


def find_ratio(a: Array, b: Array, zero: float) -> float:
    """Return the number c with a = c b, or NaN if no such number exists.

    For arrays with one entry, such a c almost always exists. So `_is_conclusive` decides whether c is
    meaningful.
    """
    if a.shape != b.shape:
        return math.nan
    c = float(fit_factors(a, b).item())
    is_multiple = is_close(a, c * b, zero) and abs(c) * max_abs(b) > zero
    return c if is_multiple else math.nan


def make_factor(value: float, exact: float) -> Factor:
    """Make a factor. If a simple fraction equals the value or its square, the factor contains this fraction.

    Any number is close to some fraction, so only a small numerator n and denominator d are accepted: n d must
    be at most CHANCE / (2 · exact). Then a random number matches a fraction with a probability of at most
    about CHANCE. For roots, it is CHANCE_OF_ROOT.
    """
    for is_root, target, chance in ((False, abs(value), CHANCE), (True, value * value, CHANCE_OF_ROOT)):
        most = chance / (2 * exact)
        if not 0 < target < math.inf:
            continue
        fraction = Fraction(target).limit_denominator(int(math.sqrt(most / target)) or 1)
        n, d = fraction.as_integer_ratio()
        is_equal = abs(n / d - target) <= exact * target
        is_simple = 0 < n * d <= most
        if is_equal and is_simple:
            is_signed = value < 0 and not is_root
            return Factor(value, -fraction if is_signed else fraction, is_root)
    return Factor(value, None, False)


def is_number(factor: Factor, number: int) -> bool:
    """Return whether a factor is exactly this whole number."""
    return factor.fraction == number and not factor.is_root


def _is_minus_one(factor: Factor) -> bool:
    """Return whether a factor is -1, exactly or to seven digits."""
    if factor.fraction is None:
        return float(f"{factor.value:.7g}") == -1
    return is_number(factor, -1)


def find_origins(
    ratios: Sequence[float], sizes: Sequence[Mapping[str, int]], exact: float
) -> tuple[Origin, ...]:
    """Find lengths, products of two lengths, and roots of these that equal the factors or their inverses."""
    lengths: dict[tuple[str, ...], Array] = {}
    for name in sizes[0]:
        values = np.array([float(s[name]) for s in sizes])
        if values.min() > 1:
            lengths[(name,)] = values
    products = {(*a, *b): lengths[a] * lengths[b] for a, b in combinations(lengths, 2)}
    ones = np.ones(len(ratios))
    origins: list[Origin] = []
    for (names, values), is_root in product((lengths | products).items(), (False, True)):
        values = np.sqrt(values) if is_root else values
        is_multiplied = is_close(np.abs(ratios) / values, ones, exact)
        is_divided = is_close(np.abs(ratios) * values, ones, exact)
        if is_multiplied or is_divided:
            origins.append(Origin(names, is_root))
    return tuple(origins)


# Detectors that compare whole arrays


def detect_form(cases: Sequence[Case]) -> Relation | None:
    """Detect a transpose, a reshape, or a missing or superfluous sum or mean over axes."""
    pairs = _make_pairs(cases, same_shape=False)
    orders = list(permutations(range(cases[0].right.ndim)))
    for order in orders[1:]:  # The first order in the list leaves the array unchanged.
        if all(is_close(found, np.transpose(right, order), zero) for found, right, zero in pairs):
            return Relation("transposed", {"order": order})
    has_correct_shape = all(found.shape == right.shape for found, right, _ in pairs)
    if has_correct_shape:
        return None
    if all(_is_reshaped(found, right, zero) for found, right, zero in pairs):
        return Relation("reshaped", {"shape": cases[0].found.shape})
    return _find_reduction(pairs)


def _is_reshaped(found: Array, right: Array, zero: float) -> bool:
    """Return whether two arrays have the same numbers in the same order."""
    return found.size == right.size and is_close(found.ravel(), right.ravel(), zero)


REDUCTIONS = (  # kind of relation, reduction, whether the received array lacks this reduction
    ("sum_missing", np.sum, True),
    ("sum_too_many", np.sum, False),
    ("mean_missing", np.mean, True),
    ("mean_too_many", np.mean, False),
)


def _find_reduction(pairs: list[_Pair]) -> Relation | None:
    """Find the axes over which one array is the sum or mean of the other."""
    for kind, reduce, is_missing in REDUCTIONS:
        # In each triple, the second array should be the reduction of the first array.
        if is_missing:
            triples = pairs
        else:
            triples = [(right, found, zero) for found, right, zero in pairs]
        ndim = triples[0][0].ndim
        if any(a.ndim != ndim for a, _, _ in triples):
            continue
        for axes, keepdims in product(_iter_subsets(range(ndim)), (False, True)):
            if all(is_close(reduce(a, axis=axes, keepdims=keepdims), b, zero) for a, b, zero in triples):
                return Relation(kind, {"axes": axes})
    return None


def _iter_subsets(items: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Iterate over all nonempty subsets. Small subsets come first."""
    return chain.from_iterable(combinations(items, n) for n in range(1, len(items) + 1))


def detect_zero(cases: Sequence[Case]) -> Relation | None:
    """Detect an array that is 0 everywhere, or an array that should be 0 everywhere."""
    if not _make_pairs(cases):
        return None
    if all(c.found.size > 0 and not c.found.any() for c in cases):
        return Relation("zero")
    if any(max_abs(c.right) > c.exact * c.scale for c in cases):
        return None
    kind = "should_be_zero_here" if any(c.is_zero_here_only for c in cases) else "should_be_zero"
    return Relation(kind, {"other": detect_other_array(cases)})


def detect_factor(cases: Sequence[Case]) -> Relation | None:
    """Detect a multiple of the correct array, and the lengths that explain the factor."""
    pairs = _make_pairs(cases)
    if not pairs:
        return None
    exact = max(c.exact for c in cases)
    ratios = [find_ratio(found, right, zero) for found, right, zero in pairs]
    if not _is_conclusive(ratios, [c.right for c in cases], exact):
        return None
    factors = [make_factor(ratio, exact) for ratio in ratios]
    if all(_is_minus_one(factor) for factor in factors):
        return Relation("sign")
    origins = find_origins(ratios, [c.sizes for c in cases], exact)
    return Relation("factor", {"factor": factors[0], "origins": origins})


def _is_conclusive(ratios: Sequence[float], arrays: Sequence[Array], exact: float) -> bool:
    """Return whether all ratios exist and are unlikely to be a coincidence.

    For arrays with one or two nonzero numbers, the ratios must be simple fractions.
    """
    if any(math.isnan(ratio) for ratio in ratios):
        return False
    if all(_count_known(x) > MOST_ACCIDENTAL for x in arrays):
        return True
    return all(make_factor(ratio, exact).fraction is not None for ratio in ratios)


def detect_other_array(cases: Sequence[Case]) -> Relation | None:
    """Detect a multiple of another array of the call, or a multiple of d_output times such an array."""
    exact = cases[0].exact
    for times_d_output, name in product((False, True), cases[0].others):
        arrays = _select_arrays(cases, name, times_d_output)
        is_longer_than_one = any(x.size > 1 for x in arrays)
        if not is_longer_than_one:
            continue
        ratios = [find_ratio(c.found, x, _limit_error(c)) for c, x in zip(cases, arrays, strict=True)]
        if _is_conclusive(ratios, [c.found for c in cases], exact):
            factor = make_factor(ratios[0], exact)
            return Relation("other", {"name": name, "factor": factor, "times_d_output": times_d_output})
    return None


def _limit_error(c: Case) -> float:
    """Return the error that counts as zero, which is far smaller than the error of `found`."""
    zero = c.exact * max_abs(c.found)
    if c.found.shape != c.right.shape:
        return zero
    return min(zero, NEGLIGIBLE * max_abs(c.found - c.right))


def _select_arrays(cases: Sequence[Case], name: str, times_d_output: bool) -> list[Array]:
    """Return the array with this name from each case, times d_output if required, or [] if shapes differ."""
    arrays = [c.others[name] for c in cases]
    if not times_d_output:
        return arrays
    products = []
    for c, x in zip(cases, arrays, strict=True):
        if c.d_output is None or c.d_output.shape != x.shape:
            return []
        products.append(x * c.d_output)
    return products


def detect_moved_slices(cases: Sequence[Case]) -> Relation | None:
    """Detect slices that are correct but in a wrong order along one axis.

    Detect one slice that is repeated everywhere.
    """
    pairs = _make_pairs(cases)
    if not pairs:
        return None
    for axis in range(cases[0].right.ndim):
        orders = []
        for found, right, zero in pairs:
            orders.append(_find_order(np.moveaxis(found, axis, 0), np.moveaxis(right, axis, 0), zero))
        if all(_is_different_order(order) for order in orders):
            return Relation("moved", {"axis": axis, "order": tuple(orders[0])})
    return None


def _is_different_order(order: list[int]) -> bool:
    """Return whether an order has at least two indices and is not 0, 1, 2, ..."""
    return len(order) > 1 and order != list(range(len(order)))


def _find_order(found: Array, right: Array, zero: float) -> list[int]:
    """Return the index of the correct slice for each received slice, or [] if the slices do not match."""
    weights = np.cos(np.arange(right[:1].size))  # A sum with these weights identifies a slice.
    right_sums = right.reshape(len(right), -1) @ weights
    found_sums = found.reshape(len(found), -1) @ weights
    ascending = np.argsort(right_sums)
    sorted_sums = right_sums[ascending]
    midpoints = (sorted_sums[1:] + sorted_sums[:-1]) / 2
    order: list[int] = ascending[np.searchsorted(midpoints, found_sums)].tolist()  # by the nearest sum
    is_permutation = sorted(order) == list(range(len(order)))
    is_one_slice = len(set(order)) == 1 and right[:1].size > 1 and max_abs(found) > zero
    is_possible = is_permutation or is_one_slice
    if is_possible and is_close(found, right[order], zero):
        return order
    return []


def detect_flip(cases: Sequence[Case]) -> Relation | None:
    """Detect an array that is reversed along several axes. `detect_moved_slices` detects a single axis."""
    pairs = _make_pairs(cases)
    if not pairs:
        return None
    for axes in _iter_subsets(range(cases[0].right.ndim)):
        if len(axes) > 1 and all(is_close(found, np.flip(right, axes), zero) for found, right, zero in pairs):
            return Relation("flipped", {"axes": axes})
    return None


LONGEST_SHIFT = 3
MOST_SHIFTED_AXES = 3


def detect_shift(cases: Sequence[Case]) -> Relation | None:
    """Detect an array that is shifted. The numbers at the edge are lost or come back at the other side."""
    pairs = _make_pairs(cases)
    ndim = cases[0].right.ndim
    if not pairs or not 0 < ndim <= MOST_SHIFTED_AXES:
        return None
    shifts_of_axes = product(range(-LONGEST_SHIFT, LONGEST_SHIFT + 1), repeat=ndim)
    for shifts in sorted(shifts_of_axes, key=lambda shifts: sum(map(abs, shifts))):
        if any(shifts) and all(_is_shifted(*pair, shifts) for pair in pairs):
            return Relation("shifted_by", {"shifts": shifts})
    return None


def _is_shifted(found: Array, right: Array, zero: float, shifts: tuple[int, ...]) -> bool:
    """Return whether an array has the correct numbers at shifted indices, and more than half of them."""
    rolled = np.roll(right, shifts, axis=tuple(range(right.ndim)))
    stays_inside = np.ones(right.shape, dtype=np.bool_)
    for axis, shift in enumerate(shifts):
        index = np.arange(right.shape[axis])
        is_inside = (index >= shift) & (index < len(index) + shift)
        stays_inside &= is_inside.reshape([-1 if a == axis else 1 for a in range(right.ndim)])
    n_shared = np.count_nonzero(rolled[stays_inside])
    has_enough = n_shared > max(MOST_ACCIDENTAL, np.count_nonzero(right) / 2)
    if not has_enough:
        return False
    return is_close(found, rolled, zero) or is_close(found, np.where(stays_inside, rolled, 0), zero)


def detect_symmetric_part(cases: Sequence[Case]) -> Relation | None:
    """Detect a multiple of the sum of the correct matrix and its transpose."""
    pairs = _make_pairs(cases)
    if not pairs or not all(_is_finite_square(right) for _, right, _ in pairs):
        return None
    exact = max(c.exact for c in cases)
    sums = [right + right.T for _, right, _ in pairs]
    ratios = [find_ratio(pair[0], total, pair[2]) for pair, total in zip(pairs, sums, strict=True)]
    if not _is_conclusive(ratios, sums, exact):
        return None
    return Relation("symmetric", {"factor": make_factor(ratios[0], exact)})


def detect_term(cases: Sequence[Case]) -> Relation | None:
    """Detect another array that is a missing term, or a multiple of another array that is an extra term."""
    for name, quadruples in _iter_others(cases):
        if all(is_close(found + other, right, zero) for found, right, other, zero in quadruples):
            return Relation("term_missing", {"name": name})
        ratios = [find_ratio(found - right, other, zero) for found, right, other, zero in quadruples]
        if not any(math.isnan(ratio) for ratio in ratios):
            return Relation("term_added", {"name": name, "factor": make_factor(ratios[0], cases[0].exact)})
    return None


def _iter_others(cases: Sequence[Case]) -> Iterator[tuple[str, list[_Quadruple]]]:
    """Iterate over the names of the other arrays with the same shape, each with a quadruple per case.

    Arrays with one or two numbers are left out, because they may be multiples of other arrays by accident.
    """
    pairs = _make_pairs(cases)
    if not pairs or min(c.found.size for c in cases) <= 2:
        return
    for name in cases[0].others:
        quadruples = []
        for c, (found, right, zero) in zip(cases, pairs, strict=True):
            quadruples.append((found, right, c.others[name], zero))
        if all(found.shape == other.shape for found, _, other, _ in quadruples):
            yield name, quadruples


def detect_error_along_axis(cases: Sequence[Case]) -> Relation | None:
    """Detect an error along an axis that is constant or a multiple of another array."""
    ndim = cases[0].right.ndim
    cases_with_ones = [c._replace(others={"": np.ones_like(c.found)} | dict(c.others)) for c in cases]
    for axis, (name, quadruples) in product(range(ndim), _iter_others(cases_with_ones)):
        shortest = 3 if name else 2  # On a shorter axis, an error may fit by accident.
        is_long = quadruples[0][0].shape[axis] >= shortest
        if is_long and all(_is_multiple_along(axis, *quadruple) for quadruple in quadruples):
            if name:
                return Relation("multiple_along", {"name": name, "axis": axis})
            return Relation("constant_along", {"axis": axis})
    return None


def _is_multiple_along(axis: int, found: Array, right: Array, other: Array, zero: float) -> bool:
    """Return whether the error is a multiple of the other array along each line of this axis."""
    error = found - right
    fit = fit_factors(error, other, (axis,)) * other
    return is_close(fit, error, zero) and max_abs(error) > zero


def detect_partial_error(cases: Sequence[Case]) -> Relation | None:
    """Detect an error in a few entries only, or in the last digits only."""
    if any(np.isnan(c.right).any() for c in cases):
        return None  # An unknown entry may be wrong too.
    pairs = _make_pairs(cases)
    for found, right, zero in pairs:
        wrong = np.argwhere(np.abs(found - right) > zero)
        is_in_few_entries = 0 < 2 * len(wrong) < found.size
        if is_in_few_entries:
            index = tuple(wrong[0].tolist())
            return Relation("few", {"count": len(wrong), "size": found.size, "index": index})
    shares = []
    # If the shapes differ, `pairs` is empty.
    for c, (found, right, _) in zip(cases, pairs, strict=False):
        error = max_abs(found - right)
        magnitude = max(max_abs(right), c.scale)
        if error >= NEAR * magnitude:
            return None
        shares.append(error / magnitude)
    return Relation("near", {"share": max(shares)}) if shares else None


# Detectors that compare the two tables (see the docstring of this module)


class _Table(NamedTuple):
    """The two tables of one case."""

    F: Array  # the table of the received gradient
    R: Array  # the table of the correct gradient
    zero: float  # the error that counts as zero
    out: int  # the number of axes of d_output, the first axes of both tables
    others: Mapping[str, Array]
    outputs: Mapping[str, slice]

    def find_paths(self) -> tuple[Array, Array]:
        """Return the masks of the paths (nonzero entries) in the received table and in the correct table."""
        return np.abs(self.F) > self.zero, np.abs(self.R) > self.zero

    def find_shared_axes(self) -> list[tuple[int, int]]:
        """Return pairs of a d_output axis and a gradient axis that probably have the same meaning.

        The two axes have the same length, and the same index counted from the first or from the last axis.
        If d_output joins several outputs, its only axis has no meaning, so there are no pairs.
        """
        if self.outputs:
            return []
        n_output = self.out
        n_gradient = self.F.ndim - self.out
        pairs = []
        for p, q in product(range(n_output), range(n_gradient)):
            has_same_position = p == q or n_output - p == n_gradient - q
            has_same_length = self.F.shape[p] == self.F.shape[n_output + q]
            if has_same_position and has_same_length:
                pairs.append((p, n_output + q))
        return pairs


def on_table(*detectors: Callable[[_Table], Relation | None]) -> Detector:
    """Combine detectors that take a table into one detector that takes cases.

    The combined detector returns None if there is no single table for the cases.
    """

    def detect(cases: Sequence[Case]) -> Relation | None:
        c = cases[0]
        F, R, dy = c.found_table, c.right_table, c.d_output
        if len(cases) > 1 or F is None or R is None or dy is None:
            return None
        if c.found.shape != c.right.shape:
            return None
        F, R, zero = _make_pair(F, R, c.exact)
        if is_close(F, R, zero):
            return None
        return _find_first(detectors, _Table(F, R, zero, dy.ndim, c.others, c.outputs))

    return detect


def detect_wrong_outputs(t: _Table) -> Relation | None:
    """Detect that the contributions of some outputs are missing or wrong, and those of all others correct."""
    unused, wrong = [], []
    for name, part in t.outputs.items():
        found, right = t.F[part], t.R[part]
        if is_close(found, right, t.zero):
            continue
        wrong.append(name)
        if max_abs(found) <= t.zero:
            unused.append(name)
    if not wrong or len(wrong) == len(t.outputs):
        return None
    if unused == wrong:
        return Relation("outputs_unused", {"names": tuple(unused)})
    return Relation("outputs_wrong", {"names": tuple(wrong)})


def detect_exchanged_ends(t: _Table) -> Relation | None:
    """Detect exchanged indices: along some axes, contributions from i to j and from j to i are exchanged."""
    for pairs in _iter_subsets(t.find_shared_axes()):
        exchanged_axes = set(chain.from_iterable(pairs))
        has_repeated_axis = len(exchanged_axes) < 2 * len(pairs)
        if has_repeated_axis:
            continue
        R = t.R
        for p, q in pairs:
            R = np.swapaxes(R, p, q)
        if is_close(t.F, R, t.zero):
            return Relation("ends_exchanged", {"axes": tuple(q - t.out for _, q in pairs)})
    return None


def detect_order_of_d_output(t: _Table) -> Relation | None:
    """Detect that d_output is used transposed, or with its entries in a different order.

    If d_output joins several outputs, the order of its entries has no meaning.
    """
    if t.outputs:
        return None
    gradient_axes = tuple(range(t.out, t.F.ndim))
    for order in list(permutations(range(t.out)))[1:]:
        if is_close(t.F, np.transpose(t.R, order + gradient_axes), t.zero):
            return Relation("d_output_transposed", {"order": order})
    n_outputs = math.prod(t.F.shape[: t.out])
    order_of_entries = _find_order(t.F.reshape(n_outputs, -1), t.R.reshape(n_outputs, -1), t.zero)
    is_permutation = len(set(order_of_entries)) == n_outputs
    if is_permutation and _is_different_order(order_of_entries):
        return Relation("d_output_moved")
    return None


def detect_partners(t: _Table) -> Relation | None:
    """Detect that entries are combined with the wrong partner along an axis, such as the neighbour.

    RoPE, for example, combines neighbours in one layout, and entries that are d/2 apart in the other layout.
    """
    found, right = t.find_paths()
    for p, q in t.find_shared_axes():
        found_distances, right_distances = _find_distances(found, p, q), _find_distances(right, p, q)
        has_one_each = len(found_distances) == len(right_distances) == 1
        if has_one_each and found_distances != right_distances:
            (found_distance,), (right_distance,) = found_distances, right_distances
            return Relation(
                "partners",
                {"axis": q - t.out, "found_distance": found_distance, "right_distance": right_distance},
            )
    return None


def _find_distances(paths: Array, p: int, q: int) -> set[int]:
    """Return the distances, other than 0, between the two ends of the paths along the axes p and q."""
    by_ends = np.moveaxis(paths, (p, q), (0, 1))
    is_connected = by_ends.reshape(*by_ends.shape[:2], -1).any(axis=-1)
    starts, ends = np.nonzero(is_connected)
    return set(abs(starts - ends).tolist()) - {0}


def detect_untransposed(t: _Table) -> Relation | None:
    """Detect that a square matrix W was used instead of its transpose, or the reverse: F = R W⁻ᵀ W."""
    squares = {name: W for name, W in t.others.items() if _is_finite_square(W)}
    last_axes = (t.out - 1, -1)  # the last axis of d_output and the last axis of the gradient
    for (name, W), axis, is_reversed in product(squares.items(), last_axes, (False, True)):
        A = W.T if is_reversed else W
        zero = t.zero * float(np.linalg.cond(W))  # `solve` increases the error by this factor.
        is_meaningful = zero < NEGLIGIBLE * max_abs(t.F - t.R)
        has_length_of_A = t.R.ndim > 0 and t.R.shape[axis] == len(A)
        if is_meaningful and has_length_of_A:
            expected = np.moveaxis(np.moveaxis(t.R, axis, -1) @ np.linalg.solve(A, A.T), -1, axis)
            if is_close(t.F, expected, zero):
                return Relation("untransposed", {"name": name})
    return None


def _is_finite_square(W: Array) -> bool:
    """Return whether an array is a square matrix of finite numbers with at least two rows."""
    is_square = W.ndim == 2 and W.shape[0] == W.shape[1] > 1
    return is_square and bool(np.isfinite(W).all())


def detect_multiplied(t: _Table) -> Relation | None:
    """Detect an array that is missing as a factor, is an extra factor, or replaces another factor."""
    for axes in _list_axes_of_factors(t):
        factors = _fit_table_factors(t, axes)
        arrays = {"": np.ones(factors.shape)}
        for name, x in t.others.items():
            if x.squeeze().shape == factors.squeeze().shape and _is_distinctive(x):
                arrays[name] = x.reshape(factors.shape)
        for name, instead_of in _list_exchanges(list(arrays)):
            numerator, denominator = arrays[name], arrays[instead_of]
            is_exchanged = is_close(t.F * denominator, t.R * numerator, t.zero * max_abs(denominator))
            # Where the array is 0, its product with the gradient is 0 too, and proves nothing.
            if is_exchanged and denominator.all():
                return Relation("multiplied", {"name": name, "instead_of": instead_of})
    return None


def _is_distinctive(x: Array) -> bool:
    """Return whether an array hardly equals factors by accident, as one or two whole numbers may do."""
    return x.size > MOST_ACCIDENTAL or (x.size > 1 and bool((x % 1).all()))


def _list_axes_of_factors(t: _Table) -> list[list[int]]:
    """Return the axes along which the factor between the two tables varies, in two ways.

    If an axis of d_output and an axis of the gradient have the same meaning, the factor varies along one of
    them. The first list prefers axes of d_output, the second one prefers axes of the gradient.
    """
    axes = range(t.F.ndim)
    return [_find_axes_of_factor(t, axes[::-1]), _find_axes_of_factor(t, axes)]


def _find_axes_of_factor(t: _Table, candidates: Sequence[int]) -> list[int]:
    """Return the axes along which the factor between the two tables varies.

    The first candidates are left out, if possible.
    """
    kept_axes = list(range(t.F.ndim))
    for axis in candidates:
        fewer_axes = [a for a in kept_axes if a != axis]
        if is_close(t.F, _fit_table_factors(t, fewer_axes) * t.R, t.zero):
            kept_axes = fewer_axes
    return kept_axes


def _fit_table_factors(t: _Table, kept_axes: Sequence[int]) -> Array:
    """Return the least-squares factors between the two tables. The factors vary along the kept axes only."""
    return fit_factors(t.F, t.R, tuple(a for a in range(t.F.ndim) if a not in kept_axes))


def detect_factor_along(t: _Table) -> Relation | None:
    """Detect factors that depend only on the indices along some axes of the gradient or of d_output.

    If there are too many factors, they may be found by accident.
    """
    _, right = t.find_paths()
    for axes in reversed(_list_axes_of_factors(t)):
        n_factors = math.prod(t.F.shape[a] for a in axes)
        are_few = 1 < n_factors <= right.sum() / 2
        if are_few and min(axes) >= t.out:
            return Relation("factor_along", {"axes": tuple(a - t.out for a in axes)})
        if are_few and max(axes) < t.out and not t.outputs:
            return Relation("d_output_factor_along", {"axes": tuple(axes)})
    return None


def _list_exchanges(names: Sequence[str]) -> list[tuple[str, str]]:
    """List all ordered pairs of names. Pairs with the empty name come first; "" means the number 1."""
    exchanges = list(permutations(names, 2))
    with_one = [exchange for exchange in exchanges if "" in exchange]
    without_one = [exchange for exchange in exchanges if "" not in exchange]
    return with_one + without_one


def detect_mixed_axes(t: _Table) -> Relation | None:
    """Detect an axis along which entries are mixed by mistake, or are not mixed although they should be."""
    found, right = t.find_paths()
    mixed, separate = [], []
    pairs = t.find_shared_axes()
    for p in sorted({p for p, _ in pairs}):
        axes = [q for other, q in pairs if other == p]  # several axes may have the same meaning as axis p
        is_mixed = all(_crosses(found, p, q) for q in axes)
        should_be_mixed = all(_crosses(right, p, q) for q in axes)
        if is_mixed and not should_be_mixed:
            mixed.append(axes[0] - t.out)
        if should_be_mixed and not is_mixed:
            separate.append(axes[0] - t.out)
    if mixed:
        return Relation("mixes", {"axis": mixed[0], "not_along": separate[0] if separate else None})
    if separate:
        return Relation("own_only", {"axis": separate[0]})
    return None


def _crosses(paths: Array, p: int, q: int) -> bool:
    """Return whether some path leads from an index along axis p to a different index along axis q."""
    by_ends = np.moveaxis(paths, (p, q), (0, 1))
    is_different = ~np.eye(len(by_ends), dtype=np.bool_)
    return bool(by_ends[is_different].any())


def detect_cut_paths(t: _Table) -> Relation | None:
    """Detect missing or superfluous paths from d_output to the gradient. All other paths must be correct."""
    found, right = t.find_paths()
    extra = found & ~right
    lost = right & ~found
    shared = found & right
    has_same_paths = (found == right).all()
    if has_same_paths or not shared.any() or not is_close(t.F[shared], t.R[shared], t.zero):
        return None
    counts = {"count": int(extra.sum()), "size": found.size}
    if extra.any():
        kind = "another_mask" if lost.any() else "not_zero_there"
        return Relation(kind, counts)
    relation = _find_only_indices(t, found, right)
    if relation is not None:
        return relation
    return Relation("zero_there", {"count": int(lost.sum()), "size": found.size})


def _find_only_indices(t: _Table, found: Array, right: Array) -> Relation | None:
    """Detect that only some indices along an axis of d_output contribute to the gradient.

    The contributions of these indices have the correct values. If d_output joins several outputs, its indices
    have no meaning.
    """
    if t.outputs:
        return None
    lost = right & ~found
    for axis in range(t.out):
        other_axes = tuple(a for a in range(found.ndim) if a != axis)
        is_used = found.any(other_axes, keepdims=True)
        if (lost == (right & ~is_used)).all():
            indices = tuple(np.flatnonzero(is_used).tolist())
            return Relation("one_index", {"indices": indices, "axis": axis})
    return None


def detect_reversed_contributions(t: _Table) -> Relation | None:
    """Detect that each entry of d_output contributes the correct numbers in reverse order along some axes.

    A flipped kernel of a convolution does this. The numbers of each entry lie in a box inside the gradient.
    """
    shape = t.F.shape[t.out :]
    found = t.F.reshape(-1, math.prod(shape))
    right = t.R.reshape(-1, math.prod(shape))
    has_same_numbers = is_close(np.sort(found), np.sort(right), t.zero)
    if not has_same_numbers:
        return None
    found, right = found.reshape(-1, *shape), right.reshape(-1, *shape)
    for axes in _iter_subsets(range(len(shape))):
        expected = np.array([_reverse_in_box(contributions, axes, t.zero) for contributions in right])
        if is_close(found, expected, t.zero):
            return Relation("reversed_each", {"axes": axes})
    return None


def _reverse_in_box(contributions: Array, axes: tuple[int, ...], zero: float) -> Array:
    """Reverse the numbers along some axes, inside the smallest box that contains all numbers except zeros."""
    indices = np.nonzero(np.abs(contributions) > zero)
    box = tuple(slice(index.min(), index.max() + 1) for index in indices if index.size)
    reversed_contributions = contributions.copy()
    reversed_contributions[box] = np.flip(contributions[box], axes)
    return reversed_contributions


def detect_partly_wrong(t: _Table) -> Relation | None:
    """Detect that some contributions are correct and the others have wrong numbers.

    Often these are the contributions from the same index, or from all other indices, along some axis.
    """
    found, right = t.find_paths()
    has_same_paths = (found == right).all()
    is_wrong = np.abs(t.F - t.R) > t.zero
    is_correct = right & ~is_wrong
    if not has_same_paths or not is_correct.any():
        return None
    for p, q in t.find_shared_axes():
        if not _crosses(is_wrong, p, q) and _crosses(right, p, q):
            return Relation("own_wrong", {"axis": q - t.out})
        is_own_correct = not _stays(is_wrong, p, q)
        are_others_wrong = not _crosses(is_correct, p, q)
        if is_own_correct and are_others_wrong:
            return Relation("others_wrong", {"axis": q - t.out})
    return Relation("wrong_there", {"count": int(is_wrong.sum()), "size": int(right.sum())})


def _stays(paths: Array, p: int, q: int) -> bool:
    """Return whether some path leads from an index along axis p to the same index along axis q."""
    return bool(np.diagonal(paths, axis1=p, axis2=q).any())


def detect_wrong_numbers(t: _Table) -> Relation | None:
    """Detect a path that should not exist. Otherwise detect wrong numbers on paths that are all correct."""
    found, right = t.find_paths()
    stray = np.argwhere(found & (t.R == 0))
    if len(stray) and not t.outputs:
        index = tuple(stray[0].tolist())
        return Relation("stray", {"from_index": index[: t.out], "to_index": index[t.out :]})
    has_same_paths = (found == right).all()
    if has_same_paths and not right.all():
        return Relation("numbers")
    return None


DETECTORS: tuple[Detector, ...] = (  # in this order, because only the first relation is reported
    detect_form,
    detect_zero,
    detect_factor,
    detect_other_array,
    on_table(detect_wrong_outputs),
    detect_moved_slices,
    detect_flip,
    detect_shift,
    detect_symmetric_part,
    detect_term,
    detect_error_along_axis,
    on_table(
        detect_exchanged_ends,
        detect_untransposed,
        detect_order_of_d_output,
        detect_partners,
        detect_mixed_axes,
        detect_cut_paths,
    ),
    detect_partial_error,
    on_table(
        detect_multiplied,
        detect_factor_along,
        detect_reversed_contributions,
        detect_partly_wrong,
        detect_wrong_numbers,
    ),
)
# For a gradient that changes from call to call, other relations would not be reliable.
DETECTORS_OF_UNRELIABLE_GRADIENTS: tuple[Detector, ...] = (detect_form, detect_zero, detect_term)
