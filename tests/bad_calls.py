"""Bad calls, made from the signatures: odd values in every place of every function, and what must come of it.

A place is an argument or a field in it, such as params.attention.W_Q. What may stand there is read from the
text of its annotation, by other means than npformer/door has: bounds are Python to evaluate, a mask is held
against NumPy's own broadcasting, a shape against the lengths that all other arrays tell of its letters.
"""

import inspect
import re
from collections import defaultdict
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from valid_calls import BACKWARD, CALLS, CONFIG, FORWARD, INTEGERS, VOCAB_SIZE, call, replaced

import npformer as npf
from npformer.door.signature import read_signature, walk

CHECKED = [name for name in CALLS if getattr(npf, name).__code__ is npf.linear_forward.__code__]  # the door's
T, V = TypeError, ValueError


class Place(NamedTuple):
    function: str
    path: str  # params.attention.W_Q
    text: str  # of its annotation: Float[Array, 'd_model d_model']
    value: Any  # what stands there in the valid call

    def __str__(self):
        return f"{self.function}-{self.path}"

    @property
    def kind(self):
        return "dtype" if ", dtype" in self.text else re.match(r"[\w.]*", self.text)[0]

    @property
    def letters(self):
        """["...", "T", "d_model"], where the annotation says so."""
        found = re.match(r"\w+\[Array, '([^']*)'", self.text)
        return found[1].split() if found else []

    @property
    def optional(self):
        return "None" in self.text

    @property
    def related(self):
        """Whether more is asked than a kind, a shape and bounds: of the rest test_bad_input has a table."""
        of_config = self.path.startswith("config.") and self.kind != "float"
        related = re.search(r", (?![<>]=? \d|[\d'.]|dtype|finite|an integer)", self.text)
        return bool(related) or of_config or str(self) in RELATED


RELATED = {"order_sensitivity-x", "generate-ids", "generate-rng", "dead_units-hidden"}


@cache
def places(function):
    """Every argument of a function and every field of the parameters and the config in them."""
    asked, values = read_signature(inspect.unwrap(getattr(npf, function))).rules, CALLS[function]()
    found = {}
    for path, rule, value in (place for name, whole in asked for place in walk(name, whole, values[name])):
        text = str(rule).replace("typing.", "") + " | None" * str(rule).startswith("typing.Optional")
        text = re.sub(r"^(Optional\[|Annotated\[)*", "", text)
        found.setdefault(path, Place(function, path, text, value))
    return list(found.values())


def first_of_their_kind(every):
    """The names of those whose rule no place before had: params.W_Q of attention, not of every model."""
    seen = {}
    for place in every:
        inside, _, name = place.path.rpartition(".")
        seen.setdefault((bool(inside), name.strip("01"), place.text), str(place))
    return set(seen.values())


def variants(function):
    """The valid call with each other setting: (what, arguments) for None, every word and every flag."""
    for place in places(function):
        if BOUND.search(str(place)) or place.path.count(".") > place.path.startswith("config."):
            continue
        others = [None] * (place.optional and place.value is not None)
        others += re.findall(r"'(\w+)'", place.text) * (place.kind == "Literal")
        others += [place.value is False] * (place.kind == "bool")
        for other in others:
            yield f"{place.path}={other}", replaced(CALLS[function](), place.path, lambda _, x=other: x)


# what parameters or other settings decide
BOUND = re.compile(r"config\.tied|generate-rng|(transformer|greedy|minilm|sentence).*config\.positions")

# --- odd values -----------------------------------------------------------------------------------


class Tensor:
    """Another library's array."""

    shape, dtype, ndim, size = (2, 3), np.dtype(np.float64), 2, 6


