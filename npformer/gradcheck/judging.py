"""Calls a forward and a backward, sets their gradients beside differences, and says what is wrong."""

import copy
import functools
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from npformer.arrays import copied, in_kind_of, kind_of_number, to_host
from npformer.door.annotations import Rng
from npformer.door.signature import check_value
from npformer.door.validate import check_callable, check_integer, check_number
from npformer.gradcheck.differences import HALF, HIDDEN, NO_VALUE, SLACK, STAIR, Floats, Line, Slope
from npformer.gradcheck.relations import LOOKS, WORDS, Case, added, form, nothing, relation
from npformer.gradcheck.report import VERDICTS, GradientReport, GradientRow, show
from npformer.tree import branch_name, branches, end_replaced, ends, ends_mapped

SMALL = 1e-3  # of the largest of all leaves: what smaller ones are measured against (the contract)
TABLE = 2**20  # numbers in a table of slopes, d_output by leaf, that are kept and asked for: 8 MB
AGAIN = 3  # float32 calls a rounding away: of two the scatter may be small by accident
WHOLE = ("zero", "should be zero", "sign", "factor")  # what directions can tell of an array
NOT_LINEAR = "d_output taken for 1, a mask made from it, or an array that an update has changed already"
POWERS = {0: "the same, so d_output is not in it", 2: "this times the square, so d_output is in it twice"}


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
    may do to a gradient is ten times what it scatters by when everything that goes in is moved by a rounding.

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
    _check_settings(forward, backward, rng, tolerance, directions)
    problem = Problem(forward, backward, args, kwargs, tolerance, rng)
    judged = [Judged(problem, leaf, directions) for leaf in problem.leaves.values()]
    for _ in range(2):  # what is found changes what errors are measured against
        _set_sizes(judged)
        for one in judged:
            one.refine()
    for factor, again in problem.calls_again(max(one.size for one in judged)):
        for one in judged:
            one.compare_again(again, factor)
    names = _names(problem, judged) if any(one.fails() for one in judged) else {}
    rows = [one.row(names.get(one.leaf.where, "")) for one in judged]
    faults = [_refusal(fault.split()[0], fault) for fault in problem.faults]
    return GradientReport((*rows, *faults), tolerance, _sampled(judged, directions))


def _check_settings(forward: Any, backward: Any, rng: Any, tolerance: float, directions: int | None) -> None:
    check_callable("gradcheck", "forward", forward)
    check_callable("gradcheck", "backward", backward)
    check_number("gradcheck", "tolerance", tolerance, above=0)
    check_value("gradcheck", "rng", rng, Rng | None)
    if directions is not None:
        check_integer("gradcheck", "directions", directions, minimum=1)


# What is to be compared: the arguments' leaves, side by side with the gradients


class Leaf(NamedTuple):
    """A floating array among the arguments with its gradient, or a branch whose gradient has another form."""

    path: str
    where: tuple[Any, ...] = ()  # the way down to it, from all arguments
    x: Any = None
    gradient: Any = None  # on the host, as float64
    note: str = ""  # why the two cannot be compared


def _by_name(forward: Callable[..., Any], args: tuple[Any, ...]) -> tuple[dict[str, Any], list[str]]:
    """The arguments by their names, and the names of the parameters that are left."""
    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):  # some functions written in C have no signature
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind == p.VAR_POSITIONAL), "args")
    more = [f"{rest}[{i}]" for i in range(len(args) - len(names))]
    left = names[len(args) :] + [p.name for p in parameters if p.kind == p.KEYWORD_ONLY]
    return dict(zip(names + more, args, strict=False)), left


def _ends(tree: Any, kinds: str) -> Iterator[tuple[str, Any]]:
    """The arrays of these kinds of number, with their paths."""
    return ((path[1:], x) for path, x in ends("", tree) if kind_of_number(x) in kinds)


