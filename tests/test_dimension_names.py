"""Tests that annotated shapes are correct for all functions of npformer, also for results and caches.

`checked` only checks the arguments of public functions. These tests check every call inside npformer of every
function with annotated shapes: the arguments, the result, and the fields of the cache. So a wrong dimension
name in any annotation makes a valid call fail. Another test reports annotations with a leading "..."
whose arrays have no leading axes in any call.

If a result of a new function has a new dimension name, add the lengths of the dimension to RESULT_LENGTHS.
"""

import functools
import importlib
import inspect
import pkgutil
from typing import get_args, get_origin

import numpy as np
import pytest
from small_models import FORMS
from valid_calls import CALLS, CHECKED, CONFIG, LM_CONFIG

import npformer as npf
from npformer.modern import gated_ffn
from npformer.validation.annotation_reader import read_signature, to_rule
from npformer.validation.call import Call, checked_places, shape_of

OTHER_PACKAGES = ("exercises", "lessons", "player", "handouts", "__main__", "cli", "gradcheck")
MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(npf.__path__, "npformer.")
    if found.name.split(".")[1] not in OTHER_PACKAGES
]


def functions_with_shapes():
    """Return every function of the checked modules that has a shape in its annotations."""
    functions = set()
    for module in MODULES:
        for value in vars(module).values():
            is_defined_here = inspect.isfunction(value) and value.__module__ == module.__name__
            if is_defined_here and "[Array, " in str(value.__annotations__):
                functions.add(value)
    return functions


FUNCTIONS = functions_with_shapes()

# `generate` rotates the keys of all heads by one row of angles in a single call. Such a row does not have the
# annotated shape.
NOT_CHECKED = {"generate"}

# The allowed lengths of dimensions that occur only in results. Some dimensions have a second length in models
# from files.
RESULT_LENGTHS = {
    "N": {12}, "S": {7}, "d_Q": {10}, "d_QR": {12}, "d_R": {6}, "d_V": {10, 14}, "d_c": {3}, "d_ff": {12, 64},
    "d_k": {4, 5, 6, 7}, "d_model": {8, 4, 32, 6, 10, 12, 14}, "max_length": {9, 20}, "n_segments": {2},
    "pairs": {2, 3, 4}, "r": {3}, "vocab_size": {5, 11, 29, 262, 267},
}  # fmt: skip


class Record:
    """A record of all checked calls."""

    def __init__(self):
        self.called = set()  # the names of the functions that were called
        self.has_leading_axes = {}  # {(function, path of array): whether it ever had leading axes}


def run_checks(places, call):
    for path, rule, value in places:
        rule.check(value, path, call)


def check_shapes(body, arguments, result, config, record):
    """Check the arguments, the result and the cache of a call against all annotations of the function."""
    call = Call(body.__name__, arguments)
    places = checked_places(read_signature(body).rules, arguments)
    run_checks(places, call)
    integers = {name: value for name, value in arguments.items() if isinstance(value, int)}
    call.sizes = integers | call.sizes
    names_of_arguments = set(call.sizes)
    call.arguments = {"config": config} | arguments
    for field, rule, value in parts_of_result(body, result):
        if field and isinstance(value, tuple):  # this field of the cache is a shape, not an array
            assert shape_of(rule.dimension_names, call) == value, field
        elif not field or value is not None:
            name = field or "the result"
            result_places = checked_places([(name, rule)], {name: value})
            run_checks(result_places, call)
            places += result_places
    check_new_lengths(call, names_of_arguments)
    record_leading_axes(body, places, record)


def check_new_lengths(call, names_of_arguments):
    """Check the lengths of the dimensions that occur only in the result."""
    for name in set(call.sizes) - names_of_arguments - {"1", "d_kv", "h"}:
        advice = (
            f"{call.function}: add {name} with length {call.sizes[name]} to RESULT_LENGTHS, if it is right"
        )
        assert call.sizes[name] in RESULT_LENGTHS.get(name, ()), advice


def record_leading_axes(body, places, record):
    for path, rule, value in places:
        names = rule.dimension_names or ()
        if "..." in names and hasattr(value, "shape"):
            where = body.__name__, path.strip(".0123456789")
            has_leading_axes = len(value.shape) >= len(names)
            record.has_leading_axes[where] = record.has_leading_axes.get(where, False) or has_leading_axes


def parts_of_result(body, result):
    """Yield (field, rule, value) for each part of a result, and for each field of a cache that has a shape.

    The field is "" if the part is not in a cache.
    """
    returns = body.__annotations__["return"]
    annotations = get_args(returns) if get_origin(returns) is tuple else [returns]
    parts = result if len(annotations) > 1 else [result]
    for annotation, value in zip(annotations, parts, strict=True):
        if not getattr(annotation, "__name__", "").endswith("Cache"):
            yield "", to_rule(annotation), value
            continue
        for field, field_annotation in annotation.__annotations__.items():
            rule = to_rule(field_annotation)
            if rule.dimension_names is not None:
                yield field, rule, getattr(value, field)


def with_shape_checks(body, config, record):
    """Wrap a function so that each call checks its arguments, its result and its cache."""

    @functools.wraps(body)
    def wrapper(*args, **kwargs):
        bound = inspect.signature(body).bind(*args, **kwargs)
        bound.apply_defaults()
        record.called.add(body.__name__)
        result = body(*args, **kwargs)
        check_shapes(body, dict(bound.arguments), result, config, record)
        return result

    return wrapper


def config_of_call(name):
    """Return the config of the model in the valid call of a function."""
    if name.startswith("load_"):
        return FORMS[name.removeprefix("load_")].config
    return LM_CONFIG if "causal" in name else CONFIG


def call_with_shape_checks(name, record, monkeypatch):
    """Make the valid call of a public function, and check every annotated function that runs inside it."""
    config = config_of_call(name)
    wrappers = {body: with_shape_checks(body, config, record) for body in FUNCTIONS}
    with monkeypatch.context() as patch:
        for module in MODULES:
            for attribute, value in list(vars(module).items()):
                if inspect.isfunction(value) and value in wrappers:
                    patch.setattr(module, attribute, wrappers[value])
        body = inspect.unwrap(getattr(npf, name))
        function = wrappers.get(body) or with_shape_checks(body, config, record)
        function(**CALLS[name]())


@pytest.mark.parametrize("name", [name for name in CHECKED if name not in NOT_CHECKED])
def test_shapes_inside_the_package_are_annotated(name, monkeypatch, folder):
    call_with_shape_checks(name, Record(), monkeypatch)


def test_every_annotated_shape_occurs_in_a_call(monkeypatch, folder):
    record = Record()
    for name in CHECKED:
        if name not in NOT_CHECKED:
            call_with_shape_checks(name, record, monkeypatch)
    forward = with_shape_checks(gated_ffn.sigmoid_forward, LM_CONFIG, record)
    backward = with_shape_checks(gated_ffn.sigmoid_backward, LM_CONFIG, record)
    y, cache = forward(np.ones((2, 3)))
    backward(y, cache)
    without_leading_axes = {where for where, has_axes in record.has_leading_axes.items() if not has_axes}
    assert without_leading_axes == set()
    assert {body.__name__ for body in FUNCTIONS} - record.called == NOT_CHECKED
