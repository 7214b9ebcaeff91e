"""What an answer has to do with the right one: gradcheck's relations in a student's words, and a few more.

A relation counts only where it holds on every call to the last digits. Each comes with the question that
follows from it, and none tells a number of the right answer.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations, permutations, product
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.exercises.probe import Trial, same, size
from npformer.gradcheck import relations as arrays
from npformer.gradcheck.notes import describe_parameters
from npformer.gradcheck.relations import Case, Relation, is_number

EXACT = 2e-5  # of the largest number: float32 answers are looked at too


class Seen(NamedTuple):
    """An observation about one output, `{it}` in the text, and the question that follows."""

    says: str
    asks: str


def close(a: Array, b: Array) -> bool:
    """Equal to the last digits that float32 has."""
    return same(a, b, EXACT)


def ratio(a: Array, b: Array) -> float | None:
    """The number c with a = c b, or None."""
    c = arrays.ratio(a, b, EXACT * float(np.abs(a).max(initial=0)))
    return None if math.isnan(c) else c


def tried(look: Callable[..., Any], *args: Any) -> Any:
    """What a look sees; nothing where an answer of an odd shape makes it stumble."""
    try:
        return look(*args)
    except (ValueError, TypeError, IndexError, ArithmeticError, np.linalg.LinAlgError):
        return None


# --- what gradcheck sees -----------------------------------------------------------------------------

STAY = "Which axes are to be left when the line is done?"
SHARED = "Over which axes is one number of it shared?"
WORDS = {  # the observation, with the parameters of the relation; and the question that follows
    "zero": ("{it} is 0 everywhere", "Which line fills it, and is that line reached?"),
    "transposed": ("{it} has the right numbers, transposed{order}", "Which axis is to stand first?"),
    "reshaped": (
        "{it} has the right numbers in another shape, {shape} in the first call",
        "Which shape is asked for, axis by axis?",
    ),
    "sum_missing": ("{it} has axes too many: its sum over {axes} agrees, and is not taken yet", SHARED),
    "mean_missing": ("{it} has axes too many: its mean over {axes} agrees, and is not taken yet", SHARED),
    "sum_too_many": ("{it} is the sum of the right numbers over {axes}, which should stay", STAY),
    "mean_too_many": ("{it} is the mean of the right numbers over {axes}, which should stay", STAY),
    "moved": (
        "{it} has the right entries in another order, in the first call along axis {axis}: {order}",
        "Which line moves them?",
    ),
    "term_missing": ("{it} agrees once {name} is added: {name} is missing", "Where is {name} added?"),
    "term_turned": (
        "{it} agrees once {name} is added twice: {name} has the opposite sign",
        "Where is {name} added?",
    ),
    "term_added": (
        "{it} is right with {name} added to it: {name} enters once too often",
        "How often is {name} to be added: is there a residual here?",
    ),
    "multiple_added": (
        "{it} is right with a multiple of {name} added to it",
        "Which term holds {name}, and how often?",
    ),
    "constant_along": (
        "{it} is right up to one {one} added to {line}",
        "What is added or subtracted there, and is it the right one?",
    ),
    "multiple_along": (
        "{it} is right up to a multiple of {name} in {line}",
        "Which term has this direction, and what is its factor?",
    ),
}


def related(look: Callable[[Sequence[Case]], Relation | None], view: Trial) -> Seen | None:
    """Describe for a student what one of gradcheck's detectors finds."""
    with np.errstate(all="ignore"):
        triples = zip(view.found, view.right, beside(view), strict=True)
        relation = look([Case(a, b, others, exact=EXACT, scale=1.0) for a, b, others in triples])
    if relation is None or relation.kind not in WORDS:
        return None
    kind, texts = relation.kind, describe_parameters(relation)
    if kind == "transposed":
        is_matrix = len(relation.parameters["order"]) == 2
        texts["order"] = "" if is_matrix else f", its axes in the order ({texts['order']})"
    elif kind == "term_added" and is_number(relation.parameters["factor"], -2):
        kind = "term_turned"
    elif kind == "term_added" and not is_number(relation.parameters["factor"], 1):
        kind = "multiple_added"
    elif kind in ("constant_along", "multiple_along"):
        texts["line"], texts["one"] = _line(relation.parameters["axis"], view)
    says, asks = (words.format(it="{it}", **texts) for words in WORDS[kind])
    return Seen(f"{says}.", asks)


