"""The annotations for signatures: arrays with their shapes, numbers with their ranges.

`Float[Array, "... T d_model"]` is an array of floats with these axes. Further rules may follow the dimension
names. A type checker reads the name `Float` as `typing.Annotated`, so it sees only the type `Array`. The
module `annotation_reader` turns annotations into rules.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from npformer.validation import checks
from npformer.validation.call import (
    Call,
    Check,
    Phase,
    Rule,
    accept,
    all_of,
    check_with,
    record_sizes,
    shape_of,
)
from npformer.validation.checks import DimensionNames

__all__ = [
    "Bias", "Constant", "Count", "Counted", "DType", "Finite", "Float", "Ids",
    "Integer", "Length", "Mask", "NonNegative", "Numbers", "Positive", "Rate", "Rng", "RowNumbers", "Shape",
    "Size",    "integer", "number",
]  # fmt: skip


# --- arrays ---------------------------------------------------------------------------------------


class ArrayAnnotation:
    """An annotation of arrays, such as Float, which is used as `Float[Array, "... T d_model"]`.

    Parameters
    ----------
    name : str
        The name of the annotation.
    check_entries : check
        Checks the type and the dtype of the array.
    make_shape_check : function
        Makes the check of the shape from the dimension names.
    phase : Phase
        When the array is checked.
    records_sizes : bool
        Whether the array records the lengths of its dimensions for other arguments.
    reads_values : bool
        Whether the result of `check_entries` depends on the values in the array.
    """

    def __init__(
        self,
        name: str,
        check_entries: Check,
        make_shape_check: Callable[[DimensionNames], Check],
        phase: Phase = Phase.ARRAYS,
        *,
        records_sizes: bool = False,
        reads_values: bool = False,
    ) -> None:
        self.name = name
        self.check_entries = check_entries
        self.make_shape_check = make_shape_check
        self.phase = phase
        self.records_sizes = records_sizes
        self.reads_values = reads_values

    def __getitem__(self, item: tuple[Any, ...]) -> Rule:
        names = read_dimensions(self.name, item)
        _, dimensions, *further_rules = item
        description = f"{self.name}[Array, {', '.join([repr(dimensions), *map(str, further_rules)])}]"
        entries = Rule(
            description,
            self.check_entries,
            self.phase,
            dimension_names=names if self.records_sizes else None,
            is_float=self.check_entries is check_float,
            reads_values=self.reads_values,
        )
        shape = Rule(description, self.make_shape_check(names), self.phase)
        return all_of(description, [entries, shape, *further_rules])


def read_dimensions(annotation: str, item: Any) -> DimensionNames:
    """Return the dimension names of an annotation such as Float[Array, "... T d_model"].

    Raises TypeError if the item is not an array type and a string. Raises ValueError for a dimension that is
    neither a name nor a number, such as 2*d: a check could not read it.
    """
    is_readable = isinstance(item, tuple) and len(item) > 1 and isinstance(item[1], str)
    if not is_readable:
        example = f'{annotation}[numpy.ndarray, "... T d"]'
        raise TypeError(
            f"{annotation}[{item!r}] is no annotation; expected an array type and text: {example}"
        )
    names = tuple(item[1].split())
    for i, name in enumerate(names):
        is_name = name.isidentifier() and not name.startswith("_")
        is_leading = i == 0 and name == "..."
        if not (is_name or is_leading or name.isdecimal()):
            expected = "expected a name, a whole number, or ... as the first dimension"
            raise ValueError(f"{annotation}[Array, {item[1]!r}] has the dimension {name!r}; {expected}")
    return names


def check_float(x: Any, name: str, call: Call) -> None:
    """Check that x is a float32 or float64 array of the same dtype as all other float arrays."""
    checks.check_float(call.function, name, x, call.dtype)
    call.dtype = x.dtype


def check_numbers(x: Any, name: str, call: Call) -> None:
    """Check that x is an array of finite integers or floats."""
    checks.check_entries(call.function, name, x, "iuf", "an array of numbers")
    if x.dtype == np.float16:
        expected = "integers, float32 or float64 (float16 has no odd integers above 2048)"
        raise checks.wrong_dtype(call.function, name, x, expected)
    checks.check_finite(call.function, name, x)


def fixed_shape(names: DimensionNames) -> Check:
    """Return the check that an array has these dimensions."""

    def check(x: Any, name: str, call: Call) -> None:
        checks.check_shape(call.function, name, x, names, call.sizes)

    return check


def rows_shape(names: DimensionNames) -> Check:
    """Return the check that an array broadcasts to these dimensions. Its last axis must have full length."""

    def check(x: Any, name: str, call: Call) -> None:
        checks.check_shape(call.function, name, x, ("...", names[-1]), call.sizes)
        checks.check_broadcast(call.function, name, x, names, shape_of(names, call))

    return check


def recorded_shape(names: DimensionNames) -> Check:
    """Return the check that an array has these dimensions. The check also records their lengths.

    All arrays with leading axes must have the leading axes of the first such array.
    """

    def check(x: Any, name: str, call: Call) -> None:
        checks.check_shape(call.function, name, x, names, call.sizes)
        if call.leading_argument and names[:1] == ("...",):
            n_leading = len(x.shape) - len(names) + 1
            if x.shape[:n_leading] != call.leading:
                expected = f"the leading axes of {call.leading_argument}, {call.leading}"
                raise checks.wrong_shape(call.function, name, x, expected)
        record_sizes(names, x.shape, name, call)

    return check


def broadcast_shape(names: DimensionNames) -> Check:
    """Return the check that an array broadcasts to these dimensions."""

    def check(x: Any, name: str, call: Call) -> None:
        checks.check_broadcast(call.function, name, x, names, shape_of(names, call))

    return check


# --- numbers --------------------------------------------------------------------------------------


def number(description: str, **bounds: float) -> Rule:
    """Return the rule of a finite number within bounds: above, minimum, below, maximum."""
    return Rule(description, check_with(checks.check_number, **bounds))


def integer(description: str, minimum: int = -checks.LARGEST, *, is_size: bool = False) -> Rule:
    """Return the rule of an integer.

    With `is_size`, the integer is also recorded as the length of the dimension with the same name. For
    example, the value of `d_model` becomes the length of the dimension d_model.
    """

    def check(value: Any, name: str, call: Call) -> None:
        checks.check_integer(call.function, name, value, minimum)
        if is_size:
            dimension_name = name.rpartition(".")[2]  # from config.d_model to d_model
            call.sizes[dimension_name] = value

    return Rule(description, check)


Rate = Annotated[float, number("0 <= · < 1", minimum=0, below=1)]
NonNegative = Annotated[float, number(">= 0", minimum=0)]
Positive = Annotated[float, number("> 0", above=0)]
Finite = Annotated[float, number("finite")]
Integer = Annotated[int, integer("an integer")]
Count = Annotated[int, integer(">= 1", 1)]
Size = Annotated[int, integer(">= 1, a dimension", 1, is_size=True)]
Length = Annotated[int, integer(">= 0", 0)]
DType = Annotated[
    Any, Rule("dtype", check_with(checks.check_that, checks.names_floats, "float32 or float64"))
]

if TYPE_CHECKING:
    from typing import Annotated as Bias
    from typing import Annotated as Constant
    from typing import Annotated as Counted
    from typing import Annotated as Float
    from typing import Annotated as Ids
    from typing import Annotated as Mask
    from typing import Annotated as Numbers
    from typing import Annotated as RowNumbers
    from typing import Annotated as Shape

    from numpy.random import Generator as Rng
else:
    check_booleans = check_with(
        checks.check_entries, "b", "a boolean array, True = may attend", "bool, True = may attend"
    )
    check_ids = check_with(checks.check_entries, "iu", "an array of integers")
    Float = ArrayAnnotation("Float", check_float, recorded_shape, records_sizes=True)
    check_counted = check_with(
        checks.check_entries, "b", "a boolean array, True = counts", "bool, True = counts"
    )
    Bias = ArrayAnnotation("Bias", check_float, broadcast_shape, Phase.MASKS)
    # A `Constant` gets no gradient, such as the log-probabilities of a reference model. `Counted` says which
    # tokens count.
    Constant = ArrayAnnotation("Constant", check_float, broadcast_shape, Phase.MASKS)
    Counted = ArrayAnnotation("Counted", check_counted, broadcast_shape, Phase.MASKS)
    Ids = ArrayAnnotation("Ids", check_ids, recorded_shape, Phase.IDS, records_sizes=True)
    Mask = ArrayAnnotation("Mask", check_booleans, broadcast_shape, Phase.MASKS)
    Numbers = ArrayAnnotation("Numbers", check_numbers, fixed_shape, Phase.IDS, reads_values=True)
    # One number for each row of an array, with the shape (..., T). The axes before T broadcast to those of
    # the array, or are left out.
    RowNumbers = ArrayAnnotation("RowNumbers", check_numbers, rows_shape, Phase.IDS, reads_values=True)
    # Some caches have the shape of an array as a field. `Shape` annotates such a field.
    Shape = ArrayAnnotation("Shape", accept, recorded_shape, records_sizes=True)
    Rng = Rule("Rng", check_with(checks.check_generator))
