"""Call forward and backward, assign each gradient to its array, and detect calls that change given data."""

import copy
import inspect
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from npformer.arrays import convert_like, copy_array, dtype_kind, to_host
from npformer.gradcheck.finite_differences import SAFETY, SQRT_EPS, Floats
from npformer.gradcheck.relations import max_abs
from npformer.tree import (
    get_branch_name,
    get_branches,
    iter_nested_leaves,
    map_nested_leaves,
    replace_nested_leaf,
)

Keys = tuple[Any, ...]  # the keys on the path from the root of a tree to a branch


class Leaf(NamedTuple):
    """A floating array in the arguments, with its gradient.

    A subtree whose gradient has the wrong type is also one leaf, without an array. If the number of gradients
    is wrong, a single leaf represents all arguments.
    """

    path: str  # the name of the leaf in the report, such as params.W_1
    keys: Keys = ()  # the keys on the path from the arguments to the leaf
    x: Any = None  # the array; None if the leaf has no array
    gradient: Any = None  # a NumPy array of float64; None if backward returned no array of the correct dtype
    note: str = ""  # why the gradient cannot be compared; empty if it can be compared


class Fault(NamedTuple):
    """A fault of forward or backward that does not belong to a single array."""

    path: str  # the name of the row in the report: forward or backward
    text: str