def _check_arguments(args: dict[str, Any], kwargs: dict[str, Any]) -> None:
    """Refuse by name what would be left out in silence."""
    for path, _ in _ends(kwargs, "fc"):
        raise TypeError(
            f"gradcheck: {path} is a floating array given by keyword, where no gradient is compared; "
            f"pass it by position, or hold it fixed: functools.partial(forward, {path.split('.')[0]}=...)"
        )
    for path, x in _ends(args, "-iub"):
        hidden = {} if isinstance(x, type | ModuleType) else getattr(x, "__dict__", {})
        for name in (name for name, value in hidden.items() if any(_ends(value, "fc"))):
            raise TypeError(
                f"gradcheck: {path}.{name} is a floating array inside a {type(x).__name__}, where no "
                "gradient is compared; expected arrays, or tuples, lists and dicts of them"
            )
    for path, x in _ends(args, "fc"):
        if str(x.dtype).split(".")[-1] not in ("float64", "float32"):
            raise TypeError(f"gradcheck: {path} has dtype {x.dtype}; expected float64 or float32")
        if isinstance(x, np.ma.MaskedArray | np.matrix):
            raise TypeError(f"gradcheck: {path} is a {type(x).__name__}; expected a plain array")
        if not np.isfinite(to_host(x)).all():
            raise ValueError(f"gradcheck: {path} has entries that are not finite; there is no slope there")
    if not any(_ends(args, "fc")):
        raise TypeError("gradcheck: no argument is a floating array or a tree of them: nothing to compare")


def _paired(args: dict[str, Any], gradients: Any) -> Iterator[Leaf]:
    """Each leaf of the arguments with its gradient."""
    names = [name for name, arg in args.items() if any(_ends(arg, "f"))]
    if not _is_plain(gradients) or (len(names) == 1 and not _is_wrapped(gradients, args[names[0]])):
        gradients = (gradients,)
    if len(gradients) == len(names):
        yield from _walk("", (), args, dict.fromkeys(args) | dict(zip(names, gradients, strict=True)))
    else:
        yield Leaf(", ".join(names), note=f"number of gradients is {len(gradients)}, expected {len(names)}")


def _is_plain(value: Any) -> bool:
    """A tuple or a list without names for its fields."""
    return isinstance(value, tuple | list) and not hasattr(value, "_fields")


def _is_wrapped(gradients: Any, arg: Any) -> bool:
    """Is this (gradient,) rather than the gradient itself, which may be a tuple when the argument is one?"""
    return len(gradients) == 1 and (
        not _is_plain(arg) or (_is_plain(gradients[0]) and len(gradients[0]) == len(arg))
    )


def _walk(path: str, where: tuple[Any, ...], x: Any, gradient: Any) -> Iterator[Leaf]:
    parts, kind, expected = branches(x), _kind(gradient), _kind(x)
    if parts is None:
        if kind_of_number(x) == "f":
            yield _compared(path, where, x, gradient)
        elif x is None and gradient is not None:
            yield Leaf(path, where, note=f"is {kind}, expected None as the parameter is")
    elif kind == expected:
        for (key, part), answer in zip(parts.items(), (branches(gradient) or {}).values(), strict=True):
            name = f"{path}.{branch_name(x, key)}".removeprefix(".")
            yield from _walk(name, (*where, key), part, answer)
    elif any(_ends(x, "f")):
        yield Leaf(path, where, note=f"is {kind}, expected {expected}")


def _compared(path: str, where: tuple[Any, ...], x: Any, gradient: Any) -> Leaf:
    if kind_of_number(gradient) == "-" and not isinstance(gradient, np.generic):
        form = f"an array of shape {tuple(x.shape)}"
        return Leaf(path, where, x, note=f"is {_kind(gradient)}, expected {form}")
    g, due = to_host(gradient), to_host(x)
    if g.dtype != due.dtype:
        return Leaf(path, where, x, note=f"has dtype {g.dtype}, expected {due.dtype}")
    note = f"has shape {g.shape}, expected {due.shape}" if g.shape != due.shape else ""
    return Leaf(path, where, x, np.array(g, dtype=float), note)


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return f"dict of {', '.join(map(str, value))}"
    of = f" of {len(value)}" if isinstance(value, tuple | list) else ""
    return "None" if value is None else type(value).__name__ + of


# The calls: forward and backward once, then again to see what the first calls left behind


