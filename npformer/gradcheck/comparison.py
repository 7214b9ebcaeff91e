"""Compare the gradients of a backward pass with finite differences of its forward pass."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from npformer.arrays import describe_value
from npformer.validation.annotations import Rng
from npformer.validation.checks import check_callable, check_integer, check_number
from npformer.validation.signature import check_value

if TYPE_CHECKING:
    from npformer.gradcheck.report import GradientReport

KINKS = ("report", "pass")  # the accepted values of the parameter `kinks`


def assert_gradients(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    *args: Any,
    rng: Rng | None = None,
    tolerance: float | Mapping[str, float] = 1e-8,
    directions: int | None = None,
    reference: Callable[..., Any] | None = None,
    kinks: str = "report",
    **kwargs: Any,
) -> None:
    """Assert in a test that every gradient is correct. This calls `gradcheck` and raises an error.

    Parameters
    ----------
    forward, backward : callable
        The two functions, as described in `gradcheck`.
    *args : Any
        The positional arguments of forward. Every floating array among them is differentiated.
    rng : numpy.random.Generator, optional
        Draws d_output and the steps. Default: ``np.random.default_rng(0)``.
    tolerance : float or mapping
        The accepted relative error. A mapping such as ``{"params.W_1": 1e-6}`` gives it for some leaves;
        all others have 1e-8.
    directions : int, optional
        The number of random directions for larger arrays, as described in `gradcheck`.
    reference : callable, optional
        The same function as forward in float64, as described in `gradcheck`.
    kinks : str
        "pass" accepts every gradient between the two slopes at a kink.
    **kwargs : Any
        The keyword arguments of forward.

    Raises
    ------
    AssertionError
        A row of the report does not pass. The message is the whole table, with the failing rows first.

    Examples
    --------
    >>> square = lambda x: (x * x, x)
    >>> assert_gradients(square, lambda dy, x: dy * 2 * x, np.array([1.0, -3.0]))
    """
    __tracebackhide__ = True  # This variable makes pytest show the line of the test and not this function.
    report = gradcheck(
        forward,
        backward,
        *args,
        rng=rng,
        tolerance=tolerance,
        directions=directions,
        reference=reference,
        kinks=kinks,
        **kwargs,
    )
    if not report:
        raise AssertionError(str(report))


@np.errstate(all="ignore")
def gradcheck(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    *args: Any,
    rng: Rng | None = None,
    tolerance: float | Mapping[str, float] = 1e-8,
    directions: int | None = None,
    reference: Callable[..., Any] | None = None,
    kinks: str = "report",
    **kwargs: Any,
) -> "GradientReport":
    """Compare gradients with finite differences: is ``backward`` the derivative of ``forward``?

    Every entry is compared. Let φ(x) = Σ d_output · forward(x) for one random d_output. A correct backward
    pass returns dφ/dx. The module `npformer.gradcheck.finite_differences` explains how dφ/dx is estimated,
    and how large the error of the estimate may be.

    The report has one row for each floating array, with the worst entry of the array. The report is true if
    every row passes. Each row has one of these verdicts:

    - ``pass``: the gradient agrees with the differences.
    - ``fail``: the gradient is wrong. The note describes how the gradient differs from the correct
      gradient.
    - ``kink``: the derivative jumps at this point, as the derivative of max(0, z) does at z = 0. The gradient
      lies between the two one-sided derivatives.
    - ``unsure``: finite differences cannot decide. The note gives the reason, such as a forward pass that
      rounds inside or that is a staircase.

    A leaf is one floating array. Its error is relative to its largest gradient entry, but at least to 1e-3
    times the largest gradient entry of all leaves. So a leaf whose true gradient is zero can pass.

    After the comparison, both functions are called again. These faults make a row fail:

    - The gradient is not linear in d_output.
    - Backward writes into d_output or the cache, or returns a different gradient for the same arguments.
    - A call overwrites an array that an earlier call returned.
    - The gradient differs when d_output and the arguments are not contiguous in memory.
    - Forward writes into its arguments.

    A fault that does not belong to a single array has its own row, named forward or backward. A gradient with
    the wrong shape, type or dtype gives a failing row and not an exception.

    Parameters
    ----------
    forward : callable
        ``forward(*args, **kwargs)`` returns ``(output, cache)``. The output is a float64 or float32 array, or
        a tree of arrays: a tuple, list, dict, NamedTuple or dataclass. Then d_output has the same form.
    backward : callable
        ``backward(d_output, cache)`` returns a tuple with one gradient for each argument that has floating
        arrays, in the order of the arguments. A single gradient may be returned without a tuple.
    *args : Any
        The positional arguments of forward. Every floating array among them is differentiated, also inside
        tuples, lists, dicts and dataclasses. Other arguments (ids, masks, settings) are passed on unchanged.
        Arrays of other libraries (torch, JAX, CuPy and any library with DLPack or ``__array__``) are passed
        to both functions as arrays of their library. A numpy.random.Generator is copied for every call, so
        dropout uses the same mask in all calls.
    rng : numpy.random.Generator, optional
        Draws d_output and the steps. Default: ``np.random.default_rng(0)``. If forward has a parameter `rng`
        that receives no positional argument, each call of forward gets a copy of this generator.
    tolerance : float or mapping
        The accepted relative error. A mapping such as ``{"params.W_1": 1e-6}`` gives it for some leaves;
        all others have 1e-8.
    directions : int, optional
        The number k of random directions. If k is given, arrays with more than k entries are compared along k
        random directions only. The report gives the probability that a single wrong entry is not detected.
    reference : callable, optional
        ``reference(*args)`` returns the output in float64. It also receives the keyword arguments for which
        it has parameters. With a reference, forward and backward are checked in the dtype of the arguments,
        as described in the notes. Default for float16 and bfloat16: forward itself, called with float64
        arguments.
    kinks : str
        With "pass", a gradient at a kink passes if it lies between the two one-sided derivatives. The note
        says where it lies. With "report", its verdict is ``kink``, and the report is false.
    **kwargs : Any
        The keyword arguments of forward. They are not differentiated.

    Returns
    -------
    report : GradientReport

    Raises
    ------
    TypeError
        A floating array is not float64, float32, float16 or bfloat16, is given by keyword, or is an attribute
        of an object. TypeError is also raised if forward does not return a pair (output, cache).
    ValueError
        An argument or the output is not finite, or forward returns a different output when called again.

    Notes
    -----
    For float32 arguments, backward runs in float32. The differences use forward in float64. The accepted
    rounding error of a gradient is ten times the difference between the gradients that backward returns in
    float32 and in float64.

    For float16 and bfloat16 arguments (the latter from the package ml_dtypes), and for any arguments with a
    reference, the question is whether an error is rounding or a mistake. The gradients are compared at 32
    points close to the arguments. An error that is the same at all points is systematic. An error that
    changes from point to point is rounding. The module `npformer.gradcheck.low_precision` explains the
    statistic. `tolerance` is not used then.

    Examples
    --------
    >>> square = lambda x: (x * x, x)
    >>> print(gradcheck(square, lambda dy, x: dy * x, np.array([1.0, -3.0, 2.0])).rows[0].note)
    the gradient is 1/2 times the correct gradient; perhaps a factor is forgotten ...
    >>> bool(gradcheck(square, lambda dy, x: dy * 2 * x, np.array([1.0, -3.0])))
    True
    """
    check_callable("gradcheck", "forward", forward)
    check_callable("gradcheck", "backward", backward)
    if isinstance(tolerance, Mapping):
        for name, value in tolerance.items():
            check_number("gradcheck", f"tolerance[{name!r}]", value, above=0)
    else:
        check_number("gradcheck", "tolerance", tolerance, above=0)
    check_value("gradcheck", "rng", rng, Rng | None)
    if directions is not None:
        check_integer("gradcheck", "directions", directions, minimum=1)
    if reference is not None:
        check_callable("gradcheck", "reference", reference)
    is_known = isinstance(kinks, str) and kinks in KINKS
    if not is_known:
        expected = " or ".join(map(repr, KINKS))
        raise ValueError(f"gradcheck: kinks is {describe_value(kinks)}; expected {expected}")
    report = _compare(forward, backward, args, kwargs, rng, tolerance, directions, reference)
    if kinks == "pass":
        rows = [row._replace(verdict="pass") if row.verdict == "kink" else row for row in report.rows]
        report = report._replace(rows=tuple(rows))
    return report


def _compare(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    rng: Rng | None,
    tolerance: float | Mapping[str, float],
    directions: int | None,
    reference: Callable[..., Any] | None,
) -> "GradientReport":
    """Compare the gradients in the precision of the arguments.

    The modules are imported here, because they would take a fifth of the time of `import npformer`.
    """
    from npformer.gradcheck.high_precision import check_float64
    from npformer.gradcheck.kernels import Kernel, has_low_precision
    from npformer.gradcheck.low_precision import check_low_precision

    if reference is not None or has_low_precision(args):
        return check_low_precision(Kernel(forward, backward, reference, args, kwargs, rng), directions)
    return check_float64(forward, backward, args, kwargs, rng, tolerance, directions)
