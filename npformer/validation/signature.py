"""The decorator `checked`: each call of a function is checked against the function's signature.

    @checked
    def linear(x: Float[Array, "... d_in"], W: Float[Array, "d_in d_out"]): ...

A dimension name has the same length in all arguments of a call. A number instead of a name is a fixed length.
"..." means the same leading axes in every argument. Only lengths whose names begin with T or S may be 0: a
sequence can be empty, a row cannot. Parameters are checked field by field. A config determines the lengths of
the dimensions that its fields name. A cache determines the shape of the gradient.

An argument may have one of several types, as in `Float[Array, "n"] | int | None`. The annotation of
`*args` holds for each of these arguments. Dimensions such as 2*d are rejected when the function is
defined. The annotation of the result is not checked.

Each annotation has a `Rule`, which raises an error with a message from `checks`. A `Call` records the sizes
of the arguments. Both classes are in the module `call`. The functions inside the package call each other
without checks, so only the call of the user is checked. A call with the cache key of an earlier accepted call
skips all checks except those that read the values in arrays.
"""

import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from npformer.arrays import scalars_to_arrays
from npformer.validation import checks
from npformer.validation.annotation_reader import (
    Signature,
    find_function,
    find_unread_annotation,
    read_signature,
    to_rule,
)
from npformer.validation.cache_key import cache_key
from npformer.validation.call import Call, Place, checked_places

F = TypeVar("F", bound=Callable[..., Any])
MAX_KEYS = 100  # the maximum number of cache keys per function


def checked(body: F) -> F:
    """Return a function that first checks its arguments against the signature, and then calls `body`.

    While `body` runs, NumPy does not warn about overflow and similar events. These events give inf or NaN in
    the result.

    The traceback of a rejected call ends in ``wrapper``, one frame below the caller. With the environment
    variable NPFORMER_FULL_TRACEBACK=1, the traceback continues to the check that raised the error.

    Parameters
    ----------
    body : function
        Its annotations must not be strings, so `from __future__ import annotations` is not possible.

    Returns
    -------
    wrapper : function
        It has the name, docstring and signature of `body`. It raises TypeError for an argument of the wrong
        type or dtype, and ValueError for a wrong shape or value.

    Examples
    --------
    >>> from npformer import Float
    >>> @checked
    ... def dot(a: Float[np.ndarray, "n"], b: Float[np.ndarray, "n"]) -> float:
    ...     return float(a @ b)
    >>> dot(np.ones(3), np.ones(4))
    Traceback (most recent call last):
    ValueError: dot: b has shape (4,); expected (n,) with n=3
    """
    body_without_warnings = np.errstate(all="ignore")(check_body(body))
    signature_of_body = functools.cache(functools.partial(read_signature, body))  # runs at the first call
    accepted: dict[tuple[Any, ...] | None, Accepted] = {}  # by cache key

    @functools.wraps(body)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        signature = signature_of_body()  # the first call also informs `cache_key` about caches
        key = cache_key(args, kwargs) if signature.has_cache_key else None
        earlier = accepted.get(key)
        if earlier is None or earlier.places:
            if key is None:
                args = tuple(map(to_python_integers, args))
                kwargs = {name: to_python_integers(value) for name, value in kwargs.items()}
            arguments = name_arguments(signature, args, kwargs)
            try:
                if not passes_value_checks(body.__name__, earlier, arguments):
                    remember(key, check_call(body.__name__, signature, arguments), signature, accepted)
            except (TypeError, ValueError) as error:
                if os.environ.get("NPFORMER_FULL_TRACEBACK") == "1":
                    raise
                raise error.with_traceback(None) from None
        result = body_without_warnings(*args, **kwargs)
        return result if signature.returns_scalar else scalars_to_arrays(result)

    return wrapper  # type: ignore[return-value]


def check_body(body: F) -> F:
    """Return the body. Raise TypeError if its arguments cannot be read, as of a class or list[Float[...]]."""
    find_function(body)
    unread = find_unread_annotation(body)
    if unread:
        expected = "arrays alone, in a union, in tuple[..., ...] or in a NamedTuple"
        found = f"{body.__name__} has arrays inside the annotation of {unread}"
        raise TypeError(f"checked: {found}; expected {expected}")
    return body


