"""Gradients by differences: is this backward pass the derivative of that forward? Knows no layer."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import getitem
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npformer.annotations import Rng
from npformer.backend import Array, array_module, to_numpy
from npformer.signature import check_value
from npformer.tree import branch_name, branches, rebuilt
from npformer.validate import check_callable, check_number

FIRST_STEP = 2.0**-7  # of the leaf's scale; a power of two, so that x + h rounds as little as it can
HALVINGS = 20


class GradientRow(NamedTuple):
    """One leaf of the arguments: its worst entry and the verdict on all of them."""

    path: str  # the leaf, such as params.W_1
    index: tuple[int, ...]  # type: ignore[assignment]  # its worst entry; shadows tuple.index
    analytic: float  # what the backward pass says there
    numeric: float  # what the differences say there
    error: float  # |analytic - numeric|, relative to the size of the leaf's gradient
    verdict: str  # "pass", "fail", "kink" or "unsure"
    note: str


class GradientReport(NamedTuple):
    """A row for each leaf; true when every row passes, a table when printed or shown in a notebook."""

    rows: tuple[GradientRow, ...]
    tolerance: float

    def __bool__(self) -> bool:
        return all(row.verdict == "pass" for row in self.rows)

    def __str__(self) -> str:
        return "\n".join([_summary(self), *_aligned([_HEAD, *map(_cells, self.rows)])])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        import html  # with its table of entities, which few need

        head = "".join(f"<th>{name}</th>" for name in _HEAD)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(row)) + "</tr>"
            for row in self.rows
        )
        return f"<table><caption>{html.escape(_summary(self))}</caption><tr>{head}</tr>{body}</table>"


@np.errstate(all="ignore")
def gradcheck(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    *args: Any,
    rng: Rng | None = None,
    tolerance: float = 1e-8,
    **kwargs: Any,
) -> GradientReport:
    """Compare backward(d_output, cache), entry by entry, with differences of forward(*args, **kwargs).

    With φ(x) = Σ d_output · forward(x) for one random d_output, dφ/dx is what the backward pass returns.
    The central differences D(h) = (φ(x + h) - φ(x - h)) / 2h at h, h/2 and h/4 are extrapolated to h = 0:
    R(h) = (4 D(h/2) - D(h)) / 3, then (16 R(h/2) - R(h)) / 15, which is off by O(h⁶). L. F. Richardson,
    "The Approximate Arithmetical Solution by Finite Differences …", 1911. The first h is 2⁻⁷ of the size of
    the leaf's largest entry. Where the two sides or two estimates do not agree, h is halved; where rounding
    is what they differ by, h grows.

    Every floating array among args is differentiated, in tuples, lists and dicts too; other args (ids,
    masks, settings) are passed on. The backward pass returns one gradient for each, in order, as a
    tuple; a single one may come alone. A numpy.random.Generator is copied for every evaluation, so
    dropout sees one mask throughout. `rng` draws d_output (default_rng(0) unless given); a forward with
    an `rng` of its own is handed a copy of it.

    The report has one row for each array, with its worst entry, and is true when every row passes. An
    error is relative to the leaf's largest gradient, or to 1e-3 of the largest of all leaves if that is
    more, so that a gradient of zero can pass; an entry that is smaller than that, but clearly off by its
    own measure, does not pass either. "kink": the slope jumps there, as that of max(0, z) does at 0, and the
    gradient lies between the two. "unsure": differences cannot tell, and the note says why: rounding hides
    the slope, the value jumps, the slope grows without end, no two steps agree.

    Then both functions are called again. What fails: a gradient that is not linear in d_output (clipped,
    saturated); a backward that writes into d_output or its cache, or answers otherwise with the same ones; a
    call that overwrites what an earlier one returned; a forward that writes into its arguments. A fault of
    no single array has a row of its own, named forward or backward.

    Raises TypeError for floating arrays that are not float64, are given by keyword or sit in an object of
    another kind, and for a forward that returns no pair (output, cache); ValueError for values that are not
    finite and for a forward that is not repeatable. A gradient of the wrong shape, kind or dtype is no
    exception but a row that fails.

    >>> square = lambda x: (x * x, x)
    >>> print(gradcheck(square, lambda dy, x: dy * x, np.array([1.0, -3.0])))
    gradient check: 1 of 1 failed (tolerance 1e-08)
    leaf  worst    analytic     numeric    error  verdict  note
    x     [1]    0.39631459  0.79262918  5.0e-01  fail
    >>> bool(gradcheck(square, lambda dy, x: dy * 2 * x, np.array([1.0, -3.0])))
    True
    """
    check_callable("gradcheck", "forward", forward)
    check_callable("gradcheck", "backward", backward)
    check_number("gradcheck", "tolerance", tolerance, above=0)
    check_value("gradcheck", "rng", rng, Rng | None)
    names = _argument_names(forward, len(args))
    if rng is not None and "rng" in names[len(args) :]:
        kwargs = {**kwargs, "rng": copy.deepcopy(rng)}
    places = _places(names, args, kwargs)

    problem = _pose(forward, backward, args, kwargs, rng or np.random.default_rng(0))
    leaves = list(_pair(args, places, names, problem.first.gradients))
    compared = [leaf for leaf in leaves if not leaf.note]
    slopes, sizes = _numeric_gradients(problem, compared, tolerance)
    judged = {
        leaf.where: _judge(problem, leaf, found, size, tolerance)
        for leaf, found, size in zip(compared, slopes, sizes, strict=True)
    }
    faults = _left_behind(problem)
    for scale, gradients in _calls_again(problem, backward, max(sizes, default=0.0), faults):
        again = {leaf.where: leaf.gradient for leaf in _pair(args, places, names, gradients)}
        for leaf, size in zip(compared, sizes, strict=True):
            note = _disagreement(leaf, again.get(leaf.where), size, scale, tolerance)
            judged[leaf.where] = _with_note(judged[leaf.where], note)
    rows = [judged.get(leaf.where) or _refuse(leaf.path, leaf.note) for leaf in leaves]
    return GradientReport((*rows, *(_refuse(fault.split()[0], fault) for fault in faults)), tolerance)


# What is to be compared: the arguments' leaves, side by side with the gradients


class _Leaf(NamedTuple):
    path: str
    where: tuple[Any, ...]  # the argument's place, then the way down its tree
    x: Any
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
            if _is_array(x) and x.dtype.kind in "fc":
                raise TypeError(
                    f"gradcheck: {path} is a floating array given by keyword, where no gradient is compared; "
                    f"pass it by position, or hold it fixed: functools.partial(forward, {name}=...)"
                )
    places = []
    for place, arg in enumerate(args):
        arrays = [_checked_leaf(path, x) for path, x in _ends(names[place], arg)]
        places += [place] * any(arrays)
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


def _is_array(x: Any) -> bool:
    return isinstance(x, array_module(x).ndarray)


def _checked_leaf(path: str, x: Any) -> bool:
    """Is this an array to be differentiated? One that cannot be, but should, is refused."""
    if not _is_array(x):
        _refuse_hidden_arrays(path, x)
        return False
    if x.dtype.kind == "c":
        raise TypeError(f"gradcheck: {path} has dtype {x.dtype}; expected real numbers, float64")
    if x.dtype.kind != "f":
        return False
    if x.dtype != np.float64:
        raise TypeError(
            f"gradcheck: {path} has dtype {x.dtype}; expected float64, because differences lose half of the "
            f"digits ({path}.astype(np.float64))"
        )
    if isinstance(x, np.ma.MaskedArray | np.matrix):
        raise TypeError(f"gradcheck: {path} is a {type(x).__name__}; expected a plain array of float64")
    if not array_module(x).isfinite(x).all():
        raise ValueError(f"gradcheck: {path} has entries that are not finite; there is no slope there")
    return True


def _refuse_hidden_arrays(path: str, x: Any) -> None:
    """An object of another kind may hold settings, but no floating arrays: nobody would compare those."""
    inside = {} if isinstance(x, type | ModuleType) else getattr(x, "__dict__", {})
    for name, value in inside.items():
        if any(_is_array(end) and end.dtype.kind in "fc" for _, end in _ends(name, value)):
            raise TypeError(
                f"gradcheck: {path}.{name} is a floating array inside a {type(x).__name__}, where no "
                "gradient is compared; expected arrays, or tuples, lists and dicts of them"
            )


def _pair(args: Sequence[Any], places: list[int], names: list[str], gradients: Any) -> Iterator[_Leaf]:
    """Each leaf of the arguments with its gradient."""
    if not _is_plain(gradients) or (len(places) == 1 and not _is_wrapped(gradients, args[places[0]])):
        gradients = (gradients,)
    if len(gradients) != len(places):
        path = ", ".join(names[place] for place in places)
        note = f"number of gradients is {len(gradients)}, expected {len(places)}"
        yield _Leaf(path, (), None, None, note)
        return
    for place, gradient in zip(places, gradients, strict=True):
        yield from _walk(names[place], (place,), args[place], gradient)


def _is_plain(value: Any) -> bool:
    """A tuple or a list without names for its fields."""
    return isinstance(value, tuple | list) and not hasattr(value, "_fields")


def _is_wrapped(gradients: Sequence[Any], arg: Any) -> bool:
    """Is this (gradient,) rather than the gradient itself, which may be a tuple when the argument is one?"""
    return len(gradients) == 1 and (
        not _is_plain(arg) or (_is_plain(gradients[0]) and len(gradients[0]) == len(arg))
    )


def _walk(path: str, where: tuple[Any, ...], x: Any, gradient: Any) -> Iterator[_Leaf]:
    parts = branches(x)
    if parts is not None:
        answers = branches(gradient)
        if type(gradient) is not type(x) or answers is None or answers.keys() != parts.keys():
            if any(_is_array(end) and end.dtype.kind == "f" for _, end in _ends(path, x)):
                yield _Leaf(path, where, x, gradient, f"is {_kind(gradient)}, expected {_kind(x)}")
            return
        for key, branch in parts.items():
            yield from _walk(f"{path}.{branch_name(x, key)}", (*where, key), branch, answers[key])
    elif x is None and gradient is not None:
        yield _Leaf(path, where, x, gradient, f"is {_kind(gradient)}, expected None as the parameter is")
    elif _is_array(x) and x.dtype.kind == "f":
        yield _Leaf(path, where, x, gradient, _mismatch(x, gradient))


def _mismatch(x: Array, gradient: Any) -> str:
    if not hasattr(gradient, "shape") or not hasattr(gradient, "dtype"):
        return f"is {_kind(gradient)}, expected an array of shape {x.shape}"
    if gradient.shape != x.shape:
        return f"has shape {gradient.shape}, expected {x.shape}"
    if gradient.dtype != x.dtype:
        return f"has dtype {gradient.dtype}, expected {x.dtype}"
    return ""


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    name = type(value).__name__
    if isinstance(value, dict):
        return f"dict of {', '.join(map(str, value))}"
    return f"{name} of {len(value)}" if isinstance(value, tuple | list) else name


# The calls: forward and backward once, then again to see what the first calls left behind


class _Calls(NamedTuple):
    """The first call of each function: what came back, and copies of it made at once."""

    output: Any
    cache: Any
    cache_before: Any  # a copy made before backward saw it
    returned: Any  # what backward returned
    gradients: Any  # a copy of it
    d_output: Any
    faults: tuple[str, ...]  # what was written into


class _Problem(NamedTuple):
    forward: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: NDArray[np.float64]  # on the host, as everything that follows
    d_output: NDArray[np.float64]
    first: _Calls


def _pose(forward: Any, backward: Any, args: Any, kwargs: Any, rng: np.random.Generator) -> _Problem:
    """The first call of each function, and a second one of forward, which must repeat the first."""
    given = _fresh(args)
    returned, cache = _evaluate(forward, given, _fresh(kwargs))
    output = np.array(to_numpy(returned))
    if not np.isfinite(output).all():
        raise ValueError("gradcheck: forward's output has entries that are not finite; it has no slope there")
    faults = [f"forward writes into {place}" for place in _changes("its arguments", args, given)]
    d_output = rng.standard_normal(output.shape)
    dy = array_module(returned).asarray(d_output)
    first = _first_calls(backward, returned, cache, dy, faults)
    again = to_numpy(_evaluate(forward, _fresh(args), _fresh(kwargs))[0])
    if _largest(again - output) > 1e-9 * _largest(output):
        raise ValueError(
            "gradcheck: forward gives another output when it is called again; "
            "pass its numpy.random.Generator among the arguments"
        )
    return _Problem(forward, args, kwargs, output, d_output, first)


def _first_calls(backward: Any, output: Any, cache: Any, d_output: Any, faults: list[str]) -> _Calls:
    cache_before, dy = _fresh(cache), d_output.copy()
    returned = backward(dy, cache)
    gradients = _fresh(returned)  # before anything runs again: they may be views of what is written then
    faults += [f"backward writes into {place}" for place in _changes("d_output", d_output, dy)]
    faults += [f"backward writes into {place}" for place in _changes("its cache", cache_before, cache)]
    return _Calls(output, cache, cache_before, returned, gradients, d_output, tuple(faults))


def _evaluate(forward: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, Any]:
    result = forward(*args, **kwargs)
    if not isinstance(result, tuple) or hasattr(result, "_fields") or len(result) != 2:
        raise TypeError(f"gradcheck: forward returned {_kind(result)}; expected a pair (output, cache)")
    if not isinstance(result[0], float) and getattr(result[0], "dtype", None) != np.float64:
        received = getattr(result[0], "dtype", _kind(result[0]))
        raise TypeError(f"gradcheck: forward's output is {received}; expected an array of float64")
    return result


def _fresh(value: Any) -> Any:
    """A copy that forward may write into and draw from; settings and the like stay themselves."""
    parts = branches(value)
    if parts is not None:
        return rebuilt(value, [_fresh(branch) for branch in parts.values()])
    if isinstance(value, np.random.Generator):
        return copy.deepcopy(value)
    return value.copy() if _is_array(value) else value


def _changes(path: str, before: Any, after: Any) -> Iterator[str]:
    """Where two trees of arrays differ by a bit, in words."""
    parts, others = branches(before), branches(after)
    if parts is None or others is None or parts.keys() != others.keys():
        if parts is not None or (_is_array(before) and not _same(before, after)):
            yield path
        return
    for key, branch in parts.items():
        yield from _changes(f"{path} ({branch_name(before, key)})", branch, others[key])


def _changed(before: Any, after: Any) -> bool:
    return next(_changes("", before, after), None) is not None


def _same(before: Any, after: Any) -> bool:
    a, b = to_numpy(before), to_numpy(after)
    return bool(a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes())


def _largest(x: Any) -> float:
    return float(abs(x).max()) if np.size(x) else 0.0


def _left_behind(problem: _Problem) -> list[str]:
    """What later calls did to what the first ones returned; forward has run with other arguments since."""
    first = problem.first
    faults = list(first.faults)
    if _changed(problem.output, np.asarray(to_numpy(first.output))):
        faults.append("forward returns a buffer that its next call overwrites")
    if not faults:
        later = _changes("the cache of the last one", first.cache_before, first.cache)
        faults += [f"forward's next call writes into {place}" for place in later]
    return faults


def _calls_again(
    problem: _Problem, backward: Any, size: float, faults: list[str]
) -> Iterator[tuple[float, Any]]:
    """Backward's gradients for a multiple of d_output, and for the first d_output and cache once more.

    A gradient is linear in d_output. The factor is -3 · 2ᵏ with a k that makes the largest gradient about
    2³⁰, so that what clips or saturates shows, wherever it begins.
    """
    first = problem.first
    factor = -3.0 * 2.0 ** max(0, 30 - math.frexp(size)[1])
    for scale in (1.0, factor):
        cache = first.cache
        if scale != 1:
            _, cache = _evaluate(problem.forward, _fresh(problem.args), _fresh(problem.kwargs))
        try:
            gradients = _fresh(backward(scale * first.d_output, cache))
        except Exception as error:
            faults.append(f"backward raises {type(error).__name__} when it is called again: {error}")
            continue
        if _changed(first.gradients, first.returned):
            faults.append("backward returns a buffer that its next call overwrites")
            return
        yield scale, gradients


def _disagreement(leaf: _Leaf, again: Any, size: float, scale: float, tolerance: float) -> str:
    """What is wrong when the same backward now gives another gradient, or nothing."""
    first = to_numpy(leaf.gradient)
    if _mismatch(leaf.x, again):
        return "has another form when called again"
    with np.errstate(all="ignore"):
        off = abs(to_numpy(again) / scale - first)
    bad = ~(off <= tolerance * max(size, _largest(first))) & np.isfinite(first)
    if not bad.any():
        return ""
    where = _show(_position(np.where(bad, off, -1.0)))
    if scale != 1:
        return (
            f"not linear in d_output: {scale:.3g} times d_output gives another multiple of this, see {where}"
        )
    return f"another gradient when called again with the same d_output and cache, see {where}"


def _with_note(row: GradientRow, note: str) -> GradientRow:
    return row._replace(verdict="fail", note=_joined(row.note, note)) if note else row


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))


# Slopes by differences


class _Slopes(NamedTuple):
    """An estimate for each entry of a leaf, from the step that leaves it least in doubt."""

    value: NDArray[np.float64]
    doubt: NDArray[np.float64]  # how far the value may be off: steps disagree, or outputs were rounded
    noise: NDArray[np.float64]  # the part of the doubt that rounding explains
    reach: NDArray[np.float64]  # how much the first steps moved φ, for each unit of x


class _Entry(NamedTuple):
    """One number among the arguments, to be nudged."""

    problem: _Problem
    where: tuple[Any, ...]
    index: tuple[int, ...]  # type: ignore[assignment]  # shadows tuple.index
    x: float
    depends: Any  # the outputs whose rounding counts


def _numeric_gradients(
    problem: _Problem, leaves: list[_Leaf], tolerance: float
) -> tuple[list[_Slopes], list[float]]:
    """The slopes of every leaf, and for each leaf the size against which its errors are measured."""
    slopes = [_nothing_known(leaf.x.shape) for leaf in leaves]
    for leaf, found in zip(leaves, slopes, strict=True):
        h = FIRST_STEP * (_scale(leaf.x) or 1.0)
        for index in np.ndindex(leaf.x.shape):
            _walk_down(_entry(problem, leaf, index), found, h, 0, math.inf)
    largest = max((_scale(leaf.x) for leaf in leaves), default=0.0)
    for leaf, found, size in zip(leaves, slopes, _sizes(slopes), strict=True):
        enough = 0.01 * tolerance * size
        rounded = (found.doubt <= 100 * found.noise) & (
            found.doubt <= 30 * enough
        )  # no step does much better
        for place in np.argwhere(~(found.doubt <= enough) & ~rounded).tolist():
            _refine(_entry(problem, leaf, tuple(place)), found, _scale(leaf.x) or 1.0, largest, enough)
    return slopes, _sizes(slopes)


def _nothing_known(shape: tuple[int, ...]) -> _Slopes:
    return _Slopes(*(np.full(shape, number) for number in (math.nan, math.inf, math.inf, 0.0)))


def _entry(problem: _Problem, leaf: _Leaf, index: tuple[int, ...]) -> _Entry:
    return _Entry(problem, leaf.where, index, float(leaf.x[index]), ...)


def _scale(x: Array) -> float:
    """The largest entry's size as a power of two, so that x + h rounds little; of weights, 1."""
    largest = _largest(to_numpy(x))
    power = math.ldexp(1.0, math.frexp(largest)[1] - 1) if largest else 0.0
    return 1.0 if 2**-6 <= power <= 1 else power


