"""Gradients beside slopes: a search tells a slope, its doubt and why it is not known; one rule decides."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from npformer.arrays import to_host
from npformer.gradcheck.finite_differences import HALF, HIDDEN, NO_VALUE, SLACK, STAIR, Floats, Line, Slope
from npformer.gradcheck.function_calls import Calls, Leaf, arrays_in
from npformer.gradcheck.notes import describe_relation
from npformer.gradcheck.relations import (
    DETECTORS,
    Case,
    Relation,
    added,
    find_relation,
    form,
    nothing,
    ratio,
    size,
)
from npformer.gradcheck.report import VERDICTS, GradientReport, GradientRow, make_note, show
from npformer.validation.annotations import Rng
from npformer.validation.checks import check_callable, check_integer, check_number
from npformer.validation.signature import check_value

SMALL = 1e-3  # of the largest of all leaves: what smaller ones are measured against (the contract)
TABLE = 2**20  # numbers in a table of slopes, d_output by leaf, that are kept and asked for: 8 MB
WHOLE = ("zero", "should_be_zero", "sign", "factor")  # the kinds that random directions can show
NOT_LINEAR = "d_output taken for 1, a mask made from it, or an array that an update has changed already"


def assert_gradients(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    *args: Any,
    rng: Rng | None = None,
    tolerance: float = 1e-8,
    directions: int | None = None,
    **kwargs: Any,
) -> None:
    """gradcheck for a test: AssertionError with the whole table, failing rows first, unless every row passes.

    >>> square = lambda x: (x * x, x)
    >>> assert_gradients(square, lambda dy, x: dy * 2 * x, np.array([1.0, -3.0]))
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    report = gradcheck(
        forward, backward, *args, rng=rng, tolerance=tolerance, directions=directions, **kwargs
    )
    if not report:
        raise AssertionError(str(report))


@np.errstate(all="ignore")
def gradcheck(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    *args: Any,
    rng: Rng | None = None,
    tolerance: float = 1e-8,
    directions: int | None = None,
    **kwargs: Any,
) -> GradientReport:
    """Compare backward(d_output, cache), entry by entry, with differences of forward(*args, **kwargs).

    With φ(x) = Σ d_output · forward(x) for one random d_output, dφ/dx is what the backward pass returns.
    How dφ/dx is found from φ alone, and how far it may be off, stands in differences.py.

    Every floating array among args is differentiated, in tuples, lists and dicts too; other args (ids,
    masks, settings) are passed on. The backward pass returns one gradient for each, in order, as a
    tuple; a single one may come alone. Arrays of torch, JAX, CuPy and others that speak DLPack or __array__
    come back to the functions in their own kind. A numpy.random.Generator is copied for every evaluation, so
    dropout sees one mask throughout. `rng` draws d_output and the steps (default_rng(0) unless given); a
    forward with an `rng` of its own is handed a copy of it.

    float32: backward runs in float32, and the forward that differences are taken of in float64. What rounding
    may do to a gradient is ten times what sets it apart from the same backward's in float64.

    The report has one row for each array, with its worst entry, and is true when every row passes. An
    error is relative to the leaf's largest gradient, or to 1e-3 of the largest of all leaves if that is
    more, so that a gradient of zero can pass. "kink": the slope jumps there, as that of max(0, z) does at 0,
    and the gradient lies between the two. "unsure": differences cannot tell, and the note says why. The note
    of a failing row says what the gradient looks like beside the right one.

    With directions=k an array of more than k entries is looked at along k random directions only, one
    number each: for large arrays. The report says how likely a single wrong entry slips through.

    Then both functions are called again. What fails: a gradient that is not linear in d_output; a backward
    that writes into d_output or its cache, or answers otherwise with the same ones; a call that overwrites
    what an earlier one returned; a forward that writes into its arguments. A fault of no single array has a
    row of its own, named forward or backward.

    Raises TypeError for floating arrays other than float32 and float64, given by keyword or inside an object
    of another kind, and for a forward that returns no pair (output, cache); ValueError for values that are
    not finite and for a forward that is not repeatable. A gradient of the wrong shape, kind or dtype is no
    exception but a row that fails.

    >>> square = lambda x: (x * x, x)
    >>> print(gradcheck(square, lambda dy, x: dy * x, np.array([1.0, -3.0, 2.0])).rows[0].note)
    it is the right one times 1/2; a mean where a sum is due ...
    >>> bool(gradcheck(square, lambda dy, x: dy * 2 * x, np.array([1.0, -3.0])))
    True
    """
    check_callable("gradcheck", "forward", forward)
    check_callable("gradcheck", "backward", backward)
    check_number("gradcheck", "tolerance", tolerance, above=0)
    check_value("gradcheck", "rng", rng, Rng | None)
    if directions is not None:
        check_integer("gradcheck", "directions", directions, minimum=1)
    calls = Calls(forward, backward, args, kwargs, rng)
    judged = [Judged(calls, leaf, tolerance, directions) for leaf in calls.leaves.values()]
    for _ in range(2):  # what is found changes what errors are measured against
        _set_sizes(judged)
        for one in judged:
            one.refine()
    _call_again(calls, judged)
    descriptions = _describe(calls, judged) if any(one.fails() for one in judged) else {}
    rows = [one.row(descriptions.get(one.leaf.where, ())) for one in judged]
    faults = [_refusal(fault.path, [fault.text]) for fault in calls.faults]
    return GradientReport((*rows, *faults), tolerance, _sampled(judged))