class Calls:
    """The first calls of forward and backward with their results, and methods for further calls."""

    def __init__(self, forward: Any, backward: Any, args: Any, kwargs: Any, rng: Any):
        self.forward = forward
        self.backward = backward
        self.start = time.monotonic()
        self.has_proposed_directions = False
        self.error_text = ""  # describes the last exception that forward raised in `compute_output`
        self.args, other_names = name_arguments(forward, args)
        self.kwargs = kwargs
        if rng is not None and "rng" in other_names:
            self.kwargs = {**kwargs, "rng": copy.deepcopy(rng)}
        if rng is None:
            rng = np.random.default_rng(0)
        check_arguments(self.args, kwargs)
        self._call_forward_first()
        self.d_output = np.asarray(rng.standard_normal(self.output_copy.shape)).astype(self.output_copy.dtype)
        self.step_rng = np.random.default_rng(rng.integers(2**32))
        self._call_backward_first()
        self.leaves = {leaf.keys: leaf for leaf in iter_leaves(self.args, self.gradients)}
        arrays = [self.output_copy, *(x for _, x in iter_arrays(self.args, "f"))]
        self.is_float64 = all(name_of_dtype(x) == "float64" for x in arrays)
        self._call_forward_in_float64()
        self.rounding_bounds: dict[Keys, float] = {}
        if not self.is_float64:
            self.rounding_bounds = self._bound_float32_rounding()

    def _call_forward_first(self) -> None:
        """Call forward, keep the output and a copy of it, and check that the arguments are unchanged."""
        args = copy_tree(self.args)
        self.first_output, self.cache = self.call_forward(args)
        self.form = OutputForm(self.first_output)
        self.output_copy = np.array(self.form.flatten(self.first_output))
        self.first_output_copy = copy_tree(self.first_output)
        self.faults = find_changes("forward", "forward writes into its arguments", self.args, args)

    def _call_backward_first(self) -> None:
        """Call backward, keep the gradients and a copy, and check that d_output and cache are unchanged."""
        self.cache_copy = copy_tree(self.cache)
        d_output = self.form.restore(self.d_output.copy())
        d_output_copy = copy_tree(d_output)
        self.first_gradients = self.backward(d_output, self.cache)
        self.gradients = copy_tree(self.first_gradients)  # A later call may overwrite the gradients.
        text = "backward writes into d_output"
        self.faults += find_changes("backward", text, d_output_copy, d_output)
        text = "backward writes into its cache"
        self.faults += find_changes("backward", text, self.cache_copy, self.cache)

    def _call_forward_in_float64(self) -> None:
        """Compute and check the output at the given arguments. All differences are measured from this output.

        If an array is float32, forward is called with all floating arguments converted to float64.
        """
        self.args_float64 = _map_floats(lambda x: x.astype(float), self.args)
        repeated = self.form.flatten(self.call_forward(copy_tree(self.args_float64))[0])
        output = self.output_copy
        if not self.is_float64:
            output = self.form.flatten(self.call_forward(copy_tree(self.args_float64))[0])
        self.output = output.astype(float)
        self.eps = float(np.finfo(output.dtype).eps)
        if not np.isfinite(self.output).all():
            raise ValueError(
                "gradcheck: forward's output has entries that are not finite; it has no slope there"
            )
        if max_abs(repeated - self.output) > SQRT_EPS * max_abs(self.output):
            raise ValueError(
                "gradcheck: forward gives another output when it is called again; "
                "pass its numpy.random.Generator among the arguments"
            )

    def call_forward(self, args: dict[str, Any]) -> tuple[Any, Any]:
        """Return the output and the cache of a forward pass."""
        return run_forward_pass(self.forward, args, self.kwargs)

    def call_backward(self, args: dict[str, Any], d_output: Any, cache: Any) -> dict[Keys, Leaf]:
        """Call backward, and return the leaves of the arguments with their gradients."""
        gradients = self.backward(self.form.restore(np.array(d_output)), cache)
        return {leaf.keys: leaf for leaf in iter_leaves(args, copy_tree(gradients))}

    def call_both(self, args: dict[str, Any], d_output: Any) -> dict[Keys, Leaf]:
        """Call forward and backward, and return the leaves of the arguments with their gradients."""
        _, cache = self.call_forward(copy_tree(args))
        return self.call_backward(args, d_output, cache)

    def compute_output(self, keys: Keys, x: Floats) -> Floats:
        """Return the output after replacing the array at `keys` by x.

        Return an array of NaN if forward raises an error or returns a different shape.
        """
        no_output = np.full(self.output.shape, math.nan)
        # If a fault was found, forward may write into its arguments, so it gets copies of the arrays.
        copy_leaf = _copy_leaf if self.faults else copy_generator
        try:
            args = map_nested_leaves(copy_leaf, self.args_float64)
            args = replace_nested_leaf(args, keys, lambda old: convert_like(old, x))
            output = self.form.flatten(self.call_forward(args)[0])
        except Exception as error:  # The user's function may raise any exception.
            self.error_text = f": forward raises {type(error).__name__}: {error}"
            return no_output
        return output if output.shape == no_output.shape else no_output

    def _bound_float32_rounding(self) -> dict[Keys, float]:
        """Estimate the largest error that float32 may cause in each gradient.

        This bound is SAFETY times the difference between the gradients in float32 and in float64, or SAFETY
        times the rounding error of one float32 number if that is larger.
        """
        leaves_float64 = self.leaves
        with suppress(Exception):  # Some functions reject float64. Then the difference counts as 0.
            leaves_float64 = self.call_both(self.args_float64, self.d_output.astype(float))
        bounds = {}
        for keys, leaf in self.leaves.items():
            gradient = np.asarray(leaf.gradient, float)
            gradient_float64 = np.asarray(leaves_float64.get(keys, leaf).gradient, float)
            difference = 0.0
            if gradient.shape == gradient_float64.shape:
                difference = max_abs(gradient - gradient_float64)
            one_rounding = float(np.finfo(np.float32).eps) * max_abs(gradient)
            bounds[keys] = SAFETY * max(one_rounding, difference)
        return bounds

    def repeat_backward(self, factor: float) -> dict[Keys, Leaf] | None:
        """Return the gradients for a multiple of d_output, or None if backward fails when it is called again.

        backward fails if it raises an error or overwrites its first gradients. Then a fault is added.

        With factor 1, backward receives the first cache. Otherwise forward runs again and makes a new cache.
        """
        d_output = factor * self.d_output
        try:
            if factor == 1:
                leaves = self.call_backward(self.args, d_output, self.cache)
            else:
                leaves = self.call_both(self.args, d_output)
        except Exception as error:
            text = f"backward raises {type(error).__name__} when it is called again: {error}"
            self.faults.append(Fault("backward", text))
            return None
        text = "backward returns a buffer that its next call overwrites"
        faults = find_changes("backward", text, self.gradients, self.first_gradients)
        self.faults += sorted(set(faults) - set(self.faults))
        return None if faults else leaves

    def repeat_with_strides(self) -> dict[Keys, Leaf] | None:
        """Return the gradients for arrays that are not contiguous, or None if a function rejects such arrays.

        d_output has a different memory layout than the arguments, because a wrong backward pass may use the
        strides of an argument for d_output, or the reverse.
        """
        args = map_nested_leaves(_skip_elements, copy_tree(self.args))
        try:
            _, cache = self.call_forward(args)
            d_output = map_nested_leaves(_reverse_axes, self.form.restore(self.d_output.copy()))
            gradients = self.backward(d_output, cache)
        except Exception:  # A function may support contiguous arrays only.
            return None
        return {leaf.keys: leaf for leaf in iter_leaves(self.args, copy_tree(gradients))}

    def check_first_results(self) -> None:
        """Add a fault if later calls of forward have changed the first output or the first cache."""
        if not self.faults:
            text = "forward returns a buffer that its next call overwrites"
            self.faults = find_changes("forward", text, self.first_output_copy, self.first_output)
        if not self.faults:
            text = "forward's next call writes into the cache of the last one"
            self.faults = find_changes("forward's", text, self.cache_copy, self.cache)


