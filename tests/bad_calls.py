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


class Place(NamedTuple):
    function: str
    path: str  # params.attention.W_Q
    words: str  # of its annotation: Float[Array, 'd_model d_model']
    optional: bool  # None is welcome
    annotation: Any
    value: Any  # what stands there in the valid call

    def __str__(self):
        return f"{self.function}-{self.path}"

    @property
    def kind(self):
        return re.match(r"[\w.]*", self.words)[0]

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
    letter: str = ""  # of which it tells another length; "..." for leading axes


def faults(error, *values):
    return [Fault(value, error) for value in values]


# --- the places -----------------------------------------------------------------------------------


@cache
def valid_places(function):
    """Every argument of a function and every field of the parameters and the config in them."""
    body, arguments = inspect.unwrap(getattr(npf, function)), CALLS[function]()
    found = (places_in(function, n, body.__annotations__[n], value) for n, value in arguments.items())
    return [place for places in found for place in places]


def places_in(function, path, annotation, value):
    optional, extras = False, []
    while get_origin(annotation) in (Annotated, UnionType) or str(annotation).startswith("typing.Optional"):
        first, *more = [part for part in get_args(annotation) if part is not NoneType]
        optional |= NoneType in get_args(annotation)
        annotation, extras = first, extras + more
    name = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    words = ", ".join([name, *map(str, extras)])
    yield Place(function, path, words, optional or words.endswith("| None"), annotation, value)
    if get_origin(annotation) is tuple:
        parts = [(i, get_args(annotation)[0]) for i in range(len(value))]
    else:
        parts = annotation.__annotations__.items() if is_params(annotation) and value is not None else ()
    for (part, kind), inside in zip(parts, value if parts else (), strict=True):
        yield from places_in(function, f"{path}.{part}", kind, inside)


def is_params(annotation):
    return hasattr(annotation, "_fields") and not annotation.__name__.endswith("Cache")


def first_of_their_kind(places):
    """The names of those whose rule no place before had: params.W_Q of attention, not of every model."""
    seen = {}
    for place in places:
        owner, _, field = place.path.rpartition(".")
        owners = [str(p.annotation) for p in valid_places(place.function) if p.path == owner]
        key = (*(owners or [place.function]), field.strip("01") or "block", place.words)
        seen.setdefault(key, str(place))
    return set(seen.values())


def tellers(place, letter):
    """The other places that tell the length of a letter, or the leading axes."""
    others = [p for p in valid_places(place.function) if p.path != place.path and p.value is not None]
    arrays = [p for p in others if p.kind in ("Float", "Ids") and letter in p.letters]
    return arrays + [p for p in others if "a letter" in p.words and p.path.rpartition(".")[2] == letter]


def full_shape(place):
    """What a mask has to broadcast to, as the arrays beside it say."""
    sizes = {"h": [CONFIG.n_heads]}
    for other in valid_places(place.function):
        if other.kind in ("Float", "Ids") and other.value is not None:
            named, shape = [letter for letter in other.letters if letter != "..."], other.value.shape
            first = len(shape) - len(named)
            sizes |= {letter: [n] for letter, n in zip(named, shape[first:], strict=True)}
            if "..." in other.letters:
                sizes.setdefault("...", shape[:first])
    return tuple(n for letter in place.letters for n in sizes[letter])


def spoilt(place, fault):
    """The valid call's arguments with the fault in its place; of masks beside it, only with a refusal."""
    change = fault.value.f if isinstance(fault.value, Change) else lambda _: fault.value
    arguments = replaced(CALLS[place.function](), place.path, change)
    if fault.error is None and place.letters:
        beside = [p.path for p in valid_places(place.function) if p.kind in ("Mask", "Bias", "Numbers")]
        arguments |= {path: None for path in beside if path != place.path}
    return arguments


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
    Change(np.ndarray.tolist), "0.5", 0.5, np.float64(0.5), Tensor(), b"x", len, Change(np.ma.asarray),
    np.ones((2, 2)).view(np.matrix), *map(as_type, (complex, object, str, [("a", float)])),
    Change(lambda a: np.zeros(a.shape, "M8[s]")),
]  # fmt: skip
DTYPES = {  # what else is no array of this kind, and what is one
    "Float": ([int, bool, np.float16, ">f8"], []),
    "Bias": ([int, bool, np.float16, ">f8"], []),
    "Ids": ([float, bool, np.float32], [np.uint8, np.int32]),
    "Mask": ([int, np.uint8, float], []),
    "Numbers": ([bool], [np.float32, np.int8]),
}


def array_faults(place):
    """Other kinds and dtypes, and other shapes."""
    if place.value is None:
        return []
    no, yes = DTYPES[place.kind]
    found = faults(TypeError, *NO_ARRAYS, *map(as_type, no), *[None] * (not place.optional))
    found += faults(None, *map(as_type, yes))
    if place.kind == "Mask":
        found += faults(TypeError, True, np.bool_(True))
    if place.kind in ("Float", "Bias"):
        places = valid_places(place.function)
        others = [p for p in places if p.kind in ("Float", "Bias") and p.value is not None]
        found.append(Fault(as_type(np.float32), TypeError if len(others) > 1 else None, "dtype"))
    for table in (p for p in valid_places(place.function) if "vocab_size" in p.letters):
        most = table.value.shape[table.letters.index("vocab_size") - len(table.letters)]
        found += faults(ValueError, *map(entry, (most, -2, 10**6))) if place.kind == "Ids" else []
    return found + (broadcast_faults if place.kind in ("Mask", "Bias") else shape_faults)(place)


