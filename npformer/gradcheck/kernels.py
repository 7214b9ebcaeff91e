"""Call a pair of functions in low precision, and differentiate their reference in float64.

`Kernel` calls the pair at points close to the given arguments. `differentiate` estimates the derivative of
the reference from central differences, which are accurate enough for every precision below float64.
"""

import copy
import inspect
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from npformer.arrays import convert_like, dtype_kind, to_host
from npformer.gradcheck.finite_differences import Floats
from npformer.gradcheck.function_calls import (
    Keys,
    Leaf,
    OutputForm,
    check_arguments,
    copy_generator,
    copy_tree,
    find_changes,
    iter_arrays,
    iter_leaves,
    name_arguments,
    name_of_dtype,
    run_forward_pass,
)
from npformer.gradcheck.relations import root_mean_square
from npformer.tree import get_branches, iter_nested_leaves, map_nested_leaves, replace_nested_leaf

# The dtypes of arguments, outputs and gradients in low precision.
DTYPES = ("bfloat16", "float16", "float32", "float64")
STEP = 2.0**-20  # the step, relative to the moved numbers; a difference quotient has an error of about 1e-10
# If the left and the right quotient differ by more than this share, a shorter step decides whether there is a
# kink.
KINK = 2.0**-10
SHORTER = 1 / 8  # the length of the shorter step, as a share of the usual step


def has_low_precision(args: Any) -> bool:
    """Return whether an array in the arguments has the dtype float16 or bfloat16."""
    return any(name_of_dtype(x) in ("float16", "bfloat16") for _, x in iter_arrays(args, "f"))


class Point(NamedTuple):
    """One point: the arguments and d_output in low precision."""

    args: dict[str, Any]
    d_output: Any


class Kernel:
    """The pair of functions under test and their reference, with the given arguments."""

    def __init__(self, forward: Any, backward: Any, reference: Any, args: Any, kwargs: Any, rng: Any):
        self.forward = forward
        self.backward = backward
        self.args, other_names = name_arguments(forward, args)
        self.kwargs = kwargs
        if rng is not None and "rng" in other_names:
            self.kwargs = {**kwargs, "rng": copy.deepcopy(rng)}
        self.reference = reference
        self.reference_kwargs = _select_kwargs(reference, self.kwargs)
        self.rng = np.random.default_rng(0) if rng is None else rng
        self.n_calls = 0  # calls of forward, and as many of backward
        self.n_reference_calls = 0
        check_arguments(self.args, kwargs, DTYPES)
        self._call_first()

    def _call_first(self) -> None:
        """Call both functions at the given arguments, and find calls that change given data."""
        args = copy_tree(self.args)
        self.first_output, cache = self.call_forward(args)
        self.form = OutputForm(self.first_output, "forward", DTYPES)
        self.output = self.form.flatten(self.first_output, "forward", DTYPES)
        if not np.isfinite(self.output.astype(float)).all():
            raise ValueError(
                "gradcheck: forward's output has entries that are not finite; it has no slope there"
            )
        self.d_output = np.asarray(self.rng.standard_normal(self.output.shape))
        d_output = self.form.restore(self.d_output, in_its_dtypes=True)
        d_output_before, cache_before = copy_tree(d_output), copy_tree(cache)
        gradients = copy_tree(self.backward(d_output, cache))
        self.leaves = list(iter_leaves(self.args, gradients, DTYPES))
        self.faults = find_changes("forward", "forward writes into its arguments", self.args, args)
        self.faults += find_changes("backward", "backward writes into d_output", d_output_before, d_output)
        self.faults += find_changes("backward", "backward writes into its cache", cache_before, cache)

    def call_forward(self, args: dict[str, Any]) -> tuple[Any, Any]:
        """Return the output and the cache of a forward pass in low precision."""
        self.n_calls += 1
        return run_forward_pass(self.forward, args, self.kwargs)

    def compute_gradients(self, point: Point) -> dict[Keys, Leaf]:
        """Return the leaves of the arguments with their gradients at a point, in low precision."""
        _, cache = self.call_forward(copy_tree(point.args))
        gradients = copy_tree(self.backward(copy_tree(point.d_output), cache))
        return {leaf.keys: leaf for leaf in iter_leaves(point.args, gradients, DTYPES)}

    def call_reference(self, args: dict[str, Any]) -> Floats:
        """Return the output of the reference at arguments in float64."""
        self.n_reference_calls += 1
        args = map_nested_leaves(copy_generator, args)
        if self.reference is None:
            result = self._run_forward(*args.values(), **copy_tree(self.reference_kwargs))
        else:
            result = self._run_reference(*args.values(), **copy_tree(self.reference_kwargs))
        output = self.form.flatten(result, "reference", ("float64",))
        if output.shape != self.output.shape:
            raise ValueError(
                f"gradcheck: reference returned an array of shape {output.shape}; "
                f"expected {self.output.shape}, the shape of forward's output"
            )
        return output

    def _run_reference(self, *args: Any, **kwargs: Any) -> Any:
        """Return the output of the reference. Raises ValueError if the reference raises an error."""
        try:
            return self.reference(*args, **kwargs)
        except Exception as error:  # The user's function may raise any exception.
            text = f"gradcheck: reference raises {type(error).__name__}: {error}"
            raise ValueError(text) from error

    def _run_forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the output of forward for arguments in float64. This is the default reference."""
        output = self.forward(*args, **kwargs)[0]
        for path, x in iter_nested_leaves("", output):
            dtype = name_of_dtype(to_host(x)) if dtype_kind(x) == "f" else "float64"
            if dtype != "float64":
                name = f" ({path.removeprefix('.')})" if path else ""
                raise TypeError(
                    f"gradcheck: forward's output{name} is {dtype} for arguments in float64; "
                    "pass reference=, the same function in float64"
                )
        return output

    def draw_point(self, radius: float) -> Point:
        """Draw a point: each entry moves by at most `radius` relative to itself, and is then rounded."""

        def move(x: Any) -> Any:
            if dtype_kind(x) != "f":
                return copy_generator(x)
            host = to_host(x)
            moved = host.astype(float) * self._draw_factors(host.shape, radius)
            return convert_like(x, moved.astype(host.dtype))

        args = map_nested_leaves(move, self.args)
        d_output = self.d_output * self._draw_factors(self.d_output.shape, radius)
        return Point(args, self.form.restore(d_output, in_its_dtypes=True))

    def draw_line(self, radius: float, count: int) -> list[Point]:
        """Draw points on a line through the given arguments, from -radius to radius, at equal distances."""
        state = self.rng.bit_generator.state
        points = []
        for t in np.linspace(-radius, radius, count):
            self.rng.bit_generator.state = state  # The same random numbers give the same direction.
            points.append(self.draw_point(float(t)))
        return points

    def _draw_factors(self, shape: tuple[int, ...], radius: float) -> Floats:
        """Draw factors from 1 - radius to 1 + radius."""
        return np.asarray(1 + radius * self.rng.uniform(-1, 1, shape))


def _select_kwargs(reference: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments that the reference accepts. Without a reference, return all of them."""
    if reference is None:
        return kwargs
    try:
        parameters = inspect.signature(reference).parameters
    except (TypeError, ValueError):  # some functions written in C have no signature
        return {}
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()):
        return kwargs
    return {name: value for name, value in kwargs.items() if name in parameters}


