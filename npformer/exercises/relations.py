"""What an answer has to do with the right one: gradcheck's relations in a student's words, and a few more.

A relation counts only where it holds on every call to the last digits. Each comes with the question that
follows from it, and none tells a number of the right answer.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.exercises.probe import Trial, size
from npformer.gradcheck import relations as arrays
from npformer.gradcheck.relations import Case, Relation

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


def ratio(a: Array, b: Array) -> float | None:
    """The number c with a = c b, or None."""
    c = arrays.ratio(a, b, EXACT * float(np.abs(a).max(initial=0)))
    return None if math.isnan(c) else c


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


# --- what gradcheck sees -----------------------------------------------------------------------------

WORDS = {  # what is seen, with {} for what the relation names; and the question that follows
    "zero": ("{it} is 0 everywhere", "Which line fills it, and is that line reached?"),
    "transposed": ("{it} has the right numbers, transposed{}", "Which axis is to stand first?"),
    "reshaped": (
        "{it} has the right numbers in another shape, {} in the first call",
        "Which shape is asked for, axis by axis?",
    ),
    "sum missing": (
        "{it} has axes too many: its sum over {} agrees, and is not taken yet",
        "Over which axes is one number of it shared?",
    ),
    "mean missing": (
        "{it} has axes too many: its mean over {} agrees, and is not taken yet",
        "Over which axes is one number of it shared?",
    ),
    "sum too many": (
        "{it} is the sum of the right numbers over {}, which should stay",
        "Which axes are to be left when the line is done?",
    ),
    "mean too many": (
        "{it} is the mean of the right numbers over {}, which should stay",
        "Which axes are to be left when the line is done?",
    ),
    "moved": (
        "{it} has the right entries in another order, in the first call along {}",
        "Which line moves them?",
    ),
    "term missing": ("{it} agrees once {0} is added: {0} is missing", "Where is {} added?"),
    "term turned": ("{it} agrees once {0} is added twice: {0} has the opposite sign", "Where is {} added?"),
    "term added": (
        "{it} is right with {0} added to it: {0} enters once too often",
        "How often is {} to be added: is there a residual here?",
    ),
    "multiple added": (
        "{it} is right with a multiple of {} added to it",
        "Which term holds {}, and how often?",
    ),
    "constant along": (
        "{it} is right up to {}",
        "What is added or subtracted there, and is it the right one?",
    ),
    "multiple along": (
        "{it} is right up to a multiple of {}",
        "Which term has this direction, and what is its factor?",
    ),
}


def related(look: Callable[[Sequence[Case]], Relation | None], view: Trial) -> Seen | None:
    """What one of gradcheck's looks sees, in a student's words."""
    with np.errstate(all="ignore"):
        triples = zip(view.found, view.right, beside(view), strict=True)
        seen = look([Case(a, b, others, exact=EXACT, scale=1.0) for a, b, others in triples])
    if seen is None or seen.kind not in WORDS:
        return None
    kind, what = seen
    times, _, name = what.partition(" times ")
    if kind == "term added" and name:
        kind, what = ("term turned" if times == "-2" else "multiple added"), name
    elif kind in ("constant along", "multiple along"):
        what = _line(what, view)
    says, asks = (words.replace("{it}", "{{it}}").format(what) for words in WORDS[kind])
    return Seen(f"{says}.", asks)


def _line(what: str, view: Trial) -> str:
    """What lies along an axis: "x̂ along axis 2" is "x̂ in each row"."""
    name, _, axis = what.rpartition("axis ")
    lines = {-1: "number {} each row", -2: "number {} each column"}
    line = lines.get(int(axis) - view.right[0].ndim, f"table {{}} every {view.probe.outer} alike")
    if not name:
        return "one " + line.format("added to")
    return f"{name.removesuffix(' along ')} in {line.partition(' {} ')[2]}"


def moved(cases: Sequence[Case]) -> Relation | None:
    """The right entries in another order; one of them in every place says less than other looks do."""
    seen = arrays.moved(cases)
    return seen if seen and len({*seen.what.partition(": ")[2].split(", ")}) > 1 else None


def beside(view: Trial) -> list[dict[str, Array]]:
    """What may have been added or multiplied: arguments and known directions that fit in every call."""
    fitting = [
        {
            name: np.broadcast_to(value, right.shape)
            for name, value in (given | along(view, given)).items()
            if isinstance(value, np.ndarray) and _fits(value, right)
        }
        for given, right in zip(view.arguments, view.right, strict=True)
    ]
    always = set.intersection(*map(set, fitting))
    return [{name: given[name] for name in given if name in always} for given in fitting]


def along(view: Trial, given: dict[str, Any]) -> dict[str, Any]:
    """The directions of one call."""
    return {name: made(*given.values()) for name, made in view.probe.directions.items()}


def _fits(value: Array, right: Array) -> bool:
    ends = zip(value.shape[::-1], right.shape[::-1], strict=False)
    return value.dtype.kind == "f" and value.ndim <= right.ndim and all(n in (1, m) for n, m in ends)


# --- form ------------------------------------------------------------------------------------------


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


def not_finite(view: Trial) -> Seen | None:
    """NaN or infinities, everywhere or among the numbers."""
    pairs = [(a, b) for a, b in zip(view.found, view.right, strict=True) if a.shape == b.shape]
    bad = [~np.isfinite(a) & np.isfinite(b) for a, b in pairs]
    first = next(((a, places) for (a, _), places in zip(pairs, bad, strict=True) if places.any()), None)
    if first is None:
        return None
    asks = "Which line divides by 0, or takes a root, a logarithm or exp of what has none?"
    if all(places.all() for places in bad):
        return Seen("{it} is NaN or infinite everywhere.", asks)
    what = "NaN" if np.isnan(first[0][first[1]]).any() else "infinite"
    where = f", first at {tuple(np.argwhere(first[1])[0].tolist())}" * (first[0].ndim > 0)
    rest = (close(np.where(p, 0, a), np.where(p, 0, b)) for p, (a, b) in zip(bad, pairs, strict=True))
    others = "; all other numbers agree" * all(rest)
    return Seen(f"{{it}} is {what} where a number is asked for{where}{others}.", asks)


def only_not_finite(view: Trial) -> Seen | None:
    """Not one number, or NaN and infinities among numbers that are right."""
    seen = not_finite(view)
    return seen if seen and ("everywhere" in seen.says or "agree" in seen.says) else None


def short(view: Trial) -> Seen | None:
    """Too few or too many entries of one axis."""
    for axis in range(view.right[0].ndim):
        kinds = [_part(a, b, axis) for a, b in zip(view.found, view.right, strict=True)]
        for kind in kinds[0]:
            if all(kind in more for more in kinds):
                name = _entries(axis, view.right[0].ndim)
                return Seen(
                    f"{{it}} has {kind.format(name)}.",
                    f"How many {name} are asked for, and which?",
                )
    return None


def _part(found: Array, right: Array, axis: int) -> list[str]:
    """Which entries of an axis came back, where some are missing or too many."""
    found = np.expand_dims(found, axis) if found.ndim == right.ndim - 1 else found
    if found.ndim != right.ndim:
        return []
    a, b = np.moveaxis(found, axis, 0), np.moveaxis(right, axis, 0)
    n, m = len(a), len(b)
    parts = {
        "too few {}; those that came back are the first": (a, b[:n]),
        "too few {}; those that came back are the last": (a, b[max(m - n, 0) :]),
        "too few {}; every second one came back": (a, b[::2]),
        "too many {}; the first of them are right": (a[:m], b),
        "too many {}; the last of them are right": (a[max(n - m, 0) :], b),
    }
    return [kind for kind, (one, two) in parts.items() if close(one, two)]


def _entries(axis: int, ndim: int) -> str:
    """What stands along an axis, in the plural."""
    if ndim > 1 and axis == ndim - 1:
        return "columns"
    return "rows" if axis >= ndim - 2 else f"entries of axis {axis}"


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
        made = [thing(given) for given in view.arguments]
        if all(
            isinstance(t, np.ndarray | np.generic) and close(a, np.asarray(t))
            for a, t in zip(view.found, made, strict=True)
        ):
            whole = name.startswith("the argument")
            asks = "Which line changes it?" if whole else "At which line do this and what is asked for part?"
            return Seen(f"What came back for {{it}} is {name}.", asks)
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


CONSTANTS = {
    "1": 1.0,
    "2": 2.0,
    "1/2": 0.5,
    "1/log 2, as a logarithm of base 2 would be": 1 / math.log(2),
    "log 2": math.log(2),
    "1/log 10, as a logarithm of base 10 would be": 1 / math.log(10),
    "2π": 2 * math.pi,
    "π/180, degrees for radians": math.pi / 180,
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

ROUNDED = "Where is anything rounded, and which type has the array that holds the numbers?"
FUNCTIONS: dict[str, tuple[Callable[[Array], Any], str]] = {
    "its logarithm is right: what came back is the log of what is asked for": (
        np.log,
        "Is the number asked for, or its logarithm?",
    ),
    "each number is the square of the right one": (np.square, "Where is something multiplied by itself?"),
    "the largest number of each row became 1, the others 0": (
        lambda b: 1.0 * (b == b.max(axis=-1, keepdims=True)),
        "Is one winner asked for, or a share for each?",
    ),
    "the numbers are rounded to whole ones": (np.round, ROUNDED),
    "the numbers are rounded to two decimals": (partial(np.round, decimals=2), ROUNDED),
    "the numbers are added up from row to row": (
        lambda b: np.cumsum(b, axis=-2),
        "Where is a running sum taken?",
    ),
    "the numbers are added up along each row": (
        lambda b: np.cumsum(b, axis=-1),
        "Where is a running sum taken?",
    ),
}


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


# --- something multiplied, some places alone ---------------------------------------------------------


def multiplied(view: Trial) -> Seen | None:
    """The right answer times or divided by an argument, entry by entry."""
    others = beside(view)
    for name in others[0]:
        for words, made in (("multiplied", np.multiply), ("divided", np.divide)):
            triples = zip(view.found, view.right, others, strict=True)
            if all(close(a, made(b, given[name])) for a, b, given in triples):
                return Seen(
                    f"{{it}} is right but for this: it is {words} by {name}, entry by entry.",
                    f"How often does {name} take part?",
                )
    return None


def unfilled(view: Trial) -> Seen | None:
    """Right where it is not 0: some places were never filled, or were cut off."""
    pairs = list(zip(view.found, view.right, strict=True))
    if not all(
        a.ndim and a.any() and a.shape == b.shape and close(np.where(a == 0, 0, b), a) for a, b in pairs
    ):
        return None
    a, b = next((a, b) for a, b in pairs if not close(a, b))
    empty = (a == 0) & (np.abs(b) > EXACT)
    line = ", in a whole row or column" * any(empty.all(axis).any() for axis in range(-a.ndim, 0)[-2:])
    return Seen(
        "{it} is right where it is not 0, and 0 stands where it should not, first at "
        f"{tuple(np.argwhere(empty)[0].tolist())}{line}.",
        "Which entries does the loop reach, and what decides which become 0: a comparison, a mask, a sign?",
    )


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
        f"{{it}} is the right one{f' multiplied by {name},' * (name != '1')} with a constant added to every "
        "number.",
        "Which number is added, and is it to be added there or to multiply?",
    )


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
    """One factor for each row, or for each column."""
    pairs = list(zip(view.found, view.right, strict=True))
    if any(a.shape != b.shape or a.ndim < 2 or min(a.shape) < 2 for a, b in pairs):
        return None
    for axis, name in ((-1, "row"), (-2, "column")):
        if all(_proportional(a, b, axis) for a, b in pairs):
            return Seen(
                f"{{it}} is right up to one factor for each {name}.",
                f"What is each {name} divided or multiplied by?",
            )
    return None


def _proportional(a: Array, b: Array, axis: int) -> bool:
    c = (a * b).sum(axis, keepdims=True) / np.maximum((b * b).sum(axis, keepdims=True), 1e-300)
    return bool(np.abs(a - c * b).max() <= EXACT * size(a))


LOOKS: tuple[Callable[[Trial], Seen | None], ...] = (
    coarse,
    partial(related, arrays.nothing),
    partial(related, arrays.form),
    short,
    landmark,
    partial(related, moved),
    truths,
    factor,
    unfilled,
    function_of,
    partial(related, arrays.added),
    multiplied,
    affine,
    shuffled,
    only_not_finite,
)
PARTLY = (not_finite, partial(related, arrays.leftover), by_part)  # what holds of a part
