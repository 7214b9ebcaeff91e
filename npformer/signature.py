"""The signature is the check: `checked` holds a call to the shapes, ranges and choices that stand in it.

    @checked
    def linear(x: Float[Array, "... d_in"], W: Float[Array, "d_in d_out"]): ...

A letter has one length in a call, a digit is a length, "..." is the same leading axes wherever it stands.
Only lengths that begin with T or S may be 0: a sequence can be empty, a row cannot. Parameters are checked
field by field; a config gives the letters their lengths; a cache tells the shape of the gradient.

How it works: behind every annotation stands a `Rule`. Its `ask` looks at a value and returns nothing, or
raises in the words of validate.py. A `Call` remembers what the arguments have told so far. The functions
inside the package call each other directly, so a call is checked once: at the package's front door.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ForwardRef,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

import numpy as np

from npformer import validate

__all__ = [
    "EVEN_HEADS", "IN_VOCABULARY", "Bias", "Call", "Count", "DType", "Finite", "Float", "Heads", "Id", "Ids",
    "Integer", "Length", "Mask", "NonNegative", "Numbers", "Positive", "Rate", "Rng", "Rule", "Shape", "Size",
    "check_value", "checked", "integer", "number", "to_rule",
]  # fmt: skip

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


def with_arrays(result: Any) -> Any:
    """Arrays of no axes stay arrays: NumPy makes scalars of them, which mix with float32 in another way."""
    if isinstance(result, np.generic):
        return np.asarray(result)
    if type(result) is tuple and isinstance(result[0], np.generic):
        return np.asarray(result[0]), *result[1:]
    return result


def check_value(function: str, argument: str, value: Any, annotation: Any, **letters: int) -> None:
    """What an annotation asks, of one value: for what does not come as an argument, such as a file's."""
    to_rule(annotation).ask(value, argument, Call(function, {argument: value}, letters, paths=True))


class Call:
    """One call of a checked function, and what its arguments have told so far."""

    __slots__ = ("arguments", "dtype", "fitted", "function", "leader", "leading", "letters", "paths")

    def __init__(
        self, function: str, arguments: dict[str, Any], letters: dict[str, int], paths: bool
    ) -> None:
        self.function, self.arguments, self.letters = function, arguments, letters
        self.leading: tuple[int, ...] = ()  # what "..." stands for
        self.leader = ""  # the argument that told it
        self.dtype: Any = None
        self.fitted: dict[Letters, tuple[int, ...]] = {}  # the shapes that letters stand for
        self.paths = paths  # whether fields are named in full, params.ffn.W_1: only for words


def read_signature(body: Callable[..., Any]) -> list[tuple[str, "Rule"]]:
    """The rule of each argument, in the order in which they are asked."""
    annotations = {name: a for name, a in body.__annotations__.items() if name != "return"}
    rules = {name: to_rule(annotation) for name, annotation in annotations.items()}
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
    known = {letter: most_common(values) for letter, values in votes.items() if len(values) > 1}
    call.dtype = known.pop("dtype", None)
    call.leading = known.pop("...", ())
    call.leader = leaders[call.leading] if len(votes.get("...", ())) > 1 else ""
    call.letters = known


def most_common(values: list[Any]) -> Any:
    """What is said most often; of two, the first, but rather not that an axis is empty."""
    return Counter(sorted(values, key=lambda value: type(value) is int and value == 0)).most_common(1)[0][0]


# --- what stands behind an annotation -------------------------------------------------------------


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
        return Rule(
            str(annotation), lambda v, name, call: validate.check_choice(call.function, name, v, parts)
        )
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

    turn = max(rule.turn for rule in rules)
    whole = Rule(text, ask, turn, rules[0].letters, rules[0].arrays)
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
    rules = [to_rule(a) for a in kind.__annotations__.values()]
    pairs = list(zip(kind._fields, rules, strict=True))
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


# --- arrays ---------------------------------------------------------------------------------------


def is_like(x: Any, letters: Letters | None, call: Call) -> bool:
    """At a glance: an array of the call's dtype, and of the shape that the letters stand for."""
    if letters is None or type(x) is not np.ndarray or x.dtype is not call.dtype:
        return False
    return bool(x.shape == (call.fitted.get(letters) or shape_of(letters, call)))