def to_float64(tree: Any) -> Any:
    """Convert all floating arrays to float64, in their own library if it has float64, otherwise in NumPy."""

    def convert(x: Any) -> Any:
        if dtype_kind(x) != "f":
            return x
        array = to_host(x).astype(float)
        converted = convert_like(x, array)
        has_float64 = name_of_dtype(converted) == "float64"  # JAX has none unless it is switched on
        return converted if has_float64 else array

    return map_nested_leaves(convert, tree)


class ReferenceCalls:
    """The calls of a kernel's reference at the given arguments, to measure its noise."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.args = to_float64(kernel.args)
        self.output = kernel.call_reference(self.args)
        self.eps = float(np.finfo(float).eps)
        self.step_rng = np.random.default_rng(0)

    def compute_output(self, keys: Keys, x: Floats) -> Floats:
        """Return the output after replacing the array at `keys` by x; NaN if there is no valid output."""
        moved = replace_nested_leaf(self.args, keys, lambda old: convert_like(old, x))
        try:
            return self.kernel.call_reference(moved)
        except Exception:  # The user's function may raise any exception, because x is far from the arguments.
            return np.full(self.output.shape, math.nan)


# The derivative of the reference


def differentiate(
    kernel: Kernel, args: dict[str, Any], d_output: Floats, keys: Keys, directions: Sequence[Floats | int]
) -> Floats:
    """Return the derivatives of Σ d_output · reference along directions, with respect to one array.

    A direction is an array, or the index of an entry in the flat array. The derivative at a kink is NaN.
    """
    quotients = partial(compute_quotients, kernel, args, d_output, keys, kernel.call_reference(args))
    pairs = np.array([quotients(direction, STEP) for direction in directions]).reshape(-1, 2)
    jumps = abs(pairs[:, 0] - pairs[:, 1])
    sizes = abs(pairs).max(axis=1)
    derivatives = np.asarray(pairs.mean(axis=1))
    is_suspicious = jumps > KINK * np.maximum(sizes, KINK * sizes.max(initial=0.0))
    for i in np.flatnonzero(is_suspicious).tolist():
        right, left = quotients(directions[i], SHORTER * STEP)
        is_kink = abs(right - left) > jumps[i] / 2  # the jump of a smooth function shrinks with the step
        derivatives[i] = math.nan if is_kink else (right + left) / 2
    return derivatives


def compute_quotients(
    kernel: Kernel,
    args: dict[str, Any],
    d_output: Floats,
    keys: Keys,
    output: Floats,
    direction: Floats | int,
    step: float,
) -> tuple[float, float]:
    """Return the difference quotients to the right and to the left along a direction.

    `output` is the output of the reference at `args`. The step is relative to the moved numbers.
    """
    host = to_host(get_leaf(args, keys))
    length = step * (root_mean_square(host) or 1.0)
    if isinstance(direction, int):
        length = max(length, step * abs(float(host.flat[direction])))
        shift = np.zeros(host.shape)
        shift.flat[direction] = length
    else:
        shift = length * direction

    def quotient(sign: int) -> float:
        moved = replace_nested_leaf(args, keys, lambda old: convert_like(old, host + sign * shift))
        difference = d_output * (kernel.call_reference(moved) - output)
        return float(difference.sum()) / (sign * length)

    return quotient(1), quotient(-1)


def get_leaf(tree: Any, keys: Keys) -> Any:
    """Return the array at these keys."""
    for key in keys:
        branches = get_branches(tree)
        assert branches is not None
        tree = branches[key]
    return tree
