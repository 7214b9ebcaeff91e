"""The signature is the check: `checked` holds a call to the shapes, ranges and choices that stand in it.

    @checked
    def linear(x: Float[Array, "... d_in"], W: Float[Array, "d_in d_out"]): ...

A letter has one length in a call, a digit is a length, "..." is the same leading axes wherever it stands.
Only lengths that begin with T or S may be 0: a sequence can be empty, a row cannot. Parameters are checked
field by field; a config gives the letters their lengths; a cache tells the shape of the gradient.

Behind every annotation stands a `Rule`; annotations.py has those of arrays and numbers. Its `ask` looks at a
value and returns nothing, or raises in the words of validate.py. A `Call` remembers what the arguments have
told so far. The functions inside the package call each other directly: a call is checked once, at the door.
Of a call that looks (`glance`) like one that has passed, only what depends on values in arrays is asked.
"""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from types import ModuleType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, TypeVar, Union, get_args, get_origin

import numpy as np

from npformer.arrays import with_arrays
from npformer.validation import checks as validate
from npformer.validation.checks import Letters as Letters

F = TypeVar("F", bound=Callable[..., Any])
MOST = 100  # looks that are remembered of a function


def checked(body: F) -> F:
    """The same function, but each call is held to the signature first.

    NumPy's warnings about overflow and the like are off inside: an infinity or a NaN shows in the result.

    >>> from npformer import Float
    >>> @checked
    ... def dot(a: Float[np.ndarray, "n"], b: Float[np.ndarray, "n"]) -> float:
    ...     return float(a @ b)
    >>> dot(np.ones(3), np.ones(4))
    Traceback (most recent call last):
    ValueError: dot: b has shape (4,); expected (n,) with n=3
    """
    positional = body.__code__.co_varnames[: body.__code__.co_argcount]
    quiet = np.errstate(all="ignore")(body)
    read = functools.cache(functools.partial(read_signature, body))  # at the first call: imports stay quick
    passed: dict[tuple[Any, ...] | None, dict[str, int]] = {}  # what the calls that passed looked like

    @functools.wraps(body)
    def door(*args: Any, **kwargs: Any) -> Any:
        signature = read()
        look = look_of(args, kwargs) if signature.is_seen else None
        letters = passed.get(look)
        if look is None:
            args, kwargs = tuple(map(plain, args)), {name: plain(value) for name, value in kwargs.items()}
        if letters is None or signature.of_values or "cupy" in sys.modules:
            arguments = dict(zip(positional, args, strict=False)) | kwargs
            try:
                letters = check_call(body.__name__, signature, arguments, letters)
            except (TypeError, ValueError) as error:
                raise error.with_traceback(None) from None  # the caller's line says where, the message what
            if look is not None:
                remember(look, letters, passed)
        return with_arrays(quiet(*args, **kwargs))

    door.__module__ = "npformer"  # where pickle finds it
    return door  # type: ignore[return-value]


def remember(look: Any, letters: dict[str, int], passed: dict[Any, dict[str, int]]) -> None:
    """Keep a look, and not more than MOST of them."""
    if len(passed) >= MOST:
        passed.clear()
    passed[look] = letters


def check_value(function: str, argument: str, value: Any, annotation: Any) -> None:
    """What an annotation asks, of one value: for what does not come as an argument, such as a file's."""
    ask_all(Call(function, {argument: value}, {}), [*walk(argument, to_rule(annotation), value)])


@dataclass
class Call:
    """One call of a checked function, and what its arguments have told so far."""

    function: str
    arguments: dict[str, Any]
    letters: dict[str, int]
    leading: tuple[int, ...] = (-1,)  # what "..." stands for
    leader: str = ""  # the argument that told it
    dtype: Any = None
    values: bool = False  # whether values in arrays are all that is asked

    def refuse(self, words: str) -> NoReturn:
        """Of a relation that does not hold."""
        raise ValueError(f"{self.function}: {words}")


Ask = Callable[[Any, str, Call], None]


@dataclass(eq=False)
class Rule:
    """What an annotation asks of a value: `ask(value, name, call)` returns nothing or raises."""

    text: str
    ask: Ask
    turn: int = 1  # 0: tells letters to all others; 2: needs the letters of others
    letters: Letters | None = None  # of an array
    inside: Callable[[str, Any], Iterable["Place"]] = lambda name, value: ()  # the places in a value
    by_value: bool = False  # whether it depends on values in an array: so it is asked at every call

    def __repr__(self) -> str:
        return self.text

    def __or__(self, none: None) -> "Rule":
        return optional(self)


def by(check: Callable[..., None], *settings: Any, **more: Any) -> Ask:
    """What a rule asks, by a check of validate.py."""
    return lambda value, name, call: check(call.function, name, value, *settings, **more)


Place = tuple[str, Rule, Any]  # params.W_1, what may stand there, what does


class Signature(NamedTuple):
    """What a function asks of its arguments."""

    rules: list[tuple[str, Rule]]  # of each argument, in the order in which they are asked
    is_seen: bool  # whether a glance at the arguments sees all that is asked but for values in arrays
    of_values: bool  # whether anything is asked of these


