"""Calls of a forward and a backward: what goes in, which gradient belongs to which array, what they spoil."""

import copy
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from npformer.arrays import copied, in_kind_of, kind_of_number, to_host
from npformer.gradcheck.finite_differences import HALF, SLACK, Floats
from npformer.gradcheck.relations import size
from npformer.tree import branch_name, branches, end_replaced, ends, ends_mapped


class Leaf(NamedTuple):
    """A floating array among the arguments with its gradient, or a branch whose gradient has another form."""

    path: str
    where: tuple[Any, ...] = ()  # the way down to it, from all arguments
    x: Any = None
    gradient: Any = None  # on the host, as float64
    note: str = ""  # why the two cannot be compared


class Fault(NamedTuple):
    """A fault of forward or backward that belongs to no single array."""

    path: str  # of its row in the report
    text: str


class Calls:
    """Forward and backward at these arguments, what their first calls returned, and forward near by."""

    def __init__(self, forward: Any, backward: Any, args: Any, kwargs: Any, rng: Any):
        self.forward, self.backward = forward, backward
        self.args, left = _by_name(forward, args)
        its_own = rng is not None and "rng" in left
        self.kwargs = {**kwargs, "rng": copy.deepcopy(rng)} if its_own else kwargs
        rng = rng or np.random.default_rng(0)
        self.raised = ""  # by forward near by
        _check_arguments(self.args, kwargs)
        given = _fresh(self.args)
        self.returned, self.cache = self.call(given)
        self.first = np.array(_floats(self.returned))
        self.faults = _changes("forward", "forward writes into its arguments", self.args, given)
        self.d_output = np.asarray(rng.standard_normal(self.first.shape)).astype(self.first.dtype)
        self.draws = np.random.default_rng(rng.integers(2**32))
        self.cache_before, dy = _fresh(self.cache), in_kind_of(self.returned, self.d_output.copy())
        self.answer = backward(dy, self.cache)
        self.gradients = _fresh(self.answer)  # now: it may be a view of what is written later
        self.faults += _changes("backward", "backward writes into d_output", self.d_output, dy)
        self.faults += _changes("backward", "backward writes into its cache", self.cache_before, self.cache)
        self.leaves = {leaf.where: leaf for leaf in _paired(self.args, self.gradients)}
        self.widen()
        self.rounding = self.narrowed() if self.first.dtype != float else {}

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
        if size(again - self.output) > HALF * size(self.output):
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

    def answers(self, args: dict[str, Any], d_output: Any, *cache: Any) -> dict[Any, Leaf]:
        """The gradients of a backward pass from this cache, or from that of a forward pass of its own."""
        (cache,) = cache or self.call(_fresh(args))[1:]
        gradients = self.backward(in_kind_of(self.returned, np.array(d_output)), cache)
        return {leaf.where: leaf for leaf in _paired(args, _fresh(gradients))}

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

    def narrowed(self) -> dict[Any, float]:
        """How far float32 may have moved each gradient: SLACK times what sets it apart from the same
        backward's in float64, and SLACK roundings at least."""
        found, exact = {}, self.leaves
        with suppress(Exception):  # functions that take float32 only
            exact = self.answers(self.wide, self.d_output.astype(float))
        for where, leaf in self.leaves.items():
            g, wide = (np.asarray(x.gradient, float) for x in (leaf, exact.get(where, leaf)))
            off = size(g - wide) if g.shape == wide.shape else 0.0
            found[where] = SLACK * max(float(np.finfo(np.float32).eps) * size(g), off)
        return found

    def again(self, factor: float) -> dict[Any, Leaf] | None:
        """Backward's gradients for a multiple of d_output, for the first d_output from the first cache; None
        where they are of no use, and why is among the faults. Forward has been called with other arguments.
        """
        try:
            again = self.answers(self.args, factor * self.d_output, *[self.cache][: factor == 1])
        except Exception as error:
            text = f"backward raises {type(error).__name__} when it is called again: {error}"
            self.faults.append(Fault("backward", text))
            return None
        text = "backward returns a buffer that its next call overwrites"
        faults = _changes("backward", text, self.gradients, self.answer)
        self.faults += sorted({*faults} - {*self.faults})
        return None if faults else again

    def spoilt(self) -> None:
        """Note what calls of forward with other arguments have done to what the first one returned."""
        returned = "forward returns a buffer that its next call overwrites"
        cache = "forward's next call writes into the cache of the last one"
        if not self.faults:
            self.faults = _changes("forward", returned, self.first, self.returned)
        if not self.faults:
            self.faults = _changes("forward's", cache, self.cache_before, self.cache)


