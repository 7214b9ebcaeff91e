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


class Change(NamedTuple):
    """Computed from the value that stands in the place, for example its transpose."""

    f: Any


class Fault(NamedTuple):
    name: str
    value: Any  # what stands in the place instead; a Change is applied to what stood there
    error: type[Exception] | None  # None: unusual, but welcome
    received: str = ""  # what the message says of it


class Tensor:
    """Another library's array."""

    shape, dtype, ndim, size = (2, 3), np.dtype(np.float64), 2, 6


def spoilt(place, fault):
    """The valid call's arguments with the fault in its place; of masks beside it, only with a refusal."""
    change = fault.value.f if isinstance(fault.value, Change) else lambda _: fault.value
    arguments = replaced(CALLS[place.function](), place.path, change)
    beside = [p for p in valid_places(place.function) if is_array(p, STRETCHED) and p.path != place.path]
    if fault.error is None and is_array(place):
        arguments |= {p.path: None for p in beside}
    return arguments


# --- the places -----------------------------------------------------------------------------------


def places_of(function):
    """Every argument of a function and every field of the parameters and the config in them."""
    body, arguments = inspect.unwrap(getattr(npf, function)), CALLS[function]()
    for name, value in arguments.items():
        yield from _walk(function, name, body.__annotations__[name], value)


def _walk(function, path, annotation, value):
    annotation, optional = _without_none(annotation)
    extras = []
    while get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        extras += map(str, more)
        annotation, also = _without_none(annotation)
        optional |= also
    words = ", ".join([_words(annotation), *extras])
    yield Place(function, path, words, optional or words.endswith("| None"), annotation, value)
    parts, kinds = (), ()
    if value is None:
        return
    if _is_params(annotation):
        parts, kinds = annotation._fields, annotation.__annotations__.values()
    elif get_origin(annotation) is tuple:
        parts, kinds = range(len(value)), [get_args(annotation)[0]] * len(value)
    for part, kind, inside in zip(parts, kinds, value if len(parts) else (), strict=True):
        yield from _walk(function, f"{path}.{part}", kind, inside)


def _without_none(annotation):
    if get_origin(annotation) is UnionType or str(annotation).startswith("typing.Optional"):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        return kinds[0], True
    return annotation, False


def _words(annotation):
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _is_params(annotation):
    return hasattr(annotation, "_fields") and not annotation.__name__.endswith("Cache")


@cache
def valid_places(function):
    return list(places_of(function))


def first_of_their_kind(places):
    """The names of those whose rule no place before had: params.W_Q of attention, not of every model."""
    seen = {}
    for place in places:
        owner, _, field = place.path.rpartition(".")
        owners = [str(p.annotation) for p in valid_places(place.function) if p.path == owner]
        seen.setdefault(
            (*(owners or [place.function]), field.strip("01") or "block", place.words), str(place)
        )
    return set(seen.values())


# --- the letters ----------------------------------------------------------------------------------


def letters_of(place):
    """["...", "T", "d_model"] for a place whose annotation says so."""
    found = re.match(r"\w+\[Array, '([^']*)'", place.words)
    return found[1].split() if found else []


def is_array(place, kinds="Float Ids Numbers"):
    return place.words.partition("[")[0] in kinds.split()


STRETCHED = "Mask Bias Numbers"  # what fits an array or not, and may be left out


def told_elsewhere(place, places):
    """The letters that other arguments, or the same one twice, speak of; "..." among them."""
    told = {other.path.rpartition(".")[2] for other in places if "a letter" in other.words}
    own = letters_of(place)
    told |= {"T"} if is_array(place, "Numbers") else set()
    for other in places:
        if other.path != place.path and is_array(other, "Float Ids") and other.value is not None:
            told |= set(letters_of(other))
    return told | {letter for letter in own if own.count(letter) > 1}