def shape_faults(place):
    """Each axis longer, shorter and empty, one axis more and fewer, transposed, other leading axes."""
    letters, shape = place.letters, place.value.shape
    named, found = [letter for letter in letters if letter != "..."], []
    first, leading = len(shape) - len(named), bool(tellers(place, "..."))
    told = [x for x in named if tellers(place, x) or named.count(x) > 1 or place.kind == "Numbers"]
    step = (
        2 if "even" in place.words or any("divides" in p.words for p in valid_places(place.function)) else 1
    )
    for i, letter in enumerate(named, first):
        for n in {shape[i] + step, max(0, shape[i] - step), 0}:  # of pairs one more is as even
            bad = letter in told or (n == 0 and letter[0] not in "TS")
            bad |= letter == "max_length" and place.function in ("transformer_forward", "greedy_decode")
            if bad or n > shape[i] or letter != "vocab_size":  # its last id is used
                error = ValueError if bad else None
                found.append(Fault(ones(*shape[:i], n, *shape[i + 1 :]), error, letter))
    found.append(Fault(ones(1, *shape), ValueError if leading or "..." not in letters else None, "..."))
    if "..." in letters and first and named:
        for other in ((shape[0] + 1, *shape[1:]), shape[first:]):
            found.append(Fault(ones(*other), ValueError if leading else None, "..."))
    if named:
        found.append(Fault(ones(*shape[first + 1 :]), ValueError))
    if any(letter in told and shape[::-1][i] != shape[i] for i, letter in enumerate(named, first)):
        found.append(Fault(Change(lambda a: a.T), ValueError, named[0]))
    return found


def broadcast_faults(place):
    """Every axis one longer, empty, one axis too many; and what broadcasts is welcome."""
    full = full_shape(place)
    other = [ones(*full[:i], n, *full[i + 1 :]) for i in range(len(full)) for n in (full[i] + 1, 0)]
    single = [ones(*full[:i], 1, *full[i + 1 :]) for i in range(len(full))]
    return faults(ValueError, *other, ones(1, *full)) + faults(None, *single, ones())


def gradient_faults(place):
    shape = place.value.shape
    other = {(*shape[:i], n + 1, *shape[i + 1 :]) for i, n in enumerate(shape)}
    other = sorted({*other, (1, *shape), shape[1:], shape[:-1], (0, *shape[1:])} - {shape})
    wrong = [*NO_ARRAYS, *map(as_type, (*DTYPES["Float"][0], np.float32)), None]
    return faults(TypeError, *wrong) + faults(ValueError, *(ones(*o) for o in other))


# --- what is wrong with a number, and with anything else ------------------------------------------


def number_faults(place):
    """Other kinds, NaN and infinity, huge ones, what lies just outside the bounds, and the bounds."""
    whole = place.words.startswith("int")
    wrong = ["3", True, np.bool_(True), 0.5j, np.array(2), [2], *[None] * (not place.optional)]
    bad = [10**400, *([-(10**400)] if whole else [np.nan, np.inf, -np.inf, np.float32("nan")])]
    good = [None] * place.optional
    if place.value is not None:
        good += [kind(place.value) for kind in ((np.int16, np.int64) if whole else (np.float32, np.float64))]
    for low, is_in in bounds(place.words, "low"):
        bad += [low - (1 if whole else 1e-6) if is_in else low, -low - 5]
    for high, is_in in bounds(place.words, "high"):
        bad += [high + (1e-6 if is_in else 0), high + 0.5]
    sized = place.path.startswith("config.") and CALLS[place.function]().keys() & {"params", "state"}
    if not (whole and (sized or re.search("even|a letter", place.words))):
        good += [n for side in ("low", "high") for n, is_in in bounds(place.words, side) if is_in]
    bad += [n for word, ns in RELATED.items() if word in place.words for n in ns]
    return faults(TypeError, *wrong, *[2.0] * whole) + faults(ValueError, *bad) + faults(None, *good)


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
    alone = place.path != "config.positions"  # beside parameters it says which there are
    bad = faults(ValueError, "", "another", place.value.upper(), place.value + " ")
    return (
        faults(TypeError, None, 1, True, ["relu"]) + bad + faults(None, *get_args(place.annotation) * alone)
    )


def faults_of(place):
    """What may not stand in a place, and some unusual values that may."""
    if place.function in BACKWARD and place.kind == "Float":
        return gradient_faults(place)
    if place.kind in DTYPES:
        return array_faults(place)
    if get_origin(place.annotation) is Literal:
        return word_faults(place)
    if get_origin(place.annotation) is tuple:
        wrong = faults(TypeError, Change(list), None, Change(lambda blocks: blocks[0]), 3)
        return [*wrong, Fault((), ValueError)]
    if hasattr(place.annotation, "_fields"):
        return tuple_faults(place)
    if place.kind in ("int", "float"):
        return number_faults(place)
    return OTHERS.get("dtype" if place.words.endswith(", dtype") else place.kind, lambda place: [])(place)


OTHERS = {
    "bool": lambda place: faults(TypeError, None, 1, "yes", np.ones((2, 2), bool), np.bool_(True)),
    "module": lambda place: faults(TypeError, None, "cupy", re),
    "Rng": lambda place: (
        faults(TypeError, 0, np.random, np.random.PCG64(0), np.random.RandomState(0), "0")
        + faults(None if place.optional else TypeError, None)
    ),
    "dtype": lambda place: (
        faults(TypeError, None, "x", "(-3,)f8", int, np.float16, np.dtype(complex), 64, np.ones(2), np.nan)
        + faults(None, np.float32, "float32", "f8", float, np.dtype("f4"))
    ),
}
