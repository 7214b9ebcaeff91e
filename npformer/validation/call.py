"""A `Rule` says how a value is checked. A `Call` is one call of a checked function."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, NamedTuple

from npformer.validation.checks import DimensionNames


class Phase(IntEnum):
    """When a rule is checked. A rule may use sizes that were recorded in earlier phases."""

    SETTINGS = 0  # a config and a cache, which record sizes for all other arguments
    ARRAYS = 1  # float arrays and parameters, which record more sizes; also numbers checked by themselves
    IDS = 2  # values that are compared with the float arrays: ids, positions, a number of heads
    MASKS = 3  # values that need all sizes, also h and vocab_size: masks, biases, ids in a vocabulary
    RELATIONS = 4  # relations between arguments that have passed their own checks


@dataclass
class Call:
    """One call of a checked function.

    Attributes
    ----------
    function : str
        The name of the called function. Every message begins with it.
    arguments : dict
        The arguments of the call by name.
    sizes : dict
        The length of each dimension that an argument has recorded so far, by dimension name.
    leading : tuple of int
        The lengths of the leading axes "...", or (-1,) while they are unknown.
    leading_argument : str
        The argument that recorded `leading`, or "".
    dtype : dtype or None
        The dtype of the float arrays checked so far, or the dtype that a cache has recorded.
    """

    function: str
    arguments: dict[str, Any]
    sizes: dict[str, int] = field(default_factory=dict)
    leading: tuple[int, ...] = (-1,)
    leading_argument: str = ""
    dtype: Any = None

    def value_error(self, message: str) -> ValueError:
        """Return the ValueError with this message, after the name of the called function."""
        return ValueError(f"{self.function}: {message}")


Check = Callable[[Any, str, Call], None]  # check(value, name, call) raises an error or returns None


class Place(NamedTuple):
    """One value that is checked: an argument, or a part of an argument. It comes with its path and rule."""

    path: str  # for example, params.W_1
    rule: "Rule"
    value: Any


def no_parts(path: str, value: Any) -> Iterable[Place]:
    """Return an empty tuple. This is the default for values without parts, which are checked as a whole."""
    return ()


@dataclass(eq=False)
class Rule:
    """The requirements of an annotation: how one value is checked.

    Attributes
    ----------
    description : str
        The text of the annotation. `help` and the API reference show it.
    check : callable
        check(value, name, call) returns None, or raises TypeError or ValueError.
    phase : Phase
        When the rule of an argument is checked. The parts of one argument are checked one after the other,
        and their phases are ignored.
    dimension_names : tuple of str, or None
        The dimension names of an array that records its sizes.
    parts : callable
        parts(path, value) returns the places that are checked after the value itself. A place is a field of a
        NamedTuple, an entry of a tuple, or the same value with a further rule.
    is_optional : bool
        Whether None is accepted.
    is_float : bool
        Whether the value must be an array of floats.
    reads_values : bool
        Whether `check` depends on the values in an array. Such a check runs in every call, even if the cache
        key is known.
    has_parts_that_read_values : bool
        Whether the check of a part depends on the values in an array.
    needs : str
        An argument that the check reads, or "". In a function without this argument, the check is left out.
    """

    description: str
    check: Check
    phase: int = Phase.ARRAYS
    dimension_names: DimensionNames | None = None
    parts: Callable[[str, Any], Iterable[Place]] = no_parts
    is_optional: bool = False
    is_float: bool = False
    reads_values: bool = False
    has_parts_that_read_values: bool = False
    needs: str = ""

    def __repr__(self) -> str:
        return self.description

    def __or__(self, other: Any) -> "Rule":
        from npformer.validation.annotation_reader import union_rule

        return union_rule([self, other])

    def __ror__(self, other: Any) -> "Rule":
        from npformer.validation.annotation_reader import union_rule

        return union_rule([other, self])

    @property
    def must_run_every_call(self) -> bool:
        """Whether the rule or one of its parts depends on the values in an array."""
        return self.reads_values or self.has_parts_that_read_values


def optional(rule: Rule) -> Rule:
    """Return a copy of the rule that also accepts None."""

    def parts_unless_none(path: str, value: Any) -> Iterable[Place]:
        return () if value is None else rule.parts(path, value)

    return replace(rule, description=f"{rule} | None", parts=parts_unless_none, is_optional=True)


def all_of(description: str, rules: list[Rule]) -> Rule:
    """Combine several rules for one value into a single rule.

    The order of the checks is: the first rule, the parts of the value, the other rules.
    """
    first, *more = [rule for rule in rules if rule is not ANYTHING] or [ANYTHING]

    def parts(path: str, value: Any) -> list[Place]:
        return [*first.parts(path, value), *(Place(path, rule, value) for rule in more)]

    return replace(
        first,
        description=description,
        phase=max(rule.phase for rule in rules),
        parts=parts,
        has_parts_that_read_values=any(rule.must_run_every_call for rule in rules),
    )


def check_with(check: Callable[..., None], *settings: Any, **bounds: Any) -> Check:
    """Turn a function of the module `checks` into a check for a `Rule`, with these settings."""

    def check_value(value: Any, name: str, call: Call) -> None:
        check(call.function, name, value, *settings, **bounds)

    return check_value


def accept(value: Any, name: str, call: Call) -> None:
    """Accept every value."""


ANYTHING = Rule("Any", accept)


def walk(path: str, rule: Rule, value: Any) -> Iterator[Place]:
    """Iterate over a value and its parts, in the order of the checks: params, params.W_1, …"""
    yield Place(path, rule, value)
    for part in rule.parts(path, value):
        yield from walk(*part)


def checked_places(rules: Iterable[tuple[str, Rule]], arguments: dict[str, Any]) -> list[Place]:
    """Return every place in the arguments that has to be checked.

    Arguments that were not given need no check. Neither does None as an optional value.
    """
    places = []
    for name, rule in rules:
        if name not in arguments:
            continue
        for place in walk(name, rule, arguments[name]):
            is_absent = place.rule.is_optional and place.value is None
            is_possible = place.rule.needs in ("", *arguments)
            if is_possible and not is_absent:
                places.append(place)
    return places


def shape_of(names: DimensionNames, call: Call) -> tuple[int, ...]:
    """Return the shape that has these dimension names in the call, with -1 for an unknown length."""
    shape: list[int] = []
    for name in names:
        if name == "...":
            shape.extend(call.leading)
        else:
            shape.append(call.sizes.get(name, -1))
    return tuple(shape)


def record_sizes(names: DimensionNames, shape: tuple[int, ...], argument: str, call: Call) -> None:
    """Record the lengths of the named dimensions, and the leading axes if no argument has recorded them."""
    has_leading_axes = names[:1] == ("...",)
    if has_leading_axes:
        names = names[1:]
    n_leading = len(shape) - len(names)
    call.sizes.update(zip(names, shape[n_leading:], strict=True))
    if has_leading_axes and not call.leading_argument:
        call.leading = shape[:n_leading]
        call.leading_argument = argument