def read_signature(body: Callable[..., Any]) -> Signature:
    """The rules of the arguments; of Any nobody knows what is asked, such as that it is like another."""
    rules = {name: to_rule(a) for name, a in body.__annotations__.items() if name != "return"}
    if "cache" in rules:
        rules |= {name: gradient(rule) for name, rule in rules.items() if rule.letters is not None}
    pairs = sorted(rules.items(), key=lambda pair: pair[1].turn)
    return Signature(pairs, ANYTHING not in rules.values(), any(rule.by_value for rule in rules.values()))


def look_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """What the rules ask of the arguments, but for values in arrays; None where more is to be asked.

    Of an array shape and dtype as they are now; a setting behind its type, as True == 1 == 1.0; of a
    generator its type; of a cache what it tells of its gradient. No array is kept.
    """
    seen: list[Any] = [*kwargs]
    try:
        return tuple(seen) if glance(args + tuple(kwargs.values()), seen) else None
    except RecursionError:  # tuples in tuples without end
        return None


def glance(values: Iterable[Any], seen: list[Any]) -> bool:
    """Write down how the values look; False where one is of a kind that is not known here."""
    for value in values:
        kind = type(value)
        if kind is np.ndarray:
            seen.append(value.shape)
            seen.append(value.dtype)
            continue
        seen.append(kind)
        if kind in SETTINGS:
            seen.append(value)
        elif isinstance(value, tuple):
            parts = [getattr(value, field) for field in TOLD[kind]] if kind in TOLD else value
            seen.append(len(parts))
            if not glance(parts, seen):
                return False
        elif kind is not np.random.Generator:
            return False
    return True


@np.errstate(all="ignore")
def check_call(
    function: str, signature: Signature, arguments: dict[str, Any], letters: dict[str, int] | None
) -> dict[str, int]:
    """Ask every argument that was given; where the letters are known, of values only. Returns the letters."""
    call = Call(function, arguments, dict(letters or {}))
    call.values = letters is not None
    rules = [(name, rule) for name, rule in signature.rules if name in arguments]
    asked = [pair for pair in rules if pair[1].by_value] if call.values else rules
    try:
        ask_all(call, [place for pair in asked for place in walk(*pair, arguments[pair[0]])])
    except (TypeError, ValueError):
        blame(call, [place for pair in rules for place in walk(*pair, arguments[pair[0]])])
        raise
    validate.check_one_library(function, arguments)
    return call.letters


def walk(name: str, rule: Rule, value: Any) -> Iterator[Place]:
    """A place, and then those inside it: params, params.W_1 and so on."""
    yield name, rule, value
    for place in rule.inside(name, value):
        yield from walk(*place)


def ask_all(call: Call, places: Iterable[Place], *ignored: type[Exception]) -> None:
    """What may stand in each place."""
    for name, rule, value in places:
        if rule.by_value or not call.values:
            with suppress(*ignored):
                rule.ask(value, name, call)


def blame(call: Call, places: list[Place]) -> None:
    """Name the array without which the others agree: an empty one, the last with leading axes, the last."""
    later = iter(places)
    with suppress(Exception):
        ask_all(Call(call.function, call.arguments, {}), later)
    asked = places[: len(places) - len([*later])]  # what comes after the first refusal is not to blame
    arrays = [place for place in reversed(asked) if place[1].letters and validate.is_array(place[2])]
    arrays.sort(key=lambda place: (0 not in place[2].shape, "..." not in (place[1].letters or ())))
    for name, _, _ in arrays:
        others = Call(call.function, call.arguments, {})
        try:
            ask_all(others, [place for place in places if place[0] != name], KeyError)  # of what is left out
        except Exception:  # also where a relation looks at what is not as it should be
            continue
        ask_all(others, [place for place in places if place[0] == name], KeyError)