def full_shape(place, places):
    """What a mask has to broadcast to, as the arrays beside it say."""
    sizes = {"h": CONFIG.n_heads}
    for other in places:
        if is_array(other) and other.value is not None:
            letters, shape = letters_of(other), other.value.shape
            inside = [letter for letter in letters if letter != "..."]
            sizes |= zip(inside, shape[len(shape) - len(inside) :], strict=True)
            if "..." in letters and len(shape) >= len(inside):
                sizes.setdefault("...", shape[: len(shape) - len(inside)])
    lengths = (sizes[letter] for letter in letters_of(place))
    return tuple(n for length in lengths for n in (length if isinstance(length, tuple) else (length,)))


# --- what is wrong with an array ------------------------------------------------------------------


def as_type(dtype):
    return Change(lambda a: a.astype(dtype))


def ones_like(shape):
    """Ones in another shape and the same dtype."""
    return Change(lambda a: np.ones(shape, a.dtype))


OTHER_KINDS = [
    Fault("list", Change(np.ndarray.tolist), TypeError, " is a list; "),
    Fault("None", None, TypeError, " is None; "),
    Fault("string", "0.5", TypeError, " is the string '0.5'; "),
    Fault("number", 0.5, TypeError, " is a float (0.5); "),
    Fault("NumPy number", np.float64(0.5), TypeError, " is a NumPy scalar (float64); "),
    Fault("tensor", Tensor(), TypeError, " is a Tensor; "),
    Fault("bytes", b"x", TypeError, " is a bytes; "),
    Fault("function", len, TypeError, " is a builtin_function_or_method; "),
    Fault("records", Change(lambda a: np.zeros(a.shape, [("a", float)])), TypeError, " has dtype [("),
    Fault("dates", Change(lambda a: np.zeros(a.shape, "M8[s]")), TypeError, " has dtype datetime64[s]; "),
    Fault("masked", Change(np.ma.asarray), TypeError, " is a MaskedArray; "),
    Fault("matrix", np.ones((2, 2)).view(np.matrix), TypeError, " is a matrix; "),
    Fault("complex", as_type(complex), TypeError, " has dtype complex128; "),
    Fault("objects", as_type(object), TypeError, " has dtype object; "),
    Fault("texts", as_type(str), TypeError, " has dtype <U"),
]
NO_INTEGERS = [
    Fault("int", as_type(np.int64), TypeError, " has dtype int64; "),
    Fault("bool", as_type(bool), TypeError, " has dtype bool; "),
    Fault("float16", as_type(np.float16), TypeError, " has dtype float16; expected float32 or float64 ("),
    Fault("byte order", Change(lambda a: a.astype(a.dtype.newbyteorder())), TypeError, " has dtype "),
]  # fmt: skip


def kinds(place, more=()):
    for fault in (*OTHER_KINDS, *more):
        if not (fault.name == "None" and place.optional):
            yield fault


def shape_faults(place, places):
    """Each axis longer, shorter and empty, one axis more and fewer, transposed, other leading axes."""
    letters, shape = letters_of(place), place.value.shape
    inside, told = [letter for letter in letters if letter != "..."], told_elsewhere(place, places)
    first = len(shape) - len(inside)
    for i, letter in enumerate(inside, first):
        pairs = "even" in place.words or any("divides" in other.words for other in places)
        step = 1 + (pairs and i == len(shape) - 1)  # a pair more is as even
        for n, what in ((shape[i] + step, "longer"), (shape[i] - step, "shorter"), (0, "empty")):
            bad = letter in told or (n <= 0 and letter[0] not in "TS")
            if n >= 0 and (letter != "vocab_size" or bad or what == "longer"):  # its last id is used
                fault = shape_fault(f"{letter} {what}", (*shape[:i], n, *shape[i + 1 :]), bad)
                yield rows_fault(fault, place) if letter == "max_length" and n else fault
    leads, shared = letters[:1] == ["..."], "..." in told
    yield shape_fault("one axis more", (1, *shape), shared or not leads)
    if leads and first and inside:
        yield shape_fault("other leading axes", (shape[0] + 1, *shape[1:]), shared)
        yield shape_fault("no leading axes", shape[first:], shared)
    if inside:
        yield shape_fault("too few axes", shape[first + 1 :], True)
    if any(letter in told and shape[::-1][i] != shape[i] for i, letter in enumerate(inside, first)):
        yield Fault("transposed", Change(lambda a: a.T), ValueError, f" has shape {shape[::-1]}; ")