def _line(axis: int, view: Trial) -> tuple[str, str]:
    """Name the lines along an axis, such as "each row", and what is constant on each of them."""
    lines = {-1: "each row", -2: "each column"}
    from_the_end = axis - view.right[0].ndim
    if from_the_end in lines:
        return lines[from_the_end], "number"
    return f"every {view.probe.outer} alike", "table"


def moved(cases: Sequence[Case]) -> Relation | None:
    """The right entries in another order; one of them in every place says less than other looks do."""
    seen = arrays.moved(cases)
    return seen if seen and len({*seen.parameters["order"]}) > 1 else None


def beside(view: Trial) -> list[dict[str, Array]]:
    """What may have been added or multiplied: arguments and known directions that fit in every call."""
    fitting: list[dict[str, Array]] = []
    for given, right in zip(view.arguments, view.right, strict=True):
        there = given | {name: made(*given.values()) for name, made in view.probe.directions.items()}
        kept = {name: value for name, value in there.items() if _fits(value, right)}
        fitting.append({name: np.broadcast_to(value, right.shape) for name, value in kept.items()})
    always = set.intersection(*map(set, fitting))
    return [{name: given[name] for name in given if name in always} for given in fitting]


def _fits(value: Any, right: Array) -> bool:
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or value.ndim > right.ndim:
        return False
    return all(n in (1, m) for n, m in zip(value.shape[::-1], right.shape[::-1], strict=False))


# --- a function of the right answer ----------------------------------------------------------------

Holds = Callable[[Array, Array], Any]  # of what came back, and of the right array of that shape
ROUNDED = "Where is anything rounded, and which type has the array that holds the numbers?"
RUNNING = "Where is a running sum taken?"
STANDS = "Which of the two stands for what may be seen?"


def made_by(function: Callable[[Array], Any]) -> Holds:
    """Whether an answer is this function of the right one."""
    return lambda a, b: close(a, np.asarray(function(b), float))


def _halved(a: Array, b: Array) -> bool:
    """Near, and with as few digits as float16 has."""
    near = np.isfinite(a).all() and np.abs(a - b).max(initial=0) <= 2e-3 * size(b)
    return bool(near and np.array_equal(a.astype(np.float16), a))


def _to_be_added(a: Array, b: Array) -> bool:
    """0 for True, and a number far below 0 for False."""
    return two_valued(b) and bool(((b == 1) == (a == 0)).all() and (a[b == 0] <= -1e4).all())


def two_valued(array: Array) -> bool:
    """Whether it holds truth values."""
    return array.size > 1 and bool(np.isin(array, (0, 1)).all())


FUNCTIONS: dict[str, tuple[Holds, str]] = {
    "{it} is right to about three digits; its numbers are those of float16": (
        _halved,
        "Which type have the arrays, and how many digits does it hold?",
    ),
    "{it} is 0 where True is asked for, and far below 0 where False is": (
        _to_be_added,
        "Is it to be added, or to be True and False?",
    ),
    "{it} has True and False exchanged": (lambda a, b: two_valued(b) and (a == 1 - b).all(), STANDS),
    "{it}: its logarithm is right: what came back is the log of what is asked for": (
        made_by(np.log),
        "Is the number asked for, or its logarithm?",
    ),
    "{it}: each number is the square of the right one": (
        made_by(np.square),
        "Where is something multiplied by itself?",
    ),
    "{it}: the largest number of each row became 1, the others 0": (
        made_by(lambda b: (b == b.max(axis=-1, keepdims=True)) & (b.size > 1)),
        "Is one winner asked for, or a share for each?",
    ),
    "{it}: the numbers are rounded to whole ones": (made_by(np.round), ROUNDED),
    "{it}: the numbers are rounded to two decimals": (made_by(partial(np.round, decimals=2)), ROUNDED),
    "{it}: the numbers are added up from row to row": (made_by(partial(np.cumsum, axis=-2)), RUNNING),
    "{it}: the numbers are added up along each row": (made_by(partial(np.cumsum, axis=-1)), RUNNING),
}
REST: dict[str, tuple[Holds, str]] = {
    "{it} holds the right numbers, all of them, in another order: they stand in other places": (
        lambda a, b: close(np.sort(a, axis=None), np.sort(b, axis=None)),
        "Where does the number that should stand first come out, and which line moves it?",
    ),
    "{it} is right up to one factor in each call": (
        lambda a, b: a.size > 1 and ratio(a, b),
        "Which size does this factor follow?",
    ),
}
PARTS: dict[str, tuple[Holds, str]] = {
    "{it} is right up to one factor for each row": (
        lambda a, b: _proportional(a, b, -1),
        "What is each row divided or multiplied by?",
    ),
    "{it} is right up to one factor for each column": (
        lambda a, b: _proportional(a, b, -2),
        "What is each column divided or multiplied by?",
    ),
}


