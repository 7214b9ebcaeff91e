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
from functools import cache
from itertools import chain, combinations, permutations, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npformer.gradcheck.differences import HALF, SLACK

Array = NDArray[Any]


class Case(NamedTuple):
    """An array that came back, the one it should be, and what else was there."""

    found: Array
    right: Array
    others: Mapping[str, Array] = {}  # what it may have been taken for: "the gradient of W_2", "cache.x_hat"
    sizes: Mapping[str, int] = {}  # lengths that a factor may come from: {"axis 0 of x": 3}
    exact: float = HALF  # two numbers are one when they differ by less than this share of the largest
    scale: float = 0.0  # a largest number that counts although this array has none as large
    d_output: Array | None = None
    found_table: Array | None = None  # d_output.shape + found.shape
    right_table: Array | None = None


class Relation(NamedTuple):
    """What was seen: a kind of relation, and which."""

    kind: str  # one of words.txt
    what: str = ""  # which factor, which axis, which other array


_Pair = tuple[Array, Array, float]  # two arrays, or two tables, and what counts as zero between them
Look = Callable[[Sequence[Case]], Relation | None]


def relation(cases: Sequence[Case], looks: Sequence[Look] = ()) -> Relation | None:
    """The first relation that holds in all cases, the most telling ones first; none for what is right."""
    with np.errstate(all="ignore"):
        right = all(close(c.found, c.right, c.exact * max(size(c.right), c.scale)) for c in cases)
        if right or not all(np.isfinite(c.found).all() for c in cases):
            return None
        return next((seen for look in looks or LOOKS if (seen := look(cases))), None)


# Equal to the last digits


def size(x: Array) -> float:
    """The largest magnitude of what is known."""
    return float(np.fmax.reduce(np.abs(x), axis=None, initial=0.0))  # of fmax NaN is no number


def close(a: Array, b: Array, zero: float) -> bool:
    """Whether no entry is further than `zero` from b, where b is known."""
    return a.shape == b.shape and bool((np.abs(a - b)[~np.isnan(b)] <= zero).all())


def _pair(found: Array, right: Array, exact: float, scale: float = 0.0) -> _Pair:
    """Found and right; what is not known counts as agreeing. Zero is far below what is wrong between them."""
    zero = exact * max(size(right), scale)
    if found.shape != right.shape:
        return found, right, zero
    known = ~np.isnan(right)
    found, right = np.where(known, found, 0.0), np.where(known, right, 0.0)
    off = size(found - right)
    return found, right, min(zero, off / SLACK**2) if off > zero else zero


def _pairs(cases: Sequence[Case], alike: bool = True) -> list[_Pair]:
    """The arrays of each case; nothing where they are to have one shape and have not."""
    if alike and any(c.found.shape != c.right.shape for c in cases):
        return []
    return [_pair(c.found, c.right, c.exact, c.scale) for c in cases]


def fitted(a: Array, b: Array, axes: tuple[int, ...] | None = None) -> Array:
    """The factors c, one for each index of the other axes, with which c b comes closest to a."""
    over = (b * b).sum(axes, keepdims=True)
    return np.asarray((a * b).sum(axes, keepdims=True) / np.where(over > 0, over, 1.0))


def ratio(a: Array, b: Array, zero: float) -> float:
    """The number c with a = c b, or NaN. One entry fits any c: see `_telling`."""
    c = float(fitted(a, b).item()) if a.shape == b.shape else math.nan
    return c if close(a, c * b, zero) and abs(c) * size(b) > zero else math.nan


def fraction(c: float, exact: float) -> str:
    """A factor as a fraction or the root of one, 2, -1/3, √5; "" where that would be an accident.

    Fewer than 2 n d exact fractions with denominators up to d are a share of `exact` from a number c: that
    c is one of them, n/d, is no accident where these are a hundredth.
    """
    for root, square in (("", abs(c)), ("√", c * c)):
        most = 1 / (2 * exact * SLACK**2)
        if 0 < square < math.inf:
            n, d = Fraction(square).limit_denominator(int(math.sqrt(most / square)) or 1).as_integer_ratio()
            if n and abs(n / d - square) <= exact * square and n * d <= most:
                number = f"{n}/{d}" if d > 1 else f"{n}"
                return "-" * (c < 0) + root + (f"({number})" if root and d > 1 else number)
    return ""


def figure(c: float, exact: float) -> str:
    """A factor as a fraction, or else in digits."""
    digits = f"{c:.7g}"
    return fraction(c, exact) or (digits if digits != "1" else f"1 + {c - 1:.1g}")