def run_forward_pass(
    forward: Callable[..., Any], args: dict[str, Any], kwargs: dict[str, Any]
) -> tuple[Any, Any]:
    """Return the output and the cache of a forward pass. Raises TypeError if forward returns no such pair."""
    result = forward(*args.values(), **copy_tree(kwargs))
    is_pair = isinstance(result, tuple) and is_plain(result) and len(result) == 2
    if not is_pair:
        received = describe_type(result)
        raise TypeError(f"gradcheck: forward returned {received}; expected a pair (output, cache)")
    return result


# Arrays that are not contiguous


def _skip_elements(x: Any) -> Any:
    """Return a read-only copy of a NumPy array, with gaps between the elements in memory."""
    if not isinstance(x, np.ndarray) or x.ndim == 0:
        return x
    buffer = np.zeros([2 * length for length in x.shape], dtype=x.dtype)
    return _fill(buffer[(slice(None, None, 2),) * x.ndim], x)


def _reverse_axes(x: Any) -> Any:
    """Return a read-only copy of a NumPy array, in Fortran order and with a negative stride.

    The buffer continues after the last element, so a function that ignores strides stays inside the buffer.
    """
    if not isinstance(x, np.ndarray) or x.ndim == 0:
        return x
    buffer = np.zeros((3 * x.shape[-1], *x.shape[-2::-1]), dtype=x.dtype)
    return _fill(buffer[x.shape[-1] - 1 :: -1].T, x)


def _fill(view: Floats, x: Floats) -> Floats:
    """Write an array into a view of the same shape, and make the view read-only."""
    view[...] = x
    view.flags.writeable = False
    return view


# The arguments


def name_arguments(forward: Callable[..., Any], args: tuple[Any, ...]) -> tuple[dict[str, Any], list[str]]:
    """Return the positional arguments by name, and the names of all parameters that receive none."""
    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):  # some functions written in C have no signature
        parameters = []
    names = []
    keyword_only = []
    variadic = "args"
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        elif parameter.kind == parameter.KEYWORD_ONLY:
            keyword_only.append(parameter.name)
        elif parameter.kind == parameter.VAR_POSITIONAL:
            variadic = parameter.name
    other_names = names[len(args) :] + keyword_only
    names += [f"{variadic}[{i}]" for i in range(len(args) - len(names))]
    return dict(zip(names, args, strict=False)), other_names


