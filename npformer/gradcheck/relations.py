"""Relations between a wrong array and the correct one, as data: a kind with its parameters.

The module knows arrays and no layer. `KINDS` lists every kind, `DETECTORS` finds them, notes.py turns a
relation into text.

A backward pass is linear in d_output. Its table holds what each entry of d_output contributes to each entry
of the gradient, and the gradient is a sum over that table. A missing mask, transpose or term shows in the
table itself, so some detectors examine the table where it is available.

A relation must hold in every case, to the last digits that both arrays have, and leave at most a hundredth
of the error unexplained. NaN in the correct array means that the value there is unknown.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain, combinations, permutations, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npformer.gradcheck.finite_differences import HALF, SLACK

Array = NDArray[Any]

KINDS: dict[str, tuple[str, ...]] = {  # every kind of relation, with the names of its parameters
    "zero": (),
    "transposed": ("order",),
    "reshaped": ("shape",),
    "sum_missing": ("axes",),
    "mean_missing": ("axes",),
    "sum_too_many": ("axes",),
    "mean_too_many": ("axes",),
    "should_be_zero": ("other",),  # the relation of kind "other" that holds as well, or None
    "sign": (),
    "factor": ("factor", "origins"),
    "other": ("name", "factor", "times_d_output"),
    "moved": ("axis", "order"),
    "term_missing": ("name",),
    "term_added": ("name", "factor"),
    "multiple_along": ("name", "axis"),
    "constant_along": ("axis",),
    "few": ("count", "size", "index"),
    "near": ("share",),
    "ends_exchanged": ("axes",),
    "untransposed": ("name",),
    "multiplied": ("name", "instead_of"),  # either may be "", not both
    "mixes": ("axis", "not_along"),  # the axis that should be mixed instead, or None
    "own_only": ("axis",),
    "one_index": ("indices", "axis"),
    "zero_there": ("count", "size"),
    "not_zero_there": ("count", "size"),
    "another_mask": ("count", "size"),
    "stray": ("from_index", "to_index"),
    "numbers": (),
}


@dataclass(frozen=True)
class Relation:
    """How a wrong array is related to the correct one.

    Parameters
    ----------
    kind : str
        A key of `KINDS`.
    parameters : mapping
        A value for each parameter of the kind: numbers, axes, shapes, indices, factors, and names of arrays
        as the caller gave them. No value is an English phrase.

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
    """A measured factor, and the fraction that it stands for if there is one."""

    value: float
    fraction: Fraction | None  # equal to the value, or to its square if `is_root`
    is_root: bool  # whether the value is plus or minus the square root of the fraction


class Origin(NamedTuple):
    """A length, or a product of two lengths, that explains a factor."""

    names: tuple[str, ...]  # of the lengths, as the keys of `Case.sizes`
    is_root: bool  # whether the factor is the square root of the length


class Case(NamedTuple):
    """A received array, the correct array, and the other arrays and lengths of the same call."""

    found: Array
    right: Array
    others: Mapping[str, Array] = {}  # arrays that may have been used by mistake: {"cache.x_hat": ...}
    sizes: Mapping[str, int] = {}  # lengths that may explain a factor: {"axis 0 of x": 3}
    exact: float = HALF  # numbers count as equal if they differ by less than this share of the largest
    scale: float = 0.0  # a magnitude to compare with if this array has no entry as large
    d_output: Array | None = None
    found_table: Array | None = None  # d_output.shape + found.shape
    right_table: Array | None = None


_Pair = tuple[Array, Array, float]  # two arrays or two tables, and the error that counts as zero
Detector = Callable[[Sequence[Case]], Relation | None]


def find_relation(cases: Sequence[Case], detectors: Sequence[Detector] = ()) -> Relation | None:
    """Return the first relation that holds in all cases.

    Parameters
    ----------
    cases : sequence of Case
    detectors : sequence of Detector
        The detectors to try, in order. `DETECTORS` by default, the most informative first.

    Returns
    -------
    relation : Relation or None
        None if every array is correct, an entry is not finite, or no detector finds anything.
    """
    with np.errstate(all="ignore"):
        is_correct = all(close(c.found, c.right, c.exact * max(size(c.right), c.scale)) for c in cases)
        is_finite = all(np.isfinite(c.found).all() for c in cases)
        if is_correct or not is_finite:
            return None
        return _find_first(detectors or DETECTORS, cases)


