"""Calls a forward and a backward, sets their gradients beside differences, and says what is wrong."""

import copy
import functools
import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from npformer.annotations import Rng
from npformer.arrays import array_module, in_kind_of, is_foreign, to_host
from npformer.gradcheck.differences import LEAST, SLACK, Floats, Line, Slope, apart
from npformer.gradcheck.relations import WORDS, Case, relation
from npformer.gradcheck.report import VERDICTS, GradientReport, GradientRow, show
from npformer.signature import check_value
from npformer.tree import branch_name, branches, rebuilt
from npformer.validate import check_callable, check_integer, check_number

SMALL = (
    1e-3  # of the largest gradient of all leaves: what a leaf with less is measured against (the contract)
)
TABLE = 2**20  # entries of a table of slopes that is kept, d_output by leaf: 8 MB
STAIR = "it stands still close by and moves from afar: a stair"
AGAIN = 3  # float32 calls with arguments a rounding away: the least whose scatter is not one accident


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
    settings: dict[str, Any] = {"rng": rng, "tolerance": tolerance, "directions": directions}
    report = gradcheck(forward, backward, *args, **settings, **kwargs)
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
    forward with an `rng` of its own is handed a copy of it. float32 arrays: the backward pass runs in float32,
    the differences' forward in float64, and the rounding is what answers scatter by when arguments move by one.

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
    it is the right one times 1/2; a mean where a sum is due or a sum for a mean, or a scale that is forgotten or used twice
    >>> bool(gradcheck(square, lambda dy, x: dy * 2 * x, np.array([1.0, -3.0])))
    True
    """
    check_callable("gradcheck", "forward", forward)
    check_callable("gradcheck", "backward", backward)
    check_number("gradcheck", "tolerance", tolerance, above=0)
    check_value("gradcheck", "rng", rng, Rng | None)
    if directions is not None:
        check_integer("gradcheck", "directions", directions, minimum=1)
    names = _argument_names(forward, len(args))
    if rng is not None and "rng" in names[len(args) :]:
        kwargs = {**kwargs, "rng": copy.deepcopy(rng)}
    places = _places(names, args, kwargs)
    problem = Problem(forward, backward, args, kwargs, rng or np.random.default_rng(0), tolerance)

    leaves = list(_pair(args, places, names, problem.gradients))
    problem.rounding = _rounding(problem, leaves, places, names)
    judged = [Judged(problem, leaf, directions) for leaf in leaves if leaf.x is not None]
    _set_sizes(judged, tolerance)
    for one in judged:
        one.refine()
    _set_sizes(judged, tolerance)
    rows = {leaf.where: _refuse(leaf.path, leaf.note) for leaf in leaves}
    rows |= {one.leaf.where: one.row() for one in judged}
    faults = problem.left_behind()
    for factor, gradients in problem.calls_again(max((one.size for one in judged), default=0.0), faults):
        others = {leaf.where: leaf for leaf in _pair(args, places, names, gradients)}
        for one in judged:
            note = one.disagreement(others.get(one.leaf.where), factor)
            if note:
                row = rows[one.leaf.where]
                rows[one.leaf.where] = row._replace(verdict="fail", note=_joined(row.note, note))
    failing = {one.leaf.where for one in judged if rows[one.leaf.where].verdict == "fail"}
    for where, note in _named(problem, judged, failing, places, names).items():
        rows[where] = rows[where]._replace(note=_joined(note, rows[where].note))
    told = (*rows.values(), *(_refuse(fault.split()[0], fault) for fault in faults))
    return GradientReport(told, tolerance, _sampled(judged, directions))


# What is to be compared: the arguments' leaves, side by side with the gradients


class Leaf(NamedTuple):
    """A floating array among the arguments, or a branch whose gradient has another form, with its gradient."""

    path: str
    where: tuple[Any, ...]  # the argument's place, then the way down its tree
    x: Any  # None for a branch that cannot be compared
    gradient: Any
    note: str  # why the two cannot be compared, or ""


def _argument_names(forward: Callable[..., Any], n: int) -> list[str]:
    """The names of the first n positional arguments, then of the parameters that are left."""
    import inspect  # a fifth of the package's own import time

    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):  # some functions written in C have no signature
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind == p.VAR_POSITIONAL), "args")
    names += [f"{rest}[{place - len(names)}]" for place in range(len(names), n)]
    return names + [p.name for p in parameters if p.kind == p.KEYWORD_ONLY]


def _places(names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
    """Which arguments are differentiated; what would be left out in silence is refused by name."""
    for name, value in kwargs.items():
        for path, x in _ends(name, value):
            if _kind_of_number(x) in "fc":
                raise TypeError(
                    f"gradcheck: {path} is a floating array given by keyword, where no gradient is compared; "
                    f"pass it by position, or hold it fixed: functools.partial(forward, {name}=...)"
                )
    arrays = [[_checked_leaf(path, x) for path, x in _ends(names[i], arg)] for i, arg in enumerate(args)]
    places = [i for i, found in enumerate(arrays) if any(found)]
    if not places:
        raise TypeError("gradcheck: no argument is a floating array or a tree of them: nothing to compare")
    return places


def _ends(path: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """The ends of tuples, lists and dicts with their paths."""
    parts = branches(tree)
    if parts is None:
        yield path, tree
        return
    for key, branch in parts.items():
        yield from _ends(f"{path}.{branch_name(tree, key)}", branch)


def _kind_of_number(x: Any) -> str:
    """f, c, i and so on, as NumPy has it; - for what is no array."""
    if not is_foreign(x):
        return x.dtype.kind if isinstance(x, array_module(x).ndarray) else "-"
    name = str(x.dtype)  # torch.float64, bfloat16
    return "f" if "float" in name else "c" if "complex" in name else "i"


def _checked_leaf(path: str, x: Any) -> bool:
    """Is this an array to be differentiated? One that cannot be, but should, is refused."""
    kind = _kind_of_number(x)
    if kind == "-":
        inside = {} if isinstance(x, type | ModuleType) else getattr(x, "__dict__", {})
        for name, value in inside.items():
            if any(_kind_of_number(end) in "fc" for _, end in _ends(name, value)):
                raise TypeError(
                    f"gradcheck: {path}.{name} is a floating array inside a {type(x).__name__}, where no "
                    "gradient is compared; expected arrays, or tuples, lists and dicts of them"
                )
    if kind not in "fc":
        return False
    if str(x.dtype).split(".")[-1] not in ("float64", "float32"):
        raise TypeError(f"gradcheck: {path} has dtype {x.dtype}; expected float64 or float32")
    if isinstance(x, np.ma.MaskedArray | np.matrix):
        raise TypeError(f"gradcheck: {path} is a {type(x).__name__}; expected a plain array")
    if not np.isfinite(to_host(x)).all():
        raise ValueError(f"gradcheck: {path} has entries that are not finite; there is no slope there")
    return True


def _pair(args: tuple[Any, ...], places: list[int], names: list[str], gradients: Any) -> Iterator[Leaf]:
    """Each leaf of the arguments with its gradient."""
    if not _is_plain(gradients) or (len(places) == 1 and not _is_wrapped(gradients, args[places[0]])):
        gradients = (gradients,)
    if len(gradients) != len(places):
        path = ", ".join(names[place] for place in places)
        yield Leaf(path, (), None, None, f"number of gradients is {len(gradients)}, expected {len(places)}")
        return
    for place, gradient in zip(places, gradients, strict=True):
        yield from _walk(names[place], (place,), args[place], gradient)


def _is_plain(value: Any) -> bool:
    """A tuple or a list without names for its fields."""
    return isinstance(value, tuple | list) and not hasattr(value, "_fields")


def _is_wrapped(gradients: Any, arg: Any) -> bool:
    """Is this (gradient,) rather than the gradient itself, which may be a tuple when the argument is one?"""
    return len(gradients) == 1 and (
        not _is_plain(arg) or (_is_plain(gradients[0]) and len(gradients[0]) == len(arg))
    )


def _walk(path: str, where: tuple[Any, ...], x: Any, gradient: Any) -> Iterator[Leaf]:
    parts, floating = branches(x), _kind_of_number(x) == "f"
    if parts is not None:
        answers = branches(gradient)
        if type(gradient) is type(x) and answers is not None and answers.keys() == parts.keys():
            for key, branch in parts.items():
                yield from _walk(f"{path}.{branch_name(x, key)}", (*where, key), branch, answers[key])
        elif any(_kind_of_number(end) == "f" for _, end in _ends(path, x)):
            yield Leaf(path, where, None, None, f"is {_kind(gradient)}, expected {_kind(x)}")
    elif x is None and gradient is not None:
        yield Leaf(path, where, None, None, f"is {_kind(gradient)}, expected None as the parameter is")
    elif floating and (_kind_of_number(gradient) != "-" or isinstance(gradient, np.generic)):
        g, dtype = to_host(gradient), to_host(x).dtype
        note = f"has shape {g.shape}, expected {x.shape}" if g.shape != tuple(x.shape) else ""
        note = note or (f"has dtype {g.dtype}, expected {dtype}" if g.dtype != dtype else "")
        yield Leaf(path, where, x, np.array(g, dtype=float), note)
    elif floating:
        yield Leaf(path, where, x, None, f"is {_kind(gradient)}, expected an array of shape {tuple(x.shape)}")


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return f"dict of {', '.join(map(str, value))}"
    of = f" of {len(value)}" if isinstance(value, tuple | list) else ""
    return "None" if value is None else type(value).__name__ + of


# The calls: forward and backward once, then again to see what the first calls left behind


class Problem:
    """Forward and backward at these arguments, what their first calls returned, and forward near by."""

    def __init__(
        self, forward: Any, backward: Any, args: Any, kwargs: Any, rng: np.random.Generator, tolerance: float
    ):
        self.tolerance = tolerance
        self.forward, self.backward, self.args, self.kwargs = forward, backward, args, kwargs
        given = _fresh(args)
        self.returned, self.cache = self.call(given)
        first = np.array(_floats(self.returned))
        self.faults = [f"forward writes into {place}" for place in _changes("its arguments", args, given)]
        self.d_output = np.asarray(rng.standard_normal(first.shape)).astype(first.dtype)
        self.draws = np.random.default_rng(rng.integers(2**32))
        self.cache_before = _fresh(self.cache)
        dy = in_kind_of(self.returned, self.d_output.copy())
        self.answer = backward(dy, self.cache)
        self.gradients = _fresh(
            self.answer
        )  # before anything runs again: it may be a view of what is written
        self.faults += [
            f"backward writes into {at}" for at in _changes("d_output", self.d_output, to_host(dy))
        ]
        self.faults += [
            f"backward writes into {at}" for at in _changes("its cache", self.cache_before, self.cache)
        ]
        self.first, self.wide = first, _mapped(_widened, args)  # differences of float32 are taken in float64
        outputs = [_floats(self.call(_fresh(self.wide))[0]) for _ in range(1 + (first.dtype != float))]
        self.output = (first if first.dtype == float else outputs[0]).astype(float)
        if not np.isfinite(self.output).all():
            raise ValueError(
                "gradcheck: forward's output has entries that are not finite; it has no slope there"
            )
        if _largest(outputs[-1] - self.output) > LEAST * _largest(self.output):
            raise ValueError(
                "gradcheck: forward gives another output when it is called again; "
                "pass its numpy.random.Generator among the arguments"
            )
        self.eps = float(np.finfo(outputs[-1].dtype).eps)
        self.raised = ""  # by forward near by

    def call(self, args: Any) -> tuple[Any, Any]:
        """(output, cache) of a forward pass."""
        result = self.forward(*args, **_fresh(self.kwargs))
        if not _is_plain(result) or isinstance(result, list) or len(result) != 2:
            raise TypeError(f"gradcheck: forward returned {_kind(result)}; expected a pair (output, cache)")
        return result

    def near(self, where: tuple[Any, ...], x: Floats) -> Floats:
        """The output with another array at that place; NaN where forward has none."""
        try:
            args = _mapped(_fresh if self.faults else _drawn_alike, self.wide)
            output = _floats(self.call(_put(args, where, x))[0])
        except Exception as error:  # whatever forward raises: it has no value there
            self.raised = f": forward raises {type(error).__name__}: {error}"
            return np.full(self.output.shape, math.nan)
        return output if output.shape == self.output.shape else np.full(self.output.shape, math.nan)

    def left_behind(self) -> list[str]:
        """What later calls did to what the first ones returned; forward has run with other arguments since."""
        faults = list(self.faults)
        if _changed(self.first, np.asarray(to_host(self.returned))):
            faults.append("forward returns a buffer that its next call overwrites")
        if not faults:
            later = _changes("the cache of the last one", self.cache_before, self.cache)
            faults += [f"forward's next call writes into {place}" for place in later]
        return faults

    def calls_again(self, size: float, faults: list[str]) -> Iterator[tuple[float, Any]]:
        """Backward's gradients for the first d_output and cache once more, and for a multiple of d_output.

        A gradient is linear in d_output. The multiple makes the largest gradient about 1/√ε, so that what clips
        or saturates shows, wherever it begins.
        """
        for factor in (1.0, -1 / (LEAST * (size or 1.0))):
            cache = self.cache if factor == 1 else self.call(_fresh(self.args))[1]
            dy = (factor * self.d_output).astype(self.d_output.dtype)
            try:
                gradients = _fresh(self.backward(in_kind_of(self.returned, dy), cache))
            except Exception as error:
                faults.append(f"backward raises {type(error).__name__} when it is called again: {error}")
                continue
            if _changed(self.gradients, self.answer):
                faults.append("backward returns a buffer that its next call overwrites")
                return
            yield factor, gradients


def _rounding(problem: Problem, leaves: list[Leaf], places: list[int], names: list[str]) -> dict[Any, float]:
    """How far float32 may have moved each gradient: what answers scatter by when all that goes in moves by a
    rounding, which is what every operation on the way does too."""
    if problem.first.dtype == np.float64:
        return {}
    eps, found = float(np.finfo(np.float32).eps), {leaf.where: 0.0 for leaf in leaves}
    for _ in range(AGAIN):
        args = _mapped(lambda x: _nudged(x, eps, problem.draws), _fresh(problem.args))
        cache = problem.call(args)[1]
        dy = _nudged(problem.d_output, eps, problem.draws)
        gradients = problem.backward(in_kind_of(problem.returned, dy), cache)
        for leaf, again in zip(leaves, _pair(problem.args, places, names, gradients), strict=True):
            if not leaf.note and not again.note:
                found[leaf.where] = max(found[leaf.where], _largest(again.gradient - leaf.gradient))
    return {where: SLACK * off for where, off in found.items()}


def _nudged(x: Any, eps: float, draws: np.random.Generator) -> Any:
    if _kind_of_number(x) != "f":
        return x
    host = to_host(x)
    return in_kind_of(x, (host * (1 + eps * draws.uniform(-1, 1, host.shape))).astype(host.dtype))


def _floats(output: Any) -> Floats:
    """Forward's output on the host, float64 or float32."""
    kind = _kind_of_number(output)
    array = to_host(output) if kind != "-" or isinstance(output, float | np.floating) else None
    if array is None or array.dtype not in (np.float64, np.float32):
        received = _kind(output) if array is None else array.dtype
        raise TypeError(f"gradcheck: forward's output is {received}; expected an array of float64 or float32")
    return array