class Problem:
    """Forward and backward at these arguments, what their first calls returned, and forward near by."""

    def __init__(self, forward: Any, backward: Any, args: Any, kwargs: Any, tolerance: float, rng: Any):
        self.forward, self.backward, self.tolerance = forward, backward, tolerance
        self.args, left = _by_name(forward, args)
        its_own = rng is not None and "rng" in left
        self.kwargs = {**kwargs, "rng": copy.deepcopy(rng)} if its_own else kwargs
        rng = rng or np.random.default_rng(0)
        self.faults: list[str] = []
        self.raised = ""  # by forward near by
        _check_arguments(self.args, kwargs)
        given = _fresh(self.args)
        self.returned, self.cache = self.call(given)
        self.first = np.array(_floats(self.returned))
        self.faults += _changes("forward writes into its arguments", self.args, given)
        self.d_output = np.asarray(rng.standard_normal(self.first.shape)).astype(self.first.dtype)
        self.draws = np.random.default_rng(rng.integers(2**32))
        self.cache_before, dy = _fresh(self.cache), in_kind_of(self.returned, self.d_output.copy())
        self.answer = backward(dy, self.cache)
        self.gradients = _fresh(self.answer)  # now: it may be a view of what is written later
        self.faults += _changes("backward writes into d_output", self.d_output, dy)
        self.faults += _changes("backward writes into its cache", self.cache_before, self.cache)
        self.leaves = self.paired(self.gradients)
        self.widen()
        self.rounding = self.scatter() if self.first.dtype != float else {}

    def widen(self) -> None:
        """The output that differences start from, in float64 where forward can; it must come again."""
        self.wide = _floats_mapped(lambda x: x.astype(float), self.args)
        output, again = self.first, _floats(self.call(_fresh(self.wide))[0])
        if output.dtype != np.float64:
            output = _floats(self.call(_fresh(self.wide))[0])
        self.output, self.eps = output.astype(float), float(np.finfo(output.dtype).eps)
        if not np.isfinite(self.output).all():
            raise ValueError(
                "gradcheck: forward's output has entries that are not finite; it has no slope there"
            )
        if _largest(again - self.output) > HALF * _largest(self.output):
            raise ValueError(
                "gradcheck: forward gives another output when it is called again; "
                "pass its numpy.random.Generator among the arguments"
            )

    def call(self, args: dict[str, Any]) -> tuple[Any, Any]:
        """(output, cache) of a forward pass."""
        result = self.forward(*args.values(), **_fresh(self.kwargs))
        if not isinstance(result, tuple) or not _is_plain(result) or len(result) != 2:
            raise TypeError(f"gradcheck: forward returned {_kind(result)}; expected a pair (output, cache)")
        return result

    def paired(self, gradients: Any) -> dict[Any, Leaf]:
        return {leaf.where: leaf for leaf in _paired(self.args, gradients)}

    def answers(self, args: dict[str, Any], d_output: Floats) -> dict[Any, Leaf]:
        """The gradients of a forward and a backward pass of their own."""
        return self.back(d_output, self.call(_fresh(args))[1])

    def back(self, d_output: Floats, cache: Any) -> dict[Any, Leaf]:
        dy = in_kind_of(self.returned, np.array(d_output, self.first.dtype))
        return self.paired(_fresh(self.backward(dy, cache)))

    def near(self, where: tuple[Any, ...], x: Floats) -> Floats:
        """The output with another array at that place; NaN where forward has none."""
        nothing = np.full(self.output.shape, math.nan)
        try:
            args = ends_mapped(_fresh if self.faults else _drawn_alike, self.wide)
            output = _floats(self.call(end_replaced(args, where, lambda old: in_kind_of(old, x)))[0])
        except Exception as error:  # whatever it raises: it has no value there
            self.raised = f": forward raises {type(error).__name__}: {error}"
            return nothing
        return output if output.shape == nothing.shape else nothing

    def scatter(self) -> dict[Any, float]:
        """How far float32 may have moved each gradient: SLACK times what answers differ by when all that goes
        in is moved by a rounding, as what goes on is by every operation."""
        found = dict.fromkeys(self.leaves, 0.0)

        def nudged(x: Floats) -> Floats:
            by = np.finfo(np.float32).eps * self.draws.uniform(-1, 1, x.shape)
            return np.asarray(x * (1 + by)).astype(x.dtype)

        for _ in range(AGAIN):
            again = self.answers(_floats_mapped(nudged, self.args), nudged(self.d_output))
            for where, leaf in self.leaves.items():
                g = again[where].gradient if where in again else None
                if g is not None and np.shape(leaf.gradient) == g.shape:  # of another shape than x, maybe
                    found[where] = max(found[where], SLACK * _largest(g - leaf.gradient))
        return found

    def calls_again(self, size: float) -> Iterator[tuple[float, dict[Any, Leaf]]]:
        """Backward's gradients for the first d_output and cache once more, then for a multiple of d_output.

        A gradient is linear in d_output. The multiple makes the largest about 1/√ε, so that what clips or
        saturates shows, wherever it begins. Forward has run with other arguments since the first calls.
        """
        words = "forward returns a buffer that its next call overwrites"
        self.faults += _changes(words, self.first, self.returned)
        if not self.faults:
            words = "forward's next call writes into the cache of the last one"
            self.faults += _changes(words, self.cache_before, self.cache)
        for factor in (1.0, -1 / (HALF * (size or 1.0))):
            cache = self.cache if factor == 1 else self.call(_fresh(self.args))[1]
            try:
                again = self.back(factor * self.d_output, cache)
            except Exception as error:
                self.faults.append(f"backward raises {type(error).__name__} when it is called again: {error}")
                continue
            if any(_changes("it", self.gradients, self.answer)):
                self.faults.append("backward returns a buffer that its next call overwrites")
                return
            yield factor, again