def iter_arrays(tree: Any, kinds: str) -> Iterator[tuple[str, Any]]:
    """Iterate over the arrays whose dtype has one of these kinds, with their paths.

    The kind "-" selects leaves that are no arrays.
    """
    for path, x in iter_nested_leaves("", tree):
        if dtype_kind(x) in kinds:
            yield path.removeprefix("."), x


def _has_arrays(tree: Any, kinds: str) -> bool:
    """Return whether a tree has an array whose dtype has one of these kinds."""
    return any(dtype_kind(x) in kinds for _, x in iter_nested_leaves("", tree))


FLOATS = ("float64", "float32")  # the dtypes of arguments and outputs


def check_arguments(args: dict[str, Any], kwargs: dict[str, Any], accepted: Sequence[str] = FLOATS) -> None:
    """Raise an error for an argument that cannot be differentiated, or whose dtype is not accepted."""
    for path, _ in iter_arrays(kwargs, "fc"):
        raise TypeError(
            f"gradcheck: {path} is a floating array given by keyword, where no gradient is compared; "
            f"pass it by position, or hold it fixed: functools.partial(forward, {path.split('.')[0]}=...)"
        )
    for path, x in iter_arrays(args, "-iub"):
        _check_no_hidden_arrays(path, x)
    for path, x in iter_arrays(args, "fc"):
        _check_array(path, x, accepted)
    if not _has_arrays(args, "fc"):
        raise TypeError("gradcheck: no argument is a floating array or a tree of them: nothing to compare")


def _check_no_hidden_arrays(path: str, x: Any) -> None:
    """Raise an error for an object that has a floating array as an attribute."""
    if isinstance(x, type | ModuleType):
        return
    for name, value in getattr(x, "__dict__", {}).items():
        if _has_arrays(value, "fc"):
            raise TypeError(
                f"gradcheck: {path}.{name} is a floating array inside a {type(x).__name__}, where no "
                "gradient is compared; expected arrays, or tuples, lists and dicts of them"
            )


def name_of_dtype(x: Any) -> str:
    """Return the name of an array's dtype without its library, such as "float64" for torch.float64."""
    return str(x.dtype).split(".")[-1]


def _check_array(path: str, x: Any, accepted: Sequence[str]) -> None:
    """Raise an error for an array with an unsupported dtype or type, or with NaN or infinite entries."""
    if name_of_dtype(x) not in accepted:
        raise TypeError(f"gradcheck: {path} has dtype {x.dtype}; expected {' or '.join(accepted)}")
    if isinstance(x, np.ma.MaskedArray | np.matrix):
        raise TypeError(f"gradcheck: {path} is a {type(x).__name__}; expected a plain array")
    if not np.isfinite(to_host(x).astype(float)).all():
        raise ValueError(f"gradcheck: {path} has entries that are not finite; there is no slope there")


# The gradient of each argument


def iter_leaves(args: dict[str, Any], gradients: Any, dtypes: Sequence[str] = ()) -> Iterator[Leaf]:
    """Iterate over the leaves of the arguments, with the gradient of each leaf.

    A gradient must have the dtype of its argument, or one of `dtypes`.
    """
    names = [name for name, arg in args.items() if _has_arrays(arg, "f")]
    if not is_plain(gradients):
        gradients = (gradients,)
    elif len(names) == 1 and not _is_wrapped(gradients, args[names[0]]):
        gradients = (gradients,)
    if len(gradients) != len(names):
        note = f"number of gradients is {len(gradients)}, expected {len(names)}"
        yield Leaf(", ".join(names), note=note)
        return
    gradient_of = dict.fromkeys(args) | dict(zip(names, gradients, strict=True))
    yield from _iter_branch("", (), args, gradient_of, dtypes)