def shape_of(letters: Letters, call: Call) -> tuple[int, ...]:
    """The shape that the letters stand for, -1 where it is not known yet."""
    has_leading = letters[:1] == ("...",)
    leading = call.leading if call.leader else (-1,)
    lengths = [call.letters.get(letter, -1) for letter in letters[has_leading:]]
    shape = (*leading, *lengths) if has_leading else tuple(lengths)
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


def floats(text: str, letters: Letters) -> Rule:
    """An array of float32 or float64, of one dtype with all others."""

    def ask(x: Any, name: str, call: Call) -> None:
        if not is_like(x, letters, call):
            validate.check_array(call.function, name, x, letters, call.letters, call.dtype)
            validate.check_leading(call.function, name, x, letters, call.leader, call.leading)
            call.dtype = x.dtype
            learn(letters, x.shape, name, call)

    return Rule(text, ask, letters=letters, arrays=heard(letters))


def heard(letters: Letters) -> Callable[[Any, str], Iterator[Heard]]:
    """An array speaks of its letters; anything else is not heard."""
    return lambda x, name: iter([(name, letters, x)] if validate.is_array(x) else [])


def gradient(rule: Rule) -> Rule:
    """An array of exactly the shape and dtype of the forward's output, which the cache tells."""

    def ask(dy: Any, name: str, call: Call) -> None:
        shape = shape_of(rule.letters or (), call)
        if not (type(dy) is np.ndarray and dy.dtype is call.dtype and dy.shape == shape):
            validate.check_d_output(call.function, name, dy, shape, call.dtype)

    return Rule(str(rule), ask)


def ids(text: str, letters: Letters) -> Rule:
    """An array of integers; where "vocab_size" is known, of ids below it."""

    def ask(x: Any, name: str, call: Call) -> None:
        validate.check_ids(call.function, name, x)
        validate.check_shape(call.function, name, x, letters, call.letters)
        validate.check_leading(call.function, name, x, letters, call.leader, call.leading)
        learn(letters, x.shape, name, call)

    return Rule(text, ask, turn=2, letters=letters)


def numbers(text: str, letters: Letters) -> Rule:
    """An array of finite integers or floats."""

    def ask(x: Any, name: str, call: Call) -> None:
        validate.check_numbers(call.function, name, x)
        validate.check_shape(call.function, name, x, letters, call.letters)

    return Rule(text, ask, turn=2)


def mask(text: str, letters: Letters) -> Rule:
    """Booleans that broadcast to these axes."""

    def ask(x: Any, name: str, call: Call) -> None:
        validate.check_mask(call.function, name, x, f"({', '.join(letters)})", shape_of(letters, call))

    return Rule(text, ask, turn=3, arrays=heard(STRETCHED + letters[1:]))


def bias(text: str, letters: Letters) -> Rule:
    """Floats that broadcast to these axes."""

    def ask(x: Any, name: str, call: Call) -> None:
        validate.check_array(call.function, name, x, ("...",), {}, call.dtype)
        validate.check_broadcast(call.function, name, x, f"({', '.join(letters)})", shape_of(letters, call))

    return Rule(text, ask, turn=3, arrays=heard(STRETCHED + letters[1:]))


def shape(text: str, letters: Letters) -> Rule:
    """Not an array, but the shape of one: a field of a cache."""
    return Rule(text, ask_nothing, letters=letters)


class Axes:
    """`Float[Array, "... T d_model"]`: a kind of array, and after it the letters of its axes."""

    def __init__(self, name: str, kind: Callable[[str, Letters], Rule]) -> None:
        self.name, self.kind = name, kind

    def __getitem__(self, item: tuple[Any, ...]) -> Rule:
        _, letters, *rules = item
        rule = self.kind(
            f"{self.name}[Array, {', '.join([repr(letters), *map(str, rules)])}]", tuple(letters.split())
        )
        return all_of(str(rule), [rule, *rules]) if rules else rule


# --- numbers and words ----------------------------------------------------------------------------