def rows_fault(fault, place):
    """A whole model's table has config.max_length rows; alone, a table has as many as it likes."""
    if place.function not in ("transformer_forward", "greedy_decode"):
        return fault
    return fault._replace(error=ValueError, received=" has ")


def shape_fault(name, shape, bad):
    return Fault(
        name, ones_like(shape), ValueError if bad else None, f" has shape {shape}; expected " if bad else ""
    )


def float_faults(place, places):
    if place.value is None:
        return
    yield from kinds(place, NO_INTEGERS)
    others = [p for p in places if p.path != place.path and is_array(p, "Float Bias") and p.value is not None]
    other = Fault(
        "float32", as_type(np.float32), TypeError, " has dtype float32; expected float64 like the other"
    )
    yield other if others else Fault("float32", other.value, None)
    if is_array(place, "Bias"):
        yield from broadcast_faults(place, places)
    else:
        yield from shape_faults(place, places)


def broadcast_faults(place, places):
    """Every axis one longer, empty, one axis too many; and what broadcasts is welcome."""
    full = full_shape(place, places)
    said = f" has shape {{}}; expected one that broadcasts to ({', '.join(letters_of(place))}) = {full}"
    for i, n in enumerate(full):
        for length in (n + 1, 0):
            shape = (*full[:i], length, *full[i + 1 :])
            yield Fault(f"axis {i} of {length}", ones_like(shape), ValueError, said.format(shape))
        yield Fault(f"axis {i} of 1", ones_like((*full[:i], 1, *full[i + 1 :])), None)
    yield Fault("one axis more", ones_like((1, *full)), ValueError, said.format((1, *full)))
    yield Fault("no axes", ones_like(()), None)


def mask_faults(place, places):
    yield from kinds(place)
    for value in (True, np.bool_(True)):
        yield Fault(type(value).__name__, value, TypeError, "a boolean array, True = may attend")
    for dtype in (np.int64, np.uint8, float):
        yield Fault(dtype.__name__, as_type(dtype), TypeError, "; expected bool, True = may attend")
    yield from broadcast_faults(place, places)


def id_faults(place, places):
    yield from kinds(place)
    for dtype in (float, bool, np.float32):
        yield Fault(dtype.__name__, as_type(dtype), TypeError, "; expected an array of integers")
    for dtype in (np.uint8, np.int32):
        yield Fault(dtype.__name__, as_type(dtype), None)
    tables = [p for p in places if "vocab_size" in letters_of(p)]
    if tables:
        most = tables[0].value.shape[letters_of(tables[0]).index("vocab_size") - len(letters_of(tables[0]))]
        for id in (most, -2, 10**6):
            yield Fault(
                f"holds {id}", entry(id), ValueError, f" holds {id}; expected ids from 0 to {most - 1}, "
            )
    yield from shape_faults(place, places)


def entry(value, at=-1):
    """The array with one of its entries changed."""

    def change(a):
        a = a.copy()
        a.reshape(-1)[at] = value
        return a

    return Change(change)


def number_array_faults(place, places):
    yield from kinds(place)
    yield Fault("bool", as_type(bool), TypeError, " has dtype bool; expected an array of numbers")
    for dtype in (np.float32, np.int8):
        yield Fault(dtype.__name__, as_type(dtype), None)
    yield from shape_faults(place, places)


# --- what is wrong with a number, a word, a switch, a generator ------------------------------------

NO_NUMBERS = [
    Fault("None", None, TypeError, " is None; "),
    Fault("string", "3", TypeError, " is the string '3'; "),
    Fault("bool", True, TypeError, " is a bool (True); "),
    Fault("NumPy bool", np.bool_(True), TypeError, " is a NumPy scalar (bool); "),
    Fault("complex", 0.5j, TypeError, " is a complex; "),
    Fault("array", np.array(2), TypeError, " is an array of shape (); "),
    Fault("list", [2], TypeError, " is a list; "),
]
EXPECTED = "; expected a finite number"
INTEGERS = ("integer", "letter", "divides", "vocab_size", "axis")


