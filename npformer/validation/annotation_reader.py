"""Turn annotations into rules: the annotation of one argument or field, or all annotations of a signature."""

from collections.abc import Callable
from dataclasses import replace
from types import FunctionType, ModuleType, UnionType
from typing import Annotated, Any, ForwardRef, Literal, NamedTuple, Union, get_args, get_origin

from npformer.arrays import add_article, describe_value
from npformer.validation import checks
from npformer.validation.call import (
    ANYTHING,
    Call,
    Phase,
    Place,
    Rule,
    all_of,
    check_with,
    optional,
    record_sizes,
    shape_of,
    walk,
)
from npformer.validation.checks import DimensionNames

CO_VARARGS, CO_VARKEYWORDS = 4, 8  # the flags of functions with *args and **kwargs, as in the module inspect


SCALARS = (bool, int, float, complex)


class Signature(NamedTuple):
    """The rules of a function's arguments."""

    positional: tuple[str, ...]  # the names of the arguments that may be given by position
    more_positional: str  # the name of *args, or ""
    more_keywords: str  # the name of **kwargs, or ""
    rules: list[tuple[str, Rule]]  # the name and the rule of each argument, in the order of the checks
    returns_scalar: bool  # whether the result is a Python or NumPy scalar, which must not become an array
    has_cache_key: bool  # whether `cache_key` describes everything that the checks depend on


def read_signature(body: Callable[..., Any]) -> Signature:
    """Return the rules of a function's arguments.

    An argument annotated `Any` is not checked. But the rule of a different argument may depend on the value
    of this argument, which the cache key would not describe. So a function with such an argument has no cache
    key.

    A function with an argument `cache`, whose type is a NamedTuple "...Cache", is a backward function. Its
    arrays whose names begin with "d" are gradients of the forward output.
    """
    rules = {}
    for name, annotation in body.__annotations__.items():
        if name != "return":
            rules[name] = to_rule(annotation)
    if body.__annotations__.get("cache") in FIELDS_FOR_GRADIENT:  # a backward function
        for name, rule in rules.items():
            if rule.dimension_names is not None and name.startswith("d"):
                rules[name] = gradient_rule(rule)
    positional, more_positional, more_keywords = argument_names(body)
    if more_positional in rules:
        rules[more_positional] = tuple_rule(rules[more_positional])
    if more_keywords in rules:
        rules[more_keywords] = dict_rule(rules[more_keywords])
    in_order = sorted(rules.items(), key=lambda item: item[1].phase)
    return Signature(
        positional,
        more_positional,
        more_keywords,
        in_order,
        returns_scalar=body.__annotations__.get("return") in SCALARS,
        has_cache_key=ANYTHING not in rules.values(),
    )


def find_function(body: Any) -> FunctionType:
    """Return the function that has the argument names: `body`, or the function inside of decorators.

    Raises TypeError if `body` is not a function, such as a class, a built-in function or a `partial`.
    """
    function = body
    while hasattr(function, "__wrapped__"):  # as functools.wraps sets it
        function = function.__wrapped__
    function = getattr(function, "__func__", function)  # the function of a method
    if not isinstance(function, FunctionType) or isinstance(body, staticmethod | classmethod):
        expected = "a function made with def; write @checked directly above it"
        raise TypeError(f"checked: body is {describe_value(body)}; expected {expected}")
    return function


def find_unread_annotation(body: Callable[..., Any]) -> str:
    """Return the name of an argument whose annotation contains arrays that `to_rule` does not read, or ""."""
    for name, annotation in body.__annotations__.items():
        if name != "return" and has_unread_arrays(annotation):
            return name
    return ""


def has_unread_arrays(annotation: Any) -> bool:
    """Return whether an annotation contains arrays that `to_rule` does not read, as in list[Float[...]]."""
    if isinstance(annotation, Rule) or annotation is Any:  # the most frequent ones, because import runs this
        return False
    annotation = getattr(annotation, "__value__", annotation)
    origin, parts = get_origin(annotation), get_args(annotation)
    is_read = origin in (Annotated, Union, UnionType) or (origin is tuple and parts[1:] == (...,))
    if is_read:
        return any(has_unread_arrays(part) for part in parts)
    fields = getattr(annotation, "__dataclass_fields__", {}).values()
    return any(contains_rule(part) for part in (*parts, *(field.type for field in fields)))


def contains_rule(annotation: Any) -> bool:
    """Return whether an annotation is a rule, such as Float[...], or has a rule inside."""
    if isinstance(annotation, Rule):
        return True
    parts = annotation if isinstance(annotation, list) else get_args(annotation)
    return any(contains_rule(part) for part in parts)