def _floats(output: Any) -> Floats:
    """Forward's output on the host, float64 or float32."""
    known = kind_of_number(output) != "-" or isinstance(output, float | np.floating)
    array = to_host(output) if known else None
    if array is None or array.dtype not in (np.float64, np.float32):
        received = _kind(output) if array is None else array.dtype
        raise TypeError(f"gradcheck: forward's output is {received}; expected an array of float64 or float32")
    return array


def _fresh(tree: Any) -> Any:
    """A copy that forward may write into and draw from; settings and the like stay themselves."""
    return ends_mapped(lambda x: _drawn_alike(x) if kind_of_number(x) == "-" else copied(x), tree)


def _drawn_alike(x: Any) -> Any:
    return copy.deepcopy(x) if isinstance(x, np.random.Generator) else x


def _floats_mapped(f: Callable[[Floats], Floats], tree: Any) -> Any:
    """f of every floating array, on the host, in the array's own kind."""
    return ends_mapped(lambda x: in_kind_of(x, f(to_host(x))) if kind_of_number(x) == "f" else x, tree)


def _changes(words: str, before: Any, after: Any) -> Iterator[str]:
    """Where two trees of arrays differ by a bit, in words."""
    then, now = (dict(ends("", tree)) for tree in (before, after))
    for path in then | now:
        pair = [then.get(path), now.get(path)]
        if any(kind_of_number(x) != "-" for x in pair) and _bits(pair[0]) != _bits(pair[1]):
            yield f"{words} ({path[1:]})" if path else words


def _bits(x: Any) -> Any:
    host = to_host(x)
    return host.dtype, host.shape, host.tobytes()


def _largest(x: Floats) -> float:
    return float(abs(x).max(initial=0.0))


def _root_mean_square(x: Floats) -> float:
    """Of numbers whose squares may overflow."""
    top = _largest(x) or 1.0
    return top * math.sqrt(float(((x / top) ** 2).sum()) / max(x.size, 1))


# Verdicts