def _proportional(a: Array, b: Array, axis: int) -> bool:
    """Whether each line along an axis is a multiple of the right one; one number alone always is."""
    c = arrays.fitted(a, b, (axis,)) if a.ndim > 1 and min(a.shape) > 1 else np.nan
    return bool((np.abs(a - c * b) <= EXACT * size(a)).all())


def fits(table: dict[str, tuple[Holds, str]], view: Trial) -> Seen | None:
    """The first line of a table that is true on every call."""
    for says, (holds, asks) in table.items():
        with np.errstate(all="ignore"):
            if all(a.shape == b.shape and tried(holds, a, b) for a, b in view.pairs):
                return Seen(f"{says}.", asks)
    return None


# --- one number between the two --------------------------------------------------------------------

CONSTANTS = {
    "1": 1.0,
    "2": 2.0,
    "1/2": 0.5,
    "1/log 2, as a logarithm of base 2 would be": 1 / math.log(2),
    "log 2": math.log(2),
    "1/log 10, as a logarithm of base 10 would be": 1 / math.log(10),
}
FORMS: dict[str, Callable[[Array], Array]] = {  # of a size, of two, or of one over another
    "{}": lambda n: n,
    "1/{}": lambda n: 1 / n,
    "√{}": lambda n: n**0.5,
    "1/√{}": lambda n: n**-0.5,
}


def named_factor(ratios: Sequence[float], sizes: Sequence[dict[str, int]]) -> str:
    """A factor's name: a constant, a size or two, a root; or a number in figures, times such a one; or ""."""
    single = {name: np.array([float(s[name]) for s in sizes]) for name in sizes[0]}
    single = {name: values for name, values in single.items() if values.min() > 0}
    lengths = single | {f"({a} · {b})": single[a] * single[b] for a, b in combinations(single, 2)}
    lengths |= {f"({a}/{b})": single[a] / single[b] for a, b in permutations(single, 2)}
    known = {name: np.full(len(ratios), value) for name, value in CONSTANTS.items()}
    for (form, made), (name, n) in product(FORMS.items(), lengths.items()):
        known[form.format(name if form != "{}" else name.strip("()"))] = made(n)
    found = {name: np.asarray(ratios) / values for name, values in known.items()}
    for name, times in found.items():
        if np.allclose(np.abs(times), 1, rtol=1e-4, atol=0) and len({*np.sign(times)}) == 1:
            return name if times[0] > 0 else f"-{name}, the opposite sign everywhere"
    for name, times in found.items() if len(ratios) > 1 else ():
        if np.allclose(times, times[0], rtol=1e-4, atol=0):
            return f"about {times[0]:.3g}" + (", whatever the sizes are" if name == "1" else f" times {name}")
    return ""


def factor(view: Trial, of: Callable[[Array], Array], says: str, asks: str) -> Seen | None:
    """One factor on each call, between the two or what `of` makes of them; {} in `says` is its name."""
    with np.errstate(all="ignore"):
        ratios = [ratio(of(a), of(b)) for a, b in view.pairs]
    if not all(ratios):
        return None
    name = named_factor([r for r in ratios if r], view.sizes)
    said = says.format(name, it="{it}").replace(" multiplied by 1,", "")
    return Seen(said, asks) if name else None