def _find_first(detectors: Sequence[Callable[[Any], Relation | None]], subject: Any) -> Relation | None:
    """Return the first relation that a detector finds in the subject."""
    for detect in detectors:
        relation = detect(subject)
        if relation is not None:
            return relation
    return None


# Equality to the last digits


def size(x: Array) -> float:
    """Return the largest magnitude of the known entries."""
    return float(np.fmax.reduce(np.abs(x), axis=None, initial=0.0))  # fmax ignores NaN


def close(a: Array, b: Array, zero: float) -> bool:
    """Return whether a and b have one shape and differ by at most `zero` wherever b is known."""
    return a.shape == b.shape and bool((np.abs(a - b)[~np.isnan(b)] <= zero).all())


def _make_pair(found: Array, right: Array, exact: float, scale: float = 0.0) -> _Pair:
    """Set unknown entries to 0 on both sides, and choose a zero far below the error."""
    zero = exact * max(size(right), scale)
    if found.shape != right.shape:
        return found, right, zero
    known = ~np.isnan(right)
    found, right = np.where(known, found, 0.0), np.where(known, right, 0.0)
    error = size(found - right)
    if error > zero:
        zero = min(zero, error / SLACK**2)
    return found, right, zero


def _make_pairs(cases: Sequence[Case], same_shape: bool = True) -> list[_Pair]:
    """Return the pair of each case, or nothing if shapes differ although they must not."""
    if same_shape and any(c.found.shape != c.right.shape for c in cases):
        return []
    return [_make_pair(c.found, c.right, c.exact, c.scale) for c in cases]


def fitted(a: Array, b: Array, axes: tuple[int, ...] | None = None) -> Array:
    """Return the factors c that bring c b closest to a, one for each index of the remaining axes."""
    over = (b * b).sum(axes, keepdims=True)
    return np.asarray((a * b).sum(axes, keepdims=True) / np.where(over > 0, over, 1.0))


def ratio(a: Array, b: Array, zero: float) -> float:
    """Return the number c with a = c b, or NaN. An array with one entry fits any c: see `_is_telling`."""
    if a.shape != b.shape:
        return math.nan
    c = float(fitted(a, b).item())
    is_multiple = close(a, c * b, zero) and abs(c) * size(b) > zero
    return c if is_multiple else math.nan


def make_factor(value: float, exact: float) -> Factor:
    """Find the fraction that a factor stands for, or the fraction under a square root: 2, -1/3, √5.

    Fewer than 2 n d fractions with numerators up to n and denominators up to d exist near a number. If these
    cover at most a hundredth of the numbers to the accuracy `exact`, then a match is no accident.
    """
    most = 1 / (2 * exact * SLACK**2)
    for is_root, target in ((False, abs(value)), (True, value * value)):
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
    """Return whether a factor is -1, as a fraction or to seven digits."""
    if factor.fraction is None:
        return float(f"{factor.value:.7g}") == -1
    return is_number(factor, -1)


def find_origins(
    ratios: Sequence[float], sizes: Sequence[Mapping[str, int]], exact: float
) -> tuple[Origin, ...]:
    """Find the lengths, products of two lengths, and their roots that equal the factors or their inverses."""
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
        is_multiplied = close(np.abs(ratios) / values, ones, exact)
        is_divided = close(np.abs(ratios) * values, ones, exact)
        if is_multiplied or is_divided:
            origins.append(Origin(names, is_root))
    return tuple(origins)


# Detectors that compare whole arrays


def form(cases: Sequence[Case]) -> Relation | None:
    """Detect a transpose, a reshape, and a sum or mean over axes that is missing or superfluous."""
    arrays = _make_pairs(cases, same_shape=False)
    for order in list(permutations(range(cases[0].right.ndim)))[1:]:
        if all(close(f, np.transpose(r, order), zero) for f, r, zero in arrays):
            return Relation("transposed", {"order": order})
    if _make_pairs(cases):
        return None
    if all(f.size == r.size and close(f.ravel(), r.ravel(), zero) for f, r, zero in arrays):
        return Relation("reshaped", {"shape": cases[0].found.shape})
    return _find_reduction(arrays)


REDUCTIONS = (  # the kind, the function, and whether the received array lacks it
    ("sum_missing", np.sum, True),
    ("sum_too_many", np.sum, False),
    ("mean_missing", np.mean, True),
    ("mean_too_many", np.mean, False),
)