class Judged:
    """One leaf: slopes along every entry, or along a few random directions, beside those of its gradient."""

    def __init__(self, problem: Problem, leaf: Leaf, directions: int | None):
        self.problem, self.leaf = problem, leaf
        x = self.x = np.zeros(0) if leaf.x is None else np.array(to_host(leaf.x), dtype=float)
        self.sampled = directions is not None and x.size > directions
        self.scale = _root_mean_square(x) or 1.0
        drawn = range(directions or 0) if self.sampled else ()
        self.directions = [problem.draws.standard_normal(x.shape) for _ in drawn]
        g = self.gradient = np.full(x.shape, math.nan) if leaf.note else leaf.gradient
        self.analytic = [float((g * u).sum()) for u in self.directions] if drawn else g.ravel().tolist()
        self.rounding = problem.rounding.get(leaf.where, 0.0)
        self.size = self.limit = 0.0  # what errors are measured against, and the error that may be
        self.faults: list[str] = []  # of the same backward, called again
        self.keeps = x.size * problem.output.size <= TABLE
        self.slopes = [self.kept(self.line(i).window(self.scale)) for i in range(len(self.analytic))]

    def line(self, i: int) -> Line:
        """φ along the i-th entry or direction."""
        u = self.directions[i] if self.sampled else np.zeros(self.x.shape)
        u.flat[i] = u.flat[i] if self.sampled else 1.0

        def at(t: float) -> tuple[float, Floats]:
            x = self.x + t * u
            # rounded in each entry: as long as it is along the gradient
            made = t + float((self.gradient * (x - self.x - t * u)).sum()) / (self.analytic[i] or math.inf)
            return made if made and math.isfinite(made) else t, self.problem.near(self.leaf.where, x)

        problem = self.problem
        return Line(at, problem.output, problem.d_output.astype(float), problem.eps, problem.draws)

    def own_scale(self, i: int) -> float:
        """The scale of one entry. A direction moves all entries, past many kinks: a quarter of the digits
        down to the smallest step.
        """
        return self.scale * HALF**0.25 if self.sampled else abs(float(self.x.flat[i])) or self.scale

    def kept(self, slope: Slope) -> Slope:
        return slope if self.keeps else slope._replace(terms=np.zeros(0))

    def off(self, i: int) -> float:
        off = abs(self.analytic[i] - self.slopes[i].value)
        return off if math.isfinite(off) else math.inf

    def decided(self, i: int, slope: Slope) -> str:
        """pass where the two agree and the doubt is small, fail where they differ by more than the doubt.

        An entry that is within the limit because others are larger is held to a share of itself as well.
        """
        a, doubt, limit = self.analytic[i], slope.doubt, self.limit
        off, small = abs(a - slope.value), doubt <= SLACK * limit
        own = max(self.rounding, self.problem.tolerance / SMALL * max(abs(a), abs(slope.value)))
        nothing = a == self.size == 0 and doubt <= SLACK * slope.noise
        if (small or nothing) and off <= min(limit + doubt, max(own, SLACK * doubt)):
            return "pass"
        least = min(limit, max(own, SLACK**2 * self.problem.eps * self.size))
        return "fail" if not math.isfinite(a) or off > max(least, SLACK * (doubt + slope.hidden)) else ""

    def known(self, i: int, slope: Slope) -> bool:
        """Whether a verdict stands, and the slope is known as well as it must be."""
        verdict = self.decided(i, slope)
        return verdict == "pass" or (verdict == "fail" and slope.doubt <= SLACK * self.limit)

    def refine(self) -> None:
        """Search where one window was not enough, and once more for the worst entry of those that fail."""
        for i, slope in enumerate(self.slopes):
            if not self.known(i, slope):
                self.search(i)
        self.told = [self.verdict(i) for i in range(len(self.slopes))]
        for i in sorted(range(len(self.slopes)), key=self.off, reverse=True):
            if self.told[i][0] == "fail":
                self.search(i)
                self.told[i] = self.verdict(i)
                if self.told[i][0] == "fail":
                    return

    def search(self, i: int) -> None:
        known = functools.partial(self.known, i)
        found = self.line(i).search(self.slopes[i], self.scale, self.own_scale(i), known)
        self.slopes[i] = self.kept(found)

    def fails(self) -> bool:
        return bool(self.leaf.note or self.faults or any(verdict == "fail" for verdict, _ in self.told))

    def row(self, name: str) -> GradientRow:
        """The worst entry, and what is to be said."""
        note = "; ".join(filter(None, (self.leaf.note, name, *self.reasons(), *self.faults)))
        if self.leaf.note:
            return _refusal(self.leaf.path, note)
        if not self.told:
            return GradientRow(self.leaf.path, (), 0.0, 0.0, 0.0, "fail" if self.faults else "pass", note)
        verdict = next(word for word in VERDICTS if any(word == v for v, _ in self.told))
        i = max((i for i, (v, _) in enumerate(self.told) if v == verdict), key=self.off)
        off, index = self.off(i), () if self.sampled else self.index(i)
        error = off / self.size if self.size else math.inf if off else 0.0
        seen = self.analytic[i], self.slopes[i].value, error
        return GradientRow(self.leaf.path, index, *seen, "fail" if self.faults else verdict, note)

    def index(self, i: int) -> tuple[int, ...]:
        return tuple(map(int, np.unravel_index(i, self.x.shape)))

    def verdict(self, i: int) -> tuple[str, str]:
        """The verdict on one entry, and what it hangs on."""
        a, off, slope = self.analytic[i], self.off(i), self.slopes[i]
        verdict = self.decided(i, slope)
        if slope.why == STAIR and (verdict != "fail" or abs(a) <= self.limit):
            return "unsure", STAIR
        if verdict:
            return verdict, ""
        if off <= self.limit and slope.doubt <= SLACK * self.limit:
            return "unsure", "it differs, but is too small beside the largest"
        if off > max(self.limit, SLACK * slope.doubt):
            return "unsure", HIDDEN  # by outputs that never changed
        if a < slope.low or a > slope.high:
            return "fail", slope.why
        why = slope.why + self.problem.raised * (slope.why == NO_VALUE)
        return "kink" if slope.low < slope.high else "unsure", why

    def reasons(self) -> list[str]:
        """How many entries are not as they should be, and what keeps the first of them from being judged."""
        n, bad = len(self.told), sum(not math.isfinite(a) for a in self.analytic)
        reasons = [f"{bad} of {n} not finite"] * (bad > 0)
        for verdict, words in (("kink", "at a kink"), ("unsure", "cannot be judged")):
            here = [i for i, (v, _) in enumerate(self.told) if v == verdict]
            for i in here[:1]:
                first = "" if self.sampled else f", first {show(self.index(i))}"
                reasons.append(f"{len(here)} of {n} {words}{first}: {self.told[i][1]}")
        return [] if self.leaf.note else reasons

    def compare_again(self, others: dict[Any, Leaf], factor: float) -> None:
        """Note what is wrong when the same backward gives another gradient for that multiple of d_output."""
        first, other = self.gradient, others.get(self.leaf.where)
        if self.leaf.note:
            return
        if other is None or other.note:
            self.faults.append("has another form when called again")
            return
        most = max(self.limit, self.problem.tolerance * _largest(first))
        off = {power: abs(other.gradient / np.float64(factor) ** power - first) for power in (1, *POWERS)}
        alike = {power: (each <= most) | ~np.isfinite(first) for power, each in off.items()}
        if alike[1].all():
            return
        see = f"see {show(self.index(int(np.argmax(np.where(alike[1], -1.0, off[1])))))}"
        gives = next((words for p, words in POWERS.items() if alike[p].all()), "another multiple of this")
        said = f"it is not linear in d_output: {factor:.3g} times d_output gives {gives}, {see}; {NOT_LINEAR}"
        if factor == 1:
            said = f"another gradient when called again with the same d_output and cache, {see}"
        self.faults.append(said)

    def sure(self, slope: Slope) -> bool:
        return (slope.doubt <= SLACK * self.limit or self.size == 0) and slope.why != STAIR

    def right(self) -> Floats:
        """The slopes in the form of the leaf; NaN where they are not known."""
        known = [slope.value if self.sure(slope) else math.nan for slope in self.slopes]
        return np.reshape(known, (-1,) if self.sampled else self.x.shape)

    def table(self) -> Floats:
        """What each entry of d_output alone sends to each entry of the leaf."""
        dy = self.problem.d_output
        rows = [slope.terms / dy if self.sure(slope) else dy * math.nan for slope in self.slopes]
        return np.moveaxis(np.reshape(rows, (-1, *dy.shape)), 0, -1).reshape(dy.shape + self.x.shape)


