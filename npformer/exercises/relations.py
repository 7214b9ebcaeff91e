"""Relations between an answer and the right one that no list of mistakes is needed for.

A relation counts only where it holds on every probe to the last digits. Each comes with the question that
follows from it, and none tells a number of the right answer.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, combinations, permutations
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.exercises.probe import Trial, size

EXACT = 2e-5  # of the largest number: float32 answers are looked at too


class Seen(NamedTuple):
    """An observation about one output, `{it}` in the text, and the question that follows."""

    says: str
    asks: str


def close(a: Array, b: Array) -> bool:
    """Equal to the last digits that float32 has."""
    if a.shape != b.shape:
        return False
    with np.errstate(all="ignore"):
        return bool(np.allclose(a, b, rtol=0, atol=EXACT * size(b), equal_nan=True))


def holds(view: Trial, made: Callable[[Array], Array]) -> bool:
    """Whether the answer is what `made` makes of the right one, on every probe."""
    try:
        return all(close(a, np.asarray(made(b), float)) for a, b in zip(view.found, view.right, strict=True))
    except (ValueError, IndexError):
        return False


def tried(look: Callable[..., Any], *args: Any) -> Any:
    """What a look sees; nothing where an answer of an odd shape makes it stumble."""
    try:
        return look(*args)
    except (ValueError, TypeError, IndexError, ArithmeticError, np.linalg.LinAlgError):
        return None


# --- form ------------------------------------------------------------------------------------------


def no_entries(view: Trial) -> Seen | None:
    """An array without a single entry."""
    empty = [a for a, b in zip(view.found, view.right, strict=True) if b.size and not a.size]
    if not empty:
        return None
    return Seen(f"{{it}} has no entries: its shape is {empty[0].shape}.", "Which line fills it?")


def coarse(view: Trial) -> Seen | None:
    """The right numbers, as the few digits of float16 give them."""
    pairs = list(zip(view.found, view.right, strict=True))
    if any(a.shape != b.shape or not np.isfinite(a).all() for a, b in pairs):
        return None
    with np.errstate(over="ignore"):
        if not all(np.array_equal(a.astype(np.float16), a) for a, _ in pairs):
            return None
    if any(np.abs(a - b).max(initial=0) > 2e-3 * size(b) for a, b in pairs):
        return None
    return Seen(
        "{it} is right to about three digits; its numbers are those of float16.",
        "Which type have the arrays, and how many digits does it hold?",
    )


def nothing_finite(view: Trial) -> Seen | None:
    """Not one number: nothing can be compared."""
    if any(
        np.isfinite(a).any() or not np.isfinite(b).all() for a, b in zip(view.found, view.right, strict=True)
    ):
        return None
    return Seen("{it} is NaN or infinite everywhere.", _NOT_FINITE)


def not_finite(view: Trial) -> Seen | None:
    """NaN or infinities among the numbers."""
    pairs = [(a, b) for a, b in zip(view.found, view.right, strict=True) if a.shape == b.shape]
    bad = [(a, ~np.isfinite(a) & np.isfinite(b)) for a, b in pairs]
    found = next(((a, places) for a, places in bad if places.any()), None)
    if found is None:
        return None
    what = "NaN" if np.isnan(found[0][found[1]]).any() else "infinite"
    where = _where(found[1])
    rest = all(close(np.where(p, 0, a), np.where(p, 0, b)) for (a, p), (_, b) in zip(bad, pairs, strict=True))
    others = "; all other numbers agree" * rest
    return Seen(f"{{it}} is {what} where a number is asked for{where}{others}.", _NOT_FINITE)


def only_not_finite(view: Trial) -> Seen | None:
    """NaN or infinities among numbers that are right."""
    seen = not_finite(view)
    return seen if seen and "all other numbers agree" in seen.says else None


def _where(bad: Array) -> str:
    """Where something stands: in whole columns, or from which place on."""
    if bad.ndim == 0:
        return ""
    columns = bad.reshape(-1, bad.shape[-1])
    whole = [str(j) for j in range(columns.shape[1]) if columns[1:, j].all()]  # row 0 may be another case
    if (
        bad.ndim == 2
        and len(bad) > 2
        and whole
        and not np.delete(columns, list(map(int, whole)), axis=1).any()
    ):
        return f", in column{'s' * (len(whole) > 1)} {' and '.join(whole)}"
    return f", first at {tuple(int(i) for i in np.argwhere(bad)[0])}"


_NOT_FINITE = "Which line divides by 0, or takes a root, a logarithm or exp of what has none?"


def zeros(view: Trial) -> Seen | None:
    """Nothing but zeros."""
    if any(a.size == 0 or a.any() for a in view.found):
        return None
    return Seen("{it} is 0 everywhere.", "Which line fills it, and is that line reached?")


def other_axes(view: Trial) -> Seen | None:
    """The right numbers with other axes: of length 1, transposed, flattened."""
    ndim = view.right[0].ndim
    if all(a.shape != b.shape and a.size == b.size for a, b in zip(view.found, view.right, strict=True)):
        if _squeezed(view):
            return Seen(
                "The numbers of {it} are right; it has an axis of length 1 too many: "
                f"its shape is {view.found[0].shape}.",
                "Which line makes this axis, and how many axes are asked for?",
            )
    for order in list(permutations(range(ndim)))[1:]:
        if holds(view, partial(np.transpose, axes=order)):
            how = "transposed" if ndim == 2 else f"transposed: its axes stand in the order {order}"
            return Seen("The numbers of {it} are right, " + f"{how}.", "Which axis is to stand first?")
    if holds(view, np.ravel):
        return Seen(
            "The numbers of {it} are right, flattened into one row.",
            "Which shape is asked for, axis by axis?",
        )
    if all(a.shape != b.shape and a.size == b.size for a, b in zip(view.found, view.right, strict=True)):
        if all(close(a.ravel(), b.ravel()) for a, b in zip(view.found, view.right, strict=True)):
            return Seen(
                f"The numbers of {{it}} are right; its shape is {view.found[0].shape}: axes are flattened.",
                "Which shape is asked for, axis by axis?",
            )
    return None


def _squeezed(view: Trial) -> bool:
    return all(
        a.squeeze().shape == b.squeeze().shape and close(a.squeeze(), b.squeeze())
        for a, b in zip(view.found, view.right, strict=True)
    )


def _axes(ndim: int) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(range(ndim), n) for n in range(1, ndim + 1))


_HOWS: dict[str, Callable[..., Any]] = {"sum": np.sum, "mean": np.mean}


def reduced(view: Trial) -> Seen | None:
    """A sum that is missing, or one too many."""
    for how, f in _HOWS.items():
        for axes in _axes(view.found[0].ndim):
            if holds(view._replace(found=view.right, right=view.found), partial(f, axis=axes)):
                return Seen(
                    f"{{it}} has the shape {view.found[0].shape}, with axes too many: the {how} over axis "
                    f"{_listed(axes)} agrees. No {how} over the rows is taken yet.",
                    "Over which axes is one number of it shared?",
                )
        for axes in _axes(view.right[0].ndim):
            if holds(view, partial(f, axis=axes)) or holds(view, partial(f, axis=axes, keepdims=True)):
                return Seen(
                    f"{{it}} is the {how} of the right numbers over axis {_listed(axes)}, which should stay.",
                    "Which axes are to be left when the line is done?",
                )
    return None


def _listed(axes: tuple[int, ...]) -> str:
    return " and ".join(map(str, axes))


def short(view: Trial) -> Seen | None:
    """Rows missing or too many, in another order, or one entry of an axis alone."""
    for axis in range(view.right[0].ndim):
        name = _entries(axis, view.right[0].ndim)
        for words, made in _cuts(axis):
            if holds(view, made):
                return Seen(
                    "{it}: " + words.format(name), f"How many entries has axis {axis}, and in which order?"
                )
        for end, cut in (("the last", slice(None, -1)), ("the first", slice(1, None))):
            if holds(view._replace(found=view.right, right=view.found), partial(_slice, axis=axis, cut=cut)):
                return Seen(
                    f"{{it}} has one too many {name}, {end}.", "Where does the counting begin and end?"
                )
        if end := _end_that_is_right(view, axis):
            return Seen(
                f"{{it}} has too many {name}; the {end} of them are right.",
                f"Which of the {name} are asked for?",
            )
    return None


def _end_that_is_right(view: Trial, axis: int) -> str:
    """Which end of an axis that is too long holds the right numbers: "first", "last" or ""."""
    pairs = list(zip(view.found, view.right, strict=True))
    if any(a.ndim != b.ndim or a.shape[axis] < b.shape[axis] for a, b in pairs):
        return ""
    more = [(a.shape[axis] - b.shape[axis], a, b) for a, b in pairs]
    if all(close(_slice(a, axis, slice(n, None)), b) for n, a, b in more):
        return "last"
    kept = ((a, b, b.shape[axis]) for a, b in pairs)
    return "first" if all(close(_slice(a, axis, slice(None, n)), b) for a, b, n in kept) else ""


def _entries(axis: int, ndim: int) -> str:
    """What stands along an axis, in the plural."""
    if ndim > 1 and axis == ndim - 1:
        return "columns"
    return "rows" if axis >= ndim - 2 else f"entries of axis {axis}"


def _slice(array: Array, axis: int, cut: Any) -> Array:
    return array[(slice(None),) * axis + (cut,)]


def _cuts(axis: int) -> Iterator[tuple[str, Callable[[Array], Array]]]:
    yield "one short of its {0}, the last is missing.", partial(_slice, axis=axis, cut=slice(None, -1))
    yield "one short of its {0}, the first is missing.", partial(_slice, axis=axis, cut=slice(1, None))
    yield "only the first of the {0} came back.", partial(_slice, axis=axis, cut=0)
    yield "only the first of the {0} came back.", partial(_slice, axis=axis, cut=slice(0, 1))
    yield "only the last of the {0} came back.", partial(_slice, axis=axis, cut=-1)
    yield "only every second of the {0} is there.", partial(_slice, axis=axis, cut=slice(None, None, 2))
    yield "the numbers are right, and the {0} stand in the reverse order.", partial(np.flip, axis=axis)
    yield (
        "the {0} stand one place too late: the last comes first.",
        partial(np.roll, shift=1, axis=axis),
    )
    yield "the {0} stand one place too early: the first comes last.", partial(np.roll, shift=-1, axis=axis)


def truths(view: Trial) -> Seen | None:
    """True and False: exchanged, True everywhere, or which of the two stands where it should not."""
    pairs = list(zip(view.found, view.right, strict=True))
    if any(a.shape != b.shape or a.size < 2 or not _two_valued(b) for a, b in pairs):
        return None
    if all(((b == 1) == (a == 0)).all() and (a[b == 0] <= -1e4).all() for a, b in pairs):
        return Seen(
            "{it} is 0 where True is asked for, and far below 0 where False is.",
            "Is it to be added, or to be True and False?",
        )
    if not all(_two_valued(a) for a, _ in pairs):
        return None
    if all((a == 1 - b).all() for a, b in pairs):
        return Seen("{it} has True and False exchanged.", "Which of the two stands for what may be seen?")
    if all(a.all() for a, _ in pairs):
        return Seen("{it} is True everywhere.", "What is to be hidden, and from whom?")
    return _shown_or_hidden(pairs)


def _two_valued(array: Array) -> bool:
    return bool(np.isin(array, (0, 1)).all())


def _shown_or_hidden(pairs: list[tuple[Array, Array]]) -> Seen:
    shown = [tuple(map(int, place)) for a, b in pairs for place in np.argwhere(a > b)]
    hidden = [tuple(map(int, place)) for a, b in pairs for place in np.argwhere(a < b)]
    said = [f"True stands where False is asked for, first at {shown[0]}"] if shown else []
    said += [f"False stands where True is asked for, first at {hidden[0]}"] if hidden else []
    only = "" if len(said) > 1 else "; elsewhere the two agree"
    row, column = (shown + hidden)[0][-2:] if len((shown + hidden)[0]) > 1 else ("", "")
    asks = f"May row {row} see column {column}: which of the two stands later in the text?"
    return Seen(f"{{it}}: {', and '.join(said)}{only}.", asks)


# --- something else that the solution holds --------------------------------------------------------


def landmark(view: Trial) -> Seen | None:
    """The answer is an argument, or what another line of the solution holds."""
    things = {f"the argument {name} itself": partial(_pick, name) for name in view.arguments[0]}
    things |= {name: partial(_called, f) for name, f in view.landmarks.items()}
    for name, thing in things.items():
        pairs = zip(view.found, view.arguments, strict=True)
        if all(
            isinstance(t := thing(args), np.ndarray | np.generic) and close(a, np.asarray(t))
            for a, args in pairs
        ):
            return Seen(
                f"What came back for {{it}} is {name}.", "Which step lies between this and what is asked for?"
            )
    return None


def _pick(name: str, arguments: dict[str, Any]) -> Any:
    return arguments[name]


def _called(f: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    with np.errstate(all="ignore"):
        return f(*arguments.values())


# --- one number between the two --------------------------------------------------------------------


def factor(view: Trial) -> Seen | None:
    """One constant factor a probe, and its name."""
    ratios = [ratio(a, b) for a, b in zip(view.found, view.right, strict=True)]
    if not all(ratios):
        return None
    name = named_factor([r for r in ratios if r], view.sizes)
    if not name and (seen := _factor_of_a_landmark(view)) is not None:
        return seen
    if name == "-1":
        return Seen(
            "{it} has the opposite sign everywhere: it is -1 times what is asked for.",
            "Where does a minus stand?",
        )
    if not name:
        alone = any(b.size < 2 for b in view.right)
        return (
            None
            if alone
            else Seen("{it} is right up to one factor in each call.", "Which size does this factor follow?")
        )
    return Seen(
        f"{{it}} is off by one constant factor and right otherwise: it is multiplied by {name}.",
        "Where is this factor used, and how often should it be?",
    )


def _factor_of_a_landmark(view: Trial) -> Seen | None:
    for words, thing in view.landmarks.items():
        pairs = zip(view.found, view.arguments, strict=True)
        ratios = [ratio(a, np.asarray(_called(thing, args))) for a, args in pairs]
        name = named_factor([r for r in ratios if r], view.sizes) if all(ratios) else ""
        if name:
            asks = "What is asked for instead, and which factor belongs to it?"
            if _proportional_to(view, thing):
                asks = "Which factor is asked for, and which size does it follow?"
            return Seen(f"{{it}} is {words}, multiplied by {name}.", asks)
    return None


def _proportional_to(view: Trial, thing: Callable[..., Any]) -> bool:
    """Whether the right answer is a multiple of it, too."""
    pairs = zip(view.right, view.arguments, strict=True)
    return all(b.size > 1 and ratio(b, np.asarray(_called(thing, args))) for b, args in pairs)


def ratio(a: Array, b: Array) -> float | None:
    """The number c with a = c b, or None."""
    if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()) or not b.any():
        return None
    c = float((a * b).sum() / (b * b).sum())
    return c if c and np.abs(a - c * b).max() <= EXACT * abs(c) * float(np.abs(b).max()) else None


CONSTANTS = {
    "1": 1.0,
    "2": 2.0,
    "1/2": 0.5,
    "-2": -2.0,
    "1/log 2, as a logarithm of base 2 would be": 1 / math.log(2),
    "log 2": math.log(2),
    "1/log 10, as a logarithm of base 10 would be": 1 / math.log(10),
    "√2": 2**0.5,
    "1/√2": 0.5**0.5,
    "2π": 2 * math.pi,
    "π/180, degrees for radians": math.pi / 180,
    "π": math.pi,
}


def named_factor(ratios: list[float], sizes: tuple[dict[str, int], ...]) -> str:
    """What a factor is: a size, a root of one, a product of two, a constant; "about 0.125"; or ""."""
    candidates: dict[str, list[float]] = {name: [value] * len(ratios) for name, value in CONSTANTS.items()}
    for name, values in _sizes(sizes).items():
        candidates |= {
            name: values,
            f"1/({name})" if " " in name else f"1/{name}": [1 / v for v in values],
            f"√({name})" if " " in name else f"√{name}": [v**0.5 for v in values],
            f"1/√({name})" if " " in name else f"1/√{name}": [v**-0.5 for v in values],
            f"{name}/({name} - 1)": [v / max(v - 1, 0.5) for v in values],
            f"√({name}/({name} - 1))": [(v / max(v - 1, 0.5)) ** 0.5 for v in values],
            f"√(({name} - 1)/{name})": [(max(v - 1, 0.5) / v) ** 0.5 for v in values],
        }
    for name, values in candidates.items():
        for sign, minus in ((1, ""), (-1, "-")):
            if np.allclose(ratios, [sign * v for v in values], rtol=1e-4, atol=0):
                return minus + name
    return (
        f"about {ratios[0]:.3g}, whatever the sizes are" if np.allclose(ratios, ratios[0], rtol=1e-4) else ""
    )


def _sizes(sizes: tuple[dict[str, int], ...]) -> dict[str, list[float]]:
    single = {name: [float(s[name]) for s in sizes] for name in sizes[0]}
    single = {name: values for name, values in single.items() if min(values) > 0}
    double = {
        f"{a} · {b}": [x * y for x, y in zip(single[a], single[b], strict=True)]
        for a, b in combinations(single, 2)
    }
    return single | double


# --- a function of the right answer ----------------------------------------------------------------

FUNCTIONS: dict[str, tuple[Callable[[Array], Any], str]] = {
    "its logarithm is right: what came back is the log of what is asked for": (
        np.log,
        "Is the number asked for, or its logarithm?",
    ),
    "it is e to the power of what is asked for": (np.exp, "Where does exp stand, and is it wanted there?"),
    "each number is the square of the right one": (np.square, "Where is something multiplied by itself?"),
    "each number is the root of the right one": (
        lambda b: np.sqrt(np.where(b < 0, np.nan, b)),
        "Where does a root stand?",
    ),
    "each number is one over the right one": (lambda b: 1 / b, "What is divided by what?"),
    "each number is 1 less the right one": (lambda b: 1 - b, "Which of the two cases is asked for?"),
    "each number is the absolute value of the right one: signs are lost": (
        np.abs,
        "Where does a sign get lost?",
    ),
    "the largest number of each row became 1, the others 0": (
        lambda b: 1.0 * (b == b.max(axis=-1, keepdims=True)),
        "Is one winner asked for, or a share for each?",
    ),
    "the numbers are cut to whole ones, as in an array of integers": (
        np.trunc,
        "Which type has the array that holds them?",
    ),
    "the numbers are rounded to whole ones": (np.round, "Where is anything rounded?"),
    "the numbers are rounded to one decimal": (partial(np.round, decimals=1), "Where is anything rounded?"),
    "the numbers are rounded to two decimals": (partial(np.round, decimals=2), "Where is anything rounded?"),
    "the numbers are rounded to three decimals": (
        partial(np.round, decimals=3),
        "Where is anything rounded?",
    ),
    "the numbers of each row are sorted": (lambda b: np.sort(b, axis=-1), "Where is anything sorted?"),
    "the numbers are added up from row to row": (
        lambda b: np.cumsum(b, axis=-2),
        "Where is a running sum taken?",
    ),
    "the numbers are added up along each row": (
        lambda b: np.cumsum(b, axis=-1),
        "Where is a running sum taken?",
    ),
}


def cut_at_zero(view: Trial) -> Seen | None:
    """The right numbers, with the negative ones cut off at 0."""
    if not holds(view, partial(np.maximum, 0)):
        return None
    says = "{it}: numbers below 0 are cut off at 0, the others are right."
    return Seen(says, "How often is anything cut at 0?")


def function_of(view: Trial) -> Seen | None:
    """A known function of the right answer."""
    for says, (made, asks) in FUNCTIONS.items():
        with np.errstate(all="ignore"):
            if holds(view, made) and _tells(view):
                return Seen(f"{{it}}: {says}.", asks)
    return None


def _tells(view: Trial) -> bool:
    """Whether most answers hold two numbers at least: one number alone fits many relations."""
    plain = [a.size > 1 and np.unique(a).size < 2 for a in view.found]
    return 2 * sum(plain) < len(plain)


# --- something added or multiplied -----------------------------------------------------------------

_TIMES = {1.0: "", -1.0: "-", 2.0: "2 times ", -2.0: "-2 times ", 0.5: "half of ", -0.5: "minus half of "}


def added(view: Trial) -> Seen | None:
    """The right answer plus a constant, an argument, or a number for each row."""
    if any(a.shape != b.shape for a, b in zip(view.found, view.right, strict=True)):
        return None
    rest = [a - b for a, b in zip(view.found, view.right, strict=True)]
    if not all(np.isfinite(r).all() for r in rest):
        return None
    for name in view.arguments[0]:
        for times, words in _TIMES.items():
            if all(_is(r, times, args[name]) for r, args in zip(rest, view.arguments, strict=True)):
                return _added(name, times, words)
    if any(r.size < 2 for r in rest):
        return None
    for name in view.arguments[0]:
        if all(_multiple(r, args[name]) for r, args in zip(rest, view.arguments, strict=True)):
            return Seen(
                f"{{it}} is right with a multiple of {name} added to it.",
                f"Which term holds {name}, and how often?",
            )
    if all(np.ptp(r) <= EXACT * size(b) for r, b in zip(rest, view.right, strict=True)):
        return Seen(
            "{it} is right up to a constant that is added to every number.", "Where is this number added?"
        )
    return None


def _added(name: str, times: float, words: str) -> Seen:
    if times in (-1.0, -2.0):
        how = "is missing" if times == -1 else "enters with the opposite sign"
        return Seen(
            f"With {name} added{' twice' * (times == -2)}, {{it}} agrees: {name} {how}.",
            f"Where is {name} added?",
        )
    return Seen(
        f"{{it}} is right with {words}{name} added to it: {name} enters once too often.",
        f"How often is {name} to be added: is there a residual here?",
    )


def _multiple(rest: Array, value: Any) -> bool:
    same_shape = isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.shape == rest.shape
    return same_shape and ratio(rest, value) is not None and size(rest) * EXACT < np.abs(rest).max()


def _is(rest: Array, times: float, value: Any) -> bool:
    if not isinstance(value, np.ndarray | float) or np.ndim(value) > rest.ndim:
        return False
    try:
        wanted = np.broadcast_to(times * np.asarray(value, float), rest.shape)
    except ValueError:
        return False
    return bool(wanted.any()) and bool(np.abs(rest - wanted).max() <= EXACT * size(wanted))


def multiplied(view: Trial) -> Seen | None:
    """The right answer times or divided by an argument, entry by entry."""
    for name, value in view.arguments[0].items():
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            continue
        for words, made in ((f"multiplied by {name}", np.multiply), (f"divided by {name}", np.divide)):
            triples = zip(view.found, view.right, view.arguments, strict=True)
            if all(_times(made, a, b, args[name]) for a, b, args in triples):
                return Seen(
                    f"{{it}} is right but for this: it is {words}, entry by entry.",
                    f"How often does {name} take part?",
                )
    return None


def _times(made: Callable[..., Any], a: Array, b: Array, value: Array) -> bool:
    try:
        return a.shape == b.shape and close(a, made(b, value))
    except ValueError:
        return False


def unfilled(view: Trial) -> Seen | None:
    """Right where it is not 0: some places were never filled, or were left too early."""
    pairs = list(zip(view.found, view.right, strict=True))
    if any(a.shape != b.shape or a.ndim < 1 for a, b in pairs):
        return None
    if not all(close(np.where(a == 0, 0, b), a) and (a != 0).any() for a, b in pairs):
        return None
    a, b = next((a, b) for a, b in pairs if not close(a, b))
    place = tuple(int(i) for i in np.argwhere((a == 0) & (np.abs(b) > EXACT))[0])
    if _in_empty_lines(a, b):
        return Seen(
            f"{{it}} is right where it is not 0, and 0 stands where it should not, first at {place}: "
            "these rows or columns are not filled.",
            "Which entries does the loop reach, and where does `return` stand?",
        )
    return Seen(
        f"{{it}} is right where it is not 0, and 0 stands at single places where it should not, first at "
        f"{place}.",
        "What decides which entries become 0: a comparison, a mask, a sign?",
    )


def _in_empty_lines(found: Array, right: Array) -> bool:
    """Whether all that is 0 and should not be stands in a row, or in a column, that is 0 throughout."""
    empty = (found == 0) & (np.abs(right) > EXACT)
    lines = [~found.any(axis=axis, keepdims=True) for axis in range(-min(2, found.ndim), 0)]
    return not (empty & ~np.logical_or.reduce(np.broadcast_arrays(*lines, empty)[:-1])).any()


def affine(view: Trial) -> Seen | None:
    """The right numbers times one number, plus another one."""
    pairs = list(zip(view.found, view.right, strict=True))
    if any(a.shape != b.shape or a.size < 4 or not np.isfinite(a).all() for a, b in pairs):
        return None
    lines = [np.polyfit(b.ravel(), a.ravel(), 1) for a, b in pairs]
    if not all(close(a, slope * b + more) for (a, b), (slope, more) in zip(pairs, lines, strict=True)):
        return None
    if min(abs(slope) for slope, _ in lines) < EXACT:
        return None  # one number everywhere: nothing is left of the right ones
    name = named_factor([float(slope) for slope, _ in lines], view.sizes) or "one factor"
    return Seen(
        f"{{it}} is the right one multiplied by {name}, with a constant added to every number.",
        "Which number is added where it should multiply, or the other way round?",
    )


def permuted(view: Trial) -> Seen | None:
    """The right rows, columns or heads, in another order."""
    pairs = list(zip(view.found, view.right, strict=True))
    if any(a.shape != b.shape or a.ndim < 2 for a, b in pairs):
        return None
    for axis in range(pairs[0][0].ndim):
        orders = [_order(np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0)) for a, b in pairs]
        if all(sorted(order) == list(range(len(order))) for order in orders if order) and all(orders):
            name = _entries(axis, pairs[0][0].ndim)
            return Seen(
                f"{{it}} has the right {name}, in another order; in the first call "
                f"{', '.join(map(str, orders[0]))}.",
                "Which line moves them?",
            )
    return None


def _order(found: Array, right: Array) -> list[int]:
    """Which entry of the right array each entry is; [] where one is none of them."""
    places = [next((i for i, b in enumerate(right) if close(a, b)), -1) for a in found]
    return places if min(places) >= 0 else []


def shuffled(view: Trial) -> Seen | None:
    """All the right numbers, in other places."""
    pairs = list(zip(view.found, view.right, strict=True))
    if any(a.shape != b.shape or a.size < 2 for a, b in pairs):
        return None
    if not all(close(np.sort(a, axis=None), np.sort(b, axis=None)) for a, b in pairs):
        return None
    return Seen(
        "{it} holds the right numbers, all of them, in another order: they stand in other places.",
        "Where does the number that should stand first come out, and which line moves it?",
    )


def by_part(view: Trial) -> Seen | None:
    """One factor or one number for each row, or for each column."""
    pairs = list(zip(view.found, view.right, strict=True))
    if any(a.shape != b.shape or a.ndim < 2 or min(a.shape) < 2 for a, b in pairs):
        return None
    for axis, name in ((-1, "row"), (-2, "column")):
        if all(_spread(a - b, axis) <= EXACT * size(b) for a, b in pairs):
            return Seen(
                f"{{it}} is right up to one number added to each {name}.",
                f"What is subtracted from each {name}, and is it the right one?",
            )
        if all(_proportional(a, b, axis) for a, b in pairs):
            return Seen(
                f"{{it}} is right up to one factor for each {name}.",
                f"What is each {name} divided or multiplied by?",
            )
    return None


def same_for_all(view: Trial) -> Seen | None:
    """One and the same array added to every sentence."""
    pairs = list(zip(view.found, view.right, strict=True))
    if any(a.shape != b.shape or a.ndim < 3 or len(a) < 2 for a, b in pairs):
        return None
    if all(_spread(a - b, 0) <= EXACT * size(b) for a, b in pairs):
        return Seen(
            "{it} is right up to one table that is added to every sentence alike: "
            "it depends on position and column only.",
            "What is added here that does not depend on the words?",
        )
    return None


def _spread(rest: Array, axis: int) -> float:
    return float(np.nanmax(np.ptp(rest, axis=axis)))


def _proportional(a: Array, b: Array, axis: int) -> bool:
    c = (a * b).sum(axis, keepdims=True) / np.maximum((b * b).sum(axis, keepdims=True), 1e-300)
    return bool(np.abs(a - c * b).max() <= EXACT * size(a))


def along(view: Trial, directions: dict[str, Callable[..., Any]]) -> Seen | None:
    """Each row is right up to a multiple of a known direction: a term is missing or has another weight."""
    for name, direction in directions.items():
        triples = zip(view.found, view.right, view.arguments, strict=True)
        if all(
            a.shape == b.shape
            and _proportional(a - b, np.broadcast_to(_called(direction, args), b.shape), -1)
            for a, b, args in triples
        ):
            return Seen(
                f"Each row of {{it}} is right up to a multiple of {name}.",
                f"Which term runs along {name}, and what is its factor?",
            )
    return None


LOOKS: tuple[Callable[[Trial], Seen | None], ...] = (
    zeros,
    other_axes,
    reduced,
    short,
    truths,
    landmark,
    factor,
    cut_at_zero,
    unfilled,
    function_of,
    added,
    multiplied,
    affine,
    permuted,
    shuffled,
)