def _mapped(f: Callable[[Any], Any], tree: Any) -> Any:
    parts = branches(tree)
    return f(tree) if parts is None else rebuilt(tree, [_mapped(f, part) for part in parts.values()])


def _fresh(tree: Any) -> Any:
    """A copy that forward may write into and draw from; settings and the like stay themselves."""
    return _mapped(lambda x: _drawn_alike(x) if _kind_of_number(x) == "-" else _copied(x), tree)


def _drawn_alike(x: Any) -> Any:
    return copy.deepcopy(x) if isinstance(x, np.random.Generator) else x


def _copied(x: Any) -> Any:
    return in_kind_of(x, np.array(to_host(x))) if is_foreign(x) else x.copy()


def _widened(x: Any) -> Any:
    """float32 as float64."""
    return in_kind_of(x, to_host(x).astype(float)) if _kind_of_number(x) == "f" else x


def _put(tree: Any, where: tuple[Any, ...], x: Floats) -> Any:
    """The tree with another array at one place, in the kind of what stood there."""
    if not where:
        return in_kind_of(tree, x)
    parts = (branches(tree) or {}).items()
    return rebuilt(tree, [_put(part, where[1:], x) if key == where[0] else part for key, part in parts])


def _changes(path: str, before: Any, after: Any) -> Iterator[str]:
    """Where two trees of arrays differ by a bit, in words."""
    parts, others = branches(before), branches(after)
    if parts is None or others is None or parts.keys() != others.keys():
        if parts is not None or (_kind_of_number(before) != "-" and not _same(before, after)):
            yield path
        return
    for key, branch in parts.items():
        yield from _changes(f"{path} ({branch_name(before, key)})", branch, others[key])