ODD = {
    **{repr(odd): odd for odd in (None, "x", 3, -1, 2.5, True, np.nan, [], {}, (), ([1],), b"x", int)},
    **{repr(odd): odd for odd in (np.float64(1), np.float32(1), np.uint8(2), np.bool_(True))},
    "huge": 10**5000, "function": lambda: 0, "0-d": np.array(1.0), "ints": np.ones((2, 6, 8), int),
    "empty": np.ones(0), "2x0 int": np.ones((2, 0), int), "float16": np.ones(2, np.float16),
    "complex": np.ones(2, complex), "objects": np.array([None, 1], object), "texts": np.array(["a"]),
    "records": np.zeros(3, [("a", float)]), "masked": np.ma.ones(2), "tensor": Tensor(),
    "matrix": np.ones((2, 8)).view(np.matrix),
}  # fmt: skip
NUMBERS = [0.5j, np.inf, -np.inf, np.float32("nan"), -(10**400), 0, 1, 5, 7, 16, 99]
DTYPES = [float, np.float32, np.float16, ">f8", int, np.int32, np.uint8, bool, complex, object, str]
WORDS, F4 = ("float32", "f8"), np.dtype("f4")
OTHERS = {
    "xp": ["cupy", re],
    "Rng": [0, np.random, np.random.PCG64(0), np.random.RandomState(0)],
    "dtype": ["(-3,)f8", np.dtype(complex), *DTYPES[:6], *WORDS, F4],
}


def odd_values(place):
    """What is almost right in this place."""
    value, kind = place.value, place.kind
    if kind in ("int", "float"):
        step = 1 if kind == "int" else 1e-6
        bounds = map(int, re.findall(r"\d+", place.text))
        return [*NUMBERS, *(bound + d for bound in bounds for d in (-5, -step, 0, step, 5))]
    if kind in ENTRIES and value is not None:
        near = [value.tolist(), np.ma.asarray(value), *map(value.astype, DTYPES)]
        near += [entry(value, wrong) for wrong in (VOCAB_SIZE, -2)] * (kind == "Ids")
        return near + [np.ones(shape, value.dtype) for shape in odd_shapes(place)]
    if kind.endswith("Cache"):  # of another function
        forwards = list(FORWARD)
        another = forwards[forwards.index(place.function.replace("_backward", "_forward")) - 1]
        return [call(another, FORWARD[another]())[1], tuple(value), value._asdict()]
    if isinstance(value, tuple):
        return [list(value), value[0], npf.BlockMultiplications(1, 2, 3, 4)]
    return ["", value.upper(), value + " "] if kind == "Literal" else OTHERS.get(kind, [])


def odd_shapes(place):
    """Each axis longer and empty, a mask's also of one entry; one axis more and one fewer, transposed."""
    shape, others = place.value.shape, (0, 1) if place.kind in STRETCHED else (0,)
    if place.kind in STRETCHED:
        shape = full_shape(place.letters, lengths(places(place.function)))
    one = [(*shape[:i], m, *shape[i + 1 :]) for i, n in enumerate(shape) for m in (n + 2, *others)]
    return sorted({*one, (1, *shape), shape[1:], shape[::-1]} - {place.value.shape})


def entry(array, value, at=-1):
    """The array with another number in it."""
    array = array.copy()
    array.reshape(-1)[at] = value
    return array


# --- what must come of them -----------------------------------------------------------------------


def expected(place, value):
    """({errors, or None, that may come of it}, who may be named) with this value in the place."""
    if wrong := wrong_alone(place, value):
        return {wrong}, {place.path}
    wrong, others = wrong_beside(place, value) if isinstance(value, np.ndarray) else (None, set())
    if wrong:
        return {wrong}, {place.path, *others}
    return ({None, T, V} if place.related else {None}), set()


def wrong_alone(place, value):
    """The error that a value must give whatever stands beside it."""
    if value is None:
        return None if place.optional else T
    right = RIGHT.get(place.kind, lambda value: type(value) is type(place.value))
    return T if not right(value) else None if within(place, value) else V


def array_of(*dtypes):
    return lambda value: type(value) is np.ndarray and value.dtype in map(np.dtype, dtypes)


def number_of(*kinds):
    return lambda value: isinstance(value, kinds) and not isinstance(value, bool)