def _sizes(slopes: list[_Slopes]) -> list[float]:
    """max(largest slope of the leaf, 1e-3 of the largest of all leaves), slopes in much doubt left out.

    Where no slope stands out of its doubt, the most that the first steps moved φ stands in for one.
    """
    sure = [np.where(s.doubt < 0.1 * abs(s.value), abs(s.value), 0.0) for s in slopes]
    largest = [float(slope.max(initial=0.0)) for slope in sure]
    whole = max(largest, default=0.0)
    reach = max((float(s.reach.max(initial=0.0)) for s in slopes), default=0.0)
    return [max(own, 1e-3 * whole) if whole > 0 else reach for own in largest]


def _refine(
    entry: _Entry, found: _Slopes, scale: float, largest: float, enough: float, first: float = FIRST_STEP
) -> None:
    """Look for a better step: below the leaf's scale, about the entry's own, and above where that helps."""
    entry = entry._replace(depends=_depends(entry, scale))
    own = _scale(np.array(entry.x)) or largest
    apart = not 2**-8 * scale <= own <= 2**8 * scale
    rounded = (
        found.doubt[entry.index] < math.inf and found.doubt[entry.index] <= 100 * found.noise[entry.index]
    )
    for start in [scale] * (not rounded) + [own] * (apart and own > 0):
        _walk_down(entry, found, first * start, HALVINGS, enough)
        if found.doubt[entry.index] <= enough:
            return
    h, before = first * scale, math.inf
    while h < 2.0**8 * max(1.0, scale) and enough < found.doubt[entry.index] < before:
        if found.doubt[entry.index] > 100 * found.noise[entry.index]:
            return  # it is not rounding that larger steps would overcome
        h, before = 32 * h, found.doubt[entry.index]
        _walk_down(entry, found, h, 0, enough, upwards=True)
    _walk_down(entry, found, h / 2, 4, enough, upwards=True)