def _changed(before: Any, after: Any) -> bool:
    return next(_changes("", before, after), None) is not None


def _same(before: Any, after: Any) -> bool:
    a, b = to_host(before), to_host(after)
    return bool(a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes())


def _largest(x: Floats) -> float:
    return float(abs(x).max(initial=0.0))


# Verdicts


class Judged:
    """One leaf: slopes along every entry, or along a few random directions, beside those of its gradient."""

    def __init__(self, problem: Problem, leaf: Leaf, directions: int | None):
        self.problem, self.leaf = problem, leaf
        x = self.x = np.array(to_host(leaf.x), dtype=float)
        self.sampled = directions is not None and x.size > directions
        self.scale = (float(np.sqrt((x * x).mean())) if self.sampled else _largest(x)) or 1.0
        self.probes: list[Any] = list(np.ndindex(x.shape)) if not self.sampled else []
        self.probes += [
            problem.draws.standard_normal(x.shape) for _ in range(directions or 0) if self.sampled
        ]
        self.analytic = np.full(len(self.probes), math.nan)
        if not leaf.note:
            g = leaf.gradient
            self.analytic[:] = [float((g * u).sum() if self.sampled else g[u]) for u in self.probes]
        self.rounding = problem.rounding.get(leaf.where, 0.0)
        self.size = self.limit = 0.0
        self.stairs: set[int] = set()  # entries where it stands still close by and moves from afar
        self.slopes = [self.seen(self.line(i), i) for i in range(len(self.probes))]

    def line(self, i: int) -> Line:
        u, where, near = self.probes[i], self.leaf.where, self.problem.near

        def at(t: float) -> tuple[float, Floats]:
            x = self.x + t * u if self.sampled else self.x.copy()
            if not self.sampled:
                x[u] += t
                return float(x[u] - self.x[u]) or math.nan, near(where, x)
            made = t + float((gradient * (x - self.x - t * u)).sum()) / (self.analytic[i] or math.inf)
            return made if math.isfinite(made) else t, near(where, x)

        gradient, problem = self.leaf.gradient if not self.leaf.note else 0.0, self.problem
        return Line(at, problem.output, problem.d_output.astype(float), problem.eps, problem.draws)

    def seen(self, line: Line, i: int, thorough: bool = False) -> Slope:
        """The slope from one window at the leaf's scale; when thorough, from what a search finds too."""
        found = line.window(self.scale)
        if thorough and not self.known(i, found):
            sought = self.sought(line, i)
            found = min(apart(found, sought), sought, key=lambda slope: slope.doubt)
        keep = self.x.size * self.problem.output.size <= TABLE
        return found if keep else found._replace(terms=np.zeros(0))

    def sought(self, line: Line, i: int) -> Slope:
        return line.search(self.own_scale(i), max(self.scale, 1.0), functools.partial(self.known, i))

    def own_scale(self, i: int) -> float:
        return self.scale if self.sampled else abs(float(self.x[self.probes[i]])) or self.scale

    def decided(self, i: int, slope: Slope) -> str:
        """pass where the two agree and the doubt is small, fail where they differ by more than it explains."""
        a, off = self.analytic[i], abs(self.analytic[i] - slope.value)
        if not math.isfinite(a):
            return "fail"
        nothing = a == self.size == 0 and off <= slope.doubt <= SLACK * slope.noise
        if nothing or (off <= self.limit + slope.doubt and slope.doubt <= SLACK * self.limit):
            return "pass"
        return "fail" if off > max(self.limit, SLACK * (slope.doubt + slope.hidden)) else ""

    def known(self, i: int, slope: Slope) -> bool:
        """Whether a verdict stands, and the slope is known as well as it must be."""
        verdict = self.decided(i, slope)
        return verdict == "pass" or verdict == "fail" and slope.doubt <= SLACK * self.limit

    def right(self) -> Floats:
        """The slopes in the form of the leaf; NaN where they are not known."""
        known = [s.value if self.sure(i) else math.nan for i, s in enumerate(self.slopes)]
        return np.reshape(known, (-1,) if self.sampled else self.x.shape)

    def sure(self, i: int) -> bool:
        return (self.slopes[i].doubt <= SLACK * self.limit or self.size == 0) and i not in self.stairs

    def table(self) -> Floats:
        """What each entry of d_output alone sends to each entry of the leaf."""
        dy = self.problem.d_output
        rows = [s.terms / dy if self.sure(i) else dy * math.nan for i, s in enumerate(self.slopes)]
        return np.moveaxis(np.array(rows).reshape(len(rows), *dy.shape), 0, -1).reshape(
            dy.shape + self.x.shape
        )

    def refine(self) -> None:
        for i, slope in enumerate(self.slopes):
            if not self.known(i, slope):
                line = self.line(i)
                self.slopes[i] = slope = self.seen(line, i, thorough=True)
                if line.is_stair(slope):
                    self.stairs.add(i)

    def row(self) -> GradientRow:
        """The worst entry, and what is to be said."""
        leaf, slopes = self.leaf, self.slopes
        if leaf.note:
            return _refuse(leaf.path, leaf.note)
        if not slopes:
            return GradientRow(leaf.path, (), 0.0, 0.0, 0.0, "pass", "")
        told = [self.verdict(i) for i in range(len(slopes))]
        self.confirm(told)
        values, off = [slope.value for slope in slopes], [self.off(i) for i in range(len(slopes))]
        error = [x / self.size if self.size else math.inf if x else 0.0 for x in off]
        verdict = next(word for word in VERDICTS if any(word == v for v, _ in told))
        i = max((i for i, (v, _) in enumerate(told) if v == verdict), key=lambda i: error[i])
        index = () if self.sampled else self.probes[i]
        numbers = float(self.analytic[i]), values[i], error[i]
        note = self.notes(told) if verdict != "pass" else ""
        return GradientRow(leaf.path, index, *numbers, verdict, note)

    def off(self, i: int) -> float:
        off = abs(float(self.analytic[i]) - self.slopes[i].value)
        return off if math.isfinite(off) else math.inf

    def verdict(self, i: int) -> tuple[str, str]:
        """The verdict on one entry, and what keeps it from being sure."""
        slope, off, verdict = self.slopes[i], self.off(i), self.decided(i, self.slopes[i])
        if i in self.stairs:
            return "unsure" if verdict != "fail" else verdict, STAIR
        if verdict == "pass":
            return self.by_its_own_measure(i, off)
        if verdict == "fail":
            return "fail", ""
        line = self.line(i)
        self.seen(line, i, thorough=True)
        if off > max(self.limit, SLACK * slope.doubt):  # nothing but what the others hide decides
            seen = line.reveals(SLACK * slope.hidden * line.reach / off)
            return ("unsure", "too small to judge, rounding hides it") if seen else ("fail", "")
        if slope.doubt <= SLACK * slope.noise:
            return "unsure", "too small to judge, rounding hides it"
        words, low, high = line.nature()
        if math.isnan(low):
            return "unsure", words + self.problem.raised * words.startswith("there is no")
        return "kink" if low <= self.analytic[i] <= high else "fail", words

    def by_its_own_measure(self, i: int, off: float) -> tuple[str, str]:
        """An entry that passes because others are larger, and is clearly off beside itself, is not passed."""
        slope = self.slopes[i]
        share = self.problem.tolerance / SMALL  # what an entry of SMALL of the largest is held to
        if off <= max(slope.doubt, self.rounding, share * max(abs(self.analytic[i]), abs(slope.value))):
            return "pass", ""
        line = self.line(i)
        own = line.window(self.own_scale(i))
        off = abs(float(self.analytic[i]) - own.value)
        if off <= SLACK * own.doubt or line.reveals(SLACK * own.hidden * line.reach / off):
            return "pass", ""
        clear = (
            off > SLACK**2 * self.problem.eps * self.size
        )  # more than rounding beside the largest explains
        return "fail" if clear else "unsure", "it differs, but is too small beside the largest"

    def confirm(self, told: list[tuple[str, str]]) -> None:
        """Wrong entries, the worst first, until one of them is wrong again by other steps: one is enough."""
        for i in sorted((i for i, (v, _) in enumerate(told) if v == "fail"), key=self.off, reverse=True):
            if told[i][1] or not math.isfinite(self.off(i)):
                return
            line = self.line(i)
            slope = self.slopes[i] = self.sought(line, i)
            close = line.window(LEAST * self.scale)
            if slope.doubt > SLACK * self.limit and close.still and abs(self.analytic[i]) <= SLACK * close.doubt:
                self.stairs.add(i)
                self.slopes[i] = slope._replace(doubt=math.inf)
            told[i] = self.verdict(i)
            if told[i][0] == "fail":
                return

    def notes(self, told: list[tuple[str, str]]) -> str:
        bad = int((~np.isfinite(self.analytic)).sum())
        notes = [f"{bad} of {len(told)} not finite"] * (bad > 0)
        for verdict, words in (("kink", "at a kink"), ("unsure", "cannot be judged")):
            here = [i for i, (v, note) in enumerate(told) if v == verdict]
            for i in here[:1]:
                first = "" if self.sampled else f", first {show(self.probes[i])}"
                notes.append(f"{len(here)} of {len(told)} {words}{first}: {told[i][1]}")
        return "; ".join(notes)

    def disagreement(self, again: Leaf | None, factor: float) -> str:
        """What is wrong when the same backward now gives another gradient, or nothing."""
        first = self.leaf.gradient
        if self.leaf.note:
            return ""
        if again is None or again.note:
            return "has another form when called again"
        off = abs(again.gradient / factor - first)
        bad = ~(off <= max(self.limit, self.problem.tolerance * _largest(first))) & np.isfinite(first)
        if not bad.any():
            return ""
        where = show(tuple(map(int, np.unravel_index(np.argmax(np.where(bad, off, -1.0)), off.shape))))
        if factor == 1:
            return f"another gradient when called again with the same d_output and cache, see {where}"
        return (
            f"not linear in d_output: {factor:.3g} times d_output gives another multiple of this, see {where}"
        )


