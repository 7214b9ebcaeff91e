"""Bad calls, made from the signatures: every place of every function, and what may not stand there.

A place is an argument or a field in it, such as params.attention.W_Q. Its annotation tells which values are
faults, and which unusual ones are none: an axis that no other argument speaks of may be longer. Annotations
are read here from their text, by other means than npformer/door/signature.py has.
"""

import inspect
import re
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import numpy as np
from valid_calls import BACKWARD, CALLS, CONFIG, FORWARD, VOCAB_SIZE, call, replaced

import npformer as npf

CHECKED = [name for name in CALLS if getattr(npf, name).__code__ is npf.linear_forward.__code__]  # the door's
FLOATS, TELLERS = ("Float", "Bias"), ("Float", "Ids")  # of one dtype; whose axes tell lengths


class Place(NamedTuple):
    function: str
    path: str  # params.attention.W_Q
    owner: Any  # AttentionParams
    words: str  # of its annotation: Float[Array, 'd_model d_model']
    annotation: Any
    value: Any  # what stands there in the valid call

    def __str__(self):
        return f"{self.function}-{self.path}"

    @property
    def kind(self):
        return re.match(r"[\w.]*", self.words)[0]

    @property
    def optional(self):
        return self.words.endswith("| None")

    @property
    def letters(self):
        """["...", "T", "d_model"], where the annotation says so."""
        found = re.match(r"\w+\[Array, '([^']*)'", self.words)
        return found[1].split() if found else []


class Change(NamedTuple):
    """Computed from the value that stands in the place, for example its transpose."""

    f: Any


class Fault(NamedTuple):
    value: Any  # what stands in the place instead; a Change is applied to what stood there
    error: type[Exception] | None  # None: unusual, but welcome
    named: tuple[str, ...] = ()  # places that contradict it: where no third one decides, either may be named


def faults(error, *values):
    return [Fault(value, error) for value in values]


# --- the places -----------------------------------------------------------------------------------


@cache
def valid_places(function):
    """Every argument of a function and every field of the parameters and the config in them."""
    body, arguments = inspect.unwrap(getattr(npf, function)), CALLS[function]()
    found = (places_in(function, n, function, body.__annotations__[n], v) for n, v in arguments.items())
    return [place for places in found for place in places]


def places_in(function, path, owner, annotation, value):
    optional, extras = False, []
    while get_origin(annotation) in (Annotated, UnionType) or str(annotation).startswith("typing.Optional"):
        first, *more = [part for part in get_args(annotation) if part is not NoneType]
        optional |= NoneType in get_args(annotation)
        annotation, extras = first, extras + more
    words = ", ".join(
        [annotation.__name__ if isinstance(annotation, type) else str(annotation), *map(str, extras)]
    )
    words += " | None" * (optional and not words.endswith("| None"))
    yield Place(function, path, owner, words, annotation, value)
    if get_origin(annotation) is tuple:
        parts = [(i, get_args(annotation)[0]) for i in range(len(value))]
    else:
        parts = annotation.__annotations__.items() if is_params(annotation) and value is not None else ()
    for (part, kind), inside in zip(parts, value if parts else (), strict=True):
        yield from places_in(function, f"{path}.{part}", annotation, kind, inside)


def is_params(annotation):
    return hasattr(annotation, "_fields") and not annotation.__name__.endswith("Cache")


def first_of_their_kind(places):
    """The names of those whose rule no place before had: params.W_Q of attention, not of every model."""
    seen = {}
    for place in places:
        seen.setdefault((str(place.owner), place.path.split(".")[-1].strip("01"), place.words), str(place))
    return set(seen.values())


def spoilt(place, fault):
    """The valid call's arguments with the fault in its place; of masks beside it, only with a refusal."""
    change = fault.value.f if isinstance(fault.value, Change) else lambda _: fault.value
    arguments = replaced(CALLS[place.function](), place.path, change)
    if fault.error is None and place.letters:
        beside = [p.path for p in valid_places(place.function) if p.kind in ("Mask", "Bias", "Numbers")]
        arguments |= {path: None for path in beside if path != place.path}
    return arguments


def variants(function):
    """The valid call with each other setting: (what, arguments) for None, every word and every flag."""
    for place in valid_places(function):
        if BOUND.search(str(place)) or place.path.count(".") > place.path.startswith("config."):
            continue
        others = [None] * (place.optional and place.value is not None)
        others += get_args(place.annotation) if get_origin(place.annotation) is Literal else ()
        others += [not place.value] if place.kind == "bool" else ()
        for other in others:
            yield f"{place.path}={other}", spoilt(place, Fault(other, TypeError))


