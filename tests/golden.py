"""Compare every operation with PyTorch: its output and every gradient, in float64 and in float32.

The tests of an operation contain one line: `test_golden_values = agrees_with_pytorch("attention")`.
tests/data/make_golden.py wrote PyTorch's answers, and tests/data/golden_files.py describes the files. The
inputs are float32 numbers and the answers are float64 numbers, so both precisions have the same answer.
"""

import inspect
from types import NoneType
from typing import get_args, get_origin

import numpy as np
import pytest
from golden_files import FILES, read
from valid_calls import backward

import npformer as npf

# The largest error allowed, divided by max(1, the largest entry). The error of six layers in float32 is 6e-6
# on a processor with fused multiply-add, and 5e-5 on other processors and in WebAssembly.
TOLERANCE = {np.float64: 1e-11, np.float32: 1e-4}
ALL_CASES = {case["name"]: case for file in FILES for case in read(file)}
CASES = {name: case for name, case in ALL_CASES.items() if case["operation"] != "adam"}
TRAJECTORIES = {name: case for name, case in ALL_CASES.items() if case["operation"] == "adam"}
HOW_TO_ADD_CASE = (
    "add one to tests/data/make_golden.py and run it "
    "(uv run --with torch==2.13 python tests/data/make_golden.py)"
)
# The operations in the golden files whose npformer function has a different name.
FORWARDS = {"grouped_attention": "multi_head_attention"}


def agrees_with_pytorch(*operations):
    """Return a test that each case of these operations gives PyTorch's output and gradients."""
    for operation in operations:
        has_case = any(case["operation"] == operation for case in CASES.values())
        assert has_case, f"no golden case of {operation}: {HOW_TO_ADD_CASE}"
    names = [name for name, case in CASES.items() if case["operation"] in operations]

    @pytest.mark.parametrize("dtype", TOLERANCE)
    @pytest.mark.parametrize("name", names)
    def test(name, dtype):
        case = CASES[name]
        arrays = inputs_of(case, dtype)
        run = train if case["operation"] == "training" else forward
        y, backward = run(case["operation"], arrays, case["settings"])
        found = {"y": y} | {f"d_{argument}": g for argument, g in backward(arrays["d_y"]).items()}
        assert found.keys() == case["answers"].keys()
        for argument, expected in case["answers"].items():
            assert_close(found[argument], expected, dtype, argument)

    return test


def inputs_of(case, dtype):
    """Return the arrays of a case as read-only arrays, so that a function cannot change its arguments."""
    arrays = {name: array.astype(dtype) for name, array in case["inputs"].items()} | case["constants"]
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


def assert_close(found, expected, dtype, what):
    """Check dtype, shape and values of an array; `what` is its name in the message."""
    assert found.dtype == dtype, f"{what} is {found.dtype}"
    assert found.shape == expected.shape, f"{what} has shape {found.shape}, expected {expected.shape}"
    largest = max(1.0, float(abs(expected).max()))
    error = float(abs(found.astype(np.float64) - expected).max()) / largest
    assert error <= TOLERANCE[dtype], f"{what} is off by {error:.1e} of {largest:.3g}"


# --- run an operation, given its arrays by name and its settings --------------------------------------


def forward(operation, arrays, settings):
    """Return y, and a function that computes the gradients by name from d_y.

    The signature of the forward function determines which arrays and settings are arguments.
    """
    name = f"{FORWARDS.get(operation, operation)}_forward"
    arguments = {}
    for argument, annotation in inspect.unwrap(getattr(npf, name)).__annotations__.items():
        if argument == "params":
            arguments[argument] = tree_of(annotation, arrays)
        elif argument == "config":
            # The config may contain a dropout rate, because dropout does nothing without an rng.
            fields = {field: settings[field] for field in annotation._fields if field in settings}
            arguments[argument] = annotation(**fields)
        elif argument in arrays or argument in settings:
            arguments[argument] = (arrays | settings)[argument]
    y, cache = getattr(npf, name)(**arguments)

    def gradients(d_y):
        found = {}
        for argument, tree in backward(name, d_y, cache).items():
            for path, gradient in npf.leaves(tree):
                found[path or argument] = gradient  # the path is "" if `tree` is an array
        return found

    return y, gradients


def train(_, arrays, settings):
    """Run a model with its loss: return the loss, and a function for the gradient of every parameter."""
    logits, model_backward = forward("transformer", arrays, settings)
    loss, loss_backward = forward("cross_entropy", arrays | {"logits": logits}, settings)
    return loss, lambda d_loss: model_backward(loss_backward(d_loss)["logits"])


def tree_of(kind, arrays, path=""):
    """Build parameters of a type from {path: array}. A parameter without an array is None."""
    names_inside = [name for name in arrays if name.startswith(path)]
    kinds = [part for part in get_args(kind) if part is not NoneType]
    if path in arrays or not names_inside:
        return arrays.get(path)
    if get_origin(kind) is tuple:
        n = len({name.removeprefix(path).partition(".")[0] for name in names_inside})
        return tuple(tree_of(kinds[0], arrays, f"{path}{i}.") for i in range(n))
    if not hasattr(kind, "_fields"):  # `kind` is Annotated[type, …] or a union of a type and None
        return tree_of(kinds[0], arrays, path)
    fields = []
    for field, annotation in kind.__annotations__.items():
        field_path = path + field
        is_leaf = field_path in arrays
        fields.append(tree_of(annotation, arrays, field_path if is_leaf else field_path + "."))
    return kind(*fields)
