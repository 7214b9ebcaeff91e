"""The signature is the check: `checked` holds a call to the shapes, ranges and choices that stand in it.

    @checked
    def linear(x: Float[Array, "... d_in"], W: Float[Array, "d_in d_out"]): ...

A letter has one length in a call, a digit is a length, "..." is the same leading axes wherever it stands.
Only lengths that begin with T or S may be 0: a sequence can be empty, a row cannot. Parameters are checked
field by field; a config gives the letters their lengths; a cache tells the shape of the gradient.

Behind every annotation stands a `Rule`; annotations.py has those of arrays and numbers. Its `ask` looks at a
value and returns nothing, or raises in the words of validate.py. A `Call` remembers what the arguments have
told so far. The functions inside the package call each other directly: a call is checked once, at the door.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType, UnionType
from typing import Annotated, Any, ForwardRef, Literal, TypeVar, Union, cast, get_args, get_origin

import numpy as np

from npformer import validate
from npformer.arrays import with_arrays

F = TypeVar("F", bound=Callable[..., Any])
Letters = tuple[str, ...]  # ("...", "T", "d_model")
Heard = tuple[str, Letters, Any]  # an array with its name and its letters
STRETCHED = ("stretched",)  # stands before a mask's letters: its leading axes say nothing


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
    rules: list[tuple[str, Rule]] = []  # read at the first call, so that an import stays quick

    @functools.wraps(body)
    def door(*args: Any, **kwargs: Any) -> Any:
        if not rules:
            rules.extend(read_signature(body))
        with np.errstate(all="ignore"):
            try:
                check_call(body.__name__, rules, dict(zip(positional, args, strict=False)) | kwargs)
            except (TypeError, ValueError) as error:
                raise error.with_traceback(None) from None  # the caller's line says where, the message what
            return with_arrays(body(*args, **kwargs))

    door.__module__ = "npformer"  # where pickle finds it
    return cast(F, door)


def check_value(function: str, argument: str, value: Any, annotation: Any, **letters: int) -> None:
    """What an annotation asks, of one value: for what does not come as an argument, such as a file's."""
    to_rule(annotation).ask(value, argument, Call(function, {argument: value}, letters, paths=True))


class Call:
    """One call of a checked function, and what its arguments have told so far."""

    def __init__(self, function: str, arguments: dict[str, Any], letters: dict[str, int], paths: bool):
        self.function, self.arguments, self.letters = function, arguments, letters
        self.leading: tuple[int, ...] = ()  # what "..." stands for
        self.leader = ""  # the argument that told it
        self.dtype: Any = None
        self.fitted: dict[Letters, tuple[int, ...]] = {}  # the shapes that letters stand for
        self.paths = paths  # whether fields are named in full, params.ffn.W_1: only for words


def read_signature(body: Callable[..., Any]) -> list[tuple[str, "Rule"]]:
    """The rule of each argument, in the order in which they are asked."""
    rules = {name: to_rule(a) for name, a in body.__annotations__.items() if name != "return"}
    if "cache" in rules:
        rules |= {name: gradient(rule) for name, rule in rules.items() if rule.letters is not None}
    return sorted(rules.items(), key=lambda pair: pair[1].turn)


def check_call(function: str, rules: list[tuple[str, "Rule"]], arguments: dict[str, Any]) -> None:
    """Ask every argument. Where arrays contradict each other, name the one that most others contradict."""
    try:
        ask_all(Call(function, arguments, {}, paths=False), rules)
    except (TypeError, ValueError):
        call = Call(function, arguments, {}, paths=True)
        listen(call, [array for name, rule in rules for array in rule.arrays(arguments.get(name), name)])
        ask_all(call, rules)
        raise
    validate.check_one_library(function, arguments)


def ask_all(call: Call, rules: list[tuple[str, "Rule"]]) -> None:
    """Each argument that was given; Python itself says which one is missing."""
    for name, rule in rules:
        if name in call.arguments:
            rule.ask(call.arguments[name], name, call)