def origins(ratios: Sequence[float], sizes: Sequence[Mapping[str, int]], exact: float) -> list[str]:
    """Which lengths, roots of lengths or products of two would give these factors, or one over them."""
    lengths = {name: np.array([float(s[name]) for s in sizes]) for name in sizes[0]}
    lengths = {name: values for name, values in lengths.items() if values.min() > 1}
    pairs = {f"{a} times {b}": lengths[a] * lengths[b] for a, b in combinations(lengths, 2)}
    return [
        f"{words}the length of {name}"
        for name, values in (lengths | pairs).items()
        for words, power in (("", 1.0), ("the root of ", 0.5))
        if any(close(np.abs(ratios) / values**p, np.ones(len(ratios)), exact) for p in (power, -power))
    ]


# Looks at the array as a whole


def form(cases: Sequence[Case]) -> Relation | None:
    """The right numbers on other axes, or a sum over axes that was not taken, or taken too often."""
    arrays, ndim = _pairs(cases, alike=False), cases[0].right.ndim
    for order in list(permutations(range(ndim)))[1:]:
        if all(close(f, np.transpose(r, order), zero) for f, r, zero in arrays):
            return Relation("transposed", "" if ndim == 2 else f", its axes in the order {order}")
    if _pairs(cases):
        return None
    if all(f.size == r.size and close(f.ravel(), r.ravel(), zero) for f, r, zero in arrays):
        return Relation("reshaped", f"{cases[0].found.shape}")
    for how, missing in product(("sum", "mean"), (True, False)):
        ends = [(f, r, zero) if missing else (r, f, zero) for f, r, zero in arrays]
        for axes, keep in product(_subsets(range(ends[0][0].ndim)), (False, True)):
            if all(close(getattr(a, how)(axes, keepdims=keep), b, zero) for a, b, zero in ends):
                return Relation(f"{how} {'missing' if missing else 'too many'}", _axes(axes))
    return None