def _set_sizes(judged: list[Judged]) -> None:
    """What errors are measured against: the leaf's largest slope, or SMALL of the largest of all leaves.

    Slopes in much doubt do not count. Along random directions it is the mean slope: the gradient's length.
    """
    for one in judged:
        values = np.array([s.value for s in one.slopes if SLACK * s.doubt < abs(s.value)])
        one.size = _root_mean_square(values) if one.sampled else _largest(values)
    whole = max((one.size for one in judged), default=0.0)
    for one in judged:
        one.size = max(one.size, SMALL * whole)
        one.limit = max(one.problem.tolerance * one.size, one.rounding)


def _refusal(path: str, note: str) -> GradientRow:
    return GradientRow(path, (), math.nan, math.nan, math.inf, "fail", note)


# What a wrong gradient looks like


def _names(problem: Problem, judged: list[Judged]) -> dict[Any, str]:
    """What each gradient that fails has to do with the right one, where that has a name."""
    # where the output is one number, multiples of d_output are told as such of 1
    unit = problem.d_output.item() if not problem.d_output.ndim else 1.0
    there = {f"the gradient of {one.leaf.path}": one.right() / unit for one in judged if not one.sampled}
    there |= {"d_output": problem.d_output, "the output": problem.output}
    for path, x in _ends({**problem.wide, "cache": problem.cache_before}, "fi"):
        there[path] = np.asarray(to_host(x), float)
    lengths: dict[int, str] = {}  # one name for each
    for path, x in [("the output", problem.output), *((one.leaf.path, one.x) for one in judged)]:
        for i, n in enumerate(x.shape):
            lengths.setdefault(n, f"axis {i} of {path}")
    sizes, tables = {name: n for n, name in lengths.items()}, _tables(problem, judged)
    return {
        one.leaf.where: _name(one, there, sizes, tables.get(one.leaf.where), unit)
        for one in judged
        if one.fails()
    }