def _call_again(calls: Calls, judged: "list[Judged]") -> None:
    """Compare with backward's answers to the first d_output and cache once more, then to a multiple of it.

    A gradient is linear in d_output. The multiple makes the largest about 1/√ε, so that what clips or
    saturates shows, wherever it begins.
    """
    calls.spoilt()
    for factor in (1.0, -1 / (HALF * (max(one.size for one in judged) or 1.0))):
        if (again := calls.again(factor)) is not None:
            for one in judged:
                one.compare_again(again, factor)


class Judged:
    """One leaf: slopes along every entry, or along a few random directions, beside those of its gradient."""

    def __init__(self, calls: Calls, leaf: Leaf, tolerance: float, directions: int | None):
        self.calls, self.leaf, self.tolerance = calls, leaf, tolerance
        x = self.x = np.zeros(0) if leaf.x is None else np.array(to_host(leaf.x), dtype=float)
        self.sampled = directions is not None and x.size > directions
        self.scale = _root_mean_square(x)
        drawn = range(directions or 0) if self.sampled else ()
        self.directions = [calls.draws.standard_normal(x.shape) for _ in drawn]
        g = self.gradient = np.full(x.shape, math.nan) if leaf.note else leaf.gradient
        self.analytic = [float((g * u).sum()) for u in self.directions] if drawn else g.ravel().tolist()
        self.rounding = calls.rounding.get(leaf.where, 0.0)
        self.size = self.limit = 0.0  # what errors are measured against, and the error that may be
        self.faults: list[str] = []  # parts of the note: faults of the same backward, called again
        self.keeps = x.size * calls.output.size <= TABLE
        self.slopes = [self.kept(self.line(i).window(self.scale or 1.0)) for i in range(len(self.analytic))]

    def line(self, i: int) -> Line:
        """φ along the i-th entry or direction."""
        u = self.directions[i] if self.sampled else np.zeros(self.x.shape)
        u.flat[i] = u.flat[i] if self.sampled else 1.0

        def at(t: float) -> tuple[float, Floats]:
            x = self.x + t * u
            # rounded in each entry: as long as it is along the gradient
            made = t + float((self.gradient * (x - self.x - t * u)).sum()) / (self.analytic[i] or math.inf)
            return made if made and math.isfinite(made) else t, self.calls.near(self.leaf.where, x)

        calls = self.calls
        return Line(at, calls.output, calls.d_output.astype(float), calls.eps, calls.draws)

    def own_scale(self, i: int) -> float:
        """The scale of one entry: its own, its leaf's, or, of a leaf of zeros, 1, or less where the gradient
        says that the output changes by its size over less. A direction moves all entries, past many kinks: a
        quarter of the digits down to the smallest step.
        """
        change = float(abs(self.calls.d_output * self.calls.output).sum())
        leafs = self.scale or min(1.0, change / (abs(self.analytic[i]) or math.inf)) or 1.0
        return leafs * HALF**0.25 if self.sampled else abs(float(self.x.flat[i])) or leafs

    def kept(self, slope: Slope) -> Slope:
        return slope if self.keeps else slope._replace(terms=np.zeros(0))

    def off(self, i: int) -> float:
        off = abs(self.analytic[i] - self.slopes[i].value)
        return off if math.isfinite(off) else math.inf

    def verdict(self, i: int) -> tuple[str, str]:
        """pass where the two agree and the doubt is small, fail where they differ by more than the doubt of a
        slope that is known, or lie outside of a kink; and what an entry hangs on that is neither.

        An entry that is within the limit because others are larger is held to a share of itself as well.
        """
        a, slope, off, limit = self.analytic[i], self.slopes[i], self.off(i), self.limit
        own = max(self.rounding, self.tolerance / SMALL * max(abs(a), abs(slope.value)))
        nothing = a == self.size == 0 and slope.is_rounding
        small, most = slope.doubt <= SLACK * limit, SLACK * (slope.doubt + slope.hidden)
        if slope.why == STAIR and (abs(a) <= limit or off <= most):
            return "unsure", STAIR  # 0 may be meant, or the slope from afar
        if (small or nothing) and off <= min(limit + slope.doubt, max(own, SLACK * slope.doubt)):
            return "pass", ""
        # where others are far larger, what their roundings leave in it is no fault of its own
        least = min(limit, max(own, SLACK**2 * self.calls.eps * self.size))
        beyond = slope.is_known and off > max(least, most)
        if beyond or not math.isfinite(a):
            return "fail", ""
        if off <= limit and small:
            return "unsure", "it differs, but is too small beside the largest"
        if a < slope.low or a > slope.high:
            return "fail", slope.why
        why = slope.why + self.calls.raised * (slope.why == NO_VALUE)
        return "kink" if slope.low < slope.high else "unsure", why or HIDDEN

    def is_settled(self, i: int) -> bool:
        """Whether a verdict stands, and the slope is known as well as it must be."""
        verdict, _ = self.verdict(i)
        return verdict == "pass" or (verdict == "fail" and self.slopes[i].doubt <= SLACK * self.limit)

    def refine(self) -> None:
        """Search where one window was not enough, and once more for the worst entry of those that fail."""
        confirmed = False
        for i in sorted(range(len(self.slopes)), key=self.off, reverse=True):
            if not self.is_settled(i) or (not confirmed and self.verdict(i)[0] == "fail"):
                self.search(i)
                confirmed = confirmed or self.verdict(i)[0] == "fail"
        self.told = [self.verdict(i) for i in range(len(self.slopes))]

    def search(self, i: int) -> None:
        def known(slope: Slope) -> bool:
            self.slopes[i] = slope
            return self.is_settled(i)

        found = self.line(i).search(self.slopes[i], self.scale or 1.0, self.own_scale(i), known)
        self.slopes[i] = self.kept(found)

    def fails(self) -> bool:
        return bool(self.leaf.note or self.faults or any(verdict == "fail" for verdict, _ in self.told))

    def row(self, description: Sequence[str]) -> GradientRow:
        """Make the row of the worst entry; its note begins with the description of the gradient."""
        parts = [*description, *self.reasons(), *self.faults]
        if self.leaf.note:
            return _refusal(self.leaf.path, [self.leaf.note, *parts])
        note = make_note(parts)
        if not self.told:
            return GradientRow(self.leaf.path, (), 0.0, 0.0, 0.0, "fail" if self.faults else "pass", note)
        worst = [*VERDICTS].index
        i = min(range(len(self.told)), key=lambda i: (worst(self.told[i][0]), -self.off(i)))
        verdict, off, index = self.told[i][0], self.off(i), () if self.sampled else self.index(i)
        error = off / self.size if self.size else math.inf if off else 0.0
        seen = self.analytic[i], self.slopes[i].value, error
        return GradientRow(self.leaf.path, index, *seen, "fail" if self.faults else verdict, note)

    def index(self, i: int) -> tuple[int, ...]:
        return tuple(map(int, np.unravel_index(i, self.x.shape)))

    def reasons(self) -> list[str]:
        """How many entries are not as they should be, and what keeps the first of them from being judged."""
        if self.leaf.note:
            return []
        n, bad = len(self.told), sum(not math.isfinite(a) for a in self.analytic)
        reasons = [f"{bad} of {n} not finite"] * (bad > 0)
        for verdict, where in (("kink", "at a kink"), ("unsure", "cannot be judged")):
            here = [i for i, (v, _) in enumerate(self.told) if v == verdict]
            for i in here[:1]:
                first = "" if self.sampled else f", first {show(self.index(i))}"
                reasons.append(f"{len(here)} of {n} {where}{first}: {self.told[i][1]}")
        return reasons

    def compare_again(self, others: dict[Any, Leaf], factor: float) -> None:
        """Note what is wrong when the same backward gives another gradient for that multiple of d_output."""
        first, other = self.gradient, others.get(self.leaf.where)
        if self.leaf.note:
            return
        if other is None or other.note:
            self.faults.append("has another form when called again")
            return
        off = abs(other.gradient / np.float64(factor) - first)
        alike = (off <= max(self.limit, self.tolerance * size(first))) | ~np.isfinite(first)
        if alike.all():
            return
        place = self.index(int(np.argmax(np.where(alike, -1.0, off))))
        see = f", see {show(place)}" if place else ""
        times = ratio(other.gradient, first, HALF * size(other.gradient))
        gives = "the same gradient" if abs(times - 1) <= HALF else f"{times:.3g} times this"
        gives = "no multiple of this" if math.isnan(times) else gives
        if factor == 1:
            self.faults.append(f"another gradient when called again with the same d_output and cache{see}")
            return
        observation = f"it is not linear in d_output: {factor:.3g} times d_output gives {gives}{see}"
        self.faults += [observation, NOT_LINEAR]

    def sure(self, slope: Slope) -> bool:
        return (slope.doubt <= SLACK * self.limit or self.size == 0) and slope.why != STAIR

    def right(self) -> Floats:
        """The slopes in the form of the leaf; NaN where they are not known."""
        known = [slope.value if self.sure(slope) else math.nan for slope in self.slopes]
        return np.reshape(known, (-1,) if self.sampled else self.x.shape)

    def table(self) -> Floats:
        """What each entry of d_output alone sends to each entry of the leaf."""
        dy = self.calls.d_output
        rows = [slope.terms / dy if self.sure(slope) else dy * math.nan for slope in self.slopes]
        return np.moveaxis(np.reshape(rows, (-1, *dy.shape)), 0, -1).reshape(dy.shape + self.x.shape)