def is_plain(value: Any) -> bool:
    """Return whether a value is a tuple or a list, and not a NamedTuple."""
    return isinstance(value, tuple | list) and not hasattr(value, "_fields")


def _is_wrapped(gradients: Any, arg: Any) -> bool:
    """Return whether a returned tuple contains the gradient of the only argument as its only element.

    If the argument is a tuple, the returned tuple may also be the gradient itself.
    """
    if len(gradients) != 1:
        return False
    if not is_plain(arg):
        return True
    return is_plain(gradients[0]) and len(gradients[0]) == len(arg)


def _iter_branch(path: str, keys: Keys, x: Any, gradient: Any, dtypes: Sequence[str]) -> Iterator[Leaf]:
    """Iterate over the leaves of one branch of the arguments, with the gradient of each leaf."""
    if dtype_kind(x) == "f":
        yield _make_leaf(path, keys, x, gradient, dtypes)
        return
    received, expected = describe_type(gradient), describe_type(x)
    if received == expected:
        parts = get_branches(x) or {}
        part_gradients = get_branches(gradient) or {}
        for (key, part), part_gradient in zip(parts.items(), part_gradients.values(), strict=True):
            part_path = f"{path}.{get_branch_name(x, key)}".removeprefix(".")
            yield from _iter_branch(part_path, (*keys, key), part, part_gradient, dtypes)
    elif x is None or _has_arrays(x, "f"):
        yield Leaf(path, keys, note=f"is {received}, expected {expected}")


def _make_leaf(path: str, keys: Keys, x: Any, gradient: Any, dtypes: Sequence[str]) -> Leaf:
    """Make a leaf from an array and its gradient, with a note if type, dtype or shape is wrong."""
    is_array = dtype_kind(gradient) != "-" or isinstance(gradient, np.generic)
    if not is_array:
        expected = f"an array of shape {tuple(x.shape)}"
        return Leaf(path, keys, x, note=f"is {describe_type(gradient)}, expected {expected}")
    g, x_host = to_host(gradient), to_host(x)
    if g.dtype != x_host.dtype and name_of_dtype(g) not in dtypes:
        return Leaf(path, keys, x, note=f"has dtype {g.dtype}, expected {x_host.dtype}")
    note = ""
    if g.shape != x_host.shape:
        note = f"has shape {g.shape}, expected {x_host.shape}"
    return Leaf(path, keys, x, np.array(g, dtype=float), note)


def describe_type(value: Any) -> str:
    """Describe the type of a value. Add the keys of a dict, or the length of a tuple or list."""
    if value is None:
        return "None"
    if isinstance(value, dict):
        return f"dict of {', '.join(map(str, value))}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__


# Copies and comparisons with copies


def get_output(output: Any, function: str = "forward", accepted: Sequence[str] = FLOATS) -> Floats:
    """Return the output of a function as a NumPy array, whose dtype must be accepted."""
    is_number = isinstance(output, float | np.floating)
    is_array = dtype_kind(output) != "-" or is_number
    received = name_of_dtype(to_host(output)) if is_array else describe_type(output)
    if received not in accepted:
        expected = f"an array of {' or '.join(accepted)}"
        raise TypeError(f"gradcheck: {function}'s output is {received}; expected {expected}")
    return to_host(output)


