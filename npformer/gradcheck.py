"""Gradients by differences: is this backward pass the derivative of that forward? Knows no layer."""

from __future__ import annotations  # np.random.Generator in a signature would import numpy.random

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import getitem
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npformer.backend import Array, array_module, to_numpy
from npformer.signature import Rng, check_value
from npformer.validate import check_callable, check_number

FIRST_STEP = 2.0**-7  # halved at most to 2⁻²¹; powers of two, so that x + h rounds as little as it can
HALVINGS = 14
ROUNDING = 2.0**-40  # what the last bits of an output of size 1 can add to a slope at the first step


class GradientRow(NamedTuple):
    """One leaf of the arguments: its worst entry and the verdict on all of them."""

    path: str  # the leaf, such as params.W_1
    index: tuple[int, ...]  # type: ignore[assignment]  # its worst entry; shadows tuple.index
    analytic: float  # what the backward pass says there
    numeric: float  # what the differences say there
    error: float  # |analytic - numeric|, relative to the size of the leaf's gradient
    verdict: str  # "pass", "fail" or "kink"
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


def gradcheck(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    *args: Any,
    rng: np.random.Generator | None = None,
    tolerance: float = 1e-8,
    **kwargs: Any,
) -> GradientReport:
    """Compare backward(d_output, cache), entry by entry, with differences of forward(*args, **kwargs).

    With φ(x) = Σ d_output · forward(x) for one random d_output, dφ/dx is what the backward pass returns.
    The central differences D(h) = (φ(x + h) - φ(x - h)) / 2h at h, h/2 and h/4 are extrapolated to h = 0:
    R(h) = (4 D(h/2) - D(h)) / 3, then (16 R(h/2) - R(h)) / 15, which is off by O(h⁶). L. F. Richardson,
    "The Approximate Arithmetical Solution by Finite Differences …", 1911. While R(h/2) does not agree
    with the result, h is halved.

    Every floating array among args, and every tree of them, is differentiated; other args (ids, masks,
    settings) and kwargs are passed on. The backward pass returns one gradient for each, in order, as a
    tuple; a single one may come alone. A numpy.random.Generator is copied for every evaluation, so
    dropout sees one mask throughout. `rng` draws d_output (default_rng(0) unless given); a forward with
    an `rng` of its own is handed a copy of it.

    The report has one row for each array, with its worst entry, and is true when every row passes. An
    error is relative to the leaf's largest gradient, or to 1e-3 of the largest of all leaves if that is
    more, so that a gradient of zero can pass. "kink" is for entries that differences cannot judge: the
    left and right slopes differ at every step, as those of max(0, z) do at 0 and within 1e-6 of it.

    Raises TypeError for arrays that are not float64 and for a forward that returns no pair (output,
    cache), ValueError for values that are not finite and for a forward that is not repeatable. A gradient
    of the wrong shape, kind or dtype is no exception but a row that fails.

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
    places = [place for place, arg in enumerate(args) if any(_float_arrays("", arg))]
    for name, x in (pair for place in places for pair in _float_arrays(names[place], args[place])):
        _check_leaf(name, x)
    if not places:
        raise TypeError("gradcheck: no argument is a floating array or a tree of them: nothing to compare")

    problem, cache = _pose(forward, args, kwargs, rng or np.random.default_rng(0))
    gradients = backward(problem.d_output.copy(), cache)
    leaves = list(_pair(args, places, names, gradients))
    slopes = iter(_numeric_gradients(problem, [leaf for leaf in leaves if not leaf.note], tolerance))
    rows = [_refuse(leaf) if leaf.note else _judge(leaf, *next(slopes), tolerance) for leaf in leaves]
    return GradientReport(tuple(rows), tolerance)


# What is to be compared: the arguments' leaves, side by side with the gradients


class _Leaf(NamedTuple):
    path: str
    where: tuple[int, ...]  # the argument's place, then the way down its tree
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


def _is_float_array(x: Any) -> bool:
    return isinstance(x, array_module(x).ndarray) and x.dtype.kind == "f"


def _branches(path: str, tree: tuple[Any, ...]) -> list[str]:
    names = getattr(tree, "_fields", range(len(tree)))
    return [f"{path}.{name}" for name in names]


def _float_arrays(path: str, tree: Any) -> Iterator[tuple[str, Array]]:
    if isinstance(tree, tuple):
        for name, branch in zip(_branches(path, tree), tree, strict=True):
            yield from _float_arrays(name, branch)
    elif _is_float_array(tree):
        yield path, tree


def _check_leaf(path: str, x: Array) -> None:
    if x.dtype != np.float64:
        raise TypeError(
            f"gradcheck: {path} has dtype {x.dtype}; expected float64, because differences lose half of the "
            f"digits ({path}.astype(np.float64))"
        )
    if not array_module(x).isfinite(x).all():
        raise ValueError(f"gradcheck: {path} has entries that are not finite; there is no slope there")


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


def _walk(path: str, where: tuple[int, ...], x: Any, gradient: Any) -> Iterator[_Leaf]:
    if isinstance(x, tuple):
        if type(gradient) is not type(x) or len(gradient) != len(x):
            yield _Leaf(path, where, x, gradient, f"is {_kind(gradient)}, expected {_kind(x)}")
            return
        for i, name in enumerate(_branches(path, x)):
            yield from _walk(name, (*where, i), x[i], gradient[i])
    elif x is None and gradient is not None:
        yield _Leaf(path, where, x, gradient, f"is {_kind(gradient)}, expected None as the parameter is")
    elif _is_float_array(x):
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
    return f"{name} of {len(value)}" if isinstance(value, tuple | list) else name


# Slopes by differences


class _Problem(NamedTuple):
    forward: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Array
    d_output: Array


class _Slopes(NamedTuple):
    value: NDArray[np.float64]
    jump: NDArray[np.float64]  # right slope minus left slope
    doubt: NDArray[np.float64]  # how far the value may be off


def _pose(forward: Any, args: Any, kwargs: Any, rng: np.random.Generator) -> tuple[_Problem, Any]:
    """One evaluation with its cache, a d_output, and a second evaluation that must repeat the first."""
    output, cache = _evaluate(forward, _fresh(args), _fresh(kwargs))
    xp = array_module(output)
    output = xp.array(output)  # a copy: the caller's functions may write into theirs
    if not xp.isfinite(output).all():
        raise ValueError("gradcheck: forward's output has entries that are not finite; it has no slope there")
    d_output = xp.asarray(rng.standard_normal(output.shape))
    again, _ = _evaluate(forward, _fresh(args), _fresh(kwargs))
    if _norm(again - output) > 1e-9 * _norm(output):
        raise ValueError(
            "gradcheck: forward gives another output when it is called again; "
            "pass its numpy.random.Generator among the arguments"
        )
    return _Problem(forward, args, kwargs, output, d_output), cache


def _evaluate(forward: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, Any]:
    result = forward(*args, **kwargs)
    if not isinstance(result, tuple) or hasattr(result, "_fields") or len(result) != 2:
        raise TypeError(f"gradcheck: forward returned {_kind(result)}; expected a pair (output, cache)")
    if not isinstance(result[0], float) and getattr(result[0], "dtype", None) != np.float64:
        received = getattr(result[0], "dtype", _kind(result[0]))
        raise TypeError(f"gradcheck: forward's output is {received}; expected an array of float64")
    return result


def _norm(x: Array) -> float:
    return math.sqrt(float((x * x).sum()))


def _fresh(value: Any) -> Any:
    """A copy that forward may write into and draw from; settings and the like stay themselves."""
    if isinstance(value, tuple):
        branches = map(_fresh, value)
        return type(value)(*branches) if hasattr(value, "_fields") else tuple(branches)
    if isinstance(value, dict):
        return {name: _fresh(branch) for name, branch in value.items()}
    if isinstance(value, np.random.Generator):
        return copy.deepcopy(value)
    return value.copy() if isinstance(value, array_module(value).ndarray) else value


def _numeric_gradients(
    problem: _Problem, leaves: list[_Leaf], tolerance: float
) -> list[tuple[_Slopes, float]]:
    """The slopes of every leaf, each with the size against which its errors are measured."""
    rounding = ROUNDING * _norm(problem.d_output * problem.output)
    empty = math.nan, math.nan, math.inf
    slopes = [_Slopes(*(np.full(leaf.x.shape, number) for number in empty)) for leaf in leaves]
    for leaf, found in zip(leaves, slopes, strict=True):
        for index in np.ndindex(leaf.x.shape):
            _refine(problem, leaf, found, index, math.inf)
    for leaf, found, size in zip(leaves, slopes, _sizes(slopes, problem.d_output), strict=True):
        enough = max(0.01 * tolerance * size, rounding)
        for place in np.argwhere(found.doubt > enough):
            _refine(problem, leaf, found, tuple(map(int, place)), enough)
    return list(zip(slopes, _sizes(slopes, problem.d_output), strict=True))


def _sizes(slopes: list[_Slopes], d_output: Array) -> list[float]:
    """max(largest slope of the leaf, 1e-3 of the largest of all leaves), slopes in much doubt left out.

    When no slope reaches a millionth of d_output, all are zero for what differences can tell, and the size
    is d_output's own.
    """
    sure = [np.where(s.doubt < 0.1 * abs(s.value), abs(s.value), 0.0) for s in slopes]
    largest = [float(slope.max(initial=0.0)) for slope in sure]
    whole, unit = max(largest, default=0.0), _norm(d_output) or 1.0
    return [max(own, 1e-3 * whole) if whole > 1e-6 * unit else unit for own in largest]


def _refine(problem: _Problem, leaf: _Leaf, found: _Slopes, index: tuple[int, ...], enough: float) -> None:
    """Estimate one slope with smaller and smaller steps until its doubt is small enough; keep the best."""
    x = float(leaf.x[index])
    h = math.ldexp(FIRST_STEP, math.frexp(max(1.0, abs(x)))[1] - 1)  # times |x|, as a power of two
    right: list[float] = []
    left: list[float] = []
    for step in (math.ldexp(h, -halvings) for halvings in range(HALVINGS + 1)):
        right.append(_quotient(problem, leaf.where, index, x, step))
        left.append(_quotient(problem, leaf.where, index, x, -step))
        if len(right) < 3:
            continue
        estimate = _extrapolate(right[-3:], left[-3:])
        if estimate[-1] < found.doubt[index]:  # never for NaN
            for array, number in zip(found, estimate, strict=True):
                array[index] = number
        if found.doubt[index] <= enough:
            return


def _quotient(
    problem: _Problem, where: tuple[int, ...], index: tuple[int, ...], x: float, step: float
) -> float:
    """(φ(x + step) - φ(x)) / step. Outputs are subtracted before they are summed: less cancels."""
    args = _fresh(problem.args)
    reduce(getitem, where, args)[index] = x + step
    with np.errstate(all="ignore"):  # x + step may lie outside of the function's domain, where x does not
        output, _ = _evaluate(problem.forward, args, _fresh(problem.kwargs))
        rise = float((problem.d_output * (output - problem.output)).sum())
    return rise / ((x + step) - x)  # the step as it was after rounding


def _extrapolate(right: list[float], left: list[float]) -> tuple[float, float, float]:
    """Slope, jump and doubt at h = 0 from the right and left quotients at h, h/2, h/4.

    The mean of the two is the central difference, with errors in h², h⁴, …; their difference is the jump,
    with errors in h, h³, … Each round of Richardson's takes away the lowest power.
    """
    means = [(up + down) / 2 for up, down in zip(right, left, strict=True)]
    jumps = [up - down for up, down in zip(right, left, strict=True)]
    coarse, fine = (4 * means[1] - means[0]) / 3, (4 * means[2] - means[1]) / 3
    slope = (16 * fine - coarse) / 15
    jump = (8 * (2 * jumps[2] - jumps[1]) - (2 * jumps[1] - jumps[0])) / 7
    return slope, jump, max(abs(slope - fine), abs(jump))


# Verdicts


def _judge(leaf: _Leaf, slopes: _Slopes, size: float, tolerance: float) -> GradientRow:
    gradient = to_numpy(leaf.gradient)
    if gradient.size == 0:
        return GradientRow(leaf.path, (), 0.0, 0.0, 0.0, "pass", "has no entries")
    finite = np.isfinite(gradient)
    off = abs(gradient - slopes.value)
    off = np.where(np.isfinite(off), off, math.inf)
    error = off / size
    # right if the two agree and the doubt is small, wrong if they differ by more than the doubt explains
    agree = (error <= tolerance) & (slopes.doubt <= 100 * tolerance * size)
    kinks = finite & ~agree & (off <= 100 * slopes.doubt)
    wrong = ~kinks & (error > tolerance)
    verdict = "fail" if wrong.any() else "kink" if kinks.any() else "pass"
    among = {"fail": wrong, "kink": kinks, "pass": ~wrong}[verdict]
    index = _position(np.where(among, error, -1.0))
    notes = [f"{(~finite).sum()} of {finite.size} not finite"] * (not finite.all())
    notes += [_kink_note(slopes, kinks)] * bool(kinks.any())
    analytic, numeric, worst = (float(array[index]) for array in (gradient, slopes.value, error))
    return GradientRow(leaf.path, index, analytic, numeric, worst, verdict, "; ".join(notes))


def _position(scores: Array) -> tuple[int, ...]:
    """Where the largest stands."""
    return tuple(map(int, np.unravel_index(np.argmax(scores), scores.shape)))


def _kink_note(slopes: _Slopes, kinks: Array) -> str:
    first = _position(kinks)
    value, half = slopes.value[first], slopes.jump[first] / 2
    return (
        f"{kinks.sum()} of {kinks.size} at a kink or too rough to judge, first {_show(first)}: "
        f"slope {value - half:.3g} on its left, {value + half:.3g} on its right"
    )


def _refuse(leaf: _Leaf) -> GradientRow:
    return GradientRow(leaf.path, (), math.nan, math.nan, math.inf, "fail", leaf.note)


# Printing

_HEAD = ("leaf", "worst", "analytic", "numeric", "error", "verdict", "note")


def _summary(report: GradientReport) -> str:
    n = len(report.rows)
    failed, kinks = (sum(row.verdict == verdict for row in report.rows) for verdict in ("fail", "kink"))
    parts = [f"{failed} of {n} failed"] * bool(failed) + [f"{kinks} of {n} at a kink"] * bool(kinks)
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