def _set_sizes(judged: list[Judged], tolerance: float) -> None:
    """Against what errors are measured: the leaf's largest slope, or SMALL of the largest of all leaves.

    Slopes in much doubt do not count. The largest entry cannot be seen along random directions: it is the
    gradient's own, but no more than the mean length along them.
    """
    for one in judged:
        values = [abs(slope.value) for slope in one.slopes if SLACK * slope.doubt < abs(slope.value)]
        one.size = max(values, default=0.0)
        if one.sampled and values and not one.leaf.note:
            one.size = min(float(np.sqrt(np.mean(np.square(values)))), _largest(one.leaf.gradient))
    whole = max((one.size for one in judged), default=0.0)
    for one in judged:
        one.size = max(one.size, SMALL * whole)
        one.limit = max(tolerance * one.size, one.rounding)


def _refuse(path: str, note: str) -> GradientRow:
    return GradientRow(path, (), math.nan, math.nan, math.inf, "fail", note)


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))


# What a wrong gradient looks like


def _named(
    problem: Problem, judged: list[Judged], failing: set[Any], places: list[int], names: list[str]
) -> dict[Any, str]:
    """A sentence for each failing leaf that has to do with what is right in a way that has a name."""
    rights = {one.leaf.where: one.right() for one in judged} if failing else {}
    sizes = {f"axis {a} of {one.leaf.path}": n for one in judged for a, n in enumerate(one.x.shape)}
    sizes |= {f"axis {a} of the output": n for a, n in enumerate(problem.output.shape)}
    there = {"d_output": problem.d_output, "the output": problem.output}
    for path, x in [*zip(names, problem.wide, strict=False), ("cache", problem.cache_before)]:
        there |= {
            at: np.asarray(to_host(end), float) for at, end in _ends(path, x) if _kind_of_number(end) in "fi"
        }
    tables = _found_tables(problem, judged, places, names) if failing else {}
    said = {}
    for one in judged:
        where, g = one.leaf.where, one.leaf.gradient
        if where not in failing or g is None:
            continue
        others = {
            f"the gradient of {x.leaf.path}": rights[x.leaf.where]
            for x in judged
            if x is not one and not x.sampled
        }
        exact = max(SLACK * problem.tolerance, one.rounding / one.size if one.size else 0.0)
        case = Case(g, rights[where], others | there, sizes, exact, one.size)
        if one.sampled:
            case = (
                Case(one.analytic, rights[where], exact=exact, scale=one.size)
                if len(one.probes) > 2
                else None
            )
        elif where in tables:
            case = case._replace(
                d_output=problem.d_output, found_table=tables[where], right_table=one.table()
            )
        seen = relation([case]) if case is not None else None
        if seen is not None:
            words, usually = WORDS[seen.kind]
            said[where] = f"{words.format(seen.what)}; {usually}"
    return said