def _subsets(things: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    return chain.from_iterable(combinations(things, n) for n in range(1, len(things) + 1))


def _axes(axes: Sequence[int]) -> str:
    return f"ax{'e' if len(axes) > 1 else 'i'}s {' and '.join(map(str, axes))}"


def nothing(cases: Sequence[Case]) -> Relation | None:
    """Zero everywhere, or something where zero is right everywhere."""
    if not _pairs(cases):
        return None
    if all(c.found.size and not c.found.any() for c in cases):
        return Relation("zero")
    if any(size(c.right) > c.exact * c.scale for c in cases):
        return None
    taken = other(cases)
    return Relation("should be zero", f"; it is {taken.what}" if taken else "")


def factor(cases: Sequence[Case]) -> Relation | None:
    """One factor, and the lengths that it may come from."""
    pairs, exact = _pairs(cases), max(c.exact for c in cases)
    ratios = [ratio(f, r, zero) for f, r, zero in pairs]
    if not pairs or not _telling(ratios, [c.right for c in cases], exact):
        return None
    if {figure(c, exact) for c in ratios} == {"-1"}:
        return Relation("sign")
    names = origins(ratios, [c.sizes for c in cases], exact)
    c = figure(ratios[0], exact)
    length = figure(abs(1 / ratios[0]), exact) if abs(ratios[0]) < 1 else c.removeprefix("-")
    return Relation("factor", c + (f" ({length} is {', and '.join(names[:2])})" if names else ""))


def _telling(ratios: Sequence[float], arrays: Sequence[Array], exact: float) -> bool:
    """Every array is a multiple of the other one; one or two numbers only count with a factor in figures."""
    many = all(np.count_nonzero(x) > 2 for x in arrays)
    return not any(map(math.isnan, ratios)) and (many or all(fraction(c, exact) for c in ratios))


def other(cases: Sequence[Case]) -> Relation | None:
    """Another array that was there, as it is or times a factor; or d_output times it."""
    for way, name in product(("", "d_output times "), cases[0].others):
        if way and any(c.d_output is None or c.d_output.shape != c.others[name].shape for c in cases):
            continue
        there = [c.others[name] * c.d_output if way else c.others[name] for c in cases]
        ratios = [ratio(c.found, x, c.exact * size(c.found)) for c, x in zip(cases, there, strict=True)]
        if any(x.size > 1 for x in there) and _telling(ratios, [c.found for c in cases], cases[0].exact):
            return Relation("other", _times(ratios[0], way + name, cases[0].exact))
    return None


def _times(c: float, name: str, exact: float) -> str:
    return f"{figure(c, exact)} times {name}".removeprefix("1 times ")


def moved(cases: Sequence[Case]) -> Relation | None:
    """The right slices of one axis in another order, or one of them in every place."""
    for axis in range(cases[0].right.ndim if _pairs(cases) else 0):
        orders = [
            _order(np.moveaxis(f, axis, 0), np.moveaxis(r, axis, 0), zero) for f, r, zero in _pairs(cases)
        ]
        if all(len(order) > 1 and order != list(range(len(order))) for order in orders):
            return Relation("moved", f"axis {axis}: {', '.join(map(str, orders[0]))}")
    return None


def _order(found: Array, right: Array, zero: float) -> list[int]:
    """Which slice of the right array each one is; [] where one is none of them, or that says nothing."""
    weights = np.cos(np.arange(right[:1].size))  # sums that tell slices apart
    keys, names = (x.reshape(len(x), -1) @ weights for x in (right, found))
    order = np.argsort(keys)
    between = (keys[order][1:] + keys[order][:-1]) / 2
    places = order[np.searchsorted(between, names)].tolist()  # the nearest sum
    exchanged = sorted(places) == list(range(len(places)))
    one = len({*places}) == 1 and right[:1].size > 1 and size(found) > zero
    return places if (exchanged or one) and close(found, right[places], zero) else []


def added(cases: Sequence[Case]) -> Relation | None:
    """The right array and a multiple of another one."""
    for name, triples in _beside(cases):
        if all(close(f + k, r, zero) for f, r, k, zero in triples):
            return Relation("term missing", name)
        times = [ratio(f - r, k, zero) for f, r, k, zero in triples]
        if not any(map(math.isnan, times)):
            return Relation("term added", _times(times[0], name, cases[0].exact))
    return None


def _beside(cases: Sequence[Case]) -> Iterator[tuple[str, list[tuple[Array, Array, Array, float]]]]:
    """Each other array of the same shape: (found, right, other, zero) of every case."""
    pairs = _pairs(cases) if min(c.found.size for c in cases) > 2 else []
    for name in cases[0].others if pairs else ():
        triples = [(f, r, c.others[name], zero) for c, (f, r, zero) in zip(cases, pairs, strict=True)]
        if all(f.shape == k.shape for f, _, k, _ in triples):
            yield name, triples


def leftover(cases: Sequence[Case]) -> Relation | None:
    """The rest is one number along an axis, or a multiple of another array along it: a term of a sum."""
    ones = [c._replace(others={"": np.ones_like(c.found)} | dict(c.others)) for c in cases]
    for axis, (name, triples) in product(range(cases[0].right.ndim), _beside(ones)):
        long = triples[0][0].shape[axis] > 1 + bool(name)
        rests = [(f - r, fitted(f - r, k, (axis,)) * k, zero) for f, r, k, zero in triples]
        if long and all(close(made, rest, zero) and size(rest) > zero for rest, made, zero in rests):
            kind = "multiple along" if name else "constant along"
            return Relation(kind, f"{name} along axis {axis}".removeprefix(" along "))
    return None


def part(cases: Sequence[Case]) -> Relation | None:
    """Most of it agrees: most entries, or most of the digits."""
    pairs = _pairs(cases)
    for found, right, zero in pairs:
        bad = np.argwhere(np.abs(found - right) > zero)
        if 0 < 2 * len(bad) < found.size:
            return Relation("few", f"{len(bad)} of {found.size} entries, first {bad[0].tolist()}")
    offs = [(size(f - r), max(size(r), c.scale)) for c, (f, r, _) in zip(cases, pairs, strict=False)]
    if not offs or any(off * SLACK**3 >= largest for off, largest in offs):
        return None
    return Relation("near", f"{max(off / largest for off, largest in offs):.0e}")


# Looks at the table: what each entry of d_output sends to each entry of the gradient


class _Table(NamedTuple):
    """The two tables of one case."""

    F: Array  # as it came back
    R: Array  # as it should be
    zero: float
    out: int  # how many of its axes are d_output's
    others: Mapping[str, Array]

    def paths(self) -> tuple[Array, Array]:
        """Where anything gets through, in the one and in the other."""
        return np.abs(self.F) > self.zero, np.abs(self.R) > self.zero

    def meetings(self) -> list[tuple[int, int]]:
        """Axes of d_output and of the gradient that may be one: equal length, and place from an end."""
        n, m = self.out, self.F.ndim - self.out
        places = [(p, q) for p, q in product(range(n), range(m)) if p == q or n - p == m - q]
        return [(p, n + q) for p, q in places if self.F.shape[p] == self.F.shape[n + q] > 1]


def in_table(*looks: Callable[[_Table], Relation | None]) -> Look:
    """Looks at the tables of one case, where it has them."""

    def look(cases: Sequence[Case]) -> Relation | None:
        c = cases[0]
        F, R, dy = c.found_table, c.right_table, c.d_output
        if len(cases) > 1 or F is None or R is None or dy is None or c.found.shape != c.right.shape:
            return None
        t = _Table(*_pair(F, R, c.exact), dy.ndim, c.others)
        return next((seen for look in looks if (seen := look(t))), None)

    return look


def turned(t: _Table) -> Relation | None:
    """What should go from i to j goes from j to i, along some axes."""
    for pairs in _subsets(t.meetings()):
        R = t.R
        for p, q in pairs:
            R = np.swapaxes(R, p, q)
        if close(t.F, R, t.zero):
            return Relation("ends exchanged", _axes([p for p, _ in pairs]))
    return None


def untransposed(t: _Table) -> Relation | None:
    """A square array W as it is where its transpose was due, or the other way round: F = R W⁻ᵀ W."""
    finite = {name: W for name, W in t.others.items() if np.isfinite(W).all()}
    squares = {name: W for name, W in finite.items() if W.ndim == 2 and W.shape[0] == W.shape[1] > 1}
    for (name, W), axis, way in product(squares.items(), (t.out - 1, -1), (False, True)):
        A, zero = (W.T if way else W), t.zero * float(np.linalg.cond(W))  # what solve loses
        if t.R.shape[axis : axis + 1 or None] == A.shape[:1] and zero < size(t.F - t.R) / SLACK**2:
            due = np.moveaxis(np.moveaxis(t.R, axis, -1) @ np.linalg.solve(A, A.T), -1, axis)
            if close(t.F, due, zero):
                return Relation("untransposed", name)
    return None


def by_part(t: _Table) -> Relation | None:
    """Right up to a factor along some axes: an array left out, used twice or taken for another."""
    kept = list(range(t.F.ndim))
    for axis in reversed(range(t.F.ndim)):
        fewer = [a for a in kept if a != axis]
        kept = fewer if close(t.F, _factors(t, fewer) * t.R, t.zero) else kept
    q = _factors(t, kept)
    there = {"": np.ones(q.shape)}
    there |= {n: x.reshape(q.shape) for n, x in t.others.items() if x.squeeze().shape == q.squeeze().shape}
    ends = permutations(there.items() if q.size > 2 else (), 2)
    for (name, x), (due, y) in sorted(ends, key=lambda two: all(name for name, _ in two)):
        if close(t.F * y, t.R * x, t.zero * size(y)):
            one = f"times {name}" if name else f"divided by {due}"
            return Relation("multiplied", f"with {name} in place of {due}" if name and due else one)
    return None


def _factors(t: _Table, kept: Sequence[int]) -> Array:
    """The best factor on what is right for each index of the axes that are kept."""
    return fitted(t.F, t.R, tuple(a for a in range(t.F.ndim) if a not in kept))


def crossed(t: _Table) -> Relation | None:
    """An axis along which entries are mixed, or kept apart, and should not be."""

    def crosses(paths: Array, p: int, q: int) -> bool:
        ends = np.moveaxis(paths, (p, q), (0, 1))  # from one index of axis p to another one of axis q
        return bool(ends[~np.eye(len(ends), dtype=np.bool_)].any())

    f, r = t.paths()
    ways = [(f"axis {p}", crosses(f, p, q), crosses(r, p, q)) for p, q in t.meetings()]
    own = [axis for axis, found, due in ways if due and not found]
    for axis in (axis for axis, found, due in ways if found and not due):
        return Relation("mixes", axis + (f", and not those of {own[0]} as it should" if own else ""))
    return Relation("own only", own[0]) if own else None


def cut(t: _Table) -> Relation | None:
    """Ways from d_output that are cut, or not cut where they should be; the others are right."""
    f, r = t.paths()
    extra, lost = f & ~r, r & ~f
    if (f == r).all() or not (f & r).any() or not close(t.F[f & r], t.R[f & r], t.zero):
        return None
    for axis in range(0 if extra.any() else t.out):
        alive = f.any(tuple(a for a in range(f.ndim) if a != axis), keepdims=True)
        if (lost == (r & ~alive)).all():
            used = ", ".join(map(str, np.flatnonzero(alive)))
            return Relation("one index", f"index {used} of axis {axis}")
    if not extra.any():
        return Relation("zero there", f"{lost.sum()} of {f.size}")
    return Relation("another mask" if lost.any() else "not zero there", f"{extra.sum()} of {f.size}")


def numbers(t: _Table) -> Relation | None:
    """Something where there is no influence at all; or the right ways, and wrong numbers on them."""
    f, r = t.paths()
    for place in np.argwhere(f & (t.R == 0))[:1].tolist():
        return Relation("stray", f"from d_output{place[: t.out]} to its entry {place[t.out :]}")
    return Relation("numbers") if (f == r).all() and not r.all() else None


LOOKS: tuple[Look, ...] = (
    form, nothing, factor, other, moved, added, leftover,
    in_table(turned, untransposed, crossed, cut), part, in_table(by_part, numbers),
)  # fmt: skip


@cache
def words() -> dict[str, str]:
    """What is said of a gradient for each kind of relation, with {} for its `what`: words.txt."""
    from pathlib import Path  # not everybody has a wrong gradient

    lines = Path(__file__).with_name("words.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split(" | ") for line in lines if " | " in line]
    return {kind: f"{seen}; {cause}" for kind, seen, cause in rows}