def _name(one: Judged, there: dict[str, Floats], sizes: dict[str, int], table: Any, unit: float) -> str:
    """What the gradient looks like beside the right one, and where that usually comes from."""
    if one.leaf.gradient is None or (one.sampled and (one.leaf.note or len(one.slopes) == 1)):
        return ""
    found = np.array(one.analytic) if one.sampled else one.leaf.gradient
    others = (
        {} if one.sampled else {n: x for n, x in there.items() if n != f"the gradient of {one.leaf.path}"}
    )
    doubts = [slope.doubt for slope in one.slopes if one.sure(slope)]
    exact = max(one.problem.tolerance, max([*doubts, one.rounding]) / (one.size or math.inf))
    case = Case(found / unit, one.right() / unit, others, sizes, exact, one.size / abs(unit))
    if table is not None and not one.faults:
        case = case._replace(d_output=one.problem.d_output, found_table=table, right_table=one.table())
    seen = relation([case], (form, nothing, added) if one.faults else LOOKS)
    return WORDS[seen.kind].format(seen.what) if seen and (not one.sampled or seen.kind in WHOLE) else ""


def _tables(problem: Problem, judged: list[Judged]) -> dict[Any, Floats]:
    """What backward sends from each entry of d_output alone to each leaf; none where that is much to ask."""
    n, shape, found = problem.d_output.size, problem.d_output.shape, {}
    if n * sum(one.x.size for one in judged) > TABLE or any(one.sampled for one in judged):
        return {}
    with suppress(Exception):  # a backward pass that takes no such d_output has no table
        answers = [problem.answers(problem.args, unit.reshape(shape)) for unit in np.eye(n)]
        for where, leaf in problem.leaves.items():
            column = np.stack([answer[where].gradient for answer in answers])
            found[where] = column.reshape(shape + np.shape(leaf.gradient))
    return found


def _sampled(judged: list[Judged], directions: int | None) -> str:
    """What was looked at, and what may have slipped through; empty where every entry was."""
    sampled = [one for one in judged if one.sampled and _largest(one.gradient) > 0]
    if not sampled:
        return ""
    # An entry that is off by E moves a direction by u E, u normal: it passes where |u| E ≤ limit + doubt.
    # Where E is SLACK of these that is |u| ≤ 1/SLACK, and the normal density at 0 is √(2/π)/2.
    off = [(one.limit + max(s.doubt for s in one.slopes)) / _largest(one.gradient) for one in sampled]
    chance = (math.sqrt(2 / math.pi) / SLACK) ** (directions or 0)
    return (
        f"{directions} random directions for each array of more entries: one wrong entry, off by "
        f"{SLACK * max(off):.0e} of its leaf's largest, slips through with a chance of {chance:.0e}"
    )