def _depends(entry: _Entry, scale: float) -> NDArray[np.bool_]:
    """Which outputs depend on the entry: those that large steps change. Others add no rounding of theirs."""
    far = 2.0**40 * max(scale, 1.0)
    depends = reduce(
        np.logical_or, (_rise(entry, step)[0] != 0 for step in (16 * scale, -16 * scale, far, -far))
    )
    return depends if depends.any() else ~depends


def _walk_down(
    entry: _Entry, found: _Slopes, h: float, halvings: int, enough: float, upwards: bool = False
) -> None:
    """Estimate one slope with h, h/2, h/4, and then with smaller steps until its doubt is small enough."""
    right: list[_Quotient] = []
    left: list[_Quotient] = []
    last, rises = math.inf, 0
    for step in (math.ldexp(h, -k) for k in range(halvings + 3)):
        right.append(_quotient(entry, step))
        left.append(_quotient(entry, -step))
        if len(right) < 3:
            continue
        doubt = _keep(found, entry.index, right[-3:], left[-3:], upwards)
        rounded = doubt < 1e4 * right[-1].noise
        rises = rises + 1 if rounded and doubt > 1.3 * last else 0  # rounding grows as the step shrinks
        last = doubt
        if found.doubt[entry.index] <= enough or rises == 4:
            return