def _root_mean_square(x: Floats) -> float:
    """Of numbers whose squares may overflow."""
    top = size(x) or 1.0
    return top * math.sqrt(float(((x / top) ** 2).sum()) / max(x.size, 1))


def _set_sizes(judged: list[Judged]) -> None:
    """What errors are measured against: the leaf's largest slope, or SMALL of the largest of all leaves.

    Slopes in much doubt do not count. Along random directions it is the mean slope: the gradient's length.
    """
    for one in judged:
        values = np.array([s.value for s in one.slopes if SLACK * s.doubt < abs(s.value)])
        one.size = _root_mean_square(values) if one.sampled else size(values)
    whole = max((one.size for one in judged), default=0.0)
    for one in judged:
        one.size = max(one.size, SMALL * whole)
        one.limit = max(one.tolerance * one.size, one.rounding)


def _refusal(path: str, parts: Sequence[str]) -> GradientRow:
    """Make a failing row without numbers."""
    return GradientRow(path, (), math.nan, math.nan, math.inf, "fail", make_note(parts))


# What a wrong gradient looks like


def _describe(calls: Calls, judged: list[Judged]) -> dict[Any, tuple[str, ...]]:
    """Describe how each gradient that fails is related to the correct one, in parts of its note."""
    # where the output is one number, multiples of d_output are told as such of 1
    unit = calls.d_output.item() if not calls.d_output.ndim else 1.0
    there = {f"the gradient of {one.leaf.path}": one.right() / unit for one in judged if not one.sampled}
    there |= {"d_output": calls.d_output, "the output": calls.output}
    for path, x in arrays_in({**calls.wide, "cache": calls.cache_before}, "fi"):
        there[path] = np.asarray(to_host(x), float)
    lengths: dict[int, str] = {}  # one name for each
    for path, x in [("the output", calls.output), *((one.leaf.path, one.x) for one in judged)]:
        for i, n in enumerate(x.shape):
            lengths.setdefault(n, f"axis {i} of {path}")
    sizes, tables = {name: n for n, name in lengths.items()}, _tables(calls, judged)
    wrong = {one.leaf.where: one for one in judged if one.fails()}
    descriptions = {}
    for where, one in wrong.items():
        relation = _find_relation(one, there, sizes, tables.get(where), unit)
        if relation is not None:
            descriptions[where] = describe_relation(relation)
    return descriptions