def argument_names(body: Callable[..., Any]) -> tuple[tuple[str, ...], str, str]:
    """Return the names of the arguments that may be given by position, and the names of *args and **kwargs.

    A function without *args or **kwargs has the name "" instead.
    """
    code = find_function(body).__code__
    names = list(code.co_varnames[code.co_argcount + code.co_kwonlyargcount :])
    more_positional = names.pop(0) if code.co_flags & CO_VARARGS else ""
    more_keywords = names.pop(0) if code.co_flags & CO_VARKEYWORDS else ""
    is_bound = hasattr(body, "__self__")  # a method of an object, whose first argument is already given
    return code.co_varnames[int(is_bound) : code.co_argcount], more_positional, more_keywords


def to_rule(annotation: Any) -> Rule:
    """Return the rule of an annotation. An unknown annotation accepts anything."""
    if isinstance(annotation, ForwardRef):  # a string in a NamedTuple
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        raise TypeError(f"{annotation!r} cannot be read: `checked` needs annotations without __future__")
    annotation = getattr(annotation, "__value__", annotation)  # of `type Vector = Float[...]`
    if isinstance(annotation, Rule):
        return annotation
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        further_rules = [part for part in parts[1:] if isinstance(part, Rule)]
        return all_of(str(annotation), [to_rule(parts[0]), *further_rules])
    if origin in (Union, UnionType):
        return union_rule(list(parts))
    if origin is Literal:
        return Rule(str(annotation), check_with(checks.check_choice, parts))
    if origin is tuple and parts[1:] == (...,):
        return tuple_rule(to_rule(parts[0]))
    if hasattr(annotation, "_fields"):
        is_cache = annotation.__name__.endswith("Cache")
        return cache_rule(annotation) if is_cache else fields_rule(annotation)
    return RULES_OF_TYPES.get(annotation, ANYTHING)


RULES_OF_TYPES = {
    bool: Rule("bool", check_with(checks.check_that, checks.is_bool, "True or False")),
    ModuleType: Rule(
        "xp", check_with(checks.check_that, checks.is_library, "an array library, numpy or cupy")
    ),
}


# --- unions ---------------------------------------------------------------------------------------

NUMBERS_IN_UNIONS = {  # outside of a union, the annotations int and float are not checked
    int: Rule("int", check_with(checks.check_integer)),
    float: Rule("float", check_with(checks.check_number)),
}


def union_rule(annotations: list[Any]) -> Rule:
    """Return the rule of a union, such as `Float[Array, "n"] | int | None`.

    A value must satisfy the rule of one annotation. If none of the annotations has a rule, the union accepts
    anything, like each of its annotations alone.
    """
    alternatives = [part for part in annotations if part not in (None, type(None))]
    is_optional = len(alternatives) < len(annotations)
    rules = [to_rule(part) for part in alternatives]
    if len(rules) == 1:
        rule = rules[0]
    elif all(rule is ANYTHING for rule in rules):
        return ANYTHING
    else:
        rule = any_of([alternative_rule(part) for part in alternatives])
    return optional(rule) if is_optional else rule


def alternative_rule(annotation: Any) -> Rule:
    """Return the rule of one annotation in a union. A class accepts its instances."""
    rule = NUMBERS_IN_UNIONS.get(annotation) or to_rule(annotation)
    kind = get_origin(annotation) or annotation
    if rule is not ANYTHING or not isinstance(kind, type):
        return rule

    def is_instance(value: Any) -> bool:
        return isinstance(value, kind)

    expected = add_article(kind.__name__)
    return Rule(kind.__name__, check_with(checks.check_that, is_instance, expected))


def any_of(rules: list[Rule]) -> Rule:
    """Combine the rules of a union. The first rule that accepts a value records the sizes of the value."""

    def check(value: Any, name: str, call: Call) -> None:
        errors: list[Exception] = []
        for rule in rules:
            trial = replace(call, sizes=dict(call.sizes))
            try:
                for place in walk(name, rule, value):
                    place.rule.check(place.value, place.path, trial)
            except (TypeError, ValueError) as error:
                errors.append(error)
                continue
            vars(call).update(vars(trial))
            return
        raise error_of_union(call.function, name, value, errors)

    description = " | ".join(map(str, rules))
    return Rule(
        description,
        check,
        max(rule.phase for rule in rules),
        reads_values=any(rule.must_run_every_call for rule in rules),
    )


def error_of_union(function: str, name: str, value: Any, errors: list[Exception]) -> Exception:
    """Return the error about a value that no annotation of a union accepts.

    If the value has the type of one of the annotations, the error is that of the first such annotation.
    """
    expected = []
    for error in errors:
        if not hasattr(error, "wrong_kind"):
            return error
        expected.append(error.wrong_kind.expected)
    return checks.wrong_kind(function, name, value, " or ".join(expected))


# --- tuples and NamedTuples -----------------------------------------------------------------------


def type_rule(kind: type) -> Rule:
    """Return the rule of a value whose type is exactly `kind`."""
    return Rule(kind.__name__, check_with(checks.check_kind, kind))