def listen(call: Call, arrays: Iterable[Heard]) -> None:
    """Know what most arrays say of letters, leading axes and dtype; of two, parameters, then the first."""
    votes: dict[str, list[Any]] = {}
    leaders: dict[tuple[int, ...], str] = {}
    for name, letters, x in sorted(arrays, key=lambda heard: heard[1][:1] in (("...",), STRETCHED)):
        inside = letters[letters[:1] == ("...",) :]
        said = dict(zip(reversed(inside), reversed(x.shape), strict=False))
        if letters[:1] == STRETCHED:
            said = {letter: length for letter, length in said.items() if length != 1}
        if x.dtype in validate.FLOATS:
            said["dtype"] = x.dtype
        if inside is not letters and len(x.shape) >= len(inside):
            said["..."] = x.shape[: len(x.shape) - len(inside)]
            leaders.setdefault(said["..."], name)
        for letter, value in said.items():
            votes.setdefault(letter, []).append(value)
    for values in votes.values():
        values.sort(key=lambda value: type(value) is int and value == 0)  # that an axis is empty, last
    known = {letter: Counter(v).most_common(1)[0][0] for letter, v in votes.items() if len(v) > 1}
    call.dtype, call.leading = known.pop("dtype", None), known.pop("...", ())
    call.leader = leaders[call.leading] if len(votes.get("...", ())) > 1 else ""
    call.letters = known


class Rule:
    """What an annotation asks of a value: `ask(value, name, call)` returns nothing or raises."""

    def __init__(
        self,
        text: str,
        ask: Callable[[Any, str, Call], None],
        turn: int = 1,  # 0: tells letters to all others; 2: needs the letters of others
        letters: Letters | None = None,  # of an array
        arrays: Callable[[Any, str], Iterator[Heard]] = lambda value, name: iter(()),
    ) -> None:
        self.text, self.ask, self.turn, self.letters, self.arrays = text, ask, turn, letters, arrays
        self.glance = letters  # of an array of which nothing else is asked

    def __repr__(self) -> str:
        return self.text

    def __or__(self, none: None) -> "Rule":
        return optional(self)