def _find_relation(
    one: Judged, there: dict[str, Floats], sizes: dict[str, int], table: Any, unit: float
) -> Relation | None:
    """Find how the gradient is related to the correct one, as far as the differences can show it."""
    if one.leaf.gradient is None or (one.sampled and (one.leaf.note or len(one.slopes) == 1)):
        return None
    found = np.array(one.analytic) if one.sampled else one.leaf.gradient
    own = f"the gradient of {one.leaf.path}"
    others = {name: x for name, x in there.items() if name != own and not one.sampled}
    doubts = [slope.doubt for slope in one.slopes if one.sure(slope)]
    exact = max(one.tolerance, max([*doubts, one.rounding]) / (one.size or math.inf))
    case = Case(found / unit, one.right() / unit, others, sizes, exact, one.size / abs(unit))
    if table is not None and not one.faults:
        case = case._replace(d_output=one.calls.d_output, found_table=table, right_table=one.table())
    relation = find_relation([case], (form, nothing, added) if one.faults else DETECTORS)
    if relation is not None and one.sampled and relation.kind not in WHOLE:
        return None
    return relation


def _tables(calls: Calls, judged: list[Judged]) -> dict[Any, Floats]:
    """What backward sends from each entry of d_output alone to each leaf; none where that is much to ask."""
    n, shape, found = calls.d_output.size, calls.d_output.shape, {}
    if n * sum(one.x.size for one in judged) > TABLE or any(one.sampled for one in judged):
        return {}
    with suppress(Exception):  # a backward pass that takes no such d_output has no table
        units = np.eye(n, dtype=calls.d_output.dtype).reshape(-1, *shape)
        answers = [calls.answers(calls.args, unit) for unit in units]
        for where, leaf in calls.leaves.items():
            column = np.stack([answer[where].gradient for answer in answers])
            found[where] = column.reshape(shape + np.shape(leaf.gradient))
    return found


def _sampled(judged: list[Judged]) -> str:
    """What was looked at, and what may have slipped through; empty where every entry was."""
    sampled = [one for one in judged if one.sampled and size(one.gradient) > 0]
    if not sampled:
        return ""
    k = len(sampled[0].directions)
    # An entry that is off by E moves a direction by u E, u normal: it passes where |u| E ≤ limit + doubt.
    # Where E is SLACK of these that is |u| ≤ 1/SLACK, and the normal density at 0 is √(2/π)/2.
    off = [(one.limit + max(s.doubt for s in one.slopes)) / size(one.gradient) for one in sampled]
    chance = (math.sqrt(2 / math.pi) / SLACK) ** k
    return (
        f"{k} random directions for each array of more entries: one wrong entry, off by "
        f"{SLACK * max(off):.0e} of its leaf's largest, slips through with a chance of {chance:.0e}"
    )