# What goes in, and what is to be compared: the arguments' leaves, side by side with the gradients


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


def arrays_in(tree: Any, kinds: str) -> Iterator[tuple[str, Any]]:
    """The arrays of these kinds of number, with their paths."""
    return ((path[1:], x) for path, x in ends("", tree) if kind_of_number(x) in kinds)


def _check_arguments(args: dict[str, Any], kwargs: dict[str, Any]) -> None:
    """Refuse by name what would be left out in silence."""
    for path, _ in arrays_in(kwargs, "fc"):
        raise TypeError(
            f"gradcheck: {path} is a floating array given by keyword, where no gradient is compared; "
            f"pass it by position, or hold it fixed: functools.partial(forward, {path.split('.')[0]}=...)"
        )
    for path, x in arrays_in(args, "-iub"):
        hidden = {} if isinstance(x, type | ModuleType) else getattr(x, "__dict__", {})
        for name in (name for name, value in hidden.items() if any(arrays_in(value, "fc"))):
            raise TypeError(
                f"gradcheck: {path}.{name} is a floating array inside a {type(x).__name__}, where no "
                "gradient is compared; expected arrays, or tuples, lists and dicts of them"
            )
    for path, x in arrays_in(args, "fc"):
        if str(x.dtype).split(".")[-1] not in ("float64", "float32"):
            raise TypeError(f"gradcheck: {path} has dtype {x.dtype}; expected float64 or float32")
        if isinstance(x, np.ma.MaskedArray | np.matrix):
            raise TypeError(f"gradcheck: {path} is a {type(x).__name__}; expected a plain array")
        if not np.isfinite(to_host(x)).all():
            raise ValueError(f"gradcheck: {path} has entries that are not finite; there is no slope there")
    if not any(arrays_in(args, "fc")):
        raise TypeError("gradcheck: no argument is a floating array or a tree of them: nothing to compare")


def _paired(args: dict[str, Any], gradients: Any) -> Iterator[Leaf]:
    """Each leaf of the arguments with its gradient."""
    names = [name for name, arg in args.items() if any(arrays_in(arg, "f"))]
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
    parts, kind, expected = branches(x) or {}, _kind(gradient), _kind(x)
    if kind_of_number(x) == "f":
        yield _compared(path, where, x, gradient)
    elif kind == expected:
        for (key, part), answer in zip(parts.items(), (branches(gradient) or {}).values(), strict=True):
            name = f"{path}.{branch_name(x, key)}".removeprefix(".")
            yield from _walk(name, (*where, key), part, answer)
    elif x is None or any(arrays_in(x, "f")):
        yield Leaf(path, where, note=f"is {kind}, expected {expected}")


def _compared(path: str, where: tuple[Any, ...], x: Any, gradient: Any) -> Leaf:
    if kind_of_number(gradient) == "-" and not isinstance(gradient, np.generic):
        expected = f"an array of shape {tuple(x.shape)}"
        return Leaf(path, where, x, note=f"is {_kind(gradient)}, expected {expected}")
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


# Copies, and what has changed since


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


def _changes(path: str, text: str, before: Any, after: Any) -> list[Fault]:
    """Return a fault for each array in which two trees differ by a bit."""
    then, now = (dict(ends("", tree)) for tree in (before, after))
    pairs = {place[1:]: (then.get(place), now.get(place)) for place in then | now}
    differ = [
        place
        for place, pair in pairs.items()
        if {*map(kind_of_number, pair)} != {"-"} and _bits(pair[0]) != _bits(pair[1])
    ]
    return [Fault(path, f"{text} ({place})" if place else text) for place in differ]


def _bits(x: Any) -> Any:
    host = to_host(x)
    return host.dtype, host.shape, host.tobytes()