class OutputForm:
    """The form of forward's output: one array, or a tree whose arrays are joined into one long vector.

    Only the floating arrays of a tree are joined. In a d_output of the same form, every other leaf is None.
    """

    def __init__(self, output: Any, function: str = "forward", accepted: Sequence[str] = FLOATS):
        self.example = output
        self.is_tree = get_branches(output) is not None and _has_arrays(output, "f")
        self.paths = [path for path, _ in iter_arrays(output, "f")] if self.is_tree else []
        self.flatten(output, function, accepted)  # checks the dtypes

    def flatten(self, output: Any, function: str = "forward", accepted: Sequence[str] = FLOATS) -> Floats:
        """Return the output as one NumPy array. Raises TypeError for a dtype that is not accepted.

        Raises ValueError if the arrays of a tree have different paths than in the first output.
        """
        if not self.is_tree:
            return get_output(output, function, accepted)
        arrays = dict(iter_arrays(output, "f"))
        if list(arrays) != self.paths:
            received = ", ".join(arrays) or describe_type(output)
            expected = ", ".join(self.paths)
            raise ValueError(f"gradcheck: {function} returned the arrays {received}; expected {expected}")
        parts = [get_output(array, f"{function} ({path})", accepted) for path, array in arrays.items()]
        dtypes = {part.dtype for part in parts}
        if len(dtypes) > 1:
            parts = [part.astype(float) for part in parts]
        return np.concatenate([part.ravel() for part in parts])

    def find_places(self) -> dict[str, slice]:
        """Return the slice of d_output that belongs to each output, by name, such as "d_output.mean".

        If forward has a single output array, return {}.
        """
        if not self.is_tree:
            return {}
        places = {}
        start = 0
        for path, array in iter_arrays(self.example, "f"):
            stop = start + math.prod(to_host(array).shape)
            places[f"d_output.{path}"] = slice(start, stop)
            start = stop
        return places

    def restore(self, d_output: Floats, in_its_dtypes: bool = False) -> Any:
        """Return d_output in the form of the output, with arrays of the same library.

        If `in_its_dtypes` is true, each array of d_output has the dtype of the corresponding output array.
        """

        def convert(x: Any, part: Floats) -> Any:
            if in_its_dtypes:
                part = part.astype(to_host(x).dtype)
            return convert_like(x, part)

        if not self.is_tree:
            return convert(self.example, d_output)
        start = 0

        def take(x: Any) -> Any:
            nonlocal start
            if dtype_kind(x) != "f":
                return None
            shape = to_host(x).shape
            part = d_output[start : start + math.prod(shape)].reshape(shape)
            start += math.prod(shape)
            return convert(x, part)

        return map_nested_leaves(take, self.example)


def copy_tree(tree: Any) -> Any:
    """Copy a tree with its arrays and random generators. Other objects, such as settings, are shared."""
    return map_nested_leaves(_copy_leaf, tree)


def _copy_leaf(x: Any) -> Any:
    """Copy an array or a random generator."""
    return copy_generator(x) if dtype_kind(x) == "-" else copy_array(x)


def copy_generator(x: Any) -> Any:
    """Copy a random generator, and return anything else unchanged."""
    return copy.deepcopy(x) if isinstance(x, np.random.Generator) else x


def _map_floats(f: Callable[[Floats], Floats], tree: Any) -> Any:
    """Apply f to every floating array of a tree. Each result is an array of the original library."""

    def map_leaf(x: Any) -> Any:
        return convert_like(x, f(to_host(x))) if dtype_kind(x) == "f" else x

    return map_nested_leaves(map_leaf, tree)


def find_changes(path: str, text: str, before: Any, after: Any) -> list[Fault]:
    """Return a fault for each array that differs between two trees in at least one bit."""
    leaves_before, leaves_after = dict(iter_nested_leaves("", before)), dict(iter_nested_leaves("", after))
    faults = []
    for leaf_path in leaves_before | leaves_after:
        if _differ(leaves_before.get(leaf_path), leaves_after.get(leaf_path)):
            name = leaf_path.removeprefix(".")
            faults.append(Fault(path, f"{text} ({name})" if name else text))
    return faults


def _differ(a: Any, b: Any) -> bool:
    """Return whether two values differ in at least one bit.

    Two values that are no arrays do not count as different.
    """
    if dtype_kind(a) == "-" and dtype_kind(b) == "-":
        return False
    return bool(_get_bits(a) != _get_bits(b))


def _get_bits(x: Any) -> Any:
    """Return the dtype, shape and bytes of an array."""
    host = to_host(x)
    return host.dtype, host.shape, host.tobytes()