def to_rule(annotation: Any) -> Rule:
    """The rule that an annotation stands for."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, str):
        raise TypeError(f"{annotation!r} cannot be read: `checked` needs annotations without __future__")
    if isinstance(annotation, Rule):
        return annotation
    if origin is Annotated:
        return all_of(str(annotation), [to_rule(parts[0]), *(p for p in parts[1:] if isinstance(p, Rule))])
    if origin in (Union, UnionType):
        return optional(to_rule(parts[0])) if parts[1:] == (type(None),) else ANYTHING
    if origin is Literal:
        return Rule(str(annotation), by(validate.check_choice, parts))
    if origin is tuple and parts[1:] == (...,):
        return each(to_rule(parts[0]))
    if hasattr(annotation, "_fields"):
        return (cache_rule if annotation.__name__.endswith("Cache") else fields_rule)(annotation)
    return PLAIN.get(annotation, ANYTHING)


def all_of(text: str, rules: list[Rule]) -> Rule:
    """Several rules for one value: the first one, those for what is in it, the others."""
    first, *more = [rule for rule in rules if rule is not ANYTHING] or [ANYTHING]

    def ask(value: Any, name: str, call: Call) -> None:
        if first.by_value or not call.values:
            first.ask(value, name, call)

    def inside(name: str, value: Any) -> list[Place]:
        return [*first.inside(name, value), *((name, rule, value) for rule in more)]

    turn, by_value = max(rule.turn for rule in rules), any(rule.by_value for rule in rules)
    return replace(first, text=text, ask=ask, turn=turn, inside=inside, by_value=by_value)


def optional(rule: Rule) -> Rule:
    """The same, or None."""

    def ask(value: Any, name: str, call: Call) -> None:
        try:
            if value is not None:
                rule.ask(value, name, call)
        except TypeError as error:
            if not str(error).startswith(f"{call.function}: {name} is "):  # but has another dtype
                raise
            raise TypeError(str(error).replace("; expected ", "; expected None or ", 1)) from None

    return replace(
        rule,
        text=f"{rule} | None",
        ask=ask,
        inside=lambda name, value: () if value is None else rule.inside(name, value),
    )


def each(rule: Rule) -> Rule:
    """A tuple of them: the blocks of a stack."""

    def inside(name: str, value: Any) -> list[Place]:
        return [(f"{name}.{i}", rule, part) for i, part in enumerate(value if type(value) is tuple else ())]

    return replace(of_kind(tuple), text=f"tuple[{rule}, ...]", inside=inside, by_value=rule.by_value)


def fields_rule(kind: Any) -> Rule:
    """A NamedTuple of this very type, asked field by field: parameters, or a config, which tells letters."""
    rules = [to_rule(annotation) for annotation in kind.__annotations__.values()]

    def inside(name: str, value: Any) -> list[Place]:
        rows = zip(kind._fields, rules, value, strict=True) if type(value) is kind else ()
        return [(f"{name}.{field}", rule, part) for field, rule, part in rows]

    turn = 0 if kind.__name__.endswith("Config") else 1
    return replace(of_kind(kind), turn=turn, inside=inside, by_value=any(rule.by_value for rule in rules))


def of_kind(kind: type) -> Rule:
    """A value of this very type."""
    return Rule(kind.__name__, by(validate.check_kind, kind))


def cache_rule(kind: Any) -> Rule:
    """A cache of this very type; the first arrays with a letter tell it and the dtype of the gradient."""
    told: dict[str, Letters] = {}
    for field, annotation in kind.__annotations__.items():
        letters = to_rule(annotation).letters or ()
        if not {letter for known in told.values() for letter in known}.issuperset(letters):
            told[field] = letters
    TOLD[kind] = (*told, "dtype") if "dtype" in kind.__annotations__ else tuple(told)

    def ask(cache: Any, name: str, call: Call) -> None:
        validate.check_kind(call.function, name, cache, kind)
        call.dtype = getattr(cache, "dtype", None)
        for field, letters in told.items():
            value = getattr(cache, field)
            is_shape = isinstance(value, tuple)
            learn(letters, value if is_shape else value.shape, field, call)
            if call.dtype is None and not is_shape and value.dtype in validate.FLOATS:
                call.dtype = value.dtype

    return Rule(kind.__name__, ask, turn=0)


def gradient(rule: Rule) -> Rule:
    """An array of exactly the shape and dtype of the forward's output, which the cache tells."""

    def ask(dy: Any, name: str, call: Call) -> None:
        validate.check_d_output(call.function, name, dy, shape_of(rule.letters or (), call), call.dtype)

    return Rule(str(rule), ask)


def shape_of(letters: Letters, call: Call) -> tuple[int, ...]:
    """The shape that the letters stand for, -1 where it is not known yet."""
    parts = [call.leading if x == "..." else (call.letters.get(x, -1),) for x in letters]
    return tuple(n for part in parts for n in part)


def learn(letters: Letters, shape: tuple[int, ...], name: str, call: Call) -> None:
    """Remember what a shape says of its letters."""
    has_leading = letters[:1] == ("...",)
    rest = len(shape) - len(letters) + has_leading
    call.letters.update(zip(letters[has_leading:], shape[rest:], strict=True))
    if has_leading and not call.leader:
        call.leading, call.leader = shape[:rest], name


def plain(value: Any) -> Any:
    """NumPy's integers, also in a config, are Python's from the door on: np.int8(100) + 100 is too large."""
    if isinstance(value, tuple) and any(isinstance(part, np.integer) for part in value):
        return tuple.__new__(type(value), map(plain, value))
    return int(value) if isinstance(value, np.integer) else value


TOLD: dict[type, Letters] = {}  # of a kind of cache the fields that tell what its gradient must be
SETTINGS = {int, float, bool, str, type(None), type, ModuleType, *map(type, validate.FLOATS)}
ANYTHING = Rule("Any", lambda value, name, call: None)
PLAIN = {  # what stands behind annotations of Python's own
    bool: Rule("bool", by(validate.check_that, lambda value: isinstance(value, bool), "True or False")),
    ModuleType: Rule("xp", by(validate.check_that, validate.is_library, "an array library, numpy or cupy")),
}