def _find_reduction(arrays: list[_Pair]) -> Relation | None:
    """Find the axes over which one array is the sum or mean of the other."""
    for kind, reduce, is_missing in REDUCTIONS:
        ends = [(f, r, zero) if is_missing else (r, f, zero) for f, r, zero in arrays]
        for axes, keep in product(_iter_subsets(range(ends[0][0].ndim)), (False, True)):
            if all(close(reduce(a, axis=axes, keepdims=keep), b, zero) for a, b, zero in ends):
                return Relation(kind, {"axes": axes})
    return None


def _iter_subsets(things: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Iterate over all subsets that are not empty, small ones first."""
    return chain.from_iterable(combinations(things, n) for n in range(1, len(things) + 1))


def nothing(cases: Sequence[Case]) -> Relation | None:
    """Detect an array that is 0 everywhere, or one that should be 0 everywhere."""
    if not _make_pairs(cases):
        return None
    if all(c.found.size and not c.found.any() for c in cases):
        return Relation("zero")
    if any(size(c.right) > c.exact * c.scale for c in cases):
        return None
    return Relation("should_be_zero", {"other": other(cases)})


def factor(cases: Sequence[Case]) -> Relation | None:
    """Detect one factor for the whole array, and the lengths that explain it."""
    pairs = _make_pairs(cases)
    exact = max(c.exact for c in cases)
    ratios = [ratio(f, r, zero) for f, r, zero in pairs]
    if not pairs or not _is_telling(ratios, [c.right for c in cases], exact):
        return None
    factors = [make_factor(c, exact) for c in ratios]
    if all(map(_is_minus_one, factors)):
        return Relation("sign")
    origins = find_origins(ratios, [c.sizes for c in cases], exact)
    return Relation("factor", {"factor": factors[0], "origins": origins})


def _is_telling(ratios: Sequence[float], arrays: Sequence[Array], exact: float) -> bool:
    """Return whether all arrays are multiples, and arrays of one or two numbers by a simple fraction."""
    if any(map(math.isnan, ratios)):
        return False
    if all(np.count_nonzero(x) > 2 for x in arrays):
        return True
    return all(make_factor(c, exact).fraction is not None for c in ratios)


def other(cases: Sequence[Case]) -> Relation | None:
    """Detect a multiple of a different array of the call, or of d_output times such an array."""
    exact = cases[0].exact
    for times_d_output, name in product((False, True), cases[0].others):
        arrays = [c.others[name] for c in cases]
        if times_d_output:
            if any(c.d_output is None or c.d_output.shape != c.others[name].shape for c in cases):
                continue
            arrays = [x * c.d_output for c, x in zip(cases, arrays, strict=True)]
        ratios = [ratio(c.found, x, c.exact * size(c.found)) for c, x in zip(cases, arrays, strict=True)]
        if any(x.size > 1 for x in arrays) and _is_telling(ratios, [c.found for c in cases], exact):
            times = make_factor(ratios[0], exact)
            return Relation("other", {"name": name, "factor": times, "times_d_output": times_d_output})
    return None


def moved(cases: Sequence[Case]) -> Relation | None:
    """Detect correct slices along one axis in a different order, or one slice repeated everywhere."""
    pairs = _make_pairs(cases)
    for axis in range(cases[0].right.ndim if pairs else 0):
        orders = [_find_order(np.moveaxis(f, axis, 0), np.moveaxis(r, axis, 0), zero) for f, r, zero in pairs]
        if all(len(order) > 1 and order != list(range(len(order))) for order in orders):
            return Relation("moved", {"axis": axis, "order": tuple(orders[0])})
    return None


def _find_order(found: Array, right: Array, zero: float) -> list[int]:
    """Return which correct slice each received slice is, or [] if there is no telling match."""
    weights = np.cos(np.arange(right[:1].size))  # the weighted sums tell slices apart
    keys, sums = (x.reshape(len(x), -1) @ weights for x in (right, found))
    ascending = np.argsort(keys)
    between = (keys[ascending][1:] + keys[ascending][:-1]) / 2
    order: list[int] = ascending[np.searchsorted(between, sums)].tolist()  # the slice with the nearest sum
    is_permutation = sorted(order) == list(range(len(order)))
    is_one_slice = len({*order}) == 1 and right[:1].size > 1 and size(found) > zero
    is_match = (is_permutation or is_one_slice) and close(found, right[order], zero)
    return order if is_match else []


def added(cases: Sequence[Case]) -> Relation | None:
    """Detect a multiple of a different array that is added to the correct array, or missing from it."""
    for name, quadruples in _iter_others(cases):
        if all(close(f + k, r, zero) for f, r, k, zero in quadruples):
            return Relation("term_missing", {"name": name})
        ratios = [ratio(f - r, k, zero) for f, r, k, zero in quadruples]
        if not any(map(math.isnan, ratios)):
            return Relation("term_added", {"name": name, "factor": make_factor(ratios[0], cases[0].exact)})
    return None


def _iter_others(cases: Sequence[Case]) -> Iterator[tuple[str, list[tuple[Array, Array, Array, float]]]]:
    """Iterate over the other arrays of the same shape, with (found, right, other, zero) of every case."""
    is_large = min(c.found.size for c in cases) > 2
    pairs = _make_pairs(cases) if is_large else []
    for name in cases[0].others if pairs else ():
        quadruples = [(f, r, c.others[name], zero) for c, (f, r, zero) in zip(cases, pairs, strict=True)]
        if all(f.shape == k.shape for f, _, k, _ in quadruples):
            yield name, quadruples


def leftover(cases: Sequence[Case]) -> Relation | None:
    """Detect an error that is constant along an axis, or a multiple of a different array along it."""
    with_ones = [c._replace(others={"": np.ones_like(c.found)} | dict(c.others)) for c in cases]
    for axis, (name, quadruples) in product(range(cases[0].right.ndim), _iter_others(with_ones)):
        shortest = 3 if name else 2
        is_long = quadruples[0][0].shape[axis] >= shortest
        errors = [(f - r, fitted(f - r, k, (axis,)) * k, zero) for f, r, k, zero in quadruples]
        if is_long and all(close(fit, error, zero) and size(error) > zero for error, fit, zero in errors):
            if name:
                return Relation("multiple_along", {"name": name, "axis": axis})
            return Relation("constant_along", {"axis": axis})
    return None


def part(cases: Sequence[Case]) -> Relation | None:
    """Detect an error in a few entries only, or in the last digits only."""
    pairs = _make_pairs(cases)
    for found, right, zero in pairs:
        wrong = np.argwhere(np.abs(found - right) > zero)
        if 0 < 2 * len(wrong) < found.size:
            index = tuple(wrong[0].tolist())
            return Relation("few", {"count": len(wrong), "size": found.size, "index": index})
    errors = [(size(f - r), max(size(r), c.scale)) for c, (f, r, _) in zip(cases, pairs, strict=False)]
    if not errors or any(error * SLACK**3 >= largest for error, largest in errors):
        return None
    return Relation("near", {"share": max(error / largest for error, largest in errors)})


# Detectors that compare tables: what each entry of d_output contributes to each entry of the gradient


class _Table(NamedTuple):
    """The two tables of one case."""

    F: Array  # as received
    R: Array  # as it should be
    zero: float
    out: int  # the number of leading axes that belong to d_output
    others: Mapping[str, Array]

    def find_paths(self) -> tuple[Array, Array]:
        """Return where the received and the correct table are not zero."""
        return np.abs(self.F) > self.zero, np.abs(self.R) > self.zero

    def find_shared_axes(self) -> list[tuple[int, int]]:
        """Return pairs of axes of d_output and gradient with one length and one position from an end."""
        n, m = self.out, self.F.ndim - self.out
        pairs = [(p, q) for p, q in product(range(n), range(m)) if p == q or n - p == m - q]
        return [(p, n + q) for p, q in pairs if self.F.shape[p] == self.F.shape[n + q] > 1]


def in_table(*detectors: Callable[[_Table], Relation | None]) -> Detector:
    """Make a detector of cases from detectors of tables; it finds nothing where there is no table."""

    def detect(cases: Sequence[Case]) -> Relation | None:
        c = cases[0]
        F, R, dy = c.found_table, c.right_table, c.d_output
        if len(cases) > 1 or F is None or R is None or dy is None or c.found.shape != c.right.shape:
            return None
        return _find_first(detectors, _Table(*_make_pair(F, R, c.exact), dy.ndim, c.others))

    return detect


def turned(t: _Table) -> Relation | None:
    """Detect that contributions from i to j go from j to i, along some axes."""
    for pairs in _iter_subsets(t.find_shared_axes()):
        R = t.R
        for p, q in pairs:
            R = np.swapaxes(R, p, q)
        if close(t.F, R, t.zero):
            return Relation("ends_exchanged", {"axes": tuple(p for p, _ in pairs)})
    return None


def untransposed(t: _Table) -> Relation | None:
    """Detect a square array W in place of its transpose, or the reverse: F = R W⁻ᵀ W."""
    finite = {name: W for name, W in t.others.items() if np.isfinite(W).all()}
    squares = {name: W for name, W in finite.items() if W.ndim == 2 and W.shape[0] == W.shape[1] > 1}
    for (name, W), axis, is_reversed in product(squares.items(), (t.out - 1, -1), (False, True)):
        A = W.T if is_reversed else W
        zero = t.zero * float(np.linalg.cond(W))  # the digits that `solve` loses
        is_precise = zero < size(t.F - t.R) / SLACK**2
        if t.R.shape[axis : axis + 1 or None] == A.shape[:1] and is_precise:
            expected = np.moveaxis(np.moveaxis(t.R, axis, -1) @ np.linalg.solve(A, A.T), -1, axis)
            if close(t.F, expected, zero):
                return Relation("untransposed", {"name": name})
    return None


def by_part(t: _Table) -> Relation | None:
    """Detect a factor that varies along some axes: an array left out, used twice or confused."""
    kept = list(range(t.F.ndim))
    for axis in reversed(range(t.F.ndim)):
        fewer = [a for a in kept if a != axis]
        if close(t.F, _fit_factors(t, fewer) * t.R, t.zero):
            kept = fewer
    q = _fit_factors(t, kept)
    arrays = {"": np.ones(q.shape)}
    arrays |= {n: x.reshape(q.shape) for n, x in t.others.items() if x.squeeze().shape == q.squeeze().shape}
    exchanges = permutations(arrays.items() if q.size > 2 else (), 2)
    for (name, x), (instead_of, y) in sorted(exchanges, key=lambda two: all(name for name, _ in two)):
        if close(t.F * y, t.R * x, t.zero * size(y)):
            return Relation("multiplied", {"name": name, "instead_of": instead_of})
    return None


def _fit_factors(t: _Table, kept: Sequence[int]) -> Array:
    """Return the best factor on the correct table for each index of the axes that are kept."""
    return fitted(t.F, t.R, tuple(a for a in range(t.F.ndim) if a not in kept))


def crossed(t: _Table) -> Relation | None:
    """Detect an axis along which entries are mixed, or kept apart, and should not be."""
    found, right = t.find_paths()
    crossings = [(p, _crosses(found, p, q), _crosses(right, p, q)) for p, q in t.find_shared_axes()]
    mixed = [axis for axis, is_mixed, should_mix in crossings if is_mixed and not should_mix]
    separate = [axis for axis, is_mixed, should_mix in crossings if should_mix and not is_mixed]
    if mixed:
        return Relation("mixes", {"axis": mixed[0], "not_along": separate[0] if separate else None})
    return Relation("own_only", {"axis": separate[0]}) if separate else None


def _crosses(paths: Array, p: int, q: int) -> bool:
    """Return whether a path leads from one index of axis p to a different index of axis q."""
    ends = np.moveaxis(paths, (p, q), (0, 1))
    return bool(ends[~np.eye(len(ends), dtype=np.bool_)].any())


def cut(t: _Table) -> Relation | None:
    """Detect paths from d_output that are missing or superfluous, while all other paths are correct."""
    found, right = t.find_paths()
    extra, lost = found & ~right, right & ~found
    both = found & right
    if (found == right).all() or not both.any() or not close(t.F[both], t.R[both], t.zero):
        return None
    for axis in range(0 if extra.any() else t.out):
        alive = found.any(tuple(a for a in range(found.ndim) if a != axis), keepdims=True)
        if (lost == (right & ~alive)).all():
            return Relation("one_index", {"indices": tuple(np.flatnonzero(alive).tolist()), "axis": axis})
    if not extra.any():
        return Relation("zero_there", {"count": int(lost.sum()), "size": found.size})
    kind = "another_mask" if lost.any() else "not_zero_there"
    return Relation(kind, {"count": int(extra.sum()), "size": found.size})


def numbers(t: _Table) -> Relation | None:
    """Detect a path where there should be none, or correct paths with wrong numbers on them."""
    found, right = t.find_paths()
    for index in np.argwhere(found & (t.R == 0))[:1].tolist():
        ends = {"from_index": tuple(index[: t.out]), "to_index": tuple(index[t.out :])}
        return Relation("stray", ends)
    has_same_paths = (found == right).all() and not right.all()
    return Relation("numbers") if has_same_paths else None


DETECTORS: tuple[Detector, ...] = (
    form, nothing, factor, other, moved, added, leftover,
    in_table(turned, untransposed, crossed, cut), part, in_table(by_part, numbers),
)  # fmt: skip