def ask_nothing(value: Any, name: str, call: Call) -> None:
    """For annotations that ask nothing: str, Any."""


def number(text: str, **bounds: float) -> Rule:
    """A finite number within bounds: above, minimum, below, maximum."""

    def ask(value: Any, name: str, call: Call) -> None:
        validate.check_number(call.function, name, value, **bounds)

    return Rule(text, ask)


def integer(text: str, minimum: int = -validate.LARGEST, *, letter: bool = False) -> Rule:
    """A whole number; of a size, the argument's or field's own name is the letter."""

    def ask(value: Any, name: str, call: Call) -> None:
        validate.check_integer(call.function, name, value, minimum)
        if letter:
            call.letters[name.rpartition(".")[2]] = int(value)

    return Rule(text, ask)


def ask_heads(value: Any, name: str, call: Call) -> None:
    """Heads that divide d_model; their number is the letter h."""
    validate.check_integer(call.function, name, value, 1)
    call.letters["h"] = int(value)
    if call.letters["d_model"] % int(value):
        raise ValueError(
            f"{call.function}: {name} is {value}; expected a divisor of d_model={call.letters['d_model']}"
        )


def ask_pairs(value: Any, name: str, call: Call) -> None:
    """RoPE turns pairs of columns, so each head needs an even number of them."""
    d_model, h = call.letters["d_model"], call.letters["h"]
    if value in (True, "rope") and d_model // h % 2:
        raise ValueError(
            f"{call.function}: {name} is {value!r}; expected an even d_k, "
            f"d_model={d_model} and n_heads={h} give {d_model // h}"
        )


def ask_vocabulary(ids: Any, name: str, call: Call) -> None:
    """Ids from 0 to vocab_size - 1, looked at on the host only."""
    validate.check_id_range(call.function, name, ids, call.letters["vocab_size"])


def ask_id(value: Any, name: str, call: Call) -> None:
    """One id from 0 to vocab_size - 1."""
    validate.check_integer(call.function, name, value, 0)
    if value >= call.letters["vocab_size"]:
        last = call.letters["vocab_size"] - 1
        raise ValueError(f"{call.function}: {name} is {value}; expected an id from 0 to {last}")


IN_VOCABULARY = Rule("below vocab_size", ask_vocabulary, turn=3)
EVEN_HEADS = Rule("RoPE needs an even d_k", ask_pairs, turn=3)
Id = Annotated[int, Rule("below vocab_size", ask_id, turn=3)]
Rate = Annotated[float, number("0 <= · < 1", minimum=0, below=1)]
NonNegative = Annotated[float, number(">= 0", minimum=0)]
Positive = Annotated[float, number("> 0", above=0)]
Finite = Annotated[float, number("finite")]
Integer = Annotated[int, integer("an integer")]
Count = Annotated[int, integer(">= 1", 1)]
Size = Annotated[int, integer(">= 1, a letter", 1, letter=True)]
Length = Annotated[int, integer(">= 0", 0)]
Heads = Annotated[int, Rule("divides d_model", ask_heads, turn=2)]
DType = Annotated[Any, Rule("dtype", lambda v, name, call: validate.check_dtype(call.function, v) and None)]
if TYPE_CHECKING:
    from typing import Annotated as Bias
    from typing import Annotated as Float
    from typing import Annotated as Ids
    from typing import Annotated as Mask
    from typing import Annotated as Numbers
    from typing import Annotated as Shape

    from numpy.random import Generator as Rng
else:
    Float, Ids, Numbers = Axes("Float", floats), Axes("Ids", ids), Axes("Numbers", numbers)
    Mask, Bias, Shape = Axes("Mask", mask), Axes("Bias", bias), Axes("Shape", shape)
    Rng = Rule("Rng", lambda v, name, call: validate.check_generator(call.function, name, v))

ANYTHING = Rule("Any", ask_nothing)
PLAIN = {  # what stands behind annotations of Python's own
    bool: Rule("bool", lambda v, name, call: validate.check_flag(call.function, name, v)),
    ModuleType: Rule("xp", lambda v, name, call: validate.check_array_module(call.function, v)),
}