class _Quotient(NamedTuple):
    value: float
    noise: float  # how far rounded outputs may have moved it
    still: bool  # not one output changed


def _quotient(entry: _Entry, step: float) -> _Quotient:
    """(φ(x + step) - φ(x)) / step."""
    moved = ((entry.x + step) - entry.x) or math.nan  # the step as it was after rounding
    rise, terms = _rise(entry, step)
    with np.errstate(all="ignore"):
        return _Quotient(float(rise.sum()) / moved, _noise(terms[entry.depends]) / abs(moved), not rise.any())


def _rise(entry: _Entry, step: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """d_output · (output - output before), term by term, and the size of what was subtracted."""
    problem = entry.problem
    args = _fresh(problem.args)
    reduce(getitem, entry.where, args)[entry.index] = entry.x + step
    with np.errstate(all="ignore"):  # x + step may lie outside of the function's domain
        output = to_numpy(_evaluate(problem.forward, args, _fresh(problem.kwargs))[0])
        rise = problem.d_output * (output - problem.output)
        terms = abs(problem.d_output) * np.maximum(abs(output), abs(problem.output))
    return rise, terms


def _noise(terms: NDArray[np.float64]) -> float:
    """How much of a sum of differences may be rounding."""
    return 2.0**-52 * _largest(terms) * math.sqrt(terms.size) + 5e-324


def _keep(
    found: _Slopes, index: tuple[int, ...], right: list[_Quotient], left: list[_Quotient], upwards: bool
) -> float:
    """The doubt of the estimate from three steps, which replaces the one before if it is the better one."""
    noise = max(right[-1].noise, left[-1].noise)
    slope, doubt = _extrapolate([q.value for q in right], [q.value for q in left])
    doubt += noise
    value, before = float(found.value[index]), float(found.doubt[index])
    if before == math.inf:
        found.reach[index] = max(
            [abs(q.value) for q in right + left if abs(q.value) > 100 * q.noise], default=0
        )
    apart = abs(slope - value)
    if right[-1].still and left[-1].still and before < 0.01 * abs(value):
        return doubt  # a stair, seen from close by
    if upwards and apart > 10 * before:
        return doubt  # a larger step may see another part of the function
    if doubt < before:  # never for NaN
        found.value[index], found.doubt[index], found.noise[index] = slope, doubt, noise
    if apart > 10 * (doubt + before):  # one of the two is an accident, and it is open which
        found.doubt[index] = max(found.doubt[index], apart / 30)
    return doubt


def _extrapolate(right: list[float], left: list[float]) -> tuple[float, float]:
    """The slope from the quotients at h, h/2 and h/4, and its doubt: two estimates or two sides differ."""
    D = [(r + l) / 2 for r, l in zip(right, left, strict=True)]  # noqa: E741
    jumps = [r - l for r, l in zip(right, left, strict=True)]  # noqa: E741
    coarse, fine = (4 * D[1] - D[0]) / 3, (4 * D[2] - D[1]) / 3
    slope = (16 * fine - coarse) / 15
    jump = (8 * (2 * jumps[2] - jumps[1]) - (2 * jumps[1] - jumps[0])) / 7
    return slope, max(abs(slope - fine), abs(jump))


# Verdicts


def _judge(problem: _Problem, leaf: _Leaf, found: _Slopes, size: float, tolerance: float) -> GradientRow:
    gradient = to_numpy(leaf.gradient)
    if gradient.size == 0:
        return GradientRow(leaf.path, (), 0.0, 0.0, 0.0, "pass", "has no entries")
    with np.errstate(all="ignore"):
        off = abs(gradient - found.value)
    off = np.where(np.isfinite(off), off, math.inf)
    error = np.divide(off, size, out=np.where(off > 0, math.inf, 0.0), where=size > 0)
    verdicts, notes = _entries(problem, leaf, found, gradient, off, size, tolerance)
    verdict = next(word for word in ("fail", "unsure", "kink", "pass") if (verdicts == word).any())
    index = _position(np.where(verdicts == verdict, error, -1.0))
    analytic, numeric, worst = (float(array[index]) for array in (gradient, found.value, error))
    return GradientRow(leaf.path, index, analytic, numeric, worst, verdict, _joined(*notes))


def _entries(
    problem: _Problem,
    leaf: _Leaf,
    found: _Slopes,
    gradient: NDArray[np.float64],
    off: NDArray[np.float64],
    size: float,
    tolerance: float,
) -> tuple[NDArray[Any], list[str]]:
    """A verdict for every entry, and what is to be said about them.

    Right where the two agree and the doubt is small, wrong where they differ by more than the doubt
    explains. What is left is looked at one by one.
    """
    finite = np.isfinite(gradient)
    right = finite & (off <= tolerance * size) & (found.doubt <= 100 * tolerance * size)
    right |= (gradient == 0) & (size == 0) & (off <= found.doubt)
    wrong = ~finite | (~right & (off > 100 * found.doubt))
    verdicts = np.where(wrong, "fail", np.where(right, "pass", "unsure"))
    notes = [f"{(~finite).sum()} of {finite.size} not finite"] * (not finite.all())
    natures: dict[Any, str] = {}
    for index in map(tuple, np.argwhere(~right & ~wrong).tolist()):
        verdicts[index], natures[index] = _nature(
            _entry(problem, leaf, index), float(gradient[index]), _scale(leaf.x)
        )
    for index in _accidents(problem, leaf, gradient, found, np.where(wrong & finite, off, 0.0)):
        verdicts[index], natures[index] = "unsure", "too rough to judge, the steps do not agree"
    with np.errstate(all="ignore"):
        apart = off > 1e-5 * np.maximum(abs(gradient), abs(found.value))
    for index in map(tuple, np.argwhere(right & apart).tolist()):
        certain = _contradiction(_entry(problem, leaf, index), gradient, _scale(leaf.x) or 1.0)
        if certain:
            verdicts[index] = "fail" if certain > 1e-12 * size else "unsure"
            natures[index] = "it differs, but is too small beside the largest"
    return verdicts, notes + _told(verdicts, natures)


def _told(verdicts: NDArray[Any], natures: dict[Any, str]) -> list[str]:
    """How many entries are at a kink or cannot be judged, and what the first of them is like."""
    notes = []
    for verdict, words in (("kink", "at a kink"), ("unsure", "cannot be judged")):
        here = [index for index in natures if verdicts[index] == verdict]
        for index in here[:1]:
            notes.append(f"{len(here)} of {verdicts.size} {words}, first {_show(index)}: {natures[index]}")
    return notes


def _nature(entry: _Entry, gradient: float, scale: float) -> tuple[str, str]:
    """What keeps the steps from agreeing, seen from closer and closer by: the verdict, and why."""
    reference, seen = 0.0, []
    for h in (math.ldexp(scale or 1.0, -17 - 3 * k) for k in range(12)):
        right, left, noise = _sides(entry, h)
        moved, jump = float((abs(right) + abs(left)).sum()), float(abs(right - left).sum())
        if not math.isfinite(moved):
            return "unsure", "there is no finite value close to it"
        reference = max(reference, jump, 1e-6 * moved)
        if noise > 0.01 * reference:
            break
        seen.append((right, left, moved))
    if len(seen) < 2:
        return "unsure", "too small to judge, rounding hides it"
    (*coarse, moved_before), (*fine, moved) = seen[-2:]
    if moved > 1.1 * moved_before:
        return "unsure", "the value jumps" if moved > 6 * moved_before else "its slope grows without end"
    jump = float(abs(fine[0] - fine[1]).sum())
    spread = sum(float(abs(a - b).sum()) for a, b in zip(coarse, fine, strict=True))
    if jump < 0.5 * reference or spread > 0.05 * jump:
        return "unsure", "too rough to judge, the steps do not agree"
    low, high = (float(side(*fine).sum()) for side in (np.minimum, np.maximum))
    right_slope, left_slope = (float(side.sum()) + 0.0 for side in fine)
    words = f"slope {left_slope:.3g} on its left, {right_slope:.3g} on its right"
    return "kink" if low - 0.05 * jump <= gradient <= high + 0.05 * jump else "fail", words


def _accidents(
    problem: _Problem,
    leaf: _Leaf,
    gradient: NDArray[np.float64],
    first: _Slopes,
    off: NDArray[np.float64],
) -> Iterator[tuple[int, ...]]:
    """Entries that steps of other lengths do not find wrong; the first that they do ends the search."""
    while off.any():
        index = _position(off)
        found, scale, enough = _nothing_known(off.shape), _scale(leaf.x) or 1.0, 10 * first.doubt[index]
        _refine(_entry(problem, leaf, index), found, scale, 1.0, enough, first=0.36 * FIRST_STEP)
        if abs(gradient[index] - found.value[index]) > 100 * found.doubt[index]:
            return
        off[index] = 0.0
        yield index


def _sides(entry: _Entry, h: float) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """The right and the left quotient of every term of φ, and their noise."""
    (right, terms), (left, _) = (_rise(entry, step) for step in (h, -h))
    x = np.float64(entry.x)
    with np.errstate(all="ignore"):
        return right / ((x + h) - x), left / ((x - h) - x), _noise(terms) / h


def _contradiction(entry: _Entry, gradient: NDArray[np.float64], scale: float) -> float:
    """How far an entry that is too small for the tolerance is off, where its own differences are sure."""
    entry, found = entry._replace(depends=_depends(entry, scale)), _nothing_known(gradient.shape)
    _walk_down(entry, found, FIRST_STEP * (_scale(np.array(entry.x)) or scale), 0, math.inf)
    answer, value = abs(gradient[entry.index]), abs(found.value[entry.index])
    off = float(abs(gradient[entry.index] - found.value[entry.index]))
    return off if off > 1e-5 * max(answer, value) and found.doubt[entry.index] < 0.01 * off else 0.0


def _position(scores: Array) -> tuple[int, ...]:
    """Where the largest stands."""
    return tuple(map(int, np.unravel_index(np.argmax(scores), scores.shape)))


def _refuse(path: str, note: str) -> GradientRow:
    return GradientRow(path, (), math.nan, math.nan, math.inf, "fail", note)


# Printing

_HEAD = ("leaf", "worst", "analytic", "numeric", "error", "verdict", "note")


def _summary(report: GradientReport) -> str:
    n = len(report.rows)
    words = {"fail": "failed", "kink": "at a kink", "unsure": "cannot be judged"}
    counts = {word: sum(row.verdict == verdict for row in report.rows) for verdict, word in words.items()}
    parts = [f"{count} of {n} {word}" for word, count in counts.items() if count]
    return f"gradient check: {', '.join(parts) or f'all {n} passed'} (tolerance {report.tolerance:g})"


def _cells(row: GradientRow) -> tuple[str, ...]:
    numbers = (f"{row.analytic:.9g}", f"{row.numeric:.9g}", f"{row.error:.1e}")
    return (row.path, _show(row.index), *numbers, row.verdict, row.note)


def _show(index: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, index))}]" if index else "-"


def _aligned(table: list[tuple[str, ...]]) -> list[str]:
    """Words to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    sides = "<<>>><<"
    lines = (
        map(format, row, [f"{side}{width}" for side, width in zip(sides, widths, strict=True)])
        for row in table
    )
    return ["  ".join(line).rstrip() for line in lines]