def number_faults(place, places):
    """Other kinds, NaN and infinity, huge ones, and what lies just outside the bounds."""
    whole = "<class 'int'>" in place.words or place.words.startswith("int")
    yield from kinds_of_number(place)
    if whole:
        yield Fault(
            "2.0", 2.0, TypeError, f" is a float (2.0); expected {'None or ' * place.optional}an integer"
        )
        yield Fault("-huge", -(10**400), ValueError, " is -10**400 or so; ")
    else:
        for value in (np.nan, np.inf, -np.inf, np.float32("nan")):
            yield Fault(repr(value), value, ValueError, f" is {value!r}{EXPECTED}")
    yield Fault("huge", 10**400, ValueError, " is 10**400 or so; ")
    for value in outside(place, whole, places):
        yield Fault(f"{value}", value, ValueError, f" is {value!r}; expected ")
    for value in inside(place, whole):
        yield Fault(f"{value!r} is welcome", value, None)


def kinds_of_number(place):
    return (fault for fault in NO_NUMBERS if not (fault.name == "None" and place.optional))


def outside(place, whole, places):
    """Just outside: -1 and 1 for 0 <= · < 1, 0 for > 0."""
    low, high = re.search(r">(=?) (\d+)|(\d+) <(=?) ·", place.words), re.search(r"· <(=?) (\d+)", place.words)
    if low:
        bound, included = int(low[2] or low[3]), "=" in (low[1] or low[4] or "")
        yield bound - (1 if whole else 1e-6) if included else bound
        yield -bound - 5
    if high:
        yield int(high[2]) + (1e-6 if high[1] else 0)
        yield int(high[2]) + 0.5
    if "divides" in place.words:
        yield from (0, -2, 3, 16)
    if "vocab_size" in place.words:
        yield from (-1, VOCAB_SIZE, VOCAB_SIZE + 10**6)
    if "axis" in place.words:
        yield from (2, -3)
    if "even" in place.words:
        yield from (5, 7)


def inside(place, whole):
    """The same number in NumPy's kinds, None where it may be left out, and the bounds that are allowed."""
    if place.value is not None:
        kinds = (np.int16, np.int64) if whole else (np.float32, np.float64)
        yield from (kind(place.value) for kind in kinds)
    if place.optional:
        yield None
    size_of_others = place.path.startswith("config.") and CALLS[place.function]().keys() & {"params", "state"}
    if not (whole and (size_of_others or re.search("even|a letter", place.words))):
        bounds = re.findall(r">= (\d+)|(\d+) <= ·|· <= (\d+)", place.words)
        yield from (int(bound) for found in bounds for bound in found if bound)


def word_faults(place, _):
    for value, received in ((None, "None"), (1, "an int (1)"), (True, "a bool (True)"), (["relu"], "a list")):
        yield Fault(received, value, TypeError, f" is {received}; expected one of '")
    for word in ("", "another", place.value.upper(), place.value + " "):
        yield Fault(repr(word), word, ValueError, f" is {word!r}; expected one of '")
    alone = place.path != "config.positions"  # beside parameters it says which there are
    for word in get_args(place.annotation) if alone else ():
        yield Fault(word, word, None)


def switch_faults(place, _):
    expected = "; expected True or False"
    for value, received in ((None, "None"), (1, "an int (1)"), ("yes", "the string 'yes'")):
        yield Fault(received, value, TypeError, f" is {received}{expected}")
    yield Fault("array", np.ones((2, 2), bool), TypeError, f" is an array of shape (2, 2){expected}")
    yield Fault("NumPy bool", np.bool_(True), TypeError, f" is a NumPy scalar (bool){expected}")


def generator_faults(place, _):
    expected = "; expected None or a numpy.random.G" if place.optional else "; expected a numpy.random.G"
    for value, received in (
        (0, "an int (0)"), (np.random, "a module"), (np.random.PCG64(0), "a PCG64"),
        (np.random.RandomState(0), "a RandomState"), ("0", "the string '0'"),
    ):  # fmt: skip
        yield Fault(received, value, TypeError, f" is {received}{expected}")
    yield Fault("None", None, None if place.optional else TypeError, "" if place.optional else expected)