SCALED = partial(
    factor,
    of=lambda x: x,
    says="{it} is off by one constant factor and right otherwise: it is multiplied by {}.",
    asks="Where is this factor used, and how often should it be?",
)
SHIFTED = partial(
    factor,
    of=lambda x: x - x.mean(),
    says="{it} is the right one multiplied by {}, with a constant added to every number.",
    asks="Which number is added, and is it to be added there or to multiply?",
)


def exponents(p: Array) -> Array:
    """What a softmax was taken of, less its mean in each row; NaN where rows do not sum to 1."""
    shares = bool(np.allclose(p.sum(axis=-1, keepdims=True), 1, atol=1e-4) and (p >= 0).all())
    logs = np.where(p > 0, np.log(p), np.nan) if shares else np.full_like(p, np.nan)
    return np.nan_to_num(logs - np.nanmean(logs, axis=-1, keepdims=True)) if shares else logs


SOFTMAX = partial(
    factor,
    of=exponents,
    says="{it} is a softmax, but of the scores times {}.",
    asks="What happens to the scores before exp: a sign, a base, a division?",
)


# --- something else that was there -----------------------------------------------------------------


def whole_argument(view: Trial) -> Seen | None:
    """The answer is an argument, as it was."""
    for name in view.names:
        there = [given[name] for given in view.arguments]
        if all(isinstance(t, np.ndarray) and close(a, t) for a, t in zip(view.found, there, strict=True)):
            return Seen(f"What came back for {{it}} is the argument {name} itself.", "Which line changes it?")
    return None


def landmark(view: Trial, scaled: bool) -> Seen | None:
    """What another line of the solution holds, or that times a number."""
    for name, thing in view.probe.landmarks.items():
        with np.errstate(all="ignore"):
            there = tuple(np.asarray(thing(*given)) for given in view.calls)
        if scaled:
            asks = "What is asked for instead, and which factor belongs to it?"
            seen = factor(
                view._replace(right=there), lambda x: x, f"{{it}} is {name}, multiplied by {{}}.", asks
            )
            if seen:
                return seen
        elif all(map(close, view.found, there)):
            asks = "At which line do this and what is asked for part?"
            return Seen(f"What came back for {{it}} is {name}.", asks)
    return None


def multiplied(view: Trial) -> Seen | None:
    """The right answer times or divided by an argument, entry by entry."""
    others = beside(view)
    for name, (words, made) in product(others[0], {"multiplied": np.multiply, "divided": np.divide}.items()):
        if all(close(a, made(b, there[name])) for (a, b), there in zip(view.pairs, others, strict=True)):
            says = f"{{it}} is right but for this: it is {words} by {name}, entry by entry."
            return Seen(says, f"How often does {name} take part?")
    return None


# --- some places alone -----------------------------------------------------------------------------


def short(view: Trial) -> Seen | None:
    """Too few or too many entries of one axis."""
    for axis in range(ndim := view.right[0].ndim):
        kinds = [_cut(a, b, axis) for a, b in view.pairs]
        for kind in kinds[0]:
            if all(kind in more for more in kinds):
                row = "rows" if axis >= ndim - 2 else f"entries of axis {axis}"
                name = "columns" if ndim > 1 and axis == ndim - 1 else row
                return Seen(f"{{it}} has {kind.format(name)}.", f"How many {name} are asked for, and which?")
    return None


def _cut(found: Array, right: Array, axis: int) -> list[str]:
    """Which entries of an axis came back, where some are missing or too many."""
    found = np.expand_dims(found, axis) if found.ndim == right.ndim - 1 else found
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


def first_place(view: Trial, wrong: Holds) -> str:
    """The first place where that is so, call by call; "" where there is none."""
    places = [np.argwhere(wrong(a, b)) for a, b in view.pairs]
    return next((str(tuple(each[0].tolist())) for each in places if len(each)), "")


def truths(view: Trial) -> Seen | None:
    """Which of True and False stands where it should not."""
    if not all(two_valued(a) and two_valued(b) and a.shape == b.shape for a, b in view.pairs):
        return None
    shown, hidden = first_place(view, np.greater), first_place(view, np.less)
    said = [f"True stands where False is asked for, first at {shown}"] if shown else []
    said += [f"False stands where True is asked for, first at {hidden}"] if hidden else []
    only = "" if len(said) > 1 else "; elsewhere the two agree"
    asks = f"Of query i and key j, (i, j) = {shown or hidden}: which stands later in the text?"
    return Seen(f"{{it}}: {', and '.join(said)}{only}.", asks)