FLOATS, STRETCHED, ENTRIES = ("Float", "Bias"), ("Mask", "Bias"), ("Float", "Bias", "Ids", "Mask", "Numbers")
RIGHT = {
    "int": number_of(int, np.integer),
    "float": number_of(int, np.integer, float, np.floating),
    "xp": lambda value: value is np,
    "Literal": lambda value: isinstance(value, str),
    "dtype": lambda value: any(value is good for good in (float, np.float32, *WORDS, F4)),
    "Float": array_of("f4", "f8"),
    "Bias": array_of("f4", "f8"),
    "Ids": array_of(*INTEGERS),
    "Mask": array_of(bool),
    "Numbers": array_of(*INTEGERS, "f2", "f4", "f8", ">f8"),
}
LIMITS = {
    "divides": "8 % (value or 9) == 0",
    "below vocab_size": f"0 <= value < {VOCAB_SIZE}",
    "an axis": "-2 <= value < 2",
    "even]": "value % 2 == 0",
}


def within(place, value):
    """Whether a value of the right kind is within the bounds, a word one of the choices, no row empty."""
    if place.kind in ENTRIES:
        if place.function in BACKWARD:  # the cache tells all
            return value.shape == place.value.shape
        tells = told(place.letters, value.shape)
        fits = tells is not None and not any(n == 0 and letter[0] not in "TS." for letter, n in tells)
        return fits or place.kind in STRETCHED
    if place.kind not in ("int", "float"):
        return place.kind != "Literal" or f"'{value}'" in place.text
    holds = [f"value {bound}" for bound in re.findall(r"(?<!· )[<>]=? \d+", place.text)]
    holds += [bounds.replace("·", "value") for bounds in re.findall(r"\d+ <=? · <=? \d+", place.text)]
    holds += [limit for words, limit in LIMITS.items() if words in place.text]
    return abs(value) <= 2**53 and all(eval(bound, {"value": value}) for bound in holds)


def wrong_beside(place, array):
    """The error of an array that does not go with the others, and which of them may be named."""
    every = [p._replace(value=array) if p.path == place.path else p for p in places(place.function)]
    known, odd = lengths(every), set()
    floats = [p for p in every if p.kind in FLOATS and p.value is not None and p.path != place.path]
    floats += [place] * (place.function in BACKWARD)
    if place.kind in FLOATS and any(p.value.dtype != array.dtype for p in floats):
        return T, {p.path for p in floats if len(floats) == 1}
    for ids in [p for p in every if p.kind == "Ids" and p.value.size]:
        if known["vocab_size"] and not 0 <= ids.value.min() <= ids.value.max() < known["vocab_size"][0][1]:
            return V, {ids.path}
    for tellers in [them for them in known.values() if len({n for _, n in them}) > 1]:
        paths = {path for path, _ in tellers} - {place.path}
        odd |= {place.path} | (paths if len(paths) == 1 else set())  # where no third one decides
    for mask in [] if odd else [p for p in every if p.kind in STRETCHED and p.value is not None]:
        full = full_shape(mask.letters, known)
        if not broadcasts(mask.value.shape, full):
            odd |= {place.path, mask.path}
    return (V, odd) if odd else (None, set())


def told(letters, shape):
    """[(letter, length)] of an array of this shape, "..." for leading axes; None where it has too few."""
    named = letters[letters[:1] == ["..."] :]
    first = len(shape) - len(named)
    if first < 0 or (first and named == letters):
        return None
    return [*zip(named, shape[first:], strict=True), *[("...", shape[:first])] * (named != letters)]


def lengths(every):
    """{letter: [(path, length)]}: what the places tell."""
    found = defaultdict(list)
    for place in every:
        name = place.path.rpartition(".")[2]
        tells = [(name, place.value)] * ("a letter" in place.text)
        if place.kind in ("Float", "Ids", "Numbers") and place.value is not None:
            tells = told(place.letters, place.value.shape)
        for letter, length in tells:
            found[letter].append((place.path, length))
    return found


def full_shape(letters, known):
    """What a mask or a bias must broadcast to."""
    full = [CONFIG.n_heads if letter == "h" else known[letter][0][1] for letter in letters]
    return (*full[0], *full[1:]) if letters[0] == "..." else tuple(full)


def broadcasts(shape, full):
    try:
        return np.broadcast_shapes(shape, full) == full
    except ValueError:
        return False