def name_arguments(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name.

    If `body` has a parameter such as ``*args`` or ``**kwargs``, its tuple or dict is one entry.
    """
    arguments = dict(zip(signature.positional, args, strict=False)) | kwargs
    if signature.more_positional:
        arguments[signature.more_positional] = args[len(signature.positional) :]
    if signature.more_keywords:
        known = {*signature.positional, *(name for name, _ in signature.rules)}
        more = {name: value for name, value in kwargs.items() if name not in known}
        arguments[signature.more_keywords] = more
    return arguments


def to_python_integers(value: Any) -> Any:
    """Return the value with NumPy integers and booleans replaced by those of Python, also in a config.

    Otherwise an expression such as np.int8(100) + 100 would overflow.
    """
    if isinstance(value, np.integer | np.bool):
        return value.item()
    if isinstance(value, tuple) and any(isinstance(part, np.integer | np.bool) for part in value):
        return tuple.__new__(type(value), [to_python_integers(part) for part in value])
    return value


class Accepted(NamedTuple):
    """An accepted call."""

    sizes: dict[str, int]  # the lengths of the dimensions, by dimension name
    places: list[Place]  # the arguments and their parts whose rules read the values in arrays


def remember(key: Any, call: Call, signature: Signature, accepted: dict[Any, Accepted]) -> None:
    """Record an accepted call under its cache key. A call without a key is not recorded.

    If there are MAX_KEYS keys already, they are deleted first.
    """
    if key is None:
        return
    if len(accepted) >= MAX_KEYS:
        accepted.clear()
    rules = [(name, rule) for name, rule in signature.rules if rule.must_run_every_call]
    places = [place for place in checked_places(rules, call.arguments) if place.rule.reads_values]
    accepted[key] = Accepted(call.sizes, [place._replace(value=None) for place in places])


# --- checking one call ----------------------------------------------------------------------------


def passes_value_checks(function: str, earlier: Accepted | None, arguments: dict[str, Any]) -> bool:
    """Run the checks that read the values in arrays, and return whether all of them pass.

    `earlier` is the accepted call with the same cache key. If there is no such call, return False. After
    False, `check_call` runs all checks. It raises the error with the clearest message if a check fails.
    """
    if earlier is None:
        return False
    call = Call(function, arguments, dict(earlier.sizes))
    try:
        with np.errstate(all="ignore"):
            for path, rule, _ in earlier.places:
                rule.check(value_at(path, arguments), path, call)
    except (TypeError, ValueError):
        return False
    return True


def value_at(path: str, arguments: dict[str, Any]) -> Any:
    """Return an argument, or the part of an argument at a path such as params.blocks.0.W_1."""
    name, *parts = path.split(".")
    value = arguments[name]
    for part in parts:
        value = value[int(part)] if part.isdigit() else getattr(value, part)
    return value


def check_call(function: str, signature: Signature, arguments: dict[str, Any]) -> Call:
    """Check the arguments of a call, and return the call with the sizes of their dimensions."""
    call = Call(function, arguments)
    with np.errstate(all="ignore"):
        if not passes_checks(call, signature):
            # A check has failed. Repeat all checks in the order that gives the clearest message. One check
            # raises the error.
            places = array_at_fault_last(function, checked_places(signature.rules, arguments), arguments)
            call = Call(function, arguments)
            for place in places:  # pragma: no branch
                try:
                    place.rule.check(place.value, place.path, call)
                except KeyError:
                    continue  # this check needs a size that only the array at fault records
                except TypeError as error:
                    mention_none(error, place, function)
                    raise
        checks.check_one_library(function, arguments)
    return call


def passes_checks(call: Call, signature: Signature) -> bool:
    """Run the checks of a call, record the sizes in `call`, and return whether all checks pass."""
    try:
        for path, rule, value in checked_places(signature.rules, call.arguments):
            rule.check(value, path, call)
    except (TypeError, ValueError):
        return False
    return True


def mention_none(error: TypeError, place: Place, function: str) -> None:
    """Change the message about an optional value of the wrong type, so that it mentions None."""
    problem: checks.WrongKind | None = getattr(error, "wrong_kind", None)  # None if the dtype is wrong
    if problem and problem.argument == place.path and place.rule.is_optional:
        expected = f"None or {problem.expected}"
        error.args = checks.wrong_kind(function, place.path, problem.value, expected).args


def check_value(function: str, argument: str, value: Any, annotation: Any) -> None:
    """Check one value that is not an argument, such as a number in a file, against an annotation."""
    call = Call(function, {argument: value})
    for place in checked_places([(argument, to_rule(annotation))], call.arguments):
        try:
            place.rule.check(place.value, place.path, call)
        except TypeError as error:
            mention_none(error, place, function)
            raise


# --- the array at fault ---------------------------------------------------------------------------


def array_at_fault_last(function: str, places: list[Place], arguments: dict[str, Any]) -> list[Place]:
    """Return the places in an order in which the first error names the array at fault.

    If two arrays contradict each other, checks in the order of the signature may blame the correct array. For
    example, if x has the wrong size, x passes first, and then the check of W fails. The array at fault is
    found by leaving out one array: all other values must then agree. The places of this array are moved to
    the end. If there is no such array, the order does not change.
    """
    for path in suspects(function, places, arguments):
        its_places = [place for place in places if place.path == path]
        other_places = [place for place in places if place.path != path]
        n_passed = count_passed(function, other_places + its_places, arguments)
        is_at_fault = len(other_places) <= n_passed < len(places)
        if is_at_fault:
            return other_places + its_places
    return places


def suspects(function: str, places: list[Place], arguments: dict[str, Any]) -> list[str]:
    """Return the paths of the arrays that may be at fault, the most suspicious one first.

    Only arrays up to the first error are suspects. Empty arrays come first, then arrays with leading axes.
    Within each group, later arguments come first.
    """
    n_passed = count_passed(function, places, arguments)
    checked = places[: n_passed + 1]
    arrays = [place for place in checked if place.rule.dimension_names and checks.is_array(place.value)]

    def suspicion(place: Place) -> tuple[bool, bool]:
        is_empty = 0 in place.value.shape
        has_leading_axes = "..." in (place.rule.dimension_names or ())
        return is_empty, has_leading_axes

    arrays.sort(key=suspicion)
    return [place.path for place in reversed(arrays)]


def count_passed(function: str, places: list[Place], arguments: dict[str, Any]) -> int:
    """Return how many places pass their checks before the first error.

    A check that needs an unknown size counts as passed: perhaps only the array at fault records this size.
    """
    call = Call(function, arguments)
    for n_passed, (path, rule, value) in enumerate(places):
        try:
            rule.check(value, path, call)
        except KeyError:
            continue
        except Exception:  # a check of a relation may raise any exception for wrong values
            return n_passed
    return len(places)
