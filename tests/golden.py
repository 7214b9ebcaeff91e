"""Every operation against PyTorch: output and every gradient, in float64 and in float32.

An operation's own file asks with one line: `test_golden_values = agrees_with_pytorch("attention")`.
tests/data/make_golden.py wrote the answers, golden_files.py beside it says how the files are laid out. The
inputs are float32 numbers and the answers float64 ones, so both precisions are held against the same truth.
"""

import inspect
from types import NoneType
from typing import get_args, get_origin

import numpy as np
from golden_files import FILES, read
from together import together
from valid_calls import backward

import npformer as npf

# Of max(1, the largest entry). Six layers in float32 are off by 6e-6 where a processor multiplies and adds in
# one step, by 5e-5 where it does not (WebAssembly too).
TOLERANCE = {np.float64: 1e-11, np.float32: 1e-4}
EVERYTHING = {case["name"]: case for file in FILES for case in read(file)}
CASES = {name: case for name, case in EVERYTHING.items() if case["operation"] != "adam"}
TRAJECTORIES = {name: case for name, case in EVERYTHING.items() if case["operation"] == "adam"}
FORWARDS = {"grouped_attention": "multi_head_attention"}  # where the operation's name is not the function's


def agrees_with_pytorch(*operations):
    """A test: each case of these operations gives PyTorch's output and gradients."""
    assert {*operations} <= {case["operation"] for case in CASES.values()}

    @together("dtype", TOLERANCE)
    @together("name", [name for name, case in CASES.items() if case["operation"] in operations])
    def test(name, dtype):
        case, arrays = CASES[name], inputs_of(CASES[name], dtype)
        run = train if case["operation"] == "training" else forward
        y, backward = run(case["operation"], arrays, case["settings"])
        found = {"y": y} | {f"d_{argument}": g for argument, g in backward(arrays["d_y"]).items()}
        assert found.keys() == case["answers"].keys()
        for argument, expected in case["answers"].items():
            assert_close(found[argument], expected, dtype, argument)

    return test


def inputs_of(case, dtype):
    """The case's arrays, read-only: whoever writes into an argument raises."""
    arrays = {name: array.astype(dtype) for name, array in case["inputs"].items()} | case["constants"]
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


def assert_close(found, expected, dtype, what):
    assert found.dtype == dtype, f"{what} is {found.dtype}"
    assert found.shape == expected.shape, f"{what} has shape {found.shape}, expected {expected.shape}"
    largest = max(1.0, float(abs(expected).max()))
    error = float(abs(found.astype(np.float64) - expected).max()) / largest
    assert error <= TOLERANCE[dtype], f"{what} is off by {error:.1e} of {largest:.3g}"


# --- an operation, from the arrays by name and the settings ------------------------------------------


def forward(operation, arrays, settings):
    """y, and what takes d_y to the gradients by name. Which arguments there are, the signature tells."""
    name, arguments = f"{FORWARDS.get(operation, operation)}_forward", {}
    for argument, annotation in inspect.unwrap(getattr(npf, name)).__annotations__.items():
        if argument == "params":
            arguments[argument] = tree_of(annotation, arrays)
        elif argument == "config":  # without an rng its dropout must do nothing
            own = {field: settings[field] for field in annotation._fields if field in settings}
            arguments[argument] = annotation(**own)
        elif argument in arrays or argument in settings:
            arguments[argument] = (arrays | settings)[argument]
    y, cache = getattr(npf, name)(**arguments)

    def gradients(d_y):
        trees = backward(name, d_y, cache).items()
        return {path or argument: g for argument, tree in trees for path, g in npf.leaves(tree)}

    return y, gradients


def train(_, arrays, settings):
    """From ids to the loss, and from the loss to the gradient of every parameter."""
    logits, model_backward = forward("transformer", arrays, settings)
    loss, loss_backward = forward("cross_entropy", arrays | {"logits": logits}, settings)
    return loss, lambda d_loss: model_backward(loss_backward(d_loss)["logits"])


def tree_of(kind, arrays, path=""):
    """The parameters of this type, each array by its path; None where there is none."""
    inside = [name for name in arrays if name.startswith(path)]
    kinds = [part for part in get_args(kind) if part is not NoneType]
    if path in arrays or not inside:
        return arrays.get(path)
    if get_origin(kind) is tuple:
        n = len({name.removeprefix(path).partition(".")[0] for name in inside})
        return tuple(tree_of(kinds[0], arrays, f"{path}{i}.") for i in range(n))
    if not hasattr(kind, "_fields"):  # Annotated, or with None
        return tree_of(kinds[0], arrays, path)
    ends = {field: "" if path + field in arrays else "." for field in kind._fields}
    return kind(*[tree_of(a, arrays, path + f + ends[f]) for f, a in kind.__annotations__.items()])
