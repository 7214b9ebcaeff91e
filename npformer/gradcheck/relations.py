"""What a wrong array has to do with the right one. Knows arrays, and no layer.

A backward pass is linear in d_output, so it is a table: what each entry of d_output sends to each entry of
the gradient. A gradient is one sum over that table; the table itself shows where a mask, a transpose or a
term of a sum is missing, and is looked at where it is given.

A relation is named only where it holds in every case, to the last digits that both sides have, and leaves
at most a hundredth of what was wrong unexplained. NaN in what is right means "not known there".
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain, combinations, permutations, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
MANY = 64  # slices of an axis that are looked for one by one


class Case(NamedTuple):
    """An array that came back, the one it should be, and what else was there."""

    found: Array
    right: Array
    others: Mapping[str, Array] = {}  # what it may have been taken for: "the gradient of W_2", "cache.x_hat"
    sizes: Mapping[str, int] = {}  # lengths that a factor may come from: {"axis 0 of x": 3}
    exact: float = 1e-7  # two numbers are one when they differ by less than this share of the largest
    scale: float = 0.0  # a largest number that counts although this array has none as large
    d_output: Array | None = None
    found_table: Array | None = None  # d_output.shape + found.shape
    right_table: Array | None = None


class Relation(NamedTuple):
    """What was seen: a kind of relation, and which."""

    kind: str  # a key of WORDS
    what: str = ""  # which factor, which axis, which other array


class _Pair(NamedTuple):
    """Two arrays of one shape, or two tables, and what counts as zero between them."""

    found: Array
    right: Array
    zero: float


def relation(cases: Sequence[Case]) -> Relation | None:
    """The first relation that holds in all cases, the most telling ones first; none for what is right."""
    with np.errstate(all="ignore"):
        cases = [_of_one_number(c) for c in cases]
        right = all(close(c.found, c.right, c.exact * max(size(c.right), c.scale)) for c in cases)
        if right or not all(np.isfinite(c.found).all() for c in cases):
            return None
        return next((seen for look in LOOKS if (seen := look(cases))), None)


def _of_one_number(c: Case) -> Case:
    """Where the output is one number, its d_output is set to 1: what it is a multiple of is then plain."""
    if c.d_output is None or c.d_output.ndim or c.found_table is None or c.right_table is None:
        return c
    linear = close(c.found, c.d_output * c.found_table, c.exact * size(c.found))
    return c._replace(found=c.found_table, right=c.right_table, d_output=np.ones(())) if linear else c


# Equal to the last digits


def size(x: Array) -> float:
    """The largest magnitude of what is known."""
    return float(np.nanmax(np.abs(x), initial=0.0))


def close(a: Array, b: Array, zero: float) -> bool:
    """Whether no entry is further than `zero` from b, where b is known."""
    return a.shape == b.shape and bool((np.abs(a - b)[~np.isnan(b)] <= zero).all())


def _zero(found: Array, right: Array, exact: float, scale: float = 0.0) -> float:
    zero = exact * max(size(right), scale)
    off = size(found - right) if found.shape == right.shape else math.inf
    return min(zero, 0.01 * off) if off > zero else zero


def _pair(found: Array, right: Array, exact: float, scale: float = 0.0) -> _Pair:
    """Found and right, of one shape if they have one; what is not known counts as agreeing."""
    if found.shape == right.shape:
        known = ~np.isnan(right)
        found, right = np.where(known, found, 0.0), np.where(known, right, 0.0)
    return _Pair(found, right, _zero(found, right, exact, scale))


def _arrays(cases: Sequence[Case]) -> list[_Pair]:
    return [_pair(c.found, c.right, c.exact, c.scale) for c in cases]


def _tables(cases: Sequence[Case]) -> list[_Pair]:
    """The two tables of each case; empty where one has none."""
    pairs = [(c.found_table, c.right_table, c.exact) for c in cases]
    if any(F is None or R is None or F.shape != R.shape for F, R, _ in pairs):
        return []
    return [_pair(F, R, exact) for F, R, exact in pairs]  # type: ignore[arg-type]


def _axes_out(case: Case) -> int:
    """How many axes d_output has."""
    return 0 if case.d_output is None else case.d_output.ndim


def _same_shape(cases: Sequence[Case]) -> bool:
    return all(c.found.shape == c.right.shape for c in cases)


def ratio(a: Array, b: Array, zero: float) -> float:
    """The number c with a = c b, or NaN. One entry fits any c: see `_telling`."""
    c = float((a * b).sum() / (b * b).sum()) if a.shape == b.shape and b.any() else math.nan
    return c if close(a, c * b, zero) and abs(c) * size(b) > zero else math.nan


def figure(c: float) -> str:
    """A factor as a small fraction or the root of one, 2, -1/3, √5, or in digits."""
    for root, sign in (("", ""), ("√", "√")):
        f = Fraction(c * c if root else abs(c)).limit_denominator(64)
        if f and abs(float(f) ** (0.5 if root else 1) - abs(c)) <= 1e-7 * abs(c) and f.numerator <= 4096:
            return "-" * (c < 0) + sign + (f"({f})" if root and f.denominator > 1 else str(f))
    return f"{c:.7g}"


def origins(ratios: Sequence[float], sizes: Sequence[Mapping[str, int]]) -> list[str]:
    """Which lengths, roots of lengths or products of two would give these factors, or one over them."""
    lengths = {name: np.array([float(s[name]) for s in sizes]) for name in sizes[0]}
    lengths = {name: values for name, values in lengths.items() if values.min() > 1}
    pairs = {f"{a} times {b}": lengths[a] * lengths[b] for a, b in combinations(lengths, 2)}
    return [
        f"{words}the length of {name}"
        for name, values in (lengths | pairs).items()
        for words, power in (("", 1.0), ("the root of ", 0.5))
        if any(np.allclose(np.abs(ratios), values**p, rtol=1e-6) for p in (power, -power))
    ]


# Looks at the array as a whole


def form(cases: Sequence[Case]) -> Relation | None:
    """The right numbers on other axes, or a sum over axes that was not taken, or taken too often."""
    arrays, ndim = _arrays(cases), cases[0].right.ndim
    for order in list(permutations(range(ndim)))[1:]:
        if all(close(f, np.transpose(r, order), zero) for f, r, zero in arrays):
            return Relation("transposed", "" if ndim == 2 else f", its axes in the order {order}")
    if _same_shape(cases):
        return None
    if all(f.size == r.size and close(f.ravel(), r.ravel(), zero) for f, r, zero in arrays):
        return Relation("reshaped", f"{cases[0].found.shape}")
    for how, reduce in (("sum", np.sum), ("mean", np.mean)):
        for axes in _subsets(cases[0].found.ndim):
            if all(close(reduce(f, axis=axes), r, zero) for f, r, zero in arrays):
                return Relation(f"{how} missing", _axes(axes))
        for axes, keep in product(_subsets(ndim), (False, True)):
            if all(close(f, reduce(r, axis=axes, keepdims=keep), zero) for f, r, zero in arrays):
                return Relation(f"{how} too many", _axes(axes))
    return None


def _subsets(ndim: int) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(range(ndim), n) for n in range(1, ndim + 1))


def _axes(axes: Sequence[int]) -> str:
    return f"ax{'e' if len(axes) > 1 else 'i'}s {' and '.join(map(str, axes))}"


def nothing(cases: Sequence[Case]) -> Relation | None:
    """Zero everywhere, or something where zero is right everywhere."""
    if not _same_shape(cases):
        return None
    if all(c.found.size and not c.found.any() for c in cases):
        return Relation("zero")
    if any(size(c.right) > c.exact * max(c.scale, size(c.found)) for c in cases):
        return None
    taken = other(cases)
    return Relation("should be zero", f"; it is {taken.what}" if taken else "")


def unused(cases: Sequence[Case]) -> Relation | None:
    """The same whatever d_output is."""
    told = [c.found_table is not None and size(c.found) > 0 and not np.all(c.d_output == 1) for c in cases]
    return Relation("unused") if all(told) and all(np.all(c.found_table == c.found) for c in cases) else None


def linear(cases: Sequence[Case]) -> Relation | None:
    """A backward pass that is no table: it asks more of d_output than to be added up."""
    for c in cases:
        if c.found_table is None or c.d_output is None:
            return None
        added_up = np.tensordot(c.d_output, c.found_table, c.d_output.ndim)
        if close(c.found, added_up, 1e-9 * size(c.found)):
            return None
    return Relation("not linear")


def factor(cases: Sequence[Case]) -> Relation | None:
    """One factor, and the lengths that it may come from."""
    ratios = [ratio(f, r, zero) for f, r, zero in _arrays(cases)]
    if not _telling(ratios, [c.right for c in cases]) or close(np.array(ratios), np.ones(len(ratios)), 1e-6):
        return None
    if close(np.array(ratios), -np.ones(len(ratios)), 1e-6):
        return Relation("sign")
    names = origins(ratios, [c.sizes for c in cases])
    c = figure(ratios[0])
    length = figure(abs(1 / ratios[0])) if abs(ratios[0]) < 1 else c.removeprefix("-")
    return Relation("factor", c + (f" ({length} is {', and '.join(names[:2])})" if names else ""))


def _telling(ratios: Sequence[float], arrays: Sequence[Array]) -> bool:
    """Every array is a multiple of the other one; one or two numbers only count with a factor in figures."""
    many = all(np.count_nonzero(x) > 2 for x in arrays)
    return not any(map(math.isnan, ratios)) and (many or all("." not in figure(c) for c in ratios))


def other(cases: Sequence[Case]) -> Relation | None:
    """Another array that was there, as it is or times a factor."""
    for name in cases[0].others:
        zeros = [c.exact * size(c.found) for c in cases]
        ratios = [ratio(c.found, c.others[name], zero) for c, zero in zip(cases, zeros, strict=True)]
        if _telling(ratios, [c.found for c in cases]) and any(c.found.size > 1 for c in cases):
            return Relation("other", f"{figure(ratios[0])} times {name}".removeprefix("1 times "))
    return None


def moved(cases: Sequence[Case]) -> Relation | None:
    """The right slices of one axis in another order, or one of them in every place."""
    for axis in range(cases[0].right.ndim if _same_shape(cases) else 0):
        orders = [
            _order(np.moveaxis(f, axis, 0), np.moveaxis(r, axis, 0), zero) for f, r, zero in _arrays(cases)
        ]
        if all(len(order) > 1 and order != list(range(len(order))) for order in orders):
            return Relation("moved", f"axis {axis}: {', '.join(map(str, orders[0]))}")
    return None


def _order(found: Array, right: Array, zero: float) -> list[int]:
    """Which slice of the right array each one is; [] where one is none of them, or that says nothing."""
    if len(found) > MANY or size(right) <= zero:
        return []
    places = [next((i for i, b in enumerate(right) if close(a, b, zero)), -1) for a in found]
    exchanged = sorted(places) == list(range(len(places)))
    one = len({*places}) == 1 and right[:1].size > 1 and size(found) > zero
    return places if -1 not in places and (exchanged or one) else []


def added(cases: Sequence[Case]) -> Relation | None:
    """The right array and a multiple of another one; or a factor on all but that one."""
    arrays = _arrays(cases)
    for name in cases[0].others if _same_shape(cases) and min(c.found.size for c in cases) > 2 else ():
        K = [c.others[name] for c in cases]
        if any(k.shape != f.shape for k, (f, _, _) in zip(K, arrays, strict=True)):
            continue
        times = [ratio(f - r, k, zero) for k, (f, r, zero) in zip(K, arrays, strict=True)]
        if not any(map(math.isnan, times)):
            missing = close(np.array(times), -np.ones(len(times)), 1e-5)
            words = f"{figure(times[0])} times {name}".removeprefix("1 times ")
            return Relation("term missing", name) if missing else Relation("term added", words)
        beside = [ratio(f - k, r - k, zero) for k, (f, r, zero) in zip(K, arrays, strict=True)]
        if not any(math.isnan(c) or "." in figure(c) for c in beside):
            return Relation("factor beside", f"{figure(beside[0])} times what it should be, {name}")
    return None


# Looks at the table: what each entry of d_output sends to each entry of the gradient


def one_index(cases: Sequence[Case]) -> Relation | None:
    """Only some indices of one axis of d_output take part, and these rightly."""
    for axis in range(_axes_out(cases[0]) if _tables(cases) else 0):
        used = []
        for F, R, zero in _tables(cases):
            F, R = (np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1) for x in (F, R))
            alive, due = (np.abs(F) > zero).any(1), (np.abs(R) > zero).any(1)
            if alive.any() and (due & ~alive).any() and close(F[alive], R[alive], zero):
                used.append(", ".join(map(str, np.flatnonzero(alive))))
        if len(used) == len(cases):
            return Relation("one index", f"index {used[0]} of axis {axis}")
    return None


def _meeting(cases: Sequence[Case]) -> Iterator[tuple[int, int]]:
    """Axes of d_output and of the gradient that may be the same one: equal length, and place from an end."""
    for F, _, _ in _tables(cases[:1]):
        n, m = F.ndim - cases[0].found.ndim, cases[0].found.ndim
        for p, q in product(range(n), range(m)):
            if F.shape[p] == F.shape[n + q] > 1 and (p == q or n - p == m - q):
                yield p, n + q


def _crosses(x: Array, p: int, q: int, zero: float) -> bool:
    """Whether anything goes from one index of axis p to another one of axis q."""
    x = np.moveaxis(x, (p, q), (0, 1))
    return bool((np.abs(x[~np.eye(len(x), dtype=bool)]) > zero).any())


def reach(cases: Sequence[Case]) -> Relation | None:
    """A sum over one axis is missing, or taken where the forward pass has none."""
    tables, own, mixed = _tables(cases), [], []
    for p, q in _meeting(cases):
        crossing = {(_crosses(F, p, q, zero), _crosses(R, p, q, zero)) for F, R, zero in tables}
        own += [f"axis {p}"] * (crossing == {(False, True)})
        mixed += [f"axis {p}"] * (crossing == {(True, False)})
    if mixed:
        return Relation("mixes", mixed[0] + (f", and not those of {own[0]} as it should" if own else ""))
    return Relation("own only", own[0]) if own else None


def exchanged(cases: Sequence[Case]) -> Relation | None:
    """Two axes of the table exchanged: what should go from i to j goes from j to i."""
    n = _axes_out(cases[0])
    within = [(p, q) for p, q in combinations(range(n), 2)]
    swaps = [*((pair,) for pair in [*_meeting(cases), *within]), *combinations(_meeting(cases), 2)]
    for pairs in swaps:
        turned = []
        for F, R, zero in _tables(cases):
            for p, q in pairs:
                R = np.swapaxes(R, p, q)
            turned.append(close(F, R, zero))
        if turned and all(turned):
            kind = "axes exchanged" if pairs[0] in within else "ends exchanged"
            return Relation(kind, _axes([*pairs[0]] if pairs[0] in within else [p for p, _ in pairs]))
    return None


def untransposed(cases: Sequence[Case]) -> Relation | None:
    """A square array as it is where its transpose was due, or the other way round."""
    tables, n = _tables(cases), _axes_out(cases[0])
    R0 = tables[0].right if tables else np.zeros(())
    for name, W in cases[0].others.items() if tables else ():
        square = W.ndim == 2 and W.shape[0] == W.shape[1] > 1 and np.linalg.cond(W) < 1e4
        for axis, turned in product((n - 1, -1), (False, True)) if square else ():
            arrays = [c.others[name].T if turned else c.others[name] for c in cases]
            if R0.shape[axis : axis + 1 or None] == W.shape[:1] and all(
                close(F, np.moveaxis(np.moveaxis(R, axis, -1) @ np.linalg.solve(A, A.T), -1, axis), 10 * zero)
                for (F, R, zero), A in zip(tables, arrays, strict=True)
            ):
                return Relation("untransposed", name)
    return None


def pattern(cases: Sequence[Case]) -> Relation | None:
    """Zero where it should not be, or not where it should be; right where both are not zero."""
    extra = lost = total = 0
    for F, R, zero in _tables(cases):
        f, r = np.abs(F) > zero, np.abs(R) > zero
        if (f & r).sum() < 3 or not close(F[f & r], R[f & r], 2 * zero):
            return None
        extra, lost, total = extra + (f & ~r).sum(), lost + (r & ~f).sum(), total + R.size
    if not extra and not lost:
        return None
    kind = "another mask" if extra and lost else "not zero there" if extra else "zero there"
    return Relation(kind, f"{extra or lost} of {total}")


def by_part(cases: Sequence[Case]) -> Relation | None:
    """A factor that depends on some axes: another array that was multiplied in, or mixed up."""
    for F, R, zero in _tables(cases[:1]):
        kept = list(range(F.ndim))
        for axis in reversed(range(F.ndim)):
            fewer = [a for a in kept if a != axis]
            kept = fewer if close(F, _fitted(F, R, fewer) * R, zero) else kept
        q = _fitted(F, R, kept)
        if not 0 < len(kept) < F.ndim or not close(F, q * R, zero):
            return None
        q, weight = q.squeeze(), np.abs(R).max(axis=tuple(a for a in range(F.ndim) if a not in kept))
        return _named_part(cases[0], q, weight.squeeze(), zero) or (
            _unnamed_part(cases[0], q, kept) if (np.abs(R) > zero).sum() >= 2 * q.size > 2 else None
        )
    return None


def _fitted(F: Array, R: Array, kept: Sequence[int]) -> Array:
    """The best factor on R for each index of the axes that are kept."""
    axes = tuple(a for a in range(F.ndim) if a not in kept)
    over = (R * R).sum(axes, keepdims=True)
    return np.divide((F * R).sum(axes, keepdims=True), over, out=np.zeros_like(over), where=over > 0)


def _named_part(case: Case, q: Array, weight: Array, zero: float) -> Relation | None:
    """q is an array that was there, or one in place of another; weight is what q stands before."""
    there = {name: x.squeeze() for name, x in case.others.items()}
    there = {name: x for name, x in there.items() if x.shape == q.shape and q.size > 2}
    for name, x in there.items():
        if close(q * weight, x * weight, zero):
            return Relation("multiplied", name)
        if close(q * x * weight, weight, zero * size(x)):
            return Relation("divided", name)
    for (name, x), (due, y) in permutations(there.items(), 2):
        if close(q * y * weight, x * weight, zero * size(y)):
            return Relation("in place of", f"{name} where {due} is due")
    return None


def _unnamed_part(case: Case, q: Array, kept: Sequence[int]) -> Relation:
    n = _axes_out(case)
    axes = " and ".join(f"axis {a} of d_output" if a < n else f"its own axis {a - n}" for a in kept)
    used = q[q != 0]
    off = float(np.abs(used - 1).max(initial=0))
    if off < 0.01:
        return Relation("nearly by part", f"{off:.0e} for each index of {axes}")
    return Relation("factor by part", f"{used.min():.4g} to {used.max():.4g}, for each index of {axes}")


def slope(cases: Sequence[Case]) -> Relation | None:
    """Each entry of d_output goes to its own entry alone, times an array that is not the slope."""
    n = cases[0].found.size
    for F, R, zero in _tables(cases[:1]) if n > 2 else ():
        if F.shape != 2 * cases[0].found.shape:
            return None
        F, R = F.reshape(n, n), R.reshape(n, n)
        if _crosses(F, 0, 1, zero) or _crosses(R, 0, 1, zero):
            return None
        for name, x in cases[0].others.items():
            if x.size == n and close(np.diagonal(F), x.ravel(), zero):
                return Relation("slope", name)
    return None


def numbers(cases: Sequence[Case]) -> Relation | None:
    """Each way from d_output is there and none too many: the axes, sums and masks are right."""
    for F, R, zero in _tables(cases):
        if ((np.abs(F) > zero) != (np.abs(R) > zero)).any() or (np.abs(R) > zero).all():
            return None
    return Relation("numbers") if _tables(cases) else None


def stray(cases: Sequence[Case]) -> Relation | None:
    """Something where there is no influence at all."""
    for F, R, zero in _tables(cases[:1]):
        places = np.argwhere((np.abs(F) > zero) & (np.abs(R) <= 1e-3 * zero))
        n = _axes_out(cases[0])
        for place in places[:1].tolist():
            return Relation("stray", f"from d_output{place[:n]} to its entry {place[n:]}")
    return None


# Looks at what is left over


def leftover(cases: Sequence[Case]) -> Relation | None:
    """The rest is one number along an axis, or a multiple of another array along it: a term of a sum."""
    arrays = _arrays(cases) if _same_shape(cases) and min(c.found.size for c in cases) > 2 else []
    lines = {name: [c.others[name] for c in cases] for name in cases[0].others}
    for axis in range(cases[0].right.ndim if arrays else 0):
        for name, others in ({"": [np.ones_like(f) for f, _, _ in arrays]} | lines).items():
            if arrays[0].found.shape[axis] > 1 + bool(name) and all(
                _along(f - r, k, axis, zero) for (f, r, zero), k in zip(arrays, others, strict=True)
            ):
                kind = "multiple along" if name else "constant along"
                return Relation(kind, f"{name} along axis {axis}".removeprefix(" along "))
    return None


def _along(rest: Array, other: Array, axis: int, zero: float) -> bool:
    """Whether every line of rest along the axis is a multiple of the same line of other."""
    if rest.shape != other.shape:
        return False
    c = (rest * other).sum(axis, keepdims=True) / np.maximum((other * other).sum(axis, keepdims=True), 1e-300)
    return close(c * other, rest, zero) and size(rest) > zero


def adds_up(cases: Sequence[Case]) -> Relation | None:
    """Along an axis the right entries add up to 0, and these do not."""
    for axis in range(cases[0].right.ndim if _same_shape(cases) else 0):
        sums = [(size(f.sum(axis)), size(r.sum(axis)), 10 * zero) for f, r, zero in _arrays(cases)]
        if cases[0].right.shape[axis] > 1 and all(r <= zero < f / 100 for f, r, zero in sums):
            return Relation("adds up", f"axis {axis}")
    return None


def few(cases: Sequence[Case]) -> Relation | None:
    """Some entries are off, most agree."""
    for found, right, zero in _arrays(cases) if _same_shape(cases) else ():
        bad = np.abs(found - right) > zero
        offs = (found - right)[bad]
        if 0 < 3 * offs.size <= bad.size:
            first = np.argwhere(bad)[0].tolist()
            alike = f", all by {offs[0]:.4g}" if offs.size > 1 and np.ptp(offs) <= 10 * zero else ""
            return Relation("few", f"{offs.size} of {bad.size} entries, first {first}{alike}")
    return None


def near(cases: Sequence[Case]) -> Relation | None:
    """Right to some digits: an approximation, or a number written with too few."""
    off = [size(c.found - c.right) / max(size(c.right), c.scale, 1e-300) for c in cases if _same_shape(cases)]
    return Relation("near", f"{max(off):.0e}") if off and max(off) < 3e-3 else None


LOOKS: tuple[Callable[[Sequence[Case]], Relation | None], ...] = (
    form, nothing, unused, factor, other, moved, added, linear, one_index, exchanged, untransposed,
    reach, pattern, by_part, slope, leftover, few, near, stray, adds_up, numbers,
)  # fmt: skip

# What was seen of the gradient, with {} for the relation's `what`; then where that usually comes from.
WORDS = {
    "transposed": (
        "it is the right one, transposed{}",
        "the two factors of a product in the other order, or a .T too many",
    ),
    "reshaped": ("it has the right numbers in the shape {}", "a reshape, or an axis kept or lost on the way"),
    "sum missing": (
        "its sum over {} is the right one",
        "an array that the forward pass spread over an axis (broadcast) gets the sum over that axis back",
    ),
    "mean missing": ("its mean over {} is the right one", "an average over that axis in the forward pass"),
    "sum too many": ("it is the sum of the right one over {}", "a sum without axis=, or over too many axes"),
    "mean too many": ("it is the mean of the right one over {}", "a mean without axis=, or over too many"),
    "zero": ("it is 0 everywhere", "an array that is made and never filled, or a path that was forgotten"),
    "should be zero": (
        "the output does not depend on this argument, so it should be 0{}",
        "a gradient that was handed to the wrong argument",
    ),
    "not linear": (
        "it is not linear in d_output",
        "a mask or a comparison made from d_output, or an array that an update has changed already",
    ),
    "unused": ("it does not change with d_output", "d_output taken for 1"),
    "sign": ("it has the opposite sign everywhere", "a minus that is lost, or one too many"),
    "factor": (
        "it is the right one times {}",
        "a mean where a sum is due or a sum for a mean, or a scale that is forgotten or used twice",
    ),
    "other": ("it is {}; its own is another", "gradients in another order, or one name for another"),
    "moved": (
        "it has the right slices in other places: along {}",
        "heads, batch items or positions that are exchanged, shifted or taken from the first one",
    ),
    "term missing": ("with {} added it is right", "a second path, such as a residual, that is forgotten"),
    "term added": (
        "it is the right one with {} added",
        "a path counted once too often, or a wrong factor on one",
    ),
    "factor beside": ("it is {} set aside", "a scale on one of two paths that are added"),
    "one index": (
        "of d_output it takes only {}",
        "an index where a sum is due, or a loop that overwrites instead of adding",
    ),
    "ends exchanged": (
        "along {} it sends from i to j what should go from j to i",
        "a matrix that is to be transposed on the way back, or a factor on the wrong side of a sum",
    ),
    "axes exchanged": ("it takes {} of d_output for each other", "a sum over the wrong one of two axes"),
    "untransposed": ("with {} transposed it is right", "y = x W gives dx = dy Wᵀ"),
    "own only": (
        "along {} it gets only what stands at its own index, where all should count",
        "a sum or mean over that axis is missing (a diagonal is not the whole Jacobian), or a transpose",
    ),
    "mixes": (
        "it mixes the indices of {}: the forward pass keeps them apart",
        "a sum or norm over another axis",
    ),
    "zero there": (
        "it misses {} paths from d_output to it; the others are right",
        "a mask too many, or a[i] += b with an index that repeats, which adds only once",
    ),
    "not zero there": (
        "it has {} paths from d_output to it that should be cut; the others are right",
        "a mask, or the activation's slope of 0, that is missing on the way back",
    ),
    "another mask": (
        "{} paths from d_output to it should be cut and others should not; those in both are right",
        "a mask made from another array than in the forward pass",
    ),
    "multiplied": ("it is the right one, multiplied by {} entry by entry", "an array for its mask"),
    "divided": ("it is the right one, divided by {} entry by entry", "an array that is left out"),
    "in place of": ("it is made with {}", "one array of the cache taken for another"),
    "slope": ("it is d_output times {}, and the slope is another", "a term of the derivative is missing"),
    "factor by part": (
        "it is right up to a factor, {}",
        "a norm, sum or input that is not the forward pass's",
    ),
    "nearly by part": ("it is right up to factors near 1, off by {}", "another eps, or eps at another place"),
    "constant along": ("it is off by one number along {}", "its mean or sum is missing, or wrong"),
    "multiple along": ("it is off by a multiple of {}", "the term with it is missing, or wrong"),
    "few": ("it is off in {}; the others agree", "an index, an edge or a special case"),
    "near": (
        "it is off by only {} of its largest entry",
        "a constant with too few digits, another eps, or an approximation's derivative",
    ),
    "stray": ("{} something comes that should not", "a mask that is missing, or another one"),
    "numbers": (
        "each way from d_output to it is there, and none too many; the numbers on them are off",
        "the slope of another function, or one array for another; axes, sums and masks are right",
    ),
    "adds up": (
        "along {} the right one adds up to 0, and this one does not",
        "a term with a sum or a mean over that axis is missing, or taken over another axis",
    ),
}