# what parameters or other settings decide
BOUND = re.compile(r"config\.tied|generate-rng|(transformer|greedy|minilm|sentence).*config\.positions")


# --- shapes: who tells which length -----------------------------------------------------------------


def told(place, shape):
    """{letter: length} of an array of this shape, "..." for the leading axes; None if no such shape fits."""
    named = [letter for letter in place.letters if letter != "..."]
    first = len(shape) - len(named)
    if first < 0 or (first and "..." not in place.letters):
        return None
    mine = dict(zip(named, shape[first:], strict=True))
    if [mine[letter] for letter in named] != list(shape[first:]):  # a letter that comes twice
        return None
    return mine | ({"...": shape[:first]} if "..." in place.letters else {})


def told_beside(place):
    """{letter: {path: length}}: what the other places tell."""
    found = {}
    for other in valid_places(place.function):
        if other.path == place.path or other.value is None:
            continue
        name = other.path.rpartition(".")[2]
        tells = told(other, other.value.shape) if other.kind in TELLERS else {}
        for letter, length in (tells | ({name: other.value} if "a letter" in other.words else {})).items():
            found.setdefault(letter, {})[other.path] = length
    return found


def shape_faults(place):
    """Each axis longer and empty, one axis more and one fewer, transposed."""
    shape, beside = place.value.shape, told_beside(place)
    tried = {(*shape[:i], m, *shape[i + 1 :]) for i, n in enumerate(shape) for m in (n + 2, 0)}
    for other in sorted({*tried, (1, *shape), shape[1:], shape[::-1]} - {shape}):
        mine = None if place.function in BACKWARD else told(place, other)  # a cache tells all of a gradient
        if mine is None:
            yield Fault(ones(*other), ValueError)
            continue
        odd = [x for x, n in mine.items() if beside.get(x) and n not in beside[x].values()]
        named = tuple(path for x in odd for path in beside[x] if len(beside[x]) == 1)
        empty = any(n == 0 and x[0] not in "TS." for x, n in mine.items())
        yield Fault(ones(*other), ValueError if odd or empty else None, named)


def broadcast_faults(place):
    """Every axis longer, empty, one axis too many; and what broadcasts is welcome."""
    beside = {"h": {"n_heads": CONFIG.n_heads}} | told_beside(place)
    full = [next(iter(beside[letter].values())) for letter in place.letters]
    full = [*full[0], *full[1:]] if place.letters[0] == "..." else full
    other = [ones(*full[:i], n, *full[i + 1 :]) for i in range(len(full)) for n in (full[i] + 1, 0)]
    single = [ones(*full[:i], 1, *full[i + 1 :]) for i in range(len(full))]
    return faults(ValueError, *other, ones(1, *full)) + faults(None, *single, ones())


# --- what is wrong with an array ------------------------------------------------------------------


class Tensor:
    """Another library's array."""

    shape, dtype, ndim, size = (2, 3), np.dtype(np.float64), 2, 6


def as_type(dtype):
    return Change(lambda a: a.astype(dtype))


def ones(*shape):
    """Ones in another shape and the same dtype."""
    return Change(lambda a: np.ones(shape, a.dtype))


def entry(value, at=-1):
    """The array with one of its entries changed."""

    def change(a):
        a = a.copy()
        a.reshape(-1)[at] = value
        return a

    return Change(change)


NO_ARRAYS = [
    Change(np.ndarray.tolist), "0.5", 0.5, np.float64(0.5), Tensor(), len, Change(np.ma.asarray),
    np.ones((2, 2)).view(np.matrix), *map(as_type, (complex, object, str, [("a", float)])),
]  # fmt: skip
DTYPES = {  # what else is no array of this kind, and what is one
    "Float": ([int, bool, np.float16, ">f8"], []),
    "Bias": ([int, bool, np.float16, ">f8"], []),
    "Ids": ([float, bool, np.float32], [np.uint8, np.int32]),
    "Mask": ([int, np.uint8, float], []),
    "Numbers": ([bool], [np.float32, np.int8]),
}