def dtype_faults(*_):
    for value, received in (
        (None, "None"), ("x", "the string 'x'"), ("(-3,)f8", "the string '(-3,)f8'"), (int, "the type int"),
        (np.float16, "the type float16"), (np.dtype(complex), "the dtype complex128"), (64, "an int (64)"),
        (np.ones(2), "an array of shape (2,)"), (float("nan"), "a float (nan)"),
    ):  # fmt: skip
        yield Fault(received, value, TypeError, f" is {received}; expected float32 or float64")
    for value in (np.float32, "float32", "f8", float, np.dtype("f4")):
        yield Fault(f"{value} is welcome", value, None)


def library_faults(*_):
    for value, received in ((None, "None"), ("cupy", "the string 'cupy'"), (re, "a module")):
        yield Fault(received, value, TypeError, f" is {received}; expected an array library, numpy or cupy")


# --- what is wrong with parameters, a config, a cache, a gradient -----------------------------------


def tuple_faults(place, _):
    """A dict, a plain tuple, another NamedTuple, an array, nothing at all."""
    name = place.annotation.__name__
    expected = f"; expected {'None or ' * place.optional}{'an' if name[0] in 'AEIOU' else 'a'} {name}"
    other = npf.BlockMultiplications(1, 2, 3, 4)
    if not place.optional:
        yield Fault("None", None, TypeError, f" is None{expected}")
    if place.value is not None:
        yield Fault("dict", Change(lambda value: value._asdict()), TypeError, f" is a dict{expected}")
        yield Fault("tuple", Change(tuple), TypeError, f" is a tuple{expected}")
    yield Fault("another", other, TypeError, f" is a BlockMultiplications{expected}")
    yield Fault("array", np.ones((4, 4)), TypeError, f" is an array of shape (4, 4){expected}")


def stack_faults(place, _):
    for value, received in (
        (Change(list), "a list"), (None, "None"), (Change(lambda blocks: blocks[0]), ""), (3, "an int (3)")
    ):  # fmt: skip
        yield Fault(received or "one", value, TypeError, received)
    yield Fault("no blocks", (), ValueError, " holds 0 blocks; expected config.n_layers=")


def cache_faults(place, places):
    yield from tuple_faults(place, places)
    forwards = list(FORWARD)
    another = forwards[forwards.index(place.function.replace("_backward", "_forward")) - 1]
    other = call(another, FORWARD[another]())[1]
    yield Fault("another function's", other, TypeError, f"{type(other).__name__}; expected ")


def gradient_faults(place, _):
    shape, like = place.value.shape, " like the forward's output"
    yield from kinds(place, NO_INTEGERS)
    yield Fault("float32", as_type(np.float32), TypeError, f" has dtype float32; expected float64{like}")
    others = {(*shape[:i], n + 1, *shape[i + 1 :]) for i, n in enumerate(shape)}
    for other in sorted({*others, (1, *shape), shape[1:], shape[:-1], (0, *shape[1:])} - {shape}):
        said = f" has shape {other}; expected {shape}{like}"
        yield Fault(f"shape {other}", ones_like(other), ValueError, said)


KINDS = {
    "Float": float_faults, "Bias": float_faults, "Mask": mask_faults, "Ids": id_faults,
    "Numbers": number_array_faults, "Rng": generator_faults, "Rng | None": generator_faults,
}  # fmt: skip


def faults_of(place, places):
    """What may not stand in a place, and some unusual values that may."""
    kind = place.words.partition("[")[0]
    if place.function in BACKWARD and kind == "Float":
        return gradient_faults(place, places)
    if kind in KINDS:
        return KINDS[kind](place, places)
    if get_origin(place.annotation) is Literal:
        return word_faults(place, places)
    if get_origin(place.annotation) is tuple:
        return stack_faults(place, places)
    if hasattr(place.annotation, "_fields"):
        return (tuple_faults if _is_params(place.annotation) else cache_faults)(place, places)
    if place.words.startswith(("int", "float")):
        return number_faults(place, places)
    plain = {"bool": switch_faults, "module": library_faults}
    if kind.partition(",")[0] in plain:
        return plain[kind.partition(",")[0]](place, places)
    return dtype_faults() if place.words.endswith(", dtype") else ()