def tuple_rule(rule: Rule) -> Rule:
    """Return the rule of a tuple in which every part has the same rule, such as a stack of blocks."""

    def parts(path: str, value: Any) -> list[Place]:
        if type(value) is not tuple:
            return []
        return [Place(f"{path}.{i}", rule, part) for i, part in enumerate(value)]

    return replace(
        type_rule(tuple),
        description=f"tuple[{rule}, ...]",
        phase=rule.phase,
        parts=parts,
        has_parts_that_read_values=rule.must_run_every_call,
    )


def dict_rule(rule: Rule) -> Rule:
    """Return the rule of **kwargs, in which every value has the same rule."""

    def parts(path: str, value: Any) -> list[Place]:
        return [Place(keyword, rule, part) for keyword, part in value.items()]

    return replace(
        type_rule(dict), phase=rule.phase, parts=parts, has_parts_that_read_values=rule.must_run_every_call
    )


def fields_rule(kind: Any) -> Rule:
    """Return the rule of a NamedTuple that is checked field by field: parameters, or a config.

    A config is checked before the other arguments, because it records their sizes.
    """
    annotations = read_field_annotations(kind)
    rules = [to_rule(annotations.get(field, Any)) for field in kind._fields]

    def parts(path: str, value: Any) -> list[Place]:
        if type(value) is not kind:
            return []
        fields = zip(kind._fields, rules, value, strict=True)
        return [Place(f"{path}.{field}", rule, part) for field, rule, part in fields]

    is_config = kind.__name__.endswith("Config")
    return replace(
        type_rule(kind),
        phase=Phase.SETTINGS if is_config else Phase.ARRAYS,
        parts=parts,
        has_parts_that_read_values=any(rule.must_run_every_call for rule in rules),
    )


def read_field_annotations(kind: type) -> dict[str, Any]:
    """Return the annotations of a class and of its base classes. `collections.namedtuple` makes none."""
    annotations: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        annotations |= getattr(base, "__annotations__", {})
    return annotations


# --- the cache of a backward function, and the gradient of the output --------------------------------

# For each type of cache: the fields that determine the required shape and dtype of the gradient.
FIELDS_FOR_GRADIENT: dict[type, tuple[str, ...]] = {}


def cache_rule(kind: Any) -> Rule:
    """Return the rule of a cache of type `kind`. The rule records the sizes and dtype of the gradient.

    The length of a dimension comes from the first field whose annotation names the dimension. The dtype comes
    from the field `dtype` of the cache. Without such a field, the dtype comes from the first float array
    among the fields that set a length, or else among all fields.
    """
    shape_fields = fields_that_record_sizes(kind)
    field_rules = {field: to_rule(annotation) for field, annotation in kind.__annotations__.items()}
    if "dtype" in field_rules:
        FIELDS_FOR_GRADIENT[kind] = (*shape_fields, "dtype")
    elif any(field_rules[field].is_float for field in shape_fields):
        FIELDS_FOR_GRADIENT[kind] = tuple(shape_fields)
    else:  # search all fields for the first float array
        FIELDS_FOR_GRADIENT[kind] = kind._fields

    def check(cache: Any, name: str, call: Call) -> None:
        checks.check_kind(call.function, name, cache, kind)
        for field, names in shape_fields.items():
            value = getattr(cache, field)
            shape = value if isinstance(value, tuple) else value.shape
            record_sizes(names, shape, field, call)
        call.dtype = dtype_of(cache, FIELDS_FOR_GRADIENT[kind])

    return Rule(kind.__name__, check, Phase.SETTINGS)


def fields_that_record_sizes(kind: Any) -> dict[str, DimensionNames]:
    """Return the fields of a cache that introduce a new dimension name, with all their dimension names."""
    fields: dict[str, DimensionNames] = {}
    known_names: set[str] = set()
    for field, annotation in kind.__annotations__.items():
        names = to_rule(annotation).dimension_names or ()
        if not known_names.issuperset(names):
            fields[field] = names
            known_names.update(names)
    return fields


def dtype_of(cache: Any, fields: tuple[str, ...]) -> Any:
    """Return the dtype that a cache records: its field `dtype`, or the dtype of the first float array."""
    if "dtype" in fields:
        return cache.dtype
    for field in fields:
        value = getattr(cache, field)
        if checks.is_array(value) and value.dtype in checks.FLOATS:
            return value.dtype
    return None


def gradient_rule(rule: Rule) -> Rule:
    """Return the rule of a gradient, which must have exactly the shape and dtype of the forward output.

    The cache has recorded the shape and the dtype.
    """
    names = rule.dimension_names or ()
    output = "the forward's output"

    def check_dtype(d_output: Any, name: str, call: Call) -> None:
        checks.check_float(call.function, name, d_output, call.dtype, output)

    def check_shape(d_output: Any, name: str, call: Call) -> None:
        checks.check_same_shape(call.function, name, d_output, shape_of(names, call), output)

    description = str(rule)
    return all_of(description, [Rule(description, check_dtype), Rule(description, check_shape)])