def array_faults(place):
    """Other kinds, dtypes and shapes; of ids such that name no row."""
    if place.value is None:
        return
    no, yes = DTYPES[place.kind]
    yield from faults(TypeError, *NO_ARRAYS, *map(as_type, no), *[None] * (not place.optional))
    yield from faults(None, *map(as_type, yes))
    floats = [p for p in valid_places(place.function) if p.kind in FLOATS and p.value is not None]
    others = [p.path for p in floats if p.path != place.path]
    if place.kind in FLOATS:
        wrong = bool(others) or place.function in BACKWARD
        yield Fault(as_type(np.float32), TypeError if wrong else None, tuple(others * (len(others) == 1)))
    for most in told_beside(place).get("vocab_size", {}).values() if place.kind == "Ids" else ():
        yield from faults(ValueError, entry(most), entry(-2))
    yield from (broadcast_faults if place.kind in ("Mask", "Bias") else shape_faults)(place)


# --- what is wrong with a number, and with anything else ------------------------------------------


def number_faults(place):
    """Other kinds, NaN and infinity, huge ones, what lies just outside the bounds, and the bounds."""
    whole = place.words.startswith("int")
    wrong = [
        "3",
        True,
        np.bool_(True),
        0.5j,
        np.array(2),
        [2],
        *[2.0] * whole,
        *[None] * (not place.optional),
    ]
    bad = [10**400, *([-(10**400)] if whole else [np.nan, np.inf, -np.inf, np.float32("nan")])]
    good = []
    if place.value is not None:
        good += [kind(place.value) for kind in ((np.int16, np.int64) if whole else (np.float32, np.float64))]
    sized = place.path.startswith("config.") and CALLS[place.function]().keys() & {"params", "state"}
    for side, step in (("low", -1), ("high", 1)):
        for bound, is_in in bounds(place.words, side):
            bad += [bound + step * (1 if whole else 1e-6) if is_in else bound, bound + 5 * step]
            if is_in and not (whole and (sized or re.search("even|a letter", place.words))):
                good.append(bound)
    bad += [n for word, ns in RELATED.items() if word in place.words for n in ns]
    return faults(TypeError, *wrong) + faults(ValueError, *bad) + faults(None, *good)


RELATED = {
    "divides": (0, -2, 3, 16),
    "vocab_size": (-1, VOCAB_SIZE, VOCAB_SIZE + 10**6),
    "axis": (2, -3),
    "even": (5, 7),
}


def bounds(words, side):
    """(bound, whether it is allowed) of 0 <= · < 1 or > 0."""
    patterns = {"low": (r">(=?) (\d+)", r"(\d+) <(=?) ·"), "high": (r"· <(=?) (\d+)",)}[side]
    found = [pair for pattern in patterns for pair in re.findall(pattern, words)]
    return [(int("".join(pair).replace("=", "")), "=" in pair) for pair in found]


def tuple_faults(place):
    """A dict, a plain tuple, another NamedTuple, an array, nothing at all; for a cache another function's."""
    wrong = [npf.BlockMultiplications(1, 2, 3, 4), np.ones((4, 4)), *[None] * (not place.optional)]
    if place.value is not None:
        wrong += [Change(lambda value: value._asdict()), Change(tuple)]
    if not is_params(place.annotation):
        forwards = list(FORWARD)
        another = forwards[forwards.index(place.function.replace("_backward", "_forward")) - 1]
        wrong.append(call(another, FORWARD[another]())[1])
    return faults(TypeError, *wrong)


def word_faults(place):
    wrong = ("", "another", place.value.upper(), place.value + " ")
    return faults(TypeError, None, 1, ["relu"]) + faults(ValueError, *wrong)


def faults_of(place):
    """What may not stand in a place, and some unusual values that may."""
    if place.kind in DTYPES:
        return list(array_faults(place))
    if get_origin(place.annotation) is Literal:
        return word_faults(place)
    if get_origin(place.annotation) is tuple:
        wrong = faults(TypeError, Change(list), None, Change(lambda blocks: blocks[0]), 3)
        return [*wrong, Fault((), ValueError)]
    if hasattr(place.annotation, "_fields"):
        return tuple_faults(place)
    if place.kind in ("int", "float"):
        return number_faults(place)
    wrong, good = OTHERS.get("dtype" if ", dtype" in place.words else place.kind, ([], []))
    none = [None] * (bool(wrong) and not place.optional)
    return faults(TypeError, *wrong, *none) + faults(None, *good)


OTHERS = {  # what may not stand there, and what may
    "bool": ([1, "yes", np.ones((2, 2), bool), np.bool_(True)], []),
    "module": (["cupy", re], []),
    "Rng": ([0, np.random, np.random.PCG64(0), np.random.RandomState(0), "0"], []),
    "dtype": (
        ["x", "(-3,)f8", int, np.float16, np.dtype(complex), 64, np.ones(2), np.nan],
        [np.float32, "float32", "f8", float, np.dtype("f4")],
    ),
}