def _found_tables(
    problem: Problem, judged: list[Judged], places: list[int], names: list[str]
) -> dict[Any, Floats]:
    """What each entry of d_output alone sends to each leaf; nothing where that is too much to ask."""
    n = problem.d_output.size
    if n * sum(one.x.size for one in judged) > TABLE or any(one.sampled for one in judged):
        return {}
    rows: dict[Any, list[Any]] = {one.leaf.where: [] for one in judged}
    try:
        for unit in np.eye(n, dtype=problem.d_output.dtype).reshape(n, *problem.d_output.shape):
            cache = problem.call(_fresh(problem.args))[1]
            gradients = problem.backward(in_kind_of(problem.returned, unit.copy()), cache)
            for leaf in _pair(problem.args, places, names, gradients):
                rows[leaf.where].append(np.array(leaf.gradient))
    except Exception:  # a backward pass that takes no such d_output has no table
        return {}
    shape = problem.d_output.shape
    return {
        w: np.reshape(r, shape + np.shape(r[0]))
        for w, r in rows.items()
        if len({np.shape(x) for x in r}) == 1
    }


def _sampled(judged: list[Judged], directions: int | None) -> str:
    sampled = [one for one in judged if one.sampled and one.size]
    if not sampled:
        return ""
    off = SLACK * max(
        max(one.limit, *(SLACK * slope.doubt for slope in one.slopes)) / one.size for one in sampled
    )
    chance = (math.sqrt(2 / math.pi) / SLACK) ** (directions or 0)
    return (
        f"{directions} random directions for each array of more entries: one wrong entry, off by {off:.0e} of its "
        f"leaf's largest, slips through with a chance of {chance:.0e}"
    )