def unfilled(view: Trial) -> Seen | None:
    """Right where it is not 0: some places were never filled, or were cut off."""
    if not all(a.any() and a.ndim and close(np.where(a == 0, 0, b), a) for a, b in view.pairs):
        return None
    place = first_place(view, lambda a, b: (a == 0) & (np.abs(b) > EXACT))
    a, b = next((a, b) for a, b in view.pairs if not close(a, b))
    lines = (((a == 0) & (np.abs(b) > EXACT)).all(axis).any() for axis in range(-a.ndim, 0)[-2:])
    line = ", in a whole row or column" * any(lines)
    return Seen(
        f"{{it}} is right where it is not 0, and 0 stands where it should not, first at {place}{line}.",
        "Which entries does the loop reach, and what decides which become 0: a comparison, a mask, a sign?",
    )


def not_finite(view: Trial) -> Seen | None:
    """NaN or infinities, everywhere or among the numbers."""
    if any(a.shape != b.shape for a, b in view.pairs):
        return None
    bad = [~np.isfinite(a) & np.isfinite(b) for a, b in view.pairs]
    asks = "Which line divides by 0, or takes a root, a logarithm or exp of what has none?"
    if all(places.all() for places in bad):
        return Seen("{it} is NaN or infinite everywhere.", asks)
    nan = first_place(view, lambda a, b: np.isnan(a) & np.isfinite(b))
    place = nan or first_place(view, lambda a, b: np.isinf(a) & np.isfinite(b))
    rest = (close(np.where(p, 0, a), np.where(p, 0, b)) for p, (a, b) in zip(bad, view.pairs, strict=True))
    others = "; all other numbers agree" * all(rest)
    what = f"{{it}} is {'NaN' if nan else 'infinite'} where a number is asked for, first at {place}{others}."
    return Seen(what.replace(", first at ()", ""), asks) if place else None


def only_not_finite(view: Trial) -> Seen | None:
    """Not one number, or NaN and infinities among numbers that are right."""
    seen = not_finite(view)
    return seen if seen and ("everywhere" in seen.says or "agree" in seen.says) else None


def row_sums(view: Trial) -> Seen | None:
    """Rows that should sum to 1, and do not."""
    if not all(a.shape == b.shape and _whole_rows(b) for a, b in view.pairs) or _whole_rows(*view.found):
        return None
    told = ", ".join(f"{total:.3g}" for total in np.ravel(view.found[0].sum(axis=-1))[:2])
    asks = "What do the numbers of one row sum to in a softmax, and what makes them do so?"
    return Seen(f"the rows do not sum to 1: the first of them sum to {told}.", asks)


def proportions(view: Trial) -> Seen | None:
    """Rows that sum to 1 as they should, and hold other numbers."""
    if not all(a.shape == b.shape and _whole_rows(a, b) for a, b in view.pairs):
        return None
    says = "the rows sum to 1; two numbers of a row are not in the ratio in which they should be."
    return Seen(says, "What stands between the scores and these numbers, line by line?")


def _whole_rows(*arrays: Array) -> bool:
    """Whether each row sums to 1, as far as float16 knows."""
    return all(a.size > 1 and np.allclose(a.sum(axis=-1), 1, rtol=0, atol=2e-3) for a in arrays)


Look = Callable[[Trial], Seen | None]
LOOKS: tuple[Look, ...] = (
    partial(related, arrays.nothing),
    partial(related, arrays.form),
    short,
    whole_argument,
    partial(landmark, scaled=False),
    partial(related, moved),
    partial(fits, FUNCTIONS),
    truths,
    partial(landmark, scaled=True),
    SCALED,
    unfilled,
    partial(related, arrays.added),
    multiplied,
    SHIFTED,
    SOFTMAX,
    partial(fits, REST),
    only_not_finite,
)
PARTLY = (
    not_finite,
    partial(related, arrays.leftover),
    partial(fits, PARTS),
    row_sums,
    proportions,
)  # of a part
