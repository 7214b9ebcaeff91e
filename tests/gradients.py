"""Compare the backward pass of every operation with finite differences of its forward pass.

A test file needs one line per operation:

    test_gradients = make_gradient_test("ffn", {"activation": "gelu"})

Each dict is one variant: it replaces arguments of the valid call that valid_calls.py makes.
"""

import inspect
from functools import partial
from itertools import product

import pytest
from valid_calls import arguments, drawn, with_arrays

import npformer as npf

SIZES = ("lead", "T", "S")  # the leading axes, and the numbers of target and source tokens


def make_gradient_test(operation, *variants):
    """Return a test that gradcheck passes for every variant and covers every float array and parameter."""

    @pytest.mark.parametrize("variant", variants, ids=name_variant)
    def test(variant):
        check_gradients(operation, variant)

    return test


def name_variant(variant):
    """Return a name for a variant, made of its arguments without the values of arrays and configs."""
    parts = []
    for name, value in variant.items():
        is_short = isinstance(value, bool | int | float | str) or value is None or name in SIZES
        parts.append(f"{name}={value}" if is_short else name)
    return " ".join(parts) or "valid call"


def combine(**choices):
    """Return one variant for every combination of the choices."""
    return [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]


def check_gradients(operation, variant):
    """Run gradcheck for one variant. The entry `directions` of a variant is an argument of gradcheck."""
    forward = getattr(npf, f"{operation}_forward")
    backward = getattr(npf, f"{operation}_backward")
    call = make_call(operation, variant)
    positional = []
    for parameter in inspect.signature(forward).parameters.values():
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            positional.append(call.pop(parameter.name))
    settings = {"directions": variant.get("directions")}
    if "rng" in call:
        settings["rng"] = call.pop("rng")
    report = npf.gradcheck(partial(forward, **call), backward, *positional, **settings)
    assert report, report
    assert report.tolerance == 1e-8
    arrays = []
    with_arrays(tuple(positional), arrays.append)
    assert len(report.rows) == sum(array.dtype.kind == "f" for array in arrays)


def make_call(operation, variant):
    """Return the arguments of the valid call, changed by the variant.

    `lead`, `T` and `S` in a variant set the sizes of the arrays. An entry with the name of a config field
    changes this field, and new parameters are drawn for the changed config.
    """
    sizes = {"T": 3, "S": 4} | {name: variant[name] for name in SIZES if name in variant}
    call = arguments(f"{operation}_forward", **sizes)
    fields = {}
    if "config" in call:
        fields = {name: variant[name] for name in call["config"]._fields if name in variant}
        call["config"] = call["config"]._replace(**fields)
        has_vocabulary = not operation.startswith(("encoder", "decoder"))
        sizes_of_params = (5, call["config"]) if has_vocabulary else (call["config"],)
        call["params"] = drawn(getattr(npf, f"init_{operation}"), *sizes_of_params)
    not_arguments = {*fields, *sizes, "directions", "lead"}
    changed = {name: value for name, value in variant.items() if name not in not_arguments}
    unknown = changed.keys() - call.keys()
    assert not unknown, f"{operation}_forward has no {unknown}"
    return call | changed