def to_rule(annotation: Any) -> Rule:
    """The rule that an annotation stands for."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, str | ForwardRef):
        raise TypeError(f"{annotation!r} cannot be read: `checked` needs annotations without __future__")
    if isinstance(annotation, Rule):
        return annotation
    if origin is Annotated:
        return all_of(str(annotation), [to_rule(parts[0]), *(p for p in parts[1:] if isinstance(p, Rule))])
    if origin in (Union, UnionType):
        return optional(to_rule(parts[0]))
    if origin is Literal:
        return Rule(str(annotation), lambda v, n, call: validate.check_choice(call.function, n, v, parts))
    if origin is tuple and parts[1:] == (...,):
        return each(to_rule(parts[0]))
    if hasattr(annotation, "_fields"):
        return (cache_rule if annotation.__name__.endswith("Cache") else fields_rule)(annotation)
    return PLAIN.get(annotation, ANYTHING)


def all_of(text: str, rules: list[Rule]) -> Rule:
    """Several rules for one value, one after the other."""

    def ask(value: Any, name: str, call: Call) -> None:
        for rule in rules:
            rule.ask(value, name, call)

    whole = Rule(text, ask, max(rule.turn for rule in rules), rules[0].letters, rules[0].arrays)
    whole.glance = None
    return whole


def optional(rule: Rule) -> Rule:
    """The same, or None."""

    def ask(value: Any, name: str, call: Call) -> None:
        try:
            if value is not None:
                rule.ask(value, name, call)
        except TypeError as error:
            if not str(error).startswith(f"{call.function}: {name} is "):  # but something in it
                raise
            raise TypeError(str(error).replace("; expected ", "; expected None or ", 1)) from None

    either = Rule(f"{rule} | None", ask, rule.turn, rule.letters, rule.arrays)
    either.glance = rule.glance
    return either


def each(rule: Rule) -> Rule:
    """A tuple of them: the blocks of a stack."""

    def ask(value: Any, name: str, call: Call) -> None:
        validate.check_kind(call.function, name, value, tuple)
        for i, part in enumerate(value):
            rule.ask(part, f"{name}.{i}", call)

    def arrays(value: Any, name: str) -> Iterator[Heard]:
        for i, part in enumerate(value if isinstance(value, tuple) else ()):
            yield from rule.arrays(part, f"{name}.{i}")

    return Rule(f"tuple[{rule}, ...]", ask, rule.turn, arrays=arrays)


def fields_rule(kind: Any) -> Rule:
    """A NamedTuple of this very type, asked field by field: parameters, or a config, which tells letters."""
    pairs = [(field, to_rule(a)) for field, a in kind.__annotations__.items()]
    is_config = kind.__name__.endswith("Config")
    passed: list[Any] = [object(), {}]  # the last config, mostly the next one too, and its letters

    def ask(value: Any, name: str, call: Call) -> None:
        if is_config and value is passed[0]:
            call.letters.update(passed[1])
            return
        validate.check_kind(call.function, name, value, kind)
        for (field, rule), part in zip(pairs, value, strict=True):
            if not is_like(part, rule.glance, call):
                rule.ask(part, f"{name}.{field}" if call.paths else field, call)
        if is_config:
            passed[:] = value, dict(call.letters)

    def arrays(value: Any, name: str) -> Iterator[Heard]:
        for (field, rule), part in zip(pairs, value, strict=True) if type(value) is kind else ():
            yield from rule.arrays(part, f"{name}.{field}")

    return Rule(kind.__name__, ask, 0 if is_config else 1, arrays=arrays)


def cache_rule(kind: Any) -> Rule:
    """A cache of this very type; its arrays tell the letters and the dtype of the gradient."""
    rules = {field: to_rule(a) for field, a in kind.__annotations__.items()}
    arrays = [(field, rule.letters) for field, rule in rules.items() if rule.letters is not None]

    def ask(cache: Any, name: str, call: Call) -> None:
        validate.check_kind(call.function, name, cache, kind)
        call.dtype = getattr(cache, "dtype", None)
        for field, letters in arrays:
            value = getattr(cache, field)
            if value is not None:
                is_shape = isinstance(value, tuple)
                learn(letters, value if is_shape else value.shape, field, call)
                if call.dtype is None and not is_shape and value.dtype in validate.FLOATS:
                    call.dtype = value.dtype

    return Rule(kind.__name__, ask, 0)


def gradient(rule: Rule) -> Rule:
    """An array of exactly the shape and dtype of the forward's output, which the cache tells."""

    def ask(dy: Any, name: str, call: Call) -> None:
        shape = shape_of(rule.letters or (), call)
        if not (type(dy) is np.ndarray and dy.dtype is call.dtype and dy.shape == shape):
            validate.check_d_output(call.function, name, dy, shape, call.dtype)

    return Rule(str(rule), ask)


def is_like(x: Any, letters: Letters | None, call: Call) -> bool:
    """At a glance: an array of the call's dtype, and of the shape that the letters stand for."""
    if letters is None or type(x) is not np.ndarray or x.dtype is not call.dtype:
        return False
    return bool(x.shape == (call.fitted.get(letters) or shape_of(letters, call)))


def shape_of(letters: Letters, call: Call) -> tuple[int, ...]:
    """The shape that the letters stand for, -1 where it is not known yet."""
    has_leading = letters[:1] == ("...",)
    leading = () if not has_leading else call.leading if call.leader else (-1,)
    shape = (*leading, *[call.letters.get(letter, -1) for letter in letters[has_leading:]])
    if -1 not in shape:
        call.fitted[letters] = shape
    return shape


def learn(letters: Letters, shape: tuple[int, ...], name: str, call: Call) -> None:
    """Remember what a shape says of its letters."""
    inside = letters[letters[:1] == ("...",) :]
    rest = len(shape) - len(inside)
    call.letters.update(zip(inside, shape[rest:], strict=True))
    if inside is not letters and not call.leader:
        call.leading, call.leader = shape[:rest], name


ANYTHING = Rule("Any", lambda value, name, call: None)
PLAIN = {  # what stands behind annotations of Python's own
    bool: Rule("bool", lambda v, name, call: validate.check_flag(call.function, name, v)),
    ModuleType: Rule("xp", lambda v, name, call: validate.check_array_module(call.function, v)),
}
